//! Signals to processes of a host: the real agent over its standard streams, real trees of processes, and what must never
//! be hit.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::plan;
use crate::common::processes::{alive, kill, until};
use bytes::BytesMut;
use hvtui::domain::gpu::Reading;
use hvtui::domain::ids::HostId;
use hvtui::domain::late::Late;
use hvtui::domain::run::HostRun;
use hvtui::domain::signal::{
    FoundProcess, MOST_PROCESSES, ProcessKey, SignalAnswer, SignalName, SignalRequest, Signalled,
};
use hvtui::procs::identity::{Stat, boot_id};
use hvtui::procs::marks;
use hvtui::procs::table;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::{STATE, State};
use hvtui::wire::frame::Decoder;
use hvtui::wire::handshake::Hello;
use hvtui::wire::message::{Commit, FromAgent, ToAgent};
use hvtui::wire::signal::SignalAsk;
use rustix::process::Signal;

/// An agent that is a child of this test, which is therefore one of its ancestors.
struct Agent {
    process: Child,
    input: ChildStdin,
    told: Receiver<FromAgent>,
    home: tempfile::TempDir,
    asked: u32,
}

impl Agent {
    fn start() -> Self {
        Self::start_as(None)
    }

    fn start_as(uid: Option<u32>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(["agent", "--stdio"]).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
        if let Some(uid) = uid {
            command.uid(uid);
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, mut output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (sender, told) = channel();
        std::thread::spawn(move || {
            let (mut decoder, mut bytes) = (Decoder::default(), [0; 4096]);
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                decoder.push(&bytes[..count]);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let _ = sender.send(FromAgent::decode(&frame).unwrap().unwrap());
                }
            }
        });
        let mut agent = Self { process, input, told, home, asked: 0 };
        agent.say(&ToAgent::Hello(Hello::ours(String::new())));
        assert!(matches!(agent.hear(), FromAgent::Hello(_)));
        agent
    }

    fn say(&mut self, message: &ToAgent) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes).unwrap();
        self.input.write_all(&bytes).unwrap();
    }

    fn hear(&self) -> FromAgent {
        self.told.recv_timeout(Duration::from_secs(120)).expect("the agent says nothing")
    }

    fn ask(&mut self, request: SignalRequest) -> SignalAnswer {
        self.asked += 1;
        self.say(&ToAgent::Signal(SignalAsk { number: self.asked, request }));
        loop {
            if let FromAgent::Signal(told) = self.hear() {
                assert_eq!(told.number, self.asked);
                return told.answer;
            }
        }
    }

    fn look(&mut self, process: ProcessKey, tree: bool) -> Result<Vec<FoundProcess>, String> {
        match self.ask(SignalRequest::Look { boot: boot_id().unwrap(), process, tree }) {
            SignalAnswer::Found { processes, .. } => Ok(processes),
            SignalAnswer::Refused { reason } => Err(reason),
            other @ SignalAnswer::Sent { .. } => panic!("{other:?}"),
        }
    }

    fn send(&mut self, signal: SignalName, processes: Vec<ProcessKey>) -> Vec<Signalled> {
        match self.ask(SignalRequest::Send { boot: boot_id().unwrap(), signal, processes }) {
            SignalAnswer::Sent { processes } => processes,
            other => panic!("{other:?}"),
        }
    }

    /// The refusal of a process that must be left alone, which looking and sending tell alike.
    fn refusal(&mut self, process: ProcessKey) -> String {
        let found = self.look(process, false).unwrap()[0].refusal.clone().expect("it may be signalled");
        // a signal that would change nothing if it were sent
        assert_eq!(self.send(SignalName::Cont, vec![process])[0].refusal.as_ref(), Some(&found));
        found
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey { pid, start: Stat::read(pid).unwrap().start }
}

/// A shell with two children, one of which has one itself; ended with the test.
struct Tree {
    shell: Child,
    pids: Vec<u32>,
}

impl Tree {
    fn start() -> Self {
        let script = "sleep 1001 & echo $!; sh -c 'sleep 1002 & echo $!; wait' & echo $!; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines().take(3);
        let mut pids: Vec<u32> = lines.map(|line| line.unwrap().parse().unwrap()).collect();
        pids.push(shell.id());
        pids.sort_unstable();
        let tree = Self { shell, pids };
        // A shell tells a child's pid before the child has become what it is.
        for sleep in ["1001", "1002"] {
            let line = format!("sleep\0{sleep}\0").into_bytes();
            let is =
                |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line);
            until(&format!("sleep {sleep}"), || tree.pids.iter().any(is));
        }
        tree
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for pid in self.pids.iter().filter(|pid| alive(**pid)) {
            kill(*pid, Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}

#[test]
fn a_tree_is_shown_and_then_signalled_as_it_was_shown() {
    let (mut agent, tree) = (Agent::start(), Tree::start());
    let root = key(tree.shell.id());
    let alone = agent.look(root, false).unwrap();
    assert_eq!((alone.len(), alone[0].key), (1, root));
    let found = agent.look(root, true).unwrap();
    assert_eq!(found[0].key, root, "the one that was named comes first");
    let mut pids: Vec<u32> = found.iter().map(|process| process.key.pid).collect();
    let place = |pid: u32| pids.iter().position(|one| *one == pid).unwrap();
    for process in &found[1..] {
        let parent = Stat::read(process.key.pid).unwrap().parent;
        assert!(place(parent) < place(process.key.pid), "children behind their parents: {pids:?}");
        assert_eq!(process.refusal, None);
    }
    pids.sort_unstable();
    assert_eq!(pids, tree.pids);
    let sleeps = found.iter().filter(|process| process.command == Reading::Value("sleep 1002".to_owned()));
    assert_eq!(sleeps.count(), 1);

    let state = |pid: u32| Stat::read(pid).unwrap().state;
    let keys: Vec<ProcessKey> = found.iter().map(|process| process.key).collect();
    assert!(agent.send(SignalName::Stop, keys.clone()).iter().all(|one| one.refusal.is_none()));
    until("all halted", || tree.pids.iter().all(|pid| state(*pid) == 'T'));
    agent.send(SignalName::Cont, keys.clone());
    until("all go on", || tree.pids.iter().all(|pid| state(*pid) != 'T'));
    let told = agent.send(SignalName::Kill, keys.clone());
    assert_eq!(told.iter().map(|one| one.key).collect::<Vec<_>>(), keys);
    assert!(told.iter().all(|one| one.refusal.is_none()), "{told:?}");
    until("all ended", || tree.pids.iter().all(|pid| !alive(*pid)));
}

#[test]
fn another_process_with_the_pid_is_never_hit() {
    let (mut agent, tree) = (Agent::start(), Tree::start());
    let pid = tree.shell.id();
    let other = ProcessKey { start: key(pid).start + 1, ..key(pid) };
    let reason = agent.look(other, true).unwrap_err();
    assert!(reason.contains("has ended; its pid may belong to another process"), "{reason}");
    let told = agent.send(SignalName::Kill, vec![other]);
    assert!(told[0].refusal.as_ref().unwrap().contains("has ended"), "{told:?}");
    for request in [
        SignalRequest::Look { boot: "another".to_owned(), process: key(pid), tree: true },
        SignalRequest::Send {
            boot: "another".to_owned(),
            signal: SignalName::Kill,
            processes: vec![key(pid)],
        },
    ] {
        let answer = agent.ask(request);
        let SignalAnswer::Refused { reason } = answer else { panic!("{answer:?}") };
        assert!(reason.contains("was restarted"), "{reason}");
    }
    let many = vec![key(pid); MOST_PROCESSES + 1];
    let too_many =
        SignalRequest::Send { boot: boot_id().unwrap(), signal: SignalName::Kill, processes: many };
    assert!(matches!(agent.ask(too_many), SignalAnswer::Refused { .. }));
    assert!(tree.pids.iter().all(|pid| alive(*pid)));
}

#[test]
fn what_the_agent_needs_is_left_alone() {
    let mut agent = Agent::start();
    let own = key(agent.process.id());
    assert!(agent.refusal(own).contains("hvtui's agent, over which"));
    let reason = agent.refusal(key(std::process::id()));
    assert!(reason.contains("runs below it"), "{reason}");
    assert!(agent.refusal(key(1)).contains("first process"));
    assert!(alive(agent.process.id()));
}

#[test]
fn a_part_of_a_run_says_how_the_run_is_stopped_and_its_rank_is_a_process_as_any() {
    let mut agent = Agent::start();
    let (run, host) = (plan::unique_run(), HostId::from("gpu-b"));
    let spec: HostRun = plan::scripts((&run, &host), "sh", &["exec sleep 1003"], agent.home.path(), 1000);
    agent.say(&ToAgent::Prepare(Box::new(spec)));
    assert!(matches!(agent.hear(), FromAgent::Prepared(_)));
    let commit = Commit { run: run.clone(), host: host.clone(), late: Late::default(), attempt: 0 };
    agent.say(&ToAgent::Commit(commit));
    assert!(matches!(agent.hear(), FromAgent::Started(_)));
    let dir = RunDir::find(&agent.home.path().join(".local/state/hvtui"), &run, &host).unwrap().unwrap();
    let state = || dir.read_json::<State>(STATE).unwrap().unwrap();
    until("the rank-wrap is known", || !state().wraps.is_empty());
    let state = state();
    for part in state.wraps.values().chain([&state.supervisor]) {
        let reason = agent.refusal(ProcessKey { pid: part.pid, start: part.start });
        assert!(reason.contains(&format!("of run {}: x on the Run screen", run.short())), "{reason}");
    }
    let is_sleep = |process: &table::Process| {
        std::fs::read(format!("/proc/{}/cmdline", process.pid)).is_ok_and(|line| line == b"sleep\x001003\0")
    };
    let mut rank = None;
    until("the rank runs", || {
        rank = marks::marked(&table::all(), &run, &host).into_iter().find(is_sleep);
        rank.is_some()
    });
    let rank = ProcessKey { pid: rank.as_ref().unwrap().pid, start: rank.unwrap().stat.start };
    let look = SignalRequest::Look { boot: boot_id().unwrap(), process: rank, tree: false };
    let answer = agent.ask(look);
    let SignalAnswer::Found { processes, note } = answer else { panic!("{answer:?}") };
    assert_eq!(processes[0].refusal, None);
    assert!(note.unwrap().contains(&format!("it belongs to run {}", run.short())));
    assert_eq!(agent.send(SignalName::Kill, vec![rank])[0].refusal, None);
    until("the run has ended", || !alive(state.supervisor.pid));
}

#[test]
fn a_process_of_another_user_is_named_with_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can start an agent as another user");
    }
    let (mut agent, tree) = (Agent::start_as(Some(65_534)), Tree::start());
    let root = key(tree.shell.id());
    let reason = agent.look(root, false).unwrap()[0].refusal.clone().unwrap();
    assert!(reason.starts_with("belongs to root; hvtui is logged in as nobody there: ask root"), "{reason}");
    assert_eq!(agent.send(SignalName::Kill, vec![root])[0].refusal.as_ref(), Some(&reason));
    assert!(alive(root.pid));
}
