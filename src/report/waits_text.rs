//! Who came late to the collectives of an imported run, and who waited how long.

use std::fmt::Write as _;

use super::wrapped;
use crate::domain::text::sanitize;
use crate::domain::units::duration_us;
use crate::domain::wait_table::{RankWaits, WaitTable};

/// What the columns mean.
const LEGEND: &str = "LATE: mean time after the first rank; WAIT: mean time until the last one had come; \
                      IDLE: sum of what it waited after its last tensor of a step, where all ranks tell";

/// The table, of the latest `most` ranks.
pub fn waits_table(waits: &WaitTable, most: usize) -> String {
    let (told, all, clock) = (waits.told, waits.collectives, sanitize(&waits.clock));
    let mut out = format!("\nWaits by rank, of {told} of {all} collectives ({clock})\n");
    if told == 0 {
        out.push_str("  none tells when each rank came\n");
        return out;
    }
    row(&mut out, ["RANK", "LAST", "LATE", "P95", "MAX", "WAIT", "P95", "MAX", "IDLE"]);
    let rows = waits.latest(most);
    for one in &rows {
        row(&mut out, cells(one, duration_us).each_ref().map(String::as_str));
    }
    if let Some(more) = waits.ranks.len().checked_sub(rows.len()).filter(|more| *more > 0) {
        let _ = writeln!(out, "  {more} more ranks are less late; --json has all");
    }
    let _ = writeln!(out, "{}", wrapped(LEGEND, 2));
    out
}

/// The columns of a rank, its times in these words.
pub(super) fn cells(one: &RankWaits, words: fn(u64) -> String) -> [String; 9] {
    let us = |us: u32| words(us.into());
    let mean = |us: f64| words(us.round() as u64);
    [
        one.rank.0.to_string(),
        format!("{:.0} %", one.last_share() * 100.0),
        mean(one.late.mean_us),
        us(one.late.p95_us),
        us(one.late.max_us),
        mean(one.wait.mean_us),
        us(one.wait.p95_us),
        us(one.wait.max_us),
        words(one.idle_us),
    ]
}

fn row(out: &mut String, [rank, last, more @ ..]: [&str; 9]) {
    let _ = write!(out, "  {rank:>5} {last:>6}");
    for cell in more {
        let _ = write!(out, " {cell:>8}");
    }
    out.push('\n');
}
