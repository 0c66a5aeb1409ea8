//! The training loop, the same for every job and every replica: epochs of steps, evaluation, checkpoints.
//!
//! One sum over ranks a step carries the gradient, the loss and the number of samples, so that a batch that does not
//! divide evenly is weighted rightly. Every rank starts from rank 0's state and applies the same sums in the same
//! order: the weights stay bit-equal.

use std::io::Write;

use super::checkpoint;
use super::checkpointer::Checkpointer;
use super::device::{self, Chosen};
use super::env::RankEnv;
use super::error::WorkerError;
use super::flight;
use super::model::dropout::hash;
use super::replica::{Replica, Stepped};
use super::report::Reporter;
use super::sampler;
use super::schedule::Schedule;
use super::session::Session;
use super::task::{Batch, Task};
use super::{BucketOptions, TrainOptions};
use crate::clock::host_now;
use crate::domain::report::Report;

/// Trains `task` as the rank that `env` describes.
pub(super) fn train(
    options: &TrainOptions,
    task: Box<dyn Task>,
    env: &RankEnv,
    out: &mut dyn Write,
) -> Result<(), WorkerError> {
    let schedule = Schedule::new(options, task.defaults(), task.samples(), env.world)?;
    let mut checkpointer = Checkpointer::new(options, task.name(), &schedule, env.rank)?;
    let total = schedule.total_steps();
    let (mut reporter, mut ranks) = Session::join(task.name(), Some(total), env, out)?.into_parts();
    schedule.agree(&mut *ranks)?;
    let (rank, world, joined) = (ranks.rank(), ranks.world(), ranks.transport().name());
    let (name, metric, samples) = (task.name(), task.metric(), task.samples());
    let (layers, source) = (task.layers(), task.source());
    let most = schedule.batch.min(samples).div_ceil(world as usize);
    let Chosen { mut replica, transport, note } =
        device::choose(options, env, task, ranks, bucket_options(options, &schedule, samples)?, most)?;
    if transport != joined {
        reporter.report(&Report::hello(name, Some(transport.to_owned()), Some(total)))?;
    }
    if let Some(note) = note {
        say(out, format_args!("{note}"))?;
    }
    let place = env.place.as_deref().map(|place| format!(" on {place}")).unwrap_or_default();
    let params: usize = layers.iter().sum();
    say(
        out,
        format_args!(
            "{name} rank {rank} of {world}{place} transport {transport} parameters {params} steps {total}"
        ),
    )?;
    if let Some(source) = source.filter(|_| rank == 0) {
        say(out, format_args!("{source}"))?;
    }
    if rank == 0 && schedule.batch < world as usize {
        let idle = world as usize - schedule.batch;
        say(
            out,
            format_args!(
                "a batch of {} for {world} ranks: in each step {idle} of them have nothing to do; --batch {world} or more gives all of them work",
                schedule.batch
            ),
        )?;
    }
    let mut training = Training { schedule, rank, world, metric, samples, replica: &mut *replica, reporter };
    let outcome = training.run(&mut checkpointer, out);
    if let Err(WorkerError::Collective(error)) = &outcome {
        let report = env.report.as_deref();
        replica.with_ranks(&mut |ranks| flight::keep(ranks, error, report, out))?;
        return outcome;
    }
    outcome?;
    checkpointer.verdict()
}

/// How gradients are to travel.
fn bucket_options(
    options: &TrainOptions,
    schedule: &Schedule,
    samples: usize,
) -> Result<BucketOptions, WorkerError> {
    let mut bucket_options = BucketOptions { overlap: !options.no_overlap, ..BucketOptions::default() };
    if let Some(bytes) = options.bucket {
        if bytes == 0 {
            return Err(WorkerError::Option { option: "--bucket", must_be: "more than 0 bytes" });
        }
        (bucket_options.first, bucket_options.others) = (bytes, bytes);
    }
    if options.half {
        // Sums over a batch are as great as its samples are many. The factor leaves room for mean gradients up to 1,000, and
        // keeps those of a millionth from losing digits.
        bucket_options.half = Some(64.0 / schedule.batch.min(samples) as f32);
    }
    Ok(bucket_options)
}

/// A training under way.
struct Training<'a> {
    schedule: Schedule,
    rank: u32,
    world: u32,
    /// The job's metric: `accuracy`.
    metric: &'static str,
    /// Samples to train on.
    samples: usize,
    replica: &'a mut dyn Replica,
    reporter: Reporter,
}

impl Training<'_> {
    /// All epochs that are left.
    fn run(&mut self, checkpointer: &mut Checkpointer, out: &mut dyn Write) -> Result<(), WorkerError> {
        let mut step = checkpointer.start(self.replica, out)?;
        if step >= self.schedule.total_steps() {
            let score = self.replica.evaluate()?;
            self.tell(out, format_args!("nothing is left to train: {} {score:.4}", self.metric))?;
        }
        let each = self.schedule.steps_an_epoch();
        for epoch in u32::try_from(step / each).unwrap_or(u32::MAX)..self.schedule.epochs {
            let (began, first) = (host_now().0, step);
            let loss = self.epoch(epoch, &mut step, checkpointer, out)?;
            let seconds = (host_now().0 - began) as f64 / 1e6;
            // A parameter that is no number can hide: what is not above 0 is 0 behind a ReLU. All ranks see it alike.
            if !self.replica.state()?.is_finite() {
                return Err(WorkerError::NotFinite { step });
            }
            let score = self.replica.evaluate()?;
            checkpointer.save(step, self.replica, out)?;
            if self.rank == 0 {
                let name = self.metric.to_owned();
                self.reporter.report(&Report::Metric { name, value: score, step: Some(step) })?;
            }
            // A job with one step an epoch would say hundreds of lines.
            let every = self.schedule.epochs.div_ceil(60);
            if (epoch + 1) % every == 0 || epoch + 1 == self.schedule.epochs {
                let batch = self.schedule.batch as u64;
                let trained = ((step - first) * batch).min(self.samples as u64) as f64;
                self.tell(
                    out,
                    format_args!(
                        "epoch {} step {step} loss {loss:.4} {} {score:.4}  {:.0} samples/s",
                        epoch + 1,
                        self.metric,
                        trained / seconds.max(1e-6)
                    ),
                )?;
            }
        }
        let weights = hash_of(&self.replica.state()?.params);
        say(out, format_args!("weights sha256 {weights}"))?;
        self.reporter.report(&Report::Done { weights: Some(weights) })
    }

    /// Trains on every sample once, or on those that are left of an epoch; the mean loss of the last step.
    fn epoch(
        &mut self,
        epoch: u32,
        step: &mut u64,
        checkpointer: &mut Checkpointer,
        out: &mut dyn Write,
    ) -> Result<f32, WorkerError> {
        let order = sampler::permutation(self.samples, self.schedule.seed, epoch);
        let done = *step - u64::from(epoch) * self.schedule.steps_an_epoch();
        let mut last = f32::NAN;
        for batch in order.chunks(self.schedule.batch).skip(done as usize) {
            *step += 1;
            let own = sampler::share(batch.len(), self.rank, self.world);
            let seed = hash(self.schedule.seed, *step);
            let batch = Batch { samples: &batch[own.clone()], first: own.start, seed };
            let known = self.replica.step(*step, &batch, self.schedule.rate(*step))?;
            self.report(&known, &mut last)?;
            if checkpointer.is_due(*step) {
                // The numbers of a step that is kept are known first, so that a loss that is none ends training before.
                let known = self.replica.drain()?;
                self.report(&known, &mut last)?;
                checkpointer.save(*step, self.replica, out)?;
            }
        }
        let known = self.replica.drain()?;
        self.report(&known, &mut last)?;
        Ok(last)
    }

    fn report(&mut self, known: &[Stepped], last: &mut f32) -> Result<(), WorkerError> {
        for stepped in known {
            *last = stepped.loss;
            self.reporter.report(&Report::from_step(&stepped.timing))?;
        }
        Ok(())
    }

    /// A line that one rank says for all.
    fn tell(&self, out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<(), WorkerError> {
        if self.rank == 0 { say(out, line) } else { Ok(()) }
    }
}

/// A line for people, at once.
pub(super) fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> Result<(), WorkerError> {
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(WorkerError::Output)
}

/// SHA-256 of the parameters' bits, hexadecimal.
fn hash_of(params: &[f32]) -> String {
    checkpoint::hex(&params.iter().flat_map(|param| param.to_le_bytes()).collect::<Vec<u8>>())
}
