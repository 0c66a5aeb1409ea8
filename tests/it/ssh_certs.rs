//! Host keys beside OpenSSH itself: the rows in which a plain reading of known hosts goes wrong, and host certificates
//! made by ssh-keygen, each against a real sshd and with the real `ssh` as the witness.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::echo::user;
use crate::common::in_time::OutputInTime;
use crate::common::sshd::{Sshd, keygen};
use hvtui::domain::question::HostKeyPolicy;
use hvtui::ssh::{
    AgentBinary, AgentError, Algorithms, Allowed, CertificateFault, HostKey, SshError, Target, TrustError,
    open_agent,
};

const AGENT: &str = "#!/bin/sh\nprintf '\\001HVT1 %s\\n' \"$4\"\nexec cat\n";

/// A server reached under the name `localhost`, strictly.
fn target(sshd: &Sshd, known_hosts: &str) -> Target {
    let file = sshd.path("known_hosts");
    if known_hosts.is_empty() {
        let _ = std::fs::remove_file(&file);
    } else {
        std::fs::write(&file, known_hosts.replace("$PORT", &sshd.port.to_string())).unwrap();
    }
    Target {
        identities: vec![sshd.path("user")],
        known_hosts: vec![file],
        host_key_policy: HostKeyPolicy::Strict,
        connect_timeout: Duration::from_secs(20),
        auth_agent: false,
        ..Target::new("gpu-a".into(), "localhost", sshd.port, user())
    }
}

async fn open(sshd: &Sshd, target: &Target) -> Result<(), AgentError> {
    let path = sshd.path("agent");
    std::fs::write(&path, AGENT).unwrap();
    open_agent(target, &AgentBinary::from_path(&path).unwrap(), |_| ()).await.map(|_| ())
}

/// What OpenSSH makes of the same file and key.
fn openssh(sshd: &Sshd) -> Result<(), String> {
    openssh_with(sshd, &[])
}

fn openssh_with(sshd: &Sshd, options: &[&str]) -> Result<(), String> {
    let mut ssh = Command::new("ssh");
    ssh.args(options);
    ssh.args(["-F", "none", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oUpdateHostKeys=no"]);
    ssh.arg(format!("-oUserKnownHostsFile={}", sshd.path("known_hosts").display()));
    ssh.args(["-oGlobalKnownHostsFile=none", "-oIdentitiesOnly=yes", "-oLogLevel=ERROR", "-i"]);
    ssh.arg(sshd.path("user")).args(["-p", &sshd.port.to_string()]);
    let output = ssh.arg(format!("{}@localhost", user())).arg("exit 0").output_in_time().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

fn fields(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// Each row of known hosts: what is in it, and whether the host is let in.
#[tokio::test]
async fn known_hosts_mean_what_they_mean_to_openssh() {
    let Some(sshd) = Sshd::start(&["ed25519", "rsa"], "") else { return };
    let Some(ed25519) = Sshd::start(&["ed25519"], "") else { return };
    keygen(&sshd.path("other"), "ed25519", "");
    let other = fields(&sshd.path("other.pub"));
    let rows: &[(&str, bool)] = &[
        ("[localhost]:$PORT $KEY\n", true),
        ("[localhost]:$PORT $KEY\n@revoked * $KEY\n", false),
        ("@revoked [localhost]:$PORT $KEY\n[localhost]:$PORT $KEY\n", false),
        ("[*]:$PORT $KEY\n", true),
        ("[local*]:$PORT,![localhost]:$PORT $KEY\n", false),
        ("[LocalHost]:$PORT $KEY\n", true),
        ("[localhost]:$PORT\t$KEY\n", true),
        ("   [localhost]:$PORT $KEY\n", true),
        ("[localhost]:$PORT $OTHER\n[localhost]:$PORT $KEY\n", true),
        ("[localhost]:$PORT $OTHER\n", false),
        ("[localhost]:$PORT ssh-ed25519 AAAAbroken\n[localhost]:$PORT $KEY\n", true),
        ("[localhost]:$PORT $RSA\n", true),
        ("[localhost]:1 $KEY\n", false),
        ("localhost $KEY\n", true),
        ("@cert-authority * $OTHER\n", false),
        ("@cert-authority * $KEY\n", false),
        ("@cert-authority * $OTHER\n[localhost]:$PORT $KEY\n", true),
        ("", false),
    ];
    for (text, wanted) in rows {
        let text = text.replace("$KEY", &sshd.host_key("ed25519")).replace("$RSA", &sshd.host_key("rsa"));
        let text = text.replace("$OTHER", &other);
        let target = target(&sshd, &text);
        let ours = open(&sshd, &target).await;
        let theirs = openssh(&sshd);
        assert_eq!(theirs.is_ok(), *wanted, "OpenSSH on {text:?}: {theirs:?}");
        assert_eq!(ours.is_ok(), *wanted, "{text:?}: {ours:?}");
    }
    // known by RSA alone, and it has no such key
    let only_rsa = format!("[localhost]:$PORT {}\n", sshd.host_key("rsa"));
    let target = target(&ed25519, &only_rsa);
    assert!(matches!(
        open(&ed25519, &target).await,
        Err(AgentError::Ssh(SshError::HostKey(TrustError::OtherKeyType { .. })))
    ));
    assert!(openssh(&ed25519).is_err());
    // what can't be read is no empty file
    std::fs::remove_file(ed25519.path("known_hosts")).unwrap();
    std::fs::create_dir(ed25519.path("known_hosts")).unwrap();
    assert!(matches!(
        open(&ed25519, &target).await,
        Err(AgentError::Ssh(SshError::HostKey(TrustError::KnownHosts { .. })))
    ));
    assert!(openssh(&ed25519).is_err());
}

/// A server with a certificate of `ca`, or of one that is called so.
struct Certified {
    sshd: Sshd,
    ca: String,
    /// sshd reads its keys anew for each connection.
    _keys: tempfile::TempDir,
}

impl Certified {
    /// `sign` goes to ssh-keygen beside the authority and the identity.
    fn start(kind: &str, ca_kind: &str, sign: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (ca, host) = (folder.path().join("ca"), folder.path().join("host"));
        keygen(&ca, ca_kind, "");
        keygen(&host, kind, "");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-s"]).arg(&ca).args(["-I", "test"]).args(sign).arg(host.with_extension("pub"));
        let output = keygen.output_in_time().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let certificate = folder.path().join("host-cert.pub");
        let more = format!("HostKey {}\nHostCertificate {}", host.display(), certificate.display());
        let ca = fields(&ca.with_extension("pub"));
        let sshd = Sshd::start(&[], &more)?;
        std::fs::copy(host.with_extension("pub"), sshd.path("host_plain.pub")).unwrap();
        Some(Self { sshd, ca, _keys: folder })
    }

    fn know(&self, text: &str) -> Target {
        target(&self.sshd, &text.replace("$CA", &self.ca).replace("$KEY", &self.sshd.host_key("plain")))
    }
}

#[tokio::test]
async fn a_host_certificate_of_a_known_authority_lets_the_host_in() {
    for (kind, ca) in [("ed25519", "ed25519"), ("rsa", "ed25519"), ("ecdsa", "rsa"), ("ed25519", "ecdsa")] {
        let Some(host) = Certified::start(kind, ca, &["-h", "-n", "gpu-x,LOCALHOST", "-V", "-1h:+1h"]) else {
            return;
        };
        for line in [
            "@cert-authority * $CA\n",
            "@cert-authority [local*]:$PORT $CA\n",
            "@cert-authority localhost $CA\n",
        ] {
            let target = host.know(line);
            open(&host.sshd, &target).await.unwrap_or_else(|error| panic!("{kind} by {ca}, {line}: {error}"));
            let alias =
                Target { host_key_alias: Some("gpu-x".into()), ..host.know("@cert-authority gpu-* $CA\n") };
            open(&host.sshd, &alias).await.unwrap_or_else(|error| panic!("{kind} by {ca}: {error}"));
        }
        // its authority is another's
        let target = host.know("@cert-authority *.example.org $CA\n");
        assert!(matches!(
            open(&host.sshd, &target).await,
            Err(AgentError::Ssh(SshError::HostKey(TrustError::UnknownKey { .. })))
        ));
        assert!(openssh(&host.sshd).is_err());
        // a pinned fingerprint is that of the key inside
        let pinned = HostKey::from_openssh(&host.sshd.host_key("plain")).unwrap().fingerprint();
        let target = Target { fingerprint: Some(pinned), ..host.know("@cert-authority * $CA\n") };
        open(&host.sshd, &target).await.unwrap();
        let target = Target { fingerprint: Some("SHA256:wrong".into()), ..target };
        assert!(matches!(
            open(&host.sshd, &target).await,
            Err(AgentError::Ssh(SshError::HostKey(TrustError::OtherFingerprint { .. })))
        ));
    }
}

#[tokio::test]
async fn vector_09_a_bad_host_certificate_is_refused_before_any_credential() {
    type Check = fn(&CertificateFault) -> bool;
    let rows: &[(&str, &[&str], Check)] = &[
        ("wrong principal", &["-h", "-n", "gpu-x"], |fault| {
            matches!(fault, CertificateFault::Principal { .. })
        }),
        (
            "expired",
            &["-h", "-n", "localhost", "-V", "20200101:20200201"],
            |fault| matches!(fault, CertificateFault::Expired(at) if at.starts_with("2020-0")),
        ),
        (
            "not yet valid",
            &["-h", "-n", "localhost", "-V", "20990101:20990201"],
            |fault| matches!(fault, CertificateFault::NotYet(at) if at.starts_with("20")),
        ),
        (
            "critical option",
            &["-h", "-n", "localhost", "-O", "critical:x@example.org=1"],
            |fault| matches!(fault, CertificateFault::Critical(option) if option == "x@example.org"),
        ),
    ];
    for (name, sign, check) in rows {
        let Some(host) = Certified::start("ed25519", "ed25519", sign) else { return };
        let target = host.know("@cert-authority * $CA\n");
        let error = open(&host.sshd, &target).await.unwrap_err();
        let AgentError::Ssh(SshError::HostKey(TrustError::BadCertificate { fault, authority, .. })) = &error
        else {
            panic!("{name}: {error}")
        };
        assert!(check(fault), "{name}: {error}");
        assert_eq!((authority.line, error.is_refusal()), (1, true));
        host.sshd.left().await;
        assert!(!host.sshd.log().contains("userauth-request"), "{name}: credentials were sent");
        let theirs = openssh(&host.sshd);
        assert!(theirs.is_err(), "{name}: OpenSSH lets it in");
        // the key itself may be known all the same
        let target = host.know("@cert-authority * $CA\n[localhost]:$PORT $KEY\n");
        open(&host.sshd, &target).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(openssh(&host.sshd).is_ok(), "{name}: OpenSSH does not know the key");
    }
}

#[tokio::test]
async fn an_authority_may_sign_by_what_the_configuration_allows_alone() {
    for (ca, good) in [("ed25519", false), ("rsa", true)] {
        let Some(host) = Certified::start("ed25519", ca, &["-h", "-n", "localhost"]) else { return };
        let said = "CASignatureAlgorithms (config:2)".to_owned();
        let allowed = Allowed { names: vec!["rsa-sha2-512".into()], said };
        let algorithms = Algorithms { ca_signatures: Some(allowed), ..Algorithms::default() };
        let target = Target { algorithms, ..host.know("@cert-authority * $CA\n") };
        let opened = open(&host.sshd, &target).await;
        assert_eq!(openssh_with(&host.sshd, &["-oCASignatureAlgorithms=rsa-sha2-512"]).is_ok(), good, "{ca}");
        if good {
            opened.unwrap();
            continue;
        }
        let error = opened.unwrap_err();
        let AgentError::Ssh(SshError::HostKey(TrustError::BadCertificate { fault, .. })) = &error else {
            panic!("{error}")
        };
        assert!(matches!(fault, CertificateFault::Algorithm(_)), "{error}");
        assert!(error.to_string().contains("ssh-ed25519, which CASignatureAlgorithms (config:2) leaves out"));
    }
}

/// The one case in which we are stricter than OpenSSH.
#[tokio::test]
async fn a_certificate_that_names_no_host_is_refused() {
    let Some(host) = Certified::start("ed25519", "ed25519", &["-h"]) else { return };
    let error = open(&host.sshd, &host.know("@cert-authority * $CA\n")).await.unwrap_err();
    assert!(error.to_string().contains("it names no host"), "{error}");
    assert!(
        openssh(&host.sshd).is_ok(),
        "OpenSSH refuses it too by now: say so in docs/decisions/ssh-login.md"
    );
}

#[tokio::test]
async fn revoked_authorities_and_certified_keys_are_refused() {
    let Some(host) = Certified::start("ed25519", "ed25519", &["-h", "-n", "localhost"]) else { return };
    for line in ["@revoked * $CA\n@cert-authority * $CA\n", "@cert-authority * $CA\n@revoked * $KEY\n"] {
        let error = open(&host.sshd, &host.know(line)).await.unwrap_err();
        assert!(
            matches!(error, AgentError::Ssh(SshError::HostKey(TrustError::RevokedKey { .. }))),
            "{line}: {error}"
        );
        assert!(openssh(&host.sshd).is_err(), "{line}");
    }
    host.sshd.left().await;
    let ours = host.sshd.log();
    assert!(!ours.contains("userauth-request"), "credentials were sent");
}

/// sshd itself refuses to show a user's certificate: a server of russh's makes no such fuss.
#[tokio::test]
async fn a_users_certificate_is_no_hosts() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use russh::keys::ssh_key::certificate::{Builder, CertType};
    use russh::keys::{Algorithm, PrivateKey};
    use russh::server::{Config, Handler, run_stream};

    struct Nobody(Arc<AtomicBool>);
    impl Handler for Nobody {
        type Error = russh::Error;
        async fn auth_none(&mut self, _user: &str) -> Result<russh::server::Auth, russh::Error> {
            self.0.store(true, Ordering::SeqCst);
            Ok(russh::server::Auth::reject())
        }
    }
    let new_key = || PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
    let (ca, key) = (new_key(), new_key());
    for (kind, good) in [(CertType::User, false), (CertType::Host, true)] {
        let public = key.public_key().key_data().clone();
        let nonce = vec![7; 16];
        let mut builder = Builder::new(nonce, public, 0, u64::MAX - 1).unwrap();
        builder.cert_type(kind).unwrap().key_id("test").unwrap().valid_principal("localhost").unwrap();
        let certificate = builder.sign(&ca).unwrap();
        let config = Config { keys: vec![key.clone()], certificates: vec![certificate], ..Config::default() };
        let config = Arc::new(config);
        let sent = Arc::new(AtomicBool::new(false));
        let server = Nobody(Arc::clone(&sent));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(session) = run_stream(config, stream, server).await {
                let _ = session.await;
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known_hosts");
        let line = ca.public_key().to_openssh().unwrap();
        std::fs::write(&file, format!("@cert-authority * {line}\n")).unwrap();
        let target = Target {
            identities: vec!["/no/such/key".into()],
            known_hosts: vec![file],
            connect_timeout: Duration::from_secs(20),
            auth_agent: false,
            ..Target::new("gpu-a".into(), "localhost", port, "li")
        };
        let binary = AgentBinary::of_current_exe().unwrap();
        let error = open_agent(&target, &binary, |_| ()).await.map(|_| ()).unwrap_err();
        if good {
            // a host's certificate gets as far as the login
            assert!(
                !matches!(
                    error,
                    AgentError::Ssh(SshError::HostKey(
                        TrustError::BadCertificate { .. } | TrustError::UnknownKey { .. }
                    ))
                ),
                "{error}"
            );
            assert!(sent.load(Ordering::SeqCst));
            serving.abort();
            continue;
        }
        let AgentError::Ssh(SshError::HostKey(TrustError::BadCertificate { fault, .. })) = &error else {
            panic!("{error}")
        };
        assert_eq!(*fault, CertificateFault::UserType);
        serving.await.unwrap();
        assert!(!sent.load(Ordering::SeqCst), "a credential was sent");
    }
}
