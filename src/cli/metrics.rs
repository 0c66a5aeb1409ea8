//! `watch --prometheus` and `watch --csv`: the world as numbers with units, from one table of metrics. Pure.
//!
//! A value that is not known is left out, never 0; of a host that is not up there is nothing but that.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::json::moment;
use crate::config::HostConfig;
use crate::domain::gpu::{GpuInfo, GpuSample, Reading};
use crate::domain::host::{HostInfo, HostSample, LinkState};
use crate::domain::occupancy::Occupancy;
use crate::domain::quote::{csv_cell as quoted, prometheus_label as label};
use crate::domain::time::Stamp;
use crate::domain::world::{HostState, World};

/// One number in base units, by a function of what it is of.
struct Metric<F> {
    /// Prometheus' name without `hvtui_host_` or `hvtui_gpu_`; in CSV behind `host_` or `gpu_`.
    name: &'static str,
    help: &'static str,
    value: F,
}

/// A host that is up.
struct Host<'a> {
    config: &'a HostConfig,
    state: &'a HostState,
    info: Option<&'a HostInfo>,
    sample: Option<&'a HostSample>,
    now: Stamp,
}

/// A GPU of such a host.
struct Gpu<'a> {
    host: &'a Host<'a>,
    info: &'a GpuInfo,
    sample: Option<&'a GpuSample>,
}

type OfHost = fn(&Host<'_>) -> Option<f64>;
type OfGpu = fn(&Gpu<'_>) -> Option<f64>;

fn number<T: Copy>(reading: &Reading<T>, scale: fn(T) -> f64) -> Option<f64> {
    reading.value().map(|value| scale(*value))
}

/// A number of single precision without the digits that it does not have.
fn rounded(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

const HOST: [Metric<OfHost>; 9] = [
    Metric {
        name: "sample_age_seconds",
        help: "Time since the latest sample of the host came.",
        value: |host| host.state.latest().map(|(at, _)| host.now.seconds_since(at)),
    },
    Metric {
        name: "rtt_seconds",
        help: "Latest round trip to the host's agent.",
        value: |host| host.state.clock.rtt_us().map(|rtt| f64::from(rtt) / 1e6),
    },
    Metric { name: "cpus", help: "CPUs of the host.", value: |host| Some(f64::from(host.info?.cpus)) },
    Metric {
        name: "cpu_utilization_ratio",
        help: "Busy share of all CPUs since the sample before, 0 to 1.",
        value: |host| number(&host.sample?.cpu_percent, |percent| rounded(f64::from(percent) / 100.0)),
    },
    Metric {
        name: "load1",
        help: "Load average over one minute.",
        value: |host| number(&host.sample?.load, |load| rounded(f64::from(load[0]))),
    },
    Metric {
        name: "memory_total_bytes",
        help: "Memory of the host.",
        value: |host| number(&host.info?.memory_total, |bytes| bytes as f64),
    },
    Metric {
        name: "memory_used_bytes",
        help: "Memory that is not available to new work.",
        value: |host| number(&host.sample?.memory_used, |bytes| bytes as f64),
    },
    Metric {
        name: "network_receive_bytes_per_second",
        help: "Bytes received over all interfaces but loopback.",
        value: |host| number(&host.sample?.net_rx, |bytes| bytes as f64),
    },
    Metric {
        name: "network_transmit_bytes_per_second",
        help: "Bytes sent over all interfaces but loopback.",
        value: |host| number(&host.sample?.net_tx, |bytes| bytes as f64),
    },
];

const GPU: [Metric<OfGpu>; 9] = [
    Metric {
        name: "free",
        help: "1 when the GPU is free, by the rule that launches use, else 0.",
        value: |gpu| {
            let Host { config, state, now, .. } = gpu.host;
            let occupancy = Occupancy::of(gpu.info, state.leases.as_ref(), gpu.sample, config.free_memory)
                .unless_off_bus(state.is_off_bus(gpu.info, *now));
            Some(f64::from(u8::from(occupancy.is_free())))
        },
    },
    Metric {
        name: "utilization_ratio",
        help: "Share of time in which a kernel ran, 0 to 1.",
        value: |gpu| number(&gpu.sample?.util, |percent| f64::from(percent) / 100.0),
    },
    Metric {
        name: "memory_total_bytes",
        help: "Memory of the GPU.",
        value: |gpu| number(&gpu.info.memory_total, |bytes| bytes as f64),
    },
    Metric {
        name: "memory_used_bytes",
        help: "Memory of the GPU in use.",
        value: |gpu| number(&gpu.sample?.memory_used, |bytes| bytes as f64),
    },
    Metric {
        name: "temperature_celsius",
        help: "Temperature of the GPU.",
        value: |gpu| number(&gpu.sample?.temperature, f64::from),
    },
    Metric {
        name: "power_watts",
        help: "Power draw of the GPU.",
        value: |gpu| number(&gpu.sample?.power_mw, |power| f64::from(power) / 1e3),
    },
    Metric {
        name: "power_limit_watts",
        help: "Enforced power limit of the GPU.",
        value: |gpu| number(&gpu.sample?.power_limit_mw, |power| f64::from(power) / 1e3),
    },
    Metric {
        name: "sm_clock_hertz",
        help: "Clock of the streaming multiprocessors.",
        value: |gpu| number(&gpu.sample?.clock_sm_mhz, |clock| f64::from(clock) * 1e6),
    },
    Metric {
        name: "memory_clock_hertz",
        help: "Clock of the GPU's memory.",
        value: |gpu| number(&gpu.sample?.clock_memory_mhz, |clock| f64::from(clock) * 1e6),
    },
];

/// A host as it is now; none while it is not up: what was true is not said of now.
fn host<'a>(world: &'a World, config: &'a HostConfig, now: Stamp) -> Option<Host<'a>> {
    let state = world.hosts.get(&config.id)?;
    let is_up = matches!(state.link, Some((_, LinkState::Up | LinkState::Limited { .. })));
    let sample = state.latest().map(|(_, sample)| sample);
    is_up.then_some(Host { config, state, info: state.info.as_deref(), sample, now })
}

fn gpus<'a>(host: &'a Host<'a>) -> impl Iterator<Item = Gpu<'a>> {
    let of = |info: &'a GpuInfo| {
        let sample = host.sample.and_then(|sample| sample.gpus.iter().find(|live| live.index == info.index));
        Gpu { host, info, sample }
    };
    // a GPU that is told twice is one: two series of one name make the whole file worthless
    let mut seen = BTreeSet::new();
    let gpus = host.info.into_iter().flat_map(|info| &info.gpus);
    gpus.filter(move |info| seen.insert((info.index, &info.uuid))).map(of)
}

/// Prometheus' text format, version 0.0.4: one gauge after the other, each with HELP and TYPE.
pub fn prometheus(world: &World, hosts: &[HostConfig], now: Stamp) -> String {
    let up: Vec<(&HostConfig, Option<Host<'_>>)> =
        hosts.iter().map(|config| (config, host(world, config, now))).collect();
    let live: Vec<&Host<'_>> = up.iter().filter_map(|(_, host)| host.as_ref()).collect();
    let mut out = String::new();
    let lines = up.iter().map(|(config, host)| {
        (format!("host={}", label(config.id.as_str())), Some(f64::from(u8::from(host.is_some()))))
    });
    family(&mut out, "hvtui_host_up", "1 when the host's values come, else 0.", lines);
    for metric in &HOST {
        let value =
            |host: &&Host<'_>| (format!("host={}", label(host.config.id.as_str())), (metric.value)(host));
        family(&mut out, &format!("hvtui_host_{}", metric.name), metric.help, live.iter().map(value));
    }
    let of_gpu = |gpu: &Gpu<'_>| {
        let (host, uuid) = (label(gpu.host.config.id.as_str()), label(gpu.info.uuid.as_str()));
        format!("host={host},gpu=\"{}\",uuid={uuid}", gpu.info.index)
    };
    let names = live.iter().flat_map(|host| gpus(host));
    let names = names.map(|gpu| {
        let whole = gpu.info.parent.map(|whole| format!(",slice_of=\"{whole}\"")).unwrap_or_default();
        (format!("{},name={}{whole}", of_gpu(&gpu), label(&gpu.info.name)), Some(1.0))
    });
    family(&mut out, "hvtui_gpu_info", "Model of the GPU, in the label name; the value is 1.", names);
    for metric in &GPU {
        let lines = live.iter().flat_map(|host| gpus(host));
        let lines = lines.map(|gpu| (of_gpu(&gpu), (metric.value)(&gpu)));
        family(&mut out, &format!("hvtui_gpu_{}", metric.name), metric.help, lines);
    }
    out
}

/// One metric with all its values; nothing where there is none.
fn family(out: &mut String, name: &str, help: &str, values: impl Iterator<Item = (String, Option<f64>)>) {
    let mut values = values.filter_map(|(labels, value)| Some((labels, value?))).peekable();
    if values.peek().is_some() {
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n");
    }
    for (labels, value) in values {
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
}

/// The first line of the CSV: names with their units.
pub fn csv_head() -> String {
    let hosts = HOST.iter().map(|metric| format!("host_{}", metric.name));
    let gpus = GPU.iter().map(|metric| format!("gpu_{}", metric.name));
    let fixed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut cells = fixed(&["at", "host", "host_up"]);
    cells.extend(hosts);
    cells.extend(fixed(&["gpu", "gpu_uuid", "gpu_name"]));
    cells.extend(gpus);
    cells.join(",") + "\r\n"
}

/// One tick as lines of CSV (RFC 4180): one a GPU, or one for a host without any. An unknown value is an empty cell.
pub fn csv(world: &World, hosts: &[HostConfig], now: Stamp) -> String {
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut out = String::new();
    for config in hosts {
        let host = host(world, config, now);
        let up = if host.is_some() { "1" } else { "0" };
        let mut front = vec![moment(now), quoted(config.id.as_str()), up.to_owned()];
        front.extend(HOST.iter().map(|metric| number(host.as_ref().and_then(|host| (metric.value)(host)))));
        let mut rows: Vec<Vec<String>> = Vec::new();
        for gpu in host.iter().flat_map(gpus) {
            let mut row =
                vec![gpu.info.index.to_string(), quoted(gpu.info.uuid.as_str()), quoted(&gpu.info.name)];
            row.extend(GPU.iter().map(|metric| number((metric.value)(&gpu))));
            rows.push(row);
        }
        if rows.is_empty() {
            rows.push(vec![String::new(); 3 + GPU.len()]);
        }
        for row in rows {
            let _ = write!(out, "{},{}\r\n", front.join(","), row.join(","));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixtures::{NOW, hosts, world};

    #[test]
    fn every_metric_has_help_and_type_once_and_an_unknown_value_is_left_out() {
        let text = prometheus(&world(), &hosts(), NOW);
        insta::assert_snapshot!("watch_prometheus", text);
        for metric in text.lines().filter(|line| !line.starts_with('#')) {
            let name = metric.split('{').next().unwrap();
            assert_eq!(text.matches(&format!("# TYPE {name} gauge\n")).count(), 1, "{metric}");
        }
        assert!(!text.contains("gpu_utilization_ratio{host=\"gpu-a\",gpu=\"2\""), "a MIG parent has none");
    }

    #[test]
    fn every_line_of_csv_has_all_cells() {
        let text = csv_head() + &csv(&world(), &hosts(), NOW);
        insta::assert_snapshot!("watch_csv", text.replace("\r\n", "\n"));
        let cells = |line: &str| line.matches(',').count();
        assert!(text.lines().all(|line| cells(line) == cells(&csv_head())), "{text}");
    }
}
