//! What lies over a screen: help, a question, notices.

pub(in crate::tui::screens) mod dialog;
pub(in crate::tui::screens) mod marks;
pub(in crate::tui::screens) mod palette;
pub(in crate::tui::screens) mod question;
pub(in crate::tui::screens) mod report;
pub(in crate::tui::screens) mod signal;
pub(in crate::tui::screens) mod stacks;
pub(in crate::tui::screens) mod verdict;

use ratatui::style::Style;

use crate::domain::ids::HostId;
use crate::domain::run::{RunSpec, RunStage};
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::{Key, Level};
use crate::tui::screens::model::{Confirm, Overlay};
use crate::tui::screens::overlay::help::Help;
use crate::tui::screens::overlay::prompt::PromptKind;
use crate::tui::screens::overlay::toasts;
use crate::tui::screens::overlay::view::dialog::{Dialog, press};
use crate::tui::screens::runs::spec_elsewhere;
use crate::tui::screens::{Model, entry};

/// Hosts that a question names.
const NAMED: usize = 4;

/// Draws the newest notice in the lines above the footer that [`toasts::rows`] keeps free for it.
pub(in crate::tui::screens) fn notice(model: &Model, canvas: &mut Canvas<'_>) {
    // the filter's two lines stand there while it is typed
    if matches!(&model.ui.overlay, Overlay::Prompt(prompt) if prompt.kind == PromptKind::Filter) {
        return;
    }
    let (w, h) = (canvas.width(), canvas.height());
    let (rows, Some(toast)) = (toasts::rows(model, (w, h)), model.ui.toasts.back()) else { return };
    let (glyph, style) = match toast.level {
        Level::Info => ("·", canvas.theme.accent),
        Level::Warning => ("⚠", canvas.theme.warn),
        Level::Error => ("✖", canvas.theme.bad),
    };
    let y = h - 1 - rows;
    canvas.clear(0, y, w, rows);
    canvas.text(1, y, 1, glyph, style);
    let (lines, more) = toasts::lines(model, w);
    let cut = lines.len() > usize::from(rows);
    for (at, (line, row)) in lines.iter().zip(y..y + rows).enumerate() {
        let is_last = at + 1 == usize::from(rows);
        let line = if is_last && cut { lines[at..].join(" ") } else { line.clone() };
        let tail = if is_last { more.as_str() } else { "" };
        let room = w.saturating_sub(4 + width(tail));
        let end = canvas.text(3, row, room, &line, style);
        canvas.text(end, row, width(tail), tail, canvas.theme.dim);
    }
}

/// Draws help, the palette or a question over the middle; returns where the text cursor stands, if any.
pub(in crate::tui::screens) fn overlay(model: &Model, canvas: &mut Canvas<'_>) -> Option<(u16, u16)> {
    match &model.ui.overlay {
        Overlay::Palette(palette) => return Some(palette::draw(model, palette, canvas)),
        Overlay::None | Overlay::Prompt(_) => {}
        Overlay::Help(first) => help(model, canvas, *first),
        Overlay::Stacks(shown) => {
            crate::tui::screens::overlay::view::stacks::draw(shown, (&model.world, model.now), canvas);
        }
        Overlay::Signal(shown) => signal::draw(shown, canvas),
        Overlay::Marks(list) => marks::draw(model, list, canvas),
        Overlay::Report(shown) => report::draw(model, shown, canvas),
        Overlay::Verdict(first) => verdict::draw(model, *first, canvas),
        Overlay::Confirm(confirm) => {
            let size = (canvas.width(), canvas.height());
            question_of(model, &canvas.theme, size, confirm).draw(canvas);
        }
    }
    None
}

/// The question before something is done, on a screen of some size.
fn question_of(model: &Model, theme: &Theme, size: (u16, u16), confirm: &Confirm) -> Dialog {
    let id = match confirm {
        Confirm::Delete(asked) => {
            return crate::tui::screens::runs::view::delete::dialog(model, theme, size, asked);
        }
        Confirm::Stop(id) => id,
    };
    let followed = model.world.runs.get(id).map(|run| &*run.spec);
    let spec = followed.or_else(|| spec_elsewhere(model, id));
    let name = spec.map_or_else(String::new, |spec| format!(" {}", spec.name));
    let is_stopping =
        model.world.runs.get(id).is_some_and(|run| run.is_live() && run.stage() == Some(RunStage::Stopping));
    let question = if is_stopping {
        format!("Run {}{name} is already stopping. Kill it?", id.short())
    } else {
        format!("Stop run {}{name}?", id.short())
    };
    let mut lines = vec![question];
    lines.extend(spec.map(ranks));
    // also while it stops: a host that can't be reached has not told its ranks yet
    lines.push("Its ranks get TERM, and KILL when their grace is over.".to_owned());
    let widest = lines.iter().map(|line| width(line)).max().unwrap_or(0).max(30);
    let mut choices = vec![press('K', "kill now"), press('n', "no")];
    if !is_stopping {
        choices.insert(0, press('y', "stop"));
    }
    Dialog {
        title: "stop",
        w: (widest + 6).min(size.0),
        lines: lines.into_iter().map(|line| (line, theme.text)).collect(),
        choices,
    }
}

/// The key of such a question whose word stands at a cell of the screen.
pub(in crate::tui::screens) fn answer_at(
    model: &Model,
    confirm: &Confirm,
    column: u16,
    row: u16,
) -> Option<Key> {
    question_of(model, &Theme::colourless(), model.size, confirm).key_at(model.size, column, row)
}

/// The ranks of a run and where they are: `4 ranks on gpu-a gpu-b`.
fn ranks(spec: &RunSpec) -> String {
    let hosts = spec.hosts();
    let count = spec.placements.len();
    let ranks = if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") };
    let more = if hosts.len() > NAMED { format!(" and {} more", hosts.len() - NAMED) } else { String::new() };
    let hosts: Vec<&str> = hosts.iter().take(NAMED).map(HostId::as_str).collect();
    format!("{ranks} on {}{more}", hosts.join(" "))
}

fn help(model: &Model, canvas: &mut Canvas<'_>, first: usize) {
    let screen = entry(model.ui.screen);
    let help = Help::of(model, (canvas.width(), canvas.height()));
    let (w, h, keys_width) = (help.width, help.height, help.keys);
    let (x, y) = ((canvas.width() - w) / 2, 1);
    let (accent, strong, text) = (canvas.theme.accent, canvas.theme.strong(), canvas.theme.text);
    let title = format!("keys of {}", screen.name);
    let (ix, iy, iw, ih) = canvas.frame(x, y, w, h, &title, accent);
    let last = help.last();
    for ((keys, words), row) in help.lines.iter().skip(first.min(last)).zip(iy..iy + ih) {
        canvas.right(ix, row, keys_width, keys, strong);
        canvas.text(ix + keys_width + 2, row, iw.saturating_sub(keys_width + 2), words, text);
    }
    let scroll = format!(" {} scroll · any other key closes ", canvas.theme.up_down());
    let hint = if last > 0 { scroll.as_str() } else { " any key closes " };
    let style: Style = canvas.theme.dim;
    let at = x + w.saturating_sub(width(hint) + 2);
    canvas.text(at, y + h - 1, width(hint), hint, style);
}
