//! The stacks of a run's ranks side by side, over the Run screen: what was asked for, what has come, and its keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::collectives::{Collected, HostCollectives};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, RunId};
use crate::domain::stacks::ProcessStacks;
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::tui::core::{Effect, Key, KeyCode, Level};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;

/// How long hosts are waited for, microseconds.
const PATIENCE_US: i64 = 15_000_000;
/// Lines of a page of the panel.
const PAGE: usize = 10;

/// What was asked for and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StacksUi {
    /// Of which run.
    pub run: RunId,
    /// When they were asked.
    pub asked_at: Stamp,
    /// Hosts that have not answered yet.
    pub due: BTreeSet<HostId>,
    /// What has come.
    pub stacks: Vec<ProcessStacks>,
    /// Which collectives the processes have called.
    pub collected: Collected,
    /// How many ranks the run has.
    pub ranks: u32,
    /// Hosts that could not tell, and why.
    pub silent: BTreeMap<HostId, String>,
    /// Every thread is shown, not the main one alone.
    pub all_threads: bool,
    /// The first line that is shown.
    pub first: usize,
}

/// Asks for the stacks of the run that is shown, if it goes on.
pub fn ask(model: &mut Model) -> Vec<Effect> {
    let Some((id, run)) = model.shown_run() else { return Vec::new() };
    if !run.is_live() {
        model.notice(Level::Info, "this run has ended: it has no stacks any more");
        return Vec::new();
    }
    let (run, due) = (id.clone(), run.spec.hosts().into_iter().collect());
    let spec = model.world.runs[&run].spec.clone();
    let all_threads = matches!(&model.ui.overlay, Overlay::Stacks(shown) if shown.all_threads);
    let (collected, ranks) = (Collected::default(), spec.world());
    let (stacks, silent) = (Vec::new(), BTreeMap::new());
    let shown =
        StacksUi { run, asked_at: model.now, due, stacks, collected, ranks, silent, all_threads, first: 0 };
    model.ui.overlay = Overlay::Stacks(shown);
    vec![Effect::AskStacks { spec, threads: all_threads }]
}

/// What a host has answered; nothing where the panel was closed meanwhile.
pub fn told(
    model: &mut Model,
    run: &RunId,
    host: HostId,
    (stacks, why, collectives): (Vec<ProcessStacks>, Option<String>, HostCollectives),
    last: bool,
) {
    let now = model.now;
    let Overlay::Stacks(shown) = &mut model.ui.overlay else { return };
    if shown.run != *run || !shown.due.contains(&host) {
        return;
    }
    shown.stacks.extend(stacks);
    if !collectives.is_empty() {
        shown.collected.take(now, &host, collectives, shown.ranks);
    }
    if last {
        shown.due.remove(&host);
    }
    if let Some(why) = why {
        shown.silent.insert(host, why);
    }
}

impl StacksUi {
    /// Why a host that has not answered is waited for no longer: it has no link, or time is up.
    pub fn given_up(&self, world: &World, host: &HostId, now: Stamp) -> Option<&'static str> {
        let link = world.hosts.get(host).and_then(|host| host.link.as_ref());
        if link.is_some_and(|(_, link)| matches!(link, LinkState::Down { .. } | LinkState::Refused { .. })) {
            return Some("there is no link to it");
        }
        let late = now.micros_since(self.asked_at) > PATIENCE_US;
        late.then_some("no answer in 15 s, or its hvtui agent is an older one: S asks again")
    }
}

/// A key while the panel is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Overlay::Stacks(shown) = &mut model.ui.overlay else { return Vec::new() };
    match key.code {
        KeyCode::Up | KeyCode::Char('k') => shown.first = shown.first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => shown.first += 1,
        KeyCode::PageUp => shown.first = shown.first.saturating_sub(PAGE),
        KeyCode::PageDown => shown.first += PAGE,
        KeyCode::Home | KeyCode::Char('g') => shown.first = 0,
        KeyCode::Char('t') => {
            shown.all_threads = !shown.all_threads;
            // The other threads are told to who asks for them.
            return ask(model);
        }
        KeyCode::Char('S') => return ask(model),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => model.ui.overlay = Overlay::None,
        _ => {}
    }
    Vec::new()
}
