//! A run that a client attached to, until what its hosts tell of the time before that is in order.
//!
//! It is recorded in that order. The screen is given none of it, but how the run stands by then: the fold of its recording's end and of
//! all that came since, as a replay would have it but for the hosts' values of before.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, RunId};
use crate::domain::resume_point::ResumePoint;
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::world::{RunState, World};
use crate::tui::source::catch_up::{CatchUp, PRESENT_US, REACHED_US};

/// So many envelopes are folded in one go: no longer than a frame takes.
const FOLDED_AT_ONCE: usize = 2048;

/// One run that is behind.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) hosts: BTreeSet<HostId>,
    /// `None`: what it catches up with is in order.
    catch_up: Option<CatchUp>,
    /// Since when hosts are awaited, and when the last envelope was taken, by a clock that does not step.
    awaits: HostTime,
    taken: HostTime,
    shown: Option<Shown>,
}

/// How it stands, for who shows it.
#[derive(Debug)]
struct Shown {
    run: RunId,
    world: World,
    /// What is in order and not folded yet.
    left: VecDeque<Envelope>,
    /// The run's end, which is told once it stands as it does then.
    end: Option<Box<Envelope>>,
}

impl Behind {
    /// Of a run that is known up to `resume_point`, from `now` on.
    pub(super) fn new(spec: &RunSpec, resume_point: &ResumePoint, now: HostTime) -> Self {
        let hosts: BTreeSet<HostId> = spec.hosts().into_iter().collect();
        let catch_up = Some(CatchUp::new(spec, resume_point.last_at));
        Self { hosts, catch_up, awaits: now, taken: now, shown: None }
    }

    /// The same of a run that is shown; `world` is how its recording ends. Gives how it is shown until it has caught up, too.
    pub(super) fn shown(self, spec: &RunSpec, mut world: World) -> (Self, RunState) {
        let created = || RunState::new(spec.created, Arc::new(spec.clone()));
        let known = world.runs.entry(spec.id.clone()).or_insert_with(created);
        let mut at_first = known.clone();
        at_first.is_behind = true;
        let shown = Shown { run: spec.id.clone(), world, left: VecDeque::new(), end: None };
        (Self { shown: Some(shown), ..self }, at_first)
    }

    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// Whether what its hosts tell of the past still waits to be put in order.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catch_up.is_some()
    }

    /// Takes an envelope in at `now`. Gives those that can be recorded now.
    pub(super) fn take(&mut self, envelope: Envelope, now: HostTime) -> Vec<Envelope> {
        self.taken = now;
        let end = is_end_of_run(&envelope).then(|| envelope.clone());
        let is_end = end.is_some();
        let released = self.place(envelope, is_end, now);
        if let (Some(shown), Some(end)) = (&mut self.shown, end) {
            // who shows it is told when it ended, not when that was heard
            let at = released.iter().rfind(|one| is_end_of_run(one)).map_or(end.at, |placed| placed.at);
            shown.end = Some(Box::new(Envelope { at, ..end }));
        }
        released
    }

    /// The same without the end for who shows it.
    fn place(&mut self, envelope: Envelope, is_end: bool, now: HostTime) -> Vec<Envelope> {
        let Some(catch_up) = &mut self.catch_up else { return self.in_order(vec![envelope]) };
        let was_awaiting = catch_up.is_awaiting();
        let (mut released, is_present) = catch_up.take(envelope);
        if !was_awaiting && catch_up.is_awaiting() {
            self.awaits = now;
        }
        if is_end && !is_present {
            released.append(&mut catch_up.rest());
        }
        if is_present || is_end {
            self.catch_up = None;
        }
        self.in_order(released)
    }

    /// Takes in what a host has noted of itself before, which came at `came`. Nothing of it is wanted once all is in order. Gives what can
    /// be recorded now.
    pub(super) fn take_noted(
        &mut self,
        host: &HostId,
        samples: Vec<(HostTime, Arc<HostSample>)>,
        (came, now): (Stamp, HostTime),
    ) -> Vec<Envelope> {
        let Some(catch_up) = &mut self.catch_up else { return Vec::new() };
        self.taken = now;
        let released = catch_up.take_noted(host, samples, came);
        self.in_order(released)
    }

    /// Time has come to `now`, and nothing waits to be taken. Gives what can be recorded now.
    pub(super) fn look(&mut self, now: HostTime) -> Vec<Envelope> {
        if self.wait_us(now) != Some(0) {
            return Vec::new();
        }
        let rest = self.catch_up.take().map(|mut catch_up| catch_up.rest());
        self.in_order(rest.unwrap_or_default())
    }

    /// In how many microseconds to look, if nothing comes before.
    pub(super) fn wait_us(&self, now: HostTime) -> Option<u64> {
        let catch_up = self.catch_up.as_ref()?;
        let left =
            |since: HostTime, wait: i64| wait.unsigned_abs().saturating_sub(now.0.saturating_sub(since.0));
        let reached = if catch_up.is_awaiting() { left(self.awaits, REACHED_US) } else { 0 };
        Some(left(self.taken, PRESENT_US).max(reached))
    }

    /// All that waits, for nothing more is recorded.
    pub(super) fn rest(self) -> Vec<Envelope> {
        self.catch_up.map(|mut catch_up| catch_up.rest()).unwrap_or_default()
    }

    fn in_order(&mut self, released: Vec<Envelope>) -> Vec<Envelope> {
        if let Some(shown) = &mut self.shown {
            shown.left.extend(released.iter().cloned());
        }
        released
    }

    /// Folds some of what waits for that. Whether nothing waits any more.
    pub(super) fn fold(&mut self) -> bool {
        let Some(Shown { world, left, .. }) = &mut self.shown else { return true };
        let some = left.len().min(FOLDED_AT_ONCE);
        left.drain(..some).for_each(|envelope| world.apply(&envelope));
        left.is_empty()
    }

    /// Whether it has caught up, and who shows it can be told.
    pub(super) fn is_over(&self) -> bool {
        self.catch_up.is_none() && self.shown.as_ref().is_none_or(|shown| shown.left.is_empty())
    }

    /// How it stands, and its end where it has ended.
    pub(super) fn stand(self) -> Option<(Box<RunState>, Option<Box<Envelope>>)> {
        let Shown { run, mut world, end, .. } = self.shown?;
        Some((Box::new(world.runs.remove(&run)?), end))
    }
}

fn is_end_of_run(envelope: &Envelope) -> bool {
    matches!(envelope.event, Event::RunEnded { .. })
}

/// Whether a run's envelope is given at once to who shows it, though the run is behind: its hosts tell of themselves.
pub(super) fn is_of_now(origin: &Origin) -> bool {
    matches!(origin, Origin::Host(_))
}

#[cfg(test)]
#[path = "behind_tests.rs"]
mod tests;
