//! What is admitted, what is left out, and what ends a link.

use bytes::{Bytes, BytesMut};

use super::*;
use crate::domain::fixtures::{host_run_status, host_sample};
use crate::domain::gpu::GpuSample;
use crate::domain::host::HostSample;
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::log::Stream;
use crate::domain::note::Note;
use crate::domain::run_status::HostRunStatus;
use crate::domain::time::HostTime;
use crate::wire::chunk::{Chunk, Written};
use crate::wire::frame::Decoder;
use crate::wire::mesh::{MeshAsk, MeshChange, MeshDone, MeshFound, MeshLook, MeshSeen, MeshTold};
use crate::wire::message::{Credit, Follow, ListRuns, Noted, RunRef, Runs, Sampled};
use crate::wire::samples::PastSamples;

fn frame(message: &FromAgent) -> Frame {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes).unwrap();
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    decoder.next_frame().unwrap().unwrap()
}

fn at(ms: i64) -> Stamp {
    Stamp(ms * 1000)
}

fn run() -> RunId {
    RunId::new(1, 1)
}

/// One that follows a run.
fn following() -> Ingress {
    let mut ingress = Ingress::default();
    ingress.begin();
    ingress.greeted();
    let (run, host) = (run(), HostId::from("a"));
    ingress.sent(&ToAgent::Follow(Follow {
        run,
        host,
        from: Vec::new(),
        once: false,
        last: None,
        hurry: false,
        patience_s: None,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    }));
    ingress
}

fn chunk(run: RunId, bytes: usize) -> FromAgent {
    let data = Bytes::from(vec![b'y'; bytes]);
    FromAgent::Chunk(Chunk { run, rank: Rank(0), stream: Stream::Stdout, offset: 0, data })
}

fn sample(gpus: u32) -> FromAgent {
    let sample = HostSample { gpus: (0..gpus).map(GpuSample::unknown).collect(), ..host_sample() };
    FromAgent::Sample(Box::new(Sampled { sample, dropped: 0 }))
}

fn is_admitted(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Admitted(_))
}

#[test]
fn the_piece_that_crosses_the_line_may_come_and_the_next_ends_the_link() {
    let mut ingress = following();
    ingress.sent(&ToAgent::Credit(Credit { until: 32 << 10 }));
    let piece = frame(&chunk(run(), 16 << 10));
    let verdicts: Vec<bool> = (0..3).map(|_| is_admitted(&ingress.admit(at(0), &piece))).collect();
    assert_eq!(verdicts, [true; 3]);
    let Verdict::Refused(why) = ingress.admit(at(0), &piece) else { panic!("it went on") };
    assert!(why.contains("than it was granted: 65536 bytes of 32768"), "{why}");
}

#[test]
fn what_a_host_has_noted_needs_a_request_and_counts_for_the_credit() {
    let mut ingress = following();
    ingress.sent(&ToAgent::Credit(Credit { until: 16 << 10 }));
    let noted = |run, bytes| {
        frame(&FromAgent::PastSamples(PastSamples { run, data: Bytes::from(vec![b'y'; bytes]) }))
    };
    assert!(matches!(ingress.admit(at(0), &noted(RunId::new(2, 2), 1)), Verdict::Dropped));
    assert!(is_admitted(&ingress.admit(at(0), &noted(run(), 16 << 10))));
    let Verdict::Refused(why) = ingress.admit(at(0), &noted(run(), 16 << 10)) else { panic!("it went on") };
    assert!(why.contains("than it was granted"), "{why}");
}

#[test]
fn a_piece_longer_than_one_is_refused() {
    let mut ingress = following();
    ingress.sent(&ToAgent::Credit(Credit { until: 1 << 30 }));
    let verdict = ingress.admit(at(0), &frame(&chunk(run(), (16 << 10) + 1)));
    assert!(matches!(verdict, Verdict::Refused(why) if why.contains("longer than a piece")));
}

/// Eight GPUs sampled ten times a second, 64 ranks that print line by line on both streams, notes: for so long that no room is left of what is there at once.
#[test]
fn a_busy_honest_host_meets_no_limit() {
    let mut ingress = following();
    ingress.sent(&ToAgent::Credit(Credit { until: u64::MAX / 2 }));
    let telemetry = frame(&sample(8));
    let line = frame(&chunk(run(), 200));
    let t = HostTime(0);
    let written = frame(&FromAgent::Written(Written {
        run: run(),
        rank: Rank(0),
        stream: Stream::Stdout,
        until: 1,
        t,
        then: Vec::new(),
    }));
    let note = Note::new("joined", "x".repeat(200), t);
    let noted = FromAgent::Noted(Noted { run: run(), host: HostId::from("a"), number: 0, note });
    let noted = frame(&noted);
    for beat in 0..80 {
        let now = at(beat * 100);
        assert!(is_admitted(&ingress.admit(now, &telemetry)));
        assert!(is_admitted(&ingress.admit(now, &noted)));
        for _ in 0..20 * 64 * 2 {
            assert!(is_admitted(&ingress.admit(now, &written)) && is_admitted(&ingress.admit(now, &line)));
        }
        assert_eq!((ingress.due(now), ingress.over), (None, None));
    }
}

#[test]
fn a_flood_is_left_out_counted_and_ended_and_a_new_link_is_no_new_beginning() {
    let mut ingress = following();
    let telemetry = frame(&sample(1));
    let mut admitted = 0;
    let mut why = None;
    for ms in 0..10_000 {
        match ingress.admit(at(ms), &telemetry) {
            Verdict::Admitted(_) => admitted += 1,
            Verdict::Dropped => {}
            Verdict::Refused(reason) => {
                why = Some((ms, reason));
                break;
            }
        }
    }
    let (ms, why) = why.expect("an end");
    assert!((3_000..3_200).contains(&ms) && why.contains("for 3 s"), "{ms}: {why}");
    assert!((150..170).contains(&admitted), "{admitted}");
    let told = ingress.rest().expect("a count");
    assert_eq!(told.0, MESSAGES);
    assert_eq!(admitted + told.1, ms as u64, "but for the one that ended it");
    assert_eq!(ingress.rest(), None);
    ingress.begin();
    let again = (0..100).filter(|_| is_admitted(&ingress.admit(at(ms), &telemetry))).count();
    assert!(again < 3, "{again}");
    // who keeps still is heard again
    assert!(is_admitted(&ingress.admit(at(ms + 5_000), &telemetry)));
}

#[test]
fn an_answer_to_nothing_is_left_out() {
    let mut ingress = following();
    ingress.sent(&ToAgent::Credit(Credit { until: 1 << 20 }));
    let other = RunId::new(9, 9);
    let about = |run: RunId| RunRef { run, host: HostId::from("a") };
    for message in
        [chunk(other.clone(), 1), FromAgent::Finished(about(other.clone())), FromAgent::Started(about(other))]
    {
        assert_eq!(ingress.admit(at(0), &frame(&message)), Verdict::Dropped);
    }
    assert!(is_admitted(&ingress.admit(at(0), &frame(&FromAgent::Finished(about(run()))))));
}

#[test]
fn a_host_tells_its_runs_when_it_is_asked_and_not_without_end() {
    let share = |number: u64| HostRunStatus {
        run: RunId::new(number, 1),
        name: "x".repeat(1000),
        ..host_run_status(true)
    };
    let list = |last| FromAgent::Runs(Runs { shares: (0..600).map(share).collect(), last });
    let mut ingress = following();
    assert_eq!(ingress.admit(at(0), &frame(&list(true))), Verdict::Dropped);
    ingress.sent(&ToAgent::ListRuns(ListRuns::default()));
    let count = |verdict| match verdict {
        Verdict::Admitted(FromAgent::Runs(runs)) => {
            assert!(runs.shares.iter().all(|share| share.name.len() == 256));
            runs.shares.len()
        }
        other => panic!("{other:?}"),
    };
    let told: Vec<usize> =
        [false, false, true].map(|last| count(ingress.admit(at(0), &frame(&list(last))))).to_vec();
    assert_eq!(told, [600, 424, 0]);
    assert_eq!(ingress.admit(at(0), &frame(&list(true))), Verdict::Dropped);
}

#[test]
fn what_a_host_tells_of_a_mesh_is_no_longer_than_it_can_be() {
    let found = |id: &str, public: usize| MeshFound { id: id.to_owned(), public: Some("k".repeat(public)) };
    let meshes = vec![found(&"f".repeat(257), 80), found("0123abcd", 80), found("0123abce", 4097)];
    let seen = MeshSeen { meshes, problem: Some("p".repeat(5000)) };
    let change = |lines: usize| MeshChange {
        path: "~".repeat(1000),
        what: "w".repeat(1000),
        lines: vec!["l".repeat(5000); lines],
    };
    let mut changes = vec![change(1); 40];
    changes[0].lines = vec![String::new(); 20_000];
    let done = MeshDone { changes, problem: None };
    let [seen, done] = [MeshTold::Seen(seen), MeshTold::Done(done)].map(|told| frame(&FromAgent::Mesh(told)));

    let mut ingress = following();
    assert_eq!(ingress.admit(at(0), &seen), Verdict::Dropped, "it was not asked");
    ingress.sent(&ToAgent::Mesh(MeshAsk::Look(MeshLook {})));
    let Verdict::Admitted(FromAgent::Mesh(MeshTold::Seen(seen))) = ingress.admit(at(0), &seen) else {
        panic!("what it has seen")
    };
    let left = [found("0123abcd", 80), MeshFound { public: None, ..found("0123abce", 0) }];
    assert_eq!(seen.meshes, left);
    assert_eq!(seen.problem.map(|problem| problem.len()), Some(4096 + "…".len()));
    let Verdict::Admitted(FromAgent::Mesh(MeshTold::Done(done))) = ingress.admit(at(0), &done) else {
        panic!("what it has done")
    };
    assert_eq!((done.changes.len(), done.changes[0].lines.len()), (32, 16 << 10));
    let of = |change: &MeshChange| (change.path.len(), change.what.len(), change.lines[0].len());
    assert_eq!(of(&done.changes[1]), (256, 256, 4096 + "…".len()));
}

#[test]
fn what_would_take_many_times_its_frame_is_refused_unread() {
    let mut ingress = following();
    let json = |kind, text: String| Frame { kind, payload: Bytes::from(text) };
    let many = |of: &str, count| format!("{{\"sample\":{{\"gpus\":[{}]}}}}", vec![of; count].join(","));
    for text in ["[".repeat(1 << 20), many("\"\"", 300_000), many("{\"index\":0}", 80_000)] {
        let verdict = ingress.admit(at(0), &json(104, text));
        assert!(matches!(&verdict, Verdict::Refused(why) if why.contains("more than")), "{verdict:?}");
    }
    // of what is within the limits no more is kept than can be
    let Verdict::Admitted(FromAgent::Sample(sampled)) = ingress.admit(at(0), &frame(&sample(1000))) else {
        panic!("a sample")
    };
    assert_eq!(sampled.sample.gpus.len(), 128);
}

/// `cargo test --release --lib ingress -- --ignored --nocapture`: what a second of 64 hosts with eight GPUs costs, decoded alone
/// and admitted.
#[test]
#[ignore = "measures: run it alone, and built with --release"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn what_a_second_of_64_hosts_costs() {
    let telemetry = frame(&sample(8));
    let time = |judge: &mut dyn FnMut(i64)| {
        let began = std::time::Instant::now();
        (0..100 * 64).for_each(judge);
        began.elapsed() / 100
    };
    let mut hosts: Vec<Ingress> = (0..64).map(|_| following()).collect();
    for _ in 0..3 {
        let decoded = time(&mut |_| assert!(FromAgent::decode(&telemetry).is_ok()));
        let counted = time(&mut |_| assert!(crate::wire::limits::check(&telemetry.payload).is_ok()));
        let admitted = time(&mut |count| {
            let now = at(count / 64 * 1000);
            assert!(is_admitted(&hosts[count as usize % 64].admit(now, &telemetry)));
        });
        println!(
            "{} bytes: {decoded:?} decoded, of it {counted:?} counted, {admitted:?} admitted",
            telemetry.payload.len()
        );
        hosts = (0..64).map(|_| following()).collect();
    }
}
