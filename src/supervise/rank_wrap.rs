//! The parent of one rank: starts it, waits for it, and writes down how it ended.
//!
//! As small as can be, so that it outlives everything else: a supervisor that dies takes no exit code with
//! it. It has its own session and ignores what ends the rank; the rank has its own process group, so that a
//! script's `kill 0` does not reach the rank-wrap. It is a subreaper: what its rank leaves behind stays below it
//! even where the supervisor has died, and then it stays until all of that is gone. When the supervisor dies it
//! starts a new one (`watchdog`).

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use super::SuperviseError;
use super::daemon::keep_descriptors_from_children;
use super::engine::seat::{Seat, Seated, last_words};
use super::environment::library;
use super::environment::limits::Lent;
use super::invocation::Invocation;
use super::lease;
use super::oom::Kills;
use super::rundir::RunDir;
use super::state::{SPEC, STATE, STOP, Started, State, StopMark, exit_file, started_file};
use super::stop_mark;
use super::variables::Variables;
use super::watchdog::Watchdog;
use super::{container, disk_space, error_file, secrets};
use crate::clock;
use crate::domain::engine::Engine;
use crate::domain::ids::Rank;
use crate::domain::run::{HostRun, RankExit};
use crate::domain::text::os_text;
use crate::domain::time::HostTime;
use crate::procs::cgroup::Cgroup;
use crate::procs::identity::Identity;
use crate::procs::secrecy;
use crate::program::lacks_interpreter;

/// What a shell says of a process that SIGKILL has ended.
const KILLED: i32 = 137;

/// Runs a rank to its end. Its environment and its standard streams are this process's own.
///
/// Returns the code a shell would give for the rank: should the disk be full, that is all that is left of
/// the truth.
pub fn run(dir: &Path, rank: Rank) -> Result<i32, SuperviseError> {
    let failed = |doing| move |e| SuperviseError::io(doing, dir, e);
    // Its environment has the values of secret variables, which are read there to hide them in the output.
    secrecy::leave_no_core();
    // The lease of the rank's GPU is among them: it is this process's alone.
    keep_descriptors_from_children().map_err(failed("list the descriptors for a rank of"))?;
    // Fails only when this process leads a session already, which is what is wanted.
    let _ = rustix::process::setsid();
    let (runtime, mut child) = shield().map_err(failed("ignore signals for"))?;
    set_child_subreaper(Some(getpid())).map_err(|e| failed("own the processes of")(e.into()))?;
    let dir = RunDir::open(dir)?;
    let spec: Option<HostRun> = dir.read_json(SPEC)?;
    let damaged =
        || SuperviseError::Damaged { path: dir.path().join(SPEC), detail: format!("it has no rank {rank}") };
    let spec = spec.ok_or_else(damaged)?;
    let ours = spec.ranks.iter().find(|one| one.rank == rank).ok_or_else(damaged)?;
    // While there is room: with a full disk the run goes on, and its end must be known.
    if let Err(error) = dir.reserve(&exit_file(rank)) {
        let _ = writeln!(io::stderr(), "hvtui: {error}");
    }
    let contained = spec.container().and_then(|_| container::Setup::read(&dir));
    let kills = Kills::now();
    let mut watchdog = Watchdog::new(&dir, rank);
    let mut seated = None;
    let mut started = Ok(None);
    if spec.engine.as_ref().is_some_and(Engine::seats_ranks) {
        match runtime.block_on(seat(&dir, rank, &mut child, &mut watchdog)) {
            Ok(shim) => seated = Some(shim),
            Err(error) => started = Err((126, error.to_string())),
        }
    }
    let (lent, unset) = Lent::set(&spec.environment().limits);
    for words in unset {
        let _ = writeln!(io::stderr(), "hvtui: {words}");
    }
    let started = started.and_then(|_: Option<u32>| {
        let own = Variables::of_this_process();
        let variables = seated.as_mut().map_or(own, Seated::variables);
        start_rank(&dir, rank, &Invocation::of(&dir, &spec, ours, variables)?)
    });
    drop(lent);
    seated.iter_mut().for_each(Seated::started);
    let mut exit = match started {
        Ok(pid) => {
            let status = runtime.block_on(ended(&dir, pid, &mut child, &mut watchdog, seated.as_mut()));
            let status = status.ok_or_else(|| failed("wait for a rank of")(Errno::CHILD.into()))?;
            let exit = exit(status.exit_status(), status.terminating_signal(), None);
            match &contained {
                Some(setup) => {
                    let client = ExitStatus::from_raw(status.as_raw());
                    let said = last_words(&dir, rank);
                    let said = secrets::own(ours).hide(&said).into_owned();
                    container::Ended::of(setup, &dir, (&spec, ours), client, &said).into_exit(&exit)
                }
                None => exit,
            }
        }
        Err((code, error)) => exit(Some(code), None, Some(error)),
    };
    exit.stopped = stop_mark::names(&dir, rank);
    if let Some(seated) = &seated {
        runtime.block_on(seated.judge(&dir, rank, &mut exit));
    }
    if exit.error.is_none() && exit.cause.is_none() && exit.shell_code() != 0 && !exit.stopped {
        let told = || Some(secrets::own(ours).hide(&error_file::cause(&dir, rank)?).into_owned());
        let full = || disk_space::full(&dir).ok().flatten();
        let absent = || {
            let path = std::env::var("LD_LIBRARY_PATH").ok();
            let cause = library::cause(&last_words(&dir, rank), &spec.environment(), path.as_deref())?;
            Some(secrets::own(ours).hide(&cause).into_owned())
        };
        let of_group = kills.of_group().map(str::to_owned);
        // a hint fits a kill alone, and says less than all that is known of this rank
        let perhaps = || kills.of_host().filter(|_| exit.shell_code() == KILLED).map(str::to_owned);
        exit.cause = of_group.or_else(told).or_else(absent).or_else(full).or_else(perhaps);
    }
    let hide_values = || {
        if secrets::any(ours)
            && let Err(error) = secrets::write_down(&dir, rank, &secrets::own(ours))
        {
            let _ = writeln!(io::stderr(), "hvtui: {error}");
        }
    };
    // Before the exit, and while this process still lives: at any moment one of the two can be asked.
    hide_values();
    if let Err(error) = dir.write_reserved(&exit_file(rank), &exit) {
        let _ = writeln!(io::stderr(), "hvtui: {error}");
    }
    if let Some(Err(why)) = contained.map(|setup| container::sweep::rank(&setup, &dir, &spec, rank)) {
        let _ = writeln!(io::stderr(), "hvtui: {why}");
    }
    if let Some(seated) = &mut seated {
        // After the exit: what the launcher does then finds it.
        runtime.block_on(seated.tell(&exit));
    }
    if runtime.block_on(remain(&mut child, &mut watchdog)) {
        // What the rank has left has printed since, and the next supervisor cannot learn the values any more.
        hide_values();
    }
    lease::retire(&spec, rank);
    Ok(exit.shell_code())
}

/// Keeps TERM and the like from ending this process. A handler, not «ignore»: the rank must not inherit it.
/// Gives what tells that a child has ended.
fn shield() -> io::Result<(Runtime, Signals)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()] {
        // Handlers stay for the life of the process.
        drop(signal(kind)?);
    }
    let child = signal(SignalKind::child())?;
    drop(entered);
    Ok((runtime, child))
}

/// Waits until the launcher has started the rank's shim.
async fn seat(
    dir: &RunDir,
    rank: Rank,
    child: &mut Signals,
    watchdog: &mut Watchdog,
) -> Result<Seated, SuperviseError> {
    let seat = Seat::open(dir, rank)?;
    let taken = seat.taken();
    tokio::pin!(taken);
    loop {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            watchdog.reaped(pid.as_raw_pid().unsigned_abs());
        }
        tokio::select! {
            shim = &mut taken => return Ok(shim),
            _ = child.recv() => {}
            () = watchdog.watch() => {}
        }
    }
}

/// Waits for the end of the rank. `None` when the kernel says that there is none.
async fn ended(
    dir: &RunDir,
    rank: u32,
    child: &mut Signals,
    watchdog: &mut Watchdog,
    mut seated: Option<&mut Seated>,
) -> Option<WaitStatus> {
    let process = Identity::of(rank).ok();
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_pid().unsigned_abs() == rank => return Some(status),
                Ok(Some((pid, _))) => watchdog.reaped(pid.as_raw_pid().unsigned_abs()),
                Ok(None) => break,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        let left = async {
            match seated.as_mut() {
                Some(seated) => seated.left(dir).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = child.recv() => {}
            () = watchdog.watch() => {}
            () = left => {
                // The launcher wants the rank to end; whether it does is the supervisor's concern.
                let _ = process.as_ref().map(|process| process.signal(Signal::TERM));
            }
        }
    }
}

/// Where the supervisor that started this process is dead: stays until a new one owns the run, which reads the
/// values of secret variables here, and until nothing is left that only this process ties to the run. Whether it
/// stayed.
async fn remain(child: &mut Signals, watchdog: &mut Watchdog) -> bool {
    let mut stayed = false;
    while watchdog.orphaned() {
        stayed = true;
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, _))) => watchdog.reaped(pid.as_raw_pid().unsigned_abs()),
            Err(Errno::INTR) => {}
            Err(_) if !watchdog.awaits_another() => return true,
            Ok(None) | Err(_) => tokio::select! {
                _ = child.recv() => {}
                () = watchdog.watch() => {}
            },
        }
    }
    stayed
}

/// The rank's process, or why it never began with the code that a shell gives for that.
fn start_rank(dir: &RunDir, rank: Rank, invocation: &Invocation) -> Result<u32, (i32, String)> {
    let program = &invocation.program;
    let mut command = invocation.command();
    let cgroup = dir.read_json::<State>(STATE).ok().flatten();
    let cgroup = cgroup.and_then(|state| Cgroup::open(&state.cgroup?));
    // The rank is born there: no child of it can have been born elsewhere.
    let inside = cgroup.as_ref().is_some_and(|cgroup| cgroup.enter().is_ok());
    let child = command.spawn();
    if let Some(cgroup) = cgroup.filter(|_| inside) {
        // Where this fails, a kill of the group ends this process too, and its end tells the supervisor.
        let _ = cgroup.leave();
    }
    let mut child = child.map_err(|e| (126, unexecuted(program, &e)))?;
    let recorded = Identity::of(child.id())
        .map_err(|e| SuperviseError::io("identify", program, e))
        .map(|process| Started { process, t: clock::host_now(), grouped: inside })
        .and_then(|started| dir.write_json(&started_file(rank), &started));
    if let Err(error) = recorded {
        // A rank that cannot be found again would outlive its run.
        let _ = child.kill();
        let _ = child.wait();
        return Err((126, format!("record the rank's process: {error}")));
    }
    // Told to stop while the rank was being started: the supervisor may have looked for it too early. Its KILL
    // comes again and again; its TERM came once.
    if matches!(dir.read_json::<StopMark>(STOP), Ok(Some(mark)) if !mark.now) {
        let _ = Identity::of(child.id()).and_then(|process| process.signal(Signal::TERM));
    }
    // Waited for with all others, see `ended`.
    Ok(child.id())
}

/// Why a program could not be executed. The kernel says of a script whose interpreter is missing what it says of one that is.
fn unexecuted(program: &Path, error: &io::Error) -> String {
    let is_script = error.kind() == io::ErrorKind::NotFound;
    let cwd = std::env::current_dir().unwrap_or_default();
    let lacking = is_script.then(|| lacks_interpreter(program, None, &cwd, "there")).flatten();
    lacking.unwrap_or_else(|| format!("exec {}: {}", program.display(), os_text(error)))
}

fn exit(code: Option<i32>, signal: Option<i32>, error: Option<String>) -> RankExit {
    let t: HostTime = clock::host_now();
    RankExit { code, signal, t, error, stopped: false, cause: None }
}
