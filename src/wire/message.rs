//! The messages and their numbers. A number is never used again for something else.

use serde::{Deserialize, Serialize};

pub use super::asked::{AskPreflight, AskStacks, Forgotten, Preflight, Stacks};
use super::chunk::{Chunk, Gap, Written};
use super::doctor::{AskChecks, Checked};
use super::gpu::GpuEventsTold;
use super::handshake::Hello;
use super::image::{ImageAsk, ImageTold};
use super::mesh::{MeshAsk, MeshTold};
pub use super::payload::MessageError;
use super::samples::PastSamples;
use super::signal::{SignalAsk, SignalTold};
use super::sync::{SyncAsk, SyncTold};
use super::trace::{Trace, TracePiece, Traces};
use super::upload::{BlobPiece, BlobsTaken};
use crate::domain::collectives::HostCollectives;
use crate::domain::container::ImageId;
use crate::domain::hooks::StepsBy;
use crate::domain::host::{HostInfo, HostSample};
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::late::Late;
use crate::domain::lease::Leases;
use crate::domain::log::Stream;
use crate::domain::note::Note;
use crate::domain::run::{HostRun, RankExit, RefusalClass};
use crate::domain::run_status::HostRunStatus;
use crate::domain::standstill::StalledPhase;
use crate::domain::time::{HostTime, Stamp};

/// Client to agent.
#[derive(Debug, Clone, PartialEq)]
pub enum ToAgent {
    /// First message of the client.
    Hello(Hello),
    /// Clock ping and heartbeat; answered by [`FromAgent::Pong`] at once.
    Ping(Ping),
    /// Send the facts once and a telemetry sample each interval from now on.
    Watch(Watch),
    /// Check that these ranks can be started and keep the plan; start nothing.
    Prepare(Box<HostRun>),
    /// Start what was prepared.
    Commit(Commit),
    /// Forget what was prepared; nothing has started.
    Abort(RunRef),
    /// Send the states of the run's ranks and every byte of their files from these offsets on, as they come.
    Follow(Follow),
    /// Stop the run's ranks on this host.
    Stop(Stop),
    /// Say which runs this host knows; answered by [`FromAgent::Runs`].
    ListRuns(ListRuns),
    /// Send no more of the runs' files than this; as much as the link takes where it was never said.
    Credit(Credit),
    /// Logins between hosts.
    Mesh(MeshAsk),
    /// Join or leave the queue for GPUs.
    Queue(Queue),
    /// Ask a run's ranks for a kernel trace.
    Trace(Trace),
    /// Say where the threads of a run's processes are; answered by [`FromAgent::Stacks`].
    AskStacks(AskStacks),
    /// Delete what a run that has ended has left on this host; answered by [`FromAgent::Forgotten`].
    Forget(RunRef),
    /// Look whether a launch could start here; answered by [`FromAgent::Preflight`].
    AskPreflight(Box<AskPreflight>),
    /// Copy a folder.
    Sync(SyncAsk),
    /// Copy a container image.
    Image(ImageAsk),
    /// A piece of a named content.
    BlobPiece(BlobPiece),
    /// A signal to processes, or which it would go to.
    Signal(SignalAsk),
    /// Make checks of the doctor; each answered by [`FromAgent::Checked`].
    AskChecks(AskChecks),
}

/// Agent to client.
#[derive(Debug, Clone, PartialEq)]
pub enum FromAgent {
    /// First message of the agent.
    Hello(Hello),
    /// Answer to a ping.
    Pong(Pong),
    /// The host's facts.
    Info(Box<HostInfo>),
    /// A telemetry sample.
    Sample(Box<Sampled>),
    /// All ranks of this host can start.
    Prepared(Prepared),
    /// What was asked for can't be done; nothing has started.
    Refused(Refused),
    /// The supervisor runs and owns the ranks.
    Started(RunRef),
    /// A rank's process runs.
    RankStarted(RankStarted),
    /// A rank's process ended.
    RankExited(RankExited),
    /// A rank's file has grown while it was watched; the piece follows.
    Written(Written),
    /// A piece of a rank's file.
    Chunk(Chunk),
    /// A part of a rank's file that will not be sent, in its place among the pieces.
    Gap(Gap),
    /// Every rank of this host has ended, all its bytes were sent, and nothing of the run is left here.
    Finished(RunRef),
    /// Runs that this host knows.
    Runs(Runs),
    /// Logins between hosts.
    Mesh(MeshTold),
    /// The host has something to say of a run.
    Noted(Noted),
    /// A process of a rank has been in one phase of a step for a while.
    Stands(Stands),
    /// Something happened to the host's GPUs.
    GpuEvents(GpuEventsTold),
    /// Who holds this host's GPUs and who waits for them; sent when it changes, before the sample that follows.
    Leases(Box<Leases>),
    /// How far the ranks are with a kernel trace.
    Traces(Traces),
    /// A piece of a kernel trace.
    TracePiece(TracePiece),
    /// Samples of the host that were taken while no client looked.
    PastSamples(PastSamples),
    /// Where the threads of a run's processes are.
    Stacks(Stacks),
    /// Which collectives the processes of a run have called, when it stands still or a rank has failed.
    Collectives(Box<Collectives>),
    /// What a run has left on this host is deleted, or is not.
    Forgotten(Forgotten),
    /// What a launch would find here.
    Preflight(Preflight),
    /// What a check of the doctor has found.
    Checked(Checked),
    /// How far the host is with a folder.
    Sync(SyncTold),
    /// How far the host is with a container image.
    Image(ImageTold),
    /// How much of an upload was taken.
    BlobsTaken(BlobsTaken),
    /// What a signal would hit, or what came of it.
    Signal(SignalTold),
}

/// A clock ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// The client's clock when it was written.
    pub t0: Stamp,
}

/// A clock ping's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// From the ping.
    pub t0: Stamp,
    /// Host's clock when the ping was read.
    pub t1: HostTime,
    /// Host's clock when this was written.
    pub t2: HostTime,
}

/// How often to sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Milliseconds between samples, at least 100.
    pub interval_ms: u64,
    /// Where the host's lease files lie; the host's own choice when absent.
    #[serde(default)]
    pub lease_dir: Option<String>,
}

/// A place in the queue for GPUs. It ends with the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its id: smaller ones come first.
    pub ticket: RunId,
    /// The name of the run that shall start.
    pub name: String,
    /// The GPUs that it may take; none to leave the queue.
    pub gpus: Vec<GpuUuid>,
    /// Where the host's lease files lie; the host's own choice when absent.
    #[serde(default)]
    pub lease_dir: Option<String>,
}

/// A telemetry sample and what was lost before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// The values.
    pub sample: HostSample,
    /// Samples dropped since the last one that was sent, because the link was slower than the sampler.
    #[serde(default)]
    pub dropped: u64,
}

/// One host's share of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRef {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
}

/// Starts what was prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Variables that are known only now or must not be stored: the rendezvous and the run's secret.
    pub late: Late,
    /// The attempt that was prepared.
    #[serde(default)]
    pub attempt: u32,
}

impl Commit {
    /// The secret values.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.late.secrets.values().map(String::as_str)
    }
}

/// From where to send a run's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Next byte wanted of each file; 0 for those not named.
    pub from: Vec<(Rank, Stream, u64)>,
    /// Send what is there now and then [`FromAgent::Finished`], whether the run goes on or not.
    #[serde(default)]
    pub once: bool,
    /// Of what the ranks have printed by now, send only about the last so many bytes of each file, and a gap for
    /// the rest: the present first. All of it when `None`. Reports always come whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Pass over what the client can't take in for minutes, with a gap in its place: the present and the end of the
    /// run count for more than every line of a flood.
    #[serde(default)]
    pub hurry: bool,
    /// With `hurry`: for how many seconds the client reads at most once the ranks have ended; a minute when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_s: Option<u64>,
    /// The attempt that the client has started, where it may start further ones: then it goes on where the last one
    /// ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The run is not wanted any more: it is stopped before it is followed, `true` with KILL at once, and no later attempt of it starts
    /// here. What is followed then is all there will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<bool>,
    /// Send the samples that the host has noted in the last so many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_us: Option<u64>,
    /// By whom the steps of each rank, and of the processes within it, are known to be told. For the client's own side
    /// of the link; it is not sent.
    #[serde(skip)]
    pub steps_by: Vec<(Rank, Option<u32>, StepsBy)>,
}

impl Follow {
    /// An offset behind the end of any file: for who wants to know how a rank ends, not what it printed.
    pub const NOTHING: u64 = 1 << 62;
}

/// How to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// KILL at once instead of TERM and grace.
    pub now: bool,
    /// Only this attempt or an earlier one: one that was started since goes on. Whatever runs when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Its owner does not want the run any more: no later attempt of it starts here.
    #[serde(default)]
    pub whole: bool,
    /// Nothing takes what the ranks print: once they have ended, all but the end of it is passed over, with a gap in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unread: bool,
}

/// Which runs to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListRuns {
    /// At most so many, the newest, and all live ones; 0 for [`Self::MOST`].
    #[serde(default)]
    pub newest: u32,
    /// So many of the oldest beside them, at most [`Self::MOST`].
    #[serde(default, skip_serializing_if = "is_none")]
    pub oldest: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl ListRuns {
    /// Both questions in one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let all = self.newest == 0 || other.newest == 0;
        let newest = if all { 0 } else { self.newest.max(other.newest) };
        Self { newest, oldest: self.oldest.max(other.oldest) }
    }

    /// The most runs that an agent tells of each end, but for live ones; others have to be named.
    pub const MOST: usize = 500;
}

/// Runs of a host: the newest, newest first, then older ones that are live or among the oldest that were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// Some of them.
    pub shares: Vec<HostRunStatus>,
    /// Whether these were the last.
    pub last: bool,
}

/// How much of the runs' files may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Bytes of [`Chunk::data`], counted from the link's beginning over all runs, after which to wait. The piece that
    /// crosses the line may still be sent. It only grows.
    pub until: u64,
}

/// A host is ready to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// TCP ports that are free there, as many as [`HostRun::ports`].
    pub ports: Vec<u16>,
    /// The image of its containers, where its ranks are started in some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageId>,
}

/// Why something can't be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// The rank it is about, if one.
    pub rank: Option<Rank>,
    /// Lowercase sentence with the remedy.
    pub reason: String,
    /// What kind of reason it is.
    #[serde(default)]
    pub class: RefusalClass,
    /// Whether it is that the GPUs are in use: the same may be possible later.
    #[serde(default)]
    pub busy: bool,
}

/// A rank's process runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStarted {
    /// The run.
    pub run: RunId,
    /// The rank.
    pub rank: Rank,
    /// Its process id.
    pub pid: u32,
    /// When.
    pub t: HostTime,
}

/// A rank's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExited {
    /// The run.
    pub run: RunId,
    /// The rank.
    pub rank: Rank,
    /// How.
    pub exit: RankExit,
}

/// What a host has to say of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// Which of this host's notes about the run, from 0: they are all sent again after each [`Follow`].
    pub number: u64,
    /// The note.
    pub note: Note,
}

impl Noted {
    /// The number of a note that is said once: it stands in no file.
    pub const UNNUMBERED: u64 = u64::MAX;

    /// What a host has to say of this run.
    pub fn of(about: &RunRef, number: u64, note: Note) -> Self {
        Self { run: about.run.clone(), host: about.host.clone(), number, note }
    }
}

/// Where a process that trains stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stands {
    /// The run.
    pub run: RunId,
    /// The rank.
    pub rank: Rank,
    /// The process within it that is not the rank itself, by its number in the training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// In which phase, and for how long.
    #[serde(flatten)]
    pub standing: StalledPhase,
}

/// Which collectives the processes of a run on one host have called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collectives {
    /// The run.
    pub run: RunId,
    /// The host's name in it.
    pub host: HostId,
    /// What they told.
    pub told: HostCollectives,
}
