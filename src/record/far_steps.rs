//! Steps that lie far outside of their run by the clocks of their hosts: a clock was wrong, or a trace was. A timeline of the run is
//! blank where they should be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::export::GatherClocks;
use super::format::Channel;
use super::reader::Reader;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::RunSpec;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::units::{counted, duration_us};

/// What is farther outside is told, microseconds: clocks of machines that are set by hand differ by less.
const FAR_US: u64 = 60_000_000;
/// So many ranks are named.
const NAMED: usize = 4;
/// They are looked for in recordings of at most so many events: each step is kept until all pings of its host are known, 24 MB of them.
const MOST_EVENTS: u64 = 1_000_000;

/// The steps of a rank, and of those that train in it, that lie far outside of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FarSteps {
    /// The rank.
    pub rank: Rank,
    /// How many.
    pub steps: u64,
    /// By how much at most one ended before the run began, microseconds; 0 where none did so by far.
    pub before_us: u64,
    /// By how much at most one began after it was told, likewise.
    pub after_us: u64,
}

/// A step as its host's clock has it.
#[derive(Debug, Clone, Copy)]
struct Step {
    rank: Rank,
    dur_us: u32,
    start: HostTime,
    /// When it was told.
    at: Stamp,
}

/// Gathers steps and pings on a pass over a recording.
#[derive(Debug)]
pub(super) struct Gather {
    clocks: GatherClocks,
    steps: Vec<Step>,
    /// How many more events the recording may have; `None` where it has too many.
    left: Option<u64>,
}

impl Gather {
    pub(super) fn new() -> Self {
        Self { clocks: GatherClocks::default(), steps: Vec::new(), left: Some(MOST_EVENTS) }
    }

    /// The recording has so many events more.
    pub(super) fn count(&mut self, events: u64) {
        self.left = self.left.and_then(|left| left.checked_sub(events));
        if self.left.is_none() {
            self.steps = Vec::new();
        }
    }

    pub(super) fn take_all(&mut self, envelopes: &[Envelope]) {
        for envelope in envelopes {
            self.take(envelope);
        }
    }

    fn take(&mut self, envelope: &Envelope) {
        if self.left.is_none() {
            return;
        }
        self.clocks.take(envelope);
        let Event::StepDone { timing } = &envelope.event else { return };
        let (Origin::Rank(_, rank) | Origin::Worker(_, rank, _)) = &envelope.origin else { return };
        self.steps.push(Step { rank: *rank, dur_us: timing.dur_us, start: timing.start, at: envelope.at });
    }

    /// Those of a recording that begins at `first`, as [`of`].
    pub(super) fn judge(self, spec: &RunSpec, first: Stamp) -> Option<Vec<FarSteps>> {
        self.left?;
        let hosts: BTreeMap<Rank, &HostId> =
            spec.placements.iter().map(|placement| (placement.rank, &placement.host)).collect();
        let clocks = self.clocks.fit();
        // an import has no other time than that of its steps
        let begin = if spec.is_imported() { spec.created } else { spec.created.min(first) };
        let mut far: BTreeMap<Rank, FarSteps> = BTreeMap::new();
        for Step { rank, dur_us, start, at } in self.steps {
            let stamp = |time: HostTime| hosts.get(&rank).and_then(|host| clocks.stamp(host, time));
            let ended = HostTime(start.0.saturating_add(dur_us.into()));
            let (Some(start), Some(end)) = (stamp(start), stamp(ended)) else { continue };
            let by = |micros: i64| u64::try_from(micros).ok().filter(|us| *us > FAR_US).unwrap_or_default();
            let (before_us, after_us) = (by(begin.micros_since(end)), by(start.micros_since(at)));
            if before_us + after_us > 0 {
                let of = far.entry(rank).or_insert(FarSteps { rank, steps: 0, before_us: 0, after_us: 0 });
                of.steps += 1;
                (of.before_us, of.after_us) = (of.before_us.max(before_us), of.after_us.max(after_us));
            }
        }
        Some(far.into_values().collect())
    }
}

/// Those of a recording, by rank; `None` where it has so many events that they are not looked for. What can't be read, and ranks whose
/// hosts' clocks are not known, are left out.
pub fn of(reader: &Reader) -> Option<Vec<FarSteps>> {
    let Some(spec) = reader.spec() else { return Some(Vec::new()) };
    let mut gather = Gather::new();
    gather.count(reader.envelope_count());
    gather.left?;
    let is_wanted = |channel: Channel| matches!(channel, Channel::Clock | Channel::Phase);
    for envelope in reader.select(.., is_wanted).flatten() {
        gather.take(&envelope);
    }
    gather.judge(spec, reader.range().map_or(spec.created, |(first, _)| first))
}

/// What is said of them, and what helps; nothing where there are none. `far` as [`of`] gives it.
pub fn words(far: Option<&[FarSteps]>, is_imported: bool) -> Option<String> {
    let Some(far) = far else {
        let most = MOST_EVENTS / 1_000_000;
        let text = format!(
            "steps far outside of the run are not looked for: the recording has more than {most} million events"
        );
        return Some(text);
    };
    let of_rank = |of: &FarSteps| {
        let before =
            (of.before_us > 0).then(|| format!("{} before its beginning", duration_us(of.before_us)));
        let after = (of.after_us > 0).then(|| format!("{} after they were told", duration_us(of.after_us)));
        let sides: Vec<String> = [before, after].into_iter().flatten().collect();
        format!("{} of rank {}, up to {}", counted(of.steps, "step"), of.rank, sides.join(" and "))
    };
    let mut named: Vec<String> = far.iter().take(NAMED).map(of_rank).collect();
    let more = far.len().saturating_sub(NAMED);
    if more > 0 {
        named.push(format!("and steps of {}", counted(more as u64, "more rank")));
    }
    let remedy = if is_imported {
        "the clock of the trace was wrong: import a trace that was recorded with a correct one"
    } else {
        "they were told by another clock than CLOCK_MONOTONIC of their host (in Python time.monotonic_ns() // 1000), or the clock of the \
         machine that recorded them was set"
    };
    let named = named.join("; ");
    (!far.is_empty()).then(|| format!("far outside of the run, where no lane shows them: {named}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{START, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::timing::StepTiming;
    use crate::record::{Writer, check};

    const S: u64 = 1_000_000;
    /// The host's clock when the run begins.
    const HOST: u64 = 10_000 * S;

    /// Two ranks with a step each second; the clock of what tells those of the second goes wrong by so much.
    fn far(wrong_us: i64) -> Vec<FarSteps> {
        let spec = spec(2);
        let (id, host) = (spec.id.clone(), spec.placements[0].host.clone());
        let created = Event::RunCreated { spec: Arc::new(spec) };
        let mut told = vec![(0, Origin::Run(id.clone()), created)];
        for second in 1..=5 {
            let (at, host_time) = (second as i64 * 1_000_000, HostTime(HOST + second * S));
            let sample = ClockSample { host_time, offset_us: START.0 - HOST as i64, rtt_us: 80 };
            told.push((at, Origin::Host(host.clone()), Event::ClockSampled { sample }));
            for (rank, wrong_us) in [(0, 0), (1, wrong_us)] {
                let start = HostTime(host_time.0.saturating_add_signed(wrong_us));
                let timing = StepTiming { start, ..timing(second, [10, 20, 30, 40, 0, 7]) };
                let done = Event::StepDone { timing: Arc::new(timing) };
                told.push((at + 200_000, Origin::Rank(id.clone(), Rank(rank)), done));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        for (seq, (at, origin, event)) in (1..).zip(told) {
            writer.push(Envelope { seq, at: START.plus_micros(at), origin, event }).unwrap();
        }
        writer.finish().unwrap();
        let far = of(&Reader::open(&path).unwrap()).unwrap();
        // a check finds the same as it goes through the file
        assert_eq!(check::check(&path, false).far_steps.as_ref(), Some(&far));
        far
    }

    #[test]
    fn steps_of_a_recording_of_too_many_events_are_not_kept_and_that_is_said() {
        let (spec, host) = (spec(1), spec(1).placements[0].host.clone());
        let sample = ClockSample { host_time: HostTime(HOST), offset_us: START.0 - HOST as i64, rtt_us: 80 };
        let ping = (Origin::Host(host), Event::ClockSampled { sample });
        let timing = StepTiming { start: HostTime(0), ..timing(1, [10, 20, 30, 40, 0, 7]) };
        let step = (Origin::Rank(spec.id.clone(), Rank(0)), Event::StepDone { timing: Arc::new(timing) });
        let judged = |counts: [u64; 2]| {
            let mut gather = Gather::new();
            for (seq, (origin, event)) in (1..).zip([&ping, &step]) {
                gather.count(counts[0]);
                let (origin, event) = (origin.clone(), event.clone());
                gather.take(&Envelope { seq, at: START, origin, event });
            }
            gather.count(counts[1]);
            gather.judge(&spec, START)
        };
        assert!(matches!(judged([1, MOST_EVENTS - 2]).as_deref(), Some([FarSteps { steps: 1, .. }])));
        assert_eq!(judged([1, MOST_EVENTS - 1]), None);
        assert_eq!(judged([MOST_EVENTS, 0]), None);
        assert_eq!(
            words(None, false).unwrap(),
            "steps far outside of the run are not looked for: the recording has more than 1 million events"
        );
    }

    #[test]
    fn steps_of_a_clock_that_was_wrong_are_told_with_their_rank_and_a_remedy() {
        assert_eq!((far(0), far(-50_000_000), far(50_000_000)), (vec![], vec![], vec![]));
        // to the microsecond, within what a line through pings rounds
        let is_near = |told: &[FarSteps], wanted: FarSteps| {
            let near = |one: u64, other: u64| one.abs_diff(other) < 10;
            matches!(told, [of] if (of.rank, of.steps) == (wanted.rank, wanted.steps)
                && near(of.before_us, wanted.before_us) && near(of.after_us, wanted.after_us))
        };
        let of = FarSteps { rank: Rank(1), steps: 5, before_us: 998_893_000, after_us: 0 };
        let early = far(-1_000_000_000);
        assert!(is_near(&early, of), "{early:?}");
        assert_eq!(
            words(Some(&[of]), false).unwrap(),
            "far outside of the run, where no lane shows them: 5 steps of rank 1, up to 16:38 before its beginning; \
             they were told by another clock than CLOCK_MONOTONIC of their host (in Python time.monotonic_ns() // 1000), or the clock of \
             the machine that recorded them was set"
        );
        assert!(words(Some(&[of]), true).unwrap().ends_with("recorded with a correct one"));
        assert_eq!(words(Some(&[]), false), None);
        let late = far(500_000_000);
        assert!(is_near(&late, FarSteps { before_us: 0, after_us: 499_800_000, ..of }), "{late:?}");
        let many: Vec<FarSteps> = (0..6).map(|rank| FarSteps { rank: Rank(rank), ..of }).collect();
        let text = words(Some(&many), false).unwrap();
        assert!(text.contains("of rank 3, ") && text.contains("; and steps of 2 more ranks; "), "{text}");
    }
}
