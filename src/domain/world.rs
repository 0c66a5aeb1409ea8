//! The fold of the event stream: all that a screen can show, live or in a replay.
//!
//! Two properties are tested: folding from a clone ("checkpoint") equals folding from the start, and
//! folding what was read back from a recording equals the live fold.

mod glimpse;
mod lag;
mod rank;

pub use glimpse::Histories;
pub use lag::LastTold;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alerts::{Alerts, WorldView};
use super::bounded::push_bounded;
use super::collectives::Collected;
use super::event::{Envelope, Event, LOG, Origin};
use super::history::{Mark, RunHistory};
use super::hooks::{HookFacts, StepsBy};
pub use super::host_state::HostState;
use super::ids::{HostId, Rank, RunId};
use super::last_words::LastWords;
use super::log::{LogLine, Stream};
use super::log_text::level::Level;
use super::nccl_log::NcclFacts;
use super::nccl_timing::NcclTimings;
use super::note::{Note, what};
use super::outage::Change;
use super::outcome::{RunOutcome, before_end, restart_words};
use super::past::SlotValues;
use super::rank_output::RankOutput;
use super::recent_steps::{self, RecentSteps};
use super::run::{Placement, RankExit, RunSpec, RunStage};
pub use super::run_log::LoggedLine;
use super::run_log::RunLog;
use super::standstill::StalledPhase;
use super::step_totals::{StepTotals, Worked, rate_of_all};
use super::straggler::{Straggler, Stragglers};
use super::time::Stamp;
use super::timing::{SeenStep, StepTiming};
use super::trainer_keys::{TrainerId, TrainerKeys};
use super::trainers::Trainer;
use super::transfer::{self, LeastWait};
use super::waiting::Waiting;

/// How many samples of a host the history keeps: at 1 Hz, five minutes.
pub const SAMPLE_HISTORY: usize = 300;
/// Over how many of its newest steps a rank's speed is told.
const RATE_STEPS: usize = 50;

/// How many notes of a run are kept.
pub const NOTES: usize = 64;
/// How many metrics of a rank are kept: a job that makes up names for ever must not fill the memory.
pub const METRICS: usize = 256;
/// How many processes within a rank are told apart.
pub const WORKERS: usize = 64;

/// Everything known now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// Hosts by name.
    pub hosts: BTreeMap<HostId, HostState>,
    /// Runs by id, so by age.
    pub runs: BTreeMap<RunId, RunState>,
    /// Sequence number of the last envelope applied.
    pub last_seq: Option<u64>,
    /// What it tells by itself.
    pub alerts: Alerts,
}

/// What is known of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// What was asked for.
    pub spec: Arc<RunSpec>,
    /// Stages entered, in order, with the time.
    pub stages: Vec<(Stamp, RunStage)>,
    /// Who holds up the present stage.
    pub waiting_for: Waiting,
    /// One per rank, in rank order.
    pub ranks: Vec<RankState>,
    /// Recent lines of all ranks.
    pub log: RunLog,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// What its hosts had to say, newest last, each with the time of its arrival.
    pub notes: VecDeque<(Stamp, HostId, Arc<Note>)>,
    /// Steps the job intends to take.
    pub total_steps: Option<u64>,
    /// Ranks that the others wait for, now and before.
    pub stragglers: Stragglers,
    /// What parts the waits that hooks tell.
    least_wait: LeastWait,
    /// How long the collectives of NCCL take, and who comes last to them.
    pub collectives: NcclTimings,
    /// What its hosts told last of the collectives that its processes have called.
    pub collected: Collected,
    /// The latest moment of which it has told anything.
    pub last_at: Stamp,
    /// The attempt it is in, and how many there may be; (1, 1) unless it was started again.
    pub attempt: (u32, u32),
    /// Spans in which no client here followed it, and so recorded none of its hosts' telemetry.
    pub unattended: Vec<(Stamp, Stamp)>,
    /// A client attached to it, and its hosts still tell what happened meanwhile: how it stands is not known.
    pub is_behind: bool,
    /// What is kept of it from its start on.
    pub history: RunHistory,
    /// The ranks of each host, in rank order.
    pub by_host: Arc<BTreeMap<HostId, Vec<Rank>>>,
    /// Whether processes within ranks have told anything.
    has_workers: bool,
    /// By what those that train are kept.
    #[serde(default)]
    pub trainer_keys: TrainerKeys,
}

/// What is known of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankState {
    /// Where it runs.
    pub placement: Placement,
    /// Process id and arrival of the start.
    pub started: Option<(Stamp, u32)>,
    /// The job it says it is.
    pub job: Option<String>,
    /// How its gradients travel.
    pub transport: Option<String>,
    /// Ranks it waits for at the rendezvous.
    pub waits_for: Vec<Rank>,
    /// Whether it is connected with all others.
    pub met: bool,
    /// Recent steps, newest last, each with the time of its arrival.
    pub steps: RecentSteps,
    /// Steps reported in all.
    pub step_count: u64,
    /// Latest value of each metric.
    pub metrics: BTreeMap<String, f64>,
    /// Hash of the final weights.
    pub weights: Option<String>,
    /// What it prints now, and what its last lines say of the next.
    pub output: RankOutput,
    /// The last line it printed; of a line that has not ended yet, what there is of it.
    pub last_line: Option<Arc<LoggedLine>>,
    /// How it ended and when that was learnt.
    pub exit: Option<(Stamp, RankExit)>,
    /// What its slot told last while it ran.
    pub values: Option<SlotValues>,
    /// By whom its steps are told.
    pub steps_by: StepsBy,
    /// The phase in which it has been for a while, and since when.
    pub standing: Option<(Stamp, StalledPhase)>,
    /// How far it is by what it prints, where nothing tells its steps.
    pub seen: Option<SeenStep>,
    /// What NCCL says of itself in what it prints.
    pub nccl: NcclFacts,
    /// What hvtui's hooks in its Python have found out.
    pub hooks: HookFacts,
    /// The processes that train within it beside or instead of itself, by their number in their training; they have no
    /// workers themselves.
    pub workers: BTreeMap<u32, RankState>,
    /// What it printed last that tells why it ended.
    #[serde(default)]
    pub last_words: LastWords,
}

impl RunState {
    pub(crate) fn new(at: Stamp, spec: Arc<RunSpec>) -> Self {
        let ranks = spec.placements.iter().cloned().map(RankState::new).collect();
        let mut by_host: BTreeMap<HostId, Vec<Rank>> = BTreeMap::new();
        for (placement, number) in spec.placements.iter().zip(0..) {
            by_host.entry(placement.host.clone()).or_default().push(Rank(number));
        }
        Self {
            by_host: Arc::new(by_host),
            has_workers: false,
            trainer_keys: TrainerKeys::default(),
            history: RunHistory::new(at, spec.placements.len()),
            spec,
            stages: Vec::new(),
            waiting_for: Waiting::default(),
            ranks,
            log: RunLog::default(),
            outcome: None,
            notes: VecDeque::new(),
            total_steps: None,
            stragglers: Stragglers::default(),
            least_wait: LeastWait::default(),
            collectives: NcclTimings::default(),
            collected: Collected::default(),
            last_at: at,
            attempt: (1, 1),
            unattended: Vec::new(),
            is_behind: false,
        }
    }

    /// The stage it is in.
    pub fn stage(&self) -> Option<RunStage> {
        self.stages.last().map(|(_, stage)| *stage)
    }

    /// The least step that all of them have finished; `None` before the first.
    pub fn step(&self) -> Option<u64> {
        self.trainers().map(|trainer| trainer.state.step()).min().flatten()
    }

    /// Whether its ranks tell what a straggler is found by: all of them their waits, step by step.
    pub fn looks_for_stragglers(&self) -> bool {
        self.stragglers.has_waits()
    }

    /// The straggler now.
    pub fn straggler(&self) -> Option<&Straggler> {
        self.stragglers.now().filter(|_| !self.is_behind)
    }

    /// The last step that any of them has finished; `None` before the first.
    pub fn last_step(&self) -> Option<u64> {
        self.trainers().filter_map(|trainer| trainer.state.step()).max()
    }

    /// The stages of the attempt it is in.
    pub fn stages_of_attempt(&self) -> &[(Stamp, RunStage)] {
        let begins = self.stages.iter().rposition(|(_, stage)| *stage == RunStage::Prepare);
        let first = begins.filter(|_| self.attempt.0 > 1).unwrap_or_default();
        self.stages.get(first..).unwrap_or_default()
    }

    /// Whether it is still going on.
    pub fn is_live(&self) -> bool {
        self.outcome.is_none()
    }

    /// How many steps of each of its ranks stay in memory.
    fn steps_kept(&self) -> usize {
        recent_steps::kept(self.ranks.len())
    }

    /// How many steps of its ranks are in memory.
    pub fn steps_held(&self) -> usize {
        self.trainers().map(|one| one.state.steps.len()).sum()
    }

    fn rank_mut(&mut self, rank: Rank) -> Option<&mut RankState> {
        self.ranks.get_mut(rank.0 as usize)
    }
}

impl World {
    /// Takes one event in. Events about runs or ranks that were never created are ignored.
    pub fn apply(&mut self, envelope: &Envelope) {
        self.last_seq = Some(envelope.seq);
        self.miss(envelope);
        match &envelope.origin {
            Origin::Host(host) => {
                let state = self.hosts.entry(host.clone()).or_default();
                state.idle.after_us = self.alerts.rules.idle_after_us();
                let (lost, was_heard) = (state.down_since, state.heard.is_some());
                state.apply(envelope.at, &envelope.event);
                let change = Change::of(lost, was_heard, state, envelope.at);
                if matches!(envelope.event, Event::HostSampled { .. }) {
                    for run in self.runs.values_mut().filter(|run| run.is_live()) {
                        run.loaded(envelope.at, host, state);
                    }
                }
                if let Some(change) = change {
                    self.link_changed(host, change);
                }
            }
            Origin::Run(id) => {
                if let Event::RunCreated { spec } = &envelope.event {
                    let state = RunState::new(envelope.at, Arc::clone(spec));
                    self.runs.entry(id.clone()).or_insert(state);
                } else if let Some(run) = self.runs.get_mut(id) {
                    run.apply(envelope.at, &envelope.event);
                }
                if matches!(envelope.event, Event::RunEnded { .. } | Event::RunRestarted { .. }) {
                    self.forget_lag(id);
                }
            }
            Origin::Rank(id, rank) => {
                if let Some(run) = self.runs.get_mut(id) {
                    run.note_lag(&mut self.hosts, (id, *rank), envelope);
                    run.apply_rank(envelope.at, *rank, &envelope.event);
                }
            }
            Origin::Worker(id, rank, worker) => {
                if let Some(run) = self.runs.get_mut(id) {
                    run.note_lag(&mut self.hosts, (id, *rank), envelope);
                    run.apply_worker(envelope.at, *rank, *worker, &envelope.event);
                }
            }
        }
        self.alerts.take(WorldView { hosts: &self.hosts, runs: &self.runs }, envelope);
    }
}

impl RunState {
    fn apply(&mut self, at: Stamp, event: &Event) {
        self.last_at = self.last_at.max(at);
        match event {
            Event::StageEntered { stage, waiting_for } => {
                if self.stage() != Some(*stage) {
                    self.stages.push((at, *stage));
                }
                self.waiting_for.clone_from(waiting_for);
            }
            Event::Attached { since: Some(since), until } => {
                self.unattended.push((*since, until.unwrap_or(at)));
            }
            Event::RunNoted { host, note } => {
                if [what::JOINED, what::READING].contains(&note.what.as_str()) {
                    // It counts: the newest one tells all.
                    self.notes.retain(|(_, of, old)| of != host || old.what != note.what);
                }
                push_bounded(&mut self.notes, (at, host.clone(), Arc::new(note.clone())), NOTES);
            }
            Event::CollectivesTold { host, told } => {
                let ranks = self.spec.world();
                self.collected.take(at, host, (**told).clone(), ranks);
            }
            Event::RunRestarted { attempt, of, why, root } => self.restart(at, (*attempt, *of), why, *root),
            Event::RunEnded { outcome } => {
                before_end(&mut self.unattended, outcome.at.unwrap_or(at));
                if self.stage() != Some(RunStage::Ended) {
                    // the client may have learnt of it later
                    let exits = self.ranks.iter().map(|rank| rank.exit.as_ref().map(|(at, _)| *at));
                    let last = exits.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
                    let entered = self.stages.last().map_or(at, |(entered, _)| *entered);
                    self.stages.push((last.unwrap_or(at).max(entered).min(at), RunStage::Ended));
                }
                self.waiting_for = Waiting::default();
                self.outcome = Some(outcome.clone());
            }
            _ => {}
        }
    }

    /// Every rank begins anew; what was printed stays, and a line among it says where the attempt begins.
    fn restart(&mut self, at: Stamp, attempt: (u32, u32), why: &str, root: Rank) {
        self.attempt = attempt;
        self.history.mark(at, Mark::Restarted);
        self.stragglers = Stragglers::default();
        self.least_wait = LeastWait::default();
        self.collectives = NcclTimings::default();
        self.collected = Collected::default();
        self.waiting_for = Waiting::default();
        self.has_workers = false;
        self.trainer_keys = TrainerKeys::default();
        for rank in &mut self.ranks {
            let last_line = rank.last_line.take();
            *rank = RankState { last_line, ..RankState::new(rank.placement.clone()) };
        }
        let text = restart_words(attempt.0, attempt.1, why);
        let offset = self
            .log
            .iter()
            .rev()
            .find(|(_, old)| old.line.rank == root)
            .map_or(0, |(_, old)| old.line.offset);
        let line = LogLine { rank: root, stream: Stream::Stderr, offset, text, elided: 0, t: None };
        let level = Level::Warning;
        self.log.push(Arc::new(LoggedLine { gap: true, level, ..LoggedLine::alone(at, Arc::new(line)) }));
    }

    fn apply_rank(&mut self, at: Stamp, rank: Rank, event: &Event) {
        self.last_at = self.last_at.max(at);
        if let Event::LogGap { gap } = event {
            if let Some(rank) = self.rank_mut(rank) {
                rank.output.gap(gap.stream);
            }
            self.log.push(Arc::new(LoggedLine::of_gap(at, gap)));
            return;
        }
        if let Event::Gap { what, dropped } = event
            && what == LOG
        {
            // the recorder has left them out; whom they would have come from is told all the same
            let text = format!("{dropped} lines are not in the recording");
            let offset = self
                .rank_mut(rank)
                .and_then(|rank| rank.last_line.as_ref())
                .map_or(0, |last| last.line.offset);
            let line = LogLine { rank, stream: Stream::Stderr, offset, text, elided: 0, t: None };
            let level = Level::Warning;
            self.log.push(Arc::new(LoggedLine { gap: true, level, ..LoggedLine::alone(at, Arc::new(line)) }));
            return;
        }
        if let Event::LogPrinted { line } = event {
            let Some(rank) = self.rank_mut(rank) else {
                return self.log.push(Arc::new(LoggedLine::alone(at, Arc::clone(line))));
            };
            let logged = rank.output.line(at, line);
            rank.last_words.take(at, &logged, &rank.output);
            rank.nccl.push(&line.text);
            rank.last_line = Some(Arc::clone(&logged));
            self.log.push(logged);
            return;
        }
        match event {
            Event::JobDescribed { total_steps: Some(total), .. }
            | Event::StepSeen { seen: SeenStep { total: Some(total), .. } } => {
                self.total_steps = Some(*total);
            }
            _ => {}
        }
        let keep = self.steps_kept();
        if let Some(rank) = self.rank_mut(rank) {
            rank.apply(at, event, keep);
        }
        if let Event::RankExited { exit } = event {
            self.history.exit(at, rank, exit);
        }
        self.judge(at, rank.into(), event);
    }

    fn apply_worker(&mut self, at: Stamp, rank: Rank, worker: u32, event: &Event) {
        self.last_at = self.last_at.max(at);
        let keep = self.steps_kept();
        let id = TrainerId::new(rank, Some(worker));
        let Some(rank) = self.rank_mut(rank) else { return };
        // a collective alone makes no row
        let is_row = rank.workers.len() < WORKERS && !matches!(event, Event::CollectiveDone { .. });
        if is_row || rank.workers.contains_key(&worker) {
            let placement = &rank.placement;
            let worker = rank.workers.entry(worker).or_insert_with(|| RankState::new(placement.clone()));
            worker.apply(at, event, keep);
            self.has_workers = true;
            self.trainer_keys.key(id);
        }
        self.judge(at, id, event);
    }

    /// All have told this step: of what its hooks call waiting, that much was moving bytes.
    fn part(&mut self, step: u64, least: u64) {
        let ranks = self.ranks.iter_mut();
        let all = ranks.flat_map(|rank| {
            let (steps, by) = (&mut rank.steps, rank.steps_by);
            let workers = rank.workers.values_mut().map(|worker| (&mut worker.steps, worker.steps_by));
            std::iter::once((steps, by)).chain(workers)
        });
        for (steps, _) in all.filter(|(_, by)| *by == StepsBy::Hooks) {
            if let Some(timing) = steps.step_mut(step) {
                transfer::part(timing, least);
            }
        }
    }

    /// Samples a second of all together, over their newest steps.
    pub fn samples_per_second(&self) -> Option<f64> {
        let goes_on = |one: &Trainer<'_>| one.rank.exit.is_none();
        let is_over = !self.trainers().any(|one| goes_on(&one));
        // of those that train together one that has made the step in which the others are has ended with them
        let newest = self.trainers().filter(goes_on).filter_map(|one| one.state.step()).max();
        let newest = newest.filter(|_| !self.trainer_keys.is_apart());
        let ends = |one: &Trainer<'_>| newest.is_some() && one.state.step() >= newest;
        let counted = self.trainers().filter(|one| is_over || goes_on(one) || ends(one));
        let worked: Vec<Worked> = counted.map(|one| one.state.worked()).collect();
        rate_of_all(&worked)
    }

    /// How many tell each step.
    pub fn step_tellers(&self) -> usize {
        if self.has_workers { self.trainers().count() } else { self.ranks.len() }
    }

    /// Takes what one that trains has told into the search for stragglers.
    fn judge(&mut self, at: Stamp, id: TrainerId, event: &Event) {
        match event {
            Event::StepDone { timing } => {
                // it goes on
                self.collected = Collected::default();
                let count = self.step_tellers();
                let key = self.trainer_keys.key(id);
                if self.trainer_keys.is_apart() {
                    self.stragglers = Stragglers::default();
                } else {
                    self.stragglers.step(count, key, timing);
                    if let Some(least) = self.least_wait.step(count, timing) {
                        self.part(timing.step, least);
                    }
                }
                let late = self.stragglers.now().is_some();
                self.history.step(at, (key, count), timing, late);
            }
            Event::StepSeen { seen } => self.history.seen(at, seen, self.ranks.len()),
            Event::CollectiveDone { timing } => {
                let key = self.trainer_keys.known(id);
                self.collectives.take(key, timing);
                self.history.collective(at, key, timing);
            }
            Event::StepsBy { .. } => {
                self.stragglers = Stragglers::default();
                self.least_wait = LeastWait::default();
            }
            _ => {}
        }
    }
}

impl RankState {
    /// Takes an event in; `keep` steps stay.
    fn apply(&mut self, at: Stamp, event: &Event, keep: usize) {
        match event {
            Event::RankStarted { pid, .. } => self.started = Some((at, *pid)),
            Event::LogUnfinished { line } => {
                if let Some(logged) = self.output.unfinished(at, line) {
                    self.last_line = Some(logged);
                }
            }
            Event::JobDescribed { job, transport, facts, .. } => {
                self.job = Some(job.clone());
                self.transport = transport.clone().or(self.transport.take());
                self.hooks.add(facts);
            }
            Event::StepsBy { by } if *by != self.steps_by => {
                self.steps_by = *by;
                self.steps.clear();
                self.step_count = 0;
            }
            Event::RankWaits { ranks } => self.waits_for.clone_from(ranks),
            Event::RankConnected => {
                self.met = true;
                self.waits_for.clear();
            }
            Event::StepSeen { seen } if self.steps.is_empty() => {
                self.steps_by = StepsBy::Log;
                self.seen = Some(SeenStep { loss: seen.loss.or_else(|| self.seen?.loss), ..*seen });
            }
            Event::RankStands { standing }
                if self.latest_step().is_none_or(|last| last.step < standing.step) =>
            {
                let for_us = i64::try_from(standing.for_us).unwrap_or(i64::MAX);
                let standing = standing.told_after(self.standing.as_ref().map(|(_, before)| before));
                self.standing = Some((at.plus_micros(-for_us), standing));
            }
            Event::StepDone { timing } => {
                self.standing = self.standing.take().filter(|(_, standing)| standing.step > timing.step);
                if self.steps_by == StepsBy::Log {
                    self.steps_by = StepsBy::Program;
                }
                self.last_words.stepped(at, timing.step);
                self.steps.take((at, (**timing).clone()), keep);
                self.step_count += 1;
            }
            Event::MetricReported { name, value, .. }
                if self.metrics.len() < METRICS || self.metrics.contains_key(name) =>
            {
                self.metrics.insert(name.clone(), *value);
            }
            Event::JobDone { weights } => self.weights.clone_from(weights),
            Event::RankExited { exit } => {
                self.output = RankOutput::default();
                self.exit = Some((at, exit.clone()));
            }
            _ => {}
        }
    }
}
