//! One step of a data-parallel job: its phases, its gradients on their way, and what the ranks have together.

use std::ops::Range;

use super::error::WorkerError;
use super::gradients::Gradients;
use super::model::optimizer::{Optimizer, StepSize};
use super::model::sink::Sink;
use super::report::Reporter;
use super::stopwatch::Stopwatch;
use crate::collective::{Collective, CollectiveError, Communicator};
use crate::domain::report::Report;
use crate::domain::timing::{Phase, StepTiming};

/// A step under way. Its methods are called in this order: [`Step::loaded`], [`Step::forwarded`], for each layer from the
/// last to the first [`Sink::at`] and [`Sink::ready`], [`Step::reduce`], [`Step::update`], [`Step::done`]. Each ends a
/// phase, so that the phases make up the whole step.
pub struct Step<'a> {
    number: u64,
    ranks: &'a mut dyn Communicator,
    gradients: &'a mut Gradients,
    reporter: Option<&'a mut Reporter>,
    watch: Stopwatch,
    /// This rank's sum of losses, and its samples.
    own: (f32, usize),
    /// What went wrong when a bucket was to leave.
    failed: Option<CollectiveError>,
}

/// What the ranks have together after [`Step::reduce`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Together {
    /// Mean loss of a sample, over all ranks.
    pub loss: f32,
    /// Samples of all ranks.
    pub samples: f32,
}

impl<'a> Step<'a> {
    /// Begins now, with gradients of zero.
    pub(super) fn begin(
        number: u64,
        ranks: &'a mut dyn Communicator,
        gradients: &'a mut Gradients,
        reporter: Option<&'a mut Reporter>,
    ) -> Self {
        let watch = Stopwatch::start();
        gradients.clear();
        Self { number, ranks, gradients, reporter, watch, own: (0.0, 0), failed: None }
    }

    /// The batch is ready.
    pub fn loaded(&mut self) {
        self.watch.end(Phase::Data);
    }

    /// The forward pass is over: the sum of this rank's losses, over so many samples. A rank may have none: gradients are
    /// sums over samples, and only the sum over all ranks is divided.
    pub fn forwarded(&mut self, loss: f32, samples: usize) {
        self.own = (loss, samples);
        if let Some(totals) = self.gradients.totals() {
            *totals = [loss, samples as f32];
        }
        self.watch.end(Phase::Forward);
    }

    /// The backward pass is over. Returns when all gradients are summed up over all ranks.
    ///
    /// # Errors
    /// When the ranks can't work together any more, or a loss is not a number.
    pub fn reduce(&mut self) -> Result<Together, WorkerError> {
        self.watch.end(Phase::Backward);
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let timings = self.gradients.collect(self.ranks)?;
        self.watch.end_operations(&timings);
        let [loss, samples] = self.gradients.totals().copied().unwrap_or_default();
        if loss.is_finite() {
            Ok(Together { loss: loss / samples, samples })
        } else {
            Err(self.diverged(loss))
        }
    }

    /// Whose loss is not a number. All ranks come here together, for all have the same sum.
    fn diverged(&mut self, loss: f32) -> WorkerError {
        let (rank, world) = (self.ranks.rank() as usize, self.ranks.world() as usize);
        let mut losses = vec![0.0; world];
        losses[rank] = self.own.0;
        if let Err(error) = self.ranks.allgather(&mut losses) {
            return error.into();
        }
        let culprits: Vec<u32> =
            (0..).zip(&losses).filter(|(_, loss)| !loss.is_finite()).map(|(rank, _)| rank).collect();
        WorkerError::Diverged { ranks: culprits, loss, step: self.number }
    }

    /// Each part of the parameters with its gradient, which after [`Step::reduce`] is the sum over all samples.
    pub fn parts(&mut self) -> impl Iterator<Item = (Range<usize>, &[f32])> {
        self.gradients.parts()
    }

    /// Moves the parameters along the mean gradient.
    pub fn update(&mut self, optimizer: &mut Optimizer, params: &mut [f32], together: Together, rate: f32) {
        optimizer.begin();
        let step_size = StepSize { learning_rate: rate, gradient_scale: 1.0 / together.samples };
        for (range, gradient) in self.gradients.parts() {
            optimizer.update(range.start, &mut params[range], gradient, step_size);
        }
    }

    /// The step is over: where its time went.
    pub(super) fn finish(mut self) -> (StepTiming, Option<&'a mut Reporter>) {
        self.watch.end(Phase::Optimizer);
        let (loss, samples) = self.own;
        // A rank reports the loss of its own part: that one rank's differs is worth seeing.
        let mean = (samples > 0).then(|| loss / samples as f32);
        (self.watch.finish(self.number, mean, samples), self.reporter)
    }

    /// The step is over, and reported.
    ///
    /// # Errors
    /// When the report file can't be written.
    pub fn done(self) -> Result<StepTiming, WorkerError> {
        let (timing, reporter) = self.finish();
        if let Some(reporter) = reporter {
            reporter.report(&Report::from_step(&timing))?;
        }
        Ok(timing)
    }
}

impl Sink<f32> for Step<'_> {
    fn at(&mut self, layer: usize) -> &mut [f32] {
        self.gradients.layer(layer)
    }

    fn ready(&mut self, layer: usize) {
        if self.failed.is_none() {
            self.failed = self.gradients.ready(layer, self.ranks).err();
        }
    }
}
