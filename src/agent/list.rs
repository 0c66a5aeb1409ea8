//! Tells which runs this host knows, from their files alone: a client that launched none of them can take
//! them up again.

use super::AgentConfig;
use super::outgoing::Outgoing;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::run::{HostRun, RunStage};
use crate::domain::share::HostShare;
use crate::supervise::SuperviseError;
use crate::supervise::adopt;
use crate::supervise::identity::Identity;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, SPEC, STATE, STOP, Started, State, StopMark, exit_file, started_file};
use crate::wire::message::{FromAgent, ListRuns, Runs};

/// Bytes of one message, so that it is far from the largest frame.
const MESSAGE_BYTES: usize = 256 << 10;
/// A run that takes more is told without its whole spec.
const SHARE_BYTES: usize = 768 << 10;

/// Sends the runs, newest first, in as many messages as it takes. What can't be read is left out and logged.
pub(super) fn tell(config: &AgentConfig, asked: ListRuns, out: &Outgoing) {
    let most = match asked.newest {
        0 => ListRuns::MOST,
        newest => ListRuns::MOST.min(newest as usize),
    };
    let found = RunDir::list(&config.state_dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "the runs of this host can't be listed");
        Vec::new()
    });
    let (mut shares, mut bytes, mut told) = (Vec::new(), 0, 0);
    for (run, host) in found {
        if told == most {
            break;
        }
        let (share, size) = match share(config, &run, &host) {
            Ok(Some(share)) => fitting(share),
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%run, %error, "a run of this host can't be read");
                continue;
            }
        };
        if bytes + size > MESSAGE_BYTES && !shares.is_empty() {
            let full = Runs { shares: std::mem::take(&mut shares), last: false };
            if !out.control_blocking(FromAgent::Runs(full)) {
                return;
            }
            bytes = 0;
        }
        (bytes, told) = (bytes + size, told + 1);
        shares.push(share);
    }
    out.control_blocking(FromAgent::Runs(Runs { shares, last: true }));
}

/// A share and its size; without what does not fit into a frame.
fn fitting(mut share: HostShare) -> (HostShare, usize) {
    let size = |share: &HostShare| serde_json::to_vec(share).map_or(0, |bytes| bytes.len());
    let mut bytes = size(&share);
    if bytes > SHARE_BYTES {
        share.spec = None;
        bytes = size(&share);
    }
    (share, bytes)
}

/// What the files say of a run; `None` for one that was prepared and never started.
fn share(config: &AgentConfig, run: &RunId, host: &HostId) -> Result<Option<HostShare>, SuperviseError> {
    let Some(dir) = RunDir::find(&config.state_dir, run, host)? else { return Ok(None) };
    let Some(state) = dir.read_json::<State>(STATE)? else { return Ok(None) };
    let spec: Option<HostRun> = dir.read_json(SPEC)?;
    let stop: Option<StopMark> = dir.read_json(STOP)?;
    let ranks: Vec<Rank> = spec.iter().flat_map(|spec| &spec.ranks).map(|rank| rank.rank).collect();
    let supervised = adopt::supervised(&dir, &state)?;
    let mut share = HostShare {
        run: run.clone(),
        host: host.clone(),
        name: spec.as_ref().map_or_else(|| run.short().to_owned(), |spec| spec.name.clone()),
        stage: stage(state.phase),
        supervised,
        live: supervised || state.wraps.values().any(Identity::alive),
        stop: stop.map(|mark| mark.why),
        started: Vec::new(),
        exits: std::collections::BTreeMap::new(),
        spec: spec.and_then(|spec| spec.run_spec),
        ranks,
    };
    for rank in share.ranks.clone() {
        if let Some(started) = dir.read_json::<Started>(&started_file(rank))? {
            share.started.push(rank);
            share.live |= started.process.alive();
        }
        if let Some(exit) = dir.read_json(&exit_file(rank))? {
            share.exits.insert(rank, exit);
        }
    }
    Ok(Some(share))
}

/// Deletes what a run has left here, unless something of it lives.
pub(super) fn delete(config: &AgentConfig, run: &RunId, host: &HostId) -> Result<(), String> {
    let words = |error: SuperviseError| error.to_string();
    let Some(dir) = RunDir::find(&config.state_dir, run, host).map_err(words)? else { return Ok(()) };
    if share(config, run, host).map_err(words)?.is_none_or(|share| share.live) {
        return Err("something of it runs or is about to: stop it first".to_owned());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", dir.path().display());
    // out of sight first: of what is left by half nothing could be told any more
    let gone = dir.path().with_file_name(format!(".deleted-{}", std::process::id()));
    std::fs::rename(dir.path(), &gone).map_err(failed)?;
    std::fs::remove_dir_all(&gone).map_err(failed)?;
    if let Some(of_run) = dir.path().parent() {
        // another machine that shares the home may have its share there
        let _ = std::fs::remove_dir(of_run);
    }
    Ok(())
}

fn stage(phase: Phase) -> RunStage {
    match phase {
        Phase::Starting => RunStage::Start,
        Phase::Running => RunStage::Training,
        Phase::Stopping => RunStage::Stopping,
        Phase::Ended => RunStage::Ended,
    }
}
