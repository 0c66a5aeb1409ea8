//! Marks with notes: set on the screens and by `hvtui runs mark`, kept beside the recording, shown by every later replay, by
//! exports and reports; and the search that goes to them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use hvtui::domain::alerts::AlertRules;
use hvtui::domain::ids::{Rank, RunId};
use hvtui::domain::log::{LogLine, Stream};
use hvtui::domain::marks::{MarkChange, NewMark, RunMarks};
use hvtui::domain::playback::FoundLine;
use hvtui::domain::time::Stamp;
use hvtui::domain::world::LoggedLine;
use hvtui::record::{Store, marks};
use hvtui::tui::core::{Effect, KeyCode, Msg, PlayCommand, Screen};
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::run::LogAt;
use hvtui::tui::screens::run::log::matches;
use hvtui::tui::source::EventSource;
use hvtui::tui::source::replay::Replay;
use serde_json::Value;

use crate::common::in_time::OutputInTime;
use crate::common::terminal::Terminal;
use crate::common::world::{START, Story, error_line, key, playback_state, press, run_id, training};
use crate::json_forms::assert_fits;
use crate::record::write;
use crate::screens::{COLOR, shoot, text};

fn at(story: &mut Story, playhead: Stamp) {
    let state = playback_state(playhead, story.at);
    story.send(Msg::Playback(state));
}

/// A run that is replayed, at its end.
fn opened() -> Story {
    let mut story = training();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    at(&mut story, end);
    story
}

/// Types a mark's note and gives what is asked for.
fn mark(story: &mut Story, note: &str) -> MarkChange {
    assert_eq!(press(story, "m"), []);
    press(story, note);
    match key(story, KeyCode::Enter).as_slice() {
        [Effect::Mark(run, change)] if *run == run_id() => change.clone(),
        other => panic!("{other:?}"),
    }
}

/// Carries changes out, and tells the screen.
fn keep(story: &mut Story, kept: &mut RunMarks, change: &MarkChange) {
    kept.change(change).unwrap();
    story.send(Msg::MarksTold(run_id(), Ok(Arc::new(kept.clone()))));
}

fn go_to(at: Stamp) -> [Effect; 1] {
    [Effect::Play(PlayCommand::SeekTo(at))]
}

fn said(story: &Story) -> &str {
    story.model.ui.toasts.back().map_or("", |toast| &toast.text)
}

#[test]
fn a_mark_is_set_where_the_playhead_stands_shown_listed_and_changed() {
    let (mut story, mut kept) = (opened(), RunMarks::default());
    let end = story.at;
    let change = mark(&mut story, "loader slow");
    let MarkChange::Add(NewMark { at: when, step, rank, note }) = &change else { panic!("{change:?}") };
    assert_eq!((*when, *rank, note.as_str()), (end, None, "loader slow"));
    assert!(step.is_some());
    keep(&mut story, &mut kept, &change);
    assert!(said(&story).contains("loader slow"), "{}", said(&story));
    at(&mut story, end.plus_micros(-2_000_000));
    // about the rank whose log is shown alone
    story.model.ui.run.log_rank = Some(Rank(3));
    let change = mark(&mut story, "lr 0.1");
    assert!(matches!(&change, MarkChange::Add(new) if new.rank == Some(Rank(3))), "{change:?}");
    keep(&mut story, &mut kept, &change);
    story.model.ui.run.log_rank = None;
    story.model.ui.toasts.clear();
    shoot("replay-marks", opened_again(&kept), &[(80, 24), (120, 40)], COLOR);
    // the list stands on the one at the playhead; it is edited, and the other one deleted
    press(&mut story, "M");
    shoot("replay-marks-list", listed(&kept), &[(80, 24)], COLOR);
    press(&mut story, "e");
    press(&mut story, "5");
    let effects = key(&mut story, KeyCode::Enter);
    assert_eq!(effects, [Effect::Mark(run_id(), MarkChange::Note { id: 2, note: "lr 0.15".to_owned() })]);
    assert!(matches!(story.model.ui.overlay, Overlay::Marks(_)), "back on the list");
    assert_eq!(press(&mut story, "jD"), [Effect::Mark(run_id(), MarkChange::Delete { id: 1 })]);
    keep(&mut story, &mut kept, &MarkChange::Delete { id: 1 });
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("lr 0.1") && !screen.contains("  loader slow"), "{screen}");
    let there = kept.all()[0].at;
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Play(PlayCommand::SeekTo(there))]);
    assert_eq!(story.model.ui.overlay, Overlay::None);
    // what is wrong with them is said, and what was known stays
    story.send(Msg::MarksTold(run_id(), Err("run.marks.json: no space".to_owned())));
    assert_eq!(said(&story), "marks: run.marks.json: no space");
    press(&mut story, "M");
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("lr 0.1 "), "{screen}");
}

fn opened_again(kept: &RunMarks) -> Story {
    let mut story = opened();
    story.send(Msg::MarksTold(run_id(), Ok(Arc::new(kept.clone()))));
    story
}

fn listed(kept: &RunMarks) -> Story {
    let mut story = opened_again(kept);
    press(&mut story, "M");
    story
}

#[test]
fn a_mark_below_the_words_of_the_timeline_stands_on_the_row_of_times() {
    let mut kept = RunMarks::default();
    let at = START.plus_micros(2_000_000);
    let new = NewMark { at, step: None, rank: None, note: "early".to_owned() };
    kept.change(&MarkChange::Add(new)).unwrap();
    let mut story = opened_again(&kept);
    story.send(Msg::Resize(120, 40));
    let screen = text(&story.model, COLOR);
    let has_mark = |of: &str| {
        let line = screen.lines().rfind(|line| line.trim_start().starts_with(of));
        line.unwrap().contains('▾')
    };
    assert!(has_mark("h:m:s") && !has_mark("─ timeline") && !has_mark("rank 0"), "{screen}");
}

#[test]
fn a_live_run_is_marked_now_and_a_note_that_is_too_long_is_not_taken() {
    let mut story = training();
    story.model.ui.screen = Screen::Run;
    assert_eq!(press(&mut story, "m"), []);
    story.send(Msg::Paste("x".repeat(201)));
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    assert!(text(&story.model, COLOR).contains("200 characters at most"));
    key(&mut story, KeyCode::Backspace);
    let effects = key(&mut story, KeyCode::Enter);
    let now = story.model.now;
    assert!(
        matches!(&effects[..], [Effect::Mark(_, MarkChange::Add(new))] if new.at == now && new.note.len() == 200),
        "{effects:?}"
    );
    // without a run there is nothing to mark
    let mut none = Story::new(&["local"]);
    none.model.ui.screen = Screen::Run;
    press(&mut none, "m");
    assert_eq!((said(&none), &none.model.ui.overlay), ("no run yet", &Overlay::None));
}

#[test]
fn braces_and_the_search_go_to_marks_and_phases() {
    let mut kept = RunMarks::default();
    let end = training().at;
    let when = [2, 5].map(|seconds| end.plus_micros(-seconds * 1_000_000));
    for (at, note) in when.into_iter().zip(["Checkpoint b", "checkpoint a"]) {
        let new = NewMark { at, step: Some(8), rank: None, note: note.to_owned() };
        kept.change(&MarkChange::Add(new)).unwrap();
    }
    let mut story = opened_again(&kept);
    let mut seen = Vec::new();
    let mut playhead = end;
    while let [Effect::Play(PlayCommand::SeekTo(to))] = press(&mut story, "{")[..] {
        if when.contains(&to) {
            assert!(said(&story).starts_with("mark: step 8: "), "{}", said(&story));
        }
        assert!(to < playhead);
        (playhead, seen) = (to, [seen, vec![to]].concat());
        at(&mut story, to);
    }
    assert!(when.iter().all(|at| seen.contains(at)), "{seen:?}");
    // the search: the newest first, then round and round
    at(&mut story, end);
    press(&mut story, "/checkpoint");
    assert_eq!(key(&mut story, KeyCode::Enter), go_to(when[0]));
    assert_eq!(said(&story), "match 2 of 2: mark: step 8: Checkpoint b");
    at(&mut story, when[0]);
    // lines that are not in memory may lie between them
    let mut further = |keys: &str| {
        let asked = press(&mut story, keys);
        assert!(matches!(asked[..], [Effect::FindLine(_)]), "{asked:?}");
        story.send(Msg::LineFound(None))
    };
    assert_eq!(further("n"), go_to(when[1]));
    assert_eq!(further("n"), go_to(when[0]));
    assert_eq!(further("N"), go_to(when[1]));
    // a phase, which is in no line and no mark: of the newest step first
    key(&mut story, KeyCode::Esc);
    at(&mut story, end);
    press(&mut story, "/allreduce tr");
    let [Effect::Play(PlayCommand::SeekTo(newest))] = key(&mut story, KeyCode::Enter)[..] else {
        panic!("a phase")
    };
    assert!(said(&story).contains("allreduce transfer, rank "), "{}", said(&story));
    at(&mut story, newest);
    let [Effect::Play(PlayCommand::SeekTo(before))] = press(&mut story, "N")[..] else { panic!("a phase") };
    assert!(before < newest);
    at(&mut story, before);
    assert_eq!(press(&mut story, "n"), go_to(newest), "what lies behind the playhead is still known");
    key(&mut story, KeyCode::Esc);
    press(&mut story, "/no such thing");
    // what is not in memory is looked for in all of the recording
    let asked = key(&mut story, KeyCode::Enter);
    let [Effect::FindLine(search)] = &asked[..] else { panic!("{asked:?}") };
    assert!(search.turns && !search.forward && search.from == before, "{search:?}");
    assert_eq!(story.send(Msg::LineFound(None)), []);
    assert_eq!(said(&story), "no line, mark, stage or phase has no such thing");
    // a line that was found: the playhead is on its way there, and the log with it
    press(&mut story, "n");
    assert_eq!(story.send(Msg::LineFound(Some(unknown(newest)))), go_to(newest));
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow);
}

/// A line that a recording has there, and that is not in memory.
fn unknown(at: Stamp) -> FoundLine {
    let line = LogLine { stream: Stream::Stdout, offset: 7, ..error_line(0, "a line of its own") };
    FoundLine { at, line: Arc::new(LoggedLine::alone(at, Arc::new(line))) }
}

/// The ranks print the lines of a step at the same moment.
#[test]
fn the_search_goes_from_line_to_line_of_one_moment() {
    let mut story = opened_again(&RunMarks::default());
    story.send(Msg::Resize(80, 24));
    let end = story.at;
    at(&mut story, end);
    let lines: Vec<(u64, Arc<LoggedLine>)> = {
        let (_, run) = story.model.shown_run().unwrap();
        let lines = run.log.iter().filter(|(_, line)| line.line.text.contains("step 50 "));
        lines.map(|(number, line)| (number, Arc::clone(line))).collect()
    };
    assert!(lines.len() == 4 && lines.iter().all(|(_, line)| line.at == lines[0].1.at), "{lines:?}");
    let moment = lines[0].1.at;
    // the recording is looked through from a moment before all of them
    story.go_back(START);
    press(&mut story, "/step 50 ");
    let asked = key(&mut story, KeyCode::Enter);
    let [Effect::FindLine(search)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((search.from, search.seen), (START, story.model.world.last_seq), "it may stand amid a moment");
    // the first of them is found: it is that on which the search stands, not the last one of its moment
    let found = FoundLine { at: moment, line: Arc::clone(&lines[0].1) };
    assert_eq!(story.send(Msg::LineFound(Some(found))), go_to(moment));
    assert_eq!(story.model.ui.run.log.found, None, "the playhead is on its way");
    story.go_back(moment);
    let mut stood = vec![matches(&story.model.ui.run)];
    for _ in 0..3 {
        assert_eq!(press(&mut story, "n"), []);
        stood.push(matches(&story.model.ui.run));
    }
    assert_eq!(stood, [1, 2, 3, 4].map(|at| Some((at, 4))));
    assert_eq!(press(&mut story, "N"), []);
    assert_eq!(story.model.ui.run.log.found, Some(lines[2].0));
}

#[test]
fn the_search_and_enter_on_the_log_move_the_playhead_to_a_line() {
    let mut story = opened_again(&RunMarks::default());
    let end = story.at;
    at(&mut story, end);
    story.send(Msg::Resize(80, 24));
    // each rank prints a line of its own at the same moment
    story.model.ui.run.log_rank = Some(Rank(0));
    let line_at = |story: &Story, part: &str| {
        let (_, run) = story.model.shown_run().unwrap();
        let found = run.log.iter().find(|(_, line)| line.line.text.contains(part));
        found.map(|(_, line)| line.at).unwrap()
    };
    let [first, second] = ["step 50 ", "step 110 "].map(|part| line_at(&story, part));
    press(&mut story, "/step 50 ");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Play(PlayCommand::SeekTo(first))]);
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow, "the log goes with it");
    key(&mut story, KeyCode::Esc);
    // two matches: at the first, the second lies behind the playhead and is still known
    at(&mut story, end);
    press(&mut story, "//step (50|110) /");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Play(PlayCommand::SeekTo(second))]);
    story.go_back(second);
    assert_eq!(press(&mut story, "N"), [Effect::Play(PlayCommand::SeekTo(first))]);
    story.go_back(first);
    assert_eq!(matches(&story.model.ui.run), Some((1, 2)));
    assert!(text(&story.model, COLOR).contains("1 of 2"), "{}", text(&story.model, COLOR));
    assert_eq!(press(&mut story, "n"), [Effect::Play(PlayCommand::SeekTo(second))]);
    // to the line that the log was scrolled to
    key(&mut story, KeyCode::Esc);
    story.go_back(end);
    key(&mut story, KeyCode::Tab);
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    assert_eq!(said(&story), "the log is at the playhead: scroll to a line");
    key(&mut story, KeyCode::Up);
    let number = {
        let (_, run) = story.model.shown_run().unwrap();
        run.log
            .iter()
            .find(|(_, line)| line.line.text.contains("step 110 "))
            .map(|(number, _)| number)
            .unwrap()
    };
    let to = PlayCommand::ToLine(second, number + 1);
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Play(to)], "other ranks print at the same moment");
}

#[test]
fn a_search_goes_on_from_the_line_that_it_has_landed_on() {
    let mut story = opened_again(&RunMarks::default());
    story.send(Msg::Resize(80, 24));
    story.model.ui.run.log_rank = Some(Rank(0));
    let newest = {
        let (_, run) = story.model.shown_run().unwrap();
        run.log.iter().filter(|(_, line)| line.line.text.contains("step 50 ")).map(|(_, line)| line.at).max()
    };
    let newest = newest.unwrap();
    let end = story.at;
    at(&mut story, end);
    press(&mut story, "/step 50 ");
    assert_eq!(key(&mut story, KeyCode::Enter), go_to(newest));
    at(&mut story, newest);
    let search = |effects: Vec<Effect>| match &effects[..] {
        [Effect::FindLine(search)] => (search.forward, search.from, search.to),
        other => panic!("{other:?}"),
    };
    assert_eq!(search(press(&mut story, "n")), (true, newest, None));
    // a repetition: in memory it is one more of the row that began before
    let landed = newest.plus_micros(300_000);
    assert_eq!(story.send(Msg::LineFound(Some(unknown(landed)))), go_to(landed));
    at(&mut story, landed);
    assert_eq!(search(press(&mut story, "n")), (true, landed, None));
    // a search that was ended moves nothing
    key(&mut story, KeyCode::Esc);
    assert_eq!(story.send(Msg::LineFound(Some(unknown(newest)))), []);
    // before the next thing that is known it is looked for what lies between
    at(&mut story, landed);
    let mut kept = RunMarks::default();
    let change = mark(&mut story, "step 50 looks odd");
    keep(&mut story, &mut kept, &change);
    press(&mut story, "/step 50 ");
    assert_eq!(key(&mut story, KeyCode::Enter), go_to(landed), "the mark");
    assert_eq!(press(&mut story, "N"), go_to(newest), "the line, which is in memory");
    at(&mut story, newest);
    assert_eq!(search(press(&mut story, "n")), (true, newest, Some(landed)));
    assert_eq!(story.send(Msg::LineFound(None)), go_to(landed), "nothing is between them");
}

/// Messages until marks are told.
async fn told(replay: &mut Replay) -> (RunId, Result<Arc<RunMarks>, String>) {
    loop {
        for msg in replay.next(1).await {
            match msg {
                Msg::MarksTold(run, marks) => return (run, marks),
                Msg::ReplayFailed(why) => panic!("{why}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_mark_of_a_replay_stands_there_when_it_is_opened_again() {
    let story = training();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    write(&path, &story.told);
    let before = std::fs::read(&path).unwrap();
    let new = NewMark { at: story.at, step: Some(3), rank: Some(Rank(1)), note: "slow".to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let open = || Replay::open(&path, Arc::new(AlertRules::default()), None).unwrap();
        let mut replay = open();
        replay.perform(Effect::Mark(run_id(), MarkChange::Add(new.clone())));
        let (run, marks) = told(&mut replay).await;
        assert_eq!((run, marks.unwrap().all()[0].note.as_str()), (run_id(), "slow"));
        // one that leaves at once has it written too
        replay.perform(Effect::Mark(run_id(), MarkChange::Add(NewMark { note: "last".to_owned(), ..new })));
        drop(replay);
        let (run, marks) = told(&mut open()).await;
        let notes: Vec<_> = marks.unwrap().all().iter().map(|mark| mark.note.clone()).collect();
        assert_eq!((run, notes), (run_id(), vec!["slow".to_owned(), "last".to_owned()]));
        // what can't be read is named, and the replay goes on
        std::fs::write(folder.path().join("run.marks.json"), "{}").unwrap();
        let (_, marks) = told(&mut open()).await;
        assert!(marks.unwrap_err().contains("run.marks.json: no marks of hvtui"));
    });
    assert_eq!(std::fs::read(&path).unwrap(), before, "the recording is as it was");
}

pub(crate) fn hvtui(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(args).current_dir(folder).env_clear().env("HOME", folder).env("TZ", "UTC");
    command.env("LANG", "C.UTF-8").stdin(Stdio::null()).output_in_time().unwrap()
}

pub(crate) fn good(folder: &Path, args: &[&str]) -> String {
    let output = hvtui(folder, args);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn recorded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.mcap"), &training().told);
    folder
}

#[test]
fn marks_are_set_from_a_shell_and_stand_in_exports_and_reports() {
    let folder = recorded();
    let here = folder.path();
    assert_eq!(good(here, &["runs", "mark", "a.mcap"]), "no marks yet\n");
    assert_eq!(good(here, &["runs", "mark", "a.mcap", "the <end>"]), "");
    let set = good(here, &["runs", "mark", "a.mcap", "loader\nslow", "--at", "1.5", "--rank", "3", "--json"]);
    let set: Value = serde_json::from_str(&set).unwrap();
    assert_fits("runs-mark", &hvtui(here, &["runs", "mark", "a.mcap", "--json"]));
    let marks = set["marks"].as_array().unwrap();
    assert_eq!(marks.len(), 2);
    assert_eq!(
        (&marks[0]["id"], &marks[0]["rank"], &marks[0]["note"]),
        (&2.into(), &3.into(), &"loader slow".into())
    );
    assert!(marks[1]["step"].is_u64() && marks[1]["rank"].is_null(), "{set}");
    let listed = good(here, &["runs", "mark", "a.mcap"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("   2  ") && lines[0].contains("rank 3"), "{listed}");
    assert!(lines[1].ends_with(": the <end>"), "{listed}");

    let trace: Value = serde_json::from_str(&good(here, &["export", "a.mcap", "--to", "chrome"])).unwrap();
    let instants: Vec<&Value> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "mark").collect();
    let told =
        |at: usize| (instants[at]["ph"].as_str(), instants[at]["s"].as_str(), instants[at]["name"].as_str());
    assert_eq!(instants.len(), 2);
    assert_eq!(told(0), (Some("i"), Some("p"), Some("loader slow")));
    assert_eq!(told(1), (Some("i"), Some("g"), Some("the <end>")));
    assert_eq!(instants[0]["ts"], 1_500_000);
    let ranks = good(here, &["export", "a.mcap", "--to", "chrome", "--ranks", "1"]);
    assert!(!ranks.contains("loader slow") && ranks.contains("the <end>"));
    let early = good(here, &["export", "a.mcap", "--to", "chrome", "--to-time", "2"]);
    assert!(early.contains("loader slow") && !early.contains("the <end>"));
    let cast = good(here, &["export", "a.mcap", "--to", "asciicast"]);
    let markers = cast.lines().filter(|line| line.contains(r#","m","#) && line.contains("slow\"")).count();
    assert_eq!(markers, 1, "{cast}");

    let report = good(here, &["report", "a.mcap"]);
    assert!(report.contains("\nMarks\n") && report.contains("loader slow"), "{report}");
    let json = assert_fits("run-report", &hvtui(here, &["report", "a.mcap", "--json"]));
    assert_eq!(json["marks"], set["marks"]);
    good(here, &["report", "a.mcap", "--html", "page.html"]);
    let page = std::fs::read_to_string(here.join("page.html")).unwrap();
    assert!(page.contains("<h2>Marks</h2>") && page.contains("the &lt;end&gt;"), "{page}");

    assert_eq!(good(here, &["runs", "mark", "a.mcap", "--delete", "2"]), "");
    assert!(!good(here, &["runs", "mark", "a.mcap"]).contains("loader slow"));
    for (args, code, words) in [
        (&["--delete", "2"][..], 64, "there is no mark 2 (any more)"),
        (&["x", "--rank", "9"], 64, "there is no rank 9"),
        (&["x", "--at", "1e9"], 64, "behind the end of the recording"),
        (&[&"x".repeat(201)], 64, "200 characters at most, this one 201"),
        (&["--at", "1"], 64, "required"),
    ] {
        let refused = hvtui(here, &[&["runs", "mark", "a.mcap"], args].concat());
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(code) && told.contains(words), "{args:?} {refused:?}");
    }
    assert_eq!(marks::read(&here.join("a.mcap")).unwrap().all().len(), 1);
}

#[test]
fn what_can_not_be_written_is_named_and_nothing_is_lost() {
    let folder = recorded();
    let here = folder.path();
    good(here, &["runs", "mark", "a.mcap", "first"]);
    let before = std::fs::read_to_string(here.join("a.marks.json")).unwrap();
    // a disk that takes nothing more: no file may grow
    let script = format!(
        "trap '' XFSZ; ulimit -f 0; exec {} runs mark a.mcap second",
        crate::common::program::hvtui()
    );
    let full = Command::new("sh")
        .args(["-c", &script])
        .current_dir(here)
        .env_clear()
        .env("LANG", "C.UTF-8")
        .env("HOME", here)
        .output_in_time();
    let full = full.unwrap();
    let told = String::from_utf8_lossy(&full.stderr).into_owned();
    assert!(full.status.code() == Some(74) && told.starts_with("hvtui: a.marks.json: "), "{full:?}");
    assert_eq!(std::fs::read_to_string(here.join("a.marks.json")).unwrap(), before);
    let names: Vec<_> = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("part")), "{names:?}");
    // something else stands where the file would
    std::fs::rename(here.join("a.marks.json"), here.join("kept")).unwrap();
    std::fs::create_dir(here.join("a.marks.json")).unwrap();
    let refused = hvtui(here, &["runs", "mark", "a.mcap", "x"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(74) && told.starts_with("hvtui: a.marks.json: "), "{refused:?}");
    // damaged ones are named by every command that would show them
    std::fs::remove_dir(here.join("a.marks.json")).unwrap();
    std::fs::write(here.join("a.marks.json"), "{\"version\":7}").unwrap();
    for (args, code) in [
        (&["runs", "mark", "a.mcap"][..], 65),
        (&["export", "a.mcap", "--to", "chrome"], 65),
        (&["report", "a.mcap"], 0),
    ] {
        let refused = hvtui(here, args);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(code), "{refused:?}");
        assert!(
            told.contains("a.marks.json: it has version 7, this hvtui reads up to 1: update hvtui"),
            "{told}"
        );
    }
    // a folder that may not be written to; root writes all the same
    std::fs::rename(here.join("kept"), here.join("a.marks.json")).unwrap();
    std::fs::set_permissions(here, PermissionsExt::from_mode(0o500)).unwrap();
    let may = std::fs::write(here.join("probe"), "").is_ok();
    let ended = hvtui(here, &["runs", "mark", "a.mcap", "third"]);
    std::fs::set_permissions(here, PermissionsExt::from_mode(0o700)).unwrap();
    let notes = marks::read(&here.join("a.mcap")).unwrap().all().len();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    if may {
        assert!(ended.status.success() && notes == 2, "{ended:?}");
    } else {
        assert!(told.starts_with("hvtui: a.marks.json: Permission denied") && notes == 1, "{ended:?}");
    }
}

#[test]
fn a_live_run_keeps_its_marks_for_its_replay_in_a_terminal() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::common::program::hvtui());
    command.arg("demo").env("HOME", home.path()).env("TMPDIR", home.path()).current_dir("/");
    for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    let Some(terminal) = Terminal::start(&command, 120, 40) else { return };
    terminal.wait("the cluster with its runs", |screen| screen.contains("rank 0 step"));
    terminal.press(&["2"]);
    terminal.wait("the newest run", |screen| screen.contains("samples/s") && screen.contains("whole run"));
    terminal.press(&["m"]);
    terminal.wait("the prompt", |screen| screen.contains("note of the mark"));
    terminal.type_in("lr was changed");
    terminal.press(&["Enter"]);
    terminal.wait("the mark", |screen| screen.contains("marked ") && screen.contains('▾'));
    terminal.press(&["p"]);
    // it stands at the end, and the mark under the playhead
    terminal.wait("its replay", |screen| screen.contains("Replay") && screen.contains("paused"));
    terminal.press(&["g"]);
    terminal.wait("the mark", |screen| screen.contains('▾'));
    terminal.press(&["M"]);
    terminal.wait("its marks", |screen| screen.contains("marks of run") && screen.contains("lr was changed"));
    terminal.press(&["D"]);
    terminal.wait("none", |screen| screen.contains("no mark yet"));
    terminal.press(&["C-c"]);
    terminal.assert_restored(0);
}

#[test]
fn who_leaves_at_once_finds_the_mark_again_in_a_terminal() {
    let folder = recorded();
    let mut command = Command::new(crate::common::program::hvtui());
    command.args(["replay", "a.mcap"]).env("HOME", folder.path()).current_dir(folder.path());
    let open = || {
        let terminal = Terminal::start(&command, 80, 24)?;
        terminal.wait("the replay", |screen| screen.contains("paused") && screen.contains("step 120"));
        Some(terminal)
    };
    let Some(terminal) = open() else { return };
    // where step 120 was finished, and one back
    terminal.press(&["[", "["]);
    terminal.wait("a step back", |screen| screen.contains("step 119"));
    terminal.press(&["m"]);
    terminal.wait("the prompt", |screen| screen.contains("note of the mark"));
    terminal.type_in("look here");
    terminal.press(&["Enter", "q"]);
    terminal.assert_restored(0);
    let Some(terminal) = open() else { return };
    terminal.wait("the mark", |screen| screen.contains('▾'));
    terminal.press(&["{"]);
    terminal.wait("its note", |screen| screen.contains("mark: step 119: look here"));
    terminal.press(&["q"]);
    terminal.assert_restored(0);
}

#[test]
fn marks_go_with_their_recording() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::new(state.path());
    let path = store.path_of(&run_id());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(&path, &training().told);
    let new = NewMark { at: START, step: None, rank: None, note: "gone".to_owned() };
    marks::change(&path, &MarkChange::Add(new)).unwrap();
    let files = std::fs::metadata(&path).unwrap().len()
        + std::fs::metadata(path.with_file_name("run.marks.json")).unwrap().len();
    assert_eq!(store.delete(&run_id()).unwrap(), files);
    assert!(!path.parent().unwrap().exists());
}
