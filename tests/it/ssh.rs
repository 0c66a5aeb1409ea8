//! The ssh layer against a real OpenSSH server: host keys, credentials, the binary's way to the host.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, assert_echoes, open, refused, target, user};
use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::sshd;
use crate::common::sshd::{Sshd, keygen};
use hvtui::ssh::{
    AgentBinary, AgentError, DeployError, ErrorKind, HostKey, SshError, Target, TrustError, scan, trust,
};

fn know(sshd: &Sshd, text: &str) -> Target {
    let target = target(sshd);
    std::fs::write(sshd.path("known_hosts"), text).unwrap();
    target
}

fn installed(sshd: &Sshd, binary: &AgentBinary) -> PathBuf {
    sshd.home().join("cache/hvtui/agents").join(binary.sha256()).join("hvtui")
}

/// No credential, not even a user name, was sent.
async fn assert_nothing_sent(sshd: &Sshd) {
    sshd.left().await;
    assert!(!sshd.log().contains("userauth-request"), "credentials were sent");
}

#[tokio::test]
async fn an_unknown_key_is_refused_with_its_fingerprint_before_any_credential() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let target = know(&sshd, &format!("twin {}\n", sshd.host_key("ed25519")));
    let error = refused(&target, &sshd).await;
    assert_eq!(error.kind(), ErrorKind::HostKey);
    let text = error.to_string();
    let fingerprint = HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap().fingerprint();
    for part in [fingerprint.as_str(), "hvtui hosts trust gpu-a", "ssh-ed25519", "twin", &target.endpoint()] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_nothing_sent(&sshd).await;
}

#[tokio::test]
async fn a_changed_key_is_a_hard_stop_that_names_the_line() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("old"), "ed25519", "");
    let old = std::fs::read_to_string(sshd.path("old.pub")).unwrap();
    let target = know(&sshd, &format!("# a comment\n[127.0.0.1]:{} {old}", sshd.port));
    let error = refused(&target, &sshd).await;
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::HostKey, true));
    let text = error.to_string();
    let place = format!("{}:2", sshd.path("known_hosts").display());
    let (old, new) =
        (HostKey::from_openssh(&old).unwrap(), HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap());
    for part in [place.as_str(), &old.fingerprint(), &new.fingerprint(), "hard stop"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    let pinned = Target { fingerprint: Some(new.fingerprint()), ..target.clone() };
    assert!(matches!(
        refused(&pinned, &sshd).await,
        AgentError::Ssh(SshError::HostKey(TrustError::ChangedKey { .. }))
    ));
    assert!(matches!(
        trust(&target.server(), &new, Some(&new.fingerprint())),
        Err(TrustError::ChangedKey { .. })
    ));
    assert_nothing_sent(&sshd).await;
}

#[tokio::test]
async fn a_revoked_key_is_refused_although_it_is_known_and_pinned() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let key = sshd.host_key("ed25519");
    let target = know(&sshd, &format!("[127.0.0.1]:{} {key}\n@revoked * {key}\n", sshd.port));
    let fingerprint = HostKey::from_openssh(&key).unwrap().fingerprint();
    let error = refused(&Target { fingerprint: Some(fingerprint), ..target }, &sshd).await;
    assert!(
        matches!(&error, AgentError::Ssh(SshError::HostKey(TrustError::RevokedKey { place, .. })) if place.line == 2),
        "{error}"
    );
    assert_nothing_sent(&sshd).await;
}

#[tokio::test]
async fn hashed_lines_are_accepted() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let binary = agent(&sshd, AGENT);
    let known = target(&sshd);
    let mut ssh_keygen = Command::new("ssh-keygen");
    assert!(
        ssh_keygen
            .args(["-q", "-H", "-f"])
            .arg(sshd.path("known_hosts"))
            .output_in_time()
            .unwrap()
            .status
            .success()
    );
    assert!(std::fs::read_to_string(sshd.path("known_hosts")).unwrap().starts_with("|1|"));
    assert_echoes(&mut open(&known, &binary).await.unwrap()).await;
    assert!(sshd.log().contains("userauth-request"), "what is sent is seen in the log");
}

#[tokio::test]
async fn a_host_known_by_one_type_of_key_is_asked_for_that_type() {
    let Some(sshd) = Sshd::start(&["ed25519", "ecdsa", "rsa"], "") else { return };
    let binary = agent(&sshd, AGENT);
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let target = know(&sshd, &format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key(kind)));
        assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    }
    let Some(one) = Sshd::start(&["ecdsa"], "") else { return };
    let target = know(&one, &format!("[127.0.0.1]:{} {}\n", one.port, sshd.host_key("rsa")));
    assert!(matches!(
        refused(&target, &one).await,
        AgentError::Ssh(SshError::HostKey(TrustError::OtherKeyType { .. }))
    ));
}

#[tokio::test]
async fn a_scanned_key_can_be_trusted_and_then_connects() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let target = Target { known_hosts: vec![sshd.home().join(".ssh/known_hosts")], ..target(&sshd) };
    let key = scan(&target).await.unwrap();
    assert_eq!(key, HostKey::from_openssh(&sshd.host_key("ed25519")).unwrap());
    assert_nothing_sent(&sshd).await;
    assert!(!trust(&target.server(), &key, Some(&key.fingerprint())).unwrap().already);
    assert!(trust(&target.server(), &key, None).unwrap().already);
    assert_echoes(&mut open(&target, &agent(&sshd, AGENT)).await.unwrap()).await;
}

#[tokio::test]
async fn credentials_that_are_not_accepted_are_listed() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let good = target(&sshd);
    for (name, passphrase) in [("wrong", ""), ("locked", "secret"), ("open", "")] {
        keygen(&sshd.path(name), "ed25519", passphrase);
    }
    std::fs::set_permissions(sshd.path("open"), PermissionsExt::from_mode(0o644)).unwrap();
    let identities = ["wrong", "locked", "open", "absent"].map(|name| sshd.path(name)).to_vec();
    let error = refused(&Target { identities, ..good.clone() }, &sshd).await;
    assert_eq!((error.kind(), error.is_refusal()), (ErrorKind::Authentication, true));
    let text = error.to_string();
    let shown = |name: &str| sshd.path(name).display().to_string();
    let (wrong, open_key, absent) = (shown("wrong"), shown("open"), shown("absent"));
    let offered = format!("offered {wrong}, {}", shown("locked"));
    let chmod = format!("chmod 600 {open_key}");
    for part in [&offered, &chmod, &absent, "publickey", &good.shown()] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(!text.contains("ssh-add"), "its passphrase would not help: {text}");

    let many: Vec<PathBuf> = (0..7).map(|index| sshd.path(&format!("many{index}"))).collect();
    for file in &many {
        keygen(file, "ecdsa", "");
    }
    let error = refused(&Target { identities: many, ..good }, &sshd).await;
    let AgentError::Ssh(SshError::Authentication { attempts, .. }) = &error else { panic!("{error}") };
    assert_eq!((attempts.offered.len(), attempts.notes.len()), (5, 2), "{attempts:?}");
}

#[tokio::test]
async fn rsa_and_ecdsa_keys_are_accepted() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let (good, binary) = (target(&sshd), agent(&sshd, AGENT));
    for kind in ["rsa", "ecdsa"] {
        let file = sshd.path(kind);
        keygen(&file, kind, "");
        std::fs::copy(file.with_extension("pub"), sshd.path("authorized")).unwrap();
        open(&Target { identities: vec![file], ..good.clone() }, &binary).await.unwrap();
    }
    assert!(sshd.log().contains("rsa-sha2-512"), "RSA was not signed with SHA-2");
}

/// A real ssh-agent that ends with the value.
struct KeyAgent(std::process::Child);

impl KeyAgent {
    fn start(socket: &Path, keys: &[PathBuf]) -> Option<Self> {
        if sshd::program("ssh-agent").is_none() {
            skip("ssh-agent is not installed");
            return None;
        }
        let mut command = Command::new("ssh-agent");
        let child =
            command.arg("-D").arg("-a").arg(socket).stdout(std::process::Stdio::null()).spawn().unwrap();
        let this = Self(child);
        for _ in 0..2000 {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                let mut add = Command::new("ssh-add");
                assert!(
                    add.arg("-q").args(keys).env("SSH_AUTH_SOCK", socket).status_in_time().unwrap().success()
                );
                return Some(this);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("ssh-agent does not answer within 20 s");
    }
}

impl Drop for KeyAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The socket's path is taken from the environment, which only a process of its own can change safely: this
/// test runs itself again.
#[tokio::test]
async fn keys_of_the_ssh_agent_are_offered() {
    if let Some(folder) = std::env::var_os("HVTUI_TEST_AGENT_FOLDER") {
        let folder = PathBuf::from(folder);
        let port = std::fs::read_to_string(folder.join("port")).unwrap().parse().unwrap();
        let binary = AgentBinary::from_path(&folder.join("agent")).unwrap();
        // Named, with its private half elsewhere: the agent's key is offered first although it is not its first.
        let target = Target {
            known_hosts: vec![folder.join("known_hosts")],
            connect_timeout: Duration::from_secs(20),
            ..Target::new("gpu-a".into(), "127.0.0.1", port, user())
        };
        assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
        let named = Target { identities: vec![folder.join("locked")], ..target.clone() };
        assert_echoes(&mut open(&named, &binary).await.unwrap()).await;
        let without = Target { auth_agent: false, ..named };
        let error = open(&without, &binary).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication);
        return;
    }
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    target(&sshd);
    agent(&sshd, AGENT);
    keygen(&sshd.path("other"), "ed25519", "");
    std::fs::write(sshd.path("port"), sshd.port.to_string()).unwrap();
    let socket = sshd.path("agent.sock");
    let Some(_agent) = KeyAgent::start(&socket, &[sshd.path("other"), sshd.path("user")]) else { return };
    // The same key as the agent's, locked.
    std::fs::copy(sshd.path("user"), sshd.path("locked")).unwrap();
    let mut lock = Command::new("ssh-keygen");
    lock.args(["-q", "-p", "-N", "secret", "-f"])
        .arg(sshd.path("locked"))
        .stdout(std::process::Stdio::null());
    assert!(lock.status_in_time().unwrap().success());
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "ssh::keys_of_the_ssh_agent_are_offered", "--nocapture"]);
    again.env("HVTUI_TEST_AGENT_FOLDER", sshd.path("")).env("SSH_AUTH_SOCK", socket).env("HOME", sshd.home());
    let output = tokio::task::spawn_blocking(move || again.output_in_time().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn each_way_not_to_answer_has_its_own_error() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target {
        connect_timeout: Duration::from_millis(200),
        auth_agent: false,
        ..Target::new("gpu-a".into(), "127.0.0.1", silent.local_addr().unwrap().port(), "nobody")
    };
    let binary = AgentBinary::of_current_exe().unwrap();
    let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, AgentError::Ssh(SshError::TimedOut { .. })), "{error}");
    assert!(error.to_string().contains(&target.endpoint()), "{error}");
    assert!(matches!(scan(&target).await, Err(SshError::TimedOut { .. })));

    // none listens at the first port
    let refusing = Target { port: 1, connect_timeout: Duration::from_secs(20), ..target.clone() };
    let error = open(&refusing, &binary).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, AgentError::Ssh(SshError::Refused { .. })), "{error}");
    assert_eq!((error.kind(), error.refusal()), (ErrorKind::Unreachable, None));

    // A name that can't exist, by RFC 6761. A resolver without network may take its time.
    let unknown = Target {
        address: "gpu-a.invalid".into(),
        connect_timeout: Duration::from_secs(30),
        ..target.clone()
    };
    let error = open(&unknown, &binary).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, AgentError::Ssh(SshError::Resolve { .. })), "{error}");

    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closing.local_addr().unwrap().port();
    let closer = std::thread::spawn(move || drop(closing.accept().unwrap()));
    let patient = Target { connect_timeout: Duration::from_secs(20), port, ..target.clone() };
    let error = open(&patient, &binary).await.map(|_| ()).unwrap_err();
    closer.join().unwrap();
    assert!(matches!(error, AgentError::Ssh(SshError::Network { .. })), "{error}");

    let talking = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = talking.local_addr().unwrap().port();
    let talker = std::thread::spawn(move || {
        let (mut stream, _) = talking.accept().unwrap();
        // Until the client has had enough of it.
        while stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").is_ok() {}
    });
    let error = open(&Target { port, ..patient }, &binary).await.map(|_| ()).unwrap_err();
    talker.join().unwrap();
    assert!(
        matches!(error, AgentError::Ssh(SshError::Handshake { .. } | SshError::Network { .. })),
        "{error}"
    );

    let unsafe_name = Target { address: "-oProxyCommand=x".into(), ..target };
    assert!(matches!(open(&unsafe_name, &binary).await, Err(AgentError::Ssh(SshError::BadTarget { .. }))));
}

#[tokio::test]
async fn what_the_host_prints_is_the_banner_and_harmless() {
    let banner = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(banner.path(), "authorised use only\n").unwrap();
    let Some(sshd) = Sshd::start(&["ed25519"], &format!("Banner {}", banner.path().display())) else {
        return;
    };
    // More than is kept of it.
    let noise = "echo welcome; printf '\\033]0;owned\\007'; echo oops >&2; yes noise | head -c 100000\n";
    std::fs::write(sshd.home().join(".bashrc"), noise).unwrap();
    let (target, binary) = (target(&sshd), agent(&sshd, AGENT));
    for _ in 0..2 {
        let mut stream = open(&target, &binary).await.unwrap();
        assert!(stream.banner.starts_with("authorised use only"), "{}", stream.banner);
        assert!(!stream.banner.contains('\u{1b}'));
        if user_shell().ends_with("bash") {
            assert!(stream.banner.contains("welcome\n␛]0;owned␇"), "{}", stream.banner);
            assert!((60_000..=64 * 1024 + 100).contains(&stream.banner.len()), "{}", stream.banner.len());
        }
        assert_echoes(&mut stream).await;
    }
    if user_shell().ends_with("bash") {
        std::fs::write(sshd.home().join(".bashrc"), "yes noise | head -c 5000000\n").unwrap();
        let error = refused(&target, &sshd).await;
        assert!(matches!(&error, AgentError::Deploy { problem: DeployError::Noise { .. }, .. }), "{error}");
        std::fs::write(sshd.home().join(".bashrc"), "echo go away; exit 3\n").unwrap();
        let error = refused(&target, &sshd).await;
        assert!(error.to_string().contains("go away") && error.to_string().contains("status 3"), "{error}");
    }
}

fn user_shell() -> String {
    let output = Command::new("getent").args(["passwd", &user()]).output_in_time().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    line.trim().rsplit(':').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_upload_that_differs_from_its_hash_is_refused() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let (target, binary) = (target(&sshd), agent(&sshd, AGENT));
    std::fs::write(binary.path(), AGENT.replace("cat", "dog")).unwrap();
    let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, AgentError::Deploy { problem: DeployError::Damaged { .. }, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Agent);
    let left = std::fs::read_dir(installed(&sshd, &binary).parent().unwrap()).unwrap().count();
    assert_eq!(left, 0, "nothing is left of a refused upload");
}

#[tokio::test]
async fn a_damaged_binary_on_the_host_is_replaced() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let (target, binary) = (target(&sshd), agent(&sshd, AGENT));
    let path = installed(&sshd, &binary);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o500)).unwrap();
    assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), AGENT);
}

#[tokio::test]
async fn an_agent_that_fails_is_named_with_its_words() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let binary = agent(&sshd, "#!/bin/sh\necho cannot go on >&2\nexit 70\n");
    let error = open(&target(&sshd), &binary).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("cannot go on") && error.to_string().contains("status 70"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_install_at_once_all_get_their_agent() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    // Long enough that the uploads overlap.
    let long = format!("{AGENT}\n#{}\n", "x".repeat(4 << 20));
    let (target, binary) = (target(&sshd), agent(&sshd, &long));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (target, binary) = (target.clone(), binary.clone());
            tokio::spawn(async move {
                let mut stream = open(&target, &binary).await.unwrap();
                assert_echoes(&mut stream).await;
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let files = std::fs::read_dir(installed(&sshd, &binary).parent().unwrap()).unwrap().count();
    assert_eq!(files, 1);
}

#[tokio::test]
async fn one_session_a_connection_is_enough() {
    let Some(sshd) = Sshd::start(&["ed25519"], "MaxSessions 1") else { return };
    let (target, binary) = (target(&sshd), agent(&sshd, AGENT));
    assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    let Some(none) = Sshd::start(&["ed25519"], "MaxSessions 0") else { return };
    let error = open(&self::target(&none), &binary).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("MaxSessions"), "{error}");
}

#[tokio::test]
async fn the_real_binary_can_be_put_on_a_host() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let binary = AgentBinary::of_current_exe().unwrap();
    // The test program is no agent: it is uploaded whole, runs, and says that it does not know the arguments.
    let error = open(&target(&sshd), &binary).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, AgentError::Deploy { problem: DeployError::NoAgent { .. }, .. }), "{error}");
    assert_eq!(std::fs::metadata(installed(&sshd, &binary)).unwrap().len(), binary.bytes());
}

#[tokio::test]
async fn dropping_the_stream_ends_the_connection() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let stream = open(&target(&sshd), &agent(&sshd, AGENT)).await.unwrap();
    let (reader, writer) = stream.into_split();
    drop(reader);
    drop(writer);
    sshd.left().await;
}
