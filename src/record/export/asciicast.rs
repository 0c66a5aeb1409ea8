//! asciicast, version 3 (docs.asciinema.org/manual/asciicast/v3), for asciinema's player and `agg`: the lines of the
//! ranks as they came, each after its rank. Not the screens of a replay.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::{Format, Target};
use crate::domain::log_text::{self, sgr};
use crate::domain::run::RunSpec;
use crate::domain::text::sanitize;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "asciicast",
    about: "asciinema's recording, version 3: the ranks' lines as they came, not the screens",
    target: Target::Text,
    sink: || Box::new(Asciicast::default()),
};

/// Columns and rows of the terminal that it is shown in.
const SIZE: (u32, u32) = (120, 36);
/// Players pass over what is longer without an event, seconds.
const IDLE_LIMIT: u32 = 2;

#[derive(Default)]
struct Asciicast {
    /// When the last event was, nanoseconds; `None` as long as nothing is written.
    last: Option<i64>,
}

impl Sink for Asciicast {
    fn begin(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Line { at, line } => {
                let shown = sgr::to_terminal(&log_text::spans(&line.text));
                let text = format!("[{}] {shown}\r\n", line.rank);
                self.event(out, run, *at, "o", &text)
            }
            Item::Gap { at, gap } => {
                self.event(out, run, *at, "o", &format!("[{}] {}\r\n", gap.rank, gap.describe()))
            }
            Item::Straggler { at, straggler, .. } => {
                let text = format!("rank {} {}", straggler.rank, straggler.words());
                self.event(out, run, *at, "m", &text)
            }
            Item::Mark { at, mark } => self.event(out, run, *at, "m", &sanitize(&mark.words())),
            _ => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        if self.last.is_none() {
            head(out, run, run.start.0.saturating_mul(1_000))?;
        }
        match (run.outcome, self.last) {
            // the code of an imported run is not known
            (Some(outcome), Some(last))
                if run.chosen.has_end()
                    && !out.is_truncated()
                    && !run.spec.is_some_and(RunSpec::is_imported) =>
            {
                self.event(out, run, last, "x", &outcome.exit_code().to_string())
            }
            _ => Ok(()),
        }
    }

    fn tells_stragglers(&self) -> bool {
        true
    }
}

impl Asciicast {
    /// An event, by its code. The first one is at the beginning; none is before another.
    fn event(&mut self, out: &mut Out<'_>, run: &Run<'_>, at: i64, code: &str, data: &str) -> io::Result<()> {
        if !out.take(1) {
            return Ok(());
        }
        if self.last.is_none() {
            head(out, run, at)?;
        }
        let last = self.last.unwrap_or(at);
        self.last = Some(at.max(last));
        // microseconds: decimals that a reader of single precision keeps too
        let after = at.saturating_sub(last).max(0) / 1_000;
        line(out, &json!([after as f64 / 1e6, code, data]))
    }
}

/// The first line: an event at this moment follows.
fn head(out: &mut Out<'_>, run: &Run<'_>, at: i64) -> io::Result<()> {
    let (cols, rows) = SIZE;
    let title =
        run.spec.map_or_else(|| "run".to_owned(), |spec| format!("run {} {}", spec.id.short(), spec.name));
    line(
        out,
        &json!({
            "version": 3, "term": { "cols": cols, "rows": rows, "type": "xterm-256color" },
            "timestamp": at.div_euclid(1_000_000_000), "title": title, "idle_time_limit": IDLE_LIMIT,
        }),
    )
}

fn line(out: &mut Out<'_>, value: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
