//! What a client asks about runs: prepare, commit, abort, follow, stop. What is asked of one run is done one after the other;
//! whatever may wait for a disk is done beside what is asked of other runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::AgentConfig;
use super::commit::{self, Plan};
use super::deletion;
use super::follow::{self, Follower};
use super::list;
use super::outgoing::Outgoing;
use super::preflight;
use super::prepare::{self, NotReady, Ready};
use super::stacks;
use super::stopping::Stopping;
use super::trace::{self, TraceTask};
use crate::clock;
use crate::domain::ids::{HostId, RunId};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::time::HostTime;
use crate::supervise::lease::{LeaseDir, Queued};
use crate::wire::message::{
    AskPreflight, AskStacks, Commit, Follow, Forgotten, FromAgent, ListRuns, Prepared, Queue, Refused,
    RunRef, Stop,
};
use crate::wire::trace::Trace;

/// How long what was checked may be taken for true, and GPUs are held for a run that is not started.
pub(super) const PLAN_LIFE_US: u64 = 60_000_000;

/// How long the end of an agent waits for the removal of what was made ready: a disk may hang.
const FORGETTING: Duration = Duration::from_millis(1_500);

/// Runs that are deleted at once: a client may ask for hundreds.
const DELETIONS: usize = 4;

/// A run and the host's name in it.
type Share = (RunId, HostId);

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
    /// Of the agent itself: the plan that was made then is too old.
    Expire(Share, HostTime),
    /// Of the agent itself: what was made ready is not wanted any more.
    Tidy(Box<HostRun>),
}

impl Request {
    /// The run of which others may be asked before that must be done first.
    fn share(&self) -> Option<Share> {
        let (run, host) = match self {
            Self::Prepare(spec) | Self::Tidy(spec) => (&spec.run, &spec.host),
            Self::Commit(Commit { run, host, .. })
            | Self::Abort(RunRef { run, host })
            | Self::Follow(Follow { run, host, .. })
            | Self::Stop(Stop { run, host, .. })
            | Self::Forget(RunRef { run, host })
            | Self::Trace(Trace { run, host, .. })
            | Self::Expire((run, host), _) => (run, host),
            Self::List(_) | Self::Stacks(_) | Self::Preflight(_) | Self::Queue(_) => return None,
        };
        Some((run.clone(), host.clone()))
    }
}

/// What is left to do of something that was done beside the rest.
#[derive(Debug)]
enum Done {
    /// Nothing.
    All,
    /// The run was stopped, to be followed then.
    Stopped(Follow),
    /// It is followed.
    Followed(Follower),
}

/// The runs that this client prepares and follows.
#[derive(Debug)]
pub(super) struct Runs {
    config: AgentConfig,
    out: Outgoing,
    plans: HashMap<Share, Plan>,
    followers: HashMap<Share, Follower>,
    queued: HashMap<RunId, Queued>,
    /// The last request of each run.
    traced: HashMap<Share, TraceTask>,
    /// Room for deletions.
    deletions: Arc<Semaphore>,
    /// What is looked at for launches that are still being written.
    preflights: preflight::Desk,
    /// What is being looked for beside the other requests: a login shell may take its time.
    checks: JoinSet<Checked>,
    /// The runs of those, each with what was asked about it meanwhile.
    checked: HashMap<Share, Meanwhile>,
    /// Each ends when a plan is too old: the plan, and when it was made.
    expiries: JoinSet<(Share, HostTime)>,
    /// What is being done beside the other requests: a disk may hang.
    work: JoinSet<(Share, Done)>,
    /// The runs of that, each with what was asked about it meanwhile.
    busy: HashMap<Share, VecDeque<Request>>,
    /// Those of them of which is removed what was made ready.
    tidied: HashMap<Share, HostRun>,
}

/// A check that has ended: whether the run could start here; a panic has no answer.
type Checked = (Share, Option<(HostRun, Result<Option<Ready>, NotReady>)>);

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
        // the process may end before the thread that is at it
        let waiting = self.busy.values().flatten().filter_map(|request| match request {
            Request::Tidy(spec) => Some(spec.as_ref()),
            _ => None,
        });
        let mut left: Vec<HostRun> = self.tidied.values().chain(waiting).cloned().collect();
        // what is held for them is free at once, whatever the disk does
        for (_, plan) in self.plans.drain() {
            left.push(plan.spec);
        }
        self.queued.clear();
        self.followers.clear();
        if left.is_empty() {
            return;
        }
        let config = self.config.clone();
        let (working, done) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("forget".to_owned()).spawn(move || {
            for spec in &left {
                prepare::forget(&config, spec);
            }
            drop(working);
        });
        match thread {
            Ok(_) => {
                let _ = done.recv_timeout(FORGETTING);
            }
            Err(error) => tracing::warn!(%error, "no thread to remove what was made ready"),
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
            work: JoinSet::new(),
            busy: HashMap::new(),
            tidied: HashMap::new(),
        }
    }

    /// Serves requests until no more can come.
    pub(super) async fn serve(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => {
                        self.mark_ahead(&request);
                        self.take(request);
                    }
                    None => return,
                },
                Some(Ok(checked)) = self.checks.join_next() => self.prepared(checked).await,
                Some(Ok((share, at))) = self.expiries.join_next() => self.take(Request::Expire(share, at)),
                Some(Ok((share, done))) = self.work.join_next() => self.done(share, done),
            }
        }
    }

    /// Begins what is asked, once all is done that was asked of the same run before. Nothing of a run's own files is waited for here.
    fn take(&mut self, request: Request) {
        if let Some(share) = request.share()
            && self.busy.contains_key(&share)
        {
            self.busy.entry(share).or_default().push_back(request);
            return;
        }
        match request {
            Request::Prepare(spec) => self.prepare(*spec),
            Request::Commit(commit) => self.commit(commit),
            Request::Abort(RunRef { run, host }) => self.abort(&(run, host)),
            Request::Follow(follow) => self.follow(follow),
            Request::Stop(stop) => self.stop(stop),
            Request::List(asked) => self.list(asked),
            Request::Stacks(ask) => self.stacks(ask),
            Request::Forget(about) => self.delete(about),
            Request::Preflight(ask) => self.preflights.ask(*ask),
            Request::Queue(queue) => self.queue(&queue),
            Request::Trace(trace) => self.trace(trace),
            Request::Expire(share, at) => self.expire(&share, at),
            Request::Tidy(spec) => self.tidy(*spec),
        }
    }

    /// Does something of a run beside the other requests; what else is asked of the run waits for it.
    fn beside(&mut self, share: Share, work: impl Future<Output = Done> + Send + 'static) {
        self.busy.entry(share.clone()).or_default();
        self.work.spawn(async move { (share, work.await) });
    }

    fn done(&mut self, share: Share, done: Done) {
        let waiting = self.busy.remove(&share).unwrap_or_default();
        self.tidied.remove(&share);
        match done {
            Done::All => {}
            Done::Stopped(follow) => self.follow(follow),
            Done::Followed(follower) => drop(self.followers.insert(share, follower)),
        }
        for request in waiting {
            self.take(request);
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
                self.take(Request::Tidy(Box::new(spec)));
            }
            if let Some(Meanwhile::Again(spec)) = meanwhile {
                self.take(Request::Prepare(spec));
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
                let share = (run.clone(), host.clone());
                self.expiries.spawn(async move {
                    tokio::time::sleep(Duration::from_micros(PLAN_LIFE_US)).await;
                    (share, at)
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

    fn commit(&mut self, commit: Commit) {
        let share = (commit.run.clone(), commit.host.clone());
        let plan = self.plans.remove(&share);
        let (config, out) = (self.config.clone(), self.out.clone());
        self.beside(share, async move {
            out.control(commit::carry_out(config, commit, plan).await).await;
            Done::All
        });
    }

    /// A client that is still connected and says nothing: what was prepared is given back.
    fn expire(&mut self, share: &Share, at: HostTime) {
        // not one that was prepared again meanwhile
        if self.plans.get(share).is_some_and(|plan| plan.at == at) {
            self.abort(share);
        }
    }

    fn abort(&mut self, share: &Share) {
        if let Some(meanwhile) = self.checked.get_mut(share) {
            *meanwhile = Meanwhile::Aborted;
        }
        if let Some(plan) = self.plans.remove(share) {
            self.tidy(plan.spec);
        }
    }

    /// Removes what was written for a plan that is not carried out.
    fn tidy(&mut self, spec: HostRun) {
        let share = (spec.run.clone(), spec.host.clone());
        let config = self.config.clone();
        self.tidied.insert(share.clone(), spec.clone());
        // at once: a client may leave now
        let tidying = tokio::task::spawn_blocking(move || prepare::forget(&config, &spec));
        self.beside(share, async move {
            let _ = tidying.await;
            Done::All
        });
    }

    /// Follows from other offsets when the run is followed already.
    fn follow(&mut self, follow: Follow) {
        let (run, host) = (follow.run.clone(), follow.host.clone());
        let share = (run.clone(), host.clone());
        if let Some(now) = follow.stop {
            let stop = Stop { run, host, now, attempt: None, whole: true, unread: false };
            let stopping = self.stopping(stop, true);
            self.beside(share, async move {
                let (is_marked, is_refused) = stopping.begin().await;
                // nothing else is told of a run that may start all the same
                if !is_marked && is_refused.await.unwrap_or(true) {
                    return Done::All;
                }
                Done::Stopped(Follow { stop: None, ..follow })
            });
            return;
        }
        self.followers.remove(&share);
        let (config, out) = (self.config.clone(), self.out.clone());
        self.beside(share, async move {
            let to = out.clone();
            match tokio::task::spawn_blocking(move || follow::start(config, follow, to)).await {
                Ok(Ok(follower)) => return Done::Followed(follower),
                Ok(Err(error)) => {
                    let reason = format!("{host}: follow run {run}: {error}");
                    refuse(&out, run, host, RefusalClass::Fault, reason).await;
                }
                Err(error) => tracing::warn!(%error, "a run is not followed"),
            }
            Done::All
        });
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

    fn stop(&mut self, stop: Stop) {
        let share = (stop.run.clone(), stop.host.clone());
        if let Some(follower) = self.followers.get(&share).filter(|_| stop.unread) {
            follower.unread.store(true, Ordering::Relaxed);
        }
        let stopping = self.stopping(stop, false);
        self.beside(share, async move {
            drop(stopping.begin().await);
            Done::All
        });
    }

    /// Of a run that is to be stopped as a whole at least its mark waits for nothing: once, when it is asked.
    fn mark_ahead(&self, request: &Request) {
        let stop = match request {
            Request::Stop(stop) if stop.whole => stop.clone(),
            Request::Follow(Follow { run, host, stop: Some(now), .. }) => {
                let (run, host) = (run.clone(), host.clone());
                Stop { run, host, now: *now, attempt: None, whole: true, unread: false }
            }
            _ => return,
        };
        if self.busy.contains_key(&(stop.run.clone(), stop.host.clone())) {
            tokio::spawn(self.stopping(stop, false).mark_ahead());
        }
    }

    fn stopping(&self, stop: Stop, follows: bool) -> Stopping {
        // who does not say which attempt means the one that it hears of, or the run as a whole
        let followed = self.followers.get(&(stop.run.clone(), stop.host.clone()));
        let attempt = stop.attempt.or_else(|| followed?.attempt).filter(|_| !stop.whole);
        let (config, out) = (self.config.clone(), self.out.clone());
        Stopping { config, out, stop: Stop { attempt, ..stop }, follows }
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

async fn refuse(out: &Outgoing, run: RunId, host: HostId, class: RefusalClass, reason: String) {
    let refused = Refused { run, host, rank: None, reason, class, busy: false };
    out.control(FromAgent::Refused(refused)).await;
}

#[cfg(test)]
mod tests {
    use std::fs::{File, remove_file};

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::super::outgoing::{self, lanes};
    use super::*;
    use crate::domain::fixtures::host_run;
    use crate::domain::late::Late;
    use crate::procs::identity::Identity;
    use crate::supervise::rundir::RunDir;
    use crate::supervise::state::{Phase, SPEC, STATE, State};
    use crate::supervise::unwanted;

    fn runs_dir(state: &std::path::Path) -> std::path::PathBuf {
        state.join("hvtui")
    }

    /// A run without ranks, and who prepares it.
    fn small(state: &std::path::Path) -> (Runs, HostRun, outgoing::Queue) {
        let config =
            AgentConfig { exe: "/bin/true".into(), state_dir: runs_dir(state), build: String::new() };
        let spec = host_run(Vec::new());
        let (out, queue) = lanes();
        (Runs::new(config, out), spec, queue)
    }

    /// Until nothing is done beside the requests.
    async fn settle(runs: &mut Runs) {
        while let Some(done) = runs.work.join_next().await {
            let (share, done) = done.unwrap();
            runs.done(share, done);
        }
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
        let share = (spec.run.clone(), spec.host.clone());
        let at = runs.plans[&share].at;
        // prepared again in time: the first one's end is not its end
        runs.expire(&share, HostTime(at.0 + 1));
        assert!(there() && runs.plans.len() == 1);
        runs.expire(&share, at);
        settle(&mut runs).await;
        assert!(!there() && runs.plans.is_empty());
        drop(queue);
    }

    #[tokio::test]
    async fn what_is_asked_while_a_run_is_checked_counts_when_that_is_done() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        let there = || RunDir::find(&runs_dir(state.path()), &spec.run, &spec.host).unwrap().is_some();
        runs.prepare(spec.clone());
        runs.abort(&(spec.run.clone(), spec.host.clone()));
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        settle(&mut runs).await;
        assert!(!there() && runs.plans.is_empty() && runs.checked.is_empty());
        runs.prepare(spec.clone());
        runs.prepare(spec.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        settle(&mut runs).await;
        assert!(runs.plans.is_empty() && runs.checks.len() == 1, "the last word is checked anew");
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        assert!(there() && runs.plans.len() == 1);
        drop(queue);
    }

    #[tokio::test]
    async fn what_a_client_gives_up_and_leaves_at_once_is_given_back() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        let there = || RunDir::find(&runs_dir(state.path()), &spec.run, &spec.host).unwrap().is_some();
        runs.prepare(spec.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        assert!(there() && runs.plans.len() == 1);
        runs.abort(&(spec.run.clone(), spec.host.clone()));
        drop(runs);
        assert!(!there());
        drop(queue);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_keeps_no_agent_from_ending() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        runs.prepare(spec.clone());
        let checked = runs.checks.join_next().await.unwrap().unwrap();
        runs.prepared(checked).await;
        let dir = RunDir::find(&runs_dir(state.path()), &spec.run, &spec.host).unwrap().unwrap();
        let pipe = dir.path().join(STATE);
        mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
        let ending = tokio::task::spawn_blocking(move || drop(runs));
        let ended = tokio::time::timeout(Duration::from_secs(60), ending).await;
        Hung(pipe).answer();
        ended.unwrap().unwrap();
        drop(queue);
    }

    /// A run that was started here and has ended, on a disk that hangs.
    struct Hung(std::path::PathBuf);

    impl Hung {
        fn new(state: &std::path::Path, spec: &HostRun) -> Self {
            let dir = RunDir::create(&runs_dir(state), &spec.run, &spec.host).unwrap();
            let own = Identity::own().unwrap();
            let dead = Identity { start: own.start + 1, ..own };
            dir.write_json(STATE, &State::of_test(Phase::Ended, dead)).unwrap();
            // who opens a pipe waits for a writer, as for a disk that hangs
            let pipe = dir.path().join(SPEC);
            mkfifoat(CWD, &pipe, Mode::RWXU).unwrap();
            Self(pipe)
        }

        fn answer(self) {
            let disk = File::options().read(true).write(true).open(&self.0).unwrap();
            remove_file(&self.0).unwrap();
            drop(disk);
        }
    }

    #[tokio::test]
    async fn a_stop_keeps_a_run_from_starting_while_what_was_asked_before_hangs() {
        let state = tempfile::tempdir().unwrap();
        let (runs, spec, mut queue) = small(state.path());
        let disk = Hung::new(state.path(), &spec);
        let (requests, asked) = mpsc::channel(1);
        let serving = tokio::spawn(runs.serve(asked));
        let (run, host) = (spec.run.clone(), spec.host.clone());
        let commit = Commit { run: run.clone(), host: host.clone(), late: Late::default(), attempt: 0 };
        requests.send(Request::Commit(commit)).await.unwrap();
        let (run, now) = (run.clone(), false);
        let stop = Stop { run: run.clone(), host, now, attempt: None, whole: true, unread: false };
        requests.send(Request::Stop(stop)).await.unwrap();
        let marked = tokio::time::timeout(Duration::from_secs(60), async {
            while !unwanted::is_marked(&runs_dir(state.path()), &run) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let marked = marked.await;
        disk.answer();
        marked.unwrap();
        assert!(matches!(queue.next().await, FromAgent::Started(started) if started.run == run));
        drop(requests);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_stop_before_a_run_is_followed_marks_it_ahead_too() {
        let state = tempfile::tempdir().unwrap();
        let (mut runs, spec, queue) = small(state.path());
        let (run, host) = (spec.run.clone(), spec.host.clone());
        let follow = |stop| {
            let (run, host, from) = (run.clone(), host.clone(), Vec::new());
            Request::Follow(Follow {
                run,
                host,
                from,
                once: false,
                last: None,
                hurry: false,
                patience_s: None,
                attempt: None,
                stop,
                samples_us: None,
                steps_by: Vec::new(),
            })
        };
        runs.busy.insert((run.clone(), host.clone()), VecDeque::new());
        runs.mark_ahead(&follow(None));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!unwanted::is_marked(&runs_dir(state.path()), &run));
        runs.mark_ahead(&follow(Some(false)));
        let marked = tokio::time::timeout(Duration::from_secs(60), async {
            while !unwanted::is_marked(&runs_dir(state.path()), &run) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        marked.await.unwrap();
        drop(queue);
    }

    #[tokio::test]
    async fn a_disk_that_hangs_under_one_run_holds_up_no_other() {
        let state = tempfile::tempdir().unwrap();
        let (runs, spec, mut queue) = small(state.path());
        let disk = Hung::new(state.path(), &spec);
        let commit = |run: &RunId| {
            let (run, host) = (run.clone(), spec.host.clone());
            Request::Commit(Commit { run, host, late: Late::default(), attempt: 0 })
        };
        let (requests, asked) = mpsc::channel(1);
        let serving = tokio::spawn(runs.serve(asked));
        let other = RunId::new(2, 2);
        let answer = tokio::time::timeout(Duration::from_secs(60), async {
            for _ in 0..100 {
                requests.send(commit(&spec.run)).await.unwrap();
            }
            requests.send(commit(&other)).await.unwrap();
            queue.next().await
        });
        let answer = answer.await;
        disk.answer();
        let answer = answer.unwrap();
        assert!(matches!(&answer, FromAgent::Refused(refused) if refused.run == other), "{answer:?}");
        let started = FromAgent::Started(RunRef { run: spec.run.clone(), host: spec.host.clone() });
        for _ in 0..100 {
            assert_eq!(queue.next().await, started, "each is answered in its turn");
        }
        drop(requests);
        serving.await.unwrap();
    }
}
