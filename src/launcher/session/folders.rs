//! The folders that a session copies to hosts before the ranks of its runs start.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Output, Session};
use crate::clock;
use crate::cluster::pool::HostSender;
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, RunId};
use crate::domain::note::{Note, what};
use crate::domain::sync::{Digest, SyncPlan};
use crate::domain::text::plain;
use crate::domain::time::{HostTime, Stamp};
use crate::launch::error::LaunchError;
use crate::launch::plan::LaunchPlan;
use crate::launcher::machine::RunMachine;
use crate::launcher::syncing::{Step, Syncing};
use crate::launcher::trees::{self, ReadTree, Unread};
use crate::sync::SyncError;
use crate::sync::snapshot::Snapshot;
use crate::wire::sync::SyncTold;
use crate::wire::upload::BlobsTaken;

impl Session {
    /// Where it may keep the hashes of files in folders that it copies, and the user's home folder.
    pub fn keep_hashes_in(&mut self, folder: PathBuf, home: PathBuf) {
        (self.trees.hashes, self.trees.home) = (Some(folder), Some(home));
    }

    /// A folder that was read for a launch.
    pub fn folder(&self, tree: Digest) -> Option<Arc<Snapshot>> {
        self.trees.get(tree).cloned()
    }

    /// Asks the hosts of a plan what they lack of its folder, and writes nothing: [`Output::Compared`] comes. Gives the
    /// folder; `None` where the plan has none.
    pub fn compare(&mut self, planned: &LaunchPlan) -> Result<Option<Arc<Snapshot>>, LaunchError> {
        let Some(plan) = planned.spec.options.sync.clone() else { return Ok(None) };
        let snapshot = self.trees.read_now(&plan)?;
        let hosts = self.copied_to(&plan, planned.spec.hosts());
        if hosts.is_empty() {
            self.outputs.push_back(Output::Compared(Vec::new()));
            return Ok(Some(snapshot));
        }
        let run = planned.spec.id.clone();
        let how = (true, clock::now());
        let number = &mut self.trees.number;
        let syncing = Syncing::begin(run.clone(), plan, Arc::clone(&snapshot), hosts, number, how);
        self.trees.syncs.insert(run, syncing);
        Ok(Some(snapshot))
    }

    /// The hosts to which a folder is copied: not this machine where it lies there already.
    fn copied_to(&self, plan: &SyncPlan, hosts: Vec<HostId>) -> Vec<(HostId, HostSender)> {
        let is_here = |id: &HostId| self.hosts.iter().any(|host| host.id == *id && host.is_local());
        let in_place = self.trees.is_in_place(plan);
        let wanted = hosts.into_iter().filter(|host| !(in_place && is_here(host)));
        wanted.filter_map(|host| Some((host.clone(), self.cluster.sender(&host)?))).collect()
    }

    /// A launch goes on with the folder as it was read.
    pub(super) fn folder_was_read(&mut self, launch: Unread, read: Result<ReadTree, SyncError>) {
        let (options, workdir, command) = match &launch {
            Unread::Launch(pending) => {
                (&pending.request.options, &pending.request.workdir, &pending.request.command)
            }
            Unread::Plan(plan) => (&plan.spec.options, &plan.spec.workdir, &plan.spec.command),
        };
        let plan = options.sync.clone();
        let ReadTree { code, differs, snapshot } = match read {
            Ok(tree) => tree,
            Err(error) => {
                let error = match &plan {
                    Some(plan) => trees::fault(plan, &error),
                    None => LaunchError::usage(error.to_string()),
                };
                return self.outputs.push_back(Output::LaunchFailed(error));
            }
        };
        // where the ranks start elsewhere, or the folder is used as it is, it says nothing
        let starts_there = |plan: &&SyncPlan| {
            workdir.as_ref() == Some(&plan.remote)
                && options.container.is_none()
                && !self.trees.is_in_place(plan)
        };
        let lacking =
            plan.as_ref().filter(starts_there).and_then(|plan| trees::lacks(plan, &snapshot, command));
        self.outputs.extend(differs.into_iter().chain(lacking).map(Output::Remark));
        match launch {
            Unread::Launch(mut pending) => {
                pending.request.code = Some(code);
                self.pending.push(*pending);
                self.try_launches();
            }
            Unread::Plan(mut plan) => {
                plan.spec.code = Some(code);
                for share in &mut plan.hosts {
                    share.run_spec = Some(Box::new(plan.spec.clone()));
                }
                self.start_read_plan(*plan);
            }
        }
    }

    /// Copies the folder of a run that was created.
    pub(super) fn begin_sync(
        &mut self,
        run: &RunId,
        plan: SyncPlan,
        tree: Digest,
        hosts: &[HostId],
        at: Stamp,
    ) {
        let copied = self.copied_to(&plan, hosts.to_vec());
        if copied.len() < hosts.len() {
            let text = format!("sync  this machine has {} already: nothing is copied there", plan.dir);
            self.outputs.push_back(Output::Remark(text));
        }
        let Some(machine) = self.runs.get_mut(run) else { return };
        let mut actions = machine.sync(copied.iter().map(|(host, _)| host.clone()), at);
        if copied.is_empty() {
            // no host is waited for
            actions.extend(hosts.first().map(|host| machine.synced(host, at)).unwrap_or_default());
            return self.act(actions, at);
        }
        self.act(actions, at);
        let Some(snapshot) = self.trees.get(tree).cloned() else {
            let summary = "the folder of --sync was not read: launch again".to_owned();
            let actions = self.runs.get_mut(run).map(|machine| machine.not_synced(None, summary, at));
            return self.act(actions.unwrap_or_default(), at);
        };
        let number = &mut self.trees.number;
        let syncing = Syncing::begin(run.clone(), plan, snapshot, copied, number, (false, at));
        self.trees.syncs.insert(run.clone(), syncing);
    }

    /// A host says how far it is with a folder.
    pub(super) fn sync_told(&mut self, at: Stamp, host: &HostId, told: SyncTold) {
        let run = told.run.clone();
        let Some(syncing) = self.trees.syncs.get_mut(&run) else { return };
        let step = syncing.told(host, told, at);
        let is_done = syncing.is_done();
        let words = is_done.then(|| syncing.words(at));
        let Some(machine) = self.runs.get_mut(&run) else {
            return self.compared(&run, step, is_done);
        };
        let actions = match step {
            Step::None => return,
            Step::Done(notes) => {
                let actions = machine.synced(host, at);
                for text in notes {
                    let note =
                        Note::new(what::SYNC, format!("sync: {}", plain(host, &text)), HostTime::default());
                    let event = Event::RunNoted { host: host.clone(), note };
                    self.emit(at, Origin::Run(run.clone()), event);
                }
                actions
            }
            Step::Failed(class, summary) => machine.not_synced(class, summary, at),
        };
        if let Some(words) = words {
            self.trees.syncs.remove(&run);
            self.outputs.push_back(Output::Remark(words));
        }
        self.act(actions, at);
        self.end_syncs();
    }

    /// A folder that was only compared.
    fn compared(&mut self, run: &RunId, step: Step, is_done: bool) {
        if let Step::Failed(_, reason) = step {
            self.trees.syncs.remove(run);
            self.outputs.push_back(Output::LaunchFailed(LaunchError::usage(reason)));
        } else if is_done && let Some(syncing) = self.trees.syncs.remove(run) {
            let counts = syncing.counts().map(|(host, counts)| (host.clone(), counts)).collect();
            self.outputs.push_back(Output::Compared(counts));
        }
    }

    /// A host has taken some of an upload.
    pub(super) fn blobs_taken(&mut self, at: Stamp, host: &HostId, taken: &BlobsTaken) {
        let told = self.trees.of_host(host).filter_map(|(run, syncing)| {
            syncing.taken(host, taken, at);
            Some(Output::Syncing(run.clone(), syncing.progress(at)?))
        });
        let told: Vec<_> = told.collect();
        self.outputs.extend(told);
    }

    /// Links that come and go while a folder is copied.
    pub(super) fn sync_links(&mut self, at: Stamp, origin: &Origin, event: &Event) {
        let (Origin::Host(host), Event::LinkChanged { state }) = (origin, event) else { return };
        let is_up = match state {
            LinkState::Up => true,
            LinkState::Down { .. } => false,
            _ => return,
        };
        let mut number = self.trees.number;
        for (_, syncing) in self.trees.of_host(host) {
            syncing.link(host, is_up, &mut number, at);
        }
        self.trees.number = number;
        self.end_syncs();
    }

    /// Looks at deadlines.
    pub(super) fn look_at_syncs(&mut self, now: Stamp) {
        let faults: Vec<(RunId, String)> = self
            .trees
            .syncs
            .iter()
            .filter_map(|(run, syncing)| Some((run.clone(), syncing.fault(now)?)))
            .collect();
        for (run, fault) in faults {
            match self.runs.get_mut(&run) {
                Some(machine) => {
                    let actions = machine.not_synced(None, fault, now);
                    self.act(actions, now);
                }
                None => self.compared(&run, Step::Failed(None, fault), false),
            }
        }
        self.end_syncs();
    }

    /// Calls off what is copied for runs that have ended.
    pub(super) fn end_syncs(&mut self) {
        let runs = &self.runs;
        self.trees.syncs.retain(|run, syncing| {
            let goes_on = runs.get(run).is_none_or(RunMachine::is_syncing);
            if !goes_on {
                syncing.close();
            }
            goes_on
        });
    }
}
