//! `hvtui report` and `hvtui diff` by the real binary: of ranks one of which is late in a known phase, of a job that has no
//! steps, and with what can't be understood.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::built;
use crate::common::in_time::OutputInTime;
use crate::common::processes::{end_of, until, until_says};
use crate::common::terminal::Terminal;
use crate::json_forms::assert_fits;
use crate::local_runs::Person;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Two ranks over 80 steps; the second one is late in data, where it is.
fn trained(person: &Person, name: &str, late: bool) {
    let late_rank = built::example("late_rank");
    let late_rank = late_rank.to_str().unwrap();
    let mut args = vec!["run", "-np", "2", "--name", name, "--env", "LATE_STEPS=80"];
    if late {
        args.extend(["--env", "LATE_RANK=1", "--env", "LATE_PHASE=data", "--env", "LATE_MS=60"]);
    }
    args.extend(["--", late_rank]);
    let out = person.run(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

fn said(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    text(&out.stdout)
}

/// On Runs at 80 columns: the newest run's report, and both runs side by side, the older first.
fn the_screens_say_the_same(person: &Person, report: &str, diff: &str, step: u64) {
    let mut ui = Command::new(crate::common::program::hvtui());
    ui.current_dir(person.home()).env("HOME", person.home());
    let Some(ui) = Terminal::start(&ui, 80, 24) else { return };
    let shows = |screen: &str, words: &str, from: usize| {
        let shown: Vec<&str> = screen.lines().skip(1).take(22).map(str::trim_end).collect();
        shown.iter().copied().eq(words.lines().skip(from).take(22).map(str::trim_end))
    };
    ui.wait("the hosts", |screen| screen.contains("here"));
    ui.press(&["r"]);
    ui.wait("the runs", |screen| screen.contains("even") && screen.contains("late"));
    ui.press(&["X"]);
    ui.wait("what to do first", |screen| screen.contains("mark a run with space"));
    ui.press(&["I"]);
    ui.wait("its beginning", |screen| screen.contains("report of run") && shows(screen, report, 0));
    ui.press(&["G"]);
    let last = report.lines().count().saturating_sub(22);
    ui.wait("its end", |screen| shows(screen, report, last) && screen.contains("scroll"));
    ui.press(&["9"]);
    ui.wait("that there is none", |screen| screen.contains("there is no 9"));
    // where the first finding can be seen
    ui.press(&["1"]);
    ui.wait("the step", |screen| {
        !screen.contains("report of run")
            && screen.contains(&format!("step {step}"))
            && screen.contains(" Replay ")
    });
    ui.press(&["I"]);
    ui.wait("the report of what is shown", |screen| {
        screen.contains("report of run") && shows(screen, report, 0)
    });
    ui.press(&["Escape"]);
    ui.wait("the replay", |screen| !screen.contains("report of run"));
    ui.press(&["Escape"]);
    ui.wait("the runs", |screen| screen.contains("2 runs") && !screen.contains("report of run"));
    ui.press(&["Space", "X"]);
    ui.wait("both", |screen| screen.contains("compared") && shows(screen, diff, 0));
    ui.press(&["C-c"]);
    ui.assert_restored(0);
}

/// The same runs, of which a part is looked at.
fn a_part_is_told_alone(person: &Person) {
    let part = ["--steps", "21-40", "--ranks", "1"];
    let of = |command: &[&'static str]| person.run(&[command, &part[..]].concat());
    let report = said(&of(&["report", "late"]));
    assert!(report.contains("\n  only of steps 21 to 40, rank 1\n"), "{report}");
    assert!(report.contains("\nSteps: 21 to 40"), "{report}");
    let json = assert_fits("run-report", &of(&["report", "late", "--json"]));
    assert_eq!((&json["part"]["from_step"], &json["part"]["ranks"][0]), (&21.into(), &1.into()));
    assert_eq!((&json["steps"]["length"]["count"], &json["steps"]["last"]), (&20.into(), &40.into()));
    assert_eq!((json["ranks"].as_array().unwrap().len(), &json["ranks"][0]["rank"]), (1, &1.into()));
    assert_eq!(said(&of(&["report", "late", "--html", "part.html"])), "");
    let page = std::fs::read_to_string(person.home().join("part.html")).unwrap();
    assert!(page.contains("<p>Only of steps 21 to 40, rank 1</p>"), "{page}");

    let diff = said(&person.run(&["diff", "even", "late", "--steps", "21-40"]));
    assert!(
        diff.contains("\nonly of steps 21 to 40\n") && diff.contains("(2 ranks, steps 21 to 40)"),
        "{diff}"
    );
    let json = assert_fits("run-diff", &of(&["diff", "even", "late", "--json"]));
    assert_eq!((&json["part"]["to_step"], &json["part"]["from_us"]), (&40.into(), &Value::Null));

    let refused = |args: &[&str]| {
        let out = person.run(args);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(64), ""), "{out:?}");
        text(&out.stderr)
    };
    let err = refused(&["report", "late", "--steps", "81-"]);
    assert!(
        err.contains("nothing is in that part") && err.contains("the recording has steps 1 to 80, in "),
        "{err}"
    );
    let err = refused(&["diff", "even", "late", "--from", "90000"]);
    assert!(err.contains("it begins behind the end; the recording has steps 1 to 80"), "{err}");
    let err = refused(&["report", "late", "--ranks", "0,7"]);
    assert!(err.contains("--ranks 7: the run has ranks 0 to 1"), "{err}");
    let err = refused(&["report", "late", "--from", "5", "--to", "2"]);
    assert!(err.contains("--from 5 is later than --to 2"), "{err}");
}

#[test]
fn a_late_rank_is_found_and_its_cost_decides() {
    let person = Person::new(2);
    trained(&person, "even", false);
    trained(&person, "late", true);

    let report = said(&person.run(&["report", "late"]));
    assert!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
    assert!(
        report.contains("  1. rank 1 (here:1) is late in data: if it took no longer there than the"),
        "{report}"
    );

    let json = assert_fits("run-report", &person.run(&["report", "late", "--json"]));
    assert_eq!((&json["steps"]["last"], &json["steps"]["length"]["count"]), (&80.into(), &79.into()));
    assert_eq!((&json["what_if"][0]["rank"], &json["what_if"][0]["phase"]), (&1.into(), &"data".into()));
    assert!(json["what_if"][0]["share"].as_f64().is_some_and(|share| share > 0.1), "{json:#}");
    let step = json["findings"][0]["place"]["step"].as_u64().expect("a step from which it was late");
    assert!(json["ranks"][1]["last_in"].as_u64() > json["ranks"][0]["last_in"].as_u64(), "{json:#}");

    let page = person.home().join("report.html");
    std::fs::write(&page, "old").unwrap();
    assert_eq!(said(&person.run(&["report", "late", "--html", "report.html"])), "");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.starts_with("<!doctype html>") && page.contains("<svg") && !page.contains("<script"),
        "{page}"
    );
    assert!(!person.home().join("report.html.part").exists());

    a_part_is_told_alone(&person);
    let diff = said(&person.run(&["diff", "even", "late"]));
    the_screens_say_the_same(&person, &report, &diff, step);
    assert!(diff.lines().all(|line| line.chars().count() <= 80), "{diff}");
    assert!(diff.contains("env LATE_RANK") && diff.contains("\np50 "), "{diff}");
    // how long a whole step takes is the machine's business, the time in data is not: one of the ranks sleeps there
    let slower = person.run(&["diff", "even", "late", "--fail-if", "data>+20ms"]);
    assert_eq!(slower.status.code(), Some(1), "{slower:?}");
    assert!(
        text(&slower.stderr).contains("hvtui: --fail-if failed: data>+20ms: ")
            && text(&slower.stderr).contains(", where at most +20 ms passes"),
        "{slower:?}"
    );
    let faster = person.run(&["diff", "late", "even", "--fail-if", "data>+20ms", "--json"]);
    let json = assert_fits("run-diff", &faster);
    assert_eq!((faster.status.code(), &json["conditions"][0]["holds"]), (Some(0), &false.into()));
    assert!(text(&faster.stderr).contains("hvtui: --fail-if passed: data>+20ms: "), "{faster:?}");

    let unknown = person.run(&["diff", "even", "late", "--fail-if", "gpu-util<-5"]);
    assert_eq!(unknown.status.code(), Some(65), "{unknown:?}");
    assert!(text(&unknown.stderr).contains("can't judge gpu-util<-5: both runs lack it"), "{unknown:?}");
    // 79 steps tell nothing of the one in a hundred
    let few = person.run(&["diff", "even", "late", "--fail-if", "p99>+5%"]);
    assert_eq!(few.status.code(), Some(65), "{few:?}");
    assert!(text(&few.stderr).contains("can't judge p99>+5%: too few steps"), "{few:?}");
    assert!(diff.lines().any(|line| line.starts_with("p99 ") && line.ends_with("too few steps")), "{diff}");
}

#[test]
fn a_job_without_steps_has_a_report() {
    let person = Person::new(1);
    let script = "echo 'WARNING: low'; echo 'ERROR: no data' >&2; exit 3";
    let out = person.run(&["run", "-np", "1", "--name", "plain", "--", "sh", "-c", script]);
    assert_eq!(out.status.code(), Some(3), "{out:?}");
    let report = said(&person.run(&["report", "last"]));
    assert!(report.contains("no steps were told") && report.contains("1. the run failed"), "{report}");
    assert!(report.contains("first error, rank 0: ERROR: no data"), "{report}");
    let incidents = report.split_once("\nIncidents\n").map_or("", |(_, behind)| behind);
    assert!(incidents.contains(" rank 0 (here) failed first: exit 3"), "{report}");
    let json = assert_fits("run-report", &person.run(&["report", "last", "--json"]));
    assert_eq!((&json["success"], &json["steps"]["length"]), (&false.into(), &Value::Null));
    let failed =
        |one: &Value| one["kind"] == "rank_failed" && one["ranks"][0] == 0 && one["hosts"][0] == "here";
    assert!(json["incidents"].as_array().unwrap().iter().any(failed), "{json:#}");
    let diff = said(&person.run(&["diff", "last", "last"]));
    assert!(diff.contains("neither run told steps") && diff.contains("nothing that is recorded"), "{diff}");
}

/// A rank that prints nothing tells no time: its host does, each second.
#[test]
fn a_run_that_has_become_quiet_is_told_up_to_now() {
    let person = Person::new(1);
    let script = "echo begun; exec sleep 600";
    let run =
        person.hvtui(&["run", "-np", "1", "--name", "quiet", "--", "sh", "-c", script]).spawn().unwrap();
    until("a report of the seconds in which it was quiet", || {
        let out = person.run(&["report", "quiet", "--json"]);
        let json: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        json["live"] == true && json["duration_us"].as_u64() > Some(6_000_000)
    });
    let report = said(&person.run(&["report", "quiet"]));
    assert!(report.contains("\n  it goes on: these are its figures so far\n"), "{report}");
    said(&person.run(&["stop", "last"]));
    let out = run.output_in_time().unwrap();
    assert!(text(&out.stdout).contains("begun"), "{out:?}");
}

#[test]
fn what_can_not_be_understood_or_written_is_a_failure() {
    let person = Person::new(1);
    let bad = person.run(&["diff", "last", "last", "--fail-if", "p96>+5%"]);
    assert_eq!(bad.status.code(), Some(64), "{bad:?}");
    assert!(text(&bad.stderr).contains("p96>+5%\n^^^ not a metric; these are: p50 p95"), "{bad:?}");
    assert_eq!(person.run(&["report", "last"]).status.code(), Some(64), "there is no run");
    for command in ["logs", "attach"] {
        let none = text(&person.run(&[command]).stderr);
        assert!(
            none.starts_with("hvtui: no run is recorded here ") && none.contains("; start one: "),
            "{none}"
        );
    }
    for command in [&["report", "/dev/null"][..], &["export", "/dev/null", "--to", "csv"]] {
        let device = person.run(command);
        let err = text(&device.stderr);
        assert!(
            device.status.code() != Some(0) && err.contains("/dev/null is not a recording of hvtui"),
            "{err}"
        );
    }

    let out = person.run(&["run", "-np", "1", "--", "sh", "-c", "echo one; echo two >&2; echo three"]);
    assert!(out.status.success(), "{out:?}");
    let of = |command: &[&str]| {
        let out = person.run(command);
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let none = "the run has rank 0 alone";
    let (code, out, err) = of(&["export", "last", "--to", "csv", "--ranks", "9"]);
    assert!((code, out.as_str()) == (Some(64), "") && err.contains(&format!("--ranks 9: {none}")), "{err}");
    let (code, _, err) = of(&["logs", "last", "--rank", "0-7"]);
    assert!(code == Some(64) && err.contains(&format!("--rank 7: {none}")), "{err}");
    assert_eq!(of(&["logs", "last", "--rank", "0", "--tail", "1"]).1.lines().count(), 1);
    assert_eq!(of(&["logs", "last", "--stderr"]).1, "[0] two\n");
    assert_eq!(of(&["logs", "last", "--ranks", "0,0-0"]).1.lines().count(), 3);
    let (code, _, err) = of(&["export", "last", "--to", "csv", "-o", "/nowhere/a.csv"]);
    assert!(code == Some(74) && err.contains("/nowhere/a.csv: ") && !err.contains(".part"), "{err}");
    assert_eq!(of(&["export", "last", "--to", "mcap", "-o", "d.mcap"]).0, Some(0));
    for command in [&["report", "d.mcap"][..], &["import", "d.mcap"]] {
        let (code, _, err) = of(command);
        assert!(code == Some(65) && err.contains("`hvtui export --to mcap` writes"), "{code:?} {err}");
    }
    let full = person
        .hvtui(&["report", "last"])
        .stdout(File::options().write(true).open("/dev/full").unwrap())
        .output_in_time();
    assert_eq!(full.unwrap().status.code(), Some(74));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = person.hvtui(&["report", "last"]).stdout(Stdio::from(writer)).output_in_time().unwrap();
    assert_eq!(
        (closed.status.code(), text(&closed.stderr).as_str()),
        (Some(0), ""),
        "a closed pipe is quiet"
    );
    let nowhere = person.run(&["report", "last", "--html", "none/report.html"]);
    assert_eq!(nowhere.status.code(), Some(74), "{nowhere:?}");
}

/// What a run of `script` on four ranks says last, and its report. There is a file `shown` once rank 1's error is.
fn failed(person: &Person, script: &str, error: Option<&str>) -> (Option<i32>, String, String) {
    let (output, shown) = (person.home().join("output"), person.home().join("shown"));
    let read = || text(&std::fs::read(&output).unwrap());
    let file = File::create(&output).unwrap();
    let _ = std::fs::remove_file(&shown);
    let mut run = person.hvtui(&["run", "-np", "4", "--", "sh", "-c", script]);
    let mut run = run.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    if let Some(error) = error {
        until_says(&format!("[1] {error}\n"), read);
        std::fs::write(&shown, "").unwrap();
    }
    let (status, err) = (end_of(&mut run), read());
    let last = err.lines().find(|line| line.starts_with("hvtui: exit ")).unwrap_or(&err).to_owned();
    (status.code(), last, said(&person.run(&["report", "last"])))
}

#[test]
fn the_rank_that_printed_its_error_is_the_cause_though_others_end_first() {
    let person = Person::new(4);
    // the others print behind it and end before it, all of them soon one behind the other
    let script = "if [ $RANK = 1 ]; then
                      echo 'RuntimeError: CUDA error: out of memory' >&2
                      for rank in 0 2 3; do until [ -e is-$rank ]; do sleep 0.01; done; done
                      until [ -e shown ]; do sleep 0.01; done; echo > told
                      for rank in 0 2 3; do while kill -0 $(cat is-$rank) 2>/dev/null; do sleep 0.01; done; done
                      exit 3
                  fi
                  echo $$ > new-$RANK; mv new-$RANK is-$RANK
                  until [ -e told ]; do sleep 0.01; done; echo 'peer gone' >&2; exit 1";
    let error = "RuntimeError: CUDA error: out of memory";
    let (code, last, report) = failed(&person, script, Some(error));
    let cause = "rank 1 (here:1) printed an error first: RuntimeError: CUDA error: out of memory; exit 3; ranks 0, \
                 2-3 failed too";
    assert_eq!(code, Some(3), "{last}");
    assert!(last.ends_with(cause), "{last}");
    assert!(report.contains("first error, rank 1: RuntimeError: CUDA error: out of memory"), "{report}");
    // what does not end by itself is stopped all the same
    let script = "if [ $RANK = 1 ]; then
                      echo 'RuntimeError: no' >&2
                      for rank in 0 2 3; do until [ -e ready-$rank ]; do sleep 0.01; done; done
                      until [ -e shown ]; do sleep 0.01; done; echo > said; exec sleep 600
                  fi
                  echo > ready-$RANK; until [ -e said ]; do sleep 0.01; done; echo 'ConnectionResetError: [Errno 104] Connection reset by peer' >&2; exit 1";
    let (code, last, _) = failed(&person, script, Some("RuntimeError: no"));
    assert_eq!(code, Some(1), "{last}");
    let cause = "rank 1 (here:1) printed an error first: RuntimeError: no; killed by SIGTERM; ranks 0, 2-3 failed too";
    assert!(last.ends_with(cause), "{last}");
}

#[test]
fn a_rank_that_had_ended_before_the_others_failed_is_named() {
    let person = Person::new(4);
    // its exit is written down with its time
    let script = "if [ $RANK = 1 ]; then exit 0; fi
                  until [ -e \"${HVTUI_REPORT%/*}/exit-1.json\" ]; do sleep 0.01; done
                  echo 'peer gone' >&2; exit 1";
    let (code, last, report) = failed(&person, script, None);
    assert_eq!(code, Some(1), "{last}");
    assert!(
        last.contains("failed first: exit 1; rank 1 (here:1) had ended before (exit 0); ranks "),
        "{last}"
    );
    assert!(report.contains("had ended before (exit"), "{report}");
}
