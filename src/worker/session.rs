//! A data-parallel job of one's own: joins the other ranks, keeps its report.

use std::io::Write;

use super::env::RankEnv;
use super::error::WorkerError;
use super::gradients::{BucketOptions, Gradients};
use super::group;
use super::report::Reporter;
use super::step::Step;
use crate::collective::{Collective, Communicator};
use crate::domain::report::Report;

/// One rank of a job, connected to the others. See `examples/fit.rs` for a whole job in forty lines.
pub struct Session {
    reporter: Reporter,
    ranks: Box<dyn Communicator>,
}

impl Session {
    /// Joins the ranks that this process's environment tells of, as `hvtui run` sets it; without one, a run of its own.
    /// `job` is what the Run screen calls it, `steps` how many there will be, if that is known.
    ///
    /// # Errors
    /// When the environment makes no sense, or the others can't be met.
    pub fn init(job: &str, steps: Option<u64>) -> Result<Self, WorkerError> {
        Self::join(job, steps, &RankEnv::from_process()?, &mut std::io::sink())
    }

    /// As [`Session::init`], as a given rank; who is refused while the ranks meet is told to `out`.
    ///
    /// # Errors
    /// When the others can't be met, or the report file can't be written.
    pub fn join(
        job: &str,
        steps: Option<u64>,
        env: &RankEnv,
        out: &mut dyn Write,
    ) -> Result<Self, WorkerError> {
        let mut reporter = Reporter::open(env.report.as_deref())?;
        let hello = |transport| Report::hello(job, transport, steps);
        reporter.report(&hello(None))?;
        let ranks = group::join(env, &mut reporter, out)?;
        // Which way the bytes go is known once all have met.
        reporter.report(&hello(Some(ranks.transport().name().to_owned())))?;
        Ok(Self { reporter, ranks })
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> u32 {
        self.ranks.rank()
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.ranks.world()
    }

    /// The other ranks, for operations of one's own.
    pub fn ranks(&mut self) -> &mut dyn Communicator {
        &mut *self.ranks
    }

    /// All ranks go on with rank 0's values.
    ///
    /// # Errors
    /// When the ranks can't work together.
    pub fn broadcast(&mut self, values: &mut [f32]) -> Result<(), WorkerError> {
        self.ranks.broadcast(0, values)?;
        Ok(())
    }

    /// Gradients for layers with so many parameters each, all ranks alike.
    ///
    /// # Errors
    /// When the host has no room for them.
    pub fn gradients(
        &mut self,
        layers: &[usize],
        bucket_options: BucketOptions,
    ) -> Result<Gradients, WorkerError> {
        Ok(Gradients::new(layers, bucket_options, &mut *self.ranks)?)
    }

    /// A step begins, the `number`-th, from 1.
    pub fn step<'a>(&'a mut self, number: u64, gradients: &'a mut Gradients) -> Step<'a> {
        Step::begin(number, &mut *self.ranks, gradients, Some(&mut self.reporter))
    }

    /// Reports a number, such as an accuracy.
    ///
    /// # Errors
    /// When the report file can't be written.
    pub fn metric(&mut self, name: &str, value: f64, step: Option<u64>) -> Result<(), WorkerError> {
        self.reporter.report(&Report::Metric { name: name.to_owned(), value, step })
    }

    /// The job is over.
    ///
    /// # Errors
    /// When the report file can't be written.
    pub fn done(mut self) -> Result<(), WorkerError> {
        self.reporter.report(&Report::Done { weights: None })
    }

    /// Apart: who reports, and who works together.
    pub(super) fn into_parts(self) -> (Reporter, Box<dyn Communicator>) {
        (self.reporter, self.ranks)
    }
}
