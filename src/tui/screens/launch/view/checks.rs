//! What the hosts find before the start: a line for hosts that find the same, what is wrong first.

use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::launch::checks::{CheckLine, is_looking, lines};

/// Rows of a terminal below which only what is wrong has a line.
const ROOMY: u16 = 30;
/// And below which they have no row at all while nothing is wrong.
const LEAST: u16 = 20;
/// Columns of the hosts' names at most.
const NAMES: usize = 24;

/// The hosts of a line.
fn names(line: &CheckLine) -> String {
    let all: Vec<&str> = line.hosts.iter().map(HostId::as_str).collect();
    match all.len() {
        0..=3 => middle_cut(&all.join(" "), NAMES),
        many => format!("{many} hosts"),
    }
}

/// Draws them from row `y` on; returns the row below.
pub(super) fn draw(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> u16 {
    let lines = lines(model);
    let well = lines.iter().all(|line| line.mark.is_none_or(|mark| mark == Mark::Good));
    if lines.is_empty() || well && canvas.height() < LEAST {
        return y;
    }
    let (text, dim) = (canvas.theme.text, canvas.theme.dim);
    let (good, warn, bad) = (canvas.theme.good, canvas.theme.warn, canvas.theme.bad);
    let look = |mark: Option<Mark>| match mark {
        None => ("·", dim),
        Some(Mark::Good) => ("✔", good),
        Some(Mark::Unknown) => ("?", warn),
        Some(Mark::Look) => ("⚠", warn),
        Some(Mark::Bad) => ("✖", bad),
    };
    // the plan below has a head and two ranks at least
    let room = canvas.height().saturating_sub(y + 1);
    if room < 6 {
        // what keeps it from starting has a row all the same, in the place of one of the plan
        return match lines.first().filter(|line| line.mark == Some(Mark::Bad) && room > 2) {
            Some(line) => {
                let hosts = names(line);
                let (glyph, _) = look(line.mark);
                let words = format!("{glyph} {hosts}  {}", sanitize(&line.text));
                canvas.text(2, y, canvas.width().saturating_sub(3), &words, bad);
                y + 1
            }
            None => y,
        };
    }
    let most = usize::from((canvas.height() / 6).min(room - 5).max(1));
    let worst = lines.first().and_then(|line| line.mark);
    let state = match worst {
        None => ("asking the hosts …".to_owned(), dim),
        Some(Mark::Good) if lines.iter().all(|line| line.mark.is_some()) && !is_looking(model) => {
            ("✔ all hosts of the plan".to_owned(), good)
        }
        Some(Mark::Good) => ("✔ so far".to_owned(), dim),
        Some(Mark::Bad) => ("✖ the start would fail".to_owned(), bad),
        Some(_) => ("⚠ look".to_owned(), warn),
    };
    canvas.rule(y, &[("checks".to_owned(), text), ("   ".to_owned(), dim), state]);
    // on a small terminal the rule says that all is well
    let roomy = canvas.height() >= ROOMY;
    let shown: Vec<_> =
        lines.iter().filter(|line| roomy || line.mark.is_some_and(|mark| mark > Mark::Good)).collect();
    let column = shown.iter().take(most).map(|line| width(&names(line))).max().unwrap_or(0);
    let mut row = y + 1;
    // what keeps it from starting is shown whole, with what helps, as far as there is room
    let mut spare = most.saturating_sub(shown.len());
    for (at, line) in shown.iter().enumerate() {
        if at + 1 == most && shown.len() > most {
            let hosts: usize = shown[at..].iter().map(|line| line.hosts.len()).sum();
            canvas.text(2, row, canvas.width() - 3, &format!("↓ {hosts} more hosts"), dim);
            return row + 1;
        }
        let (glyph, style) = look(line.mark);
        canvas.text(2, row, 1, glyph, style);
        canvas.text(4, row, column, &names(line), text);
        let x = 4 + column + 2;
        let style = if line.mark == Some(Mark::Bad) { bad } else { dim };
        let room = canvas.width().saturating_sub(x + 1);
        let words = sanitize(&line.text);
        let wrapped = if line.mark == Some(Mark::Bad) { wrap(&words, usize::from(room)) } else { Vec::new() };
        let rows = wrapped.len().min(1 + spare);
        spare -= rows.saturating_sub(1);
        for whole in wrapped.iter().take(rows.saturating_sub(1)) {
            canvas.text(x, row, room, whole, style);
            row += 1;
        }
        // the last one says that there is more
        let rest = wrapped.get(rows.saturating_sub(1)..).unwrap_or_default().join(" ");
        canvas.text(x, row, room, if rest.is_empty() { &words } else { &rest }, style);
        row += 1;
    }
    row
}
