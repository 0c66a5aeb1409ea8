//! The Runs screen: live runs and recordings as one list.

pub(super) mod delete;
pub(super) mod keys;
pub(super) mod opening;
pub(super) mod view;

use std::collections::BTreeSet;

use crate::domain::ids::RunId;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{KeptRecordings, RunSpec, RunStage, RunSummary};
use crate::domain::run_list::{ListedRun, ListedState, RunFilter};
use crate::domain::run_status::RunStatus;
use crate::domain::time::Stamp;
use crate::domain::trained::Trained;
use crate::domain::world::RunState;
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::view::title;

/// What is said where there is no run.
const NO_RUN: &str = "no run yet: pick GPUs on the Cluster screen with space, launch with L";

/// For so long the list comes in that its first visit asked for, here and from the hosts, microseconds.
const COMES_IN_US: i64 = 3_000_000;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Runs,
    name: "Runs",
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
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunsUi {
    /// The cursor.
    pub cursor: Cursor<RunId>,
    /// When the list was shown first.
    pub shown_at: Option<Stamp>,
    /// Whether the cursor stays on its run; while the first list comes in it is on the first one.
    pub chosen: bool,
    /// Only runs that it lets through.
    pub filter: RunFilter,
    /// How it was typed.
    pub filter_text: String,
    /// Runs that are marked, to be deleted together.
    pub marked: BTreeSet<RunId>,
    /// Runs whose recordings are being deleted.
    pub deleting: BTreeSet<RunId>,
    /// What all recordings take; `None` before they were listed.
    pub kept: Option<KeptRecordings>,
    /// Whether the list was asked for and has not come.
    pub loading: bool,
    /// The run that is opened once it can be.
    pub wanted: Option<opening::Wanted>,
}

/// A run of the list, from the stream or from its recording.
#[derive(Debug, Clone, Copy)]
pub struct RunRow<'a> {
    /// What was asked for.
    pub spec: &'a RunSpec,
    /// The stage it is in or ended in.
    pub stage: Option<RunStage>,
    /// When it ended, else when something was last heard of it.
    pub last_at: Stamp,
    /// How it ended.
    pub outcome: Option<&'a RunOutcome>,
    /// Its live state, when the stream has it.
    pub live: Option<&'a RunState>,
    /// Its recording.
    pub recording: Option<&'a RunSummary>,
    /// How its hosts say it stands.
    pub status: RunStatus,
    /// When it was over by what its hosts tell.
    pub over_at: Option<Stamp>,
}

impl<'a> RunRow<'a> {
    /// What filter and order look at.
    fn listed(&self, now: Stamp) -> ListedRun<'a> {
        ListedRun {
            spec: self.spec,
            state: self.state(),
            duration_us: self.duration_us(now),
            bytes: self.recording.map(|recording| recording.bytes),
            trained: self.trained(),
        }
    }

    /// How it stands.
    pub fn state(&self) -> ListedState {
        let status = if self.goes_on() { RunStatus::Running } else { self.status };
        ListedState::of(self.spec, self.outcome, status)
    }

    /// How far its training came, by its recording.
    fn trained(&self) -> Option<&'a Trained> {
        self.recording?.trained.as_ref()
    }

    /// Since when it stands still, by its recording.
    pub fn stands_since(&self) -> Option<Stamp> {
        self.trained()?.stands(self.recording?.last_at)
    }

    /// Whether it goes on, as far as that is known.
    pub fn goes_on(&self) -> bool {
        self.is_elsewhere() || self.made_ready().is_some() || self.live.is_some_and(RunState::is_live)
    }

    /// How long it took, or has taken so far; `None` where its end is not known.
    pub fn duration_us(&self, now: Stamp) -> Option<u64> {
        let ended = if self.outcome.is_some() { Some(self.last_at) } else { self.over_at };
        let end = if self.goes_on() { Some(now) } else { ended };
        end.map(|end| self.until_us(end))
    }

    /// How long it took until it was seen last, where its end is not known and it is recorded.
    pub fn seen_us(&self) -> Option<u64> {
        let is_seen = self.outcome.is_none() && !self.goes_on() && self.recording.is_some();
        is_seen.then(|| self.until_us(self.last_at))
    }

    fn until_us(&self, end: Stamp) -> u64 {
        u64::try_from(end.micros_since(self.spec.created)).unwrap_or(0)
    }

    /// How far it is: the last step that all ranks have finished; of a run that has ended the last one of any rank, as its
    /// recording has it.
    pub fn step(&self) -> Option<u64> {
        let recorded =
            self.recording.and_then(|recording| recording.trained.as_ref()).map(|trained| trained.step);
        match self.live {
            Some(run) if run.is_live() => run.step(),
            Some(run) => run.last_step().max(recorded),
            None => recorded,
        }
    }

    /// Whether it goes on on its hosts and is not followed here.
    pub fn is_elsewhere(&self) -> bool {
        self.live.is_none() && self.status == RunStatus::Running
    }

    /// The stage in which another client of this machine makes it ready: no rank of it runs yet, or just now.
    pub fn made_ready(&self) -> Option<RunStage> {
        let recording = self.recording.filter(|recording| recording.is_made_ready)?;
        let is_elsewhere = self.live.is_none() && self.status != RunStatus::Running;
        // its first stage may not be on the disk yet
        is_elsewhere.then(|| recording.stage.unwrap_or(RunStage::Prepare))
    }
}

/// All of a run that is not followed here, by its recording or its hosts.
pub(super) fn spec_elsewhere<'a>(model: &'a Model, run: &RunId) -> Option<&'a RunSpec> {
    if model.world.runs.contains_key(run) {
        return None;
    }
    let recording = model.recordings.iter().find(|recording| recording.spec.id == *run);
    model.inventory.spec(run).or(recording.map(|recording| &recording.spec))
}

/// Whether a run that is not followed here goes on, or may: one that is started again after a failure may have no rank just now.
pub(super) fn may_go_on(model: &Model, run: &RunId) -> bool {
    let recording = model.recordings.iter().find(|recording| recording.spec.id == *run);
    let has_ended = recording.is_some_and(|recording| recording.outcome.is_some());
    let is_made_ready = recording.is_some_and(|recording| recording.is_made_ready);
    let is_restarted = spec_elsewhere(model, run).is_some_and(|spec| spec.options.max_restarts > 0);
    model.inventory.is_live(run) || is_made_ready || is_restarted && !has_ended
}

/// All runs that the filter lets through, in the order of the screen.
pub fn rows(model: &Model) -> Vec<RunRow<'_>> {
    let mut rows = all(model);
    rows.retain(|row| model.ui.runs.filter.matches(&row.listed(model.now), model.now));
    model.settings.runs.sort(&mut rows, |row| row.listed(model.now));
    rows
}

/// All runs: of the stream, of the recordings, of the hosts.
fn all(model: &Model) -> Vec<RunRow<'_>> {
    let from_world = model.world.runs.values().map(|run| RunRow {
        spec: &run.spec,
        stage: run.stage(),
        last_at: run.outcome.as_ref().and_then(|outcome| outcome.at).unwrap_or(run.last_at),
        outcome: run.outcome.as_ref(),
        live: Some(run),
        recording: model.recordings.iter().find(|recording| recording.spec.id == run.spec.id),
        status: model.inventory.status(&run.spec, run.outcome.as_ref()),
        over_at: model.inventory.over_at(&run.spec),
    });
    let recorded =
        model.recordings.iter().filter(|recording| !model.world.runs.contains_key(&recording.spec.id));
    let from_disk = recorded.map(|recording| RunRow {
        spec: &recording.spec,
        stage: recording.stage,
        last_at: recording.outcome.as_ref().and_then(|outcome| outcome.at).unwrap_or(recording.last_at),
        outcome: recording.outcome.as_ref(),
        live: None,
        recording: Some(recording),
        status: model.inventory.status(&recording.spec, recording.outcome.as_ref()),
        over_at: model.inventory.over_at(&recording.spec),
    });
    let unknown = |run: &&RunId| {
        !model.world.runs.contains_key(run) && !model.recordings.iter().any(|known| known.spec.id == **run)
    };
    let specs = model.inventory.shares.keys().filter(unknown).filter_map(|run| model.inventory.spec(run));
    let from_hosts = specs.map(|spec| RunRow {
        spec,
        stage: None,
        last_at: spec.created,
        outcome: None,
        live: None,
        recording: None,
        status: model.inventory.status(spec, None),
        over_at: model.inventory.over_at(spec),
    });
    from_world.chain(from_disk).chain(from_hosts).collect()
}

/// The newest run that goes on, else the newest one, wherever it is known from.
pub fn newest(model: &Model) -> Option<RunId> {
    let newest = all(model).into_iter().max_by_key(|row| (row.goes_on(), row.spec.created));
    newest.map(|row| row.spec.id.clone())
}

fn ids(model: &Model) -> Vec<RunId> {
    rows(model).iter().map(|row| row.spec.id.clone()).collect()
}

/// Keeps the cursor true after the list changed.
pub fn settle(model: &mut Model) {
    let known: BTreeSet<RunId> = all(model).iter().map(|row| row.spec.id.clone()).collect();
    model.ui.runs.marked.retain(|run| known.contains(run));
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.area()).h);
    let (now, ui) = (model.now, &mut model.ui.runs);
    ui.chosen |= now.micros_since(*ui.shown_at.get_or_insert(now)) >= COMES_IN_US;
    if !ui.chosen {
        ui.cursor = Cursor::default();
    }
    ui.cursor.settle_newest_first(&ids, height);
}

/// Selects a run that was launched here: it is the selected one when the list is shown.
pub(super) fn select(model: &mut Model, run: RunId) {
    model.ui.runs.cursor = Cursor { on: Some(run), ..Cursor::default() };
    model.ui.runs.chosen = true;
}
