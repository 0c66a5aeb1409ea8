//! Hosts for the tests of this module.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::inventory::HostFacts;
use crate::domain::host::InterfaceAddress;
use crate::domain::ids::{GpuUuid, HostId, RunId};
use crate::domain::run::{RunSpec, Slot, Spool};
use crate::domain::time::Stamp;
use crate::launch::request::{LaunchRequest, PlacementSpec};

pub(super) fn host(name: &str, slots: Vec<Slot>) -> HostFacts {
    HostFacts {
        topology: None,
        slice_of: BTreeMap::new(),
        divided: BTreeMap::new(),
        lost: BTreeMap::new(),
        no_gpu: None,
        driver_fails: false,
        id: HostId::from(name),
        slots,
        busy: BTreeMap::new(),
        at_risk: BTreeMap::new(),
        models: BTreeMap::new(),
        left_out: BTreeMap::new(),
        in_use: std::collections::BTreeSet::new(),
        env: BTreeMap::new(),
        workdir: None,
        spool: Spool::default(),
        max_silence_ms: None,
        python_hooks: true,
        interface: None,
        addresses: Vec::new(),
        ssh_server_address: None,
        ssh_client_address: None,
        local: false,
        absent: None,
        environment: crate::domain::environment::EnvironmentPlan::default(),
        lease_dir: None,
        container: None,
        machine: (name.to_owned(), String::new()),
    }
}

pub(super) fn gpu_host(name: &str, gpus: u32) -> HostFacts {
    let gpu = |index| Slot::Gpu { index, uuid: GpuUuid::from(format!("GPU-{name}-{index}")) };
    host(name, (0..gpus).map(gpu).collect())
}

pub(super) fn cpu_host(name: &str, slots: u32) -> HostFacts {
    host(name, (0..slots).map(|index| Slot::Cpu { index }).collect())
}

pub(super) fn with_addresses(mut host: HostFacts, addresses: &[(&str, &str)]) -> HostFacts {
    let address = |(interface, ip): &(&str, &str)| InterfaceAddress {
        interface: (*interface).to_owned(),
        address: ip.parse::<IpAddr>().unwrap(),
    };
    host.addresses = addresses.iter().map(address).collect();
    host
}

pub(super) fn request(command: &str, place: PlacementSpec) -> LaunchRequest {
    LaunchRequest { place, ..LaunchRequest::of(command.split_whitespace().map(str::to_owned).collect()) }
}

/// A run of one rank on the first slot of each host, in this order.
pub(super) fn one_each(hosts: &[HostFacts]) -> RunSpec {
    let list = hosts.iter().map(|host| (host.id.clone(), 1)).collect();
    let request = request("true", PlacementSpec::Hosts { hosts: list, np: None });
    let placements = super::place::place(&request, hosts).unwrap();
    super::plan::spec(&request, placements, RunId::new(1, 2), Stamp(0))
}
