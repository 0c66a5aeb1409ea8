//! The Launch screen: a form that becomes a request, and what that request would execute.

use std::collections::BTreeMap;
use std::sync::Arc;

use tui_input::Input;

use super::effect::Effect;
use super::key::{Key, KeyCode};
use super::keymap::Action;
use super::model::{Model, Screen};
use super::msg::Level;
use super::prompt;
use super::words;
use crate::domain::ids::HostId;
use crate::domain::options::RunOptions;
use crate::domain::run::JobKind;
use crate::domain::world::World;
use crate::launch::plan::LaunchPlan;
use crate::launch::request::{LaunchRequest, OnBusy, Patience, Pick, PlacementSpec, SlotName};

/// A line of the form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Field {
    /// The command line.
    #[default]
    Command,
    /// How it is started: a choice.
    Kind,
    /// How many ranks.
    Ranks,
    /// On which slots.
    On,
    /// A name for people.
    Name,
    /// Variables.
    Env,
    /// Working directory.
    Workdir,
    /// Training network.
    Interface,
}

impl Field {
    /// All, in the order of the form.
    pub const ALL: [Self; 8] = [
        Self::Command,
        Self::Kind,
        Self::Ranks,
        Self::On,
        Self::Name,
        Self::Env,
        Self::Workdir,
        Self::Interface,
    ];

    /// Its name on the form.
    pub fn label(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Kind => "kind",
            Self::Ranks => "ranks",
            Self::On => "on",
            Self::Name => "name",
            Self::Env => "env",
            Self::Workdir => "workdir",
            Self::Interface => "interface",
        }
    }

    /// What it means when it is empty, and how it is written.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Command => "what every rank executes, for example: hvtui train digits",
            Self::Kind => "← → changes",
            Self::Ranks => "one on every free slot",
            Self::On => "the first free slots; or gpu-a:0,1 gpu-b:2",
            Self::Name => "made from the command",
            Self::Env => "NAME=value NAME=value",
            Self::Workdir => "the home directory",
            Self::Interface => "chosen by hvtui",
        }
    }
}

/// The form.
#[expect(clippy::struct_excessive_bools, reason = "marks of a form that have nothing to do with each other")]
#[derive(Debug, Clone, Default)]
pub struct LaunchForm {
    /// The text fields, as [`Field::ALL`]; the one of [`Field::Kind`] is unused.
    pub inputs: [Input; 8],
    /// The chosen kind; `None` = guessed from the command.
    pub kind: Option<JobKind>,
    /// The field with the cursor.
    pub focus: Field,
    /// The fields that make no request, with the reason.
    pub errors: Vec<(Field, String)>,
    /// The request that the preview answers; `None` while the form has errors.
    pub request: Option<LaunchRequest>,
    /// The answer to it; `None` while it is being made.
    pub plan: Option<Result<Arc<LaunchPlan>, String>>,
    /// Whether that answer is only that somebody has the slots: then the start waits for them.
    pub busy: bool,
    /// For whom the launch waits that was sent.
    pub waits: Option<String>,
    /// Previews asked for and not yet answered.
    pub asked: u32,
    /// Whether the start was asked for before the preview was there: it follows then.
    pub hurried: bool,
    /// Whether the command is still as the form was opened: typing replaces it.
    pub untouched: bool,
    /// Whether the launch was sent and not yet answered.
    pub starting: bool,
    /// First line of the preview shown.
    pub scroll: usize,
}

impl PartialEq for LaunchForm {
    fn eq(&self, other: &Self) -> bool {
        let text = |form: &Self| form.inputs.each_ref().map(|i| (i.value().to_owned(), i.cursor()));
        text(self) == text(other)
            && (self.kind, self.focus, &self.errors, &self.request)
                == (other.kind, other.focus, &other.errors, &other.request)
            && (self.busy, &self.waits) == (other.busy, &other.waits)
            && (&self.plan, self.asked, self.hurried, self.untouched, self.starting, self.scroll)
                == (&other.plan, other.asked, other.hurried, other.untouched, other.starting, other.scroll)
    }
}

impl LaunchForm {
    /// The text of a field.
    pub fn text(&self, field: Field) -> &str {
        self.inputs[field as usize].value()
    }

    /// Why a field makes no request.
    pub fn error(&self, field: Field) -> Option<&str> {
        self.errors.iter().find(|(at, _)| *at == field).map(|(_, error)| error.as_str())
    }

    /// Replaces the text of a field.
    pub fn set(&mut self, field: Field, text: &str) {
        self.inputs[field as usize] = Input::new(text.to_owned());
    }

    /// What the form does when it is started with an empty field; the field's hint.
    pub fn when_empty(&self, field: Field) -> String {
        match &self.request {
            Some(LaunchRequest { place: PlacementSpec::Picks(picks), .. }) if field == Field::Ranks => {
                format!("{}, one a pick", picks.len())
            }
            _ => field.hint().to_owned(),
        }
    }

    /// Takes the first key or paste into an untouched command: `replaces` empties it.
    fn touch(&mut self, replaces: bool) {
        if self.focus == Field::Command && std::mem::take(&mut self.untouched) && replaces {
            self.inputs[Field::Command as usize].reset();
        }
    }
}

/// Opens the form: the picks of the Cluster screen fill its `on` field.
pub fn open(model: &mut Model) {
    let picks = picks_text(model);
    let form = &mut model.ui.launch;
    form.starting = false;
    form.focus = Field::Command;
    if form.text(Field::Command).trim().is_empty() {
        form.set(Field::Command, "hvtui train digits");
    }
    form.untouched = true;
    if picks.is_empty() {
        form.set(Field::On, "");
        if form.text(Field::Ranks).is_empty() {
            form.set(Field::Ranks, "2");
        }
    } else {
        form.set(Field::On, &picks);
        form.set(Field::Ranks, "");
    }
}

/// The picks as the `on` field writes them: `gpu-a:0,1 gpu-b:2`.
pub fn picks_text(model: &Model) -> String {
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

/// Reads the form again and asks for a preview of what it says.
pub fn preview(model: &mut Model) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    form.plan = None;
    form.busy = false;
    form.hurried = false;
    form.scroll = 0;
    match read(form, &model.world) {
        Ok(request) => {
            form.errors.clear();
            form.request = Some(request.clone());
            form.asked += 1;
            vec![Effect::Preview(request)]
        }
        Err(errors) => {
            form.errors = errors;
            form.request = None;
            Vec::new()
        }
    }
}

/// Takes the answer to a preview; answers to older requests are dropped. Starts what can be started, if that
/// was asked for meanwhile.
pub fn planned(model: &mut Model, plan: Result<Arc<LaunchPlan>, String>) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    form.asked = form.asked.saturating_sub(1);
    if form.asked > 0 || form.request.is_none() {
        return Vec::new();
    }
    form.plan = Some(plan);
    if std::mem::take(&mut form.hurried) { start(model) } else { Vec::new() }
}

/// Takes the answer that somebody has the slots. A start that was asked for meanwhile does not wait unasked.
pub fn busy(model: &mut Model, reason: String) -> Vec<Effect> {
    model.ui.launch.hurried = false;
    let effects = planned(model, Err(reason));
    let form = &mut model.ui.launch;
    form.busy = matches!(form.plan, Some(Err(_)));
    effects
}

fn read(form: &LaunchForm, world: &World) -> Result<LaunchRequest, Vec<(Field, String)>> {
    let mut errors = Vec::new();
    let command = words::split(form.text(Field::Command)).unwrap_or_else(|error| {
        errors.push((Field::Command, error.to_string()));
        Vec::new()
    });
    if command.is_empty() && errors.is_empty() {
        errors.push((Field::Command, "say what to run".to_owned()));
    }
    let env = env(form.text(Field::Env)).unwrap_or_else(|error| {
        errors.push((Field::Env, error));
        BTreeMap::new()
    });
    let ranks = match form.text(Field::Ranks).trim() {
        "" => None,
        text => match text.parse::<u32>() {
            Ok(count) if count > 0 => Some(count),
            _ => {
                errors.push((Field::Ranks, format!("'{text}' is no number of ranks")));
                None
            }
        },
    };
    let picks = picks(form.text(Field::On), world).unwrap_or_else(|error| {
        errors.push((Field::On, error));
        Vec::new()
    });
    if let Some(ranks) = ranks.filter(|ranks| !picks.is_empty() && *ranks as usize != picks.len()) {
        errors.push((Field::Ranks, format!("{ranks} ranks on {} picked slots", picks.len())));
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let optional = |field| Some(form.text(field).trim().to_owned()).filter(|text| !text.is_empty());
    Ok(LaunchRequest {
        name: optional(Field::Name),
        kind: form.kind,
        command,
        place: if picks.is_empty() { PlacementSpec::Count(ranks) } else { PlacementSpec::Picks(picks) },
        env,
        workdir: optional(Field::Workdir),
        options: RunOptions { interface: optional(Field::Interface), ..RunOptions::default() },
        on_busy: OnBusy::default(),
        remarks: Vec::new(),
    })
}

fn env(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = words::split(text).map_err(|error| error.to_string())?;
    pairs
        .into_iter()
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if is_variable(name) => Ok((name.to_owned(), value.to_owned())),
            _ => Err(format!("'{pair}' is no NAME=value")),
        })
        .collect()
}

fn is_variable(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(word) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Reads `gpu-a:0,1 gpu-b:2`; a GPU's number becomes its UUID where the host has told it.
fn picks(text: &str, world: &World) -> Result<Vec<Pick>, String> {
    let mut picks: Vec<Pick> = Vec::new();
    for part in text.split([' ', ';']).filter(|part| !part.is_empty()) {
        let Some((host, slots)) = part.rsplit_once(':') else {
            return Err(format!("'{part}' is no host:slot,slot"));
        };
        for slot in slots.split(',') {
            let index: u32 = slot.parse().map_err(|_| format!("'{slot}' in '{part}' is no slot number"))?;
            let host = HostId::from(host);
            let info = world.hosts.get(&host).and_then(|state| state.info.as_ref());
            let gpu = info.and_then(|info| info.gpus.iter().find(|gpu| gpu.index == index));
            let slot = match gpu {
                Some(gpu) => SlotName::Uuid(gpu.uuid.to_string()),
                None => SlotName::Index(index),
            };
            let pick = Pick { host, slot };
            if picks.contains(&pick) {
                return Err(format!("{}:{index} stands twice", pick.host));
            }
            picks.push(pick);
        }
    }
    Ok(picks)
}

/// Does what a key means here; keys without meaning edit the field.
pub fn handle_key(model: &mut Model, action: Option<Action>, key: Key) -> Vec<Effect> {
    match action {
        Some(Action::NextField) => move_focus(model, 1),
        Some(Action::PrevField) => move_focus(model, -1),
        Some(Action::Back) if model.ui.launch.waits.take().is_some() => {
            model.ui.launch.starting = false;
            model.notice(Level::Info, "the launch waits no longer".to_owned());
            return vec![Effect::LeaveQueue];
        }
        Some(Action::Back) => model.ui.screen = Screen::Cluster,
        Some(Action::Start) => return start(model),
        _ => return edit(model, key),
    }
    Vec::new()
}

fn move_focus(model: &mut Model, delta: isize) {
    let count = Field::ALL.len() as isize;
    let at = (model.ui.launch.focus as isize + delta).rem_euclid(count);
    model.ui.launch.focus = Field::ALL[at as usize];
}

fn edit(model: &mut Model, key: Key) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    match (form.focus, key.code) {
        (_, KeyCode::PageDown) => {
            let lines = form
                .plan
                .as_ref()
                .and_then(|plan| plan.as_ref().ok())
                .map_or(0, |plan| plan.spec.placements.len());
            form.scroll = (form.scroll + 5).min(lines.saturating_sub(1));
            return Vec::new();
        }
        (_, KeyCode::PageUp) => {
            form.scroll = form.scroll.saturating_sub(5);
            return Vec::new();
        }
        (Field::Kind, KeyCode::Right | KeyCode::Char(' ')) => form.kind = next_kind(form.kind),
        (Field::Kind, KeyCode::Left) => form.kind = previous_kind(form.kind),
        (Field::Kind, _) => return Vec::new(),
        (field, code) => {
            let before = form.text(field).to_owned();
            let types = matches!(code, KeyCode::Char(_)) && !key.ctrl && !key.alt;
            form.touch(types || matches!(code, KeyCode::Backspace | KeyCode::Delete));
            let input = &mut form.inputs[field as usize];
            if prompt::edit(input, key).is_none() || input.value() == before {
                return Vec::new();
            }
        }
    }
    preview(model)
}

fn next_kind(kind: Option<JobKind>) -> Option<JobKind> {
    let next =
        kind.map_or(0, |kind| JobKind::ALL.iter().position(|one| *one == kind).unwrap_or_default() + 1);
    JobKind::ALL.get(next).copied()
}

fn previous_kind(kind: Option<JobKind>) -> Option<JobKind> {
    let Some(kind) = kind else { return JobKind::ALL.last().copied() };
    let at = JobKind::ALL.iter().position(|one| *one == kind).unwrap_or_default();
    at.checked_sub(1).and_then(|before| JobKind::ALL.get(before)).copied()
}

/// Pastes into the focused field.
pub fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    if form.focus == Field::Kind {
        return Vec::new();
    }
    form.touch(true);
    prompt::paste(&mut form.inputs[form.focus as usize], text);
    preview(model)
}

fn start(model: &mut Model) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    if form.starting {
        return Vec::new();
    }
    match (&form.request, &form.plan) {
        (Some(_), Some(Ok(plan))) => {
            form.starting = true;
            vec![Effect::Start(Arc::clone(plan))]
        }
        (Some(request), Some(Err(_))) if form.busy => {
            form.starting = true;
            let on_busy = OnBusy { wait: Some(Patience::Endless), ..request.on_busy };
            vec![Effect::Launch(LaunchRequest { on_busy, ..request.clone() })]
        }
        (Some(_), None) => {
            form.hurried = true;
            Vec::new()
        }
        _ => {
            model.notice(Level::Error, "nothing starts on red: mend the marked lines first");
            Vec::new()
        }
    }
}
