//! What a rank of ours does, in the COMMAND column of its GPU: `rank 3 step 812 wait 18 %`, shorter where there is less room.

use ratatui::style::Style;

use super::columns::GpuRow;
use crate::domain::timing::Phase;
use crate::domain::trainers::Trainer;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::usage::GpuUse;

/// Over how many of its newest steps its wait is told.
const RECENT: usize = 50;

/// The words for so many columns; `None` where no run of ours uses the GPU.
pub(super) fn rank_words(row: &GpuRow<'_>, canvas: &Canvas<'_>, room: u16) -> Option<(String, Style)> {
    let run = row.run?;
    let on_it = |one: &Trainer<'_>| one.rank.placement.gpus().any(|gpu| *gpu == row.gpu.uuid);
    let one = run.trainers().find(on_it)?;
    let number = one.number;
    let is_late = run.straggler().is_some_and(|late| late.rank == one.key);
    let step = one.state.step();
    let state = step.map_or_else(|| one.state.word().to_owned(), |step| format!("step {step}"));
    let wait = wait_share(one).map(|share| format!(" wait {:.0} %", share * 100.0)).unwrap_or_default();
    let is_hung = row.hung == Some(one.key);
    let (mark, trouble, style) = match (is_hung, is_late) {
        (true, _) => ("! ", " hangs", canvas.theme.bad),
        (false, true) => ("! ", " straggler", canvas.theme.warn),
        (false, false) => ("", "", canvas.theme.text),
    };
    let words = [
        format!("{mark}rank {number} {state}{wait}{trouble}"),
        format!("{mark}rank {number} {state}{trouble}"),
        format!("{mark}rank {number} {state}"),
        format!("{mark}r{number} {}", step.map_or(state.clone(), |step| step.to_string())),
        format!("{mark}rank {number}"),
    ];
    let fits = words.iter().find(|words| width(words) <= room);
    Some((fits.unwrap_or(&words[4]).clone(), style))
}

/// `leased by wang (7QK2 mnist)` of another user's run, where there is room for it.
pub(super) fn lease_words(row: &GpuRow<'_>, canvas: &Canvas<'_>, room: u16) -> Option<(String, Style)> {
    let GpuUse::Leased { user, run, own: false } = row.holder else { return None };
    let words = match run.as_deref().map(|run| run.strip_prefix("run ").unwrap_or(run).trim_end()) {
        Some(run) => format!("leased by {user} ({run})"),
        None => format!("leased by {user}"),
    };
    (width(&words) <= room).then_some((words, canvas.theme.dim))
}

/// The share of its newest steps in which it waited for others; `None` where it does not tell.
fn wait_share(one: Trainer<'_>) -> Option<f64> {
    let (mut wait, mut all, mut told) = (0, 0, false);
    for step in one.state.recent_steps(RECENT) {
        told |= step.spans.iter().any(|span| span.phase == Phase::Wait);
        wait += step.phase_totals()[Phase::Wait.index()];
        all += u64::from(step.dur_us);
    }
    (told && all > 0).then(|| wait as f64 / all as f64)
}
