//! The door of a host: for some seconds it listens on a port, so that other hosts can try whether they reach it. Who comes in is
//! shown out when it has said what it has to say, of which nothing is kept, or after a second: nothing is told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::doctor::door::{self, BULK};
use crate::domain::doctor::Door;
use crate::domain::text::os_text;
use crate::domain::time::HostTime;

/// How long it stays open after it was asked for last. Others may be waited for for six seconds before they are told of it, and
/// knock for four: one that had closed by then would look as if a firewall rejected them.
const HELD: Duration = Duration::from_secs(15);

/// How long one who comes in may take to say what it has to say, and how many may at a time.
const HEARD: Duration = Duration::from_secs(1);
const AT_ONCE: usize = 512;

/// The door that is open, if one is.
#[derive(Debug, Clone, Default)]
pub(super) struct Doors(Arc<Mutex<Option<Open>>>);

#[derive(Debug)]
struct Open {
    port: u16,
    until: HostTime,
}

impl Doors {
    /// Opens it, or leaves the open one open for longer.
    ///
    /// # Errors
    /// It can't listen, and why.
    pub(super) fn ask(&self) -> Result<Door, String> {
        let until = HostTime(clock::host_now().0 + HELD.as_micros() as u64);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let port = if let Some(open) = open.as_mut() {
            open.until = until;
            open.port
        } else {
            let listener = door::open().and_then(TcpListener::from_std);
            let listener =
                listener.map_err(|error| format!("can't listen on any port: {}", os_text(&error)))?;
            let port = listener.local_addr().map_err(|error| os_text(&error))?.port();
            *open = Some(Open { port, until });
            tokio::spawn(self.clone().keep(listener));
            port
        };
        Ok(Door { port: Some(port), ssh_port: door::ssh_port() })
    }

    /// Until its time is over.
    async fn keep(self, listener: TcpListener) {
        let heard = Arc::new(Semaphore::new(AT_ONCE));
        while let Some(left) = self.left() {
            tokio::select! {
                came = listener.accept() => match (came, Arc::clone(&heard).try_acquire_owned()) {
                    (Ok((stream, _)), Ok(place)) => {
                        tokio::spawn(async move {
                            hear(stream).await;
                            drop(place);
                        });
                    }
                    // too many: that one is shown out at once
                    (Ok(_), Err(_)) => {}
                    // an error, as of too many files, is not answered by trying at once again
                    (Err(_), _) => sleep(Duration::from_millis(10)).await,
                },
                () = sleep(left) => {}
            }
        }
    }

    /// How long it is to be open yet; where that is over, it is no more.
    fn left(&self) -> Option<Duration> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.as_ref().map(|open| open.until.0.saturating_sub(clock::host_now().0));
        if left == Some(0) {
            *open = None;
            return None;
        }
        left.map(Duration::from_micros)
    }
}

/// Until it has said all: it is told by the end of the connection that it has come.
async fn hear(stream: TcpStream) {
    let mut said = stream.take(BULK as u64 + 1);
    let _ = timeout(HEARD, copy(&mut said, &mut sink())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_door_is_open_however_often_it_is_asked_for() {
        let doors = Doors::default();
        let (first, second) = (doors.ask().unwrap(), doors.ask().unwrap());
        assert_eq!(first, second);
        let port = first.port.unwrap();
        assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok());
        doors.0.lock().unwrap().as_mut().unwrap().until = HostTime(0);
        assert_eq!(doors.left(), None);
        assert!(doors.0.lock().unwrap().is_none(), "the next one opens another");
    }
}
