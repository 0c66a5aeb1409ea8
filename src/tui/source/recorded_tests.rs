use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;
use rustix::fs::{CWD, FileType, Mode};

use super::*;
use crate::domain::analysis::fixtures;
use crate::domain::clock_fit::ClockSample;
use crate::domain::fixtures::{placement, run_spec};
use crate::domain::ids::Rank;
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::run::RankExit;
use crate::domain::time::HostTime;
use crate::record::Reader;
use crate::tui::source::finishing::Finishing;

/// A folder for recordings whose disk stands still for a run until its [`gate`](Still::gate) is read.
struct Still {
    state: tempfile::TempDir,
    run: RunId,
}

impl Still {
    fn new() -> Self {
        let still = Self { state: tempfile::tempdir().unwrap(), run: RunId::new(1, 1) };
        std::fs::create_dir_all(still.gate().parent().unwrap()).unwrap();
        // a pipe is not opened before there is a reader
        rustix::fs::mknodat(CWD, still.gate(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        still
    }

    fn path(&self) -> PathBuf {
        Store::new(self.state.path()).path_of(&self.run)
    }

    fn gate(&self) -> PathBuf {
        self.path().with_file_name("lock")
    }

    /// Lets the disk go on as soon as it is dropped: whatever waits for it ends also where a test fails.
    fn opener(&self) -> Opener {
        Opener(self.gate())
    }

    fn spec(&self) -> RunSpec {
        RunSpec {
            id: self.run.clone(),
            name: "still".into(),
            created: Stamp(1),
            ..run_spec(vec![placement(0, "a", 0)])
        }
    }

    /// Records a run from its beginning to its end.
    fn record(&self) -> Recorded {
        let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
        let mut recorded = Recorded::new(session, self.state.path());
        let outcome = RunOutcome {
            end: RunEnd::Stopped,
            refusal: None,
            root: None,
            code: None,
            at: None,
            evidence: None,
            summary: "stopped".to_owned(),
        };
        let events =
            [Event::RunCreated { spec: std::sync::Arc::new(self.spec()) }, Event::RunEnded { outcome }];
        for (seq, event) in (0..).zip(events) {
            let origin = Origin::Run(self.run.clone());
            let envelope = Envelope { seq, at: Stamp(1), origin, event };
            recorded.take(Output::Event(Box::new(envelope)));
        }
        recorded
    }
}

struct Opener(PathBuf);

impl Drop for Opener {
    fn drop(&mut self) {
        // waits until there is a writer, which then goes on
        drop(std::fs::File::open(&self.0));
    }
}

#[tokio::test]
async fn a_launch_that_is_called_off_while_a_disk_is_waited_for_is_not_told_of_as_launched() {
    let state = tempfile::tempdir().unwrap();
    let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
    let mut recorded = Recorded::new(session, state.path());
    recorded.take(Output::Launched(RunId::new(1, 1)));
    recorded.take(Output::Remark("x".to_owned()));
    recorded.forget_launches(Vec::new());
    assert!(matches!(recorded.told.make_contiguous(), [Told::Output(Output::Remark(_))]));
}

#[tokio::test]
async fn neither_the_beginning_nor_the_end_of_a_recording_waits_for_the_disk() {
    let still = Still::new();
    let mut recorded = still.record();
    let opened = still.opener();
    assert!(!still.path().exists(), "the disk stands still");
    assert_eq!(recorded.trouble(), None);
    while recorded.try_next().is_some() {}
    assert!(recorded.is_recorded(&still.run));
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    let words = finishing.words().unwrap();
    assert!(words.contains(&format!("to be written to {}; ctrl-c", still.path().display())), "{words}");
    // what is done with recordings from now on waits for this one
    let (so_far, passed) = (finishing.so_far(), std::sync::mpsc::channel());
    let waiting = std::thread::spawn(move || {
        so_far.wait();
        passed.0.send(()).unwrap();
    });
    assert!(passed.1.recv_timeout(Duration::from_millis(50)).is_err());
    assert!(finishing.next().now_or_never().is_none());
    drop(opened);
    recorded.finished(finishing.next().await);
    waiting.join().unwrap();
    passed.1.try_recv().unwrap();
    assert_eq!((recorded.trouble(), finishing.words()), (None, None));
    finishing.so_far().wait();
    let reader = Reader::open(&still.path()).unwrap();
    assert_eq!(reader.outcome().map(|outcome| outcome.end), Some(RunEnd::Stopped));
    assert!(reader.integrity().damage().is_none());
}

#[tokio::test]
async fn a_recording_that_could_not_be_begun_is_told_once() {
    let still = Still::new();
    std::fs::write(still.path(), "something else").unwrap();
    let mut recorded = still.record();
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    recorded.finished(finishing.next().await);
    let trouble = recorded.trouble().unwrap();
    assert!(trouble.contains("is not recorded: ") && trouble.contains("is there already"), "{trouble}");
    assert!(recorded.trouble().is_none() && !recorded.is_recorded(&still.run));
}

/// A run that is attached to, of which nothing is recorded, and how it is shown at first.
fn attached() -> (Still, Recorded, RunState) {
    let still = Still { state: tempfile::tempdir().unwrap(), run: RunId::new(1, 1) };
    let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
    let mut recorded = Recorded::new(session, still.state.path());
    let resumed = Resumed::open(&Store::new(still.state.path()), &still.run);
    let first = recorded.attach_shown(still.spec(), resumed, Backfill::Whole);
    (still, recorded, first)
}

/// A step of the run's only rank, as its host tells it long after: by the host's clock, which is that of the client.
fn step(still: &Still, step: u64) -> (Origin, Event) {
    let mut timing = fixtures::timing(step, [100; 6]);
    timing.start = HostTime(1_000_000 * step);
    (Origin::Rank(still.run.clone(), Rank(0)), Event::StepDone { timing: Arc::new(timing) })
}

#[tokio::test]
async fn of_a_run_that_is_attached_to_it_is_told_how_it_stands_and_then_its_end() {
    let (still, mut recorded, first) = attached();
    assert!(first.is_behind && first.step().is_none());
    let sample = ClockSample { host_time: HostTime(90_000_000), offset_us: 0, rtt_us: 200 };
    let mut events = vec![(Origin::Host(HostId::from("a")), Event::ClockSampled { sample })];
    events.extend((1..=50).map(|number| step(&still, number)));
    let ended = RunOutcome::new(RunEnd::Finished, "the rank finished");
    events.push((Origin::Run(still.run.clone()), Event::RunEnded { outcome: ended }));
    let mut told = Vec::new();
    while let Some(one) = recorded.try_next() {
        told.push(one);
    }
    let attached = told.len();
    for ((origin, event), seq) in events.into_iter().zip(100..) {
        let envelope = Envelope { seq, at: Stamp(100_000_000), origin, event };
        recorded.take(Output::Event(Box::new(envelope)));
    }
    while !matches!(&told.last(), Some(Told::Output(Output::Event(last))) if last.origin.run().is_some()) {
        told.push(recorded.next().await);
    }
    let words = told[attached..].iter().map(|told| match told {
        Told::CaughtUp(run) => format!("stands at step {}", run.step().unwrap_or(0)),
        Told::Output(Output::Event(envelope)) => match &envelope.event {
            Event::ClockSampled { .. } => "clock".to_owned(),
            Event::RunEnded { .. } => "ended".to_owned(),
            other => format!("{other:?}"),
        },
        Told::Output(other) => format!("{other:?}"),
    });
    assert_eq!(words.collect::<Vec<_>>(), ["clock", "stands at step 50", "ended"]);
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    recorded.finished(finishing.next().await);
    assert_eq!(recorded.trouble(), None);
    let reader = Reader::open(&still.path()).unwrap();
    let all: Vec<Envelope> = reader.envelopes(..).map(|envelope| envelope.unwrap()).collect();
    let steps = all.iter().filter(|envelope| matches!(envelope.event, Event::StepDone { .. })).count();
    assert_eq!(steps, 50, "each once");
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq && pair[0].at <= pair[1].at), "{all:#?}");
}

#[tokio::test]
async fn what_waits_when_a_session_is_closed_is_recorded() {
    let (still, mut recorded, _) = attached();
    while recorded.try_next().is_some() {}
    for number in 1..=20_000 {
        let (origin, event) = step(&still, number);
        let envelope = Envelope { seq: 100 + number, at: Stamp(100_000_000), origin, event };
        recorded.take(Output::Event(Box::new(envelope)));
    }
    recorded.close();
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    recorded.finished(finishing.next().await);
    assert_eq!(recorded.trouble(), None);
    let reader = Reader::open(&still.path()).unwrap();
    let steps = reader.envelopes(..).filter(|envelope| {
        matches!(envelope.as_ref().map(|envelope| &envelope.event), Ok(Event::StepDone { .. }))
    });
    assert_eq!(steps.count(), 20_000);
}

/// A run that is followed from its beginning, on a host whose clock is that of the client.
fn followed() -> (Still, Recorded) {
    let still = Still { state: tempfile::tempdir().unwrap(), run: RunId::new(1, 1) };
    let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
    let mut recorded = Recorded::new(session, still.state.path());
    let sample = ClockSample { host_time: HostTime(1), offset_us: 0, rtt_us: 200 };
    come(&mut recorded, 1, Origin::Host(HostId::from("a")), Event::ClockSampled { sample });
    let spec = Arc::new(still.spec());
    come(&mut recorded, 1, Origin::Run(still.run.clone()), Event::RunCreated { spec });
    (still, recorded)
}

const S: i64 = 1_000_000;

/// Something comes then.
fn come(recorded: &mut Recorded, at: i64, origin: Origin, event: Event) {
    recorded.take(Output::Event(Box::new(Envelope { seq: 0, at: Stamp(at), origin, event })));
}

/// The run's only rank ended then.
fn exited(still: &Still, t: u64) -> (Origin, Event) {
    let (code, signal, error, cause) = (Some(0), None, None, None);
    let exit = RankExit { code, signal, t: HostTime(t), error, stopped: false, cause };
    (Origin::Rank(still.run.clone(), Rank(0)), Event::RankExited { exit })
}

fn sampled() -> (Origin, Event) {
    (Origin::Host(HostId::from("a")), fixtures::blank_sample())
}

/// What a recording holds in its order: of which moment it is, and what.
async fn written(mut recorded: Recorded, still: &Still) -> Vec<(i64, &'static str)> {
    let mut finishing = Finishing::default();
    finishing.take(&mut recorded);
    recorded.finished(finishing.next().await);
    assert_eq!(recorded.trouble(), None);
    let all = Reader::open(&still.path()).unwrap();
    let all = all.envelopes(..).map(Result::unwrap).filter_map(|envelope| {
        let what = match envelope.event {
            Event::HostSampled { .. } => "sample",
            Event::StepDone { .. } => "step",
            Event::RankExited { .. } => "exit",
            Event::RunEnded { .. } => "end",
            _ => return None,
        };
        Some((envelope.at.0, what))
    });
    all.collect()
}

fn ended(still: &Still, at: i64) -> (Origin, Event) {
    let outcome = RunOutcome { at: Some(Stamp(at)), ..RunOutcome::new(RunEnd::Finished, "done") };
    (Origin::Run(still.run.clone()), Event::RunEnded { outcome })
}

/// When a step ends, as its host tells it.
fn end_of_step(still: &Still, number: u64) -> i64 {
    let (_, event) = step(still, number);
    event.host_times().unwrap().1.0 as i64
}

/// Steps come late, a sample behind each; then the end, which takes ten seconds.
#[tokio::test]
async fn what_hosts_tell_of_themselves_is_recorded_behind_what_happened_before_it() {
    let (still, mut recorded) = followed();
    let all = [(1, 1), (5, 2), (6, 4), (7, 7)].map(|(second, number)| (second, step(&still, number)));
    for (second, (origin, event)) in all.into_iter().chain([(8, exited(&still, 7_700_000))]) {
        come(&mut recorded, second * S + 900_000, origin, event);
        let (origin, event) = sampled();
        come(&mut recorded, second * S + 900_001, origin, event);
    }
    for second in 9..19 {
        let (origin, event) = sampled();
        come(&mut recorded, second * S, origin, event);
    }
    let (origin, event) = ended(&still, 7_700_000);
    come(&mut recorded, 19 * S, origin, event);
    let step = |number: u64| (end_of_step(&still, number), "step");
    let sample = |at: i64| (at, "sample");
    let expected = [
        step(1),
        sample(1_900_001),
        step(2),
        step(4),
        sample(5_900_001),
        sample(6_900_001),
        step(7),
        (7_700_000, "exit"),
        (7_700_000, "end"),
    ];
    assert_eq!(written(recorded, &still).await, expected);
}

/// The screen has not been told yet how the run stands.
#[tokio::test]
async fn what_comes_late_behind_what_was_caught_up_with_has_its_time() {
    let (still, mut recorded, _) = attached();
    let sample = ClockSample { host_time: HostTime(90_000_000), offset_us: 0, rtt_us: 200 };
    come(&mut recorded, 100 * S, Origin::Host(HostId::from("a")), Event::ClockSampled { sample });
    for number in [49, 50] {
        let (origin, event) = step(&still, number);
        come(&mut recorded, 100 * S, origin, event);
    }
    let catches_up = |recorded: &Recorded| recorded.behind.values().any(Behind::is_catching_up);
    let mut samples = Vec::new();
    while catches_up(&recorded) {
        let (origin, event) = sampled();
        samples.push((100 * S + S / 2 * (samples.len() as i64 + 1), "sample"));
        come(&mut recorded, samples.last().unwrap().0, origin, event);
    }
    assert!(!recorded.behind.is_empty(), "it is not shown yet");
    for (origin, event) in [step(&still, 60), step(&still, 61), sampled(), exited(&still, 70_000_000)] {
        come(&mut recorded, 110 * S, origin, event);
    }
    let (origin, event) = ended(&still, 70_000_000);
    come(&mut recorded, 112 * S, origin, event);
    let step = |number: u64| (end_of_step(&still, number), "step");
    let mut expected = vec![step(49), step(50)];
    expected.extend(samples);
    expected.extend([step(60), step(61), (70_000_000, "exit"), (70_000_000, "end")]);
    assert_eq!(written(recorded, &still).await, expected);
}

#[tokio::test]
async fn a_run_that_is_withdrawn_leaves_no_recording() {
    let state = tempfile::tempdir().unwrap();
    let session = Session::new(Vec::new(), Vec::new(), "/".to_owned());
    let mut recorded = Recorded::new(session, state.path());
    let (lost, kept) = (RunId::new(1, 1), RunId::new(1, 2));
    for (seq, run) in (0..).zip([&lost, &kept]) {
        let spec = RunSpec { id: run.clone(), ..run_spec(vec![placement(0, "a", 0)]) };
        let (origin, event) = (Origin::Run(run.clone()), Event::RunCreated { spec: Arc::new(spec) });
        recorded.take(Output::Event(Box::new(Envelope { seq, at: Stamp(1), origin, event })));
    }
    recorded.take(Output::Withdrawn(lost.clone()));
    let mut ended = recorded.take_ended();
    let finished = ended.pop().unwrap().finish();
    assert!(ended.is_empty());
    assert_eq!(finished.trouble(), None);
    let store = Store::new(state.path());
    assert!(!store.path_of(&lost).parent().unwrap().exists());
    recorded.close();
    for ended in recorded.take_ended() {
        recorded.finished(ended.finish());
    }
    assert!(store.path_of(&kept).exists());
}
