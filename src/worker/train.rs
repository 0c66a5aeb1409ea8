//! The training loop, the same for every job: load, forward, backward, sum over ranks, step.
//!
//! One allreduce a step carries the summed gradient, the summed loss and the number of samples, so that a batch that
//! does not divide evenly is weighted rightly. Every rank starts from rank 0's weights and applies the same sums in the
//! same order: the weights stay bit-equal.

use std::io::Write;

use ring::digest;

use super::TrainOptions;
use super::env::RankEnv;
use super::error::WorkerError;
use super::flight;
use super::group;
use super::model::dropout::hash;
use super::report::Reporter;
use super::sampler;
use super::stopwatch::Stopwatch;
use super::task::{Batch, Task};
use crate::collective::{Buffer, Collective, Communicator, Reduce};
use crate::domain::report::Report;
use crate::domain::timing::Phase;

/// The plan of a run: options with the job's defaults filled in.
struct Schedule {
    epochs: u32,
    batch: usize,
    rate: f32,
    seed: u64,
}

impl Schedule {
    fn new(options: &TrainOptions, task: &dyn Task) -> Result<Self, WorkerError> {
        let defaults = task.defaults();
        let schedule = Self {
            epochs: options.epochs.unwrap_or(defaults.epochs),
            batch: options.batch.unwrap_or(defaults.batch),
            rate: options.lr.unwrap_or(defaults.rate),
            seed: options.seed,
        };
        if schedule.epochs == 0 {
            return Err(WorkerError::Option { option: "--epochs", must_be: "at least 1" });
        }
        if schedule.batch == 0 {
            return Err(WorkerError::Option { option: "--batch", must_be: "at least 1" });
        }
        if !(schedule.rate > 0.0 && schedule.rate.is_finite()) {
            return Err(WorkerError::Option { option: "--lr", must_be: "a number above 0" });
        }
        Ok(schedule)
    }

    fn total_steps(&self, samples: usize) -> u64 {
        u64::from(self.epochs) * samples.div_ceil(self.batch) as u64
    }
}

/// Trains `task` as the rank that `env` describes.
pub(super) fn train(
    options: &TrainOptions,
    mut task: Box<dyn Task>,
    env: &RankEnv,
    out: &mut dyn Write,
) -> Result<(), WorkerError> {
    let schedule = Schedule::new(options, &*task)?;
    let mut reporter = Reporter::open(env.report.as_deref())?;
    let total_steps = schedule.total_steps(task.samples());
    reporter.report(&Report::Hello {
        job: task.name().to_owned(),
        transport: None,
        total_steps: Some(total_steps),
    })?;
    let mut ranks = group::join(env, &mut reporter, out)?;
    // Which way the bytes go is known once all have met.
    reporter.report(&Report::Hello {
        job: task.name().to_owned(),
        transport: Some(ranks.transport().name().to_owned()),
        total_steps: Some(total_steps),
    })?;
    let params = task.initialise(schedule.seed);
    let place = env.place.as_deref().map(|place| format!(" on {place}")).unwrap_or_default();
    let (rank, world, transport) = (ranks.rank(), ranks.world(), ranks.transport());
    say(
        out,
        format_args!(
            "{} rank {rank} of {world}{place} transport {transport} parameters {} steps {total_steps}",
            task.name(),
            params.len()
        ),
    )?;
    let outcome = steps(&schedule, &mut *task, params, &mut *ranks, &mut reporter, out);
    if let Err(WorkerError::Collective(error)) = &outcome {
        flight::keep(&mut *ranks, error, env.report.as_deref(), out)?;
    }
    let weights = hash_of(&outcome?);
    say(out, format_args!("weights sha256 {weights}"))?;
    reporter.report(&Report::Done { weights: Some(weights) })
}

/// All steps, from rank 0's parameters on; the parameters after the last.
fn steps(
    schedule: &Schedule,
    task: &mut dyn Task,
    mut params: Vec<f32>,
    ranks: &mut dyn Communicator,
    reporter: &mut Reporter,
    out: &mut dyn Write,
) -> Result<Vec<f32>, WorkerError> {
    ranks.broadcast(0, &mut params)?;
    let mut loop_state = Loop {
        optimizer: task.optimizer(schedule.rate, params.len()),
        sums: ranks.buffer(params.len() + 2)?,
        step: 0,
        params,
    };
    for epoch in 0..schedule.epochs {
        let loss = loop_state.epoch(epoch, schedule, task, ranks, reporter)?;
        let score = loop_state.evaluate(task, ranks)?;
        if ranks.rank() == 0 {
            let (name, step) = (task.metric(), loop_state.step);
            reporter.report(&Report::Metric { name: name.to_owned(), value: score, step: Some(step) })?;
            // A job with one step an epoch would say hundreds of lines.
            let every = schedule.epochs.div_ceil(60);
            if (epoch + 1) % every == 0 || epoch + 1 == schedule.epochs {
                say(out, format_args!("epoch {} step {step} loss {loss:.4} {name} {score:.4}", epoch + 1))?;
            }
        }
    }
    Ok(loop_state.params)
}

struct Loop {
    params: Vec<f32>,
    optimizer: super::model::optimizer::Optimizer,
    /// What one allreduce carries: the gradient, the loss, the number of samples.
    sums: Buffer<f32>,
    step: u64,
}

impl Loop {
    /// Trains on every sample once; the mean loss of the last step.
    fn epoch(
        &mut self,
        epoch: u32,
        schedule: &Schedule,
        task: &mut dyn Task,
        ranks: &mut dyn Communicator,
        reporter: &mut Reporter,
    ) -> Result<f32, WorkerError> {
        let order = sampler::permutation(task.samples(), schedule.seed, epoch);
        let len = self.params.len();
        let mut last = f32::NAN;
        for batch in order.chunks(schedule.batch) {
            self.step += 1;
            let mut watch = Stopwatch::start();
            let own = sampler::share(batch.len(), ranks.rank(), ranks.world());
            let samples = &batch[own.clone()];
            task.load(&Batch { samples, first: own.start, seed: hash(schedule.seed, self.step) });
            self.sums.fill(0.0);
            watch.end(Phase::Data);
            let own_loss = task.forward(&self.params) as f32;
            watch.end(Phase::Forward);
            task.backward(&self.params, &mut self.sums[..len]);
            self.sums[len] = own_loss;
            self.sums[len + 1] = samples.len() as f32;
            watch.end(Phase::Backward);
            let timing = ranks.allreduce(&mut self.sums, Reduce::Sum)?;
            watch.end_operation(timing);
            let count = self.sums[len + 1];
            last = self.sums[len] / count;
            if !last.is_finite() {
                return Err(WorkerError::Diverged { rank: ranks.rank(), loss: last, step: self.step });
            }
            self.optimizer.step(&mut self.params, &self.sums[..len], 1.0 / count);
            watch.end(Phase::Optimizer);
            // A rank reports the loss of its own part: that one rank's differs is worth seeing.
            let own_mean = (!samples.is_empty()).then(|| own_loss / samples.len() as f32);
            reporter.report(&Report::from_step(&watch.finish(self.step, own_mean, samples.len())))?;
        }
        Ok(last)
    }

    /// The job's metric over all ranks' shares.
    fn evaluate(&self, task: &mut dyn Task, ranks: &mut dyn Communicator) -> Result<f64, WorkerError> {
        let score = task.evaluate(&self.params, ranks.rank(), ranks.world());
        let mut sums = [score.sum as f32, score.count as f32];
        ranks.allreduce(&mut sums, Reduce::Sum)?;
        Ok(f64::from(sums[0]) / f64::from(sums[1]))
    }
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<(), WorkerError> {
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(WorkerError::Output)
}

/// SHA-256 of the parameters' bits, hexadecimal.
fn hash_of(params: &[f32]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for param in params {
        context.update(&param.to_le_bytes());
    }
    let mut text = String::with_capacity(64);
    for byte in context.finish().as_ref() {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
    }
    text
}
