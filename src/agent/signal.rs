//! Signals to processes of this host that a person names: which would be hit, and the sending. A process is named by boot
//! id, pid and start time, so that another one which has its pid by now is never hit. hvtui's own processes are left
//! alone: a run is stopped as a whole.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use rustix::io::Errno;
use rustix::process::Signal;

use super::outgoing::Outgoing;
use crate::domain::ids::RunId;
use crate::domain::signal::{
    FoundProcess, MOST_PROCESSES, ProcessKey, SignalAnswer, SignalName, SignalRequest, Signalled,
};
use crate::procs::identity::{Identity, boot_id};
use crate::procs::marks;
use crate::procs::table::{self, Process};
use crate::procs::{memory, permission};
use crate::telemetry;
use crate::wire::message::FromAgent;
use crate::wire::signal::{SignalAsk, SignalTold};

/// Roles of hvtui's binary that a run consists of.
const ROLES: [&str; 7] =
    ["supervise", "rank-wrap", "launch-wrap", "node-wrap", "sample-host", "rank-shim", "rsh-agent"];
/// What is said of a process that is not there.
const GONE: &str = "it has ended; its pid may belong to another process now";

/// Answers a request.
pub(super) fn answer(ask: &SignalAsk, out: &Outgoing) {
    let answer = match &ask.request {
        SignalRequest::Look { boot, process, tree } => found(boot, *process, *tree),
        SignalRequest::Send { boot, signal, processes } => sent(boot, *signal, processes),
    };
    let answer = answer.unwrap_or_else(|reason| SignalAnswer::Refused { reason });
    out.control_blocking(FromAgent::Signal(SignalTold { number: ask.number, answer }));
}

fn found(boot: &str, process: ProcessKey, tree: bool) -> Result<SignalAnswer, String> {
    this_boot(boot)?;
    let all = table::all();
    let named = all.iter().find(|one| key_of(one) == process);
    let root = named.ok_or_else(|| format!("process {}: {GONE}", process.pid))?;
    let mut processes = vec![root.clone()];
    if tree {
        processes.extend(table::below(&all, root.pid));
    }
    if processes.len() > MOST_PROCESSES {
        let count = processes.len();
        return Err(format!(
            "process {} has a tree of {count} processes, and {MOST_PROCESSES} are signalled at most: choose one of them, or use kill on the host",
            root.pid
        ));
    }
    let own = Own::look(&all);
    let processes = processes.iter().map(|process| described(process, &own)).collect();
    let notes: Vec<String> = namespace_note().into_iter().chain(run_note(root.pid)).collect();
    Ok(SignalAnswer::Found { processes, note: Some(notes.join("; ")).filter(|notes| !notes.is_empty()) })
}

fn sent(boot: &str, signal: SignalName, processes: &[ProcessKey]) -> Result<SignalAnswer, String> {
    this_boot(boot)?;
    if processes.len() > MOST_PROCESSES {
        return Err(format!("{MOST_PROCESSES} processes are signalled at most"));
    }
    let own = Own::look(&table::all());
    let signal = signal_of(signal);
    let one = |key: &ProcessKey| {
        let refusal = own.refusal(key.pid).map_or_else(|| signalled(boot, *key, signal), Some);
        Signalled { key: *key, refusal }
    };
    Ok(SignalAnswer::Sent { processes: processes.iter().map(one).collect() })
}

/// Sends it; why it could not be sent.
fn signalled(boot: &str, key: ProcessKey, signal: Signal) -> Option<String> {
    let process = Identity { boot: boot.to_owned(), pid: key.pid, start: key.start };
    match process.signal(signal) {
        Ok(true) => None,
        Ok(false) => Some(GONE.to_owned()),
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            Some(permission::not_permitted(key.pid))
        }
        Err(error) => Some(error.to_string()),
    }
}

fn this_boot(boot: &str) -> Result<(), String> {
    match boot_id() {
        Ok(now) if now == boot => Ok(()),
        Ok(_) => Err("the host was restarted since: none of the processes shown runs any more".to_owned()),
        Err(error) => Err(format!("/proc/sys/kernel/random/boot_id: {error}")),
    }
}

fn key_of(process: &Process) -> ProcessKey {
    ProcessKey { pid: process.pid, start: process.stat.start }
}

fn described(process: &Process, own: &Own) -> FoundProcess {
    let (user, command) = telemetry::identify(process.pid);
    let refusal = own.refusal(process.pid).or_else(|| permission::refusal(process.pid));
    FoundProcess { key: key_of(process), user, command, refusal }
}

/// Processes that hvtui itself needs.
struct Own {
    /// This process and all that it descends from.
    line: BTreeSet<u32>,
}

impl Own {
    fn look(all: &[Process]) -> Self {
        Self { line: table::ancestors(all, std::process::id()) }
    }

    /// Why a process is left alone, if it is.
    fn refusal(&self, pid: u32) -> Option<String> {
        if pid <= 1 {
            return Some("it is the host's first process, which all others need".to_owned());
        }
        if pid == std::process::id() {
            return Some("it is hvtui's agent, over which this request came".to_owned());
        }
        if self.line.contains(&pid) {
            return Some("hvtui's agent, over which this request came, runs below it".to_owned());
        }
        refusal_by(memory::command_line(pid))
    }
}

/// Why a process of this command line is left alone. One whose command line is not known may be one that hvtui needs.
fn refusal_by(cmdline: io::Result<Vec<u8>>) -> Option<String> {
    match cmdline {
        Ok(line) => part_of_run(&line),
        // gone, as the signal finds; or another user's
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => None,
        Err(error) => Some(format!("whether it is a part of a run is not known: {error}")),
    }
}

/// What a process is to a run, where its command line is that of a part of one.
fn part_of_run(cmdline: &[u8]) -> Option<String> {
    let mut words = cmdline.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let (program, role) = (words.next()?, words.next()?);
    if !program.ends_with("hvtui") || !ROLES.contains(&&*role) {
        return None;
    }
    let run = words.find_map(|word| word.split('/').find_map(|part| part.parse::<RunId>().ok()));
    let run = run.map_or_else(|| "a run".to_owned(), |run| format!("run {}", run.short()));
    Some(format!("it is hvtui's {role} of {run}: x on the Run screen, or hvtui stop, ends a run as a whole"))
}

/// A process of a run can be signalled, with consequences.
fn run_note(pid: u32) -> Option<String> {
    let run = marks::run_of(pid)?.id;
    let run = run.short();
    Some(format!(
        "it belongs to run {run} of hvtui: when one of its ranks fails, all stop; x on the Run screen ends it"
    ))
}

/// The pid namespace that the kernel begins with.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// In a container the driver may tell pids of the host, and processes here of the same number are others.
fn namespace_note() -> Option<String> {
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    (namespace.as_os_str() != FIRST_NAMESPACE).then(|| {
        "the agent runs in a container, where the driver may tell pids of the host: compare the command before you \
         confirm"
            .to_owned()
    })
}

fn signal_of(name: SignalName) -> Signal {
    match name {
        SignalName::Term => Signal::TERM,
        SignalName::Int => Signal::INT,
        SignalName::Hup => Signal::HUP,
        SignalName::Stop => Signal::STOP,
        SignalName::Cont => Signal::CONT,
        SignalName::Kill => Signal::KILL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_run_are_known_by_their_command_line() {
        let run = RunId::new(7, 7);
        let line = format!("/home/li/.cache/hvtui/agents/ab/hvtui\0supervise\0--dir\0/x/spool/{run}/a@b-1\0");
        let refusal = part_of_run(line.as_bytes()).unwrap();
        assert!(refusal.starts_with(&format!("it is hvtui's supervise of run {}", run.short())), "{refusal}");
        assert!(part_of_run(b"/usr/bin/hvtui\0rank-shim\0").unwrap().contains("rank-shim of a run"));
        for other in [&b"/usr/bin/hvtui\0train\0digits\0"[..], b"python\0supervise\0", b"hvtui\0", b""] {
            assert_eq!(part_of_run(other), None);
        }
    }

    #[test]
    fn what_can_not_be_read_is_left_alone() {
        let refusal = |kind: ErrorKind| refusal_by(Err(kind.into()));
        assert!(
            refusal(ErrorKind::TimedOut).unwrap().starts_with("whether it is a part of a run is not known")
        );
        assert_eq!(refusal(ErrorKind::NotFound).or(refusal(ErrorKind::PermissionDenied)), None);
    }

    #[test]
    fn the_first_process_and_our_own_are_left_alone() {
        let all = table::all();
        let own = Own::look(&all);
        assert!(own.refusal(1).unwrap().contains("first process"));
        assert!(own.refusal(std::process::id()).unwrap().contains("hvtui's agent"));
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().cast_unsigned();
        if parent > 1 {
            assert!(own.refusal(parent).unwrap().contains("runs below it"));
        }
    }
}
