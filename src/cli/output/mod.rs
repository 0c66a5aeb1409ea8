//! Standard output and standard error of a command that has other things to do meanwhile: a run that is followed.
//!
//! What is printed goes into a queue, and a thread of its own writes it: a reader that takes nothing (`| less`, a terminal
//! stopped by ctrl-s) stops that thread alone, and signals, deadlines, links and recordings go on. Commands that do nothing
//! else meanwhile write directly, until [`start`] is called. Why it is so: docs/decisions/blocked-output.md.

mod flow;
mod missing;
mod spill;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use flow::Closed;
use flow::Flow;
pub(crate) use missing::{fail_where_missing, reason};
use tokio::sync::Notify;
use tokio::time;

use super::errors::{Code, Failure};
use super::signals::Signals;
use crate::clock;
use crate::domain::time::Stamp;
use crate::domain::units::bytes;

/// How long a reader may take nothing before a command leaves that was told to end.
const AFTER_SIGNAL: Duration = Duration::from_secs(1);
/// The same for a command that ends by itself: its output may still be read.
const AT_END: Duration = Duration::from_secs(600);
/// A wait that lasts longer says for whom.
const PATIENCE_US: i64 = 2_000_000;
/// Bytes that need not wait.
const MUCH: u64 = 256 << 10;
/// Between two looks at what a reader has taken.
const LOOK: Duration = Duration::from_millis(250);

/// The standard streams of this process.
struct Streams {
    out: Flow,
    /// None where it leads to where standard output leads: one queue keeps the order of the lines.
    err: Option<Flow>,
}

static STREAMS: OnceLock<Streams> = OnceLock::new();
/// Told whenever a stream has closed or has nothing more to write.
static CHANGED: Notify = Notify::const_new();

impl Streams {
    fn err(&self) -> &Flow {
        self.err.as_ref().unwrap_or(&self.out)
    }

    fn all(&self) -> impl Iterator<Item = &Flow> {
        std::iter::once(&self.out).chain(&self.err)
    }
}

/// From here on nothing that is printed blocks. What does not fit into memory waits in a file in `dir`.
pub(crate) fn start(dir: &Path) -> Result<(), Failure> {
    if STREAMS.get().is_some() {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::bug(format!("prepare the output: {error}"));
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(failed);
    let (out, err) = (own(std::io::stdout().as_fd())?, own(std::io::stderr().as_fd())?);
    let flow = |fd, name| Flow::start(fd, name, dir, || CHANGED.notify_one()).map_err(failed);
    let err = if is_same(&out, &err) { None } else { Some(flow(err, "standard error")?) };
    let streams = Streams { out: flow(out, "standard output")?, err };
    // they are started here only: commands begin one after the other
    let _ = STREAMS.set(streams);
    Ok(())
}

/// Whether both lead to one terminal, pipe or file.
fn is_same(a: &OwnedFd, b: &OwnedFd) -> bool {
    let file = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino, stat.st_rdev));
    matches!((file(a), file(b)), (Ok(a), Ok(b)) if a == b)
}

/// Prints to standard output.
///
/// # Errors
/// What the system says; once [`start`] was called nothing, see [`closed`].
pub(crate) fn out(text: &str) -> std::io::Result<()> {
    if let Some(streams) = STREAMS.get() {
        streams.out.push(text);
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// Prints to standard error. Where that is closed there is nowhere to report it.
pub(crate) fn err(text: &str) {
    if let Some(streams) = STREAMS.get() {
        streams.err().push(text);
    } else {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Whether no earlier text waits before what is printed to standard error.
pub(crate) fn err_is_free() -> bool {
    STREAMS.get().is_none_or(|streams| streams.err().waiting() == 0)
}

/// Prints to standard error what is of interest only now: nothing while earlier text waits. `false` then.
pub(crate) fn err_now(text: &str) -> bool {
    let is_free = err_is_free();
    if is_free {
        err(text);
    }
    is_free
}

/// Whether standard output has taken all that was printed.
pub(crate) fn is_taken() -> bool {
    STREAMS.get().is_none_or(|streams| streams.out.waiting() == 0)
}

/// Why standard output takes nothing more, if so.
pub(crate) fn closed() -> Option<Closed> {
    STREAMS.get()?.out.closed()
}

/// The next time that a stream has closed or has taken all. Cancel-safe.
pub(crate) async fn changed() {
    CHANGED.notified().await;
}

/// Waits while much is printed that standard output has not taken: for callers that have nothing else to do. Cancel-safe.
pub(crate) async fn room() {
    let Some(streams) = STREAMS.get() else { return };
    if streams.out.waiting() > MUCH {
        while streams.out.waiting() > 0 {
            // another wait may have got the word
            let _ = time::timeout(LOOK, changed()).await;
        }
    }
}

/// Since when standard output, or where it has taken all standard error, has taken nothing of what waits.
#[derive(Debug, Default)]
pub(crate) struct Stillness(Option<(u64, Stamp)>);

impl Stillness {
    /// For how long, as far as this was asked.
    fn lasts(&mut self, streams: &Streams, now: Stamp) -> Duration {
        // hvtui's own words on standard error are no sign of a reader of standard output
        let flow = if streams.out.waiting() > 0 { &streams.out } else { streams.err() };
        let (taken, waits) = (flow.taken(), flow.waiting() > 0);
        let since = self.0.filter(|(before, _)| waits && *before == taken).map_or(now, |(_, since)| since);
        self.0 = Some((taken, since));
        Duration::from_micros(now.micros_since(since).unsigned_abs())
    }

    /// Whether a command that was told to end waits no longer for a reader. To be asked now and then.
    pub(crate) fn is_long(&mut self) -> bool {
        STREAMS.get().is_some_and(|streams| self.lasts(streams, clock::now()) >= AFTER_SIGNAL)
    }
}

/// The end of a command: waits for what was printed to be taken, says for whom it waits, and goes when a signal comes or
/// a reader has taken nothing for long, sooner where a signal has asked for the end. Without `signals` they end the process
/// by themselves.
///
/// # Errors
/// Standard output could not be written.
pub(crate) async fn end(signals: Option<&mut Signals>) -> Result<(), Failure> {
    end_after(signals, Stillness::default()).await
}

/// The same where it is known since when nothing is taken.
///
/// # Errors
/// Standard output could not be written.
pub(crate) async fn end_after(
    mut signals: Option<&mut Signals>,
    mut stillness: Stillness,
) -> Result<(), Failure> {
    let Some(streams) = STREAMS.get() else { return Ok(()) };
    let told = signals.as_ref().is_some_and(|signals| signals.have_come());
    let patience = if told { AFTER_SIGNAL } else { AT_END };
    let mut look = time::interval(LOOK);
    let began = clock::now();
    let mut has_said = false;
    while streams.all().any(|flow| flow.waiting() > 0) {
        let signal = async {
            match &mut signals {
                Some(signals) => drop(signals.next().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signal => break,
            () = changed() => {}
            _ = look.tick() => {
                let now = clock::now();
                let still = stillness.lasts(streams, now);
                // what is printed on standard error alone holds nothing up for long
                let patience = if streams.out.waiting() > 0 { patience } else { AFTER_SIGNAL };
                if signals.is_some() && still >= patience {
                    break;
                }
                if !has_said && !told && now.micros_since(began) >= PATIENCE_US {
                    has_said = true;
                    let size = bytes(streams.out.waiting());
                    say(streams, &format!("waiting for standard output to take {size}; ctrl-c leaves at once"));
                }
            }
        }
    }
    let left = streams.out.waiting();
    if left > 0 {
        let text =
            "was not taken by standard output and is not printed; `hvtui logs` prints what ranks printed";
        say(streams, &format!("{} {text}", bytes(left)));
    }
    closed().map_or(Ok(()), |closed| match closed {
        Closed::Reader => Ok(()),
        failed @ Closed::Failed(_) => Err(Failure::new(Code::Io, failed.words())),
    })
}

/// Says something of standard output, where standard error is another stream.
fn say(streams: &Streams, text: &str) {
    if streams.out.waiting() > 0 && streams.err.is_some() {
        err(&format!("hvtui: {text}\n"));
    }
}

/// The end of the process: what standard error has not taken by then is waited for as long as it takes something.
pub(crate) fn last_words() {
    if let Some(streams) = STREAMS.get() {
        streams.err().wait_while_it_moves(AFTER_SIGNAL);
    }
}

/// Whether nothing reads standard output any more, so that a command which prints nothing learns it too.
pub(crate) fn reader_is_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&now)).is_ok() && watched[0].revents().contains(PollFlags::ERR)
}
