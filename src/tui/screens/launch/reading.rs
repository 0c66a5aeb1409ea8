//! From the form's fields to a request, through the readers that the command line uses. Must not know keys, nor read
//! files: a host file's text comes from outside.

use std::collections::BTreeMap;
use std::mem::take;

use crate::domain::ids::HostId;
use crate::domain::options::{GpuView, RunOptions};
use crate::domain::run::JobKind;
use crate::domain::text::{closest, hosts_hint};
use crate::domain::world::World;
use crate::launch::part::Part;
use crate::launch::paste::{self, Launcher, Pasted, Shown};
use crate::launch::read::{self, RequestError, Written};
use crate::launch::remark::Remark;
use crate::launch::request::{LaunchRequest, PlacementSpec, SlotName};
use crate::launch::setup::{self, Does, Step};
use crate::launch::words::{Caret, Line, join, quote, split};
use crate::launch::{host_list, line_place, pasted_request};
use crate::tui::screens::Here;
use crate::tui::screens::launch::surroundings::Surroundings;
use crate::tui::screens::launch::{Fault, Field, LaunchForm, surroundings};

/// What a form comes to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A launch.
    Request(Box<LaunchRequest>),
    /// None, for these reasons.
    Faults(Vec<Fault>),
    /// None before this host file of the line was read.
    NeedsFile(String),
}

/// A form as it was read.
#[derive(Debug)]
pub(super) struct Reading {
    /// What a launcher's line in the command field says by itself.
    pub line: Option<LaunchRequest>,
    /// Whether that line says how many ranks there are; a command without a launcher does not.
    pub is_counted: bool,
    /// What the form comes to.
    pub outcome: Outcome,
}

impl Reading {
    fn needs_file(name: String) -> Self {
        Self { line: None, is_counted: false, outcome: Outcome::NeedsFile(name) }
    }
}

/// The command field.
enum Said {
    Command(Vec<String>),
    Line(Box<LaunchRequest>),
    /// A command without a launcher, and what stands around it.
    Prepared(Box<LaunchRequest>),
    NeedsFile(String),
    Fault(Fault),
}

/// Reads a form. What the fields say counts before what a line in the command field says.
pub(super) fn read(
    form: &LaunchForm,
    variables: &BTreeMap<String, String>,
    world: &World,
    here: &Here,
) -> Reading {
    let mut faults = Vec::new();
    let (mut command, mut line, mut is_counted) = (Vec::new(), None, false);
    match command_field(form, variables, here) {
        Said::Command(words) => command = words,
        Said::Line(request) => (line, is_counted) = (Some(*request), true),
        Said::Prepared(request) => line = Some(*request),
        Said::NeedsFile(name) => return Reading::needs_file(name),
        Said::Fault(fault) => {
            faults.push(fault);
            // the other fields are read all the same
            command = vec!["-".to_owned()];
        }
    }
    let mut env: Vec<String> = Vec::new();
    match split(form.text(Field::Env)) {
        Ok(words) => env = words.into_iter().map(|word| word.text).collect(),
        Err(caret) => faults.push(Fault::new(Field::Env, caret.text)),
    }
    let mut np = None;
    match optional(form, Field::Ranks).map(|text| read::count(&text)).transpose() {
        Ok(count) => np = count,
        Err(error) => faults.push(Fault::new(Field::Ranks, error.at_field())),
    }
    let around = Surroundings::of(form, here, &mut faults);
    let base = if let Some(line) = &line {
        let mut request = line.clone();
        around.lay_over(form, &mut request.options);
        Some(request)
    } else {
        let request = LaunchRequest::of(command.clone());
        let named = command.first().is_some_and(|program| !program.trim().is_empty());
        named.then(|| LaunchRequest { options: around.options(form), ..request })
    };
    let (name, workdir) = (optional(form, Field::Name), optional(form, Field::Workdir));
    let interface = optional(form, Field::Interface);
    let place = Place::of(form.text(Field::On));
    let gpus = match Gpus::of(form.text(Field::Gpus)) {
        Ok(gpus) => gpus,
        Err(text) => {
            faults.push(Fault::new(Field::Gpus, text));
            Gpus::default()
        }
    };
    let each = gpus.each.or(line.is_none().then_some(form.options.gpus_per_rank));
    let mut written = Written {
        name: name.as_deref(),
        kind: form.kind,
        command: &command,
        np,
        hosts: place.hosts.as_deref(),
        gpus: place.gpus.as_deref(),
        env: &env,
        workdir: workdir.as_deref(),
        interface: interface.as_deref(),
        gpus_per_rank: each,
        gpu_view: gpus.view,
        container: around.container(),
        sync: around.sync.clone(),
        ..Written::default()
    };
    // one fault after the other: what is wrong is told at every field
    let outcome = loop {
        match read::read(&written, base.clone(), |name| variables.get(name).cloned()) {
            Ok(mut request) => {
                faults.extend(surroundings::hides(&request.options));
                if !faults.is_empty() {
                    break Outcome::Faults(faults);
                }
                if (place.hosts.is_some() || place.gpus.is_some())
                    && let Some(line) = &line
                {
                    let told = passed_over(line, &request, world);
                    request.remarks.extend(told.map(Remark::info));
                }
                by_uuid(&mut request.place, world);
                break Outcome::Request(Box::new(request));
            }
            Err(error) => {
                let part = error.part();
                let fault = told(&error, line.as_ref(), world);
                // where a number is told already, what the line's own one comes to says nothing more
                let is_told = part == Part::Ranks && faults.iter().any(|known| known.field == fault.field);
                faults.extend((!is_told).then_some(fault));
                // where nothing was written, the fault is of the line, and would come again
                let was_written = match part {
                    Part::Ranks if written.np.is_some() => written.np.take().is_some(),
                    // the line's own number, which does not fit the place
                    Part::Ranks | Part::Place => {
                        written.hosts.take().is_some() | written.gpus.take().is_some()
                    }
                    Part::Env => !take(&mut written.env).is_empty(),
                    Part::Workdir => written.workdir.take().is_some(),
                    // any will do: there is a fault
                    Part::Image => written.container.image.replace("image") != Some("image"),
                    Part::Volumes => !take(&mut written.container.volumes).is_empty(),
                    Part::Command | Part::Options => false,
                };
                if !was_written {
                    break Outcome::Faults(faults);
                }
            }
        }
    };
    Reading { line, is_counted, outcome }
}

/// That the `on` field counts before the places of the line. What may mean the same hosts is not told.
fn passed_over(line: &LaunchRequest, request: &LaunchRequest, world: &World) -> Option<String> {
    let words =
        line_place::passed_over(&line_place::named(line, world)?, &line_place::named(request, world)?)?;
    Some(format!("the field on counts before the line's {words}: empty it to take those of the line."))
}

/// What is wrong, and with which field.
fn told(error: &RequestError, line: Option<&LaunchRequest>, world: &World) -> Fault {
    let has_hosts =
        |line: &LaunchRequest| matches!(line.place, PlacementSpec::Hosts { .. } | PlacementSpec::Picks(_));
    match misspelt(error, world) {
        Some(why) => Fault::new(Field::On, why),
        None if matches!(error, RequestError::MoreThanPicked { .. }) && line.is_some_and(has_hosts) => {
            let why = format!("{}, or empty the field on: the line has hosts", error.at_field());
            Fault::new(Field::Ranks, why)
        }
        None => Fault::new(field_of(error.part()), error.at_field()),
    }
}

/// The host that is not known, or likely misspelt, where too few of its slots are picked.
fn misspelt(error: &RequestError, world: &World) -> Option<String> {
    let RequestError::MoreThanPicked { hosts, .. } = error else { return None };
    let known = || world.hosts.keys().map(HostId::as_str);
    let mut unknown = hosts.iter().filter(|host| !world.hosts.contains_key(*host));
    let near = |host: &HostId| closest(host.as_str(), known()).map(|near| format!("did you mean {near}?"));
    let all = |host: &HostId| hosts_hint(host.as_str(), &known().collect::<Vec<_>>());
    // an address may be that of a host
    let is_name = |host: &HostId| !host.as_str().contains(['.', ':']);
    unknown.find_map(|host| {
        let hint = near(host).or_else(|| is_name(host).then(|| all(host)))?;
        Some(format!("unknown host {host}: {hint}"))
    })
}

fn field_of(part: Part) -> Field {
    match part {
        Part::Command | Part::Options => Field::Command,
        Part::Ranks => Field::Ranks,
        Part::Place => Field::On,
        Part::Env => Field::Env,
        Part::Workdir => Field::Workdir,
        Part::Image => Field::Image,
        Part::Volumes => Field::Volumes,
    }
}

/// What a field says, if it says anything.
pub(super) fn optional(form: &LaunchForm, field: Field) -> Option<String> {
    Some(form.text(field).trim().to_owned()).filter(|text| !text.is_empty())
}

/// The command field: a command, or a launcher's line, which is read as `hvtui run` reads it.
fn command_field(form: &LaunchForm, variables: &BTreeMap<String, String>, here: &Here) -> Said {
    let line = match Line::typed(form.text(Field::Command)) {
        Ok(line) => line,
        Err(caret) => return Said::Fault(Fault::under(caret)),
    };
    let words: Vec<String> = line.words.iter().map(|word| word.text.clone()).collect();
    if paste::own_run(&words).is_some() {
        let before = match setup::prepared(&line) {
            Ok(before) => before,
            Err(caret) => return Said::Fault(Fault::under(caret)),
        };
        // what else is prepared there is prepared for hvtui, not for its ranks
        if before.environment.is_empty() {
            return match (here.read_run)(&words) {
                Ok(mut request) => {
                    request.remarks.extend(line.ending.remarks().into_iter().map(Remark::info));
                    let workdir = request.workdir.clone().or(before.workdir);
                    Said::Line(Box::new(LaunchRequest { workdir, ..request }))
                }
                Err(text) => Said::Fault(Fault::new(Field::Command, text)),
            };
        }
    }
    // a path may have blanks
    let whole = match line.words.as_slice() {
        [word] if word.text.contains(char::is_whitespace) && !word.text.starts_with(['/', '.', '~']) => {
            Some(word)
        }
        _ => None,
    };
    let read = match whole {
        Some(word) => {
            let here = |caret: Caret| line.caret(word.span.clone(), caret.text);
            let read = paste::read_quoted(&word.text, Shown::Form).map_err(here);
            read.map(|read| {
                read.map(|pasted| Pasted { misspelt: pasted.misspelt.clone().map(here), ..pasted })
            })
        }
        None => paste::read(&line),
    };
    match read {
        Err(caret) => Said::Fault(Fault::under(caret)),
        Ok(None) => Said::Command(line.words.into_iter().map(|word| word.text).collect()),
        Ok(Some(pasted)) if pasted.kind == JobKind::Slurm && pasted.misspelt.is_none() => {
            let text = of_srun(&line, &pasted, form.text(Field::Command).trim());
            Said::Fault(Fault::new(Field::Command, text))
        }
        Ok(Some(pasted)) => of_line(form, &pasted.with_names(variables.keys()), variables),
    }
}

/// How a line of srun is started: `text`, of which several lines are made one.
fn of_srun(line: &Line, pasted: &Pasted, text: &str) -> String {
    let is_step = |step: &&Step| step.does != Does::Export;
    let steps = line.before.iter().filter(is_step).map(|step| &line.text[step.span.clone()]);
    let program = pasted.argv.first();
    let before = line.words.iter().map(|word| &word.text).take_while(|word| Some(*word) != program);
    let command = join(&before.chain(&pasted.argv).collect::<Vec<_>>());
    let parts: Vec<&str> = steps.chain([command.as_str()]).collect();
    let shown = match parts.as_slice() {
        _ if !text.contains(['\n', '\r']) => text.to_owned(),
        [command] => (*command).to_owned(),
        parts => quote(&parts.join(" && ")),
    };
    format!("srun is started from the command line alone, on this machine: `hvtui run -- {shown}`")
}

fn of_line(form: &LaunchForm, pasted: &Pasted, variables: &BTreeMap<String, String>) -> Said {
    let fault = |text: String| Said::Fault(Fault::new(Field::Command, text));
    if let Some(text) = pasted_request::instead(pasted) {
        return fault(text);
    }
    if let Some(misspelt) = &pasted.misspelt {
        return Said::Fault(Fault::under(misspelt.clone()));
    }
    let hostfile = match pasted.hostfile.as_ref().map(|name| (name, form.files.get(name))) {
        None => None,
        Some((name, None)) => return Said::NeedsFile(name.clone()),
        Some((_, Some(Err(reason)))) => return fault(reason.clone()),
        Some((name, Some(Ok(text)))) => match host_list::host_file(name, text) {
            Ok(hosts) => Some(hosts),
            Err(error) => return fault(error.to_string()),
        },
    };
    let variable = |name: &str| variables.get(name).cloned();
    let mut request = pasted_request::request(pasted, hostfile, None, false, variable);
    if let Some(port) = pasted.ssh_port {
        request.remarks.push(Remark::info(format!(
            "the line's ssh port {port} has no effect here: hosts are reached as the hosts file says."
        )));
    }
    let is_free = request.place == PlacementSpec::Count(None) && request.gpu_mask.is_none();
    if pasted.launcher == Launcher::Plain && is_free {
        Said::Prepared(Box::new(request))
    } else {
        Said::Line(Box::new(request))
    }
}

/// The `gpus` field: `--gpu-view` or `--gpus-per-rank`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gpus {
    view: Option<GpuView>,
    each: Option<u32>,
}

impl Gpus {
    fn of(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let view = match text {
            "" => None,
            "all" => Some(GpuView::All),
            "own" => Some(GpuView::Own),
            _ => {
                let each = text.parse().ok().filter(|each| *each > 0);
                let each =
                    each.ok_or_else(|| format!("`{text}`: write all, own, or how many GPUs each rank has"))?;
                return Ok(Self { view: None, each: Some(each) });
            }
        };
        Ok(Self { view, each: None })
    }
}

/// What the `gpus` field says of options that are not as usual.
pub(super) fn gpus_text(options: &RunOptions) -> Option<String> {
    match (options.gpus_per_rank, options.gpu_view) {
        (each @ 2.., _) => Some(each.to_string()),
        (_, GpuView::Own) => Some("own".to_owned()),
        _ => None,
    }
}

/// The `on` field, in the spelling of `--gpus` or of `-H`.
struct Place {
    hosts: Option<String>,
    gpus: Option<String>,
}

impl Place {
    /// `gpu-a:0,1 gpu-b:2`, joined by `;` as well, are slots; `-H gpu-a:2,gpu-b:2` are numbers of ranks.
    fn of(text: &str) -> Self {
        let text = text.trim();
        if let Some(list) = text.strip_prefix("-H") {
            return Self { hosts: Some(list.trim().to_owned()), gpus: None };
        }
        let parts: Vec<&str> =
            text.split([' ', ';']).map(str::trim).filter(|part| !part.is_empty()).collect();
        Self { hosts: None, gpus: (!parts.is_empty()).then(|| parts.join(";")) }
    }
}

/// How many slots the `on` field names one by one.
pub(super) fn slots_written(text: &str) -> usize {
    let gpus = Place::of(text).gpus;
    gpus.and_then(|gpus| read::picks(&gpus).ok()).map_or(0, |picks| picks.len())
}

/// A GPU's number becomes its UUID where its host has told it: numbers may change, what is meant does not.
fn by_uuid(place: &mut PlacementSpec, world: &World) {
    let PlacementSpec::Picks(picks) = place else { return };
    for pick in picks {
        let SlotName::Index(index) = pick.slot else { continue };
        let info = world.hosts.get(&pick.host).and_then(|state| state.info.as_ref());
        if let Some(gpu) = info.and_then(|info| info.gpus.iter().find(|gpu| gpu.index == index)) {
            pick.slot = SlotName::Uuid(gpu.uuid.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_of_srun_are_made_one() {
        let said = |text: &str| {
            let line = Line::typed(text).unwrap();
            of_srun(&line, &paste::read(&line).unwrap().unwrap(), text)
        };
        assert!(said("srun -n 2 ./a").ends_with("`hvtui run -- srun -n 2 ./a`"));
        let batch = said("#SBATCH --nodes=2\nexport A=1\nsrun ./a");
        assert!(batch.ends_with("`hvtui run -- A=1 srun --nodes=2 ./a`"), "{batch}");
        let steps = said("cd /x\nexport A=1\nsrun -n 2 ./a 'b c'");
        assert!(steps.ends_with(r"`hvtui run -- 'cd /x && A=1 srun -n 2 ./a '\''b c'\'''`"), "{steps}");
    }

    #[test]
    fn the_gpus_field_is_a_view_or_a_number() {
        let gpus = |view, each| Ok(Gpus { view, each });
        assert_eq!(Gpus::of(" "), gpus(None, None));
        assert_eq!(Gpus::of("all"), gpus(Some(GpuView::All), None));
        assert_eq!(Gpus::of(" own"), gpus(Some(GpuView::Own), None));
        assert_eq!(Gpus::of("2"), gpus(None, Some(2)));
        for text in ["0", "-1", "2 own", "Own"] {
            assert!(Gpus::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_gpus_field_reaches_the_request() {
        let asked = |gpus: &str| {
            let mut form = LaunchForm::default();
            form.set(Field::Command, "python train.py");
            form.set(Field::Ranks, "2");
            form.set(Field::Gpus, gpus);
            match read(&form, &BTreeMap::new(), &World::default(), &Here::default()).outcome {
                Outcome::Request(request) => Ok((request.options.gpu_view, request.options.gpus_per_rank)),
                Outcome::Faults(faults) => Err(faults.iter().map(|fault| fault.field).collect::<Vec<_>>()),
                Outcome::NeedsFile(name) => panic!("{name}"),
            }
        };
        assert_eq!(asked("own").map(|(view, _)| view), Ok(GpuView::Own));
        assert_eq!(asked("2").map(|(_, each)| each), Ok(2));
        assert_eq!(asked("x"), Err(vec![Field::Gpus]));
    }

    #[test]
    fn a_line_whose_number_of_ranks_does_not_fit_the_field_on_is_a_fault_and_no_more() {
        let mut world = World::default();
        for host in ["a", "b"] {
            world.hosts.entry(HostId::from(host)).or_default();
        }
        let with_ranks = |line: &str, on: &str, ranks: &str| {
            let mut form = LaunchForm::default();
            form.set(Field::Command, line);
            form.set(Field::On, on);
            form.set(Field::Ranks, ranks);
            match read(&form, &BTreeMap::new(), &world, &Here::default()).outcome {
                Outcome::Faults(faults) => faults.iter().map(|fault| fault.field).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        };
        let faults = |line: &str, on: &str| with_ranks(line, on, "");
        for line in ["mpirun -np 4 -H a:2,b:2 x", "mpirun -np 3 hostname", "horovodrun -np 4 python3 x.py"] {
            assert_eq!(faults(line, "a:0 b:0"), [Field::Ranks], "{line}");
        }
        let line = "torchrun --nnodes=2 --nproc_per_node=2 x.py";
        assert_eq!(faults(line, "-H a:2"), [Field::Ranks]);
        assert_eq!(faults("mpirun -np 4 x", "a:0 a:0").len(), 1, "what is wrong with the field itself");
        for ranks in ["3", "0", "x"] {
            assert_eq!(with_ranks("mpirun -np 4 x", "a:0 b:0", ranks), [Field::Ranks], "{ranks}");
        }
        assert_eq!(with_ranks(line, "-H a:2", "3"), [Field::Ranks], "the hosts are too few for any number");
        assert_eq!(with_ranks("mpirun -np 4 x", "a:0 a:0", "0"), [Field::Ranks, Field::On]);
        assert_eq!(faults("mpirun -np 4 x", "a:0 c:0"), [Field::On], "a host that is not known");
        assert_eq!(with_ranks("mpirun -np 4 x", "a:0 c:0", "3"), [Field::On]);
    }

    #[test]
    fn a_line_is_passed_over_where_it_names_other_hosts_for_certain() {
        let told = |on: &str, host: &str| {
            let mut form = LaunchForm::default();
            form.set(Field::Command, &format!("horovodrun -np 1 -H {host}:1 python x.py"));
            form.set(Field::On, on);
            match read(&form, &BTreeMap::new(), &World::default(), &Here::default()).outcome {
                Outcome::Request(request) => {
                    request.remarks.iter().any(|remark| remark.contains("the field on counts before"))
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(told("a:0", "b"));
        assert!(!told("a:0", "a"));
        assert!(!told("", "b"), "the field says nothing");
        for same in ["10.0.0.5", "a.cluster", "localhost"] {
            assert!(!told("a:0", same), "{same} may be a");
        }
    }
}
