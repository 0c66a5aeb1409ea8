//! The log: all ranks merged, or one; newest below.

use ratatui::style::Style;

use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::units;
use crate::domain::world::{LoggedLine, RunState};
use crate::tui::canvas::Canvas;
use crate::tui::core::Screen;
use crate::tui::core::layout::Band;
use crate::tui::core::words::clock_time;
use crate::tui::screens::Model;
use crate::tui::screens::run::verdict::root_cause;
use crate::tui::screens::run::{LogAt, Pane, log_lines};

/// Draws head and lines.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, band: Band, run: &RunState) {
    if band.h == 0 {
        return;
    }
    let ui = &model.ui.run;
    let list = band.below_head();
    let lines = log_lines(run, ui, usize::from(list.h));
    head(model, canvas, band.y, run, lines.last().map(|(number, _)| *number));
    if lines.is_empty() {
        let dim = canvas.theme.dim;
        let text = if run.log.is_empty() { "no line yet" } else { "no line matches" };
        canvas.text(2, list.y, canvas.width() - 3, text, dim);
    }
    let digits = run.ranks.len().saturating_sub(1).to_string().len() as u16;
    for (y, (_, line)) in (list.y..).zip(lines) {
        draw_line(model, canvas, y, run, line, digits);
    }
}

fn head(model: &Model, canvas: &mut Canvas<'_>, y: u16, run: &RunState, last: Option<u64>) {
    let ui = &model.ui.run;
    let (text, dim, accent) = (canvas.theme.text, canvas.theme.dim, canvas.theme.accent);
    let focused = ui.pane == Pane::Logs;
    let who = ui.log_rank.map_or("all ranks".to_owned(), |rank| format!("rank {rank}"));
    let place = match (ui.log_at, model.ui.screen) {
        (LogAt::Follow, Screen::Replay) => "at the playhead".to_owned(),
        (LogAt::Follow, _) => "follow".to_owned(),
        (LogAt::Line(_), _) => {
            let at = last.map_or(0, |number| number + 1);
            format!("line {at} of {} · f follows", run.log.count())
        }
    };
    let mut title =
        vec![("log".to_owned(), if focused { accent } else { text }), (format!("   {who} · {place}"), dim)];
    if !ui.search.is_empty() {
        title.push((format!(" · / {}", ui.search), accent));
    }
    let older = run.log.forgotten();
    if older > 0 {
        title.push((format!(" · {older} older lines on disk"), dim));
    }
    canvas.rule(y, &title);
}

fn draw_line(model: &Model, canvas: &mut Canvas<'_>, y: u16, run: &RunState, line: &LoggedLine, digits: u16) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let wide = canvas.width() >= 100;
    let time = clock_time(line.at, model.utc_offset_s, wide);
    let x = canvas.text(1, y, 12, &time, dim) + 1;
    canvas.right(x, y, digits, &line.line.rank.to_string(), rank_style(canvas, run, line.line.rank));
    let is_error = line.line.stream == Stream::Stderr && !line.gap;
    let mark = if is_error { "!" } else { " " };
    let warn = canvas.theme.warn;
    let x = canvas.text(x + digits, y, 1, mark, warn) + 1;
    let room = canvas.width().saturating_sub(x + 1);
    let end = canvas.text(x, y, room, &line.line.text, if line.gap { dim } else { text });
    if line.line.elided > 0 {
        let more = format!(" (+{} left out)", units::bytes(line.line.elided));
        canvas.text(end, y, canvas.width().saturating_sub(end + 1), &more, dim);
    }
}

fn rank_style(canvas: &Canvas<'_>, run: &RunState, rank: Rank) -> Style {
    if root_cause(run) == Some(rank) { canvas.theme.bad } else { canvas.theme.accent }
}
