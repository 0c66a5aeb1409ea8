//! The whole state of the UI: the world as the event stream tells it, and one part per screen.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::alerts::Alert;
use crate::domain::filter::View;
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, RunId};
use crate::domain::playback::PlaybackState;
use crate::domain::retention::Retention;
use crate::domain::run::{RunSpec, RunSummary};
use crate::domain::run_status::RunInventory;
use crate::domain::time::Stamp;
use crate::domain::world::{RunState, World};
use crate::launch::again::HostsOption;
use crate::launch::request::LaunchRequest;
use crate::tui::core::{Level, Screen, Settings, Trail, Zone};
use crate::tui::screens::cluster::ClusterUi;
use crate::tui::screens::detail::DetailUi;
use crate::tui::screens::doctor::DoctorUi;
use crate::tui::screens::events::EventsUi;
use crate::tui::screens::faults::Acknowledged;
use crate::tui::screens::hosts::{HostEntry, Hosts};
use crate::tui::screens::launch::LaunchForm;
use crate::tui::screens::overlay::palette::Palette;
use crate::tui::screens::overlay::prompt::Prompt;
use crate::tui::screens::overlay::question::QuestionsUi;
use crate::tui::screens::overlay::report::ReportUi;
use crate::tui::screens::overlay::signal::{SignalUi, SignalsUi};
use crate::tui::screens::overlay::stacks::StacksUi;
use crate::tui::screens::overlay::toasts;
use crate::tui::screens::replay::ReplayUi;
use crate::tui::screens::run::RunUi;
use crate::tui::screens::run::marks::{MarksList, MarksUi};
use crate::tui::screens::runs::RunsUi;
use crate::tui::screens::runs::delete::Deletion;
use crate::tui::screens::users::UsersUi;

/// How long a notice stays on the screen, microseconds.
const TOAST_US: i64 = 8_000_000;
/// How many notices show at once.
const TOASTS: usize = 4;

/// Variables of this process. Their values are not for logs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} variables", self.0.len())
    }
}

/// Reads the words of `hvtui run …` as the command line does.
///
/// # Errors
/// In words: what is wrong, or what a form can't do.
pub type ReadRun = fn(&[String]) -> Result<LaunchRequest, String>;

/// Where hvtui was started: what paths of this machine count from, and how its command line is read.
#[derive(Debug, Clone)]
pub struct Here {
    /// The current folder.
    pub cwd: String,
    /// The user's home folder.
    pub home: String,
    /// How `hvtui run …` is read.
    pub read_run: ReadRun,
}

impl PartialEq for Here {
    fn eq(&self, other: &Self) -> bool {
        (&self.cwd, &self.home) == (&other.cwd, &other.home)
    }
}

impl Default for Here {
    fn default() -> Self {
        let read_run = |_: &[String]| Err("`hvtui run` is not read here".to_owned());
        Self { cwd: "/".to_owned(), home: "/".to_owned(), read_run }
    }
}

/// Whether the stream is live.
#[derive(Debug, Clone, PartialEq)]
pub enum Mode {
    /// The world is now.
    Live,
    /// The world is at a playhead.
    Replay(PlaybackState),
}

/// A short notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toast {
    /// How much it matters.
    pub level: Level,
    /// Its words.
    pub text: String,
    /// When it goes.
    pub until: Stamp,
    /// The alert that it tells: it goes once the screen shows that.
    pub alert: Option<Box<Alert>>,
}

/// A question that must be answered first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirm {
    /// Stop this run?
    Stop(RunId),
    /// Delete these recordings?
    Delete(Deletion),
}

/// What lies over the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys of the screen; the number is the first line shown.
    Help(usize),
    /// A question.
    Confirm(Confirm),
    /// A line of text is asked for.
    Prompt(Prompt),
    /// The commands of the screen.
    Palette(Palette),
    /// The stacks of a run's ranks.
    Stacks(StacksUi),
    /// The marks of a run.
    Marks(MarksList),
    /// The report of a run, or the comparison of two.
    Report(Box<ReportUi>),
    /// The chosen cell of the Doctor screen; the number is the first line shown.
    Verdict(usize),
    /// A signal to a process.
    Signal(Box<SignalUi>),
}

impl Overlay {
    /// Whether it takes the whole screen: the newest notice stands over it then.
    pub fn takes_all(&self) -> bool {
        matches!(self, Self::Report(_) | Self::Verdict(_))
    }
}

/// The state of the screens.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ui {
    /// The one that is shown.
    pub screen: Screen,
    /// Those from which it was opened.
    pub trail: Trail,
    /// What lies over it.
    pub overlay: Overlay,
    /// Whether something lay over it at the last click: the second press of a double click that closed it does nothing.
    pub was_covered: bool,
    /// What a person is asked.
    pub questions: QuestionsUi,
    /// Requests about signals.
    pub signals: SignalsUi,
    /// Notices that are shown, oldest first.
    pub toasts: VecDeque<Toast>,
    /// Up to when what happened to a GPU was acknowledged.
    pub acknowledged: Acknowledged,
    /// Cluster screen.
    pub cluster: ClusterUi,
    /// Detail screen.
    pub detail: DetailUi,
    /// Users screen.
    pub users: UsersUi,
    /// Launch screen.
    pub launch: LaunchForm,
    /// Run screen; Replay shares it.
    pub run: RunUi,
    /// Runs screen.
    pub runs: RunsUi,
    /// Replay screen.
    pub replay: ReplayUi,
    /// Marks of runs, on Run and Replay.
    pub marks: MarksUi,
    /// Doctor screen.
    pub doctor: DoctorUi,
    /// Looks of the doctor so far.
    pub looks: u64,
    /// Events screen.
    pub events: EventsUi,
}

impl Ui {
    /// The number of a look that is about to begin.
    pub(super) fn next_look(&mut self) -> u64 {
        self.looks += 1;
        self.looks
    }

    /// Opens a screen from the one that is shown: one level out comes back to that.
    pub(super) fn open(&mut self, to: Screen) {
        self.trail.opened(self.screen, to);
        self.screen = to;
    }

    /// Goes one level out: to the screen from which this one was opened.
    pub(super) fn back(&mut self) {
        self.screen = self.trail.out();
    }

    /// Shows one of the top screens; out of it leads nothing but the first.
    pub(super) fn go(&mut self, to: Screen) {
        self.trail = Trail::default();
        self.screen = to;
    }
}

/// Everything that a frame is drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What is known; of the recording, while one is shown.
    pub world: World,
    /// What is known of the hosts, while a recording is shown.
    pub away: Option<Box<World>>,
    /// The hosts of the hosts file, in its order.
    pub hosts: Hosts,
    /// The recipes of the hosts file, as what they launch.
    pub recipes: Vec<LaunchRequest>,
    /// The saved filters of the hosts file.
    pub views: Vec<View>,
    /// How long recordings are kept.
    pub retention: Retention,
    /// The variables of this process, for lines that take values from here.
    pub variables: Variables,
    /// Where hvtui was started.
    pub here: Here,
    /// `--hosts FILE` of the command line, for the commands in what is told.
    pub hosts_option: HostsOption,
    /// The recordings that exist, newest first.
    pub recordings: Vec<RunSummary>,
    /// What the hosts told of runs.
    pub inventory: RunInventory,
    /// When the hosts were last asked for their newest runs.
    pub asked_at: Stamp,
    /// What is kept between two starts.
    pub settings: Settings,
    /// Whether the hosts do not exist.
    pub demo: bool,
    /// Whether nothing may be changed on a host.
    pub readonly: bool,
    /// Whether the terminal shows ASCII alone: arrows are written as words.
    pub ascii: bool,
    /// Live or replay.
    pub mode: Mode,
    /// The latest moment heard of.
    pub now: Stamp,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// In which moments are told.
    pub zone: Zone,
    /// The screens.
    pub ui: Ui,
}

impl Model {
    /// The live UI over these hosts, on the Cluster screen.
    pub fn live(hosts: Vec<HostEntry>, now: Stamp, zone: impl Into<Zone>) -> Self {
        Self {
            world: World::default(),
            away: None,
            hosts: hosts.into(),
            recipes: Vec::new(),
            views: Vec::new(),
            retention: Retention::default(),
            variables: Variables::default(),
            here: Here::default(),
            hosts_option: HostsOption::default(),
            recordings: Vec::new(),
            inventory: RunInventory::default(),
            asked_at: now,
            settings: Settings::default(),
            demo: false,
            readonly: false,
            ascii: false,
            mode: Mode::Live,
            now,
            size: (80, 24),
            zone: zone.into(),
            ui: Ui::default(),
        }
    }

    /// The UI on a recording alone; leaving the replay leaves the program.
    pub fn replay(state: PlaybackState, now: Stamp, zone: impl Into<Zone>) -> Self {
        let mut model = Self::live(Vec::new(), now, zone);
        model.ui.screen = Screen::Replay;
        model.ui.replay.open = true;
        model.ui.replay.alone = true;
        model.mode = Mode::Replay(state);
        model
    }

    /// The moment that is shown: the playhead in a replay, else now.
    pub fn moment(&self) -> Stamp {
        match &self.mode {
            Mode::Live => self.now,
            Mode::Replay(state) => state.playhead,
        }
    }

    /// How exactly the clock of a host of a run is known at the moment that is shown, microseconds. Where its link is up, pings come;
    /// an import has one that holds for the whole run.
    pub fn clock_unsure_us(&self, host: &HostId, spec: &RunSpec) -> Option<u32> {
        let state = self.world.hosts.get(host)?;
        let is_up = !self.is_replay() && matches!(state.link, Some((_, LinkState::Up)));
        let behind = state.clock.host_time(self.moment()).filter(|_| !is_up && !spec.is_imported());
        behind.map_or_else(|| state.clock.uncertainty_us(), |time| state.clock.aged_us(time))
    }

    /// Whether a recording is shown.
    pub fn is_replay(&self) -> bool {
        matches!(self.mode, Mode::Replay(_))
    }

    /// What is known of the hosts.
    pub(super) fn live_world(&mut self) -> &mut World {
        self.away.as_deref_mut().unwrap_or(&mut self.world)
    }

    /// Shows a recording's world; that of the hosts goes on beside it.
    pub(super) fn show_recording(&mut self, world: World) {
        let before = std::mem::replace(&mut self.world, world);
        if self.away.is_none() && !self.ui.replay.alone {
            self.away = Some(Box::new(before));
        }
    }

    /// Shows the world of the hosts again.
    pub(super) fn leave_recording(&mut self) {
        if let Some(live) = self.away.take() {
            self.world = *live;
        }
    }

    /// The run of the Run and Replay screens: the chosen one, else the newest.
    pub fn shown_run(&self) -> Option<(&RunId, &RunState)> {
        self.ui
            .run
            .run
            .as_ref()
            .and_then(|id| self.world.runs.get_key_value(id))
            .or_else(|| self.world.runs.last_key_value())
    }

    /// All hosts: those of the hosts file in its order, then those that only the stream knows.
    pub fn host_order(&self) -> Vec<&HostId> {
        let mut order: Vec<&HostId> = self.hosts.iter().map(|entry| &entry.id).collect();
        order.extend(self.world.hosts.keys().filter(|id| self.hosts.of(id).is_none()));
        order
    }

    /// CPU slots that a host offers: those the hosts file gives it, else one a CPU where it has no GPU. 0
    /// before its agent has told.
    pub fn cpu_slots(&self, host: &HostId) -> u32 {
        let state = self.world.hosts.get(host).filter(|state| !state.is_limited());
        match (state.and_then(|state| state.info.as_ref()), self.configured_slots(host)) {
            (Some(info), None) if info.gpus.is_empty() => info.cpus,
            (Some(_), Some(slots)) => slots,
            _ => 0,
        }
    }

    /// CPU slots that the hosts file gives a host. Then no rank is placed on its GPUs.
    pub fn configured_slots(&self, host: &HostId) -> Option<u32> {
        self.hosts.of(host).and_then(|entry| entry.slots)
    }

    /// Columns and rows of the terminal that are the screen's: without the line of notices, while there is one.
    pub fn area(&self) -> (u16, u16) {
        (self.size.0, self.size.1.saturating_sub(toasts::rows(self, self.size)))
    }

    /// Shows a notice for a while, and keeps it for the Events screen.
    pub fn notice(&mut self, level: Level, text: impl Into<String>) {
        let text: String = text.into();
        let text = self.hosts_option.with(&text);
        self.ui.events.keep(self.now, level, &text);
        self.toast(level, text, None);
    }

    /// Shows a notice for a while, of what is told elsewhere too.
    pub(super) fn toast(&mut self, level: Level, text: String, alert: Option<Box<Alert>>) {
        self.ui.toasts.retain(|toast| toast.text != text);
        while self.ui.toasts.len() >= TOASTS {
            self.ui.toasts.pop_front();
        }
        self.ui.toasts.push_back(Toast { level, text, until: self.now.plus_micros(TOAST_US), alert });
    }

    /// Drops the notices whose time is over.
    pub fn expire(&mut self) {
        let now = self.now;
        self.ui.toasts.retain(|toast| toast.until > now);
    }
}
