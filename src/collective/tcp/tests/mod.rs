//! Hosts as threads of one process, joined by loopback connections.

mod faults;
mod matrix;

use std::net::{TcpListener, TcpStream};
use std::ops::Range;

use super::super::buffer::{Buffer, heap};
use super::super::deadline::Deadline;
use super::super::element::{DType, Reduce, bf16, f16};
use super::super::error::CollectiveError;
use super::super::kernels::Finish;
use super::super::op::{OpId, OpKind};
use super::super::socket;
use super::*;

/// Far more than any test takes.
const LIMIT: u64 = 60_000_000;

fn patience() -> Patience {
    Patience { clock: crate::clock::host_now, spin: 20 }
}

/// The two ends of a connection. A `narrow` one takes a few KiB at a time, so everything moves in bits. (Its receive
/// buffer is as ever: a window smaller than loopback's packets moves by the timers of TCP alone.)
fn pair(narrow: bool) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    for end in [&one, &other] {
        socket::prepare(end).unwrap();
        if narrow {
            rustix::net::sockopt::set_socket_send_buffer_size(end, 1).unwrap();
        }
    }
    (one, other)
}

/// A ring of hosts; the rank of host `h` is `10 h`.
fn rings(hosts: usize, streams: usize, narrow: bool) -> Vec<HostRing> {
    let rank = |host: usize| (host % hosts) as u32 * 10;
    let mut to_next = Vec::new();
    let mut from_before: Vec<Vec<TcpStream>> = (0..hosts).map(|_| Vec::new()).collect();
    for host in 0..hosts {
        let (out, into): (Vec<_>, Vec<_>) = (0..streams).map(|_| pair(narrow)).unzip();
        to_next.push(out);
        from_before[(host + 1) % hosts] = into;
    }
    let ends = to_next.into_iter().zip(from_before).enumerate();
    ends.map(|(host, (to, from))| {
        HostRing::new(
            (host, hosts),
            (rank(host + 1), to),
            (rank(host + hosts - 1), from),
            Patience { spin: host as u32 * 10, ..patience() },
        )
    })
    .collect()
}

#[expect(clippy::needless_range_loop, reason = "each connection has an end at two hosts")]
fn meshes(hosts: usize, narrow: bool) -> Vec<Mesh> {
    let mut ends: Vec<Vec<Option<(u32, TcpStream)>>> =
        (0..hosts).map(|_| (0..hosts).map(|_| None).collect()).collect();
    for one in 0..hosts {
        for other in 0..one {
            let (a, b) = pair(narrow);
            ends[one][other] = Some((other as u32 * 10, a));
            ends[other][one] = Some((one as u32 * 10, b));
        }
    }
    ends.into_iter().enumerate().map(|(host, peers)| Mesh::new(host, peers, patience())).collect()
}

/// Each host's part in a thread of its own; what came out, by host.
fn on_all<M: Send, R: Send>(members: &mut [M], part: impl Fn(usize, &mut M) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> =
            members.iter_mut().enumerate().map(|(at, one)| scope.spawn(move || part(at, one))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A slice that keeps a record of what was asked of it.
struct Slice {
    memory: Buffer<u8>,
    len: usize,
    own: Vec<u8>,
    prepared: Vec<Range<usize>>,
    finished: Vec<Range<usize>>,
    deadline: Deadline,
}

impl Slice {
    /// With `own` as the host's contribution, which is not there before it is asked for.
    fn new(own: Vec<u8>) -> Self {
        let (mut memory, len) = (heap(own.len()), own.len());
        memory.fill(0xee);
        let deadline = Deadline::after(crate::clock::host_now, LIMIT);
        Self { memory, len, own, prepared: Vec::new(), finished: Vec::new(), deadline }
    }

    fn result(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Each byte was final exactly once; how many were this host's own.
    fn each_byte_once(&mut self) -> usize {
        let count = |ranges: &mut Vec<Range<usize>>| {
            ranges.sort_by_key(|range| range.start);
            assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "{ranges:?}");
            ranges.iter().map(Range::len).sum::<usize>()
        };
        assert_eq!(count(&mut self.finished), self.len);
        count(&mut self.prepared)
    }
}

impl SliceHandler for Slice {
    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }

    fn prepare(&mut self, range: Range<usize>) {
        self.memory[range.clone()].copy_from_slice(&self.own[range.clone()]);
        self.prepared.push(range);
    }

    fn finish(&mut self, range: Range<usize>) {
        self.finished.push(range);
    }

    fn tick(&mut self) -> Result<DeadlineState, CollectiveError> {
        Ok(if self.deadline.passed() { DeadlineState::Passed } else { DeadlineState::NotReached })
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what a tick returns")]
fn patient() -> Result<DeadlineState, CollectiveError> {
    Ok(DeadlineState::NotReached)
}

fn op(seq: u64, dtype: DType, how: Reduce, len: usize) -> OpId {
    OpId { kind: OpKind::Allreduce { dtype, how }, seq, len: len as u64 }
}

fn fold(dtype: DType, how: Reduce, hosts: usize) -> Fold {
    let finish = if how == Reduce::Mean { Finish::Divide(hosts as u32) } else { Finish::Keep };
    Fold { dtype, how, finish }
}

/// A small number in the bytes of any kind, exact in all of them.
fn number(dtype: DType, value: i32) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F64 => f64::from(value).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f32(value as f32).to_ne_bytes().to_vec(),
        DType::I32 => value.to_ne_bytes().to_vec(),
        DType::I64 => i64::from(value).to_ne_bytes().to_vec(),
    }
}

/// The same for a quotient.
fn quotient(dtype: DType, value: i32, by: i32) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32 / by as f32).to_ne_bytes().to_vec(),
        DType::F64 => (f64::from(value) / f64::from(by)).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32 / by as f32).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f32(value as f32 / by as f32).to_ne_bytes().to_vec(),
        DType::I32 | DType::I64 => number(dtype, value / by),
    }
}

/// Value `i` of a host.
fn value(host: usize, i: usize) -> i32 {
    ((host * 7 + i * 3) % 11) as i32 - 5
}

/// A host's contribution.
fn contribution(dtype: DType, host: usize, len: usize) -> Vec<u8> {
    (0..len).flat_map(|i| number(dtype, value(host, i))).collect()
}

/// The reduction, by plain counting.
fn expected(dtype: DType, how: Reduce, hosts: usize, len: usize) -> Vec<u8> {
    // Values repeat after eleven.
    let period: Vec<Vec<u8>> = (0..11)
        .map(|i| {
            let all = (0..hosts).map(|host| value(host, i));
            match how {
                Reduce::Sum => number(dtype, all.sum()),
                Reduce::Mean => quotient(dtype, all.sum(), hosts as i32),
                Reduce::Min => number(dtype, all.min().unwrap()),
                Reduce::Max => number(dtype, all.max().unwrap()),
            }
        })
        .collect();
    (0..len).flat_map(|i| period[i % 11].iter().copied()).collect()
}
