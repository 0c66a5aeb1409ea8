//! What a pasted line says, as plain data. Must not know how a line is read or what becomes of it.

use std::collections::BTreeSet;

use crate::domain::environment::EnvironmentPlan;
use crate::domain::options::{GpuView, RankProgram, TaskRole};
use crate::domain::run::JobKind;
use crate::launch::words::Caret;

/// The program that the line would have started its ranks with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Launcher {
    /// `horovodrun`.
    Horovodrun,
    /// `mpirun`, `mpiexec`, `orterun`, `prterun` of any MPI.
    Mpirun,
    /// `torchrun` or `python -m torch.distributed.run`.
    Torchrun,
    /// `python -m torch.distributed.launch`.
    TorchLaunch {
        /// `--use_env`: scripts get no `--local_rank` argument.
        use_env: bool,
        /// The line uses an option's spelling with dashes, which PyTorch knows from 2.0 on: its argument is
        /// `--local-rank=N`. Otherwise the version decides, and `--local_rank=N` is the older one.
        dashes: bool,
    },
    /// `TF_CONFIG='…' python …`.
    TfConfig,
    /// `srun`.
    Srun,
    /// A command with variables before it.
    #[default]
    Plain,
    /// `watch -n 10 nvidia-smi`, or `nvidia-smi -l 10`: the equal is `hvtui watch`.
    Watch {
        /// Between two looks.
        every_ms: u64,
    },
    /// `horovodrun --check-build`: to be executed once on a host, not once a slot.
    CheckBuild,
    /// Asks a launcher something, such as `mpirun --version`, and starts no job: once on a host.
    Query,
    /// `ssh-keygen` or `ssh-copy-id`: the equal is `hvtui hosts mesh`.
    Mesh,
}

/// One host of `-H`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSlots {
    /// Name or address as written, an IPv6 address without its brackets.
    pub host: String,
    /// The user of `user@host`.
    pub user: Option<String>,
    /// Ranks that fit; `None` where the line does not say.
    pub slots: Option<u32>,
}

/// How many ranks a host gets from torchrun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerNode {
    /// That many.
    Ranks(u32),
    /// One a GPU: `gpu`.
    Gpus,
    /// One a CPU: `cpu`.
    Cpus,
    /// One a GPU, and where there is none one a CPU: `auto`.
    Auto,
}

/// One task of `TF_CONFIG`'s cluster; chief, workers, parameter servers and evaluator in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What it does.
    pub role: TaskRole,
    /// Name or address as written.
    pub host: String,
    /// The port that it listens on.
    pub port: u16,
}

/// Who knows what ranks a line starts, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KnownTo {
    /// The line says it.
    #[default]
    Everyone,
    /// Its launcher alone: nothing but the line itself can be executed.
    Launcher,
}

/// A `docker run`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// `docker`, `podman`, `nvidia-docker`, as typed.
    pub engine: String,
    /// The image.
    pub image: String,
    /// `-v` and `--volume`, as written.
    pub volumes: Vec<String>,
    /// `--gpus`, as written.
    pub gpus: Option<String>,
    /// `-e K=V`.
    pub env: Vec<(String, String)>,
    /// `-e K`.
    pub env_from_here: Vec<String>,
    /// `-w`.
    pub workdir: Option<String>,
    /// `--network`.
    pub network: Option<String>,
    /// `-u`.
    pub user: Option<String>,
    /// `--name`.
    pub name: Option<String>,
    /// The other options, as written, each with its values.
    pub others: Vec<Vec<String>>,
    /// What is started inside, its launcher included.
    pub command: Vec<String>,
}

/// What a line says. Fields that the line says nothing about are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pasted {
    /// What would have started the ranks.
    pub launcher: Launcher,
    /// How the ranks find each other.
    pub kind: JobKind,
    /// The line itself without variables, `nohup`, `time` and a prompt before it: what is executed where the
    /// line is delegated, as one process.
    pub argv: Vec<String>,
    /// The job's own program and arguments, interpreter included.
    pub command: Vec<String>,
    /// Where in `command` the script or module stands that torch.distributed.launch puts `--local_rank` behind.
    pub script: Option<usize>,
    /// Ranks.
    pub np: Option<u32>,
    /// `-H`, in order, each host once.
    pub hosts: Vec<HostSlots>,
    /// The file of `--hostfile`.
    pub hostfile: Option<String>,
    /// More ranks than slots are meant.
    pub oversubscribe: bool,
    /// Ranks a host.
    pub per_node: Option<PerNode>,
    /// Hosts.
    pub nodes: Option<u32>,
    /// This host's number, with torchrun.
    pub node_rank: Option<u32>,
    /// Where torch's ranks meet.
    pub master_addr: Option<String>,
    /// Its port.
    pub master_port: Option<u16>,
    /// Variables of the ranks, Horovod's tunables included (not its timeline), each name once.
    pub env: Vec<(String, String)>,
    /// Variables whose values are taken from here (`-x K`); a name may end in `*` (Open MPI 5).
    pub env_from_here: Vec<String>,
    /// `CUDA_VISIBLE_DEVICES`, which is not in `env`; empty where the line hides each GPU.
    pub gpu_mask: Option<Vec<String>>,
    /// `--virtual-local-rank`: each rank sees its own GPU alone.
    pub gpu_view: GpuView,
    /// Interfaces, or networks as CIDR, to be used.
    pub interfaces: Vec<String>,
    /// Interfaces, or networks as CIDR, not to be used.
    pub exclude_interfaces: Vec<String>,
    /// The port of each host's sshd.
    pub ssh_port: Option<u16>,
    /// The file of the private key.
    pub identity: Option<String>,
    /// For all ranks to be connected.
    pub start_timeout_s: Option<u32>,
    /// A folder for the output of each rank.
    pub output_filename: Option<String>,
    /// The file of Horovod's timeline.
    pub timeline: Option<String>,
    /// More words about the start.
    pub verbose: bool,
    /// Starts after a failure.
    pub max_restarts: Option<u32>,
    /// Open MPI's parameters, in order, `plm_rsh_args` as far as it is not told by other fields.
    pub mca: Vec<(String, String)>,
    /// `--bind-to`.
    pub bind_to: Option<String>,
    /// `--map-by`.
    pub map_by: Option<String>,
    /// `python -m`: the command runs a module.
    pub module: bool,
    /// Where the command is started.
    pub workdir: Option<String>,
    /// What is activated before it.
    pub environment: EnvironmentPlan,
    /// mpirun's `--prefix`, or what the path of mpirun implies.
    pub prefix: Option<String>,
    /// Options that the kind's own launcher gets as they are: srun's of the allocation, mpirun's reports.
    pub pass: Vec<String>,
    /// The tasks of `TF_CONFIG`.
    pub cluster: Vec<Task>,
    /// The programs of mpirun's line, where they are several.
    pub programs: Vec<RankProgram>,
    /// The container that all of it is started in.
    pub container: Option<Container>,
    /// Options whose meaning is not kept, each with its value. Where there is one, the line's own launcher starts the
    /// ranks.
    pub not_understood: Vec<String>,
    /// The same as words, for a launcher whose line is written anew.
    pub not_understood_words: Vec<String>,
    /// An option that is likely written wrongly: it is among those that are not understood.
    pub misspelt: Option<Caret>,
    /// Who knows what ranks there are.
    pub known_to: KnownTo,
    /// What the line would have done wrong and what has no effect here, one sentence each.
    pub remarks: Vec<String>,
    /// What of it may not be what was meant, a sentence each.
    pub warnings: Vec<String>,
    /// What of the shell's line has no part in a run, one sentence each.
    pub left_out: Vec<String>,
}

impl Default for Pasted {
    fn default() -> Self {
        Self {
            launcher: Launcher::default(),
            kind: JobKind::Plain,
            argv: Vec::new(),
            command: Vec::new(),
            script: None,
            np: None,
            hosts: Vec::new(),
            hostfile: None,
            oversubscribe: false,
            per_node: None,
            nodes: None,
            node_rank: None,
            master_addr: None,
            master_port: None,
            env: Vec::new(),
            env_from_here: Vec::new(),
            gpu_mask: None,
            gpu_view: GpuView::default(),
            interfaces: Vec::new(),
            exclude_interfaces: Vec::new(),
            ssh_port: None,
            identity: None,
            start_timeout_s: None,
            output_filename: None,
            timeline: None,
            verbose: false,
            max_restarts: None,
            mca: Vec::new(),
            bind_to: None,
            map_by: None,
            module: false,
            workdir: None,
            environment: EnvironmentPlan::default(),
            prefix: None,
            pass: Vec::new(),
            cluster: Vec::new(),
            programs: Vec::new(),
            container: None,
            not_understood: Vec::new(),
            not_understood_words: Vec::new(),
            misspelt: None,
            known_to: KnownTo::default(),
            remarks: Vec::new(),
            warnings: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

impl Pasted {
    /// Whether the line has to be given to its own launcher as it is.
    pub fn is_delegated(&self) -> bool {
        !self.not_understood.is_empty()
    }

    /// The line with each `NAME*` of Open MPI's `-x` replaced by those of this process's variables that it means.
    #[must_use]
    pub fn with_names<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Self {
        let mut line = self.clone();
        if !line.env_from_here.iter().any(|name| name.ends_with('*')) {
            return line;
        }
        let names: BTreeSet<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let meant = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => {
                let found: Vec<String> =
                    names.iter().filter(|name| name.starts_with(start)).cloned().collect();
                if found.is_empty() { vec![wanted.clone()] } else { found }
            }
            None => vec![wanted.clone()],
        };
        line.env_from_here = self.env_from_here.iter().flat_map(meant).collect();
        line
    }

    /// Sets a variable; a name that is set already gets the new value.
    pub(super) fn set_env(&mut self, key: &str, value: impl Into<String>) {
        let value = value.into();
        if key == "CUDA_VISIBLE_DEVICES" {
            // CUDA shows what stands before the first one that is none
            let list = value.split(',').map(str::trim).take_while(|gpu| *gpu != "-1");
            self.gpu_mask = Some(list.filter(|gpu| !gpu.is_empty()).map(str::to_owned).collect());
            return;
        }
        self.env_from_here.retain(|name| name != key);
        match self.env.iter_mut().find(|(name, _)| name == key) {
            Some(entry) => entry.1 = value,
            None => self.env.push((key.to_owned(), value)),
        }
    }

    pub(super) fn get_env(&self, key: &str) -> Option<&str> {
        self.env.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether it names a host that is certainly another machine.
    pub(super) fn has_remote_hosts(&self) -> bool {
        self.hosts.iter().any(|host| !matches!(host.host.as_str(), "localhost" | "127.0.0.1" | "::1"))
    }
}
