//! The figures of whole recordings, of one and of two beside each other: read chunk by chunk, so that a long one takes no more memory
//! than a short one. Of a part of one, `study` tells them.

use std::path::Path;
use std::sync::Arc;

use super::analyzed::Analyzed;
use super::error::Error;
use super::reader::Reader;
use super::segments::Lock;
use crate::domain::analysis::{Analyzer, RunAnalysis, Window};
use crate::domain::comparison::{Side, common_steps};

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

/// The figures of a recording, of the steps that lie in the window. `goes_on` is asked before each chunk, with the share that is
/// read; `None` once it says no. What can't be read is left out, and said so in the figures. Those of all steps of a long recording
/// that is finished are kept beside it, and read from there the next time.
///
/// # Errors
/// [`Error::Nameless`] where it does not tell which run it is of.
pub fn whole(
    reader: &Reader,
    window: Window,
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<RunAnalysis>, Error> {
    let spec = reader.spec().ok_or_else(|| Error::Nameless(reader.path().to_owned()))?;
    let kept = if window == Window::default() { Analyzed::of(reader) } else { None };
    if let Some(analyzer) = kept.as_ref().and_then(Analyzed::read) {
        return Ok(Some(finish(reader, analyzer, 0)));
    }
    let mut analyzer = Analyzer::new(Arc::new(spec.clone()), window);
    let mut unreadable = 0;
    let chunks = reader.chunk_count();
    let is_read = reader.each_chunk(
        &mut |chunk| goes_on(chunk as f64 / chunks as f64),
        &mut |envelopes| match envelopes {
            Some(envelopes) => envelopes.iter().for_each(|envelope| analyzer.take(envelope)),
            None => unreadable += 1,
        },
    );
    if !is_read {
        return Ok(None);
    }
    if let Some(kept) = kept.filter(|_| unreadable == 0) {
        kept.keep(&analyzer);
    }
    Ok(Some(finish(reader, analyzer, unreadable)))
}

/// The figures of what was taken in of a recording, of which so many chunks can't be read.
fn finish(reader: &Reader, analyzer: Analyzer, unreadable: u64) -> RunAnalysis {
    let damage = reader.integrity().damage();
    let damage = damage.or_else(|| (unreadable > 0).then(|| format!("{unreadable} damaged chunks left out")));
    let run = analyzer.finish(damage);
    let live = run.outcome.is_none() && Lock::is_held(reader.path());
    RunAnalysis { live, ..run }
}

/// Both sides of a comparison; where the runs differ in their steps, those that both have are read a second time. `goes_on` as
/// in [`whole()`], over all that may be read.
///
/// # Errors
/// As [`whole()`].
pub fn sides([a, b]: [&Reader; 2], goes_on: &mut dyn FnMut(f64) -> bool) -> Result<Option<[Side; 2]>, Error> {
    let mut turn = |turn: u32, reader: &Reader, window| {
        whole(reader, window, &mut |share| goes_on((f64::from(turn) + share) / 4.0))
    };
    let Some(a_whole) = turn(0, a, Window::default())? else { return Ok(None) };
    let Some(b_whole) = turn(1, b, Window::default())? else { return Ok(None) };
    let window = common_steps(&a_whole, &b_whole);
    let lacks = |whole: &RunAnalysis| {
        window.filter(|window| whole.steps.first != Some(window.from) || whole.steps.last != Some(window.to))
    };
    let mut sides = Vec::with_capacity(2);
    for (number, (reader, whole)) in (2..).zip([(a, a_whole), (b, b_whole)]) {
        let common = match lacks(&whole) {
            Some(window) => {
                let Some(common) = turn(number, reader, window)? else { return Ok(None) };
                Some(common)
            }
            None => None,
        };
        sides.push(Side { whole, common });
    }
    Ok(sides.try_into().ok())
}
