//! Rows 22 to 25: putting the binary on a host, when the link, the disk or another client is in the way.

use std::fs;
use std::time::Instant;

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::relay::Relay;
use super::rig::{Rig, until};
use crate::bootstrap::{SWAPS, swap};
use crate::common::processes::end_of;

/// The folder of the binaries on a host.
const AGENTS: &str = ".cache/hvtui/agents";

/// The binaries that lie whole on a host, and other files beside them.
fn installed(rig: &Rig, host: &str) -> (Vec<String>, Vec<String>) {
    // files may go meanwhile, and the folder may not be there yet
    let line = format!("if [ -e ~/{AGENTS} ]; then cd ~/{AGENTS} && find . -ignore_readdir_race -type f; fi");
    let found = rig.cluster.surely_on(host, &line);
    found.lines().map(str::to_owned).partition(|path| path.ends_with("/hvtui"))
}

/// Each binary's content is what its folder's name promises.
fn assert_whole(rig: &Rig, host: &str) {
    let sums = rig.cluster.surely_on(host, &format!("cd ~/{AGENTS} && sha256sum */hvtui"));
    assert!(!sums.is_empty(), "{host}: no binary is there");
    for line in sums.lines() {
        let (sum, path) = line.split_once("  ").expect("a sum and a path");
        assert!(path.starts_with(sum), "{host}: {line}");
    }
}

pub(crate) fn upload_cut(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(1)?;
    let person = rig.person();
    let size = fs::metadata(crate::common::program::hvtui()).expect("the binary").len();
    let relay = rig.relay("n1");
    relay.set(|weather| weather.cut_up_after = size / 8);
    let mut watch =
        person.hvtui(&["watch", "--json"]).stdout(std::process::Stdio::null()).spawn().expect("hvtui");
    until("the cut", || relay.connects() >= 2);
    relay.clear();
    until("the binary to be there", || installed(&rig, "n1").0.len() == 1);
    until("the agent", || rig.cluster.on("n1", "ps ax").contains("agent --stdio"));
    watch.kill().expect("kill");
    end_of(&mut watch);
    assert_whole(&rig, "n1");
    until("what was cut to be gone", || installed(&rig, "n1").1.is_empty());
    let uploads = relay.bytes_up() as f64 / size as f64;
    notes.say(&format!("{uploads:.2} times the binary's size went up over {} connections", relay.connects()));
    Some(())
}

pub(crate) fn no_room(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(1)?;
    for (what, options, word) in
        [("full", "", "free"), ("noexec", "noexec", "noexec"), ("read-only", "ro", "can not be made")]
    {
        let person = rig.person();
        rig.change("sshd", "n1");
        let size = if what == "full" { 2048 } else { 512 * 1024 };
        rig.change("disk", format!("n1 /root/.cache {size} {options}").trim());
        let started = Instant::now();
        let ended = person.run(&["run", "-H", "n1:1", "--", "true"]);
        notes.took(&format!("{what}: named"), started.elapsed().as_secs_f64(), 3.0);
        assert_ne!(ended.code, 0, "{what}: {ended:#?}");
        assert!(ended.said().contains("n1") && ended.said().contains(word), "{what}: {ended:#?}");
        rig.change("sshd", "n1 SetEnv XDG_RUNTIME_DIR=/run/fallback");
        rig.cluster.on("n1", "mkdir -p -m 700 /run/fallback");
        let mut job = rig.start(&person, 1, &["--lines", "20"]);
        let code = job.wait();
        exits_agree(&job, code, 0, &[Ends::Exit(0)]);
        no_byte_lost(&job);
        nothing_left(&rig, &job.run());
        assert_eq!(
            rig.cluster.on("n1", "find /run/fallback -name hvtui -type f | wc -l").trim(),
            "1",
            "{what}"
        );
        assert_eq!(
            rig.cluster.surely_on("n1", "find /run/fallback /root/.cache -name '.up.*'"),
            "",
            "{what}"
        );
        rig.cluster.on("n1", "rm -rf /run/fallback");
        rig.change("undisk", "n1 /root/.cache");
    }
    Some(())
}

pub(crate) fn swapped(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(1)?;
    let person = rig.person();
    for (what, line) in SWAPS {
        assert_eq!(person.run(&["run", "-H", "n1:1", "--", "true"]).code, 0, "before {what}");
        swap(&rig.cluster, "n1", line);
        let started = Instant::now();
        let ended = person.run(&["run", "-H", "n1:1", "--", "touch", "ran"]);
        notes.took(&format!("{what}: refused"), started.elapsed().as_secs_f64(), 1.0);
        assert_eq!(ended.code, 69, "{what}: {ended:#?}");
        assert!(ended.said().contains("n1") && ended.said().contains("not the one"), "{what}: {ended:#?}");
        assert!(!rig.at_home("n1", "ran").exists(), "{what}: a rank was started by it");
        // quarantined, and never to be started again
        let (whole, aside) = installed(&rig, "n1");
        assert!(whole.is_empty() && !aside.is_empty(), "{what}: {whole:?} {aside:?}");
    }
    Some(())
}

pub(crate) fn two_install(notes: &mut Notes) -> Option<()> {
    let rig = Rig::bare(2)?;
    let people = [rig.person(), rig.person()];
    // neither finds a binary there: both have come to each host before anything goes there
    let each = |change: fn(&Relay)| {
        for host in rig.hosts() {
            change(rig.relay(&host));
        }
    };
    each(Relay::stall);
    let mut jobs: Vec<_> = people.iter().map(|person| rig.start(person, 1, &["--lines", "100"])).collect();
    until("both at each host", || rig.hosts().iter().all(|host| rig.relay(host).connects() >= 2));
    each(Relay::clear);
    for job in &mut jobs {
        let code = job.wait();
        exits_agree(job, code, 0, &[Ends::Exit(0); 2]);
        no_byte_lost(job);
        nothing_left(&rig, &job.run());
    }
    for host in rig.hosts() {
        let (whole, rest) = installed(&rig, &host);
        assert!(whole.len() == 1 && rest.is_empty(), "{host}: {whole:?} {rest:?}");
        assert_whole(&rig, &host);
    }
    notes.say("both installed at once");
    Some(())
}
