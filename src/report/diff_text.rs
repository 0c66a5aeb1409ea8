//! Two runs side by side as text, at most 80 columns. Pure.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{WIDTH, wrapped};
use crate::domain::analysis::RunAnalysis;
use crate::domain::comparison::{Compared, Comparison, Difference, Unit};
use crate::domain::text::sanitize;
use crate::domain::units::{counted, middle_cut, rate};

const UNKNOWN: &str = "–";
/// The largest change that is told in percent, as a share.
const MOST_SHARE: f64 = 10.0;
/// A smaller change is `0.0 %`, as a share.
const SHOWN_SHARE: f64 = 0.0005;

/// The comparison.
pub fn render(a: &RunAnalysis, b: &RunAnalysis, comparison: &Comparison) -> String {
    let mut out = String::new();
    for (side, run) in [("A", a), ("B", b)] {
        let short = run.run.get(run.run.len().saturating_sub(4)..).unwrap_or(&run.run);
        let steps = match run.step_numbers() {
            None => "no steps".to_owned(),
            Some((None, last)) => counted(last, "step"),
            Some((Some(first), last)) if first < last => format!("steps {first} to {last}"),
            Some((Some(_), last)) => format!("step {last}"),
        };
        let ranks = counted(run.world, "rank");
        let words = format!("{side}  {short}  {}  ({ranks}, {steps})", sanitize(&run.name));
        let _ = writeln!(out, "{}", middle_cut(&words, WIDTH));
    }
    if let Some(part) = &a.part {
        let _ = writeln!(out, "{}", wrapped(&format!("only of {}", part.words()), 0));
    }
    for note in &comparison.notes {
        let _ = writeln!(out, "{}", wrapped(&sanitize(note), 0));
    }
    let _ = writeln!(out, "\n{:<12} {:>10} {:>10} {:>10}   95 % INTERVAL", "METRIC", "A", "B", "CHANGE");
    for metric in &comparison.metrics {
        out.push_str(row(metric).trim_end());
        out.push('\n');
    }
    if let Some(part) = comparison.by_steps.as_ref().and_then(|steps| steps.part) {
        let _ = writeln!(out, "\n{}", wrapped(&part.words(), 0));
    }
    out.push_str("\nWhat differs\n");
    if comparison.differences.is_empty() {
        out.push_str("  nothing that is recorded\n");
    }
    for difference in comparison.differences.iter().filter(|difference| !is_half_known(difference, a, b)) {
        out.push_str(&differs(difference));
    }
    let half_known = || comparison.differences.iter().filter(|difference| is_half_known(difference, a, b));
    let of_a: Vec<&str> = half_known().filter(|one| one.a.is_none()).map(|one| one.name.as_str()).collect();
    let of_b: Vec<&str> = half_known().filter(|one| one.b.is_none()).map(|one| one.name.as_str()).collect();
    for (side, names) in [("A", of_a), ("B", of_b)] {
        if !names.is_empty() {
            let words = format!("unknown of {side}: {}", names.join(", "));
            let _ = writeln!(out, "{}", wrapped(&sanitize(&words), 2));
        }
    }
    out
}

/// What hosts and ranks tell of themselves, so that a run of which it is not there may have had the same.
const TOLD: [&str; 14] = [
    "commit",
    "branch",
    "job",
    "transport",
    "total steps",
    "GPUs",
    "driver",
    "CUDA of the driver",
    "NCCL",
    "kernel",
    "architecture",
    "CPUs a host",
    "memory a host",
    "hvtui",
];

/// Whether it is known of one run alone: that is no difference. A launch without a folder had none, of an import it is unknown.
fn is_half_known(difference: &Difference, a: &RunAnalysis, b: &RunAnalysis) -> bool {
    let lacks = match (&difference.a, &difference.b) {
        (None, _) => a,
        (_, None) => b,
        _ => return false,
    };
    let name = &difference.name[..];
    let is_import = lacks.facts.iter().any(|fact| fact.name == "imported");
    TOLD.contains(&name) || name.starts_with("version ") || (is_import && name == "workdir")
}

fn row(metric: &Compared) -> String {
    let value =
        |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), |value| metric.unit.words(value));
    let percent = relative_words;
    let change = match (metric.change, metric.relative) {
        (None, _) => UNKNOWN.to_owned(),
        (Some(_), _) if metric.unsure => "unsure".to_owned(),
        (Some(_), _) if metric.same => "same".to_owned(),
        // no interval tells whether it is one, and neither number shows it
        (Some(_), Some(relative))
            if metric.interval.is_none()
                && relative.abs() < SHOWN_SHARE
                && value(metric.a) == value(metric.b) =>
        {
            "same".to_owned()
        }
        (Some(_), Some(relative)) => percent(relative),
        (Some(change), None) => metric.unit.change_words(change),
    };
    let none = if metric.too_few_steps { "too few steps" } else { "" };
    let interval = metric.interval.map_or_else(
        || none.to_owned(),
        |(low, high)| match metric.a {
            Some(a) if a != 0.0 => format!("{} … {}", percent(low / a.abs()), percent(high / a.abs())),
            _ => format!("{} … {}", metric.unit.change_words(low), metric.unit.change_words(high)),
        },
    );
    format!("{:<12} {:>10} {:>10} {change:>10}   {interval}", metric.name, value(metric.a), value(metric.b))
}

/// A change relative to the first run's value: in percent, beyond ±1000 % as the factor of the two, `× 53,062`.
fn relative_words(share: f64) -> String {
    let times = 1.0 + share;
    let sign = if times < 0.0 { "−" } else { "" };
    match times.abs() {
        _ if share.abs() <= MOST_SHARE => Unit::Percent.change_words(share * 100.0),
        times if times < 1e6 => format!("× {sign}{}", rate(times)),
        times => format!("× {sign}{times:.1e}"),
    }
}

fn differs(difference: &Difference) -> String {
    let words = |value: &Option<String>| sanitize(value.as_deref().unwrap_or(UNKNOWN)).into_owned();
    let (a, b) = (words(&difference.a), words(&difference.b));
    let name = sanitize(&difference.name);
    let line = format!("  {name:<18}  {a} → {b}");
    if line.width() <= WIDTH {
        return format!("{line}\n");
    }
    let room = WIDTH - INDENT;
    let longest = a.width().max(b.width());
    let (a, b) = if longest <= LINES * room { (a, b) } else { apart(&a, &b, LINES * room) };
    let lines = |text: &str| wrapped(&broken(text, room), INDENT).trim_start().to_owned();
    let name = middle_cut(&name, WIDTH - 2);
    format!("  {name}\n    A  {}\n    B  {}\n", lines(&a), lines(&b))
}

/// The same with blanks in words that are longer than a line.
fn broken(text: &str, room: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for letter in text.chars() {
        let width = letter.width().unwrap_or(0);
        if letter == ' ' {
            column = 0;
        } else if column + width > room {
            out.push(' ');
            column = width;
        } else {
            column += width;
        }
        out.push(letter);
    }
    out
}

/// Columns before a value that has lines of its own, and so many lines it has at most.
const INDENT: usize = 7;
const LINES: usize = 4;
/// So many words that both have are kept beside what differs.
const BESIDE: usize = 3;

/// Two texts of many words without most of what both have: where they differ, the words stay whole.
fn apart(a: &str, b: &str, room: usize) -> (String, String) {
    let words =
        |text: &'_ str| -> Vec<String> { text.split_inclusive([' ', ',']).map(str::to_owned).collect() };
    let (a, b) = (words(a), words(b));
    let least = a.len().min(b.len());
    let same =
        |pairs: &mut dyn Iterator<Item = (&String, &String)>| pairs.take_while(|(a, b)| a == b).count();
    let before = same(&mut a.iter().zip(&b));
    let behind = same(&mut a.iter().rev().zip(b.iter().rev())).min(least - before);
    let cut = |words: &[String]| {
        let (from, to) = (before.saturating_sub(BESIDE), (words.len() - behind + BESIDE).min(words.len()));
        let part = words.get(from..to).unwrap_or_default().concat();
        let (start, end) = (if from > 0 { "… " } else { "" }, if to < words.len() { " …" } else { "" });
        format!("{start}{}{end}", middle_cut(part.trim_end(), room.saturating_sub(4)))
    };
    (cut(&a), cut(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_beyond_ten_times_is_a_factor() {
        let words = [0.05, -0.5, 10.0, 10.5, 53_061.024, -12.0, 4e9].map(relative_words);
        assert_eq!(words, ["+5.0 %", "−50.0 %", "+1000.0 %", "× 12", "× 53,062", "× −11", "× 4.0e9"]);
    }
}
