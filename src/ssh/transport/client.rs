//! What russh asks us: whether a host key is right, and what becomes of channels that the host opens. Lives in
//! russh's task; tells the outside what it found and why the connection ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::Channel;
use russh::client::{DisconnectReason, Handler, Msg, Session as Wire};
use russh::keys::{Certificate, PublicKeyOrCertificate};
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::{KEEPALIVE, KEEPALIVE_MISSED};
use super::prompter::Prompter;
use super::report::{BANNER_BYTES, Text};
use super::target::Target;
use crate::clock;
use crate::domain::text::sanitize;
use crate::ssh::trust::{
    CertificateVerdict, HostKey, HostName, KnownHosts, Server, TrustError, Verdict, judge_certificate,
    key_of, refusal,
};

/// Why a connection ended; `None` while it lasts.
pub(super) type End = watch::Receiver<Option<Arc<str>>>;

/// Why the connection ended; `None` if it has not within a moment.
pub(super) async fn why(mut end: End) -> Option<Arc<str>> {
    let ended = timeout(Duration::from_secs(2), end.wait_for(Option::is_some)).await;
    ended.ok().and_then(|value| value.ok().and_then(|value| value.clone()))
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Handshake,
    Authentication,
}

/// What is done with the host's key.
pub(super) enum Policy {
    Check(KnownHosts),
    Scan,
}

/// What russh's task found out.
#[derive(Default)]
struct Found {
    key: Option<HostKey>,
    refusal: Option<TrustError>,
    banner: Text,
    authenticating: bool,
}

#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Found>>);

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Found) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn key(&self) -> Option<HostKey> {
        self.with(|found| found.key.clone())
    }

    pub(super) fn refusal(&self) -> Option<TrustError> {
        self.with(|found| found.refusal.take())
    }

    pub(super) fn banner(&self) -> String {
        self.with(|found| found.banner.clean())
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.with(|found| found.authenticating = matches!(stage, Stage::Authentication));
    }

    pub(super) fn stage(&self) -> Stage {
        if self.with(|found| found.authenticating) { Stage::Authentication } else { Stage::Handshake }
    }
}

/// Our side of russh's callbacks. Lives in russh's task.
pub(super) struct Client {
    server: Server,
    prompter: Prompter,
    policy: Policy,
    found: Shared,
    ended: watch::Sender<Option<Arc<str>>>,
}

impl Client {
    /// A client, what it will have found out, and how its connection ended.
    pub(super) fn new(target: &Target, policy: Policy) -> (Self, Shared, End) {
        let found = Shared::default();
        let (ended, end) = watch::channel(None);
        (
            Self {
                server: target.server(),
                prompter: target.prompter.clone(),
                policy,
                found: found.clone(),
                ended,
            },
            found,
            end,
        )
    }

    fn refuse(&self, known: &KnownHosts, key: &HostKey) -> Option<TrustError> {
        let name = HostName::of(&self.server);
        let verdict = known.judge(&name, key);
        let is_new = matches!(verdict, Verdict::Unknown { .. } | Verdict::OtherType { .. });
        if is_new && self.prompter.is_pinned(&name, key) {
            return refusal(&self.server, key, Verdict::Known);
        }
        refusal(&self.server, key, verdict)
    }

    /// Like OpenSSH: a certificate that does not do leaves its key, which may be known by itself.
    fn refuse_certificate(&self, known: &KnownHosts, certificate: &Certificate) -> Option<TrustError> {
        let key = key_of(certificate);
        let now = u64::try_from(clock::now().0 / 1_000_000).unwrap_or_default();
        match judge_certificate(known, &self.server, certificate, now) {
            CertificateVerdict::Trusted => refusal(&self.server, &key, Verdict::Known),
            CertificateVerdict::Revoked(place) => refusal(&self.server, &key, Verdict::Revoked { place }),
            CertificateVerdict::NoAuthority => self.refuse(known, &key),
            CertificateVerdict::Bad(authority, fault) => match self.refuse(known, &key)? {
                TrustError::UnknownKey { host, key, .. } => {
                    Some(TrustError::BadCertificate { host, key, authority, fault })
                }
                error => Some(error),
            },
        }
    }

    fn note_end(&self, why: &str) {
        self.ended.send_if_modified(|end| {
            let first = end.is_none();
            if first {
                *end = Some(Arc::from(why));
            }
            first
        });
    }
}

// If russh's task panics, this is all that is left to say so.
impl Drop for Client {
    fn drop(&mut self) {
        self.note_end("the ssh connection ended without a reason");
    }
}

/// Channels that the host opens are never wanted: dropping the reply rejects them.
macro_rules! reject {
    ($($name:ident ( $($argument:ident : $kind:ty),* );)*) => {$(
        async fn $name(
            &mut self,
            _channel: Channel<Msg>,
            $($argument: $kind,)*
            _reply: russh::client::ChannelOpenHandle,
            _session: &mut Wire,
        ) -> Result<(), russh::Error> {
            Ok(())
        }
    )*};
}

impl Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let (key, certificate) = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => (HostKey::new(key.clone()), None),
            PublicKeyOrCertificate::Certificate(certificate) => (key_of(certificate), Some(certificate)),
        };
        self.found.with(|found| found.key = Some(key.clone()));
        let refusal = match (&self.policy, certificate) {
            (Policy::Check(known), None) => self.refuse(known, &key),
            (Policy::Check(known), Some(certificate)) => self.refuse_certificate(known, certificate),
            (Policy::Scan, _) => return Ok(false),
        };
        let accepted = refusal.is_none();
        self.found.with(|found| found.refusal = refusal);
        Ok(accepted)
    }

    async fn auth_banner(&mut self, banner: &str, _session: &mut Wire) -> Result<(), russh::Error> {
        self.found.with(|found| found.banner.push(banner.as_bytes(), BANNER_BYTES));
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<russh::Error>) -> Result<(), russh::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let message = sanitize(&info.message).into_owned();
                self.note_end(&format!("the host ended the connection: {message}"));
                Ok(())
            }
            DisconnectReason::Error(error) => {
                self.note_end(&describe(&error));
                Err(error)
            }
        }
    }

    reject! {
        server_channel_open_forwarded_tcpip(_to: &str, _to_port: u32, _from: &str, _from_port: u32);
        server_channel_open_forwarded_streamlocal(_path: &str);
        server_channel_open_agent_forward();
        server_channel_open_unknown();
        server_channel_open_session();
        server_channel_open_direct_tcpip(_to: &str, _to_port: u32, _from: &str, _from_port: u32);
        server_channel_open_direct_streamlocal(_path: &str);
        server_channel_open_x11(_from: &str, _from_port: u32);
    }
}

fn describe(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => {
            let silence = KEEPALIVE * (KEEPALIVE_MISSED as u32 + 1);
            format!("no answer for {} s", silence.as_secs())
        }
        russh::Error::HUP | russh::Error::Disconnect => "the connection was closed".to_owned(),
        russh::Error::IO(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the connection was closed".to_owned()
        }
        russh::Error::IO(error) => error.to_string(),
        russh::Error::PacketAuth | russh::Error::DecryptionError => "data was damaged on the way".to_owned(),
        error => error.to_string(),
    }
}
