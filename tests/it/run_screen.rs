//! What the Run and Runs screens say of a run is true at that moment, and what they show stands still.

use std::sync::Arc;

use crate::common::world::{
    CLOCK_OFFSET, FREE, Gpu, Story, busy, cpu_slots, error_line, failed, gpu_slots, key, many_ranks, phases,
    playback_state, press, run_id, training, uuid,
};
use crate::screens::{COLOR, text};
use hvtui::domain::alerts::AlertRules;
use hvtui::domain::event::Event;
use hvtui::domain::ids::Rank;
use hvtui::domain::log::{LogLine, Stream};
use hvtui::domain::outcome::{RunEnd, RunOutcome};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::run::{RefusalClass, RunStage};
use hvtui::domain::standstill::StalledPhase;
use hvtui::domain::time::HostTime;
use hvtui::domain::timing::{Phase, SeenStep};
use hvtui::tui::core::{Effect, Key, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::run::LogAt;
use hvtui::tui::screens::run::rows::rows;
use hvtui::tui::screens::view::draw;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

fn shown(story: &mut Story, size: (u16, u16)) -> String {
    story.send(Msg::Resize(size.0, size.1));
    text(&story.model, COLOR)
}

/// The first line that has this.
fn line(screen: &str, what: &str) -> String {
    screen.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned()
}

/// The training in which rank 3 reads its data for a minute and the others wait for it.
fn hanging() -> Story {
    let mut story = training();
    let spins = |util| Gpu { util, mem: 11, user: Some(("li", "hvtui train mnist")), throttle: &[] };
    for rank in 0..4 {
        let phase = if rank == 3 { Phase::Data } else { Phase::Wait };
        let standing = StalledPhase { phase, step: 121, for_us: 1_000_000, stopped: false, at: None };
        story.rank(rank, Event::RankStands { standing });
    }
    for _ in 0..65 {
        story.wait_ms(1000);
        story.sample("gpu-a", 40.0, &[FREE, FREE, spins(100), spins(100)]);
        story.sample("gpu-b", 38.0, &[spins(100), spins(5), FREE, FREE]);
    }
    story
}

#[test]
fn a_run_that_hangs_is_not_green_anywhere() {
    let mut story = hanging();
    for size in [(80, 24), (200, 50)] {
        let run = shown(&mut story, size);
        assert!(run.contains("stands still in step 121: rank 3 in data"), "{run}");
        for place in ["gpu-a:2", "gpu-a:3", "gpu-b:0", "gpu-b:1"] {
            assert!(line(&run, place).contains("no step 01:05"), "{run}");
        }
        assert!(!run.lines().skip(2).any(|line| line.contains("training")), "{run}");
    }
    let wide = shown(&mut story, (200, 50));
    assert!(line(&wide, "samples/s").contains("last "), "{wide}");
    assert!(line(&wide, "gpu-a:2").contains("last 5"), "{wide}");
    press(&mut story, "Z");
    let grouped = shown(&mut story, (80, 24));
    assert!(grouped.contains("2 no step"), "{grouped}");
    press(&mut story, "r");
    for size in [(80, 24), (200, 50)] {
        let runs = shown(&mut story, size);
        assert!(line(&runs, "mnist").contains("▲ no step 01:05"), "{runs}");
    }
    // it goes on
    for rank in 0..4 {
        story.step(rank, 121, 0.1, phases(0));
    }
    let runs = shown(&mut story, (80, 24));
    assert!(line(&runs, "mnist").contains("● training"), "{runs}");
}

/// `stopped` alone would hide why it was.
#[test]
fn a_run_that_hung_and_was_stopped_says_where_it_stood() {
    let mut story = hanging();
    story.stage(RunStage::Stopping, &[]);
    for rank in 0..4 {
        story.exit(rank, None, Some(15), true);
    }
    let outcome = RunOutcome::new(RunEnd::Stopped, "stopped");
    story.tell(hvtui::domain::event::Origin::Run(run_id()), Event::RunEnded { outcome });
    for size in [(80, 24), (200, 50)] {
        let run = shown(&mut story, size);
        assert!(run.contains("stopped · no step for 01:05 before its end: rank 3 in data"), "{run}");
    }
}

#[test]
fn a_run_of_short_steps_is_not_said_to_stand_before_five_seconds() {
    let mut story = training();
    for rank in 0..4 {
        let standing =
            StalledPhase { phase: Phase::Data, step: 121, for_us: 1_000_000, stopped: false, at: None };
        story.rank(rank, Event::RankStands { standing });
    }
    let says = |story: &mut Story| {
        let run = shown(story, (120, 40));
        press(story, "r");
        let runs = shown(story, (120, 40));
        press(story, "2");
        (run.contains("stands still") || run.contains("no step"), runs.contains("no step"))
    };
    // its hosts are not silent
    let second = |story: &mut Story| {
        story.wait_ms(1000);
        for host in ["gpu-a", "gpu-b"] {
            story.sample(host, 40.0, &[FREE; 4]);
        }
    };
    for _ in 0..3 {
        assert_eq!(says(&mut story), (false, false), "{:?}", story.at);
        second(&mut story);
    }
    second(&mut story);
    assert_eq!(says(&mut story), (true, true));
}

#[test]
fn no_stragglers_is_said_only_where_the_ranks_tell_their_waits() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4).run("sft", &cpu_slots(&[("local", 0), ("local", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Start, &[]).wait_ms(100).stage(RunStage::Training, &[]);
    for rank in 0..2 {
        story.rank(rank, Event::RankStarted { pid: 7 + rank, t: HostTime(1) });
        story.rank(rank, Event::StepSeen { seen: SeenStep { step: 12, total: Some(90), loss: None } });
    }
    let screen = shown(&mut story, (80, 24));
    assert!(!screen.contains("no stragglers"), "{screen}");
    let mut known = training();
    for step in 121..400 {
        for rank in 0..4 {
            known.step(rank, step, 0.1, phases(0));
        }
        known.wait_ms(61);
    }
    let screen = shown(&mut known, (80, 24));
    assert!(screen.contains("no stragglers"), "{screen}");
}

/// The places of the ranks in the table, top first.
fn order(screen: &str) -> Vec<String> {
    let place = |line: &str| line.split_whitespace().find(|word| word.starts_with("gpu-")).map(str::to_owned);
    screen.lines().skip(3).take(12).filter_map(place).collect()
}

#[test]
fn the_rank_that_costs_the_most_comes_first_where_delay_is_the_order() {
    let mut story = many_ranks(4);
    // what is late in its data waits least; all steps are as long
    for step in 25..75u64 {
        for rank in 0..32 {
            story.step(rank, step, 0.1, phases(if rank == 21 { 3 } else { 0 }));
        }
        story.wait_ms(61);
    }
    press(&mut story, "ss");
    assert!(text(&story.model, COLOR).contains("most delay first"));
    press(&mut story, "g");
    let first = order(&shown(&mut story, (80, 24)));
    assert_eq!((first[0].as_str(), first[1].as_str()), ("gpu-003:5", "gpu-001:0"), "{first:?}");
    // grouped by host: the host of that rank first
    press(&mut story, "Z");
    let hosts: Vec<String> = rows(&story.model).iter().map(|row| format!("{row:?}")).collect();
    assert!(hosts[0].contains("gpu-003"), "{hosts:?}");
}

#[test]
fn slowest_first_stands_still_where_ranks_are_about_as_fast() {
    let mut story = many_ranks(4);
    press(&mut story, "s");
    assert!(text(&story.model, COLOR).contains("slowest first"));
    press(&mut story, "jjj");
    let before = order(&shown(&mut story, (80, 24)));
    let on = story.model.ui.run.ranks.on.clone();
    for step in 25..75u64 {
        for rank in 0..32 {
            // a percent up and down, and all of them slower and slower
            let noise = (u64::from(rank) * 7919 + step * 104_729) % 1_200 + step * 400;
            let mut times = phases(0);
            times[0] += noise as u32;
            story.step(rank, step, 0.1, times);
        }
        story.wait_ms(61);
        let now = text(&story.model, COLOR);
        assert_eq!(order(&now), before, "after step {step}:\n{now}");
        assert_eq!(story.model.ui.run.ranks.on, on);
    }
    // one that is slower by half is first, though nothing but a step came
    for step in 75..115u64 {
        for rank in 0..32 {
            let mut times = phases(0);
            times[0] += if rank == 9 { 80_000 } else { 30_000 };
            story.step(rank, step, 0.1, times);
        }
    }
    story.wait_ms(1000);
    key(&mut story, KeyCode::Home);
    assert_eq!(order(&text(&story.model, COLOR))[0], "gpu-002:1");
}

#[test]
fn the_log_follows_the_root_cause_unless_another_rank_was_chosen() {
    let broken = |chosen: bool| {
        let mut story = training();
        for rank in 0..2 {
            story.error_log(rank, "RuntimeError: boom");
        }
        story.exit(0, Some(1), None, false);
        if chosen {
            press(&mut story, "gjj");
            key(&mut story, KeyCode::Enter);
        }
        story.wait_ms(23);
        story.exit(1, Some(1), None, false);
        story.tell(
            hvtui::domain::event::Origin::Run(run_id()),
            Event::RunEnded { outcome: RunOutcome::failed(Rank(1), 1, "rank 1 failed first") },
        );
        story.wait_ms(1000);
        story
    };
    let mut story = broken(false);
    let screen = shown(&mut story, (80, 24));
    assert!(screen.contains("log   rank 1"), "{screen}");
    let mut story = broken(true);
    let screen = shown(&mut story, (80, 24));
    assert!(screen.contains("log   rank 2"), "{screen}");
}

#[test]
fn a_rank_that_had_only_lost_a_peer_is_named_once() {
    let mut story = training();
    story.error_log(0, "EOFError");
    story.wait_ms(5);
    story.exit(0, Some(1), None, false);
    story.wait_ms(500);
    story.exit(1, Some(3), None, false);
    let told = |story: &mut Story| {
        let screen = shown(story, (200, 50));
        assert!(screen.contains("ended before it, but had lost a peer"), "{screen}");
        screen
    };
    let screen = told(&mut story);
    assert!(!screen.contains("failed too") && !screen.contains("being stopped"), "{screen}");
    story.exit(2, Some(1), None, false);
    let screen = told(&mut story);
    assert!(screen.contains("; rank 2 failed too"), "{screen}");
}

/// A run whose log has lost its oldest lines.
fn flooded() -> Story {
    let mut story = training();
    for n in 0..12 {
        story.log(0, &format!("early {n}"));
    }
    for _ in 0..10_000 {
        for rank in 0..3 {
            story.log(rank, "the same again");
        }
    }
    story.wait_ms(1000);
    story
}

#[test]
fn counts_and_ends_of_a_log_that_has_lost_lines_do_not_look_final() {
    let mut story = flooded();
    let short = run_id().short().to_owned();
    for size in [(80, 24), (120, 40)] {
        let screen = shown(&mut story, size);
        assert!(screen.contains("+)") && !screen.contains("(×2000)"), "{screen}");
        assert!(line(&screen, "log   ").contains(&format!("older lines: hvtui logs {short}")), "{screen}");
    }
    press(&mut story, "/again");
    key(&mut story, KeyCode::Enter);
    let screen = shown(&mut story, (120, 40));
    assert!(screen.contains("/ again 1 of 1+"), "{screen}");
    key(&mut story, KeyCode::Esc);
    key(&mut story, KeyCode::Tab);
    press(&mut story, "e");
    key(&mut story, KeyCode::Home);
    key(&mut story, KeyCode::PageUp);
    let screen = shown(&mut story, (120, 40));
    let notice = format!("hvtui logs {short} has the older lines");
    assert!(screen.contains(&notice), "{screen}");
    // a log that is whole has no such words
    let mut story = training();
    for _ in 0..40 {
        story.log(1, "waits");
    }
    let screen = shown(&mut story, (120, 40));
    assert!(screen.contains("(×40)") && !screen.contains("older lines"), "{screen}");
}

#[test]
fn the_first_rows_of_a_log_can_be_reached_where_rows_take_several_lines() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4).run("sft", &cpu_slots(&[("local", 0), ("local", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Training, &[]);
    for n in 0..40 {
        for rank in 0..2 {
            story.log(rank, &format!("line number {n}."));
        }
    }
    story.send(Msg::Resize(80, 24));
    key(&mut story, KeyCode::Tab);
    key(&mut story, KeyCode::Home);
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("line number 0."), "{screen}");
    key(&mut story, KeyCode::Down);
    let screen = text(&story.model, COLOR);
    assert!(!screen.contains("line number 0."), "one key moves it:\n{screen}");
}

#[test]
fn in_a_replay_the_first_and_last_line_are_a_key_away_while_the_log_has_the_keys() {
    let mut story = training();
    for n in 0..80 {
        story.log(1, &format!("line number {n}."));
    }
    let (start, playhead) = (story.at.plus_micros(-9_000_000), story.at);
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Playback(PlaybackState { start, ..playback_state(playhead, playhead) }));
    story.send(Msg::Resize(80, 24));
    key(&mut story, KeyCode::Tab);
    let effects = story.send(Msg::Key(Key::char('g')));
    assert!(effects.is_empty(), "{effects:?}");
    assert!(text(&story.model, COLOR).contains("epoch 1 step 10 "), "{}", text(&story.model, COLOR));
    story.send(Msg::Key(Key::char('G')));
    assert!(text(&story.model, COLOR).contains("line number 79."), "{}", text(&story.model, COLOR));
    key(&mut story, KeyCode::Tab);
    assert_eq!(story.send(Msg::Key(Key::char('g'))).len(), 1, "the playhead");
}

#[test]
fn only_lines_of_standard_error_without_a_level_are_marked() {
    let mut story = training();
    story.error_log(0, "2026-11-25 00:51:00 INFO loader ready");
    story.error_log(0, " 45%|████▌     | 45/100 [00:10<00:12,  4.50it/s]");
    story.error_log(0, "plain words");
    story.error_log(0, "WARNING slow");
    let screen = shown(&mut story, (120, 40));
    let mark = |what: &str| {
        let row = screen.lines().rfind(|line| line.contains(what)).unwrap();
        row.chars().nth(15).unwrap()
    };
    assert_eq!(mark("loader ready"), ' ', "{screen}");
    assert_eq!(mark("45/100"), ' ', "{screen}");
    assert_eq!(mark("plain words"), 'e', "{screen}");
    assert_eq!(mark("WARNING slow"), 'W', "{screen}");
}

#[test]
fn lines_of_several_hosts_stand_in_the_order_in_which_they_were_printed() {
    let mut story = training();
    let now = story.at.0 - CLOCK_OFFSET;
    let mut print = |rank, ago_ms: Option<i64>, text: &str| {
        let t = ago_ms.map(|ago| HostTime((now - ago * 1000) as u64));
        let line = LogLine { stream: Stream::Stdout, t, ..error_line(rank, text) };
        story.rank(rank, Event::LogPrinted { line: Arc::new(line) });
    };
    print(0, Some(5), "the second line");
    print(2, Some(9), "the first line");
    print(3, Some(2), "the fifth line");
    print(2, Some(1), "the sixth line");
    // of one rank the order is known: it was printed before the next one, whenever it came
    print(1, None, "the third line");
    print(1, Some(3), "the fourth line");
    let screen = shown(&mut story, (120, 40));
    let at = |text: &str| {
        screen.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{screen}"))
    };
    let lines =
        ["first", "second", "third", "fourth", "fifth", "sixth"].map(|text| format!("the {text} line"));
    let places = lines.each_ref().map(|text| at(text));
    assert!(places.is_sorted(), "{places:?}\n{screen}");
    // and so they are copied
    let [Effect::Copy(copied)] = &story.send(Msg::Key(Key::char('y')))[..] else { panic!("a copy") };
    let places = lines.each_ref().map(|text| copied.find(text.as_str()));
    assert!(places[0].is_some() && places.is_sorted(), "{copied}");
}

#[test]
fn the_last_rows_of_the_log_are_those_that_were_printed_last() {
    let mut story = training();
    let now = story.at.0 - CLOCK_OFFSET;
    let mut print = |rank, ago_ms: i64, text: String| {
        let t = Some(HostTime((now - ago_ms * 1000) as u64));
        let line = LogLine { rank: Rank(rank), stream: Stream::Stdout, offset: 0, text, elided: 0, t };
        story.rank(rank, Event::LogPrinted { line: Arc::new(line) });
    };
    print(0, 1, "the last line".to_owned());
    // a screen of older ones that come later, of another host
    (0..200).for_each(|number| print(2, 1000 - number, format!("older line {number}")));
    let screen = shown(&mut story, (120, 40));
    let at = |text: &str| screen.lines().position(|line| line.contains(text));
    assert!(at("the last line") > at("older line 199") && at("older line 199").is_some(), "{screen}");
    let [Effect::Copy(copied)] = &story.send(Msg::Key(Key::char('y')))[..] else { panic!("a copy") };
    assert!(copied.trim_end().ends_with("the last line"), "{copied}");
}

#[test]
fn a_line_that_came_last_but_was_printed_long_before_is_shown_once_it_is_found() {
    let mut story = training();
    let now = story.at.0 - CLOCK_OFFSET;
    let mut print = |rank, ago_ms: i64, text: String| {
        let t = Some(HostTime((now - ago_ms * 1000) as u64));
        let line = LogLine { rank: Rank(rank), stream: Stream::Stdout, offset: 0, text, elided: 0, t };
        story.rank(rank, Event::LogPrinted { line: Arc::new(line) });
    };
    (0..200).for_each(|number| print(0, 200 - number, format!("later line {number}")));
    print(2, 1000, "an early word".to_owned());
    let screen = shown(&mut story, (120, 40));
    assert!(screen.contains("later line 199") && !screen.contains("an early word"), "{screen}");
    press(&mut story, "/early");
    key(&mut story, KeyCode::Enter);
    let screen = shown(&mut story, (120, 40));
    assert!(screen.contains("an early word"), "{screen}");
}

#[test]
fn hidden_ranks_cover_no_head_of_a_column() {
    let mut story = many_ranks(2);
    for size in [(80, 24), (120, 40)] {
        let screen = shown(&mut story, size);
        let head = line(&screen, "RANK");
        assert!(head.contains("UTIL") && !head.contains('↓'), "{screen}");
        let below = line(&screen, "log   ");
        assert!(below.contains("ranks: ↓ "), "{screen}");
    }
    // a longer head of the log ends before it, and that it is cut is seen
    press(&mut story, "/words-that-no-rank-prints");
    key(&mut story, KeyCode::Enter);
    let screen = shown(&mut story, (60, 15));
    let below = line(&screen, "log   ");
    assert!(below.contains("· / words") && below.contains("… ─ ranks: ↓ "), "{screen}");
}

#[test]
fn alerts_of_gpus_that_the_run_does_not_have_are_not_its_own() {
    let mut story = training();
    let rules = AlertRules { held_idle_us: Some(30_000_000), ..AlertRules::default() };
    story.model.world.alerts.rules = Arc::new(rules);
    let held = Gpu { util: 0, mem: 96, user: Some(("wang", "python -m ipykernel_launcher")), throttle: &[] };
    for _ in 0..75 {
        story.wait_ms(1000);
        story.sample("gpu-a", 40.0, &[held, FREE, busy(90, "li"), held]);
    }
    let screen = shown(&mut story, (200, 50));
    assert!(!screen.contains("gpu-a:0 held") && !line(&screen, "┬ events").contains(" 2 active"), "{screen}");
    assert!(screen.contains("gpu-a:3"), "{screen}");
    let on_cluster = story.model.world.alerts.active().filter(|alert| alert.place.gpu == Some(0)).count();
    assert_eq!(on_cluster, 1);
    let _ = uuid("gpu-a", 0);
}

#[test]
fn footers_offer_what_can_be_done() {
    let footer = |story: &Story| text(&story.model, COLOR).lines().last().unwrap_or_default().to_owned();
    let mut story = training();
    shown(&mut story, (200, 50));
    assert!(footer(&story).contains("x stop  S stacks  d leave"), "{}", footer(&story));
    let mut story = failed();
    shown(&mut story, (200, 50));
    let ended = footer(&story);
    assert!(!ended.contains("stop") && !ended.contains("stacks") && !ended.contains("detach"), "{ended}");
    assert!(ended.contains("d leave") && ended.contains("p replay  a again"), "{ended}");
    assert!(!ended.contains("F follow"), "{ended}");
    shown(&mut story, (80, 24));
    assert!(footer(&story).contains("d leave  p replay  a again"), "{}", footer(&story));
    press(&mut story, "F");
    assert!(text(&story.model, COLOR).contains("the log shows its last line"));
    key(&mut story, KeyCode::Tab);
    press(&mut story, "k");
    shown(&mut story, (200, 50));
    assert!(footer(&story).contains("F follow"), "it leads back: {}", footer(&story));
    press(&mut story, "F");
    assert_eq!(story.model.ui.run.log_at, LogAt::Follow);
    press(&mut story, "x");
    assert!(text(&story.model, COLOR).contains("this run has ended"));
    let mut story = Story::new(&["local"]);
    press(&mut story, "r");
    story.send(Msg::RunsListed(Vec::new()));
    let screen = text(&story.model, COLOR);
    assert!(screen.contains("launch with L"), "{screen}");
    let empty = footer(&story);
    assert!(!empty.contains("delete") && !empty.contains("open") && !empty.contains("again"), "{empty}");
    press(&mut story, "D");
    let screen = text(&story.model, COLOR);
    assert_eq!(screen.lines().filter(|line| line.contains("no run yet")).count(), 2, "{screen}");
}

#[test]
fn the_step_of_an_ended_run_is_the_last_one_of_any_rank() {
    let mut story = training();
    for step in 121..=130 {
        story.step(2, step, 0.1, phases(0));
    }
    press(&mut story, "r");
    let screen = shown(&mut story, (200, 50));
    assert!(line(&screen, "mnist").contains(" 120 "), "all have finished it:\n{screen}");
    story.end(1, Some(3), "rank 3 failed");
    let screen = shown(&mut story, (200, 50));
    assert!(line(&screen, "mnist").contains(" 130 "), "as its recording says:\n{screen}");
}

/// A run whose program one host lacks.
fn absent() -> Story {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2).run("sft", &gpu_slots(&[("gpu-a", 0), ("gpu-a", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Connect, &[]).wait_ms(200).stage(RunStage::Prepare, &[]).wait_ms(800);
    story.stage(RunStage::Stopping, &[]).stage(RunStage::Ended, &[]);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/conda/bin:/opt/slurm/bin";
    let why = format!("gpu-a: command 'pyhton' not found on gpu-a (PATH={path})");
    let outcome = RunOutcome::refused(RefusalClass::Command, why);
    story.tell(hvtui::domain::event::Origin::Run(run_id()), Event::RunEnded { outcome });
    story.wait_ms(5000);
    story
}

#[test]
fn a_start_that_failed_says_why_in_one_line_and_all_of_it_below() {
    let mut story = absent();
    let screen = shown(&mut story, (120, 40));
    let verdict = line(&screen, "ended with exit code 127");
    assert!(verdict.ends_with("command 'pyhton' not found on gpu-a"), "{screen}");
    assert!(screen.contains("PATH=/usr/local/sbin:"), "{screen}");
    assert!(line(&screen, "sft").contains("failed 1.0 s"), "{screen}");
}

#[test]
fn the_load_of_a_host_s_processors_is_called_so() {
    let mut story = Story::new(&["local"]);
    story.cpu_host("local", 4).run("sft", &cpu_slots(&[("local", 0), ("local", 1)]));
    story.model.ui.screen = Screen::Run;
    story.stage(RunStage::Training, &[]);
    let screen = shown(&mut story, (80, 24));
    assert!(screen.contains("HOST CPU") && !screen.contains("UTIL"), "{screen}");
    let screen = shown(&mut training(), (80, 24));
    assert!(screen.contains("UTIL") && !screen.contains("HOST CPU"), "{screen}");
}

#[test]
fn what_is_old_is_dim() {
    let mut story = hanging();
    story.send(Msg::Resize(200, 50));
    let mut buf = Buffer::empty(Rect::new(0, 0, 200, 50));
    draw(&story.model, COLOR, &mut buf);
    let dim = buf[(2u16, 3u16)].style();
    let mut found = false;
    for row in buf.content.chunks(200) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        if let Some(at) = line.find("gpu-a:2").and(line.find("last 5")) {
            let column = line[..at].chars().count();
            found = true;
            assert_eq!(row[column].style().fg, dim.fg, "{line}");
        }
    }
    assert!(found);
}

/// The row of a rank.
fn row(screen: &str, place: &str) -> String {
    let is_row = |line: &&str| line.split_whitespace().any(|word| word == place);
    screen.lines().find(is_row).unwrap_or_default().to_owned()
}

/// The colour of words in the line that has `what` as a word.
fn color_of(story: &Story, (w, h): (u16, u16), what: &str, words: &str) -> ratatui::style::Color {
    let mut buf = Buffer::empty(Rect::new(0, 0, w, h));
    draw(&story.model, COLOR, &mut buf);
    for row in buf.content.chunks(w.into()) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        if let (true, Some(at)) = (line.split_whitespace().any(|word| word == what), line.find(words)) {
            return row[line[..at].chars().count()].fg;
        }
    }
    panic!("no {words} beside {what} in\n{}", text(&story.model, COLOR));
}

#[test]
fn a_run_is_not_called_training_while_a_host_is_silent() {
    let mut story = training();
    story.wait_ms(4_000);
    for size in [(80, 24), (200, 50)] {
        let screen = shown(&mut story, size);
        let title = line(&screen, "Run ");
        assert!(title.contains("silent for 4 s") && !title.contains("training"), "{screen}");
        assert!(!title.contains("eta") && !title.contains("samples/s"), "{screen}");
        assert!(screen.contains("have been silent for 4 s"), "{screen}");
        let rank = row(&screen, "gpu-b:1");
        assert!(rank.contains("4 s old") && rank.contains("74 %"), "the last value:\n{screen}");
        let dim = color_of(&story, size, "RANK", "PLACE");
        assert_eq!(color_of(&story, size, "gpu-b:1", "74 %"), dim);
        press(&mut story, "r");
        let runs = shown(&mut story, size);
        assert!(line(&runs, "mnist").contains("▲ silent 4 s"), "{runs}");
        press(&mut story, "2");
    }
    // its clock goes on, and tells what of it was seen
    let clock = |story: &mut Story| line(&shown(story, (200, 50)), "● training");
    let before = clock(&mut story);
    assert!(before.contains("● training 11 s, 7 s of it seen"), "{before}");
    story.wait_ms(1_000);
    assert!(clock(&mut story).contains("● training 12 s, 7 s of it seen"), "{}", clock(&mut story));
}

#[test]
fn a_stop_that_waits_for_a_silent_host_says_so_and_its_clock_goes_on() {
    let mut story = training();
    story.wait_ms(4_000);
    story.stage(RunStage::Stopping, &["rank 2 on gpu-b:0", "gpu-b (link down: reset)"]);
    story.wait_ms(16_000);
    for size in [(80, 24), (200, 50)] {
        let screen = shown(&mut story, size);
        let waits = "stopping: waiting for rank 2 on gpu-b:0, gpu-b (link down: reset) · 16 s";
        assert!(screen.contains(waits) && !screen.contains("have been silent"), "{screen}");
        assert!(screen.contains("● stopping 16 s"), "{screen}");
    }
    press(&mut story, "x");
    let again = shown(&mut story, (80, 24));
    assert!(again.contains("is already stopping. Kill it?") && again.contains("kill now"), "{again}");
    assert!(!again.contains(" y stop "), "{again}");
}

#[test]
fn an_own_stop_is_grey_in_each_column() {
    let mut story = training();
    story.stage(RunStage::Stopping, &[]);
    for rank in 0..4 {
        story.exit(rank, None, Some(9), true);
    }
    let outcome = RunOutcome::new(RunEnd::Stopped, "stopped by li");
    story.tell(hvtui::domain::event::Origin::Run(run_id()), Event::RunEnded { outcome });
    let size = (200, 50);
    shown(&mut story, size);
    let dim = color_of(&story, size, "RANK", "PLACE");
    for place in ["gpu-a:2", "gpu-a:3", "gpu-b:0", "gpu-b:1"] {
        assert_eq!(color_of(&story, size, place, "killed by"), dim);
    }
}

#[test]
fn ranks_that_are_over_keep_the_last_values_of_their_gpus_and_those_that_never_ran_have_none() {
    let mut story = failed();
    // what the GPU does afterwards is of no rank
    story.sample("gpu-b", 38.0, &[busy(12, "wang"), busy(13, "wang"), FREE, FREE]);
    for size in [(80, 24), (200, 50)] {
        let screen = shown(&mut story, size);
        assert!(row(&screen, "gpu-b:1").contains("74 %"), "{screen}");
        let dim = color_of(&story, size, "RANK", "PLACE");
        assert_eq!(color_of(&story, size, "gpu-b:1", "74 %"), dim);
    }
    let mut story = absent();
    story.sample("gpu-a", 38.0, &[busy(12, "wang"), busy(13, "wang")]);
    let screen = shown(&mut story, (120, 40));
    assert!(!row(&screen, "gpu-a:1").contains('%'), "{screen}");
}

#[test]
fn the_straggler_has_a_lane_where_not_all_ranks_have_one() {
    let mut story = training();
    story.model.settings.timeline = true;
    for words in ["the disk is full", "the link to gpu-a was lost"] {
        story.model.notice(Level::Warning, words);
    }
    let screen = shown(&mut story, (80, 24));
    assert!(screen.contains("rank 3 (gpu-b:1) is a straggler"), "{screen}");
    let lanes: Vec<&str> = screen.lines().filter(|line| line.starts_with(" rank ")).skip(1).collect();
    let lanes: Vec<&str> = lanes.iter().map(|line| &line[..8]).collect();
    assert_eq!(lanes, [" rank 0 ", " rank 1 ", " rank 3!"], "{screen}");
    assert!(line(&screen, "timeline").contains("   ↓ 1 more rank "), "{screen}");
    let all = shown(&mut story, (80, 40));
    assert!(all.contains("\n rank 2 ") && !line(&all, "timeline").contains("more rank"), "{all}");
}

#[test]
fn a_replay_has_no_lanes_of_ranks_that_never_ran() {
    let mut story = absent();
    let (start, end) = (story.at.plus_micros(-6_000_000), story.at);
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Playback(PlaybackState { start, ..playback_state(end, end) }));
    let screen = shown(&mut story, (120, 40));
    assert!(!screen.contains("timeline") && !screen.contains("rank 0"), "{screen}");
    assert_eq!(screen.lines().filter(|line| line.contains("gpu-a:1")).count(), 1, "its row:\n{screen}");
}

#[test]
fn the_row_of_a_host_names_its_ranks() {
    let mut story = many_ranks(12);
    let screen = shown(&mut story, (120, 40));
    let row = line(&screen, "gpu-011");
    assert!(row.contains("▸80-87") && row.contains("8 training"), "{screen}");
    assert_eq!(row.matches(" 8 ").count(), 1, "{row}");
}

/// No rank leaves an allreduce before the last one comes to it.
#[test]
fn lanes_say_so_where_the_steps_show_two_clocks_to_be_apart() {
    let mut story = training();
    press(&mut story, "t");
    let screen = shown(&mut story, (120, 40));
    assert!(line(&screen, "─ timeline").contains("clock ±0.32 ms"), "{screen}");
    story.clock("gpu-b", 40_000);
    for step in 121..130u64 {
        story.wait_ms(60);
        for rank in 0..4 {
            story.step(rank, step, 0.2, phases(rank));
        }
    }
    for size in [(80, 24), (120, 40)] {
        let screen = shown(&mut story, size);
        assert!(line(&screen, "─ timeline").contains("clocks ≥ 34 ms apart"), "{screen}");
    }
}
