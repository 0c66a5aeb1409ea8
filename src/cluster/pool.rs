//! All hosts together: commands go out by name, what comes in arrives in one queue.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::host_task;
use super::link::LinkTarget;
use crate::domain::container::ImageId;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::time::Stamp;
use crate::wire::image::ImageTold;
use crate::wire::mesh::MeshTold;
use crate::wire::message::{Refused, Runs, Stacks, ToAgent};
use crate::wire::signal::SignalTold;
use crate::wire::sync::SyncTold;
use crate::wire::trace::{TracePiece, Traces};
use crate::wire::upload::BlobsTaken;

/// How many items may wait for the reader before the hosts' links are slowed down.
const QUEUE: usize = 2048;

/// A host and how to reach it.
#[derive(Debug, Clone)]
pub struct HostEntry {
    /// Its name.
    pub id: HostId,
    /// How to reach it.
    pub target: LinkTarget,
    /// Time between telemetry samples; `None` for none.
    pub interval: Option<Duration>,
    /// Where its lease files lie; its own choice when `None`.
    pub lease_dir: Option<String>,
}

/// What a host's task is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send this as soon as the link is up; a [`Reply::Unreachable`] comes back when it is not.
    Send(Box<ToAgent>),
    /// Try to connect now, whatever the backoff says, also after a refusal.
    Reconnect,
}

/// One thing that came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// From which host.
    pub host: HostId,
    /// When.
    pub at: Stamp,
    /// What.
    pub incoming: Incoming,
}

/// What comes in from a host.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// Part of the event stream.
    Event(Origin, Event),
    /// An answer for the launcher.
    Reply(Reply),
}

/// An agent's answer about a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The host can start its ranks.
    Prepared {
        /// The run.
        run: RunId,
        /// A port that is free there.
        ports: Vec<u16>,
        /// The image of its containers.
        image: Option<ImageId>,
    },
    /// The host can't do what was asked.
    Refused(Refused),
    /// The host's supervisor owns its ranks.
    Started {
        /// The run.
        run: RunId,
    },
    /// Nothing of the run is left on the host.
    Finished {
        /// The run.
        run: RunId,
    },
    /// Runs that the host knows.
    Runs(Runs),
    /// What a run's processes are doing there.
    Stacks(Stacks),
    /// What it has to say about logins between hosts.
    Mesh(MeshTold),
    /// How far its ranks are with a kernel trace.
    Traces(Traces),
    /// A piece of such a trace.
    TracePiece(TracePiece),
    /// How far it is with a folder that is copied there.
    Sync(SyncTold),
    /// How far it is with a container image that is copied there.
    Image(ImageTold),
    /// How much of an upload it has taken.
    BlobsTaken(BlobsTaken),
    /// What a signal would hit there, or what came of it.
    Signal(SignalTold),
    /// The message could not be sent: the host is not connected.
    Unreachable {
        /// The run it was about.
        run: RunId,
        /// Why, in words.
        reason: String,
    },
}

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
