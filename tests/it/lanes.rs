//! The lanes of the timeline: they follow the table of ranks, however many there are, and say what they show.

use std::sync::Arc;

use crate::common::world::{
    CLOCK_OFFSET, FREE, Gpu, START, Story, gpu_slots, many_ranks, phases, playback_state, press, training,
};
use crate::screens::{COLOR, shoot, text};
use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::host::LinkState;
use hvtui::domain::ids::Rank;
use hvtui::domain::nccl_timing::{CollectiveTiming, CommId};
use hvtui::domain::phase_window::{PhasePart, PhaseWindow};
use hvtui::domain::playback::PlaybackState;
use hvtui::domain::run::RunStage;
use hvtui::domain::standstill::StalledPhase;
use hvtui::domain::time::{HostTime, Stamp};
use hvtui::domain::timing::Phase;
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Effect, Key, KeyCode, Msg, Screen};
use hvtui::tui::screens::run::lanes::lane_columns;
use hvtui::tui::screens::run::timeline;

fn shown(story: &mut Story, size: (u16, u16)) -> String {
    story.send(Msg::Resize(size.0, size.1));
    text(&story.model, COLOR)
}

/// What stands below the ruler of the timeline, up to the next rule.
fn lanes(screen: &str) -> Vec<String> {
    let below = screen.lines().skip_while(|line| !line.starts_with("─ timeline")).skip(1);
    below.take_while(|line| !line.starts_with('─')).map(str::to_owned).collect()
}

/// The names of the lanes, and the words on the ruler.
fn names(story: &mut Story, size: (u16, u16)) -> (Vec<String>, String) {
    let screen = shown(story, size);
    let name = |line: String| line.chars().take(16).collect::<String>().trim().to_owned();
    let ruler = screen.lines().find(|line| line.starts_with("─ timeline")).unwrap_or_default();
    (lanes(&screen).into_iter().map(name).collect(), ruler.to_owned())
}

fn starts(names: &[String], with: &str) -> bool {
    names.iter().any(|name| name.starts_with(with))
}

/// 512 ranks on 64 hosts; rank 77 has been late for long enough to be named.
fn late() -> Story {
    let mut story = many_ranks(64);
    for step in 25..=90 {
        story.quiet = true;
        for rank in 0..512 {
            story.step(rank, step, 2.0 / step as f32, phases(if rank == 77 { 3 } else { 0 }));
        }
        story.quiet = false;
        story.wait_ms(61);
    }
    press(&mut story, "t");
    story
}

#[test]
fn lanes_follow_the_table_and_a_folded_host_has_one() {
    for size in [(80, 24), (200, 50)] {
        let mut story = late();
        // the worst host first, by its worst rank
        let (lanes, ruler) = names(&mut story, size);
        assert!(lanes[0].starts_with("gpu-010 ▸ 77!"), "{lanes:?}");
        assert!(lanes[1].starts_with("gpu-001 ▸ 0"), "{lanes:?}");
        assert!(ruler.contains("more hosts"), "{ruler}");
        // its slot is shown rather than another one's
        assert!(starts(&lanes, "gpu-010:5"), "{lanes:?}");
        // unfolded: its ranks, the worst first
        press(&mut story, "gz");
        let (lanes, ruler) = names(&mut story, size);
        assert!(lanes[0].starts_with("rank 77!") && lanes[1].starts_with("rank 72"), "{lanes:?}");
        assert!(!starts(&lanes, "gpu-010 "), "{lanes:?}");
        assert!(ruler.contains(if size.1 > 40 { "more hosts" } else { "more lanes" }), "{ruler}");
        // by number, far below: the selected one and the one to look at
        press(&mut story, "gzs");
        story.send(Msg::Key(Key::plain(KeyCode::End)));
        let (lanes, ruler) = names(&mut story, size);
        assert!(starts(&lanes, "gpu-064 ▸ 504") && starts(&lanes, "gpu-010 ▸ 77!"), "{lanes:?}");
        assert!(ruler.contains("↑ "), "{ruler}");
        // all ranks, by number: likewise
        press(&mut story, "Zg");
        let (lanes, _) = names(&mut story, size);
        assert!(lanes[0].starts_with("rank 0") && starts(&lanes, "rank 77!"), "{lanes:?}");
        press(&mut story, "s");
        assert!(starts(&names(&mut story, size).0, "rank 77!"));
    }
    shoot("lanes-many", late(), &[(80, 24), (200, 50)], COLOR);
}

#[test]
fn the_lanes_of_four_ranks_are_sorted_as_their_rows() {
    let mut story = training();
    press(&mut story, "t");
    let ranks = |story: &mut Story| {
        let (lanes, _) = names(story, (120, 40));
        lanes
            .into_iter()
            .filter(|name| name.starts_with("rank"))
            .map(|name| name[..7].trim().to_owned())
            .collect()
    };
    let before: Vec<String> = ranks(&mut story);
    assert_eq!(before, ["rank 0", "rank 1", "rank 2", "rank 3!"]);
    press(&mut story, "sss");
    let worst: Vec<String> = ranks(&mut story);
    assert_eq!(worst, ["rank 3!", "rank 0", "rank 1", "rank 2"]);
}

fn line<'a>(lanes: &'a [String], name: &str) -> &'a str {
    lanes.iter().find(|line| line.trim_start().starts_with(name)).map_or("", |line| line.trim_end())
}

#[test]
fn a_lane_of_a_slot_says_what_it_is_at_the_playhead() {
    let mut story = training();
    press(&mut story, "t");
    let narrow = lanes(&shown(&mut story, (80, 24)));
    assert!(line(&narrow, "gpu-a:2").ends_with("▇  97%"), "{narrow:?}");
    let screen = shown(&mut story, (120, 40));
    assert!(screen.contains(" util 0–100 % ─"), "{screen}");
    let wide = lanes(&screen);
    assert!(line(&wide, "gpu-a:2").ends_with("▇  97%  11G  678W"), "{wide:?}");
    assert!(line(&wide, "gpu-b:1").ends_with("▆  74%  11G  535W"), "{wide:?}");
    assert!(!starts(&wide, "   mem"), "{wide:?}");
    // on a tall terminal each GPU's memory is below it
    let tall = lanes(&shown(&mut story, (200, 50)));
    let places: Vec<&str> =
        tall.iter().map(|line| line[..11].trim()).filter(|name| !name.starts_with("rank")).collect();
    assert_eq!(places[..4], ["gpu-a:2", "mem 141G", "gpu-a:3", "mem 141G"], "{tall:?}");
    assert!(line(&tall, "mem").contains("▁▁▁ ") && line(&tall, "mem").ends_with(" 11G"), "{tall:?}");
    // what is not known is blank: a GPU that tells nothing, then a host that is lost
    let unknown = |sample: &mut hvtui::domain::gpu::GpuSample| {
        sample.power_mw = hvtui::domain::gpu::Reading::Unsupported;
        sample.memory_used = hvtui::domain::gpu::Reading::Unsupported;
    };
    story.faults.insert("gpu-a", vec![(2, unknown)]);
    let gpu = Gpu { util: 97, mem: 11, user: None, throttle: &[] };
    story.sample("gpu-a", 40.0, &[FREE, FREE, gpu, gpu]);
    let wide = lanes(&shown(&mut story, (120, 40)));
    assert!(line(&wide, "gpu-a:2").ends_with("▇  97%"), "{wide:?}");
    story.wait_ms(9_000);
    for rank in 0..4 {
        story.step(rank, 121, 0.1, phases(rank));
    }
    let wide = lanes(&shown(&mut story, (120, 40)));
    assert_eq!(line(&wide, "gpu-a:2"), " gpu-a:2", "{wide:?}");
}

const PLAIN: Caps = Caps { color: ColorDepth::None, ascii: false };

/// The lane of this name, without the name.
fn lane(story: &Story, name: &str) -> String {
    let (x, w) = lane_columns(&story.model, story.model.shown_run().unwrap().1);
    let screen = text(&story.model, PLAIN);
    let line =
        lanes(&screen).into_iter().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    line.chars().skip(x.into()).take(w.into()).collect()
}

#[test]
fn where_nothing_is_held_a_lane_is_neither_idle_nor_blank() {
    let mut story = training();
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Resize(120, 40));
    let (known, end) = (story.at, story.at.plus_micros(10_000_000));
    // the recording goes on, and nothing of that is read; the window goes on behind its end
    let state = playback_state(known, end);
    story.model.ui.run.window = Some(2 * end.micros_since(START));
    story.send(Msg::Playback(state.clone()));
    let shown = lane(&story, "rank 0");
    let column = |at: Stamp| {
        let (from, to) = timeline(&story.model);
        shown.chars().count() as i64 * at.micros_since(from) / to.micros_since(from)
    };
    let glyphs: Vec<char> = shown.chars().collect();
    let (read, over) = (column(known) as usize, column(end) as usize);
    assert!(glyphs[read - 3..read].iter().all(|glyph| "dfbwxo".contains(*glyph)), "{shown}");
    assert!(glyphs[read + 2..over].iter().all(|glyph| *glyph == '╌'), "{shown}");
    assert!(glyphs[over + 1..].iter().all(|glyph| *glyph == '·'), "{shown}");
    // before the first step it is known that there is none
    assert_eq!(glyphs[0], '·', "{shown}");
    // a part of the recording that is damaged
    let lost = vec![(known.plus_micros(-4_000_000), known.plus_micros(-2_000_000))];
    let mut idle = training();
    idle.wait_ms(6_000);
    idle.model.ui.screen = Screen::Replay;
    idle.model.ui.replay.open = true;
    idle.send(Msg::Resize(120, 40));
    let known = idle.at;
    let lost_idle = vec![(known.plus_micros(-4_000_000), known.plus_micros(-2_000_000))];
    idle.send(Msg::Playback(PlaybackState { end: known, playhead: known, lost: lost_idle, ..state }));
    let shown = lane(&idle, "rank 0");
    assert!(shown.contains("·╌") && shown.contains("╌·"), "{shown} {lost:?}");
}

#[test]
fn a_rank_that_stands_has_its_open_phase_in_its_lane_for_as_long_as_that_is_known() {
    let mut story = training();
    press(&mut story, "t");
    story.send(Msg::Resize(120, 40));
    story.model.ui.run.window = Some(40_000_000);
    for rank in 0..4 {
        let phase = if rank == 3 { Phase::Data } else { Phase::Wait };
        let standing = StalledPhase { phase, step: 121, for_us: 0, stopped: false, at: None };
        story.rank(rank, Event::RankStands { standing });
    }
    let seconds = |story: &mut Story, hosts: &[&str]| {
        for _ in 0..20 {
            story.wait_ms(1_000);
            for host in hosts {
                story.sample(host, 40.0, &[FREE; 4]);
            }
        }
    };
    let second_half = |story: &Story, name| {
        let shown = lane(story, name);
        let half = shown.chars().count() / 2 + 1;
        shown.chars().skip(half).collect::<String>()
    };
    let is_all = |lane: &str, glyph: char| lane.len() > 20 && lane.chars().all(|own| own == glyph);
    seconds(&mut story, &["gpu-a", "gpu-b"]);
    assert_eq!(timeline(&story.model).1, story.at, "the lanes go on though no step comes");
    let (waits, reads) = (second_half(&story, "rank 0"), second_half(&story, "rank 3"));
    assert!(is_all(&waits, 'w') && is_all(&reads, 'd'), "{waits}\n{reads}");
    // of a host that is lost it is not known any longer
    story.link("gpu-b", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    seconds(&mut story, &["gpu-a"]);
    let (waits, reads) = (second_half(&story, "rank 0"), second_half(&story, "rank 3"));
    assert!(is_all(&waits, 'w') && !reads.contains('d'), "{waits}\n{reads}");
    // where all of them are lost, the lanes stand
    let lost = story.at;
    story.link("gpu-a", LinkState::Down { reason: "gone".to_owned(), retry_at: None });
    story.wait_ms(5_000);
    assert!(timeline(&story.model).1 <= lost, "{:?}", timeline(&story.model));
    // up to its end, and no further
    let ended = story.at;
    for rank in 0..4 {
        story.exit(rank, None, Some(15), true);
    }
    story.wait_ms(5_000);
    assert_eq!(timeline(&story.model).1, ended);
    assert!(is_all(&second_half(&story, "rank 0"), 'w'));
}

#[test]
fn the_time_before_the_steps_in_memory_is_shown_whole_for_512_ranks() {
    let mut story = many_ranks(64);
    for step in 25..=200 {
        story.quiet = true;
        for rank in 0..512 {
            story.step(rank, step, 2.0 / step as f32, phases(if rank == 77 { 3 } else { 0 }));
        }
        story.quiet = false;
        story.wait_ms(61);
    }
    press(&mut story, "t");
    story.send(Msg::Resize(200, 50));
    let (_, run) = story.model.shown_run().unwrap();
    let one = run.trainers().next().unwrap();
    assert!(one.state.step_count > one.state.steps.len() as u64, "some steps are no longer held");
    press(&mut story, "f");
    let shown = lane(&story, "gpu-001");
    let trained = shown.trim_start_matches('·');
    let glyphs = trained.trim_end_matches('·');
    assert!(glyphs.len() > 100 && glyphs.chars().all(|glyph| "dfbwxo".contains(glyph)), "{shown}");
}

/// The times below the lanes, each with its column.
fn ruler(story: &mut Story, size: (u16, u16)) -> Vec<(usize, String)> {
    let screen = shown(story, size);
    let row =
        lanes(&screen).into_iter().find(|line| line.contains('╵')).unwrap_or_else(|| panic!("{screen}"));
    let columns: Vec<char> = row.chars().collect();
    let ticks = columns.iter().enumerate().filter(|(_, c)| **c == '╵').map(|(at, _)| at);
    let time =
        |at: usize| columns[at + 1..].iter().take_while(|c| !c.is_whitespace() && **c != '╵').collect();
    ticks.map(|at| (at, time(at))).collect()
}

#[test]
fn times_stand_below_the_lanes_at_every_zoom() {
    for size in [(80, 40), (200, 50)] {
        let mut story = training();
        press(&mut story, "t");
        let mut forms = std::collections::BTreeSet::new();
        for zoom in ["", "-", "-", "-", "-", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+", "+"] {
            press(&mut story, zoom);
            let ticks = ruler(&mut story, size);
            assert!(ticks.len() >= 2, "{zoom}: {ticks:?}");
            // as far from each other as the times say, to a column
            let apart: Vec<usize> = ticks.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
            let (least, most) = (apart.iter().min().unwrap(), apart.iter().max().unwrap());
            assert!(most - least <= 1, "{ticks:?}");
            forms.insert(ticks[0].1.len());
            let (_, w) = {
                let (_, run) = story.model.shown_run().unwrap();
                lane_columns(&story.model, run)
            };
            let (from, to) = timeline(&story.model);
            assert!(to > from && usize::from(w) > apart[0]);
        }
        assert!(forms.len() >= 2, "parts of a second, and whole ones: {forms:?}");
    }
}

/// A run on these GPUs for so many seconds, with a step each; `stall` says which rank takes how much longer in one.
fn seconds(gpus: &[(&'static str, u32)], seconds: u64, stall: impl Fn(u64) -> Option<(u32, u32)>) -> Story {
    let ranks = gpus.len() as u32;
    let mut story = Story::new(&["gpu-a", "gpu-b"]);
    story.gpu_host("gpu-a", 2).gpu_host("gpu-b", 2);
    story.run("mnist", &gpu_slots(gpus));
    story.stage(RunStage::Training, &[]);
    story.model.ui.screen = Screen::Run;
    for rank in 0..ranks {
        story.rank(rank, Event::RankStarted { pid: 4000 + rank, t: HostTime(1) });
    }
    for second in 1..=seconds {
        story.quiet = true;
        let (who, longer) = stall(second).unwrap_or((0, 0));
        for rank in 0..ranks {
            let (own, waits) = if rank == who { (longer, 0) } else { (0, longer) };
            story.step(rank, second, 1.0, [4_900, 14_200, 22_900 + own, 1_000 + waits, 5_400, 2_500]);
        }
        let gpu = |mem| Gpu { util: 60, mem, user: None, throttle: &[] };
        story.sample("gpu-a", 40.0, &[gpu(if second < seconds / 2 { 20 } else { 120 }), gpu(20)]);
        story.sample("gpu-b", 40.0, &[gpu(20), gpu(20)]);
        story.quiet = false;
        story.wait_ms(1_000);
    }
    press(&mut story, "t");
    story
}

const FOUR: [(&str, u32); 4] = [("gpu-a", 0), ("gpu-a", 1), ("gpu-b", 0), ("gpu-b", 1)];

#[test]
fn memories_hosts_and_networks_have_their_lanes_from_the_start_of_the_run() {
    // samples of five minutes are kept whole
    let mut story = seconds(&[("gpu-a", 0), ("gpu-b", 0)], 1_500, |_| None);
    story.send(Msg::Resize(200, 60));
    press(&mut story, "f");
    let of = |name: &str| lane(&story, name);
    for name in
        ["gpu-a:0", "mem 141G", "gpu-a cpu", "gpu-a mem", "gpu-a rx 12K", "gpu-a tx 46M", "gpu-b tx 46M"]
    {
        let shown = of(name);
        let (from, to) = (shown.len() / 20, shown.chars().count() * 19 / 20);
        let known = shown.chars().take(to).skip(from);
        let screen = text(&story.model, PLAIN);
        assert!(to > 100 && known.clone().all(|glyph| glyph != ' '), "{name}: {shown}\n{screen}");
    }
    let memory: Vec<char> = of("mem 141G").chars().collect();
    assert!(memory[40] < memory[120], "it grew: {memory:?}");
    shoot("lanes-whole-run", story, &[(200, 60)], COLOR);
}

#[test]
fn a_stall_stands_in_the_lane_of_the_rank_that_stalled_at_any_zoom() {
    let stall = |second: u64| (second == 200).then_some((2, 60_000));
    for length in [400, 3_000] {
        let mut story = seconds(&FOUR, length, stall);
        let (_, run) = story.model.shown_run().unwrap();
        let held = run.trainers().all(|one| one.state.step_count == one.state.steps.len() as u64);
        assert_eq!(held, length < 500, "some steps are no longer held");
        story.send(Msg::Resize(120, 40));
        press(&mut story, "f");
        let stalls = |rank: u32| lane(&story, &format!("rank {rank}")).matches('↑').count();
        let told = [0, 1, 2, 3].map(stalls);
        // what is kept of that time may lie in two columns
        assert!(told == [0, 0, 1, 0] || told == [0, 0, 2, 0], "{told:?} {}", text(&story.model, PLAIN));
    }
    let mut story = seconds(&FOUR, 400, stall);
    story.send(Msg::Resize(120, 40));
    press(&mut story, "f");
    shoot("lanes-stall", story, &[(80, 24), (120, 40)], COLOR);
}

#[test]
fn a_lane_that_is_zoomed_out_has_all_phases_in_their_shares() {
    for length in [400, 3_000] {
        let mut story = seconds(&FOUR, length, |_| None);
        story.send(Msg::Resize(200, 50));
        press(&mut story, "f");
        let shown = lane(&story, "rank 0");
        let all = shown.chars().filter(|glyph| "dfbwxo".contains(*glyph)).count() as f64;
        assert!(all > 100.0, "{shown}");
        for (letter, us) in "dfbwxo".chars().zip([4_900.0, 14_200.0, 22_900.0, 1_000.0, 5_400.0, 2_500.0]) {
            let share = shown.matches(letter).count() as f64 / all;
            assert!((share - us / 50_900.0).abs() < 0.03, "{letter}: {share} {shown}");
        }
        // the same in each lane: where they differ, the ranks do
        assert_eq!(shown, lane(&story, "rank 3"));
    }
}

#[test]
fn a_part_that_a_replay_has_read_is_drawn_closely() {
    let stall = |second: u64| (second == 1_450).then_some((2, 60_000));
    let mut story = seconds(&FOUR, 3_000, stall);
    story.model.ui.screen = Screen::Replay;
    story.model.ui.replay.open = true;
    story.send(Msg::Resize(120, 40));
    story.model.ui.run.window = Some(240_000_000);
    let state = playback_state(START.plus_micros(1_500_000_000), story.at);
    story.send(Msg::Playback(state.clone()));
    let stalls = |story: &Story| lane(story, "rank 2").matches('↑').count();
    assert!(stalls(&story) > 3, "what is kept of the whole run: {}", lane(&story, "rank 2"));
    let (from, to) = timeline(&story.model);
    let mut read = PhaseWindow::new(PhasePart::new(from, to, 4).unwrap());
    story.told.iter().for_each(|envelope| read.take(envelope));
    story.send(Msg::PhaseWindow(Arc::new(read)));
    assert!((1..=2).contains(&stalls(&story)), "{}", lane(&story, "rank 2"));
    // what was told later of a time in which no client followed the run is not in what was read of it
    let unattended = vec![(from, to)];
    story.send(Msg::Playback(PlaybackState { unattended, ..state }));
    assert!(stalls(&story) > 3, "{}", lane(&story, "rank 2"));
}

#[test]
fn what_is_no_longer_held_of_a_run_that_goes_on_is_read_and_drawn_closely() {
    let stall = |second: u64| (second == 3_440).then_some((2, 60_000));
    let mut story = seconds(&FOUR, 4_000, stall);
    story.send(Msg::Resize(120, 40));
    story.model.ui.run.window = Some(600_000_000);
    let of = |effect| if let Effect::ReadClosely(run, part) = effect { Some((run, part)) } else { None };
    let asked = |story: &mut Story, later_us: i64| {
        let now = story.at.plus_micros(later_us);
        story.send(Msg::Tick(now)).into_iter().find_map(of)
    };
    let stalls = |story: &Story| lane(story, "rank 2").matches('↑').count();
    assert!(stalls(&story) > 3, "what is kept of the whole run: {}", lane(&story, "rank 2"));
    let (run, part) = asked(&mut story, 0).expect("steps are no longer held");
    assert_eq!(asked(&mut story, 5_000_000), None, "it is being read");
    let mut read = PhaseWindow::new(part);
    story.told.iter().for_each(|envelope| read.take(envelope));
    story.send(Msg::ReadClosely(run.clone(), part, Some(Arc::new(read))));
    assert!((1..=2).contains(&stalls(&story)), "{}", lane(&story, "rank 2"));
    assert_eq!(asked(&mut story, 60_000_000), None, "it is known");
    // another window is another part; of one of which nothing can be told it is asked again, but not at once
    story.model.ui.run.window = Some(2_000_000_000);
    let (_, wider) = asked(&mut story, 60_000_000).expect("more of it");
    assert!(wider.from < part.from && wider.width_us > part.width_us, "{part:?} {wider:?}");
    story.send(Msg::ReadClosely(run.clone(), wider, None));
    assert_eq!(asked(&mut story, 61_000_000), None);
    assert!(asked(&mut story, 90_000_000).is_some());
    // what was told before is still known, and a hidden timeline needs nothing
    story.model.ui.run.window = Some(600_000_000);
    assert_eq!(asked(&mut story, 90_000_000), None);
    story.model.ui.run.window = Some(2_500_000_000);
    story.model.settings.timeline = false;
    assert_eq!(asked(&mut story, 200_000_000), None);
    // what does not have all of it is read again soon while more of it comes, else seldom
    story.model.settings.timeline = true;
    story.model.ui.run.window = Some(2_000_000_000);
    let mut later_us = 200_000_000;
    for (less_s, wait_s) in [(900, 20), (800, 2), (800, 20)] {
        let cut = PhasePart { until: wider.until.plus_micros(-less_s * 1_000_000), ..wider };
        story.send(Msg::ReadClosely(run.clone(), wider, Some(Arc::new(PhaseWindow::new(cut)))));
        later_us += wait_s * 1_000_000;
        assert_eq!(asked(&mut story, later_us - 1_000_000), None, "{less_s}");
        assert_eq!(asked(&mut story, later_us), Some((run.clone(), wider)), "{less_s}");
    }
}

#[test]
fn what_is_told_in_longer_points_than_were_asked_for_is_not_asked_for_again() {
    let mut story = seconds(&FOUR, 4_000, |_| None);
    story.send(Msg::Resize(120, 40));
    story.model.ui.run.window = Some(600_000_000);
    let of = |effect| if let Effect::ReadClosely(run, part) = effect { Some((run, part)) } else { None };
    let now = story.at;
    let (run, part) = story.send(Msg::Tick(now)).into_iter().find_map(of).expect("steps are no longer held");
    let longer = PhasePart { width_us: 4 * part.width_us, ..part };
    story.send(Msg::ReadClosely(run, part, Some(Arc::new(PhaseWindow::new(longer)))));
    let later = now.plus_micros(30_000_000);
    assert_eq!(story.send(Msg::Tick(later)).into_iter().find_map(of), None);
}

#[test]
fn steps_that_a_recorder_has_left_out_are_not_drawn_as_idle() {
    let mut story = seconds(&FOUR, 4_000, |_| None);
    story.send(Msg::Resize(120, 40));
    story.model.ui.run.window = Some(600_000_000);
    let of = |effect| if let Effect::ReadClosely(run, part) = effect { Some((run, part)) } else { None };
    let now = story.at;
    let (run, part) = story.send(Msg::Tick(now)).into_iter().find_map(of).expect("steps are no longer held");
    let begin = timeline(&story.model).0;
    let (from, to) = (begin.plus_micros(20_000_000), begin.plus_micros(60_000_000));
    // without the steps of rank 2 in that time, and with a gap in their place or without one
    let mut lane_where = |is_told: bool| {
        let mut read = PhaseWindow::new(part);
        let mut gaps = u32::from(is_told);
        for envelope in &story.told {
            let is_step = matches!(envelope.event, Event::StepDone { .. });
            let is_of_it = is_step && envelope.origin == Origin::Rank(run.clone(), Rank(2));
            if !is_of_it || !(from..to).contains(&envelope.at) {
                read.take(envelope);
            } else if gaps > 0 {
                gaps -= 1;
                let event = Event::Gap { what: "step".to_owned(), dropped: 40 };
                read.take(&Envelope { event, ..envelope.clone() });
            }
        }
        story.send(Msg::ReadClosely(run.clone(), part, Some(Arc::new(read))));
        lane(&story, "rank 2")
    };
    let (idle, not_held) = (lane_where(false), lane_where(true));
    assert!(!idle.contains('╌') && idle.contains("···"), "{idle}");
    let lacks = not_held.matches('╌').count();
    assert!((4..=8).contains(&lacks), "{not_held}");
    assert_eq!(not_held.replace('╌', "·"), idle);
}

/// The training of four ranks, each of which hides some of its allreduce.
fn hiding() -> Story {
    let mut story = training();
    for step in 121..=160 {
        for rank in 0..4 {
            story.step_hiding(rank, step, 0.1, phases(0), 14_000);
        }
        story.wait_ms(62);
    }
    press(&mut story, "t");
    story
}

#[test]
fn what_is_hidden_of_the_allreduce_has_a_lane_below_the_selected_rank() {
    let mut story = hiding();
    press(&mut story, "ssj");
    let (lanes, _) = names(&mut story, (120, 40));
    let at = lanes.iter().position(|name| name.starts_with("network")).unwrap_or_else(|| panic!("{lanes:?}"));
    assert!(lanes[at - 1].starts_with("rank 1"), "{lanes:?}");
    let shares = |name: &str| {
        let shown = lane(&story, name);
        let count = |glyphs: &str| shown.chars().filter(|glyph| glyphs.contains(*glyph)).count() as f64;
        count("wx") / shown.chars().count() as f64
    };
    // 11.3 + 5.4 of 61.2 ms are exposed, 14 more are hidden
    let (own, network) = (shares("rank 1"), shares("network"));
    assert!((0.2..0.34).contains(&own) && (0.42..0.58).contains(&network), "{own} {network}");
    shoot("lanes-network", hiding(), &[(80, 24), (120, 40)], COLOR);
}

/// NCCL tells of an allreduce that begins now.
fn collective(story: &mut Story, rank: u32, seq: u64, dur_ns: u64) {
    let timing = CollectiveTiming {
        comm: CommId(7),
        ranks: 2,
        comm_rank: rank,
        func: "AllReduce".to_owned(),
        seq,
        bytes: 1 << 20,
        datatype: String::new(),
        t: Some(HostTime((story.at.0 - CLOCK_OFFSET) as u64)),
        dur_ns,
        gpu_ns: None,
        every: 1,
        lost: 0,
    };
    story.rank(rank, Event::CollectiveDone { timing: Box::new(timing) });
}

#[test]
fn where_nccl_tells_no_more_the_steps_tell_of_communication() {
    let mut story = training();
    for seq in 1..=20 {
        collective(&mut story, 1, seq, 30_000_000);
        story.wait_ms(60);
    }
    for step in 121..=320 {
        for rank in 0..4 {
            story.step_hiding(rank, step, 0.1, phases(0), 14_000);
        }
        story.wait_ms(62);
    }
    press(&mut story, "t");
    press(&mut story, "ssj");
    story.send(Msg::Resize(120, 40));
    for zoom in ["", "f"] {
        press(&mut story, zoom);
        let shown: Vec<char> = lane(&story, "network").chars().collect();
        let busy = |part: &[char]| part.iter().filter(|glyph| "wx".contains(**glyph)).count();
        assert!(busy(&shown[shown.len() / 2..]) > shown.len() / 8, "{}", shown.iter().collect::<String>());
    }
}

#[test]
fn collectives_of_nccl_have_a_lane_where_no_steps_are_told() {
    let mut story = Story::new(&["gpu-a"]);
    story.gpu_host("gpu-a", 2);
    story.run("mnist", &gpu_slots(&[("gpu-a", 0), ("gpu-a", 1)]));
    story.stage(RunStage::Training, &[]);
    story.model.ui.screen = Screen::Run;
    story.clock("gpu-a", 0);
    for seq in 1..=400 {
        for rank in 0..2 {
            collective(&mut story, rank, seq, 80_000_000);
        }
        story.wait_ms(100);
    }
    press(&mut story, "t");
    story.send(Msg::Resize(120, 40));
    for zoom in ["", "f"] {
        press(&mut story, zoom);
        let shown = lane(&story, "network");
        let busy = shown.chars().filter(|glyph| *glyph == 'x').count() as f64;
        assert!(busy > 20.0, "{shown}");
    }
}
