//! From a pasted line to a request: what the line means here, and what is said about it. Pure.

use std::collections::BTreeMap;

use super::delegate::{self, Way, further};
use super::name::kind_of;
use super::names;
use super::paste::{HostSlots, Launcher, Pasted, PerNode, Task};
use super::pasted_container::{self, Meaning};
use super::remark::Remark;
use super::request::{ALL_SLOTS, LaunchRequest, Only, PlacementSpec};
use crate::domain::ids::HostId;
use crate::domain::options::{LocalRankArg, RunOptions, TaskRole};
use crate::domain::run::JobKind;

/// Variables whose values belong to the machine on which a process runs: those of this machine would be wrong elsewhere.
const OWN_TO_HOST: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "HOME", "PYTHONPATH"];

/// The request that a line makes. `hostfile` are the hosts of its host file, which others read; `variable` gives the
/// value of a variable of this process; `script` is the text of its script where that can be read here. `delegated`: the
/// line's own launcher is wanted.
pub fn request(
    pasted: &Pasted,
    hostfile: Option<Vec<(HostId, u32)>>,
    script: Option<&str>,
    delegated: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> LaunchRequest {
    let contained = pasted.container.as_ref().map(pasted_container::meaning);
    let whole = contained.as_ref().map(|meaning| meaning.joined(pasted));
    let pasted = whole.as_ref().unwrap_or(pasted);
    let mut remarks: Vec<Remark> = pasted.remarks.iter().map(Remark::info).collect();
    let mut env = env(pasted, variable, &mut remarks);
    let hosts = match hostfile {
        Some(hosts) => hosts,
        None => pasted.hosts.iter().map(|one| (name(one), slots(pasted, one))).collect(),
    };
    let ours = pasted.mca.iter().filter(|(key, _)| is_ours(key));
    remarks.extend(ours.map(|(key, _)| {
        Remark::info(format!("`{key}` is left out: hvtui carries mpirun's orders to the hosts."))
    }));
    env.retain(|name, _| !name.strip_prefix("OMPI_MCA_").is_some_and(is_ours));
    let not_set = not_set(pasted, &mut env);
    let mut options = RunOptions {
        interface: Some(pasted.interfaces.join(",")).filter(|list| !list.is_empty()),
        start_timeout_s: pasted.start_timeout_s,
        mpi_program: mpi_program(pasted),
        mpi_args: mpi_args(pasted),
        max_restarts: pasted.max_restarts.unwrap_or_default(),
        gpu_view: pasted.gpu_view,
        environment: pasted.environment.clone(),
        python_of: python_of(pasted),
        ..RunOptions::default()
    };
    remarks.extend(shared(pasted, &hosts).map(Remark::info));
    let way = delegate::way(pasted, delegated, &hosts);
    if pasted.is_delegated() {
        let as_what = if way == Way::OneProcess { ", as one process" } else { "" };
        let what = pasted.not_understood.join(", ");
        remarks.push(Remark::warning(format!(
            "not understood: {what}; the line is given to its own launcher{as_what}."
        )));
    }
    let single = match &way {
        Way::Ours => false,
        Way::Launcher(launcher) => !launcher.line.is_empty(),
        Way::OneProcess => true,
    };
    let (kind, command, place) = match way {
        Way::OneProcess => {
            options.mpi_args.clear();
            // the line's own launcher does it
            options.max_restarts = 0;
            remarks.retain(|remark| holds_delegated(pasted, remark));
            remarks.extend(other_nodes(pasted).map(Remark::warning));
            let (place, slots) = one_process(pasted, &hosts);
            options.gpus_per_rank = slots;
            (JobKind::Plain, pasted.argv.clone(), place)
        }
        Way::Launcher(launcher) => {
            if !launcher.line.is_empty() {
                // What the line's options mean here they do not mean there.
                remarks.retain(|remark| remark.starts_with("not understood: "));
            }
            remarks.extend(delegate::remarks(pasted, &hosts).into_iter().map(Remark::info));
            options.mpi_args.clear();
            options.local_rank_arg = local_rank_arg(pasted, script);
            options.oversubscribe = oversubscribes(pasted, &hosts);
            options.delegate = Some(launcher);
            (pasted.kind, pasted.command.clone(), delegate::place(pasted, place(pasted, hosts)))
        }
        Way::Ours => {
            remarks
                .extend(contained.map(|meaning| contain(pasted, meaning, &mut options)).unwrap_or_default());
            options.tasks = tasks(&pasted.cluster);
            options.programs.clone_from(&pasted.programs);
            options.oversubscribe = oversubscribes(pasted, &hosts);
            options.local_rank_arg = local_rank_arg(pasted, script);
            (kind(pasted), pasted.command.clone(), place(pasted, hosts))
        }
    };
    remarks.extend(pasted.left_out.iter().map(Remark::info));
    remarks.extend(not_set.map(Remark::info));
    // they hold however the line is started
    remarks.extend(pasted.warnings.iter().map(Remark::warning));
    LaunchRequest {
        code: None,
        since: None,
        name: pasted.container.as_ref().and_then(|container| container.name.clone()),
        kind: Some(kind),
        command,
        place,
        env,
        workdir: pasted.workdir.clone().filter(|dir| names::is_workdir(dir)),
        options,
        on_busy: super::request::OnBusy::default(),
        on_red: super::request::OnRed::default(),
        single,
        gpu_mask: pasted.gpu_mask.as_ref().map(|mask| mask.join(",")),
        query: matches!(pasted.launcher, Launcher::CheckBuild | Launcher::Query),
        only: match pasted.per_node {
            Some(PerNode::Gpus) => Only::Gpus,
            Some(PerNode::Cpus) => Only::Cpus,
            _ => Only::Any,
        },
        remarks,
    }
}

/// The variables of a line, those too that it takes from here.
fn env(
    pasted: &Pasted,
    variable: impl Fn(&str) -> Option<String>,
    remarks: &mut Vec<Remark>,
) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = pasted.env.iter().cloned().collect();
    for name in &pasted.env_from_here {
        match variable(name) {
            _ if OWN_TO_HOST.contains(&name.as_str()) => {
                remarks.push(Remark::info(format!("`{name}` is each host's own, not this machine's.")));
            }
            Some(value) => drop(env.insert(name.clone(), value)),
            None => remarks.push(Remark::warning(format!("`{name}` is not set here and is left out."))),
        }
    }
    if let Some(timeline) = &pasted.timeline {
        env.insert("HOROVOD_TIMELINE".to_owned(), timeline.clone());
    }
    env
}

/// Takes away what hvtui sets for each rank, which the line need not set and must not; what is to be known of that.
fn not_set(pasted: &Pasted, env: &mut BTreeMap<String, String>) -> Option<String> {
    let mut shown = Vec::new();
    env.retain(|name, _| {
        let is_kept = names::env_fault(name).is_none();
        if names::RESERVED_ENV.contains(&name.as_str()) {
            let value = pasted.env.iter().find(|(one, _)| one == name && !name.starts_with("HVTUI_"));
            shown
                .push(value.map_or_else(|| format!("`{name}`"), |(name, value)| format!("`{name}={value}`")));
        }
        is_kept
    });
    let (have, them) = if shown.len() == 1 { ("has", "it") } else { ("have", "them") };
    (!shown.is_empty())
        .then(|| format!("{} of the line {have} no effect: hvtui sets {them} itself.", shown.join(", ")))
}

/// That a line of torchrun on one host starts nothing on the others which it means.
fn other_nodes(pasted: &Pasted) -> Option<String> {
    let is_elastic = pasted.not_understood.iter().any(|option| option.starts_with("--nnodes"));
    let has_others = is_elastic || pasted.nodes.is_some_and(|nodes| nodes > 1);
    (has_others && pasted.kind == JobKind::Torch).then(|| {
        "the line is started on one host: the other nodes of `--nnodes` are not started, and its ranks wait for those that they need.".to_owned()
    })
}

/// Whether a remark holds where the line's own launcher is started as one process: what hvtui does in the place of an option
/// it does not do then.
fn holds_delegated(pasted: &Pasted, remark: &str) -> bool {
    let is_whole = pasted.is_delegated() && pasted.container.is_none();
    !is_whole || !remark.contains("hvtui") || remark.starts_with("not understood: ")
}

/// The kind of a line's job; without a launcher it is that of its command.
fn kind(pasted: &Pasted) -> JobKind {
    match (&pasted.launcher, pasted.kind, &pasted.container) {
        (Launcher::Plain, JobKind::Plain, None) => kind_of(&pasted.command),
        (_, kind, _) => kind,
    }
}

/// Ranks in the containers of a line; what is said about it.
fn contain(pasted: &Pasted, meaning: Meaning, options: &mut RunOptions) -> Vec<Remark> {
    if pasted.launcher == Launcher::Plain {
        // One process, with all GPUs that its container had.
        let named = pasted.gpu_mask.as_ref().map(|mask| mask.len() as u32);
        options.gpus_per_rank = named.or(meaning.count).unwrap_or(1).max(1);
    }
    options.container = Some(meaning.options);
    meaning.remarks
}

/// torchrun executes the script by the interpreter that its own first line names, whatever `python3` is on the search path.
fn python_of(pasted: &Pasted) -> Option<String> {
    let is_named = pasted.argv.first().is_some_and(|program| program == "torchrun");
    // with --no-python it executes what is named
    let interprets =
        pasted.script != Some(0) && pasted.command.first().is_some_and(|program| program == "python3");
    (is_named && interprets && !pasted.is_delegated()).then(|| "torchrun".to_owned())
}

/// What to do instead of launching a line that starts no job.
pub fn instead(pasted: &Pasted) -> Option<String> {
    match pasted.launcher {
        Launcher::Mesh => Some(
            "this sets up logins between hosts: `hvtui hosts mesh` does all of it, on every host".to_owned(),
        ),
        Launcher::Watch { every_ms } => Some(format!(
            "this watches GPUs: the Cluster screen shows them, and in a shell `hvtui watch -n {}`",
            every_ms as f64 / 1000.0
        )),
        _ => None,
    }
}

/// Slots of a host: one without a number counts as one slot, as with mpirun; where the line has more ranks than its hosts have slots
/// by that, which mpirun refuses, as all that the host has.
fn slots(pasted: &Pasted, host: &HostSlots) -> u32 {
    if pasted.oversubscribe {
        return host.slots.unwrap_or(1);
    }
    let counted = pasted.hosts.iter().map(|host| host.slots.unwrap_or(1)).fold(0, u32::saturating_add);
    let ranks = pasted.np.map(|np| np.saturating_add(further(pasted)));
    let unnamed = if ranks.is_some_and(|ranks| ranks > counted) { ALL_SLOTS } else { 1 };
    host.slots.unwrap_or(unnamed)
}

fn name(host: &HostSlots) -> HostId {
    HostId::from(host.host.as_str())
}

/// The first host of a line, with all the slots that the line uses there.
fn one_process(pasted: &Pasted, hosts: &[(HostId, u32)]) -> (PlacementSpec, u32) {
    if matches!(pasted.launcher, Launcher::CheckBuild | Launcher::Query) {
        return (PlacementSpec::Count(Some(1)), 1);
    }
    if let Some((host, slots)) = hosts.first() {
        return (PlacementSpec::Hosts { hosts: vec![(host.clone(), 1)], np: None }, (*slots).max(1));
    }
    let named = pasted.gpu_mask.as_ref().map(|mask| mask.len() as u32);
    let each = match pasted.per_node {
        // it is started on this one host alone
        Some(PerNode::Ranks(each)) if pasted.kind == JobKind::Torch => Some(each),
        _ => pasted.np.or(named),
    };
    (PlacementSpec::Count(Some(1)), each.unwrap_or(1).max(1))
}

fn place(pasted: &Pasted, mut hosts: Vec<(HostId, u32)>) -> PlacementSpec {
    if !pasted.cluster.is_empty() {
        return PlacementSpec::Hosts { hosts: task_hosts(&pasted.cluster), np: None };
    }
    let each = match pasted.per_node {
        Some(PerNode::Ranks(ranks)) => Some(ranks),
        _ => None,
    };
    if pasted.kind == JobKind::Slurm {
        // Where they go is Slurm's: its options stand among those of srun.
        let nodes = pasted.nodes.or((!hosts.is_empty()).then_some(hosts.len() as u32));
        let product = nodes.map(|nodes| nodes.saturating_mul(each.unwrap_or(1)));
        return PlacementSpec::Count(pasted.np.or(product).or(each));
    }
    if !hosts.is_empty() {
        if let Some(each) = each {
            for (_, slots) in &mut hosts {
                *slots = each;
            }
        } else if oversubscribes(pasted, &hosts) {
            share_out(pasted, &mut hosts);
        }
        return PlacementSpec::Hosts { hosts, np: pasted.np };
    }
    match (pasted.per_node, pasted.np) {
        (Some(_), np) => {
            // `-np 4 -N 2`: as many hosts as that takes.
            let by_count = np.zip(each).filter(|(np, each)| *each > 0 && np.is_multiple_of(*each));
            let nodes = pasted.nodes.or(by_count.map(|(np, each)| np / each)).unwrap_or(1);
            PlacementSpec::Nodes { nodes, each }
        }
        // One process, as it was where the line comes from: it hides its GPUs, or has a container of its own.
        (None, None) if pasted.launcher == Launcher::Plain && is_one(pasted) => PlacementSpec::Count(Some(1)),
        (None, np) => PlacementSpec::Count(np),
    }
}

/// Whether a command without a launcher says that it is one process. What else stands before it changes nothing of how many
/// ranks there are.
fn is_one(pasted: &Pasted) -> bool {
    match &pasted.gpu_mask {
        Some(mask) => mask.is_empty(),
        None => pasted.container.is_some(),
    }
}

/// Whether the line wants more ranks than its hosts have slots.
fn oversubscribes(pasted: &Pasted, hosts: &[(HostId, u32)]) -> bool {
    let given = hosts.iter().map(|(_, slots)| (*slots).max(1)).fold(0, u32::saturating_add);
    pasted.oversubscribe
        && pasted.per_node.is_none()
        && pasted.np.is_some_and(|np| !hosts.is_empty() && np > given)
}

/// What becomes of `--oversubscribe`.
fn shared(pasted: &Pasted, hosts: &[(HostId, u32)]) -> Option<String> {
    if pasted.oversubscribe && hosts.is_empty() && pasted.kind == JobKind::Mpi {
        return Some("`--oversubscribe` shares the slots of hosts that `-H` names: here each rank takes one of its own.".to_owned());
    }
    let given = hosts.iter().map(|(_, slots)| (*slots).max(1)).fold(0, u32::saturating_add);
    let np = pasted.np.filter(|_| oversubscribes(pasted, hosts))?;
    Some(format!(
        "`--oversubscribe`: {np} ranks share {given} CPU slots of the line's hosts; a GPU is never shared."
    ))
}

/// Ranks beyond the slots, as Open MPI places them: as many on each host, the first hosts have one more.
fn share_out(pasted: &Pasted, hosts: &mut [(HostId, u32)]) {
    for (_, slots) in &mut *hosts {
        *slots = (*slots).max(1);
    }
    let given = hosts.iter().map(|(_, slots)| *slots).fold(0, u32::saturating_add);
    let (more, count) = (pasted.np.unwrap_or(given) - given, hosts.len() as u32);
    for ((_, slots), at) in hosts.iter_mut().zip(0..) {
        *slots += more / count + u32::from(at < more % count);
    }
}

/// The hosts of a cluster, each in one block, chief and workers first.
fn task_hosts(cluster: &[Task]) -> Vec<(HostId, u32)> {
    let mut hosts: Vec<(HostId, u32)> = Vec::new();
    for task in cluster {
        match hosts.iter_mut().find(|(host, _)| host.as_str() == task.host) {
            Some((_, count)) => *count += 1,
            None => hosts.push((HostId::from(task.host.as_str()), 1)),
        }
    }
    hosts
}

/// What each rank is, in the order in which the hosts' blocks number them.
fn tasks(cluster: &[Task]) -> Vec<TaskRole> {
    let hosts = task_hosts(cluster);
    let roles = hosts.iter().flat_map(|(host, _)| {
        let on = cluster.iter().filter(|task| task.host == host.as_str());
        on.map(|task| task.role)
    });
    roles.collect()
}

/// The launcher that the line names, where that is more than `mpirun`.
fn mpi_program(pasted: &Pasted) -> Option<String> {
    let program = pasted.argv.first().filter(|_| pasted.launcher == Launcher::Mpirun)?;
    (program != "mpirun").then(|| program.clone())
}

/// What srun is told beside the number of tasks and their command.
fn srun_args(pasted: &Pasted) -> Vec<String> {
    let mut args: Vec<String> = pasted.nodes.map(|nodes| format!("--nodes={nodes}")).into_iter().collect();
    if let Some(PerNode::Ranks(each)) = pasted.per_node {
        args.push(format!("--ntasks-per-node={each}"));
    }
    if !pasted.hosts.is_empty() {
        let names: Vec<&str> = pasted.hosts.iter().map(|host| host.host.as_str()).collect();
        args.push(format!("--nodelist={}", names.join(",")));
    }
    if let Some(prefix) = &pasted.prefix {
        args.extend(["--prefix".to_owned(), prefix.clone()]);
    }
    args.extend(pasted.pass.iter().cloned());
    args
}

/// What mpirun is told beside what hvtui tells it.
fn mpi_args(pasted: &Pasted) -> Vec<String> {
    if pasted.kind == JobKind::Slurm {
        return srun_args(pasted);
    }
    if pasted.kind != JobKind::Mpi {
        return Vec::new();
    }
    let mut args: Vec<String> = Vec::new();
    for (key, value) in pasted.mca.iter().filter(|(key, _)| !is_ours(key)) {
        args.extend(["--mca".to_owned(), key.clone(), value.clone()]);
    }
    for (option, value) in [("--bind-to", &pasted.bind_to), ("--map-by", &pasted.map_by)] {
        if let Some(value) = value {
            args.extend([option.to_owned(), value.clone()]);
        }
    }
    if let Some(prefix) = &pasted.prefix {
        args.extend(["--prefix".to_owned(), prefix.clone()]);
    }
    args.extend(pasted.pass.iter().cloned());
    args
}

/// How mpirun reaches other hosts is hvtui's: a second word on it would contradict.
fn is_ours(parameter: &str) -> bool {
    parameter.starts_with("plm_") || parameter == "orte_keep_fqdn_hostnames"
}

/// `torch.distributed.launch` without `--use_env` gives each script its local rank as an argument. PyTorch 2 spells it
/// with a dash; a script that knows one spelling alone gets that one, whatever PyTorch there is.
fn local_rank_arg(pasted: &Pasted, script: Option<&str>) -> Option<LocalRankArg> {
    let Launcher::TorchLaunch { use_env: false, dashes } = pasted.launcher else { return None };
    let option = if dashes { "--local-rank" } else { "--local_rank" };
    let mut arg = LocalRankArg { at: pasted.script.map_or(1, |at| at + 1) as u32, option: option.to_owned() };
    spell(&mut arg, script.unwrap_or(""));
    Some(arg)
}

/// Spells the argument as a script does that knows one spelling alone.
pub fn spell(arg: &mut LocalRankArg, script: &str) {
    if let Some(option) = ["--local_rank", "--local-rank"].into_iter().find(|known| script.contains(known)) {
        option.clone_into(&mut arg.option);
    }
}

#[cfg(test)]
#[path = "pasted_request_tests.rs"]
mod tests;
