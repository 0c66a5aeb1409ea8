//! The figures of a selection, beside the log of a replay or in its place: what `hvtui report` tells of a whole run.

use ratatui::style::Style;

use crate::domain::analysis::{GpuFigures, RankFigures, RunAnalysis};
use crate::domain::ids::Rank;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::RunState;
use crate::tui::canvas::theme::{Theme, letter};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::Band;
use crate::tui::screens::Model;
use crate::tui::screens::view::title::plural;

/// Columns of the words before the figures.
const LABEL: u16 = 10;

/// Pieces of text that belong together.
type Words = Vec<(String, Style)>;

/// Draws head and lines from column `x` on.
pub(super) fn draw(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, band): (u16, Band),
    (from, to): (Stamp, Stamp),
    run: &RunState,
) {
    if band.h == 0 {
        return;
    }
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let figures = &model.ui.replay.figures;
    let known = figures.last.as_ref().map(|(_, analysis)| analysis.as_ref());
    let x = if x > 0 {
        for y in band.y..band.y + band.h {
            canvas.glyph(x, y, if y == band.y { '┬' } else { '│' }, dim);
        }
        x + 1
    } else {
        x
    };
    let mut canvas = canvas.part(x, 0, u16::MAX, u16::MAX);
    let length = units::duration_us(u64::try_from(to.micros_since(from)).unwrap_or(0));
    let steps = known.filter(|_| figures.are_current()).map_or_else(String::new, steps_words);
    let reading =
        if figures.are_current() { String::new() } else { format!("   reading {} %", figures.percent) };
    let is_selected = model.ui.replay.selection.is_some();
    let title = if is_selected { "selection" } else { "whole run" };
    let mut head = vec![(title.to_owned(), text), (format!("   {length}{steps}{reading}"), dim)];
    let used: u16 = head.iter().map(|(words, _)| width(words)).sum();
    let end = "   v ends it";
    if is_selected && used + width(end) + 4 <= canvas.width() {
        head.push((end.to_owned(), dim));
    }
    canvas.rule(band.y, &head);
    let list = band.below_head();
    let room = canvas.width().saturating_sub(2);
    if let Some(why) = &figures.failed {
        let style = canvas.theme.bad;
        canvas.text(1, list.y, room, why, style);
        return;
    }
    let Some(known) = known else {
        let arrows = canvas.theme.left_right();
        let words = if from == to {
            format!("move the playhead: {arrows} ( ) [ ] {{ }} J")
        } else {
            "reading the recording …".to_owned()
        };
        canvas.text(1, list.y, room, &words, dim);
        return;
    };
    let mut y = list.y;
    let end = list.y + list.h;
    let span_us = u64::try_from(to.micros_since(from)).unwrap_or(0);
    let idle_us = known.in_no_step_us(span_us).filter(|_| is_selected && figures.are_current());
    for line in summary(&canvas.theme, (known, idle_us), run, usize::from(room)) {
        if y >= end {
            return;
        }
        canvas.pieces(1, y, 1 + room, &line);
        y += 1;
    }
    // a blank line, a head, and two ranks
    if known.ranks.len() > 1 && y + 4 <= end {
        ranks(&mut canvas, Band { y: y + 1, h: end - y - 1 }, known);
    }
}

/// ` · 6 steps, 115–120`.
fn steps_words(known: &RunAnalysis) -> String {
    let count = known.steps.length.map_or(0, |length| length.count);
    match known.steps.whole {
        Some((first, last)) if first == last => format!(" · step {last}"),
        Some((first, last)) => format!(" · {count} steps, {first}–{last}"),
        None => String::new(),
    }
}

/// One line and sometimes two for each kind of evidence.
fn summary(
    theme: &Theme,
    (known, idle_us): (&RunAnalysis, Option<u64>),
    run: &RunState,
    room: usize,
) -> Vec<Words> {
    let (text, dim) = (theme.text, theme.dim);
    let mut lines = Vec::new();
    let ms = |us: f64| format!("{:.1}", us / 1e3);
    let label = |words: &str| (format!("{words:<w$}", w = usize::from(LABEL)), dim);
    lines.push(match known.steps.length {
        Some(length) => {
            let of = if known.steps.aligned { "" } else { "   each rank's own" };
            let numbers = [length.p50_us, length.p95_us, length.max_us].map(|us| ms(us.into()));
            let words = format!("p50 {}   p95 {}   max {}{of}", numbers[0], numbers[1], numbers[2]);
            vec![label("step ms"), (words, text)]
        }
        None => vec![label("step ms"), ("no step was finished by all ranks".to_owned(), dim)],
    });
    let mut exposed = exposed_words(known);
    let used: u16 = lines.iter().flatten().map(|(words, _)| width(words)).sum();
    if usize::from(used) + 3 + exposed.chars().count() <= room
        && !exposed.is_empty()
        && let Some(line) = lines.last_mut()
    {
        line.push((format!("   {}", std::mem::take(&mut exposed)), text));
    }
    lines.extend((!exposed.is_empty()).then(|| vec![label(""), (exposed, text)]));
    if let Some(us) = idle_us {
        let us = units::duration_us(us);
        lines
            .push(vec![label(""), (format!("{us} between steps, or in a step that ends later"), theme.warn)]);
    }
    if !known.phases.is_empty() {
        let shares = known.phases.iter().map(|figures| {
            let (back, ink) = theme.phase(figures.phase);
            let mark = if theme.is_colored() { Style::new().fg(ink).bg(back) } else { theme.strong() };
            let share = format!(" {} {:.0} %", figures.phase.name(), figures.share * 100.0);
            vec![(letter(figures.phase).to_string(), mark), (share, text)]
        });
        lines.extend(packed(label("time"), shares, room));
    }
    if run.trainers().nth(1).is_some() {
        lines.extend(packed(label("last"), last(theme, known), room).into_iter().take(2));
    }
    lines.extend(gpus(known).map(|words| vec![label("GPU util"), (words, text)]));
    let log = &known.log;
    let errors = log.errors + log.fatal;
    let count = |count: u64, word: &str| {
        format!("{count} {}", plural(usize::try_from(count).unwrap_or(usize::MAX), word))
    };
    let mark = |count: u64, style: Style| if count > 0 { style } else { dim };
    lines.push(vec![
        label("log"),
        (count(log.lines, "line"), text),
        (format!("   {}", count(log.warnings, "warning")), mark(log.warnings, theme.warn)),
        (format!("   {}", count(errors, "error")), mark(errors, theme.bad)),
    ]);
    lines
}

/// `exposed 10.2   overlap 45 %`: what a step stood still for its allreduce, and how much of that passed behind the computing.
fn exposed_words(known: &RunAnalysis) -> String {
    let Some(exposed) = known.steps.exposed_us else { return String::new() };
    let overlap =
        known.steps.overlap.map_or_else(String::new, |of| format!("   overlap {:.0} %", of * 100.0));
    format!("exposed {:.1}{overlap}", exposed / 1e3)
}

/// Puts words behind each other, two blanks between, into as many lines as it takes.
fn packed(label: (String, Style), all: impl IntoIterator<Item = Words>, room: usize) -> Vec<Words> {
    let blank = " ".repeat(label.0.len());
    let style = label.1;
    let mut lines = vec![vec![label]];
    let mut used = 0;
    for words in all {
        let need: usize = words.iter().map(|(text, _)| usize::from(width(text))).sum();
        let gap = if used > 0 { 2 } else { 0 };
        if used > 0 && usize::from(LABEL) + used + gap + need > room {
            lines.push(vec![(blank.clone(), style)]);
            used = 0;
        }
        let Some(line) = lines.last_mut() else { continue };
        if used > 0 {
            line.push(("  ".to_owned(), style));
            used += 2;
        }
        used += need;
        line.extend(words);
    }
    lines
}

/// The ranks that came last, the costliest first.
fn last(theme: &Theme, known: &RunAnalysis) -> Vec<Words> {
    let judged = known.steps.judged;
    if judged == 0 {
        return vec![vec![("unknown: not all ranks tell their waits".to_owned(), theme.dim)]];
    }
    let mut ranks = by_cost(known);
    ranks.retain(|rank| rank.last_in.is_some_and(|last| last > 0));
    if ranks.is_empty() {
        let unsure = f64::from(unsure_us(known)) / 1e3;
        let words = format!("no rank by more than the clocks are sure of, ±{unsure:.2} ms");
        return vec![vec![(words, theme.dim)]];
    }
    let words = ranks.into_iter().map(|rank| {
        let last = rank.last_in.unwrap_or(0);
        let place = rank.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
        let cost = units::duration_us(rank.wait_caused_us.unwrap_or(0));
        // more often than by turns
        let style = if last * 2 > judged { theme.warn } else { theme.text };
        let words = format!("rank {}{place} last in {last} of {judged}, {cost} delay", rank.rank);
        vec![(words, style)]
    });
    words.collect()
}

/// What two ranks may seem to differ by and be equal, microseconds: 0 on one host.
pub(super) fn unsure_us(known: &RunAnalysis) -> u32 {
    let clocks = known.host_figures.iter().filter_map(|host| host.message_us);
    let mut clocks: Vec<u32> = clocks.collect();
    clocks.sort_unstable();
    if known.host_figures.len() < 2 { 0 } else { clocks.iter().rev().take(2).sum() }
}

/// The ranks by the delay that they caused.
fn by_cost(known: &RunAnalysis) -> Vec<&RankFigures> {
    let mut ranks: Vec<&RankFigures> = known.ranks.iter().collect();
    ranks.sort_by_key(|rank| (std::cmp::Reverse((rank.wait_caused_us, rank.last_in)), rank.rank));
    ranks
}

/// `mean 91 %   min 74 % (gpu-b:1)`; nothing of a run without GPUs.
fn gpus(known: &RunAnalysis) -> Option<String> {
    let told: Vec<&GpuFigures> = known.gpus.iter().filter(|gpu| gpu.util_mean.is_some()).collect();
    if known.gpus.is_empty() {
        return None;
    }
    let Some(least) = told.iter().min_by_key(|gpu| gpu.util_min) else {
        return Some("unknown: no sample in this time".to_owned());
    };
    // each GPU counts alike: one of a host whose samples are finer no more than others
    let mean = told.iter().filter_map(|gpu| gpu.util_mean).sum::<f64>() / told.len() as f64;
    let min = least.util_min.unwrap_or(0);
    Some(format!("mean {mean:.0} %   min {min} % ({}:{})", least.host, least.index))
}

/// A row a rank, the costliest first.
fn ranks(canvas: &mut Canvas<'_>, band: Band, known: &RunAnalysis) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let ranks = by_cost(known);
    let place = ranks.iter().filter_map(|rank| rank.place.as_deref()).map(width).max().unwrap_or(5);
    let place = place.clamp(5, 16);
    let has_gpus = !known.gpus.is_empty();
    let mut heads = vec![("LAST", 6), ("DELAY", 8), ("WAIT", 6), ("XFER", 6)];
    if has_gpus {
        heads.extend([("UTIL", 6), ("MIN", 5)]);
    }
    heads.extend([("WARN", 5), ("ERR", 5)]);
    let first = 1 + 4 + 1 + place;
    let draw = |canvas: &mut Canvas<'_>, y: u16, cells: &[String], style: Style| {
        let mut x = first;
        for ((_, w), cell) in heads.iter().zip(cells) {
            if x + w + 1 > canvas.width() {
                break;
            }
            canvas.right(x, y, *w, cell, style);
            x += w;
        }
    };
    canvas.right(1, band.y, 4, "RANK", dim);
    canvas.text(6, band.y, place, "PLACE", dim);
    let words: Vec<String> = heads.iter().map(|(word, _)| (*word).to_owned()).collect();
    draw(canvas, band.y, &words, dim);
    let list = band.below_head();
    let shown = if ranks.len() > usize::from(list.h) { list.h.saturating_sub(1) } else { list.h };
    for (rank, y) in ranks.iter().zip(list.y..list.y + shown) {
        canvas.right(1, y, 4, &rank.rank.to_string(), text);
        canvas.name(6, y, place, rank.place.as_deref().unwrap_or("–"), text);
        draw(canvas, y, &cells(known, rank, has_gpus), text);
    }
    if shown < list.h && ranks.len() > usize::from(shown) {
        let more = format!("… {} more", ranks.len() - usize::from(shown));
        canvas.text(6, list.y + shown, canvas.width().saturating_sub(7), &more, dim);
    }
}

fn cells(known: &RunAnalysis, rank: &RankFigures, has_gpus: bool) -> Vec<String> {
    let unknown = || "–".to_owned();
    let share = |phase: crate::domain::timing::Phase| {
        rank.shares.map_or_else(unknown, |shares| format!("{:.0} %", shares[phase.index()] * 100.0))
    };
    let mut cells = vec![
        rank.last_in.map_or_else(unknown, |last| last.to_string()),
        rank.wait_caused_us.map_or_else(unknown, units::duration_us),
        share(crate::domain::timing::Phase::Wait),
        share(crate::domain::timing::Phase::Transfer),
    ];
    if has_gpus {
        let own = gpus_of(known, rank.rank);
        let mean = own.iter().filter_map(|gpu| gpu.util_mean).reduce(|a, b| a + b);
        let count = own.iter().filter(|gpu| gpu.util_mean.is_some()).count().max(1);
        cells.push(mean.map_or_else(unknown, |sum| format!("{:.0} %", sum / count as f64)));
        let least = own.iter().filter_map(|gpu| gpu.util_min).min();
        cells.push(least.map_or_else(unknown, |least| format!("{least} %")));
    }
    cells.extend([rank.warnings, rank.errors].map(|count| count.to_string()));
    cells
}

fn gpus_of(known: &RunAnalysis, rank: Rank) -> Vec<&GpuFigures> {
    known.gpus.iter().filter(|gpu| gpu.rank == rank).collect()
}
