//! A rank as a process of its own, for tests: joins a group and does what its last argument says, step by step.
//!
//! `collective_rank ADDRESS RANK WORLD TIMEOUT_MS auto|tcp ISLAND STEPS`: ADDRESS is rank 0's, and where each rank listens,
//! or a name, and each listens where it may. STEPS are words with commas between:
//! `all:LEN`, `mean:LEN`, `double:LEN` (an allreduce of f32, of f32, of f64), `registered:LEN` (in memory of the group),
//! `loop:LEN` (one after another, without end), `barrier`, `ready` (says so), `tell` (says how bytes travel), `pause:MS`, `stop`, `die`, `leave` (drops the
//! group and lives on until its input ends). With `HVTUI_TEST_HELD` it says `here` first and waits for a line. Says `apart WHY` when it shares no memory, `failed MS ERROR` or `done`, then how much of the group is left.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test's program fails by panicking, and speaks on its output"
)]

use std::fmt::Write as _;
use std::time::Duration;

use hvtui::clock;
use hvtui::collective::{
    Collective, CollectiveError, Communicator, Group, GroupConfig, Reduce, RendezvousEvent, Secret,
    TransportPreference,
};
use rustix::process::{Signal, getpid, kill_process};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [at, rank, world, timeout, transport, shm_domain, steps] = words.as_slice() else {
        panic!("seven words are wanted")
    };
    let mut tail = String::new();
    for byte in at.bytes() {
        let _ = write!(tail, "{byte:02x}");
    }
    let config = GroupConfig {
        rank: rank.parse().unwrap(),
        world: world.parse().unwrap(),
        master: at.clone(),
        port: 29500,
        bind: at.parse().ok(),
        secret: Secret::from_hex(&format!("{}{tail}", "0".repeat(64 - tail.len()))).unwrap(),
        timeout: Duration::from_millis(timeout.parse().unwrap()),
        clock: clock::host_now,
        ticker: clock::ticker(),
        transport: if transport == "tcp" { TransportPreference::Tcp } else { TransportPreference::Auto },
        shm_domain: shm_domain.clone(),
        streams: None,
        pin: false,
        local: None,
    };
    if std::env::var_os("HVTUI_TEST_HELD").is_some() {
        println!("here");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let begun = clock::host_now().0;
    let mut on = |event| {
        if let RendezvousEvent::NoSharedMemory { why } = event {
            println!("apart {why}");
        }
    };
    let mut group = match Group::connect(config, &mut on) {
        Ok(group) => Some(group),
        Err(error) => return println!("failed {} {error}", (clock::host_now().0 - begun) / 1000),
    };
    for step in steps.split(',') {
        let begun = clock::host_now().0;
        if let Err(error) = act(&mut group, step) {
            println!("failed {} {error}", (clock::host_now().0 - begun) / 1000);
            drop(group);
            return println!("left {}", left());
        }
    }
    println!("done");
    drop(group);
    println!("left {}", left());
}

fn act(home: &mut Option<Group>, step: &str) -> Result<(), CollectiveError> {
    let (word, number) = step.split_once(':').unwrap_or((step, "0"));
    let number: usize = number.parse().unwrap();
    let Some(group) = home else { return Ok(()) };
    match word {
        "all" => drop(group.allreduce(&mut vec![1.0_f32; number], Reduce::Sum)?),
        "mean" => drop(group.allreduce(&mut vec![1.0_f32; number], Reduce::Mean)?),
        "double" => drop(group.allreduce(&mut vec![1.0_f64; number], Reduce::Sum)?),
        "registered" => {
            let mut buffer = group.buffer::<f32>(number)?;
            group.allreduce(&mut buffer, Reduce::Sum)?;
        }
        "loop" => {
            let mut values = vec![1.0_f32; number];
            loop {
                group.allreduce(&mut values, Reduce::Max)?;
            }
        }
        "barrier" => drop(group.barrier()?),
        "ready" => println!("ready"),
        "tell" => println!("told {}", group.transport()),
        "pause" => std::thread::sleep(Duration::from_millis(number as u64)),
        "stop" => kill_process(getpid(), Signal::STOP).unwrap(),
        "die" => kill_process(getpid(), Signal::KILL).unwrap(),
        "leave" => {
            *home = None;
            // The end of the input is the sign to end.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        other => panic!("there is no step {other}"),
    }
    Ok(())
}

/// Memory and sockets of the group that this process still has.
fn left() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    // Standard input and output may be sockets; sockets of the group have numbers above.
    let files = links.filter(|link| link.to_string_lossy().contains("hvtui-")).count();
    maps.lines().filter(|line| line.contains("hvtui-")).count() + files
}
