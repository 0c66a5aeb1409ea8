//! When hosts are asked what a launch would find there: not at each key, and who does not answer is told. Knows no session.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::domain::ids::HostId;
use crate::launch::plan::LaunchPlan;

/// How long nothing must have been typed.
const QUIET: Duration = Duration::from_millis(250);
/// How long a host may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Due {
    /// Ask the hosts of this plan under this number.
    Ask(u64, Arc<LaunchPlan>),
    /// These hosts have not answered the question of this number.
    Silent(u64, BTreeSet<HostId>),
}

/// The question that is to be asked, and the one that is being answered.
#[derive(Debug, Default)]
pub(super) struct Preflights {
    next: Option<(Pin<Box<Sleep>>, u64, Arc<LaunchPlan>)>,
    asked: Option<(Pin<Box<Sleep>>, u64, BTreeSet<HostId>)>,
}

impl Preflights {
    /// Has this asked soon; what was to be asked before is forgotten.
    pub(super) fn ask(&mut self, number: u64, plan: Arc<LaunchPlan>) {
        self.asked = None;
        self.next = Some((Box::pin(sleep(QUIET)), number, plan));
    }

    /// A host has answered.
    pub(super) fn answered(&mut self, number: u64, host: &HostId) {
        if let Some((_, asked, hosts)) = &mut self.asked
            && *asked == number
        {
            hosts.remove(host);
        }
    }

    /// What is due next; pending while nothing is. Cancel-safe.
    pub(super) async fn next(&mut self) -> Due {
        if let Some((quiet, ..)) = &mut self.next {
            quiet.await;
        } else if let Some((patience, ..)) = &mut self.asked {
            patience.await;
        } else {
            std::future::pending::<()>().await;
        }
        if let Some((_, number, plan)) = self.next.take() {
            let hosts = plan.hosts.iter().map(|share| share.host.clone()).collect();
            self.asked = Some((Box::pin(sleep(PATIENCE)), number, hosts));
            return Due::Ask(number, plan);
        }
        let (number, silent) =
            self.asked.take().map(|(_, number, hosts)| (number, hosts)).unwrap_or_default();
        Due::Silent(number, silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::run_spec;
    use crate::domain::run::RunSpec;
    use crate::domain::time::Stamp;
    use crate::launch::plan::Rendezvous;

    fn plan() -> Arc<LaunchPlan> {
        let spec = RunSpec { name: "digits".into(), created: Stamp(1), ..run_spec(Vec::new()) };
        let master = std::net::IpAddr::from([127, 0, 0, 1]);
        let rendezvous = Rendezvous { bind: std::collections::BTreeMap::new(), master };
        Arc::new(LaunchPlan {
            spec,
            hosts: Vec::new(),
            rendezvous,
            lease_order: Vec::new(),
            remarks: Vec::new(),
            request: None,
        })
    }

    #[tokio::test]
    async fn only_the_last_of_quick_questions_is_asked() {
        let mut preflights = Preflights::default();
        for number in 1..=3 {
            preflights.ask(number, plan());
        }
        assert!(matches!(preflights.next().await, Due::Ask(3, _)));
        preflights.ask(4, plan());
        assert!(matches!(preflights.next().await, Due::Ask(4, _)), "the one before is not waited for");
    }
}
