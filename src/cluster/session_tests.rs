//! A scripted agent at the other end of a pipe.

use std::cell::Cell;

use bytes::Bytes;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::*;
use crate::cluster::link::LinkTarget;
use crate::cluster::messages::{HostEntry, Incoming, Item};
use crate::domain::event::Origin;
use crate::domain::gpu::Reading;
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::log::Stream;
use crate::domain::signal::{FoundProcess, ProcessKey, SignalAnswer, SignalRequest};
use crate::domain::sync::Digest;
use crate::domain::time::{HostTime, Stamp};
use crate::wire::chunk::Chunk;
use crate::wire::gpu::GpuEventsTold;
use crate::wire::message::{Follow, Forgotten, Pong, RunRef, Sampled, Stop};
use crate::wire::signal::{SignalAsk, SignalTold};
use crate::wire::upload::{BlobPiece, BlobsTaken};

#[path = "session_flood_tests.rs"]
mod floods;

/// A host's task and what goes in and out of it.
struct Bench {
    task: HostTask,
    commands: mpsc::UnboundedSender<Command>,
    items: mpsc::Receiver<Item>,
}

fn bench() -> Bench {
    bench_of(1000)
}

/// With room for so many items that have not been taken yet.
fn bench_of(room: usize) -> Bench {
    let (commands, inbox) = mpsc::unbounded_channel();
    let (outbox, items) = mpsc::channel(room);
    let target = LinkTarget::Local { exe: "hvtui".into() };
    let entry = HostEntry { id: HostId::from("a"), target, interval: None, lease_dir: None };
    Bench { task: HostTask::new(entry, inbox, outbox), commands, items }
}

impl Bench {
    /// Talks with a script until either ends the link; gives why it ended.
    async fn talk(&mut self, build: Option<&str>, script: impl AsyncFnOnce(&mut Agent)) -> Option<LinkError> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let link = Link::of_pipe(ours, build.map(str::to_owned));
        let mut agent = Agent { pipe: theirs, decoder: Decoder::default(), credit: 0 };
        let script = async {
            script(&mut agent).await;
            drop(agent);
        };
        tokio::join!(Box::pin(drive(&mut self.task, link)), script).0.ok()
    }

    fn send(&self, message: ToAgent) {
        self.commands.send(Command::Send(Box::new(message))).unwrap();
    }

    /// What came in of runs: lines as text, the rest by name.
    fn told(&mut self) -> Vec<String> {
        let items = std::iter::from_fn(|| self.items.try_recv().ok());
        let told = items.filter_map(|item| match item.incoming {
            Incoming::Event(Origin::Rank(_, rank), Event::LogPrinted { line }) => {
                Some(format!("{rank} {}", line.text))
            }
            Incoming::Event(Origin::Rank(_, rank), event) => Some(format!("{rank} {event:?}")),
            Incoming::Reply(reply) => Some(format!("{reply:?}").split(' ').next().unwrap().to_owned()),
            Incoming::Event(..) => None,
        });
        told.collect()
    }
}

struct Agent {
    pipe: DuplexStream,
    decoder: Decoder,
    /// What it may send of files.
    credit: u64,
}

impl Agent {
    async fn say(&mut self, message: FromAgent) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes).unwrap();
        self.pipe.write_all(&bytes).await.unwrap();
    }

    async fn greet(&mut self) {
        self.say(FromAgent::Hello(Hello::ours("beef".to_owned()))).await;
        assert!(matches!(self.hear().await, ToAgent::Hello(_)));
    }

    /// The next message that is no ping and no credit.
    async fn hear(&mut self) -> ToAgent {
        loop {
            match self.one().await {
                ToAgent::Ping(_) | ToAgent::Credit(_) => {}
                message => return message,
            }
        }
    }

    /// The next message.
    async fn one(&mut self) -> ToAgent {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                let message = ToAgent::decode(&frame).unwrap().unwrap();
                if let ToAgent::Credit(credit) = &message {
                    self.credit = credit.until;
                }
                return message;
            }
            let count = self.pipe.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the client has left");
            self.decoder.push(&buffer[..count]);
        }
    }
}

fn run() -> RunId {
    RunId::new(1, 1)
}

fn follow() -> ToAgent {
    let from = vec![(Rank(0), Stream::Stdout, 0)];
    ToAgent::Follow(Follow {
        run: run(),
        host: HostId::from("a"),
        from,
        last: None,
        hurry: false,
        patience_s: None,
        once: false,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    })
}

fn stop(run: RunId) -> ToAgent {
    let (host, attempt) = (HostId::from("a"), Some(0));
    ToAgent::Stop(Stop { run, host, now: false, attempt, whole: false, unread: false })
}

fn chunk(rank: u32, offset: u64, text: &'static str) -> FromAgent {
    let data = Bytes::from_static(text.as_bytes());
    FromAgent::Chunk(Chunk { run: run(), rank: Rank(rank), stream: Stream::Stdout, offset, data })
}

fn refusal(ended: Option<LinkError>) -> String {
    match ended {
        Some(LinkError::Refused(RefusalKind::Agent, reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_of_another_protocol_is_refused() {
    let newer = Hello { proto_min: 900, proto_max: 901, ..Hello::ours(String::new()) };
    let ended = bench().talk(None, async |agent| agent.say(FromAgent::Hello(newer)).await).await;
    assert!(refusal(ended).contains("use the same hvtui on both sides"));
    let finished = FromAgent::Finished(RunRef { run: run(), host: HostId::from("a") });
    let ended = bench().talk(None, async |agent| agent.say(finished).await).await;
    assert_eq!(refusal(ended), "agent did not begin with hello");
}

#[tokio::test]
async fn another_binary_than_the_one_put_there_is_refused() {
    let mut bench = bench();
    let ended = bench.talk(Some("cafe"), async |agent| agent.greet().await).await;
    assert!(refusal(ended).contains("(sha256 beef, sent cafe)"));
    assert!(bench.items.try_recv().is_err(), "the link never was up");
}

#[tokio::test]
async fn an_agent_that_ends_before_its_hello_is_tried_again() {
    let ended = bench().talk(None, async |_| ()).await;
    let Some(LinkError::Unreachable(_)) = ended else { panic!("{ended:?}") };
}

#[tokio::test]
async fn after_a_loss_each_byte_comes_once_and_a_stop_is_said_again() {
    let mut bench = bench();
    bench.send(follow());
    let ended = bench
        .talk(Some("beef"), async |agent| {
            agent.greet().await;
            assert!(matches!(agent.hear().await, ToAgent::Follow(_)));
            agent.say(chunk(0, 0, "one\ntw")).await;
        })
        .await;
    assert!(matches!(ended, Some(LinkError::Unreachable(_))), "{ended:?}");
    assert_eq!(bench.told(), ["0 one"]);
    // asked for on a link that is lost before the agent reads it
    bench.send(stop(run()));
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            let ToAgent::Follow(again) = agent.hear().await else { panic!("no request to follow") };
            assert_eq!(again.from, [(Rank(0), Stream::Stdout, 6)]);
            assert_eq!(agent.hear().await, stop(run()));
        })
        .await;
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            assert!(matches!(agent.hear().await, ToAgent::Follow(_)));
            assert_eq!(agent.hear().await, stop(run()));
            agent.say(chunk(0, 4, "two\n")).await;
            agent.say(chunk(3, 0, "forged\n")).await;
            agent.say(FromAgent::Finished(RunRef { run: RunId::new(9, 9), host: HostId::from("a") })).await;
            agent.say(FromAgent::Finished(RunRef { run: run(), host: HostId::from("a") })).await;
            agent.say(chunk(0, 8, "late\n")).await;
        })
        .await;
    assert_eq!(bench.told(), ["0 two", "Finished"]);
}

#[tokio::test]
async fn a_stop_of_a_run_that_is_not_followed_waits_for_a_link() {
    let mut bench = bench();
    bench.task.keep(stop(run()));
    bench.task.keep(stop(run()));
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            assert_eq!(agent.hear().await, stop(run()));
        })
        .await;
    assert!(bench.task.kept.is_empty());
}

fn signal(number: u32) -> ToAgent {
    let process = ProcessKey { pid: 7, start: 9 };
    let request = SignalRequest::Look { boot: "b".to_owned(), process, tree: true };
    ToAgent::Signal(SignalAsk { number, request })
}

fn told_of_signals(bench: &mut Bench) -> Vec<(u32, String)> {
    let items = std::iter::from_fn(|| bench.items.try_recv().ok());
    let told = items.filter_map(|item| match item.incoming {
        Incoming::Reply(Reply::Signal(SignalTold { number, answer })) => Some((number, answer)),
        _ => None,
    });
    let words = told.map(|(number, answer)| match answer {
        SignalAnswer::Refused { reason } => (number, reason),
        SignalAnswer::Found { processes, .. } => (number, processes[0].words()),
        SignalAnswer::Sent { processes } => (number, format!("{processes:?}")),
    });
    words.collect()
}

#[tokio::test]
async fn why_a_run_is_not_deleted_is_bounded() {
    let mut bench = bench();
    let forget = ToAgent::Forget(RunRef { run: run(), host: HostId::from("a1") });
    bench.send(forget.clone());
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            assert_eq!(agent.hear().await, forget);
            let why = Some("ä".repeat(100_000));
            agent.say(FromAgent::Forgotten(Forgotten { run: run(), host: HostId::from("a1"), why })).await;
        })
        .await;
    let told = std::iter::from_fn(|| bench.items.try_recv().ok()).find_map(|item| match item.incoming {
        Incoming::Reply(Reply::Forgotten(told)) => told.why,
        _ => None,
    });
    assert!(told.is_some_and(|why| why.chars().count() < 5_000));
}

#[tokio::test]
async fn each_request_for_a_signal_is_answered_once() {
    let mut bench = bench();
    let found = |number, command: String| {
        let key = ProcessKey { pid: 7, start: 9 };
        let command = Reading::Value(command);
        let one = FoundProcess { key, user: Reading::Unsupported, command, refusal: None };
        let answer = SignalAnswer::Found { processes: vec![one], note: None };
        FromAgent::Signal(SignalTold { number, answer })
    };
    bench.send(signal(1));
    bench.send(signal(2));
    bench
        .talk(None, async |agent| {
            agent.greet().await;
            assert_eq!([agent.hear().await, agent.hear().await], [signal(1), signal(2)]);
            // not asked for, then asked for, then once more
            agent.say(found(9, "forged".to_owned())).await;
            agent.say(found(1, "x".repeat(5000))).await;
            agent.say(found(1, "again".to_owned())).await;
        })
        .await;
    assert!(bench.task.signals_lost().await.is_ok() && bench.task.signals_lost().await.is_ok());
    let told = told_of_signals(&mut bench);
    assert_eq!(told.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
    assert!(
        told[0].1.starts_with("7 xxx") && told[0].1.chars().count() < 4200,
        "bounded: {}",
        told[0].1.len()
    );
    assert!(told[1].1.starts_with("the link to a was lost before it answered"), "{}", told[1].1);
}

#[tokio::test]
async fn a_signal_waits_for_no_link() {
    let mut bench = bench();
    assert!(bench.task.not_connected(signal(5), "no route to host").await.is_ok());
    assert!(bench.task.kept.is_empty(), "a process may be another one later");
    assert_eq!(told_of_signals(&mut bench), [(5, "a is not connected: no route to host".to_owned())]);
}

#[tokio::test]
async fn what_is_no_frame_ends_the_link_and_not_the_task() {
    let mut bench = bench();
    let ended = bench
        .talk(None, async |agent| {
            agent.greet().await;
            agent.pipe.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
            // until the client hangs up: it has nothing more to say but pings
            let mut rest = Vec::new();
            agent.pipe.read_to_end(&mut rest).await.unwrap();
        })
        .await;
    let Some(LinkError::Unreachable(reason)) = ended else { panic!("{ended:?}") };
    assert!(reason.contains("at most"), "{reason}");
}

/// Far behind the deadlines of a link, and far before ten times the shortest of them.
const FAR: Duration = Duration::from_secs(40);

/// A word that changes nothing.
fn word() -> FromAgent {
    FromAgent::Pong(Pong { t0: Stamp(1), t1: HostTime(1), t2: HostTime(1) })
}

/// The link was given up for this reason, and not before so many microseconds had passed.
#[track_caller]
fn assert_given_up(ended: Option<LinkError>, reason: &str, since: HostTime, micros: u64) {
    let waited = clock::host_now().0 - since.0;
    let Some(LinkError::Unreachable(why)) = ended else { panic!("{ended:?}") };
    assert!(why.starts_with(reason), "{why}");
    assert!(waited >= micros, "{why}: after {waited} microseconds");
}

#[tokio::test]
async fn a_link_without_a_word_ends_after_its_silence_and_not_before() {
    let (mut bench, last) = (bench(), Cell::new(HostTime(0)));
    let talk = bench.talk(None, async |agent| {
        agent.greet().await;
        time::sleep(Duration::from_secs(2)).await;
        last.set(clock::host_now());
        agent.say(word()).await;
        // what the client says is taken, and not answered
        let _ = agent.pipe.read_to_end(&mut Vec::new()).await;
    });
    let ended = time::timeout(FAR, talk).await.expect("a silent link goes on");
    assert_given_up(ended, "no word for 6 s: the link is given up", last.get(), 6_500_000);
}

#[tokio::test]
async fn an_agent_that_does_not_say_hello_is_given_up_at_its_deadline_and_not_before() {
    let mut bench = bench();
    let since = clock::host_now();
    let talk = bench.talk(None, async |agent| drop(agent.pipe.read_to_end(&mut Vec::new()).await));
    let ended = time::timeout(FAR, talk).await.expect("it is waited for without end");
    assert_given_up(ended, "agent on a said nothing for 15 s", since, 15_000_000);
}

#[tokio::test]
async fn a_link_that_takes_nothing_ends_though_its_agent_speaks() {
    let mut bench = bench();
    // more than a pipe holds
    for upload in 0..4 {
        let data = Bytes::from(vec![0; 32 << 10]);
        let piece = BlobPiece { upload, name: Digest([7; 32]), size: 1 << 20, offset: 0, data };
        bench.send(ToAgent::BlobPiece(piece));
    }
    let since = clock::host_now();
    let talk = bench.talk(None, async |agent| {
        agent.greet().await;
        let mut bytes = BytesMut::new();
        word().encode(&mut bytes).unwrap();
        while agent.pipe.write_all(&bytes).await.is_ok() {
            time::sleep(Duration::from_millis(500)).await;
        }
    });
    let ended = time::timeout(FAR, talk).await.expect("a full link goes on");
    assert_given_up(ended, "nothing could be sent for 6 s", since, 6_500_000);
}
