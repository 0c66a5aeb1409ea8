//! A replay shows at any playhead, reached in any way, the world that was there live.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, UNIX_EPOCH};

use hvtui::domain::ahead::TimelineAhead;
use hvtui::domain::alerts::{AlertKind, AlertRules, HeatRule};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::gpu::{GpuInfo, GpuSample, Reading};
use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::log::{LogLine, Stream};
use hvtui::domain::log_text::level::Level;
use hvtui::domain::log_text::search::Pattern;
use hvtui::domain::phase_window::PhaseWindow;
use hvtui::domain::playback::{FoundLine, LineSearch};
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::timing::StepTiming;
use hvtui::domain::world::{LoggedLine, RunState, World};
use hvtui::record::{Integrity, Lock, LookedAhead, Player, Reader, Recorder, Writer};
use proptest::prelude::*;

use super::events::{START, any_envelopes, run, run_id};
use super::write;
use crate::common::in_time::OutputInTime;
use crate::common::processes::until;

/// The world at a playhead, folded from the start.
fn world_at(envelopes: &[Envelope], playhead: Stamp) -> World {
    let mut world = World::default();
    let mut time = Stamp(i64::MIN);
    for envelope in envelopes {
        time = time.max(envelope.at);
        if time <= playhead {
            world.apply(envelope);
        }
    }
    world
}

/// What is told of the worlds at these playheads, in their order; folded in one go.
fn told_at<T>(envelopes: &[Envelope], playheads: &[Stamp], tell: impl Fn(&World) -> T) -> Vec<T> {
    let mut order: Vec<usize> = (0..playheads.len()).collect();
    order.sort_by_key(|place| playheads[*place]);
    let mut told: Vec<Option<T>> = playheads.iter().map(|_| None).collect();
    let (mut world, mut time) = (World::default(), Stamp(i64::MIN));
    let mut rest = envelopes.iter().peekable();
    for place in order {
        while let Some(envelope) = rest.next_if(|envelope| time.max(envelope.at) <= playheads[place]) {
            time = time.max(envelope.at);
            world.apply(envelope);
        }
        told[place] = Some(tell(&world));
    }
    told.into_iter().flatten().collect()
}

fn worlds_at(envelopes: &[Envelope], playheads: &[Stamp]) -> Vec<World> {
    told_at(envelopes, playheads, World::clone)
}

/// A screen: applies what the player hands over.
#[derive(Default)]
struct Screen(World);

impl Screen {
    fn advance(&mut self, player: &mut Player, now: Stamp) {
        let playback = player.advance(now);
        if let Some(world) = playback.reset {
            self.0 = *world;
        }
        for envelope in &playback.envelopes {
            self.0.apply(envelope);
        }
    }
}

fn player(envelopes: &[Envelope]) -> (tempfile::TempDir, Player) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, envelopes);
    let player = Player::new(Reader::open(&path).unwrap());
    (folder, player)
}

/// How much was read at each call until the playhead's moment was there.
fn way(screen: &mut Screen, player: &mut Player) -> Vec<u8> {
    let mut shares = Vec::new();
    loop {
        let playback = player.advance(Stamp(0));
        let Some(share) = playback.reading else {
            screen.0 = *playback.reset.expect("the whole world");
            assert!(playback.envelopes.is_empty());
            return shares;
        };
        assert!(playback.reset.is_none() && playback.envelopes.is_empty(), "nothing between is told");
        assert_eq!(player.next_wake(Stamp(0)), Some(std::time::Duration::ZERO));
        shares.push(share);
    }
}

#[test]
fn a_long_way_is_gone_in_several_calls_and_can_be_left() {
    let (_folder, mut player) = LONG.player();
    let mut screen = Screen::default();
    player.seek(player.state().end);
    let shares = way(&mut screen, &mut player);
    assert!(shares.len() >= 2 && shares.is_sorted() && shares.iter().all(|share| *share < 100), "{shares:?}");
    assert!(screen.0 == LONG.end);
    // back, and elsewhere before it is there
    let (_folder, mut player) = SHORTER.player();
    let state = player.state();
    player.seek(state.end);
    assert!(player.advance(Stamp(0)).reading.is_some());
    let early = state.start.plus_micros(3_500_000);
    player.seek(early);
    assert!(way(&mut screen, &mut player).is_empty());
    assert!(screen.0 == world_at(&SHORTER.envelopes, early));
    player.seek(state.end);
    way(&mut screen, &mut player);
    assert!(screen.0 == SHORTER.end);
}

#[test]
fn of_a_long_way_what_can_be_told_at_once_is_told_first() {
    let (_folder, mut player) = LONG.player();
    let end = player.state().end;
    player.seek(end);
    let first = player.advance(Stamp(0));
    let glimpse = first.glimpse.expect("what can be told at once");
    assert!(first.reading == Some(0) && first.reset.is_none() && first.envelopes.is_empty());
    let mut screen = Screen::default();
    let shares = way(&mut screen, &mut player);
    assert!(shares.len() >= 2 && shares.is_sorted(), "{shares:?}");
    assert!(screen.0 == LONG.end, "all of it follows");

    let (rough, exact) = (&glimpse.runs[&run_id()], &screen.0.runs[&run_id()]);
    assert_eq!((&rough.spec, &rough.stages, &rough.outcome), (&exact.spec, &exact.stages, &exact.outcome));
    assert_eq!((rough.step(), rough.last_step()), (exact.step(), exact.last_step()));
    for (rough, exact) in rough.ranks.iter().zip(&exact.ranks) {
        assert!(rough.steps.len() >= 8, "{}", rough.steps.len());
        assert!(rough.steps.iter().rev().zip(exact.steps.iter().rev()).all(|(rough, exact)| rough == exact));
    }
    let newest = |run: &RunState| -> Vec<_> {
        run.log.iter().rev().take(50).map(|(_, line)| line.line.clone()).collect()
    };
    assert_eq!(newest(rough), newest(exact));
    // and where the time went, all along the run
    let length = end.micros_since(Stamp(START));
    for piece in 0..16 {
        let (from, to) = (Stamp(START + length * piece / 16), Stamp(START + length * (piece + 1) / 16));
        let shares =
            |run: &RunState| run.history.between(from, to).and_then(|point| point.shares()).expect("shares");
        let near = shares(rough).iter().zip(shares(exact)).all(|(rough, exact)| (rough - exact).abs() < 0.03);
        assert!(near, "piece {piece}: {:?}, {:?}", shares(rough), shares(exact));
        assert!(rough.history.phases_between(Rank(399), from, to).is_some(), "piece {piece}");
    }
}

#[test]
fn a_moment_far_away_is_told_as_it_was_then() {
    let (_folder, mut player) = LONG.player();
    let state = player.state();
    // the first way goes to the end, another one is wanted before it is there
    player.seek(state.end);
    assert!(player.advance(Stamp(0)).glimpse.is_some());
    let middle = state.start.plus_micros(80_000_000);
    player.seek(middle);
    let glimpse = player.advance(Stamp(0)).glimpse.expect("of the middle");
    let exact = world_at(&LONG.envelopes, middle);
    let (rough, exact) = (&glimpse.runs[&run_id()], &exact.runs[&run_id()]);
    assert_eq!((rough.step(), &rough.outcome), (exact.step(), &exact.outcome));
    assert!(rough.log.iter().all(|(_, line)| line.at <= middle), "nothing of what comes later");
    let mut screen = Screen::default();
    way(&mut screen, &mut player);
    assert!(screen.0.runs[&run_id()] == *exact);
    // a short way needs none
    player.seek(middle.plus_micros(1_000_000));
    assert!(player.advance(Stamp(0)).glimpse.is_none());
}

#[test]
fn before_a_moment_that_was_left_it_is_known_where_the_time_went() {
    let (_folder, mut player) = LONG.player();
    let (start, end) = (player.state().start, player.state().end);
    let mut screen = Screen::default();
    player.seek(end);
    way(&mut screen, &mut player);
    // between the moments that are kept: the way there is felt
    let told = (20..105).rev().find_map(|second| {
        let moment = start.plus_micros(second * 1_000_000);
        player.seek(moment);
        let glimpse = player.advance(Stamp(0)).glimpse;
        if glimpse.is_none() {
            way_if_any(&mut player);
        }
        Some((moment, glimpse?))
    });
    let (moment, glimpse) = told.expect("a moment far from all that are kept");
    let exact = world_at(&LONG.envelopes, moment);
    let (rough, exact) = (&glimpse.runs[&run_id()], &exact.runs[&run_id()]);
    assert_eq!((rough.step(), &rough.stages), (exact.step(), &exact.stages));
    assert!(rough.log.iter().all(|(_, line)| line.at <= moment), "nothing of what comes later");
    for piece in 0..8 {
        let length = moment.micros_since(start);
        let (from, to) = (start.plus_micros(length * piece / 8), start.plus_micros(length * (piece + 1) / 8));
        let shares =
            |run: &RunState| run.history.between(from, to).and_then(|point| point.shares()).expect("shares");
        let near = shares(rough).iter().zip(shares(exact)).all(|(rough, exact)| (rough - exact).abs() < 0.03);
        assert!(near, "piece {piece}: {:?}, {:?}", shares(rough), shares(exact));
        assert!(rough.history.phases_between(Rank(399), from, to).is_some(), "piece {piece}");
    }
    let after = rough.history.between(moment.plus_micros(5_000_000), end);
    assert!(after.is_none_or(|point| point.steps == 0), "nothing of what comes later: {after:?}");
    way(&mut screen, &mut player);
    assert!(screen.0.runs[&run_id()] == *exact, "all of it follows");
}

#[test]
fn of_moves_that_follow_each_other_each_is_told_first_and_the_last_is_told_whole() {
    let (_folder, mut player) = SHORTER.player();
    let (start, end) = (player.state().start, player.state().end);
    let mut screen = Screen::default();
    player.seek(end);
    way(&mut screen, &mut player);
    // each is left before more of its way is gone
    let moments = [10, 20, 15, 8].map(|second| start.plus_micros(second * 1_000_000));
    let worlds = worlds_at(&SHORTER.envelopes, &moments);
    for (moment, world) in moments.into_iter().zip(&worlds) {
        player.seek(moment);
        let first = player.advance(Stamp(0));
        let glimpse = first.glimpse.expect("a way of seconds is felt");
        assert!(first.reading == Some(0) && first.reset.is_none());
        assert_eq!(glimpse.runs[&run_id()].step(), world.runs[&run_id()].step());
    }
    let shares = way(&mut screen, &mut player);
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(screen.0 == worlds[3]);
    // and where it goes on from there
    for (moment, world) in moments.into_iter().zip(&worlds) {
        player.seek(moment);
        arrive(&mut screen, &mut player);
        assert!(screen.0 == *world, "{moment:?}");
    }
}

#[test]
fn of_short_moves_back_nothing_rough_is_told() {
    let envelopes = run(100, 100);
    let (_folder, mut player) = player(&envelopes);
    let end = player.state().end;
    let mut screen = Screen::default();
    player.seek(end);
    arrive(&mut screen, &mut player);
    // 500 events a second: of some of these ways 4,000 and more are to be folded
    let moments: Vec<Stamp> = (1..=20).map(|back| end.plus_micros(-back * 1_000_000)).collect();
    let steps = told_at(&envelopes, &moments, |world| world.runs[&run_id()].step());
    for ((moment, step), back) in moments.into_iter().zip(steps).zip(1..) {
        player.seek(moment);
        let told = player.advance(Stamp(0));
        assert!(told.glimpse.is_none() && told.reading.is_none(), "{back} s");
        let world = told.reset.expect("the whole world");
        assert_eq!(world.runs[&run_id()].step(), step);
    }
}

fn way_if_any(player: &mut Player) {
    while player.advance(Stamp(0)).reading.is_some() {}
}

/// What a search comes to.
fn found(player: &mut Player) -> Option<FoundLine> {
    loop {
        assert!(player.looks_ahead());
        if let Some(LookedAhead::Line(line)) = player.look_ahead() {
            return line;
        }
    }
}

#[test]
fn of_lines_of_one_moment_each_is_found() {
    let envelopes = run(3, 12);
    let has =
        |envelope: &&Envelope| LoggedLine::of(envelope).is_some_and(|line| line.line.text.contains("loss"));
    let lines: Vec<&Envelope> = envelopes.iter().filter(has).collect();
    assert!(lines.windows(2).any(|two| two[0].at == two[1].at), "ranks print at the same moment");
    let (_folder, mut player) = player(&envelopes);
    let mut find = |from: Stamp, seen: Option<u64>, to: Option<Stamp>, forward: bool| {
        while player.advance(Stamp(0)).reading.is_some() {}
        let (pattern, least) = (Pattern::parse("loss").unwrap(), Level::default());
        player.find_line(LineSearch { pattern, rank: None, least, forward, from, seen, to, turns: false });
        found(&mut player)
    };
    let is = |line: &FoundLine, envelope: &Envelope| line.is(&LoggedLine::of(envelope).unwrap());
    let (mut from, mut seen) = (Stamp(START), None);
    for envelope in &lines {
        let line = find(from, seen, None, true).expect("a line");
        assert!(is(&line, envelope), "{line:?} {envelope:?}");
        (from, seen) = (line.at, Some(envelope.seq));
    }
    assert_eq!(find(from, seen, None, true), None);
    for envelope in lines.iter().rev() {
        let line = find(from, seen, None, false).expect("a line");
        assert!(is(&line, envelope), "{line:?} {envelope:?}");
        (from, seen) = (line.at, Some(envelope.seq - 1));
    }
    assert_eq!(find(from, seen, None, false), None);
    // up to a moment: with its lines forward, which come before what else there is at that moment
    let first = find(Stamp(START), None, None, true).unwrap();
    assert_eq!(find(Stamp(START), None, Some(first.at), true), Some(first.clone()));
    assert_eq!(find(Stamp(START), None, Some(first.at.plus_micros(-1)), true), None);
    assert_eq!(find(first.at.plus_micros(1), None, Some(first.at), false), None);
}

#[test]
fn a_line_is_found_wherever_it_lies() {
    let (_folder, mut player) = player(&run(3, 60));
    let end = player.state().end;
    player.seek(end);
    let mut find = |text: &str, forward: bool, turns: bool| {
        while player.advance(Stamp(0)).reading.is_some() {}
        let (pattern, from) = (Pattern::parse(text).unwrap(), player.state().playhead);
        let (rank, least) = (Some(Rank(1)), Level::default());
        player.find_line(LineSearch { pattern, rank, least, forward, from, seen: None, to: None, turns });
        let found = found(&mut player).map(|found| found.at);
        assert_eq!(player.state().playhead, from, "where to go is for the screen to say");
        if let Some(at) = found {
            player.seek(at);
        }
        found
    };
    // where the playhead meets it: behind the last step of the second, which was told before it and ended a little later
    let second = |second: i64| Some(Stamp(START + second * 1_000_000 + 1_002));
    assert_eq!(find("step 8 loss", false, false), second(3));
    assert_eq!(find("WARNING", true, false), second(4));
    assert_eq!(find("warning", true, false), second(11), "the next one");
    assert_eq!(find("/^step 8 /", true, false), None, "none after it");
    assert_eq!(find("/^step 8 /", true, true), second(3), "but before");
    assert_eq!(find("no such thing", false, true), None);
}

/// A long run: what happened, its recording, and its world at the end and a little before, made once for all tests.
struct Long {
    envelopes: Vec<Envelope>,
    recording: Vec<u8>,
    end: World,
    before_end: World,
}

/// So many envelopes before the end of a long run.
const A_LITTLE: usize = 5_000;

/// So long that two states of it are kept, and that something is told before the way to its end is gone.
static LONG: LazyLock<Long> = LazyLock::new(|| Long::new(115, 230_000));
/// So long that a state of its end is kept, to which the way is gone in more than one call.
static SHORTER: LazyLock<Long> = LazyLock::new(|| Long::new(45, 85_000 + A_LITTLE));

impl Long {
    /// Of so many seconds, which shall be so many envelopes at least.
    fn new(seconds: u64, least: usize) -> Self {
        let envelopes = run(400, seconds);
        assert!(envelopes.len() > least, "{}", envelopes.len());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        write(&path, &envelopes);
        let (before, rest) = envelopes.split_at(envelopes.len() - A_LITTLE);
        let before_end = world_at(before, Stamp(i64::MAX));
        let mut end = before_end.clone();
        for envelope in rest {
            end.apply(envelope);
        }
        Self { recording: fs::read(&path).unwrap(), envelopes, end, before_end }
    }

    /// Its recording where hvtui puts them.
    fn put(&self) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, &self.recording).unwrap();
        (folder, path)
    }

    /// A replay of it elsewhere, where nothing is kept of it.
    fn player(&self) -> (tempfile::TempDir, Player) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        fs::write(&path, &self.recording).unwrap();
        let player = Player::new(Reader::open(&path).unwrap());
        (folder, player)
    }
}

/// Opens it at its end: how often it said that it reads, and what was there then.
fn open_at_end(path: &Path, rules: &Arc<AlertRules>) -> (usize, World) {
    let mut player = Player::open(path).unwrap().with_rules(Arc::clone(rules));
    player.seek(player.state().end);
    let mut screen = Screen::default();
    let calls = way(&mut screen, &mut player).len();
    (calls, screen.0)
}

#[test]
fn it_opens_where_an_earlier_replay_came_to() {
    let (_folder, path) = SHORTER.put();
    let states = path.with_file_name("run.mcap.states");
    let rules = Arc::default();
    let (first, end) = open_at_end(&path, &rules);
    assert!(first >= 1 && end == SHORTER.end);
    assert_eq!(fs::metadata(&states).unwrap().mode() & 0o777, 0o600);
    let (again, world) = open_at_end(&path, &rules);
    assert!(again == 0 && world == end, "{again}");

    // under other rules it is another world, and what lies there may be anything
    let mut other = AlertRules::default();
    other.xid = !other.xid;
    let (calls, world) = open_at_end(&path, &Arc::new(other));
    assert!(calls >= 1 && world.runs == end.runs);
    fs::write(&states, "nothing of ours").unwrap();
    let (calls, world) = open_at_end(&path, &rules);
    assert!(calls >= 1 && world == end, "{calls}");
    let (calls, world) = open_at_end(&path, &rules);
    assert!(calls == 0 && world == end, "written anew: {calls}");
    // beside a file that a person has put somewhere nothing is written
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(&path, elsewhere.path().join("run.mcap")).unwrap();
    let (calls, _) = open_at_end(&elsewhere.path().join("run.mcap"), &rules);
    assert!(calls >= 1 && fs::read_dir(elsewhere.path()).unwrap().count() == 1);
}

#[test]
fn of_several_states_only_those_that_are_whole_and_of_this_recording_are_believed() {
    let (_folder, path) = LONG.put();
    let states = path.with_file_name("run.mcap.states");
    let rules = Arc::default();
    let (first, end) = open_at_end(&path, &rules);
    assert!(first >= 1 && end == LONG.end);
    let kept = fs::read(&states).unwrap();
    assert!(kept.len() < fs::metadata(&path).unwrap().len() as usize, "{}", kept.len());
    for damage in [&kept[..kept.len() / 2], &flipped(&kept)] {
        fs::write(&states, damage).unwrap();
        let (calls, world) = open_at_end(&path, &rules);
        assert!(calls >= 1 && world == end, "{calls} of {} bytes", damage.len());
        let (calls, world) = open_at_end(&path, &rules);
        assert!(calls == 0 && world == end, "written anew: {calls} of {} bytes", damage.len());
    }
    // another recording takes its place
    fs::remove_file(&path).unwrap();
    write(&path, &LONG.envelopes[..LONG.envelopes.len() - A_LITTLE]);
    let (calls, world) = open_at_end(&path, &rules);
    assert!(calls >= 1 && world == LONG.before_end, "{calls}");
}

#[test]
fn a_state_that_is_damaged_while_a_replay_stands_elsewhere_changes_no_moment() {
    let (_folder, path) = LONG.put();
    let states = path.with_file_name("run.mcap.states");
    open_at_end(&path, &Arc::default());
    let kept = fs::read(&states).unwrap();
    let inverted: Vec<u8> = kept.iter().map(|byte| !byte).collect();
    for damaged in [flipped(&kept), inverted] {
        fs::write(&states, &kept).unwrap();
        let mut player = Player::open(&path).unwrap();
        let mut screen = Screen::default();
        let (near, end) = (player.state().start.plus_micros(10_000_000), player.state().end);
        player.seek(near);
        arrive(&mut screen, &mut player);
        // it knows where they lie by now
        fs::File::options().write(true).open(&states).unwrap().write_all_at(&damaged, 0).unwrap();
        player.seek(end);
        arrive(&mut screen, &mut player);
        assert!(screen.0 == LONG.end);
        player.seek(near);
        arrive(&mut screen, &mut player);
        assert!(screen.0 == world_at(&LONG.envelopes, near));
    }
}

#[test]
fn of_a_long_recording_its_steps_are_known_without_reading_it_again() {
    let (_folder, path) = SHORTER.put();
    open_at_end(&path, &Arc::default());
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("run.mcap");
    fs::copy(&path, &copy).unwrap();
    let moments = |player: &mut Player| {
        let mut moments = Vec::new();
        player.seek(player.state().end);
        for by in [-1, -1, -3, 1] {
            player.step(by);
            moments.push(player.state().playhead);
        }
        for step in [100, 30, 9_999] {
            player.go_to_step(step);
            moments.push(player.state().playhead);
        }
        (moments, player.state().damage)
    };
    let (read, damage) = moments(&mut Player::open(&copy).unwrap());
    assert_eq!(damage, None);
    assert!(read.windows(2).all(|two| two[0] != two[1]), "{read:?}");
    let mut player = Player::open(&path).unwrap();
    // what is read from now on is not what was written
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 1 << 16], 1 << 16).unwrap();
    assert_eq!(moments(&mut player), (read, None));
}

#[test]
fn the_second_report_of_a_long_recording_says_what_the_first_one_did() {
    let (_folder, path) = SHORTER.put();
    let states = path.with_file_name("run.mcap.states");
    let report = || {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(["report", "--json"]).arg(&path).stdin(Stdio::null());
        let output = command.env_clear().env("HOME", path.parent().unwrap()).output_in_time().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
        output.stdout
    };
    let first = report();
    let kept = fs::read(&states).unwrap();
    assert!(report() == first);
    assert!(fs::read(&states).unwrap() == kept, "the second one has nothing to add");
    fs::write(&states, flipped(&kept)).unwrap();
    assert!(report() == first, "what is not as it was written is not believed");
}

#[test]
fn steps_are_known_as_far_as_they_were_kept_and_read_on_from_there() {
    let (_folder, path) = SHORTER.put();
    let (kept, rest) = SHORTER.envelopes.split_at(SHORTER.envelopes.len() - 300);
    write(&path, kept);
    open_at_end(&path, &Arc::default());
    // another client attaches for a short time: where the steps end that are kept, its first chunk begins
    let recorder = Recorder::resume(Lock::take(&path).unwrap()).unwrap();
    for envelope in rest {
        recorder.send(envelope.clone());
    }
    recorder.finish().unwrap();
    let mut player = Player::open(&path).unwrap();
    player.seek(player.state().end);
    let mut screen = Screen::default();
    arrive(&mut screen, &mut player);
    let step = |screen: &Screen| screen.0.runs.values().next().and_then(RunState::step);
    let last = step(&screen).unwrap();
    for back in 1..4 {
        player.step(-1);
        arrive(&mut screen, &mut player);
        assert_eq!(step(&screen), Some(last + 1 - back), "{back}");
    }
}

#[test]
fn moves_in_a_long_recording_give_the_world_of_each_moment() {
    let (_folder, path) = LONG.put();
    let mut player = Player::open(&path).unwrap();
    let mut screen = Screen::default();
    let (start, span) = (player.state().start, player.state().end.micros_since(player.state().start));
    // to the end, back to a moment of which nothing is kept, and from there some moves back and on
    player.seek(player.state().end);
    arrive(&mut screen, &mut player);
    assert!(screen.0 == LONG.end);
    let moves = [(0.4, 0), (0.4, 1), (0.4, 2), (0.4, 9), (0.7, 0), (0.7, 1), (0.4, 3)];
    let moments =
        moves.map(|(share, back)| start.plus_micros((span as f64 * share) as i64 - back * 1_000_000));
    for ((to, world), a_move) in moments.into_iter().zip(worlds_at(&LONG.envelopes, &moments)).zip(moves) {
        player.seek(to);
        arrive(&mut screen, &mut player);
        assert!(screen.0 == world, "{a_move:?}");
    }
}

/// Sends all of it to a recorder of a client that keeps states of long runs.
fn record(recorder: Recorder, envelopes: &[Envelope], before_its_end: impl Fn()) {
    recorder.keep_states(Arc::default());
    for envelope in envelopes {
        while recorder.backlog().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        recorder.send(envelope.clone());
    }
    before_its_end();
    assert_eq!(recorder.finish().unwrap().dropped, 0);
}

#[test]
fn a_client_that_records_a_long_run_leaves_states_of_it() {
    let envelopes = &LONG.envelopes;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
    let rules = Arc::default();
    // of a short part nothing is kept yet
    let (first, second) = envelopes.split_at(60_000);
    record(Recorder::start(path.clone(), || ()).unwrap(), first, || ());
    let states = path.with_file_name("run.mcap.states");
    assert!(!states.exists());
    // another client attaches to it, and has its end: what is not folded by then is folded at the close, if it has been opened
    let goes_on = || until("the first of them", || states.exists());
    record(Recorder::resume(Lock::take(&path).unwrap()).unwrap(), second, goes_on);
    assert_eq!(fs::metadata(&states).unwrap().mode() & 0o777, 0o600);
    let written = fs::read(&states).unwrap();
    assert!(written.windows(6).any(|part| part == b"Phases"), "where the time went, too");
    let (calls, world) = open_at_end(&path, &rules);
    assert!(calls == 0 && world == LONG.end, "{calls}");
    assert!(fs::read(&states).unwrap() == written, "a replay has nothing to add");

    // where its chunks lie is kept too, and what happens to a file later is found all the same
    let whole = fs::read(&path).unwrap();
    let second_file = path.with_file_name("run.2.mcap");
    let integrity = || Reader::open(&path).unwrap().integrity().clone();
    assert_eq!(integrity(), Integrity::Complete);
    fs::write(&path, flipped(&whole)).unwrap();
    assert!(matches!(integrity(), Integrity::Damaged { .. }), "{:?}", integrity());
    fs::write(&path, &whole).unwrap();
    assert_eq!(integrity(), Integrity::Complete);
    let last = fs::read(&second_file).unwrap();
    fs::write(&second_file, &last[..last.len() / 2]).unwrap();
    assert!(matches!(integrity(), Integrity::Cut { .. }), "{:?}", integrity());
    fs::remove_file(&second_file).unwrap();
    let (_, world) = open_at_end(&path, &rules);
    assert!(world == world_at(first, Stamp(i64::MAX)));
}

/// With one bit changed in the last quarter: of kept states, in the last.
fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = bytes.len() / 4 * 3;
    bytes[at] ^= 1;
    bytes
}

#[test]
fn a_folder_that_can_not_be_written_opens_all_the_same() {
    let (_folder, path) = SHORTER.put();
    let states = path.with_file_name("run.mcap.states");
    // a folder in its place: no user may write that, not even root
    fs::create_dir(&states).unwrap();
    let (calls, world) = open_at_end(&path, &Arc::default());
    assert!(calls >= 1 && world == SHORTER.end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_world_comes_back_as_it_was_written(envelopes in any_envelopes(), seconds in 0_u64..20) {
        for envelopes in [envelopes, run(3, seconds)] {
            let world = world_at(&envelopes, Stamp(i64::MAX));
            let written = rmp_serde::to_vec_named(&world).unwrap();
            let read: World = rmp_serde::from_slice(&written).unwrap();
            prop_assert_eq!(format!("{read:?}"), format!("{world:?}"));
        }
    }

    #[test]
    fn any_seeks_give_the_world_of_that_moment(
        seconds in 1_u64..90,
        seeks in proptest::collection::vec(0.0_f64..1.0, 1..12),
    ) {
        let envelopes = run(3, seconds);
        let (_folder, mut player) = player(&envelopes);
        let mut screen = Screen::default();
        screen.advance(&mut player, Stamp(0));
        let state = player.state();
        prop_assert!(screen.0 == world_at(&envelopes, state.start));
        let span = state.end.micros_since(state.start) as f64;
        let moments: Vec<Stamp> =
            seeks.into_iter().map(|share| state.start.plus_micros((span * share) as i64)).collect();
        for (to, world) in moments.iter().copied().zip(worlds_at(&envelopes, &moments)) {
            player.seek(to);
            screen.advance(&mut player, Stamp(0));
            prop_assert_eq!(player.state().playhead, to);
            prop_assert!(screen.0 == world);
        }
    }

    #[test]
    fn a_clock_that_jumps_changes_nothing(
        envelopes in any_envelopes(),
        seeks in proptest::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        prop_assume!(!envelopes.is_empty());
        let (_folder, mut player) = player(&envelopes);
        let mut screen = Screen::default();
        screen.advance(&mut player, Stamp(0));
        for seek in seeks {
            player.seek(envelopes[seek.index(envelopes.len())].at);
            screen.advance(&mut player, Stamp(0));
            let expected = world_at(&envelopes, player.state().playhead);
            prop_assert_eq!(format!("{:?}", screen.0), format!("{expected:?}"));
        }
    }
}

#[test]
fn it_plays_at_its_speed_and_pauses_at_the_end() {
    let envelopes = run(2, 10);
    let (_folder, mut player) = player(&envelopes);
    let mut screen = Screen::default();
    assert_eq!(player.next_wake(Stamp(0)), Some(std::time::Duration::ZERO));
    screen.advance(&mut player, Stamp(0));
    assert_eq!(player.next_wake(Stamp(0)), None);
    player.toggle();
    player.set_speed(0.125);
    let mut now = Stamp(77);
    screen.advance(&mut player, now);
    for _ in 0..100 {
        now = now.plus_micros(9_999);
        screen.advance(&mut player, now);
        assert!(player.next_wake(now).unwrap() <= std::time::Duration::from_millis(50));
    }
    assert_eq!(player.state().playhead, Stamp(START + 999_900 / 8));
    assert!((player.state().speed - 0.125).abs() < f64::EPSILON);
    player.set_speed(8.0);
    while player.state().playing {
        now = now.plus_micros(50_000);
        screen.advance(&mut player, now);
        assert!(screen.0 == world_at(&envelopes, player.state().playhead));
    }
    assert_eq!(player.state().playhead, player.state().end);
    assert_eq!(player.next_wake(now), None);
    player.toggle();
    screen.advance(&mut player, now);
    assert_eq!(player.state().playhead, player.state().start);
    assert!(player.state().playing);
}

#[test]
fn the_slowest_speed_is_an_eighth_and_the_fastest_64() {
    let (_folder, mut player) = player(&run(2, 10));
    for (asked, is) in [(0.0, 0.125), (0.01, 0.125), (-3.0, 0.125), (64.0, 64.0), (65.0, 64.0), (1e9, 64.0)] {
        player.set_speed(asked);
        assert!((player.state().speed - is).abs() < f64::EPSILON, "{asked}: {}", player.state().speed);
    }
    player.seek(Stamp(START));
    let mut screen = Screen::default();
    screen.advance(&mut player, Stamp(0));
    player.toggle();
    screen.advance(&mut player, Stamp(0));
    screen.advance(&mut player, Stamp(100_000));
    assert_eq!(player.state().playhead, Stamp(START + 6_400_000), "64 times as fast");
}

#[test]
fn it_steps_to_where_all_ranks_finished() {
    let envelopes = run(3, 5);
    let (_folder, mut player) = player(&envelopes);
    let mut screen = Screen::default();
    let step = |screen: &Screen| screen.0.runs.values().next().and_then(RunState::step);
    for expected in 1..=20 {
        player.step(1);
        screen.advance(&mut player, Stamp(0));
        assert_eq!(step(&screen), Some(expected));
    }
    player.step(1);
    assert_eq!(player.state().playhead, player.state().end);
    for expected in (1..=20).rev() {
        player.step(-1);
        screen.advance(&mut player, Stamp(0));
        assert_eq!(step(&screen), Some(expected));
    }
    player.step(-1);
    screen.advance(&mut player, Stamp(0));
    assert_eq!(player.state().playhead, player.state().start);
}

#[test]
fn it_goes_to_where_a_step_was_reached_whatever_was_counted_before() {
    for every in [1, 4] {
        let mut envelopes = run(3, 5);
        envelopes.retain(|envelope| match &envelope.event {
            Event::StepDone { timing } => timing.step % every == 0,
            _ => true,
        });
        let (_folder, mut player) = player(&envelopes);
        let mut screen = Screen::default();
        for (wanted, shown) in [(10, if every == 1 { 10 } else { 12 }), (4, 4), (16, 16), (3, every.max(3))] {
            player.toggle();
            player.go_to_step(wanted);
            screen.advance(&mut player, Stamp(0));
            let step = screen.0.runs.values().next().and_then(RunState::step);
            assert_eq!(
                (step, player.state().playing),
                (Some(shown), false),
                "step {wanted}, told every {every}"
            );
        }
        player.go_to_step(9_999);
        assert_eq!(player.state().playhead, player.state().end);
    }
}

#[test]
fn a_long_recording_is_handed_over_whole_on_a_far_seek() {
    let envelopes = run(32, 240);
    let (_folder, mut player) = player(&envelopes);
    let mut screen = Screen::default();
    screen.advance(&mut player, Stamp(0));
    let moments = [239, 3, 200, 199, 60, 61].map(|second| Stamp(START + second * 1_000_000));
    for (to, world) in moments.into_iter().zip(worlds_at(&envelopes, &moments)) {
        player.seek(to);
        arrive(&mut screen, &mut player);
        assert!(screen.0 == world, "{to:?}");
    }
}

#[test]
fn an_empty_recording_plays_nothing() {
    let (_folder, mut player) = player(&[]);
    player.toggle();
    player.step(1);
    player.seek(Stamp(5));
    let playback = player.advance(Stamp(0));
    assert!(*playback.reset.unwrap() == World::default() && playback.envelopes.is_empty());
}

#[test]
fn alerts_of_a_replay_go_by_the_rules_that_it_is_given() {
    let host = || Origin::Host("a".into());
    let info = serde_json::json!({
        "hostname": "a", "kernel": "", "arch": "", "user": "", "cpus": 1, "memory_total": null, "boot_id": "",
        "agent_version": "", "addresses": [], "gpus": [GpuInfo::unknown(0)], "driver": null, "cuda_driver": null,
        "nccl": null,
    });
    let gpu = GpuSample { temperature: Reading::Value(70), ..GpuSample::unknown(0) };
    let sample = serde_json::json!({
        "cpu_percent": null, "memory_used": null, "load": null, "net_rx": null, "net_tx": null, "gpus": [gpu],
    });
    let described = Event::HostDescribed { info: serde_json::from_value(info).map(Arc::new).unwrap() };
    let sampled = Event::HostSampled { sample: serde_json::from_value(sample).map(Arc::new).unwrap() };
    let envelopes: Vec<Envelope> = (0..60_u64)
        .map(|second| Envelope {
            seq: second + 1,
            at: Stamp(START + second as i64 * 1_000_000),
            origin: host(),
            event: if second == 0 { described.clone() } else { sampled.clone() },
        })
        .collect();
    let shown = |rules: AlertRules| {
        let (_folder, player) = player(&envelopes);
        let mut player = player.with_rules(Arc::new(rules));
        let mut screen = Screen::default();
        // to the end, back to the start, and to the end again
        let state = player.state();
        for to in [state.end, state.start, state.end] {
            player.seek(to);
            screen.advance(&mut player, Stamp(0));
        }
        screen.0.alerts.all().map(|alert| alert.kind).collect::<Vec<_>>()
    };
    assert_eq!(shown(AlertRules::default()), []);
    let cool = AlertRules { temperature: HeatRule::Celsius(60), ..AlertRules::default() };
    assert_eq!(shown(cool), [AlertKind::Temperature]);
}

#[test]
fn what_is_recorded_while_it_is_replayed_comes_in() {
    let envelopes = run(4, 60);
    let (early, late) = envelopes.split_at(envelopes.len() / 2);
    let (late, last) = late.split_at(late.len() - 200);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut writer = Writer::new(fs::File::create(&path).unwrap()).unwrap();
    for envelope in early {
        writer.push(envelope).unwrap();
    }
    writer.flush().unwrap();

    let file = fs::File::open(&path).unwrap();
    let second = |seconds: i64| {
        let written = file.metadata().unwrap().modified().unwrap();
        let now = written.duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(seconds as u64);
        Stamp(now.as_micros() as i64)
    };
    let mut player = Player::open(&path).unwrap();
    let mut screen = Screen::default();
    player.seek(player.state().end);
    screen.advance(&mut player, second(0));
    let then = player.state();
    assert!(!player.grow(second(6)) && !player.state().growing, "it is not written to");
    for envelope in late {
        writer.push(envelope).unwrap();
    }
    writer.flush().unwrap();
    assert!(player.grow(second(0)));
    let grown = player.state();
    assert!(grown.growing && grown.end > then.end && grown.playhead == then.playhead, "{grown:?}");
    screen.advance(&mut player, second(1));
    assert!(screen.0 == world_at(&envelopes, then.playhead), "what is shown stands still");
    player.step(-3);
    screen.advance(&mut player, second(1));
    assert!(screen.0 == world_at(&envelopes, player.state().playhead));
    player.follow();
    screen.advance(&mut player, second(3));
    assert!(screen.0 == world_at(&envelopes, grown.end));
    screen.advance(&mut player, second(4));
    assert!(player.state().playing, "the end moves on");
    // a client that was killed writes no more, and one that closes it neither
    assert!(player.grow(second(8)) && !player.state().growing);
    screen.advance(&mut player, second(9));
    assert!(!player.state().playing);
    // where it is written to once more, the replay goes on with it
    for envelope in last {
        writer.push(envelope).unwrap();
    }
    writer.flush().unwrap();
    assert!(player.grow(second(0)) && player.state().playing);
    player.toggle();
    let grown = player.state();
    writer.finish().unwrap();
    player.grow(second(10));
    assert!(!player.may_grow() && player.state().end == grown.end);
}

#[test]
fn one_that_is_opened_before_its_first_event_grows_from_nothing() {
    let envelopes = run(2, 10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut writer = Writer::new(fs::File::create(&path).unwrap()).unwrap();
    writer.flush().unwrap();
    let mut player = Player::open(&path).unwrap();
    let mut screen = Screen::default();
    screen.advance(&mut player, Stamp(0));
    for envelope in &envelopes {
        writer.push(envelope).unwrap();
    }
    writer.flush().unwrap();
    assert!(player.grow(Stamp(1)));
    player.follow();
    screen.advance(&mut player, Stamp(2));
    assert!(screen.0 == world_at(&envelopes, player.state().end) && !screen.0.runs.is_empty());
    player.step(-1);
    assert!(player.state().playhead < player.state().end);
}

/// What lies after the playhead, as it was told last: lines, and steps and samples.
fn looked_ahead(player: &mut Player) -> (Option<Vec<Arc<LoggedLine>>>, Option<Arc<TimelineAhead>>) {
    let mut told = (None, None);
    let mut calls = 0;
    while player.looks_ahead() {
        match player.look_ahead() {
            Some(LookedAhead::Lines(after, lines)) => {
                assert_eq!(after, player.state().playhead);
                told.0 = Some(lines);
            }
            Some(LookedAhead::Timeline(ahead)) => told.1 = Some(ahead),
            Some(LookedAhead::Phases(_) | LookedAhead::Line(_)) | None => {}
        }
        calls += 1;
        assert!(calls < 10_000, "it comes to an end");
    }
    told
}

/// A run, and behind it so many lines of rank 0, each so long after the run's last event; when that was, and how many lines are before.
fn flooded(lines: &[(u64, i64)]) -> (Vec<Envelope>, Stamp, u64) {
    let mut envelopes = run(2, 8);
    let last = envelopes.last().unwrap().clone();
    let before = world_at(&envelopes, last.at).runs.values().map(|run| run.log.count()).sum();
    let afters = lines.iter().flat_map(|(count, after_us)| std::iter::repeat_n(*after_us, *count as usize));
    envelopes.extend(afters.zip(0..).map(|(after_us, number)| {
        let (rank, text) = (Rank(0), format!("flood {number}"));
        let line = LogLine { rank, stream: Stream::Stdout, offset: number * 20, text, elided: 0, t: None };
        let (origin, event) = (Origin::Rank(run_id(), rank), Event::LogPrinted { line: Arc::new(line) });
        Envelope { seq: last.seq + 1 + number, at: last.at.plus_micros(after_us), origin, event }
    }));
    (envelopes, last.at, before)
}

/// The newest line of a screen, and its number.
fn newest_line(screen: &Screen) -> (u64, String) {
    let log = &screen.0.runs.values().next().unwrap().log;
    let (number, line) = log.iter().next_back().unwrap();
    (number, line.line.text.clone())
}

/// Advances until the playhead is where it shall be.
fn arrive(screen: &mut Screen, player: &mut Player) {
    let mut calls = 0;
    while player.next_wake(Stamp(0)).is_some() {
        screen.advance(player, Stamp(0));
        calls += 1;
        assert!(calls < 100, "it comes to an end");
    }
}

#[test]
fn the_playhead_stands_at_any_line_of_many_that_came_at_one_moment() {
    let (envelopes, at, before) = flooded(&[(30_000, 0), (10, 1_000_000)]);
    let (_folder, mut player) = player(&envelopes);
    player.seek(player.state().end);
    let mut screen = Screen::default();
    way(&mut screen, &mut player);
    // back, far back, on, and to the last one at the moment
    for number in [29_000_u64, 12_345, 3, 0, 20_000, 20_001, 29_999] {
        player.go_to_line(at, before + number + 1);
        arrive(&mut screen, &mut player);
        assert_eq!(newest_line(&screen), (before + number, format!("flood {number}")));
        assert_eq!(player.state().playhead, at);
        let texts = |lines: Vec<Arc<LoggedLine>>| -> Vec<String> {
            lines.iter().map(|line| line.line.text.clone()).collect()
        };
        let ahead = texts(looked_ahead(&mut player).0.expect("lines after it"));
        let next: Vec<_> = (number + 1..30_010).take(64).map(|number| format!("flood {number}")).collect();
        assert_eq!(ahead, next, "{number}");
        // nothing moves by itself
        screen.advance(&mut player, Stamp(0));
        assert_eq!(newest_line(&screen).0, before + number);
    }
    // a moment means all that came at it, also from within it
    player.go_to_line(at, before + 501);
    screen.advance(&mut player, Stamp(0));
    player.seek(at);
    arrive(&mut screen, &mut player);
    assert_eq!(newest_line(&screen).1, "flood 29999");
    assert!(screen.0 == world_at(&envelopes, at));
    // and it plays on from there
    player.go_to_line(at, before + 501);
    screen.advance(&mut player, Stamp(0));
    player.toggle();
    // a way to a line ends the play, which would pass over it
    player.go_to_line(at, before + 502);
    arrive(&mut screen, &mut player);
    assert_eq!(newest_line(&screen).1, "flood 501");
    player.toggle();
    for now in 0..50 {
        screen.advance(&mut player, Stamp(now * 50_000));
    }
    assert!(screen.0 == world_at(&envelopes, player.state().end), "{:?}", newest_line(&screen));
}

#[test]
fn a_line_is_come_to_also_where_its_own_time_lies_before_what_was_told_earlier() {
    // the client's clock was set back, and more was told since than one call folds
    let (envelopes, at, before) = flooded(&[(5, 100_000_000), (75_000, 0)]);
    let (_folder, mut player) = player(&envelopes);
    player.seek(player.state().end);
    let mut screen = Screen::default();
    arrive(&mut screen, &mut player);
    for number in [70_000, 62_000, 74_000, 3] {
        player.go_to_line(at, before + number + 1);
        arrive(&mut screen, &mut player);
        assert_eq!(newest_line(&screen), (before + number, format!("flood {number}")));
    }
}

#[test]
fn what_happened_at_a_moment_has_happened_there_also_where_it_was_told_later() {
    let mut envelopes = run(2, 8);
    let is_line = |envelope: &Envelope| matches!(envelope.event, Event::LogPrinted { .. });
    let place = (envelopes.len() / 2..envelopes.len()).find(|place| is_line(&envelopes[*place])).unwrap();
    // the line has the time of its host's clock: the client was told of something later before
    let until = envelopes[place - 1].at;
    let at = until.plus_micros(-77);
    envelopes[place].at = at;
    let line = LoggedLine::of(&envelopes[place]).unwrap();
    let (_folder, mut player) = player(&envelopes);
    let mut screen = Screen::default();
    player.seek(at);
    arrive(&mut screen, &mut player);
    assert!(screen.0 == world_at(&envelopes, at));
    let has_line = |world: &World| world.runs[&run_id()].log.iter().any(|(_, one)| line.line == one.line);
    assert!(!has_line(&screen.0), "it is not told yet");
    player.go_to_event(at);
    arrive(&mut screen, &mut player);
    assert_eq!(player.state().playhead, at);
    assert!(has_line(&screen.0) && screen.0 == world_at(&envelopes, until));
    // nothing moves by itself
    screen.advance(&mut player, Stamp(0));
    assert!(screen.0 == world_at(&envelopes, until));
    // what was seen is not found again
    let (pattern, least) = (Pattern::parse(&line.line.text).unwrap(), Level::default());
    let (rank, seen) = (Some(line.line.rank), screen.0.last_seq);
    let search = LineSearch { pattern, rank, least, forward: true, from: at, seen, to: None, turns: false };
    player.find_line(search);
    assert!(found(&mut player).is_none_or(|found| !found.is(&line)));
    // where nothing happened it is a moment as any other
    let between = at.plus_micros(-1);
    player.go_to_event(between);
    arrive(&mut screen, &mut player);
    assert!(screen.0 == world_at(&envelopes, between) && !has_line(&screen.0));
    // and it plays on from there
    player.go_to_event(at);
    arrive(&mut screen, &mut player);
    player.toggle();
    for now in 0..200 {
        screen.advance(&mut player, Stamp(now * 50_000));
    }
    assert!(screen.0 == world_at(&envelopes, player.state().end));
}

#[test]
fn within_the_last_moment_of_a_recording_there_is_more_to_come() {
    let (envelopes, at, before) = flooded(&[(30_000, 0)]);
    let (_folder, mut player) = player(&envelopes);
    let mut screen = Screen::default();
    player.go_to_line(at, before + 101);
    arrive(&mut screen, &mut player);
    assert_eq!((player.state().playhead, newest_line(&screen).1.as_str()), (player.state().end, "flood 100"));
    let ahead = looked_ahead(&mut player).0.expect("lines after it");
    assert_eq!(ahead[0].line.text, "flood 101");
    player.toggle();
    for now in 0..5 {
        screen.advance(&mut player, Stamp(now * 50_000));
    }
    assert!(screen.0 == world_at(&envelopes, at), "{:?}", newest_line(&screen));
    assert_eq!(player.state().playhead, at, "it plays on, not from the start");
}

/// What the timeline around the playhead is to be told: what the world at the end of its window knows of the time after it.
fn after(envelopes: &[Envelope], playhead: Stamp, until: Stamp) -> TimelineAhead {
    TimelineAhead::of(&world_at(envelopes, until), &run_id(), playhead, until)
}

#[test]
fn steps_and_samples_after_the_playhead_are_told_up_to_the_end_of_the_timeline() {
    let envelopes = run(4, 60);
    let (_folder, mut player) = player(&envelopes);
    let (start, end) = (player.state().start, player.state().end);
    let second = |number: i64| start.plus_micros(number * 1_000_000);
    player.show_window(10_000_000);
    let at = |player: &mut Player, playhead: Stamp| {
        player.seek(playhead);
        assert!(!player.looks_ahead(), "before it is there");
        Screen::default().advance(player, Stamp(0));
        looked_ahead(player).1
    };
    // there, on, back, far on, far back, at the start: each time all of it
    for playhead in [20, 21, 20, 22, 50, 9, 0].map(second) {
        let told = at(&mut player, playhead);
        let (_, to) = player.state().window(10_000_000);
        let wanted = after(&envelopes, playhead, to);
        let Some(told) = told else { panic!("{playhead:?}") };
        assert!(told.until >= to && told.after <= playhead);
        for rank in (0..4).map(Rank) {
            let steps = told.steps(rank, playhead).iter().filter(|(arrived, _)| *arrived <= to);
            assert!(steps.eq(wanted.steps(rank, playhead)), "{playhead:?}");
        }
        let host = HostId::from("gpu-b");
        let samples = told.samples(&host, playhead).iter().filter(|past| past.at <= to);
        assert!(samples.eq(wanted.samples(&host, playhead)) && !wanted.samples(&host, playhead).is_empty());
    }
    assert_eq!(at(&mut player, end), None, "nothing follows the end");
    // a longer timeline knows more
    assert_eq!(at(&mut player, second(30)).unwrap().until, second(35));
    player.show_window(40_000_000);
    let told = looked_ahead(&mut player).1.unwrap();
    assert_eq!((told.after, told.until), (second(30), second(50)));
    assert_eq!(looked_ahead(&mut player).1, None, "once");
    player.show_window(20_000_000);
    assert_eq!(looked_ahead(&mut player).1, None, "it is known");
}

#[test]
fn a_shorter_window_after_one_with_more_steps_than_are_kept_is_told_whole() {
    let envelopes = run(4, 200);
    let (_folder, mut player) = player(&envelopes);
    let playhead = player.state().start.plus_micros(10_000_000);
    player.show_window(400_000_000);
    player.seek(playhead);
    Screen::default().advance(&mut player, Stamp(0));
    let told = looked_ahead(&mut player).1.expect("the whole run");
    assert!(told.after > playhead, "of its first steps nothing is kept");
    assert_eq!(looked_ahead(&mut player).1, None, "once");
    player.show_window(10_000_000);
    let told = looked_ahead(&mut player).1.expect("the shorter one");
    let (_, to) = player.state().window(10_000_000);
    assert_eq!(told.after, playhead);
    let steps = told.steps(Rank(2), playhead).iter().filter(|(arrived, _)| *arrived <= to);
    assert!(steps.eq(after(&envelopes, playhead, to).steps(Rank(2), playhead)));
    assert!(!told.steps(Rank(2), playhead).is_empty());
}

#[test]
fn while_it_plays_the_timeline_stays_ahead_and_is_told_now_and_then() {
    let envelopes = run(4, 60);
    let (_folder, mut player) = player(&envelopes);
    let start = player.state().start;
    player.show_window(8_000_000);
    let mut screen = Screen::default();
    player.seek(start.plus_micros(10_000_000));
    screen.advance(&mut player, Stamp(0));
    let mut known = looked_ahead(&mut player).1.expect("the timeline");
    player.toggle();
    let mut told = 0;
    // ten seconds, in ticks of 50 ms
    for tick in 0..=200 {
        screen.advance(&mut player, Stamp(tick * 50_000));
        let (lines, timeline) = looked_ahead(&mut player);
        assert_eq!(lines, None, "while it plays they come by themselves");
        told += usize::from(timeline.is_some());
        known = timeline.unwrap_or(known);
        let state = player.state();
        let (_, to) = state.window(8_000_000);
        assert!(known.after <= state.playhead && known.until >= to, "{tick}");
        let steps = known.steps(Rank(2), state.playhead).iter().filter(|(arrived, _)| *arrived <= to);
        assert!(steps.eq(after(&envelopes, state.playhead, to).steps(Rank(2), state.playhead)), "{tick}");
    }
    assert!((5..=20).contains(&told), "{told}");
}

#[test]
fn a_window_in_which_too_much_lies_is_not_read_ahead() {
    let envelopes = run(200, 120);
    let (_folder, mut player) = player(&envelopes);
    let start = player.state().start;
    let mut screen = Screen::default();
    player.seek(start.plus_micros(10_000_000));
    way(&mut screen, &mut player);
    // 200 ranks tell 1,000 events a second
    player.show_window(200_000_000);
    assert_eq!(looked_ahead(&mut player).1, None);
    player.show_window(40_000_000);
    let told = looked_ahead(&mut player).1.unwrap();
    assert!(told.until >= start.plus_micros(30_000_000) && told.after == player.state().playhead);
}

/// Where the time went in the window of the timeline, where that is read.
fn phases_read(player: &mut Player) -> Option<Arc<PhaseWindow>> {
    let mut told = None;
    while player.looks_ahead() {
        if let Some(LookedAhead::Phases(window)) = player.look_ahead() {
            assert!(told.is_none(), "once");
            told = Some(window);
        }
    }
    told
}

#[test]
fn where_steps_are_no_longer_held_it_is_read_where_the_time_of_the_window_went() {
    let envelopes = run(4, 1_200);
    let (_folder, mut player) = player(&envelopes);
    let playhead = player.state().start.plus_micros(600_000_000);
    player.show_window(300_000_000);
    player.seek(playhead);
    assert!(!player.looks_ahead(), "before it is there");
    way(&mut Screen::default(), &mut player);
    let told = phases_read(&mut player).expect("five minutes");
    let (from, to) = player.state().window(300_000_000);
    let part = told.part();
    assert!(part.covers(from, to) && part.width_us < 1_500_000, "{part:?}");
    // all steps that lie in it, and no others
    for rank in (0..4).map(Rank) {
        let mut wanted = [0; 7];
        for envelope in &envelopes {
            if let Event::StepDone { timing } = &envelope.event
                && envelope.origin == Origin::Rank(run_id(), rank)
                && (part.from..=part.until).contains(&envelope.at)
            {
                wanted.iter_mut().zip(timing.phase_totals()).for_each(|(sum, us)| *sum += us);
            }
        }
        let times = [(part.from, part.until.plus_micros(part.width_us))];
        let all = told.phases_in_each(rank.into(), times.into_iter()).next().flatten();
        assert_eq!(all.map(|point| point.phases.map(u64::from)), Some(wanted), "{rank:?}");
        assert!(wanted[0] > 0);
    }
    assert_eq!(phases_read(&mut player), None, "once");
    // a move within what was read needs no more, nor does a window that the steps in memory fill
    player.seek(playhead.plus_micros(20_000_000));
    Screen::default().advance(&mut player, Stamp(0));
    assert_eq!(phases_read(&mut player), None);
    player.show_window(10_000_000);
    assert_eq!(phases_read(&mut player), None);
    // another part is another one
    player.show_window(300_000_000);
    player.seek(playhead.plus_micros(200_000_000));
    Screen::default().advance(&mut player, Stamp(0));
    let told = phases_read(&mut player).expect("another part");
    let (from, to) = player.state().window(300_000_000);
    assert!(told.part().covers(from, to));
}

/// Four ranks with 64 steps a second each, for eight minutes.
fn many_steps() -> Vec<Envelope> {
    let sixteen = |envelope: Envelope| -> Vec<Envelope> {
        let Event::StepDone { timing } = &envelope.event else { return vec![envelope] };
        let one = |number: u64| {
            let start = HostTime(timing.start.0 + number * 15_000);
            let timing = StepTiming { step: timing.step * 16 + number, start, ..StepTiming::clone(timing) };
            let at = envelope.at.plus_micros(number as i64 * 15_000);
            Envelope { at, event: Event::StepDone { timing: Arc::new(timing) }, ..envelope.clone() }
        };
        (0..16).map(one).collect()
    };
    let mut envelopes: Vec<Envelope> = run(4, 480).into_iter().flat_map(sixteen).collect();
    envelopes.sort_by_key(|envelope| envelope.at);
    for (seq, envelope) in (1..).zip(&mut envelopes) {
        envelope.seq = seq;
    }
    envelopes
}

#[test]
fn a_window_with_many_steps_is_told_by_what_is_kept_of_them() {
    let envelopes = many_steps();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RunId::new(1, 1).as_str()).join("run.mcap");
    fs::create_dir(path.parent().unwrap()).unwrap();
    write(&path, &envelopes);
    open_at_end(&path, &Arc::default());
    let elsewhere = folder.path().join("run.mcap");
    fs::copy(&path, &elsewhere).unwrap();
    // where nothing is kept the steps are read, in points as short as they were asked for
    for (path, width_us) in [(&elsewhere, 1_000_000..1_100_000), (&path, 2_000_000..2_000_001)] {
        let mut player = Player::open(path).unwrap();
        player.show_window(420_000_000);
        player.seek(player.state().end);
        let mut screen = Screen::default();
        arrive(&mut screen, &mut player);
        if *path != elsewhere {
            // what is read of it from now on is not what was written
            let file = fs::File::options().write(true).open(path).unwrap();
            file.write_all_at(&vec![0; 1 << 16], 1 << 16).unwrap();
        }
        let told = phases_read(&mut player).expect("seven minutes");
        let part = told.part();
        assert!(width_us.contains(&part.width_us), "{part:?}");
        for rank in (0..4).map(Rank) {
            let mut wanted = [0; 7];
            for envelope in &envelopes {
                if let Event::StepDone { timing } = &envelope.event
                    && envelope.origin == Origin::Rank(run_id(), rank)
                    && (part.from..=part.until).contains(&envelope.at)
                {
                    wanted.iter_mut().zip(timing.phase_totals()).for_each(|(sum, us)| *sum += us);
                }
            }
            let times = [(part.from, part.until.plus_micros(part.width_us))];
            let all = told.phases_in_each(rank.into(), times.into_iter()).next().flatten();
            assert_eq!(all.map(|point| point.phases.map(u64::from)), Some(wanted), "{rank:?}");
        }
        assert_eq!(phases_read(&mut player), None, "once");
    }
}

#[test]
fn what_comes_to_a_recording_that_is_written_is_read_now_and_then() {
    let envelopes = run(4, 470);
    let count = |second: i64| {
        let is_later = |envelope: &Envelope| envelope.at >= Stamp(START + second * 1_000_000);
        envelopes.iter().position(is_later).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut writer = Writer::new(fs::File::create(&path).unwrap()).unwrap();
    let mut written = 0;
    let mut write_until = |second: i64| {
        for envelope in &envelopes[written..count(second)] {
            writer.push(envelope).unwrap();
        }
        written = count(second);
        writer.flush().unwrap();
    };
    let after_write = |seconds: u64| {
        let at = fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_secs(seconds);
        Stamp(at.duration_since(UNIX_EPOCH).unwrap().as_micros() as i64)
    };
    write_until(420);
    let mut player = Player::open(&path).unwrap();
    // the window ends with the recording, and more steps than are kept lie after the playhead
    player.show_window(500_000_000);
    player.seek(Stamp(START + 200_000_000));
    way(&mut Screen::default(), &mut player);
    assert!(phases_read(&mut player).is_some());
    for (second, is_read) in [(421, false), (425, false), (460, true), (465, false)] {
        write_until(second);
        assert!(player.grow(after_write(0)) && player.state().growing);
        assert_eq!(phases_read(&mut player).is_some(), is_read, "{second}");
    }
    assert!(player.grow(after_write(10)) && !player.state().growing);
    let told = phases_read(&mut player).expect("the rest");
    assert_eq!(told.part().until, player.state().end);
}

#[test]
fn the_lines_after_a_playhead_that_stands_still_are_told() {
    let envelopes = run(4, 60);
    let (_folder, mut player) = player(&envelopes);
    let (start, end) = (player.state().start, player.state().end);
    let printed: Vec<(Stamp, String)> = envelopes
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::LogPrinted { line } => Some((envelope.at, line.text.clone())),
            _ => None,
        })
        .collect();
    assert!(printed.len() > 100);
    for percent in [0, 31, 98] {
        let playhead = start.plus_micros(end.micros_since(start) * percent / 100);
        player.seek(playhead);
        assert!(!player.looks_ahead(), "before it is there");
        Screen::default().advance(&mut player, Stamp(0));
        let (lines, timeline) = looked_ahead(&mut player);
        assert_eq!(timeline, None, "no timeline is shown");
        let told: Vec<_> = lines.unwrap().iter().map(|line| (line.at, line.line.text.clone())).collect();
        let later: Vec<_> = printed.iter().filter(|(at, _)| *at > playhead).take(64).cloned().collect();
        assert_eq!(told, later, "{percent} %");
        assert!(!player.looks_ahead(), "once");
    }
    player.toggle();
    Screen::default().advance(&mut player, Stamp(0));
    assert!(!player.looks_ahead(), "while it plays they come by themselves");
    player.seek(end);
    player.toggle();
    Screen::default().advance(&mut player, Stamp(0));
    assert_eq!(looked_ahead(&mut player).0, Some(Vec::new()), "nothing follows the end");
    assert!(!player.looks_ahead(), "once");
}
