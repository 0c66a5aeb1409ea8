//! What goes wrong between ranks ends in an error that names the rank, never in a hang.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use crate::common::group_config;
use crate::common::group_config::{config, own_loopback};
use crate::common::group_threads::as_ranks;
use hvtui::collective::{
    Collective, CollectiveError, Group, GroupConfig, OpKind, Reduce, RendezvousEvent, Secret,
    TransportPreference,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_rank_that_died_is_named_by_all_others() {
    for (victim, transport) in
        (0..5).flat_map(|victim| [(victim, TransportPreference::Auto), (victim, TransportPreference::Tcp)])
    {
        let errors = as_ranks(
            5,
            PATIENCE,
            |config| config.transport = transport,
            |rank, group| {
                let mut group = group.unwrap();
                group.allreduce(&mut [1.0_f32; 100], Reduce::Sum).unwrap();
                if rank == victim {
                    return None;
                }
                let error = group.allreduce(&mut [1.0_f32; 100], Reduce::Sum).unwrap_err();
                assert_eq!(group.barrier().unwrap_err(), error, "a broken group stays broken");
                Some(error)
            },
        );
        for (rank, error) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != victim as usize) {
            let error = error.unwrap();
            assert!(
                matches!(&error, CollectiveError::PeerLost { op, rank } if *rank == victim && op.seq == 2),
                "{rank}: {error}"
            );
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_by_all_others() {
    // All four at once: each waits for the whole of its deadline, in which its ranks must also have met.
    std::thread::scope(|scope| {
        for (absent, transport) in [
            (0, TransportPreference::Auto),
            (2, TransportPreference::Auto),
            (0, TransportPreference::Tcp),
            (2, TransportPreference::Tcp),
        ] {
            scope.spawn(move || assert_absent_is_named(absent, transport));
        }
    });
}

fn assert_absent_is_named(absent: u32, transport: TransportPreference) {
    // The absent rank keeps its connections open until the others have given up.
    let done = std::sync::Barrier::new(4);
    let errors = as_ranks(
        4,
        Duration::from_secs(8),
        |config| config.transport = transport,
        |rank, group| {
            let mut group = group.unwrap();
            let error =
                (rank != absent).then(|| group.allreduce(&mut [1.0_f32; 100], Reduce::Sum).unwrap_err());
            done.wait();
            error
        },
    );
    for error in errors.into_iter().flatten() {
        assert!(
            matches!(&error, CollectiveError::Stalled { op, ranks, seconds: 8 } if *ranks == [absent] && op.seq == 1),
            "{error}"
        );
    }
}

#[test]
fn ranks_that_diverge_are_told_apart() {
    let errors = as_ranks(
        4,
        PATIENCE,
        |_| {},
        |rank, group| {
            let mut group = group.unwrap();
            let len = if rank == 2 { 101 } else { 100 };
            group.allreduce(&mut vec![1.0_f32; len], Reduce::Sum).unwrap_err()
        },
    );
    for error in errors {
        let CollectiveError::Diverged { rank: 2, theirs, ours, .. } = &error else { panic!("{error}") };
        assert_eq!((theirs.len, ours.len), (101, 100));
        assert!(error.to_string().contains("allreduce #1 (sum) of 101 f32 values"), "{error}");
    }
    let errors = as_ranks(
        2,
        PATIENCE,
        |_| {},
        |rank, group| {
            let mut group = group.unwrap();
            if rank == 0 { group.barrier() } else { group.broadcast::<f32>(0, &mut []) }.unwrap_err()
        },
    );
    for error in errors {
        assert!(
            matches!(&error, CollectiveError::Diverged { rank: 1, ours, .. } if ours.kind == OpKind::Barrier),
            "{error}"
        );
    }
}

#[test]
fn another_secret_is_refused_and_the_others_are_not_harmed() {
    let stranger = own_loopback();
    let refused = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let rank = |rank: u32, secret: Secret| {
            let refused = &refused;
            scope.spawn(move || {
                let mut config = config(stranger, rank, 2, PATIENCE);
                config.secret = secret;
                Group::connect(config, &mut |event| {
                    if let RendezvousEvent::Refused { why, .. } = event {
                        refused.lock().unwrap().push(why);
                    }
                })
                .map(drop)
            })
        };
        let root = rank(0, group_config::secret_of(stranger));
        let wrong = Secret::from_hex(&"ff".repeat(32)).unwrap();
        let error = rank(1, wrong).join().unwrap().unwrap_err();
        assert!(matches!(error, CollectiveError::Refused { from: 1, to: 0, .. }), "{error}");
        rank(1, group_config::secret_of(stranger)).join().unwrap().unwrap();
        root.join().unwrap().unwrap();
    });
    assert!(refused.into_inner().unwrap().contains(&"its proof is wrong"));
}

#[test]
fn strangers_who_lie_or_say_nothing_do_not_hold_up_the_ranks() {
    let at = own_loopback();
    std::thread::scope(|scope| {
        let (waiting, is_waiting) = std::sync::mpsc::channel();
        let root = scope.spawn(move || {
            Group::connect(config(at, 0, 2, PATIENCE), &mut |event| {
                // The receiver is dropped once it has seen the first.
                let _ = waiting.send(event);
            })
            .map(drop)
        });
        assert_eq!(is_waiting.recv().unwrap(), RendezvousEvent::Waiting(vec![1]));
        let silent = TcpStream::connect((at, 29500)).unwrap();
        let mut liar = TcpStream::connect((at, 29500)).unwrap();
        liar.write_all(&[b'G'; 4096]).unwrap();
        let mut heard = Vec::new();
        // The challenge, then the refusal; a reset after that is as good as an end.
        let _ = liar.read_to_end(&mut heard);
        assert!(heard.len() <= 64);
        let mut curious = TcpStream::connect((at, 29500)).unwrap();
        curious.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        drop(curious);
        let other = scope.spawn(move || Group::connect(config(at, 1, 2, PATIENCE), &mut |_| {}).map(drop));
        other.join().unwrap().unwrap();
        root.join().unwrap().unwrap();
        drop(silent);
    });
}

#[test]
fn who_is_missing_is_said_and_the_deadline_names_them() {
    let at = own_loopback();
    let heard = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let heard = &heard;
            scope.spawn(move || {
                Group::connect(config(at, rank, 4, Duration::from_secs(5)), &mut |event| {
                    heard.lock().unwrap().push((rank, event));
                })
                .map(drop)
                .unwrap_err()
            })
        };
        for rank in [start(0), start(1), start(3)] {
            let error = rank.join().unwrap();
            assert!(matches!(&error, CollectiveError::Missing { ranks, .. } if *ranks == [2]), "{error}");
        }
    });
    let heard = heard.into_inner().unwrap();
    assert!(heard.contains(&(0, RendezvousEvent::Waiting(vec![2]))));
    assert!(
        heard.contains(&(1, RendezvousEvent::Waiting(vec![2]))),
        "others learn it from rank 0: {heard:?}"
    );
}

#[test]
fn a_rank_that_finds_nobody_says_where_it_looked() {
    let at = own_loopback();
    let config = GroupConfig { port: 29501, ..config(at, 1, 2, Duration::from_secs(1)) };
    let mut waited = Vec::new();
    let error = Group::connect(config, &mut |event| waited.push(event)).map(drop).unwrap_err();
    assert!(matches!(&error, CollectiveError::Unreachable { from: 1, to: 0, .. }), "{error}");
    assert!(error.to_string().contains(&format!("{at}:29501")), "{error}");
    assert_eq!(waited[0], RendezvousEvent::Waiting(vec![0]));
}
