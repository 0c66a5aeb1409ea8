//! The mouse on what stands on the screen: footer, title, the Launch form, the palette and other things that lie over it.

use crate::common::world::{Story, busy, cluster, host, press, recordings, run_id, training, uuid};
use crate::screens::{COLOR, text};
use hvtui::domain::gpu::Reading;
use hvtui::domain::host::LinkState;
use hvtui::domain::question::{Answer, Question, Subject};
use hvtui::domain::secret::Secret;
use hvtui::domain::signal::{FoundProcess, ProcessKey, SignalAnswer, SignalName, SignalRequest};
use hvtui::tui::core::{Effect, Key, KeyCode, Mouse, MouseKind, Msg, Screen};
use hvtui::tui::screens::cluster::rows::RowId;
use hvtui::tui::screens::launch::Field;
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::overlay::signal::Step;
use hvtui::tui::screens::runs::rows;

fn mouse(story: &mut Story, kind: MouseKind, (column, row): (u16, u16)) -> Vec<Effect> {
    story.send(Msg::Mouse(Mouse { kind, column, row }))
}

/// Where words stand on the screen: column and row.
fn place(story: &Story, words: &str) -> (u16, u16) {
    let screen = text(&story.model, COLOR);
    let found = screen.lines().enumerate().find_map(|(row, line)| {
        let at = line.find(words)?;
        Some((line[..at].chars().count() as u16, row as u16))
    });
    found.unwrap_or_else(|| panic!("{words} on\n{screen}"))
}

fn click(story: &mut Story, words: &str) -> Vec<Effect> {
    let at = place(story, words);
    mouse(story, MouseKind::Click, at)
}

#[test]
fn a_click_on_a_key_of_the_footer_is_that_key() {
    for demo in [false, true] {
        let mut story = training();
        story.model.demo = demo;
        press(&mut story, "1");
        click(&mut story, "help");
        assert_eq!(story.model.ui.overlay, Overlay::Help(0), "its word");
        press(&mut story, "x");
        click(&mut story, "? help");
        assert_eq!(story.model.ui.overlay, Overlay::Help(0), "its key");
        press(&mut story, "x");
        assert_eq!(click(&mut story, "q quit"), [Effect::Quit]);
        let (column, row) = place(&story, "q quit");
        assert_eq!(mouse(&mut story, MouseKind::Click, (column - 1, row)), [], "between two keys");
    }
}

#[test]
fn a_click_on_the_alerts_of_the_title_opens_the_events() {
    let mut story = training();
    story.link("gpu-b", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    story.wait_ms(31_000);
    for key in ["1", "2", "3", "1u"] {
        press(&mut story, key);
        let from = story.model.ui.screen;
        let (column, row) = place(&story, "▲ ");
        assert_eq!(row, 0, "{from:?}");
        mouse(&mut story, MouseKind::Click, (column + 2, row));
        assert_eq!(story.model.ui.screen, Screen::Events, "{from:?}");
        let at = place(&story, "▲ ");
        mouse(&mut story, MouseKind::Click, at);
        assert_eq!(story.model.ui.screen, Screen::Events, "it is open");
    }
}

#[test]
fn a_click_on_a_field_of_the_form_goes_there() {
    let mut story = training();
    press(&mut story, "1l");
    assert_eq!(story.model.ui.launch.focus, Field::Command);
    for (words, field) in [("ranks", Field::Ranks), ("command", Field::Command), ("kind", Field::Kind)] {
        click(&mut story, words);
        assert_eq!(story.model.ui.launch.focus, field, "{words}");
    }
    // a field that says nothing stands in one line with others until then
    click(&mut story, "image –");
    assert_eq!(story.model.ui.launch.focus, Field::Image);
}

#[test]
fn the_palette_is_chosen_from_with_the_mouse() {
    let mut story = training();
    press(&mut story, "1:theme");
    let on = |story: &Story| match &story.model.ui.overlay {
        Overlay::Palette(palette) => palette.on,
        other => panic!("{other:?}"),
    };
    mouse(&mut story, MouseKind::WheelDown, (30, 5));
    assert_eq!(on(&story), 1);
    mouse(&mut story, MouseKind::WheelUp, (30, 5));
    assert_eq!(on(&story), 0);
    let at = place(&story, "theme contrast");
    assert_eq!(mouse(&mut story, MouseKind::Click, at), []);
    assert_ne!(on(&story), 0);
    let (column, row) = place(&story, "choose · enter");
    mouse(&mut story, MouseKind::Click, (column, row));
    assert_ne!(on(&story), 0, "the frame is no command");
    mouse(&mut story, MouseKind::DoubleClick, at);
    assert_eq!(story.model.settings.theme.name(), "contrast");
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn the_wheel_scrolls_what_lies_over_the_screen() {
    let mut story = training();
    story.send(Msg::Resize(80, 24));
    press(&mut story, "?");
    mouse(&mut story, MouseKind::WheelDown, (30, 5));
    assert_eq!(story.model.ui.overlay, Overlay::Help(3));
    mouse(&mut story, MouseKind::WheelUp, (30, 5));
    assert_eq!(story.model.ui.overlay, Overlay::Help(0));
}

const SIZES: [(u16, u16); 3] = [(60, 15), (80, 24), (200, 50)];

#[test]
fn the_question_before_a_stop_is_answered_by_a_click_on_its_words() {
    for size in SIZES {
        let mut story = training();
        story.send(Msg::Resize(size.0, size.1));
        let stop = |now| [Effect::StopRun { run: run_id(), now }];
        press(&mut story, "x");
        assert_eq!(click(&mut story, "Stop run"), [], "its text is no choice");
        assert_ne!(story.model.ui.overlay, Overlay::None);
        assert_eq!(click(&mut story, "n no"), []);
        assert_eq!(story.model.ui.overlay, Overlay::None);
        press(&mut story, "x");
        assert_eq!(click(&mut story, "y stop"), stop(false));
        press(&mut story, "x");
        let between = place(&story, "K kill now");
        assert_eq!(mouse(&mut story, MouseKind::Click, (between.0 - 1, between.1)), []);
        assert_eq!(mouse(&mut story, MouseKind::DoubleClick, between), [], "one press on it is a click");
        assert_eq!(click(&mut story, "kill now"), stop(true), "its word does too");
        assert_eq!(story.model.ui.overlay, Overlay::None);
    }
}

#[test]
fn nothing_is_hit_that_is_not_drawn() {
    let mut story = training();
    press(&mut story, "x");
    story.send(Msg::Resize(59, 15));
    for row in 0..15 {
        for column in 0..59 {
            assert_eq!(mouse(&mut story, MouseKind::Click, (column, row)), []);
        }
    }
    assert_ne!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn the_second_press_on_an_answer_does_not_reach_the_screen_below() {
    let mut story = training();
    press(&mut story, "r");
    story.send(Msg::RunsListed(recordings()));
    press(&mut story, "jD");
    let at = place(&story, "y delete");
    assert!(matches!(mouse(&mut story, MouseKind::Click, at)[..], [Effect::DeleteRuns(_)]));
    assert_eq!(mouse(&mut story, MouseKind::DoubleClick, at), []);
    assert_eq!(story.model.ui.screen, Screen::Runs);
    press(&mut story, "jD");
    assert_eq!(click(&mut story, "n no"), []);
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

/// The detail of a GPU with the dialog that signals its process, which the host has found.
fn signalling() -> Story {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 1).sample("gpu-a", 1.0, &[busy(50, "li")]);
    press(&mut story, "j");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    let number = look(&press(&mut story, "K"));
    found(&mut story, number);
    story
}

fn look(effects: &[Effect]) -> u32 {
    match effects {
        [Effect::Signal { number, request: SignalRequest::Look { .. }, .. }] => *number,
        other => panic!("{other:?}"),
    }
}

fn found(story: &mut Story, number: u32) {
    let process = FoundProcess {
        key: ProcessKey { pid: 4_000, start: 90_000 },
        user: Reading::Value("li".to_owned()),
        command: Reading::Value("python train.py".to_owned()),
        refusal: None,
    };
    let answer = SignalAnswer::Found { processes: vec![process], note: None };
    story.send(Msg::SignalTold { number, answer });
}

#[test]
fn a_signal_is_chosen_and_sent_with_the_mouse_in_as_many_steps_as_with_keys() {
    for size in SIZES {
        let mut story = signalling();
        story.send(Msg::Resize(size.0, size.1));
        let signal = |story: &Story| match &story.model.ui.overlay {
            Overlay::Signal(shown) => (shown.signal, shown.tree, shown.step.clone()),
            other => panic!("{other:?}"),
        };
        let asks = |story: &Story| matches!(signal(story).2, Step::Found { confirm: true, .. });
        assert_eq!(click(&mut story, "STOP "), []);
        assert_eq!(signal(&story).0, SignalName::Stop);
        assert_eq!(click(&mut story, "process 4000"), []);
        assert_eq!(signal(&story).0, SignalName::Stop, "what stands above is no signal");
        let number = look(&click(&mut story, "with its tree"));
        assert!(signal(&story).1);
        found(&mut story, number);
        let kill = place(&story, "KILL ");
        assert_eq!(mouse(&mut story, MouseKind::Click, kill), []);
        assert_eq!(signal(&story).0, SignalName::Kill);
        assert!(!asks(&story), "a click chooses");
        assert_eq!(mouse(&mut story, MouseKind::DoubleClick, kill), []);
        assert!(asks(&story), "a second one goes on to the question");
        for (column, row) in [kill, place(&story, "will be sent")] {
            assert_eq!(mouse(&mut story, MouseKind::Click, (column, row)), [], "it sends nothing");
        }
        let send = place(&story, "y send");
        assert_eq!(mouse(&mut story, MouseKind::DoubleClick, send), []);
        assert_eq!(click(&mut story, "n back"), []);
        assert!(!asks(&story));
        assert_eq!(click(&mut story, "enter go on"), []);
        assert!(asks(&story));
        let effects = click(&mut story, "send");
        let [Effect::Signal { request: SignalRequest::Send { signal, .. }, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(*signal, SignalName::Kill);
        let mut story = signalling();
        assert_eq!(click(&mut story, "esc close"), []);
        assert_eq!(story.model.ui.overlay, Overlay::None);
    }
}

#[test]
fn a_question_of_ssh_is_answered_and_refused_with_the_mouse() {
    let mut story = cluster();
    for number in [1, 2] {
        let question = Question {
            host: host("gpu-b"),
            to: "li@10.0.0.12:22".to_owned(),
            subject: Subject::Password,
            note: None,
        };
        story.send(Msg::Asked(number, question));
    }
    press(&mut story, "sesame");
    assert_eq!(click(&mut story, "password:"), []);
    let answer = Answer::Text(Secret::new("sesame".to_owned()));
    assert_eq!(click(&mut story, "enter answer"), [Effect::Answer(1, answer)]);
    assert_eq!(click(&mut story, "esc refuse"), [Effect::Answer(2, Answer::No)]);
}

#[test]
fn the_words_below_the_stacks_are_their_keys() {
    let mut story = training();
    press(&mut story, "S");
    let [Effect::AskStacks { threads: true, .. }] = &click(&mut story, "all threads")[..] else {
        panic!("all threads")
    };
    let at = place(&story, "S again");
    assert!(matches!(mouse(&mut story, MouseKind::Click, at)[..], [Effect::AskStacks { threads: true, .. }]));
    assert_eq!(click(&mut story, "esc close"), []);
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn a_click_closes_the_help() {
    let mut story = training();
    press(&mut story, "?");
    let at = place(&story, "keys of Run");
    mouse(&mut story, MouseKind::Click, at);
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn the_words_in_the_head_of_the_form_are_its_keys() {
    let mut story = training();
    press(&mut story, "1l");
    let esc = place(&story, "esc back");
    assert_eq!(esc.1, 0);
    assert_eq!(mouse(&mut story, MouseKind::Click, (esc.0 - 2, 0)), []);
    assert_eq!(story.model.ui.screen, Screen::Launch);
    mouse(&mut story, MouseKind::Click, esc);
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    press(&mut story, "l");
    let plan = crate::common::world::plan(story.model.world.runs[&run_id()].spec.as_ref().clone());
    for _ in 0..2 {
        story.send(Msg::LaunchPlanned(Ok(plan.clone())));
    }
    let (column, _) = place(&story, "enter start");
    assert_eq!(mouse(&mut story, MouseKind::Click, (column + 7, 0)), [Effect::Start(plan)]);
}

#[test]
fn a_click_selects_a_process_of_the_detail() {
    for size in SIZES {
        let mut story = Story::new(&["gpu-a"]);
        story.gpu_host("gpu-a", 8).sample("gpu-a", 1.0, &[busy(50, "li"); 8]);
        story.send(Msg::Resize(size.0, size.1));
        story.send(Msg::Key(Key::plain(KeyCode::Enter)));
        assert_eq!(story.model.ui.screen, Screen::Detail);
        let on = |story: &Story| story.model.ui.detail.cursor.on.clone().map(|(_, gpu, _)| gpu);
        assert_eq!(on(&story), Some(0));
        let heading = place(&story, "processes   8");
        mouse(&mut story, MouseKind::Click, heading);
        assert_eq!(on(&story), Some(0), "the heading is no process");
        if size.1 > 15 {
            click(&mut story, " 4001 ");
            assert_eq!(on(&story), Some(1), "{size:?}");
        }
        press(&mut story, "G");
        assert_eq!(on(&story), Some(7));
        let last = place(&story, " 4007 ");
        press(&mut story, "g");
        press(&mut story, "G");
        mouse(&mut story, MouseKind::Click, last);
        assert_eq!(on(&story), Some(7), "{size:?}");
    }
}

#[test]
fn users_are_opened_by_a_double_click_and_moved_by_the_wheel_alone() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2).sample("gpu-a", 1.0, &[busy(50, "li"), busy(60, "wang")]);
    press(&mut story, "u");
    let wang = place(&story, "wang");
    mouse(&mut story, MouseKind::Click, wang);
    mouse(&mut story, MouseKind::Drag, (wang.0, 3));
    mouse(&mut story, MouseKind::DoubleClick, wang);
    let process = place(&story, "python train.py");
    assert_eq!(process.1, wang.1 + 1);
    mouse(&mut story, MouseKind::Click, (process.0, process.1 + 3));
    mouse(&mut story, MouseKind::DoubleClick, (process.0, process.1 + 3));
    assert_eq!(story.model.ui.screen, Screen::Users, "there is nothing");
    mouse(&mut story, MouseKind::Click, process);
    mouse(&mut story, MouseKind::DoubleClick, process);
    assert_eq!(story.model.ui.screen, Screen::Detail);
    assert_eq!(story.model.ui.detail.on, Some(RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1)));
}

#[test]
fn a_click_on_a_head_of_the_runs_orders_them() {
    let mut story = training();
    press(&mut story, "r");
    story.send(Msg::RunsListed(recordings()));
    let first = |story: &Story| rows(&story.model)[0].spec.name.clone();
    for (head, order, leads) in [
        ("SIZE", "largest first", "diabetes"),
        ("NAME", "by name", "diabetes"),
        ("STATE", "by outcome", "mnist"),
        ("AGE", "newest first", "mnist"),
    ] {
        assert!(click(&mut story, head).is_empty());
        let screen = text(&story.model, COLOR);
        assert!(screen.contains(order), "{head}:\n{screen}");
        assert!(first(&story).starts_with(leads), "{head}: {}", first(&story));
    }
}
