//! The Runs screen: live runs and recordings as one list, newest first.

use super::effect::Effect;
use super::keymap::Action;
use super::layout;
use super::list::{self, Cursor};
use super::model::{Model, Overlay, Screen};
use super::msg::Level;
use super::prompt::{Prompt, PromptKind};
use super::run::{RunUi, ask_stop};
use crate::domain::ids::RunId;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RunSpec, RunStage, RunSummary};
use crate::domain::share::Standing;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::launch::words::join;

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
    let height = usize::from(layout::runs_list(model.size).h);
    model.ui.runs.cursor.settle(&ids, height);
}

/// Does what a key means here.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let chosen = model.ui.runs.cursor.on.clone();
    match action {
        Action::Open => {
            let Some(id) = chosen else { return Vec::new() };
            let recorded = model.recordings.iter().any(|recording| recording.spec.id == id);
            if let Some(spec) = to_take_up(model, &id) {
                model.notice(Level::Info, format!("taking up run {} …", id.short()));
                return vec![Effect::Attach(Box::new(spec))];
            }
            if model.world.runs.get(&id).is_some_and(|run| run.is_live() || !recorded) {
                model.ui.run = RunUi::on(id);
                model.ui.screen = Screen::Run;
            } else {
                return open_replay(model, id);
            }
        }
        Action::OpenReplay => return chosen.map_or_else(Vec::new, |id| open_replay(model, id)),
        Action::Again => {
            let spec = rows(model)
                .iter()
                .find(|row| Some(&row.spec.id) == chosen.as_ref())
                .map(|row| row.spec.clone());
            return spec.map_or_else(Vec::new, |spec| super::launch::again(model, &spec));
        }
        Action::Search => {
            let prompt = Prompt::new(PromptKind::RunsFilter, &model.ui.runs.filter);
            model.ui.overlay = Overlay::Prompt(prompt);
        }
        Action::Stop => ask_stop(model, chosen),
        Action::Refresh => {
            model.ui.runs.loading = true;
            return vec![Effect::ListRuns];
        }
        Action::Back => model.ui.screen = Screen::Cluster,
        _ => move_cursor(model, action),
    }
    Vec::new()
}

/// The run, if its hosts have more of it than is known here: it goes on there, or has ended since.
fn to_take_up(model: &Model, id: &RunId) -> Option<RunSpec> {
    let rows = rows(model);
    let row = rows.iter().find(|row| row.spec.id == *id)?;
    let more = row.live.is_none() && row.outcome.is_none() && model.heard.shares.contains_key(id);
    more.then(|| row.spec.clone())
}

fn move_cursor(model: &mut Model, action: Action) {
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.size).h);
    let delta = list::delta(action, height);
    if delta == 0 {
        return;
    }
    model.ui.runs.cursor.move_by(delta, &ids, height);
}

/// Selects the run on a line of the list.
pub fn select_line(model: &mut Model, line: usize) {
    let ids = ids(model);
    let height = usize::from(layout::runs_list(model.size).h);
    let at = model.ui.runs.cursor.offset + line;
    if at < ids.len() {
        model.ui.runs.cursor.move_to(at, &ids, height);
    }
}

fn open_replay(model: &mut Model, id: RunId) -> Vec<Effect> {
    if !model.recordings.iter().any(|recording| recording.spec.id == id) {
        model.notice(
            Level::Warning,
            format!("no recording of run {} is listed; R reads the list again", id.short()),
        );
        return Vec::new();
    }
    model.ui.run = RunUi::on(id.clone());
    model.ui.replay.open = true;
    model.ui.screen = Screen::Replay;
    vec![Effect::OpenReplay(id)]
}
