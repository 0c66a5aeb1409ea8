//! A cluster that does not exist, for `hvtui demo`: hosts whose agents live in this process. They speak the same messages
//! over the same frames as real ones, so that everything behind the link is what a real cluster meets: links, telemetry,
//! leases, launches, logs, recordings. No process is started and nothing is connected.
//!
//! What they tell is made up from the host's number and the time alone, and is the same in each demo.

mod agent;
mod chance;
mod checks;
mod gpus;
mod job;
mod runs;
mod signals;
mod stacks;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::link::LinkTarget;
use crate::cluster::messages::HostEntry;
use crate::domain::ids::HostId;
use crate::launch::request::{Pick, SlotName};

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

    /// Where the recipes are launched when it begins, in their order: on GPUs of their own, as far as there are any.
    pub fn launches(self) -> Vec<Vec<Pick>> {
        let digits = self.digits();
        let good = (0..self.hosts).filter(|number| self.health(*number) == Health::Good);
        let all = good.flat_map(|number| (0..self.gpus).map(move |gpu| (number, gpu)));
        let mut free = all.filter(|(number, gpu)| gpus::is_free(*number, *gpu)).map(|(number, gpu)| Pick {
            host: HostId::from(host_name(number, digits)),
            slot: SlotName::Index(gpu),
        });
        let launches = RANKS.map(|ranks| free.by_ref().take(ranks).collect::<Vec<_>>());
        launches
            .into_iter()
            .zip(RANKS)
            .filter(|(picks, ranks)| picks.len() == *ranks)
            .map(|(picks, _)| picks)
            .collect()
    }

    /// Digits of the numbers in the names of hosts.
    fn digits(self) -> usize {
        self.hosts.to_string().len().max(2)
    }

    /// The hosts file of the cluster.
    pub fn hosts_file(self) -> String {
        let digits = self.digits();
        let mut text = String::new();
        for number in 0..self.hosts {
            // writing to a text does not fail
            let _ = writeln!(
                text,
                "[[host]]\nname = \"{}\"\naddress = \"{}\"\nuser = \"you\"\n",
                host_name(number, digits),
                address(number)
            );
        }
        text + RECIPES
    }

    /// How the hosts are reached, in the order of the hosts file.
    pub fn entries(self, interval: Duration) -> Vec<HostEntry> {
        let digits = self.digits();
        let runs = Arc::new(runs::Runs::default());
        let entry = |number: u32| {
            let id = HostId::from(host_name(number, digits));
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

fn host_name(number: u32, digits: usize) -> String {
    format!("gpu-{:0digits$}", number + 1)
}

fn address(number: u32) -> String {
    format!("10.20.{}.{}", number / 200, 11 + number % 200)
}

/// Ranks of each recipe.
const RANKS: [usize; 3] = [4, 2, 2];

/// Alerts and recipes of the demo. The recipes are launched when it begins.
const RECIPES: &str = r#"
[alerts]
held_idle = "20s"

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
    fn each_launch_has_gpus_of_its_own() {
        let ranks = |hosts, gpus| Size { hosts, gpus }.launches().iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!([ranks(8, 8), ranks(2, 8), ranks(1, 1)], [vec![4, 2, 2], vec![4], vec![]]);
        let all = Size { hosts: 8, gpus: 8 }.launches().concat();
        let places: std::collections::BTreeSet<String> = all.iter().map(|pick| format!("{pick:?}")).collect();
        assert_eq!(places.len(), all.len());
    }

    #[test]
    fn troubled_hosts_are_few() {
        let troubled = |hosts| {
            let size = Size { hosts, gpus: 8 };
            (0..hosts).filter(|number| size.health(*number) != Health::Good).count()
        };
        assert_eq!([troubled(1), troubled(3), troubled(4), troubled(1000)], [0, 0, 2, 2]);
    }
}
