//! The rendezvous of Horovod runs, over real sockets: by a client as strict as Horovod's is lax, by hostile ones, and
//! served by a real supervisor.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::bed::{Bed, ended, exit, launch, state};
use crate::common::horovod_client::{ask, join, meet, meet_all, request};
use crate::common::processes::{kill, until, wait_for};
use crate::common::{bed, plan};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::note::{Note, what};
use hvtui::domain::rendezvous::{HostRanks, Progress, RendezvousPlan};
use hvtui::domain::run::{JobKind, RunSpec};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::world::World;
use hvtui::rendezvous::server::Server;
use hvtui::rendezvous::store::View;
use hvtui::supervise::adopt::{Adopted, adopt};
use hvtui::supervise::notes::Reader;
use hvtui::supervise::rundir::RunDir;
use hvtui::supervise::start::Started as Start;
use rustix::process::Signal;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn plan_of(hosts: &[(&str, usize)]) -> RendezvousPlan {
    let host = |(name, ranks): &(&str, usize)| HostRanks { name: (*name).to_owned(), ranks: *ranks as u32 };
    RendezvousPlan { hosts: hosts.iter().map(host).collect(), peers: vec![LOCAL] }
}

/// A server on a thread of its own, as a supervisor has it.
struct Served {
    server: Server,
    at: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

/// Of one thread, as the supervisor's.
fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("rendezvous").enable_all().build().unwrap()
}

fn serve(hosts: &[(&str, usize)]) -> Served {
    let runtime = runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind((LOCAL, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let server = Server::new(&plan_of(hosts));
    let serving = server.clone();
    runtime.spawn(async move { serving.serve(listener).await });
    Served { server, at, _runtime: runtime }
}

/// Answers one request with these pieces, each in a segment of its own.
fn answer_once(pieces: &'static [&'static [u8]]) -> SocketAddr {
    let listener = TcpListener::bind((LOCAL, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        stream.write_all(pieces[0]).unwrap();
        // The next one goes when the first has been taken for the whole.
        let _ = stream.read(&mut [0; 1]);
        for piece in &pieces[1..] {
            let _ = stream.write_all(piece);
        }
    });
    at
}

#[test]
fn the_client_of_these_tests_fails_where_horovods_would_take_an_empty_value() {
    let whole: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"];
    assert_eq!(ask(answer_once(whole), "GET", "/s/k", b"").unwrap(), (200, b"body".to_vec()));
    let lower: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"];
    assert_eq!(ask(answer_once(lower), "GET", "/s/k", b"").unwrap_err(), "no Content-Length");
    let two: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", b"body"];
    assert_eq!(ask(answer_once(two), "GET", "/s/k", b"").unwrap_err(), "0 of 4 bytes in the first segment");
}

#[test]
fn ranks_meet_in_all_their_scopes_on_even_and_uneven_hosts() {
    let shapes: [&[(&str, usize)]; 6] = [
        &[("a", 1)],
        &[("a", 2)],
        &[("a", 1), ("b", 1)],
        &[("a", 4)],
        &[("gpu-a.example", 2), ("10.0.0.2", 1)],
        &[("a", 1), ("b", 3)],
    ];
    for hosts in shapes {
        let served = serve(hosts);
        // twice: a script may end Horovod and begin it again
        for _ in 0..2 {
            meet_all(served.at, hosts);
            assert!(served.server.view().all_connected(), "{hosts:?}");
            assert_eq!(served.server.bytes(), 0, "{hosts:?}: nothing is left behind");
        }
        // and in an unplanned circle
        let circle = Barrier::new(1);
        meet(served.at, "global_process_set_hash_1f", 0, 1, &circle);
        assert_eq!(served.server.bytes(), 0);
    }
}

#[test]
fn a_rank_that_is_missing_is_known_by_its_number() {
    let served = serve(&[("a", 2), ("b", 2)]);
    let at = served.at;
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for rank in [0, 1, 3] {
            let barrier = &barrier;
            scope.spawn(move || meet(at, "global", rank, 4, barrier));
        }
        let view = wait_for("three ranks", || {
            let view = served.server.view();
            (view.joined.len() == 3).then_some(view)
        });
        assert_eq!(view.joined, [0, 1, 3].map(Rank).into());
        assert_eq!((view.named.contains(&Rank(2)), view.connected.len()), (false, 0));
        meet(at, "global", 2, 4, &barrier);
    });
    assert!(served.server.view().all_connected());
}

/// Sends these bytes and reads all that comes back until the server closes.
fn send(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A server that has closed by now has said all that it has to say.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn what_is_no_request_is_answered_and_changes_nothing() {
    let served = serve(&[("a", 2)]);
    let at = served.at;
    let status = |bytes: &[u8]| send(at, bytes).split(' ').nth(1).unwrap_or_default().to_owned();
    assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n"), "400");
    assert_eq!(status(b"GET /global HTTP/1.1\r\n\r\n"), "400");
    assert_eq!(status(b"PUT /global/a/b HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "400");
    assert_eq!(status(b"POST /global/0 HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "405");
    assert_eq!(status(b"PUT /global/0 HTTP/1.1\r\n\r\n"), "411");
    assert_eq!(status(&vec![b'A'; 100_000]), "431");
    // said to be huge: refused before a byte of it comes
    assert_eq!(status(b"PUT /global/0 HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n"), "413");
    // a client that sends on all the same still gets its answer
    let mut long = b"PUT /global/0 HTTP/1.1\r\nContent-Length: 300000\r\n\r\n".to_vec();
    long.resize(300_000, b'x');
    assert_eq!(status(&long), "413");
    assert_eq!((served.server.bytes(), served.server.view()), (0, View { world: 2, ..View::default() }));
    // a connection that ends in the middle is forgotten
    TcpStream::connect(at).unwrap().write_all(b"PUT /global/0 HT").unwrap();
    meet_all(at, &[("a", 2)]);
}

#[test]
fn more_than_there_is_room_for_is_refused_and_the_rest_stays() {
    let served = serve(&[("a", 2)]);
    let value = vec![1; 60 << 10];
    let mut kept = 0;
    let refused = (0..1000).find_map(|number| {
        let (status, _) = ask(served.at, "PUT", &format!("/scope-{number}/0"), &value).unwrap();
        kept += u32::from(status == 200);
        (status != 200).then_some(status)
    });
    assert_eq!(refused, Some(507));
    assert!(kept > 200 && served.server.bytes() < 17 << 20, "{kept}: {} bytes", served.server.bytes());
    let first = send(served.at, &request(served.at, "GET", "/scope-0/0", b""));
    assert!(first.as_bytes().ends_with(&value) && first.len() < value.len() + 100);
}

#[test]
fn a_client_that_takes_its_time_gets_three_seconds_and_holds_up_nobody() {
    let served = serve(&[("a", 2)]);
    let at = served.at;
    let mut slow: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(at).unwrap()).collect();
    // one byte now and then: each read in time, the request never
    let one = slow.pop().unwrap();
    let dripping = std::thread::spawn(move || drip(one));
    meet_all(at, &[("a", 2)]);
    assert_eq!(dripping.join().unwrap().split(' ').nth(1), Some("408"));
    // those that said nothing at all
    for mut stream in slow {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    }
}

/// Sends a request byte by byte until there is an answer.
fn drip(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut text = Vec::new();
    for byte in b"GET /global/".iter().chain([b'x'].iter().cycle()) {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&bytes[..count]),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            }
        }
        let _ = stream.write_all(&[*byte]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn more_connections_than_the_ranks_need_wait_for_their_turn() {
    let served = serve(&[("a", 1)]);
    // twice the ranks and 64
    let idle: Vec<TcpStream> = (0..66).map(|_| TcpStream::connect(served.at).unwrap()).collect();
    let mut next = TcpStream::connect(served.at).unwrap();
    next.write_all(&request(served.at, "GET", "/global/0", b"")).unwrap();
    next.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(next.read(&mut [0; 1]).is_err(), "there is no place for it yet");
    drop(idle);
    next.set_read_timeout(None).unwrap();
    let mut text = String::new();
    next.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
}

#[test]
fn only_the_hosts_of_the_run_may_ask() {
    let at = serve_for(&[Ipv4Addr::new(127, 0, 0, 2).into()]);
    let bytes = request(at.0, "GET", "/global/0", b"");
    // a closed connection, without a word
    assert_eq!(send(at.0, &bytes), "");
    let mut stream = from(Ipv4Addr::new(127, 0, 0, 2), at.0);
    stream.write_all(&bytes).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
}

fn serve_for(peers: &[IpAddr]) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = runtime();
    let listener = runtime.block_on(tokio::net::TcpListener::bind((LOCAL, 0))).unwrap();
    let at = listener.local_addr().unwrap();
    let server = Server::new(&RendezvousPlan { peers: peers.to_vec(), ..plan_of(&[("a", 1)]) });
    runtime.spawn(async move { server.serve(listener).await });
    (at, runtime)
}

/// A connection that comes from this loopback address.
fn from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((source, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

// ------------------------------------------------------------------ served by a supervisor

fn free_port() -> u16 {
    TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap().port()
}

fn variables(port: u16) -> BTreeMap<String, String> {
    let all = [("HVTUI_SECRET", "canary-5f1c".to_owned()), ("HVTUI_BIND", LOCAL.to_string())];
    let all = all.into_iter().chain([("HVTUI_KV_PORT", port.to_string())]);
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A run of two ranks that wait for a file, with its rendezvous.
fn start(bed: &Bed) -> (RunDir, SocketAddr) {
    let wait = "while [ ! -e go ]; do sleep 0.01; done";
    let mut spec = bed.spec(&[wait, wait], 1000);
    spec.rendezvous = Some(plan_of(&[("a", 1), ("b", 1)]));
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    let port = free_port();
    assert_eq!(launch(&dir, spec, variables(port)).unwrap(), Start::Now);
    (dir, (LOCAL, port).into())
}

fn notes(dir: &RunDir) -> Vec<Note> {
    Reader::default().news(dir).unwrap().into_iter().map(|(_, note)| note).collect()
}

fn told(dir: &RunDir) -> Vec<Progress> {
    notes(dir).iter().filter_map(Progress::parse).collect()
}

#[test]
fn a_supervisor_serves_the_rendezvous_and_notes_who_is_there() {
    let bed = Bed::new();
    let (dir, at) = start(&bed);
    join(at, "global", 1, 2);
    let first = Progress::Joined { ranks: [Rank(1)].into(), world: 2 };
    until("the note of one rank", || told(&dir).contains(&first));
    assert_eq!(first.missing(), [Rank(0)]);
    meet_all(at, &[("a", 1), ("b", 1)]);
    let last = Progress::Connected { world: 2 };
    until("the note of all", || told(&dir).last() == Some(&last));
    assert!(told(&dir).len() <= 3, "{:?}", notes(&dir));
    std::fs::write(bed.work("go"), "").unwrap();
    ended(&dir);
    assert_eq!([0, 1].map(|rank| exit(&dir, rank).code), [Some(0); 2]);
    assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_rank_of_another_host_may_take_its_leave_when_those_of_this_one_have_ended() {
    let bed = Bed::new();
    let (dir, at) = start(&bed);
    meet_all(at, &[("a", 1), ("b", 1)]);
    // both come again, and the rank of the other host is slower
    join(at, "global", 0, 2);
    join(at, "global", 1, 2);
    let leave = |rank: u32| send(at, format!("DELETE /global/{rank} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    assert!(leave(0).starts_with("HTTP/1.1 200 "));
    std::fs::write(bed.work("go"), "").unwrap();
    until("the ends of this host's ranks", || {
        [0, 1].iter().all(|rank| dir.path().join(format!("exit-{rank}.json")).exists())
    });
    assert!(leave(1).starts_with("HTTP/1.1 200 "));
    ended(&dir);
    assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn how_far_the_ranks_came_is_noted_when_the_run_ends_at_once() {
    let bed = Bed::new();
    let (dir, at) = start(&bed);
    join(at, "global", 0, 2);
    join(at, "global", 1, 2);
    std::fs::write(bed.work("go"), "").unwrap();
    ended(&dir);
    assert_eq!(told(&dir).last(), Some(&Progress::Joined { ranks: [0, 1].map(Rank).into(), world: 2 }));
}

#[test]
fn a_port_that_is_taken_is_named_and_no_rank_is_started() {
    let bed = Bed::new();
    let taken = TcpListener::bind((LOCAL, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut spec = bed.spec(&["touch started"], 1000);
    spec.rendezvous = Some(plan_of(&[("a", 1)]));
    let dir = RunDir::create(&bed.state_dir(), &bed.run, &bed.host).unwrap();
    let error = |env| launch(&dir, spec.clone(), env).unwrap_err().to_string();
    let text = error(variables(port));
    let wanted =
        format!("cannot serve the rendezvous of the run on 127.0.0.1 port {port}: address already in use");
    assert!(text.contains(&wanted), "{text}");
    let mut without = variables(port);
    without.remove("HVTUI_KV_PORT");
    assert!(error(without).contains("HVTUI_KV_PORT is missing"));
    let wrong = variables(port).into_iter().chain([("HVTUI_KV_PORT".to_owned(), "0".to_owned())]).collect();
    assert!(error(wrong).contains("HVTUI_KV_PORT=0 is no port from 1 to 65535"));
    assert!(!bed.work("started").exists());
    // nothing was claimed: when the port is free the run starts
    drop(taken);
    assert_eq!(launch(&dir, spec, variables(port)).unwrap(), Start::Now);
    ended(&dir);
    assert!(bed.work("started").exists());
}

#[test]
fn a_supervisor_that_takes_over_says_that_the_rendezvous_is_lost() {
    for met in [false, true] {
        let bed = Bed::new();
        let (dir, at) = start(&bed);
        if met {
            meet_all(at, &[("a", 1), ("b", 1)]);
            until("the note of all", || told(&dir).contains(&Progress::Connected { world: 2 }));
        }
        let supervisor = state(&dir).supervisor;
        kill(supervisor.pid, Signal::KILL);
        until("its end", || !supervisor.alive());
        // A rank-wrap that has noticed it may have been faster.
        assert!(matches!(adopt(bed::hvtui(), &dir).unwrap(), Adopted::Now | Adopted::Needless));
        let note =
            wait_for("the note", || notes(&dir).into_iter().find(|note| note.what == what::RENDEZVOUS_LOST));
        assert!(
            note.is_trouble() && note.text.contains("before all ranks were connected") != met,
            "{}",
            note.text
        );
        std::fs::write(bed.work("go"), "").unwrap();
        ended(&dir);
    }
}

#[test]
fn of_the_notes_that_count_up_the_newest_of_a_host_is_shown_and_others_stay() {
    let run = plan::unique_run();
    let spec = RunSpec {
        code: None,
        id: run.clone(),
        name: "test".to_owned(),
        kind: JobKind::Plain,
        command: Vec::new(),
        env: BTreeMap::new(),
        workdir: None,
        placements: Vec::new(),
        created: Stamp(1),
        options: hvtui::domain::options::RunOptions::default(),
    };
    let joined = |ranks: &[u32]| {
        let ranks = ranks.iter().copied().map(Rank).collect();
        Progress::Joined { ranks, world: 512 }.note(HostTime(1))
    };
    let lost = Note::new(what::SUPERVISOR_LOST, "the supervisor was lost", HostTime(1));
    let told = [lost.clone(), joined(&[0]), joined(&[0, 1]), joined(&[0, 1, 7])];
    let mut events = vec![Event::RunCreated { spec: Arc::new(spec) }];
    events.extend(told.clone().map(|note| Event::RunNoted { host: "a".into(), note }));
    let mut world = World::default();
    for (seq, event) in (0..).zip(events) {
        world.apply(&Envelope { seq, at: Stamp(2), origin: Origin::Run(run.clone()), event });
    }
    let shown: Vec<Note> = world.runs[&run].notes.iter().map(|(_, _, note)| (**note).clone()).collect();
    assert_eq!(shown, [lost, joined(&[0, 1, 7])]);
}

// ------------------------------------------------------------------ how fast

/// Requests a second on loopback, a connection each, and the memory of this process: 512 ranks at 100 Hz on a machine
/// that serves nothing else need 51 200, but they wait for the slowest rank's start only. Run alone:
/// `cargo test --release --test it horovod_rendezvous:: -- --ignored --nocapture requests`.
#[test]
#[ignore = "measures: run it alone, and built with --release"]
#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
fn requests_a_second() {
    let served = serve(&[("a", 8), ("b", 8)]);
    let address: Vec<u8> = vec![7; 136 * 15];
    for rank in 0..8 {
        ask(served.at, "PUT", &format!("/global/{rank}"), &address).unwrap();
    }
    for clients in [1, 2, 4] {
        let (count, over, used) = (AtomicU64::new(0), AtomicBool::new(false), processor_time());
        let began = std::time::Instant::now();
        std::thread::scope(|scope| {
            for client in 0..clients {
                let (count, over, at) = (&count, &over, served.at);
                scope.spawn(move || {
                    let mut key = client;
                    while !over.load(Ordering::Relaxed) {
                        key = (key + 1) % 16;
                        let (status, _) = ask(at, "GET", &format!("/global/{key}"), b"").unwrap();
                        assert_eq!(status, if key < 8 { 200 } else { 404 });
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_secs(5));
            over.store(true, Ordering::Relaxed);
        });
        let (count, seconds) = (count.load(Ordering::Relaxed) as f64, began.elapsed().as_secs_f64());
        let (rate, each) = (count / seconds, (processor_time() - used) as f64 / 1000.0 / count);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        println!(
            "{clients} clients: {rate:.0} requests/s, {each:.1} µs of processor time for each in the server, {memory}"
        );
    }
}

/// Nanoseconds that the server's thread has had a processor.
fn processor_time() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let ours =
        threads.filter(|thread| std::fs::read_to_string(thread.join("comm")).unwrap() == "rendezvous\n");
    let time = |thread: std::path::PathBuf| {
        let text = std::fs::read_to_string(thread.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    ours.map(time).sum()
}
