//! The Doctor screen: a line a check, a column a host, and the chosen cell in words below.

use ratatui::style::{Modifier, Style};

use crate::domain::doctor::{Row, Verdict};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::sanitize;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::{doctor_cell, doctor_list};
use crate::tui::core::words::{broken, clock_time};
use crate::tui::screens::Model;
use crate::tui::screens::view::title::{self, plural};

/// Where the hosts' columns begin: behind the mark of the line and the check's name.
const CELLS: u16 = 14;
/// Columns that the words of a line need at least.
const WORDS: u16 = 24;
/// The longest name that a column of its own is made for.
const NAME: u16 = 14;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    head(model, canvas);
    let doctor = &model.ui.doctor;
    let band = doctor_list((canvas.width(), canvas.height()));
    let dim = canvas.theme.dim;
    let columns = Columns::of(model);
    canvas.text(2, 2, 12, "CHECK", dim);
    let chosen = doctor.chosen().map(|(host, _)| host);
    for (at, host) in columns.shown() {
        if columns.named {
            let style = if doctor.host.as_ref() == Some(host) { canvas.theme.strong() } else { dim };
            canvas.text(at, 2, columns.each - 1, host.as_str(), style);
        } else if doctor.host.as_ref() == Some(host) {
            canvas.text(at, 2, 1, "▾", canvas.theme.accent);
        }
    }
    if !columns.named {
        let unshown = columns.hosts.len() - columns.shown().count();
        let more = if unshown > 0 { format!(", {unshown} more to the sides") } else { String::new() };
        let words = format!("a column a host{more}");
        canvas.text(columns.end() + 1, 2, canvas.width().saturating_sub(columns.end() + 2), &words, dim);
    }
    for (y, (at, row)) in
        (band.y..band.y + band.h).zip(doctor.matrix.rows.iter().enumerate().skip(doctor.cursor.offset))
    {
        line(canvas, &columns, y, row);
        if doctor.cursor.index == at {
            canvas.text(0, y, 1, "▌", canvas.theme.accent.add_modifier(Modifier::BOLD));
            for x in 2..2 + width(row.check) {
                reverse(canvas, x, y);
            }
            if let Some((x, _)) = columns.shown().find(|(_, host)| Some(*host) == chosen) {
                reverse(canvas, x, y);
            }
        }
    }
    cell(model, canvas);
}

fn reverse(canvas: &mut Canvas<'_>, x: u16, y: u16) {
    if x < canvas.width() && y < canvas.height() {
        let cell = canvas.cell(x, y);
        let style = cell.style().add_modifier(Modifier::REVERSED);
        cell.set_style(style);
    }
}

/// How the whole is, and who is awaited.
fn head(model: &Model, canvas: &mut Canvas<'_>) {
    let doctor = &model.ui.doctor;
    let (dim, text) = (canvas.theme.dim, canvas.theme.text);
    let matrix = &doctor.matrix;
    if matrix.rows.is_empty() {
        let words = if doctor.is_looking { "looking at all hosts" } else { "R looks at all hosts" };
        canvas.text(1, 1, canvas.width().saturating_sub(2), words, dim);
        return;
    }
    let (red, yellow) = (matrix.count(Mark::Bad), matrix.count(Mark::Look));
    let hosts = matrix.hosts.len();
    let mut pieces =
        vec![(format!("{hosts} {}, {} checks   ", plural(hosts, "host"), matrix.rows.len()), text)];
    if red > 0 {
        pieces.push((format!("✖ {red} red   "), canvas.theme.bad));
    }
    if yellow > 0 {
        pieces.push((format!("⚠ {yellow} to look at   "), canvas.theme.warn));
    }
    let due = matrix.due();
    if doctor.is_looking {
        pieces.push((format!("looking: {due} {} to tell", plural(due, "host")), dim));
    } else if red + yellow == 0 {
        pieces.push(("✔ nothing is wrong   ".to_owned(), canvas.theme.good));
    }
    if let Some(at) = doctor.at.filter(|_| !doctor.is_looking) {
        pieces.push((format!("looked at {}", clock_time(at, &model.zone, false)), dim));
    }
    canvas.pieces(1, 1, canvas.width() - 1, &pieces);
}

/// Where the hosts' columns stand.
struct Columns<'a> {
    hosts: &'a [HostId],
    /// Columns of each.
    each: u16,
    /// Whether their names stand above them.
    named: bool,
    /// The first that is shown, and how many.
    from: usize,
    count: usize,
}

impl<'a> Columns<'a> {
    fn of(model: &'a Model) -> Self {
        let hosts = &model.ui.doctor.matrix.hosts[..];
        let room = model.size.0.saturating_sub(CELLS + WORDS + 1);
        let longest = hosts.iter().map(|host| width(host.as_str())).max().unwrap_or(0).min(NAME);
        let total = |each: u16| each.saturating_mul(u16::try_from(hosts.len()).unwrap_or(u16::MAX));
        let (each, named) = match longest.max(1) + 2 {
            with_names if total(with_names) <= room => (with_names, true),
            _ if total(2) <= room => (2, false),
            _ => (1, false),
        };
        let count = hosts.len().min(usize::from(room / each));
        let on = model.ui.doctor.host.as_ref().and_then(|on| hosts.iter().position(|host| host == on));
        let from = on.map_or(0, |on| (on + 1).saturating_sub(count));
        Self { hosts, each, named, from, count }
    }

    fn shown(&self) -> impl Iterator<Item = (u16, &'a HostId)> + use<'a> {
        let each = self.each;
        let shown = self.hosts.iter().skip(self.from).take(self.count).enumerate();
        shown.map(move |(at, host)| (CELLS + each * at as u16, host))
    }

    fn end(&self) -> u16 {
        CELLS + self.each * self.count as u16
    }
}

/// The host whose column stands there.
pub(super) fn host_at(model: &Model, column: u16) -> Option<&HostId> {
    let columns = Columns::of(model);
    columns.shown().find(|(at, _)| (*at..*at + columns.each).contains(&column)).map(|(_, host)| host)
}

pub(in crate::tui::screens) fn style(canvas: &Canvas<'_>, mark: Option<Mark>) -> (&'static str, Style) {
    match mark {
        Some(Mark::Good) => ("✔", canvas.theme.good),
        Some(Mark::Unknown) => ("–", canvas.theme.dim),
        Some(Mark::Look) => ("⚠", canvas.theme.warn),
        Some(Mark::Bad) => ("✖", canvas.theme.bad),
        None => ("·", canvas.theme.dim),
    }
}

fn line(canvas: &mut Canvas<'_>, columns: &Columns<'_>, y: u16, row: &Row) {
    let worst = row.worst();
    let (_, of_worst) = style(canvas, worst);
    let troubled = worst >= Some(Mark::Look);
    let plain = canvas.theme.text;
    canvas.text(2, y, CELLS - 3, row.check, if troubled { of_worst } else { plain });
    for (x, host) in columns.shown() {
        let (glyph, style) = style(canvas, row.verdicts.get(host).map(|verdict| verdict.mark));
        canvas.text(x, y, 1, glyph, style);
    }
    let x = columns.end() + 1;
    let room = canvas.width().saturating_sub(x + 1);
    let dim = canvas.theme.dim;
    let worst = row.verdicts.iter().filter(|(_, verdict)| Some(verdict.mark) == worst);
    let mut worst: Vec<(&HostId, &Verdict)> = worst.collect();
    worst.sort_by_key(|(host, _)| columns.hosts.iter().position(|one| one == *host));
    if let Some((host, verdict)) = worst.first().filter(|_| troubled) {
        let more = if worst.len() > 1 { format!(" and {} more", worst.len() - 1) } else { String::new() };
        canvas.text(x, y, room, &format!("{host}{more}: {}", sanitize(&verdict.evidence)), plain);
    } else {
        // what all have in common tells more than the question
        let mut good = row.verdicts.values().filter(|verdict| verdict.mark == Mark::Good);
        let first = good.next();
        let common = first.filter(|first| good.all(|other| other.evidence == first.evidence));
        canvas.text(x, y, room, common.map_or(row.asks, |verdict| verdict.evidence.as_str()), dim);
    }
}

/// The chosen cell in words.
fn cell(model: &Model, canvas: &mut Canvas<'_>) {
    let band = doctor_cell((canvas.width(), canvas.height()));
    let dim = canvas.theme.dim;
    let Some((host, verdict)) = model.ui.doctor.chosen() else { return };
    let Some(row) = model.ui.doctor.row() else { return };
    let w = canvas.width();
    canvas.text(0, band.y, w, &"─".repeat(usize::from(w)), dim);
    let (glyph, mark) = style(canvas, verdict.map(|verdict| verdict.mark));
    let title = [
        (format!(" {glyph} "), mark),
        (format!("{} on {host} ", row.check), canvas.theme.strong()),
        (format!("· {}? ", row.asks), dim),
    ];
    canvas.pieces(1, band.y, w - 1, &title);
    let list = band.below_head();
    let Some(verdict) = verdict else {
        canvas.text(2, list.y, w - 3, "no answer yet", dim);
        return;
    };
    let plain = canvas.theme.text;
    let parts = [
        ("", Some(&verdict.evidence), plain),
        ("why  ", verdict.cause.as_ref(), plain),
        ("fix  ", verdict.remedy.as_ref(), canvas.theme.accent),
    ];
    let mut y = list.y;
    for (name, text, style) in parts {
        let Some(text) = text else { continue };
        let x = 2 + width(name);
        for (at, words) in broken(&sanitize(text), usize::from(w.saturating_sub(x + 1))).iter().enumerate() {
            if y >= list.y + list.h {
                let more = " … enter: the whole ";
                let x = w.saturating_sub(width(more) + 1);
                canvas.text(x, y.saturating_sub(1), width(more), more, dim);
                return;
            }
            if at == 0 {
                canvas.text(2, y, width(name), name, dim);
            }
            canvas.text(x, y, w - x - 1, words, style);
            y += 1;
        }
    }
}
