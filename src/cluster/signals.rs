//! The requests of one host about signals to processes: each is answered once, by the host or, where there is no link, with
//! why it can't be.

use std::collections::BTreeSet;

use super::host_task::{Closed, HostTask};
use super::messages::Reply;
use crate::wire::message::ToAgent;
use crate::wire::signal::{SignalAsk, SignalTold};

/// What a host was asked and has not answered.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    due: BTreeSet<u32>,
}

impl Signals {
    /// Notes a request that is sent.
    pub(crate) fn sent(&mut self, message: &ToAgent) {
        if let ToAgent::Signal(ask) = message {
            self.due.insert(ask.number);
        }
    }
}

impl HostTask {
    /// Hands on an answer that is waited for.
    pub(crate) async fn signal_told(&mut self, told: SignalTold) -> Result<(), Closed> {
        if !self.signals.due.remove(&told.number) {
            return Ok(());
        }
        self.reply(Reply::Signal(told)).await
    }

    /// The link is gone: answers what the host has not.
    pub(crate) async fn signals_lost(&mut self) -> Result<(), Closed> {
        for number in std::mem::take(&mut self.signals.due) {
            let host = &self.entry.id;
            let reason = format!(
                "the link to {host} was lost before it answered: a signal may have been sent, look at the process"
            );
            self.reply(Reply::Signal(SignalTold::refused(number, reason))).await?;
        }
        Ok(())
    }

    /// There is no link to ask.
    pub(crate) async fn signal_unreachable(&self, ask: &SignalAsk, why: &str) -> Result<(), Closed> {
        let reason = format!("{} is not connected: {why}", self.entry.id);
        self.reply(Reply::Signal(SignalTold::refused(ask.number, reason))).await
    }
}
