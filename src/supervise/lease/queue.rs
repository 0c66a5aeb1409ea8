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

/// The tickets that count, first come first; of very many the first ones.
pub(super) fn read(dir: &LeaseDir, names: &[String]) -> Vec<Ticket> {
    first(dir, names, MOST)
}

fn first(dir: &LeaseDir, names: &[String], most: usize) -> Vec<Ticket> {
    let head = format!("{}queue.", dir.prefix);
    let of_name = |name: &String| -> Option<(RunId, u32)> {
        let (id, uid) = name.strip_prefix(&head)?.strip_suffix(".json")?.split_once('.')?;
        Some((id.parse().ok()?, uid.parse().ok()?))
    };
    let mut queue: Vec<_> = names.iter().filter_map(|name| Some((of_name(name)?, name))).collect();
    // before any is left out: a directory has its files in no order
    queue.sort();
    let ticket = |((id, uid), name): ((RunId, u32), &String)| {
        let written: Written = lock_record::read(dir, name, uid)?;
        let name = written.name.chars().take(64).collect();
        Some(Ticket { id, user: user_name(uid), own: uid == own_uid(), name, gpus: written.gpus })
    };
    queue.into_iter().filter_map(ticket).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_tickets_the_first_ones_count() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap();
        let open = || LeaseDir::open(path.to_str()).unwrap();
        let join = |at: u64| Queued::join(open(), &RunId::new(at, 1), "mnist", &[GpuUuid::from("GPU-0")]);
        let queued: Vec<Queued> = (1..=5).map(|at| join(at).unwrap()).collect();
        let name = |at| format!("queue.{}.{}.json", RunId::new(at, 1), own_uid());
        // a directory has its files in no order; some are no tickets
        let mut names: Vec<String> = [4, 5, 2, 1, 3].map(name).into();
        names.extend(["queue.x.1.json", "queue.json", "GPU-0.1.json"].map(str::to_owned));
        let told = |most| -> Vec<RunId> {
            first(&open(), &names, most).into_iter().map(|ticket| ticket.id).collect()
        };
        assert_eq!(told(3), [1, 2, 3].map(|at| RunId::new(at, 1)));
        assert_eq!(told(9).len(), 5);
        drop(queued);
        assert!(told(9).is_empty());
    }
}
