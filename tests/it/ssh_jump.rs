//! Many hosts behind one jump host: one login there for all of them, which a lost link does not ask for again.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::echo::{AGENT, agent, assert_echoes, known_lines, open, target, user};
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::person::{Person, text};
use crate::common::processes::{kill, pid_in, until};
use crate::common::sshd::{Sshd, children};
use futures_util::future::join_all;
use hvtui::ssh::{AgentBinary, AgentError, AgentStream, ErrorKind, Prompter, Route, Target};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Hosts behind the jump host.
const HOSTS: u8 = 12;
const PASSWORD: &str = "open sesame";

/// A jump host that asks a question by PAM, and a server that stands for all hosts behind it, an address each.
fn servers(more: &str) -> Option<(Sshd, Sshd)> {
    let asking = format!("UsePAM yes\nKbdInteractiveAuthentication yes\n{more}");
    let bastion = Sshd::start_with_password(PASSWORD, &["ed25519"], &asking)?;
    let line = |place: u8| format!("ListenAddress 127.0.0.{}\n", place + 1);
    let addresses: Vec<String> = (1..=HOSTS).map(line).collect();
    let hosts = Sshd::start(&["ed25519"], &(addresses.concat() + "MaxStartups 100"))?;
    for (sshd, address) in [(&bastion, "127.0.0.1"), (&hosts, "*")] {
        let known = match address {
            "*" => format!("* {}\n", sshd.host_key("ed25519")),
            _ => known_lines(sshd),
        };
        std::fs::write(sshd.path("known_hosts"), known).unwrap();
    }
    Some((bastion, hosts))
}

fn hop(bastion: &Sshd, host: &str, prompter: &Prompter) -> Target {
    Target {
        identities: vec![bastion.path("no-such-key")],
        known_hosts: vec![bastion.path("known_hosts")],
        connect_timeout: Duration::from_secs(20),
        auth_agent: false,
        prompter: prompter.clone(),
        ..Target::new(host.into(), "127.0.0.1", bastion.port, user())
    }
}

/// The hosts behind the jump host, each with a name and an address of its own.
fn targets(bastion: &Sshd, hosts: &Sshd, prompter: &Prompter) -> Vec<Target> {
    let target = |place: u8| {
        let name = format!("gpu-{place}");
        Target {
            identities: vec![hosts.path("user")],
            known_hosts: vec![hosts.path("known_hosts")],
            connect_timeout: Duration::from_secs(20),
            auth_agent: false,
            route: Route::Jump(Box::new(hop(bastion, &name, prompter))),
            prompter: prompter.clone(),
            ..Target::new(name.as_str().into(), format!("127.0.0.{}", place + 1), hosts.port, user())
        }
    };
    (1..=HOSTS).map(target).collect()
}

async fn open_all(targets: &[Target], binary: &AgentBinary) -> Vec<Result<AgentStream, AgentError>> {
    join_all(targets.iter().map(|target| open(target, binary))).await
}

async fn kill_connections(sshd: &Sshd) {
    for pid in children(sshd.pid()) {
        // one may have ended with another
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).output_in_time().unwrap();
    }
    sshd.left().await;
}

fn logins(bastion: &Sshd) -> usize {
    bastion.log().matches("Accepted keyboard-interactive").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_login_at_the_jump_host_serves_all_hosts_behind_it_also_after_a_reconnect() {
    let Some((bastion, hosts)) = servers("") else { return };
    let (prompter, person) = Person::answering(|_, _| text(PASSWORD));
    let targets = targets(&bastion, &hosts, &prompter);
    let binary = agent(&hosts, AGENT);
    let mut streams: Vec<_> = open_all(&targets, &binary).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((person.subjects(), logins(&bastion)), (vec!["prompt"], 1), "each host asked");
    let note = person.asked()[0].note.clone().unwrap_or_default();
    assert!(note.contains("hosts behind it"), "the question does not say for whom it is: {note}");
    for stream in &mut streams {
        assert_echoes(stream).await;
    }

    // every link is cut at its host: they come back by the same login
    kill_connections(&hosts).await;
    for mut stream in streams {
        stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(stream.closed().await.lost);
    }
    let streams: Vec<_> = open_all(&targets, &binary).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((person.asked().len(), logins(&bastion)), (1, 1), "asked again after a cut");

    // the jump host itself dies: every link ends, and one login brings all of them back
    kill_connections(&bastion).await;
    for mut stream in streams {
        stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert!(stream.closed().await.lost);
    }
    let streams: Vec<_> = open_all(&targets, &binary).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((person.asked().len(), logins(&bastion)), (2, 2));
    drop(streams);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_at_the_jump_host_is_told_to_all_who_waited_for_it() {
    let Some((bastion, hosts)) = servers("") else { return };
    let (prompter, person) = Person::answering(|_, before| if before == 0 { None } else { text(PASSWORD) });
    let targets = targets(&bastion, &hosts, &prompter);
    let binary = agent(&hosts, AGENT);
    let at = format!("at jump host {}@127.0.0.1:{}: ", user(), bastion.port);
    for (target, ended) in targets.iter().zip(open_all(&targets, &binary).await) {
        let error = ended.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("{}: {at}", target.host)), "{text}");
        assert_eq!(text.matches("gpu-").count(), 1, "{text}");
    }
    assert_eq!(person.asked().len(), 1);
    open(&targets[0], &binary).await.unwrap();
    assert_eq!(person.asked().len(), 2, "a later try asks again");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_goes_on_where_the_first_gave_up() {
    let Some((bastion, hosts)) = servers("") else { return };
    let may_answer = Arc::new(AtomicBool::new(false));
    let answers = may_answer.clone();
    let (prompter, person) = Person::answering(move |_, _| {
        until("the first to give up", || answers.load(Ordering::SeqCst));
        text(PASSWORD)
    });
    let binary = agent(&hosts, AGENT);
    let tasks: Vec<_> = targets(&bastion, &hosts, &prompter)
        .into_iter()
        .map(|target| {
            let binary = binary.clone();
            (target.host.clone(), tokio::spawn(async move { open(&target, &binary).await }))
        })
        .collect();
    let looking = person.clone();
    tokio::task::spawn_blocking(move || until("a question", || !looking.asked().is_empty())).await.unwrap();
    let first = person.asked()[0].host.clone();
    for (host, task) in &tasks {
        if *host == first {
            task.abort();
        }
    }
    may_answer.store(true, Ordering::SeqCst);
    for (host, task) in tasks {
        match task.await {
            Ok(ended) => drop(ended.unwrap()),
            Err(error) => assert!(error.is_cancelled() && host == first),
        }
    }
    assert_eq!((person.asked().len(), logins(&bastion)), (2, 1));
}

/// Processes that are stopped; they end with the value.
struct Frozen(Vec<u32>);

impl Frozen {
    /// All that a server has for its connections: where it drops its rights, the one that forwards is a child's child.
    fn connections(server: u32) -> Self {
        let first = children(server);
        let all: Vec<u32> = first.iter().flat_map(|pid| children(*pid)).chain(first.clone()).collect();
        for pid in &all {
            kill(*pid, Signal::STOP);
        }
        Self(all)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let pids = self.0.iter().map(ToString::to_string);
        let _ = Command::new("kill").arg("-9").args(pids).status_in_time();
    }
}

/// A port of this machine that answers no connection attempt, as one behind a firewall; with what keeps it so.
fn black_hole() -> (u16, (TcpListener, Vec<TcpStream>)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let at = listener.local_addr().unwrap();
    let mut held = Vec::new();
    // none is taken off the queue, and what finds it full is passed over
    while let Ok(stream) = TcpStream::connect_timeout(&at, Duration::from_secs(1)) {
        held.push(stream);
    }
    (at.port(), (listener, held))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_host_that_died_silently_is_named_and_not_its_target() {
    let (Some(bastion), Some(hosts)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    let binary = agent(&hosts, AGENT);
    let way = Target { route: Route::Jump(Box::new(target(&bastion))), ..target(&hosts) };
    let mut first = open(&way, &binary).await.unwrap();
    let named = format!("at jump host {}@127.0.0.1:{}: ", user(), bastion.port);
    let hasty = Target { connect_timeout: Duration::from_secs(3), ..way.clone() };

    // one that lives says so, in as long a time on a busy machine, and its target is at fault
    let (port, _held) = black_hole();
    let unreached = Target { port, connect_timeout: Duration::from_secs(8), ..way.clone() };
    let error = open(&unreached, &binary).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("was not reached by its jump host") && !error.contains(&named), "{error}");
    assert_echoes(&mut first).await;

    let frozen = Frozen::connections(bastion.pid());
    let error = open(&hasty, &binary).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let text = error.to_string();
    assert!(text.contains(&named) && text.contains("did not answer on the connection"), "{text}");
    // the next one waits for it no more
    let mut second = open(&way, &binary).await.unwrap();
    assert_echoes(&mut second).await;
    let end = tokio::time::timeout(Duration::from_secs(60), first.closed()).await;
    assert!(end.expect("a link through a dead jump host ends").lost);
    drop(frozen);
}

/// Bytes that a process has written.
fn written_by(pid: u32) -> u64 {
    let told = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let written = told.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    written.parse().unwrap()
}

/// ssh has one connection for all of them: unread data of one must not be in the way of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_nobody_reads_holds_up_none_beside_it() {
    let Some((bastion, hosts)) = servers("") else { return };
    let (prompter, _person) = Person::answering(|_, _| text(PASSWORD));
    let targets = targets(&bastion, &hosts, &prompter);
    let loud = "#!/bin/sh\nprintf '\\001HVT1 %s\\n' \"$4\"\nread line\necho $$ >\"$HOME/loud\"\n\
                exec head -c 100000000 /dev/zero\n";
    std::fs::write(hosts.path("loud"), loud).unwrap();
    let loud = AgentBinary::from_path(&hosts.path("loud")).unwrap();
    let mut unread = open(&targets[0], &loud).await.unwrap();
    unread.write_all(b"go\n").await.unwrap();
    let pid = pid_in(&hosts.home().join("loud"));
    // what was written, and for how many looks no more was
    let mut still = (0, 0);
    until("the way to be full", || {
        let written = written_by(pid);
        still = if written == still.0 { (written, still.1 + 1) } else { (written, 0) };
        written > 1 << 20 && still.1 >= 50
    });
    let binary = agent(&hosts, AGENT);
    let mut stream = open(&targets[1], &binary).await.unwrap();
    assert_echoes(&mut stream).await;
    let mut rest = Vec::new();
    unread.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 100_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_at_the_jump_host_ends_with_who_asked_for_it() {
    let Some((bastion, hosts)) = servers("") else { return };
    let binary = agent(&hosts, AGENT);
    for _ in 0..2 {
        let (prompter, person) = Person::answering(|_, _| text(PASSWORD));
        let targets = targets(&bastion, &hosts, &prompter);
        open(&targets[0], &binary).await.unwrap();
        assert_eq!(person.asked().len(), 1, "another session of hvtui has no part in it");
    }
    // another account there is another login
    let (prompter, person) = Person::answering(|_, _| text(PASSWORD));
    let mut targets = targets(&bastion, &hosts, &prompter);
    let Route::Jump(hop) = &mut targets[1].route else { panic!("no hop") };
    hop.user = "somebody-else".to_owned();
    open(&targets[0], &binary).await.unwrap();
    let error = open(&targets[1], &binary).await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
    assert!(person.asked().len() > 1);
}

/// A jump host made of russh's server half, which forwards twice a connection and is then short of resources: OpenSSH's
/// server is that when it has no descriptors left, but says something else.
mod short {
    use super::*;
    use hvtui::ssh::HostKey;
    use russh::keys::{Algorithm, PrivateKey};
    use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Session, run_stream};
    use russh::{Channel, ChannelOpenFailure};

    const FORWARDS: usize = 2;

    #[derive(Default)]
    struct Server(usize);

    impl Handler for Server {
        type Error = russh::Error;

        async fn auth_password(&mut self, _user: &str, password: &str) -> Result<Auth, russh::Error> {
            Ok(if password == PASSWORD { Auth::Accept } else { Auth::reject() })
        }

        async fn channel_open_direct_tcpip(
            &mut self,
            channel: Channel<Msg>,
            host: &str,
            port: u32,
            _from: &str,
            _from_port: u32,
            reply: ChannelOpenHandle,
            _session: &mut Session,
        ) -> Result<(), russh::Error> {
            self.0 += 1;
            if self.0 > FORWARDS {
                reply.reject(ChannelOpenFailure::ResourceShortage).await;
                return Ok(());
            }
            let to = format!("{host}:{port}");
            reply.accept().await;
            tokio::spawn(async move {
                let mut there = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut channel.into_stream(), &mut there).await;
            });
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_jump_host_that_is_short_of_forwards_is_logged_in_to_once_more() {
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
        let public = HostKey::from_openssh(&key.public_key().to_openssh().unwrap()).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Config { keys: vec![key], ..Config::default() });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let config = config.clone();
                tokio::spawn(async move {
                    if let Ok(session) = run_stream(config, stream, Server::default()).await {
                        let _ = session.await;
                    }
                });
            }
        });
        let Some((bastion, hosts)) = servers("") else { return };
        let (prompter, person) = Person::answering(|_, _| text(PASSWORD));
        let mut targets = targets(&bastion, &hosts, &prompter);
        targets.truncate(FORWARDS * 2);
        for target in &mut targets {
            let Route::Jump(hop) = &mut target.route else { panic!("no hop") };
            hop.port = port;
            hop.fingerprint = Some(public.fingerprint());
        }
        let binary = agent(&hosts, AGENT);
        let streams: Vec<_> = open_all(&targets, &binary).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(person.subjects(), ["password", "password"]);
        drop(streams);
    }
}
