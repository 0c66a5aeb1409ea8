//! The Launch screen: what it suggests while one types, and what the hosts of the plan find before the start.

use std::process::Command;

use crate::common::terminal::Terminal;
use crate::common::world;
use crate::common::world::{FREE, Story, busy, cluster, host, key, press, recordings, run_id};
use hvtui::domain::doctor::{Matrix, Row, Verdict};
use hvtui::domain::host::LinkState;
use hvtui::domain::ids::RunId;
use hvtui::domain::preflight::{Finding, Mark};
use hvtui::domain::run::JobKind;
use hvtui::launch::error::LaunchError;
use hvtui::tui::core::{Effect, KeyCode, LookOf, Msg};
use hvtui::tui::screens::launch::completion::suggestion;
use hvtui::tui::screens::launch::{Field, checks};

fn text(story: &Story, field: Field) -> String {
    story.model.ui.launch.text(field).to_owned()
}

/// The form, with recorded runs.
fn form() -> Story {
    let mut story = cluster();
    story.send(Msg::RunsListed(recordings()));
    press(&mut story, "L");
    story
}

fn focus(story: &mut Story, field: Field) {
    while story.model.ui.launch.focus != field {
        key(story, KeyCode::Tab);
    }
}

/// A plan on GPUs 2 and 3 of gpu-a and GPU 5 of gpu-b.
fn plan() -> std::sync::Arc<hvtui::launch::plan::LaunchPlan> {
    let slots = world::gpu_slots(&[("gpu-a", 2), ("gpu-a", 3), ("gpu-b", 5)]);
    world::plan(world::spec(run_id(), "digits", &slots, world::START))
}

/// The form whose last preview was answered; the number of the question to the hosts.
fn planned() -> (Story, u64) {
    let mut story = form();
    let effects = story.send(Msg::LaunchPlanned(Ok(plan())));
    let [Effect::Preflight(number, _), Effect::CheckHosts(_)] = &effects[..] else {
        panic!("the hosts are asked: {effects:?}")
    };
    let number = *number;
    (story, number)
}

fn said(story: &Story) -> Vec<(Option<Mark>, String, String)> {
    let names = |line: &checks::CheckLine| line.hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
    checks::lines(&story.model)
        .iter()
        .map(|line| (line.mark, names(line).join(" "), line.text.clone()))
        .collect()
}

#[test]
fn the_command_is_suggested_from_recorded_runs_and_the_right_arrow_takes_it() {
    let mut story = form();
    assert_eq!(suggestion(&story.model), None, "nothing behind the text that typing replaces");
    press(&mut story, "hvtui tr");
    assert_eq!(suggestion(&story.model).as_deref(), Some("ain digits"));
    assert_eq!(text(&story, Field::Command), "hvtui tr", "it is not there before it is taken");
    let effects = key(&mut story, KeyCode::Right);
    assert!(
        matches!(&effects[..], [Effect::Preview(request)] if request.command == ["hvtui", "train", "digits"])
    );
    assert_eq!(suggestion(&story.model), None);
    key(&mut story, KeyCode::Left);
    key(&mut story, KeyCode::Right);
    press(&mut story, " x");
    assert_eq!(text(&story, Field::Command), "hvtui train digits x");
    assert_eq!(suggestion(&story.model), None);
}

#[test]
fn hosts_and_their_free_gpus_are_suggested_and_tab_goes_on() {
    let mut story = form();
    focus(&mut story, Field::On);
    press(&mut story, "g");
    assert_eq!(suggestion(&story.model).as_deref(), Some("pu-a:"));
    key(&mut story, KeyCode::Right);
    let free = suggestion(&story.model).expect("its free GPUs");
    key(&mut story, KeyCode::End);
    assert_eq!(text(&story, Field::On), format!("gpu-a:{free}"));
    press(&mut story, " gpu-b");
    assert_eq!(suggestion(&story.model).as_deref(), Some(":"));
    key(&mut story, KeyCode::Tab);
    assert_ne!(story.model.ui.launch.focus, Field::On, "tab is the next field");
    assert!(text(&story, Field::On).ends_with("gpu-b"));
    story.model.ui.launch.set(Field::On, "-H gpu-a:2,gpu-");
    focus(&mut story, Field::On);
    assert_eq!(suggestion(&story.model).as_deref(), Some("a:"));
}

#[test]
fn typing_never_joins_what_was_suggested() {
    let mut story = form();
    assert_eq!((text(&story, Field::Ranks).as_str(), story.model.ui.launch.suggested), ("2", true));
    focus(&mut story, Field::Ranks);
    press(&mut story, "4");
    assert_eq!((text(&story, Field::Ranks).as_str(), story.model.ui.launch.suggested), ("4", false));
    press(&mut story, "0");
    assert_eq!(text(&story, Field::Ranks), "40", "what was typed is gone on with");
    let mut story = form();
    focus(&mut story, Field::Ranks);
    story.send(Msg::Paste("8".to_owned()));
    assert_eq!(text(&story, Field::Ranks), "8");
    // what an earlier launch left there is replaced, too, unless the cursor is moved first
    for (keys, ranks) in [("", "40"), ("→", "840")] {
        story.model.ui.launch.set(Field::Ranks, "8");
        focus(&mut story, Field::Command);
        focus(&mut story, Field::Ranks);
        if !keys.is_empty() {
            key(&mut story, KeyCode::Right);
        }
        press(&mut story, "40");
        assert_eq!(text(&story, Field::Ranks), ranks);
    }
}

#[test]
fn what_a_host_says_would_fail_is_started_by_a_second_enter_alone() {
    let (mut story, number) = planned();
    let bad = Finding::new(Mark::Bad, "command 'hvtui' not found on gpu-b");
    story.send(Msg::Preflight(number, host("gpu-b"), vec![bad]));
    let starts = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Start(_)));
    assert!(!starts(&key(&mut story, KeyCode::Enter)));
    let told = |story: &Story| {
        story.model.ui.toasts.iter().filter(|toast| toast.text.contains("a check failed")).count()
    };
    assert_eq!(told(&story), 1);
    assert!(starts(&key(&mut story, KeyCode::Enter)));
    // another plan is asked about anew
    let (mut story, number) = planned();
    story.model.ui.launch.warned = Some(number - 1);
    story.send(Msg::Preflight(number, host("gpu-b"), vec![Finding::new(Mark::Bad, "no")]));
    assert!(!starts(&key(&mut story, KeyCode::Enter)));
}

#[test]
fn hosts_are_asked_for_each_plan_and_what_they_find_is_one_line_for_those_that_agree() {
    let (mut story, number) = planned();
    assert_eq!(said(&story), [(None, "gpu-a gpu-b".to_owned(), "asking …".to_owned())]);
    let good = |path: &str| Finding::new(Mark::Good, format!("hvtui is {path}"));
    story.send(Msg::Preflight(number, host("gpu-a"), vec![good("/usr/bin/hvtui")]));
    let lines = said(&story);
    assert_eq!(lines[0].0, Some(Mark::Good));
    assert!(lines[0].1 == "gpu-a" && lines[0].2 == "GPUs 2-3 free · hvtui is /usr/bin/hvtui", "{lines:?}");
    let bad = Finding::new(Mark::Bad, "command 'hvtui' not found on gpu-b");
    story.send(Msg::Preflight(number, host("gpu-b"), vec![good("x"), bad]));
    let lines = said(&story);
    assert_eq!((lines[0].0, lines[0].1.as_str()), (Some(Mark::Bad), "gpu-b"), "what is wrong comes first");
    assert_eq!(lines[0].2, "command 'hvtui' not found on gpu-b", "without what is well");
}

/// What the doctor finds: `mark` on gpu-b.
fn matrix(check: &'static str, mark: Mark) -> Matrix {
    let verdict = match mark {
        Mark::Bad => Verdict::bad("64 MB of 64 MB free", "NCCL ends", "remount it"),
        _ => Verdict::good("1 TB free"),
    };
    let verdicts = [(host("gpu-a"), Verdict::good("1 TB free")), (host("gpu-b"), verdict)].into();
    let row = Row { check, asks: "is it large", verdicts };
    Matrix { hosts: vec![host("gpu-a"), host("gpu-b")], rows: vec![row] }
}

#[test]
fn what_the_doctor_finds_red_on_a_host_of_the_plan_is_started_by_a_second_enter_alone() {
    let mut story = form();
    let effects = story.send(Msg::LaunchPlanned(Ok(plan())));
    let [Effect::Preflight(number, _), Effect::CheckHosts(look)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let LookOf::Plan { hosts, checks, .. } = &look.of else { panic!("{look:?}") };
    assert_eq!(*hosts, [host("gpu-a"), host("gpu-b")]);
    assert!(
        checks.contains(&"shm") && checks.contains(&"reach") && !checks.contains(&"docker"),
        "{checks:?}"
    );
    for name in ["gpu-a", "gpu-b"] {
        story.send(Msg::Preflight(*number, host(name), vec![Finding::new(Mark::Good, "folder /a")]));
    }
    story.send(Msg::HostsChecked(look.number, Box::new(matrix("shm", Mark::Bad)), true));
    let lines = said(&story);
    assert_eq!(
        lines[0],
        (
            Some(Mark::Bad),
            "gpu-b".to_owned(),
            "shm: 64 MB of 64 MB free: NCCL ends; fix: remount it".to_owned()
        ),
        "{lines:?}"
    );
    let starts = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Start(_)));
    assert!(!starts(&key(&mut story, KeyCode::Enter)));
    assert!(starts(&key(&mut story, KeyCode::Enter)), "all the same");
}

#[test]
fn the_script_of_tensorflow_is_read_while_one_types() {
    let mut story = form();
    let mut spec = world::spec(run_id(), "mnist", &world::gpu_slots(&[("gpu-b", 5)]), world::START);
    spec.kind = JobKind::Tensorflow;
    spec.command = ["python3", "train.py"].map(str::to_owned).to_vec();
    let effects = story.send(Msg::LaunchPlanned(Ok(world::plan(spec))));
    let looks: Vec<&LookOf> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::CheckHosts(look) => Some(&look.of),
            _ => None,
        })
        .collect();
    let [LookOf::Plan { checks: rests, .. }, LookOf::Files { checks, paths, .. }] = &looks[..] else {
        panic!("{effects:?}")
    };
    assert!(
        checks == &["tf", "import"] && rests.contains(&"packages") && !rests.contains(&"tf"),
        "{looks:?}"
    );
    assert!(paths[&host("gpu-b")].iter().any(|asked| asked.path.ends_with("train.py")), "{paths:?}");
}

#[test]
fn the_doctor_looks_once_however_much_is_typed() {
    let mut story = form();
    let looks =
        |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::CheckHosts(_))).count();
    let mut all = looks(&story.send(Msg::LaunchPlanned(Ok(plan()))));
    press(&mut story, " --epochs 3");
    while story.model.ui.launch.asked > 0 {
        all += looks(&story.send(Msg::LaunchPlanned(Ok(plan()))));
    }
    assert_eq!(all, 1);
    // other hosts are others' business
    press(&mut story, "x");
    let slots = world::gpu_slots(&[("gpu-b", 5)]);
    let other = world::plan(world::spec(run_id(), "digits", &slots, world::START));
    assert_eq!(looks(&story.send(Msg::LaunchPlanned(Ok(other)))), 1);
    // and what the Doctor screen has asked for is told there
    story.send(Msg::HostsChecked(99, Box::new(matrix("shm", Mark::Bad)), true));
    assert!(said(&story).iter().all(|(mark, ..)| *mark != Some(Mark::Bad)));
}

#[test]
fn answers_to_older_questions_are_dropped() {
    let (mut story, number) = planned();
    press(&mut story, "x");
    story.send(Msg::Preflight(number, host("gpu-a"), vec![Finding::new(Mark::Bad, "old")]));
    assert!(said(&story).is_empty(), "there is no plan to it");
    while story.model.ui.launch.asked > 0 {
        story.send(Msg::LaunchPlanned(Ok(plan())));
    }
    story.send(Msg::Preflight(number, host("gpu-a"), vec![Finding::new(Mark::Bad, "old")]));
    assert_eq!(said(&story)[0].2, "asking …");
}

#[test]
fn a_gpu_that_is_taken_meanwhile_is_told() {
    let (mut story, _) = planned();
    story.sample("gpu-a", 5.0, &[FREE, FREE, FREE, busy(90, "wang")]);
    let lines = said(&story);
    assert_eq!(lines[0].0, Some(Mark::Look));
    assert!(
        lines[0].1 == "gpu-a" && lines[0].2.starts_with("GPU 3 is taken: ") && lines[0].2.contains("wang"),
        "{lines:?}"
    );
}

/// `hvtui` on this machine alone with a home folder of its own.
pub(crate) fn hvtui(home: &std::path::Path) -> Command {
    let mut command = Command::new(crate::common::program::hvtui());
    command.env("HOME", home).env("XDG_STATE_HOME", home.join("state")).current_dir(home);
    for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command
}

#[test]
fn a_host_looks_for_the_command_the_script_and_the_folder_while_one_types() {
    let home = tempfile::tempdir().unwrap();
    let Some(terminal) = Terminal::start(&hvtui(home.path()), 120, 40) else { return };
    terminal.wait("the cluster", |screen| screen.contains("local") && screen.contains('%'));
    terminal.press(&["L"]);
    terminal.wait("the form", |screen| screen.contains("will run"));
    terminal.type_in("sh job.sh");
    terminal.wait("what the host found", |screen| {
        screen.contains("checks") && screen.contains("sh is /") && screen.contains("✔ all hosts")
    });
    terminal.press(&["C-u"]);
    terminal.type_in("no-such-program");
    terminal.wait("that it is missing", |screen| {
        screen.contains("✖ the start would fail")
            && screen.contains("command 'no-such-program' not found on local")
    });
    terminal.press(&["C-u"]);
    terminal.type_in("python3 missing.py");
    terminal.wait("that the script is missing", |screen| {
        screen.contains("no file missing.py in ") || screen.contains("command 'python3' not found")
    });
    // where there is room for little else, too
    terminal.resize(60, 15);
    terminal.wait("that it is still told", |screen| {
        screen.contains("✖ local  no file missing.py in ") || screen.contains("✖ local  command 'python3'")
    });
    terminal.resize(120, 40);
    std::fs::write(home.path().join("missing.py"), "print(1)").unwrap();
    terminal.type_in(" ");
    terminal.wait("that it is there", |screen| {
        screen.contains("✔ all hosts") || screen.contains("command 'python3' not found")
    });
    terminal.press(&["C-c"]);
    terminal.assert_restored(0);
}

fn plans(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Preview(_))).count()
}

fn tick(story: &mut Story) -> Vec<Effect> {
    story.at = story.at.plus_micros(1_000_000);
    let at = story.at;
    story.send(Msg::Tick(at))
}

#[test]
fn a_launch_that_waits_for_a_host_is_planned_again_when_the_host_has_answered() {
    let mut story = form();
    story.send(Msg::LaunchPlanned(Err(LaunchError::waiting_for(&[host("gpu-a")]))));
    assert_eq!(plans(&tick(&mut story)), 0, "no host has told anything");
    story.link("gpu-a", LinkState::Up);
    assert_eq!(plans(&tick(&mut story)), 1);
    assert!(story.model.ui.launch.plan.is_some(), "what was known stands until the answer comes");
    story.link("gpu-a", LinkState::Up);
    assert_eq!(plans(&tick(&mut story)), 0, "one question at a time");
    story.send(Msg::LaunchPlanned(Err(LaunchError::waiting_for(&[host("gpu-a")]))));
    assert_eq!(plans(&tick(&mut story)), 1, "what came while it was asked");
    let effects = story.send(Msg::LaunchPlanned(Ok(plan())));
    assert!(matches!(&effects[..], [Effect::Preflight(..), Effect::CheckHosts(_)]), "{effects:?}");
}

#[test]
fn enter_on_a_launch_that_waits_for_a_host_starts_it_when_the_host_has_answered_and_esc_calls_it_off() {
    let starts = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Start(_)));
    let waiting = || Msg::LaunchPlanned(Err(LaunchError::waiting_for(&[host("gpu-a")])));
    for (called_off, started) in [(false, true), (true, false)] {
        let mut story = form();
        story.send(waiting());
        assert!(key(&mut story, KeyCode::Enter).is_empty());
        story.link("gpu-b", LinkState::Up);
        assert_eq!(plans(&tick(&mut story)), 1);
        assert!(story.send(waiting()).is_empty(), "gpu-a is waited for all the same");
        story.link("gpu-a", LinkState::Up);
        assert_eq!(plans(&tick(&mut story)), 1);
        if called_off {
            key(&mut story, KeyCode::Esc);
        }
        assert_eq!(starts(&story.send(Msg::LaunchPlanned(Ok(plan())))), started);
    }
}

#[test]
fn a_plan_that_stays_the_same_keeps_what_the_hosts_have_found() {
    let (mut story, number) = planned();
    story.send(Msg::Preflight(number, host("gpu-a"), vec![Finding::new(Mark::Good, "all there")]));
    let before = said(&story);
    story.link("gpu-b", LinkState::Up);
    assert_eq!(plans(&tick(&mut story)), 1);
    // the same, but for the run's number and the moment
    let slots = world::gpu_slots(&[("gpu-a", 2), ("gpu-a", 3), ("gpu-b", 5)]);
    let other = RunId::new(1_795_271_500_000, 0x7_1234_5678_9abc_def8);
    let again = world::plan(world::spec(other, "digits", &slots, story.at));
    let effects = story.send(Msg::LaunchPlanned(Ok(again)));
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(said(&story), before);
    // a host that is lost takes the plan with it, and what was found
    story.link("gpu-b", LinkState::Down { reason: "no answer".to_owned(), retry_at: None });
    assert_eq!(plans(&tick(&mut story)), 1);
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("gpu-b: no answer"))));
    assert_eq!(said(&story), []);
    let effects = key(&mut story, KeyCode::Enter);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Start(_))));
}

#[test]
fn a_form_that_is_not_shown_or_was_sent_asks_for_nothing() {
    let (mut story, _) = planned();
    story.link("gpu-b", LinkState::Up);
    key(&mut story, KeyCode::Esc);
    assert_eq!(plans(&tick(&mut story)), 0);
    let (mut story, _) = planned();
    key(&mut story, KeyCode::Enter);
    story.link("gpu-b", LinkState::Up);
    assert_eq!(plans(&tick(&mut story)), 0);
}
