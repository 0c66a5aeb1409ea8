//! The Launch screen: the form above, what will run below.

use ratatui::style::Modifier;

use super::columns::{Wish, fit};
use super::pen::Pen;
use crate::domain::run::{Placement, RankSpec};
use crate::tui::core::Model;
use crate::tui::core::launch::{Field, LaunchForm};
use crate::tui::core::words::{join, wrap};

/// First row of the form.
const FORM: u16 = 2;
/// Where the fields' texts begin.
const TEXT: u16 = 13;
/// Variables that say the most, shown first.
const FIRST_ENV: [&str; 6] =
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT"];

/// Draws the screen; returns where the text cursor stands.
pub(super) fn draw(model: &Model, pen: &mut Pen<'_>) -> Option<(u16, u16)> {
    let form = &model.ui.launch;
    let (strong, dim) = (pen.theme.strong(), pen.theme.dim);
    pen.text(1, 0, 10, "Launch", strong);
    pen.right(20, 0, pen.width().saturating_sub(21), "esc back   enter start", dim);
    let mut cursor = None;
    for (line, field) in Field::ALL.into_iter().enumerate() {
        let at = draw_field(form, pen, FORM + line as u16, field);
        cursor = cursor.or(at);
    }
    let rule = FORM + Field::ALL.len() as u16 + u16::from(pen.height() > 18);
    will_run(form, pen, rule);
    cursor
}

fn draw_field(form: &LaunchForm, pen: &mut Pen<'_>, y: u16, field: Field) -> Option<(u16, u16)> {
    let focused = form.focus == field;
    let (accent, dim, text, bad) = (pen.theme.accent, pen.theme.dim, pen.theme.text, pen.theme.bad);
    if focused {
        pen.text(0, y, 1, "▌", accent);
    }
    let label = if focused { accent.add_modifier(Modifier::BOLD) } else { dim };
    pen.text(2, y, TEXT - 3, field.label(), label);
    let room = pen.width().saturating_sub(TEXT + 1);
    if field == Field::Kind {
        let kind = form.kind.map_or("guessed from the command", crate::domain::run::JobKind::name);
        let end = pen.text(TEXT, y, room, kind, text);
        if focused {
            pen.text(end + 2, y, pen.width().saturating_sub(end + 3), field.hint(), dim);
        }
        return focused.then_some((TEXT, y));
    }
    let input = &form.inputs[field as usize];
    let error = form.error(field).map(|error| format!("✖ {error}"));
    let kept = error.as_ref().map_or(0, |error| super::pen::width(error) + 3).min(room / 2);
    let text_room = room.saturating_sub(kept).max(8);
    let scroll = if focused { input.visual_scroll(usize::from(text_room) - 1) } else { 0 };
    let shown: String = input.value().chars().skip(scroll).collect();
    let end = if input.value().is_empty() && error.is_none() {
        let hint = form.when_empty(field);
        pen.text(TEXT + u16::from(focused), y, room, &hint, dim.add_modifier(Modifier::ITALIC))
    } else if focused && field == Field::Command && form.untouched && error.is_none() {
        // as a marked text elsewhere: the next letter replaces it
        let end = pen.text(TEXT, y, text_room, &shown, text.add_modifier(Modifier::REVERSED));
        let room = pen.width().saturating_sub(end + 4);
        pen.text(end + 3, y, room, "typing replaces it, → edits it", dim)
    } else {
        pen.text(TEXT, y, text_room, &shown, text)
    };
    if let Some(error) = error {
        let at = end.max(TEXT) + 2;
        pen.text(at, y, pen.width().saturating_sub(at + 1), &error, bad);
    }
    let column = TEXT + input.visual_cursor().saturating_sub(scroll) as u16;
    focused.then_some((column.min(pen.width() - 1), y))
}

fn will_run(form: &LaunchForm, pen: &mut Pen<'_>, y: u16) {
    let (text, dim, bad, good) = (pen.theme.text, pen.theme.dim, pen.theme.bad, pen.theme.good);
    let state = match (&form.plan, form.request.is_some()) {
        _ if form.waits.is_some() => {
            ("waiting until they are free · esc leaves the queue".to_owned(), pen.theme.accent)
        }
        _ if form.starting => ("starting …".to_owned(), pen.theme.accent),
        (_, false) => (format!("✖ {} to mend above", form.errors.len()), bad),
        (None, true) => ("checking …".to_owned(), dim),
        (Some(Ok(plan)), true) => {
            let count = plan.spec.placements.len();
            (format!("✔ {count} {}, enter starts", super::title::plural(count, "rank")), good)
        }
        (Some(Err(_)), true) if form.busy => {
            ("✖ busy, enter waits until they are free".to_owned(), pen.theme.warn)
        }
        (Some(Err(_)), true) => ("✖ can't start".to_owned(), bad),
    };
    pen.rule(y, &[("will run".to_owned(), text), ("   ".to_owned(), dim), state]);
    let rows = pen.height().saturating_sub(y + 2);
    match &form.plan {
        Some(Err(reason)) if form.request.is_some() => {
            let reason = crate::domain::text::sanitize(reason).into_owned();
            let lines = wrap(&reason, usize::from(pen.width()) - 4);
            for (line, row) in lines.iter().zip(0..rows) {
                let room = pen.width() - 3;
                pen.text(2, y + 1 + row, room, line, bad);
            }
        }
        Some(Ok(plan)) => ranks(form, pen, y + 1, rows, &plan.ranks().collect::<Vec<_>>()),
        _ => {}
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Rank,
    Place,
    Command,
    Env,
}

fn ranks(form: &LaunchForm, pen: &mut Pen<'_>, y: u16, rows: u16, ranks: &[(&Placement, &RankSpec)]) {
    let widest = |texts: Vec<String>| texts.iter().map(|text| super::pen::width(text)).max().unwrap_or(0);
    let place = widest(ranks.iter().map(|(placement, _)| placement.to_string()).collect()).clamp(5, 18);
    let command = widest(ranks.iter().map(|(_, rank)| join(&rank.argv)).collect()).clamp(7, 60);
    let wish = |id, title, least, most, rank, right| Wish { id, title, least, most, rank, right };
    let wishes = [
        wish(Col::Rank, "RANK", 4, 4, 0, true),
        wish(Col::Place, "PLACE", place, place, 1, false),
        wish(Col::Command, "COMMAND", command.min(24), command, 2, false),
        wish(Col::Env, "WITH", 12, 400, 3, false),
    ];
    let columns = fit(&wishes, 2, pen.width().saturating_sub(3), 2);
    let (text, dim) = (pen.theme.text, pen.theme.dim);
    for column in &columns {
        if column.right {
            pen.right(column.x, y, column.w, column.title, dim);
        } else {
            pen.text(column.x, y, column.w, column.title, dim);
        }
    }
    // with room to spare the variables take as many lines as they need
    let env_width =
        columns.iter().find(|column| column.id == Col::Env).map_or(400, |column| usize::from(column.w));
    let longest = ranks.iter().map(|(_, rank)| wrap(&env_words(rank), env_width).len()).max().unwrap_or(1);
    let lines = (usize::from(rows.saturating_sub(1)) / ranks.len().max(1)).clamp(1, longest.max(1));
    let room = usize::from(rows.saturating_sub(1)) / lines;
    let hidden = ranks.len().saturating_sub(form.scroll + room);
    for (line, (placement, rank)) in ranks.iter().skip(form.scroll).take(room).enumerate() {
        let row = y + 1 + (line * lines) as u16;
        if hidden > 0 && line + 1 == room {
            pen.text(2, row, pen.width() - 3, &format!("↓ {} more ranks · pgdn", hidden + 1), dim);
            break;
        }
        for column in &columns {
            let (x, w) = (column.x, column.w);
            match column.id {
                Col::Rank => pen.right(x, row, w, &placement.rank.to_string(), text),
                Col::Place => drop(pen.name(x, row, w, &placement.to_string(), text)),
                Col::Command => drop(pen.text(x, row, w, &join(&rank.argv), text)),
                Col::Env if lines == 1 => drop(pen.text(x, row, w, &env_words(rank), dim)),
                Col::Env => {
                    for (words, row) in wrap(&env_words(rank), env_width).iter().take(lines).zip(row..) {
                        pen.text(x, row, w, words, dim);
                    }
                }
            }
        }
    }
}

fn env_words(rank: &RankSpec) -> String {
    let first = FIRST_ENV.iter().filter_map(|name| rank.env.get_key_value(*name));
    let rest = rank.env.iter().filter(|(name, _)| !FIRST_ENV.contains(&name.as_str()));
    let pairs = first.chain(rest).map(|(name, value)| format!("{name}={}", join(&[value])));
    pairs.collect::<Vec<_>>().join(" ")
}
