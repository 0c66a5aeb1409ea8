use std::ops::Range;

use super::*;

fn file(path: &str, pid: &str, rank: Option<u32>, steps: Range<u64>) -> TraceFile {
    let step = |number: u64| Step {
        number,
        span: (number as i64 * 1_000, number as i64 * 1_000 + 900),
        is_cut: false,
    };
    let own = Lane { steps: steps.map(step).collect(), ..Lane::default() };
    TraceFile { path: PathBuf::from(path), rank, pid: pid.to_owned(), own, ..TraceFile::default() }
}

/// Moves a file's steps so that the first begins then.
fn at(file: &mut TraceFile, from: i64) {
    let by = from - file.own.steps[0].span.0;
    file.own.steps.iter_mut().for_each(|step| step.span = (step.span.0 + by, step.span.1 + by));
}

/// A file without marks, whose optimizer steps so many times from a moment on.
fn unmarked(path: &str, pid: &str, count: i64, from: i64) -> TraceFile {
    let ends = (0..count).map(|step| (0, (from + step * 1_000, from + step * 1_000 + 100)));
    let own = Lane { optimizer: ends.collect(), ..Lane::default() };
    TraceFile { own, ..file(path, pid, None, 0..0) }
}

fn told(file: &TraceFile) -> Vec<u64> {
    file.own.steps.iter().map(|step| step.number).collect()
}

#[test]
fn steps_of_an_optimizer_do_not_cross_files_and_are_one_run_as_others_are() {
    // two processes, of which one has two files and a copy
    let mut files = [
        unmarked("a1.json", "1", 4, 0),
        unmarked("a2.json", "1", 3, 90_000),
        unmarked("a2.json.gz", "1", 3, 90_000),
        unmarked("b.json", "2", 4, 0),
        unmarked("no_step.json", "3", 1, 0),
    ];
    let ranks = assign(&mut files).unwrap();
    assert_eq!(ranks.of_files, [Some(0), Some(0), Some(0), Some(1), None]);
    assert_eq!(ranks.twice, ["a2.json.gz is the same profile as a2.json"]);
    assert!(ranks.by_optimizer && ranks.anew == 0);
    assert_eq!([0, 1, 2, 3].map(|at| told(&files[at])), [vec![0, 1, 2], vec![3, 4], vec![], vec![0, 1, 2]]);
    assert_eq!(files[0].own.steps[0].span, (100, 1_100), "from one end to the next");
    // two runs
    let mut runs = [unmarked("a.json", "1", 4, 0), unmarked("b.json", "2", 4, 500)];
    for file in &mut runs {
        file.rank = Some(0);
    }
    assert!(assign(&mut runs).unwrap_err().1.contains("both tell step 1 of rank 0"));
    let mut sizes = [unmarked("a.json", "1", 4, 0), unmarked("b.json", "2", 4, 0)];
    (sizes[0].world, sizes[1].world) = (Some(4), Some(2));
    assert!(assign(&mut sizes).unwrap_err().1.contains("it has 2 ranks, that one 4; "));
}

#[test]
fn a_process_that_is_profiled_anew_goes_on_counting() {
    let name = |epoch: i64, profile: i64| format!("vm_7.{epoch}{profile}.pt.trace.json");
    let mut files = Vec::new();
    for epoch in 0..3 {
        for (profile, steps) in [(0, 2..5), (1, 7..9)] {
            let mut file = file(&name(epoch, profile), "7", None, steps);
            at(&mut file, epoch * 100_000 + profile * 10_000);
            files.push(file);
        }
    }
    let ranks = assign(&mut files).unwrap();
    assert_eq!((ranks.of_files, ranks.anew), (vec![Some(0); 6], 2));
    let numbers: Vec<Vec<u64>> = files.iter().map(told).collect();
    let all = [vec![2, 3, 4], vec![7, 8], vec![9, 10, 11], vec![14, 15], vec![16, 17, 18], vec![21, 22]];
    assert_eq!(numbers, all);
    // a run of another process is none of them
    let mut other =
        [file("vm_7.0.pt.trace.json", "7", Some(0), 0..3), file("vm_8.0.pt.trace.json", "8", Some(0), 0..3)];
    at(&mut other[1], 100_000);
    assert!(assign(&mut other).unwrap_err().1.contains("both tell step 1 of rank 0"));
}

#[test]
fn a_file_beside_a_whole_run_makes_no_rank() {
    let mut files: Vec<TraceFile> =
        (0..4).map(|rank| file(&format!("{rank}.json"), "1", Some(rank), 0..3)).collect();
    for file in &mut files {
        file.world = Some(4);
    }
    files.push(file("rank7.json", "7", None, 0..3));
    files.push(file("baseline.json", "9", None, 0..3));
    let ranks = assign(&mut files).unwrap();
    assert_eq!((&ranks.of_files[3..], ranks.numbered), (&[Some(3), None, None][..], 0));
    assert_eq!(ranks.strays, ["baseline.json", "rank7.json"]);
    assert!(files[4].own.steps.is_empty() && files[5].own.steps.is_empty());
    // where one is missing, one is taken
    files.remove(2);
    files.push(file("c.json", "9", None, 0..3));
    assert_eq!(assign(&mut files).unwrap().of_files, [Some(0), Some(1), Some(3), None, None, Some(2)]);
}

#[test]
fn numbers_in_names_are_ranks_where_0_is_among_several() {
    let of = |names: &[&str]| {
        let mut files: Vec<TraceFile> =
            names.iter().zip(1..).map(|(name, pid)| file(name, &format!("{pid}"), None, 0..3)).collect();
        let ranks = assign(&mut files).unwrap();
        (ranks.of_files.into_iter().map(Option::unwrap).collect::<Vec<_>>(), ranks.numbered)
    };
    assert_eq!(of(&["lora_rank16.json"]), (vec![0], 1));
    assert_eq!(of(&["lora_rank16.json", "lora_rank8.json"]), (vec![1, 0], 2));
    assert_eq!(of(&["rank2.json", "rank0.json"]), (vec![2, 0], 0));
    assert_eq!(
        of(&["a_rank0.json", "b_rank0.json", "rank1.json"]),
        (vec![0, 1, 2], 3),
        "0 is none of one run"
    );
}

#[test]
fn ranks_of_one_run_are_at_one_time() {
    let runs = |apart: i64, has_moment: bool| {
        let mut files = [
            file("vm_101.1.pt.trace.json", "101", None, 0..3),
            file("vm_202.2.pt.trace.json", "202", None, 0..3),
        ];
        at(&mut files[1], 2_900 + apart);
        for file in &mut files {
            file.has_moment = has_moment;
        }
        assign(&mut files).map(|ranks| ranks.of_files)
    };
    let two = vec![Some(0), Some(1)];
    assert_eq!([runs(MOST_APART, true), runs(MOST_APART * 99, false)], [Ok(two.clone()), Ok(two)]);
    let (path, words) = runs(86_400_000_000_000, true).unwrap_err();
    assert_eq!(path, Path::new("vm_202.2.pt.trace.json"));
    assert!(words.contains("vm_101.1.pt.trace.json: rank 1 begins "), "{words}");
    assert!(words.contains(" after the end of rank 0; import the files of one run alone"), "{words}");
}

#[test]
fn names_tell_ranks_and_workers() {
    let of = |name: &str| {
        let name = FileName::of(Path::new(name));
        (name.rank, name.worker)
    };
    let worker = |name: &str| Some(name.to_owned());
    assert_eq!(of("log/vm_42.1795808995587854504.pt.trace.json.gz"), (None, worker("vm_42")));
    assert_eq!(
        of("rank-34.Jul_15_10_52_41.1074.pt.trace.json"),
        (Some(34), worker("rank-34.Jul_15_10_52_41"))
    );
    assert_eq!(of("a/trace_Rank_10.json"), (Some(10), None));
    assert_eq!(of("rank_3/trace.json.zst"), (Some(3), None));
    assert_eq!([of("crank3.json").0, of("rank.json").0, of("franks/1.json").0], [None; 3]);
    let path = Path::new("gpu_a_42.17.pt.trace.json");
    assert_eq!((host_of(path, "42"), host_of(path, "7")), (worker("gpu_a"), None));
}

#[test]
fn files_of_one_process_are_one_rank_and_no_number_is_given_twice() {
    let mut files = [
        file("vm_7.1.pt.trace.json", "7", None, 0..3),
        file("vm_7.2.pt.trace.json", "7", None, 5..8),
        file("vm_9.1.pt.trace.json", "9", Some(0), 0..3),
        file("trace_10.json", "4", None, 0..3),
        file("trace_9.json", "4", None, 4..6),
        file("other.json", "5", None, 0..3),
    ];
    let ranks = assign(&mut files).unwrap();
    assert_eq!(ranks.of_files, [3, 3, 0, 2, 2, 1].map(Some));
    assert_eq!((ranks.numbered, ranks.twice.len()), (3, 0));
    let mut named: Vec<TraceFile> =
        (0..12).rev().map(|rank| file(&format!("rank{rank}.json"), "1", None, 0..3)).collect();
    let ranks = assign(&mut named).unwrap();
    assert_eq!(ranks.of_files, (0..12).rev().map(Some).collect::<Vec<_>>());
    assert_eq!(ranks.numbered, 0);
    // what a file says counts for more than the name of another one
    let mut mixed = [file("rank1.json", "1", None, 0..3), file("rank0.json", "2", Some(1), 0..3)];
    assert_eq!(assign(&mut mixed).unwrap().of_files, [Some(0), Some(1)]);
}

#[test]
fn what_is_told_twice_is_taken_once_and_two_runs_are_refused() {
    let mut files = [
        file("rank-0.json", "1", Some(0), 0..3),
        file("rank-0.json.gz", "1", Some(0), 0..4),
        file("rank-1.json.gz", "1", Some(1), 0..4),
    ];
    let ranks = assign(&mut files).unwrap();
    assert_eq!(ranks.twice, ["rank-0.json is the same profile as rank-0.json.gz"]);
    assert_eq!(files.each_ref().map(|file| file.own.steps.len()), [0, 4, 4]);
    let mut again = [file("a.json", "1", Some(0), 0..3), file("b.json", "1", Some(0), 2..5)];
    again[1].own.steps.iter_mut().for_each(|step| step.span.1 += 1_000_000);
    let (path, words) = assign(&mut again).unwrap_err();
    assert_eq!(path, Path::new("b.json"));
    assert!(
        words.starts_with("not of the same run as a.json: both tell step 3 of rank 0, from 1970"),
        "{words}"
    );
    assert!(words.ends_with("import the files of one run alone, or move those of the other one elsewhere"));
    let mut sizes = [file("a.json", "1", Some(0), 0..3), file("b.json", "1", Some(1), 0..3)];
    (sizes[0].world, sizes[1].world) = (Some(4), Some(2));
    assert!(assign(&mut sizes).unwrap_err().1.contains("it has 2 ranks, that one 4; "));
    // started again, it is another process
    let mut processes =
        [file("vm_1.1.pt.trace.json", "1", Some(0), 0..3), file("vm_2.1.pt.trace.json", "2", Some(0), 5..7)];
    assert_eq!(assign(&mut processes).unwrap().anew, 0);
    // both at once it can't be
    at(&mut processes[1], 1_500);
    assert!(assign(&mut processes).unwrap_err().1.contains("rank 0 is another process there at the same"));
    // a name that changes is no other process
    processes[1].pid = "1".to_owned();
    assert!(assign(&mut processes).is_ok());
}
