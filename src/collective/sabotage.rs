//! Tests with ranks that meet for an operation and then die, stop or lie in the middle of its data.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::Duration;

use super::communicator::{Communicator, OpId, OpKind};
use super::deadline::Deadline;
use super::error::CollectiveError;
use super::rendezvous::RingConfig;
use super::ring::TcpRing;
use super::{Secret, socket};
use crate::domain::time::HostTime;

const WORLD: u32 = 5;
const LEN: usize = 200_000;

fn clock() -> HostTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    HostTime(time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000)
}

/// What the others get when `victim` does `crime` after all have met for the second operation.
fn errors(
    group: u8,
    victim: u32,
    timeout: Duration,
    crime: impl Fn(&mut TcpRing, OpId) + Sync,
) -> Vec<CollectiveError> {
    let at: IpAddr =
        Ipv4Addr::new(127, 201 + group, (std::process::id() >> 8) as u8, std::process::id() as u8).into();
    let over = Barrier::new(WORLD as usize);
    let (crime, over) = (&crime, &over);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD)
            .map(|rank| {
                scope.spawn(move || {
                    let config = RingConfig {
                        rank,
                        world: WORLD,
                        master: at.to_string(),
                        port: 29500,
                        bind: Some(at),
                        secret: Secret::from_hex(&"5a".repeat(32)).unwrap(),
                        timeout,
                        clock,
                        segment: 1000,
                    };
                    let mut ring = TcpRing::connect(config, &mut |_| {}).unwrap();
                    ring.barrier().unwrap();
                    if rank == victim {
                        let op = OpId { kind: OpKind::Allreduce, seq: 2, len: LEN as u64 };
                        ring.meet(op).unwrap();
                        crime(&mut ring, op);
                        over.wait();
                        return None;
                    }
                    let outcome = ring.allreduce_sum(&mut vec![1.0; LEN]).unwrap_err();
                    over.wait();
                    Some(outcome)
                })
            })
            .collect();
        ranks.into_iter().filter_map(|rank| rank.join().unwrap()).collect()
    })
}

/// Sends `bytes` where the next rank expects data.
fn say(ring: &TcpRing, bytes: &[u8]) {
    socket::write_all(&ring.lanes.next, bytes, Deadline::after(clock, 10_000_000)).unwrap();
}

#[test]
fn who_dies_in_the_middle_of_the_data_is_named() {
    for victim in [0, 1, 3] {
        // Dying closes all connections: the data, and the control line.
        let errors = errors(victim as u8, victim, Duration::from_secs(60), |ring, _| {
            say(ring, &[1]);
            ring.lanes.close();
            ring.lines.clear();
        });
        for error in errors {
            assert!(
                matches!(&error, CollectiveError::PeerLost { op, rank } if *rank == victim && op.seq == 2),
                "{error}"
            );
        }
    }
}

#[test]
fn who_stops_in_the_middle_of_the_data_is_named() {
    for victim in [0, 2] {
        let errors = errors(10 + victim as u8, victim, Duration::from_secs(2), |_, _| {});
        for error in errors {
            assert!(
                matches!(&error, CollectiveError::Stalled { op, rank, .. } if *rank == victim && op.seq == 2),
                "{error}"
            );
        }
    }
}

#[test]
fn who_sends_nonsense_is_named() {
    for victim in [0, 2, 4] {
        let errors = errors(20 + victim as u8, victim, Duration::from_secs(60), |ring, op| {
            say(ring, &[b'?'; 64]);
            // A liar still obeys the verdict, so that its exit is not what the others notice.
            if victim != 0 {
                let mut plan = super::plan::allreduce(victim as usize, WORLD as usize, LEN, 1000);
                plan.sends.clear();
                ring.transfer(op, &plan, &mut vec![0.0; LEN]).unwrap_err();
            } else {
                ring.wait_for_lines(None, Deadline::after(clock, 10_000_000)).unwrap();
                let heard = ring.listen(op).unwrap();
                ring.sentence(op, heard);
            }
        });
        for error in errors {
            assert!(
                matches!(&error, CollectiveError::Garbled { op, rank, .. } if *rank == victim && op.seq == 2),
                "{error}"
            );
        }
    }
}
