//! The Detail screen: which row is looked at, and which of its processes is selected.

mod keys;
pub(super) mod view;

use crate::tui::core::Screen;
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::RowId;
use crate::tui::screens::processes::{ProcessId, ProcessRow, of_host};
use crate::tui::screens::view::title;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Detail,
    name: "Detail",
    title: title::action_at,
    keys: &[keys::KEYS, LAUNCH, LISTS, EVERYWHERE],
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailUi {
    /// The host or GPU.
    pub on: Option<RowId>,
    /// The selected process. How many fit is the view's to know, so the cursor's offset is not used.
    pub cursor: Cursor<ProcessId>,
}

/// Opens the detail of a host or GPU, with one of its processes selected.
pub(super) fn open(model: &mut Model, row: RowId, process: Option<ProcessId>) {
    model.ui.detail.on = Some(row);
    model.ui.detail.cursor = Cursor { on: process, ..Cursor::default() };
    model.ui.open(Screen::Detail);
}

/// The processes of a row, and why some are not told.
pub fn processes<'a>(model: &'a Model, row: &RowId) -> (Vec<ProcessRow<'a>>, Option<String>) {
    let place = match row {
        RowId::Gpu(_, _, place) => Some(*place),
        _ => None,
    };
    let state = model.world.hosts.get_key_value(row.host());
    state.map_or_else(Default::default, |state| of_host(state, place))
}

fn ids(model: &Model) -> Vec<ProcessId> {
    let on = model.ui.detail.on.as_ref();
    on.map_or_else(Vec::new, |row| processes(model, row).0.iter().map(ProcessRow::id).collect())
}

/// Keeps the cursor true after the list changed.
pub fn settle(model: &mut Model) {
    model.ui.detail.on = model.ui.detail.on.as_ref().map(|on| on.now(model));
    let ids = ids(model);
    model.ui.detail.cursor.settle(&ids, usize::MAX);
}
