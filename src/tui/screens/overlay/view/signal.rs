//! The dialog that sends a signal.

use ratatui::style::Style;

use crate::domain::signal::{FoundProcess, SignalName};
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::tui::canvas::theme::Theme;
use crate::tui::canvas::{Canvas, Caps, ColorDepth};
use crate::tui::core::words::wrap;
use crate::tui::core::{Key, ThemeName};
use crate::tui::screens::overlay::signal::{SignalUi, Step};
use crate::tui::screens::overlay::view::dialog::{Choice, Row, enter, esc, press};
use crate::tui::screens::view::processes::age_words;

/// The widest that the dialog gets.
const WIDEST: u16 = 96;
/// Columns of a process before the reason why it is left alone.
const NAMED: usize = 36;
/// Below this height it has no blank lines.
const ROOMY: u16 = 20;

/// What a click hits.
pub(in crate::tui::screens) enum Hit {
    Key(Key),
    Signal(SignalName),
}

type Line = (String, Style);

/// The dialog on a screen of some size.
struct Layout {
    /// Its frame: column, row, width, height.
    frame: (u16, u16, u16, u16),
    /// The signals or the sentence, from this row on.
    above: (u16, Vec<Line>),
    /// As many of the processes as fit, and remarks.
    below: Vec<Line>,
    choices: Vec<Choice>,
    row: Row,
}

fn layout(shown: &SignalUi, theme: &Theme, size: (u16, u16)) -> Layout {
    let w = size.0.saturating_sub(4).min(WIDEST);
    let inner = usize::from(w.saturating_sub(5));
    let (above, choices) =
        if shown.is_confirmed() { sentence(shown, theme, inner) } else { choices(shown, theme) };
    let remarks = remarks(shown, theme, inner);
    let mut below = processes(shown, theme, inner);
    let blank = u16::from(size.1 >= ROOMY);
    let fixed = 2 + 2 * blank + 2 + above.len() as u16 + remarks.len() as u16;
    let room = size.1.saturating_sub(fixed + 2).max(1);
    below.truncate(usize::from(room));
    let h = (fixed + below.len() as u16).min(size.1);
    below.extend(remarks);
    let (x, y) = ((size.0 - w) / 2, size.1.saturating_sub(h) / 2);
    let row = Row { x: x + 2, y: (y + h).saturating_sub(2), end: (x + w).saturating_sub(2) };
    Layout { frame: (x, y, w, h), above: (y + 2 + blank, above), below, choices, row }
}

/// Draws the dialog over the middle of the screen.
pub(in crate::tui::screens) fn draw(shown: &SignalUi, canvas: &mut Canvas<'_>) {
    let layout = layout(shown, &canvas.theme, (canvas.width(), canvas.height()));
    let (accent, strong) = (canvas.theme.accent, canvas.theme.strong());
    let (x, y, w, h) = layout.frame;
    let (ix, iy, iw, _) = canvas.frame(x, y, w, h, &title(shown), accent);
    let whom = if shown.tree { " and its tree" } else { "" };
    canvas.name(ix, iy, iw, &format!("process {}{whom}: {}", shown.process.pid, shown.command), strong);
    for ((text, style), row) in layout.above.1.iter().chain(&layout.below).zip(layout.above.0..) {
        canvas.text(ix, row, iw, text, *style);
    }
    layout.row.draw(canvas, &layout.choices);
}

/// Where the process is, whose it is and for how long it has been running: `signal on gpu-a · GPU 0 · li · 2h14`.
fn title(shown: &SignalUi) -> String {
    let user = shown.user.as_deref().unwrap_or("owner unknown");
    let age = shown.age_s.map_or_else(String::new, |age| format!(" · {}", age_words(age)));
    format!("signal on {} · GPU {} · {user}{age}", shown.host, shown.gpu)
}

/// What stands at a cell of a screen of some size, which may show ASCII alone.
pub(in crate::tui::screens) fn hit(
    shown: &SignalUi,
    (size, ascii): ((u16, u16), bool),
    (column, row): (u16, u16),
) -> Option<Hit> {
    let theme = Theme::new(Caps { color: ColorDepth::None, ascii }, ThemeName::Mono);
    let layout = layout(shown, &theme, size);
    if let Some(key) = layout.row.key_at(&layout.choices, column, row) {
        return Some(Hit::Key(key));
    }
    let (x, _, w, _) = layout.frame;
    let inside = !shown.is_confirmed() && column > x && column + 1 < x + w;
    let line = usize::from(row.checked_sub(layout.above.0).filter(|_| inside)?);
    SignalName::ALL.get(line).copied().map(Hit::Signal)
}

fn choices(shown: &SignalUi, theme: &Theme) -> (Vec<Line>, Vec<Choice>) {
    let line = |signal: SignalName| {
        let chosen = signal == shown.signal;
        let mark = if chosen { "›" } else { " " };
        let style = if chosen { theme.strong() } else { theme.text };
        (format!("{mark} {:<5} {}", signal.name(), signal.meaning()), style)
    };
    let mut lines: Vec<Line> = SignalName::ALL.into_iter().map(line).collect();
    lines.push((String::new(), theme.text));
    let mut keys = Vec::new();
    let can_go_on = matches!(shown.step, Step::Found { .. }) && !shown.targets().is_empty();
    if can_go_on {
        keys.push(Choice::Tell(theme.up_down(), "signal"));
    }
    keys.push(press('t', if shown.tree { "without its tree" } else { "with its tree" }));
    if can_go_on {
        keys.push(enter("go on"));
    }
    keys.push(esc("close"));
    (lines, keys)
}

fn sentence(shown: &SignalUi, theme: &Theme, inner: usize) -> (Vec<Line>, Vec<Choice>) {
    let (warn, text) = (theme.warn, theme.text);
    let mut lines = vec![("will be sent:".to_owned(), text)];
    lines.extend(wrap(&shown.intent(), inner).into_iter().map(|line| (line, warn)));
    lines.push((String::new(), text));
    (lines, vec![press('y', "send"), press('n', "back")])
}

/// The processes from the first that is shown on; the reason why one is left alone is whole.
fn processes(shown: &SignalUi, theme: &Theme, inner: usize) -> Vec<Line> {
    let Step::Found { processes, .. } = &shown.step else { return Vec::new() };
    let lines = |process: &FoundProcess| {
        let Some(why) = &process.refusal else {
            return vec![(format!("  {}", process.words()), theme.text)];
        };
        let words = format!("✖ {}: {}", middle_cut(&process.words(), NAMED), sanitize(why));
        wrap(&words, inner).into_iter().map(|line| (line, theme.warn)).collect()
    };
    processes.iter().skip(shown.first).flat_map(lines).collect()
}

fn remarks(shown: &SignalUi, theme: &Theme, inner: usize) -> Vec<Line> {
    let (dim, warn, bad) = (theme.dim, theme.warn, theme.bad);
    let (words, style) = match &shown.step {
        Step::Looking => (vec![format!("asking {} which processes it would be …", shown.host)], dim),
        Step::Refused(why) => (wrap(&format!("✖ {why}"), inner), bad),
        Step::Found { processes, note, .. } => {
            let left = processes.len() - shown.targets().len();
            let mut words = Vec::new();
            if left > 0 && left < processes.len() {
                words.push(format!("{left} of {} left alone", processes.len()));
            }
            words.extend(note.iter().flat_map(|note| wrap(&format!("⚠ {note}"), inner)));
            (words, warn)
        }
    };
    words.into_iter().map(|line| (line, style)).collect()
}
