//! Starts a run that was prepared. What its files lie on may hang, and what starts it may take its time: it is done on a thread
//! of its own.

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::AgentConfig;
use super::ports::HeldPorts;
use super::prepare::{self, is_unwanted};
use super::runs::PLAN_LIFE_US;
use crate::clock;
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::time::HostTime;
use crate::supervise::container::{SETUP, Setup};
use crate::supervise::lease::Claims;
use crate::supervise::rundir::RunDir;
use crate::supervise::start::{Given, start, was_started};
use crate::supervise::{SuperviseError, attempts};
use crate::wire::message::{Commit, FromAgent, Refused, RunRef};

/// A run that could start: its GPUs are held.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) spec: HostRun,
    pub(super) at: HostTime,
    pub(super) claims: Claims,
    pub(super) ports: HeldPorts,
    pub(super) environment: EnvironmentChange,
    pub(super) setup: Option<Setup>,
}

/// Starts a run by its plan, if there is one; the answer to the client. Dropping this ends the start, as the loss of the link
/// does.
pub(super) async fn carry_out(config: AgentConfig, commit: Commit, plan: Option<Plan>) -> FromAgent {
    let (run, host) = (commit.run.clone(), commit.host.clone());
    let (link, lost) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let started = tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = lost => None,
                answer = begin(&config, commit, plan) => Some(answer),
            }
        })
    });
    let started = started.await.ok().flatten();
    drop(link);
    started.unwrap_or_else(|| {
        let reason = "the start failed: it has panicked".to_owned();
        refusal(run, host, RefusalClass::Fault, reason)
    })
}

async fn begin(
    config: &AgentConfig,
    Commit { run, host, late, attempt }: Commit,
    plan: Option<Plan>,
) -> FromAgent {
    // A client that lost its link before the answer came asks again, maybe another agent.
    if let Ok(Some(dir)) = RunDir::find(&config.state_dir, &run, &host)
        && was_started(&dir, attempt).await
    {
        return FromAgent::Started(RunRef { run, host });
    }
    let Plan { spec, claims, ports, environment, setup, .. } = match plan {
        Some(plan) if clock::host_now().0.saturating_sub(plan.at.0) <= PLAN_LIFE_US => plan,
        Some(plan) => {
            prepare::forget(config, &plan.spec);
            let reason = format!("run {run} was prepared on {host} more than 60 s ago: prepare it again");
            return refusal(run, host, RefusalClass::Unknown, reason);
        }
        None => {
            let reason = format!("run {run} was not prepared on {host}: prepare it first");
            return refusal(run, host, RefusalClass::Unknown, reason);
        }
    };
    // The ranks bind them now.
    drop(ports);
    let started = match RunDir::create(&config.state_dir, &run, &host) {
        Ok(dir) => match set_up(&dir, spec.attempt, setup.as_ref()) {
            Ok(()) => start(&config.exe, &dir, spec, Given { late, environment }, claims).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    match started {
        Ok(_) => FromAgent::Started(RunRef { run, host }),
        Err(error) => {
            let class = if is_unwanted(config, &run) { RefusalClass::Unwanted } else { error.class() };
            let reason = format!("{host}: {error}");
            refusal(run, host, class, reason)
        }
    }
}

/// Makes a run's directory ready for an attempt.
fn set_up(dir: &RunDir, attempt: u32, setup: Option<&Setup>) -> Result<(), SuperviseError> {
    attempts::set_aside(dir, attempt)?;
    setup.map_or(Ok(()), |setup| dir.write_json(SETUP, setup))
}

fn refusal(run: RunId, host: HostId, class: RefusalClass, reason: String) -> FromAgent {
    FromAgent::Refused(Refused { run, host, rank: None, reason, class, busy: false })
}
