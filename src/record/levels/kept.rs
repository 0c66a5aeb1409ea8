//! Reads where the time went in a part of a recording: by the steps in it or, where these are many, by the blocks that are kept beside it
//! as far as there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::grid::BUCKETS_US;
use crate::domain::phase_buckets::PhaseBuckets;
use crate::domain::phase_window::{PhasePart, PhaseWindow};
use crate::record::block;
use crate::record::cache::{About, Cache, Record};
use crate::record::format::Channel;
use crate::record::reader::Reader;

/// So many envelopes are read for a part at most: more would be more than some seconds' work.
const MOST: u64 = 4_000_000;
/// Where there are no more than so many envelopes their steps are read, whatever is kept: that takes a fifth of a second.
const FEW: u64 = 100_000;
/// So many blocks are read for a part at most.
const MOST_BLOCKS: usize = 512;
/// The largest block unpacked.
const LONGEST: u64 = 16 << 20;

/// The blocks that are kept beside a recording.
#[derive(Debug, Default)]
pub(in crate::record) struct Kept {
    cache: Option<Cache>,
    /// By first chunk and level.
    blocks: BTreeMap<(usize, usize), Known>,
    /// What was found not to be as it was written.
    lost: Vec<Record>,
}

#[derive(Debug)]
struct Known {
    /// The chunk behind its last one.
    behind: usize,
    record: Record,
}

/// How a part is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::record) struct Plan {
    /// The part; of blocks it is one of their buckets.
    pub(in crate::record) part: PhasePart,
    /// The longest buckets that are taken; `None` where the steps are read.
    level: Option<usize>,
    /// The chunk at which it begins.
    first: usize,
}

/// A part that is being read.
#[derive(Debug)]
pub(in crate::record) struct Reading {
    window: PhaseWindow,
    level: Option<usize>,
    /// The chunk that is read next, or the first of the next block.
    next: usize,
}

/// How far that has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::record) enum Progress {
    GoesOn,
    Done,
    /// A block is not as it was written. It counts as missing: there may be another plan.
    Lost,
}

impl Kept {
    /// Looks what is kept by now.
    pub(in crate::record) fn look(&mut self, reader: &Reader) {
        self.cache = Cache::of(reader.path());
        self.blocks.clear();
        for record in self.cache.iter().flat_map(Cache::records) {
            let About::Phases { level, first, place } = &record.about else { continue };
            let is_good = *level < BUCKETS_US.len() && *first < place.chunk && place.is_of(reader);
            if is_good && !self.lost.contains(record) {
                let known = Known { behind: place.chunk, record: record.clone() };
                self.blocks.insert((*first, *level), known);
            }
        }
    }

    /// How a part is read; `None` where that would take seconds. Of blocks a part has points that are up to twice as long as those that
    /// were asked for, and longer ones where no steps could be read instead.
    pub(in crate::record) fn plan(&self, reader: &Reader, part: PhasePart) -> Option<Plan> {
        let first = reader.chunk_at(part.from);
        let behind = reader.chunk_at(part.until) + 1;
        let envelopes = between(reader, first, behind);
        let by_steps = (envelopes <= MOST).then_some(Plan { part, level: None, first });
        if envelopes <= FEW {
            return by_steps;
        }
        let level = BUCKETS_US.iter().rposition(|us| *us <= part.width_us);
        let level = level.or(by_steps.is_none().then_some(0));
        level.and_then(|level| self.plan_by(reader, part, level, envelopes)).or(by_steps)
    }

    /// How a part in which so many envelopes lie is read by blocks of at most this level; `None` where less than half of it is kept.
    fn plan_by(&self, reader: &Reader, part: PhasePart, level: usize, envelopes: u64) -> Option<Plan> {
        let part = part.of_buckets(BUCKETS_US[level]);
        let behind = reader.chunk_at(part.until) + 1;
        let at = reader.chunk_at(part.from);
        let first = self.holding(at, level).unwrap_or(at);
        let (mut next, mut blocks, mut left) = (first, 0, 0);
        while next < behind {
            if let Some((_, block)) = self.at(next, level) {
                next = block.behind;
                blocks += 1;
            } else {
                let to = self.behind(next, level).map_or(behind, |to| to.min(behind));
                left += between(reader, next, to);
                next = to;
            }
        }
        let is_worth_it = blocks <= MOST_BLOCKS && left <= MOST && left <= envelopes / 2;
        is_worth_it.then_some(Plan { part, level: Some(level), first })
    }

    /// The longest block of at most this level that begins with a chunk, and its level.
    fn at(&self, chunk: usize, level: usize) -> Option<(usize, &Known)> {
        let (key, block) = self.blocks.range((chunk, 0)..=(chunk, level)).next_back()?;
        Some((key.1, block))
    }

    /// The first chunk behind this one with which a block of at most this level begins.
    fn behind(&self, chunk: usize, level: usize) -> Option<usize> {
        let mut behind = self.blocks.range((chunk + 1, 0)..).map(|(key, _)| *key);
        behind.find(|(_, of)| *of <= level).map(|(first, _)| first)
    }

    /// The first chunk of the longest block of at most this level in which a chunk lies.
    fn holding(&self, chunk: usize, level: usize) -> Option<usize> {
        let before = self.blocks.range(..=(chunk, level));
        let holding = before.filter(|((_, of), block)| *of <= level && block.behind > chunk);
        holding.map(|(key, _)| *key).max_by_key(|(_, of)| *of).map(|(first, _)| first)
    }

    /// What a block tells that begins with a chunk; where it is not as it was written it is forgotten.
    fn load(&mut self, chunk: usize, level: usize) -> Option<PhaseBuckets> {
        let record = self.blocks.get(&(chunk, level))?.record.clone();
        let data = self.cache.as_mut().and_then(|cache| cache.data_alone(&record));
        let buckets = data.and_then(|data| unpack(&data, BUCKETS_US[level]));
        if buckets.is_none() {
            tracing::debug!(chunk, level, "a block of phases is not as it was written");
            self.blocks.remove(&(chunk, level));
            self.lost.push(record);
            // where the file is gone or begun anew, so are the others: each would be found out by reading the part again
            let there: BTreeSet<(usize, usize)> =
                self.cache.iter().flat_map(Cache::records).filter_map(block_of).collect();
            self.blocks.retain(|block, _| there.contains(block));
        }
        buckets
    }
}

/// The first chunk and the level of a block.
fn block_of(record: &Record) -> Option<(usize, usize)> {
    let About::Phases { level, first, .. } = record.about else { return None };
    Some((first, level))
}

fn unpack(data: &[u8], bucket_us: i64) -> Option<PhaseBuckets> {
    let mut unpacked = Vec::new();
    zstd::Decoder::new(data).ok()?.take(LONGEST).read_to_end(&mut unpacked).ok()?;
    block::buckets::decode(&unpacked, bucket_us).ok()
}

/// How many envelopes lie in the chunks from one to before another one.
fn between(reader: &Reader, first: usize, behind: usize) -> u64 {
    reader.envelopes_before(behind).saturating_sub(reader.envelopes_before(first))
}

impl Reading {
    /// Of which nothing is read yet.
    pub(in crate::record) fn new(plan: Plan) -> Self {
        Self { window: PhaseWindow::new(plan.part), level: plan.level, next: plan.first }
    }

    /// The part that is read.
    pub(in crate::record) fn part(&self) -> PhasePart {
        self.window.part()
    }

    /// Reads a block more, or the steps of a chunk; what can't be read of a chunk is passed over.
    pub(in crate::record) fn read(&mut self, reader: &Reader, kept: &mut Kept) -> Progress {
        let start = reader.chunk_span(self.next).map(|(start, _)| start);
        if start.is_none_or(|start| start > self.part().until) {
            return Progress::Done;
        }
        let block = self.level.and_then(|level| kept.at(self.next, level));
        if let Some((level, behind)) = block.map(|(level, block)| (level, block.behind)) {
            let Some(buckets) = kept.load(self.next, level) else { return Progress::Lost };
            self.window.merge(&buckets);
            self.next = behind;
            return Progress::GoesOn;
        }
        // steps, and that others are left out
        let wants = |channel| matches!(channel, Channel::Phase | Channel::Event);
        let steps = reader.load_untimed(self.next, wants).unwrap_or_default();
        for envelope in &steps {
            self.window.take(envelope);
        }
        self.next += 1;
        Progress::GoesOn
    }

    /// What was read.
    pub(in crate::record) fn into_window(self) -> PhaseWindow {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::domain::analysis::fixtures::{spec, timing};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::Stamp;
    use crate::record::Writer;
    use crate::record::levels::Maker;
    use crate::record::saved::Place;

    const S: i64 = 1_000_000;
    const START: i64 = 1_000_003 * S + 17;

    /// A folder as that of a recording.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        fs::create_dir(path.parent().unwrap()).unwrap();
        (folder, path)
    }

    /// Steps of ranks that were told so many microseconds after the start, in this order.
    fn steps(told: &[(i64, u32, u32)]) -> Vec<Envelope> {
        let id = spec(3).id;
        let created = Event::RunCreated { spec: Arc::new(spec(3)) };
        let first = Envelope { seq: 1, at: Stamp(START), origin: Origin::Run(id.clone()), event: created };
        let step = |(seq, (at, rank, millis)): (u64, &(i64, u32, u32))| {
            let timing = timing(seq, [*millis, 20, 30, 5 * rank, 10, 7]);
            let event = Event::StepDone { timing: Arc::new(timing) };
            Envelope { seq, at: Stamp(START + at), origin: Origin::Rank(id.clone(), Rank(*rank)), event }
        };
        std::iter::once(first).chain((2..).zip(told).map(step)).collect()
    }

    fn write(path: &Path, envelopes: &[Envelope]) -> Reader {
        let mut writer = Writer::new(File::create(path).unwrap()).unwrap();
        for envelope in envelopes {
            writer.push(envelope).unwrap();
        }
        writer.finish().unwrap();
        Reader::open(path).unwrap()
    }

    /// Keeps all blocks of a recording from a chunk on; gives their levels and what is kept of each.
    fn keep(reader: &Reader, from: usize) -> Vec<(usize, Vec<u8>)> {
        let mut cache = Cache::of(reader.path()).unwrap();
        let (mut maker, mut all) = (Maker::default(), Vec::new());
        for chunk in from..reader.chunk_count() {
            let envelopes = reader.load(chunk).unwrap();
            let whole = maker.take(reader, chunk, &envelopes);
            assert!(maker.take(reader, chunk, &envelopes).is_empty(), "it has it already");
            for block in whole {
                let place = Place::before(reader, block.behind).unwrap();
                let data = block.pack().unwrap();
                cache.add(About::Phases { level: block.level, first: block.first, place }, &data);
                all.push((block.level, data));
            }
        }
        all
    }

    fn looked_at(reader: &Reader) -> Kept {
        let mut kept = Kept::default();
        kept.look(reader);
        kept
    }

    /// All of a recording up to the end of a bucket of each level.
    fn whole(envelopes: &[Envelope]) -> PhasePart {
        let end = envelopes.iter().map(|envelope| envelope.at.0).max().unwrap();
        let until = Stamp((end / (64 * S) + 1) * 64 * S - 1);
        PhasePart { from: Stamp(START), until, width_us: S }
    }

    /// What is read of a part by blocks of at most a level, and how many reads that took.
    fn read(reader: &Reader, kept: &mut Kept, part: PhasePart, level: usize) -> (PhaseWindow, usize) {
        let mut reads = 0;
        'plans: loop {
            let plan = kept.plan_by(reader, part, level, u64::MAX).unwrap();
            let mut reading = Reading::new(plan);
            loop {
                match reading.read(reader, kept) {
                    Progress::GoesOn => reads += 1,
                    Progress::Lost => continue 'plans,
                    Progress::Done => return (reading.into_window(), reads),
                }
            }
        }
    }

    /// What the steps of all of it tell.
    fn by_steps(envelopes: &[Envelope], part: PhasePart, level: usize) -> PhaseWindow {
        let mut window = PhaseWindow::new(part.of_buckets(BUCKETS_US[level]));
        for envelope in envelopes {
            window.take(envelope);
        }
        window
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn blocks_and_what_lies_between_tell_what_all_steps_do(
            // a pause, by how much it was told too late or too early, who, and how long its data took
            told in prop::collection::vec((0..45 * S, -5 * S..300 * S, 0..3_u32, 0..9_000_u32), 2..90),
            from in 0..40_usize,
        ) {
            let mut at = 0;
            let told: Vec<_> = told.iter().map(|(pause, late, rank, millis)| {
                at += pause;
                // some come late, as what a host tells that was cut off, and some from a clock that was set back
                let late = if late % 7 == 0 || *late < 0 { *late } else { 0 };
                (at - late, *rank, *millis)
            }).collect();
            let envelopes = steps(&told);
            let (_folder, path) = folder();
            let reader = write(&path, &envelopes);
            keep(&reader, from);
            let mut kept = looked_at(&reader);
            let part = whole(&envelopes);
            for level in 0..BUCKETS_US.len() {
                let (window, _) = read(&reader, &mut kept, part, level);
                prop_assert_eq!(window, by_steps(&envelopes, part, level), "level {}", level);
            }
        }
    }

    /// Three ranks with a step each 5 s, for 70 minutes.
    fn long_run() -> Vec<Envelope> {
        let told: Vec<_> = (0..2_520_u32).map(|step| (i64::from(step / 3) * 5 * S, step % 3, 100)).collect();
        steps(&told)
    }

    #[test]
    fn the_longest_blocks_that_fit_are_read_and_shorter_ones_where_they_end() {
        let (_folder, path) = folder();
        let envelopes = long_run();
        let reader = write(&path, &envelopes);
        let levels: Vec<usize> = keep(&reader, 0).into_iter().map(|(level, _)| level).collect();
        let count = |level| levels.iter().filter(|one| **one == level).count();
        assert_eq!([0, 1, 2, 3].map(count), [69, 17, 4, 1]);
        let mut kept = looked_at(&reader);
        let part = whole(&envelopes);
        let chunks = reader.chunk_count();
        for (level, most) in [(0, 69 + 15), (1, 17 + 1 + 15), (2, 4 + 1 + 1 + 15), (3, 1 + 1 + 1 + 15)] {
            let (window, reads) = read(&reader, &mut kept, part, level);
            assert_eq!(window, by_steps(&envelopes, part, level));
            assert!(reads <= most && reads < chunks, "{reads} at level {level}");
        }
        // a part in the middle begins and ends where no block does
        let part = PhasePart { from: Stamp(START + 1_000 * S), until: Stamp(1_001_600 * S - 1), ..part };
        let (middle, reads) = read(&reader, &mut kept, part, 1);
        assert_eq!(middle, by_steps(&envelopes, part, 1));
        assert!(reads <= 4, "{reads}");
        // where few events lie its steps are read, and of what nothing is kept no block
        assert_eq!(kept.plan(&reader, part).map(|plan| (plan.part, plan.level)), Some((part, None)));
        assert_eq!(Kept::default().plan_by(&reader, part, 1, 700), None);
    }

    #[test]
    fn a_damaged_block_is_lost_alone_and_nothing_is_believed_of_another_recording() {
        let (_folder, path) = folder();
        let envelopes = long_run();
        let reader = write(&path, &envelopes);
        let blocks = keep(&reader, 0);
        let states = path.with_file_name("run.mcap.states");
        let mut bytes = fs::read(&states).unwrap();
        let (_, longest) = blocks.iter().rfind(|(level, _)| *level == 3).unwrap();
        let at = bytes.windows(longest.len()).position(|part| part == longest.as_slice()).unwrap();
        bytes[at + longest.len() / 2] ^= 1;
        fs::write(&states, &bytes).unwrap();
        let (mut kept, part) = (looked_at(&reader), whole(&envelopes));
        let known = kept.blocks.len();
        for _ in 0..2 {
            assert_eq!(read(&reader, &mut kept, part, 3).0, by_steps(&envelopes, part, 3));
            assert_eq!((kept.blocks.len(), kept.lost.len()), (known - 1, 1));
            kept.look(&reader);
        }
        // where the file is gone none of them is tried
        fs::rename(&states, path.with_file_name("away")).unwrap();
        assert!(kept.load(0, 0).is_none() && kept.blocks.is_empty());
        fs::rename(path.with_file_name("away"), &states).unwrap();
        assert!(fs::read(&states).unwrap() == bytes, "the others stay");
        assert_eq!(Cache::of(&path).unwrap().records().len(), blocks.len());
        // another recording takes its place
        let reader = write(&path, &envelopes[..envelopes.len() / 2]);
        let mut later = envelopes[envelopes.len() / 2..].to_vec();
        later.insert(0, envelopes[0].clone());
        assert!(!looked_at(&reader).blocks.is_empty(), "what was recorded before is the same");
        let reader = write(&path, &later);
        assert!(looked_at(&reader).blocks.is_empty());
    }
}
