//! The events of the terminal, read by a thread of their own: from a terminal that is gone crossterm reads on and on, and must
//! not hold up the loop with it.

use std::io;

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Keys, the mouse, pasted text, other sizes.
pub(super) type Keys = UnboundedReceiver<io::Result<Event>>;

/// Reads them from now on, until what this gives is dropped. It ends after an error.
pub(super) fn read() -> io::Result<Keys> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let (tell, told) = unbounded_channel();
    let read = move || runtime.block_on(pass_on(EventStream::new(), tell));
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(told)
}

async fn pass_on(mut events: EventStream, tell: UnboundedSender<io::Result<Event>>) {
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tell.closed() => return,
        };
        let Some(event) = event else { return };
        let is_last = event.is_err();
        if tell.send(event).is_err() || is_last {
            return;
        }
    }
}
