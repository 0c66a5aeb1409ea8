//! The pages on which hvtui's hooks say in which phase of a step a process is: 24 bytes beside its report, replaced in
//! place. A page that has not changed for a while is told; what moves is not.

use std::collections::BTreeMap;
use std::io::Read;

use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::standing::Standing;
use crate::domain::time::HostTime;
use crate::domain::timing::Phase;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::stream_file;

/// The end of a page's name, behind that of the report: `rank-0.report.now`, of a process with `RANK=3` in it
/// `rank-0.report.3.now`.
const NOW: &str = ".now";
/// `sequence u32, phase u32, step u64, since u64`, little-endian; the sequence is odd while it is written.
const SIZE: usize = 24;
/// After so long in one phase a process stands, microseconds.
const STANDS_US: u64 = 1_000_000;
/// Between two looks at the pages, microseconds.
const EVERY_US: u64 = 200_000;
/// Pages of one rank that are looked at.
const MOST: usize = 64;

/// What was told of the pages of a run's ranks.
#[derive(Debug, Default)]
pub(super) struct Pages {
    looked: HostTime,
    /// By rank and process: the sequence that was told.
    told: BTreeMap<(Rank, Option<u32>), u32>,
}

impl Pages {
    /// What stands of these ranks, each with its process, and was not told yet.
    pub(super) fn look(
        &mut self,
        dir: &RunDir,
        ranks: impl Iterator<Item = (Rank, u32)>,
        now: HostTime,
    ) -> Vec<(Rank, Option<u32>, Standing)> {
        if now.0.saturating_sub(self.looked.0) < EVERY_US {
            return Vec::new();
        }
        self.looked = now;
        let ranks: BTreeMap<Rank, u32> = ranks.collect();
        let mut news = Vec::new();
        for (rank, worker, name) in names(dir, &ranks) {
            let Some((sequence, phase, step, since)) = read(dir, &name) else { continue };
            let for_us = now.0.saturating_sub(since);
            if for_us < STANDS_US || self.told.get(&(rank, worker)) == Some(&sequence) {
                continue;
            }
            self.told.insert((rank, worker), sequence);
            let stopped = worker.is_none() && ranks.get(&rank).is_some_and(|pid| is_stopped(*pid));
            news.push((rank, worker, Standing { phase, step, for_us, stopped }));
        }
        news
    }
}

/// The pages that are there, of these ranks.
fn names(dir: &RunDir, ranks: &BTreeMap<Rank, u32>) -> Vec<(Rank, Option<u32>, String)> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir.path()).into_iter().flatten().filter_map(Result::ok);
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(head) = name.strip_suffix(NOW).and_then(|head| head.strip_prefix("rank-")) else { continue };
        let Some((rank, rest)) = head.split_once('.') else { continue };
        let Some(rank) = rank.parse().ok().map(Rank).filter(|rank| ranks.contains_key(rank)) else {
            continue;
        };
        let worker = match rest.strip_prefix(Stream::Report.extension()) {
            Some("") => None,
            Some(worker) => match worker.strip_prefix('.').and_then(|worker| worker.parse().ok()) {
                Some(worker) => Some(worker),
                None => continue,
            },
            None => continue,
        };
        let of_rank = found.iter().filter(|(of, ..): &&(Rank, _, _)| *of == rank).count();
        if of_rank < MOST {
            found.push((rank, worker, name));
        }
    }
    debug_assert!(stream_file(Rank(0), Stream::Report).starts_with("rank-0."));
    found
}

/// Whether a signal has stopped a process.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // the name before it may hold anything
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

fn read(dir: &RunDir, name: &str) -> Option<(u32, Phase, u64, u64)> {
    let mut page = [0; SIZE];
    dir.read(name).ok()??.read_exact(&mut page).ok()?;
    let number =
        |at: usize| page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let long =
        |at: usize| page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let sequence = number(0)?;
    let phase = Phase::ALL.get(usize::try_from(number(4)?).ok()?).copied().unwrap_or(Phase::Other);
    let (step, since) = (long(8)?, long(16)?);
    // being written, or none yet
    (sequence % 2 == 0 && since > 0).then_some((sequence, phase, step, since))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn what_stands_is_told_once_and_what_moves_is_not() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let write = |name: &str, sequence: u32, phase: u32, step: u64, since: u64| {
            let mut page = Vec::new();
            page.extend(sequence.to_le_bytes());
            page.extend(phase.to_le_bytes());
            page.extend(step.to_le_bytes());
            page.extend(since.to_le_bytes());
            std::fs::write(dir.path().join(name), page).unwrap();
        };
        let second = 1_000_000;
        write("rank-0.report.now", 8, 2, 57, 10 * second);
        write("rank-0.report.3.now", 6, 3, 57, 10 * second + 1);
        write("rank-1.report.now", 9, 2, 57, second);
        write("rank-2.report.now", 8, 2, 57, second);
        std::fs::write(dir.path().join("rank-3.report.now"), "short").unwrap();
        std::fs::write(dir.path().join("rank-x.report.now"), [0; 24]).unwrap();
        let mut pages = Pages::default();
        let mut look = |at| {
            let mut news =
                pages.look(&dir, [0, 1, 3].map(|rank| (Rank(rank), u32::MAX)).into_iter(), HostTime(at));
            news.sort_by_key(|(rank, worker, _)| (*rank, *worker));
            news
        };
        assert_eq!(look(10 * second + 500_000), [], "not for long");
        let told = look(11 * second + 1);
        let standing = |phase, for_us| Standing { phase, step: 57, for_us, stopped: false };
        assert_eq!(
            told,
            [
                (Rank(0), None, standing(Phase::Backward, 1_000_001)),
                (Rank(0), Some(3), standing(Phase::Wait, 1_000_000))
            ],
            "one that is being written is left alone, and the ranks that are not asked for"
        );
        assert_eq!(look(12 * second), [], "told already");
        write("rank-0.report.now", 10, 77, 58, 12 * second);
        assert_eq!(
            look(13 * second),
            [(Rank(0), None, Standing { phase: Phase::Other, step: 58, for_us: second, stopped: false })]
        );
    }
}
