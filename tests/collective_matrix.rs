//! Every world size with every awkward length, against sums in f64, bit-equal over ranks.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ring_group;
mod ring_threads;

use std::time::Duration;

use ring_threads::as_ranks;

const PATIENCE: Duration = Duration::from_secs(60);

fn value(rank: u32, index: usize) -> f32 {
    let mixed = (index as u32).wrapping_mul(2_654_435_761).wrapping_add(rank.wrapping_mul(40_503)) >> 8;
    mixed as f32 / (1 << 24) as f32 - 0.3
}

fn lengths(world: u32) -> Vec<usize> {
    let world = world as usize;
    vec![0, 1, world.saturating_sub(1), world, world + 1, 1000, 65_537]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn allreduce_is_the_sum_and_the_same_bits_everywhere() {
    for world in 1..=9 {
        for segment in [hvtui::collective::RingConfig::SEGMENT, 777] {
            let all = as_ranks(
                world,
                PATIENCE,
                |config| config.segment = segment,
                |rank, ring| {
                    let mut ring = ring.unwrap();
                    assert_eq!((ring.rank(), ring.world()), (rank, world));
                    lengths(world)
                        .into_iter()
                        .map(|len| {
                            let own: Vec<f32> = (0..len).map(|i| value(rank, i)).collect();
                            let (mut sum, mut mean) = (own.clone(), own);
                            ring.allreduce_sum(&mut sum).unwrap();
                            ring.allreduce_mean(&mut mean).unwrap();
                            (sum, mean)
                        })
                        .collect::<Vec<_>>()
                },
            );
            for (case, len) in lengths(world).into_iter().enumerate() {
                let (sum, mean) = &all[0][case];
                assert_eq!(sum.len(), len);
                for i in 0..len {
                    let exact: f64 = (0..world).map(|rank| f64::from(value(rank, i))).sum();
                    assert!((f64::from(sum[i]) - exact).abs() < 1e-5, "world {world} len {len} at {i}");
                    assert!((f64::from(mean[i]) - exact / f64::from(world)).abs() < 1e-5);
                }
                for other in &all[1..] {
                    assert_eq!(bits(&other[case].0), bits(sum), "world {world} len {len}");
                    assert_eq!(bits(&other[case].1), bits(mean), "world {world} len {len}");
                }
            }
        }
    }
}

#[test]
fn broadcast_reaches_all_from_any_root() {
    for world in 1..=5 {
        let all = as_ranks(
            world,
            PATIENCE,
            |_| {},
            |rank, ring| {
                let mut ring = ring.unwrap();
                let mut got = Vec::new();
                for root in 0..world {
                    for len in lengths(world) {
                        let mut data: Vec<f32> = (0..len).map(|i| value(rank, i)).collect();
                        ring.broadcast(root, &mut data).unwrap();
                        got.push((root, data));
                    }
                }
                ring.barrier().unwrap();
                got
            },
        );
        for (root, data) in all.into_iter().flatten() {
            let expected: Vec<f32> = (0..data.len()).map(|i| value(root, i)).collect();
            assert_eq!(bits(&data), bits(&expected));
        }
    }
}

#[test]
fn more_than_all_socket_buffers_hold_does_not_lock_the_ring() {
    let len = 6_000_000;
    let all = as_ranks(
        3,
        PATIENCE,
        |_| {},
        |rank, ring| {
            let mut data = vec![rank as f32 + 1.0; len];
            let timing = ring.unwrap().allreduce_sum(&mut data).unwrap();
            assert!(timing.transfer > 0);
            data.iter().all(|value| (*value - 6.0).abs() < f32::EPSILON)
        },
    );
    assert_eq!(all, [true; 3]);
}

#[test]
fn a_late_rank_shows_as_wait_on_the_others_and_not_on_itself() {
    // The late rank calls only when the others have surely entered: it sees that on the clock they wrote to.
    use std::sync::Barrier;
    let entered = Barrier::new(3);
    let late_by = 300_000;
    let timings = as_ranks(
        3,
        PATIENCE,
        |_| {},
        |rank, ring| {
            let mut ring = ring.unwrap();
            ring.barrier().unwrap();
            entered.wait();
            if rank == 1 {
                let begun = hvtui::clock::host_now().0;
                while hvtui::clock::host_now().0 - begun < late_by {
                    std::thread::yield_now();
                }
            }
            ring.allreduce_sum(&mut [1.0; 10]).unwrap()
        },
    );
    // What is compared are the ranks' own figures with each other, not with a stopwatch.
    assert!(timings[0].wait > timings[1].wait && timings[2].wait > timings[1].wait, "{timings:?}");
}
