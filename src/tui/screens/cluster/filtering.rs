//! The filter of the Cluster screen: what it lets through, and the line in which it is typed. What is typed shows at once
//! where it can be read; esc brings the filter back that held before.

use tui_input::Input;

use crate::domain::filter::{
    Completion, CompletionValues, Filter, FilterError, GpuSubject, Subject, complete,
};
use crate::domain::ids::HostId;
use crate::domain::text::sanitize;
use crate::tui::core::{Key, KeyCode, Level};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt::{Prompt, PromptKind};
use crate::tui::screens::usage::Leases;

/// How many earlier filters are kept.
const EARLIER: usize = 50;

/// What belongs to the line in which a filter is typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Typing {
    /// The filter that held before, and its text.
    before: (Filter, String),
    /// Why what is typed is not a filter, and where.
    pub fault: Option<FilterError>,
    /// What may stand at the cursor.
    pub offered: Option<Completion>,
    /// Which of the offers stands there, after tab.
    pub taken: Option<usize>,
    /// Which of the earlier filters is shown, counted from the newest.
    older: Option<usize>,
}

/// Whether the GPUs and hosts of a model pass its filter.
pub struct Sieve<'a> {
    model: &'a Model,
    filter: &'a Filter,
    leases: Option<Leases<'a>>,
}

impl<'a> Sieve<'a> {
    /// The filter that holds now.
    pub fn of(model: &'a Model) -> Self {
        let filter = &model.ui.cluster.filter;
        let leases = (!filter.is_empty()).then(|| Leases::of(model));
        Self { model, filter, leases }
    }

    /// Whether everything passes.
    pub fn is_open(&self) -> bool {
        self.filter.is_empty()
    }

    /// Whether the GPU at `place` of a host's list passes.
    pub fn lets(&self, host: &HostId, place: usize) -> bool {
        let Some(leases) = &self.leases else { return true };
        let Some(state) = self.model.world.hosts.get(host) else { return false };
        let gpu = state.info.as_ref().and_then(|info| info.gpus.get(place));
        let run = gpu.and_then(|gpu| leases.gpu(host, &gpu.uuid));
        let run = run.map(|run| (run, self.model.world.runs.get(run).map_or("", |state| &state.spec.name)));
        let now = self.model.moment();
        let Some(mut gpu) = GpuSubject::of(state, place, leases.free_memory(host), run, now) else {
            return false;
        };
        // The hosts file gives ranks CPU slots there.
        gpu.free &= self.model.configured_slots(host).is_none();
        self.filter.matches(&Subject { host: host.as_str(), labels: self.labels(host), gpu: Some(gpu) })
    }

    /// Whether a host without GPUs passes.
    pub fn lets_host(&self, host: &HostId) -> bool {
        self.filter.matches(&Subject { host: host.as_str(), labels: self.labels(host), gpu: None })
    }

    fn labels(&self, host: &HostId) -> &'a [String] {
        let entry = self.model.hosts.of(host);
        entry.map_or(&[][..], |entry| &entry.labels)
    }

    /// How many GPUs pass, of how many: `37 of 512 GPUs`; hosts where there are no GPUs.
    pub fn counts(&self) -> String {
        let hosts = self.model.world.hosts.iter();
        let gpus = hosts.flat_map(|(host, state)| {
            let gpus = state.info.as_ref().map_or(&[][..], |info| &info.gpus);
            let counted = gpus.iter().enumerate().filter(|(_, gpu)| gpu.counts());
            counted.map(move |(place, _)| (host, place))
        });
        let (pass, all) = gpus
            .fold((0, 0), |(pass, all), (host, place)| (pass + usize::from(self.lets(host, place)), all + 1));
        if all > 0 {
            return format!("{pass} of {all} GPUs");
        }
        let hosts = self.model.host_order();
        let pass = hosts.iter().filter(|host| self.lets_host(host)).count();
        format!("{pass} of {} hosts", hosts.len())
    }
}

/// Opens the line.
pub fn open(model: &mut Model) {
    let ui = &mut model.ui.cluster;
    ui.typing = Typing { before: (ui.filter.clone(), ui.filter_text.clone()), ..Typing::default() };
    let prompt = Prompt::new(PromptKind::Filter, &ui.filter_text);
    model.ui.overlay = Overlay::Prompt(prompt);
}

/// Takes in what is typed.
pub fn typed(model: &mut Model) {
    let (known, Overlay::Prompt(prompt)) = (known(model), &mut model.ui.overlay) else { return };
    let ui = &mut model.ui.cluster;
    let text = prompt.input.value();
    ui.typing.taken = None;
    ui.typing.offered = complete(text, cursor(&prompt.input), &known);
    read(&mut ui.typing, &mut ui.filter, &mut ui.filter_text, prompt);
}

/// Reads the text; one that can't be read leaves the filter as it is.
fn read(typing: &mut Typing, filter: &mut Filter, filter_text: &mut String, prompt: &mut Prompt) {
    match Filter::parse(prompt.input.value()) {
        Ok(new) => {
            *filter = new;
            prompt.input.value().trim().clone_into(filter_text);
            typing.fault = None;
            prompt.error = None;
        }
        Err(fault) => {
            *filter = typing.before.0.clone();
            filter_text.clone_from(&typing.before.1);
            prompt.error = Some(fault.to_string());
            typing.fault = Some(fault);
        }
    }
}

/// The values that occur in the model. What would drive a terminal is not offered.
fn known(model: &Model) -> CompletionValues {
    let mut known = CompletionValues::of(&model.world);
    known.hosts = model.host_order().into_iter().map(ToString::to_string).collect();
    known.labels = model.hosts.iter().flat_map(|entry| entry.labels.iter().cloned()).collect();
    let plain = |text: &String| sanitize(text) == text.as_str();
    known.hosts.retain(plain);
    for set in [&mut known.labels, &mut known.models, &mut known.users, &mut known.runs, &mut known.faults] {
        set.retain(plain);
    }
    known
}

/// The byte at which the cursor stands.
fn cursor(input: &Input) -> usize {
    let text = input.value();
    text.char_indices().nth(input.cursor()).map_or(text.len(), |(at, _)| at)
}

/// A key that means something in this line alone; `false` when it edits as in any other.
pub fn key(model: &mut Model, key: Key) -> bool {
    match key.code {
        KeyCode::Tab => tab(model, 1),
        KeyCode::BackTab => tab(model, -1),
        KeyCode::Up => step(model, 1),
        KeyCode::Down => step(model, -1),
        _ => return false,
    }
    true
}

/// Puts the next of the offers at the cursor.
fn tab(model: &mut Model, by: isize) {
    let known = known(model);
    let Overlay::Prompt(prompt) = &mut model.ui.overlay else { return };
    let ui = &mut model.ui.cluster;
    let at = cursor(&prompt.input);
    let text = prompt.input.value();
    if ui.typing.taken.is_none() {
        ui.typing.offered = complete(text, at, &known);
    }
    let Some(offered) = &mut ui.typing.offered else { return };
    let count = offered.options.len() as isize;
    let next = match ui.typing.taken {
        Some(taken) => (taken as isize + by).rem_euclid(count) as usize,
        None if by < 0 => count as usize - 1,
        None => 0,
    };
    let Some(option) = offered.options.get(next) else { return };
    let (before, after) = (&text[..offered.at.start], &text[at..]);
    let end = before.len() + option.len();
    let chars = before.chars().count() + option.chars().count();
    prompt.input = Input::new(format!("{before}{option}{after}")).with_cursor(chars);
    offered.at.end = end;
    ui.typing.taken = Some(next);
    read(&mut ui.typing, &mut ui.filter, &mut ui.filter_text, prompt);
}

/// Steps through the filters that were used, then through the saved ones.
fn step(model: &mut Model, by: isize) {
    let ui = &model.ui.cluster;
    let saved: Vec<String> = model.views.iter().map(|view| view.filter.to_string()).collect();
    let all: Vec<&String> = ui.earlier.iter().rev().chain(&saved).collect();
    let older = match ui.typing.older {
        None if by > 0 => Some(0),
        None => return,
        Some(older) => older.checked_add_signed(by),
    };
    let text = match older {
        Some(older) => match all.get(older) {
            Some(text) => (*text).clone(),
            None => return,
        },
        // Below the newest stands the empty line.
        None => String::new(),
    };
    if let Overlay::Prompt(prompt) = &mut model.ui.overlay {
        prompt.input = Input::new(text);
    }
    typed(model);
    model.ui.cluster.typing.older = older;
}

/// The filter holds from now on.
pub fn confirmed(model: &mut Model) {
    let ui = &mut model.ui.cluster;
    ui.typing = Typing::default();
    ui.view = None;
    remember(&mut ui.earlier, &ui.filter_text);
}

fn remember(earlier: &mut Vec<String>, text: &str) {
    if text.is_empty() {
        return;
    }
    earlier.retain(|old| old != text);
    earlier.push(text.to_owned());
    if earlier.len() > EARLIER {
        earlier.remove(0);
    }
}

/// The filter that held before holds again.
pub fn given_up(model: &mut Model) {
    let ui = &mut model.ui.cluster;
    (ui.filter, ui.filter_text) = std::mem::take(&mut ui.typing).before;
}

/// Drops the filter.
pub fn drop_filter(model: &mut Model) {
    let ui = &mut model.ui.cluster;
    remember(&mut ui.earlier, &ui.filter_text);
    ui.filter = Filter::default();
    ui.filter_text.clear();
    ui.view = None;
}

/// Shows the next of the saved filters; behind the last one everything.
pub fn next_view(model: &mut Model) {
    if model.views.is_empty() {
        let text = "no saved filter: add one to the hosts file, such as [views] free = \"free & ok\"";
        model.notice(Level::Info, text);
        return;
    }
    let next = model.ui.cluster.view.map_or(0, |view| view + 1);
    let Some(view) = model.views.get(next).cloned() else {
        drop_filter(model);
        model.notice(Level::Info, "all GPUs");
        return;
    };
    let ui = &mut model.ui.cluster;
    if ui.view.is_none() {
        remember(&mut ui.earlier, &ui.filter_text);
    }
    ui.filter_text = view.filter.to_string();
    ui.filter = view.filter;
    ui.view = Some(next);
    let counts = Sieve::of(model).counts();
    model.notice(Level::Info, format!("{}: {counts}", view.name));
}
