//! Tickets of those who wait for GPUs: a record each, named by a number that grows with time. It orders those who
//! wait; the locks decide.

use serde::{Deserialize, Serialize};

use super::LeaseError;
use super::claim::own_uid;
use super::lock_record::{self, LockRecord, OfProcess};
use super::place::LeaseDir;
use crate::domain::ids::{GpuUuid, RunId};
use crate::domain::lease::Ticket;
use crate::domain::text::os_text;
use crate::procs::identity::Identity;
use crate::procs::status::user_name;

/// The most tickets that are read.
const MOST: usize = 256;

/// What a ticket's file says.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    process: Identity,
    name: String,
    gpus: Vec<GpuUuid>,
}

impl OfProcess for Written {
    fn process(&self) -> &Identity {
        &self.process
    }
}

/// A ticket of ours; gone when it is dropped.
#[derive(Debug)]
pub struct Queued {
    dir: LeaseDir,
    record: LockRecord,
}

impl Queued {
    /// Joins the queue.
    pub fn join(dir: LeaseDir, id: &RunId, name: &str, gpus: &[GpuUuid]) -> Result<Self, LeaseError> {
        let file = format!("{}queue.{id}.{}.json", dir.prefix, own_uid());
        let process = Identity::own().map_err(|e| LeaseError::NoPlace(os_text(&e)))?;
        let written = Written { process, name: name.to_owned(), gpus: gpus.to_vec() };
        let record = LockRecord::put(&dir, &file, &written)?;
        Ok(Self { dir, record })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.record.remove(&self.dir);
    }
}

/// The tickets that count, first come first.
pub(super) fn read(dir: &LeaseDir, names: &[String]) -> Vec<Ticket> {
    let head = format!("{}queue.", dir.prefix);
    let ticket = |name: &String| {
        let (id, uid) = name.strip_prefix(&head)?.strip_suffix(".json")?.split_once('.')?;
        let (id, uid): (RunId, u32) = (id.parse().ok()?, uid.parse().ok()?);
        let written: Written = lock_record::read(dir, name, uid)?;
        let name = written.name.chars().take(64).collect();
        Some(Ticket { id, user: user_name(uid), own: uid == own_uid(), name, gpus: written.gpus })
    };
    let mut queue: Vec<Ticket> = names.iter().filter_map(ticket).take(MOST).collect();
    queue.sort_by(|a, b| a.id.cmp(&b.id));
    queue
}
