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
/// What is told within so long is told as one.
const TOGETHER: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Current {
    checkup: Checkup,
    patience: Pin<Box<Sleep>>,
    /// Whether hosts that have not come are still waited for.
    hosts_may_come: bool,
    /// When what is known is told; `None` while nothing is new.
    tell: Option<Pin<Box<Sleep>>>,
}

impl Current {
    /// Many hosts tell many things at once: they are told together, and at once when there is no more to come.
    fn tell_soon(&mut self) {
        let is_over = self.checkup.is_over();
        if is_over || self.tell.is_none() {
            self.tell = Some(Box::pin(sleep(if is_over { Duration::ZERO } else { TOGETHER })));
        }
    }
}

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Due {
    /// Tell what is known.
    Tell,
    /// Patience has ended.
    Patience,
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
        let patience = Box::pin(sleep(CONNECTING));
        self.0 = Some(Current { checkup, patience, hosts_may_come: true, tell: None });
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
            current.tell_soon();
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
        current.tell_soon();
        Some(current.checkup.questions())
    }

    /// What is due next; pending while nothing is awaited. Cancel-safe.
    pub(super) async fn due(&mut self) -> Due {
        let Some(current) = &mut self.0 else { return std::future::pending().await };
        let due = match &mut current.tell {
            None => {
                current.patience.as_mut().await;
                Due::Patience
            }
            Some(tell) => tokio::select! {
                () = tell.as_mut() => Due::Tell,
                () = current.patience.as_mut() => Due::Patience,
            },
        };
        if let Due::Tell = due {
            current.tell = None;
        }
        due
    }

    /// Patience has ended: what to ask now.
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
