//! A plan as text for people: what would run on each host, rank by rank.

use std::borrow::Cow;

use super::plan::LaunchPlan;
use super::remark::warnings_first;
use crate::domain::collectives::are_recorded;
use crate::domain::container::ContainerOptions;
use crate::domain::engine::{Engine, Launcher, Program};
use crate::domain::options::PythonHooks;
use crate::domain::run::{HostRun, JobKind, RankSpec};
use crate::domain::text::sanitize;

/// Variables that get their values when the hosts are ready.
const SET_AT_START: &str = "MASTER_PORT, HVTUI_PEERS, HVTUI_REPORT, HVTUI_SECRET";

/// Those of a run that can be traced, where nothing else sets them.
const SET_TO_TRACE: &str =
    ", KINETO_USE_DAEMON, KINETO_IPC_SOCKET_DIR, KINETO_ONDEMAND_TRACE_DIR, KINETO_CONFIG, KINETO_LOG_LEVEL";

/// Those of a run with GPUs, where nothing else sets them.
const SET_TO_RECORD: &str = ", TORCH_FR_BUFFER_SIZE, TORCH_NCCL_TRACE_BUFFER_SIZE, TORCH_FR_DUMP_TEMP_FILE, \
                             TORCH_NCCL_DEBUG_INFO_TEMP_FILE, TORCH_NCCL_DEBUG_INFO_PIPE_FILE, \
                             TORCH_NCCL_DUMP_ON_TIMEOUT, NCCL_RAS_ADDR";

/// The variable that names the folders in which Python looks for modules, and its hooks' folder before the place is known.
const PYTHONPATH: &str = "PYTHONPATH";
const HOOKS: &str = "<hooks>";
/// What stands for the folder of the hooks, which a host's supervisor makes.
const HOOKS_ARE: &str =
    "<hooks>: the folder of the Python hooks on each host, python/HASH in hvtui's state folder there";

/// The plan in lines: the run, what to know of it, then for each host its ranks with place, directory, variables and command.
pub fn preview(plan: &LaunchPlan) -> Vec<String> {
    let (spec, runs) = (&plan.spec, &plan.hosts);
    // the one host of the plan is where srun is started
    let hosts = match spec.kind {
        JobKind::Slurm => "the hosts that Slurm gives".to_owned(),
        _ => count(runs.len(), "host"),
    };
    let ranks = count(spec.placements.len(), "rank");
    let mut lines = vec![format!("{}: {ranks} on {hosts}, kind {}", sanitize(&spec.name), spec.kind.name())];
    // before the hosts: they may change the mind, and the ranks of many hosts are long
    if !plan.remarks.is_empty() {
        lines.push("to know:".to_owned());
        lines.extend(warnings_first(&plan.remarks).map(|remark| format!("  {}", sanitize(&remark.shown()))));
    }
    lines.extend(copied(plan));
    for run in runs {
        lines.push(format!("{}: {}", run.host, count(run.ranks.len(), "rank")));
        lines.extend(container(run));
        lines.extend(run.environment().words().map(|words| format!("  {}", sanitize(&words))));
        let line = match &run.engine {
            Some(Engine::Launcher(Launcher { program: Program::Argv(argv), .. })) => argv.as_slice(),
            Some(Engine::Launcher(Launcher { program: Program::Mpi(plan), .. })) => &plan.line,
            _ => &[],
        };
        if !line.is_empty() {
            lines.push("  all of them are started by".to_owned());
            lines.extend(command_lines(line));
        }
        for rank in &run.ranks {
            let place = rank.env.get("HVTUI_PLACE").map_or("", String::as_str);
            lines.push(format!("  rank {} on {place}", rank.rank));
            lines.push(format!("    cd {}", rank.cwd.as_deref().map_or("~".into(), sanitize)));
            let has_hooks = run.python_hooks != PythonHooks::Off;
            lines.extend(rank.env.iter().map(|(key, value)| match key.as_str() {
                PYTHONPATH if has_hooks && !value.is_empty() => format!("    {key}={HOOKS}:{}", quote(value)),
                PYTHONPATH if has_hooks => format!("    {key}={HOOKS}"),
                _ => format!("    {key}={}", quote(value)),
            }));
            if has_hooks && !rank.env.contains_key(PYTHONPATH) {
                lines.push(format!("    {PYTHONPATH}={HOOKS}, then what the host sets"));
            }
            let hooks = hook_defaults(rank, run.python_hooks);
            let defaults =
                rank.defaults.iter().map(|(key, value)| (key.as_str(), value.clone())).chain(hooks);
            lines.extend(
                defaults.map(|(key, value)| format!("    {key}={} unless the host sets it", quote(&value))),
            );
            lines.extend(command_lines(&rank.argv));
        }
    }
    if runs.iter().any(|run| run.python_hooks != PythonHooks::Off) {
        lines.push(HOOKS_ARE.to_owned());
    }
    let traced = if runs.iter().any(|run| run.traceable) { SET_TO_TRACE } else { "" };
    let recorder = if are_recorded(spec) { SET_TO_RECORD } else { "" };
    let plugin = if spec.options.nccl_timings { ", NCCL_PROFILER_PLUGIN" } else { "" };
    let cluster = if spec.kind == JobKind::Tensorflow { ", TF_CONFIG, no_grpc_proxy" } else { "" };
    lines.push(format!("set when the hosts are ready: {SET_AT_START}{cluster}{plugin}{recorder}{traced}"));
    lines
}

/// What ranks find around them, in few lines and as far as a form's fields do not show it: the folder that is copied first,
/// containers, what is activated. What is not so on every host is told with its hosts.
pub fn surroundings(plan: &LaunchPlan) -> Vec<String> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for run in &plan.hosts {
        let containers = run.container().map(|options| {
            let further = further_arguments(options).join(" ");
            let with = if further.is_empty() { "" } else { ", with " };
            // the image and the volumes stand in their fields
            format!("each rank in a container, by {}{with}{further}", engine(run, options))
        });
        let activated = run.environment().words().map(|words| sanitize(&words).into_owned());
        for line in containers.into_iter().chain(activated) {
            match said.iter_mut().find(|(known, _)| *known == line) {
                Some((_, hosts)) => hosts.push(run.host.as_str()),
                None => said.push((line, vec![run.host.as_str()])),
            }
        }
    }
    let told = said.into_iter().map(|(line, hosts)| match hosts.as_slice() {
        all if all.len() == plan.hosts.len() => line,
        [first, second, third, _, ..] => {
            format!("{first}, {second}, {third} and {} more: {line}", hosts.len() - 3)
        }
        few => format!("{}: {line}", few.join(", ")),
    });
    copied(plan).into_iter().chain(told).collect()
}

/// The folder that is copied before ranks start.
fn copied(plan: &LaunchPlan) -> Option<String> {
    let sync = plan.spec.options.sync.as_ref()?;
    let delete = if sync.delete { ", deletes what an earlier sync brought and is gone here" } else { "" };
    Some(format!("copied first: {} → {} on each host{delete}", sanitize(&sync.dir), sanitize(&sync.remote)))
}

/// What the ranks of a host are started in.
fn container(run: &HostRun) -> Vec<String> {
    let Some(options) = run.container() else { return Vec::new() };
    let mut lines = vec![format!("  {}", image(run, options))];
    lines.extend(options.volumes.iter().map(|volume| format!("    -v {}", quote(&volume.to_string()))));
    lines.extend(further_arguments(options).into_iter().map(|argument| format!("    {argument}")));
    lines
}

fn image(run: &HostRun, options: &ContainerOptions) -> String {
    format!("each rank in a container of {}, by {}", sanitize(&options.image), engine(run, options))
}

/// The engine of a host, as far as it is known before the host was asked.
fn engine<'a>(run: &HostRun, options: &'a ContainerOptions) -> Cow<'a, str> {
    sanitize(options.engines.get(&run.host).map_or("docker or else podman", String::as_str))
}

/// What the engine is told beside image and volumes.
fn further_arguments(options: &ContainerOptions) -> Vec<String> {
    let user = options.user.iter().map(|user| format!("--user {}", quote(user)));
    let workdir = options.workdir.iter().map(|workdir| format!("-w {}", quote(workdir)));
    let arguments = options.arguments.iter().map(|argument| quote(argument));
    user.chain(workdir).chain(arguments).collect()
}

/// What the hooks are told, where nothing else sets it.
fn hook_defaults(rank: &RankSpec, hooks: PythonHooks) -> Vec<(&'static str, String)> {
    let number = (hooks != PythonHooks::Off).then(|| ("HVTUI_RANK", rank.rank.to_string()));
    let debug = (hooks == PythonHooks::Debug).then(|| ("HVTUI_PYTHON_HOOKS", "debug".to_owned()));
    let both = number.into_iter().chain(debug);
    both.filter(|(name, _)| !rank.env.contains_key(*name)).collect()
}

/// A command as a shell would take it, with its own line ends: a script in it stays readable, and is the same where it is copied, so
/// that only the first line is moved in.
fn command_lines(argv: &[String]) -> Vec<String> {
    let words = argv.iter().map(|word| shlex::try_quote(word).unwrap_or(Cow::Borrowed(word.as_str())));
    let line = format!("    {}", words.collect::<Vec<_>>().join(" ")).replace('\r', "␍");
    line.split('\n').map(|line| sanitize(line).into_owned()).collect()
}

fn quote(word: &str) -> String {
    match shlex::try_quote(word) {
        Ok(quoted) => sanitize(&quoted).into_owned(),
        Err(_) => sanitize(word).into_owned(),
    }
}

fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_in_a_command_keeps_its_line_ends() {
        let lines =
            |argv: &[&str]| command_lines(&argv.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(lines(&["sh", "-c", "a b\nc\rd"]), ["    sh -c 'a b", "c␍d'"]);
        // what is copied from there is the same program
        assert_eq!(lines(&["python", "-c", "if x:\n  y()\nz()"]), ["    python -c 'if x:", "  y()", "z()'"]);
        assert_eq!(lines(&["true"]), ["    true"]);
    }
}
