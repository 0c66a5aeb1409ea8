//! What hosts and files answer while a person does something else: nothing that was typed or picked is lost, and no screen takes the
//! place of another one.

use hvtui::domain::host::LinkState;
use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::question::{Answer, Question, Subject};
use hvtui::domain::run::RunStage;
use hvtui::domain::run_status::{HostRunStatus, RunInventory};
use hvtui::domain::stacks::{ProcessStacks, Taker};
use hvtui::tui::core::{Effect, Key, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::launch::Field;
use hvtui::tui::screens::model::Overlay;

use crate::common::world::{self, Story, any_plan, cluster, host, key, press, recordings, run_id, training};
use crate::screens::{COLOR, text};

fn said(story: &Story) -> String {
    story.model.ui.toasts.back().map(|toast| toast.text.clone()).unwrap_or_default()
}

/// A launch of the GPU 2 of gpu-a that is on its way.
fn starting() -> Story {
    let mut story = cluster();
    press(&mut story, "jjj ");
    press(&mut story, "l");
    story.send(Msg::LaunchPlanned(Ok(any_plan())));
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Start(any_plan())]);
    story
}

#[test]
fn a_run_that_starts_while_others_are_picked_takes_neither_screen_nor_picks() {
    let mut story = starting();
    key(&mut story, KeyCode::Esc);
    press(&mut story, " ");
    assert_eq!((story.model.ui.screen, story.model.ui.cluster.picked()), (Screen::Cluster, 2));
    story.run("digits", &world::gpu_slots(&[("gpu-a", 2)]));
    story.send(Msg::Launched(run_id()));
    assert_eq!(story.model.ui.screen, Screen::Cluster);
    assert!(said(&story).ends_with("has started: 2 shows it"), "{}", said(&story));
    assert_eq!(story.model.ui.cluster.picked(), 1, "what the run has taken is picked no longer");
    press(&mut story, "2");
    assert_eq!(
        (story.model.ui.screen, story.model.shown_run().map(|(id, _)| id)),
        (Screen::Run, Some(&run_id()))
    );
}

#[test]
fn a_run_whose_slots_another_launch_had_first_gives_way_to_the_next_try() {
    for becomes_a_run in [true, false] {
        let mut story = starting();
        story.run("digits", &world::gpu_slots(&[("gpu-a", 2)]));
        story.send(Msg::Launched(run_id()));
        assert_eq!(story.model.ui.screen, Screen::Run);
        story.send(Msg::Withdrawn(run_id()));
        assert!(!story.model.world.runs.contains_key(&run_id()));
        assert_eq!(story.model.ui.screen, Screen::Launch);
        assert_eq!(key(&mut story, KeyCode::Enter), [], "it is being tried again");
        if becomes_a_run {
            story.run("digits", &world::gpu_slots(&[("gpu-a", 3)]));
            story.send(Msg::Launched(run_id()));
            assert_eq!(story.model.ui.screen, Screen::Run);
        } else {
            story.send(Msg::LaunchFailed("gpu-a is full".to_owned()));
            assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Start(any_plan())]);
        }
    }
}

#[test]
fn a_launch_that_is_placed_again_can_be_called_off() {
    let mut story = starting();
    story.run("digits", &world::gpu_slots(&[("gpu-a", 2)]));
    story.send(Msg::Launched(run_id()));
    story.send(Msg::Withdrawn(run_id()));
    assert!(text(&story.model, COLOR).contains("placed again … · esc calls it off"));
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::LeaveQueue]);
    assert_eq!((story.model.ui.launch.starting, story.model.ui.screen), (false, Screen::Launch));
    assert!(key(&mut story, KeyCode::Esc).is_empty(), "nothing is left to call off");
}

#[test]
fn an_error_elsewhere_does_not_make_a_launch_startable_again() {
    let mut story = starting();
    story.send(Msg::Notice(Level::Error, "run 7QK2 is not deleted on gpu-b: no space".to_owned()));
    assert!(story.model.ui.launch.starting);
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    story.send(Msg::LaunchFailed("gpu-a is gone".to_owned()));
    assert_eq!(said(&story), "gpu-a is gone");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Start(any_plan())]);
}

#[test]
fn enter_while_a_host_file_is_read_starts_once_it_is_read() {
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::Key(Key::ctrl('u')));
    let asked = story.send(Msg::Paste("mpirun -np 2 --hostfile hosts python3 a.py".to_owned()));
    let name = asked.iter().find_map(|effect| match effect {
        Effect::ReadHostFile(name) => Some(name.clone()),
        _ => None,
    });
    let name = name.unwrap_or_else(|| panic!("{asked:?}"));
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    let asked = story.send(Msg::HostFileRead(name, Ok("gpu-a slots=2\n".to_owned())));
    assert!(asked.iter().any(|effect| matches!(effect, Effect::Preview(_))), "{asked:?}");
    let mut effects = Vec::new();
    while effects.is_empty() && story.model.ui.launch.asked > 0 {
        effects = story.send(Msg::LaunchPlanned(Ok(any_plan())));
    }
    assert_eq!(effects.last(), Some(&Effect::Start(any_plan())));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Preflight(..))), "{effects:?}");
}

#[test]
fn a_question_of_ssh_waits_until_the_form_is_left_alone_for_a_second() {
    let mut story = cluster();
    press(&mut story, "l");
    story.send(Msg::Key(Key::ctrl('u')));
    press(&mut story, "python3 tr");
    let to = "li@gpu-b:22".to_owned();
    let question = Question { host: host("gpu-b"), to, subject: Subject::Password, note: None };
    story.send(Msg::Asked(1, question));
    press(&mut story, "ain.py");
    assert_eq!(story.model.ui.launch.text(Field::Command), "python3 train.py");
    story.wait_ms(1_100);
    assert!(text(&story.model, COLOR).contains("li@gpu-b:22"), "{}", text(&story.model, COLOR));
    press(&mut story, "x");
    assert!(matches!(key(&mut story, KeyCode::Enter)[..], [Effect::Answer(1, Answer::Text(_))]));
    assert_eq!(story.model.ui.launch.text(Field::Command), "python3 train.py");
}

/// Recordings whose newest one has no end, in a cluster whose hosts have not told their runs.
fn not_told(link: &LinkState) -> (Story, RunId) {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    for name in ["gpu-a", "gpu-b"] {
        story.link(name, link.clone());
    }
    let mut past = recordings();
    past[0].outcome = None;
    let id = past[0].spec.id.clone();
    story.send(Msg::RunsListed(past));
    press(&mut story, "r");
    while story.model.ui.runs.cursor.on.as_ref() != Some(&id) {
        press(&mut story, "j");
    }
    (story, id)
}

fn share(id: &RunId, name: &str) -> HostRunStatus {
    HostRunStatus {
        run: id.clone(),
        host: HostId::from(name),
        name: "digits".to_owned(),
        ranks: vec![Rank(0)],
        stage: RunStage::Training,
        supervised: true,
        live: true,
        stop: None,
        started: vec![Rank(0)],
        exits: std::collections::BTreeMap::new(),
        spec: None,
        quiet_s: None,
    }
}

#[test]
fn a_run_whose_hosts_have_not_told_is_opened_once_they_have() {
    let connecting = LinkState::Connecting { to: "li@gpu-a:22".to_owned() };
    let (mut story, id) = not_told(&connecting);
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    assert!(said(&story).starts_with("asking gpu-a"), "{}", said(&story));
    // it goes on: it is followed
    let mut inventory = RunInventory::default();
    inventory.take(&host("gpu-a"), vec![share(&id, "gpu-a")], true);
    story.send(Msg::RunsHeard(Box::new(inventory)));
    let tick = story.model.now.plus_micros(100_000);
    let effects = story.send(Msg::Tick(tick));
    assert!(matches!(&effects[..], [Effect::Attach(spec)] if spec.id == id), "{effects:?}");
    story.send(Msg::Attached(id.clone()));
    assert_eq!((story.model.ui.screen, &story.model.ui.run.run), (Screen::Run, &Some(id)));

    // enter once more does not wait
    let (mut story, id) = not_told(&connecting);
    key(&mut story, KeyCode::Enter);
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::OpenReplay(id)]);

    // a host that is not reached tells nothing
    let down = LinkState::Down { reason: "gone".to_owned(), retry_at: None };
    let (mut story, id) = not_told(&down);
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::OpenReplay(id)]);
}

#[test]
fn who_types_a_command_when_a_run_has_been_attached_to_goes_on_typing() {
    let (mut story, id) = not_told(&LinkState::Up);
    let mut inventory = RunInventory::default();
    inventory.take(&host("gpu-a"), vec![share(&id, "gpu-a")], true);
    story.send(Msg::RunsHeard(Box::new(inventory)));
    assert!(matches!(key(&mut story, KeyCode::Enter)[..], [Effect::Attach(_)]));
    press(&mut story, "L");
    story.send(Msg::Key(Key::ctrl('u')));
    press(&mut story, "python3 x");
    story.send(Msg::Attached(id));
    press(&mut story, ".py");
    assert_eq!(
        (story.model.ui.screen, story.model.ui.launch.text(Field::Command)),
        (Screen::Launch, "python3 x.py")
    );
}

#[test]
fn stacks_of_the_main_threads_do_not_answer_for_those_of_all() {
    let mut story = training();
    assert!(matches!(press(&mut story, "S")[..], [Effect::AskStacks { threads: false, .. }]));
    assert!(matches!(press(&mut story, "t")[..], [Effect::AskStacks { threads: true, .. }]));
    let (id, hosts) = {
        let (id, run) = story.model.shown_run().unwrap_or_else(|| panic!("a run"));
        (id.clone(), run.spec.hosts())
    };
    let told = |story: &mut Story, threads, words: &str| {
        let of = vec![ProcessStacks {
            rank: Rank(0),
            worker: None,
            pid: 7,
            by: Taker::PySpy,
            text: words.to_owned(),
            lacks: None,
            standing: None,
        }];
        let (run, host, collectives) = (id.clone(), hosts[0].clone(), Box::default());
        story.send(Msg::StacksTold {
            run,
            host,
            of,
            why: None,
            threads: Some(threads),
            collectives,
            last: true,
        });
    };
    told(&mut story, false, "the main one");
    told(&mut story, true, "every one");
    let Overlay::Stacks(shown) = &story.model.ui.overlay else { panic!("{:?}", story.model.ui.overlay) };
    let texts: Vec<&str> = shown.stacks.iter().map(|process| process.text.as_str()).collect();
    assert_eq!(texts, ["every one"]);
}
