//! Enter on a run: one that goes on elsewhere is attached to, one that has ended is replayed. Which of them it is, its hosts say: those
//! that have not told yet are waited for.

use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::RunSpec;
use crate::tui::core::{Effect, Level, Screen};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::run::RunUi;
use crate::tui::screens::view::title::plural;
use crate::tui::screens::{Model, replay};

/// A run that is to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    run: RunId,
    /// Where that was asked for. A person who has gone elsewhere is left there.
    on: Screen,
    /// Whether its hosts are asked first.
    unheard: bool,
}

/// Opens a run.
pub(in crate::tui::screens) fn open(model: &mut Model, id: RunId) -> Vec<Effect> {
    let asked = model.ui.runs.wanted.take();
    let recorded = model.recordings.iter().any(|recording| recording.spec.id == id);
    if let Some(spec) = to_attach(model, &id) {
        return attach(model, spec);
    }
    if model.world.runs.get(&id).is_some_and(|run| run.is_live() || !recorded) {
        model.ui.run = RunUi::on(id);
        model.ui.open(Screen::Run);
        return Vec::new();
    }
    let is_asked = asked.is_some_and(|wanted| wanted.run == id && wanted.unheard);
    let due = due(model, &id);
    if let Some(first) = due.first().filter(|_| !is_asked) {
        let others = match due.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more {}", plural(more, "host")),
        };
        let again = if recorded { "; enter again replays what is recorded here" } else { "" };
        let text = format!("asking {first}{others} whether run {} goes on{again}", id.short());
        model.notice(Level::Info, text);
        model.ui.runs.wanted = Some(Wanted { run: id, on: model.ui.screen, unheard: true });
        return Vec::new();
    }
    open_replay(model, id)
}

fn attach(model: &mut Model, spec: RunSpec) -> Vec<Effect> {
    model.notice(Level::Info, format!("attaching to run {} …", spec.id.short()));
    model.ui.runs.wanted = Some(Wanted { run: spec.id.clone(), on: model.ui.screen, unheard: false });
    vec![Effect::Attach(Box::new(spec))]
}

/// The run, if its hosts have more of it than is known here: it goes on there, or has ended since.
fn to_attach(model: &Model, id: &RunId) -> Option<RunSpec> {
    let row = super::all(model).into_iter().find(|row| row.spec.id == *id)?;
    let more = row.live.is_none() && row.outcome.is_none() && model.inventory.shares.contains_key(id);
    more.then(|| row.spec.clone())
}

/// Hosts that may still tell of a run whose end is not known here: those with which a link is being made, or has just been.
fn due(model: &Model, id: &RunId) -> Vec<HostId> {
    let row = super::all(model).into_iter().find(|row| row.spec.id == *id);
    let Some(row) = row.filter(|row| row.live.is_none() && row.outcome.is_none()) else { return Vec::new() };
    let comes = |host: &HostId| {
        let Some(state) = model.world.hosts.get(host) else { return false };
        let link = state.link.as_ref().map(|(_, link)| link);
        let lost = matches!(
            link,
            Some(LinkState::Limited { .. } | LinkState::Down { .. } | LinkState::Refused { .. })
        );
        !lost
    };
    let mut due = model.inventory.unheard(row.spec);
    due.retain(comes);
    due
}

/// Opens what is wanted where its hosts have told, or can't.
pub(in crate::tui::screens) fn heard(model: &mut Model) -> Vec<Effect> {
    let Some(wanted) = model.ui.runs.wanted.clone().filter(|wanted| wanted.unheard) else {
        return Vec::new();
    };
    if !is_waited_for(model, &wanted) {
        model.ui.runs.wanted = None;
        return Vec::new();
    }
    if to_attach(model, &wanted.run).is_none() && !due(model, &wanted.run).is_empty() {
        return Vec::new();
    }
    open(model, wanted.run)
}

/// A run is followed from now on: its screen is shown, unless something else is being done by now.
pub(in crate::tui::screens) fn attached(model: &mut Model, run: RunId) {
    let wanted = model.ui.runs.wanted.take_if(|wanted| wanted.run == run);
    if wanted.is_some_and(|wanted| is_waited_for(model, &wanted)) {
        model.ui.run = RunUi::on(run);
        model.ui.open(Screen::Run);
    } else {
        model.notice(Level::Info, format!("run {} is followed now: enter on Runs shows it", run.short()));
    }
}

/// Whether the person is where the run was asked for.
fn is_waited_for(model: &Model, wanted: &Wanted) -> bool {
    model.ui.screen == wanted.on && matches!(model.ui.overlay, Overlay::None | Overlay::Help(_))
}

pub(super) fn open_replay(model: &mut Model, id: RunId) -> Vec<Effect> {
    if super::keys::is_recorded(model, &id) { replay::open(model, id) } else { Vec::new() }
}
