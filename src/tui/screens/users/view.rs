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
    let columns = columns(canvas, &users);
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
    let is_unfolded = |user: &&UserRow<'_>| model.ui.users.unfolded.contains(&user.name);
    let shown: Vec<ProcessRow<'_>> =
        users.iter().filter(is_unfolded).flat_map(|user| user.processes.iter().copied()).collect();
    let of_process = processes::columns(canvas, 5, &shown, processes::Col::Place);
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
    let mut pieces = vec![(format!("{known} {} on GPUs", title::plural(known, "user")), dim)];
    if idle > 0 {
        pieces.push((format!("   {idle} {} held, idle", title::plural(idle, "GPU")), warn));
    }
    let end = canvas.width() - 1;
    canvas.pieces(1, 1, end, &pieces);
}

fn columns(canvas: &Canvas<'_>, users: &[UserRow<'_>]) -> Vec<Column<Col>> {
    let names = users.iter().map(|user| width(&user.name)).max().unwrap_or(4).clamp(8, 20);
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
