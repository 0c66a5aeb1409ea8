//! An agent that sends too much, and a link that is full both ways.

use super::*;
use crate::domain::fixtures::host_sample;

#[tokio::test]
async fn who_sends_more_than_it_was_granted_loses_the_link() {
    let mut bench = bench_of(200_000);
    bench.send(follow());
    let ended = bench
        .talk(None, async |agent| {
            agent.greet().await;
            assert!(matches!(agent.hear().await, ToAgent::Follow(_)));
            let lines = "y\n".repeat(8000);
            let mut out = BytesMut::new();
            for piece in 0..400 {
                let data = Bytes::copy_from_slice(lines.as_bytes());
                let offset = piece * lines.len() as u64;
                let chunk = Chunk { run: run(), rank: Rank(0), stream: Stream::Stdout, offset, data };
                FromAgent::Chunk(chunk).encode(&mut out).unwrap();
            }
            // all at once, whatever is granted meanwhile: the client hangs up
            let _ = agent.pipe.write_all(&out).await;
            let mut rest = Vec::new();
            let _ = agent.pipe.read_to_end(&mut rest).await;
        })
        .await;
    let Some(LinkError::Cut(why)) = ended else { panic!("{ended:?}") };
    assert!(why.starts_with("the link to a was ended: ") && why.contains("than it was granted"), "{why}");
    assert!(!bench.told().is_empty(), "what came before counts");
}

#[tokio::test]
async fn what_a_flood_of_samples_loses_is_told() {
    let mut bench = bench_of(10_000);
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            for _ in 0..500 {
                agent.say(FromAgent::Sample(Box::new(Sampled { sample: host_sample(), dropped: 0 }))).await;
            }
        })
        .await;
    let events = std::iter::from_fn(|| bench.items.try_recv().ok());
    let (mut taken, mut dropped) = (0, 0);
    for item in events {
        match item.incoming {
            Incoming::Event(_, Event::HostSampled { .. }) => taken += 1,
            Incoming::Event(_, Event::Gap { what, dropped: count }) if what == "messages" => dropped += count,
            _ => {}
        }
    }
    assert_eq!(taken + dropped, 500);
    assert!((64..400).contains(&taken), "{taken}");
}

#[tokio::test]
async fn telemetry_passes_a_flood_that_nobody_takes_in() {
    // room for a handful of items alone
    let Bench { mut task, commands: _commands, mut items } = bench_of(8);
    task.remember(&mut follow());
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut agent = Agent { pipe: theirs, decoder: Decoder::default(), credit: 0 };
    let lines = "y\n".repeat(8000);
    let script = async {
        agent.greet().await;
        assert!(matches!(agent.hear().await, ToAgent::Follow(_)));
        let until = agent.credit;
        assert!(until > 0, "credit comes before the first request for files");
        let mut sent = 0;
        while sent < until {
            let data = Bytes::copy_from_slice(lines.as_bytes());
            let chunk = Chunk { run: run(), rank: Rank(0), stream: Stream::Stdout, offset: sent, data };
            agent.say(FromAgent::Chunk(chunk)).await;
            sent += lines.len() as u64;
        }
        // the reader has taken in nothing: all of that waits, and this is not behind it
        agent.say(FromAgent::Sample(Box::new(Sampled { sample: host_sample(), dropped: 0 }))).await;
        let mut before = 0;
        loop {
            match items.recv().await.unwrap().incoming {
                Incoming::Event(_, Event::HostSampled { .. }) => break,
                Incoming::Event(_, Event::LogPrinted { .. }) => before += 1,
                _ => {}
            }
        }
        assert!(before < 4000, "{before} lines came before the sample");
        // once it takes in what came, more may come
        let more = async {
            while agent.credit == until {
                agent.one().await;
            }
        };
        let taking = async { while items.recv().await.is_some() {} };
        tokio::select! {
            () = more => {}
            () = taking => panic!("the task has ended"),
        }
        drop(agent);
        while items.recv().await.is_some() {}
    };
    let talked = async {
        let ended = drive(&mut task, Link::of_pipe(ours, None)).await;
        assert!(
            matches!(&ended, Ok(LinkError::Unreachable(why)) if why.starts_with("link closed")),
            "{:?}",
            ended.ok()
        );
        drop(task);
    };
    tokio::join!(talked, script);
}

/// Pieces of an upload that are sent to the agent.
const PIECES: u32 = 60;

/// Pieces of an upload and what is said of each fill both ways of a link. Who writes must read, or both wait.
#[tokio::test]
async fn a_link_is_read_while_it_is_written_to() {
    let mut bench = bench_of(200_000);
    for upload in 0..PIECES {
        let piece = BlobPiece {
            upload,
            name: Digest([7; 32]),
            size: 1 << 20,
            offset: 0,
            data: Bytes::from(vec![0; 32 << 10]),
        };
        bench.send(ToAgent::BlobPiece(piece));
    }
    let end = bench
        .talk(None, async |agent| {
            agent.greet().await;
            for _ in 0..PIECES {
                let ToAgent::BlobPiece(piece) = agent.hear().await else { panic!("a piece") };
                // more than a pipe holds: it is said only when the client reads
                for taken in 0..2000 {
                    agent.say(FromAgent::BlobsTaken(BlobsTaken { upload: piece.upload, taken })).await;
                }
            }
        })
        .await;
    let end = format!("{end:?}");
    assert!(!end.contains("nothing could be sent"), "{end}");
}

#[tokio::test]
async fn a_flood_of_gpu_events_is_cut_and_the_rest_is_told_at_the_end_of_the_link() {
    let mut bench = bench();
    let event = |xid: u32| GpuEvent {
        index: 0,
        uuid: GpuUuid::from("u".repeat(10_000)),
        what: Happening::Xid { xid },
        count: 1,
        t: None,
    };
    bench
        .talk(None, async |agent: &mut Agent| {
            agent.greet().await;
            for first in [0, 100, 200] {
                let events = (first..first + 100).map(event).collect();
                agent.say(FromAgent::GpuEvents(GpuEventsTold { events })).await;
            }
        })
        .await;
    let events: Vec<Event> = std::iter::from_fn(|| bench.items.try_recv().ok())
        .filter_map(|item| match item.incoming {
            Incoming::Event(Origin::Host(_), event @ (Event::GpuHappened { .. } | Event::Gap { .. })) => {
                Some(event)
            }
            _ => None,
        })
        .collect();
    let (last, events) = events.split_last().unwrap();
    assert!(matches!(last, Event::Gap { dropped: 180, .. }), "{last:?}");
    assert_eq!(events.len(), 120);
    let whole =
        |event: &Event| matches!(event, Event::GpuHappened { event } if event.uuid.as_str().len() == 256);
    assert!(events.iter().all(whole), "each is bounded");
}
