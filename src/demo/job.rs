//! A rank of a demo's run: what it prints and reports by a moment. All ranks follow from the run and the step alone, so
//! that each host tells its own and they fit together. Pure.

use std::path::Path;

use super::chance::share;
use super::stacks;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::report::Report;
use crate::domain::time::HostTime;
use crate::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};

/// How many steps a run takes: some five minutes.
const STEPS: u64 = 4_690;
const SAMPLES: u32 = 256;
/// When a rank tells of itself, waits for the others and meets them, microseconds from its start.
const HELLO_US: u64 = 300_000;
const WAITS_US: u64 = 500_000;
const MET_US: u64 = 900_000;
/// The last rank reads its data slowly in every second stretch of so many steps.
const SLOW_STRETCH: u64 = 400;
const SLOW_US: u32 = 14_000;
/// What the last one waits too: a message's way.
const LEAST_WAIT_US: u32 = 120;
/// The step in which a run fails or comes to stand.
const FAILS_AT: u64 = 240;
const HANGS_AT: u64 = 160;

/// How a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Succeeds,
    /// By this rank.
    Fails(u32),
    /// In this rank.
    Hangs(u32),
}

/// What a rank has written, and its exit code if it has ended.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Written {
    pub(super) pieces: Vec<(Stream, String)>,
    pub(super) exit: Option<i32>,
}

/// One rank of a run.
#[derive(Debug)]
pub(super) struct Job {
    seed: u64,
    rank: u32,
    world: u32,
    name: String,
    /// What its traceback names.
    script: String,
    fate: Fate,
    /// Lines before the first step that were written.
    opened: usize,
    /// The step that it is in, from 1, and when that began, microseconds from the start.
    step: u64,
    since: u64,
}

/// What each rank does by itself in a step, and how long the step takes all of them, microseconds.
struct Step {
    data: u32,
    forward: u32,
    backward: u32,
    wait: u32,
    transfer: u32,
    optimizer: u32,
}

impl Step {
    fn own(seed: u64, rank: u32, world: u32, step: u64) -> [u32; 3] {
        let some = |part: u64, most: f64| (most * share(&[seed, rank.into(), step, part])) as u32;
        let is_slow = world > 1 && rank + 1 == world && step / SLOW_STRETCH % 2 == 1;
        let slow = if is_slow { SLOW_US + some(4, 3000.0) } else { 0 };
        [3500 + some(1, 800.0) + slow, 17_500 + some(2, 900.0), 30_000 + some(3, 1500.0)]
    }

    fn of(seed: u64, rank: u32, world: u32, step: u64) -> Self {
        let [data, forward, backward] = Self::own(seed, rank, world, step);
        let last = (0..world).map(|other| Self::own(seed, other, world, step).iter().sum::<u32>()).max();
        let behind = last.unwrap_or(0).saturating_sub(data + forward + backward);
        let (wait, transfer) = if world > 1 { (behind + LEAST_WAIT_US, 5200) } else { (0, 0) };
        Self { data, forward, backward, wait, transfer, optimizer: 2600 }
    }

    fn spans(&self) -> Spans {
        let phases = [
            (Phase::Data, self.data),
            (Phase::Forward, self.forward),
            (Phase::Backward, self.backward),
            (Phase::Wait, self.wait),
            (Phase::Transfer, self.transfer),
            (Phase::Optimizer, self.optimizer),
        ];
        let mut start_us = 0;
        let mut spans = Spans::default();
        for (phase, dur_us) in phases.into_iter().filter(|(_, dur_us)| *dur_us > 0) {
            spans.push(PhaseSpan { phase, start_us, dur_us });
            start_us += dur_us;
        }
        spans
    }

    fn total(&self) -> u32 {
        self.data + self.forward + self.backward + self.wait + self.transfer + self.optimizer
    }
}

impl Job {
    /// A rank of a run whose command is `argv`: with `--fail` one rank fails, with `--hang` one comes to stand.
    pub(super) fn new(seed: u64, rank: Rank, world: u32, name: &str, argv: &[String]) -> Self {
        let asks = |word: &str| argv.iter().any(|part| part.split_whitespace().any(|one| one == word));
        let fate = match (asks("--fail"), asks("--hang")) {
            (true, _) => Fate::Fails(world / 2),
            (false, true) => Fate::Hangs(world / 2),
            (false, false) => Fate::Succeeds,
        };
        let (name, script) = (name.to_owned(), script(argv).to_owned());
        Self { seed, rank: rank.0, world, name, script, fate, opened: 0, step: 1, since: MET_US }
    }

    /// How busy it keeps its GPU, 0 to 1.
    pub(super) fn busy(&self) -> f64 {
        if self.opened < 3 {
            return 0.02;
        }
        if self.hangs() {
            // a kernel of a collective that waits looks like work
            return if self.spins() { 1.0 } else { 0.0 };
        }
        let step = Step::of(self.seed, self.rank, self.world, self.step);
        1.0 - f64::from(step.data) / f64::from(step.total())
    }

    /// Whether its GPU runs a kernel that waits for the rank that has come to stand.
    pub(super) fn spins(&self) -> bool {
        self.hangs() && self.fate != Fate::Hangs(self.rank)
    }

    /// The phase in which it stands, the step, and for how long at `now`, where it stands.
    pub(super) fn stands(&self, now: u64) -> Option<(Phase, u64, u64)> {
        let Fate::Hangs(culprit) = self.fate else { return None };
        let phase = if culprit == self.rank { Phase::Data } else { Phase::Wait };
        self.hangs().then(|| (phase, self.step, now.saturating_sub(self.since)))
    }

    /// The phase in which it is at `now`, the step, and for how long.
    pub(super) fn place(&self, now: u64) -> (Phase, u64, u64) {
        if let Some(stands) = self.stands(now) {
            return stands;
        }
        if self.opened < 3 {
            return (Phase::Other, 0, now);
        }
        let in_step = now.saturating_sub(self.since);
        let spans = Step::of(self.seed, self.rank, self.world, self.step).spans();
        let begun = spans.iter().filter(|span| u64::from(span.start_us) <= in_step);
        let last = begun.max_by_key(|span| span.start_us);
        last.map_or((Phase::Other, self.step, in_step), |span| {
            (span.phase, self.step, in_step - u64::from(span.start_us))
        })
    }

    /// Its stack in a phase.
    pub(super) fn stack(&self, phase: Phase) -> String {
        stacks::text(&self.script, phase)
    }

    fn hangs(&self) -> bool {
        matches!(self.fate, Fate::Hangs(_)) && self.step >= HANGS_AT
    }

    /// What it writes until `now`, microseconds from `start`.
    pub(super) fn advance(&mut self, start: HostTime, now: u64) -> Written {
        let mut written = Written::default();
        self.open(start, now, &mut written);
        while !self.hangs() {
            let step = Step::of(self.seed, self.rank, self.world, self.step);
            if self.since + u64::from(step.total()) > now {
                break;
            }
            self.finish(start, &step, &mut written);
            self.since += u64::from(step.total());
            self.step += 1;
            if self.fate == Fate::Fails(self.rank) && self.step > FAILS_AT {
                written.pieces.push((Stream::Stderr, ecc_error(&self.script)));
                written.exit = Some(1);
                break;
            }
            if self.step > STEPS {
                written.report(&Report::Done { weights: Some(format!("{:016x}", self.seed).repeat(4)) });
                written.print(format!("rank {} is done", self.rank));
                written.exit = Some(0);
                break;
            }
        }
        written
    }

    /// What it says before its first step.
    fn open(&mut self, start: HostTime, now: u64, written: &mut Written) {
        let at = |micros: u64| HostTime(start.0 + micros);
        for (number, due) in [HELLO_US, WAITS_US, MET_US].into_iter().enumerate() {
            if self.opened > number || now < due {
                continue;
            }
            self.opened = number + 1;
            match number {
                0 => {
                    let transport = (self.world > 1).then(|| "nccl".to_owned());
                    written.report(&Report::hello(self.name.clone(), transport, Some(STEPS)));
                    written.print(format!("rank {} of {} on an NVIDIA H200", self.rank, self.world));
                }
                1 if self.world > 1 => {
                    let ranks = (0..self.world).filter(|rank| *rank != self.rank).map(Rank).collect();
                    written.report(&Report::Waiting { ranks });
                }
                1 => {}
                _ => written.report(&Report::Met { t: Some(at(due)) }),
            }
        }
    }

    fn finish(&self, start: HostTime, step: &Step, written: &mut Written) {
        let number = self.step;
        let noise = 0.04 * (share(&[self.seed, self.rank.into(), number, 9]) - 0.5);
        let loss = 0.05 + 2.25 * (-(number as f64) / 900.0).exp() + noise;
        written.report(&Report::from_step(&StepTiming {
            step: number,
            start: HostTime(start.0 + self.since),
            dur_us: step.total(),
            loss: Some(loss as f32),
            samples: SAMPLES,
            spans: step.spans(),
            hidden_us: 0,
        }));
        if number.is_multiple_of(50) {
            let rate = f64::from(SAMPLES * self.world) * 1e6 / f64::from(step.total());
            written.print(format!("epoch 1 step {number}/{STEPS} loss {loss:.3} {rate:.0} samples/s"));
        }
    }
}

impl Written {
    fn print(&mut self, line: String) {
        self.pieces.push((Stream::Stdout, line + "\n"));
    }

    fn report(&mut self, report: &Report) {
        if let Ok(line) = serde_json::to_string(report) {
            self.pieces.push((Stream::Report, line + "\n"));
        }
    }
}

/// The Python script that a command runs.
fn script(argv: &[String]) -> &str {
    let is_script = |word: &&str| Path::new(word).extension().is_some_and(|end| end == "py");
    argv.iter().flat_map(|part| part.split_whitespace()).find(is_script).unwrap_or("train.py")
}

fn ecc_error(script: &str) -> String {
    format!(
        "Traceback (most recent call last):
  File \"{script}\", line 118, in <module>
    loss = model(batch[\"input_ids\"], labels=batch[\"labels\"]).loss
  File \"model.py\", line 402, in forward
    scores = torch.matmul(query, key.transpose(-1, -2))
torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(world: u32, command: &str) -> Vec<Job> {
        let argv = [command.to_owned()];
        (0..world).map(|rank| Job::new(7, Rank(rank), world, "job", &argv)).collect()
    }

    #[test]
    fn all_ranks_take_as_long_for_a_step_and_the_last_one_hardly_waits() {
        for step in [1, 399, 400, 799, 800] {
            let steps: Vec<Step> = (0..4).map(|rank| Step::of(7, rank, 4, step)).collect();
            assert!(steps.iter().all(|one| one.total() == steps[0].total()));
            assert!(steps.iter().any(|one| one.wait == LEAST_WAIT_US));
        }
    }

    #[test]
    fn in_parts_or_at_once_a_rank_writes_the_same() {
        let text = |times: &[u64]| {
            let mut job = ranks(2, "train").remove(1);
            let pieces = times.iter().flat_map(|now| job.advance(HostTime(5), *now).pieces);
            pieces.map(|(_, text)| text).collect::<String>()
        };
        let at_once = text(&[20_000_000]);
        assert!(at_once.contains("\"kind\":\"met\"") && at_once.contains("step 250/4690 loss"), "{at_once}");
        assert_eq!(text(&(0..=200).map(|part| part * 100_000).collect::<Vec<_>>()), at_once);
    }

    #[test]
    fn a_run_that_shall_fail_fails_in_one_rank_and_one_that_hangs_stands() {
        let late = 100_000_000;
        let exits: Vec<Option<i32>> =
            ranks(2, "train --fail").iter_mut().map(|job| job.advance(HostTime(0), late).exit).collect();
        assert_eq!(exits, [None, Some(1)]);
        let said = |command: &str| -> String {
            let pieces = ranks(2, command).remove(1).advance(HostTime(0), late).pieces;
            pieces.into_iter().filter(|(stream, _)| *stream == Stream::Stderr).map(|(_, text)| text).collect()
        };
        assert!(said("python src/train.py --fail").contains("File \"src/train.py\", line 118"));
        assert!(said("train --fail").contains("File \"train.py\", line 118"));
        let mut jobs = ranks(2, "train --hang");
        for job in &mut jobs {
            job.advance(HostTime(0), late);
        }
        let phases: Vec<Phase> = jobs.iter().map(|job| job.stands(late).unwrap().0).collect();
        assert_eq!(phases, [Phase::Wait, Phase::Data]);
        let stacks: Vec<String> = jobs.iter().map(|job| job.stack(job.place(late).0)).collect();
        assert!(stacks[0].contains("all_reduce") && stacks[1].contains("dataloader.py"), "{stacks:?}");
        // one that goes on is in each of its phases by and by
        let mut goes_on = ranks(2, "train").remove(0);
        goes_on.advance(HostTime(0), MET_US);
        let seen: std::collections::BTreeSet<usize> =
            (0..60).map(|part| goes_on.place(MET_US + part * 1_000).0.index()).collect();
        assert!(seen.len() >= 4, "{seen:?}");
    }
}
