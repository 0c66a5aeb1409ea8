//! A client that speaks the wire protocol to an agent in this process, with real runs behind it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::plan;
use crate::common::processes::{alive, end_of, kill, pid_in, until, wait_for, waited_for_processors};
use bytes::BytesMut;
use hvtui::agent::{AgentConfig, AgentError, Telemetry, serve};
use hvtui::domain::gpu::Reading;
use hvtui::domain::host::{HostInfo, HostSample};
use hvtui::domain::ids::{GpuUuid, HostId, Rank, RunId};
use hvtui::domain::late::Late;
use hvtui::domain::lease::LeasePlan;
use hvtui::domain::log::{GapReason, LogGap, Stream};
use hvtui::domain::run::{HostRun, RankExit};
use hvtui::domain::time::Stamp;
use hvtui::procs::marks;
use hvtui::procs::table;
use hvtui::supervise::lease;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::state::{Phase, STATE, State};
use hvtui::wire::chunk::Gap;
use hvtui::wire::frame::{self, Decoder};
use hvtui::wire::handshake::Hello;
use hvtui::wire::message::{Commit, Credit, Follow, FromAgent, Noted, Ping, RunRef, Stop, ToAgent, Watch};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

/// Telemetry that counts how often it was asked.
struct Scripted {
    samples: Arc<AtomicU64>,
    driver: Arc<AtomicBool>,
}

impl Telemetry for Scripted {
    fn info(&mut self) -> HostInfo {
        HostInfo {
            hostname: "scripted".to_owned(),
            kernel: String::new(),
            arch: String::new(),
            user: String::new(),
            cpus: 2,
            memory_total: Reading::Unsupported,
            boot_id: String::new(),
            agent_version: String::new(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: Vec::new(),
            ssh_server_address: None,
            ssh_client_address: None,
            gpus: Vec::new(),
            gpu_absence: None,
            driver: if self.driver.load(Ordering::SeqCst) {
                Reading::Value("580.95.05".to_owned())
            } else {
                Reading::Unsupported
            },
            cuda_driver: Reading::Unsupported,
            nccl: Reading::Unsupported,
            topology: None,
        }
    }

    fn sample(&mut self) -> HostSample {
        let number = self.samples.fetch_add(1, Ordering::SeqCst);
        HostSample {
            cpu_percent: Reading::Value(number as f32),
            memory_used: Reading::Unsupported,
            load: Reading::Unsupported,
            net_rx: Reading::Unsupported,
            net_tx: Reading::Unsupported,
            gpus: Vec::new(),
        }
    }
}

/// A host's home, and the run that a test starts there.
struct Bed {
    home: tempfile::TempDir,
    run: RunId,
    host: HostId,
    samples: Arc<AtomicU64>,
    /// Whether the host has a driver by now.
    driver: Arc<AtomicBool>,
}

impl Bed {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        let run = plan::unique_run();
        Self { home, run, host: HostId::from("gpu-b"), samples: Arc::default(), driver: Arc::default() }
    }

    fn work(&self, file: &str) -> PathBuf {
        self.home.path().join("work").join(file)
    }

    fn spec(&self, scripts: &[&str], grace_ms: u64) -> HostRun {
        plan::scripts((&self.run, &self.host), "sh", scripts, &self.home.path().join("work"), grace_ms)
    }

    fn config(&self) -> AgentConfig {
        AgentConfig {
            exe: crate::common::program::hvtui().into(),
            state_dir: self.home.path().join("state"),
            build: "5eed".to_owned(),
        }
    }

    /// A client before its hello.
    fn connect(&self, room: usize) -> Client {
        let (near, far) = tokio::io::duplex(room);
        let (reader, writer) = tokio::io::split(far);
        let samples = Arc::clone(&self.samples);
        let driver = Arc::clone(&self.driver);
        let telemetry = Box::new(move || Box::new(Scripted { samples, driver }) as Box<dyn Telemetry>);
        let agent = tokio::spawn(serve(reader, writer, self.config(), telemetry));
        Client {
            link: near,
            decoder: Decoder::default(),
            files: BTreeMap::new(),
            gaps: Vec::new(),
            notes: Vec::new(),
            agent,
        }
    }

    async fn client(&self) -> Client {
        let mut client = self.connect(64 * 1024);
        client.send(&ToAgent::Hello(Hello::ours("abc".to_owned()))).await;
        assert!(matches!(client.next().await, FromAgent::Hello(hello) if hello.build == "5eed"));
        client
    }

    fn about(&self) -> RunRef {
        RunRef { run: self.run.clone(), host: self.host.clone() }
    }

    fn dir(&self) -> Option<RunDir> {
        RunDir::find(&self.config().state_dir, &self.run, &self.host).unwrap()
    }

    fn state(&self) -> State {
        self.dir().unwrap().read_json(STATE).unwrap().unwrap()
    }

    /// The same, once the supervisor has written down every rank-wrap: each rank may begin before its own is.
    fn running(&self) -> State {
        wait_for("the supervisor to write down that it started all", || {
            Some(self.state()).filter(|state| state.phase != Phase::Starting)
        })
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir().unwrap().path().join(name)).unwrap()
    }

    async fn start(&self, client: &mut Client, spec: HostRun) {
        client.send(&ToAgent::Prepare(Box::new(spec))).await;
        match client.next().await {
            FromAgent::Prepared(prepared) => assert!(!prepared.ports.is_empty()),
            other => panic!("{other:?}"),
        }
        client.send(&self.commit()).await;
        assert_eq!(client.next().await, FromAgent::Started(self.about()));
    }

    fn commit(&self) -> ToAgent {
        let secrets = BTreeMap::from([("HVTUI_SECRET".to_owned(), "canary-77e0".to_owned())]);
        let late = Late { secrets, ..Late::default() };
        ToAgent::Commit(Commit { run: self.run.clone(), host: self.host.clone(), late, attempt: 0 })
    }

    fn follow(&self, from: Vec<(Rank, Stream, u64)>) -> ToAgent {
        ToAgent::Follow(Follow {
            run: self.run.clone(),
            host: self.host.clone(),
            from,
            last: None,
            once: false,
            hurry: false,
            patience_s: None,
            attempt: None,
            stop: None,
            samples_us: None,
            steps_by: Vec::new(),
        })
    }

    fn stop(&self, now: bool) -> ToAgent {
        ToAgent::Stop(Stop {
            run: self.run.clone(),
            host: self.host.clone(),
            now,
            attempt: None,
            whole: false,
            unread: false,
        })
    }

    async fn refusal(&self, client: &mut Client) -> (Option<Rank>, String) {
        match client.next().await {
            FromAgent::Refused(refused) => (refused.rank, refused.reason),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Bed {
    /// A failed test leaves nothing behind either.
    fn drop(&mut self) {
        for process in marks::marked(&table::all(), &self.run, &self.host) {
            process.signal(Signal::KILL);
        }
    }
}

/// The client's end of a link; collects the bytes of files as they come, and checks their offsets.
struct Client {
    link: DuplexStream,
    decoder: Decoder,
    /// The kinds of notes, in order.
    notes: Vec<String>,
    files: BTreeMap<(u32, Stream), (u64, Vec<u8>)>,
    gaps: Vec<LogGap>,
    agent: JoinHandle<Result<(), AgentError>>,
}

impl Client {
    async fn send(&mut self, message: &ToAgent) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes).unwrap();
        self.link.write_all(&bytes).await.unwrap();
    }

    /// The next message that is no piece of a file and no gap in one.
    async fn next(&mut self) -> FromAgent {
        loop {
            if let Some(message) = self.next_or_gap().await {
                return message;
            }
        }
    }

    /// Takes in the next message; gives it when it is no piece of a file and no gap in one. Cancel-safe.
    async fn next_or_gap(&mut self) -> Option<FromAgent> {
        match self.any().await {
            FromAgent::Gap(Gap { gap, .. }) => {
                let (next, bytes) =
                    self.files.entry((gap.rank.0, gap.stream)).or_insert((gap.from, Vec::new()));
                assert_eq!(*next, gap.from, "a hole that nobody tells, or a repetition");
                *next = gap.to;
                // zeros stand for it, since a rank prints none
                bytes.resize(bytes.len() + usize::try_from(gap.bytes()).unwrap(), 0);
                self.gaps.push(gap);
            }
            FromAgent::Chunk(chunk) => {
                let place = (chunk.rank.0, chunk.stream);
                let (next, bytes) = self.files.entry(place).or_insert((chunk.offset, Vec::new()));
                assert_eq!(*next, chunk.offset, "a hole or a repetition in {place:?}");
                *next += chunk.data.len() as u64;
                bytes.extend_from_slice(&chunk.data);
            }
            other => return Some(other),
        }
        None
    }

    async fn any(&mut self) -> FromAgent {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                match FromAgent::decode(&frame).unwrap().unwrap() {
                    // when a file was that long; tests/it/log_output.rs looks at it
                    FromAgent::Written(_) => continue,
                    told => return told,
                }
            }
            let mut bytes = vec![0; 4096];
            let read = tokio::time::timeout(Duration::from_secs(60), self.link.read(&mut bytes));
            let read = read.await.expect("the agent says nothing").unwrap();
            assert_ne!(read, 0, "the agent left");
            self.decoder.push(&bytes[..read]);
        }
    }

    /// Everything up to the end of the run: started ranks, and exits.
    async fn until_the_end(&mut self) -> (Vec<u32>, BTreeMap<u32, RankExit>) {
        let (mut started, mut exits) = (Vec::new(), BTreeMap::new());
        loop {
            match self.next().await {
                FromAgent::RankStarted(one) => {
                    assert!(
                        !self.files.keys().any(|(rank, _)| *rank == one.rank.0),
                        "bytes before the start"
                    );
                    started.push(one.rank.0);
                }
                FromAgent::RankExited(one) => {
                    assert!(exits.insert(one.rank.0, one.exit).is_none(), "told twice");
                }
                // how far an agent is that reads what ranks have left: said where the disk is slow
                FromAgent::Noted(one) if one.number == Noted::UNNUMBERED => {}
                FromAgent::Noted(one) => {
                    assert_eq!(one.number, self.notes.len() as u64, "each note once and in order: {one:?}");
                    self.notes.push(one.note.what);
                }
                FromAgent::Finished(_) => return (started, exits),
                other => panic!("{other:?}"),
            }
        }
    }

    fn bytes(&self, rank: u32, stream: Stream) -> &[u8] {
        self.files.get(&(rank, stream)).map_or(&[], |(_, bytes)| bytes)
    }

    async fn leave(self) -> Result<(), AgentError> {
        drop(self.link);
        self.agent.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greets_answers_pings_and_skips_what_is_newer() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let mut bytes = BytesMut::new();
    frame::encode(9999, b"from the future", &mut bytes).unwrap();
    client.link.write_all(&bytes).await.unwrap();
    let before = hvtui::clock::host_now();
    client.send(&ToAgent::Ping(Ping { t0: Stamp(42) })).await;
    let FromAgent::Pong(pong) = client.next().await else { panic!("no pong") };
    assert_eq!(pong.t0, Stamp(42));
    assert!(before <= pong.t1 && pong.t1 <= pong.t2 && pong.t2 <= hvtui::clock::host_now());
    assert!(client.leave().await.is_ok());
}

#[tokio::test]
async fn another_protocol_or_none_is_an_error() {
    let bed = Bed::new();
    let mut client = bed.connect(4096);
    let newer = Hello { proto_min: 900, proto_max: 901, version: "9".to_owned(), build: String::new() };
    client.send(&ToAgent::Hello(newer)).await;
    let error = client.agent.await.unwrap().unwrap_err();
    assert!(matches!(error, AgentError::Incompatible(_)), "{error}");

    let mut client = bed.connect(4096);
    client.send(&ToAgent::Ping(Ping { t0: Stamp(1) })).await;
    assert!(matches!(client.agent.await.unwrap(), Err(AgentError::NoHello)));

    let mut client = bed.client().await;
    client.link.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
    assert!(matches!(client.agent.await.unwrap(), Err(AgentError::Message(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_gives_facts_once_and_then_samples() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    client.send(&ToAgent::Watch(Watch { interval_ms: 100, lease_dir: None })).await;
    assert!(matches!(client.next().await, FromAgent::Info(info) if info.hostname == "scripted"));
    let mut made = 0;
    for _ in 0..3 {
        let FromAgent::Sample(sampled) = client.next().await else { panic!("no sample") };
        made += 1 + sampled.dropped;
        let newest = Reading::Value((made - 1) as f32);
        assert_eq!(sampled.sample.cpu_percent, newest, "a sample was lost without a word");
    }
    assert!(client.leave().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_that_change_are_told_again() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    client.send(&ToAgent::Watch(Watch { interval_ms: 100, lease_dir: None })).await;
    assert!(matches!(client.next().await, FromAgent::Info(info) if info.driver == Reading::Unsupported));
    assert!(matches!(client.next().await, FromAgent::Sample(_)));
    bed.driver.store(true, Ordering::SeqCst);
    // samples from before the change may still be on their way
    let info = loop {
        if let FromAgent::Info(info) = client.next().await {
            break info;
        }
    };
    assert_eq!(info.driver, Reading::Value("580.95.05".to_owned()));
    for _ in 0..5 {
        let next = client.next().await;
        assert!(matches!(next, FromAgent::Sample(_)), "once, and not with each sample: {next:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_gets_the_newest_sample_and_the_number_of_lost_ones() {
    let bed = Bed::new();
    // A link that holds less than a message.
    let mut client = bed.connect(16);
    client.send(&ToAgent::Hello(Hello::ours(String::new()))).await;
    assert!(matches!(client.next().await, FromAgent::Hello(_)));
    client.send(&ToAgent::Watch(Watch { interval_ms: 100, lease_dir: None })).await;
    let made = Arc::clone(&bed.samples);
    tokio::task::spawn_blocking(move || until("samples", || made.load(Ordering::SeqCst) >= 5)).await.unwrap();
    assert!(matches!(client.next().await, FromAgent::Info(_)));
    let FromAgent::Sample(sampled) = client.next().await else { panic!("no sample") };
    assert!(sampled.dropped >= 3, "{}", sampled.dropped);
    assert_eq!(sampled.sample.cpu_percent, Reading::Value(sampled.dropped as f32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_is_refused_before_anything_starts() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let mut spec = bed.spec(&["true", "true"], 1000);
    spec.ranks[1].argv = vec!["no-such-command".to_owned()];
    spec.ranks[1].env.insert("PATH".to_owned(), "/bin:/usr/bin".to_owned());
    client.send(&ToAgent::Prepare(Box::new(spec))).await;
    let (rank, reason) = bed.refusal(&mut client).await;
    assert_eq!(rank, Some(Rank(1)));
    assert_eq!(reason, "command 'no-such-command' not found on gpu-b (PATH=/bin:/usr/bin)");
    client.send(&bed.commit()).await;
    let (_, reason) = bed.refusal(&mut client).await;
    assert!(reason.contains("was not prepared on gpu-b"), "{reason}");
    client.send(&bed.follow(Vec::new())).await;
    let (_, reason) = bed.refusal(&mut client).await;
    assert!(reason.contains("was never started on gpu-b"), "{reason}");
    client.send(&bed.stop(false)).await;
    let (_, reason) = bed.refusal(&mut client).await;
    assert!(reason.contains("was never started on gpu-b"), "{reason}");
}

/// Its supervisor looks for the mark itself: a client may have looked before it was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_not_wanted_any_more_starts_no_rank() {
    let bed = Bed::new();
    let (mut client, mut owner) = (bed.client().await, bed.client().await);
    client.send(&ToAgent::Prepare(Box::new(bed.spec(&["exec sleep 600"], 1000)))).await;
    assert!(matches!(client.next().await, FromAgent::Prepared(_)));
    let (run, host) = (bed.run.clone(), bed.host.clone());
    let stop = Stop { run, host, now: false, attempt: None, whole: true, unread: false };
    owner.send(&ToAgent::Stop(stop)).await;
    assert!(bed.refusal(&mut owner).await.1.contains("was never started"));
    for message in [bed.commit(), ToAgent::Prepare(Box::new(bed.spec(&["exec sleep 600"], 1000)))] {
        client.send(&message).await;
        let (_, reason) = bed.refusal(&mut client).await;
        assert!(reason.contains("the run was stopped before it started"), "{reason}");
    }
    client.send(&bed.follow(Vec::new())).await;
    assert!(bed.refusal(&mut client).await.1.contains("was never started"), "nothing was left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_plan_leaves_nothing() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    client.send(&ToAgent::Prepare(Box::new(bed.spec(&["true"], 1000)))).await;
    assert!(matches!(client.next().await, FromAgent::Prepared(_)));
    assert!(bed.dir().is_some());
    client.send(&ToAgent::Abort(bed.about())).await;
    client.send(&bed.commit()).await;
    assert!(bed.refusal(&mut client).await.1.contains("was not prepared"));
    assert!(bed.dir().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_told_byte_for_byte_now_and_later() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let script = "i=0; while [ $i -lt 3000 ]; do echo \"line $i of rank $RANK, made long enough to fill pieces\"; \
                  i=$((i+1)); done; echo problem >&2; echo '{\"kind\":\"met\"}' >> \"$HVTUI_REPORT\"; printf end";
    bed.start(&mut client, bed.spec(&[script, script], 1000)).await;
    client.send(&bed.follow(Vec::new())).await;
    let (mut started, exits) = client.until_the_end().await;
    started.sort_unstable();
    assert_eq!(started, [0, 1]);
    assert_eq!(exits.len(), 2);
    assert!(exits.values().all(|exit| exit.shell_code() == 0 && !exit.stopped));
    for rank in 0..2 {
        for stream in Stream::ALL {
            let name = format!("rank-{rank}.{}", stream.extension());
            assert_eq!(client.bytes(rank, stream), bed.file(&name), "{name}");
        }
        assert!(client.bytes(rank, Stream::Stdout).len() > 100_000);
    }
    assert!(!bed.state().supervisor.alive());
    client.leave().await.unwrap();

    // Another agent, long after the end, from the middle of one file.
    let mut later = bed.client().await;
    later.send(&bed.follow(vec![(Rank(1), Stream::Stdout, 70_001)])).await;
    let (_, exits) = later.until_the_end().await;
    assert_eq!(exits.len(), 2);
    assert_eq!(later.bytes(1, Stream::Stdout), &bed.file("rank-1.out")[70_001..]);
    assert_eq!(later.bytes(0, Stream::Stdout), bed.file("rank-0.out"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_told_with_its_victims() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    bed.start(&mut client, bed.spec(&["exec sleep 600", "echo last words; exit 3"], 60_000)).await;
    client.send(&bed.follow(Vec::new())).await;
    let (_, exits) = client.until_the_end().await;
    assert_eq!((exits[&1].code, exits[&1].stopped), (Some(3), false));
    assert_eq!((exits[&0].signal, exits[&0].stopped), (Some(15), true));
    assert_eq!(client.bytes(1, Stream::Stdout), b"last words\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_survives_its_agent_and_the_next_one_goes_on_at_the_byte() {
    let bed = Bed::new();
    let mut first = bed.client().await;
    let script = "i=0; while [ ! -e go ]; do echo \"tick $i\"; i=$((i+1)); sleep 0.01; done; echo done";
    bed.start(&mut first, bed.spec(&[script], 1000)).await;
    first.send(&bed.follow(Vec::new())).await;
    assert!(matches!(first.next().await, FromAgent::RankStarted(_)));
    while first.bytes(0, Stream::Stdout).len() < 40 {
        let FromAgent::Chunk(chunk) = first.any().await else { panic!("no chunk") };
        first.files.entry((0, Stream::Stdout)).or_default().1.extend_from_slice(&chunk.data);
    }
    let seen = first.bytes(0, Stream::Stdout).to_vec();
    first.agent.abort();
    assert!(first.agent.await.unwrap_err().is_cancelled());
    assert!(bed.state().supervisor.alive());

    let mut second = bed.client().await;
    // A client that did not get the answer to its commit asks again.
    second.send(&bed.commit()).await;
    assert_eq!(second.next().await, FromAgent::Started(bed.about()));
    second.send(&bed.follow(vec![(Rank(0), Stream::Stdout, seen.len() as u64)])).await;
    assert!(matches!(second.next().await, FromAgent::RankStarted(_)));
    std::fs::write(bed.work("go"), "").unwrap();
    let (_, exits) = second.until_the_end().await;
    assert_eq!(exits[&0].code, Some(0));
    let whole = [seen.as_slice(), second.bytes(0, Stream::Stdout)].concat();
    assert_eq!(whole, bed.file("rank-0.out"));
    assert!(whole.ends_with(b"done\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_everything_after_grace_or_now() {
    for now in [false, true] {
        let bed = Bed::new();
        let mut client = bed.client().await;
        let script =
            "trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ > daemon; sleep 600' &); sleep 600";
        let grace = if now { 600_000 } else { 200 };
        bed.start(&mut client, bed.spec(&[script], grace)).await;
        client.send(&bed.follow(Vec::new())).await;
        let daemon = tokio::task::block_in_place(|| pid_in(&bed.work("daemon")));
        client.send(&bed.stop(now)).await;
        let (_, exits) = client.until_the_end().await;
        assert_eq!((exits[&0].signal, exits[&0].stopped), (Some(9), true));
        assert!(!alive(daemon));
        assert!(marks::marked(&table::all(), &bed.run, &bed.host).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_supervisor_changes_nothing_for_the_ranks() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let script = "(setsid sh -c 'echo $$ > daemon; exec sleep 600' &); \
                  while [ ! -e go ]; do sleep 0.01; done; echo late; exit 5";
    bed.start(&mut client, bed.spec(&[script], 200)).await;
    client.send(&bed.follow(Vec::new())).await;
    assert!(matches!(client.next().await, FromAgent::RankStarted(_)));
    let daemon = tokio::task::block_in_place(|| pid_in(&bed.work("daemon")));
    kill(bed.state().supervisor.pid, Signal::KILL);
    std::fs::write(bed.work("go"), "").unwrap();
    let (_, exits) = client.until_the_end().await;
    assert_eq!((exits[&0].code, exits[&0].stopped), (Some(5), false));
    assert_eq!(client.bytes(0, Stream::Stdout), b"late\n");
    assert!(!alive(daemon), "what the dead supervisor would have ended is ended");
    assert_eq!(client.notes, ["supervisor_lost", "adopted", "background"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_nobody_saw_end_is_lost_and_never_a_success() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    bed.start(&mut client, bed.spec(&["echo one; exec sleep 600"], 200)).await;
    client.send(&bed.follow(Vec::new())).await;
    let FromAgent::RankStarted(started) = client.next().await else { panic!("not started") };
    let state = tokio::task::block_in_place(|| {
        until("its words", || bed.file("rank-0.out") == b"one\n");
        bed.running()
    });
    // As when all is killed at once: halted, the rank-wrap can't write the end.
    kill(state.wraps[&Rank(0)].pid, Signal::STOP);
    kill(started.pid, Signal::KILL);
    kill(state.supervisor.pid, Signal::KILL);
    kill(state.wraps[&Rank(0)].pid, Signal::KILL);
    let (_, exits) = client.until_the_end().await;
    let exit = &exits[&0];
    assert_eq!((exit.code, exit.signal), (None, None));
    assert_eq!(exit.describe(), "lost, hvtui's process beside it (rank-wrap) was killed");
    assert_ne!(exit.shell_code(), 0);
    assert_eq!(client.bytes(0, Stream::Stdout), b"one\n");
}

/// Numbered lines, so that each byte says where it belongs: 7 digits and a line end.
fn numbered(from: u64, to: u64) -> Vec<u8> {
    let mut text = Vec::new();
    for number in from / 8..to.div_ceil(8) {
        text.extend_from_slice(format!("{:07}\n", number + 1).as_bytes());
    }
    let begin = (from % 8) as usize;
    text[begin..begin + (to - from) as usize].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vector_14_a_flood_is_kept_within_its_cap_and_what_is_missing_is_told() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    // 64 MB, far over the cap, while a second rank prints little
    let flood = "seq -f %07.0f 8000000; while [ ! -e go ]; do sleep 0.01; done; echo end >&2";
    let mut spec = bed.spec(&[flood, "echo little"], 1000);
    let cap = 16 << 20;
    spec.spool.cap = cap;
    bed.start(&mut client, spec).await;
    let dir = bed.dir().unwrap();
    if !hvtui::supervise::spool::can_cut(&dir).unwrap() {
        return;
    }
    let path = dir.path().join("rank-0.out");
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    let whole = 64_000_000;
    let mut most = 0;
    let (began, waited) = (hvtui::clock::host_now().0, waited_for_processors());
    tokio::task::block_in_place(|| {
        until("all is printed and cut", || {
            most = most.max(blocks());
            std::fs::metadata(&path).unwrap().len() == whole && blocks() <= cap
        });
    });
    // The supervisor cuts while the rank prints: what came while it waited for a processor is not its fault.
    let (took, waited) = (hvtui::clock::host_now().0 - began, waited_for_processors() - waited);
    let unseen = (whole as f64 * (waited as f64 / took as f64).min(1.0)) as u64;
    assert!(
        most <= cap + cap * 3 / 10 + unseen,
        "{most} bytes on disk under a cap of {cap}; {waited} of {took} us waited"
    );
    // followed late, from the middle of what is gone; the supervisor may cut once more until it has ended
    std::fs::write(bed.work("go"), "").unwrap();
    tokio::task::block_in_place(|| until("the end", || !bed.state().supervisor.alive()));
    client.send(&bed.follow(vec![(Rank(0), Stream::Stdout, 1_000_003)])).await;
    client.until_the_end().await;
    let [gap] = &client.gaps[..] else { panic!("{:?}", client.gaps) };
    assert_eq!((gap.from, gap.reason, gap.cap), (1_000_003, GapReason::NotKept, Some(cap)));
    assert!(whole - gap.to <= cap && whole - gap.to > cap / 2, "{gap:?}");
    let out = client.bytes(0, Stream::Stdout);
    assert_eq!(1_000_003 + out.len() as u64, whole);
    assert!(out[gap.bytes() as usize..] == numbered(gap.to, whole), "each byte stands at its offset");
    assert_eq!(
        (client.bytes(0, Stream::Stderr), client.bytes(1, Stream::Stdout)),
        (&b"end\n"[..], &b"little\n"[..])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_overtaken_gets_gaps_and_never_zeros() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let mut spec = bed.spec(&["seq -f %07.0f 6000000"], 1000);
    spec.spool.cap = 1 << 20;
    bed.start(&mut client, spec).await;
    client.send(&bed.follow(Vec::new())).await;
    client.until_the_end().await;
    let out = client.bytes(0, Stream::Stdout);
    assert_eq!(out.len(), 48_000_000);
    let mut at = 0;
    for (from, to) in client.gaps.iter().map(|gap| (gap.from, gap.to)).chain([(48_000_000, 0)]) {
        assert!(out[at as usize..from as usize] == numbered(at, from), "from {at} to {from}");
        at = to;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_present_can_come_first_and_reports_come_whole() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    let script = "seq -f %07.0f 500000; i=0; while [ $i -lt 2000 ]; do echo '{\"kind\":\"met\"}'; i=$((i+1)); \
                  done >> \"$HVTUI_REPORT\"";
    bed.start(&mut client, bed.spec(&[script], 1000)).await;
    tokio::task::block_in_place(|| until("the end", || !bed.state().supervisor.alive()));
    let follow = Follow {
        run: bed.run.clone(),
        host: bed.host.clone(),
        from: Vec::new(),
        last: Some(1000),
        once: false,
        hurry: false,
        patience_s: None,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    };
    client.send(&ToAgent::Follow(follow)).await;
    client.until_the_end().await;
    let [gap] = &client.gaps[..] else { panic!("{:?}", client.gaps) };
    assert_eq!((gap.from, gap.to, gap.reason), (0, 3_999_000, GapReason::NotRead));
    assert!(client.bytes(0, Stream::Stdout).ends_with(&numbered(3_999_000, 4_000_000)));
    assert_eq!(client.bytes(0, Stream::Report), bed.file("rank-0.report"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_emptied_while_no_client_followed_is_a_gap_to_all_that_come_later() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    // once the supervisor has noted the first line, for which it looks once a second
    let script = "echo gone; until [ -s ${HVTUI_REPORT%report}times ]; do sleep 0.01; done\n\
                  echo kept > /dev/stdout; echo kept too";
    bed.start(&mut client, bed.spec(&[script], 1000)).await;
    tokio::task::block_in_place(|| until("the end", || !bed.state().supervisor.alive()));
    assert_eq!(bed.file("rank-0.out"), b"kept\nkept too\n");
    client.leave().await.unwrap();
    for from in [0, 5] {
        let mut client = bed.client().await;
        client.send(&bed.follow(vec![(Rank(0), Stream::Stdout, from)])).await;
        client.until_the_end().await;
        let [gap] = &client.gaps[..] else { panic!("{:?}", client.gaps) };
        assert_eq!((gap.from, gap.to, gap.reason), (from, 6, GapReason::Emptied));
        assert!(client.bytes(0, Stream::Stdout).ends_with(b"\0kept\nkept too\n"));
        client.leave().await.unwrap();
    }
    // who has had the first line of them
    let mut client = bed.client().await;
    client.send(&bed.follow(vec![(Rank(0), Stream::Stdout, 11)])).await;
    client.until_the_end().await;
    assert!(client.gaps.is_empty() && client.bytes(0, Stream::Stdout) == b"kept too\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_catches_up_gets_the_end_and_is_told_what_it_missed() {
    let bed = Bed::new();
    let mut client = bed.client().await;
    bed.start(&mut client, bed.spec(&["seq -f %07.0f 9000000"], 1000)).await;
    tokio::task::block_in_place(|| until("the end", || !bed.state().supervisor.alive()));
    let mut until = 0;
    client.send(&ToAgent::Credit(Credit { until })).await;
    let (run, host) = (bed.run.clone(), bed.host.clone());
    client
        .send(&ToAgent::Follow(Follow {
            run,
            host,
            from: Vec::new(),
            last: None,
            hurry: true,
            patience_s: None,
            once: false,
            attempt: None,
            stop: None,
            samples_us: None,
            steps_by: Vec::new(),
        }))
        .await;
    // 640 KiB a second of 72 MB
    while client.gaps.is_empty() {
        until += 64 << 10;
        client.send(&ToAgent::Credit(Credit { until })).await;
        let pause = tokio::time::sleep(Duration::from_millis(100));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                biased;
                () = &mut pause => break,
                message = client.next_or_gap() => if let Some(FromAgent::Finished(_)) = message { panic!("too soon") },
            }
        }
    }
    client.send(&ToAgent::Credit(Credit { until: u64::MAX })).await;
    client.until_the_end().await;
    let [gap] = &client.gaps[..] else { panic!("{:?}", client.gaps) };
    let (whole, out) = (72_000_000, client.bytes(0, Stream::Stdout));
    assert_eq!((gap.reason, out.len() as u64), (GapReason::NotRead, whole));
    assert!(whole - gap.to <= 256 << 10, "{gap:?}");
    assert!(
        out[..gap.from as usize] == numbered(0, gap.from)
            && out[gap.to as usize..] == numbered(gap.to, whole)
    );
}

/// A share of a run whose rank has a GPU of its own directory of leases; of another run with `other`.
fn leased(bed: &Bed, script: &str, other: bool) -> HostRun {
    let dir = bed.home.path().canonicalize().unwrap().join("leases");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut spec = bed.spec(&[script], 100);
    spec.leases = LeasePlan {
        dir: dir.to_str().map(str::to_owned),
        share: false,
        held: BTreeMap::from([(GpuUuid::from("GPU-0"), Rank(0))]),
        ..LeasePlan::default()
    };
    if other {
        spec.run = plan::unique_run();
    }
    spec
}

/// Tries to take a GPU for another run all the time: how often it was held, and how often not.
struct Thief {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<[u32; 2]>,
}

impl Thief {
    fn on(spec: HostRun) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut tries = [0; 2];
            while !over.load(Ordering::SeqCst) {
                tries[usize::from(lease::claim(&spec).is_ok())] += 1;
            }
            tries
        });
        Self { stop, thread }
    }

    fn end(self) -> [u32; 2] {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_prepared_holds_its_gpu_until_it_is_given_up_or_its_rank_ends() {
    let bed = Bed::new();
    let (spec, other) = (leased(&bed, "echo $$ >pid; exec sleep 600", false), leased(&bed, "true", true));
    let free = || lease::claim(&other).is_ok();
    let mut client = bed.client().await;
    let prepare = ToAgent::Prepare(Box::new(spec.clone()));
    // asked twice, or given up: nothing is left over
    for _ in 0..2 {
        client.send(&prepare).await;
        assert!(matches!(client.next().await, FromAgent::Prepared(_)));
    }
    assert!(!free(), "held before anything starts");
    let mut theirs = bed.client().await;
    theirs.send(&ToAgent::Prepare(Box::new(other.clone()))).await;
    match theirs.next().await {
        FromAgent::Refused(refused) => assert!(refused.busy && refused.reason.contains(bed.run.short())),
        other => panic!("{other:?}"),
    }
    client.send(&ToAgent::Abort(bed.about())).await;
    until("the GPU to be free", free);
    client.send(&prepare).await;
    assert!(matches!(client.next().await, FromAgent::Prepared(_)));
    client.leave().await.unwrap();
    until("the GPU of a client that has left", free);
    // from agent to supervisor to rank-wrap without a gap
    let mut client = bed.client().await;
    client.send(&prepare).await;
    assert!(matches!(client.next().await, FromAgent::Prepared(_)));
    let thief = Thief::on(other.clone());
    client.send(&bed.commit()).await;
    assert_eq!(client.next().await, FromAgent::Started(bed.about()));
    client.leave().await.unwrap();
    until("the rank", || bed.work("pid").exists());
    let [held, stolen] = thief.end();
    assert!(held > 0 && stolen == 0, "{held} tries failed, {stolen} did not");
    // the order is known by the run's id, whichever client asks again
    let mut client = bed.client().await;
    for again in [prepare, bed.commit()] {
        client.send(&again).await;
        assert_eq!(client.next().await, FromAgent::Started(bed.about()));
    }
    client.send(&bed.stop(true)).await;
    until("the GPU of a run that has ended", free);
    client.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_comes_over_a_new_link_waits_for_its_old_agent() {
    let bed = Bed::new();
    let spec = leased(&bed, "true", false);
    let mut old = bed.client().await;
    old.send(&ToAgent::Prepare(Box::new(spec.clone()))).await;
    assert!(matches!(old.next().await, FromAgent::Prepared(_)));
    let mut new = bed.client().await;
    new.send(&ToAgent::Prepare(Box::new(spec))).await;
    tokio::task::yield_now().await;
    old.leave().await.unwrap();
    assert!(matches!(new.next().await, FromAgent::Prepared(_)));
    new.leave().await.unwrap();
}

#[test]
fn death_between_prepare_and_commit_frees_the_gpu() {
    let bed = Bed::new();
    let (spec, other) = (leased(&bed, "true", false), leased(&bed, "true", true));
    let mut agent = std::process::Command::new(crate::common::program::hvtui())
        .args(["agent", "--stdio"])
        .env("HOME", bed.home.path())
        .env("XDG_STATE_HOME", bed.home.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut bytes = BytesMut::new();
    ToAgent::Hello(Hello::ours(String::new())).encode(&mut bytes).unwrap();
    ToAgent::Prepare(Box::new(spec)).encode(&mut bytes).unwrap();
    agent.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
    let mut decoder = Decoder::default();
    let mut buffer = [0; 4096];
    loop {
        let frame = decoder.next_frame().unwrap();
        match frame.map(|frame| FromAgent::decode(&frame).unwrap()) {
            Some(Some(FromAgent::Prepared(_))) => break,
            Some(Some(FromAgent::Hello(_)) | None) => {}
            Some(other) => panic!("{other:?}"),
            None => {
                let read = agent.stdout.as_mut().unwrap().read(&mut buffer).unwrap();
                assert_ne!(read, 0, "the agent left");
                decoder.push(&buffer[..read]);
            }
        }
    }
    assert!(lease::claim(&other).is_err());
    agent.kill().unwrap();
    end_of(&mut agent);
    until("the GPU to be free", || lease::claim(&other).is_ok());
}
