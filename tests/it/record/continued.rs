//! A recording that several clients wrote, one after the other: it reads as one.

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::log::Stream;
use hvtui::domain::outcome::{RunEnd, RunOutcome};
use hvtui::domain::time::Stamp;
use hvtui::record::{Error, Integrity, Lock, Player, Reader, Recorder, Store, Writer};

use super::events::{run, spec};
use super::{assert_refused, read, write};

/// Records `envelopes` as a client does that goes on with what is there.
fn go_on(path: &std::path::Path, envelopes: &[Envelope]) {
    let recorder = Recorder::resume(Lock::take(path).unwrap()).unwrap();
    for envelope in envelopes {
        recorder.send(envelope.clone());
    }
    recorder.finish().unwrap();
}

#[test]
fn files_that_follow_each_other_are_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/x/run.mcap");
    let all = run(2, 12);
    let (first, rest) = all.split_at(all.len() / 3);
    // between the last two some time passes: all of the one was told before all of the other
    let passes = |at: &usize| {
        let (before, behind) = rest.split_at(*at);
        before.iter().map(|one| one.at).max() < behind.iter().map(|one| one.at).min()
    };
    let half = (rest.len() / 2..rest.len()).find(passes).unwrap();
    let (second, third) = rest.split_at(half);
    go_on(&path, first);
    // the client was killed in the middle of a write: what was lost comes again
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let kept = Reader::open(&path).unwrap().resume_state().unwrap().resume_point.next_seq;
    let lost: Vec<Envelope> = first.iter().filter(|envelope| envelope.seq >= kept).cloned().collect();
    assert!(!lost.is_empty());
    // one that was killed at once leaves the beginning of a file, or nothing
    std::fs::write(path.with_file_name("run.2.mcap"), b"\x89MCAP0").unwrap();
    go_on(&path, &[&lost[..], second].concat());
    go_on(&path, third);

    let reader = Reader::open(&path).unwrap();
    assert_eq!(read(&reader), all);
    assert_eq!(reader.integrity(), &Integrity::Complete);
    assert_eq!(reader.outcome().map(hvtui::domain::outcome::RunOutcome::exit_code), Some(0));
    assert_eq!(reader.range().unwrap().1, all.last().unwrap().at);
    let gaps = reader.unattended();
    assert!(gaps.iter().all(|(from, to)| from < to) && gaps.len() <= 2, "{gaps:?}");
    assert_eq!(gaps.last(), Some(&(second.last().unwrap().at, third[0].at)), "{gaps:?}");
    let mut player = Player::new(reader);
    assert_eq!(player.state().unattended, gaps);
    player.seek(all.last().unwrap().at);
    let world = player.advance(all[0].at).reset.unwrap();
    assert!(world.runs.values().all(|run| run.outcome.is_some()));
}

#[test]
fn what_was_not_followed_ends_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let all = run(2, 6);
    let known = all.len() / 2;
    go_on(&path, &all[..known]);
    let since = all[known - 1].at;
    let at = |seconds: i64| since.plus_micros(seconds * 1_000_000);
    let tell = |seq: u64, at: Stamp, event: Event| {
        let origin = Origin::Run(spec(2).id);
        Envelope { seq: all[known - 1].seq + seq, at, origin, event }
    };
    // it ended 64 s later, and a minute after that a client looked at it
    let attached = Event::Attached { since: Some(since), until: Some(at(127)) };
    let outcome = RunOutcome { at: Some(at(64)), ..RunOutcome::new(RunEnd::Finished, "all ranks done") };
    go_on(&path, &[tell(1, since, attached), tell(2, at(127), Event::RunEnded { outcome })]);
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.unattended(), [(since, at(64))]);
    let world = reader.resume_state().unwrap().world;
    assert_eq!(world.runs[&spec(2).id].unattended, [(since, at(64))]);
}

#[test]
fn a_replay_finds_what_the_next_client_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/x/run.mcap");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let all = run(2, 12);
    let (first, rest) = all.split_at(all.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
    for envelope in first {
        writer.push(envelope).unwrap();
    }
    writer.flush().unwrap();
    let mut player = Player::open(&path).unwrap();
    assert_eq!(player.state().end, first.last().unwrap().at);
    // it was killed, and the next one was as it began
    drop(writer);
    std::fs::write(path.with_file_name("run.2.mcap"), b"\x89MCAP0").unwrap();
    // long after it was written to
    let now = Stamp(4_000_000_000_000_000);
    assert!(!player.grow(now) && player.may_grow() && player.state().damage.is_none());
    go_on(&path, second);
    assert!(path.with_file_name("run.3.mcap").exists());
    let recorded = || Reader::open(&path).unwrap().range().unwrap().1;
    assert!(player.grow(now) && player.state().end == recorded());
    assert!(recorded() > first.last().unwrap().at);
    // that one has closed its file, and the run goes on
    assert!(player.may_grow() && !player.state().growing);
    go_on(&path, third);
    assert!(player.grow(now) && player.state().end == third.last().unwrap().at);
    assert!(!player.may_grow(), "the run has ended");
    player.follow();
    let world = player.advance(now).reset.unwrap();
    assert_eq!(world.runs, Reader::open(&path).unwrap().resume_state().unwrap().world.runs);
    assert_eq!(player.state().unattended, Reader::open(&path).unwrap().unattended());
}

#[test]
fn the_list_tells_the_end_that_a_later_file_holds() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let path = store.path_of(&spec(1).id);
    let all = run(2, 6);
    go_on(&path, &all[..all.len() / 2]);
    assert_eq!(store.list().unwrap().runs[0].outcome, None);
    go_on(&path, &all[all.len() / 2..]);
    let listed = &store.list().unwrap().runs[0];
    assert_eq!(
        (listed.outcome.as_ref().map(hvtui::domain::outcome::RunOutcome::exit_code), listed.damage.as_ref()),
        (Some(0), None)
    );
    let sizes = ["run.mcap", "run.2.mcap"].map(|name| path.with_file_name(name).metadata().unwrap().len());
    assert_eq!(listed.bytes, sizes[0] + sizes[1]);
}

#[test]
fn one_process_at_a_time_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let recorder = Recorder::resume(Lock::take(&path).unwrap()).unwrap();
    assert!(matches!(Lock::take(&path), Err(Error::Busy(_))));
    assert_refused(&path);
    recorder.finish().unwrap();
    assert!(Lock::take(&path).is_ok());
}

#[test]
fn a_recap_is_the_fold_of_all_and_knows_where_lines_begin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let all = run(3, 20);
    let cut = all.len() - 20;
    write(&path, &all[..cut]);
    let resume_state = Reader::open(&path).unwrap().resume_state().unwrap();
    let mut resume_point = hvtui::domain::resume_point::ResumePoint::default();
    let mut world = hvtui::domain::world::World::default();
    for envelope in &all[..cut] {
        resume_point.take(envelope);
        world.apply(envelope);
    }
    resume_point.know_last_words(&world);
    assert_eq!(resume_state.resume_point, resume_point);
    assert!(resume_state.resume_point.ranks[&Rank(2)].lines[0].is_some());
    let spec = spec(3);
    let wanted = resume_state.resume_point.wanted(&spec, &spec.hosts()[1]);
    assert!(wanted.contains(&(Rank(2), Stream::Stderr, 0)), "{wanted:?}");
    let (ours, theirs) = (&resume_state.world.runs[&spec.id], &world.runs[&spec.id]);
    assert_eq!(ours, theirs, "the run stands as if every line had been read");
}
