//! What the core asks of the world outside, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::alerts::News;
use crate::domain::doctor::{RunPort, RunProgram, SamePath};
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::marks::MarkChange;
use crate::domain::needs::InImage;
use crate::domain::phase_window::PhasePart;
use crate::domain::playback::LineSearch;
use crate::domain::question::Answer;
use crate::domain::run::RunSpec;
use crate::domain::signal::SignalRequest;
use crate::domain::sync::SyncPlan;
use crate::domain::time::Stamp;
use crate::launch::plan::LaunchPlan;
use crate::launch::request::LaunchRequest;

/// A look of the doctor at hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its number.
    pub number: u64,
    /// What it is for: of each there is one at a time, and a new one takes the place of the old.
    pub of: LookOf,
}

/// What a look is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookOf {
    /// All hosts, by all checks.
    All,
    /// The hosts of a launch, by what it rests on.
    Plan {
        /// The hosts.
        hosts: Vec<HostId>,
        /// The checks, by name.
        checks: Vec<&'static str>,
        /// The variables that checks judge and that the launch gives its ranks, by host.
        given: BTreeMap<HostId, BTreeMap<String, String>>,
        /// The working directory of its ranks, by host; `None` for the home folder.
        workdirs: BTreeMap<HostId, Option<String>>,
        /// The image that its ranks run in.
        image: Option<String>,
        /// The GPUs that it would use, by host.
        uses: BTreeMap<HostId, BTreeSet<GpuUuid>>,
        /// By what its ranks agree, of a launch by Horovod.
        controller: Option<&'static str>,
        /// The ports that it takes, by host.
        ports: BTreeMap<HostId, Vec<RunPort>>,
    },
    /// The image of a launch, in a container on each host: begun when nothing is typed for a moment.
    Image {
        /// The hosts.
        hosts: Vec<HostId>,
        /// What is looked for.
        inside: InImage,
        /// The GPUs that it would use, by host.
        uses: BTreeMap<HostId, BTreeSet<GpuUuid>>,
        /// By what its ranks agree, of a launch by Horovod.
        controller: Option<&'static str>,
        /// The Python that it would use, by host.
        runs: BTreeMap<HostId, RunProgram>,
        /// The folder that is copied first, and the command, whose script lies in it here.
        synced: Option<(SyncPlan, Vec<String>)>,
    },
    /// The hosts of a launch, by the files that its command names.
    Files {
        /// The hosts.
        hosts: Vec<HostId>,
        /// Files and folders that are compared, by host.
        paths: BTreeMap<HostId, Vec<SamePath>>,
        /// The checks that read them, by name.
        checks: Vec<&'static str>,
        /// The Python that it would use, by host.
        runs: BTreeMap<HostId, RunProgram>,
        /// The folder that is copied first, and the command, whose script lies in it here.
        synced: Option<(SyncPlan, Vec<String>)>,
    },
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Say what this launch would execute; answered by [`crate::tui::core::Msg::LaunchPlanned`].
    Preview(LaunchRequest),
    /// Ask the hosts of this plan what the launch would find there, under this number; each is answered by
    /// [`crate::tui::core::Msg::Preflight`].
    Preflight(u64, Arc<LaunchPlan>),
    /// Read this host file, which a launcher's line names; answered by [`crate::tui::core::Msg::HostFileRead`].
    ReadHostFile(String),
    /// List this folder of this machine; answered by [`crate::tui::core::Msg::FolderListed`].
    ListFolder(String),
    /// Start this plan as it was shown; answered by [`crate::tui::core::Msg::Launched`] or a notice.
    Start(Arc<LaunchPlan>),
    /// Start this as soon as its GPUs are free; answered likewise.
    Launch(LaunchRequest),
    /// Forget the launches that wait for GPUs.
    LeaveQueue,
    /// Stop a run that is followed here.
    StopRun {
        /// Which.
        run: RunId,
        /// Kill at once instead of TERM and grace.
        now: bool,
    },
    /// Stop a run that another client launched, also one of which nothing runs just now.
    StopForeign {
        /// Which.
        spec: Arc<RunSpec>,
        /// Kill at once instead of TERM and grace.
        now: bool,
    },
    /// Trace the kernels of a run that goes on; notices say how far that is and where the file lies.
    Trace(Arc<RunSpec>),
    /// Open a run's recording; answered by a reset and a playback state.
    OpenReplay(RunId),
    /// Close the recording.
    CloseReplay,
    /// Move the replay.
    Play(PlayCommand),
    /// Move the replay that is being opened, once all of it is read; nothing where it is moved elsewhere before.
    PlayThen(PlayCommand),
    /// The timeline of the replay is so long, microseconds: what lies after the playhead is told as far as that shows it, by
    /// [`crate::tui::core::Msg::TimelineAhead`]; where its steps are too many for that, or older than those in memory, where their
    /// time went, by [`crate::tui::core::Msg::PhaseWindow`].
    ShowWindow(i64),
    /// Read from the recording of this run, which is followed here, where its time went in this part; answered by
    /// [`crate::tui::core::Msg::ReadClosely`], unless another part is asked for before.
    ReadClosely(RunId, PhasePart),
    /// Go to a line of the recording that is shown, wherever it lies; answered by [`crate::tui::core::Msg::LineFound`].
    FindLine(Box<LineSearch>),
    /// Tell the figures of what the recording that is shown has after `from`, up to and including `to`; answered by
    /// [`crate::tui::core::Msg::Analyzed`], unless another part is asked for before.
    Analyze {
        /// After this moment.
        from: Stamp,
        /// Up to and including this moment.
        to: Stamp,
    },
    /// Look at hosts for what makes runs fail; answered by several [`crate::tui::core::Msg::HostsChecked`].
    CheckHosts(Look),
    /// Tell the figures of a run, or two side by side, in words; answered by [`crate::tui::core::Msg::ReportTold`].
    Report(ReportOf),
    /// That is not wanted any more.
    LeaveReport,
    /// Change the marks of this run, which are kept beside its recording; answered by
    /// [`crate::tui::core::Msg::MarksTold`].
    Mark(RunId, MarkChange),
    /// List the recordings, and ask the hosts for the runs that they know.
    ListRuns,
    /// Delete the recordings of these runs; answered by [`crate::tui::core::Msg::RunsDeleted`].
    DeleteRuns(Vec<RunSpec>),
    /// Ask the hosts for their newest runs.
    AskHosts,
    /// Attach to a run that goes on on its hosts, or has ended since its recording stopped; answered by
    /// [`crate::tui::core::Msg::Attached`] or a notice.
    Attach(Box<RunSpec>),
    /// Ask a host about a signal to its processes, or for it; [`crate::tui::core::Msg::SignalTold`] of this number comes.
    Signal {
        /// The host.
        host: HostId,
        /// The request's number.
        number: u32,
        /// What is asked.
        request: SignalRequest,
    },
    /// Ask where the threads of this run's processes are; [`crate::tui::core::Msg::StacksTold`] comes from each of its hosts.
    AskStacks {
        /// Of which run.
        spec: Arc<RunSpec>,
        /// Of every thread, not of the main ones alone.
        threads: bool,
    },
    /// Try this host again now.
    Reconnect(HostId),
    /// Up to when the events of each GPU were acknowledged: launches go by it, too.
    Acknowledge(BTreeMap<GpuUuid, Stamp>),
    /// The answer to the question of this number.
    Answer(u64, Answer),
    /// Execute the alerts' command of the hosts file, if it names one: an alert has begun or ended.
    Alert(Box<News>, Stamp),
    /// Put a text on the clipboard.
    Copy(String),
    /// Write a text into a new file of this name, or one like it; a notice says where, or why not.
    Save {
        /// The file's name.
        name: String,
        /// What stands in it.
        text: String,
        /// What it is, for the notice: `12 lines`.
        what: String,
    },
    /// Draw the whole screen again: something else wrote on it.
    Redraw,
    /// Stop the program as a job of its shell, until that continues it; runs go on.
    Suspend,
    /// Leave the program; runs go on.
    Quit,
}

/// Whose figures are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportOf {
    /// Those of a run.
    Run(RunId),
    /// Those of two beside each other.
    Both(RunId, RunId),
}

impl ReportOf {
    /// The runs.
    pub fn runs(&self) -> Vec<&RunId> {
        match self {
            Self::Run(run) => vec![run],
            Self::Both(a, b) => vec![a, b],
        }
    }
}

/// How to move a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayCommand {
    /// Play or pause.
    Toggle,
    /// Move by this many microseconds, back when negative.
    SeekBy(i64),
    /// Move to this moment; what happened at it has happened there.
    SeekTo(Stamp),
    /// Move to where the run has so many lines, the last of which was printed by this moment.
    ToLine(Stamp, u64),
    /// Move by this many training steps, back when negative.
    StepBy(i64),
    /// Move to where the run had finished this training step.
    ToStep(u64),
    /// Play faster.
    SpeedUp,
    /// Play slower.
    SlowDown,
    /// Move to the first moment.
    ToStart,
    /// Move to the last moment.
    ToEnd,
    /// Play what is recorded as it comes, from the last moment on.
    Follow,
}
