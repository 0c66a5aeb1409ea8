//! The Doctor screen: a line a check, a column a host, and the chosen cell in words below.

use ratatui::style::{Modifier, Style};

use crate::domain::doctor::{Row, Verdict};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::sanitize;
use crate::domain::units::{counted, middle_cut};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::{doctor_cell, doctor_list};
use crate::tui::core::words::{broken, clock_time, more_words};
use crate::tui::screens::Model;
use crate::tui::screens::view::title::{self, plural};

/// Where the hosts' columns begin: behind the mark of the line and the check's name.
const CELLS: u16 = 14;
/// Where what the hosts' names have in common stands at the earliest: behind `CHECK`.
const BEGINNING: u16 = 8;
/// Columns that the words of a line need at least.
const WORDS: u16 = 24;
/// The longest name that a column of its own is made for.
const NAME: u16 = 14;

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    let doctor = &model.ui.doctor;
    let band = doctor_list((canvas.width(), canvas.height()));
    head(model, canvas, usize::from(band.h));
    let dim = canvas.theme.dim;
    let columns = Columns::of(model);
    canvas.text(2, 2, 12, "CHECK", dim);
    let chosen = doctor.chosen().map(|(host, _)| host);
    for (at, host) in columns.shown() {
        if let Some(beginning) = columns.beginning {
            let style = if doctor.host.as_ref() == Some(host) { canvas.theme.strong() } else { dim };
            let name = host.as_str();
            canvas.text(at, 2, columns.each - 1, name.strip_prefix(beginning).unwrap_or(name), style);
        } else if doctor.host.as_ref() == Some(host) {
            canvas.text(at, 2, 1, "▾", canvas.theme.accent);
        }
    }
    if let Some(beginning) = columns.beginning {
        let beginning = middle_cut(&sanitize(beginning), usize::from(CELLS - BEGINNING));
        canvas.right(BEGINNING, 2, CELLS - BEGINNING, &beginning, dim);
    } else {
        let words =
            columns.more_words(canvas.theme.left_right()).unwrap_or_else(|| "a column a host".to_owned());
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

/// How the whole is, how many of the checks stand above and below the `shown` ones, and who is awaited.
fn head(model: &Model, canvas: &mut Canvas<'_>, shown: usize) {
    let doctor = &model.ui.doctor;
    let (dim, text) = (canvas.theme.dim, canvas.theme.text);
    let matrix = &doctor.matrix;
    if matrix.rows.is_empty() {
        let words = if doctor.is_looking { "looking at all hosts" } else { "R looks at all hosts" };
        canvas.text(1, 1, canvas.width().saturating_sub(2), words, dim);
        return;
    }
    let (red, yellow) = (matrix.checks(Mark::Bad), matrix.checks(Mark::Look));
    let hosts = matrix.hosts.len();
    // before all have told, it is not known which checks judge nothing
    let checks = if doctor.is_looking { counted(matrix.rows.len(), "check") } else { matrix.checks_words() };
    let mut pieces = vec![(format!("{}, {checks}   ", counted(hosts, "host")), text)];
    let above = doctor.cursor.offset.min(matrix.rows.len());
    let below = (matrix.rows.len() - above).saturating_sub(shown);
    pieces.extend(more_words(above, below).map(|more| (format!("{more}   "), dim)));
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
    /// Their names stand above them, and what all begin with once before them; `None` where they have no room.
    beginning: Option<&'a str>,
    /// The first that is shown, and how many.
    from: usize,
    count: usize,
}

impl<'a> Columns<'a> {
    fn of(model: &'a Model) -> Self {
        let hosts = &model.ui.doctor.matrix.hosts[..];
        let room = model.size.0.saturating_sub(CELLS + WORDS + 1);
        let beginning = common_beginning(hosts);
        let longest = hosts.iter().map(|host| width(host.as_str())).max().unwrap_or(0);
        let end = longest.saturating_sub(width(beginning)).clamp(1, NAME);
        // a cut name tells nothing where all begin alike
        let whole =
            (longest <= NAME || beginning.is_empty()).then_some((longest.clamp(1, NAME) + 2, Some("")));
        let total = |each: u16| each.saturating_mul(u16::try_from(hosts.len()).unwrap_or(u16::MAX));
        let mut ways = whole.into_iter().chain([(end + 1, Some(beginning)), (2, None)]);
        let way = ways.find(|(each, _)| total(*each) <= room);
        let (each, beginning) = way.unwrap_or((1, None));
        let count = hosts.len().min(usize::from(room / each));
        let on = model.ui.doctor.host.as_ref().and_then(|on| hosts.iter().position(|host| host == on));
        let from = on.map_or(0, |on| (on + 1).saturating_sub(count));
        Self { hosts, each, beginning, from, count }
    }

    fn shown(&self) -> impl Iterator<Item = (u16, &'a HostId)> + use<'a> {
        let each = self.each;
        let shown = self.hosts.iter().skip(self.from).take(self.count).enumerate();
        shown.map(move |(at, host)| (CELLS + each * at as u16, host))
    }

    fn end(&self) -> u16 {
        CELLS + self.each * self.count as u16
    }

    /// How many hosts have no column: `← 5 → 18 more hosts`, with the arrows as the theme has them. `None` where all have one.
    fn more_words(&self, left_right: &str) -> Option<String> {
        let (left, right) = (self.from, self.hosts.len() - self.from - self.count);
        let (to_left, to_right) = left_right.split_once(' ').unwrap_or_default();
        let of =
            |arrow: &str, count: usize| if count > 0 { format!("{arrow} {count} ") } else { String::new() };
        let hosts = plural(left + right, "host");
        (left + right > 0).then(|| format!("{}{}more {hosts}", of(to_left, left), of(to_right, right)))
    }
}

/// What the names of all hosts begin with, up to a number; not the whole of any.
fn common_beginning(hosts: &[HostId]) -> &str {
    let Some(first) = hosts.first().map(HostId::as_str) else { return "" };
    let shared = |other: &HostId| {
        let both = first.char_indices().zip(other.as_str().chars());
        let same = both.take_while(|((_, one), other)| one == other);
        same.map(|((at, c), _)| at + c.len_utf8()).last().unwrap_or(0)
    };
    let shared = hosts.iter().map(shared).min().unwrap_or(0);
    let mut beginning = first[..shared].trim_end_matches(|c: char| c.is_ascii_digit());
    if hosts.iter().any(|host| host.as_str() == beginning) {
        let mut chars = beginning.chars();
        chars.next_back();
        beginning = chars.as_str();
    }
    beginning
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
        canvas.text(x, y, room, &seen(columns.hosts, row), dim);
    }
}

/// What was seen, where nothing is wrong: what the hosts have in common, else what the first of them has. The question, as long as no
/// host has answered it.
fn seen(hosts: &[HostId], row: &Row) -> String {
    let told = |mark: Mark| -> Vec<(&HostId, &Verdict)> {
        let all = hosts.iter().filter_map(|host| Some((host, row.verdicts.get(host)?)));
        all.filter(|(_, verdict)| verdict.mark == mark).collect()
    };
    let good = told(Mark::Good);
    let answers = if good.is_empty() { told(Mark::Unknown) } else { good };
    match answers.split_first() {
        None => row.asks.to_owned(),
        Some(((_, first), rest)) if rest.iter().all(|(_, other)| other.evidence == first.evidence) => {
            first.evidence.clone()
        }
        Some(((host, first), _)) => format!("{host}: {}", first.evidence),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_begin_with_ends_before_a_number_and_leaves_something_of_each() {
        let of = |names: &[&str]| {
            let hosts: Vec<HostId> = names.iter().copied().map(HostId::from).collect();
            common_beginning(&hosts).to_owned()
        };
        assert_eq!(of(&["gpu-01", "gpu-02", "gpu-08"]), "gpu-");
        assert_eq!(of(&["node098", "node099", "node100"]), "node");
        assert_eq!(of(&["gpu-a", "gpu-ab"]), "gpu-");
        assert_eq!(of(&["here", "dead"]), "");
        assert_eq!(of(&["训练节点1", "训练节点2"]), "训练节点");
        assert_eq!((of(&[]), of(&["a"])), (String::new(), String::new()));
    }

    #[test]
    fn a_green_line_says_what_was_seen_and_asks_only_before_an_answer() {
        let hosts = ["gpu-a", "gpu-b", "gpu-c"].map(HostId::from);
        let row = |verdicts: &[Verdict]| {
            let verdicts = hosts.iter().cloned().zip(verdicts.iter().cloned()).collect();
            seen(&hosts, &Row { check: "ports", asks: "are the ports free", verdicts })
        };
        let (good, unknown) = (Verdict::good, Verdict::unknown);
        assert_eq!(row(&[]), "are the ports free");
        assert_eq!(row(&[good("29500 is free"), good("29500 is free")]), "29500 is free");
        assert_eq!(row(&[good("29500 is free"), good("29501 is free")]), "gpu-a: 29500 is free");
        assert_eq!(row(&[unknown("no GPU"), good("driver 550"), good("driver 560")]), "gpu-b: driver 550");
        assert_eq!(row(&[unknown("no GPU"), unknown("no GPU")]), "no GPU");
    }

    #[test]
    fn hosts_without_a_column_are_counted_to_both_sides() {
        let hosts: Vec<HostId> = (0..64).map(|n| HostId::from(format!("n{n}").as_str())).collect();
        let told = |from, count, left_right| {
            Columns { hosts: &hosts, each: 1, beginning: None, from, count }.more_words(left_right)
        };
        let more = |from, count| told(from, count, "← →");
        assert_eq!(more(0, 64), None);
        assert_eq!(more(0, 41).as_deref(), Some("→ 23 more hosts"));
        assert_eq!(more(5, 41).as_deref(), Some("← 5 → 18 more hosts"));
        assert_eq!(more(1, 63).as_deref(), Some("← 1 more host"));
        assert_eq!(
            told(5, 41, "left right").as_deref(),
            Some("left 5 right 18 more hosts"),
            "`<` would be a key"
        );
        assert_eq!(told(0, 64, "left right"), None);
    }
}
