//! What a client asks about runs: prepare, commit, abort, follow, stop; one after the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};

use super::AgentConfig;
use super::deletion;
use super::follow::{self, Follower};
use super::list;
use super::outgoing::Outgoing;
use super::ports::HeldPorts;
use super::preflight;
use super::prepare::{self, NotReady, Ready, is_unwanted, was_started};
use super::stacks;
use super::trace::{self, TraceTask};
use crate::clock;
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::time::HostTime;
use crate::supervise::container::{SETUP, Setup};
use crate::supervise::lease::{Claims, LeaseDir, Queued};
use crate::supervise::rundir::RunDir;
use crate::supervise::start::{Given, start};
use crate::supervise::state::STATE;
use crate::supervise::stop::{Stopped, stop};
use crate::supervise::{SuperviseError, attempts, unwanted};
use crate::wire::message::{
    AskPreflight, AskStacks, Commit, Follow, Forgotten, FromAgent, ListRuns, Prepared, Queue, Refused,
    RunRef, Stop,
};
use crate::wire::trace::Trace;

/// How long what was checked may be taken for true, and GPUs are held for a run that is not started.
pub(super) const PLAN_LIFE_US: u64 = 60_000_000;

/// Runs that are deleted at once: a client may ask for hundreds.
const DELETIONS: usize = 4;

/// One request.
#[derive(Debug)]
pub(super) enum Request {
    Prepare(Box<HostRun>),
    Commit(Commit),
    Abort(RunRef),
    Follow(Follow),
    Stop(Stop),
    List(ListRuns),
    Stacks(AskStacks),
    Forget(RunRef),
    Preflight(Box<AskPreflight>),
    Queue(Queue),
    Trace(Trace),
}

/// A run that could start: its GPUs are held.
#[derive(Debug)]
struct Plan {
    spec: HostRun,
    at: HostTime,
    claims: Claims,
    ports: HeldPorts,
    environment: EnvironmentChange,
    setup: Option<Setup>,
}

/// The runs that this client prepares and follows.
#[derive(Debug)]
pub(super) struct Runs {
    config: AgentConfig,
    out: Outgoing,
    plans: HashMap<(RunId, HostId), Plan>,
    followers: HashMap<(RunId, HostId), Follower>,
    queued: HashMap<RunId, Queued>,
    /// The last request of each run.
    traced: HashMap<(RunId, HostId), TraceTask>,
    /// Room for deletions.
    deletions: Arc<Semaphore>,
    /// What is looked at for launches that are still being written.
    preflights: preflight::Desk,
    /// What is being looked for beside the other requests: a login shell may take its time.
    checks: JoinSet<Checked>,
    /// The runs of those, each with what was asked about it meanwhile.
    checked: HashMap<(RunId, HostId), Meanwhile>,
    /// Each ends when a plan is too old: the plan, and when it was made.
    expiries: JoinSet<(RunId, HostId, HostTime)>,
}

/// A check that has ended: whether the run could start here; a panic has no answer.
type Checked = ((RunId, HostId), Option<(HostRun, Result<Option<Ready>, NotReady>)>);

/// What was asked about a run while it was checked. The last word counts.
#[derive(Debug)]
enum Meanwhile {
    /// Nothing.
    Wanted,
    /// It is not wanted any more.
    Aborted,
    /// It is asked for anew.
    Again(Box<HostRun>),
}

impl Drop for Runs {
    fn drop(&mut self) {
        for plan in self.plans.values() {
            prepare::forget(&self.config, &plan.spec);
        }
    }
}

impl Runs {
    pub(super) fn new(config: AgentConfig, out: Outgoing) -> Self {
        Self {
            preflights: preflight::Desk::new(config.clone(), out.clone()),
            config,
            out,
            plans: HashMap::new(),
            followers: HashMap::new(),
            queued: HashMap::new(),
            traced: HashMap::new(),
            deletions: Arc::new(Semaphore::new(DELETIONS)),
            checks: JoinSet::new(),
            checked: HashMap::new(),
            expiries: JoinSet::new(),
        }
    }

    /// Serves requests until no more can come.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            let request = tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => request,
                    None => return,
                },
                Some(Ok(checked)) = self.checks.join_next() => {
                    self.prepared(checked).await;
                    continue;
                }
                Some(Ok((run, host, at))) = self.expiries.join_next() => {
                    self.expire(run, host, at);
                    continue;
                }
            };
            match request {
                Request::Prepare(spec) => self.prepare(*spec),
                Request::Commit(commit) => self.commit(commit).await,
                Request::Abort(RunRef { run, host }) => self.abort(run, host),
                Request::Follow(follow) => self.follow(follow).await,
                Request::Stop(stop) => drop(self.stop(stop, false).await),
                Request::List(asked) => self.list(asked),
                Request::Stacks(ask) => self.stacks(ask),
                Request::Forget(about) => self.delete(about),
                Request::Preflight(ask) => self.preflights.ask(*ask),
                Request::Queue(queue) => self.queue(&queue),
                Request::Trace(trace) => self.trace(trace),
            }
        }
    }

    fn prepare(&mut self, spec: HostRun) {
        let key = (spec.run.clone(), spec.host.clone());
        // Asked again: what was held for it before is given back first.
        self.plans.remove(&key);
        if let Some(meanwhile) = self.checked.get_mut(&key) {
            *meanwhile = Meanwhile::Again(Box::new(spec));
            return;
        }
        self.checked.insert(key.clone(), Meanwhile::Wanted);
        let config = self.config.clone();
        self.checks.spawn(async move {
            let checking = tokio::task::spawn_blocking(move || {
                let ready = prepare::prepare(&config, &spec);
                (spec, ready)
            });
            (key, checking.await.ok())
        });
    }

    async fn prepared(&mut self, ((run, host), checked): Checked) {
        let meanwhile = self.checked.remove(&(run.clone(), host.clone()));
        if !matches!(meanwhile, Some(Meanwhile::Wanted)) {
            if let Some((spec, Ok(Some(ready)))) = checked {
                drop(ready);
                prepare::forget(&self.config, &spec);
            }
            if let Some(Meanwhile::Again(spec)) = meanwhile {
                self.prepare(*spec);
            }
            return;
        }
        match checked {
            Some((spec, Ok(Some(Ready { ports: held, claims, environment, setup })))) => {
                let ports = held.numbers();
                let image = setup.as_ref().map(|setup| setup.image.clone());
                // from now on: what was looked for first may have taken its time
                let at = clock::host_now();
                let plan = Plan { spec, at, claims, ports: held, environment, setup };
                self.plans.insert((run.clone(), host.clone()), plan);
                let (of, there) = (run.clone(), host.clone());
                self.expiries.spawn(async move {
                    tokio::time::sleep(Duration::from_micros(PLAN_LIFE_US)).await;
                    (of, there, at)
                });
                self.out.control(FromAgent::Prepared(Prepared { run, host, ports, image })).await;
            }
            Some((_, Ok(None))) => {
                self.out.control(FromAgent::Started(RunRef { run, host })).await;
            }
            Some((_, Err(NotReady { rank, reason, class, busy }))) => {
                let refused = Refused { run, host, rank, reason, class, busy };
                self.out.control(FromAgent::Refused(refused)).await;
            }
            None => {
                let reason = "the check failed: it has panicked".to_owned();
                refuse(&self.out, run, host, RefusalClass::Fault, reason).await;
            }
        }
    }

    async fn commit(&mut self, Commit { run, host, late, attempt }: Commit) {
        let plan = self.plans.remove(&(run.clone(), host.clone()));
        // A client that lost its link before the answer came asks again, maybe another agent.
        if was_started(&self.config, &run, &host, attempt) {
            self.out.control(FromAgent::Started(RunRef { run, host })).await;
            return;
        }
        let Plan { spec, claims, ports, environment, setup, .. } = match plan {
            Some(plan) if clock::host_now().0.saturating_sub(plan.at.0) <= PLAN_LIFE_US => plan,
            Some(plan) => {
                prepare::forget(&self.config, &plan.spec);
                let reason = format!("run {run} was prepared on {host} more than 60 s ago: prepare it again");
                return refuse(&self.out, run, host, RefusalClass::Unknown, reason).await;
            }
            None => {
                let reason = format!("run {run} was not prepared on {host}: prepare it first");
                return refuse(&self.out, run, host, RefusalClass::Unknown, reason).await;
            }
        };
        // The ranks bind them now.
        drop(ports);
        let started = match RunDir::create(&self.config.state_dir, &run, &host) {
            Ok(dir) => match set_up(&dir, spec.attempt, setup.as_ref()) {
                Ok(()) => start(&self.config.exe, &dir, spec, Given { late, environment }, claims).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match started {
            Ok(_) => {
                self.out.control(FromAgent::Started(RunRef { run, host })).await;
            }
            Err(error) => {
                let class =
                    if is_unwanted(&self.config, &run) { RefusalClass::Unwanted } else { error.class() };
                let reason = format!("{host}: {error}");
                refuse(&self.out, run, host, class, reason).await;
            }
        }
    }

    /// A client that is still connected and says nothing: what was prepared is given back.
    fn expire(&mut self, run: RunId, host: HostId, at: HostTime) {
        // not one that was prepared again meanwhile
        if self.plans.get(&(run.clone(), host.clone())).is_some_and(|plan| plan.at == at) {
            self.abort(run, host);
        }
    }

    fn abort(&mut self, run: RunId, host: HostId) {
        if let Some(meanwhile) = self.checked.get_mut(&(run.clone(), host.clone())) {
            *meanwhile = Meanwhile::Aborted;
        }
        if let Some(plan) = self.plans.remove(&(run, host)) {
            prepare::forget(&self.config, &plan.spec);
        }
    }

    /// Follows from other offsets when the run is followed already.
    async fn follow(&mut self, follow: Follow) {
        if let Some(now) = follow.stop {
            let (run, host) = (follow.run.clone(), follow.host.clone());
            let stop = Stop { run, host, now, attempt: None, whole: true };
            let (is_marked, is_refused) = self.stop(stop, true).await;
            // nothing else is told of a run that may start all the same
            if !is_marked && is_refused.await.unwrap_or(true) {
                return;
            }
        }
        let key = (follow.run.clone(), follow.host.clone());
        self.followers.remove(&key);
        match follow::start(self.config.clone(), follow, self.out.clone()) {
            Ok(follower) => {
                self.followers.insert(key, follower);
            }
            Err(error) => {
                let (run, host) = key;
                let reason = format!("{host}: follow run {run}: {error}");
                refuse(&self.out, run, host, RefusalClass::Fault, reason).await;
            }
        }
    }

    /// Joins the queue for GPUs, or leaves it. A ticket that can't be written costs its place, nothing more.
    fn queue(&mut self, Queue { ticket, name, gpus, lease_dir }: &Queue) {
        self.queued.remove(ticket);
        if gpus.is_empty() {
            return;
        }
        let joined =
            LeaseDir::open(lease_dir.as_deref()).and_then(|dir| Queued::join(dir, ticket, name, gpus));
        match joined {
            Ok(queued) => drop(self.queued.insert(ticket.clone(), queued)),
            Err(error) => tracing::warn!(%error, "no place in the queue"),
        }
    }

    /// Marks a run that its owner does not want any more, before anything else is looked at; the rest is done beside the other
    /// requests: a run without supervisor takes its grace period here. Gives whether it is marked, and what becomes whether the client
    /// was refused; of a run of which nothing is here a follower tells, where one follows.
    async fn stop(
        &self,
        Stop { run, host, now, attempt, whole }: Stop,
        follows: bool,
    ) -> (bool, JoinHandle<bool>) {
        let (config, out) = (self.config.clone(), self.out.clone());
        let marked = if whole {
            let (state, run) = (config.state_dir.clone(), run.clone());
            let marking = tokio::task::spawn_blocking(move || unwanted::mark(&state, &run));
            marking.await.unwrap_or_else(|error| Err(SuperviseError::NotStarted(error.to_string())))
        } else {
            Ok(())
        };
        // who does not say which attempt means the one that it hears of, or the run as a whole
        let followed = self.followers.get(&(run.clone(), host.clone()));
        let attempt = attempt.or_else(|| followed?.attempt).filter(|_| !whole);
        let is_marked = marked.is_ok();
        let is_refused = tokio::task::spawn_blocking(move || {
            let found = RunDir::find(&config.state_dir, &run, &host);
            // without a state no supervisor has it
            let found = found.map(|dir| dir.filter(|dir| dir.has(STATE)));
            let (class, reason) = match (found, marked) {
                // asked for before the run was started again
                (Ok(Some(dir)), _)
                    if attempt.is_some_and(|attempt| attempts::has(&dir, attempt.saturating_add(1))) =>
                {
                    return false;
                }
                (Ok(Some(dir)), marked) => match (stop(&config.exe, &dir, now), marked) {
                    (Ok(Stopped::NothingLeft), Err(error)) => unmarked(&host, &error),
                    (Ok(_), _) => return false,
                    (Err(error), _) => (error.class(), format!("{host}: {error}")),
                },
                (Ok(None), Ok(())) if follows => return false,
                (Ok(None), Ok(())) => {
                    (RefusalClass::Unknown, format!("run {run} was never started on {host}"))
                }
                (Ok(None), Err(error)) => unmarked(&host, &error),
                (Err(error), _) => (error.class(), format!("{host}: {error}")),
            };
            let refused = Refused { run, host, rank: None, reason, class, busy: false };
            out.control_blocking(FromAgent::Refused(refused));
            true
        });
        (is_marked, is_refused)
    }

    fn trace(&mut self, trace: Trace) {
        let key = (trace.run.clone(), trace.host.clone());
        match trace::start(&self.config, trace, self.out.clone()) {
            Ok(task) => drop(self.traced.insert(key, task)),
            Err(error) => tracing::warn!(%error, "no thread for a trace"),
        }
    }

    /// Beside the other requests: there may be many files to read.
    fn list(&self, asked: ListRuns) {
        let (config, out) = (self.config.clone(), self.out.clone());
        tokio::task::spawn_blocking(move || list::tell(&config, asked, &out));
    }

    /// Beside the other requests: there may be many files to delete.
    fn delete(&self, RunRef { run, host }: RunRef) {
        let (config, out, room) = (self.config.clone(), self.out.clone(), Arc::clone(&self.deletions));
        tokio::spawn(async move {
            // it is never closed
            let _permit = room.acquire_owned().await;
            let about = run.clone();
            let deleted = tokio::task::spawn_blocking(move || deletion::delete(&config, &about)).await;
            let why = deleted.unwrap_or_else(|error| Err(format!("the deletion failed: {error}"))).err();
            out.control(FromAgent::Forgotten(Forgotten { run, host, why })).await;
        });
    }

    /// Beside the other requests: processes that hang take their time.
    fn stacks(&self, ask: AskStacks) {
        let (config, out) = (self.config.clone(), self.out.clone());
        tokio::task::spawn_blocking(move || stacks::tell(&config, ask, &out));
    }
}

/// Nothing of a run is left on a host, and it could start there again.
fn unmarked(host: &HostId, error: &SuperviseError) -> (RefusalClass, String) {
    let reason = format!("{host}: nothing of the run is left, and it can't be kept from starting: {error}");
    (error.class(), reason)
}

/// Makes a run's directory ready for an attempt.
fn set_up(dir: &RunDir, attempt: u32, setup: Option<&Setup>) -> Result<(), SuperviseError> {
    attempts::set_aside(dir, attempt)?;
    setup.map_or(Ok(()), |setup| dir.write_json(SETUP, setup))
}

async fn refuse(out: &Outgoing, run: RunId, host: HostId, class: RefusalClass, reason: String) {
    let refused = Refused { run, host, rank: None, reason, class, busy: false };
    out.control(FromAgent::Refused(refused)).await;
}

#[cfg(test)]
mod tests {
    use super::super::outgoing::lanes;
    use super::*;

    fn runs_dir(state: &std::path::Path) -> std::path::PathBuf {
        state.join("hvtui")
    }

    /// A run without ranks, and who prepares it.
    fn small(state: &std::path::Path) -> (Runs, HostRun, impl Sized) {
        let config =
            AgentConfig { exe: "/bin/true".into(), state_dir: runs_dir(state), build: String::new() };
        let spec = HostRun {
            rendezvous: None,
            engine: None,
            attempt: 0,
            run: RunId::new(1, 1),
            host: HostId::from("a"),
            name: "test".to_owned(),
            ranks: Vec::new(),
            grace_ms: 1,
            max_silence_ms: None,
            python_hooks: crate::domain::options::PythonHooks::Off,
            traceable: false,
            spool: crate::domain::run::Spool::default(),
            leases: crate::domain::lease::LeasePlan::default(),
            run_spec: None,
            ports: 1,
        };
        let (out, queue) = lanes();
        (Runs::new(config, out), spec, queue)
    }

    #[tokio::test]
    async fn what_nobody_commits_is_given_back_after_a_minute() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        runs.prepare(spec.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        let there = || RunDir::find(&runs_dir(state.path()), &spec.run, &spec.host).unwrap().is_some();
        assert!(there() && runs.plans.len() == 1 && runs.expiries.len() == 1);
        let (run, host) = (spec.run.clone(), spec.host.clone());
        let at = runs.plans[&(run.clone(), host.clone())].at;
        // prepared again in time: the first one's end is not its end
        runs.expire(run.clone(), host.clone(), HostTime(at.0 + 1));
        assert!(there() && runs.plans.len() == 1);
        runs.expire(run, host, at);
        assert!(!there() && runs.plans.is_empty());
        drop(queue);
    }

    #[tokio::test]
    async fn what_is_asked_while_a_run_is_checked_counts_when_that_is_done() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        let there = || RunDir::find(&runs_dir(state.path()), &spec.run, &spec.host).unwrap().is_some();
        runs.prepare(spec.clone());
        runs.abort(spec.run.clone(), spec.host.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        assert!(!there() && runs.plans.is_empty() && runs.checked.is_empty());
        runs.prepare(spec.clone());
        runs.prepare(spec.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        assert!(runs.plans.is_empty() && runs.checks.len() == 1, "the last word is checked anew");
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        assert!(there() && runs.plans.len() == 1);
        drop(queue);
    }
}
