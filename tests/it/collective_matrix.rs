//! Every world size in every placement, with every awkward length, kind of number and way: against sums in f64 or exact
//! integers, bit-equal over ranks, runs and ways of waiting.

use std::time::Duration;

use crate::common::group_threads::as_ranks;
use crate::common::matrix::{Case, Lies, What, run};
use hvtui::collective::{
    Collective, Element, OpKind, Reduce, Transport, TransportPreference, bf16, chunk, f16,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Which rank is in which shared-memory domain; by TCP alone when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    OneHost,
    Tcp,
    /// a,a,b,b
    Halves,
    /// a,b,a,b
    Turns,
    /// a,a,a,b
    Last,
    /// a,b,c,a,b,c
    Three,
}

impl Placement {
    fn of(world: u32) -> Vec<Self> {
        match world {
            1 => vec![Self::OneHost],
            2 => vec![Self::OneHost, Self::Tcp],
            3 | 8 => vec![Self::OneHost, Self::Tcp, Self::Turns],
            4 => vec![Self::OneHost, Self::Tcp, Self::Halves, Self::Turns, Self::Last],
            6 => vec![Self::OneHost, Self::Tcp, Self::Halves],
            7 => vec![Self::OneHost, Self::Tcp, Self::Last, Self::Three],
            _ => vec![Self::OneHost, Self::Tcp, Self::Three],
        }
    }

    fn shm_domain(self, rank: u32, world: u32) -> String {
        let number = match self {
            Self::OneHost | Self::Tcp => return String::new(),
            Self::Halves => rank * 2 / world,
            Self::Turns => rank % 2,
            Self::Last => u32::from(rank + 1 == world),
            Self::Three => rank % 3,
        };
        format!("island {number}")
    }

    fn transport(self, world: u32) -> Transport {
        match self {
            _ if world == 1 => Transport::None,
            Self::OneHost => Transport::Shm,
            Self::Tcp => Transport::Tcp,
            _ => Transport::ShmTcp,
        }
    }
}

/// Runs the cases as every rank of a group; digests by rank and case.
fn digests(world: u32, placement: Placement, confined: bool, cases: &[Case]) -> Vec<Vec<Option<u64>>> {
    as_ranks(
        world,
        PATIENCE,
        |config| {
            if confined {
                confine();
            }
            config.shm_domain = placement.shm_domain(config.rank, world);
            if placement == Placement::Tcp {
                config.transport = TransportPreference::Tcp;
            }
            // Rank 0's word holds for all.
            config.streams = (config.rank == 0).then_some(1 + world % 2);
        },
        |rank, group| {
            let mut group = group.unwrap();
            assert_eq!((group.rank(), group.world()), (rank, world));
            assert_eq!(group.transport(), placement.transport(world));
            cases.iter().map(|case| run(&mut *group, case)).collect()
        },
    )
}

/// Lets this thread run on one core only: then the ranks of a host share it, and wait accordingly.
fn confine() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let core = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(core);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

fn assert_equal_over_ranks(all: &[Vec<Option<u64>>], cases: &[Case], context: &str) {
    for (at, case) in cases.iter().enumerate() {
        for (rank, digests) in all.iter().enumerate() {
            assert_eq!(digests[at], all[0][at], "{context}: rank {rank} differs in {case:?}");
        }
    }
}

/// Lengths at which something changes, in values of `size` bytes.
fn edges(world: usize, size: usize, thorough: bool) -> Vec<usize> {
    let mut all =
        vec![0, 1, world - 1, world, world + 1, 7, 32 / size, 32 / size + 1, 2048 / size, 2048 / size + 1];
    if thorough {
        let piece = (256 << 10) / size;
        all.extend([
            2048 / size - 1,
            4096 / size + 3,
            piece - 1,
            piece,
            piece + 1,
            2 * piece + 5,
            5 * piece / 2,
        ]);
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn cases(world: u32) -> Vec<Case> {
    let mut cases = Vec::new();
    let lies = [Lies::Private, Lies::Registered, Lies::Mixed, Lies::Part];
    let mut turn = 0_usize;
    for dtype in hvtui::collective::DType::ALL {
        // What is moved, not how it is added, depends on the length: all ways at the short ones, the long ones by turns.
        for (at, len) in edges(world as usize, dtype.size(), true).into_iter().enumerate() {
            let long = len * dtype.size() > 8192;
            for how in Reduce::ALL {
                if long && how != Reduce::ALL[(at + turn) % 4] {
                    continue;
                }
                for what in [What::Allreduce, What::ReduceScatter] {
                    turn += 1;
                    cases.push(Case { what, dtype, how, len, lies: lies[turn % 4] });
                }
            }
            turn += 1;
            cases.push(Case { what: What::Allgather, dtype, how: Reduce::Sum, len, lies: lies[turn % 4] });
            let root = turn as u32 % world;
            let lies = lies[(turn / 4) % 4];
            cases.push(Case { what: What::Broadcast(root), dtype, how: Reduce::Sum, len, lies });
        }
        cases.push(Case { what: What::Barrier, dtype, how: Reduce::Sum, len: 0, lies: Lies::Private });
    }
    cases
}

fn whole_matrix(world: u32) {
    let cases = cases(world);
    for placement in Placement::of(world) {
        let all = digests(world, placement, false, &cases);
        assert_equal_over_ranks(&all, &cases, &format!("world {world} {placement:?}"));
    }
}

macro_rules! worlds {
    ($($name:ident $world:expr;)*) => {$(
        #[test]
        fn $name() {
            whole_matrix($world);
        }
    )*};
}
worlds! {
    all_operations_of_a_world_of_1 1;
    all_operations_of_a_world_of_2 2;
    all_operations_of_a_world_of_3 3;
    all_operations_of_a_world_of_4 4;
    all_operations_of_a_world_of_5 5;
    all_operations_of_a_world_of_6 6;
    all_operations_of_a_world_of_7 7;
    all_operations_of_a_world_of_8 8;
    all_operations_of_a_world_of_9 9;
}

#[test]
fn runs_and_ways_of_waiting_give_the_same_bits() {
    for world in [2, 3, 5] {
        let cases: Vec<Case> = cases(world).into_iter().filter(|case| case.len > 1).step_by(3).collect();
        for placement in Placement::of(world) {
            let first = digests(world, placement, false, &cases);
            assert_eq!(first, digests(world, placement, false, &cases), "two runs: {world} {placement:?}");
            assert_eq!(first, digests(world, placement, true, &cases), "on one core: {world} {placement:?}");
        }
    }
}

#[test]
fn where_the_values_lie_does_not_change_a_bit() {
    for world in [2, 4] {
        for placement in Placement::of(world) {
            let of = |lies: Lies| {
                let cases: Vec<Case> =
                    cases(world).into_iter().map(|case| Case { lies, ..case }).step_by(7).collect();
                digests(world, placement, false, &cases)
            };
            let private = of(Lies::Private);
            for lies in [Lies::Registered, Lies::Mixed, Lies::Part] {
                assert_eq!(private, of(lies), "{world} {placement:?} {lies:?}");
            }
        }
    }
}

#[test]
fn many_megabytes_do_not_lock_the_ranks_up() {
    for (world, placement) in
        [(3, Placement::OneHost), (3, Placement::Tcp), (3, Placement::Turns), (4, Placement::Halves)]
    {
        let case = |what, lies| Case { what, dtype: f32::DTYPE, how: Reduce::Sum, len: 3_000_001, lies };
        let cases = [
            case(What::Allreduce, Lies::Private),
            case(What::Allreduce, Lies::Registered),
            case(What::Broadcast(1), Lies::Private),
            case(What::Allgather, Lies::Mixed),
        ];
        let all = digests(world, placement, false, &cases);
        assert_equal_over_ranks(&all, &cases, &format!("{world} {placement:?}"));
    }
}

#[test]
fn operations_in_flight_end_in_the_order_in_which_they_began() {
    for (world, placement) in [
        (1, Placement::OneHost),
        (2, Placement::OneHost),
        (4, Placement::OneHost),
        (3, Placement::Tcp),
        (4, Placement::Halves),
    ] {
        let all = as_ranks(
            world,
            PATIENCE,
            |config| {
                config.shm_domain = placement.shm_domain(config.rank, world);
                if placement == Placement::Tcp {
                    config.transport = TransportPreference::Tcp;
                }
            },
            |rank, group| {
                let mut group = group.unwrap();
                let lengths = [70_000, 3, 0, 513, 8_000, 1];
                for round in 0..3 {
                    let mut pending = Vec::new();
                    for len in lengths {
                        let mut buffer = group.buffer::<i64>(len).unwrap();
                        buffer
                            .iter_mut()
                            .zip(0_i64..)
                            .for_each(|(to, at)| *to = at + i64::from(rank) * 1000 + round);
                        pending.push((len, group.allreduce_begin(buffer, Reduce::Sum).unwrap()));
                    }
                    // A call in between waits for all that were begun before it.
                    let mut one = [1_i32];
                    if round == 1 {
                        group.allreduce(&mut one, Reduce::Sum).unwrap();
                        assert_eq!(one[0], world as i32);
                        assert!(pending.iter_mut().all(|(_, one)| one.is_done()));
                    }
                    for (len, one) in pending.into_iter().rev() {
                        let (buffer, _) = one.wait().unwrap();
                        assert_eq!(buffer.len(), len);
                        let n = i64::from(world);
                        for (value, at) in buffer.iter().zip(0_i64..) {
                            assert_eq!(*value, n * (at + round) + 1000 * n * (n - 1) / 2);
                        }
                    }
                }
                if world > 1 {
                    let flight = group.flight();
                    let seqs: Vec<u64> = flight.records.iter().map(|record| record.op.seq).collect();
                    assert_eq!(seqs, (1..=3 * 6 + 1).collect::<Vec<_>>());
                }
                group.barrier().unwrap();
            },
        );
        assert_eq!(all.len(), world as usize);
    }
}

#[test]
fn a_buffer_that_is_given_back_comes_again_as_zeros() {
    as_ranks(
        2,
        PATIENCE,
        |_| {},
        |_, group| {
            let mut group = group.unwrap();
            for len in [1000, 100_000, 10, 1_000_000, 1000] {
                let mut buffer = group.buffer::<f32>(len).unwrap();
                assert!(buffer.iter().all(|value| value.to_bits() == 0));
                buffer.fill(3.0);
                group.allreduce(&mut buffer, Reduce::Mean).unwrap();
                assert!(buffer.iter().all(|value| value.to_bits() == 3.0_f32.to_bits()));
            }
        },
    );
}

#[test]
fn not_a_number_reaches_all_ranks_and_halves_are_added_in_single_precision() {
    for transport in [TransportPreference::Auto, TransportPreference::Tcp] {
        as_ranks(
            3,
            PATIENCE,
            |config| config.transport = transport,
            |rank, group| {
                let mut group = group.unwrap();
                for how in Reduce::ALL {
                    let mut data = [1.0, if rank == 1 { f32::NAN } else { 2.0 }];
                    group.allreduce(&mut data, how).unwrap();
                    assert!(!data[0].is_nan() && data[1].is_nan(), "{how}");
                }
                // In bf16 alone 256 + 1 would stay 256, twice; so would 2048 + 1 in f16.
                if transport == TransportPreference::Auto {
                    let mut data = [bf16::from_f32(if rank == 0 { 256.0 } else { 1.0 }); 2];
                    group.allreduce(&mut data, Reduce::Sum).unwrap();
                    assert_eq!(data[0], bf16::from_f32(258.0));
                    let mut data = vec![f16::from_f32(if rank == 0 { 2048.0 } else { 1.0 }); 5000];
                    group.allreduce(&mut data, Reduce::Sum).unwrap();
                    assert_eq!(data[4999], f16::from_f32(2050.0));
                }
            },
        );
    }
}

#[test]
fn the_mean_of_halves_is_right_where_their_sum_is_more_than_halves_hold() {
    // Small means stay what they are too: 6e-8 is the least that f16 holds.
    let values = [60_000.0, -65_504.0, 6e-8, 1.0].map(f16::from_f32);
    for (world, placement) in [
        (2, Placement::Tcp),
        (3, Placement::Tcp),
        (3, Placement::Turns),
        (4, Placement::Halves),
        (4, Placement::OneHost),
        (5, Placement::Tcp),
    ] {
        as_ranks(
            world,
            PATIENCE,
            |config| {
                config.shm_domain = placement.shm_domain(config.rank, world);
                if placement == Placement::Tcp {
                    config.transport = TransportPreference::Tcp;
                }
            },
            |rank, group| {
                let mut group = group.unwrap();
                for len in [4, 4_000, 40_000, 400_000] {
                    let given: Vec<f16> = values.into_iter().cycle().take(len).collect();
                    let mut data = given.clone();
                    group.allreduce(&mut data, Reduce::Mean).unwrap();
                    assert!(data == given, "{world} {placement:?} {len}: {:?}", &data[..4]);
                    let (own, _) = group.reduce_scatter(&mut data, Reduce::Mean).unwrap();
                    assert!(data[own.clone()] == given[own], "{world} {placement:?} rank {rank} {len}");
                }
                // NaN is the same one as anywhere.
                let mut data = [if rank == 1 { f16::from_bits(0xfdab) } else { f16::ONE }; 3];
                group.allreduce(&mut data, Reduce::Mean).unwrap();
                assert_eq!(data.map(f16::to_bits), [0x7e00; 3]);
            },
        );
    }
}

#[test]
fn a_late_rank_shows_as_wait_on_the_others_and_not_on_itself() {
    // The late rank calls only when the others have surely entered: it sees that on the clock they wrote to.
    use std::sync::Barrier;
    for transport in [TransportPreference::Auto, TransportPreference::Tcp] {
        let entered = Barrier::new(3);
        let late_by = 300_000;
        let timings = as_ranks(
            3,
            PATIENCE,
            |config| config.transport = transport,
            |rank, group| {
                let mut group = group.unwrap();
                group.barrier().unwrap();
                entered.wait();
                if rank == 1 {
                    let begun = hvtui::clock::host_now().0;
                    while hvtui::clock::host_now().0 - begun < late_by {
                        std::thread::yield_now();
                    }
                }
                group.allreduce(&mut [1.0_f32; 10], Reduce::Sum).unwrap()
            },
        );
        // What is compared are the ranks' own figures with each other, not with a stopwatch.
        assert!(timings[0].wait > timings[1].wait && timings[2].wait > timings[1].wait, "{timings:?}");
    }
}

#[test]
fn what_no_rank_can_be_asked_is_refused_before_anyone_waits() {
    as_ranks(
        2,
        PATIENCE,
        |_| {},
        |_, group| {
            let mut group = group.unwrap();
            assert!(group.broadcast(2, &mut [0.0_f32]).is_err());
            // No rank has noticed.
            let (own, _) = group.reduce_scatter(&mut [1_i32; 5], Reduce::Max).unwrap();
            assert_eq!(own, chunk(group.rank() as usize, 2, 5));
            let records = group.flight().records;
            assert!(matches!(records[0].op.kind, OpKind::ReduceScatter { .. }) && records.len() == 1);
        },
    );
}
