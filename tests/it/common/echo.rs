//! A stand-in for the agent that echoes, and the way to it on a test's sshd: what the suites of the ssh layer share.

use std::process::Command;
use std::time::Duration;

use hvtui::ssh::{AgentBinary, AgentError, AgentStream, Target, open_agent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::in_time::OutputInTime;
use super::sshd::Sshd;

/// A program that says the agent's first word and then echoes, so that the stream can be checked byte by byte.
pub(crate) const AGENT: &str = "#!/bin/sh\n[ \"$1 $2 $3\" = \"agent --stdio --nonce\" ] || exit 64\n\
                                printf '\\001HVT1 %s\\n' \"$4\"\nexec cat\n";

/// The account that runs the tests.
pub(crate) fn user() -> String {
    let output = Command::new("id").arg("-un").output_in_time().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The line of known hosts for each key that the server has.
pub(crate) fn known_lines(sshd: &Sshd) -> String {
    let kinds = ["ed25519", "ecdsa", "rsa"];
    let there = kinds.iter().filter(|kind| sshd.path(&format!("host_{kind}.pub")).exists());
    let line = |kind| format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.host_key(kind));
    there.map(|kind| line(kind)).collect::<Vec<_>>().concat()
}

/// A target that knows the server's keys and has the right user key.
pub(crate) fn target(sshd: &Sshd) -> Target {
    let known_hosts = sshd.path("known_hosts");
    std::fs::write(&known_hosts, known_lines(sshd)).unwrap();
    Target {
        identities: vec![sshd.path("user")],
        known_hosts: vec![known_hosts],
        connect_timeout: Duration::from_secs(20),
        auth_agent: false,
        ..Target::new("gpu-a".into(), "127.0.0.1", sshd.port, user())
    }
}

/// A program that is put on hosts as the agent.
pub(crate) fn agent(sshd: &Sshd, text: &str) -> AgentBinary {
    let path = sshd.path("agent");
    std::fs::write(&path, text).unwrap();
    AgentBinary::from_path(&path).unwrap()
}

pub(crate) async fn open(target: &Target, binary: &AgentBinary) -> Result<AgentStream, AgentError> {
    open_agent(target, binary, |_| ()).await
}

/// The error of a connection that must fail.
pub(crate) async fn refused(target: &Target, sshd: &Sshd) -> AgentError {
    open(target, &agent(sshd, AGENT)).await.map(|_| ()).unwrap_err()
}

/// More bytes than any queue holds come back as they were.
pub(crate) async fn assert_echoes(stream: &mut AgentStream) {
    let sent: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut got = vec![0; sent.len()];
    let (wrote, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut got));
    wrote.unwrap();
    read.unwrap();
    assert!(sent == got, "bytes differ");
}
