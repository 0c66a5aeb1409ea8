//! The log: all ranks merged, or one; newest below, and under it what is being printed.

use std::collections::VecDeque;
use std::fmt::Write as _;

use ratatui::style::{Modifier, Style};

use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::log_text::fold::Fold;
use crate::domain::log_text::level::Level;
use crate::domain::log_text::slice::{columns, slice, wrap};
use crate::domain::log_text::{self, Span};
use crate::domain::progress;
use crate::domain::text::sanitize;
use crate::domain::units::{self, ranges};
use crate::domain::world::{LoggedLine, RunState};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::Screen;
use crate::tui::core::layout::Band;
use crate::tui::core::words::clock_time;
use crate::tui::screens::Model;
use crate::tui::screens::replay::lines_ahead;
use crate::tui::screens::run::log::{
    Least, MILLISECONDS_FROM, in_time, is_at_top, matches, printed_at, rank_digits, rows_that_came,
    text_place, unfinished,
};
use crate::tui::screens::run::{LogAt, Pane, RunUi};

/// Draws head and lines; `beside` stands at the end of the head.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, band: Band, run: &RunState, beside: &str) {
    if band.h == 0 {
        return;
    }
    let ui = &model.ui.run;
    let list = band.below_head();
    let height = usize::from(list.h);
    let pane = LogPane::new(model, canvas, run);
    let wraps_at = model.settings.wrap.then(|| usize::from(pane.texts().1));
    let folds = rows_that_came(run, ui, wraps_at, height);
    let title = title(canvas, model, run, folds.back().map(|fold| fold.last));
    // nothing else tells what stands beside it
    let used = width(beside).min(canvas.width());
    let end = canvas.width() - used;
    canvas.part(0, 0, end, u16::MAX).rule(band.y, &title);
    canvas.text(end, band.y, used, beside, canvas.theme.dim);
    // what is being printed has its place at the end, a third of it at most
    let now: Vec<_> = unfinished(run, ui).collect();
    let most = if folds.is_empty() { height } else { (height / 3).max(1).min(height) };
    let mut live: Vec<Row> = now.iter().flat_map(|line| pane.unfinished(line)).collect();
    let count = live.len();
    live.truncate(most);
    if count > most
        && let Some(last) = live.last_mut()
    {
        *last = Row::words(format!("and {} more lines that have not ended yet", count - most + 1));
    }
    let ahead = pane.ahead();
    let room = (height - live.len()).saturating_sub(ahead.len().min(height / 3));
    let is_at_top = is_at_top(run, ui, &folds, wraps_at, room);
    let folds = in_time(model, run, folds, height);
    let rows = if is_at_top {
        folds.iter().flat_map(|fold| pane.rows_of(fold)).take(room).collect()
    } else {
        pane.rows(&folds, room)
    };
    if rows.is_empty() && live.is_empty() && ahead.is_empty() {
        let dim = canvas.theme.dim;
        for (line, y) in instead(run, canvas.width() - 3).iter().zip(list.y..list.y + list.h) {
            canvas.text(2, y, canvas.width() - 3, line, dim);
        }
    }
    for (y, row) in (list.y..).zip(rows.iter().chain(&live).chain(&ahead)).take(height) {
        pane.draw(canvas, y, row);
    }
}

/// What stands in a log without lines: of a run whose ranks did not start, all of the reason.
fn instead(run: &RunState, columns: u16) -> Vec<String> {
    match &run.outcome {
        _ if !run.log.is_empty() => vec!["no line of this level or rank".to_owned()],
        Some(outcome) if !outcome.is_success() && !outcome.is_stopped() => {
            let span =
                Span { text: sanitize(&outcome.summary).into_owned(), style: log_text::Style::default() };
            let rows = wrap(&[span], usize::from(columns)).into_iter();
            rows.map(|row| row.into_iter().map(|span| span.text).collect()).collect()
        }
        Some(_) => vec!["no line".to_owned()],
        None => vec!["no line yet".to_owned()],
    }
}

/// By how many seconds the lines of a run that goes on come later than they were written, where that is seen.
fn behind(model: &Model, run: &RunState) -> Option<u64> {
    u64::try_from(run.behind_us(&model.world.hosts, model.now)? / 1_000_000).ok()
}

/// The words of the head.
fn title(canvas: &Canvas<'_>, model: &Model, run: &RunState, last: Option<u64>) -> Vec<(String, Style)> {
    let ui = &model.ui.run;
    let older = run.log.forgotten();
    let (text, dim, accent) = (canvas.theme.text, canvas.theme.dim, canvas.theme.accent);
    let focused = ui.pane == Pane::Logs;
    let who = ui.log_rank.map_or("all ranks".to_owned(), |rank| format!("rank {rank}"));
    let place = match (ui.log_at, model.ui.screen) {
        (LogAt::Follow, Screen::Replay) => "at the playhead".to_owned(),
        (LogAt::Follow, _) => match behind(model, run) {
            Some(seconds) => format!("follow, {seconds} s behind"),
            None => "follow".to_owned(),
        },
        (LogAt::Line(_), _) => {
            let (at, of) = counted(run, ui, last);
            format!("line {at} of {of} · F follows")
        }
    };
    let mut title =
        vec![("log".to_owned(), if focused { accent } else { text }), (format!("   {who} · {place}"), dim)];
    if let Some((at, of)) = matches(ui) {
        let more = if older > 0 { "+" } else { "" };
        let at = match (at, of) {
            (0, 0) => "in no line".to_owned(),
            (0, _) => format!("{of}{more} found"),
            _ => format!("{at} of {of}{more}"),
        };
        title.push((format!(" · / {} {at}", ui.searched()), accent));
    }
    title.extend(ui.log.least.words().map(|words| (format!(" · {words}"), accent)));
    if model.settings.wrap {
        title.push((" · wrap".to_owned(), dim));
    } else if ui.log.left > 0 {
        title.push((format!(" · from column {}", ui.log.left + 1), dim));
    }
    if ui.log.open {
        title.push((" · repeats open".to_owned(), dim));
    }
    if older > 0 && model.is_replay() {
        title.push((" · older lines: scroll up".to_owned(), dim));
    } else if older > 0 {
        title.push((format!(" · older lines: hvtui logs {}", run.spec.id.short()), dim));
    }
    title
}

/// Which line the last one is, and how many there are: of all, or of those in memory that the pane shows.
fn counted(run: &RunState, ui: &RunUi, last: Option<u64>) -> (u64, u64) {
    if ui.log_rank.is_none() && ui.log.least == Least::All {
        return (last.map_or(0, |number| number + 1), run.log.count());
    }
    let shown = run.log.iter().filter(|(_, line)| ui.shows(line));
    shown.fold((0, 0), |(at, of), (number, _)| (at + u64::from(Some(number) <= last), of + 1))
}

/// What a row tells.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Whose {
    /// What a rank has printed.
    #[default]
    Ranks,
    /// What no rank printed.
    Own,
    /// What a rank prints after the playhead.
    Ahead,
}

/// One row of the pane.
#[derive(Default)]
struct Row {
    /// When, and whether that is the host's own word.
    time: Option<(String, bool)>,
    /// Of whom: a rank, or several.
    ranks: String,
    /// Whether that is the rank that failed first.
    is_root: bool,
    /// What to look at: the level, or that it stands on standard error.
    mark: Option<(char, Level)>,
    spans: Vec<Span>,
    level: Level,
    whose: Whose,
    /// What stands behind the text.
    more: String,
    /// The search has come to it.
    is_found: bool,
}

impl Row {
    fn words(text: String) -> Self {
        let spans = vec![Span { text, style: log_text::Style::default() }];
        Self { spans, whose: Whose::Own, ..Self::default() }
    }
}

/// What all rows need to know.
struct LogPane<'a> {
    model: &'a Model,
    run: &'a RunState,
    /// Columns of the screen.
    width: u16,
    /// Digits of a rank.
    digits: u16,
    root: Option<Rank>,
}

impl<'a> LogPane<'a> {
    fn new(model: &'a Model, canvas: &Canvas<'_>, run: &'a RunState) -> Self {
        let digits = rank_digits(run.ranks.len());
        Self { model, run, width: canvas.width(), digits, root: run.root_cause() }
    }

    /// Whether there is room for milliseconds.
    fn is_wide(&self) -> bool {
        self.width >= MILLISECONDS_FROM
    }

    /// Where texts begin, and how many columns they have.
    fn texts(&self) -> (u16, u16) {
        text_place(self.width, self.run.ranks.len())
    }

    /// The newest rows, oldest first.
    fn rows(&self, folds: &VecDeque<Fold>, count: usize) -> VecDeque<Row> {
        let mut rows = VecDeque::new();
        for fold in folds.iter().rev() {
            for row in self.rows_of(fold).into_iter().rev() {
                if rows.len() == count {
                    return rows;
                }
                rows.push_front(row);
            }
        }
        rows
    }

    fn rows_of(&self, fold: &Fold) -> Vec<Row> {
        let log = &self.model.ui.run.log;
        let mut first = self.row(&fold.line);
        first.is_found = log.pattern.is_some() && log.found == Some(fold.first);
        if let Some(pattern) = &log.pattern {
            first.spans = marked(&first.spans, pattern);
        }
        if fold.times() > 1 {
            let more = if fold.is_cut { "+" } else { "" };
            let _ = write!(first.more, " (×{}{more})", fold.times());
        }
        let mut rows = if self.model.settings.wrap {
            let mut parts = wrap(&first.spans, usize::from(self.texts().1)).into_iter();
            first.spans = parts.next().unwrap_or_default();
            let more = std::mem::take(&mut first.more);
            let (level, whose) = (first.level, first.whose);
            let mut rows = vec![first];
            rows.extend(parts.map(|spans| Row { spans, level, whose, ..Row::default() }));
            if let Some(last) = rows.last_mut() {
                last.more = more;
            }
            rows
        } else {
            vec![first]
        };
        let others: Vec<u32> = fold.others().map(|rank| rank.0).collect();
        if !others.is_empty() {
            let is_root = self.root.is_some_and(|root| others.contains(&root.0));
            rows.push(Row { ranks: ranges(others), is_root, ..Row::words("the same".to_owned()) });
        }
        rows
    }

    fn row(&self, line: &LoggedLine) -> Row {
        let (at, known) = printed_at(self.model, self.run, line);
        let time = clock_time(at, &self.model.zone, self.is_wide());
        let is_error = line.line.stream == Stream::Stderr && !line.gap;
        let mark = match line.level.letter() {
            ' ' => (is_error && is_plain(line)).then_some(('e', Level::Unknown)),
            _ if line.gap => None,
            letter => Some((letter, line.level)),
        };
        let spans = self.shown(log_text::spans_from(line.style, &line.line.text));
        let elided = line.line.elided;
        Row {
            time: Some((time, known || line.gap)),
            ranks: line.line.rank.to_string(),
            is_root: self.root == Some(line.line.rank),
            mark,
            spans,
            level: line.level,
            whose: if line.gap { Whose::Own } else { Whose::Ranks },
            more: if elided > 0 { format!(" (+{} left out)", units::bytes(elided)) } else { String::new() },
            is_found: false,
        }
    }

    /// What is printed after the playhead, where the log stands there; without its colours.
    fn ahead(&self) -> Vec<Row> {
        let ui = &self.model.ui.run;
        let lines =
            lines_ahead(self.model).iter().filter(|line| ui.log_at == LogAt::Follow && ui.shows(line));
        let plain = |span: Span| Span { style: log_text::Style::default(), ..span };
        let rows = lines.map(|line| {
            let row = self.row(line);
            Row { whose: Whose::Ahead, spans: row.spans.into_iter().map(plain).collect(), ..row }
        });
        rows.collect()
    }

    /// A line that has not ended yet, or several rows.
    fn unfinished(&self, line: &LoggedLine) -> Vec<Row> {
        let rows = log_text::rows(&line.line.text).map(|text| Row {
            mark: Some(('…', Level::Unknown)),
            spans: self.shown(log_text::spans_from(line.style, text)),
            ..self.row(line)
        });
        rows.collect()
    }

    /// The columns that are shown of a line: all where it is wrapped.
    fn shown(&self, spans: Vec<Span>) -> Vec<Span> {
        let left = self.model.ui.run.log.left;
        if left == 0 || self.model.settings.wrap {
            return spans;
        }
        slice(&spans, left, usize::from(u16::MAX))
    }

    fn draw(&self, canvas: &mut Canvas<'_>, y: u16, row: &Row) {
        let theme = canvas.theme;
        let (text, dim) = (theme.text, theme.dim);
        if let Some((time, known)) = &row.time {
            if row.whose == Whose::Ahead {
                canvas.text(0, y, 1, "│", dim);
            } else if !known {
                canvas.text(0, y, 1, "~", dim);
            }
            canvas.text(1, y, 12, time, dim);
        }
        let (x, room) = self.texts();
        let ranks = match row.is_root {
            _ if row.whose == Whose::Ahead => dim,
            true => theme.bad,
            false => theme.accent,
        };
        let begin = x - 2 - self.digits;
        let wide = row.ranks.len() as u16 > self.digits;
        let x = if wide {
            // several ranks take the place of the mark, and more
            canvas.text(begin, y, room / 2, &row.ranks, ranks) + 1
        } else {
            canvas.right(begin, y, self.digits, &row.ranks, ranks);
            x
        };
        if let Some((mark, level)) = row.mark {
            let style = if row.whose == Whose::Ahead {
                dim
            } else if level >= Level::Error {
                theme.bad
            } else if level == Level::Unknown {
                dim
            } else {
                theme.warn
            };
            canvas.text(begin + self.digits, y, 1, &mark.to_string(), style);
        }
        let end = self.width.saturating_sub(1);
        // how often it came is told also of a line that is cut
        let room = end.saturating_sub(x).saturating_sub(width(&row.more));
        let style = if row.whose == Whose::Ranks { level_style(canvas, row, text) } else { dim };
        let style = if row.is_found { style.add_modifier(Modifier::BOLD) } else { style };
        let fits = columns(&row.spans) <= usize::from(room);
        let at = if fits {
            canvas.printed(x, y, room, &row.spans, style)
        } else {
            let at = canvas.printed(x, y, room.saturating_sub(1), &row.spans, style);
            canvas.text(at, y, 1, "…", dim)
        };
        canvas.text(at, y, end.saturating_sub(at), &row.more, dim);
    }
}

/// Whether nothing tells what a line is: it names no level and is no progress bar.
fn is_plain(line: &LoggedLine) -> bool {
    let state = log_text::last_state(&line.line.text);
    line.level == Level::Unknown && progress::recognise(state.as_bytes()).is_none()
}

/// The style of a line without colours of its own.
fn level_style(canvas: &Canvas<'_>, row: &Row, text: Style) -> Style {
    let is_plain = row.spans.iter().all(|span| span.style.fg.is_none() && span.style.bg.is_none());
    match row.level {
        Level::Warning if is_plain => canvas.theme.warn,
        Level::Error | Level::Fatal if is_plain => canvas.theme.bad,
        _ => text,
    }
}

/// The parts of a line with what is searched in them turned over.
fn marked(spans: &[Span], pattern: &log_text::search::Pattern) -> Vec<Span> {
    let text: String = spans.iter().map(|span| span.text.as_str()).collect();
    let found = pattern.find(&text);
    let mut out = Vec::new();
    let mut at = 0;
    for Span { text, style } in spans {
        let (begin, end) = (at, at + text.len());
        let mut from = begin;
        for range in found.iter().filter(|range| range.start < end && range.end > begin) {
            let (start, stop) = (range.start.max(begin), range.end.min(end));
            out.push(Span { text: text[from - begin..start - begin].to_owned(), style: *style });
            let turned = log_text::Style { inverse: !style.inverse, ..*style };
            out.push(Span { text: text[start - begin..stop - begin].to_owned(), style: turned });
            from = stop;
        }
        out.push(Span { text: text[from - begin..].to_owned(), style: *style });
        at = end;
    }
    out.retain(|span| !span.text.is_empty());
    out
}
