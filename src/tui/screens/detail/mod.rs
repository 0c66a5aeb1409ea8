//! The Detail screen: which row is looked at, and how far it is scrolled.

mod keys;
pub(super) mod view;

use crate::tui::core::Screen;
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::RowId;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Detail,
    name: "Detail",
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailUi {
    /// The host or GPU.
    pub on: Option<RowId>,
    /// First line of the processes shown.
    pub scroll: usize,
}

/// How many processes the row has.
pub fn process_count(model: &Model) -> usize {
    let Some(row) = &model.ui.detail.on else { return 0 };
    let latest = model.world.hosts.get(row.host()).and_then(|state| state.latest());
    let Some((_, sample)) = latest else { return 0 };
    let chosen = |at: usize| match row {
        RowId::Gpu(_, _, place) => *place == at,
        _ => true,
    };
    let gpus = sample.gpus.iter().enumerate().filter(|(at, _)| chosen(*at));
    gpus.filter_map(|(_, gpu)| gpu.processes.value()).map(Vec::len).sum()
}

/// Keeps the scroll inside the list.
pub fn settle(model: &mut Model) {
    let last = process_count(model).saturating_sub(1);
    model.ui.detail.scroll = model.ui.detail.scroll.min(last);
}
