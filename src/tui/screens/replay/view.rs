//! What the title of a replay says.

use ratatui::style::Style;

use crate::domain::playback::PlaybackState;
use crate::domain::units;
use crate::domain::world::RunState;
use crate::tui::canvas::Canvas;
use crate::tui::canvas::theme::Theme;
use crate::tui::core::words::clock_time;
use crate::tui::screens::Model;
use crate::tui::screens::run::view::{short_length, since_start};

/// What plays so little behind the end of what grows is live, microseconds.
const LIVE_US: i64 = 1_500_000;

/// While the recording is being opened.
pub(in crate::tui::screens) fn opening(model: &Model, canvas: &mut Canvas<'_>) {
    let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
    let x = canvas.text(1, 0, 10, "Replay", strong) + 2;
    let room = canvas.width().saturating_sub(x + 1);
    canvas.text(x, 0, room, &opening_words(model), dim);
}

/// `opening the recording of run 7K3M digits, 364 K … 40 %`.
pub(in crate::tui::screens) fn opening_words(model: &Model) -> String {
    let run = model.ui.run.run.as_ref();
    let recording = run.and_then(|run| model.recordings.iter().find(|recording| recording.spec.id == *run));
    let words = recording.map_or_else(
        || "opening the recording …".to_owned(),
        |recording| {
            let (spec, size) = (&recording.spec, units::bytes(recording.bytes));
            format!("opening the recording of run {} {}, {size} …", spec.id.short(), spec.name)
        },
    );
    words + &model.ui.replay.reading.map_or_else(String::new, |percent| format!(" {percent} %"))
}

/// What the title of a replay says on the right.
pub(in crate::tui::screens) fn words(
    model: &Model,
    theme: &Theme,
    state: &PlaybackState,
    run: &RunState,
) -> Vec<(u8, String, Style)> {
    let (text, dim) = (theme.text, theme.dim);
    let mut words = vec![(clock_time(state.playhead, &model.zone, true), theme.strong())];
    words.push((format!("+{}", since_start(state.playhead, state.start)), text));
    words.push((format!("{}×", speed(state.speed)), text));
    if let Some(behind) = behind(model, state) {
        words.push((behind, theme.accent));
    }
    if let Some(percent) = model.ui.replay.reading {
        let rough = if model.ui.replay.is_glimpse { ", rough until then" } else { "" };
        words.push((format!("reading {percent} %{rough}"), theme.warn));
    }
    if let Some(damage) = &state.damage {
        words.push((damage.clone(), theme.warn));
    }
    if let Some(step) = run.step() {
        let of = run.total_steps.map_or_else(String::new, |total| format!("/{total}"));
        words.push((format!("step {step}{of}"), text));
    }
    if let Some(loss) = crate::tui::screens::run::view::loss(run) {
        words.push((format!("loss {loss:.3}"), text));
    }
    if let Some(outcome) = &run.outcome {
        words.push((outcome.words(&run.spec), dim));
    }
    (0..).zip(words).map(|(rank, (words, style))| (rank, words, style)).collect()
}

/// How far what is shown is behind a run that goes on: `12.3 s behind`, or `live`.
fn behind(model: &Model, state: &PlaybackState) -> Option<String> {
    if !state.growing {
        return None;
    }
    let behind = state.end.micros_since(state.playhead);
    if state.playing && behind < LIVE_US {
        return Some("live".to_owned());
    }
    let behind = behind.max(model.now.micros_since(state.playhead)).max(0);
    Some(format!("{} behind", short_length(behind.unsigned_abs())))
}

fn speed(speed: f64) -> String {
    if speed >= 1.0 { format!("{speed:.0}") } else { format!("1/{:.0}", 1.0 / speed) }
}
