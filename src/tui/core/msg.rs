//! What reaches the core from outside.

use crate::domain::ahead::TimelineAhead;
use crate::domain::analysis::{Place, RunAnalysis};
use crate::domain::collectives::HostCollectives;
use crate::domain::doctor::Matrix;
use crate::domain::event::{Envelope, Event};
use crate::domain::ids::{HostId, RunId};
use crate::domain::marks::RunMarks;
use crate::domain::phase_window::{PhasePart, PhaseWindow};
use crate::domain::playback::{FoundLine, PlaybackState};
use crate::domain::preflight::Finding;
use crate::domain::question::Question;
use crate::domain::recording_cost::RecordingCost;
use crate::domain::run::{KeptRecordings, RunSummary};
use crate::domain::run_status::RunInventory;
use crate::domain::signal::SignalAnswer;
use crate::domain::stacks::ProcessStacks;
use crate::domain::time::Stamp;
use crate::domain::world::{LoggedLine, RunState, World};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::tui::core::{Key, Mouse, ReportOf, Screen};
use std::sync::Arc;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Msg {
    /// The next event of the hosts, also while a recording is shown.
    Event(Envelope),
    /// The next event of the recording that is shown.
    Replayed(Envelope),
    /// The recording continues from another world: it was opened or sought in.
    Reset(Box<World>),
    /// How a run stands that the client attaches to: as it was known, then as it is once it has caught up.
    Resumed(Box<RunState>),
    /// A key was pressed.
    Key(Key),
    /// The mouse was used.
    Mouse(Mouse),
    /// The left button of the mouse was let go.
    Released,
    /// Text was pasted.
    Paste(String),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// It is this late.
    Tick(Stamp),
    /// The recordings that exist, newest first.
    RunsListed(Vec<RunSummary>),
    /// They can't be listed, and why.
    ListFailed(String),
    /// What these recordings take.
    RecordingsKept(KeptRecordings),
    /// What it costs to write those that are being written; `None` once there is none.
    RecordingCosts(Option<RecordingCost>),
    /// Answer to [`crate::tui::core::Effect::DeleteRuns`].
    RunsDeleted {
        /// Those that have no recording any more.
        gone: Vec<RunId>,
        /// Bytes that this freed.
        freed: u64,
        /// Those that could not be deleted, and why.
        failed: Vec<(RunId, String)>,
    },
    /// What the hosts have told of the runs that they know, so far.
    RunsHeard(Box<RunInventory>),
    /// Answer to [`crate::tui::core::Effect::Attach`]: the run's events follow.
    Attached(RunId),
    /// Answer to [`crate::tui::core::Effect::Preview`]: exactly one for each, in order.
    LaunchPlanned(Result<Arc<LaunchPlan>, LaunchError>),
    /// What a host found for the [`crate::tui::core::Effect::Preflight`] of this number.
    Preflight(u64, HostId, Vec<Finding>),
    /// What the look of this number at the hosts has found so far, and whether that is all.
    HostsChecked(u64, Box<Matrix>, bool),
    /// Answer to [`crate::tui::core::Effect::Launch`] and [`crate::tui::core::Effect::Start`].
    Launched(RunId),
    /// Another launch had slots of this run first: it is none, and its launch is answered once more.
    Withdrawn(RunId),
    /// The other one: nothing has started, and why.
    LaunchFailed(String),
    /// The text of a host file, or why there is none.
    HostFileRead(String, Result<String, String>),
    /// What is in a folder of this machine, sorted; folders end with `/`. Nothing where it can't be read.
    FolderListed(String, Vec<String>),
    /// A launch waits for GPUs that are in use, in these words.
    LaunchWaits(String),
    /// How far the folder of a run is on its way to the hosts, in these words.
    Syncing(RunId, String),
    /// An answer about a signal to processes.
    SignalTold {
        /// The request's number.
        number: u32,
        /// What was found or done.
        answer: SignalAnswer,
    },
    /// What the processes of a run are doing on a host.
    StacksTold {
        /// The run.
        run: RunId,
        /// The host.
        host: HostId,
        /// Each process of a rank that has not ended.
        of: Vec<ProcessStacks>,
        /// Why none could be asked.
        why: Option<String>,
        /// Whether those of every thread were asked for, where the host says so.
        threads: Option<bool>,
        /// Which collectives its processes have called.
        collectives: Box<HostCollectives>,
        /// Whether nothing more comes from the host.
        last: bool,
    },
    /// A person must answer something; [`crate::tui::core::Effect::Answer`] names the number.
    Asked(u64, Question),
    /// Something that a person should know.
    Notice(Level, String),
    /// Where the replay stands.
    Playback(PlaybackState),
    /// What can be told at once of where the replay is to stand: how the run began, what came last, and where its time went at some
    /// moments between. [`Msg::Reset`] follows with all of it.
    Glimpsed(Box<World>),
    /// How much of the recording up to where the replay is to stand is read, percent; [`Msg::Playback`] follows.
    ReadingOn(u8),
    /// What is printed after this moment, at which the replay stands: the first lines.
    LinesAhead(Stamp, Vec<Arc<LoggedLine>>),
    /// The line that was searched in the recording, to which the playhead goes; `None` where there is no such line.
    LineFound(Option<FoundLine>),
    /// Steps and samples after the playhead, up to the end of the timeline's window.
    TimelineAhead(Arc<TimelineAhead>),
    /// Where the time went in the timeline's window and around it, where its steps are too many to be told.
    PhaseWindow(Arc<PhaseWindow>),
    /// Answer to [`crate::tui::core::Effect::ReadClosely`] of this part: where the time went, as far as it is recorded by now; `None`
    /// where that can't be told.
    ReadClosely(RunId, PhasePart, Option<Arc<PhaseWindow>>),
    /// The recording could not be opened, and why.
    ReplayFailed(String),
    /// Answer to [`crate::tui::core::Effect::Analyze`] of this part: how far it is, then the figures.
    Analyzed {
        /// After this moment.
        from: Stamp,
        /// Up to and including this moment.
        to: Stamp,
        /// What is known.
        told: Analyzed,
    },
    /// Answer to [`crate::tui::core::Effect::Report`]: how far it is, then the words.
    ReportTold(ReportOf, Reported),
    /// The marks of a run as they are kept, or why they can't be read or changed.
    MarksTold(RunId, Result<Arc<RunMarks>, String>),
    /// The program is asked to end.
    Quit,
}

impl Msg {
    /// Whether it may wait for a tenth of a second to be seen: it comes often, and alone it changes numbers at most.
    pub fn is_calm(&self, screen: Screen) -> bool {
        let Self::Event(envelope) = self else { return false };
        let runs_are_shown = matches!(screen, Screen::Run | Screen::Replay);
        match envelope.event {
            Event::HostSampled { .. } | Event::ClockSampled { .. } | Event::LeasesTold { .. } => true,
            Event::StepDone { .. }
            | Event::StepSeen { .. }
            | Event::RankStands { .. }
            | Event::MetricReported { .. }
            | Event::CollectiveDone { .. }
            | Event::LogPrinted { .. }
            | Event::LogUnfinished { .. }
            | Event::ReportsRead { .. } => !runs_are_shown,
            _ => false,
        }
    }
}

/// The figures of a part of a recording.
#[derive(Debug, Clone, PartialEq)]
pub enum Analyzed {
    /// So many percent are read.
    Reading(u8),
    /// All is read.
    Done(Arc<RunAnalysis>),
    /// It can't be read, and why.
    Failed(String),
}

/// The figures of runs in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// So many percent are read.
    Reading(u8),
    /// The lines, and where in the run each of its findings can be seen.
    Done(Arc<str>, Vec<Option<Place>>),
    /// It can't be read, and why.
    Failed(String),
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Look.
    Warning,
    /// Act.
    Error,
}
