//! What hosts say reaches every screen, and drives none of them.

use std::collections::BTreeSet;

use hvtui::domain::event::{Envelope, Origin};
use hvtui::domain::occupancy::FreeMemory;
use hvtui::domain::plausible::bound_event;
use hvtui::domain::run::RunSummary;
use hvtui::tui::canvas::{Caps, ColorDepth};
use hvtui::tui::core::{Key, KeyCode, Level, Msg, Screen};
use hvtui::tui::screens::view::draw;
use hvtui::tui::screens::{HostEntry, Model, update};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use super::escapes::{ESCAPES, drives_a_terminal};
use super::mutate;
use crate::common::world::{START, Story, cluster, failed, recordings, training};

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
    update(&mut model, Msg::LaunchPlanned(Err(notice.to_owned())));
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
