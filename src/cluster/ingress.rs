//! What an agent may send, decided in one place: each of its frames passes [`Ingress::admit`], which decodes it, before anything
//! is made of it. Pure: the time is passed in.
//!
//! A host is a stranger until proven otherwise. What is admitted is bounded, answers something where it has to, and is within what
//! the host may send a second and was granted, so that nothing behind has to look again. What is too much is left out and
//! counted; who goes on with it loses the link.

mod asked;
mod bounds;
mod bucket;

use asked::Asked;
use bucket::Bucket;

use crate::domain::event::{GPU_EVENTS, MESSAGES};
use crate::domain::plausible::GpuEventBudget;
use crate::domain::time::Stamp;
use crate::wire::chunk::CHUNK_BYTES;
use crate::wire::frame::Frame;
use crate::wire::lane::Lane;
use crate::wire::message::{FromAgent, ToAgent};

/// For how long an agent may send too much, microseconds, before its link is ended; and for how long it must not have, so that
/// this begins anew.
const PATIENCE_US: i64 = 3_000_000;
const CALM_US: i64 = 1_000_000;
/// Bytes of a message that comes often.
const SMALL: usize = 512;
/// How often it is told that messages were left out, microseconds.
const TELL_EVERY_US: i64 = 1_000_000;

/// What an agent may still send; kept over lost links, so that a new one is no new beginning.
#[derive(Debug)]
pub struct Ingress {
    /// Messages of any kind: at once, and a second. 64 ranks that print line by line on both streams make 50,000.
    messages: Bucket,
    /// Bytes of all but the pieces of files, which have credit, and long answers.
    bytes: Bucket,
    /// Bytes of long answers: a million files that are missing make 14 MiB.
    answers: Bucket,
    /// Facts, samples and leases. An agent samples ten times a second at most.
    telemetry: Bucket,
    /// What else becomes an event or an answer.
    events: Bucket,
    /// What it says of runs.
    notes: Bucket,
    /// What it may still tell of its GPUs in this minute.
    gpu_events: GpuEventBudget,
    asked: Asked,
    /// Whether it has said hello on this link. What comes instead of that is judged by who waits for it.
    greeted: bool,
    /// Bytes of files that it may have sent on this link, and has.
    granted: u64,
    received: u64,
    /// Since when it sends too much, and when it did last.
    over: Option<(Stamp, Stamp)>,
    /// Messages left out that are not told yet, since when.
    dropped: Option<(Stamp, u64)>,
}

/// What becomes of a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It counts, within its bounds.
    Admitted(FromAgent),
    /// It is left out: a newer agent's, an answer to nothing, or one too many.
    Dropped,
    /// The link ends, for this reason.
    Refused(String),
}

impl Default for Ingress {
    fn default() -> Self {
        Self {
            messages: Bucket::new(200_000, 100_000),
            bytes: Bucket::new(8 << 20, 1 << 20),
            answers: Bucket::new(64 << 20, 1 << 20),
            telemetry: Bucket::new(64, 30),
            events: Bucket::new(4000, 500),
            notes: Bucket::new(1000, 10),
            gpu_events: GpuEventBudget::default(),
            asked: Asked::default(),
            greeted: false,
            granted: 0,
            received: 0,
            over: None,
            dropped: None,
        }
    }
}

impl Ingress {
    /// A link begins.
    pub fn begin(&mut self) {
        (self.greeted, self.granted, self.received, self.over) = (false, 0, 0, None);
    }

    /// Both sides speak one protocol on the link.
    pub fn greeted(&mut self) {
        self.greeted = true;
    }

    /// A message is sent to the agent: what it asks for may be answered.
    pub fn sent(&mut self, message: &ToAgent) {
        if let ToAgent::Credit(credit) = message {
            self.granted = self.granted.max(credit.until);
        }
        self.asked.sent(message);
    }

    /// Judges a frame that came at `now`. One that is too much is not even decoded.
    pub fn admit(&mut self, now: Stamp, frame: &Frame) -> Verdict {
        let lane = Lane::of(frame.kind);
        let bytes = frame.payload.len();
        if !self.has_room(now, lane, bytes) {
            if self.stays_over(now) {
                let seconds = PATIENCE_US / 1_000_000;
                return Verdict::Refused(format!(
                    "its agent sent more than any host has to tell for {seconds} s: look what answers there in its place"
                ));
            }
            // bytes that count for the credit must not get lost, or there is none left some time
            if lane != Lane::File {
                self.dropped.get_or_insert((now, 0)).1 += 1;
                return Verdict::Dropped;
            }
        }
        let mut message = match FromAgent::decode(frame) {
            Ok(Some(message)) => message,
            Ok(None) => {
                tracing::debug!(kind = frame.kind, "message of a newer agent skipped");
                return Verdict::Dropped;
            }
            Err(error) => return Verdict::Refused(error.to_string()),
        };
        if let Some(why) = self.beyond_credit(&message) {
            return Verdict::Refused(why);
        }
        if !self.asked.answers(&mut message, bytes) && self.greeted {
            return Verdict::Dropped;
        }
        bounds::bound(&mut message);
        if let FromAgent::GpuEvents(told) = &mut message {
            let allowed = self.gpu_events.take(now, told.events.len());
            told.events.truncate(allowed);
        }
        Verdict::Admitted(message)
    }

    /// What was left out, of each kind how much, that is to be told at `now`; each once.
    pub fn due(&mut self, now: Stamp) -> Option<(&'static str, u64)> {
        let is_due = |since: Stamp| !(0..TELL_EVERY_US).contains(&now.micros_since(since));
        if self.dropped.is_some_and(|(since, _)| is_due(since)) {
            return self.dropped.take().map(|(_, count)| (MESSAGES, count));
        }
        told(self.gpu_events.due(now))
    }

    /// The same at the end of a link, behind which nothing more comes. Asked until there is none.
    pub fn rest(&mut self) -> Option<(&'static str, u64)> {
        let messages = self.dropped.take().map(|(_, count)| (MESSAGES, count));
        messages.or_else(|| told(self.gpu_events.rest()))
    }

    fn has_room(&mut self, now: Stamp, lane: Lane, bytes: usize) -> bool {
        let has_bytes = match lane {
            Lane::File => true,
            Lane::Answer => self.answers.take(now, bytes),
            // as many as there may be of them, while they are as small as they have to be
            Lane::Often => self.bytes.take(now, bytes.saturating_sub(SMALL)),
            _ => self.bytes.take(now, bytes),
        };
        let of_its_kind = match lane {
            Lane::Telemetry => self.telemetry.take(now, 1),
            Lane::Note => self.notes.take(now, 1),
            Lane::Other | Lane::Answer => self.events.take(now, 1),
            Lane::File | Lane::Often => true,
        };
        self.messages.take(now, 1) && of_its_kind && has_bytes
    }

    /// It sends too much, at `now`: whether it has done so for long.
    fn stays_over(&mut self, now: Stamp) -> bool {
        let since = match self.over {
            Some((since, last)) if (0..CALM_US).contains(&now.micros_since(last)) => since,
            _ => now,
        };
        self.over = Some((since, now));
        now.micros_since(since) >= PATIENCE_US
    }

    /// Why a piece of a file is one too many.
    fn beyond_credit(&mut self, message: &FromAgent) -> Option<String> {
        let bytes = match message {
            FromAgent::Chunk(chunk) => chunk.data.len(),
            FromAgent::TracePiece(piece) => piece.data.len(),
            FromAgent::PastSamples(samples) => samples.data.len(),
            _ => return None,
        };
        self.received = self.received.saturating_add(bytes as u64);
        // the piece that crosses the line may still come
        let most = self.granted.saturating_add(CHUNK_BYTES as u64);
        (self.received > most).then(|| {
            let (received, granted) = (self.received, self.granted);
            format!(
                "its agent sent more of its ranks' files than it was granted: {received} bytes of {granted}"
            )
        })
    }
}

fn told(dropped: u64) -> Option<(&'static str, u64)> {
    (dropped > 0).then_some((GPU_EVENTS, dropped))
}

#[cfg(test)]
#[path = "ingress_tests.rs"]
mod tests;
