//! `hvtui logs`: the lines that a run's ranks printed, from its recording and from its hosts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::cli::args::LogsArgs;
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, note, to_stdout, written};
use crate::cli::find::{Found, find, recorded};
use crate::cli::held_lines::{Date, HeldLines};
use crate::cli::log_line::Paint;
use crate::cli::paths::Paths;
use crate::cli::progress_line::ProgressLine;
use crate::cli::selection::there_are;
use crate::cli::{ask, output, runtime};
use crate::clock;
use crate::config::HostsFile;
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::log::{GapReason, LogGap, LogLine, Stream};
use crate::domain::log_text;
use crate::domain::log_text::carried::Carried;
use crate::domain::resume_point::ResumePoint;
use crate::domain::run::{Placement, RankExit, RefusalClass, RunSpec};
use crate::domain::run_status::{HostRunStatus, nothing_there};
use crate::domain::text::about;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::world::LoggedLine;
use crate::launcher::session::{Output, Session};
use crate::record::Reader;
use crate::record::export::Clocks;
use crate::wire::message::Refused;

/// Prints the lines of all ranks, each with its rank; of one rank without. Those of several hosts stand in the order in which they were
/// printed, those of one as they arrived.
pub fn run(
    args: &LogsArgs,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let here = if args.whole { None } else { recorded(&args.run, paths)? };
    if let Some(reader) = here.as_ref().filter(|reader| reader.spec().is_none()) {
        let mut printer = Printer::new(args, None)?;
        printer.recording(reader)?;
        printer.release(&|_| None)?;
        note(&format!(
            "run {}: the beginning of its recording is missing, and with it the hosts it is on: what they still have is not \
             shown",
            args.run
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let file = hosts();
    // without its end, a recording may lack what the ranks printed since
    if let Some(reader) = here.as_ref().filter(|reader| reader.outcome().is_some() || file.is_err()) {
        let mut printer = Printer::new(args, reader.spec())?;
        printer.recording(reader)?;
        printer.release(&|_| None)?;
        return file.map(|_| ExitCode::SUCCESS).or_else(|failure| match reader.outcome() {
            Some(_) => Ok(ExitCode::SUCCESS),
            None => Err(failure),
        });
    }
    let file = file?;
    runtime::block_on(async {
        let prompter = ask::person();
        let mut found = find(&args.run, &file, paths, None, &prompter).await?;
        // of what a host has lost, the recording may have lines
        let kept = if args.whole { found.recording.take() } else { None };
        let mut printer = Printer::new(args, Some(&found.spec))?;
        let resume_point = match &found.recording {
            Some(reader) if !printer.recording(reader)? => return Ok(ExitCode::SUCCESS),
            Some(reader) => reader.resume_state()?.resume_point,
            None => ResumePoint::default(),
        };
        let mut session = match found.session(&file, paths, None, &prompter).await {
            Ok(session) => session,
            Err(failure) => {
                // what is recorded is told all the same
                printer.release(&|_| None)?;
                return Err(failure);
            }
        };
        output::start(&paths.state)?;
        let code = stream(&mut session, (&found, kept.as_ref()), resume_point, &mut printer).await;
        // what has come is told, whatever came then
        let released = printer.release(&|line| printed_at(&session, &found.spec, line));
        let code = code.and_then(|code| released.map(|()| code));
        drop(session);
        printer.end_bar();
        let taken = output::end(None).await;
        code.and_then(|code| taken.map(|()| code))
    })
}

/// With `--follow`, where lines are held: once all hosts are reached, or can't be, what was printed before has come after so long
/// without a word from them, where none has come yet after so long, and after so long at all, microseconds.
const QUIET_US: u64 = 500_000;
const FIRST_US: u64 = 2_000_000;
const LONGEST_US: u64 = 5_000_000;
/// A host that is still being reached then keeps the lines of the others no longer.
const REACHED_US: u64 = 20_000_000;

/// Between two looks at whether anything still reads standard output, for ranks that print nothing.
const LOOK: Duration = Duration::from_secs(1);

/// Whether what was printed before is still on its way.
struct Past {
    /// Hosts that are still being reached.
    awaited: BTreeSet<HostId>,
    begun: HostTime,
    /// When the last of them was reached.
    reached: Option<HostTime>,
    /// When the last line came.
    word: Option<HostTime>,
}

impl Past {
    fn new(session: &Session, hosts: &BTreeSet<HostId>) -> Self {
        let mut past = Self { awaited: hosts.clone(), begun: clock::host_now(), reached: None, word: None };
        for host in hosts {
            if let Some((_, state)) = session.world().hosts.get(host).and_then(|host| host.link.as_ref()) {
                past.changed(host, state);
            }
        }
        past
    }

    /// A link has changed: one that is made, or can't be now, is waited for no more.
    fn changed(&mut self, host: &HostId, state: &LinkState) {
        if !matches!(state, LinkState::Connecting { .. } | LinkState::Installing { .. }) {
            self.awaited.remove(host);
        }
    }

    /// Waits until it counts as told.
    async fn is_told(&mut self) {
        let now = clock::host_now();
        if !self.awaited.is_empty() {
            let left = (self.begun.0 + REACHED_US).saturating_sub(now.0);
            return sleep(Duration::from_micros(left)).await;
        }
        let reached = *self.reached.get_or_insert(now);
        let quiet = self.word.map_or(reached.0 + FIRST_US, |word| word.max(reached).0 + QUIET_US);
        let left = quiet.min(reached.0 + LONGEST_US).saturating_sub(now.0);
        sleep(Duration::from_micros(left)).await;
    }
}

/// So long the next attempt of a run that may be started again is waited for, microseconds: its launch takes its time.
const AGAIN_US: u64 = 30_000_000;

/// An attempt may have ended by the time that a host is asked, and so many runs may have begun there since.
const NEWER: u32 = 50;
/// At so many looks they are asked for once: each is told with its whole description, and a host may send so much for a while only.
const NEWER_EVERY: u32 = 5;

/// The hosts where the ranks of a run have ended which the client that launched it may start again (`--max-restarts`).
#[derive(Debug, Default)]
struct Again {
    /// How many further attempts there may be beyond those that are known.
    most: u32,
    /// How often each host has begun again.
    begun: BTreeMap<HostId, u32>,
    /// Hosts that may begin again.
    hosts: BTreeSet<HostId>,
    /// Since when no host is followed any more.
    since: Option<HostTime>,
    /// How often hosts were asked.
    looks: u32,
}

impl Again {
    /// `attempt`: the newest that is known, from 0; without `follow` none is waited for.
    fn new(spec: &RunSpec, attempt: Option<u32>, follow: bool) -> Self {
        let most = spec.options.max_restarts.saturating_sub(attempt.unwrap_or_default());
        Self { most: if follow { most } else { 0 }, ..Self::default() }
    }

    /// Hosts to ask whether it was started again there: all, where a rank has failed by itself and attempts are left, else those that are
    /// behind the others.
    fn asked(&self, ends: &BTreeMap<Rank, RankExit>) -> Vec<HostId> {
        let newest = self.begun.values().copied().max().unwrap_or_default();
        let has_failed = ends.values().any(|exit| !exit.stopped && exit.shell_code() != 0);
        let may_be = has_failed && newest < self.most;
        let is_behind = |host: &&HostId| self.begun.get(*host).copied().unwrap_or_default() < newest;
        self.hosts.iter().filter(|host| may_be || is_behind(host)).cloned().collect()
    }

    /// How many of the newest runs hosts are asked for now.
    fn newest(&mut self) -> u32 {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(NEWER_EVERY) { NEWER } else { 1 }
    }

    /// Whether it is waited for now that no host is followed.
    fn is_awaited(&mut self, ends: &BTreeMap<Rank, RankExit>, now: HostTime) -> bool {
        let since = self.since.get_or_insert(now).0;
        !self.asked(ends).is_empty() && now.0.saturating_sub(since) < AGAIN_US
    }

    /// Takes in what a host tells of its runs; whether this one was started again there: something of it lives, or a rank has ended
    /// once more.
    fn is_back(
        &mut self,
        (host, shares): (&HostId, &[HostRunStatus]),
        run: &RunId,
        ends: &BTreeMap<Rank, RankExit>,
    ) -> bool {
        let is_new = |(rank, exit): (&Rank, &RankExit)| ends.get(rank).is_some_and(|known| known.t < exit.t);
        let is_again = |share: &HostRunStatus| share.live || share.exits.iter().any(is_new);
        let mut ours = shares.iter().filter(|share| share.run == *run && share.host == *host);
        let is_back = ours.any(is_again) && self.hosts.remove(host);
        if is_back {
            *self.begun.entry(host.clone()).or_default() += 1;
            self.since = None;
        }
        is_back
    }
}

/// Whether a link that is lost is made again without a person.
fn is_tried_again(state: &LinkState) -> bool {
    !matches!(state, LinkState::Refused { .. } | LinkState::Down { retry_at: None, .. })
}

/// When a line was printed: by its host's clock, as far as that is known yet.
fn printed_at(session: &Session, spec: &RunSpec, line: &LogLine) -> Option<Stamp> {
    let place = spec.placements.get(line.rank.0 as usize)?;
    session.world().hosts.get(&place.host)?.clock.stamp(line.t?)
}

/// Prints what the hosts have, and with `--follow` what comes; of what a rank has emptied away what the recording has.
async fn stream(
    session: &mut Session,
    (found, kept): (&Found, Option<&Reader>),
    resume_point: ResumePoint,
    printer: &mut Printer<'_>,
) -> Result<ExitCode, Failure> {
    let (spec, follow) = (&found.spec, printer.args.follow);
    let mut due: BTreeSet<HostId> = spec.hosts().into_iter().collect();
    let (mut failed, mut ends) = (None, BTreeMap::new());
    let mut again = Again::new(spec, resume_point.attempt, follow);
    session.read(spec, resume_point, !follow);
    let mut past = Past::new(session, &due);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !due.is_empty() || again.is_awaited(&ends, clock::host_now()) {
        if output::closed().is_some() || output::reader_is_gone() {
            return Ok(ExitCode::SUCCESS);
        }
        let holds = follow && printer.held.is_some();
        let next = tokio::select! {
            next = session.next() => next,
            () = output::changed() => {
                printer.draw();
                continue;
            }
            // what was printed before has come: from here on each line is shown at once
            () = past.is_told(), if holds => {
                printer.release(&|line| printed_at(session, spec, line))?;
                continue;
            }
            _ = look.tick() => {
                session.list_newest_runs(&again.asked(&ends), again.newest());
                continue;
            }
        };
        match next {
            Output::Event(envelope) => match (&envelope.origin, &envelope.event) {
                (Origin::Rank(run, _), Event::LogPrinted { line }) if *run == spec.id => {
                    past.word = Some(clock::host_now());
                    printer.line(
                        line,
                        envelope.at,
                        Some(&|line: &LogLine| printed_at(session, spec, line)),
                    )?;
                    // the hosts keep what is not read
                    output::room().await;
                    printer.draw();
                }
                (Origin::Rank(run, rank), Event::RankExited { exit }) if *run == spec.id && follow => {
                    ends.insert(*rank, exit.clone());
                }
                (Origin::Rank(run, _), Event::LogUnfinished { line }) if *run == spec.id && follow => {
                    printer.unfinished(line);
                }
                (Origin::Rank(run, rank), Event::LogGap { gap })
                    if *run == spec.id && printer.wants(*rank) =>
                {
                    if let Some(reader) = kept.filter(|_| gap.reason == GapReason::Emptied) {
                        printer.lines_of(reader, gap)?;
                    }
                    printer.note(&format!("rank {rank}: {}", gap.describe()));
                }
                (Origin::Host(host), Event::LinkChanged { state }) if due.contains(host) => {
                    past.changed(host, state);
                    if let Some((code, reason)) = fault(state) {
                        printer.note(&about(host, &reason));
                        if !follow || !is_tried_again(state) {
                            failed = Some(code);
                            due.remove(host);
                            printer.forget(spec, host);
                        }
                    }
                }
                _ => {}
            },
            Output::Gone(run, host) if run == spec.id => {
                due.remove(&host);
                printer.forget(spec, &host);
                again.hosts.insert(host);
                if due.is_empty() && again.is_awaited(&ends, clock::host_now()) {
                    printer.note(&awaited(&spec.id));
                }
            }
            Output::Found { host, shares, .. }
                if again.is_back((&host, shares.as_slice()), &spec.id, &ends) =>
            {
                ends.retain(|rank, _| !spec.placements.iter().any(|at| at.rank == *rank && at.host == host));
                printer.note(&format!("run {} was started again on {host}", spec.id.short()));
                session.read_on(spec, &host);
                due.insert(host);
            }
            Output::Refused(Refused { run, host, reason, class, .. }) if run == spec.id => {
                let is_unknown = class == RefusalClass::Unknown;
                let reason = if is_unknown { nothing_there(spec, &host) } else { reason };
                printer.note(&about(&host, &reason));
                failed = Some(Code::Unreachable);
                due.remove(&host);
                printer.forget(spec, &host);
            }
            _ => {}
        }
    }
    if let Some(words) = ended(&ends, spec) {
        printer.note(&words);
    }
    Ok(failed.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// That a run which has failed may go on.
fn awaited(run: &RunId) -> String {
    let (run, seconds) = (run.short(), AGAIN_US / 1_000_000);
    format!("run {run}: a rank has failed; its next attempt (--max-restarts) is waited for {seconds} s")
}

/// Why nothing more comes of a run whose ranks ended while they were followed; nothing where they ended well.
fn ended(ends: &BTreeMap<Rank, RankExit>, spec: &RunSpec) -> Option<String> {
    let failed = ends.iter().find(|(_, exit)| !exit.stopped && exit.shell_code() != 0);
    let run = spec.id.short();
    match failed {
        Some((rank, exit)) => Some(format!("run {run} has ended: rank {rank}: {}", exit.describe())),
        None if ends.values().any(|exit| exit.stopped) => Some(format!("run {run} was stopped")),
        None => None,
    }
}

fn is_among(ranges: &[RangeInclusive<u32>], rank: Rank) -> bool {
    ranges.iter().any(|ranks| ranks.contains(&rank.0))
}

/// Writes lines to standard output.
struct Printer<'a> {
    args: &'a LogsArgs,
    /// Whether one rank alone is asked for: its lines need no label.
    is_one: bool,
    terminal: bool,
    paint: Paint,
    /// What each stream's last lines say of the next one's level and colours.
    carried: BTreeMap<(Rank, Stream), Carried>,
    /// What has not ended yet.
    unfinished: ProgressLine,
    /// What is to stand there, and whose it is.
    bar: Option<((Rank, Stream), String)>,
    /// With `--tail` the last lines so far; else, of ranks on several hosts, those that others may stand before.
    held: Option<HeldLines>,
}

impl<'a> Printer<'a> {
    fn new(args: &'a LogsArgs, spec: Option<&RunSpec>) -> Result<Self, Failure> {
        if let Some(world) = spec.map(RunSpec::world)
            && let Some(rank) = args.rank.iter().map(|ranks| *ranks.end()).find(|rank| *rank >= world)
        {
            return Err(Failure::usage(format!("--rank {rank}: {}", there_are(world))));
        }
        let is_one = args.rank.len() == 1 && args.rank.iter().all(|ranks| ranks.start() == ranks.end());
        let terminal = io::stdout().is_terminal();
        let (carried, unfinished) = (BTreeMap::new(), ProgressLine::default());
        let is_wanted = |place: &&Placement| args.rank.is_empty() || is_among(&args.rank, place.rank);
        let wanted = spec.into_iter().flat_map(|spec| &spec.placements).filter(is_wanted);
        let hosts: BTreeSet<&HostId> = wanted.map(|place| &place.host).collect();
        let held = (args.tail.is_some() || hosts.len() > 1).then(|| HeldLines::new(args.tail));
        Ok(Self { args, is_one, terminal, paint: Paint::of_process(), carried, unfinished, bar: None, held })
    }

    /// Prints the lines that were held back, and from here on each line at once.
    fn release(&mut self, date: Date<'_>) -> Result<(), Failure> {
        let mut text = Vec::new();
        for line in self.held.take().into_iter().flat_map(|held| held.into_lines(date)) {
            written(self.write(&mut text, &line))?;
        }
        to_stdout(&String::from_utf8_lossy(&text))?;
        self.draw();
        Ok(())
    }

    /// The lines that are to be printed now, when one has come: itself, or where lines are held back those for which there is no
    /// room any more.
    fn due(&mut self, line: Arc<LogLine>, at: Stamp, date: Option<Date<'_>>) -> Vec<Arc<LogLine>> {
        match &mut self.held {
            Some(held) => held.push(line, at, date),
            None => vec![line],
        }
    }

    /// Prints what is recorded, or holds it; `false` when the reader is gone.
    fn recording(&mut self, reader: &Reader) -> Result<bool, Failure> {
        let goes_on = self.recorded_lines(reader);
        if goes_on.is_err() {
            // what could be read is told all the same
            self.release(&|_| None)?;
        }
        goes_on
    }

    fn recorded_lines(&mut self, reader: &Reader) -> Result<bool, Failure> {
        if let Some(damage) = reader.integrity().damage() {
            note(&format!("run {}: {damage}", self.args.run));
        }
        // the order of what came from one host needs no clocks
        let clocks = if self.held.is_some() { Clocks::of_recording(reader) } else { Clocks::default() };
        let places = reader.spec().map(|spec| spec.placements.as_slice()).unwrap_or_default();
        let printed = |line: &LogLine| clocks.stamp(&places.get(line.rank.0 as usize)?.host, line.t?);
        let mut out = io::BufWriter::new(io::stdout().lock());
        let one = self.args.rank.first().filter(|_| self.is_one).map(|ranks| Rank(*ranks.start()));
        for logged in reader.log(one) {
            let LoggedLine { at, line, gap, .. } = logged?;
            if gap && self.wants(line.rank) {
                // not among what the ranks printed: beside it
                written(out.flush())?;
                note(&format!("rank {}: {}", line.rank, line.text));
                continue;
            }
            if !self.takes(&line) {
                continue;
            }
            let printed = printed(&line).unwrap_or(at);
            for line in self.due(line, printed, None) {
                if !written(self.write(&mut out, &line))? {
                    return Ok(false);
                }
            }
        }
        written(out.flush())
    }

    /// Prints the lines of a gap that are recorded.
    fn lines_of(&mut self, reader: &Reader, gap: &LogGap) -> Result<(), Failure> {
        for logged in reader.log(Some(gap.rank)) {
            let LoggedLine { at, line, gap: is_gap, .. } = logged?;
            if !is_gap && line.stream == gap.stream && (gap.from..gap.to).contains(&line.offset) {
                self.line(&line, at, None)?;
            }
        }
        Ok(())
    }

    /// Prints one line at once: one that came at a moment, or without `date` was printed then.
    fn line(&mut self, line: &Arc<LogLine>, at: Stamp, date: Option<Date<'_>>) -> Result<(), Failure> {
        if !self.takes(line) {
            return Ok(());
        }
        // it has ended with the line
        self.bar.take_if(|(of, _)| *of == (line.rank, line.stream));
        let due = self.due(Arc::clone(line), at, date);
        if due.is_empty() {
            return Ok(());
        }
        self.unfinished.clear();
        let mut text = Vec::new();
        for line in due {
            written(self.write(&mut text, &line))?;
        }
        to_stdout(&String::from_utf8_lossy(&text))?;
        self.draw();
        Ok(())
    }

    /// Shows what has not ended, below what is printed: once that is printed and the terminal has taken it.
    fn draw(&mut self) {
        if let Some((_, text)) = self.bar.as_ref().filter(|_| self.held.is_none()) {
            self.unfinished.write(text);
        }
    }

    /// Says something beside what the ranks print.
    fn note(&mut self, text: &str) {
        self.unfinished.clear();
        note(text);
        self.draw();
    }

    /// Nothing more comes of a host's ranks.
    fn forget(&mut self, spec: &RunSpec, host: &HostId) {
        let is_there =
            |rank: Rank| spec.placements.iter().any(|place| place.rank == rank && place.host == *host);
        if self.bar.take_if(|((rank, _), _)| is_there(*rank)).is_some() {
            self.unfinished.clear();
        }
    }

    /// Takes away what has not ended.
    fn end_bar(&mut self) {
        self.bar = None;
        self.unfinished.clear();
    }

    fn wants(&self, rank: Rank) -> bool {
        self.args.rank.is_empty() || is_among(&self.args.rank, rank)
    }

    fn takes(&self, line: &LogLine) -> bool {
        self.wants(line.rank) && (!self.args.stderr || line.stream == Stream::Stderr)
    }

    /// Shows what has not ended yet, on a terminal.
    fn unfinished(&mut self, line: &LogLine) {
        if !self.terminal || !self.takes(line) {
            return;
        }
        let of = (line.rank, line.stream);
        let rows: Vec<_> = log_text::rows(&line.text).map(log_text::plain).collect();
        if rows.iter().all(|row| row.trim().is_empty()) {
            // another one's rows stay
            if self.bar.take_if(|(shown, _)| *shown == of).is_some() {
                self.unfinished.clear();
            }
            return;
        }
        let label = if self.is_one { String::new() } else { format!("[{}] ", line.rank) };
        let rows: Vec<String> = rows.iter().map(|row| format!("{label}{row}")).collect();
        self.bar = Some((of, rows.join("\n")));
        self.draw();
    }

    fn write(&mut self, out: &mut impl Write, line: &LogLine) -> io::Result<()> {
        let text = if self.terminal {
            let look = self.carried.entry((line.rank, line.stream)).or_default().next(line);
            // all of it goes to standard output
            self.paint.line(Stream::Stdout, &line.text, look).into()
        } else {
            Cow::Borrowed(line.text.as_str())
        };
        let cut = line.cut_words();
        if self.is_one {
            return writeln!(out, "{text}{cut}");
        }
        writeln!(out, "[{}] {text}{cut}", line.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run_status, placement, rank_exit, run_spec};

    #[test]
    fn a_run_that_may_be_started_again_is_waited_for_on_each_host_and_one_that_may_not_is_not() {
        let mut spec = run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)]);
        spec.options.max_restarts = 2;
        let (a, b) = (HostId::from("a"), HostId::from("b"));
        let failed = BTreeMap::from([(Rank(0), rank_exit(3))]);
        let ended = BTreeMap::from([(Rank(0), rank_exit(0))]);
        let stopped = BTreeMap::from([(Rank(0), RankExit { stopped: true, ..rank_exit(143) })]);
        let rests = |attempt, follow| {
            let mut again = Again::new(&spec, attempt, follow);
            again.hosts.extend([a.clone(), b.clone()]);
            again
        };
        for (attempt, follow, ends, wanted) in [
            (None, true, &failed, true),
            (Some(1), true, &failed, true),
            (Some(2), true, &failed, false),
            (None, false, &failed, false),
            (None, true, &ended, false),
            (None, true, &stopped, false),
        ] {
            let is_awaited = rests(attempt, follow).is_awaited(ends, HostTime(5));
            assert_eq!(is_awaited, wanted, "{attempt:?} {follow} {ends:?}");
        }
        let mut again = rests(Some(1), true);
        assert!(again.is_awaited(&failed, HostTime(5)));
        assert!(!again.is_awaited(&failed, HostTime(5 + AGAIN_US)), "nothing has come");
        let share = |host: &HostId, live| {
            vec![HostRunStatus { run: spec.id.clone(), host: host.clone(), ..host_run_status(live) }]
        };
        assert_eq!(again.asked(&failed), [a.clone(), b.clone()]);
        let is_back = |again: &mut Again, host: &HostId, shares: &[HostRunStatus]| {
            again.is_back((host, shares), &spec.id, &failed)
        };
        assert!(!is_back(&mut again, &a, &share(&a, false)) && !is_back(&mut again, &a, &share(&b, true)));
        assert!(is_back(&mut again, &a, &share(&a, true)), "it lives again");
        assert!(!is_back(&mut again, &a, &share(&a, true)), "it is followed by now");
        assert_eq!(again.asked(&ended), std::slice::from_ref(&b), "the other host may be behind");
        let mut told = share(&b, false);
        told[0].exits = failed.clone();
        assert!(!is_back(&mut again, &b, &told), "that is known");
        told[0].exits.insert(Rank(0), RankExit { t: HostTime(9), ..rank_exit(0) });
        assert!(is_back(&mut again, &b, &told), "it has ended once more");
        assert!(again.asked(&ended).is_empty());
        again.hosts.insert(a);
        assert!(!again.is_awaited(&failed, HostTime(5)), "that was the last attempt");
    }

    #[test]
    fn runs_that_may_have_ended_are_asked_for_now_and_then() {
        let mut again = Again::default();
        assert_eq!([(); 6].map(|()| again.newest()), [1, 1, 1, 1, NEWER, 1]);
    }

    #[test]
    fn a_run_that_was_stopped_or_failed_is_told_at_the_end_and_one_that_ended_well_is_not() {
        let spec = run_spec(vec![placement(0, "a", 0), placement(1, "b", 0)]);
        let run = spec.id.short();
        let stopped = RankExit { stopped: true, ..rank_exit(143) };
        let told = |ends: [RankExit; 2]| {
            ended(
                &BTreeMap::from([Rank(0), Rank(1)].map(|rank| (rank, ends[rank.0 as usize].clone()))),
                &spec,
            )
        };
        assert_eq!(told([rank_exit(0), rank_exit(0)]), None);
        assert_eq!(told([stopped.clone(), stopped.clone()]), Some(format!("run {run} was stopped")));
        assert_eq!(told([stopped, rank_exit(3)]), Some(format!("run {run} has ended: rank 1: exit 3")));
        assert_eq!(ended(&BTreeMap::new(), &spec), None);
    }
}
