//! The scrub bar of a replay: the whole recording, its stages, and the playhead.

use ratatui::style::{Modifier, Style};

use crate::domain::playback::PlaybackState;
use crate::domain::run::RunStage;
use crate::domain::world::RunState;
use crate::tui::canvas::Canvas;
use crate::tui::core::layout::{Band, scrub_columns};
use crate::tui::core::words::clock_time;
use crate::tui::screens::run::view::since_start;
use crate::tui::screens::run::view::strip::AWAY;
use crate::tui::screens::{Mode, Model};

/// Draws the bar.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>, band: Band) {
    let Mode::Replay(state) = &model.mode else { return };
    let (first, count) = scrub_columns(canvas.width());
    let (dim, text) = (canvas.theme.dim, canvas.theme.text);
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    let (glyph, word) = if state.playing { ("▶", "playing") } else { ("❚", "paused") };
    canvas.text(1, band.y, 1, glyph, accent);
    canvas.text(3, band.y, 8, word, if state.playing { accent } else { text });
    let column = |at: crate::domain::time::Stamp| {
        let length = state.end.micros_since(state.start).max(1) as f64;
        let share = (at.micros_since(state.start) as f64 / length).clamp(0.0, 1.0);
        first + (share * f64::from(count - 1)).round() as u16
    };
    let head = column(state.playhead);
    let spans: Vec<_> = state.unattended.iter().map(|(from, to)| column(*from)..=column(*to)).collect();
    let away = AWAY.to_string();
    for x in first..first + count {
        if spans.iter().any(|span| span.contains(&x)) {
            canvas.text(x, band.y, 1, &away, if x < head { accent } else { dim });
            continue;
        }
        let (glyph, style) = if x < head { ("━", accent) } else { ("─", dim) };
        canvas.text(x, band.y, 1, glyph, style);
    }
    if let Some((_, run)) = model.shown_run() {
        for (at, stage) in &run.stages {
            let failed = *stage == RunStage::Ended
                && run.outcome.as_ref().is_some_and(|outcome| !outcome.is_success() && !outcome.is_stopped());
            if failed || matches!(stage, RunStage::Training) {
                let (glyph, style) =
                    if failed { ("✖", canvas.theme.bad) } else { ("◆", canvas.theme.good) };
                canvas.text(column(*at), band.y, 1, glyph, style);
            }
        }
    }
    canvas.text(head, band.y, 1, "●", accent);
    let end = since_start(state.end, state.start);
    let room = canvas.width() - (first + count);
    canvas.right(first + count, band.y, room - 1, &end, dim);
}

/// What the title of a replay says on the right.
pub(in crate::tui::screens) fn words(
    model: &Model,
    canvas: &Canvas<'_>,
    state: &PlaybackState,
    run: &RunState,
) -> Vec<(String, Style)> {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let mut words = vec![(clock_time(state.playhead, model.utc_offset_s, true), canvas.theme.strong())];
    words.push((format!("+{}", since_start(state.playhead, state.start)), text));
    words.push((format!("{}×", speed(state.speed)), text));
    if let Some(damage) = &state.damage {
        words.push((damage.clone(), canvas.theme.warn));
    }
    if let Some(step) = run.step() {
        let of = run.total_steps.map_or_else(String::new, |total| format!("/{total}"));
        words.push((format!("step {step}{of}"), text));
    }
    if let Some(loss) = crate::tui::screens::run::view::loss(run) {
        words.push((format!("loss {loss:.3}"), text));
    }
    if let Some(outcome) = &run.outcome {
        words.push((format!("exit {}", outcome.exit_code()), dim));
    }
    words
}

fn speed(speed: f64) -> String {
    if speed >= 1.0 { format!("{speed:.0}") } else { format!("1/{:.0}", 1.0 / speed) }
}
