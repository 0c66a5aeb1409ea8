//! One operation under way: what is to be done, and whom to ask when a rank is waited for.

use std::ops::Range;

use super::communicator::chunk;
use super::config::GroupConfig;
use super::connect::Layout;
use super::control::Cause;
use super::error::CollectiveError;
use super::failure_detector::{Failure, FailureDetector, Wait};
use super::op::{OpId, OpKind};
use super::shm::{BarrierError, Lives, Look};
use super::tcp::{Broken, DeadlineState, Fold};

/// What is to be done with the values, once all have entered the barrier.
#[derive(Clone, Copy)]
pub(super) struct Task {
    pub(super) op: OpId,
    /// Of one value, and how they are reduced; a way that is not used for what is not reduced.
    pub(super) fold: Fold,
}

impl Task {
    /// The chunk of a rank, in bytes.
    pub(super) fn chunk(self, rank: usize, world: usize) -> Range<usize> {
        let (values, size) = (chunk(rank, world, self.op.len as usize), self.fold.dtype.size());
        values.start * size..values.end * size
    }

    /// The bytes, of `len` in all, that a rank brings.
    pub(super) fn brought(self, rank: usize, world: usize, len: usize) -> Range<usize> {
        match self.op.kind {
            OpKind::Allgather { .. } => self.chunk(rank, world),
            OpKind::Broadcast { root, .. } if root as usize != rank => 0..0,
            _ => 0..len,
        }
    }
}

/// What the parts of an operation need.
pub(super) struct Job<'a> {
    pub(super) config: &'a GroupConfig,
    pub(super) layout: &'a Layout,
    detector: &'a mut FailureDetector,
    lives: Option<&'a Lives>,
    /// Places of the host that had gone when this rank last looked.
    gone: Vec<usize>,
    wait: Wait,
}

impl<'a> Job<'a> {
    /// One that begins now.
    pub(super) fn new(
        op: OpId,
        config: &'a GroupConfig,
        layout: &'a Layout,
        detector: &'a mut FailureDetector,
        lives: Option<&'a Lives>,
    ) -> Self {
        Self { config, layout, detector, lives, gone: Vec::new(), wait: Wait::new(op) }
    }

    /// The ranks at these places of this rank's host.
    fn name(&self, places: &[usize]) -> Vec<u32> {
        let (host, _) = self.layout.place(self.config.rank);
        places.iter().map(|place| self.layout.hosts[host][*place]).collect()
    }

    fn report_failure(&mut self, failure: Failure) -> CollectiveError {
        self.detector.report_failure(self.config, &self.wait, failure)
    }

    pub(super) fn barrier_failed(&mut self, error: BarrierError) -> CollectiveError {
        match error {
            BarrierError::Failed(error) => error,
            BarrierError::Unmapped(error) => self.config.system("reach the memory of another rank")(error),
            BarrierError::Garbled(place) => {
                let what = "a place outside of its shared memory".to_owned();
                let about = self.name(&[place])[0];
                self.report_failure(Failure { what, ..Failure::of(about, Cause::Garbled) })
            }
            BarrierError::Diverged(place, theirs) => {
                let about = self.name(&[place])[0];
                let seq = self.wait.op.seq;
                let theirs = OpKind::from_code(theirs.kind).map(|kind| OpId { kind, seq, len: theirs.len });
                match theirs {
                    Some(theirs) => self.report_failure(Failure {
                        theirs: Some(theirs),
                        ..Failure::of(about, Cause::Diverged)
                    }),
                    None => self.report_failure(Failure {
                        what: "no operation".to_owned(),
                        ..Failure::of(about, Cause::Garbled)
                    }),
                }
            }
        }
    }

    pub(super) fn broken(&mut self, broken: Broken) -> CollectiveError {
        use super::tcp::PeerFaultKind as What;
        let fault = match broken {
            Broken::Told(error) => return error,
            Broken::PeerFault(fault) => fault,
        };
        self.wait.progress = fault.progress;
        let (cause, theirs, what) = match fault.kind {
            What::Lost => (Cause::Lost, None, String::new()),
            What::Stuck => (Cause::Stuck, None, String::new()),
            What::Garbled(what) => (Cause::Garbled, None, what),
            What::Diverged(theirs) => (Cause::Diverged, Some(theirs), String::new()),
        };
        self.report_failure(Failure { about: fault.about, more: Vec::new(), cause, theirs, what })
    }

    /// Time for the next part begins now.
    pub(super) fn renew(&mut self) {
        self.wait.deadline = None;
        self.wait.late = false;
        self.wait.all_entered = true;
    }

    pub(super) fn tick(&mut self) -> Result<DeadlineState, CollectiveError> {
        let late = self.detector.look(self.config, &mut self.wait)?;
        Ok(if late { DeadlineState::Passed } else { DeadlineState::NotReached })
    }
}

impl Look for Job<'_> {
    fn look(&mut self, missing: &[usize]) -> Result<(), CollectiveError> {
        let late = self.detector.look(self.config, &mut self.wait)?;
        // Who had gone at the last look, and is still missed, did not come before it went.
        if let Some(place) = missing.iter().find(|place| self.gone.contains(place)) {
            let about = self.name(&[*place])[0];
            return Err(self.report_failure(Failure::of(about, Cause::Lost)));
        }
        if let Some(lives) = self.lives {
            self.gone.clear();
            self.gone.extend(missing.iter().copied().filter(|place| lives.is_gone(*place)));
        }
        let about = self.name(missing);
        if !late || about.is_empty() {
            return Ok(());
        }
        Err(self.report_failure(Failure { more: about[1..].to_vec(), ..Failure::of(about[0], Cause::Stuck) }))
    }
}
