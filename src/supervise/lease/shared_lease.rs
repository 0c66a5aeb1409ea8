//! Runs that use a GPU beside another run of the same user (`--share`): a record each. The first run's lock says that
//! the GPU is its user's; these say who else is there, and keep the GPU from others when the first one has ended.

use super::LeaseError;
use super::claim::own_uid;
use super::lock_record::{self, LockRecord, OfProcess};
use super::note::{self, Note};
use super::place::LeaseDir;
use crate::domain::ids::{GpuUuid, Rank, RunId};
use crate::domain::lease::Lease;
use crate::procs::identity::Identity;

impl OfProcess for Note {
    fn process(&self) -> &Identity {
        &self.process
    }
}

/// The most records of a GPU that are read.
const MOST: usize = 64;

/// Puts a record of ours there.
pub(super) fn put(dir: &LeaseDir, gpu: &GpuUuid, note: &Note) -> Result<LockRecord, LeaseError> {
    LockRecord::put(dir, &file(dir, gpu, &note.run, note.rank), note)
}

/// The file of one of our ranks.
pub(super) fn file(dir: &LeaseDir, gpu: &GpuUuid, run: &RunId, rank: Rank) -> String {
    format!("{}{run}.{rank}.{}.json", head(dir, gpu), own_uid())
}

fn head(dir: &LeaseDir, gpu: &GpuUuid) -> String {
    format!("{}{gpu}.beside.", dir.prefix)
}

/// The leases beside that of a GPU's holder, in the order of their runs.
pub(super) fn read(dir: &LeaseDir, gpu: &GpuUuid, names: &[String]) -> Vec<Lease> {
    let head = head(dir, gpu);
    let lease = |name: &String| {
        let (_, uid) = name.strip_prefix(&head)?.strip_suffix(".json")?.rsplit_once('.')?;
        let uid: u32 = uid.parse().ok()?;
        let note: Note = lock_record::read(dir, name, uid)?;
        Some(note::told(gpu, uid, note))
    };
    let mut leases: Vec<Lease> = names.iter().filter_map(lease).take(MOST).collect();
    leases.sort_by(|a, b| (&a.run, a.rank).cmp(&(&b.run, b.rank)));
    leases
}
