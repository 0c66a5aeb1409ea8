//! What a session asks of hosts beside its runs: to delete what a run has left, and to look whether a launch could start.

use super::Session;
use crate::domain::ids::{HostId, RunId};
use crate::domain::time::Stamp;
use crate::launch::plan::LaunchPlan;
use crate::launcher::checkup::Question;
use crate::wire::doctor::AskChecks;
use crate::wire::message::{AskPreflight, RunRef, ToAgent};

impl Session {
    /// Asks hosts for checks of the doctor; [`super::Output::Checked`] comes for each.
    pub fn check(&mut self, at: Stamp, questions: Vec<Question>) {
        for Question { host, ask } in questions {
            self.cluster.send(&host, ToAgent::AskChecks(AskChecks { at, ..ask }));
        }
    }

    /// Has a host delete what a run that has ended has left there; `name` is what it is called in the run.
    /// [`super::Output::Forgotten`] comes when it did, or did not.
    pub fn forget(&mut self, run: &RunId, host: &HostId, name: &HostId) {
        let about = RunRef { run: run.clone(), host: name.clone() };
        self.cluster.send(host, ToAgent::Forget(about));
    }

    /// Asks each host of a plan whether its share could start; [`super::Output::Preflight`] with the number `ask` comes from those
    /// that answer.
    pub fn preflight(&mut self, plan: &LaunchPlan, ask: u64) {
        let sync = plan.spec.options.sync.as_ref();
        for spec in &plan.hosts {
            let folder = spec.ranks.first().and_then(|rank| rank.cwd.as_deref());
            let copied =
                sync.is_some_and(|sync| folder.is_some_and(|folder| folder.starts_with(&sync.remote)));
            let question = AskPreflight { ask, spec: spec.clone(), copied };
            self.cluster.send(&spec.host, ToAgent::AskPreflight(Box::new(question)));
        }
    }
}
