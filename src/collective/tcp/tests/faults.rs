//! Ranks that die, stop, lie or diverge: the others know who, at once or at their deadline.

use std::io::Write;

use super::super::frame::Frame;
use super::super::peer_fault::PeerFault;
use super::*;

const LEN: usize = 100_000;

fn fault(outcome: Result<(), Broken>) -> PeerFault {
    match outcome {
        Err(Broken::PeerFault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

fn sum(ring: &mut HostRing, seq: u64, len: usize, handler: &mut dyn SliceHandler) -> Result<(), Broken> {
    ring.allreduce(op(seq, DType::F32, Reduce::Sum, len), fold(DType::F32, Reduce::Sum, 2), handler)
}

/// A slice whose patience ends at the first look.
struct Hasty(Slice);

impl SliceHandler for Hasty {
    fn memory(&mut self) -> &mut [u8] {
        self.0.memory()
    }
    fn prepare(&mut self, range: Range<usize>) {
        self.0.prepare(range);
    }
    fn finish(&mut self, range: Range<usize>) {
        self.0.finish(range);
    }
    fn tick(&mut self) -> Result<DeadlineState, CollectiveError> {
        Ok(DeadlineState::Passed)
    }
}

#[test]
fn neighbours_of_a_dead_host_name_it() {
    let mut rings = rings(4, 2, false);
    // Host 2 dies; what is buffered by then does not matter.
    drop(rings.remove(2));
    let outcomes = on_all(&mut rings, |host, ring| {
        let mut slice = Slice::new(contribution(DType::F32, host, LEN));
        let outcome = sum(ring, 1, LEN, &mut slice);
        // As a group does that has failed.
        ring.close();
        outcome
    });
    let about: Vec<u32> = outcomes.into_iter().map(|outcome| fault(outcome).about).collect();
    // Host 0 is no neighbour of the one that died first: it sees a neighbour that gave up.
    assert_eq!(about[1..], [20, 20], "{about:?}");
    assert!([10, 30].contains(&about[0]), "{about:?}");
}

#[test]
fn a_host_that_waits_for_nothing_from_the_dead_one_sees_it_go() {
    // Host 1 can't send before it has received, and host 0 says nothing.
    let mut rings = rings(3, 1, false);
    drop(rings.pop());
    let mut slice = Slice::new(contribution(DType::F32, 1, LEN));
    let op = OpId { kind: OpKind::Broadcast { root: 0, dtype: DType::F32 }, seq: 1, len: LEN as u64 };
    let fault = fault(rings[1].broadcast(op, 0, &mut slice));
    assert_eq!((fault.about, fault.kind, fault.progress), (20, PeerFaultKind::Lost, 0));
}

#[test]
fn a_stopped_host_is_named_by_the_one_behind_it() {
    let mut rings = rings(3, 1, false);
    let stopped = rings.remove(1);
    let outcomes = on_all(&mut rings, |host, ring| {
        sum(ring, 1, LEN, &mut Hasty(Slice::new(contribution(DType::F32, host, LEN))))
    });
    let faults: Vec<PeerFault> = outcomes.into_iter().map(fault).collect();
    assert_eq!((faults[1].about, &faults[1].kind), (10, &PeerFaultKind::Stuck));
    assert_eq!(faults[0].kind, PeerFaultKind::Stuck);
    drop(stopped);
}

#[test]
fn a_verdict_ends_the_wait() {
    struct Judged(Slice);
    impl SliceHandler for Judged {
        fn memory(&mut self) -> &mut [u8] {
            self.0.memory()
        }
        fn prepare(&mut self, range: Range<usize>) {
            self.0.prepare(range);
        }
        fn finish(&mut self, range: Range<usize>) {
            self.0.finish(range);
        }
        fn tick(&mut self) -> Result<DeadlineState, CollectiveError> {
            Err(CollectiveError::Abandoned)
        }
    }
    let mut rings = rings(2, 1, false);
    let mut handler = Judged(Slice::new(contribution(DType::F32, 0, LEN)));
    assert_eq!(sum(&mut rings[0], 1, LEN, &mut handler), Err(Broken::Told(CollectiveError::Abandoned)));
}

#[test]
fn hosts_that_diverge_know_it_on_both_ends() {
    let other_len = |host: usize| if host == 1 { LEN / 2 } else { LEN };
    let other_seq = |host: usize| if host == 1 { 8 } else { 7 };
    for (len, seq) in [(&other_len as &(dyn Fn(usize) -> usize + Sync), 7), (&|_| LEN, 0)] {
        let of = |host: usize| if seq == 0 { other_seq(host) } else { seq };
        let outcomes = on_all(&mut rings(2, 1, false), |host, ring| {
            sum(ring, of(host), len(host), &mut Slice::new(contribution(DType::F32, host, len(host))))
        });
        for (host, outcome) in outcomes.into_iter().enumerate() {
            let theirs = op(of(1 - host), DType::F32, Reduce::Sum, len(1 - host));
            let fault = fault(outcome);
            assert_eq!((fault.about, fault.kind), (10 - host as u32 * 10, PeerFaultKind::Diverged(theirs)));
        }
    }
}

#[test]
fn leaders_that_diverge_know_it_on_both_ends() {
    for hosts in [2, 3] {
        let outcomes = on_all(&mut meshes(hosts, false), |host, mesh| {
            let how = if host == 0 { Reduce::Min } else { Reduce::Max };
            let mut payload = heap(64);
            let (op, fold) = (op(3, DType::F64, how, 8), fold(DType::F64, how, hosts));
            let outcome = mesh.exchange(op, fold, &mut payload, &mut patient);
            mesh.close();
            outcome
        });
        let faults: Vec<PeerFault> = outcomes.into_iter().map(fault).collect();
        assert_eq!(faults[0].kind, PeerFaultKind::Diverged(op(3, DType::F64, Reduce::Max, 8)));
        assert_eq!(
            (faults[1].about, &faults[1].kind),
            (0, &PeerFaultKind::Diverged(op(3, DType::F64, Reduce::Min, 8)))
        );
    }
}

#[test]
fn a_leader_that_dies_or_stops_is_named() {
    let mut meshes = meshes(4, false);
    drop(meshes.remove(3));
    let (op, fold) = (op(1, DType::F32, Reduce::Sum, 1), fold(DType::F32, Reduce::Sum, 4));
    let lost = fault(meshes[2].exchange(op, fold, &mut heap(64)[..4], &mut patient));
    assert_eq!((lost.about, lost.kind), (30, PeerFaultKind::Lost));
    let stuck = fault(meshes[0].exchange(op, fold, &mut heap(64)[..4], &mut || Ok(DeadlineState::Passed)));
    assert_eq!((stuck.about, stuck.kind), (10, PeerFaultKind::Stuck));
}

/// One ring of two whose other host is played by the test.
fn with_liar(lie: &[u8], closes: bool) -> PeerFault {
    let ((to, their_in), (their_out, from)) = (pair(false), pair(false));
    let mut ring = HostRing::new((0, 2), (10, vec![to]), (10, vec![from]), patience());
    (&their_out).write_all(lie).unwrap();
    let open = (!closes).then_some((their_in, their_out));
    let outcome = sum(&mut ring, 7, LEN, &mut Slice::new(contribution(DType::F32, 0, LEN)));
    drop(open);
    fault(outcome)
}

#[test]
fn lies_are_seen_in_the_first_header() {
    // The first segment that a host of two receives.
    let right = Frame { op: op(7, DType::F32, Reduce::Sum, LEN), number: 0, offset: 0, len: 200_000 };
    let garbled = |lie: &[u8]| match with_liar(lie, false).kind {
        PeerFaultKind::Garbled(words) => words,
        other => panic!("{other:?}"),
    };
    assert!(garbled(&[0x47; 64]).starts_with("[47, 47, 47, 47"));
    let words = garbled(&Frame { len: u64::MAX, ..right }.encode());
    assert!(words.contains("18446744073709551615 bytes") && words.contains("200000 bytes"), "{words}");
    for lie in [Frame { number: 1, ..right }, Frame { offset: 64, ..right }] {
        garbled(&lie.encode());
    }
    let last = Frame { op: op(6, DType::F32, Reduce::Sum, LEN), ..right };
    assert_eq!(with_liar(&last.encode(), false).kind, PeerFaultKind::Diverged(last.op));
    // A true header, and then nothing.
    assert_eq!(with_liar(&right.encode(), true).kind, PeerFaultKind::Lost);
    assert_eq!(with_liar(&right.encode()[..63], true).kind, PeerFaultKind::Lost);
}
