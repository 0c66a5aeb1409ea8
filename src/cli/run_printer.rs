//! What `hvtui run` prints: ranks' lines on standard output and error, hvtui's own words on standard error.
//!
//! A fold of its own over the event stream: it is told events and the time, and gives lines. Does no I/O.

use std::collections::BTreeMap;

use super::again::with_hosts;
use super::hint::hint;
use super::log_line::Paint;
use super::run_table::{Mean, Means};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::hooks::StepsBy;
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::last_words;
use crate::domain::launcher_words::Messages;
use crate::domain::log::Stream;
use crate::domain::log_text;
use crate::domain::note::what;
use crate::domain::occupancy::WAIT_FOR_THEM;
use crate::domain::outcome::{RunEnd, restart_words};
use crate::domain::run::{Placement, RunStage};
use crate::domain::standstill::Standstill;
use crate::domain::text::{about, plain, sanitize};
use crate::domain::time::Stamp;
use crate::domain::trainer_keys::TrainerId;
use crate::domain::units::{bytes, duration_us, metric};
use crate::domain::world::{HostState, RankState, RunState, World};

/// A stage that lasts longer says whom it waits for.
const PATIENCE_US: i64 = 2_000_000;
/// A line of timings at most this often.
const TIMINGS_EVERY_US: i64 = 1_000_000;
/// The most letters of a failed rank's last line that are said again at the end.
const LAST_WORDS: usize = 300;
/// A host that has not answered for so long is lost, microseconds: a link that is cut for a moment is not worth a line.
const LOST_US: i64 = 5_000_000;
/// How long hosts may take after the first that tells of its collectives, microseconds.
const DIFFERING_US: i64 = 2_000_000;

/// A line and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// To standard output: what ranks print there.
    Out(String),
    /// To standard error: what ranks print there.
    Err(String),
    /// To standard error: hvtui's own words.
    Own(String),
    /// To standard error: how far the run is. A terminal shows the newest alone, in one place.
    Progress {
        /// The words.
        text: String,
        /// It is known by what the job prints, as its own bar tells it.
        is_read: bool,
    },
}

/// Follows one run.
///
/// What ranks print is made harmless for a terminal even when it goes into a pipe: behind `| tee` there is one.
#[derive(Debug, Default)]
pub struct RunPrinter {
    world: World,
    run: Option<RunId>,
    /// The first lines of a run whose GPUs are not held yet: another launch may be faster, and then it is none.
    untold: Vec<Line>,
    told_waiting: Option<(RunStage, Stamp)>,
    /// Since when the present stage waits for a rank or a host.
    waits_since: Option<Stamp>,
    /// By whom it was said that the steps are told.
    told_steps_by: StepsBy,
    /// The step in which it was said that the run stands still.
    told_standstill: Option<u64>,
    /// What was said of the collective in which its ranks differ, and since when there is something else to say.
    told_differing: (Vec<String>, Option<Stamp>),
    /// Hosts of which it was said that they are lost, and since when they are.
    told_lost: BTreeMap<HostId, Stamp>,
    last_timings: Option<(Stamp, u64)>,
    /// The straggler that was told of: which rank, after which step it was named.
    told_straggler: Option<(Rank, u64)>,
    /// What the steps were like of which this printer heard.
    means: Means,
    /// The last line of each rank on standard error that says something: of the one that failed it tells why.
    last_words: BTreeMap<Rank, String>,
    /// Which of their lines are their launcher's.
    launchers: BTreeMap<Rank, Messages>,
    /// `--verbose`: tell of links and processes too.
    verbose: bool,
    /// What colours there are for the ranks' lines.
    paint: Paint,
}

impl RunPrinter {
    /// With `verbose` it also tells how the hosts' links come and go and which processes the ranks are.
    pub fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// Goes on with a run that stands as `world` has it, empty where nothing is known of it.
    pub fn resumed(verbose: bool, run: &RunId, world: World) -> Self {
        let known = world.runs.contains_key(run);
        Self { run: known.then(|| run.clone()), world, verbose, ..Self::default() }
    }

    /// With the colours that the terminal shows.
    #[must_use]
    pub(crate) fn painted(self, paint: Paint) -> Self {
        Self { paint, ..self }
    }

    /// What has not ended yet, of the first rank that has such: one line or several rows. On a terminal it may be shown while
    /// nothing else is printed.
    pub fn unfinished(&self) -> Option<String> {
        let line = self.state()?.ranks.iter().find_map(|rank| rank.output.unfinished_lines().next())?;
        let label = self.rank_label(line.line.rank);
        let rows = log_text::rows(&line.line.text).map(|row| format!("[{label}] {}", log_text::plain(row)));
        Some(rows.collect::<Vec<_>>().join("\n"))
    }

    /// The run that is followed, once it exists.
    pub fn state(&self) -> Option<&RunState> {
        self.world.runs.get(self.run.as_ref()?)
    }

    /// The run that is followed is none, and its launch becomes another one.
    pub fn forget_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.world.runs.remove(&run);
        }
        self.untold.clear();
        (self.told_waiting, self.waits_since) = (None, None);
    }

    /// Takes one event in; gives the lines it causes. A run that takes GPUs is told of once these are held, or with the first words
    /// about it.
    pub fn event(&mut self, envelope: &Envelope) -> Vec<Line> {
        let lines = self.of_event(envelope);
        if matches!(envelope.event, Event::RunCreated { .. }) && self.may_be_none() {
            self.untold = lines;
            return Vec::new();
        }
        // of one that has ended the last words tell
        let has_ended = matches!(envelope.event, Event::RunEnded { .. });
        let goes_on = !lines.is_empty() || !self.may_be_none();
        if self.untold.is_empty() || has_ended || !goes_on {
            return lines;
        }
        self.behind_untold(lines)
    }

    /// The lines that tell of the run, where they were not told yet: what is said next is about it.
    pub fn first_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.untold)
    }

    /// These lines, behind those that tell of the run.
    fn behind_untold(&mut self, lines: Vec<Line>) -> Vec<Line> {
        let mut told = self.first_lines();
        told.extend(lines);
        told
    }

    /// Whether the run takes GPUs that are not known to be held for it: they are before its ranks start.
    fn may_be_none(&self) -> bool {
        self.state().is_some_and(|run| {
            let takes_gpus = run.spec.placements.iter().any(|place| place.gpus().next().is_some());
            takes_gpus && run.stage().is_none_or(|stage| stage < RunStage::Start)
        })
    }

    fn of_event(&mut self, envelope: &Envelope) -> Vec<Line> {
        let before = self.state().and_then(RunState::stage);
        self.world.apply(envelope);
        if let Event::StageEntered { stage, waiting_for } = &envelope.event {
            let since = self.waits_since.filter(|_| before == Some(*stage)).unwrap_or(envelope.at);
            self.waits_since = (!waiting_for.is_empty()).then_some(since);
        }
        match (&envelope.origin, &envelope.event) {
            (Origin::Run(run), Event::RunCreated { .. }) => {
                self.run = Some(run.clone());
                let code = self.state().filter(|_| self.verbose).and_then(|run| run.spec.code.as_ref());
                let code = code.map(|code| own(&format!("code: {}", code.words())));
                self.state().map(created).into_iter().chain(code).collect()
            }
            (Origin::Run(_), Event::RunRestarted { attempt, of, why, .. }) => {
                (self.told_straggler, self.last_timings) = (None, None);
                self.means = Means::default();
                vec![own(&restart_words(*attempt, *of, why))]
            }
            (Origin::Run(_), Event::Attached { since, .. }) => self.attached(*since, envelope.at),
            (Origin::Run(_), Event::StageEntered { stage: RunStage::Training, .. })
                if before != Some(RunStage::Training) =>
            {
                self.state().map(stages).into_iter().collect()
            }
            (Origin::Rank(_, rank), Event::LogPrinted { line }) => {
                let last = self.state().and_then(|run| run.ranks.get(rank.0 as usize)?.last_line.as_ref());
                let look = last.map(|last| (last.level, last.style)).unwrap_or_default();
                let painted = self.paint.line(line.stream, &line.text, look);
                let text = format!("[{}] {painted}{}", self.rank_label(*rank), line.cut_words());
                if line.stream == Stream::Stderr {
                    let said = log_text::plain(&line.text);
                    if self.is_own_word(*rank, &said) {
                        self.last_words.insert(*rank, said.chars().take(LAST_WORDS).collect());
                    }
                }
                vec![if line.stream == Stream::Stderr { Line::Err(text) } else { Line::Out(text) }]
            }
            (Origin::Rank(..) | Origin::Worker(..), Event::StepsBy { by }) => {
                self.steps_by(*by).into_iter().collect()
            }
            (Origin::Rank(_, rank), Event::JobDescribed { facts, .. }) if facts.off.is_some() => {
                vec![own(&format!("rank {rank} ({}): {}", self.place(*rank), facts.why_no_steps()))]
            }
            (Origin::Rank(..), Event::StepSeen { .. }) => self.seen(envelope.at).into_iter().collect(),
            (origin @ (Origin::Rank(_, rank) | Origin::Worker(_, rank, _)), Event::StepDone { timing }) => {
                let worker = if let Origin::Worker(_, _, worker) = origin { Some(*worker) } else { None };
                let together = self.state().filter(|run| !run.trainer_keys.is_apart());
                let count = together.map(RunState::step_tellers);
                self.means.take(TrainerId::new(*rank, worker), timing, count);
                self.stragglers().into_iter().chain(self.timings(envelope.at)).collect()
            }
            (Origin::Rank(_, rank), Event::RankExited { exit })
                if exit.shell_code() != 0 && !exit.stopped =>
            {
                vec![own(&format!("rank {rank} ({}): {}", self.place(*rank), exit.describe()))]
            }
            (Origin::Host(host), Event::LinkChanged { state }) if self.verbose => {
                vec![own(&about(host, &link_words(host, state)))]
            }
            (Origin::Rank(_, rank), Event::RankStarted { pid, .. }) if self.verbose => {
                vec![own(&format!("rank {rank} ({}): process {pid}", self.place(*rank)))]
            }
            (Origin::Rank(_, rank), Event::LogGap { gap }) => {
                vec![Line::Own(format!("[{}] {}", self.rank_label(*rank), gap.describe()))]
            }
            (Origin::Run(_), Event::RunNoted { host, note }) => vec![own(&about(host, &note.text))],
            (origin, Event::Gap { what, dropped }) if origin.run().is_some() => {
                vec![own(&format!("gap: {what} ({dropped})"))]
            }
            _ => Vec::new(),
        }
    }

    /// Looks at the time: says who is waited for when a stage lasts.
    pub fn tick(&mut self, now: Stamp) -> Vec<Line> {
        let lines = self.of_time(now);
        if lines.is_empty() { lines } else { self.behind_untold(lines) }
    }

    fn of_time(&mut self, now: Stamp) -> Vec<Line> {
        let differing = self.differing(now);
        if !differing.is_empty() {
            return differing;
        }
        let links = self.links(now);
        if !links.is_empty() {
            return links;
        }
        let Some(run) = self.state() else {
            return Vec::new();
        };
        if let Some(still) =
            Standstill::of(run, now).filter(|_| run.behind_us(&self.world.hosts, now).is_none())
        {
            // of ranks on hosts that are lost nothing is known
            let lost = run.by_host.keys().filter(|host| self.lost_since(host, now).is_some());
            let lost = lost.map(|host| {
                format!("; {} does not answer ({})", sanitize(host.as_str()), run.ranks_on(host))
            });
            let words = format!("{}{}", still.words(now), lost.collect::<String>());
            // once for each step
            let told = self.told_standstill.replace(still.step) == Some(still.step);
            return if told { Vec::new() } else { vec![own(&words)] };
        }
        let (Some(stage), Some(since)) = (run.stage(), self.waits_since) else {
            return Vec::new();
        };
        // of a host that does not answer since its last word, as in the line that says so
        let down = run.by_host.keys().filter_map(|host| self.world.hosts.get(host)?.down_since).min();
        let since = down.map_or(since, |down| down.min(since));
        let is_plain = stage == RunStage::Training && run.step().is_none();
        let name = if is_plain { "running" } else { stage.name() };
        let told = self
            .told_waiting
            .is_some_and(|(told, at)| told == stage && now.micros_since(at) < 5 * PATIENCE_US);
        if told || run.waiting_for.is_empty() || now.micros_since(since) < PATIENCE_US {
            return Vec::new();
        }
        let line = if is_read_out(run) {
            format!("{name}: reading the remaining output of {}", run.waiting_for)
        } else {
            let waited = duration_us(now.micros_since(since).unsigned_abs());
            format!("{name}: waiting {waited} for {}", run.waiting_for)
        };
        self.told_waiting = Some((stage, now));
        vec![own(&line)]
    }

    /// Since when a host is lost that has been so for long.
    fn lost_since(&self, host: &HostId, now: Stamp) -> Option<Stamp> {
        let since = self.world.hosts.get(host)?.down_since?;
        (now.micros_since(since) >= LOST_US).then_some(since)
    }

    /// Says once that a host of the run is lost, with its ranks, and once that it is back.
    fn links(&mut self, now: Stamp) -> Vec<Line> {
        let Some(run) = self.state().filter(|run| run.is_live()) else { return Vec::new() };
        let has_live = |ranks: &[Rank]| {
            let mut of = ranks.iter().filter_map(|rank| run.ranks.get(rank.0 as usize));
            of.any(|rank| rank.exit.is_none())
        };
        let (mut lines, mut told) = (Vec::new(), self.told_lost.clone());
        for (host, ranks) in run.by_host.iter() {
            let state = self.world.hosts.get(host);
            let of = run.ranks_on(host);
            if let Some(since) = self.lost_since(host, now).filter(|_| has_live(ranks)) {
                if told.insert(host.clone(), since).is_none() {
                    let why = state.and_then(|state| state.down_why.as_ref());
                    let why = why.map(|why| format!(": {}", plain(host, why))).unwrap_or_default();
                    let long = duration_us(now.micros_since(since).unsigned_abs());
                    lines.push(own(&about(host, &format!("no answer for {long} ({of}){why}"))));
                }
            } else if state.is_some_and(HostState::is_up)
                && let Some(since) = told.remove(host)
            {
                let long = duration_us(now.micros_since(since).max(0).unsigned_abs());
                lines.push(own(&about(host, &format!("answers again after {long} ({of})"))));
            }
        }
        self.told_lost = told;
        lines
    }

    /// Says once in which collective the ranks differ, when all hosts have told or had the time to.
    fn differing(&mut self, now: Stamp) -> Vec<Line> {
        let Some(words) = self.state().map(|run| run.collected.words().to_vec()) else { return Vec::new() };
        if words.is_empty() || words == self.told_differing.0 {
            self.told_differing.1 = None;
            return Vec::new();
        }
        let since = *self.told_differing.1.get_or_insert(now);
        if now.micros_since(since) < DIFFERING_US {
            return Vec::new();
        }
        let lines = words.iter().map(|words| own(&sanitize(words))).collect();
        self.told_differing = (words, None);
        lines
    }

    /// The last words about a run that has ended; how to replay it only where it `is_recorded` and a rank did anything. `width`:
    /// the columns of the terminal on which they are said. `exits_with`: the exit code of this command, where it is not that of
    /// the run.
    pub fn end(&self, is_recorded: bool, width: Option<usize>, exits_with: Option<u8>) -> Vec<Line> {
        let Some((run, outcome)) = self.state().and_then(|run| Some((run, run.outcome.as_ref()?))) else {
            return Vec::new();
        };
        // of one that has lost its GPUs its id means nothing
        let is_lost = outcome.end == RunEnd::Busy;
        let mut lines: Vec<Line> = self.untold.iter().filter(|_| !is_lost).cloned().collect();
        lines.extend(self.means.table(run, width).iter().map(|row| own(row)));
        let differing = Some(run.collected.words()).filter(|words| *words != self.told_differing.0);
        lines.extend(differing.into_iter().flatten().map(|words| own(&sanitize(words))));
        lines.extend(run.collectives_words().map(|[words, _]| own(&words)));
        let created = run.spec.created;
        let ended = outcome.at.unwrap_or(run.last_at);
        let took = duration_us(ended.micros_since(created).max(0).unsigned_abs());
        let exit = exits_with.map_or_else(|| outcome.words(&run.spec), |code| format!("exit {code}"));
        // a run that was on its GPUs before can't wait for them
        let is_late = outcome.end == RunEnd::Busy && outcome.is_refused();
        let remedy = if is_late { format!(": {WAIT_FOR_THEM}") } else { String::new() };
        lines.push(own(&with_hosts(&format!("{exit} after {took}: {}{remedy}", outcome.summary))));
        // one that could not start has said nothing: its last line is that of an engine's or a launcher's help
        let began = |root: &Rank| {
            let exit = run.ranks.get(root.0 as usize).and_then(|rank| rank.exit.as_ref());
            exit.is_none_or(|(_, exit)| exit.error.is_none())
        };
        let root = outcome.root.filter(began);
        if let Some((root, words)) = root.and_then(|root| Some((root, self.last_words.get(&root)?)))
            && run.spec.world() > 1
        {
            lines.push(own(&format!("the last line of rank {root}: {words}")));
        }
        lines.extend(hint(run, &self.world).map(|words| own(&words)));
        let did_anything =
            |rank: &RankState| rank.started.is_some() || rank.exit.is_some() || rank.last_line.is_some();
        if is_recorded && run.ranks.iter().any(did_anything) {
            lines.push(own(&format!("replay it: hvtui replay {}", run.spec.id.short())));
        }
        lines
    }

    /// Whether all ranks are gone, so that only what they printed is still to come.
    pub(crate) fn is_read_out(&self) -> bool {
        self.state().is_some_and(is_read_out)
    }

    /// The last words about a run that was stopped and whose ranks are gone, before all that they printed is read; `code` is the
    /// exit code of this command.
    pub(crate) fn unread_end(&self, now: Stamp, code: u8) -> Vec<Line> {
        let Some(run) = self.state() else { return Vec::new() };
        let took = duration_us(now.micros_since(run.spec.created).max(0).unsigned_abs());
        let rest = "what its ranks printed last is not read from the hosts, for nothing takes it";
        let rest = own(&format!("{rest}; hvtui logs {} prints it", run.spec.id.short()));
        vec![own(&format!("exit {code} after {took}: stopped")), rest]
    }

    /// Whether a line tells what happened to a rank, as its program has it: a traceback is told by its exception.
    fn is_own_word(&mut self, rank: Rank, said: &str) -> bool {
        let is_launchers = self.launchers.entry(rank).or_default().has(said);
        let output = self.state().and_then(|run| run.ranks.get(rank.0 as usize)).map(|rank| &rank.output);
        let is_part = output.is_some_and(|output| output.is_part(Stream::Stderr));
        !is_launchers && !is_part && last_words::tells(said)
    }

    /// A client attached to the run: how it stands here.
    fn attached(&self, since: Option<Stamp>, at: Stamp) -> Vec<Line> {
        let (Some(run), Some(since)) = (self.state(), since) else { return Vec::new() };
        let away = duration_us(at.micros_since(since).max(0).unsigned_abs());
        vec![created(run), own(&format!("attached; last followed here {away} ago"))]
    }

    /// Says once that a rank is a straggler, and once that it is no longer one.
    fn stragglers(&mut self) -> Vec<Line> {
        let Some(run) = self.state() else { return Vec::new() };
        let now = run.straggler().map(|now| (now.rank, now.named_at));
        if now == self.told_straggler {
            return Vec::new();
        }
        let mut lines = Vec::new();
        if let Some((rank, named_at)) = self.told_straggler {
            let over = run.stragglers.past().rfind(|past| (past.rank, past.named_at) == (rank, named_at));
            let step = over.and_then(|over| over.over_at).unwrap_or(named_at);
            let place = self.trainer_place(rank);
            lines.push(own(&format!("step {step}: rank {rank} ({place}) is no longer a straggler")));
        }
        if let Some(now) = run.straggler() {
            let (rank, place) = (now.rank, self.trainer_place(now.rank));
            lines.push(own(&format!("step {}: rank {rank} ({place}) {}", now.named_at, now.words())));
        }
        self.told_straggler = now;
        lines
    }

    fn timings(&mut self, at: Stamp) -> Option<Line> {
        let run = self.state()?;
        let step = run.step()?;
        match self.last_timings {
            Some((last, _)) if at.micros_since(last) < TIMINGS_EVERY_US => return None,
            Some((_, last_step)) if last_step == step => return None,
            _ => {}
        }
        let of = run.total_steps.map(|total| format!("/{total}")).unwrap_or_default();
        // a rank may be ahead of the step that all have taken
        let loss_of = |rank: &RankState| rank.recent_steps(usize::MAX).find(|told| told.step <= step)?.loss;
        let loss = loss_words(run.trainers().filter_map(|one| loss_of(one.state)));
        let line = format!("step {step}{of}{loss}  {}", Mean::of_run(run).text());
        self.last_timings = Some((at, step));
        Some(progress(&line, false))
    }

    /// Says once by whom the steps are told, where that is not the program.
    fn steps_by(&mut self, by: StepsBy) -> Option<Line> {
        if std::mem::replace(&mut self.told_steps_by, by) == by {
            return None;
        }
        let libraries =
            self.state()?.trainers().map(|trainer| trainer.libraries()).find(|words| !words.is_empty());
        let of = libraries.map_or_else(String::new, |words| format!(" ({words})"));
        (by == StepsBy::Hooks).then(|| own(&format!("steps by hooks{of}")))
    }

    /// How far the ranks are by what they print.
    fn seen(&mut self, at: Stamp) -> Option<Line> {
        let run = self.state()?;
        let step = run.step()?;
        if self
            .last_timings
            .is_some_and(|(last, told)| at.micros_since(last) < TIMINGS_EVERY_US || told == step)
        {
            return None;
        }
        let of = run.total_steps.map(|total| format!("/{total}")).unwrap_or_default();
        let loss = loss_words(run.trainers().filter_map(|one| one.state.loss()));
        self.last_timings = Some((at, step));
        Some(progress(&format!("step {step}{of}{loss}  read from the log"), true))
    }

    fn rank_label(&self, rank: Rank) -> String {
        let world = self.state().map_or(1, |run| run.spec.world());
        let width = world.saturating_sub(1).to_string().len();
        format!("{:>width$}", rank.0)
    }

    /// Where one that trains is, by its key.
    fn trainer_place(&self, key: Rank) -> String {
        self.place(self.state().map_or(key, |run| run.rank_of(key)))
    }

    fn place(&self, rank: Rank) -> String {
        let placement = self.state().and_then(|run| run.spec.placements.get(rank.0 as usize));
        placement.map(ToString::to_string).unwrap_or_default()
    }
}

/// Whether every rank that is waited for is gone, so that only what it printed is still to come.
fn is_read_out(run: &RunState) -> bool {
    let Some((begun, _)) = run.stages_of_attempt().first() else { return false };
    let gone = |host: &HostId| {
        run.notes.iter().any(|(at, of, note)| at >= begun && of == host && note.what == what::GONE)
    };
    let mut due = run.ranks.iter().filter(|rank| rank.exit.is_none()).map(|rank| &rank.placement.host);
    run.stage() == Some(RunStage::Stopping) && due.all(gone)
}

/// `  loss 0.1234`, of several that train the mean; nothing where none tells it.
fn loss_words(values: impl Iterator<Item = f32>) -> String {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    match count {
        0 => String::new(),
        1 => format!("  loss {}", metric(sum.into())),
        count => format!("  mean loss {}", metric((sum / count as f32).into())),
    }
}

fn link_words(host: &HostId, state: &LinkState) -> String {
    match state {
        LinkState::Connecting { to } => format!("connecting to {to}"),
        LinkState::Installing { bytes: size } => format!("putting hvtui there ({})", bytes(*size)),
        LinkState::Up => "up".to_owned(),
        LinkState::Limited { reason } => format!("takes no ranks: {}", plain(host, reason)),
        LinkState::Down { reason, .. } => format!("down: {}", plain(host, reason)),
        LinkState::Refused { reason, .. } => format!("refused: {}", plain(host, reason)),
    }
}

fn own(text: &str) -> Line {
    Line::Own(format!("hvtui: {}", sanitize(text)))
}

fn progress(text: &str, is_read: bool) -> Line {
    Line::Progress { text: format!("hvtui: {}", sanitize(text)), is_read }
}

fn created(run: &RunState) -> Line {
    let world = run.spec.world();
    let ranks = if world == 1 { "1 rank".to_owned() } else { format!("{world} ranks") };
    let places = places(&run.spec.placements);
    own(&format!("run {}  {}  {ranks} on {places}", run.spec.id.short(), run.spec.name))
}

/// `a:0 a:1 b:0-511`: three slots and more that follow each other are a range.
fn places(placements: &[Placement]) -> String {
    let follows = |a: &Placement, b: &Placement| {
        a.host == b.host && a.slot.index().checked_add(1) == Some(b.slot.index())
    };
    let mut words: Vec<String> = Vec::new();
    for block in placements.chunk_by(follows) {
        match block {
            [first, _, .., last] => words.push(format!("{first}-{}", last.slot.index())),
            few => words.extend(few.iter().map(ToString::to_string)),
        }
    }
    words.join(" ")
}

/// `prepare 0.1 s · start 0.1 s · …`: how long each stage took up to now.
fn stages(run: &RunState) -> Line {
    let spans = run.stages_of_attempt().windows(2).map(|pair| {
        let took = pair[1].0.micros_since(pair[0].0).unsigned_abs();
        format!("{} {}", pair[0].1.name(), duration_us(took))
    });
    own(&spans.collect::<Vec<_>>().join(" · "))
}

#[cfg(test)]
#[path = "run_printer_tests.rs"]
mod tests;
