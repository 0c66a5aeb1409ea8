//! The dialog that sends a signal.

use ratatui::style::Style;

use crate::domain::signal::{FoundProcess, SignalName};
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::tui::canvas::Canvas;
use crate::tui::core::words::wrap;
use crate::tui::screens::overlay::signal::{SignalUi, Step};

/// The widest that the dialog gets.
const WIDEST: u16 = 96;
/// Columns of a process before the reason why it is left alone.
const NAMED: usize = 36;
/// Below this height it has no blank lines.
const ROOMY: u16 = 20;

/// Draws the dialog over the middle of the screen.
pub(in crate::tui::screens) fn draw(shown: &SignalUi, canvas: &mut Canvas<'_>) {
    let roomy = canvas.height() >= ROOMY;
    let w = canvas.width().saturating_sub(4).min(WIDEST);
    let inner = usize::from(w.saturating_sub(5));
    let confirm = matches!(shown.step, Step::Found { confirm: true, .. });
    let (above, keys) = if confirm { sentence(shown, canvas, inner) } else { choices(shown, canvas) };
    let below = remarks(shown, canvas, inner);
    let list = processes(shown, canvas, inner);
    let blank = u16::from(roomy);
    let fixed = 2 + 2 * blank + 2 + above.len() as u16 + below.len() as u16;
    let room = canvas.height().saturating_sub(fixed + 2).max(1);
    let rows = room.min(list.len() as u16);
    let h = (fixed + rows).min(canvas.height());
    let (x, y) = ((canvas.width() - w) / 2, canvas.height().saturating_sub(h) / 2);
    let (accent, strong, dim) = (canvas.theme.accent, canvas.theme.strong(), canvas.theme.dim);
    let title = format!("signal on {}", shown.host);
    let (ix, mut row, iw, ih) = canvas.frame(x, y, w, h, &title, accent);
    let end = row + ih;
    let whom = if shown.tree { " and its tree" } else { "" };
    canvas.name(ix, row, iw, &format!("process {}{whom}: {}", shown.process.pid, shown.command), strong);
    row += 1 + blank;
    for (text, style) in above.iter().chain(list.iter().take(usize::from(rows))) {
        canvas.text(ix, row, iw, text, *style);
        row += 1;
    }
    for (text, style) in &below {
        canvas.text(ix, row, iw, text, *style);
        row += 1;
    }
    let mut at = ix;
    for (key, word) in keys {
        at = canvas.text(at, end - 1, 6, key, strong) + 1;
        at = canvas.text(at, end - 1, 24, word, dim) + 3;
    }
}

type Line = (String, Style);
type Keys = &'static [(&'static str, &'static str)];

fn choices(shown: &SignalUi, canvas: &Canvas<'_>) -> (Vec<Line>, Keys) {
    let theme = &canvas.theme;
    let line = |signal: SignalName| {
        let chosen = signal == shown.signal;
        let mark = if chosen { "›" } else { " " };
        let style = if chosen { theme.strong() } else { theme.text };
        (format!("{mark} {:<5} {}", signal.name(), signal.meaning()), style)
    };
    let mut lines: Vec<Line> = SignalName::ALL.into_iter().map(line).collect();
    lines.push((String::new(), theme.text));
    let keys: Keys = match (&shown.step, shown.targets().is_empty(), shown.tree) {
        (Step::Found { .. }, false, false) => {
            &[("↑ ↓", "signal"), ("t", "with its tree"), ("enter", "go on"), ("esc", "close")]
        }
        (Step::Found { .. }, false, true) => {
            &[("↑ ↓", "signal"), ("t", "without its tree"), ("enter", "go on"), ("esc", "close")]
        }
        (_, _, false) => &[("t", "with its tree"), ("esc", "close")],
        (_, _, true) => &[("t", "without its tree"), ("esc", "close")],
    };
    (lines, keys)
}

fn sentence(shown: &SignalUi, canvas: &Canvas<'_>, inner: usize) -> (Vec<Line>, Keys) {
    let (warn, text) = (canvas.theme.warn, canvas.theme.text);
    let mut lines = vec![("will be sent:".to_owned(), text)];
    lines.extend(wrap(&shown.intent(), inner).into_iter().map(|line| (line, warn)));
    lines.push((String::new(), text));
    (lines, &[("y", "send"), ("n", "back")])
}

/// The processes from the first that is shown on; the reason why one is left alone is whole.
fn processes(shown: &SignalUi, canvas: &Canvas<'_>, inner: usize) -> Vec<Line> {
    let Step::Found { processes, .. } = &shown.step else { return Vec::new() };
    let lines = |process: &FoundProcess| {
        let Some(why) = &process.refusal else {
            return vec![(format!("  {}", process.words()), canvas.theme.text)];
        };
        let words = format!("✖ {}: {}", middle_cut(&process.words(), NAMED), sanitize(why));
        wrap(&words, inner).into_iter().map(|line| (line, canvas.theme.warn)).collect()
    };
    processes.iter().skip(shown.first).flat_map(lines).collect()
}

fn remarks(shown: &SignalUi, canvas: &Canvas<'_>, inner: usize) -> Vec<Line> {
    let (dim, warn, bad) = (canvas.theme.dim, canvas.theme.warn, canvas.theme.bad);
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
