//! An authenticated connection: russh's settings, the host key's check before anything secret is sent, and
//! why the connection ended. Knows nothing of what runs over it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::client::{Config, DisconnectReason, Handle, Handler, Msg, Session as Wire};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PublicKeyOrCertificate};
use russh::{Channel, Preferred, cipher, compression};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::auth;
use super::error::SshError;
use super::host_key::HostKey;
use super::known_hosts::{HostName, KnownHosts, Verdict};
use super::report::{BANNER_BYTES, Text};
use super::target::Target;
use super::tcp;

/// Interval of keepalives; a peer that is silent for four of them is gone.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_MISSED: usize = 3;
/// How much the host may send before we grant more: 16 MiB keep a 20 ms link busy.
const WINDOW: u32 = 16 << 20;
const PACKET: u32 = 32 * 1024;

const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// Host key types, best first; RSA signed by SHA-1 is not among them.
const HOST_KEYS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

/// Why a connection ended; `None` while it lasts.
pub(super) type End = watch::Receiver<Option<Arc<str>>>;

/// An authenticated connection. It ends when the last clone of `handle` is gone.
pub(super) struct Session {
    pub(super) handle: Arc<Handle<Client>>,
    pub(super) end: End,
    /// What sshd printed before authentication, sanitised.
    pub(super) banner: String,
}

/// Connects, checks the host's key, and then, not before, authenticates.
pub(super) async fn connect(target: &Target) -> Result<Session, SshError> {
    target.check()?;
    let known = KnownHosts::read(&target.known_hosts)?;
    let name = HostName::of(target);
    let config = config(&known.kinds(&name));
    let opened = Opened::new(target, Policy::Check(known)).await?;
    let limit = target.patience();
    let Opened { stream, client, found, end, token } = opened;
    // Ends russh's task if this function is left early, for whatever reason.
    let unfinished = token.drop_guard();
    let started = async {
        let mut handle = match russh::client::connect_stream(config, stream, client).await {
            Ok(handle) => handle,
            Err(error) => return Err(found.refusal().unwrap_or_else(|| handshake_error(target, &error))),
        };
        found.set_stage(Stage::Authentication);
        auth::authenticate(&mut handle, &end, target).await?;
        Ok(handle)
    };
    let handle = match timeout(limit, started).await {
        Ok(handle) => handle?,
        Err(_) => return Err(too_slow(target, found.stage(), limit)),
    };
    unfinished.disarm();
    let banner = found.banner();
    Ok(Session { handle: Arc::new(handle), end, banner })
}

/// Asks a host for its key; sends no credential.
pub async fn scan(target: &Target) -> Result<HostKey, SshError> {
    target.check()?;
    let known = KnownHosts::read(&target.known_hosts)?;
    let config = config(&known.kinds(&HostName::of(target)));
    let Opened { stream, client, found, token, .. } = Opened::new(target, Policy::Scan).await?;
    let _unfinished = token.drop_guard();
    let limit = target.patience();
    let Ok(ended) = timeout(limit, russh::client::connect_stream(config, stream, client)).await else {
        return Err(too_slow(target, found.stage(), limit));
    };
    match (found.key(), ended) {
        (Some(key), _) => Ok(key),
        (None, Err(error)) => Err(handshake_error(target, &error)),
        (None, Ok(_)) => Err(handshake_error(target, &russh::Error::Inconsistent)),
    }
}

impl Session {
    /// Opens a session channel.
    pub(super) async fn open_channel(&self, target: &Target) -> Result<Channel<Msg>, SshError> {
        use super::error::DeployError;
        let limit = target.patience();
        match timeout(limit, self.handle.channel_open_session()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(reason))) => Err(SshError::Deploy {
                host: target.host.clone(),
                problem: DeployError::NoSession(reason.description().to_owned()),
            }),
            Ok(Err(error)) => Err(self.lost(target, &error.to_string()).await),
            Err(_) => Err(SshError::TimedOut {
                host: target.host.clone(),
                at: target.endpoint(),
                what: "did not open a session",
                after: limit,
                remedy: "check the host's load and its sshd's log",
            }),
        }
    }

    async fn lost(&self, target: &Target, detail: &str) -> SshError {
        SshError::Lost {
            host: target.host.clone(),
            detail: why(self.end.clone()).await.map_or_else(|| detail.to_owned(), |why| why.to_string()),
        }
    }
}

/// Why the connection ended; `None` if it has not within a moment.
pub(super) async fn why(mut end: End) -> Option<Arc<str>> {
    let ended = timeout(Duration::from_secs(2), end.wait_for(Option::is_some)).await;
    ended.ok().and_then(|value| value.ok().and_then(|value| value.clone()))
}

fn config(known: &[Algorithm]) -> Arc<Config> {
    let rank = |kind: &Algorithm| !known.iter().any(|known| same_family(known, kind));
    let mut keys = HOST_KEYS.to_vec();
    keys.sort_by_key(rank);
    Arc::new(Config {
        client_id: russh::SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-hvtui_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        preferred: Preferred {
            key: Cow::Owned(keys),
            cipher: Cow::Borrowed(CIPHERS),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVE_MISSED,
        nodelay: true,
        ..Config::default()
    })
}

fn same_family(one: &Algorithm, other: &Algorithm) -> bool {
    one == other || matches!((one, other), (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }))
}

fn too_slow(target: &Target, stage: Stage, after: Duration) -> SshError {
    let (what, remedy) = match stage {
        Stage::Handshake => {
            ("accepted the connection but did not finish the ssh handshake", "check that it is an sshd")
        }
        Stage::Authentication => {
            ("did not finish authentication", "check the host's load and its sshd's log")
        }
    };
    SshError::TimedOut { host: target.host.clone(), at: target.endpoint(), what, after, remedy }
}

fn handshake_error(target: &Target, error: &russh::Error) -> SshError {
    let (host, at) = (target.host.clone(), target.endpoint());
    match error {
        russh::Error::IO(_) | russh::Error::HUP | russh::Error::Disconnect => SshError::Network {
            host,
            at,
            detail:
                "it hung up during the ssh handshake: too many connections at once (MaxStartups), a deny \
                     rule, or no sshd"
                    .to_owned(),
        },
        russh::Error::NoCommonAlgo { kind, theirs, .. } => SshError::Handshake {
            host,
            at,
            detail: format!(
                "no common {kind:?} algorithm; it offers {}: update its sshd",
                crate::domain::text::sanitize(&theirs.join(","))
            ),
        },
        error => SshError::Handshake { host, at, detail: error.to_string() },
    }
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Handshake,
    Authentication,
}

/// What is done with the host's key.
enum Policy {
    Check(KnownHosts),
    Scan,
}

/// What russh's task found out.
#[derive(Default)]
struct Found {
    key: Option<HostKey>,
    refusal: Option<SshError>,
    banner: Text,
    authenticating: bool,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Found>>);

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Found) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn key(&self) -> Option<HostKey> {
        self.with(|found| found.key.clone())
    }

    fn refusal(&self) -> Option<SshError> {
        self.with(|found| found.refusal.take())
    }

    fn banner(&self) -> String {
        self.with(|found| found.banner.clean())
    }

    fn set_stage(&self, stage: Stage) {
        self.with(|found| found.authenticating = matches!(stage, Stage::Authentication));
    }

    fn stage(&self) -> Stage {
        if self.with(|found| found.authenticating) { Stage::Authentication } else { Stage::Handshake }
    }
}

/// A TCP connection and what is needed to speak ssh over it.
struct Opened {
    stream: tcp::Cancellable,
    client: Client,
    found: Shared,
    end: End,
    token: CancellationToken,
}

impl Opened {
    async fn new(target: &Target, policy: Policy) -> Result<Self, SshError> {
        let stream = tcp::connect(target).await?;
        let token = CancellationToken::new();
        let found = Shared::default();
        let (ended, end) = watch::channel(None);
        let client = Client { target: target.clone(), policy, found: found.clone(), ended };
        Ok(Self { stream: tcp::Cancellable::new(stream, token.clone()), client, found, end, token })
    }
}

/// Our side of russh's callbacks. Lives in russh's task.
pub(super) struct Client {
    target: Target,
    policy: Policy,
    found: Shared,
    ended: watch::Sender<Option<Arc<str>>>,
}

impl Client {
    fn refuse(&self, known: &KnownHosts, key: &HostKey) -> Option<SshError> {
        let verdict = known.judge(&HostName::of(&self.target), key);
        refusal(&self.target, key, verdict)
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

/// The error for a key that must not be accepted.
pub(super) fn refusal(target: &Target, key: &HostKey, verdict: Verdict) -> Option<SshError> {
    let (host, at) = (target.host.clone(), target.endpoint());
    let (algorithm, fingerprint) = (key.algorithm(), key.fingerprint());
    let pinned = target.fingerprint.as_deref();
    Some(match verdict {
        Verdict::Revoked { place } => SshError::RevokedKey { host, at, fingerprint, place },
        Verdict::Changed { known } => SshError::ChangedKey { host, at, algorithm, fingerprint, known },
        _ if pinned.is_some_and(|pin| pin != fingerprint) => SshError::OtherFingerprint {
            host,
            at,
            algorithm,
            fingerprint,
            wanted: pinned.unwrap_or_default().to_owned(),
        },
        Verdict::Known => return None,
        _ if pinned.is_some() => return None,
        Verdict::OtherType { known } => SshError::OtherKeyType { host, at, algorithm, fingerprint, known },
        Verdict::Unknown { also, authority } => {
            SshError::UnknownKey { host, at, algorithm, fingerprint, also, authority }
        }
    })
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
        // Certificates are never asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let key = HostKey::new(key.clone());
        let refusal = match &self.policy {
            Policy::Check(known) => self.refuse(known, &key),
            Policy::Scan => {
                self.found.with(|found| found.key = Some(key));
                return Ok(false);
            }
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
                let message = crate::domain::text::sanitize(&info.message).into_owned();
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
