//! Joins the other ranks, telling the report file and the log who is being waited for.

use std::io::Write;

use super::env::RankEnv;
use super::error::WorkerError;
use super::report::Reporter;
use crate::clock::host_now;
use crate::collective::{Communicator, Group, RendezvousEvent, Solo};
use crate::domain::ids::Rank;
use crate::domain::report::Report;

impl RankEnv {
    /// Meets the other ranks that the environment tells of; without any, a group of one. For programs of one's own: see
    /// `examples/average.rs`.
    pub fn join(&self) -> Result<Box<dyn Communicator>, WorkerError> {
        join(self, &mut Reporter::open(self.report.as_deref())?, &mut std::io::sink())
    }
}

/// This rank's communicator, connected.
pub(super) fn join(
    env: &RankEnv,
    reporter: &mut Reporter,
    out: &mut dyn Write,
) -> Result<Box<dyn Communicator>, WorkerError> {
    let Some(config) = &env.group else { return Ok(Box::new(Solo)) };
    // The first failure to write is kept: the meeting itself can't be left half way.
    let mut failure = None;
    let group = Group::connect(config.clone(), &mut |event| {
        let written = match event {
            RendezvousEvent::Waiting(ranks) => {
                reporter.report(&Report::Waiting { ranks: ranks.into_iter().map(Rank).collect() })
            }
            RendezvousEvent::Refused { from, why } => {
                writeln!(out, "refused a connection from {from}: {why}").map_err(WorkerError::Output)
            }
            RendezvousEvent::NoSharedMemory { why } => {
                writeln!(out, "no memory is shared on this host, TCP is used: {why}")
                    .map_err(WorkerError::Output)
            }
        };
        if let Err(error) = written {
            failure.get_or_insert(error);
        }
    })?;
    if let Some(error) = failure {
        return Err(error);
    }
    reporter.report(&Report::Met { t: Some(host_now()) })?;
    Ok(Box::new(group))
}
