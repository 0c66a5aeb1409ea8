//! Key scripts: what keys do to selections and which effects they ask for.

use crate::common::world;
use crate::common::world::{
    FREE, START, Story, any_plan, busy, cluster, failed, host, key, many_ranks, playback_state, press,
    recordings, run_id, training, uuid,
};
use crate::screens::{COLOR, text};
use hvtui::domain::ids::{GpuUuid, HostId, Rank};
use hvtui::domain::options::{GpuView, RunOptions};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::question::{Answer, Question, Subject};
use hvtui::domain::run::{JobKind, RunStage};
use hvtui::domain::secret::Secret;
use hvtui::domain::time::Stamp;
use hvtui::launch::error::LaunchError;
use hvtui::launch::remark::Remark;
use hvtui::launch::request::{LaunchRequest, OnBusy, Patience, Pick, PlacementSpec, SlotName};
use hvtui::tui::core::{Effect, Key, KeyCode, Level, Mouse, MouseKind, Msg, PlayCommand, Screen};
use hvtui::tui::screens::cluster::rows::{RowId, rows};
use hvtui::tui::screens::launch::Field;
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::run::log::{Least, log_rows, matches};
use hvtui::tui::screens::run::rows::RankRow;
use hvtui::tui::screens::run::{LogAt, Pane, RunUi};
use hvtui::tui::screens::{Mode, Model, update, users};
use proptest::prelude::*;
use std::sync::Arc;

/// Asks for so many free slots.
fn pick_free(story: &mut Story, count: &str) {
    press(story, "f");
    assert!(matches!(story.model.ui.overlay, Overlay::Prompt(_)));
    press(story, count);
    key(story, KeyCode::Enter);
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
    assert_eq!(effects.last(), Some(&Effect::Start(plan)), "then it does, and what starts is what was shown");
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "enter twice starts once");
    story.send(Msg::Launched(run_id()));
    assert_eq!(story.model.ui.screen, Screen::Run);
    assert_eq!(story.model.ui.cluster.picked(), 0);
}

#[test]
fn a_launch_is_filled_from_every_screen_with_the_picks() {
    let text = |story: &Story| story.model.ui.launch.text(Field::On).to_owned();
    let picked = ["", "u", "3", "E", "2"];
    for keys in picked {
        let mut story = training();
        press(&mut story, "1j ");
        press(&mut story, keys);
        let from = story.model.ui.screen;
        press(&mut story, "L");
        assert_eq!((story.model.ui.screen, text(&story).as_str()), (Screen::Launch, "gpu-a:0"), "{from:?}");
        key(&mut story, KeyCode::Esc);
        assert_eq!(story.model.ui.screen, from);
    }
    // on the detail of a free GPU the picks, and where there are none the GPU
    for (pick, at, on) in [(" ", 7, "gpu-a:2"), ("", 4, "gpu-a:3"), ("", 1, "")] {
        let mut story = cluster();
        press(&mut story, "jjj");
        press(&mut story, pick);
        press(&mut story, "g");
        press(&mut story, &"j".repeat(at));
        key(&mut story, KeyCode::Enter);
        assert_eq!(story.model.ui.screen, Screen::Detail);
        press(&mut story, "L");
        assert_eq!((story.model.ui.screen, text(&story).as_str()), (Screen::Launch, on));
        key(&mut story, KeyCode::Esc);
        assert_eq!(story.model.ui.screen, Screen::Detail);
        assert_eq!(story.model.ui.cluster.picked(), u32::from(!pick.is_empty()), "picks are what they were");
    }
}

#[test]
fn nothing_is_launched_from_a_recording() {
    let mut story = training();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Playback(playback(START)));
    press(&mut story, "L");
    assert_eq!(story.model.ui.screen, Screen::Replay);
    press(&mut story, "EL");
    assert_eq!(story.model.ui.screen, Screen::Events);
    let told = story.model.ui.toasts.back().map(|toast| toast.text.clone()).unwrap_or_default();
    assert_eq!(told, "this is a recording: close it to launch a run");
    assert!(!crate::screens::text(&story.model, crate::screens::COLOR).contains("L launch"));
}

#[test]
fn enter_on_users_goes_into_the_user_and_then_to_the_gpu() {
    let mut story = cluster();
    press(&mut story, "u");
    key(&mut story, KeyCode::Enter);
    press(&mut story, "j");
    let Some(users::RowId::Process(process)) = story.model.ui.users.cursor.on.clone() else {
        panic!("a process: {:?}", story.model.ui.users.cursor.on)
    };
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.screen, Screen::Detail);
    let at = process.1 as usize;
    assert_eq!(
        story.model.ui.detail.on,
        Some(RowId::Gpu(process.0.clone(), uuid(process.0.as_str(), process.1), at))
    );
    assert_eq!(story.model.ui.detail.cursor.on, Some(process.clone()), "with the process");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.screen, Screen::Users);
    assert_eq!(story.model.ui.users.cursor.on, Some(users::RowId::Process(process)), "where it was");
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
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("no slot is free"))));
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
    let taken = Err(world::taken("gpu-a:0 is busy"));
    assert!(story.send(Msg::LaunchPlanned(taken)).is_empty(), "it does not wait unasked");
    let wait = OnBusy { wait: Some(Patience::Endless), share: false };
    let effects = key(&mut story, KeyCode::Enter);
    assert_eq!(effects, [Effect::Launch(LaunchRequest { on_busy: wait, ..request })]);
    story.send(Msg::LaunchWaits("gpu-a:0 is busy".to_owned()));
    let shown = text(&story.model, COLOR);
    assert!(!shown.contains("enter start"), "{shown}");
    assert_eq!(shown.matches("gpu-a:0 is busy").count(), 1, "{shown}");
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "it waits already");
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::LeaveQueue]);
    assert_eq!((story.model.ui.launch.starting, story.model.ui.screen), (false, Screen::Launch));
    assert!(key(&mut story, KeyCode::Esc).is_empty());
    assert_eq!(story.model.ui.screen, Screen::Cluster);
}

#[test]
fn what_is_typed_into_the_places_replaces_the_picks() {
    let mut story = cluster();
    press(&mut story, " L");
    while story.model.ui.launch.focus != Field::On {
        key(&mut story, KeyCode::Tab);
    }
    assert!(!story.model.ui.launch.text(Field::On).is_empty());
    press(&mut story, "gp");
    assert_eq!(story.model.ui.launch.text(Field::On), "gp");
    // an arrow keeps them
    press(&mut story, "u-b:1");
    for code in [KeyCode::Tab, KeyCode::BackTab, KeyCode::Right] {
        key(&mut story, code);
    }
    press(&mut story, ",0");
    assert_eq!(story.model.ui.launch.text(Field::On), "gpu-b:1,0");
}

#[test]
fn an_old_preview_does_not_answer_for_a_new_form() {
    let mut story = cluster();
    press(&mut story, "l");
    let request = only_preview(&press(&mut story, "x"));
    assert_eq!(request.command, ["x"], "what is typed replaces the suggestion");
    story.send(Msg::LaunchPlanned(Ok(any_plan())));
    assert_eq!(story.model.ui.launch.plan, None);
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("no job x"))));
    assert_eq!(story.model.ui.launch.plan, Some(Err(LaunchError::usage("no job x"))));
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
    let around = ["conda none", "/srv/code:~/code", "img:1", "/data:/data:ro,z ~/c:/c"];
    for text in ["", "", "own", "mine", "A=1 B='x y'", "/tmp", "eth0"].into_iter().chain(around) {
        key(&mut story, KeyCode::Tab);
        story.send(Msg::Paste(text.to_owned()));
    }
    let request = story.model.ui.launch.request.clone().unwrap();
    assert_eq!(request.command, ["python", "train.py", "--name", "a b"]);
    assert_eq!(request.kind, Some(JobKind::Native));
    assert_eq!(request.place, PlacementSpec::Count(Some(2)));
    assert_eq!(request.options.gpu_view, GpuView::Own);
    assert_eq!(request.name.as_deref(), Some("mine"));
    assert_eq!(request.env.get("B").map(String::as_str), Some("x y"));
    assert_eq!(
        (request.workdir.as_deref(), request.options.interface.as_deref()),
        (Some("/tmp"), Some("eth0"))
    );
    let options = request.options;
    assert_eq!(options.environment.conda.as_deref(), Some("none"));
    assert_eq!(options.sync.map(|sync| sync.remote).as_deref(), Some("~/code"));
    let container = options.container.unwrap();
    assert_eq!((container.image.as_str(), container.volumes.len()), ("img:1", 2));
    key(&mut story, KeyCode::Tab);
    assert_eq!(story.model.ui.launch.focus, Field::Command, "behind the last field comes the first");
}

#[test]
fn the_suggested_ranks_follow_what_the_hosts_tell_while_the_form_is_open() {
    let mut story = Story::new(&["local"]);
    let asked = |story: &Story| (story.model.ui.launch.text(Field::Ranks).to_owned(), requested(story).place);
    press(&mut story, "l");
    assert_eq!(asked(&story), ("2".to_owned(), PlacementSpec::Count(Some(2))), "it may have any number");
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("-np 2 on 1 free slot"))));
    story.cpu_host("local", 1).wait_ms(1_000);
    assert_eq!(asked(&story), ("1".to_owned(), PlacementSpec::Count(Some(1))));
    // a number that was typed stays
    while story.model.ui.launch.focus != Field::Ranks {
        key(&mut story, KeyCode::Tab);
    }
    press(&mut story, "3");
    story.send(Msg::LaunchPlanned(Err(LaunchError::usage("no room"))));
    story.cpu_host("local", 1).wait_ms(1_000);
    assert_eq!(asked(&story), ("3".to_owned(), PlacementSpec::Count(Some(3))));
}

/// The Launch screen of a machine with CPUs, with an empty command field.
fn form() -> Story {
    let mut story = Story::new(&["local"]);
    story.model.here.read_run = hvtui::cli::run_line::read;
    story.cpu_host("local", 4);
    press(&mut story, "l");
    story.send(Msg::Key(Key::ctrl('u')));
    story
}

/// Writes into a field; the cursor stands in the command field before and behind.
fn write(story: &mut Story, field: Field, text: &str) {
    let fields: Vec<Field> = hvtui::tui::screens::launch::fields(&story.model).collect();
    let at =
        |field| fields.iter().position(|one| *one == field).unwrap_or_else(|| panic!("no field {field:?}"));
    for _ in at(Field::Command)..at(field) {
        key(story, KeyCode::Tab);
    }
    story.send(Msg::Key(Key::ctrl('u')));
    story.send(Msg::Paste(text.to_owned()));
    for _ in at(Field::Command)..at(field) {
        key(story, KeyCode::BackTab);
    }
    assert_eq!(story.model.ui.launch.focus, Field::Command);
}

fn paste(story: &mut Story, line: &str) -> Vec<Effect> {
    story.send(Msg::Paste(line.to_owned()))
}

fn requested(story: &Story) -> LaunchRequest {
    let form = &story.model.ui.launch;
    form.request.clone().unwrap_or_else(|| panic!("no request: {:?}", form.errors))
}

fn hosts(list: &[(&str, u32)], np: Option<u32>) -> PlacementSpec {
    PlacementSpec::Hosts { hosts: list.iter().map(|(name, count)| (host(name), *count)).collect(), np }
}

#[test]
fn the_form_has_the_rules_of_the_command_line() {
    let mut story = form();
    paste(&mut story, r#"python -c "a\tb""#);
    assert_eq!(requested(&story).command, ["python", "-c", r"a\tb"], "a backslash stays");
    write(&mut story, Field::Env, "RANK=7");
    write(&mut story, Field::Workdir, "out");
    write(&mut story, Field::Ranks, "two");
    write(&mut story, Field::On, "local:x");
    let form = &story.model.ui.launch;
    assert_eq!(form.request, None);
    let said = |field| form.error(field).unwrap_or_else(|| panic!("{field:?} has no error")).text.clone();
    assert_eq!(said(Field::Env), "`RANK` is set by hvtui itself, for each rank");
    assert!(said(Field::Workdir).starts_with("out is a relative path"), "{}", said(Field::Workdir));
    assert_eq!(said(Field::Ranks), "`two` is no number of ranks");
    assert!(said(Field::On).contains("has `x`, which is no slot's number"), "{}", said(Field::On));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    let toast = story.model.ui.toasts.back().unwrap().text.clone();
    assert_eq!(toast, "fix the fields marked in red first · 4 errors above");
}

#[test]
fn slots_and_hosts_are_taken_in_each_spelling() {
    let mut story = form();
    paste(&mut story, "true");
    write(&mut story, Field::Ranks, "");
    let pick = |name, slot| Pick { host: host(name), slot: SlotName::Index(slot) };
    let picks = PlacementSpec::Picks(vec![pick("gpu-a", 0), pick("gpu-a", 1), pick("gpu-b", 2)]);
    for text in ["gpu-a:0,1 gpu-b:2", "gpu-a:0,1;gpu-b:2", "gpu-a:0,1; gpu-b:2"] {
        write(&mut story, Field::On, text);
        assert_eq!(requested(&story).place, picks, "{text}");
    }
    write(&mut story, Field::On, "-H a:2,b:2");
    assert_eq!(requested(&story).place, hosts(&[("a", 2), ("b", 2)], None));
    write(&mut story, Field::Ranks, "3");
    assert_eq!(requested(&story).place, hosts(&[("a", 2), ("b", 2)], Some(3)));
    write(&mut story, Field::On, "-H a:2 b:2");
    let error = story.model.ui.launch.error(Field::On).unwrap().text.clone();
    assert!(error.ends_with("-H a:2,b:2"), "{error}");
}

#[test]
fn a_pasted_line_becomes_one_request() {
    let mut story = form();
    let line = "mpirun -np 4 -H a:2,b:2 \\\n  -x NCCL_DEBUG=INFO -x LANG python train.py\n";
    story.model.variables.0.insert("LANG".to_owned(), "C".to_owned());
    let request = only_preview(&paste(&mut story, line));
    assert_eq!(request.command, ["python", "train.py"]);
    assert_eq!(request.kind, Some(JobKind::Mpi));
    assert_eq!(request.place, hosts(&[("a", 2), ("b", 2)], Some(4)));
    assert_eq!(request.env.get("NCCL_DEBUG").map(String::as_str), Some("INFO"));
    assert_eq!(request.env.get("LANG").map(String::as_str), Some("C"), "its value here");
    let form = &story.model.ui.launch;
    assert_eq!(form.text(Field::Ranks), "", "what hvtui had suggested does not count before the line");
    assert_eq!(form.when_empty(Field::Kind), "mpi · from the line");
    assert_eq!(form.when_empty(Field::Ranks), "4 · from the line");
    assert_eq!(form.when_empty(Field::On), "-H a:2,b:2 · from the line");
    assert_eq!(form.when_empty(Field::Env), "LANG=C NCCL_DEBUG=INFO · from the line");
    write(&mut story, Field::Ranks, "2");
    write(&mut story, Field::Env, "NCCL_DEBUG=WARN");
    let request = requested(&story);
    assert_eq!(request.place, hosts(&[("a", 2), ("b", 2)], Some(2)), "fields count before the line");
    assert_eq!(request.env.get("NCCL_DEBUG").map(String::as_str), Some("WARN"));
}

#[test]
fn picks_count_before_the_hosts_of_a_pasted_line_and_that_is_said() {
    let mut story = cluster();
    press(&mut story, "jjj  l");
    assert_eq!(story.model.ui.launch.text(Field::On), "gpu-a:2,3");
    assert_eq!(story.model.ui.launch.when_empty(Field::Ranks), "2, one a slot");
    let request = only_preview(&paste(&mut story, "horovodrun -np 1 -H gpu-b:2 python x.py"));
    let told = "the field on counts before the line's hosts gpu-b:2: empty it to take those of the line.";
    assert!(request.remarks.contains(&Remark::info(told)), "{:?}", request.remarks);
    let PlacementSpec::Picks(picks) = &request.place else { panic!("picks were expected: {request:?}") };
    assert_eq!((picks.len(), &picks[0].host), (1, &host("gpu-a")));
    assert_eq!(story.model.ui.launch.when_empty(Field::Ranks), "1 · from the line, on 1 of 2 slots");
    write(&mut story, Field::On, "");
    let request = requested(&story);
    assert!(!request.remarks.contains(&Remark::info(told)), "{:?}", request.remarks);
    assert_eq!(request.place, hosts(&[("gpu-b", 2)], Some(1)));
}

#[test]
fn pasted_lines_are_read_as_run_reads_them() {
    for (line, kind, command, place) in [
        (
            "horovodrun -np 2 -H local:2 python t.py",
            JobKind::Horovod,
            "python t.py",
            hosts(&[("local", 2)], Some(2)),
        ),
        (
            "torchrun --nproc-per-node 2 t.py",
            JobKind::Torch,
            "python3 -u t.py",
            PlacementSpec::Nodes { nodes: 1, each: Some(2) },
        ),
        // as many as the form suggests for a command that is typed
        ("LR=1 python t.py", JobKind::Plain, "python t.py", PlacementSpec::Count(Some(2))),
        (
            "nohup python t.py > train.log 2>&1 &",
            JobKind::Plain,
            "python t.py",
            PlacementSpec::Count(Some(2)),
        ),
        ("'LR=1 TAG=\"a b\" python t.py'", JobKind::Plain, "python t.py", PlacementSpec::Count(Some(2))),
        (
            "(base) me@gpu-a:~/proj$ torchrun \\\n> --nproc_per_node=2 \\\n> t.py \\",
            JobKind::Torch,
            "python3 -u t.py",
            PlacementSpec::Nodes { nodes: 1, each: Some(2) },
        ),
        ("CUDA_VISIBLE_DEVICES=1 python t.py", JobKind::Plain, "python t.py", PlacementSpec::Count(Some(1))),
        (
            r#"TF_CONFIG='{"cluster": {"worker": ["a:9761", "b:9762"]}, "task": {"index": 0, "type": "worker"}}' python w.py"#,
            JobKind::Tensorflow,
            "python w.py",
            hosts(&[("a", 1), ("b", 1)], None),
        ),
    ] {
        let mut story = form();
        let request = only_preview(&paste(&mut story, line));
        assert_eq!((request.kind, request.command.join(" ").as_str()), (Some(kind), command), "{line}");
        assert_eq!(request.place, place, "{line}");
    }
}

#[test]
fn a_line_that_takes_each_free_slot_says_so_in_the_field_ranks() {
    let mut story = form();
    let request = only_preview(&paste(&mut story, "torchrun --nproc-per-node=gpu t.py"));
    assert_eq!(request.place, PlacementSpec::Nodes { nodes: 1, each: None });
    let said = story.model.ui.launch.when_empty(Field::Ranks);
    assert_eq!(said, "one on every free GPU of one host · from the line");
    // which `hvtui run` without a number takes, too; the form suggests none to it
    let mut story = form();
    let request = only_preview(&paste(&mut story, "hvtui run -- python t.py"));
    assert_eq!(request.place, PlacementSpec::Count(None));
    let mut story = form();
    paste(&mut story, "nohup python t.py &");
    assert!(text(&story.model, COLOR).contains("2   suggested"));
}

#[test]
fn a_pasted_note_of_several_lines_is_one_command() {
    for end in ["\n", "\r\n", "\r"] {
        let pasted = |text: &str| {
            let mut story = form();
            let effects = paste(&mut story, &text.replace('\n', end));
            (story, effects)
        };
        let line = "docker run --rm \\\n  IMG \\\n  torchrun --nproc_per_node=2 \\\n  t.py\n";
        let (story, effects) = pasted(line);
        let request = only_preview(&effects);
        assert_eq!(request.command.join(" "), "python3 -u t.py", "{end:?}");
        assert_eq!(request.options.container.map(|one| one.image).as_deref(), Some("IMG"));
        assert_eq!(text_of(&story), "docker run --rm IMG torchrun --nproc_per_node=2 t.py");
        let note =
            "# two GPUs\n\nexport NCCL_DEBUG=INFO\n# then\n$ torchrun --nproc_per_node=2 t.py   # fine\n";
        let (story, effects) = pasted(note);
        let request = only_preview(&effects);
        assert_eq!(request.command.join(" "), "python3 -u t.py", "{end:?}");
        assert_eq!(request.env.get("NCCL_DEBUG").map(String::as_str), Some("INFO"));
        assert_eq!(story.model.ui.launch.when_empty(Field::Env), "NCCL_DEBUG=INFO · from the line");
        let (story, effects) = pasted("python3 a.py\npython3 b.py\n");
        assert!(effects.iter().all(|effect| !matches!(effect, Effect::Preview(_))), "{effects:?}");
        let fault = story.model.ui.launch.error(Field::Command).unwrap();
        assert!(fault.text.starts_with("a second command begins here"), "{fault:?}");
        let shown = text(&story.model, COLOR);
        assert!(shown.contains("python3 a.py␊python3 b.py"), "{shown}");
    }
}

#[test]
fn what_a_shell_would_have_done_with_the_output_is_said() {
    let mut story = form();
    let request = only_preview(&paste(&mut story, "[li@gpu-a proj]$ nohup python3 t.py > train.log 2>&1 &"));
    assert_eq!(request.command, ["python3", "t.py"]);
    for says in ["`nohup` is left out", "`> train.log` and `2>&1` are left out", "`&` is left out"] {
        assert!(
            request.remarks.iter().any(|remark| remark.starts_with(says)),
            "{says}: {:?}",
            request.remarks
        );
    }
    let quoted = only_preview(&paste(&mut form(), "'python3 t.py | tee log'"));
    assert!(quoted.remarks.iter().any(|remark| remark.starts_with("`| tee log` is left out")), "{quoted:?}");
}

#[test]
fn what_prepares_a_shell_fills_the_fields() {
    for (line, field, says) in [
        ("cd ~/mnist && torchrun --nproc_per_node=2 t.py", Field::Workdir, "~/mnist"),
        ("conda activate x && python3 t.py", Field::Activate, "conda x"),
        ("source /v/bin/activate; python3 t.py", Field::Activate, "venv /v"),
        ("module load cuda/12\npython3 t.py", Field::Activate, "module cuda/12"),
    ] {
        let mut story = form();
        let request = only_preview(&paste(&mut story, line));
        assert!(request.command[0].starts_with("python3"), "{request:?}");
        assert_eq!(story.model.ui.launch.when_empty(field), format!("{says} · from the line"), "{line}");
    }
}

#[test]
fn hvtui_run_is_read_in_the_form_as_on_the_command_line() {
    let mut story = form();
    let line = "$ hvtui run -np 2 --env LR=1 --workdir /data --image torch:2 --name big --detach -- python3 t.py --seed 1";
    let request = only_preview(&paste(&mut story, line));
    assert_eq!(request.command, ["python3", "t.py", "--seed", "1"]);
    let form = &story.model.ui.launch;
    for (field, says) in [
        (Field::Ranks, "2"),
        (Field::Env, "LR=1"),
        (Field::Workdir, "/data"),
        (Field::Image, "torch:2"),
        (Field::Name, "big"),
    ] {
        assert_eq!(form.when_empty(field), format!("{says} · from the line"));
    }
    assert_eq!(request.remarks, ["no effect in the form: --detach."]);
    let request = only_preview(&paste(&mut self::form(), "cd ~/proj && hvtui run -np 2 -- python3 t.py"));
    assert_eq!(request.workdir.as_deref(), Some("~/proj"));
    let mut story = self::form();
    let request =
        only_preview(&paste(&mut story, "hvtui run -H local:3 -- torchrun --nproc_per_node=3 t.py"));
    assert_eq!(request.kind, Some(JobKind::Torch));
    assert_eq!(story.model.ui.launch.when_empty(Field::On), "-H local:3 · from the line");
}

#[test]
fn lines_that_the_form_cannot_start_say_what_can() {
    for (line, says) in [
        ("srun -n 2 python3 t.py", "`hvtui run -- srun -n 2 python3 t.py`"),
        ("hvtui run --npp 2 -- python3 t.py", "unexpected argument '--npp' found"),
        ("hvtui run --again last", "on the Runs screen a edits a launch"),
        ("LR=1 hvtui run -np 2 -- python3 t.py", "each rank would start `hvtui run` again"),
        ("torchrun --npoc_per_node=3 t.py", "`--nproc_per_node` may be meant"),
        ("python3 t.py > log & tail -f log", "`>` needs a shell"),
        ("python3 a.py && python3 b.py", "`&&` needs a shell"),
    ] {
        let mut story = form();
        let effects = paste(&mut story, line);
        assert!(effects.iter().all(|effect| !matches!(effect, Effect::Preview(_))), "{line}: {effects:?}");
        let fault = story.model.ui.launch.error(Field::Command).unwrap();
        assert!(fault.text.contains(says), "{line}: {fault:?}");
        assert!(!text(&story.model, COLOR).contains("understood"), "{line}");
    }
}

fn text_of(story: &Story) -> &str {
    story.model.ui.launch.text(Field::Command)
}

#[test]
fn a_fault_of_a_pasted_line_is_told_at_its_place() {
    let mut story = form();
    assert!(paste(&mut story, "horovodrun -np 3 -H a:1 b:1 python t.py").is_empty());
    let fault = story.model.ui.launch.error(Field::Command).unwrap().clone();
    let (at, len) = fault.place.unwrap();
    assert_eq!(&story.model.ui.launch.text(Field::Command)[at..at + len], "b:1", "{fault:?}");
    story.send(Msg::Key(Key::ctrl('u')));
    paste(&mut story, "watch -n 10 nvidia-smi");
    let fault = story.model.ui.launch.error(Field::Command).unwrap();
    assert!(fault.text.contains("`hvtui watch -n 10`"), "{fault:?}");
}

#[test]
fn a_line_that_is_not_understood_starts_once() {
    let mut story = form();
    let request = only_preview(&paste(&mut story, "horovodrun -np 2 --gpus-of-mine 4 python t.py"));
    let launcher = request.options.delegate.as_ref().unwrap();
    assert_eq!(launcher.line.first().map(String::as_str), Some("horovodrun"));
    assert_eq!(
        request.place,
        PlacementSpec::Nodes { nodes: 1, each: Some(2) },
        "on one host, as horovodrun does"
    );
    let remark = request.remarks.iter().find(|remark| remark.contains("its own launcher"));
    assert!(remark.is_some_and(|remark| remark.contains("--gpus-of-mine")), "{:?}", request.remarks);
    let mut story = form();
    let alone = "horovodrun -np 2 --host-discovery-script d.sh python t.py";
    let request = only_preview(&paste(&mut story, alone));
    assert_eq!(request.command[0], "horovodrun");
    assert_eq!(request.place, PlacementSpec::Count(Some(1)), "never once a slot");
}

#[test]
fn a_host_file_of_a_line_is_read_outside() {
    let mut story = form();
    let effects = paste(&mut story, "mpirun -np 3 --hostfile nodes python t.py");
    assert_eq!(effects, [Effect::ReadHostFile("nodes".to_owned())]);
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "nothing starts before it was read");
    let read = Msg::HostFileRead("nodes".to_owned(), Ok("a slots=2\nb slots=2\n".to_owned()));
    let request = only_preview(&story.send(read));
    assert_eq!(request.place, hosts(&[("a", 2), ("b", 2)], Some(3)));
    story.send(Msg::Key(Key::ctrl('u')));
    paste(&mut story, "mpirun --hostfile gone python t.py");
    let gone = Msg::HostFileRead("gone".to_owned(), Err("can't read host file gone: not found".to_owned()));
    assert!(story.send(gone).is_empty());
    assert_eq!(
        story.model.ui.launch.error(Field::Command).unwrap().text,
        "can't read host file gone: not found"
    );
}

#[test]
fn a_recipe_fills_the_form() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4);
    let options = RunOptions { gpu_view: GpuView::Own, ..RunOptions::default() };
    let recipe = LaunchRequest {
        name: Some("mnist".to_owned()),
        kind: Some(JobKind::Torch),
        place: PlacementSpec::Count(Some(3)),
        env: [("SEED".to_owned(), "it's 7".to_owned())].into(),
        options: options.clone(),
        ..LaunchRequest::of(vec!["python".to_owned(), "my train.py".to_owned()])
    };
    story.model.recipes = vec![recipe.clone()];
    press(&mut story, "l");
    key(&mut story, KeyCode::BackTab);
    assert_eq!(story.model.ui.launch.focus, Field::Recipe);
    assert_eq!(only_preview(&key(&mut story, KeyCode::Right)), recipe);
    assert!(key(&mut story, KeyCode::Right).is_empty(), "behind the last there is none");
    assert_eq!(story.model.ui.launch.recipe, None);
    key(&mut story, KeyCode::Left);
    key(&mut story, KeyCode::Tab);
    story.send(Msg::Key(Key::ctrl('u')));
    paste(&mut story, "true");
    assert_eq!(
        requested(&story).options,
        RunOptions::default(),
        "options go with the command they belong to"
    );
}

#[test]
fn a_past_run_is_edited_and_launched_again() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 4);
    let mut past = recordings();
    past[0].spec = world::spec(past[0].spec.id.clone(), "digits", &world::gpu_slots(&[("gpu-a", 2)]), START);
    past[0].spec.options.gpu_view = GpuView::Own;
    past[0].spec.env.insert("SEED".to_owned(), "a b".to_owned());
    let spec = past[0].spec.clone();
    press(&mut story, "r");
    story.send(Msg::RunsListed(past));
    let request = only_preview(&press(&mut story, "a"));
    assert_eq!(request, LaunchRequest::again(&spec));
    assert_eq!(story.model.ui.screen, Screen::Launch);
    assert_eq!(story.model.ui.launch.text(Field::On), "gpu-a:2", "by its number");
    write(&mut story, Field::Env, "SEED=8");
    assert_eq!(requested(&story).env.get("SEED").map(String::as_str), Some("8"));
    let mut story = training();
    let spec = story.model.shown_run().unwrap().1.spec.clone();
    assert_eq!(only_preview(&press(&mut story, "a")), LaunchRequest::again(&spec));
}

#[test]
fn the_history_is_stepped_through_as_in_a_shell() {
    let mut story = form();
    story.send(Msg::RunsListed(recordings()));
    let older = |story: &mut Story| story.send(Msg::Key(Key::ctrl('p')));
    let newer = |story: &mut Story| story.send(Msg::Key(Key::ctrl('n')));
    let text = |story: &Story| story.model.ui.launch.text(Field::Command).to_owned();
    for command in ["first", "second"] {
        story.send(Msg::Key(Key::ctrl('u')));
        paste(&mut story, command);
        story.send(Msg::LaunchPlanned(Ok(any_plan())));
        while story.model.ui.launch.asked > 0 {
            story.send(Msg::LaunchPlanned(Ok(any_plan())));
        }
        assert!(matches!(key(&mut story, KeyCode::Enter).as_slice(), [Effect::Start(_)]));
        story.model.ui.launch.starting = false;
    }
    story.send(Msg::Key(Key::ctrl('u')));
    paste(&mut story, "draft");
    write(&mut story, Field::Name, "mine");
    assert_eq!(only_preview(&older(&mut story)).command, ["second"]);
    assert_eq!(requested(&story).name, None, "a launch of this session comes with all its fields");
    older(&mut story);
    assert_eq!(text(&story), "first");
    older(&mut story);
    let recorded = recordings()[0].spec.command.join(" ");
    assert_eq!(text(&story), recorded, "behind them the commands of recorded runs, each once");
    assert_eq!(requested(&story).name.as_deref(), Some("mine"), "with what is written in the other fields");
    assert!(older(&mut story).is_empty(), "there is no older one");
    for expected in ["first", "second", "draft"] {
        newer(&mut story);
        assert_eq!(text(&story), expected);
    }
    assert!(newer(&mut story).is_empty());
    older(&mut story);
    press(&mut story, "x");
    older(&mut story);
    assert_eq!(text(&story), "second", "what was changed is a new draft");
    newer(&mut story);
    assert_eq!(text(&story), "secondx");
}

#[test]
fn free_gpus_are_picked_by_number() {
    let mut story = cluster();
    pick_free(&mut story, "6");
    let picks = &story.model.ui.cluster.picks;
    assert_eq!(picks.keys().map(ToString::to_string).collect::<Vec<_>>(), ["gpu-b"]);
    assert_eq!(story.model.ui.cluster.picked(), 6);
    pick_free(&mut story, "8");
    assert_eq!(story.model.ui.cluster.picked(), 8);
    pick_free(&mut story, "99");
    assert_eq!(story.model.ui.cluster.picked(), 9);
    assert!(story.model.ui.toasts.back().unwrap().text.contains("only 9 free of 99"));
}

#[test]
fn cpu_slots_are_picked_one_by_one() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 2);
    press(&mut story, "   ");
    assert_eq!(story.model.ui.cluster.picked(), 2);
    key(&mut story, KeyCode::Backspace);
    assert_eq!(story.model.ui.cluster.picked(), 1);
    pick_free(&mut story, "2");
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
fn a_run_that_another_client_makes_ready_is_no_ended_one_and_can_be_stopped() {
    let mut story = training();
    let mut recorded = recordings();
    let ready = &mut recorded[0];
    (ready.stage, ready.outcome, ready.is_made_ready) = (Some(RunStage::Prepare), None, true);
    let spec = Arc::new(ready.spec.clone());
    press(&mut story, "r");
    story.send(Msg::RunsListed(recorded.clone()));
    press(&mut story, "j");
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("● prepare") && screen.contains("another hvtui makes it ready"), "{screen}");
    press(&mut story, "x");
    let asked = text(&story.model, COLOR);
    let question = format!("Stop run {} {}?", spec.id.short(), spec.name);
    assert!(asked.contains(&question) && asked.contains("3 ranks on gpu-a gpu-b"), "{asked}");
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "enter is no yes");
    assert_eq!(press(&mut story, "y"), [Effect::StopForeign { spec: spec.clone(), now: false }]);
    press(&mut story, "x");
    assert_eq!(press(&mut story, "K"), [Effect::StopForeign { spec, now: true }]);
    // the client that made it ready is gone
    recorded[0].is_made_ready = false;
    story.send(Msg::RunsListed(recorded));
    press(&mut story, "x");
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn stopping_asks_first() {
    let mut story = training();
    assert!(press(&mut story, "x").is_empty());
    assert!(press(&mut story, "n").is_empty());
    assert_eq!(story.model.ui.overlay, Overlay::None);
    press(&mut story, "x");
    assert!(key(&mut story, KeyCode::Enter).is_empty(), "enter is no yes, as in the other dialogs");
    assert_ne!(story.model.ui.overlay, Overlay::None);
    assert_eq!(press(&mut story, "y"), [Effect::StopRun { run: run_id(), now: false }]);
    assert_eq!(press(&mut story, "xK"), [Effect::StopRun { run: run_id(), now: true }]);
    let mut story = failed();
    assert!(press(&mut story, "x").is_empty() && story.model.ui.overlay == Overlay::None, "an ended run");
}

#[test]
fn a_trace_is_asked_of_a_run_that_goes_on_and_was_launched_for_it() {
    let mut story = training();
    assert!(press(&mut story, "T").is_empty());
    let told =
        |story: &Story| story.model.ui.toasts.back().map(|toast| toast.text.clone()).unwrap_or_default();
    assert!(told(&story).contains("launch the run with --traceable"), "{}", told(&story));
    let run = story.model.world.runs.get_mut(&run_id()).unwrap_or_else(|| panic!("a run"));
    std::sync::Arc::make_mut(&mut run.spec).options.traceable = true;
    let spec = run.spec.clone();
    assert_eq!(press(&mut story, "T"), [Effect::Trace(spec)]);
    let mut story = failed();
    assert!(press(&mut story, "T").is_empty() && told(&story).contains("has ended"));
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
    press(&mut story, "F");
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow);
    key(&mut story, KeyCode::Tab);
    press(&mut story, "jj");
    key(&mut story, KeyCode::Enter);
    let shown = |story: &Story, count| {
        let (_, run) = story.model.shown_run().unwrap();
        log_rows(run, &story.model.ui.run, None, count)
    };
    assert!(shown(&story, 100).iter().all(|fold| fold.ranks.keys().all(|rank| rank.0 == 2)));
    press(&mut story, "A");
    assert!(shown(&story, 100).len() > 1);
}

/// A run on four ranks that prints nothing yet, with the log in focus.
fn printing() -> Story {
    let mut story = training();
    story.send(Msg::Resize(80, 24));
    key(&mut story, KeyCode::Tab);
    assert_eq!(story.model.ui.run.pane, Pane::Logs);
    story
}

/// The last line of the run's log that the pane shows.
fn last_shown(story: &Story) -> String {
    let (_, run) = story.model.shown_run().unwrap();
    let rows = log_rows(run, &story.model.ui.run, None, 1);
    rows.back().map_or_else(String::new, |fold| fold.line.line.text.clone())
}

#[test]
fn a_search_goes_from_match_to_match_and_round() {
    let mut story = printing();
    for number in 0..60 {
        story.log(0, &format!("item {number}"));
    }
    let found = |story: &Story| matches(&story.model.ui.run);
    press(&mut story, "/ITEM 1");
    assert_eq!(found(&story), Some((0, 11)), "while it is typed");
    story.log(0, "an item 12 that is printed meanwhile");
    assert_eq!(found(&story), Some((0, 12)), "those that come are counted");
    key(&mut story, KeyCode::Enter);
    assert_eq!(found(&story), Some((12, 12)), "the newest comes first");
    press(&mut story, "N");
    assert_eq!(found(&story), Some((11, 12)));
    press(&mut story, "nn");
    assert_eq!(found(&story), Some((1, 12)), "from the last to the first");
    assert!(matches!(story.model.ui.run.log_at, LogAt::Line(_)), "which is brought into view");
    press(&mut story, "F");
    assert_eq!(last_shown(&story), "an item 12 that is printed meanwhile");
    key(&mut story, KeyCode::Esc);
    assert_eq!((found(&story), story.model.ui.screen), (None, Screen::Run), "escape ends the search first");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.screen, Screen::Cluster);

    let mut story = printing();
    story.log(0, "loss 0.5").log(1, "loss nan");
    press(&mut story, "//loss [a-z/");
    let Overlay::Prompt(prompt) = &story.model.ui.overlay else { panic!("a prompt") };
    assert_eq!(prompt.error.as_deref(), Some("unclosed character class"));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    key(&mut story, KeyCode::Backspace);
    press(&mut story, "]+/");
    key(&mut story, KeyCode::Enter);
    assert_eq!(found(&story), Some((1, 1)));
    let copied = press(&mut story, "y");
    assert_eq!(copied, [Effect::Copy("loss nan".into())], "the match alone");
    press(&mut story, "/x");
    key(&mut story, KeyCode::Enter);
    assert!(
        story.model.ui.toasts.back().unwrap().text.contains("no line has"),
        "{:?}",
        story.model.ui.toasts
    );
}

#[test]
fn repeats_are_one_row_until_they_are_opened() {
    let mut story = printing();
    for rank in 0..4 {
        story.log(rank, "epoch 1");
    }
    for _ in 0..12 {
        story.log(0, "waiting");
    }
    let shown = |story: &Story, count| {
        let (_, run) = story.model.shown_run().unwrap();
        let rows = log_rows(run, &story.model.ui.run, None, count);
        rows.iter()
            .map(|fold| (fold.line.line.text.clone(), fold.times(), fold.others().count()))
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(&story, 2), [("epoch 1".to_owned(), 1, 3), ("waiting".to_owned(), 12, 0)]);
    press(&mut story, "e");
    assert_eq!(shown(&story, 2), [("waiting".to_owned(), 1, 0), ("waiting".to_owned(), 1, 0)]);
    press(&mut story, "e");
    assert_eq!(shown(&story, 1), [("waiting".to_owned(), 12, 0)]);
}

#[test]
fn levels_are_filtered_and_a_traceback_stays_whole() {
    let mut story = printing();
    story.log(0, "step 1").log(1, "W1121 14:32:07.310 1 pool.cc:12] low");
    for line in
        ["Traceback (most recent call last):", "  File \"train.py\", line 3", "KeyError: 'x'", "INFO over"]
    {
        story.error_log(1, line);
    }
    let shown = |story: &Story| {
        let (_, run) = story.model.shown_run().unwrap();
        let rows = log_rows(run, &story.model.ui.run, None, 100);
        let mine = rows.iter().filter(|fold| fold.ranks.contains_key(&hvtui::domain::ids::Rank(1)));
        mine.map(|fold| fold.line.line.text.chars().take(9).collect::<String>()).collect::<Vec<_>>()
    };
    press(&mut story, "!");
    assert_eq!(story.model.ui.run.log.least, Least::Warnings);
    assert_eq!(
        shown(&story)[shown(&story).len() - 4..],
        ["W1121 14:", "Traceback", "  File \"t", "KeyError:"]
    );
    press(&mut story, "!");
    assert_eq!(shown(&story), ["Traceback", "  File \"t", "KeyError:"]);
    press(&mut story, "!");
    assert_eq!(last_shown(&story), "INFO over");
}

#[test]
fn the_log_moves_sideways_where_it_has_the_arrows_and_does_not_wrap() {
    let mut story = printing();
    key(&mut story, KeyCode::Right);
    key(&mut story, KeyCode::Right);
    key(&mut story, KeyCode::Left);
    assert_eq!(story.model.ui.run.log.left, 8);
    press(&mut story, "w");
    key(&mut story, KeyCode::Right);
    assert_eq!((story.model.settings.wrap, story.model.ui.run.log.left), (true, 8));
    press(&mut story, "w");
    key(&mut story, KeyCode::Tab);
    key(&mut story, KeyCode::Right);
    assert_eq!(story.model.ui.run.log.left, 8, "the ranks have the arrows");
    // in a replay they move the playhead, but where the log has them
    story.model.ui.replay.open = true;
    story.model.ui.screen = Screen::Replay;
    story.send(Msg::Playback(playback(START)));
    assert!(matches!(key(&mut story, KeyCode::Right)[..], [Effect::Play(PlayCommand::SeekBy(_))]));
    key(&mut story, KeyCode::Tab);
    assert_eq!(key(&mut story, KeyCode::Right), []);
    assert_eq!(story.model.ui.run.log.left, 16);
}

#[test]
fn what_is_shown_is_copied_and_saved_without_what_could_drive_a_terminal() {
    let mut story = printing();
    for _ in 0..30 {
        story.log(0, "fill");
    }
    story.log(2, "10%\r\u{1b}[32m100%\u{1b}[0m\u{1b}]0;x\u{7}");
    story.model.ui.run.log_rank = Some(hvtui::domain::ids::Rank(2));
    let [Effect::Copy(text)] = &press(&mut story, "y")[..] else { panic!("a copy") };
    assert_eq!(text.lines().last(), Some("100%"));
    assert!(story.model.ui.toasts.back().unwrap().text.starts_with("copied "), "{:?}", story.model.ui.toasts);
    let [Effect::Save { name, text, what }] = &press(&mut story, "W")[..] else { panic!("a file") };
    assert_eq!(name, &format!("hvtui-{}.log", run_id().short()));
    assert!(text.ends_with(" 2 100%\n") && what.ends_with("lines"), "{text} {what}");
    // a flood of long lines is no text for a clipboard
    press(&mut story, "A");
    for number in 0..20 {
        story.log(1, &format!("{number} {}", "x".repeat(8000)));
    }
    let [Effect::Copy(text)] = &press(&mut story, "y")[..] else { panic!("a copy") };
    assert!(text.len() < 48 << 10);
    let note = &story.model.ui.toasts.back().unwrap().text;
    assert!(note.contains("more are too much for a clipboard"), "{note}");
}

#[test]
fn plus_and_minus_zoom_the_timeline() {
    let mut story = printing();
    story.model.ui.run.window = Some(1_000_000);
    press(&mut story, "+");
    assert_eq!(story.model.ui.run.window, Some(500_000));
    press(&mut story, "--");
    assert_eq!(story.model.ui.run.window, Some(2_000_000));
}

#[test]
fn the_timeline_ends_at_a_millisecond_and_at_a_year() {
    let mut story = printing();
    story.model.ui.run.window = Some(1_000_000);
    press(&mut story, &"+".repeat(12));
    assert_eq!(story.model.ui.run.window, Some(1_000), "1 ms");
    press(&mut story, "+");
    assert_eq!(story.model.ui.run.window, Some(1_000));
    // an hour and beyond
    press(&mut story, &"-".repeat(22));
    assert_eq!(story.model.ui.run.window, Some(1_000 << 22), "70 minutes");
    press(&mut story, &"-".repeat(40));
    assert_eq!(story.model.ui.run.window, Some(366 * 86_400_000_000), "366 days");
    for window in [1_000, 3_600_000_000, 366 * 86_400_000_000] {
        story.model.ui.run.window = Some(window);
        assert!(text(&story.model, COLOR).contains(" log"), "it is drawn at {window}");
    }
}

fn playback(playhead: Stamp) -> PlaybackState {
    playback_state(playhead, START.plus_micros(100_000_000))
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
    let window_told = Effect::ShowWindow(window);
    let moved = [Effect::Play(PlayCommand::SeekBy(-window / 10)), window_told];
    assert_eq!(key(&mut story, KeyCode::Left), moved);
    assert_eq!(press(&mut story, ")"), play(PlayCommand::SeekBy(window)));
    assert_eq!(press(&mut story, "]"), play(PlayCommand::StepBy(1)));
    assert_eq!(
        press(&mut story, "><"),
        [Effect::Play(PlayCommand::SpeedUp), Effect::Play(PlayCommand::SlowDown)]
    );
    press(&mut story, "J50%");
    let middle = PlayCommand::SeekTo(START.plus_micros(50_000_000));
    assert_eq!(key(&mut story, KeyCode::Enter), play(middle));
    let row = hvtui::tui::screens::run::bands(&story.model).whole.y;
    let click = Mouse { kind: MouseKind::Click, column: 12, row };
    assert_eq!(story.send(Msg::Mouse(click)), play(PlayCommand::SeekTo(START)));
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
    assert_eq!(story.model.mode, Mode::Live);
    story.send(Msg::Playback(playback(START)));
    assert_eq!(story.model.mode, Mode::Live, "a late word does not open it again");
}

#[test]
fn a_run_that_is_shown_is_replayed_and_shown_again() {
    let mut story = failed();
    let other = hvtui::domain::ids::RunId::new(START.0 as u64 / 1000 + 1, 1);
    let spec = world::spec(other.clone(), "newer", &world::gpu_slots(&[("gpu-a", 0)]), START);
    let origin = hvtui::domain::event::Origin::Run(other);
    story.tell(origin, hvtui::domain::event::Event::RunCreated { spec: std::sync::Arc::new(spec) });
    story.model.ui.run = hvtui::tui::screens::run::RunUi::on(run_id());
    assert_eq!(press(&mut story, "p"), [Effect::OpenReplay(run_id())]);
    assert_eq!(story.model.ui.screen, Screen::Replay);
    story.send(Msg::Playback(playback(START)));
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
    assert_eq!(story.model.ui.screen, Screen::Run);
    assert_eq!(story.model.shown_run().map(|(id, _)| id.clone()), Some(run_id()));
}

#[test]
fn a_run_that_goes_on_is_frozen_gone_through_and_followed_again() {
    let mut story = training();
    press(&mut story, "2");
    assert_eq!((story.model.ui.screen, story.model.ui.run.window), (Screen::Run, None));
    let window = hvtui::tui::screens::run::window_us(&story.model);
    for (keys, expected) in
        [(" ", None), ("[", Some(PlayCommand::StepBy(-1))), ("(", Some(PlayCommand::SeekBy(-window)))]
    {
        let before = story.model.clone();
        let effects = press(&mut story, keys);
        let opened = [Effect::OpenReplay(run_id())].into_iter().chain(expected.map(Effect::Play));
        assert_eq!(effects, opened.collect::<Vec<_>>(), "{keys:?}");
        assert_eq!(story.model.ui.screen, Screen::Replay);
        // until the recording is open the run stays on the screen
        assert!(text(&story.model, COLOR).contains("rank 3"), "{}", text(&story.model, COLOR));
        press(&mut story, "[");
        // the run as it was a while ago, while it goes on
        let now = story.model.world.clone();
        let state = PlaybackState { growing: true, ..playback(START.plus_micros(3_000_000)) };
        story.send(Msg::Reset(Box::new(now)));
        story.send(Msg::Playback(state));
        assert_eq!(story.model.ui.run.window, Some(window), "as wide as it was");
        assert!(text(&story.model, COLOR).contains(" behind"), "{}", text(&story.model, COLOR));
        assert_eq!(press(&mut story, "F"), [Effect::CloseReplay]);
        // and this run, though another one may begin meanwhile
        let same = RunUi { run: Some(run_id()), ..before.ui.run.clone() };
        let ui = &story.model.ui;
        assert_eq!((ui.screen, &ui.run), (before.ui.screen, &same), "{keys:?}");
        assert_eq!(story.model.mode, Mode::Live);
    }
    let (right, toasts) = (key(&mut story, KeyCode::Right), &story.model.ui.toasts);
    assert!(right.is_empty() && toasts.back().unwrap().text.contains("freeze"), "{toasts:?}");
    // what was chosen stays chosen, here and there
    press(&mut story, "jA-");
    let (zoomed, on) = (story.model.ui.run.window, story.model.ui.run.ranks.on.clone());
    let row = hvtui::tui::screens::run::bands(&story.model).whole.y;
    let click = Mouse { kind: MouseKind::Click, column: 12, row };
    let effects = story.send(Msg::Mouse(click));
    assert!(
        matches!(effects[..], [Effect::OpenReplay(_), Effect::Play(PlayCommand::SeekTo(_))]),
        "{effects:?}"
    );
    assert_eq!((story.model.ui.run.window, &story.model.ui.run.ranks.on), (zoomed, &on));
    let again = story.send(Msg::Mouse(click));
    assert!(matches!(again[..], [Effect::Play(PlayCommand::SeekTo(_))]), "{again:?}");
    press(&mut story, "+");
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
    assert_eq!((story.model.ui.screen, story.model.ui.run.window), (Screen::Run, zoomed.map(|us| us / 2)));
    // where it goes is asked once the recording is open
    press(&mut story, "J");
    assert!(matches!(story.model.ui.overlay, Overlay::Prompt(_)));
    assert_eq!(story.model.ui.screen, Screen::Replay);
}

#[test]
fn a_recording_that_grows_is_followed_in_a_replay_alone() {
    let state = PlaybackState { growing: true, ..playback(START) };
    let mut model = Model::replay(state, START, 0);
    update(&mut model, Msg::Resize(80, 24));
    assert_eq!(update(&mut model, Msg::Key(Key::char('F'))), [Effect::Play(PlayCommand::Follow)]);
}

#[test]
fn a_replay_alone_ends_with_the_program_but_not_by_an_esc_too_many() {
    let mut model = Model::replay(playback(START), START, 0);
    update(&mut model, Msg::Resize(80, 24));
    assert_eq!(update(&mut model, Msg::Key(Key::char('c'))), []);
    assert_eq!(update(&mut model, Msg::Key(Key::plain(KeyCode::Esc))), []);
    assert!(text(&model, COLOR).contains("q ends hvtui"));
    assert_eq!(update(&mut model, Msg::Key(Key::char('d'))), [Effect::Quit]);
}

#[test]
fn the_mouse_selects_and_scrolls() {
    let mut story = cluster();
    let mouse = |kind, row| Msg::Mouse(Mouse { kind, column: 5, row });
    story.send(mouse(MouseKind::Click, 5));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1));
    story.send(mouse(MouseKind::WheelDown, 9));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 4), 4));
    story.send(mouse(MouseKind::Drag, 5));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 4), 4), "a drag moves nothing here");
    story.send(mouse(MouseKind::DoubleClick, 5));
    assert_eq!(story.model.ui.screen, Screen::Detail);
    assert_eq!(story.model.ui.detail.on, Some(RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1)));
}

#[test]
fn a_click_on_a_head_orders_by_it_and_a_second_one_turns_it_round() {
    let mut story = cluster();
    story.send(Msg::Resize(120, 40));
    let first = |story: &Story| rows(&story.model)[0].host().to_string();
    let click = |column| Msg::Mouse(Mouse { kind: MouseKind::Click, column, row: 2 });
    assert_eq!(first(&story), "gpu-a");
    story.send(click(3));
    assert_eq!(story.model.settings.hosts.by.name(), "name");
    story.send(click(3));
    assert!(story.model.settings.hosts.reversed);
    assert_eq!(first(&story), "gpu-d");
    story.send(click(11));
    assert_eq!(
        (story.model.settings.hosts.by.name(), story.model.settings.hosts.reversed),
        ("most free GPUs", false)
    );
    assert_eq!(first(&story), "gpu-b", "gpu-a has free ones too, but fewer");
}

#[test]
fn left_and_right_fold_and_unfold_as_in_a_tree() {
    let mut story = cluster();
    press(&mut story, "jj");
    key(&mut story, KeyCode::Left);
    assert_eq!(selected(&story), RowId::Host(host("gpu-a")), "out to the host");
    key(&mut story, KeyCode::Left);
    assert!(story.model.ui.cluster.folded.contains(&host("gpu-a")));
    key(&mut story, KeyCode::Right);
    assert!(story.model.ui.cluster.folded.is_empty());
}

#[test]
fn cells_are_walked_picked_and_clicked() {
    let mut story = cluster();
    press(&mut story, "H");
    key(&mut story, KeyCode::Right);
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 1), 1));
    press(&mut story, "j");
    assert_eq!(selected(&story).host(), &host("gpu-b"));
    let at = selected(&story);
    press(&mut story, " ");
    let RowId::Gpu(on, picked, _) = at else { panic!("a GPU") };
    assert!(story.model.ui.cluster.is_picked(&on, &picked));
    story.send(Msg::Mouse(Mouse { kind: MouseKind::Click, column: 1 + 6 + 2, row: 3 }));
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 2), 2));
    press(&mut story, "H");
    assert_eq!(selected(&story), RowId::Gpu(host("gpu-a"), uuid("gpu-a", 2), 2), "the selection stays");
}

#[test]
fn the_palette_does_what_keys_do() {
    let mut story = cluster();
    press(&mut story, ":again");
    assert!(matches!(story.model.ui.overlay, Overlay::Palette(_)));
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.overlay, Overlay::None);
    press(&mut story, ":the runs");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::ListRuns]);
    assert_eq!(story.model.ui.screen, Screen::Runs);
    press(&mut story, ":theme mono");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.settings.theme, hvtui::tui::core::ThemeName::Mono);
    press(&mut story, ":no such thing");
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    press(&mut story, ":draw the whole");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Redraw]);
    assert_eq!(story.send(Msg::Key(Key::ctrl('l'))), [Effect::Redraw]);
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
    assert_eq!(prompt.error.as_deref(), Some("a value is missing here: util<5"));
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(matches!(story.model.ui.overlay, Overlay::Prompt(_)), "enter does not take a mistake");
    press(&mut story, "5");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.overlay, Overlay::None);
    assert_eq!(story.model.ui.cluster.filter_text, "util<5");
    press(&mut story, "/ & utl");
    assert_eq!(story.model.ui.cluster.filter_text, "util<5 & utl", "a word is a text that is searched for");
    press(&mut story, "<3");
    assert_eq!(story.model.ui.cluster.filter_text, "util<5", "the old one holds while the new one is wrong");
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.cluster.filter_text, "util<5", "esc brings back what held");
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
            let caps = hvtui::tui::canvas::Caps { color: hvtui::tui::canvas::ColorDepth::Basic, ascii: false };
            let area = ratatui::layout::Rect::new(0, 0, size.0, size.1);
            let mut one = ratatui::buffer::Buffer::empty(area);
            hvtui::tui::screens::view::draw(&story.model, caps, &mut one);
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
    assert_eq!(key(&mut story, KeyCode::Enter), [], "neither yes nor no: it is asked again");
    assert!(text(&story.model, COLOR).contains("type yes, no or the fingerprint"));
    press(&mut story, "no");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Answer(1, Answer::No)]);
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

fn rank_rows(story: &Story) -> Vec<RankRow> {
    hvtui::tui::screens::run::rows::rows(&story.model)
}

#[test]
fn many_ranks_fold_and_unfold_by_host() {
    let mut story = many_ranks(5);
    let host = |name: &str| RankRow::Host(HostId::from(name));
    let rows = rank_rows(&story);
    assert_eq!(rows.len(), 5, "40 ranks on five hosts");
    press(&mut story, "z");
    assert_eq!(rank_rows(&story).len(), 13, "one host is open");
    press(&mut story, "jj");
    let selected = story.model.ui.run.ranks.on.clone();
    assert_eq!(selected, Some(RankRow::Rank(Rank(1))));
    press(&mut story, "z");
    assert_eq!(story.model.ui.run.ranks.on, Some(host("gpu-001")), "the host of what was selected");
    key(&mut story, KeyCode::Enter);
    assert_eq!(rank_rows(&story).len(), 13, "enter unfolds a host, too");
    press(&mut story, "Z");
    assert_eq!(rank_rows(&story).len(), 40, "all ranks, in order");
    press(&mut story, "Z");
    assert_eq!(rank_rows(&story).len(), 5);
    // a rank that fails brings its host to the top, is selected there, and its log is shown
    story.error_log(33, "CUDA out of memory");
    story.exit(33, Some(1), None, false);
    assert_eq!(rank_rows(&story)[..2], [host("gpu-005"), RankRow::Rank(Rank(33))]);
    assert_eq!(story.model.ui.run.ranks.on, Some(RankRow::Rank(Rank(33))));
    assert_eq!(story.model.ui.run.log_rank, Some(Rank(33)));
    // in the order of their numbers
    press(&mut story, "s");
    assert_eq!(rank_rows(&story)[0], host("gpu-001"));
    assert_eq!(story.model.ui.run.ranks.on, Some(RankRow::Rank(Rank(33))), "the selection stays");
}

#[test]
fn the_worst_ranks_stand_first_on_request() {
    let mut story = training();
    press(&mut story, "sss");
    assert_eq!(rank_rows(&story)[0], RankRow::Rank(Rank(3)), "the straggler");
    story.down("gpu-a", "connection reset").wait_ms(1_000);
    let silent = hvtui::tui::screens::run::rows::silent_hosts(
        &story.model,
        story.model.shown_run().map_or_else(|| panic!("a run"), |(_, run)| run),
    )
    .into_keys()
    .cloned()
    .collect::<Vec<_>>();
    assert_eq!(silent, [HostId::from("gpu-a")]);
    story.exit(2, Some(1), None, false);
    assert_eq!(rank_rows(&story), [2, 3, 0, 1].map(|rank| RankRow::Rank(Rank(rank))));
    // in a group, too: z groups, and the host of what is selected stays selected
    press(&mut story, "z");
    assert_eq!(rank_rows(&story), ["gpu-b", "gpu-a"].map(|name| RankRow::Host(HostId::from(name))));
}

#[test]
fn a_replay_keeps_the_whole_run_and_forgets_a_failure_that_is_to_come() {
    let mut story = failed();
    let end = story.at;
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let state = PlaybackState { end, playhead: end, ..playback(end) };
    story.send(Msg::Playback(state.clone()));
    assert_eq!(story.model.ui.run.log_rank, Some(Rank(3)), "it stands at the outcome");
    let charted = |story: &Story| {
        let (_, run) = story.model.shown_run().unwrap_or_else(|| panic!("a run"));
        hvtui::tui::screens::run::whole::history(&story.model, run).points.points().len()
    };
    let whole = charted(&story);
    // the world before the failure
    let early: Vec<_> = story.told.iter().take(story.told.len() / 2).cloned().collect();
    let mut world = hvtui::domain::world::World::default();
    for envelope in &early {
        world.apply(envelope);
    }
    let playhead = early.last().map_or(end, |envelope| envelope.at);
    story.send(Msg::Reset(Box::new(world)));
    story.send(Msg::Playback(PlaybackState { playhead, ..state.clone() }));
    assert_eq!(story.model.ui.run.log_rank, None);
    assert_eq!(charted(&story), whole, "what comes is on the strip");
    let now = story.model.shown_run().map_or(0, |(_, run)| run.history.points.points().len());
    assert!(now < whole, "{now} {whole}");
    // at the outcome again it is the log of the rank that failed, and that of all ranks once that is asked for
    let outcome = |story: &mut Story, of_all: bool| {
        let mut world = hvtui::domain::world::World::default();
        for envelope in &story.told {
            world.apply(envelope);
        }
        story.send(Msg::Reset(Box::new(world)));
        story.send(Msg::Playback(state.clone()));
        if of_all {
            press(story, "A");
        }
        story.model.ui.run.log_rank
    };
    assert_eq!(outcome(&mut story, false), Some(Rank(3)));
    // a search goes from match to match of one log, also before the failure
    press(&mut story, "/loss");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    let mut before = hvtui::domain::world::World::default();
    for envelope in &early {
        before.apply(envelope);
    }
    story.send(Msg::Reset(Box::new(before)));
    story.send(Msg::Playback(PlaybackState { playhead, ..state.clone() }));
    assert_eq!(story.model.ui.run.log_rank, Some(Rank(3)));
    story.send(Msg::Key(Key::plain(KeyCode::Esc)));
    assert_eq!(story.model.ui.run.log_rank, None, "the search has ended");
    assert_eq!(outcome(&mut story, false), Some(Rank(3)));
    press(&mut story, "/no such thing");
    story.send(Msg::Key(Key::plain(KeyCode::Enter)));
    let said =
        |story: &Story| story.model.ui.toasts.iter().map(|toast| toast.text.clone()).collect::<Vec<_>>();
    let looks = "looking through the recording for no such thing …";
    assert!(said(&story).iter().any(|text| text == looks), "{:?}", said(&story));
    story.send(Msg::LineFound(None));
    assert!(!said(&story).iter().any(|text| text == looks), "it has been looked through");
    let missed = "no line of rank 3, mark, stage or phase has no such thing: A shows the lines of all ranks";
    assert!(said(&story).iter().any(|text| text == missed), "{:?}", said(&story));
    assert_eq!(outcome(&mut story, true), None);
    assert!(!said(&story).iter().any(|text| text == missed), "it is of other lines");
    let mut world = hvtui::domain::world::World::default();
    for envelope in &early {
        world.apply(envelope);
    }
    story.send(Msg::Reset(Box::new(world)));
    assert_eq!(outcome(&mut story, false), None, "it stays what was asked for");
}

#[test]
fn the_timeline_fits_the_whole_run_and_goes_back() {
    let mut story = training();
    press(&mut story, "f");
    assert!(story.model.settings.timeline);
    let window = story.model.ui.run.window.unwrap_or(0);
    let length = story.at.micros_since(START);
    assert!((length..length + length / 7).contains(&window), "{window} {length}");
    press(&mut story, "f");
    assert_eq!(story.model.ui.run.window, None);
}
