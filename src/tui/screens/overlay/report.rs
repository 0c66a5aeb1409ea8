//! The report of a run, or the comparison of two, over the whole screen: the words that `hvtui report` and `hvtui diff` print.

use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use crate::domain::analysis::Place;
use crate::domain::ids::RunId;
use crate::tui::core::{Effect, Key, KeyCode, PlayCommand, ReportOf, Reported};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::{Model, replay};

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportUi {
    /// Whose figures.
    pub of: ReportOf,
    /// What is known of them.
    pub told: Reported,
    /// The first line that is shown.
    pub first: usize,
    /// The first column that is shown.
    pub left: u16,
    /// Why the last key did nothing.
    pub said: Option<String>,
}

impl ReportUi {
    /// Its head.
    pub fn title(&self) -> String {
        match &self.of {
            ReportOf::Run(run) => format!("report of run {}", run.short()),
            ReportOf::Both(a, b) => format!("runs {} and {} compared", a.short(), b.short()),
        }
    }

    /// The command that prints the same.
    pub fn command(&self) -> String {
        match &self.of {
            ReportOf::Run(run) => format!("hvtui report {}", run.short()),
            ReportOf::Both(a, b) => format!("hvtui diff {} {}", a.short(), b.short()),
        }
    }

    /// The lines.
    pub fn words(&self) -> Arc<str> {
        match &self.told {
            Reported::Reading(percent) => format!("reading {percent} % …").into(),
            Reported::Done(words, _) => Arc::clone(words),
            Reported::Failed(why) => why.as_str().into(),
        }
    }

    /// Where in the run each of its findings can be seen.
    pub fn places(&self) -> &[Option<Place>] {
        match &self.told {
            Reported::Done(_, places) => places,
            _ => &[],
        }
    }

    /// The first line that is shown when it is scrolled to its end, where so many are shown at once.
    pub fn last(&self, rows: u16) -> usize {
        self.words().lines().count().saturating_sub(usize::from(rows))
    }

    /// How far it can be scrolled to the right.
    pub fn widest(&self, width: u16) -> u16 {
        let words = self.words();
        let widest = words.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX).saturating_sub(width)
    }
}

/// Lines that are shown at once: all but the head, the notice above the keys, and these.
pub fn rows(model: &Model) -> u16 {
    model.area().1.saturating_sub(2)
}

/// Asks for the report of a run.
pub fn ask(model: &mut Model, run: RunId) -> Vec<Effect> {
    show(model, ReportOf::Run(run))
}

/// Asks for the comparison of two.
pub fn compare(model: &mut Model, a: RunId, b: RunId) -> Vec<Effect> {
    show(model, ReportOf::Both(a, b))
}

fn show(model: &mut Model, of: ReportOf) -> Vec<Effect> {
    let shown = ReportUi { of: of.clone(), told: Reported::Reading(0), first: 0, left: 0, said: None };
    model.ui.overlay = Overlay::Report(Box::new(shown));
    vec![Effect::Report(of)]
}

/// What was found; nothing where the panel was closed meanwhile.
pub fn told(model: &mut Model, of: &ReportOf, told: Reported) {
    if let Overlay::Report(shown) = &mut model.ui.overlay
        && shown.of == *of
    {
        shown.told = told;
    }
}

/// A key while it is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let (width, rows) = (model.size.0, rows(model));
    let Overlay::Report(shown) = &mut model.ui.overlay else { return Vec::new() };
    let (last, page) = (shown.last(rows), usize::from(rows).saturating_sub(1).max(1));
    // the terminal may have become larger
    let first = shown.first.min(last);
    shown.said = None;
    let to = |line: usize| line.min(last);
    match key.code {
        KeyCode::Up | KeyCode::Char('k') => shown.first = first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => shown.first = to(first + 1),
        KeyCode::PageUp => shown.first = first.saturating_sub(page),
        KeyCode::PageDown | KeyCode::Char(' ') => shown.first = to(first + page),
        KeyCode::Home | KeyCode::Char('g') => shown.first = 0,
        KeyCode::End | KeyCode::Char('G') => shown.first = last,
        KeyCode::Left | KeyCode::Char('h') => shown.left = shown.left.saturating_sub(8),
        KeyCode::Right | KeyCode::Char('l') => shown.left = (shown.left + 8).min(shown.widest(width)),
        KeyCode::Char('y') => {
            if let Reported::Done(words, _) = &shown.told {
                return vec![Effect::Copy(words.to_string())];
            }
        }
        KeyCode::Char('W') => {
            if let Reported::Done(words, _) = &shown.told {
                let (name, text) = (format!("{}.txt", shown.command().replace(' ', "-")), words.to_string());
                let what = shown.title();
                return vec![Effect::Save { name, text, what }];
            }
        }
        KeyCode::Char(digit @ '1'..='9') => return go(model, digit),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => {
            model.ui.overlay = Overlay::None;
            return vec![Effect::LeaveReport];
        }
        _ => {}
    }
    Vec::new()
}

/// Opens the replay where a finding can be seen.
fn go(model: &mut Model, digit: char) -> Vec<Effect> {
    let Overlay::Report(shown) = &mut model.ui.overlay else { return Vec::new() };
    let number = digit.to_digit(10).unwrap_or_default() as usize;
    let ReportOf::Run(run) = &shown.of else { return Vec::new() };
    let run = run.clone();
    let (place, count) = (shown.places().get(number.saturating_sub(1)).copied(), shown.places().len());
    let Some(Some(place)) = place else {
        shown.said = Some(match place {
            Some(_) => format!("finding {number}: no single moment shows it"),
            None if matches!(shown.told, Reported::Done(..)) => {
                format!("{count} findings: there is no {number}")
            }
            None => return Vec::new(),
        });
        return Vec::new();
    };
    model.ui.overlay = Overlay::None;
    let to = match place {
        Place::Step(step) => PlayCommand::ToStep(step),
        Place::At(at) => PlayCommand::SeekTo(at),
    };
    if model.is_replay() && model.shown_run().is_some_and(|(shown, _)| *shown == run) {
        return vec![Effect::LeaveReport, Effect::Play(to)];
    }
    // what it has read of the whole run is shown beside the moment
    let opened = replay::open(model, run);
    model.ui.replay.is_fitted = true;
    [Effect::LeaveReport].into_iter().chain(opened).chain([Effect::PlayThen(to)]).collect()
}
