//! Whether processes have outlived their run or their launcher, and whether memory of GPUs is held by what no one sees.

mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::orphans::Orphan;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::ids::RunId;
use crate::domain::units;
use crate::procs::identity::Stat;
use crate::procs::table::Process;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{Phase, STATE, State};

pub(in crate::doctor) struct Leftover;

/// What the driver itself takes at most of a GPU that nothing uses.
const OF_THE_DRIVER: u64 = 1 << 30;
/// Processes that are told.
const MOST: usize = 32;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    outlived: Vec<Outlived>,
    /// What is left of no run.
    orphans: Vec<Orphan>,
    /// Why it is not known what has outlived its run.
    #[serde(default)]
    fault: Option<String>,
}

/// Processes of a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Outlived {
    run: RunId,
    /// Each with the name of its program.
    processes: Vec<(u32, String)>,
}

impl Check for Leftover {
    const NAME: &'static str = "leftover";
    const ASKS: &'static str =
        "has a process outlived its run, and is memory of a GPU held by none that can be seen";
    const WANTS_SAMPLE: bool = true;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let (outlived, fault) = match outlived(site) {
            Ok(outlived) => (outlived, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Ok(Found { outlived, orphans: orphans::look(), fault })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(judge).collect()
    }
}

/// Those of this host that were not ended with their run.
fn outlived(site: &Site) -> Result<Vec<Outlived>, String> {
    let mut by_run: BTreeMap<&RunId, Vec<&Process>> = BTreeMap::new();
    for (process, run) in site.of_runs() {
        by_run.entry(&run.id).or_default().push(process);
    }
    if by_run.is_empty() {
        return Ok(Vec::new());
    }
    let ended = ended(&site.state, &by_run.keys().copied().collect())?;
    let outlived = by_run.into_iter().filter(|(run, _)| ended.contains(*run));
    Ok(outlived
        .map(|(run, processes)| {
            // a run may have ended between the two looks, and its processes with it
            let lives = |process: &&Process| {
                Stat::read(process.pid).is_ok_and(|now| now.start == process.stat.start && now.runs())
            };
            let left = processes.into_iter().filter(lives).take(MOST);
            let processes = left.map(|process| (process.pid, process.stat.name.clone())).collect();
            Outlived { run: run.clone(), processes }
        })
        .filter(|outlived| !outlived.processes.is_empty())
        .collect())
}

/// Which of these runs have ended on this machine: all their shares, where they have several.
fn ended(state: &Path, among: &BTreeSet<&RunId>) -> Result<BTreeSet<RunId>, String> {
    let mut ended: BTreeMap<RunId, bool> = BTreeMap::new();
    for (run, host) in RunDir::list(state).map_err(|error| error.to_string())? {
        if !among.contains(&run) {
            continue;
        }
        let read = RunDir::find(state, &run, &host)
            .and_then(|dir| dir.map_or(Ok(None), |dir| dir.read_json::<State>(STATE)));
        let is_over = matches!(read, Ok(Some(State { phase: Phase::Ended, .. })));
        *ended.entry(run).or_insert(true) &= is_over;
    }
    Ok(ended.into_iter().filter(|(_, is_over)| *is_over).map(|(run, _)| run).collect())
}

fn judge(one: &Seen<'_, Found>) -> Verdict {
    let Found { outlived, orphans, fault } = &one.found;
    if let Some(first) = outlived.first() {
        let pids: Vec<String> = outlived
            .iter()
            .flat_map(|one| &one.processes)
            .take(MOST)
            .map(|(pid, _)| pid.to_string())
            .collect();
        let of = |one: &Outlived| {
            let names: BTreeSet<&str> = one.processes.iter().map(|(_, name)| name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            format!("{} ({})", one.run.short(), names.join(", "))
        };
        let runs: Vec<String> = outlived.iter().map(of).collect();
        let (word, have) = if pids.len() == 1 { ("process", "has") } else { ("processes", "have") };
        let ended = if outlived.len() == 1 {
            format!("run {}", runs[0])
        } else {
            format!("runs {}", runs.join(", "))
        };
        let remedy = format!("kill {}", pids.join(" "));
        return Verdict::look(
            format!("{} {word} {have} outlived {ended}: pid {}", pids.len(), pids.join(" ")),
            format!("what was started behind the back of run {} holds memory, ports and GPUs that the next run wants", first.run.short()),
            remedy.clone(),
        )
        .fixed_there(remedy);
    }
    if let Some(verdict) = orphans::judge(orphans, one.sample) {
        return verdict;
    }
    let well = |words: &str| fault.as_deref().map_or_else(|| Verdict::good(words), Verdict::unknown);
    if one.info.gpus.is_empty() {
        return well("no process has outlived its run");
    }
    let Some(sample) = one.sample else { return Verdict::unknown("its GPUs have told nothing yet") };
    let held: Vec<String> = sample
        .gpus
        .iter()
        .filter_map(|gpu| Some(format!("GPU {}: {}", gpu.index, units::bytes(unseen(gpu)?))))
        .collect();
    if held.is_empty() {
        return well("no process has outlived its run, and all memory in use is of processes that are seen");
    }
    Verdict::look(
        format!("held by no process that is seen: {}", held.join(", ")),
        "a process in another container, or of a driver that was not told of its end, leaves less memory: CUDA out of memory",
        "sudo fuser -v /dev/nvidia* shows who; with none there: sudo nvidia-smi --gpu-reset -i N",
    )
    // how much it is moves
    .lasting("memory that no process has")
}

/// Memory in use that no listed process has; `None` where there is none, or it can't be told.
fn unseen(gpu: &GpuSample) -> Option<u64> {
    let used = *gpu.memory_used.value()?;
    let processes = gpu.processes.value()?;
    let of = |memory: &Reading<u64>| memory.value().copied();
    // of one whose memory is not told nothing can be said
    let seen = processes.iter().map(|process| of(&process.memory)).sum::<Option<u64>>()?;
    let unseen = used.saturating_sub(seen);
    let limit = OF_THE_DRIVER.saturating_mul(1 + processes.len() as u64);
    (unseen > limit).then_some(unseen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::gpu::GpuProcess;
    use crate::domain::preflight::Mark;

    fn gpu(used: u64, of_processes: &[Reading<u64>]) -> GpuSample {
        let process = |memory: &Reading<u64>| GpuProcess { memory: memory.clone(), ..GpuProcess::unknown(7) };
        GpuSample {
            memory_used: Reading::Value(used),
            processes: Reading::Value(of_processes.iter().map(process).collect()),
            ..GpuSample::failed(0, "unknown")
        }
    }

    #[test]
    fn memory_of_none_is_told_and_what_is_not_known_is_not() {
        const G: u64 = 1 << 30;
        assert_eq!(unseen(&gpu(60 * G, &[])), Some(60 * G));
        assert_eq!(unseen(&gpu(G / 2, &[])), None, "the driver's own");
        assert_eq!(unseen(&gpu(60 * G, &[Reading::Value(59 * G)])), None);
        assert_eq!(unseen(&gpu(60 * G, &[Reading::Value(20 * G)])), Some(40 * G));
        assert_eq!(unseen(&gpu(60 * G, &[Reading::failed("no permission")])), None);
    }

    #[test]
    fn what_outlived_its_run_is_told_with_its_pids() {
        let run = RunId::new(7, 7);
        let processes = vec![(71, "python3".to_owned()), (72, "python3".to_owned())];
        let outlived = vec![Outlived { run: run.clone(), processes }];
        let verdict = &Leftover::judge(&seen([Found { outlived, ..Found::default() }]))[0];
        let words = format!("2 processes have outlived run {} (python3): pid 71 72", run.short());
        assert_eq!((verdict.mark, &verdict.evidence), (Mark::Look, &words));
        assert_eq!(verdict.remedy.as_deref(), Some("kill 71 72"));
        assert_eq!(Leftover::judge(&seen([Found::default()]))[0].mark, Mark::Good);
    }

    #[test]
    fn runs_that_can_not_be_listed_hide_no_rank_without_a_launcher() {
        let fault = Some("the runs' folder: permission denied".to_owned());
        let orphans = serde_json::json!([{"pid": 71, "start": 7, "name": "python3", "is_rank": true}]);
        let orphans: Vec<Orphan> = serde_json::from_value(orphans).unwrap();
        let of = |found| Leftover::judge(&seen([found])).remove(0);
        let left = of(Found { orphans, fault: fault.clone(), ..Found::default() });
        assert!(left.evidence.starts_with("1 rank of no run has lost its launcher"), "{left:?}");
        let untold = of(Found { fault: fault.clone(), ..Found::default() });
        assert_eq!((untold.mark, Some(untold.evidence)), (Mark::Unknown, fault));
    }
}
