//! Tells where the threads of a run's processes are: by the signal that hvtui's hooks have Python answer, else by
//! py-spy where the host has it, else what the kernel says of the process.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::AgentConfig;
use super::collectives::{self, since};
use super::outgoing::Outgoing;
use super::pages::{Page, read_all};
use crate::clock;
use crate::domain::collectives::HostCollectives;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::run::HostRun;
use crate::domain::stacks::{ProcessStacks, Taker, threads};
use crate::domain::text::os_text;
use crate::procs::memory;
use crate::procs::table::Process;
use crate::program::asked::{self, Told};
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::stacks::{self, Asked, FirstPython};
use crate::supervise::state::{SPEC, Started, exit_file, started_file};
use crate::wire::message::{AskStacks, FromAgent, Stacks};

/// How long a process may take to answer; one that runs a long call of a C library without a break does not.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long an answer must not have grown to be whole.
const QUIET: Duration = Duration::from_millis(40);
/// How long py-spy may take for one process.
const SPY_PATIENCE: Duration = Duration::from_secs(5);
/// How many of them look at once.
const SPIES: usize = 8;
/// Bytes of one message, so that it is far from the largest frame.
const MESSAGE_BYTES: usize = 256 << 10;

/// Answers with the stacks of a run's processes here, or why there are none.
pub(super) fn tell(config: &AgentConfig, ask: AskStacks, out: &Outgoing) {
    let AskStacks { run, host, threads } = ask;
    let (found, collectives, why) = match take(config, &run, &host, threads) {
        Ok((found, collectives)) => (found, collectives, None),
        Err(why) => (Vec::new(), HostCollectives::default(), Some(why)),
    };
    let send = |of, why, collectives, last| {
        out.control_blocking(FromAgent::Stacks(Stacks {
            run: run.clone(),
            host: host.clone(),
            of,
            why,
            threads: Some(threads),
            collectives,
            last,
        }))
    };
    let (mut part, mut bytes) = (Vec::new(), 0);
    for one in found {
        // what JSON needs for line feeds and quotes, too
        let size = one.text.len() * 2;
        if bytes + size > MESSAGE_BYTES && !part.is_empty() {
            if !send(std::mem::take(&mut part), None, HostCollectives::default(), false) {
                return;
            }
            bytes = 0;
        }
        bytes += size;
        part.push(one);
    }
    if collectives.is_empty() {
        send(part, why, collectives, true);
    } else {
        // each of them may be as large as a message can be
        let _ =
            send(part, why, HostCollectives::default(), false) && send(Vec::new(), None, collectives, true);
    }
}

/// A Python whose hooks answer.
struct Python {
    rank: Rank,
    worker: Option<u32>,
    pid: u32,
    signal: u32,
    /// Where it answers.
    file: String,
    /// Where it says in which phase it is, if it does.
    page: Option<Page>,
}

impl Python {
    fn of_page(((rank, worker), page): ((Rank, Option<u32>), Page)) -> Self {
        let (pid, signal, file) = (page.pid, page.signal, page.stacks.clone());
        Self { rank, worker, pid, signal, file, page: Some(page) }
    }

    fn of_first(rank: Rank, first: FirstPython) -> Self {
        let FirstPython { pid, signal, file } = first;
        Self { rank, worker: None, pid, signal, file, page: None }
    }
}

type Taken = (Vec<ProcessStacks>, HostCollectives);

fn take(config: &AgentConfig, run: &RunId, host: &HostId, all: bool) -> Result<Taken, String> {
    let text = |error: SuperviseError| error.to_string();
    let unknown = || format!("run {run} was never started on {host}");
    let dir = RunDir::find(&config.state_dir, run, host).map_err(text)?.ok_or_else(unknown)?;
    let spec: HostRun = dir.read_json(SPEC).map_err(text)?.ok_or_else(unknown)?;
    let members = stacks::members(&dir).map_err(text)?;
    let mut ranks = Vec::new();
    for rank in spec.ranks.iter().map(|rank| rank.rank) {
        let started: Option<Started> = dir.read_json(&started_file(rank)).map_err(text)?;
        let Some(started) = started.filter(|_| !dir.has(&exit_file(rank))) else { continue };
        ranks.push((rank, stacks::own_process(&dir, rank, started.process.pid, &members)));
    }
    // beside the rest: both tell of the same moment
    let live: Vec<Rank> = ranks.iter().map(|(rank, _)| *rank).collect();
    let asked = RunDir::open(dir.path()).map_err(text)?;
    let collectives = std::thread::Builder::new().name("collectives".to_owned());
    let collectives = collectives.spawn(move || collectives::gather(&asked, &live));
    let mut found = Vec::new();
    // all at once, so that they tell of the same moment
    let pages = read_all(&dir, |rank| ranks.iter().any(|(one, _)| *one == rank));
    let is_member = |one: &Python| members.iter().any(|process| process.pid == one.pid);
    let mut pythons: Vec<Python> = pages.into_iter().map(Python::of_page).filter(is_member).collect();
    for (rank, _) in &ranks {
        if pythons.iter().all(|one| one.rank != *rank) {
            // one that reports no steps: it may not have come to import its framework
            let first = stacks::first_python(&dir, *rank).map(|first| Python::of_first(*rank, first));
            pythons.extend(first.filter(is_member));
        }
    }
    let ask = |one: &Python| stacks::ask(&dir, &members, one.pid, one.signal, one.file.clone());
    let asked: Vec<Result<Asked, String>> = pythons.iter().map(ask).collect();
    let answers = wait(&dir, &asked);
    let now = clock::host_now();
    for (one, (asked, text)) in pythons.iter().zip(asked.into_iter().zip(answers)) {
        let (text, lacks) = match (threads(&text).is_empty(), asked) {
            (false, _) => (text, None),
            (true, Err(why)) => (String::new(), Some(why)),
            (true, Ok(_)) => {
                let why = format!("its Python has not answered within {:.1} s", PATIENCE.as_secs_f64());
                (String::new(), Some(why))
            }
        };
        let standing = one.page.as_ref().map(|page| page.standing(now));
        let (rank, worker, pid) = (one.rank, one.worker, one.pid);
        found.push(ProcessStacks { rank, worker, pid, by: Taker::Hooks, text, lacks, standing });
    }
    for (rank, pid) in ranks {
        if found.iter().all(|one| one.rank != rank) {
            let (pid, lacks) =
                (program(&members, pid), Some("hvtui's hooks are in no Python of it".to_owned()));
            let (by, text) = (Taker::Hooks, String::new());
            found.push(ProcessStacks { rank, worker: None, pid, by, text, lacks, standing: None });
        }
    }
    look_into(&members, &mut found, all);
    found.sort_by_key(|one| (one.rank, one.worker));
    let collectives = collectives.ok().and_then(|asking| asking.join().ok()).unwrap_or_default();
    Ok((found, collectives))
}

/// What was answered: whole, or what there is after a while.
fn wait(dir: &RunDir, asked: &[Result<Asked, String>]) -> Vec<String> {
    let begun = clock::host_now();
    let mut answers = vec![String::new(); asked.len()];
    let mut grown = begun;
    while since(begun) < PATIENCE {
        std::thread::sleep(QUIET / 4);
        for (answer, asked) in answers.iter_mut().zip(asked) {
            let Ok(asked) = asked else { continue };
            let text = stacks::answer(dir, asked);
            if text.len() > answer.len() {
                *answer = text;
                grown = clock::host_now();
            }
        }
        let due = answers.iter().zip(asked).any(|(answer, asked)| asked.is_ok() && answer.is_empty());
        if !due && since(grown) >= QUIET {
            break;
        }
    }
    answers
}

/// The program of a rank: what its wrappers and shells have started, as long as that is one process each. A Python is the
/// program, whatever it has started.
fn program(members: &[Process], pid: u32) -> u32 {
    let mut pid = pid;
    let is_python = |pid: u32| {
        members.iter().any(|process| process.pid == pid && process.stat.name.starts_with("python"))
    };
    loop {
        if is_python(pid) {
            return pid;
        }
        let mut children = members.iter().filter(|process| process.stat.parent == pid);
        match (children.next(), children.next()) {
            (Some(child), None) if child.pid != pid => pid = child.pid,
            _ => return pid,
        }
    }
}

/// Looks from outside into those whose Python does not tell, some at a time; into all of them where `all` threads are
/// wanted, for a Python tells of its main one alone.
fn look_into(members: &[Process], found: &mut [ProcessStacks], all: bool) {
    let mut wanted: Vec<&mut ProcessStacks> =
        found.iter_mut().filter(|one| all || one.text.is_empty()).collect();
    for some in wanted.chunks_mut(SPIES) {
        std::thread::scope(|scope| {
            for one in some {
                scope.spawn(|| seen_from_outside(members, one));
            }
        });
    }
}

fn seen_from_outside(members: &[Process], one: &mut ProcessStacks) {
    match spy(one.pid) {
        Ok(text) => (one.by, one.text, one.lacks) = (Taker::PySpy, text, None),
        Err(spy) if one.text.is_empty() => {
            let process = members.iter().find(|process| process.pid == one.pid);
            one.by = Taker::Kernel;
            one.text = process.map_or_else(|| format!("{} has ended", one.pid), Process::describe);
            one.lacks = Some(one.lacks.take().map_or(spy.clone(), |why| format!("{why}; {spy}")));
        }
        Err(spy) => one.lacks = Some(spy),
    }
}

/// What `py-spy dump` prints of a process, or why it does not.
fn spy(pid: u32) -> Result<String, String> {
    let program = find_spy(pid).ok_or("py-spy, which could look into it, is not on this host's PATH")?;
    let mut command = Command::new(&program);
    command.args(["dump", "--nonblocking", "--pid", &pid.to_string()]);
    let told = asked::ask(command, SPY_PATIENCE).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => format!("py-spy has said nothing for {} s", SPY_PATIENCE.as_secs()),
        _ => format!("{} can't be run: {}", program.display(), os_text(&error)),
    })?;
    let Told { status, out, err } = told;
    if status.success() && !threads(&out).is_empty() {
        return Ok(out);
    }
    let said = err.lines().chain(out.lines()).map(str::trim).find(|line| !line.is_empty());
    let said = said.unwrap_or("it said nothing");
    let hint = if said.to_lowercase().contains("permission") {
        ": this host lets a process be looked into by those only that started it (kernel.yama.ptrace_scope)"
    } else {
        ""
    };
    Err(format!("py-spy: {said}{hint}"))
}

/// py-spy on this process's PATH or on that of the process in question, or beside its interpreter.
fn find_spy(pid: u32) -> Option<PathBuf> {
    let environment = memory::environment(pid).unwrap_or_default();
    let theirs = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"PATH="));
    let theirs = theirs.map(|path| String::from_utf8_lossy(path).into_owned()).unwrap_or_default();
    let beside =
        std::fs::read_link(format!("/proc/{pid}/exe")).ok().and_then(|exe| Some(exe.parent()?.into()));
    let ours = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&theirs).chain(std::env::split_paths(&ours)).chain(beside);
    folders
        .filter(|folder| folder.is_absolute())
        .map(|folder: PathBuf| folder.join("py-spy"))
        .find(|file| file.is_file())
}
