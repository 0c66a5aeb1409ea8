//! The ring, as a plan: which part of the buffer travels when. Pure.
//!
//! Words: the buffer is cut into one *chunk* a rank; a chunk is cut into *segments*, the unit that is sent. The
//! ring has `n` ranks, and each sends to the next one only.
//!
//! **Allreduce** takes `2(n-1)` steps. In step `t` rank `r` sends chunk `r - t` and receives chunk `r - t - 1`
//! (modulo `n`), which is the one it sends in step `t + 1`. In the first `n - 1` steps (reduce-scatter) it adds what
//! it receives to its own values; so chunk `c` starts at rank `c`, gathers one rank's values a step, and is
//! complete at rank `c - 1` after `n - 1` steps. In the other `n - 1` steps (allgather) the complete chunks go
//! round once more and overwrite. Each chunk is summed along one path and then copied: all ranks end bit-equal,
//! and the order of addition depends on `n` and the length alone. A rank sends `2(n-1)/n` of the buffer.
//!
//! **Broadcast** is a chain that starts at the root and ends at the rank before it.
//!
//! Segment `j` of step `t + 1` needs only segment `j` of step `t` to have arrived, so the steps overlap: that is
//! the pipeline. Segments travel in plan order on each connection.

use std::ops::Range;

/// What to do with a received segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Add it to the values that are there.
    Add,
    /// Put it in their place.
    Replace,
}

/// A segment to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Send {
    /// Values, as a range of the buffer.
    pub(super) range: Range<usize>,
    /// How many segments must have been received before.
    pub(super) needs: usize,
}

/// A segment to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receive {
    /// Values, as a range of the buffer.
    pub(super) range: Range<usize>,
    /// What to do with it.
    pub(super) action: Action,
}

/// All segments of one operation of one rank, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To the next rank.
    pub(super) sends: Vec<Send>,
    /// From the rank before.
    pub(super) receives: Vec<Receive>,
}

/// The allreduce of `len` values for `rank` of `world`, in segments of at most `segment` values.
pub(super) fn allreduce(rank: usize, world: usize, len: usize, segment: usize) -> Plan {
    let mut plan = Plan::default();
    // Segments received before the current step began, and before the one before it.
    let (mut before_step, mut before_last) = (0, 0);
    for step in 0..2 * (world - 1) {
        for (j, range) in segments(chunk((rank + 2 * world - step) % world, world, len), segment).enumerate()
        {
            // What is sent in step t arrived in step t-1; in step 0 it is this rank's own.
            let needs = if step == 0 { 0 } else { before_last + j + 1 };
            plan.sends.push(Send { range, needs });
        }
        before_last = before_step;
        let action = if step < world - 1 { Action::Add } else { Action::Replace };
        for range in segments(chunk((rank + 2 * world - step - 1) % world, world, len), segment) {
            plan.receives.push(Receive { range, action });
            before_step += 1;
        }
    }
    plan
}

/// The broadcast of `len` values from `root` for `rank` of `world`.
pub(super) fn broadcast(rank: usize, root: usize, world: usize, len: usize, segment: usize) -> Plan {
    let mut plan = Plan::default();
    let place = (rank + world - root) % world;
    for (j, range) in segments(0..len, segment).enumerate() {
        if place > 0 {
            plan.receives.push(Receive { range: range.clone(), action: Action::Replace });
        }
        if place < world - 1 {
            plan.sends.push(Send { range, needs: if place == 0 { 0 } else { j + 1 } });
        }
    }
    plan
}

/// The values of chunk `index`: lengths differ by one at most, the first chunks are the longer ones.
fn chunk(index: usize, world: usize, len: usize) -> Range<usize> {
    let (base, longer) = (len / world, len % world);
    let start = index * base + index.min(longer);
    start..start + base + usize::from(index < longer)
}

fn segments(range: Range<usize>, segment: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(segment.max(1)).map(move |start| start..end.min(start + segment.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plans of all ranks against each other, one segment at a time, in an order that `pick` decides.
    fn simulate(plans: &[Plan], data: &mut [Vec<f64>], mut pick: impl FnMut(usize) -> usize) {
        let world = plans.len();
        let mut wires: Vec<Vec<Vec<f64>>> = vec![Vec::new(); world];
        let (mut sent, mut got) = (vec![0; world], vec![0; world]);
        loop {
            let mut moves: Vec<(usize, bool)> = Vec::new();
            for rank in 0..world {
                if plans[rank].sends.get(sent[rank]).is_some_and(|send| send.needs <= got[rank]) {
                    moves.push((rank, true));
                }
                if got[rank] < plans[rank].receives.len()
                    && wires[(rank + world - 1) % world].len() > got[rank]
                {
                    moves.push((rank, false));
                }
            }
            if moves.is_empty() {
                break;
            }
            let (rank, sending) = moves[pick(moves.len())];
            if sending {
                let range = plans[rank].sends[sent[rank]].range.clone();
                wires[rank].push(data[rank][range].to_vec());
                sent[rank] += 1;
            } else {
                let receive = &plans[rank].receives[got[rank]];
                let values = &wires[(rank + world - 1) % world][got[rank]];
                assert_eq!(values.len(), receive.range.len());
                for (mine, theirs) in data[rank][receive.range.clone()].iter_mut().zip(values) {
                    *mine = if receive.action == Action::Add { *mine + theirs } else { *theirs };
                }
                got[rank] += 1;
            }
        }
        for rank in 0..world {
            assert_eq!(
                (sent[rank], got[rank]),
                (plans[rank].sends.len(), plans[rank].receives.len()),
                "stuck"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn any_order_of_arrival_gives_the_same_sum(world in 1_usize..8, len in 0_usize..40, segment in 1_usize..6, seed: u64) {
            let mut data: Vec<Vec<f64>> =
                (0..world).map(|r| (0..len).map(|i| ((r * 31 + i * 7) % 97) as f64).collect()).collect();
            let sums: Vec<f64> = (0..len).map(|i| data.iter().map(|d| d[i]).sum()).collect();
            let plans: Vec<Plan> = (0..world).map(|r| allreduce(r, world, len, segment)).collect();
            let mut state = seed | 1;
            simulate(&plans, &mut data, |count| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % count
            });
            for values in &data {
                proptest::prop_assert_eq!(values, &sums);
            }
        }

        #[test]
        fn a_broadcast_reaches_all(world in 1_usize..8, root in 0_usize..8, len in 0_usize..40, segment in 1_usize..6) {
            let root = root % world;
            let mut data: Vec<Vec<f64>> = (0..world).map(|r| vec![r as f64; len]).collect();
            let plans: Vec<Plan> = (0..world).map(|r| broadcast(r, root, world, len, segment)).collect();
            simulate(&plans, &mut data, |count| count - 1);
            proptest::prop_assert!(data.iter().flatten().all(|v| v.to_bits() == (root as f64).to_bits()));
        }
    }
}
