use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::domain::fixtures::{host_run, rank_spec};
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{MinFree, Spool};

const MIB: u64 = 1 << 20;

fn held(sizes: [u64; 3]) -> [Held; 3] {
    sizes.map(|to| Held { from: 0, to })
}

#[test]
fn a_flood_on_one_stream_takes_nothing_from_the_others() {
    assert_eq!(keep(held([5, 3, 8]), 16), [0; 3]);
    let [out, err, report] = keep(held([100 * MIB, 2 * MIB, MIB]), 16 * MIB);
    assert_eq!((err, report), (0, 0));
    assert_eq!(out, 100 * MIB - 12 * MIB);
    let [out, err, report] = keep(held([100 * MIB, 50 * MIB, MIB]), 16 * MIB);
    assert_eq!((out, err, report), (93 * MIB, 43 * MIB, 0));
}

proptest! {
    #[test]
    fn what_is_kept_fits_and_each_end_stays(
        sizes in prop::array::uniform3(0u64..1 << 33),
        begun in prop::array::uniform3(0u64..1 << 14),
        cap in MIB..1 << 30,
    ) {
        let mut before = held(sizes);
        for (held, begun) in before.iter_mut().zip(begun) {
            held.from = (begun * BLOCK).min(held.to / BLOCK * BLOCK);
        }
        let kept = keep(before, cap);
        let mut sum = 0;
        let over = before.iter().map(|held| held.bytes()).sum::<u64>() > cap;
        for (held, from) in before.iter().zip(kept) {
            prop_assert!(from >= held.from && from <= held.to);
            prop_assert!(from == held.from || from % BLOCK == 0);
            prop_assert!(from == held.from || held.to - from >= cap / 16, "a cut stays well before the end");
            sum += held.to - from;
        }
        prop_assert!(sum <= cap);
        prop_assert!(!over || sum + cap / 4 > cap, "no more is cut than must be");
        let after: Vec<Held> =
            before.iter().zip(kept).map(|(held, from)| Held { from, to: held.to }).collect();
        prop_assert_eq!(keep([after[0], after[1], after[2]], cap), kept, "one cut is enough");
    }
}

#[test]
fn the_faster_files_grow_the_sooner_it_looks() {
    let mut interval = TrimInterval::among(1);
    let at = |ms: u64| HostTime(ms * 1000);
    let room = 1000 * MIB;
    assert_eq!(interval.next(Grown { by: 0, room }, at(0)), TrimInterval::GROWING);
    assert_eq!(interval.next(Grown { by: 10, room }, at(50)), TrimInterval::GROWING);
    // 20 MiB a ms, 800 MiB of room
    assert_eq!(interval.next(Grown { by: 1000 * MIB, room: 800 * MIB }, at(100)), Duration::from_millis(20));
    assert_eq!(interval.next(Grown { by: 900 * MIB, room: 0 }, at(150)), TrimInterval::SHORTEST);
    let waits: Vec<_> = (1..40).map(|i| interval.next(Grown { by: 0, room }, at(150 + i))).collect();
    assert_eq!((waits[0], waits[38]), (TrimInterval::GROWING, TrimInterval::QUIET));
}

#[test]
fn a_small_cap_is_looked_at_before_a_sudden_flood_could_fill_it() {
    let mut interval = TrimInterval::among(1);
    let waits: Vec<_> =
        (0..40).map(|i| interval.next(Grown { by: 0, room: 40_000_000 }, HostTime(i))).collect();
    assert_eq!((waits[0], waits[39]), (Duration::from_millis(10), Duration::from_millis(10)));
    assert_eq!(interval.next(Grown { by: 1, room: 20_000_000 }, HostTime(50_000)), Duration::from_millis(5));
    assert_eq!(interval.next(Grown { by: 0, room: MIB }, HostTime(60_000)), TrimInterval::SHORTEST);
}

#[test]
fn a_host_with_many_ranks_is_not_kept_busy_by_looks_at_them() {
    let floods = |ranks| TrimInterval::among(ranks).next(Grown { by: 900 * MIB, room: 0 }, HostTime(1));
    assert_eq!((floods(1), floods(8)), (TrimInterval::SHORTEST, TrimInterval::SHORTEST));
    assert_eq!((floods(100), floods(5000)), (Duration::from_millis(25), TrimInterval::GROWING));
}

#[test]
fn what_came_between_two_looks_is_kept_free_below_the_cap_for_a_while() {
    let mut peak = PeakGrowth::default();
    assert_eq!(peak.limit(0, 256), 256);
    assert_eq!(peak.limit(100 * MIB, 256 * MIB), 156 * MIB);
    assert_eq!(peak.limit(900 * MIB, 256 * MIB), 64 * MIB, "a quarter is kept however fast it prints");
    let later: Vec<u64> = (0..2000).map(|_| peak.limit(MIB, 256 * MIB) / MIB).collect();
    assert!(later[10] < 80 && later[1999] > 250, "{later:?}");
}

#[test]
fn files_are_cut_while_they_grow_and_their_end_is_whole() {
    let state = tempfile::tempdir().unwrap();
    let (run, host) = (RunId::new(1, 1), HostId::from("a"));
    let dir = RunDir::create(&state.path().join("s"), &run, &host).unwrap();
    let plan = HostRun {
        run,
        host,
        grace_ms: 0,
        spool: Spool { cap: 2 * MIB, min_free: MinFree::Bytes(0) },
        ..host_run(vec![rank_spec(0), rank_spec(1)])
    };
    let trimmer = SpoolTrimmer::start(&dir, &plan, Box::new(|_| ())).unwrap();
    let mut out = dir.append("rank-1.out").unwrap();
    let mut expected = Vec::new();
    for line in 0..1_000_000u64 {
        let line = format!("line {line}\n");
        expected.extend_from_slice(line.as_bytes());
    }
    for piece in expected.chunks(100_000) {
        out.write_all(piece).unwrap();
    }
    dir.append("rank-1.err").unwrap().write_all(b"whole").unwrap();
    drop(trimmer);
    let file = dir.read("rank-1.out").unwrap().unwrap();
    let kept = spool::kept_from(&file, 0).unwrap();
    if spool::can_cut(&dir).unwrap() {
        let length = expected.len() as u64;
        // a quarter, and up to a block and the sixteenth of what stays less: it came as fast as memory takes it
        let least = MIB / 2 - MIB / 32 - BLOCK;
        assert!(kept > 0 && length - kept <= 2 * MIB && length - kept >= least, "{kept} of {length}");
    }
    let text = std::fs::read(dir.path().join("rank-1.out")).unwrap();
    assert!(text[kept as usize..] == expected[kept as usize..], "the offsets are those that were written");
    assert_eq!(std::fs::read(dir.path().join("rank-1.err")).unwrap(), b"whole");
}
