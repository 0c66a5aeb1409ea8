//! Which agent is at the other end of a link, and the answers to requests that it is too old to know: it would pass over
//! them without a word.

use super::messages::Reply;
use crate::domain::collectives::HostCollectives;
use crate::domain::ids::HostId;
use crate::domain::preflight::{Finding, Mark};
use crate::wire::doctor::{AskChecks, Checked};
use crate::wire::message::{AskPreflight, AskStacks, Forgotten, Preflight, Stacks, ToAgent};
use crate::wire::signal::{SignalAsk, SignalTold};

/// The agent of one host.
#[derive(Debug)]
pub(crate) struct Agent {
    host: HostId,
    protocol: u32,
    version: String,
}

impl Agent {
    /// Of this host, before it has said hello.
    pub(crate) fn of(host: &HostId) -> Self {
        Self { host: host.clone(), protocol: 0, version: String::new() }
    }

    /// Both sides speak this protocol from now on.
    pub(crate) fn agreed(&mut self, protocol: u32, version: &str) {
        self.protocol = protocol;
        version.clone_into(&mut self.version);
    }

    /// The answer to a message that must not be sent; `None` for one that the agent knows.
    pub(crate) fn refusal(&self, message: &ToAgent) -> Option<Reply> {
        let (since, what) = match message {
            ToAgent::Signal(_) => (SignalAsk::SINCE, "signal processes"),
            ToAgent::AskStacks(_) => (AskStacks::SINCE, "tell what the processes of a run are doing"),
            ToAgent::Forget(_) => (Forgotten::SINCE, "delete runs"),
            ToAgent::AskChecks(_) => (AskChecks::SINCE, "make the doctor's checks"),
            ToAgent::AskPreflight(_) => (AskPreflight::SINCE, "check a launch before it starts"),
            _ => return None,
        };
        if self.protocol >= since {
            return None;
        }
        let reason = format!(
            "the agent on {} is hvtui {}, which can't {what}: reconnect, or use the same hvtui there",
            self.host, self.version
        );
        match message {
            ToAgent::Signal(ask) => Some(Reply::Signal(SignalTold::refused(ask.number, reason))),
            ToAgent::AskStacks(ask) => {
                let (run, host) = (ask.run.clone(), ask.host.clone());
                let (of, collectives) = (Vec::new(), HostCollectives::default());
                Some(Reply::Stacks(Stacks { run, host, of, why: Some(reason), collectives, last: true }))
            }
            ToAgent::Forget(about) => {
                let (run, host) = (about.run.clone(), about.host.clone());
                Some(Reply::Forgotten(Forgotten { run, host, why: Some(reason) }))
            }
            // of all checks
            ToAgent::AskChecks(ask) => {
                let (ask, check) = (ask.ask, String::new());
                Some(Reply::Checked(Checked { ask, check, found: None, why: Some(reason) }))
            }
            ToAgent::AskPreflight(ask) => {
                let findings = vec![Finding::new(Mark::Unknown, reason)];
                let host = ask.spec.host.clone();
                Some(Reply::Preflight(Preflight { ask: ask.ask, host, findings }))
            }
            _ => None,
        }
    }
}
