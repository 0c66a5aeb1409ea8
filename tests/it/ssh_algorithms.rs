//! The algorithms of a person's ssh configuration: both transports end with the same ones on a real sshd, and what hvtui's own
//! ssh can't honour is refused or left to the system's, never passed over.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, assert_echoes, known_lines, open, user};
use crate::common::sshd::{self, Sshd};
use hvtui::ssh::config::Reader;
use hvtui::ssh::{AgentError, Choice, ErrorKind, Resolver, SshError, Target, TransportKind, Wanted};

const KINDS: &[&str] = &["ed25519", "ecdsa", "rsa"];

/// The host `gpu` of an ssh configuration with these lines, as `choice` reaches it; `ssh` reads them, or our reader does.
async fn resolve(sshd: &Sshd, lines: &str, choice: Choice, ssh: Option<PathBuf>) -> Result<Target, SshError> {
    let home = sshd.path("client");
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    let file = home.join(".ssh/config");
    let config = format!(
        "Host gpu\n{lines}\nHost *\n HostName 127.0.0.1\n Port {}\n IdentityFile {}\n UserKnownHostsFile {}\n \
         GlobalKnownHostsFile none\n IdentityAgent none\n StrictHostKeyChecking yes\n",
        sshd.port,
        sshd.path("user").display(),
        sshd.path("known").display()
    );
    std::fs::write(&file, config).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let reader = Reader::new(&home, ssh).without_system();
    let user = user();
    let (home, local_user): (&Path, _) = (&home, Some(user.as_str()));
    let find = |_: &str| None;
    let wanted = Wanted { choice, ..Wanted::new("gpu-a".into(), "gpu") };
    Resolver { reader: &reader, home, local_user, find: &find }.target(&wanted).await
}

fn know(sshd: &Sshd, kinds: &[&str]) {
    let all = known_lines(sshd);
    let known = |line: &&str| kinds.iter().any(|kind| line.contains(&sshd.host_key(kind)));
    let lines: Vec<&str> = all.lines().filter(known).collect();
    std::fs::write(sshd.path("known"), lines.join("\n") + "\n").unwrap();
}

/// What the server's log says last of `what`.
fn negotiated(sshd: &Sshd, what: &str) -> String {
    let log = sshd.log();
    let line = log.lines().rev().find_map(|line| line.trim_end().split_once(what));
    line.unwrap_or_else(|| panic!("{what} is not in {log}")).1.trim_end_matches("[preauth]").trim().to_owned()
}

const KEX: &str = "kex: algorithm: ";
const KEY: &str = "kex: host key algorithm: ";
const CIPHER: &str = "kex: client->server cipher: ";

/// Lines, what they are about, what both transports must end with.
const ROWS: &[(&str, &str, &str)] = &[
    ("KexAlgorithms ecdh-sha2-nistp384,curve25519-sha256", KEX, "ecdh-sha2-nistp384"),
    ("KexAlgorithms -sntrup*,mlkem*,curve*", KEX, "ecdh-sha2-nistp256"),
    ("KexAlgorithms ^diffie-hellman-group14-sha256", KEX, "diffie-hellman-group14-sha256"),
    (
        "KexAlgorithms diffie-hellman-group1-sha1,diffie-hellman-group16-sha512",
        KEX,
        "diffie-hellman-group16-sha512",
    ),
    (
        "Ciphers aes128-gcm@openssh.com,aes256-ctr",
        CIPHER,
        "aes128-gcm@openssh.com MAC: <implicit> compression: none",
    ),
    (
        "Ciphers -chacha*,*gcm*\n MACs hmac-sha2-256",
        CIPHER,
        "aes128-ctr MAC: hmac-sha2-256 compression: none",
    ),
    ("Ciphers aes256-ctr\n MACs ^hmac-sha2-512", CIPHER, "aes256-ctr MAC: hmac-sha2-512 compression: none"),
    ("HostKeyAlgorithms rsa-sha2-256,ssh-ed25519", KEY, "rsa-sha2-256"),
    ("HostKeyAlgorithms ecdsa*", KEY, "ecdsa-sha2-nistp256"),
    ("HostKeyAlgorithms ^rsa-sha2-512", KEY, "rsa-sha2-512"),
    ("HostKeyAlgorithms -ssh-ed25519*", KEY, "ecdsa-sha2-nistp256"),
];

#[tokio::test]
async fn both_carriers_end_with_the_algorithms_of_the_configuration() {
    let Some(sshd) = Sshd::start(KINDS, "") else { return };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    let binary = agent(&sshd, AGENT);
    know(&sshd, KINDS);
    let mut wrong = Vec::new();
    for (lines, what, wanted) in ROWS {
        let ways =
            [(Choice::OpenSsh, Some(ssh.clone())), (Choice::Russh, Some(ssh.clone())), (Choice::Russh, None)];
        for (choice, reader) in ways {
            let by =
                format!("{lines:?} by {choice:?}, read by {}", if reader.is_some() { "ssh" } else { "us" });
            let target = match resolve(&sshd, lines, choice, reader).await {
                Ok(target) => target,
                Err(error) => {
                    wrong.push(format!("{by}: {error}"));
                    continue;
                }
            };
            match open(&target, &binary).await {
                Ok(mut stream) => assert_echoes(&mut stream).await,
                Err(error) => wrong.push(format!("{by}: {error}")),
            }
            let got = negotiated(&sshd, what);
            if got != *wanted || !target.notes.is_empty() {
                wrong.push(format!("{by}: {got}, wanted {wanted}; notes {:?}", target.notes));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn known_keys_order_the_types_unless_the_configuration_does() {
    let Some(sshd) = Sshd::start(KINDS, "") else { return };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    let binary = agent(&sshd, AGENT);
    know(&sshd, &["rsa"]);
    for choice in [Choice::OpenSsh, Choice::Russh] {
        // As OpenSSH does: what is appended or taken away leaves the order to the known keys.
        for lines in ["", "HostKeyAlgorithms +ssh-rsa", "HostKeyAlgorithms -ecdsa*"] {
            let target = resolve(&sshd, lines, choice, Some(ssh.clone())).await.unwrap();
            let mut stream = open(&target, &binary).await.unwrap_or_else(|error| panic!("{lines}: {error}"));
            assert_echoes(&mut stream).await;
            assert_eq!(negotiated(&sshd, KEY), "rsa-sha2-512", "{choice:?} {lines}");
        }
        let lines = "HostKeyAlgorithms ssh-ed25519,rsa-sha2-512";
        let target = resolve(&sshd, lines, choice, Some(ssh.clone())).await.unwrap();
        let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostKey, "{choice:?}: {error}");
        assert_eq!(negotiated(&sshd, KEY), "ssh-ed25519", "{choice:?}");
    }
}

#[tokio::test]
async fn what_our_ssh_has_nothing_of_goes_by_the_systems_or_is_refused_with_its_line() {
    let Some(sshd) = Sshd::start(KINDS, "") else { return };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    know(&sshd, KINDS);
    for (key, value) in [
        ("KexAlgorithms", "diffie-hellman-group1-sha1"),
        ("HostKeyAlgorithms", "ssh-rsa"),
        ("Ciphers", "aes128-cbc,3des-cbc"),
        ("MACs", "umac-128-etm@openssh.com"),
        ("CASignatureAlgorithms", "sk-ssh-ed25519@openssh.com"),
        ("PubkeyAcceptedAlgorithms", "ssh-rsa"),
    ] {
        let lines = format!("{key} {value}");
        let target = resolve(&sshd, &lines, Choice::Auto, Some(ssh.clone())).await.unwrap();
        assert!(matches!(target.transport, TransportKind::OpenSsh(_)), "{lines}");
        for reader in [None, Some(ssh.clone())] {
            let error = resolve(&sshd, &lines, Choice::Russh, reader).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, SshError::NoTransport { .. }), "{text}");
            for part in ["gpu-a: ", "config:2: ", &key.to_lowercase(), value, "openssh"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_host_without_the_wanted_algorithm_is_an_error_that_names_the_option() {
    let Some(sshd) = Sshd::start(&["rsa"], "KexAlgorithms curve25519-sha256") else { return };
    know(&sshd, &["rsa"]);
    let binary = agent(&sshd, AGENT);
    for (lines, option) in [
        ("HostKeyAlgorithms ssh-ed25519", "HostKeyAlgorithms"),
        ("KexAlgorithms ecdh-sha2-nistp256", "KexAlgorithms"),
    ] {
        let target = resolve(&sshd, lines, Choice::Russh, None).await.unwrap();
        let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, AgentError::Ssh(SshError::Handshake { .. })), "{text}");
        assert!(text.contains(option) && text.contains("config:2"), "{text}");
    }
}

#[tokio::test]
async fn rsa_keys_that_are_too_short_are_refused_on_both_sides() {
    let Some(sshd) = Sshd::start(&["rsa"], "") else { return };
    let Some(ssh) = sshd::program("ssh") else { return skip("there is no ssh here") };
    know(&sshd, &["rsa"]);
    let binary = agent(&sshd, AGENT);
    for choice in [Choice::OpenSsh, Choice::Russh] {
        let target = resolve(&sshd, "RequiredRSASize 2048", choice, Some(ssh.clone())).await.unwrap();
        assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
        let target = resolve(&sshd, "RequiredRSASize 3072", choice, Some(ssh.clone())).await.unwrap();
        let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
        assert!(!error.to_string().is_empty());
        if choice == Choice::Russh {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::HostKey, "{text}");
            for part in ["2048", "3072", "config:2"] {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
    }
    // The person's own key.
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    know(&sshd, &["ed25519"]);
    std::fs::remove_file(sshd.path("user")).unwrap();
    sshd::keygen(&sshd.path("user"), "rsa", "");
    std::fs::copy(sshd.path("user.pub"), sshd.path("authorized")).unwrap();
    let target = resolve(&sshd, "", Choice::Russh, None).await.unwrap();
    assert_echoes(&mut open(&target, &binary).await.unwrap()).await;
    for lines in ["RequiredRSASize 3072", "PubkeyAcceptedAlgorithms ssh-ed25519"] {
        let target = resolve(&sshd, lines, Choice::Russh, None).await.unwrap();
        let error = open(&target, &binary).await.map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication, "{error}");
        let option = lines.split(' ').next().unwrap();
        assert!(error.to_string().contains(option), "{error}");
    }
}
