//! What NVML tells unasked: XID errors and ECC errors of any GPU, as they come.
//!
//! Waiting for them may block for ever on a broken GPU, so this is called on a thread of its own. Knows no clock.

use std::path::Path;
use std::thread;
use std::time::Duration;

use nvml_wrapper::EventSet;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::event::EventData;

use super::nvml::Session;
use crate::domain::gpu::event::{GpuEvent, Happening};
use crate::domain::ids::GpuUuid;

/// So long one wait takes at most, milliseconds: then the listener is asked whether to go on.
const WAIT_MS: u32 = 1000;
/// So long a host is left alone that has no driver, or no GPU that tells events.
const PAUSE: Duration = Duration::from_secs(10);
/// So long NVML is left alone after a GPU is lost, and its set with it.
const LOST_PAUSE: Duration = Duration::from_millis(500);
/// So many kinds of events are told at once.
const AT_ONCE: usize = 256;
/// After so many events they are told, though more wait: a broken GPU can bring them faster than they are read.
const MOST: u64 = 4096;
/// What NVML calls an XID without a number.
const UNKNOWN_XID: u32 = 999;

/// A GPU whose events come, and its handle as a number.
struct Registered {
    handle: usize,
    index: u32,
    uuid: GpuUuid,
}

/// Tells what happens, the same of a GPU in one with its count, until `tell` returns `false`. An empty list
/// is told about each second in which nothing happens.
pub(super) fn watch(library: &Path, tell: &mut dyn FnMut(Vec<GpuEvent>) -> bool) {
    loop {
        let pause = match Session::open(library) {
            Ok(session) => listen(&session, tell),
            Err(_) => Some(PAUSE),
        };
        match pause {
            Some(pause) if tell(Vec::new()) => thread::sleep(pause),
            _ => return,
        }
    }
}

/// After which pause NVML has to be opened anew; `None` when the listener wants no more.
fn listen(session: &Session, tell: &mut dyn FnMut(Vec<GpuEvent>) -> bool) -> Option<Duration> {
    let Ok(set) = session.event_set() else { return Some(PAUSE) };
    let registered: Vec<Registered> =
        (0..session.count()).filter_map(|index| register(session, index, &set)).collect();
    if registered.is_empty() {
        return Some(PAUSE);
    }
    loop {
        let (batch, ended) = gather(|wait| Ok(read(&registered, &set.wait(wait)?)));
        if !tell(batch) {
            return None;
        }
        if !matches!(ended, NvmlError::Timeout) {
            return Some(LOST_PAUSE);
        }
    }
}

/// What `next` tells within the time of a wait, the same of a GPU in one with its count, and why no more is taken. `None` of it
/// is an event without words here.
fn gather(mut next: impl FnMut(u32) -> Result<Option<GpuEvent>, NvmlError>) -> (Vec<GpuEvent>, NvmlError) {
    let mut batch: Vec<GpuEvent> = Vec::new();
    let mut wait = WAIT_MS;
    for _ in 0..MOST {
        let event = match next(wait) {
            Ok(event) => event,
            Err(error) => return (batch, error),
        };
        wait = 0;
        let Some(event) = event else { continue };
        match batch.iter_mut().find(|told| told.index == event.index && told.what == event.what) {
            Some(told) => told.count += event.count,
            None => batch.push(event),
        }
        if batch.len() >= AT_ONCE {
            break;
        }
    }
    (batch, NvmlError::Timeout)
}

/// Asks for a GPU's events; `None` where it has none or can't be asked. The wrapper gives the whole set up when one GPU
/// refuses.
#[expect(unsafe_code, reason = "the wrapper consumes the set")]
fn register(session: &Session, index: u32, set: &EventSet<'_>) -> Option<Registered> {
    let device = session.device(index)?;
    let uuid = GpuUuid::from(device.uuid().ok()?);
    let register = device.nvml().lib().nvmlDeviceRegisterEvents.as_ref().ok()?;
    let wanted =
        EventTypes::CRITICAL_XID_ERROR | EventTypes::SINGLE_BIT_ECC_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
    // A GPU without ECC refuses those.
    for types in [wanted, EventTypes::CRITICAL_XID_ERROR] {
        // SAFETY: both handles are of this session and live as long as the call.
        let code = unsafe { register(device.handle(), types.bits(), set.handle()) };
        if nvml_try(code).is_ok() {
            // SAFETY: the handle is compared, and nothing is read through it.
            let handle = unsafe { device.handle() } as usize;
            return Some(Registered { handle, index, uuid });
        }
    }
    None
}

#[expect(unsafe_code, reason = "asking a lost GPU for its index may fail, its handle is known")]
fn read(registered: &[Registered], event: &EventData<'_>) -> Option<GpuEvent> {
    // SAFETY: the handle is compared, and nothing is read through it.
    let handle = unsafe { event.device.handle() } as usize;
    let gpu = registered.iter().find(|gpu| gpu.handle == handle)?;
    let what = match &event.event_data {
        Some(XidError::Value(number)) => {
            Happening::Xid { xid: u32::try_from(*number).unwrap_or(UNKNOWN_XID) }
        }
        Some(XidError::Unknown) => Happening::Xid { xid: UNKNOWN_XID },
        None if event.event_type.contains(EventTypes::DOUBLE_BIT_ECC_ERROR) => Happening::EccUncorrected,
        None if event.event_type.contains(EventTypes::SINGLE_BIT_ECC_ERROR) => Happening::EccCorrected,
        None => return None,
    };
    Some(GpuEvent { index: gpu.index, uuid: gpu.uuid.clone(), what, count: 1, t: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid(index: u32, xid: u32) -> GpuEvent {
        let uuid = GpuUuid::from(format!("GPU-{index}"));
        GpuEvent { index, uuid, what: Happening::Xid { xid }, count: 1, t: None }
    }

    #[test]
    fn a_flood_is_told_while_it_goes_on() {
        let told = |next: &mut dyn FnMut(u64) -> Option<GpuEvent>| {
            let mut taken = 0;
            let (batch, ended) = gather(|_| {
                taken += 1;
                Ok(next(taken))
            });
            assert!(matches!(ended, NvmlError::Timeout), "it goes on");
            let counts: Vec<u64> = batch.iter().map(|event| event.count).collect();
            (counts, taken)
        };
        assert_eq!(told(&mut |_| Some(xid(0, 31))), (vec![MOST], MOST), "of one kind");
        assert_eq!(told(&mut |nth| Some(xid(0, nth as u32))), (vec![1; AT_ONCE], AT_ONCE as u64), "of many");
        assert_eq!(told(&mut |_| None), (vec![], MOST), "of none");
    }

    #[test]
    fn what_comes_at_once_is_merged_by_gpu_and_kind_until_no_more_waits() {
        let mut all = [xid(0, 31), xid(1, 31), xid(0, 31)].into_iter();
        let mut waits = Vec::new();
        let (batch, ended) = gather(|wait| {
            waits.push(wait);
            all.next().map(Some).ok_or(NvmlError::GpuLost)
        });
        assert_eq!(batch, [GpuEvent { count: 2, ..xid(0, 31) }, xid(1, 31)]);
        assert!(matches!(ended, NvmlError::GpuLost));
        assert_eq!(waits, [WAIT_MS, 0, 0, 0]);
    }
}
