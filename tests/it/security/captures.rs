//! What client and agent once said to each other, with one thing changed in it: what comes before the change is heard as
//! it was, what is refused says why, and none costs much.

use std::path::Path;
use std::time::Duration;

use hvtui::wire::frame::{Decoder, Frame, FrameError};
use hvtui::wire::message::{FromAgent, MessageError, ToAgent};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rustix::time::{ClockId, clock_gettime};

use crate::common::alone::alone;
use crate::common::bodies;

/// What all captures together may take.
const MEMORY_KIB: u64 = 16 << 10;
const PROCESSOR: Duration = Duration::from_secs(20);

/// One frame as both sides understand it. In words: a number may be NaN, which is not equal to itself.
fn understood(frame: &Frame) -> String {
    let (to, from) = (ToAgent::decode(frame), FromAgent::decode(frame));
    for error in [to.as_ref().err(), from.as_ref().err()].into_iter().flatten() {
        let MessageError::Malformed { kind, detail } = error else {
            panic!("{error}: to decode makes no message")
        };
        assert!(*kind == frame.kind && !detail.is_empty(), "{error:?} of {frame:?}");
        assert!(error.to_string().contains(detail), "{error}");
    }
    format!("{frame:?}: {to:?} or {from:?}")
}

/// All that is understood of bytes that come in pieces of this size, where each frame ended, and why the rest is none.
fn heard(bytes: &[u8], piece: usize) -> (Vec<(usize, String)>, Option<FrameError>) {
    let (mut decoder, mut heard, mut end) = (Decoder::default(), Vec::new(), 0);
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    end += 4 + 2 + frame.payload.len();
                    heard.push((end, understood(&frame)));
                }
                Ok(None) => break,
                Err(error) => return (heard, Some(error)),
            }
        }
    }
    assert_eq!(end + decoder.held(), bytes.len(), "each byte is of a frame or waits");
    (heard, None)
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

#[test]
fn vector_13_two_hundred_mutated_captures_are_read_or_refused() {
    if !alone("security::captures::vector_13_two_hundred_mutated_captures_are_read_or_refused", &[]) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus/frames");
    // the first byte is the fuzzer's own
    let mut captures: Vec<Vec<u8>> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap().split_off(1))
        .collect();
    captures.sort();
    let whole: Vec<_> = captures.iter().map(|capture| heard(capture, capture.len())).collect();
    assert!(whole.iter().any(|(frames, _)| frames.len() > 3), "{whole:?}");
    let (memory, began) = (peak_kib(), processor_time());
    let (mut refused, mut compared, mut changed) = (0, 0, 0);
    let mut runner = TestRunner::deterministic();
    let edit = (0..captures.len(), proptest::num::usize::ANY, proptest::num::u8::ANY, 0..4u8, 1..256usize);
    for _ in 0..200 {
        let (which, at, byte, how, piece) = edit.new_tree(&mut runner).unwrap().current();
        let (mut capture, (original, broken)) = (captures[which].clone(), &whole[which]);
        let at = at % capture.len();
        match how {
            0 => capture[at] = byte,
            1 => capture.truncate(at),
            2 => capture.insert(at, byte),
            _ => capture.extend_from_within(at..),
        }
        let untouched = if how == 3 { captures[which].len() } else { at };
        let (now, why) = heard(&capture, piece);
        let same = original.iter().take_while(|(end, _)| *end <= untouched).count();
        assert_eq!(now.get(..same), original.get(..same), "before byte {at} of {which} all is as it was");
        (compared, changed) = (compared + same, changed + usize::from(now != *original));
        if let Some(error) = why {
            refused += 1;
            // the words have the number that stands there, and nothing before it was the reason
            let from = now.last().map_or(0, |(end, _)| *end);
            let says = u32::from_le_bytes(capture[from..from + 4].try_into().unwrap());
            assert!(from + 4 > untouched || broken.is_some(), "{which} from {from}: {error}");
            assert!(error.to_string().starts_with(&format!("frame of {says} bytes, at ")), "{error}");
        }
        bodies::frames(&[&[piece as u8][..], &capture].concat());
    }
    assert!(refused > 10 && compared > 200 && changed > 50, "{refused} {compared} {changed}");
    let (memory, took) = (peak_kib() - memory, processor_time().saturating_sub(began));
    assert!(memory <= MEMORY_KIB, "{memory} KiB");
    assert!(took <= PROCESSOR, "{took:?}");
}
