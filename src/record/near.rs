//! Reads where the time of a run went in a part of its recording, which may still be written: for who shows the run as it goes on,
//! beside what it holds of it.

use std::path::Path;

use super::error::Error;
use super::levels::{Kept, Progress, Reading};
use super::reader::Reader;
use crate::domain::phase_window::{PhasePart, PhaseWindow};

/// One recording, open.
#[derive(Debug)]
pub struct NearReader {
    reader: Reader,
    /// What is kept beside it.
    kept: Kept,
}

impl NearReader {
    /// Opens a recording.
    ///
    /// # Errors
    /// It can't be read, or is none.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { reader: Reader::open(path)?, kept: Kept::default() })
    }

    /// The first file of the recording.
    pub fn path(&self) -> &Path {
        self.reader.path()
    }

    /// Where the time went in a part, as far as it is on the disk by now: what is told may have less than was asked for, and longer
    /// points. `None` where nothing of it is, where it would take seconds, and as soon as it is not wanted any more, which is asked
    /// before each chunk or block that is read.
    ///
    /// # Errors
    /// What was written since can't be read.
    pub fn read(
        &mut self,
        part: PhasePart,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Option<PhaseWindow>, Error> {
        self.reader.read_on()?;
        let Some((start, end)) = self.reader.range() else { return Ok(None) };
        let part = PhasePart { from: part.from.max(start), until: part.until.min(end), ..part };
        if part.until <= part.from {
            return Ok(None);
        }
        self.kept.look(&self.reader);
        let mut reading = None;
        while is_wanted() {
            let Some(mut begun) =
                reading.take().or_else(|| self.kept.plan(&self.reader, part).map(Reading::new))
            else {
                return Ok(None);
            };
            match begun.read(&self.reader, &mut self.kept) {
                Progress::GoesOn => reading = Some(begun),
                Progress::Lost => {}
                Progress::Done => return Ok(Some(begun.into_window())),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::{spec, timing};
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::Stamp;
    use crate::record::{Player, Writer};

    const S: i64 = 1_000_000;

    fn write(writer: &mut Writer<std::fs::File>, seconds: std::ops::Range<i64>) {
        let id = spec(1).id;
        for second in seconds {
            let event = if second == 0 {
                (Origin::Run(id.clone()), Event::RunCreated { spec: Arc::new(spec(1)) })
            } else {
                let timing = timing(second.unsigned_abs(), [100; 6]);
                (Origin::Rank(id.clone(), Rank(0)), Event::StepDone { timing: Arc::new(timing) })
            };
            let (origin, event) = event;
            let (at, seq) = (Stamp(second * S), second.unsigned_abs());
            writer.push(&Envelope { seq, at, origin, event }).unwrap();
        }
        writer.flush().unwrap();
    }

    fn steps(window: &PhaseWindow) -> usize {
        let part = window.part();
        let times = (part.from.0..=part.until.0).step_by(100_000).map(|at| (Stamp(at), Stamp(at + 100_000)));
        window.phases_in_each(Rank(0).into(), times).flatten().count()
    }

    #[test]
    fn what_is_on_the_disk_of_a_part_is_told_and_what_comes_later_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        write(&mut writer, 0..11);
        let mut reader = NearReader::open(&path).unwrap();
        assert_eq!(reader.path(), path);
        let part = PhasePart { from: Stamp(5 * S), until: Stamp(20 * S), width_us: 100_000 };
        let told = reader.read(part, || true).unwrap().unwrap();
        assert_eq!(told.part(), PhasePart { until: Stamp(10 * S), ..part });
        assert!(told.has(Rank(0).into()) && steps(&told) >= 6);
        write(&mut writer, 11..31);
        let later = reader.read(part, || true).unwrap().unwrap();
        assert_eq!(later.part(), part);
        assert!(steps(&later) >= steps(&told) + 10);
        let behind = PhasePart { from: Stamp(40 * S), until: Stamp(50 * S), ..part };
        assert_eq!(reader.read(behind, || true).unwrap(), None, "nothing of it is recorded");
    }

    #[test]
    fn steps_that_were_left_out_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        write(&mut writer, 0..11);
        let event = Event::Gap { what: "step".to_owned(), dropped: 9 };
        let origin = Origin::Rank(spec(1).id, Rank(0));
        writer.push(&Envelope { seq: 11, at: Stamp(11 * S), origin, event }).unwrap();
        write(&mut writer, 20..31);
        let part = PhasePart { from: Stamp(5 * S), until: Stamp(25 * S), width_us: 100_000 };
        let told = NearReader::open(&path).unwrap().read(part, || true).unwrap().unwrap();
        let is_left_out =
            |second: i64| told.is_left_out(Rank(0).into(), Stamp(second * S), Stamp((second + 1) * S));
        assert_eq!([10, 11, 19, 20].map(is_left_out), [false, true, true, false]);
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_read_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        for second in 0..5 {
            write(&mut writer, second * 10..(second + 1) * 10);
        }
        let mut reader = NearReader::open(&path).unwrap();
        let part = PhasePart { from: Stamp(S), until: Stamp(50 * S), width_us: 100_000 };
        let asked = Cell::new(0);
        let is_wanted = || asked.replace(asked.get() + 1) < 2;
        assert_eq!(reader.read(part, is_wanted).unwrap(), None);
        assert_eq!(asked.get(), 3);
        assert!(NearReader::open(&folder.path().join("none.mcap")).is_err());
    }

    #[test]
    fn where_much_lies_what_is_kept_of_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        write(&mut writer, 0..2);
        // 256 steps a second, for seven and a half minutes
        for step in 0..450 * 256 {
            let event =
                Event::StepDone { timing: Arc::new(timing(step + 2, [1, 1, 1, 1, 1, step as u32 % 9])) };
            let at = Stamp(2 * S + step as i64 * S / 256);
            let origin = Origin::Rank(spec(1).id, Rank(0));
            writer.push(Envelope { seq: step + 2, at, origin, event }).unwrap();
        }
        writer.finish().unwrap();
        let mut player = Player::open(&path).unwrap();
        player.seek(player.state().end);
        while player.advance(Stamp(0)).reading.is_some() {}
        let elsewhere = folder.path().join("run.mcap");
        std::fs::copy(&path, &elsewhere).unwrap();
        let part = PhasePart { from: Stamp(10 * S), until: Stamp(440 * S - 1), width_us: S };
        let read = |path: &Path| {
            let asked = Cell::new(0);
            let is_wanted = || asked.replace(asked.get() + 1) < 10_000;
            let told = NearReader::open(path).unwrap().read(part, is_wanted).unwrap().unwrap();
            (told, asked.get())
        };
        let (by_blocks, few) = read(&path);
        let (by_steps, many) = read(&elsewhere);
        assert!(steps(&by_steps) > 0 && by_blocks == by_steps);
        assert!(few < 60 && many > 500, "{few} {many}");
    }
}
