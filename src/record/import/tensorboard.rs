//! TensorBoard's event files as a run: numbers that ranks reported, at their steps and moments. What `hvtui export --to tensorboard`
//! writes becomes steps again.
//!
//! Files are read twice: what ranks there are and when they began, then all of them side by side in the order of their moments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::error::Error;
use super::run::{Asked, is_moment, unknown_places};
use super::source::Text;
use super::summary::{FileRead, Folded, LeftOut, StepsRead};
use super::target::Target;
use super::tfevents::{Records, Scalars};
use super::{cut, source};
use crate::domain::event::Event;
use crate::domain::ids::{HostId, Rank};
use crate::domain::run::JobKind;
use crate::domain::time::{HostTime, Stamp};
use crate::domain::timing::{Phase, PhaseSpan, StepTiming};

/// Files that are read side by side, each of them open.
const MOST_FILES: usize = 256;
/// Ranks that are told apart, as many as a report follows.
const MOST_RANKS: u32 = 4096;
/// Letters of a number's name.
const MOST_NAME: usize = 256;
/// By whose clock its times are.
pub(super) const CLOCK: &str = "each writer's own wall clock";

/// A file that is read.
struct Open<'a> {
    path: &'a Path,
    records: Records<Text>,
    is_packed: bool,
    events: u64,
    rank: Option<u32>,
    /// What stands before its numbers' names: the folder that names no rank.
    prefix: String,
    next: Option<(Stamp, Scalars)>,
    last: Option<Stamp>,
}

impl Open<'_> {
    /// Reads on to the next event that has a moment.
    fn advance(&mut self, timeless: &mut u64) {
        self.next = None;
        while let Some(scalars) = self.records.next() {
            let at = Stamp((scalars.wall * 1e6).round() as i64);
            if is_moment(at) {
                self.events += 1;
                self.last = Some(at);
                self.next = Some((at, scalars));
                return;
            }
            *timeless += 1;
        }
    }
}

fn open<'a>(asked: &Asked<'_>, paths: &'a [PathBuf]) -> Result<Vec<Open<'a>>, Error> {
    let one = |path: &'a PathBuf| {
        let source = source::open(path)?;
        let folder = below(asked.files, path);
        let rank = folder.iter().rev().find_map(|name| rank_of(name));
        let named = folder.into_iter().filter(|name| rank_of(name).is_none());
        Ok(Open {
            path,
            records: Records::new(source.text),
            is_packed: source.is_packed,
            events: 0,
            rank,
            prefix: named.flat_map(|name| [name, "/".to_owned()]).collect(),
            next: None,
            last: None,
        })
    };
    paths.iter().map(one).collect()
}

/// The names of the folders between what was asked for and a file in it.
fn below(asked: &[PathBuf], path: &Path) -> Vec<String> {
    let root = asked.iter().find(|root| path != **root && path.starts_with(root));
    let folder = match root {
        Some(root) => path.strip_prefix(root).ok().and_then(Path::parent),
        // a file by itself: its folder may name its rank
        None => path
            .parent()
            .and_then(Path::file_name)
            .map(Path::new)
            .filter(|name| name.to_str().is_some_and(|name| rank_of(name).is_some())),
    };
    let names = folder.into_iter().flat_map(Path::iter);
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The rank that `rank_3`, `rank-3` or `rank3` names.
pub(super) fn rank_of(name: &str) -> Option<u32> {
    let number = name.strip_prefix("rank")?;
    let number = number.strip_prefix(['_', '-']).unwrap_or(number);
    number.parse().ok().filter(|rank| *rank < MOST_RANKS && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A tag's number and rank: that of `loss/rank_3`.
fn named(tag: &str) -> (&str, Option<u32>) {
    let split = tag.rsplit_once('/').and_then(|(name, rank)| Some((name, rank_of(rank)?)));
    split.map_or((tag, None), |(name, rank)| (name, Some(rank)))
}

/// Makes a run of event files.
///
/// # Errors
/// Where there is no number in them.
pub(super) fn read(asked: &Asked<'_>, paths: &[PathBuf]) -> Result<(Folded, Vec<FileRead>), Error> {
    if paths.len() > MOST_FILES {
        let words =
            format!("{} event files; {MOST_FILES} are read at once: name the folder of one run", paths.len());
        return Err(asked.nothing(&words));
    }
    let (mut ranks, mut start) = (BTreeSet::new(), None::<Stamp>);
    let mut timeless = 0;
    for mut file in open(asked, paths)? {
        file.advance(&mut timeless);
        while let Some((at, scalars)) = &file.next {
            for (tag, _) in &scalars.values {
                ranks.insert(named(tag).1.or(file.rank).unwrap_or_default());
                let begins = begin(*at, scalars);
                start = Some(start.map_or(begins, |start| start.min(begins)));
            }
            file.advance(&mut timeless);
        }
    }
    let (Some(start), Some(last)) = (start, ranks.last()) else {
        return Err(asked.nothing("event files without a scalar: there is nothing of a run in them"));
    };
    let host = HostId::from("unknown");
    let spec = asked.spec(JobKind::Plain, "TensorBoard's scalars", unknown_places(last + 1, &host), start);
    let mut fold = Fold { target: Target::begin(asked.place, spec)?, steps: StepsRead::default(), others: 0 };
    let mut files = open(asked, paths)?;
    timeless = 0;
    for file in &mut files {
        file.advance(&mut timeless);
    }
    loop {
        let earliest = files.iter_mut().filter(|file| file.next.is_some());
        let Some(file) = earliest.min_by_key(|file| file.next.as_ref().map(|(at, _)| *at)) else { break };
        if let Some((at, scalars)) = file.next.take() {
            fold.take(at, &scalars, file.rank, &file.prefix)?;
        }
        file.advance(&mut timeless);
    }
    let files = files.iter().map(|file| read_of(file, start)).collect();
    Ok((fold.finish(ranks.len() as u32, timeless), files))
}

/// When what an event tells began: a step ends when it is told.
fn begin(at: Stamp, scalars: &Scalars) -> Stamp {
    let step = scalars.values.iter().find(|(tag, _)| matches!(named(tag), ("step_seconds", Some(_))));
    step.map_or(at, |(_, seconds)| at.plus_micros(-i64::from(micros(*seconds))))
}

fn read_of(file: &Open<'_>, start: Stamp) -> FileRead {
    let length_us = file.last.map_or(0, |last| last.micros_since(start));
    FileRead {
        path: file.path.to_owned(),
        bytes: file.records.bytes,
        packed: file.is_packed,
        events: file.events,
        unread: file.records.unread,
        rank: file.rank,
        cut: file.records.end.as_ref().and_then(|end| cut(end, file.is_packed, length_us)),
    }
}

struct Fold {
    target: Target,
    steps: StepsRead,
    others: u64,
}

impl Fold {
    fn take(&mut self, at: Stamp, scalars: &Scalars, rank: Option<u32>, prefix: &str) -> Result<(), Error> {
        self.others += scalars.others;
        let mut by_rank: BTreeMap<u32, BTreeMap<&str, f64>> = BTreeMap::new();
        let mut is_step = false;
        for (tag, number) in &scalars.values {
            let (name, of) = named(tag);
            is_step |= name == "step_seconds" && of.is_some();
            by_rank.entry(of.or(rank).unwrap_or_default()).or_default().insert(name, *number);
        }
        for (rank, mut numbers) in by_rank {
            let rank = Rank(rank);
            if is_step && let Some(timing) = step(at, scalars.step, &mut numbers) {
                self.steps.add(scalars.step);
                self.target.step(rank, timing)?;
            }
            for (name, value) in numbers {
                let name = format!("{prefix}{}", name.strip_prefix("metric/").unwrap_or(name));
                let name: String = name.chars().take(MOST_NAME).collect();
                let event = Event::MetricReported { name, value, step: Some(scalars.step) };
                self.target.of_rank(at, rank, event)?;
            }
        }
        Ok(())
    }

    fn finish(self, told_ranks: u32, timeless: u64) -> Folded {
        let mut left_out = Vec::new();
        if self.others > 0 {
            let why = "images, histograms, texts and the like: a recording has numbers alone";
            left_out.push(LeftOut::new("values that are no scalars", self.others, why));
        }
        if timeless > 0 {
            left_out.push(LeftOut::new("events without a time", timeless, "none, or not of this century"));
        }
        Folded { target: self.target, told_ranks, steps: self.steps, waits: None, left_out }
    }
}

/// The step of a rank, as hvtui's own export tells it: taken out of the numbers. It ended at that moment.
fn step(at: Stamp, step: u64, numbers: &mut BTreeMap<&str, f64>) -> Option<StepTiming> {
    let seconds = numbers.remove("step_seconds")?;
    let dur_us = micros(seconds);
    let samples = numbers.remove("samples_per_second").map_or(0.0, |rate| (rate * seconds).round());
    let wait = numbers.remove("wait_seconds").map(|wait| PhaseSpan {
        phase: Phase::Wait,
        start_us: 0,
        dur_us: micros(wait),
    });
    Some(StepTiming {
        step,
        start: HostTime(u64::try_from(at.plus_micros(-i64::from(dur_us)).0).unwrap_or_default()),
        dur_us,
        loss: numbers.remove("loss").map(|loss| loss as f32),
        samples: samples as u32,
        spans: wait.into_iter().collect(),
        hidden_us: 0,
    })
}

/// Seconds as whole microseconds; 0 where they are negative or none.
fn micros(seconds: f64) -> u32 {
    (seconds * 1e6).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_tags_name_ranks() {
        let of = ["rank_3", "rank3", "rank-12", "rank", "rank_", "rank_x", "rank_+3", "rank_99999", "train"];
        let ranks = [Some(3), Some(3), Some(12), None, None, None, None, None, None];
        assert_eq!(of.map(rank_of), ranks);
        assert_eq!(named("metric/a/b/rank_3"), ("metric/a/b", Some(3)));
        assert_eq!([named("rank_3"), named("loss/train")], [("rank_3", None), ("loss/train", None)]);
        let asked = [PathBuf::from("log"), PathBuf::from("log/run/rank_2/b")];
        assert_eq!(below(&asked, Path::new("log/train/rank_1/a")), ["train", "rank_1"]);
        assert_eq!(below(&asked[1..], &asked[1]), ["rank_2"]);
        assert!(below(&[PathBuf::from("log/run/b")], Path::new("log/run/b")).is_empty());
    }
}
