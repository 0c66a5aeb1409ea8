//! The first line of Run and Replay: which run it is and where, and at the right how it goes.

use std::ops::Range;

use ratatui::style::{Modifier, Style};

use super::{clock_length, eta_us, loss, loss_trend, metric, samples_per_second, short_length, state_word};
use crate::domain::ids::HostId;
use crate::domain::run::RunStage;
use crate::domain::units;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::keymap::Action;
use crate::tui::screens::cluster::rows::age;
use crate::tui::screens::replay::view as replay_words;
use crate::tui::screens::run::frame::Frame;
use crate::tui::screens::view::title::{alerts_words, plural};
use crate::tui::screens::{Mode, Model};

/// Draws the line; `rate` is how many samples a second all ranks work through.
pub(super) fn draw(frame: &Frame<'_>, canvas: &mut Canvas<'_>, rate: Option<f64>) {
    let (strong, text, dim) = (canvas.theme.strong(), canvas.theme.text, canvas.theme.dim);
    let accent = canvas.theme.accent.add_modifier(Modifier::BOLD);
    let place = place(frame);
    let right = right(frame, &canvas.theme, canvas.width(), (place.as_str(), rate));
    let start = right.first().map_or(canvas.width(), |(columns, ..)| columns.start);
    let end = start.saturating_sub(2);
    let mut x = canvas.text(1, 0, 8, word(frame), strong) + 1;
    x = canvas.text(x, 0, 6, frame.id.short(), accent) + 2;
    let name_room = end.saturating_sub(x).min(NAME);
    x = canvas.name(x, 0, name_room, &frame.run.spec.name, text) + 2;
    canvas.text(x, 0, end.saturating_sub(x), &place, dim);
    for (columns, text, style) in right {
        canvas.text(columns.start, 0, canvas.width().saturating_sub(columns.start), &text, style);
    }
}

/// What a click on a column of the line does: the alerts open the events.
pub(in crate::tui::screens) fn action_at(model: &Model, column: u16) -> Option<Action> {
    let frame = Frame::of(model)?;
    let (place, rate) = (place(&frame), samples_per_second(frame.run));
    let right = right(&frame, &Theme::colourless(), model.size.0, (place.as_str(), rate));
    let hit = right.iter().find(|(columns, ..)| columns.contains(&column));
    hit.filter(|(_, text, _)| text.starts_with('▲')).map(|_| Action::Events)
}

/// Columns of a run's name at most.
const NAME: u16 = 24;

fn word(frame: &Frame<'_>) -> &'static str {
    if frame.is_replay() { "Replay" } else { "Run" }
}

/// `4 ranks on gpu-a gpu-b`.
fn place(frame: &Frame<'_>) -> String {
    let count = frame.run.ranks.len();
    let hosts: Vec<&str> = frame.hosts.iter().map(HostId::as_str).collect();
    format!("{count} {} on {}", plural(count, "rank"), hosts.join(" "))
}

/// The words at the right that fit beside the place of the run, and where they stand.
fn right(
    frame: &Frame<'_>,
    theme: &Theme,
    columns: u16,
    (place, rate): (&str, Option<f64>),
) -> Vec<(Range<u16>, String, Style)> {
    let (model, run) = (frame.model, frame.run);
    let mut words = match &model.mode {
        Mode::Live => progress(frame, theme, rate),
        Mode::Replay(state) => replay_words::words(model, theme, state, run),
    };
    if model.mode == Mode::Live && frame.is_replay() {
        let read = model.ui.replay.reading.map_or_else(String::new, |percent| format!(" {percent} %"));
        words.push((0, format!("opening the recording …{read}"), theme.warn));
    }
    let name = width(&run.spec.name).min(NAME);
    let left = width(word(frame)) + width(frame.id.short()) + name + width(place) + 8;
    let words = fit_right(&words, (columns / 2 + 4).max(columns.saturating_sub(left)));
    let used: u16 = words.iter().map(|(text, _)| width(text) + 3).sum();
    let mut at = columns.saturating_sub(used.saturating_sub(3) + 1);
    let placed = words.into_iter().map(|(text, style)| {
        let from = at;
        at += width(&text) + 3;
        (from..at - 3, text, style)
    });
    placed.collect()
}

/// Words of the title with how much they matter: 0 stays longest.
type Ranked = (u8, String, Style);

/// Keeps of words in their order the most important that fit into `room` columns.
fn fit_right(words: &[Ranked], room: u16) -> Vec<(String, Style)> {
    let mut order: Vec<usize> = (0..words.len()).collect();
    order.sort_by_key(|at| words[*at].0);
    let mut used = 0;
    let mut kept: Vec<usize> = order
        .into_iter()
        .take_while(|at| {
            used += width(&words[*at].1) + 3;
            used <= room + 3
        })
        .collect();
    kept.sort_unstable();
    kept.into_iter().map(|at| (words[at].1.clone(), words[at].2)).collect()
}

/// The most telling numbers of a run.
fn progress(frame: &Frame<'_>, theme: &Theme, rate: Option<f64>) -> Vec<Ranked> {
    let (model, run, text, dim) = (frame.model, frame.run, theme.text, theme.dim);
    let (word, style) = state_word(theme, run);
    let started = run
        .stages
        .iter()
        .find(|(_, stage)| (RunStage::Start..RunStage::Stopping).contains(stage))
        .map(|(at, _)| *at);
    let until = if run.is_live() { run.known_until(&model.world.hosts, model.now) } else { run.last_at };
    // of one that has not got so far, since it began
    let started = started.or(run.stages.first().map(|(at, _)| *at));
    let elapsed = started.map_or(0, |at| u64::try_from(until.micros_since(at)).unwrap_or(0));
    let elapsed = if run.is_live() { clock_length(elapsed) } else { short_length(elapsed) };
    let silent = frame.look.silent_since();
    let now = model.moment();
    let stands = frame.look.hang.as_ref().map(|(_, last)| *last);
    let mut words = vec![match (silent, stands) {
        (Some(heard), _) => (0, format!("silent for {}", age(now, heard)), theme.warn),
        (None, Some(since)) => (0, format!("no step for {}", age(now, since)), theme.bad),
        (None, None) => (0, format!("{word} {elapsed}"), style),
    }];
    let alerts = alerts_words(model, theme);
    words.splice(
        0..0,
        alerts.map(|(all, style)| (0, all.split_whitespace().take(2).collect::<Vec<_>>().join(" "), style)),
    );
    if let Some(step) = run.step() {
        let of = run.total_steps.map_or_else(String::new, |total| format!("/{total}"));
        words.push((1, format!("step {step}{of}"), text));
    }
    // how fast it is tells more while it goes on, what came of it when it is over
    let (rate_at, metric_at) = if run.is_live() { (4, 5) } else { (5, 4) };
    // of the last steps: not how fast a run is that stands still
    let rate = rate.filter(|_| stands.is_none() && silent.is_none());
    words.extend(rate.map(|rate| (rate_at, format!("{} samples/s", units::rate(rate)), dim)));
    if let Some(loss) = loss(run) {
        let trend = loss_trend(run).unwrap_or("");
        words.push((2, format!("loss {loss:.3}{trend}"), text));
    }
    let metric =
        metric(run, "accuracy").map(|share| format!("accuracy {:.2} %", share * 100.0)).or_else(|| {
            let (name, value) = run.ranks.first()?.metrics.iter().next()?;
            Some(format!("{name} {}", units::metric(*value)))
        });
    words.extend(metric.map(|words| (metric_at, words, text)));
    let goes_on =
        run.is_live() && silent.is_none() && stands.is_none() && run.stage() == Some(RunStage::Training);
    if let Some(left) = goes_on.then(|| eta_us(run)).flatten() {
        words.push((3, format!("eta {}", units::duration_us(left)), dim));
    }
    words.extend(run.spec.code.as_ref().map(|code| (6, code.words(), dim)));
    words
}
