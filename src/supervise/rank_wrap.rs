//! The parent of one rank: starts it, waits for it, and writes down how it ended.
//!
//! As small as can be, so that it outlives everything else: a supervisor that dies takes no exit code with
//! it. It has its own session and ignores what ends the rank; the rank has its own process group, so that a
//! script's `kill 0` does not reach the rank-wrap.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::SuperviseError;
use super::daemon::keep_descriptors_from_children;
use super::identity::Identity;
use super::lease;
use super::program::{own_binary, resolve, working_directory};
use super::rundir::RunDir;
use super::state::{SPEC, STOP, Started, StopMark, exit_file, started_file};
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::run::{HostRun, RankExit, RankSpec};
use crate::domain::time::HostTime;

/// Runs a rank to its end. Its environment and its standard streams are this process's own.
///
/// Returns the code a shell would give for the rank: should the disk be full, that is all that is left of
/// the truth.
pub fn run(dir: &Path, rank: Rank) -> Result<i32, SuperviseError> {
    // The lease of the rank's GPU is among them: it is this process's alone.
    keep_descriptors_from_children()
        .map_err(|e| SuperviseError::io("list the descriptors for a rank of", dir, e))?;
    // Fails only when this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let _shield = shield().map_err(|e| SuperviseError::io("ignore signals for", dir, e))?;
    let dir = RunDir::open(dir)?;
    let spec: Option<HostRun> = dir.read_json(SPEC)?;
    let found = spec.as_ref().and_then(|spec| spec.ranks.iter().find(|one| one.rank == rank));
    let ours = found.ok_or_else(|| SuperviseError::Damaged {
        path: dir.path().join(SPEC),
        detail: format!("it has no rank {rank}"),
    })?;
    let mut exit = match run_rank(&dir, ours) {
        Ok(exit) => exit,
        Err((code, error)) => exit(Some(code), None, Some(error)),
    };
    exit.stopped = dir.has(STOP);
    dir.write_json(&exit_file(rank), &exit)?;
    if let Some(spec) = &spec {
        lease::retire(spec, rank);
    }
    Ok(exit.shell_code())
}

/// Keeps TERM and the like from ending this process. A handler, not «ignore»: the rank must not inherit it.
fn shield() -> io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let entered = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
        // Handlers stay for the life of the process.
        drop(signal(kind)?);
    }
    drop(entered);
    Ok(runtime)
}

/// The rank's end, or why it never began with the code that a shell gives for that.
fn run_rank(dir: &RunDir, spec: &RankSpec) -> Result<RankExit, (i32, String)> {
    const NOT_FOUND: i32 = 127;
    let not_found = |e: SuperviseError| (NOT_FOUND, e.to_string());
    let cwd = working_directory(spec.cwd.as_deref()).map_err(not_found)?;
    let [name, arguments @ ..] = spec.argv.as_slice() else {
        return Err((NOT_FOUND, "the command is empty".to_owned()));
    };
    let path = std::env::var_os("PATH");
    let program = resolve(name, path.as_deref(), &cwd, &own_binary()).map_err(not_found)?;
    let mut child = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .current_dir(cwd)
        .process_group(0)
        .spawn()
        .map_err(|e| (126, format!("exec {}: {}", program.display(), super::os_text(&e))))?;
    let recorded = Identity::of(child.id())
        .map_err(|e| SuperviseError::io("identify", &program, e))
        .map(|process| Started { process, t: clock::host_now() })
        .and_then(|started| dir.write_json(&started_file(spec.rank), &started));
    if let Err(error) = recorded {
        // A rank that nobody can find again would outlive its run.
        let _ = child.kill();
        let _ = child.wait();
        return Err((126, format!("record the rank's process: {error}")));
    }
    // Told to stop while the rank was being started: the supervisor may have looked for it too early. Its KILL
    // comes again and again; its TERM came once.
    if matches!(dir.read_json::<StopMark>(STOP), Ok(Some(mark)) if !mark.now) {
        let _ = Identity::of(child.id()).and_then(|process| process.signal(Signal::TERM));
    }
    match child.wait() {
        Ok(status) => Ok(exit(status.code(), status.signal(), None)),
        Err(e) => Err((126, format!("wait for {}: {}", program.display(), super::os_text(&e)))),
    }
}

fn exit(code: Option<i32>, signal: Option<i32>, error: Option<String>) -> RankExit {
    let t: HostTime = clock::host_now();
    RankExit { code, signal, t, error, stopped: false, cause: None }
}
