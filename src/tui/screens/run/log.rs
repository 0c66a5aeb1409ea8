//! The log pane of Run and Replay: which lines it shows, folded, and what is searched in them.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{LogAt, RunUi, log_columns};
use crate::domain::ids::{Rank, RunId};
use crate::domain::log_text;
use crate::domain::log_text::fold::{Fold, fold, mark_cut};
use crate::domain::log_text::level::Level;
use crate::domain::log_text::search::Pattern;
use crate::domain::log_text::slice::wrap;
use crate::domain::playback::FoundLine;
use crate::domain::time::Stamp;
use crate::domain::units::ranges;
use crate::domain::world::{LoggedLine, RunState};
use crate::tui::core::words::clock_time;
use crate::tui::core::{Level as Severity, PlayCommand};
use crate::tui::screens::Model;

/// How many of the newest lines are folded for one frame.
const DRAWN: usize = 2_000;
/// Columns of one move sideways.
const SIDEWAYS: usize = 8;
/// The farthest column: a line that is longer is cut where it comes in.
const FARTHEST: usize = 16 * 1024;
/// The most bytes that are copied: terminals take about 100 kB with their encoding.
const COPIED: usize = 48 << 10;

/// How serious a line must be to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Least {
    /// All lines.
    #[default]
    All,
    /// Warnings and errors.
    Warnings,
    /// Errors.
    Errors,
}

impl Least {
    fn next(self) -> Self {
        match self {
            Self::All => Self::Warnings,
            Self::Warnings => Self::Errors,
            Self::Errors => Self::All,
        }
    }

    /// What the head of the pane says; nothing where all lines are shown.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Warnings => Some("warnings and errors"),
            Self::Errors => Some("errors"),
        }
    }

    /// The least serious of them.
    pub(super) fn level(self) -> Level {
        match self {
            Self::All => Level::default(),
            Self::Warnings => Level::Warning,
            Self::Errors => Level::Error,
        }
    }

    fn takes(self, level: Level) -> bool {
        level >= self.level()
    }
}

/// How the log is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogUi {
    /// What is searched.
    pub pattern: Option<Pattern>,
    /// The line that the search has come to, by its number in the run.
    pub found: Option<u64>,
    /// The first column that is shown of lines that are not wrapped.
    pub left: usize,
    /// Repeats are shown one by one.
    pub open: bool,
    /// How serious lines must be.
    pub least: Least,
    /// The rows that have what is searched, of the lines that there were when they were last looked for.
    found_rows: Option<FoundRows>,
}

/// The rows that have what is searched, and what they were looked for in.
#[derive(Debug, Clone, PartialEq)]
struct FoundRows {
    of: Searched,
    /// The first line of each, and when it came.
    firsts: Vec<(u64, Stamp)>,
}

/// What decides which rows have what is searched: while it is the same, they are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Searched {
    run: RunId,
    /// Lines that there were, and that are forgotten.
    lines: (u64, u64),
    pattern: String,
    shown: (Option<Rank>, Least, bool),
}

impl Searched {
    fn of(run: &RunState, ui: &RunUi) -> Self {
        Self {
            run: run.spec.id.clone(),
            lines: (run.log.count(), run.log.forgotten()),
            pattern: ui.searched().to_owned(),
            shown: (ui.log_rank, ui.log.least, ui.log.open),
        }
    }

    /// Whether the same is searched in the same ranks and levels, whatever lines there are.
    fn is_same_search(&self, other: &Self) -> bool {
        (&self.run, &self.pattern, &self.shown) == (&other.run, &other.pattern, &other.shown)
    }
}

/// The place in the log and what was found there, while the lines of a glimpse have other numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct PutAside {
    at: LogAt,
    found: Option<u64>,
    rows: Option<FoundRows>,
}

impl RunUi {
    /// Puts the place in the log aside.
    pub(in crate::tui::screens) fn put_log_aside(&mut self) -> PutAside {
        let at = std::mem::replace(&mut self.log_at, LogAt::Follow);
        PutAside { at, found: self.log.found.take(), rows: self.log.found_rows.take() }
    }

    /// Gives it back: lines have the numbers that they had.
    pub(in crate::tui::screens) fn give_log_back(&mut self, aside: PutAside) {
        let PutAside { at, found, rows } = aside;
        (self.log_at, self.log.found, self.log.found_rows) = (at, found, rows);
    }
}

impl LogUi {
    /// Forgets what was found: lines have other numbers now.
    pub(in crate::tui::screens) fn forget_found(&mut self) {
        (self.found, self.found_rows) = (None, None);
    }
}

impl RunUi {
    /// Whether a line belongs into the log pane.
    pub fn shows(&self, line: &LoggedLine) -> bool {
        self.log_rank.is_none_or(|rank| line.line.rank == rank)
            && (line.gap || self.log.least.takes(line.level))
    }

    /// Searches for what was typed; nothing where it is empty.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn search(&mut self, typed: &str) -> Result<(), String> {
        self.log.found = None;
        self.log.pattern = if typed.is_empty() { None } else { Some(Pattern::parse(typed)?) };
        Ok(())
    }

    /// What is searched, as it was typed.
    pub fn searched(&self) -> &str {
        self.log.pattern.as_ref().map_or("", Pattern::source)
    }
}

/// The rows of a log pane whose texts wrap after so many columns, or are cut, oldest first: those that fill `count` lines, up
/// to where it stands.
pub fn log_rows(run: &RunState, ui: &RunUi, wraps_at: Option<usize>, count: usize) -> VecDeque<Fold> {
    let mut folds = match ui.log_at {
        LogAt::Follow => folded(run, run.log.iter(), ui),
        LogAt::Line(line) => folded(run, run.log.until(line), ui),
    };
    let lines = || folds.iter().rev().take(count).map(|fold| lines_of(fold, wraps_at)).sum::<usize>();
    if ui.log_at != LogAt::Follow && lines() < count {
        // a line that was forgotten meanwhile stands for the oldest that is still known
        folds = all(run, ui);
        folds.truncate(lowest(&folds, wraps_at, count) + 1);
    }
    folds.drain(..folds.len().saturating_sub(count));
    folds
}

/// The rows of which [`in_time`] gives `count`: where the log follows all that may be among those that were printed last.
pub(super) fn rows_that_came(
    run: &RunState,
    ui: &RunUi,
    wraps_at: Option<usize>,
    count: usize,
) -> VecDeque<Fold> {
    log_rows(run, ui, wraps_at, if ui.log_at == LogAt::Follow { DRAWN } else { count })
}

/// The newest of these lines, folded.
fn folded<'a>(
    run: &RunState,
    lines: impl DoubleEndedIterator<Item = (u64, &'a Arc<LoggedLine>)>,
    ui: &RunUi,
) -> VecDeque<Fold> {
    let mut lines = lines.rev().filter(|(_, line)| ui.shows(line));
    let mut newest: Vec<_> = lines.by_ref().take(DRAWN).collect();
    newest.reverse();
    let mut folds = fold(newest.into_iter(), ui.log.open);
    if lines.next().is_some() || run.log.forgotten() > 0 {
        mark_cut(&mut folds);
    }
    folds
}

/// All rows that are in memory.
fn all(run: &RunState, ui: &RunUi) -> VecDeque<Fold> {
    let mut folds = fold(run.log.iter().filter(|(_, line)| ui.shows(line)), ui.log.open);
    if run.log.forgotten() > 0 {
        mark_cut(&mut folds);
    }
    folds
}

/// The lines that ranks print just now, while the log follows.
pub fn unfinished<'a>(run: &'a RunState, ui: &'a RunUi) -> impl Iterator<Item = &'a Arc<LoggedLine>> {
    let follows = ui.log_at == LogAt::Follow;
    let lines = run.ranks.iter().flat_map(|rank| rank.output.unfinished_lines());
    lines.filter(move |line| follows && ui.shows(line))
}

/// Moves the log by rows; beyond the newest it follows again. Where older lines are not in memory, a replay goes back to the
/// line that is told, and of a run of the hosts a notice says where they are.
pub(super) fn scroll(model: &mut Model, delta: isize, height: usize) -> Option<PlayCommand> {
    let (id, run) = model.shown_run()?;
    let folds = all(run, &model.ui.run);
    let last = folds.len().checked_sub(1)?;
    let at = place(&folds, model.ui.run.log_at);
    let lowest = lowest(&folds, wraps_at(model), height);
    let to = at.saturating_add_signed(delta).clamp(lowest, last);
    let lacks_older = delta < 0 && run.log.forgotten() > 0;
    if lacks_older && model.is_replay() {
        let top = folds.get(to.saturating_sub(height)).map_or(0, |fold| fold.first);
        if let Some((at, lines)) = lines_back(run, &folds, to).filter(|_| top <= run.log.whole_from()) {
            // the lines of a glimpse have numbers of their own
            let is_glimpse = model.ui.replay.is_glimpse;
            model.ui.run.log_at = LogAt::Follow;
            let text = format!("older lines: back to {}", clock_time(at, &model.zone, true));
            model.toast(Severity::Info, text, None);
            return Some(if is_glimpse { PlayCommand::SeekTo(at) } else { PlayCommand::ToLine(at, lines) });
        }
    }
    let older = (lacks_older && at <= lowest).then(|| id.short().to_owned());
    model.ui.run.log_at = stand(&folds, to);
    if let Some(id) = older {
        model.toast(Severity::Info, format!("hvtui logs {id} has the older lines"), None);
    }
    None
}

/// How many lines there are where the log goes back to this row, and when the last of them had come; where the row is the newest one
/// now, to the line before those that are all kept.
fn lines_back(run: &RunState, folds: &VecDeque<Fold>, row: usize) -> Option<(Stamp, u64)> {
    let line = |number| run.log.until(number).next_back().map(|(number, line)| (line.at, number));
    let (_, newest) = line(u64::MAX)?;
    let of_row = line(folds.get(row)?.last).filter(|(_, number)| *number < newest);
    of_row.map(|(at, number)| (at, number + 1)).or_else(|| line(run.log.whole_from()))
}

/// The row that stands last where the oldest one stands first.
fn lowest(folds: &VecDeque<Fold>, wraps_at: Option<usize>, height: usize) -> usize {
    let mut rows = 0;
    let fills = |fold: &Fold| {
        rows += lines_of(fold, wraps_at);
        rows >= height
    };
    folds.iter().position(fills).unwrap_or_else(|| folds.len().saturating_sub(1))
}

/// Whether these rows begin with the oldest line, and the last of them is needed to fill `count` lines: then the first line
/// of the pane is the first one of the log.
pub fn is_at_top(
    run: &RunState,
    ui: &RunUi,
    folds: &VecDeque<Fold>,
    wraps_at: Option<usize>,
    count: usize,
) -> bool {
    let oldest = run.log.iter().find(|(_, line)| ui.shows(line)).map(|(number, _)| number);
    ui.log_at != LogAt::Follow
        && oldest == folds.front().map(|fold| fold.first)
        && lowest(folds, wraps_at, count) + 1 >= folds.len()
}

/// Lines of the pane that a row takes.
fn lines_of(fold: &Fold, wraps_at: Option<usize>) -> usize {
    let text = || log_text::spans_from(fold.line.style, &fold.line.line.text);
    let own = wraps_at.map_or(1, |columns| wrap(&text(), columns).len().max(1));
    own + usize::from(fold.others().next().is_some())
}

/// After how many columns the texts of the pane wrap; `None` where they are cut.
fn wraps_at(model: &Model) -> Option<usize> {
    let ranks = model.shown_run().map_or(0, |(_, run)| run.ranks.len());
    model.settings.wrap.then(|| usize::from(text_place(log_columns(model), ranks).1))
}

/// Where the texts of lines begin in a pane of so many columns, and how many columns they have.
pub(super) fn text_place(columns: u16, ranks: usize) -> (u16, u16) {
    let time = if columns >= MILLISECONDS_FROM { 12 } else { 8 };
    let x = 1 + time + 1 + rank_digits(ranks) + 2;
    (x, columns.saturating_sub(x + 1))
}

/// From so many columns on times have milliseconds.
pub(super) const MILLISECONDS_FROM: u16 = 100;

/// Digits of the greatest of so many ranks.
pub(super) fn rank_digits(ranks: usize) -> u16 {
    ranks.saturating_sub(1).to_string().len() as u16
}

/// The row that stands last.
fn place(folds: &VecDeque<Fold>, at: LogAt) -> usize {
    let last = folds.len().saturating_sub(1);
    match at {
        LogAt::Follow => last,
        LogAt::Line(line) => folds.partition_point(|fold| fold.first <= line).saturating_sub(1).min(last),
    }
}

/// Where the log stands when this row is the last one.
fn stand(folds: &VecDeque<Fold>, at: usize) -> LogAt {
    match folds.get(at + 1) {
        None => LogAt::Follow,
        Some(next) => LogAt::Line(next.first - 1),
    }
}

/// Goes to the next row that has what is searched, or to the one before; from the last one to the first. The newest one
/// comes first.
pub(super) fn find(model: &mut Model, forward: bool, height: usize) {
    let Some(pattern) = model.ui.run.log.pattern.clone() else { return };
    let Some((_, run)) = model.shown_run() else { return };
    let folds = all(run, &model.ui.run);
    let found: Vec<usize> = (0..folds.len()).filter(|at| has(&folds[*at], &pattern)).collect();
    let before = model.ui.run.log.found;
    let next = match before {
        None => found.last(),
        Some(line) if forward => found.iter().find(|at| folds[**at].first > line).or(found.first()),
        Some(line) => found.iter().rev().find(|at| folds[**at].first < line).or(found.last()),
    };
    let Some(&at) = next else {
        model.ui.run.log.found = None;
        return;
    };
    show_found(model, &folds, at, height);
}

/// The line that the search has come to, else the last one that is shown, and when it came.
pub(super) fn line_shown(run: &RunState, ui: &RunUi) -> Option<(u64, Stamp)> {
    let found = ui.log.found.and_then(|line| found_rows(ui).iter().find(|(first, _)| *first == line));
    let last = || {
        let last = log_rows(run, ui, None, 1).back()?.last;
        run.log.until(last).next_back().map(|(number, line)| (number, line.at))
    };
    found.copied().or_else(last)
}

/// The way to a line of the moment at which the playhead stands, where that stands before it.
pub(super) fn behind(model: &Model, at: Stamp, line: u64) -> Option<PlayCommand> {
    let (_, run) = model.shown_run()?;
    (line >= run.log.count()).then_some(PlayCommand::ToLine(at, line + 1))
}

/// The number of a line that was found, where it is in memory.
pub(super) fn number_of(model: &Model, found: &FoundLine) -> Option<u64> {
    let (_, run) = model.shown_run()?;
    run.log.iter().rev().find(|(_, line)| found.is(line)).map(|(number, _)| number)
}

/// The search comes to the row of this line.
pub(super) fn come_to(model: &mut Model, line: u64, height: usize) {
    let Some((_, run)) = model.shown_run() else { return };
    let folds = all(run, &model.ui.run);
    if let Some(at) = folds.iter().position(|fold| fold.first == line) {
        show_found(model, &folds, at, height);
    }
}

fn show_found(model: &mut Model, folds: &VecDeque<Fold>, at: usize, height: usize) {
    let first = folds[at].first;
    model.ui.run.log.found = Some(first);
    let bottom = place(folds, model.ui.run.log_at);
    // while the log follows, what has come last may have been printed before all that is shown
    let newest = folds.iter().skip(folds.len().saturating_sub(DRAWN)).cloned().collect();
    let known: &Model = model;
    let before_last = known.shown_run().and_then(|(_, run)| {
        let rows = in_time(known, run, newest, height);
        rows.iter().rev().position(|fold| fold.first == first)
    });
    let is_seen = match model.ui.run.log_at {
        LogAt::Follow => before_last.is_some_and(|rows| rows + 1 < height),
        LogAt::Line(_) => at <= bottom && at + height.saturating_sub(1) > bottom,
    };
    if !is_seen {
        let middle = (at + height / 2).max(height.saturating_sub(1)).min(folds.len() - 1);
        model.ui.run.log_at = match stand(folds, middle) {
            LogAt::Follow if before_last.is_none() => LogAt::Line(folds[middle].last),
            there => there,
        };
    }
}

fn has(fold: &Fold, pattern: &Pattern) -> bool {
    pattern.is_in(&log_text::plain(&fold.line.line.text))
}

/// Which of how many rows that have what is searched the search has come to; 0 before it has come to one. Of the lines that
/// there were at the last `look_again`.
pub fn matches(ui: &RunUi) -> Option<(usize, usize)> {
    let firsts = &ui.log.found_rows.as_ref()?.firsts;
    let at = ui.log.found.and_then(|line| firsts.binary_search_by_key(&line, |(first, _)| *first).ok());
    Some((at.map_or(0, |at| at + 1), firsts.len()))
}

/// The first line of each row that has what is searched, and when it came, as of the last `look_again`.
pub(super) fn found_rows(ui: &RunUi) -> &[(u64, Stamp)] {
    ui.log.found_rows.as_ref().map_or(&[], |found| &found.firsts)
}

/// Looks for the rows that have what is searched, where there are other lines than the last time: folding all lines is too
/// much for each frame. A replay that goes back to one keeps those behind it.
pub(in crate::tui::screens) fn look_again(model: &mut Model) {
    let ui = &model.ui.run;
    let found = match (&ui.log.pattern, model.shown_run()) {
        (Some(pattern), Some((_, run))) => {
            let of = Searched::of(run, ui);
            if ui.log.found_rows.as_ref().is_some_and(|found| found.of == of) {
                return;
            }
            let folds = all(run, ui);
            let rows = folds.iter().filter(|fold| has(fold, pattern));
            let mut firsts: Vec<(u64, Stamp)> = rows.map(|fold| (fold.first, fold.line.at)).collect();
            let before =
                ui.log.found_rows.as_ref().filter(|found| model.is_replay() && found.of.is_same_search(&of));
            let behind = before.into_iter().flat_map(|found| found.firsts.iter());
            firsts.extend(behind.filter(|(first, _)| *first >= run.log.count()));
            Some(FoundRows { of, firsts })
        }
        _ => None,
    };
    model.ui.run.log.found_rows = found;
}

/// Shows more, or fewer, of the levels; the log stands where it stood.
pub(super) fn next_level(ui: &mut RunUi) {
    ui.log.least = ui.log.least.next();
    ui.log.found = None;
}

/// Moves lines that are not wrapped sideways.
pub(super) fn sideways(ui: &mut RunUi, right: bool) {
    let left = ui.log.left;
    ui.log.left = if right { (left + SIDEWAYS).min(FARTHEST) } else { left.saturating_sub(SIDEWAYS) };
}

/// When a line was printed: on its host's clock where that is known, else when it came, which the second tells.
pub fn printed_at(model: &Model, run: &RunState, line: &LoggedLine) -> (Stamp, bool) {
    let known = line.line.t.and_then(|t| {
        let host = &run.ranks.get(line.line.rank.0 as usize)?.placement.host;
        model.world.hosts.get(host)?.clock.stamp(t)
    });
    known.map_or((line.at, false), |at| (at, true))
}

/// The last `count` rows in the order in which their first lines were printed, for lines of several hosts come as they come; those of a
/// rank stay in theirs, also one of which no time is known.
pub(super) fn in_time(model: &Model, run: &RunState, folds: VecDeque<Fold>, count: usize) -> VecDeque<Fold> {
    let ranks = run.ranks.len();
    let ranks_of = |fold: &Fold| -> Vec<usize> {
        fold.ranks.keys().map(|rank| rank.0 as usize).filter(|place| *place < ranks).collect()
    };
    let mut times: Vec<Stamp> = Vec::with_capacity(folds.len());
    // when each rank printed its next row: one without a time of its own was printed before that
    let mut next = vec![Stamp(i64::MAX); ranks];
    for fold in folds.iter().rev() {
        let (at, is_known) = printed_at(model, run, &fold.line);
        let places = ranks_of(fold);
        let behind = places.iter().map(|place| next[*place]).min().filter(|_| !is_known);
        let at = behind.map_or(at, |behind| at.min(behind));
        for place in places {
            next[place] = at;
        }
        times.push(at);
    }
    let mut newest = vec![Stamp(i64::MIN); ranks];
    let mut rows: Vec<(Stamp, Fold)> = Vec::with_capacity(folds.len());
    for (fold, at) in folds.into_iter().zip(times.into_iter().rev()) {
        let places = ranks_of(&fold);
        let before = places.iter().map(|place| newest[*place]).max();
        let at = before.map_or(at, |before| at.max(before));
        for place in places {
            newest[place] = at;
        }
        rows.push((at, fold));
    }
    rows.sort_by_key(|(at, _)| *at);
    let before = rows.len().saturating_sub(count);
    rows.into_iter().skip(before).map(|(_, fold)| fold).collect()
}

/// What is to be copied: the line that the search has come to, else what the pane shows; how many lines that is, and how
/// many more did not fit.
pub(super) fn copied(model: &Model, run: &RunState, height: usize) -> (String, usize, usize) {
    let ui = &model.ui.run;
    let found = ui.log.pattern.as_ref().and(ui.log.found);
    let rows = in_time(model, run, rows_that_came(run, ui, wraps_at(model), height), height);
    let rows = rows.iter().filter(|fold| found.is_none_or(|line| fold.first == line));
    let (mut text, mut lines, mut left) = (String::new(), 0, 0);
    for fold in rows {
        let line = log_text::plain(&fold.line.line.text);
        let who = if ui.log_rank.is_some() || found.is_some() {
            String::new()
        } else {
            format!("[{}] ", ranges(fold.ranks.keys().map(|rank| rank.0)))
        };
        if text.len() + who.len() + line.len() < COPIED {
            let _ = writeln!(text, "{who}{line}");
            lines += 1;
        } else {
            left += 1;
        }
    }
    if lines == 1 {
        text.pop();
    }
    (text, lines, left)
}

/// The lines of the log pane as a text file, one by one, and how many there are.
pub(super) fn saved(model: &Model, run: &RunState) -> (String, usize) {
    let (mut text, mut lines) = (String::new(), 0);
    for (_, line) in run.log.iter().filter(|(_, line)| model.ui.run.shows(line)) {
        let (at, known) = printed_at(model, run, line);
        let mark = if known { ' ' } else { '~' };
        let time = clock_time(at, &model.zone, true);
        let plain = log_text::plain(&line.line.text);
        let _ = writeln!(text, "{mark}{time} {} {plain}", line.line.rank);
        lines += 1;
    }
    (text, lines)
}

/// The name of the file that a run's log is saved to.
pub(super) fn file_name(id: &RunId) -> String {
    format!("hvtui-{}.log", id.short())
}
