//! What the keys and the mouse do on the Doctor screen.

use super::{checks, height, look, view};
use crate::domain::doctor::{Row, Verdict};
use crate::domain::ids::HostId;
use crate::tui::core::keymap::{Action, Binding, bind, c, k, named};
use crate::tui::core::{Effect, KeyCode, Level, Mouse, MouseKind, layout, list};
use crate::tui::screens::Model;
use crate::tui::screens::overlay::verdict;
use crate::tui::screens::update::wheel;

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(
        &[k(KeyCode::Left)],
        Action::Left,
        "host",
        "the host to the left; before the first: the worst of the check",
    ),
    bind(&[k(KeyCode::Right)], Action::Right, "", "the host to the right"),
    bind(
        &[k(KeyCode::Enter)],
        Action::Open,
        "whole",
        "the whole of the cell: what was seen, why, what helps",
    ),
    bind(&[c('n')], Action::NextMatch, "next trouble", "the next check that is red or yellow"),
    named(&[c('N')], Action::PreviousMatch, "previous trouble", "the previous check that is red or yellow"),
    bind(&[c('R')], Action::Refresh, "look again", "look at all hosts again"),
    bind(
        &[c('y')],
        Action::Copy,
        "copy fix",
        "copy the command that helps, or what to do, to the clipboard: nothing is run by itself",
    ),
    bind(&[k(KeyCode::Esc)], Action::Back, "back", "back to where you came from"),
];

/// Why a key can do nothing as things stand.
pub(super) fn missing(model: &Model, action: Action) -> Option<&'static str> {
    let doctor = &model.ui.doctor;
    let help = || doctor.chosen().and_then(|(_, verdict)| verdict?.help());
    let troubled = || doctor.matrix.rows.iter().any(is_troubled);
    match action {
        Action::Refresh if doctor.is_looking => Some("the hosts are being looked at"),
        Action::Copy if help().is_none() => Some("nothing is wrong there"),
        Action::Open if doctor.row().is_none() => Some("nothing was found yet"),
        Action::NextMatch | Action::PreviousMatch if !troubled() => Some("nothing is wrong"),
        Action::Left | Action::Right if doctor.matrix.hosts.len() < 2 => Some("there is one host alone"),
        _ => None,
    }
}

fn is_troubled(row: &Row) -> bool {
    row.verdicts.values().any(Verdict::is_trouble)
}

/// Does what a key means here.
pub(in crate::tui::screens) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Left => sideways(model, false),
        Action::Right => sideways(model, true),
        Action::NextMatch => next(model, true),
        Action::PreviousMatch => next(model, false),
        Action::Refresh => return look(model),
        Action::Copy => {
            let helps = |(host, verdict): (&HostId, Option<&Verdict>)| {
                let verdict = verdict?;
                let words = match verdict.fix.as_ref().map(|fix| fix.place(host)) {
                    Some(Some(on)) => format!("copied the command for {on}"),
                    Some(None) => "copied the command for this machine".to_owned(),
                    None => "copied what helps".to_owned(),
                };
                Some((verdict.help()?, words))
            };
            if let Some((help, words)) = model.ui.doctor.chosen().and_then(helps) {
                model.notice(Level::Info, words);
                return vec![Effect::Copy(help)];
            }
        }
        Action::Open => verdict::open(model),
        Action::Back => model.ui.back(),
        _ => {
            let (checks, height) = (checks(model), height(model));
            let delta = list::delta(action, height);
            if delta != 0 {
                model.ui.doctor.cursor.move_by(delta, &checks, height);
            }
        }
    }
    Vec::new()
}

/// One host on. Before the first stands the worst of each check.
fn sideways(model: &mut Model, right: bool) {
    let doctor = &mut model.ui.doctor;
    let hosts = &doctor.matrix.hosts;
    let at = doctor.host.as_ref().and_then(|on| hosts.iter().position(|host| host == on));
    let to = match (at, right) {
        (None, true) => Some(0),
        (None, false) => return,
        (Some(at), true) => Some((at + 1).min(hosts.len().saturating_sub(1))),
        (Some(at), false) => at.checked_sub(1),
    };
    doctor.host = to.and_then(|to| hosts.get(to).cloned());
}

/// The next check in trouble, around the end.
fn next(model: &mut Model, forward: bool) {
    let (all, height) = (checks(model), height(model));
    let doctor = &mut model.ui.doctor;
    let (count, at) = (all.len(), doctor.cursor.index);
    let step = |n: usize| if forward { (at + n) % count } else { (at + count - n % count) % count };
    let found = (1..=count).map(step).find(|at| doctor.matrix.rows.get(*at).is_some_and(is_troubled));
    if let Some(found) = found {
        doctor.cursor.move_to(found, &all, height);
    }
}

/// A click chooses a cell, a double click shows the whole of it, the wheel moves.
pub(super) fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    match mouse.kind {
        MouseKind::Click | MouseKind::DoubleClick => {
            let is_second = mouse.kind == MouseKind::DoubleClick;
            let Some(line) = layout::doctor_list(model.area()).line_of(mouse.row) else { return Vec::new() };
            let (checks, height) = (checks(model), height(model));
            let at = model.ui.doctor.cursor.offset + line;
            if at < checks.len() {
                model.ui.doctor.cursor.move_to(at, &checks, height);
                model.ui.doctor.host = view::host_at(model, mouse.column).cloned();
                if is_second {
                    verdict::open(model);
                }
            }
        }
        MouseKind::Drag => {}
        MouseKind::WheelUp | MouseKind::WheelDown => wheel(model, mouse.kind, act),
    }
    Vec::new()
}
