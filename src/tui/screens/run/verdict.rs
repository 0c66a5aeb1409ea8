//! The one sentence that says how a run is: who is waited for, who slows it down, who broke it.

use crate::domain::ids::{HostId, Rank};
use crate::domain::root_cause::Evidence;
use crate::domain::run::RunStage;
use crate::domain::standstill::Standstill;
use crate::domain::symptoms;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::trained::Stood;
use crate::domain::units::{self, ranges};
use crate::domain::world::RunState;
use crate::tui::core::words::clock_time;
use crate::tui::core::{Screen, Zone};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::age;
use crate::tui::screens::run::rows::Look;

/// How a sentence is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Just so.
    Plain,
    /// Fine.
    Good,
    /// Look.
    Look,
    /// Act.
    Bad,
}

/// A sentence and how it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How it is meant.
    pub tone: Tone,
    /// The sentence, safe for a terminal.
    pub text: String,
}

fn say(tone: Tone, text: impl Into<String>) -> Verdict {
    Verdict { tone, text: text.into() }
}

/// The verdict on the run that is shown: of one with silent hosts, what is not known of it.
pub(super) fn shown(look: &Look<'_>) -> Verdict {
    let (model, run, silent) = (look.model, look.run, &look.silent);
    if run.is_behind {
        let hosts: Vec<&str> = run.by_host.keys().take(HOSTS_NAMED).map(HostId::as_str).collect();
        let more = run.by_host.len().saturating_sub(HOSTS_NAMED);
        let more = if more > 0 { format!(" and {more} more hosts") } else { String::new() };
        let hosts = hosts.join(", ");
        let (hosts, since) = (sanitize(&hosts), clock_time(run.last_at, &model.zone, false));
        return say(
            Tone::Plain,
            format!("catching up: reading from {hosts}{more} what happened since {since}"),
        );
    }
    let mut known = verdict(run, run.known_until(&model.world.hosts, model.moment()), &model.zone);
    // of a replay the hosts may have become others since
    let checks = if model.ui.screen == Screen::Run { symptoms::checks(run) } else { Vec::new() };
    let missing = if model.ui.screen == Screen::Run { symptoms::missing_file(run) } else { None };
    if let Some(file) = missing {
        let file = sanitize(file);
        known.text += " · ";
        known.text += &file;
        known.text += " is not in the folder in which the ranks ran";
    } else if !checks.is_empty() {
        known.text += " · 4 Doctor may say why: ";
        known.text += &checks.join(", ");
    }
    // a stop that waits names the hosts for which it waits
    let is_told = run.stage() == Some(RunStage::Stopping) && !run.waiting_for.is_empty();
    let Some(last) = silent.values().max().filter(|_| known.tone != Tone::Bad && !is_told) else {
        return known;
    };
    let names: Vec<&str> = silent.keys().take(HOSTS_NAMED).map(|host| host.as_str()).collect();
    let more = silent.len().saturating_sub(HOSTS_NAMED);
    let more = if more > 0 { format!(" and {more} more hosts") } else { String::new() };
    let ranks = run.ranks.iter().zip(0u32..);
    let ranks = ranks.filter(|(rank, _)| silent.contains_key(&rank.placement.host) && rank.exit.is_none());
    let ranks: Vec<u32> = ranks.map(|(_, number)| number).collect();
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    let have = if silent.len() == 1 { "has" } else { "have" };
    let text = format!(
        "{}{more} {have} been silent for {}: the state of {word} {} is unknown",
        sanitize(&names.join(", ")),
        age(model.moment(), *last),
        ranges(ranks)
    );
    say(Tone::Look, text)
}

/// Hosts that a sentence names.
const HOSTS_NAMED: usize = 3;

/// The verdict on a run at a moment.
pub fn verdict(run: &RunState, now: Stamp, zone: &Zone) -> Verdict {
    if let Some((root, evidence)) = run.why_failed() {
        return with_collectives(run, failed(run, (root, evidence.as_ref()), zone));
    }
    if let Some(outcome) = &run.outcome {
        if let Some(hung) = Stood::before_stop(run) {
            return say(Tone::Look, format!("{} · {}", sanitize(&outcome.summary), sanitize(&hung)));
        }
        if outcome.is_stopped() || run.spec.is_imported() {
            return say(Tone::Plain, sanitize(&outcome.summary));
        }
        return ended(run, outcome.exit_code(), &without_path(&sanitize(&outcome.summary)));
    }
    if !run.waiting_for.is_empty() {
        let who = run.waiting_for.to_string();
        let since = run.stages.last().map_or(now, |(at, _)| *at);
        let elapsed = age(now, since);
        let stopping = if run.stage() == Some(RunStage::Stopping) { "stopping: " } else { "" };
        return say(Tone::Look, format!("{stopping}waiting for {} · {elapsed}", sanitize(&who)));
    }
    if let Some(still) = Standstill::of(run, now) {
        let tone = if still.may_pass(now) { Tone::Look } else { Tone::Bad };
        return with_collectives(run, say(tone, still.words(now)));
    }
    if let Some(words) = pause(run, now) {
        return say(Tone::Look, words);
    }
    if let Some(late) = run.straggler() {
        let place = run
            .trainer(late.rank)
            .map_or_else(String::new, |one| format!(" ({})", sanitize(&one.rank.placement.to_string())));
        let tone = if late.is_critical() { Tone::Bad } else { Tone::Look };
        return say(tone, format!("rank {}{place} {}", late.rank, late.words()));
    }
    match run.stage() {
        None => say(Tone::Plain, "asked for"),
        Some(RunStage::Training) if run.looks_for_stragglers() => say(Tone::Good, "no stragglers"),
        // of what is not hvtui's own run, nothing but what its files tell is known
        Some(RunStage::Training) if run.spec.is_imported() => say(Tone::Plain, "imported"),
        Some(RunStage::Training) => say(Tone::Good, "running"),
        Some(stage) => say(Tone::Plain, stage.name()),
    }
}

/// No step for longer than that is told, microseconds, and for longer than so many steps take.
const PAUSE_US: i64 = 5_000_000;
const PAUSE_STEPS: i64 = 3;

/// That no step comes, of a run whose ranks tell nothing within a step: where it stands, no rank can say.
fn pause(run: &RunState, now: Stamp) -> Option<String> {
    let newest = run.trainers().filter_map(|one| one.state.steps.back());
    let (last, step) = newest.max_by_key(|(arrived, _)| *arrived)?;
    let usual = run.trainers().filter_map(|one| one.state.latest_step()).map(|step| step.dur_us).min()?;
    let pause = now.micros_since(*last);
    let is_over = run.total_steps.is_some_and(|total| step.step >= total);
    let is_long = pause >= PAUSE_US.max(PAUSE_STEPS * i64::from(usual));
    let is_told = run.stage() == Some(RunStage::Training) && !is_over && is_long && !run.spec.is_imported();
    is_told.then(|| {
        // of a rank that tells no step at all, nothing is known
        let known =
            || run.trainers().filter(|one| one.state.exit.is_none() && one.state.latest_step().is_some());
        let behind = known().filter(|one| one.state.step().is_none_or(|own| own < step.step));
        let behind: Vec<u32> = behind.map(|one| one.number.0).collect();
        let who = match &behind[..] {
            [] if known().count() < run.trainers().count() => format!("the last is step {}", step.step),
            [] => format!("all ranks have finished step {}", step.step),
            [rank] => format!("rank {rank} has not finished step {}", step.step),
            several => {
                format!("ranks {} have not finished step {}", ranges(several.iter().copied()), step.step)
            }
        };
        format!("no step for {}: {who}", units::duration_us(pause.unsigned_abs()))
    })
}

/// Names the collective in which the ranks differ.
fn with_collectives(run: &RunState, mut verdict: Verdict) -> Verdict {
    for words in run.collected.words() {
        verdict.text += " · ";
        verdict.text += &sanitize(words);
    }
    verdict
}

/// The standstill of a run whose ranks hang, and its last step. Not one that has an end in sight: before the first step and
/// after the last, while it is stopped, while one evaluates or saves; nor of a run that catches up. Ranks that wait for one on a silent
/// host stand, too.
pub fn hang(model: &Model, run: &RunState) -> Option<(Standstill, Stamp)> {
    if run.is_behind {
        return None;
    }
    let now = model.moment();
    let last = run.trainers().filter_map(|one| one.state.steps.back().map(|(at, _)| *at)).max()?;
    let is_over = run.total_steps.is_some_and(|total| run.step().is_some_and(|step| step >= total));
    if run.stage() != Some(RunStage::Training) || is_over {
        return None;
    }
    Some((Standstill::of(run, now).filter(|still| !still.may_pass(now))?, last))
}

/// The key of the one that all others wait for: that hangs, else the straggler.
pub fn waited_for(run: &RunState, hang: Option<&(Standstill, Stamp)>) -> Option<Rank> {
    let hangs = hang.and_then(|(still, _)| still.culprit());
    hangs.or_else(|| run.straggler().filter(|_| run.is_live()).map(|late| late.rank))
}

/// Whether a rank ended because of the root cause, not by itself.
pub fn is_collateral_of(run: &RunState, root: Option<Rank>, rank: Rank) -> bool {
    let exit = |rank: Rank| run.ranks.get(rank.0 as usize).and_then(|rank| rank.exit.as_ref());
    root.is_some_and(|root| root != rank)
        && exit(rank).is_some_and(|(_, exit)| exit.stopped || exit.shell_code() != 0)
}

fn failed(run: &RunState, (root, evidence): (Rank, Option<&Evidence>), zone: &Zone) -> Verdict {
    let Some(rank) = run.ranks.get(root.0 as usize) else {
        return say(Tone::Bad, format!("rank {root} failed first"));
    };
    let place = rank.placement.to_string();
    let place = sanitize(&place);
    let how = rank.exit.as_ref().map_or_else(
        || "it has not ended yet".to_owned(),
        |(at, exit)| format!("{} at {}", exit.describe(), clock_time(*at, zone, true)),
    );
    let how = sanitize(&Evidence::headline(evidence, &how)).into_owned();
    let name = |rank: Rank| {
        let place = run.ranks.get(rank.0 as usize).map(|state| state.placement.to_string());
        place.map_or_else(|| format!("rank {rank}"), |place| format!("rank {rank} ({place})"))
    };
    let more = evidence.and_then(|evidence| evidence.words(name));
    let how = how + &more.map_or_else(String::new, |more| format!("; {}", sanitize(&more)));
    let stopped = |rank: &u32| {
        let exit = run.ranks.get(*rank as usize).and_then(|rank| rank.exit.as_ref());
        exit.is_some_and(|(_, exit)| exit.stopped)
    };
    let others = (0..run.ranks.len() as u32).filter(|other| is_collateral_of(run, Some(root), Rank(*other)));
    let (stopped, mut failed): (Vec<u32>, Vec<u32>) = others.partition(stopped);
    let has_others = !stopped.is_empty() || !failed.is_empty();
    // of this one it is said already
    if let Some(Evidence::Lost { by, .. }) = evidence {
        failed.retain(|other| *other != by.0);
    }
    let words = |ranks: &[u32], what: &str| match ranks {
        [] => String::new(),
        [rank] => format!("; rank {rank} {what}"),
        several => format!("; ranks {} {what}", ranges(several.iter().copied())),
    };
    let because = if !has_others && run.is_live() {
        "; the others are being stopped".to_owned()
    } else {
        words(&failed, "failed too") + &words(&stopped, "stopped because of it")
    };
    say(Tone::Bad, format!("rank {root} ({place}) {how}{because}"))
}

/// A reason without the search paths that it names, which are longer than all else: the log has them.
fn without_path(reason: &str) -> String {
    let (mut text, mut rest) = (String::new(), reason);
    while let Some((before, path)) = rest.split_once(" (PATH=") {
        text += before;
        rest = path.split_once(')').map_or("", |(_, after)| after);
    }
    text + rest
}

fn ended(run: &RunState, code: u8, summary: &str) -> Verdict {
    if code != 0 {
        return say(Tone::Bad, format!("ended with exit code {code}: {summary}"));
    }
    let hashes: Vec<&str> = run.ranks.iter().filter_map(|rank| rank.weights.as_deref()).collect();
    let Some(first) = hashes.first() else { return say(Tone::Good, summary) };
    if hashes.len() < run.ranks.len() || hashes.len() < 2 {
        return say(Tone::Good, summary);
    }
    if hashes.iter().all(|hash| hash == first) {
        let hash = units::middle_cut(&sanitize(first), 12);
        return say(Tone::Good, format!("{summary} · weights equal on all {} ranks: {hash}", hashes.len()));
    }
    let odd = run.ranks.iter().enumerate().filter(|(_, rank)| rank.weights.as_deref() != Some(first));
    let odd = ranges(odd.map(|(at, _)| at as u32));
    say(Tone::Bad, format!("{summary} · weights differ: rank {odd} from rank 0"))
}
