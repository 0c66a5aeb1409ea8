//! What a person asks of a command by signals.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::errors::Failure;

/// Whether the command itself acts on signals.
static HEARD: AtomicBool = AtomicBool::new(false);

/// Whether the command itself acts on signals.
pub(crate) fn are_heard() -> bool {
    HEARD.load(Ordering::Relaxed)
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Stop: by SIGINT or SIGTERM, for the nth time.
    Stop {
        /// How often it was asked, this time included.
        times: u32,
        /// The exit code for leaving at once.
        code: u8,
    },
    /// The terminal is gone (SIGHUP): leave, what runs goes on.
    Leave,
}

impl Ask {
    /// The exit code for leaving at once, as a shell gives: 128 and the signal's number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Stop { code, .. } => code,
            Self::Leave => 129,
        }
    }
}

/// Listens for signals; from then on they end nothing by themselves.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    times: u32,
    have_come: bool,
    is_alone: bool,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let signals = Self::beside()?;
        HEARD.store(true, Ordering::Relaxed);
        Ok(signals)
    }

    /// The same signals for a part that runs beside the command; acting on them is left to the command where it does.
    pub(crate) fn beside() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::bug(format!("listen for signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            times: 0,
            have_come: false,
            is_alone: false,
        })
    }

    /// Whether leaving was asked for so often that nothing more is waited for.
    pub(crate) fn insist(&self) -> bool {
        self.times >= 3
    }

    /// Whether the terminal is gone: no user can press ctrl-c any more.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The terminal is gone, as is known without a signal.
    pub(crate) fn are_alone(&mut self) {
        self.is_alone = true;
    }

    /// Forgets those that have come and were not asked for yet.
    pub(crate) fn drain(&mut self) {
        while self.next().now_or_never().is_some() {}
    }

    /// Whether one has come.
    pub(crate) fn have_come(&self) -> bool {
        self.have_come
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Ask {
        let code = tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hangup.recv() => {
                (self.have_come, self.is_alone) = (true, true);
                return Ask::Leave;
            }
        };
        self.have_come = true;
        self.times += 1;
        Ask::Stop { times: self.times, code }
    }
}
