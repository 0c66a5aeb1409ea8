//! The panel of stacks: ranks that stand at the same place share a column, those that hold the others up come first.

use std::collections::BTreeMap;

use ratatui::style::Style;

use crate::domain::ids::HostId;
use crate::domain::stacks::{Alike, Taker, alike};
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::words::wrap;
use crate::tui::screens::overlay::stacks::StacksUi;

/// The least width of a column.
const COLUMN: u16 = 36;

/// A line of a column.
type Line = (String, Style);

/// Draws the panel over the whole screen but its footer.
pub(in crate::tui::screens) fn draw(
    shown: &StacksUi,
    (world, now): (&World, Stamp),
    canvas: &mut Canvas<'_>,
) {
    let (accent, dim) = (canvas.theme.accent, canvas.theme.dim);
    let (w, h) = (canvas.width(), canvas.height());
    let title = format!("stacks of run {}, innermost call first", shown.run.short());
    let (x, y, iw, ih) = canvas.frame(0, 0, w, h, &title, accent);
    let mut top = Vec::new();
    let given_up = |host| Some((host, shown.given_up(world, host, now)?));
    let silent: BTreeMap<&HostId, &str> = shown.due.iter().filter_map(given_up).collect();
    let due: Vec<String> =
        shown.due.iter().filter(|host| !silent.contains_key(host)).map(ToString::to_string).collect();
    if !due.is_empty() {
        top.push((format!("waiting for {} …", due.join(", ")), dim));
    }
    if shown.due.is_empty() {
        let words = shown.collected.words().iter();
        top.extend(words.map(|words| (words.clone(), canvas.theme.bad)));
        for process in shown.collected.processes() {
            let lacks = process.lacks.as_ref().map(|why| (format!("rank {}: {why}", process.name()), dim));
            top.extend(lacks);
        }
    }
    for (host, why) in shown.silent.iter().map(|(host, why)| (host, why.as_str())).chain(silent) {
        top.push((format!("{host}: {why}"), canvas.theme.warn));
    }
    if shown.due.is_empty() && shown.stacks.is_empty() && shown.silent.is_empty() {
        top.push(("no rank of it lives any more".to_owned(), dim));
    }
    let groups = alike(&shown.stacks);
    let columns = (iw / COLUMN).clamp(1, u16::try_from(groups.len().max(1)).unwrap_or(u16::MAX));
    let each = iw / columns;
    let mut rows: Vec<Vec<Line>> = Vec::new();
    for (text, style) in top {
        rows.extend(
            wrap(&text, usize::from(iw.saturating_sub(1))).into_iter().map(|line| vec![(line, style)]),
        );
    }
    for band in groups.chunks(usize::from(columns)) {
        let blocks: Vec<Vec<Line>> = band
            .iter()
            .map(|group| block(group, shown.all_threads, usize::from(each.saturating_sub(2)), canvas))
            .collect();
        let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let cell = |block: &Vec<Line>| block.get(at).cloned().unwrap_or_default();
            rows.push(blocks.iter().map(cell).collect());
        }
        rows.push(Vec::new());
    }
    rows.pop();
    let last = rows.len().saturating_sub(usize::from(ih));
    for (row, line) in rows.iter().skip(shown.first.min(last)).zip(y..y + ih) {
        // what concerns all of them takes the whole width
        let each = if row.len() == 1 { iw } else { each };
        for ((text, style), column) in row.iter().zip(0..) {
            canvas.text(x + column * each, line, each.saturating_sub(1), text, *style);
        }
    }
    let threads = if shown.all_threads { "t main thread" } else { "t all threads" };
    let scroll = if last > 0 { "↑ ↓ scroll · " } else { "" };
    let hint = format!(" {scroll}{threads} · S again · esc closes ");
    let at = w.saturating_sub(width(&hint) + 2);
    canvas.text(at, h - 1, width(&hint), &hint, dim);
}

fn block(group: &Alike<'_>, all_threads: bool, room: usize, canvas: &Canvas<'_>) -> Vec<Line> {
    let (strong, text, dim) = (canvas.theme.strong(), canvas.theme.text, canvas.theme.dim);
    let mut lines = vec![(group.who(), strong)];
    lines.extend(group.phase().map(|phase| (phase, text)));
    let first = group.of[0];
    let pid = (group.of.len() == 1).then(|| format!("pid {}", first.pid));
    let by = (first.by == Taker::PySpy).then(|| "by py-spy".to_owned());
    let source: Vec<String> = pid.into_iter().chain(by).collect();
    if !source.is_empty() {
        lines.push((source.join(" · "), dim));
    }
    if first.by == Taker::Kernel {
        for text in std::iter::once(&first.text).chain(&first.lacks) {
            lines.extend(wrap(text, room).into_iter().map(|line| (line, dim)));
        }
    }
    if let Some(lacks) = first.lacks.as_ref().filter(|_| all_threads && first.by != Taker::Kernel) {
        let words = format!("the main thread alone: {lacks}");
        lines.extend(wrap(&words, room).into_iter().map(|line| (line, dim)));
    }
    let threads =
        &group.threads[..if all_threads { group.threads.len() } else { group.threads.len().min(1) }];
    for thread in threads {
        if threads.len() > 1 {
            lines.push((format!("thread {}", thread.name), dim));
        }
        for frame in &thread.frames {
            lines.push((format!("  {} {}", frame.place(), frame.function), text));
        }
    }
    lines
}
