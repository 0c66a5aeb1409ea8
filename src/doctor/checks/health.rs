//! Whether anything is wrong with the GPUs themselves: what the Cluster screen's health column says, for all at once.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::gpu::event::all_faults;
use crate::domain::gpu::health::{Severity, Unreadable};
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::ids::GpuUuid;

pub(in crate::doctor) struct Health;

impl Check for Health {
    const NAME: &'static str = "health";
    const ASKS: &'static str =
        "XID and ECC errors, rows to be remapped, slowed clocks, GPUs that do not answer";
    const LOOKS: bool = false;
    const WANTS_SAMPLE: bool = true;
    type Found = ();

    fn look(_: &Site) -> Result<(), String> {
        Ok(())
    }

    fn judge(seen: &[Seen<'_, ()>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one, seen)).collect()
    }
}

/// Retired pages from which on NVIDIA replaces a board.
const MOST_PAGES: u64 = 60;

/// Held down by its power limit, as a GPU at full power is.
const POWER_CAP: &str = "sw power cap";
/// Percent by which a GPU may be less busy than one that is compared with it.
const AS_BUSY: u32 = 10;

fn is_capped(sample: &GpuSample) -> bool {
    sample.throttle.value().is_some_and(|reasons| reasons.iter().any(|reason| reason == POWER_CAP))
}

/// Whether there are GPUs of its model on other hosts, as busy, and none of them is held down by its power limit.
fn is_capped_alone(one: &Seen<'_, ()>, info: &GpuInfo, sample: &GpuSample, all: &[Seen<'_, ()>]) -> bool {
    let Some(busy) = sample.util.value() else { return false };
    let others = all.iter().filter(|other| other.host != one.host);
    let others = others.filter_map(|other| Some(other.info.gpus.iter().zip(&other.sample?.gpus))).flatten();
    let mut alike = others.filter(|(other, at)| {
        other.name == info.name && at.util.value().is_some_and(|util| util + AS_BUSY >= *busy)
    });
    let mut is_any = false;
    let are_all_free = alike.all(|(_, at)| {
        is_any = true;
        !is_capped(at)
    });
    is_any && are_all_free
}

/// The sample without what is as usual as a power limit that is reached.
fn without_cap(sample: &GpuSample) -> GpuSample {
    let mut sample = sample.clone();
    if let Reading::Value(reasons) = &mut sample.throttle {
        reasons.retain(|reason| reason != POWER_CAP);
    }
    sample
}

/// Of a host whose GPUs have no fault.
fn persistence(one: &Seen<'_, ()>) -> Verdict {
    let gpus = one.sample.map(|sample| &sample.gpus[..]).unwrap_or_default();
    let off = gpus.iter().filter(|gpu| gpu.persistence.value() == Some(&false)).count();
    let retired: Vec<(usize, u64)> =
        gpus.iter().map(|gpu| gpu.pages_retired.value().copied().unwrap_or(0)).enumerate().collect();
    let told: Vec<String> = retired
        .iter()
        .filter(|(_, pages)| *pages > 0)
        .map(|(at, pages)| format!("{pages} on GPU {at}"))
        .collect();
    let told = told.join(", ");
    // a launch does without both
    if one.uses.is_none() && retired.iter().any(|(_, pages)| *pages >= MOST_PAGES) {
        return Verdict::look(
            format!("retired pages of memory: {told}"),
            format!("a board with {MOST_PAGES} of them is worn: more faults are to be expected"),
            "nvidia-smi -q -d PAGE_RETIREMENT there, and have the board replaced",
        );
    }
    if off == 0 || one.uses.is_some() {
        let more = if told.is_empty() { String::new() } else { format!("; retired pages of memory: {told}") };
        return Verdict::good(format!("no GPU has a fault{more}"));
    }
    Verdict::look(
        format!("persistence mode is off ({off} of {} GPUs)", gpus.len()),
        "the driver leaves a GPU with the last program on it: each start takes seconds longer, and settings are lost",
        "sudo systemctl enable --now nvidia-persistenced, or: sudo nvidia-smi -pm 1",
    )
    .fixed_there("sudo nvidia-smi -pm 1")
}

fn judge(one: &Seen<'_, ()>, all: &[Seen<'_, ()>]) -> Verdict {
    if one.info.gpus.is_empty() {
        return Verdict::unknown("no GPU");
    }
    let Some(sample) = one.sample else { return Verdict::unknown("its GPUs have told nothing yet") };
    let mut told = Vec::new();
    let mut worst = None;
    let mut is_lost = false;
    for (info, sample) in one.info.gpus.iter().zip(&sample.gpus) {
        // a launch may do without the others
        let is_slice_of = |slice: &&GpuInfo| slice.parent == Some(info.index);
        let is_used = |uses: &BTreeSet<GpuUuid>| {
            uses.contains(&info.uuid)
                || one.info.gpus.iter().filter(is_slice_of).any(|slice| uses.contains(&slice.uuid))
        };
        if one.uses.is_some_and(|uses| !is_used(uses)) {
            continue;
        }
        is_lost |= matches!(Unreadable::of(sample), Some(Unreadable::Lost));
        let is_usual = is_capped(sample) && !is_capped_alone(one, info, sample, all);
        let sample = if is_usual { Cow::Owned(without_cap(sample)) } else { Cow::Borrowed(sample) };
        let happened = one.happened.map(|(events, now)| (events, *now));
        for fault in all_faults(happened, info, &sample, None) {
            worst = worst.max(Some(fault.severity));
            told.push(format!("GPU {}: {}", info.index, fault.words));
        }
    }
    let words = told.join(", ");
    match worst {
        None => persistence(one),
        Some(Severity::Look) => Verdict::look(
            words,
            "a run is slower than on other hosts, or may be stopped",
            "enter on the GPU on the Cluster screen tells the values; nvidia-smi -q -d PERFORMANCE,ECC",
        ),
        Some(Severity::Act) => {
            let cause = if is_lost {
                "a run that uses it ends at its start, or where the GPU is lost"
            } else {
                "a run there is slowed down, ends in the middle, or computes wrong numbers"
            };
            let remedy =
                "run on other GPUs meanwhile; enter on the GPU on the Cluster screen tells the values";
            let verdict = Verdict::bad(words, cause, remedy);
            if is_lost { verdict } else { verdict.may_run() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{info_with, seen_with};
    use crate::domain::fixtures::host_sample;
    use crate::domain::gpu::event::{GpuEvent, GpuEvents, Happening};
    use crate::domain::host::{HostInfo, HostSample};
    use crate::domain::preflight::Mark;
    use crate::domain::time::Stamp;

    /// Hosts with a GPU each of this model, so busy, and held down for these reasons.
    fn hosts(gpus: &[(&str, u32, &[&str])]) -> Vec<Seen<'static, ()>> {
        let infos = gpus.iter().map(|(name, ..)| {
            let gpu = GpuInfo { name: (*name).to_owned(), ..GpuInfo::unknown(0) };
            (HostInfo { gpus: vec![gpu], ..info_with(&[]) }, ())
        });
        let mut all = seen_with(infos);
        for (one, (_, util, reasons)) in all.iter_mut().zip(gpus) {
            let gpu = GpuSample {
                util: Reading::Value(*util),
                throttle: Reading::Value(reasons.iter().map(|reason| (*reason).to_owned()).collect()),
                ..GpuSample::unknown(0)
            };
            let sample: &'static HostSample =
                Box::leak(Box::new(HostSample { gpus: vec![gpu], ..host_sample() }));
            one.sample = Some(sample);
        }
        all
    }

    fn judged(hosts: &[Seen<'_, ()>]) -> Vec<(Mark, String)> {
        Health::judge(hosts).into_iter().map(|verdict| (verdict.mark, verdict.evidence)).collect()
    }

    fn verdicts(gpus: &[(&str, u32, &[&str])]) -> Vec<(Mark, String)> {
        judged(&hosts(gpus))
    }

    #[test]
    fn what_happened_to_a_gpu_is_its_fault_for_an_hour() {
        let free: &[&str] = &[];
        let told = |xid: u32, seconds: i64| {
            let mut all = hosts(&[("H200", 0, free)]);
            let uuid = all[0].info.gpus[0].uuid.clone();
            let event = GpuEvent { index: 0, uuid, what: Happening::Xid { xid }, count: 1, t: None };
            let mut events = GpuEvents::default();
            events.add(Stamp(0), &event);
            let happened: &'static (GpuEvents, Stamp) =
                Box::leak(Box::new((events, Stamp(seconds * 1_000_000))));
            all[0].happened = Some(happened);
            judged(&all).remove(0)
        };
        assert_eq!(told(48, 60), (Mark::Bad, "GPU 0: xid 48".to_owned()));
        assert_eq!(told(31, 60), (Mark::Look, "GPU 0: xid 31".to_owned()));
        assert_eq!(told(48, 3601), (Mark::Good, "no GPU has a fault".to_owned()));
    }

    #[test]
    fn a_power_limit_that_is_reached_is_a_fault_where_no_other_gpu_reaches_it() {
        let marks = |gpus: &[(&str, u32, &[&str])]| {
            verdicts(gpus).into_iter().map(|(mark, _)| mark).collect::<Vec<_>>()
        };
        let (capped, free): (&[&str], &[&str]) = (&["sw power cap"], &[]);
        let (good, look) = (Mark::Good, Mark::Look);
        assert_eq!(marks(&[("H200", 99, capped)]), [good], "it is at full power");
        assert_eq!(marks(&[("H200", 99, capped), ("H200", 97, capped)]), [good, good]);
        assert_eq!(marks(&[("H200", 99, capped), ("H200", 97, free)]), [look, good]);
        assert_eq!(marks(&[("H200", 99, capped), ("H200", 30, free)]), [good, good], "that one is idle");
        assert_eq!(marks(&[("H200", 99, capped), ("A100", 99, free)]), [good, good], "that one is another");
        let three = [("H200", 99, capped), ("H200", 98, free), ("H200", 97, capped)];
        assert_eq!(marks(&three), [good; 3], "some reach it and some do not, as they differ");
        assert_eq!(verdicts(&[("H200", 99, capped), ("H200", 97, free)])[0].1, "GPU 0: power cap");
    }

    #[test]
    fn what_else_holds_a_gpu_down_is_told_beside_its_power_limit() {
        let both: &[&str] = &["sw power cap", "hw thermal slowdown"];
        assert_eq!(verdicts(&[("H200", 99, both)])[0], (Mark::Bad, "GPU 0: hw thermal".to_owned()));
    }
}
