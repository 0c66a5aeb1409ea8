//! Groups of ranks that are processes, each with its own part to play.

use std::io::{BufRead, BufReader, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;

use super::built;
use super::group_config::own_loopback;
use super::processes::{kill, until, waited_for_processors};

/// How the ranks reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ways {
    OneHost,
    Tcp,
    /// Two islands, by turns.
    Mixed,
}

pub(crate) const WAYS: [Ways; 3] = [Ways::OneHost, Ways::Tcp, Ways::Mixed];

pub(crate) struct Ranks {
    at: IpAddr,
    /// What the machine's processes had waited for processors at the start.
    waited: u64,
    children: Vec<Child>,
    said: Vec<Arc<Mutex<Vec<String>>>>,
}

/// How a rank ended: its error, and how long the call took that ended with it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) millis: u64,
    /// For how much of the time since the ranks began some process of the machine waited for a processor.
    pub(crate) waited: u64,
    pub(crate) error: String,
}

impl Ranks {
    /// Starts `world` ranks but for those without steps.
    pub(crate) fn start(
        world: u32,
        timeout_ms: u64,
        ways: Ways,
        steps: impl Fn(u32) -> Option<String>,
    ) -> Self {
        Self::start_under(world, timeout_ms, ways, |_| "", steps)
    }

    /// The same, each under limits: what is told to a shell's `ulimit`.
    pub(crate) fn start_under(
        world: u32,
        timeout_ms: u64,
        ways: Ways,
        limit: impl Fn(u32) -> &'static str,
        steps: impl Fn(u32) -> Option<String>,
    ) -> Self {
        let at = own_loopback();
        let (mut children, mut said) = (Vec::new(), Vec::new());
        for (rank, steps) in (0..world).filter_map(|rank| Some((rank, steps(rank)?))) {
            let shm_domain =
                if ways == Ways::Mixed { format!("island {}", rank % 2) } else { "one".to_owned() };
            let transport = if ways == Ways::Tcp { "tcp" } else { "auto" };
            let mut command = match limit(rank) {
                "" => Command::new(program()),
                limit => {
                    let mut shell = Command::new("sh");
                    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]).arg(program());
                    shell
                }
            };
            let mut child = command
                .arg(at.to_string())
                .args([rank, world].map(|number| number.to_string()))
                .arg(timeout_ms.to_string())
                .args([transport, &shm_domain, &steps])
                .env("HVTUI_TEST_HELD", "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (lines, heard) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
            let into = Arc::clone(&lines);
            std::thread::spawn(move || {
                for line in BufReader::new(heard).lines().map_while(Result::ok) {
                    into.lock().unwrap().push(line);
                }
            });
            children.push(child);
            said.push(lines);
        }
        let mut ranks = Self { at, waited: 0, children, said };
        // Their deadlines begin when they are there, and not while the machine starts one after the other.
        for index in 0..ranks.children.len() {
            until("a rank that is there", || {
                ranks.line(index, "here").is_some() || ranks.children[index].try_wait().unwrap().is_some()
            });
        }
        ranks.waited = waited_for_processors();
        for child in &mut ranks.children {
            // one that could not start has ended
            let _ = child.stdin.as_mut().unwrap().write_all(b"\n");
        }
        ranks
    }

    pub(crate) fn pid(&self, index: usize) -> u32 {
        self.children[index].id()
    }

    /// What follows this word on the line that this one begins with it.
    pub(crate) fn line(&self, index: usize, first: &str) -> Option<String> {
        let said = self.said[index].lock().unwrap();
        said.iter().find_map(|line| Some(line.strip_prefix(first)?.trim().to_owned()))
    }

    /// Waits until this one has said «ready».
    pub(crate) fn until_ready(&self, index: usize) {
        until("a rank that is ready", || {
            assert!(self.line(index, "failed").is_none(), "{:?}", self.line(index, "failed"));
            self.line(index, "ready").is_some()
        });
    }

    /// Waits until this one has ended its part with an error.
    pub(crate) fn failure(&self, index: usize) -> Failure {
        until("a rank that fails", || {
            assert!(self.line(index, "done").is_none(), "rank {index} has not failed");
            self.line(index, "failed ").is_some()
        });
        let line = self.line(index, "failed ").unwrap();
        let (millis, error) = line.split_once(' ').unwrap();
        let waited = (waited_for_processors() - self.waited) / 1000;
        Failure { millis: millis.parse().unwrap(), waited, error: error.to_owned() }
    }

    /// Waits until this one has ended well.
    pub(crate) fn done(&self, index: usize) {
        until("a rank that is done", || {
            assert!(self.line(index, "failed").is_none(), "{:?}", self.line(index, "failed"));
            self.line(index, "done").is_some()
        });
    }

    /// Ends the victim, waits for all, and looks that nothing of the group is left.
    pub(crate) fn end(mut self, victim: Option<usize>) {
        if let Some(victim) = victim {
            kill(self.pid(victim), Signal::KILL);
        }
        for index in 0..self.children.len() {
            drop(self.children[index].stdin.take());
            until("the end of a rank", || self.children[index].try_wait().unwrap().is_some());
            if Some(index) != victim && self.line(index, "left").is_some() {
                assert_eq!(self.line(index, "left").unwrap(), "0", "rank {index} keeps memory");
            }
        }
        let IpAddr::V4(at) = self.at else { panic!("an address of another kind") };
        let own = format!("{:08X}:", u32::from_le_bytes(at.octets()));
        // A connection that has closed in good order is remembered for a minute, without a process: state 06.
        until("no socket of the group", || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            !table.lines().any(|line| line.contains(&own) && line.split_whitespace().nth(3) != Some("06"))
        });
        until("no name of a group", || {
            // the leases of GPUs of other tests have names, too
            let table = std::fs::read_to_string("/proc/net/unix").unwrap();
            !table.lines().any(|line| line.contains("@hvtui-") && !line.contains("@hvtui-gpu-"))
        });
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A failing test leaves no process; those that have ended can't be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The program of a rank.
pub(crate) fn program() -> PathBuf {
    built::example("collective_rank")
}
