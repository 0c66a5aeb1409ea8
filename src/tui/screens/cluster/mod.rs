//! The Cluster screen: cursor, picks, folds, filter, order; and how its keys change them.

pub mod heat;
pub(super) mod keys;
pub mod order;
pub mod rows;
pub mod shape;
pub(super) mod view;

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::{GpuUuid, HostId};
use crate::tui::core::Screen;
use crate::tui::core::filter::Filter;
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::order::Order;
use crate::tui::screens::cluster::rows::{RowId, rows};
use crate::tui::screens::cluster::shape::Shape;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Cluster,
    name: "Cluster",
    tabs: true,
    keys: &[keys::KEYS, LISTS, EVERYWHERE],
    act: keys::act,
    typed: |_, _| Vec::new(),
    pasted: |_, _| Vec::new(),
    settle,
    mouse: keys::mouse,
    draw: |model, canvas| {
        view::draw(model, canvas);
        None
    },
};

/// The state of the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterUi {
    /// The cursor.
    pub cursor: Cursor<RowId>,
    /// Picked GPUs by host, with their index for people.
    pub picks: BTreeMap<HostId, BTreeMap<u32, GpuUuid>>,
    /// Picked CPU slots by host.
    pub cpu_picks: BTreeMap<HostId, u32>,
    /// Hosts that show their summary only.
    pub folded: BTreeSet<HostId>,
    /// What is let through.
    pub filter: Filter,
    /// The filter as typed.
    pub filter_text: String,
    /// Order of the hosts.
    pub order: Order,
    /// Whether it is turned round.
    pub reversed: bool,
}

impl ClusterUi {
    /// How many slots are picked.
    pub fn picked(&self) -> u32 {
        let gpus: usize = self.picks.values().map(BTreeMap::len).sum();
        gpus as u32 + self.cpu_picks.values().sum::<u32>()
    }

    /// Whether a GPU is picked.
    pub fn is_picked(&self, host: &HostId, uuid: &GpuUuid) -> bool {
        self.picks.get(host).is_some_and(|gpus| gpus.values().any(|picked| picked == uuid))
    }

    fn toggle(&mut self, host: &HostId, index: u32, uuid: &GpuUuid) {
        let gpus = self.picks.entry(host.clone()).or_default();
        if gpus.remove(&index).is_none() {
            gpus.insert(index, uuid.clone());
        }
        if gpus.is_empty() {
            self.picks.remove(host);
        }
    }

    fn set_cpus(&mut self, host: &HostId, slots: u32) {
        if slots == 0 {
            self.cpu_picks.remove(host);
        } else {
            self.cpu_picks.insert(host.clone(), slots);
        }
    }

    /// Drops all picks.
    pub fn unpick(&mut self) {
        self.picks.clear();
        self.cpu_picks.clear();
    }
}

/// Keeps cursor and picks true after the world or the screen changed.
pub fn settle(model: &mut Model) {
    let rows = rows(model);
    let shape = Shape::of(model);
    let height = if shape.heat { rows.len() } else { shape.height() };
    model.ui.cluster.cursor.settle(&rows, height);
}
