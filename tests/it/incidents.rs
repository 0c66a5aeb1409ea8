//! What goes wrong or stands out in a run: the strip shows it, `{` and `}` stop there and say what it is.

use crate::common::world::{FREE, Gpu, START, Story, phases, training};
use crate::screens::{COLOR, text};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::time::Stamp;
use hvtui::tui::core::{Effect, Key, KeyCode, Msg, PlayCommand, Screen};

fn press(story: &mut Story, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|c| story.send(Msg::Key(Key::char(c)))).collect()
}

fn at(story: &mut Story, playhead: Stamp) {
    let state = PlaybackState {
        start: START,
        end: story.at,
        playhead,
        speed: 1.0,
        playing: false,
        damage: None,
        unattended: Vec::new(),
        growing: false,
    };
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
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    at(&mut story, end);
    let mut told = Vec::new();
    while let [Effect::Play(PlayCommand::SeekTo(to))] = press(&mut story, "{")[..] {
        told.push((to, said(&story).to_owned()));
        at(&mut story, to);
    }
    let words = |of: Stamp| {
        let near = told.iter().find(|(at, _)| at.micros_since(of).abs() < 700_000);
        near.map_or("", |(_, words)| words.as_str())
    };
    assert!(words(fell).starts_with("utilisation of gpu-b:0 fell to 4 %, median 97 %"), "{told:?}");
    assert!(words(slow).starts_with("slow step 151: 812"), "{told:?}");
    assert!(words(slow).contains("median 61"), "{told:?}");
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
