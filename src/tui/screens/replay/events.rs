//! The events of one lane: where phases begin and steps end, what its rank prints, its end. The playhead goes from one to the next.

use std::sync::Arc;

use crate::domain::ids::Rank;
use crate::domain::recent_steps::Arrived;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::world::{LoggedLine, RankState, RunState};
use crate::tui::core::{Level, PlayCommand};
use crate::tui::screens::Model;
use crate::tui::screens::run::rows::selected_rank;

/// The event of the selected lane that comes next, or the one before. Where none is known so close to the playhead, a step on or back.
pub(super) fn go(model: &mut Model, forward: bool) -> Option<PlayCommand> {
    let at = model.moment();
    let (_, run) = model.shown_run()?;
    let number = selected_rank(model).unwrap_or(Rank(0));
    let rank = run.ranks.get(number.0 as usize)?;
    let steps_known_until = known_until(model, at);
    let all = events(model, run, rank);
    let found = if forward {
        // what lies behind steps that are not known is not the next
        let later =
            all.filter(|event| event.at > at && steps_known_until.is_none_or(|until| event.at <= until));
        later.min_by_key(|event| event.at)
    } else {
        all.filter(|event| event.at < at).max_by_key(|event| event.at)
    };
    if let Some(LaneEvent { at: to, words }) = found {
        model.toast(Level::Info, format!("rank {number}: {words}"), None);
        return Some(PlayCommand::SeekTo(to));
    }
    if super::no_steps(model).is_none() {
        return Some(PlayCommand::StepBy(if forward { 1 } else { -1 }));
    }
    let which = if forward { "after" } else { "before" };
    model.toast(Level::Info, format!("rank {number}: no event is known {which} this moment"), None);
    None
}

/// An event of a lane.
struct LaneEvent {
    at: Stamp,
    words: String,
}

impl LaneEvent {
    fn new(at: Stamp, words: impl Into<String>) -> Self {
        Self { at, words: words.into() }
    }
}

/// Up to when all steps after the playhead are known; `None` where nothing limits that.
fn known_until(model: &Model, at: Stamp) -> Option<Stamp> {
    if super::no_steps(model).is_some() {
        return None;
    }
    let ahead = model.ui.replay.timeline_ahead.as_deref()?;
    Some(if ahead.after <= at { ahead.until } else { at })
}

/// What is known of a lane around the playhead, in no order.
fn events<'a>(
    model: &'a Model,
    run: &'a RunState,
    of: &'a RankState,
) -> impl Iterator<Item = LaneEvent> + 'a {
    let (playhead, rank) = (model.moment(), of.placement.rank);
    let ahead = model.ui.replay.timeline_ahead.as_deref();
    let clock = model.world.hosts.get(&of.placement.host).map(|host| &host.clock);
    let of_step = move |(arrived, step): &'a Arrived| {
        let begin = clock
            .and_then(|clock| clock.stamp(step.start))
            .unwrap_or_else(|| arrived.plus_micros(-i64::from(step.dur_us)));
        let spans = step.spans.iter().map(move |span| {
            let words = format!("{} of step {}", span.phase.name(), step.step);
            LaneEvent::new(begin.plus_micros(i64::from(span.start_us)), words)
        });
        let end =
            LaneEvent::new(begin.plus_micros(i64::from(step.dur_us)), format!("step {} is done", step.step));
        spans.chain([end])
    };
    let lines = run.log.iter().map(|(_, line)| line).chain(super::lines_ahead(model));
    let lines = lines.filter(move |line| line.line.rank == rank);
    let printed =
        |line: &'a Arc<LoggedLine>| LaneEvent::new(line.at, format!("prints {}", sanitize(&line.line.text)));
    let exit = of.exit.iter().map(|(at, _)| LaneEvent::new(*at, "ends"));
    // itself, or all workers of which it is the parent
    let trainers = run.trainers().filter(move |one| one.rank.placement.rank == rank);
    let steps = trainers.flat_map(move |one| {
        one.state.steps.iter().chain(ahead.map_or(&[][..], |ahead| ahead.steps(one.key, playhead)))
    });
    steps.flat_map(of_step).chain(lines.map(printed)).chain(exit)
}
