//! The Users screen: who uses what, since when. One row a user; unfolded, one a process.

mod keys;
pub(super) mod view;

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::gpu::Reading;
use crate::domain::idle::idle_us;
use crate::domain::ids::{HostId, RunId};
use crate::tui::core::keymap::{EVERYWHERE, LAUNCH, LISTS};
use crate::tui::core::list::Cursor;
use crate::tui::core::{Screen, layout};
use crate::tui::screens::Entry;
use crate::tui::screens::Model;
use crate::tui::screens::processes::{ProcessId, ProcessRow, of_host};
use crate::tui::screens::view::title;

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Users,
    name: "Users",
    title: title::action_at,
    keys: &[keys::KEYS, LAUNCH, LISTS, EVERYWHERE],
    act: keys::act,
    missing: keys::missing,
    typed: |_, _| Vec::new(),
    pasted: |_, _| Vec::new(),
    settle,
    mouse: keys::mouse,
    draw: |model, canvas| {
        view::draw(model, canvas);
        None
    },
};

/// What stands for the owner of a process that the host does not tell.
pub const UNKNOWN: &str = "?";

/// The state of the screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsersUi {
    /// The cursor.
    pub cursor: Cursor<RowId>,
    /// Users whose processes are shown.
    pub unfolded: BTreeSet<String>,
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowId {
    /// A user.
    User(String),
    /// A process of one.
    Process(ProcessId),
}

/// What one user has on all hosts.
#[derive(Debug, Default)]
pub struct UserRow<'a> {
    /// Login name; [`UNKNOWN`] for the processes whose owner is not told.
    pub name: String,
    /// Where.
    pub hosts: BTreeSet<&'a HostId>,
    /// GPUs with a process of the user, or that one of the user's runs holds.
    pub gpus: usize,
    /// How many of them have been idle for a while.
    pub idle: usize,
    /// Memory of the processes, bytes; `None` where no process tells.
    pub memory: Option<u64>,
    /// Mean utilisation of the GPUs, percent.
    pub util: Option<f64>,
    /// Age of the oldest process, seconds.
    pub oldest_s: Option<u64>,
    /// Runs of hvtui among them.
    pub runs: BTreeSet<&'a RunId>,
    /// The processes, in the hosts' order.
    pub processes: Vec<ProcessRow<'a>>,
    utils: Vec<u32>,
}

/// All users that have a process or a lease on a GPU, the one with the most GPUs first.
pub fn users(model: &Model) -> Vec<UserRow<'_>> {
    let mut users: BTreeMap<String, UserRow<'_>> = BTreeMap::new();
    for host in model.host_order() {
        let Some((host, state)) = model.world.hosts.get_key_value(host) else { continue };
        let Some(info) = state.info.as_ref().filter(|_| state.is_up() || state.is_limited()) else {
            continue;
        };
        for (place, gpu) in info.gpus.iter().enumerate() {
            let (rows, _) = of_host((host, state), Some(place));
            let mut here: BTreeSet<String> = rows.iter().map(|row| owner(&row.process.user)).collect();
            let lease = state.leases.as_ref().and_then(|leases| leases.of(&gpu.uuid));
            here.extend(lease.and_then(|lease| lease.user.clone()));
            let is_idle = idle_us(state, place).is_some();
            let sample = state.latest().and_then(|(_, sample)| sample.gpus.get(place));
            let util = sample.and_then(|sample| sample.util.value().copied());
            // the holder of a GPU that is cut has its slices, which are counted
            let counted = usize::from(gpu.counts());
            for name in &here {
                let user = users.entry(name.clone()).or_default();
                user.hosts.insert(host);
                user.gpus += counted;
                user.idle += if is_idle { counted } else { 0 };
                user.utils.extend(util);
                user.runs.extend(
                    lease.filter(|lease| lease.user.as_ref() == Some(name)).and_then(|l| l.run.as_ref()),
                );
            }
            for row in rows {
                let user = users.entry(owner(&row.process.user)).or_default();
                user.add(row);
            }
        }
    }
    let mut rows: Vec<UserRow<'_>> = users.into_iter().map(|(name, user)| user.named(name)).collect();
    // the names are in order already
    rows.sort_by_key(|user| std::cmp::Reverse(user.gpus));
    rows
}

fn owner(user: &Reading<String>) -> String {
    user.value().cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}

impl<'a> UserRow<'a> {
    fn named(self, name: String) -> Self {
        let sum: u32 = self.utils.iter().sum();
        let util = (!self.utils.is_empty()).then(|| f64::from(sum) / self.utils.len() as f64);
        Self { name, util, ..self }
    }

    fn add(&mut self, row: ProcessRow<'a>) {
        let process = row.process;
        if let Some(bytes) = process.memory.value() {
            self.memory = Some(self.memory.unwrap_or(0).saturating_add(*bytes));
        }
        self.oldest_s = self.oldest_s.max(process.age_s.value().copied());
        self.runs.extend(process.run.as_ref().map(|run| &run.id));
        self.processes.push(row);
    }
}

/// The rows of the list: each user, and below those that are unfolded their processes.
pub fn rows(model: &Model, users: &[UserRow<'_>]) -> Vec<RowId> {
    let mut rows = Vec::new();
    for user in users {
        rows.push(RowId::User(user.name.clone()));
        if model.ui.users.unfolded.contains(&user.name) {
            rows.extend(user.processes.iter().map(|row| RowId::Process(row.id())));
        }
    }
    rows
}

/// Keeps the cursor true after the list changed.
pub fn settle(model: &mut Model) {
    let rows = rows(model, &users(model));
    let height = usize::from(layout::users_list(model.area()).h);
    model.ui.users.cursor.settle(&rows, height);
}
