//! A recording as a source: the player's moves become messages. Only the player knows where it stands, and it reads its
//! file on a thread of its own: a long way through a large recording delays no key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc as told;

use crate::clock;
use crate::domain::alerts::AlertRules;
use crate::domain::ids::RunId;
use crate::domain::marks::MarkChange;
use crate::domain::playback::LineSearch;
use crate::domain::time::Stamp;
use crate::record::{Error, Flush, LookedAhead, Player};
use crate::tui::core::{Analyzed, Effect, Level, Msg, PlayCommand};
use crate::tui::source::EventSource;
use crate::tui::source::figures::FiguresDesk;
use crate::tui::source::marks::{MarksDesk, first_told};
use crate::tui::source::reports::ReportDesk;

/// Speeds double and halve, between these.
const SPEEDS: (f64, f64) = (0.125, 64.0);
/// Moves that may wait to be taken in; the player waits with the next one.
const AHEAD: usize = 2;
/// How long a disk may take to write what a recording is opened with.
const FLUSH: Duration = Duration::from_millis(300);
/// How often it is looked whether a recording has grown.
const LOOK: Duration = Duration::from_millis(500);

/// One recording, played.
#[derive(Debug)]
pub struct Replay {
    recording: PathBuf,
    commands: Sender<Asked>,
    moves: told::Receiver<Vec<Msg>>,
    figures: FiguresDesk,
    marks: MarksDesk,
    reports: ReportDesk,
    /// What went wrong and is to be told first.
    untold: Option<Msg>,
}

/// What is asked of the player.
enum Asked {
    /// A move now.
    Now(PlayCommand),
    /// A move once the recording is read.
    Then(PlayCommand),
    /// To find a line.
    Find(Box<LineSearch>),
    /// To look so far ahead that a timeline of this length is known, microseconds.
    Window(i64),
}

impl Replay {
    /// Opens a recording at its end, paused, with alerts by these rules. Does not wait for that: the first message tells where it stands, or
    /// [`Msg::ReplayFailed`] why it can't be opened. What is on its way to its file is waited for a little.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn open(path: &Path, rules: Arc<AlertRules>, flush: Option<Flush>) -> Result<Self, Error> {
        let path = path.to_owned();
        Self::start(path.clone(), move || {
            if let Some(flush) = flush {
                flush.wait(FLUSH);
            }
            let mut player = Player::open(&path)?.with_rules(rules);
            player.seek(player.state().end);
            Ok(player)
        })
    }

    /// Plays what is open already, from where it stands.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn of(player: Player) -> Result<Self, Error> {
        Self::start(player.path().to_owned(), || Ok(player))
    }

    fn start(
        path: PathBuf,
        open: impl FnOnce() -> Result<Player, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (commands, asked) = channel();
        let (outbox, moves) = told::channel(AHEAD);
        let recording = path.clone();
        let figures = FiguresDesk::new(path, outbox.clone());
        let answers = outbox.clone();
        // fails only when the replay was closed
        let marks = MarksDesk::new(move |told| drop(answers.blocking_send(vec![told])));
        let answers = outbox.clone();
        let reports = ReportDesk::new(move |told| drop(answers.blocking_send(vec![told])));
        let work = move || match open() {
            Ok(player) => {
                let marks = first_told(player.path(), player.spec().map(|spec| spec.id.clone()));
                play(player, &asked, &outbox, marks);
            }
            // fails only when the replay was closed
            Err(error) => drop(outbox.blocking_send(vec![Msg::ReplayFailed(error.to_string())])),
        };
        thread::Builder::new().name("replay".to_owned()).spawn(work).map_err(Error::Thread)?;
        Ok(Self { recording, commands, moves, figures, marks, reports, untold: None })
    }

    /// Asks for a move; [`Replay::advance`] tells what came of it.
    pub fn play(&self, command: PlayCommand) {
        // fails where it could not be opened
        let _ = self.commands.send(Asked::Now(command));
    }

    /// Asks for a move once all of it is read.
    pub fn play_then(&self, command: PlayCommand) {
        // likewise
        let _ = self.commands.send(Asked::Then(command));
    }

    /// Tells how long the part of the recording is that the timeline shows, microseconds.
    pub fn show_window(&self, length: i64) {
        // likewise
        let _ = self.commands.send(Asked::Window(length));
    }

    /// Asks for a line of the recording.
    pub fn find_line(&self, search: Box<LineSearch>) {
        // likewise
        let _ = self.commands.send(Asked::Find(search));
    }

    /// Asks for the figures of a part; [`Replay::advance`] tells them.
    pub fn analyze(&mut self, from: Stamp, to: Stamp) {
        if let Err(why) = self.figures.ask(from, to) {
            self.untold = Some(Msg::Analyzed { from, to, told: Analyzed::Failed(why) });
        }
    }

    /// Changes the marks of the recording; [`Replay::advance`] tells them.
    pub fn mark(&mut self, run: RunId, change: MarkChange) {
        if let Err(why) = self.marks.ask(self.recording.clone(), run.clone(), Some(change)) {
            self.untold = Some(Msg::MarksTold(run, Err(why)));
        }
    }

    /// The next moves, figures and marks; pending while the playhead stands still. Cancel-safe.
    pub async fn advance(&mut self) -> Vec<Msg> {
        if let Some(untold) = self.untold.take() {
            return vec![untold];
        }
        match self.moves.recv().await {
            Some(messages) => messages,
            None => std::future::pending().await,
        }
    }
}

/// Plays until the replay is closed. Commands that came while the player was on its way are carried out together.
fn play(mut player: Player, asked: &Receiver<Asked>, moved: &told::Sender<Vec<Msg>>, mut marks: Option<Msg>) {
    let (mut then, mut has_arrived) = (None, false);
    let mut looked = clock::now();
    player.grow(looked);
    loop {
        let playback = player.advance(clock::now());
        let is_there = playback.reading.is_none();
        let messages = if let Some(percent) = playback.reading {
            let mut messages = Vec::new();
            if let Some(world) = playback.glimpse {
                messages.extend([Msg::Glimpsed(world), Msg::Playback(player.state())]);
                messages.extend(marks.take());
            }
            messages.push(Msg::ReadingOn(percent));
            messages
        } else {
            let mut messages: Vec<Msg> = playback.reset.map(Msg::Reset).into_iter().collect();
            messages.extend(playback.envelopes.into_iter().map(Msg::Replayed));
            messages.push(Msg::Playback(player.state()));
            messages.extend(marks.take());
            messages
        };
        if moved.blocking_send(messages).is_err() {
            return;
        }
        if is_there {
            has_arrived = true;
            if let Some(command) = then.take() {
                carry_out(&mut player, command);
                continue;
            }
        }
        match wait(&mut player, asked, moved, &mut looked) {
            Ok(first) => {
                for command in [first].into_iter().chain(asked.try_iter()) {
                    match command {
                        Asked::Window(length) => player.show_window(length),
                        Asked::Find(search) => player.find_line(*search),
                        Asked::Then(command) if !has_arrived => then = Some(command),
                        // another way is wanted
                        Asked::Then(command) | Asked::Now(command) => {
                            then = None;
                            carry_out(&mut player, command);
                        }
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Waits for a command, or until the playhead wants to move or the recording has grown. Meanwhile it tells what lies
/// after the playhead, and once which steps lie far outside of the run.
fn wait(
    player: &mut Player,
    asked: &Receiver<Asked>,
    moved: &told::Sender<Vec<Msg>>,
    looked: &mut Stamp,
) -> Result<Asked, RecvTimeoutError> {
    loop {
        loop {
            match asked.try_recv() {
                Ok(first) => return Ok(first),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let told = if player.looks_ahead() {
                look_ahead(player)
            } else if player.looks_for_far_steps() {
                player.look_for_far_steps().map(|words| Msg::Notice(Level::Warning, words))
            } else {
                break;
            };
            if told.is_some_and(|told| moved.blocking_send(vec![told]).is_err()) {
                return Err(RecvTimeoutError::Disconnected);
            }
            let now = clock::now();
            if [player.next_wake(now), until_look(player, *looked, now)].contains(&Some(Duration::ZERO)) {
                break;
            }
        }
        let now = clock::now();
        let until_move = player.next_wake(now).unwrap_or(Duration::MAX);
        let until_look = until_look(player, *looked, now).unwrap_or(Duration::MAX);
        let first = match until_move.min(until_look) {
            Duration::MAX => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            wait => asked.recv_timeout(wait),
        };
        // what has grown is taken in however much there is to read and to play
        if until_move < until_look || !matches!(first, Err(RecvTimeoutError::Timeout)) {
            return first;
        }
        *looked = clock::now();
        if player.grow(*looked) {
            return first;
        }
    }
}

/// Reads some of what lies after the playhead.
fn look_ahead(player: &mut Player) -> Option<Msg> {
    player.look_ahead().map(|told| match told {
        LookedAhead::Timeline(ahead) => Msg::TimelineAhead(ahead),
        LookedAhead::Phases(window) => Msg::PhaseWindow(window),
        LookedAhead::Lines(after, lines) => Msg::LinesAhead(after, lines),
        LookedAhead::Line(line) => Msg::LineFound(line),
    })
}

/// How long until it is looked whether the recording has grown; `None` where it can't.
fn until_look(player: &Player, looked: Stamp, now: Stamp) -> Option<Duration> {
    let passed = Duration::from_micros(now.micros_since(looked).max(0).unsigned_abs());
    player.may_grow().then(|| LOOK.saturating_sub(passed))
}

fn carry_out(player: &mut Player, command: PlayCommand) {
    let state = player.state();
    match command {
        PlayCommand::Toggle => player.toggle(),
        PlayCommand::SeekBy(micros) => player.seek(state.playhead.plus_micros(micros)),
        PlayCommand::SeekTo(stamp) => player.go_to_event(stamp),
        PlayCommand::ToLine(at, lines) => player.go_to_line(at, lines),
        PlayCommand::StepBy(steps) => player.step(steps),
        PlayCommand::ToStep(step) => player.go_to_step(step),
        PlayCommand::SpeedUp => player.set_speed((state.speed * 2.0).min(SPEEDS.1)),
        PlayCommand::SlowDown => player.set_speed((state.speed / 2.0).max(SPEEDS.0)),
        PlayCommand::ToStart => player.seek(state.start),
        PlayCommand::ToEnd => player.seek(state.end),
        PlayCommand::Follow => player.follow(),
    }
}

impl EventSource for Replay {
    async fn next(&mut self, _most: usize) -> Vec<Msg> {
        // what was recorded between two frames is no flood
        self.advance().await
    }

    fn perform(&mut self, effect: Effect) {
        // a recording has no hosts and no runs: nothing else can be asked of it
        match effect {
            Effect::Play(command) => self.play(command),
            Effect::PlayThen(command) => self.play_then(command),
            Effect::ShowWindow(length) => self.show_window(length),
            Effect::FindLine(search) => self.find_line(search),
            Effect::Analyze { from, to } => self.analyze(from, to),
            Effect::Mark(run, change) => self.mark(run, change),
            // there is no other run here
            Effect::Report(of) => self.reports.ask(of, |_| self.recording.clone()),
            Effect::LeaveReport => self.reports.leave(),
            _ => {}
        }
    }
}
