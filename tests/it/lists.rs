//! Lists: what is new in them, keys where no row is shown, cursors when a notice takes a line, marks of a range in cells, panels that end.

use crate::common::world::{
    START, Story, busy, cluster, failed, gpu_slots, host, press, recordings, run_id, training, uuid,
};
use crate::screens::{COLOR, text};
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::ids::{Rank, RunId};
use hvtui::domain::note::Note;
use hvtui::domain::run::RunSummary;
use hvtui::domain::stacks::{ProcessStacks, Taker};
use hvtui::domain::time::HostTime;
use hvtui::tui::core::{Effect, Key, KeyCode, Msg, Screen};
use hvtui::tui::screens::SCREENS;
use hvtui::tui::screens::cluster::rows::{RowId, rows};
use hvtui::tui::screens::cluster::shape::Shape;
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::view::draw;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

fn enter(story: &mut Story) -> Vec<Effect> {
    story.send(Msg::Key(Key::plain(KeyCode::Enter)))
}

/// Each screen with a list, after a row was selected there and then the list has become empty; a run that has ended.
fn emptied(screen: Screen) -> Story {
    match screen {
        Screen::Cluster => {
            let mut story = cluster();
            press(&mut story, "jj/host==nowhere");
            enter(&mut story);
            story
        }
        Screen::Runs => {
            let mut story = training();
            press(&mut story, "r");
            story.send(Msg::RunsListed(recordings()));
            press(&mut story, "j/nothing-has-this-name");
            enter(&mut story);
            story
        }
        Screen::Users => {
            let mut story = Story::new(&["gpu-a"]);
            story.gpu_host("gpu-a", 1).sample("gpu-a", 1.0, &[busy(50, "li")]);
            press(&mut story, "uj");
            story.sample("gpu-a", 1.0, &[crate::common::world::FREE]);
            story
        }
        Screen::Doctor => {
            let mut story = Story::new(&["gpu-a"]);
            press(&mut story, "4");
            story
        }
        Screen::Events => {
            let mut story = Story::new(&["gpu-a"]);
            press(&mut story, "E");
            story
        }
        Screen::Run => failed(),
        Screen::Detail => {
            let mut story = Story::new(&["gpu-a"]);
            story.gpu_host("gpu-a", 1).sample("gpu-a", 1.0, &[crate::common::world::FREE]);
            press(&mut story, "j");
            enter(&mut story);
            story
        }
        other => panic!("{other:?} has no list"),
    }
}

#[test]
fn a_key_that_needs_a_row_says_so_where_none_is_shown() {
    let mut seen = Vec::new();
    for screen in SCREENS.into_iter().filter(|one| ![Screen::Launch, Screen::Replay].contains(&one.screen)) {
        let mut story = emptied(screen.screen);
        assert_eq!(story.model.ui.screen, screen.screen);
        for binding in screen.bindings() {
            let (action, key) = (binding.action, binding.keys[0]);
            let Some(why) = (screen.missing)(&story.model, action) else { continue };
            let before = story.model.ui.clone();
            let effects = story.send(Msg::Key(key));
            let told = story.model.ui.toasts.back().map(|toast| toast.text.clone());
            assert_eq!(told.as_deref(), Some(why), "{} {action:?}", screen.name);
            assert_eq!(effects, [], "{} {action:?}", screen.name);
            let after = &story.model.ui;
            assert_eq!((after.screen, &after.overlay), (before.screen, &before.overlay), "{action:?}");
            assert_eq!((&after.cluster, &after.runs), (&before.cluster, &before.runs), "{action:?}");
            assert_eq!(after.users, before.users, "{action:?}");
            seen.push(screen.name);
            story = emptied(screen.screen);
        }
    }
    let count = |name: &str| seen.iter().filter(|one| **one == name).count();
    let counts = ["Cluster", "Runs", "Users", "Run", "Detail", "Events"].map(count);
    assert_eq!(counts, [10, 8, 4, 9, 1, 1]);
}

#[test]
fn a_key_of_the_screens_before_a_replay_says_that_it_does_nothing_there() {
    let replayed = || {
        let mut story = training();
        story.model.ui.screen = Screen::Replay;
        story.model.ui.replay.open = true;
        story
    };
    let said = |story: &Story| story.model.ui.toasts.back().map(|toast| toast.text.clone());
    let mut story = replayed();
    assert_eq!(press(&mut story, "t"), []);
    assert_eq!(said(&story).as_deref(), Some("a replay always shows its timeline"));
    assert_eq!(press(&mut story, "R"), []);
    assert_eq!(said(&story).as_deref(), Some("R does nothing in a replay: ? shows its keys"));
    assert_eq!(press(&mut story, "D"), []);
    assert!(said(&story).unwrap().ends_with("X compares"), "{:?}", said(&story));
    // a launch leaves the replay, for it plans for the hosts as they are now
    let effects = press(&mut story, "a");
    assert!(effects.contains(&Effect::CloseReplay), "{effects:?}");
    assert_eq!((story.model.ui.screen, story.model.ui.replay.open), (Screen::Launch, false));
    // there are no hosts beside a recording that was opened alone
    let mut alone = replayed();
    alone.model.ui.replay.alone = true;
    assert_eq!(press(&mut alone, "a"), []);
    assert!(said(&alone).unwrap().starts_with("this is a recording alone"), "{:?}", said(&alone));
    assert_eq!(alone.model.ui.screen, Screen::Replay);
}

#[test]
fn marked_runs_are_deleted_though_the_filter_hides_them_and_a_row_comes_back_with_its_list() {
    let mut story = emptied(Screen::Runs);
    story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    let on = story.model.ui.runs.cursor.on.clone();
    assert!(on.is_some() && story.model.ui.runs.cursor.index == 1, "the row that was selected");
    press(&mut story, "kG /nothing-has-this-name");
    enter(&mut story);
    press(&mut story, "D");
    assert!(matches!(story.model.ui.overlay, Overlay::Confirm(_)), "{:?}", story.model.ui.toasts);
}

/// So many recordings, the newest first; one more is newer than all before.
fn recorded(count: u32) -> Vec<RunSummary> {
    let one = &recordings()[0];
    let made = |n: u32| {
        let mut one = one.clone();
        one.spec.id = RunId::new(START.0 as u64 / 1000 + u64::from(n), 1);
        one.spec.name = format!("run-{n:02}");
        one.spec.created = START.plus_micros(i64::from(n) * 1_000);
        one
    };
    (0..count).rev().map(made).collect()
}

#[test]
fn a_run_launched_elsewhere_is_seen_at_the_top_of_the_list_or_counted_above_it() {
    let mut story = Story::new(&["gpu-a"]);
    press(&mut story, "r");
    story.send(Msg::Resize(80, 24));
    story.send(Msg::RunsListed(recorded(30)));
    let shown = |story: &Story| text(&story.model, COLOR);
    assert!(shown(&story).contains("newest first   ↓ 13 more"), "{}", shown(&story));
    story.wait_ms(5_000);
    let on = story.model.ui.runs.cursor.on.clone();
    story.send(Msg::RunsListed(recorded(31)));
    story.send(Msg::RunsListed(recorded(32)));
    let screen = shown(&story);
    assert!(
        screen.contains("run-31") && screen.contains("run-30") && screen.contains("↓ 15 more"),
        "{screen}"
    );
    assert_eq!(story.model.ui.runs.cursor.on, on, "the selection stays on its run");
    press(&mut story, "G");
    assert!(shown(&story).contains("newest first   ↑ 15 more"), "{}", shown(&story));
    press(&mut story, &"k".repeat(20));
    let line = |story: &Story| story.model.ui.runs.cursor.index - story.model.ui.runs.cursor.offset;
    let before = line(&story);
    story.send(Msg::RunsListed(recorded(33)));
    assert_eq!(line(&story), before, "not at its top it does not move");
    assert!(shown(&story).contains("newest first   ↑ 12 ↓ 4 more"), "{}", shown(&story));
}

#[test]
fn a_first_look_at_the_list_starts_at_the_newest_run_though_that_is_told_later() {
    let first = || {
        let mut story = Story::new(&["gpu-a"]);
        story.send(Msg::Resize(80, 24));
        // what was listed when the UI started
        story.send(Msg::RunsListed(recorded(3)));
        story.wait_ms(60_000);
        press(&mut story, "r");
        story
    };
    let on = |story: &Story| story.model.ui.runs.cursor.on.clone();
    let newest = |count: u32| Some(recorded(count)[0].spec.id.clone());
    let mut story = first();
    assert_eq!(on(&story), newest(3));
    story.send(Msg::RunsListed(recorded(5)));
    assert_eq!((on(&story), story.model.ui.runs.cursor.index), (newest(5), 0));
    story.wait_ms(5_000);
    story.send(Msg::RunsListed(recorded(6)));
    assert_eq!(on(&story), newest(5), "the list had come in");
    // what a person selected stays
    let mut story = first();
    press(&mut story, "j");
    story.send(Msg::RunsListed(recorded(5)));
    assert_eq!(on(&story), newest(2));
}

#[test]
fn a_run_launched_here_is_the_selected_one_on_the_list() {
    let mut story = Story::new(&["gpu-a"]);
    story.send(Msg::Resize(80, 24));
    press(&mut story, "r");
    story.send(Msg::RunsListed(recorded(30)));
    press(&mut story, "Gc");
    story.wait_ms(60_000);
    press(&mut story, "l");
    story.model.ui.launch.starting = true;
    story.run("mine", &gpu_slots(&[("gpu-a", 0)]));
    story.send(Msg::Launched(run_id()));
    press(&mut story, "r");
    assert_eq!(story.model.ui.runs.cursor.on, Some(run_id()));
    let screen = text(&story.model, COLOR);
    let first = screen.lines().nth(3).unwrap_or_default();
    assert!(first.starts_with('▌') && first.contains("mine"), "{screen}");
}

#[test]
fn a_notice_that_takes_a_line_moves_the_list_at_once() {
    let mut story = Story::new(&["gpu-a", "gpu-b", "gpu-c"]);
    for name in ["gpu-a", "gpu-b", "gpu-c"] {
        story.gpu_host(name, 8).sample(name, 1.0, &[busy(20, "li"); 8]);
    }
    story.send(Msg::Resize(80, 14));
    story.wait_ms(60_000);
    press(&mut story, "H");
    if Shape::of(&story.model).heat {
        press(&mut story, "H");
    }
    press(&mut story, "G");
    let line = |story: &Story| {
        let cursor = &story.model.ui.cluster.cursor;
        (cursor.index - cursor.offset, Shape::of(&story.model).height())
    };
    let (at, height) = line(&story);
    assert_eq!(at + 1, height, "the last row stands on the last line");
    let note = Note {
        what: "disk".to_owned(),
        text: "the disk is full".to_owned(),
        t: HostTime(1),
        rank: None,
        count: 0,
    };
    story.tell(Origin::Run(run_id()), Event::RunNoted { host: host("gpu-a"), note });
    let (at, less) = line(&story);
    assert_eq!(less, height - 1, "the notice takes a line");
    assert_eq!(at + 1, less, "and the cursor is seen before the next tick");
    assert_eq!(story.model.ui.cluster.cursor.index + 1, rows(&story.model).len());
}

#[test]
fn a_range_is_marked_in_cells_as_in_rows() {
    let mut story = Story::new(&["gpu-a", "gpu-b", "gpu-c"]);
    for name in ["gpu-a", "gpu-b", "gpu-c"] {
        story.gpu_host(name, 8).sample(name, 1.0, &[busy(20, "li"); 8]);
    }
    story.send(Msg::Resize(80, 24));
    press(&mut story, "H");
    if !Shape::of(&story.model).heat {
        press(&mut story, "H");
    }
    story.send(Msg::Key(Key::plain(KeyCode::Right)));
    press(&mut story, "vjj");
    assert_eq!(
        story.model.ui.cluster.cursor.on,
        Some(RowId::Gpu(host("gpu-c"), uuid("gpu-c", 1), 1)),
        "down goes to the same GPU of the next host"
    );
    let mut buf = Buffer::empty(Rect::new(0, 0, 80, 24));
    draw(&story.model, COLOR, &mut buf);
    let marked: Vec<String> = buf
        .content
        .chunks(80)
        .map(|row| row.iter().map(|cell| if cell.modifier.contains(Modifier::REVERSED) { '#' } else { '.' }))
        .map(|row| row.take(30).collect())
        .collect();
    let drawn: Vec<String> =
        text(&story.model, COLOR).lines().map(|line| line.chars().take(30).collect()).collect();
    let both: Vec<String> =
        drawn.iter().zip(&marked).skip(2).take(5).map(|(a, b)| format!("{a:30} {b}")).collect();
    insta::assert_snapshot!("range-in-cells", both.join("\n"));
}

#[test]
fn the_panel_of_stacks_ends_with_its_last_line() {
    let mut story = training();
    story.send(Msg::Resize(80, 24));
    press(&mut story, "S");
    let (id, hosts) = {
        let (id, run) = story.model.shown_run().unwrap();
        (id.clone(), run.spec.hosts())
    };
    let frames: Vec<String> = (0..60).map(|n| format!("  File \"/a.py\", line {n} in f{n}")).collect();
    let of = vec![ProcessStacks {
        rank: Rank(0),
        worker: None,
        pid: 7,
        by: Taker::PySpy,
        text: format!("Current thread 0x1 (most recent call first):\n{}\n", frames.join("\n")),
        lacks: None,
        standing: None,
    }];
    for (host, of) in hosts.into_iter().zip([of, Vec::new()]) {
        let (run, collectives) = (id.clone(), Box::default());
        story.send(Msg::StacksTold { run, host, of, why: None, threads: None, collectives, last: true });
    }
    let shown = |story: &Story| match &story.model.ui.overlay {
        Overlay::Stacks(shown) => shown.first,
        other => panic!("{other:?}"),
    };
    press(&mut story, &"j".repeat(200));
    let (last, end) = (shown(&story), text(&story.model, COLOR));
    assert!(end.contains(" f59") && last > 0, "{end}");
    press(&mut story, "k");
    assert_eq!(shown(&story), last - 1, "the first key back moves");
    assert_ne!(text(&story.model, COLOR), end);
    story.send(Msg::Key(Key::plain(KeyCode::PageDown)));
    assert_eq!(shown(&story), last);
    story.send(Msg::Key(Key::plain(KeyCode::Home)));
    assert_eq!(shown(&story), 0);
    press(&mut story, "G");
    assert_eq!(shown(&story), last);
}
