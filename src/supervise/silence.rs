//! When a run that no client follows has been silent for too long: then its supervisor ends its ranks.
//!
//! Without a client there is no path between the supervisors of a run: where a rank died on one host, those of the
//! others may wait for it for ever. Who is attached marks that in the run directory ([`Attended`]). Nothing is
//! compared but what was there at the last look, so that no two clocks have to agree.

use std::fs::File;
use std::time::{Duration, SystemTime};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use super::SuperviseError;
use super::rundir::RunDir;
use super::state::{ATTENDED, stream_file};
use crate::domain::log::Stream;
use crate::domain::run::HostRun;
use crate::domain::time::HostTime;
use crate::domain::units;

/// The longest time between two marks of one who is attached.
const MARK: Duration = Duration::from_secs(5);

/// How often is marked, and looked for marks, when a run may be silent for `limit`.
fn pace(limit: Duration) -> Duration {
    (limit / 5).min(MARK)
}

/// The mark of a client that follows a run.
#[derive(Debug)]
pub struct Attended {
    file: File,
    every: Duration,
    last: Option<HostTime>,
}

impl Attended {
    /// For a run that may be silent for a limited time; `None` where silence ends nothing.
    pub fn new(dir: &RunDir, run: &HostRun) -> Result<Option<Self>, SuperviseError> {
        let Some(limit) = run.max_silence_ms else { return Ok(None) };
        let every = pace(Duration::from_millis(limit));
        Ok(Some(Self { file: dir.append(ATTENDED)?, every, last: None }))
    }

    /// Says that a client is attached now; does little when it was said a moment ago.
    pub fn mark(&mut self, now: HostTime) {
        let since = self.last.map(|last| Duration::from_micros(now.0.saturating_sub(last.0)));
        if since.is_some_and(|since| since < self.every) {
            return;
        }
        self.last = Some(now);
        let time = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // One mark that fails is followed by others.
        let _ = futimens(&self.file, &Timestamps { last_access: time, last_modification: time });
    }
}

/// What changes while a run is attended or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pulse {
    marked: Option<SystemTime>,
    /// How long each file is and when it was written: one that the rank empties with each word may stay as long as it is.
    files: Vec<(u64, Option<SystemTime>)>,
}

impl Pulse {
    /// As it is now.
    pub(super) fn of(dir: &RunDir, run: &HostRun) -> Self {
        let about = |name: &str| dir.read(name).ok().flatten()?.metadata().ok();
        let names =
            run.ranks.iter().flat_map(|rank| Stream::ALL.map(|stream| stream_file(rank.rank, stream)));
        let file = |name: String| about(&name).map_or((0, None), |meta| (meta.len(), meta.modified().ok()));
        Self {
            marked: about(ATTENDED).and_then(|meta| meta.modified().ok()),
            files: names.map(file).collect(),
        }
    }
}

/// How long it has been silent.
#[derive(Debug)]
pub(super) struct Silence {
    limit: Duration,
    last: Option<(Pulse, HostTime)>,
    looked: HostTime,
}

impl Silence {
    /// For a run whose supervisor begins now; `None` where silence ends nothing.
    pub(super) fn new(run: &HostRun, now: HostTime) -> Option<Self> {
        let limit = Duration::from_millis(run.max_silence_ms?);
        Some(Self { limit, last: None, looked: now })
    }

    /// When to look again.
    pub(super) fn look_at(&self) -> HostTime {
        HostTime(self.looked.0.saturating_add(pace(self.limit).as_micros() as u64))
    }

    /// Takes in a look; why the ranks are to end, when it was silent for too long.
    pub(super) fn look(&mut self, pulse: Pulse, now: HostTime) -> Option<String> {
        self.looked = now;
        match &self.last {
            Some((last, since)) if *last == pulse => {
                let silent = Duration::from_micros(now.0.saturating_sub(since.0));
                (silent >= self.limit).then(|| {
                    let limit = units::duration_us(self.limit.as_micros() as u64);
                    format!("no client was attached and no rank wrote anything for {limit} (max_silence): its ranks are ended")
                })
            }
            _ => {
                self.last = Some((pulse, now));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::domain::fixtures::{host_run, rank_spec};
    use crate::domain::ids::{HostId, RunId};

    fn place(max_silence_ms: Option<u64>) -> (tempfile::TempDir, RunDir, HostRun) {
        let state = tempfile::tempdir().unwrap();
        let (run, host) = (RunId::new(1, 1), HostId::from("a"));
        let dir = RunDir::create(&state.path().join("s"), &run, &host).unwrap();
        let run = HostRun { run, host, max_silence_ms, ..host_run(vec![rank_spec(0)]) };
        (state, dir, run)
    }

    #[test]
    fn each_word_of_a_rank_and_each_mark_of_a_client_begins_the_time_anew() {
        let (_state, dir, run) = place(Some(10_000));
        let mut silence = Silence::new(&run, HostTime(0)).unwrap();
        let second = |n: u64| HostTime(n * 1_000_000);
        let mut look = |n| silence.look(Pulse::of(&dir, &run), second(n));
        assert_eq!(look(0), None);
        assert_eq!(look(9), None);
        dir.append("rank-0.out").unwrap().write_all(b"x").unwrap();
        assert_eq!(look(18), None);
        dir.append("rank-0.report").unwrap().write_all(b"x").unwrap();
        assert_eq!(look(27), None);
        let mut attended = Attended::new(&dir, &run).unwrap().unwrap();
        attended.mark(second(27));
        assert_eq!(look(36), None);
        assert_eq!(look(45), None);
        let why = look(46).unwrap();
        assert_eq!(
            why,
            "no client was attached and no rank wrote anything for 10.0 s (max_silence): its ranks are ended"
        );
        assert_eq!(silence.look_at(), second(48));
        // another word in the place of the last one
        let file = File::options().write(true).open(dir.path().join("rank-0.out")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(silence.look(Pulse::of(&dir, &run), second(55)), None);
        assert_eq!(silence.look(Pulse::of(&dir, &run), second(64)), None);
    }

    #[test]
    fn a_run_without_a_limit_is_neither_marked_nor_looked_at() {
        let (_state, dir, run) = place(None);
        assert!(Attended::new(&dir, &run).unwrap().is_none() && Silence::new(&run, HostTime(0)).is_none());
        assert!(!dir.has(ATTENDED));
    }
}
