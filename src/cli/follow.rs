//! Streams a run to the terminal until it ends or the person leaves: what `run` and `attach` both do.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{self, MissedTickBehavior};

use super::again::with_hosts;
use super::disk;
use super::errors::{Code, Failure, outcome_code, to_stdout};
use super::glyphs;
use super::output::{self, Closed, Stillness};
use super::progress_line::ProgressLine;
use super::rank_files::RankFiles;
use super::run_printer::{Line, RunPrinter};
use super::signals::{Ask, Signals};
use crate::clock;
use crate::domain::event::{Envelope, Event};
use crate::domain::ids::{HostId, RunId};
use crate::domain::outcome::STOPPED;
use crate::domain::run::RunStage;
use crate::domain::run_status::{HostRunStatus, SharedSlots, hosts_of_cpu_slots, shared_cpu_slots};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units;
use crate::domain::world::RunState;
use crate::launcher::session::Output;
use crate::ssh::Prompter;
use crate::tui::source::finishing::Finishing;
use crate::tui::source::recorded::{Recorded, Told};

/// A launch whose hosts say nothing for so long tells whom it waits for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks at whether a reader takes anything, after a signal.
const LOOK: Duration = Duration::from_millis(250);
/// How long what ranks printed last is read, once they are gone, for a standard output that takes nothing more, microseconds.
const UNREAD_US: i64 = 10_000_000;
/// One that waits for the same hosts says so again after that, microseconds.
const AGAIN_US: i64 = 10_000_000;
/// Exit code when the terminal goes away: 128 + SIGHUP.
const HANGUP: u8 = 129;
/// Exit code when nothing reads standard output any more: 128 + SIGPIPE.
const PIPE: u8 = 141;

/// What this client is to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// It launches the run: a wish to end ends the run.
    Owner,
    /// It launches the run and leaves as soon as all ranks run.
    Launcher,
    /// It came later: a wish to end ends only the watching.
    Guest,
}

/// Streams until the end, until what is recorded is written, and until what is printed is taken. `run` is known for one that
/// was attached to; output that waits for its reader is kept below `state_dir`.
pub(crate) async fn follow(
    mut recorded: Recorded,
    mut screen: Screen,
    run: Option<RunId>,
    part: Part,
    prompter: &Prompter,
    state_dir: &Path,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    output::start(state_dir)?;
    let mut finishing = Finishing::default();
    let mut stillness = Stillness::default();
    let watching = (&mut signals, &mut stillness);
    let end = stream(&mut recorded, &mut finishing, &mut screen, run, part, prompter, watching).await;
    // whichever way it ends: a recording that is not whole is told
    recorded.close();
    finishing.take(&mut recorded);
    screen.end_progress();
    let cut = if signals.insist() {
        None
    } else {
        disk::written(&mut finishing, Some(&mut signals), |finished| recorded.finished(finished)).await
    };
    screen.troubles(&mut recorded);
    let code = end.and_then(|end| match end {
        End::Left(code) => Ok(code),
        End::AllRun => all_ranks_run(&mut screen),
        End::Unread => {
            let code = if screen.closed.is_some() { screen.code() } else { STOPPED };
            screen.print(|printer| printer.unread_end(clock::now(), code));
            Ok(ExitCode::from(code))
        }
        End::Over { run, told_closed } => {
            let is_recorded = cut.is_none() && run.as_ref().is_some_and(|run| recorded.is_recorded(run));
            over(&mut screen, is_recorded, told_closed)
        }
    });
    let taken = output::end_after(Some(&mut signals), stillness).await;
    code.and_then(|code| taken.map(|()| cut.map_or(code, ExitCode::from)))
}

/// How following a run ends.
enum End {
    /// A person or a closed standard output wanted it so.
    Left(ExitCode),
    /// The launcher has done its part.
    AllRun,
    /// The run was stopped, its ranks are gone, and nothing takes what they printed.
    Unread,
    /// The run is over.
    Over { run: Option<RunId>, told_closed: bool },
}

async fn stream(
    recorded: &mut Recorded,
    finishing: &mut Finishing,
    screen: &mut Screen,
    mut run: Option<RunId>,
    part: Part,
    prompter: &Prompter,
    (signals, stillness): (&mut Signals, &mut Stillness),
) -> Result<End, Failure> {
    let (mut tick, began) = (time::interval(PATIENCE / 2), clock::now());
    let mut look = time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut told_to_stop, mut told_closed) = (false, false);
    tick.tick().await;
    loop {
        if let (false, Some(run), Some(_)) = (told_closed, &run, &screen.closed) {
            told_closed = true;
            screen.print(RunPrinter::first_lines);
            let why = screen.closed().unwrap_or_default();
            if part == Part::Guest {
                screen.own(&format!("{why}: detached; the run goes on. {}", how_to_go_on(run)));
                return match &screen.closed {
                    Some(Closed::Failed(_)) => Err(Failure::new(Code::Io, why)),
                    _ => Ok(End::Left(ExitCode::SUCCESS)),
                };
            }
            screen.own(&format!("{why}: stopping the run; this command exits with {}", screen.code()));
            if screen.is_unread() {
                recorded.session().pass_over_the_rest();
            }
            recorded.session().stop(run, false);
        }
        tokio::select! {
            biased;
            ask = signals.next() => {
                let Some(run) = &run else {
                    return Ok(End::Left(ExitCode::from(ask.code())));
                };
                let ends_itself = screen.printer.state().is_some_and(|run| run.stage() == Some(RunStage::Stopping));
                told_to_stop |= !ends_itself;
                if let Some(code) = asked(ask, part, run, recorded, screen) {
                    return Ok(End::Left(ExitCode::from(code)));
                }
            }
            // before the events: a flood of lines is no reason to stay
            _ = look.tick(), if told_to_stop || (told_closed && screen.is_unread()) => {
                if screen.leaves_unread(stillness, clock::now()) {
                    return Ok(End::Unread);
                }
            }
            _ = tick.tick() => screen.tick(recorded, run.is_some(), prompter.is_asking(), began),
            // standard output may have closed
            () = output::changed() => {
                screen.closed();
                screen.draw();
            }
            Told::Output(output) = recorded.next() => match output {
                Output::Event(envelope) => {
                    screen.event(&envelope);
                    let is_end = matches!(&envelope.event, Event::RunEnded { .. });
                    if is_end && run.is_some() && envelope.origin.run() == run.as_ref() {
                        return Ok(End::Over { run, told_closed });
                    }
                    if part == Part::Launcher && screen.printer.state().is_some_and(all_run) {
                        return Ok(End::AllRun);
                    }
                }
                Output::Remark(text) => screen.own(&text),
                Output::Launched(id) => run = Some(screen.launched(id, recorded)),
                // another launch was faster: it is placed again or waits
                Output::Withdrawn(_) => {
                    run = None;
                    screen.printer.forget_run();
                    finishing.take(recorded);
                    // the wish to end has come in between
                    if told_to_stop || told_closed {
                        let code = if told_closed { screen.code() } else { STOPPED };
                        return Ok(End::Left(ExitCode::from(code)));
                    }
                }
                Output::Found { host, shares, last } => screen.found(&host, &shares, last),
                Output::Waiting(why) => screen.own(&format!("waiting: {why}")),
                Output::LaunchFailed(error) => return Err(error.into()),
                Output::Reading(words, first) => screen.reading(&words, first),
                Output::Syncing(_, progress) => {
                    screen.line.show(&progress.words());
                }
                Output::Gone(..)
                | Output::Compared(_)
                | Output::Refused(..)
                | Output::Signal(..)
                | Output::Traces(..)
                | Output::TracePiece(..)
                | Output::PastSamples { .. }
                | Output::Forgotten(..)
                | Output::Preflight(..)
                | Output::Checked(..)
                | Output::Stacks { .. } => {}
            },
            finished = finishing.next() => recorded.finished(finished),
        }
    }
}

/// Tells how the run ended.
fn over(screen: &mut Screen, is_recorded: bool, told_closed: bool) -> Result<ExitCode, Failure> {
    let closed = screen.closed();
    let width = ProgressLine::size().map(|(width, _)| width);
    let by_output = match &screen.closed {
        Some(Closed::Failed(_)) => Some(screen.code()),
        Some(Closed::Reader) => told_closed.then(|| screen.code()),
        None => None,
    };
    screen.print(|printer| printer.end(is_recorded, width, by_output));
    let outcome = screen.printer.state().and_then(|state| state.outcome.as_ref());
    match (&screen.closed, closed) {
        (Some(Closed::Failed(_)), Some(why)) => Err(Failure::new(Code::Io, why)),
        (Some(Closed::Reader), _) if told_closed => Ok(ExitCode::from(PIPE)),
        _ => Ok(outcome.map_or_else(|| Code::Bug.into(), outcome_code)),
    }
}

/// A signal came; gives the exit code for leaving, if the client leaves.
fn asked(ask: Ask, part: Part, run: &RunId, recorded: &mut Recorded, screen: &mut Screen) -> Option<u8> {
    let short = run.short();
    screen.print(RunPrinter::first_lines);
    match ask {
        _ if part == Part::Guest => {
            screen.own(&format!("detached; the run goes on. {}", how_to_go_on(run)));
            return Some(ask.code());
        }
        Ask::Leave
            if screen.printer.state().and_then(RunState::stage).is_some_and(starts_with_this_client) =>
        {
            screen.own("the terminal is gone and no rank runs yet: stopping");
            recorded.session().stop(run, false);
        }
        Ask::Leave => {
            screen.own(&format!("leaving; the run goes on. {}", how_to_go_on(run)));
            return Some(HANGUP);
        }
        Ask::Stop { times: 1, .. } => {
            screen.own("stopping; once more kills");
            recorded.session().stop(run, false);
        }
        Ask::Stop { times: 2, .. } => {
            screen.own("killing; once more leaves at once");
            recorded.session().stop(run, true);
        }
        Ask::Stop { code, .. } => {
            screen.own(&with_hosts(&format!("leaving; to end the run: hvtui stop {short} --now")));
            return Some(code);
        }
    }
    None
}

/// Whether nothing of a run in this stage runs, and nothing will without the client that launches it.
fn starts_with_this_client(stage: RunStage) -> bool {
    matches!(stage, RunStage::Connect | RunStage::Sync | RunStage::Prepare)
}

/// Whether every rank of the run was started.
fn all_run(run: &RunState) -> bool {
    matches!(run.stage(), Some(RunStage::Rendezvous | RunStage::FirstStep | RunStage::Training))
}

fn all_ranks_run(screen: &mut Screen) -> Result<ExitCode, Failure> {
    if let Some(run) = screen.printer.state().map(|state| state.spec.id.clone()) {
        screen.own(&format!("all ranks run. {}", how_to_go_on(&run)));
        to_stdout(&format!("{run}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `To come back: …; to end it: …`.
pub(crate) fn how_to_go_on(run: &RunId) -> String {
    let short = run.short();
    with_hosts(&format!("To come back: hvtui attach {short}; to end it: hvtui stop {short}"))
}

/// Prints what the printer says, until standard output takes nothing more.
pub(crate) struct Screen {
    pub(crate) printer: RunPrinter,
    own_words: bool,
    /// Set once.
    closed: Option<Closed>,
    /// Since when the ranks are gone, so that only what they printed is still to come.
    read_out: Option<Stamp>,
    /// `--output-filename`.
    files: Option<RankFiles>,
    /// How far a folder is on its way; then the bar and the progress below what is printed.
    line: ProgressLine,
    /// What a rank prints and has not ended.
    bar: Option<String>,
    /// Whether that is to be looked for again: other lines were printed over it.
    bar_due: bool,
    /// How far the run is, on a terminal; and whether that is read from what the job prints.
    progress: Option<(String, bool)>,
    /// The job draws bars, which tell what is read from them.
    has_bars: bool,
    /// What the looks of a launch were waited for so far.
    looked_for: Vec<String>,
    /// The hosts that a launch was last said to wait for, and when.
    told_connecting: Option<(Vec<HostId>, Stamp)>,
    /// The hosts that were asked which other runs have the CPU slots of the run; `None` where that is not told.
    asked_beside: Option<Vec<HostId>>,
    /// What they have told, and was not said yet.
    beside: Vec<SharedSlots>,
}

impl Screen {
    /// Shows what `printer` says; with `own_words` nothing of what the ranks print.
    pub(crate) fn new(printer: RunPrinter, own_words: bool) -> Self {
        let line = ProgressLine::default();
        Self {
            printer,
            own_words,
            closed: None,
            read_out: None,
            files: None,
            line,
            bar: None,
            bar_due: false,
            progress: None,
            looked_for: Vec::new(),
            told_connecting: None,
            has_bars: false,
            asked_beside: None,
            beside: Vec::new(),
        }
    }

    /// Writes what ranks print into these files, too.
    pub(crate) fn with_files(self, files: Option<RankFiles>) -> Self {
        Self { files, ..self }
    }

    /// Tells of other runs on the CPU slots of the one that is launched.
    pub(crate) fn telling_others(self) -> Self {
        Self { asked_beside: Some(Vec::new()), ..self }
    }

    /// A launch has become this run: its hosts are asked which other runs have its CPU slots.
    fn launched(&mut self, run: RunId, recorded: &mut Recorded) -> RunId {
        if let Some(asked) = &mut self.asked_beside {
            *asked = self.printer.state().map(|run| hosts_of_cpu_slots(&run.spec)).unwrap_or_default();
            recorded.session().list_live_runs(asked);
        }
        run
    }

    /// A host has told of its runs.
    fn found(&mut self, host: &HostId, shares: &[HostRunStatus], last: bool) {
        let Some(asked) = self.asked_beside.as_mut().filter(|asked| asked.contains(host)) else { return };
        if last {
            asked.retain(|due| due != host);
        }
        let all_told = asked.is_empty();
        let slots = self.printer.state().and_then(|run| shared_cpu_slots(&run.spec, host, shares));
        if let Some(slots) = slots {
            match self.beside.iter_mut().find(|told| told.host == slots.host) {
                Some(told) => told.add(slots),
                None => self.beside.push(slots),
            }
        }
        if all_told {
            self.tell_beside();
        }
    }

    /// Says which of the run's CPU slots other runs have, by the hosts that have told: together, as soon as all have or a moment
    /// has passed.
    fn tell_beside(&mut self) {
        let shared = std::mem::take(&mut self.beside);
        let lines = self.printer.state().map(|run| SharedSlots::lines(&run.spec, shared)).unwrap_or_default();
        for words in &lines {
            self.own(words);
        }
    }

    /// Shows and writes down what an event says.
    pub(crate) fn event(&mut self, envelope: &Envelope) {
        self.print(|printer| printer.event(envelope));
        if matches!(envelope.event, Event::LogUnfinished { .. }) {
            self.unfinished();
        }
        if let Some(trouble) = self.files.as_mut().and_then(|files| files.take(envelope)) {
            self.own(&trouble);
        }
    }

    /// How far a folder has been read. A log gets the first word of it alone.
    fn reading(&mut self, words: &str, first: bool) {
        if !self.line.show(words) && first {
            self.own(words);
        }
    }

    /// Shows the line that is being printed, where a person sees what ranks print.
    fn unfinished(&mut self) {
        if self.own_words || self.closed.is_some() || !std::io::stdout().is_terminal() {
            return;
        }
        (self.bar, self.bar_due) = (self.printer.unfinished(), false);
        if self.bar.is_some() && !std::mem::replace(&mut self.has_bars, true) {
            self.progress.take_if(|(_, is_read)| *is_read);
        }
        if self.bar.is_none() && self.progress.is_none() {
            self.line.clear();
        }
        self.draw();
    }

    /// Shows below what is printed what is not to stay there.
    fn draw(&mut self) {
        if !output::err_is_free() {
            return;
        }
        if std::mem::take(&mut self.bar_due) {
            self.bar = self.printer.unfinished();
        }
        let progress = self.progress.as_ref().map(|(text, _)| glyphs::shown(text));
        let rows: Vec<&str> = self.bar.as_deref().into_iter().chain(progress.as_deref()).collect();
        if !rows.is_empty() {
            self.line.write(&rows.join("\n"));
        }
    }

    /// The last progress becomes a line.
    fn end_progress(&mut self) {
        self.line.clear();
        (self.bar, self.bar_due) = (None, false);
        if let Some((text, _)) = self.progress.take() {
            output::err(&glyphs::shown(&(text + "\n")));
        }
    }

    pub(crate) fn print(&mut self, lines: impl FnOnce(&mut RunPrinter) -> Vec<Line>) {
        let has_bar = self.bar.is_some() || self.bar_due;
        for line in lines(&mut self.printer) {
            let line = match line {
                Line::Progress { text, is_read } if ProgressLine::is_below_output() => {
                    if !(is_read && self.has_bars) {
                        self.progress = Some((text, is_read));
                        self.draw();
                    }
                    continue;
                }
                line => line,
            };
            self.line.clear();
            self.bar = None;
            match line {
                Line::Out(_) if self.own_words || self.closed.is_some() => {}
                Line::Out(text) => {
                    if let Err(error) = output::out(&(text + "\n")) {
                        self.closed = Some(error.into());
                    }
                }
                Line::Err(text) => output::err(&(text + "\n")),
                Line::Own(text) | Line::Progress { text, .. } => {
                    output::err(&glyphs::shown(&(text + "\n")));
                }
            }
        }
        if has_bar && self.bar.is_none() {
            self.bar_due = true;
            self.draw();
        }
    }

    /// The exit code of a command whose standard output is closed.
    fn code(&self) -> u8 {
        if matches!(self.closed, Some(Closed::Failed(_))) { Code::Io.number() } else { PIPE }
    }

    /// What to say of a standard output that takes nothing more.
    fn closed(&mut self) -> Option<String> {
        if self.closed.is_none() && !self.own_words {
            self.closed = output::closed().or_else(|| output::reader_is_gone().then_some(Closed::Reader));
        }
        Some(self.closed.as_ref()?.words())
    }

    pub(crate) fn troubles(&mut self, recorded: &mut Recorded) {
        while let Some(trouble) = recorded.trouble() {
            self.own(&trouble);
        }
    }

    /// Says now and then who is waited for: of a run that `exists` whom a stage, else which hosts, unless a person is asked.
    fn tick(&mut self, recorded: &mut Recorded, exists: bool, is_asking: bool, began: Stamp) {
        self.troubles(recorded);
        self.tell_beside();
        self.closed();
        if exists {
            self.print(|printer| printer.tick(clock::now()));
        } else if !is_asking {
            for due in recorded.session().launches_look_for() {
                self.looks_for(due);
            }
            let hosts = recorded.session().launches_wait_for();
            if !hosts.is_empty() {
                self.connecting(hosts, began, clock::now());
            }
        }
    }

    /// Whether what is left of the output of ranks that are gone is not waited for: nothing takes it.
    fn leaves_unread(&mut self, stillness: &mut Stillness, now: Stamp) -> bool {
        let is_still = stillness.is_long();
        if !self.printer.is_read_out() {
            return false;
        }
        let since = *self.read_out.get_or_insert(now);
        is_still || (self.is_unread() && now.micros_since(since) >= UNREAD_US)
    }

    /// Whether nothing takes what ranks print: neither standard output nor files.
    fn is_unread(&self) -> bool {
        self.closed.is_some() && self.files.is_none()
    }

    /// Says once what a look of a launch waits for.
    fn looks_for(&mut self, due: String) {
        if !self.looked_for.contains(&due) {
            self.own(&format!("checking the hosts: waiting for {due}"));
            self.looked_for.push(due);
        }
    }

    /// Says which hosts a launch waits for: when they are others, and now and then.
    fn connecting(&mut self, hosts: Vec<HostId>, began: Stamp, now: Stamp) {
        if is_told(self.told_connecting.as_ref(), &hosts, now) {
            return;
        }
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let waited = units::duration_us(now.micros_since(began).max(0).unsigned_abs());
        self.own(&format!("connecting: waiting for {} for {waited}", names.join(", ")));
        self.told_connecting = Some((hosts, now));
    }

    pub(crate) fn own(&mut self, text: &str) {
        let text = Line::Own(format!("hvtui: {}", sanitize(text)));
        self.print(|_| vec![text]);
    }
}

/// Whether it was said a short while ago that these hosts are waited for.
fn is_told(told: Option<&(Vec<HostId>, Stamp)>, hosts: &[HostId], now: Stamp) -> bool {
    told.is_some_and(|(said, at)| said == hosts && now.micros_since(*at) < AGAIN_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_that_waits_for_the_same_hosts_does_not_say_so_each_second() {
        let hosts = |names: &[&str]| names.iter().map(|name| HostId::from(*name)).collect::<Vec<HostId>>();
        let told = (hosts(&["n3"]), Stamp(5_000_000));
        assert!(!is_told(None, &hosts(&["n3"]), Stamp(0)));
        assert!(is_told(Some(&told), &hosts(&["n3"]), Stamp(14_999_999)));
        assert!(!is_told(Some(&told), &hosts(&["n3"]), Stamp(15_000_000)));
        assert!(!is_told(Some(&told), &hosts(&["n2", "n3"]), Stamp(6_000_000)), "others");
    }

    #[test]
    fn files_of_ranks_take_what_a_closed_standard_output_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut screen = Screen::new(RunPrinter::default(), false);
        assert!(!screen.is_unread());
        screen.closed = Some(Closed::Reader);
        assert!(screen.is_unread());
        let files = RankFiles::new(&folder.path().join("out")).unwrap();
        assert!(!screen.with_files(Some(files)).is_unread());
    }
}
