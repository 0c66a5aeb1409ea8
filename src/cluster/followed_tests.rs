use bytes::Bytes;

use super::*;
use crate::domain::fixtures::host_sample;
use crate::domain::ids::HostId;
use crate::domain::log::Stream;

fn follow(run: &RunId, ranks: &[u32]) -> Follow {
    let from = ranks.iter().map(|rank| (Rank(*rank), Stream::Stdout, 0)).collect();
    Follow {
        run: run.clone(),
        host: HostId::from("a"),
        from,
        last: None,
        hurry: false,
        patience_s: None,
        once: false,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    }
}

fn chunk(run: &RunId, rank: u32, offset: u64, text: &'static str) -> Chunk {
    let data = Bytes::from_static(text.as_bytes());
    Chunk { run: run.clone(), rank: Rank(rank), stream: Stream::Stdout, offset, data }
}

fn exit() -> RankExit {
    RankExit { code: Some(0), signal: None, t: HostTime(9), error: None, stopped: false, cause: None }
}

#[test]
fn an_agent_is_heard_only_about_its_own_ranks_of_runs_asked_for() {
    let (ours, other) = (RunId::new(1, 1), RunId::new(2, 2));
    let mut followed = Followed::default();
    followed.begin(&mut follow(&ours, &[0, 1]));
    assert_eq!(followed.chunk(&chunk(&ours, 1, 0, "x\n")).len(), 1);
    for (run, rank) in [(&ours, 2), (&ours, u32::MAX), (&other, 0)] {
        assert!(followed.chunk(&chunk(run, rank, 0, "forged\n")).is_empty());
        assert!(followed.started(run, Rank(rank), 1, HostTime(0)).is_none());
        assert!(followed.exited(run, Rank(rank), exit()).is_empty());
    }
    assert!(!followed.finished(&other));
}

#[test]
fn what_is_repeated_after_a_lost_link_is_dropped_and_reading_goes_on_at_the_byte() {
    let run = RunId::new(1, 1);
    let mut followed = Followed::default();
    followed.begin(&mut follow(&run, &[0]));
    assert!(followed.started(&run, Rank(0), 7, HostTime(1)).is_some());
    assert_eq!(followed.chunk(&chunk(&run, 0, 0, "one\ntw")).len(), 1);
    let [ToAgent::Follow(again)] = &followed.resume()[..] else { panic!("one request") };
    assert_eq!(again.from, [(Rank(0), Stream::Stdout, 6)]);
    assert!(followed.started(&run, Rank(0), 7, HostTime(1)).is_none());
    assert!(followed.chunk(&chunk(&run, 0, 0, "one\n")).is_empty());
    let events: Vec<Event> =
        followed.exited(&run, Rank(0), exit()).into_iter().map(|told| told.event).collect();
    assert!(
        matches!(&events[..], [Event::LogPrinted { line }, Event::RankExited { .. }] if line.text == "tw")
    );
    assert!(followed.exited(&run, Rank(0), exit()).is_empty());
    assert!(followed.finished(&run));
    assert!(followed.resume().is_empty());
}

#[test]
fn a_stop_is_said_again_on_the_next_link_until_the_run_has_finished() {
    let run = RunId::new(1, 1);
    let (host, attempt) = (HostId::from("a"), Some(0));
    let stop = |now| Stop { run: run.clone(), host: host.clone(), now, attempt, whole: false, unread: false };
    let mut followed = Followed::default();
    assert!(!followed.stop(&stop(true)));
    followed.begin(&mut follow(&run, &[0]));
    assert!(followed.stop(&stop(true)));
    assert!(followed.stop(&stop(false)));
    let [ToAgent::Follow(_), ToAgent::Stop(again)] = &followed.resume()[..] else { panic!("two requests") };
    assert!(again.now, "a kill is not taken back");
    assert!(followed.finished(&run));
    assert!(!followed.stop(&stop(false)));
}

#[test]
fn a_stop_that_names_no_attempt_is_said_again_only_for_the_whole_run() {
    let run = RunId::new(1, 1);
    let stop = |whole| {
        let (run, host) = (run.clone(), HostId::from("a"));
        Stop { run, host, now: false, attempt: None, whole, unread: whole }
    };
    let mut followed = Followed::default();
    followed.begin(&mut follow(&run, &[0]));
    followed.stop(&stop(false));
    assert!(
        matches!(&followed.resume()[..], [ToAgent::Follow(_)]),
        "a healthy attempt may run there by then"
    );
    followed.stop(&stop(true));
    followed.stop(&stop(false));
    let [ToAgent::Follow(_), ToAgent::Stop(again)] = &followed.resume()[..] else { panic!("two requests") };
    assert!(again.whole && again.unread, "what was said once stays so");
}

#[test]
fn a_stop_and_a_kill_that_come_with_a_second_request_are_remembered() {
    let run = RunId::new(1, 1);
    let mut followed = Followed::default();
    for (asked, remembered) in [
        (None, None),
        (Some(false), Some(false)),
        (None, Some(false)),
        (Some(true), Some(true)),
        (Some(false), Some(true)),
    ] {
        followed.begin(&mut Follow { stop: asked, ..follow(&run, &[0]) });
        let [ToAgent::Follow(again)] = &followed.resume()[..] else { panic!("one request") };
        assert_eq!(again.stop, remembered);
    }
}

#[test]
fn a_further_attempt_goes_on_where_the_last_one_ended() {
    let run = RunId::new(1, 1);
    let attempt = |number| Follow { attempt: Some(number), ..follow(&run, &[0]) };
    let mut followed = Followed::default();
    followed.begin(&mut attempt(0));
    assert!(followed.started(&run, Rank(0), 7, HostTime(1)).is_some());
    assert_eq!(followed.chunk(&chunk(&run, 0, 0, "one\n")).len(), 1);
    assert_eq!(followed.exited(&run, Rank(0), exit()).len(), 1);
    assert!(followed.finished(&run));
    let mut second = attempt(1);
    followed.begin(&mut second);
    assert_eq!(second.from, [(Rank(0), Stream::Stdout, 4)]);
    assert!(followed.started(&run, Rank(0), 8, HostTime(2)).is_some(), "it starts again");
    assert!(followed.chunk(&chunk(&run, 0, 0, "one\n")).is_empty(), "what was printed before is known");
    assert_eq!(followed.chunk(&chunk(&run, 0, 4, "two\n")).len(), 1);
    assert_eq!(followed.exited(&run, Rank(0), exit()).len(), 1);
    // who asks for it from its beginning gets it so
    assert!(followed.finished(&run));
    let mut whole = follow(&run, &[0]);
    followed.begin(&mut whole);
    assert_eq!(whole.from, [(Rank(0), Stream::Stdout, 0)]);
}

#[test]
fn what_a_host_has_noted_is_taken_for_a_followed_run_and_asked_for_until_all_has_come() {
    let run = RunId::new(1, 1);
    let sample = HostSample { cpu_percent: Reading::Value(7.0), ..host_sample() };
    let data = crate::wire::samples::record(HostTime(5), &sample).unwrap().into();
    let past = PastSamples { run: run.clone(), data };
    let mut followed = Followed::default();
    assert!(followed.past_samples(&past).is_empty());
    followed.begin(&mut Follow { samples_us: Some(7), ..follow(&run, &[0]) });
    let asked = |followed: &Followed| {
        let [ToAgent::Follow(again)] = &followed.resume()[..] else { panic!("one request") };
        again.samples_us
    };
    assert_eq!(asked(&followed), Some(7));
    assert_eq!(followed.past_samples(&past), [(HostTime(5), Arc::new(sample))]);
    assert_eq!(asked(&followed), Some(7), "a link that is lost now may have swallowed others");
    let last = PastSamples { data: bytes::Bytes::new(), ..past };
    assert!(followed.past_samples(&last).is_empty());
    assert_eq!(asked(&followed), None);
}
