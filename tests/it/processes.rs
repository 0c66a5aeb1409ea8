//! Processes in the UI: the Users screen, the processes of Detail, the dialog that sends a signal, and `--readonly`.

use std::sync::Arc;

use crate::common::world::{FREE, Story, busy, cluster, host, key, press, run_id, training};
use crate::screens::{COLOR, text};
use hvtui::domain::alerts::AlertRules;
use hvtui::domain::gpu::{GpuProcess, GpuSample, Reading, RunOfProcess};
use hvtui::domain::host::LinkState;
use hvtui::domain::ids::{Rank, RunId};
use hvtui::domain::signal::{FoundProcess, ProcessKey, SignalAnswer, SignalName, SignalRequest, Signalled};
use hvtui::tui::core::{Effect, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::overlay::signal::Step;
use hvtui::tui::screens::users::{RowId, UNKNOWN, users};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn shoot(name: &str, story: &mut Story) {
    for size in SIZES {
        story.send(Msg::Resize(size.0, size.1));
        insta::assert_snapshot!(format!("{name}-{}x{}", size.0, size.1), text(&story.model, COLOR));
    }
}

/// Two hosts on which li trains, chen shares a GPU with a process of unknown owner, and wang holds one that is idle.
fn shared() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    let rules = AlertRules { held_idle_us: Some(60_000_000), ..AlertRules::default() };
    story.model.world.alerts.rules = Arc::new(rules);
    story.faults.insert("gpu-a", vec![(1, two_processes), (2, notebook)]);
    for name in ["gpu-a", "gpu-b"] {
        story.gpu_host(name, 4);
    }
    for _ in 0..90 {
        story.sample("gpu-a", 3.0, &[busy(98, "li"), busy(60, "chen"), busy(0, "wang"), FREE]);
        story.sample("gpu-b", 3.0, &[busy(94, "li"), FREE, FREE, FREE]);
        story.wait_ms(1000);
    }
    story
}

fn two_processes(gpu: &mut GpuSample) {
    let Reading::Value(processes) = &mut gpu.processes else { return };
    let run = Some(RunOfProcess { id: RunId::new(1_795_000_000_000, 7), rank: Some(Rank(1)) });
    processes.push(GpuProcess { run, ..GpuProcess::unknown(777) });
}

fn notebook(gpu: &mut GpuSample) {
    let Reading::Value(processes) = &mut gpu.processes else { return };
    processes[0].container = Some("59c313908f42".to_owned());
    processes[0].age_s = Reading::Value(3 * 86_400);
}

fn found(pid: u32, refusal: Option<&str>) -> FoundProcess {
    FoundProcess {
        key: ProcessKey { pid, start: 90_000 },
        user: Reading::Value("li".to_owned()),
        command: Reading::Value("python train.py --config large.yaml".to_owned()),
        refusal: refusal.map(str::to_owned),
    }
}

fn asked(effects: &[Effect]) -> (u32, SignalRequest) {
    match effects {
        [Effect::Signal { host: at, number, request }] => {
            assert_eq!(*at, host("gpu-a"));
            (*number, request.clone())
        }
        other => panic!("one request was expected: {other:?}"),
    }
}

fn look(process: ProcessKey, tree: bool) -> SignalRequest {
    SignalRequest::Look { boot: "b".to_owned(), process, tree }
}

fn step(story: &Story) -> Step {
    match &story.model.ui.overlay {
        Overlay::Signal(shown) => shown.step.clone(),
        other => panic!("no dialog: {other:?}"),
    }
}

fn notice(story: &Story) -> (Level, String) {
    let toast = story.model.ui.toasts.back().expect("no notice");
    (toast.level, toast.text.clone())
}

/// Detail of a GPU, with the dialog opened on its process and the answer of its host.
fn dialog(refusals: &[Option<&str>]) -> Story {
    let mut story = shared();
    press(&mut story, "gj");
    key(&mut story, KeyCode::Enter);
    let (number, request) = asked(&press(&mut story, "K"));
    assert_eq!(request, look(ProcessKey { pid: 4_000, start: 90_000 }, false));
    let processes = (4_000..).zip(refusals).map(|(pid, refusal)| found(pid, *refusal)).collect();
    story.send(Msg::SignalTold { number, answer: SignalAnswer::Found { processes, note: None } });
    story
}

#[test]
fn who_uses_what_since_when() {
    let mut story = shared();
    press(&mut story, "u");
    assert_eq!(story.model.ui.screen, Screen::Users);
    let all = users(&story.model);
    let told: Vec<_> =
        all.iter().map(|user| (user.name.as_str(), user.gpus, user.idle, user.oldest_s)).collect();
    let day = 3 * 86_400;
    let expected = [
        ("li", 2, 0, Some(8_040)),
        (UNKNOWN, 1, 0, None),
        ("chen", 1, 0, Some(8_100)),
        ("wang", 1, 1, Some(day)),
    ];
    assert_eq!(told, expected, "the one with the most GPUs first");
    assert_eq!((all[0].util, all[0].memory), (Some(96.0), Some(262 << 30)));
    assert_eq!((all[1].memory, all[1].runs.len()), (None, 1), "unknown is not 0");
    shoot("users", &mut story);
    press(&mut story, "Z");
    shoot("users-unfolded", &mut story);
}

#[test]
fn a_user_is_unfolded_and_the_cursor_stays_where_it_is() {
    let mut story = shared();
    press(&mut story, "uG");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "j");
    let wang = RowId::Process((host("gpu-a"), 2, 4_002));
    assert_eq!(story.model.ui.users.cursor.on, Some(wang.clone()));
    press(&mut story, "g");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "G");
    assert_eq!(story.model.ui.users.cursor.on, Some(wang));
    let (_, request) = asked(&press(&mut story, "K"));
    assert_eq!(request, look(ProcessKey { pid: 4_002, start: 90_002 }, false));
    key(&mut story, KeyCode::Esc);
    press(&mut story, "z");
    assert_eq!(story.model.ui.users.cursor.on, Some(RowId::User("wang".to_owned())), "folded from below");
    assert!(press(&mut story, "K").is_empty());
    assert!(notice(&story).1.contains("select a process"));
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.screen, Screen::Cluster);
}

#[test]
fn picks_are_dropped_by_their_own_key_alone() {
    let mut story = cluster();
    press(&mut story, "jjj  ");
    key(&mut story, KeyCode::Esc);
    press(&mut story, "u");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.cluster.picked(), 2);
    press(&mut story, "U");
    assert_eq!(story.model.ui.cluster.picked(), 0);
}

#[test]
fn detail_has_a_cursor_in_its_processes() {
    let mut story = shared();
    press(&mut story, "g");
    key(&mut story, KeyCode::Enter);
    let on = |story: &Story| story.model.ui.detail.cursor.on.clone().unwrap().2;
    assert_eq!(on(&story), 4_000);
    press(&mut story, "jj");
    assert_eq!(on(&story), 777, "k and j move, K alone signals");
    press(&mut story, "jjjjk");
    assert_eq!(on(&story), 777);
    shoot("detail-processes", &mut story);
    // the process goes, and its neighbour takes over
    story.faults.remove("gpu-a");
    story.sample("gpu-a", 3.0, &[busy(98, "li"), busy(60, "chen"), busy(0, "wang"), FREE]);
    assert_eq!(on(&story), 4_002);
}

#[test]
fn a_signal_is_chosen_shown_and_confirmed() {
    let mut story = dialog(&[None]);
    shoot("signal-choose", &mut story);
    let Overlay::Signal(shown) = &story.model.ui.overlay else { panic!("no dialog") };
    assert_eq!(shown.signal, SignalName::Term);
    press(&mut story, "jjj");
    let (number, request) = asked(&press(&mut story, "t"));
    assert_eq!(
        (step(&story), request),
        (Step::Looking, look(ProcessKey { pid: 4_000, start: 90_000 }, true))
    );
    assert!(
        key(&mut story, KeyCode::Enter).is_empty() && step(&story) == Step::Looking,
        "not before the answer"
    );
    // an answer to the question before comes too late
    let late = SignalAnswer::Refused { reason: "late".to_owned() };
    story.send(Msg::SignalTold { number: number - 1, answer: late });
    assert_eq!(step(&story), Step::Looking);
    let left =
        "it is hvtui's rank-wrap of run 7QK2: x on the Run screen, or hvtui stop, ends a run as a whole";
    let processes = vec![found(4_000, None), found(4_100, Some(left)), found(4_200, None)];
    let note = Some("it belongs to run 7QK2 of hvtui: when one of its ranks fails, all stop".to_owned());
    story.send(Msg::SignalTold { number, answer: SignalAnswer::Found { processes, note } });
    key(&mut story, KeyCode::Enter);
    shoot("signal-confirm", &mut story);
    let Overlay::Signal(shown) = &story.model.ui.overlay else { panic!("no dialog") };
    let command = "python train.py --config large.yaml";
    assert_eq!(shown.intent(), format!("STOP to 2 processes of li on gpu-a: 4000 {command}, 4200 {command}"));
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "enter twice sends nothing");
    press(&mut story, "n");
    key(&mut story, KeyCode::Enter);
    let (number, request) = asked(&press(&mut story, "y"));
    let keys = [4_000, 4_200].map(|pid| ProcessKey { pid, start: 90_000 });
    let sent =
        SignalRequest::Send { boot: "b".to_owned(), signal: SignalName::Stop, processes: keys.to_vec() };
    assert_eq!(request, sent);
    assert_eq!(story.model.ui.overlay, Overlay::None);
    let gone = Some("it has ended".to_owned());
    let processes =
        vec![Signalled { key: keys[0], refusal: None }, Signalled { key: keys[1], refusal: gone }];
    story.send(Msg::SignalTold { number, answer: SignalAnswer::Sent { processes } });
    let words = "STOP sent to 1 of 2 processes on gpu-a: 4200: it has ended";
    assert_eq!(notice(&story), (Level::Error, words.to_owned()));
}

#[test]
fn what_may_not_be_signalled_says_why() {
    let mut story = dialog(&[Some("belongs to wang; hvtui is logged in as li there: ask wang")]);
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(matches!(step(&story), Step::Found { confirm: false, .. }), "there is nothing to confirm");
    shoot("signal-refused", &mut story);
    let (number, _) = asked(&press(&mut story, "t"));
    let reason = "the agent on gpu-a is hvtui 0.0.9, which can't signal processes: use the same hvtui there";
    let answer = SignalAnswer::Refused { reason: reason.to_owned() };
    story.send(Msg::SignalTold { number, answer });
    assert_eq!(step(&story), Step::Refused(reason.to_owned()));
    key(&mut story, KeyCode::Esc);
    // a refusal that comes behind the confirmation
    let mut story = dialog(&[None]);
    key(&mut story, KeyCode::Enter);
    let (number, _) = asked(&press(&mut story, "y"));
    let answer = SignalAnswer::Refused { reason: "the link to gpu-a was lost".to_owned() };
    story.send(Msg::SignalTold { number, answer });
    assert_eq!(notice(&story), (Level::Error, "TERM on gpu-a: the link to gpu-a was lost".to_owned()));
}

#[test]
fn a_process_that_can_be_mistaken_for_another_is_not_signalled() {
    let mut story = shared();
    press(&mut story, "gjj");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "G");
    assert!(press(&mut story, "K").is_empty());
    assert!(
        notice(&story).1.contains("gpu-a does not tell when process 777 started"),
        "{:?}",
        notice(&story)
    );
    story.link("gpu-a", LinkState::Limited { reason: "noexec".to_owned() });
    press(&mut story, "gK");
    assert!(notice(&story).1.contains("no agent of hvtui runs on gpu-a"), "{:?}", notice(&story));
    story.down("gpu-a", "no route to host");
    press(&mut story, "gK");
    assert!(notice(&story).1.contains("gpu-a is not connected"), "{:?}", notice(&story));
}

#[test]
fn a_client_that_only_looks_changes_nothing() {
    let mut story = shared();
    story.model.readonly = true;
    let refused = |story: &mut Story, keys: &str, what: &str| {
        assert!(press(story, keys).is_empty(), "{keys}");
        assert_eq!(story.model.ui.overlay, Overlay::None, "{keys}");
        let words = format!("read-only: {what} is refused; start hvtui without --readonly for it");
        assert_eq!(notice(story), (Level::Warning, words));
    };
    refused(&mut story, "gj l", "a launch");
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    shoot("cluster-readonly", &mut story);
    key(&mut story, KeyCode::Enter);
    refused(&mut story, "K", "a signal");
    press(&mut story, "cuZj");
    refused(&mut story, "K", "a signal");

    let mut story = training();
    story.model.readonly = true;
    press(&mut story, "o");
    assert_eq!(story.model.ui.screen, Screen::Run);
    refused(&mut story, "x", "a stop");
    refused(&mut story, "S", "a look at the stacks, which signals the ranks");
    // a question that was open before
    story.model.ui.overlay = Overlay::Confirm(hvtui::tui::screens::model::Confirm::Stop(run_id()));
    refused(&mut story, "y", "a stop");
}
