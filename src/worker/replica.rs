//! One rank's copy of the model, wherever it is computed.

use super::error::WorkerError;
use super::task::Batch;
use crate::collective::Communicator;
use crate::domain::timing::StepTiming;

/// What training changes: parameters, and what the optimizer remembers. Equal on all ranks.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct State {
    pub(super) params: Vec<f32>,
    /// Steps that the optimizer has done.
    pub(super) steps: u32,
    /// Its buffers, each as long as the parameters.
    pub(super) memory: Vec<Vec<f32>>,
}

impl State {
    /// Whether each number is one.
    pub(super) fn is_finite(&self) -> bool {
        std::iter::once(&self.params).chain(&self.memory).flatten().all(|value| value.is_finite())
    }
}

/// A step whose numbers are known.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stepped {
    /// Mean loss over all ranks.
    pub(super) loss: f32,
    pub(super) timing: StepTiming,
}

/// One rank's model and its optimizer, where they are: in this machine's memory, or in a GPU's.
pub(super) trait Replica {
    /// Loads a batch, trains on it with all ranks. Returns the steps whose numbers are known by now, in order.
    fn step(&mut self, number: u64, batch: &Batch<'_>, rate: f32) -> Result<Vec<Stepped>, WorkerError>;

    /// The steps that [`Replica::step`] has not returned yet.
    fn drain(&mut self) -> Result<Vec<Stepped>, WorkerError>;

    /// The job's metric over all ranks' shares of what is held out.
    fn evaluate(&mut self) -> Result<f64, WorkerError>;

    /// What training has come to.
    fn state(&mut self) -> Result<State, WorkerError>;

    /// Goes on from this state, which has the shape of [`Replica::state`].
    fn restore(&mut self, state: &State) -> Result<(), WorkerError>;

    /// The ranks, for what is done between steps.
    fn with_ranks(
        &mut self,
        act: &mut dyn FnMut(&mut dyn Communicator) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError>;
}
