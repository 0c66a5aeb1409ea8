//! Runs whose ranks are started by a launcher: mpirun, srun, torchrun, horovodrun.
//!
//! ```text
//! first host    supervise ─┬─ rank-wrap 0 ── rank 0              other host    supervise ─┬─ rank-wrap 1 ── rank 1
//!                          ├─ launch-wrap ── mpirun ─┬─ rank-shim 0                       └─ node-wrap ── orted ── rank-shim 1
//!                          │      ▲                  └─ rsh-agent                                │
//!                          │      └──────────────────────── proven connection ──────────────────┘
//! ```
//!
//! - `seat`: a rank's rank-wrap waits until the launcher has started the rank's shim, and starts the rank with the
//!   environment that the launcher gave to that. So a rank belongs to its rank-wrap, as every rank does: its exit is
//!   on disk, its GPU is held until its end, and a stop gives it its grace however its launcher ends its shims.
//!   `manager`: the descriptor by which it speaks with its launcher's process manager.
//! - [`shim`]: what the launcher takes for the rank. It hands on its environment and ends as the rank ends.
//! - [`launch`]: the launcher's parent. What the launcher says goes to the standard error of the host's first rank.
//! - [`node`]: carries out on another host what the launcher wants there, as sshd would; [`rsh`] is what the launcher
//!   takes for ssh; `channel` is the connection between the two hosts, `frame` what is said on it.
//! - `own`: the supervisor's part.
//! - `tagged`: splits the output of a launcher whose ranks are children of no process here.

mod channel;
mod frame;
pub mod launch;
mod manager;
pub mod node;
pub(super) mod own;
mod remote;
pub mod rsh;
pub(super) mod seat;
pub mod shim;
mod tagged;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::SuperviseError;
use super::daemon::keep_descriptors_from_children;
use super::rundir::RunDir;
use super::state::SPEC;
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::domain::time::HostTime;
use crate::procs::{secrecy, table};

/// `engine.json`: how the launcher or the node has ended, an [`EngineEnd`].
pub const END: &str = "engine.json";
/// The socket on which the launcher's wrapper hears the `rsh-agent`s.
const AGENTS: &str = "agents.sock";
/// The most bytes of a rank's environment, or of one message.
const LIMIT: usize = 8 << 20;

/// `rank-3.sock`: where a rank's shim finds its rank-wrap.
fn seat_file(rank: Rank) -> String {
    format!("rank-{rank}.sock")
}

/// How a launcher or a node has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineEnd {
    /// Its exit code, or what a shell would give.
    pub code: i32,
    /// Whether it ended by itself, and not because a rank had.
    pub died: bool,
    /// For people, with the program's name: `mpirun: There are not enough slots …`.
    pub words: String,
    /// When.
    pub t: HostTime,
}

impl EngineEnd {
    /// Why a rank is not there that should be.
    pub(super) fn of_absent(&self, rank: Rank) -> String {
        match self.code {
            0 => format!("{} without starting rank {rank}", self.words),
            _ => self.words.clone(),
        }
    }
}

/// The variable that holds the run's secret.
const RUN_SECRET: &str = "HVTUI_SECRET";

/// Runs the wrapper of a launcher or a node: `work` says what to end with, or nothing where the run has none.
fn wrapper<W: Future<Output = Option<i32>>>(
    dir: &Path,
    work: impl FnOnce(RunDir, HostRun) -> W,
) -> Result<i32, SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, dir, e);
    secrecy::leave_no_core();
    // Leases may be among them.
    keep_descriptors_from_children().map_err(failed("list the descriptors for a launcher of"))?;
    // What loses its parent stays below this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| failed("own the processes of")(e.into()))?;
    // Fails only when this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(failed("start a launcher of"))?;
    let dir = RunDir::open(dir)?;
    let spec: Option<HostRun> = dir.read_json(SPEC)?;
    let damaged = SuperviseError::Damaged {
        path: dir.path().join(SPEC),
        detail: "it has no such launcher or node".to_owned(),
    };
    let Some(spec) = spec else { return Err(damaged) };
    let ended = runtime.block_on(async {
        for kind in
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()]
        {
            // A handler, not «ignore», which a launcher would inherit. It stays for the life of the process.
            drop(signal(kind).map_err(failed_by(&dir))?);
        }
        Ok::<_, SuperviseError>(work(dir, spec).await)
    })?;
    // Reads that are not waited for must not hold up the end.
    runtime.shutdown_background();
    ended.ok_or(damaged)
}

/// How long what is left may take to end when it was told to.
const GRACE: Duration = Duration::from_secs(2);

/// Ends what a launcher has left below this wrapper, which owns it: TERM, and KILL when the grace is over.
async fn sweep() {
    let left = || table::descendants(&table::all(), &BTreeSet::from([std::process::id()]));
    for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
        let began = clock::host_now();
        let mut told = BTreeSet::new();
        loop {
            let left = left();
            if left.is_empty() {
                return;
            }
            for process in left.iter().filter(|process| told.insert(process.pid)) {
                process.signal(signal);
            }
            if u128::from(clock::host_now().0.saturating_sub(began.0)) > patience.as_micros() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn failed_by(dir: &RunDir) -> impl Fn(io::Error) -> SuperviseError {
    let path = dir.path().to_owned();
    move |e| SuperviseError::io("ignore signals for", &path, e)
}
