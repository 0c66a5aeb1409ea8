//! What rank 0 prints: the columns of nccl-tests, with p50 and min behind them, or JSON. Pure.
//!
//! Allreduce here works in place, always. Where nccl-tests shows out-of-place and in-place, this shows buffers of the
//! group's own memory (registered) and any others (private), so a reader of nccl-tests' output can read this.

use std::fmt::Write;

use serde::Serialize;

use super::measure::Figures;
use crate::collective::{DType, Reduce};

/// A size that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) count: usize,
    pub(super) dtype: DType,
    pub(super) how: Reduce,
    pub(super) world: u32,
    pub(super) registered: Option<Figures>,
    pub(super) private: Option<Figures>,
}

/// The figures of one kind of buffer, with their rates in GB/s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Group {
    calls: u64,
    mean_us: f64,
    p50_us: f64,
    min_us: f64,
    algbw: f64,
    busbw: f64,
    wrong: Option<u64>,
}

#[derive(Serialize)]
struct Line {
    bytes: usize,
    count: usize,
    dtype: &'static str,
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    registered: Option<Group>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<Group>,
}

impl Row {
    fn bytes(&self) -> usize {
        self.count * self.dtype.size()
    }

    fn group(&self, figures: &Figures) -> Group {
        // bytes a µs is MB/s; every rank must send and receive this share of the bytes at least
        let algbw = self.bytes() as f64 / figures.mean / 1e3;
        let world = f64::from(self.world);
        let Figures { calls, mean: mean_us, p50: p50_us, min: min_us, wrong } = *figures;
        Group { calls, mean_us, p50_us, min_us, algbw, busbw: algbw * 2.0 * (world - 1.0) / world, wrong }
    }

    fn groups(&self) -> [Option<Group>; 2] {
        [self.registered, self.private].map(|figures| figures.map(|figures| self.group(&figures)))
    }

    /// Bus bandwidths of the groups that were measured.
    pub(super) fn busbw(&self) -> impl Iterator<Item = f64> {
        self.groups().into_iter().flatten().map(|group| group.busbw)
    }

    /// Wrong values, as far as was looked.
    pub(super) fn wrong(&self) -> u64 {
        self.groups().into_iter().flatten().filter_map(|group| group.wrong).sum()
    }

    /// One line of the table.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}",
            self.bytes(),
            self.count,
            type_name(self.dtype),
            op_name(self.how),
            -1
        );
        for group in self.groups() {
            let _ = match group {
                Some(group) => write!(
                    text,
                    "  {:>7}  {:>6.2}  {:>6.2}  {:>5}",
                    time(group.mean_us),
                    group.algbw,
                    group.busbw,
                    group.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string())
                ),
                None => write!(text, "  {:>7}  {:>6}  {:>6}  {:>5}", "-", "-", "-", "-"),
            };
        }
        for group in self.groups() {
            let [p50, min] =
                group.map_or(["-", "-"].map(str::to_owned), |group| [group.p50_us, group.min_us].map(time));
            let _ = write!(text, "  {p50:>8} {min:>8}");
        }
        text
    }

    /// What becomes one JSON object.
    pub(super) fn line(&self) -> impl Serialize {
        let [registered, private] = self.groups();
        let (dtype, op) = (self.dtype.name(), self.how.name());
        Line { bytes: self.bytes(), count: self.count, dtype, op, registered, private }
    }
}

/// The three lines above the rows.
pub(super) fn head() -> String {
    let (registered, private) = ("registered, in place", "private, in place");
    let mut lines = [String::from("# "), String::from("# "), String::from("# ")];
    let _ = write!(lines[0], "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "", "", "", "", "");
    let _ = write!(lines[1], "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root");
    let _ = write!(lines[2], "{:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "", "", "");
    for name in [registered, private] {
        let _ = write!(lines[0], "  {name:^30}");
        let _ = write!(lines[1], "  {:>7}  {:>6}  {:>6} {:>6}", "time", "algbw", "busbw", "#wrong");
        let _ = write!(lines[2], "  {:>7}  {:>6}  {:>6}  {:>5}", "(us)", "(GB/s)", "(GB/s)", "");
    }
    for name in ["registered", "private"] {
        let _ = write!(lines[0], "  {name:^17}");
        let _ = write!(lines[1], "  {:>8} {:>8}", "p50", "min");
        let _ = write!(lines[2], "  {:>8} {:>8}", "(us)", "(us)");
    }
    lines.map(|line| line.trim_end().to_owned()).join("\n")
}

/// The lines below the rows.
pub(super) fn foot(rows: &[Row]) -> String {
    let wrong: u64 = rows.iter().map(Row::wrong).sum();
    let verdict = if wrong == 0 { "OK" } else { "FAILED" };
    format!("# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {:.3}", average(rows))
}

/// Mean bus bandwidth over sizes and buffers, GB/s.
pub(super) fn average(rows: &[Row]) -> f64 {
    let all: Vec<f64> = rows.iter().flat_map(Row::busbw).collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// As many places as nccl-tests gives.
fn time(micros: f64) -> String {
    if micros >= 10_000.0 {
        format!("{micros:.0}")
    } else if micros >= 100.0 {
        format!("{micros:.1}")
    } else {
        format!("{micros:.2}")
    }
}

/// nccl-tests' word.
fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "half",
        DType::Bf16 => "bfloat16",
        DType::I32 => "int32",
        DType::I64 => "int64",
    }
}

/// nccl-tests' word.
fn op_name(how: Reduce) -> &'static str {
    match how {
        Reduce::Sum => "sum",
        Reduce::Mean => "avg",
        Reduce::Min => "min",
        Reduce::Max => "max",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let figures = Figures { calls: 7, mean: 20_000.0, p50: 19_000.4, min: 123.45, wrong: Some(0) };
        Row {
            count: 16 << 20,
            dtype: DType::F32,
            how: Reduce::Sum,
            world: 4,
            registered: Some(figures),
            private: Some(Figures { mean: 9.5, p50: 9.0, min: 8.999, wrong: None, ..figures }),
        }
    }

    #[test]
    fn the_columns_are_those_of_nccl_tests() {
        let text = row().text();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[..5], ["67108864", "16777216", "float", "sum", "-1"]);
        assert_eq!(words[5..9], ["20000", "3.36", "5.03", "0"]);
        assert_eq!(words[12..], ["N/A", "19000", "123.5", "9.00", "9.00"]);
        let head = head();
        let names = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
        let line = head.lines().nth(1).unwrap();
        let there: Vec<&str> = line.split_whitespace().skip(1).take(13).collect();
        assert_eq!(there.join(" "), names);
        // values stand below their names
        assert_eq!(line.find("size").unwrap() + 4, 12);
        assert_eq!(line.find("time").unwrap() + 4, text.find("20000").unwrap() + 5);
    }

    #[test]
    fn what_was_not_measured_is_a_dash_and_absent_from_json() {
        let one = Row { private: None, ..row() };
        assert_eq!(one.text().split_whitespace().filter(|word| *word == "-").count(), 6);
        let json = serde_json::to_string(&one.line()).unwrap();
        assert!(
            json.starts_with(r#"{"bytes":67108864,"count":16777216,"dtype":"f32","op":"sum","registered":{"#)
        );
        assert!(json.contains(r#""wrong":0"#) && !json.contains("private"), "{json}");
    }

    #[test]
    fn the_foot_tells_the_sum_of_wrong_values() {
        let good = row();
        let bad = Row { registered: good.registered.map(|f| Figures { wrong: Some(3), ..f }), ..good };
        assert!(foot(&[good]).starts_with("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : "));
        assert!(foot(&[good, bad]).contains("3 FAILED"));
        assert!(average(&[]).abs() < f64::EPSILON);
    }
}
