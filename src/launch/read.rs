//! What people write about where and how to launch, read into a [`LaunchRequest`]: `-np`, `-H`, host files,
//! `--gpus`, `--env`. Pure: files and the environment are handed in as text.

use std::collections::{BTreeMap, BTreeSet};

use super::container::{ContainerFault, WrittenContainer};
use super::environment::{EnvironmentFault, WrittenEnvironment};
use super::host_list::{self, host_entry};
use super::names;
use super::request::{FREE_SLOTS, LaunchRequest, OnBusy, Only, Pick, PlacementSpec, SlotName};
use crate::domain::filter::Filter;
use crate::domain::ids::HostId;
use crate::domain::options::{GpuView, PythonHooks};
use crate::domain::redaction::MASK;
use crate::domain::run::JobKind;
use crate::domain::sync::SyncPlan;
use crate::domain::units::counted;

/// The variable that says here what `--python-hooks` says.
const PYTHON_HOOKS: &str = "HVTUI_PYTHON_HOOKS";

/// A launch that is written wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// `-np 0`.
    #[error("-np 0 starts nothing: give a number of ranks from 1 on")]
    NoRanks,
    /// A number of ranks that is none.
    #[error("-np {0}: `{0}` is no number of ranks: give one from 1 on")]
    BadCount(String),
    /// `--gpus-per-rank 0`.
    #[error("--gpus-per-rank 0: give a number from 1 on; slots = N in the hosts file gives CPU slots")]
    NoGpus,
    /// No command.
    #[error("no command to run: write it after `--`, such as `hvtui run -np 2 -- hvtui train digits`")]
    NoCommand,
    /// `--nproc-per-node 0` or `--nnodes 0`.
    #[error("{0} 0 starts nothing: give a number from 1 on")]
    NoneEach(&'static str),
    /// Fewer hosts than `--nnodes`.
    #[error("--nnodes {wanted} with {} in -H: name more hosts, or lower --nnodes", counted(*hosts, "host"))]
    TooFewHosts {
        /// Hosts asked for.
        wanted: u32,
        /// Hosts named.
        hosts: u32,
    },
    /// Ranks for a line that is started as it is.
    #[error("`{0}` is started as it is: leave out hvtui's own -np, -H and the like, or correct the line")]
    OneProcess(String),
    /// `-np` contradicts the hosts and ranks of each.
    #[error(
        "-np {np} with {} of {} each: -np must be {}, or leave it out",
        counted(*hosts, "host"), counted(*each, "rank"), u64::from(*hosts) * u64::from(*each)
    )]
    NotTheProduct {
        /// Ranks asked for.
        np: u32,
        /// Hosts.
        hosts: u32,
        /// Ranks on each.
        each: u32,
    },
    /// `-H a:1 b:1`.
    #[error("-H {0}: join the hosts with a comma and no space: -H {1}")]
    HostsBySpace(String, String),
    /// One entry of `-H` is not readable.
    #[error(
        "-H {list}: `{entry}` {fault}; write host:ranks, several joined by commas, such as -H gpu-a:2,gpu-b:2"
    )]
    BadHost {
        /// The whole list.
        list: String,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A line of a host file is not readable.
    #[error("host file {file}, line {line}: `{text}` {fault}; write `gpu-a slots=2`, `gpu-a:2` or `gpu-a`")]
    BadHostFile {
        /// The file's name.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What it says.
        text: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A host file without a host.
    #[error("host file {0} names no host: write one a line, such as `gpu-a slots=2`")]
    EmptyHostFile(String),
    /// One entry of `--gpus` is not readable.
    #[error(
        "--gpus: `{entry}` {fault}; write host:numbers or UUIDs, hosts joined by `;`, such as --gpus 'gpu-a:0,1;gpu-b:GPU-3f2a…', or hosts \
         alone for all their free slots"
    )]
    BadPick {
        /// The entry.
        entry: String,
        /// What is wrong with it.
        fault: String,
    },
    /// GPUs for a line that hides each of them.
    #[error(
        "{0} asks for GPUs, and `CUDA_VISIBLE_DEVICES=` of the line hides them all: leave out one of the two"
    )]
    HidesGpus(&'static str),
    /// A slot named twice.
    #[error("--gpus: {host}:{slot} is named twice: one rank a slot")]
    PickedTwice {
        /// The host.
        host: HostId,
        /// The slot as written.
        slot: String,
    },
    /// More ranks than picked slots.
    #[error("-np {np} with {}: pick {np}, or lower -np", counted(*picks, "picked slot"))]
    MoreThanPicked {
        /// Ranks asked for.
        np: u32,
        /// Slots picked.
        picks: u32,
        /// The hosts of these, as they were written.
        hosts: BTreeSet<HostId>,
    },
    /// `--env` can't be understood.
    #[error("--env {entry}: `{key}` {fault}")]
    BadEnv {
        /// The whole entry.
        entry: String,
        /// The variable's name.
        key: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// `--secret-env` can't be understood.
    #[error("--secret-env {name}: it {fault}")]
    SecretEnv {
        /// What was given.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// `--secret-env K=V`.
    #[error(
        "--secret-env {0}={MASK}: a value on the command line is seen by everybody on this machine: export {0}, then write --secret-env {0}"
    )]
    SecretValue(String),
    /// `--env K` of a variable that is not set here.
    #[error("--env {0}: it is not set here; write --env {0}=VALUE")]
    EnvNotSet(String),
    /// A working directory that could mean several things.
    #[error(
        "--workdir {0} is a relative path: write the whole path on the hosts, or one that begins with ~/"
    )]
    RelativeWorkdir(String),
    /// A filter that can't be read, with carets below what is meant.
    #[error("--filter:\n{0}")]
    BadFilter(String),
    /// Free GPUs that do not divide into hosts.
    #[error(
        "--free {ranks} --nproc-per-node {each}: {ranks} is not a multiple of {each}; ask for {}",
        names::nearest_multiples(*ranks, *each)
    )]
    NotAMultiple {
        /// Ranks asked for.
        ranks: u32,
        /// How many on each host.
        each: u32,
    },
    /// A silence that is none.
    #[error("--max-silence {text}: `{text}` {fault}", fault = names::SILENCE_FAULT)]
    BadSilence {
        /// As written.
        text: String,
    },
    /// Hooks that are neither on nor off.
    #[error(
        "--python-hooks {text}: write on, off, or debug to hear of their faults (the variable {PYTHON_HOOKS} says the same)"
    )]
    BadHooks {
        /// As written.
        text: String,
    },
    /// What is said of containers.
    #[error(transparent)]
    Container(#[from] ContainerFault),
    /// `--sync-delete` alone.
    #[error("--sync-delete goes with --sync DIR: it deletes what an earlier sync brought")]
    DeletesNothing,
    /// A cap that is none.
    #[error("--spool-cap {text}: `{text}` {fault}", fault = names::CAP_FAULT)]
    BadSpoolCap {
        /// As written.
        text: String,
    },
    /// Something about the environment.
    #[error(transparent)]
    Environment(#[from] EnvironmentFault),
}

/// What was given on the command line, still as text.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Written<'a> {
    /// `--name`.
    pub name: Option<&'a str>,
    /// `--kind`.
    pub kind: Option<JobKind>,
    /// Program and arguments.
    pub command: &'a [String],
    /// `-np`.
    pub np: Option<u32>,
    /// `-H`.
    pub hosts: Option<&'a str>,
    /// `--hostfile`: its name and its text.
    pub hostfile: Option<(&'a str, &'a str)>,
    /// `--gpus`.
    pub gpus: Option<&'a str>,
    /// `--free`.
    pub free: Option<u32>,
    /// `--filter`, which goes with `--free`.
    pub filter: Option<&'a str>,
    /// Each `--env`.
    pub env: &'a [String],
    /// `--workdir`.
    pub workdir: Option<&'a str>,
    /// `--network-interface`.
    pub interface: Option<&'a str>,
    /// `--gpu-view`.
    pub gpu_view: Option<GpuView>,
    /// `--start-timeout`.
    pub start_timeout_s: Option<u32>,
    /// `--gpus-per-rank`.
    pub gpus_per_rank: Option<u32>,
    /// `--spool-cap`.
    pub spool_cap: Option<&'a str>,
    /// `--max-silence`.
    pub max_silence: Option<&'a str>,
    /// `--python-hooks`.
    pub python_hooks: Option<&'a str>,
    /// `--traceable`.
    pub traceable: bool,
    /// `--max-restarts`.
    pub max_restarts: Option<u32>,
    /// `--delegate`.
    pub delegate: bool,
    /// `--share` and `--wait`.
    pub on_busy: OnBusy,
    /// `--nproc-per-node`.
    pub per_node: Option<u32>,
    /// `--nnodes`.
    pub nodes: Option<u32>,
    /// `--nccl-timings`.
    pub nccl_timings: bool,
    /// `--image` and what goes with it.
    pub container: WrittenContainer<'a>,
    /// `--conda` and its like.
    pub environment: WrittenEnvironment<'a>,
    /// `--sync`, as [`super::folder::sync_plan`] reads it.
    pub sync: Option<SyncPlan>,
    /// `--sync-delete`.
    pub sync_delete: bool,
}

/// Reads a launch: what is written counts before `base`, which a pasted line, a recipe or a past run has made.
/// `variable` gives the value of a variable of this process, for `--env K`. Of `-H`, `--hostfile` and `--gpus` at most
/// one is given; the command line sees to that.
pub fn read(
    written: &Written<'_>,
    base: Option<LaunchRequest>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<LaunchRequest, RequestError> {
    hosts_by_space(written)?;
    let mut request = match base {
        Some(base) => base,
        None if written.command.first().is_none_or(|program| program.trim().is_empty()) => {
            return Err(RequestError::NoCommand);
        }
        None => LaunchRequest::of(written.command.to_vec()),
    };
    if written.np == Some(0) {
        return Err(RequestError::NoRanks);
    }
    if let Some(workdir) = written.workdir {
        if !names::is_workdir(workdir) {
            return Err(RequestError::RelativeWorkdir(workdir.to_owned()));
        }
        request.workdir = Some(workdir.to_owned());
    }
    sync(written, &mut request)?;
    let asks_for_gpus = [
        ("--gpus", written.gpus.is_some()),
        ("--free", written.free.is_some()),
        ("--gpus-per-rank", written.gpus_per_rank.is_some_and(|each| each > 1)),
        ("--nproc-per-node=gpu", request.only == Only::Gpus),
    ];
    if let Some((option, _)) = asks_for_gpus.into_iter().find(|(_, asks)| *asks && request.hides_gpus()) {
        return Err(RequestError::HidesGpus(option));
    }
    let each = written.gpus_per_rank.unwrap_or(request.options.gpus_per_rank).max(1);
    if request.place == PlacementSpec::Count(None)
        && let Some(ranks) = request.ranks_of_mask(each)
    {
        request.place = PlacementSpec::Count(Some(ranks));
    }
    if let Some(place) = where_to(written, &request.place, each)? {
        if request.single {
            let given = request.options.delegate.as_ref().map(|launcher| &launcher.line);
            let line = given.filter(|line| !line.is_empty()).unwrap_or(&request.command);
            return Err(RequestError::OneProcess(line.join(" ")));
        }
        request.place = place;
    }
    let hooks = written.python_hooks.map(str::to_owned).or_else(|| variable(PYTHON_HOOKS));
    request.env.extend(env(written.env, variable)?);
    request.name = written.name.map(str::to_owned).or(request.name);
    request.kind = written.kind.or(request.kind);
    request.on_busy = written.on_busy;
    let options = &mut request.options;
    if written.delegate && !request.single {
        options.delegate.get_or_insert_default();
    }
    options.nccl_timings |= written.nccl_timings;
    options.container = written.container.read(options.container.take())?;
    options.gpu_view = written.gpu_view.unwrap_or(options.gpu_view);
    options.gpus_per_rank = gpus_per_rank(written.gpus_per_rank)?.unwrap_or(options.gpus_per_rank);
    options.interface = written.interface.map(str::to_owned).or(options.interface.take());
    options.max_restarts = written.max_restarts.unwrap_or(options.max_restarts);
    options.start_timeout_s = written.start_timeout_s.or(options.start_timeout_s);
    options.spool_cap = written.spool_cap.map(spool_cap).transpose()?.or(options.spool_cap);
    options.max_silence_ms = written.max_silence.map(max_silence).transpose()?.or(options.max_silence_ms);
    options.python_hooks = hooks.as_deref().map(python_hooks).transpose()?.or(options.python_hooks);
    options.traceable |= written.traceable;
    options.environment = written.environment.read()?.over(&options.environment);
    Ok(request)
}

/// The folder that is copied, in which the ranks start unless something else is said.
fn sync(written: &Written<'_>, request: &mut LaunchRequest) -> Result<(), RequestError> {
    let options = &mut request.options;
    if let Some(plan) = &written.sync {
        let before = options.sync.replace(plan.clone());
        // that of a past run or a recipe had its own
        if written.workdir.is_none() && before.is_some_and(|before| request.workdir == Some(before.remote)) {
            request.workdir = None;
        }
    }
    match &mut options.sync {
        Some(plan) => plan.delete |= written.sync_delete,
        None if written.sync_delete => return Err(RequestError::DeletesNothing),
        None => {}
    }
    if request.workdir.is_none() {
        request.workdir = options.sync.as_ref().map(|plan| plan.remote.clone());
    }
    Ok(())
}

/// A number of ranks as it was typed.
pub fn count(text: &str) -> Result<u32, RequestError> {
    text.trim().parse().map_err(|_| RequestError::BadCount(text.trim().to_owned()))
}

fn gpus_per_rank(count: Option<u32>) -> Result<Option<u32>, RequestError> {
    if count == Some(0) { Err(RequestError::NoGpus) } else { Ok(count) }
}

fn spool_cap(text: &str) -> Result<u64, RequestError> {
    names::spool_cap(text).ok_or_else(|| RequestError::BadSpoolCap { text: text.to_owned() })
}

fn python_hooks(text: &str) -> Result<PythonHooks, RequestError> {
    PythonHooks::from_name(text).ok_or_else(|| RequestError::BadHooks { text: text.to_owned() })
}

fn max_silence(text: &str) -> Result<u64, RequestError> {
    names::max_silence(text).ok_or_else(|| RequestError::BadSilence { text: text.to_owned() })
}

/// `-H a:1 b:1 python …`: the command begins with what should be a host.
fn hosts_by_space(written: &Written<'_>) -> Result<(), RequestError> {
    let Some(hosts) = written.hosts else { return Ok(()) };
    let is_host = |word: &&String| host_entry(word.trim_matches(',')).is_ok() && word.contains(':');
    let more: Vec<&str> = written.command.iter().take_while(is_host).map(String::as_str).collect();
    if more.is_empty() {
        return Ok(());
    }
    let words: Vec<&str> = std::iter::once(hosts).chain(more).collect();
    let joined: Vec<&str> = words.iter().map(|word| word.trim_matches(',')).collect();
    Err(RequestError::HostsBySpace(words.join(" "), joined.join(",")))
}

/// Where the ranks go, if that is written; what it does not say is that of `base`. `each`: slots of a rank.
fn where_to(
    written: &Written<'_>,
    base: &PlacementSpec,
    each: u32,
) -> Result<Option<PlacementSpec>, RequestError> {
    for (name, count) in [("--nproc-per-node", written.per_node), ("--nnodes", written.nodes)] {
        if count == Some(0) {
            return Err(RequestError::NoneEach(name));
        }
    }
    let (base_np, base_nodes, base_each) = match base {
        PlacementSpec::Count(np) | PlacementSpec::Hosts { np, .. } => (*np, None, None),
        PlacementSpec::Nodes { nodes, each } => (None, Some(*nodes), *each),
        PlacementSpec::Free { ranks, .. } => (Some(*ranks), None, None),
        PlacementSpec::Picks(_) => (None, None, None),
    };
    let np = written.np.or(base_np);
    let per_node = written.per_node.or(base_each);
    let nodes = written.nodes.or(base_nodes);
    let product = |nodes: u32, ranks: u32| match written.np {
        Some(np) if Some(np) != nodes.checked_mul(ranks) => {
            Err(RequestError::NotTheProduct { np, hosts: nodes, each: ranks })
        }
        _ => Ok(()),
    };
    if let Some(ranks) = written.free {
        if let Some(each) = written.per_node.filter(|each| !ranks.is_multiple_of(*each)) {
            return Err(RequestError::NotAMultiple { ranks, each });
        }
        let filter = Filter::parse(written.filter.unwrap_or_default());
        let filter = filter
            .map_err(|error| RequestError::BadFilter(error.pointed(written.filter.unwrap_or_default())))?;
        return Ok(Some(PlacementSpec::Free { ranks, per_host: written.per_node, filter }));
    }
    if let Some(list) = written.hosts {
        let mut hosts = host_list::host_list(list)?;
        if let Some(ranks) = per_node {
            let count = hosts.len() as u32;
            if let Some(wanted) = nodes.filter(|nodes| *nodes > count) {
                return Err(RequestError::TooFewHosts { wanted, hosts: count });
            }
            hosts.truncate(nodes.unwrap_or(count) as usize);
            product(hosts.len() as u32, ranks)?;
            for (_, count) in &mut hosts {
                *count = ranks;
            }
            return Ok(Some(PlacementSpec::Hosts { hosts, np: None }));
        }
        return Ok(Some(PlacementSpec::Hosts { hosts, np }));
    }
    if let Some((file, text)) = written.hostfile {
        return Ok(Some(PlacementSpec::Hosts { hosts: host_list::host_file(file, text)?, np }));
    }
    if let Some(gpus) = written.gpus {
        return match whole_hosts(gpus) {
            Some(hosts) => Ok(Some(PlacementSpec::Hosts { hosts, np })),
            None => picked(picks(gpus)?, np, each).map(Some),
        };
    }
    if let Some(ranks) = written.per_node.or(per_node.filter(|_| written.nodes.is_some())) {
        let nodes = nodes.unwrap_or(1);
        product(nodes, ranks)?;
        return Ok(Some(PlacementSpec::Nodes { nodes, each: Some(ranks) }));
    }
    if let Some(nodes) = written.nodes {
        let ranks = match np {
            Some(np) if np % nodes != 0 => {
                return Err(RequestError::NotTheProduct { np, hosts: nodes, each: np / nodes });
            }
            np => np.map(|np| np / nodes),
        };
        return Ok(Some(PlacementSpec::Nodes { nodes, each: ranks }));
    }
    let Some(np) = written.np else { return Ok(None) };
    Ok(Some(match base {
        PlacementSpec::Hosts { hosts, .. } => PlacementSpec::Hosts { hosts: hosts.clone(), np: Some(np) },
        PlacementSpec::Picks(picks) => picked(picks.clone(), Some(np), each)?,
        _ => PlacementSpec::Count(Some(np)),
    }))
}

/// The first picks, as many as `np` ranks take; all of them without.
fn picked(mut picks: Vec<Pick>, np: Option<u32>, each: u32) -> Result<PlacementSpec, RequestError> {
    let Some(np) = np else { return Ok(PlacementSpec::Picks(picks)) };
    let wanted = np as usize * each as usize;
    if wanted > picks.len() {
        let hosts = picks.iter().map(|pick| pick.host.clone()).collect();
        return Err(RequestError::MoreThanPicked { np, picks: picks.len() as u32, hosts });
    }
    picks.truncate(wanted);
    Ok(PlacementSpec::Picks(picks))
}

/// A list of slots has no more than this, so that a range that was mistyped takes no memory.
const MOST_SLOTS: u32 = 1 << 14;

/// `3` or `0-2` as the names of slots; a range is of numbers.
fn slot_names(text: &str) -> Option<Vec<SlotName>> {
    let number = |text: &str| text.parse::<u32>().ok();
    match text.split_once('-').and_then(|(first, last)| Some((number(first)?, number(last)?))) {
        Some((first, last)) => {
            let is_range = first <= last && last - first < MOST_SLOTS;
            is_range.then(|| (first..=last).map(SlotName::Index).collect())
        }
        None => names::slot_name(text).map(|name| vec![name]),
    }
}

/// `a;b` of `--gpus`: all free slots of these hosts. `None` where slots are named, and where a part is no host: a number alone is
/// a slot whose host is missing.
fn whole_hosts(text: &str) -> Option<Vec<(HostId, u32)>> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    let is_host = |part: &str| names::name_fault(part).is_none() && names::slot_name(part).is_none();
    let mut hosts: Vec<(HostId, u32)> = Vec::new();
    for part in parts {
        let host = HostId::from(part);
        if !is_host(part) {
            return None;
        }
        if hosts.iter().all(|(named, _)| *named != host) {
            hosts.push((host, FREE_SLOTS));
        }
    }
    (!hosts.is_empty()).then_some(hosts)
}

/// `a:0,2-5;b:GPU-uuid` as slots, in the order written.
pub fn picks(text: &str) -> Result<Vec<Pick>, RequestError> {
    let bad =
        |entry: &str, fault: &str| RequestError::BadPick { entry: entry.to_owned(), fault: fault.to_owned() };
    let mut picks = Vec::new();
    let mut seen = BTreeSet::new();
    let mut parts = text.split(';').map(str::trim).filter(|part| !part.is_empty()).peekable();
    if parts.peek().is_none() {
        return Err(bad(text, "names no slot"));
    }
    for part in parts {
        let (host, slots) = part.split_once(':').ok_or_else(|| bad(part, "has no `:`"))?;
        if let Some(fault) = names::name_fault(host) {
            return Err(bad(part, &format!("names a host that {fault}")));
        }
        for slot in slots.split(',').map(str::trim) {
            let named = slot_names(slot).ok_or_else(|| {
                bad(part, &format!("has `{slot}`, which is no slot's number and no GPU UUID"))
            })?;
            for name in named {
                let pick = Pick { host: HostId::from(host), slot: name };
                if !seen.insert(pick.clone()) {
                    return Err(RequestError::PickedTwice { host: pick.host, slot: slot.to_owned() });
                }
                picks.push(pick);
            }
        }
    }
    Ok(picks)
}

/// Each `K=V` as it is, each `K` with its value here.
pub fn env(
    entries: &[String],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, RequestError> {
    let mut env = BTreeMap::new();
    for entry in entries {
        let (key, value) = match entry.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (entry.as_str(), None),
        };
        if let Some(fault) = names::env_fault(key) {
            let key = key.to_owned();
            return Err(RequestError::BadEnv { entry: entry.clone(), key, fault });
        }
        let value = match value {
            Some(value) => value,
            None => variable(key).ok_or_else(|| RequestError::EnvNotSet(key.to_owned()))?,
        };
        env.insert(key.to_owned(), value);
    }
    Ok(env)
}

/// Reads each `--secret-env`: the variables, with a mask in the place of their values.
pub fn secret_env(names: &[String]) -> Result<BTreeMap<String, String>, RequestError> {
    let mut env = BTreeMap::new();
    for name in names {
        // as for `--env`; the value is not said again
        if let Some((name, _)) = name.split_once('=') {
            return Err(RequestError::SecretValue(name.to_owned()));
        }
        if let Some(fault) = names::env_fault(name) {
            return Err(RequestError::SecretEnv { name: name.clone(), fault });
        }
        env.insert(name.clone(), MASK.to_owned());
    }
    Ok(env)
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
