//! What hosts have and who has it, for placement and in the words of a refusal. Pure.

use super::inventory::{Holder, HostFacts};
use crate::domain::run::Slot;
use crate::domain::text::plain;
use crate::domain::units::{counted, ranges_joined};

/// Whether a host's slots are GPUs; `None` where it has none of either sort.
pub(super) fn sort(host: &HostFacts) -> Option<bool> {
    host.slots.first().map(is_gpu)
}

/// Whether a slot is a MIG slice.
pub(super) fn is_slice(slot: &Slot) -> bool {
    matches!(slot, Slot::Gpu { uuid, .. } if uuid.is_slice())
}

/// Whether a slot is a whole GPU.
pub(super) fn is_whole(slot: &Slot) -> bool {
    is_gpu(slot) && !is_slice(slot)
}

/// Whether a slot is a GPU or a MIG slice.
pub(super) fn is_gpu(slot: &Slot) -> bool {
    matches!(slot, Slot::Gpu { .. })
}

/// The GPUs of a host that can't be read: `GPU 1 is lost`.
pub(super) fn lost(host: &HostFacts) -> String {
    let words = |(index, does): (&u32, &&str)| format!("GPU {index} {does}");
    host.lost.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// Who has which slots of a host: `0: li python train.py (pid 7)`; of several slots of one holder no more than who that is:
/// `0-3: leased by li for run H6W3 (mnist)`.
pub(super) fn holders(host: &HostFacts) -> String {
    let mut groups: Vec<(&Holder, Vec<u32>)> = Vec::new();
    for (slot, holder) in &host.busy {
        match groups.iter_mut().find(|(known, _)| known.who == holder.who) {
            Some((_, slots)) => slots.push(*slot),
            None => groups.push((holder, vec![*slot])),
        }
    }
    let words = |(holder, slots): &(&Holder, Vec<u32>)| match &slots[..] {
        [slot] => format!("{slot}: {}", holder.words),
        several => format!("{}: {}", ranges_joined(several.iter().copied(), ","), holder.who),
    };
    groups.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// What slots a host has.
pub(super) fn slots_there(host: &HostFacts) -> String {
    let there = match (host.slots.first(), host.slots.last()) {
        (Some(Slot::Gpu { .. }), _) => {
            format!("its GPUs are {}", gpu_list(&host.slots.iter().collect::<Vec<_>>()))
        }
        (Some(first), Some(last)) => format!("its CPU slots are {} to {}", first.index(), last.index()),
        _ => "it has none".to_owned(),
    };
    if host.lost.is_empty() { there } else { format!("{there}; {}", lost(host)) }
}

/// `0 (GPU-3f2a…), 1 (GPU-77b0…)`.
pub(super) fn gpu_list(slots: &[&Slot]) -> String {
    let words = |slot: &&Slot| match slot {
        Slot::Gpu { index, uuid } => Some(format!("{index} ({uuid})")),
        Slot::Cpu { .. } => None,
    };
    slots.iter().filter_map(words).collect::<Vec<_>>().join(", ")
}

/// How many slots of a host are free: `3`, `none`, `1 MIG slice`; of one that has both, `3 GPUs and 1 MIG slice`.
fn free(host: &HostFacts) -> String {
    let free = host.usable(false);
    let slices = free.iter().filter(|slot| is_slice(slot)).count();
    match (free.len() - slices, slices) {
        (0, 0) if !host.slots.is_empty() => "none".to_owned(),
        (whole, 0) => whole.to_string(),
        // whole GPUs are not filled up with them
        (0, slices) => counted(slices, "MIG slice"),
        (whole, slices) => format!("{} and {}", counted(whole, "GPU"), counted(slices, "MIG slice")),
    }
}

/// Which host has how many free slots, and who has the others: `gpu-a: 2; gpu-b: 1, busy 0: li …; gpu-c: none,
/// connection refused …`.
pub(super) fn inventory(hosts: &[HostFacts]) -> String {
    let has_gpus = hosts.iter().any(|host| sort(host) == Some(true));
    let words = |host: &HostFacts| match (&host.absent, host.busy.len()) {
        (Some(reason), _) => format!("{}: none, {}", host.id, plain(&host.id, reason)),
        (None, _) if host.driver_fails && has_gpus => {
            format!("{}: none, {}", host.id, host.no_gpu.as_deref().unwrap_or("its GPU driver fails"))
        }
        (None, 0) if has_gpus && sort(host) == Some(false) => {
            format!("{}: {}", host.id, counted(host.slots.len(), "CPU slot"))
        }
        (None, 0) => format!("{}: {}", host.id, free(host)),
        (None, _) => format!("{}: {}, busy {}", host.id, free(host), holders(host)),
    };
    hosts.iter().map(words).collect::<Vec<_>>().join("; ")
}
