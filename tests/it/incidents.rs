//! What goes wrong or stands out in a run: the strip shows it, `{` and `}` stop there and say what it is.

use crate::common::world::{FREE, Gpu, START, Story, host, phases, playback_state, press, training};
use crate::screens::{COLOR, text};
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::host::LinkState;
use hvtui::domain::ids::Rank;
use hvtui::domain::log::{GapReason, LogGap, Stream};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::time::Stamp;
use hvtui::tui::core::{Effect, Key, KeyCode, Msg, PlayCommand, Screen};

fn at(story: &mut Story, playhead: Stamp) {
    let state = playback_state(playhead, story.at);
    story.send(Msg::Playback(state));
}

/// A training of which one step took 0.8 s and one GPU computed hardly for 14 s: when these began.
fn eventful() -> (Story, Stamp, Stamp) {
    let mut story = training();
    let (mut slow, mut fell) = (START, START);
    for second in 0..80u64 {
        let gpu = |util| Gpu { util, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
        let low = (50..64).contains(&second);
        story.sample("gpu-a", 40.0, &[FREE, FREE, gpu(97), gpu(96)]);
        story.sample("gpu-b", 38.0, &[gpu(if low { 4 } else { 97 }), gpu(74), FREE, FREE]);
        for rank in 0..4 {
            let mut times = phases(rank);
            times[2] += if second == 30 { 751_000 } else { 0 };
            story.step(rank, 121 + second, 0.1, times);
        }
        match second {
            30 => slow = story.at,
            50 => fell = story.at,
            _ => {}
        }
        story.wait_ms(1000);
    }
    (story, slow, fell)
}

fn said(story: &Story) -> &str {
    story.model.ui.toasts.back().map_or("", |toast| &toast.text)
}

/// Each incident from the end of the replay on, by `{`: the moment it leads to, and what is said there.
fn told_backwards(story: &mut Story) -> Vec<(Stamp, String)> {
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    at(story, end);
    let mut told = Vec::new();
    while let [Effect::Play(PlayCommand::SeekTo(to))] = press(story, "{")[..] {
        told.push((to, said(story).to_owned()));
        at(story, to);
    }
    told
}

#[test]
fn a_slow_step_and_a_gpu_that_computes_no_longer_are_incidents() {
    let (mut story, slow, fell) = eventful();
    // on the screen of the run, which is frozen at the last one
    assert_eq!(story.model.ui.screen, Screen::Run);
    for size in [(80, 24), (200, 50)] {
        story.send(Msg::Resize(size.0, size.1));
        let screen = text(&story.model, COLOR);
        let strip = screen.lines().find(|line| line.contains('◆')).unwrap_or_default();
        assert!(strip.contains('↑') && strip.contains('↓'), "{screen}");
    }
    let told = told_backwards(&mut story);
    let words = |of: Stamp| {
        let near = told.iter().find(|(at, _)| at.micros_since(of).abs() < 700_000);
        near.map_or("", |(_, words)| words.as_str())
    };
    assert!(words(fell).starts_with("utilisation of gpu-b:0 fell to 4 %, median 97 %"), "{told:?}");
    assert!(words(slow).starts_with("slow step 151: 812"), "{told:?}");
    assert!(words(slow).contains("usually 61"), "{told:?}");
    assert!(told.iter().any(|(to, _)| *to == slow), "where it had ended: {told:?}");
    assert!(told.iter().any(|(_, words)| words.starts_with("rank 3 (gpu-b:1) is a straggler")), "{told:?}");
    // forward again, to the same moments
    let before: Vec<Stamp> = told.iter().rev().skip(1).map(|(at, _)| *at).collect();
    let mut after = Vec::new();
    while let [Effect::Play(PlayCommand::SeekTo(to))] = press(&mut story, "}")[..] {
        after.push(to);
        at(&mut story, to);
    }
    assert_eq!(after, before);
}

#[test]
fn a_step_behind_the_last_one_is_not_gone_to() {
    let (mut story, ..) = eventful();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    at(&mut story, end);
    at(&mut story, end.plus_micros(-30_000_000));
    press(&mut story, "Jstep 9999");
    assert_eq!(story.send(Msg::Key(Key::plain(KeyCode::Enter))), []);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("the last step is 200"), "{screen}");
    story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    press(&mut story, "Jstep 200");
    let there = story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    assert_eq!(there, [Effect::Play(PlayCommand::ToStep(200))]);
}

#[test]
fn what_is_missing_and_a_clock_that_was_set_are_incidents() {
    let mut story = training();
    let at_step = |story: &mut Story, step: u64| {
        for rank in 0..4 {
            story.step(rank, step, 0.1, phases(rank));
        }
        story.wait_ms(1000);
        story.at
    };
    let gap = LogGap {
        rank: Rank(2),
        stream: Stream::Stdout,
        from: 0,
        to: 12 << 20,
        reason: GapReason::NotKept,
        cap: Some(256 << 20),
    };
    let output = at_step(&mut story, 121);
    story.rank(2, Event::LogGap { gap });
    let lines = at_step(&mut story, 122);
    story.rank(1, Event::Gap { what: "log".to_owned(), dropped: 7 });
    let samples = at_step(&mut story, 123);
    story.tell(Origin::Host(host("gpu-a")), Event::Gap { what: "telemetry".to_owned(), dropped: 3 });
    let set = at_step(&mut story, 124);
    story.clock("gpu-b", -60_000_000);
    let all_set = at_step(&mut story, 125);
    story.clock("gpu-a", 3_000_000).wait_ms(400).clock("gpu-b", -57_000_000);
    let lost = at_step(&mut story, 126);
    let end = at_step(&mut story, 140);
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let state = PlaybackState { lost: vec![(lost, lost.plus_micros(700_000))], ..playback_state(end, end) };
    story.send(Msg::Playback(state.clone()));
    let mut told = Vec::new();
    while let [Effect::Play(PlayCommand::SeekTo(to))] = press(&mut story, "{")[..] {
        told.push((to, said(&story).to_owned()));
        // what was seen is known, wherever the playhead is
        story.send(Msg::Playback(PlaybackState { playhead: to, ..state.clone() }));
    }
    let words = |of: Stamp| told.iter().find(|(at, _)| *at == of).map_or("", |(_, words)| words.as_str());
    assert_eq!(words(output), "output of rank 2: 12 M were not kept (cap 256 M)", "{told:?}");
    assert_eq!(words(lines), "rank 1: 7 lines not recorded", "{told:?}");
    assert_eq!(words(samples), "gpu-a: 3 telemetry samples missing", "{told:?}");
    let against = "against this machine's: one was set, or slept";
    assert_eq!(words(set), format!("clock of gpu-b jumped by +01:00 {against}"), "{told:?}");
    assert_eq!(words(all_set), format!("clocks of 2 hosts jumped by −3.0 s {against}"), "{told:?}");
    assert_eq!(words(lost), "the recording is damaged: 700 ms cannot be read", "{told:?}");
}

#[test]
fn a_host_that_is_cut_off_is_an_incident_when_it_is_lost_and_when_it_is_back() {
    let mut story = training();
    story.wait_ms(5_000);
    story.sample("gpu-b", 38.0, &[FREE, FREE, FREE, FREE]);
    let heard = story.at;
    story.wait_ms(4_000);
    story.down("gpu-b", "timed out");
    story.wait_ms(30_000);
    story.link("gpu-b", LinkState::Connecting { to: "gpu-b".to_owned() });
    story.wait_ms(1_000);
    story.link("gpu-b", LinkState::Up);
    let back = story.at;
    story.wait_ms(10_000);
    let told = told_backwards(&mut story);
    let words = |of: Stamp| told.iter().filter(|(at, _)| *at == of).map(|(_, words)| words.as_str()).next();
    let is_told =
        |of, word: &str| words(of).is_some_and(|told| told.contains(word) && told.contains("ranks"));
    assert!(is_told(heard, "gpu-b was lost for 35.0 s"), "{heard:?} in {told:?}");
    assert!(is_told(back, "gpu-b is back after 35.0 s"), "{back:?} in {told:?}");
}
