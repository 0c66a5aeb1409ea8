//! The hosts' ring, as a plan: which part of the slice travels when. Pure.
//!
//! Words: the slice is cut into one *chunk* a host; a chunk is cut into *segments*, the unit that is sent. The ring
//! has `n` hosts, and each sends to the next one only.
//!
//! **Allreduce** takes `2(n-1)` steps. In step `t` host `h` sends chunk `h - t` and receives chunk `h - t - 1`
//! (modulo `n`), which is the one it sends in step `t + 1`. In the first `n - 1` steps (reduce-scatter) it adds what
//! it receives to its own values; so chunk `c` starts at host `c`, gathers one host's values a step, and is
//! complete at host `c - 1` after `n - 1` steps. In the other `n - 1` steps (allgather) the complete chunks go
//! round once more and overwrite. Each chunk is summed along one path and then copied: all hosts end bit-equal,
//! and the order of addition depends on `n` and the length alone. A host sends `2(n-1)/n` of the slice.
//!
//! **Allgather** is the second half alone. **Broadcast** is a chain from the root to the host before it.
//!
//! Segment `j` of step `t + 1` needs only segment `j` of step `t` to have arrived, so the steps overlap: that is
//! the pipeline. With `k` parallel streams, segment `j` of every chunk travels on stream `j mod k`; so each stream
//! has a plan of its own, in whose order segments travel, and streams never wait for each other.

use std::ops::Range;

/// Chunks begin at multiples of this many bytes: whole cache lines, and whole values of every kind.
const LINE: usize = 64;
/// The longest segment: it and what it is added to stay in a core's L2 cache.
pub(super) const LONGEST: usize = 512 << 10;
/// The shortest that is cut for the pipeline's sake: below it a frame costs more than the overlap gains.
const SHORTEST: usize = 32 << 10;
/// The most bytes that two hosts exchange whole.
const EXCHANGE: usize = 512 << 10;
/// Segments that a chunk should have at least, so that the steps overlap. Each ends in a packet that is not full: more of them
/// cost more than they gain.
const OVERLAP: usize = 2;

/// What to do with a received segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Add it to the values that are there.
    Add,
    /// The same, and the sum is complete.
    AddLast,
    /// Put it in their place.
    Replace,
}

/// A segment to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Send {
    /// Bytes of the slice.
    pub(super) range: Range<usize>,
    /// How many segments must have been received before.
    pub(super) needs: usize,
    /// It is this host's own, used here for the first time.
    pub(super) own: bool,
    /// It is final already, and nothing but this says so.
    pub(super) settles: bool,
}

/// A segment to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Receive {
    /// Bytes of the slice.
    pub(super) range: Range<usize>,
    /// What to do with it.
    pub(super) action: Action,
    /// How many segments must have been sent before: this host's own values of the range are among them.
    pub(super) after: usize,
}

/// All segments of one operation on one stream of one host, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To the next host.
    pub(super) sends: Vec<Send>,
    /// From the host before.
    pub(super) receives: Vec<Receive>,
}

/// One of several parallel streams: its number, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) number: usize,
    pub(super) of: usize,
}

/// The place of a host in the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) host: usize,
    pub(super) hosts: usize,
}

impl Place {
    /// The chunk that is sent in a step.
    fn sends(self, step: usize) -> usize {
        (self.host + 2 * self.hosts - step) % self.hosts
    }
}

/// The allreduce of `len` bytes, in segments of at most `longest`.
pub(super) fn allreduce(place: Place, stream: Stream, len: usize, longest: usize) -> Plan {
    let Place { hosts, .. } = place;
    if hosts == 2 && len <= EXCHANGE {
        return exchange(stream, len, longest);
    }
    round(place, stream, longest, hosts - 1, 2 * (hosts - 1), &|chunk| vec![lines(chunk, hosts, len)])
}

/// The allreduce of two hosts where a journey costs more than adding does: each sends all it has and adds what comes.
fn exchange(stream: Stream, len: usize, longest: usize) -> Plan {
    let mut plan = Plan::default();
    for (j, range) in segments(std::slice::from_ref(&(0..len)), stream, longest).enumerate() {
        plan.sends.push(Send { range: range.clone(), needs: 0, own: true, settles: false });
        plan.receives.push(Receive { range, action: Action::AddLast, after: j + 1 });
    }
    plan
}

/// The allgather of the hosts' blocks.
pub(super) fn allgather(place: Place, stream: Stream, blocks: &[Vec<Range<usize>>], longest: usize) -> Plan {
    round(place, stream, longest, 0, place.hosts - 1, &|chunk| blocks[chunk].clone())
}

/// `adding` steps that add, `steps` in all.
fn round(
    place: Place,
    stream: Stream,
    longest: usize,
    adding: usize,
    steps: usize,
    chunk: &dyn Fn(usize) -> Vec<Range<usize>>,
) -> Plan {
    let mut plan = Plan::default();
    // Segments received before the last step began.
    let mut before_last = 0;
    for step in 0..steps {
        let before_step = plan.receives.len();
        for (j, range) in segments(&chunk(place.sends(step)), stream, longest).enumerate() {
            // What is sent in step t arrived in step t-1; in step 0 it is this host's own.
            let (own, needs) = if step == 0 { (true, 0) } else { (false, before_last + j + 1) };
            plan.sends.push(Send { range, needs, own, settles: own && adding == 0 });
        }
        let action = match step + 1 {
            next if next < adding => Action::Add,
            next if next == adding => Action::AddLast,
            _ => Action::Replace,
        };
        let arriving = chunk(place.sends(step + 1));
        plan.receives.extend(segments(&arriving, stream, longest).map(|range| Receive {
            range,
            action,
            after: 0,
        }));
        before_last = before_step;
    }
    plan
}

/// The broadcast of `len` bytes from host `root`.
pub(super) fn broadcast(place: Place, stream: Stream, root: usize, len: usize, longest: usize) -> Plan {
    let mut plan = Plan::default();
    let links = (place.host + place.hosts - root) % place.hosts;
    for (j, range) in segments(std::slice::from_ref(&(0..len)), stream, longest).enumerate() {
        let own = links == 0;
        if !own {
            plan.receives.push(Receive { range: range.clone(), action: Action::Replace, after: 0 });
        }
        if links < place.hosts - 1 {
            plan.sends.push(Send { range, needs: if own { 0 } else { j + 1 }, own, settles: own });
        }
    }
    plan
}

/// The bytes of chunk `index` of `len` bytes: whole lines; the first chunks are the longer ones.
fn lines(index: usize, hosts: usize, len: usize) -> Range<usize> {
    let chunk = super::super::communicator::chunk(index, hosts, len.div_ceil(LINE));
    (chunk.start * LINE).min(len)..(chunk.end * LINE).min(len)
}

/// The segments of some blocks that travel on `stream`.
fn segments(
    blocks: &[Range<usize>],
    stream: Stream,
    longest: usize,
) -> impl Iterator<Item = Range<usize>> + use<> {
    let all: Vec<Range<usize>> = blocks
        .iter()
        .flat_map(|block| {
            let (size, end) = (segment(block.len(), longest), block.end);
            block.clone().step_by(size).map(move |start| start..end.min(start + size))
        })
        .collect();
    all.into_iter().skip(stream.number).step_by(stream.of)
}

/// How long the segments of a chunk of `len` bytes are: whole lines, unless `longest` is less than one.
fn segment(len: usize, longest: usize) -> usize {
    let fair = len.div_ceil(OVERLAP).clamp(SHORTEST, LONGEST).next_multiple_of(LINE);
    fair.min(longest.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plans of all hosts' streams against each other, a segment at a time, in an order that `pick`
    /// decides. Values are numbers of which one takes a byte of the plan.
    fn simulate(plans: &[Vec<Plan>], data: &mut [Vec<f64>], mut pick: impl FnMut(usize) -> usize) {
        let (hosts, streams) = (plans.len(), plans[0].len());
        let mut wires = vec![vec![Vec::<Vec<f64>>::new(); streams]; hosts];
        let (mut sent, mut got) = (vec![vec![0; streams]; hosts], vec![vec![0; streams]; hosts]);
        loop {
            let mut moves: Vec<(usize, usize, bool)> = Vec::new();
            for host in 0..hosts {
                for stream in 0..streams {
                    let plan = &plans[host][stream];
                    if plan.sends.get(sent[host][stream]).is_some_and(|send| send.needs <= got[host][stream])
                    {
                        moves.push((host, stream, true));
                    }
                    let arrived = wires[(host + hosts - 1) % hosts][stream].len();
                    let next = got[host][stream];
                    if next < plan.receives.len().min(arrived)
                        && sent[host][stream] >= plan.receives[next].after
                    {
                        moves.push((host, stream, false));
                    }
                }
            }
            if moves.is_empty() {
                break;
            }
            let (host, stream, sending) = moves[pick(moves.len())];
            if sending {
                let range = plans[host][stream].sends[sent[host][stream]].range.clone();
                wires[host][stream].push(data[host][range].to_vec());
                sent[host][stream] += 1;
            } else {
                let receive = &plans[host][stream].receives[got[host][stream]];
                let values = &wires[(host + hosts - 1) % hosts][stream][got[host][stream]];
                assert_eq!(values.len(), receive.range.len());
                for (mine, theirs) in data[host][receive.range.clone()].iter_mut().zip(values) {
                    *mine = if receive.action == Action::Replace { *theirs } else { *mine + theirs };
                }
                got[host][stream] += 1;
            }
        }
        for (host, plans) in plans.iter().enumerate() {
            for (stream, plan) in plans.iter().enumerate() {
                let done = (sent[host][stream], got[host][stream]);
                assert_eq!(done, (plan.sends.len(), plan.receives.len()), "stuck");
            }
        }
    }

    /// A plan for each host and stream.
    fn plans(hosts: usize, of: usize, plan: impl Fn(Place, Stream) -> Plan) -> Vec<Vec<Plan>> {
        let streams =
            |host| (0..of).map(|number| plan(Place { host, hosts }, Stream { number, of })).collect();
        (0..hosts).map(streams).collect()
    }

    fn ordered(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed | 1;
        move |count| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % count
        }
    }

    /// Each byte of the slice is this host's own once at most, and final exactly once.
    fn each_byte_once(plans: &[Plan], len: usize, contributes: usize) {
        let (mut own, mut finals) = (vec![0; len], vec![0; len]);
        for plan in plans {
            for send in &plan.sends {
                own[send.range.clone()].iter_mut().for_each(|times| *times += usize::from(send.own));
                finals[send.range.clone()].iter_mut().for_each(|times| *times += usize::from(send.settles));
            }
            for receive in &plan.receives {
                let adds = usize::from(receive.action != Action::Replace && receive.after == 0);
                own[receive.range.clone()].iter_mut().for_each(|times| *times += adds);
                let settles = usize::from(receive.action != Action::Add);
                finals[receive.range.clone()].iter_mut().for_each(|times| *times += settles);
            }
        }
        assert_eq!(own.iter().sum::<usize>(), contributes);
        assert!(own.iter().all(|times| *times <= 1));
        assert!(finals.iter().all(|times| *times == 1));
    }

    proptest::proptest! {
        #[test]
        fn any_order_of_arrival_gives_the_same_sum(
            hosts in 2_usize..9, streams in 1_usize..4, len in 0_usize..1500, longest in 1_usize..150, seed: u64,
        ) {
            let mut data: Vec<Vec<f64>> =
                (0..hosts).map(|h| (0..len).map(|i| ((h * 31 + i * 7) % 97) as f64).collect()).collect();
            let sums: Vec<f64> = (0..len).map(|i| data.iter().map(|d| d[i]).sum()).collect();
            let plans = plans(hosts, streams, |place, stream| allreduce(place, stream, len, longest));
            simulate(&plans, &mut data, ordered(seed));
            for (values, plans) in data.iter().zip(&plans) {
                proptest::prop_assert_eq!(values, &sums);
                each_byte_once(plans, len, len);
            }
        }

        #[test]
        fn a_broadcast_reaches_all(
            hosts in 2_usize..8, streams in 1_usize..4, root in 0_usize..8, len in 0_usize..400, longest in 1_usize..60, seed: u64,
        ) {
            let root = root % hosts;
            let mut data: Vec<Vec<f64>> = (0..hosts).map(|h| vec![h as f64; len]).collect();
            let plans = plans(hosts, streams, |place, stream| broadcast(place, stream, root, len, longest));
            simulate(&plans, &mut data, ordered(seed));
            proptest::prop_assert!(data.iter().flatten().all(|v| v.to_bits() == (root as f64).to_bits()));
            for (host, plans) in plans.iter().enumerate() {
                each_byte_once(plans, len, if host == root { len } else { 0 });
            }
        }

        #[test]
        fn an_allgather_gives_all_blocks_to_all(
            lengths in proptest::collection::vec(proptest::collection::vec(0_usize..200, 0..3), 2..7),
            streams in 1_usize..4, longest in 1_usize..60, seed: u64,
        ) {
            let (hosts, mut at) = (lengths.len(), 0);
            let blocks: Vec<Vec<Range<usize>>> = lengths.iter().map(|of_host| of_host.iter().map(|len| {
                at += len;
                at - len..at
            }).collect()).collect();
            let mut data: Vec<Vec<f64>> = vec![vec![-1.0; at]; hosts];
            for (host, blocks) in blocks.iter().enumerate() {
                for range in blocks {
                    data[host][range.clone()].fill(host as f64);
                }
            }
            let plans = plans(hosts, streams, |place, stream| allgather(place, stream, &blocks, longest));
            simulate(&plans, &mut data, ordered(seed));
            for (host, values) in data.iter().enumerate() {
                for (owner, blocks) in blocks.iter().enumerate() {
                    for range in blocks {
                        proptest::prop_assert!(values[range.clone()].iter().all(|v| *v as usize == owner));
                    }
                }
                let own = blocks[host].iter().map(Range::len).sum();
                each_byte_once(&plans[host], at, own);
            }
        }
    }

    #[test]
    fn segments_are_long_where_the_slice_is_and_whole_lines() {
        assert_eq!(segment(64 << 20, LONGEST), LONGEST);
        assert_eq!(segment(100_000, LONGEST), 50_048);
        assert_eq!(segment(40, LONGEST), SHORTEST);
        let place = Place { host: 0, hosts: 3 };
        let plan = allreduce(place, Stream { number: 0, of: 1 }, 1_000_004, LONGEST);
        assert!(plan.sends.iter().all(|send| send.range.start % LINE == 0));
    }
}
