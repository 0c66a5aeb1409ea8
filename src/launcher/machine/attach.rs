//! A machine for a run that goes on already, or has ended since: its hosts tell what was not heard here.

use std::sync::Arc;

use super::{Action, BTreeMap, BTreeSet, Progress, Rendezvous, RunMachine, Secret, StopCause, VecDeque};
use crate::domain::event::Event;
use crate::domain::ids::{HostId, Rank};
use crate::domain::position::{Past, Position, RankPosition};
use crate::domain::run::{RefusalClass, RunSpec, RunStage};
use crate::domain::time::Stamp;
use crate::launcher::plan;
use crate::wire::message::{Follow, Refused, ToAgent};

impl RunMachine {
    /// A machine that attaches to `spec` from `position` on, and its first actions. It owns what the launching
    /// client owned: as soon as a rank fails, or failed while no client looked, it stops the others.
    pub fn attach(spec: RunSpec, position: &Position, past: Past, at: Stamp) -> (Self, Vec<Action>) {
        let recorded = position.spec.is_some();
        let mut machine = Self {
            rendezvous: Rendezvous { master: [127, 0, 0, 1].into(), bind: BTreeMap::new() },
            plans: Vec::new(),
            secret: Secret(String::new()),
            stage: position.stage.unwrap_or(RunStage::Start).clamp(RunStage::Start, RunStage::Stopping),
            entered: at,
            hosts_due: BTreeSet::new(),
            unasked: VecDeque::new(),
            asked_again: BTreeSet::new(),
            progress: position
                .ranks
                .iter()
                .filter_map(|(rank, known)| Some((*rank, progress(known)?)))
                .collect(),
            links_down: BTreeMap::new(),
            clocks: BTreeMap::new(),
            meeting: None,
            ports: BTreeMap::new(),
            images: BTreeMap::new(),
            finished: BTreeSet::new(),
            exits: BTreeMap::new(),
            words: BTreeMap::new(),
            stop_at: None,
            committed: true,
            attached: true,
            unsure: position.abandoned && position.stage <= Some(RunStage::Start),
            half_started: false,
            stopping: None,
            values: super::Values::default(),
            ranks_due: BTreeSet::new(),
            told: super::Waiting::default(),
            attempt: position.attempt,
            unwanted: false,
            lacking: None,
            spec,
        };
        let mut actions = Vec::new();
        if !recorded {
            let created = Event::RunCreated { spec: Arc::new(machine.spec.clone()) };
            actions.push(Action::Emit(machine.origin(), created));
        }
        let since = position.last_at.filter(|_| recorded);
        actions.push(Action::Emit(machine.origin(), Event::Attached { since, until: None }));
        let stage = machine.stage;
        machine.enter(stage, at, &mut actions);
        for host in machine.spec.hosts() {
            let from = position.wanted(&machine.spec, &host);
            let steps_by = position.steps_by(&machine.spec, &host);
            let (last, hurry) = (past.last(), past.may_hurry());
            let follow = Follow { from, last, hurry, steps_by, ..plan::follow(&machine.spec, &host) };
            actions.push(Action::Send(host, ToAgent::Follow(follow)));
        }
        machine.know_exits(position, at, &mut actions);
        machine.advance(at, &mut actions);
        (machine, actions)
    }

    /// Whether a host's answer shows that the client which launched the run ended before it had told all hosts to start.
    /// A host that knows nothing of another run may just not be the one that it was started on.
    pub(super) fn is_half_started(&self, host: &HostId, refused: &Refused) -> bool {
        self.unsure && refused.class == RefusalClass::Unknown && !self.is_heard(host)
    }

    /// Ranks whose end was recorded. The client that recorded a failure may not have come to stop the others.
    fn know_exits(&mut self, position: &Position, at: Stamp, actions: &mut Vec<Action>) {
        let world = self.spec.world();
        let ended = |(rank, known): (&Rank, &RankPosition)| {
            let exit = known.exit.clone().filter(|_| rank.0 < world)?;
            Some((*rank, exit))
        };
        let exits: Vec<_> = position.ranks.iter().filter_map(ended).collect();
        for (rank, (when, exit)) in exits {
            self.rank_gone(at, rank, when, &exit, actions);
        }
        // the others have had their time
        if self.stop_at.is_some() {
            self.stop_all(StopCause::Rank, false, at, actions);
        }
    }
}

fn progress(known: &RankPosition) -> Option<Progress> {
    match known {
        RankPosition { stepped: true, .. } => Some(Progress::Stepped),
        RankPosition { met: true, .. } => Some(Progress::Met),
        RankPosition { started: true, .. } => Some(Progress::Started),
        _ => None,
    }
}
