//! Marks with notes on Run and Replay: set at the moment that is shown, listed, changed. They are kept beside the recording;
//! what is known of them here is what the last answer told.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::ids::RunId;
use crate::domain::marks::{MarkChange, NewMark, RunMark, RunMarks};
use crate::tui::core::words::clock_time;
use crate::tui::core::{Effect, Key, KeyCode, Level, PlayCommand};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};

/// Lines of a page of the list.
const PAGE: usize = 10;

/// The marks of the runs, and what is being asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MarksUi {
    of: BTreeMap<RunId, Arc<RunMarks>>,
    /// What the open prompt asks the note of.
    asked: Option<Asked>,
    /// What is said once a change is kept.
    done: Option<String>,
}

/// What a note is asked of.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    /// Of a new mark of this run.
    New(RunId, NewMark),
    /// Of a mark that is there.
    Of(RunId, u32),
}

/// The list of a run's marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarksList {
    /// Of which run.
    pub run: RunId,
    /// The number of the selected one.
    pub on: Option<u32>,
}

impl MarksList {
    /// The place of the selected one; of the first where that is gone.
    pub fn place(&self, marks: &[RunMark]) -> usize {
        marks.iter().position(|mark| Some(mark.id) == self.on).unwrap_or(0)
    }
}

/// The marks of a run, by their moments.
pub fn of<'a>(model: &'a Model, run: &RunId) -> &'a [RunMark] {
    model.ui.marks.of.get(run).map_or(&[], |marks| marks.all())
}

/// Those of the run that is shown.
pub fn shown(model: &Model) -> &[RunMark] {
    model.shown_run().map_or(&[], |(id, _)| of(model, id))
}

/// Asks for the note of a new mark at the moment that is shown.
pub(in crate::tui::screens) fn set(model: &mut Model) {
    let Some((id, run)) = model.shown_run() else {
        model.notice(Level::Info, "no run yet");
        return;
    };
    let (at, rank) = (model.moment(), model.ui.run.log_rank);
    // a run that has ended is marked where it ended
    let at = if model.is_replay() || run.is_live() { at } else { run.last_at };
    let mark = NewMark { at, step: run.step(), rank, note: String::new() };
    model.ui.marks.asked = Some(Asked::New(id.clone(), mark));
    model.ui.overlay = Overlay::Prompt(Prompt::new(PromptKind::MarkNote, ""));
}

/// Shows the list, on the mark before the moment that is shown.
pub(in crate::tui::screens) fn list(model: &mut Model) {
    let Some((id, _)) = model.shown_run() else {
        model.notice(Level::Info, "no run yet");
        return;
    };
    let at = model.moment();
    let marks = of(model, id);
    let on = marks.iter().rfind(|mark| mark.at <= at).or(marks.first()).map(|mark| mark.id);
    model.ui.overlay = Overlay::Marks(MarksList { run: id.clone(), on });
}

/// The note was typed.
pub(in crate::tui::screens) fn noted(model: &mut Model, note: String) -> Vec<Effect> {
    match model.ui.marks.asked.take() {
        Some(Asked::New(run, mark)) => {
            let when = clock_time(mark.at, &model.zone, false);
            let of = RunMark { id: 0, at: mark.at, step: mark.step, rank: mark.rank, note: note.clone() };
            model.ui.marks.done = Some(format!("marked {when}, {}", of.words()));
            vec![Effect::Mark(run, MarkChange::Add(NewMark { note, ..mark }))]
        }
        Some(Asked::Of(run, id)) => {
            model.ui.marks.done = Some(format!("the mark says now: {note}"));
            model.ui.overlay = Overlay::Marks(MarksList { run: run.clone(), on: Some(id) });
            vec![Effect::Mark(run, MarkChange::Note { id, note })]
        }
        None => Vec::new(),
    }
}

/// The marks of a run as they are now, or what is wrong with them.
pub(in crate::tui::screens) fn told(model: &mut Model, run: RunId, told: Result<Arc<RunMarks>, String>) {
    let done = model.ui.marks.done.take();
    match told {
        Ok(marks) => {
            model.ui.marks.of.insert(run, marks);
            if let Some(done) = done {
                model.toast(Level::Info, done, None);
            }
        }
        Err(why) => model.notice(Level::Error, format!("marks: {why}")),
    }
}

/// A key while the list is open.
pub(in crate::tui::screens) fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Overlay::Marks(open) = &model.ui.overlay else { return Vec::new() };
    let (run, marks) = (open.run.clone(), of(model, &open.run));
    let (at, last) = (open.place(marks), marks.len().saturating_sub(1));
    let to = match key.code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::PageUp => at.saturating_sub(PAGE),
        KeyCode::PageDown => (at + PAGE).min(last),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        KeyCode::Esc | KeyCode::Char('q' | 'M') => {
            model.ui.overlay = Overlay::None;
            return Vec::new();
        }
        KeyCode::Char('m') => {
            set(model);
            return Vec::new();
        }
        _ => return marks.get(at).cloned().map_or_else(Vec::new, |mark| on_mark(model, run, &mark, key)),
    };
    let on = marks.get(to).map(|mark| mark.id);
    model.ui.overlay = Overlay::Marks(MarksList { run, on });
    Vec::new()
}

/// A key that does something with the selected mark.
fn on_mark(model: &mut Model, run: RunId, mark: &RunMark, key: Key) -> Vec<Effect> {
    match key.code {
        KeyCode::Enter => {
            model.ui.overlay = Overlay::None;
            if model.is_replay() { vec![Effect::Play(PlayCommand::SeekTo(mark.at))] } else { Vec::new() }
        }
        KeyCode::Char('e') => {
            model.ui.marks.asked = Some(Asked::Of(run, mark.id));
            model.ui.overlay = Overlay::Prompt(Prompt::new(PromptKind::MarkNote, &mark.note));
            Vec::new()
        }
        KeyCode::Char('D') | KeyCode::Delete => {
            model.ui.marks.done = Some(format!("mark deleted: {}", mark.words()));
            // the next one is selected then, or the one before
            let marks = of(model, &run);
            let at = marks.iter().position(|other| other.id == mark.id).unwrap_or(0);
            let next = marks.get(at + 1).or_else(|| marks.get(at.checked_sub(1)?)).map(|mark| mark.id);
            model.ui.overlay = Overlay::Marks(MarksList { run: run.clone(), on: next });
            vec![Effect::Mark(run, MarkChange::Delete { id: mark.id })]
        }
        _ => Vec::new(),
    }
}
