//! How a host's GPUs are connected, by NVML: asked once, as it takes some calls a pair of GPUs and a link.
//!
//! Any call in here may block for ever on a broken GPU, so only the reader's host thread calls it.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper_sys::bindings::{
    NVML_AFFINITY_SCOPE_NODE, nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as SWITCH,
};

use super::nvml::Session;
use crate::domain::gpu::topology::{Affinity, Path, Topology, cpu_ranges};

/// No GPU has more NVLinks.
const NVLINKS: u32 = 64;
/// GPUs of one host of which this is told.
const GPUS: u32 = 64;
/// Words of a set of CPUs or NUMA nodes: 4096 of them.
const WORDS: usize = 64;

/// A GPU's ends of NVLinks that are up.
#[derive(Debug, Default)]
struct Links {
    /// The PCI addresses of the GPUs at their other ends.
    gpus: Vec<String>,
    /// How many lead to a switch, from which each GPU can be reached.
    switches: usize,
}

/// How the GPUs are connected; `None` where none can be asked.
pub(super) fn of(session: &Session) -> Option<Topology> {
    let devices: Vec<Option<Device<'_>>> =
        (0..session.count().min(GPUS)).map(|index| session.device(index)).collect();
    devices.iter().flatten().next()?;
    let links: Vec<Links> =
        devices.iter().map(|device| device.as_ref().map_or_else(Links::default, links)).collect();
    let addresses: Vec<Option<String>> =
        devices.iter().map(|device| Some(device.as_ref()?.pci_info().ok()?.bus_id.to_lowercase())).collect();
    let linked = |from: usize, to: usize| match addresses.get(to) {
        Some(Some(address)) => links[from].gpus.iter().filter(|other| *other == address).count(),
        _ => 0,
    };
    let path = |a: usize, b: usize| {
        if a == b {
            return Path::Own;
        }
        let direct = linked(a, b).max(linked(b, a));
        let switched = links[a].switches.min(links[b].switches);
        match u8::try_from(direct.max(switched)) {
            Ok(count) if count > 0 => Path::NvLink(count),
            _ => match (&devices[a], &devices[b]) {
                (Some(from), Some(to)) => bus(from, to),
                _ => Path::Unknown,
            },
        }
    };
    let count = devices.len();
    let paths = (0..count).map(|a| (0..count).map(|b| path(a, b)).collect()).collect();
    let affinity =
        devices.iter().map(|device| device.as_ref().map_or_else(Affinity::default, affinity)).collect();
    Some(Topology { paths, affinity })
}

/// The path over PCIe and between processors.
fn bus(from: &Device<'_>, to: &Device<'_>) -> Path {
    // SAFETY: the handle is of a device that lives as long as its copy, which is used in this call alone.
    #[expect(unsafe_code, reason = "the wrapper takes the other device by value and has no way to copy one")]
    let to = unsafe { Device::new(to.handle(), to.nvml()) };
    match from.topology_common_ancestor(to) {
        Ok(TopologyLevel::Internal) => Path::Board,
        Ok(TopologyLevel::Single) => Path::Switch,
        Ok(TopologyLevel::Multiple) => Path::Switches,
        Ok(TopologyLevel::HostBridge) => Path::HostBridge,
        Ok(TopologyLevel::Node) => Path::Node,
        Ok(TopologyLevel::System) => Path::System,
        Err(_) => Path::Unknown,
    }
}

fn links(device: &Device<'_>) -> Links {
    let mut links = Links::default();
    for number in 0..NVLINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            // There is no such link.
            Err(_) => break,
        }
        if leads_to_switch(device, number) {
            links.switches += 1;
        } else if let Ok(remote) = link.remote_pci_info() {
            links.gpus.push(remote.bus_id.to_lowercase());
        }
    }
    links
}

/// What the wrapper offers for this always answers that it is not known (0.13.0).
#[expect(unsafe_code, reason = "a function of the library that the wrapper loads and calls wrongly")]
fn leads_to_switch(device: &Device<'_>, link: u32) -> bool {
    let Ok(query) = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref() else { return false };
    let mut kind = 0;
    // SAFETY: the handle is of this session, and the function writes one number.
    let code = unsafe { query(device.handle(), link, &raw mut kind) };
    code == 0 && kind == SWITCH
}

fn affinity(device: &Device<'_>) -> Affinity {
    let cpus = device.cpu_affinity(WORDS).ok().and_then(|words| cpu_ranges(&words));
    let nodes = device.memory_affinity(WORDS, NVML_AFFINITY_SCOPE_NODE).unwrap_or_default();
    let first = nodes.iter().zip(0..).find(|(word, _)| **word != 0);
    let numa_node = first.map(|(word, at): (_, u32)| at * u64::BITS + word.trailing_zeros());
    Affinity { cpus, numa_node }
}
