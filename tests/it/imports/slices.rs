//! Chrome traces of other programs: JAX and viztracer wrote the files; which slices are steps is found, or said.

use serde_json::{Value, json};

use super::{fixture, imported, left_out, said, steps};
use crate::local_runs::Person;
use hvtui::domain::ids::Rank;
use hvtui::domain::timing::{Phase, StepTiming};
use hvtui::record::Reader;

fn spent(timing: &StepTiming, phase: Phase) -> u32 {
    timing.spans.iter().filter(|span| span.phase == phase).map(|span| span.dur_us).sum()
}

fn recording(told: &Value) -> Reader {
    Reader::open(std::path::Path::new(told["recording"].as_str().unwrap())).unwrap()
}

/// `jax.profiler` of JAX 0.10 on a CPU: five `StepTraceAnnotation("train", step_num=i)`, in each a `TraceAnnotation("load_batch")`.
#[test]
fn a_trace_of_jax_has_the_steps_that_it_annotates() {
    let person = Person::new(1);
    let told = imported(&person, &[&fixture("jax.trace.json.gz")]);
    assert_eq!(
        (&told["format"], &told["ranks"], &told["steps"]["count"]),
        (&"slices".into(), &1.into(), &5.into())
    );
    assert_eq!((&told["steps"]["first"], left_out(&told, "steps numbered from 1")), (&1.into(), Some(5)));
    let steps = steps(&recording(&told));
    assert_eq!(steps.len(), 5);
    let first = &steps[&(Rank(0), 1)];
    assert_eq!((first.dur_us, spent(first, Phase::Data)), (2_645, 2_099));
}

/// viztracer 1.1.1 of a program whose functions have the names of phases: `train_step (/home/ann/train.py:6)`.
#[test]
fn the_functions_that_viztracer_saw_are_steps_and_phases() {
    let person = Person::new(1);
    let file = fixture("viztracer.json");
    let told = imported(&person, &[&file]);
    assert_eq!((&told["steps"]["count"], &told["steps"]["last"]), (&10.into(), &10.into()));
    let steps = steps(&recording(&told));
    for timing in steps.values() {
        assert!(spent(timing, Phase::Data) > 1_000 && spent(timing, Phase::Forward) > 3_000, "{timing:?}");
        assert!(
            spent(timing, Phase::Backward) > 4_000 && spent(timing, Phase::Optimizer) > 1_000,
            "{timing:?}"
        );
        assert_eq!(spent(timing, Phase::Transfer) + timing.hidden_us, 0);
        assert!(timing.spans.iter().map(|span| span.dur_us).sum::<u32>() <= timing.dur_us);
    }
    // what was meant is said where it is not what was found
    let by_name = imported(&person, &[&file, "--step", "forward"]);
    assert_eq!((&by_name["steps"]["count"], &by_name["format"]), (&10.into(), &"slices".into()));
    let report = said(&person.run(&["report", by_name["run"].as_str().unwrap()]));
    assert!(report.contains("Steps: 10"), "{report}");
}

#[test]
fn a_trace_whose_step_is_not_found_names_its_slices() {
    let person = Person::new(1);
    let slice =
        |name: &str, ts: u32| json!({"ph": "X", "name": name, "ts": ts, "dur": 5, "pid": 1, "tid": 1});
    let events = json!([slice("work 1", 0), slice("work 2", 10), slice("rest", 20)]);
    std::fs::write(person.home().join("own.json"), events.to_string()).unwrap();
    let refused = |args: &[&str]| {
        let out = person.run(&[&["import", "own.json"], args].concat());
        assert_eq!(out.status.code(), Some(65), "{out:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let words = refused(&[]);
    assert!(
        words.contains(
            "say by `--step NAME` which of its slices is the step: `work` (2 times), `rest` (1 time)"
        ),
        "{words}"
    );
    let words = refused(&["--step", "wrok"]);
    assert!(words.contains("a trace without a slice that is called `wrok`: `work` (2 times)"), "{words}");
    let unset = person.run(&["import", "own.json", "--step", ""]);
    assert_eq!(unset.status.code(), Some(64), "{unset:?}");
    assert!(String::from_utf8(unset.stderr).unwrap().contains("the name of the step is empty"));
    let told = imported(&person, &["own.json", "--step", "work"]);
    assert_eq!((&told["steps"]["first"], &told["steps"]["last"]), (&1.into(), &2.into()));
    let horovod = person.run(&["import", &fixture("horovod.json"), "--step", "work"]);
    let words = String::from_utf8(horovod.stderr).unwrap();
    assert!(words.contains("a horovod trace, which tells its steps itself: leave out `--step`"), "{words}");
}

fn slice(name: &str, ts: u32, dur: u32, tid: u32) -> Value {
    json!({"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid})
}

#[test]
fn numbers_go_on_over_epochs_and_what_is_no_step_of_its_thread_is_told() {
    let person = Person::new(1);
    let mut events: Vec<Value> = (0..6)
        .map(|at| {
            let mut step = slice("train_step", at * 100, 90, 1);
            step["args"] = json!({"step": at % 3});
            step
        })
        .collect();
    // the same function within itself, an end of nothing, a loop around all, another thread's work
    events.extend([slice("train_step", 310, 20, 1), slice("train_with_dataloader", 0, 600, 1)]);
    events.extend([slice("load_batch", 10, 30, 1), slice("load_batch", 10, 500, 2)]);
    events.push(json!({"ph": "E", "ts": 5, "pid": 1, "tid": 1}));
    events.push(json!({"ph": "B", "name": "forward", "ts": 50, "pid": 1, "tid": 1}));
    std::fs::write(person.home().join("epochs.json"), Value::from(events).to_string()).unwrap();
    let told = imported(&person, &["epochs.json"]);
    assert_eq!((&told["steps"]["count"], &told["steps"]["last"]), (&6.into(), &6.into()));
    for (what, count) in [
        ("steps numbered onwards", 3),
        ("steps within a step", 1),
        ("phases on threads without a step", 1),
        ("steps and phases without an end", 1),
        ("steps numbered from 1", 6),
    ] {
        assert_eq!(left_out(&told, what), Some(count), "{what}: {told:#}");
    }
    let steps = steps(&recording(&told));
    assert_eq!(
        (spent(&steps[&(Rank(0), 1)], Phase::Data), spent(&steps[&(Rank(0), 2)], Phase::Data)),
        (30, 0)
    );
}

#[test]
fn in_a_folder_they_count_where_there_is_nothing_else() {
    let person = Person::new(1);
    let folder = person.home().join("logs");
    std::fs::create_dir(&folder).unwrap();
    let label = |rank: u32| {
        let args = json!({"name": format!("rank {rank}")});
        json!({"ph": "M", "name": "process_name", "pid": 1, "args": args})
    };
    for (file, rank) in [("a.json", 1), ("b.json", 0)] {
        let events =
            json!([label(rank), slice("step", 10 + rank, 5, 1), slice("step", 20 + rank, 6 + rank, 1)]);
        std::fs::write(folder.join(file), events.to_string()).unwrap();
    }
    let told = imported(&person, &["logs"]);
    assert_eq!((&told["ranks"], left_out(&told, "ranks that no file tells")), (&2.into(), None));
    assert_eq!(steps(&recording(&told))[&(Rank(1), 2)].dur_us, 7);
    // two threads with steps in one of several files
    let both = json!([slice("step", 10, 5, 1), slice("step", 10, 5, 2)]);
    std::fs::write(folder.join("c.json"), both.to_string()).unwrap();
    let out = person.run(&["import", "logs"]);
    let words = String::from_utf8(out.stderr).unwrap();
    assert!(words.contains("c.json: 2 threads of it have steps: import it by itself"), "{words}");
    // of Horovod's timeline beside them they are left out
    std::fs::remove_file(folder.join("c.json")).unwrap();
    std::fs::copy(fixture("horovod.json"), folder.join("horovod.json")).unwrap();
    let told = imported(&person, &["logs"]);
    assert_eq!(
        (&told["format"], left_out(&told, "traces that can't be taken together")),
        (&"horovod".into(), Some(2))
    );
    let told = imported(&person, &["logs", "--step", "step"]);
    assert_eq!((&told["format"], &told["ranks"]), (&"slices".into(), &2.into()));
    // two sessions of JAX's profiler
    for session in ["2026_01_01", "2026_01_02"] {
        let folder = person.home().join("jax/plugins/profile").join(session);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::copy(fixture("jax.trace.json.gz"), folder.join("vm.trace.json.gz")).unwrap();
    }
    let out = person.run(&["import", "jax"]);
    let words = String::from_utf8(out.stderr).unwrap();
    assert!(words.contains("2026_01_01: import the folder of one session"), "{words}");
    let told = imported(&person, &["jax/plugins/profile/2026_01_02"]);
    assert_eq!(told["steps"]["count"], 5);
}

/// Threads of one file, and files, are ranks; of a file that is cut the last step is left out, for its phases may be missing.
#[test]
fn ranks_are_processes_or_files() {
    let person = Person::new(1);
    let of = |pid: u32, late: u32| {
        (0..4).flat_map(move |step| {
            let at = step * 100 + late;
            [
                json!({"ph": "B", "name": format!("step {}", step + 5), "ts": at, "pid": pid, "tid": 1}),
                json!({"ph": "B", "name": "hvd.allreduce", "ts": at + 10, "pid": pid, "tid": 1}),
                json!({"ph": "E", "ts": at + 30, "pid": pid, "tid": 1}),
                json!({"ph": "E", "ts": at + 90, "pid": pid, "tid": 1}),
            ]
        })
    };
    let name = |pid: u32, rank: u32| json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": format!("worker rank {rank}")}});
    let both: Vec<Value> = of(7, 3).chain(of(8, 0)).chain([name(7, 0), name(8, 1)]).collect();
    let text = Value::from(both).to_string();
    std::fs::write(person.home().join("both.json"), &text).unwrap();
    let told = imported(&person, &["both.json"]);
    assert_eq!((&told["ranks"], left_out(&told, "ranks that no file tells")), (&2.into(), None));
    assert_eq!((&told["steps"]["first"], &told["steps"]["last"]), (&5.into(), &8.into()));
    let both = steps(&recording(&told));
    assert_eq!((both.len(), spent(&both[&(Rank(1), 5)], Phase::Transfer)), (8, 20));
    assert_eq!(both[&(Rank(0), 5)].start.0, both[&(Rank(1), 5)].start.0 + 3);
    for (file, pid) in [("rank0.json", 7), ("rank1.json", 8)] {
        std::fs::write(person.home().join(file), Value::from(of(pid, 0).collect::<Vec<_>>()).to_string())
            .unwrap();
    }
    let told = imported(&person, &["rank0.json", "rank1.json"]);
    assert_eq!((&told["ranks"], &told["told_ranks"]), (&2.into(), &2.into()));
    let cut = text.find("step 8").unwrap();
    std::fs::write(person.home().join("cut.json"), &text[..cut]).unwrap();
    let told = imported(&person, &["cut.json"]);
    assert_eq!((&told["steps"]["last"], told["files"][0]["cut"].is_object()), (&6.into(), true));
}
