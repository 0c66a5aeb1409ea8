//! What happens to a GPU at one moment: an XID error, an ECC error, memory that is taken out of use. Knows nothing of NVML and
//! screens.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::health::{Fault, Severity, faults};
use super::{GpuInfo, GpuSample, GpuUuid, Reading, xid};
use crate::domain::time::{HostTime, Stamp};

/// So many kinds of events of one host are kept, the newest.
pub const KEPT: usize = 64;
/// A counter shows what the driver has told by itself within so many seconds: it is read in each tenth sample.
const COUNTED_WITHIN: f64 = 15.0;
/// For so long an event is a fault of its GPU, unless it is acknowledged, seconds.
pub const FAULT_FOR: f64 = 3600.0;

/// Something that happened to a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    /// The GPU's index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
    /// How often, where the same came several times at once.
    #[serde(default = "once")]
    pub count: u64,
    /// When, on the host's clock, to about a second; `None` where two samples tell it, which lie around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t: Option<HostTime>,
}

fn once() -> u64 {
    1
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happening {
    /// The driver reported an XID error.
    Xid {
        /// NVIDIA's number, see [`xid::explain`].
        xid: u32,
    },
    /// ECC corrected a single-bit error.
    EccCorrected,
    /// ECC met a double-bit error, or another that it could not correct.
    EccUncorrected,
    /// Pages of memory were retired.
    PagesRetired,
    /// A row of memory will be remapped at the next reset.
    RowRemapPending,
    /// A row of memory could not be remapped.
    RowRemapFailed,
    /// What a newer version has a name for.
    #[serde(other)]
    Other,
}

impl Happening {
    /// In one or two words, for a narrow column.
    pub fn short(self) -> String {
        match self {
            Self::Xid { xid } => return format!("xid {xid}"),
            Self::EccCorrected => "ecc corrected",
            Self::EccUncorrected => "ecc error",
            Self::PagesRetired => "page retired",
            Self::RowRemapPending => "remap due",
            Self::RowRemapFailed => "remap fault",
            Self::Other => "event",
        }
        .to_owned()
    }

    /// What it means.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Xid { xid } => xid::explain(xid).meaning,
            Self::EccCorrected => "memory errors, corrected by ECC",
            Self::EccUncorrected => "memory errors that ECC could not correct",
            Self::PagesRetired => "pages of memory were retired",
            Self::RowRemapPending => "a row of memory will be remapped",
            Self::RowRemapFailed => "a row of memory could not be remapped",
            Self::Other => "an event that this version has no name for",
        }
    }

    /// What to do.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Xid { xid } => xid::explain(xid).remedy,
            Self::EccCorrected => "nothing, unless they become many",
            Self::EccUncorrected => xid::explain(48).remedy,
            Self::PagesRetired | Self::RowRemapPending => xid::explain(63).remedy,
            Self::RowRemapFailed => xid::explain(64).remedy,
            Self::Other => "update hvtui here",
        }
    }

    /// How bad it is; `None` for what is no fault.
    pub fn severity(self) -> Option<Severity> {
        match self {
            Self::Xid { xid } => Some(xid::explain(xid).severity),
            Self::EccUncorrected | Self::RowRemapFailed => Some(Severity::Act),
            Self::PagesRetired | Self::RowRemapPending => Some(Severity::Look),
            Self::EccCorrected | Self::Other => None,
        }
    }
}

/// All that is wrong with a GPU, the worst first; among equals what happened before what is. What was acknowledged up to a
/// moment is no fault any more.
pub fn all_faults(
    events: Option<(&GpuEvents, Stamp)>,
    info: &GpuInfo,
    sample: &GpuSample,
    acknowledged: Option<Stamp>,
) -> Vec<Fault> {
    let happened = |(events, now): (&GpuEvents, Stamp)| events.faults(&info.uuid, now, acknowledged);
    let mut all = events.map(happened).unwrap_or_default();
    for fault in faults(info, sample) {
        if !all.contains(&fault) {
            all.push(fault);
        }
    }
    all.sort_by_key(|fault| std::cmp::Reverse(fault.severity));
    all
}

/// What two samples of a GPU, one after the other, tell to have happened between them. What one of them does not know has not
/// happened, and neither has what a counter that fell leaves behind: the driver was loaded anew.
fn between(info: &GpuInfo, before: &GpuSample, after: &GpuSample) -> Vec<GpuEvent> {
    let grown = |before: &Reading<u64>, after: &Reading<u64>| {
        let more = after.value()?.checked_sub(*before.value()?)?;
        (more > 0).then_some(more)
    };
    let began = |before: &Reading<bool>, after: &Reading<bool>| {
        (before.value() == Some(&false) && after.value() == Some(&true)).then_some(1)
    };
    let all = [
        (Happening::EccUncorrected, grown(&before.ecc_uncorrected, &after.ecc_uncorrected)),
        (Happening::PagesRetired, grown(&before.pages_retired, &after.pages_retired)),
        (Happening::RowRemapPending, began(&before.row_remap_pending, &after.row_remap_pending)),
        (Happening::RowRemapFailed, began(&before.row_remap_failed, &after.row_remap_failed)),
    ];
    let event = |(what, count): (Happening, Option<u64>)| {
        Some(GpuEvent { index: info.index, uuid: info.uuid.clone(), what, count: count?, t: None })
    };
    all.into_iter().filter_map(event).collect()
}

/// The events of one host, each kind of a GPU once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuEvents {
    /// The one that came last is last.
    kept: VecDeque<SeenEvent>,
}

/// A kind of event of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeenEvent {
    /// When the first one came.
    pub first: Stamp,
    /// When the last one came.
    pub last: Stamp,
    /// The last one, with the count of all.
    pub event: GpuEvent,
}

impl SeenEvent {
    /// Whether it is a fault of its GPU at `now`.
    fn counts(&self, now: Stamp, acknowledged: Option<Stamp>) -> bool {
        now.seconds_since(self.last) < FAULT_FOR && acknowledged.is_none_or(|at| at < self.last)
    }

    /// `xid 79: the GPU has fallen off the bus`, with how often.
    pub fn words(&self) -> String {
        let GpuEvent { what, count, .. } = &self.event;
        let times = if *count > 1 { format!(" ×{count}") } else { String::new() };
        format!("{}{times}: {}", what.short(), what.meaning())
    }
}

impl GpuEvents {
    /// Keeps the events of some GPUs.
    pub fn retain(&mut self, of: impl Fn(&GpuUuid) -> bool) {
        self.kept.retain(|seen| of(&seen.event.uuid));
    }

    /// Takes in an event that came at `at`.
    pub fn add(&mut self, at: Stamp, event: &GpuEvent) {
        let same = |seen: &SeenEvent| seen.event.uuid == event.uuid && seen.event.what == event.what;
        let old = self.kept.iter().position(same).and_then(|place| self.kept.remove(place));
        let (first, count) = old.map_or((at, 0), |old| (old.first, old.event.count));
        let event = GpuEvent { count: count.saturating_add(event.count), ..event.clone() };
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(SeenEvent { first, last: at, event });
    }

    /// Takes in what two samples tell, the newer of which came at `at`.
    pub fn compare(&mut self, at: Stamp, infos: &[GpuInfo], before: &[GpuSample], after: &[GpuSample]) {
        let all = infos.iter().zip(before).zip(after);
        // MIG slices come and go: then the places are not the same
        for ((info, before), after) in all.filter(|((_, before), after)| before.index == after.index) {
            for event in between(info, before, after) {
                if !self.was_told(at, &event) {
                    self.add(at, &event);
                }
            }
        }
    }

    /// Whether the driver has told by itself of what a counter shows now.
    fn was_told(&self, at: Stamp, event: &GpuEvent) -> bool {
        self.of(&event.uuid).any(|seen| {
            seen.event.what == event.what
                && seen.event.t.is_some()
                && at.seconds_since(seen.last) < COUNTED_WITHIN
        })
    }

    /// All of them, the newest first.
    pub fn newest(&self) -> impl Iterator<Item = &SeenEvent> {
        self.kept.iter().rev()
    }

    /// Those of one GPU, the newest first.
    pub fn of<'a>(&'a self, uuid: &'a GpuUuid) -> impl Iterator<Item = &'a SeenEvent> {
        self.newest().filter(move |seen| seen.event.uuid == *uuid)
    }

    /// Whether they say at `now` that a GPU has fallen off the bus: it is gone, whatever its values are and whatever was
    /// acknowledged.
    pub fn is_off_bus(&self, uuid: &GpuUuid, now: Stamp) -> bool {
        let off = Happening::Xid { xid: xid::OFF_THE_BUS };
        self.of(uuid).any(|seen| seen.event.what == off && seen.counts(now, None))
    }

    /// What they say at `now` is wrong with a GPU: for an hour, unless it was acknowledged since.
    pub fn faults(&self, uuid: &GpuUuid, now: Stamp, acknowledged: Option<Stamp>) -> Vec<Fault> {
        let counts = |seen: &&SeenEvent| seen.counts(now, acknowledged);
        let fault = |seen: &SeenEvent| {
            Some(Fault { words: seen.event.what.short(), severity: seen.event.what.severity()? })
        };
        let mut faults: Vec<Fault> = self.of(uuid).filter(counts).filter_map(fault).collect();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.severity));
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(index: u32, xid: u32) -> GpuEvent {
        let uuid = GpuUuid::from(format!("GPU-{index}"));
        GpuEvent { index, uuid, what: Happening::Xid { xid }, count: 1, t: Some(HostTime(7)) }
    }

    fn at(seconds: i64) -> Stamp {
        Stamp(seconds * 1_000_000)
    }

    #[test]
    fn an_event_is_plain_in_json_and_one_of_tomorrow_is_no_failure() {
        let json = serde_json::to_string(&xid(2, 79)).unwrap();
        assert_eq!(json, r#"{"index":2,"uuid":"GPU-2","what":"xid","xid":79,"count":1,"t":7}"#);
        assert_eq!(serde_json::from_str::<GpuEvent>(&json).unwrap(), xid(2, 79));
        let newer = r#"{"index":0,"uuid":"GPU-0","what":"melted","celsius":2000}"#;
        let event: GpuEvent = serde_json::from_str(newer).unwrap();
        assert_eq!((event.what, event.count, event.t), (Happening::Other, 1, None));
    }

    #[test]
    fn what_the_driver_told_by_itself_is_not_counted_again() {
        let info = GpuInfo { uuid: GpuUuid::from("GPU-2"), ..GpuInfo::unknown(2) };
        let errors = |count| GpuSample { ecc_uncorrected: Reading::Value(count), ..GpuSample::unknown(2) };
        let mut events = GpuEvents::default();
        events.add(at(10), &GpuEvent { what: Happening::EccUncorrected, ..xid(2, 0) });
        events.compare(at(20), std::slice::from_ref(&info), &[errors(0)], &[errors(1)]);
        assert_eq!(
            events.newest().map(|seen| (seen.last, seen.event.count)).collect::<Vec<_>>(),
            [(at(10), 1)]
        );
        events.compare(at(60), &[info], &[errors(1)], &[errors(2)]);
        assert_eq!(events.newest().map(|seen| seen.event.count).collect::<Vec<_>>(), [2], "a new one is");
    }

    #[test]
    fn counters_that_grow_between_two_samples_are_events() {
        let info = GpuInfo { uuid: GpuUuid::from("GPU-3"), ..GpuInfo::unknown(3) };
        let before = GpuSample {
            ecc_uncorrected: Reading::Value(1),
            ecc_corrected: Reading::Value(0),
            pages_retired: Reading::Value(4),
            row_remap_pending: Reading::Value(false),
            row_remap_failed: Reading::Value(false),
            ..GpuSample::unknown(3)
        };
        assert!(between(&info, &before, &before).is_empty());
        let after = GpuSample {
            ecc_uncorrected: Reading::Value(3),
            ecc_corrected: Reading::Value(9),
            pages_retired: Reading::Value(5),
            row_remap_pending: Reading::Value(true),
            row_remap_failed: Reading::Value(true),
            ..GpuSample::unknown(3)
        };
        let told: Vec<_> = between(&info, &before, &after)
            .into_iter()
            .map(|event| (event.index, event.uuid.to_string(), event.what, event.count))
            .collect();
        let expected = [
            (Happening::EccUncorrected, 2),
            (Happening::PagesRetired, 1),
            (Happening::RowRemapPending, 1),
            (Happening::RowRemapFailed, 1),
        ];
        assert_eq!(told, expected.map(|(what, count)| (3, "GPU-3".to_owned(), what, count)));
        assert!(between(&info, &after, &before).is_empty(), "counters that fell: the driver was loaded anew");
        let unknown = GpuSample::failed(3, "lost");
        assert!(
            between(&info, &unknown, &after).is_empty(),
            "what was there at the first look has not just happened"
        );
        assert!(between(&info, &before, &unknown).is_empty());
    }

    #[test]
    fn the_world_has_what_is_told_and_what_two_samples_tell() {
        use std::sync::Arc;

        use crate::domain::event::{Envelope, Event, GPU_EVENTS, Origin};
        use crate::domain::ids::HostId;
        use crate::domain::world::World;

        let info = GpuInfo { uuid: GpuUuid::from("GPU-0"), ..GpuInfo::unknown(0) };
        let sample =
            |errors: u64| GpuSample { ecc_uncorrected: Reading::Value(errors), ..GpuSample::unknown(0) };
        let mut world = World::default();
        let mut tell = |seq: u64, event: Event| {
            let origin = Origin::Host(HostId::from("a"));
            world.apply(&Envelope { seq, at: at(seq as i64), origin, event });
            world.hosts[&HostId::from("a")].clone()
        };
        let described = serde_json::json!({
            "hostname": "a", "kernel": "", "arch": "", "user": "", "cpus": 1, "memory_total": null, "boot_id": "",
            "agent_version": "", "addresses": [], "gpus": [info], "driver": null, "cuda_driver": null, "nccl": null,
        });
        let sampled = |gpu: GpuSample| {
            let rest = serde_json::json!({
                "cpu_percent": null, "memory_used": null, "load": null, "net_rx": null, "net_tx": null, "gpus": [gpu],
            });
            Event::HostSampled { sample: serde_json::from_value(rest).map(Arc::new).unwrap() }
        };
        tell(1, Event::HostDescribed { info: serde_json::from_value(described).map(Arc::new).unwrap() });
        tell(2, sampled(sample(4)));
        tell(3, Event::GpuHappened { event: xid(0, 79) });
        let state = tell(4, sampled(sample(6)));
        let told: Vec<String> = state.gpu_events.newest().map(SeenEvent::words).collect();
        let expected = [
            "ecc error ×2: memory errors that ECC could not correct",
            "xid 79: the GPU has fallen off the bus",
        ];
        assert_eq!(told, expected);
        let state = tell(5, Event::Gap { what: GPU_EVENTS.to_owned(), dropped: 7 });
        assert_eq!(state.dropped, 0, "no sample was lost");
    }

    #[test]
    fn the_same_again_is_counted_and_the_list_is_bounded() {
        let mut events = GpuEvents::default();
        events.add(at(1), &xid(0, 31));
        events.add(at(2), &xid(1, 79));
        events.add(at(3), &GpuEvent { count: 4, ..xid(0, 31) });
        let told: Vec<_> =
            events.newest().map(|seen| (seen.event.index, seen.event.count, seen.first, seen.last)).collect();
        assert_eq!(told, [(0, 5, at(1), at(3)), (1, 1, at(2), at(2))]);
        assert_eq!(
            events.newest().next().unwrap().words(),
            "xid 31 ×5: page fault: a program accessed an address that is not mapped"
        );
        for number in 0..2 * KEPT as u32 {
            events.add(at(9), &xid(5, 1000 + number));
        }
        assert_eq!(events.newest().count(), KEPT);
        assert_eq!(events.of(&GpuUuid::from("GPU-1")).count(), 0, "the oldest went");
    }

    #[test]
    fn an_event_is_a_fault_for_an_hour_or_until_acknowledged() {
        let mut events = GpuEvents::default();
        let uuid = GpuUuid::from("GPU-0");
        events.add(at(10), &xid(0, 31));
        events.add(at(20), &xid(0, 79));
        events.add(at(20), &GpuEvent { what: Happening::EccCorrected, ..xid(0, 0) });
        events.add(at(20), &xid(1, 74));
        let words = |now: i64, acknowledged: Option<i64>| -> Vec<(String, Severity)> {
            let faults = events.faults(&uuid, at(now), acknowledged.map(at));
            faults.into_iter().map(|fault| (fault.words, fault.severity)).collect()
        };
        let both = [("xid 79".to_owned(), Severity::Act), ("xid 31".to_owned(), Severity::Look)];
        assert_eq!(words(21, None), both);
        assert_eq!(words(3609, None), both);
        assert_eq!(words(3615, None), both[..1]);
        assert_eq!(words(3620, None), []);
        assert_eq!(words(21, Some(15)), both[..1]);
        assert_eq!(words(21, Some(20)), []);
        let mut again = events.clone();
        again.add(at(30), &xid(0, 31));
        assert_eq!(again.faults(&uuid, at(31), Some(at(20))).len(), 1, "what comes after it is new");
    }
}
