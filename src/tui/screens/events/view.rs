//! The Events screen, and the pane of events on wide Cluster and Run screens.

use ratatui::style::Style;

use super::{EventRow, rows};
use crate::domain::alerts::{Alert, Place};
use crate::domain::gpu::health::Severity;
use crate::domain::ids::RunId;
use crate::domain::run::Slot;
use crate::domain::text::sanitize;
use crate::domain::world::RunState;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::Level;
use crate::tui::core::layout::{Band, cluster_events, events_list};
use crate::tui::core::words::{clock_time, date};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{age, span};
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::faults::is_open;
use crate::tui::screens::view::title::{self, plural};

/// Columns of the place at least and at most.
const PLACE: (u16, u16) = (8, 30);

/// Where the place of an alert stands.
enum Shown<'a> {
    /// In a column of this width.
    Column(u16),
    /// Before the words, without its beginning where that is known.
    Before(&'a str),
}

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    let rows = rows(model);
    let active = model.world.alerts.active().filter(|alert| is_open(model, alert)).count();
    let dim = canvas.theme.dim;
    let head = format!("{} {}, {active} active", rows.len(), plural(rows.len(), "event"));
    let x = canvas.text(1, 1, canvas.width() - 2, &head, dim);
    if let Some(cost) = &model.ui.events.recording {
        let style = if cost.dropped > 0 { canvas.theme.warn } else { dim };
        let words = cost.words();
        let room = canvas.width().saturating_sub(x + 4);
        if width(&words) <= room {
            canvas.right(canvas.width() - 1 - width(&words), 1, width(&words), &words, style);
        } else {
            canvas.text(x + 3, 1, room, &words, style);
        }
    }
    let band = events_list((canvas.width(), canvas.height()));
    if rows.is_empty() {
        let text = "nothing to tell yet: hot GPUs, lost hosts, hangs, held idle GPUs and failures stand here";
        canvas.text(2, band.y + 1, canvas.width() - 3, text, dim);
        return;
    }
    let cursor = &model.ui.events.cursor;
    let places = rows.iter().map(|row| match row {
        EventRow::Alert(alert) => width(&alert.place.to_string()),
        EventRow::Notice(_) => 0,
    });
    let most = if canvas.width() >= 100 { PLACE.1 } else { PLACE.1 - 6 };
    let place = places.max().unwrap_or(0).clamp(PLACE.0, most);
    for (line, (at, row)) in rows.iter().enumerate().skip(cursor.offset).take(usize::from(band.h)).enumerate()
    {
        let y = band.y + line as u16;
        let end = canvas.width() - 1;
        match row {
            EventRow::Alert(alert) => alert_line(model, canvas, (2, y, end), &Shown::Column(place), alert),
            EventRow::Notice(notice) => {
                let style = match notice.level {
                    Level::Info => dim,
                    Level::Warning => canvas.theme.warn,
                    Level::Error => canvas.theme.bad,
                };
                let x = time(model, canvas, 2, y, notice.at);
                let x = canvas.text(x, y, 1, "·", dim) + 3 + place;
                canvas.text(x, y, end.saturating_sub(x), &notice.text, style);
            }
        }
        if at == cursor.index {
            mark_selected(canvas, y, 10);
        }
    }
}

/// The clock, with the day where it was another one; returns the column behind it and a blank.
fn time(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16, at: crate::domain::time::Stamp) -> u16 {
    let zone = &model.zone;
    let words = if date(at, zone) == date(model.moment(), zone) {
        clock_time(at, zone, false)
    } else {
        // month and day
        date(at, zone).get(5..).unwrap_or_default().to_owned()
    };
    let dim = canvas.theme.dim;
    canvas.text(x, y, 8, &words, dim);
    x + 9
}

/// `is_open`: whether it goes on and was not acknowledged.
fn mark(canvas: &Canvas<'_>, alert: &Alert, is_open: bool) -> (&'static str, Style) {
    let style = match alert.severity {
        Severity::Act => canvas.theme.bad,
        Severity::Look => canvas.theme.warn,
    };
    match is_open {
        true => ("▲", style),
        false if alert.is_moment() => ("◆", style),
        false => ("✔", canvas.theme.dim),
    }
}

/// `14:32:07 ▲ gpu-a:3   88 °C: too hot from 86 °C on   5 min` from column `x` to `end`.
fn alert_line(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y, end): (u16, u16, u16),
    place: &Shown<'_>,
    alert: &Alert,
) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let now = model.moment();
    let is_open = is_open(model, alert);
    let (glyph, style) = mark(canvas, alert, is_open);
    let x = time(model, canvas, x, y, alert.since);
    let x = canvas.text(x, y, 1, glyph, style) + 1;
    let words = alert.place.to_string();
    let x = match place {
        Shown::Column(w) => {
            canvas.name(x, y, *w, &place_words(&alert.place, *w), text);
            x + w + 2
        }
        Shown::Before(known) => {
            let words = words.strip_prefix(*known).unwrap_or(&words);
            canvas.name(x, y, end.saturating_sub(x), words, text) + 1
        }
    };
    let length = match alert.until {
        None if !is_open => "acknowledged".to_owned(),
        None => format!("for {}", age(now, alert.since)),
        Some(_) if alert.is_moment() => format!("{} ago", span(now, alert.since)),
        Some(until) => format!("over after {}", age(until, alert.since)),
    };
    let room = end.saturating_sub(x);
    // how long it is so matters more than the end of a sentence
    let length = if room >= width(&length) + 24 { length } else { String::new() };
    let room = room.saturating_sub(if length.is_empty() { 0 } else { width(&length) + 2 });
    let words = sanitize(&alert.words);
    canvas.text(x, y, room, &words, if is_open { style } else { dim });
    canvas.text(end.saturating_sub(width(&length)), y, width(&length), &length, dim);
}

/// A place in `w` columns: its rank is told before its host.
fn place_words(place: &Place, w: u16) -> String {
    let whole = place.to_string();
    let (Some(run), Some(rank)) = (&place.run, place.rank) else { return whole };
    let run = run.short();
    let gpu = place.gpu.map(|gpu| format!(":{gpu}")).unwrap_or_default();
    let host = place.host.as_ref().map(|host| format!(" {}{gpu}", sanitize(host.as_str())));
    let all = [whole, format!("{run} rank {rank}{}", host.unwrap_or_default())];
    all.into_iter().find(|words| width(words) <= w).unwrap_or_else(|| format!("run {run} rank {rank}"))
}

/// The pane below the list of the Cluster screen, where there is room for it.
pub(in crate::tui::screens) fn below_cluster(model: &Model, canvas: &mut Canvas<'_>) {
    let band = cluster_events((canvas.width(), canvas.height()));
    if band.h > 0 {
        let alerts = model.world.alerts.listed();
        pane(model, canvas, (0, band), "", &alerts);
    }
}

/// The pane beside the log of a run, from column `x` on: what is about the run, its GPUs and its hosts.
pub(in crate::tui::screens) fn beside_log(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, band): (u16, Band),
    (id, run): (&RunId, &RunState),
) {
    let is_of_run = |alert: &&Alert| match (&alert.place.run, &alert.place.host) {
        (Some(other), _) => other == id,
        (None, Some(host)) => {
            let numbers = run.by_host.get(host).into_iter().flatten();
            let mut placed = numbers.filter_map(|number| run.spec.placements.get(number.0 as usize));
            placed.any(|placement| {
                alert.place.gpu.is_none_or(|gpu| {
                    placement.slots().any(|slot| matches!(slot, Slot::Gpu { index, .. } if *index == gpu))
                })
            })
        }
        (None, None) => false,
    };
    let alerts: Vec<&Alert> = model.world.alerts.listed().into_iter().filter(is_of_run).collect();
    let dim = canvas.theme.dim;
    for y in band.y..band.y + band.h {
        canvas.text(x, y, 1, if y == band.y { "┬" } else { "│" }, dim);
    }
    pane(model, canvas, (x + 1, band), &format!("run {} ", id.short()), &alerts);
}

/// Head and lines, from column `x` on; what is `known` of the places is left out.
fn pane(model: &Model, canvas: &mut Canvas<'_>, (x, band): (u16, Band), known: &str, alerts: &[&Alert]) {
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let w = canvas.width().saturating_sub(x);
    canvas.text(x, band.y, w, &"─".repeat(usize::from(w)), dim);
    let active = alerts.iter().filter(|alert| is_open(model, alert)).count();
    let hidden = alerts.len().saturating_sub(usize::from(band.h.saturating_sub(1)));
    let more = if hidden > 0 { format!(" · {hidden} more: E") } else { String::new() };
    let head = [(" events".to_owned(), text), (format!("   {active} active{more} "), dim)];
    canvas.pieces(x + 1, band.y, canvas.width(), &head);
    let list = band.below_head();
    if alerts.is_empty() && list.h > 0 {
        canvas.text(x + 1, list.y, w.saturating_sub(2), "none", dim);
    }
    let end = canvas.width().saturating_sub(1);
    for (y, alert) in (list.y..list.y + list.h).zip(alerts) {
        alert_line(model, canvas, (x + 1, y, end), &Shown::Before(known), alert);
    }
}
