//! `esc` and `d` go one level out: to the screen from which one came, whatever that was.

use crate::common::world::{START, Story, key, playback_state, press, recordings, run_id, training};
use hvtui::domain::host::LinkState;
use hvtui::domain::playback::PlaybackState;
use hvtui::tui::core::{Effect, KeyCode, Msg, Screen};

/// A run that goes on, and three recordings.
fn listed() -> Story {
    let mut story = training();
    press(&mut story, "3");
    story.send(Msg::RunsListed(recordings()));
    story
}

fn playback() -> PlaybackState {
    let end = START.plus_micros(100_000_000);
    playback_state(end, end)
}

/// The screens that so many `esc` show, one after the other.
fn outwards(story: &mut Story, times: usize) -> Vec<Screen> {
    (0..times)
        .map(|_| {
            key(story, KeyCode::Esc);
            story.model.ui.screen
        })
        .collect()
}

#[test]
fn a_run_that_was_opened_from_the_runs_goes_back_to_them() {
    use Screen::{Cluster, Events, Launch, Run, Runs};
    let mut story = listed();
    key(&mut story, KeyCode::Enter);
    assert_eq!((story.model.ui.screen, &story.model.ui.run.run), (Run, &Some(run_id())));
    assert_eq!(outwards(&mut story, 2), [Runs, Cluster]);

    // the same with d, and by way of the form and the events
    press(&mut story, "3");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "d");
    assert_eq!(story.model.ui.screen, Runs);
    key(&mut story, KeyCode::Enter);
    press(&mut story, "a");
    assert_eq!(story.model.ui.screen, Launch);
    assert_eq!(outwards(&mut story, 1), [Run]);
    press(&mut story, "aE");
    assert_eq!(story.model.ui.screen, Launch, "a form takes letters as text");
    key(&mut story, KeyCode::Esc);
    press(&mut story, "E");
    assert_eq!(story.model.ui.screen, Events);
    assert_eq!(outwards(&mut story, 3), [Run, Runs, Cluster]);

    // what is launched from the form takes its place
    press(&mut story, "3");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "a");
    story.model.ui.launch.starting = true;
    story.send(Msg::Launched(run_id()));
    assert_eq!(story.model.ui.screen, Run);
    assert_eq!(outwards(&mut story, 2), [Runs, Cluster]);
}

#[test]
fn a_run_that_was_just_launched_goes_back_to_the_cluster() {
    let mut story = training();
    press(&mut story, "1l");
    assert_eq!(story.model.ui.screen, Screen::Launch);
    story.model.ui.launch.starting = true;
    story.send(Msg::Launched(run_id()));
    assert_eq!(outwards(&mut story, 1), [Screen::Cluster]);
}

#[test]
fn a_number_forgets_the_way_back() {
    let mut story = listed();
    key(&mut story, KeyCode::Enter);
    press(&mut story, "2");
    assert_eq!(outwards(&mut story, 1), [Screen::Cluster]);
    press(&mut story, "u3");
    assert_eq!(outwards(&mut story, 1), [Screen::Cluster]);
    press(&mut story, "uE");
    assert_eq!(outwards(&mut story, 2), [Screen::Users, Screen::Cluster]);
}

#[test]
fn the_detail_of_an_event_goes_back_to_the_events() {
    let mut story = training();
    story.link("gpu-b", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    story.wait_ms(31_000);
    press(&mut story, "1E");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.screen, Screen::Detail);
    assert_eq!(outwards(&mut story, 2), [Screen::Events, Screen::Cluster]);
}

#[test]
fn a_replay_goes_back_to_where_it_was_opened_and_its_events_to_it() {
    let mut story = listed();
    press(&mut story, "j");
    let opened = key(&mut story, KeyCode::Enter);
    assert!(matches!(opened[..], [Effect::OpenReplay(_)]), "{opened:?}");
    story.send(Msg::Playback(playback()));
    press(&mut story, "E");
    assert_eq!(outwards(&mut story, 1), [Screen::Replay]);
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
    assert_eq!(story.model.ui.screen, Screen::Runs);

    // one that fails while its events are shown is no place to go back to
    key(&mut story, KeyCode::Enter);
    press(&mut story, "E");
    story.send(Msg::ReplayFailed("it is damaged".to_owned()));
    assert_eq!(outwards(&mut story, 2), [Screen::Runs, Screen::Cluster]);
}
