//! The Replay screen as it is opened, and where its keys go: the whole run, steps, places, incidents.

use crate::common::world::{
    FREE, START, Story, cpu_slots, error_line, failed, key, playback_state, press, run_id, spec, training,
};
use crate::screens::{COLOR, text};
use std::sync::Arc;

use hvtui::domain::ahead::TimelineAhead;
use hvtui::domain::event::{Event, Origin};
use hvtui::domain::log::{LogLine, Stream};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::run::RunStage;
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::world::LoggedLine;
use hvtui::tui::core::{Effect, KeyCode, Msg, PlayCommand, Screen};
use hvtui::tui::screens::Model;
use hvtui::tui::screens::model::Overlay;
use hvtui::tui::screens::run::{LogAt, window_us};

fn state(start: Stamp, playhead: Stamp, end: Stamp) -> PlaybackState {
    PlaybackState { start, ..playback_state(playhead, end) }
}

/// The recording of what was told, at its end.
fn opened(mut story: Story, start: Stamp) -> Story {
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    story.send(Msg::Playback(state(start, end, end)));
    story
}

/// A plain job of two ranks that ends after a fifth of a second.
fn short() -> (Story, Stamp) {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 2);
    let start = story.at;
    story.run("true", &cpu_slots(&[("local", 0), ("local", 1)])).stage(RunStage::Training, &[]);
    for rank in 0..2 {
        story.rank(rank, Event::RankStarted { pid: 7 + rank, t: HostTime(1) });
    }
    story.wait_ms(200);
    story.exit(0, Some(0), None, false).exit(1, Some(0), None, false).end(0, None, "all 2 ranks finished");
    (story, start)
}

#[test]
fn a_short_run_is_opened_as_a_whole_and_says_that_it_has_no_phases() {
    let (story, start) = short();
    let mut story = opened(story, start);
    let length = story.at.micros_since(start);
    assert_eq!(window_us(&story.model), length);
    let screen = text(&story.model, COLOR);
    assert_eq!(screen.matches("no phases reported").count(), 1, "{screen}");
    assert!(!screen.contains("reported yet"), "{screen}");
    // also elsewhere than at the end no more is shown than there is
    let middle = start.plus_micros(length / 2);
    story.send(Msg::Playback(state(start, middle, story.at)));
    assert!(window_us(&story.model) <= length);
}

#[test]
fn of_an_imported_run_no_exit_code_is_told() {
    let titled = |imported: Option<&str>| {
        let mut story = Story::new(&["local"]);
        let start = story.at;
        let mut spec = spec(run_id(), "before", &cpu_slots(&[("unknown", 0)]), start);
        spec.options.imported = imported.map(str::to_owned);
        story.tell(Origin::Run(run_id()), Event::RunCreated { spec: spec.into() });
        story.wait_ms(200).end(0, None, "how it ended is not told");
        let screen = text(&opened(story, start).model, COLOR);
        screen.lines().next().unwrap().to_owned()
    };
    let own = titled(None);
    assert!(own.contains("exit 0"), "{own}");
    let imported = titled(Some("a Chrome trace"));
    assert!(imported.contains("imported") && !imported.contains("exit"), "{imported}");
}

#[test]
fn a_long_run_is_opened_as_a_whole() {
    let story = training();
    let long = START.plus_micros(-3_600_000_000);
    let length = story.at.micros_since(long);
    let story = opened(story, long);
    assert_eq!(window_us(&story.model), length);
    let screen = text(&story.model, COLOR);
    assert!(!screen.contains("no phases"), "{screen}");
}

/// The lanes of the timeline, and its ruler first.
fn timeline(story: &Story) -> Vec<String> {
    let screen = text(&story.model, COLOR);
    let below = screen.lines().skip_while(|line| !line.starts_with("─ timeline"));
    let (ruler, lanes) = below
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .split_first()
        .map_or_else(|| panic!("{screen}"), |(ruler, rest)| (ruler.clone(), rest.to_vec()));
    let lanes = lanes.into_iter().take_while(|line| !line.starts_with('─'));
    [ruler].into_iter().chain(lanes).collect()
}

#[test]
fn the_timeline_shows_what_lies_on_both_sides_of_the_playhead() {
    for size in [(100, 30), (200, 60)] {
        let mut story = opened(training(), START);
        story.send(Msg::Resize(size.0, size.1));
        let whole = timeline(&story);
        let (end, playhead) = (story.at, story.at.plus_micros(-3_000_000));
        story.go_back(playhead);
        let around = timeline(&story);
        let place = |lane: &str| lane.chars().position(|c| c == '│');
        let at = place(&around[1]).expect("the playhead");
        assert!(around[1..].iter().all(|lane| place(lane) == Some(at)), "{around:#?}");
        // but for the playhead, and the values behind the lanes, which are those at the playhead
        let lanes = |timeline: &[String]| -> Vec<String> {
            let line = |line: &String| {
                let columns = line.chars().enumerate().take(usize::from(size.0) - 20);
                columns.map(|(column, c)| if column == at { ' ' } else { c }).collect()
            };
            timeline[1..].iter().map(line).collect()
        };
        assert_eq!(lanes(&around), lanes(&whole));
        // where the steps are not read, where the time went, in short, as far as that is known of the whole run
        let read = story.model.ui.replay.timeline_ahead.take();
        let short = timeline(&story);
        assert!(short[1].trim_end().chars().count() + 6 > whole[1].trim_end().chars().count(), "{short:#?}");
        story.model.ui.replay.timeline_ahead = read;
        // in the middle of a shorter one, and at the ends of the recording where those are near
        press(&mut story, "++");
        let (from, to) = hvtui::tui::screens::run::timeline(&story.model);
        assert_eq!((playhead.micros_since(from) - to.micros_since(playhead)).abs() / 2, 0);
        assert!(timeline(&story)[0].contains(" from "), "{}", timeline(&story)[0]);
        story.send(Msg::Playback(state(START, end, end)));
        assert_eq!(hvtui::tui::screens::run::timeline(&story.model).1, story.at);
        assert!(timeline(&story)[0].contains(" until "), "{}", timeline(&story)[0]);
    }
}

#[test]
fn the_player_is_told_how_long_the_timeline_is() {
    let mut story = opened(training(), START);
    let windows = |effects: Vec<Effect>| -> Vec<i64> {
        let window = |effect| if let Effect::ShowWindow(window) = effect { Some(window) } else { None };
        effects.into_iter().filter_map(window).collect()
    };
    assert_eq!(windows(press(&mut story, "j")), [0; 0], "it was told when it was opened");
    let half = window_us(&story.model) / 2;
    assert_eq!(windows(press(&mut story, "+")), [half]);
    let end = story.at;
    assert_eq!(windows(story.send(Msg::Playback(state(START, end, end)))), [0; 0]);
}

#[test]
fn the_window_stays_until_it_is_zoomed() {
    let story = training();
    let (start, end) = (START, story.at);
    let mut story = opened(story, start);
    let window = window_us(&story.model);
    assert!(window > 5_000_000, "the whole run: {window}");
    let mut at = end;
    for _ in 0..3 {
        let by = match key(&mut story, KeyCode::Left)[..] {
            [Effect::Play(PlayCommand::SeekBy(by))] => by,
            ref other => panic!("{other:?}"),
        };
        assert_eq!(by, -window / 10);
        at = at.plus_micros(by);
        story.send(Msg::Playback(state(start, at, end)));
        assert_eq!(window_us(&story.model), window);
    }
    press(&mut story, "+");
    assert_eq!(window_us(&story.model), window / 2);
    press(&mut story, "(");
    story.send(Msg::Playback(state(start, at.plus_micros(-window / 2), end)));
    assert_eq!(window_us(&story.model), window / 2);
    // all of the run, then some steps
    press(&mut story, "ff");
    assert!(window_us(&story.model) < 1_000_000, "{}", window_us(&story.model));
}

#[test]
fn until_something_of_it_is_read_a_recording_is_being_opened() {
    let (mut story, start) = short();
    story.model = Model::replay(state(start, start, story.at), start, 0);
    story.send(Msg::Resize(120, 40));
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("opening the recording …") && !screen.contains("begins later"), "{screen}");
    story.send(Msg::ReadingOn(40));
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("opening the recording … 40 %"), "{screen}");
    // what was read is of the time before the run
    story.model.ui.replay.reading = None;
    story.quiet = true;
    story.cpu_host("local", 2);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("the run begins later in this recording"), "{screen}");
}

#[test]
fn a_place_that_is_none_stays_to_be_corrected() {
    let (story, start) = short();
    let mut story = opened(story, start);
    press(&mut story, "Jstep x");
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("step x   not a valid moment"), "{screen}");
    key(&mut story, KeyCode::Backspace);
    let Overlay::Prompt(prompt) = &story.model.ui.overlay else { panic!("it is still asked") };
    assert_eq!(prompt.error, None);
    press(&mut story, "812");
    assert_eq!(key(&mut story, KeyCode::Enter), [Effect::Play(PlayCommand::ToStep(812))]);
    assert_eq!(story.model.ui.overlay, Overlay::None);
}

#[test]
fn a_time_that_is_not_recorded_is_told_with_those_that_are() {
    let (story, start) = short();
    let mut story = opened(story, start);
    press(&mut story, "J08:00:00");
    assert_eq!(key(&mut story, KeyCode::Enter), []);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("08:00:00   recorded 14:30:00–14:30:00"), "{screen}");
}

#[test]
fn a_pause_in_which_ranks_tell_nothing_is_told_and_whose_step_is_missing() {
    let mut story = training();
    assert!(!text(&story.model, COLOR).contains("no step for"));
    for rank in [0, 1, 3] {
        story.step(rank, 121, 0.2, crate::common::world::phases(rank));
    }
    story.wait_ms(9_000);
    story.sample("gpu-a", 40.0, &[FREE; 4]).sample("gpu-b", 38.0, &[FREE; 4]);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("no step for 9.0 s: rank 2 has not finished step 121"), "{screen}");
}

#[test]
fn braces_go_from_incident_to_incident() {
    let story = failed();
    let (start, end) = (START, story.at);
    let mut story = opened(story, start);
    let mut seen = Vec::new();
    while let [Effect::Play(PlayCommand::SeekTo(at))] = press(&mut story, "{")[..] {
        seen.push(at);
        assert!(seen.len() < 50);
        story.send(Msg::Playback(state(start, at, end)));
    }
    assert!(!seen.is_empty() && seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    let alerts: Vec<Stamp> = story.model.world.alerts.all().map(|alert| alert.since).collect();
    assert!(!alerts.is_empty() && alerts.iter().all(|at| seen.contains(at)), "{alerts:?} {seen:?}");
    assert_eq!(story.model.ui.toasts.back().unwrap().text, "no incident before this moment");
    let back = press(&mut story, "}");
    assert_eq!(back.is_empty(), seen.len() == 1, "{back:?}");

    let (story, start) = short();
    let mut story = opened(story, start);
    assert_eq!(press(&mut story, "}"), []);
    assert_eq!(story.model.ui.toasts.back().unwrap().text, "no incident is known of this run");
}

#[test]
fn lines_after_the_playhead_are_below_those_before_it_until_it_moves() {
    let mut story = opened(training(), START);
    let at = story.at;
    let end = at.plus_micros(9_000_000);
    story.send(Msg::Playback(state(START, at, end)));
    let line = |rank, text: &str| {
        let line = LogLine { stream: Stream::Stdout, ..error_line(rank, text) };
        Arc::new(LoggedLine::alone(at.plus_micros(1_000_000), Arc::new(line)))
    };
    let later: Vec<_> = (0..64).map(|number| line(number % 4, &format!("later {number}"))).collect();
    story.send(Msg::LinesAhead(at, later));
    let screen = text(&story.model, COLOR);
    let place = |words: &str| screen.lines().position(|line| line.contains(words));
    let (before, after) = (place("dataloader: worker 2 slow"), place("later 0"));
    assert!(before.is_some() && before < after, "{screen}");
    assert!(screen.lines().any(|line| line.starts_with('│') && line.ends_with("later 0")), "{screen}");
    // of the rank whose log is shown alone, its own
    press(&mut story, "j");
    key(&mut story, KeyCode::Enter);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("later 1") && !screen.contains("later 0"), "{screen}");
    press(&mut story, "A");
    // at another moment they are others, and while it plays they come by themselves
    let playing = PlaybackState { playing: true, ..state(START, at, end) };
    for other in [state(START, at.plus_micros(-1), end), playing] {
        story.send(Msg::Playback(other));
        assert!(!text(&story.model, COLOR).contains("later"), "{}", text(&story.model, COLOR));
    }
}

#[test]
fn the_playhead_goes_from_event_to_event_of_the_selected_rank() {
    let at = |moment: Stamp| {
        let mut story = opened(training(), START);
        story.go_back(moment);
        story
    };
    let sought = |story: &mut Story, keys: &str| {
        let effects = press(story, keys);
        let to = effects.iter().find_map(|effect| match effect {
            Effect::Play(PlayCommand::SeekTo(to)) => Some(*to),
            _ => None,
        });
        let to = to.unwrap_or_else(|| panic!("{effects:?}"));
        let words = story.model.ui.toasts.back().map(|toast| toast.text.clone()).unwrap_or_default();
        (to, words)
    };
    let middle = training().at.plus_micros(-1_000_000);
    let (next, words) = sought(&mut at(middle), ".");
    assert!(next > middle && next.micros_since(middle) < 300_000, "{words}");
    assert!(words.starts_with("rank 0: "), "{words}");
    let (before, words) = sought(&mut at(middle), ",");
    assert!(before < middle && middle.micros_since(before) < 300_000, "{words}");
    // what is met on the way forward is met on the way back
    assert!(sought(&mut at(next), ",").0 <= middle);
    assert!(sought(&mut at(before), ".").0 <= next);
    // of the rank that is selected
    let mut story = at(middle);
    key(&mut story, KeyCode::Down);
    assert!(sought(&mut story, ".").1.starts_with("rank 1: "));
    // steps that are not read are none that is passed over
    let mut story = at(middle);
    let mut unread = TimelineAhead::default();
    (unread.after, unread.until) = (middle.plus_micros(10_000_000), middle.plus_micros(20_000_000));
    story.model.ui.replay.timeline_ahead = Some(Arc::new(unread));
    assert_eq!(press(&mut story, "."), [Effect::Play(PlayCommand::StepBy(1))]);
    // a run that tells no steps: its end, and then that no more is known
    let (story, start) = short();
    let mut story = opened(story, start);
    story.wait_ms(500);
    let (end, start) = (story.at, start);
    story.send(Msg::Playback(state(start, end, end)));
    let (to, words) = sought(&mut story, ",");
    assert!(words == "rank 0: ends" && to < end, "{words}");
    assert_eq!(press(&mut story, "."), []);
}

#[test]
fn what_is_told_at_once_of_a_long_way_says_so_until_all_is_read() {
    let mut story = opened(training(), START);
    let (world, end) = (story.model.world.clone(), story.at);
    let title = |story: &Story| text(&story.model, COLOR).lines().next().unwrap().to_owned();
    assert!(!title(&story).contains("rough"));
    story.send(Msg::Resize(200, 50));
    let seen = |story: &Story| (story.model.ui.run.whole.is_some(), story.model.ui.run.noticed.is_some());
    (story.model.ui.run.whole, story.model.ui.run.noticed) = (None, None);
    story.model.ui.run.log_at = LogAt::Line(3);
    story.send(Msg::Glimpsed(Box::new(world.clone())));
    story.send(Msg::Playback(state(START, end, end)));
    story.send(Msg::ReadingOn(12));
    assert_eq!(
        seen(&story),
        (false, false),
        "what is not all of it is kept apart, and nothing is found in it"
    );
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow, "it counts its lines anew");
    assert!(title(&story).contains("reading 12 %, rough until then"), "{}", title(&story));
    story.send(Msg::Reset(Box::new(world)));
    story.send(Msg::Playback(state(START, end, end)));
    assert!(!title(&story).contains("rough"), "{}", title(&story));
    assert_eq!(seen(&story), (true, true));
    assert_eq!(story.model.ui.run.log_at, LogAt::Line(3), "lines have the numbers that they had");
}
