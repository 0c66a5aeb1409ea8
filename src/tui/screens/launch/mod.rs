//! The Launch screen: a form that becomes a request, and what that request would execute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tui_input::Input;

use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::options::RunOptions;
use crate::domain::run::{JobKind, Placement, Slot};
use crate::launch::error::LaunchError;
use crate::launch::name::kind_of;
use crate::launch::plan::LaunchPlan;
use crate::launch::preview::surroundings as surroundings_of;
use crate::launch::remark::Remark;
use crate::launch::request::{FREE_SLOTS, LaunchRequest, Only, PlacementSpec};
use crate::launch::words::{Caret, join};
use crate::tui::core::{Effect, Level, Screen};
use crate::tui::screens::cluster::rows;
use crate::tui::screens::model::Overlay;
use crate::tui::screens::run::RunUi;
use crate::tui::screens::{Model, cluster, runs};

pub mod checks;
pub mod completion;
mod field;
mod filling;
mod keys;
pub(super) mod outdated;
pub(super) mod paths;
mod reading;
mod surroundings;
pub(super) mod view;

use crate::tui::screens::Entry;
use checks::Checks;
pub use field::Field;
pub use filling::{History, again};
use outdated::Outdated;
use reading::{Outcome, Reading};

/// The screen, for the registry.
pub(super) static ENTRY: Entry = Entry {
    screen: Screen::Launch,
    name: "Launch",
    title: view::action_at,
    keys: &[keys::KEYS],
    act: keys::act,
    missing: keys::missing,
    typed: keys::typed,
    pasted: keys::paste,
    settle: |_| {},
    mouse: keys::mouse,
    draw: view::draw,
};

/// Ranks of the launch that the form suggests: one where there is one slot in all.
fn suggested_ranks(model: &Model) -> &'static str {
    let of_host = |host: &&HostId| -> usize {
        let info = model.world.hosts.get(*host).and_then(|state| state.info.as_ref());
        match (info, model.configured_slots(host)) {
            (None, Some(slots)) => slots as usize,
            // one that has not told yet may have any number
            (None, None) => 2,
            (Some(info), None) if !info.gpus.is_empty() => {
                info.gpus.iter().filter(|gpu| gpu.takes_ranks()).count()
            }
            (Some(_), _) => model.cpu_slots(host) as usize,
        }
    };
    if model.host_order().iter().map(of_host).sum::<usize>() == 1 { "1" } else { "2" }
}

/// Why a field makes no request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it is shown.
    pub field: Field,
    /// What is wrong and what to do.
    pub text: String,
    /// The bytes of the field's text that it is about, and how many, where they are known.
    pub place: Option<(usize, usize)>,
}

impl Fault {
    fn new(field: Field, text: impl Into<String>) -> Self {
        Self { field, text: text.into(), place: None }
    }

    /// A fault within the command line.
    fn under(caret: Caret) -> Self {
        Self { place: Some((caret.at, caret.len)), ..Self::new(Field::Command, caret.text) }
    }
}

/// A paragraph above the ranks of the preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The words.
    pub text: String,
    /// Whether it is something to look at.
    pub warns: bool,
}

/// The form.
#[expect(clippy::struct_excessive_bools, reason = "marks of a form that have nothing to do with each other")]
#[derive(Debug, Clone, Default)]
pub struct LaunchForm {
    /// The text fields, as [`Field::ALL`]; those of choices are unused.
    pub inputs: [Input; Field::ALL.len()],
    /// The chosen recipe of the hosts file.
    pub recipe: Option<usize>,
    /// The chosen kind; `None` = the line's, or guessed from the command.
    pub kind: Option<JobKind>,
    /// Options that no field shows, of the recipe or the run that filled the form.
    pub options: RunOptions,
    /// The field with the cursor.
    pub focus: Field,
    /// The fields that make no request, with the reason.
    pub errors: Vec<Fault>,
    /// The request that the preview answers; `None` while the form has errors.
    pub request: Option<LaunchRequest>,
    /// What a launcher's line in the command field says by itself.
    pub line: Option<LaunchRequest>,
    /// Host files that such lines name: their texts, or why there is none.
    pub files: BTreeMap<String, Result<String, String>>,
    /// The host file that is being read.
    pub awaited: Option<String>,
    /// The answer to the request; `None` while it is being made.
    pub plan: Option<Result<Arc<LaunchPlan>, LaunchError>>,
    /// What of that answer may not be true any more.
    pub outdated: Outdated,
    /// For whom the launch waits that was sent.
    pub waits: Option<String>,
    /// Previews asked for and not yet answered.
    pub asked: u32,
    /// Whether the start was asked for before the preview was there, or its hosts: it follows then.
    pub hurried: bool,
    /// Whether the command is still as the form was opened: typing replaces it.
    pub untouched: bool,
    /// Whether kind and name are those of a recipe, a past run or an older launch.
    pub filled: bool,
    /// Whether the number of ranks is hvtui's own suggestion: a launcher's line counts before it.
    pub suggested: bool,
    /// Whether the cursor has just come to the number of ranks or to the places: typing replaces them.
    pub marked: bool,
    /// The question to the hosts whose answer says that the start would fail, and that one was told of when starting.
    pub warned: Option<u64>,
    /// Whether the launch was sent and not yet answered.
    pub starting: bool,
    /// Whether that launch is placed again because another one was faster.
    pub placed_again: bool,
    /// First note or rank of the preview shown.
    pub scroll: usize,
    /// The launches before.
    pub history: History,
    /// What the hosts of the plan find.
    pub checks: Checks,
    /// The folder of this machine whose names may follow what is typed.
    pub folder: Option<paths::Folder>,
}

impl PartialEq for LaunchForm {
    fn eq(&self, other: &Self) -> bool {
        let text = |form: &Self| form.inputs.each_ref().map(|i| (i.value().to_owned(), i.cursor()));
        text(self) == text(other)
            && (self.recipe, self.kind, &self.options, self.focus, &self.errors, &self.request, &self.line)
                == (
                    other.recipe,
                    other.kind,
                    &other.options,
                    other.focus,
                    &other.errors,
                    &other.request,
                    &other.line,
                )
            && (&self.files, &self.awaited, &self.waits, &self.history, self.suggested)
                == (&other.files, &other.awaited, &other.waits, &other.history, other.suggested)
            && (&self.plan, self.asked, self.outdated, self.hurried, self.filled)
                == (&other.plan, other.asked, other.outdated, other.hurried, other.filled)
            && (&self.checks, &self.folder, self.warned) == (&other.checks, &other.folder, other.warned)
            && (self.untouched, self.marked, self.starting, self.placed_again, self.scroll)
                == (other.untouched, other.marked, other.starting, other.placed_again, other.scroll)
    }
}

impl LaunchForm {
    /// The text of a field.
    pub fn text(&self, field: Field) -> &str {
        self.inputs[field as usize].value()
    }

    /// Why a field makes no request.
    pub fn error(&self, field: Field) -> Option<&Fault> {
        self.errors.iter().find(|fault| fault.field == field)
    }

    /// Replaces the text of a field.
    pub fn set(&mut self, field: Field, text: &str) {
        self.inputs[field as usize] = Input::new(text.to_owned());
    }

    /// Whether a field says nothing and is seldom written: it shares a line with others of its kind.
    pub fn is_folded(&self, field: Field) -> bool {
        let says = !self.text(field).is_empty()
            || self.error(field).is_some()
            || self.line.as_ref().is_some_and(|line| said(line, field).is_some());
        field.is_rare() && self.focus != field && !says
    }

    /// What the form does when it is started with an empty field: what the line says, else the field's hint.
    pub fn when_empty(&self, field: Field) -> String {
        let picked = field == Field::Ranks && !self.text(Field::On).trim().is_empty();
        if let Some(said) = self.line.as_ref().filter(|_| !picked).and_then(|line| said(line, field)) {
            return format!("{said} · from the line");
        }
        match (&self.request, field) {
            (Some(LaunchRequest { place: PlacementSpec::Picks(picks), options, .. }), Field::Ranks) => {
                let written = reading::slots_written(self.text(Field::On));
                let (taken, each) = (picks.len(), options.gpus_per_rank.max(1));
                let ranks = taken as u32 / each;
                match each {
                    _ if taken < written => format!("{ranks} · from the line, on {taken} of {written} slots"),
                    1 => format!("{ranks}, one a slot"),
                    each => format!("{ranks}, one for {each} slots"),
                }
            }
            (Some(request), Field::Kind) => {
                format!("{} · guessed from the command", kind_of(&request.command).name())
            }
            (None, Field::Kind) => "guessed from the command".to_owned(),
            (Some(LaunchRequest { workdir: Some(workdir), options, .. }), Field::Workdir)
                if options.sync.is_some() =>
            {
                format!("{workdir} · the folder of sync")
            }
            (_, Field::Gpus) if self.takes_slices() => {
                "on hosts with MIG slices each rank sees its own alone; or 2 for each rank".to_owned()
            }
            _ => field.hint().to_owned(),
        }
    }

    /// Whether ranks of the preview are on MIG slices.
    fn takes_slices(&self) -> bool {
        let plan = self.plan.as_ref().and_then(|plan| plan.as_ref().ok());
        let placements = plan.iter().flat_map(|plan| &plan.spec.placements);
        placements.flat_map(Placement::gpus).any(GpuUuid::is_slice)
    }

    /// What the user should know about the launch, a sentence each.
    pub fn remarks(&self) -> &[Remark] {
        match (&self.plan, &self.request) {
            (Some(Ok(plan)), Some(_)) => &plan.remarks,
            (_, Some(request)) => &request.remarks,
            _ => &[],
        }
    }

    /// What stands above the ranks of the preview, a paragraph each: warnings, what the ranks find around them, then what only
    /// informs.
    pub fn notes(&self) -> Vec<Note> {
        let around = match (&self.plan, &self.request) {
            (Some(Ok(plan)), Some(_)) => surroundings_of(plan),
            _ => Vec::new(),
        };
        let around = around.into_iter().map(|text| Note { text, warns: false });
        let note = |remark: &Remark| Note { text: remark.shown(), warns: remark.warns() };
        let (warnings, told): (Vec<Note>, Vec<Note>) =
            self.remarks().iter().map(note).partition(|note| note.warns);
        warnings.into_iter().chain(around).chain(told).collect()
    }

    /// Whether the launch that was sent is no run yet and holds no GPUs.
    fn can_be_called_off(&self) -> bool {
        self.waits.is_some() || (self.starting && self.placed_again)
    }

    /// Whether typing replaces the text of a field.
    pub fn is_replaced(&self, field: Field) -> bool {
        match field {
            Field::Command => self.untouched,
            Field::Ranks => self.suggested || self.marked,
            Field::On => self.marked,
            _ => false,
        }
    }

    /// Takes the first key or paste into a text that typing replaces: `replaces` empties it.
    fn touch(&mut self, replaces: bool) {
        if self.focus == Field::Command && std::mem::take(&mut self.untouched) && replaces {
            self.inputs[Field::Command as usize].reset();
            self.drop_filled();
        }
        let marked = std::mem::take(&mut self.marked);
        let suggested = self.suggested && self.focus == Field::Ranks;
        if (marked || suggested) && replaces {
            self.inputs[self.focus as usize].reset();
        }
    }
}

impl LaunchForm {
    /// What keeps the form from being launched.
    pub fn to_fix(&self) -> String {
        let count = self.errors.len();
        let errors = if count == 1 { "error" } else { "errors" };
        format!("fix the fields marked in red first · {count} {errors} above")
    }

    /// What a recipe or a past run has filled in for its own command goes with that.
    fn drop_filled(&mut self) {
        self.options = RunOptions::default();
        self.recipe = None;
        if std::mem::take(&mut self.filled) {
            self.kind = None;
            for field in
                [Field::Name, Field::Gpus, Field::Activate, Field::Sync, Field::Image, Field::Volumes]
            {
                self.set(field, "");
            }
        }
    }

    /// A field has got another text.
    fn edited(&mut self, field: Field) {
        self.history.leave();
        if field == Field::Ranks {
            self.suggested = false;
        }
        if field == Field::Command && self.text(field).trim().is_empty() {
            self.drop_filled();
        }
    }
}

/// Picks of the request that nothing can start on, because their host is not reached, in words.
pub fn lost_picks(model: &Model) -> Vec<String> {
    let Some(PlacementSpec::Picks(picks)) = model.ui.launch.request.as_ref().map(|request| &request.place)
    else {
        return Vec::new();
    };
    let lost = |host: &&HostId| cluster::picking::picks_are_lost(model, host);
    let words = |host: &HostId| {
        let count = picks.iter().filter(|pick| pick.host == *host).count();
        let since = model.world.hosts.get(host).and_then(|state| state.down_since);
        let since = since.map_or_else(
            || "is refused".to_owned(),
            |since| format!("is {}", rows::down_words(since, model.moment(), &model.zone)),
        );
        let picks = if count == 1 { "its pick" } else { "its picks" };
        format!(
            "{host} {since}: nothing starts on {picks} until it is back; unpick them, or R on the Cluster screen tries again"
        )
    };
    let hosts: BTreeSet<&HostId> = picks.iter().map(|pick| &pick.host).collect();
    hosts.into_iter().filter(lost).map(words).collect()
}

/// How many ranks a line has that takes all free slots of so many hosts: `--nproc-per-node=gpu`.
fn each_slot(nodes: u32, only: Only) -> String {
    let slot = match only {
        Only::Any => "slot",
        Only::Gpus => "GPU",
        Only::Cpus => "CPU slot",
    };
    let hosts = if nodes == 1 { "one host".to_owned() } else { format!("{nodes} hosts") };
    format!("one on every free {slot} of {hosts}")
}

/// What a launcher's line says about a field.
fn said(line: &LaunchRequest, field: Field) -> Option<String> {
    match field {
        Field::Kind => line.kind.map(|kind| kind.name().to_owned()),
        Field::Ranks => match &line.place {
            PlacementSpec::Nodes { nodes, each: None } => return Some(each_slot(*nodes, line.only)),
            PlacementSpec::Count(count) => count.or_else(|| line.ranks_of_mask(line.options.gpus_per_rank)),
            PlacementSpec::Hosts { hosts, np } => {
                let sum = hosts.iter().fold(0_u32, |sum, (_, count)| sum.saturating_add(*count));
                // how many are free is not said by the line
                np.or(Some(sum).filter(|sum| *sum != FREE_SLOTS))
            }
            PlacementSpec::Nodes { nodes, each } => each.map(|each| nodes.saturating_mul(each)),
            PlacementSpec::Free { ranks, .. } => Some(*ranks),
            PlacementSpec::Picks(picks) => Some(picks.len() as u32 / line.options.gpus_per_rank.max(1)),
        }
        .map(|count| count.to_string()),
        Field::On => match &line.place {
            PlacementSpec::Hosts { hosts, .. } => Some(filling::hosts_text(hosts)),
            PlacementSpec::Picks(picks) => Some(filling::slots_text(picks, |_| None)),
            PlacementSpec::Count(_) | PlacementSpec::Nodes { .. } | PlacementSpec::Free { .. } => None,
        },
        Field::Env => {
            let pairs: Vec<String> = line.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            (!pairs.is_empty()).then(|| join(&pairs))
        }
        Field::Gpus => reading::gpus_text(&line.options),
        Field::Workdir => line.workdir.clone(),
        Field::Interface => line.options.interface.clone(),
        // a line tells no folder of this machine that it copies
        Field::Activate | Field::Sync | Field::Image | Field::Volumes => {
            surroundings::text(&line.options, field, "")
        }
        Field::Name => line.name.clone(),
        Field::Recipe | Field::Command => None,
    }
}

/// The fields that the form shows: a recipe is chosen where the hosts file has one.
pub fn fields(model: &Model) -> impl DoubleEndedIterator<Item = Field> {
    let recipes = !model.recipes.is_empty();
    Field::ALL.into_iter().filter(move |field| recipes || *field != Field::Recipe)
}

/// Opens the form from the screen that is shown, and asks for a preview of it.
pub(super) fn open(model: &mut Model) -> Vec<Effect> {
    fill_in(model);
    model.ui.open(Screen::Launch);
    preview(model)
}

/// The picks of the Cluster screen fill the `on` field, where there are none the GPU that Detail shows, if it is free.
fn fill_in(model: &mut Model) {
    let mut picks = filling::chosen_text(model);
    if picks.is_empty() {
        picks = filling::shown_text(model);
    }
    let form = &mut model.ui.launch;
    form.starting = false;
    form.files.clear();
    form.focus = Field::Command;
    if form.text(Field::Command).trim().is_empty() {
        form.set(Field::Command, "hvtui train digits");
    }
    form.untouched = true;
    form.history.leave();
    if picks.is_empty() {
        form.set(Field::On, "");
        if form.text(Field::Ranks).is_empty() {
            form.suggested = true;
        }
    } else {
        form.set(Field::On, &picks);
        form.set(Field::Ranks, "");
        form.suggested = false;
    }
}

/// Reads the form, with as many ranks as what the hosts have told suggests, where no number was typed.
fn read(model: &mut Model) -> Reading {
    let reading = reading::read(&model.ui.launch, &model.variables.0, &model.world, &model.here);
    if !model.ui.launch.suggested {
        return reading;
    }
    let ranks = if reading.is_counted { "" } else { suggested_ranks(model) };
    if model.ui.launch.text(Field::Ranks) == ranks {
        return reading;
    }
    model.ui.launch.set(Field::Ranks, ranks);
    reading::read(&model.ui.launch, &model.variables.0, &model.world, &model.here)
}

/// Reads the form again and asks for a preview of what it says.
pub fn preview(model: &mut Model) -> Vec<Effect> {
    let reading = read(model);
    let form = &mut model.ui.launch;
    form.plan = None;
    form.outdated = Outdated::default();
    form.checks.forget();
    form.hurried = false;
    form.scroll = 0;
    form.errors.clear();
    form.request = None;
    form.line = reading.line;
    form.awaited = None;
    match reading.outcome {
        Outcome::Request(request) => {
            form.request = Some((*request).clone());
            form.asked += 1;
            vec![Effect::Preview(*request)]
        }
        Outcome::Faults(mut faults) => {
            faults.sort_by_key(|fault| fault.field);
            form.errors = faults;
            Vec::new()
        }
        Outcome::NeedsFile(name) => {
            form.awaited = Some(name.clone());
            vec![Effect::ReadHostFile(name)]
        }
    }
}

/// Takes the text of a host file that a line names, or why there is none.
pub fn file_read(model: &mut Model, name: String, text: Result<String, String>) -> Vec<Effect> {
    let awaited = model.ui.launch.awaited.as_ref() == Some(&name);
    model.ui.launch.files.insert(name, text);
    if !awaited {
        return Vec::new();
    }
    // a start that was asked for meanwhile still is
    let hurried = model.ui.launch.hurried;
    let effects = preview(model);
    model.ui.launch.hurried = hurried && model.ui.launch.request.is_some();
    effects
}

/// Takes the answer to a preview; answers to older requests are dropped. Starts what can be started, if that
/// was asked for meanwhile.
pub fn planned(model: &mut Model, plan: Result<Arc<LaunchPlan>, LaunchError>) -> Vec<Effect> {
    let form = &mut model.ui.launch;
    form.asked = form.asked.saturating_sub(1);
    if form.asked > 0 || form.request.is_none() {
        return Vec::new();
    }
    if std::mem::take(&mut form.outdated.asked_again) {
        match (&form.plan, &plan) {
            (Some(Ok(before)), Ok(now)) if outdated::is_the_same(before, now) => return Vec::new(),
            _ => form.checks.forget(),
        }
    }
    let asked = plan.as_ref().ok().map(|plan| form.checks.ask(plan));
    let look = plan.as_ref().ok().cloned();
    let waits = plan.as_ref().is_err_and(LaunchError::is_waiting);
    // a start that was asked for meanwhile does not wait unasked for slots that are taken
    let is_taken = plan.as_ref().is_err_and(|error| error.busy().is_some());
    form.plan = Some(plan);
    let starts = !waits && std::mem::take(&mut form.hurried) && !is_taken;
    let looks = look.map(|plan| checks::look(model, &plan)).unwrap_or_default();
    let mut effects: Vec<Effect> = asked.into_iter().chain(looks).collect();
    if starts {
        effects.extend(keys::start(model));
    }
    effects
}

/// The run that the form asked for has started: its screen is shown, unless something else is being done by now.
pub fn started(model: &mut Model, run: RunId) {
    let form = &mut model.ui.launch;
    let waited = form.waits.take().is_some();
    let waited = std::mem::take(&mut form.starting) || waited;
    let is_free = matches!(model.ui.overlay, Overlay::None | Overlay::Help(_)) && !model.ui.replay.open;
    if !(waited && is_free && model.ui.screen == Screen::Launch) {
        take_back_picks(model, &run);
        model.notice(Level::Info, format!("run {} has started: 2 shows it", run.short()));
        return;
    }
    model.ui.cluster.unpick();
    runs::select(model, run.clone());
    model.ui.run = RunUi::on(run);
    // the form is done: one level out of the run is where the form was opened
    model.ui.back();
    model.ui.open(Screen::Run);
}

/// Another launch had slots of this run first. The form that asked for it waits for another one, where the run's screen is shown.
pub fn withdrawn(model: &mut Model, run: &RunId) {
    model.live_world().runs.remove(run);
    if model.ui.screen == Screen::Run && model.ui.run.run.as_ref() == Some(run) && !model.ui.replay.open {
        model.ui.run = RunUi::default();
        // what lies over it is about the run
        model.ui.overlay = Overlay::None;
        model.ui.back();
        model.ui.open(Screen::Launch);
        (model.ui.launch.starting, model.ui.launch.placed_again) = (true, true);
    }
}

/// GPUs that a run has taken are picked no longer; what was picked since then is.
fn take_back_picks(model: &mut Model, run: &RunId) {
    let Some(state) = model.live_world().runs.get(run) else { return };
    let spec = state.spec.clone();
    for placement in &spec.placements {
        if let Slot::Gpu { uuid, .. } = &placement.slot {
            model.ui.cluster.drop_pick(&placement.host, uuid);
        }
    }
}

/// The launch that the form asked for waits: the form says for what, on other screens a notice does.
pub fn waits(model: &mut Model, why: String) {
    let text = format!("the launch waits: {why}");
    model.ui.launch.waits = Some(why);
    if model.ui.screen == Screen::Launch {
        model.ui.events.keep(model.now, Level::Info, &text);
    } else {
        model.notice(Level::Info, text);
    }
}

/// The launch that the form asked for has not become a run.
pub fn failed(model: &mut Model, why: String) {
    model.ui.launch.starting = false;
    model.ui.launch.waits = None;
    model.notice(Level::Error, why);
}
