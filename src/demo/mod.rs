//! A cluster that does not exist, for `hvtui demo`: hosts whose agents live in this process. They speak the same messages
//! over the same frames as real ones, so that everything behind the link is what a real cluster meets: links, telemetry,
//! leases, launches, logs, recordings. No process is started and nothing is connected.
//!
//! What they tell is made up from the host's number and the time alone, and is the same in each demo.

mod agent;
mod chance;
mod gpus;
mod job;
mod runs;
mod signals;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::link::LinkTarget;
use crate::cluster::pool::HostEntry;
use crate::domain::ids::HostId;

/// How large the cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How many hosts, at least 1.
    pub hosts: u32,
    /// GPUs of each.
    pub gpus: u32,
}

/// What becomes of a link to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    /// No server answers there.
    Offline,
    /// It answers, and its driver does not.
    NoDriver,
}

impl Size {
    /// Two hosts have a trouble each, where that leaves most of them well.
    fn health(self, number: u32) -> Health {
        match self.hosts - number {
            1 if self.hosts >= 4 => Health::NoDriver,
            2 if self.hosts >= 4 => Health::Offline,
            _ => Health::Good,
        }
    }

    /// The hosts file of the cluster.
    pub fn hosts_file(self) -> String {
        let digits = self.hosts.to_string().len().max(2);
        let mut text = String::new();
        for number in 0..self.hosts {
            // writing to a text does not fail
            let _ = writeln!(
                text,
                "[[host]]\nname = \"gpu-{:0digits$}\"\naddress = \"{}\"\nuser = \"you\"\n",
                number + 1,
                address(number)
            );
        }
        text + RECIPES
    }

    /// How the hosts are reached, in the order of the hosts file.
    pub fn entries(self, interval: Duration) -> Vec<HostEntry> {
        let digits = self.hosts.to_string().len().max(2);
        let runs = Arc::new(runs::Runs::default());
        let entry = |number: u32| {
            let id = HostId::from(format!("gpu-{:0digits$}", number + 1).as_str());
            let agent = agent::Agent::new(id.clone(), number, self, Arc::clone(&runs));
            let target = LinkTarget::Within {
                to: format!("you@{}:22 (demo)", address(number)),
                agent: Arc::new(agent),
            };
            HostEntry { id, target, interval: Some(interval), lease_dir: None }
        };
        (0..self.hosts).map(entry).collect()
    }
}

fn address(number: u32) -> String {
    format!("10.20.{}.{}", number / 200, 11 + number % 200)
}

/// Recipes of the demo. The first two are launched when it begins.
const RECIPES: &str = r#"
[[recipe]]
name = "resnet50"
np = 4
command = ["python", "train.py", "--model", "resnet50"]

[[recipe]]
name = "bert-fails"
np = 2
command = ["python", "finetune.py", "--fail"]

[[recipe]]
name = "llama-hangs"
np = 2
command = ["python", "sft.py", "--hang"]
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubled_hosts_are_few() {
        let troubled = |hosts| {
            let size = Size { hosts, gpus: 8 };
            (0..hosts).filter(|number| size.health(*number) != Health::Good).count()
        };
        assert_eq!([troubled(1), troubled(3), troubled(4), troubled(1000)], [0, 0, 2, 2]);
    }
}
