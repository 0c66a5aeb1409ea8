//! Steps that lie far outside of their run by the clocks of their hosts: a clock was wrong, or a trace was. A timeline of the run is
//! blank where they should be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::export::Clocks;
use super::format::Channel;
use super::reader::Reader;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, Rank};
use crate::domain::time::HostTime;
use crate::domain::units::{counted, duration_us};

/// What is farther outside is told, microseconds: clocks of machines that are set by hand differ by less.
const FAR_US: u64 = 60_000_000;
/// So many ranks are named.
const NAMED: usize = 4;

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

/// Those of a recording, by rank. What can't be read, and ranks whose hosts' clocks are not known, are left out.
pub fn of(reader: &Reader) -> Vec<FarSteps> {
    let Some(spec) = reader.spec() else { return Vec::new() };
    let hosts: BTreeMap<Rank, &HostId> =
        spec.placements.iter().map(|placement| (placement.rank, &placement.host)).collect();
    let clocks = Clocks::of_recording(reader);
    let first = reader.range().map_or(spec.created, |(first, _)| first);
    // an import has no other time than that of its steps
    let begin = if spec.is_imported() { spec.created } else { spec.created.min(first) };
    let mut far: BTreeMap<Rank, FarSteps> = BTreeMap::new();
    for envelope in reader.select(.., |channel| channel == Channel::Phase).flatten() {
        let Event::StepDone { timing } = &envelope.event else { continue };
        let (Origin::Rank(_, rank) | Origin::Worker(_, rank, _)) = &envelope.origin else { continue };
        let stamp = |time: HostTime| hosts.get(rank).and_then(|host| clocks.stamp(host, time));
        let ended = HostTime(timing.start.0.saturating_add(timing.dur_us.into()));
        let (Some(start), Some(end)) = (stamp(timing.start), stamp(ended)) else { continue };
        let by = |micros: i64| u64::try_from(micros).ok().filter(|us| *us > FAR_US).unwrap_or_default();
        let (before_us, after_us) = (by(begin.micros_since(end)), by(start.micros_since(envelope.at)));
        if before_us + after_us > 0 {
            let of =
                far.entry(*rank).or_insert(FarSteps { rank: *rank, steps: 0, before_us: 0, after_us: 0 });
            of.steps += 1;
            (of.before_us, of.after_us) = (of.before_us.max(before_us), of.after_us.max(after_us));
        }
    }
    far.into_values().collect()
}

/// What is said of them, and what helps; nothing where there are none.
pub fn words(far: &[FarSteps], is_imported: bool) -> Option<String> {
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
    use crate::domain::event::Envelope;
    use crate::domain::timing::StepTiming;
    use crate::record::Writer;

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
        of(&Reader::open(&path).unwrap())
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
            words(&[of], false).unwrap(),
            "far outside of the run, where no lane shows them: 5 steps of rank 1, up to 16:38 before its beginning; \
             they were told by another clock than CLOCK_MONOTONIC of their host (in Python time.monotonic_ns() // 1000), or the clock of \
             the machine that recorded them was set"
        );
        assert!(words(&[of], true).unwrap().ends_with("recorded with a correct one"));
        assert_eq!(words(&[], false), None);
        let late = far(500_000_000);
        assert!(is_near(&late, FarSteps { before_us: 0, after_us: 499_800_000, ..of }), "{late:?}");
        let many: Vec<FarSteps> = (0..6).map(|rank| FarSteps { rank: Rank(rank), ..of }).collect();
        let text = words(&many, false).unwrap();
        assert!(text.contains("of rank 3, ") && text.contains("; and steps of 2 more ranks; "), "{text}");
    }
}
