//! What a host and its GPUs did while a run went on, noted every few seconds: so that the time in which no client followed has
//! telemetry, too. A process of its own notes; agents read.
//!
//! A driver may hang for ever or take its process with it, so the supervisor does not call it: `hvtui sample-host` does, which is
//! started with it, is no child of it, and ends with it. Without that process the run lacks the file and nothing else.
//!
//! When the file is full every second sample goes and the period doubles: the beginning of a long run is kept, less finely. Samples are
//! noted without the processes on the GPUs, whose command lines may hold values of secret variables.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::SuperviseError;
use super::adopt;
use super::rundir::RunDir;
use super::state::{LOG, SAMPLES, STATE, State};
use super::supervisor::line;
use crate::clock;
use crate::domain::gpu::Reading;
use crate::domain::host::HostSample;
use crate::domain::time::HostTime;
use crate::procs::identity::{Identity, boot_id};
use crate::procs::pidfd;
use crate::program::own_binary;
use crate::wire::chunk::CHUNK_BYTES;
use crate::wire::samples::{Record, record, records};

/// Between two samples at first, microseconds.
const EVERY_US: u64 = 4_000_000;
/// A run that ends sooner has none; and the time between the start of the telemetry, from which rates count, and the first sample.
const FIRST: Duration = Duration::from_secs(1);
/// How often the supervisor is looked for where the kernel gives no handle on it.
const POLL: Duration = Duration::from_millis(500);
const MAGIC: &[u8; 8] = b"hvsampl1";
/// Magic, boot id, period.
const HEAD: usize = 8 + 16 + 8;

/// How much a file may hold.
#[derive(Debug, Clone, Copy)]
struct Most {
    bytes: u64,
    samples: usize,
    /// Samples times GPUs: what a client that fetches all of it has to hold.
    rows: usize,
}

const MOST: Most = Most { bytes: 8 << 20, samples: 4096, rows: 16 << 10 };

/// Gives the values now; it may take a second, and rates are those since the last call.
pub type TakeSample = Box<dyn FnMut() -> HostSample>;

/// Starts the process that notes samples for the run whose supervisor, the process with this pid, has just begun. It is waited for by
/// who inherits it.
pub(super) fn start(dir: &Path, supervisor: u32) -> Result<Child, SuperviseError> {
    let (exe, log) = (own_binary(), RunDir::open(dir)?.append(LOG)?);
    Command::new(&exe)
        .args(["sample-host", "--dir"])
        .arg(dir)
        .args(["--supervisor", &supervisor.to_string()])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| SuperviseError::io("start", &exe, error))
}

/// Where memory is short, the kernel ends this process first: a run does without it, and not without its ranks. Works only as long as
/// a process is not closed to its owner's others.
pub fn yields_memory() {
    // a kernel without the file ends what it likes
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Notes samples until the run's supervisor, the process with this pid, has ended; `telemetry` starts what takes them.
pub fn keep(
    dir: &Path,
    supervisor: u32,
    telemetry: impl FnOnce() -> TakeSample,
) -> Result<(), SuperviseError> {
    let dir = RunDir::open(dir)?;
    let Some(state) = dir.read_json::<State>(STATE)? else { return Ok(()) };
    let (_, owner) = adopt::owner(&dir, &state)?;
    if owner.pid != supervisor {
        // another one has taken its place by now, and has its own process for this: two would write one file
        return Ok(());
    }
    let supervisor = Watched::new(owner);
    // before a driver is loaded: many runs end at once
    if supervisor.ends_within(FIRST) {
        return Ok(());
    }
    let mut take = telemetry();
    // a driver may take seconds: what has ended by now may be deleted just now
    if supervisor.ends_within(Duration::ZERO) {
        return Ok(());
    }
    let mut notes = Notes::open(RunDir::open(dir.path())?, MOST)?;
    let (mut wait, mut is_told) = (FIRST, false);
    while !supervisor.ends_within(wait) {
        let sample = take();
        // that may take a second, and the file may be another process's by now
        if supervisor.ends_within(Duration::ZERO) {
            break;
        }
        match notes.add(clock::host_now(), sample) {
            Ok(()) => is_told = false,
            // once, until one can be written again: a disk may stay full for hours
            Err(error) => {
                if !std::mem::replace(&mut is_told, true)
                    && let Ok(log) = dir.append(LOG)
                {
                    line(&log, &format!("samples of the host are not noted: {error}"));
                }
            }
        }
        wait = Duration::from_micros(notes.period_us);
    }
    Ok(())
}

/// The samples that were noted since then, in pieces for the wire, each of whole records. Nothing of another boot: its clock was another.
pub fn since(dir: &RunDir, since: HostTime) -> Result<Vec<Vec<u8>>, SuperviseError> {
    let Some((_, all)) = read(dir)? else { return Ok(Vec::new()) };
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for record in records(&all).filter(|record| record.t >= since) {
        match pieces.last_mut().filter(|piece| piece.len() + record.bytes.len() <= CHUNK_BYTES) {
            Some(piece) => piece.extend_from_slice(record.bytes),
            None => pieces.push(record.bytes.to_vec()),
        }
    }
    Ok(pieces)
}

/// A file's period and what stands behind its head; `None` where there is none of this boot.
fn read(dir: &RunDir) -> Result<Option<(u64, Vec<u8>)>, SuperviseError> {
    let Some(file) = dir.read(SAMPLES)? else { return Ok(None) };
    let mut all = Vec::new();
    let most = MOST.bytes + HEAD as u64;
    file.take(most).read_to_end(&mut all).map_err(|error| failed(dir, "read", error))?;
    let Some((head, behind)) = all.split_first_chunk::<HEAD>() else { return Ok(None) };
    let period = head.last_chunk::<8>().map_or(0, |period| u64::from_le_bytes(*period));
    let is_ours = boot().is_some_and(|boot| *head == head_of(boot, period));
    Ok((is_ours && period > 0).then(|| (period, behind.to_vec())))
}

fn failed(dir: &RunDir, doing: &'static str, error: io::Error) -> SuperviseError {
    SuperviseError::io(doing, &dir.path().join(SAMPLES), error)
}

/// What stands before the first sample: of which boot the times are, and how long lies between two samples, microseconds.
fn head_of(boot: u128, period_us: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..24].copy_from_slice(&boot.to_be_bytes());
    head[24..].copy_from_slice(&period_us.to_le_bytes());
    head
}

fn boot() -> Option<u128> {
    u128::from_str_radix(&boot_id().ok()?.replace('-', ""), 16).ok()
}

/// The supervisor's process.
struct Watched {
    process: Identity,
    handle: Option<OwnedFd>,
}

impl Watched {
    fn new(process: Identity) -> Self {
        let handle = pidfd::open(process.pid);
        Self { process, handle }
    }

    /// Whether it ends before so much time has passed.
    fn ends_within(&self, mut wait: Duration) -> bool {
        while self.process.alive() && !wait.is_zero() {
            let step = if self.handle.is_some() { wait } else { wait.min(POLL) };
            match &self.handle {
                Some(handle) => {
                    let limit =
                        Timespec { tv_sec: step.as_secs() as i64, tv_nsec: step.subsec_nanos().into() };
                    let _ = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit));
                }
                None => std::thread::sleep(step),
            }
            wait -= step;
        }
        !self.process.alive()
    }
}

/// The file, to add to.
struct Notes {
    dir: RunDir,
    most: Most,
    file: File,
    bytes: u64,
    samples: usize,
    period_us: u64,
}

impl Notes {
    /// Goes on with what is there, behind its last whole sample, or begins anew.
    fn open(dir: RunDir, most: Most) -> Result<Self, SuperviseError> {
        let found = read(&dir)?;
        let file = dir.append(SAMPLES)?;
        let mut notes = Self { dir, most, file, bytes: 0, samples: 0, period_us: EVERY_US };
        if let Some((period_us, all)) = found {
            notes.period_us = period_us;
            (notes.bytes, notes.samples) = length(records(&all));
            notes.cut_torn_end().map_err(|error| failed(&notes.dir, "cut", error))?;
        } else {
            let head: io::Result<[u8; HEAD]> =
                boot().map(|boot| head_of(boot, EVERY_US)).ok_or_else(|| io::ErrorKind::Unsupported.into());
            let begun = head.and_then(|head| {
                notes.file.set_len(0)?;
                notes.file.write_all(&head)
            });
            begun.map_err(|error| failed(&notes.dir, "write", error))?;
        }
        Ok(notes)
    }

    /// What a process that was killed, or a full disk, has left of a sample goes.
    fn cut_torn_end(&self) -> io::Result<()> {
        self.file.set_len(HEAD as u64 + self.bytes)
    }

    /// Adds a sample that was taken then. One that is too large for a message is left out.
    fn add(&mut self, t: HostTime, mut sample: HostSample) -> Result<(), SuperviseError> {
        sample.gpus.iter_mut().for_each(|gpu| gpu.processes = Reading::Unsupported);
        let Some(record) = record(t, &sample) else { return Ok(()) };
        let gpus = sample.gpus.len().max(1);
        if !self.has_room(self.bytes + record.len() as u64, self.samples + 1, gpus) {
            self.thin(gpus)?;
        }
        if let Err(error) = self.file.write_all(&record) {
            let _ = self.cut_torn_end();
            return Err(failed(&self.dir, "write", error));
        }
        self.bytes += record.len() as u64;
        self.samples += 1;
        Ok(())
    }

    fn has_room(&self, bytes: u64, samples: usize, gpus: usize) -> bool {
        let Most { bytes: most_bytes, samples: most_samples, rows } = self.most;
        bytes <= most_bytes && samples <= most_samples && samples.saturating_mul(gpus) <= rows
    }

    /// Makes room: a file with fewer samples takes the place of this one.
    fn thin(&mut self, gpus: usize) -> Result<(), SuperviseError> {
        let all = read(&self.dir)?.map(|(_, all)| all).unwrap_or_default();
        let mut period_us = self.period_us;
        let kept = loop {
            period_us = period_us.saturating_mul(2);
            let kept = spaced(records(&all), period_us);
            let (bytes, samples) = length(kept.iter().copied());
            // with room for as many again, for soon it would be full otherwise
            if samples <= 1 || self.has_room(bytes / 3 * 4, samples / 3 * 4, gpus) {
                break kept;
            }
        };
        let (bytes, samples) = length(kept.iter().copied());
        let head = boot().map(|boot| head_of(boot, period_us));
        let head = head.ok_or_else(|| failed(&self.dir, "write", io::ErrorKind::Unsupported.into()))?;
        let mut content = head.to_vec();
        for record in &kept {
            content.extend_from_slice(record.bytes);
        }
        self.dir.replace_with(SAMPLES, &content)?;
        self.file = self.dir.append(SAMPLES)?;
        (self.bytes, self.samples, self.period_us) = (bytes, samples, period_us);
        Ok(())
    }
}

/// How many bytes and how many samples these are.
fn length<'a>(all: impl Iterator<Item = Record<'a>>) -> (u64, usize) {
    all.fold((0, 0), |(bytes, samples), record| (bytes + record.bytes.len() as u64, samples + 1))
}

/// Those that lie about so far apart, from the first one on.
fn spaced<'a>(all: impl Iterator<Item = Record<'a>>, period_us: u64) -> Vec<Record<'a>> {
    let apart = period_us - period_us / 4;
    let mut kept: Vec<Record<'a>> = Vec::new();
    for record in all {
        if kept.last().is_none_or(|last| record.t.0.saturating_sub(last.t.0) >= apart) {
            kept.push(record);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_sample;
    use crate::domain::gpu::{GpuProcess, GpuSample};
    use crate::domain::ids::{HostId, RunId};
    use crate::supervise::state::Phase;
    use crate::wire::samples::PastSamples;

    fn place() -> (tempfile::TempDir, RunDir) {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        (home, dir)
    }

    fn notes(dir: &RunDir, most: Most) -> Notes {
        Notes::open(RunDir::open(dir.path()).unwrap(), most).unwrap()
    }

    fn sample(util: u32) -> HostSample {
        let process =
            GpuProcess { command: Reading::Value("train canary".to_owned()), ..GpuProcess::unknown(7) };
        let gpu = GpuSample {
            util: Reading::Value(util),
            processes: Reading::Value(vec![process]),
            ..GpuSample::unknown(0)
        };
        HostSample {
            cpu_percent: Reading::Value(1.0),
            memory_used: Reading::Value(2),
            gpus: vec![gpu],
            ..host_sample()
        }
    }

    /// When each was taken, in seconds, and the utilisation.
    fn noted(dir: &RunDir, from: u64) -> Vec<(u64, u32)> {
        let mut told = Vec::new();
        for piece in since(dir, HostTime(from * 1_000_000)).unwrap() {
            assert!(piece.len() <= CHUNK_BYTES);
            let samples = PastSamples { run: RunId::new(1, 1), data: piece.into() }.samples();
            for (t, sample) in samples {
                assert_eq!(sample.gpus[0].processes, Reading::Unsupported);
                told.push((t.0 / 1_000_000, *sample.gpus[0].util.value().unwrap()));
            }
        }
        told
    }

    fn add(notes: &mut Notes, second: u64) {
        notes.add(HostTime(second * 1_000_000), sample(second as u32 % 101)).unwrap();
    }

    fn size(dir: &RunDir) -> u64 {
        std::fs::metadata(dir.path().join(SAMPLES)).unwrap().len()
    }

    #[test]
    fn what_is_noted_is_read_from_any_moment_on() {
        let (_home, dir) = place();
        assert!(noted(&dir, 0).is_empty());
        let mut first = notes(&dir, MOST);
        for second in [4, 8, 12] {
            add(&mut first, second);
        }
        assert_eq!(noted(&dir, 0), [(4, 4), (8, 8), (12, 12)]);
        assert_eq!(noted(&dir, 8), [(8, 8), (12, 12)]);
        // another supervisor's
        let mut second = notes(&dir, MOST);
        add(&mut second, 16);
        assert_eq!(noted(&dir, 9), [(12, 12), (16, 16)]);
    }

    #[test]
    fn a_full_file_keeps_its_beginning_and_the_same_time_between_all() {
        let (_home, dir) = place();
        let most = Most { samples: 8, ..MOST };
        let mut all = notes(&dir, most);
        let mut second = 0;
        while all.period_us < 8 * EVERY_US {
            second += all.period_us / 1_000_000;
            add(&mut all, second);
            assert!(all.samples <= 8);
        }
        let told = noted(&dir, 0);
        assert_eq!((told[0].0, told.len()), (4, all.samples));
        let apart = |pair: &[(u64, u32)]| pair[1].0 - pair[0].0;
        assert!(told.windows(2).all(|pair| (16..=48).contains(&apart(pair))), "{told:?}");
        assert_eq!(told.last(), Some(&(second, second as u32 % 101)));
        // who goes on with it goes on at its pace
        assert_eq!(notes(&dir, most).period_us, 8 * EVERY_US);
    }

    #[test]
    fn it_is_no_larger_than_it_may_be() {
        let (_home, dir) = place();
        let mut all = notes(&dir, Most { bytes: 2048, ..MOST });
        (1..500).for_each(|at| add(&mut all, at * 4));
        assert!(size(&dir) <= 2048 + HEAD as u64, "{}", size(&dir));
        let (told, last) = (noted(&dir, 0), (1996, 1996 % 101));
        assert_eq!((told[0], told.last()), ((4, 4), Some(&last)));
        let (_home, dir) = place();
        let mut rows = notes(&dir, Most { rows: 6, ..MOST });
        (1..20).for_each(|at| add(&mut rows, at * 4));
        assert!(rows.samples <= 6);
    }

    #[test]
    fn a_torn_end_goes_and_what_is_no_sample_ends_it() {
        let (_home, dir) = place();
        let mut all = notes(&dir, MOST);
        add(&mut all, 4);
        let one = size(&dir);
        add(&mut all, 8);
        let two = size(&dir);
        for length in one..two {
            File::options().write(true).open(dir.path().join(SAMPLES)).unwrap().set_len(length).unwrap();
            assert_eq!(noted(&dir, 0), [(4, 4)]);
            let mut next = notes(&dir, MOST);
            assert_eq!(size(&dir), one);
            add(&mut next, 8);
        }
        assert_eq!(noted(&dir, 0), [(4, 4), (8, 8)]);
        dir.append(SAMPLES).unwrap().write_all(&[0xff; 100]).unwrap();
        assert_eq!(noted(&dir, 0), [(4, 4), (8, 8)]);
        add(&mut notes(&dir, MOST), 12);
        assert_eq!(noted(&dir, 0), [(4, 4), (8, 8), (12, 12)]);
    }

    #[test]
    fn what_another_boot_has_noted_and_what_is_no_such_file_is_begun_anew() {
        for head in [head_of(7, EVERY_US).to_vec(), head_of(boot().unwrap(), 0).to_vec(), b"text".to_vec()] {
            let (_home, dir) = place();
            let record = record(HostTime(4_000_000), &sample(4)).unwrap();
            std::fs::write(dir.path().join(SAMPLES), [head, record].concat()).unwrap();
            assert!(noted(&dir, 0).is_empty());
            add(&mut notes(&dir, MOST), 8);
            assert_eq!(noted(&dir, 0), [(8, 8)]);
        }
    }

    #[test]
    fn it_ends_with_the_supervisor() {
        let (_home, dir) = place();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let supervisor = Identity::of(child.id()).unwrap();
        dir.write_json(STATE, &State::of_test(Phase::Running, supervisor)).unwrap();
        let (path, pid) = (dir.path().to_owned(), child.id());
        keep(&path, pid + 1, || panic!("the run has another supervisor")).unwrap();
        let keeping = std::thread::spawn(move || {
            let take = || Box::new(|| sample(50)) as TakeSample;
            keep(&path, pid, take).unwrap();
        });
        let begun = clock::host_now();
        while noted(&dir, 0).is_empty() && clock::host_now().0 - begun.0 < 60_000_000 {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        keeping.join().unwrap();
        assert!(!noted(&dir, 0).is_empty());
    }
}
