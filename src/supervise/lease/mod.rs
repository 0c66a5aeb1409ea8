//! GPU leases: one lock file a GPU, and the kernel's `flock` on it is the lease.
//!
//! ```text
//!   place   the directory, and whether it can be trusted with locks
//!   claim   takes the locks of all ranks of a host, or none; hands each to its rank-wrap
//!   socket_lock  the second lock of a GPU, which no file's removal ends, and whose it is
//!   handover  open descriptors, and so locks, from one process to another without a gap
//!   note    beside a lock: for whom it is held. Its file's owner is the kernel's word, the rest is the holder's
//!   lock_record  a note that counts while it is locked
//!   shared_lease  records of runs that use their user's GPU beside another run
//!   queue   records of those who wait: tickets
//!   look    who holds what, without touching a lock
//!   locker  which process has a lock, by the kernel's lists
//! ```
//!
//! A lock ends with the last process that has it, so a file that is left behind means nothing. The agent takes the
//! locks when a launch is prepared, before a rank starts on any host, and hands them to the supervisor with the
//! order to start; each rank-wrap inherits the one of its rank and is from then on the only process that has it: it
//! closes it to the rank.

mod claim;
pub mod handover;
mod lock_record;
mod locker;
mod look;
mod note;
mod place;
mod queue;
mod shared_lease;
mod socket_lock;

use std::path::PathBuf;

pub use claim::{Claims, claim, retire, usual_lock};
pub use look::{check, look};
pub use note::is_draft;
pub use place::{LeaseDir, USUAL};
pub use queue::Queued;

use crate::domain::ids::GpuUuid;
use crate::domain::lease::Lease;

/// Why GPUs can't be leased.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// They are in use.
    #[error("{}", busy_by_uuid(.0))]
    Busy(Vec<Lease>),
    /// A directory that can't be trusted with locks.
    #[error("no GPU leases in {path}: {detail}", path = path.display())]
    Place {
        /// The directory, or a part of its path.
        path: PathBuf,
        /// What is wrong and the remedy.
        detail: String,
    },
    /// None of the usual directories will do.
    #[error(
        "no directory for GPU leases ({0}): make one that all users share, such as \
         `sudo install -d -m 1777 /var/lib/hvtui-leases`, and name it as lease_dir in the hosts file"
    )]
    NoPlace(String),
    /// A lock's file that is not what it should be.
    #[error("lease of {gpu}: {path} {detail}", path = path.display())]
    File {
        /// The GPU.
        gpu: GpuUuid,
        /// The file.
        path: PathBuf,
        /// What is wrong and the remedy.
        detail: String,
    },
    /// A lock that was to come with the order to start and did not.
    #[error("the lease of {0} was lost on the way to the supervisor: start the run again")]
    Lost(GpuUuid),
    /// A GPU's name that can't be part of a file name.
    #[error("GPU '{0}' can't be leased: its UUID has characters that no UUID has")]
    BadName(String),
}

impl LeaseError {
    /// In words, with the GPUs as `name` calls them.
    pub fn words(&self, name: &dyn Fn(&GpuUuid) -> String) -> String {
        match self {
            Self::Busy(leases) => busy_words(leases, name),
            other => other.to_string(),
        }
    }
}

fn busy_by_uuid(leases: &[Lease]) -> String {
    busy_words(leases, &GpuUuid::to_string)
}

fn busy_words(leases: &[Lease], name: &dyn Fn(&GpuUuid) -> String) -> String {
    let words = leases
        .iter()
        .map(|lease| format!("{} is busy: leased by {}{}", name(&lease.gpu), lease.holder(), remedy(lease)));
    words.collect::<Vec<_>>().join("; ")
}

/// What to do about a holder that is not known to be a run. A run is waited for.
fn remedy(lease: &Lease) -> String {
    let gpu = &lease.gpu;
    match (&lease.run, &lease.user, lease.pid) {
        (Some(_), ..) => String::new(),
        (None, Some(_), Some(pid)) => format!(", not known to be a run: it is free when process {pid} ends"),
        (None, Some(_), None) => {
            format!(", not known to be a run: `sudo ss -xap | grep {gpu}` tells its process")
        }
        (None, None, _) => format!(
            ": its process can't be seen from here, as one of another container, or the one that took the lock has ended and \
             another one keeps it: `sudo fuser -v` on its lock file, {gpu}.lock in /run/lock, /dev/shm or lease_dir, tells \
             whose it is"
        ),
    }
}
