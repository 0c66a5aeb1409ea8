//! What goes to the tasks of hosts and what comes from them.

use std::sync::Arc;
use std::time::Duration;

use super::link::LinkTarget;
use crate::domain::container::ImageId;
use crate::domain::event::{Event, Origin};
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, RunId};
use crate::domain::time::{HostTime, Stamp};
use crate::wire::doctor::Checked;
use crate::wire::image::ImageTold;
use crate::wire::mesh::MeshTold;
use crate::wire::message::{Forgotten, Preflight, Refused, Runs, Stacks, ToAgent};
use crate::wire::signal::SignalTold;
use crate::wire::sync::SyncTold;
use crate::wire::trace::{TracePiece, Traces};
use crate::wire::upload::BlobsTaken;

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
    /// What a run has left there is deleted, or is not.
    Forgotten(Forgotten),
    /// What a launch would find there.
    Preflight(Preflight),
    /// What a check of the doctor has found there.
    Checked(Checked),
    /// What it has to say about logins between hosts.
    Mesh(MeshTold),
    /// How far its ranks are with a kernel trace.
    Traces(Traces),
    /// A piece of such a trace.
    TracePiece(TracePiece),
    /// Samples of the host that were taken while no client looked, each with when, in order.
    PastSamples {
        /// The run during which.
        run: RunId,
        /// The samples.
        samples: Vec<(HostTime, Arc<HostSample>)>,
    },
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
