//! The Runs screen: live runs and recordings.

pub(in crate::tui::screens) mod delete;

use ratatui::style::Style;

use crate::domain::run::RunSummary;
use crate::domain::run_list::RunOrder;
use crate::domain::run_status::RunStatus;
use crate::domain::trained::Trained;
use crate::domain::units;
use crate::launch::words::join;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::canvas::theme::Theme;
use crate::tui::core::layout::runs_list;
use crate::tui::core::words::{clock_time, date, more_words};
use crate::tui::screens::cluster::rows::age;
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::run::rows::silent_hosts;
use crate::tui::screens::run::verdict::hang;
use crate::tui::screens::run::view::{clock_length, short_length, state_word};
use crate::tui::screens::runs::{NO_RUN, RunRow, rows};
use crate::tui::screens::view::title;
use crate::tui::screens::{Model, readonly};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Id,
    Name,
    State,
    Ranks,
    Hosts,
    Age,
    Started,
    Duration,
    Step,
    Loss,
    Rate,
    Size,
    Command,
}

impl Col {
    /// The order by what stands in it.
    fn order(self) -> Option<RunOrder> {
        match self {
            Self::Name => Some(RunOrder::Name),
            Self::State => Some(RunOrder::Outcome),
            Self::Age | Self::Started => Some(RunOrder::Newest),
            Self::Duration => Some(RunOrder::Longest),
            Self::Size => Some(RunOrder::Largest),
            Self::Loss => Some(RunOrder::Loss),
            Self::Rate => Some(RunOrder::Fastest),
            Self::Id | Self::Ranks | Self::Hosts | Self::Step | Self::Command => None,
        }
    }
}

/// The line of the columns' heads.
const HEAD: u16 = 2;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    let rows = rows(model);
    let band = runs_list((canvas.width(), canvas.height()));
    subtitle(model, canvas, &rows, usize::from(band.h));
    let columns = columns(model, &canvas.theme, canvas.width(), &rows);
    let dim = canvas.theme.dim;
    for column in &columns {
        let sorted = column.id.order() == Some(model.settings.runs);
        let style = if sorted { canvas.theme.accent } else { dim };
        if column.right {
            canvas.right(column.x, HEAD, column.w, column.title, style);
        } else {
            canvas.text(column.x, HEAD, column.w, column.title, style);
        }
    }
    retention(model, canvas, band.y + band.h + 2);
    if rows.is_empty() {
        let text = match (model.ui.runs.loading, model.ui.runs.filter_text.is_empty()) {
            (true, _) => "reading the recordings …",
            (false, true) => readonly::no_run(model, NO_RUN),
            (false, false) => "no run matches the filter",
        };
        canvas.text(2, band.y + 1, canvas.width() - 3, text, dim);
        return;
    }
    let cursor = &model.ui.runs.cursor;
    for (line, row) in rows.iter().skip(cursor.offset).take(usize::from(band.h)).enumerate() {
        let y = band.y + line as u16;
        for column in &columns {
            cell(model, canvas, column, y, row);
        }
        if cursor.on.as_ref() == Some(&row.spec.id) {
            mark_selected(canvas, y, 7);
        }
        if model.ui.runs.marked.contains(&row.spec.id) {
            canvas.text(1, y, 1, "●", canvas.theme.accent);
        }
    }
    if let Some(row) = rows.get(cursor.index) {
        details(canvas, band.y + band.h, row);
    }
}

/// The order that a click on a cell of the screen asks for: that of the column whose head lies there.
pub(in crate::tui::screens) fn order_at(model: &Model, x: u16, y: u16) -> Option<RunOrder> {
    if y != HEAD {
        return None;
    }
    let columns = columns(model, &Theme::colourless(), model.area().0, &rows(model));
    columns.iter().find(|column| (column.x..column.x + column.w).contains(&x))?.id.order()
}

/// What all recordings take, and for how long they are kept.
fn retention(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let Some(kept) = &model.ui.runs.kept else { return };
    let free = kept.free.map_or_else(String::new, |free| format!(", {} free", units::bytes(free)));
    let until = match model.retention.words() {
        _ if model.demo => "they go when you leave".to_owned(),
        Some(words) => format!("prune keeps {words}"),
        None => "kept until deleted".to_owned(),
    };
    let text = format!(
        "{} {} {} {}{free} · {until} · {}",
        kept.count,
        title::plural(kept.count, "recording"),
        if kept.count == 1 { "takes" } else { "take" },
        units::bytes(kept.bytes),
        crate::domain::text::sanitize(&kept.folder),
    );
    canvas.text(2, y, canvas.width() - 3, &text, canvas.theme.dim);
}

/// How many there are, in which order, how many of them stand above and below the `shown` ones, and what is chosen of them.
fn subtitle(model: &Model, canvas: &mut Canvas<'_>, rows: &[RunRow<'_>], shown: usize) {
    let (accent, dim) = (canvas.theme.accent, canvas.theme.dim);
    let live = rows.iter().filter(|row| row.goes_on()).count();
    let mut pieces = vec![(format!("{} {}, {live} live", rows.len(), title::plural(rows.len(), "run")), dim)];
    pieces.push((format!(" · {}", model.settings.runs.words()), dim));
    let above = model.ui.runs.cursor.offset.min(rows.len());
    let below = (rows.len() - above).saturating_sub(shown);
    pieces.extend(more_words(above, below).map(|more| (format!("   {more}"), dim)));
    if !model.ui.runs.filter_text.is_empty() {
        pieces.push((format!("   / {}", model.ui.runs.filter_text), accent));
    }
    let marked = &model.ui.runs.marked;
    if !marked.is_empty() {
        let of_them = model.recordings.iter().filter(|recording| marked.contains(&recording.spec.id));
        let bytes = units::bytes(of_them.map(|recording| recording.bytes).sum());
        pieces.push((format!("   ● {} marked, {bytes}", marked.len()), accent));
    }
    if !model.ui.runs.deleting.is_empty() {
        pieces.push((format!("   deleting {} …", model.ui.runs.deleting.len()), accent));
    }
    let end = canvas.width() - 1;
    canvas.pieces(1, 1, end, &pieces);
}

fn columns(model: &Model, theme: &Theme, width: u16, rows: &[RunRow<'_>]) -> Vec<Column<Col>> {
    let states = rows.iter().map(|row| crate::tui::canvas::width(&state(model, row, theme).0));
    let states = states.max().unwrap_or(0).clamp(10, 16);
    let names = rows.iter().map(|row| crate::tui::canvas::width(&row.spec.name)).max().unwrap_or(4);
    let names = names.clamp(8, if width >= 160 { 36 } else { 18 });
    let hosts = rows.iter().map(|row| crate::tui::canvas::width(&hosts(row))).max().unwrap_or(5).clamp(5, 28);
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let tells = |what: fn(&Trained) -> Option<f32>| {
        rows.iter().filter_map(RunRow::trained).any(|one| what(one).is_some())
    };
    // what the list is ordered by goes last
    let rank = |order, usual| if model.settings.runs == order { 1 } else { usual };
    let mut wishes = vec![
        wish(Col::Id, "RUN", 4, 4, 0, false),
        wish(Col::Name, "NAME", 8, names, 0, false),
        wish(Col::State, "STATE", states, states, 0, false),
        wish(Col::Age, "AGE", 6, 6, 1, true),
        wish(Col::Duration, "DURATION", 8, 8, 2, true),
        wish(Col::Size, "SIZE", 6, 6, 3, true),
        wish(Col::Ranks, "RANKS", 5, 5, 4, true),
        wish(Col::Hosts, "HOSTS", 11.min(hosts), hosts, 5, false),
        wish(Col::Started, "STARTED", 16, 16, 6, false),
        wish(Col::Step, "STEP", 6, 6, 7, true),
        wish(Col::Command, "COMMAND", 10, 200, 10, false),
    ];
    let before_command = wishes.len() - 1;
    if tells(|trained| trained.samples_per_s) {
        wishes.insert(before_command, wish(Col::Rate, "SAMPLES/S", 9, 9, rank(RunOrder::Fastest, 9), true));
    }
    if tells(|trained| trained.loss) {
        wishes.insert(before_command, wish(Col::Loss, "LOSS", 8, 8, rank(RunOrder::Loss, 8), true));
    }
    fit(&wishes, 2, width.saturating_sub(3), 2)
}

fn hosts(row: &RunRow<'_>) -> String {
    row.spec.hosts().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn state(model: &Model, row: &RunRow<'_>, theme: &Theme) -> (String, Style) {
    match (row.outcome, row.live) {
        (Some(_), ..) if row.spec.is_imported() => ("· imported".to_owned(), theme.dim),
        (Some(outcome), ..) if outcome.is_success() => ("✔ done".to_owned(), theme.good),
        (Some(outcome), ..) if outcome.is_stopped() => match row.recording.and_then(RunSummary::stood) {
            Some((stood, _)) if stood.is_within => ("▲ hung, stopped".to_owned(), theme.warn),
            _ => ("· stopped".to_owned(), theme.dim),
        },
        (Some(outcome), ..) if outcome.is_refused() => ("✖ refused".to_owned(), theme.bad),
        (Some(outcome), ..) => (format!("✖ exit {}", outcome.exit_code()), theme.bad),
        (None, Some(run)) => {
            if let Some((_, last)) = hang(model, run) {
                return (format!("▲ no step {}", age(model.now, last)), theme.warn);
            }
            if let Some(heard) = silent_hosts(model, run).into_values().min() {
                return (format!("▲ silent {}", age(model.now, heard)), theme.warn);
            }
            let (word, style) = state_word(theme, run);
            (format!("● {word}"), style)
        }
        (None, None) if row.is_elsewhere() && model.inventory.broken(row.spec).is_some() => {
            ("▲ ranks ended".to_owned(), theme.warn)
        }
        (None, None) if row.is_elsewhere() => match row.stands_since() {
            Some(since) => (format!("▲ no step {}", age(model.now, since)), theme.warn),
            None => ("● running".to_owned(), theme.accent),
        },
        (None, None) if let Some(stage) = row.made_ready() => (format!("● {}", stage.name()), theme.accent),
        (None, None) if row.recording.is_none() => match row.status {
            RunStatus::Ended => ("· ended".to_owned(), theme.dim),
            _ => ("? unknown".to_owned(), theme.warn),
        },
        (None, None) => ("⚠ no end".to_owned(), theme.warn),
    }
}

fn cell(model: &Model, canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16, row: &RunRow<'_>) {
    let (x, w) = (column.x, column.w);
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    match column.id {
        Col::Id => drop(canvas.text(x, y, w, row.spec.id.short(), text)),
        Col::Name => drop(canvas.name(x, y, w, &row.spec.name, text)),
        Col::State => {
            let (words, style) = state(model, row, &canvas.theme);
            canvas.text(x, y, w, &words, style);
        }
        Col::Age => {
            let age = u64::try_from(model.now.micros_since(row.spec.created)).unwrap_or(0);
            canvas.right(x, y, w, &clock_length(age), dim);
        }
        Col::Started => {
            let zone = &model.zone;
            let time = clock_time(row.spec.created, zone, false);
            let words = format!("{} {}", date(row.spec.created, zone), time.get(..5).unwrap_or(&time));
            canvas.text(x, y, w, &words, dim);
        }
        Col::Duration => {
            let words = match (row.duration_us(model.now), row.seen_us()) {
                (Some(us), _) if row.goes_on() => clock_length(us),
                (Some(us), _) => short_length(us),
                // until it was seen last
                (None, Some(us)) => format!("≥{}", short_length(us)),
                (None, None) => "–".to_owned(),
            };
            canvas.right(x, y, w, &words, text);
        }
        Col::Ranks => canvas.right(x, y, w, &row.spec.world().to_string(), text),
        Col::Hosts => drop(canvas.name(x, y, w, &hosts(row), dim)),
        Col::Step => {
            let step = row.step().map_or("–".to_owned(), |step| step.to_string());
            canvas.right(x, y, w, &step, text);
        }
        Col::Size => {
            let size = row.recording.map_or("–".to_owned(), |recording| units::bytes(recording.bytes));
            canvas.right(x, y, w, &size, dim);
        }
        Col::Loss => {
            let loss = row.trained().and_then(|trained| trained.loss).map(|loss| units::metric(loss.into()));
            canvas.right(x, y, w, loss.as_deref().unwrap_or("–"), text);
        }
        Col::Rate => {
            let rate = row.trained().and_then(|trained| trained.samples_per_s);
            canvas.right(x, y, w, &rate.map_or("–".to_owned(), |rate| units::rate(rate.into())), text);
        }
        Col::Command => drop(canvas.text(x, y, w, &join(&row.spec.command), dim)),
    }
}

/// Two lines on the selected run: how it ended or what is wrong with its recording, and its command.
fn details(canvas: &mut Canvas<'_>, y: u16, row: &RunRow<'_>) {
    let (dim, warn, bad) = (canvas.theme.dim, canvas.theme.warn, canvas.theme.bad);
    let open = row.outcome.is_none() && row.live.is_none();
    let words = match (row.outcome, row.recording.and_then(|recording| recording.damage.as_deref())) {
        (_, Some(damage)) => (format!("the recording is damaged: {damage}"), warn),
        (Some(outcome), None) => {
            let stood = row.recording.and_then(RunSummary::stood);
            let words = stood.and_then(|(stood, end)| stood.words(end));
            let style = match (outcome.is_success() || outcome.is_stopped(), &words) {
                (true, None) => dim,
                (true, Some(_)) => warn,
                (false, _) => bad,
            };
            (words.map_or(outcome.summary.clone(), |words| format!("{}; {words}", outcome.summary)), style)
        }
        (None, None) if row.is_elsewhere() => {
            ("it is live on its hosts; enter attaches to it".to_owned(), dim)
        }
        (None, None) if row.made_ready().is_some() => {
            ("another hvtui makes it ready: x keeps it from starting".to_owned(), dim)
        }
        (None, None) if open && row.status == RunStatus::Ended => {
            ("its hosts report that it has ended; enter fetches what they have".to_owned(), warn)
        }
        (None, None) if open && row.recording.is_none() => ("a host of it did not answer".to_owned(), warn),
        (None, None) if open => ("the recording stops before the run's end".to_owned(), warn),
        (None, None) => (format!("live · {} kind", row.spec.kind.name()), dim),
    };
    let room = canvas.width() - 3;
    canvas.text(2, y, room, &words.0, words.1);
    canvas.text(2, y + 1, room, &format!("{}   {}", row.spec.id, join(&row.spec.command)), dim);
}
