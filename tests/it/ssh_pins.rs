//! A pinned host key is the only one, over both transports and whatever the files know beside it; and no line of a person's
//! ssh configuration lets a host in without its key. Against real OpenSSH on both sides.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::cluster::skip;
use crate::common::echo::{AGENT, agent, assert_echoes, open, refused, target};
use crate::common::sshd::{self, Sshd};
use hvtui::ssh::{AgentError, ErrorKind, HostKey, OpenSsh, SshError, Target, TransportKind, TrustError};

fn fingerprint(sshd: &Sshd, kind: &str) -> String {
    HostKey::from_openssh(&sshd.host_key(kind)).unwrap().fingerprint()
}

/// As the system's `ssh` reaches it, by this configuration file.
fn by_ssh(target: Target, config: &std::path::Path) -> Option<Target> {
    let Some(program) = sshd::program("ssh") else {
        skip("there is no ssh here");
        return None;
    };
    let (alias, config) = (target.address.clone(), Some(config.to_owned()));
    let ssh = OpenSsh { program, alias, config, ignore_unknown: None };
    Some(Target { transport: TransportKind::OpenSsh(ssh), ..target })
}

/// A port whose first connections go to the first servers, and all others to the last one. Returns it with how many came.
fn switch(ports: Vec<u16>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for from in listener.incoming().map_while(Result::ok) {
            let at = counted.fetch_add(1, Ordering::SeqCst).min(ports.len() - 1);
            let Ok(to) = TcpStream::connect(("127.0.0.1", ports[at])) else { continue };
            for (mut read, mut write) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut read, &mut write);
                    let _ = write.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (port, count)
}

#[tokio::test]
async fn of_two_known_keys_the_pinned_one_is_asked_for() {
    let Some(sshd) = Sshd::start(&["ed25519", "ecdsa", "rsa"], "") else { return };
    let binary = agent(&sshd, AGENT);
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let pinned = Target { fingerprint: Some(fingerprint(&sshd, kind)), ..target(&sshd) };
        let Some(by_ssh) = by_ssh(pinned.clone(), "none".as_ref()) else { return };
        for target in [pinned, by_ssh] {
            let mut stream = open(&target, &binary).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert_echoes(&mut stream).await;
        }
    }
}

#[tokio::test]
async fn the_systems_ssh_takes_the_pinned_key_alone_though_another_is_known() {
    let (Some(right), Some(other)) = (Sshd::start(&["ed25519"], ""), Sshd::start(&["ecdsa"], "")) else {
        return;
    };
    let plain = target(&right);
    std::fs::copy(right.path("authorized"), other.path("authorized")).unwrap();
    // Whose key is fetched and compared is not who speaks with ssh afterwards.
    let (port, count) = switch(vec![right.port, other.port]);
    let both = format!(
        "[127.0.0.1]:{port} {}\n[127.0.0.1]:{port} {}\n",
        right.host_key("ed25519"),
        other.host_key("ecdsa")
    );
    std::fs::write(&plain.known_hosts[0], both).unwrap();
    let pinned = Target { port, fingerprint: Some(fingerprint(&right, "ed25519")), ..plain };
    let Some(target) = by_ssh(pinned, "none".as_ref()) else { return };
    // `ssh` asks for the pinned key's type alone: the other key is not even shown.
    let error = refused(&target, &right).await;
    assert!(error.to_string().contains("no matching host key type"), "{error}");
    // The next try looks at the key before `ssh` does, and stops.
    let error = refused(&target, &right).await;
    assert!(
        matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::OtherFingerprint { .. }))),
        "{error}"
    );
    assert!(count.load(Ordering::SeqCst) >= 2, "ssh did not come");
    other.left().await;
    assert!(!other.log().contains("userauth-request"), "a credential was sent: {}", other.log());
    // The same way without a pin is open: it is the pin that closed it.
    let unpinned = Target { fingerprint: None, ..target };
    assert_echoes(&mut open(&unpinned, &agent(&right, AGENT)).await.unwrap()).await;
}

#[tokio::test]
async fn a_configuration_switches_no_check_of_host_keys_off() {
    let Some(sshd) = Sshd::start(&["ed25519"], "") else { return };
    let config = sshd.path("ssh_config");
    std::fs::write(
        &config,
        "NoHostAuthenticationForLocalhost yes\nVerifyHostKeyDNS yes\nStrictHostKeyChecking no\n\
         GSSAPIDelegateCredentials yes\nCheckHostIP no\nUpdateHostKeys yes\n",
    )
    .unwrap();
    let known = target(&sshd);
    std::fs::write(&known.known_hosts[0], "").unwrap();
    for address in ["127.0.0.1", "localhost"] {
        let target = Target { address: address.to_owned(), ..known.clone() };
        let Some(target) = by_ssh(target, &config) else { return };
        let error = refused(&target, &sshd).await;
        assert_eq!(error.kind(), ErrorKind::HostKey, "{error}");
    }
    sshd.left().await;
    assert!(!sshd.log().contains("userauth-request"), "a credential was sent: {}", sshd.log());
}
