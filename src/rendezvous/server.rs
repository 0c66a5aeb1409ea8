//! Serves the rendezvous over TCP: who may ask, how many at a time and for how long. Knows nothing of what the keys
//! mean.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::http::{Method, Parser, Request, Status, response};
use super::store::{Full, Limits, Store, View};
use crate::domain::rendezvous::RendezvousPlan;

/// So long a request may take from its first byte to its last, or to come at all.
pub const REQUEST: Duration = Duration::from_secs(3);

/// So long what a refused client still sends is read and dropped: an answer would be lost by closing at once.
const LINGER: Duration = Duration::from_millis(500);

/// Between tries to accept when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(20);

/// The rendezvous of one run.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Mutex<Store>,
    limits: Limits,
    peers: Vec<IpAddr>,
    connections: usize,
    changed: Notify,
}

impl Server {
    /// For the ranks of a plan, who alone may ask.
    pub fn new(plan: &RendezvousPlan) -> Self {
        let limits = Limits::of(plan);
        let shared = Shared {
            store: Mutex::new(Store::new(plan, limits)),
            limits,
            peers: plan.peers.iter().map(IpAddr::to_canonical).collect(),
            connections: (plan.world() as usize).saturating_mul(2).saturating_add(64),
            changed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How far the ranks have come.
    pub fn view(&self) -> View {
        self.shared.store().view().clone()
    }

    /// What is kept now, in bytes.
    pub fn bytes(&self) -> usize {
        self.shared.store().bytes()
    }

    /// Waits until [`Server::view`] has changed since this was waited for last. One task alone may wait.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Waits until all ranks are done with what was told, and each has its answer.
    pub async fn settled(&self) {
        // each connection shares it
        while !self.shared.store().is_settled() || Arc::strong_count(&self.shared) > 1 {
            sleep(PAUSE).await;
        }
    }

    /// Answers until it is dropped, and all its connections with it.
    pub async fn serve(&self, listener: TcpListener) {
        let mut open = JoinSet::new();
        loop {
            while open.try_join_next().is_some() {}
            while open.len() >= self.shared.connections {
                open.join_next().await;
            }
            match listener.accept().await {
                Ok((stream, from)) if self.shared.knows(from.ip()) => {
                    open.spawn(converse(Arc::clone(&self.shared), stream));
                }
                // Dropped without a word.
                Ok(_) => {}
                // Of one that has gone meanwhile, or for want of descriptors: others may do better.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.peers.contains(&address.to_canonical())
    }

    fn answer(&self, request: &Request) -> Vec<u8> {
        let Request { method, scope, key, body, keep_alive } = request;
        let mut store = self.store();
        let mut changed = false;
        let (status, value) = match method {
            Method::Get => match store.get(scope, key) {
                Some(value) => (Status::Ok, Some(value)),
                None => (Status::NotFound, None),
            },
            Method::Put => match store.put(scope, key, body) {
                Ok(news) => {
                    changed = news;
                    (Status::Ok, None)
                }
                Err(Full::Value) => (Status::TooLong, None),
                Err(Full::Store) => (Status::Full, None),
            },
            Method::Delete => {
                changed = store.delete(scope, key);
                (Status::Ok, None)
            }
        };
        drop(store);
        if changed {
            self.changed.notify_one();
        }
        response(status, value.as_deref().unwrap_or_default(), *keep_alive)
    }
}

/// One connection, until it ends.
async fn converse(shared: Arc<Shared>, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut parser = Parser::new(shared.limits.value);
    let mut first = true;
    loop {
        let request = match timeout(REQUEST, read(&mut stream, &mut parser)).await {
            Ok(Ok(Ok(request))) => request,
            Ok(Ok(Err(status))) => return refuse(stream, status).await,
            // It has ended.
            Ok(Err(_)) => return,
            // One that asks nothing more is in no need of an answer.
            Err(_) if parser.is_empty() && !first => return,
            Err(_) => return refuse(stream, Status::Timeout).await,
        };
        first = false;
        let answer = shared.answer(&request);
        // A client that takes nothing holds its connection no longer than one that says nothing.
        let sent = timeout(REQUEST, stream.write_all(&answer)).await;
        if !matches!(sent, Ok(Ok(()))) || !request.keep_alive {
            return;
        }
    }
}

/// The next request, or what is wrong with it. An error when the connection ends.
async fn read(stream: &mut TcpStream, parser: &mut Parser) -> io::Result<Result<Request, Status>> {
    let mut bytes = [0; 4 << 10];
    loop {
        match parser.next_request() {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(status) => return Ok(Err(status)),
        }
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        parser.push(&bytes[..count]);
    }
}

/// The last answer on a connection that still sends.
async fn refuse(mut stream: TcpStream, status: Status) {
    let answer = response(status, &[], false);
    let last_words = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4 << 10];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    let _ = timeout(LINGER, last_words).await;
}
