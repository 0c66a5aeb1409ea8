//! A scripted NCCL for tests of hvtui's profiler plugin: finds and opens the plugin as NCCL does, and calls it as NCCL calls a
//! profiler, with times that it makes up. No GPU and no NCCL is needed, and nothing of hvtui is used.
//!
//! Usage: `nccl_host SCRIPT [ARGUMENT..]`. `FAKE_NCCL_VERSION` is the version that it plays, as NCCL counts it (22907). The
//! facts are those of `src/plugin/plugin_open.cc`, `src/plugin/profiler.cc` and `src/include/plugin/profiler/` of NVIDIA/nccl.

#![expect(unsafe_code, reason = "it calls a C library")]
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a program of tests tells what it sees, and fails by panicking"
)]

mod profiler;

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::{Duration, Instant};

use profiler::{Communicator, KernelChannel, Profiler};

/// What the GPU's clock says at the start: nanoseconds of the Unix epoch, in steps of 1,024.
const GPU_NS: u64 = 1_790_000_000_000_000_000;
const MS: u64 = 1 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let Some(profiler) = Profiler::open() else {
        println!("no profiler");
        return;
    };
    match words.first().map_or("", String::as_str) {
        "late" => late(&profiler, number(1), number(2), number(3)),
        "threads" => threads(&profiler),
        "garbage" => garbage(&profiler),
        "closed" => closed(&profiler, &words[1]),
        "short" => short(&profiler),
        "flood" => flood(&profiler, number(1)),
        "plain" => plain(&profiler),
        "cost" => cost(&profiler),
        other => panic!("no script {other}"),
    }
    profiler.close();
    // the plugin's thread goes on in a library that NCCL has closed
    thread::sleep(Duration::from_millis(120));
    println!("played to the end");
}

fn rank() -> u64 {
    std::env::var("RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0)
}

/// One collective on all of its channels: the first starts at `start`, the last ends `took` later.
fn play(comm: &Communicator, func: &'static std::ffi::CStr, seq: u64, (start, took): (u64, u64)) {
    let group = comm.group();
    let collective = comm.collective(func, seq, 6_553_600, 4);
    comm.profiler.stop(collective);
    comm.profiler.stop(group);
    let begins = |channel: u8| comm.channel(collective, channel, start + u64::from(3 - channel) * 1024);
    let channels: Vec<KernelChannel> = (0..4).map(begins).collect();
    for (channel, handle) in (0..).zip(channels) {
        comm.ends(handle, start + took - channel * 1024);
    }
}

/// `COUNT` allreduces of two ranks, in which `LATE` comes `MS` milliseconds after the other one.
fn late(profiler: &Profiler, count: u64, late: u64, ms: u64) {
    let comm = profiler.communicator(0xfeed, rank(), 2);
    let took = MS + if rank() == late { 0 } else { ms * MS };
    for seq in 0..count {
        play(&comm, c"AllReduce", seq, (GPU_NS + seq * 50 * MS, took));
        thread::sleep(Duration::from_millis(10));
    }
    comm.finalize();
}

/// A thread a communicator, two functions each.
fn threads(profiler: &Profiler) {
    thread::scope(|scope| {
        for number in 0..3 {
            scope.spawn(move || {
                let comm = profiler.communicator(0x100 + number, 1, 2);
                for seq in 0..5 {
                    let start = GPU_NS + seq * MS;
                    play(&comm, c"AllReduce", seq, (start, (number + 1) * 1024 * 100));
                    play(&comm, c"ReduceScatter", seq, (start, 2048 * 100));
                }
                comm.finalize();
            });
        }
    });
    let thread_is_deaf = |status: &str| status.contains("\nSigBlk:\tfffffffe7ff");
    let deaf_threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of a process");
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
        statuses.filter(|status| thread_is_deaf(status)).count()
    };
    // the kernel's list ends early where one of the threads above is just about to be gone
    let again = (0..1000).find_map(|_| {
        thread::sleep(Duration::from_millis(5));
        Some(deaf_threads()).filter(|&count| count > 0)
    });
    println!("deaf threads {}", again.unwrap_or_default());
}

/// What NCCL never does, and what it may do in a version to come.
fn garbage(profiler: &Profiler) {
    let comm = profiler.communicator(1, 0, 2);
    for kind in [0, 4, 8, 16, 32, 128] {
        assert_eq!(comm.event(kind), 0, "an event of type {kind} has a handle");
    }
    if profiler.version > 4 {
        for kind in [256, 512, 1024, 2048, 4096, 8192, 16384, 1 << 40] {
            assert_eq!(comm.event(kind), 0, "an event of type {kind} has a handle");
        }
    }
    let collective = comm.collective(c"AllReduce", 0, 1, 4);
    for handle in [0, 1, u64::MAX, 0xdead_beef, collective ^ 1, collective ^ 1 << 12, collective | 0xfff] {
        assert_eq!(comm.channel(handle, 0, 5).0, 0, "a channel of {handle:x}");
        comm.ends(KernelChannel(handle), 7);
        profiler.state(handle, 22, None);
        profiler.stop(handle);
    }
    assert_eq!(comm.channel(collective, 64, 5).0, 0);
    let channel = comm.channel(collective, 0, 5);
    for state in [-1, 0, 19, 21, 23, 30, i32::MAX] {
        profiler.state(channel.0, state, Some(u64::MAX));
    }
    profiler.state(channel.0, 22, None);
    comm.finalize();
    assert_eq!(comm.collective(c"AllReduce", 1, 1, 4), 0, "a communicator that is no more");
    comm.finalize();
    // an end without a start, ends that come twice, and no texts
    let comm = profiler.communicator(2, 1, 2);
    let collective = comm.untitled(3, 2);
    let channels = [comm.channel(collective, 0, GPU_NS), comm.channel(collective, 1, GPU_NS)];
    for handle in [channels[0], channels[0], channels[0], channels[1], channels[1]] {
        profiler.state(handle.0, 22, Some(GPU_NS + 4096));
    }
    // a clock that goes back, and one that stands
    for (seq, end) in [(4, GPU_NS - 1024), (5, GPU_NS)] {
        let collective = comm.collective(c"AllReduce", seq, 1, 1);
        let channel = comm.channel(collective, 0, GPU_NS);
        comm.ends(channel, end);
    }
    comm.finalize();
    profiler.nulls();
}

/// The program closes descriptors that it does not know, and opens a file of its own.
fn closed(profiler: &Profiler, own: &str) {
    let comm = profiler.communicator(1, 0, 2);
    play(&comm, c"AllReduce", 0, (GPU_NS, MS));
    thread::sleep(Duration::from_millis(120));
    for number in 3..64 {
        // SAFETY: nothing in this process uses them any more.
        unsafe { libc::close(number) };
    }
    let mut own = std::fs::File::create(own).expect("a file of one's own");
    assert!(own.as_raw_fd() < 64);
    play(&comm, c"AllReduce", 1, (GPU_NS, MS));
    comm.finalize();
    own.write_all(b"mine").expect("a file of one's own");
}

/// For a while there is room for half a line alone; then there is room again.
fn short(profiler: &Profiler) {
    let room = |bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit is readable; SIGXFSZ may be ignored.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
        };
    };
    let comm = profiler.communicator(1, 0, 2);
    room(100);
    play(&comm, c"AllReduce", 0, (GPU_NS, MS));
    comm.finalize();
    let comm = profiler.communicator(1, 0, 2);
    play(&comm, c"AllReduce", 1, (GPU_NS, MS));
    comm.finalize();
    room(libc::RLIM_INFINITY);
    let comm = profiler.communicator(1, 0, 2);
    play(&comm, c"AllReduce", 2, (GPU_NS, MS));
    comm.finalize();
}

/// As many collectives as go within a few seconds.
fn flood(profiler: &Profiler, count: u64) {
    let comm = profiler.communicator(1, rank(), 2);
    for seq in 0..count {
        play(&comm, c"AllReduce", seq, (GPU_NS, MS));
        if seq % 10 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
    }
    comm.finalize();
}

/// What NCCL's threads spend in the plugin, for a collective on eight channels.
#[expect(clippy::disallowed_methods, reason = "a measurement of time")]
fn cost(profiler: &Profiler) {
    let comm = profiler.communicator(1, 0, 2);
    let mut took: Vec<Duration> = Vec::new();
    for seq in 0..200_000 {
        let began = Instant::now();
        let collective = comm.collective(c"AllReduce", seq, 1, 8);
        profiler.stop(collective);
        for number in 0..8 {
            let channel = comm.channel(collective, number, GPU_NS);
            comm.ends(channel, GPU_NS + MS);
        }
        took.push(began.elapsed());
        if seq % 64 == 0 {
            // of these some are told
            thread::sleep(Duration::from_millis(1));
        }
    }
    comm.finalize();
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1000];
    println!("median {:?}, 99 % {:?}, 99.9 % {:?}", at(500), at(990), at(999));
}

/// One collective, one that runs on fewer channels than announced, and one that never ends.
fn plain(profiler: &Profiler) {
    let comm = profiler.communicator(0xabc, 1, 2);
    play(&comm, c"AllReduce", 0, (GPU_NS, MS));
    let collective = comm.collective(c"AllGather", 0, 10, 8);
    let channel = comm.channel(collective, 3, GPU_NS);
    comm.ends(channel, GPU_NS + 2 * MS);
    let hangs = comm.collective(c"Broadcast", 0, 10, 8);
    let _ = comm.channel(hangs, 3, GPU_NS);
    thread::sleep(Duration::from_millis(1200));
    comm.finalize();
}
