//! Real dumps of torch 2.9.1 (tests/fixtures/flight/make.py), NCCL's answers, and what is made of both.

use proptest::prelude::*;

use super::*;
use crate::domain::pickle::PickleError;

fn fixture(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/flight/");
    std::fs::read(format!("{path}{name}")).unwrap()
}

fn process(case: &str, rank: u32) -> ProcessCollectives {
    let dump = dump::read(&fixture(&format!("{case}-{rank}.pickle"))).unwrap();
    let (groups, is_whole) = (dump.groups, dump.is_whole);
    ProcessCollectives { rank: Rank(rank), groups, is_whole, ..ProcessCollectives::default() }
}

fn case(case: &str) -> Vec<ProcessCollectives> {
    (0..3).map(|rank| process(case, rank)).collect()
}

fn verdict(told: &[ProcessCollectives]) -> Option<(String, Vec<u32>)> {
    verdict::of(told.iter(), 3).map(|verdict| (verdict.text, verdict.culprits))
}

fn says(told: &[ProcessCollectives], text: &str, culprits: &[u32]) {
    assert_eq!(verdict(told), Some((text.to_owned(), culprits.to_vec())));
}

#[test]
fn a_container_is_known_by_what_starts_it() {
    assert!(is_container("/usr/bin/apptainer") && is_container("--container-image=x"));
    assert!(!is_container("docker.py") && !is_container("python"));
}

#[test]
fn a_dump_of_torch_is_read() {
    let one = process("missing", 0);
    assert!(one.is_whole && one.groups.len() == 1, "{one:?}");
    let group = &one.groups[0];
    assert_eq!((group.name.as_str(), group.description.as_str(), group.last), ("0", "default_pg", 3));
    let last = Call {
        number: 3,
        name: "all_reduce".into(),
        values: Some(1 << 20),
        dtype: "f32".into(),
        ..Call::default()
    };
    assert_eq!(group.calls.last(), Some(&last));
    let ended: Vec<bool> = group.calls.iter().map(|call| call.state == CallState::Done).collect();
    assert_eq!(ended, [true, true, false]);
}

/// Of one rank of a `DistributedDataParallel` by NCCL 2.28.9 on an H200, torch 2.11.0, asked by its pipe while it trained: the host
/// is ahead of the GPU, and what it has put into the stream is scheduled.
#[test]
fn a_dump_of_torch_with_nccl_is_read() {
    let one = process("nccl", 0);
    assert!(one.is_whole && one.groups.len() == 1, "{one:?}");
    let group = &one.groups[0];
    assert_eq!((group.name.as_str(), group.description.as_str()), ("0", "default_pg"));
    let last = group.calls.last().unwrap();
    let told = (last.number, last.name.as_str(), last.values, last.dtype.as_str());
    assert_eq!(told, (105, "all_reduce", Some(16_822_282), "f32"));
    // calls around the first one that has not ended, and the last one
    let ended = group.calls.iter().filter(|call| call.state == CallState::Done).map(|call| call.number).max();
    assert_eq!((ended, group.last), (Some(97), 105), "{group:?}");
}

#[test]
fn ranks_that_agree_are_not_talked_of() {
    assert_eq!(verdict(&case("matched")), None);
    assert_eq!(verdict(&[]), None);
}

#[test]
fn a_rank_that_has_not_come_is_named_with_what_it_is_waited_for() {
    let text = "rank 1 has not come to all_reduce #3 (f32, 1 048 576 values) of the default group; ranks 0, 2 wait in it";
    says(&case("missing"), text, &[1]);
}

#[test]
fn a_rank_that_tells_nothing_is_unknown_and_not_late() {
    let mut told = case("missing");
    let what = "all_reduce #3 (f32, 1 048 576 values) of the default group";
    told.remove(2);
    says(&told, &format!("rank 1 has not come to {what}; rank 0 waits in it; rank 2 is unknown"), &[1]);
    told.remove(1);
    says(&told, &format!("rank 0 waits in {what}; ranks 1-2 are unknown"), &[]);
    told.push(ProcessCollectives { rank: Rank(1), lacks: Some("x".into()), ..ProcessCollectives::default() });
    says(&told, &format!("rank 0 waits in {what}; ranks 1-2 are unknown"), &[]);
}

#[test]
fn a_rank_that_called_something_else_is_named() {
    let text = "rank 2 called broadcast #3 of the default group where ranks 0-1 called all_reduce #3";
    says(&case("differing"), text, &[2]);
    let told = case("differing");
    let two = [told[0].clone(), told[2].clone()];
    let found = verdict::of(two.iter(), 0).unwrap();
    assert_eq!(found.culprits, [0; 0], "of two neither is in the wrong: {}", found.text);
}

#[test]
fn a_rank_that_brought_less_is_named() {
    let text = "rank 1 brought 512 values (f32) to all_gather #3 of the default group, ranks 0, 2 1 024 values (f32)";
    says(&case("sizes"), text, &[1]);
}

#[test]
fn a_rank_that_waits_in_another_group_is_followed_there() {
    let text = "rank 0 has not come to all_reduce #3 (f32, 3 values) of the default group; ranks 1-2 wait in it; \
                rank 0 waits in all_reduce #1 (bf16, 7 values) of group pair";
    says(&case("group"), text, &[0]);
}

#[test]
fn all_that_have_come_are_said_to_be_there() {
    let mut told = case("missing");
    told[1] = ProcessCollectives { rank: Rank(1), ..told[0].clone() };
    let text =
        "all 3 ranks are in all_reduce #3 (f32, 1 048 576 values) of the default group, which does not end";
    says(&told, text, &[]);
    for call in &mut told[0].groups[0].calls {
        call.state = CallState::Done;
    }
    let text =
        "ranks 1-2 wait in all_reduce #3 (f32, 1 048 576 values) of the default group; rank 0 has left it";
    says(&told, text, &[]);
}

#[test]
fn trainings_within_ranks_are_told_apart() {
    // two ranks that start three processes each, as torchrun does
    let within = |rank: u32, worker: u32| ProcessCollectives {
        rank: Rank(rank),
        worker: (worker != rank).then_some(worker),
        ..process("missing", worker)
    };
    let mut told: Vec<ProcessCollectives> = (0..3).map(|worker| within(0, worker)).collect();
    let what = "all_reduce #3 (f32, 1 048 576 values) of the default group; ranks 0, 2 wait in it";
    says(&told, &format!("rank 1 has not come to {what}"), &[1]);
    told.extend((0..3).map(|worker| within(1, worker)));
    says(&told, &format!("within rank 0: rank 1 has not come to {what}"), &[1]);
}

#[test]
fn frames_of_python_stay_in_the_dump() {
    let bytes = fixture("frames-0.pickle");
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has(&bytes, "/srv/demo/train.py") && has(&bytes, "distributed_c10d.py"));
    let told = HostCollectives { processes: vec![process("frames", 0)], ras: None };
    let text = serde_json::to_vec(&told).unwrap();
    for text_of_frame in ["train", "site-packages", ".py", "wrapper", "module"] {
        assert!(!has(&text, text_of_frame), "{}", String::from_utf8_lossy(&text));
    }
    assert_eq!(serde_json::from_slice::<HostCollectives>(&text).unwrap(), told);
}

#[test]
fn what_is_no_dump_is_refused_with_why() {
    assert_eq!(dump::read(b"N.").unwrap_err().to_string(), "no list of entries is in it");
    let refused = dump::read(b"cos\nsystem\n.").unwrap_err();
    assert_eq!(refused, dump::DumpError::Pickle(PickleError::Instruction { code: b'c', at: 0 }));
    let whole = fixture("missing-0.pickle");
    for end in 0..whole.len() {
        assert!(dump::read(&whole[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn only_the_calls_around_the_one_that_is_waited_for_are_told() {
    // the pickle of {"entries": [ … ]} with 5,000 calls of which the last 1,000 have not ended
    let mut bytes = b"\x80\x02}X\x07\0\0\0entries](".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.push(b'X');
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    for number in 1..=5000u32 {
        bytes.extend(b"}(");
        for (key, value) in [("collective_seq_id", number), ("record_id", number + 7)] {
            text(&mut bytes, key);
            bytes.push(b'J');
            bytes.extend(value.to_le_bytes());
        }
        let state = if number <= 4000 { "completed" } else { "started" };
        let name = format!("nccl:all_reduce{}", "\u{1b}".repeat(100));
        for (key, value) in [("state", state), ("profiling_name", name.as_str()), ("process_group", "0")] {
            text(&mut bytes, key);
            text(&mut bytes, value);
        }
        bytes.push(b'u');
    }
    bytes.extend(b"es.");
    let dump = dump::read(&bytes).unwrap();
    assert!(!dump.is_whole);
    let numbers: Vec<u64> = dump.groups[0].calls.iter().map(|call| call.number).collect();
    assert_eq!(numbers, (3997..=4012).chain([5000]).collect::<Vec<_>>());
    assert_eq!(dump.groups[0].last, 5000);
    assert!(
        dump.groups[0].calls[0].name.len() <= 48 && dump.groups[0].calls[0].name.starts_with("all_reduce?")
    );
}

fn ras_words(answer: &str, ranks: u32) -> Option<String> {
    ras::read(answer)?.words(ranks)
}

#[test]
fn nccl_s_answers_are_read_in_each_form() {
    let text = |name| String::from_utf8(fixture(name)).unwrap();
    let json = text("ras.json");
    let short = "rank 1 has launched 62 AllReduce, ranks 0, 2 have launched 63";
    assert_eq!(ras_words(&json, 3).unwrap(), short);
    assert!(ras_words(&json, 8).unwrap().ends_with(" (communicator 0x27a079b828ff1a75 of 3 ranks)"));
    assert_eq!(
        ras_words(&text("ras-2.27.txt"), 3).unwrap(),
        "rank 1 has launched 62 AllReduce, 2 ranks have launched 63 (communicator 27a079b828ff1a75); \
         rank 2 does not answer (communicator 27a079b828ff1a75)"
    );
    assert_eq!(
        ras_words(&text("ras-2.24.txt"), 32).unwrap(),
        "ranks 0, 2 have launched 6649 collectives, 26 ranks have launched 6650 (communicator 27a079b828ff1a75); \
         ranks 5, 7 do not answer (communicator 27a079b828ff1a75)"
    );
    for name in ["ras.json", "ras-2.27.txt", "ras-2.24.txt"] {
        let answer = ras::read(&text(name)).unwrap();
        let told = serde_json::to_string(&answer).unwrap();
        for private in ["gpu-a", "4711", "172.16", "4830"] {
            assert!(!told.contains(private), "{told}");
        }
    }
    assert_eq!(ras_words(&json.replace("62", "63"), 3), None, "all have launched the same");
    assert_eq!(ras::read("HTTP/1.1 400 Bad Request\r\n"), None);
    assert_eq!(ras::read("{\"communicators\": 5}"), None);
}

#[test]
fn what_a_process_told_stays_when_it_has_ended() {
    let mut collected = Collected::default();
    let host = HostId::from("a");
    let told = HostCollectives { processes: case("missing"), ras: None };
    collected.take(Stamp(0), &host, told.clone(), 3);
    let words = collected.words().to_vec();
    assert_eq!(words.len(), 1);
    let lacks = ProcessCollectives { lacks: Some("x".into()), ..ProcessCollectives::default() };
    let later = HostCollectives { processes: vec![lacks, told.processes[1].clone()], ras: None };
    collected.take(Stamp(100_000_000), &host, later, 3);
    assert_eq!(collected.words(), words);
    let matched = HostCollectives { processes: case("matched"), ras: None };
    collected.take(Stamp(200_000_000), &host, matched, 3);
    assert!(collected.words().is_empty());
}

#[test]
fn answers_of_an_earlier_moment_are_left_out() {
    let mut collected = Collected::default();
    let host = |name: &str| HostId::from(name);
    let told = |ranks: &[u32]| HostCollectives {
        processes: ranks.iter().map(|rank| process("missing", *rank)).collect(),
        ras: None,
    };
    collected.take(Stamp(0), &host("a"), told(&[1]), 3);
    collected.take(Stamp(1_000_000), &host("b"), told(&[0, 2]), 3);
    assert!(collected.words()[0].starts_with("rank 1 has not come to "), "{:?}", collected.words());
    collected.take(Stamp(60_000_000), &host("b"), told(&[0, 2]), 3);
    assert!(collected.words()[0].ends_with("; rank 1 is unknown"), "{:?}", collected.words());
}

proptest! {
    #[test]
    fn garbage_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in 0usize..1000,
        members in "[0-9, -]{0,40}",
    ) {
        let _ = dump::read(&bytes);
        // a real one with some bytes changed
        let mut whole = fixture("group-0.pickle");
        let at = at % whole.len();
        let end = (at + bytes.len() % 4).min(whole.len());
        for (byte, other) in whole[at..end].iter_mut().zip(&bytes) {
            *byte = *other;
        }
        let read = dump::read(&whole).unwrap_or_default();
        let mut told = case("group");
        told[0].groups = read.groups;
        if let Some(group) = told[1].groups.first_mut() {
            group.members = members;
        }
        let _ = verdict(&told);
        let _ = ras::read(&String::from_utf8_lossy(&bytes));
    }
}
