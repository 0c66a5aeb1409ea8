//! Reads recordings for `report` and `diff`: chunk by chunk, so that a long one takes no more memory than a short one.

use std::path::Path;
use std::sync::Arc;

use crate::cli::errors::{Code, Failure, note};
use crate::domain::analysis::{Analyzer, RunAnalysis, Window};
use crate::domain::marks::RunMarks;
use crate::record::{Reader, marks};

/// A recording that tells which run it is of.
pub fn open(path: &Path) -> Result<Reader, Failure> {
    let reader = Reader::open(path)?;
    if reader.spec().is_none() {
        let words = format!("{}: the beginning is missing, and with it which run it is of", path.display());
        return Err(Failure::new(Code::Data, words));
    }
    Ok(reader)
}

/// The figures of a recording, of the steps that lie in the window.
pub fn analyze(reader: &Reader, window: Window) -> Result<RunAnalysis, Failure> {
    let Some(spec) = reader.spec() else {
        return Err(Failure::new(Code::Data, "the recording does not tell which run it is of"));
    };
    let mut analyzer = Analyzer::new(Arc::new(spec.clone()), window);
    let mut unreadable = 0_u64;
    for envelope in reader.envelopes(..) {
        match envelope {
            Ok(envelope) => analyzer.take(&envelope),
            Err(_) => unreadable += 1,
        }
    }
    let damage = reader.integrity().damage();
    let damage = damage.or_else(|| (unreadable > 0).then(|| format!("{unreadable} damaged chunks left out")));
    // figures are right without them
    let marks = marks::read(reader.path()).unwrap_or_else(|error| {
        note(&error.to_string());
        RunMarks::default()
    });
    let marks = marks.all().to_vec();
    Ok(RunAnalysis { marks, ..analyzer.finish(damage) })
}
