//! What a client asks about runs: prepare, commit, abort, follow, stop; one after the other.

use std::collections::HashMap;

use tokio::sync::mpsc;

use super::AgentConfig;
use super::follow::{self, Follower};
use super::list;
use super::outgoing::Outgoing;
use super::prepare::{self, NotReady};
use crate::clock;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::time::HostTime;
use crate::supervise::rundir::RunDir;
use crate::supervise::start::start;
use crate::supervise::state::STATE;
use crate::supervise::stop::stop;
use crate::wire::message::{Commit, Follow, FromAgent, ListRuns, Prepared, Refused, RunRef, Stop};

/// How long what was checked may be taken for true.
const PLAN_LIFE_US: u64 = 60_000_000;

/// One request.
#[derive(Debug)]
pub(super) enum Request {
    Prepare(Box<HostRun>),
    Commit(Commit),
    Abort(RunRef),
    Follow(Follow),
    Stop(Stop),
    List(ListRuns),
}

/// The runs that this client prepares and follows.
#[derive(Debug)]
pub(super) struct Runs {
    config: AgentConfig,
    out: Outgoing,
    plans: HashMap<(RunId, HostId), (HostRun, HostTime)>,
    followers: HashMap<(RunId, HostId), Follower>,
}

impl Drop for Runs {
    fn drop(&mut self) {
        for (spec, _) in self.plans.values() {
            prepare::forget(&self.config, spec);
        }
    }
}

impl Runs {
    pub(super) fn new(config: AgentConfig, out: Outgoing) -> Self {
        Self { config, out, plans: HashMap::new(), followers: HashMap::new() }
    }

    /// Serves requests until no more can come.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(request) = requests.recv().await {
            match request {
                Request::Prepare(spec) => self.prepare(*spec).await,
                Request::Commit(commit) => self.commit(commit).await,
                Request::Abort(RunRef { run, host }) => self.abort(run, host),
                Request::Follow(follow) => self.follow(follow).await,
                Request::Stop(stop) => self.stop(stop),
                Request::List(asked) => self.list(asked),
            }
        }
    }

    async fn prepare(&mut self, spec: HostRun) {
        let now = clock::host_now();
        let config = self.config.clone();
        self.plans.retain(|_, (spec, at)| {
            let fresh = now.0.saturating_sub(at.0) <= PLAN_LIFE_US;
            if !fresh {
                prepare::forget(&config, spec);
            }
            fresh
        });
        let (run, host) = (spec.run.clone(), spec.host.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let ready = prepare::prepare(&config, &spec);
            (spec, ready)
        });
        match checked.await {
            Ok((spec, Ok(free_port))) => {
                self.plans.insert((run.clone(), host.clone()), (spec, now));
                self.out.control(FromAgent::Prepared(Prepared { run, host, free_port })).await;
            }
            Ok((_, Err(NotReady { rank, reason, class }))) => {
                let refused = Refused { run, host, rank, reason, class };
                self.out.control(FromAgent::Refused(refused)).await;
            }
            Err(error) => {
                let reason = format!("the check failed: {error}");
                refuse(&self.out, run, host, RefusalClass::Fault, reason).await;
            }
        }
    }

    async fn commit(&mut self, Commit { run, host, env }: Commit) {
        let plan = self.plans.remove(&(run.clone(), host.clone()));
        // A client that lost its link before the answer came asks again, maybe another agent.
        if self.was_started(&run, &host) {
            self.out.control(FromAgent::Started(RunRef { run, host })).await;
            return;
        }
        let spec = match plan {
            Some((spec, at)) if clock::host_now().0.saturating_sub(at.0) <= PLAN_LIFE_US => spec,
            Some((spec, _)) => {
                prepare::forget(&self.config, &spec);
                let reason = format!("run {run} was prepared on {host} more than 60 s ago: prepare it again");
                return refuse(&self.out, run, host, RefusalClass::Unavailable, reason).await;
            }
            None => {
                let reason = format!("run {run} was not prepared on {host}: prepare it first");
                return refuse(&self.out, run, host, RefusalClass::Unavailable, reason).await;
            }
        };
        let started = match RunDir::create(&self.config.state_dir, &run, &host) {
            Ok(dir) => start(&self.config.exe, &dir, spec, env).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(_) => {
                self.out.control(FromAgent::Started(RunRef { run, host })).await;
            }
            Err(error) => {
                let (class, reason) = (error.class(), format!("{host}: {error}"));
                refuse(&self.out, run, host, class, reason).await;
            }
        }
    }

    fn was_started(&self, run: &RunId, host: &HostId) -> bool {
        matches!(RunDir::find(&self.config.state_dir, run, host), Ok(Some(dir)) if dir.has(STATE))
    }

    fn abort(&mut self, run: RunId, host: HostId) {
        if let Some((spec, _)) = self.plans.remove(&(run, host)) {
            prepare::forget(&self.config, &spec);
        }
    }

    /// Follows from other offsets when the run is followed already.
    async fn follow(&mut self, follow: Follow) {
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

    /// Beside the other requests: a run without supervisor takes its grace period here.
    fn stop(&self, Stop { run, host, now }: Stop) {
        let (config, out) = (self.config.clone(), self.out.clone());
        tokio::task::spawn_blocking(move || {
            let (class, reason) = match RunDir::find(&config.state_dir, &run, &host) {
                Ok(Some(dir)) => match stop(&dir, now) {
                    Ok(_) => return,
                    Err(error) => (error.class(), format!("{host}: {error}")),
                },
                Ok(None) => (RefusalClass::Unknown, format!("run {run} was never started on {host}")),
                Err(error) => (error.class(), format!("{host}: {error}")),
            };
            out.control_blocking(FromAgent::Refused(Refused { run, host, rank: None, reason, class }));
        });
    }

    /// Beside the other requests: there may be many files to read.
    fn list(&self, asked: ListRuns) {
        let (config, out) = (self.config.clone(), self.out.clone());
        tokio::task::spawn_blocking(move || list::tell(&config, asked, &out));
    }
}

async fn refuse(out: &Outgoing, run: RunId, host: HostId, class: RefusalClass, reason: String) {
    out.control(FromAgent::Refused(Refused { run, host, rank: None, reason, class })).await;
}
