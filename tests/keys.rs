//! Key scripts: what keys do to selections and which effects they ask for.

#[path = "common/world.rs"]
#[expect(dead_code, reason = "each test binary uses a part of the builders")]
mod world;

use hvtui::domain::ids::{GpuUuid, HostId};
use hvtui::domain::passphrase::Secret;
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::question::{Answer, Question, Subject};
use hvtui::domain::run::JobKind;
use hvtui::domain::time::Stamp;
use hvtui::launch::request::{LaunchRequest, OnBusy, Patience, PlacementSpec, SlotName};
use hvtui::tui::core::model::Overlay;
use hvtui::tui::core::rows::RowId;
use hvtui::tui::core::run::{LogAt, log_lines};
use hvtui::tui::core::{
    Effect, Key, KeyCode, Level, Mode, Model, Mouse, MouseKind, Msg, PlayCommand, Screen, update,
};
use proptest::prelude::*;
use world::{FREE, START, Story, busy, cluster, failed, host, recordings, run_id, training, uuid};

fn press(story: &mut Story, keys: &str) -> Vec<Effect> {
    keys.chars().flat_map(|c| story.send(Msg::Key(Key::char(c)))).collect()
}

fn key(story: &mut Story, code: KeyCode) -> Vec<Effect> {
    story.send(Msg::Key(Key::plain(code)))
}

fn selected(story: &Story) -> RowId {
    story.model.ui.cluster.cursor.on.clone().unwrap_or_else(|| panic!("nothing is selected"))
}

fn only_preview(effects: &[Effect]) -> LaunchRequest {
    match effects {
        [Effect::Preview(request)] => request.clone(),
        other => panic!("one preview was expected: {other:?}"),
    }
}

fn any_plan() -> std::sync::Arc<hvtui::launch::plan::LaunchPlan> {
    world::plan(world::spec(run_id(), "digits", &world::gpu_slots(&[("gpu-a", 2)]), world::START))
}

#[test]
fn picks_become_a_launch() {
    let mut story = cluster();
    press(&mut story, "jjj  ");
    assert_eq!(story.model.ui.cluster.picked(), 2);
    let request = only_preview(&press(&mut story, "l"));
    let PlacementSpec::Picks(picks) = &request.place else { panic!("picks were expected: {request:?}") };
    let expected: Vec<_> = [2, 3].into_iter().map(|n| SlotName::Uuid(uuid("gpu-a", n).to_string())).collect();
    assert_eq!(picks.iter().map(|pick| pick.slot.clone()).collect::<Vec<_>>(), expected);
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "nothing starts before the preview has come");
    let plan = any_plan();
    let effects = story.send(Msg::LaunchPlanned(Ok(plan.clone())));
    assert_eq!(effects, [Effect::Start(plan)], "then it does, and what starts is what was shown");
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "enter twice starts once");
    story.send(Msg::Launched(run_id()));
    assert_eq!(story.model.ui.screen, Screen::Run);
    assert_eq!(story.model.ui.cluster.picked(), 0);
}

#[test]
fn what_takes_no_rank_is_not_picked() {
    let mut story = cluster();
    let info = &mut story.model.world.hosts.get_mut(&HostId::from("gpu-a")).unwrap().info;
    std::sync::Arc::make_mut(info.as_mut().unwrap()).gpus[2].uuid = GpuUuid::unreadable(2);
    press(&mut story, "gjjj ");
    assert_eq!(story.model.ui.cluster.picked(), 0, "a GPU that can't be read");
    // the hosts file may say that ranks get CPUs, whatever GPUs are there
    story.model.hosts[0].slots = Some(2);
    press(&mut story, "gj ");
    assert_eq!(story.model.ui.cluster.picked(), 0);
    press(&mut story, "g  ");
    assert_eq!(story.model.ui.cluster.cpu_picks.get(&HostId::from("gpu-a")), Some(&2));
}

#[test]
fn nothing_starts_on_red() {
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Err("no slot is free".to_owned())));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(press(&mut story, " 'open").iter().all(|effect| matches!(effect, Effect::Preview(_))));
    assert!(story.model.ui.launch.request.is_none());
    story.send(Msg::LaunchPlanned(Ok(any_plan())));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert_eq!(story.model.ui.screen, Screen::Launch);
}

#[test]
fn a_launch_on_busy_gpus_waits_when_asked_and_can_be_called_off() {
    let mut story = cluster();
    let request = only_preview(&press(&mut story, "l"));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(story.send(Msg::LaunchBusy("gpu-a:0 is busy".to_owned())).is_empty(), "it does not wait unasked");
    let wait = OnBusy { wait: Some(Patience::Endless), share: false };
    let effects = key(&mut story, KeyCode::Enter);
    assert_eq!(effects, [Effect::Launch(LaunchRequest { on_busy: wait, ..request })]);
    story.send(Msg::LaunchWaits("gpu-a:0 is busy".to_owned()));
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "it waits already");
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::LeaveQueue]);
    assert_eq!((story.model.ui.launch.starting, story.model.ui.screen), (false, Screen::Launch));
    assert!(key(&mut story, KeyCode::Esc).is_empty());
    assert_eq!(story.model.ui.screen, Screen::Cluster);
}

#[test]
fn an_old_preview_does_not_answer_for_a_new_form() {
    let mut story = cluster();
    press(&mut story, "l");
    let request = only_preview(&press(&mut story, "x"));
    assert_eq!(request.command, ["x"], "what is typed replaces the suggestion");
    story.send(Msg::LaunchPlanned(Ok(any_plan())));
    assert_eq!(story.model.ui.launch.plan, None);
    story.send(Msg::LaunchPlanned(Err("no job x".to_owned())));
    assert_eq!(story.model.ui.launch.plan, Some(Err("no job x".to_owned())));
}

#[test]
fn the_form_fills_a_request() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4);
    press(&mut story, "l");
    story.send(Msg::Key(Key::ctrl('u')));
    story.send(Msg::Paste("python train.py --name 'a b'\n".to_owned()));
    key(&mut story, KeyCode::Tab);
    key(&mut story, KeyCode::Right);
    for text in ["", "", "mine", "A=1 B='x y'", "/tmp", "eth0"] {
        key(&mut story, KeyCode::Tab);
        story.send(Msg::Paste(text.to_owned()));
    }
    let request = story.model.ui.launch.request.clone().unwrap();
    assert_eq!(request.command, ["python", "train.py", "--name", "a b"]);
    assert_eq!(request.kind, Some(JobKind::Native));
    assert_eq!(request.place, PlacementSpec::Count(Some(2)));
    assert_eq!(request.name.as_deref(), Some("mine"));
    assert_eq!(request.env.get("B").map(String::as_str), Some("x y"));
    assert_eq!(
        (request.workdir.as_deref(), request.options.interface.as_deref()),
        (Some("/tmp"), Some("eth0"))
    );
}

#[test]
fn free_gpus_are_picked_by_number() {
    let mut story = cluster();
    press(&mut story, "6f");
    let picks = &story.model.ui.cluster.picks;
    assert_eq!(picks.keys().map(ToString::to_string).collect::<Vec<_>>(), ["gpu-b"]);
    assert_eq!(story.model.ui.cluster.picked(), 6);
    press(&mut story, "f");
    assert!(matches!(story.model.ui.overlay, Overlay::Prompt(_)));
    press(&mut story, "8");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.cluster.picked(), 8);
    press(&mut story, "99f");
    assert_eq!(story.model.ui.cluster.picked(), 9);
    assert!(story.model.ui.toasts.back().unwrap().text.contains("only 9 free of 99"));
}

#[test]
fn cpu_slots_are_picked_one_by_one() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 2);
    press(&mut story, "   ");
    assert_eq!(story.model.ui.cluster.picked(), 2);
    press(&mut story, "-");
    assert_eq!(story.model.ui.cluster.picked(), 1);
    press(&mut story, "2f");
    let request = only_preview(&press(&mut story, "l"));
    let PlacementSpec::Picks(picks) = request.place else { panic!("picks") };
    assert_eq!(
        picks.iter().map(|pick| pick.slot.clone()).collect::<Vec<_>>(),
        [SlotName::Index(0), SlotName::Index(1)]
    );
}

#[test]
fn data_does_not_move_the_selection() {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-b", 4).sample("gpu-b", 1.0, &[FREE; 4]);
    press(&mut story, "jjj");
    let row = selected(&story);
    assert_eq!(row, RowId::Gpu(host("gpu-b"), uuid("gpu-b", 1), 1));
    let line = |story: &Story| story.model.ui.cluster.cursor.index - story.model.ui.cluster.cursor.offset;
    story.gpu_host("gpu-a", 40);
    assert_eq!(selected(&story), row);
    let before = line(&story);
    story.sample("gpu-a", 1.0, &[busy(50, "li"); 40]).wait_ms(1000);
    story.down("gpu-a", "connection reset by 10.0.0.11:22");
    assert_eq!(selected(&story), row);
    story.gpu_host("gpu-a", 40);
    assert_eq!(selected(&story), row);
    assert!(before < 20 && line(&story) < 20);
    let cursor = &story.model.ui.cluster.cursor;
    assert!(cursor.offset <= cursor.index);
}

#[test]
fn a_host_is_tried_again_on_request() {
    let mut story = cluster();
    press(&mut story, "G");
    assert_eq!(selected(&story).host(), &host("gpu-d"));
    assert_eq!(press(&mut story, "R"), [Effect::Reconnect(host("gpu-d"))]);
}

#[test]
fn stopping_asks_first() {
    let mut story = training();
    assert!(press(&mut story, "x").is_empty());
    assert!(press(&mut story, "n").is_empty());
    assert_eq!(story.model.ui.overlay, Overlay::None);
    assert_eq!(press(&mut story, "xy"), [Effect::StopRun { run: run_id(), now: false }]);
    assert_eq!(press(&mut story, "xk"), [Effect::StopRun { run: run_id(), now: true }]);
    let mut story = failed();
    assert!(press(&mut story, "xy").is_empty(), "an ended run is not stopped");
}

#[test]
fn detaching_leaves_the_run_alone() {
    let mut story = training();
    assert!(press(&mut story, "d").is_empty());
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    assert_eq!(press(&mut story, "q"), [Effect::Quit]);
    assert_eq!(story.send(Msg::Key(Key::ctrl('c'))), [Effect::Quit]);
    assert_eq!(story.send(Msg::Quit), [Effect::Quit]);
}

#[test]
fn the_log_scrolls_and_follows() {
    let mut story = training();
    story.send(Msg::Resize(80, 24));
    key(&mut story, KeyCode::Tab);
    press(&mut story, "kkk");
    let LogAt::Line(line) = story.model.ui.run.log_at else { panic!("scrolled") };
    story.log(0, "a new line");
    assert_eq!(story.model.ui.run.log_at, LogAt::Line(line), "new lines do not move what is read");
    press(&mut story, "f");
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow);
    press(&mut story, "2");
    let (_, run) = story.model.shown_run().unwrap();
    assert!(log_lines(run, &story.model.ui.run, 100).iter().all(|(_, line)| line.line.rank.0 == 2));
    press(&mut story, "a/slow");
    let (_, run) = story.model.shown_run().unwrap();
    assert_eq!(log_lines(run, &story.model.ui.run, 100).len(), 1);
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.run.search, "");
    press(&mut story, "9");
    assert!(story.model.ui.toasts.back().unwrap().text.contains("no rank 9"));
}

fn playback(playhead: Stamp) -> PlaybackState {
    PlaybackState {
        start: START,
        end: START.plus_micros(100_000_000),
        playhead,
        speed: 1.0,
        playing: false,
        damage: None,
        unattended: Vec::new(),
    }
}

#[test]
fn a_replay_is_opened_moved_and_closed() {
    let mut story = Story::new(&["local"]);
    assert_eq!(press(&mut story, "r"), [Effect::ListRuns]);
    story.send(Msg::RunsListed(recordings()));
    let id = recordings()[0].spec.id.clone();
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::OpenReplay(id)]);
    story.send(Msg::Playback(playback(START)));
    assert!(story.model.is_replay());
    let window = 60_000_000;
    let play = |command| vec![Effect::Play(command)];
    assert_eq!(press(&mut story, " "), play(PlayCommand::Toggle));
    story.model.ui.run.window = Some(window);
    assert_eq!(press(&mut story, "h"), play(PlayCommand::SeekBy(-window / 10)));
    assert_eq!(press(&mut story, "L"), play(PlayCommand::SeekBy(window)));
    assert_eq!(press(&mut story, "]"), play(PlayCommand::StepBy(1)));
    assert_eq!(
        press(&mut story, "+-"),
        [Effect::Play(PlayCommand::SpeedUp), Effect::Play(PlayCommand::SlowDown)]
    );
    press(&mut story, "g50%");
    let middle = PlayCommand::SeekTo(START.plus_micros(50_000_000));
    assert_eq!(key(&mut story, KeyCode::Enter), play(middle));
    let click = Mouse { kind: MouseKind::Click, column: 12, row: 1 };
    assert_eq!(story.send(Msg::Mouse(click)), play(PlayCommand::SeekTo(START)));
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
    assert_eq!(story.model.mode, Mode::Live);
    story.send(Msg::Playback(playback(START)));
    assert_eq!(story.model.mode, Mode::Live, "a late word does not open it again");
}

#[test]
fn a_replay_alone_ends_the_program() {
    let mut model = Model::replay(playback(START), START, 0);
    assert_eq!(update(&mut model, Msg::Key(Key::char('c'))), []);
    assert_eq!(update(&mut model, Msg::Key(Key::plain(KeyCode::Esc))), [Effect::Quit]);
}

#[test]
fn the_mouse_selects_and_scrolls() {
    let mut story = cluster();
    let mouse = |kind, row| Msg::Mouse(Mouse { kind, column: 5, row });
    story.send(mouse(MouseKind::Click, 5));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1));
    story.send(mouse(MouseKind::WheelDown, 9));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 4), 4));
}

#[test]
fn notices_go_after_a_while() {
    let mut story = cluster();
    story.send(Msg::Notice(Level::Warning, "look".to_owned()));
    assert_eq!(story.model.ui.toasts.len(), 1);
    story.wait_ms(9_000);
    assert!(story.model.ui.toasts.is_empty());
}

#[test]
fn a_bad_filter_says_why_and_keeps_the_last_good_one() {
    let mut story = cluster();
    press(&mut story, "/util<");
    let Overlay::Prompt(prompt) = &story.model.ui.overlay else { panic!("prompt") };
    assert!(prompt.error.as_ref().unwrap().contains("no number"));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(matches!(story.model.ui.overlay, Overlay::Prompt(_)), "enter does not take a mistake");
    press(&mut story, "5");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.overlay, Overlay::None);
    assert_eq!(story.model.ui.cluster.filter_text, "util<5");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.cluster.filter_text, "");
}

fn any_key() -> impl Strategy<Value = Key> {
    let codes = vec![
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(1),
    ];
    prop_oneof![
        proptest::sample::select(codes).prop_map(Key::plain),
        proptest::char::range(' ', '~').prop_map(Key::char),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any keys on any screen: nothing panics, the same keys give the same model, effects and text, and the
    /// frame is drawn within its bounds.
    #[test]
    fn update_is_pure_and_drawing_is_total(
        keys in proptest::collection::vec(any_key(), 0..40),
        size in (1u16..220, 1u16..70),
        which in 0usize..3,
    ) {
        let mut story = match which {
            0 => cluster(),
            1 => training(),
            _ => failed(),
        };
        story.send(Msg::RunsListed(recordings()));
        story.send(Msg::Resize(size.0, size.1));
        let mut twin = story.model.clone();
        for key in keys {
            let effects = story.send(Msg::Key(key));
            prop_assert_eq!(&effects, &update(&mut twin, Msg::Key(key)));
            prop_assert_eq!(&story.model, &twin);
            let caps = hvtui::tui::view::Caps { color: hvtui::tui::view::ColorDepth::Basic, ascii: false };
            let area = ratatui::layout::Rect::new(0, 0, size.0, size.1);
            let mut one = ratatui::buffer::Buffer::empty(area);
            hvtui::tui::view::draw(&story.model, caps, &mut one);
        }
    }
}

fn ask(story: &mut Story, number: u64, subject: Subject) {
    let question = Question { host: host("gpu-b"), to: "li@gpu-b:22".to_owned(), subject, note: None };
    assert!(story.send(Msg::Asked(number, question)).is_empty());
}

#[test]
fn questions_are_answered_in_order_and_esc_refuses() {
    let mut story = cluster();
    let host_key = || Subject::HostKey {
        algorithm: "ssh-ed25519".to_owned(),
        fingerprint: "SHA256:x".to_owned(),
        also: Vec::new(),
        other: Vec::new(),
    };
    for number in 1..=3 {
        ask(&mut story, number, host_key());
    }
    ask(&mut story, 4, Subject::Password);
    // the keys of the screen below do nothing
    assert!(press(&mut story, "q l").is_empty());
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Answer(1, Answer::No)], "only yes is yes");
    assert!(press(&mut story, "yes").is_empty());
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Answer(2, Answer::Yes)]);
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::Answer(3, Answer::No)]);
    press(&mut story, "sesamX");
    key(&mut story, KeyCode::Backspace);
    story.send(Msg::Paste("e\nq".to_owned()));
    assert!(!format!("{:?}", story.model.ui.questions).contains("sesam"), "a secret shows");
    let answer = Answer::Text(Secret::new("sesame".to_owned()));
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Answer(4, answer)]);
    assert!(story.model.ui.questions.typed.is_empty());
    assert_eq!(press(&mut story, "q"), [Effect::Quit]);
}

#[test]
fn a_question_waits_for_an_open_prompt_and_ctrl_c_leaves() {
    let mut story = cluster();
    press(&mut story, "/");
    ask(&mut story, 1, Subject::Password);
    press(&mut story, "gpu");
    assert_eq!(story.model.ui.cluster.filter_text, "gpu");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "x");
    assert_eq!(story.model.ui.questions.typed.reveal(), "x");
    assert_eq!(story.send(Msg::Key(Key::ctrl('c'))), [Effect::Quit]);
}
