//! The Runs screen: what its filter, its orders and its marks show, what is deleted and what is not, where a run is opened;
//! by keys, and with the real binary on recordings that are there.

use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use crate::common::in_time::{OutputInTime, StatusInTime};
use crate::common::terminal::Terminal;
use crate::common::world::{START, Story, failed, key, playback_state, press, recordings, run_id, training};
use crate::json_forms::assert_fits;
use crate::launch_checks::hvtui;
use crate::local_runs::Person;
use crate::screens::{COLOR, text};
use hvtui::domain::hooks::StepsBy;
use hvtui::domain::ids::{Rank, RunId};
use hvtui::domain::run::{KeptRecordings, RankExit, RunStage};
use hvtui::domain::run_status::{HostRunStatus, RunInventory};
use hvtui::domain::time::HostTime;
use hvtui::domain::trained::Trained;
use hvtui::domain::world::World;
use hvtui::record::Store;
use hvtui::tui::core::{Effect, KeyCode, Level, Msg, ReportOf, Reported, Screen};
use hvtui::tui::screens::model::{Confirm, Overlay};
use hvtui::tui::screens::run::rows::RankRow;
use hvtui::tui::screens::runs::rows;

/// The Runs screen with a run that goes on and three recordings: `digits` done, `imagenet…` failed, `diabetes` without end.
fn listed() -> Story {
    let mut story = training();
    press(&mut story, "r");
    story.send(Msg::RunsListed(recordings()));
    story
}

fn names(story: &Story) -> Vec<String> {
    rows(&story.model).iter().map(|row| row.spec.name.chars().take(8).collect()).collect()
}

fn filtered(text: &str) -> Vec<String> {
    let mut story = listed();
    press(&mut story, "/");
    press(&mut story, text);
    key(&mut story, KeyCode::Enter);
    names(&story)
}

#[test]
fn an_imported_run_has_no_exit_code() {
    let mut story = training();
    press(&mut story, "r");
    let mut all = recordings();
    all[0].spec.options.imported = Some("Horovod timeline, from a.json".to_owned());
    story.send(Msg::RunsListed(all));
    let screen = text(&story.model, COLOR);
    let row = screen.lines().find(|line| line.contains("digits") && line.contains("imported")).unwrap();
    assert!(!row.contains("done") && !row.contains("exit"), "{screen}");
}

#[test]
fn a_run_of_another_client_that_has_lost_ranks_is_not_said_to_run() {
    let mut story = listed();
    let run = recordings().swap_remove(2).spec.id;
    let share = |host: &str, ranks: &[u32], signal: Option<i32>| {
        let exit = RankExit { code: None, signal, t: HostTime(9), error: None, stopped: false, cause: None };
        let ranks: Vec<Rank> = ranks.iter().map(|rank| Rank(*rank)).collect();
        HostRunStatus {
            run: run.clone(),
            host: host.into(),
            name: "diabetes".to_owned(),
            exits: signal.iter().map(|_| (ranks[0], exit.clone())).collect(),
            started: ranks.clone(),
            ranks,
            stage: RunStage::Training,
            supervised: true,
            live: true,
            stop: None,
            spec: None,
            quiet_s: None,
        }
    };
    let mut row = |signal: Option<i32>, size: (u16, u16)| {
        let mut inventory = RunInventory::default();
        inventory.take(&"gpu-a".into(), vec![share("gpu-a", &[0, 1], signal)], true);
        inventory.take(&"gpu-b".into(), vec![share("gpu-b", &[2], None)], true);
        story.send(Msg::RunsHeard(Box::new(inventory)));
        story.send(Msg::Resize(size.0, size.1));
        let screen = text(&story.model, COLOR);
        screen.lines().find(|line| line.contains("diabetes")).unwrap_or(&screen).to_owned()
    };
    for size in [(80, 24), (200, 50)] {
        assert!(row(None, size).contains("● running"), "{}", row(None, size));
        assert!(row(Some(9), size).contains("▲ ranks ended"), "{}", row(Some(9), size));
    }
}

#[test]
fn how_long_a_run_took_whose_end_is_not_recorded_is_told_by_its_hosts() {
    let mut story = listed();
    let spec = recordings().swap_remove(2).spec;
    let share = |host: &str, quiet_s: u64| HostRunStatus {
        run: spec.id.clone(),
        host: host.into(),
        name: "diabetes".to_owned(),
        ranks: Vec::new(),
        stage: RunStage::Ended,
        supervised: false,
        live: false,
        stop: None,
        started: Vec::new(),
        exits: std::collections::BTreeMap::new(),
        spec: None,
        quiet_s: Some(quiet_s),
    };
    let mut inventory = RunInventory::default();
    // told one after the other
    for (host, quiet_s, after_s) in [("gpu-a", 60, 3_000), ("gpu-b", 100, 3_100)] {
        inventory.take(&host.into(), vec![share(host, quiet_s)], true);
        inventory.told_at.insert(host.into(), spec.created.plus_micros(after_s * 1_000_000));
    }
    let row = |story: &mut Story| {
        story.send(Msg::Resize(120, 40));
        let screen = text(&story.model, COLOR);
        screen.lines().find(|line| line.contains("diabetes")).unwrap_or(&screen).to_owned()
    };
    assert!(row(&mut story).contains("≥47:00"), "{}", row(&mut story));
    story.send(Msg::RunsHeard(Box::new(inventory)));
    assert!(row(&mut story).contains(" 50:00 "), "{}", row(&mut story));
    press(&mut story, "/duration>48m");
    key(&mut story, KeyCode::Enter);
    assert!(names(&story).contains(&"diabetes".to_owned()), "{:?}", names(&story));
}

#[test]
fn the_newest_run_is_a_key_away_wherever_it_is_known_from() {
    let mut story = Story::new(&["gpu-a"]);
    assert!(press(&mut story, "2").is_empty());
    assert!(story.model.ui.toasts.iter().any(|toast| toast.text.starts_with("no run yet")));
    let mut past = recordings();
    past.reverse();
    story.send(Msg::RunsListed(past));
    assert_eq!(press(&mut story, "2"), [Effect::OpenReplay(recordings()[0].spec.id.clone())]);
    // one that this UI follows counts before all that have ended
    let mut story = listed();
    assert!(press(&mut story, "2").is_empty());
    assert_eq!(story.model.ui.screen, Screen::Run);
}

#[test]
fn a_filter_is_words_states_and_fields() {
    assert_eq!(names(&listed()), ["mnist", "digits", "imagenet", "diabetes"]);
    assert_eq!(filtered("running"), ["mnist"]);
    assert_eq!(filtered("failed"), ["imagenet"]);
    assert_eq!(filtered("state=done"), ["digits"]);
    assert_eq!(filtered("!running !failed"), ["digits", "diabetes"]);
    assert_eq!(filtered("age>2h"), ["imagenet", "diabetes"]);
    assert_eq!(filtered("age>2h & size<10M"), ["imagenet"], "what has no size matches none");
    assert_eq!(filtered("size>0"), ["digits", "imagenet", "diabetes"]);
    assert_eq!(filtered("duration>5m host~GPU-B"), ["imagenet"], "of one without an end it is not known");
    assert_eq!(filtered("ranks=4"), ["mnist"]);
    assert_eq!(filtered("RESNET50"), ["imagenet"]);
    assert!(filtered("host~nowhere").is_empty());
}

#[test]
fn a_wrong_filter_says_what_can_be_written_and_keeps_the_last_list() {
    let mut story = listed();
    press(&mut story, "/failed");
    story.send(Msg::Paste(" usr~li".to_owned()));
    let Overlay::Prompt(prompt) = &story.model.ui.overlay else { panic!("it is still typed") };
    assert!(prompt.error.as_ref().unwrap().contains("'usr' is no field: use state, name"), "{prompt:?}");
    assert_eq!(names(&story), ["imagenet"]);
    for (wrong, words) in [("age>old", "age>30d"), ("state=dead", "use running"), ("name<a", "name~part")] {
        let mut story = listed();
        press(&mut story, "/");
        press(&mut story, wrong);
        let Overlay::Prompt(prompt) = &story.model.ui.overlay else { panic!("it is still typed") };
        assert!(prompt.error.as_ref().is_some_and(|error| error.contains(words)), "{prompt:?}");
    }
}

#[test]
fn escape_drops_the_filter_before_it_leaves() {
    let mut story = listed();
    press(&mut story, "/failed");
    key(&mut story, KeyCode::Enter);
    key(&mut story, KeyCode::Esc);
    assert_eq!((names(&story).len(), story.model.ui.screen), (4, Screen::Runs));
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.model.ui.screen, Screen::Cluster);
}

#[test]
fn the_list_is_sorted_in_eight_ways_and_the_selection_stays() {
    let mut story = listed();
    press(&mut story, "jj");
    let selected = story.model.ui.runs.cursor.on.clone();
    let mut sorted = || {
        press(&mut story, "s");
        assert_eq!(story.model.ui.runs.cursor.on, selected);
        names(&story)
    };
    assert_eq!(sorted(), ["imagenet", "digits", "mnist", "diabetes"], "longest; without an end last");
    assert_eq!(sorted(), ["diabetes", "imagenet", "digits", "mnist"], "largest; without a recording last");
    assert_eq!(sorted(), ["diabetes", "digits", "imagenet", "mnist"], "name");
    assert_eq!(sorted(), ["mnist", "imagenet", "diabetes", "digits"], "outcome");
    assert_eq!(sorted(), ["mnist", "digits", "imagenet", "diabetes"], "loss; not known of any");
    assert_eq!(sorted(), ["mnist", "digits", "imagenet", "diabetes"], "samples a second; likewise");
    assert_eq!(sorted(), ["mnist", "digits", "imagenet", "diabetes"], "commit; likewise");
    assert_eq!(sorted(), ["mnist", "digits", "imagenet", "diabetes"], "newest");
}

#[test]
fn what_training_came_to_has_columns_of_which_the_sorted_one_stays_at_80() {
    let mut story = listed();
    let shown = |story: &Story| text(&story.model, COLOR);
    assert!(!shown(&story).contains("LOSS"), "no run tells one");
    let mut told = recordings();
    let trained = |loss, rate| Trained {
        step: 500,
        loss: Some(loss),
        samples_per_s: Some(rate),
        by: StepsBy::Program,
        libraries: String::new(),
        stands_since: None,
    };
    told[0].trained = Some(trained(0.25, 1_485.0));
    told[1].trained = Some(trained(0.125, 990.0));
    story.send(Msg::RunsListed(told));
    story.send(Msg::Resize(200, 30));
    let screen = shown(&story);
    assert!(screen.contains("LOSS") && screen.contains("SAMPLES/S") && screen.contains("1,485"), "{screen}");
    story.send(Msg::Resize(80, 24));
    assert!(!shown(&story).contains("SAMPLES/S"), "{}", shown(&story));
    press(&mut story, "sssss");
    assert_eq!(names(&story), ["imagenet", "digits", "mnist", "diabetes"]);
    let screen = shown(&story);
    assert!(screen.contains("LOSS") && screen.contains("0.1250"), "{screen}");
    press(&mut story, "s");
    assert_eq!(names(&story), ["digits", "imagenet", "mnist", "diabetes"]);
    assert!(shown(&story).contains("SAMPLES/S"), "{}", shown(&story));
}

#[test]
fn what_is_deleted_is_asked_about_and_enter_is_no_yes() {
    let mut story = listed();
    press(&mut story, "jj");
    let id = story.model.ui.runs.cursor.on.clone().unwrap();
    assert!(press(&mut story, "D").is_empty());
    assert!(key(&mut story, KeyCode::Enter).is_empty());
    assert!(matches!(story.model.ui.overlay, Overlay::Confirm(Confirm::Delete(_))));
    assert!(press(&mut story, "n").is_empty());
    assert_eq!(story.model.ui.overlay, Overlay::None);
    let effects = press(&mut story, "Dy");
    assert!(matches!(&effects[..], [Effect::DeleteRuns(runs)] if runs.len() == 1 && runs[0].id == id));
    assert!(press(&mut story, "Dy").is_empty(), "it is being deleted");
    story.send(Msg::RunsDeleted { gone: vec![id], freed: 6_172_835, failed: Vec::new() });
    assert_eq!(names(&story), ["mnist", "digits", "diabetes"]);
    assert!(story.model.ui.toasts.back().unwrap().text.contains("5.9 M freed"));
}

#[test]
fn marked_runs_are_deleted_together() {
    let mut story = listed();
    press(&mut story, "j  ");
    assert_eq!(story.model.ui.runs.marked.len(), 2);
    let ids: Vec<RunId> = story.model.ui.runs.marked.iter().cloned().collect();
    let effects = press(&mut story, "Dy");
    let [Effect::DeleteRuns(runs)] = &effects[..] else { panic!("{effects:?}") };
    assert!(runs.len() == 2 && ids.iter().all(|id| runs.iter().any(|run| run.id == *id)));
    let failed = vec![(ids[1].clone(), "it is locked".to_owned())];
    story.send(Msg::RunsDeleted { gone: vec![ids[0].clone()], freed: 1, failed });
    assert_eq!((names(&story).len(), story.model.ui.runs.marked.len()), (3, 1));
    assert!(story.model.ui.toasts.back().unwrap().text.contains("it is locked"));
    press(&mut story, "U");
    assert!(story.model.ui.runs.marked.is_empty());
}

#[test]
fn a_run_that_goes_on_is_not_deleted() {
    let mut story = listed();
    press(&mut story, "gD");
    assert_eq!(story.model.ui.overlay, Overlay::None);
    let told = &story.model.ui.toasts.back().unwrap().text;
    assert!(told.contains("mnist is running: stop it with x"), "{told}");
    // its recording is in the list, too
    let mut with_live = recordings();
    with_live[0].spec = (*story.model.world.runs[&run_id()].spec).clone();
    with_live[0].outcome = None;
    story.send(Msg::RunsListed(with_live));
    press(&mut story, "g  D");
    let Overlay::Confirm(Confirm::Delete(asked)) = &story.model.ui.overlay else { panic!("the other one") };
    assert_eq!((asked.runs.len(), asked.kept.len()), (1, 1));
    assert!(asked.kept[0].contains("is running"), "{asked:?}");
}

#[test]
fn a_notice_covers_no_line_of_a_report() {
    let mut story = listed();
    let effects = press(&mut story, "jjI");
    let [Effect::Report(of)] = &effects[..] else { panic!("{effects:?}") };
    let words = (1..=35).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
    story.send(Msg::ReportTold(of.clone(), Reported::Done(words.into(), Vec::new())));
    story.send(Msg::Resize(80, 24));
    story.model.ui.toasts.clear();
    press(&mut story, "G");
    let screen = text(&story.model, COLOR);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("lines 14 to 35 of 35") && lines[22] == "line 35", "{screen}");
    let notice = "a host was lost, and what it told meanwhile is not known here ".repeat(2);
    story.send(Msg::Notice(Level::Warning, notice));
    press(&mut story, "G");
    let screen = text(&story.model, COLOR);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].contains("lines 16 to 35 of 35") && lines[20] == "line 35", "{screen}");
    assert!(lines[21].starts_with(" ⚠ a host was lost"), "{screen}");
}

#[test]
fn a_run_on_its_screen_is_compared_with_one_of_the_list() {
    let mut story = listed();
    press(&mut story, "jj");
    let id = story.model.ui.runs.cursor.on.clone().unwrap();
    key(&mut story, KeyCode::Enter);
    let mut world: World = failed().model.world;
    let run = world.runs.remove(&run_id()).unwrap();
    world.runs.insert(id.clone(), run);
    story.send(Msg::Reset(Box::new(world)));
    let end = START.plus_micros(10_000_000);
    story.send(Msg::Playback(playback_state(end, end)));
    assert_eq!(press(&mut story, "X"), [Effect::CloseReplay, Effect::ListRuns]);
    assert_eq!(story.model.ui.screen, Screen::Runs);
    assert_eq!(story.model.ui.runs.marked.iter().collect::<Vec<_>>(), [&id]);
    press(&mut story, "j");
    let other = story.model.ui.runs.cursor.on.clone().unwrap();
    assert_ne!(other, id);
    let [Effect::Report(ReportOf::Both(a, b))] = &press(&mut story, "X")[..] else { panic!("a comparison") };
    assert_eq!([a.min(b), a.max(b)], [(&id).min(&other), (&id).max(&other)]);
    // on Runs the mark stays for the next one
    key(&mut story, KeyCode::Esc);
    assert_eq!((story.model.ui.screen, &story.model.ui.overlay), (Screen::Runs, &Overlay::None));
    assert_eq!(story.model.ui.runs.marked.len(), 1);
    // where there is no list, the command is told
    let mut alone = failed();
    alone.model.ui.replay.alone = true;
    assert_eq!(press(&mut alone, "X"), []);
    assert!(text(&alone.model, COLOR).contains("RUN compares it"), "{}", text(&alone.model, COLOR));
}

#[test]
fn a_run_is_opened_at_its_outcome() {
    let mut story = listed();
    press(&mut story, "jj");
    let id = story.model.ui.runs.cursor.on.clone().unwrap();
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::OpenReplay(id)]);
    let mut world: World = failed().model.world;
    let run = world.runs.remove(&run_id()).unwrap();
    let shown = story.model.ui.run.run.clone().unwrap();
    world.runs.insert(shown, run);
    story.send(Msg::Reset(Box::new(world)));
    let end = START.plus_micros(10_000_000);
    let state = playback_state(end, end);
    story.send(Msg::Playback(state.clone()));
    let ui = &story.model.ui.run;
    assert_eq!(
        (ui.log_rank, ui.ranks.on.clone()),
        (Some(Rank(3)), Some(RankRow::Rank(Rank(3)))),
        "the rank that failed first"
    );
    press(&mut story, "A");
    story.send(Msg::Playback(state));
    assert_eq!(story.model.ui.run.log_rank, None, "once");
}

#[test]
fn a_recording_that_can_not_be_opened_leads_back_to_the_list() {
    let mut story = listed();
    press(&mut story, "j");
    key(&mut story, KeyCode::Enter);
    assert_eq!(story.model.ui.screen, Screen::Replay);
    story.send(Msg::ReplayFailed("run.mcap: no such file".to_owned()));
    assert_eq!(story.model.ui.screen, Screen::Runs);
    assert!(story.model.ui.toasts.back().unwrap().text.contains("no such file"));
    story.send(Msg::ReplayFailed("late".to_owned()));
    assert_eq!(story.model.ui.screen, Screen::Runs);
}

#[test]
fn what_recordings_take_is_known_by_the_screen() {
    let mut story = listed();
    let kept =
        KeptRecordings { folder: "/s/runs".to_owned(), count: 3, bytes: 44_444_412, free: Some(1 << 34) };
    story.send(Msg::RecordingsKept(kept.clone()));
    assert_eq!(story.model.ui.runs.kept, Some(kept));
}

/// `hvtui` on this machine alone with a home folder of its own.
#[test]
fn the_command_takes_the_filter_and_the_orders_of_the_screen() {
    let person = Person::new(2);
    for (name, epochs) in [("short", "1"), ("long", "4")] {
        let train = ["--", "hvtui", "train", "digits", "--epochs", epochs];
        let ran = person.run(&[&["run", "-np", "2", "--name", name][..], &train].concat());
        assert!(ran.status.success(), "{ran:?}");
    }
    assert!(person.run(&["run", "-np", "1", "--name", "plain", "--", "true"]).status.success());
    let listed = |args: &[&str]| assert_fits("runs", &person.run(&[&["runs", "--json"], args].concat()));
    let names = |args: &[&str]| -> Vec<String> {
        let listed = listed(args);
        let names =
            listed.as_array().unwrap().iter().map(|run| run["spec"]["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(names(&[]), ["plain", "long", "short"]);
    assert_eq!(names(&["--sort", "loss"]), ["long", "short", "plain"]);
    assert_eq!(names(&["--sort", "name"]), ["long", "plain", "short"]);
    let steps = &listed(&["--filter", "short"])[0]["trained"]["step"];
    assert_eq!(names(&["--filter", &format!("step>{steps}")]), ["long"]);
    assert_eq!(names(&["--filter", "done rate>0"]), ["long", "short"]);
    assert_eq!(names(&["--filter", "!rate>0"]), ["plain"]);
    let text = person.run(&["runs", "--filter", "long", "--local"]);
    let text = String::from_utf8_lossy(&text.stdout);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.len() == 2 && lines[0].ends_with(&["SIZE", "LOSS", "SAMPLES/S", "STATE"]), "{text}");
    let none = person.run(&["runs", "--filter", "host~elsewhere"]);
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert!(said.contains("no run passes the filter"), "{said}");
    let wrong = person.run(&["runs", "--filter", "los<1"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(64) && said.contains("'los' is no field: use state, name"), "{said}");
}

#[test]
fn a_recording_is_opened_at_its_end_and_deleted_from_the_screen() {
    let home = tempfile::tempdir().unwrap();
    let ran = hvtui(home.path())
        .args([
            "run",
            "-np",
            "1",
            "--name",
            "short-one",
            "--",
            "sh",
            "-c",
            "echo the first line; echo the last line; exit 3",
        ])
        .output_in_time()
        .unwrap();
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let store = Store::new(&home.path().join("state/hvtui"));
    let recorded = store.list().unwrap().runs;
    assert_eq!(recorded.len(), 1);
    let spool = home.path().join("state/hvtui/spool").join(recorded[0].spec.id.as_str());
    assert!(spool.exists(), "what its host keeps");
    let folder = store.path_of(&recorded[0].spec.id).parent().unwrap().to_owned();

    let Some(terminal) = Terminal::start(&hvtui(home.path()), 120, 40) else { return };
    terminal.wait("the cluster", |screen| screen.contains("local") && screen.contains('%'));
    terminal.press(&["r"]);
    terminal.wait("the run and what it takes", |screen| {
        screen.contains("short-one") && screen.contains("✖ exit 3") && screen.contains("1 recording takes")
    });
    terminal.press(&["Enter"]);
    terminal.wait("its outcome", |screen| {
        screen.contains("Replay") && screen.contains("exit 3") && screen.contains("the last line")
    });
    terminal.press(&["Escape"]);
    terminal.wait("the list", |screen| screen.contains("1 recording takes"));
    terminal.press(&["D"]);
    terminal.wait("the question", |screen| {
        screen.contains("Delete run")
            && screen.contains("keeps here and on local")
            && screen.contains("y delete")
    });
    assert!(folder.exists());
    terminal.press(&["y"]);
    terminal.wait("its end", |screen| screen.contains("freed") && screen.contains("0 recordings take 0 B"));
    assert!(!folder.exists(), "with all that was beside it");
    terminal.wait("an empty list", |screen| screen.contains("0 runs, 0 live"));
    assert!(!spool.exists(), "and what its host kept");
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn files_that_hang_delay_no_key() {
    let home = tempfile::tempdir().unwrap();
    // reading a pipe that has no writer does not end
    let id = RunId::new(1_795_000_000_000, 1);
    let path = Store::new(&home.path().join("state/hvtui")).path_of(&id);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
    let made = Command::new("mkfifo").arg(&path).status_in_time().unwrap();
    assert!(made.success());
    let Some(terminal) = Terminal::start(&hvtui(home.path()), 100, 30) else { return };
    terminal.wait("the cluster", |screen| screen.contains("local") && screen.contains('%'));
    terminal.press(&["r"]);
    terminal.wait("the list that does not come", |screen| screen.contains("reading the recordings"));
    terminal.press(&["?"]);
    terminal.wait("the help", |screen| screen.contains("keys of Runs"));
    terminal.press(&["j"]);
    terminal.press(&["Escape"]);
    terminal.wait("the list again", |screen| !screen.contains("keys of Runs"));
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn the_list_is_read_again_while_it_is_shown() {
    let mut story = listed();
    let asks = |story: &mut Story, seconds: i64| {
        let at = story.at.plus_micros(seconds * 1_000_000);
        story.send(Msg::Tick(at)).contains(&Effect::ListRuns)
    };
    // the first question may be due already
    asks(&mut story, 20);
    story.send(Msg::RunsListed(recordings()));
    assert!(!asks(&mut story, 25) && asks(&mut story, 31));
    assert!(!asks(&mut story, 60), "the answer is waited for");
    story.send(Msg::RunsListed(recordings()));
    assert!(asks(&mut story, 61));
}
