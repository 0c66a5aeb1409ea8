//! Ranks that are killed, stop, diverge, come late or never: every other rank says which, in time, and nothing is left.

use crate::common::processes::{kill, until};
use crate::common::rank_processes::{Failure, Ranks, WAYS, Ways};
use rustix::process::Signal;

/// A deadline that no test reaches.
const LONG: u64 = 40_000;
/// A deadline that ranks reach.
const SHORT: u64 = 3_000;
/// What may come on top of it, and what the machine's own work adds to that.
const GRACE: u64 = 1_000 + 500;

const WORLD: u32 = 5;

fn others(victim: usize) -> impl Iterator<Item = usize> {
    (0..WORLD as usize).filter(move |index| *index != victim)
}

fn steps(victim: usize, theirs: &str, all: &str) -> impl Fn(u32) -> Option<String> {
    let (theirs, all) = (theirs.to_owned(), all.to_owned());
    move |rank| Some(if rank as usize == victim { theirs.clone() } else { all.clone() })
}

/// In a call far shorter than the deadline.
fn assert_at_once(failure: &Failure) {
    assert!(failure.millis < LONG / 10 + failure.waited, "{failure:?}");
}

fn assert_in_time(failure: &Failure) {
    assert!(failure.millis + 10 >= SHORT, "{failure:?}");
    assert!(failure.millis <= SHORT + GRACE + failure.waited, "{failure:?}");
}

#[test]
fn who_is_killed_is_named_at_once_by_all_others() {
    for ways in WAYS {
        for victim in [0, 1, 4] {
            // Beside a small operation, in one of many bytes, and in one of buffers of the group.
            for last in ["all:10", "all:300000", "registered:300000"] {
                let all = format!("barrier,{last},{last}");
                let ranks =
                    Ranks::start(WORLD, LONG, ways, steps(victim, &format!("barrier,{last},die"), &all));
                for rank in others(victim) {
                    let failure = ranks.failure(rank);
                    let named = format!(
                        "allreduce #3 (sum) of {} f32 values: rank {victim} is gone",
                        &last[last.find(':').unwrap() + 1..]
                    );
                    assert!(failure.error.starts_with(&named), "{ways:?} {last} rank {rank}: {failure:?}");
                    assert_at_once(&failure);
                }
                ranks.end(None);
            }
        }
    }
}

#[test]
fn who_is_killed_in_the_middle_of_bytes_is_named_at_once() {
    for ways in WAYS {
        for (victim, len) in [(0, 400_000), (2, 400_000), (3, 5)] {
            let ranks = Ranks::start(WORLD, LONG, ways, |_| Some(format!("ready,loop:{len}")));
            (0..WORLD as usize).for_each(|rank| ranks.until_ready(rank));
            kill(ranks.pid(victim), Signal::KILL);
            for rank in others(victim) {
                let failure = ranks.failure(rank);
                assert!(
                    failure.error.contains(&format!("rank {victim} is gone")),
                    "{ways:?} {rank}: {failure:?}"
                );
            }
            ranks.end(None);
        }
    }
}

#[test]
fn who_stops_is_named_when_the_deadline_has_passed() {
    for ways in WAYS {
        for (victim, last) in [(0, "all:10"), (3, "all:300000")] {
            let all = format!("barrier,{last}");
            let ranks = Ranks::start(WORLD, SHORT, ways, steps(victim, "barrier,stop", &all));
            for rank in others(victim) {
                let failure = ranks.failure(rank);
                let named = format!("f32 values: rank {victim} did not take part within 3 s");
                assert!(
                    failure.error.starts_with("allreduce #2 ") && failure.error.contains(&named),
                    "{ways:?} {rank}: {failure:?}"
                );
                assert_in_time(&failure);
            }
            ranks.end(Some(victim));
        }
    }
}

#[test]
fn who_stops_in_the_middle_of_bytes_is_named() {
    for ways in WAYS {
        for victim in [0, 3] {
            let ranks = Ranks::start(WORLD, SHORT, ways, |_| Some("ready,loop:400000".to_owned()));
            (0..WORLD as usize).for_each(|rank| ranks.until_ready(rank));
            kill(ranks.pid(victim), Signal::STOP);
            for rank in others(victim) {
                let failure = ranks.failure(rank);
                assert!(
                    failure.error.contains(&format!("rank {victim} did not take part")),
                    "{ways:?} {rank}: {failure:?}"
                );
            }
            ranks.end(Some(victim));
        }
    }
}

#[test]
fn several_that_stop_are_all_named() {
    let ranks = Ranks::start(WORLD, SHORT, Ways::OneHost, |rank| {
        Some(if rank == 1 || rank == 3 { "barrier,stop" } else { "barrier,barrier" }.to_owned())
    });
    for rank in [0, 2, 4] {
        let failure = ranks.failure(rank);
        assert!(
            failure.error.starts_with("barrier #2: ranks 1, 3 did not take part within 3 s"),
            "{failure:?}"
        );
    }
    kill(ranks.pid(1), Signal::KILL);
    ranks.end(Some(3));
}

#[test]
fn who_comes_late_but_in_time_is_waited_for_and_who_leaves_early_harms_nobody() {
    for ways in WAYS {
        let ranks = Ranks::start(WORLD, LONG, ways, |rank| {
            Some(
                match rank {
                    // Rank 0 hears of a departure while it still has bytes to come.
                    1 => "barrier,pause:600,all:300000,leave",
                    _ => "barrier,all:300000",
                }
                .to_owned(),
            )
        });
        (0..WORLD as usize).filter(|rank| *rank != 1).for_each(|rank| ranks.done(rank));
        ranks.end(None);
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    for ways in WAYS {
        let ranks = Ranks::start(WORLD, SHORT, ways, |rank| (rank != 4).then(|| "barrier".to_owned()));
        for index in 0..4 {
            let failure = ranks.failure(index);
            assert!(failure.error.starts_with("rank 4 did not come to the rendezvous"), "{failure:?}");
            assert!(failure.millis <= SHORT + GRACE + 3_000 + failure.waited, "{failure:?}");
        }
        ranks.end(None);
    }
}

#[test]
fn ranks_that_diverge_are_told_apart_whatever_differs() {
    for ways in WAYS {
        for (victim, theirs, all) in [
            (2, "barrier,all:101", "barrier,all:100"),
            (3, "barrier,all:300001", "barrier,all:300000"),
            (1, "barrier,all:10", "barrier,all:300000"),
            (4, "barrier,mean:100", "barrier,all:100"),
            (2, "barrier,double:100", "barrier,all:100"),
            (1, "barrier,barrier", "barrier,all:100"),
            (0, "barrier,barrier", "barrier,all:5"),
        ] {
            let ranks = Ranks::start(WORLD, LONG, ways, steps(victim, theirs, all));
            for rank in 0..WORLD as usize {
                let failure = ranks.failure(rank);
                let told = failure.error.contains("the ranks have diverged")
                    && failure.error.contains(&format!("rank {victim} "));
                assert!(told, "{ways:?} {theirs} rank {rank}: {failure:?}");
                assert_at_once(&failure);
            }
            ranks.end(None);
        }
    }
}

#[test]
fn a_death_is_told_while_rank_0_waits_for_somebody_else() {
    // Rank 0 waits for rank 1, which only comes much later; rank 3 dies.
    for ways in [Ways::OneHost, Ways::Mixed] {
        let ranks = Ranks::start(WORLD, LONG, ways, |rank| {
            Some(
                match rank {
                    1 => "barrier,pause:5000,barrier",
                    3 => "barrier,die",
                    _ => "barrier,barrier",
                }
                .to_owned(),
            )
        });
        for rank in [0, 2, 4] {
            let failure = ranks.failure(rank);
            assert!(failure.error.starts_with("barrier #2: rank 3 is gone"), "{ways:?} {rank}: {failure:?}");
            assert_at_once(&failure);
        }
        until("the end of the late one", || ranks.failure(1).error.contains("rank 3 is gone"));
        ranks.end(None);
    }
}
