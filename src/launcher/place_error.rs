//! Why the hosts can't take a launch, in words. Pure.

use crate::domain::ids::HostId;
use crate::domain::occupancy::WAIT_FOR_THEM;
use crate::domain::units::{counted, ranges};

/// A launch that the hosts can't take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Zero ranks.
    #[error("a run of 0 ranks starts nothing: give a number of ranks from 1 on")]
    NoRanks,
    /// No command.
    #[error("no command to run")]
    NoCommand,
    /// More ranks than free slots.
    #[error("{} ({have})", too_few_words(*np, *each, *free, *fits, *gpus))]
    TooFew {
        /// Ranks asked for; 0 where it was one on each free slot.
        np: u32,
        /// Slots of each rank.
        each: u32,
        /// Free slots.
        free: u32,
        /// Whether a host has enough for one rank, free or not.
        fits: bool,
        /// Whether the slots are GPUs.
        gpus: bool,
        /// Which host has how many.
        have: String,
        /// Whether there would be enough if all were free.
        busy: bool,
        /// Whether some of those are the user's own.
        own: bool,
    },
    /// A launcher's line that starts its ranks itself, on one host.
    #[error(
        "the line needs {slots} slots on one host{}, and no host has as many{} ({have})",
        option_words(option.as_deref(), *slots), if *busy { " free" } else { "" }
    )]
    LineTooLarge {
        /// Slots that it needs.
        slots: u32,
        /// Its option that says so, where that is known.
        option: Option<String>,
        /// Whether the slots are GPUs.
        gpus: bool,
        /// Which host has how many.
        have: String,
        /// Whether one would have enough if all were free.
        busy: bool,
        /// Whether some of those that are not free are the user's own.
        own: bool,
    },
    /// Too few hosts with enough free slots.
    #[error(
        "--nnodes {nodes} --nproc-per-node {ranks}{}: {} that many free slots ({have})",
        each_words(*each), found_words(*found)
    )]
    TooFewNodes {
        /// Hosts asked for.
        nodes: u32,
        /// Ranks on each.
        ranks: u32,
        /// Slots of each rank.
        each: u32,
        /// Hosts with room.
        found: u32,
        /// Hosts that would have room if all their slots were free.
        large: u32,
        /// Whether the slots are GPUs.
        gpus: bool,
        /// Which host has how many.
        have: String,
        /// Whether there would be enough if every slot were free.
        busy: bool,
        /// Whether some of the slots that are not free are the user's own.
        own: bool,
    },
    /// `--nproc-per-node=gpu` where there are none.
    #[error(
        "the line wants a rank for each {} of a host, and no host has one ({}: {have})",
        if *gpus { "GPU" } else { "CPU slot" },
        if *gpus { "CPU slots" } else { "GPUs" }
    )]
    NoneOfThem {
        /// Whether it wants GPUs, not CPU slots.
        gpus: bool,
        /// Which host has how many slots.
        have: String,
    },
    /// More ranks than `-H` or the host file gives.
    #[error("-np {np} on {given} slots ({have}): lower -np, or give the hosts more slots")]
    MoreThanGiven {
        /// Ranks asked for.
        np: u32,
        /// Slots of the list.
        given: u32,
        /// Which host was given how many.
        have: String,
    },
    /// More ranks on a host than it has slots.
    #[error(
        "host {host}: {wanted} ranks{} asked for, it has {}{}",
        each_words(*each), slot_words(*slots), lost_words(lost)
    )]
    HostTooSmall {
        /// The host.
        host: HostId,
        /// Ranks asked for.
        wanted: u32,
        /// Slots of each rank.
        each: u32,
        /// Slots it has.
        slots: u32,
        /// Whether they are GPUs.
        gpus: bool,
        /// Which GPUs it has lost, if any: `GPU 1 is lost`.
        lost: String,
    },
    /// More ranks than GPUs, where slots are to be shared.
    #[error(
        "host {host}: {wanted} ranks on {}: --oversubscribe shares CPU slots alone, and a GPU has one rank: lower the number of ranks",
        if *slots == 1 { "1 GPU".to_owned() } else { format!("{slots} GPUs") }
    )]
    NotShared {
        /// The host.
        host: HostId,
        /// Ranks asked for.
        wanted: u32,
        /// GPUs it has.
        slots: u32,
    },
    /// Enough slots, too few of them free.
    #[error(
        "host {host}: {}{} asked for, {free} of its {} free ({held})",
        counted(*wanted, "rank"),
        each_words(*each),
        slot_words(*slots)
    )]
    Busy {
        /// The host.
        host: HostId,
        /// Ranks asked for.
        wanted: u32,
        /// Slots of each rank.
        each: u32,
        /// Free slots.
        free: u32,
        /// Slots it has.
        slots: u32,
        /// Who holds the others.
        held: String,
        /// Whether some of those are the user's own.
        own: bool,
    },
    /// Slots that were named, or all of hosts that were, and that are taken.
    #[error("{held}")]
    PickBusy {
        /// Which, and who has them.
        held: String,
        /// Whether some of those are the user's own.
        own: bool,
    },
    /// Slots that were named and that have fallen off the bus: no waiting brings them back.
    #[error("{held}")]
    OffBus {
        /// Which, and what is on the others.
        held: String,
        /// Their numbers by host.
        gone: Vec<(HostId, Vec<u32>)>,
    },
    /// Picks that do not divide into ranks.
    #[error(
        "{picks} slots picked on {host} with {each} for each rank: pick a multiple of {each} on each host"
    )]
    Uneven {
        /// The host.
        host: HostId,
        /// Slots picked there.
        picks: u32,
        /// Slots of each rank.
        each: u32,
    },
    /// More ranks on a host than the GPUs that the line names.
    #[error(
        "CUDA_VISIBLE_DEVICES={mask} names {}, and {} on {host} take{} {}: name as many there, or leave it out",
        if *named == 1 { "1 GPU".to_owned() } else { format!("{named} GPUs") },
        if *ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") },
        if *ranks == 1 { "s" } else { "" },
        ranks * each
    )]
    MaskTooSmall {
        /// The host.
        host: HostId,
        /// As it was written.
        mask: String,
        /// How many GPUs it names.
        named: u32,
        /// Ranks on the host.
        ranks: u32,
        /// GPUs of each rank.
        each: u32,
    },
    /// A host that the hosts file does not name.
    #[error("unknown host {host}: {hint}")]
    UnknownHost {
        /// As it was written.
        host: HostId,
        /// What was likely meant, and the known ones.
        hint: String,
    },
    /// A host that is not up.
    #[error("host {host} can't take ranks: {reason}")]
    HostAbsent {
        /// The host.
        host: HostId,
        /// Why.
        reason: String,
    },
    /// A slot that the host has not.
    #[error("host {host} has no slot {slot}: {hint}")]
    UnknownSlot {
        /// The host.
        host: HostId,
        /// As it was written.
        slot: String,
        /// Which there are.
        hint: String,
    },
    /// Fewer free GPUs than `--free` asks for.
    #[error(
        "{}{} asked for, {}{} ({have})",
        ranks_words(*ranks, *each), per_host_words(*per_host), are(*free, "free"), left_out_words(*left_out, clauses)
    )]
    TooFewFree {
        /// Ranks asked for.
        ranks: u32,
        /// How many on each host exactly.
        per_host: Option<u32>,
        /// GPUs of each rank.
        each: u32,
        /// Free GPUs that may be taken.
        free: u32,
        /// GPUs that the filter leaves out.
        left_out: u32,
        /// How many each part of the filter excludes.
        clauses: String,
        /// Which host has how many.
        have: String,
        /// Whether there would be enough if all were free.
        busy: bool,
        /// Whether some of those are the user's own.
        own: bool,
    },
    /// GPUs asked for where there are none.
    #[error(
        "{} asked for, and no host that is up has a GPU that hvtui can use ({why})",
        ranks_words(*ranks, *each)
    )]
    NoGpus {
        /// Ranks asked for.
        ranks: u32,
        /// GPUs of each rank.
        each: u32,
        /// Why each host has none.
        why: String,
    },
    /// A slot picked twice, perhaps once by number and once by UUID.
    #[error("{host}:{slot} is picked twice: one rank a slot")]
    PickedTwice {
        /// The host.
        host: HostId,
        /// Its number.
        slot: u32,
    },
}

impl PlaceError {
    /// Whether it is only that the slots are taken.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::PickBusy { .. }
                | Self::TooFew { busy: true, .. }
                | Self::LineTooLarge { busy: true, .. }
                | Self::TooFewNodes { busy: true, .. }
                | Self::TooFewFree { busy: true, .. }
        )
    }

    /// The same, which advises `--share` only where that `helps`.
    pub(super) fn if_sharing(mut self, helps: bool) -> Self {
        match &mut self {
            Self::Busy { own, .. }
            | Self::PickBusy { own, .. }
            | Self::TooFew { own, .. }
            | Self::LineTooLarge { own, .. }
            | Self::TooFewNodes { own, .. }
            | Self::TooFewFree { own, .. } => *own &= helps,
            _ => {}
        }
        self
    }

    /// What can be done, where the error itself doesn't say it.
    pub fn remedy(&self) -> Option<String> {
        let fixed = match self {
            // more slots on a host make no more hosts
            Self::TooFewNodes { busy: false, large: large @ 1.., .. } => {
                return Some(format!(
                    "at most `--nnodes {large}` fits; for more add a [[host]] to the hosts file"
                ));
            }
            Self::OffBus { gone, .. } => return Some(reboot_words(gone)),
            Self::TooFewFree { busy: false, .. } => "ask for fewer, or write a wider filter",
            Self::TooFew { busy: false, np: 0, each: 1, .. } => "`hvtui hosts check` tells more",
            // `slots` makes CPU slots: on a host with GPUs it would take these away
            Self::TooFew { busy: false, fits: false, gpus: true, .. } => "lower --gpus-per-rank",
            Self::TooFew { busy: false, each: 2.., gpus: true, .. }
            | Self::HostTooSmall { each: 2.., gpus: true, .. } => {
                "lower the number of ranks or --gpus-per-rank"
            }
            Self::TooFew { busy: false, gpus: true, .. } | Self::HostTooSmall { gpus: true, .. } => {
                "lower the number of ranks"
            }
            Self::TooFewNodes { busy: false, gpus: true, .. } => "lower the ranks on each host",
            Self::LineTooLarge { busy: false, gpus: true, .. } => "lower that number",
            Self::TooFew { busy: false, .. } => {
                "lower the number of ranks, or give a host more by `slots` in the hosts file"
            }
            Self::TooFewNodes { busy: false, .. } => {
                "lower the ranks on each host, or give the hosts more by `slots` in the hosts file"
            }
            Self::NoneOfThem { gpus: true, .. } => {
                "write a number, such as --nproc-per-node=2, for ranks on CPU slots"
            }
            Self::NoneOfThem { .. } => "write gpu, or a number, such as --nproc-per-node=2",
            Self::LineTooLarge { busy: false, .. } => {
                "lower that number, or give a host more by `slots` in the hosts file"
            }
            Self::HostTooSmall { .. } => {
                "lower the number of ranks, or give the host more by `slots` in the hosts file"
            }
            Self::Busy { own, .. }
            | Self::PickBusy { own, .. }
            | Self::TooFew { own, .. }
            | Self::LineTooLarge { own, .. }
            | Self::TooFewNodes { own, .. }
            | Self::TooFewFree { own, .. } => {
                if *own {
                    "wait with --wait, or use your own ones too with --share"
                } else {
                    WAIT_FOR_THEM
                }
            }
            _ => return None,
        };
        Some(fixed.to_owned())
    }
}

/// `reboot n1, or leave GPU 0 out`.
fn reboot_words(gone: &[(HostId, Vec<u32>)]) -> String {
    let words = |(host, gpus): &(HostId, Vec<u32>)| {
        let word = if gpus.len() == 1 { "GPU" } else { "GPUs" };
        format!("reboot {host}, or leave {word} {} out", ranges(gpus.iter().copied()))
    };
    gone.iter().map(words).collect::<Vec<_>>().join("; ")
}

/// `-np 4 on 3 free slots`; `-np 4 of 5 slots each: no host has 5 GPUs` where not even one rank fits; of no number of ranks
/// `no slot is free`.
fn too_few_words(np: u32, each: u32, free: u32, fits: bool, gpus: bool) -> String {
    let size = each_words(each);
    if each > 1 && !fits {
        let ranks = if np == 0 { "ranks".to_owned() } else { format!("-np {np}") };
        return format!("{ranks}{size}: no host has {each} {}", if gpus { "GPUs" } else { "slots" });
    }
    match (np, each) {
        (0, 1) => "no slot is free".to_owned(),
        (0, _) => format!("no host has {each} free slots"),
        _ => format!("-np {np}{size} on {}", counted(free, "free slot")),
    }
}

/// ` (GPU 1 is lost)`.
fn lost_words(lost: &str) -> String {
    if lost.is_empty() { String::new() } else { format!(" ({lost})") }
}

/// Who has enough: `no host has`, `1 host has`, `3 hosts have`.
fn found_words(found: u32) -> String {
    match found {
        0 => "no host has".to_owned(),
        1 => "1 host has".to_owned(),
        _ => format!("{found} hosts have"),
    }
}

/// ` of 2 slots each` where a rank takes several.
fn each_words(each: u32) -> String {
    if each > 1 { format!(" of {each} slots each") } else { String::new() }
}

/// `4 GPUs`, `2 ranks of 2 GPUs each`.
fn ranks_words(ranks: u32, each: u32) -> String {
    match (ranks, each) {
        (1, 1) => "1 GPU".to_owned(),
        (ranks, 1) => format!("{ranks} GPUs"),
        (1, each) => format!("1 rank of {each} GPUs"),
        (ranks, each) => format!("{ranks} ranks of {each} GPUs each"),
    }
}

fn per_host_words(per_host: Option<u32>) -> String {
    per_host.map_or_else(String::new, |ranks| format!(", {ranks} on each host,"))
}

fn are(count: u32, what: &str) -> String {
    if count == 1 { format!("1 is {what}") } else { format!("{count} are {what}") }
}

fn left_out_words(left_out: u32, clauses: &str) -> String {
    match (left_out, clauses) {
        (0, _) => String::new(),
        (some, "") => format!(", {} by the filter", are(some, "left out")),
        (some, clauses) => format!(", {} by the filter: {clauses}", are(some, "left out")),
    }
}

fn slot_words(count: u32) -> String {
    if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") }
}

/// ` (--num_processes 4)` where the option is known.
fn option_words(option: Option<&str>, slots: u32) -> String {
    option.map_or_else(String::new, |option| format!(" ({option} {slots})"))
}
