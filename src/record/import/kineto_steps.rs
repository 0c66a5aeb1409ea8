//! What a rank did by torch's profiler, cut into its steps; and which of its time in collectives was waiting.

use std::collections::BTreeMap;
use std::ops::Range;

use super::intervals::{Span, clipped, length, united, without};
use super::slices::{Told, numbered};
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

/// Phases of a step that are kept.
const MOST_SPANS: usize = 1 << 10;
/// Collectives that last beyond the end of a step and are followed into the next one.
const MOST_CARRIED: usize = 64;

/// Nanoseconds by which times are off that count whole microseconds.
const ROUNDED: i64 = 2_000;

/// A step, as the program marks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) span: Span,
    /// Its file is cut, so that its kernels may be missing.
    pub(super) is_cut: bool,
}

/// A collective on one rank: a kernel of NCCL, or gloo's work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comm {
    pub(super) span: Span,
    /// Which collective, among those of all files.
    pub(super) func: u16,
    /// Ranks of its communicator; 0 where that is not told.
    pub(super) group: u32,
    /// How much of it was waiting, from its beginning on.
    pub(super) wait: i64,
}

/// What a process, or all of a rank, did. Times are nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) steps: Vec<Step>,
    /// Kernels of NCCL.
    pub(super) comms: Vec<Comm>,
    /// gloo's collectives: those of a rank without kernels of NCCL.
    pub(super) gloo: Vec<Comm>,
    /// Other kernels.
    pub(super) computing: Vec<Span>,
    /// Operators on the CPU: what a rank without kernels computes.
    pub(super) operators: Vec<Span>,
    /// Batches that the program fetched.
    pub(super) data: Vec<Span>,
    /// Steps of optimizers, with which of them it was.
    pub(super) optimizer: Vec<(u16, Span)>,
    /// Forward and backward passes, which torch's profiler does not tell.
    pub(super) forward: Vec<Span>,
    pub(super) backward: Vec<Span>,
    /// It is one thread, which computes nothing while it moves bytes.
    pub(super) is_one_thread: bool,
    /// What of its slices are steps, by the numbers that they have.
    pub(super) slices: Vec<(Option<u64>, Span)>,
    /// A file of it is cut.
    pub(super) is_cut: bool,
}

impl Lane {
    /// Moves all times.
    pub(super) fn shift(&mut self, by: i64) {
        let moved = |span: &mut Span| *span = (span.0.saturating_add(by), span.1.saturating_add(by));
        self.steps.iter_mut().for_each(|step| moved(&mut step.span));
        self.slices.iter_mut().for_each(|(_, span)| moved(span));
        self.comms.iter_mut().chain(&mut self.gloo).for_each(|comm| moved(&mut comm.span));
        self.computing.iter_mut().chain(&mut self.operators).chain(&mut self.data).for_each(moved);
        self.optimizer.iter_mut().for_each(|(_, span)| moved(span));
        self.forward.iter_mut().chain(&mut self.backward).for_each(moved);
    }

    /// Takes what another process of the rank did.
    pub(super) fn append(&mut self, mut other: Self) {
        self.steps.append(&mut other.steps);
        self.comms.append(&mut other.comms);
        self.gloo.append(&mut other.gloo);
        self.computing.append(&mut other.computing);
        self.operators.append(&mut other.operators);
        self.data.append(&mut other.data);
        self.optimizer.append(&mut other.optimizer);
        self.forward.append(&mut other.forward);
        self.backward.append(&mut other.backward);
        self.is_one_thread |= other.is_one_thread;
        self.is_cut |= other.is_cut;
    }

    /// The file is cut: kernels and gloo's work stand behind the program's events, so what is there of them says nothing of
    /// what is missing. Of one thread's slices the last step is not whole.
    pub(super) fn cut(&mut self) {
        if self.is_one_thread {
            let last = self.slices.iter().map(|(_, span)| *span).max();
            self.slices.retain(|(_, span)| Some(*span) != last);
            return;
        }
        self.is_cut = true;
        self.steps.iter_mut().for_each(|step| step.is_cut = true);
        self.comms.clear();
        self.gloo.clear();
        self.computing.clear();
        self.operators.clear();
        // a step with some phases would say that the others took no time
        self.data.clear();
    }

    /// Takes a slice of its thread in.
    pub(super) fn take_slice(&mut self, told: Told, span: Span) {
        self.is_one_thread = true;
        match told {
            Told::Step(number) => self.slices.push((number, span)),
            Told::Part(Phase::Transfer) => self.gloo.push(Comm { span, func: 0, group: 0, wait: 0 }),
            Told::Part(Phase::Optimizer) => self.optimizer.push((0, span)),
            Told::Part(Phase::Backward) => self.backward.push(span),
            Told::Part(Phase::Forward) => self.forward.push(span),
            Told::Part(_) => self.data.push(span),
        }
    }

    /// How many of its slices are phases.
    pub(super) fn parts_of_thread(&self) -> usize {
        let passes = self.data.len() + self.forward.len() + self.backward.len();
        passes + self.gloo.len() + self.optimizer.len()
    }

    /// A thread's slices are all there: makes its steps of them, and leaves out phases that lie in none. How many steps lie in
    /// another one, and how many got another number than they have.
    pub(super) fn end_thread(&mut self) -> (u64, u64) {
        let mut slices = std::mem::take(&mut self.slices);
        slices.sort_by_key(|(_, (from, to))| (*from, std::cmp::Reverse(*to)));
        let told = slices.len();
        let mut ended = i64::MIN;
        slices.retain(|(_, (_, to))| {
            let is_within = *to <= ended;
            ended = ended.max(*to);
            !is_within
        });
        let nested = told - slices.len();
        let (numbered, other) = numbered(&slices);
        self.steps =
            numbered.into_iter().map(|(number, span)| Step { number, span, is_cut: false }).collect();
        let steps = &self.steps;
        let lies = |span: &Span| {
            let before = steps.partition_point(|step| step.span.0 <= span.0);
            let step = before.checked_sub(1).and_then(|at| steps.get(at));
            step.is_some_and(|step| span.1 <= step.span.1.saturating_add(ROUNDED))
        };
        self.gloo.retain(|comm| lies(&comm.span));
        self.optimizer.retain(|(_, span)| lies(span));
        for spans in [&mut self.data, &mut self.forward, &mut self.backward] {
            spans.retain(lies);
        }
        (nested as u64, other)
    }

    /// A file is over: takes the steps of its optimizer where none are marked. Of a file that is cut the optimizer is no phase, for
    /// what is missing may be kernels.
    pub(super) fn end_file(&mut self, by_optimizer: bool) {
        if by_optimizer {
            self.steps_of_optimizer();
        }
        if self.is_cut {
            self.optimizer = Vec::new();
        }
    }

    /// Makes steps of an optimizer's, each from the end of the one before to its own end. Of several optimizers that which steps
    /// most often counts.
    fn steps_of_optimizer(&mut self) {
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        for (which, _) in &self.optimizer {
            *counts.entry(*which).or_default() += 1;
        }
        let Some((most, _)) = counts.into_iter().rev().max_by_key(|(_, count)| *count) else { return };
        let mut ends: Vec<i64> =
            self.optimizer.iter().filter(|(which, _)| *which == most).map(|(_, span)| span.1).collect();
        ends.sort_unstable();
        let is_cut = self.is_cut;
        let spans = ends.windows(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
        self.steps = spans.zip(0..).map(|(span, number)| Step { number, span, is_cut }).collect();
    }

    /// Numbers the steps in the order of time.
    pub(super) fn number_in_time(&mut self) {
        self.steps.sort_by_key(|step| step.span);
        self.steps.dedup_by_key(|step| step.span);
        self.steps.iter_mut().zip(0..).for_each(|(step, number)| step.number = number);
    }

    /// Puts all in order; to be called once, when all of a rank is there. How many steps were told twice, and how many are left out
    /// because they begin before the one before has ended.
    pub(super) fn settle(&mut self) -> (u64, u64) {
        let on_cpu = self.computing.is_empty() && self.comms.is_empty();
        if self.comms.is_empty() {
            self.comms = std::mem::take(&mut self.gloo);
        }
        self.gloo = Vec::new();
        if self.is_one_thread {
            self.computing = Vec::new();
        } else if on_cpu {
            self.computing = std::mem::take(&mut self.operators);
            self.computing.extend(&self.data);
            self.computing.extend(self.optimizer.iter().map(|(_, span)| *span));
        } else {
            // with a GPU an optimizer's step is the launch of its kernels
            self.optimizer = Vec::new();
        }
        self.operators = Vec::new();
        self.computing = united(std::mem::take(&mut self.computing));
        for spans in [&mut self.data, &mut self.forward, &mut self.backward] {
            *spans = united(std::mem::take(spans));
        }
        self.steps.sort_by_key(|step| (step.span, step.number));
        self.comms.sort_by_key(|comm| comm.span);
        let told = self.steps.len();
        let mut seen = std::collections::BTreeSet::new();
        self.steps.retain(|step| seen.insert(step.number));
        let repeated = told - self.steps.len();
        (repeated as u64, self.drop_overlapping())
    }

    /// A moment belongs to one step. Times that were rounded overlap a little.
    fn drop_overlapping(&mut self) -> u64 {
        let told = self.steps.len();
        let mut ended = i64::MIN;
        self.steps.retain_mut(|step| {
            let (from, to) = step.span;
            if from.saturating_add(ROUNDED) < ended || to <= ended && from < ended {
                return false;
            }
            step.span.0 = from.max(ended);
            ended = ended.max(to);
            true
        });
        (told - self.steps.len()) as u64
    }

    /// Which collectives begin in a step.
    fn begun(&self, step: &Step) -> Range<usize> {
        let from = self.comms.partition_point(|comm| comm.span.0 < step.span.0);
        let to = self.comms.partition_point(|comm| comm.span.0 < step.span.1);
        from..to.max(from)
    }

    /// Gives the parts of all steps, in their order in time; how many collectives belong to none.
    pub(super) fn parts(&self, give: &mut dyn FnMut(u64, Part)) -> u64 {
        let optimizer = united(self.optimizer.iter().map(|(_, span)| *span).collect());
        let within = |all: &[Span], span: Span| {
            let from = all.partition_point(|other| other.1 <= span.0);
            let to = all.partition_point(|other| other.0 < span.1).max(from);
            all.get(from..to).unwrap_or_default().to_vec()
        };
        let mut rest = &self.comms[..];
        let mut carried: Vec<Comm> = Vec::new();
        let mut beside = 0;
        for step in &self.steps {
            let (from, to) = step.span;
            let before = rest.partition_point(|comm| comm.span.0 < from);
            let (earlier, later) = rest.split_at(before);
            let reach = earlier.iter().filter(|comm| comm.span.1 > from);
            beside += earlier.len();
            for comm in reach {
                beside -= 1;
                carried.push(*comm);
            }
            let (own, later) = later.split_at(later.partition_point(|comm| comm.span.0 < to));
            rest = later;
            carried.retain(|comm| comm.span.1 > from);
            let mut comms = std::mem::take(&mut carried);
            comms.extend(own);
            carried.extend(comms.iter().filter(|comm| comm.span.1 > to).take(MOST_CARRIED));
            give(
                step.number,
                Part {
                    span: step.span,
                    is_cut: step.is_cut,
                    comms,
                    computing: within(&self.computing, step.span),
                    data: within(&self.data, step.span),
                    optimizer: within(&optimizer, step.span),
                    forward: within(&self.forward, step.span),
                    backward: within(&self.backward, step.span),
                },
            );
        }
        (beside + rest.len()) as u64
    }
}

/// The steps of which waiting is told from moving bytes, where ranks have the same collectives: in each step, or over the whole
/// trace, for a GPU may be a step behind its program. The shortest of a collective is that of the rank that came last.
pub(super) fn part_waits(ranks: &mut BTreeMap<u32, Lane>, world: usize) -> Vec<u64> {
    let mut begun: BTreeMap<u64, Vec<(u32, Range<usize>)>> = BTreeMap::new();
    for (rank, lane) in ranks.iter() {
        for step in &lane.steps {
            begun.entry(step.number).or_default().push((*rank, lane.begun(step)));
        }
    }
    begun.retain(|_, of_step| of_step.len() == world);
    let sorted = |lane: &Lane, range: Range<usize>| {
        let mut funcs: Vec<(u16, usize)> = lane
            .comms
            .get(range.clone())
            .unwrap_or_default()
            .iter()
            .map(|comm| comm.func)
            .zip(range)
            .collect();
        funcs.sort_unstable();
        funcs
    };
    let matched = |ranks: &BTreeMap<u32, Lane>, of_step: &[(u32, Range<usize>)]| {
        let all: Matched = of_step
            .iter()
            .filter_map(|(rank, range)| Some((*rank, sorted(ranks.get(rank)?, range.clone()))))
            .collect();
        let funcs = |one: &[(u16, usize)]| one.iter().map(|(func, _)| *func).collect::<Vec<_>>();
        let first = funcs(&all.first()?.1);
        all.iter().all(|(_, one)| funcs(one) == first).then_some(all)
    };
    let all: Vec<_> = begun.iter().map(|(step, of_step)| (*step, matched(ranks, of_step))).collect();
    let in_steps: Vec<(u64, Matched)> =
        all.iter().filter_map(|(step, matched)| Some((*step, matched.clone()?))).collect();
    if in_steps.len() < all.len() {
        let whole: Vec<_> = ranks.iter().map(|(rank, lane)| (*rank, 0..lane.comms.len())).collect();
        let whole = matched(ranks, &whole).into_iter().collect::<Vec<_>>();
        let by_step: Vec<Matched> = in_steps.iter().map(|(_, matched)| matched.clone()).collect();
        if spread(ranks, &whole)
            .is_some_and(|whole| spread(ranks, &by_step).is_none_or(|by_step| whole <= by_step))
        {
            for whole in &whole {
                set_waits(ranks, whole);
            }
            return all.into_iter().map(|(step, _)| step).collect();
        }
    }
    for (_, matched) in &in_steps {
        set_waits(ranks, matched);
    }
    in_steps.into_iter().map(|(step, _)| step).collect()
}

/// Of each rank, the collectives in the order in which those of all ranks are the same: their names and their places.
type Matched = Vec<(u32, Vec<(u16, usize)>)>;

/// How far the ends of the same collective lie apart in the mean, by the ranks' clocks: all leave it together, so the better of two
/// ways to match them is the one by which they do. `None` where there is none.
fn spread(ranks: &BTreeMap<u32, Lane>, all: &[Matched]) -> Option<i128> {
    let (mut sum, mut count) = (0_i128, 0_i128);
    for matched in all {
        for at in 0..matched.first().map_or(0, |(_, one)| one.len()) {
            let end = |(rank, one): &(u32, Vec<(u16, usize)>)| {
                Some(ranks.get(rank)?.comms.get(one.get(at)?.1)?.span.1)
            };
            let ends = || matched.iter().filter_map(end);
            sum += i128::from(ends().max()?) - i128::from(ends().min()?);
            count += 1;
        }
    }
    (count > 0).then(|| sum / count)
}

/// Of collectives that are the same on all ranks, place by place.
fn set_waits(ranks: &mut BTreeMap<u32, Lane>, matched: &Matched) {
    let count = matched.first().map_or(0, |(_, one)| one.len());
    for at in 0..count {
        let places = matched.iter().filter_map(|(rank, one)| Some((*rank, one.get(at)?.1)));
        let places: Vec<(u32, usize)> = places.collect();
        let lasts = |comm: &Comm| comm.span.1 - comm.span.0;
        let of = |ranks: &BTreeMap<u32, Lane>, (rank, at): (u32, usize)| {
            ranks.get(&rank).and_then(|lane| lane.comms.get(at)).map(lasts)
        };
        let least = places.iter().filter_map(|place| of(ranks, *place)).min().unwrap_or_default();
        for (rank, at) in places {
            if let Some(comm) = ranks.get_mut(&rank).and_then(|lane| lane.comms.get_mut(at)) {
                comm.wait = lasts(comm) - least;
            }
        }
    }
}

/// A rank's part in a step.
pub(super) struct Part {
    pub(super) span: Span,
    pub(super) is_cut: bool,
    /// Those that begin in it, and those that last into it.
    pub(super) comms: Vec<Comm>,
    computing: Vec<Span>,
    data: Vec<Span>,
    optimizer: Vec<Span>,
    forward: Vec<Span>,
    backward: Vec<Span>,
}

impl Part {
    /// The step as it is recorded, and how many phases it has beyond what is kept.
    pub(super) fn timing(&self, step: u64, tells_wait: bool) -> (StepTiming, u64) {
        let (mut waiting, mut moving, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        for comm in &self.comms {
            let Some(span) = clipped(comm.span, self.span) else { continue };
            busy.push(span);
            let moves = comm.span.0.saturating_add(comm.wait).clamp(span.0, span.1);
            waiting.extend(without((span.0, moves), &self.computing));
            moving.extend(without((moves, span.1), &self.computing));
        }
        // where streams run beside each other, who moves bytes does not wait
        let moving = united(moving);
        let waiting: Vec<Span> =
            united(waiting).into_iter().flat_map(|span| without(span, &moving)).collect();
        let exposed = united([&waiting[..], &moving[..]].concat());
        let mut taken = exposed.clone();
        let mut free = |spans: &[Span]| {
            let own = spans.iter().filter_map(|span| clipped(*span, self.span));
            let own: Vec<Span> = own.flat_map(|span| without(span, &taken)).collect();
            taken = united([&taken[..], &own[..]].concat());
            own
        };
        let own = [
            (Phase::Optimizer, &self.optimizer),
            (Phase::Data, &self.data),
            (Phase::Backward, &self.backward),
            (Phase::Forward, &self.forward),
        ];
        let own = own.map(|(phase, spans)| (phase, free(spans)));
        let phases = [(Phase::Wait, waiting), (Phase::Transfer, moving)].into_iter().chain(own);
        let mut spans: Vec<PhaseSpan> = Vec::new();
        for (phase, all) in phases {
            spans.extend(all.iter().map(|(from, to)| PhaseSpan {
                phase,
                start_us: micros(from - self.span.0),
                dur_us: micros(to - from),
            }));
        }
        spans.retain(|span| span.dur_us > 0);
        spans.sort_by_key(|span| span.start_us);
        if tells_wait && !spans.iter().any(|span| span.phase == Phase::Wait) {
            // that it came last, it tells too
            let transfer = spans.iter().find(|span| span.phase == Phase::Transfer);
            let start_us = transfer.map_or(0, |span| span.start_us);
            let at = spans.partition_point(|span| span.start_us < start_us);
            spans.insert(at, PhaseSpan { phase: Phase::Wait, start_us, dur_us: 0 });
        }
        let crowded = spans.len().saturating_sub(MOST_SPANS) as u64;
        keep_longest(&mut spans);
        let hidden = length(&united(busy)) - length(&exposed);
        let start = u64::try_from(self.span.0.div_euclid(1_000)).unwrap_or_default();
        let timing = StepTiming {
            step,
            start: HostTime(start),
            dur_us: micros(self.span.1 - self.span.0),
            loss: None,
            samples: 0,
            spans: spans.into(),
            hidden_us: micros(hidden),
        };
        (timing, crowded)
    }
}

/// Drops the shortest phases beyond what a step has; that it tells its wait stays.
fn keep_longest(spans: &mut Vec<PhaseSpan>) {
    if spans.len() <= MOST_SPANS {
        return;
    }
    let wait = spans.iter().enumerate().filter(|(_, span)| span.phase == Phase::Wait);
    let wait = wait.max_by_key(|(_, span)| span.dur_us).map(|(at, _)| at);
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|at| (Some(*at) != wait, std::cmp::Reverse(spans.get(*at).map(|span| span.dur_us))));
    order.truncate(MOST_SPANS);
    order.sort_unstable();
    *spans = order.iter().filter_map(|at| spans.get(*at).copied()).collect();
}

/// Nanoseconds as whole microseconds.
fn micros(ns: i64) -> u32 {
    u32::try_from(ns.saturating_add(500).max(0) / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
