//! Lines that their own launcher executes, because hvtui doesn't understand all of them or because that is wanted
//! (`--delegate`): what of a pasted line the launcher gets, and where its ranks are. Pure.

use super::paste::{self, KnownTo, Launcher, Pasted, PerNode};
use super::request::{ALL_SLOTS, PlacementSpec};
use crate::domain::ids::HostId;
use crate::domain::options::Delegated;
use crate::domain::run::JobKind;

/// How a pasted line is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By hvtui, rank by rank.
    Ours,
    /// By its own launcher, whose ranks are known: they hold their slots, and their output is told apart.
    Launcher(Delegated),
    /// By its own launcher, of which no more is known: as one process.
    OneProcess,
}

/// How a line is started; `hosts` are its hosts, those of its host file too, as they are written.
pub fn way(pasted: &Pasted, wanted: bool, hosts: &[(HostId, u32)]) -> Way {
    if matches!(pasted.launcher, Launcher::CheckBuild | Launcher::Query) {
        return Way::OneProcess;
    }
    if !pasted.is_delegated() && !wanted {
        return Way::Ours;
    }
    let counted =
        pasted.np.is_some() || (!hosts.is_empty() && hosts.iter().all(|(_, slots)| *slots != ALL_SLOTS));
    match pasted.launcher {
        _ if pasted.known_to == KnownTo::Launcher => Way::OneProcess,
        // mpirun starts the ranks of a line that is understood, too.
        Launcher::Mpirun if !pasted.is_delegated() => Way::Ours,
        Launcher::Horovodrun | Launcher::Mpirun if counted => Way::Launcher(Delegated {
            line: pasted.argv.clone(),
            hosts: hosts.iter().map(|(host, _)| host.to_string()).collect(),
            ..Delegated::default()
        }),
        Launcher::Torchrun | Launcher::TorchLaunch { .. } => Way::Launcher(Delegated {
            program: torch_program(pasted),
            options: pasted.not_understood_words.clone(),
            ..Delegated::default()
        }),
        // There is no other launcher than hvtui.
        _ if !pasted.is_delegated() => Way::Ours,
        _ => Way::OneProcess,
    }
}

/// The words that call torch's launcher, without its options.
fn torch_program(pasted: &Pasted) -> Vec<String> {
    let module = pasted.argv.iter().position(|word| word.starts_with("torch.distributed."));
    let words = match module {
        Some(at) if !pasted.argv.first().is_some_and(|program| paste::is_launcher(program)) => at + 1,
        _ => 1,
    };
    let mut program: Vec<String> = pasted.argv.iter().take(words).cloned().collect();
    if let Launcher::TorchLaunch { use_env: true, .. } = pasted.launcher {
        program.push("--use_env".to_owned());
    }
    program
}

/// Where the ranks are that a line's own launcher starts. Without hosts it uses those of one machine.
pub fn place(pasted: &Pasted, place: PlacementSpec) -> PlacementSpec {
    match place {
        PlacementSpec::Count(Some(np)) => {
            PlacementSpec::Nodes { nodes: 1, each: Some(np.saturating_add(further(pasted))) }
        }
        // It uses every host that it names: Open MPI starts a daemon there, horovodrun a rank for each slot.
        PlacementSpec::Hosts { hosts, .. } if hosts.len() > 1 || pasted.kind == JobKind::Horovod => {
            let counted = |slots| if slots == ALL_SLOTS && !pasted.oversubscribe { 1 } else { slots };
            let hosts = hosts.into_iter().map(|(host, slots)| (host, counted(slots))).collect();
            PlacementSpec::Hosts { hosts, np: None }
        }
        PlacementSpec::Hosts { hosts, np } => {
            PlacementSpec::Hosts { hosts, np: np.map(|np| np.saturating_add(further(pasted))) }
        }
        other => other,
    }
}

/// Ranks of mpirun's further programs: `mpirun -np 1 a : -np 3 b`.
pub(super) fn further(pasted: &Pasted) -> u32 {
    let programs = pasted.command.split(|word| word == ":").skip(1);
    let ranks = programs.map(|words| {
        let at = words.iter().position(|word| matches!(word.trim_start_matches('-'), "np" | "n" | "c"));
        at.and_then(|at| words.get(at + 1)?.parse::<u32>().ok()).unwrap_or(1)
    });
    ranks.fold(0, u32::saturating_add)
}

/// What to know of a line that its own launcher executes.
pub fn remarks(pasted: &Pasted, hosts: &[(HostId, u32)]) -> Vec<String> {
    let mut said = Vec::new();
    let slots = hosts.iter().fold(0, |sum: u32, (_, slots)| sum.saturating_add(*slots));
    if pasted.np.is_some_and(|np| np.saturating_add(further(pasted)) < slots) {
        said.push(format!(
            "on which of the {slots} slots of `-H` its ranks are, the launcher decides: all are held."
        ));
    }
    if pasted.kind == JobKind::Mpi && hosts.len() > 1 && mapped(pasted) {
        said.push(
            "on which host a rank is, mpirun decides by its mapping: hvtui shows them in the order of the hosts."
                .to_owned(),
        );
    }
    if let Some(PerNode::Gpus | PerNode::Cpus | PerNode::Auto) = pasted.per_node {
        said.push("the number of ranks is that of the free slots of the host.".to_owned());
    }
    said
}

/// Whether the line says how ranks lie over hosts.
fn mapped(pasted: &Pasted) -> bool {
    const NAMES: [&str; 10] = [
        "map-by",
        "rank-by",
        "bynode",
        "rf",
        "rankfile",
        "ppr",
        "npernode",
        "npersocket",
        "nolocal",
        "pernode",
    ];
    let bare = |text: &String| {
        let name = text.trim_start_matches('-');
        name.split([' ', '=']).next().is_some_and(|name| NAMES.contains(&name))
    };
    pasted.not_understood.iter().any(bare)
}

#[cfg(test)]
#[path = "delegate_tests.rs"]
mod tests;
