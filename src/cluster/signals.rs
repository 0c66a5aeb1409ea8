//! The requests of one host about signals to processes: each is answered once, by the host or, where there is no link or
//! its agent is too old, with why it can't be.

use std::collections::BTreeSet;

use super::host_task::{Closed, HostTask};
use super::pool::Reply;
use crate::domain::ids::HostId;
use crate::domain::plausible;
use crate::domain::signal::SignalAnswer;
use crate::wire::message::ToAgent;
use crate::wire::signal::{SignalAsk, SignalTold};

/// What a host was asked and has not answered, and whether its agent understands it.
#[derive(Debug)]
pub(crate) struct Signals {
    host: HostId,
    protocol: u32,
    /// The agent's version.
    version: String,
    due: BTreeSet<u32>,
}

impl Signals {
    /// Of this host, before its agent has said hello.
    pub(crate) fn of(host: &HostId) -> Self {
        Self { host: host.clone(), protocol: 0, version: String::new(), due: BTreeSet::new() }
    }

    /// Both sides speak this protocol from now on.
    pub(crate) fn agreed(&mut self, protocol: u32, version: &str) {
        self.protocol = protocol;
        self.version = version.chars().take(64).collect();
    }

    /// The answer to a message that must not be sent: a request that the agent would pass over without a word. Notes
    /// the requests that are sent.
    pub(crate) fn refusal(&mut self, message: &ToAgent) -> Option<SignalTold> {
        let ToAgent::Signal(ask) = message else { return None };
        if self.protocol < SignalAsk::SINCE {
            let (host, version) = (&self.host, &self.version);
            let reason = format!(
                "the agent on {host} is hvtui {version}, which can't signal processes: use the same hvtui there"
            );
            return Some(refused(ask.number, reason));
        }
        self.due.insert(ask.number);
        None
    }
}

fn refused(number: u32, reason: String) -> SignalTold {
    SignalTold { number, answer: SignalAnswer::Refused { reason } }
}

impl HostTask {
    /// Hands on an answer that is waited for.
    pub(crate) async fn signal_told(&mut self, mut told: SignalTold) -> Result<(), Closed> {
        if !self.signals.due.remove(&told.number) {
            return Ok(());
        }
        plausible::bound_signal(&mut told.answer);
        self.reply(Reply::Signal(told)).await
    }

    /// The link is gone: answers what the host has not.
    pub(crate) async fn signals_lost(&mut self) -> Result<(), Closed> {
        for number in std::mem::take(&mut self.signals.due) {
            let host = &self.entry.id;
            let reason = format!(
                "the link to {host} was lost before it answered: a signal may have been sent, look at the process"
            );
            self.reply(Reply::Signal(refused(number, reason))).await?;
        }
        Ok(())
    }

    /// There is no link to ask.
    pub(crate) async fn signal_unreachable(&self, ask: &SignalAsk, why: &str) -> Result<(), Closed> {
        let reason = format!("{} is not connected: {why}", self.entry.id);
        self.reply(Reply::Signal(refused(ask.number, reason))).await
    }
}
