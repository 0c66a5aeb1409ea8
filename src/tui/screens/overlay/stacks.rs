//! The stacks of a run's ranks side by side, over the Run screen: what was asked for, what has come, and its keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::collectives::{Collected, HostCollectives};
use crate::domain::host::LinkState;
use crate::domain::ids::{HostId, RunId};
use crate::domain::stacks::{Alike, ProcessStacks, Taker, alike};
use crate::domain::symptoms;
use crate::domain::time::Stamp;
use crate::domain::world::World;
use crate::tui::core::words::wrap;
use crate::tui::core::{Effect, Key, KeyCode, Level};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;

/// How long hosts are waited for, microseconds.
const PATIENCE_US: i64 = 15_000_000;
/// Lines of a page of the panel.
const PAGE: usize = 10;
/// The least width of a column.
const COLUMN: u16 = 36;

/// What was asked for and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StacksUi {
    /// Of which run.
    pub run: RunId,
    /// When they were asked.
    pub asked_at: Stamp,
    /// Hosts that have not answered yet.
    pub due: BTreeSet<HostId>,
    /// What has come.
    pub stacks: Vec<ProcessStacks>,
    /// Which collectives the processes have called.
    pub collected: Collected,
    /// How many ranks the run has.
    pub ranks: u32,
    /// Hosts that could not tell, and why.
    pub silent: BTreeMap<HostId, String>,
    /// Every thread is shown, not the main one alone.
    pub all_threads: bool,
    /// The first line that is shown.
    pub first: usize,
}

/// Asks for the stacks of the run that is shown, if it goes on.
pub fn ask(model: &mut Model) -> Vec<Effect> {
    let Some((id, run)) = model.shown_run() else { return Vec::new() };
    if !run.is_live() {
        model.notice(Level::Info, "this run has ended: it has no stacks any more");
        return Vec::new();
    }
    let (run, due) = (id.clone(), run.spec.hosts().into_iter().collect());
    let spec = model.world.runs[&run].spec.clone();
    let all_threads = matches!(&model.ui.overlay, Overlay::Stacks(shown) if shown.all_threads);
    let (collected, ranks) = (Collected::default(), spec.world());
    let (stacks, silent) = (Vec::new(), BTreeMap::new());
    let shown =
        StacksUi { run, asked_at: model.now, due, stacks, collected, ranks, silent, all_threads, first: 0 };
    model.ui.overlay = Overlay::Stacks(shown);
    vec![Effect::AskStacks { spec, threads: all_threads }]
}

/// What a host has answered; nothing where the panel was closed meanwhile, or asks for other threads by now.
pub fn told(
    model: &mut Model,
    run: &RunId,
    host: HostId,
    (stacks, why, collectives): (Vec<ProcessStacks>, Option<String>, HostCollectives),
    (threads, last): (Option<bool>, bool),
) {
    let now = model.now;
    let Overlay::Stacks(shown) = &mut model.ui.overlay else { return };
    let is_other = threads.is_some_and(|threads| threads != shown.all_threads);
    if shown.run != *run || is_other || !shown.due.contains(&host) {
        return;
    }
    shown.stacks.extend(stacks);
    if !collectives.is_empty() {
        shown.collected.take(now, &host, collectives, shown.ranks);
    }
    if last {
        shown.due.remove(&host);
    }
    if let Some(why) = why {
        shown.silent.insert(host, why);
    }
}

impl StacksUi {
    /// Why a host that has not answered is waited for no longer: it has no link, or time is up.
    pub fn given_up(&self, world: &World, host: &HostId, now: Stamp) -> Option<&'static str> {
        let link = world.hosts.get(host).and_then(|host| host.link.as_ref());
        if link.is_some_and(|(_, link)| matches!(link, LinkState::Down { .. } | LinkState::Refused { .. })) {
            return Some("there is no link to it");
        }
        let late = now.micros_since(self.asked_at) > PATIENCE_US;
        late.then_some("no answer in 15 s: S asks again")
    }
}

/// How a line of the panel is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// The ranks of a column.
    Strong,
    /// Calls.
    #[default]
    Text,
    /// What explains the others.
    Dim,
    /// A host that could not tell.
    Warn,
    /// What holds the run up.
    Bad,
}

type Line = (String, Tone);

/// The lines of the panel in a terminal of some size. Shared by the keys and the drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panel {
    /// Columns of the terminal that a column of ranks takes.
    pub column: u16,
    /// Each line: one text over the whole width, or one a column.
    pub rows: Vec<Vec<Line>>,
    /// Lines that are shown at once.
    shown: usize,
}

impl Panel {
    /// What is shown now, in so many columns and rows; a frame is part of them.
    pub fn of(shown: &StacksUi, (world, now): (&World, Stamp), size: (u16, u16)) -> Self {
        let (width, height) = (size.0.saturating_sub(4), size.1.saturating_sub(2));
        let groups = alike(&shown.stacks);
        let columns = (width / COLUMN).clamp(1, u16::try_from(groups.len().max(1)).unwrap_or(u16::MAX));
        let column = width / columns;
        let mut rows: Vec<Vec<Line>> = Vec::new();
        for (text, tone) in shown.words(world, now) {
            let lines = wrap(&text, usize::from(width.saturating_sub(1)));
            rows.extend(lines.into_iter().map(|line| vec![(line, tone)]));
        }
        for band in groups.chunks(usize::from(columns)) {
            let room = usize::from(column.saturating_sub(2));
            let blocks: Vec<Vec<Line>> =
                band.iter().map(|group| block(group, shown.all_threads, room)).collect();
            let height = blocks.iter().map(Vec::len).max().unwrap_or(0);
            for at in 0..height {
                let cell = |block: &Vec<Line>| block.get(at).cloned().unwrap_or_default();
                rows.push(blocks.iter().map(cell).collect());
            }
            rows.push(Vec::new());
        }
        if !groups.is_empty() {
            rows.pop();
        }
        let checks = symptoms::of_hang(&groups);
        if shown.due.is_empty() && !checks.is_empty() {
            rows.push(Vec::new());
            rows.push(vec![(format!("4 Doctor may say why: {}", checks.join(", ")), Tone::Dim)]);
        }
        Self { column, rows, shown: usize::from(height) }
    }

    /// The first line that is shown when it is scrolled to its end.
    pub fn last(&self) -> usize {
        self.rows.len().saturating_sub(self.shown)
    }
}

impl StacksUi {
    /// What stands above the columns.
    fn words(&self, world: &World, now: Stamp) -> Vec<Line> {
        let mut lines = Vec::new();
        let given_up = |host| Some((host, self.given_up(world, host, now)?));
        let silent: BTreeMap<&HostId, &str> = self.due.iter().filter_map(given_up).collect();
        let due: Vec<String> =
            self.due.iter().filter(|host| !silent.contains_key(host)).map(ToString::to_string).collect();
        if !due.is_empty() {
            lines.push((format!("waiting for {} …", due.join(", ")), Tone::Dim));
        }
        if self.due.is_empty() {
            lines.extend(self.collected.words().iter().map(|words| (words.clone(), Tone::Bad)));
            for process in self.collected.processes() {
                let lacks = process.lacks.as_ref();
                lines.extend(lacks.map(|why| (format!("rank {}: {why}", process.name()), Tone::Dim)));
            }
        }
        for (host, why) in self.silent.iter().map(|(host, why)| (host, why.as_str())).chain(silent) {
            lines.push((format!("{host}: {why}"), Tone::Warn));
        }
        if self.due.is_empty() && self.stacks.is_empty() && self.silent.is_empty() {
            lines.push(("no rank of it lives any more".to_owned(), Tone::Dim));
        }
        lines
    }
}

fn block(group: &Alike<'_>, all_threads: bool, room: usize) -> Vec<Line> {
    let mut lines = vec![(group.who(), Tone::Strong)];
    lines.extend(group.phase().map(|phase| (phase, Tone::Text)));
    let first = group.of[0];
    let pid = (group.of.len() == 1).then(|| format!("pid {}", first.pid));
    let by = (first.by == Taker::PySpy).then(|| "by py-spy".to_owned());
    let source: Vec<String> = pid.into_iter().chain(by).collect();
    if !source.is_empty() {
        lines.push((source.join(" · "), Tone::Dim));
    }
    if first.by == Taker::Kernel {
        for text in std::iter::once(&first.text).chain(&first.lacks) {
            lines.extend(wrap(text, room).into_iter().map(|line| (line, Tone::Dim)));
        }
    }
    if let Some(lacks) = first.lacks.as_ref().filter(|_| all_threads && first.by != Taker::Kernel) {
        let words = format!("the main thread alone: {lacks}");
        lines.extend(wrap(&words, room).into_iter().map(|line| (line, Tone::Dim)));
    }
    let threads =
        &group.threads[..if all_threads { group.threads.len() } else { group.threads.len().min(1) }];
    for thread in threads {
        if threads.len() > 1 {
            lines.push((format!("thread {}", thread.name), Tone::Dim));
        }
        for frame in &thread.frames {
            lines.push((format!("  {} {}", frame.place(), frame.function), Tone::Text));
        }
    }
    lines
}

/// A key while the panel is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let last = match &model.ui.overlay {
        Overlay::Stacks(shown) => Panel::of(shown, (&model.world, model.now), model.size).last(),
        _ => return Vec::new(),
    };
    let Overlay::Stacks(shown) = &mut model.ui.overlay else { return Vec::new() };
    // the lines may have become fewer
    let first = shown.first.min(last);
    match key.code {
        KeyCode::Up | KeyCode::Char('k') => shown.first = first.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => shown.first = (first + 1).min(last),
        KeyCode::PageUp => shown.first = first.saturating_sub(PAGE),
        KeyCode::PageDown => shown.first = (first + PAGE).min(last),
        KeyCode::Home | KeyCode::Char('g') => shown.first = 0,
        KeyCode::End | KeyCode::Char('G') => shown.first = last,
        KeyCode::Char('t') => {
            shown.all_threads = !shown.all_threads;
            // The other threads are told to who asks for them.
            return ask(model);
        }
        KeyCode::Char('S') => return ask(model),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => model.ui.overlay = Overlay::None,
        _ => {}
    }
    Vec::new()
}
