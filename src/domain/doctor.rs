//! What the doctor has found: a verdict for each host and check. Pure; how a check looks is not its business.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use self::words::{Group, glyph, groups, names, troubles};
use super::clock_fit::ClockFit;
use super::container::ContainerOptions;
use super::environment::EnvironmentPlan;
use super::gpu::event::GpuEvents;
use super::ids::{GpuUuid, HostId};
use super::preflight::Mark;
use super::time::Stamp;
use super::units::counted;

/// The name of the row that tells which hosts are reached: no host looks at that.
pub const CONNECTION: &str = "ssh";

/// Another host, as one that is looked at may reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub host: HostId,
    /// What `hostname` says there: a launcher that is given it looks it up on the other hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// By which addresses.
    pub addresses: Vec<IpAddr>,
    /// The login name there, where the hosts file says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The port of its ssh as other hosts reach it: what it tells itself, else what the hosts file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// A port on which it listens just now, so that others can try it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<u16>,
    /// The ports that a launch takes there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}

/// A port that a launch takes on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPort {
    /// Its number.
    pub port: u16,
    /// What says so: `--master-port`, `TF_CONFIG's worker 0`.
    pub whose: String,
}

/// What a host tells of itself before others try to reach it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    /// The port on which it listens for them for some seconds.
    pub port: Option<u16>,
    /// The port at which its sshd took the connection that it was asked over. Behind a gateway that forwards ports it is not the
    /// hosts file's.
    pub ssh_port: Option<u16>,
}

/// What is known of a host without asking it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostContext {
    /// The login name there, where the hosts file says one.
    pub user: Option<String>,
    /// The port of its ssh, where the hosts file says one.
    pub port: Option<u16>,
    /// The arguments with which a person's ssh reaches it; `None` for this machine.
    pub ssh: Option<Vec<String>>,
    /// Those variables that a launch gives its ranks there and that checks judge ([`super::needs::INTERFACES`]).
    pub given: BTreeMap<String, String>,
    /// The GPUs that a launch would use there, where one is looked for.
    pub uses: Option<BTreeSet<GpuUuid>>,
    /// By what the ranks of a launch by Horovod agree: `gloo` or `mpi`, where that is known.
    pub controller: Option<&'static str>,
    /// The ports that a launch takes there.
    pub ports: Vec<RunPort>,
    /// Where the link's pings place its clock.
    pub clock: ClockFit,
    /// What is known to have happened to its GPUs, and the moment it is; `None` where that is not followed.
    pub happened: Option<(GpuEvents, Stamp)>,
    /// The container engine that the hosts file names.
    pub engine: Option<String>,
    /// The working directory that it names; of a launch its own.
    pub workdir: Option<String>,
}

/// The program of a launch as its ranks find it on a host, and what it may import where it is a Python.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunProgram {
    /// The program that they execute: a Python, what one executes, such as torchrun, or any other that mpirun starts.
    pub program: String,
    /// What is activated first.
    #[serde(default)]
    pub environment: EnvironmentPlan,
    /// Those variables of the launch that may lead to other programs and libraries, or change what an import does.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Their working directory; the home directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Modules: those that the script imports are tried.
    pub imports: Vec<String>,
    /// The script where it stands in the command: `-c 'import torch'`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The module that is executed: `-m train.main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The launcher of MPI that starts them, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpirun: Option<String>,
}

/// What a launch starts in its containers, as far as it is looked for there before the ranks get theirs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInside {
    /// What makes a container of the image that of a rank.
    pub container: ContainerOptions,
    /// The variables that each of its ranks there is given alike, but for secret ones: an entry point may go by them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working directory of its ranks there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What they start; absent where it may come from elsewhere than what such a container shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Started>,
}

/// A Python, or a launcher that is one, that ranks start in their containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The image, as the launch names it.
    pub image: String,
    /// The name of the program.
    pub program: String,
    /// The script that it executes, as the command names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The module that it executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Modules that must be there: of a script or module those that it surely imports. The text of one that is known stands nowhere
    /// here: all of this is on the command line of a container's engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<String>,
}

/// A file or folder of a host that others should have alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamePath {
    /// Where it lies there; `~/` begins in the home folder.
    pub path: String,
    /// Why it is compared.
    pub role: SameRole,
}

/// Why a file or folder should be the same on all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SameRole {
    /// A person wants it compared: all that is in it.
    Asked,
    /// The ranks of a run execute it.
    Script,
    /// A run may read it, or write it on one host alone. Of a folder the code counts.
    Beside,
}

/// How a check came out on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Green, yellow, red, or not told.
    pub mark: Mark,
    /// What was seen, in words.
    pub evidence: String,
    /// What goes wrong because of it; absent where nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What helps: a command, or what to change. It is never run unasked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// The remedy as a single command, where it is one.
    #[serde(skip)]
    pub fix: Option<Fix>,
    /// Of a red one: whether a run may succeed all the same, so that no launch is kept from starting for it.
    #[serde(skip)]
    pub may_run: bool,
    /// What was seen without the figures that move all the time; absent where there are none. Two looks are compared by it.
    #[serde(skip)]
    pub lasting: Option<String>,
}

/// A command that helps. It is run for a person who has seen and wanted it alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// In a shell on the host.
    There(String),
    /// In a shell on another host, which is in the way of this one.
    On(HostId, String),
    /// One of hvtui's own here, for all hosts: its words.
    Here(Vec<String>),
}

impl Fix {
    /// The command as a person types it, on the host that it is for.
    pub fn command(&self) -> String {
        match self {
            Self::There(command) | Self::On(_, command) => command.clone(),
            Self::Here(words) => format!("hvtui {}", words.join(" ")),
        }
    }

    /// Where it is typed, for a verdict on `host`; `None` for this machine.
    pub fn place<'a>(&'a self, host: &'a HostId) -> Option<&'a HostId> {
        match self {
            Self::There(_) => Some(host),
            Self::On(other, _) => Some(other),
            Self::Here(_) => None,
        }
    }
}

impl Verdict {
    /// It is as it should be.
    pub fn good(evidence: impl Into<String>) -> Self {
        Self {
            mark: Mark::Good,
            evidence: evidence.into(),
            cause: None,
            remedy: None,
            fix: None,
            may_run: false,
            lasting: None,
        }
    }

    /// It says nothing here, or could not be looked at.
    pub fn unknown(evidence: impl Into<String>) -> Self {
        Self { mark: Mark::Unknown, ..Self::good(evidence) }
    }

    /// A run may fail for it.
    pub fn look(evidence: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (cause, remedy) = (Some(cause.into()), Some(remedy.into()));
        Self { cause, remedy, mark: Mark::Look, ..Self::good(evidence) }
    }

    /// Runs fail for it.
    pub fn bad(evidence: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { mark: Mark::Bad, ..Self::look(evidence, cause, remedy) }
    }

    /// It is red for a person who looks at the hosts, and a run may succeed all the same: what it needs is not known here.
    #[must_use]
    pub fn may_run(self) -> Self {
        Self { may_run: true, ..self }
    }

    /// How much it speaks against a launch that rests on it.
    pub fn for_launch(&self) -> Mark {
        if self.may_run { self.mark.min(Mark::Look) } else { self.mark }
    }

    /// With the command that helps.
    #[must_use]
    pub fn fixed_by(self, fix: Fix) -> Self {
        Self { fix: Some(fix), ..self }
    }

    /// With the command that helps in a shell on the host.
    #[must_use]
    pub fn fixed_there(self, command: impl Into<String>) -> Self {
        self.fixed_by(Fix::There(command.into()))
    }

    /// Of what was seen this lasts; the rest are figures that move all the time. Nothing, where the mark alone does.
    #[must_use]
    pub fn lasting(self, what: impl Into<String>) -> Self {
        Self { lasting: Some(what.into()), ..self }
    }

    /// Whether a launch that rests on it is kept from starting.
    pub fn stops_launch(&self) -> bool {
        self.for_launch() == Mark::Bad
    }

    /// What a person types or reads to have it helped: the command alone where it is one.
    pub fn help(&self) -> Option<String> {
        self.fix.as_ref().map(Fix::command).or_else(|| self.remedy.clone())
    }

    /// Whether something has to be done about it.
    pub fn is_trouble(&self) -> bool {
        self.mark >= Mark::Look
    }
}

/// One check over all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name: `shm`.
    pub check: &'static str,
    /// What it asks, in words.
    pub asks: &'static str,
    /// Its verdicts; a host that has not told yet has none.
    pub verdicts: BTreeMap<HostId, Verdict>,
}

impl Row {
    /// The worst of its verdicts; `None` before the first.
    pub fn worst(&self) -> Option<Mark> {
        self.verdicts.values().map(|verdict| verdict.mark).max()
    }
}

/// All checks over all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matrix {
    /// The hosts, in the order of the hosts file.
    pub hosts: Vec<HostId>,
    /// The checks.
    pub rows: Vec<Row>,
}

impl Matrix {
    /// How many verdicts have this mark.
    pub fn count(&self, mark: Mark) -> usize {
        self.rows.iter().flat_map(|row| row.verdicts.values()).filter(|verdict| verdict.mark == mark).count()
    }

    /// How many checks have this mark on some host.
    pub fn checks(&self, mark: Mark) -> usize {
        self.rows.iter().filter(|row| row.verdicts.values().any(|verdict| verdict.mark == mark)).count()
    }

    /// `33 checks`; `24 of 33 checks` where some had nothing to judge on any host.
    pub fn checks_words(&self) -> String {
        let judged = |row: &&Row| row.verdicts.values().any(|verdict| verdict.mark != Mark::Unknown);
        let (judged, all) = (self.rows.iter().filter(judged).count(), self.rows.len());
        let checks = counted(all, "check");
        if judged == all { checks } else { format!("{judged} of {checks}") }
    }

    /// How many hosts have not told of some check.
    pub fn due(&self) -> usize {
        let told = |host: &&HostId| self.rows.iter().all(|row| row.verdicts.contains_key(*host));
        self.hosts.iter().filter(|host| !told(host)).count()
    }
}
