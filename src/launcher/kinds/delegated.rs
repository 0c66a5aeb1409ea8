//! Ranks that the framework's own launcher starts, because that is wanted (`--delegate`) or because its line is not
//! understood in full.
//!
//! - torchrun, on each host: it starts the ranks' shims, as mpirun does for kind `mpi`.
//! - horovodrun, or a whole line of mpirun, on the first host: its output is split into ranks by its tags, and its words
//!   say which rank failed. It finds no ssh but hvtui's: what it starts on another host is started by the run's node
//!   there, with that host's GPUs, and is stopped and swept with the run. So its hosts need no ssh between each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{Env, Kind, LAUNCHER_DEADLINE_S, STARTED, Start, each_rank, env, topology, torch};
use crate::domain::engine::{Engine, Launcher, NODE_PORT, Node, Program, TORCH_LOGS};
use crate::domain::ids::Rank;
use crate::domain::mpirun::{self, MpiPlan};
use crate::domain::options::Delegated;
use crate::domain::redaction::MASK;
use crate::domain::run::{HostRun, JobKind, RankSpec, RunStage, Slot};
use crate::domain::tags::TagStyle;
use crate::launch::environment_run;
use crate::launch::error::LaunchError;
use crate::launch::own_line::{self, Torchrun};
use crate::launch::paste;
use crate::launch::plan::LaunchPlan;
use crate::launcher::inventory::HostFacts;

/// A kind whose ranks its own launcher starts.
pub(super) struct ByItsLauncher;

/// torchrun's own way to be told its port.
const TORCH_PORT: &str = "PET_MASTER_PORT";
/// Number of the port for the nodes' connections among the further ones.
const NODES: usize = 1;
/// What a rank has from its launcher and not from hvtui.
const ITS_OWN: [&str; 3] = ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "HVTUI_LOCAL_RANK"];
/// A line finds the host's own environment, but for what makes its ranks' last words come in time.
const UNBUFFERED: &str = "PYTHONUNBUFFERED";

impl Kind for ByItsLauncher {
    fn complete(&self, plan: &mut LaunchPlan, _: &[HostFacts]) -> Result<(), LaunchError> {
        let launcher = plan.spec.options.delegate.clone().unwrap_or_default();
        match plan.spec.kind {
            JobKind::Torch => torchrun(plan, &launcher),
            JobKind::Horovod | JobKind::Mpi => {
                check(plan, &launcher)?;
                check_devices(plan)?;
                over_nodes(plan, launcher);
                Ok(())
            }
            kind => Err(LaunchError::usage(format!(
                "--delegate: kind {} has no launcher of its own: it is for the kinds torch, horovod and mpi",
                kind.name()
            ))),
        }
    }

    fn at_start(&self, start: &Start<'_>) -> Env {
        match start.spec.kind {
            JobKind::Torch => env([(TORCH_PORT, start.master_port(0).to_string())]),
            _ => env([(NODE_PORT, start.master_port(NODES).to_string())]),
        }
    }

    fn stages(&self, _: u32) -> &'static [RunStage] {
        STARTED
    }

    fn start_deadline_s(&self) -> u32 {
        LAUNCHER_DEADLINE_S
    }
}

/// The launcher's variables on a host: what all its ranks have in common, but for what it sets itself.
fn launcher_env(plan: &LaunchPlan, share: &HostRun) -> Env {
    let set_by_it: BTreeSet<&str> =
        ITS_OWN.into_iter().chain(["RANK", "WORLD_SIZE", "HVTUI_PLACE"]).collect();
    let of_user = |name: &str| plan.spec.env.contains_key(name);
    let rank = share.ranks.first().into_iter().flat_map(|rank| &rank.env);
    // A secret comes with the order to start.
    let own =
        rank.filter(|(name, value)| *value != MASK && (!set_by_it.contains(name.as_str()) || of_user(name)));
    let mut env: Env = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    env.entry(UNBUFFERED.to_owned()).or_insert_with(|| "1".to_owned());
    env
}

/// torchrun on each host: it wants as many ranks on each.
fn torchrun(plan: &mut LaunchPlan, launcher: &Delegated) -> Result<(), LaunchError> {
    if let Some((first, other)) = uneven(&plan.hosts) {
        let count = |share: &HostRun| format!("{} has {}", share.host, share.ranks.len());
        return Err(LaunchError::usage(format!(
            "torchrun starts the same number of ranks on each host, but {} and {}: give each host as many, or leave \
             out --delegate, as hvtui starts uneven hosts by itself",
            count(first),
            count(other)
        )));
    }
    torch::tell_local_ranks(plan);
    each_rank(plan, |spec, placement| {
        let at = topology(spec, placement);
        // torchrun sets neither; Lightning's launcher reads the first.
        env([("NODE_RANK", at.node.to_string()), ("NNODES", at.nodes.to_string())])
    });
    let called: Vec<String> =
        if launcher.program.is_empty() { vec!["torchrun".to_owned()] } else { launcher.program.clone() };
    // Its shims print nothing. Where nothing is said of that, the one of PyTorch 1.13 fails under Python 3.11.
    let mut options = vec!["--redirects=1".to_owned(), "--tee=1".to_owned()];
    options.extend(launcher.options.iter().cloned());
    // It is told the port when that is known; all ranks are started again by hvtui, on all hosts.
    let told =
        env([(TORCH_PORT, String::new()), (TORCH_LOGS, String::new()), ("PET_MAX_RESTARTS", "0".to_owned())]);
    let (nodes, shim) = (plan.hosts.len(), mpirun::shim());
    let master = plan.rendezvous.master.to_string();
    let users = plan.spec.env.clone();
    for (node, share) in plan.hosts.iter_mut().enumerate() {
        let line = Torchrun {
            program: &called,
            ranks: share.ranks.len(),
            node: (node, nodes),
            meet: Some((&master, None)),
            restarts: 0,
            options: &options,
            command: &shim,
        };
        let mut env: Env = told.clone();
        let rank = share.ranks.first();
        let path = rank.and_then(|rank| rank.env.get("PATH"));
        env.extend(path.map(|path| ("PATH".to_owned(), path.clone())));
        env.extend(
            users
                .iter()
                .filter(|(_, value)| *value != MASK)
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        share.engine = Some(Engine::Launcher(Launcher {
            program: Program::Argv(line.words()),
            env,
            cwd: rank.and_then(|rank| rank.cwd.clone()),
            nodes: Vec::new(),
            tags: None,
            name: String::new(),
            elsewhere: BTreeMap::new(),
        }));
        for rank in &mut share.ranks {
            // torchrun sets it, unless the host has
            rank.defaults.remove("OMP_NUM_THREADS");
        }
    }
    Ok(())
}

fn uneven(hosts: &[HostRun]) -> Option<(&HostRun, &HostRun)> {
    let first = hosts.first()?;
    hosts.iter().find(|share| share.ranks.len() != first.ranks.len()).map(|other| (first, other))
}

/// horovodrun or mpirun on the first host, and a node on each other one.
fn over_nodes(plan: &mut LaunchPlan, launcher: Delegated) {
    let envs: Vec<Env> = plan.hosts.iter().map(|share| launcher_env(plan, share)).collect();
    let names = names(plan, &launcher);
    let spec = plan.spec.clone();
    let line = if launcher.line.is_empty() { written(plan, &names) } else { launcher.line };
    let (program, tags) = match spec.kind {
        JobKind::Mpi => {
            let called = line.iter().find(|word| paste::is_launcher(word)).or_else(|| line.first());
            let program = called.cloned().unwrap_or_default();
            let started = environment_run::inner(&line).filter(|at| line[*at] == program);
            let before = line.iter().take(started.unwrap_or(0)).cloned().collect();
            let mpi = MpiPlan {
                program,
                world: spec.world(),
                hosts: Vec::new(),
                interface: None,
                options: Vec::new(),
                before,
                line,
            };
            // How it tags, its version tells.
            (Program::Mpi(mpi), TagStyle::OpenMpi4)
        }
        _ => (Program::Argv(line), TagStyle::Horovod),
    };
    let mut elsewhere: BTreeMap<Rank, String> = BTreeMap::new();
    for (share, name) in plan.hosts.iter().zip(&names).skip(1) {
        elsewhere.extend(share.ranks.iter().map(|rank| (rank.rank, name.clone())));
    }
    let mut first = Some((program, elsewhere));
    for ((share, name), env) in plan.hosts.iter_mut().zip(&names).zip(envs) {
        share.engine = Some(match first.take() {
            Some((program, elsewhere)) => {
                share.ports += 1;
                let cwd = share.ranks.first().and_then(|rank| rank.cwd.clone());
                let nodes = names.iter().skip(1).cloned().collect();
                let name = name.clone();
                Engine::Launcher(Launcher { program, env, cwd, nodes, tags: Some(tags), name, elsewhere })
            }
            None => Engine::Node(Node { name: name.clone(), needs: Vec::new(), env, stands: true }),
        });
        for rank in &mut share.ranks {
            let users = &spec.env;
            rank.env.retain(|name, _| !ITS_OWN.contains(&name.as_str()) || users.contains_key(name));
            rank.defaults.retain(|name, _| name == UNBUFFERED);
        }
    }
}

/// What would go wrong with a line that is executed on its first host.
fn check(plan: &LaunchPlan, launcher: &Delegated) -> Result<(), LaunchError> {
    let ranks = plan.hosts.iter().flat_map(|share| &share.ranks);
    let secret = ranks.flat_map(|rank| &rank.env).find(|(_, value)| *value == MASK);
    if let (JobKind::Horovod, Some((name, _))) = (plan.spec.kind, secret) {
        return Err(LaunchError::usage(format!(
            "{name} is secret, and horovodrun writes its whole environment on command lines that other users can read: \
             leave out --delegate or what is not understood, or leave out the secret variable"
        )));
    }
    let login = plan.spec.options.environments.iter().find(|(_, environment)| environment.login.is_some());
    if let (JobKind::Horovod, Some((host, _))) = (plan.spec.kind, login) {
        return Err(LaunchError::usage(format!(
            "{host} takes its login shell's environment, which may hold secrets, and horovodrun writes its whole environment on \
             command lines that other users can read: leave out --delegate or what is not understood, or --env-from-login"
        )));
    }
    let here = |name: &&String| matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1");
    if let Some(name) = launcher.hosts.iter().skip(1).find(here) {
        return Err(LaunchError::usage(format!(
            "`{name}` is not the first host of the line, and on that one it would mean itself: name it as the first \
             host reaches it, or put it first"
        )));
    }
    Ok(())
}

/// A launcher starts all its ranks of a host with the same variables, so that they must see the same devices. Of several MIG
/// slices CUDA shows a process one: the ranks would all be on the first.
fn check_devices(plan: &LaunchPlan) -> Result<(), LaunchError> {
    let sees = |rank: &RankSpec| rank.env.get("CUDA_VISIBLE_DEVICES").cloned();
    let differ =
        |share: &&HostRun| share.ranks.iter().any(|rank| Some(sees(rank)) != share.ranks.first().map(sees));
    let Some(share) = plan.hosts.iter().find(differ) else { return Ok(()) };
    let (host, ranks) = (&share.host, share.ranks.len());
    let launcher = if plan.spec.kind == JobKind::Mpi { "mpirun" } else { "horovodrun" };
    let ours = "leave out --delegate or what is not understood: hvtui's own kind gives each rank its own";
    let placements = plan.spec.placements.iter().filter(|placement| placement.host == *host);
    let slots: Vec<&Slot> =
        placements.flat_map(|placement| std::iter::once(&placement.slot).chain(&placement.more)).collect();
    let is_slice = |slot: &&Slot| matches!(slot, Slot::Gpu { uuid, .. } if uuid.is_slice());
    Err(LaunchError::usage(if slots.iter().any(is_slice) {
        let indices: Vec<String> = slots.iter().map(|slot| slot.index().to_string()).collect();
        format!(
            "{launcher} gives its {ranks} ranks on {host} one list of devices, and CUDA shows a process one MIG slice of a \
             list: all of them would be on the first of {host}:{}. Take one slice a host, or {ours}",
            indices.join(",")
        )
    } else {
        format!(
            "{launcher} gives its {ranks} ranks on {host} one list of devices, so no rank can see its own GPUs alone: leave out \
             --gpu-view and --gpus-per-rank, or {ours}"
        )
    }))
}

/// What the launcher calls each host: as the line does, else by its address of the run.
fn names(plan: &LaunchPlan, launcher: &Delegated) -> Vec<String> {
    let address = |share: &HostRun| plan.rendezvous.of(&share.host).to_string();
    let name =
        |(at, share): (usize, &HostRun)| launcher.hosts.get(at).cloned().unwrap_or_else(|| address(share));
    plan.hosts.iter().enumerate().map(name).collect()
}

/// horovodrun's line, where there is none.
fn written(plan: &LaunchPlan, names: &[String]) -> Vec<String> {
    let hosts: Vec<(String, usize)> = match (names, plan.hosts.as_slice()) {
        ([_], [share]) => vec![("localhost".to_owned(), share.ranks.len())],
        _ => names.iter().cloned().zip(plan.hosts.iter().map(|share| share.ranks.len())).collect(),
    };
    let options = &plan.spec.options;
    let interface = options.interface.as_deref();
    own_line::horovodrun(&hosts, None, interface, options.start_timeout_s, &plan.spec.command)
}
