//! The Detail screen: which row is looked at, and how far it is scrolled.

use super::effect::Effect;
use super::keymap::Action;
use super::model::{Model, Screen};
use super::rows::RowId;

/// The state of the screen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DetailUi {
    /// The host or GPU.
    pub on: Option<RowId>,
    /// First line of the processes shown.
    pub scroll: usize,
}

/// Does what a key means here.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let detail = &mut model.ui.detail;
    match action {
        Action::Back => model.ui.screen = Screen::Cluster,
        Action::Up => detail.scroll = detail.scroll.saturating_sub(1),
        Action::Down => detail.scroll += 1,
        Action::Top => detail.scroll = 0,
        Action::Reconnect => {
            let host = detail.on.as_ref().map(|row| row.host().clone());
            return host.map(Effect::Reconnect).into_iter().collect();
        }
        _ => {}
    }
    settle(model);
    Vec::new()
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
