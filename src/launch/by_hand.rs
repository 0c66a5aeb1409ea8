//! A plan as plain commands that do the same without hvtui: one a rank, and the framework's own launcher where there is
//! one. Pure. What is secret does not show.

use std::collections::BTreeMap;
use std::ops::Range;

use super::own_line::{self, Torchrun};
use super::plan::LaunchPlan;
use crate::domain::ids::HostId;
use crate::domain::options::{GpuView, RankProgram};
use crate::domain::redaction::MASK;
use crate::domain::run::{HostRun, JobKind, RankSpec};
use crate::domain::text::sanitize;

/// Where torch's ranks meet unless something else is said: by hand a port has to be chosen.
const PORT: &str = "29500";

/// What torchrun itself sets for its ranks.
const BY_TORCHRUN: [&str; 16] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
];

/// How ssh reaches a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// Its name or address.
    pub host: String,
    /// The login name, where it is said.
    pub user: Option<String>,
    /// The port, where it is said.
    pub port: Option<u16>,
    /// Further options of `ssh`.
    pub options: Vec<String>,
}

impl Reach {
    /// The arguments of `ssh` that lead there.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            self.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]).collect();
        words.extend(self.options.iter().cloned());
        let user = self.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        words.push(format!("{user}{}", self.host));
        words
    }
}

/// The commands in lines. `reach` says how a host is reached; `None` for this machine.
pub fn by_hand(plan: &LaunchPlan, reach: impl Fn(&HostId) -> Option<Reach>) -> Vec<String> {
    let mut lines = Vec::new();
    // A launcher's own line is started as it is; hvtui's own workers meet by what the client makes at the start.
    if plan.spec.options.delegate.is_some() || plan.spec.kind == JobKind::Native {
        return lines;
    }
    if let Some(why) = not_by_hand(plan) {
        lines.push(format!("(not told as commands by hand: {why})"));
        return lines;
    }
    match plan.spec.kind {
        JobKind::Slurm => lines.push(format!("  {}", srun(plan))),
        JobKind::Mpi => lines.push(format!("  {}", mpirun(plan, &reach))),
        JobKind::Horovod => lines.push(format!("  {}", horovodrun(plan, &reach))),
        _ => {
            for share in &plan.hosts {
                let at = reach(&share.host);
                lines
                    .extend(share.ranks.iter().map(|rank| format!("  {}", there(at.as_ref(), &alone(rank)))));
            }
        }
    }
    lines.insert(0, "the same by hand:".to_owned());
    if plan.spec.kind == JobKind::Torch && all_see_all(plan) {
        lines.push("and by torchrun:".to_owned());
        let nodes = plan.hosts.len();
        for (node, share) in plan.hosts.iter().enumerate() {
            let line = torchrun(plan, share, node, nodes);
            lines.push(format!("  {}", there(reach(&share.host).as_ref(), &line)));
        }
    }
    if lines.iter().any(|line| line.contains(PORT)) {
        lines.push(format!("  ({PORT} stands for a port that is free on the host of rank 0)"));
    }
    if plan.spec.kind == JobKind::Slurm {
        lines.push(
            "  (without RANK, WORLD_SIZE, MASTER_ADDR and the like, which hvtui sets from Slurm's variables)"
                .to_owned(),
        );
    }
    let secret = secrets(plan);
    if !secret.is_empty() {
        lines.push(format!("  (without the secret variables: {})", secret.join(", ")));
    }
    lines
}

/// Why commands by hand would not do the same.
fn not_by_hand(plan: &LaunchPlan) -> Option<&'static str> {
    if plan.spec.options.container.is_some() {
        return Some("hvtui starts each rank in a container of its own");
    }
    let without = "TF_CONFIG names ports that are free on the hosts, which are known at the start alone";
    (plan.spec.kind == JobKind::Tensorflow).then_some(without)
}

/// A line as it is given to a host's shell: through ssh, unless it is this machine.
fn there(at: Option<&Reach>, line: &str) -> String {
    let Some(at) = at else { return line.to_owned() };
    let mut words = vec!["ssh".to_owned()];
    words.extend(at.words().iter().map(|word| quote(word)));
    words.push(quote(line));
    words.join(" ")
}

/// One rank: its directory, its variables, its command.
fn alone(rank: &RankSpec) -> String {
    let port = [("MASTER_PORT".to_owned(), PORT.to_owned())];
    let own = rank.env.iter().filter(|(name, value)| is_shown(name, value));
    let env = own.map(|(name, value)| (name.clone(), value.clone())).chain(port);
    command(rank.cwd.as_deref(), assigned(env).chain(assigned_unless_set(&rank.defaults)), &rank.argv)
}

/// Whether a variable belongs to the command: hvtui's own mean nothing without it.
fn is_shown(name: &str, value: &str) -> bool {
    value != MASK && !name.starts_with("HVTUI_") && name != "MASTER_PORT"
}

/// Variables as a shell takes them.
fn assigned(env: impl Iterator<Item = (String, String)>) -> impl Iterator<Item = String> {
    env.map(|(name, value)| format!("{name}={}", quote(&value)))
}

/// Those that the shell of the host takes unless it has them.
fn assigned_unless_set(defaults: &BTreeMap<String, String>) -> impl Iterator<Item = String> {
    defaults.iter().map(|(name, value)| {
        let value: String = value
            .chars()
            .flat_map(|c| matches!(c, '"' | '$' | '`' | '\\' | '}').then_some('\\').into_iter().chain([c]))
            .collect();
        format!("{name}=\"${{{name}-{value}}}\"")
    })
}

fn command(cwd: Option<&str>, env: impl Iterator<Item = String>, argv: &[String]) -> String {
    let mut words: Vec<String> = env.collect();
    if !words.is_empty() {
        words.insert(0, "env".to_owned());
    }
    words.extend(argv.iter().map(|word| quote(word)));
    format!("cd {} && {}", directory(cwd.unwrap_or("~")), words.join(" "))
}

/// A directory whose `~` the host's shell replaces.
fn directory(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some("") => "~".to_owned(),
        Some(rest) => format!("~/{}", quote(rest)),
        None if path == "~" => path.to_owned(),
        None => quote(path),
    }
}

fn torchrun(plan: &LaunchPlan, share: &HostRun, node: usize, nodes: usize) -> String {
    let options = &plan.spec.options;
    let program: &[&str] = match &options.local_rank_arg {
        // which gives each rank its argument
        Some(_) => &["python", "-m", "torch.distributed.launch"],
        None => &["torchrun"],
    };
    let program: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
    let master = plan.rendezvous.master.to_string();
    let line = Torchrun {
        program: &program,
        ranks: share.ranks.len(),
        node: (node, nodes),
        meet: (nodes > 1).then_some((master.as_str(), Some(PORT))),
        restarts: options.max_restarts,
        options: &[],
        command: &plan.spec.command,
    };
    let first = share.ranks.first();
    let env = first.into_iter().flat_map(|rank| &rank.env);
    let env = env.filter(|(name, value)| is_shown(name, value) && !BY_TORCHRUN.contains(&name.as_str()));
    let env = env.map(|(name, value)| (name.clone(), value.clone()));
    let mut defaults = first.map(|rank| rank.defaults.clone()).unwrap_or_default();
    defaults.retain(|name, _| !BY_TORCHRUN.contains(&name.as_str()));
    command(
        first.and_then(|rank| rank.cwd.as_deref()),
        assigned(env).chain(assigned_unless_set(&defaults)),
        &line.words(),
    )
}

/// Whether each rank sees all GPUs of the run on its host, as torchrun's do.
fn all_see_all(plan: &LaunchPlan) -> bool {
    plan.spec.options.gpu_view == GpuView::All && plan.spec.options.gpus_per_rank <= 1
}

fn horovodrun(plan: &LaunchPlan, reach: &impl Fn(&HostId) -> Option<Reach>) -> String {
    let options = &plan.spec.options;
    let port = plan.hosts.iter().find_map(|share| reach(&share.host)?.port);
    let (hosts, interface) = (named(plan, reach, &(0..plan.spec.world())), options.interface.as_deref());
    let command = &plan.spec.command;
    by_launcher(plan, &own_line::horovodrun(&hosts, port, interface, options.start_timeout_s, command))
}

fn mpirun(plan: &LaunchPlan, reach: &impl Fn(&HostId) -> Option<Reach>) -> String {
    let options = &plan.spec.options;
    // by its name alone Open MPI passes a variable on
    let names = plan.spec.env.iter().filter(|(name, value)| is_shown(name, value)).map(|(name, _)| name);
    let passed: Vec<String> = names.flat_map(|name| ["-x".to_owned(), name.clone()]).collect();
    let mut words = Vec::new();
    let one = [RankProgram { ranks: plan.spec.world(), command: plan.spec.command.clone() }];
    let programs = if options.programs.is_empty() { &one[..] } else { &options.programs };
    let mut first = 0;
    for program in programs {
        let ranks = first..first + program.ranks;
        first = ranks.end;
        let part = own_line::on_hosts("mpirun", &named(plan, reach, &ranks));
        if words.is_empty() {
            words = part;
            words.extend(options.mpi_args.iter().cloned());
        } else {
            words.push(":".to_owned());
            words.extend_from_slice(&part[1..]);
        }
        words.extend(passed.iter().chain(&program.command).cloned());
    }
    by_launcher(plan, &words)
}

fn srun(plan: &LaunchPlan) -> String {
    let mut words = vec!["srun".to_owned()];
    words.extend(plan.spec.options.mpi_args.iter().cloned());
    words.push(format!("--ntasks={}", plan.spec.world()));
    words.extend(plan.spec.command.iter().cloned());
    by_launcher(plan, &words)
}

/// The hosts of these ranks as a person reaches them, each with how many of them it has.
fn named(
    plan: &LaunchPlan,
    reach: &impl Fn(&HostId) -> Option<Reach>,
    ranks: &Range<u32>,
) -> Vec<(String, usize)> {
    let name = |id: &HostId| reach(id).map_or_else(|| "localhost".to_owned(), |at| at.host);
    let of = |share: &HostRun| {
        let count = share.ranks.iter().filter(|rank| ranks.contains(&rank.rank.0)).count();
        (count > 0).then(|| (name(&share.host), count))
    };
    plan.hosts.iter().filter_map(of).collect()
}

/// A launcher's line, which is given where its first rank runs.
fn by_launcher(plan: &LaunchPlan, words: &[String]) -> String {
    let spec = &plan.spec;
    let env = spec.env.iter().filter(|(name, value)| is_shown(name, value));
    let env = env.map(|(name, value)| (name.clone(), value.clone()));
    let cwd = plan.hosts.first().and_then(|share| share.ranks.first()).and_then(|rank| rank.cwd.as_deref());
    command(cwd, assigned(env), words)
}

fn secrets(plan: &LaunchPlan) -> Vec<String> {
    let ranks = plan.hosts.iter().flat_map(|share| &share.ranks);
    let mut names: Vec<String> = ranks
        .flat_map(|rank| &rank.env)
        .filter(|(_, value)| *value == MASK)
        .map(|(name, _)| name.clone())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A word for a POSIX shell, without a character that a terminal would obey or hide.
fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            '\n' | '\t' => quoted.push(c),
            c if is_shown_as_it_is(c) => quoted.push(c),
            c => {
                let mut bytes = [0; 4];
                let octal = c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}"));
                quoted.push_str("'\"$(printf '");
                quoted.extend(octal);
                quoted.push_str("')\"'");
            }
        }
    }
    quoted.push('\'');
    quoted
}

fn is_shown_as_it_is(c: char) -> bool {
    let mut bytes = [0; 4];
    let text: &str = c.encode_utf8(&mut bytes);
    sanitize(text) == text
}

#[cfg(test)]
#[path = "by_hand_tests.rs"]
mod tests;
