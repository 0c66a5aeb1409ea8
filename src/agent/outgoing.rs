//! What waits to be sent, in four lanes: pongs, control messages, the newest telemetry sample, run data.
//!
//! A lane is served only when those before it are empty. Each is bounded: run data waits for room and for the
//! client's credit, so that its reader never runs ahead of the link and what comes after it is not kept waiting; samples replace each other and are counted; pongs that are
//! of no use any more are forgotten.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::AgentError;
use crate::clock;
use crate::domain::host::HostSample;
use crate::domain::time::{HostTime, Stamp};
use crate::wire::message::{FromAgent, Pong, Sampled};

/// Control messages that may wait.
const CONTROL_ROOM: usize = 64;
/// Pieces of run data that may wait: 64 KiB of logs.
const DATA_ROOM: usize = 4;
/// Between two looks of a thread that waits for room.
const LOOK: Duration = Duration::from_millis(20);
/// Pongs that may wait.
const PONG_ROOM: usize = 16;

/// Puts messages into the lanes.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    urgent: Arc<Urgent>,
    control: mpsc::Sender<FromAgent>,
    data: mpsc::Sender<FromAgent>,
}

/// Takes messages out of the lanes.
#[derive(Debug)]
pub(super) struct Queue {
    urgent: Arc<Urgent>,
    control: mpsc::Receiver<FromAgent>,
    data: mpsc::Receiver<FromAgent>,
    /// Bytes of files that were sent.
    sent: u64,
}

/// The lanes in which nothing waits for room.
#[derive(Debug, Default)]
struct Urgent {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    pongs: VecDeque<(Stamp, HostTime)>,
    sample: Option<Sampled>,
    /// Bytes of files that may be sent, from the link's beginning; any number for a client that never says.
    credit: Option<u64>,
}

impl Urgent {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Empty lanes.
pub(super) fn lanes() -> (Outgoing, Queue) {
    let urgent = Arc::new(Urgent::default());
    let (control, control_out) = mpsc::channel(CONTROL_ROOM);
    let (data, data_out) = mpsc::channel(DATA_ROOM);
    (
        Outgoing { urgent: Arc::clone(&urgent), control, data },
        Queue { urgent, control: control_out, data: data_out, sent: 0 },
    )
}

impl Outgoing {
    /// Answers a ping that was read at `read`.
    pub(super) fn pong(&self, t0: Stamp, read: HostTime) {
        let mut waiting = self.urgent.lock();
        if waiting.pongs.len() == PONG_ROOM {
            waiting.pongs.pop_front();
        }
        waiting.pongs.push_back((t0, read));
        drop(waiting);
        self.urgent.wake.notify_one();
    }

    /// Puts a sample in the place of one that still waits.
    pub(super) fn sample(&self, sample: HostSample) {
        let mut waiting = self.urgent.lock();
        let dropped = waiting.sample.take().map_or(0, |old| old.dropped + 1);
        waiting.sample = Some(Sampled { sample, dropped });
        drop(waiting);
        self.urgent.wake.notify_one();
    }

    /// Lets run data go on until so many bytes were sent.
    pub(super) fn credit(&self, until: u64) {
        let mut waiting = self.urgent.lock();
        waiting.credit = waiting.credit.max(Some(until));
        drop(waiting);
        self.urgent.wake.notify_one();
    }

    /// Sends a control message; waits for room. `false` when the link is gone.
    pub(super) async fn control(&self, message: FromAgent) -> bool {
        self.control.send(message).await.is_ok()
    }

    /// [`Self::control`] for a thread.
    pub(super) fn control_blocking(&self, message: FromAgent) -> bool {
        self.control.blocking_send(message).is_ok()
    }

    /// Sends run data, in order, from a thread; waits for room. `false` when the link is gone.
    pub(super) fn data_blocking(&self, message: FromAgent) -> bool {
        self.data.blocking_send(message).is_ok()
    }

    /// [`Self::data_blocking`] which calls `look` again and again while there is no room.
    pub(super) fn data_looking(&self, message: FromAgent, mut look: impl FnMut()) -> bool {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut room = pin!(self.data.reserve());
        loop {
            match room.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(Ok(room)) => {
                    room.send(message);
                    return true;
                }
                Poll::Ready(Err(_)) => return false,
                Poll::Pending => {
                    thread::park_timeout(LOOK);
                    look();
                }
            }
        }
    }

    /// Whether the link is gone.
    pub(super) fn closed(&self) -> bool {
        self.data.is_closed()
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Queue {
    /// Writes messages as they come, until the link fails.
    pub(super) async fn write_to(mut self, mut writer: impl AsyncWrite + Unpin) -> Result<(), AgentError> {
        let mut bytes = BytesMut::new();
        loop {
            let message = self.next().await;
            bytes.clear();
            message.encode(&mut bytes)?;
            writer.write_all(&bytes).await?;
            writer.flush().await?;
        }
    }

    /// The next message, that of the most urgent lane first.
    pub(super) async fn next(&mut self) -> FromAgent {
        loop {
            if let Some((t0, t1)) = self.urgent.lock().pongs.pop_front() {
                return FromAgent::Pong(Pong { t0, t1, t2: clock::host_now() });
            }
            if let Ok(message) = self.control.try_recv() {
                return message;
            }
            if let Some(sample) = self.urgent.lock().sample.take() {
                return FromAgent::Sample(Box::new(sample));
            }
            let credit = self.urgent.lock().credit.is_none_or(|until| self.sent < until);
            tokio::select! {
                biased;
                () = self.urgent.wake.notified() => {}
                Some(message) = self.control.recv() => return message,
                Some(message) = self.data.recv(), if credit => {
                    self.sent += match &message {
                        FromAgent::Chunk(chunk) => chunk.data.len() as u64,
                        FromAgent::TracePiece(piece) => piece.data.len() as u64,
                        FromAgent::PastSamples(samples) => samples.data.len() as u64,
                        _ => 0,
                    };
                    return message;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_sample;
    use crate::domain::gpu::Reading;
    use crate::domain::ids::{HostId, Rank, RunId};
    use crate::domain::log::Stream;
    use crate::wire::chunk::Chunk;
    use crate::wire::message::RunRef;

    fn sample(cpu: f32) -> HostSample {
        HostSample { cpu_percent: Reading::Value(cpu), ..host_sample() }
    }

    fn about(run: u64) -> RunRef {
        RunRef { run: RunId::new(run, 0), host: HostId::from("a") }
    }

    #[tokio::test]
    async fn lanes_are_served_by_importance_and_samples_coalesce() {
        let (out, mut queue) = lanes();
        let data = out.clone();
        std::thread::spawn(move || assert!(data.data_blocking(FromAgent::Finished(about(1)))))
            .join()
            .unwrap();
        out.sample(sample(1.0));
        out.sample(sample(2.0));
        out.sample(sample(3.0));
        assert!(out.control(FromAgent::Started(about(2))).await);
        out.pong(Stamp(7), HostTime(8));
        assert!(matches!(queue.next().await, FromAgent::Pong(Pong { t0: Stamp(7), t1: HostTime(8), .. })));
        assert_eq!(queue.next().await, FromAgent::Started(about(2)));
        let newest = Sampled { sample: sample(3.0), dropped: 2 };
        assert_eq!(queue.next().await, FromAgent::Sample(Box::new(newest)));
        assert_eq!(queue.next().await, FromAgent::Finished(about(1)));
        out.sample(sample(4.0));
        let next = Sampled { sample: sample(4.0), dropped: 0 };
        assert_eq!(queue.next().await, FromAgent::Sample(Box::new(next)));
    }

    #[tokio::test]
    async fn run_data_waits_for_credit_and_nothing_else_does() {
        let (out, mut queue) = lanes();
        let chunk = |offset| {
            FromAgent::Chunk(Chunk {
                run: RunId::new(1, 0),
                rank: Rank(0),
                stream: Stream::Stdout,
                offset,
                data: vec![b'x'; 1000].into(),
            })
        };
        out.credit(1500);
        out.credit(1200);
        for offset in [0, 1000, 2000] {
            assert!(out.data.try_send(chunk(offset)).is_ok());
        }
        assert_eq!(queue.next().await, chunk(0));
        assert_eq!(queue.next().await, chunk(1000));
        out.sample(sample(1.0));
        assert!(out.control(FromAgent::Started(about(2))).await);
        assert_eq!(queue.next().await, FromAgent::Started(about(2)));
        assert!(matches!(queue.next().await, FromAgent::Sample(_)));
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), queue.next()).await;
        assert!(waits.is_err(), "{waits:?}");
        out.credit(2001);
        assert_eq!(queue.next().await, chunk(2000));
    }

    #[tokio::test]
    async fn who_waits_for_room_looks_meanwhile() {
        let (out, mut queue) = lanes();
        for run in 0..DATA_ROOM as u64 {
            assert!(out.data_looking(FromAgent::Finished(about(run)), || panic!("there is room")));
        }
        let (out, other) = (out.clone(), out);
        let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let waiting = std::thread::spawn(move || {
            out.data_looking(FromAgent::Finished(about(9)), || {
                let _ = looked.send(());
            })
        });
        for _ in 0..3 {
            looks.recv().await.unwrap();
        }
        assert_eq!(queue.next().await, FromAgent::Finished(about(0)));
        for run in (1..DATA_ROOM as u64).chain([9]) {
            assert_eq!(queue.next().await, FromAgent::Finished(about(run)));
        }
        assert!(waiting.join().unwrap());
        drop(queue);
        assert!(!other.data_looking(FromAgent::Finished(about(10)), || ()));
    }

    #[tokio::test]
    async fn run_data_waits_for_room() {
        let (out, mut queue) = lanes();
        for run in 0..DATA_ROOM as u64 {
            assert!(out.data.try_send(FromAgent::Finished(about(run))).is_ok());
        }
        assert!(out.data.try_send(FromAgent::Finished(about(9))).is_err());
        assert_eq!(queue.next().await, FromAgent::Finished(about(0)));
        assert!(out.data.try_send(FromAgent::Finished(about(9))).is_ok());
        drop(queue);
        assert!(out.closed());
    }
}
