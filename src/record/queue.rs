//! The bounded queue in front of the recorder: never blocks the sender, drops lines and steps first, then
//! telemetry, and counts what it drops so that a [`Event::Gap`] can stand in its place. Who can wait sees when it is
//! [behind](Queue::backlog).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::format::weight;
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::time::Stamp;

/// Shared between the senders and the recorder's thread.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Envelope>>,
    bytes: usize,
    gaps: BTreeMap<(Origin, &'static str), Gap>,
    dropped: u64,
    /// Batches that were taken out.
    taken: u64,
    /// What comes after it is to be on disk at once.
    flush: bool,
    closed: bool,
}

/// What was dropped of one kind and origin since the last time the queue was emptied.
#[derive(Debug)]
pub(super) struct Gap {
    /// The number and time of the first one: the gap takes its place.
    pub(super) seq: u64,
    pub(super) at: Stamp,
    pub(super) count: u64,
}

/// Envelopes that are taken at once.
const BATCH: usize = 4096;
/// How long fewer of them wait for more: to wake a thread for each line costs more than to write it.
const COLLECT: Duration = Duration::from_millis(20);

/// How dear an event is when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// One of very many: what there is too much of goes first.
    Bulk,
    /// The next sample makes up for it.
    Telemetry,
    /// The story of the run: few and small.
    Story,
}

fn worth(event: &Event) -> (Worth, &'static str) {
    match event {
        Event::HostSampled { .. } => (Worth::Telemetry, "telemetry"),
        Event::ClockSampled { .. } => (Worth::Telemetry, "clock"),
        Event::LogPrinted { .. } => (Worth::Bulk, "log"),
        Event::LogUnfinished { .. } => (Worth::Bulk, "unfinished line"),
        Event::StepDone { .. } => (Worth::Bulk, "step"),
        Event::MetricReported { .. } => (Worth::Bulk, "metric"),
        Event::CollectiveDone { .. } => (Worth::Bulk, "collective"),
        _ => (Worth::Story, "event"),
    }
}

/// What the recorder's thread gets.
pub(super) enum Taken {
    /// What waited longest, in order.
    Batch(Vec<Arc<Envelope>>),
    /// Nothing came in the time allowed.
    Idle,
    /// The queue is closed and empty.
    Closed,
}

impl Queue {
    /// A queue that holds about `limit` bytes of telemetry; half of that of bulk, twice of the rest.
    pub(super) fn new(limit: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), limit }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an envelope in, or counts it as dropped. Waits for nothing but the lock.
    pub(super) fn send(&self, envelope: Arc<Envelope>) {
        let (worth, what) = worth(&envelope.event);
        let room = match worth {
            Worth::Bulk => self.limit / 2,
            Worth::Telemetry => self.limit,
            Worth::Story => self.limit.saturating_mul(2),
        };
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let bytes = state.bytes + weight(&envelope);
        if bytes > room {
            state.drop_one(&envelope, what);
            return;
        }
        state.bytes = bytes;
        state.waiting.push_back(envelope);
        if state.waiting.len() == 1 || state.waiting.len() == BATCH {
            self.changed.notify_one();
        }
    }

    /// Counts an envelope that the writer refused, and gives what is to stand in its place.
    pub(super) fn refuse(&self, envelope: &Envelope) -> Envelope {
        self.lock().dropped += 1;
        let gap = Gap { seq: envelope.seq, at: envelope.at, count: 1 };
        gap.envelope(envelope.origin.clone(), worth(&envelope.event).1)
    }

    /// Says that what waits is to be on disk as soon as it is taken.
    pub(super) fn flush(&self) {
        self.lock().flush = true;
        self.changed.notify_one();
    }

    /// Ends the queue: what waits is still taken, what comes is ignored.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Whether so much waits that lines should come more slowly: then how many batches were taken so far, by which a
    /// recorder that is slow is told from one that stands still.
    pub(super) fn backlog(&self) -> Option<u64> {
        let state = self.lock();
        (state.bytes > self.limit / 4).then_some(state.taken)
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.lock().bytes as u64
    }

    /// How many envelopes were dropped in all.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Waits for envelopes, at most `patience` when given, and takes the first of them with the gaps among them: not
    /// all, since while they are written the queue fills again.
    pub(super) fn take(&self, patience: Option<Duration>) -> Taken {
        let mut state = self.lock();
        while state.waiting.is_empty() && state.gaps.is_empty() {
            if state.closed {
                return Taken::Closed;
            }
            if std::mem::take(&mut state.flush) {
                return Taken::Idle;
            }
            state = match patience {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = self.changed.wait_timeout(state, patience);
                    let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out()
                        && state.waiting.is_empty()
                        && state.gaps.is_empty()
                        && !state.closed
                        && !state.flush
                    {
                        return Taken::Idle;
                    }
                    state
                }
            };
        }
        if state.waiting.len() < BATCH && !state.closed {
            let more = |state: &mut State| state.waiting.len() < BATCH && !state.closed;
            let waited = self.changed.wait_timeout_while(state, COLLECT, more);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.taken += 1;
        let count = state.waiting.len().min(BATCH);
        let mut batch: Vec<Arc<Envelope>> = state.waiting.drain(..count).collect();
        state.bytes -= batch.iter().map(|envelope| weight(envelope)).sum::<usize>();
        // those whose place has come
        let next = state.waiting.front().map_or(u64::MAX, |envelope| envelope.seq);
        let (gaps, later) = std::mem::take(&mut state.gaps).into_iter().partition(|(_, gap)| gap.seq < next);
        state.gaps = later;
        drop(state);
        let gaps: BTreeMap<(Origin, &'static str), Gap> = gaps;
        if !gaps.is_empty() {
            batch.extend(gaps.into_iter().map(|((origin, what), gap)| Arc::new(gap.envelope(origin, what))));
            batch.sort_by_key(|envelope| envelope.seq);
        }
        Taken::Batch(batch)
    }
}

impl State {
    fn drop_one(&mut self, envelope: &Envelope, what: &'static str) {
        self.dropped += 1;
        let gap = self.gaps.entry((envelope.origin.clone(), what));
        gap.or_insert(Gap { seq: envelope.seq, at: envelope.at, count: 0 }).count += 1;
    }
}

impl Gap {
    pub(super) fn envelope(&self, origin: Origin, what: &str) -> Envelope {
        let event = Event::Gap { what: what.to_owned(), dropped: self.count };
        Envelope { seq: self.seq, at: self.at, origin, event }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::log_line;
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::log::{LogLine, Stream};
    use crate::domain::run::RunStage;

    fn envelope(seq: u64, event: Event) -> Arc<Envelope> {
        let run = RunId::new(1, 1);
        let origin = match &event {
            Event::ClockSampled { .. } => Origin::Host(HostId::from("a")),
            Event::LogPrinted { .. } => Origin::Rank(run, Rank(0)),
            _ => Origin::Run(run),
        };
        Arc::new(Envelope { seq, at: Stamp(seq as i64), origin, event })
    }

    fn clock(seq: u64) -> Arc<Envelope> {
        let sample = crate::domain::clock_fit::ClockSample {
            host_time: crate::domain::time::HostTime(seq),
            offset_us: 0,
            rtt_us: 1,
        };
        envelope(seq, Event::ClockSampled { sample })
    }

    fn line(seq: u64) -> Arc<Envelope> {
        let line = LogLine { stream: Stream::Stdout, ..log_line(0, String::new()) };
        envelope(seq, Event::LogPrinted { line: Arc::new(line) })
    }

    fn stage(seq: u64) -> Arc<Envelope> {
        envelope(
            seq,
            Event::StageEntered {
                stage: RunStage::Start,
                waiting_for: crate::domain::waiting::Waiting::default(),
            },
        )
    }

    #[test]
    fn what_was_sent_before_the_close_is_still_taken() {
        let queue = Queue::new(1 << 20);
        (0..3).for_each(|seq| queue.send(line(seq)));
        queue.close();
        queue.send(line(3));
        let Taken::Batch(batch) = queue.take(None) else { panic!("nothing came") };
        assert_eq!(batch.len(), 3, "and nothing that was sent behind it");
        assert!(matches!(queue.take(None), Taken::Closed));
    }

    #[test]
    fn a_long_queue_is_taken_in_parts_with_each_gap_in_its_place() {
        let queue = Queue::new(2 * (BATCH * 208 + 2080));
        let lines = BATCH as u64 + 20;
        assert_eq!(queue.backlog(), None);
        (0..lines).for_each(|seq| queue.send(line(seq)));
        assert_eq!(queue.backlog(), Some(0));
        let take = || match queue.take(None) {
            Taken::Batch(batch) => batch.iter().map(|envelope| envelope.seq).collect::<Vec<_>>(),
            _ => panic!("nothing came"),
        };
        assert_eq!(take(), (0..BATCH as u64).collect::<Vec<_>>(), "the gap comes later");
        assert_eq!(queue.backlog(), None);
        queue.send(line(lines));
        // ten lines fit beside them, the gap stands where the eleventh would
        let first = BATCH as u64;
        assert_eq!(take(), (first..=first + 10).chain([lines]).collect::<Vec<_>>());
        assert_eq!(queue.dropped(), 10);
    }

    #[test]
    fn lines_go_first_then_telemetry_and_gaps_take_their_place() {
        let queue = Queue::new(1300);
        (0..4).for_each(|seq| queue.send(line(seq)));
        (4..8).for_each(|seq| queue.send(clock(seq)));
        (8..10).for_each(|seq| queue.send(stage(seq)));
        let Taken::Batch(batch) = queue.take(None) else { panic!("nothing came") };
        let told: Vec<(u64, Option<u64>)> = batch
            .iter()
            .map(|envelope| match &envelope.event {
                Event::Gap { dropped, .. } => (envelope.seq, Some(*dropped)),
                _ => (envelope.seq, None),
            })
            .collect();
        // 208 bytes a line: three fit into half the room; 272 a clock sample: two into the rest of it
        assert_eq!(
            told,
            [
                (0, None),
                (1, None),
                (2, None),
                (3, Some(1)),
                (4, None),
                (5, None),
                (6, Some(2)),
                (8, None),
                (9, None)
            ]
        );
        assert_eq!(queue.dropped(), 3);
        queue.close();
        assert!(matches!(queue.take(None), Taken::Closed));
    }
}
