//! Keeps the checkpoint of a training: when it is written, and how all ranks go on from it.
//!
//! Rank 0 alone reads and writes the file; what it read goes to the others over the collective, so that the file need
//! be on its host only. Training goes on when a checkpoint can't be written, for hours of work count for more; the
//! last one that was written is kept, and the run ends with the error.

use std::io::Write;
use std::path::PathBuf;

use super::TrainOptions;
use super::checkpoint::{self, Position};
use super::error::WorkerError;
use super::replica::{Replica, State};
use super::schedule::Schedule;
use super::train::say;
use crate::collective::{Collective, Communicator};

/// One rank's part in it.
pub(super) struct Checkpointer {
    /// `None`: on other ranks than 0, or when none is wanted.
    path: Option<PathBuf>,
    /// Where training is.
    position: Position,
    every: Option<u64>,
    resume: bool,
    /// Why the newest one could not be written.
    failure: Option<WorkerError>,
}

impl Checkpointer {
    /// Looks at the options, and at what is there already.
    pub(super) fn new(
        options: &TrainOptions,
        job: &str,
        schedule: &Schedule,
        rank: u32,
    ) -> Result<Self, WorkerError> {
        if options.checkpoint.is_none() && (options.resume || options.checkpoint_every.is_some()) {
            let option = if options.resume { "--resume" } else { "--checkpoint-every" };
            return Err(WorkerError::Option { option, must_be: "given together with --checkpoint FILE" });
        }
        if options.checkpoint_every == Some(0) {
            return Err(WorkerError::Option { option: "--checkpoint-every", must_be: "at least 1" });
        }
        let path = options.checkpoint.clone().filter(|_| rank == 0);
        if let Some(path) = path.as_ref().filter(|path| !options.resume && path.symlink_metadata().is_ok()) {
            return Err(WorkerError::CheckpointExists { path: path.display().to_string() });
        }
        let position = Position {
            job: job.to_owned(),
            seed: schedule.seed,
            batch: schedule.batch,
            samples: schedule.samples,
            step: 0,
        };
        let (every, resume) = (options.checkpoint_every, options.resume);
        Ok(Self { path, position, every, resume, failure: None })
    }

    /// All ranks start from rank 0's state: a fresh one, or that of the checkpoint. How many steps are done.
    pub(super) fn start(
        &mut self,
        replica: &mut dyn Replica,
        out: &mut dyn Write,
    ) -> Result<u64, WorkerError> {
        let mut state = replica.state()?;
        if self.resume {
            self.resume_from_checkpoint(&mut state, out)?;
            let mut place = [self.position.step as i64, i64::from(state.steps)];
            replica.with_ranks(&mut |ranks| Ok(ranks.broadcast(0, &mut place).map(drop)?))?;
            (self.position.step, state.steps) = (place[0] as u64, place[1] as u32);
        }
        let goes_on = self.position.step > 0;
        replica.with_ranks(&mut |ranks| share(ranks, &mut state, goes_on))?;
        replica.restore(&state)?;
        Ok(self.position.step)
    }

    /// Reads the checkpoint, where this is rank 0 and there is one.
    fn resume_from_checkpoint(&mut self, state: &mut State, out: &mut dyn Write) -> Result<(), WorkerError> {
        let Some(path) = &self.path else { return Ok(()) };
        let name = path.display().to_string();
        let Some((position, read)) = checkpoint::read(path)? else {
            return say(out, format_args!("there is no checkpoint {name} yet: training starts anew"));
        };
        let own = &self.position;
        let shape = |state: &State| (state.params.len(), state.memory.len());
        let differs = [
            ("", position.job.clone(), own.job.clone()),
            ("--seed ", position.seed.to_string(), own.seed.to_string()),
            ("--batch ", position.batch.to_string(), own.batch.to_string()),
            ("samples to train on: ", position.samples.to_string(), own.samples.to_string()),
            ("parameters and buffers ", format!("{:?}", shape(&read)), format!("{:?}", shape(state))),
        ];
        if let Some((what, theirs, ours)) = differs.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            let (theirs, ours) = (format!("{what}{theirs}"), format!("{what}{ours}"));
            return Err(WorkerError::CheckpointOther { path: name, theirs, ours });
        }
        say(out, format_args!("goes on from checkpoint {name} after step {}", position.step))?;
        (self.position, *state) = (position, read);
        Ok(())
    }

    /// Whether a checkpoint is due after a step; on all ranks alike.
    pub(super) fn is_due(&self, step: u64) -> bool {
        self.every.is_some_and(|every| step.is_multiple_of(every))
    }

    /// Writes a checkpoint, unless that of this step is there.
    pub(super) fn save(
        &mut self,
        step: u64,
        replica: &mut dyn Replica,
        out: &mut dyn Write,
    ) -> Result<(), WorkerError> {
        if self.position.step == step && self.failure.is_none() {
            return Ok(());
        }
        self.write(step, replica, out)
    }

    fn write(
        &mut self,
        step: u64,
        replica: &mut dyn Replica,
        out: &mut dyn Write,
    ) -> Result<(), WorkerError> {
        let Some(path) = &self.path else { return Ok(()) };
        let state = replica.state()?;
        if !state.is_finite() {
            return say(
                out,
                format_args!(
                    "step {step}: a parameter is not a number; the checkpoint of step {} is kept",
                    self.position.step
                ),
            );
        }
        let position = Position { step, ..self.position.clone() };
        match checkpoint::write(path, &position, &state) {
            Ok(()) => {
                (self.position, self.failure) = (position, None);
                Ok(())
            }
            Err(error) => {
                // What prints may be on the same disk: that it fails ends no training either.
                let _ = say(out, format_args!("step {step}: {error}; training goes on"));
                self.failure = Some(error);
                Ok(())
            }
        }
    }

    /// Whether the last checkpoint that was due is there.
    pub(super) fn verdict(self) -> Result<(), WorkerError> {
        self.failure.map_or(Ok(()), Err)
    }
}

/// All ranks take rank 0's state.
fn share(ranks: &mut dyn Communicator, state: &mut State, whole: bool) -> Result<(), WorkerError> {
    ranks.broadcast(0, &mut state.params)?;
    if whole {
        for buffer in &mut state.memory {
            ranks.broadcast(0, buffer)?;
        }
    }
    Ok(())
}
