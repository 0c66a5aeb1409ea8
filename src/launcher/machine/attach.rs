//! A machine for a run that goes on already, or has ended since: its hosts tell what was not heard here.

use std::sync::Arc;

use super::{
    Action, BTreeMap, BTreeSet, LastWords, Progress, RankOutput, Rendezvous, RunMachine, Secret, StopCause,
    VecDeque,
};
use crate::domain::event::Event;
use crate::domain::ids::{HostId, Rank};
use crate::domain::resume_point::{Backfill, RankResumePoint, ResumePoint};
use crate::domain::run::{RefusalClass, RunSpec, RunStage};
use crate::domain::run_status::nothing_there;
use crate::domain::text::plain;
use crate::domain::time::Stamp;
use crate::launcher::plan;
use crate::wire::message::{Follow, Refused, ToAgent};

/// So long a host may take to be reached, and so far its clock may run from that of the client, microseconds.
const MARGIN_US: u64 = 600_000_000;

impl RunMachine {
    /// A machine that attaches to `spec` from `resume_point` on, and its first actions. It owns what the launching
    /// client owned: as soon as a rank fails, or failed while no client looked, it stops the others.
    pub fn attach(
        spec: RunSpec,
        resume_point: &ResumePoint,
        backfill: Backfill,
        at: Stamp,
    ) -> (Self, Vec<Action>) {
        let recorded = resume_point.spec.is_some();
        let mut machine = Self {
            rendezvous: Rendezvous { master: [127, 0, 0, 1].into(), bind: BTreeMap::new() },
            plans: Vec::new(),
            secret: Secret(String::new()),
            stage: resume_point.stage.unwrap_or(RunStage::Start).clamp(RunStage::Start, RunStage::Stopping),
            entered: at,
            hosts_due: BTreeSet::new(),
            unasked: VecDeque::new(),
            asked_again: BTreeSet::new(),
            progress: resume_point
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
            words: resume_point.ranks.iter().map(|(rank, known)| (*rank, said(known))).collect(),
            stop_at: None,
            committed: true,
            attached: true,
            unsure: resume_point.abandoned && resume_point.stage <= Some(RunStage::Start),
            half_started: false,
            stopping: None,
            stopped_by_others: BTreeSet::new(),
            values: super::Values::default(),
            ranks_due: BTreeSet::new(),
            told: super::Waiting::default(),
            // of a run that is never started again it is the first one
            attempt: resume_point.attempt.or((spec.options.max_restarts == 0).then_some(0)),
            unwanted: false,
            lacking: None,
            spec,
        };
        let mut actions = Vec::new();
        if !recorded {
            let created = Event::RunCreated { spec: Arc::new(machine.spec.clone()) };
            actions.push(Action::Emit(machine.origin(), created));
        }
        let since = resume_point.last_at.filter(|_| recorded);
        actions.push(Action::Emit(machine.origin(), Event::Attached { since, until: None }));
        // what is of the time that is known is left out by who records
        let unknown_us = since.map(|since| at.micros_since(since).max(0).unsigned_abs());
        let samples_us = Some(unknown_us.map_or(u64::MAX, |us| us.saturating_add(MARGIN_US)));
        let stage = machine.stage;
        machine.enter(stage, at, &mut actions);
        for host in machine.spec.hosts() {
            let from = resume_point.wanted(&machine.spec, &host);
            let steps_by = resume_point.steps_by(&machine.spec, &host);
            let follow = Follow {
                from,
                last: backfill.last(),
                hurry: backfill.may_hurry(),
                patience_s: backfill.patience_s(),
                samples_us,
                steps_by,
                ..plan::follow(&machine.spec, &host)
            };
            actions.push(Action::Send(host, ToAgent::Follow(follow)));
        }
        machine.know_exits(resume_point, at, &mut actions);
        machine.advance(at, &mut actions);
        (machine, actions)
    }

    /// Whether a host's answer shows that the client which launched the run ended before it had told all hosts to start.
    /// A host that knows nothing of another run may just not be the one that it was started on.
    pub(super) fn is_half_started(&self, host: &HostId, refused: &Refused) -> bool {
        self.unsure && refused.class == RefusalClass::Unknown && !self.is_heard(host)
    }

    /// Why a host can't tell of its ranks, which is no end of them: it has the run and can't read it, or has nothing of it any more.
    pub(super) fn not_followed(&self, host: &HostId, refused: &Refused) -> Option<String> {
        match refused.class {
            _ if self.stage == RunStage::Stopping => None,
            class if class.may_pass() => Some(plain(host, &refused.reason).to_owned()),
            RefusalClass::Unknown if self.is_heard(host) => Some(nothing_there(&self.spec, host)),
            _ => None,
        }
    }

    /// Ranks whose end was recorded. The client that recorded a failure may not have come to stop the others.
    fn know_exits(&mut self, resume_point: &ResumePoint, at: Stamp, actions: &mut Vec<Action>) {
        let world = self.spec.world();
        let ended = |(rank, known): (&Rank, &RankResumePoint)| {
            let exit = known.exit.clone().filter(|_| rank.0 < world)?;
            Some((*rank, exit))
        };
        let exits: Vec<_> = resume_point.ranks.iter().filter_map(ended).collect();
        for (rank, (when, exit)) in exits {
            self.rank_gone(at, rank, when, &exit, actions);
        }
        // the others have had their time
        if self.stop_at.is_some() {
            self.stop_all(StopCause::Rank, false, at, actions);
        }
    }
}

/// What it had printed is not read again.
fn said(known: &RankResumePoint) -> (RankOutput, LastWords) {
    (RankOutput::default(), known.last_words.clone())
}

fn progress(known: &RankResumePoint) -> Option<Progress> {
    match known {
        RankResumePoint { stepped: true, .. } => Some(Progress::Stepped),
        RankResumePoint { connected: true, .. } => Some(Progress::Connected),
        RankResumePoint { started: true, .. } => Some(Progress::Started),
        _ => None,
    }
}
