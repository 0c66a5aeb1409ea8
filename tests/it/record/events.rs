//! Makes envelopes: any at all for round trips, and a plausible run for everything else.

use std::collections::BTreeMap;
use std::sync::Arc;

use hvtui::domain::clock_fit::ClockSample;
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::gpu::event::{GpuEvent, Happening};
use hvtui::domain::gpu::{GpuProcess, GpuSample, Reading, RunOfProcess};
use hvtui::domain::host::{HostSample, LinkState};
use hvtui::domain::ids::{GpuUuid, HostId, Rank, RunId};
use hvtui::domain::lease::{Lease, Leases};
use hvtui::domain::log::{GapReason, LogGap, LogLine, Stream};
use hvtui::domain::nccl_timing::{CollectiveTiming, CommId};
use hvtui::domain::note::Note;
use hvtui::domain::outcome::{RunEnd, RunOutcome};
use hvtui::domain::plausible;
use hvtui::domain::run::{JobKind, Placement, RankExit, RunSpec, RunStage, Slot};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::timing::{Phase, PhaseSpan, Spans, StepTiming};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

pub(crate) fn run_id() -> RunId {
    RunId::new(1_795_000_000_000, 0x1234_5678_9abc_def0_1234)
}

pub(crate) fn spec(ranks: u32) -> RunSpec {
    let placements = (0..ranks)
        .map(|rank| Placement {
            rank: Rank(rank),
            host: HostId::from(if rank < ranks.div_ceil(2) { "gpu-a" } else { "gpu-b" }),
            local_rank: rank % ranks.div_ceil(2),
            slot: Slot::Gpu { index: rank % ranks.div_ceil(2), uuid: GpuUuid::from(format!("GPU-{rank}")) },
            more: Vec::new(),
        })
        .collect();
    RunSpec {
        code: None,
        id: run_id(),
        name: "digits".into(),
        kind: JobKind::Native,
        command: vec!["hvtui".into(), "train".into(), "digits".into()],
        env: BTreeMap::from([("A".into(), "ü\u{1b}".into())]),
        workdir: None,
        placements,
        created: Stamp(START),
        options: hvtui::domain::options::RunOptions::default(),
    }
}

/// When the plausible run starts.
pub(crate) const START: i64 = 1_795_000_000_000_000;

/// A run of `ranks` ranks over `seconds`: four steps a second, a line each second, telemetry, pings.
pub(crate) fn run(ranks: u32, seconds: u64) -> Vec<Envelope> {
    let mut out = Vec::new();
    let mut push = |at: i64, origin: Origin, event: Event| {
        out.push(Envelope { seq: out.len() as u64 + 1, at: Stamp(at), origin, event });
    };
    let id = run_id();
    let spec = spec(ranks);
    let whole = || Origin::Run(id.clone());
    for host in spec.hosts() {
        push(START, Origin::Host(host), Event::LinkChanged { state: LinkState::Up });
    }
    push(START + 10, whole(), Event::RunCreated { spec: Arc::new(spec.clone()) });
    push(
        START + 20,
        whole(),
        Event::StageEntered {
            stage: RunStage::Training,
            waiting_for: hvtui::domain::waiting::Waiting::default(),
        },
    );
    for second in 0..seconds {
        let now = START + 1_000 + second as i64 * 1_000_000;
        for (number, host) in spec.hosts().into_iter().enumerate() {
            let drift = second as i64 * 3;
            let sample = ClockSample {
                host_time: HostTime(5_000_000 + second * 1_000_000),
                offset_us: START - 5_000_000 + number as i64 * 400 + drift,
                // ranks come 77 µs apart at least: messages take less
                rtt_us: 60 + (second % 5) as u32,
            };
            push(now, Origin::Host(host.clone()), Event::ClockSampled { sample });
            push(now + 50, Origin::Host(host), Event::HostSampled { sample: Arc::new(host_sample(second)) });
        }
        for step in 0..4_u64 {
            for rank in 0..ranks {
                let number = second * 4 + step + 1;
                let timing =
                    step_timing(number, HostTime(5_000_000 + second * 1_000_000 + step * 250_000), rank);
                let at = now + 250_000 * (step as i64 + 1) + i64::from(rank);
                push(at, Origin::Rank(id.clone(), Rank(rank)), Event::StepDone { timing: Arc::new(timing) });
            }
        }
        for rank in 0..ranks {
            let text = if second % 7 == 3 {
                "WARNING slow loader".into()
            } else {
                format!("step {} loss 0.5", second * 4)
            };
            let line = LogLine {
                rank: Rank(rank),
                stream: Stream::Stdout,
                offset: second * 20,
                text,
                elided: 0,
                t: None,
            };
            push(
                now + 999_000,
                Origin::Rank(id.clone(), Rank(rank)),
                Event::LogPrinted { line: Arc::new(line) },
            );
        }
    }
    let end = START + seconds as i64 * 1_000_000 + 5_000;
    let outcome = RunOutcome::new(RunEnd::Finished, "all ranks done");
    push(end, whole(), Event::RunEnded { outcome });
    out
}

pub(crate) fn step_timing(step: u64, start: HostTime, rank: u32) -> StepTiming {
    let jitter = (step as u32).wrapping_mul(2_654_435_761).wrapping_add(rank * 77) % 900;
    let mut spans = Spans::default();
    let mut at = 0;
    for (phase, dur_us) in
        Phase::ALL.into_iter().zip([2_000 + jitter, 50_000 + jitter, 90_000, 4_000 - jitter, 9_000, 3_000])
    {
        spans.push(PhaseSpan { phase, start_us: at, dur_us });
        at += dur_us + 11;
    }
    let loss = Some(1.0 / step as f32);
    StepTiming { step, start, dur_us: at, loss, samples: 64, spans, hidden_us: 31_000 + jitter }
}

fn host_sample(second: u64) -> HostSample {
    let gpu = |index: u32| GpuSample {
        util: Reading::Value(90 + (second % 10) as u32),
        memory_used: Reading::Value(11_000_000_000 + second * 4096),
        memory_total: Reading::Value(151_000_000_000),
        temperature: Reading::Value(60),
        power_mw: Reading::Value(650_123),
        power_limit_mw: Reading::Value(700_000),
        clock_sm_mhz: Reading::Value(1_980),
        pstate: Reading::Value(0),
        throttle: Reading::Value(vec!["sw power cap".into()]),
        processes: Reading::Value(vec![GpuProcess {
            user: Reading::Value("li".into()),
            command: Reading::Value("python train.py".into()),
            memory: Reading::failed("not permitted"),
            run: (second.is_multiple_of(2))
                .then(|| RunOfProcess { id: RunId::new(second, 1), rank: Some(Rank(index)) }),
            container: Some("59c313908f42".to_owned()),
            sm_percent: Reading::Value(90 + (second % 3) as u32),
            start_ticks: Reading::Value(90_000),
            age_s: Reading::Value(second),
            ..GpuProcess::unknown(4_242)
        }]),
        sm_active_percent: Reading::Value(80 + (second % 7) as u32),
        pcie_rx_bytes_per_s: Reading::failed("not read yet"),
        row_remap_pending: Reading::Value(false),
        energy_mj: Reading::Value(44_000_000_000 + second * 650_123),
        ..GpuSample::unknown(index)
    };
    HostSample {
        cpu_percent: Reading::Value(12.5),
        memory_used: Reading::Value(33_000_000_000),
        load: Reading::Value([1.5, 1.25, 1.0]),
        net_rx: Reading::Value(1_000 + second),
        net_tx: Reading::Value(2_000),
        gpus: (0..4).map(gpu).collect(),
    }
}

/// Equal for a reader that can tell a NaN from another: `PartialEq` says that a NaN differs from itself.
pub(crate) fn same(a: &[Envelope], b: &[Envelope]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || format!("{a:?}") == format!("{b:?}"))
}

fn reading<T: std::fmt::Debug>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![
        4 => value.prop_map(Reading::Value),
        1 => Just(()).prop_map(|()| Reading::Unsupported),
        1 => ".{0,9}".prop_map(Reading::failed),
    ]
}

fn gpu_sample() -> impl Strategy<Value = GpuSample> {
    let run = (any::<u64>(), option::of(any::<u32>().prop_map(Rank)));
    let run = option::of(run.prop_map(|(ms, rank)| RunOfProcess { id: RunId::new(ms >> 16, 1), rank }));
    let container = option::of("[0-9a-f]{12}");
    let process = (any::<u32>(), reading(".{0,5}"), reading(".{0,9}"), reading(any::<u64>()), run, container);
    let times = (reading(any::<u32>()), reading(any::<u64>()), reading(any::<u64>()));
    let process = (process, times).prop_map(|((pid, user, command, memory, run, container), times)| {
        let (sm_percent, start_ticks, age_s) = times;
        GpuProcess { pid, user, command, memory, sm_percent, start_ticks, age_s, run, container }
    });
    let numbers = vec(reading(any::<u64>()), GpuSample::NUMBERS.len());
    (any::<u32>(), numbers, reading(vec(".{0,4}", 0..3)), reading(vec(process, 0..4))).prop_map(
        |(index, numbers, throttle, processes)| {
            let mut gpu = GpuSample { throttle, processes, ..GpuSample::unknown(index) };
            for (field, number) in GpuSample::NUMBERS.iter().zip(numbers) {
                let fits =
                    |value: u64| if field.largest == u64::MAX { value } else { value % (field.largest + 1) };
                assert!((field.set)(&mut gpu, number.map(fits)));
            }
            gpu
        },
    )
}

fn any_f32() -> impl Strategy<Value = f32> {
    prop_oneof![any::<u32>().prop_map(f32::from_bits), Just(f32::NAN), Just(f32::INFINITY)]
}

fn timing() -> impl Strategy<Value = StepTiming> {
    let span = (0_usize..6, any::<u32>(), any::<u32>());
    let span =
        span.prop_map(|(phase, start_us, dur_us)| PhaseSpan { phase: Phase::ALL[phase], start_us, dur_us });
    (
        any::<u64>(),
        any::<u64>(),
        any::<u32>(),
        option::of(any_f32()),
        any::<u32>(),
        vec(span, 0..8),
        any::<u32>(),
    )
        .prop_map(|(step, start, dur_us, loss, samples, spans, hidden_us)| StepTiming {
            step,
            start: HostTime(start),
            dur_us,
            loss,
            samples,
            spans: spans.into(),
            hidden_us,
        })
}

fn lease() -> impl Strategy<Value = Lease> {
    (".{0,8}", option::of(".{0,8}"), any::<bool>(), option::of(any::<u32>()), option::of(any::<u64>()))
        .prop_map(|(gpu, user, own, number, since)| Lease {
            gpu: GpuUuid::from(gpu),
            name: user.clone(),
            command: user.clone(),
            user,
            own,
            pid: number,
            run: own.then(run_id),
            rank: number.map(Rank),
            since: since.map(HostTime),
        })
}

fn collective() -> impl Strategy<Value = CollectiveTiming> {
    let numbers = [any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()];
    let small = [any::<u32>(), any::<u32>(), any::<u32>()];
    let texts = (".{0,8}", ".{0,8}");
    (numbers, small, texts, option::of(any::<u64>())).prop_map(|(numbers, small, (func, datatype), time)| {
        let [comm, seq, bytes, dur_ns, lost] = numbers;
        let [ranks, comm_rank, every] = small;
        let (comm, t) = (CommId(comm), time.map(HostTime));
        CollectiveTiming {
            comm,
            ranks,
            comm_rank,
            func,
            seq,
            bytes,
            datatype,
            t,
            dur_ns,
            gpu_ns: time,
            every,
            lost,
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let sample = (
        reading(any_f32()),
        reading(any::<u64>()),
        reading([any_f32(), any_f32(), any_f32()]),
        reading(any::<u64>()),
        reading(any::<u64>()),
        vec(gpu_sample(), 0..3),
    );
    let line = (any::<u32>(), 0..3_usize, any::<u64>(), ".{0,40}", any::<u64>());
    prop_oneof![
        timing().prop_map(|timing| Event::StepDone { timing: Arc::new(timing) }),
        sample.prop_map(|(cpu_percent, memory_used, load, net_rx, net_tx, gpus)| {
            let sample = HostSample { cpu_percent, memory_used, load, net_rx, net_tx, gpus };
            let mut event = Event::HostSampled { sample: Arc::new(sample) };
            // as what comes in is before it is recorded
            plausible::bound_event(&mut event);
            event
        }),
        line.prop_map(|(rank, stream, offset, text, elided)| Event::LogPrinted {
            line: Arc::new(LogLine {
                rank: Rank(rank),
                stream: Stream::ALL[stream],
                offset,
                text,
                elided,
                t: None
            })
        }),
        (".{0,8}", any::<u64>().prop_map(f64::from_bits), option::of(any::<u64>()))
            .prop_map(|(name, value, step)| Event::MetricReported { name, value, step }),
        collective().prop_map(|timing| Event::CollectiveDone { timing: Box::new(timing) }),
        (any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(t, offset_us, rtt_us)| Event::ClockSampled {
            sample: ClockSample { host_time: HostTime(t), offset_us, rtt_us }
        }),
        (
            option::of(any::<i32>()),
            option::of(any::<i32>()),
            any::<u64>(),
            option::of(".{0,8}"),
            any::<bool>(),
            option::of(".{0,8}")
        )
            .prop_map(|(code, signal, t, error, stopped, cause)| Event::RankExited {
                exit: RankExit { code, signal, t: HostTime(t), error, stopped, cause }
            }),
        (".{0,8}", ".{0,8}", any::<u64>()).prop_map(|(what, text, count)| Event::RunNoted {
            host: HostId::from("a"),
            note: Note { count, ..Note::new(&what, text, HostTime(count)) }
        }),
        (".{0,8}", any::<u64>()).prop_map(|(what, dropped)| Event::Gap { what, dropped }),
        (any::<u32>(), any::<u32>(), any::<u64>(), option::of(any::<u64>())).prop_map(
            |(index, xid, count, t)| {
                let uuid = GpuUuid::from(format!("GPU-{index}"));
                let what = if xid % 2 == 0 { Happening::Xid { xid } } else { Happening::RowRemapFailed };
                Event::GpuHappened { event: GpuEvent { index, uuid, what, count, t: t.map(HostTime) } }
            }
        ),
        (vec(lease(), 0..3), option::of(".{0,8}")).prop_map(|(held, fault)| Event::LeasesTold {
            leases: Leases { held, beside: Vec::new(), queue: Vec::new(), fault }
        }),
        (any::<u32>(), 0..3_usize, any::<u64>(), any::<u64>(), option::of(any::<u64>())).prop_map(
            |(rank, stream, from, to, cap)| {
                let reason = if cap.is_some() { GapReason::NotKept } else { GapReason::Unknown };
                Event::LogGap {
                    gap: LogGap { rank: Rank(rank), stream: Stream::ALL[stream], from, to, reason, cap },
                }
            }
        ),
        (1_u32..9).prop_map(|ranks| Event::RunCreated { spec: Arc::new(spec(ranks)) }),
        Just(Event::RankConnected),
        (option::of(any::<i64>().prop_map(Stamp)), ".{0,8}").prop_map(|(retry_at, reason)| {
            Event::LinkChanged { state: LinkState::Down { reason, retry_at } }
        }),
    ]
}

fn origin() -> impl Strategy<Value = Origin> {
    prop_oneof![
        ".{0,6}".prop_map(|name| Origin::Host(HostId::from(name))),
        Just(Origin::Run(run_id())),
        any::<u32>().prop_map(|rank| Origin::Rank(run_id(), Rank(rank))),
        (0_u32..3).prop_map(|rank| Origin::Rank(RunId::new(7, 7), Rank(rank))),
    ]
}

/// Any envelopes in rising order of their numbers, at any times.
pub(crate) fn any_envelopes() -> impl Strategy<Value = Vec<Envelope>> {
    let at = prop_oneof![8 => (0..20_000_000_i64).prop_map(|after| START + after), 1 => any::<i64>()];
    vec((1_u64..1_000, at, origin(), event()), 0..60).prop_map(|rows| {
        let mut seq = 0;
        rows.into_iter()
            .map(|(more, at, origin, event)| {
                seq += more;
                Envelope { seq, at: Stamp(at), origin, event }
            })
            .collect()
    })
}
