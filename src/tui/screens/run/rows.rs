//! The rows of the table of ranks: which, in which order, and grouped by host where they are many.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::ids::{HostId, Rank};
use crate::domain::standstill::Standstill;
use crate::domain::time::Stamp;
use crate::domain::world::{RankState, RunState};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{SILENT_US, Trouble, trouble};
use crate::tui::screens::run::recent::{Recent, Recents};
use crate::tui::screens::run::verdict::{hang, is_collateral_of, waited_for};

/// With more ranks than this they are grouped by host from the start.
const GROUPED_FROM: usize = 33;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankRow {
    /// All ranks of a host.
    Host(HostId),
    /// A rank.
    Rank(Rank),
    /// A process that trains within a rank.
    Worker(Rank, u32),
}

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankSort {
    /// Failed, stragglers, silent; the others by number.
    Worst,
    /// By number.
    Number,
    /// The longest steps first.
    Slowest,
    /// Those that come latest to the allreduce first.
    Late,
}

impl RankSort {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Worst => Self::Number,
            Self::Number => Self::Slowest,
            Self::Slowest => Self::Late,
            Self::Late => Self::Worst,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Worst => "worst first",
            Self::Number => "by rank",
            Self::Slowest => "slowest first",
            Self::Late => "most delay first",
        }
    }
}

/// How the table is arranged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arranged {
    /// Whether ranks are grouped by host; `None` = as their number asks for.
    pub grouped: Option<bool>,
    /// The order; `None` = worst first where they are grouped, else by number.
    pub sort: Option<RankSort>,
    /// The hosts whose ranks are shown below them.
    pub opened: BTreeSet<HostId>,
    /// How slow or late each rank is, in grades; empty where the order does not ask for it.
    grades: Vec<Option<i32>>,
}

impl Arranged {
    /// Whether the ranks of a run are grouped by host.
    pub fn is_grouped(&self, run: &RunState) -> bool {
        let many = || run.ranks.len() >= GROUPED_FROM && run.by_host.len() > 1;
        self.grouped.unwrap_or_else(many)
    }

    /// The order of the rows.
    pub fn order(&self, run: &RunState) -> RankSort {
        let usual = if self.is_grouped(run) { RankSort::Worst } else { RankSort::Number };
        self.sort.unwrap_or(usual)
    }
}

/// How many times as long the steps of a rank take as those of one that is one grade faster; by so much of a typical step one is
/// later than another of the grade before.
const GRADE: f64 = 1.05;
/// How far a rank is from the middle of its grade when it gets another one, in grades: more than half of one, so that ranks
/// whose steps take about as long keep their places.
const NEXT_GRADE: f64 = 0.9;

/// Grades the ranks by their recent steps, where their order asks for it.
pub(super) fn grade(model: &mut Model) {
    let arranged = &model.ui.run.arranged;
    let grades = match model.shown_run() {
        Some((_, run)) => match arranged.order(run) {
            RankSort::Slowest => kept(slow_places(run), &arranged.grades),
            RankSort::Late => kept(late_places(run), &arranged.grades),
            RankSort::Worst | RankSort::Number => Vec::new(),
        },
        None => Vec::new(),
    };
    model.ui.run.arranged.grades = grades;
}

/// What is typical of these.
fn typical_of(values: impl Iterator<Item = f64>) -> f64 {
    let mut known: Vec<f64> = values.collect();
    known.sort_unstable_by(f64::total_cmp);
    known.get(known.len() / 2).copied().unwrap_or(1.0).max(1.0)
}

/// How much slower than a typical rank each is, in grades.
fn slow_places(run: &RunState) -> Vec<Option<f64>> {
    let means: Vec<Option<f64>> = run.ranks.iter().map(|rank| Recent::of(rank).step_us()).collect();
    let typical = typical_of(means.iter().copied().flatten());
    means.into_iter().map(|mean| Some((mean?.max(1.0) / typical).ln() / GRADE.ln())).collect()
}

/// How much later than a typical rank each comes to the allreduce, in grades; of several processes in a rank the latest.
fn late_places(run: &RunState) -> Vec<Option<f64>> {
    let recents = Recents::of(run);
    let late = recents.lateness_us();
    let grade = typical_of(recents.all().filter_map(Recent::step_us)) * (GRADE - 1.0);
    let of = |at: usize| {
        let late = run.trainers_in(Rank(at as u32)).filter_map(|one| late.get(&one.key).copied());
        late.max_by(f64::total_cmp).map(|us| us / grade)
    };
    (0..run.ranks.len()).map(of).collect()
}

/// The grade of each rank. It keeps the one it had while it is about as slow or late as that says.
fn kept(places: Vec<Option<f64>>, before: &[Option<i32>]) -> Vec<Option<i32>> {
    let graded = places.into_iter().enumerate().map(|(at, place)| {
        let place = place?;
        let kept = before.get(at).copied().flatten();
        let kept = kept.filter(|grade| (place - f64::from(*grade)).abs() < NEXT_GRADE);
        Some(kept.unwrap_or(place.round() as i32))
    });
    graded.collect()
}

/// The rows of the run that is shown.
pub fn rows(model: &Model) -> Vec<RankRow> {
    model.shown_run().map_or_else(Vec::new, |(_, run)| Look::of(model, run).rows())
}

/// The delay that each rank caused in what the heat map shows, microseconds, while that is on the screen.
fn delays(model: &Model) -> Option<BTreeMap<Rank, u64>> {
    let replay = model.is_replay().then_some(&model.ui.replay).filter(|replay| replay.heat)?;
    let (_, known) = replay.figures.last.as_ref()?;
    Some(known.ranks.iter().filter_map(|figures| Some((figures.rank, figures.wait_caused_us?))).collect())
}

fn of_rank(run: &RunState, at: usize) -> impl Iterator<Item = RankRow> {
    let number = Rank(at as u32);
    let workers = run.ranks[at].workers.keys().map(move |worker| RankRow::Worker(number, *worker));
    std::iter::once(RankRow::Rank(number)).chain(workers)
}

/// The rank under the cursor; on a host its first.
pub fn selected_rank(model: &Model) -> Option<Rank> {
    match model.ui.run.ranks.on.as_ref()? {
        RankRow::Rank(rank) | RankRow::Worker(rank, _) => Some(*rank),
        RankRow::Host(host) => {
            let (_, run) = model.shown_run()?;
            run.by_host.get(host)?.first().copied()
        }
    }
}

/// The host that a row belongs to.
pub fn host_of(run: &RunState, row: &RankRow) -> Option<HostId> {
    match row {
        RankRow::Host(host) => Some(host.clone()),
        RankRow::Rank(rank) | RankRow::Worker(rank, _) => {
            run.ranks.get(rank.0 as usize).map(|rank| rank.placement.host.clone())
        }
    }
}

/// How the ranks of a run stand: which is to be looked at first, which hosts are silent, whether all of them hang.
pub(super) struct Look<'a> {
    pub(super) model: &'a Model,
    pub(super) run: &'a RunState,
    /// The rank that failed first.
    root: Option<Rank>,
    /// The one that the others wait for.
    waited_for: Option<Rank>,
    /// The standstill of a run that hangs, and when a rank last finished a step.
    pub(super) hang: Option<(Standstill, Stamp)>,
    /// Hosts that are silent, and when each was heard last.
    pub(super) silent: BTreeMap<&'a HostId, Stamp>,
}

impl<'a> Look<'a> {
    pub(super) fn of(model: &'a Model, run: &'a RunState) -> Self {
        let hang = hang(model, run);
        let waited_for = waited_for(run, hang.as_ref());
        Self { model, run, root: run.root_cause(), waited_for, hang, silent: silent_hosts(model, run) }
    }

    /// The rows of the table.
    pub(super) fn rows(&self) -> Vec<RankRow> {
        let (model, run) = (self.model, self.run);
        let arranged = &model.ui.run.arranged;
        let order = arranged.order(run);
        let delays = if order == RankSort::Late { delays(model) } else { None };
        let mut ranks: Vec<(u64, usize)> = match order {
            RankSort::Number => (0..run.ranks.len()).map(|at| (0, at)).collect(),
            RankSort::Worst => {
                run.ranks.iter().enumerate().map(|(at, rank)| (self.badness(at, rank), at)).collect()
            }
            RankSort::Late if delays.is_some() => {
                let delays = delays.unwrap_or_default();
                let delay = |at: usize| {
                    let of = run.trainers_in(Rank(at as u32)).filter_map(|one| delays.get(&one.key));
                    of.max().copied()
                };
                let place = |at: usize| delay(at).map_or(u64::MAX, |us| u64::MAX - 1 - us);
                (0..run.ranks.len()).map(|at| (place(at), at)).collect()
            }
            RankSort::Slowest | RankSort::Late => {
                let grade = |at: usize| arranged.grades.get(at).copied().flatten();
                let place = |grade: i32| (i64::from(i32::MAX) - i64::from(grade)).cast_unsigned();
                (0..run.ranks.len()).map(|at| (grade(at).map_or(u64::MAX, place), at)).collect()
            }
        };
        if !arranged.is_grouped(run) {
            ranks.sort_unstable();
            return ranks.into_iter().flat_map(|(_, at)| of_rank(run, at)).collect();
        }
        // hosts in the order of their worst rank
        let place = |number: &Rank| ranks.get(number.0 as usize).copied();
        let worst_of = |numbers: &[Rank]| numbers.iter().filter_map(place).min();
        let mut hosts: Vec<_> = run.by_host.iter().map(|(host, of)| (worst_of(of), host, of)).collect();
        hosts.sort_unstable();
        let mut rows = Vec::new();
        for (_, host, of) in hosts {
            rows.push(RankRow::Host(host.clone()));
            if arranged.opened.contains(host) {
                let mut places: Vec<_> = of.iter().filter_map(place).collect();
                places.sort_unstable();
                rows.extend(places.into_iter().flat_map(|(_, at)| of_rank(run, at)));
            }
        }
        rows
    }

    /// The less, the worse.
    fn badness(&self, at: usize, rank: &RankState) -> u64 {
        let number = Rank(at as u32);
        if self.root == Some(number) {
            0
        } else if self.has_failed(number) {
            1
        } else if self.is_late(number) {
            2
        } else if self.heard_last(rank).is_some() {
            3
        } else {
            4
        }
    }

    /// Whether a rank failed by itself.
    pub(super) fn has_failed(&self, number: Rank) -> bool {
        let exit = self.run.ranks.get(number.0 as usize).and_then(|rank| rank.exit.as_ref());
        exit.is_some_and(|(_, exit)| !exit.stopped && exit.shell_code() != 0) && !self.is_collateral(number)
    }

    /// Whether a rank, or a process within it, is the one that the others wait for.
    pub(super) fn is_late(&self, number: Rank) -> bool {
        self.waited_for.is_some_and(|late| self.run.rank_of(late) == number)
    }

    /// Since when a rank of a run that hangs has finished no step, or one of the processes within it; or this one of them.
    pub(super) fn no_step_since(&self, number: Rank, worker: Option<u32>) -> Option<Stamp> {
        let (still, since) = self.hang.as_ref()?;
        let hangs = match worker {
            None => self.run.trainers_in(number).any(|one| still.has(one.key)),
            worker => self.run.trainer_key(number, worker).is_some_and(|key| still.has(key)),
        };
        hangs.then_some(*since)
    }

    /// Whether the run hangs.
    pub(super) fn hangs(&self) -> bool {
        self.hang.is_some()
    }

    /// The key of the one to look at: that failed first, or that holds the others up while the run goes on.
    pub(super) fn culprit(&self) -> Option<Rank> {
        let first = |root| self.run.trainers_in(root).next().map_or(root, |one| one.key);
        self.root.map(first).or(self.waited_for)
    }

    /// Whether a rank ended because of the root cause, not by itself.
    pub(super) fn is_collateral(&self, number: Rank) -> bool {
        is_collateral_of(self.run, self.root, number)
    }

    /// Whether the row of a rank, or of a process within it, is to be looked at first.
    pub(super) fn is_culprit(&self, number: Rank, worker: Option<u32>) -> bool {
        match self.root {
            Some(root) => worker.is_none() && root == number,
            None => self.waited_for.is_some_and(|late| self.run.trainer_key(number, worker) == Some(late)),
        }
    }

    /// When the host was heard last that has been silent the longest.
    pub(super) fn silent_since(&self) -> Option<Stamp> {
        self.silent.values().min().copied()
    }

    /// When a rank on a silent host was heard last, while it has not ended.
    pub(super) fn heard_last(&self, rank: &RankState) -> Option<Stamp> {
        self.silent.get(&rank.placement.host).copied().filter(|_| rank.exit.is_none())
    }
}

/// The hosts of a run that goes on of which nothing is heard now, and when each was heard last.
pub fn silent_hosts<'a>(model: &Model, run: &'a RunState) -> BTreeMap<&'a HostId, Stamp> {
    let mut silent = BTreeMap::new();
    // of a run that was imported no host is asked
    if !run.is_live() || run.spec.is_imported() {
        return silent;
    }
    let now = model.moment();
    for (host, numbers) in &*run.by_host {
        let ranks = numbers.iter().filter_map(|number| run.ranks.get(number.0 as usize));
        let mut live = ranks.filter(|rank| rank.exit.is_none()).peekable();
        if live.peek().is_none() {
            continue;
        }
        let of_ranks = live.map(last_word).fold(None, Option::max);
        let Some(state) = model.world.hosts.get(host) else { continue };
        let last = of_ranks.max(state.latest().map(|(at, _)| at));
        // of one that is lost, the moment that Cluster tells
        let last = state.down_since.filter(|_| last.is_some()).or(last);
        let Some(last) = last else { continue };
        let is_silent = match trouble(Some(state)) {
            // a host that tells no telemetry is not expected to say anything
            Trouble::None => state.latest().is_some() && now.micros_since(last) > SILENT_US,
            Trouble::Limited => false,
            Trouble::Down | Trouble::Refused => true,
            Trouble::Pending => of_ranks.is_some(),
        };
        if is_silent {
            silent.insert(host, last);
        }
    }
    silent
}

/// When a rank told anything last.
fn last_word(rank: &RankState) -> Option<Stamp> {
    let of = |rank: &RankState| {
        let step = rank.steps.back().map(|(at, _)| *at);
        let line = rank.last_line.as_ref().map(|line| line.at);
        step.max(line).max(rank.started.map(|(at, _)| at))
    };
    rank.workers.values().map(of).fold(of(rank), Option::max)
}
