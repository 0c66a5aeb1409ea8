//! `watch --json`: the world as one object a tick. Pure.
//!
//! ```text
//! version   of this form, 1
//! type      "tick"; lines of type "alert" stand between them
//! at        the client's clock, RFC 3339
//! hosts[]   in the order of the hosts file
//!   name, address
//!   link      {"link": "up"}, {"link": "down", "reason": …, "retry_at": RFC 3339} …; null before the first try
//!   link_s    seconds since the link's state began
//!   down_s    seconds since the link was lost, through all retries; null while it is up or was never lost
//!   age_s     seconds since the sample came; null without one
//!   rtt_ms    the latest round trip; null before the first
//!   slots     how many ranks the host takes; null before its facts are known
//!   info      its facts; null before they are known
//!   leases    who holds its GPUs for runs, and who waits for them; null before it has told, and without a GPU
//!   gpus      of each GPU whether it is free and if not, what is on it; null before the facts are known
//!   gpu_events  what happened to its GPUs since this program began, or the host was booted: XID errors and the like, the newest first
//!   sample    its latest values; in it null is a value that the device does not have, {"error": …} a failed one
//! ```

use serde::Serialize;
use serde_json::Value;

use super::errors::Failure;
use crate::config::HostConfig;
use crate::domain::gpu::GpuInfo;
use crate::domain::gpu::event::{GpuEvent, SeenEvent};
use crate::domain::gpu::health::Severity;
use crate::domain::host::{HostInfo, HostSample, LinkState};
use crate::domain::occupancy::Occupancy;
use crate::domain::time::Stamp;
use crate::domain::world::{HostState, World};
use crate::launcher::inventory;

/// The version of every object that the commands print as JSON. It grows when a field changes its meaning or goes; a new
/// field changes nothing.
pub const VERSION: u32 = 1;

/// A moment as every JSON and CSV of the commands has it: RFC 3339, UTC, milliseconds.
pub fn moment(at: Stamp) -> String {
    at.rfc3339()
}

/// An object on a line of its own.
pub(crate) fn line(object: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(object).map_err(|error| Failure::bug(format!("write JSON: {error}")))?;
    Ok(text + "\n")
}

/// A link's state, with its moments as text.
fn link(state: &LinkState) -> Value {
    let mut value = serde_json::to_value(state).unwrap_or_default();
    if let LinkState::Down { retry_at: Some(at), .. } = state {
        value["retry_at"] = moment(*at).into();
    }
    value
}

/// Who holds a host's GPUs, with the moments as text: unknown before the host's clock is placed on this one.
fn leases(state: &HostState) -> Option<Value> {
    let leases = state.leases.as_ref()?;
    let mut value = serde_json::to_value(leases).unwrap_or_default();
    for (name, of) in [("held", &leases.held), ("beside", &leases.beside)] {
        let told = value.get_mut(name).and_then(Value::as_array_mut);
        for (lease, told) in of.iter().zip(told.into_iter().flatten()) {
            told["since"] = lease.since.and_then(|since| state.clock.stamp(since)).map(moment).into();
        }
    }
    Some(value)
}

/// One tick.
#[derive(Debug, Serialize)]
pub struct Tick<'a> {
    version: u32,
    r#type: &'static str,
    at: String,
    hosts: Vec<Host<'a>>,
}

#[derive(Debug, Serialize)]
struct Host<'a> {
    name: &'a str,
    address: String,
    link: Option<Value>,
    link_s: Option<f64>,
    down_s: Option<f64>,
    age_s: Option<f64>,
    rtt_ms: Option<f64>,
    slots: Option<usize>,
    info: Option<&'a HostInfo>,
    sample: Option<&'a HostSample>,
    leases: Option<Value>,
    gpus: Option<Vec<Gpu>>,
    gpu_events: Vec<HappenedToGpu<'a>>,
}

#[derive(Debug, Serialize)]
struct HappenedToGpu<'a> {
    #[serde(flatten)]
    event: &'a GpuEvent,
    first: String,
    last: String,
    meaning: &'static str,
    remedy: &'static str,
    severity: Option<&'static str>,
}

fn happened(seen: &SeenEvent) -> HappenedToGpu<'_> {
    let what = seen.event.what;
    HappenedToGpu {
        event: &seen.event,
        first: moment(seen.first),
        last: moment(seen.last),
        meaning: what.meaning(),
        remedy: what.remedy(),
        severity: what.severity().map(|severity| match severity {
            Severity::Act => "act",
            Severity::Look => "look",
        }),
    }
}

#[derive(Debug, Serialize)]
struct Gpu {
    index: u32,
    free: bool,
    why: Option<String>,
}

/// The world as it is at `now`, hosts in the order of `hosts`.
pub fn tick<'a>(world: &'a World, hosts: &'a [HostConfig], now: Stamp) -> Tick<'a> {
    // a clock that is set back must not make anything newer than now
    let age = |since: Stamp| now.seconds_since(since).max(0.0);
    let host = |config: &'a HostConfig| {
        let state = world.hosts.get(&config.id);
        let link = state.and_then(|state| state.link.as_ref());
        let latest = state.and_then(|state| state.latest());
        let info = state.and_then(|state| state.info.as_deref());
        let limited = state.is_some_and(HostState::is_limited);
        let slots = |info: &HostInfo| if limited { 0 } else { inventory::slots(config.slots, info).len() };
        Host {
            name: config.id.as_str(),
            address: config.address.to_string(),
            link: link.map(|(_, state)| self::link(state)),
            link_s: link.map(|(since, _)| age(*since)),
            down_s: state.and_then(|state| state.down_since).map(age),
            age_s: latest.map(|(at, _)| age(at)),
            rtt_ms: state.and_then(|state| state.clock.rtt_us()).map(|rtt| f64::from(rtt) / 1e3),
            slots: info.map(slots),
            info,
            sample: latest.map(|(_, sample)| sample),
            leases: state.and_then(leases),
            gpus: state.zip(info).map(|(state, info)| gpus(config, state, info, now)),
            gpu_events: state.into_iter().flat_map(|state| state.gpu_events.newest()).map(happened).collect(),
        }
    };
    Tick { version: VERSION, r#type: "tick", at: moment(now), hosts: hosts.iter().map(host).collect() }
}

fn gpus(config: &HostConfig, state: &HostState, info: &HostInfo, now: Stamp) -> Vec<Gpu> {
    let latest = state.latest().map(|(_, sample)| sample);
    let gpu = |gpu: &GpuInfo| {
        let sample = latest.and_then(|sample| sample.gpus.iter().find(|live| live.index == gpu.index));
        let occupancy = Occupancy::of(gpu, state.leases.as_ref(), sample, config.free_memory)
            .unless_off_bus(state.is_off_bus(gpu, now));
        let free = occupancy.is_free();
        Gpu { index: gpu.index, free, why: (!free).then(|| occupancy.words(&|_| None)) }
    };
    info.gpus.iter().map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixtures::{NOW, hosts, world};
    use crate::domain::clock_fit::ClockFit;

    #[test]
    fn one_object_holds_all_hosts() {
        let (world, hosts) = (world(), hosts());
        let value = serde_json::to_value(tick(&world, &hosts, NOW)).unwrap();
        let names: Vec<&str> =
            value["hosts"].as_array().unwrap().iter().map(|h| h["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["gpu-a", "cpu", "gpu-c", "gpu-d", "gpu-e", "new"]);
        insta::assert_snapshot!("watch_json", serde_json::to_string_pretty(&value).unwrap());
    }

    #[test]
    fn a_lease_is_since_a_moment_or_since_when_is_unknown() {
        let (mut world, hosts) = (world(), hosts());
        let since = |world: &World| {
            let value = serde_json::to_value(tick(world, &hosts, NOW)).unwrap();
            value["hosts"][0]["leases"]["held"][0]["since"].clone()
        };
        assert_eq!(since(&world), "2026-11-21T14:32:07.115Z");
        world.hosts.get_mut(&hosts[0].id).unwrap().clock = ClockFit::default();
        assert_eq!(since(&world), Value::Null, "before the first ping");
    }
}
