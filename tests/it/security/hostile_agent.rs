//! An agent that floods the UI with everything that the wire knows, beside a host that is honest: `tests/hostile_agent`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use hvtui::domain::event::{Event, Origin};
use hvtui::domain::host::LinkState;
use hvtui::record::{Reader, Store};

use crate::common::cluster::skip;
use crate::common::in_time::OutputInTime;
use crate::common::processes::waited_for_processors;
use crate::common::sshd::{Sshd, program};
use crate::common::terminal::Terminal;

/// The run that the hostile agent says it knows.
const BAIT: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
/// What a client may lose to it in a minute, MiB.
const MEMORY: u64 = 64;
const DISK: u64 = 64;
/// The least that is taken of a flood, bytes: no machine is so slow.
const FLOOD: u64 = 64 << 10;
/// How far the screen may be behind what the honest host's rank prints.
const LIVE: Duration = Duration::from_secs(2);
/// It prints a line so often.
const TICK: Duration = Duration::from_millis(200);

/// What ends the link comes last, but for one: behind that the client waits before it comes again.
const KINDS: &str =
    "gauges,logs,events,notes,runs,reports,granted,holes,strings,pongs,unknown,lists,lines,deep,endless";

/// What a flood has cost.
struct Cost {
    memory: u64,
    disk: u64,
    /// The farthest that the honest host's lines were behind on the screen, and when that was.
    behind: (Duration, Duration),
    /// By how much longer than planned the flood took.
    late: Duration,
    /// Bytes of each kind that were taken of it.
    said: BTreeMap<String, u64>,
    /// Links that the hostile agent was given.
    links: usize,
    /// Why they ended.
    ends: BTreeSet<String>,
    /// Folders of recordings.
    recordings: usize,
    /// What of the bait's own is said to be left out of its recording.
    gaps: BTreeSet<String>,
}

impl Cost {
    #[expect(clippy::print_stdout, reason = "figures for who measures")]
    fn print(&self, kinds: &str, seconds: u64) {
        println!(
            "{kinds} for {seconds} s: {} MiB of memory, {} MiB of disk, {} links, behind by {:?} at {:?}, {} recordings",
            self.memory, self.disk, self.links, self.behind.0, self.behind.1, self.recordings
        );
        println!("bytes: {:?}", self.said);
        println!("ends: {:#?}\nleft out: {:?}", self.ends, self.gaps.iter().take(8).collect::<Vec<_>>());
    }
}

fn kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the UI runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// By how much the flood goes on for longer: it waits for a client that reads slowly.
fn late(plan: &Path) -> Duration {
    let told = fs::read_to_string(plan.join("late")).unwrap_or_default();
    Duration::from_secs_f64(told.parse().unwrap_or_default()).min(Duration::from_secs(60))
}

/// Bytes on the disk below a folder.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => taken(&entry.path()),
        about => about.map_or(0, |about| about.blocks() * 512),
    };
    entries.map(size).sum()
}

/// The largest number of the lines `tick 7.` in a text.
fn last_tick(text: &str) -> u64 {
    let ticks = text.split("tick ").skip(1);
    ticks.filter_map(|rest| rest.split_once('.')?.0.parse().ok()).max().unwrap_or(0)
}

/// What the rank of a run on this machine has printed.
fn printed_of(home: &Path, run: &str) -> String {
    let files = format!("{}/.local/state/hvtui/spool/{run}/*/rank-0.out", home.display());
    let files = glob::glob(&files).unwrap().flatten();
    files.map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}

/// How many bytes of each kind of flood were taken.
fn said(links: &str) -> BTreeMap<String, u64> {
    let mut said = BTreeMap::new();
    for (kind, bytes) in links.lines().filter_map(|line| line.split_once(" said ")?.1.split_once(' ')) {
        *said.entry(kind.to_owned()).or_insert(0) += bytes.parse::<u64>().expect("a number");
    }
    said
}

/// A run that must not outlive the test, also where that fails: the command that stops it.
struct Stopped(Command);

impl Stopped {
    fn stop(&mut self) -> std::io::Result<Output> {
        self.0.output_in_time()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if std::thread::panicking() {
            drop(self.stop());
        }
    }
}

/// The UI's process: the command in the pane, below its shell.
fn ui(terminal: &Terminal) -> u32 {
    let shell = terminal.mode("#{pane_pid}");
    let children =
        fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("the shell runs");
    children.split_whitespace().next().expect("the UI runs").parse().expect("a number")
}

#[expect(clippy::disallowed_methods, reason = "how long a host is silent is what is measured")]
fn flood(kinds: &str, seconds: u64) -> Option<Cost> {
    let sshd = Sshd::start(&["ed25519"], "")?;
    let Some(python) = program("python3") else {
        skip("no python3");
        return None;
    };
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile_agent/agent.py");
    let plan = tempfile::tempdir().unwrap();
    let agent = format!(
        "#!/bin/sh\nexec {} {script} {} {seconds} {kinds} \"$@\"\n",
        python.display(),
        plan.path().display()
    );
    fs::write(at("agent"), agent).unwrap();
    fs::set_permissions(at("agent"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(at(".ssh")).unwrap();
    fs::write(at(".ssh/known_hosts"), format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key("ed25519")))
        .unwrap();
    let hosts = format!(
        "[[host]]\nname = \"evil\"\naddress = \"127.0.0.1\"\nport = {}\nidentity = \"{}\"\nagent_path = \"{}\"\n\
         slots = 1\n[[host]]\nname = \"good\"\naddress = \"local\"\nslots = 1\n",
        sshd.port,
        sshd.path("user").display(),
        at("agent").display()
    );
    fs::write(at("hosts.toml"), hosts).unwrap();
    let hvtui = |args: &[&str]| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(args).current_dir(home.path()).env_clear().env("HOME", home.path());
        command.env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8").stdin(Stdio::null());
        command
    };
    let ticks = format!("n=0; while :; do n=$((n+1)); echo tick $n.; sleep {}; done", TICK.as_secs_f64());
    let honest = ["run", "-H", "good", "-np", "1", "--name", "honest", "--detach", "--", "sh", "-c", &ticks];
    let ran = hvtui(&honest).output_in_time().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let mut stopped = Stopped(hvtui(&["stop", "honest", "--now"]));
    let honest = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
    let cost = {
        let terminal = Terminal::start(&hvtui(&[]), 120, 40)?;
        let start = |name: &str, key: &[&str], shown: &str| {
            terminal.press(&["r"]);
            terminal.wait("both runs", |screen| screen.contains("honest") && screen.contains("bait"));
            terminal.press(key);
            terminal.press(&["Enter"]);
            terminal.wait(name, |screen| screen.contains(shown) && !screen.contains("2 live"));
        };
        terminal.wait("both hosts", |screen| screen.contains("evil") && screen.contains("good"));
        // the newer one stands first
        start("the bait", &["j"], "bait");
        start("the honest run", &["k"], "tick ");
        let tick = || last_tick(&terminal.screen());
        let pid = ui(&terminal);
        let disk = taken(&at(".local/state"));
        let memory = kib(pid, "VmRSS");
        fs::write(plan.path().join("go"), "").unwrap();
        let began = Instant::now();
        let mut behind = (Duration::ZERO, Duration::ZERO);
        // of each line that was printed: when that was seen, and what this machine had waited for by then
        let mut seen = BTreeMap::new();
        while began.elapsed() < Duration::from_secs(seconds + 2) + late(plan.path()) {
            // what was printed before the screen is looked at, and is not on it
            let printed = last_tick(&printed_of(home.path(), &honest));
            assert_ne!(printed, 0, "the honest rank's output");
            seen.entry(printed).or_insert((began.elapsed(), waited_for_processors()));
            let shown = tick();
            // the oldest line that is not shown yet: what other work has cost it is not the flood's
            if let Some((_, (at, waited))) = seen.range(shown + 1..).next() {
                let others = Duration::from_micros(waited_for_processors() - waited);
                let now = began.elapsed();
                behind = behind.max((now.saturating_sub(*at).saturating_sub(others), now));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let memory = kib(pid, "VmHWM").saturating_sub(memory);
        terminal.press(&["q"]);
        terminal.wait("the end", |screen| screen.contains("[exit "));
        let disk = taken(&at(".local/state")) - disk;
        (memory >> 10, disk >> 20, behind, late(plan.path()))
    };
    let ran = stopped.stop().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let links = fs::read_to_string(plan.path().join("links")).unwrap();
    let store = Store::new(&at(".local/state/hvtui"));
    let reader = Reader::open(&store.path_of(&BAIT.parse().unwrap())).expect("a good recording");
    let (mut ends, mut gaps) = (BTreeSet::new(), BTreeSet::new());
    for envelope in reader.envelopes(..).map(Result::unwrap) {
        match (envelope.origin, envelope.event) {
            (Origin::Host(host), Event::LinkChanged { state: LinkState::Down { reason, .. } })
                if host.as_str() == "evil" =>
            {
                ends.insert(reason);
            }
            (_, Event::Gap { what, .. }) => drop(gaps.insert(what)),
            _ => {}
        }
    }
    let (memory, disk, behind, late) = cost;
    let (said, links) = (said(&links), links.lines().filter(|line| line.contains("begin")).count());
    let recordings = fs::read_dir(at(".local/state/hvtui/runs")).unwrap().count();
    let cost = Cost { memory, disk, behind, late, said, links, ends, recordings, gaps };
    cost.print(kinds, seconds);
    Some(cost)
}

fn check(cost: &Cost, seconds: u64) {
    let bytes: u64 = cost.said.values().sum();
    assert!(bytes >= FLOOD, "there was no flood: {:?}", cost.said);
    assert!(cost.memory <= MEMORY, "{} MiB of memory", cost.memory);
    assert!(cost.disk <= DISK, "{} MiB of disk", cost.disk);
    assert!(cost.behind.0 <= LIVE, "the honest host was {:?} behind at {:?}", cost.behind.0, cost.behind.1);
    assert_eq!(cost.recordings, 2, "runs that a host makes up are not recorded");
    assert!(cost.links as u64 <= 8 + seconds + cost.late.as_secs(), "{} links", cost.links);
}

#[test]
fn vector_14_a_hostile_agent_costs_little_and_the_others_stay_live() {
    let Some(cost) = flood(KINDS, 15) else { return };
    check(&cost, 15);
    assert!(cost.said.len() >= 3 && cost.links >= 2, "few kinds came: {:?}, {} links", cost.said, cost.links);
    // in a flood of all kinds the client may be away while this one has its share
    let Some(cost) = flood("logs", 5) else { return };
    check(&cost, 5);
    let ends = format!("{:?}", cost.ends);
    assert!(ends.contains("than it was granted"), "{ends}");
}

/// `cargo test --release --test it hostile_agent:: -- --ignored --nocapture`; `HVTUI_FLOOD` names kinds, `HVTUI_FLOOD_SECONDS`
/// says how long for each.
#[test]
#[ignore = "heavy: floods for a minute each"]
fn vector_14_a_hostile_agent_costs_little_in_a_minute() {
    let alone = std::env::var("HVTUI_FLOOD").unwrap_or_else(|_| format!("{KINDS} granted reports events"));
    let seconds = std::env::var("HVTUI_FLOOD_SECONDS").map_or(60, |told| told.parse().expect("seconds"));
    for kinds in alone.split(' ') {
        let Some(cost) = flood(kinds, seconds) else { return };
        check(&cost, seconds);
    }
}
