//! The Runs screen: live runs and recordings as one list, newest first.

mod keys;
pub(super) mod view;

use crate::domain::ids::RunId;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RunSpec, RunStage, RunSummary};
use crate::domain::share::Standing;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::launch::words::join;
use crate::tui::core::keymap::{EVERYWHERE, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Entry;
use crate::tui::screens::Model;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Runs,
    name: "Runs",
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
pub struct RunsUi {
    /// The cursor.
    pub cursor: Cursor<RunId>,
    /// Only runs that contain this.
    pub filter: String,
    /// Whether the list was asked for and has not come.
    pub loading: bool,
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
    pub standing: Standing,
}

impl RunRow<'_> {
    /// Whether it goes on on its hosts and is not followed here.
    pub fn is_elsewhere(&self) -> bool {
        self.live.is_none() && self.standing == Standing::Running
    }
}

/// All runs, newest first, those that the filter lets through.
pub fn rows(model: &Model) -> Vec<RunRow<'_>> {
    let from_world = model.world.runs.values().map(|run| RunRow {
        spec: &run.spec,
        stage: run.stage(),
        last_at: run.outcome.as_ref().and_then(|outcome| outcome.at).unwrap_or(run.last_at),
        outcome: run.outcome.as_ref(),
        live: Some(run),
        recording: model.recordings.iter().find(|recording| recording.spec.id == run.spec.id),
        standing: model.heard.standing(&run.spec, run.outcome.as_ref()),
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
        standing: model.heard.standing(&recording.spec, recording.outcome.as_ref()),
    });
    let unknown = |run: &&RunId| {
        !model.world.runs.contains_key(run) && !model.recordings.iter().any(|known| known.spec.id == **run)
    };
    let heard = model.heard.shares.keys().filter(unknown).filter_map(|run| model.heard.spec(run));
    let from_hosts = heard.map(|spec| RunRow {
        spec,
        stage: None,
        last_at: spec.created,
        outcome: None,
        live: None,
        recording: None,
        standing: model.heard.standing(spec, None),
    });
    let needle = model.ui.runs.filter.to_lowercase();
    let matches = |row: &RunRow<'_>| {
        needle.is_empty()
            || row.spec.name.to_lowercase().contains(&needle)
            || row.spec.id.as_str().to_lowercase().contains(&needle)
            || join(&row.spec.command).to_lowercase().contains(&needle)
    };
    let mut rows: Vec<RunRow<'_>> = from_world.chain(from_disk).chain(from_hosts).filter(matches).collect();
    rows.sort_by(|a, b| (b.spec.created, &b.spec.id).cmp(&(a.spec.created, &a.spec.id)));
    rows
}

fn ids(model: &Model) -> Vec<RunId> {
    rows(model).iter().map(|row| row.spec.id.clone()).collect()
}

/// Keeps the cursor true after the list changed.
pub fn settle(model: &mut Model) {
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.area()).h);
    model.ui.runs.cursor.settle(&ids, height);
}
