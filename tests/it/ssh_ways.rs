//! The ways to a host against real OpenSSH servers: both transports pass the same rows, directly and through jump hosts;
//! and what goes wrong at a hop or in a proxy command is told as theirs.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, assert_echoes, known_lines, open, refused, target, user};
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::sshd;
use crate::common::sshd::{Sshd, children, keygen};
use hvtui::ssh::config::Reader;
use hvtui::ssh::{
    AgentError, Choice, ErrorKind, HostKey, OpenSsh, Progress, Resolver, Route, SshError, Target,
    TransportKind, TrustError, Wanted, open_agent,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn through(hop: Target, target: Target) -> Target {
    Target { route: Route::Jump(Box::new(hop)), ..target }
}

/// The target as each transport reaches it.
fn by_each(target: &Target) -> Vec<Target> {
    let system = sshd::program("ssh").map(|program| OpenSsh {
        program,
        alias: target.address.clone(),
        config: Some("none".into()),
        ignore_unknown: None,
    });
    if system.is_none() {
        skip("there is no ssh here");
    }
    let transports = [Some(TransportKind::Russh), system.map(TransportKind::OpenSsh)];
    transports.into_iter().flatten().map(|transport| Target { transport, ..target.clone() }).collect()
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[tokio::test]
async fn each_transport_installs_the_agent_once_and_says_how_it_ended() {
    let Some(first) = Sshd::start(&["ed25519"], "") else { return };
    for target in by_each(&target(&first)) {
        let binary = agent(&first, &format!("{AGENT}# {:?}\n", target.transport));
        let steps = Mutex::new(Vec::new());
        let mut stream = open_agent(&target, &binary, |step| steps.lock().unwrap().push(step)).await.unwrap();
        assert_eq!(
            *steps.lock().unwrap(),
            [Progress::Connecting, Progress::Installing { bytes: binary.bytes() }]
        );
        assert_eq!(stream.banner, "");
        assert_echoes(&mut stream).await;
        let path = first.home().join("cache/hvtui/agents").join(binary.sha256()).join("hvtui");
        assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(binary.path()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o500);
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        let end = stream.closed().await;
        assert_eq!((rest.len(), end.status, end.lost), (0, Some(0), false), "{end:?}");

        steps.lock().unwrap().clear();
        let mut stream = open_agent(&target, &binary, |step| steps.lock().unwrap().push(step)).await.unwrap();
        assert_eq!(*steps.lock().unwrap(), [Progress::Connecting]);
        assert_echoes(&mut stream).await;
    }
}

#[tokio::test]
async fn each_transport_refuses_an_unknown_a_changed_and_a_revoked_host_key_before_any_credential() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("old"), "ed25519", "");
    let old = std::fs::read_to_string(sshd.path("old.pub")).unwrap();
    let fingerprint = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap().fingerprint();
    for target in by_each(&target(&sshd)) {
        let know = |text: &str| std::fs::write(&target.known_hosts[0], text).unwrap();
        know("");
        let error = refused(&target, &sshd).await;
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::HostKey, true), "{error}");
        assert_has(&error.to_string(), &[&fingerprint, "hvtui hosts trust gpu-a"]);

        know(&format!("[127.0.0.1]:{} {old}", sshd.port));
        let error = refused(&target, &sshd).await;
        assert!(
            matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::ChangedKey { .. }))),
            "{error}"
        );

        know(&format!("{}@revoked * {}\n", known_lines(&sshd), sshd.host_key("ed25519")));
        let error = refused(&target, &sshd).await;
        assert!(
            matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::RevokedKey { .. }))),
            "{error}"
        );
    }
    sshd.left().await;
    assert!(!sshd.log().contains("userauth-request"), "credentials were sent");
}

#[tokio::test]
async fn each_transport_takes_a_pinned_key_and_no_other() {
    let Some(sshd) = Sshd::start(&["ed25519", "ecdsa"], "") else { return };
    let binary = agent(&sshd, AGENT);
    let fingerprint = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap().fingerprint();
    for target in by_each(&target(&sshd)) {
        let known_hosts = vec![sshd.path("none")];
        let pinned = Target { fingerprint: Some(fingerprint.clone()), known_hosts, ..target };
        assert_echoes(&mut open(&pinned, &binary).await.unwrap()).await;
        let wrong = Target { fingerprint: Some("SHA256:wrong".into()), ..pinned };
        assert!(matches!(
            refused(&wrong, &sshd).await,
            AgentError::Ssh(SshError::HostKey(TrustError::OtherFingerprint { .. }))
        ));
    }
}

#[tokio::test]
async fn each_transport_tells_that_no_credential_is_accepted() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("wrong"), "ed25519", "");
    let wrong = Target { identities: vec![sshd.path("wrong")], identities_only: true, ..target(&sshd) };
    for target in by_each(&wrong) {
        let error = refused(&target, &sshd).await;
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true), "{error}");
        assert_has(&error.to_string(), &["gpu-a: ", "publickey"]);
    }
}

/// A port of this machine at which none listens, and which is given to no test.
const NONE_LISTENS: u16 = 1;

#[tokio::test]
async fn each_transport_tells_that_nobody_answers() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = NONE_LISTENS;
    for target in by_each(&target(&sshd)) {
        let error = refused(&Target { port: free, ..target.clone() }, &sshd).await;
        assert!(matches!(error, AgentError::Ssh(SshError::Refused { .. })), "{error}");
        let port = silent.local_addr().unwrap().port();
        let error = refused(&Target { port, connect_timeout: Duration::from_secs(1), ..target }, &sshd).await;
        assert!(error.kind() == ErrorKind::Unreachable && !error.is_refusal(), "{error}");
    }
}

#[tokio::test]
async fn each_transport_tells_a_lost_link_from_an_end() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    // An agent that ends the ssh session's own server process.
    let killer = "#!/bin/sh\nprintf '\\001HVT1 %s\\n' \"$4\"\nread line\nkill -9 $PPID\nsleep 60\n";
    let loud = "#!/bin/sh\nprintf '\\001HVT1 %s\\nframe' \"$4\"\nyes error | head -c 200000 >&2\necho last >&2\nexit 9\n";
    for target in by_each(&target(&sshd)) {
        let mut stream = open(&target, &agent(&sshd, killer)).await.unwrap();
        stream.write_all(b"go\n").await.unwrap();
        let mut rest = Vec::new();
        let error = stream.read_to_end(&mut rest).await.unwrap_err();
        let end = stream.closed().await;
        assert!(end.lost && end.status.is_none() && !end.reason.is_empty(), "{end:?}");
        assert_eq!(error.to_string(), end.reason);
        assert!(stream.write_all(b"more").await.is_err());

        let mut stream = open(&target, &agent(&sshd, loud)).await.unwrap();
        let mut out = String::new();
        stream.read_to_string(&mut out).await.unwrap();
        let end = stream.closed().await;
        assert_eq!((out.as_str(), end.status, end.lost), ("frame", Some(9), false));
        assert!(end.stderr.len() <= 16 * 1024 && end.stderr.ends_with("last"), "{end:?}");
    }
}

#[tokio::test]
async fn each_transport_shows_what_the_host_prints_and_ends_with_its_stream() {
    let banner = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(banner.path(), "authorised use only \u{1b}]0;owned\u{7}\n").unwrap();
    let Some(sshd) = Sshd::start(&["ed25519"], &format!("Banner {}", banner.path().display())) else {
        return;
    };
    let binary = agent(&sshd, AGENT);
    for target in by_each(&target(&sshd)) {
        let mut stream = open(&target, &binary).await.unwrap();
        assert!(stream.banner.starts_with("authorised use only"), "{}", stream.banner);
        assert!(!stream.banner.contains('\u{1b}'));
        assert_echoes(&mut stream).await;
        drop(stream);
        sshd.left().await;
    }
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within 20 s: {what}");
}

#[tokio::test]
async fn each_transport_goes_through_two_hops() {
    let (Some(outer), Some(inner), Some(last)) =
        (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], ""))
    else {
        return;
    };
    let binary = agent(&last, AGENT);
    let whole = through(through(target(&outer), target(&inner)), target(&last));
    assert_eq!(whole.hops().len(), 2);
    for target in by_each(&whole) {
        let mut stream = open(&target, &binary).await.unwrap();
        assert_echoes(&mut stream).await;
        let from = |to: &Sshd| format!("target 127.0.0.1 port {}", to.port);
        if target.transport == TransportKind::Russh {
            assert!(outer.log().contains(&from(&inner)) && inner.log().contains(&from(&last)));
        }
    }
    assert!(outer.log().matches("Accepted publickey").count() >= 2);
}

#[tokio::test]
async fn a_hop_is_checked_under_its_own_name_before_anything_is_asked_of_it() {
    let (Some(hop), Some(last)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    let unknown = Target { known_hosts: vec![hop.path("none")], ..target(&hop) };
    let connections = || last.log().matches("Connection from").count();
    let before = connections();
    for target in by_each(&through(unknown, target(&last))) {
        let error = refused(&target, &last).await;
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::HostKey, true), "{error}");
        if target.transport == TransportKind::Russh {
            let fingerprint = HostKey::from_openssh(&hop.host_key("ed25519")).unwrap().fingerprint();
            let at = format!("gpu-a: at jump host {}@127.0.0.1:{}: host key of", user(), hop.port);
            assert_has(&error.to_string(), &[&at, &fingerprint, "hvtui hosts trust gpu-a"]);
        }
    }
    hop.left().await;
    assert!(!hop.log().contains("userauth-request"), "credentials were sent to the hop");
    assert_eq!(connections(), before, "the last host was connected to");
}

#[tokio::test]
async fn what_is_wrong_at_the_last_host_is_its_fault_though_the_hop_let_us_in() {
    let (Some(hop), Some(last)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    keygen(&last.path("wrong"), "ed25519", "");
    let locked_out = Target {
        identities: vec![last.path("wrong")],
        identities_only: true,
        ..through(target(&hop), target(&last))
    };
    for target in by_each(&locked_out) {
        let error = refused(&target, &last).await;
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true), "{error}");
        assert_has(&error.to_string(), &["gpu-a: ", "publickey"]);
        assert!(!error.to_string().contains("at jump host"), "{error}");
    }
    let unknown = Target { known_hosts: vec![last.path("none")], ..through(target(&hop), target(&last)) };
    let fingerprint = HostKey::from_openssh(&last.host_key("ed25519")).unwrap().fingerprint();
    for target in by_each(&unknown) {
        let error = refused(&target, &last).await;
        assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::HostKey, true), "{error}");
        let at = format!("gpu-a: host key of 127.0.0.1:{} is not known", last.port);
        assert_has(&error.to_string(), &[&at, &fingerprint, "hvtui hosts trust gpu-a"]);
    }
    assert!(hop.log().contains("Accepted publickey"));
}

#[tokio::test]
async fn what_goes_wrong_at_a_hop_names_the_hop() {
    let (Some(hop), Some(last)) =
        (Sshd::start(&["ed25519"], "AllowTcpForwarding no"), Sshd::start(&["ed25519"], ""))
    else {
        return;
    };
    let free = NONE_LISTENS;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = Target { port: free, ..target(&hop) };
    let error = refused(&through(dead, target(&last)), &last).await;
    assert!(
        matches!(&error, AgentError::Ssh(SshError::Hop { error, .. }) if matches!(**error, SshError::Refused { .. })),
        "{error}"
    );
    assert_has(&error.to_string(), &["gpu-a: at jump host", &format!(":{free}: connection refused")]);
    assert!(!error.is_refusal());

    let port = silent.local_addr().unwrap().port();
    let mute = Target { port, connect_timeout: Duration::from_millis(200), ..target(&hop) };
    let error = refused(&through(mute, target(&last)), &last).await;
    assert!(
        matches!(&error, AgentError::Ssh(SshError::Hop { error, .. }) if matches!(**error, SshError::TimedOut { .. })),
        "{error}"
    );

    let error = refused(&through(target(&hop), target(&last)), &last).await;
    assert_has(&error.to_string(), &["jump host", "AllowTcpForwarding"]);

    keygen(&hop.path("wrong"), "ed25519", "");
    let locked_out = Target { identities: vec![hop.path("wrong")], ..target(&hop) };
    let error = refused(&through(locked_out, target(&last)), &last).await;
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true), "{error}");

    let Some(open_hop) = Sshd::start(&["ed25519"], "") else { return };
    let nowhere = Target { port: free, ..target(&last) };
    let error = refused(&through(target(&open_hop), nowhere), &last).await;
    assert_has(&error.to_string(), &["jump host", "can't reach it"]);
}

#[tokio::test]
async fn a_hop_that_dies_ends_the_link() {
    let (Some(hop), Some(last)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    let mut stream = open(&through(target(&hop), target(&last)), &agent(&last, AGENT)).await.unwrap();
    assert_echoes(&mut stream).await;
    // The session's own server process at the hop: the child of its listener.
    for pid in children(hop.pid()) {
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status_in_time().unwrap().success());
    }
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap_err();
    assert!(stream.closed().await.lost);
}

#[tokio::test]
async fn a_proxy_command_carries_the_bytes_and_ends_with_the_link() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let Some(python) = sshd::program("python3") else { return skip("python3 carries the bytes") };
    let relay = sshd.path("relay.py");
    let text = "import os, socket, sys, threading\n\
                open(sys.argv[3], 'w').write(str(os.getpid()))\n\
                s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n\
                def up():\n\
                \x20   while True:\n\
                \x20       data = os.read(0, 65536)\n\
                \x20       if not data: break\n\
                \x20       s.sendall(data)\n\
                threading.Thread(target=up, daemon=True).start()\n\
                while True:\n\
                \x20   data = s.recv(65536)\n\
                \x20   if not data: break\n\
                \x20   os.write(1, data)\n";
    std::fs::write(&relay, text).unwrap();
    let pid_file = sshd.path("relay.pid");
    // A shell in between, so that the relay is a grandchild.
    let line = format!(
        "sh -c '{} {} 127.0.0.1 {} {}; true'",
        python.display(),
        relay.display(),
        sshd.port,
        pid_file.display()
    );
    let binary = agent(&sshd, AGENT);
    for target in by_each(&Target { route: Route::Command(line.clone()), ..target(&sshd) }) {
        let mut stream = open(&target, &binary).await.unwrap();
        assert_echoes(&mut stream).await;
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        let proc = PathBuf::from(format!("/proc/{pid}"));
        assert!(proc.exists());
        drop(stream);
        wait_until("the proxy command ends with the link", || !proc.exists()).await;
    }

    let saying = |line: &str| Target { route: Route::Command(line.to_owned()), ..target(&sshd) };
    let failing = by_each(&saying("sh -c 'echo no route today >&2'"));
    // One that closes its output before it says why: hvtui's own ssh waits a moment for it.
    for target in failing.into_iter().chain([saying("echo no route today >&2")]) {
        let error = refused(&target, &sshd).await;
        assert!(error.kind() == ErrorKind::Unreachable, "{error}");
        assert_has(&error.to_string(), &["no route today"]);
    }
}

/// A home with an ssh configuration; gives targets for names in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new(config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".ssh");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("config"), config).unwrap();
        std::fs::set_permissions(folder.join("config"), PermissionsExt::from_mode(0o600)).unwrap();
        Self(home)
    }

    async fn resolve(&self, wanted: &Wanted, ssh: Option<PathBuf>) -> Result<Target, SshError> {
        let reader = Reader::new(self.0.path(), ssh).without_system();
        let user = user();
        let bastion = |name: &str| {
            (name == "named")
                .then(|| Wanted { port: Some(2022), ..Wanted::new("named".into(), "bastion.example") })
        };
        let (home, local_user): (&Path, _) = (self.0.path(), Some(user.as_str()));
        Resolver { reader: &reader, home, local_user, find: &bastion }.target(wanted).await
    }
}

#[tokio::test]
async fn the_ssh_configuration_leads_through_its_hops() {
    let (Some(hop), Some(last)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    let known = hop.path("both");
    std::fs::write(&known, known_lines(&hop) + &known_lines(&last)).unwrap();
    let home = Home::new(&format!(
        "IgnoreUnknown UseKeychain\nUseKeychain yes\n\
         Host gpu\n HostName 127.0.0.1\n Port {}\n IdentityFile {}\n ProxyJump bastion\n\
         Host bastion\n HostName 127.0.0.1\n Port {}\n IdentityFile {}\n\
         Host *\n UserKnownHostsFile {}\n GlobalKnownHostsFile none\n IdentityAgent none\n",
        last.port,
        last.path("user").display(),
        hop.port,
        hop.path("user").display(),
        known.display()
    ));
    let binary = agent(&last, AGENT);
    let wanted = Wanted::new("gpu-a".into(), "gpu");
    for ssh in [None, sshd::program("ssh")] {
        let target = home.resolve(&wanted, ssh).await.unwrap();
        assert_eq!((target.port, target.hops().len(), target.auth_agent), (last.port, 1, false));
        assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    }
    // The same by the system's ssh, which reads the same file.
    let by_system = Wanted { choice: Choice::OpenSsh, ..wanted };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    let target = home.resolve(&by_system, Some(ssh)).await.unwrap();
    assert!(matches!(target.transport, TransportKind::OpenSsh(_)));
    assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    assert!(matches!(home.resolve(&by_system, None).await, Err(SshError::NoTransport { .. })));
}

#[tokio::test]
async fn chains_are_followed_and_loops_refused() {
    let home = Home::new(
        "Host a\n ProxyJump b\nHost b\n ProxyJump c\nHost c\n ProxyJump a\n\
         Host self\n ProxyJump self\nHost first\n ProxyJump zero\nHost second\n ProxyJump ignored\n\
         Host command\n ProxyCommand nc %h %p\nHost bad\n ProxyCommand nc %C\n",
    );
    let resolve = async |name: &str, jump: Option<&str>| {
        let wanted = Wanted { jump: jump.map(str::to_owned), ..Wanted::new("gpu-a".into(), name) };
        home.resolve(&wanted, None).await
    };
    let hops = |target: &Target| target.hops().iter().map(|hop| hop.endpoint()).collect::<Vec<_>>();
    for name in ["a", "self"] {
        let error = resolve(name, None).await.unwrap_err();
        assert!(matches!(error, SshError::JumpLoop { .. }) && error.is_refusal(), "{error}");
    }
    assert_has(&resolve("a", None).await.unwrap_err().to_string(), &["gpu-a: ", "a → c → b → a"]);
    // The first hop's own way counts; those of the others are what the chain says.
    let target = resolve("gpu", Some("first,li@second:99")).await.unwrap();
    assert_eq!(hops(&target), ["zero:22", "first:22", "second:99"]);
    assert_eq!(target.hops()[2].user, "li");
    // What the hosts file says of a host counts, and `none` ends every chain.
    assert_eq!(hops(&resolve("gpu", Some("named")).await.unwrap()), ["bastion.example:2022"]);
    assert_eq!(resolve("a", Some("none")).await.unwrap().route, Route::Direct);
    assert_eq!(resolve("command", None).await.unwrap().route, Route::Command("nc command 22".into()));
    for (name, jump) in [("bad", None), ("gpu", Some("-oProxyCommand=x")), ("gpu", Some("a,,b"))] {
        let error = resolve(name, jump).await.unwrap_err();
        assert!(matches!(error, SshError::BadJump { .. }), "{error}");
    }
    assert!(matches!(resolve("-oProxyCommand=x", None).await, Err(SshError::BadTarget { .. })));
}

#[tokio::test]
async fn a_new_host_key_never_goes_nowhere_or_into_the_machines_file() {
    for value in ["none", "/dev/null"] {
        let home = Home::new(&format!("StrictHostKeyChecking no\nUserKnownHostsFile {value}\n"));
        let target = home.resolve(&Wanted::new("gpu-a".into(), "gpu"), None).await.unwrap();
        assert_eq!(target.known_hosts[0], home.0.path().join(".ssh/known_hosts"), "{value}");
        assert_eq!(target.notes.len(), 2, "{:?}", target.notes);
    }
}

#[tokio::test]
async fn what_our_ssh_lacks_is_left_to_the_systems_or_refused() {
    let home = Home::new("Host krl\n RevokedHostKeys /etc/krl\nHost card\n PKCS11Provider /lib/p.so\n");
    let wanted = |name: &str, choice| Wanted { choice, ..Wanted::new("gpu-a".into(), name) };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    for name in ["krl", "card"] {
        let target = home.resolve(&wanted(name, Choice::Auto), Some(ssh.clone())).await.unwrap();
        assert!(matches!(target.transport, TransportKind::OpenSsh(_)), "{name}");
        assert!(target.notes[0].starts_with("spoken with by the system's ssh: "), "{:?}", target.notes);
    }
    let without = home.resolve(&wanted("card", Choice::Auto), None).await.unwrap();
    assert_eq!((without.transport, without.notes.len()), (TransportKind::Russh, 1));
    for ssh in [None, Some(ssh)] {
        let error = home.resolve(&wanted("krl", Choice::Russh), ssh).await.unwrap_err();
        assert_has(&error.to_string(), &["revokedhostkeys /etc/krl", "config:2"]);
    }
}

/// Runs hvtui with a home and a hosts file.
fn hvtui(home: &Path, hosts: &str, words: &[&str]) -> (Option<i32>, String) {
    let file = home.join("hosts.toml");
    std::fs::write(&file, hosts).unwrap();
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(words).arg("--hosts").arg(&file).env("HOME", home).env_remove("SSH_AUTH_SOCK");
    command.env("XDG_STATE_HOME", home.join("state")).env_remove("XDG_CONFIG_HOME");
    let output = command.output_in_time().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), text.concat())
}

#[test]
fn hosts_check_tells_what_is_not_acted_upon() {
    let free = NONE_LISTENS;
    let home = Home::new(&format!(
        "Host gpu\n HostName 127.0.0.1\n Port {free}\n StrictHostKeyChecking no\n\
         Host round\n ProxyJump turn\nHost turn\n ProxyJump round\n"
    ));
    let hosts =
        "[[host]]\nname = \"gpu-a\"\naddress = \"gpu\"\n[[host]]\nname = \"gpu-b\"\naddress = \"round\"\n";
    let (code, text) = hvtui(home.0.path(), hosts, &["hosts", "check"]);
    assert_eq!(code, Some(69), "{text}");
    let note =
        format!("note: {}/.ssh/config:4: StrictHostKeyChecking no is taken as ask", home.0.path().display());
    assert_has(&text, &[&format!("connection refused by 127.0.0.1:{free}"), &note, "round → turn → round"]);
}

#[test]
fn hosts_trust_begins_with_the_hop() {
    let (Some(hop), Some(last)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ed25519"], "")) else {
        return;
    };
    let home = Home::new("");
    let hosts = format!(
        "[[host]]\nname = \"hop\"\naddress = \"127.0.0.1\"\nport = {}\nidentity = \"{}\"\n\
         [[host]]\nname = \"gpu-a\"\naddress = \"127.0.0.1\"\nport = {}\njump = \"hop\"\n",
        hop.port,
        hop.path("user").display(),
        last.port
    );
    let print = |sshd: &Sshd| HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap().fingerprint();
    // No user to ask: the hop's key is shown, and nothing is written.
    let (code, text) = hvtui(home.0.path(), &hosts, &["hosts", "trust", "gpu-a"]);
    assert_eq!(code, Some(77), "{text}");
    assert_has(&text, &[&print(&hop), &format!(":{}", hop.port)]);
    assert!(!home.0.path().join(".ssh/known_hosts").exists());

    for (sshd, word) in [(&hop, "say it again"), (&last, "is trusted from now on")] {
        let (code, text) =
            hvtui(home.0.path(), &hosts, &["hosts", "trust", "gpu-a", "--fingerprint", &print(sshd)]);
        assert_eq!(code, Some(0), "{text}");
        assert_has(&text, &[&print(sshd), word]);
    }
    let known = std::fs::read_to_string(home.0.path().join(".ssh/known_hosts")).unwrap();
    assert_eq!(known, known_lines(&hop) + &known_lines(&last));
    let (code, text) = hvtui(home.0.path(), &hosts, &["hosts", "trust", "gpu-a"]);
    assert_eq!((code, text.contains("was trusted already")), (Some(0), true), "{text}");
}
