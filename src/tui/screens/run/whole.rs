//! The whole run on one time axis: what charts, strip and playhead share.

use std::sync::Arc;

use crate::domain::alerts::Place;
use crate::domain::history::{RunHistory, RunPoint};
use crate::domain::ids::RunId;
use crate::domain::incidents::{self, ClockJump, Incident};
use crate::domain::outcome::RunOutcome;
use crate::domain::run::RunStage;
use crate::domain::time::Stamp;
use crate::domain::world::RunState;
use crate::tui::screens::{Mode, Model};

/// Pieces of the axis of a run that goes on.
const PIECES: i64 = 256;

/// What a replay has seen of the run, whatever the playhead stands at now.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    run: RunId,
    /// Up to when.
    until: Stamp,
    history: RunHistory,
    stages: Vec<(Stamp, RunStage)>,
    outcome: Option<RunOutcome>,
    /// Its alerts, in the order in which they began.
    alerts: Vec<Incident>,
    clock_jumps: Vec<ClockJump>,
    /// The number of its newest step.
    step: Option<u64>,
}

/// Remembers what the playhead has reached, where that is more than before.
pub(super) fn keep(model: &mut Model) {
    let Mode::Replay(state) = &model.mode else { return };
    let until = state.playhead;
    let Some((id, run)) = model.shown_run() else { return };
    let ui = &model.ui.run;
    let is_glimpse = model.ui.replay.is_glimpse;
    let kept = if is_glimpse { &ui.glimpse } else { &ui.whole };
    if kept.as_deref().is_some_and(|whole| whole.run == *id && whole.until >= until) {
        return;
    }
    let whole = Whole {
        run: id.clone(),
        until,
        history: run.history.clone(),
        stages: run.stages.clone(),
        outcome: run.outcome.clone(),
        alerts: model.world.alerts.all().map(Incident::of_alert).collect(),
        clock_jumps: incidents::clock_jumps(&model.world, run),
        step: newest_step(run),
    };
    let kept = if is_glimpse { &mut model.ui.run.glimpse } else { &mut model.ui.run.whole };
    *kept = Some(Arc::new(whole));
}

/// The number of the newest step of any that train.
fn newest_step(run: &RunState) -> Option<u64> {
    run.trainers().filter_map(|one| one.state.step()).max()
}

/// The number of the last step of a run, where all of it is known: what a replay has come to the end of, or is followed here.
pub fn last_step(model: &Model, run: &RunState) -> Option<u64> {
    if let Some(now) = now(model, run) {
        return newest_step(now);
    }
    let Mode::Replay(state) = &model.mode else { return None };
    kept(model, run).filter(|whole| whole.until >= state.end)?.step
}

/// What was seen of it; more of it was looked at for some moments alone, which counts while the rest is read.
fn kept<'a>(model: &'a Model, run: &RunState) -> Option<&'a Whole> {
    let ui = &model.ui.run;
    let of = |whole: &'a Option<Arc<Whole>>| {
        whole.as_deref().filter(|whole| model.is_replay() && whole.run == run.spec.id)
    };
    let glimpse = of(&ui.glimpse).filter(|_| model.ui.replay.is_glimpse);
    // of two that are as long the last counts: that which was seen
    [glimpse, of(&ui.whole)].into_iter().flatten().max_by_key(|whole| whole.until)
}

/// What is shown of the whole run, whatever the playhead stands at.
enum Seen<'a> {
    /// What a replay has come to.
    Kept(&'a Whole),
    /// The run itself: as the screen shows it, or as it is now while the screen shows an earlier moment of it.
    Run(&'a RunState),
}

fn seen<'a>(model: &'a Model, run: &'a RunState) -> Seen<'a> {
    let (Mode::Replay(state), kept) = (&model.mode, kept(model, run)) else { return Seen::Run(run) };
    let kept = kept.filter(|whole| whole.until >= state.end || now(model, run).is_none());
    kept.map_or_else(|| Seen::Run(now(model, run).unwrap_or(run)), Seen::Kept)
}

/// The run of which a replay shows an earlier moment, as it is followed here.
pub fn now<'a>(model: &'a Model, run: &RunState) -> Option<&'a RunState> {
    model.away.as_deref()?.runs.get(&run.spec.id)
}

/// What is known of the run from its start on; in a replay also what lies behind the playhead.
pub fn history<'a>(model: &'a Model, run: &'a RunState) -> &'a RunHistory {
    match seen(model, run) {
        Seen::Kept(whole) => &whole.history,
        Seen::Run(run) => &run.history,
    }
}

/// The stages it has entered.
pub fn stages<'a>(model: &'a Model, run: &'a RunState) -> &'a [(Stamp, RunStage)] {
    match seen(model, run) {
        Seen::Kept(whole) => &whole.stages,
        Seen::Run(run) => &run.stages,
    }
}

/// How it ended.
pub fn outcome<'a>(model: &'a Model, run: &'a RunState) -> Option<&'a RunOutcome> {
    match seen(model, run) {
        Seen::Kept(whole) => whole.outcome.as_ref(),
        Seen::Run(run) => run.outcome.as_ref(),
    }
}

/// The alerts that are about the run or its hosts.
pub(super) fn alerts(model: &Model, run: &RunState) -> Vec<Incident> {
    let shown = match seen(model, run) {
        Seen::Kept(whole) => return whole.alerts.clone(),
        Seen::Run(shown) => shown,
    };
    let start = shown.history.points.start();
    let away = model.away.as_deref().filter(|_| now(model, run).is_some());
    let world = away.unwrap_or(&model.world);
    let is_of_it = |place: &Place| match (&place.run, &place.host) {
        (Some(of), _) => *of == run.spec.id,
        (None, Some(host)) => run.by_host.contains_key(host),
        (None, None) => false,
    };
    let all = world.alerts.all().filter(|alert| is_of_it(&alert.place) && alert.since >= start);
    all.map(Incident::of_alert).collect()
}

/// The jumps of the clocks of its hosts.
pub(super) fn clock_jumps(model: &Model, run: &RunState) -> Vec<ClockJump> {
    match seen(model, run) {
        Seen::Kept(whole) => whole.clock_jumps.clone(),
        Seen::Run(shown) => {
            let away = model.away.as_deref().filter(|_| now(model, run).is_some());
            incidents::clock_jumps(away.unwrap_or(&model.world), shown)
        }
    }
}

/// Up to when the history of the run is known, where that is not all of it: what a replay has come to.
pub(super) fn known_until(model: &Model, run: &RunState) -> Option<Stamp> {
    let Mode::Replay(state) = &model.mode else { return None };
    match seen(model, run) {
        Seen::Kept(whole) => Some(whole.until).filter(|until| *until < state.end),
        Seen::Run(_) => Some(state.playhead).filter(|_| now(model, run).is_none()),
    }
}

/// The ends of the axis: of the recording in a replay; else from the start of the run to its end. Of what goes on to a little
/// beyond now, so that the columns stand still meanwhile and grow once in a while.
pub fn range(model: &Model, run: &RunState) -> (Stamp, Stamp) {
    let (start, end, goes_on) = match &model.mode {
        Mode::Replay(state) => (state.start, state.end, state.growing),
        Mode::Live if run.is_live() => (run.history.points.start(), model.now, true),
        Mode::Live => (run.history.points.start(), run.last_at, false),
    };
    if !goes_on {
        return (start, end.max(start.plus_micros(1)));
    }
    let length = end.micros_since(start).max(PIECES * 1_000);
    (start, start.plus_micros(stretched(length / PIECES + 1).saturating_mul(PIECES)))
}

/// At least `length`, and one of few numbers: at most an eighth more.
fn stretched(length: i64) -> i64 {
    let shift = (length.max(1).ilog2()).saturating_sub(3);
    let unit = 1i64 << shift;
    (length / unit + i64::from(length % unit != 0)).saturating_mul(unit)
}

/// The bounds of a column of an axis of `count` columns.
pub fn column((start, end): (Stamp, Stamp), count: usize, at: usize) -> (Stamp, Stamp) {
    let length = end.micros_since(start).max(1) as f64;
    let place = |at: usize| start.plus_micros((length * at as f64 / count.max(1) as f64) as i64);
    (place(at), place(at + 1))
}

/// The bounds of each of them.
pub fn columns(range: (Stamp, Stamp), count: usize) -> impl Iterator<Item = (Stamp, Stamp)> {
    (0..count).map(move |at| column(range, count, at))
}

/// What is known of each of them.
pub fn points(history: &RunHistory, range: (Stamp, Stamp), count: usize) -> Vec<Option<RunPoint>> {
    columns(range, count).map(|(from, to)| history.between(from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_grows_by_an_eighth_at_most_and_seldom() {
        let mut lengths: Vec<i64> = (1..100_000).map(stretched).collect();
        assert!((1..100_000).zip(&lengths).all(|(from, to)| *to >= from && *to <= from + from / 8 + 1));
        lengths.dedup();
        assert!(lengths.len() < 130, "{}", lengths.len());
        let (from, to) = column((Stamp(0), Stamp(100)), 4, 3);
        assert_eq!((from, to), (Stamp(75), Stamp(100)));
    }
}
