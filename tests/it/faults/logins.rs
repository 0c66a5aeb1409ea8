//! Rows 14 to 21: what sshd, its keys and the login shell put in the way.

use std::fs;
use std::path::Path;
use std::time::Instant;

use hvtui::clock::now;
use hvtui::domain::host::{LinkState, RefusalKind};

use super::invariants::{Ends, exits_agree, no_byte_lost, nothing_left};
use super::matrix::Notes;
use super::rig::Rig;
use crate::common::client::{Client, Ended};
use crate::common::in_time::{OutputInTime, StatusInTime};

/// Runs the trainer for a second on these places; everything must hold.
fn all_works(rig: &Rig, person: &Client<'_>, places: &str, ranks: usize) {
    let mut job = rig.start_on(person, places, &[], &["--lines", "50"]);
    let code = job.wait();
    exits_agree(&job, code, 0, &vec![Ends::Exit(0); ranks]);
    no_byte_lost(&job);
    nothing_left(rig, &job.run());
}

/// A command and the seconds it took.
fn timed(person: &Client<'_>, args: &[&str]) -> (Ended, f64) {
    let started = Instant::now();
    let ended = person.run(args);
    (ended, started.elapsed().as_secs_f64())
}

/// How often clients offered credentials to the host's sshd since its log had this length.
fn credentials_since(rig: &Rig, host: &str, length: usize) -> usize {
    sshd_log(rig, host)[length..].matches("userauth-request for user").count()
}

fn sshd_log(rig: &Rig, host: &str) -> String {
    let log = fs::read(rig.cluster.dir().join(host).join("sshd.log")).expect("sshd's log");
    String::from_utf8_lossy(&log).into_owned()
}

pub(crate) fn one_startup(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(1)?;
    let person = rig.person();
    rig.change("sshd", "n1 MaxStartups 1");
    let names: Vec<String> = (1..=8).map(|n| format!("m{n}")).collect();
    let toml = rig.cluster.hosts_toml(1);
    let head = toml.split("[[host]]").next().expect("the defaults");
    let entry = |name: &String| format!("[[host]]\nname = \"{name}\"\naddress = \"10.77.0.11\"\n");
    person.write("hosts.toml", &(head.to_owned() + &names.iter().map(entry).collect::<String>()));
    let places: Vec<String> = names.iter().map(|name| format!("{name}:1")).collect();
    let (ended, took) = timed(&person, &["run", "--verbose", "-H", &places.join(","), "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    notes.took("8 hosts of one sshd", took, 20.0);
    let says_why = |line: &&str| line.contains(": down: ") && line.contains("(MaxStartups)");
    let said = ended.err.lines().filter(says_why).count();
    assert!(said > 0, "why a host waits is said: {ended:#?}");
    notes.say(&format!("{said} times a host was said to wait for MaxStartups"));
    Some(())
}

pub(crate) fn one_session(_: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    rig.change("sshd", "n1 MaxSessions 1");
    // the first time with an upload, the second without
    for _ in 0..2 {
        all_works(&rig, &rig.person(), "n1:1,n2:1", 2);
    }
    Some(())
}

pub(crate) fn changed_key(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    rig.change("sshd", "n1 LogLevel DEBUG1");
    let job = rig.start(&person, 1, &["--until", "~/enough"]);
    job.hear(20);
    assert!(credentials_since(&rig, "n1", 0) > 0, "sshd writes down what it is offered");
    let length = sshd_log(&rig, "n1").len();
    let since = now();
    rig.change("rekey", "n1");
    let refused = |state: &LinkState| matches!(state, LinkState::Refused { kind: RefusalKind::HostKey, .. });
    notes.took("refused", job.wait_link("n1", since, refused), 1.0);
    let (_, told) = job.links("n1").into_iter().find(|(_, state)| refused(state)).expect("it was");
    let LinkState::Refused { reason, .. } = told else { return None };
    for word in ["known_hosts:1", "SHA256:", "changed"] {
        assert!(reason.to_lowercase().contains(&word.to_lowercase()), "'{word}' is not said: {reason}");
    }
    assert!(reason.matches("SHA256:").count() >= 2, "the old and the new key are shown: {reason}");
    let other = rig.person();
    let (ended, took) = timed(&other, &["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 77, "{ended:#?}");
    notes.took("a new client refuses", took, 1.0);
    assert_eq!(credentials_since(&rig, "n1", length), 0, "no credential may have been sent");
    job.hear_rank(1, 20);
    Some(())
}

pub(crate) fn revoked_key(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(1)?;
    let person = rig.person();
    rig.change("sshd", "n1 LogLevel DEBUG1");
    let known = fs::read_to_string(person.path(".ssh/known_hosts")).expect("known hosts");
    let key = known.lines().next().and_then(|line| line.split_once(' ')).expect("a key").1.to_owned();
    person.write(".ssh/known_hosts", &format!("{known}@revoked * {key}\n"));
    let length = sshd_log(&rig, "n1").len();
    let (ended, took) = timed(&person, &["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 77, "{ended:#?}");
    for word in ["revoked", "known_hosts:2"] {
        assert!(ended.said().to_lowercase().contains(word), "'{word}' is not said: {ended:#?}");
    }
    notes.took("refused", took, 1.0);
    assert_eq!(credentials_since(&rig, "n1", length), 0, "no credential may have been sent");
    // without the mark the host is let in, and sshd writes down what it is offered
    person.write(".ssh/known_hosts", &known);
    let ended = person.run(&["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert!(credentials_since(&rig, "n1", length) > 0, "sshd writes down what it is offered");
    Some(())
}

pub(crate) fn noisy_login(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let quiet = rig.person();
    all_works(&rig, &quiet, "n1:1,n2:1", 2);
    let (_, before) = timed(&quiet, &["run", "-H", "n1:1,n2:1", "--", "true"]);
    let noise = rig.cluster.dir().join("noise");
    fs::write(&noise, "\x1b]0;title\x07 \x1b[31mloud\x1b[0m\r\n".repeat(5000)).expect("a banner");
    rig.change("sshd", &format!("n1 Banner {}", noise.display()));
    for host in rig.hosts() {
        rig.cluster.on(&host, "printf '\\033]0;title\\007'; echo \"printf '\\033]0;t\\007'; yes noise | head -5000; echo more >&2\" >~/.bashrc");
    }
    let (ended, after) = timed(&quiet, &["run", "--verbose", "-H", "n1:1,n2:1", "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert!(!ended.said().contains('\x1b'), "a banner drives no terminal: {ended:#?}");
    notes.took("longer than without", after - before, 1.0);
    all_works(&rig, &quiet, "n1:1,n2:1", 2);
    Some(())
}

pub(crate) fn password_expired(notes: &mut Notes) -> Option<()> {
    if !Path::new("/etc/pam.d/sshd").exists() {
        crate::common::cluster::skip("no /etc/pam.d/sshd: apt-get install openssh-server");
        return None;
    }
    let rig = Rig::up(2)?;
    // what `chage -d 0` writes; the same file, for it is mounted there
    let shadow = rig.cluster.dir().join("n1/shadow");
    let entry = fs::read_to_string(&shadow).expect("accounts");
    fs::write(&shadow, entry.replace(":20000:", ":0:")).expect("an expired password");
    let person = rig.person();
    // a key opens a host that leaves passwords alone
    all_works(&rig, &person, "n1:1,n2:1", 2);
    // one with PAM runs nothing before the password is changed
    rig.change("sshd", "n1 UsePAM yes");
    let (ended, took) = timed(&person, &["run", "-H", "n1:1", "--", "true"]);
    assert_eq!(ended.code, 77, "{ended:#?}");
    for word in ["n1: the account's password has expired", "ssh -t"] {
        assert!(ended.said().contains(word), "'{word}' is not said: {ended:#?}");
    }
    notes.took("an expired password is named", took, 1.0);
    all_works(&rig, &person, "n2:1", 1);
    fs::write(&shadow, entry).expect("a password that is changed");
    all_works(&rig, &person, "n1:1,n2:1", 2);
    Some(())
}

pub(crate) fn login_shells(notes: &mut Notes) -> Option<()> {
    let shells = ["/usr/bin/fish", "/usr/bin/tcsh", "/usr/sbin/nologin"];
    if let Some(missing) = shells.iter().find(|shell| !Path::new(shell).exists()) {
        crate::common::cluster::skip(&format!("no {missing}: apt-get install fish tcsh"));
        return None;
    }
    let told =
        ["--shell", "n1=/usr/bin/fish", "--shell", "n2=/usr/bin/tcsh", "--shell", "n3=/usr/sbin/nologin"];
    let rig = Rig::up_with(3, &told, super::seed())?;
    let person = rig.person();
    all_works_on_two(&rig, &person);
    let (ended, took) = timed(&person, &["run", "-H", "n3:1", "--", "true"]);
    assert!(ended.code != 0 && ended.said().contains("n3"), "{ended:#?}");
    assert!(ended.said().contains("This account is currently not available"), "{ended:#?}");
    notes.took("nologin named", took, 2.0);
    Some(())
}

fn all_works_on_two(rig: &Rig, person: &Client<'_>) {
    let mut job = rig.start_on(person, "n1:1,n2:1", &[], &["--lines", "50"]);
    let code = job.wait();
    exits_agree(&job, code, 0, &[Ends::Exit(0); 2]);
    no_byte_lost(&job);
    for host in ["n1", "n2"] {
        rig.cluster.until_free(host, &job.run());
    }
}

pub(crate) fn dead_ssh_agent(notes: &mut Notes) -> Option<()> {
    let rig = Rig::up(2)?;
    let person = rig.person();
    // a key that cannot be unlocked here for n1, no key told for n2
    let locked = person.path("locked");
    let made = rig
        .cluster
        .hub("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "secret", "-f"])
        .arg(&locked)
        .status_in_time();
    assert!(made.expect("ssh-keygen").success());
    let toml = rig.cluster.hosts_toml(1);
    let bare: Vec<&str> = toml.lines().filter(|line| !line.starts_with("identity")).collect();
    let toml = bare
        .join("\n")
        .replace("name = \"n1\"", &format!("name = \"n1\"\nidentity = \"{}\"", locked.display()));
    person.write("hosts.toml", &toml);
    let run = |host: &str| {
        let mut command = person.hvtui(&["run", "-H", &format!("{host}:1"), "--", "true"]);
        let started = Instant::now();
        let out = command.env("SSH_AUTH_SOCK", person.path("no-agent")).output_in_time().expect("hvtui");
        (out, started.elapsed().as_secs_f64())
    };
    let (out, _) = run("n2");
    assert!(out.status.success(), "falls back to the usual key files: {out:?}");
    let (out, took) = run("n2");
    assert!(out.status.success(), "{out:?}");
    notes.took("a run with a dead agent", took, 1.0);
    let (out, took) = run("n1");
    assert_eq!(out.status.code(), Some(77), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("n1"), "{out:?}");
    notes.took("a locked key is named", took, 1.0);
    Some(())
}
