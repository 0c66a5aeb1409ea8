//! The stage in which a folder is copied to the hosts, before any of them is asked whether it can start. How that is
//! done is [`crate::launcher::syncing`]'s business.

use super::{Action, RunMachine};
use crate::domain::ids::HostId;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::{RefusalClass, RunStage};
use crate::domain::time::Stamp;

impl RunMachine {
    /// The folder is being copied to these hosts.
    pub fn sync(&mut self, hosts: impl IntoIterator<Item = HostId>, at: Stamp) -> Vec<Action> {
        let mut actions = Vec::new();
        self.hosts_due = hosts.into_iter().collect();
        self.enter(RunStage::Sync, at, &mut actions);
        actions
    }

    /// A host has the folder; the last one begins the start.
    pub fn synced(&mut self, host: &HostId, at: Stamp) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_syncing() {
            self.hosts_due.remove(host);
            if self.hosts_due.is_empty() {
                self.ask_first(at, &mut actions);
            }
            self.tell_waiting(&mut actions);
        }
        actions
    }

    /// A host can't have the folder: nothing starts.
    pub fn not_synced(&mut self, refused: Option<RefusalClass>, summary: String, at: Stamp) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_syncing() {
            let outcome = match refused {
                Some(class) => RunOutcome::refused(class, summary),
                None => RunOutcome::new(RunEnd::Unreachable, summary),
            };
            self.give_up_as(outcome, at, &mut actions);
        }
        actions
    }

    /// Whether the folder is being copied. A link that is lost meanwhile is waited for.
    pub fn is_syncing(&self) -> bool {
        self.stage == RunStage::Sync
    }
}
