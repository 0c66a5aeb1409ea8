//! The figures of recordings, of one and of two beside each other, whole or of a part: read chunk by chunk, so that a long one takes
//! no more memory than a short one. Of a part that moves `study` tells them, by the same rules.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::analyzed::Analyzed;
use super::error::Error;
use super::export::{Selection, StepRange, during};
use super::format::Channel;
use super::reader::Reader;
use super::segments::Lock;
use super::study::is_looked_at;
use crate::domain::analysis::{Analyzer, Choice, ChosenPart, RunAnalysis, Window};
use crate::domain::comparison::{Side, common_steps};
use crate::domain::event::Event;
use crate::domain::incidents::{self, Incident};
use crate::domain::time::Stamp;
use crate::domain::units::short_duration_us;
use crate::domain::world::World;

/// A recording that tells which run it is of.
///
/// # Errors
/// As [`Reader::open`]; [`Error::Nameless`] where the chunk that tells the run is lost.
pub fn open(path: &Path) -> Result<Reader, Error> {
    let reader = Reader::open(path)?;
    if reader.spec().is_none() {
        return Err(Error::Nameless(path.to_owned()));
    }
    Ok(reader)
}

/// The figures of a recording. `goes_on` is asked before each chunk, with the share that is read; `None` once it says no. What can't
/// be read is left out, and said so in the figures. Those of a long recording that is finished are kept beside it, and read from
/// there the next time.
///
/// # Errors
/// [`Error::Nameless`] where it does not tell which run it is of.
pub fn whole(reader: &Reader, goes_on: &mut dyn FnMut(f64) -> bool) -> Result<Option<RunAnalysis>, Error> {
    part(reader, &Selection::default(), goes_on)
}

/// The figures of the part of a recording that is selected, as those of a selection in a replay: a step belongs to it if its last
/// rank was heard of after the beginning and not after the end. Where steps are selected, what has no step number counts while
/// they were made. `max_events` says nothing here. Otherwise as [`whole()`].
///
/// # Errors
/// As [`whole()`]; [`Error::NothingSelected`] where nothing of the recording is in the selection.
pub fn part(
    reader: &Reader,
    selection: &Selection,
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<RunAnalysis>, Error> {
    let excerpt = Excerpt::of(reader, selection)?;
    let Some(run) = read(reader, &excerpt, true, goes_on)? else { return Ok(None) };
    told(reader, &excerpt, run).map(Some)
}

/// Both sides of a comparison, each of its selection; where they differ in their steps, those that both have are read a second
/// time. `goes_on` as in [`whole()`], over all that may be read.
///
/// # Errors
/// As [`part`].
pub fn sides(
    [a, b]: [(&Reader, &Selection); 2],
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<[Side; 2]>, Error> {
    let mut turn = |turn: u32, reader: &Reader, excerpt: &Excerpt| {
        read(reader, excerpt, false, &mut |share| goes_on((f64::from(turn) + share) / 4.0))
    };
    let (of_a, of_b) = (Excerpt::of(a.0, a.1)?, Excerpt::of(b.0, b.1)?);
    let Some(a_whole) = turn(0, a.0, &of_a)? else { return Ok(None) };
    let a_whole = told(a.0, &of_a, a_whole)?;
    let Some(b_whole) = turn(1, b.0, &of_b)? else { return Ok(None) };
    let b_whole = told(b.0, &of_b, b_whole)?;
    let window = common_steps(&a_whole, &b_whole);
    let lacks = |whole: &RunAnalysis| {
        window.filter(|window| whole.steps.first != Some(window.from) || whole.steps.last != Some(window.to))
    };
    let mut sides = Vec::with_capacity(2);
    for (number, (reader, excerpt, whole)) in (2..).zip([(a.0, of_a, a_whole), (b.0, of_b, b_whole)]) {
        let common = match lacks(&whole) {
            Some(window) => {
                let choice = Choice { window, ..excerpt.choice.clone() };
                let Some(common) = turn(number, reader, &Excerpt { choice, ..excerpt })? else {
                    return Ok(None);
                };
                Some(common)
            }
            None => None,
        };
        sides.push(Side { whole, common });
    }
    Ok(sides.try_into().ok())
}

/// What happened after the first of two moments and not after the second.
type Between = (Stamp, Stamp);

/// All of a recording.
const ALWAYS: Between = (Stamp(i64::MIN), Stamp(i64::MAX));

fn is_between((after, until): Between, at: Stamp) -> bool {
    after < at && at <= until
}

/// The part of a recording that is read for its figures.
#[derive(Debug, Clone)]
struct Excerpt {
    choice: Choice,
    /// When steps count, by when they were heard of, and when everything else does.
    steps: Between,
    moments: Between,
    /// `None`: the whole recording.
    part: Option<ChosenPart>,
}

impl Default for Excerpt {
    fn default() -> Self {
        Self { choice: Choice::default(), steps: ALWAYS, moments: ALWAYS, part: None }
    }
}

impl Excerpt {
    fn of(reader: &Reader, selection: &Selection) -> Result<Self, Error> {
        let Selection { from, to, ranks, steps, .. } = selection;
        if (from, to, ranks, steps) == (&None, &None, &None, &None) {
            return Ok(Self::default());
        }
        let (start, end) = reader.range().unwrap_or_default();
        if from.is_some_and(|from| from > end) {
            return Err(nothing(reader, "it begins behind the end"));
        }
        if to.is_some_and(|to| to < start) {
            return Err(nothing(reader, "it ends before the beginning"));
        }
        let span = (from.filter(|from| *from > start).unwrap_or(ALWAYS.0), to.unwrap_or(ALWAYS.1));
        let mut moments = span;
        if steps.is_some() {
            let Some((first, last)) = during(reader, selection) else {
                return Err(nothing(reader, "no rank of it has told one of its steps"));
            };
            let (first, last) = (Stamp(first.div_euclid(1_000)), Stamp(last.div_euclid(1_000)));
            moments = (span.0.max(first.plus_micros(-1)), span.1.min(last));
        }
        let ranks: Option<BTreeSet<_>> = ranks.as_ref().map(|ranks| ranks.iter().copied().collect());
        let StepRange { first, last } = steps.unwrap_or(StepRange { first: None, last: None });
        let after_start = |at: Stamp| at.micros_since(start).max(0).unsigned_abs();
        let part = ChosenPart {
            from_us: from.map(after_start),
            to_us: to.map(after_start),
            from_step: first,
            to_step: last,
            ranks: ranks.as_ref().map(|ranks| ranks.iter().copied().collect()),
            between: moments,
        };
        let window = Window { from: first.unwrap_or(0), to: last.unwrap_or(u64::MAX) };
        Ok(Self { choice: Choice { window, ranks }, steps: span, moments, part: Some(part) })
    }

    /// Whether it is all of the recording.
    fn is_all(&self) -> bool {
        self.part.is_none() && self.choice == Choice::default()
    }

    /// Whether something of a span may count.
    fn meets(&self, (start, end): (Stamp, Stamp)) -> bool {
        self.part.is_none() || (self.steps.0 < end && start <= self.steps.1)
    }
}

/// Where nothing of a run is selected: why, and what there is.
fn nothing(reader: &Reader, why: &str) -> Error {
    let run = reader.spec().map_or("", |spec| spec.id.short());
    let (start, end) = reader.range().unwrap_or_default();
    let long = short_duration_us(end.micros_since(start).max(0).unsigned_abs());
    let steps = reader.select(.., |channel| channel == Channel::Phase).flatten().filter_map(|envelope| {
        let Event::StepDone { timing } = envelope.event else { return None };
        Some((timing.step, timing.step))
    });
    let steps = steps.reduce(|all, step| (all.0.min(step.0), all.1.max(step.1)));
    let steps = match steps {
        Some((first, last)) if first < last => format!("steps {first} to {last}"),
        Some((only, _)) => format!("step {only} alone"),
        None => "no steps with their times".to_owned(),
    };
    let there = format!("the recording has {steps}, in {long}");
    Error::NothingSelected(format!("run {run}: nothing is in that part: {why}; {there}"))
}

/// The figures with what part they are of; an error where steps were selected and the part has none.
fn told(reader: &Reader, excerpt: &Excerpt, run: RunAnalysis) -> Result<RunAnalysis, Error> {
    let Some(part) = &excerpt.part else { return Ok(run) };
    let by_steps = part.from_step.is_some() || part.to_step.is_some();
    if by_steps && run.steps.last.is_none() {
        return Err(nothing(reader, "none of its steps ended in its time"));
    }
    Ok(run.of_part(part.clone()))
}

/// Reads what counts for the figures. Incidents are told of a whole recording alone: those of what is kept anyway, and where they
/// are asked for.
fn read(
    reader: &Reader,
    excerpt: &Excerpt,
    with_incidents: bool,
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<RunAnalysis>, Error> {
    let spec = reader.spec().ok_or_else(|| Error::Nameless(reader.path().to_owned()))?;
    let kept = if excerpt.is_all() { Analyzed::of(reader) } else { None };
    if let Some((analyzer, incidents)) = kept.as_ref().and_then(Analyzed::read) {
        return Ok(Some(finish(reader, analyzer, incidents, 0)));
    }
    // those of a part are among those of the whole
    let known = if with_incidents && kept.is_none() { Analyzed::of(reader) } else { None };
    let known = known.as_ref().and_then(Analyzed::read).map(|(_, incidents)| incidents);
    let mut analyzer = Analyzer::new(Arc::new(spec.clone()), excerpt.choice.clone());
    let mut world = ((with_incidents && known.is_none()) || kept.is_some()).then(World::default);
    let folds = world.is_some();
    let mut unreadable = 0;
    let chunks = reader.chunk_count();
    let is_read = reader.each_chunk(
        |chunk, channel| {
            let counts = || reader.chunk_span(chunk).is_none_or(|span| excerpt.meets(span));
            folds || is_looked_at(channel, false) || counts()
        },
        &mut |chunk| goes_on(chunk as f64 / chunks as f64),
        &mut |envelopes| {
            let Some(envelopes) = envelopes else { return unreadable += 1 };
            for timed in &envelopes {
                analyzer.count(is_between(excerpt.steps, timed.time));
                analyzer.count_moments(is_between(excerpt.moments, timed.time));
                analyzer.take(&timed.envelope);
                if let Some(world) = &mut world {
                    world.apply(&timed.envelope);
                }
            }
        },
    );
    if !is_read {
        return Ok(None);
    }
    let incidents = match world {
        Some(world) => {
            let range = reader.range().unwrap_or_default();
            incidents::of_recording(&world, &spec.id, &reader.unattended(), reader.lost(), range)
        }
        None => known.unwrap_or_default(),
    };
    if let Some(kept) = kept.filter(|_| unreadable == 0) {
        kept.keep(&analyzer, &incidents);
    }
    Ok(Some(finish(reader, analyzer, incidents, unreadable)))
}

/// The figures of what was taken in of a recording, of which so many chunks can't be read.
fn finish(reader: &Reader, analyzer: Analyzer, incidents: Vec<Incident>, unreadable: u64) -> RunAnalysis {
    let damage = reader.integrity().damage();
    let damage = damage.or_else(|| (unreadable > 0).then(|| format!("{unreadable} damaged chunks left out")));
    let run = analyzer.finish(damage);
    let live = run.outcome.is_none() && Lock::is_held(reader.path());
    RunAnalysis { live, incidents, ..run }
}
