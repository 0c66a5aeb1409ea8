//! The report of a run as one self-contained page: tables and charts. Pure.

use std::fmt::Write as _;

use super::html::{STYLE, escaped};
use super::svg::{self, Axes, Line};
use super::text::{code, number, step_facts};
use super::waits_text::cells;
use crate::domain::analysis::{Finding, HostFigures, MetricFigures, RunAnalysis, StepPoint};
use crate::domain::ids::HostId;
use crate::domain::incidents::Incident;
use crate::domain::timing::Phase;
use crate::domain::units::{bytes, counted, ranges, rate, short_duration_us};
use crate::domain::wait_table::RankWaits;

/// GPUs and ranks of which a line of its own is drawn.
const LINES: usize = 8;
const UNKNOWN: &str = "–";

/// The page.
pub fn page(run: &RunAnalysis, findings: &[Finding]) -> String {
    let short = run.run.get(run.run.len().saturating_sub(4)..).unwrap_or(&run.run);
    let title = format!("Run {short} {}", run.name);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{}</h1>\n",
        escaped(&title),
        escaped(&title)
    );
    let us = |value: Option<u64>| value.map_or_else(|| UNKNOWN.to_owned(), short_duration_us);
    let started = run.created.map_or_else(|| UNKNOWN.to_owned(), crate::domain::time::Stamp::rfc3339);
    let hosts: Vec<&str> = run.hosts.iter().map(crate::domain::ids::HostId::as_str).collect();
    let _ = writeln!(
        out,
        "<p class=\"dim\">{started} · {} · {} ranks on {}</p>\n<p>{}</p>",
        us(run.duration_us),
        run.world,
        escaped(&hosts.join(", ")),
        escaped(run.outcome_words())
    );
    if let Some(code) = code(run) {
        let _ = writeln!(out, "<p class=\"dim\">{}</p>", escaped(&code));
    }
    if let Some(part) = &run.part {
        let _ = writeln!(out, "<p>Only of {}</p>", escaped(&part.words()));
    }
    out.push_str("<h2>What to look at</h2>\n");
    if findings.is_empty() {
        out.push_str("<p>Nothing stands out.</p>\n");
    } else {
        let items = findings.iter().map(|finding| {
            let evidence = escaped(&finding.evidence.trim().replace('\n', "; ")).into_owned();
            format!("<li>{}<br><span class=\"dim\">{evidence}</span></li>\n", escaped(&finding.words))
        });
        let _ = writeln!(out, "<ol>\n{}</ol>", items.collect::<String>());
    }
    out.push_str(&steps(run));
    out.push_str(&charts(run));
    out.push_str(&tables(run));
    out.push_str("</html>\n");
    out
}

/// What is said of the steps and of NCCL's collectives.
fn steps(run: &RunAnalysis) -> String {
    let facts = if run.steps.last.is_some() { step_facts(run) } else { Vec::new() };
    let mut out = String::new();
    for (at, fact) in facts.iter().chain(&run.collectives).enumerate() {
        out.push_str(if at == 0 { "<h2>Steps</h2>\n" } else { "" });
        let _ = writeln!(out, "<p>{}</p>", escaped(fact));
    }
    out
}

fn section(title: &str, chart: Option<String>) -> String {
    chart.map_or_else(String::new, |chart| format!("<h2>{}</h2>\n{chart}", escaped(title)))
}

fn charts(run: &RunAnalysis) -> String {
    let points: Vec<(f64, &StepPoint)> =
        run.charts.steps.points().map(|(step, point)| (step as f64, point)).collect();
    let line = |class: &str, name: &str, of: &dyn Fn(&StepPoint) -> Option<f64>| Line {
        class: class.to_owned(),
        name: name.to_owned(),
        points: points.iter().map(|(step, point)| (*step, of(point))).collect(),
    };
    let step_words = |step: f64| format!("step {step:.0}");
    let axes = |title, y_words, from_zero| Axes { title, y_words, x_words: &step_words, from_zero };
    let number =
        |value: f64| if value.abs() < 1000.0 { format!("{value:.3}") } else { format!("{value:.2e}") };
    let loss = |point: &StepPoint| (point.loss.1 > 0).then(|| point.loss.0 / f64::from(point.loss.1));
    let mut out = section("Loss", svg::lines(&axes("Loss", &number, false), &[line("c0", "loss", &loss)]));

    let ranks = run.ranks.iter().filter(|rank| rank.samples_per_s.is_some()).count() as f64;
    let samples = |point: &StepPoint| {
        (point.samples > 0 && point.step_us > 0)
            .then(|| point.samples as f64 * 1e6 / point.step_us as f64 * ranks)
    };
    let chart = svg::lines(&axes("Samples a second", &rate, true), &[line("c3", "samples/s", &samples)]);
    out.push_str(&section("Samples a second", chart));

    let quantile = |share: f64| move |point: &StepPoint| point.lengths.quantile(share).map(f64::from);
    let lengths = [
        line("c0", "p50", &quantile(0.5)),
        line("c1", "p95", &quantile(0.95)),
        line("c2", "longest", &quantile(1.0)),
    ];
    let time = |us: f64| short_duration_us(us.max(0.0) as u64);
    out.push_str(&section("Step time", svg::lines(&axes("Step time", &time, true), &lengths)));

    let columns: Vec<(f64, Vec<f64>)> = points
        .iter()
        .filter(|(_, point)| point.phased_us > 0 && point.phases.iter().sum::<u64>() > 0)
        .map(|(step, point)| (*step, shares(point)))
        .collect();
    let names: Vec<(String, &str)> =
        Phase::ALL.into_iter().map(|phase| (format!("p{}", phase.index()), phase.name())).collect();
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let chart = svg::stacked(&axes("Shares of the phases", &percent, true), &names, &columns);
    out.push_str(&section("Where the time goes", chart));
    out.push_str(&section("Lateness by rank and step", lateness(run)));
    out.push_str(&section("GPU utilisation", utilisation(run)));
    out
}

fn shares(point: &StepPoint) -> Vec<f64> {
    let told: u64 = point.phases.iter().sum();
    let all = point.phased_us.max(told).max(1);
    let mut shares: Vec<f64> = point.phases.iter().map(|us| *us as f64 / all as f64).collect();
    shares[Phase::Other.index()] += (all - told.min(all)) as f64 / all as f64;
    shares
}

/// Lateness by the median step; a fifth of it is as dark as it gets.
fn lateness(run: &RunAnalysis) -> Option<String> {
    let step = f64::from(run.steps.length?.p50_us.max(1));
    let row = |(rank, late): &(crate::domain::ids::Rank, crate::domain::analysis::by_step::ByStep<_>)| {
        let cells = late.points().map(|(_, late): (u64, &crate::domain::analysis::Late)| {
            late.mean_us().map(|us| (us / step / 0.2).clamp(-1.0, 1.0))
        });
        (format!("rank {rank}"), cells.collect())
    };
    let rows: Vec<(String, Vec<Option<f64>>)> = run.charts.late.iter().map(row).collect();
    svg::heat("Lateness of each rank over the steps", &rows)
}

fn utilisation(run: &RunAnalysis) -> Option<String> {
    let (start, end) = run.charts.range?;
    let all_us = end.micros_since(start).max(1);
    let width = all_us / 240 + 1;
    let lines: Vec<Line> = run
        .charts
        .util
        .iter()
        .take(LINES)
        .enumerate()
        .map(|(at, (name, series))| {
            let points = (0..240).map(|column| {
                let from = start.plus_micros(column * width);
                let point = series.between(from, from.plus_micros(width), |_| 0);
                ((column * width) as f64, point.and_then(crate::domain::analysis::UtilPoint::mean))
            });
            // a point of the series may be longer than a column: what is told goes on
            let mut last = None;
            let points = points.map(|(x, y)| {
                last = y.or(last.take().filter(|_| width < 2_000_000));
                (x, last)
            });
            Line { class: format!("c{at}"), name: name.clone(), points: points.collect() }
        })
        .collect();
    let time = |us: f64| short_duration_us(us.max(0.0) as u64);
    let percent = |value: f64| format!("{value:.0} %");
    let axes = Axes { title: "GPU utilisation", y_words: &percent, x_words: &time, from_zero: true };
    let more = run.charts.util.len().saturating_sub(LINES);
    let note = if more > 0 {
        format!("<p class=\"dim\">{more} more GPUs are in the table.</p>\n")
    } else {
        String::new()
    };
    svg::lines(&axes, &lines).map(|chart| chart + &note)
}

fn table(title: &str, class: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cells = |cells: &mut dyn Iterator<Item = &str>, tag: &str| {
        let mut out = String::new();
        for cell in cells {
            let _ = write!(out, "<{tag}>{}</{tag}>", escaped(cell));
        }
        out
    };
    let mut body = String::new();
    for row in rows {
        let _ = writeln!(body, "<tr>{}</tr>", cells(&mut row.iter().map(String::as_str), "td"));
    }
    format!(
        "<h2>{}</h2>\n<div class=\"wide\"><table class=\"{class}\">\n<tr>{}</tr>\n{body}</table></div>\n",
        escaped(title),
        cells(&mut head.iter().copied(), "th")
    )
}

fn known<T>(value: Option<T>, words: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), words)
}

fn metrics(run: &RunAnalysis) -> String {
    let row = |metric: &MetricFigures| {
        let values = [metric.first, metric.least, metric.greatest].map(|value| known(value, number));
        let (name, rank) = (metric.name.clone(), metric.rank.to_string());
        let (last, step) = metric.ends(number);
        let ends = [known(last, |last| last), known(step, |step| step.to_string())];
        [name, rank].into_iter().chain(values).chain(ends).collect()
    };
    let rows: Vec<Vec<String>> = run.metrics.iter().map(row).collect();
    table("Metrics", "", &["Metric", "rank", "first", "least", "greatest", "last", "step"], &rows)
}

fn hosts(run: &RunAnalysis) -> String {
    let row = |host: &HostFigures| {
        let percent = |value: f64| format!("{value:.0} %");
        vec![
            host.host.to_string(),
            known(host.cpu_mean, percent),
            known(host.cpu_max, percent),
            known(host.memory_peak, bytes),
            known(host.clock_uncertainty_us, |us| short_duration_us(us.into())),
        ]
    };
    let rows: Vec<Vec<String>> = run.host_figures.iter().map(row).collect();
    table("Hosts", "", &["Host", "CPU", "peak", "memory", "clock ±"], &rows)
}

/// What went wrong or stood out.
fn incidents(run: &RunAnalysis) -> String {
    let row = |one: &Incident| {
        let hosts: Vec<&str> = one.hosts.iter().map(HostId::as_str).collect();
        let ranks = ranges(one.ranks.iter().map(|rank| rank.0));
        vec![one.at.rfc3339(), one.kind.name().to_owned(), ranks, hosts.join(", "), one.words.clone()]
    };
    let rows: Vec<Vec<String>> = run.incidents.iter().map(row).collect();
    table("Incidents", "facts", &["time", "kind", "ranks", "hosts", "what"], &rows)
}

/// Who came late to the collectives of an imported run.
fn waits(run: &RunAnalysis) -> String {
    let Some(waits) = &run.waits else { return String::new() };
    let row = |one: &RankWaits| cells(one, short_duration_us).to_vec();
    let rows: Vec<Vec<String>> = waits.ranks.iter().map(row).collect();
    let title = format!("Waits by rank, of {} of {} collectives", waits.told, waits.collectives);
    let head = ["Rank", "last in", "late", "p95", "longest", "wait", "p95", "longest", "idle"];
    let note = format!(
        "<p class=\"dim\">{}; late: after the first rank; wait: until the last one had come</p>\n",
        escaped(&waits.clock)
    );
    let table = table(&title, "", &head, if waits.told == 0 { &[] } else { &rows });
    if table.is_empty() { table } else { table + &note }
}

fn tables(run: &RunAnalysis) -> String {
    let us = |value: u32| short_duration_us(value.into());
    let untold = run.ranks.iter().filter(|rank| rank.is_untold()).count();
    // all of them where none has told anything
    let untold = if untold < run.ranks.len() { untold } else { 0 };
    let ranks: Vec<Vec<String>> = run
        .ranks
        .iter()
        .filter(|rank| untold == 0 || !rank.is_untold())
        .map(|rank| {
            let share =
                |phase: Phase| known(run.share(rank, phase), |share| format!("{:.0} %", share * 100.0));
            vec![
                format!("{} {}", rank.rank, rank.place.as_deref().unwrap_or("")),
                known(rank.length, |length| us(length.p50_us)),
                known(rank.length, |length| us(length.p95_us)),
                share(Phase::Data),
                share(Phase::Forward),
                share(Phase::Backward),
                share(Phase::Wait),
                share(Phase::Transfer),
                known(rank.last_in, |last| last.to_string()),
                known(rank.wait_caused_us, short_duration_us),
                rank.exit.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            ]
        })
        .collect();
    let head = [
        "Rank",
        "p50",
        "p95",
        "data",
        "forward",
        "backward",
        "wait",
        "transfer",
        "last in",
        "wait caused",
        "exit",
    ];
    let mut out = table("Ranks", "", &head, &ranks);
    if untold > 0 {
        let _ = writeln!(out, "<p class=\"dim\">{} told no steps</p>", counted(untold, "rank"));
    }
    out.push_str(&waits(run));
    let gpus: Vec<Vec<String>> = run
        .gpus
        .iter()
        .map(|gpu| {
            vec![
                format!("{}:{} {}", gpu.host, gpu.index, gpu.model.as_deref().unwrap_or("")),
                gpu.rank.to_string(),
                known(gpu.util_mean, |util| format!("{util:.0} %")),
                known(gpu.util_min, |util| format!("{util} %")),
                known(gpu.util_max, |util| format!("{util} %")),
                known(gpu.memory_peak, bytes),
                known(gpu.temperature_max, |heat| format!("{heat} °C")),
                known(gpu.power_max_w, |watts| format!("{watts:.0} W")),
                gpu.throttle
                    .iter()
                    .map(|throttle| format!("{} {}", throttle.reason, short_duration_us(throttle.us)))
                    .collect::<Vec<_>>()
                    .join(", "),
            ]
        })
        .collect();
    let head = ["GPU", "rank", "util", "min", "peak", "memory", "temp", "power", "clocks held down by"];
    out.push_str(&table("GPUs", "", &head, &gpus));
    out.push_str(&metrics(run));
    out.push_str(&hosts(run));
    out.push_str(&incidents(run));
    let known_of = |of: Option<String>| known(of, |of| of);
    let marks = run.marks.iter().map(|mark| {
        let (step, rank) = (mark.step.map(|step| step.to_string()), mark.rank.map(|rank| rank.to_string()));
        vec![mark.at.rfc3339(), known_of(step), known_of(rank), mark.note.clone()]
    });
    out.push_str(&table("Marks", "facts", &["time", "step", "rank", "note"], &marks.collect::<Vec<_>>()));
    let facts: Vec<Vec<String>> =
        run.facts.iter().map(|fact| vec![fact.name.clone(), fact.value.clone()]).collect();
    out.push_str(&table("What was run", "facts", &["", ""], &facts));
    out
}
