//! All hosts together: commands go out by name, what comes in arrives in one queue.

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::host_task;
use super::messages::{Command, HostEntry, Item};
use crate::domain::ids::HostId;
use crate::wire::message::ToAgent;

/// How many items may wait for the reader before the hosts' links are slowed down.
const QUEUE: usize = 2048;

/// Sends messages to one host's agent; what can't be sent is lost.
#[derive(Debug, Clone)]
pub struct HostSender(mpsc::UnboundedSender<Command>);

impl HostSender {
    /// Sends a message. `false` when nothing takes it any more.
    pub fn send(&self, message: ToAgent) -> bool {
        self.0.send(Command::Send(Box::new(message))).is_ok()
    }
}

#[cfg(test)]
impl HostSender {
    /// A sender, and what is sent.
    pub(crate) fn of_test() -> (Self, mpsc::UnboundedReceiver<Command>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        (Self(commands), inbox)
    }
}

/// The hosts' tasks. Dropping it ends them; agents end with their links, supervisors live on.
#[derive(Debug)]
pub struct Cluster {
    hosts: BTreeMap<HostId, mpsc::UnboundedSender<Command>>,
    items: mpsc::Receiver<Item>,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts a task for each host. Needs a tokio runtime.
    pub fn connect(entries: Vec<HostEntry>) -> Self {
        let (sender, items) = mpsc::channel(QUEUE);
        let mut hosts = BTreeMap::new();
        let mut tasks = Vec::new();
        for entry in entries {
            let (commands, inbox) = mpsc::unbounded_channel();
            hosts.insert(entry.id.clone(), commands);
            tasks.push(tokio::spawn(host_task::run(entry, inbox, sender.clone())));
        }
        Self { hosts, items, tasks }
    }

    /// The next item; `None` when there are no hosts. Cancel-safe.
    pub async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }

    /// An item that is there already.
    pub fn try_next(&mut self) -> Option<Item> {
        self.items.try_recv().ok()
    }

    /// Sends a message to a host's agent. `false` for a host that does not exist.
    pub fn send(&self, host: &HostId, message: ToAgent) -> bool {
        self.command(host, Command::Send(Box::new(message)))
    }

    /// What sends messages to a host's agent from another thread; `None` for a host that does not exist.
    pub fn sender(&self, host: &HostId) -> Option<HostSender> {
        self.hosts.get(host).cloned().map(HostSender)
    }

    /// Tries a host now.
    pub fn reconnect(&self, host: &HostId) -> bool {
        self.command(host, Command::Reconnect)
    }

    fn command(&self, host: &HostId, command: Command) -> bool {
        self.hosts.get(host).is_some_and(|commands| commands.send(command).is_ok())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
