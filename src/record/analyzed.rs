//! The analysis of a whole recording, kept beside it: the next report or comparison of it need not decode it again.
//!
//! It is believed only while each file of the recording is what it was, byte for byte, by its length and its CRC-32, as where the
//! chunks lie is; and by the program that wrote it alone. Nothing is kept of a recording that is short, damaged, not closed, or
//! being written.

use super::cache::{About, Cache};
use super::index::FileSum;
use super::integrity::Integrity;
use super::reader::Reader;
use super::saved::{INDEXED, LAST, pack, unpack};
use super::segments::Lock;
use crate::domain::analysis::Analyzer;
use crate::domain::incidents::Incident;

/// A recording whose analysis can be kept.
#[derive(Debug)]
pub(super) struct Analyzed<'a> {
    reader: &'a Reader,
    sums: Vec<FileSum>,
}

impl<'a> Analyzed<'a> {
    /// Of a recording that is long and finished, of which nothing is lost, and that lies where hvtui puts recordings.
    pub(super) fn of(reader: &'a Reader) -> Option<Self> {
        let is_long = reader.envelopes_before(reader.chunk_count()) >= LAST;
        let is_finished = *reader.integrity() == Integrity::Complete && !Lock::is_held(reader.path());
        if !is_long || !is_finished || !Cache::is_for(reader.path()) {
            return None;
        }
        Some(Self { reader, sums: reader.sums()? })
    }

    /// What is kept.
    pub(super) fn read(&self) -> Option<(Analyzer, Vec<Incident>)> {
        let mut cache = Cache::of(self.reader.path())?;
        let is_it = |about: &About| matches!(about, About::Report(sums) if *sums == self.sums);
        let record = cache.records().iter().rfind(|record| is_it(&record.about))?.clone();
        cache.data(&record).and_then(|data| unpack(&data).ok())
    }

    /// Keeps an analysis and the incidents of all of it, and where its chunks lie, so that the next to open it need not look.
    pub(super) fn keep(self, analyzer: &Analyzer, incidents: &[Incident]) {
        // others may have written there while this was made
        let Some(mut cache) = Cache::of(self.reader.path()).filter(Cache::is_writable) else { return };
        let Ok(data) = pack(&(analyzer, incidents)) else { return };
        if cache.is_full_for(data.len()) {
            return;
        }
        if self.reader.bytes() >= INDEXED {
            self.reader.keep_index(&mut cache, || Some(self.sums.clone()));
        }
        cache.add(About::Report(self.sums), &data);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::RunAnalysis;
    use crate::domain::analysis::fixtures::{START, spec, timing};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::Stamp;
    use crate::record::export::Selection;
    use crate::record::{Player, Writer, figures};

    /// So many of two ranks are long enough.
    const STEPS: u64 = LAST / 2 + 100;

    fn write(path: &Path, steps: u64) {
        let spec = spec(2);
        let mut writer = Writer::new(File::create(path).unwrap()).unwrap();
        let mut seq = 0;
        let mut push = |at, origin, event| {
            seq += 1;
            writer.push(Envelope { seq, at, origin, event }).unwrap();
        };
        push(START, Origin::Run(spec.id.clone()), Event::RunCreated { spec: Arc::new(spec.clone()) });
        for step in 1..=steps {
            for rank in 0..2 {
                let timing = timing(step, [10 + 3 * rank, 20, 30, 3 - 3 * rank, 10, 10]);
                let event = Event::StepDone { timing: Arc::new(timing) };
                push(
                    START.plus_micros(step as i64 * 1_000),
                    Origin::Rank(spec.id.clone(), Rank(rank)),
                    event,
                );
            }
            if step == 15 {
                let lost = Event::Gap { what: "step".to_owned(), dropped: 3 };
                push(START.plus_micros(15_000), Origin::Rank(spec.id.clone(), Rank(0)), lost);
            }
        }
        writer.finish().unwrap();
    }

    /// A long recording where hvtui puts them, and where its analysis is kept.
    fn long_one() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        fs::create_dir(path.parent().unwrap()).unwrap();
        write(&path, STEPS);
        let states = path.with_file_name("run.mcap.states");
        (folder, path, states)
    }

    fn told(path: &Path) -> RunAnalysis {
        let reader = figures::open(path).unwrap();
        figures::whole(&reader, &mut |_| true).unwrap().unwrap()
    }

    /// What is told where nothing may be decoded.
    fn kept(path: &Path, selection: &Selection) -> Option<RunAnalysis> {
        let reader = figures::open(path).unwrap();
        figures::part(&reader, selection, &mut |_| false).unwrap()
    }

    #[test]
    fn a_finished_recording_is_decoded_once_for_its_figures() {
        let (_folder, path, _) = long_one();
        assert_eq!(kept(&path, &Selection::default()), None);
        let part = Selection { steps: Some("10-20".parse().unwrap()), ..Selection::default() };
        let of_part = || {
            let reader = figures::open(&path).unwrap();
            figures::part(&reader, &part, &mut |_| true).unwrap().unwrap()
        };
        let before = of_part();
        assert!(!before.incidents.is_empty());
        let first = told(&path);
        assert_eq!((first.steps.last, first.ranks[1].last_in), (Some(STEPS), Some(STEPS - 1)));
        assert_eq!(kept(&path, &Selection::default()), Some(first));
        assert_eq!(kept(&path, &part), None, "those of a part are others");
        assert_eq!(of_part(), before, "its incidents are among those that are kept");
    }

    #[test]
    fn what_is_kept_is_of_these_very_bytes() {
        let (_folder, path, _) = long_one();
        let first = told(&path);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 2_000].fill(0);
        fs::write(&path, damaged).unwrap();
        assert_eq!(kept(&path, &Selection::default()), None);
        assert!(told(&path).gaps.damage.is_some());
        assert_eq!(kept(&path, &Selection::default()), None, "of what is damaged nothing is kept");
        fs::write(&path, whole).unwrap();
        assert_eq!(kept(&path, &Selection::default()), Some(first));
        // another recording takes its place
        write(&path, STEPS - 50);
        assert_eq!(kept(&path, &Selection::default()), None);
        assert_eq!(told(&path).steps.last, Some(STEPS - 50));
        assert_eq!(kept(&path, &Selection::default()).and_then(|run| run.steps.last), Some(STEPS - 50));
    }

    #[test]
    fn of_what_is_short_not_closed_being_written_or_elsewhere_nothing_is_kept() {
        let (_folder, path, states) = long_one();
        let lock = Lock::take(&path).unwrap();
        told(&path);
        assert!(!states.exists(), "it is being written");
        drop(lock);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 64]).unwrap();
        assert_eq!(told(&path).steps.last, Some(STEPS));
        assert!(!states.exists(), "it has no end");
        write(&path, 100);
        told(&path);
        assert!(!states.exists(), "it is short");
        let elsewhere = tempfile::tempdir().unwrap();
        let path = elsewhere.path().join("run.mcap");
        write(&path, STEPS);
        told(&path);
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replay_that_was_open_before_leaves_what_a_report_keeps() {
        let (_folder, path, states) = long_one();
        let mut player = Player::open(&path).unwrap();
        player.advance(Stamp(0));
        let first = told(&path);
        let length = fs::metadata(&states).unwrap().len();
        player.seek(player.state().end);
        while player.advance(Stamp(0)).reading.is_some() {}
        assert!(fs::metadata(&states).unwrap().len() > length, "the replay keeps a state");
        assert_eq!(kept(&path, &Selection::default()), Some(first));
    }

    #[test]
    fn where_nothing_can_be_written_the_figures_are_told_all_the_same() {
        let (_folder, path, states) = long_one();
        // a folder in its place: no user may write that, not even root
        fs::create_dir(&states).unwrap();
        assert_eq!(told(&path).steps.last, Some(STEPS));
        assert_eq!(kept(&path, &Selection::default()), None);
    }
}
