//! Tests of the messages: what is written is read again, and secrets are not shown.

use std::collections::BTreeMap;

use super::super::frame::Decoder;
use super::super::message::*;
use super::super::signal::SignalAsk;
use super::*;
use crate::domain::collectives::HostCollectives;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::late::Late;
use crate::domain::log::Stream;
use crate::domain::signal::{ProcessKey, SignalName, SignalRequest};
use crate::domain::time::Stamp;
use proptest::prelude::*;

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
}

#[test]
fn a_message_of_a_newer_peer_is_skipped() {
    let mut out = BytesMut::new();
    frame::encode(999, b"{\"new\":true}", &mut out).unwrap();
    json(2, &serde_json::json!({"t0": 5, "added_later": "x"}), &mut out).unwrap();
    let frames = frames(&out);
    assert_eq!(ToAgent::decode(&frames[0]).unwrap(), None);
    assert_eq!(ToAgent::decode(&frames[1]).unwrap(), Some(ToAgent::Ping(Ping { t0: Stamp(5) })));
}

#[test]
fn stacks_of_an_older_agent_have_no_collectives() {
    let stacks = Stacks {
        run: RunId::new(1, 2),
        host: HostId::from("a"),
        of: Vec::new(),
        why: None,
        threads: None,
        collectives: HostCollectives::default(),
        last: true,
    };
    let mut out = BytesMut::new();
    FromAgent::Stacks(stacks.clone()).encode(&mut out).unwrap();
    let frame = &frames(&out)[0];
    assert!(!String::from_utf8_lossy(&frame.payload).contains("collectives"), "nor do those with none");
    assert_eq!(FromAgent::decode(frame).unwrap(), Some(FromAgent::Stacks(stacks)));
}

#[test]
fn a_request_for_a_signal_has_a_stable_form() {
    let process = ProcessKey { pid: 7, start: 9 };
    let request =
        SignalRequest::Send { boot: "b".to_owned(), signal: SignalName::Term, processes: vec![process] };
    let message = ToAgent::Signal(SignalAsk { number: 3, request });
    let mut out = BytesMut::new();
    message.encode(&mut out).unwrap();
    let frame = &frames(&out)[0];
    let expected =
        r#"{"number":3,"ask":"send","boot":"b","signal":"TERM","processes":[{"pid":7,"start":9}]}"#;
    assert_eq!((frame.kind, &frame.payload[..]), (26, expected.as_bytes()));
    assert_eq!(ToAgent::decode(frame).unwrap(), Some(message));
}

#[test]
fn the_secret_does_not_show_in_debug_output() {
    let commit = Commit {
        run: RunId::new(1, 2),
        host: HostId::from("a"),
        attempt: 0,
        late: Late {
            secrets: BTreeMap::from([("HVTUI_SECRET".to_owned(), "canary".to_owned())]),
            ..Late::default()
        },
    };
    assert!(!format!("{:?}", ToAgent::Commit(commit)).contains("canary"));
}

proptest! {
    #[test]
    fn chunks_round_trip(rank: u32, stream in 0usize..3, offset: u64, data in prop::collection::vec(any::<u8>(), 0..500)) {
        let chunk = FromAgent::Chunk(Chunk {
            run: RunId::new(7, 9), rank: Rank(rank), stream: Stream::ALL[stream], offset, data: data.into(),
        });
        let mut out = BytesMut::new();
        chunk.encode(&mut out).unwrap();
        prop_assert_eq!(FromAgent::decode(&frames(&out)[0]).unwrap(), Some(chunk));
    }

    #[test]
    fn pieces_of_a_trace_round_trip(pid: u32, offset: u64, data in prop::collection::vec(any::<u8>(), 0..500)) {
        let piece = FromAgent::TracePiece(TracePiece { run: RunId::new(7, 9), pid, offset, data: data.into() });
        let mut out = BytesMut::new();
        piece.encode(&mut out).unwrap();
        prop_assert_eq!(FromAgent::decode(&frames(&out)[0]).unwrap(), Some(piece));
    }

    #[test]
    fn pieces_of_a_content_round_trip(upload: u32, name: [u8; 32], size: u64, offset: u64, data in prop::collection::vec(any::<u8>(), 0..500)) {
        let name = crate::domain::sync::Digest(name);
        let piece = ToAgent::BlobPiece(BlobPiece { upload, name, size, offset, data: data.into() });
        let mut out = BytesMut::new();
        piece.encode(&mut out).unwrap();
        prop_assert_eq!(ToAgent::decode(&frames(&out)[0]).unwrap(), Some(piece));
    }

    #[test]
    fn garbage_never_panics(kind: u16, payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let frame = Frame { kind, payload: payload.into() };
        let _ = ToAgent::decode(&frame);
        let _ = FromAgent::decode(&frame);
    }
}
