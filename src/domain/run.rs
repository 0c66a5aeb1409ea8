//! A run: what is executed where, the stages it passes, and how it ends.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::container::ContainerOptions;
use super::engine::Engine;
use super::environment::EnvironmentPlan;
use super::ids::{GpuUuid, HostId, Rank, RunId};
use super::lease::LeasePlan;
use super::options::{PythonHooks, RunOptions};
use super::outcome::{RunOutcome, UNREACHABLE};
use super::rendezvous::RendezvousPlan;
pub use super::spool::{MinFree, Spool};
use super::sync::Code;
use super::time::{HostTime, Stamp};
use super::trained::{Stood, Trained};

fn no_hooks() -> PythonHooks {
    PythonHooks::Off
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_off(hooks: &PythonHooks) -> bool {
    *hooks == PythonHooks::Off
}

/// How the command is started and what environment it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// hvtui's own workers: the plain environment plus the run's secret.
    #[default]
    Native,
    /// PyTorch: what torchrun gives each rank.
    Torch,
    /// Horovod by Gloo: what horovodrun gives each rank, and a rendezvous server.
    Horovod,
    /// An MPI program: `mpirun` starts its ranks.
    Mpi,
    /// TensorFlow: a `TF_CONFIG` for each rank.
    Tensorflow,
    /// Slurm: `srun` starts the ranks.
    Slurm,
    /// Any command: `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `HVTUI_*`.
    Plain,
}

impl JobKind {
    /// All, in the order in which they are offered.
    pub const ALL: [Self; 7] =
        [Self::Native, Self::Torch, Self::Horovod, Self::Mpi, Self::Tensorflow, Self::Slurm, Self::Plain];

    /// Lowercase name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Torch => "torch",
            Self::Horovod => "horovod",
            Self::Mpi => "mpi",
            Self::Tensorflow => "tensorflow",
            Self::Slurm => "slurm",
            Self::Plain => "plain",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What one rank is placed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "slot", rename_all = "snake_case")]
pub enum Slot {
    /// A GPU.
    Gpu {
        /// NVML index, for people.
        index: u32,
        /// UUID, for machines.
        uuid: GpuUuid,
    },
    /// A CPU slot of a host without GPUs.
    Cpu {
        /// Number of the slot, from 0.
        index: u32,
    },
}

impl Slot {
    /// The number in `host:number`.
    pub fn index(&self) -> u32 {
        match self {
            Self::Gpu { index, .. } | Self::Cpu { index } => *index,
        }
    }
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placement {
    /// The rank.
    pub rank: Rank,
    /// Its host.
    pub host: HostId,
    /// Its number among the host's ranks of this run, from 0.
    pub local_rank: u32,
    /// Its slot there.
    pub slot: Slot,
    /// Further slots there, with `--gpus-per-rank`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<Slot>,
}

impl Placement {
    /// All its slots.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        std::iter::once(&self.slot).chain(&self.more)
    }

    /// The GPUs among them.
    pub fn gpus(&self) -> impl Iterator<Item = &GpuUuid> {
        self.slots().filter_map(|slot| match slot {
            Slot::Gpu { uuid, .. } => Some(uuid),
            Slot::Cpu { .. } => None,
        })
    }

    /// Of places, of which those of a host follow each other, one of each host that no other one's name is longer than.
    pub fn longest_of_hosts<'a>(places: impl Iterator<Item = &'a Self>) -> Vec<&'a Self> {
        let mut longest: Vec<(&Self, u32)> = Vec::new();
        for place in places {
            // a number has a digit more than its logarithm, and a sign before it
            let columns: u32 = place.slots().map(|slot| slot.index().checked_ilog10().unwrap_or(0) + 2).sum();
            match longest.last_mut().filter(|(last, _)| last.host == place.host) {
                Some(last) if columns > last.1 => *last = (place, columns),
                Some(_) => {}
                None => longest.push((place, columns)),
            }
        }
        longest.into_iter().map(|(place, _)| place).collect()
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: Vec<String> = self.slots().map(|slot| slot.index().to_string()).collect();
        f.pad(&format!("{}:{}", self.host, slots.join(",")))
    }
}

/// A run as its owner asked for it. Holds no secret: it is stored and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Its id.
    pub id: RunId,
    /// A name for people: `--name`, else made from the command.
    pub name: String,
    /// How it is started.
    pub kind: JobKind,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables added to every rank's environment.
    pub env: BTreeMap<String, String>,
    /// Working directory; the home directory when absent.
    pub workdir: Option<String>,
    /// One per rank, in rank order, hosts in one block each.
    pub placements: Vec<Placement>,
    /// When it was asked for.
    pub created: Stamp,
    /// How it is started otherwise.
    #[serde(default)]
    pub options: RunOptions,
    /// Which code it executes, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
}

impl RunSpec {
    /// Whether a launcher starts its ranks, which ends all of them when one fails: hvtui starts and stops those of other runs.
    pub fn has_launcher(&self) -> bool {
        matches!(self.kind, JobKind::Mpi | JobKind::Slurm) || self.options.delegate.is_some()
    }

    /// Whether it was made of another program's files: then how it ended is not known.
    pub fn is_imported(&self) -> bool {
        self.options.imported.is_some()
    }

    /// How many ranks.
    pub fn world(&self) -> u32 {
        self.placements.len() as u32
    }

    /// The hosts in rank order, each once.
    pub fn hosts(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = Vec::new();
        for placement in &self.placements {
            if hosts.last() != Some(&placement.host) && !hosts.contains(&placement.host) {
                hosts.push(placement.host.clone());
            }
        }
        hosts
    }
}

/// One host's share of a run: what its supervisor executes. Stored on the host; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRun {
    /// The run.
    pub run: RunId,
    /// The host's name in the run: keeps hosts that share a home directory apart.
    pub host: HostId,
    /// The run's name.
    pub name: String,
    /// The ranks to start here.
    #[serde(with = "super::rank_list")]
    pub ranks: Vec<RankSpec>,
    /// Milliseconds between TERM and KILL when the run is stopped.
    pub grace_ms: u64,
    /// After so many milliseconds in which no client was attached and no rank wrote anything, its ranks are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_silence_ms: Option<u64>,
    /// Whether hvtui's hooks are put into the ranks' Pythons. Off where an older client launched it.
    #[serde(default = "no_hooks", skip_serializing_if = "is_off")]
    pub python_hooks: PythonHooks,
    /// Whether the ranks' torch can be asked for a kernel trace while they run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub traceable: bool,
    /// The whole run, so that any client can attach to it. Absent where an older client launched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_spec: Option<Box<RunSpec>>,
    /// The GPUs that are held while it runs.
    #[serde(default)]
    pub leases: LeasePlan,
    /// How much of what its ranks print is kept.
    #[serde(default)]
    pub spool: Spool,
    /// How many free TCP ports it must offer: one for each rank, then those that the kind needs beside them.
    #[serde(default)]
    pub ports: u32,
    /// The rendezvous that its supervisor serves to the ranks of all hosts: on the host of rank 0 of a Horovod run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<RendezvousPlan>,
    /// Who starts the ranks where the supervisor doesn't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// How often the run was started before, by `--max-restarts`.
    #[serde(default)]
    pub attempt: u32,
}

impl HostRun {
    /// The containers in which its ranks are started.
    pub fn container(&self) -> Option<&ContainerOptions> {
        self.run_spec.as_ref()?.options.container.as_ref()
    }

    /// What is activated here before its ranks start.
    pub fn environment(&self) -> EnvironmentPlan {
        let spec = self.run_spec.as_ref();
        spec.and_then(|spec| spec.options.environments.get(&self.host)).cloned().unwrap_or_default()
    }

    /// The launcher whose own interpreter a rank's `python3` is.
    pub fn python_of(&self) -> Option<&str> {
        self.run_spec.as_ref()?.options.python_of.as_deref()
    }

    /// Whether hvtui's plugin is put into the NCCL of its ranks.
    pub fn wants_nccl_timings(&self) -> bool {
        self.run_spec.as_ref().is_some_and(|spec| spec.options.nccl_timings)
    }
}

/// One rank as the supervisor executes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSpec {
    /// The rank.
    pub rank: Rank,
    /// Program and arguments; `hvtui` as program means the agent's own binary.
    pub argv: Vec<String>,
    /// Variables added to the agent's environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables that are added where the agent's environment does not have them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<String, String>,
    /// Working directory; the home directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl RankSpec {
    /// Sets a variable unless the run or the hosts file has set it, or the host's own environment has it.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        if !self.env.contains_key(name) {
            self.defaults.insert(name.to_owned(), value.into());
        }
    }

    /// The same rank on a host whose environment has these variables: the defaults that hold there are set.
    #[must_use]
    pub fn on_host(&self, has: impl Fn(&str) -> bool) -> Self {
        let mut rank = self.clone();
        for (name, value) in std::mem::take(&mut rank.defaults) {
            if !has(&name) {
                rank.env.entry(name).or_insert(value);
            }
        }
        rank
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStage {
    /// Reaching the hosts.
    Connect,
    /// A folder is copied to the hosts.
    Sync,
    /// Every host checks that it can start its ranks; nothing has started.
    Prepare,
    /// Supervisors start the ranks.
    Start,
    /// Ranks look for each other.
    #[serde(rename = "meet")]
    Rendezvous,
    /// All ranks are connected; no step is done yet.
    FirstStep,
    /// Steps are being taken; for a plain job: it runs.
    Training,
    /// Being stopped.
    Stopping,
    /// Nothing of it runs any more.
    Ended,
}

impl RunStage {
    /// Short words for the stage line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Sync => "sync",
            Self::Prepare => "prepare",
            Self::Start => "start",
            Self::Rendezvous => "ranks meet",
            Self::FirstStep => "first step",
            Self::Training => "training",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }
}

/// Why a host refuses what is asked of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalClass {
    /// The command can't be started there, and reasons that an older agent gives without a class.
    #[default]
    Command,
    /// The host lacks what the run needs for now, such as a plan that is still fresh.
    Unavailable,
    /// Files there can't be written: no room on the disk, or a file system that is read only.
    Io,
    /// Slots are in use.
    Busy,
    /// Files or folders there are not safe or not allowed.
    Permission,
    /// A fault of hvtui.
    Fault,
    /// The run was stopped there before it could start.
    Unwanted,
    /// What is asked for can't be done as things are there: a person has to ask for something else, or to clear the place.
    Usage,
    /// The run is not known there.
    #[serde(other)]
    Unknown,
}

impl RefusalClass {
    /// Whether the host may do it later, as it is asked: something there is in the way.
    pub fn may_pass(self) -> bool {
        matches!(self, Self::Unavailable | Self::Io)
    }
}

/// The cause of the end of a rank whose control group the kernel had to take memory back from.
pub const OF_GROUP: &str = "out of memory (cgroup)";

/// Why a rank is lost whose host was started anew. When it ended is not known: it is told once the host is back.
pub const REBOOTED: &str = "the host was rebooted";

/// The first moment of a host's clock, which begins with its boot.
const BOOT: HostTime = HostTime(1);

/// How a rank's process ended, as its wrapper saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal number, when it was killed.
    pub signal: Option<i32>,
    /// When, on the host's clock.
    pub t: HostTime,
    /// Why it never ran, when it did not: `exec /x/y: no such file or directory`.
    pub error: Option<String>,
    /// Whether the supervisor had already told the rank to stop.
    pub stopped: bool,
    /// Why, where more is known than code or signal tell: `out of memory (cgroup)`, `the host was rebooted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

impl RankExit {
    /// Whether it is unknown how it ended: it is no success and no failure of its program.
    pub fn is_lost(&self) -> bool {
        self.code.is_none() && self.signal.is_none() && self.error.is_none()
    }

    /// Whether it went with its host, at a time that is not known.
    pub fn is_of_reboot(&self) -> bool {
        self.is_lost() && self.cause.as_deref() == Some(REBOOTED)
    }

    /// By when it had ended, on its host's clock: with the host, before the boot at which that clock begins, else when it was seen.
    pub fn ended_by(&self) -> HostTime {
        if self.is_of_reboot() { BOOT } else { self.t }
    }

    /// The code a shell would give: the exit code, or 128 + the signal. A rank of which no host has either was lost with
    /// its host, or never started there: no shell has a code for that.
    pub fn shell_code(&self) -> i32 {
        match (self.code, self.signal) {
            (Some(code), _) => code,
            (None, Some(signal)) => 128 + signal,
            (None, None) => i32::from(UNREACHABLE),
        }
    }

    /// `exit 3`, `killed by SIGKILL, out of memory (cgroup)`, `could not start: …`, `lost, the host was rebooted`.
    pub fn describe(&self) -> String {
        let how = match (&self.error, self.code, self.signal) {
            (Some(error), ..) => format!("could not start: {error}"),
            (None, Some(code), _) => format!("exit {code}"),
            (None, None, Some(signal)) => format!("killed by {}", signal_name(signal)),
            (None, None, None) => "lost".to_owned(),
        };
        match &self.cause {
            Some(cause) => format!("{how}, {cause}"),
            None => how,
        }
    }

    /// The same for a list of all ranks: `stopped` for one that went by the signal by which it was told to end, `stopped, killed by
    /// SIGKILL` for one that did not heed it.
    pub fn end_words(&self) -> String {
        let was_told = self.stopped && self.error.is_none() && self.cause.is_none();
        match self.shell_code() {
            143 if was_told => "stopped".to_owned(),
            137 if was_told => format!("stopped, {}", self.describe()),
            _ => self.describe(),
        }
    }
}

/// `SIGKILL` for 9, `signal 64` for those without a name.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// One line of the list of runs, read from its recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// What was asked for.
    pub spec: RunSpec,
    /// The stage of its last recorded event.
    pub stage: Option<RunStage>,
    /// When its last recorded event happened.
    pub last_at: Stamp,
    /// How it ended; `None` while it runs or when the recording stops before the end.
    pub outcome: Option<RunOutcome>,
    /// How far its training came; `None` before the first step, and where nothing told any.
    pub trained: Option<Trained>,
    /// Where its ranks stood behind its newest step.
    pub stood: Option<Stood>,
    /// Size of the recording in bytes.
    pub bytes: u64,
    /// What is wrong with the recording, in words: `cut at 1.2 M`, `2 damaged chunks`.
    pub damage: Option<String>,
    /// Whether a client on this machine makes it ready: no rank of it runs yet, or just now.
    pub is_made_ready: bool,
}

impl RunSummary {
    /// Where its ranks stood before its end, of a run that neither finished nor was imported: it hung.
    pub fn stood(&self) -> Option<(&Stood, Stamp)> {
        let outcome = self.outcome.as_ref()?;
        let may_have_hung = !outcome.is_success() && !self.spec.is_imported();
        let end = outcome.at.unwrap_or(self.last_at);
        self.stood
            .as_ref()
            .filter(|stood| may_have_hung && stood.for_us(end).is_some())
            .map(|stood| (stood, end))
    }
}

/// What all recordings of a machine take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRecordings {
    /// The folder that they lie in.
    pub folder: String,
    /// How many there are, those that can't be read too.
    pub count: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes that the file system has left for this user; `None` where it does not tell.
    pub free: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{rank_exit, rank_spec};

    #[test]
    fn one_place_of_each_host_has_the_longest_name() {
        let place = |host: &str, slots: &[u32]| {
            let mut slots = slots.iter().map(|index| Slot::Cpu { index: *index });
            Placement {
                rank: Rank(0),
                host: HostId::from(host),
                local_rank: 0,
                slot: slots.next().unwrap(),
                more: slots.collect(),
            }
        };
        let places = [
            place("a", &[0]),
            place("a", &[9, 1]),
            place("a", &[10, 2]),
            place("a", &[1000]),
            place("b", &[7]),
            place("b", &[3]),
            place("c", &[99]),
            place("c", &[100]),
        ];
        let names: Vec<String> =
            Placement::longest_of_hosts(places.iter()).into_iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a:10,2", "b:7", "c:100"]);
        for host in ["a", "b", "c"] {
            let of_host = places.iter().filter(|place| place.host.as_str() == host);
            let longest = of_host.map(|place| place.to_string().len()).max();
            assert!(names.iter().any(|name| name.starts_with(host) && Some(name.len()) == longest), "{host}");
        }
    }

    #[test]
    fn a_default_holds_where_nothing_else_is_said() {
        let mut rank = rank_spec(0);
        rank.env.insert("A".to_owned(), "run".to_owned());
        for name in ["A", "B", "C"] {
            rank.set_default(name, "default");
        }
        assert_eq!(rank.defaults.len(), 2, "the run's own counts");
        let there = rank.on_host(|name| name == "B");
        let env: Vec<(&str, &str)> = there.env.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(env, [("A", "run"), ("C", "default")], "the host has its own B");
        assert!(there.defaults.is_empty());
    }

    #[test]
    fn exit_codes_follow_the_shell() {
        let mut exit = rank_exit(3);
        assert_eq!((exit.shell_code(), exit.describe()), (3, "exit 3".to_owned()));
        exit.code = None;
        exit.signal = Some(9);
        assert_eq!((exit.shell_code(), exit.describe()), (137, "killed by SIGKILL".to_owned()));
        exit.stopped = true;
        assert_eq!(exit.end_words(), "stopped, killed by SIGKILL");
        let by_term = RankExit { signal: Some(15), ..exit.clone() };
        assert_eq!(by_term.end_words(), "stopped");
        assert_eq!(RankExit { stopped: false, ..by_term }.end_words(), "killed by SIGTERM");
        exit.cause = Some("out of memory (cgroup)".to_owned());
        assert_eq!(exit.describe(), "killed by SIGKILL, out of memory (cgroup)");
        assert_eq!(exit.end_words(), exit.describe());
        exit.signal = None;
        assert!(exit.is_lost());
        assert_eq!(exit.shell_code(), 69, "a lost rank is no success, and no command that is not there");
    }
}
