//! The thread that does staged operations, in the order in which they were begun.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use cudarc::driver::CudaEvent;

use super::super::communicator::Communicator;
use super::super::error::CollectiveError;
use super::device::DeviceRange;
use super::direct::Act;
use super::staging::Staging;
use super::stamps::Timed;

/// The host's communicator, which the thread uses while operations are under way.
pub(super) type Host = Arc<Mutex<Box<dyn Communicator>>>;

/// How an operation ended: its result is there when the event has passed.
pub(super) type Ended = Result<Arc<CudaEvent>, CollectiveError>;

struct Order {
    seq: u64,
    act: Act,
    range: DeviceRange,
    ready: Arc<CudaEvent>,
    reply: Sender<Ended>,
}

enum Command {
    Do(Order),
    /// Says when everything before it has been done.
    Flush(Sender<()>),
}

/// The thread, and what it has timed.
pub(super) struct Queue {
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    timed: Arc<Mutex<VecDeque<Timed>>>,
    pinned: Arc<Mutex<Option<bool>>>,
}

/// Operations whose times are kept until someone asks for them.
const KEPT: usize = 1024;

impl Queue {
    /// Starts the thread.
    pub(super) fn start(staging: Staging, host: Host) -> std::io::Result<Self> {
        let (commands, inbox) = channel();
        let (timed, pinned) = (Arc::default(), Arc::default());
        let mut worker =
            Worker { staging, host, timed: Arc::clone(&timed), pinned: Arc::clone(&pinned), failed: None };
        let name = "gpu-staging".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.run(&inbox))?;
        Ok(Self { commands: Some(commands), thread: Some(thread), timed, pinned })
    }

    /// Begins an operation after `ready`.
    pub(super) fn begin(
        &self,
        seq: u64,
        act: Act,
        range: &DeviceRange,
        ready: Arc<CudaEvent>,
    ) -> Receiver<Ended> {
        let (reply, ended) = channel();
        let order = Order { seq, act, range: range.clone(), ready, reply };
        // Without the thread the reply is dropped, which the receiver sees.
        let _ = self.commands.as_ref().map(|commands| commands.send(Command::Do(order)));
        ended
    }

    /// Waits until all operations that were begun are done by the host.
    pub(super) fn flush(&self) {
        let (reply, done) = channel();
        if self.commands.as_ref().is_some_and(|commands| commands.send(Command::Flush(reply)).is_ok()) {
            let _ = done.recv();
        }
    }

    /// The times of the operations up to `upto`, once.
    pub(super) fn timings(&self, upto: u64) -> Vec<Timed> {
        let mut timed = lock(&self.timed);
        let count = timed.iter().take_while(|one| one.seq <= upto).count();
        timed.drain(..count).collect()
    }

    /// Whether the driver copies directly; `None` before the first operation.
    pub(super) fn is_pinned(&self) -> Option<bool> {
        *lock(&self.pinned)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Ends the thread when it has done what was begun; its waits have the host communicator's deadline.
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    staging: Staging,
    host: Host,
    timed: Arc<Mutex<VecDeque<Timed>>>,
    pinned: Arc<Mutex<Option<bool>>>,
    failed: Option<CollectiveError>,
}

impl Worker {
    fn run(&mut self, inbox: &Receiver<Command>) {
        while let Ok(command) = inbox.recv() {
            match command {
                Command::Flush(reply) => drop(reply.send(())),
                Command::Do(order) => {
                    let ended = self.act(&order);
                    // The range is kept until its last copy has been begun and, in a failure, until all have ended.
                    let _ = order.reply.send(ended);
                }
            }
        }
    }

    fn act(&mut self, order: &Order) -> Ended {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut host = lock(&self.host);
        let host = host.as_mut();
        let done = match order.act {
            Act::Reduce(how) => self.staging.allreduce(host, &order.range, how, &order.ready),
            Act::Broadcast(root) => self.staging.broadcast(host, &order.range, root, &order.ready),
        };
        *lock(&self.pinned) = self.staging.is_pinned();
        match done {
            Ok((event, timing)) => {
                let mut timed = lock(&self.timed);
                if timed.len() == KEPT {
                    timed.pop_front();
                }
                timed.push_back(Timed { seq: order.seq, timing });
                Ok(event)
            }
            Err(error) => {
                self.staging.quiesce();
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

/// A lock whose former holder's panic doesn't matter: what it guards is whole at every moment.
pub(super) fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
