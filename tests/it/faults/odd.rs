//! Rows 16, 30 (memory), 32 and 38: what is rare and has to be made with tricks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hvtui::domain::event::Event;
use hvtui::domain::host::LinkState;
use hvtui::supervise::state::Phase;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::{Rig, lasts, until, until_some};
use crate::common::in_time::StatusInTime;
use crate::common::processes::end_of;

pub(crate) fn wrong_key(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(1)?;
    let person = rig.person();
    let made = rig
        .cluster
        .hub("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(person.path("other"))
        .status_in_time();
    assert!(made.expect("ssh-keygen").success());
    let own = format!("identity = \"{}\"", person.path("other").display());
    let toml = rig.cluster.hosts_toml(1);
    let toml: Vec<&str> =
        toml.lines().map(|line| if line.starts_with("identity") { &own } else { line }).collect();
    person.write("hosts.toml", &toml.join("\n"));
    let before = rig.relay("n1").connects();
    let seen = fs::File::create(person.path("seen")).expect("a file");
    let mut watch = person.hvtui(&["watch", "--json"]).stdout(seen).spawn().expect("hvtui");
    // the link at each tick so far
    let links = || {
        let text = fs::read_to_string(person.path("seen")).expect("what it saw");
        // the last line may be half written
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
        let ticks = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        ticks.filter_map(|tick| Some(tick["hosts"].get(0)?["link"].clone())).collect::<Vec<_>>()
    };
    let refused = || links().last().is_some_and(|link| link["link"] == "refused");
    until("the refusal", refused);
    lasts(Duration::from_secs(15));
    let last = links().pop().expect("a tick");
    let told = (&last["link"], &last["kind"], last["reason"].as_str().unwrap_or_default());
    assert_eq!((told.0, told.1), (&"refused".into(), &"authentication".into()), "{last}");
    let offered = format!("accepts no credential: offered {}", person.path("other").display());
    assert!(told.2.contains(&offered), "{last}");
    let ticks = links().len();
    until("further ticks", || links().len() > ticks);
    assert!(watch.try_wait().expect("wait").is_none(), "the client goes on");
    watch.kill().expect("kill");
    end_of(&mut watch);
    let connects = rig.relay("n1").connects() - before;
    notes.count("further connects in 15 s", u64::from(connects.saturating_sub(1)), 0);
    assert_eq!(connects, 1, "what a person has to change is not tried again");
    Some(())
}

/// A control group of memory; gone with the value.
struct Group(PathBuf);

impl Group {
    /// `None` where the machine has none of the first version, which is said.
    fn new(name: &str, mib: u64) -> Option<Self> {
        let path = PathBuf::from("/sys/fs/cgroup/memory").join(name);
        if fs::create_dir(&path).is_err() {
            crate::common::cluster::skip("no control group of memory can be made in /sys/fs/cgroup/memory");
            return None;
        }
        let group = Self(path);
        fs::write(group.0.join("memory.limit_in_bytes"), (mib << 20).to_string()).expect("a limit");
        Some(group)
    }

    fn take_in(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("a process");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // its processes may be ending right now
        let started = Instant::now();
        while fs::remove_dir(&self.0).is_err() && started.elapsed() < Duration::from_secs(10) {
            lasts(Duration::from_millis(20));
        }
    }
}

/// The processes of a host as this machine numbers them.
fn processes_of(rig: &Rig, host: &str) -> Vec<u32> {
    let of = |pid: u32| fs::metadata(format!("/proc/{pid}/ns/pid")).map(|data| data.ino()).ok();
    let first = rig.cluster.pid(host);
    let own = of(first);
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != first && of(*pid) == own).collect()
}

pub(crate) fn out_of_memory(notes: &mut Notes) -> Option<()> {
    let group = Group::new(&format!("hvtui-faults-{}", std::process::id()), 256)?;
    {
        let rig = Rig::up(2)?;
        // what sshd starts from now on is in the group with it
        for pid in processes_of(&rig, "n1") {
            group.take_in(pid);
        }
        let person = rig.person();
        let mut job = rig.start(&person, 1, &["--lines", "100000", "--at", "0:60:memory"]);
        let code = job.wait();
        exits_agree(&job, code, 137, &[Ends::Signal(9), Ends::Stopped]);
        assert!(job.said().contains("out of memory (cgroup)"), "{}", job.last_words());
        no_byte_lost(&job);
        nothing_left(&rig, &job.run());
        notes.say("the cause is named");
    }
    drop(group);
    Some(())
}

pub(crate) fn unkillable(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/stuck"), rig.cluster.dir().join("stuck"))
        .expect("stuck");
    let stuck = rig.cluster.dir().join("stuck").display().to_string();
    rig.cluster.on("n1", &format!("setsid python3 {stuck} /root/stuck >/root/stuck.log 2>&1 &"));
    until("the file system", || rig.cluster.on("n1", "grep -c /root/stuck /proc/mounts").trim() == "1");
    let person = rig.person();
    let line = "echo in; if [ $RANK = 0 ]; then exec cat ~/stuck/file; else exec sleep 600; fi";
    let mut job = rig.launch(&person, &["run", "--verbose", "-H", "n1:1,n2:1", "--", "sh", "-c", line]);
    job.hear(1);
    let reads = || rig.cluster.processes("n1").iter().any(|process| process.args == "cat /root/stuck/file");
    until("the rank to read", reads);
    let run = job.run();
    let supervisor = rig.cluster.state_of("n1", &run).supervisor;
    let started = Instant::now();
    let mut stop = person.hvtui(&["stop", &run]);
    let mut stop = stop.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hvtui");
    until("it to be told", || {
        let said = job.said();
        job.events()
            .iter()
            .any(|e| matches!(&e.event, Event::RunNoted { note, .. } if note.what == "unkillable"))
            || said.contains("unkillable")
    });
    notes.took("unkillable is told", started.elapsed().as_secs_f64(), 15.0);
    // the supervisor does not hang with the rank: it comes to its end, and says what it leaves
    let state = until_some("the supervisor to go on", || {
        Some(rig.cluster.state_of("n1", &run)).filter(|state| state.phase == Phase::Ended)
    });
    assert_eq!(state.supervisor, supervisor, "the same supervisor");
    assert!(state.left.iter().any(|left| left.contains("cat")), "{:?}", state.left);
    assert!(reads(), "the rank still hangs");
    let other = rig.person();
    let seen = other.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(seen.code, 0, "the host goes on: {seen:#?}");
    let daemon =
        rig.cluster.processes("n1").into_iter().find(|process| process.args.ends_with("stuck /root/stuck"));
    rig.cluster.on("n1", &format!("kill -9 {}", daemon.expect("the file system's process").pid));
    until("the end of stop", || stop.try_wait().expect("wait").is_some());
    let code = job.wait();
    assert_ne!(code, 0, "{}", job.last_words());
    nothing_left(&rig, &run);
    Some(())
}

/// A library that shifts the wall clock of a process by the seconds in a file; none without a C compiler.
fn clock_shim(rig: &Rig) -> Option<PathBuf> {
    let library = rig.cluster.dir().join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/clock.c");
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status_in_time();
    if !made.is_ok_and(|status| status.success()) {
        crate::common::cluster::skip("no C compiler: apt-get install gcc");
        return None;
    }
    Some(library)
}

pub(crate) fn clock_steps(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let shim = clock_shim(&rig)?;
    let shift = rig.cluster.dir().join("shift");
    let set = |seconds: i64| fs::write(&shift, seconds.to_ne_bytes()).expect("the shift");
    set(0);
    let person = rig.person();
    let program = rig.cluster.dir().join("trainer").display().to_string();
    let args = ["run", "--verbose", "-H", "n1:1,n2:1", "--", "python3", &program, "--until", "~/enough"];
    let mut command = person.hvtui(&args);
    command.env("LD_PRELOAD", &shim).env("CLOCK_SHIFT", &shift);
    let mut job = rig.spawn(&person, command);
    // another person who looks on while the clock steps
    let eye = rig.person();
    let mut watch = eye.hvtui(&["watch", "--json", "--interval", "0.2"]);
    watch.env("LD_PRELOAD", &shim).env("CLOCK_SHIFT", &shift).stdin(Stdio::null()).stderr(Stdio::null());
    let seen = fs::File::create(eye.path("seen")).expect("a file");
    let mut watch = watch.stdout(seen).spawn().expect("hvtui");
    let ages = || {
        let text = fs::read_to_string(eye.path("seen")).expect("what it saw");
        // the last line may be half written
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
        let ticks = whole.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let hosts = ticks.flat_map(|tick| tick["hosts"].as_array().expect("hosts").clone());
        hosts.filter_map(|host| host["age_s"].as_f64()).collect::<Vec<f64>>()
    };
    job.hear(20);
    until("ages before the step", || !ages().is_empty());
    set(-3600);
    let before = ages().len();
    job.hear(100);
    until("ages after the step", || ages().len() >= before + 20);
    let negative = ages().into_iter().find(|age| *age < 0.0);
    assert_eq!(negative, None, "a negative age");
    watch.kill().expect("kill");
    end_of(&mut watch);
    let downs = |job: &super::rig::Job<'_>, host: &str| {
        job.links(host).iter().filter(|(_, state)| matches!(state, LinkState::Down { .. })).count()
    };
    assert_eq!((downs(&job, "n1"), downs(&job, "n2")), (0, 0), "a clock that steps back ends no link");
    // a laptop that sleeps for an hour: stopped, and the clock is an hour on when it wakes
    let pid = rustix::process::Pid::from_raw(job.pid().cast_signed()).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("SIGSTOP");
    lasts(Duration::from_secs(20));
    set(0);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("SIGCONT");
    let since = Instant::now();
    job.hear(20);
    notes.took("output after the wake", since.elapsed().as_secs_f64(), 5.0);
    job.enough();
    let code = job.wait();
    for host in ["n1", "n2"] {
        // none before it slept
        let after = downs(&job, host);
        notes.count(&format!("reconnects of {host}"), after as u64, 1);
        assert!(after <= 1, "{host} is connected to once more, not {after} times");
    }
    exits_agree(&job, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&job);
    nothing_left(&rig, &job.run());
    Some(())
}
