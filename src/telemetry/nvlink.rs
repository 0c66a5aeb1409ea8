//! What goes over a GPU's NVLinks: the difference of counters at two moments.
//!
//! Any call in here may block for ever on a broken GPU, so only the GPU's own thread calls it.

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper::struct_wrappers::device::FieldValueSample;
use nvml_wrapper::sys_exports::field_id as id;
use nvml_wrapper_sys::bindings::nvmlFieldValue_t;

use super::HostClock;
use super::counters::{NOT_YET, optional, sum, whole};
use crate::domain::gpu::Reading;
use crate::domain::time::HostTime;

/// The counters are told in these many bytes.
const KIB: u64 = 1024;

/// A counter of several links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// KiB since the driver was loaded.
    sum: u64,
    /// The links that it is the sum of, a bit each.
    links: u64,
}

/// The counters of one GPU as they were last.
#[derive(Debug, Default)]
pub(super) struct Throughput {
    last: Option<(HostTime, [Counted; 2])>,
    lacks: bool,
}

impl Throughput {
    /// Bytes a second that were received and sent over the first `links` links since the call before.
    pub(super) fn sample(&mut self, device: &Device<'_>, links: u32, clock: &HostClock) -> [Reading<u64>; 2] {
        if self.lacks || links == 0 {
            return [Reading::Unsupported, Reading::Unsupported];
        }
        match counters(device, links) {
            [Reading::Value(received), Reading::Value(sent)] => {
                let (new, now) = ([received, sent], clock());
                let last = self.last.replace((now, new));
                rates(last, now, new)
            }
            [Reading::Unsupported, sent] => {
                self.lacks = sent == Reading::Unsupported;
                [Reading::Unsupported, sent.and_then(|_| Reading::failed(NOT_YET))]
            }
            [received, sent] => {
                self.last = None;
                [received, sent].map(|reading| reading.and_then(|_| Reading::failed(NOT_YET)))
            }
        }
    }
}

fn rates(last: Option<(HostTime, [Counted; 2])>, now: HostTime, new: [Counted; 2]) -> [Reading<u64>; 2] {
    std::array::from_fn(|at| {
        let Some((then, old)) = last else { return Reading::failed(NOT_YET) };
        // A link that goes down takes its count with it, and one that comes back brings it along.
        if new[at].links != old[at].links {
            return Reading::failed("the set of active NVLinks changed");
        }
        let more = new[at].sum.checked_sub(old[at].sum);
        let (Some(more), Some(took)) = (more, now.0.checked_sub(then.0)) else {
            return Reading::failed("the counters of the NVLinks began anew");
        };
        if took == 0 {
            return Reading::failed(NOT_YET);
        }
        let bytes = u128::from(more) * u128::from(KIB) * 1_000_000 / u128::from(took);
        Reading::Value(u64::try_from(bytes).unwrap_or(u64::MAX))
    })
}

/// What was received and sent over all links since the driver was loaded.
fn counters(device: &Device<'_>, links: u32) -> [Reading<Counted>; 2] {
    let ids = [id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX];
    let fields: Vec<(u32, u32)> = ids.iter().flat_map(|id| (0..links).map(move |link| (*id, link))).collect();
    let values = match scoped_values(device, &fields) {
        Ok(values) => values,
        Err(error) => {
            let all = optional::<Counted>(Err(error));
            return [all.clone(), all];
        }
    };
    let (received, sent) = values.split_at(values.len() / 2);
    [total(received), total(sent)]
}

/// The sum over the links that have a count; without one, what the first link says. A link that is down has none, which is
/// no failure of the others.
fn total(values: &[Reading<u64>]) -> Reading<Counted> {
    let known = || values.iter().zip(0..).filter(|(value, _)| value.value().is_some());
    let links = known().fold(0, |links, (_, link): (_, u32)| links | 1u64.checked_shl(link).unwrap_or(0));
    match known().next() {
        Some(_) => sum(known().map(|(value, _)| value.clone())).map(|sum| Counted { sum, links }),
        None => values.first().cloned().unwrap_or_default().and_then(|_| Reading::Unsupported),
    }
}

/// Field values of a part of the GPU: the wrapper asks for those of the whole alone.
#[expect(unsafe_code, reason = "the wrapper has no way to name a link")]
fn scoped_values(device: &Device<'_>, fields: &[(u32, u32)]) -> Result<Vec<Reading<u64>>, NvmlError> {
    let query = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref();
    let query = query.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let mut values: Vec<nvmlFieldValue_t> = fields
        .iter()
        .map(|(field, scope)| {
            // SAFETY: numbers and a union of numbers: every bit pattern is a value.
            let empty: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            nvmlFieldValue_t { fieldId: *field, scopeId: *scope, ..empty }
        })
        .collect();
    let count = i32::try_from(values.len()).unwrap_or(0);
    // SAFETY: the handle is of this session, and the array is as long as is said.
    nvml_try(unsafe { query(device.handle(), count, values.as_mut_ptr()) })?;
    let value = |raw| -> Result<SampleValue, NvmlError> { FieldValueSample::try_from(raw)?.value };
    Ok(values.into_iter().map(|raw| whole(optional(value(raw)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_time_between_two_readings() {
        let at = |seconds: u64| HostTime(seconds * 1_000_000);
        let not_yet = || Reading::<u64>::failed(NOT_YET);
        let of = |sums: [u64; 2]| sums.map(|sum| Counted { sum, links: 0b11 });
        assert_eq!(rates(None, at(1), of([5, 6])), [not_yet(), not_yet()]);
        let before = Some((at(1), of([5, 6])));
        assert_eq!(rates(before, at(1), of([5, 6])), [not_yet(), not_yet()], "no time has passed");
        assert_eq!(rates(before, at(3), of([25, 6])), [Reading::Value(10 * KIB), Reading::Value(0)]);
        let [received, sent] = rates(before, at(3), of([4, 8]));
        assert_eq!((received.value(), sent), (None, Reading::Value(KIB)), "a counter that fell is no rate");
        let most = rates(Some((at(1), of([0, 0]))), HostTime(1_000_001), of([u64::MAX, 0]));
        assert_eq!(most[0], Reading::Value(u64::MAX), "a bound for what can't be is elsewhere");
    }

    #[test]
    fn a_link_that_comes_back_is_no_traffic() {
        let at = |seconds: u64| HostTime(seconds * 1_000_000);
        let value = Reading::Value;
        let all = [value(1000), value(2000)];
        let one = [value(1010), Reading::failed("link is down")];
        let counted = |values: &[Reading<u64>]| *total(values).value().unwrap();
        assert_eq!(counted(&all), Counted { sum: 3000, links: 0b11 });
        assert_eq!(counted(&one), Counted { sum: 1010, links: 0b01 });
        let rate = |before: &[Reading<u64>], after: &[Reading<u64>]| {
            rates(Some((at(1), [counted(before); 2])), at(2), [counted(after); 2])[0].clone()
        };
        let changed = Reading::failed("the set of active NVLinks changed");
        assert_eq!(rate(&all, &one), changed, "it goes down");
        assert_eq!(rate(&one, &all), changed, "it comes back with all that it ever counted");
        assert_eq!(rate(&one, &[value(1015), Reading::Unsupported]), value(5 * KIB));
        assert_eq!(total(&[]), Reading::Unsupported);
        assert_eq!(total(&[Reading::failed("lost")]), Reading::failed("lost"));
    }
}
