//! The figures of a run when all of its events have been taken in.

use std::collections::{BTreeMap, BTreeSet};

use super::figures::{
    Charts, Counted, Episode, Estimates, GapFigures, LossFigures, PhaseFigures, RankFigures, RunAnalysis,
    SampleFigures, Spread, StepFigures, WhatIf,
};
use super::histogram::Histogram;
use super::logs::Logs;
use super::steps::{RankSteps, Steps};
use super::{Analyzer, chance, facts};
use crate::domain::ids::Rank;
use crate::domain::outcome::before_end;
use crate::domain::run::{JobKind, RankExit, RunSpec};
use crate::domain::step_totals::{Worked, rate_of_all};
use crate::domain::straggler::Straggler;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::trainer_keys::TrainerId;

/// So many steps a run must have for its tenths to tell something.
const LEAST_FOR_TENTHS: u64 = 50;
/// What no phase is told of is left out of the quantiles of [`Phase::Other`] up to this share of its mean.
const LEFT_OUT: f64 = 0.05;
/// So many what-if lines are told.
const WHAT_IFS: usize = 5;

pub(super) fn of(analyzer: Analyzer, damage: Option<String>) -> RunAnalysis {
    let (ended_at, known_until) = analyzer.ends();
    let Analyzer {
        choice, spec, mut telemetry, logs, metrics, steps, episodes, collectives, silences, ..
    } = analyzer;
    let steps = if analyzer.is_unbegun { without_first(steps) } else { steps };
    let created = spec.created;
    let outcome = analyzer.outcome;
    let root = outcome.as_ref().and_then(|outcome| outcome.root);
    let mut unattended = analyzer.unattended;
    before_end(&mut unattended, outcome.as_ref().and_then(|outcome| outcome.at).unwrap_or(Stamp(i64::MAX)));
    let lengths_us = unattended.iter().map(|(from, to)| to.micros_since(*from).unsigned_abs());
    let unattended_us = lengths_us.fold(0, u64::saturating_add);
    let (mut host_figures, gpus) = telemetry.figures(outcome.as_ref().and_then(|outcome| outcome.at));
    host_figures.retain(|figures| choice.has_host(&figures.host, &spec.placements));
    let clocks_apart = steps.clocks_apart.clone().and_then(|apart| apart.named(&analyzer.hosts));
    let nccl = analyzer.collective_totals.figures();
    let facts = facts::of(&spec, &telemetry.hosts, &analyzer.job, analyzer.total_steps);
    let keys = analyzer.keys;
    let place = |key: Rank| {
        let rank = keys.id(key).map_or(key, |id| id.rank);
        spec.placements.get(rank.0 as usize).map(ToString::to_string)
    };
    let mut ranks = ranks(&spec, &steps);
    tell_ends(&mut ranks, &analyzer.exits, &logs);
    let what_if = what_if(&steps);
    let all = lengths(&steps);
    let totals = Totals::of(&steps);
    RunAnalysis {
        run: spec.id.to_string(),
        part: None,
        name: spec.name.clone(),
        created: Some(created),
        world: spec.world(),
        hosts: spec.hosts(),
        duration_us: ended_at.map(|end| end.micros_since(created).max(0).unsigned_abs()),
        first_step_after_us: analyzer
            .first_step_at
            .filter(|_| !spec.is_imported())
            .map(|first| first.micros_since(created).max(0).unsigned_abs()),
        after_last_step_us: analyzer
            .last_step_at
            .and_then(|last| Some(known_until?.micros_since(last).max(0).unsigned_abs())),
        live: false,
        outcome: outcome.as_ref().map(|outcome| outcome.summary.clone()),
        stopped: outcome.as_ref().is_some_and(crate::domain::outcome::RunOutcome::is_stopped),
        success: outcome
            .as_ref()
            .filter(|_| !spec.is_imported())
            .map(crate::domain::outcome::RunOutcome::is_success),
        failed_by: root,
        failed_at: root.and_then(|root| analyzer.exits.get(&root)).map(|(at, _)| *at),
        stands: steps.stands.after(steps.newest),
        restarts: analyzer.restarts,
        steps: step_figures(&spec, &steps, &all, &totals, analyzer.total_steps),
        phases: phases(&steps, &totals),
        what_if,
        stragglers: episodes.iter().filter(|late| choice.has_rank(late.rank)).map(episode).collect(),
        loss: loss(&steps),
        loss_not_finite_at: steps.losses.not_finite,
        metrics: metrics.figures(),
        samples: samples(&steps),
        gpus,
        host_figures,
        silences: silences.all(ended_at),
        clocks_apart,
        gaps: GapFigures {
            dropped: Counted::all(&analyzer.dropped),
            log_bytes: analyzer.log_bytes,
            unattended_us,
            steps: if spec.is_imported() { Vec::new() } else { steps.lost() },
            damage,
        },
        collectives: match &nccl {
            Some(nccl) => Some(nccl.sentence(place, collectives.lost())),
            None => collectives.sentence(place),
        },
        nccl,
        facts,
        incidents: Vec::new(),
        marks: Vec::new(),
        waits: analyzer.waits,
        estimates: estimates(&spec, &steps, &all),
        ranks,
        log: logs.figures(root),
        charts: Charts {
            util: telemetry.charts(),
            range: ended_at.map(|end| (created, end)),
            late: steps
                .ranks
                .into_iter()
                .filter(|(id, _)| choice.has_trainer(*id))
                .filter_map(|(id, rank)| Some((Rank(id.number), rank.late?)))
                .collect(),
            steps: steps.points,
            ended: steps.ended,
        },
    }
}

/// Where nothing tells when the first step began, it has no length.
fn without_first(mut steps: Steps) -> Steps {
    steps.warm_us = None;
    for rank in steps.ranks.values_mut() {
        rank.first_us = None;
    }
    steps
}

/// What would be gained without the time that a rank is late by in a phase, the most first.
fn what_if(steps: &Steps) -> Vec<WhatIf> {
    let mut what_if: Vec<WhatIf> = steps
        .ranks
        .iter()
        .filter(|(id, _)| steps.choice.has_trainer(**id))
        .flat_map(|(id, rank)| {
            let often = is_last_too_often(steps, rank);
            // of a few steps chance can't be ruled out, but where it is always the same one and costs a third of them
            let always = rank.last_in == steps.judged && steps.judged >= ALWAYS;
            let told = rank.what_if.told(Rank(id.number), steps.judged, steps.judged_us);
            told.filter(move |line| often || always && line.share >= 1.0 / 3.0)
        })
        .collect();
    what_if.sort_by_key(|line| std::cmp::Reverse(line.gain_us));
    // beside where a rank loses most of its time, a tenth of that is not worth a word
    let most: BTreeMap<Rank, u64> = what_if.iter().rev().map(|line| (line.rank, line.gain_us)).collect();
    what_if.retain(|line| most.get(&line.rank).is_none_or(|most| line.gain_us.saturating_mul(10) >= *most));
    what_if.truncate(WHAT_IFS);
    what_if
}

/// How the process of each ended, and what it printed; the processes within a rank print what is its log.
fn tell_ends(ranks: &mut [RankFigures], exits: &BTreeMap<Rank, (Stamp, RankExit)>, logs: &Logs) {
    let mut logs_of = None;
    for figures in ranks {
        figures.exit = exits.get(&figures.within).map(|(_, exit)| exit.describe());
        if logs_of.replace(figures.within) != Some(figures.within) {
            (figures.warnings, figures.errors) = logs.of(figures.within);
        }
    }
}

/// Of fewer steps than these no rank is told to be always the last.
const ALWAYS: u64 = 4;

/// Whether a rank comes last far more often than by chance: in all steps, in those in which others wait for long, or in those in
/// which they wait for a whole step and more, as for a checkpoint that one rank saves each epoch.
fn is_last_too_often(steps: &Steps, rank: &RankSteps) -> bool {
    let ranks = steps.world();
    // of those in which one can be said to be the last
    let decided = steps.ranks.values().map(|rank| rank.last_in).sum();
    chance::is_far_off(rank.last_in, decided, ranks)
        || chance::is_far_off(rank.dear_in, steps.dear, ranks)
        || chance::is_surely_off(rank.huge_in, steps.huge, ranks)
}

/// Sums over the steps of all ranks that tell their phases.
struct Totals {
    step_us: u64,
    steps: u64,
    phases: [u64; Phase::COUNT],
    hidden_us: u64,
}

impl Totals {
    fn of(steps: &Steps) -> Self {
        let mut totals = Self { step_us: 0, steps: 0, phases: [0; Phase::COUNT], hidden_us: 0 };
        for rank in steps.ranks.values().filter(|rank| rank.phased > 0) {
            totals.step_us += rank.phased_us;
            totals.steps += rank.phased;
            totals.hidden_us += rank.hidden_us;
            totals.phases.iter_mut().zip(rank.phases).for_each(|(sum, us)| *sum += us);
        }
        totals
    }
}

/// The shares of the phases; the last one has what no phase is told of.
fn shares(phases: &[u64; Phase::COUNT], step_us: u64) -> [f64; Phase::COUNT] {
    let told: u64 = phases.iter().sum();
    let all = step_us.max(told).max(1);
    let mut shares = phases.map(|us| us as f64 / all as f64);
    shares[Phase::Other.index()] += (all - told.min(all)) as f64 / all as f64;
    shares
}

fn exposed(phases: &[u64; Phase::COUNT]) -> u64 {
    phases[Phase::Wait.index()] + phases[Phase::Transfer.index()]
}

/// A job of which no rank hides anything looks like one that doesn't tell: nothing is known then.
fn overlap(is_told: bool, hidden_us: u64, exposed_us: u64) -> Option<f64> {
    (is_told && hidden_us + exposed_us > 0).then(|| hidden_us as f64 / (hidden_us + exposed_us) as f64)
}

/// Whether it is told what of the allreduce is hidden, by a rank, or by a trace of torch's kernels, which shows all of it; and what is
/// not.
fn tells_overlap(spec: &RunSpec, steps: &Steps) -> bool {
    let is_trace = spec.is_imported() && spec.kind == JobKind::Torch;
    let tells_hidden = is_trace || steps.ranks.values().any(|rank| rank.hidden_us > 0);
    tells_hidden && tells_exposed(spec, steps)
}

/// Whether all of the exposed communication is told: an import that tells waits and of no rank a transfer leaves a part of it out.
fn tells_exposed(spec: &RunSpec, steps: &Steps) -> bool {
    let told = |phase: Phase| steps.ranks.values().any(|rank| rank.phases[phase.index()] > 0);
    !spec.is_imported() || told(Phase::Transfer) || !told(Phase::Wait)
}

fn has_allreduce(phases: &[u64; Phase::COUNT], hidden_us: u64) -> bool {
    exposed(phases) + hidden_us > 0
}

fn ranks(spec: &RunSpec, steps: &Steps) -> Vec<RankFigures> {
    let empty = RankSteps::default();
    let mut all: BTreeMap<TrainerId, &RankSteps> = steps.ranks.iter().map(|(id, rank)| (*id, rank)).collect();
    for placement in &spec.placements {
        all.entry(placement.rank.into()).or_insert(&empty);
    }
    // one in which only others train has figures of its own in theirs
    let with_workers: BTreeSet<Rank> =
        all.keys().filter(|id| id.worker().is_some()).map(|id| id.rank).collect();
    all.retain(|id, rank| id.worker().is_some() || rank.told > 0 || !with_workers.contains(&id.rank));
    all.retain(|id, _| steps.choice.has_trainer(*id));
    let is_judged = steps.judged > 0;
    let (tells_overlap, tells_exposed) = (tells_overlap(spec, steps), tells_exposed(spec, steps));
    let figures = all.into_iter().map(|(id, rank)| {
        let told = rank.phased_us > 0;
        let count = rank.phased;
        let exposed_us = exposed(&rank.phases);
        let has_allreduce = told && has_allreduce(&rank.phases, rank.hidden_us);
        RankFigures {
            rank: Rank(id.number),
            within: id.rank,
            place: spec.placements.get(id.rank.0 as usize).map(ToString::to_string),
            by: rank.by,
            length: Spread::of(&rank.lengths),
            warm_up_us: rank.first_us,
            phases_us: told.then_some(rank.phases),
            shares: told.then(|| shares(&rank.phases, rank.phased_us)),
            last_in: is_judged.then_some(rank.last_in),
            wait_caused_us: is_judged.then_some(rank.caused.us),
            recurring_us: rank.caused.recurring(steps.judged),
            is_last_too_often: is_last_too_often(steps, rank),
            caused_in: steps.judged_span.and_then(|span| rank.caused_in.span(span)),
            overlap: overlap(tells_overlap, rank.hidden_us, exposed_us),
            exposed_us: (has_allreduce && tells_exposed).then(|| exposed_us as f64 / count.max(1) as f64),
            samples_per_s: (rank.sample_us > 0).then(|| rank.samples as f64 * 1e6 / rank.sample_us as f64),
            exit: None,
            warnings: 0,
            errors: 0,
        }
    });
    figures.collect()
}

/// The lengths of whole steps, else those of each rank; and whether they are whole.
fn lengths(steps: &Steps) -> (Histogram, bool) {
    if steps.whole > 0 {
        return (steps.lengths.clone(), true);
    }
    let mut all = Histogram::default();
    steps.ranks.values().for_each(|rank| all.merge(&rank.lengths));
    (all, false)
}

fn step_figures(
    spec: &RunSpec,
    steps: &Steps,
    (lengths, aligned): &(Histogram, bool),
    totals: &Totals,
    of: Option<u64>,
) -> StepFigures {
    let exposed_us = exposed(&totals.phases);
    let told = totals.steps > 0 && has_allreduce(&totals.phases, totals.hidden_us);
    let tellers = steps.ranks.values().filter(|rank| rank.lengths.count() > 0 || rank.first_us.is_some());
    let seen = steps.newest.and(steps.ranks.values().next());
    StepFigures {
        first: steps.first,
        last: steps.newest,
        of,
        by: tellers.map(|rank| rank.by).next().or(seen.map(|rank| rank.by)),
        warm_up_us: steps.warm_us.or(steps.ranks.values().filter_map(|rank| rank.first_us).max()),
        length: Spread::of(lengths),
        aligned: *aligned,
        longest: steps.longest.clone(),
        whole: steps.whole_span,
        judged: steps.judged,
        phased: steps.mean_exposed.count(),
        first_tenth_us: tenth(steps, false).and_then(|part| part.mean_us),
        last_tenth_us: tenth(steps, true).and_then(|part| part.mean_us),
        exposed_us: (told && tells_exposed(spec, steps)).then(|| exposed_us as f64 / totals.steps as f64),
        overlap: overlap(tells_overlap(spec, steps), totals.hidden_us, exposed_us),
    }
}

/// What the first or the last tenth of the steps tells.
struct Tenth {
    mean_us: Option<f64>,
    samples: u64,
    step_us: u64,
}

fn tenth(steps: &Steps, last: bool) -> Option<Tenth> {
    if steps.whole < LEAST_FOR_TENTHS {
        return None;
    }
    let mut points: Vec<_> = steps.points.points().map(|(_, point)| point).collect();
    if last {
        points.reverse();
    }
    let mut all = super::StepPoint::default();
    for point in points {
        if all.lengths.count() * 10 >= steps.whole {
            break;
        }
        crate::domain::series::Merge::merge(&mut all, point);
    }
    Some(Tenth { mean_us: all.lengths.mean(), samples: all.samples, step_us: all.step_us })
}

fn phases(steps: &Steps, totals: &Totals) -> Vec<PhaseFigures> {
    if totals.step_us == 0 {
        return Vec::new();
    }
    let shares = shares(&totals.phases, totals.step_us);
    let figures = Phase::ALL.into_iter().filter_map(|phase| {
        let at = phase.index();
        let mean_us = (shares[at] * totals.step_us as f64) / totals.steps.max(1) as f64;
        let told_us = totals.phases[at] as f64 / totals.steps.max(1) as f64;
        // the quantiles are those of what is told: of a step's rest none are known
        let of = Some(&steps.phases[at])
            .filter(|_| phase != Phase::Other || told_us >= mean_us * (1.0 - LEFT_OUT));
        (shares[at] > 0.0).then(|| PhaseFigures {
            phase,
            share: shares[at],
            mean_us,
            p50_us: of.and_then(|of| of.quantile(0.5)),
            p95_us: of.and_then(|of| of.quantile(0.95)),
        })
    });
    figures.collect()
}

fn loss(steps: &Steps) -> Option<LossFigures> {
    let losses = &steps.losses;
    let (begin, least, end) = (losses.first?, losses.least?, losses.last?);
    Some(LossFigures { first: begin.1, least: least.1, least_step: least.0, last: end.1, last_step: end.0 })
}

fn samples(steps: &Steps) -> Option<SampleFigures> {
    let telling = || steps.ranks.values().filter(|rank| rank.sample_us > 0 && rank.samples > 0);
    let worked: Vec<Worked> = telling()
        .map(|rank| Worked {
            samples: rank.samples,
            us: rank.sample_us,
            meets: has_allreduce(&rank.phases, rank.hidden_us),
            steps: rank.lengths.count(),
        })
        .collect();
    let per_s = rate_of_all(&worked).unwrap_or(0.0);
    // of both by the time of all ranks: of those that meet, the longest of each step takes longer than any rank does
    let a_sample = |samples: u64, us: u64| (samples > 0 && us > 0).then(|| us as f64 / samples as f64);
    let (samples, us) = worked.iter().fold((0, 0), |sum, one| (sum.0 + one.samples, sum.1 + one.us));
    (!worked.is_empty()).then(|| SampleFigures {
        per_s,
        last_tenth_per_s: tenth(steps, true)
            .and_then(|part| Some(per_s * a_sample(samples, us)? / a_sample(part.samples, part.step_us)?)),
    })
}

fn episode(straggler: &Straggler) -> Episode {
    Episode {
        rank: straggler.rank,
        from_step: straggler.since,
        to_step: straggler.over_at,
        cost_us: straggler.cost_us,
        share: straggler.share,
        phase: straggler.lost,
    }
}

fn estimates(spec: &RunSpec, steps: &Steps, (lengths, aligned): &(Histogram, bool)) -> Estimates {
    let dependence = steps.dependence();
    // the ranks of one step tell about the same
    let ranks = steps.ranks.values().filter(|rank| rank.lengths.count() > 0).count().max(1) as f64;
    let of_lengths = if *aligned { dependence } else { dependence * ranks };
    let is_whole = steps.mean_exposed.count() > 0;
    let (phases, exposed, of_phases) = if is_whole {
        (&steps.mean_phases, &steps.mean_exposed, dependence)
    } else {
        (&steps.phases, &steps.exposed, dependence * ranks)
    };
    let told = |histogram: &Histogram| {
        histogram.estimate(0.5, of_phases).filter(|_| histogram.max().is_some_and(|most| most > 0))
    };
    Estimates {
        length: [0.5, 0.95, 0.99].map(|share| lengths.estimate(share, of_lengths)),
        phases: std::array::from_fn(|at| told(&phases[at])),
        exposed: told(exposed).filter(|_| tells_exposed(spec, steps)),
    }
}
