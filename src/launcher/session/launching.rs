//! Launches: from what was asked for to a plan, once the hosts it needs are known, and from a plan to a run.

use std::collections::BTreeMap;

use super::{Output, Session};
use crate::clock;
use crate::domain::ids::{HostId, RunId};
use crate::domain::pick::Choice;
use crate::domain::run_status::HostRunStatus;
use crate::domain::time::Stamp;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::plan::LaunchPlan;
use crate::launch::remark::Remark;
use crate::launch::request::LaunchRequest;
use crate::launcher::cpu_slots::CpuSlots;
use crate::launcher::machine::RunMachine;
use crate::launcher::random::{run_id, secret};
use crate::launcher::readiness::{ClusterView, Gathered, gather};
use crate::launcher::secrets::Values;
use crate::launcher::trees::Unread;
use crate::launcher::waiting::{PendingLaunch, ahead, behind};
use crate::launcher::{free, host_names, place, plan};

impl Session {
    /// Asks for a launch. It becomes [`Output::Launched`] or [`Output::LaunchFailed`], at once when the hosts
    /// it needs are known, else when they have answered.
    pub fn launch(&mut self, mut request: LaunchRequest) {
        host_names::resolve(&mut request.place, &self.hosts);
        if let Some(plan) = request.options.sync.clone() {
            let since = request.since.clone();
            self.trees.read(Unread::Launch(Box::new(PendingLaunch::new(request))), plan, since);
            return;
        }
        self.pending.push(PendingLaunch::new(request));
        self.try_launches();
    }

    /// Starts a plan that [`Self::preview`] has made, as it was shown; on other slots where another launch takes those first and
    /// the user has not named them. It becomes [`Output::Launched`] or [`Output::LaunchFailed`].
    pub fn start_plan(&mut self, plan: LaunchPlan) {
        if let Some(sync) = plan.spec.options.sync.clone() {
            self.trees.read(Unread::Plan(Box::new(plan)), sync, None);
            return;
        }
        self.start_read_plan(plan);
    }

    pub(super) fn start_read_plan(&mut self, mut plan: LaunchPlan) {
        let again = plan.request.take().map(|request| {
            let mut pending = PendingLaunch::new(*request);
            pending.request.code.clone_from(&plan.spec.code);
            pending.looked = plan.spec.hosts();
            pending.try_on(&plan.spec.placements);
            pending
        });
        let output = match self.start(plan, clock::now()) {
            Ok(run) => {
                self.starting.extend(again.map(|pending| (run.clone(), pending)));
                Output::Launched(run)
            }
            Err(error) => Output::LaunchFailed(error),
        };
        self.outputs.push_back(output);
    }

    /// Whom pending launches wait for.
    pub fn launches_wait_for(&self) -> Vec<HostId> {
        let wait = self.pending.iter().map(|pending| gather(&pending.request, &self.cluster_view()));
        let mut hosts: Vec<HostId> = wait
            .filter_map(|gathered| match gathered {
                Gathered::Wait(hosts) => Some(hosts),
                _ => None,
            })
            .flatten()
            .collect();
        hosts.dedup();
        hosts
    }

    /// Forgets the launches that have not become runs, and stops those `unread` ones that have without that their caller knew. A try
    /// that is under way of a launch that waits is its last one.
    pub fn forget_launches(&mut self, unread: Vec<RunId>) {
        self.trees.forget();
        self.forget_looks();
        let (waiting, others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.starting)
            .into_iter()
            .partition(|(_, pending)| pending.request.on_busy.wait.is_some());
        self.starting = others;
        for pending in std::mem::take(&mut self.pending).into_iter().chain(waiting.into_values()) {
            self.leave_queue(pending.queue_ticket);
        }
        self.stop_unread_tries(unread);
    }

    /// What a launch would become, with what is known now.
    pub fn preview(&self, request: &LaunchRequest) -> Result<LaunchPlan, LaunchError> {
        let mut request = request.clone();
        host_names::resolve(&mut request.place, &self.hosts);
        match gather(&request, &self.cluster_view()) {
            Gathered::Ready(mut facts) => {
                self.cpu_slots.note(&mut facts);
                plan::plan(&request, &facts, run_id()?, clock::now())
            }
            Gathered::Unsatisfiable(error) => Err(error),
            Gathered::Wait(hosts) => Err(LaunchError::waiting_for(&hosts)),
        }
    }

    /// Asks which CPU slots live runs have, where a plan that [`Self::preview`] has made had the choice among such slots, as a launch
    /// does before it takes them. Gives the hosts that were asked: once [`Output::Found`] has told all of each, another preview knows.
    pub fn ask_cpu_slots(&self, request: &LaunchRequest, planned: &LaunchPlan) -> Vec<HostId> {
        let mut request = request.clone();
        host_names::resolve(&mut request.place, &self.hosts);
        let Gathered::Ready(facts) = gather(&request, &self.cluster_view()) else { return Vec::new() };
        let hosts = CpuSlots::default().ask(&request, planned, &facts, clock::now());
        self.list_live_runs(&hosts);
        hosts
    }

    /// The free GPUs that a request for some would take now.
    pub fn pick(&self, request: &LaunchRequest) -> Result<Choice, LaunchError> {
        match gather(request, &self.cluster_view()) {
            Gathered::Ready(facts) => match free::choice(request, &facts) {
                Some(choice) => Ok(choice?),
                None => Err(LaunchError::usage("only a number of free GPUs can be picked")),
            },
            Gathered::Unsatisfiable(error) => Err(error),
            Gathered::Wait(hosts) => Err(LaunchError::waiting_for(&hosts)),
        }
    }

    pub(super) fn try_launches(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            self.try_launch(pending, clock::now());
        }
    }

    pub(super) fn try_launch(&mut self, mut pending: PendingLaunch, at: Stamp) {
        if let Some(held) = pending.refused_too_long(at).map(str::to_owned) {
            return self.waited_too_long(pending, held);
        }
        if pending.cpu_slots.waits(at) || pending.still_holds(&self.world, at) {
            return self.pending.push(pending);
        }
        let PendingLaunch { request, queue_ticket, .. } = &pending;
        let patience = request.on_busy.wait;
        // a text with ages would be another one each second
        let view = ClusterView { ages: patience.is_none(), ..self.cluster_view() };
        let mut facts = match gather(request, &view) {
            Gathered::Wait(_) => return self.pending.push(pending),
            // who has begun to wait waits for a host that is away for a moment, too
            Gathered::Unsatisfiable(error)
                if queue_ticket.is_some() && error.fault == LaunchFault::Unreachable =>
            {
                return self.wait(pending, error.reason, at);
            }
            Gathered::Unsatisfiable(error) => return self.launch_failed(pending, error),
            Gathered::Ready(facts) => facts,
        };
        self.cpu_slots.note(&mut facts);
        let planned = run_id().and_then(|id| {
            let spread = pending.spread(&facts, &id, at);
            plan::plan(request, spread.as_ref().unwrap_or(&facts), id, at)
        });
        if let Ok(planned) = &planned {
            if pending.is_too_early(&planned.spec.placements, at) {
                return self.pending.push(pending);
            }
            let hosts = pending.cpu_slots.ask(&pending.request, planned, &facts, at);
            if !hosts.is_empty() {
                self.list_live_runs(&hosts);
                return self.pending.push(pending);
            }
        }
        let PendingLaunch { request, queue_ticket, .. } = &pending;
        let why = match (&planned, patience) {
            (Ok(planned), Some(_)) => {
                ahead(&planned.hosts, queue_ticket.as_ref().map(|queue_ticket| &queue_ticket.id), &self.world)
                    .map(behind)
            }
            (Err(error), Some(_)) => error.busy().map(str::to_owned),
            _ => None,
        };
        if let Some(why) = why {
            let wanted = place::wanted(request, &facts);
            return match self.queue(&mut pending, &facts, wanted, at) {
                Ok(()) => self.wait(pending, why, at),
                Err(error) => self.launch_failed(pending, error),
            };
        }
        match planned {
            Ok(planned) => self.look_and_start(pending, planned, at),
            Err(error) => {
                let error = pending.given_up(error);
                self.launch_failed(pending, error);
            }
        }
    }

    /// A host has told of its runs: a launch that waits for that goes on.
    pub(super) fn hear_of_cpu_slots(&mut self, host: &HostId, shares: &[HostRunStatus], last: bool) {
        self.cpu_slots.hear(host, shares, last);
        if last {
            self.pending.iter_mut().for_each(|pending| pending.cpu_slots.told(host));
            self.try_launches();
        }
    }

    /// Starts a launch that may wait again or be placed again where another one is faster.
    pub(super) fn start_pending(&mut self, mut pending: PendingLaunch, planned: LaunchPlan, at: Stamp) {
        let again = pending.try_on(&planned.spec.placements);
        let said = &mut pending.request.remarks;
        let remarks: Vec<Remark> =
            planned.remarks.iter().filter(|remark| !said.contains(remark)).cloned().collect();
        // another try does not say them again
        said.extend(remarks.iter().cloned());
        // the newest one is what the UI shows
        self.outputs.extend(remarks.iter().map(Remark::shown).chain(again).map(Output::Remark));
        match self.start(planned, at) {
            Ok(run) => {
                self.starting.insert(run.clone(), pending);
                self.outputs.push_back(Output::Launched(run));
            }
            Err(error) => self.launch_failed(pending, error),
        }
    }

    fn start(&mut self, planned: LaunchPlan, at: Stamp) -> Result<RunId, LaunchError> {
        let planned = planned.asked_for(at);
        let secret = secret()?;
        let values = Values::of(&planned.hosts, &self.lookup)?;
        let run = planned.spec.id.clone();
        let (hosts, plans) = (planned.spec.hosts(), planned.in_lease_order());
        let sync =
            planned.spec.options.sync.clone().zip(planned.spec.code.as_ref().and_then(|code| code.tree));
        let begin = if sync.is_some() { RunMachine::create } else { RunMachine::start };
        let (mut machine, actions) = begin(planned.spec, plans, planned.rendezvous, secret, at);
        machine.hold_secrets(values);
        self.own(run.clone(), machine, &hosts);
        self.act(actions, at);
        if let Some((plan, tree)) = sync {
            self.begin_sync(&run, plan, tree, &hosts, at);
        }
        Ok(run)
    }
}
