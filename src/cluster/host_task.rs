//! One host's task: connect, run the session, and after a loss wait and connect again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;
use tokio::time;

use super::backoff::Backoff;
use super::followed::Followed;
use super::ingress::Ingress;
use super::link::{Link, LinkError};
use super::messages::{Command, HostEntry, Incoming, Item, Reply};
use super::signals::Signals;
use super::{session, watch};
use crate::clock;
use crate::domain::event::{Event, Origin};
use crate::domain::host::{HostSample, LinkState};
use crate::domain::ids::RunId;
use crate::domain::redaction::Masks;
use crate::wire::message::ToAgent;

/// A link that held this long makes up for earlier failures.
const STEADY_US: i64 = 10_000_000;

/// Everything a host's task keeps while links come and go.
pub(crate) struct HostTask {
    pub(crate) entry: HostEntry,
    pub(crate) inbox: mpsc::UnboundedReceiver<Command>,
    pub(crate) outbox: mpsc::Sender<Item>,
    /// Runs whose files are read, with the next byte of each.
    pub(crate) followed: Followed,
    /// Messages for the next link: requests to stop runs that are not followed, to list runs, and whether a run can be traced.
    pub(crate) kept: VecDeque<ToAgent>,
    /// Signals that the host has not answered yet.
    pub(crate) signals: Signals,
    /// What the agent may still send.
    pub(crate) ingress: Ingress,
}

/// The reader is gone: the task ends.
pub(crate) struct Closed;

/// Lives until the cluster is dropped.
pub(crate) async fn run(
    entry: HostEntry,
    inbox: mpsc::UnboundedReceiver<Command>,
    outbox: mpsc::Sender<Item>,
) {
    let _closed: Result<(), Closed> = HostTask::new(entry, inbox, outbox).live().await;
}

impl HostTask {
    pub(crate) fn new(
        entry: HostEntry,
        inbox: mpsc::UnboundedReceiver<Command>,
        outbox: mpsc::Sender<Item>,
    ) -> Self {
        Self {
            entry,
            inbox,
            outbox,
            followed: Followed::default(),
            kept: VecDeque::new(),
            signals: Signals::default(),
            ingress: Ingress::default(),
        }
    }

    async fn live(&mut self) -> Result<(), Closed> {
        let mut backoff = Backoff::default();
        loop {
            self.link_changed(LinkState::Connecting { to: self.entry.target.describe() }).await?;
            match self.open().await? {
                Ok(link) => {
                    let since = clock::now();
                    let ended = match link.limited {
                        None => session::drive(self, link).await?,
                        Some(_) => watch::watch(self, link).await?,
                    };
                    self.signals_lost().await?;
                    let was_cut = matches!(ended, LinkError::Cut(_));
                    if clock::now().micros_since(since) > STEADY_US && !was_cut {
                        backoff.reset();
                    }
                    match ended {
                        LinkError::Unreachable(reason) | LinkError::Cut(reason) => {
                            self.wait(&mut backoff, reason).await?;
                        }
                        LinkError::Refused(kind, reason) => {
                            self.link_changed(LinkState::Refused { reason, kind }).await?;
                            self.until_asked().await?;
                        }
                    }
                }
                Err(LinkError::Unreachable(reason) | LinkError::Cut(reason)) => {
                    self.wait(&mut backoff, reason).await?;
                }
                Err(LinkError::Refused(kind, reason)) => {
                    self.link_changed(LinkState::Refused { reason, kind }).await?;
                    self.until_asked().await?;
                    backoff.reset();
                }
            }
        }
    }

    /// Opens the link; shows the installation while it goes on; answers commands meanwhile.
    async fn open(&mut self) -> Result<Result<Link, LinkError>, Closed> {
        let installing = Arc::new(AtomicU64::new(0));
        let target = self.entry.target.clone();
        let opening = target.open(Arc::clone(&installing));
        tokio::pin!(opening);
        let mut shown = 0;
        let mut look = time::interval(Duration::from_millis(50));
        loop {
            tokio::select! {
                link = &mut opening => return Ok(link),
                _ = look.tick() => {
                    let bytes = installing.load(Ordering::Relaxed);
                    if bytes != shown {
                        shown = bytes;
                        self.link_changed(LinkState::Installing { bytes }).await?;
                    }
                }
                command = self.inbox.recv() => match command.ok_or(Closed)? {
                    Command::Send(message) => self.not_connected(*message, "still connecting").await?,
                    Command::Reconnect => {}
                },
            }
        }
    }

    /// Waits for the next try.
    async fn wait(&mut self, backoff: &mut Backoff, reason: String) -> Result<(), Closed> {
        let delay = backoff.after_failure(chance());
        let retry_at = Some(clock::now().plus_micros(i64::try_from(delay).unwrap_or(i64::MAX)));
        self.link_changed(LinkState::Down { reason: reason.clone(), retry_at }).await?;
        let sleep = time::sleep(Duration::from_micros(delay));
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return Ok(()),
                command = self.inbox.recv() => match command.ok_or(Closed)? {
                    Command::Reconnect => return Ok(()),
                    Command::Send(message) => self.not_connected(*message, &reason).await?,
                },
            }
        }
    }

    /// After a refusal: waits for a person.
    async fn until_asked(&mut self) -> Result<(), Closed> {
        loop {
            match self.inbox.recv().await.ok_or(Closed)? {
                Command::Reconnect => return Ok(()),
                Command::Send(message) => self.not_connected(*message, "the link was refused").await?,
            }
        }
    }

    /// Keeps what must not get lost, answers the rest.
    pub(crate) async fn not_connected(&mut self, mut message: ToAgent, why: &str) -> Result<(), Closed> {
        self.remember(&mut message);
        let run = match message {
            ToAgent::Signal(ask) => return self.signal_unreachable(&ask, why).await,
            ToAgent::Prepare(plan) => plan.run,
            ToAgent::Commit(commit) => commit.run,
            message => {
                self.keep(message);
                return Ok(());
            }
        };
        self.unreachable(run, why).await
    }

    /// Notes what outlives a link: which runs are followed, and which of them shall stop.
    /// A request to follow is made to go on where the run stands.
    pub(crate) fn remember(&mut self, message: &mut ToAgent) {
        match message {
            ToAgent::Commit(commit) => {
                self.followed.hide(&commit.run, Masks::new(commit.secrets()));
            }
            ToAgent::Follow(follow) => self.followed.begin(follow),
            ToAgent::Stop(stop) => {
                self.followed.stop(stop);
            }
            _ => {}
        }
    }

    /// A message could not be sent: requests to stop, to list and for stacks go out with the next link.
    pub(crate) fn keep(&mut self, message: ToAgent) {
        let waits = match &message {
            ToAgent::Stop(stop) => !self.followed.stop(stop),
            ToAgent::ListRuns(_) | ToAgent::AskStacks(_) | ToAgent::Forget(_) => true,
            // one that begins must not begin later
            ToAgent::Trace(trace) => trace.start.is_none(),
            _ => false,
        };
        if waits && !self.kept.contains(&message) {
            self.kept.push_back(message);
        }
    }

    async fn unreachable(&self, run: RunId, why: &str) -> Result<(), Closed> {
        let reason = format!("{} is not connected: {why}", self.entry.id);
        self.reply(Reply::Unreachable { run, reason }).await
    }

    pub(crate) async fn link_changed(&self, state: LinkState) -> Result<(), Closed> {
        self.event(self.origin(), Event::LinkChanged { state }).await
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin::Host(self.entry.id.clone())
    }

    pub(crate) async fn event(&self, origin: Origin, event: Event) -> Result<(), Closed> {
        self.put(Incoming::Event(origin, event)).await
    }

    /// Tells a sample, without the secret values of runs.
    pub(crate) async fn sampled(&self, mut sample: HostSample) -> Result<(), Closed> {
        self.followed.mask_commands(&mut sample);
        self.event(self.origin(), Event::HostSampled { sample: Arc::new(sample) }).await
    }

    /// Tells what was dropped of what the agent sent, if anything was.
    pub(crate) async fn dropped(&self, told: Option<(&'static str, u64)>) -> Result<(), Closed> {
        let Some((what, dropped)) = told else { return Ok(()) };
        self.event(self.origin(), Event::Gap { what: what.to_owned(), dropped }).await
    }

    pub(crate) async fn reply(&self, reply: Reply) -> Result<(), Closed> {
        self.put(Incoming::Reply(reply)).await
    }

    pub(crate) async fn put(&self, incoming: Incoming) -> Result<(), Closed> {
        self.outbox.send(self.item(incoming)).await.map_err(|_| Closed)
    }

    /// What came in, with this host's name and the time.
    pub(crate) fn item(&self, incoming: Incoming) -> Item {
        Item { host: self.entry.id.clone(), at: clock::now(), incoming }
    }
}

/// A uniform number for the jitter; the middle where the system gives none.
fn chance() -> u32 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u32::from_le_bytes(bytes),
        Err(_) => u32::MAX / 2,
    }
}
