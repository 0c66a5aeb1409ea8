//! In which phase of a step ranks stood for long, and which of them a signal had stopped, by the pages that hvtui's hooks keep.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::Stop;
use crate::domain::ids::Rank;
use crate::domain::standstill::{StalledPhase, Standstill};
use crate::domain::time::Stamp;
use crate::domain::trainer_keys::TrainerId;

/// Of so many steps it is kept, those in which a rank stood the longest.
const STEPS: usize = 32;
/// Of so many ranks of a step.
const RANKS: usize = 256;

/// A rank that stood in a step.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stood {
    since: Stamp,
    standing: StalledPhase,
    stop: Option<Stop>,
}

/// Those that stood, by step and rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Stands(BTreeMap<u64, BTreeMap<TrainerId, Stood>>);

impl Stands {
    /// What a rank's page told at a moment.
    pub(super) fn take(&mut self, id: TrainerId, at: Stamp, standing: &StalledPhase) {
        let ranks = self.0.entry(standing.step).or_default();
        if ranks.len() >= RANKS && !ranks.contains_key(&id) {
            return;
        }
        let since = at.plus_micros(-i64::try_from(standing.for_us).unwrap_or(i64::MAX));
        let standing = &standing.told_after(ranks.get(&id).map(|stood| &stood.standing));
        let before = ranks.get(&id).and_then(|stood| stood.stop);
        let stop = match before {
            Some(stop) if standing.stopped => Some(Stop { to: at, ..stop }),
            None if standing.stopped => Some(Stop { rank: Rank(id.number), from: since, to: at }),
            before => before,
        };
        ranks.insert(id, Stood { since, standing: standing.clone(), stop });
        if self.0.len() > STEPS {
            let longest =
                |ranks: &BTreeMap<TrainerId, Stood>| ranks.values().map(|one| one.standing.for_us).max();
            let least = self.0.iter().min_by_key(|(_, ranks)| longest(ranks)).map(|(step, _)| *step);
            least.and_then(|step| self.0.remove(&step));
        }
    }

    /// A rank has made its step: nothing stops it any more.
    pub(super) fn ended(&mut self, id: TrainerId, step: u64, at: Stamp) {
        let stood = self.0.get_mut(&step).and_then(|ranks| ranks.get_mut(&id));
        let stood = stood.filter(|stood| stood.standing.stopped);
        if let Some(stop) = stood.and_then(|stood| stood.stop.as_mut()) {
            stop.to = at;
        }
    }

    /// All begin anew.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The rank that a signal had stopped in a step, the longest where there are several.
    pub(super) fn stopped_in(&self, step: u64) -> Option<Stop> {
        let stops = self.0.get(&step)?.values().filter_map(|stood| stood.stop);
        stops.max_by_key(|stop| stop.to.micros_since(stop.from))
    }

    /// Whether a signal had stopped this one in a step.
    pub(super) fn was_stopped(&self, step: u64, id: TrainerId) -> bool {
        let ranks = self.0.get(&step);
        ranks.and_then(|ranks| ranks.get(&id)).is_some_and(|stood| stood.standing.stopped)
    }

    /// Where the ranks stand behind the last step that all have told: `stands still in step 57: rank 1 in backward, train.py:57`.
    pub(super) fn after(&self, last: Option<u64>) -> Option<String> {
        let (step, ranks) =
            self.0.iter().next_back().filter(|(step, _)| last.is_none_or(|last| **step > last))?;
        let stands = ranks.iter().map(|(id, stood)| (Rank(id.number), stood.since, stood.standing.clone()));
        Some(Standstill::told(stands.collect(), *step).lasting_words())
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::analysis::fixtures::{START, Told, blank_sample, spec, timing};
    use crate::domain::analysis::{RunAnalysis, findings};
    use crate::domain::event::{Event, Origin};
    use crate::domain::host::LinkState;
    use crate::domain::ids::HostId;
    use crate::domain::outcome::{RunEnd, RunOutcome};
    use crate::domain::run::RunSpec;
    use crate::domain::standstill::StalledPhase;
    use crate::domain::timing::Phase;

    /// 200 steps of two ranks; in step 172 a signal stops rank 1 for 26 s, while it waits as the other does.
    fn stopped(steps: u64) -> Told {
        stopped_of(spec(2), steps)
    }

    fn stopped_of(spec: RunSpec, steps: u64) -> Told {
        let mut told = Told::new(spec);
        for step in 1..=steps {
            let held = step == 172;
            // told once, when it has lasted for a second
            for rank in (0..2).filter(|_| held) {
                told.at = told.at.plus_micros(if rank == 0 { 1_000_000 } else { 0 });
                let (phase, for_us, at) = (Phase::Wait, 1_000_000, None);
                let standing = StalledPhase { phase, step, for_us, stopped: rank == 1, at };
                told.rank(rank, Event::RankStands { standing });
            }
            told.at = told.at.plus_micros(if held { 25_100_000 } else { 60_000 });
            let wait = if held { 26_000 } else { 1 };
            for rank in (0..2).filter(|_| step < steps || steps != 172) {
                told.step(rank, timing(step, [5, 10, 20, wait, 0, 5]));
            }
        }
        told
    }

    fn words(run: &RunAnalysis) -> Vec<String> {
        findings(run).into_iter().map(|finding| finding.words).collect()
    }

    #[test]
    fn a_step_in_which_a_signal_stopped_a_rank_names_it_and_the_time_is_its_own() {
        let run = stopped(200).finish(RunEnd::Finished);
        let from = START.plus_micros(171 * 60_000);
        assert_eq!(from.micros_since(START), 10_260_000);
        let told = "step 172 took 26.0 s (usually 41 ms): a signal had stopped rank 1 (gpu-a:1), from 10.3 s to 36.4 s after \
                    the launch";
        assert_eq!(words(&run)[0], told);
        assert_eq!(run.ranks[1].wait_caused_us, Some(26_000_000));
        let of = |rank: usize, phase: Phase| run.ranks[rank].phases_us.unwrap()[phase.index()] / 1_000_000;
        assert_eq!([of(0, Phase::Transfer), of(1, Phase::Transfer)], [0, 0], "none of it moved bytes");
        assert_eq!([of(0, Phase::Wait), of(1, Phase::Wait), of(1, Phase::Other)], [26, 0, 26]);
    }

    #[test]
    fn a_run_that_stands_still_says_who_stands_where() {
        let mut told = stopped(172);
        told.line(0, "waiting");
        let run = told.analyzer.finish(None);
        let told =
            "no rank took a step for 26.1 s so far: rank 1 stopped by a signal in wait; rank 0 in wait";
        assert_eq!(words(&run)[0], told);
    }

    /// Ranks that stand still tell nothing: the time is that of their hosts, one of which may not be heard.
    #[test]
    fn a_run_that_hangs_is_told_up_to_the_last_word_of_its_hosts() {
        let hung = |both: bool| {
            let mut spec = spec(2);
            spec.placements[1].host = HostId::from("gpu-b");
            let mut told = stopped_of(spec, 172);
            told.host(blank_sample());
            told.tell(Origin::Host(HostId::from("gpu-b")), blank_sample());
            told.wait(8);
            // what the client says of a link is no word of the host
            told.tell(Origin::Host(HostId::from("gpu-b")), Event::LinkChanged { state: LinkState::Up });
            told.host(blank_sample());
            if both {
                told.tell(Origin::Host(HostId::from("gpu-b")), blank_sample());
            }
            told.analyzer.finish(None)
        };
        let silent_us = |run: &RunAnalysis| run.after_last_step_us.map(|us| us / 100_000);
        let (run, unheard) = (hung(true), hung(false));
        assert_eq!((run.duration_us, silent_us(&run)), (Some(44_360_000), Some(341)));
        assert!(words(&run)[0].starts_with("no rank took a step for 34.1 s so far: rank 1"), "{run:?}");
        assert_eq!((unheard.duration_us, silent_us(&unheard)), (Some(44_360_000), Some(261)));
        // of a run that has ended its hosts tell more, too
        let mut told = stopped(200);
        told.whole(Event::RunEnded { outcome: RunOutcome::new(RunEnd::Finished, "all ranks done") });
        told.wait(60);
        told.host(blank_sample());
        let ended = told.analyzer.finish(None);
        assert_eq!(ended.after_last_step_us, Some(0));
    }

    #[test]
    fn a_run_that_stood_still_before_its_end_is_told() {
        let stood = |end: RunEnd, seconds| {
            let mut told = Told::new(spec(1));
            told.start(0);
            for step in 1..=20 {
                told.wait(1);
                told.step(0, timing(step, [10, 20, 30, 0, 10, 10]));
            }
            told.wait(seconds);
            told.finish(end)
        };
        let run = stood(RunEnd::Stopped, 95);
        assert_eq!(run.after_last_step_us, Some(95_000_000));
        let found = findings(&run);
        assert_eq!(found[0].words, "no rank took a step for 01:35 before its end");
        assert_eq!(found[0].evidence, "the last step was 20; the longest took 80 ms");
        for run in [stood(RunEnd::Finished, 95), stood(RunEnd::Stopped, 4)] {
            assert!(findings(&run).iter().all(|finding| !finding.words.contains("took a step")));
        }
    }
}
