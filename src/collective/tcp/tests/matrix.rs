//! Hosts by lengths by kinds by ways of reduction: results are right, and bit-equal on all hosts.

use super::*;

const LENGTHS: [usize; 9] = [0, 1, 2, 17, 63, 64, 1000, 16_385, 100_003];

fn allreduce_all(hosts: usize, streams: usize, narrow: bool, lengths: &[usize]) {
    let mut rings = rings(hosts, streams, narrow);
    let mut cases = Vec::new();
    for (at, len) in lengths.iter().enumerate() {
        // Each kind and way with the short ones, in turn with the long ones.
        for (nth, dtype) in DType::ALL.into_iter().enumerate() {
            for (way, how) in Reduce::ALL.into_iter().enumerate() {
                if *len <= 64 || (nth + at + hosts) % 4 == way {
                    cases.push((dtype, how, *len));
                }
            }
        }
    }
    on_all(&mut rings, |host, ring| {
        for (seq, (dtype, how, len)) in (1..).zip(&cases) {
            let mut slice = Slice::new(contribution(*dtype, host, *len));
            ring.allreduce(op(seq, *dtype, *how, *len), fold(*dtype, *how, hosts), &mut slice).unwrap();
            let right = expected(*dtype, *how, hosts, *len);
            assert!(slice.result() == right, "{hosts} hosts, {len} of {dtype}, {how}");
            assert_eq!(slice.each_byte_once(), len * dtype.size());
        }
    });
}

#[test]
fn a_ring_of_any_size_reduces_anything() {
    for hosts in 2..=9 {
        allreduce_all(hosts, 1, false, &LENGTHS);
    }
}

#[test]
fn parallel_streams_give_the_same() {
    for (hosts, streams) in [(2, 2), (2, 4), (3, 3), (5, 2)] {
        allreduce_all(hosts, streams, false, &[0, 1, 1000, 16_385, 300_001]);
    }
}

#[test]
fn sockets_that_take_hardly_anything_do_not_lock_the_ring() {
    allreduce_all(2, 1, true, &[1, 1000, 40_000]);
    allreduce_all(3, 2, true, &[1, 1000, 40_000]);
}

#[test]
fn much_more_than_sockets_hold_goes_round() {
    let len = (24 << 20) / 4;
    let mut rings = rings(3, 2, false);
    on_all(&mut rings, |host, ring| {
        let mut slice = Slice::new(contribution(DType::F32, host, len));
        ring.allreduce(op(1, DType::F32, Reduce::Sum, len), fold(DType::F32, Reduce::Sum, 3), &mut slice)
            .unwrap();
        assert!(slice.result() == expected(DType::F32, Reduce::Sum, 3, len));
    });
}

/// Numbers whose sum depends on the order of addition.
fn rough(host: usize, len: usize) -> Vec<u8> {
    let mut state = host as u64 * 77 + 5;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let power = ((state >> 40) % 40) as i32 - 20;
        ((state >> 33) as f32).copysign(state as i64 as f32) * 2_f32.powi(power)
    };
    (0..len).flat_map(|_| next().to_ne_bytes()).collect()
}

#[test]
fn all_hosts_and_all_runs_end_bit_equal() {
    for hosts in [2, 3, 6] {
        for len in [1, 900, 50_000] {
            let mut results = Vec::new();
            for streams in [1, 2] {
                results.extend(on_all(&mut rings(hosts, streams, false), |host, ring| {
                    let mut slice = Slice::new(rough(host, len));
                    let fold = fold(DType::F32, Reduce::Mean, hosts);
                    ring.allreduce(op(1, DType::F32, Reduce::Mean, len), fold, &mut slice).unwrap();
                    slice.result().to_vec()
                }));
            }
            assert!(results.iter().all(|one| *one == results[0]), "{hosts} hosts, {len} values");
        }
    }
}

#[test]
fn blocks_of_any_length_are_gathered() {
    for hosts in 2..=5 {
        let mut at = 0;
        let blocks: Vec<Vec<Range<usize>>> = (0..hosts)
            .map(|host| {
                // Some hosts have two blocks, some an empty one.
                [host * 40_000 + 3, (host % 2) * 77].map(|len| (at, at += len).0..at).to_vec()
            })
            .collect();
        let mut rings = rings(hosts, 1 + hosts % 2, false);
        on_all(&mut rings, |host, ring| {
            let own = |bytes: &mut Vec<u8>, of: usize| {
                blocks[of].iter().for_each(|range| bytes[range.clone()].fill(of as u8 + 1));
            };
            let (mut mine, mut right) = (vec![0xdd; at], vec![0; at]);
            own(&mut mine, host);
            (0..hosts).for_each(|of| own(&mut right, of));
            let mut slice = Slice::new(mine);
            let kind = OpKind::Allgather { dtype: DType::F16 };
            ring.allgather(OpId { kind, seq: 1, len: at as u64 }, &blocks, &mut slice).unwrap();
            assert!(slice.result() == right);
            assert_eq!(slice.each_byte_once(), blocks[host].iter().map(Range::len).sum::<usize>());
        });
    }
}

#[test]
fn any_host_can_be_the_root_of_a_broadcast() {
    for hosts in 2..=5 {
        let mut rings = rings(hosts, 2, false);
        on_all(&mut rings, |host, ring| {
            for root in 0..hosts {
                for len in [0, 1, 70_001] {
                    let mut slice = Slice::new(contribution(DType::I32, host, len));
                    let kind = OpKind::Broadcast { root: root as u32 * 10, dtype: DType::I32 };
                    let op = OpId { kind, seq: (root * 4 + len % 4) as u64, len: len as u64 };
                    ring.broadcast(op, root, &mut slice).unwrap();
                    assert!(slice.result() == contribution(DType::I32, root, len));
                    let own = if host == root { 4 * len } else { 0 };
                    assert_eq!(slice.each_byte_once(), own);
                }
            }
        });
    }
}

#[test]
fn small_exchanges_reduce_among_any_number_of_hosts() {
    for hosts in 1..=9 {
        for narrow in [false, true] {
            on_all(&mut meshes(hosts, narrow), |host, mesh| {
                let mut seq = 0;
                for len in [0, 1, 5, 500, 8192] {
                    for dtype in DType::ALL {
                        for how in Reduce::ALL {
                            seq += 1;
                            let contributed = contribution(dtype, host, len);
                            let mut payload = heap(contributed.len());
                            payload.copy_from_slice_at(&contributed);
                            let bytes = &mut payload[..contributed.len()];
                            mesh.exchange(op(seq, dtype, how, len), fold(dtype, how, hosts), bytes, &mut patient)
                                .unwrap();
                            let right = expected(dtype, how, hosts, len);
                            assert!(hosts == 1 || *bytes == right, "{hosts} hosts, {len} of {dtype}, {how}");
                        }
                    }
                }
            });
        }
    }
}

#[test]
fn small_exchanges_end_bit_equal() {
    for hosts in 2..=9 {
        for len in [1, 700, 4000] {
            let results = on_all(&mut meshes(hosts, false), |host, mesh| {
                let mut payload = heap(4 * len);
                payload.copy_from_slice_at(&rough(host, len));
                let bytes = &mut payload[..4 * len];
                let fold = fold(DType::F32, Reduce::Sum, hosts);
                mesh.exchange(op(1, DType::F32, Reduce::Sum, len), fold, bytes, &mut patient).unwrap();
                bytes.to_vec()
            });
            assert!(results.iter().all(|one| *one == results[0]), "{hosts} hosts, {len} values");
        }
    }
}

/// Fills the beginning of a buffer that is as long as its lines.
trait CopyAt {
    fn copy_from_slice_at(&mut self, bytes: &[u8]);
}

impl CopyAt for Buffer<u8> {
    fn copy_from_slice_at(&mut self, bytes: &[u8]) {
        self[..bytes.len()].copy_from_slice(bytes);
    }
}
