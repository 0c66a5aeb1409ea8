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
/// A step that its host's newest ping puts so near to when it was told is not farther outside by all pings together, microseconds: they
/// differ by what the clocks drift.
const NEAR_US: i64 = 20_000_000;
/// So many ranks are named.
const NAMED: usize = 4;
/// So many of the others are kept until all pings of their hosts are known: 24 MB.
const MOST_KEPT: usize = 1_000_000;
/// Of a recording of more events than this, where only steps are looked for, not all chunks are looked at, but about so many events in
/// chunks that lie evenly in it: a clock that is wrong stays wrong for a while.
const ALL_OF: u64 = 1_000_000;
const LOOKED_AT: u64 = 250_000;

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

/// Those of a recording. What can't be read, and ranks whose hosts' clocks are not known, are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// By rank.
    pub ranks: Vec<FarSteps>,
    /// Whether there may be more: not all steps were looked at.
    pub is_part: bool,
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
#[derive(Debug, Default)]
pub(super) struct Gather {
    clocks: GatherClocks,
    /// The ranks of each host.
    ranks: BTreeMap<HostId, Vec<Rank>>,
    /// What the newest ping of a rank's host says, microseconds.
    offsets: BTreeMap<Rank, i64>,
    /// The latest moment so far.
    latest: Option<Stamp>,
    /// Those that may lie far outside.
    steps: Vec<Step>,
    is_part: bool,
}

impl Gather {
    /// The steps are those of this run; told before them, as often as one likes.
    pub(super) fn of_run(&mut self, spec: &RunSpec) {
        if self.ranks.is_empty() {
            for placement in &spec.placements {
                self.ranks.entry(placement.host.clone()).or_default().push(placement.rank);
            }
            self.latest = self.latest.max(Some(spec.created));
        }
    }

    pub(super) fn take_all(&mut self, envelopes: &[Envelope]) {
        for envelope in envelopes {
            self.take(envelope);
        }
    }

    fn take(&mut self, envelope: &Envelope) {
        self.clocks.take(envelope);
        self.latest = self.latest.max(Some(envelope.at));
        match (&envelope.event, &envelope.origin) {
            (Event::ClockSampled { sample }, Origin::Host(host)) => {
                for rank in self.ranks.get(host).into_iter().flatten() {
                    self.offsets.insert(*rank, sample.offset_us);
                }
            }
            // one that was told without its time is at fault of no clock
            (Event::StepDone { timing }, Origin::Rank(_, rank) | Origin::Worker(_, rank, _))
                if envelope.event.host_times().is_some() =>
            {
                let (dur_us, start) = (timing.dur_us, timing.start);
                self.keep(Step { rank: *rank, dur_us, start, at: envelope.at });
            }
            _ => {}
        }
    }

    fn keep(&mut self, step: Step) {
        if self.is_near(&step) {
            return;
        }
        if self.steps.len() < MOST_KEPT {
            self.steps.push(step);
        } else {
            self.is_part = true;
        }
    }

    /// Whether a step lies by its host's newest ping where it was told, and that within the run: a client's clock may have been set back.
    fn is_near(&self, step: &Step) -> bool {
        let start = i64::try_from(step.start.0).ok().zip(self.offsets.get(&step.rank));
        let Some(start) = start.map(|(us, offset_us)| Stamp(us).plus_micros(*offset_us)) else {
            return false;
        };
        let end = start.plus_micros(step.dur_us.into());
        let is_back = self.latest.is_some_and(|latest| latest.micros_since(step.at) > NEAR_US);
        !is_back && start.micros_since(step.at) <= NEAR_US && step.at.micros_since(end) <= NEAR_US
    }

    /// Those of a recording that begins at `first`.
    pub(super) fn judge(self, spec: &RunSpec, first: Stamp) -> Found {
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
        Found { ranks: far.into_values().collect(), is_part: self.is_part }
    }
}

/// Looks for them in a recording, a chunk at a time.
#[derive(Debug)]
pub(super) struct Search {
    gather: Gather,
    /// How many chunks the recording has, how many of them are looked at, and how many were.
    chunks: usize,
    wanted: usize,
    read: usize,
}

impl Search {
    /// Before the first chunk; `None` where the recording does not tell its run.
    pub(super) fn new(reader: &Reader) -> Option<Self> {
        let mut gather = Gather::default();
        gather.of_run(reader.spec()?);
        let chunks = reader.chunk_count();
        let wanted = chunks_of(chunks, reader.envelope_count());
        gather.is_part = wanted < chunks;
        Some(Self { gather, chunks, wanted, read: 0 })
    }

    /// Looks at a chunk; whether there are more.
    pub(super) fn read(&mut self, reader: &Reader) -> bool {
        if self.read < self.wanted {
            let is_wanted = |channel: Channel| matches!(channel, Channel::Clock | Channel::Phase);
            let chunk = self.read * self.chunks / self.wanted;
            self.gather.take_all(&reader.load_untimed(chunk, is_wanted).unwrap_or_default());
            self.read += 1;
        }
        self.read < self.wanted
    }

    /// What was found.
    pub(super) fn found(mut self, reader: &Reader) -> Found {
        // what was recorded meanwhile was not looked at
        self.gather.is_part |= self.chunks < reader.chunk_count();
        let Some(spec) = reader.spec() else { return Found::default() };
        self.gather.judge(spec, reader.range().map_or(spec.created, |(first, _)| first))
    }
}

/// How many of so many chunks are looked at, which hold so many events together.
fn chunks_of(chunks: usize, events: u64) -> usize {
    if events <= ALL_OF {
        return chunks;
    }
    let share = u128::from(LOOKED_AT) * chunks as u128 / u128::from(events);
    usize::try_from(share).unwrap_or(chunks).clamp(1, chunks.max(1))
}

/// Those of a recording; of one of more than a million events those that are found in a part of it.
pub fn of(reader: &Reader) -> Found {
    let Some(mut search) = Search::new(reader) else { return Found::default() };
    while search.read(reader) {}
    search.found(reader)
}

impl Found {
    fn least(&self) -> &'static str {
        if self.is_part { "at least " } else { "" }
    }

    /// What is said of them, and what helps; nothing where there are none.
    pub fn words(&self, is_imported: bool) -> Option<String> {
        let of_rank = |of: &FarSteps| {
            let before =
                (of.before_us > 0).then(|| format!("{} before its beginning", duration_us(of.before_us)));
            let after =
                (of.after_us > 0).then(|| format!("{} after they were told", duration_us(of.after_us)));
            let sides: Vec<String> = [before, after].into_iter().flatten().collect();
            format!("{} of rank {}, up to {}", counted(of.steps, "step"), of.rank, sides.join(" and "))
        };
        let mut named: Vec<String> = self.ranks.iter().take(NAMED).map(of_rank).collect();
        let more = self.ranks.len().saturating_sub(NAMED);
        if more > 0 {
            named.push(format!("and steps of {}", counted(more as u64, "more rank")));
        }
        let remedy = if is_imported {
            "the clock of the trace was wrong: import a trace that was recorded with a correct one"
        } else {
            "they were told by another clock than CLOCK_MONOTONIC of their host (in Python time.monotonic_ns() // 1000), or the clock of \
             the machine that recorded them was set"
        };
        let (least, named) = (self.least(), named.join("; "));
        (!self.ranks.is_empty())
            .then(|| format!("far outside of the run, where no lane shows them: {least}{named}; {remedy}"))
    }

    /// The same in a line, for a screen.
    pub fn line(&self) -> Option<String> {
        let first = self.ranks.first()?;
        let steps = counted(self.ranks.iter().map(|of| of.steps).sum::<u64>(), "step");
        let ranks = match self.ranks.len() {
            1 => format!("rank {}", first.rank),
            several => counted(several as u64, "rank"),
        };
        let least = self.least();
        Some(format!(
            "a wrong clock puts {least}{steps} of {ranks} outside of the run, where no lane shows them: \
             hvtui runs check says more"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{START, spec, timing};
    use crate::domain::clock_fit::ClockSample;
    use crate::domain::timing::StepTiming;
    use crate::record::{Player, Writer, check};

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
        let far = of(&Reader::open(&path).unwrap());
        // a check finds the same as it goes through the file
        assert_eq!(check::check(&path, false).far_steps, far);
        assert!(!far.is_part);
        assert_eq!(told_by_a_replay(&path), far.line());
        far.ranks
    }

    /// What a replay says of them, once it has come to rest.
    fn told_by_a_replay(path: &Path) -> Option<String> {
        let mut player = Player::open(path).unwrap();
        assert!(!player.looks_for_far_steps(), "the screen comes first");
        player.advance(Stamp(0));
        while player.looks_ahead() {
            assert!(!player.looks_for_far_steps(), "what it shows comes first");
            player.look_ahead();
        }
        player.toggle();
        assert!(!player.looks_for_far_steps(), "it plays");
        player.toggle();
        let mut lines = Vec::new();
        while player.looks_for_far_steps() {
            lines.extend(player.look_for_far_steps());
        }
        // once, wherever it goes
        player.seek(player.state().end);
        player.advance(Stamp(0));
        while player.looks_ahead() {
            player.look_ahead();
        }
        assert!(!player.looks_for_far_steps() && lines.len() <= 1, "{lines:?}");
        lines.pop()
    }

    /// Of a run of one rank, before whose steps its host was pinged.
    fn gather(spec: &RunSpec) -> Gather {
        let mut gather = Gather::default();
        gather.of_run(spec);
        let sample = ClockSample { host_time: HostTime(HOST), offset_us: START.0 - HOST as i64, rtt_us: 80 };
        let origin = Origin::Host(spec.placements[0].host.clone());
        gather.take(&Envelope { seq: 1, at: START, origin, event: Event::ClockSampled { sample } });
        gather
    }

    /// One that began and was told so long after the run began, microseconds.
    fn step(start_us: i64, at_us: i64) -> Step {
        let start = HostTime(HOST.saturating_add_signed(start_us));
        Step { rank: Rank(0), dur_us: 100_000, start, at: START.plus_micros(at_us) }
    }

    #[test]
    fn steps_that_lie_where_they_were_told_are_not_kept() {
        let spec = spec(1);
        let mut gather = gather(&spec);
        for (start_us, at_us, kept) in [
            (0, 100_000, 0),
            (10_000_000, 29_000_000, 0),
            // told late, as by a client that attaches to the run again
            (10_000_000, 90_000_000, 1),
            (40_000_000, 10_000_000, 2),
            (-30_000_000, 10_000_000, 3),
        ] {
            gather.keep(step(start_us, at_us));
            assert_eq!(gather.steps.len(), kept, "{start_us} {at_us}");
        }
        // one that began on another machine, of which nothing is known
        gather.keep(Step { rank: Rank(7), ..step(0, 100_000) });
        assert_eq!(gather.steps.len(), 4);
        // one that is told without its time
        let timing = StepTiming { start: HostTime(0), ..timing(1, [10, 20, 30, 40, 0, 7]) };
        let origin = Origin::Rank(spec.id.clone(), Rank(0));
        let event = Event::StepDone { timing: Arc::new(timing) };
        gather.take(&Envelope { seq: 2, at: START, origin, event });
        assert_eq!(gather.steps.len(), 4);
        // the client's clock is set back by two minutes, and with it what the pings say
        let sample = ClockSample { host_time: HostTime(HOST), offset_us: START.0 - HOST as i64, rtt_us: 80 };
        let sample = ClockSample { offset_us: sample.offset_us - 120_000_000, ..sample };
        let origin = Origin::Host(spec.placements[0].host.clone());
        let at = START.plus_micros(-119_000_000);
        gather.take(&Envelope { seq: 9, at, origin, event: Event::ClockSampled { sample } });
        gather.keep(step(1_000_000, -118_900_000));
        assert_eq!(gather.steps.len(), 5, "before the run began");
    }

    #[test]
    fn of_too_many_that_may_be_far_a_part_is_judged_and_that_is_said() {
        let spec = spec(1);
        let mut gather = gather(&spec);
        gather.steps = vec![step(0, 100_000); MOST_KEPT - 1];
        gather.keep(step(-1_000_000_000, 100_000));
        assert!(!gather.is_part);
        gather.keep(step(-1_000_000_000, 200_000));
        let found = gather.judge(&spec, START);
        assert!(found.is_part && matches!(found.ranks[..], [FarSteps { steps: 1, .. }]), "{found:?}");
    }

    #[test]
    fn of_a_large_recording_a_bounded_part_is_looked_at() {
        assert_eq!((chunks_of(0, 0), chunks_of(70, 0), chunks_of(70, ALL_OF)), (0, 70, 70));
        assert_eq!((chunks_of(800, ALL_OF + 1), chunks_of(4_000, 50 * ALL_OF)), (199, 20));
        assert_eq!((chunks_of(3, 100 * ALL_OF), chunks_of(3, u64::MAX)), (1, 1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        let spec = spec(1);
        let created = Event::RunCreated { spec: Arc::new(spec.clone()) };
        let mut seq = 0;
        let mut push = |writer: &mut Writer<File>, at_us: i64, origin: Origin, event: Event| {
            seq += 1;
            writer.push(Envelope { seq, at: START.plus_micros(at_us), origin, event }).unwrap();
        };
        push(&mut writer, 0, Origin::Run(spec.id.clone()), created);
        for second in 1..=12 {
            let host_time = HostTime(HOST + second * S);
            let sample = ClockSample { host_time, offset_us: START.0 - HOST as i64, rtt_us: 80 };
            let origin = Origin::Host(spec.placements[0].host.clone());
            push(&mut writer, second as i64 * 1_000_000, origin, Event::ClockSampled { sample });
            let timing = StepTiming { start: HostTime(1), ..timing(second, [10, 20, 30, 40, 0, 7]) };
            let done = Event::StepDone { timing: Arc::new(timing) };
            push(&mut writer, second as i64 * 1_000_000, Origin::Rank(spec.id.clone(), Rank(0)), done);
            writer.flush().unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        let chunks = reader.chunk_count();
        let steps_of = |wanted: usize| {
            let mut search = Search { wanted, ..Search::new(&reader).unwrap() };
            search.gather.is_part = wanted < chunks;
            let mut reads = 1;
            while search.read(&reader) {
                reads += 1;
            }
            assert_eq!(reads, wanted);
            let found = search.found(&reader);
            (found.ranks[0].steps, found.is_part)
        };
        assert_eq!(steps_of(chunks), (12, false));
        // the first chunk tells the run alone
        assert_eq!((chunks, steps_of(4)), (13, (3, true)));
        // six chunks more were recorded since it was opened
        let mut search = Search { chunks: 7, wanted: 7, ..Search::new(&reader).unwrap() };
        while search.read(&reader) {}
        let found = search.found(&reader);
        assert_eq!((found.ranks[0].steps, found.is_part), (6, true));
    }

    #[test]
    fn steps_of_a_clock_that_was_wrong_are_told_with_their_rank_and_a_remedy() {
        assert_eq!((far(0), far(-50_000_000), far(50_000_000)), (vec![], vec![], vec![]));
        let told = |ranks: &[FarSteps], is_part| Found { ranks: ranks.to_vec(), is_part };
        // to the microsecond, within what a line through pings rounds
        let is_near = |far: &[FarSteps], wanted: FarSteps| {
            let near = |one: u64, other: u64| one.abs_diff(other) < 10;
            matches!(far, [of] if (of.rank, of.steps) == (wanted.rank, wanted.steps)
                && near(of.before_us, wanted.before_us) && near(of.after_us, wanted.after_us))
        };
        let of = FarSteps { rank: Rank(1), steps: 5, before_us: 998_893_000, after_us: 0 };
        let early = far(-1_000_000_000);
        assert!(is_near(&early, of), "{early:?}");
        assert_eq!(
            told(&[of], false).words(false).unwrap(),
            "far outside of the run, where no lane shows them: 5 steps of rank 1, up to 16:38 before its beginning; \
             they were told by another clock than CLOCK_MONOTONIC of their host (in Python time.monotonic_ns() // 1000), or the clock of \
             the machine that recorded them was set"
        );
        assert!(told(&[of], false).words(true).unwrap().ends_with("recorded with a correct one"));
        assert_eq!((told(&[], false).words(false), told(&[], true).line()), (None, None));
        let part = told(&[of], true).words(false).unwrap();
        assert!(part.contains(" shows them: at least 5 steps of rank 1, up to 16:38 "), "{part}");
        assert_eq!(
            told(&[of], false).line().unwrap(),
            "a wrong clock puts 5 steps of rank 1 outside of the run, where no lane shows them: hvtui runs check says more"
        );
        assert_eq!(
            told(&[of, of], true).line().unwrap(),
            "a wrong clock puts at least 10 steps of 2 ranks outside of the run, where no lane shows them: hvtui runs check says more"
        );
        let late = far(500_000_000);
        assert!(is_near(&late, FarSteps { before_us: 0, after_us: 499_800_000, ..of }), "{late:?}");
        let many: Vec<FarSteps> = (0..6).map(|rank| FarSteps { rank: Rank(rank), ..of }).collect();
        let text = told(&many, false).words(false).unwrap();
        assert!(text.contains("of rank 3, ") && text.contains("; and steps of 2 more ranks; "), "{text}");
    }
}
