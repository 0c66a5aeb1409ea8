//! A part of a replay that is selected, its figures, and the heat map: from the recording to the screen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::world::{
    Gpu, START, Story, failed, gpu_slots, key, many_ranks, playback_state, press, training,
};
use crate::screens::{COLOR, shoot, text};
use hvtui::domain::alerts::AlertRules;
use hvtui::domain::analysis::{Analyzer, Choice, RunAnalysis};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::ids::Rank;
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::run::RunStage;
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::record::export::{Selection, StepRange};
use hvtui::record::{Reader, Study, Writer, figures};
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Analyzed, Effect, Key, KeyCode, Level, Mouse, MouseKind, Msg, PlayCommand, Screen};
use hvtui::tui::screens::replay::selection::{FiguresUi, selected};
use hvtui::tui::screens::run::lanes::lane_columns;
use hvtui::tui::screens::run::rows::{RankRow, rows};
use hvtui::tui::screens::run::{Pane, timeline};
use hvtui::tui::source::EventSource;
use hvtui::tui::source::replay::Replay;

const PLAIN: Caps = Caps { color: ColorDepth::None, ascii: false };
const ASCII: Caps = Caps { color: ColorDepth::None, ascii: true };

fn recording(dir: &Path, told: &[Envelope]) -> PathBuf {
    let path = dir.join("run.mcap");
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
    for envelope in told {
        writer.push(envelope).unwrap();
    }
    writer.finish().unwrap();
    path
}

fn study(path: &Path) -> Study {
    Study::new(Reader::open(path).unwrap()).unwrap()
}

/// When the last rank told a step.
fn told_at(story: &Story, step: u64) -> Stamp {
    let of =
        |envelope: &&Envelope| matches!(&envelope.event, Event::StepDone { timing } if timing.step == step);
    story.told.iter().rev().find(of).unwrap_or_else(|| panic!("step {step}")).at
}

fn state(story: &Story, playhead: Stamp) -> PlaybackState {
    playback_state(playhead, story.at)
}

/// A replay of what was told, at its end.
fn opened(mut story: Story) -> Story {
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    let end = story.at;
    let playback = state(&story, end);
    story.send(Msg::Playback(playback));
    story
}

fn go(story: &mut Story, to: Stamp) -> Vec<Effect> {
    let playback = state(story, to);
    story.send(Msg::Playback(playback))
}

/// Answers the one question for figures from a recording of what was told.
fn answered(story: &mut Story, effects: &[Effect]) {
    let [Effect::Analyze { from, to }] = *effects else { panic!("figures are asked for: {effects:?}") };
    let dir = tempfile::tempdir().unwrap();
    let figures = study(&recording(dir.path(), &story.told)).figures(from, to, |_| true).unwrap();
    story.send(Msg::Analyzed { from, to, told: Analyzed::Done(Arc::new(figures)) });
}

/// The replay with the last six steps selected, and their figures.
fn six_steps(story: Story) -> Story {
    selected_steps(story, 115, 120)
}

fn selected_steps(story: Story, first: u64, last: u64) -> Story {
    let mut story = opened(story);
    let (from, to) = (told_at(&story, first - 1), told_at(&story, last));
    go(&mut story, to);
    assert_eq!(press(&mut story, "v"), [], "nothing is selected yet");
    let effects = go(&mut story, from);
    assert_eq!(effects, [Effect::Analyze { from, to }]);
    answered(&mut story, &effects);
    story
}

#[test]
fn parts_of_a_recording_have_the_figures_of_the_report() {
    let story = training();
    let dir = tempfile::tempdir().unwrap();
    let path = recording(dir.path(), &story.told);
    let spec = story.model.shown_run().unwrap().1.spec.clone();
    let mut whole = Analyzer::new(spec, Choice::default());
    story.told.iter().for_each(|envelope| whole.take(envelope));
    let same = |a: &RunAnalysis, b: &RunAnalysis| {
        assert_eq!((&a.steps, &a.phases, &a.ranks, &a.gpus), (&b.steps, &b.phases, &b.ranks, &b.gpus));
        assert_eq!((&a.log, &a.charts), (&b.log, &b.charts));
    };
    let all = study(&path).figures(START.plus_micros(-1), story.at, |_| true).unwrap();
    same(&all, &whole.so_far());

    let (from, to) = (told_at(&story, 114), told_at(&story, 120));
    let part = study(&path).figures(from, to, |_| true).unwrap();
    assert_eq!((part.steps.whole, part.steps.judged), (Some((115, 120)), 6));
    assert_eq!((part.ranks[3].last_in, part.ranks[3].wait_caused_us), (Some(6), Some(66_000)));
    assert_eq!(part.ranks[0].last_in, Some(0));

    // a part that grows and shrinks, and one whose reading was broken off
    let mut grown = study(&path);
    for step in [116, 118, 117, 115, 119] {
        grown.figures(from, told_at(&story, step), |_| true).unwrap();
    }
    same(&grown.figures(from, to, |_| true).unwrap(), &part);
    for broken_off_at in 0..6 {
        let mut study = study(&path);
        let mut chunks = 0;
        let given_up = study.figures(from, to, |share| {
            assert!((0.0..=1.0).contains(&share));
            chunks += 1;
            chunks <= broken_off_at
        });
        assert_eq!(given_up, None);
        same(&study.figures(from, to, |_| true).unwrap(), &part);
    }
}

#[test]
fn the_report_of_a_part_has_the_figures_of_a_selection() {
    let story = training();
    let dir = tempfile::tempdir().unwrap();
    let path = recording(dir.path(), &story.told);
    let reader = Reader::open(&path).unwrap();
    let part = |selection: &Selection| figures::part(&reader, selection, &mut |_| true).map(Option::unwrap);
    let (from, to) = (told_at(&story, 114), told_at(&story, 120));
    let shown = study(&path).figures(from, to, |_| true).unwrap();
    let told = part(&Selection { from: Some(from), to: Some(to), ..Selection::default() }).unwrap();
    assert_eq!((&told.steps, &told.phases, &told.gpus), (&shown.steps, &shown.phases, &shown.gpus));
    assert_eq!((&told.log, told.ranks[3].last_in), (&shown.log, shown.ranks[3].last_in));

    let whole = part(&Selection::default()).unwrap();
    let steps = |first, last| Some(StepRange { first, last });
    let told = part(&Selection { steps: steps(Some(115), Some(120)), ..Selection::default() }).unwrap();
    assert_eq!((told.steps.whole, told.steps.judged), (Some((115, 120)), 6));
    assert_eq!((told.steps.first, told.steps.last), (Some(115), Some(120)));
    let samples = |run: &RunAnalysis| run.gpus.iter().map(|gpu| gpu.samples).sum::<u64>();
    assert!(samples(&told) < samples(&whole), "telemetry is of those steps, too");
    assert_eq!(told.part.unwrap().words(), "steps 115 to 120");

    let told = part(&Selection { ranks: Some(vec![Rank(3)]), ..Selection::default() }).unwrap();
    let of_rank = |run: &RunAnalysis, at: usize| {
        let rank = &run.ranks[at];
        (rank.rank, rank.last_in, rank.wait_caused_us, rank.length, rank.phases_us)
    };
    assert_eq!((told.ranks.len(), of_rank(&told, 0)), (1, of_rank(&whole, 3)));
    assert!(told.gpus.iter().all(|gpu| gpu.rank == Rank(3)) && told.host_figures.len() == 1);
    assert_eq!(whole.part, None);
    let straggler = |run: &RunAnalysis| run.incidents.iter().any(|one| one.words.contains("is a straggler"));
    assert!(straggler(&whole) && straggler(&told), "as on the screen: {:?}", whole.incidents);

    let none = |selection: &Selection| part(selection).unwrap_err().to_string();
    let late = none(&Selection { steps: steps(Some(90_000), None), ..Selection::default() });
    assert!(
        late.contains("no rank of it has told one of its steps; the recording has steps 1 to "),
        "{late}"
    );
    let behind = none(&Selection { from: Some(story.at.plus_micros(1)), ..Selection::default() });
    assert!(behind.contains("it begins behind the end; the recording has steps 1 to "), "{behind}");
    let before = none(&Selection { to: Some(START.plus_micros(-1_000_000)), ..Selection::default() });
    assert!(before.contains("it ends before the beginning"), "{before}");
    let apart = Selection { from: Some(from), steps: steps(None, Some(100)), ..Selection::default() };
    assert!(none(&apart).contains("none of its steps ended in its time"), "{}", none(&apart));
}

#[test]
fn an_open_range_of_steps_reaches_to_a_failure_behind_the_last_one() {
    let story = failed();
    let dir = tempfile::tempdir().unwrap();
    let reader = Reader::open(&recording(dir.path(), &story.told)).unwrap();
    let part = |last| {
        let steps = Some(StepRange { first: Some(115), last });
        let selection = Selection { steps, ..Selection::default() };
        figures::part(&reader, &selection, &mut |_| true).unwrap().unwrap()
    };
    let (open, closed) = (part(None), part(Some(120)));
    assert_eq!((open.steps.first, open.steps.last), (closed.steps.first, closed.steps.last));
    assert_eq!(open.part.as_ref().unwrap().words(), "from step 115 on");
    // what the killed rank printed, and its end
    assert!(open.log.lines >= closed.log.lines + 3, "{:?} {:?}", open.log, closed.log);
    assert!(open.incidents.len() > closed.incidents.len(), "{:?}", open.incidents);
    assert!(open.incidents.iter().any(|one| one.ranks.contains(&Rank(3))), "{:?}", open.incidents);
}

#[test]
fn a_selection_goes_from_where_it_was_begun_to_the_playhead() {
    let mut story = six_steps(training());
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("rank 3 (gpu-b:1) last in 6 of 6, 66 ms delay"), "{screen}");
    assert!(screen.contains("6 steps, 115–120"), "{screen}");
    // the log, in whose place the figures stand, does not get the arrows
    key(&mut story, KeyCode::Tab);
    assert_eq!(story.model.ui.run.pane, Pane::Ranks);
    story.send(Msg::Resize(120, 40));
    key(&mut story, KeyCode::Tab);
    assert_eq!(story.model.ui.run.pane, Pane::Logs);
    key(&mut story, KeyCode::Tab);
    let (from, to) = (told_at(&story, 113), told_at(&story, 120));
    let effects = go(&mut story, from);
    assert_eq!(effects, [Effect::Analyze { from, to }], "each move asks again");
    let screen = text(&story.model, COLOR);
    assert!(
        screen.contains("reading 0 %") && screen.contains("last in 6 of 6"),
        "the nearest that is known stays"
    );
    story.send(Msg::Analyzed { from, to, told: Analyzed::Reading(43) });
    assert!(text(&story.model, COLOR).contains("reading 43 %"));
    let why = "run.mcap: no such file".to_owned();
    story.send(Msg::Analyzed { from, to, told: Analyzed::Failed(why.clone()) });
    assert!(text(&story.model, COLOR).contains(&why));
    assert_eq!(press(&mut story, "v"), []);
    assert_eq!(selected(&story.model), None);
    assert!(!text(&story.model, COLOR).contains("selection"));
    // an answer that comes when nothing is selected any more is none
    story.send(Msg::Analyzed { from, to, told: Analyzed::Reading(9) });
    assert_eq!(story.model.ui.replay.figures, FiguresUi::default());
    // escape: the search, the selection, then the screen
    press(&mut story, "v/step");
    key(&mut story, KeyCode::Enter);
    key(&mut story, KeyCode::Esc);
    assert!(selected(&story.model).is_some() && story.model.ui.screen == Screen::Replay);
    key(&mut story, KeyCode::Esc);
    assert!(selected(&story.model).is_none() && story.model.ui.screen == Screen::Replay);
    assert_eq!(key(&mut story, KeyCode::Esc), [Effect::CloseReplay]);
}

#[test]
fn the_mouse_selects_on_the_lanes() {
    let mut story = opened(failed());
    story.send(Msg::Resize(120, 40));
    let row = text(&story.model, COLOR).lines().position(|line| line.starts_with(" rank 0")).unwrap() as u16;
    let mut at = |kind, column| story.send(Msg::Mouse(Mouse { kind, column, row }));
    assert_eq!(at(MouseKind::Click, 90), []);
    let effects = at(MouseKind::Drag, 60);
    let [Effect::Analyze { from, to }] = effects[..] else { panic!("{effects:?}") };
    assert!(from < to);
    assert_eq!(selected(&story.model), Some((from, to)));
    // it stays where it is when the playhead moves
    assert_eq!(go(&mut story, to), []);
    assert_eq!(selected(&story.model), Some((from, to)));
    // on the strip the mouse still moves the playhead
    let row = text(&story.model, COLOR).lines().position(|line| line.contains("paused")).unwrap() as u16;
    story.send(Msg::Mouse(Mouse { kind: MouseKind::Click, column: 40, row }));
    let moved = story.send(Msg::Mouse(Mouse { kind: MouseKind::Drag, column: 50, row }));
    assert!(matches!(moved[..], [Effect::Play(PlayCommand::SeekTo(_))]), "{moved:?}");
}

/// The row of the screen on which the lane of a rank stands: behind the table, which has it too.
fn lane_of(story: &Story, rank: u32) -> u16 {
    let screen = text(&story.model, COLOR);
    let begins = format!(" rank {rank}");
    let lines = screen.lines().collect::<Vec<_>>();
    let row = lines.iter().rposition(|line| line.starts_with(&begins));
    row.unwrap_or_else(|| panic!("the lane of rank {rank} on\n{screen}")) as u16
}

/// The moment under a column of the lanes.
fn moment_at(story: &Story, column: u16) -> i64 {
    let (from, to) = timeline(&story.model);
    let (x, w) = lane_columns(&story.model, story.model.shown_run().unwrap().1);
    from.0 + to.micros_since(from) * i64::from(column - x) / i64::from(w - 1)
}

#[test]
fn a_click_on_a_lane_goes_there_and_selects_its_rank() {
    let mut story = opened(training());
    story.send(Msg::Resize(120, 40));
    let row = lane_of(&story, 2);
    let at = moment_at(&story, 60);
    let click = |kind| Msg::Mouse(Mouse { kind, column: 60, row });
    assert_eq!(story.send(click(MouseKind::Click)), [], "it may become a selection");
    assert_eq!(story.send(Msg::Released), [Effect::Play(PlayCommand::SeekTo(Stamp(at)))]);
    assert_eq!(story.model.ui.run.ranks.on, Some(RankRow::Rank(Rank(2))));
    assert_eq!(selected(&story.model), None);
    // the lanes have moved away below the second press
    go(&mut story, Stamp(at));
    assert_eq!(story.send(click(MouseKind::DoubleClick)), []);
    assert_eq!(story.send(Msg::Released), []);
    // one that became a selection is no click
    story.send(click(MouseKind::Click));
    story.send(Msg::Mouse(Mouse { kind: MouseKind::Drag, column: 70, row }));
    assert_eq!(story.send(Msg::Released), []);
    assert!(selected(&story.model).is_some());
    // nor is one that a question has covered meanwhile
    story.send(click(MouseKind::Click));
    press(&mut story, "?");
    assert_eq!(story.send(Msg::Released), []);
}

#[test]
fn the_lane_of_a_slot_selects_the_rank_that_is_on_it() {
    let mut story = opened(training());
    story.send(Msg::Resize(120, 40));
    let screen = text(&story.model, COLOR);
    let row =
        screen.lines().collect::<Vec<_>>().iter().rposition(|line| line.starts_with(" gpu-b:1")).unwrap();
    story.send(Msg::Mouse(Mouse { kind: MouseKind::Click, column: 60, row: row as u16 }));
    assert!(matches!(story.send(Msg::Released)[..], [Effect::Play(PlayCommand::SeekTo(_))]));
    assert_eq!(story.model.ui.run.ranks.on, Some(RankRow::Rank(Rank(3))));
}

#[test]
fn the_wheel_zooms_at_the_mouse() {
    let mut story = opened(training());
    story.send(Msg::Resize(120, 40));
    let middle = Stamp(i64::midpoint(START.0, story.at.0));
    go(&mut story, middle);
    let row = lane_of(&story, 1);
    for kind in [MouseKind::WheelUp, MouseKind::WheelUp, MouseKind::WheelUp, MouseKind::WheelDown] {
        let (before, under) = (timeline(&story.model), moment_at(&story, 90));
        let effects = story.send(Msg::Mouse(Mouse { kind, column: 90, row }));
        let [Effect::Play(PlayCommand::SeekTo(to)), Effect::ShowWindow(_)] = effects[..] else {
            panic!("{effects:?}")
        };
        go(&mut story, to);
        let (after, still) = (timeline(&story.model), moment_at(&story, 90));
        let length = |(from, to): (Stamp, Stamp)| to.micros_since(from);
        assert_eq!(length(after) < length(before), kind == MouseKind::WheelUp);
        assert!((still - under).abs() <= length(after) / 100, "{under} is now {still}");
    }
    // several turns before the first one is answered
    let (middle, under) = (story.model.moment(), moment_at(&story, 90));
    let mut last = middle;
    for _ in 0..3 {
        let effects = story.send(Msg::Mouse(Mouse { kind: MouseKind::WheelUp, column: 90, row }));
        let [Effect::Play(PlayCommand::SeekTo(to)), Effect::ShowWindow(_)] = effects[..] else {
            panic!("{effects:?}")
        };
        last = to;
    }
    go(&mut story, last);
    let (from, to) = timeline(&story.model);
    let still = moment_at(&story, 90);
    assert!((still - under).abs() <= to.micros_since(from) / 100, "{under} is now {still}");
    // one that is being selected ends at the playhead, which stays
    press(&mut story, "v");
    go(&mut story, last.plus_micros(-200_000));
    let part = selected(&story.model);
    let before = timeline(&story.model);
    let effects = story.send(Msg::Mouse(Mouse { kind: MouseKind::WheelUp, column: 90, row }));
    assert!(matches!(effects[..], [Effect::ShowWindow(_)]), "{effects:?}");
    assert!(selected(&story.model) == part && timeline(&story.model) != before);
    press(&mut story, "v");
    // beside the lanes it moves the selected rank, as before
    let before = story.model.ui.run.window;
    story.send(Msg::Mouse(Mouse { kind: MouseKind::WheelDown, column: 2, row }));
    assert_eq!(
        (story.model.ui.run.window, &story.model.ui.run.ranks.on),
        (before, &Some(RankRow::Rank(Rank(3))))
    );
}

#[test]
fn the_mouse_freezes_a_run_that_goes_on() {
    let live = || {
        let mut story = training();
        story.model.ui.screen = Screen::Run;
        story.send(Msg::Resize(120, 40));
        if !text(&story.model, COLOR).contains("─ timeline") {
            press(&mut story, "t");
        }
        story
    };
    let mut story = live();
    let row = lane_of(&story, 1);
    let at = |kind, column| Msg::Mouse(Mouse { kind, column, row });
    // it is zoomed without being frozen
    let before = timeline(&story.model);
    assert_eq!(story.send(at(MouseKind::WheelUp, 60)), []);
    let after = timeline(&story.model);
    assert!(after.1 == before.1 && after.0 > before.0 && story.model.ui.screen == Screen::Run);
    let moment = moment_at(&story, 60);
    story.send(at(MouseKind::Click, 60));
    let effects = story.send(Msg::Released);
    let [Effect::OpenReplay(_), Effect::Play(PlayCommand::SeekTo(to))] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((to.0, story.model.ui.screen), (moment, Screen::Replay));
    assert_eq!(story.model.ui.run.ranks.on, Some(RankRow::Rank(Rank(1))));

    let mut story = live();
    story.send(at(MouseKind::Click, 60));
    let effects = story.send(at(MouseKind::Drag, 64));
    assert!(matches!(effects[..], [Effect::OpenReplay(_)]), "{effects:?}");
    story.send(at(MouseKind::Drag, 70));
    assert_eq!(story.send(Msg::Released), []);
    let end = story.at;
    let effects = go(&mut story, end);
    assert!(matches!(effects[0], Effect::Analyze { .. }), "{effects:?}");
    let (from, to) = selected(&story.model).unwrap();
    assert!(from.0 < to.0 && to <= end);
}

#[test]
fn what_is_selected_is_drawn() {
    let sizes = [(80, 24), (120, 40), (200, 50)];
    shoot("replay-selection", six_steps(training()), &sizes, COLOR);
    shoot("replay-selection-long", selected_steps(uneven(), 41, 160), &sizes, COLOR);
    shoot("replay-selection-ascii", six_steps(training()), &[(80, 24), (120, 40)], ASCII);
}

/// A run whose rank 1 falls behind more and more, whose rank 2 does so for ten steps, and that waits for its disk at step 150.
fn uneven() -> Story {
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 2).gpu_host("gpu-b", 2);
    story.run("mnist", &gpu_slots(&[("gpu-a", 0), ("gpu-a", 1), ("gpu-b", 0), ("gpu-b", 1)]));
    story.stage(RunStage::Training, &[]);
    for rank in 0..4 {
        story.rank(rank, Event::RankStarted { pid: 4000 + rank, t: HostTime(1) });
    }
    for step in 1..=200u64 {
        if step % 16 == 0 {
            let gpu = |util| Gpu { util, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
            story.sample("gpu-a", 40.0, &[gpu(97), gpu(90 - step as u32 / 5)]);
            story.sample("gpu-b", 38.0, &[gpu(95), gpu(96)]);
        }
        let late = [0, step as u32 * 60, if (100..110).contains(&step) { 9_000 } else { 0 }, 500];
        let most = late.into_iter().max().unwrap();
        let slow = if step == 150 { 40_000 } else { 0 };
        for (rank, late) in (0..4).zip(late) {
            let phases = [4_900 + slow + late, 14_200, 22_900, 300 + most - late, 5_400, 2_500];
            story.step(rank, step, 2.3 / step as f32, phases);
        }
        if step % 40 == 0 {
            story.error_log(1, "WARNING: dataloader: worker 2 slow (210 ms)");
        }
        story.wait_ms(50 + i64::from(slow) / 1000);
    }
    story
}

/// The heat map of all that was told.
fn heated(story: Story) -> Story {
    let mut story = opened(story);
    let effects = press(&mut story, "H");
    let (from, to) = (START.plus_micros(-1), story.at);
    assert_eq!(effects, [Effect::Analyze { from, to }]);
    answered(&mut story, &effects);
    story
}

#[test]
fn the_heat_map_shows_how_late_each_rank_came() {
    shoot("replay-heat", heated(uneven()), &[(80, 24), (120, 40), (200, 50)], COLOR);
    shoot("replay-heat-no-colour", heated(uneven()), &[(80, 24)], PLAIN);
    shoot("replay-heat-ascii", heated(uneven()), &[(80, 24)], ASCII);
    shoot("replay-heat-many", heated(many_ranks(16)), &[(80, 24), (200, 50)], COLOR);
    // of the selection, where there is one
    let mut story = six_steps(training());
    assert_eq!(press(&mut story, "H"), [], "its figures are known");
    shoot("replay-heat-selection", story, &[(80, 24)], COLOR);
}

#[test]
fn the_heat_map_is_ordered_by_the_delay_that_it_tells() {
    let mut story = heated(uneven());
    press(&mut story, "ss");
    assert!(text(&story.model, COLOR).contains("most delay first"));
    let known = Arc::clone(&story.model.ui.replay.figures.last.as_ref().unwrap().1);
    let delay = |row: &RankRow| {
        let RankRow::Rank(rank) = row else { panic!("{row:?}") };
        known.ranks.iter().find(|figures| figures.rank == *rank).unwrap().wait_caused_us.unwrap()
    };
    let delays: Vec<u64> = rows(&story.model).iter().map(delay).collect();
    assert!(delays.len() == 4 && delays[0] > delays[1], "{delays:?}");
    assert!(delays.is_sorted_by(|a, b| a >= b), "{delays:?}");
    assert_eq!(rows(&story.model)[0], RankRow::Rank(Rank(1)), "which falls behind more and more");
}

#[test]
fn the_columns_of_the_heat_map_are_steps_or_time() {
    let mut story = heated(uneven());
    assert_eq!(press(&mut story, "b"), [], "the same figures");
    shoot("replay-heat-by-time", story, &[(80, 24), (120, 40)], COLOR);
    let mut story = heated(uneven());
    let steps = text(&story.model, COLOR);
    press(&mut story, "bb");
    assert_eq!(text(&story.model, COLOR), steps);
    // elsewhere it opens the map by time
    let effects = press(&mut story, "Hb");
    answered(&mut story, &effects);
    assert!(story.model.ui.replay.heat && text(&story.model, COLOR).contains("time 14:30:"));
}

#[test]
fn the_heat_map_of_a_live_run_is_that_of_what_is_recorded() {
    let mut story = training();
    story.model.ui.screen = Screen::Run;
    let effects = press(&mut story, "H");
    assert!(matches!(effects[..], [Effect::OpenReplay(_)]), "{effects:?}");
    assert_eq!(story.model.ui.screen, Screen::Replay);
    let story = opened(story);
    assert!(story.model.ui.replay.heat);
}

#[test]
fn the_heat_map_is_left_by_its_key_and_by_escape() {
    for leave in [Key::char('H'), Key::plain(KeyCode::Esc)] {
        let mut story = heated(training());
        assert!(text(&story.model, COLOR).contains("LAST IN"));
        press(&mut story, "jj");
        assert_eq!(story.send(Msg::Key(leave)), []);
        let screen = text(&story.model, COLOR);
        assert!(!screen.contains("LAST IN") && screen.contains("timeline"), "{screen}");
    }
}

#[test]
fn figures_are_read_beside_the_replay() {
    let story = training();
    let dir = tempfile::tempdir().unwrap();
    let path = recording(dir.path(), &story.told);
    let (from, to) = (told_at(&story, 114), told_at(&story, 120));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut replay = Replay::open(&path, Arc::new(AlertRules::default()), None).unwrap();
        // only the newest question must be answered
        for first in [100, 110] {
            replay.perform(Effect::Analyze { from: told_at(&story, first), to });
        }
        replay.perform(Effect::Analyze { from, to });
        let figures = loop {
            let messages = replay.next(1).await;
            let done = messages.into_iter().find_map(|msg| match msg {
                Msg::Analyzed { from: of, told: Analyzed::Done(figures), .. } if of == from => Some(figures),
                Msg::ReplayFailed(why) => panic!("{why}"),
                _ => None,
            });
            if let Some(figures) = done {
                break figures;
            }
        };
        assert_eq!((figures.steps.judged, figures.ranks[3].last_in), (6, Some(6)));
        std::fs::remove_file(&path).unwrap();
        let mut replay = Replay::open(&path, Arc::new(AlertRules::default()), None).unwrap();
        replay.perform(Effect::Analyze { from, to });
        loop {
            let messages = replay.next(1).await;
            if messages.iter().any(|msg| matches!(msg, Msg::Analyzed { told: Analyzed::Failed(_), .. })) {
                break;
            }
        }
    });
}

#[test]
fn steps_of_a_wrong_clock_are_told_beside_the_replay() {
    let mut story = training();
    let mut steps = 0;
    for envelope in &mut story.told {
        let is_of_it = matches!(envelope.origin, Origin::Rank(_, Rank(3)));
        if let (true, Event::StepDone { timing }) = (is_of_it, &mut envelope.event) {
            Arc::make_mut(timing).start = HostTime(1);
            steps += 1;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = recording(dir.path(), &story.told);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut replay = Replay::open(&path, Arc::new(AlertRules::default()), None).unwrap();
        let told = loop {
            let messages = replay.next(1).await;
            let notice = messages.into_iter().find_map(|msg| match msg {
                Msg::Notice(level, text) => Some((level, text)),
                Msg::ReplayFailed(why) => panic!("{why}"),
                _ => None,
            });
            if let Some(notice) = notice {
                break notice;
            }
        };
        let words = format!(
            "a wrong clock puts {steps} steps of rank 3 outside of the run, where no lane shows them: \
             hvtui runs check says more"
        );
        assert_eq!(told, (Level::Warning, words));
    });
}
