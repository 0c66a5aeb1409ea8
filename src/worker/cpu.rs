//! A replica in this machine's memory, trained by its cores.

use super::error::WorkerError;
use super::gradients::{BucketOptions, Gradients};
use super::model::optimizer::Optimizer;
use super::replica::{Replica, State, Stepped};
use super::step::Step;
use super::task::{Batch, Task};
use crate::collective::{Collective, Communicator, Reduce};

/// A job's model on the CPU.
pub(super) struct CpuReplica {
    task: Box<dyn Task>,
    ranks: Box<dyn Communicator>,
    params: Vec<f32>,
    optimizer: Optimizer,
    gradients: Gradients,
}

impl CpuReplica {
    pub(super) fn new(
        task: Box<dyn Task>,
        mut ranks: Box<dyn Communicator>,
        seed: u64,
        bucket_options: BucketOptions,
    ) -> Result<Self, WorkerError> {
        let params = task.initialise(seed);
        let optimizer = Optimizer::new(task.rule(), params.len());
        let gradients = Gradients::new(&task.layers(), bucket_options, &mut *ranks)?;
        Ok(Self { task, ranks, params, optimizer, gradients })
    }
}

impl Replica for CpuReplica {
    fn step(&mut self, number: u64, batch: &Batch<'_>, rate: f32) -> Result<Vec<Stepped>, WorkerError> {
        let mut step = Step::begin(number, &mut *self.ranks, &mut self.gradients, None);
        self.task.load(batch);
        step.loaded();
        let loss = self.task.forward(&self.params) as f32;
        step.forwarded(loss, batch.samples.len());
        self.task.backward(&self.params, &mut step);
        let together = step.reduce()?;
        step.update(&mut self.optimizer, &mut self.params, together, rate);
        let (timing, _) = step.finish();
        Ok(vec![Stepped { loss: together.loss, timing }])
    }

    fn drain(&mut self) -> Result<Vec<Stepped>, WorkerError> {
        Ok(Vec::new())
    }

    fn evaluate(&mut self) -> Result<f64, WorkerError> {
        let score = self.task.evaluate(&self.params, self.ranks.rank(), self.ranks.world());
        let mut sums = [score.sum, score.count as f64];
        self.ranks.allreduce(&mut sums, Reduce::Sum)?;
        Ok(sums[0] / sums[1])
    }

    fn state(&mut self) -> Result<State, WorkerError> {
        let (steps, memory) = self.optimizer.memory();
        Ok(State { params: self.params.clone(), steps, memory: memory.to_vec() })
    }

    fn restore(&mut self, state: &State) -> Result<(), WorkerError> {
        if state.params.len() == self.params.len() && self.optimizer.recall(state.steps, &state.memory) {
            self.params.copy_from_slice(&state.params);
        }
        Ok(())
    }

    fn with_ranks(
        &mut self,
        act: &mut dyn FnMut(&mut dyn Communicator) -> Result<(), WorkerError>,
    ) -> Result<(), WorkerError> {
        act(&mut *self.ranks)
    }
}
