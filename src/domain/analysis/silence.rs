//! Hosts of the run that this client did not reach for a while, though their ranks may have gone on.

use serde::{Deserialize, Serialize};

use super::figures::{RunAnalysis, Silence, SlowStep};
use super::finding::{Finding, Place};
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::units::short_duration_us;

/// A link that is made anew in this time was only renewed, microseconds.
const LEAST_US: i64 = 1_000_000;
/// So many are kept.
const MOST: usize = 64;

/// What the links have told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Silences {
    /// Of which host, since when, and why.
    open: Vec<(HostId, Stamp, String)>,
    /// When each host was heard last.
    heard: Vec<(HostId, Stamp)>,
    ended: Vec<Silence>,
}

impl Silences {
    /// The link to a host of the run has changed.
    pub(super) fn take(&mut self, at: Stamp, host: &HostId, state: &LinkState) {
        let known = self.open.iter().position(|(other, ..)| other == host);
        match (state, known) {
            (LinkState::Down { reason, .. } | LinkState::Refused { reason, .. }, None) => {
                let heard =
                    self.heard.iter().find(|(other, _)| other == host).map_or(at, |(_, heard)| *heard);
                self.open.push((host.clone(), heard, reason.clone()));
            }
            (LinkState::Up, Some(open)) => {
                let (host, from, why) = self.open.swap_remove(open);
                if at.micros_since(from) >= LEAST_US && self.ended.len() < MOST {
                    self.ended.push(Silence { host, from, until: Some(at), why });
                }
            }
            _ => {}
        }
    }

    /// A host has told something.
    pub(super) fn heard(&mut self, at: Stamp, host: &HostId) {
        match self.heard.iter_mut().find(|(other, _)| other == host) {
            Some((_, heard)) => *heard = at,
            None => self.heard.push((host.clone(), at)),
        }
    }

    /// The client left at that moment: what its links were from then on is not known.
    pub(super) fn left(&mut self, at: Stamp) {
        for (host, from, why) in std::mem::take(&mut self.open) {
            if at.micros_since(from) >= LEAST_US && self.ended.len() < MOST {
                self.ended.push(Silence { host, from, until: Some(at), why });
            }
        }
        self.heard.clear();
    }

    /// All of them, in the order of time; a host that never came back is silent up to `end`.
    pub(super) fn all(self, end: Option<Stamp>) -> Vec<Silence> {
        let mut all = self.ended;
        let open = self
            .open
            .into_iter()
            .filter(|(_, from, _)| end.is_none_or(|end| end.micros_since(*from) >= LEAST_US));
        all.extend(open.map(|(host, from, why)| Silence { host, from, until: None, why }));
        all.sort_by_key(|silence| silence.from);
        all
    }
}

/// The host that was not reached for the longest time: whatever stands still then is the network's, or the host's.
pub(super) fn finding(run: &RunAnalysis) -> Option<Finding> {
    let (created, end) = run.charts.range?;
    let length = |silence: &&Silence| silence.until.unwrap_or(end).micros_since(silence.from);
    let worst = run.silences.iter().max_by_key(length)?;
    let long = length(&worst).max(0).unsigned_abs();
    let after = worst.from.micros_since(created).max(0).unsigned_abs();
    let reached = if worst.until.is_some() { "could not be reached" } else { "was not reached any more" };
    let words = format!(
        "{} {reached} for {}, from {} after the launch on: {}",
        worst.host,
        short_duration_us(long),
        short_duration_us(after),
        sanitize(&worst.why)
    );
    let others: Vec<&str> =
        run.silences.iter().filter(|other| *other != worst).map(|other| other.host.as_str()).collect();
    let evidence = match others.as_slice() {
        [] => "by this client's link to it; its ranks may have gone on".to_owned(),
        [..] => format!("by this client's links; so were {} for less", others.join(", ")),
    };
    let share = long as f64 / run.duration_us.unwrap_or(long).max(1) as f64;
    Some(Finding::new(1.0 + share, words, evidence).seen_at(Place::At(worst.from)))
}

/// The host that was not reached during a slow step, for at least half of the `extra_us` microseconds that it took beyond the usual.
pub(super) fn unreached_in<'a>(run: &'a RunAnalysis, slow: &SlowStep, extra_us: u64) -> Option<&'a HostId> {
    let (_, ended) = run.charts.ended.between(slow.step, slow.step.saturating_add(1))?.span()?;
    let began = ended.plus_micros(-i64::from(slow.us));
    let is_long = |silence: &&Silence| {
        let until = silence.until.map_or(ended, |until| until.min(ended));
        let away_us = until.micros_since(silence.from.max(began));
        away_us > 0 && away_us.unsigned_abs() * 2 >= extra_us
    };
    run.silences.iter().find(is_long).map(|silence| &silence.host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::analysis::findings;
    use crate::domain::analysis::fixtures::{Told, spec, timing};
    use crate::domain::event::Event;
    use crate::domain::outcome::RunEnd;

    fn down() -> Event {
        Event::LinkChanged { state: LinkState::Down { reason: "no word for 6 s".to_owned(), retry_at: None } }
    }

    /// 400 steps of two ranks of 32 ms, a third of which moves bytes; in one of them the host is cut off for 8 s.
    fn cut_off() -> Told {
        let mut told = Told::new(spec(2));
        for step in 1..=400 {
            let stall = if step == 187 { 8_000 } else { 0 };
            if stall > 0 {
                told.sample(Vec::new());
                told.at = told.at.plus_micros(6_000_000);
                told.host(down());
                told.at = told.at.plus_micros(2_000_000);
                told.host(Event::LinkChanged { state: LinkState::Up });
            }
            told.at = told.at.plus_micros(32_000);
            for rank in 0..2 {
                told.step(rank, timing(step, [2, 10, 8, 0, 7 + stall, 5]));
            }
        }
        told
    }

    #[test]
    fn a_host_that_was_cut_off_is_the_first_finding_and_its_stall_is_no_slow_network() {
        let run = cut_off().finish(RunEnd::Finished);
        let found: Vec<String> = findings(&run).into_iter().map(|finding| finding.words).collect();
        assert_eq!(
            found[0],
            "gpu-a could not be reached for 8.0 s, from 6.0 s after the launch on: no word for 6 s"
        );
        assert!(found[1].starts_with("step 187 took 8.0 s"), "{found:#?}");
        assert!(found[1].ends_with(": gpu-a could not be reached meanwhile"), "{found:#?}");
        assert!(!found.iter().any(|words| words.contains("exposed")), "{found:#?}");
        assert_eq!(run.silences.len(), 1);
    }

    /// A rank that comes 40 ms late to a transfer that hangs for 8 s does not explain it.
    #[test]
    fn a_stall_to_which_a_rank_came_a_little_late_is_no_slow_network_either() {
        let of = |late_ms: u32| {
            let mut told = Told::new(spec(2));
            for step in 1..=400 {
                let (stall, late) = if step == 187 { (8_000 - late_ms, late_ms) } else { (0, 0) };
                told.at = told.at.plus_micros(32_000);
                told.step(0, timing(step, [2, 10, 8, late, 7 + stall, 5]));
                told.step(1, timing(step, [2, 10, 8 + late, 0, 7 + stall, 5]));
            }
            let found = findings(&told.finish(RunEnd::Finished));
            found.into_iter().map(|finding| finding.words).collect::<Vec<_>>()
        };
        // no host was away, which is not said either
        let little = of(40);
        assert!(little[0].starts_with("step 187 took 8.0 s") && little[0].ends_with(" ms)"), "{little:#?}");
        assert!(!little.iter().any(|words| words.contains("exposed")), "{little:#?}");
        let much = of(7_000);
        assert!(much[0].contains(": all waited for rank 1 (gpu-a:1)"), "{much:#?}");
    }

    #[test]
    fn a_link_that_is_renewed_at_once_is_none_and_one_that_never_came_back_is() {
        let mut told = Told::new(spec(1));
        told.host(down());
        told.at = told.at.plus_micros(900_000);
        told.host(Event::LinkChanged { state: LinkState::Up });
        told.at = told.at.plus_micros(5_000_000);
        told.host(down());
        told.at = told.at.plus_micros(9_000_000);
        told.line(0, "goes on");
        let silences = told.finish(RunEnd::Failed).silences;
        assert_eq!(silences.len(), 1);
        assert_eq!(silences[0].until, None);
    }

    #[test]
    fn a_silence_ends_behind_the_part_of_the_run_in_which_it_began() {
        let mut told = Told::new(spec(1));
        told.host(down());
        told.at = told.at.plus_micros(4_000_000);
        told.analyzer.count(false);
        told.host(Event::LinkChanged { state: LinkState::Up });
        let back = told.at;
        told.at = told.at.plus_micros(60_000_000);
        told.host(down());
        told.at = told.at.plus_micros(60_000_000);
        told.line(0, "goes on");
        let silences = told.finish(RunEnd::Finished).silences;
        assert_eq!(silences.iter().map(|one| one.until).collect::<Vec<_>>(), [Some(back)]);
    }

    #[test]
    fn what_lies_without_a_client_is_no_silence() {
        let mut told = Told::new(spec(1));
        told.host(down());
        told.at = told.at.plus_micros(3_000_000);
        let since = told.at;
        told.at = told.at.plus_micros(50_000_000_000);
        told.whole(Event::Attached { since: Some(since), until: None });
        told.host(Event::LinkChanged { state: LinkState::Up });
        told.line(0, "goes on");
        let silences = told.finish(RunEnd::Finished).silences;
        assert_eq!(silences.iter().map(|one| one.until).collect::<Vec<_>>(), [Some(since)]);
    }
}
