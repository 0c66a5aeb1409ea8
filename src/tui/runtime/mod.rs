//! The loop of the terminal UI: waits for a key or a message, takes in all that is queued, draws once, at
//! least 10 ms apart, and does nothing while nothing happens.
//!
//! Knows crossterm and tokio; knows nothing of hosts, runs or recordings beyond the messages.

mod input;
mod term;

use std::time::Duration;

use crossterm::event::EventStream;
use futures_util::{FutureExt, StreamExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::term::Screen;
use super::core::{Effect, Model, Msg, update};
use super::source::EventSource;
use super::view::{Caps, render};
use crate::clock;

/// Least time between two frames.
const FRAME: Duration = Duration::from_millis(10);
/// How often clocks and ages move on while nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// A frame is due when this many messages wait, however fast they come.
const BATCH: usize = 4096;

/// Why the UI ended other than by a wish.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The terminal can't be used.
    #[error("use the terminal: {0}")]
    Terminal(#[from] std::io::Error),
    /// The terminal went away.
    #[error("the terminal is gone")]
    TerminalGone,
}

/// Runs the UI until a person or a signal ends it. The terminal is restored on every way out: return,
/// error, panic, SIGTERM, SIGHUP and SIGINT. What `source` started goes on without it.
///
/// Gives the number of the signal that ended it, if one did.
pub async fn run(
    source: &mut impl EventSource,
    mut model: Model,
    caps: Caps,
) -> Result<Option<u8>, RuntimeError> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::enter()?;
    let mut keys = EventStream::new();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let size = screen.size()?;
    let mut queue = vec![Msg::Tick(clock::now()), Msg::Resize(size.0, size.1)];
    loop {
        if take_in(&mut model, source, queue) {
            return Ok(None);
        }
        screen.draw(|frame| render(&model, caps, frame))?;
        let pause = sleep(FRAME);
        tokio::pin!(pause);
        queue = Vec::new();
        // one event is awaited, then the pause is used to collect what comes with it
        loop {
            tokio::select! {
                biased;
                signal = signals.any() => return Ok(Some(signal)),
                key = keys.next() => match key {
                    Some(Ok(event)) => queue.extend(input::message(&event)),
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(RuntimeError::TerminalGone),
                },
                messages = source.next() => queue.extend(messages),
                _ = tick.tick() => queue.push(Msg::Tick(clock::now())),
                () = &mut pause, if !queue.is_empty() => break,
            }
            if !queue.is_empty() && (pause.is_elapsed() || queue.len() >= BATCH) {
                drain(&mut keys, source, &mut queue);
                break;
            }
        }
    }
}

/// Applies messages in order and hands their effects on; true when the UI shall end.
fn take_in(model: &mut Model, source: &mut impl EventSource, queue: Vec<Msg>) -> bool {
    for msg in queue {
        for effect in update(model, msg) {
            if effect == Effect::Quit {
                return true;
            }
            source.perform(effect);
        }
    }
    false
}

/// Takes whatever is there without waiting, keys first, so that one frame shows all of it.
fn drain(keys: &mut EventStream, source: &mut impl EventSource, queue: &mut Vec<Msg>) {
    while let Some(Some(Ok(event))) = keys.next().now_or_never() {
        queue.extend(input::message(&event));
    }
    if let Some(messages) = source.next().now_or_never() {
        queue.extend(messages);
    }
}

/// The signals that end the UI.
struct Signals {
    term: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, std::io::Error> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The number of the next one.
    async fn any(&mut self) -> u8 {
        tokio::select! {
            _ = self.term.recv() => 15,
            _ = self.hangup.recv() => 1,
            _ = self.interrupt.recv() => 2,
        }
    }
}
