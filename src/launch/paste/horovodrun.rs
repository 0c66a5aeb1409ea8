//! `horovodrun`: its options, and what it does otherwise than the line reads.

use crate::domain::run::JobKind;
use crate::launch::words::{Caret, Line};

use super::common;
use super::draft::{Draft, add};
use super::mpirun;
use super::options::Does::{Delegate, Env, Leave, Mark, NoEffect, Try};
use super::options::{Allows, Given, Row, Style, Unit, read as read_options, row};
use super::pasted::Launcher;

const STYLE: Style = Style { program: "horovodrun", allows: &[Allows::Abbreviations, Allows::Glued] };

const STAMPS: &str = "hvtui records when each line was written";

static OPTIONS: &[Row] = &[
    row("-h --help -v --version", 0, Mark(common::ask)),
    row("-np --num-proc", 1, Try(common::np)),
    row("-cb --check-build", 0, Mark(|draft, _| draft.check_build = true)),
    row("--disable-cache", 0, NoEffect("hvtui checks hosts and interfaces at each start and caches nothing")),
    row("--start-timeout", 1, Try(common::start_timeout)),
    row("--network-interfaces", 1, Try(common::interfaces)),
    row("--network-interface", 1, Try(common::interfaces)),
    row("--output-filename", 1, Try(common::output_filename)),
    row("--verbose", 0, Mark(common::verbose)),
    row("--config-file", 1, Delegate),
    row("-p --ssh-port", 1, Try(common::ssh_port)),
    row("-i --ssh-identity-file", 1, Try(common::identity)),
    row("--fusion-threshold-mb", 1, Env("HOROVOD_FUSION_THRESHOLD", Unit::Mebibytes)),
    row("--cycle-time-ms", 1, Env("HOROVOD_CYCLE_TIME", Unit::Decimal)),
    row("--cache-capacity", 1, Env("HOROVOD_CACHE_CAPACITY", Unit::Count)),
    row("--hierarchical-allreduce", 0, Env("HOROVOD_HIERARCHICAL_ALLREDUCE", Unit::On)),
    row("--no-hierarchical-allreduce", 0, Env("HOROVOD_HIERARCHICAL_ALLREDUCE", Unit::Off)),
    row("--hierarchical-allgather", 0, Env("HOROVOD_HIERARCHICAL_ALLGATHER", Unit::On)),
    row("--no-hierarchical-allgather", 0, Env("HOROVOD_HIERARCHICAL_ALLGATHER", Unit::Off)),
    row("--torus-allreduce", 0, Env("HOROVOD_TORUS_ALLREDUCE", Unit::On)),
    row("--no-torus-allreduce", 0, Env("HOROVOD_TORUS_ALLREDUCE", Unit::Off)),
    row("--autotune", 0, Env("HOROVOD_AUTOTUNE", Unit::On)),
    row("--no-autotune", 0, Env("HOROVOD_AUTOTUNE", Unit::Off)),
    row("--autotune-log-file", 1, Env("HOROVOD_AUTOTUNE_LOG", Unit::Text)),
    row("--autotune-warmup-samples", 1, Env("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", Unit::Count)),
    row("--autotune-steps-per-sample", 1, Env("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", Unit::Count)),
    row("--autotune-bayes-opt-max-samples", 1, Env("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", Unit::Count)),
    row(
        "--autotune-gaussian-process-noise",
        1,
        Env("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", Unit::Decimal),
    ),
    row("--min-np --min-num-proc", 1, Delegate),
    row("--max-np --max-num-proc", 1, Delegate),
    row("--slots-per-host", 1, Delegate),
    row("--elastic-timeout", 1, Delegate),
    row("--reset-limit", 1, Delegate),
    row("--blacklist-cooldown-range", 2, Delegate),
    row("--host-discovery-script", 1, Leave),
    row("--timeline-filename", 1, Try(common::timeline)),
    row("--timeline-mark-cycles", 0, Env(MARK_CYCLES, Unit::On)),
    row("--no-timeline-mark-cycles", 0, Env(MARK_CYCLES, Unit::Off)),
    row("--no-stall-check", 0, Env("HOROVOD_STALL_CHECK_DISABLE", Unit::On)),
    row("--stall-check", 0, Env("HOROVOD_STALL_CHECK_DISABLE", Unit::Off)),
    row("--stall-check-warning-time-seconds", 1, Env("HOROVOD_STALL_CHECK_TIME_SECONDS", Unit::Count)),
    row("--stall-check-shutdown-time-seconds", 1, Env("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", Unit::Count)),
    row("--mpi-threads-disable", 0, Env("HOROVOD_MPI_THREADS_DISABLE", Unit::On)),
    row("--no-mpi-threads-disable", 0, Env("HOROVOD_MPI_THREADS_DISABLE", Unit::Off)),
    row("--mpi-args", 1, Try(mpi_args)),
    row("--binding-args", 1, Try(mpi_args)),
    row("--tcp", 0, Env("NCCL_IB_DISABLE", Unit::On)),
    row("--num-nccl-streams", 1, Env("HOROVOD_NUM_NCCL_STREAMS", Unit::Count)),
    row("--thread-affinity", 1, Env("HOROVOD_THREAD_AFFINITY", Unit::Text)),
    row("--gloo-timeout-seconds", 1, Env("HOROVOD_GLOO_TIMEOUT_SECONDS", Unit::Count)),
    row("--log-level", 1, Try(log_level)),
    row("--log-with-timestamp --no-log-hide-timestamp", 0, Env("HOROVOD_LOG_HIDE_TIME", Unit::Off)),
    row("--log-without-timestamp --log-hide-timestamp", 0, Env("HOROVOD_LOG_HIDE_TIME", Unit::On)),
    row("-prefix-timestamp --prefix-output-with-timestamp", 0, NoEffect(STAMPS)),
    row("-H --hosts", 1, Try(common::hosts)),
    row("-hostfile --hostfile", 1, Try(common::hostfile)),
    row("--gloo", 0, Try(|draft, given| controller(draft, given, JobKind::Horovod))),
    row("--mpi", 0, Try(|draft, given| controller(draft, given, JobKind::Mpi))),
    row("--jsrun", 0, Leave),
];

const MARK_CYCLES: &str = "HOROVOD_TIMELINE_MARK_CYCLES";

/// Reads the line whose first option is the word `at`.
pub(super) fn read(draft: &mut Draft<'_>, at: usize) -> Result<(), Caret> {
    let command = read_options(draft, OPTIONS, STYLE, at)?;
    draft.pasted.launcher = Launcher::Horovodrun;
    if draft.check_build || draft.query {
        let launcher = if draft.check_build { Launcher::CheckBuild } else { Launcher::Query };
        draft.pasted.launcher = launcher;
        draft.pasted.kind = JobKind::Plain;
        draft.pasted.command = draft.pasted.argv.clone();
        return Ok(());
    }
    draft.check_hosts(command)?;
    draft.take_command(command)?;
    if draft.pasted.kind == JobKind::Mpi {
        as_mpirun(draft);
    } else {
        draft.pasted.kind = JobKind::Horovod;
    }
    drop_inert(draft);
    remarks(draft);
    Ok(())
}

fn controller(draft: &mut Draft<'_>, given: &Given<'_>, kind: JobKind) -> Result<(), Caret> {
    // `Plain` is the kind that no option has chosen yet.
    if draft.pasted.kind != JobKind::Plain && draft.pasted.kind != kind {
        let text = "`--gloo` and MPI together: give one of them";
        return Err(draft.line.caret(given.span.clone(), text));
    }
    draft.pasted.kind = kind;
    Ok(())
}

/// `--mpi-args` and `--binding-args` hold options of mpirun: they say that MPI is meant.
fn mpi_args(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    if draft.pasted.kind == JobKind::Horovod {
        draft.no_effect(given, "it is meant for MPI, and `--gloo` is given");
        return Ok(());
    }
    draft.pasted.kind = JobKind::Mpi;
    let inner = Line::typed(given.text())?;
    let mut options = Draft::new(&inner);
    let rest = mpirun::options(&mut options, 0)?;
    draft.pasted.not_understood.append(&mut options.pasted.not_understood);
    draft.pasted.not_understood.extend(options.texts(rest));
    for remark in std::mem::take(&mut options.pasted.remarks) {
        draft.remark(remark);
    }
    for warning in std::mem::take(&mut options.pasted.warnings) {
        draft.warn(warning);
    }
    let from = options.pasted;
    let to = &mut draft.pasted;
    to.mca.extend(from.mca);
    to.pass.extend(from.pass);
    to.env_from_here.extend(from.env_from_here);
    for (key, value) in from.env {
        to.set_env(&key, value);
    }
    from.interfaces.iter().for_each(|name| add(&mut to.interfaces, name));
    from.exclude_interfaces.iter().for_each(|name| add(&mut to.exclude_interfaces, name));
    to.oversubscribe |= from.oversubscribe;
    to.bind_to = from.bind_to.or(to.bind_to.take());
    to.map_by = from.map_by.or(to.map_by.take());
    to.prefix = from.prefix.or(to.prefix.take());
    to.workdir = from.workdir.or(to.workdir.take());
    // What decides about ranks and hosts belongs to horovodrun's own options.
    let placed = from.np.is_some() || !from.hosts.is_empty() || from.hostfile.is_some();
    if placed || from.per_node.is_some() || from.ssh_port.is_some() || from.identity.is_some() {
        draft.delegate(given);
    }
    Ok(())
}

fn log_level(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let levels = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"];
    if !levels.contains(&given.text()) {
        let text = format!("`{}` takes one of {}", given.typed, levels.join(", "));
        return Err(draft.line.caret(given.place(), text));
    }
    draft.pasted.set_env("HOROVOD_LOG_LEVEL", given.text());
    Ok(())
}

/// What horovodrun gives to mpirun by itself.
fn as_mpirun(draft: &mut Draft<'_>) {
    let pasted = &mut draft.pasted;
    let mut defaults = vec![("pml", "ob1".to_owned()), ("btl", "^openib".to_owned())];
    if !pasted.interfaces.is_empty() {
        let list = pasted.interfaces.join(",");
        defaults.push(("btl_tcp_if_include", list.clone()));
        if pasted.get_env("NCCL_SOCKET_IFNAME").is_none() {
            pasted.set_env("NCCL_SOCKET_IFNAME", list);
        }
    }
    for (key, value) in defaults {
        if !pasted.mca.iter().any(|(name, _)| name == key) {
            pasted.mca.push((key.to_owned(), value));
        }
    }
    if pasted.bind_to.is_none() && pasted.map_by.is_none() {
        pasted.bind_to = Some("none".to_owned());
        pasted.map_by = Some("slot".to_owned());
    }
}

/// Options that horovodrun hands on only together with another.
fn drop_inert(draft: &mut Draft<'_>) {
    let has = |draft: &Draft<'_>, key: &str| draft.pasted.get_env(key) == Some("1");
    let tuned = has(draft, "HOROVOD_AUTOTUNE");
    let drawn = draft.pasted.timeline.is_some();
    let inert: Vec<(String, String)> = draft
        .pasted
        .env
        .iter()
        .filter(|(key, _)| {
            !draft.leading.contains(key)
                && (!tuned && key.starts_with("HOROVOD_AUTOTUNE_") || !drawn && key == MARK_CYCLES)
        })
        .cloned()
        .collect();
    for (key, value) in inert {
        draft.pasted.env.retain(|(name, _)| *name != key);
        let needed = if key == MARK_CYCLES { "--timeline-filename" } else { "--autotune" };
        draft.remark(format!("`{key}={value}` has no effect without `{needed}`."));
    }
}

fn remarks(draft: &mut Draft<'_>) {
    let pasted = &draft.pasted;
    let gloo = pasted.kind == JobKind::Horovod;
    let slots: u32 = pasted.hosts.iter().filter_map(|host| host.slots).fold(0, u32::saturating_add);
    let np = pasted.np.unwrap_or(slots);
    let remote = pasted.has_remote_hosts();
    let several = pasted.hosts.len() > 1;
    let nics = pasted.interfaces.clone();
    let mut said = Vec::new();
    if pasted.np.is_none() {
        said.push("horovodrun refuses a line without `-np`; hvtui starts one rank for each slot.".to_owned());
    }
    if gloo && np < slots {
        said.push(format!(
            "horovodrun's Gloo controller starts {slots} ranks, one for each slot of `-H`; hvtui starts {np}."
        ));
    }
    if let Some(host) = pasted
        .hosts
        .iter()
        .find(|host| host.slots.is_none() || host.user.is_some() || host.host.contains(':'))
    {
        said.push(format!(
            "horovodrun refuses `{}` in `-H`: it takes neither a user, nor an IPv6 address, nor a host without `:slots`.",
            host.host
        ));
    }
    if pasted.gpu_mask.is_some() && (remote || pasted.hostfile.is_some()) {
        said.push(
            "horovodrun does not hand CUDA_VISIBLE_DEVICES to other hosts; under hvtui it holds on each host."
                .to_owned(),
        );
    }
    if gloo && pasted.output_filename.is_some() && np == 1 {
        said.push(
            "horovodrun fails with `math domain error` at `--output-filename` with one rank.".to_owned(),
        );
    }
    if gloo && nics.len() > 1 {
        said.push(format!("horovodrun gives only one of {} to Gloo.", nics.join(", ")));
    }
    if several && !nics.is_empty() {
        said.push(format!(
            "horovodrun needs an interface named {} on each host; hvtui asks each host before it starts.",
            nics.join(" or ")
        ));
    }
    if remote && several {
        said.push(
            "horovodrun writes the whole environment on ssh's command line, readable by other users; hvtui does not."
                .to_owned(),
        );
    }
    for text in said {
        draft.remark(text);
    }
}
