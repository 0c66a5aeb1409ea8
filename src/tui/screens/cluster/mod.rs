//! The Cluster screen: cursor, picks, folds, filter, order; and how its keys change them.

pub mod filtering;
pub mod heat;
pub(super) mod keys;
pub mod order;
pub(super) mod picking;
pub mod rows;
pub mod shape;
pub(super) mod view;

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::filter::Filter;
use crate::domain::ids::{GpuUuid, HostId};
use crate::tui::core::Screen;
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{RowId, rows};
use crate::tui::screens::cluster::shape::Shape;
use crate::tui::screens::view::title;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Cluster,
    name: "Cluster",
    title: title::action_at,
    keys: &[keys::KEYS, LISTS, EVERYWHERE],
    act: keys::act,
    missing: keys::missing,
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
    /// What belongs to the line in which it is typed.
    pub typing: filtering::Typing,
    /// Filters that held before, newest last.
    pub earlier: Vec<String>,
    /// Which of the saved filters is shown.
    pub view: Option<usize>,
    /// Where a range of picks begins.
    pub range: Option<RowId>,
    /// The picks that `f` has found.
    pub found: BTreeSet<(HostId, GpuUuid)>,
    /// How many of a host's CPU slots `f` has found.
    pub found_cpus: BTreeMap<HostId, u32>,
    /// How much there is to list; what divides the screen.
    pub counts: rows::Counts,
    /// The values by which they are ordered for now.
    pub keys: order::Keys,
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
        if self.is_picked(host, uuid) {
            self.drop_pick(host, uuid);
        } else {
            self.add(host, index, uuid);
        }
    }

    fn add(&mut self, host: &HostId, index: u32, uuid: &GpuUuid) {
        if !self.is_picked(host, uuid) {
            self.picks.entry(host.clone()).or_default().insert(index, uuid.clone());
        }
        // What a person picks stays, whatever `f` finds later.
        self.found.remove(&(host.clone(), uuid.clone()));
    }

    /// Drops one pick, if it is one.
    pub fn drop_pick(&mut self, host: &HostId, uuid: &GpuUuid) {
        if let Some(gpus) = self.picks.get_mut(host) {
            gpus.retain(|_, picked| picked != uuid);
        }
        self.picks.retain(|_, gpus| !gpus.is_empty());
        self.found.remove(&(host.clone(), uuid.clone()));
    }

    /// Drops what `f` has picked.
    fn drop_found(&mut self) {
        for (host, uuid) in std::mem::take(&mut self.found) {
            self.drop_pick(&host, &uuid);
        }
        for (host, found) in std::mem::take(&mut self.found_cpus) {
            let left = self.cpu_picks.get(&host).copied().unwrap_or(0).saturating_sub(found);
            self.set_cpus(&host, left);
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
        self.found.clear();
        self.found_cpus.clear();
        self.range = None;
    }
}

/// Whether a sample can change which rows there are, or their order.
pub(super) fn follows_samples(model: &Model) -> bool {
    let ui = &model.ui.cluster;
    !ui.filter.is_empty() || model.settings.hosts.by.is_by_values()
}

/// Keeps cursor and picks true after the world or the screen changed.
pub fn settle(model: &mut Model) {
    order::refresh(model);
    model.ui.cluster.counts = rows::counts(model);
    let rows = rows(model);
    let shape = Shape::of(model);
    let height = if shape.heat { rows.len() } else { shape.height() };
    let on = model.ui.cluster.cursor.on.as_ref().map(|on| on.now(model));
    let range = model.ui.cluster.range.as_ref().map(|begun| begun.now(model));
    model.ui.cluster.range = range;
    let cursor = &mut model.ui.cluster.cursor;
    cursor.on = on;
    // a row that goes leaves the cursor on its host
    let same_host = |on: &RowId| rows.iter().position(|row| row.host() == on.host());
    if let Some(on) = cursor.on.as_ref().filter(|on| !rows.contains(on))
        && let Some(at) = same_host(on)
    {
        cursor.move_to(at, &rows, height);
    }
    cursor.settle(&rows, height);
    picking::settle(model, &rows);
}
