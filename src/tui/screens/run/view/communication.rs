//! The lane below that of the selected rank: when its gradients were on their way. As NCCL tells it, collective by collective; else
//! by its steps, whose hidden part lies at the end of the backward pass.

use crate::domain::ids::Rank;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::trainers::Trainer;
use crate::domain::world::{HostState, RunState};
use crate::tui::screens::run::view::lanes::{Ahead, Part, Placed, placed};
use crate::tui::screens::run::view::strip::Segment;

/// Between two collectives it may take so long that a silence behind the last one says nothing, microseconds.
const PATIENCE_US: u64 = 1_000_000;

/// What the lane shows: each collective or exposed phase where it was, and where they are shorter than a column the share of its
/// time.
pub(super) fn segments(
    ahead: Ahead<'_>,
    run: &RunState,
    one: Trainer<'_>,
    host: Option<&HostState>,
    part: Part,
) -> Vec<Segment> {
    let stamp = |at: HostTime| host.and_then(|host| host.clock.stamp(at));
    let told = collectives(ahead, run, one.key, host, part);
    let known = ahead.known();
    let silent = silent_from(ahead, run, one.key, host);
    // what is held, before the moment and behind it; where that tells nothing of communication, the history may
    let (near, held) = if told.is_empty() {
        let (all, first) = of_steps(ahead, one, host, part, None);
        let held = [first.map(|first| (first, ahead.moment)), known];
        let is_told = !all.is_empty();
        (all, held.map(|held| held.filter(|_| is_told)).to_vec())
    } else {
        let first = run.collectives.recent(one.key).next().and_then(|(at, _)| stamp(at));
        let later = ahead.collectives(one.key).first().and_then(|(at, _)| stamp(*at));
        let behind = later.zip(known).map(|(first, (_, until))| (first, until));
        let mut held = vec![first.map(|first| (first, silent.unwrap_or(ahead.moment))), behind];
        let mut near = told;
        if let Some(since) = silent {
            let (more, first) = of_steps(ahead, one, host, part, Some(since));
            held.extend(
                [first.map(|first| (first.max(since), ahead.moment)), known]
                    .map(|held| held.filter(|_| !more.is_empty())),
            );
            near.extend(more);
        }
        (near, held)
    };
    let w = f64::from(part.w.max(1));
    let mut out = drawn(&near, part.w);
    for column in 0..part.w {
        let (from, to) = (part.moment(column), part.moment(column + 1));
        let middle = from.plus_micros(to.micros_since(from) / 2);
        if held.iter().flatten().any(|(since, until)| (*since..=*until).contains(&middle)) {
            continue;
        }
        let share = ahead.history.communication_share(one.key, (from, to), ahead.until);
        let (left, right) = (f64::from(column) / w, f64::from(column + 1) / w);
        out.extend(share_of_column(share, left, right, Phase::Transfer));
    }
    out
}

/// From when on NCCL tells nothing more of one that went on: its plugin was lost, or the program left it out.
fn silent_from(ahead: Ahead<'_>, run: &RunState, number: Rank, host: Option<&HostState>) -> Option<Stamp> {
    if !ahead.collectives(number).is_empty() {
        return None;
    }
    let starts = || run.collectives.recent(number).map(|(start, _)| start.0);
    let (last, us) = run.collectives.recent(number).last()?;
    let longest = starts().zip(starts().skip(1)).map(|(one, next)| next.saturating_sub(one)).max();
    let patience = longest.unwrap_or_default().saturating_mul(2).max(PATIENCE_US);
    let end = host?.clock.stamp(HostTime(last.0.saturating_add(us.into())))?;
    (ahead.moment.micros_since(end) > i64::try_from(patience).unwrap_or(i64::MAX)).then_some(end)
}

/// What the steps tell that began after `since`: in the window, and from when on they tell it.
fn of_steps(
    ahead: Ahead<'_>,
    one: Trainer<'_>,
    host: Option<&HostState>,
    part: Part,
    since: Option<Stamp>,
) -> (Vec<(f64, f64, Phase)>, Option<Stamp>) {
    let mut steps = placed(one.state.steps.iter(), host, part);
    steps.extend(placed(ahead.steps(one.key).iter(), host, part));
    let from = since
        .map_or(f64::NEG_INFINITY, |since| since.micros_since(part.start) as f64 / part.window.max(1) as f64);
    let all =
        steps.iter().filter(|(begin, ..)| *begin >= from).flat_map(|step| by_step(step, part)).collect();
    let first = one.state.steps.front().map(|(arrived, step)| {
        let begin = host.and_then(|host| host.clock.stamp(step.start));
        begin.unwrap_or_else(|| arrived.plus_micros(-i64::from(step.dur_us)))
    });
    (all, first)
}

/// The collectives that NCCL has told, in the window: 0..=1.
fn collectives(
    ahead: Ahead<'_>,
    run: &RunState,
    number: Rank,
    host: Option<&HostState>,
    part: Part,
) -> Vec<(f64, f64, Phase)> {
    let share = |at: i64| at as f64 / part.window.max(1) as f64;
    let place = |(start, us): (HostTime, u32)| {
        let begin = host?.clock.stamp(start)?.micros_since(part.start);
        let (from, to) = (share(begin), share(begin + i64::from(us)));
        (to > 0.0 && from < 1.0).then_some((from, to, Phase::Transfer))
    };
    let later = ahead.collectives(number);
    let before = later.first().map(|(first, _)| *first);
    let own = run.collectives.recent(number).filter(|(start, _)| before.is_none_or(|first| *start < first));
    own.chain(later.iter().copied()).filter_map(place).collect()
}

/// What a step tells: what it stood still for, and what passed behind the backward pass, at whose end it lies.
fn by_step((begin, _, step): &Placed<'_>, part: Part) -> Vec<(f64, f64, Phase)> {
    let at = |us: i64| begin + us as f64 / part.window.max(1) as f64;
    let exposed = step.spans.iter().filter(|span| matches!(span.phase, Phase::Wait | Phase::Transfer));
    let exposed = exposed.map(|span| {
        let from = i64::from(span.start_us);
        (at(from), at(from + i64::from(span.dur_us)), span.phase)
    });
    let hidden = hidden(step).map(|(from, to)| (at(from), at(to), Phase::Transfer));
    hidden.into_iter().chain(exposed).filter(|(from, to, _)| *to > 0.0 && *from < 1.0).collect()
}

/// From when to when what a step hides is shown, microseconds from its start.
fn hidden(step: &StepTiming) -> Option<(i64, i64)> {
    let ends = step.spans.iter().filter(|span| span.phase == Phase::Backward);
    let end = ends.map(|span| i64::from(span.start_us) + i64::from(span.dur_us)).max()?;
    (step.hidden_us > 0).then(|| ((end - i64::from(step.hidden_us)).max(0), end))
}

/// Those that a column shows, and of shorter ones the shares of their columns.
fn drawn(all: &[(f64, f64, Phase)], columns: u16) -> Vec<Segment> {
    let w = f64::from(columns.max(1));
    let mut out = Vec::new();
    let mut short = vec![0.0; usize::from(columns)];
    for (from, to, phase) in all.iter().copied() {
        if (to - from) * w >= 1.0 {
            out.push(Segment { phase, from: from.max(0.0), to: to.min(1.0) });
            continue;
        }
        let at = (f64::midpoint(from, to) * w).clamp(0.0, w - 1.0) as usize;
        if let Some(share) = short.get_mut(at) {
            *share += (to - from) * w;
        }
    }
    for (column, share) in (0..columns).zip(short) {
        let (left, right) = (f64::from(column) / w, f64::from(column + 1) / w);
        out.extend(share_of_column(share, left, right, Phase::Transfer));
    }
    out
}

fn share_of_column(share: f64, left: f64, right: f64, phase: Phase) -> Option<Segment> {
    (share > 0.0).then(|| Segment { phase, from: left, to: left + (right - left) * share.min(1.0) })
}
