//! An authenticated connection: russh's settings, and the steps in their order, each with a deadline. Knows
//! nothing of what runs over it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use russh::client::{Config, Handle, Msg};
use russh::{Channel, ChannelStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::auth;
use super::channel;
use super::client::{Client, End, Policy, Shared, Stage, why};
use super::connection::{KEEPALIVE, KEEPALIVE_MISSED, Transport};
use super::duplex::{Arrived, Cancellable};
use super::error::SshError;
use super::hops::Carrier;
use super::host_key_policy;
use super::known;
use super::limiter;
use super::prompter::Busy;
use super::proxy::ProxyStderr;
use super::raw_connection::{self, RawConnection};
use super::streams::{AgentReader, AgentWriter};
use super::target::Target;
use crate::domain::text::sanitize;
use crate::ssh::trust::{HostKey, HostName, KnownHosts, TrustError};

/// How much the host may send before we grant more: a link of 20 ms is used in full. What is under way can't be
/// overtaken, so how much of it there is of logs is bounded by credit of our own, by the round trip.
const WINDOW: u32 = 16 << 20;
/// Packets that are read before the channel's reader takes them.
const PACKETS: usize = 64;
const PACKET: u32 = 32 * 1024;

/// An authenticated connection. It ends when the last clone of `handle` is gone.
pub(super) struct Session {
    target: Target,
    handle: Arc<Handle<Client>>,
    end: End,
    pulse: Pulse,
    /// What sshd printed before authentication, sanitised.
    banner: String,
    /// What let us in.
    login: String,
}

/// How often a host is connected to anew because a person was asked meanwhile.
const MOST_ATTEMPTS: usize = 5;
/// What a person is told who was asked for too long.
const CUT: &str = "the host ended the connection while the question was open (LoginGraceTime of its sshd)";

/// Connects, checks the host's key, and then, not before, authenticates. Asks a person where that is needed; no
/// connection waits for a decision about a host key.
pub(super) async fn connect(target: &Target) -> Result<Session, SshError> {
    connect_noted(target, None).await
}

/// The same for a connection that others wait for; `note` says so where a person is asked first.
fn connect_for_others<'a>(
    target: &'a Target,
    note: &'a str,
) -> BoxFuture<'a, Result<Arc<dyn Carrier>, SshError>> {
    async move {
        let connected = connect_noted(target, Some(note.to_owned())).await;
        connected.map(|session| Arc::new(session) as Arc<dyn Carrier>)
    }
    .boxed()
}

async fn connect_noted(target: &Target, mut note: Option<String>) -> Result<Session, SshError> {
    target.check()?;
    let first = note.clone();
    for last in (0..MOST_ATTEMPTS).rev() {
        let mut attempt = Attempt { busy: Busy::default(), shown: None };
        let error = match attempt.connect(target, note.take()).await {
            Ok(session) => return Ok(session),
            Err(error) if last == 0 => return Err(error),
            Err(error) => error,
        };
        match (&error, &attempt.shown) {
            (
                SshError::HostKey(TrustError::UnknownKey { .. } | TrustError::OtherKeyType { .. }),
                Some(key),
            ) => {
                if !host_key_policy::accept_unknown(target, key).await? {
                    return Err(error);
                }
                note.clone_from(&first);
            }
            _ if attempt.busy.ever() && !error.is_refusal() => note = Some(CUT.to_owned()),
            _ => return Err(error),
        }
    }
    Err(SshError::Lost { host: target.host.clone(), detail: CUT.to_owned() })
}

/// One connection.
struct Attempt {
    /// Whether a person is asked.
    busy: Busy,
    /// The key that the host showed.
    shown: Option<HostKey>,
}

impl Attempt {
    async fn connect(&mut self, target: &Target, note: Option<String>) -> Result<Session, SshError> {
        let _place = limiter::enter(&target.endpoint()).await;
        let known = known::read(&target.known_hosts).await?;
        let config = config(&known, target, true);
        let opened = Opened::new(target, Policy::Check(known)).await?;
        let limit = target.patience();
        let Opened { stream, client, found, end, token, stderr } = opened;
        let pulse = Pulse::new(stream.arrived());
        // Ends russh's task if this function is left early, for whatever reason.
        let unfinished = token.drop_guard();
        let started = async {
            let mut handle = match russh::client::connect_stream(config, stream, client).await {
                Ok(handle) => handle,
                Err(error) => match found.refusal() {
                    Some(refusal) => return Err(refusal.into()),
                    None => return Err(with_words(handshake_error(target, &error), &stderr).await),
                },
            };
            found.set_stage(Stage::Authentication);
            let login = auth::authenticate(&mut handle, &end, target, &self.busy, note).await?;
            Ok((handle, login))
        };
        let started = self.busy.timeout(limit, started).await;
        self.shown = found.key();
        let (handle, login) = match started {
            Some(started) => started?,
            None => return Err(too_slow(target, found.stage(), limit)),
        };
        unfinished.disarm();
        let banner = found.banner();
        Ok(Session { target: target.clone(), handle: Arc::new(handle), end, pulse, banner, login })
    }
}

/// Asks a host for its key; sends no credential.
pub async fn scan(target: &Target) -> Result<HostKey, SshError> {
    target.check()?;
    let _place = limiter::enter(&target.endpoint()).await;
    let known = known::read(&target.known_hosts).await?;
    let config = config(&known, target, false);
    let Opened { stream, client, found, token, stderr, .. } = Opened::new(target, Policy::Scan).await?;
    let _unfinished = token.drop_guard();
    let limit = target.patience();
    let Ok(ended) = timeout(limit, russh::client::connect_stream(config, stream, client)).await else {
        return Err(too_slow(target, found.stage(), limit));
    };
    match (found.key(), ended) {
        (Some(key), _) => Ok(key),
        (None, Err(error)) => Err(with_words(handshake_error(target, &error), &stderr).await),
        (None, Ok(_)) => Err(handshake_error(target, &russh::Error::Inconsistent)),
    }
}

impl Transport for Session {
    fn exec<'a>(
        &'a self,
        line: &'a str,
        _marker: &'a str,
    ) -> BoxFuture<'a, Result<(AgentReader, AgentWriter), SshError>> {
        async move {
            let channel = self.open_channel().await?;
            let started = channel::start(&self.handle, self.end.clone(), channel, line).await;
            let host = || self.target.host.clone();
            started.map_err(|error| SshError::Lost { host: host(), detail: error.to_string() })
        }
        .boxed()
    }

    fn shown(&self) -> String {
        self.banner.clone()
    }

    fn login(&self) -> String {
        self.login.clone()
    }

    /// sshd counts a closed session until it has gone round once more.
    fn settled(&self) -> BoxFuture<'_, ()> {
        async {
            // A ping that is not answered means a lost link, which the next step will meet.
            let _ = self.handle.send_ping().await;
        }
        .boxed()
    }
}

impl Carrier for Session {
    fn open_stream<'a>(
        &'a self,
        address: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<ChannelStream<Msg>, russh::Error>> {
        async move {
            let opened = self.handle.channel_open_direct_tcpip(address, port.into(), "127.0.0.1", 0).await;
            opened.map(Channel::into_stream)
        }
        .boxed()
    }

    fn is_closed(&self) -> bool {
        self.pulse.is_silent() || self.handle.is_closed()
    }

    fn answers(&self, patience: Duration) -> BoxFuture<'_, bool> {
        async move {
            self.pulse.wait(patience, self.handle.send_ping()).await;
            !self.is_closed()
        }
        .boxed()
    }
}

impl Session {
    /// Opens a session channel.
    async fn open_channel(&self) -> Result<Channel<Msg>, SshError> {
        let target = &self.target;
        let limit = target.patience();
        match timeout(limit, self.handle.channel_open_session()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(reason))) => Err(SshError::NoSession {
                host: target.host.clone(),
                detail: reason.description().to_owned(),
            }),
            Ok(Err(error)) => Err(self.lost(&error.to_string()).await),
            Err(_) => Err(SshError::TimedOut {
                host: target.host.clone(),
                at: target.endpoint(),
                what: "did not open a session",
                after: limit,
                remedy: "check the host's load and its sshd's log",
            }),
        }
    }

    async fn lost(&self, detail: &str) -> SshError {
        SshError::Lost {
            host: self.target.host.clone(),
            detail: why(self.end.clone()).await.map_or_else(|| detail.to_owned(), |why| why.to_string()),
        }
    }
}

/// Whether a host lives, by whatever comes from it: on a connection that is in full use its answer to a question may come late.
struct Pulse {
    arrived: Arrived,
    /// One more than what had come when the host was asked last and did not answer; 0 where it always has.
    silent_at: AtomicU64,
}

impl Pulse {
    fn new(arrived: Arrived) -> Self {
        Self { arrived, silent_at: AtomicU64::new(0) }
    }

    /// Waits for an answer, or anything else that comes meanwhile.
    async fn wait(&self, patience: Duration, answer: impl Future) {
        let before = self.arrived.bytes();
        if timeout(patience, answer).await.is_err() {
            // one who asked earlier may find it later
            self.silent_at.fetch_max(before + 1, Ordering::Relaxed);
        }
    }

    /// Whether nothing came when the host was asked last, and nothing since.
    fn is_silent(&self) -> bool {
        self.silent_at.load(Ordering::Relaxed) == self.arrived.bytes() + 1
    }
}

/// Host keys in the order in which the files know them; certificates first where an authority is known.
fn config(known: &KnownHosts, target: &Target, certificates: bool) -> Arc<Config> {
    let name = HostName::of(&target.server());
    let pinned = target.fingerprint.as_deref().and_then(|pin| known.kind_of(&name, pin));
    let authority = certificates && known.has_authority(&name);
    Arc::new(Config {
        client_id: russh::SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-hvtui_",
            env!("CARGO_PKG_VERSION")
        ))),
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        channel_buffer_size: PACKETS,
        preferred: target.algorithms.preferred(&known.kinds(&name), pinned.as_ref(), authority),
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVE_MISSED,
        nodelay: true,
        ..Config::default()
    })
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
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            let theirs = sanitize(&theirs.join(",")).into_owned();
            let detail = match target.algorithms.said_of(kind) {
                Some(said) => {
                    format!("it has no algorithm of {said}; it offers {theirs}: change the line or its sshd")
                }
                None => format!("no common {kind:?} algorithm; it offers {theirs}: update its sshd"),
            };
            SshError::Handshake { host, at, detail }
        }
        error => SshError::Handshake { host, at, detail: error.to_string() },
    }
}

/// An error with what a proxy command has to say of it.
async fn with_words(error: SshError, stderr: &ProxyStderr) -> SshError {
    let Some(words) = stderr.words().await else { return error };
    match error {
        SshError::Network { host, at, detail } => {
            SshError::Network { host, at, detail: format!("{detail}; its proxy command says: {words}") }
        }
        error => error,
    }
}

/// A connection to the host and what is needed to speak ssh over it.
struct Opened {
    stream: Cancellable,
    client: Client,
    found: Shared,
    end: End,
    token: CancellationToken,
    stderr: ProxyStderr,
}

impl Opened {
    async fn new(target: &Target, policy: Policy) -> Result<Self, SshError> {
        let RawConnection { stream, carrier, stderr } =
            raw_connection::open(target, connect_for_others).await?;
        let token = CancellationToken::new();
        let (client, found, end) = Client::new(target, policy);
        let stream = Cancellable::new(stream, carrier, token.clone());
        Ok(Self { stream, client, found, end, token, stderr })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn whatever_comes_from_a_host_is_an_answer() {
        let (mut host, here) = duplex(64);
        let mut stream = Cancellable::new(Box::new(here), None, CancellationToken::new());
        let pulse = Pulse::new(stream.arrived());
        let patience = Duration::from_millis(50);
        pulse.wait(Duration::from_secs(60), ready(())).await;
        assert!(!pulse.is_silent());
        let busy = async {
            host.write_all(b"data").await.unwrap();
            stream.read_u32().await.unwrap();
            pending::<()>().await;
        };
        pulse.wait(patience, busy).await;
        assert!(!pulse.is_silent(), "it has other things to say");
        pulse.wait(patience, pending::<()>()).await;
        assert!(pulse.is_silent());
        host.write_all(b"late").await.unwrap();
        stream.read_u32().await.unwrap();
        assert!(!pulse.is_silent(), "late is not never");
        let newer = async {
            host.write_all(b"more").await.unwrap();
            stream.read_u32().await.unwrap();
            pulse.wait(patience, pending::<()>()).await;
            pending::<()>().await;
        };
        pulse.wait(8 * patience, newer).await;
        assert!(pulse.is_silent(), "what was asked earlier and ends later undoes nothing");
    }

    #[test]
    fn a_host_that_is_silent_for_twenty_seconds_is_gone() {
        let config = config(&KnownHosts::default(), &Target::new("a".into(), "b", 22, "li"), false);
        let (every, missed) = (config.keepalive_interval.unwrap(), config.keepalive_max);
        assert_eq!(every * (u32::try_from(missed).unwrap() + 1), Duration::from_secs(20));
    }
}
