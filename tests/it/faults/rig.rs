//! Hosts with a relay before each sshd, a person at the hub, and a run of the trainer whose every byte is known.
//!
//! Knows how a run is started and watched; what must hold afterwards is in `invariants`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::host::LinkState;
use hvtui::domain::time::Stamp;
use hvtui::record::Reader;

use super::relay::Relay;
use crate::common::client::Client;
use crate::common::cluster::Cluster;
use crate::common::processes::end_of;

/// How long anything may take before a test fails: far beyond every bound of the matrix.
const DEADLINE: Duration = Duration::from_secs(90);

/// Waits for something that another process does.
#[track_caller]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    until_some(what, || happened().then_some(()));
}

/// Waits for a value.
#[track_caller]
pub(crate) fn until_some<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(started.elapsed() < DEADLINE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets time pass where the fault itself is a length of time.
pub(crate) fn lasts(time: Duration) {
    std::thread::sleep(time);
}

/// A cluster for one row.
pub(crate) struct Rig {
    // before the cluster, so that they end first
    relays: Vec<Relay>,
    pub(crate) cluster: Cluster,
}

impl Rig {
    /// So many hosts with the agent on them, each reached through a relay. `None` where the machine can't, which is said.
    pub(crate) fn up(hosts: usize) -> Option<Self> {
        Self::up_with(hosts, &[], super::seed())
    }

    /// The same without the agent on any host.
    pub(crate) fn bare(hosts: usize) -> Option<Self> {
        Self::made(super::seed(), || Cluster::up(hosts, &[]))
    }

    /// The same with more of `hosts up`'s arguments.
    pub(crate) fn up_with(hosts: usize, more: &[&str], seed: u64) -> Option<Self> {
        let more: Vec<_> = more.iter().map(AsRef::as_ref).collect();
        Self::made(seed, || Cluster::ready(hosts, &more))
    }

    fn made(seed: u64, cluster: impl FnOnce() -> Option<Cluster>) -> Option<Self> {
        if !["/usr/sbin/iptables", "/sbin/iptables", "/usr/bin/iptables"]
            .iter()
            .any(|p| fs::exists(p).unwrap_or(false))
        {
            crate::common::cluster::skip("no iptables: apt-get install iptables");
            return None;
        }
        let cluster = cluster()?;
        let trainer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/trainer");
        // The checkout may lie in the home that hosts replace by their own.
        fs::copy(trainer, cluster.dir().join("trainer")).expect("the trainer");
        let relays = (1..=cluster.hosts()).map(|n| {
            let relay =
                Relay::start(cluster.pid("hub"), &format!("10.77.0.{}:2222", 10 + n), seed ^ n as u64);
            cluster.change("relay", &format!("n{n} {}", relay.port));
            relay
        });
        Some(Self { relays: relays.collect(), cluster })
    }

    pub(crate) fn relay(&self, host: &str) -> &Relay {
        let number: usize = host.trim_start_matches('n').parse().expect("n1, n2, …");
        &self.relays[number - 1]
    }

    pub(crate) fn hosts(&self) -> Vec<String> {
        (1..=self.relays.len()).map(|n| format!("n{n}")).collect()
    }

    /// A new person at the hub.
    pub(crate) fn person(&self) -> Client<'_> {
        Client::new(&self.cluster)
    }

    pub(crate) fn change(&self, verb: &str, host: &str) {
        self.cluster.change(verb, host);
    }

    /// Kills every agent on a host without a word.
    pub(crate) fn kill_agents(&self, host: &str) {
        let all = self.cluster.processes(host);
        let agents = all.iter().filter(|process| process.args.contains("agent --stdio"));
        let pids: Vec<String> = agents.map(|process| process.pid.to_string()).collect();
        self.cluster.on(host, &format!("kill -9 {}", pids.join(" ")));
    }

    /// A path of a host as this process sees it: below `~` for its user.
    pub(crate) fn at_home(&self, host: &str, below: &str) -> PathBuf {
        self.cluster.at_home(host, below)
    }

    /// Starts the trainer, so many ranks on each host, as this person.
    pub(crate) fn start<'a>(&'a self, person: &'a Client<'a>, per_host: u32, trainer: &[&str]) -> Job<'a> {
        let places: Vec<String> = self.hosts().iter().map(|host| format!("{host}:{per_host}")).collect();
        self.start_on(person, &places.join(","), &[], trainer)
    }

    /// Starts the trainer on these places, with more options of `run`.
    pub(crate) fn start_on<'a>(
        &'a self,
        person: &'a Client<'a>,
        places: &str,
        options: &[&str],
        trainer: &[&str],
    ) -> Job<'a> {
        let program = self.cluster.dir().join("trainer").display().to_string();
        let mut args = vec!["run", "--verbose", "-H", places];
        args.extend(options);
        args.extend(["--", "python3", &program]);
        args.extend(trainer);
        self.launch(person, &args)
    }

    /// Starts hvtui with these arguments, as one that has to do with a run.
    pub(crate) fn launch<'a>(&'a self, person: &'a Client<'a>, args: &[&str]) -> Job<'a> {
        self.spawn(person, person.hvtui(args))
    }

    /// Starts this command of the person.
    pub(crate) fn spawn<'a>(&'a self, person: &'a Client<'a>, mut command: Command) -> Job<'a> {
        let log = fs::File::create(person.path("out")).expect("a file");
        let child = command
            .env("HVTUI_LOG", "debug")
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("hvtui");
        Job { rig: self, person, child: Some(child) }
    }
}

/// A run that goes on.
pub(crate) struct Job<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) person: &'a Client<'a>,
    child: Option<Child>,
}

impl Job<'_> {
    /// What the client printed so far.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.person.path("out")).unwrap_or_default()).into_owned()
    }

    /// The end of it.
    pub(crate) fn last_words(&self) -> String {
        let said = self.said();
        let mut tail: Vec<&str> = said.lines().rev().take(40).collect();
        tail.reverse();
        tail.join("\n")
    }

    /// The client's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// How many lines of each rank the client printed so far.
    fn heard(&self) -> BTreeMap<u32, usize> {
        let mut heard = BTreeMap::new();
        // `[ 3] text`: aligned where there are more than ten
        let rank = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.trim().parse().ok();
        for rank in self.said().lines().filter_map(rank) {
            *heard.entry(rank).or_default() += 1;
        }
        heard
    }

    /// Waits until each rank was heard that many times more.
    pub(crate) fn hear(&self, lines: usize) {
        let before = self.heard();
        let enough = |rank: u32, now: &BTreeMap<u32, usize>| {
            now.get(&rank).copied().unwrap_or(0) >= before.get(&rank).copied().unwrap_or(0) + lines
        };
        until("lines of every rank", || {
            let now = self.heard();
            self.fails() || (0..self.world()).all(|rank| enough(rank, &now))
        });
    }

    /// Waits until this rank was heard that many times more.
    pub(crate) fn hear_rank(&self, rank: u32, lines: usize) {
        let count = || self.heard().get(&rank).copied().unwrap_or(0);
        let before = count();
        until("lines of one rank", || self.fails() || count() >= before + lines);
    }

    fn fails(&self) -> bool {
        let said = self.said();
        assert!(!said.contains("failed first"), "{said}");
        false
    }

    fn world(&self) -> u32 {
        self.spec().map_or(1, |spec| spec.world())
    }

    /// The run's id.
    pub(crate) fn run(&self) -> String {
        until_some("the run's recording", || self.newest())
    }

    /// This person's newest run, if there is any.
    pub(crate) fn newest(&self) -> Option<String> {
        self.recordings().pop()
    }

    fn recordings(&self) -> Vec<String> {
        let folder = fs::read_dir(self.person.path(".local/state/hvtui/runs"));
        let mut runs: Vec<String> = folder
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().join("run.mcap").exists())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        // the newest last: ids sort by time
        runs.sort();
        runs
    }

    fn reader(&self) -> Option<Reader> {
        let run = self.recordings().pop()?;
        Reader::open(&self.person.path(&format!(".local/state/hvtui/runs/{run}/run.mcap"))).ok()
    }

    fn spec(&self) -> Option<hvtui::domain::run::RunSpec> {
        self.reader()?.spec().cloned()
    }

    /// What is recorded by now.
    pub(crate) fn events(&self) -> Vec<Envelope> {
        self.reader().map(|reader| reader.envelopes(..).flatten().collect()).unwrap_or_default()
    }

    /// The states of a host's link with their times, as they are recorded by now.
    pub(crate) fn links(&self, host: &str) -> Vec<(Stamp, LinkState)> {
        let of = |envelope: Envelope| match (envelope.origin, envelope.event) {
            (Origin::Host(id), Event::LinkChanged { state }) if id.as_str() == host => {
                Some((envelope.at, state))
            }
            _ => None,
        };
        self.events().into_iter().filter_map(of).collect()
    }

    /// Waits until the link was seen to go down after `since`; the seconds until then.
    pub(crate) fn down_after(&self, host: &str, since: Stamp) -> f64 {
        self.wait_link(host, since, |state| matches!(state, LinkState::Down { .. }))
    }

    /// Waits until the link was up (again) after `since`; the seconds until then.
    pub(crate) fn up_after(&self, host: &str, since: Stamp) -> f64 {
        self.wait_link(host, since, |state| matches!(state, LinkState::Up))
    }

    pub(crate) fn wait_link(&self, host: &str, since: Stamp, wanted: impl Fn(&LinkState) -> bool) -> f64 {
        until_some(&format!("the link to {host}"), || {
            let links = self.links(host);
            let found = links.iter().find(|(at, state)| *at >= since && wanted(state));
            found.map(|(at, _)| at.micros_since(since) as f64 / 1e6)
        })
    }

    /// Lets every rank that writes `--until enough` come to its end.
    pub(crate) fn enough(&self) {
        for host in self.rig.hosts() {
            fs::write(self.rig.at_home(&host, "enough"), "").expect("a file on the host");
        }
    }

    /// Kills the client without a word.
    pub(crate) fn kill_client(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("kill -9");
        end_of(&mut child);
    }

    /// Whether the client goes on.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("wait").is_none())
    }

    /// Waits for the client's end; its exit code.
    pub(crate) fn wait(&mut self) -> i32 {
        let child = self.child.as_mut().expect("it runs");
        let status = until_some("the client's end", || child.try_wait().expect("wait"));
        self.child = None;
        status.code().unwrap_or(-1)
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the client's last words ---\n{}", self.last_words());
            for host in self.rig.hosts() {
                eprintln!("--- {host} ---\n{}", self.rig.cluster.on(&host, "ps axf -o pid,ppid,stat,args"));
            }
        }
    }
}
