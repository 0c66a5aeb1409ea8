//! Scripted streams through the whole fold: begin, end, what flaps, and what is not known.

mod runs;

use std::sync::Arc;

use super::*;
use crate::domain::fixtures::{host_info, host_sample, run_spec, step_timing};
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::gpu::{GpuInfo, GpuProcess, GpuSample, Reading, RunOfProcess};
use crate::domain::host::{GpuAbsence, GpuAbsenceReason, HostInfo, HostSample, LinkState};
use crate::domain::idle::{idle_us, is_idle};
use crate::domain::lease::{Lease, Leases};
use crate::domain::note::Note;
use crate::domain::run::{Placement, RankExit, RunSpec, Slot};
use crate::domain::standstill::StalledPhase;
use crate::domain::timing::{Phase, StepTiming};
use crate::domain::world::World;

const SECOND: i64 = 1_000_000;

fn info(gpus: u32) -> HostInfo {
    let gpu = |index| GpuInfo {
        uuid: format!("GPU-{index}").as_str().into(),
        slowdown_celsius: Reading::Value(89),
        ..GpuInfo::unknown(index)
    };
    HostInfo { cpus: 8, gpus: (0..gpus).map(gpu).collect(), ..host_info() }
}

fn sample(gpus: Vec<GpuSample>) -> Event {
    let sample = HostSample { gpus, ..host_sample() };
    Event::HostSampled { sample: Arc::new(sample) }
}

fn process(user: &str, run: Option<&RunId>) -> GpuProcess {
    GpuProcess {
        pid: 7,
        user: Reading::Value(user.to_owned()),
        command: Reading::Value("python train.py".to_owned()),
        memory: Reading::Value(4 << 30),
        run: run.map(|id| RunOfProcess { id: id.clone(), rank: Some(Rank(0)) }),
        container: None,
        ..GpuProcess::unknown(7)
    }
}

fn lease(run: &RunId) -> Lease {
    Lease {
        user: Some("li".to_owned()),
        own: true,
        run: Some(run.clone()),
        name: Some("mnist".to_owned()),
        rank: Some(Rank(0)),
        ..Lease::unknown("GPU-0")
    }
}

/// A world with one host `a` of one GPU, which is up.
struct Script {
    world: World,
    seq: u64,
    /// The second that it is.
    now: i64,
}

impl Script {
    fn new() -> Self {
        let mut script = Self { world: World::default(), seq: 0, now: 0 };
        script.host(Event::LinkChanged { state: LinkState::Up });
        script.host(Event::HostDescribed { info: Arc::new(info(1)) });
        script
    }

    fn tell(&mut self, origin: Origin, event: Event) {
        self.seq += 1;
        let at = Stamp(self.now * SECOND);
        self.world.apply(&Envelope { seq: self.seq, at, origin, event });
    }

    fn host(&mut self, event: Event) {
        self.tell(Origin::Host("a".into()), event);
    }

    /// The same sample in each of so many seconds.
    fn samples(&mut self, seconds: i64, gpu: &GpuSample) {
        for _ in 0..seconds {
            self.now += 1;
            self.host(sample(vec![gpu.clone()]));
        }
    }

    /// A run of two ranks, the first of them on the GPU.
    fn run(&mut self) -> RunId {
        let id = RunId::new(1, 1);
        let slots = [Slot::Gpu { index: 0, uuid: "GPU-0".into() }, Slot::Cpu { index: 0 }];
        let place = |(rank, slot)| Placement {
            rank: Rank(rank),
            host: "a".into(),
            local_rank: rank,
            slot,
            more: Vec::new(),
        };
        let spec = RunSpec {
            id: id.clone(),
            name: "mnist".to_owned(),
            ..run_spec((0..).zip(slots).map(place).collect())
        };
        self.tell(Origin::Run(id.clone()), Event::RunCreated { spec: Arc::new(spec) });
        id
    }

    fn step(&mut self, run: &RunId, rank: u32, step: u64) {
        let timing = StepTiming { samples: 1, ..step_timing(step, 50_000) };
        let event = Event::StepDone { timing: Arc::new(timing) };
        self.tell(Origin::Rank(run.clone(), Rank(rank)), event);
    }

    /// Each alert: kind, place, since and until in seconds.
    fn told(&self) -> Vec<(AlertKind, String, i64, Option<i64>)> {
        let told = |alert: &Alert| {
            let until = alert.until.map(|until| until.0 / SECOND);
            (alert.kind, alert.place.to_string(), alert.since.0 / SECOND, until)
        };
        self.world.alerts.all().map(told).collect()
    }

    fn words(&self) -> Vec<&str> {
        self.world.alerts.all().map(|alert| alert.words.as_str()).collect()
    }
}

fn hot(celsius: u32) -> GpuSample {
    GpuSample { temperature: Reading::Value(celsius), ..GpuSample::unknown(0) }
}

#[test]
fn a_hot_gpu_is_told_once_until_it_is_cooler() {
    let mut script = Script::new();
    script.samples(20, &hot(85));
    assert_eq!(script.told(), [], "below the threshold");
    script.samples(10, &hot(86));
    assert_eq!(script.told(), [], "not for long enough");
    script.samples(1, &hot(88));
    let begun = (AlertKind::Temperature, "a:0".to_owned(), 21, None);
    assert_eq!(script.told(), std::slice::from_ref(&begun));
    assert_eq!(script.words(), ["88 °C: too hot from 86 °C on"]);
    for _ in 0..20 {
        script.samples(5, &hot(84));
        script.samples(5, &hot(82));
        script.samples(5, &hot(87));
    }
    assert_eq!(script.told(), [begun], "what flaps is one alert");
    let before = script.now;
    script.samples(11, &hot(82));
    let ended = (AlertKind::Temperature, "a:0".to_owned(), 21, Some(before + 1));
    assert_eq!(script.told(), [ended]);
    assert_eq!(script.world.alerts.active().count(), 0);
}

#[test]
fn thresholds_are_those_of_the_rules() {
    let mut script = Script::new();
    let rules = AlertRules { temperature: HeatRule::Celsius(60), ..AlertRules::default() };
    script.world.alerts.rules = Arc::new(rules);
    script.samples(11, &hot(60));
    assert_eq!(script.told().len(), 1);
    let mut script = Script::new();
    script.world.alerts.rules = Arc::new(AlertRules { temperature: HeatRule::Off, ..AlertRules::default() });
    script.samples(30, &hot(100));
    assert_eq!(script.told(), []);
}

#[test]
fn what_is_not_known_is_never_told() {
    let mut script = Script::new();
    let run = script.run();
    script.step(&run, 0, 1);
    let unknown = GpuSample::unknown(0);
    script.host(Event::LeasesTold { leases: Leases { held: vec![lease(&run)], ..Leases::default() } });
    script.samples(4000, &unknown);
    let failed =
        GpuSample { power_mw: Reading::Value(1000), ..GpuSample::failed(0, "insufficient permission") };
    script.samples(4000, &failed);
    assert_eq!(script.told(), []);
    // nor what a GPU without a known limit is compared with
    let no_limit = GpuSample {
        util: Reading::Value(100),
        power_mw: Reading::Value(100_000),
        temperature: Reading::Value(200),
        ..GpuSample::unknown(0)
    };
    script.world.hosts.get_mut(&HostId::from("a")).unwrap().info = Some(Arc::new(HostInfo {
        gpus: vec![GpuInfo { uuid: "GPU-0".into(), ..GpuInfo::unknown(0) }],
        ..info(1)
    }));
    script.samples(400, &no_limit);
    assert_eq!(script.told(), []);
}

#[test]
fn held_clocks_and_memory_errors_are_told_and_a_power_cap_is_not() {
    let slowed = |reasons: &[&str]| GpuSample {
        throttle: Reading::Value(reasons.iter().map(|&reason| reason.to_owned()).collect()),
        ..GpuSample::unknown(0)
    };
    let mut script = Script::new();
    script.samples(60, &slowed(&["sw power cap"]));
    assert_eq!(script.told(), []);
    script.samples(11, &slowed(&["sw power cap", "hw power brake slowdown", "sw thermal slowdown"]));
    assert_eq!(script.told(), [(AlertKind::Slowdown, "a:0".to_owned(), 61, None)]);
    assert_eq!(script.words(), ["hw power brake slowdown, sw thermal slowdown"]);

    let mut script = Script::new();
    let errors = |count| GpuSample { ecc_uncorrected: Reading::Value(count), ..GpuSample::unknown(0) };
    script.samples(20, &errors(0));
    script.samples(1, &errors(3));
    assert_eq!(script.told(), [(AlertKind::Ecc, "a:0".to_owned(), 21, None)]);
    assert_eq!(script.words(), ["3 memory errors that ECC could not correct"]);
}

#[test]
fn a_gpu_of_which_nothing_can_be_read_is_told_without_a_duration() {
    let silent = |seconds: i64| GpuSample::failed(0, &format!("no answer from NVML for {seconds} s"));
    let mut script = Script::new();
    script.samples(5, &silent(5));
    script.samples(11, &hot(40));
    assert_eq!(script.told(), [], "a stall");
    for seconds in 1..=11 {
        script.samples(1, &silent(seconds));
    }
    assert_eq!(script.told(), [(AlertKind::GpuLost, "a:0".to_owned(), 17, None)]);
    assert_eq!(script.words(), ["no answer from NVML: a call about this GPU does not return"]);
    assert_eq!(script.world.alerts.all().next().map(|alert| alert.severity), Some(Severity::Act));
    script.samples(11, &hot(40));
    assert_eq!(script.told()[0].3, Some(28), "until it answers");
    let mut script = Script::new();
    script.samples(11, &GpuSample::failed(0, "GPU is lost"));
    assert_eq!(script.words(), ["the GPU is lost: it fell off the bus or has become inaccessible"]);
    let mut off = Script::new();
    off.world.alerts.rules = Arc::new(AlertRules { gpu_lost_us: None, ..AlertRules::default() });
    off.samples(60, &silent(60));
    assert_eq!(off.told(), []);
}

#[test]
fn an_xid_error_is_told_once_until_it_has_not_come_again_for_a_while() {
    let mut script = Script::new();
    let xid = |number| Event::GpuHappened {
        event: GpuEvent {
            index: 0,
            uuid: "GPU-0".into(),
            what: Happening::Xid { xid: number },
            count: 1,
            t: None,
        },
    };
    let run = RunId::new(1, 1);
    let leases = Leases { held: vec![lease(&run)], ..Leases::default() };
    script.host(Event::LeasesTold { leases });
    script.now = 100;
    script.host(xid(79));
    script.host(xid(31));
    script.now = 400;
    script.host(xid(79));
    script.world.tick(Stamp(950 * SECOND));
    let told = |script: &Script| {
        let of = script.world.alerts.all().filter(|alert| alert.kind == AlertKind::Xid);
        of.map(|one| {
            (one.words.clone(), one.severity, one.since.0 / SECOND, one.until.map(|at| at.0 / SECOND))
        })
        .collect::<Vec<_>>()
    };
    let lost = "xid 79: the GPU has fallen off the bus".to_owned();
    let fault = "xid 31: page fault: a program accessed an address that is not mapped".to_owned();
    let expected = [(lost, Severity::Act, 100, None), (fault, Severity::Look, 100, Some(700))];
    assert_eq!(told(&script), expected);
    let place = &script.world.alerts.active().find(|one| one.kind == AlertKind::Xid).unwrap().place;
    assert_eq!((place.gpu, place.run.as_ref()), (Some(0), Some(&run)));
    script.world.tick(Stamp(1001 * SECOND));
    assert_eq!(told(&script)[0].3, Some(1000));
    script.now = 1100;
    script.host(xid(79));
    assert_eq!(told(&script).len(), 3, "what comes after it is new");
    let mut off = Script::new();
    off.world.alerts.rules = Arc::new(AlertRules { xid: false, ..AlertRules::default() });
    off.host(xid(79));
    assert_eq!(told(&off), []);
}

#[test]
fn a_host_is_down_when_it_was_not_reached_for_a_while() {
    let mut script = Script::new();
    let down = |reason: &str| Event::LinkChanged {
        state: LinkState::Down { reason: reason.to_owned(), retry_at: None },
    };
    script.now = 100;
    script.host(down("a: connection refused"));
    script.now = 110;
    script.host(Event::LinkChanged { state: LinkState::Up });
    script.now = 194;
    script.host(sample(Vec::new()));
    script.now = 200;
    script.host(down("a: connection refused"));
    script.now = 210;
    script.host(Event::LinkChanged { state: LinkState::Connecting { to: "a".to_owned() } });
    script.now = 211;
    script.host(down("a: connection refused"));
    script.now = 228;
    script.host(Event::LinkChanged { state: LinkState::Connecting { to: "a".to_owned() } });
    script.world.tick(Stamp(229 * SECOND));
    assert_eq!(script.told(), []);
    script.world.tick(Stamp(230 * SECOND));
    let place = "a".to_owned();
    assert_eq!(script.told(), [(AlertKind::HostDown, place.clone(), 194, None)], "since its last word");
    assert_eq!(script.words(), ["host is down: connection refused"]);
    script.now = 300;
    script.host(Event::LinkChanged { state: LinkState::Up });
    assert_eq!(script.told(), [(AlertKind::HostDown, place, 194, Some(300))]);
}

#[test]
fn alerts_of_a_gpu_or_slice_that_is_gone_end_and_say_so() {
    let slice = |uuid: &str| GpuInfo { uuid: uuid.into(), parent: Some(0), ..GpuInfo::unknown(100) };
    let with = |gpus: u32, slices: &[GpuInfo]| {
        let gpus = info(gpus).gpus.into_iter().chain(slices.iter().cloned()).collect();
        Event::HostDescribed { info: Arc::new(HostInfo { gpus, ..info(0) }) }
    };
    let hot = |index| GpuSample { index, temperature: Reading::Value(88), ..GpuSample::unknown(index) };
    let limits = |mut slice: GpuInfo| {
        slice.slowdown_celsius = Reading::Value(89);
        slice
    };
    let mut script = Script::new();
    script.host(with(2, &[limits(slice("MIG-1"))]));
    for _ in 0..12 {
        script.now += 1;
        script.host(sample(vec![hot(0), hot(1), hot(100)]));
    }
    let xid =
        GpuEvent { index: 1, uuid: "GPU-1".into(), what: Happening::Xid { xid: 79 }, count: 1, t: None };
    script.host(Event::GpuHappened { event: xid });
    assert_eq!(script.world.alerts.active().count(), 4);
    // cut anew: the slice of that number is another one
    script.host(with(2, &[limits(slice("MIG-2"))]));
    assert_eq!(script.world.alerts.active().count(), 3);
    script.host(with(1, &[limits(slice("MIG-2"))]));
    let ended: Vec<String> =
        script.world.alerts.all().filter(|alert| !alert.is_active()).map(Alert::sentence).collect();
    assert_eq!(script.world.alerts.active().count(), 1, "the GPU that is left");
    insta::assert_snapshot!(ended.join("\n"), @r"
    a:1: 88 °C: too hot from 86 °C on (the GPU is gone)
    a:100: 88 °C: too hot from 86 °C on (the MIG slice is gone)
    a:1: xid 79: the GPU has fallen off the bus (the GPU is gone)
    ");
    script.host(Event::LinkChanged { state: LinkState::Down { reason: "x".to_owned(), retry_at: None } });
    script.host(with(1, &[]));
    assert_eq!(script.world.alerts.active().count(), 1);
}

#[test]
fn xid_errors_end_with_the_boot_of_their_host() {
    let mut script = Script::new();
    let described = |boot: &str, gpus: u32| {
        let gpu_absence = (gpus == 0)
            .then(|| GpuAbsence { reason: GpuAbsenceReason::DriverNotLoaded, detail: String::new() });
        let info = HostInfo { boot_id: boot.to_owned(), gpu_absence, ..info(gpus) };
        Event::HostDescribed { info: Arc::new(info) }
    };
    let xid = Event::GpuHappened {
        event: GpuEvent {
            index: 0,
            uuid: "GPU-0".into(),
            what: Happening::Xid { xid: 79 },
            count: 1,
            t: None,
        },
    };
    let active = |script: &Script| script.world.alerts.active().count();
    script.host(described("b", 1));
    script.host(xid.clone());
    script.host(described("b", 1));
    assert_eq!(active(&script), 1, "only the link was lost");
    // the driver is not loaded yet
    script.host(described("c", 0));
    assert_eq!(active(&script), 0);
    script.host(xid);
    script.host(described("c", 1));
    assert_eq!(active(&script), 1, "it is of this boot");
}

#[test]
fn alerts_stay_with_their_gpu_when_another_falls_off_the_bus() {
    let mut script = Script::new();
    script.host(Event::HostDescribed { info: Arc::new(info(2)) });
    let at = |index, celsius| GpuSample { index, ..hot(celsius) };
    for _ in 0..12 {
        script.now += 1;
        script.host(sample(vec![at(0, 87), at(1, 88)]));
    }
    for (index, uuid) in [(0, "GPU-0"), (1, "GPU-1")] {
        let what = Happening::Xid { xid: 79 };
        let event = GpuEvent { index, uuid: uuid.into(), what, count: 1, t: None };
        script.host(Event::GpuHappened { event });
    }
    let mut left = info(2);
    left.gpus.remove(0);
    left.gpus[0].index = 0;
    script.host(Event::HostDescribed { info: Arc::new(left) });
    let told = |script: &Script| {
        let told = |alert: &Alert| format!("{} {}", alert.is_active(), alert.sentence());
        script.world.alerts.all().map(told).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(told(&script), @r"
    false a:0: 87 °C: too hot from 86 °C on (the GPU is gone)
    true a:0: 88 °C: too hot from 86 °C on
    false a:0: xid 79: the GPU has fallen off the bus (the GPU is gone)
    true a:0: xid 79: the GPU has fallen off the bus
    ");
    script.samples(60, &at(0, 40));
    assert_eq!(script.world.alerts.active().count(), 1, "it is found where it is now: {}", told(&script));
}

#[test]
fn alerts_outlast_a_driver_that_can_not_be_used_for_a_while() {
    let absent = |reason| {
        let gpu_absence = Some(GpuAbsence { reason, detail: String::new() });
        Event::HostDescribed { info: Arc::new(HostInfo { gpu_absence, ..info(0) }) }
    };
    let mut script = Script::new();
    script.samples(12, &hot(88));
    let active = |script: &Script| script.world.alerts.active().count();
    assert_eq!(active(&script), 1);
    script.host(absent(GpuAbsenceReason::DriverMismatch));
    assert_eq!(active(&script), 1);
    script.host(Event::HostDescribed { info: Arc::new(info(1)) });
    script.samples(1, &hot(88));
    assert_eq!((active(&script), script.told().len()), (1, 1));
    script.host(absent(GpuAbsenceReason::DriverMismatch));
    script.host(absent(GpuAbsenceReason::NoDevice));
    assert_eq!(active(&script), 0, "gone after all");
}

#[test]
fn nothing_is_told_of_the_gpus_of_a_host_that_is_down_for_a_while() {
    let mut script = Script::new();
    script.samples(100, &hot(95));
    let is_hot = |script: &Script| {
        script.told().iter().any(|(kind, .., until)| *kind == AlertKind::Temperature && until.is_none())
    };
    assert!(is_hot(&script));
    let reason = "a: connection refused".to_owned();
    script.host(Event::LinkChanged { state: LinkState::Down { reason, retry_at: None } });
    script.world.tick(Stamp((script.now + 50) * SECOND));
    assert!(is_hot(&script), "it may be back at once");
    script.world.tick(Stamp((script.now + 70) * SECOND));
    assert!(!is_hot(&script));
    assert!(script.told().iter().any(|(kind, .., until)| *kind == AlertKind::HostDown && until.is_none()));
}

#[test]
fn begins_and_ends_are_news_in_their_order_and_memory_is_bounded() {
    let mut script = Script::new();
    let before = script.world.alerts.serial();
    script.samples(11, &hot(95));
    let errors = GpuSample { ecc_uncorrected: Reading::Value(1), ..hot(20) };
    script.samples(11, &errors);
    let news: Vec<(AlertKind, bool)> =
        script.world.alerts.news_since(before).iter().map(|news| (news.alert.kind, news.ended)).collect();
    let expected = [(AlertKind::Temperature, false), (AlertKind::Ecc, false), (AlertKind::Temperature, true)];
    assert_eq!(news, expected);
    assert_eq!(script.world.alerts.news_since(script.world.alerts.serial()), []);
    assert_eq!(script.world.alerts.listed()[0].kind, AlertKind::Ecc, "what goes on stands first");
    for number in 0..600 {
        let lease = lease(&RunId::new(9, number));
        script.host(Event::LeasesTold { leases: Leases { held: vec![lease], ..Leases::default() } });
    }
    assert_eq!(script.world.alerts.all().len(), KEPT);
    assert!(script.world.alerts.active().any(|alert| alert.kind == AlertKind::Ecc), "what goes on is kept");
}

#[test]
fn a_replay_derives_the_same_alerts() {
    let mut envelopes = Vec::new();
    let mut live = World::default();
    let mut script = Script::new();
    for second in 0..400i64 {
        let gpu = if second % 90 < 40 { hot(90) } else { hot(40) };
        script.seq += 1;
        let at = Stamp(second * SECOND);
        let event = sample(vec![gpu]);
        let described = Event::HostDescribed { info: Arc::new(info(1)) };
        let event = if second == 0 { described } else { event };
        envelopes.push(Envelope { seq: script.seq, at, origin: Origin::Host("a".into()), event });
    }
    let mut checkpoint = None;
    for (index, envelope) in envelopes.iter().enumerate() {
        live.apply(envelope);
        live.tick(envelope.at);
        if index == 155 {
            checkpoint = Some(live.clone());
        }
    }
    let mut replayed = checkpoint.unwrap();
    envelopes[156..].iter().for_each(|envelope| replayed.apply(envelope));
    let of = |world: &World| world.alerts.all().cloned().collect::<Vec<_>>();
    assert_eq!(of(&live).len(), 5);
    assert_eq!(of(&replayed), of(&live));
}
