//! Builders of event streams and models for tests of the terminal UI.

use std::sync::Arc;

use std::collections::BTreeMap;
use std::net::IpAddr;

use hvtui::domain::ahead::TimelineAhead;
use hvtui::domain::alerts::AlertRules;
use hvtui::domain::clock_fit::ClockSample;
use hvtui::domain::event::{Envelope, Event, GPU_EVENTS, Origin};
use hvtui::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading};
use hvtui::domain::host::{
    GpuAbsence, GpuAbsenceReason, HostInfo, HostSample, InterfaceAddress, LinkState, RefusalKind,
};
use hvtui::domain::ids::{GpuUuid, HostId, Rank, RunId};
use hvtui::domain::lease::LeasePlan;
use hvtui::domain::log::{LogLine, Stream};
use hvtui::domain::occupancy::FreeMemory;
use hvtui::domain::outcome::{RunEnd, RunOutcome};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::run::{
    HostRun, JobKind, Placement, RankExit, RankSpec, RunSpec, RunStage, RunSummary, Slot, Spool,
};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::timing::{Phase, PhaseSpan, StepTiming};
use hvtui::domain::waiting::Waiting;
use hvtui::domain::world::World;
use hvtui::launch::error::{LaunchError, LaunchFault};
use hvtui::launch::plan::{LaunchPlan, Rendezvous};
use hvtui::tui::core::{Effect, Key, KeyCode, Msg};
use hvtui::tui::screens::{HostEntry, Mode, Model, update};

/// 2026-11-21 14:30:00 UTC.
pub(crate) const START: Stamp = Stamp(1_795_271_400_000_000);

/// How far a host's clock is behind the client's in these tests, microseconds.
pub(crate) const CLOCK_OFFSET: i64 = START.0 - 1_000_000_000;

/// A model with its event stream; every method is one thing that happens.
pub(crate) struct Story {
    /// The model so far.
    pub(crate) model: Model,
    /// Now.
    pub(crate) at: Stamp,
    /// All events so far.
    pub(crate) told: Vec<Envelope>,
    /// What the samples of a host's GPUs have beside what their test says of them.
    pub(crate) faults: BTreeMap<&'static str, Vec<(usize, GpuChange)>>,
    /// Whether events reach the world alone, without a look at the screen: there may be many.
    pub(crate) quiet: bool,
    seq: u64,
}

/// A change of a GPU's samples.
pub(crate) type GpuChange = fn(&mut GpuSample);

/// What a GPU does in a story.
#[derive(Clone, Copy)]
pub(crate) struct Gpu {
    /// Percent.
    pub(crate) util: u32,
    /// GiB.
    pub(crate) mem: u64,
    /// Who holds it.
    pub(crate) user: Option<(&'static str, &'static str)>,
    /// Why its clocks are held down.
    pub(crate) throttle: &'static [&'static str],
}

pub(crate) const FREE: Gpu = Gpu { util: 0, mem: 0, user: None, throttle: &[] };

pub(crate) fn busy(util: u32, user: &'static str) -> Gpu {
    Gpu { util, mem: 131, user: Some((user, "python train.py --config large.yaml")), throttle: &[] }
}

pub(crate) fn host(name: &str) -> HostId {
    HostId::from(name)
}

pub(crate) fn uuid(host: &str, index: u32) -> GpuUuid {
    GpuUuid::from(format!("GPU-{host}-{index}"))
}

pub(crate) fn run_id() -> RunId {
    RunId::new(1_795_271_400_000, 0x7_1234_5678_9abc_def7)
}

/// Presses the keys of these characters, enter for a line end; what they ask for.
pub(crate) fn press(story: &mut Story, keys: &str) -> Vec<Effect> {
    let code = |c: char| if c == '\n' { Key::plain(KeyCode::Enter) } else { Key::char(c) };
    keys.chars().flat_map(|c| story.send(Msg::Key(code(c)))).collect()
}

/// Presses a key; what it asks for.
pub(crate) fn key(story: &mut Story, code: KeyCode) -> Vec<Effect> {
    story.send(Msg::Key(Key::plain(code)))
}

/// A recording from [`START`] to `end`, of which a moment is shown.
pub(crate) fn playback_state(playhead: Stamp, end: Stamp) -> PlaybackState {
    PlaybackState {
        start: START,
        end,
        playhead,
        speed: 1.0,
        playing: false,
        damage: None,
        unattended: Vec::new(),
        lost: Vec::new(),
        growing: false,
    }
}

impl Story {
    pub(crate) fn new(hosts: &[&str]) -> Self {
        let entries = hosts
            .iter()
            .map(|name| HostEntry {
                id: host(name),
                slots: None,
                free_memory: FreeMemory::default(),
                labels: Vec::new(),
                is_local: false,
            })
            .collect();
        Self {
            model: Model::live(entries, START, 0),
            at: START,
            told: Vec::new(),
            faults: BTreeMap::new(),
            quiet: false,
            seq: 0,
        }
    }

    pub(crate) fn send(&mut self, msg: Msg) -> Vec<Effect> {
        update(&mut self.model, msg)
    }

    pub(crate) fn wait_ms(&mut self, ms: i64) -> &mut Self {
        self.at = self.at.plus_micros(ms * 1000);
        let at = self.at;
        self.send(Msg::Tick(at));
        self
    }

    /// The recording of what was told is gone back in to this moment, as its player tells it.
    pub(crate) fn go_back(&mut self, playhead: Stamp) {
        let later = self.model.world.clone();
        let mut world = World::default();
        let before = self.told.iter().filter(|envelope| envelope.at <= playhead);
        before.for_each(|envelope| world.apply(envelope));
        let Mode::Replay(state) = &self.model.mode else { panic!("a replay") };
        let state = PlaybackState { playhead, ..state.clone() };
        let ahead = TimelineAhead::of(&later, &run_id(), playhead, state.end);
        self.send(Msg::Reset(Box::new(world)));
        self.send(Msg::Playback(state));
        self.send(Msg::TimelineAhead(Arc::new(ahead)));
    }

    pub(crate) fn tell(&mut self, origin: Origin, event: Event) -> &mut Self {
        self.seq += 1;
        let envelope = Envelope { seq: self.seq, at: self.at, origin, event };
        self.told.push(envelope.clone());
        if self.quiet {
            self.model.world.apply(&envelope);
        } else {
            self.send(Msg::Event(envelope));
        }
        self
    }

    pub(crate) fn link(&mut self, name: &str, state: LinkState) -> &mut Self {
        self.tell(Origin::Host(host(name)), Event::LinkChanged { state })
    }

    pub(crate) fn down(&mut self, name: &str, reason: &str) -> &mut Self {
        let retry_at = Some(self.at.plus_micros(12_000_000));
        self.link(name, LinkState::Down { reason: reason.to_owned(), retry_at })
    }

    pub(crate) fn refused(&mut self, name: &str, reason: &str) -> &mut Self {
        self.link(name, LinkState::Refused { reason: reason.to_owned(), kind: RefusalKind::HostKey })
    }

    fn describe(&mut self, name: &str, gpus: Vec<GpuInfo>, cpus: u32) -> &mut Self {
        let gpu_absence = gpus.is_empty().then(|| GpuAbsence {
            reason: GpuAbsenceReason::NoLibrary,
            detail: "libnvidia-ml.so.1: cannot open shared object file".to_owned(),
        });
        let has = !gpus.is_empty();
        let word = |text: &str| if has { Reading::Value(text.to_owned()) } else { Reading::Unsupported };
        let info = HostInfo {
            hostname: name.to_owned(),
            kernel: "6.1.0-18-amd64".to_owned(),
            arch: "x86_64".to_owned(),
            user: "li".to_owned(),
            cpus,
            memory_total: Reading::Value(64 << 30),
            boot_id: "b".to_owned(),
            agent_version: "0.1.0".to_owned(),
            agent_build: None,
            banner: None,
            login: None,
            addresses: vec![InterfaceAddress {
                interface: "eth0".to_owned(),
                address: IpAddr::from([10, 0, 0, 11]),
            }],
            ssh_server_address: None,
            ssh_client_address: None,
            gpus,
            gpu_absence,
            driver: word("550.54.15"),
            cuda_driver: word("12.4"),
            nccl: word("2.22.3"),
            topology: None,
        };
        self.link(name, LinkState::Up);
        self.clock(name, 0);
        self.tell(Origin::Host(host(name)), Event::HostDescribed { info: Arc::new(info) })
    }

    /// A ping to a host says that its clock is ahead of what the others say by so much.
    pub(crate) fn clock(&mut self, name: &str, ahead_us: i64) -> &mut Self {
        let host_time = self.host_time();
        let sample = ClockSample { host_time, offset_us: CLOCK_OFFSET + ahead_us, rtt_us: 640 };
        self.tell(Origin::Host(host(name)), Event::ClockSampled { sample })
    }

    pub(crate) fn gpu_host(&mut self, name: &str, gpus: u32) -> &mut Self {
        let infos = (0..gpus).map(|index| GpuInfo {
            uuid: uuid(name, index),
            name: "NVIDIA H200".to_owned(),
            pci: Reading::Value(format!("00000000:{index:02X}:00.0")),
            memory_total: Reading::Value(141 << 30),
            clock_sm_max_mhz: Reading::Value(1_980),
            clock_memory_max_mhz: Reading::Value(3_201),
            slowdown_celsius: Reading::Value(87),
            shutdown_celsius: Reading::Value(92),
            pcie_gen_max: Reading::Value(5),
            pcie_width_max: Reading::Value(16),
            ecc_enabled: Reading::Value(true),
            ..GpuInfo::unknown(index)
        });
        let infos = infos.collect();
        self.describe(name, infos, 64)
    }

    pub(crate) fn cpu_host(&mut self, name: &str, cpus: u32) -> &mut Self {
        self.describe(name, Vec::new(), cpus)
    }

    pub(crate) fn sample(&mut self, name: &str, cpu: f32, gpus: &[Gpu]) -> &mut Self {
        let gpus = gpus.iter().zip(0..).map(|(gpu, index)| GpuSample {
            util: Reading::Value(gpu.util),
            memory_used: Reading::Value(if gpu.mem == 0 { 400 << 20 } else { gpu.mem << 30 }),
            memory_total: Reading::Value(141 << 30),
            temperature: Reading::Value(33 + gpu.util * 38 / 100),
            power_mw: Reading::Value(77_000 + gpu.util * 6_200),
            power_limit_mw: Reading::Value(700_000),
            clock_sm_mhz: Reading::Value(1_980),
            clock_memory_mhz: Reading::Value(3_201),
            pstate: Reading::Value(0),
            throttle: Reading::Value(gpu.throttle.iter().map(|t| (*t).to_owned()).collect()),
            processes: Reading::Value(
                gpu.user
                    .iter()
                    .map(|(user, command)| GpuProcess {
                        user: Reading::Value((*user).to_owned()),
                        command: Reading::Value((*command).to_owned()),
                        memory: Reading::Value(gpu.mem << 30),
                        sm_percent: Reading::Value(gpu.util * 9 / 10),
                        start_ticks: Reading::Value(90_000 + u64::from(index)),
                        age_s: Reading::Value(8_040 + 60 * u64::from(index)),
                        ..GpuProcess::unknown(4_000 + index)
                    })
                    .collect(),
            ),
            memory_util_percent: Reading::Value(gpu.util * 2 / 5),
            encoder_percent: Reading::Value(0),
            decoder_percent: Reading::Value(0),
            sm_active_percent: Reading::Value(gpu.util * 9 / 10),
            tensor_active_percent: Reading::Value(gpu.util / 2),
            dram_active_percent: Reading::Value(gpu.util / 3),
            pcie_gen: Reading::Value(5),
            pcie_width: Reading::Value(16),
            pcie_rx_bytes_per_s: Reading::Value(u64::from(gpu.util) * 12_000_000),
            pcie_tx_bytes_per_s: Reading::Value(u64::from(gpu.util) * 4_000_000),
            nvlink_count: Reading::Value(18),
            nvlink_active: Reading::Value(18),
            nvlink_errors: Reading::Value(0),
            ecc_corrected: Reading::Value(0),
            ecc_uncorrected: Reading::Value(0),
            row_remap_pending: Reading::Value(false),
            row_remap_failed: Reading::Value(false),
            energy_mj: Reading::Value(44_640_000_000),
            persistence: Reading::Value(true),
            mig: Reading::Value(false),
            ..GpuSample::unknown(index)
        });
        let mut gpus: Vec<GpuSample> = gpus.collect();
        for (index, change) in self.faults.get(name).into_iter().flatten() {
            change(&mut gpus[*index]);
        }
        let sample = HostSample {
            cpu_percent: Reading::Value(cpu),
            memory_used: Reading::Value(9 << 30),
            load: Reading::Value([0.42, 0.30, 0.22]),
            net_rx: Reading::Value(12_000),
            net_tx: Reading::Value(48_000_000),
            gpus,
        };
        self.tell(Origin::Host(host(name)), Event::HostSampled { sample: Arc::new(sample) })
    }

    /// Asks for a run of `job` on `slots`, host by host.
    pub(crate) fn run(&mut self, name: &str, slots: &[(&str, Slot)]) -> &mut Self {
        let spec = spec(run_id(), name, slots, self.at);
        self.tell(Origin::Run(run_id()), Event::RunCreated { spec: Arc::new(spec) })
    }

    pub(crate) fn stage(&mut self, stage: RunStage, waiting: &[&str]) -> &mut Self {
        let waiting_for = Waiting::all(waiting.iter().map(|who| (*who).to_owned()).collect());
        self.tell(Origin::Run(run_id()), Event::StageEntered { stage, waiting_for })
    }

    pub(crate) fn rank(&mut self, rank: u32, event: Event) -> &mut Self {
        self.tell(Origin::Rank(run_id(), Rank(rank)), event)
    }

    pub(crate) fn log(&mut self, rank: u32, text: &str) -> &mut Self {
        let line = LogLine { stream: Stream::Stdout, t: Some(self.host_time()), ..error_line(rank, text) };
        self.rank(rank, Event::LogPrinted { line: Arc::new(line) })
    }

    /// A line of standard error that has not ended yet.
    pub(crate) fn unfinished(&mut self, rank: u32, text: &str) -> &mut Self {
        let line = LogLine { t: Some(self.host_time()), ..error_line(rank, text) };
        self.rank(rank, Event::LogUnfinished { line: Arc::new(line) })
    }

    pub(crate) fn error_log(&mut self, rank: u32, text: &str) -> &mut Self {
        self.rank(rank, Event::LogPrinted { line: Arc::new(error_line(rank, text)) })
    }

    /// Now, on the clock of a host.
    fn host_time(&self) -> HostTime {
        HostTime((self.at.0 - CLOCK_OFFSET) as u64)
    }

    /// One step of one rank that begins `ago_us` ago; phases in the order of [`Phase::ALL`].
    pub(crate) fn step(&mut self, rank: u32, step: u64, loss: f32, phases: [u32; 6]) -> &mut Self {
        self.step_hiding(rank, step, loss, phases, 0)
    }

    /// The same with `hidden_us` of allreduce behind the backward pass.
    pub(crate) fn step_hiding(
        &mut self,
        rank: u32,
        step: u64,
        loss: f32,
        phases: [u32; 6],
        hidden_us: u32,
    ) -> &mut Self {
        let dur_us: u32 = phases.iter().sum();
        let mut start_us = 0;
        let spans = Phase::ALL.into_iter().zip(phases).map(|(phase, dur_us)| {
            let span = PhaseSpan { phase, start_us, dur_us };
            start_us += dur_us;
            span
        });
        let spans = spans.collect();
        let start = HostTime((self.at.0 - CLOCK_OFFSET) as u64 - u64::from(dur_us));
        let timing = StepTiming { step, start, dur_us, loss: Some(loss), samples: 32, spans, hidden_us };
        self.rank(rank, Event::StepDone { timing: Arc::new(timing) })
    }

    pub(crate) fn exit(
        &mut self,
        rank: u32,
        code: Option<i32>,
        signal: Option<i32>,
        stopped: bool,
    ) -> &mut Self {
        let exit = RankExit { code, signal, t: HostTime(9), error: None, stopped, cause: None };
        self.rank(rank, Event::RankExited { exit })
    }

    pub(crate) fn end(&mut self, code: i32, root: Option<u32>, summary: &str) -> &mut Self {
        let outcome = match root {
            Some(root) => RunOutcome::failed(Rank(root), code, summary),
            None => RunOutcome::new(RunEnd::Finished, summary),
        };
        self.tell(Origin::Run(run_id()), Event::RunEnded { outcome })
    }
}

/// A line of standard error, of which no host tells when it was printed.
pub(crate) fn error_line(rank: u32, text: &str) -> LogLine {
    let (stream, text) = (Stream::Stderr, text.to_owned());
    LogLine { rank: Rank(rank), stream, offset: 0, text, elided: 0, t: None }
}

pub(crate) fn spec(id: RunId, name: &str, slots: &[(&str, Slot)], created: Stamp) -> RunSpec {
    let mut placements: Vec<Placement> = Vec::new();
    for (rank, (name, slot)) in (0..).zip(slots) {
        let local_rank = placements.iter().filter(|p| p.host.as_str() == *name).count() as u32;
        placements.push(Placement {
            rank: Rank(rank),
            host: host(name),
            local_rank,
            slot: slot.clone(),
            more: Vec::new(),
        });
    }
    RunSpec {
        code: None,
        id,
        name: name.to_owned(),
        kind: JobKind::Native,
        command: vec!["hvtui".to_owned(), "train".to_owned(), "digits".to_owned()],
        env: BTreeMap::new(),
        workdir: None,
        placements,
        created,
        options: hvtui::domain::options::RunOptions::default(),
    }
}

/// The answer to a launch whose slots are held, in these words.
pub(crate) fn taken(held: &str) -> LaunchError {
    LaunchError::new(LaunchFault::Busy(held.to_owned()), format!("{held}: wait with --wait"))
}

/// A plan of a run, as the Launch screen shows it.
pub(crate) fn plan(spec: RunSpec) -> Arc<LaunchPlan> {
    let world = spec.world().to_string();
    let rank = |placement: &Placement| {
        let env = [
            ("RANK", placement.rank.to_string()),
            ("LOCAL_RANK", placement.local_rank.to_string()),
            ("WORLD_SIZE", world.clone()),
            ("MASTER_ADDR", "10.0.0.11".to_owned()),
            ("HVTUI_PLACE", placement.to_string()),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        RankSpec {
            rank: placement.rank,
            argv: spec.command.clone(),
            env,
            defaults: BTreeMap::new(),
            cwd: None,
        }
    };
    let share = |host: HostId| HostRun {
        run: spec.id.clone(),
        name: spec.name.clone(),
        ranks: spec.placements.iter().filter(|placement| placement.host == host).map(rank).collect(),
        host,
        grace_ms: 5000,
        max_silence_ms: None,
        python_hooks: hvtui::domain::options::PythonHooks::Off,
        traceable: false,
        run_spec: None,
        leases: LeasePlan::default(),
        spool: Spool::default(),
        ports: 1,
        rendezvous: None,
        engine: None,
        attempt: 0,
    };
    let hosts: Vec<HostRun> = spec.hosts().into_iter().map(share).collect();
    let rendezvous = Rendezvous { bind: BTreeMap::new(), master: [10, 0, 0, 11].into() };
    let lease_order = spec.hosts();
    Arc::new(LaunchPlan { spec, hosts, rendezvous, lease_order, remarks: Vec::new(), request: None })
}

/// A plan of a run on one GPU.
pub(crate) fn any_plan() -> Arc<LaunchPlan> {
    plan(spec(run_id(), "digits", &gpu_slots(&[("gpu-a", 2)]), START))
}

pub(crate) fn gpu_slots(picks: &[(&'static str, u32)]) -> Vec<(&'static str, Slot)> {
    picks.iter().map(|(name, index)| (*name, Slot::Gpu { index: *index, uuid: uuid(name, *index) })).collect()
}

pub(crate) fn cpu_slots(picks: &[(&'static str, u32)]) -> Vec<(&'static str, Slot)> {
    picks.iter().map(|(name, index)| (*name, Slot::Cpu { index: *index })).collect()
}

/// Four hosts of eight GPUs: one busy, one mixed, one down, one refused. What is held is called idle after a minute.
pub(crate) fn cluster() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-b", "gpu-c", "gpu-d"]);
    story.gpu_host("gpu-a", 8).gpu_host("gpu-b", 8).gpu_host("gpu-c", 8);
    let held = Gpu { util: 0, mem: 96, user: Some(("wang", "python -m ipykernel_launcher")), throttle: &[] };
    let capped = Gpu { throttle: &["sw power cap"], ..busy(99, "li") };
    for second in 0..70u32 {
        let wave = 40 + (second * 7) % 50;
        story.sample(
            "gpu-a",
            31.0,
            &[capped, busy(98, "li"), FREE, FREE, held, busy(wave, "zhao"), busy(88, "zhao"), FREE],
        );
        story.sample(
            "gpu-b",
            12.0,
            &[busy(41, "chen"), busy(43, "chen"), FREE, FREE, FREE, FREE, FREE, FREE],
        );
        if second < 20 {
            story.sample("gpu-c", 5.0, &[FREE; 8]);
        }
        story.wait_ms(1000);
    }
    // an alert tells of it with the next sample
    story.model.world.alerts.rules =
        Arc::new(AlertRules { held_idle_us: Some(60_000_000), ..AlertRules::default() });
    story.tell(Origin::Host(host("gpu-a")), Event::Gap { what: GPU_EVENTS.to_owned(), dropped: 0 });
    story.down("gpu-c", "connect to 10.0.0.13:22: connection refused");
    story.refused(
        "gpu-d",
        "host key of 10.0.0.14:22 is unknown (ED25519 SHA256:uNiVztksCsDhcc0u9e8BrwK0a1Lh2bS3k9QZ0hXyZfM): check it, then hvtui hosts trust gpu-d",
    );
    story.wait_ms(900);
    story
}

/// Step timing of a rank in the training story: rank 3 reads its data slowly and the others wait for it.
pub(crate) fn phases(rank: u32) -> [u32; 6] {
    if rank == 3 {
        [16_000, 14_200, 22_800, 300, 5_400, 2_500]
    } else {
        [4_900, 14_200, 22_900, 11_300, 5_400, 2_500]
    }
}

/// A run of four ranks on two GPU hosts in the middle of its training.
pub(crate) fn training() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 4).gpu_host("gpu-b", 4);
    story.run("mnist", &gpu_slots(&[("gpu-a", 2), ("gpu-a", 3), ("gpu-b", 0), ("gpu-b", 1)]));
    story.model.ui.screen = hvtui::tui::core::Screen::Run;
    story.stage(RunStage::Connect, &[]).wait_ms(200).stage(RunStage::Prepare, &[]).wait_ms(100);
    story.stage(RunStage::Start, &[]).wait_ms(300).stage(RunStage::Rendezvous, &[]);
    for rank in 0..4 {
        story.rank(rank, Event::RankStarted { pid: 4000 + rank, t: HostTime(1) });
        let total_steps = Some(4690);
        let transport = Some("tcp".to_owned());
        story.rank(
            rank,
            Event::JobDescribed { job: "mnist".to_owned(), transport, total_steps, facts: Box::default() },
        );
    }
    story.wait_ms(400).stage(RunStage::FirstStep, &[]);
    for rank in 0..4 {
        story.rank(rank, Event::RankConnected);
    }
    story.wait_ms(1200).stage(RunStage::Training, &[]);
    for step in 1..=120u64 {
        if step % 16 == 0 {
            let gpu = |util| Gpu { util, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
            story.sample("gpu-a", 40.0, &[FREE, FREE, gpu(97), gpu(96)]);
            story.sample("gpu-b", 38.0, &[gpu(97), gpu(74), FREE, FREE]);
        }
        for rank in 0..4 {
            let loss = 2.3 / (1.0 + step as f32 / 10.0) + rank as f32 * 0.001;
            story.step(rank, step, loss, phases(rank));
            if step % 10 == 0 {
                story.log(rank, &format!("epoch 1 step {step} loss {loss:.3}"));
            }
        }
        story.wait_ms(61);
    }
    story.rank(0, Event::MetricReported { name: "accuracy".to_owned(), value: 0.9412, step: Some(100) });
    story.error_log(3, "dataloader: worker 2 slow (210 ms)");
    story.wait_ms(20);
    story
}

/// The same run after rank 3 was killed.
pub(crate) fn failed() -> Story {
    let mut story = training();
    story.error_log(3, "Traceback (most recent call last):");
    story.error_log(3, "MemoryError: \u{1b}[31mcan't allocate 4.0 GiB\u{1b}[0m");
    story.exit(3, None, Some(9), false).wait_ms(120).stage(RunStage::Stopping, &[]).wait_ms(300);
    for rank in 0..3 {
        story.exit(rank, None, Some(15), true);
    }
    story.end(137, Some(3), "rank 3 on gpu-b:1 was killed by SIGKILL");
    story.wait_ms(9_000);
    story
}

/// A run of eight ranks on each of `hosts` hosts; rank 77 is a straggler.
pub(crate) fn many_ranks(hosts: u32) -> Story {
    let names: Vec<&'static str> = (1..=hosts)
        .map(|number| {
            let name: &'static str = Box::leak(format!("gpu-{number:03}").into_boxed_str());
            name
        })
        .collect();
    let mut story = Story::new(&names);
    let picks: Vec<(&'static str, u32)> =
        names.iter().flat_map(|name| (0..8).map(move |index| (*name, index))).collect();
    for name in &names {
        story.gpu_host(name, 8);
    }
    story.run("llama", &gpu_slots(&picks));
    story.model.ui.screen = hvtui::tui::core::Screen::Run;
    story.stage(RunStage::Start, &[]).wait_ms(300).stage(RunStage::Training, &[]);
    let ranks = hosts * 8;
    for rank in 0..ranks {
        story.rank(rank, Event::RankStarted { pid: 4000 + rank, t: HostTime(1) });
        let (job, transport, total_steps) = ("llama".to_owned(), Some("nccl".to_owned()), Some(900));
        story.rank(rank, Event::JobDescribed { job, transport, total_steps, facts: Box::default() });
    }
    for step in 1..=24u64 {
        for rank in 0..ranks {
            let phases = if rank == 77 { phases(3) } else { phases(0) };
            story.step(rank, step, 2.0 / step as f32, phases);
        }
        story.wait_ms(61);
    }
    let gpu = Gpu { util: 97, mem: 88, user: Some(("li", "python sft.py")), throttle: &[] };
    for name in &names {
        story.sample(name, 40.0, &[gpu; 8]);
    }
    story.wait_ms(100);
    story
}

/// Recordings for the Runs screen.
pub(crate) fn recordings() -> Vec<RunSummary> {
    let summary = |n: u64, name: &str, code: Option<i32>, text: &str, damage: Option<&str>| {
        let created = START.plus_micros(-(n as i64) * 3_600_000_000);
        let id = RunId::new(1_795_271_400_000 - n * 3_600_000, u128::from(0xabc_def0_1234_5678 + n * 77));
        RunSummary {
            spec: spec(id, name, &cpu_slots(&[("gpu-a", 0), ("gpu-a", 1), ("gpu-b", 0)]), created),
            stage: Some(RunStage::Ended),
            last_at: created.plus_micros(94_000_000 * n as i64),
            outcome: code.map(|code| match code {
                0 => RunOutcome::new(RunEnd::Finished, text),
                _ => RunOutcome::failed(Rank(1), code, text),
            }),
            trained: None,
            stood: None,
            bytes: 1_234_567 * n,
            damage: damage.map(str::to_owned),
            is_made_ready: false,
        }
    };
    vec![
        summary(1, "digits", Some(0), "all 3 ranks done", None),
        summary(
            5,
            "imagenet-resnet50-batch-4096-warmup",
            Some(3),
            "rank 1 on gpu-a:1 failed first: exit 3",
            None,
        ),
        summary(30, "diabetes", None, "", Some("cut at 1.2 M")),
    ]
}
