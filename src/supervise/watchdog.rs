//! A rank-wrap's eye on the supervisor: when that dies, the run gets a new one at once, so that one failing rank
//! still ends its peers though no client is attached.
//!
//! Each rank-wrap of the run tries; [one wins](super::adopt). What can't be started now is tried again later.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::adopt::{command, owner};
use super::environment::limits::Lent;
use super::rundir::RunDir;
use super::state::{Phase, STATE, State};
use crate::domain::ids::Rank;
use crate::procs::identity::Identity;
use crate::procs::pidfd;
use crate::program::own_binary;

/// The rank-wraps try one after the other, so that all but the first find the work done.
const APART: Duration = Duration::from_millis(30);
/// After a try that failed, and twice as long after each further one.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// How often a supervisor is looked for where the kernel gives no handle on it.
const POLL: Duration = Duration::from_millis(500);

/// What one rank-wrap knows of the supervisor.
#[derive(Debug)]
pub(super) struct Watchdog {
    dir: Option<RunDir>,
    turn: Duration,
    retry: Duration,
    /// The new supervisor's first stage, while it runs.
    starting: Option<u32>,
    /// Whether the supervisor that started this process is dead.
    orphaned: bool,
}

impl Watchdog {
    /// For the rank-wrap of a rank.
    pub(super) fn new(dir: &RunDir, rank: Rank) -> Self {
        Self {
            dir: RunDir::open(dir.path()).ok(),
            turn: APART * (rank.0 % 16),
            retry: RETRY,
            starting: None,
            orphaned: false,
        }
    }

    /// Whether the supervisor that started this process is dead. Looks itself: its death may have come a moment
    /// before the rank's end, and may not have been noticed yet.
    pub(super) fn orphaned(&mut self) -> bool {
        if !self.orphaned
            && let Some((generation, owner)) = self.owner()
        {
            self.orphaned = generation > 0 || !owner.alive();
        }
        self.orphaned
    }

    /// Whether the run goes on without a supervisor and one can still be expected.
    pub(super) fn awaits_another(&self) -> bool {
        self.retry < RETRY_MOST && self.owner().is_some_and(|(_, owner)| !owner.alive())
    }

    /// A child of this process has ended.
    pub(super) fn reaped(&mut self, pid: u32) {
        if self.starting == Some(pid) {
            self.starting = None;
            // From now on orphans of the rank come to this process again.
            let _ = set_child_subreaper(Some(getpid()));
        }
    }

    /// Waits for the supervisor's death and starts a new one. Returns when something was done; never, where
    /// nothing is to be done any more.
    pub(super) async fn watch(&mut self) {
        let Some(state) = self.state() else {
            return std::future::pending().await;
        };
        if self.starting.is_some() || (self.orphaned && state.phase == Phase::Ended) {
            // Its end wakes this process by SIGCHLD.
            return std::future::pending().await;
        }
        let Some((generation, owner)) = self.dir.as_ref().and_then(|dir| owner(dir, &state).ok()) else {
            return tokio::time::sleep(self.retry).await;
        };
        if owner.alive() {
            self.retry = RETRY;
            self.orphaned |= generation > 0;
            return gone(&owner).await;
        }
        if self.orphaned && self.retry > RETRY {
            tokio::time::sleep(self.retry).await;
        } else {
            tokio::time::sleep(self.turn).await;
        }
        self.orphaned = true;
        self.start();
    }

    fn start(&mut self) {
        let Some(dir) = &self.dir else {
            return;
        };
        self.retry = (self.retry * 2).min(RETRY_MOST);
        let supervised = |state: &State| owner(dir, state).is_ok_and(|(_, owner)| owner.alive());
        match self.state() {
            Some(state) if state.phase != Phase::Ended && !supervised(&state) => {}
            _ => return,
        }
        // The new supervisor must not become a child of this process when its first stage ends.
        let _ = set_child_subreaper(None);
        let (lent, _) = Lent::set(&BTreeMap::new());
        let started = Command::spawn(&mut command(&own_binary(), dir.path()));
        drop(lent);
        match started {
            Ok(child) => self.starting = Some(child.id()),
            Err(_) => drop(set_child_subreaper(Some(getpid()))),
        }
    }

    /// The run's newest supervisor and its generation, while the run goes on.
    fn owner(&self) -> Option<(u64, Identity)> {
        let state = self.state().filter(|state| state.phase != Phase::Ended)?;
        owner(self.dir.as_ref()?, &state).ok()
    }

    fn state(&self) -> Option<State> {
        self.dir.as_ref()?.read_json(STATE).ok()?
    }
}

/// Waits until a process has ended.
async fn gone(process: &Identity) {
    match pidfd::open(process.pid).and_then(watched) {
        // The handle is of the process that had the pid when it was made.
        Some(_) if !process.alive() => {}
        Some(handle) => drop(handle.readable().await),
        None => tokio::time::sleep(POLL).await,
    }
}

#[expect(unsafe_code, reason = "the runtime takes a descriptor's word that it stays the same")]
fn watched(handle: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result, which neither replaces nor closes it before it is dropped.
    unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }.ok()
}
