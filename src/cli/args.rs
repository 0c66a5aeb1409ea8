//! The command line as types, and its help. Knows no command's work.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;

use self::values::{moment, new_name, number, run_name, seconds, whole_seconds};
use super::candidates;
use crate::domain::options::GpuView;
use crate::domain::run::JobKind;
use crate::domain::trace::TraceSpan;

/// One terminal for a GPU cluster that is reached by SSH.
///
/// Without a command it opens the terminal UI: every host's GPUs live, picking, launching, watching a run, and
/// replaying it later. The commands do the same without the UI.
#[derive(Debug, Parser)]
#[command(name = "hvtui", version, max_term_width = 100, after_help = help::TOP, disable_help_subcommand = true)]
pub struct Cli {
    /// Hosts file [default: ./hosts.toml, else hvtui/hosts.toml in your config folder, else this machine alone]
    #[arg(long, global = true, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// Put nothing on a host: without an agent there it is shown and takes no ranks
    #[arg(long, global = true)]
    pub no_install: bool,
    /// The UI only looks: no launch, no stop, no signal. hvtui is still put on the hosts; --no-install leaves that out
    #[arg(long)]
    pub readonly: bool,
    /// What to do; the terminal UI when absent.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show every host's GPUs, without the UI
    #[command(after_help = help::WATCH)]
    Watch(WatchArgs),
    /// Print free GPUs that suit each other
    #[command(after_help = help::PICK)]
    Pick(PickArgs),
    /// Launch a run and stream its output; exits with the run's exit code
    #[command(after_help = help::RUN, override_usage = "hvtui run [OPTIONS] [--] COMMAND [ARG]...")]
    Run(Box<RunArgs>),
    /// List runs, newest first
    #[command(after_help = help::RUNS)]
    Runs(RunsArgs),
    /// Attach to a live run: stream its output until it ends
    #[command(after_help = help::ATTACH)]
    Attach(AttachArgs),
    /// Print what the ranks of a run printed
    #[command(after_help = help::LOGS)]
    Logs(LogsArgs),
    /// Trace the kernels of a live run: some steps of all its ranks, in one file
    #[command(after_help = help::TRACE)]
    Trace(TraceArgs),
    /// Stop a run: TERM, then KILL after a grace period; nothing of it survives
    #[command(after_help = help::STOP)]
    Stop(StopArgs),
    /// Show where every rank of a run is now, to see why it hangs
    #[command(after_help = help::STACKS)]
    Stacks(StacksArgs),
    /// Open the UI on a past run
    #[command(after_help = help::REPLAY)]
    Replay(ReplayArgs),
    /// Open the UI on a cluster that does not exist, to look around: nothing is connected or started
    #[command(after_help = help::DEMO)]
    Demo(DemoArgs),
    /// Say how a run went: where its time goes, and what to look at
    #[command(after_help = help::REPORT)]
    Report(ReportArgs),
    /// Compare two runs; with --fail-if it decides in CI
    #[command(after_help = help::DIFF)]
    Diff(DiffArgs),
    /// Write a run in another program's format
    #[command(after_help = help::EXPORT)]
    Export(ExportArgs),
    /// Make a recording of another program's trace: Horovod's timeline, torch's profiler
    #[command(after_help = help::IMPORT)]
    Import(ImportArgs),
    /// Be one rank of hvtui's own training jobs; alone it is a run of one rank
    #[command(after_help = help::TRAIN)]
    Train(TrainArgs),
    /// Measure what an allreduce costs, and what the network between hosts gives
    #[command(after_help = help::BENCH)]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// List the hosts, try them, or trust a host key
    #[command(after_help = help::HOSTS)]
    Hosts {
        /// What to do with them; `list` when absent.
        #[command(subcommand)]
        command: Option<HostsCommand>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Look at every host for what makes runs fail: a matrix of hosts and checks, with remedies
    #[command(after_help = help::DOCTOR)]
    Doctor(DoctorArgs),
    /// Prove the cluster in a minute: links, allreduces, a training, a container, mpirun; expected and measured
    #[command(after_help = help::SMOKE)]
    Smoke(SmokeArgs),
    /// Build a container image here, or copy one to hosts without a registry
    Image {
        /// What to do with it.
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Print a commented hosts file
    #[command(after_help = help::CONFIG)]
    Config {
        /// What to print.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = help::MAN)]
    Man,
    /// Serve one client on standard input and output
    #[command(hide = true)]
    Agent(AgentArgs),
    /// Own a run's ranks on this host
    #[command(hide = true)]
    Supervise(SuperviseArgs),
    /// Run one rank and write down how it ended
    #[command(hide = true)]
    RankWrap(RankWrapArgs),
    /// Run a launcher that starts the ranks
    #[command(hide = true)]
    LaunchWrap(RunDirArgs),
    /// Do here what a launcher on another host wants done
    #[command(hide = true)]
    NodeWrap(RunDirArgs),
    /// Note what this host and its GPUs do while a run goes on
    #[command(hide = true)]
    SampleHost(SampleHostArgs),
    /// Become the rank that a launcher has started
    #[command(hide = true)]
    RankShim,
    /// Make the doctor's checks in a container
    #[command(hide = true)]
    LookInside(LookInsideArgs),
    /// Take a launcher's command to another host
    #[command(hide = true, disable_help_flag = true)]
    RshAgent(RshAgentArgs),
}

/// `run`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RunArgs {
    /// How many ranks; also written -np N [default: one on every slot asked for, or on every free one]
    #[arg(short = 'n', long = "np", visible_alias = "num-proc", value_parser = number, value_name = "N", help_heading = "Where")]
    pub np: Option<u32>,
    /// Ranks on each host, joined by commas: gpu-a:2,gpu-b:2
    #[arg(short = 'H', long = "host-list", value_name = "HOST:N,..", conflicts_with_all = ["hostfile", "gpus"], help_heading = "Where", add = ArgValueCompleter::new(candidates::hosts))]
    pub host_list: Option<String>,
    /// File with a host a line: `gpu-a slots=2`, `gpu-a:2` or `gpu-a`
    #[arg(long, value_name = "FILE", conflicts_with = "gpus", help_heading = "Where")]
    pub hostfile: Option<PathBuf>,
    /// Exactly these slots, by number or GPU UUID: 'gpu-a:0,1;gpu-b:GPU-3f2a..'; gpu-a: its free ones
    #[arg(long, value_name = "HOST:SLOT,..", help_heading = "Where", add = ArgValueCompleter::new(candidates::hosts))]
    pub gpus: Option<String>,
    /// N ranks on free GPUs that suit each other: of one host and one model where that is possible
    #[arg(long, value_parser = number, value_name = "N", conflicts_with_all = ["np", "host_list", "hostfile", "gpus", "nnodes"], help_heading = "Where")]
    pub free: Option<u32>,
    /// Only GPUs that pass this filter, such as 'model~h200 & temp<60'
    #[arg(long, value_name = "EXPR", requires = "free", help_heading = "Where")]
    pub filter: Option<String>,
    /// Wait until GPUs that somebody has are free, at most so many seconds, then start
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, help_heading = "Where")]
    pub wait: Option<Option<u32>>,
    /// Use GPUs that you have already yourself; never those of others
    #[arg(long, help_heading = "Where")]
    pub share: bool,
    /// Network interface by which the ranks reach each other [default: the one ssh came by]
    #[arg(long, value_name = "IF", help_heading = "Where")]
    pub network_interface: Option<String>,
    /// Ranks on each host, as torchrun's
    #[arg(long, alias = "nproc_per_node", value_parser = number, value_name = "N", conflicts_with_all = ["gpus", "hostfile"], help_heading = "Where")]
    pub nproc_per_node: Option<u32>,
    /// On so many hosts, as torchrun's
    #[arg(long, value_parser = number, value_name = "N", help_heading = "Where")]
    pub nnodes: Option<u32>,
    /// The hosts' ssh port [default: the hosts file's, else ssh's]
    #[arg(short = 'p', long, value_name = "PORT", help_heading = "Where")]
    pub ssh_port: Option<u16>,
    /// The ranks are started by the framework's own launcher: torchrun, horovodrun, mpirun
    #[arg(long, help_heading = "What")]
    pub delegate: bool,
    /// Which GPUs a rank sees [default: all]
    #[arg(long, value_enum, value_name = "VIEW", help_heading = "What")]
    pub gpu_view: Option<View>,
    /// Seconds, or a time such as 2m, within which all ranks must be connected, for kinds that can tell [default: 30 for
    /// horovod]
    #[arg(long, value_parser = whole_seconds, value_name = "S", help_heading = "What")]
    pub start_timeout: Option<u32>,
    /// After a rank has failed start all ranks again, at most so many times; only while this command runs (not after
    /// --detach) [default: 0]
    #[arg(long, alias = "max_restarts", value_parser = number, value_name = "N", help_heading = "What")]
    pub max_restarts: Option<u32>,
    /// Launch this recipe of the hosts file; further options change it
    #[arg(long, value_name = "NAME", conflicts_with = "again", help_heading = "What", add = ArgValueCompleter::new(candidates::recipes))]
    pub recipe: Option<String>,
    /// Launch a past run once more, on the same slots; further options change it
    #[arg(long, value_name = "RUN", value_parser = run_name, help_heading = "What", add = ArgValueCompleter::new(candidates::runs))]
    pub again: Option<String>,
    /// So many GPUs for each rank [default: 1]
    #[arg(long, value_parser = number, value_name = "N", help_heading = "Where")]
    pub gpus_per_rank: Option<u32>,
    /// How the command is started [default: native for `hvtui ..`, a pasted launcher's own, else plain]
    #[arg(long, value_parser = kind_names(), value_name = "KIND", help_heading = "What")]
    pub kind: Option<String>,
    /// A variable for every rank; K alone takes its value from here
    #[arg(long, value_name = "K[=V]", help_heading = "What")]
    pub env: Vec<String>,
    /// A variable for every rank whose value is taken from here, and neither shown nor stored
    #[arg(long, value_name = "K", help_heading = "What")]
    pub secret_env: Vec<String>,
    /// Variables likewise, NAME=value a line, from a file that no other user can read
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub secret_file: Option<PathBuf>,
    /// Directory on the hosts in which ranks start; `.` is the path of the current one [default: the hosts file's, else the
    /// home folder; on this machine the current directory]
    #[arg(long, value_name = "DIR", help_heading = "What")]
    pub workdir: Option<String>,
    /// Start each rank in a container of this image, by docker or podman on its host
    #[arg(long, value_name = "IMG", help_heading = "What")]
    pub image: Option<String>,
    /// A folder or file of the hosts, and its place in the containers, such as `/data:/data` or `~/data:/data:ro`
    #[arg(short = 'v', long = "volume", value_name = "A:B[:ro]", help_heading = "What")]
    pub volumes: Vec<String>,
    /// One more argument of the engine's `run`, such as --container-arg=--shm-size=8g
    #[arg(long = "container-arg", value_name = "ARG", allow_hyphen_values = true, help_heading = "What")]
    pub container_args: Vec<String>,
    /// Copy what changed in this folder to every host before its ranks start, and start them in it; what .gitignore and
    /// .hvtuiignore name stays here [default REMOTE: the same path, from the home folder on]
    #[arg(long, value_name = "DIR[:REMOTE]", help_heading = "What")]
    pub sync: Option<String>,
    /// With --sync: delete on the hosts what an earlier sync brought and is gone here; nothing else
    #[arg(long, help_heading = "What")]
    pub sync_delete: bool,
    /// How much each host keeps of what a rank prints, such as 64M; the oldest goes first [default: the hosts
    /// file's, else 256M]
    #[arg(long, value_name = "SIZE", help_heading = "What")]
    pub spool_cap: Option<String>,
    /// Have a profiler plugin in NCCL (2.27 and newer) tell how long each collective takes on each GPU, and which rank
    /// comes last to them
    #[arg(long, help_heading = "What")]
    pub nccl_timings: bool,
    /// End the run when no client was attached and no rank wrote anything for so long, such as 30m; `off`: never
    /// [default: the hosts file's, else off]
    #[arg(long, value_name = "DURATION", help_heading = "What")]
    pub max_silence: Option<String>,
    /// Whether hvtui's hooks in the ranks' Pythons tell of their steps: on, off, or debug to hear of faults
    /// [default: `HVTUI_PYTHON_HOOKS`, then the hosts file's, else on]
    #[arg(long, value_name = "on|off|debug", help_heading = "What")]
    pub python_hooks: Option<String>,
    /// Let `hvtui trace` ask the ranks' torch (2.7 or newer) for a kernel trace while they run
    #[arg(long, help_heading = "What")]
    pub traceable: bool,
    /// A name for people [default: made from the command]
    #[arg(long, value_parser = new_name, help_heading = "What")]
    pub name: Option<String>,
    /// Write what each rank prints into DIR/rank.N/stdout and stderr on this machine, too
    #[arg(long, value_name = "DIR", conflicts_with = "detach", help_heading = "What")]
    pub output_filename: Option<PathBuf>,
    /// Horovod's timeline, written by rank 0 on its host
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub timeline_filename: Option<String>,
    /// What is activated on each host.
    #[command(flatten)]
    pub environment: EnvironmentArgs,
    /// Print what would run on each host, rank by rank, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Start though a check of the hosts that the run rests on is red; what is ignored is said
    #[arg(long)]
    pub force: bool,
    /// Leave as soon as all ranks run; prints the run's id
    #[arg(long, conflicts_with = "dry_run")]
    pub detach: bool,
    /// Tell of links and processes too
    #[arg(long)]
    pub verbose: bool,
    /// The command and its arguments; one that begins with `hvtui` is hvtui itself, on every host
    #[arg(trailing_var_arg = true, value_name = "COMMAND", add = ArgValueCompleter::new(candidates::files))]
    pub command: Vec<String>,
}

/// The values of `--kind`.
fn kind_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(JobKind::ALL.map(|kind| {
        clap::builder::PossibleValue::new(kind.name()).help(match kind {
            JobKind::Native => "hvtui's own training jobs",
            JobKind::Torch => "PyTorch: what torchrun gives each rank",
            JobKind::Horovod => "Horovod: what horovodrun gives each rank, by Gloo",
            JobKind::Mpi => "an MPI program, by the hosts' mpirun",
            JobKind::Tensorflow => "TensorFlow: a TF_CONFIG for each rank",
            JobKind::Slurm => "by srun, in a Slurm allocation",
            JobKind::Plain => "any command; its environment tells its rank",
        })
    }))
}

/// Reads `--kind`; the parser has checked that it is one.
pub fn kind(name: &str) -> Option<JobKind> {
    JobKind::named(name)
}

/// `--gpu-view`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum View {
    /// All GPUs of the run on its host: `LOCAL_RANK` is the device's index
    #[default]
    All,
    /// Its own alone, with `LOCAL_RANK` 0: for scripts that only say `.cuda()`
    Own,
}

impl From<View> for GpuView {
    fn from(view: View) -> Self {
        match view {
            View::All => Self::All,
            View::Own => Self::Own,
        }
    }
}

/// `attach`.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; or `last` [default: the newest run that goes on]
    #[arg(value_parser = run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub run: Option<String>,
    /// Read all that was printed and is not recorded here; without, a run of which nothing is recorded here begins with the last MiB of each log
    #[arg(long, conflicts_with = "tail")]
    pub whole: bool,
    /// Begin with the last MiB of each log, though the recording here ends before it
    #[arg(long)]
    pub tail: bool,
    /// Tell of links and processes too
    #[arg(long)]
    pub verbose: bool,
}

/// `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; or `last`
    #[arg(value_parser = run_name, default_value = "last", add = ArgValueCompleter::new(candidates::runs))]
    pub run: String,
    /// Only these ranks: 0,3 or 0-2,5
    #[arg(long, visible_alias = "ranks", value_name = "R,..", value_delimiter = ',', value_parser = export::ranks)]
    pub rank: Vec<RangeInclusive<u32>>,
    /// Only what ranks printed on standard error
    #[arg(long)]
    pub stderr: bool,
    /// Only the last N lines, and with --follow those that come
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Go on as long as the run does
    #[arg(short, long)]
    pub follow: bool,
    /// Read all of it from the hosts, also what the recording here lacks
    #[arg(long)]
    pub whole: bool,
}

/// `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The run, launched with --traceable: its id, at least 8 characters from its beginning, or at least 4 from its
    /// end; its name; or `last`
    #[arg(value_parser = run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub run: String,
    /// So many steps of the optimizer
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(TraceSpan::MOST_STEPS)))]
    pub steps: u32,
    /// So long instead, such as 500ms or 2s; for scripts that make no step of a torch optimizer
    #[arg(long = "for", value_name = "TIME", value_parser = trace_time, conflicts_with = "steps")]
    pub time: Option<u32>,
    /// File to write [default: trace-RUN.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Reads a time for a trace, in milliseconds.
fn trace_time(text: &str) -> Result<u32, String> {
    let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 1000),
        _ => return Err("write it as 500ms or 2s".to_owned()),
    };
    let millis = number.trim().parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
    millis.filter(|millis| TraceSpan::Millis(*millis).is_valid()).ok_or_else(|| {
        let (least, most) = (TraceSpan::LEAST_MILLIS, TraceSpan::MOST_MILLIS / 1000);
        format!("a trace takes {least}ms to {most}s")
    })
}

/// `stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; or `last`
    #[arg(value_parser = run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub run: String,
    /// KILL at once instead of TERM and a grace period
    #[arg(long)]
    pub now: bool,
}

/// `stacks`.
#[derive(Debug, Args)]
pub struct StacksArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; or `last` [default: the newest run that goes on]
    #[arg(value_parser = run_name, add = ArgValueCompleter::new(candidates::runs))]
    pub run: Option<String>,
    /// Every thread, not the main one alone
    #[arg(long)]
    pub threads: bool,
    /// One JSON array, an object a process
    #[arg(long)]
    pub json: bool,
}

/// `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The run: its id, at least 8 characters from its beginning, or at least 4 from its end; its name; `last`; or a file: a recording, or what `hvtui import` reads [default: the newest run]
    #[arg(value_parser = run_name, value_name = "RUN|FILE", add = ArgValueCompleter::new(candidates::runs_and_files))]
    pub run: Option<String>,
}

/// `config`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigCommand {
    /// Print a commented hosts file
    Template,
}

/// `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Speak on standard input and output
    #[arg(long, required = true)]
    pub stdio: bool,
    /// What to repeat before the first frame, hexadecimal
    #[arg(long, value_name = "HEX")]
    pub nonce: Option<String>,
}

/// `supervise`.
#[derive(Debug, Args)]
pub struct SuperviseArgs {
    /// The run directory
    #[arg(long)]
    pub dir: PathBuf,
    /// Take over a run that has lost its supervisor
    #[arg(long)]
    pub adopt: bool,
    /// The second of two processes: already detached
    #[arg(long)]
    pub stage2: bool,
}

/// `rank-wrap`.
#[derive(Debug, Args)]
pub struct RankWrapArgs {
    /// The run directory
    #[arg(long)]
    pub dir: PathBuf,
    /// The rank
    #[arg(long)]
    pub rank: u32,
}

/// `launch-wrap` and `node-wrap`.
#[derive(Debug, Args)]
pub struct RunDirArgs {
    /// The run directory
    #[arg(long)]
    pub dir: PathBuf,
}

/// `sample-host`.
#[derive(Debug, Args)]
pub struct SampleHostArgs {
    /// The run directory
    #[arg(long)]
    pub dir: PathBuf,
    /// The process that owns the run
    #[arg(long)]
    pub supervisor: u32,
}

/// `rsh-agent`.
#[derive(Debug, Args)]
pub struct RshAgentArgs {
    /// What ssh would be given: options, a host, a command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Rewrites what is beyond clap, before `--`: horovodrun's and mpirun's `-np N`, a short option of two letters, as `--np N`, and the
/// size behind `--screens`, which may stand alone. What follows `--` belongs to the job.
pub fn horovodrun_spellings(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut told: Vec<OsString> = Vec::new();
    let mut ours = true;
    for arg in help_word(args.into_iter().collect()) {
        ours &= arg != "--";
        let is_export = told.iter().any(|word| word == "export") && told.iter().all(|word| word != "run");
        let is_behind_screens = ours && is_export && told.last().is_some_and(|last| last == "--screens");
        let text = arg.to_str().filter(|_| ours).unwrap_or_default();
        let np = text.strip_prefix("-np").map(|rest| rest.trim_start_matches('='));
        let told_as = match np {
            Some("") if text == "-np" => OsString::from("--np"),
            Some(rest) if rest.parse::<u32>().is_ok() => OsString::from(format!("--np={rest}")),
            _ if is_behind_screens && export::is_meant_as_screen(text) => {
                told.pop();
                OsString::from(format!("--screens={text}"))
            }
            _ => arg,
        };
        told.push(told_as);
    }
    told
}

/// `hvtui help run` is `hvtui run --help`.
fn help_word(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        args.push("--help".into());
    }
    args
}

/// The definition by which a line is read. A negative number is a value in it: what takes the value says what it may be.
pub fn command() -> clap::Command {
    with_negative_numbers(<Cli as clap::CommandFactory>::command())
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes = |arg: clap::Arg| {
        let is_value = arg.get_action().takes_values() && !arg.is_trailing_var_arg_set();
        if is_value { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(takes).mut_subcommands(with_negative_numbers)
}

mod bench;
mod demo;
mod doctor;
mod environment;
mod export;
mod help;
mod image;
mod import;
mod pick;
mod report;
mod runs;
mod train;
mod values;
mod watch;

pub use bench::{AllreduceArgs, BenchCommand, LinkArgs};
pub use demo::DemoArgs;
pub use doctor::{DoctorArgs, LookInsideArgs, SmokeArgs};
pub use environment::EnvironmentArgs;
pub use export::{ExportArgs, SelectionArgs};
pub use image::{ImageBuildArgs, ImageCommand, ImagePushArgs};
pub use import::ImportArgs;
pub use pick::{PickArgs, PickFormat};
pub use report::{DiffArgs, PartArgs, ReportArgs};
pub use runs::{CheckRunsArgs, MarkArgs, PruneArgs, RunsArgs, RunsCommand};
pub use train::{TrainArgs, TrainJob};
pub use watch::{HostsCommand, Prometheus, WatchArgs, WatchForm};

#[cfg(test)]
mod tests;
