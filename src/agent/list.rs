//! Tells which runs this host knows, from their files alone: a client that launched none of them can attach
//! to them. A live one is always told.

use std::os::unix::fs::MetadataExt;

use super::AgentConfig;
use super::outgoing::Outgoing;
use crate::clock;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::run::{HostRun, RunStage};
use crate::domain::run_status::HostRunStatus;
use crate::domain::time::Stamp;
use crate::procs::identity::Identity;
use crate::supervise::SuperviseError;
use crate::supervise::adopt;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, SPEC, STATE, STOP, Started, State, StopMark, exit_file, started_file};
use crate::wire::message::{FromAgent, ListRuns, Runs};

/// Bytes of one message, so that it is far from the largest frame.
const MESSAGE_BYTES: usize = 256 << 10;
/// A run that takes more is told without its whole spec.
const SHARE_BYTES: usize = 768 << 10;

/// Sends the newest runs, newest first, then older ones that are live or among the oldest asked for, in as many messages as
/// it takes.
pub(super) fn tell(config: &AgentConfig, asked: ListRuns, out: &Outgoing) {
    let most = match asked.newest {
        0 => ListRuns::MOST,
        newest => ListRuns::MOST.min(newest as usize),
    };
    let oldest = ListRuns::MOST.min(asked.oldest as usize);
    let (mut shares, mut bytes) = (Vec::new(), 0);
    for (share, size) in chosen(config, most, oldest).map(fitting) {
        if bytes + size > MESSAGE_BYTES && !shares.is_empty() {
            let full = Runs { shares: std::mem::take(&mut shares), last: false };
            if !out.control_blocking(FromAgent::Runs(full)) {
                return;
            }
            bytes = 0;
        }
        bytes += size;
        shares.push(share);
    }
    out.control_blocking(FromAgent::Runs(Runs { shares, last: true }));
}

/// The shares of the `most` newest runs, of the `oldest`, and of those between that are live. What can't be read is left out
/// and logged.
fn chosen(config: &AgentConfig, most: usize, oldest: usize) -> impl Iterator<Item = HostRunStatus> {
    let found = RunDir::list(&config.state_dir).unwrap_or_else(|error| {
        tracing::warn!(%error, "the runs of this host can't be listed");
        Vec::new()
    });
    let (mut told, among_oldest) = (0, found.len().saturating_sub(oldest));
    found.into_iter().enumerate().filter_map(move |(at, (run, host))| {
        let is_beyond = told >= most && at < among_oldest;
        if is_beyond && !may_live(config, &run, &host) {
            return None;
        }
        let read = share(config, &run, &host).unwrap_or_else(|error| {
            tracing::warn!(%run, %error, "a run of this host can't be read");
            None
        });
        let share = read.filter(|share| share.live || !is_beyond)?;
        told += 1;
        Some(share)
    })
}

/// A share and its size; without what does not fit into a frame.
fn fitting(mut share: HostRunStatus) -> (HostRunStatus, usize) {
    let size = |share: &HostRunStatus| serde_json::to_vec(share).map_or(0, |bytes| bytes.len());
    let mut bytes = size(&share);
    if bytes > SHARE_BYTES {
        share.spec = None;
        bytes = size(&share);
    }
    (share, bytes)
}

/// Whether anything of a run may live, by one file of it; where that can't be read, a look at the others tells.
fn may_live(config: &AgentConfig, run: &RunId, host: &HostId) -> bool {
    let state = RunDir::find(&config.state_dir, run, host)
        .and_then(|dir| dir.map_or(Ok(None), |dir| dir.read_json::<State>(STATE)));
    !matches!(state, Ok(None | Some(State { phase: Phase::Ended, .. })))
}

/// What the files say of a run; `None` for one that was prepared and never started.
pub(super) fn share(
    config: &AgentConfig,
    run: &RunId,
    host: &HostId,
) -> Result<Option<HostRunStatus>, SuperviseError> {
    let Some(dir) = RunDir::find(&config.state_dir, run, host)? else { return Ok(None) };
    let Some(state) = dir.read_json::<State>(STATE)? else { return Ok(None) };
    let spec: Option<HostRun> = dir.read_json(SPEC)?;
    let stop: Option<StopMark> = dir.read_json(STOP)?;
    let ranks: Vec<Rank> = spec.iter().flat_map(|spec| &spec.ranks).map(|rank| rank.rank).collect();
    let supervised = adopt::supervised(&dir, &state)?;
    let mut share = HostRunStatus {
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
        quiet_s: None,
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
    if !share.live {
        share.quiet_s = Some(quiet_s(&dir, state.phase)?);
    }
    Ok(Some(share))
}

/// How long nothing has been written of a run that has ended. The last that a supervisor writes are names in the folder; of
/// one that came to no end its ranks may have written later.
fn quiet_s(dir: &RunDir, phase: Phase) -> Result<u64, SuperviseError> {
    let mut last = dir.written()?;
    if phase != Phase::Ended {
        let metadata = |name: String| std::fs::symlink_metadata(dir.path().join(name)).ok();
        let modified = dir.names()?.into_iter().filter_map(metadata).map(|about| about.mtime());
        last = last.max(Stamp(modified.max().unwrap_or_default().saturating_mul(1_000_000)));
    }
    Ok(clock::now().micros_since(last).max(0).unsigned_abs() / 1_000_000)
}

fn stage(phase: Phase) -> RunStage {
    match phase {
        Phase::Starting => RunStage::Start,
        Phase::Running => RunStage::Training,
        Phase::Stopping => RunStage::Stopping,
        Phase::Ended => RunStage::Ended,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_live_run_is_told_however_many_newer_ones_there_are() {
        let home = tempfile::tempdir().unwrap();
        let state_dir = home.path().join("hvtui");
        let config = AgentConfig { exe: "/bin/true".into(), state_dir, build: String::new() };
        let own = Identity::own().unwrap();
        let gone = Identity { start: own.start + 1, ..own.clone() };
        // from the oldest on; the second has lost its supervisor
        let runs = [
            (Phase::Running, Some(&own)),
            (Phase::Running, Some(&gone)),
            (Phase::Ended, Some(&gone)),
            (Phase::Starting, None),
            (Phase::Ended, Some(&gone)),
        ];
        let ids: Vec<RunId> = (1..)
            .zip(runs)
            .map(|(at, (phase, supervisor))| {
                let run = RunId::new(at, 1);
                let dir = RunDir::create(&config.state_dir, &run, &HostId::from("a")).unwrap();
                if let Some(supervisor) = supervisor {
                    dir.write_json(STATE, &State::of_test(phase, supervisor.clone())).unwrap();
                }
                run
            })
            .collect();
        let told = |most, oldest| chosen(&config, most, oldest).map(|share| share.run).collect::<Vec<_>>();
        let [live, orphan, old, _, newest] = &ids[..] else { unreachable!() };
        assert_eq!(told(1, 0), [newest.clone(), live.clone()]);
        assert_eq!(told(9, 0), [newest.clone(), old.clone(), orphan.clone(), live.clone()]);
        assert_eq!(told(1, 2), [newest.clone(), orphan.clone(), live.clone()], "the oldest, too");
    }

    #[test]
    fn how_long_a_run_has_been_quiet_is_told_once_nothing_of_it_lives() {
        let home = tempfile::tempdir().unwrap();
        let state_dir = home.path().join("hvtui");
        let config = AgentConfig { exe: "/bin/true".into(), state_dir, build: String::new() };
        let host = HostId::from("a");
        let own = Identity::own().unwrap();
        let gone = Identity { start: own.start + 1, ..own.clone() };
        let long_ago = FileTimes::new().set_modified(
            SystemTime::UNIX_EPOCH + Duration::from_micros(clock::now().0.unsigned_abs())
                - Duration::from_secs(7200),
        );
        let quiet = |number, phase, supervisor: &Identity| {
            let run = RunId::new(number, 1);
            let dir = RunDir::create(&config.state_dir, &run, &host).unwrap();
            dir.write_json(STATE, &State::of_test(phase, supervisor.clone())).unwrap();
            // a rank writes on into its file, which changes nothing in the folder
            let out = dir.append("rank-0.out").unwrap();
            if phase == Phase::Ended {
                out.set_times(long_ago).unwrap();
            }
            File::open(dir.path()).unwrap().set_times(long_ago).unwrap();
            File::open(dir.path().join(STATE)).unwrap().set_times(long_ago).unwrap();
            share(&config, &run, &host).unwrap().unwrap().quiet_s
        };
        assert_eq!(quiet(1, Phase::Running, &own), None);
        assert!(quiet(2, Phase::Ended, &gone).is_some_and(|seconds| (7200..7300).contains(&seconds)));
        assert!(quiet(3, Phase::Running, &gone).is_some_and(|seconds| seconds < 100), "its rank wrote last");
    }
}
