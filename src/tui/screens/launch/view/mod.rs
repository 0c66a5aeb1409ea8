//! The Launch screen: the form above, what will run below.

mod checks;

use std::ops::Range;

use ratatui::style::{Modifier, Style};

use crate::domain::run::{JobKind, Placement, RankSpec};
use crate::launch::words::join;
use crate::tui::canvas::columns::{ColumnSpec, fit};
use crate::tui::canvas::{Canvas, skip_columns, width};
use crate::tui::core::keymap::Action;
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::launch::checks::would_fail;
use crate::tui::screens::launch::{Fault, Field, LaunchForm, completion, fields, lost_picks};
use crate::tui::screens::view::title::plural;

/// First row of the form.
const FORM: u16 = 2;
/// Rows of a terminal in which the command always has a line below it.
const ROOMY: u16 = 18;
/// Rows that remarks leave to the ranks.
const LEAST_RANKS: u16 = 3;
/// Rows that the form leaves to what will run and to the footer, at least.
const LEAST_BELOW: u16 = 3;
/// Where the fields' texts begin.
const TEXT: u16 = 13;
/// Variables that say the most, shown first.
const FIRST_ENV: [&str; 6] =
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT"];

/// Draws the screen; returns where the text cursor stands.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    let form = &model.ui.launch;
    let (strong, dim) = (canvas.theme.strong(), canvas.theme.dim);
    canvas.text(1, 0, 10, "Launch", strong);
    for (columns, words, action) in header(canvas.width()) {
        if action == Action::Start && form.waits.is_some() {
            continue;
        }
        canvas.text(columns.start, 0, columns.end - columns.start, words, dim);
    }
    let lines = lines(model, canvas.height());
    let mut cursor = None;
    for (y, field) in lines.shown {
        let at = draw_field(model, canvas, y, field);
        cursor = cursor.or(at);
        if field == Field::Command && lines.has_below {
            below_command(form, canvas, y + 1);
        }
    }
    if !lines.folded.is_empty() {
        draw_folded(canvas, lines.end - 1, &lines.folded);
    }
    let y = lines.end;
    let apart = u16::from(canvas.height() > 30 && !form.focus.is_rare());
    let y = checks::draw(model, canvas, y + apart);
    will_run(model, canvas, y);
    cursor
}

/// The keys that the first line names at its right: where they stand, and what they mean.
fn header(columns: u16) -> [(Range<u16>, &'static str, Action); 2] {
    let (back, start) = ("esc back", "enter start");
    let end = columns.saturating_sub(1);
    let at = end.saturating_sub(width(start));
    let before = at.saturating_sub(3);
    [(before.saturating_sub(width(back))..before, back, Action::Back), (at..end, start, Action::Start)]
}

/// What the words at a column of the first line mean.
pub(in crate::tui::screens) fn action_at(model: &Model, column: u16) -> Option<Action> {
    let header = header(model.size.0);
    header.into_iter().find(|(columns, ..)| columns.contains(&column)).map(|(.., action)| action)
}

/// Where the fields stand.
struct Lines {
    /// Row and field.
    shown: Vec<(u16, Field)>,
    /// Those that say nothing: one line, the last one.
    folded: Vec<Field>,
    /// Whether the line below the command is kept for what is said of it.
    has_below: bool,
    /// The row below all of them.
    end: u16,
}

fn lines(model: &Model, height: u16) -> Lines {
    let form = &model.ui.launch;
    let (folded, shown): (Vec<Field>, Vec<Field>) = fields(model).partition(|field| form.is_folded(*field));
    // a line of its own for what is said of the command, also while there is nothing: then nothing moves
    let has_below = height > ROOMY || form.error(Field::Command).is_some();
    let count = shown.len() + usize::from(has_below) + usize::from(!folded.is_empty());
    let room = usize::from(height.saturating_sub(FORM + LEAST_BELOW));
    let focused = shown.iter().position(|field| *field == form.focus).unwrap_or(0);
    // where the form is too high its first lines go, as far as the cursor allows
    let hidden = count.saturating_sub(room).min(focused);
    let mut y = FORM;
    let mut rows = Vec::new();
    for field in shown.into_iter().skip(hidden) {
        rows.push((y, field));
        y += 1 + u16::from(field == Field::Command && has_below);
    }
    let end = y + u16::from(!folded.is_empty());
    Lines { shown: rows, folded, has_below, end }
}

/// The field at a row of the screen; on the line of those that say nothing the one at the column.
pub(in crate::tui::screens) fn field_at(model: &Model, column: u16, row: u16) -> Option<Field> {
    let lines = lines(model, model.area().1);
    if let Some((_, field)) = lines.shown.iter().find(|(y, _)| *y == row) {
        return Some(*field);
    }
    if lines.folded.is_empty() || row + 1 != lines.end {
        return None;
    }
    let mut behind = TEXT;
    lines.folded.into_iter().find(|field| {
        behind += width(&folded_words(*field)) + 3;
        column < behind
    })
}

fn folded_words(field: Field) -> String {
    format!("{} –", field.label())
}

/// Fields that say nothing, in one line.
fn draw_folded(canvas: &mut Canvas<'_>, y: u16, folded: &[Field]) {
    let dim = canvas.theme.dim;
    canvas.text(2, y, TEXT - 3, "more", dim);
    let text: Vec<String> = folded.iter().map(|field| folded_words(*field)).collect();
    canvas.text(TEXT, y, canvas.width().saturating_sub(TEXT + 1), &text.join("   "), dim);
}

fn draw_field(model: &Model, canvas: &mut Canvas<'_>, y: u16, field: Field) -> Option<(u16, u16)> {
    let form = &model.ui.launch;
    let focused = form.focus == field;
    let (accent, dim, text, bad) =
        (canvas.theme.accent, canvas.theme.dim, canvas.theme.text, canvas.theme.bad);
    if focused {
        canvas.text(0, y, 1, "▌", accent);
    }
    let label = if focused { accent.add_modifier(Modifier::BOLD) } else { dim };
    canvas.text(2, y, TEXT - 3, field.label(), label);
    let room = canvas.width().saturating_sub(TEXT + 1);
    if field.is_choice() {
        choice(model, canvas, y, field);
        return focused.then_some((TEXT, y));
    }
    let input = &form.inputs[field as usize];
    // the command's fault stands below it
    let error = form.error(field).filter(|_| field != Field::Command);
    let error = error.map(|error| format!("✖ {}", error.text));
    let kept = error.as_ref().map_or(0, |error| width(error) + 3).min(room / 2);
    let text_room = room.saturating_sub(kept).max(8);
    let scroll = scroll_of(form, field, text_room);
    // the mark stands in the place of the first column that is shown
    let (mark, behind) = if scroll > 0 { ("…", 1) } else { ("", 0) };
    let shown = &format!("{mark}{}", skip_columns(input.value(), scroll + behind));
    let end = if input.value().is_empty() && error.is_none() {
        let hint = form.when_empty(field).replace("← →", canvas.theme.left_right());
        canvas.text(TEXT + u16::from(focused), y, room, &hint, dim.add_modifier(Modifier::ITALIC))
    } else if focused && form.is_replaced(field) && form.error(field).is_none() {
        // as a marked text elsewhere: the next letter replaces it
        let end = canvas.text(TEXT, y, text_room, shown, text.add_modifier(Modifier::REVERSED));
        let room = canvas.width().saturating_sub(end + 4);
        let is_suggested = field == Field::Ranks && form.suggested;
        let words = if is_suggested {
            "suggested; typing replaces it".to_owned()
        } else {
            format!("typing replaces it, {} edits it", canvas.theme.right())
        };
        canvas.text(end + 3, y, room, &words, dim)
    } else {
        let end = canvas.text(TEXT, y, text_room, shown, text);
        match completion::suggestion(model).filter(|_| focused) {
            Some(rest) => completion_words(canvas, (end, y), &rest),
            None if field == Field::Ranks && form.suggested && error.is_none() => {
                canvas.text(end + 3, y, canvas.width().saturating_sub(end + 4), "suggested", dim)
            }
            None => end,
        }
    };
    if let Some(error) = error {
        let at = end.max(TEXT) + 2;
        canvas.text(at, y, canvas.width().saturating_sub(at + 1), &error, bad);
    }
    let column = TEXT + input.visual_cursor().saturating_sub(scroll) as u16;
    focused.then_some((column.min(canvas.width() - 1), y))
}

/// What may follow, and the key that takes it. Returns where it ends.
fn completion_words(canvas: &mut Canvas<'_>, (x, y): (u16, u16), rest: &str) -> u16 {
    let dim = canvas.theme.dim;
    let key = format!("[{}]", canvas.theme.right());
    let room = canvas.width().saturating_sub(x + 1);
    // in a terminal without colours it must not look typed
    let end =
        canvas.text(x, y, room.saturating_sub(2 + width(&key)), rest, dim.add_modifier(Modifier::ITALIC));
    canvas.text(end + 2, y, canvas.width().saturating_sub(end + 3), &key, dim)
}

/// Characters of a field's text that stand left of what is shown.
fn scroll_of(form: &LaunchForm, field: Field, room: u16) -> usize {
    let input = &form.inputs[field as usize];
    if form.focus == field { input.visual_scroll(usize::from(room) - 1) } else { 0 }
}

fn choice(model: &Model, canvas: &mut Canvas<'_>, y: u16, field: Field) {
    let form = &model.ui.launch;
    let (dim, text) = (canvas.theme.dim, canvas.theme.text);
    let room = canvas.width().saturating_sub(TEXT + 1);
    let chosen = match field {
        Field::Recipe => form.recipe.and_then(|at| model.recipes.get(at)).and_then(|one| one.name.clone()),
        _ => form.kind.map(|kind| kind.name().to_owned()),
    };
    let count = model.recipes.len();
    let end = match (chosen, field) {
        (Some(chosen), _) => canvas.text(TEXT, y, room, &chosen, text),
        (None, Field::Recipe) => {
            let none = format!("none of {count} in the hosts file");
            canvas.text(TEXT, y, room, &none, dim.add_modifier(Modifier::ITALIC))
        }
        (None, _) => canvas.text(TEXT, y, room, &form.when_empty(field), dim.add_modifier(Modifier::ITALIC)),
    };
    if form.focus == field {
        canvas.text(end + 2, y, canvas.width().saturating_sub(end + 3), field.hint(), dim);
    }
}

/// The line below the command: a caret under its fault, or how a launcher's line was understood.
fn below_command(form: &LaunchForm, canvas: &mut Canvas<'_>, y: u16) {
    let room = canvas.width().saturating_sub(TEXT + 1);
    let (bad, warn, good) = (canvas.theme.bad, canvas.theme.warn, canvas.theme.good);
    if let Some(fault) = form.error(Field::Command) {
        let Some((before, under)) = caret(form, fault, room) else {
            canvas.text(TEXT, y, room, &format!("✖ {}", fault.text), bad);
            return;
        };
        let at = TEXT + before;
        let end = canvas.text(at, y, room - before, &"^".repeat(usize::from(under)), bad);
        let text = format!("✖ {}", fault.text);
        let right = canvas.width().saturating_sub(end + 2);
        let long = width(&text);
        // where it fits on neither side it stands in full below the form alone
        if long <= right {
            canvas.text(end + 1, y, right, &text, bad);
        } else if long < before {
            canvas.text(TEXT, y, before - 1, &text, bad);
        }
        return;
    }
    let Some(line) = &form.line else { return };
    if line.kind == Some(JobKind::Plain) && line.remarks.iter().any(|remark| remark.contains("one process")) {
        canvas.text(TEXT, y, room, "⚠ a launcher's line that is given to its own launcher, once", warn);
    } else if line.options.delegate.is_some() {
        canvas.text(TEXT, y, room, "⚠ not understood in full: its own launcher starts the ranks", warn);
    } else {
        canvas.text(TEXT, y, room, "✔ understood: one run; the fields below show what the line says", good);
    }
}

/// Columns before the caret and under it, where its place is in the part of the command that is shown.
fn caret(form: &LaunchForm, fault: &Fault, room: u16) -> Option<(u16, u16)> {
    let (at, len) = fault.place?;
    let text = form.text(Field::Command);
    let scroll = scroll_of(form, Field::Command, room);
    let from = text.char_indices().nth(scroll).map_or(text.len(), |(from, _)| from);
    let before = width(text.get(from..at.min(text.len()))?);
    let under = width(text.get(at..(at + len).min(text.len())).unwrap_or("")).max(1);
    (before < room).then(|| (before, under.min(room - before)))
}

fn will_run(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let form = &model.ui.launch;
    let (text, dim, bad, good) = (canvas.theme.text, canvas.theme.dim, canvas.theme.bad, canvas.theme.good);
    let state = match (&form.plan, form.request.is_some()) {
        _ if form.waits.is_some() => {
            ("waiting until they are free · esc leaves the queue".to_owned(), canvas.theme.accent)
        }
        _ if form.starting && form.placed_again => {
            ("another launch was faster: placed again … · esc calls it off".to_owned(), canvas.theme.accent)
        }
        _ if form.starting => ("starting …".to_owned(), canvas.theme.accent),
        (_, false) if form.awaited.is_some() => ("reading the host file …".to_owned(), dim),
        (_, false) => (format!("✖ {}", form.to_fix()), bad),
        (None, true) => ("checking …".to_owned(), dim),
        (Some(Ok(plan)), true) => {
            let ranks = plural(plan.spec.placements.len(), "rank");
            let ranks = format!("{} {ranks}", plan.spec.placements.len());
            match (would_fail(model), form.warned == Some(form.checks.asked)) {
                (false, _) => (format!("✔ {ranks}, enter starts"), good),
                (true, false) => (format!("✖ a check failed, enter twice starts {ranks} all the same"), bad),
                (true, true) => (format!("✖ a check failed, enter starts {ranks} all the same"), bad),
            }
        }
        (Some(Err(error)), true) if error.busy().is_some() => {
            ("✖ busy, enter waits until they are free".to_owned(), canvas.theme.warn)
        }
        (Some(Err(error)), true) if error.is_waiting() => {
            let starts = if form.hurried { "starts" } else { "enter starts" };
            (format!("{starts} as soon as they answer"), canvas.theme.accent)
        }
        (Some(Err(_)), true) => ("✖ can't start".to_owned(), bad),
    };
    canvas.rule(y, &[("will run".to_owned(), text), ("   ".to_owned(), dim), state]);
    let end = canvas.height().saturating_sub(1);
    let mut y = y + 1;
    // where not all of them have room, that of the field with the cursor has
    let (here, elsewhere): (Vec<&Fault>, Vec<&Fault>) =
        form.errors.iter().partition(|fault| fault.field == form.focus);
    for fault in here.into_iter().chain(elsewhere) {
        let words = format!("✖ {}: {}", fault.field.label(), fault.text);
        y = paragraph(canvas, y, end, &model.hosts_option.with(&words), bad);
    }
    if let (Some(Err(error)), true) = (&form.plan, form.request.is_some()) {
        let style = if error.is_waiting() { text } else { bad };
        // while it waits nothing of it goes stale: these words tell no ages
        match form.waits.as_deref().or(error.busy()) {
            // a line for each host
            Some(busy) => {
                for part in busy.split("; ") {
                    y = paragraph(canvas, y, end, part, style);
                }
            }
            None => y = paragraph(canvas, y, end, &model.hosts_option.with(&error.reason), style),
        }
    }
    for words in lost_picks(model) {
        let warn = canvas.theme.warn;
        y = paragraph(canvas, y, end, &format!("⚠ {words}"), warn);
    }
    y = notes(form, canvas, y, end);
    // a head and a line, or nothing: the row below is the footer's
    if let (Some(Ok(plan)), true) = (&form.plan, form.request.is_some() && y + 1 < end) {
        ranks(form, canvas, y, end.saturating_sub(y), &plan.ranks().collect::<Vec<_>>());
    }
}

/// Writes a text in as many lines as it needs above row `end`; returns the row below.
fn paragraph(canvas: &mut Canvas<'_>, y: u16, end: u16, text: &str, style: Style) -> u16 {
    let text = crate::domain::text::sanitize(text).into_owned();
    let mut y = y;
    for (at, line) in wrap(&text, paragraph_width(canvas)).iter().enumerate() {
        if y >= end {
            break;
        }
        let indent = if at > 0 && text.starts_with(['✖', '⚠']) { 2 } else { 0 };
        canvas.text(2 + indent, y, canvas.width() - 3 - indent, line, style);
        y += 1;
    }
    y
}

/// What is to know about the launch, above its ranks: some rows are left to these, where there are enough. What only informs leaves
/// room for all of them, unless it was scrolled to.
fn notes(form: &LaunchForm, canvas: &mut Canvas<'_>, y: u16, end: u16) -> u16 {
    let (warn, dim) = (canvas.theme.warn, canvas.theme.dim);
    let shared = matches!(&form.plan, Some(Ok(_))) && end.saturating_sub(y) > LEAST_RANKS + 1;
    let ranks = match &form.plan {
        Some(Ok(plan)) if shared => plan.spec.placements.len() + 1,
        _ => 0,
    };
    let above = end.saturating_sub(u16::try_from(ranks).unwrap_or(u16::MAX));
    let end = if shared { end - LEAST_RANKS } else { end };
    let notes = form.notes();
    let mut y = y;
    for (at, note) in notes.iter().enumerate().skip(form.scroll) {
        let rest = &notes[at..];
        let style = if note.warns { warn } else { dim };
        let more = u16::from(rest.len() > 1);
        let lines = wrap(&note.text, paragraph_width(canvas)).len() as u16;
        let last = if note.warns { end } else { above.min(end) };
        // one line that is the whole rest takes no more room than the words that it is left out
        if at > form.scroll && (rest.len() > 1 || lines > 1) && y + lines + more > last {
            let warns = rest.iter().filter(|note| note.warns).count();
            let (mark, count, what, style) = match warns {
                0 => ("↓", rest.len(), "line", dim),
                _ if warns == rest.len() => ("⚠", warns, "remark", warn),
                _ => ("⚠", rest.len(), "note", warn),
            };
            let more = format!("{mark} {count} more {} · pgdn", plural(count, what));
            if y < end {
                canvas.text(2, y, canvas.width() - 3, &more, style);
            }
            return (y + 1).min(end);
        }
        y = paragraph(canvas, y, end.saturating_sub(more), &note.text, style);
    }
    y
}

/// Columns of a line of a paragraph.
fn paragraph_width(canvas: &Canvas<'_>) -> usize {
    usize::from(canvas.width().saturating_sub(6))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    Rank,
    Place,
    Command,
    Env,
}

fn ranks(form: &LaunchForm, canvas: &mut Canvas<'_>, y: u16, rows: u16, ranks: &[(&Placement, &RankSpec)]) {
    let widest = |texts: Vec<String>| texts.iter().map(|text| width(text)).max().unwrap_or(0);
    let place = widest(ranks.iter().map(|(placement, _)| placement.to_string()).collect()).clamp(5, 18);
    let command = widest(ranks.iter().map(|(_, rank)| join(&rank.argv)).collect())
        .clamp(7, 60)
        .min((canvas.width() / 2).max(24));
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let wishes = [
        wish(Col::Rank, "RANK", 4, 4, 0, true),
        wish(Col::Place, "PLACE", place, place, 1, false),
        wish(Col::Command, "COMMAND", command.min(24), command, 2, false),
        wish(Col::Env, "WITH", 12, 400, 3, false),
    ];
    let columns = fit(&wishes, 2, canvas.width().saturating_sub(3), 2);
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    for column in &columns {
        if column.right {
            canvas.right(column.x, y, column.w, column.title, dim);
        } else {
            canvas.text(column.x, y, column.w, column.title, dim);
        }
    }
    // with room to spare the variables take as many lines as they need
    let env_width =
        columns.iter().find(|column| column.id == Col::Env).map_or(400, |column| usize::from(column.w));
    let longest = ranks.iter().map(|(_, rank)| wrap(&env_words(rank), env_width).len()).max().unwrap_or(1);
    let lines = (usize::from(rows.saturating_sub(1)) / ranks.len().max(1)).clamp(1, longest.max(1));
    let room = usize::from(rows.saturating_sub(1)) / lines;
    let scroll = form.scroll.saturating_sub(form.notes().len());
    let hidden = ranks.len().saturating_sub(scroll + room);
    for (line, (placement, rank)) in ranks.iter().skip(scroll).take(room).enumerate() {
        let row = y + 1 + (line * lines) as u16;
        if hidden > 0 && line + 1 == room {
            canvas.text(2, row, canvas.width() - 3, &format!("↓ {} more ranks · pgdn", hidden + 1), dim);
            break;
        }
        for column in &columns {
            let (x, w) = (column.x, column.w);
            match column.id {
                Col::Rank => canvas.right(x, row, w, &placement.rank.to_string(), text),
                Col::Place => drop(canvas.name(x, row, w, &placement.to_string(), text)),
                Col::Command => drop(canvas.text(x, row, w, &join(&rank.argv), text)),
                Col::Env if lines == 1 => drop(canvas.text(x, row, w, &env_words(rank), dim)),
                Col::Env => {
                    for (words, row) in wrap(&env_words(rank), env_width).iter().take(lines).zip(row..) {
                        canvas.text(x, row, w, words, dim);
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
    let mut words: Vec<String> = pairs.collect();
    if !rank.defaults.is_empty() {
        words.push("unless the host sets them:".to_owned());
        words.extend(rank.defaults.iter().map(|(name, value)| format!("{name}={}", join(&[value]))));
    }
    words.join(" ")
}
