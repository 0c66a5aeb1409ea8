//! The pages on which hvtui's hooks say in which phase of a step a process is: 32 bytes beside its report, replaced in
//! place. A page that has not changed for a while is told; what moves is not. A process that stands for much longer than
//! its steps take is asked for its stacks, and the line of its script is told: no more of them leaves the host unasked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;

use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::RankExit;
use crate::domain::stacks::{CodeLine, script_line, threads};
use crate::domain::standstill::{StalledPhase, patience_us};
use crate::domain::time::HostTime;
use crate::domain::timing::Phase;
use crate::procs::identity::Stat;
use crate::supervise::rundir::RunDir;
use crate::supervise::stacks::{self, Asked};
use crate::supervise::state::{STOP, stream_file};

/// The end of a page's name, behind that of the report: `rank-0.report.now`, of a process with `RANK=3` in it
/// `rank-0.report.3.now`.
const NOW: &str = ".now";
/// `sequence u32, phase u32, step u64, since u64, pid u32, signal u32`, little-endian; the sequence is odd while it is
/// written.
const SIZE: usize = 32;
/// After so long in one phase a process stands, microseconds.
const STANDS_US: u64 = 1_000_000;
/// Between two looks at the pages, microseconds.
const EVERY_US: u64 = 200_000;
/// Pages of one rank that are looked at.
const MOST: usize = 64;
/// Between two times that one process is asked for its stacks unasked, microseconds.
const AGAIN_US: u64 = 30_000_000;
/// So many of a process's newest steps tell how long they take.
const PACE: usize = 9;

/// What a page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// Changes with every phase.
    sequence: u32,
    /// The phase.
    pub(super) phase: Phase,
    /// The step that is being worked on.
    pub(super) step: u64,
    /// When the phase began, the host's clock in microseconds.
    pub(super) since: u64,
    /// The process that writes it; 0 where it does not say so.
    pub(super) pid: u32,
    /// The signal upon which it writes its stacks; 0 for none.
    pub(super) signal: u32,
    /// The file that they go to.
    pub(super) stacks: String,
}

impl Page {
    /// Where its process stands at a moment.
    pub(super) fn standing(&self, now: HostTime) -> StalledPhase {
        let (phase, step, for_us) = (self.phase, self.step, now.0.saturating_sub(self.since));
        StalledPhase {
            phase,
            step,
            for_us,
            stopped: self.pid > 0 && matches!(state_of(self.pid), Some('T' | 't')),
            at: None,
        }
    }
}

/// A page's rank and process.
type Whose = (Rank, Option<u32>);

/// What was told of the pages of a run's ranks.
#[derive(Debug, Default)]
pub(super) struct Pages {
    looked: HostTime,
    /// Whether one of them has been in a phase for much longer than its steps take.
    stands: bool,
    seen: BTreeMap<Whose, Seen>,
    /// The process and the sequence of what was told last of each page.
    told: BTreeMap<Whose, (u32, u32)>,
    /// The processes that ended by themselves while their rank went on.
    left: BTreeSet<(Whose, u32)>,
}

/// What is known of one page.
#[derive(Debug, Default)]
struct Seen {
    /// The sequence that was told.
    told: Option<u32>,
    /// The step that it was in, and since when.
    step: Option<(u64, u64)>,
    /// What its newest steps took, microseconds.
    took: VecDeque<u64>,
    /// When its process was asked for its stacks, for which sequence, and the answer that is waited for.
    asked: Option<(u64, u32, Option<Asked>)>,
    /// Bytes of the answer at the last look.
    answered: usize,
}

impl Seen {
    fn pace(&mut self, page: &Page, now: u64) {
        match self.step {
            Some((step, _)) if step == page.step => return,
            Some((step, at)) if step < page.step => {
                let each = now.saturating_sub(at) / (page.step - step);
                self.took.truncate(PACE - 1);
                self.took.push_front(each);
            }
            _ => self.took.clear(),
        }
        self.step = Some((page.step, now));
    }

    /// What a step takes: the median of the newest ones.
    fn step_us(&self) -> Option<u64> {
        let mut took: Vec<u64> = self.took.iter().copied().collect();
        took.sort_unstable();
        took.get(took.len() / 2).copied()
    }

    /// Whether its process stands for longer than its steps explain. Between them there may be an evaluation, which takes
    /// its time.
    fn stands(&self, page: &Page, standing: &StalledPhase) -> bool {
        let patience = patience_us(self.step_us(), page.phase);
        standing.for_us >= if page.phase == Phase::Other { patience.saturating_mul(4) } else { patience }
    }

    /// Whether its process stands for so long that the line of its script is worth a signal.
    fn wants_line(&self, page: &Page, standing: &StalledPhase, now: u64) -> bool {
        let asked = self.asked.as_ref();
        // Of a rank that stops in its second step no look has measured one; the client has the first, and may say soon that
        // the run stands.
        let step_us = self.step_us().or((page.step > 1).then_some(0));
        page.signal > 0
            && !standing.stopped
            // so that the line is known when the run is said to stand
            && standing.for_us >= patience_us(step_us, page.phase) / 3 * 2
            && asked.is_none_or(|(at, sequence, _)| {
                *sequence != page.sequence && now.saturating_sub(*at) >= AGAIN_US
            })
    }

    /// The line of the script, if the whole answer has come: it is written piece by piece, so one that has grown since the
    /// last look is not whole.
    fn line(&mut self, dir: &RunDir) -> Option<CodeLine> {
        let (.., asked) = self.asked.as_mut()?;
        let text = stacks::answer(dir, asked.as_ref()?);
        if std::mem::replace(&mut self.answered, text.len()) != text.len() {
            return None;
        }
        let line = script_line(threads(&text).first()?)?;
        *asked = None;
        Some(line)
    }
}

impl Pages {
    /// Whether a process stood at the last look for longer than its steps explain.
    pub(super) fn stands(&self) -> bool {
        self.stands
    }

    /// What stands of these ranks, each with its process, and was not told yet.
    pub(super) fn look(
        &mut self,
        dir: &RunDir,
        ranks: impl Iterator<Item = (Rank, u32)>,
        now: HostTime,
    ) -> Vec<(Rank, Option<u32>, StalledPhase)> {
        if now.0.saturating_sub(self.looked.0) < EVERY_US {
            return Vec::new();
        }
        self.looked = now;
        let ranks: BTreeMap<Rank, u32> = ranks.collect();
        self.stands = false;
        let mut news = Vec::new();
        let mut members = None;
        for ((rank, worker), page) in read_all(dir, |rank| ranks.contains_key(&rank)) {
            // A Python that has ended stands nowhere, whatever its rank does after it.
            if page.pid > 0 && state_of(page.pid).is_none() {
                self.seen.remove(&(rank, worker));
                // one that a stop ends stood where its page says
                if !dir.has(STOP) {
                    self.left.insert(((rank, worker), page.pid));
                }
                continue;
            }
            let seen = self.seen.entry((rank, worker)).or_default();
            seen.pace(&page, now.0);
            let mut standing = page.standing(now);
            if standing.for_us < STANDS_US {
                continue;
            }
            self.stands |= seen.stands(&page, &standing);
            if seen.wants_line(&page, &standing, now.0) {
                let members =
                    members.get_or_insert_with(|| stacks::members(dir).unwrap_or_default()).as_slice();
                let asked = stacks::ask(dir, members, page.pid, page.signal, page.stacks.clone()).ok();
                seen.asked = Some((now.0, page.sequence, asked));
            }
            let of_this = seen.asked.as_ref().is_some_and(|(_, sequence, _)| *sequence == page.sequence);
            standing.at = if of_this { seen.line(dir) } else { None };
            if seen.told != Some(page.sequence) || standing.at.is_some() {
                seen.told = Some(page.sequence);
                self.told.insert((rank, worker), (page.pid, page.sequence));
                news.push((rank, worker, standing));
            }
        }
        news
    }

    /// Where the processes of a rank that was stopped stood before its end, by what they wrote last, unless that was told: no client
    /// may have followed the run then. One that was seen to end before the stop stood nowhere: `python train.py; sleep 100`.
    pub(super) fn last(&self, dir: &RunDir, rank: Rank, exit: &RankExit) -> Vec<(Option<u32>, StalledPhase)> {
        if !exit.stopped {
            return Vec::new();
        }
        let now = clock::host_now();
        let stood = |((_, worker), page): (Whose, Page)| {
            let is_told = self.told.get(&(rank, worker)) == Some(&(page.pid, page.sequence));
            let is_long = exit.t.0.saturating_sub(page.since) >= STANDS_US;
            let for_us = now.0.saturating_sub(page.since);
            let standing =
                StalledPhase { phase: page.phase, step: page.step, for_us, stopped: false, at: None };
            let has_left = self.left.contains(&((rank, worker), page.pid));
            (is_long && !is_told && !has_left).then_some((worker, standing))
        };
        read_all(dir, |of| of == rank).into_iter().filter_map(stood).collect()
    }
}

/// The pages that are there, of the ranks that are `wanted`.
pub(super) fn read_all(dir: &RunDir, wanted: impl Fn(Rank) -> bool) -> Vec<(Whose, Page)> {
    let found = names(dir, wanted).into_iter();
    found.filter_map(|(rank, worker, name)| Some(((rank, worker), read(dir, &name)?))).collect()
}

/// The pages that are there, of these ranks.
fn names(dir: &RunDir, wanted: impl Fn(Rank) -> bool) -> Vec<(Rank, Option<u32>, String)> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir.path()).into_iter().flatten().filter_map(Result::ok);
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let Some(head) = name.strip_suffix(NOW).and_then(|head| head.strip_prefix("rank-")) else { continue };
        let Some((rank, rest)) = head.split_once('.') else { continue };
        let Some(rank) = rank.parse().ok().map(Rank).filter(|rank| wanted(*rank)) else { continue };
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

/// The state of a process: `R`, `S`, `T` …; none of one that has ended.
fn state_of(pid: u32) -> Option<char> {
    Stat::read(pid).ok().filter(Stat::runs).map(|stat| stat.state)
}

fn read(dir: &RunDir, name: &str) -> Option<Page> {
    let mut page = [0; SIZE];
    dir.read(name).ok()??.read_exact(&mut page).ok()?;
    let number =
        |at: usize| page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let long =
        |at: usize| page.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let phase = Phase::ALL.get(usize::try_from(number(4)?).ok()?).copied().unwrap_or(Phase::Other);
    let stacks = format!("{}{}", name.strip_suffix(NOW)?, stacks::ANSWER);
    let (sequence, step, since) = (number(0)?, long(8)?, long(16)?);
    let page = Page { sequence, phase, step, since, pid: number(24)?, signal: number(28)?, stacks };
    // being written, or none yet
    (page.sequence.is_multiple_of(2) && page.since > 0).then_some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::rank_exit;
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
            page.extend([0; 8]);
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
        let standing = |phase, for_us| StalledPhase { phase, step: 57, for_us, stopped: false, at: None };
        assert_eq!(
            told,
            [
                (Rank(0), None, standing(Phase::Backward, 1_000_001)),
                (Rank(0), Some(3), standing(Phase::Wait, 1_000_000))
            ],
            "one that is being written is left alone, and the ranks that are not asked for"
        );
        assert_eq!(look(12 * second), [], "told already");
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let mut page = std::fs::read(dir.path().join("rank-0.report.3.now")).unwrap();
        page[0] += 2;
        page[24..28].copy_from_slice(&ended.id().to_le_bytes());
        std::fs::write(dir.path().join("rank-1.report.now"), page).unwrap();
        assert_eq!(look(12 * second + 500_000), [], "who has ended stands nowhere");
        write("rank-0.report.now", 10, 77, 58, 12 * second);
        assert_eq!(
            look(13 * second),
            [(Rank(0), None, StalledPhase { step: 58, ..standing(Phase::Other, second) })]
        );
        // what a stopped rank wrote last is told where no look has told it
        let last = |pages: &Pages, rank, end| {
            let exit = RankExit { stopped: true, t: HostTime(end), ..rank_exit(143) };
            assert_eq!(pages.last(&dir, Rank(rank), &RankExit { stopped: false, ..exit.clone() }), []);
            let stood = pages.last(&dir, Rank(rank), &exit);
            stood.into_iter().map(|(worker, one)| (worker, one.phase, one.step)).collect::<Vec<_>>()
        };
        assert_eq!(last(&pages, 2, 3 * second), [(None, Phase::Backward, 57)]);
        assert_eq!(last(&pages, 2, second + 1), [], "it had just begun");
        let of_first = last(&Pages::default(), 0, 14 * second);
        assert!(of_first.contains(&(None, Phase::Other, 58)), "{of_first:?}");
        assert!(!last(&pages, 0, 14 * second).iter().any(|(worker, ..)| worker.is_none()), "told already");
        // one that had ended before the stop stood nowhere then; one that the stop has ended did
        assert_eq!(last(&pages, 1, 14 * second), []);
        std::fs::write(dir.path().join(STOP), "{}").unwrap();
        let mut pages = Pages::default();
        pages.look(&dir, [(Rank(1), u32::MAX)].into_iter(), HostTime(13 * second));
        assert_eq!(last(&pages, 1, 14 * second), [(None, Phase::Wait, 57)]);
    }
}
