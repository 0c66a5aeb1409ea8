//! The ports that a launch takes on its hosts, as far as its command and its variables name them. Those that hvtui chooses are
//! held free by their host until the ranks start, and need no look.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use crate::domain::doctor::RunPort;
use crate::domain::ids::HostId;
use crate::domain::run::{HostRun, JobKind, RunSpec};

/// Ports of one host that are told.
pub const MOST_PORTS: usize = 16;
/// The one of a rendezvous of torchrun's that names none.
const RENDEZVOUS: u16 = 29_400;
/// Options, and torchrun's own variables, that say where ranks meet.
const PORTS: [&str; 3] = ["--master-port", "--master_port", "PET_MASTER_PORT"];
const ADDRESSES: [&str; 3] = ["--master-addr", "--master_addr", "PET_MASTER_ADDR"];
const ENDPOINTS: [&str; 3] = ["--rdzv-endpoint", "--rdzv_endpoint", "PET_RDZV_ENDPOINT"];
const URLS: [&str; 4] = ["--dist-url", "--dist_url", "--init-method", "--init_method"];

/// The ports that a launch takes, by host.
pub fn ports(spec: &RunSpec, shares: &[HostRun]) -> BTreeMap<HostId, Vec<RunPort>> {
    let mut ports: BTreeMap<HostId, Vec<RunPort>> = BTreeMap::new();
    if spec.kind == JobKind::Slurm {
        // which hosts its ranks are on is Slurm's to say
        return ports;
    }
    let mut add = |host: &HostId, port: u16, whose: String| {
        let of_host = ports.entry(host.clone()).or_default();
        if port > 0 && of_host.len() < MOST_PORTS && of_host.iter().all(|one| one.port != port) {
            of_host.push(RunPort { port, whose });
        }
    };
    for share in shares {
        let configs = share.ranks.iter().filter_map(|rank| rank.env.get("TF_CONFIG"));
        for (port, task) in configs.filter_map(|text| own_task(text)) {
            add(&share.host, port, format!("TF_CONFIG's {task}"));
        }
    }
    for (host, port, whose) in meetings(spec, shares) {
        add(host, port, whose);
    }
    ports.retain(|_, of_host| !of_host.is_empty());
    ports
}

/// Whether the ranks of a launch meet at a host of it that is named: by its name or address, not as the own machine.
pub(super) fn meets(spec: &RunSpec, shares: &[HostRun]) -> bool {
    let place = |(name, value): &(&str, &str)| {
        let place = if ADDRESSES.contains(name) {
            Some(*value)
        } else if ENDPOINTS.contains(name) {
            Some(value.rsplit_once(':').map_or(*value, |(place, _)| place))
        } else if URLS.contains(name) {
            let rest = value.strip_prefix("tcp://")?;
            Some(rest.rsplit_once(':')?.0)
        } else {
            None
        };
        of_place(place?, None, shares)
    };
    let ranks = || shares.iter().flat_map(|share| &share.ranks);
    told(spec, shares).iter().any(|one| place(one).is_some())
        || ranks().any(|rank| rank.env.get("TF_CONFIG").is_some_and(|text| own_task(text).is_some()))
}

/// The port of the task that a `TF_CONFIG` is for, and its name: `worker 0`.
fn own_task(text: &str) -> Option<(u16, String)> {
    let config: Value = serde_json::from_str(text).ok()?;
    let (role, index) = (config["task"]["type"].as_str()?, config["task"]["index"].as_u64()?);
    let address = config["cluster"][role].get(usize::try_from(index).ok()?)?.as_str()?;
    let (_, port) = address.rsplit_once(':')?;
    Some((port.parse().ok()?, format!("{role} {index}")))
}

/// Where the command says that its ranks meet: on which host, at which port, and by which option.
fn meetings<'a>(spec: &'a RunSpec, shares: &'a [HostRun]) -> Vec<(&'a HostId, u16, String)> {
    let first = spec.placements.first().map(|placement| &placement.host);
    let told = told(spec, shares);
    let value = |names: &[&str]| told.iter().find(|(name, _)| names.contains(name)).copied();
    let host = |place: &str| of_place(place, first, shares);
    let mut meetings = Vec::new();
    if let Some((name, port)) = value(&PORTS) {
        let at = value(&ADDRESSES).map_or(first, |(_, place)| host(place));
        meetings.extend(at.zip(port.parse().ok()).map(|(at, port)| (at, port, name.to_owned())));
    }
    if let Some((name, endpoint)) = value(&ENDPOINTS) {
        let (place, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
        let port = if port.is_empty() { Some(RENDEZVOUS) } else { port.parse().ok() };
        meetings.extend(host(place).zip(port).map(|(at, port)| (at, port, name.to_owned())));
    }
    for (name, url) in told.iter().filter(|(name, _)| URLS.contains(name)) {
        let address = url.strip_prefix("tcp://").map(|rest| rest.split(['/', '?']).next().unwrap_or(rest));
        let Some((place, port)) = address.and_then(|address| address.rsplit_once(':')) else { continue };
        meetings.extend(host(place).zip(port.parse().ok()).map(|(at, port)| (at, port, (*name).to_owned())));
    }
    meetings
}

/// Options with their values, and variables of the first rank.
fn told<'a>(spec: &'a RunSpec, shares: &'a [HostRun]) -> Vec<(&'a str, &'a str)> {
    let options = spec.options.delegate.as_ref().map_or(&[][..], |launcher| launcher.options.as_slice());
    let mut told = Vec::new();
    for words in [options, spec.command.as_slice()] {
        for (at, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("--")) {
            match word.split_once('=') {
                Some(pair) => told.push(pair),
                None => told.extend(words.get(at + 1).map(|value| (word.as_str(), value.as_str()))),
            }
        }
    }
    let rank = shares.first().and_then(|share| share.ranks.first());
    let variables = rank.into_iter().flat_map(|rank| &rank.env);
    told.extend(variables.map(|(name, value)| (name.as_str(), value.as_str())));
    told
}

/// The host of the launch that is called so; `None` for a machine that is none of them.
fn of_place<'a>(place: &str, first: Option<&'a HostId>, shares: &'a [HostRun]) -> Option<&'a HostId> {
    let bare = place.trim_matches(['[', ']']);
    let address: Option<IpAddr> = bare.parse().ok();
    if bare == "localhost" || address.is_some_and(|address| address.is_loopback() || address.is_unspecified())
    {
        return first;
    }
    let label = bare.split('.').next().unwrap_or(bare);
    let is_it = |share: &&HostRun| match address {
        Some(_) => share.ranks.iter().any(|rank| rank.env.get("HVTUI_BIND").is_some_and(|own| own == bare)),
        None => share.host.as_str() == bare || share.host.as_str() == label,
    };
    shares.iter().find(is_it).map(|share| &share.host)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{shares, spec};
    use super::*;

    fn of(command: &[&str], env: &[(&str, &str)]) -> Vec<(String, u16, String)> {
        let mut spec = spec(JobKind::Plain, "python3", &["a", "b"]);
        spec.command = command.iter().map(|word| (*word).to_owned()).collect();
        let mut shares = shares(&spec, env);
        for (share, bind) in shares.iter_mut().zip(["10.0.0.1", "10.0.0.2"]) {
            for rank in &mut share.ranks {
                rank.env.insert("HVTUI_BIND".to_owned(), bind.to_owned());
            }
        }
        let all = ports(&spec, &shares);
        let each = |(host, ports): (HostId, Vec<RunPort>)| {
            ports.into_iter().map(move |one| (host.to_string(), one.port, one.whose)).collect::<Vec<_>>()
        };
        all.into_iter().flat_map(each).collect()
    }

    fn one(host: &str, port: u16, whose: &str) -> Vec<(String, u16, String)> {
        vec![(host.to_owned(), port, whose.to_owned())]
    }

    #[test]
    fn ports_are_those_that_the_command_names_on_the_host_that_it_names() {
        for (words, wanted) in [
            ("python3 t.py --dist-url tcp://10.0.0.2:23456", one("b", 23_456, "--dist-url")),
            ("python3 t.py --init_method=tcp://b.lab:23456/x", one("b", 23_456, "--init_method")),
            ("python3 t.py --dist-url tcp://localhost:23456", one("a", 23_456, "--dist-url")),
            ("torchrun --master_port=29501 t.py", one("a", 29_501, "--master_port")),
            ("torchrun --master-addr b --master-port 29501 t.py", one("b", 29_501, "--master-port")),
            ("torchrun --rdzv-endpoint b t.py", one("b", 29_400, "--rdzv-endpoint")),
            ("torchrun --rdzv-endpoint=etcd.lab:2379 t.py", Vec::new()),
            ("python3 t.py --dist-url env:// --port 80", Vec::new()),
            ("python3 t.py --master-port none", Vec::new()),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert_eq!(of(&words, &[]), wanted, "{words:?}");
        }
        assert_eq!(of(&["x"], &[("PET_MASTER_PORT", "29511")]), one("a", 29_511, "PET_MASTER_PORT"));
    }

    #[test]
    fn of_a_tf_config_the_task_that_it_is_for_counts() {
        let config =
            r#"{"cluster": {"worker": ["a:2222", "b:2223"]}, "task": {"type": "worker", "index": 1}}"#;
        let both = of(&["python3", "t.py"], &[("TF_CONFIG", config)]);
        let each = |host: &str| (host.to_owned(), 2223, "TF_CONFIG's worker 1".to_owned());
        assert_eq!(both, [each("a"), each("b")], "as every rank is told the same");
        for bad in ["", "{}", r#"{"cluster": {}, "task": {"type": "worker", "index": 1}}"#] {
            assert_eq!(of(&["python3"], &[("TF_CONFIG", bad)]), []);
        }
    }
}
