//! Copies a folder to the hosts of one run: asks each whether it has the tree, sends what is missing, and lets it
//! switch. All hosts at once; a link that is lost begins again with what the host has by then.
//!
//! Hosts that share the folder's file system find each other by its lock: the second one waits for the first, and then
//! has the tree already.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::upload::{Content, Source, Upload};
use crate::cluster::pool::HostSender;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::RefusalClass;
use crate::domain::sync::SyncPlan;
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, counted, duration_us};
use crate::sync::manifest::Kind;
use crate::sync::snapshot::Snapshot;
use crate::wire::message::ToAgent;
use crate::wire::sync::{SyncAsk, SyncOpen, SyncState, SyncTold};
use crate::wire::upload::{BlobsTaken, UploadRef};

/// A host that says nothing for so long, while its link is up, does not answer any more; while it is down, does not come
/// back. A switch flushes what was copied to the disk, which may take long.
const SILENT_US: i64 = 60_000_000;
const SWITCH_US: i64 = 900_000_000;
/// Between two words about the progress.
const TELL_EVERY_US: i64 = 200_000;

/// A folder on its way to the hosts of a run.
#[derive(Debug)]
pub struct Syncing {
    run: RunId,
    plan: SyncPlan,
    snapshot: Arc<Snapshot>,
    manifest: Bytes,
    dry: bool,
    hosts: BTreeMap<HostId, HostSync>,
    begun: Stamp,
    told: Stamp,
}

#[derive(Debug)]
struct HostSync {
    to: HostSender,
    phase: Phase,
    upload: Upload,
    /// The number of the upload that its agent was asked for last; 0 before.
    asked: u32,
    /// Costs sent in the upload before its contents, for the manifest.
    before: u64,
    entries: Vec<(u32, u64)>,
    /// The cost of all contents, and how much of it was taken.
    whole: u64,
    taken: u64,
    counts: HostCounts,
    /// When it said something last.
    heard: Stamp,
}

/// What is copied to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostCounts {
    /// Files that are new or change.
    pub changed: u64,
    /// Files that go.
    pub deleted: u64,
    /// Bytes that are sent.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    /// Another sync of the folder is under way there.
    Waiting,
    Comparing,
    Copying,
    Down,
    Done,
}

/// How far all hosts are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncProgress {
    /// Bytes that were taken.
    pub taken: u64,
    /// Of so many, as far as is known.
    pub whole: u64,
    /// Microseconds since it began.
    pub took_us: u64,
}

impl SyncProgress {
    /// `sync  1.2 M of 3.0 M  10 M/s  2 s left`.
    pub fn words(&self) -> String {
        format!("sync  {}", self.counts())
    }

    /// `1.2 M of 3.0 M  10 M/s  2 s left`.
    pub fn counts(&self) -> String {
        let rate = (u128::from(self.taken) * 1_000_000).checked_div(u128::from(self.took_us)).unwrap_or(0);
        let left = u128::from(self.whole.saturating_sub(self.taken));
        let mut text = format!("{} of {}", bytes(self.taken), bytes(self.whole));
        if let Some(left_us) = (left * 1_000_000).checked_div(rate) {
            let left_us = u64::try_from(left_us).unwrap_or(u64::MAX);
            text.extend(["  ", &bytes(rate as u64), "/s  ", &duration_us(left_us), " left"]);
        }
        text
    }
}

/// What became of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing new.
    None,
    /// It has the tree; what a person should know.
    Done(Vec<String>),
    /// It can't have it: why, and what kind of reason where it said so itself.
    Failed(Option<RefusalClass>, String),
}

impl Syncing {
    /// Asks these hosts. With `dry` nothing is written there. `number` gives each upload a number of its own.
    pub fn begin(
        run: RunId,
        plan: SyncPlan,
        snapshot: Arc<Snapshot>,
        hosts: impl IntoIterator<Item = (HostId, HostSender)>,
        number: &mut u32,
        (dry, at): (bool, Stamp),
    ) -> Self {
        let manifest = Bytes::from(snapshot.manifest.encode());
        let mut syncing =
            Self { run, plan, snapshot, manifest, dry, hosts: BTreeMap::new(), begun: at, told: at };
        for (host, to) in hosts {
            let mut sync = HostSync {
                to,
                phase: Phase::Opening,
                upload: Upload::new(0, at),
                asked: 0,
                before: 0,
                entries: Vec::new(),
                whole: 0,
                taken: 0,
                counts: HostCounts::default(),
                heard: at,
            };
            syncing.open(&mut sync, number, at);
            syncing.hosts.insert(host, sync);
        }
        syncing
    }

    fn open(&self, sync: &mut HostSync, number: &mut u32, at: Stamp) {
        *number += 1;
        sync.upload = Upload::new(*number, at);
        (sync.phase, sync.before, sync.taken, sync.whole, sync.heard) = (Phase::Opening, 0, 0, 0, at);
        sync.entries.clear();
        let earlier = std::mem::replace(&mut sync.asked, *number);
        if earlier > 0 {
            // the link may be the one by which it was asked: that one holds the folder
            sync.to.send(ToAgent::Sync(SyncAsk::Close(UploadRef { upload: earlier })));
        }
        sync.to.send(ToAgent::Sync(SyncAsk::Open(SyncOpen {
            upload: *number,
            run: self.run.clone(),
            remote: self.plan.remote.clone(),
            tree: self.snapshot.tree,
            size: self.manifest.len() as u64,
            delete: self.plan.delete,
            dry: self.dry,
        })));
    }

    /// A host says how far it is.
    pub fn told(&mut self, host: &HostId, told: SyncTold, at: Stamp) -> Step {
        let tree = self.snapshot.tree;
        let Some(sync) = self.hosts.get_mut(host).filter(|sync| sync.upload.number() == told.upload) else {
            return Step::None;
        };
        sync.heard = at;
        match told.state {
            SyncState::Waiting => sync.phase = Phase::Waiting,
            SyncState::Wanted => {
                sync.phase = Phase::Comparing;
                let manifest = Content {
                    name: tree,
                    size: self.manifest.len() as u64,
                    from: 0,
                    source: Source::Memory(self.manifest.clone()),
                };
                let last = ToAgent::Sync(SyncAsk::Compare(UploadRef { upload: told.upload }));
                match sync.upload.send(sync.to.clone(), vec![manifest], 0, Some(last)) {
                    Ok(before) => sync.before = before,
                    Err(error) => return Step::Failed(None, format!("no thread for an upload: {error}")),
                }
            }
            SyncState::Missing { entries, last, changed, deleted, bytes } => {
                sync.entries.extend(entries);
                sync.counts = HostCounts { changed, deleted, bytes };
                if last && self.dry {
                    sync.phase = Phase::Done;
                    return Step::Done(Vec::new());
                }
                if last {
                    return Self::copy(sync, &self.snapshot);
                }
            }
            SyncState::Present { tree: there, notes, .. } => {
                sync.phase = Phase::Done;
                if there != tree {
                    let reason =
                        format!("{host} has another tree than this machine behind the sync: launch again");
                    return Step::Failed(Some(RefusalClass::Fault), reason);
                }
                return Step::Done(notes);
            }
            SyncState::Refused { reason, class } => {
                return Step::Failed(Some(class), format!("{host}: --sync: {reason}"));
            }
        }
        Step::None
    }

    fn copy(sync: &mut HostSync, snapshot: &Snapshot) -> Step {
        sync.phase = Phase::Copying;
        let mut contents = Vec::with_capacity(sync.entries.len());
        for (index, from) in std::mem::take(&mut sync.entries) {
            let entry = snapshot.manifest.entries().get(index as usize);
            let Some(Kind::File { hash, size, .. }) = entry.map(|entry| &entry.kind) else { continue };
            let Some((path, _)) = snapshot.source(*hash) else { continue };
            contents.push(Content { name: *hash, size: *size, from, source: Source::File(path.to_owned()) });
        }
        let last = ToAgent::Sync(SyncAsk::Switch(UploadRef { upload: sync.upload.number() }));
        match sync.upload.send(sync.to.clone(), contents, sync.before, Some(last)) {
            Ok(whole) => sync.whole = whole - sync.before,
            Err(error) => return Step::Failed(None, format!("no thread for an upload: {error}")),
        }
        Step::None
    }

    /// A host has taken more.
    pub fn taken(&mut self, host: &HostId, taken: &BlobsTaken, at: Stamp) {
        if let Some(sync) = self.hosts.get_mut(host).filter(|sync| sync.upload.number() == taken.upload) {
            sync.heard = at;
            sync.upload.taken(taken.taken, at);
            sync.taken = taken.taken.saturating_sub(sync.before).min(sync.whole);
        }
    }

    /// A host's link is up, or down.
    pub fn link(&mut self, host: &HostId, is_up: bool, number: &mut u32, at: Stamp) {
        let Some(mut sync) = self.hosts.remove(host) else { return };
        match (sync.phase, is_up) {
            // what is asked while a link is being made is not kept for it
            (Phase::Down | Phase::Opening, true) => self.open(&mut sync, number, at),
            (Phase::Done | Phase::Down, _) | (_, true) => {}
            (_, false) => {
                (sync.phase, sync.heard) = (Phase::Down, at);
                // what was not sent must not be sent into the next link
                sync.upload = Upload::new(0, at);
            }
        }
        self.hosts.insert(host.clone(), sync);
    }

    /// Why it can't go on, if it can't.
    pub fn fault(&self, now: Stamp) -> Option<String> {
        self.hosts.iter().find_map(|(host, sync)| {
            if let Some(fault) = sync.upload.fault() {
                return Some(fault);
            }
            let limit = match sync.phase {
                Phase::Done | Phase::Waiting => return None,
                // it may have to read all that is there
                Phase::Comparing => SWITCH_US,
                Phase::Copying if sync.taken >= sync.whole => SWITCH_US,
                _ => SILENT_US,
            };
            let silent = now.micros_since(sync.heard);
            let what = match sync.phase {
                Phase::Down => "was lost during the sync and did not come back",
                _ => "did not answer during the sync",
            };
            (silent > limit).then(|| {
                let silent = duration_us(silent.unsigned_abs());
                format!("{host} {what} for {silent}; what was copied stays there, and the next launch goes on with it")
            })
        })
    }

    /// Whether all hosts are done.
    pub fn is_done(&self) -> bool {
        self.hosts.values().all(|sync| sync.phase == Phase::Done)
    }

    /// How far it is, now and then.
    pub fn progress(&mut self, at: Stamp) -> Option<SyncProgress> {
        if at.micros_since(self.told) < TELL_EVERY_US {
            return None;
        }
        self.told = at;
        let sum = |of: fn(&HostSync) -> u64| self.hosts.values().map(of).sum();
        let took_us = at.micros_since(self.begun).unsigned_abs();
        Some(SyncProgress { taken: sum(|sync| sync.taken), whole: sum(|sync| sync.whole), took_us })
    }

    /// `3 files changed, 41 kB → a, b  0.1 s`.
    pub fn words(&self, at: Stamp) -> String {
        let took = duration_us(at.micros_since(self.begun).unsigned_abs());
        let mut alike: Vec<(HostCounts, Vec<&str>)> = Vec::new();
        for (host, sync) in &self.hosts {
            match alike.iter_mut().find(|(counts, _)| *counts == sync.counts) {
                Some((_, hosts)) => hosts.push(host.as_str()),
                None => alike.push((sync.counts, vec![host.as_str()])),
            }
        }
        let parts = alike.iter().map(|(counts, hosts)| {
            let hosts = hosts.join(", ");
            if *counts == HostCounts::default() {
                return format!("nothing changed on {hosts}");
            }
            let deleted =
                if counts.deleted > 0 { format!(", {} deleted", counts.deleted) } else { String::new() };
            format!("{} changed{deleted}, {} → {hosts}", counted(counts.changed, "file"), bytes(counts.bytes))
        });
        format!("sync  {}  {took}", parts.collect::<Vec<_>>().join("; "))
    }

    /// What each host lacks.
    pub fn counts(&self) -> impl Iterator<Item = (&HostId, HostCounts)> {
        self.hosts.iter().map(|(host, sync)| (host, sync.counts))
    }

    /// Calls it off: hosts keep the tree that they have.
    pub fn close(&self) {
        for sync in self.hosts.values().filter(|sync| !matches!(sync.phase, Phase::Done | Phase::Down)) {
            sync.to.send(ToAgent::Sync(SyncAsk::Close(UploadRef { upload: sync.upload.number() })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::messages::Command;
    use crate::sync::snapshot::{Progress, snapshot};

    #[test]
    fn what_was_asked_by_a_link_that_is_not_there_is_asked_anew_and_holds_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Arc::new(snapshot(dir.path(), None, 0, &Progress::default()).unwrap());
        let plan = SyncPlan { dir: "/d".to_owned(), remote: "~/d".to_owned(), delete: false };
        let (sender, mut sent) = HostSender::of_test();
        let (host, mut number) = (HostId::from("n1"), 0);
        let hosts = [(host.clone(), sender)];
        let at = |seconds: i64| Stamp(seconds * 1_000_000);
        let mut syncing =
            Syncing::begin(RunId::new(1, 1), plan, snapshot, hosts, &mut number, (false, at(0)));
        let mut asked = || -> Vec<(&str, u32)> {
            let messages = std::iter::from_fn(|| sent.try_recv().ok());
            let told = |command| match command {
                Command::Send(message) => match *message {
                    ToAgent::Sync(SyncAsk::Open(open)) => Some(("open", open.upload)),
                    ToAgent::Sync(SyncAsk::Close(upload)) => Some(("close", upload.upload)),
                    _ => None,
                },
                Command::Reconnect => None,
            };
            messages.filter_map(told).collect()
        };
        assert_eq!(asked(), [("open", 1)]);
        // the link was being made when it was asked
        syncing.link(&host, true, &mut number, at(1));
        assert_eq!(asked(), [("close", 1), ("open", 2)]);
        let told = |upload, state| SyncTold { upload, run: RunId::new(1, 1), state };
        assert_eq!(syncing.told(&host, told(1, SyncState::Waiting), at(2)), Step::None, "of the earlier one");
        syncing.told(&host, told(2, SyncState::Waiting), at(3));
        // it is lost, and is back
        syncing.link(&host, false, &mut number, at(4));
        assert_eq!(asked(), []);
        syncing.link(&host, true, &mut number, at(5));
        assert_eq!(asked(), [("close", 2), ("open", 3)]);
        assert_eq!(syncing.fault(at(64)), None);
        assert!(syncing.fault(at(66)).is_some_and(|why| why.contains("n1 did not answer during the sync")));
    }
}
