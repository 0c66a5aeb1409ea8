//! The agent of one host of the demo: answers what a client asks over a link, tells telemetry, and sends what its ranks
//! write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time;

use super::runs::{KEPT, Runs, SimulatedRun};
use super::signals::Touched;
use super::{Health, Size, chance, checks, gpus};
use crate::clock;
use crate::cluster::link::Within;
use crate::domain::collectives::HostCollectives;
use crate::domain::gpu::Reading;
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason, HostInfo, HostSample, InterfaceAddress};
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::lease::{Leases, Ticket};
use crate::domain::log::{GapReason, LogGap, Stream};
use crate::domain::preflight::{Finding, Mark};
use crate::domain::run::{HostRun, RefusalClass};
use crate::domain::standstill::StalledPhase;
use crate::domain::time::HostTime;
use crate::wire::chunk::{CHUNK_BYTES, Chunk, Gap, Written};
use crate::wire::doctor::{AskChecks, Checked};
use crate::wire::frame::Decoder;
use crate::wire::gpu::GpuEventsTold;
use crate::wire::handshake::Hello;
use crate::wire::message::{
    AskStacks, Follow, Forgotten, FromAgent, Pong, Preflight, Prepared, Queue, RankExited, RankStarted,
    Refused, RunRef, Runs as ToldRuns, Sampled, Stacks, Stands, ToAgent,
};
use crate::wire::sync::{SyncAsk, SyncState, SyncTold};

/// How often a run's files are looked at while they are followed.
const LOOK: Duration = Duration::from_millis(50);
/// A rank that stands is told this often, microseconds.
const STANDS_EVERY_US: u64 = 1_000_000;
const CPUS: u32 = 192;
const MEMORY: u64 = 2 << 40;

/// A host that is none.
#[derive(Debug)]
pub(super) struct Agent {
    id: HostId,
    number: u32,
    size: Size,
    runs: Arc<Runs>,
    shares: Mutex<BTreeMap<RunId, SimulatedRun>>,
    /// What signals have done to its processes.
    touched: Mutex<Touched>,
    /// When the demo began.
    began: HostTime,
    /// What has happened to its GPUs.
    events: Mutex<Vec<GpuEvent>>,
}

impl Agent {
    pub(super) fn new(id: HostId, number: u32, size: Size, runs: Arc<Runs>) -> Self {
        let (shares, touched, events) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { id, number, size, runs, shares, touched, events, began: clock::host_now() }
    }

    fn shares(&self) -> MutexGuard<'_, BTreeMap<RunId, SimulatedRun>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touched(&self) -> MutexGuard<'_, Touched> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, Vec<GpuEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on until `now`. The GPU of a rank that fails has met an error.
    fn advance(&self, now: HostTime) {
        let mut failed = Vec::new();
        self.shares().values_mut().for_each(|share| failed.extend(share.advance(now)));
        let events = |uuid: GpuUuid| {
            let index = (0..self.gpus()).find(|gpu| gpus::uuid(self.number, *gpu) == uuid)?;
            let event = |what| GpuEvent { index, uuid: uuid.clone(), what, count: 1, t: Some(now) };
            // the driver tells of both
            Some([Happening::EccUncorrected, Happening::Xid { xid: gpus::XID }].map(event))
        };
        self.events().extend(failed.into_iter().filter_map(events).flatten());
    }

    fn gpus(&self) -> u32 {
        if self.size.health(self.number) == Health::NoDriver { 0 } else { self.size.gpus }
    }

    fn info(&self) -> HostInfo {
        let gpus = (0..self.gpus()).map(|gpu| gpus::info(self.number, gpu)).collect();
        let address = super::address(self.number).parse().ok();
        let absence = GpuAbsence {
            reason: GpuAbsenceReason::DriverMismatch,
            detail: "driver 550.54.15 loaded, library 550.90.07 installed".to_owned(),
        };
        HostInfo {
            hostname: self.id.to_string(),
            kernel: "6.8.0-demo".to_owned(),
            arch: "x86_64".to_owned(),
            user: "you".to_owned(),
            cpus: CPUS,
            memory_total: Reading::Value(MEMORY),
            boot_id: format!("00000000-de30-4000-8000-{:012x}", self.number),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: address
                .map(|address| InterfaceAddress { interface: "eth0".to_owned(), address })
                .into_iter()
                .collect(),
            ssh_server_address: address,
            ssh_client_address: None,
            gpus,
            gpu_absence: (self.gpus() == 0).then_some(absence),
            driver: Reading::Value("550.54.15".to_owned()),
            cuda_driver: Reading::Value("12.4".to_owned()),
            nccl: Reading::Value("2.27.5".to_owned()),
            topology: (self.gpus() > 0).then(|| gpus::topology(self.gpus())),
        }
    }

    fn sample(&self, now: HostTime) -> HostSample {
        let seconds = now.0 as f64 / 1e6;
        let shares = self.shares();
        let held = |gpu: u32| {
            let uuid = gpus::uuid(self.number, gpu);
            shares.values().find_map(|share| share.on(&uuid))
        };
        let (touched, moment) = (self.touched(), gpus::Moment { now, began: self.began });
        let events = self.events();
        let errors = |gpu: u32| {
            let is_error = |event: &&GpuEvent| event.index == gpu && event.what == Happening::EccUncorrected;
            events.iter().filter(is_error).count() as u64
        };
        let gpus = (0..self.gpus())
            .map(|gpu| gpus::sample((self.number, gpu), moment, (held(gpu).as_ref(), errors(gpu)), &touched))
            .collect();
        let busy = 0.2 + 0.15 * chance::drift(self.number.into(), seconds, 15.0);
        HostSample {
            cpu_percent: Reading::Value((100.0 * busy) as f32),
            memory_used: Reading::Value((MEMORY as f64 * (0.3 + 0.5 * busy)) as u64),
            load: Reading::Value([(busy * f64::from(CPUS)) as f32; 3]),
            net_rx: Reading::Value((busy * 2e9) as u64),
            net_tx: Reading::Value((busy * 2e9) as u64),
            gpus,
        }
    }
}

impl Within for Agent {
    fn answer(self: Arc<Self>, link: DuplexStream) -> Result<BoxFuture<'static, ()>, String> {
        if self.size.health(self.number) == Health::Offline {
            let address = super::address(self.number);
            return Err(format!("connect to {address}:22: connection refused"));
        }
        Ok(async move {
            let mut talk = Talk::new(self);
            // it ends with its link
            let _ = talk.serve(link).await;
        }
        .boxed())
    }
}

/// What a client has of a run so far.
#[derive(Debug, Default)]
struct Followed {
    sent: BTreeMap<(Rank, Stream), u64>,
    started: BTreeSet<Rank>,
    ended: BTreeSet<Rank>,
    once: bool,
    stood: u64,
}

/// One link.
struct Talk {
    host: Arc<Agent>,
    out: BytesMut,
    /// Time between samples, and when the next one is due, microseconds.
    watch: Option<(u64, u64)>,
    leases: Option<Leases>,
    /// Launches that wait for GPUs here; a place in the queue ends with its link.
    queue: BTreeMap<RunId, Ticket>,
    prepared: BTreeMap<RunId, HostRun>,
    followed: BTreeMap<RunId, Followed>,
    /// How many of its GPUs' events were told.
    events: usize,
    /// Bytes of files that may be sent on this link, once that was said, and were.
    credit: Option<u64>,
    sent: u64,
}

impl Talk {
    fn new(host: Arc<Agent>) -> Self {
        let events = host.events().len();
        Self {
            host,
            out: BytesMut::new(),
            watch: None,
            leases: None,
            queue: BTreeMap::new(),
            prepared: BTreeMap::new(),
            followed: BTreeMap::new(),
            events,
            credit: None,
            sent: 0,
        }
    }

    async fn serve(&mut self, link: DuplexStream) -> std::io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(link);
        let mut decoder = Decoder::default();
        loop {
            if !self.out.is_empty() {
                writer.write_all(&self.out.split()).await?;
            }
            tokio::select! {
                count = reader.read_buf(decoder.room()) => {
                    if count? == 0 {
                        return Ok(());
                    }
                    while let Ok(Some(frame)) = decoder.next_frame() {
                        if let Ok(Some(message)) = ToAgent::decode(&frame) {
                            self.take(message);
                        }
                    }
                }
                () = time::sleep(self.pause()) => self.look(),
            }
        }
    }

    /// How long nothing is due.
    fn pause(&self) -> Duration {
        let now = clock::host_now().0;
        let sample = self.watch.map(|(_, due)| Duration::from_micros(due.saturating_sub(now)));
        let look = (!self.followed.is_empty()).then_some(LOOK);
        sample.into_iter().chain(look).min().unwrap_or(Duration::from_secs(3600))
    }

    fn say(&mut self, message: &FromAgent) {
        if let Err(error) = message.encode(&mut self.out) {
            tracing::debug!(%error, "a message of the demo was not sent");
        }
    }

    /// Makes the doctor's checks.
    fn check(&mut self, ask: AskChecks) {
        let host = Arc::clone(&self.host);
        let name = host.id.to_string();
        let place = (name.as_str(), super::address(host.number).parse().ok(), host.number);
        for check in ask.checks {
            let found = if check == "clock" {
                serde_json::json!({"ahead_us": 900, "read": [clock::now(), clock::host_now()], "within_us": 1})
            } else {
                checks::found(&check, place, (&ask.peers, &ask.paths))
            };
            let found = Some(found);
            self.say(&FromAgent::Checked(Checked { ask: ask.ask, check, found, why: None }));
        }
    }

    fn take(&mut self, message: ToAgent) {
        let (now, host) = (clock::host_now(), Arc::clone(&self.host));
        match message {
            ToAgent::Hello(_) => self.say(&FromAgent::Hello(Hello::ours(String::new()))),
            ToAgent::Ping(ping) => {
                self.say(&FromAgent::Pong(Pong { t0: ping.t0, t1: now, t2: clock::host_now() }));
            }
            ToAgent::Watch(watch) => {
                self.say(&FromAgent::Info(Box::new(host.info())));
                let every = watch.interval_ms.max(100) * 1000;
                // a host answers at once; then each has its own moment, as hosts do
                let offset = (chance::share(&[3, host.number.into()]) * every as f64) as u64;
                self.sample(now);
                self.watch = Some((every, now.0 + offset));
            }
            ToAgent::Prepare(plan) => {
                let (run, ports) =
                    (plan.run.clone(), (0..plan.ports).map(|port| 29_500 + port as u16).collect());
                self.prepared.insert(run.clone(), *plan);
                self.say(&FromAgent::Prepared(Prepared { run, host: host.id.clone(), ports, image: None }));
            }
            ToAgent::Commit(commit) => {
                if let Some(plan) = self.prepared.remove(&commit.run) {
                    let share = SimulatedRun::start(plan, &host.runs, now);
                    host.shares().insert(commit.run.clone(), share);
                    self.say(&FromAgent::Started(RunRef { run: commit.run, host: host.id.clone() }));
                }
            }
            ToAgent::Abort(run) => drop(self.prepared.remove(&run.run)),
            ToAgent::Follow(follow) => {
                let stopped = follow.stop.map(|_| follow.run.clone());
                self.follow(follow);
                if let Some(run) = stopped {
                    self.stop(&run, now);
                }
            }
            ToAgent::Stop(stop) => self.stop(&stop.run, now),
            ToAgent::ListRuns(_) => {
                let shares = host.shares().values().map(|share| share.told(&host.id)).collect();
                self.say(&FromAgent::Runs(ToldRuns { shares, last: true }));
            }
            ToAgent::Queue(Queue { ticket: id, name, gpus, .. }) => {
                if gpus.is_empty() {
                    self.queue.remove(&id);
                } else {
                    let user = "you".to_owned();
                    self.queue.insert(id.clone(), Ticket { id, user, own: true, name, gpus });
                }
                self.tell_leases();
            }
            ToAgent::Forget(RunRef { run, .. }) => {
                host.shares().remove(&run);
                let host = host.id.clone();
                self.say(&FromAgent::Forgotten(Forgotten { run, host, why: None }));
            }
            ToAgent::AskPreflight(ask) => {
                // a demo has whatever is asked for
                let programs = ask.spec.ranks.iter().filter_map(|rank| rank.argv.first());
                let programs: BTreeSet<&String> = programs.collect();
                let found = |program: &String| {
                    Finding::new(
                        Mark::Good,
                        format!("{program} is /usr/bin/{}", program.trim_start_matches('/')),
                    )
                };
                let mut findings = vec![Finding::new(Mark::Good, "folder /home/you")];
                findings.extend(programs.into_iter().map(found));
                let host = host.id.clone();
                self.say(&FromAgent::Preflight(Preflight { ask: ask.ask, host, findings }));
            }
            ToAgent::AskChecks(ask) => self.check(ask),
            ToAgent::AskStacks(ask) => self.stacks(ask, now),
            ToAgent::Trace(trace) => self.refuse(trace.run, "the ranks of a demo have no kernels to trace"),
            ToAgent::Sync(SyncAsk::Open(open)) => self.say(&FromAgent::Sync(SyncTold {
                upload: open.upload,
                run: open.run,
                state: SyncState::Refused {
                    reason: "the hosts of a demo have no disks to copy to: leave the folder out".to_owned(),
                    class: RefusalClass::Unavailable,
                },
            })),
            ToAgent::Signal(ask) => {
                let gpus = host.sample(now).gpus;
                let on_gpus: Vec<_> =
                    gpus.into_iter().filter_map(|gpu| gpu.processes.value().cloned()).flatten().collect();
                let told = host.touched().answer(&ask, &on_gpus);
                self.say(&FromAgent::Signal(told));
            }
            ToAgent::Sync(_) | ToAgent::Image(_) | ToAgent::BlobPiece(_) | ToAgent::Mesh(_) => {}
            ToAgent::Credit(credit) => {
                self.credit = Some(credit.until);
                self.look();
            }
        }
    }

    /// Tells where the ranks of a run are that have not ended.
    fn stacks(&mut self, ask: AskStacks, now: HostTime) {
        let host = Arc::clone(&self.host);
        host.advance(now);
        let of = host.shares().get(&ask.run).map_or_else(Vec::new, |share| share.stacks(now));
        self.say(&FromAgent::Stacks(Stacks {
            run: ask.run,
            host: host.id.clone(),
            of,
            why: None,
            threads: Some(ask.threads),
            collectives: HostCollectives::default(),
            last: true,
        }));
    }

    fn refuse(&mut self, run: RunId, reason: &str) {
        self.say(&FromAgent::Refused(Refused {
            run,
            host: self.host.id.clone(),
            rank: None,
            reason: reason.to_owned(),
            class: RefusalClass::Unavailable,
            busy: false,
        }));
    }

    fn stop(&mut self, run: &RunId, now: HostTime) {
        if let Some(share) = self.host.shares().get_mut(run) {
            share.stop(now);
        }
        self.look();
    }

    fn follow(&mut self, follow: Follow) {
        if !self.host.shares().contains_key(&follow.run) {
            self.say(&FromAgent::Finished(RunRef { run: follow.run, host: self.host.id.clone() }));
            return;
        }
        let sent = follow.from.iter().map(|(rank, stream, offset)| ((*rank, *stream), *offset)).collect();
        self.followed.insert(follow.run, Followed { sent, once: follow.once, ..Followed::default() });
        self.look();
    }

    /// Sends what is due.
    fn look(&mut self) {
        let now = clock::host_now();
        let host = Arc::clone(&self.host);
        host.advance(now);
        self.tell_events();
        for (run, mut followed) in std::mem::take(&mut self.followed) {
            if !self.send_run(&run, &mut followed, now) {
                self.followed.insert(run, followed);
            }
        }
        if self.watch.is_some_and(|(_, due)| due <= now.0) {
            self.sample(now);
            if let Some((every, due)) = &mut self.watch {
                *due += *every * (1 + (now.0 - *due) / *every);
            }
        }
    }

    /// A link tells what happens while it is there, as NVML does.
    fn tell_events(&mut self) {
        let new = self.host.events().get(self.events..).map(<[GpuEvent]>::to_vec).unwrap_or_default();
        if !new.is_empty() && self.watch.is_some() {
            self.events += new.len();
            self.say(&FromAgent::GpuEvents(GpuEventsTold { events: new }));
        }
    }

    fn tell_leases(&mut self) {
        let mut leases = Leases { queue: self.queue.values().cloned().collect(), ..Leases::default() };
        self.host.shares().values().for_each(|share| share.leases(&mut leases));
        if self.leases.as_ref() != Some(&leases) {
            self.say(&FromAgent::Leases(Box::new(leases.clone())));
            self.leases = Some(leases);
        }
    }

    fn sample(&mut self, now: HostTime) {
        self.tell_leases();
        let sample = self.host.sample(now);
        self.say(&FromAgent::Sample(Box::new(Sampled { sample, dropped: 0 })));
    }

    /// Sends what is new of a run; true when nothing more comes.
    fn send_run(&mut self, run: &RunId, followed: &mut Followed, now: HostTime) -> bool {
        let host = Arc::clone(&self.host);
        let shares = host.shares();
        let Some(share) = shares.get(run) else { return true };
        // whether the client has all there is, up to here
        let mut whole = true;
        let tell_standing = now.0.saturating_sub(followed.stood) > STANDS_EVERY_US;
        for rank in &share.ranks {
            if followed.started.insert(rank.rank) {
                let (run, rank, pid, t) = (run.clone(), rank.rank, rank.pid, share.start);
                self.say(&FromAgent::RankStarted(RankStarted { run, rank, pid, t }));
            }
            for stream in Stream::ALL {
                let sent = followed.sent.entry((rank.rank, stream)).or_default();
                loop {
                    let (begin, rest) = rank.file(stream, *sent);
                    if begin > *sent {
                        let (from, cap) = (std::mem::replace(sent, begin), Some(KEPT as u64));
                        let reason = GapReason::NotKept;
                        let gap = LogGap { rank: rank.rank, stream, from, to: begin, reason, cap };
                        self.say(&FromAgent::Gap(Gap { run: run.clone(), gap }));
                    }
                    if rest.is_empty() {
                        break;
                    }
                    if self.credit.is_some_and(|until| self.sent >= until) {
                        whole = false;
                        break;
                    }
                    // what is longer has been there for a while
                    if stream != Stream::Report && rest.len() < CHUNK_BYTES {
                        let until = *sent + rest.len() as u64;
                        for written in Written::each(run, (rank.rank, stream), &[(until, now)]) {
                            self.say(&FromAgent::Written(written));
                        }
                    }
                    let data = Bytes::copy_from_slice(&rest[..rest.len().min(CHUNK_BYTES)]);
                    self.sent += data.len() as u64;
                    let offset = std::mem::replace(sent, *sent + data.len() as u64);
                    self.say(&FromAgent::Chunk(Chunk {
                        run: run.clone(),
                        rank: rank.rank,
                        stream,
                        offset,
                        data,
                    }));
                }
            }
            if let Some(exit) = &rank.exit
                && whole
                && followed.ended.insert(rank.rank)
            {
                let (run, rank, exit) = (run.clone(), rank.rank, exit.clone());
                self.say(&FromAgent::RankExited(RankExited { run, rank, exit }));
            }
            let since = now.0.saturating_sub(share.start.0);
            if let Some((phase, step, for_us)) =
                rank.job.stands(since).filter(|_| tell_standing && rank.exit.is_none())
            {
                followed.stood = now.0;
                let standing = StalledPhase { phase, step, for_us, stopped: false, at: None };
                self.say(&FromAgent::Stands(Stands {
                    run: run.clone(),
                    rank: rank.rank,
                    worker: None,
                    standing,
                }));
            }
        }
        let done = whole && (followed.once || share.is_over());
        if done {
            self.say(&FromAgent::Finished(RunRef { run: run.clone(), host: host.id.clone() }));
        }
        done
    }
}
