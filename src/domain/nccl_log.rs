//! What `NCCL_DEBUG=INFO` prints: version, interface, transports, communicators, warnings. Pure.
//!
//! The texts are those of NCCL 2.10 to 2.30 (`src/debug.cc`, `init.cc`, `bootstrap.cc`, `transport/` of NVIDIA/nccl): a line
//! is `host:pid:tid [device] NCCL INFO …`, behind a time in brackets where that is asked for, and behind whatever a
//! launcher puts before it. The fold knows nothing of files and of the screen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use memchr::memmem;

use super::text::sanitize;
use super::units::counted;

/// Within how many bytes of a line its `NCCL` stands.
const HEAD: usize = 512;
/// How many characters of a name are kept.
const NAME: usize = 48;
/// How many characters of a warning are kept.
const WARNING: usize = 200;
/// How many devices, transports and processes are told apart.
const MOST: usize = 64;

/// One line of NCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NcclLine<'a> {
    /// Who printed it, where the line says so.
    pub pid: Option<u32>,
    /// What it says.
    pub said: NcclSaid<'a>,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NcclSaid<'a> {
    /// `NCCL version 2.18.1+cuda12.1`.
    Version {
        /// `2.18.1`.
        nccl: &'a str,
        /// `12.1`.
        cuda: Option<&'a str>,
    },
    /// The CUDA version that the driver can do: `cudaDriverVersion 12040`.
    Driver(u32),
    /// The interface by which the ranks find each other.
    Bootstrap(&'a str),
    /// The devices of a network: `NET/Socket : Using [0]eth0:10.0.0.1<0>`.
    Devices {
        /// `Socket` or `IB`.
        network: &'a str,
        /// Number and name.
        names: Vec<(u32, &'a str)>,
    },
    /// What is used between hosts: `Socket`, `IB`, `AWS Libfabric`.
    Network(&'a str),
    /// A channel has a connection.
    Connection {
        /// Number of the channel.
        channel: u32,
        /// By what.
        transport: Transport<'a>,
    },
    /// How many channels a communicator has.
    Channels {
        /// For collectives.
        collectives: u32,
        /// For collectives within an `NVLink` switch.
        nvls: u32,
        /// For sends and receives.
        point_to_point: u32,
    },
    /// A communicator is ready.
    Ready {
        /// The rank in it.
        rank: u32,
        /// How many ranks it has.
        ranks: u32,
        /// The device.
        device: u32,
    },
    /// A warning.
    Warning(&'a str),
    /// Anything else.
    Other,
}

/// How a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport<'a> {
    /// `P2P`, `SHM`, `NET`, `COLLNET`.
    pub class: &'a str,
    /// Of `P2P` and `SHM` how (`CUMEM`, `IPC`, `direct`), else the network (`Socket`, `IB`).
    pub way: &'a str,
    /// Number of the network's device.
    pub device: Option<u32>,
    /// The network card reads and writes the GPU's memory.
    pub gdr: bool,
}

/// What a line says, if it is NCCL's.
pub fn parse(line: &str) -> Option<NcclLine<'_>> {
    let head = &line.as_bytes()[..line.len().min(HEAD)];
    let at = memmem::find(head, b"NCCL ")?;
    let (before, rest) = (&line[..at], &line[at + 5..]);
    // a path before it may have the word too
    let (before, rest) = match memmem::find(&head[at + 5..], b" NCCL WARN ") {
        Some(more) if !rest.starts_with("INFO ") && !rest.starts_with("WARN ") => {
            (&line[..at + 5 + more], &line[at + 5 + more + 6..])
        }
        _ => (before, rest),
    };
    let rest = rest.trim_end();
    if let Some(text) = rest.strip_prefix("INFO ") {
        let said = info(text).or_else(|| version(text.strip_prefix("NCCL ")?)).unwrap_or(NcclSaid::Other);
        return Some(NcclLine { pid: pid(before), said });
    }
    if let Some(text) = rest.strip_prefix("WARN ") {
        return Some(NcclLine { pid: pid(before), said: NcclSaid::Warning(text.trim()) });
    }
    Some(NcclLine { pid: None, said: version(rest)? })
}

/// The process in `host:pid:tid `, the last word of this form.
fn pid(before: &str) -> Option<u32> {
    before.split_ascii_whitespace().rev().find_map(|word| {
        let mut parts = word.rsplitn(3, ':');
        let (thread, process) = (parts.next()?, parts.next()?);
        parts.next().filter(|host| !host.is_empty())?;
        thread.parse::<u32>().ok()?;
        process.parse().ok()
    })
}

/// `version 2.18.1+cuda12.1` and nothing behind it.
fn version(text: &str) -> Option<NcclSaid<'_>> {
    let version = text.strip_prefix("version ")?;
    let (nccl, cuda) = match version.split_once('+') {
        Some((nccl, cuda)) => (nccl, Some(cuda.strip_prefix("cuda").unwrap_or(cuda))),
        None => (version, None),
    };
    let plain = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    (plain(nccl) && cuda.is_none_or(plain)).then_some(NcclSaid::Version { nccl, cuda })
}

fn info(text: &str) -> Option<NcclSaid<'_>> {
    match text.as_bytes().first()? {
        b'B' => {
            let using =
                text.strip_prefix("Bootstrap : Using").or_else(|| text.strip_prefix("Bootstrap: Using"))?;
            let using = using.trim_start();
            let name = numbered(using).map_or(using, |(_, name)| name).split(':').next()?;
            Some(NcclSaid::Bootstrap(name.trim_end()))
        }
        b'C' if text.starts_with("Channel ") || text.starts_with("CollNet ") => connection(text),
        b'N' => devices(text.strip_prefix("NET/")?),
        b'U' => text.strip_prefix("Using network ").map(|name| NcclSaid::Network(name.trim_end())),
        b'c' if text.starts_with("cudaDriverVersion ") => {
            text.rsplit(' ').next()?.parse().ok().map(NcclSaid::Driver)
        }
        b'0'..=b'9' => {
            let before =
                |what: &str| text.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
            Some(NcclSaid::Channels {
                collectives: before(" coll channels")?,
                nvls: before(" nvls channels").unwrap_or(0),
                point_to_point: before(" p2p channels").unwrap_or(0),
            })
        }
        _ => {
            let text = text.strip_suffix("Init COMPLETE")?;
            Some(NcclSaid::Ready {
                rank: after(text, " rank ")?,
                ranks: after(text, " nranks ")?,
                device: after(text, " cudaDev ")?,
            })
        }
    }
}

fn after(text: &str, word: &str) -> Option<u32> {
    text.split_once(word)?.1.split(' ').next()?.parse().ok()
}

/// `[0]eth0` as its number and the rest.
fn numbered(word: &str) -> Option<(u32, &str)> {
    let (number, rest) = word.strip_prefix('[')?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

/// `Socket : Using [0]eth0:10.0.0.1<0>`, `IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`,
/// `IB : Made virtual device [8] name=mlx5_0+mlx5_1 speed=…`.
fn devices(text: &str) -> Option<NcclSaid<'_>> {
    let (network, text) = text.split_once(" : ")?;
    let names = if let Some(device) = text.strip_prefix("Made virtual device ") {
        let (number, rest) = numbered(device)?;
        vec![(number, rest.split_once("name=")?.1.split(' ').next()?)]
    } else {
        let list = text.strip_prefix("Using ")?.split(';').next()?;
        let words = list.split_ascii_whitespace().filter_map(numbered);
        words.take(MOST).filter_map(|(number, name)| Some((number, name.split(':').next()?))).collect()
    };
    Some(NcclSaid::Devices { network, names })
}

/// `Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA`.
fn connection(text: &str) -> Option<NcclSaid<'_>> {
    let (head, transport) = text.split_once(" via ")?;
    let digits = head.get(8..)?.trim_start();
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit())?];
    let mut parts = transport.trim_end().split('/');
    let (class, way) = (parts.next()?, parts.next()?);
    let networked = matches!(class, "NET" | "COLLNET");
    // `0`, or `0(3)` where another rank's process does the sending
    let device = parts.next().filter(|_| networked);
    let device = device.and_then(|text| text.split('(').next()?.parse().ok());
    let gdr = networked && parts.any(|part| part.starts_with("GDRDMA"));
    let transport = Transport { class, way, device, gdr };
    Some(NcclSaid::Connection { channel: digits.parse().ok()?, transport })
}

/// What is known of one rank's NCCL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclFacts {
    /// `2.18.1`.
    pub version: Option<String>,
    /// What it was built for: `12.1`.
    pub cuda: Option<String>,
    /// What the driver can do: `12040`.
    pub driver: Option<u32>,
    /// The interface by which the ranks find each other.
    pub bootstrap: Option<String>,
    /// What is used between hosts.
    pub network: Option<String>,
    /// How many channels its largest communicator has.
    pub channels: Option<u32>,
    /// How many ranks its largest communicator has.
    pub ranks: Option<u32>,
    /// Communicators that became ready.
    pub communicators: u32,
    /// Warnings so far.
    pub warnings: u64,
    /// The first warning: those that follow tell of its consequences.
    pub first_warning: Option<String>,
    /// Names of devices by network and number.
    devices: BTreeMap<(String, u32), String>,
    transports: BTreeMap<String, Used>,
    processes: BTreeSet<u32>,
}

/// Where a transport is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    /// A bit for each channel; NCCL has at most 64.
    channels: u64,
    /// Network and number of the devices.
    devices: BTreeSet<(String, u32)>,
}

impl NcclFacts {
    /// Takes in a line of the rank's output. Whether it changed what is known.
    pub fn push(&mut self, line: &str) -> bool {
        let Some(line) = parse(line) else { return false };
        let mut changed = match line.pid {
            Some(pid) if self.processes.len() < MOST => self.processes.insert(pid),
            _ => false,
        };
        changed |= match line.said {
            NcclSaid::Version { nccl, cuda } => {
                set(&mut self.version, name(nccl)) | cuda.is_some_and(|cuda| set(&mut self.cuda, name(cuda)))
            }
            NcclSaid::Driver(version) => set(&mut self.driver, version),
            NcclSaid::Bootstrap(interface) => set(&mut self.bootstrap, name(interface)),
            NcclSaid::Network(network) => set(&mut self.network, name(network)),
            NcclSaid::Devices { network, names } => self.devices(network, &names),
            NcclSaid::Connection { channel, transport } => self.connection(channel, transport),
            NcclSaid::Channels { collectives, .. } => raise(&mut self.channels, collectives),
            NcclSaid::Ready { ranks, .. } => {
                self.communicators = self.communicators.saturating_add(1);
                raise(&mut self.ranks, ranks);
                true
            }
            NcclSaid::Warning(text) => {
                self.warnings = self.warnings.saturating_add(1);
                self.first_warning.get_or_insert_with(|| clean(text, WARNING));
                true
            }
            NcclSaid::Other => false,
        };
        changed
    }

    fn devices(&mut self, network: &str, names: &[(u32, &str)]) -> bool {
        let mut changed = false;
        for (number, device) in names {
            let key = (name(network), *number);
            if self.devices.len() < MOST || self.devices.contains_key(&key) {
                let device = name(device);
                changed |= self.devices.get(&key) != Some(&device);
                self.devices.insert(key, device);
            }
        }
        changed
    }

    fn connection(&mut self, channel: u32, transport: Transport<'_>) -> bool {
        let key = match transport.class {
            "SHM" => "SHM".to_owned(),
            class if transport.gdr => format!("{}/{}/GDRDMA", name(class), name(transport.way)),
            class => format!("{}/{}", name(class), name(transport.way)),
        };
        if self.transports.len() >= MOST && !self.transports.contains_key(&key) {
            return false;
        }
        let used = self.transports.entry(key).or_default();
        let before = (used.channels, used.devices.len());
        used.channels |= 1u64.checked_shl(channel).unwrap_or(0);
        if let Some(device) = transport.device
            && used.devices.len() < MOST
        {
            used.devices.insert((name(transport.way), device));
        }
        before != (used.channels, used.devices.len())
    }

    /// The name of a device. A plugin for InfiniBand (`IBext_v8`) prints its list as `NET/IB`.
    fn device(&self, network: &str, number: u32) -> Option<&str> {
        let known = |network: &str| self.devices.get(&(network.to_owned(), number));
        let name = known(network).or_else(|| known("IB").filter(|_| network.starts_with("IB")));
        name.map(String::as_str)
    }

    /// One sentence for people: `NCCL 2.18.1: bootstrap eth0; 8 channels: 6 P2P/CUMEM, 2 NET/Socket over eth0; 4 ranks`. The
    /// numbers are channels that use a transport; one may use several. `None` while nothing is known.
    pub fn sentence(&self) -> Option<String> {
        let mut parts = Vec::new();
        parts.extend(self.bootstrap.as_ref().map(|interface| format!("bootstrap {interface}")));
        parts.extend(self.channels_part());
        // the transports name the network, where there are any of it
        if let Some(network) = &self.network
            && !self.transports.keys().any(|key| key.starts_with("NET/"))
        {
            parts.push(format!("network {network}"));
        }
        parts.extend(self.ranks.map(|ranks| counted(ranks, "rank")));
        if self.communicators > 1 {
            parts.push(counted(self.communicators, "communicator"));
        }
        if self.processes.len() > 1 {
            parts.push(counted(self.processes.len(), "process"));
        }
        if let Some(warning) = &self.first_warning {
            let more = self.warnings.saturating_sub(1);
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            parts.push(format!("warning: {warning}{more}"));
        }
        let name =
            self.version.as_ref().map_or_else(|| "NCCL".to_owned(), |version| format!("NCCL {version}"));
        if parts.is_empty() {
            return self.version.is_some().then_some(name);
        }
        Some(format!("{name}: {}", parts.join("; ")))
    }

    fn channels_part(&self) -> Option<String> {
        let all = self.transports.values().fold(0, |all, used| all | used.channels);
        let channels = self.channels.unwrap_or(all.count_ones());
        if channels == 0 {
            return None;
        }
        let mut part = counted(channels, "channel");
        // within the host first, as a ring goes
        let order =
            |key: &str| ["P2P", "SHM", "NET"].iter().position(|class| key.starts_with(class)).unwrap_or(3);
        let mut transports: Vec<_> = self.transports.iter().collect();
        transports.sort_by_key(|(key, _)| order(key));
        for (index, (key, used)) in transports.into_iter().enumerate() {
            let sign = if index == 0 { ":" } else { "," };
            let _ = write!(part, "{sign} {} {key}", used.channels.count_ones());
            let names: BTreeSet<_> =
                used.devices.iter().filter_map(|(network, number)| self.device(network, *number)).collect();
            if !names.is_empty() {
                let _ = write!(part, " over {}", names.into_iter().collect::<Vec<_>>().join(" and "));
            }
        }
        Some(part)
    }
}

/// Keeps the value; whether it is another one.
fn set<T: PartialEq>(place: &mut Option<T>, value: T) -> bool {
    let changed = place.as_ref() != Some(&value);
    *place = Some(value);
    changed
}

fn raise(place: &mut Option<u32>, value: u32) -> bool {
    value > place.unwrap_or(0) && set(place, value)
}

fn name(text: &str) -> String {
    clean(text, NAME)
}

fn clean(text: &str, most: usize) -> String {
    sanitize(text.trim()).chars().take(most).collect()
}

#[cfg(test)]
#[path = "nccl_log_tests.rs"]
mod tests;
