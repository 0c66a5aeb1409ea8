//! Alerts of runs: GPUs that are held and idle, processes beside a run, hangs, failures, full disks.

use super::*;
use crate::domain::fixtures::log_line;
use crate::domain::note::what;
use crate::domain::run::RunStage;
use crate::domain::time::HostTime;
use crate::domain::waiting::Waiting;

#[test]
fn a_gpu_that_is_held_and_computes_nothing_is_told() {
    let mut script = Script::new();
    script.world.alerts.rules =
        Arc::new(AlertRules { held_idle_us: Some(60 * SECOND), ..AlertRules::default() });
    let gpu = |util, processes: Vec<GpuProcess>| GpuSample {
        util: Reading::Value(util),
        memory_used: Reading::Value(96 << 30),
        memory_total: Reading::Value(141 << 30),
        processes: Reading::Value(processes),
        ..GpuSample::unknown(0)
    };
    script.samples(200, &gpu(0, Vec::new()));
    assert_eq!(script.told(), [], "nothing holds it");
    let held = |util| gpu(util, vec![process("wang", None)]);
    script.samples(50, &held(1));
    script.samples(1, &held(2));
    script.samples(60, &held(0));
    assert_eq!(script.told(), [], "it computed meanwhile");
    script.samples(1, &held(0));
    assert_eq!(script.told(), [(AlertKind::HeldIdle, "a:0".to_owned(), 252, None)]);
    assert_eq!(script.words(), ["held and idle: wang python train.py (pid 7), 96/141 G"]);
    script.samples(1, &gpu(0, Vec::new()));
    assert_eq!(script.told()[0].3, Some(313), "it is let go");
}

#[test]
fn filters_and_rows_call_a_leased_gpu_idle_when_its_alert_begins() {
    let mut script = Script::new();
    script.world.alerts.rules =
        Arc::new(AlertRules { held_idle_us: Some(20 * SECOND), ..AlertRules::default() });
    let theirs = Lease { own: false, ..lease(&RunId::new(1, 1)) };
    let gpu =
        GpuSample { util: Reading::Value(0), processes: Reading::Value(Vec::new()), ..GpuSample::unknown(0) };
    script.samples(100, &gpu);
    script.host(Event::LeasesTold { leases: Leases { held: vec![theirs], ..Leases::default() } });
    let seen = |script: &Script| {
        let state = &script.world.hosts[&HostId::from("a")];
        (idle_us(state, 0), is_idle(state, 0), script.told().len())
    };
    script.samples(20, &gpu);
    assert_eq!(seen(&script), (None, Some(false), 0), "it was free before");
    script.samples(1, &gpu);
    assert_eq!(seen(&script), (Some(20 * SECOND), Some(true), 1));
}

#[test]
fn a_process_beside_the_run_that_leases_a_gpu_is_told() {
    let mut script = Script::new();
    let run = script.run();
    let gpu = |process: &GpuProcess| GpuSample {
        processes: Reading::Value(vec![process.clone()]),
        ..GpuSample::unknown(0)
    };
    script.samples(30, &gpu(&process("wang", None)));
    assert_eq!(script.told(), [], "it is not leased");
    let mut leases = Leases { held: vec![lease(&run)], ..Leases::default() };
    script.host(Event::LeasesTold { leases: leases.clone() });
    let small = GpuProcess { memory: Reading::Value(300 << 20), ..process("wang", None) };
    let unknown = GpuProcess { user: Reading::Unsupported, ..process("wang", None) };
    for own in [process("li", Some(&run)), process("li", None), small, unknown] {
        script.samples(30, &gpu(&own));
    }
    assert_eq!(script.told(), []);
    script.samples(11, &gpu(&process("wang", None)));
    let place = format!("run {} rank 0 (a:0)", run.short());
    assert_eq!(script.told(), [(AlertKind::ForeignProcess, place, 151, None)]);
    let words = format!("4.0 G held by wang python train.py (pid 7) beside run {}", run.short());
    assert_eq!(script.words(), [words]);
    let other = RunId::new(2, 2);
    script.samples(11, &gpu(&process("li", Some(&run))));
    script.samples(11, &gpu(&process("li", Some(&other))));
    assert_eq!(script.told().len(), 2, "another run of the same user");
    leases.beside.push(lease(&other));
    script.host(Event::LeasesTold { leases });
    script.samples(11, &gpu(&process("li", Some(&other))));
    assert!(script.told()[1].3.is_some(), "it shares the GPU with leave");
}

fn busy(watts: u32, sm_active: Reading<u32>) -> GpuSample {
    GpuSample {
        util: Reading::Value(100),
        power_mw: Reading::Value(watts * 1000),
        power_limit_mw: Reading::Value(700_000),
        sm_active_percent: sm_active,
        ..GpuSample::unknown(0)
    }
}

#[test]
fn a_busy_gpu_without_work_and_steps_is_a_hang() {
    let hang_of = |gpu: &GpuSample| {
        let mut script = Script::new();
        let run = script.run();
        script.samples(10, &busy(600, Reading::Value(90)));
        for step in 1..=20 {
            script.step(&run, 0, step);
        }
        script.samples(29, gpu);
        assert_eq!(script.told(), [], "a pause");
        script.samples(12, gpu);
        (script, run)
    };
    let (mut script, run) = hang_of(&busy(180, Reading::Value(12)));
    let place = format!("run {} rank 0 (a:0)", run.short());
    assert_eq!(script.told(), [(AlertKind::Hang, place.clone(), 10, None)]);
    let words = "no step after 20: GPU 100 % busy at 180 of 700 W, 12 % of its SMs active";
    assert_eq!(script.words(), [words]);
    script.samples(600, &busy(600, Reading::Value(90)));
    assert_eq!(script.told().len(), 1, "until it takes a step, whatever the GPU does");
    script.step(&run, 0, 21);
    script.samples(1, &busy(600, Reading::Value(90)));
    assert_eq!(script.told(), [(AlertKind::Hang, place, 10, Some(652))]);

    assert_eq!(hang_of(&busy(180, Reading::Unsupported)).0.told().len(), 1, "without GPM the power decides");
    assert_eq!(hang_of(&busy(340, Reading::Unsupported)).0.told().len(), 1, "it drew 600 W when it worked");
    assert_eq!(hang_of(&busy(600, Reading::Value(12))).0.told(), [], "a long step");
    assert_eq!(hang_of(&busy(180, Reading::Value(70))).0.told(), [], "its SMs work");
    let slow = GpuSample { util: Reading::Value(60), ..busy(180, Reading::Value(12)) };
    assert_eq!(hang_of(&slow).0.told(), []);
}

#[test]
fn a_standstill_that_lasts_is_a_hang_and_ends_with_the_run() {
    let mut script = Script::new();
    let run = script.run();
    script.step(&run, 0, 56);
    script.step(&run, 1, 56);
    for (rank, phase) in [(0, Phase::Wait), (1, Phase::Data)] {
        let standing = StalledPhase { phase, step: 57, for_us: 1_000_000, stopped: false, at: None };
        script.now = 1;
        script.tell(Origin::Rank(run.clone(), Rank(rank)), Event::RankStands { standing });
    }
    script.samples(38, &GpuSample::unknown(0));
    assert_eq!(script.told(), []);
    script.samples(1, &GpuSample::unknown(0));
    let place = format!("run {} rank 1 (a)", run.short());
    assert_eq!(script.told(), [(AlertKind::Hang, place, 0, None)]);
    assert!(
        script.words()[0].starts_with("stands still in step 57: rank 1 in data; "),
        "{:?}",
        script.words()
    );
    let outcome = crate::domain::outcome::RunOutcome::new(crate::domain::outcome::RunEnd::Stopped, "stopped");
    script.tell(Origin::Run(run), Event::RunEnded { outcome });
    assert_eq!(script.told()[0].3, Some(40));
}

#[test]
fn ranks_of_a_host_that_is_not_reached_do_not_hang() {
    let mut script = Script::new();
    let run = script.run();
    script.step(&run, 0, 56);
    let standing = StalledPhase { phase: Phase::Data, step: 57, for_us: 1_000_000, stopped: false, at: None };
    script.tell(Origin::Rank(run, Rank(0)), Event::RankStands { standing });
    let state = LinkState::Down { reason: "gone".to_owned(), retry_at: None };
    script.host(Event::LinkChanged { state });
    for second in 1..300 {
        script.world.tick(Stamp(second * SECOND));
    }
    assert_eq!(script.told().iter().map(|told| told.0).collect::<Vec<_>>(), [AlertKind::HostDown]);
}

fn exit(code: i32, stopped: bool) -> RankExit {
    RankExit { code: Some(code), signal: None, t: HostTime(1), error: None, stopped, cause: None }
}

#[test]
fn the_rank_that_failed_first_is_told_alone() {
    let mut script = Script::new();
    let run = script.run();
    script.now = 5;
    script.tell(Origin::Rank(run.clone(), Rank(1)), Event::RankExited { exit: exit(3, false) });
    script.now = 6;
    script.tell(Origin::Rank(run.clone(), Rank(0)), Event::RankExited { exit: exit(1, false) });
    let place = format!("run {} rank 1 (a)", run.short());
    assert_eq!(script.told(), [(AlertKind::RankFailed, place, 5, Some(5))]);
    assert_eq!(script.words(), ["failed first: exit 3"]);
    assert!(script.world.alerts.all().all(Alert::is_moment));
}

#[test]
fn a_later_cause_takes_the_place_of_the_one_that_was_told_in_the_same_attempt() {
    let mut script = Script::new();
    let run = script.run();
    let line = log_line(0, "EOFError");
    script.now = 5;
    script.tell(Origin::Rank(run.clone(), Rank(0)), Event::LogPrinted { line: Arc::new(line) });
    script.tell(Origin::Rank(run.clone(), Rank(0)), Event::RankExited { exit: exit(1, false) });
    assert_eq!(script.words(), ["failed first: exit 1"]);
    script.now = 6;
    script.tell(Origin::Rank(run.clone(), Rank(1)), Event::RankExited { exit: exit(3, false) });
    let of = |rank: u32, at| {
        let place = script_place(&run, rank);
        (AlertKind::RankFailed, place, at, Some(at))
    };
    assert_eq!(script.told(), [of(1, 6)]);
    assert_eq!(script.words(), ["failed: exit 3"]);
    // that of the next attempt is another one
    script.now = 8;
    let why = "rank 1 failed".to_owned();
    script.tell(Origin::Run(run.clone()), Event::RunRestarted { attempt: 2, of: 2, why, root: Rank(1) });
    let (stage, waiting_for) = (RunStage::Prepare, Waiting::default());
    script.tell(Origin::Run(run.clone()), Event::StageEntered { stage, waiting_for });
    script.now = 9;
    script.tell(Origin::Rank(run.clone(), Rank(1)), Event::RankExited { exit: exit(3, false) });
    assert_eq!(script.told(), [of(1, 6), of(1, 9)]);
}

fn script_place(run: &RunId, rank: u32) -> String {
    format!("run {} rank {rank} (a)", run.short())
}

#[test]
fn a_full_disk_and_a_run_of_another_terminal_are_told() {
    let mut script = Script::new();
    let run = script.run();
    let note = Note::new(what::SPOOL, "the disk is nearly full", HostTime(1));
    script.tell(Origin::Run(run.clone()), Event::RunNoted { host: "a".into(), note });
    let other = RunId::new(2, 2);
    let leases = Leases { held: vec![lease(&run), lease(&other)], ..Leases::default() };
    for _ in 0..3 {
        script.host(Event::LeasesTold { leases: leases.clone() });
    }
    let of_others = Lease { own: false, ..lease(&RunId::new(3, 3)) };
    script.host(Event::LeasesTold { leases: Leases { held: vec![of_others], ..Leases::default() } });
    let expected = [
        (AlertKind::DiskFull, format!("run {} (a)", run.short()), 0, Some(0)),
        (AlertKind::LiveRun, format!("run {}", other.short()), 0, Some(0)),
    ];
    assert_eq!(script.told(), expected);
    assert_eq!(script.words(), ["the disk is nearly full", "mnist of li is live on a"]);
}

#[test]
fn what_happened_while_a_run_was_not_followed_is_told_once_it_has_caught_up() {
    let mut script = Script::new();
    let run = script.run();
    script.now = 3;
    script.step(&run, 0, 1);
    let mut known = script.world.runs[&run].clone();
    let mut later = script.world.clone();
    let note = Note::new(what::SPOOL, "the disk is nearly full", HostTime(1));
    let events = [
        (Origin::Run(run.clone()), Event::RunNoted { host: "a".into(), note }),
        (Origin::Rank(run.clone(), Rank(1)), Event::RankExited { exit: exit(3, false) }),
    ];
    for ((origin, event), at) in events.into_iter().zip(4..) {
        later.apply(&Envelope { seq: 9, at: Stamp(at * SECOND), origin, event });
    }
    let caught_up = later.runs.remove(&run).unwrap();
    known.is_behind = true;
    script.world.stands(known, Stamp(60 * SECOND));
    assert_eq!(script.told(), []);
    script.world.stands(caught_up.clone(), Stamp(62 * SECOND));
    assert_eq!(script.words(), ["failed first: exit 3", "the disk is nearly full"]);
    // what was known before is not told again
    script.world.stands(caught_up, Stamp(70 * SECOND));
    assert_eq!(script.told().len(), 2);
}
