//! The session over one link: handshake, heartbeat, and messages both ways until the link ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::{self, MissedTickBehavior};

use super::host_task::{Closed, HostTask};
use super::ingress::{Ingress, Verdict};
use super::link::{Link, LinkError};
use super::listing::Listing;
use super::messages::{Command, Reply};
use super::pings::Pings;
use super::receive_queue::ReceiveQueue;
use crate::clock;
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::Event;
use crate::domain::host::{LinkState, RefusalKind};
use crate::domain::text::sanitize;
use crate::wire::frame::Decoder;
use crate::wire::handshake::Hello;
use crate::wire::message::{Credit, FromAgent, Ping, ToAgent, Watch};

/// The agent must have said hello by then.
const HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// A link without a frame for so long is dead, though TCP may not know it yet.
const SILENCE: Duration = Duration::from_millis(6500);
/// Clock pings right after connecting, so that the clock fit is good from the start.
const FIRST_PINGS: u32 = 32;
const FIRST_PING_EVERY: Duration = Duration::from_millis(20);
const PING_EVERY: Duration = Duration::from_secs(1);

/// Parts of run messages that are handed on at once.
const AT_ONCE: usize = 64;
/// How long a link that is lost may take to give what lies on it.
const AT_THE_END: Duration = Duration::from_millis(20);
/// Bytes that may have come while something is sent: more than a client grants.
const MOST_UNREAD: usize = 8 << 20;

/// What ended a session.
enum End {
    Lost(String),
    /// The link was given up here.
    Silent(String),
    Refused(RefusalKind, String),
    /// The agent sent what it must not.
    Cut(String),
    /// Another binary answered than the one that was put there: its hash and the one that was sent.
    Swapped {
        got: String,
        sent: String,
    },
    Closed,
}

impl From<Closed> for End {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// Runs the session until the link ends; returns why it ended.
pub(crate) async fn drive(task: &mut HostTask, mut link: Link) -> Result<LinkError, Closed> {
    let said = Said { build: String::new(), banner: cut(&link.banner), login: cut(&link.login) };
    let mut ingress = std::mem::take(&mut task.ingress);
    ingress.begin();
    let mut session = Session {
        decoder: Decoder::default(),
        pings: Pings::default(),
        out: BytesMut::new(),
        said,
        ingress,
        listing: Listing::default(),
    };
    let end = match session.handshake(task, &mut link).await {
        Ok(()) => session.run_loop(task, &mut link).await,
        Err(end) => end,
    };
    task.ingress = session.ingress;
    match end {
        End::Closed => Err(Closed),
        End::Refused(kind, reason) => Ok(LinkError::Refused(kind, reason)),
        End::Cut(why) => Ok(LinkError::Cut(format!("the link to {} was ended: {why}", task.entry.id))),
        End::Swapped { got, sent } => {
            // Its own connection goes first: a host may allow one session only.
            let path = link.path.take();
            drop(link);
            let aside = match path {
                Some(path) => task.entry.target.quarantine(&path, &got).await,
                None => String::new(),
            };
            let host = &task.entry.id;
            let reason = format!(
                "the agent that answers on {host} is not the one that was put there (sha256 {}, sent {sent}): {aside}",
                sanitize(&got)
            );
            Ok(LinkError::Refused(RefusalKind::Agent, reason))
        }
        End::Silent(reason) => Ok(LinkError::Unreachable(reason)),
        End::Lost(reason) => {
            // the transport may know more than «end of stream»
            let deeper = time::timeout(Duration::from_secs(2), link.end_reason()).await;
            Ok(LinkError::Unreachable(match deeper {
                Ok(detail) if !detail.is_empty() && !reason.contains(&detail) => {
                    format!("{reason}: {detail}")
                }
                _ => reason,
            }))
        }
    }
}

struct Session {
    decoder: Decoder,
    pings: Pings,
    out: BytesMut,
    said: Said,
    ingress: Ingress,
    listing: Listing,
}

/// What came before the first fact and is one.
struct Said {
    /// Hash of the binary that answers.
    build: String,
    /// What the host printed at login.
    banner: String,
    /// What let us in.
    login: String,
}

/// A beginning of at most 4 KiB: it is recorded with each run.
pub(super) fn cut(banner: &str) -> String {
    let end = (0..=banner.len().min(4096)).rev().find(|at| banner.is_char_boundary(*at)).unwrap_or(0);
    banner[..end].to_owned()
}

impl Session {
    async fn handshake(&mut self, task: &mut HostTask, link: &mut Link) -> Result<(), End> {
        let ours = Hello::ours(String::new());
        self.send(link, &ToAgent::Hello(ours.clone())).await?;
        let first = time::timeout(HELLO_DEADLINE, self.receive(link.reader.as_mut())).await;
        let silent = |_| {
            let seconds = HELLO_DEADLINE.as_secs();
            End::Lost(format!("agent on {} said nothing for {seconds} s", task.entry.id))
        };
        let FromAgent::Hello(theirs) = first.map_err(silent)?? else {
            return Err(End::Refused(RefusalKind::Agent, "agent did not begin with hello".to_owned()));
        };
        match ours.agree(&theirs) {
            Ok(_) => self.ingress.greeted(),
            Err(incompatible) => return Err(End::Refused(RefusalKind::Agent, incompatible.to_string())),
        }
        if let Some(build) = link.build.as_ref().filter(|build| **build != theirs.build) {
            return Err(End::Swapped { got: theirs.build, sent: build.clone() });
        }
        self.said.build = theirs.build;
        task.link_changed(LinkState::Up).await?;
        if let Some(interval) = task.entry.interval {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            let watch = Watch { interval_ms, lease_dir: task.entry.lease_dir.clone() };
            self.send(link, &ToAgent::Watch(watch)).await?;
        }
        Ok(())
    }

    async fn run_loop(&mut self, task: &mut HostTask, link: &mut Link) -> End {
        let mut queue = ReceiveQueue::new(task.entry.id.clone());
        let end = match self.exchange(task, link, &mut queue).await {
            Ok(()) => End::Lost("link closed".to_owned()),
            Err(end) => end,
        };
        // what has come counts, whatever became of the link: also behind a message that could not be sent
        self.take_rest(task, link, &mut queue).await;
        while let Some(dropped) = self.ingress.rest() {
            if task.dropped(Some(dropped)).await.is_err() {
                return End::Closed;
            }
        }
        while queue.ready(&mut task.followed, clock::now()) > 0 {
            while let Some(part) = queue.pop() {
                if task.put(part).await.is_err() {
                    return End::Closed;
                }
            }
        }
        end
    }

    /// Takes what has come off the decoder. Whether that was anything.
    async fn take(&mut self, task: &mut HostTask, queue: &mut ReceiveQueue) -> Result<bool, End> {
        let mut heard = false;
        while let Some(frame) = self.decoder.next_frame().map_err(lost)? {
            heard = true;
            let now = clock::now();
            // samples and pongs come each second, so that it is told soon after it is due
            task.dropped(self.ingress.due(now)).await?;
            let message = match self.ingress.admit(now, &frame) {
                Verdict::Admitted(message) => message,
                Verdict::Dropped => continue,
                Verdict::Refused(why) => return Err(End::Cut(why)),
            };
            match message {
                message if ReceiveQueue::takes(&message) => queue.push(message),
                FromAgent::Pong(pong) => {
                    if let Some(took) = self.pings.answered(pong.t0, clock::host_now()) {
                        queue.flow.round_trip(took, queue.bytes());
                        if let Some(sample) = ClockSample::from_ping(pong.t0, pong.t1, pong.t2, took) {
                            task.event(task.origin(), Event::ClockSampled { sample }).await?;
                        }
                    }
                }
                message => {
                    if matches!(&message, FromAgent::Runs(runs) if runs.last) {
                        self.listing.answered();
                    }
                    receive(task, message, &self.said).await?;
                }
            }
        }
        Ok(heard)
    }

    /// Takes what lies on a link that is lost.
    async fn take_rest(&mut self, task: &mut HostTask, link: &mut Link, queue: &mut ReceiveQueue) {
        let mut left = MOST_UNREAD;
        while self.take(task, queue).await.is_ok() && left > 0 && queue.has_room() {
            match time::timeout(AT_THE_END, link.reader.read_buf(self.decoder.room())).await {
                Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
                _ => return,
            }
        }
    }

    async fn exchange(
        &mut self,
        task: &mut HostTask,
        link: &mut Link,
        queue: &mut ReceiveQueue,
    ) -> Result<(), End> {
        // before the first request for files: without a word of it an agent sends as much as the link takes
        self.grant(link, queue).await?;
        // before all requests: by its answer what they tell of the past has a time
        self.ping(link).await?;
        for message in task.followed.resume() {
            self.send(link, &message).await?;
        }
        while let Some(message) = task.kept.front() {
            self.request(link, message).await?;
            task.kept.pop_front();
        }
        let mut pings = 0;
        let mut ping = time::interval(FIRST_PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = time::sleep(SILENCE);
        tokio::pin!(silence);
        let outbox = task.outbox.clone();
        let at_once = AT_ONCE.min(outbox.max_capacity());
        loop {
            if self.take(task, queue).await? {
                // from here on, and not from when it came: the reader of the events may have kept us waiting
                silence.set(time::sleep(SILENCE));
            }
            if let Some(which) = self.listing.next() {
                self.request(link, &ToAgent::ListRuns(which)).await?;
            }
            let now = clock::now();
            let ready = queue.ready(&mut task.followed, now).min(at_once);
            let next_due = task.followed.next_due();
            let wait = next_due.map_or(0, |due| due.micros_since(now).max(1_000).unsigned_abs());
            self.grant(link, queue).await?;
            if queue.flow.probe() {
                self.ping(link).await?;
            }
            tokio::select! {
                biased;
                command = task.inbox.recv() => match command.ok_or(End::Closed)? {
                    Command::Reconnect => {}
                    Command::Send(mut message) => {
                        task.signals.sent(&message);
                        task.remember(&mut message);
                        let sent = self.request(link, &message).await;
                        if sent.is_err() {
                            task.keep(*message);
                        }
                        sent?;
                    }
                },
                _ = ping.tick() => {
                    self.ping(link).await?;
                    pings += 1;
                    if pings == FIRST_PINGS {
                        ping = time::interval(PING_EVERY);
                        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    }
                }
                count = link.reader.read_buf(self.decoder.room()), if queue.has_room() => {
                    if count.map_err(lost)? == 0 {
                        return Ok(());
                    }
                }
                room = outbox.reserve_many(ready), if ready > 0 => {
                    for (permit, part) in room.map_err(|_| End::Closed)?.zip(std::iter::from_fn(|| queue.pop())) {
                        permit.send(task.item(part));
                    }
                }
                // an unfinished line is to be told
                () = time::sleep(Duration::from_micros(wait)), if next_due.is_some() => {}
                // a link that is not read because its messages are not taken is not silent
                () = &mut silence, if queue.has_room() => {
                    let seconds = SILENCE.as_secs();
                    return Err(End::Silent(format!("no word for {seconds} s: the link is given up")));
                }
            }
        }
    }

    /// Lets the agent send more of the runs' files, where that is due.
    async fn grant(&mut self, link: &mut Link, queue: &mut ReceiveQueue) -> Result<(), End> {
        match queue.flow.grant() {
            Some(until) => self.send(link, &ToAgent::Credit(Credit { until })).await,
            None => Ok(()),
        }
    }

    /// Sends what was asked for, or keeps it until what was asked for before has its answer.
    async fn request(&mut self, link: &mut Link, message: &ToAgent) -> Result<(), End> {
        match message {
            ToAgent::ListRuns(which) if !self.listing.begin(*which) => Ok(()),
            message => self.send(link, message).await,
        }
    }

    async fn ping(&mut self, link: &mut Link) -> Result<(), End> {
        // in this order: what comes between the two makes the round trip longer, and the offset no surer than it is
        let sent = clock::host_now();
        let t0 = clock::now();
        self.pings.sent(t0, sent);
        self.send(link, &ToAgent::Ping(Ping { t0 })).await
    }

    /// Sends a message. What comes meanwhile is taken off the link: ssh brings no leave to send more behind what is not
    /// read, and an agent that answers each piece of an upload would wait for us as we wait for it.
    async fn send(&mut self, link: &mut Link, message: &ToAgent) -> Result<(), End> {
        self.ingress.sent(message);
        self.out.clear();
        message.encode(&mut self.out).map_err(lost)?;
        let Link { reader, writer, .. } = link;
        let write = async {
            writer.write_all(&self.out).await?;
            writer.flush().await
        };
        // a peer that reads nothing must not hold this task for ever
        let write = time::timeout(SILENCE, write);
        tokio::pin!(write);
        // who has ended the link is heard first, and then found by the next look
        let mut ends = false;
        loop {
            tokio::select! {
                biased;
                written = &mut write => return written.map_or_else(|_| Err(unsent()), |written| written.map_err(lost)),
                count = reader.read_buf(self.decoder.room()), if !ends && self.decoder.held() < MOST_UNREAD => {
                    ends = count.unwrap_or(0) == 0;
                }
            }
        }
    }

    async fn receive(&mut self, reader: &mut (dyn AsyncRead + Send + Unpin)) -> Result<FromAgent, End> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(lost)? {
                match self.ingress.admit(clock::now(), &frame) {
                    Verdict::Admitted(message) => return Ok(message),
                    Verdict::Dropped => continue,
                    Verdict::Refused(why) => return Err(End::Cut(why)),
                }
            }
            if reader.read_buf(self.decoder.room()).await.map_err(lost)? == 0 {
                return Err(End::Lost("agent ended before it said hello".to_owned()));
            }
        }
    }
}

fn lost(error: impl std::fmt::Display) -> End {
    End::Lost(error.to_string())
}

/// A peer that reads nothing.
fn unsent() -> End {
    End::Silent(format!("nothing could be sent for {} s: the link is given up", SILENCE.as_secs()))
}

/// One message of the agent that is not about what happens in a run: events and replies.
async fn receive(task: &mut HostTask, message: FromAgent, said: &Said) -> Result<(), Closed> {
    match message {
        FromAgent::Info(mut info) => {
            info.agent_build = Some(said.build.clone()).filter(|build| !build.is_empty());
            info.banner = Some(said.banner.clone()).filter(|banner| !banner.is_empty());
            info.login = Some(said.login.clone()).filter(|login| !login.is_empty());
            task.event(task.origin(), Event::HostDescribed { info: Arc::from(info) }).await
        }
        FromAgent::Sample(sampled) => {
            if sampled.dropped > 0 {
                let event = Event::Gap { what: "telemetry".to_owned(), dropped: sampled.dropped };
                task.event(task.origin(), event).await?;
            }
            task.sampled(sampled.sample).await
        }
        FromAgent::GpuEvents(told) => {
            for event in told.events {
                task.event(task.origin(), Event::GpuHappened { event }).await?;
            }
            Ok(())
        }
        FromAgent::Leases(leases) => task.event(task.origin(), Event::LeasesTold { leases: *leases }).await,
        FromAgent::Prepared(m) => {
            task.reply(Reply::Prepared { run: m.run, ports: m.ports, image: m.image }).await
        }
        FromAgent::Refused(refused) => task.reply(Reply::Refused(refused)).await,
        FromAgent::Mesh(told) => task.reply(Reply::Mesh(told)).await,
        FromAgent::Started(m) => task.reply(Reply::Started { run: m.run }).await,
        FromAgent::Runs(runs) => task.reply(Reply::Runs(runs)).await,
        FromAgent::Forgotten(told) => task.reply(Reply::Forgotten(told)).await,
        FromAgent::Preflight(told) => task.reply(Reply::Preflight(told)).await,
        FromAgent::Checked(told) => task.reply(Reply::Checked(told)).await,
        FromAgent::Stacks(stacks) => task.reply(Reply::Stacks(stacks)).await,
        FromAgent::Sync(told) => task.reply(Reply::Sync(told)).await,
        FromAgent::Image(told) => task.reply(Reply::Image(told)).await,
        FromAgent::BlobsTaken(taken) => task.reply(Reply::BlobsTaken(taken)).await,
        FromAgent::Signal(told) => task.signal_told(told).await,
        FromAgent::Hello(_)
        | FromAgent::Pong(_)
        | FromAgent::RankStarted(_)
        | FromAgent::Written(_)
        | FromAgent::Chunk(_)
        | FromAgent::Gap(_)
        | FromAgent::RankExited(_)
        | FromAgent::Noted(_)
        | FromAgent::Stands(_)
        | FromAgent::Collectives(_)
        | FromAgent::Finished(_)
        | FromAgent::Traces(_)
        | FromAgent::TracePiece(_)
        | FromAgent::PastSamples(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
