//! The loop of the terminal UI: waits for a key or a message, takes in what is queued, draws once, at
//! least 10 ms apart, a tenth of a second where only numbers move, and does nothing while nothing happens.
//!
//! Knows crossterm and tokio; knows nothing of hosts, runs or recordings beyond the messages.

mod frame_budget;
mod input;
mod keys;
mod outlets;
mod signals;
mod term;

use std::io;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::frame_budget::FrameBudget;
use self::input::{Clicks, UnmarkedPaste};
use self::signals::{Asked, Signals, Whom};
use self::term::Screen;
use super::canvas::Caps;
use super::core::{Effect, Level, Msg};
use super::screens::view::draw;
use super::screens::{Model, takes_lines, update_all};
use super::source::EventSource;
use crate::clock;
use crate::domain::time::HostTime;
use crate::sched::{self, For};

/// Least time between two frames.
const FRAME: Duration = Duration::from_millis(10);
/// How often clocks and ages move on while nothing happens.
const TICK: Duration = Duration::from_secs(1);

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
/// error, panic, SIGTERM, SIGHUP and SIGINT, and while it is stopped by ctrl-z or SIGTSTP. What `source` started goes on
/// without it.
///
/// Gives the number of the signal that ended it, if one did.
pub async fn run(
    source: &mut impl EventSource,
    model: &mut Model,
    caps: Caps,
) -> Result<Option<u8>, RuntimeError> {
    match show(source, model, caps).await {
        // a write may fail before anything else tells that it is gone
        Err(RuntimeError::Terminal(_)) if term::is_gone() => Err(RuntimeError::TerminalGone),
        ended => ended,
    }
}

async fn show(
    source: &mut impl EventSource,
    model: &mut Model,
    caps: Caps,
) -> Result<Option<u8>, RuntimeError> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::enter(!model.settings.terminal_mouse)?;
    // a key passes the threads that are started now, and this one
    sched::short_turns(For::ItsThreadsToo);
    let keys = keys::read();
    sched::short_turns(For::ThisThread);
    let mut keys = keys?;
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let size = screen.size()?;
    let (mut clicks, mut unmarked) = (Clicks::default(), UnmarkedPaste::default());
    let mut queue = vec![Msg::Tick(clock::now()), Msg::Resize(size.0, size.1)];
    let mut budget = FrameBudget::default();
    let (told, mut tellings) = unbounded_channel();
    loop {
        let taken_in = clock::host_now();
        let (mut redraw, mut suspend) = (false, false);
        if takes_lines(model) {
            queue = unmarked.gather(queue, taken_in);
        }
        for effect in update_all(model, queue) {
            match effect {
                Effect::Quit => return Ok(None),
                Effect::Redraw => redraw = true,
                Effect::Suspend => suspend = true,
                Effect::Copy(text) => screen.write(&outlets::to_clipboard(&text))?,
                Effect::Save { name, text, what } => outlets::save(name, text, what, told.clone()),
                effect => source.perform(effect),
            }
        }
        if redraw {
            screen.forget()?;
        }
        queue = if suspend { stop(&mut screen, &mut signals, Whom::Job).await? } else { Vec::new() };
        screen.listen_to_mouse(!model.settings.terminal_mouse)?;
        screen.draw(|buffer| draw(model, caps, buffer))?;
        let begun = clock::host_now();
        let cost = Duration::from_micros(begun.0.saturating_sub(taken_in.0));
        let rests_until = begun.0 + FRAME.as_micros() as u64;
        let (pause, calm_pause) = (sleep(FRAME), sleep(frame_budget::calm(cost)));
        tokio::pin!(pause, calm_pause);
        // one event is awaited, then the pause collects what comes with it; a longer one while all of it may wait
        let mut late = Duration::ZERO;
        let (mut calm, mut rested, mut came) = (true, false, None::<HostTime>);
        while queue.is_empty() || !rested || calm && !calm_pause.is_elapsed() {
            tokio::select! {
                biased;
                asked = signals.next() => match asked {
                    Asked::End(signal) => return Ok(Some(signal)),
                    Asked::Stop => queue.extend(stop(&mut screen, &mut signals, Whom::Itself).await?),
                    Asked::GoOn => queue.extend(go_on(&mut screen)?),
                },
                some = keys.recv() => match some {
                    Some(some) => queue.extend(some?.iter().filter_map(|event| clicks.message(event))),
                    None => return Err(io::Error::other("the thread that reads its keys has ended").into()),
                },
                // the first ones; the others wait where they are, and this thread meanwhile sleeps
                messages = source.next(budget.most()), if calm && queue.len() < budget.most() => queue.extend(messages),
                Some(telling) = tellings.recv() => queue.push(telling),
                _ = tick.tick() => {
                    // no signal tells it where this is not the terminal of our session
                    if term::is_gone() {
                        return Err(RuntimeError::TerminalGone);
                    }
                    queue.push(Msg::Tick(clock::now()));
                }
                () = &mut pause, if !queue.is_empty() && !rested => {
                    // from when there was something to show: who waits for messages is not late
                    let due = came.map_or(0, |came| came.0).max(rests_until);
                    late = Duration::from_micros(clock::host_now().0.saturating_sub(due));
                    rested = true;
                }
                () = &mut calm_pause, if calm && !queue.is_empty() => {}
            }
            if came.is_none() && !queue.is_empty() {
                let now = clock::host_now();
                came = Some(now);
                // a timer that is set when its time is past takes some milliseconds all the same
                rested = now.0 >= rests_until;
            }
            // a flood is taken in frame by frame, seen or not
            calm =
                calm && queue.len() < budget.most() && queue.iter().all(|msg| msg.is_calm(model.ui.screen));
        }
        // the keys that are there, so that one frame shows all of them
        while let Ok(some) = keys.try_recv() {
            queue.extend(some?.iter().filter_map(|event| clicks.message(event)));
        }
        drain(source, &mut queue, budget.most());
        budget.framed(late, queue.len());
    }
}

/// Takes the messages that are there without waiting, until there are `most`.
fn drain(source: &mut impl EventSource, queue: &mut Vec<Msg>, most: usize) {
    while queue.len() < most {
        let Some(messages) = source.next(most - queue.len()).now_or_never() else { return };
        queue.extend(messages);
    }
}

/// Gives the terminal back, stops until it is continued, and takes the terminal again. What is to be taken in then.
async fn stop(screen: &mut Screen, signals: &mut Signals, whom: Whom) -> Result<Vec<Msg>, io::Error> {
    Screen::give_back();
    let stopped = signals.stop(whom).await;
    let mut messages = go_on(screen)?;
    if !stopped? {
        let text = "hvtui does not stop: no shell would continue it";
        messages.push(Msg::Notice(Level::Info, text.to_owned()));
    }
    Ok(messages)
}

/// Takes the terminal again after a stop; it may have another size.
fn go_on(screen: &mut Screen) -> Result<Vec<Msg>, io::Error> {
    screen.take_again()?;
    let size = screen.size()?;
    Ok(vec![Msg::Tick(clock::now()), Msg::Resize(size.0, size.1)])
}
