//! Standard output or standard error that takes nothing for a while: what hvtui still does then, and what it prints later.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hvtui::domain::outcome::RunEnd;
use hvtui::record::Reader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use tempfile::TempDir;

use super::common::processes::{alive, kill, pid_in, until, wait_for};
use super::common::terminal::Terminal;
use crate::common::in_time::OutputInTime;

/// Prints without end, up to 5 MB a second in long lines: an unoptimised client works at each line. Its pid is in the file `printer`.
const ENDLESS: &str = "echo $$ > printer; long=$(printf %0500d 0); i=0; while :; do i=$((i+1)); echo said $i $long; \
                       [ $((i % 100)) != 0 ] || sleep 0.01; done";

/// A person with an empty home, whose hosts file gives this machine two slots.
struct Person {
    home: TempDir,
}

impl Person {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let hosts = "[[host]]\nname = \"here\"\naddress = \"local\"\nslots = 2\n";
        std::fs::write(home.path().join("hosts.toml"), hosts).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn hvtui(&self, args: &[&str]) -> Command {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(self.home.path());
        command.env_clear().env("HOME", self.home.path()).env("PATH", "/usr/bin:/bin");
        command.env("LANG", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.hvtui(args).output_in_time().unwrap()
    }

    /// The only run, as `runs --json` tells it.
    fn recorded(&self) -> serde_json::Value {
        let out = self.run(&["runs", "--json"]);
        let runs: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
        runs[0].clone()
    }

    /// The process of the rank that prints without end.
    fn printer(&self) -> u32 {
        pid_in(&self.path("printer"))
    }
}

impl Drop for Person {
    /// A test that failed leaves nothing behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.hvtui(&["stop", "last", "--now"]).output_in_time();
        }
    }
}

/// hvtui with a pipe that is read when the test says so; the other stream is read all the time.
struct Blocked {
    hvtui: Child,
    unread: PipeReader,
    /// The end that hvtui has too.
    end: Option<PipeWriter>,
    /// What came by the stream that is read.
    said: Arc<Mutex<Vec<u8>>>,
    other: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

impl Blocked {
    /// Starts a command of which no process reads that stream.
    fn start(mut command: Command, blocked: Stream) -> Self {
        let (unread, end) = std::io::pipe().unwrap();
        let of_hvtui = end.try_clone().unwrap();
        match blocked {
            Stream::Out => command.stdout(of_hvtui),
            Stream::Err => command.stderr(of_hvtui),
        };
        let mut hvtui = command.spawn().unwrap();
        let mut read: Box<dyn Read + Send> = match blocked {
            Stream::Out => Box::new(hvtui.stderr.take().unwrap()),
            Stream::Err => Box::new(hvtui.stdout.take().unwrap()),
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&said);
        let other = std::thread::spawn(move || {
            let mut bytes = vec![0; 65536];
            while let Ok(count @ 1..) = read.read(&mut bytes) {
                of_thread.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { hvtui, unread, end: Some(end), said, other: Some(other) }
    }

    /// Waits until the pipe is full.
    fn fill(self) -> Self {
        if let Some(end) = &self.end {
            until("a full pipe", || is_full(end));
        }
        self
    }

    fn signal(&self, signal: Signal) {
        kill(self.hvtui.id(), signal);
    }

    /// Waits for its end; gives its exit code and what came by the stream that was read.
    fn end(&mut self, what: &str) -> (Option<i32>, String) {
        let status: ExitStatus = wait_for(what, || self.hvtui.try_wait().unwrap());
        self.other.take().unwrap().join().unwrap();
        (status.code(), self.said())
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Reads the pipe to its end.
    fn read(&mut self) -> String {
        self.end = None;
        let mut text = String::new();
        self.unread.read_to_string(&mut text).unwrap();
        text
    }
}

/// Whether a write would wait.
fn is_full(pipe: &PipeWriter) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pipe, PollFlags::OUT)], Some(&now)).unwrap() == 0
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = self.hvtui.kill();
        let _ = self.hvtui.wait();
    }
}

#[test]
fn a_signal_stops_a_run_of_which_nobody_reads_the_output() {
    for (stream, script) in
        [(Stream::Out, ENDLESS.to_owned()), (Stream::Err, ENDLESS.replace("echo said", ">&2 echo said"))]
    {
        for signal in [Signal::INT, Signal::TERM] {
            let person = Person::new();
            let command = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", &script]);
            let mut blocked = Blocked::start(command, stream).fill();
            let printer = person.printer();
            blocked.signal(signal);
            let (code, said) = blocked.end("a stopped run");
            assert_eq!(code, Some(130), "{signal:?}: {said}");
            assert!(!alive(printer), "its rank");
            if matches!(stream, Stream::Out) {
                assert!(said.contains("stopping; once more kills"), "{said}");
                assert!(said.contains(": stopped\n"), "{said}");
                assert!(said.contains("standard output"), "what was not printed: {said}");
            }
            // where nothing takes its last words it leaves, perhaps before the host is done
            until("its recorded end", || person.recorded()["outcome"]["end"] == "stopped");
        }
    }
}

/// Prints much at once, and says when it has.
const FLOOD: &str =
    "echo $$ > printer; yes $(printf %02000d 0) | head -c 40000000; touch printed; exec sleep 600";

#[test]
fn after_a_signal_nothing_is_read_that_nobody_takes() {
    let person = Person::new();
    let command = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", FLOOD]);
    let mut blocked = Blocked::start(command, Stream::Out).fill();
    let printer = person.printer();
    until("a rank that has printed all", || person.path("printed").exists());
    blocked.signal(Signal::TERM);
    let (code, said) = blocked.end("a stopped run");
    assert_eq!(code, Some(130), "{said}");
    assert!(!alive(printer), "its rank");
    assert!(said.contains(": stopped\n") && said.contains("is not read from the hosts"), "{said}");
    assert!(said.contains("was not taken by standard output and is not printed"), "{said}");
    // the rest is read by who asks for it
    until("its recorded end", || person.recorded()["outcome"]["end"] == "stopped");
}

#[test]
fn a_flood_whose_reader_has_gone_ends_soon_with_a_recorded_end() {
    // Long lines: what is behind the reader counts in bytes, and the work of a client that is not optimised in lines. One that
    // works for ten seconds at what it has read leaves without the end.
    let flood = format!("echo $$ > printer; exec yes {}", "y".repeat(2000));
    for ranks in ["1", "2"] {
        let person = Person::new();
        let command = person.hvtui(&["run", "-np", ranks, "--", "sh", "-c", &flood]);
        let mut blocked = Blocked::start(command, Stream::Out).fill();
        let printer = person.printer();
        // the only reader is dropped
        blocked.unread = std::io::pipe().unwrap().0;
        let (code, said) = blocked.end("a run without a reader");
        assert_eq!(code, Some(141), "{said}");
        assert!(!alive(printer), "its rank");
        let why = "nothing reads standard output any more: stopping the run; this command exits with 141";
        assert!(said.contains(why) && said.contains("exit 141 after "), "{said}");
        assert!(said.contains(": stopped") && !said.contains("exit 130"), "{said}");
        until("its recorded end", || person.recorded()["outcome"]["end"] == "stopped");
        let logs = person.run(&["logs", "last"]);
        let text =
            String::from_utf8_lossy(&logs.stdout).into_owned() + &String::from_utf8_lossy(&logs.stderr);
        assert!(text.lines().any(|line| line.contains("were passed over")), "what is missing is told");
    }
}

/// One rank prints without end; the other fails as soon as there is a file `fail`.
fn one_fails() -> String {
    format!("if [ $HVTUI_RANK = 1 ]; then while [ ! -e fail ]; do sleep 0.05; done; exit 3; fi; {ENDLESS}")
}

#[test]
fn a_failed_rank_ends_a_run_of_which_nobody_reads_the_output() {
    let person = Person::new();
    let line = ["run", "-np", "2", "--", "sh", "-c", &one_fails()];
    let mut blocked = Blocked::start(person.hvtui(&line), Stream::Out).fill();
    let printer = person.printer();
    File::create(person.path("fail")).unwrap();
    until("the end of the other rank", || !alive(printer));
    // the recording goes on meanwhile, to its end
    until("its recorded end", || person.recorded()["outcome"]["code"] == 3);
    until("whom it waits for", || blocked.said().contains("hvtui: waiting for standard output to take "));
    assert!(blocked.hvtui.try_wait().unwrap().is_none(), "there is more to print");
    blocked.signal(Signal::INT);
    let (code, said) = blocked.end("the end of the wait");
    assert_eq!(code, Some(3), "the run's own: {said}");
    assert!(said.contains("rank 1 (here:1) failed first: exit 3"), "{said}");
}

#[test]
fn all_lines_come_to_a_reader_that_begins_late() {
    let person = Person::new();
    let count = 250_000;
    let script = format!("seq 1 {count}; touch printed");
    let mut blocked =
        Blocked::start(person.hvtui(&["run", "-np", "1", "--", "sh", "-c", &script]), Stream::Out);
    until("a rank that has printed all", || person.path("printed").exists());
    let runs = person.path(".local/state/hvtui/runs");
    until("its recorded end", || {
        let run = std::fs::read_dir(&runs).ok().and_then(|mut runs| runs.next()?.ok());
        let reader = run.and_then(|run| Reader::open(&run.path().join("run.mcap")).ok());
        reader.is_some_and(|reader| reader.outcome().is_some_and(|outcome| outcome.end == RunEnd::Finished))
    });
    let text = blocked.read();
    let (code, said) = blocked.end("a run that is over");
    assert_eq!(code, Some(0), "{said}");
    let wrong = text.lines().zip(1..).find(|(line, number)| *line != format!("[0] {number}"));
    assert_eq!((wrong, text.lines().count()), (None, count), "{said}");
    assert!(said.contains("the rank finished"), "{said}");
}

#[test]
fn whoever_only_follows_leaves_a_run_of_which_nobody_reads_the_output() {
    let person = Person::new();
    let out = person.run(&["run", "-np", "1", "--detach", "--", "sh", "-c", ENDLESS]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let printer = person.printer();
    let mut attached = Blocked::start(person.hvtui(&["attach", "last"]), Stream::Out).fill();
    attached.signal(Signal::INT);
    let (code, said) = attached.end("a client that leaves");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("detached; the run goes on"), "{said}");
    // it leaves signals alone, and what was started in the background of a script ignores this one
    let mut follow = Command::new("env");
    let line = person.hvtui(&["logs", "-f", "last"]);
    follow.arg("--default-signal=INT").arg(line.get_program()).args(line.get_args());
    follow.current_dir(person.path("")).env_clear().env("HOME", person.path("")).env("PATH", "/usr/bin:/bin");
    follow.env("LANG", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut logs = Blocked::start(follow, Stream::Out).fill();
    logs.signal(Signal::INT);
    logs.end("the end of the logs");
    assert!(alive(printer), "the run goes on");
    assert!(person.run(&["stop", "last"]).status.success());
}

#[test]
fn a_table_that_nobody_reads_ends_by_a_signal() {
    let person = Person::new();
    let mut command = person.hvtui(&["watch", "--json", "-n", "0.1"]);
    let (unread, end) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&end, 4096).unwrap();
    let mut hvtui = command.stdout(end).spawn().unwrap();
    let mut lines = BufReader::new(unread);
    let mut tick = String::new();
    // the first ones are shorter: they have no values yet
    while !tick.contains("\"sample\":{") {
        tick.clear();
        lines.read_line(&mut tick).unwrap();
    }
    // no tick fits any more; their numbers differ by some digits
    until("a full pipe", || {
        let waiting = rustix::io::ioctl_fionread(lines.get_ref()).unwrap() as usize;
        waiting + tick.len() + 100 > 4096
    });
    kill(hvtui.id(), Signal::INT);
    let status = wait_for("the end of the table", || hvtui.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_terminal_that_is_stopped_stops_no_signal() {
    let person = Person::new();
    let command = person.hvtui(&["run", "-np", "1", "--", "sh", "-c", ENDLESS]);
    let Some(terminal) = Terminal::start(&command, 80, 24) else { return };
    let printer = person.printer();
    terminal.wait("its lines", |screen| screen.contains("[0] said"));
    terminal.press(&["C-s"]);
    let mut before = String::new();
    until("a screen that stands still", || {
        let last = std::mem::replace(&mut before, terminal.screen());
        last == before
    });
    terminal.signal("INT");
    until("the end of its rank", || !alive(printer));
    until("its recorded end", || person.recorded()["outcome"]["end"] == "stopped");
    terminal.press(&["C-q"]);
    terminal.assert_restored(130);
}
