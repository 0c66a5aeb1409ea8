//! hvtui's own ssh path for `benches/peers/ssh`, which sets up the hosts and runs OpenSSH beside it.
//!
//! ```text
//!   ssh connect ADDRESS USER KEY KNOWN_HOSTS N          N times: ms from nothing to the first byte of a command
//!   ssh down ADDRESS USER KEY KNOWN_HOSTS BYTES         connect, then seconds until so many bytes have come
//!   ssh hold ADDRESS USER KEY KNOWN_HOSTS N             N connections at once: KiB of memory for each
//!   ssh relay PID UPSTREAM MICROSECONDS                 a relay with that delay each way in PID's network; prints its
//!                                                       port and ends with standard input
//! ```
//!
//! A script takes the place of the agent: it says hello, reads a number, and sends so many zeros.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures and prints"
)]
// the relay is that of the fault matrix, which uses more of it
#![allow(dead_code, clippy::needless_pass_by_value, missing_docs)]

#[path = "../tests/it/faults/dice.rs"]
mod dice;
#[path = "../tests/it/faults/relay.rs"]
mod relay;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hvtui::domain::ids::HostId;
use hvtui::ssh::{AgentBinary, AgentStream, Target, open_agent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SCRIPT: &str = "#!/bin/sh\nprintf '\\001HVT1 %s\\n' \"$4\"\nread n\nexec head -c \"$n\" /dev/zero\n";

/// Where to connect, and what to start there.
struct Peer {
    target: Target,
    script: AgentBinary,
    _folder: tempfile::TempDir,
}

impl Peer {
    fn new(words: &[String]) -> Self {
        let [address, user, key, known] = words else { panic!("ADDRESS USER KEY KNOWN_HOSTS") };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("agent");
        std::fs::write(&path, SCRIPT).expect("the script");
        let mut target = Target::new(HostId::from("host"), address.clone(), 22, user.clone());
        target.identities = vec![PathBuf::from(key)];
        target.known_hosts = vec![PathBuf::from(known)];
        target.auth_agent = false;
        Self { target, script: AgentBinary::from_path(&path).expect("the script"), _folder: folder }
    }

    async fn open(&self) -> AgentStream {
        open_agent(&self.target, &self.script, |_| {}).await.expect("a connection")
    }

    /// Seconds from nothing to the first byte.
    async fn first_byte(&self) -> f64 {
        let begin = Instant::now();
        let (mut reader, mut writer) = self.open().await.into_split();
        writer.write_all(b"3\n").await.expect("a number");
        reader.read_exact(&mut [0; 3]).await.expect("bytes");
        begin.elapsed().as_secs_f64()
    }

    /// Seconds from nothing until all has come.
    async fn down(&self, bytes: u64) -> f64 {
        let begin = Instant::now();
        let (mut reader, mut writer) = self.open().await.into_split();
        writer.write_all(format!("{bytes}\n").as_bytes()).await.expect("a number");
        let mut buffer = vec![0; 256 * 1024];
        let mut come = 0;
        while come < bytes {
            let count = reader.read(&mut buffer).await.expect("bytes");
            assert!(count > 0, "only {come} bytes came");
            come += count as u64;
        }
        begin.elapsed().as_secs_f64()
    }

    /// KiB of this process's memory that each of so many connections takes.
    async fn hold(&self, count: u64) -> f64 {
        drop(self.open().await);
        let before = resident_kib();
        let mut open = Vec::new();
        for _ in 0..count {
            open.push(self.open().await);
        }
        let after = resident_kib();
        drop(open);
        (after - before) as f64 / count as f64
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.first().map(String::as_str) {
        Some("connect") => {
            let peer = Peer::new(&words[1..5]);
            drop(peer.open().await); // the script is there from now on
            for _ in 0..words[5].parse().expect("a count") {
                println!("{:.2}", peer.first_byte().await * 1e3);
            }
        }
        Some("down") => {
            let peer = Peer::new(&words[1..5]);
            drop(peer.open().await);
            println!("{:.3}", peer.down(words[5].parse().expect("bytes")).await);
        }
        Some("hold") => {
            let peer = Peer::new(&words[1..5]);
            println!("{:.1}", peer.hold(words[5].parse().expect("a count")).await);
        }
        Some("relay") => {
            let relay = relay::Relay::start(words[1].parse().expect("a pid"), &words[2], 1);
            let delay = Duration::from_micros(words[3].parse().expect("microseconds"));
            relay.set(|weather| weather.delay = delay);
            println!("{}", relay.port);
            let mut rest = Vec::new();
            tokio::io::stdin().read_to_end(&mut rest).await.expect("standard input");
        }
        // `cargo bench` without a word: the figures come from benches/peers/ssh
        _ => println!("run benches/peers/ssh"),
    }
}
