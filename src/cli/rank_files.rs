//! `--output-filename DIR`: what each rank prints, in `DIR/rank.<number>/stdout` and `stderr` on this machine, as
//! horovodrun and mpirun write it. Knows nothing of what is shown.

use crate::domain::event::{Envelope, Event};
use crate::domain::ids::Rank;
use crate::domain::log::{LogLine, Stream};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Files that are open at a time: fewer than a process may have.
const OPEN: usize = 128;

/// The files of one run.
#[derive(Debug)]
pub(crate) struct RankFiles {
    dir: PathBuf,
    /// Digits of a rank's number.
    width: usize,
    open: BTreeMap<(Rank, Stream), File>,
    /// Whether it was said that they can't be written.
    warned: bool,
}

impl RankFiles {
    /// Files below `dir`, which is made where it is not there.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), width: 1, open: BTreeMap::new(), warned: false })
    }

    /// Writes down what an event says that a rank has printed; what went wrong, once.
    pub(crate) fn take(&mut self, envelope: &Envelope) -> Option<String> {
        let written = match &envelope.event {
            Event::RunCreated { spec } => self.begin(spec.world()),
            Event::LogPrinted { line } => self.line(line),
            Event::LogGap { gap } if gap.stream != Stream::Report => {
                self.write(gap.rank, gap.stream, &format!("[hvtui: {}]\n", gap.describe()))
            }
            _ => return None,
        };
        let error = written.err().filter(|_| !self.warned)?;
        self.warned = true;
        Some(format!("--output-filename {}: {error}; the run goes on", self.dir.display()))
    }

    /// Empty files for all ranks: what an earlier run has left there is not this run's.
    fn begin(&mut self, world: u32) -> io::Result<()> {
        self.open.clear();
        self.width = world.saturating_sub(1).to_string().len();
        for rank in (0..world).map(Rank) {
            fs::create_dir_all(self.place(rank))?;
            for stream in [Stream::Stdout, Stream::Stderr] {
                File::create(self.file(rank, stream))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &LogLine) -> io::Result<()> {
        self.write(line.rank, line.stream, &format!("{}{}\n", line.text, line.cut_words()))
    }

    fn write(&mut self, rank: Rank, stream: Stream, text: &str) -> io::Result<()> {
        let path = self.file(rank, stream);
        if self.open.len() >= OPEN && !self.open.contains_key(&(rank, stream)) {
            self.open.clear();
        }
        let file = match self.open.entry((rank, stream)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(OpenOptions::new().append(true).create(true).open(path)?)
            }
        };
        file.write_all(text.as_bytes())
    }

    fn place(&self, rank: Rank) -> PathBuf {
        self.dir.join(format!("rank.{:0width$}", rank.0, width = self.width))
    }

    fn file(&self, rank: Rank, stream: Stream) -> PathBuf {
        self.place(rank).join(if stream == Stream::Stderr { "stderr" } else { "stdout" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::Origin;
    use crate::domain::fixtures::{placement, run_spec};
    use crate::domain::ids::RunId;
    use crate::domain::run::RunSpec;
    use crate::domain::time::Stamp;

    fn envelope(event: Event) -> Envelope {
        Envelope { seq: 0, at: Stamp(1), origin: Origin::Run(RunId::new(1, 1)), event }
    }

    fn created(world: u32) -> Envelope {
        let spec = RunSpec {
            name: "x".into(),
            command: Vec::new(),
            ..run_spec((0..world).map(|rank| placement(rank, "a", rank)).collect())
        };
        envelope(Event::RunCreated { spec: Arc::new(spec) })
    }

    fn printed(rank: u32, stream: Stream, text: &str) -> Envelope {
        let line = LogLine { rank: Rank(rank), stream, offset: 0, text: text.into(), elided: 0, t: None };
        envelope(Event::LogPrinted { line: Arc::new(line) })
    }

    #[test]
    fn each_rank_has_its_files_with_its_bytes_as_they_are() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("out/here");
        fs::create_dir_all(dir.join("rank.007")).unwrap();
        fs::write(dir.join("rank.007/stdout"), "of an earlier run\n").unwrap();
        let mut files = RankFiles::new(&dir).unwrap();
        assert_eq!(files.take(&created(300)), None);
        for rank in 0..300 {
            assert_eq!(files.take(&printed(rank, Stream::Stdout, &format!("a{rank} \u{1b}[0m"))), None);
        }
        files.take(&printed(7, Stream::Stdout, "b"));
        files.take(&printed(299, Stream::Stderr, "oops"));
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("rank.007/stdout"), "a7 \u{1b}[0m\nb\n");
        assert_eq!((read("rank.299/stderr").as_str(), read("rank.000/stderr").as_str()), ("oops\n", ""));
        assert!(files.open.len() <= OPEN);
    }

    #[test]
    fn a_disk_that_is_full_is_told_once() {
        let home = tempfile::tempdir().unwrap();
        let mut files = RankFiles::new(home.path()).unwrap();
        assert_eq!(files.take(&created(2)), None);
        // a device on which nothing can be written
        fs::remove_file(home.path().join("rank.1/stdout")).unwrap();
        std::os::unix::fs::symlink("/dev/full", home.path().join("rank.1/stdout")).unwrap();
        let warning = files.take(&printed(1, Stream::Stdout, "x")).unwrap();
        assert!(
            warning.contains("No space left on device") && warning.ends_with("; the run goes on"),
            "{warning}"
        );
        assert_eq!(files.take(&printed(1, Stream::Stdout, "y")), None);
        assert_eq!(files.take(&printed(0, Stream::Stdout, "z")), None);
        assert_eq!(fs::read_to_string(home.path().join("rank.0/stdout")).unwrap(), "z\n");
    }
}
