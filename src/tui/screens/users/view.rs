//! The Users screen: one row a user, with the processes of those that are unfolded.

use crate::domain::units;
use crate::tui::canvas::columns::{Column, ColumnSpec, fit};
use crate::tui::canvas::{Canvas, width};
use crate::tui::core::layout::users_list;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::view::mark_selected;
use crate::tui::screens::processes::ProcessRow;
use crate::tui::screens::users::{UNKNOWN, UserRow, users};
use crate::tui::screens::view::gpu_words::percent;
use crate::tui::screens::view::processes::{self, age_words};
use crate::tui::screens::view::title;

/// How far the places of processes stand behind the names of users.
const INDENT: u16 = 2;
/// Least columns of a command.
const LEAST_COMMAND: u16 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Col {
    User,
    Gpus,
    Idle,
    Memory,
    Util,
    Oldest,
    Runs,
    Hosts,
}

/// One line of the list.
enum Line<'a> {
    User(&'a UserRow<'a>),
    Process(&'a ProcessRow<'a>),
}

/// Draws the screen.
pub(in crate::tui::screens) fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    title::draw(model, canvas);
    let users = users(model);
    subtitle(canvas, &users);
    let is_unfolded = |user: &&UserRow<'_>| model.ui.users.unfolded.contains(&user.name);
    let shown: Vec<ProcessRow<'_>> =
        users.iter().filter(is_unfolded).flat_map(|user| user.processes.iter().copied()).collect();
    let columns = columns(canvas, &users, &shown);
    let dim = canvas.theme.dim;
    for column in &columns {
        if column.right {
            canvas.right(column.x, 2, column.w, column.title, dim);
        } else {
            canvas.text(column.x, 2, column.w, column.title, dim);
        }
    }
    let band = users_list((canvas.width(), canvas.height()));
    if users.is_empty() {
        canvas.text(2, band.y + 1, canvas.width() - 3, "no process uses a GPU", dim);
        return;
    }
    let of_process = process_columns(canvas, &columns, &shown);
    let mut lines = Vec::new();
    for user in &users {
        lines.push(Line::User(user));
        if is_unfolded(&user) {
            lines.extend(user.processes.iter().map(Line::Process));
        }
    }
    let cursor = &model.ui.users.cursor;
    for (at, line) in lines.iter().enumerate().skip(cursor.offset).take(usize::from(band.h)) {
        let y = band.y + (at - cursor.offset) as u16;
        match line {
            Line::User(user) => {
                let mark = if is_unfolded(user) { "▾" } else { "▸" };
                canvas.text(1, y, 1, mark, dim);
                for column in &columns {
                    cell(canvas, column, y, user);
                }
            }
            Line::Process(row) => processes::line(canvas, y, &of_process, row),
        }
        if at == cursor.index {
            let to = match line {
                Line::User(_) => columns.first().map_or(0, |column| column.x + column.w),
                Line::Process(_) => processes::end_of(&of_process, processes::Col::Pid),
            };
            mark_selected(canvas, y, to);
        }
    }
}

fn subtitle(canvas: &mut Canvas<'_>, users: &[UserRow<'_>]) {
    let (dim, warn) = (canvas.theme.dim, canvas.theme.warn);
    let idle: usize = users.iter().map(|user| user.idle).sum();
    let known = users.iter().filter(|user| user.name != UNKNOWN).count();
    let others = if known < users.len() { ", and unknown ones" } else { "" };
    let mut pieces = vec![(format!("{known} {} on GPUs{others}", title::plural(known, "user")), dim)];
    if idle > 0 {
        pieces.push((format!("   {idle} {} held, idle", title::plural(idle, "GPU")), warn));
    }
    let end = canvas.width() - 1;
    canvas.pieces(1, 1, end, &pieces);
}

fn columns(canvas: &Canvas<'_>, users: &[UserRow<'_>], shown: &[ProcessRow<'_>]) -> Vec<Column<Col>> {
    let places = shown.iter().map(|row| width(&processes::place(row)) + INDENT).max().unwrap_or(0);
    let names = users.iter().map(|user| width(&user.name)).max().unwrap_or(4).max(places).clamp(8, 20);
    let hosts = users.iter().map(|user| width(&hosts(user))).max().unwrap_or(5).clamp(5, 60);
    let runs = users.iter().map(|user| width(&runs(user))).max().unwrap_or(4).clamp(4, 24);
    let wish = |id, title, least, most, rank, right| ColumnSpec { id, title, least, most, rank, right };
    let wishes = [
        wish(Col::User, "USER", 8, names, 0, false),
        wish(Col::Gpus, "GPUS", 4, 4, 0, true),
        wish(Col::Idle, "HELD, IDLE", 10, 10, 1, true),
        wish(Col::Memory, "MEM", 6, 6, 1, true),
        wish(Col::Util, "UTIL", 5, 5, 1, true),
        wish(Col::Oldest, "SINCE", 7, 7, 2, true),
        wish(Col::Runs, "RUNS", 4, runs, 4, false),
        wish(Col::Hosts, "HOSTS", 5, hosts, 3, false),
    ];
    fit(&wishes, 3, canvas.width().saturating_sub(4), 2)
}

/// The columns of the processes below a user: what both tell stands under the same head, and run or container and the command
/// behind it.
fn process_columns(
    canvas: &Canvas<'_>,
    users: &[Column<Col>],
    shown: &[ProcessRow<'_>],
) -> Vec<Column<processes::Col>> {
    let mut columns = Vec::new();
    let mut end = 0;
    for column in users {
        let (x, w) = (column.x, column.w);
        let (id, x, w) = match column.id {
            Col::User => (processes::Col::Place, x + INDENT, w.saturating_sub(INDENT)),
            Col::Idle => (processes::Col::Pid, x, w),
            Col::Memory => (processes::Col::Memory, x, w),
            Col::Util => (processes::Col::Sm, x, w),
            Col::Oldest => (processes::Col::Age, x, w),
            Col::Gpus | Col::Runs | Col::Hosts => continue,
        };
        end = x + w;
        columns.push(Column { id, title: "", x, w, right: column.right });
    }
    let (mut x, last) = (end + 2, canvas.width().saturating_sub(1));
    // with little room the command stands behind the run or container of its own row
    let part = processes::widest_origin(shown).filter(|widest| x + widest + 2 + LEAST_COMMAND <= last);
    if let Some(w) = part {
        columns.push(Column { id: processes::Col::Of, title: "", x, w, right: false });
        x += w + 2;
    }
    if x < last {
        columns.push(Column { id: processes::Col::Command, title: "", x, w: last - x, right: false });
    }
    columns
}

fn hosts(user: &UserRow<'_>) -> String {
    user.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn runs(user: &UserRow<'_>) -> String {
    user.runs.iter().map(|run| run.short()).collect::<Vec<_>>().join(" ")
}

fn cell(canvas: &mut Canvas<'_>, column: &Column<Col>, y: u16, user: &UserRow<'_>) {
    let (x, w) = (column.x, column.w);
    let (text, dim, warn, accent) =
        (canvas.theme.text, canvas.theme.dim, canvas.theme.warn, canvas.theme.accent);
    let unknown = || "–".to_owned();
    match column.id {
        Col::User => drop(canvas.name(x, y, w, &user.name, canvas.theme.strong())),
        Col::Gpus => canvas.right(x, y, w, &user.gpus.to_string(), text),
        Col::Idle => {
            let style = if user.idle > 0 { warn } else { dim };
            canvas.right(x, y, w, &user.idle.to_string(), style);
        }
        Col::Memory => canvas.right(x, y, w, &user.memory.map_or_else(unknown, units::bytes), text),
        Col::Util => canvas.right(x, y, w, &percent(user.util), text),
        Col::Oldest => canvas.right(x, y, w, &user.oldest_s.map_or_else(unknown, age_words), text),
        Col::Runs => drop(canvas.text(x, y, w, &runs(user), accent)),
        Col::Hosts => drop(canvas.text(x, y, w, &hosts(user), dim)),
    }
}
