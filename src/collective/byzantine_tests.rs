//! Ranks that lie to the others of their host: what they say on the board makes no sense.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Barrier;
use std::time::Duration;

use super::super::auth::Secret;
use super::super::communicator::Collective;
use super::super::op::OpId;
use super::super::shm::{Look, OpDescriptor};
use super::*;
use crate::clock;

const WORLD: u32 = 3;
const LEN: usize = 5000;

/// Waits as long as it takes.
struct Patient;

impl Look for Patient {
    fn look(&mut self, _: &[usize]) -> Result<(), CollectiveError> {
        Ok(())
    }
}

/// Group `number` of this process.
fn config(number: u8, rank: u32, world: u32) -> GroupConfig {
    let pid = std::process::id();
    let at: IpAddr = Ipv4Addr::new(127, 200 + number, (pid >> 8) as u8, pid as u8).into();
    GroupConfig {
        rank,
        world,
        master: at.to_string(),
        port: 29500,
        bind: Some(at),
        secret: Secret::from_hex(&format!("{}{number:04x}{pid:08x}", "5".repeat(52))).unwrap(),
        timeout: Duration::from_secs(60),
        clock: clock::host_now,
        ticker: clock::ticker(),
        transport: TransportPreference::Auto,
        shm_domain: String::new(),
        streams: None,
        pin: false,
        local: None,
    }
}

/// What the others get when `victim` says `lie` in the second operation.
fn errors(number: u8, victim: u32, lie: impl Fn(&mut OpDescriptor) + Sync) -> Vec<CollectiveError> {
    let (over, lie) = (&Barrier::new(WORLD as usize), &lie);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD)
            .map(|rank| {
                scope.spawn(move || {
                    let mut group = Group::connect(config(number, rank, WORLD), &mut |_| {}).unwrap();
                    let mut buffer = group.buffer::<f32>(LEN).unwrap();
                    group.barrier().unwrap();
                    if rank == victim {
                        let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Sum };
                        let op = OpId { kind, seq: 2, len: LEN as u64 };
                        let mut descriptor = OpDescriptor { kind: op.kind.code(), len: op.len, place: 0 };
                        lie(&mut descriptor);
                        // What it hears of the others does not matter to a liar.
                        let _ = group.engine().unwrap().host.as_mut().unwrap().barrier(
                            descriptor,
                            &[],
                            &mut Patient,
                        );
                        over.wait();
                        return None;
                    }
                    let error = group.allreduce(&mut buffer, Reduce::Sum).unwrap_err();
                    over.wait();
                    Some(error)
                })
            })
            .collect();
        ranks.into_iter().filter_map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn who_says_that_it_does_what_does_not_exist_is_named() {
    for victim in 0..WORLD {
        for error in errors(victim as u8, victim, |descriptor| descriptor.kind = 0x00ba_dbad) {
            let named =
                matches!(&error, CollectiveError::Garbled { op, rank, .. } if *rank == victim && op.seq == 2);
            assert!(named, "{error}");
        }
    }
}

#[test]
fn who_says_that_its_values_lie_outside_of_its_memory_is_named() {
    for (victim, place) in [(0, 1 << 60), (1, u64::MAX - 1), (2, u64::MAX - 4 * LEN as u64)] {
        for error in errors(10 + victim as u8, victim, |descriptor| descriptor.place = place) {
            let named =
                matches!(&error, CollectiveError::Garbled { op, rank, .. } if *rank == victim && op.seq == 2);
            assert!(named, "{error}");
        }
    }
}

#[test]
fn who_claims_more_values_has_diverged() {
    for error in errors(20, 1, |descriptor| descriptor.len = u64::MAX) {
        assert!(
            matches!(&error, CollectiveError::Diverged { rank: 1, theirs, .. } if theirs.len == u64::MAX),
            "{error}"
        );
    }
}

#[test]
fn after_an_error_no_other_rank_reaches_the_values() {
    let (failed, written) = (&Barrier::new(2), &Barrier::new(2));
    let connect = |rank| {
        let mut group = Group::connect(config(30, rank, 2), &mut |_| {}).unwrap();
        // Cut where no page begins: what lies beside the values stays what it is.
        let (mut beside, mut values) = group.buffer::<f32>(2 * LEN).unwrap().split_at(LEN).unwrap();
        beside.fill(5.0);
        values.fill(1.0);
        group.barrier().unwrap();
        (group, beside, values)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut group, beside, mut values) = connect(0);
            group.allreduce(&mut values, Reduce::Sum).unwrap_err();
            failed.wait();
            written.wait();
            // What this rank had added, or what it had before.
            assert!(values.iter().all(|value| [1.0, 2.0].contains(value)), "{:?}", &values[..4]);
            assert!(beside.iter().all(|value| value.to_bits() == 5.0_f32.to_bits()));
            values.fill(3.0);
            drop(beside);
            assert!(values.iter().all(|value| value.to_bits() == 3.0_f32.to_bits()));
        });
        scope.spawn(|| {
            let (mut group, _beside, mut values) = connect(1);
            let Engine { host, lives, .. } = group.engine().unwrap();
            let host = host.as_mut().unwrap();
            let kind = OpKind::Allreduce { dtype: DType::F32, how: Reduce::Sum };
            let (start, bytes) = (values.as_mut_ptr().cast::<u8>(), 4 * LEN);
            let descriptor =
                OpDescriptor { kind: kind.code(), len: LEN as u64, place: host.place_of(start, bytes) };
            assert!(
                host.barrier(descriptor, &[], &mut Patient).is_ok() && host.locate(start, bytes).unwrap()
            );
            // It is gone for the other, and yet writes what it would have written.
            lives.as_mut().unwrap().end();
            failed.wait();
            values.fill(7.0);
            host.spread(0..bytes);
            written.wait();
        });
    });
}
