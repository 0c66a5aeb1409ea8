//! The events of the terminal, read by a thread of their own: from a terminal that is gone crossterm reads on and on, and must
//! not hold up the loop with it.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use crossterm::event::{Event, EventStream};
use futures_util::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Events that are passed on at once, and how often so many are kept for a loop that is busy. The others wait in the terminal.
const AT_ONCE: usize = 4096;
const KEPT: usize = 16;

/// Keys, the mouse, pasted text, other sizes: those that came together.
pub(super) type Keys = Receiver<io::Result<Vec<Event>>>;

/// Reads them from now on, until what this gives is dropped. It ends after an error.
pub(super) fn read() -> io::Result<Keys> {
    let runtime = Handle::current();
    let (tell, told) = channel(KEPT);
    let events = EventStream::new();
    let read = move || runtime.block_on(pass_on(events, tell));
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(told)
}

async fn pass_on(
    mut events: impl Stream<Item = io::Result<Event>> + Unpin,
    tell: Sender<io::Result<Vec<Event>>>,
) {
    loop {
        let some = tokio::select! {
            some = poll_fn(|context| there(&mut events, context)) => some,
            () = tell.closed() => return,
        };
        let is_last = some.is_err();
        if tell.send(some).await.is_err() || is_last {
            return;
        }
    }
}

/// All that are there, from the first one on: a paste that came apart here would be taken for typed keys.
///
/// The stream remembers who asked first after an event, and the next one wakes that one alone: it is asked with no other
/// context than this one.
fn there(
    events: &mut (impl Stream<Item = io::Result<Event>> + Unpin),
    context: &mut Context<'_>,
) -> Poll<io::Result<Vec<Event>>> {
    let mut some = Vec::new();
    while some.len() < AT_ONCE {
        match events.poll_next_unpin(context) {
            Poll::Ready(Some(Ok(event))) => some.push(event),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(None) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Pending => break,
        }
    }
    if some.is_empty() { Poll::Pending } else { Poll::Ready(Ok(some)) }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{iter, pending};

    use super::*;

    fn size(columns: u16) -> Event {
        Event::Resize(columns, 24)
    }

    #[tokio::test]
    async fn what_came_together_is_passed_on_together_until_its_reader_leaves() {
        let (tell, mut told) = channel(1);
        let events = iter([1, 2, 3].map(|columns| Ok(size(columns)))).chain(pending());
        let passing = tokio::spawn(pass_on(events, tell));
        assert_eq!(told.recv().await.unwrap().unwrap(), [1, 2, 3].map(size));
        assert!(told.try_recv().is_err() && !passing.is_finished());
        drop(told);
        passing.await.unwrap();
    }

    #[tokio::test]
    async fn an_error_is_told_and_is_the_last() {
        let (tell, mut told) = channel(1);
        let events = iter([Ok(size(1)), Err(io::Error::other("no terminal")), Ok(size(2))]).chain(pending());
        let passing = tokio::spawn(pass_on(events, tell));
        assert_eq!(told.recv().await.unwrap().unwrap_err().to_string(), "no terminal");
        assert!(told.recv().await.is_none());
        passing.await.unwrap();
    }

    /// Of a flood no more than so many are taken from the terminal before they are taken in.
    #[tokio::test]
    async fn a_flood_waits_in_the_terminal() {
        let (tell, mut told) = channel(1);
        let flood = iter((0..).map(|_| Ok(size(1))));
        let passing = tokio::spawn(pass_on(flood, tell));
        for _ in 0..3 {
            assert_eq!(told.recv().await.unwrap().unwrap().len(), AT_ONCE);
        }
        drop(told);
        passing.await.unwrap();
    }
}
