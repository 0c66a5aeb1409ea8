//! A file of known hosts that another process has locked: a login that waits holds up no other, and not for ever.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, open, target};
use crate::common::in_time::StatusInTime;
use crate::common::person::Person;
use crate::common::processes::{until, wait_for};
use crate::common::sshd::Sshd;
use hvtui::domain::question::{Answer, HostKeyPolicy};
use hvtui::ssh::{HostKey, Prompter, Target, trust};
use rustix::fs::OFlags;

/// Far beyond what a lock is waited for.
const LONG: Duration = Duration::from_secs(40);

/// A process that holds a file's lock.
struct Holder(Child);

impl Holder {
    fn of(file: &Path) -> Option<Self> {
        std::fs::write(file, "").unwrap();
        let mut flock = Command::new("flock");
        flock.arg("-x").arg("-o").arg(file).args(["sleep", "600"]).stdin(Stdio::null());
        let Ok(child) = flock.spawn() else {
            skip("there is no flock(1)");
            return None;
        };
        let holds = || {
            let tried = Command::new("flock").arg("-n").arg(file).arg("true").status_in_time().unwrap();
            !tried.success()
        };
        until("the lock to be held", holds);
        Some(Self(child))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("pkill").args(["-P", &pid]).status_in_time();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn unknown(sshd: &Sshd, prompter: &Prompter, file: &str) -> Target {
    let target = target(sshd);
    Target {
        known_hosts: vec![sshd.path(file)],
        host_key_policy: HostKeyPolicy::Ask,
        prompter: prompter.clone(),
        ..target
    }
}

/// Waits until a pipe is read. The reader hangs as long as the writing end, which this gives, is held.
async fn read_by_another(pipe: &Path) -> OwnedFd {
    let pipe = pipe.to_owned();
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // refused as long as there is no reader
    let waiting =
        move || wait_for("a reader", || rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).ok());
    tokio::time::timeout(LONG, tokio::task::spawn_blocking(waiting)).await.expect("it is not read").unwrap()
}

/// Waits until so many questions were asked.
async fn asked(person: &Person, count: usize) {
    let person = person.clone();
    let waiting = move || until("a question", || person.asked().len() >= count);
    tokio::time::timeout(LONG, tokio::task::spawn_blocking(waiting)).await.expect("nobody asks").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_file_of_known_hosts_keeps_no_other_question_and_is_named() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let locked = sshd.path("locked");
    let Some(holder) = Holder::of(&locked) else { return };
    let (prompter, person) = Person::answering(|_, _| Some(Answer::Yes));
    let binary = agent(&sshd, AGENT);
    let first = Target { host_key_alias: Some("first".into()), ..unknown(&sshd, &prompter, "locked") };
    let slow = {
        let (first, binary) = (first.clone(), binary.clone());
        tokio::spawn(async move { open(&first, &binary).await.map(|_| ()) })
    };
    asked(&person, 1).await;

    // another host, another file: asked and answered while the first still waits for its file
    let second = Target { host_key_alias: Some("second".into()), ..unknown(&sshd, &prompter, "free") };
    let quick = {
        let (second, binary) = (second.clone(), binary.clone());
        tokio::spawn(async move { open(&second, &binary).await.map(|_| ()) })
    };
    asked(&person, 2).await;
    assert!(!slow.is_finished(), "the question of another host waits for a file's lock");
    quick.await.unwrap().unwrap();

    // the first is let in too: its key is trusted in memory, and why is said
    let ended = tokio::time::timeout(LONG, slow).await.expect("it waits for the lock for ever");
    ended.unwrap().unwrap();
    let told = person.told().join("\n");
    for part in ["until hvtui ends", &locked.display().to_string(), "is locked", &holder.0.id().to_string()] {
        assert!(told.contains(part), "{part} is not in: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trusting_a_key_ends_with_the_file_and_who_has_locked_it() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let locked = sshd.path("locked");
    let Some(holder) = Holder::of(&locked) else { return };
    let key = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap();
    let target = unknown(&sshd, &Prompter::default(), "locked");
    let trusting = tokio::task::spawn_blocking(move || trust(&target.server(), &key, None));
    let ended = tokio::time::timeout(LONG, trusting).await.expect("it waits for the lock for ever");
    let error = ended.unwrap().unwrap_err().to_string();
    for part in [&locked.display().to_string(), "locked", &format!("flock (pid {})", holder.0.id())] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    drop(holder);
    assert_eq!(std::fs::read_to_string(&locked).unwrap(), "");
}

/// A key whose file lies on a machine that is down: the login of that host ends with its name, and holds up no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_whose_file_does_not_answer_holds_up_no_other_host_and_is_named() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    // who reads it hangs
    let hung = sshd.path("hung-key");
    rustix::fs::mkfifoat(rustix::fs::CWD, &hung, rustix::fs::Mode::RWXU).unwrap();
    let binary = agent(&sshd, AGENT);
    let first = Target { identities: vec![hung.clone()], auth_agent: false, ..target(&sshd) };
    let slow = {
        let binary = binary.clone();
        tokio::spawn(async move { open(&first, &binary).await.map(|_| ()) })
    };
    let held = read_by_another(&hung).await;
    let second = target(&sshd);
    let quick = tokio::spawn(async move { open(&second, &binary).await.map(|_| ()) });
    tokio::time::timeout(LONG, quick).await.expect("the other host waits").unwrap().unwrap();
    let ended = tokio::time::timeout(LONG, slow).await.expect("it waits for the file for ever");
    let error = ended.unwrap().unwrap_err().to_string();
    for part in [&hung.display().to_string(), "not offered: its file system does not answer within 5 s"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // lets the reader go
    drop(held);
}

/// One thread for all hosts: a host whose file of known hosts lies on a machine that is down must not hold it.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_of_known_hosts_that_does_not_answer_holds_up_no_other_host_and_is_named() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    // who reads it hangs
    let hung = sshd.path("hung");
    rustix::fs::mkfifoat(rustix::fs::CWD, &hung, rustix::fs::Mode::RWXU).unwrap();
    let (prompter, person) = Person::answering(|_, _| Some(Answer::Yes));
    let binary = agent(&sshd, AGENT);
    let first = Target { host_key_alias: Some("first".into()), ..unknown(&sshd, &prompter, "hung") };
    let slow = {
        let binary = binary.clone();
        tokio::spawn(async move { open(&first, &binary).await.map(|_| ()) })
    };
    let held = read_by_another(&hung).await;
    let second = Target { host_key_alias: Some("second".into()), ..unknown(&sshd, &prompter, "free") };
    let quick = tokio::spawn(async move { open(&second, &binary).await.map(|_| ()) });
    let quick = tokio::time::timeout(LONG, quick).await.expect("the other host waits");
    quick.unwrap().unwrap();
    assert!(!slow.is_finished() && person.asked().len() == 1);

    let ended = tokio::time::timeout(LONG, slow).await.expect("it waits for the file for ever");
    let error = ended.unwrap().unwrap_err().to_string();
    for part in
        [&hung.display().to_string(), "its file system does not answer within 15 s", "check the mount"]
    {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // lets the reader go
    drop(held);
}
