//! The Run screen, and Replay, which adds the playhead and keeps the timeline open.

mod charts;
mod communication;
mod counters;
mod figures;
mod heat;
mod heat_axis;
mod host_cells;
mod lanes;
mod logs;
mod rank_cells;
mod ranks;
mod ruler;
mod shares;
pub(in crate::tui::screens) mod strip;
pub(in crate::tui::screens) mod title;
mod whole;

use ratatui::style::Style;

use crate::domain::run::RunStage;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::RunState;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::Screen;
use crate::tui::core::layout::Band;
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::events::view as events;
use crate::tui::screens::replay::selection::shown_part;
use crate::tui::screens::replay::view as replay_words;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::run::verdict::Tone;
use crate::tui::screens::run::view::strip::AWAY;
use crate::tui::screens::run::{away_words, bands, log_columns, unattended};

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let Some(frame) = Frame::of(model) else {
        return waiting(model, canvas);
    };
    let (bands, rate) = (frame.bands(), samples_per_second(frame.run));
    title::draw(&frame, canvas, rate);
    stages(&frame, canvas, bands.stages);
    verdict_lines(&frame, canvas, bands.verdict);
    if frame.is_heat() {
        whole::draw(&frame, canvas, bands.whole, bands.side);
        heat::draw(&frame, canvas, &bands);
        below(&frame, canvas, bands.logs, 0);
        return;
    }
    let left = canvas.width() - bands.side;
    let hidden = ranks::draw(&frame, canvas, bands.ranks, left);
    if bands.side > 0 {
        charts::beside(&frame, canvas, bands.ranks, left, rate);
    } else if bands.charts.h > 0 {
        charts::lines(&frame, canvas, bands.charts, rate);
    }
    whole::draw(&frame, canvas, bands.whole, bands.side);
    if bands.lanes.h > 0 {
        lanes::draw(&frame, canvas, bands.lanes);
    }
    below(&frame, canvas, bands.logs, hidden);
}

/// Draws what there is before the first event of a run.
fn waiting(model: &Model, canvas: &mut Canvas<'_>) {
    let (bands, replay) = (bands(model), model.ui.screen == Screen::Replay);
    let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
    canvas.text(1, 0, 10, if replay { "Replay" } else { "Run" }, strong);
    if replay {
        whole::draw_before(model, canvas, bands.whole);
    }
    // of what is shown nothing has been read yet
    let is_opening = model.ui.replay.reading.is_some() || model.world.hosts.is_empty();
    let text = match (replay, is_opening) {
        (true, true) => replay_words::opening_words(model),
        (true, false) => "the run begins later in this recording".to_owned(),
        (false, _) => "waiting for the run's first event …".to_owned(),
    };
    canvas.text(1, bands.verdict.y, canvas.width() - 2, &text, dim);
}

/// The log, and beside it or in its place the figures of what is selected, else the events. So many ranks are not shown above.
fn below(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band, hidden: usize) {
    let (model, run) = (frame.model, frame.run);
    let (all, log) = (canvas.width(), log_columns(model));
    if log > 0 {
        logs::draw(model, &mut canvas.part(0, 0, log, u16::MAX), band, run, &ranks::hidden_words(hidden));
    }
    if let Some(part) = shown_part(model) {
        figures::draw(model, canvas, (log, band), part, run);
    } else if log < all {
        events::beside_log(model, canvas, (log, band), (frame.id, run));
    }
}

/// One word for a run's state, and its style.
pub(in crate::tui::screens) fn state_word(theme: &Theme, run: &RunState) -> (&'static str, Style) {
    match (&run.outcome, run.stage()) {
        (Some(_), _) if run.spec.is_imported() => ("imported", theme.dim),
        (Some(outcome), _) if outcome.is_success() => ("done", theme.good),
        (Some(outcome), _) if outcome.is_stopped() => ("stopped", theme.dim),
        (Some(_), _) => ("failed", theme.bad),
        (None, Some(RunStage::Training)) => (stage_name(run, RunStage::Training), theme.good),
        (None, Some(RunStage::Stopping)) => ("stopping", theme.warn),
        (None, Some(stage)) => (stage.name(), theme.accent),
        (None, None) => ("asked for", theme.dim),
    }
}

/// A stage's name; a job that reports no steps does not train, it runs.
fn stage_name(run: &RunState, stage: RunStage) -> &'static str {
    let steps = run.step().is_some();
    if stage == RunStage::Training && !steps { "running" } else { stage.name() }
}

/// `4 s`, `02:14`, `3h05`: a length that is watched while it grows.
pub(in crate::tui::screens) fn clock_length(micros: u64) -> String {
    if micros < 60_000_000 { format!("{} s", micros / 1_000_000) } else { units::duration_us(micros) }
}

/// The mean loss over the ranks' newest steps.
pub(in crate::tui::screens) fn loss(run: &RunState) -> Option<f32> {
    let known: Vec<f32> = run.trainers().filter_map(|one| one.state.loss()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
}

/// Whether rank 0's loss fell or rose: the mean of the last twenty steps against the twenty before.
fn loss_trend(run: &RunState) -> Option<&'static str> {
    let losses: Vec<f32> =
        run.trainers().next()?.state.steps.iter().rev().take(40).filter_map(|(_, step)| step.loss).collect();
    if losses.len() < 40 {
        return None;
    }
    let mean = |part: &[f32]| part.iter().sum::<f32>() / part.len() as f32;
    let (new, old) = (mean(&losses[..20]), mean(&losses[20..]));
    Some(if new < old * 0.99 {
        " ↓"
    } else if new > old * 1.01 {
        " ↑"
    } else {
        ""
    })
}

fn metric(run: &RunState, name: &str) -> Option<f64> {
    run.ranks.iter().find_map(|rank| rank.metrics.get(name)).copied()
}

/// Samples a second of all ranks together.
pub(super) fn samples_per_second(run: &RunState) -> Option<f64> {
    run.samples_per_second().filter(|_| !run.is_behind)
}

fn eta_us(run: &RunState) -> Option<u64> {
    let left = run.total_steps?.checked_sub(run.step()?)?;
    let steps = &run.trainers().next()?.state.steps;
    let recent: Vec<u64> = steps.iter().rev().take(50).map(|(_, step)| u64::from(step.dur_us)).collect();
    (recent.len() >= 5 && left > 0).then(|| left * (recent.iter().sum::<u64>() / recent.len() as u64))
}

fn stages(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band) {
    let (model, run) = (frame.model, frame.run);
    let (good, dim, alarm) = (canvas.theme.good, canvas.theme.dim, canvas.theme.bad);
    let known_until = run.known_until(&model.world.hosts, model.moment());
    let mut pieces: Vec<[(String, Style); 2]> = Vec::new();
    let entered_stages = run.stages_of_attempt();
    if run.attempt.0 > 1 {
        let words = format!("attempt {} of {}   ", run.attempt.0, run.attempt.1);
        pieces.push([(String::new(), dim), (words, canvas.theme.warn)]);
    }
    for (at, (entered, stage)) in entered_stages.iter().enumerate() {
        if *stage == RunStage::Ended {
            continue;
        }
        let left = entered_stages.get(at + 1).map(|(left, _)| *left);
        // of a silent host nothing is known since then; a stop waits here
        let silent = frame.look.silent_since().filter(|_| left.is_none() && *stage != RunStage::Stopping);
        let until = left.unwrap_or(if silent.is_some() { model.moment() } else { known_until });
        let length = u64::try_from(until.micros_since(*entered)).unwrap_or(0);
        let failed =
            run.outcome.as_ref().is_some_and(|outcome| !outcome.is_success() && !outcome.is_stopped())
                && *stage != RunStage::Stopping
                && entered_stages.get(at + 1).is_none_or(|(_, next)| *next >= RunStage::Stopping);
        let (glyph, style) = match left {
            _ if failed => ("✖", alarm),
            Some(_) => ("✔", good),
            None if silent.is_some() => ("●", dim),
            None => ("●", canvas.theme.accent),
        };
        let length = if left.is_some() { short_length(length) } else { clock_length(length) };
        let copied = model.ui.run.syncing.as_ref().filter(|_| left.is_none() && *stage == RunStage::Sync);
        let copied = copied.map_or_else(String::new, |copied| format!("  {copied}"));
        let seen = silent.map(|heard| clock_length(u64::try_from(heard.micros_since(*entered)).unwrap_or(0)));
        let seen = seen.map_or_else(String::new, |seen| format!(", {seen} of it seen"));
        let words = format!(" {} {length}{seen}{copied}   ", stage_name(run, *stage));
        let is_over = left.is_some() || silent.is_some();
        pieces.push([(glyph.to_owned(), style), (words, if is_over { dim } else { canvas.theme.text })]);
    }
    let past = unattended(model, run).iter().filter(|(_, to)| *to <= model.moment());
    let away = past.map(|(from, to)| u64::try_from(to.micros_since(*from)).unwrap_or(0)).sum();
    if away > 0 {
        let words = format!(" {} {}   ", away_words(model), short_length(away));
        pieces.push([(AWAY.to_string(), canvas.theme.warn), (words, dim)]);
    }
    // the first stages are the least telling
    let end = canvas.width() - 1;
    let need =
        |pieces: &[[(String, Style); 2]]| pieces.iter().flatten().map(|(text, _)| width(text)).sum::<u16>();
    let mut first = 0;
    while first + 1 < pieces.len() && need(&pieces[first..]) > end + 2 {
        first += 1;
    }
    let mut shown: Vec<(String, Style)> = pieces.into_iter().skip(first).flatten().collect();
    if let Some((last, _)) = shown.last_mut() {
        last.truncate(last.trim_end().len());
    }
    canvas.pieces(1, band.y, end, &shown);
    let used: u16 = shown.iter().map(|(text, _)| width(text)).sum();
    about_steps(canvas, band, run, used + 4);
}

/// By whom the steps are told or why there are none, and what NCCL says of itself: at the right, from column `least` on.
fn about_steps(canvas: &mut Canvas<'_>, band: Band, run: &RunState, least: u16) {
    let nccl = run.ranks.iter().find_map(|rank| rank.nccl.sentence());
    let room = canvas.width().saturating_sub(least + 1);
    // with little room without the versions
    let steps = run.steps_words().map(|words| match words.split_once(" (") {
        Some((short, _)) if width(&words) > room => short.to_owned(),
        _ => words,
    });
    let words = steps.into_iter().chain(nccl);
    let dim = canvas.theme.dim;
    let mut text = String::new();
    for words in words.map(|words| sanitize(&words).into_owned()) {
        let more = if text.is_empty() { words } else { format!("{text} · {words}") };
        if width(&more) > room {
            break;
        }
        text = more;
    }
    let w = width(&text);
    canvas.text(canvas.width().saturating_sub(w + 1), band.y, w, &text, dim);
}

/// A stage's length: tenths of a second, longer ones as elsewhere.
pub(in crate::tui::screens) fn short_length(micros: u64) -> String {
    if micros < 59_950_000 { format!("{:.1} s", micros as f64 / 1e6) } else { units::duration_us(micros) }
}

fn verdict_lines(frame: &Frame<'_>, canvas: &mut Canvas<'_>, band: Band) {
    let style = match frame.verdict.tone {
        Tone::Plain => canvas.theme.dim,
        Tone::Good => canvas.theme.good,
        Tone::Look => canvas.theme.warn,
        Tone::Bad => canvas.theme.bad,
    };
    let room = canvas.width() - 2;
    let collectives = frame.run.collectives_words();
    let end = band.y + band.h - u16::from(collectives.is_some() && band.h > 1);
    let lines = wrap(&frame.verdict.text, usize::from(room));
    for (line, y) in lines.iter().zip(band.y..end) {
        canvas.text(1, y, room, line, style);
    }
    // the table and this line tell of the moment
    let hint = "I whole run";
    let used = lines.first().map_or(0, |line| width(line));
    if frame.is_replay() && used + width(hint) + 3 <= room {
        let dim = canvas.theme.dim;
        canvas.right(1, band.y, room, hint, dim);
    }
    if let Some([long, short]) = collectives.filter(|_| band.h > 1) {
        let dim = canvas.theme.dim;
        canvas.text(1, end, room, if width(&long) > room { &short } else { &long }, dim);
    }
}

/// A moment relative to the run's start, `+02:14.3`.
pub(in crate::tui::screens) fn since_start(at: Stamp, start: Stamp) -> String {
    let tenths = at.micros_since(start).max(0) / 100_000;
    let (minutes, rest) = (tenths / 600, tenths % 600);
    format!("{:02}:{:02}.{}", minutes, rest / 10, rest % 10)
}
