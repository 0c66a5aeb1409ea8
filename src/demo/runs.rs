//! The runs of a demo: when each began, for all hosts; and one host's share of each, which goes on whether a link is
//! there or not, as under a supervisor.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::chance::share;
use super::job::Job;
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::lease::{Lease, Leases};
use crate::domain::log::Stream;
use crate::domain::run::{HostRun, RankExit, RunSpec, RunStage, Spool};
use crate::domain::run_status::HostRunStatus;
use crate::domain::stacks::{ProcessStacks, Taker};
use crate::domain::standstill::StalledPhase;
use crate::domain::time::HostTime;

const TERM: i32 = 15;
/// What is kept of each of a rank's files, as by a host with the least cap.
pub(super) const KEPT: usize = Spool::LEAST_CAP as usize;

/// When each run began: the hosts of a run start at one moment, so that their ranks' steps fit together.
#[derive(Debug, Default)]
pub(super) struct Runs(Mutex<BTreeMap<RunId, HostTime>>);

impl Runs {
    /// When a run began: `now` for the first of its hosts.
    fn start(&self, run: &RunId, now: HostTime) -> HostTime {
        let mut started = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *started.entry(run.clone()).or_insert(now)
    }
}

/// The rank that is on a GPU.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) run: RunId,
    pub(super) rank: Rank,
    pub(super) pid: u32,
    pub(super) command: String,
    /// When it was started.
    pub(super) start: HostTime,
    /// How busy it keeps the GPU, 0 to 1.
    pub(super) busy: f64,
    /// Whether that is a kernel that waits: it takes all the time and hardly any power.
    pub(super) spins: bool,
}

/// One rank on this host.
#[derive(Debug)]
pub(super) struct RankRun {
    pub(super) rank: Rank,
    pub(super) pid: u32,
    pub(super) exit: Option<RankExit>,
    pub(super) job: Job,
    files: [File; Stream::ALL.len()],
    gpus: Vec<GpuUuid>,
}

impl RankRun {
    /// What is kept of a file from this byte on, and at which byte that begins.
    pub(super) fn file(&self, stream: Stream, from: u64) -> (u64, &[u8]) {
        self.files[place(stream)].from(from)
    }
}

/// A file of a rank: its end.
#[derive(Debug, Default)]
struct File {
    /// Bytes that are gone from its beginning.
    gone: u64,
    kept: Vec<u8>,
}

impl File {
    fn write(&mut self, text: &[u8]) {
        self.kept.extend_from_slice(text);
        if self.kept.len() > KEPT {
            // a quarter at once, in whole lines
            let surplus = self.kept.len() - KEPT / 4 * 3;
            let line_end = self.kept[surplus..].iter().position(|byte| *byte == b'\n');
            let cut = line_end.map_or(surplus, |at| surplus + at + 1);
            self.kept.drain(..cut);
            self.gone += cut as u64;
        }
    }

    fn from(&self, from: u64) -> (u64, &[u8]) {
        let begin = from.max(self.gone);
        let rest = usize::try_from(begin - self.gone).ok().and_then(|at| self.kept.get(at..));
        (begin, rest.unwrap_or_default())
    }
}

fn place(stream: Stream) -> usize {
    Stream::ALL.iter().position(|one| *one == stream).unwrap_or(0)
}

/// One host's share of a run.
#[derive(Debug)]
pub(super) struct SimulatedRun {
    pub(super) plan: HostRun,
    pub(super) start: HostTime,
    pub(super) ranks: Vec<RankRun>,
    stopped: bool,
}

impl SimulatedRun {
    /// Starts what was prepared.
    pub(super) fn start(plan: HostRun, runs: &Runs, now: HostTime) -> Self {
        let start = runs.start(&plan.run, now);
        let spec = plan.run_spec.as_deref();
        let world = spec.map_or(plan.ranks.len() as u32, RunSpec::world);
        let seed = plan
            .run
            .as_str()
            .bytes()
            .fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let rank_run = |rank: Rank, argv: &[String]| {
            let placement = spec.and_then(|spec| spec.placements.get(rank.0 as usize));
            RankRun {
                rank,
                pid: 40_000 + (share(&[seed, rank.0.into()]) * 20_000.0) as u32,
                exit: None,
                job: Job::new(seed, rank, world, &plan.name, argv),
                files: Default::default(),
                gpus: placement.map(|placement| placement.gpus().cloned().collect()).unwrap_or_default(),
            }
        };
        let ranks = plan.ranks.iter().map(|spec| rank_run(spec.rank, &spec.argv)).collect();
        Self { ranks, plan, start, stopped: false }
    }

    /// Goes on until `now`. A rank that fails takes the others with it; gives the GPUs of those that failed in this time.
    pub(super) fn advance(&mut self, now: HostTime) -> Vec<GpuUuid> {
        let since = now.0.saturating_sub(self.start.0);
        let (mut failed, mut ended) = (Vec::new(), false);
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_none()) {
            let written = rank.job.advance(self.start, since);
            for (stream, text) in written.pieces {
                rank.files[place(stream)].write(text.as_bytes());
            }
            rank.exit = written.exit.map(|code| exit(Some(code), None, now, false));
            if written.exit.is_some_and(|code| code != 0) {
                failed.extend(rank.gpus.iter().cloned());
                ended = true;
            }
        }
        if ended {
            self.stop(now);
        }
        failed
    }

    /// Ends the ranks that have not ended.
    pub(super) fn stop(&mut self, now: HostTime) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.exit.is_none()) {
            self.stopped = true;
            rank.exit = Some(exit(None, Some(TERM), now, true));
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.exit.is_some())
    }

    /// Who is on a GPU for this run.
    pub(super) fn on(&self, gpu: &GpuUuid) -> Option<Held> {
        let rank = self.ranks.iter().find(|rank| rank.exit.is_none() && rank.gpus.contains(gpu))?;
        let command = self.plan.ranks.iter().find(|spec| spec.rank == rank.rank)?.argv.join(" ");
        Some(Held {
            run: self.plan.run.clone(),
            rank: rank.rank,
            pid: rank.pid,
            command,
            start: self.start,
            busy: rank.job.busy(),
            spins: rank.job.spins(),
        })
    }

    /// The GPUs that it holds.
    pub(super) fn leases(&self, into: &mut Leases) {
        for rank in self.ranks.iter().filter(|rank| rank.exit.is_none()) {
            into.held.extend(rank.gpus.iter().map(|gpu| Lease {
                gpu: gpu.clone(),
                user: Some("you".to_owned()),
                own: true,
                pid: Some(rank.pid),
                command: None,
                run: Some(self.plan.run.clone()),
                name: Some(self.plan.name.clone()),
                rank: Some(rank.rank),
                since: Some(self.start),
            }));
        }
    }

    /// Where its ranks are that have not ended.
    pub(super) fn stacks(&self, now: HostTime) -> Vec<ProcessStacks> {
        let since = now.0.saturating_sub(self.start.0);
        let stack = |rank: &RankRun| {
            let (phase, step, for_us) = rank.job.place(since);
            ProcessStacks {
                rank: rank.rank,
                worker: None,
                pid: rank.pid,
                by: Taker::Hooks,
                text: rank.job.stack(phase),
                lacks: None,
                standing: Some(StalledPhase { phase, step, for_us, stopped: false, at: None }),
            }
        };
        self.ranks.iter().filter(|rank| rank.exit.is_none()).map(stack).collect()
    }

    /// What a client is told that asks which runs there are.
    pub(super) fn told(&self, host: &HostId) -> HostRunStatus {
        let ended = |rank: &RankRun| Some((rank.rank, rank.exit.clone()?));
        HostRunStatus {
            run: self.plan.run.clone(),
            host: host.clone(),
            name: self.plan.name.clone(),
            ranks: self.ranks.iter().map(|rank| rank.rank).collect(),
            stage: if self.is_over() { RunStage::Ended } else { RunStage::Training },
            supervised: !self.is_over(),
            live: !self.is_over(),
            stop: self.stopped.then(|| "stopped".to_owned()),
            started: self.ranks.iter().map(|rank| rank.rank).collect(),
            exits: self.ranks.iter().filter_map(ended).collect(),
            spec: self.plan.run_spec.clone(),
            quiet_s: self.is_over().then_some(0),
        }
    }
}

fn exit(code: Option<i32>, signal: Option<i32>, t: HostTime, stopped: bool) -> RankExit {
    RankExit { code, signal, t, error: None, stopped, cause: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_the_end_is_kept_in_whole_lines() {
        let (mut file, mut whole) = (File::default(), Vec::new());
        for number in 0..300_000 {
            let line = format!("line {number}\n");
            file.write(line.as_bytes());
            whole.extend_from_slice(line.as_bytes());
            assert!(file.kept.len() <= KEPT);
        }
        let (begin, rest) = file.from(0);
        assert!(begin > 0 && rest.len() >= KEPT / 4 * 3 - 20);
        assert_eq!((&whole[begin as usize..], whole[begin as usize - 1]), (rest, b'\n'));
        let late = whole.len() as u64 - 3;
        assert_eq!(file.from(late), (late, &whole[late as usize..]));
        assert_eq!(file.from(late + 100), (late + 100, &[][..]));
    }
}
