//! The dialog that asks whether to delete: which runs, how large they are, what goes and what stays.

use std::collections::BTreeSet;

use crate::domain::ids::HostId;
use crate::domain::run::RunSummary;
use crate::domain::units;
use crate::tui::canvas::theme::Theme;
use crate::tui::core::words::wrap;
use crate::tui::screens::Model;
use crate::tui::screens::overlay::view::dialog::{Dialog, press};
use crate::tui::screens::runs::delete::Deletion;

/// Columns of the dialog at most.
const WIDEST: u16 = 76;
/// Runs that it names, one a line.
const NAMED: usize = 6;

/// The dialog on a screen of some size.
pub(in crate::tui::screens) fn dialog(
    model: &Model,
    theme: &Theme,
    size: (u16, u16),
    asked: &Deletion,
) -> Dialog {
    let w = WIDEST.min(size.0.saturating_sub(2));
    let room = usize::from(w.saturating_sub(6));
    let runs: Vec<&RunSummary> =
        model.recordings.iter().filter(|recording| asked.runs.contains(&recording.spec.id)).collect();
    let total = units::bytes(runs.iter().map(|run| run.bytes).sum());
    let head = match &runs[..] {
        [run] if asked.runs.len() == 1 => {
            format!("Delete run {} {}, {total}?", run.spec.id.short(), run.spec.name)
        }
        _ if asked.runs.len() == 1 => "Delete this run? It is not recorded here.".to_owned(),
        _ => format!("Delete {} runs, {total} together?", asked.runs.len()),
    };
    let (text, strong, dim, warn) = (theme.text, theme.strong(), theme.dim, theme.warn);
    let mut lines: Vec<(String, _)> = wrap(&head, room).into_iter().map(|line| (line, strong)).collect();
    if runs.len() > 1 {
        for run in runs.iter().take(NAMED) {
            let name = units::middle_cut(&run.spec.name, room.saturating_sub(16));
            lines.push((format!("{}  {:>6}  {name}", run.spec.id.short(), units::bytes(run.bytes)), text));
        }
        if runs.len() > NAMED {
            lines.push((format!("and {} more", runs.len() - NAMED), dim));
        }
    }
    let told = asked.runs.iter().filter_map(|run| model.inventory.shares.get(run));
    let hosts: BTreeSet<&str> = told.flat_map(|shares| shares.keys().map(HostId::as_str)).collect();
    let elsewhere = match hosts.len() {
        0 => String::new(),
        1..=4 => format!(" and on {}", hosts.into_iter().collect::<Vec<_>>().join(", ")),
        many => format!(" and on {many} hosts"),
    };
    let what = format!(
        "This deletes all that hvtui keeps here{elsewhere}: events, logs, timings. There is no replay and no undo \
         afterwards. Files that ranks wrote themselves stay."
    );
    lines.extend(wrap(&what, room).into_iter().map(|line| (line, text)));
    for reason in &asked.kept {
        lines.extend(wrap(&format!("⚠ {reason}"), room).into_iter().map(|line| (line, warn)));
    }
    lines.truncate(usize::from(size.1.saturating_sub(6)));
    Dialog { title: "delete", w, lines, choices: vec![press('y', "delete"), press('n', "no")] }
}
