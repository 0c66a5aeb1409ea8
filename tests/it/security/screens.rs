//! What hosts say reaches every screen, and drives none of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use hvtui::domain::event::{Envelope, Event, Origin};
use hvtui::domain::gpu::{GpuSample, Reading};
use hvtui::domain::host::HostSample;
use hvtui::domain::occupancy::FreeMemory;
use hvtui::domain::plausible::bound_event;
use hvtui::domain::run::RunSummary;
use hvtui::launch::error::LaunchError;
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Key, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::view::draw;
use hvtui::tui::screens::{HostEntry, Model, update};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use serde_json::{Value, json};

use super::escapes::{ESCAPES, drives_a_terminal};
use super::mutate;
use crate::common::world::{START, Story, busy, cluster, failed, recordings, training};

const SCREENS: [Screen; 6] =
    [Screen::Cluster, Screen::Detail, Screen::Launch, Screen::Run, Screen::Runs, Screen::Replay];

/// One event of each kind and origin of all stories, in their order; of those that are told often only the first few.
fn sample() -> Vec<Envelope> {
    let mut seen: Vec<(String, u32)> = Vec::new();
    let mut picked = Vec::new();
    let stories: [fn() -> Story; 3] = [cluster, training, failed];
    for story in stories {
        let story = story();
        for envelope in story.told {
            let kind = format!("{:?}", std::mem::discriminant(&envelope.event));
            let key = format!("{kind}{:?}", envelope.origin);
            let place = seen.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                seen.push((key, 0));
                seen.len() - 1
            });
            let count = &mut seen[place].1;
            *count += 1;
            if *count <= 3 {
                picked.push(envelope);
            }
        }
    }
    picked
}

/// A model that was told all of it.
fn told(events: &[Envelope], summaries: Vec<RunSummary>, notice: &str) -> Model {
    let hosts: BTreeSet<_> = events
        .iter()
        .filter_map(|envelope| match &envelope.origin {
            Origin::Host(host) => Some(host.clone()),
            _ => None,
        })
        .collect();
    let entries = hosts
        .into_iter()
        .map(|id| HostEntry {
            id,
            slots: None,
            free_memory: FreeMemory::default(),
            labels: Vec::new(),
            is_local: false,
        })
        .collect();
    let mut model = Model::live(entries, START, 0);
    let mut last = START;
    for envelope in events {
        last = last.max(envelope.at);
        update(&mut model, Msg::Event(envelope.clone()));
    }
    update(&mut model, Msg::Tick(last));
    update(&mut model, Msg::RunsListed(summaries));
    update(&mut model, Msg::Notice(Level::Error, notice.to_owned()));
    update(&mut model, Msg::LaunchPlanned(Err(LaunchError::usage(notice))));
    model
}

/// Draws every screen at two sizes, with and without the cursor moved; gives each cell to `check`.
fn each_cell(model: &Model, mut check: impl FnMut(&str)) {
    for screen in SCREENS {
        for (columns, rows) in [(80, 24), (200, 60)] {
            let mut model = model.clone();
            model.ui.screen = screen;
            update(&mut model, Msg::Resize(columns, rows));
            for _ in 0..2 {
                let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
                draw(&model, Caps { color: ColorDepth::Full, ascii: false }, &mut buffer);
                buffer.content.iter().for_each(|cell| check(cell.symbol()));
                update(&mut model, Msg::Key(Key::char('j')));
                update(&mut model, Msg::Key(Key::plain(KeyCode::Enter)));
            }
        }
    }
}

fn hostile_summaries(tail: &str) -> Vec<RunSummary> {
    let mut summaries = recordings();
    for summary in &mut summaries {
        summary.spec.name.push_str(tail);
        summary.spec.command.iter_mut().for_each(|word| word.push_str(tail));
        summary.damage = Some(tail.to_owned());
        if let Some(outcome) = &mut summary.outcome {
            outcome.summary.push_str(tail);
        }
    }
    summaries
}

#[test]
fn vector_04_no_text_of_a_host_drives_the_screen() {
    let events = sample();
    let mut shown = 0;
    for escape in ESCAPES {
        let hostile: Vec<Envelope> = events.iter().map(|envelope| mutate::texts(envelope, escape)).collect();
        let changed = hostile.iter().zip(&events).filter(|(one, other)| one != other).count();
        assert!(changed * 10 > events.len() * 4, "{changed} of {} took it", events.len());
        let model = told(&hostile, hostile_summaries(escape), escape);
        each_cell(&model, |symbol| {
            assert!(!symbol.chars().any(drives_a_terminal), "{escape:?} shows as {symbol:?}");
            shown += usize::from(symbol == "␛");
        });
    }
    assert!(shown > 1000, "the texts were not on the screens: {shown}");
}

#[test]
fn vector_15_no_number_of_a_host_breaks_the_screen() {
    let events = sample();
    let numbers: [Value; 9] = [
        json!(0),
        json!(-1),
        json!(1),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(u32::MAX),
    ];
    for number in &numbers {
        let mut hostile: Vec<Envelope> =
            events.iter().map(|envelope| mutate::numbers(envelope, number)).collect();
        // as each link and each recording does with what it brings
        for envelope in &mut hostile {
            bound_event(&mut envelope.event);
        }
        let model = told(&hostile, recordings(), "");
        each_cell(&model, |symbol| assert!(!symbol.is_empty()));
    }
}

/// What is said, how, and what is shown no more where it is.
type Hostile<T> = (&'static str, fn(&mut T), &'static str);

/// The lines of the cluster's screen as it shows these events, once they have come over a link.
fn cluster_lines(story: Story) -> Vec<String> {
    let mut events = story.told;
    for envelope in &mut events {
        bound_event(&mut envelope.event);
    }
    let mut model = told(&events, Vec::new(), "");
    update(&mut model, Msg::Resize(120, 40));
    let mut buffer = Buffer::empty(Rect::new(0, 0, 120, 40));
    draw(&model, Caps { color: ColorDepth::Full, ascii: false }, &mut buffer);
    buffer.content.chunks(120).map(|row| row.iter().map(Cell::symbol).collect()).collect()
}

/// A host of two GPUs with a sample, of which the first GPU and the host say what these make of it.
fn one_host(gpus: u32, gpu: fn(&mut GpuSample), host: fn(&mut HostSample)) -> Vec<String> {
    let mut story = Story::new(&["gpu-a"]);
    let readings: Vec<_> = (0..gpus).map(|_| busy(57, "li")).collect();
    match gpus {
        0 => story.cpu_host("gpu-a", 8),
        gpus => story.gpu_host("gpu-a", gpus),
    };
    story.sample("gpu-a", 31.0, &readings);
    let sampled = story.told.iter_mut().find_map(|envelope| match &mut envelope.event {
        Event::HostSampled { sample } => Some(Arc::make_mut(sample)),
        _ => None,
    });
    let sample = sampled.unwrap();
    sample.gpus.first_mut().map(gpu);
    host(sample);
    cluster_lines(story)
}

#[test]
fn vector_15_what_no_machine_has_is_shown_as_unknown_and_nothing_else_with_it() {
    let row = |lines: &[String], gpu: &str| {
        let found = lines.iter().find(|line| line.trim_start_matches([' ', '▌']).starts_with(gpu));
        found.unwrap_or_else(|| panic!("no row {gpu} in {lines:#?}")).clone()
    };
    let honest = one_host(2, |_| {}, |_| {});
    let (first, second) = (row(&honest, "0 H200"), row(&honest, "1 H200"));
    // What the first GPU says, and what its row shows no more.
    let gpu: [Hostile<GpuSample>; 7] = [
        ("util 101", |gpu| gpu.util = Reading::Value(101), "57 %"),
        ("util 65535", |gpu| gpu.util = Reading::Value(65_535), "57 %"),
        ("util of all bits", |gpu| gpu.util = Reading::Value(u32::MAX), "57 %"),
        ("memory of all bits", |gpu| gpu.memory_used = Reading::Value(u64::MAX), "/141 G"),
        ("memory of a pebibyte and a byte", |gpu| gpu.memory_used = Reading::Value((1 << 50) + 1), "/141 G"),
        ("temperature of all bits", |gpu| gpu.temperature = Reading::Value(u32::MAX), "54"),
        ("power of all bits", |gpu| gpu.power_mw = Reading::Value(u32::MAX), "/700 W"),
    ];
    for (what, change, gone) in gpu {
        assert!(first.contains(gone), "{what}: {gone} in {first}");
        let shown = one_host(2, change, |_| {});
        let now = row(&shown, "0 H200");
        assert_eq!(now.matches(gone).count(), first.matches(gone).count() - 1, "{what}: {now}");
        assert!(now.matches('–').count() > first.matches('–').count(), "{what}: {now}");
        assert_eq!(row(&shown, "1 H200"), second, "{what}: the other GPU");
        for line in &shown {
            for number in
                ["65535", "65,535", "101 %", "4294967", "18446744", "4.3 M", "16 E", "1.0 P", "1024 T"]
            {
                assert!(!line.contains(number), "{what}: {line}");
            }
        }
    }
    // A host without GPUs, by its row: `4 CPUs ███ 31 % 9.0/64 G ▏ 0.42`.
    let told = row(&one_host(0, |_| {}, |_| {}), "gpu-a");
    let host: [Hostile<HostSample>; 8] = [
        ("cpu NaN", |host| host.cpu_percent = Reading::Value(f32::NAN), "31 %"),
        ("cpu infinite", |host| host.cpu_percent = Reading::Value(f32::INFINITY), "31 %"),
        ("cpu negative", |host| host.cpu_percent = Reading::Value(-1.0), "31 %"),
        ("cpu 101", |host| host.cpu_percent = Reading::Value(101.0), "31 %"),
        ("memory of all bits", |host| host.memory_used = Reading::Value(u64::MAX), "9.0/64 G"),
        ("load NaN", |host| host.load = Reading::Value([f32::NAN, 0.3, 0.2]), "0.42"),
        ("load negative", |host| host.load = Reading::Value([0.42, -1.0, 0.2]), "0.42"),
        ("load infinite", |host| host.load = Reading::Value([0.42, 0.3, f32::INFINITY]), "0.42"),
    ];
    for (what, change, gone) in host {
        assert!(told.contains(gone), "{what}: {gone} in {told}");
        let now = row(&one_host(0, |_| {}, change), "gpu-a");
        assert!(!now.contains(gone) && now.matches('–').count() > told.matches('–').count(), "{what}: {now}");
        for word in ["NaN", "inf", "-1", "101", "16 E"] {
            assert!(!now.contains(word), "{what}: {now}");
        }
    }
    // More GPUs than a host has are not shown, nor counted.
    let shown = one_host(100_000, |_| {}, |_| {});
    assert!(shown[0].contains("128 GPUs"), "{}", shown[0]);
    assert!(!shown.concat().contains("100000") && !shown.concat().contains("100,000"), "{shown:#?}");
}
