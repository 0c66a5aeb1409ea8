use super::*;

const MS: u64 = 1_000_000;

fn timing(comm: u64, func: &str, seq: u64, (comm_rank, ranks): (u32, u32), dur_ns: u64) -> CollectiveTiming {
    CollectiveTiming {
        comm: CommId(comm),
        ranks,
        comm_rank,
        func: func.to_owned(),
        seq,
        bytes: 25 << 20,
        datatype: "Float32".to_owned(),
        t: Some(HostTime(seq.saturating_mul(2_500))),
        dur_ns,
        gpu_ns: None,
        every: 1,
        lost: 0,
    }
}

/// `count` collectives of four ranks, in which the one with number `late` of the communicator comes `wait_ns` later.
fn run(count: u64, late: u32, wait_ns: u64) -> NcclTimings {
    let mut timings = NcclTimings::default();
    for seq in 0..count {
        for comm_rank in 0..4 {
            let dur = MS + if comm_rank == late { 0 } else { wait_ns + u64::from(comm_rank) };
            // the ranks of the run are other ones than those of the communicator
            timings.take(Rank(comm_rank + 4), &timing(7, "AllReduce", seq, (comm_rank, 4), dur));
        }
    }
    timings
}

#[test]
fn who_takes_least_comes_last() {
    let timings = run(60, 2, 2 * MS);
    let pace = timings.pace().unwrap();
    assert_eq!(
        (pace.of, pace.dur_ns, pace.bytes, pace.per_second),
        (WINDOW, MS, 25 << 20, Some(400.0)),
        "{pace:?}"
    );
    assert_eq!(pace.late, Some(LateRank { rank: Rank(6), late_in: 50, wait_ns: 2 * MS + 1 }));
    let where_is = |rank: Rank| (rank == Rank(6)).then(|| "b:1".to_owned());
    assert_eq!(
        timings.sentence(where_is).unwrap(),
        "NCCL: 400 AllReduce/s of 25 M, 1.0 ms each; rank 6 (b:1) comes last in 50 of 50, the others wait 2.0 ms"
    );
    assert_eq!(timings.short().unwrap(), "NCCL: rank 6 comes last, others wait 2.0 ms");
}

#[test]
fn what_was_called_at_the_start_alone_is_not_the_pace_for_ever() {
    let mut timings = NcclTimings::default();
    let mut take = |func: &str, seq: u64, t: u64, dur| {
        for comm_rank in 0..4 {
            let timing =
                CollectiveTiming { t: Some(HostTime(t)), ..timing(7, func, seq, (comm_rank, 4), dur) };
            timings.take(Rank(comm_rank), &timing);
        }
    };
    // sixteen in 80 ms, 5 ms each; then 400 a second of 1 ms
    (0..16).for_each(|seq| take("Broadcast", seq, seq * 5_000, 5 * MS));
    (0..1000).for_each(|seq| take("AllReduce", seq, 100_000 + seq * 2_500, MS));
    assert_eq!(timings.pace().unwrap().func, "AllReduce");
}

#[test]
fn a_rank_that_is_last_by_chance_or_by_little_is_not_named() {
    assert_eq!(run(9, 2, 2 * MS).pace().unwrap().late, None, "too few");
    assert_eq!(run(60, 2, 19_000).pace().unwrap().late, None, "too little");
    assert_eq!(run(60, 2, 51_000).pace().unwrap().late.map(|late| late.rank), Some(Rank(6)));
    let mut timings = NcclTimings::default();
    for seq in 0..60 {
        for comm_rank in 0..4 {
            let dur = if u64::from(comm_rank) == seq % 4 { MS } else { 3 * MS };
            timings.take(Rank(comm_rank), &timing(7, "AllReduce", seq, (comm_rank, 4), dur));
        }
    }
    let said = timings.sentence(|_| None).unwrap();
    assert_eq!(said, "NCCL: 400 AllReduce/s of 25 M, 1.0 ms each; no rank comes late");
}

#[test]
fn functions_and_communicators_are_apart_and_the_one_that_takes_most_time_is_told() {
    let mut timings = run(60, 1, 2 * MS);
    for seq in 0..60 {
        for comm_rank in 0..2 {
            // the numbers of each function begin anew
            timings.take(Rank(comm_rank), &timing(7, "AllGather", seq, (comm_rank, 2), 20 * MS));
            timings.take(Rank(comm_rank), &timing(9, "AllReduce", seq, (comm_rank, 2), 30_000));
        }
    }
    let pace = timings.pace().unwrap();
    assert_eq!((pace.func.as_str(), pace.dur_ns, pace.late), ("AllGather", 20 * MS, None));
}

#[test]
fn what_not_all_ranks_have_told_is_not_judged() {
    let mut timings = NcclTimings::default();
    for seq in 0..1000 {
        timings.take(Rank(0), &timing(7, "AllReduce", seq, (0, 2), MS));
    }
    assert_eq!(timings.sentence(|_| None).unwrap(), "NCCL: 400 AllReduce/s, not told by all of its 2 ranks");
    assert!(timings.parts <= OPEN);
    // the other one tells each second
    for seq in (950..1000).step_by(2) {
        timings.take(Rank(1), &timing(7, "AllReduce", seq, (1, 2), 3 * MS));
    }
    let late = timings.pace().unwrap().late;
    assert_eq!(late.map(|late| (late.rank, late.late_in)), Some((Rank(0), 25)));
}

#[test]
fn memory_is_bounded_whatever_is_told() {
    let mut timings = NcclTimings::default();
    for comm in 0..100 {
        for seq in 0..200 {
            for comm_rank in 0..30 {
                let mut told = timing(comm, "AllReduce", seq, (comm_rank, 1000), MS);
                told.lost = u64::from(seq == 0 && comm_rank == 0);
                timings.take(Rank(comm_rank), &told);
            }
        }
        let counted: usize = timings.groups.values().map(Group::parts).sum();
        assert!(counted == timings.parts && counted <= PARTS && timings.groups.len() <= GROUPS);
    }
    assert_eq!(timings.lost(), 100);
    for nonsense in [
        timing(1, "X", u64::MAX, (0, u32::MAX), 1),
        timing(1, "X", u64::MAX, (5, 5), 1),
        timing(1, "X", u64::MAX, (0, 0), 1),
        timing(1, "X", u64::MAX, (0, 1), 0),
    ] {
        timings.take(Rank(0), &nonsense);
    }
    timings.take(Rank(0), &timing(1, &"long".repeat(100), u64::MAX, (0, 1), u64::MAX));
    assert!(timings.groups.keys().all(|(_, func)| func.len() <= NAME));
}

#[test]
fn a_line_says_what_it_says_and_may_leave_things_out() {
    let whole = timing(0xab, "AllReduce", 3, (1, 2), 5);
    let text = serde_json::to_string(&whole).unwrap();
    assert!(
        text.starts_with(r#"{"comm":"00000000000000ab","ranks":2,"comm_rank":1,"func":"AllReduce","#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<CollectiveTiming>(&text).unwrap(), whole);
    let least = r#"{"comm":"ab","ranks":2,"comm_rank":1,"func":"AllReduce","seq":3,"dur_ns":5}"#;
    let least: CollectiveTiming = serde_json::from_str(least).unwrap();
    assert_eq!((least.comm, least.every, least.t), (CommId(0xab), 1, None));
    assert!(serde_json::from_str::<CommId>(r#""no""#).is_err());
}
