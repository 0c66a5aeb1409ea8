//! From the arguments of `run` to a request and the hosts that it needs: reads the host file, the script, past runs and
//! this process's environment, which the launcher must not.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::args::{self, RunArgs};
use super::errors::{Code, Failure};
use super::find::recorded;
use super::here::{from_here, lies_here};
use super::paths::Paths;
use super::unread_input;
use crate::config::{Address, HostConfig, HostsFile, Recipe, RecipeWhere, SlotCount};
use crate::domain::ids::HostId;
use crate::domain::options::{ReachedHost, RunOptions};
use crate::domain::run::{JobKind, RunSpec};
use crate::domain::sync::SyncPlan;
use crate::domain::text::closest;
use crate::launch::allocation::{Allocation, AllocationError};
use crate::launch::container::WrittenContainer;
use crate::launch::paste::{self, Launcher, Pasted, Shown};
use crate::launch::read::{self, RequestError, Written};
use crate::launch::remark::Remark;
use crate::launch::request::{LaunchRequest, OnBusy, Patience, Pick, PlacementSpec, Since, SlotName};
use crate::launch::words::Caret;
use crate::launch::{folder, host_list, line_place, names, pasted_request, srun};
use crate::launcher::code::CodeFinder;
use crate::launcher::place::unknown_host;
use crate::launcher::{host_names, script, trees};
use crate::record::Reader;
use crate::tui::source::recorded::TREE_FILE;

/// What a command line of `run` comes to.
#[derive(Debug)]
pub enum Asked {
    /// A launch.
    Launch(Box<Launch>),
    /// A line such as `watch -n 10 nvidia-smi`: the seconds between two looks.
    Watch(f64),
}

/// A launch, and where it may go.
#[derive(Debug)]
pub struct Launch {
    /// What is asked for.
    pub request: LaunchRequest,
    /// The hosts file's hosts, and those that the line names beside them.
    pub hosts: Vec<HostConfig>,
    /// More words about the start.
    pub verbose: bool,
    /// Where what ranks print is written on this machine, too.
    pub output: Option<PathBuf>,
}

/// What `hvtui run` was asked for; `secrets` are those of its `--secret-file`.
pub fn asked(
    args: &RunArgs,
    secrets: &BTreeMap<String, String>,
    file: &HostsFile,
    paths: &Paths,
) -> Result<Asked, Failure> {
    let command = recipe_command(args, file).unwrap_or(&args.command);
    let pasted = pasted(command).map_err(|fault| Failure::usage(fault.to_string()))?;
    if let Some(Launcher::Watch { every_ms }) = pasted.as_ref().map(|pasted| &pasted.launcher) {
        return Ok(Asked::Watch(*every_ms as f64 / 1000.0));
    }
    if let Some(text) = pasted.as_ref().and_then(pasted_request::instead) {
        return Err(Failure::usage(text));
    }
    let mut hosts = file.hosts.clone();
    let mut request = read(args, base(args, pasted.as_ref(), file, paths)?, file)?;
    let from_file = secrets.keys().cloned();
    let names: Vec<String> = args.secret_env.iter().cloned().chain(from_file).collect();
    request.env.extend(read::secret_env(&names)?);
    allocation(&mut request, &mut hosts, |name| std::env::var(name).ok())?;
    if let Some(file) = &args.timeline_filename {
        let kind = request.kind.unwrap_or_else(|| crate::launch::name::kind_of(&request.command));
        if kind != JobKind::Horovod {
            let text = format!("--timeline-filename is for --kind horovod: the kind is {}", kind.name());
            return Err(Failure::usage(text));
        }
        request.env.insert("HOROVOD_TIMELINE".to_owned(), file.clone());
    }
    if request.options.sync.is_none() {
        let finder = CodeFinder { hosts: hosts.clone() };
        request.code = finder.find(&request.command, request.workdir.as_deref(), &request.place.named());
        let differs = request.since.as_ref().zip(request.code.as_ref());
        let differs = differs.and_then(|(since, code)| trees::differs(since, code, None));
        request.remarks.extend(differs.map(Remark::info));
        let lies_here = lies_here(&request, &hosts);
        request.remarks.extend(lies_here.map(Remark::warning));
    }
    script::look(&mut request);
    request.remarks.extend(unread_input::remark().map(Remark::warning));
    let port = args.ssh_port.or_else(|| pasted.as_ref()?.ssh_port);
    add_hosts(&mut hosts, &mut request, pasted.as_ref(), (port, file.path.is_none() && args.again.is_none()));
    if let Some(run) = &args.again
        && let Some(missing) = request.place.named().iter().find(|id| host_names::find(id, &hosts).is_none())
    {
        let file = match &file.path {
            Some(path) => format!("{} does not name", path.display()),
            None => "no hosts file names".to_owned(),
        };
        return Err(Failure::usage(format!(
            "--again {run}: it ran on host {missing}, which {file}: give the hosts file of that launch by --hosts, or \
             other hosts by -H"
        )));
    }
    host_names::resolve(&mut request.place, &hosts);
    set_login(&mut hosts, &request.place, pasted.as_ref(), port);
    let verbose = args.verbose || pasted.as_ref().is_some_and(|pasted| pasted.verbose);
    // a line that is given to its own launcher has it there
    let of_line = || pasted.filter(|pasted| !pasted.is_delegated())?.output_filename;
    let output = args.output_filename.clone().or_else(|| of_line().map(PathBuf::from));
    Ok(Asked::Launch(Box::new(Launch { request, hosts, verbose, output })))
}

/// The line that a command is, if it is one.
pub(super) fn pasted(command: &[String]) -> Result<Option<Pasted>, Caret> {
    match command {
        [line] if line.trim().contains(char::is_whitespace) && !Path::new(line).exists() => {
            paste::read_quoted(line, Shown::CommandLine)
        }
        words => paste::read_words(words),
    }
}

/// What the options are laid over: a past run, a recipe, or a pasted line.
fn base(
    args: &RunArgs,
    pasted: Option<&Pasted>,
    file: &HostsFile,
    paths: &Paths,
) -> Result<Option<LaunchRequest>, Failure> {
    let mut base = if let Some(run) = &args.again {
        let found = recorded(run, paths)?.and_then(|reader| Some((reader.spec().cloned()?, reader)));
        let (spec, reader) =
            found.ok_or_else(|| Failure::usage(format!("--again {run}: no such run is recorded here")))?;
        if let Some(imported) = &spec.options.imported {
            let words = format!("--again {run}: it was imported ({imported}), and never launched by hvtui");
            return Err(Failure::usage(words));
        }
        let again = LaunchRequest::again(&spec);
        // the run may have hidden its GPUs: what asks for some, or for another command, does not go on with that
        let is_other = args.gpus.is_some() || args.free.is_some() || args.gpus_per_rank.is_some();
        let gpu_mask = again.gpu_mask.clone().filter(|_| !is_other && args.command.is_empty());
        Some(LaunchRequest { since: since(&reader, &spec), gpu_mask, ..again })
    } else if let Some(name) = &args.recipe {
        let recipe = recipe(name, &file.recipes)?;
        Some(match pasted.filter(|_| args.command.is_empty()) {
            Some(line) => over_line(recipe, pasted_line(line, args)?, args)
                .map_err(|error| Failure::usage(format!("--recipe {name}: {error}")))?,
            None => from_recipe(recipe),
        })
    } else {
        None
    };
    match (pasted, &mut base) {
        (Some(pasted), None) => base = Some(pasted_line(pasted, args)?),
        (_, Some(_)) if args.command.is_empty() => {}
        (None, Some(base)) => {
            base.command.clone_from(&args.command);
            // Both were those of the other command.
            (base.name, base.kind) = (None, None);
            (base.options.delegate, base.options.local_rank_arg, base.single) = (None, None, false);
            base.options.programs.clear();
            (base.options.python_of, base.options.oversubscribe) = (None, false);
        }
        (Some(_), Some(_)) => {
            let text = "a launcher's line can not be joined with --recipe or --again: leave one of them out";
            return Err(Failure::usage(text));
        }
        (None, None) => {}
    }
    Ok(base)
}

pub(super) fn pasted_line(pasted: &Pasted, args: &RunArgs) -> Result<LaunchRequest, Failure> {
    if let Some(misspelt) = pasted.misspelt.as_ref().filter(|_| !args.delegate) {
        return Err(Failure::usage(misspelt.to_string()));
    }
    let hostfile = match &pasted.hostfile {
        None => None,
        Some(name) => Some(host_list::host_file(name, &text_of(Path::new(name))?)?),
    };
    let script = script::text_of(&pasted.command, &[]);
    let variable = |key: &str| std::env::var(key).ok();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let pasted = &pasted.with_names(names);
    Ok(pasted_request::request(pasted, hostfile, script.as_deref(), args.delegate, variable))
}

/// The command of the recipe that is asked for, unless another one is written; `None` for an unknown recipe.
fn recipe_command<'a>(args: &RunArgs, file: &'a HostsFile) -> Option<&'a [String]> {
    let name = args.recipe.as_ref().filter(|_| args.command.is_empty())?;
    file.recipes.iter().find(|recipe| recipe.name == *name).map(|recipe| recipe.command.as_slice())
}

/// A saved launch by its name.
fn recipe<'a>(name: &str, recipes: &'a [Recipe]) -> Result<&'a Recipe, Failure> {
    let Some(recipe) = recipes.iter().find(|recipe| recipe.name == name) else {
        let known: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        let hint = match closest(name, known.iter().copied()) {
            _ if known.is_empty() => "the hosts file has none: add a [[recipe]]".to_owned(),
            Some(near) => format!("did you mean {near}?"),
            None => format!("the hosts file has {}", known.join(", ")),
        };
        return Err(Failure::usage(format!("--recipe {name}: no such recipe: {hint}")));
    };
    if let Some(sync) = &recipe.sync {
        sync_plan(sync).map_err(Failure::usage)?;
    }
    Ok(recipe)
}

/// What a recipe launches whose command is a launcher's line, as in the Launch form: what the recipe says beside the line
/// counts before it. Of `args`, what the ranks of the line and the picks of the recipe have to agree with.
fn over_line(
    recipe: &Recipe,
    mut line: LaunchRequest,
    args: &RunArgs,
) -> Result<LaunchRequest, RequestError> {
    line.options.environment = recipe.environment.over(&line.options.environment);
    let volumes: Vec<String> = match &recipe.container {
        Some(container) => container.volumes.iter().map(ToString::to_string).collect(),
        None => Vec::new(),
    };
    if let Some(container) = line.options.container.as_mut().filter(|_| !volumes.is_empty()) {
        container.volumes.clear();
    }
    let (np, picks) = match &recipe.place {
        RecipeWhere::Count(count) => (*count, None),
        RecipeWhere::Picks(picks) if picks.is_empty() || is_placed(args) => (None, None),
        RecipeWhere::Picks(picks) => (args.np, Some(picks)),
    };
    let gpus = picks.map(|picks| picks.iter().map(pick_text).collect::<Vec<_>>().join(";"));
    let env: Vec<String> = recipe.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let written = Written {
        name: Some(&recipe.name),
        kind: recipe.kind,
        np,
        gpus: gpus.as_deref(),
        env: &env,
        workdir: recipe.workdir.as_deref(),
        gpus_per_rank: args.gpus_per_rank,
        container: WrittenContainer {
            image: recipe.container.as_ref().map(|container| container.image.as_str()),
            volumes: &volumes,
            arguments: &[],
        },
        sync: from_recipe(recipe).options.sync,
        ..Written::default()
    };
    read::read(&written, Some(line), |_| None)
}

/// Whether options say on which hosts or slots the ranks go.
fn is_placed(args: &RunArgs) -> bool {
    let texts = [&args.host_list, &args.gpus].into_iter().any(Option::is_some);
    let counts = [args.free, args.nproc_per_node, args.nnodes].iter().any(Option::is_some);
    texts || counts || args.hostfile.is_some()
}

/// A slot as `--gpus` takes it.
fn pick_text(pick: &Pick) -> String {
    match &pick.slot {
        SlotName::Index(index) => format!("{}:{index}", pick.host),
        SlotName::Uuid(uuid) => format!("{}:{uuid}", pick.host),
    }
}

/// What a recipe launches.
pub fn from_recipe(recipe: &Recipe) -> LaunchRequest {
    LaunchRequest {
        name: Some(recipe.name.clone()),
        kind: recipe.kind,
        place: match &recipe.place {
            RecipeWhere::Count(count) => PlacementSpec::Count(*count),
            RecipeWhere::Picks(picks) => PlacementSpec::Picks(picks.clone()),
        },
        env: recipe.env.clone(),
        workdir: recipe.workdir.clone(),
        options: RunOptions {
            container: recipe.container.clone(),
            environment: recipe.environment.clone(),
            sync: recipe.sync.as_deref().map(|text| sync_plan(text).unwrap_or_else(|_| nowhere(text))),
            ..RunOptions::default()
        },
        ..LaunchRequest::of(recipe.command.clone())
    }
}

/// `--sync` as it is meant here.
fn sync_plan(text: &str) -> Result<SyncPlan, String> {
    let here =
        std::env::current_dir().map_err(|error| format!("--sync {text}: the current folder: {error}"))?;
    let home = std::env::home_dir().unwrap_or_else(|| "/".into());
    folder::sync_plan(text, false, &here.display().to_string(), &home.display().to_string())
}

/// A folder that can't be copied from here, such as the home folder itself: the hosts refuse it, with the reason.
fn nowhere(text: &str) -> SyncPlan {
    SyncPlan { dir: text.to_owned(), remote: "~".to_owned(), delete: false }
}

/// The code of the run that is launched once more.
fn since(reader: &Reader, spec: &RunSpec) -> Option<Since> {
    let code = spec.code.clone()?;
    let tree = reader.path().with_file_name(TREE_FILE).display().to_string();
    Some(Since { run: spec.id.short().to_owned(), code, tree: Some(tree) })
}

pub(super) fn read(
    args: &RunArgs,
    base: Option<LaunchRequest>,
    file: &HostsFile,
) -> Result<LaunchRequest, Failure> {
    let hostfile = match &args.hostfile {
        None => None,
        Some(path) => Some((path.display().to_string(), text_of(path)?)),
    };
    let workdir = args.workdir.as_deref().map(from_here).transpose()?;
    let written = Written {
        name: args.name.as_deref(),
        kind: args.kind.as_deref().and_then(args::kind),
        command: &args.command,
        np: args.np,
        hosts: args.host_list.as_deref(),
        hostfile: hostfile.as_ref().map(|(name, text)| (name.as_str(), text.as_str())),
        gpus: args.gpus.as_deref(),
        free: args.free,
        filter: args.filter.as_deref(),
        per_node: args.nproc_per_node,
        nodes: args.nnodes,
        gpu_view: args.gpu_view.map(Into::into),
        gpus_per_rank: args.gpus_per_rank,
        env: &args.env,
        workdir: workdir.as_deref(),
        interface: args.network_interface.as_deref(),
        start_timeout_s: args.start_timeout,
        max_restarts: args.max_restarts,
        delegate: args.delegate,
        nccl_timings: args.nccl_timings,
        container: WrittenContainer {
            image: args.image.as_deref(),
            volumes: &args.volumes,
            arguments: &args.container_args,
        },
        sync: args.sync.as_deref().map(sync_plan).transpose().map_err(Failure::usage)?,
        sync_delete: args.sync_delete,
        spool_cap: args.spool_cap.as_deref(),
        max_silence: args.max_silence.as_deref(),
        python_hooks: args.python_hooks.as_deref(),
        traceable: args.traceable,
        environment: args.environment.written(),
        on_busy: OnBusy {
            share: args.share,
            wait: args.wait.map(|seconds| seconds.map_or(Patience::Endless, Patience::Seconds)),
        },
    };
    let line = base.clone().filter(|_| args.again.is_none() && args.recipe.is_none());
    let request = read::read(&written, base, |key| std::env::var(key).ok());
    let mut request = request.map_err(|error| unknown_first(error, file))?;
    let resolved = |request: &LaunchRequest| {
        let mut request = request.clone();
        host_names::resolve(&mut request.place, &file.hosts);
        request
    };
    let folder = line.as_ref().and_then(|line| line.workdir.clone());
    let folder = folder.filter(|folder| args.workdir.is_some() && request.workdir.as_ref() != Some(folder));
    let passed_over = line.and_then(|line| line_place::passed_over(&resolved(&line), &resolved(&request)));
    request.remarks.extend(passed_over.map(|words| {
        let option = place_option(args);
        Remark::info(format!(
            "`{option}` counts before the line's {words}: leave it out to take those of the line."
        ))
    }));
    request.remarks.extend(folder.map(|folder| {
        Remark::info(format!(
            "`--workdir` counts before the line's folder {folder}: leave it out to start there."
        ))
    }));
    Ok(request)
}

/// The option that says where ranks go.
fn place_option(args: &RunArgs) -> &'static str {
    let options = [
        ("--free", args.free.is_some()),
        ("-H", args.host_list.is_some()),
        ("--hostfile", args.hostfile.is_some()),
        ("--gpus", args.gpus.is_some()),
        ("--nproc-per-node", args.nproc_per_node.is_some()),
    ];
    options.into_iter().find(|(_, given)| *given).map_or("--nnodes", |(option, _)| option)
}

/// Of too few slots on a host that the hosts file does not name, the host is what is wrong.
fn unknown_first(error: RequestError, file: &HostsFile) -> Failure {
    let RequestError::MoreThanPicked { hosts, .. } = &error else { return error.into() };
    let mut unknown = hosts.iter().filter(|id| host_names::find(id, &file.hosts).is_none());
    match unknown.next().filter(|_| file.path.is_some()) {
        Some(id) => {
            let known: Vec<&HostId> = file.hosts.iter().map(|host| &host.id).collect();
            Failure::usage(unknown_host(id, &known).to_string())
        }
        None => error.into(),
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Code::from(&error), format!("can't read host file {}: {error}", path.display()))
    };
    std::fs::read_to_string(path).map_err(failed)
}

/// Inside a Slurm allocation, where no host is named: its hosts are used, those too that the hosts file does not name.
/// Where srun starts the ranks, this machine stands for all hosts.
fn allocation(
    request: &mut LaunchRequest,
    hosts: &mut Vec<HostConfig>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let fault = |fault: AllocationError| Failure::usage(fault.to_string());
    let job = Allocation::read(variable).map_err(fault)?;
    if request.kind == Some(JobKind::Slurm) {
        let ranks = srun::through_srun(request, job.as_ref());
        let ranks = ranks.map_err(|fault| Failure::usage(fault.to_string()))?;
        let host = HostConfig { id: srun::HOST.into(), ..HostConfig::this_machine() };
        *hosts = vec![HostConfig { slots: SlotCount::Cpus(ranks), ..host }];
        return Ok(());
    }
    let Some(job) = job else { return Ok(()) };
    let Some(place) = job.place(&request.place, request.options.gpus_per_rank).map_err(fault)? else {
        return Ok(());
    };
    for (id, tasks) in &job.hosts {
        let known = host_names::find(id, hosts).map(|host| host.id.clone());
        match hosts.iter_mut().find(|host| Some(&host.id) == known.as_ref()) {
            Some(HostConfig { slots: SlotCount::Cpus(count), .. }) => *count = (*count).max(*tasks),
            Some(_) => {}
            None if job.here.as_ref() == Some(id) => {
                hosts.push(HostConfig { id: id.clone(), ..HostConfig::this_machine() });
            }
            None => hosts.push(HostConfig {
                id: id.clone(),
                address: Address::Ssh(id.to_string()),
                ..HostConfig::this_machine()
            }),
        }
    }
    request.place = place;
    host_names::resolve(&mut request.place, hosts);
    request.remarks.push(Remark::info(job.remark()));
    Ok(())
}

/// Adds hosts that are named and that the hosts file does not know: addresses, any name where there is no hosts file, and
/// this machine. A name that is merely written wrongly stays unknown.
fn add_hosts(
    hosts: &mut Vec<HostConfig>,
    request: &mut LaunchRequest,
    pasted: Option<&Pasted>,
    (port, no_file): (Option<u16>, bool),
) {
    for host in &request.options.reached {
        if !hosts.iter().any(|known| known.id.as_str() == host.address) {
            hosts.push(reached(host));
        }
    }
    for id in request.place.named() {
        if host_names::find(&id, hosts).is_some() {
            continue;
        }
        if host_names::is_here(&id) {
            hosts.push(HostConfig { id, ..HostConfig::this_machine() });
            continue;
        }
        if !(is_address(id.as_str()) || no_file) {
            continue;
        }
        let given = pasted.and_then(|pasted| pasted.hosts.iter().find(|host| host.host == id.as_str()));
        let host = ReachedHost {
            address: id.to_string(),
            user: given.and_then(|host| host.user.clone()),
            port,
            identity: pasted.and_then(|pasted| pasted.identity.clone()),
        };
        hosts.push(reached(&host));
        request.options.reached.push(host);
    }
}

fn is_address(text: &str) -> bool {
    names::is_ipv6(text) || text.parse::<IpAddr>().is_ok()
}

/// A host that is known by its address alone.
pub(crate) fn reached(host: &ReachedHost) -> HostConfig {
    HostConfig {
        id: HostId::from(host.address.as_str()),
        address: Address::Ssh(host.address.clone()),
        user: host.user.clone(),
        port: host.port,
        identity: host.identity.clone().map(Into::into),
        ..HostConfig::this_machine()
    }
}

/// What a line says of ssh: of the hosts that are named, of all of them where none is.
fn set_login(hosts: &mut [HostConfig], place: &PlacementSpec, pasted: Option<&Pasted>, port: Option<u16>) {
    let named = place.named();
    for host in hosts.iter_mut().filter(|host| !host.is_local()) {
        if !named.is_empty() && !named.contains(&host.id) {
            continue;
        }
        host.port = port.or(host.port);
        if let Some(identity) = pasted.and_then(|pasted| pasted.identity.clone()) {
            host.identity = Some(identity.into());
        }
        let line = pasted.and_then(|pasted| {
            let is_it = |written: &str| {
                let id = HostId::from(written);
                host_names::find(&id, std::slice::from_ref(host)).is_some()
            };
            pasted.hosts.iter().find(|one| is_it(&one.host))
        });
        if let Some(user) = line.and_then(|line| line.user.clone()) {
            host.user = Some(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command, horovodrun_spellings};

    fn ask(line: &str) -> Result<LaunchRequest, Failure> {
        ask_with(line, &HostsFile::this_machine())
    }

    fn ask_with(line: &str, file: &HostsFile) -> Result<LaunchRequest, Failure> {
        let words = shlex::split(line).unwrap().into_iter().map(Into::into);
        match Cli::try_parse_from(horovodrun_spellings(words)).unwrap().command {
            Some(Command::Run(args)) => {
                let paths =
                    Paths { home: "/".into(), state: "/nonexistent".into(), config: "/nonexistent".into() };
                match asked(&args, &BTreeMap::new(), file, &paths)? {
                    // git's facts of the folder that the test runs in come in time or not
                    Asked::Launch(launch) => Ok(LaunchRequest { code: None, ..launch.request }),
                    Asked::Watch(seconds) => panic!("watch every {seconds} s"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn free_gpus_may_be_counted_by_host() {
        let place = ask("hvtui run --free 4 --nproc-per-node 2 -- true").unwrap().place;
        assert!(matches!(place, PlacementSpec::Free { ranks: 4, per_host: Some(2), .. }), "{place:?}");
        let failure = ask("hvtui run --free 3 --nproc-per-node 2 -- true").unwrap_err();
        assert_eq!(failure.code, Code::Usage);
    }

    #[test]
    fn what_only_informs_is_no_warning() {
        let warns = |line: &str, begin: &str| {
            let said = ask(line).unwrap().remarks;
            said.iter().find(|remark| remark.starts_with(begin)).map(Remark::warns)
        };
        assert_eq!(warns("hvtui run -- nohup python3 x.py", "`nohup` is left out"), Some(false));
        assert_eq!(warns("hvtui run -- sudo -E mpirun -np 2 ./x", "`sudo -E` is left out"), Some(true));
        assert_eq!(warns("hvtui run -- mpirun -np 2 --rankfile r ./x", "not understood: "), Some(true));
    }

    #[test]
    fn an_address_may_have_a_zone() {
        for text in ["10.0.0.7", "::1", "fe80::1%eth0", "fe80::1%3"] {
            assert!(is_address(text), "{text}");
        }
        for text in ["gpu-a", "fe80::1%", "%eth0", "10.0.0.7%eth0", "a%b"] {
            assert!(!is_address(text), "{text}");
        }
    }

    #[test]
    fn a_horovodrun_line_is_understood() {
        let asked = ask("hvtui run -np 4 -H a:2,b:2 --network-interface eth0 -- python train.py").unwrap();
        let hosts = vec![(HostId::from("a"), 2), (HostId::from("b"), 2)];
        assert_eq!(asked.place, PlacementSpec::Hosts { hosts, np: Some(4) });
        assert_eq!((asked.options.interface.as_deref(), asked.command.len()), (Some("eth0"), 2));
    }

    #[test]
    fn the_line_of_a_recipe_is_understood() {
        let with = |recipe: &str| {
            let host = "[[host]]\nname = \"a\"\naddress = \"local\"\nslots = 2\n";
            let text = format!("{host}[[recipe]]\nname = \"r\"\n{recipe}\n");
            crate::config::parse(Path::new("hosts.toml"), text, Path::new("/")).unwrap()
        };
        let asked = |recipe: &str, options: &str| {
            ask_with(&format!("hvtui run --recipe r {options}"), &with(recipe)).unwrap()
        };
        let torchrun = "command = \"torchrun --nnodes=2 --nproc_per_node=1 ddp.py\"";
        let line = "hvtui run -- torchrun --nnodes=2 --nproc_per_node=1 ddp.py";
        let by_line = ask_with(line, &with(torchrun)).unwrap();
        let by_recipe = asked(torchrun, "");
        assert_eq!(by_recipe.place, PlacementSpec::Nodes { nodes: 2, each: Some(1) });
        assert_eq!(by_recipe, LaunchRequest { name: Some("r".to_owned()), ..by_line });
        assert_eq!(asked(torchrun, "-np 2").place, PlacementSpec::Count(Some(2)), "options count before it");

        let mpirun = "command = [\"mpirun\", \"-np\", \"2\", \"-H\", \"a:2\", \"hostname\"]";
        let by_recipe = asked(mpirun, "");
        assert_eq!((by_recipe.kind, by_recipe.command), (Some(JobKind::Mpi), vec!["hostname".to_owned()]));
        let hosts = vec![(HostId::from("a"), 2)];
        assert_eq!(by_recipe.place, PlacementSpec::Hosts { hosts, np: Some(2) });

        let beside = "kind = \"horovod\"\nworkdir = \"~/x\"\nenv = { LR = \"1\" }\n\
                      image = \"img:1\"\nvolumes = [\"/data:/data:ro\"]\npicks = [\"a:0\", \"a:1\"]";
        let by_recipe = asked(&format!("{mpirun}\n{beside}"), "");
        assert_eq!((by_recipe.kind, by_recipe.workdir.as_deref()), (Some(JobKind::Horovod), Some("~/x")));
        assert_eq!(by_recipe.env.get("LR").map(String::as_str), Some("1"));
        let pick = |slot| Pick { host: HostId::from("a"), slot: SlotName::Index(slot) };
        assert_eq!(by_recipe.place, PlacementSpec::Picks(vec![pick(0), pick(1)]));
        let container = by_recipe.options.container.unwrap();
        assert_eq!((container.image.as_str(), container.volumes.len()), ("img:1", 1));

        let activated = asked(&format!("{mpirun}\nconda = \"train\""), "").options.environment;
        assert_eq!(activated.conda.as_deref(), Some("train"));

        let other = ask_with("hvtui run --recipe r -- python3 t.py", &with(mpirun)).unwrap();
        assert_eq!((other.kind, other.command.len()), (None, 2), "another command is launched in its place");
        let refused = |recipe: &str| ask_with("hvtui run --recipe r", &with(recipe)).unwrap_err().message;
        let said = refused("command = \"torchrun --npoc_per_node=3 ddp.py\"");
        assert!(said.contains("`--nproc_per_node` may be meant"), "{said}");
        let said = refused(&format!("{mpirun}\npicks = [\"a:0\"]"));
        assert!(said.starts_with("--recipe r: -np 2 with 1 picked slot"), "{said}");
        let picked = |options: &str| asked(&format!("{mpirun}\npicks = [\"a:0\"]"), options).place;
        assert_eq!(picked("-np 1"), PlacementSpec::Picks(vec![pick(0)]));
        assert_eq!(picked("--gpus a:0,1"), PlacementSpec::Picks(vec![pick(0), pick(1)]));
        let two_each = format!("{mpirun}\npicks = [\"a:0\", \"a:1\", \"a:2\", \"a:3\"]");
        let place = asked(&two_each, "--gpus-per-rank 2").place;
        assert_eq!(place, PlacementSpec::Picks((0..4).map(pick).collect()));
        let failure = ask_with("hvtui run --recipe x", &with(mpirun)).unwrap_err();
        assert!(failure.message.contains("no such recipe"), "{failure}");
    }

    #[test]
    fn hosts_joined_by_a_space_are_told_from_a_command() {
        let failure = ask("hvtui run -np 2 -H a:1 b:1 -- python train.py").unwrap_err();
        assert_eq!(failure.code, Code::Usage);
        assert!(failure.message.ends_with("with a comma and no space: -H a:1,b:1"), "{failure}");
        assert_eq!(ask("hvtui run -np 2 python train.py").unwrap().command, ["python", "train.py"]);
    }

    #[test]
    fn options_count_before_the_places_of_a_line_and_that_is_said() {
        let said = |line: &str| {
            let asked = ask(line).unwrap();
            let mut remarks = asked.remarks.into_iter().filter(|remark| remark.contains("counts before"));
            (remarks.next(), asked.place)
        };
        let (told, place) = said("hvtui run -H a:2 -- horovodrun -np 2 -H b:2 python t.py");
        assert_eq!(place, PlacementSpec::Hosts { hosts: vec![("a".into(), 2)], np: Some(2) });
        let words = "`-H` counts before the line's hosts b:2: leave it out to take those of the line.";
        assert_eq!(told.as_deref(), Some(words));
        let (told, _) = said("hvtui run --gpus 'a:0,1' -- mpirun -np 1 -H b ./x : -np 1 -H a ./y");
        assert!(
            told.is_some_and(|told| told.starts_with("`--gpus` counts before the line's hosts b:1,a:1: "))
        );
        let (told, _) = said("hvtui run --gpus 'a:0,1,2' -- torchrun --nproc_per_node=2 t.py");
        assert!(told.is_some_and(|told| told.contains("the line's 2 ranks on 1 host: ")));
        for agrees in [
            "hvtui run -np 1 -- horovodrun -np 2 -H b:2 python t.py",
            "hvtui run -H b:2 -- horovodrun -np 2 -H b:2 python t.py",
            "hvtui run --gpus b:0,1 -- horovodrun -np 2 -H b:2 python t.py",
            "hvtui run -H a:2 -- torchrun --nproc_per_node=2 t.py",
            "hvtui run -H a:2 -- python t.py",
        ] {
            assert_eq!(said(agrees).0, None, "{agrees}");
        }
    }

    #[test]
    fn a_relative_workdir_counts_from_here() {
        let here = std::env::current_dir().unwrap();
        let workdir =
            |text: &str| ask(&format!("hvtui run --workdir {text} -- ./x")).unwrap().workdir.unwrap();
        assert_eq!(Path::new(&workdir(".")).canonicalize().unwrap(), here.canonicalize().unwrap());
        assert!(workdir("./a/../b").ends_with("/b") && workdir("..").starts_with('/'));
        assert_eq!((workdir("~/x"), workdir("/data")), ("~/x".to_owned(), "/data".to_owned()));
    }

    #[test]
    fn a_line_that_is_likely_wrong_starts_nothing() {
        let refused = |line: &str| {
            let failure = ask(line).unwrap_err();
            assert_eq!(failure.code, Code::Usage, "{line}");
            failure.message
        };
        let said = refused("hvtui run -- torchrun --npoc_per_node=3 ddp.py");
        assert!(said.contains("`--nproc_per_node` may be meant; correct it"), "{said}");
        assert!(said.ends_with("\n           ^^^^^^^^^^^^^^^"), "{said}");
        let asked_anyway = ask("hvtui run --delegate -- torchrun --npoc_per_node=3 ddp.py").unwrap();
        assert_eq!(asked_anyway.options.delegate.unwrap().options, ["--npoc_per_node=3"]);
        let said = refused("hvtui run 'make && python t.py'");
        assert!(said.contains("`-- sh -c 'make && python t.py'` in its place"), "{said}");
        let said = refused("hvtui run -- hvtui run -np 2 -- python3 t.py");
        assert!(said.contains("write `python3 t.py` alone"), "{said}");
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("my program");
        std::fs::write(&program, "").unwrap();
        let path = program.display().to_string();
        assert_eq!(ask(&format!("hvtui run '{path}'")).unwrap().command, [path]);
    }

    #[test]
    fn what_quotes_are_needed_for_is_understood() {
        let asked =
            ask("hvtui run -- 'cd ~/x && conda activate y && torchrun --nproc_per_node=2 t.py'").unwrap();
        assert_eq!((asked.kind, asked.workdir.as_deref()), (Some(JobKind::Torch), Some("~/x")));
        assert_eq!(asked.options.environment.conda.as_deref(), Some("y"));
        let asked =
            ask("hvtui run --workdir /w --conda z -- 'cd ~/x && conda activate y && python t.py'").unwrap();
        assert_eq!(
            (asked.workdir.as_deref(), asked.command.len()),
            (Some("/w"), 2),
            "options count before it"
        );
        assert_eq!(asked.options.environment.conda.as_deref(), Some("z"));
        let told = "`--workdir` counts before the line's folder ~/x: leave it out to start there.";
        assert!(asked.remarks.iter().any(|remark| remark == told), "{:?}", asked.remarks);
        let asked = ask("hvtui run '# note\npython t.py'").unwrap();
        assert_eq!(asked.command, ["python", "t.py"]);
    }

    #[test]
    fn what_stands_around_a_command_changes_nothing_of_its_ranks() {
        let alone = ask("hvtui run -- python3 x.py").unwrap();
        for line in [
            "hvtui run -- '$' python3 x.py",
            "hvtui run -- nohup python3 x.py",
            "hvtui run -- setsid -f python3 x.py",
            "hvtui run -- time python3 x.py",
            "hvtui run -- 'nohup python3 x.py > train.log 2>&1 &'",
            "hvtui run -- '(base) me@gpu-a:~/proj$ python3 x.py'",
            "hvtui run -- 'python3 x.py \\'",
            "hvtui run -- 'FOO=1 python3 x.py'",
            "hvtui run -- FOO=1 python3 x.py",
            "hvtui run -- 'cd /x && python3 x.py'",
        ] {
            let asked = ask(line).unwrap();
            assert_eq!(
                (asked.command, asked.place, asked.kind.unwrap_or(JobKind::Plain)),
                (alone.command.clone(), alone.place.clone(), JobKind::Plain),
                "{line}"
            );
        }
        let said = ask("hvtui run -- 'nohup python3 x.py > train.log 2>&1 &'").unwrap().remarks;
        assert!(
            said.iter().any(|remark| remark.contains("`> train.log` and `2>&1` are left out")),
            "{said:?}"
        );
        let native = ask("hvtui run -- 'FOO=1 hvtui train digits'").unwrap();
        assert_eq!((native.kind, native.env.len()), (Some(JobKind::Native), 1));
    }

    #[test]
    fn a_mask_names_no_host() {
        let place = |line: &str| ask(line).unwrap().place;
        let nodes = PlacementSpec::Nodes { nodes: 1, each: Some(2) };
        assert_eq!(place("hvtui run -- CUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=2 ddp.py"), nodes);
        let count = |np| PlacementSpec::Count(Some(np));
        assert_eq!(place("hvtui run -- CUDA_VISIBLE_DEVICES=0 mpirun -np 2 python3 t.py"), count(2));
        assert_eq!(place("hvtui run -- CUDA_VISIBLE_DEVICES=0,1 python3 t.py"), count(2));
        assert_eq!(place("hvtui run --gpus-per-rank 2 -- CUDA_VISIBLE_DEVICES=0,1 python3 t.py"), count(1));
    }

    #[test]
    fn host_files_are_read_here() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts");
        let failure = ask(&format!("hvtui run --hostfile {} -- true", path.display())).unwrap_err();
        assert!(failure.message.starts_with("can't read host file "), "{failure}");
        assert_eq!(failure.code, Code::Io);
        std::fs::write(&path, "a slots=2\n").unwrap();
        let asked = ask(&format!("hvtui run --hostfile {} -- true", path.display())).unwrap();
        assert_eq!(asked.place, PlacementSpec::Hosts { hosts: vec![(HostId::from("a"), 2)], np: None });
    }

    #[test]
    fn variables_come_from_this_process() {
        let asked = ask("hvtui run --env PATH --env A=1 -- true").unwrap();
        assert_eq!(asked.env.get("PATH"), std::env::var("PATH").ok().as_ref());
        assert_eq!(ask("hvtui run --env HVTUI_SECRET=1 -- true").unwrap_err().code, Code::Usage);
    }
}
