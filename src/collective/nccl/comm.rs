//! A communicator of NCCL: joined, watched, left or given up, always with a deadline.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::super::deadline::Clock;
use super::device::{Block, Device};
use super::error::{NcclError, cuda};
use super::library::{Config, IN_PROGRESS, Library, RawComm, SUCCESS, UniqueId};
use super::life::{Answer, Life, Next, Stage, Why};

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Meeting the other ranks. Shorter than the deadline of the host's communicator, which must not give up meanwhile.
    pub join: Duration,
    /// One operation, from when the GPU has come to it.
    pub operation: Duration,
    /// Giving a communicator up, or leaving it.
    pub end: Duration,
}

impl Limits {
    /// What fits beside a host's communicator with this deadline.
    pub fn within(deadline: Duration) -> Self {
        Self { join: deadline * 3 / 4, operation: deadline, end: Duration::from_secs(10) }
    }
}

/// This rank's place in its communicator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub(super) rank: u32,
    pub(super) world: u32,
}

/// The communicator. One thread uses it at a time.
pub(super) struct Comm {
    library: Arc<Library>,
    raw: RawComm,
    clock: Clock,
    limits: Limits,
    /// It is gone: left, given up, or hung.
    ended: bool,
    /// What is registered, with the library's handle. Kept here so that no memory is freed under a registration.
    registered: Vec<(Arc<Block>, *mut c_void)>,
    device: Device,
}

#[expect(unsafe_code, reason = "raw handles of a C library")]
// SAFETY: NCCL binds a communicator to a device, not to a thread; `&mut` keeps calls apart.
unsafe impl Send for Comm {}

impl Comm {
    /// Meets the other ranks at `id`. Returns when all have come, or with why not.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn join(
        library: Arc<Library>,
        device: &Device,
        id: UniqueId,
        seat: Seat,
        clock: Clock,
        limits: Limits,
    ) -> Result<Self, NcclError> {
        const WHAT: &str = "join the communicator";
        device.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        let mut raw: RawComm = std::ptr::null_mut();
        let mut config = Config::polled();
        // SAFETY: the pointers outlive the call, which copies the configuration; the device's context is current, as
        // NCCL's runtime wants it.
        let code = unsafe {
            (library.init_rank)(&raw mut raw, seat.world as c_int, id, seat.rank as c_int, &raw mut config)
        };
        if raw.is_null() {
            return Err(library.refused(WHAT, code, raw));
        }
        let device = device.clone();
        let mut comm = Self { library, raw, clock, limits, ended: false, registered: Vec::new(), device };
        comm.wait_ready(WHAT, Stage::Joining, limits.join, code)?;
        Ok(comm)
    }

    /// For the calls of operations.
    pub(super) fn raw(&self) -> RawComm {
        self.raw
    }

    pub(super) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn now(&self) -> u64 {
        (self.clock)().0
    }

    #[expect(unsafe_code, reason = "a call of a C library")]
    fn answer(&self) -> Answer {
        let mut state = SUCCESS;
        // SAFETY: a living communicator; writes one int to a pointer that outlives the call.
        let code = unsafe { (self.library.async_error)(self.raw, &raw mut state) };
        answer(if code == SUCCESS { state } else { code })
    }

    /// Waits until a call that returned `code` has done what it was for.
    pub(super) fn wait_ready(
        &mut self,
        what: &'static str,
        stage: Stage,
        limit: Duration,
        code: c_int,
    ) -> Result<(), NcclError> {
        let mut life = Life::begin(stage, self.now(), micros(limit));
        // Joining is over when the communicator says so, whatever the call returned.
        let mut said = if code == SUCCESS && stage == Stage::Joining { self.answer() } else { answer(code) };
        loop {
            match life.answer(self.now(), said) {
                Next::Done => return Ok(()),
                Next::Wait(pause) => std::thread::sleep(Duration::from_micros(pause)),
                Next::Abort(why) => return Err(self.abort(self.because(what, why, limit))),
                // Only of an abort, which has a loop of its own.
                Next::Hung => return Err(NcclError::Ended),
            }
            said = self.answer();
        }
    }

    /// Whether what runs in the background has failed meanwhile.
    pub(super) fn check(&mut self, what: &'static str) -> Result<(), NcclError> {
        if self.ended {
            return Err(NcclError::Ended);
        }
        match self.answer() {
            Answer::Done | Answer::InProgress => Ok(()),
            Answer::Failed(code) => Err(self.abort(self.because(what, Why::Code(code), Duration::ZERO))),
        }
    }

    fn because(&self, what: &'static str, why: Why, limit: Duration) -> NcclError {
        match why {
            Why::Code(code) => self.library.refused(what, code, self.raw),
            Why::Late => NcclError::Late { what, seconds: limit.as_secs() },
        }
    }

    /// Gives the communicator up because of `why`, in a thread of its own: aborts are known to hang. What is in flight on
    /// the GPU is stopped by it.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn abort(&mut self, why: NcclError) -> NcclError {
        if std::mem::replace(&mut self.ended, true) {
            return why;
        }
        let hung = |why| NcclError::Hung { why: Box::new(why), seconds: self.limits.end.as_secs() };
        let (sender, done) = channel();
        let (library, raw, device) = (Arc::clone(&self.library), self.raw as usize, self.device.clone());
        let thread = std::thread::Builder::new().name("nccl-abort".to_owned()).spawn(move || {
            // Without a context the abort still stops NCCL's own threads.
            let _ = device.context().bind_to_thread();
            // SAFETY: `ended` is set, so that this is the last call that gets this communicator.
            let code = unsafe { (library.abort)(raw as RawComm) };
            let _ = sender.send(code);
        });
        if thread.is_err() {
            return hung(why);
        }
        let mut life = Life::begin(Stage::Aborting, self.now(), micros(self.limits.end));
        let mut said = Answer::InProgress;
        loop {
            match life.answer(self.now(), said) {
                Next::Wait(pause) => {
                    said = match done.recv_timeout(Duration::from_micros(pause)) {
                        Ok(code) => answer(code),
                        Err(RecvTimeoutError::Timeout) => Answer::InProgress,
                        Err(RecvTimeoutError::Disconnected) => Answer::Done,
                    }
                }
                Next::Done | Next::Abort(_) => {
                    self.registered.clear();
                    return why;
                }
                Next::Hung => {
                    // What hangs may still use the memory: it stays until the process ends.
                    std::mem::forget(std::mem::take(&mut self.registered));
                    return hung(why);
                }
            }
        }
    }

    /// Memory that operations work on without a copy, where the library has that, and whether they do. Either all ranks then
    /// use it as registered, or [`Comm::unregister`] is called on those where they do: a mixture is undefined.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(Arc<Block>, bool), NcclError> {
        const WHAT: &str = "register memory";
        self.check(WHAT)?;
        let Some(by) = self.library.registering else {
            return Ok((Arc::new(Block::plain(&self.device, bytes)?), false));
        };
        let block = Arc::new(Block::of_nccl(&self.device, &self.library, by, bytes)?);
        let mut handle = std::ptr::null_mut();
        // SAFETY: a living communicator, and memory that `registered` keeps for as long as it lives.
        let code =
            unsafe { (by.register)(self.raw, block.start() as *mut c_void, bytes.max(1), &raw mut handle) };
        if !matches!(answer(code), Answer::Done | Answer::InProgress) {
            // It works without, only slower.
            return Ok((block, false));
        }
        self.registered.push((Arc::clone(&block), handle));
        self.wait_ready(WHAT, Stage::Ready, self.limits.operation, code)?;
        Ok((block, true))
    }

    /// Takes the registration of `block` back.
    #[expect(unsafe_code, reason = "a call of a C library")]
    pub(super) fn unregister(&mut self, block: &Arc<Block>) -> Result<(), NcclError> {
        const WHAT: &str = "give a registration back";
        let Some(at) = self.registered.iter().position(|(known, _)| Arc::ptr_eq(known, block)) else {
            return Ok(());
        };
        let (_, handle) = self.registered.swap_remove(at);
        // SAFETY: a handle of this living communicator, given back once.
        let code =
            self.library.registering.map_or(SUCCESS, |by| unsafe { (by.deregister)(self.raw, handle) });
        self.wait_ready(WHAT, Stage::Ready, self.limits.operation, code)
    }

    /// Waits until nothing is in flight on any rank, and frees the communicator.
    #[expect(unsafe_code, reason = "calls of a C library")]
    pub(super) fn finalize(mut self) -> Result<(), NcclError> {
        const WHAT: &str = "leave the communicator";
        if self.ended {
            return Err(NcclError::Ended);
        }
        self.device.context().bind_to_thread().map_err(cuda("use the GPU"))?;
        if let Some(by) = self.library.registering {
            for (_, handle) in &self.registered {
                // SAFETY: a handle of this communicator, given back once. A refusal changes nothing: the rest frees it.
                let _ = unsafe { (by.deregister)(self.raw, *handle) };
            }
        }
        // SAFETY: a living communicator with nothing to be settled.
        let code = unsafe { (self.library.finalize)(self.raw) };
        self.wait_ready(WHAT, Stage::Finalizing, self.limits.end, code)?;
        self.ended = true;
        // SAFETY: finalised, and not used again: `ended` is set.
        let code = unsafe { (self.library.destroy)(self.raw) };
        self.registered.clear();
        match answer(code) {
            Answer::Done | Answer::InProgress => Ok(()),
            Answer::Failed(code) => Err(self.library.refused(WHAT, code, std::ptr::null_mut())),
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.abort(NcclError::Ended);
        }
    }
}

fn answer(code: c_int) -> Answer {
    match code {
        SUCCESS => Answer::Done,
        IN_PROGRESS => Answer::InProgress,
        other => Answer::Failed(other),
    }
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
