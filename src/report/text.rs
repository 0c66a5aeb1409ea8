//! The report of a run as text: one page of at most 80 columns.

use std::fmt::Write as _;

use super::{WIDTH, local_second, local_time, waits_table, wrapped};
use crate::domain::analysis::{Finding, GpuFigures, RankFigures, RunAnalysis, Spread};
use crate::domain::hooks::StepsBy;
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;
use crate::domain::units::{bytes, bytes_of, counted, metric, middle_cut, padded, rate, short_duration_us};

/// So many ranks and GPUs are shown, those that cost the most.
const ROWS: usize = 16;
const UNKNOWN: &str = "–";

/// The report.
pub fn render(run: &RunAnalysis, findings: &[Finding]) -> String {
    let mut out = head(run);
    out.push_str("\nWhat to look at\n");
    if findings.is_empty() {
        out.push_str("  nothing stands out\n");
    }
    for (number, finding) in (1..).zip(findings) {
        let words = wrapped(&sanitize(&finding.words), 5);
        let _ = writeln!(out, "  {number}. {}", words.trim_start());
        for line in finding.evidence.lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(out, "{}", wrapped(&sanitize(line), 5));
        }
    }
    out.push_str(&steps(run));
    out.push_str(&metrics(run));
    out.push_str(&phases(run));
    out.push_str(&ranks(run));
    if let Some(waits) = &run.waits {
        out.push_str(&waits_table(waits, ROWS));
    }
    out.push_str(&gpus(run));
    out.push_str(&rest(run));
    out.push_str(&incidents(run));
    out.push_str(&marks(run));
    out
}

fn or_unknown<T>(value: Option<T>, words: impl Fn(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), words)
}

fn us(value: impl Into<Option<u64>>) -> String {
    or_unknown(value.into(), short_duration_us)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn hosts(hosts: &[HostId]) -> String {
    let names: Vec<&str> = hosts.iter().map(HostId::as_str).collect();
    match names[..] {
        [] => UNKNOWN.to_owned(),
        [.., _] if names.len() <= 4 => names.join(", "),
        _ => format!("{} hosts", names.len()),
    }
}

fn head(run: &RunAnalysis) -> String {
    let short = run.run.get(run.run.len().saturating_sub(4)..).unwrap_or(&run.run);
    let ranks = if run.world == 1 { "1 rank".to_owned() } else { format!("{} ranks", run.world) };
    let mut out = format!("Run {short}  {}\n", middle_cut(&sanitize(&run.name), WIDTH - 12));
    let started = or_unknown(run.created, local_time);
    let _ = writeln!(
        out,
        "{}",
        wrapped(
            &format!("started {started}, took {}; {ranks} on {}", us(run.duration_us), hosts(&run.hosts)),
            2
        )
    );
    let _ = writeln!(out, "{}", wrapped(&sanitize(run.outcome_words()), 2));
    if let Some(code) = code(run) {
        let _ = writeln!(out, "{}", wrapped(&sanitize(&code), 2));
    }
    if let Some(part) = &run.part {
        let _ = writeln!(out, "{}", wrapped(&format!("only of {}", part.words()), 2));
    }
    if run.restarts > 0 {
        let _ = writeln!(out, "  started again after a failure: {} times", run.restarts);
    }
    out
}

/// `commit 1a2b3c4, with uncommitted changes`.
pub(super) fn code(run: &RunAnalysis) -> Option<String> {
    let fact = |name: &str| run.facts.iter().find(|fact| fact.name == name);
    let commit = fact("commit")?.value.chars().take(7).collect::<String>();
    let changed = fact("uncommitted changes").map_or("", |_| ", with uncommitted changes");
    Some(format!("commit {commit}{changed}"))
}

/// `P50 P95 P99 MAX MEAN`.
fn spread(length: Option<&Spread>) -> String {
    let of = |get: fn(&Spread) -> u64| us(length.map(get));
    format!(
        "{:>8} {:>8} {:>8} {:>8} {:>8}",
        of(|length| length.p50_us.into()),
        of(|length| length.p95_us.into()),
        of(|length| length.p99_us.into()),
        of(|length| length.max_us.into()),
        of(|length| length.mean_us as u64)
    )
}

fn steps(run: &RunAnalysis) -> String {
    let mut out = steps_told(run);
    // told by NCCL, whether the program tells steps or not
    if let Some(collectives) = &run.collectives {
        let _ = writeln!(out, "{}", wrapped(&sanitize(collectives), 2));
    }
    out
}

fn steps_told(run: &RunAnalysis) -> String {
    let Some(numbers) = run.step_numbers() else {
        return "\nSteps\n  no steps were told by the program, by hooks, or in what it prints\n".to_owned();
    };
    let figures = &run.steps;
    let of = figures.of.map_or_else(String::new, |of| format!(" of {of}"));
    let by = match figures.by {
        Some(StepsBy::Hooks) => ", told by hooks",
        Some(StepsBy::Log) => ", read from what it prints: without times",
        _ => "",
    };
    let numbers = match numbers {
        (Some(first), last) if first < last => format!("{first} to {last}"),
        (Some(_), last) => format!("1, number {last}"),
        (None, last) => last.to_string(),
    };
    let mut out = format!("\nSteps: {numbers}{of}{by}\n");
    if let Some(length) = &figures.length {
        let whose = if figures.aligned { "slowest rank" } else { "each rank" };
        let _ = writeln!(
            out,
            "  {:<14} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "", "STEPS", "P50", "P95", "P99", "MAX", "MEAN"
        );
        let _ = writeln!(out, "  {whose:<14} {:>8} {}", length.count, spread(Some(length)));
    }
    for fact in step_facts(run) {
        let _ = writeln!(out, "{}", wrapped(&fact, 2));
    }
    out
}

/// What else there is to say of the steps, one sentence each.
pub(super) fn step_facts(run: &RunAnalysis) -> Vec<String> {
    let figures = &run.steps;
    let mut facts: Vec<String> = Vec::new();
    if let Some(warm_up) = figures.warm_up_us {
        facts.push(format!(
            "the first step took {}, and is not among these",
            short_duration_us(warm_up.into())
        ));
    }
    if let Some(after) = run.first_step_after_us {
        facts.push(format!("the first step had ended {} after the launch", short_duration_us(after)));
    }
    if let Some(exposed) = figures.exposed_us {
        let overlap = figures.overlap.map_or_else(String::new, |of| format!(", overlap {}", percent(of)));
        facts.push(format!("exposed communication {} a step{overlap}", short_duration_us(exposed as u64)));
    }
    if let Some(samples) = run.samples {
        let last =
            samples.last_tenth_per_s.map_or_else(String::new, |last| format!(", last tenth {}", rate(last)));
        facts.push(format!("{} samples/s{last}", rate(samples.per_s)));
    }
    if let Some(loss) = run.loss {
        facts.push(format!(
            "loss {} first, {} least (step {}), {} last",
            metric(loss.first),
            metric(loss.least),
            loss.least_step,
            metric(loss.last)
        ));
    }
    facts
}

/// In nine columns at most.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 1e6 { metric(value) } else { format!("{value:.2e}") }
}

fn metrics(run: &RunAnalysis) -> String {
    if run.metrics.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{:<24} {:>4} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "Metrics", "RANK", "FIRST", "LEAST", "GREATEST", "LAST", "STEP"
    );
    for figures in run.metrics.iter().take(ROWS) {
        let (last, step) = figures.ends(number);
        let _ = writeln!(
            out,
            "  {} {:>4} {:>9} {:>9} {:>9} {:>9} {:>9}",
            padded(&figures.name, 22),
            figures.rank,
            or_unknown(figures.first, number),
            or_unknown(figures.least, number),
            or_unknown(figures.greatest, number),
            or_unknown(last, |last| last),
            or_unknown(step, |step| step.to_string())
        );
    }
    if let Some(more) = run.metrics.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(out, "  {more} more; --json has all");
    }
    out
}

fn phases(run: &RunAnalysis) -> String {
    if run.phases.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{:<16} {:>8} {:>8} {:>8} {:>8}\n", "Phases", "SHARE", "MEAN", "P50", "P95");
    for figures in &run.phases {
        let bar = "█".repeat((figures.share * 24.0).round() as usize);
        let line = format!(
            "  {:<14} {:>8} {:>8} {:>8} {:>8}  {bar}",
            figures.phase.name(),
            percent(figures.share),
            short_duration_us(figures.mean_us as u64),
            us(figures.p50_us.map(u64::from)),
            us(figures.p95_us.map(u64::from))
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    if let Some(words) = phased_words(run) {
        let _ = writeln!(out, "{}", wrapped(&words, 2));
    }
    out
}

/// Of which steps the phases are, where not all tell theirs.
pub(super) fn phased_words(run: &RunAnalysis) -> Option<String> {
    let (phased, all) = (run.steps.phased, run.steps.length.filter(|_| run.steps.aligned)?.count);
    let why = match run.steps.by {
        Some(StepsBy::Hooks) => ": of many short steps hooks tell the phases of some",
        _ => "",
    };
    (0 < phased && phased < all)
        .then(|| format!("of the {phased} steps (of {all}) whose phases are told{why}"))
}

/// Those that cost the most, in their own order; and how many are left out.
fn worst<T>(all: &[T], cost: impl Fn(&T) -> u64) -> (Vec<&T>, usize) {
    let mut order: Vec<usize> = (0..all.len()).collect();
    if all.len() > ROWS {
        order.sort_by_key(|at| std::cmp::Reverse(cost(&all[*at])));
        order.truncate(ROWS);
        order.sort_unstable();
    }
    (order.into_iter().map(|at| &all[at]).collect(), all.len().saturating_sub(ROWS))
}

fn ranks(run: &RunAnalysis) -> String {
    let has_phases = run.ranks.iter().any(|rank| rank.shares.is_some());
    let columns = columns(run);
    let is_usual = columns.len() == COLUMNS.len();
    let width = if is_usual { 19 } else { 17 };
    let mut out = format!("\n{:<width$} {:>7}", "Ranks", "P50");
    if is_usual {
        let _ = write!(out, " {:>7}", "P95");
    }
    if has_phases {
        for (_, name) in &columns {
            let _ = write!(out, " {name:>4}");
        }
        let _ = write!(out, " {:>4} {:>7}", "LAST", "CAUSED");
    }
    out.push_str("  EXIT\n");
    let cost = |rank: &RankFigures| {
        rank.wait_caused_us.or(rank.length.map(|length| length.p95_us.into())).unwrap_or(0)
    };
    let (untold, told): (Vec<&RankFigures>, Vec<&RankFigures>) =
        run.ranks.iter().partition(|rank| rank.is_untold());
    let (rows, more) = worst(if told.is_empty() { &untold } else { &told }, |rank| cost(rank));
    for rank in rows {
        out.push_str(rank_row(run, rank, has_phases.then_some(&columns)).trim_end());
        out.push('\n');
    }
    let less = if run.ranks.iter().any(|rank| rank.wait_caused_us.is_some()) {
        " cost less"
    } else if run.ranks.iter().any(|rank| rank.length.is_some()) {
        " have shorter steps"
    } else {
        ""
    };
    match (more, told.is_empty()) {
        (0, _) => {}
        (more, true) => {
            let _ = writeln!(out, "  {} told no steps", counted(more, "more rank"));
        }
        (1, false) => {
            let _ = writeln!(out, "  1 more rank; --json has all");
        }
        (more, false) => {
            let _ = writeln!(out, "  {more} more ranks{less}; --json has all");
        }
    }
    if !told.is_empty() && !untold.is_empty() {
        let _ = writeln!(out, "  {} told no steps", counted(untold.len(), "rank"));
    }
    out
}

/// The phases that a row has.
const COLUMNS: [(Phase, &str); 5] = [
    (Phase::Data, "DATA"),
    (Phase::Forward, "FWD"),
    (Phase::Backward, "BWD"),
    (Phase::Wait, "WAIT"),
    (Phase::Transfer, "XFER"),
];

/// The same with those that are left, where a rank spends a hundredth and more of its time in none of these and in no optimizer.
fn columns(run: &RunAnalysis) -> Vec<(Phase, &'static str)> {
    let mut columns = COLUMNS.to_vec();
    let other = run.ranks.iter().filter_map(|rank| run.share(rank, Phase::Other));
    if other.fold(0.0, f64::max) >= OTHER_FROM {
        columns.extend([(Phase::Optimizer, "OPT"), (Phase::Other, "OTHER")]);
    }
    columns
}

const OTHER_FROM: f64 = 0.01;

fn rank_row(run: &RunAnalysis, rank: &RankFigures, columns: Option<&Vec<(Phase, &str)>>) -> String {
    let judged = run.steps.judged;
    let place = rank.place.clone().unwrap_or_default();
    // beside all phases there is less room, and none for the quantile
    let is_usual = columns.is_none_or(|columns| columns.len() == COLUMNS.len());
    let mut row = format!(
        "  {:>4} {} {:>7}",
        rank.rank.0,
        padded(&place, if is_usual { 12 } else { 10 }),
        us(rank.length.map(|length| length.p50_us.into()))
    );
    if is_usual {
        let _ = write!(row, " {:>7}", us(rank.length.map(|length| length.p95_us.into())));
    }
    if let Some(columns) = columns {
        for (phase, name) in columns {
            let share = or_unknown(run.share(rank, *phase), |share| format!("{:.0}%", share * 100.0));
            let width = name.len().max(4);
            let _ = write!(row, " {share:>width$}");
        }
        let last = or_unknown(rank.last_in.filter(|_| judged > 0), |last| {
            format!("{:.0}%", last as f64 * 100.0 / judged as f64)
        });
        let _ = write!(row, " {last:>4} {:>7}", us(rank.wait_caused_us));
    }
    let exit = rank.exit.as_deref().unwrap_or(UNKNOWN);
    // as short as it is clear: `3`, `KILL`
    let exit = exit.split(',').next().unwrap_or(exit);
    let exit = ["exit ", "killed by SIG"].iter().find_map(|words| exit.strip_prefix(words)).unwrap_or(exit);
    let left = WIDTH.saturating_sub(unicode_width::UnicodeWidthStr::width(row.as_str()) + 2);
    format!("{row}  {}", middle_cut(&sanitize(exit), left))
}

fn gpus(run: &RunAnalysis) -> String {
    if run.gpus.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n{:<22} {:>4} {:>5} {:>5} {:>5} {:>11} {:>6} {:>7}  {}\n",
        "GPUs", "RANK", "UTIL", "MIN", "PEAK", "MEMORY", "TEMP", "POWER", "HELD"
    );
    let cost = |gpu: &GpuFigures| (100.0 - gpu.util_mean.unwrap_or(0.0)).max(0.0) as u64;
    let (rows, more) = worst(&run.gpus, cost);
    for gpu in rows {
        let percent = |value: Option<u32>| or_unknown(value, |value| format!("{value}%"));
        let memory = match (gpu.memory_peak, gpu.memory_total) {
            (Some(peak), Some(total)) => bytes_of(peak, total),
            (peak, _) => or_unknown(peak, bytes),
        };
        let held = gpu.throttle.first().map_or_else(String::new, |throttle| short_duration_us(throttle.us));
        let row = format!(
            "  {} {:>4} {:>5} {:>5} {:>5} {memory:>11} {:>6} {:>7}  {held}",
            padded(&format!("{}:{} {}", gpu.host, gpu.index, gpu.model.as_deref().unwrap_or("")), 20),
            gpu.rank.0,
            percent(gpu.util_mean.map(|mean| mean.round() as u32)),
            percent(gpu.util_min),
            percent(gpu.util_max),
            or_unknown(gpu.temperature_max, |heat| format!("{heat} °C")),
            or_unknown(gpu.power_max_w, |watts| format!("{watts:.0} W"))
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
    if more > 0 {
        let _ = writeln!(out, "  {more} more GPUs are busier; --json has all");
    }
    out
}

/// What happened at a moment.
fn moment(at: Stamp, words: &str) -> String {
    let words = wrapped(&sanitize(&format!("{}  {words}", local_second(at))), 4);
    format!("  {}\n", words.trim_start())
}

/// What went wrong or stood out, the first ones.
fn incidents(run: &RunAnalysis) -> String {
    if run.incidents.is_empty() {
        return String::new();
    }
    let mut out = "\nIncidents\n".to_owned();
    out.extend(run.incidents.iter().take(ROWS).map(|one| moment(one.at, &one.words)));
    if let Some(more) = run.incidents.len().checked_sub(ROWS).filter(|more| *more > 0) {
        let _ = writeln!(out, "  and {more} more; --json has all");
    }
    out
}

/// What a person has noted.
fn marks(run: &RunAnalysis) -> String {
    if run.marks.is_empty() {
        return String::new();
    }
    let mut out = "\nMarks\n".to_owned();
    out.extend(run.marks.iter().map(|mark| moment(mark.at, &mark.words())));
    out
}

/// Hosts and log.
fn rest(run: &RunAnalysis) -> String {
    let mut out = format!("\n{:<22} {:>8} {:>8} {:>11} {:>9}\n", "Hosts", "CPU", "PEAK", "MEMORY", "CLOCK ±");
    let (rows, more) = worst(&run.host_figures, |host| host.cpu_max.unwrap_or(0.0) as u64);
    for host in rows {
        let percent = |value: Option<f64>| or_unknown(value, |value| format!("{value:.0} %"));
        let _ = writeln!(
            out,
            "  {} {:>8} {:>8} {:>11} {:>9}",
            padded(host.host.as_str(), 20),
            percent(host.cpu_mean),
            percent(host.cpu_max),
            or_unknown(host.memory_peak, bytes),
            us(host.clock_uncertainty_us.map(u64::from))
        );
    }
    if more > 0 {
        let _ = writeln!(out, "  {more} more hosts; --json has all");
    }
    let log = &run.log;
    let _ = writeln!(
        out,
        "\nLog: {}, {}, {}",
        counted(log.lines, "line"),
        counted(log.warnings, "warning"),
        counted(log.errors + log.fatal, "error")
    );
    out
}
