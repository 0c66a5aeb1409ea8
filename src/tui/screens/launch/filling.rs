//! What the form is filled from: a recipe, a past run, the launches before. Must not know how the fields are read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::domain::ids::HostId;
use crate::domain::options::RunOptions;
use crate::domain::run::{JobKind, RunSpec};
use crate::launch::host_list;
use crate::launch::request::{FREE_SLOTS, GPU_MASK, LaunchRequest, Pick, PlacementSpec, SlotName};
use crate::launch::words::join;
use crate::tui::core::{Effect, Screen};
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::RowId;
use crate::tui::screens::launch::{Field, LaunchForm, preview, surroundings};
use crate::tui::screens::usage::{Leases, free_gpus};

/// Launches of this session that the history keeps.
const KEPT: usize = 20;

/// What stands in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filled {
    texts: [String; Field::ALL.len()],
    kind: Option<JobKind>,
    options: RunOptions,
}

/// The launches before, and which of them the form shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Newest first.
    launched: VecDeque<Filled>,
    /// 0 is what is being written.
    at: usize,
    /// What was being written when the first step back was made.
    draft: Option<Filled>,
}

impl History {
    /// What a field said, newest first.
    pub(super) fn texts(&self, field: Field) -> impl Iterator<Item = String> {
        self.launched.iter().map(move |filled| filled.texts[field as usize].clone())
    }

    /// What is written from now on is written on its own.
    pub(super) fn leave(&mut self) {
        self.at = 0;
        self.draft = None;
    }
}

impl LaunchForm {
    fn filled(&self) -> Filled {
        let texts = self.inputs.each_ref().map(|input| input.value().to_owned());
        Filled { texts, kind: self.kind, options: self.options.clone() }
    }

    fn take(&mut self, filled: &Filled) {
        for field in Field::ALL {
            self.set(field, &filled.texts[field as usize]);
        }
        self.kind = filled.kind;
        self.options = filled.options.clone();
        self.settle_by_hand();
    }

    /// Keeps what is launched now.
    pub(super) fn remember(&mut self) {
        let filled = self.filled();
        self.history.leave();
        self.history.launched.retain(|kept| *kept != filled);
        self.history.launched.push_front(filled);
        self.history.launched.truncate(KEPT);
    }

    fn settle_by_hand(&mut self) {
        self.untouched = false;
        self.suggested = false;
        self.filled = true;
    }
}

/// Shows an older launch or a newer one: first those of this session, then the commands of recorded runs.
pub(super) fn step(model: &mut Model, older: bool) -> Vec<Effect> {
    let entries = entries(model);
    let form = &mut model.ui.launch;
    let now = form.history.at.min(entries.len());
    let to = if older { now + 1 } else { now.saturating_sub(1) };
    if to == now || to > entries.len() {
        return Vec::new();
    }
    if now == 0 {
        form.history.draft = Some(form.filled());
    }
    let filled = match to.checked_sub(1) {
        None => form.history.draft.take(),
        Some(at) => entries.into_iter().nth(at),
    };
    if let Some(filled) = filled {
        form.take(&filled);
    }
    form.history.at = to;
    form.focus = Field::Command;
    preview(model)
}

fn entries(model: &Model) -> Vec<Filled> {
    let form = &model.ui.launch;
    let mut entries: Vec<Filled> = form.history.launched.iter().cloned().collect();
    let draft = form.history.draft.clone().unwrap_or_else(|| form.filled());
    let command = Field::Command as usize;
    let mut known: BTreeSet<String> = entries.iter().map(|filled| filled.texts[command].clone()).collect();
    for spec in model.recordings.iter().map(|recording| &recording.spec) {
        let text = join(&spec.command);
        if known.insert(text.clone()) {
            let mut filled =
                Filled { kind: Some(spec.kind), options: RunOptions::default(), ..draft.clone() };
            filled.texts[command] = text;
            entries.push(filled);
        }
    }
    entries
}

/// Opens the form with what a past run was asked for, to be changed and launched again.
pub fn again(model: &mut Model, spec: &RunSpec) -> Vec<Effect> {
    model.ui.launch.recipe = None;
    fill(model, &LaunchRequest::again(spec));
    model.ui.launch.starting = false;
    model.ui.launch.focus = Field::Command;
    model.ui.open(Screen::Launch);
    preview(model)
}

/// Chooses the next recipe of the hosts file, or the one before, and fills the form from it.
pub(super) fn choose_recipe(model: &mut Model, forward: bool) -> Vec<Effect> {
    let count = model.recipes.len();
    let next = match (model.ui.launch.recipe, forward) {
        (None, true) => 0,
        (None, false) => count.saturating_sub(1),
        (Some(at), true) => at + 1,
        (Some(0), false) => count,
        (Some(at), false) => at - 1,
    };
    let chosen = model.recipes.get(next).cloned();
    model.ui.launch.recipe = chosen.as_ref().map(|_| next);
    let Some(recipe) = chosen else { return Vec::new() };
    fill(model, &recipe);
    preview(model)
}

/// Chooses the first recipe behind the chosen one whose name begins with a letter, and fills the form from it.
pub(super) fn choose_by_letter(model: &mut Model, letter: char) -> Vec<Effect> {
    let count = model.recipes.len();
    let from = model.ui.launch.recipe.map_or(0, |at| at + 1);
    let begins = |at: &usize| {
        let name = model.recipes.get(*at).and_then(|recipe| recipe.name.as_deref());
        name.and_then(|name| name.chars().next()).is_some_and(|first| first.eq_ignore_ascii_case(&letter))
    };
    let found = (0..count).map(|step| (from + step) % count).find(begins);
    let Some((at, recipe)) = found.and_then(|at| Some((at, model.recipes.get(at).cloned()?))) else {
        return Vec::new();
    };
    model.ui.launch.recipe = Some(at);
    fill(model, &recipe);
    preview(model)
}

fn fill(model: &mut Model, request: &LaunchRequest) {
    let (on, ranks) = match &request.place {
        PlacementSpec::Count(count) => (String::new(), *count),
        PlacementSpec::Hosts { hosts, np } => (hosts_text(hosts), *np),
        PlacementSpec::Nodes { nodes, each } => (String::new(), each.map(|each| nodes.saturating_mul(each))),
        PlacementSpec::Free { ranks, .. } => (String::new(), Some(*ranks)),
        PlacementSpec::Picks(picks) => (picks_text(model, picks), None),
    };
    let env: Vec<String> = request.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // ranks start in the folder that is copied, wherever the form will copy it
    let copied = request.options.sync.as_ref().map(|sync| &sync.remote);
    let workdir = request.workdir.as_ref().filter(|workdir| Some(*workdir) != copied);
    let form = &mut model.ui.launch;
    // the form has no other place for it
    let hidden = if request.hides_gpus() { format!("{GPU_MASK}= ") } else { String::new() };
    form.set(Field::Command, &format!("{hidden}{}", join(&request.command)));
    form.set(Field::Ranks, &ranks.map(|count| count.to_string()).unwrap_or_default());
    form.set(Field::On, &on);
    form.set(
        Field::Gpus,
        &crate::tui::screens::launch::reading::gpus_text(&request.options).unwrap_or_default(),
    );
    form.set(Field::Name, request.name.as_deref().unwrap_or_default());
    form.set(Field::Env, &join(&env));
    form.set(Field::Workdir, workdir.map_or("", String::as_str));
    form.set(Field::Interface, request.options.interface.as_deref().unwrap_or_default());
    form.kind = request.kind;
    // what a field shows is the field's alone
    let RunOptions { interface, gpu_view, gpus_per_rank, .. } = RunOptions::default();
    let options = surroundings::fill(form, &request.options, &model.here.home);
    form.options = RunOptions { gpu_view, gpus_per_rank, interface, ..options };
    form.history.leave();
    form.settle_by_hand();
}

/// Hosts as the `on` field writes them: with their numbers of ranks, or alone for all their free slots.
pub(super) fn hosts_text(hosts: &[(HostId, u32)]) -> String {
    if hosts.iter().all(|(_, count)| *count == FREE_SLOTS) {
        return hosts.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>().join(" ");
    }
    let list: Vec<String> =
        hosts.iter().map(|(host, count)| host_list::entry(host.as_str(), count)).collect();
    format!("-H {}", list.join(","))
}

/// Slots as the `on` field writes them, GPUs by their numbers where these are known.
fn picks_text(model: &Model, picks: &[Pick]) -> String {
    slots_text(picks, |pick| {
        let SlotName::Uuid(uuid) = &pick.slot else { return None };
        let info = model.world.hosts.get(&pick.host).and_then(|state| state.info.as_ref())?;
        info.gpus.iter().find(|gpu| gpu.uuid.as_str() == uuid).map(|gpu| gpu.index)
    })
}

/// Slots as the `on` field writes them; `number` gives the number of a GPU that is named by its UUID.
pub(super) fn slots_text(picks: &[Pick], number: impl Fn(&Pick) -> Option<u32>) -> String {
    let mut hosts: Vec<(&HostId, Vec<String>)> = Vec::new();
    for pick in picks {
        let slot = match (&pick.slot, number(pick)) {
            (_, Some(index)) => index.to_string(),
            (SlotName::Index(index), None) => index.to_string(),
            (SlotName::Uuid(uuid), None) => uuid.clone(),
        };
        match hosts.iter_mut().find(|(host, _)| *host == &pick.host) {
            Some((_, slots)) => slots.push(slot),
            None => hosts.push((&pick.host, vec![slot])),
        }
    }
    let parts: Vec<String> =
        hosts.iter().map(|(host, slots)| format!("{host}:{}", slots.join(","))).collect();
    parts.join(" ")
}

/// The GPU of the Detail screen as the `on` field writes it; empty where that shows no free one.
pub(super) fn shown_text(model: &Model) -> String {
    let (Screen::Detail, Some(RowId::Gpu(host, _, place))) = (model.ui.screen, &model.ui.detail.on) else {
        return String::new();
    };
    let leases = Leases::of(model);
    let free = free_gpus(model, host, &leases).find(|(at, _)| at == place);
    free.map_or_else(String::new, |(_, gpu)| format!("{host}:{}", gpu.index))
}

/// The picks of the Cluster screen as the `on` field writes them: `gpu-a:0,1 gpu-b:2`.
pub(super) fn chosen_text(model: &Model) -> String {
    let ui = &model.ui.cluster;
    let mut parts = Vec::new();
    for host in model.host_order() {
        let mut slots: Vec<String> =
            ui.picks.get(host).into_iter().flat_map(BTreeMap::keys).map(u32::to_string).collect();
        slots.extend((0..ui.cpu_picks.get(host).copied().unwrap_or(0)).map(|slot| slot.to_string()));
        if !slots.is_empty() {
            parts.push(format!("{host}:{}", slots.join(",")));
        }
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_whose_free_slots_are_meant_stand_alone() {
        let text = |hosts: &[(&str, u32)]| {
            let hosts: Vec<(HostId, u32)> =
                hosts.iter().map(|(host, count)| (HostId::from(*host), *count)).collect();
            hosts_text(&hosts)
        };
        assert_eq!(text(&[("a", FREE_SLOTS), ("b", FREE_SLOTS)]), "a b");
        assert_eq!(text(&[("a", 2), ("b", 1)]), "-H a:2,b:1");
    }
}
