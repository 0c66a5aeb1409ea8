//! The ssh layer against a server that means harm: made of russh's server half, which can do what OpenSSH does not.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hvtui::ssh::{AgentBinary, AgentError, HostKey, SshError, Target, open_agent};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handle, Handler, Msg, Session, run_stream};
use russh::{Channel, ChannelId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Answers a client's first command.
type Act = Arc<dyn Fn(Handle, ChannelId, String) + Send + Sync>;

#[derive(Clone)]
struct Hostile {
    act: Act,
}

impl Handler for Hostile {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: russh::server::VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)?;
        let line = String::from_utf8_lossy(data);
        let nonce = line.split("n=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        (self.act)(session.handle(), channel, format!("\u{1}HVT1 {nonce}\n"));
        Ok(())
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.data(channel, data.to_vec())
    }
}

/// Starts the server and returns a target that trusts and may enter it.
async fn start(folder: &Path, act: Act) -> Target {
    let new_key = || PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
    let (host_key, user_key) = (new_key(), new_key());
    let identity = folder.join("user");
    std::fs::write(&identity, user_key.to_openssh(LineEnding::LF).unwrap()).unwrap();
    std::fs::set_permissions(&identity, PermissionsExt::from_mode(0o600)).unwrap();
    let public = HostKey::from_openssh(&host_key.public_key().to_openssh().unwrap()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(Config { keys: vec![host_key], ..Config::default() });
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (config, hostile) = (config.clone(), Hostile { act: act.clone() });
            tokio::spawn(async move {
                if let Ok(session) = run_stream(config, stream, hostile).await {
                    let _ = session.await;
                }
            });
        }
    });
    Target {
        identities: vec![identity],
        known_hosts: vec![folder.join("none")],
        fingerprint: Some(public.fingerprint()),
        connect_timeout: Duration::from_secs(20),
        auth_agent: false,
        ..Target::new("gpu-a".into(), "127.0.0.1", port, "li")
    }
}

async fn say(handle: &Handle, channel: ChannelId, text: String) {
    handle.data(channel, text.into_bytes()).await.unwrap();
}

#[tokio::test]
async fn vector_10_every_channel_that_a_host_opens_is_rejected_and_the_link_lives() {
    let folder = tempfile::tempdir().unwrap();
    let (report, mut reports) = mpsc::channel(16);
    let act: Act = Arc::new(move |handle, channel, marker| {
        let report = report.clone();
        tokio::spawn(async move {
            let opened = [
                ("agent", handle.channel_open_agent().await.is_ok()),
                ("session", handle.channel_open_session().await.is_ok()),
                ("x11", handle.channel_open_x11("a", 1).await.is_ok()),
                ("direct-tcpip", handle.channel_open_direct_tcpip("a", 1, "b", 2).await.is_ok()),
                ("direct-streamlocal", handle.channel_open_direct_streamlocal("/a").await.is_ok()),
                ("forwarded-tcpip", handle.channel_open_forwarded_tcpip("a", 1, "b", 2).await.is_ok()),
                ("forwarded-streamlocal", handle.channel_open_forwarded_streamlocal("/a").await.is_ok()),
            ];
            for (kind, opened) in opened {
                report.send(format!("{kind} {opened}")).await.unwrap();
            }
            say(&handle, channel, format!("{marker}os=Linux x\nrun=/agent\n{marker}")).await;
        });
    });
    let target = start(folder.path(), act).await;
    let binary = AgentBinary::of_current_exe().unwrap();
    let mut stream = open_agent(&target, &binary, |_| ()).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(line) = reports.try_recv() {
        seen.push(line);
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.iter().all(|line| line.ends_with("false")), "{seen:?}");
    stream.write_all(b"still here").await.unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"still here");
}

#[tokio::test]
async fn a_host_that_lies_about_itself_is_an_error_in_plain_text() {
    let answers: [fn(&str) -> String; 4] = [
        |marker| format!("{marker}os=\u{1b}]0;x\u{7} {}\nabsent\n", "y".repeat(5000)),
        |marker| format!("{marker}{}", "z".repeat(40_000)),
        |marker| format!("{marker}os=Linux x\nrun=\u{1b}[2J\n"),
        |marker| marker.replace('1', "2").repeat(10),
    ];
    for answer in answers {
        let folder = tempfile::tempdir().unwrap();
        let act: Act = Arc::new(move |handle, channel, marker| {
            let text = answer(&marker);
            tokio::spawn(async move {
                say(&handle, channel, text).await;
                handle.exit_status_request(channel, 0).await.unwrap();
                handle.close(channel).await.unwrap();
            });
        });
        let target = start(folder.path(), act).await;
        let binary = AgentBinary::of_current_exe().unwrap();
        let error = open_agent(&target, &binary, |_| ()).await.map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, AgentError::Deploy { .. } | AgentError::Ssh(SshError::TimedOut { .. })),
            "{text}"
        );
        assert!(!text.contains('\u{1b}') && text.len() < 8000, "{text}");
    }
}
