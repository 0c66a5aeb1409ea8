//! What of a run is worth a look: at most five sentences, each with its evidence, the dearest first.

use serde::Serialize;

use super::figures::{Episode, RunAnalysis, SlowStep, Span, WhatIf};
use super::what_if::matters;
use super::{gpu_finding, latecomer, metrics, silence};
use crate::domain::event::UNTICKED;
use crate::domain::ids::Rank;
use crate::domain::standstill::silence_us;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::units::{bytes, counted, metric, ranges, short_duration_us};

/// How many are told at most.
const MOST: usize = 5;
/// A phase that takes this share of all ranks' steps is told.
const DATA_FROM: f64 = 0.15;
const EXPOSED_FROM: f64 = 0.25;
/// A rank that comes last is told without its phase from this share of the steps' time on, where it is last so many times.
const LAST_FROM: f64 = 0.05;
const LAST_LEAST: u64 = 3;
/// A step that takes so many times the median is looked at alone, from this share of the steps' time or so many microseconds on, and
/// where fewer than so many are as slow.
const SLOW_FROM: f64 = 10.0;
const SLOW_SHARE: f64 = 0.01;
const SLOW_US: u64 = 10_000_000;
const SLOW_MOST: usize = 16;
/// Steps of which 99 of 100 are shorter than so many times the median are even.
const UNEVEN_FROM: f64 = 2.0;
/// Steps that become longer or shorter by this share over the run.
const DRIFT_FROM: f64 = 0.10;
/// So many more times in which a rank was a straggler are told.
const OTHERS: usize = 3;
/// A start that takes this share of the run, and so long, microseconds.
const START_FROM: f64 = 0.2;
const START_LEAST_US: u64 = 30_000_000;

/// Where in the run something can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Where the run had finished this step.
    Step(u64),
    /// At this moment.
    At(#[serde(serialize_with = "rfc3339")] Stamp),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn rfc3339<S: serde::Serializer>(at: &Stamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&at.rfc3339())
}

/// One thing to look at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What, in a sentence.
    pub words: String,
    /// By which numbers.
    pub evidence: String,
    /// How much it weighs: about the share of the run's time that it costs, 2 and more for a run that went wrong.
    pub weight: f64,
    /// Where a replay shows it; `None` where it is the same all along.
    pub place: Option<Place>,
    /// In which steps it lies; `None` where it is spread over the run.
    #[serde(rename = "steps")]
    pub span: Option<Span>,
}

impl Finding {
    pub(super) fn new(weight: f64, words: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { words: words.into(), evidence: evidence.into(), weight, place: None, span: None }
    }

    /// The same, with where it can be seen.
    pub(super) fn seen_at(self, place: impl Into<Option<Place>>) -> Self {
        Self { place: place.into(), ..self }
    }

    /// The same where nothing else says where it can be seen.
    fn or_seen_at(self, place: Option<Place>) -> Self {
        Self { place: self.place.or(place), ..self }
    }

    /// The same, which cost so much in all, most of it in these steps of a run.
    fn mostly_in(self, run: &RunAnalysis, span: Option<Span>, us: u64) -> Self {
        let Some(Span { from_step, to_step }) = span else { return self };
        let steps = to_step.saturating_sub(from_step).saturating_add(1);
        let there = short_duration_us(us / steps.max(1));
        let lasts = run.steps.last == Some(to_step) && run.steps.first < Some(from_step);
        let which = if lasts {
            format!("from step {from_step} on")
        } else {
            format!("in steps {from_step} to {to_step}")
        };
        let evidence = format!("{}\nmost of it {which}: about {there} a step there", self.evidence);
        Self { evidence, span, ..self.seen_at(Place::Step(from_step)) }
    }
}

/// What is worth a look, the heaviest first.
pub fn findings(run: &RunAnalysis) -> Vec<Finding> {
    let mut found: Vec<Finding> =
        [failure(run), stalled(run), not_finite(run), slow_step(run), uneven(run), drift(run), start(run)]
            .into_iter()
            .chain([
                data(run),
                exposed(run),
                gpu_finding::idle(run),
                missing(run),
                unticked(run),
                errors(run),
                clocks(run),
                silence::finding(run),
                latecomer::finding(run),
                metrics::finding(run),
            ])
            .flatten()
            .collect();
    found.extend(late(run));
    found.extend(gpu_finding::held_down(run));
    found.extend(run.gpus.iter().flat_map(|gpu| gpu_finding::of_gpu(run, gpu)));
    found.extend(run.host_figures.iter().filter_map(gpu_finding::of_host));
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    found.truncate(MOST);
    found
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Lanes and traces of two hosts whose clocks are apart must not be compared.
fn clocks(run: &RunAnalysis) -> Option<Finding> {
    let apart = run.clocks_apart.as_ref()?;
    let words = format!(
        "the clock of {} is at least {} ahead of that of {}: their lanes do not fit together",
        apart.ahead,
        short_duration_us(apart.us),
        apart.behind
    );
    let evidence = format!(
        "in {} of {} steps ranks of {} left the allreduce before one of {} came to it, by more than pings are sure of",
        apart.steps, apart.of, apart.behind, apart.ahead
    );
    Some(Finding::new(0.05, words, evidence))
}

/// `rank 3 (gpu-b:1)`.
pub(super) fn rank_words(run: &RunAnalysis, rank: Rank) -> String {
    let place =
        run.ranks.iter().find(|figures| figures.rank == rank).and_then(|figures| figures.place.as_ref());
    place.map_or_else(|| format!("rank {rank}"), |place| format!("rank {rank} ({place})"))
}

fn failure(run: &RunAnalysis) -> Option<Finding> {
    if run.success != Some(false) || run.stopped || !run.has_end() {
        return None;
    }
    let line = run.log.first_error.as_ref();
    let evidence = line.map_or_else(String::new, |line| {
        // the rank by which it failed has printed none
        let is_other = run.failed_by.is_some_and(|root| root != line.rank);
        let what = if is_other { "an error of" } else { "first error," };
        format!("{what} rank {}: {}", line.rank, line.text)
    });
    let finding = Finding::new(4.0, "the run failed", format!("{}\n{evidence}", run.outcome.as_deref()?));
    // behind its last words, where it is known to have failed
    let end = || run.charts.range.map(|(_, end)| end);
    let place = run.failed_at.or_else(|| line.and_then(|line| line.at)).or_else(end);
    Some(finding.seen_at(place.map(Place::At)))
}

/// A run that did not end well took no step any more before its end: it hung.
fn stalled(run: &RunAnalysis) -> Option<Finding> {
    if run.steps.last.is_none() {
        let words = run.stands.as_deref().filter(|_| run.outcome.is_none() || run.stopped)?;
        let words =
            if run.outcome.is_some() { words.replacen("stands", "stood", 1) } else { words.to_owned() };
        let long = run.duration_us.filter(|us| *us >= START_LEAST_US)?;
        let evidence = format!("no rank told a step in {}", short_duration_us(long));
        return Some(Finding::new(3.5, format!("the run {words}"), evidence));
    }
    let (since, longest) = (run.after_last_step_us?, run.steps.length?.max_us);
    // how an imported run ended is not known
    let may_have_hung = run.success == Some(false) || run.outcome.is_none();
    if !may_have_hung || since < silence_us(Some(longest.into())) {
        return None;
    }
    let before = if run.outcome.is_some() { "before its end" } else { "so far" };
    let place = run.stands.as_deref().and_then(|words| words.split_once(": "));
    let place = place.map_or_else(String::new, |(_, ranks)| format!(": {ranks}"));
    let words = format!("no rank took a step for {} {before}{place}", short_duration_us(since));
    let evidence = format!(
        "the last step was {}; the longest took {}",
        run.steps.last?,
        short_duration_us(longest.into())
    );
    Some(Finding::new(3.5, words, evidence).seen_at(run.steps.last.map(Place::Step)))
}

fn not_finite(run: &RunAnalysis) -> Option<Finding> {
    let step = run.loss_not_finite_at?;
    let last = run.loss.map_or_else(String::new, |loss| format!("last finite loss {}", metric(loss.last)));
    let words = format!("the loss is not a number from step {step} on");
    Some(Finding::new(3.0, words, last).seen_at(Place::Step(step)))
}

/// `if it took as long there as the other ranks, steps would be 18 % shorter`.
fn what_if_words(line: &WhatIf) -> String {
    format!("if it took no longer there than the others, steps would be {} shorter", percent(line.share))
}

/// `99 steps`, `the 31 steps of 599 whose phases are told`: those of which it is known who came last.
fn judged_words(run: &RunAnalysis) -> String {
    let judged = run.steps.judged;
    let all = run.steps.length.map_or(0, |length| length.count);
    if judged < all {
        return format!("the {judged} steps (of {all}) whose phases are told");
    }
    counted(judged, "step")
}

fn late(run: &RunAnalysis) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut told: Vec<Rank> = run.what_if.iter().map(|line| line.rank).collect();
    for line in &run.what_if {
        let rank = run.ranks.iter().find(|rank| rank.rank == line.rank);
        let last = rank.and_then(|rank| rank.last_in).unwrap_or(line.in_steps);
        let evidence = format!(
            "{} a step; last to the allreduce in {last} of {}",
            short_duration_us(line.gain_us / line.of_steps.max(1)),
            judged_words(run)
        );
        let words =
            format!("{} is late {}: {}", rank_words(run, line.rank), line.phase.words(), what_if_words(line));
        let finding = Finding::new(1.0 + line.share, words, evidence);
        let span = rank.and_then(|rank| rank.caused_in);
        found.push(finding.mostly_in(run, span, line.gain_us).or_seen_at(worst_episode(run, line.rank)));
    }
    if let Some((rank, finding)) = last(run) {
        told.push(rank);
        found.push(finding);
    }
    let untold = || run.stragglers.iter().filter(|episode| !told.contains(&episode.rank));
    if let Some(worst) = untold().max_by(|a, b| a.share.total_cmp(&b.share)) {
        let place = worst.phase.map_or_else(String::new, |phase| format!(", late {}", phase.words()));
        let which = match worst.to_step {
            Some(to) => format!("in {}", steps_words(worst.from_step, to)),
            None => format!("from step {} on", worst.from_step),
        };
        let others = others_words(worst, &untold().collect::<Vec<_>>());
        let finding = Finding::new(
            worst.share,
            format!("{} was a straggler {which}{place}", rank_words(run, worst.rank)),
            format!("+{} a step ({}){others}", short_duration_us(worst.cost_us), percent(worst.share)),
        );
        let to_step = worst.to_step.or(run.steps.last).unwrap_or(worst.from_step);
        let span = Some(Span { from_step: worst.from_step, to_step });
        found.push(Finding { span, ..finding.seen_at(Place::Step(worst.from_step)) });
    }
    found
}

/// `steps 201 to 216`, `step 7`.
fn steps_words(from: u64, to: u64) -> String {
    if from == to { format!("step {from}") } else { format!("steps {from} to {to}") }
}

/// `; also in steps 120 to 171, rank 2 from step 900 on`: the other times in which a rank was a straggler, in their order.
fn others_words(worst: &Episode, all: &[&Episode]) -> String {
    let others = || all.iter().filter(|episode| **episode != worst);
    let words = others().take(OTHERS).map(|episode| {
        let rank = if episode.rank == worst.rank { String::new() } else { format!("rank {} ", episode.rank) };
        match episode.to_step {
            Some(to) => format!("{rank}in {}", steps_words(episode.from_step, to)),
            None => format!("{rank}from step {} on", episode.from_step),
        }
    });
    let mut words: Vec<String> = words.collect();
    if words.is_empty() {
        return String::new();
    }
    let more = others().count().saturating_sub(OTHERS);
    if more > 0 {
        words.push(counted(more, "more time"));
    }
    format!("; also {}", words.join(", "))
}

fn worst_episode(run: &RunAnalysis, rank: Rank) -> Option<Place> {
    let own = run.stragglers.iter().filter(|episode| episode.rank == rank);
    let worst = own.max_by(|a, b| a.share.total_cmp(&b.share))?;
    Some(Place::Step(worst.from_step))
}

/// A rank that comes last again and again, of which the phases do not tell where it loses the time.
pub(super) fn last(run: &RunAnalysis) -> Option<(Rank, Finding)> {
    let judged = run.steps.judged;
    let steps_us = run.steps.length.filter(|_| run.steps.aligned)?.mean_us * judged as f64;
    let is_told = |rank: Rank| run.what_if.iter().any(|line| line.rank == rank);
    let recurs = |last_in: u64, us: u64| {
        us as f64 >= LAST_FROM * steps_us && matters(us, judged, steps_us as u64) && last_in >= LAST_LEAST
    };
    let (rank, last_in, us) = run
        .ranks
        .iter()
        .filter(|rank| !is_told(rank.rank) && rank.is_last_too_often)
        .filter_map(|rank| Some((rank, rank.last_in?, rank.recurring_us?)))
        .filter(|(_, last_in, us)| recurs(*last_in, *us))
        .max_by_key(|(_, _, us)| *us)?;
    let share = us as f64 / steps_us.max(1.0);
    let episode = run.stragglers.iter().filter(|episode| episode.rank == rank.rank);
    let episode = episode.max_by(|a, b| a.share.total_cmp(&b.share));
    let place = match episode.and_then(|episode| episode.phase) {
        Some(phase) => format!("late {} where it was a straggler", phase.words()),
        None => "no phase tells where it loses the time".to_owned(),
    };
    let a_step = short_duration_us(us / judged.max(1));
    let finding = Finding::new(
        1.0 + share,
        format!(
            "{} comes last to the allreduce: without that, steps would be {} shorter",
            rank_words(run, rank.rank),
            percent(share)
        ),
        format!("{a_step} a step; last in {last_in} of {}; {place}", judged_words(run)),
    );
    let seen_at = episode.map(|episode| Place::Step(episode.from_step));
    Some((rank.rank, finding.mostly_in(run, rank.caused_in, us).or_seen_at(seen_at)))
}

/// The rank that the others waited for in a slow step, where that is at least half of what it took beyond the usual.
fn waited_for(slow: &SlowStep, usual_us: u32) -> Option<Rank> {
    let extra_us = u64::from(slow.us.saturating_sub(usual_us));
    slow.last.filter(|(_, caused_us)| u64::from(*caused_us) * 2 >= extra_us).map(|(rank, _)| rank)
}

/// A step that took many times as long as others, and is none of many such ones: a stall.
fn slow_step(run: &RunAnalysis) -> Option<Finding> {
    let length = run.steps.length.filter(|_| run.steps.aligned)?;
    let is_slow = |us: u32| f64::from(us) >= SLOW_FROM * f64::from(length.p50_us.max(1));
    let slow: Vec<&SlowStep> = run.steps.longest.iter().filter(|step| is_slow(step.us)).collect();
    let (worst, more) = slow.split_first()?;
    let all_us = length.mean_us * length.count as f64;
    let extra_us = u64::from(worst.us.saturating_sub(length.p50_us));
    let share = extra_us as f64 / all_us.max(1.0);
    if slow.len() >= SLOW_MOST || (share < SLOW_SHARE && extra_us < SLOW_US) {
        return None;
    }
    let waited = waited_for(worst, length.p50_us);
    let mut whom = waited.map_or_else(String::new, |rank| {
        let place = worst.lost.map_or_else(String::new, |lost| format!(", {}", lost.words()));
        format!(": all waited for {}{place}", rank_words(run, rank))
    });
    if let Some((stop, created)) = worst.stop.zip(run.created) {
        let after = |at: Stamp| short_duration_us(at.micros_since(created).max(0).unsigned_abs());
        let (from, to) = (after(stop.from), after(stop.to));
        let rank = rank_words(run, stop.rank);
        whom = format!(": a signal had stopped {rank}, from {from} to {to} after the launch");
    }
    if whom.is_empty()
        && let Some(host) = silence::unreached_in(run, worst, extra_us)
    {
        whom = format!(": {host} could not be reached meanwhile");
    }
    let words = format!(
        "step {} took {} (usually {}){whom}",
        worst.step,
        short_duration_us(worst.us.into()),
        short_duration_us(length.p50_us.into())
    );
    let mut evidence = format!("{} of the time of all steps", percent(share));
    if !more.is_empty() {
        let mut others: Vec<u64> = more.iter().map(|step| step.step).collect();
        others.sort_unstable();
        let others: Vec<String> = others.iter().map(u64::to_string).collect();
        let word = if more.len() == 1 { "step" } else { "steps" };
        evidence.extend(["; as slow: ", word, " ", &others.join(", ")]);
    }
    let weight = if waited.is_some() || worst.stop.is_some() { 1.0 + share } else { share };
    let span = Some(Span { from_step: worst.step, to_step: worst.step });
    let finding = Finding::new(weight, words, evidence).seen_at(Place::Step(worst.step));
    Some(Finding { span, ..finding })
}

fn share_of(run: &RunAnalysis, phase: Phase) -> f64 {
    run.phases.iter().find(|figures| figures.phase == phase).map_or(0.0, |figures| figures.share)
}

/// What the rank that loses the least in a phase loses there: all of them do.
fn least_share(run: &RunAnalysis, of: impl Fn(&[f64; Phase::COUNT]) -> f64) -> f64 {
    let least = run.ranks.iter().filter_map(|rank| rank.shares.as_ref()).map(of).reduce(f64::min);
    least.unwrap_or(0.0)
}

fn data(run: &RunAnalysis) -> Option<Finding> {
    let share = least_share(run, |shares| shares[Phase::Data.index()]);
    let mean = run.phases.iter().find(|figures| figures.phase == Phase::Data)?.mean_us;
    (share >= DATA_FROM).then(|| {
        let all = percent(share_of(run, Phase::Data));
        Finding::new(
            share,
            format!("all ranks wait for data: {all} of a step"),
            format!("{} a step; more loader workers or prefetching", short_duration_us(mean as u64)),
        )
    })
}

fn exposed(run: &RunAnalysis) -> Option<Finding> {
    let (stall, moved, steps) = stalls(run);
    let without = |share: f64| ((share - moved) / (1.0 - stall).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    let share = without(least_share(run, |shares| shares[Phase::Transfer.index()]));
    let hidden = run
        .steps
        .overlap
        .map_or_else(|| "overlap unknown".to_owned(), |of| format!("overlap {}", percent(of)));
    // one rank alone, or one that tells no waits: what it calls transfer may be waiting for another rank
    let tells_waits =
        run.steps.aligned && run.steps.length.is_some_and(|length| run.steps.judged >= length.count);
    let what = if tells_waits {
        "transfer on every rank, not waiting"
    } else {
        "transfer on every rank; waiting for other ranks is not told apart and may be in it"
    };
    (share >= EXPOSED_FROM).then(|| {
        Finding::new(
            share,
            format!(
                "communication is exposed for {} of a step",
                percent(without(share_of(run, Phase::Transfer)))
            ),
            format!("{what}; {hidden}{steps}"),
        )
    })
}

/// The shares of the time of all steps that stalls took which no rank explains, and what in them moved bytes; and the words for
/// their being left out.
fn stalls(run: &RunAnalysis) -> (f64, f64, String) {
    let none = (0.0, 0.0, String::new());
    let Some(length) = run.steps.length.filter(|_| run.steps.aligned) else { return none };
    let is_stall = |step: &&SlowStep| {
        let is_slow = f64::from(step.us) >= SLOW_FROM * f64::from(length.p50_us.max(1));
        is_slow && waited_for(step, length.p50_us).is_none() && step.stop.is_none()
    };
    let stalled: Vec<&SlowStep> = run.steps.longest.iter().filter(is_stall).collect();
    if stalled.is_empty() {
        return none;
    }
    let all_us = (length.mean_us * length.count as f64).max(1.0);
    let share =
        |of: fn(&SlowStep) -> u32| stalled.iter().map(|step| f64::from(of(step))).sum::<f64>() / all_us;
    let words = format!("; without the {} of 10 times the usual length", counted(stalled.len(), "step"));
    (share(|step| step.us), share(|step| step.transfer_us), words)
}

fn uneven(run: &RunAnalysis) -> Option<Finding> {
    let length = run.steps.length.filter(|length| length.count >= 100)?;
    let times = f64::from(length.p99_us) / f64::from(length.p50_us.max(1));
    let longest = run.steps.longest.first().map(|longest| longest.step);
    let longest = longest.or_else(|| {
        // of a long run a point is several steps, of which one is the longest
        let points = run.charts.steps.points();
        let points = points.filter_map(|(step, point)| Some((step, point.lengths.quantile(1.0)?)));
        points.max_by_key(|(_, us)| *us).map(|(step, _)| step)
    });
    (times >= UNEVEN_FROM).then(|| {
        Finding::new(
            0.01 * times,
            format!("1 of 100 steps takes {times:.1} times the median or more"),
            format!(
                "p50 {}, p99 {}, max {}",
                short_duration_us(length.p50_us.into()),
                short_duration_us(length.p99_us.into()),
                short_duration_us(length.max_us.into())
            ),
        )
        .seen_at(longest.map(Place::Step))
    })
}

fn drift(run: &RunAnalysis) -> Option<Finding> {
    let (first, last) = (run.steps.first_tenth_us?, run.steps.last_tenth_us?);
    let change = last / first - 1.0;
    (change >= DRIFT_FROM).then(|| {
        Finding::new(
            change / 2.0,
            format!("steps become slower: +{} over the run", percent(change)),
            format!(
                "first tenth {}, last tenth {}",
                short_duration_us(first as u64),
                short_duration_us(last as u64)
            ),
        )
    })
}

fn start(run: &RunAnalysis) -> Option<Finding> {
    let (start, all) = (run.first_step_after_us?, run.duration_us?);
    let share = start as f64 / all.max(1) as f64;
    (share >= START_FROM && start >= START_LEAST_US).then(|| {
        Finding::new(
            share / 2.0,
            format!("{} of the run passed before its first step", percent(share)),
            format!("{} of {}", short_duration_us(start), short_duration_us(all)),
        )
        .seen_at(run.steps.first.map(Place::Step))
    })
}

fn missing(run: &RunAnalysis) -> Option<Finding> {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(run.gaps.damage.clone());
    let lost = run.gaps.steps.iter().map(|span| steps_words(span.from_step, span.to_step));
    let lost: Vec<String> = lost.collect();
    if !lost.is_empty() {
        parts.push(format!("{} missing", lost.join(", ")));
    }
    // the hosts of one that has ended have told what happened then; what they no longer had is among the rest
    if run.gaps.unattended_us > 0 && run.outcome.is_none() {
        parts.push(format!("not followed for {}", short_duration_us(run.gaps.unattended_us)));
    }
    let dropped = run.gaps.dropped.iter().filter(|gap| gap.what != UNTICKED);
    parts.extend(dropped.map(|gap| format!("{} dropped: {}", gap.count, gap.what)));
    if run.gaps.log_bytes > 0 {
        parts.push(format!("{} of logs", bytes(run.gaps.log_bytes)));
    }
    let first = run.gaps.steps.first().map(|span| Place::Step(span.from_step));
    (!parts.is_empty())
        .then(|| Finding::new(0.04, "the recording is not complete", parts.join("; ")).seen_at(first))
}

/// Steps of a timeline of Horovod, of which it does not tell who waited.
fn unticked(run: &RunAnalysis) -> Option<Finding> {
    let gap = run.gaps.dropped.iter().find(|gap| gap.what == UNTICKED)?;
    let words = format!("of {} it is not known which ranks waited", counted(gap.count, "step"));
    let evidence = "Horovod's cache of responses leaves the ranks' ticks out of its timeline; with HOROVOD_CACHE_CAPACITY=0 the run tells them";
    Some(Finding::new(0.04, words, evidence))
}

fn errors(run: &RunAnalysis) -> Option<Finding> {
    let count = run.log.errors + run.log.fatal;
    if count == 0 || (run.success == Some(false) && run.has_end()) {
        return None;
    }
    let tellers = run.ranks.iter().filter(|rank| rank.errors > 0).map(|rank| rank.within.0);
    let first = run.log.first_error.as_ref()?;
    let finding = Finding::new(
        0.03,
        format!("{} in the log of rank {}", counted(count as usize, "error"), ranges(tellers)),
        format!("first, rank {}: {}", first.rank, first.text),
    );
    Some(finding.seen_at(first.at.map(Place::At)))
}
