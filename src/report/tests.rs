use unicode_width::UnicodeWidthStr;

use super::*;
use crate::domain::analysis::fixtures::{START, Told, late_run, spec, timing};
use crate::domain::analysis::{ChosenPart, Fact, RunAnalysis, Spread, findings};
use crate::domain::comparison::{Side, compare};
use crate::domain::fixtures::rank_exit;
use crate::domain::ids::Rank;
use crate::domain::incidents::{Incident, IncidentKind};
use crate::domain::outcome::RunEnd;
use crate::domain::timing::{Spans, StepTiming};

#[track_caller]
fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.width() <= WIDTH, "{} columns: {line}", line.width());
    }
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
}

#[test]
fn a_report_is_one_page_of_80_columns() {
    let run = late_run(100, 20);
    let text = text::render(&run, &findings(&run));
    assert_fits(&text);
    assert!(text.lines().count() <= 50, "{text}");
    // the snapshot is of no time zone
    let text = text.replace(&local_time(START), "2026-11-18 00:00");
    insta::assert_snapshot!("report", text);
}

#[test]
fn a_run_of_which_little_is_known_has_a_report() {
    let mut spec = spec(40);
    spec.name = "a\u{1b}[31m<b>".repeat(20);
    let mut told = Told::new(spec);
    told.start(0);
    told.wait(3);
    told.line(0, &"ERROR: \u{1b}]0;owned\u{7} ".repeat(40));
    let run = told.finish(RunEnd::Failed);
    let text = text::render(&run, &findings(&run));
    assert_fits(&text);
    assert!(text.contains("no steps were told") && text.contains("24 more ranks"), "{text}");
    assert!(!text.contains(" 0 ms"), "unknown is no zero: {text}");
    let page = page(&run, &findings(&run));
    assert!(!page.contains("<b>") && page.contains("&lt;b&gt;") && !page.contains('\u{1b}'), "{page}");
}

#[test]
fn ranks_without_steps_have_no_shorter_ones() {
    let mut told = Told::new(spec(36));
    for rank in 0..36 {
        let exit = rank_exit(0);
        told.rank(rank, crate::domain::event::Event::RankExited { exit });
    }
    let run = told.finish(RunEnd::Finished);
    let text = text::render(&run, &findings(&run));
    assert!(text.contains("\n  20 more ranks; --json has all\n"), "{text}");
}

#[test]
fn the_page_loads_and_runs_nothing() {
    let run = late_run(300, 20);
    let page = page(&run, &findings(&run));
    for word in ["<script", "http", "src=", "@import", "url(", "<link", "onload"] {
        assert!(!page.contains(word), "{word}");
    }
    for title in ["Loss", "Samples a second", "Step time", "Where the time goes", "Lateness by rank and step"]
    {
        assert!(page.contains(&format!("<h2>{title}</h2>\n<svg")), "{title}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("NaN").count(), 0);
}

#[test]
fn what_is_told_of_a_part_says_so_in_its_head() {
    let ranks = Some((0..40).step_by(2).map(Rank).collect());
    let part = ChosenPart { from_step: Some(5), to_step: Some(10), ranks, ..ChosenPart::default() };
    let run = late_run(60, 20).of_part(part);
    let text = text::render(&run, &findings(&run));
    assert_fits(&text);
    assert!(text.contains("\n  only of steps 5 to 10, ranks 0, 2, 4, 6,"), "{text}");
    assert!(!text.contains("after the launch"), "that is of the whole run: {text}");
    let page = page(&run, &findings(&run));
    assert!(page.contains("<p>Only of steps 5 to 10, ranks 0, 2, 4, 6,"), "{page}");
    let diff = diff_text::render(&run, &run, &compare(&side(run.clone()), &side(run.clone())));
    assert_fits(&diff);
    assert!(diff.contains("\nonly of steps 5 to 10, ranks 0, 2,") && !diff.contains("\nduration"), "{diff}");
    let whole = late_run(60, 20);
    let diff = diff_text::render(&whole, &whole, &compare(&side(whole.clone()), &side(whole.clone())));
    assert!(!diff.contains("only of") && diff.contains("\nduration"), "{diff}");
}

#[test]
fn incidents_are_listed_the_first_ones_in_text_and_all_in_the_page() {
    let incident = |second: i64| Incident {
        at: START.plus_micros(second * 1_000_000),
        kind: IncidentKind::SlowStep,
        ranks: vec![Rank(0), Rank(1)],
        hosts: vec!["gpu-a".into()],
        words: format!("slow step {second}: {} <b>", "812 ms ".repeat(20)),
    };
    let run = RunAnalysis { incidents: (1..=20).map(incident).collect(), ..late_run(60, 20) };
    let text = text::render(&run, &[]);
    assert_fits(&text);
    let first = format!("\nIncidents\n  {} slow step 1: 812 ms", local_second(START.plus_micros(1_000_000)));
    assert!(text.contains(&first), "{text}");
    assert!(text.contains("slow step 16: ") && !text.contains("slow step 17: "), "{text}");
    assert!(text.contains("\n  and 4 more; --json has all\n"), "{text}");
    let page = page(&run, &[]);
    assert!(page.contains("<h2>Incidents</h2>") && page.contains("slow step 20: "), "{page}");
    assert!(page.contains("<td>slow_step</td><td>0-1</td><td>gpu-a</td>") && !page.contains("<b>"), "{page}");
    let part = ChosenPart { between: (START, START.plus_micros(2_000_000)), ..ChosenPart::default() };
    let text = text::render(&run.clone().of_part(part), &[]);
    assert!(text.contains("slow step 2: ") && !text.contains("slow step 3: "), "{text}");
    let others = ChosenPart {
        ranks: Some(vec![Rank(5)]),
        between: (Stamp(i64::MIN), Stamp(i64::MAX)),
        ..ChosenPart::default()
    };
    assert!(!text::render(&run.of_part(others), &[]).contains("Incidents"));
}

#[test]
fn a_comparison_fits_80_columns() {
    let (a, b) = (late_run(60, 20), late_run(60, 40));
    let (a, mut b) = (Side { whole: a, common: None }, Side { whole: b, common: None });
    b.whole.facts[0].value = "python other.py ".repeat(20);
    let text = diff_text::render(&a.whole, &b.whole, &compare(&a, &b));
    assert_fits(&text);
    insta::assert_snapshot!("diff", text);
}

#[test]
fn what_is_known_of_one_run_alone_is_one_line_and_no_difference() {
    let (a, mut b) = (late_run(60, 20), late_run(60, 20));
    let fact = |name: &str| Fact { name: name.to_owned(), value: "1".to_owned() };
    let facts = ["driver", "version torch", "env NEW", "workdir"].map(fact);
    let mut a = RunAnalysis { facts: facts.to_vec(), ..a };
    b.facts.clear();
    let (of_a, of_b) = (side(a.clone()), side(b.clone()));
    let text = diff_text::render(&a, &b, &compare(&of_a, &of_b));
    let told = "\nWhat differs\n  env NEW             1 → –\n  workdir             1 → –\n  \
                unknown of B: driver, version torch\n";
    assert!(text.ends_with(told), "{text}");
    let import = RunAnalysis { facts: vec![fact("imported")], ..b.clone() };
    let text = diff_text::render(&a, &import, &compare(&of_a, &side(import.clone())));
    assert!(text.ends_with("  unknown of B: driver, version torch, workdir\n"), "{text}");
    let text = diff_text::render(&b, &a, &compare(&of_b, &of_a));
    assert!(text.ends_with("  unknown of A: driver, version torch\n"), "{text}");
    // and one that no number shows is none
    a.steps.length = a.steps.length.map(|length| Spread { mean_us: length.mean_us + 1.0, ..length });
    let text = diff_text::render(&b, &a, &compare(&of_b, &side(a.clone())));
    let mean = text.lines().find(|line| line.starts_with("mean ")).unwrap();
    assert!(mean.ends_with(" same"), "{text}");
}

#[test]
fn where_two_commands_differ_the_words_are_whole() {
    let of = |command: String| {
        let mut run = late_run(60, 20);
        run.facts[0].value = command;
        Side { whole: run, common: None }
    };
    let differ = |a: String, b: String| {
        let (a, b) = (of(a), of(b));
        let text = diff_text::render(&a.whole, &b.whole, &compare(&a, &b));
        assert_fits(&text);
        let lines = text.lines().skip_while(|line| *line != "What differs");
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    };
    let short =
        |ms: u32| format!("python3 sim.py steps=300 ms=20 slow=1 slowms={ms} s0=100 s1=200 stall=-1 fail=-1");
    let text = differ(short(3), short(4));
    assert!(text.contains(&short(3)) && text.contains(&short(4)), "{text}");
    let many = "--an-option-of-a-long-command=with-a-value ".repeat(20);
    let long = |ms: u32| format!("python3 {many}slowms={ms} {many}last");
    let text = differ(long(3), long(4));
    assert!(text.contains("slowms=3 --an") && text.contains("slowms=4 --an") && text.len() < 700, "{text}");
    let json =
        |ms: u32| format!("{{{}\"ms\":{ms},{}}}", "\"option\":1,".repeat(60), "\"more\":2,".repeat(60));
    let text = differ(json(3), json(4));
    assert!(text.contains("\"ms\":3") && text.contains("\"ms\":4"), "{text}");
}

#[test]
fn a_run_beside_itself_is_the_same() {
    let mut told = Told::new(spec(1));
    for (step, ms) in (1..).zip([9, 60, 8, 24, 12, 64, 15, 21, 17]) {
        told.step(0, timing(step, [0, ms, 0, 0, 0, 0]));
    }
    let run = told.finish(RunEnd::Finished);
    let (a, b) = (side(run.clone()), side(run));
    let text = diff_text::render(&a.whole, &b.whole, &compare(&a, &b));
    let rows: Vec<&str> = text.lines().skip(4).take_while(|line| !line.is_empty()).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.ends_with("same")), "{text}");
}

#[test]
fn what_is_rounded_to_nothing_has_no_sign() {
    use crate::domain::comparison::Unit;
    let words = [-0.04, 0.04, -0.06, 0.06].map(|change| Unit::Percent.change_words(change));
    assert_eq!(words, ["0.0 %", "0.0 %", "−0.1 %", "+0.1 %"]);
}

#[test]
fn what_the_steps_do_not_tell_is_said() {
    let of = |lengths: &[u32]| {
        let mut told = Told::new(spec(1));
        for (step, ms) in (1..).zip(lengths) {
            told.step(0, timing(step, [0, *ms, 0, 0, 0, 0]));
        }
        Side { whole: told.finish(RunEnd::Finished), common: None }
    };
    let (a, b) = (of(&[9, 60, 8, 24, 12, 64, 15, 21, 17]), of(&[9, 55, 4, 66, 6, 52, 30, 48, 45]));
    let text = diff_text::render(&a.whole, &b.whole, &compare(&a, &b));
    assert_fits(&text);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("p50").contains("unsure  ") && !line("p50").contains("same"), "{text}");
    assert!(line("p95").ends_with("too few steps") && line("p99").ends_with("too few steps"), "{text}");
}

#[test]
fn steps_of_an_excerpt_are_named_by_their_numbers_and_silent_ranks_are_counted() {
    let mut imported = spec(128);
    imported.options.imported = Some("trace of torch's profiler: a.json".to_owned());
    let run = |steps: std::ops::RangeInclusive<u64>| {
        let mut told = Told::new(imported.clone());
        for step in steps {
            (0..3).for_each(|rank| told.step(rank, timing(step, [10, 20, 30, 0, 0, 10])));
        }
        told.analyzer.finish(None)
    };
    let (a, b) = (run(1009..=1014), run(552..=552));
    let text = text::render(&a, &findings(&a));
    assert_fits(&text);
    assert!(text.contains("\nSteps: 1009 to 1014\n") && !text.contains("after the launch"), "{text}");
    assert!(text.contains("\n  125 ranks told no steps\n") && !text.contains("cost less"), "{text}");
    let ranks: String = text.lines().skip_while(|line| !line.starts_with("Ranks")).take(5).collect();
    assert!(ranks.contains("   2 gpu-a:2 ") && !ranks.contains("   3 gpu-a:3 "), "{text}");
    let page = page(&a, &findings(&a));
    assert!(page.contains(">125 ranks told no steps<") && !page.contains("gpu-a:3<"), "{page}");
    assert!(text::render(&b, &[]).contains("\nSteps: 1, number 552\n"));
    let diff = diff_text::render(&a, &b, &compare(&side(run(1009..=1014)), &side(run(552..=552))));
    assert!(
        diff.contains("(128 ranks, steps 1009 to 1014)") && diff.contains("(128 ranks, step 552)"),
        "{diff}"
    );
}

fn side(whole: crate::domain::analysis::RunAnalysis) -> Side {
    Side { whole, common: None }
}

#[test]
fn times_below_a_tenth_of_a_millisecond_are_microseconds() {
    let mut told = Told::new(spec(1));
    for step in 1..=20 {
        told.step(0, StepTiming { dur_us: 40, ..timing(step, [0; 6]) });
    }
    let run = told.finish(RunEnd::Finished);
    let text = text::render(&run, &findings(&run));
    assert_fits(&text);
    let line = text.lines().find(|line| line.contains("slowest rank")).unwrap();
    assert!(line.contains("   40 µs    40 µs") && !line.contains("0.0 ms"), "{text}");
}

#[test]
fn shares_are_those_of_the_steps_that_tell_their_phases_and_add_up() {
    let mut told = Told::new(crate::domain::run::RunSpec {
        code: Some(crate::domain::sync::Code {
            commit: Some("1a2b3c4d5e6f".to_owned()),
            dirty: Some("f".repeat(64)),
            ..Default::default()
        }),
        ..spec(2)
    });
    for step in 1..=200 {
        for rank in 0..2 {
            let whole = timing(step, [0, 10, 20, if rank == 1 { 0 } else { 40 }, 0, 10]);
            let dur_us = 100_000;
            let spans = if step % 8 == 0 { whole.spans.clone() } else { Spans::default() };
            told.step(rank, StepTiming { dur_us, spans, ..whole });
        }
    }
    let run = told.finish(RunEnd::Finished);
    let text = text::render(&run, &findings(&run));
    assert_fits(&text);
    assert!(text.contains("\n  commit 1a2b3c4, with uncommitted changes\n"), "{text}");
    let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_default();
    assert!(line("Ranks").ends_with("P50 DATA  FWD  BWD WAIT XFER  OPT OTHER LAST  CAUSED  EXIT"), "{text}");
    let row = line("     1 gpu-a:1").split_whitespace().skip(4).take(8).collect::<Vec<_>>();
    assert_eq!(row, ["–", "10%", "20%", "0%", "–", "10%", "60%", "100%"], "{text}");
    assert!(line("  forward").contains(" 10 %    10 ms    10 ms"), "{text}");
    assert!(text.contains("\n  of the 25 steps (of 199) whose phases are told\n"), "{text}");
    assert!(text.contains("last in 25 of the 25 steps (of 199) whose phases are told"), "{text}");
}

#[test]
fn long_text_is_wrapped_at_its_words() {
    let text = wrapped(&"word ".repeat(40), 5);
    assert!(text.lines().all(|line| line.width() <= WIDTH && line.starts_with("     word")), "{text}");
}

#[test]
#[ignore = "half a million steps take a minute without optimisation"]
fn half_a_thousand_ranks_take_less_than_100_mb() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let before = peak();
    let mut told = Told::new(spec(512));
    for step in 1..=1000_u32 {
        for rank in 0..512 {
            let noise = step.wrapping_mul(2_654_435_761).wrapping_add(rank * 97) >> 25;
            let millis = [10 + noise, 90, 120, 200 - noise, 20, 10];
            told.step(rank, crate::domain::analysis::fixtures::timing(step.into(), millis));
        }
    }
    let run = told.finish(RunEnd::Finished);
    assert_eq!(run.steps.length.unwrap().count, 999);
    let text = text::render(&run, &findings(&run));
    let took = peak() - before;
    assert!(took < 100, "{took} MB\n{text}");
    println!("{took} MB");
}
