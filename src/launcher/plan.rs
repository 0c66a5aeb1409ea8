//! From a request and the inventory to a [`LaunchPlan`]. Pure: the same request and inventory always give the same plan.
//! What is known only when the hosts are ready (ports, secret, paths on the host) comes later, with the order to start.

use std::collections::{BTreeMap, BTreeSet};

use super::free;
use super::inventory::HostFacts;
use super::kinds;
use super::place;
use super::place_words::is_slice;
use super::rendezvous::rendezvous_address;
use crate::domain::environment::EnvironmentPlan;
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::lease::LeasePlan;
use crate::domain::log::Stream;
use crate::domain::options::GpuView;
use crate::domain::options::{PythonHooks, RankProgram};
use crate::domain::run::{HostRun, JobKind, Placement, RankSpec, RunSpec, RunStage, Slot};
use crate::domain::text::plain;
use crate::domain::time::Stamp;
use crate::domain::units::counted;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::host_list::entry;
use crate::launch::name;
use crate::launch::plan::{LaunchPlan, Rendezvous};
use crate::launch::remark::Remark;
use crate::launch::remote_start;
use crate::launch::request::{ALL_SLOTS, FREE_SLOTS, GPU_MASK, LaunchRequest, Only, PlacementSpec};
use crate::wire::message::Follow;

/// The variable by which the hooks are told what is wanted of them.
const HOOKS_WANTED: &str = "HVTUI_PYTHON_HOOKS";

/// So many hosts that are not up are told with the reason of each.
const ABSENT: usize = 3;

/// Milliseconds between TERM and KILL when a run is stopped.
pub const GRACE_MS: u64 = 5_000;

/// Plans `request` on hosts of which `facts` tell.
pub fn plan(
    request: &LaunchRequest,
    facts: &[HostFacts],
    id: RunId,
    at: Stamp,
) -> Result<LaunchPlan, LaunchError> {
    if request.options.container.is_some() && request.options.delegate.is_some() {
        return Err(LaunchError::usage(
            "--image and --delegate: the launcher would run outside of the containers, and start its ranks there; leave out one \
             of the two",
        ));
    }
    let asked = request.options.environment.clone().decided();
    if request.options.container.is_some() && asked.activates() {
        return Err(LaunchError::usage(
            "--image and --conda, --venv, --module or --env-from-login: what is activated is the host's, and ranks in containers see \
             their image alone; leave out one of the two",
        ));
    }
    let placements = place::place(request, facts)?;
    let mut spec = spec(request, placements, id, at);
    several_programs(&mut spec)?;
    let rendezvous = rendezvous_address(&spec, facts, spec.options.interface.as_deref())
        .map_err(|error| LaunchError::usage(error.to_string()))?;
    spec.options.environments = environments(&spec, facts);
    let mut hosts = host_runs(&spec, facts, request.on_busy.share);
    spec.options.hooks_off =
        hosts.iter().filter(|run| hooks_are_off(run)).map(|run| run.host.clone()).collect();
    if let Some(container) = &mut spec.options.container {
        let named = facts.iter().filter_map(|host| Some((host.id.clone(), host.container.clone()?)));
        container.engines = named.filter(|(id, _)| hosts.iter().any(|run| run.host == *id)).collect();
    }
    for run in &mut hosts {
        run.run_spec = Some(Box::new(spec.clone()));
    }
    for share in &mut hosts {
        name_interface(share, facts, &rendezvous);
        for rank in &mut share.ranks {
            rank.env.insert("MASTER_ADDR".to_owned(), rendezvous.master.to_string());
            rank.env.insert("HVTUI_BIND".to_owned(), rendezvous.of(&share.host).to_string());
        }
    }
    let lease_order = lease_order(&spec, facts);
    let mut remarks = request.remarks.clone();
    let chosen = free::choice(request, facts).and_then(Result::ok);
    let picked = chosen.map(|choice| format!("picked {}", choice.words()));
    remarks.extend(picked.or_else(|| split_remark(request, &spec)).map(Remark::info));
    remarks.extend(mixed_remarks(request, &spec).into_iter().map(Remark::info));
    remarks.extend(warnings(request, &spec, &hosts, facts).into_iter().map(Remark::warning));
    if let Some(mask) = &request.gpu_mask
        && spec.placements.iter().all(|placement| placement.gpus().next().is_none())
    {
        let hosts: Vec<String> = spec.hosts().iter().map(ToString::to_string).collect();
        let hosts = hosts.join(", ");
        remarks.push(if mask.is_empty() {
            let text = format!("CUDA_VISIBLE_DEVICES hides all GPUs: the ranks run on CPU slots of {hosts}.");
            Remark::info(text)
        } else {
            Remark::warning(format!(
                "CUDA_VISIBLE_DEVICES={mask} selects nothing: no GPU slot on {hosts}; the ranks run on CPU slots."
            ))
        });
    }
    let asked = place::chooses_slots(request).then(|| Box::new(request.clone()));
    let mut plan = LaunchPlan { spec, hosts, rendezvous, lease_order, remarks, request: asked };
    kinds::of(&plan.spec).complete(&mut plan, facts)?;
    Ok(plan)
}

/// What of a plan may not be what was meant.
fn warnings(request: &LaunchRequest, spec: &RunSpec, hosts: &[HostRun], facts: &[HostFacts]) -> Vec<String> {
    let mut said: Vec<String> = cpu_remark(request, spec, facts).into_iter().collect();
    said.extend(unused_remark(request, spec));
    said.extend(full_remark(request, spec));
    said.extend(remote_start::remark(&spec.command, spec.world()).filter(|_| spec.kind == JobKind::Plain));
    said.extend(absent_remarks(request, spec, facts));
    said.extend(path_remark(hosts));
    said.extend(mig_remarks(spec, hosts));
    said.extend(risk_remarks(spec, facts));
    said.extend(start_timeout_remark(spec));
    said
}

/// The programs of a job that has several start all of its ranks; those of another command mean nothing.
fn several_programs(spec: &mut RunSpec) -> Result<(), LaunchError> {
    let programs = &spec.options.programs;
    if programs.first().is_none_or(|first| first.command != spec.command) {
        spec.options.programs.clear();
        return Ok(());
    }
    let (ranks, world) =
        (programs.iter().map(|program| program.ranks).fold(0, u32::saturating_add), spec.world());
    if ranks == world {
        return Ok(());
    }
    let counts: Vec<String> = programs.iter().map(|program| program.ranks.to_string()).collect();
    Err(LaunchError::usage(format!(
        "the line's {} programs have {} = {ranks} ranks, and {world} are asked for: change their numbers in the line",
        programs.len(),
        counts.join(" + ")
    )))
}

/// What is activated on each host: the launch's word, then the hosts file's.
fn environments(spec: &RunSpec, facts: &[HostFacts]) -> BTreeMap<HostId, EnvironmentPlan> {
    let of = |id: HostId| {
        let host = facts.iter().find(|host| host.id == id).map(|host| &host.environment);
        let asked = &spec.options.environment;
        let mut plan = host.map_or_else(|| asked.clone(), |host| asked.over(host)).decided();
        if spec.options.container.is_some() {
            // The rest is the host's, which the ranks do not see.
            plan = EnvironmentPlan { limits: plan.limits, ..EnvironmentPlan::default() };
        }
        (!plan.is_empty()).then_some((id, plan))
    };
    spec.hosts().into_iter().filter_map(of).collect()
}

/// That ranks which could go anywhere are on several hosts, because none holds them all.
fn split_remark(request: &LaunchRequest, spec: &RunSpec) -> Option<String> {
    let hosts = spec.hosts().len();
    let anywhere = matches!(request.place, PlacementSpec::Count(Some(_)) | PlacementSpec::Free { .. });
    if hosts < 2 || !anywhere {
        return None;
    }
    let slots: usize = spec.placements.iter().map(|placement| placement.slots().count()).sum();
    let gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let what = if gpus { "free GPUs that are not at risk" } else { "free CPU slots" };
    Some(format!("split over {hosts} hosts: no host has {slots} {what}."))
}

/// The hosts of a line that get no rank, because it says of no host how many it gets and those before them have room for all.
fn unused_remark(request: &LaunchRequest, spec: &RunSpec) -> Option<String> {
    let PlacementSpec::Hosts { hosts, np: Some(np) } = &request.place else { return None };
    let used = spec.hosts();
    let without = hosts.iter().filter(|(host, slots)| *slots == ALL_SLOTS && !used.contains(host));
    let unused: Vec<&str> = without.map(|(host, _)| host.as_str()).collect();
    if unused.is_empty() {
        return None;
    }
    let (get, names) = (if unused.len() == 1 { "gets" } else { "get" }, unused.join(", "));
    let (each, more) = (*np as usize / hosts.len(), *np as usize % hosts.len());
    let share = |at: usize| (each + usize::from(at < more)).max(1);
    let shares = hosts.iter().enumerate().map(|(at, (host, _))| entry(host.as_str(), share(at)));
    let list: Vec<String> = shares.collect();
    Some(format!(
        "{names} {get} no rank: the hosts before have slots for all {np}; to share them out write {}.",
        list.join(",")
    ))
}

/// The hosts of `--gpus a;b` that get no rank, because they have no free slots.
fn full_remark(request: &LaunchRequest, spec: &RunSpec) -> Option<String> {
    let PlacementSpec::Hosts { hosts, np: None } = &request.place else { return None };
    let used = spec.hosts();
    let full = hosts.iter().filter(|(host, slots)| *slots == FREE_SLOTS && !used.contains(host));
    let full: Vec<&str> = full.map(|(host, _)| host.as_str()).collect();
    let slots = match request.options.gpus_per_rank {
        0 | 1 => "no free slot".to_owned(),
        each => format!("fewer than {each} free slots"),
    };
    match full.as_slice() {
        [] => None,
        [host] => Some(format!("{host} has {slots} and is left out.")),
        hosts => Some(format!("{} have {slots} and are left out.", hosts.join(", "))),
    }
}

/// That the ranks compute on CPUs, because no number of free GPUs would be enough for them.
fn cpu_remark(request: &LaunchRequest, spec: &RunSpec, facts: &[HostFacts]) -> Option<String> {
    let anywhere = matches!(request.place, PlacementSpec::Count(Some(_)) | PlacementSpec::Nodes { .. });
    let wants_cpus = request.query || request.only == Only::Cpus || request.hides_gpus();
    let has_gpus = |host: &HostFacts| host.slots.iter().any(|slot| matches!(slot, Slot::Gpu { .. }));
    let first = facts.iter().find(|host| !host.slots.is_empty() && !host.driver_fails);
    let on_cpus = spec.placements.iter().all(|placement| placement.gpus().next().is_none());
    (anywhere && !wants_cpus && on_cpus && first.is_some_and(has_gpus)).then(|| {
        "the ranks take CPU slots: the hosts have too few GPUs for all of them, and no job has both."
            .to_owned()
    })
}

/// The hosts that are not up and that a launch would have come to otherwise, where it names none itself.
fn absent_remarks(request: &LaunchRequest, spec: &RunSpec, facts: &[HostFacts]) -> Vec<String> {
    let used = spec.hosts();
    let last = facts.iter().rposition(|host| used.contains(&host.id)).map_or(0, |last| last + 1);
    let considered = match &request.place {
        PlacementSpec::Hosts { .. } | PlacementSpec::Picks(_) => 0,
        // in the order of the hosts file, and no further than needed
        PlacementSpec::Count(Some(_)) | PlacementSpec::Nodes { .. } => last,
        PlacementSpec::Count(None) | PlacementSpec::Free { .. } => facts.len(),
    };
    let has_gpus = spec.placements.iter().any(|placement| placement.gpus().next().is_some());
    let why = |host: &HostFacts| {
        let fails = has_gpus && host.driver_fails && !used.contains(&host.id);
        host.absent.clone().or_else(|| host.no_gpu.clone().filter(|_| fails))
    };
    let absent: Vec<(&HostId, String)> =
        facts.iter().take(considered).filter_map(|host| Some((&host.id, why(host)?))).collect();
    if absent.len() > ABSENT {
        let names: Vec<&str> = absent.iter().take(ABSENT).map(|(host, _)| host.as_str()).collect();
        let (names, more) = (names.join(", "), absent.len() - ABSENT);
        return vec![format!(
            "{names} and {more} more are passed over: they are not up; `hvtui hosts check` says why"
        )];
    }
    let one = |(host, why): &(&HostId, String)| format!("{host} is passed over: {}", plain(host, why));
    absent.iter().map(one).collect()
}

/// The GPUs of the launch that are at risk, a sentence a host.
fn risk_remarks(spec: &RunSpec, facts: &[HostFacts]) -> Vec<String> {
    let of = |host: &HostFacts| {
        let placed = spec.placements.iter().filter(|placement| placement.host == host.id);
        let gpus = placed.flat_map(|placement| std::iter::once(&placement.slot).chain(&placement.more));
        let at_risk: BTreeMap<u32, &str> =
            gpus.filter_map(|slot| Some((slot.index(), host.risk(slot)?))).collect();
        let words: Vec<String> = at_risk.iter().map(|(index, why)| format!("{index} ({why})")).collect();
        let (gpus, are) = match words.as_slice() {
            [] => return None,
            [one] => (format!("GPU {one}"), "is"),
            several => (format!("GPUs {}", several.join(", ")), "are"),
        };
        Some(format!(
            "{}: {gpus} {are} at risk: the run may fail there or learn from wrong numbers.",
            host.id
        ))
    };
    facts.iter().filter_map(of).collect()
}

/// A time for the rendezvous has no effect where nothing tells of it; horovodrun is given it in its own line.
fn start_timeout_remark(spec: &RunSpec) -> Option<String> {
    let seconds = spec.options.start_timeout_s?;
    let is_told = kinds::of(spec).stages(spec.world()).contains(&RunStage::Rendezvous);
    let is_passed_on = spec.kind == JobKind::Horovod && spec.options.delegate.is_some();
    if spec.world() == 1 && !is_passed_on {
        return Some(format!("--start-timeout {seconds} has no effect: one rank waits for no other."));
    }
    (!is_told && !is_passed_on).then(|| {
        format!(
            "--start-timeout {seconds} has no effect: ranks of kind {} do not tell when they are connected; give the \
             program a timeout, as torch's init_process_group(timeout=…).",
            spec.kind.name()
        )
    })
}

/// What MIG slices can't do: a process uses one of them, and NCCL connects no two of one GPU.
fn mig_remarks(spec: &RunSpec, hosts: &[HostRun]) -> Vec<String> {
    let mut remarks = Vec::new();
    let several = spec.placements.iter().find(|placement| {
        let slices = placement.gpus().filter(|gpu| gpu.is_slice());
        slices.count() > 1
    });
    remarks.extend(several.map(|placement| {
        let rank = placement.rank;
        format!("rank {rank} gets several MIG slices: CUDA gives a process the first of them alone.")
    }));
    let uses_nccl =
        matches!(spec.kind, JobKind::Native | JobKind::Torch | JobKind::Horovod | JobKind::Tensorflow);
    let shares_gpu = |run: &&HostRun| {
        let gpus: BTreeSet<&GpuUuid> = run.leases.slice_of.values().collect();
        gpus.len() < run.leases.slice_of.len()
    };
    remarks.extend(hosts.iter().find(shares_gpu).filter(|_| uses_nccl).map(|run| {
        format!(
            "{}: ranks on MIG slices of one GPU can't reach each other by NCCL (no peer-to-peer, «Duplicate GPU \
             detected»): take a backend such as gloo, or slices of different GPUs.",
            run.host
        )
    }));
    remarks
}

/// A host that is named with a number and whose whole GPUs are too few gives MIG slices, too: a sentence a host.
fn mixed_remarks(request: &LaunchRequest, spec: &RunSpec) -> Vec<String> {
    if !matches!(request.place, PlacementSpec::Hosts { .. }) {
        return Vec::new();
    }
    let of = |host: HostId| {
        let placed = spec.placements.iter().filter(|placement| placement.host == host);
        let gpus = placed.flat_map(Placement::slots).filter(|slot| matches!(slot, Slot::Gpu { .. }));
        let (slices, whole): (Vec<&Slot>, Vec<&Slot>) = gpus.partition(|slot| is_slice(slot));
        let slices: Vec<String> = slices.iter().map(|slot| slot.index().to_string()).collect();
        (!slices.is_empty() && !whole.is_empty()).then(|| {
            let (whole, count) = (counted(whole.len(), "GPU"), counted(slices.len(), "MIG slice"));
            let slices = slices.join(", ");
            format!("{host}: {whole} and {count} ({slices}), for it has too few free GPUs that are whole.")
        })
    };
    spec.hosts().into_iter().filter_map(of).collect()
}

/// A search path that is written out counts before what is activated: then its programs are not found.
fn path_remark(hosts: &[HostRun]) -> Option<String> {
    let hidden = hosts.iter().filter(|run| {
        let plan = run.environment();
        let activates = plan.conda.is_some() || plan.venv.is_some() || !plan.modules.is_empty();
        activates && run.ranks.iter().any(|rank| rank.env.contains_key("PATH"))
    });
    let hosts: Vec<&str> = hidden.map(|run| run.host.as_str()).collect();
    (!hosts.is_empty()).then(|| {
        let hosts = hosts.join(", ");
        format!("PATH is set by --env or the hosts file for {hosts}: it counts before what is activated there, whose programs may not be found.")
    })
}

/// Whether no Python on this host gets the hooks, by what is wanted or by the variable that switches them off.
fn hooks_are_off(run: &HostRun) -> bool {
    let says_off = |rank: &RankSpec| rank.env.get(HOOKS_WANTED).is_some_and(|word| word.trim() == "off");
    run.python_hooks == PythonHooks::Off || run.ranks.iter().all(says_off)
}

/// A run from a request and the slots that were found for it.
pub(super) fn spec(
    request: &LaunchRequest,
    placements: Vec<Placement>,
    id: RunId,
    created: Stamp,
) -> RunSpec {
    let mut env = request.env.clone();
    if request.hides_gpus() {
        // in what is recorded, so that it is launched once more without them
        env.insert(GPU_MASK.to_owned(), String::new());
    }
    RunSpec {
        id,
        name: request.name.clone().unwrap_or_else(|| name::name_of(&request.command)),
        kind: request.kind.unwrap_or_else(|| name::kind_of(&request.command)),
        command: request.command.clone(),
        env,
        workdir: request.workdir.clone(),
        placements,
        created,
        options: request.options.clone(),
        code: request.code.clone().filter(|code| !code.is_empty()),
    }
}

/// Each host's share, hosts in rank order. With `share`, GPUs that the same user holds are used too.
pub(super) fn host_runs(spec: &RunSpec, hosts: &[HostFacts], share: bool) -> Vec<HostRun> {
    let mut runs = Vec::new();
    let programs: Vec<&[String]> = RankProgram::commands(&spec.options.programs).collect();
    for id in spec.hosts() {
        let facts = hosts.iter().find(|host| host.id == id);
        let ours: Vec<&Placement> = spec.placements.iter().filter(|p| p.host == id).collect();
        let rank = |placement: &&Placement| {
            let mut rank = RankSpec {
                rank: placement.rank,
                argv: programs.get(placement.rank.0 as usize).map_or(&spec.command[..], |argv| argv).to_vec(),
                env: rank_env(spec, placement, &ours, facts),
                defaults: BTreeMap::new(),
                cwd: spec.workdir.clone().or_else(|| facts?.workdir.clone()),
            };
            // Python holds back what it prints into a file, and what a rank prints last is what tells why it failed.
            rank.set_default("PYTHONUNBUFFERED", "1");
            // MPI's binding says how many processors a rank has.
            if ours.len() > 1 && spec.kind != JobKind::Mpi {
                // As torchrun does: each rank would otherwise take a thread for each processor of the host.
                rank.set_default("OMP_NUM_THREADS", "1");
            }
            rank
        };
        let ranks: Vec<RankSpec> = ours.iter().map(rank).collect();
        let held: BTreeMap<_, Rank> =
            ours.iter().flat_map(|p| p.gpus().map(|gpu| (gpu.clone(), p.rank))).collect();
        let mut spool = facts.map(|facts| facts.spool).unwrap_or_default();
        spool.cap = spec.options.spool_cap.unwrap_or(spool.cap);
        let silence = spec.options.max_silence_ms.or_else(|| facts?.max_silence_ms);
        let wanted = facts.is_none_or(|facts| facts.python_hooks);
        let host_wants = if wanted { PythonHooks::On } else { PythonHooks::Off };
        runs.push(HostRun {
            rendezvous: None,
            engine: None,
            attempt: 0,
            run: spec.id.clone(),
            host: id,
            name: spec.name.clone(),
            ports: ranks.len() as u32 + 1,
            ranks,
            grace_ms: GRACE_MS,
            max_silence_ms: silence.filter(|ms| *ms > 0),
            python_hooks: spec.options.python_hooks.unwrap_or(host_wants),
            traceable: spec.options.traceable,
            run_spec: Some(Box::new(spec.clone())),
            spool,
            leases: LeasePlan {
                dir: facts.and_then(|facts| facts.lease_dir.clone()),
                share,
                slice_of: slices_of(facts, &held),
                held,
            },
        });
    }
    runs
}

/// The GPUs of those that are MIG slices.
fn slices_of(facts: Option<&HostFacts>, held: &BTreeMap<GpuUuid, Rank>) -> BTreeMap<GpuUuid, GpuUuid> {
    let of = |gpu: &GpuUuid| Some((gpu.clone(), facts?.slice_of.get(gpu)?.clone()));
    held.keys().filter_map(of).collect()
}

/// Asks a host for all of a run's files there, named rank by rank: it is heard about these alone.
pub fn follow(spec: &RunSpec, host: &HostId) -> Follow {
    let ours = spec.placements.iter().filter(|placement| placement.host == *host);
    let files = ours.flat_map(|placement| Stream::ALL.map(|stream| (placement.rank, stream, 0)));
    Follow {
        run: spec.id.clone(),
        host: host.clone(),
        from: files.collect(),
        last: None,
        hurry: true,
        patience_s: None,
        once: false,
        attempt: None,
        stop: None,
        samples_us: None,
        steps_by: Vec::new(),
    }
}

/// A rank's variables whatever its kind: the host's, then the run's, then hvtui's.
fn rank_env(
    spec: &RunSpec,
    placement: &Placement,
    ours: &[&Placement],
    facts: Option<&HostFacts>,
) -> BTreeMap<String, String> {
    let mut env = facts.map(|facts| facts.env.clone()).unwrap_or_default();
    env.extend(spec.env.clone());
    let mut set = |key: &str, value: String| env.insert(key.to_owned(), value);
    if spec.options.max_restarts > 0 {
        set("TORCHELASTIC_MAX_RESTARTS", spec.options.max_restarts.to_string());
    }
    let own = sees_own(spec, ours);
    let has_gpu = placement.gpus().next().is_some();
    set("RANK", placement.rank.to_string());
    set("LOCAL_RANK", if own && has_gpu { 0 } else { placement.local_rank }.to_string());
    set("WORLD_SIZE", spec.world().to_string());
    set("LOCAL_WORLD_SIZE", ours.len().to_string());
    set("HVTUI_LOCAL_RANK", placement.local_rank.to_string());
    set("HVTUI_RUN", spec.id.to_string());
    set("HVTUI_HOST", placement.host.to_string());
    set("HVTUI_PLACE", placement.to_string());
    if has_gpu {
        set("CUDA_VISIBLE_DEVICES", visible_gpus(spec, placement, ours));
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    }
    if spec.options.max_restarts > 0 {
        count_restarts(&mut env, 0);
    }
    env
}

/// Tells a rank how often all ranks were started before it.
pub(super) fn count_restarts(env: &mut BTreeMap<String, String>, restarts: u32) {
    for name in ["HVTUI_RESTART", "TORCHELASTIC_RESTART_COUNT"] {
        env.insert(name.to_owned(), restarts.to_string());
    }
}

/// Whether each rank of a host sees its own GPUs alone. CUDA gives a process one MIG slice, whatever the list.
fn sees_own(spec: &RunSpec, ours: &[&Placement]) -> bool {
    let has_slices = || ours.iter().flat_map(|placement| placement.gpus()).any(GpuUuid::is_slice);
    spec.options.gpu_view == GpuView::Own || spec.options.gpus_per_rank > 1 || has_slices()
}

/// The GPUs that a rank sees, by UUID. With several a rank, each rank sees its own: one process owns them all.
fn visible_gpus(spec: &RunSpec, placement: &Placement, ours: &[&Placement]) -> String {
    let own = sees_own(spec, ours);
    let seen: Vec<&str> = if own {
        placement.gpus().map(GpuUuid::as_str).collect()
    } else {
        ours.iter().flat_map(|p| p.gpus()).map(GpuUuid::as_str).collect()
    };
    seen.join(",")
}

/// Tells NCCL and Gloo the interface that the other hosts reach, which they would otherwise guess: by the address that was
/// chosen. Not for what stays within one host, nor where the user or the host has said it.
fn name_interface(share: &mut HostRun, facts: &[HostFacts], rendezvous: &Rendezvous) {
    let Some(found) = interface_of(&share.host, facts, rendezvous) else { return };
    for rank in &mut share.ranks {
        // NCCL takes a name as a prefix unless `=` stands before it.
        for (name, prefix) in [("NCCL_SOCKET_IFNAME", "="), ("GLOO_SOCKET_IFNAME", "")] {
            rank.set_default(name, format!("{prefix}{found}"));
        }
    }
}

/// The interface that holds the address by which a host's ranks are reached; `None` for loopback.
pub(super) fn interface_of<'a>(
    host: &HostId,
    facts: &'a [HostFacts],
    rendezvous: &Rendezvous,
) -> Option<&'a str> {
    let bind = rendezvous.bind.get(host).filter(|bind| !bind.is_loopback())?;
    let mut own = facts.iter().filter(|known| known.id == *host).flat_map(|known| &known.addresses);
    own.find(|one| one.address == *bind).map(|one| one.interface.as_str())
}

fn lease_order(spec: &RunSpec, facts: &[HostFacts]) -> Vec<HostId> {
    let mut order = spec.hosts();
    let machine = |id: &HostId| facts.iter().find(|host| host.id == *id).map(|host| &host.machine);
    order.sort_by(|a, b| (machine(a), a).cmp(&(machine(b), b)));
    order
}

impl From<place::PlaceError> for LaunchError {
    fn from(error: place::PlaceError) -> Self {
        let fault = match &error {
            error if error.is_busy() => LaunchFault::Busy(error.to_string()),
            place::PlaceError::HostAbsent { .. } => LaunchFault::Unreachable,
            _ => LaunchFault::Usage,
        };
        let remedy = error.remedy().map_or_else(String::new, |remedy| format!(": {remedy}"));
        Self::new(fault, format!("{error}{remedy}"))
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
