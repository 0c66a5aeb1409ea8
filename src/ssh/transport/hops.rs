//! Logins at jump hosts, shared: hosts behind the same one use the same connection, so that a person
//! is asked once for all hosts behind it.
//!
//! OpenSSH counts sessions (`MaxSessions`), not what is forwarded: of that a connection has as much as its server has
//! descriptors. A server that is short of them is logged in to once more.

use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use russh::client::Msg;
use russh::{ChannelOpenFailure, ChannelStream};
use tokio::runtime::Handle;
use tokio::sync::Mutex as Turn;
use tokio::time::{sleep, timeout};

use super::connection::KEEPALIVE;
use super::error::SshError;
use super::prompter::Prompter;
use super::target::{Route, Target};
use crate::domain::ids::HostId;

/// How long a login outlives the last link through it: a link that comes back must not ask again.
const LINGER: Duration = Duration::from_secs(60);
/// How many connections are tried for one stream, those found dead or full among them.
const MOST_TRIES: usize = 3;
/// What a person is told with the first question of a shared login.
const SHARED: &str = "the hosts behind it wait for this login and share it";

/// A login at a jump host, as streams through it need it.
pub(super) trait Carrier: Send + Sync {
    /// Opens a channel that goes on to another address, as seen from the host.
    fn open_stream<'a>(
        &'a self,
        address: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<ChannelStream<Msg>, russh::Error>>;

    /// Whether the connection has ended, or its host was found silent: then it is none for others as long as nothing comes, and
    /// ends with those who use it.
    fn is_closed(&self) -> bool;

    /// Asks the host for an answer of any kind; whether one came in time.
    fn answers(&self, patience: Duration) -> BoxFuture<'_, bool>;
}

/// Logs in at a jump host for those behind it; the text says so where a person is asked first. What speaks ssh there
/// stands above this file, because it needs the streams that come from here.
pub(super) type LogIn = for<'a> fn(&'a Target, &'a str) -> BoxFuture<'a, Result<Arc<dyn Carrier>, SshError>>;

/// The logins that one prompter has given answers for.
#[derive(Default)]
pub(super) struct Hops(Mutex<Vec<(Target, Arc<Slot>)>>);

/// One jump host. Only one task at a time logs in there.
#[derive(Default)]
struct Slot {
    turn: Turn<Vec<Weak<dyn Carrier>>>,
    /// How many logins failed, and how the last one did.
    failed: Mutex<(usize, Option<SshError>)>,
}

/// A share in a login.
pub(super) struct Lease(Option<Arc<dyn Carrier>>);

impl Drop for Lease {
    fn drop(&mut self) {
        // Without a runtime there is no connection either.
        if let (Some(session), Ok(runtime)) =
            (self.0.take().filter(|it| !it.is_closed()), Handle::try_current())
        {
            runtime.spawn(async move {
                sleep(LINGER).await;
                drop(session);
            });
        }
    }
}

/// A stream to `target` through `hop`, and the share in the login there that carries it.
pub(super) async fn open(
    target: &Target,
    hop: &Target,
    log_in: LogIn,
) -> Result<(ChannelStream<Msg>, Lease), SshError> {
    let slot = hop.prompter.kept::<Hops>().slot(hop);
    let (at, after) = (target.endpoint(), target.connect_timeout);
    let mut useless = Vec::new();
    loop {
        let session = slot.session(&target.host, hop, &useless, log_in).await?;
        let lease = Lease(Some(Arc::clone(&session)));
        let opening = session.open_stream(&target.address, target.port);
        let error = match timeout(after, opening).await {
            Ok(Ok(stream)) => return Ok((stream, lease)),
            Ok(Err(error)) => error,
            Err(_) => return Err(silent(target, hop, session.as_ref(), after).await),
        };
        let is_short =
            matches!(error, russh::Error::ChannelOpenFailure(ChannelOpenFailure::ResourceShortage));
        useless.push(session);
        if useless.len() == MOST_TRIES || !(is_short || is_lost(&error)) {
            let detail = format!("jump host {} {}", hop.shown(), refusal(&error));
            return Err(SshError::Network { host: target.host.clone(), at, detail });
        }
    }
}

/// Whose fault it is that a stream was not opened within `after`: a jump host that died is found out only by asking it.
async fn silent(target: &Target, hop: &Target, session: &dyn Carrier, after: Duration) -> SshError {
    let patience = after.min(KEEPALIVE);
    if session.answers(patience).await {
        return SshError::TimedOut {
            host: target.host.clone(),
            at: target.endpoint(),
            what: "was not reached by its jump host",
            after,
            remedy: "check that the host is up, and that the jump host can reach it",
        };
    }
    let error = SshError::TimedOut {
        host: hop.host.clone(),
        at: hop.endpoint(),
        what: "did not answer on the connection that was open",
        after: after + patience,
        remedy: "check that it is up, and the network on the way to it",
    };
    error.at_hop(&target.host, hop)
}

impl Hops {
    fn slot(&self, hop: &Target) -> Arc<Slot> {
        let key = identity(hop);
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = slots.iter().find(|(of, _)| *of == key).map(|(_, slot)| Arc::clone(slot));
        known.unwrap_or_else(|| {
            let slot = Arc::<Slot>::default();
            slots.push((key, Arc::clone(&slot)));
            slot
        })
    }
}

impl Slot {
    /// A connection that lives and is none of `useless`; a new one where there is none.
    async fn session(
        &self,
        host: &HostId,
        hop: &Target,
        useless: &[Arc<dyn Carrier>],
        log_in: LogIn,
    ) -> Result<Arc<dyn Carrier>, SshError> {
        let before = self.failed().0;
        let mut sessions = if let Ok(sessions) = self.turn.try_lock() {
            sessions
        } else {
            tracing::info!(%host, hop = hop.shown(), "waits for the login at the jump host");
            self.turn.lock().await
        };
        sessions.retain(|session| session.upgrade().is_some_and(|session| !session.is_closed()));
        let is_new = |session: &Arc<dyn Carrier>| !useless.iter().any(|other| Arc::ptr_eq(session, other));
        if let Some(session) = sessions.iter().filter_map(Weak::upgrade).find(is_new) {
            return Ok(session);
        }
        // The one before failed while we waited for it: the same question again would fail again.
        if let (after, Some(error)) = &*self.failed()
            && *after > before
            && let Some(error) = error.for_host(host)
        {
            return Err(error);
        }
        match log_in(hop, SHARED).await {
            Ok(session) => {
                sessions.push(Arc::downgrade(&session));
                Ok(session)
            }
            Err(error) => {
                let error = error.at_hop(host, hop);
                let mut failed = self.failed();
                *failed = (failed.0 + 1, error.for_host(host));
                Err(error)
            }
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, (usize, Option<SshError>)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that makes two ways to a jump host the same: not for whose sake it is gone, nor how patiently.
fn identity(hop: &Target) -> Target {
    // the table of an prompter must not hold the prompter
    static NO_PROMPTER: LazyLock<Prompter> = LazyLock::new(Prompter::default);
    let route = match &hop.route {
        Route::Jump(before) => Route::Jump(Box::new(identity(before))),
        route => route.clone(),
    };
    Target {
        host: "hop".into(),
        notes: Vec::new(),
        connect_timeout: Duration::ZERO,
        prompter: NO_PROMPTER.clone(),
        route,
        ..hop.clone()
    }
}

/// The connection is gone, which is found out only by using it.
fn is_lost(error: &russh::Error) -> bool {
    !matches!(error, russh::Error::ChannelOpenFailure(_))
}

fn refusal(error: &russh::Error) -> String {
    match error {
        russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited) => {
            "forbids going further: AllowTcpForwarding and PermitOpen in its sshd_config decide that"
                .to_owned()
        }
        russh::Error::ChannelOpenFailure(reason) => {
            format!("can't reach it ({}): check name and port as seen from there", reason.description())
        }
        error => format!("was lost: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use futures_util::FutureExt;

    use super::*;

    /// A login that lives and carries nothing.
    struct Open;

    impl Carrier for Open {
        fn open_stream<'a>(
            &'a self,
            _address: &'a str,
            _port: u16,
        ) -> BoxFuture<'a, Result<ChannelStream<Msg>, russh::Error>> {
            ready(Err(russh::Error::Disconnect)).boxed()
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn answers(&self, _patience: Duration) -> BoxFuture<'_, bool> {
            ready(true).boxed()
        }
    }

    fn log_in<'a>(_: &'a Target, _: &'a str) -> BoxFuture<'a, Result<Arc<dyn Carrier>, SshError>> {
        let session: Arc<dyn Carrier> = Arc::new(Open);
        ready(Ok(session)).boxed()
    }

    #[tokio::test]
    async fn a_login_serves_all_but_those_who_found_it_useless() {
        let (slot, host) = (Slot::default(), HostId::from("gpu-a"));
        let hop = Target::new(host.clone(), "bastion", 22, "li");
        let first = slot.session(&host, &hop, &[], log_in).await.unwrap();
        let shared = slot.session(&host, &hop, &[], log_in).await.unwrap();
        assert!(Arc::ptr_eq(&first, &shared));
        let other = slot.session(&host, &hop, &[shared], log_in).await.unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn a_login_is_shared_by_all_that_make_the_same_one() {
        let (prompter, other) = (Prompter::default(), Prompter::default());
        let hop = |user: &str, host: &str| Target {
            prompter: prompter.clone(),
            ..Target::new(host.into(), "bastion", 22, user)
        };
        let slot = |of: &Prompter, hop: &Target| of.kept::<Hops>().slot(hop);
        let same = |a: &Target, b: &Target| Arc::ptr_eq(&slot(&prompter, a), &slot(&prompter, b));
        assert!(same(&hop("li", "gpu-a"), &hop("li", "gpu-b")));
        assert!(!same(&hop("li", "gpu-a"), &hop("wang", "gpu-a")));
        let alias = Target { host_key_alias: Some("gate".into()), ..hop("li", "gpu-a") };
        assert!(!same(&hop("li", "gpu-a"), &alias));
        let behind = |user: &str, host: &str| Target {
            route: Route::Jump(Box::new(hop(user, host))),
            ..hop("li", host)
        };
        assert!(same(&behind("li", "gpu-a"), &behind("li", "gpu-b")));
        assert!(!same(&behind("li", "gpu-a"), &behind("wang", "gpu-b")));
        assert!(!same(&behind("li", "gpu-a"), &hop("li", "gpu-a")));
        assert!(!Arc::ptr_eq(&slot(&prompter, &alias), &slot(&other, &alias)));
    }
}
