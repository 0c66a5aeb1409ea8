//! Whose the files of torch's profiler are: several of a process, of several runs, and without a rank.

use flate2::Compression;
use flate2::write::GzEncoder;
use hvtui::record::Reader;
use serde_json::{Value, json};

use super::folders::{put, refused, trace};
use super::{imported, left_out, steps, why};
use crate::local_runs::Person;

fn ranks_of_files(told: &Value) -> Vec<Option<u64>> {
    told["files"].as_array().unwrap().iter().map(|file| file["rank"].as_u64()).collect()
}

#[test]
fn a_schedule_that_repeats_is_one_rank_with_all_its_steps() {
    let person = Person::new(1);
    put(person.home(), "log/vm_42.17000.pt.trace.json", trace(42, 2..5, 0, None).to_string());
    put(person.home(), "log/vm_42.18000.pt.trace.json", trace(42, 7..9, 500, None).to_string());
    let told = imported(&person, &["log", "-o", "one.mcap"]);
    assert_eq!((&told["ranks"], &told["told_ranks"]), (&1.into(), &1.into()), "{told:#}");
    assert_eq!(told["steps"], json!({ "first": 3, "last": 9, "count": 5, "with_waits": 0 }));
    let reader = Reader::open(&person.home().join("one.mcap")).unwrap();
    assert_eq!(steps(&reader).len(), 5);
    assert_eq!(reader.spec().unwrap().placements[0].host.as_str(), "vm", "the file's name tells it");
    // a tutorial's names: one process, so one rank
    put(person.home(), "tut/trace_9.json", trace(42, 2..5, 0, None).to_string());
    put(person.home(), "tut/trace_10.json", trace(42, 7..9, 500, None).to_string());
    assert_eq!(imported(&person, &["tut", "-o", "tut.mcap"])["ranks"], 1);
}

#[test]
fn names_tell_ranks_and_numbers_that_others_claim_are_not_given() {
    let person = Person::new(1);
    for rank in 0..12_u64 {
        put(person.home(), &format!("log/rank{rank}.json"), trace(100 + rank, 0..2, 0, None).to_string());
    }
    let told = imported(&person, &["log", "-o", "named.mcap"]);
    assert_eq!(told["ranks"], 12);
    assert_eq!(ranks_of_files(&told), (0..12).map(Some).collect::<Vec<_>>());
    assert_eq!(left_out(&told, "ranks that no file tells"), None);
    let all = steps(&Reader::open(&person.home().join("named.mcap")).unwrap());
    assert!(all.iter().all(|((rank, _), timing)| timing.dur_us == 9_100 + rank.0), "{all:?}");
    // some tell their rank, one does not
    for (name, info) in [("a.json", None), ("b.json", Some((0, 3))), ("c.json", Some((1, 3)))] {
        let pid = u64::from(name.as_bytes()[0]);
        put(person.home(), &format!("mixed/{name}"), trace(pid, 0..2, 0, info).to_string());
    }
    let told = imported(&person, &["mixed", "-o", "mixed.mcap"]);
    assert_eq!(ranks_of_files(&told), [Some(2), Some(0), Some(1)]);
    assert_eq!((&told["ranks"], left_out(&told, "ranks that no file tells")), (&3.into(), Some(1)));
}

#[test]
fn the_same_profile_twice_is_taken_once_and_two_runs_are_refused() {
    let person = Person::new(1);
    let text = trace(1, 0..3, 0, Some((0, 1))).to_string();
    put(person.home(), "twice/rank-0.json", &text);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
    put(person.home(), "twice/rank-0.json.gz", packer.finish().unwrap());
    let told = imported(&person, &["twice", "-o", "twice.mcap"]);
    assert_eq!((&told["steps"]["count"], left_out(&told, "files told twice")), (&3.into(), Some(1)));
    assert_eq!(why(&told, "files told twice"), "rank-0.json.gz is the same profile as rank-0.json");
    assert_eq!(steps(&Reader::open(&person.home().join("twice.mcap")).unwrap()).len(), 3);
    // a run of two ranks, and one of one rank behind it
    put(person.home(), "runs/vm_1.1.pt.trace.json", trace(1, 0..3, 0, Some((0, 2))).to_string());
    put(person.home(), "runs/vm_2.1.pt.trace.json", trace(2, 0..3, 0, Some((1, 2))).to_string());
    put(person.home(), "runs/vm_3.1.pt.trace.json", trace(3, 0..3, 90_000, Some((0, 1))).to_string());
    let words = refused(&person, &["runs"]);
    let other =
        "vm_3.1.pt.trace.json: not of the same run as runs/vm_1.1.pt.trace.json: it has 1 rank, that one 2; ";
    assert!(words.contains(other), "{words}");
    assert!(words.contains("import the files of one run alone, or move those of the other one"), "{words}");
    // and of as many ranks
    put(person.home(), "runs/vm_3.1.pt.trace.json", trace(3, 0..3, 90_000, Some((0, 2))).to_string());
    let words = refused(&person, &["runs"]);
    let both =
        "both tell step 1 of rank 0, from 2026-10-01T12:17:07.000Z and from 2026-10-01T12:18:37.000Z on; ";
    assert!(words.contains(both), "{words}");
    imported(&person, &["runs/vm_1.1.pt.trace.json", "runs/vm_2.1.pt.trace.json", "-o", "first.mcap"]);
}

#[test]
fn a_profiler_that_is_made_anew_in_each_epoch_is_one_run() {
    let person = Person::new(1);
    for epoch in 0..3 {
        let text = trace(42, 1..4, epoch * 3_600_000, None).to_string();
        put(person.home(), &format!("log/vm_42.{}.pt.trace.json", 17_000 + epoch), text);
    }
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!(told["steps"], json!({ "first": 2, "last": 10, "count": 9, "with_waits": 0 }), "{told:#}");
    assert_eq!(left_out(&told, "profiles whose steps are numbered onwards"), Some(2));
    assert_eq!(steps(&Reader::open(&person.home().join("log.mcap")).unwrap()).len(), 9);
}

/// A trace whose steps the optimizer alone tells.
fn unmarked(pid: u64, at_ms: u64, info: Option<(u32, u32)>) -> String {
    let text = trace(pid, 0..4, at_ms, info).to_string();
    (0..4).fold(text, |text, step| text.replace(&format!("ProfilerStep#{step}"), "Optimizer.step#SGD.step"))
}

#[test]
fn files_without_marks_are_of_one_run_as_those_with_marks_are() {
    let person = Person::new(1);
    put(person.home(), "two/a.json", unmarked(1, 0, Some((0, 2))));
    put(person.home(), "two/b.json", unmarked(2, 0, Some((1, 4))));
    assert!(
        refused(&person, &["two"]).contains("not of the same run as two/a.json: it has 4 ranks, that one 2")
    );
    // two processes, and one of them twice
    let text = unmarked(1, 0, None);
    put(person.home(), "log/x.json", &text);
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
    put(person.home(), "log/x.json.gz", packer.finish().unwrap());
    put(person.home(), "log/y.json", unmarked(2, 0, None));
    put(person.home(), "log/z.json", unmarked(2, 60_000, None));
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!(ranks_of_files(&told), [Some(0), Some(0), Some(1), Some(1)], "{told:#}");
    assert_eq!((&told["ranks"], left_out(&told, "files told twice")), (&2.into(), Some(1)));
    let all = steps(&Reader::open(&person.home().join("log.mcap")).unwrap());
    // no step lasts from one file to the next
    assert!(all.len() == 9 && all.values().all(|timing| timing.dur_us == 10_000), "{all:?}");
    assert_eq!(told["steps"]["count"], 6);
}

#[test]
fn a_file_beside_the_ranks_of_a_run_is_left_out_and_named() {
    let person = Person::new(1);
    for rank in 0..4 {
        put(
            person.home(),
            &format!("log/{rank}.json"),
            trace(u64::from(rank), 0..3, 0, Some((rank, 4))).to_string(),
        );
    }
    put(person.home(), "log/baseline.json", trace(9, 0..3, 0, None).to_string());
    let told = imported(&person, &["log", "-o", "log.mcap"]);
    assert_eq!((&told["ranks"], &told["told_ranks"]), (&4.into(), &4.into()), "{told:#}");
    assert_eq!(
        why(&told, "files of none of the ranks"),
        "the others are of all ranks of the run: baseline.json"
    );
}

#[test]
fn two_runs_of_one_process_each_are_not_two_ranks() {
    let person = Person::new(1);
    put(person.home(), "log/vm_101.1.pt.trace.json", trace(101, 0..3, 0, None).to_string());
    put(person.home(), "log/vm_202.2.pt.trace.json", trace(202, 0..3, 86_400_000, None).to_string());
    let words = refused(&person, &["log"]);
    let apart = "vm_202.2.pt.trace.json: not of the same run as log/vm_101.1.pt.trace.json: rank 1 begins ";
    assert!(words.contains(apart), "{words}");
}

#[test]
fn a_refusal_names_its_own_file_and_no_cut() {
    let person = Person::new(1);
    let text = trace(1, 0..3, 0, Some((0, 2))).to_string();
    put(person.home(), "two/a.json", &text[..text.len() - 40]);
    put(person.home(), "two/b.json", trace(2, 0..3, 0, Some((1, 4))).to_string());
    let words = refused(&person, &["two"]);
    assert!(words.starts_with("hvtui: two/b.json: not of the same run as two/a.json: "), "{words}");
    assert!(!words.contains("read up to byte"), "{words}");
}
