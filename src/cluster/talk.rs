//! The talk over one link: handshake, heartbeat, and messages both ways until the link ends.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{self, MissedTickBehavior};

use super::host_task::{Closed, HostTask};
use super::link::{Link, LinkError};
use super::pool::{Command, Reply};
use crate::clock;
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::{Event, Origin};
use crate::domain::host::{LinkState, RefusalKind};
use crate::domain::ids::{Rank, RunId};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::wire::frame::Decoder;
use crate::wire::handshake::Hello;
use crate::wire::message::{FromAgent, Noted, Ping, ToAgent, Watch};

/// The agent must have said hello by then.
const HELLO_DEADLINE: Duration = Duration::from_secs(15);
/// A link without a frame for so long is dead, though TCP may not know it yet.
const SILENCE: Duration = Duration::from_secs(8);
/// Clock pings right after connecting, so that the clock fit is good from the start.
const FIRST_PINGS: u32 = 32;
const FIRST_PING_EVERY: Duration = Duration::from_millis(20);
const PING_EVERY: Duration = Duration::from_secs(1);

/// What ended a talk.
enum End {
    Lost(String),
    Refused(RefusalKind, String),
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

/// Talks until the link ends; says why it ended.
pub(crate) async fn talk(task: &mut HostTask, mut link: Link) -> Result<LinkError, Closed> {
    let said = Said { build: String::new(), banner: cut(&link.banner) };
    let mut speaker = Talk { decoder: Decoder::default(), out: BytesMut::new(), said };
    let end = match speaker.greet(task, &mut link).await {
        Ok(()) => speaker.converse(task, &mut link).await,
        Err(end) => end,
    };
    match end {
        End::Closed => Err(Closed),
        End::Refused(kind, reason) => Ok(LinkError::Refused(kind, reason)),
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

struct Talk {
    decoder: Decoder,
    out: BytesMut,
    said: Said,
}

/// What came before the first fact and is one.
struct Said {
    /// Hash of the binary that answers.
    build: String,
    /// What the host printed at login.
    banner: String,
}

/// A beginning of at most 4 KiB: it is recorded with each run.
pub(super) fn cut(banner: &str) -> String {
    let end = (0..=banner.len().min(4096)).rev().find(|at| banner.is_char_boundary(*at)).unwrap_or(0);
    banner[..end].to_owned()
}

impl Talk {
    async fn greet(&mut self, task: &HostTask, link: &mut Link) -> Result<(), End> {
        let ours = Hello::ours(String::new());
        self.send(link.writer.as_mut(), &ToAgent::Hello(ours.clone())).await?;
        let first = time::timeout(HELLO_DEADLINE, self.receive(link.reader.as_mut())).await;
        let silent = |_| {
            let seconds = HELLO_DEADLINE.as_secs();
            End::Lost(format!("agent on {} said nothing for {seconds} s", task.entry.id))
        };
        let FromAgent::Hello(theirs) = first.map_err(silent)?? else {
            return Err(End::Refused(RefusalKind::Agent, "agent did not begin with hello".to_owned()));
        };
        if let Err(incompatible) = ours.agree(&theirs) {
            return Err(End::Refused(RefusalKind::Agent, incompatible.to_string()));
        }
        if let Some(build) = link.build.as_ref().filter(|build| **build != theirs.build) {
            return Err(End::Swapped { got: theirs.build, sent: build.clone() });
        }
        self.said.build = theirs.build;
        task.link_changed(LinkState::Up).await?;
        if let Some(interval) = task.entry.interval {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            let watch = Watch { interval_ms, lease_dir: task.entry.lease_dir.clone() };
            self.send(link.writer.as_mut(), &ToAgent::Watch(watch)).await?;
        }
        Ok(())
    }

    async fn converse(&mut self, task: &mut HostTask, link: &mut Link) -> End {
        match self.exchange(task, link).await {
            Ok(()) => End::Lost("link closed".to_owned()),
            Err(end) => end,
        }
    }

    async fn exchange(&mut self, task: &mut HostTask, link: &mut Link) -> Result<(), End> {
        for message in task.followed.resume() {
            self.send(link.writer.as_mut(), &message).await?;
        }
        while let Some(message) = task.kept.front() {
            self.send(link.writer.as_mut(), message).await?;
            task.kept.pop_front();
        }
        let mut pings = 0;
        let mut ping = time::interval(FIRST_PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let silence = time::sleep(SILENCE);
        tokio::pin!(silence);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut heard = false;
            while let Some(frame) = self.decoder.next_frame().map_err(lost)? {
                heard = true;
                let now = clock::now();
                match FromAgent::decode(&frame) {
                    Ok(Some(message)) => receive(task, message, now, &self.said).await?,
                    Ok(None) => tracing::debug!(kind = frame.kind, "message of a newer agent skipped"),
                    Err(error) => return Err(lost(error)),
                }
            }
            if heard {
                // from here on, and not from when it came: the reader of the events may have kept us waiting
                silence.set(time::sleep(SILENCE));
            }
            tokio::select! {
                biased;
                command = task.inbox.recv() => match command.ok_or(End::Closed)? {
                    Command::Reconnect => {}
                    Command::Send(message) => {
                        task.remember(&message);
                        let sent = self.send(link.writer.as_mut(), &message).await;
                        if sent.is_err() {
                            task.keep(*message);
                        }
                        sent?;
                    }
                },
                _ = ping.tick() => {
                    self.send(link.writer.as_mut(), &ToAgent::Ping(Ping { t0: clock::now() })).await?;
                    pings += 1;
                    if pings == FIRST_PINGS {
                        ping = time::interval(PING_EVERY);
                        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    }
                }
                count = link.reader.read(&mut buffer) => {
                    let count = count.map_err(lost)?;
                    if count == 0 {
                        return Ok(());
                    }
                    self.decoder.push(&buffer[..count]);
                }
                () = &mut silence => {
                    return Err(End::Lost(format!("no word for {} s", SILENCE.as_secs())));
                }
            }
        }
    }

    async fn send(
        &mut self,
        writer: &mut (dyn AsyncWrite + Send + Unpin),
        message: &ToAgent,
    ) -> Result<(), End> {
        self.out.clear();
        message.encode(&mut self.out).map_err(lost)?;
        // a peer that reads nothing must not hold this task for ever
        let write = async {
            writer.write_all(&self.out).await?;
            writer.flush().await
        };
        match time::timeout(SILENCE, write).await {
            Ok(written) => written.map_err(lost),
            Err(_) => Err(End::Lost(format!("nothing could be sent for {} s", SILENCE.as_secs()))),
        }
    }

    async fn receive(&mut self, reader: &mut (dyn AsyncRead + Send + Unpin)) -> Result<FromAgent, End> {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(lost)?
                && let Some(message) = FromAgent::decode(&frame).map_err(lost)?
            {
                return Ok(message);
            }
            let count = reader.read(&mut buffer).await.map_err(lost)?;
            if count == 0 {
                return Err(End::Lost("agent ended before it said hello".to_owned()));
            }
            self.decoder.push(&buffer[..count]);
        }
    }
}

fn lost(error: impl std::fmt::Display) -> End {
    End::Lost(error.to_string())
}

/// One message of the agent: events and replies.
async fn receive(task: &mut HostTask, message: FromAgent, now: Stamp, said: &Said) -> Result<(), Closed> {
    match message {
        FromAgent::Pong(pong) => {
            let sample = ClockSample::from_ping(pong.t0, pong.t1, pong.t2, now);
            task.event(task.origin(), Event::ClockSampled { sample }).await
        }
        FromAgent::Info(mut info) => {
            info.agent_build = Some(said.build.clone());
            info.banner = Some(said.banner.clone()).filter(|banner| !banner.is_empty());
            task.event(task.origin(), Event::HostDescribed { info }).await
        }
        FromAgent::Sample(sampled) => {
            if sampled.dropped > 0 {
                let event = Event::Gap { what: "telemetry".to_owned(), dropped: sampled.dropped };
                task.event(task.origin(), event).await?;
            }
            task.event(task.origin(), Event::HostSampled { sample: Box::new(sampled.sample) }).await
        }
        FromAgent::Leases(leases) => task.event(task.origin(), Event::LeasesTold { leases: *leases }).await,
        FromAgent::Prepared(m) => task.reply(Reply::Prepared { run: m.run, free_port: m.free_port }).await,
        FromAgent::Refused(refused) => task.reply(Reply::Refused(refused)).await,
        FromAgent::Started(m) => task.reply(Reply::Started { run: m.run }).await,
        FromAgent::RankStarted(m) => {
            let event = task.followed.started(&m.run, m.rank, m.pid, m.t);
            of_rank(task, m.run, m.rank, event).await
        }
        FromAgent::Chunk(chunk) => {
            let events = task.followed.chunk(&chunk);
            of_rank(task, chunk.run, chunk.rank, events).await
        }
        FromAgent::Gap(m) => {
            let events = task.followed.gap(&m);
            of_rank(task, m.run, m.gap.rank, events).await
        }
        FromAgent::RankExited(m) => {
            let events = task.followed.exited(&m.run, m.rank, m.exit);
            of_rank(task, m.run, m.rank, events).await
        }
        FromAgent::Noted(m) => {
            // an agent speaks for the host of its link, whatever name it gives
            let noted = Noted { host: task.entry.id.clone(), ..m };
            let run = noted.run.clone();
            let Some(event) = task.followed.noted(noted) else { return Ok(()) };
            let event = task.followed.masked(&run, event);
            task.event(Origin::Run(run), event).await
        }
        FromAgent::Finished(m) if task.followed.finished(&m.run) => {
            task.reply(Reply::Finished { run: m.run }).await
        }
        FromAgent::Hello(_) | FromAgent::Finished(_) => Ok(()),
    }
}

async fn of_rank(
    task: &HostTask,
    run: RunId,
    rank: Rank,
    events: impl IntoIterator<Item = Event>,
) -> Result<(), Closed> {
    let origin = Origin::Rank(run, rank);
    for event in events {
        let event = match origin.run() {
            Some(run) => task.followed.masked(run, event),
            None => event,
        };
        task.event(origin.clone(), event).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "talk_tests.rs"]
mod tests;
