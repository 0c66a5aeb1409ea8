//! A host that lacks something for the run: who has it is worth to know, so that the other hosts' answers are waited for
//! a moment before the run is refused.

use super::{Action, RunMachine};
use crate::domain::ids::HostId;
use crate::domain::outcome::RunOutcome;
use crate::domain::run::{RefusalClass, RunStage};
use crate::domain::time::Stamp;
use crate::wire::message::Refused;

/// How long the other hosts' answers are waited for, microseconds.
const PATIENCE_US: i64 = 3_000_000;
/// Hosts that are named.
const NAMED: usize = 4;

/// A refusal that is not told yet.
#[derive(Debug)]
pub(super) struct Lacking {
    since: Stamp,
    outcome: RunOutcome,
    /// The hosts that refused, the first one first.
    hosts: Vec<HostId>,
}

impl RunMachine {
    /// Takes a host's refusal of something that it lacks: whether the other hosts' answers are waited for.
    pub(super) fn lacks(
        &mut self,
        at: Stamp,
        host: &HostId,
        refused: &Refused,
        outcome: &RunOutcome,
    ) -> bool {
        let is_one = refused.class == RefusalClass::Command && !refused.busy;
        if self.stage != RunStage::Prepare || self.committed || !(is_one || self.lacking.is_some()) {
            return false;
        }
        self.hosts_due.remove(host);
        let outcome = outcome.clone();
        let lacking = self.lacking.get_or_insert_with(|| Lacking { since: at, outcome, hosts: Vec::new() });
        lacking.hosts.push(host.clone());
        !self.hosts_due.is_empty()
    }

    /// Ends the run when no more answers are waited for.
    pub(super) fn look_at_lacking(&mut self, now: Stamp, actions: &mut Vec<Action>) {
        let is_late = |lacking: &Lacking| now.micros_since(lacking.since) > PATIENCE_US;
        if !self.is_over()
            && self.lacking.as_ref().is_some_and(|one| self.hosts_due.is_empty() || is_late(one))
        {
            let outcome = RunOutcome::refused(RefusalClass::Command, String::new());
            self.give_up_as(outcome, now, actions);
        }
    }

    /// The refusal that was held back, with what the other hosts have said, in the place of what came after it.
    pub(super) fn first_refusal(&mut self, outcome: RunOutcome) -> RunOutcome {
        let Some(Lacking { outcome, hosts, .. }) = self.lacking.take() else { return outcome };
        // a launcher is looked for on the first host alone
        let is_asked = self.spec.options.delegate.is_none();
        let have: Vec<&HostId> = self.ports.keys().filter(|_| is_asked).collect();
        let lack: Vec<&HostId> = hosts.iter().skip(1).collect();
        let mut summary = outcome.summary.clone();
        for (list, one, more) in [(lack, "is refused too", "are refused too"), (have, "has it", "have it")] {
            if !list.is_empty() {
                let verb = if list.len() == 1 { one } else { more };
                summary = format!("{summary}; {} {verb}", names(&list));
            }
        }
        RunOutcome { summary, ..outcome }
    }
}

/// `n1, n2 and n3`, or `n1, n2, n3, n4 and 12 more`.
fn names(hosts: &[&HostId]) -> String {
    let texts: Vec<&str> = hosts.iter().take(NAMED).map(|host| host.as_str()).collect();
    match (hosts.len().checked_sub(NAMED), texts.split_last()) {
        (Some(more @ 1..), _) => format!("{} and {more} more", texts.join(", ")),
        (_, Some((last, before))) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => texts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_hosts_are_named_and_many_counted() {
        let hosts: Vec<HostId> = (1..8).map(|at| HostId::from(format!("n{at}").as_str())).collect();
        let of = |count: usize| names(&hosts.iter().take(count).collect::<Vec<_>>());
        assert_eq!((of(1), of(3)), ("n1".to_owned(), "n1, n2 and n3".to_owned()));
        assert_eq!((of(4), of(7)), ("n1, n2, n3 and n4".to_owned(), "n1, n2, n3, n4 and 3 more".to_owned()));
    }
}
