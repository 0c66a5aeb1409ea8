//! The doctor's look at the hosts, for the screen: who is still awaited, and for how long. Knows no session.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::domain::event::Event;
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::world::{HostState, World};
use crate::launcher::checkup::{Checkup, Question};
use crate::wire::doctor::Checked;

/// How long a host that is not connected is waited for, and then those that are for their answers.
const CONNECTING: Duration = Duration::from_secs(5);
const CHECKING: Duration = Duration::from_secs(8);

#[derive(Debug)]
struct Current {
    checkup: Checkup,
    patience: Pin<Box<Sleep>>,
    /// Whether hosts that have not come are still waited for.
    hosts_may_come: bool,
}

/// The look that goes on.
#[derive(Debug, Default)]
pub(super) struct Checkups(Option<Current>);

impl Checkups {
    /// Begins one; an earlier one is forgotten.
    pub(super) fn begin(&mut self, number: u64, hosts: &[HostId], world: &World) -> Vec<Question> {
        let mut checkup = Checkup::new(number, hosts.iter().cloned(), &[]);
        for host in hosts {
            if let Some(state) = world.hosts.get(host) {
                tell(&mut checkup, host, state);
            }
        }
        let questions = checkup.questions();
        self.0 = Some(Current { checkup, patience: Box::pin(sleep(CONNECTING)), hosts_may_come: true });
        questions
    }

    /// The number of the look that goes on.
    pub(super) fn number(&self) -> Option<u64> {
        self.0.as_ref().map(|current| current.checkup.number())
    }

    /// A host has told of a check.
    pub(super) fn told(&mut self, host: &HostId, checked: Checked) {
        if let Some(current) = &mut self.0 {
            current.checkup.told(host, checked);
        }
    }

    /// Something has happened to a host: what to ask now; `None` where that concerns no look.
    pub(super) fn happened(&mut self, host: &HostId, event: &Event) -> Option<Vec<Question>> {
        let current = self.0.as_mut()?;
        match event {
            Event::HostDescribed { info } => current.checkup.is_up(host, info.clone()),
            Event::HostSampled { sample } => current.checkup.sampled(host, sample),
            Event::LinkChanged { state } => down(&mut current.checkup, host, state),
            _ => return None,
        }
        Some(current.checkup.questions())
    }

    /// Waits until patience ends; pending while nothing is awaited. Cancel-safe.
    pub(super) async fn patience(&mut self) {
        match &mut self.0 {
            Some(current) => current.patience.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// It has ended: what to ask now.
    pub(super) fn out_of_patience(&mut self) -> Vec<Question> {
        let Some(current) = &mut self.0 else { return Vec::new() };
        if !current.hosts_may_come {
            current.checkup.give_up(&format!("no answer within {} s", CHECKING.as_secs()));
            return Vec::new();
        }
        current.hosts_may_come = false;
        current.patience = Box::pin(sleep(CHECKING));
        current.checkup.go_on_without(&format!("not connected within {} s", CONNECTING.as_secs()));
        current.checkup.questions()
    }

    /// What is known now. A look that is over is forgotten then.
    pub(super) fn so_far(&mut self) -> Option<(u64, crate::domain::doctor::Matrix, bool)> {
        let current = self.0.as_ref()?;
        let (number, matrix, is_over) =
            (current.checkup.number(), current.checkup.matrix(), current.checkup.is_over());
        if is_over {
            self.0 = None;
        }
        Some((number, matrix, is_over))
    }
}

fn tell(checkup: &mut Checkup, host: &HostId, state: &HostState) {
    match (&state.info, &state.link) {
        (Some(info), _) if state.is_up() => {
            checkup.is_up(host, info.clone());
            if let Some((_, sample)) = &state.sample {
                checkup.sampled(host, sample);
            }
        }
        (_, Some((_, link))) => down(checkup, host, link),
        _ => {}
    }
}

fn down(checkup: &mut Checkup, host: &HostId, state: &LinkState) {
    if let LinkState::Down { reason, .. }
    | LinkState::Limited { reason }
    | LinkState::Refused { reason, .. } = state
    {
        checkup.is_down(host, reason.clone());
    }
}
