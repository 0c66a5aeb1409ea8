//! The live source: a recorded session, and the replay that a person opens beside it.
//!
//! While a replay is open the live stream goes on: it is recorded, and the UI folds it beside what it shows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::clock;
use crate::cluster::{Asked, Questions};
use crate::domain::alerts::AlertRules;
use crate::domain::doctor::Matrix;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::marks::MarkChange;
use crate::domain::preflight::{Finding, Mark};
use crate::domain::question::Answer;
use crate::domain::resume_point::Backfill;
use crate::domain::run::{RefusalClass, RunSpec};
use crate::domain::run_status::{HostRunStatus, RunInventory, is_on};
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::plan::LaunchPlan;
use crate::launch::request::LaunchRequest;
use crate::launcher::alerts::{AlertCommand, AlertObject};
use crate::launcher::session::{Output, Session};
use crate::record::Store;
use crate::tui::core::{Effect, Level, Look, Msg};
use crate::tui::source::called_off::take_launched;
use crate::tui::source::checkups::{Asking, Checkups, SoFar};
use crate::tui::source::cost::CostMeter;
use crate::tui::source::ended::{Ended, Finished, Troubles};
use crate::tui::source::files::{Filed, Files};
use crate::tui::source::finishing::Finishing;
use crate::tui::source::preflight::{self, Due, Preflights};
use crate::tui::source::recorded::{Recorded, Told};
use crate::tui::source::replay::Replay;
use crate::tui::source::resume::Resumed;
use crate::tui::source::tracing::Tracing;
use crate::tui::source::{EventSource, Left};
use crate::wire::message::{ListRuns, Refused};

/// How many runs of a host are asked for, to know which of its slots are taken.
const NEWEST: u32 = 32;

/// Live hosts and runs.
#[derive(Debug)]
pub struct Live {
    recorded: Recorded,
    store: Store,
    replay: Option<Replay>,
    inventory: RunInventory,
    /// Runs to attach to whose recordings are being opened.
    opening: BTreeSet<RunId>,
    /// What hosts have begun to tell of their runs: what they told before counts until that is all.
    parts: BTreeMap<HostId, Vec<HostRunStatus>>,
    files: Files,
    finishing: Finishing,
    tracing: Tracing,
    preflights: Preflights,
    checkups: Checkups,
    queue: VecDeque<Msg>,
    /// What ssh has to ask, and the answers that it waits for.
    questions: Questions,
    unanswered: BTreeMap<u64, oneshot::Sender<Answer>>,
    asked: u64,
    /// Launches that the screen does not follow.
    unseen: usize,
    /// What is executed for alerts.
    alerts: AlertCommand,
    /// When alerts of a replay are told.
    rules: Arc<AlertRules>,
    /// What recording costs.
    cost: CostMeter,
    /// What keeps what a look at all hosts has found, and the state folder.
    keeper: Option<(Keeper, PathBuf)>,
}

/// Keeps what a look at all hosts has found below the state folder. It must not block.
pub type Keeper = fn(&Path, &Matrix);

impl Live {
    /// Recordings may take so many bytes each; the recorder's own choice when `None`.
    #[must_use]
    pub fn with_max_recording(mut self, cap: Option<u64>) -> Self {
        self.recorded.limit(cap);
        self
    }

    /// The UI's source over `session`, with recordings below `state_dir`, which shows `questions`.
    pub fn new(session: Session, state_dir: &Path, questions: Questions) -> Self {
        Self {
            recorded: Recorded::new(session, state_dir),
            store: Store::new(state_dir),
            replay: None,
            inventory: RunInventory::default(),
            opening: BTreeSet::new(),
            parts: BTreeMap::new(),
            files: Files::new(Store::new(state_dir)),
            finishing: Finishing::default(),
            tracing: Tracing::new(),
            preflights: Preflights::default(),
            checkups: Checkups::default(),
            queue: VecDeque::new(),
            questions,
            unanswered: BTreeMap::new(),
            asked: 0,
            unseen: 0,
            alerts: AlertCommand::new(None),
            rules: Arc::default(),
            cost: CostMeter::default(),
            keeper: None,
        }
    }

    /// Has what a look at all hosts finds kept below this state folder.
    #[must_use]
    pub fn with_keeper(self, keeper: Keeper, state_dir: &Path) -> Self {
        Self { keeper: Some((keeper, state_dir.to_owned())), ..self }
    }

    /// Executes a command for each alert, and tells those of a replay by the same rules.
    #[must_use]
    pub fn with_alerts(mut self, command: AlertCommand, rules: Arc<AlertRules>) -> Self {
        self.recorded.keep_states(Arc::clone(&rules));
        Self { alerts: command, rules, ..self }
    }

    /// Launches something without a word on the screen, which stays where it is.
    pub fn launch_unseen(&mut self, request: LaunchRequest) {
        self.unseen += 1;
        self.recorded.session().launch(request);
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Output(output) => self.take_in(output),
            Told::CaughtUp(state) => self.queue.push_back(Msg::Resumed(state)),
        }
    }

    fn take_in(&mut self, output: Output) {
        let notices = self.tracing.take(&output);
        self.tell(notices);
        match output {
            Output::Event(envelope) => {
                if let Origin::Host(host) = &envelope.origin {
                    if matches!(envelope.event, Event::LinkChanged { .. }) {
                        // what it had begun to tell does not go on
                        self.parts.remove(host);
                    }
                    let asking = self.checkups.happened(host, &envelope.event);
                    self.check(asking);
                }
                self.queue.push_back(Msg::Event(*envelope));
            }
            Output::Compared(_)
            | Output::Traces(..)
            | Output::TracePiece(..)
            | Output::PastSamples { .. } => {}
            Output::Remark(text) => self.notice(Level::Info, text),
            Output::Reading(words, first) => {
                if first {
                    self.notice(Level::Info, words);
                }
            }
            Output::Syncing(run, progress) => self.queue.push_back(Msg::Syncing(run, progress.counts())),
            Output::Launched(_) if self.unseen > 0 => self.unseen -= 1,
            Output::Launched(run) => self.queue.push_back(Msg::Launched(run)),
            Output::LaunchFailed(error) => {
                self.unseen = self.unseen.saturating_sub(1);
                self.launch_failed(error.to_string());
            }
            Output::Withdrawn(run) => self.queue.push_back(Msg::Withdrawn(run)),
            Output::Waiting(why) => self.queue.push_back(Msg::LaunchWaits(why)),
            Output::Gone(run, host) => {
                self.notice(Level::Info, format!("nothing of run {} is left on {host}", run.short()));
            }
            Output::Found { host, shares, last } => {
                let parts = self.parts.entry(host.clone()).or_default();
                parts.extend(shares);
                if last {
                    let shares = self.parts.remove(&host).unwrap_or_default();
                    self.inventory.forget(&host);
                    self.inventory.take(&host, shares, true);
                    self.inventory.told_at.insert(host, clock::now());
                    self.queue.push_back(Msg::RunsHeard(Box::new(self.inventory.clone())));
                }
            }
            Output::Signal(told) => {
                let (number, answer) = (told.number, told.answer);
                self.queue.push_back(Msg::SignalTold { number, answer });
            }
            Output::Stacks { run, host, of, why, threads, collectives, last } => {
                self.queue.push_back(Msg::StacksTold { run, host, of, why, threads, collectives, last });
            }
            Output::Forgotten(run, host, None) => {
                if self.inventory.forget_run(&run, &host) {
                    self.queue.push_back(Msg::RunsHeard(Box::new(self.inventory.clone())));
                }
            }
            Output::Forgotten(run, host, Some(why)) => {
                self.notice(Level::Error, format!("run {} is not deleted on {host}: {why}", run.short()));
            }
            Output::Preflight(number, host, findings) => {
                self.preflights.answered(number, &host);
                self.queue.push_back(Msg::Preflight(number, host, findings));
            }
            Output::Checked(host, checked) => {
                let asking = self.checkups.told(&host, &checked);
                self.check(asking);
            }
            Output::Refused(Refused { run, host, class: RefusalClass::Unknown, .. }) => {
                let words = format!("run {} on {host}: nothing of it runs there", run.short());
                self.notice(Level::Info, words);
            }
            Output::Refused(Refused { run, host, reason, .. }) => {
                self.notice(Level::Error, format!("run {} on {host}: {reason}", run.short()));
            }
        }
        self.finishing.take(&mut self.recorded);
        self.tell_troubles();
    }

    fn finished(&mut self, finished: Finished) {
        self.recorded.finished(finished);
        self.tell_troubles();
    }

    fn tell_troubles(&mut self) {
        while let Some(trouble) = self.recorded.trouble() {
            self.notice(Level::Warning, trouble);
        }
        let now = clock::host_now();
        if self.cost.is_due(now) {
            let told = self.cost.look(now, self.recorded.statuses());
            self.queue.extend(told);
        }
    }

    fn ask(&mut self, asked: Asked) {
        match asked {
            Asked::Note(text) => self.notice(Level::Info, text),
            Asked::Question(question, sender) => {
                self.asked += 1;
                self.unanswered.insert(self.asked, sender);
                self.queue.push_back(Msg::Asked(self.asked, question));
            }
        }
    }

    fn tell(&mut self, notices: Vec<(Level, String)>) {
        self.queue.extend(notices.into_iter().map(|(level, text)| Msg::Notice(level, text)));
    }

    fn trace(&mut self, spec: &RunSpec) {
        let here = std::env::current_dir().unwrap_or_else(|_| "/tmp".into());
        let notices = self.tracing.begin(spec, self.recorded.session(), &here);
        self.tell(notices);
    }

    fn look_at_trace(&mut self, notices: Vec<(Level, String)>) {
        self.tell(notices);
        let notices = self.tracing.look(self.recorded.session());
        self.tell(notices);
    }

    fn notice(&mut self, level: Level, text: String) {
        self.queue.push_back(Msg::Notice(level, text));
    }

    fn open_replay(&mut self, run: &RunId) {
        let flush = self.recorded.flush(run);
        match Replay::open(&self.store.path_of(run), Arc::clone(&self.rules), flush) {
            Ok(replay) => self.replay = Some(replay),
            Err(error) => self.queue.push_back(Msg::ReplayFailed(error.to_string())),
        }
    }

    /// Changes the marks of a run and reads them, or reads them alone.
    fn mark(&mut self, run: RunId, change: Option<MarkChange>) {
        let asked = self.files.mark(run, change);
        self.unless(asked);
    }

    /// Opens the run's recording beside the loop: it may be long.
    fn attach(&mut self, spec: RunSpec) {
        if self.recorded.session().live_runs().contains(&spec.id) {
            self.recorded.look_again(&spec.id);
            self.queue.push_back(Msg::Attached(spec.id));
            return;
        }
        if let Some(text) = self.unnamed(&spec, "attach") {
            return self.notice(Level::Error, text);
        }
        // asked for twice, it comes once
        if !self.opening.insert(spec.id.clone()) {
            return;
        }
        let run = spec.id.clone();
        let asked = self.files.resume(spec, self.finishing.so_far());
        if asked.is_err() {
            self.opening.remove(&run);
        }
        self.unless(asked);
    }

    fn delete_runs(&mut self, runs: Vec<RunSpec>) {
        let session = self.recorded.session();
        let names = session.hosts().iter().map(|host| host.id.clone()).collect();
        for run in &runs {
            for (host, name) in self.inventory.keepers(run, &names) {
                session.forget(&run.id, &host, &name);
            }
        }
        let runs = runs.into_iter().map(|run| run.id).collect();
        let asked = self.files.delete(runs, self.finishing.so_far());
        self.unless(asked);
    }

    /// What to say of a run on hosts of which some can't be asked from here, and by which command.
    fn unnamed(&mut self, spec: &RunSpec, command: &str) -> Option<String> {
        let hosts = self.recorded.session().hosts();
        let mut absent = spec.hosts();
        absent.retain(|host| !hosts.iter().any(|entry| entry.id == *host));
        let why =
            format!("with another name here or none: from a shell, hvtui {command} {}", spec.id.short());
        (!absent.is_empty()).then(|| is_on(spec, &absent, &why))
    }

    /// Tells why files could not be asked for.
    fn unless(&mut self, asked: Result<(), String>) {
        if let Err(error) = asked {
            self.notice(Level::Error, error);
        }
    }

    /// Takes an answer of the files in.
    fn filed(&mut self, filed: Filed) {
        match filed {
            Filed::Listed(Ok((listing, kept))) => {
                for lost in listing.unreadable {
                    self.notice(Level::Warning, format!("run {}: {}", lost.run.short(), lost.reason));
                }
                self.queue.push_back(Msg::RecordingsKept(kept));
                self.queue.push_back(Msg::RunsListed(listing.runs));
            }
            Filed::Listed(Err(error)) => self.queue.push_back(Msg::ListFailed(error.to_string())),
            Filed::Deleted(gone, freed, faults) => {
                self.queue.push_back(Msg::RunsDeleted { gone, freed, failed: faults });
                let asked = self.files.list(self.finishing.so_far());
                self.unless(asked);
            }
            Filed::Resumed(spec, resumed) => self.attached(*spec, *resumed),
            Filed::Looked(_, Some(fault)) => {
                self.queue.push_back(Msg::LaunchPlanned(Err(LaunchError::usage(fault))));
            }
            Filed::Looked(request, None) => self.preview(&request),
            Filed::Launch(request) => self.recorded.session().launch(*request),
            Filed::Start(plan) => self.recorded.session().start_plan(*plan),
            Filed::HostFile(name, text) => self.queue.push_back(Msg::HostFileRead(name, text)),
            Filed::Told(told) => self.queue.push_back(*told),
            Filed::Folder(path, names) => self.queue.push_back(Msg::FolderListed(path, names)),
        }
    }

    fn attached(&mut self, spec: RunSpec, resumed: Resumed) {
        let run = spec.id.clone();
        self.opening.remove(&run);
        if let Some(outcome) = &resumed.resume_state.resume_point.outcome {
            let text = format!("run {} has ended: {}", run.short(), outcome.summary);
            self.notice(Level::Info, text);
            return self.list_runs();
        }
        let backfill = Backfill::after(&resumed.resume_state.resume_point);
        let shown = self.recorded.attach_shown(spec, resumed, backfill);
        self.queue.push_back(Msg::Resumed(Box::new(shown)));
        if self.replay.is_none() {
            self.queue.push_back(Msg::Attached(run.clone()));
        }
        self.mark(run, None);
    }

    fn list_runs(&mut self) {
        self.recorded.session().list_runs();
        if let Err(error) = self.files.list(self.finishing.so_far()) {
            self.queue.push_back(Msg::ListFailed(error));
        }
    }

    fn launch_failed(&mut self, why: String) {
        self.queue.push_back(Msg::LaunchFailed(why));
    }

    fn preflight(&mut self, due: Due) {
        match due {
            Due::Ask(number, plan) => self.recorded.session().preflight(&plan, number),
            Due::Silent(number, hosts) => {
                for host in hosts {
                    let text = format!("no answer in {} s", preflight::PATIENCE.as_secs());
                    let findings = vec![Finding::new(Mark::Unknown, text)];
                    self.queue.push_back(Msg::Preflight(number, host, findings));
                }
            }
        }
    }

    /// Asks hosts for checks.
    fn check(&mut self, asking: impl IntoIterator<Item = Asking>) {
        for questions in asking {
            self.recorded.session().check(clock::now(), questions);
        }
    }

    fn checked(&mut self, found: impl IntoIterator<Item = SoFar>) {
        for (number, matrix, is_over) in found {
            let is_whole = is_over && self.checkups.is_of_all(number);
            if let Some((keep, state)) = self.keeper.as_ref().filter(|_| is_whole) {
                keep(state, &matrix);
            }
            self.queue.push_back(Msg::HostsChecked(number, Box::new(matrix), is_over));
        }
    }

    fn look_at_hosts(&mut self, look: &Look) {
        let session = self.recorded.session();
        let hosts: Vec<HostId> = session.hosts().iter().map(|host| host.id.clone()).collect();
        let asking = self.checkups.begin(look, &hosts, &session.contexts(), session.world());
        self.check([asking]);
        let found = self.checkups.so_far();
        self.checked(found);
    }

    /// Its code is looked at first.
    fn start(&mut self, plan: LaunchPlan) {
        let finder = self.recorded.session().code_finder();
        if let Err(error) = self.files.look_and_start(plan, finder) {
            self.launch_failed(error);
        }
    }

    fn preview(&mut self, request: &LaunchRequest) {
        let planned = self.recorded.session().preview(request);
        self.queue.push_back(Msg::LaunchPlanned(planned.map(Arc::new)));
    }
}

/// What the replay that is open tells next; pending where none is. Cancel-safe.
async fn advance(replay: &mut Option<Replay>) -> Vec<Msg> {
    match replay {
        Some(replay) => replay.advance().await,
        None => std::future::pending().await,
    }
}

impl EventSource for Live {
    async fn next(&mut self, most: usize) -> Vec<Msg> {
        while self.queue.is_empty() {
            tokio::select! {
                messages = advance(&mut self.replay) => self.queue.extend(messages),
                told = self.recorded.next() => self.told(told),
                filed = self.files.next() => self.filed(filed),
                finished = self.finishing.next() => self.finished(finished),
                Some(asked) = self.questions.recv() => self.ask(asked),
                notices = self.tracing.next() => self.look_at_trace(notices),
                why = self.alerts.failure() => self.notice(Level::Warning, why),
                due = self.preflights.next() => self.preflight(due),
                (asking, found) = self.checkups.due() => {
                    self.check(asking);
                    self.checked(found);
                }
            }
        }
        for _ in 0..most {
            let Some(told) = self.recorded.try_next() else { break };
            self.told(told);
        }
        self.queue.drain(..).collect()
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Preview(request) => {
                // each request has its answer
                if let Err(error) = self.files.look(request) {
                    self.queue
                        .push_back(Msg::LaunchPlanned(Err(LaunchError::new(LaunchFault::Internal, error))));
                }
            }
            Effect::ListFolder(path) => {
                let asked = self.files.list_folder(path);
                self.unless(asked);
            }
            Effect::ReadHostFile(name) => {
                let asked = self.files.read_host_file(name);
                self.unless(asked);
            }
            Effect::Start(plan) => self.start(Arc::unwrap_or_clone(plan)),
            Effect::Launch(request) => {
                let finder = self.recorded.session().code_finder();
                if let Err(error) = self.files.look_and_launch(request, finder) {
                    self.launch_failed(error);
                }
            }
            Effect::LeaveQueue => {
                // nothing is told of the launches that are forgotten
                self.unseen = 0;
                let unread = take_launched(&mut self.queue);
                self.recorded.forget_launches(unread);
            }
            Effect::StopRun { run, now } => {
                if !self.recorded.session().stop(&run, now) {
                    self.notice(Level::Info, format!("run {} is over", run.short()));
                }
            }
            Effect::StopForeign { spec, now } => match self.unnamed(&spec, "stop") {
                Some(text) => self.notice(Level::Error, text),
                None => self.recorded.session().stop_foreign(&spec, now),
            },
            Effect::Trace(spec) => self.trace(&spec),
            Effect::Attach(spec) => self.attach(*spec),
            Effect::OpenReplay(run) => self.open_replay(&run),
            Effect::CloseReplay => self.replay = None,
            Effect::PlayThen(command) => {
                if let Some(replay) = &self.replay {
                    replay.play_then(command);
                }
            }
            Effect::Play(command) => {
                if let Some(replay) = &mut self.replay {
                    replay.play(command);
                }
            }
            Effect::ShowWindow(length) => {
                if let Some(replay) = &self.replay {
                    replay.show_window(length);
                }
            }
            Effect::FindLine(search) => {
                if let Some(replay) = &self.replay {
                    replay.find_line(search);
                }
            }
            Effect::Analyze { from, to } => {
                if let Some(replay) = &mut self.replay {
                    replay.analyze(from, to);
                }
            }
            Effect::ReadClosely(run, part) => self.files.read_closely(run, part),
            Effect::Mark(run, change) => self.mark(run, Some(change)),
            Effect::Report(of) => self.files.report(of),
            Effect::LeaveReport => self.files.leave_report(),
            Effect::ListRuns => self.list_runs(),
            Effect::CheckHosts(look) => self.look_at_hosts(&look),
            Effect::Preflight(number, plan) => self.preflights.ask(number, plan),
            Effect::DeleteRuns(runs) => self.delete_runs(runs),
            Effect::AskHosts => {
                self.recorded.session().list_some_runs(ListRuns { newest: NEWEST, oldest: 0 });
            }
            Effect::Answer(number, answer) => {
                if let Some(sender) = self.unanswered.remove(&number) {
                    // the connection may be gone meanwhile
                    let _ = sender.send(answer);
                }
            }
            Effect::Signal { host, number, request } => {
                self.recorded.session().signal(&host, number, request);
            }
            Effect::AskStacks { spec, threads } => self.recorded.session().ask_stacks(&spec, threads),
            Effect::Reconnect(host) => self.recorded.session().reconnect(&host),
            Effect::Acknowledge(until) => self.recorded.session().acknowledge(until),
            Effect::Alert(news, at) => {
                if let Some(dropped) = self.alerts.execute(AlertObject::of(&news, at)) {
                    self.notice(Level::Warning, dropped);
                }
            }
            Effect::Copy(_) | Effect::Save { .. } | Effect::Redraw | Effect::Suspend | Effect::Quit => {}
        }
    }

    fn leave(mut self) -> Left {
        let live = self.recorded.session().live_runs();
        // what the screen was not given any more
        let untold = self.queue.drain(..).filter_map(|msg| match msg {
            Msg::Notice(Level::Warning | Level::Error, text) => Some(text),
            _ => None,
        });
        let mut troubles: Vec<String> = untold.collect();
        troubles.extend(std::iter::from_fn(|| self.recorded.trouble()));
        self.recorded.close();
        self.finishing.take(&mut self.recorded);
        for (run, resumed) in self.files.leave() {
            if let Some(recorder) = resumed.recorder {
                self.finishing.finish(Ended::new(run, recorder, VecDeque::new(), Troubles::default()));
            }
        }
        Left { live, troubles, finishing: self.finishing }
    }
}
