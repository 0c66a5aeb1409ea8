use bytes::Bytes;

use super::*;
use crate::domain::clock_fit::ClockSample;
use crate::domain::event::Envelope;
use crate::domain::fixtures::{placement, run_spec};
use crate::domain::run::JobKind;

fn spec() -> RunSpec {
    RunSpec {
        kind: JobKind::Torch,
        command: Vec::new(),
        ..run_spec(vec![placement(0, "a", 0), placement(1, "a", 1), placement(2, "b", 0)])
    }
}

fn event(seq: u64, host: &str, event: Event) -> Box<Envelope> {
    Box::new(Envelope { seq, at: Stamp(0), origin: Origin::Host(HostId::from(host)), event })
}

fn traces(spec: &RunSpec, host: &str, processes: Vec<TracedProcess>, last: bool) -> Output {
    let moment = WallMoment { unix_us: 5_000_000, host: HostTime(1_000_000) };
    let host = HostId::from(host);
    let traces =
        Traces { run: spec.id.clone(), host: host.clone(), processes, fault: None, pace: None, moment, last };
    Output::Traces(host, traces)
}

fn process(rank: u32, pid: u32, stage: TraceStage) -> TracedProcess {
    TracedProcess { rank: Rank(rank), pid: Some(pid), worker: None, stage }
}

fn piece(spec: &RunSpec, host: &str, pid: u32, offset: u64, data: &'static [u8]) -> Output {
    let data = Bytes::from_static(data);
    Output::TracePiece(HostId::from(host), TracePiece { run: spec.id.clone(), pid, offset, data })
}

#[test]
fn it_says_for_whom_it_waits_and_gathers_what_comes() {
    let (spec, home) = (spec(), tempfile::tempdir().unwrap());
    let folder = home.path().join("parts");
    let mut world = World::default();
    let sample = ClockSample { host_time: HostTime(1_000_000), offset_us: 3_000_000, rtt_us: 10 };
    world.apply(&event(0, "a", Event::ClockSampled { sample }));
    let mut gathering =
        Gathering::new(&spec, TraceSpan::Steps(3), &folder, &World::default(), Stamp(0)).unwrap();
    let up = Output::Event(event(1, "a", Event::LinkChanged { state: LinkState::Up }));
    gathering.take(&up, Stamp(0)).unwrap();
    assert_eq!(gathering.waits_for(), "a to answer, b to be connected");
    let asked = vec![process(0, 7, TraceStage::Asked), process(1, 8, TraceStage::Asked)];
    gathering.take(&traces(&spec, "a", asked, false), Stamp(0)).unwrap();
    let text = "ranks 0,1 on a to come for the request (asks every 5 s), b to be connected";
    assert_eq!(gathering.waits_for().replace("0-1", "0,1"), text);
    let done = |last| {
        let processes = vec![
            process(0, 7, TraceStage::Done { size: 6 }),
            process(1, 8, TraceStage::Failed { why: "it has ended".to_owned() }),
            // not a rank of this host
            process(2, 9, TraceStage::Done { size: 6 }),
        ];
        traces(&spec, "a", processes, last)
    };
    gathering.take(&done(false), Stamp(0)).unwrap();
    gathering.take(&piece(&spec, "a", 7, 0, b"abc"), Stamp(0)).unwrap();
    assert_eq!(gathering.waits_for(), "rank 0 on a to send its trace (50 %), b to be connected");
    // a hole, more than was announced, and what was never announced are not taken
    gathering.take(&piece(&spec, "a", 7, 4, b"x"), Stamp(0)).unwrap();
    gathering.take(&piece(&spec, "a", 7, 3, b"defg"), Stamp(0)).unwrap();
    gathering.take(&piece(&spec, "a", 9, 0, b"x"), Stamp(0)).unwrap();
    gathering.take(&piece(&spec, "a", 7, 3, b"def"), Stamp(0)).unwrap();
    gathering.take(&done(true), Stamp(0)).unwrap();
    let refused = LinkState::Down { reason: "b: connection refused".to_owned(), retry_at: None };
    gathering.take(&Output::Event(event(2, "b", Event::LinkChanged { state: refused })), Stamp(0)).unwrap();
    assert!(gathering.is_over());
    let came = gathering.gathered(&world);
    assert_eq!(came.len(), 1);
    // the host's wall clock was at 5 s when ours was at 4 s
    assert_eq!((came[0].name.as_str(), came[0].pid, came[0].shift_us), ("rank 0 on a", 7, Some(-1_000_000)));
    assert_eq!(std::fs::read(&came[0].path).unwrap(), b"abcdef");
    let missing: Vec<String> =
        gathering.missing().into_iter().map(|one| format!("{}: {}", one.who, one.why)).collect();
    assert_eq!(missing, ["rank 1 on a: it has ended", "b: connection refused"]);
    drop(gathering);
    assert!(!folder.exists());
}

#[test]
fn an_agent_that_says_nothing_is_an_older_one() {
    let (spec, home) = (spec(), tempfile::tempdir().unwrap());
    let folder = home.path().join("parts");
    let mut gathering =
        Gathering::new(&spec, TraceSpan::Steps(3), &folder, &World::default(), Stamp(0)).unwrap();
    let up = |host| Output::Event(event(1, host, Event::LinkChanged { state: LinkState::Up }));
    gathering.take(&up("a"), Stamp(0)).unwrap();
    gathering.take(&up("b"), Stamp(0)).unwrap();
    gathering
        .take(&traces(&spec, "b", vec![process(2, 5, TraceStage::NotTraceable)], true), Stamp(0))
        .unwrap();
    gathering.give_up_older(Stamp(4_000_000));
    assert!(!gathering.is_over());
    gathering.give_up_older(Stamp(5_000_001));
    assert!(gathering.is_over());
    let missing = gathering.missing();
    assert!(missing[0].who == "a" && missing[0].why.contains("hvtui agent is an older one"), "{missing:?}");
    assert!(missing[1].who == "rank 2 on b" && missing[1].not_traceable, "{missing:?}");
}

#[test]
fn all_hosts_begin_at_the_same_step_and_moment_once_all_have_answered() {
    let (spec, home) = (spec(), tempfile::tempdir().unwrap());
    let folder = home.path().join("parts");
    let mut world = World::default();
    let sample = ClockSample { host_time: HostTime(1_000_000), offset_us: 3_000_000, rtt_us: 10 };
    world.apply(&event(0, "a", Event::ClockSampled { sample }));
    let mut gathering = Gathering::new(&spec, TraceSpan::Steps(3), &folder, &world, Stamp(0)).unwrap();
    let answer = |host: &str, pace| match traces(&spec, host, Vec::new(), false) {
        Output::Traces(host, traces) => Output::Traces(host, Traces { pace, ..traces }),
        other => other,
    };
    gathering.take(&answer("a", Some(StepProgress { step: 100, step_us: 20_000 })), Stamp(0)).unwrap();
    assert_eq!(gathering.starts(&world, Stamp(4_000_000)), None, "b has not answered");
    gathering.take(&answer("b", Some(StepProgress { step: 103, step_us: 25_000 })), Stamp(0)).unwrap();
    let starts = gathering.starts(&world, Stamp(4_000_000)).unwrap();
    let pace = Some(StepProgress { step: 103 + 425 + 2, step_us: 20_000 });
    let start = |at| TraceStart { at: HostTime(at), pace };
    assert_eq!(starts[0], (HostId::from("a"), start(1_000_000 + LEAD_US)), "by the clock");
    assert_eq!(starts[1], (HostId::from("b"), start(1_000_000 + LEAD_US)), "by its answer");
    assert_eq!(gathering.starts(&world, Stamp(5_000_000)), None, "asked once");
}
