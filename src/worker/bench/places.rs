//! The lines above the table: which ranks, on which hosts and processors, and how bytes travel between them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use crate::collective::{Collective, CollectiveError, Communicator};
use crate::domain::text::sanitize;
use crate::worker::env::RankEnv;

/// Bytes of what a rank tells, at most.
const TOLD: usize = 512;

/// One rank's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) processor: String,
    /// Interface and address of its TCP connections.
    pub(super) interface: String,
    /// Its GPU, where that is measured: `0 NVIDIA H100`.
    pub(super) card: String,
}

/// How the bytes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// `shm`, `tcp`, `shm+tcp`, `nccl`, …
    pub(super) transport: &'static str,
    /// NCCL's version, where it is the way.
    pub(super) nccl: Option<String>,
    /// Why the bytes of GPUs go by the hosts, where they do.
    pub(super) staged: Option<String>,
}

impl Place {
    /// This process's.
    pub(super) fn own(env: &RankEnv) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // all of the host's: a pinned rank may use but one of them
        let threads = information.lines().filter(|line| line.starts_with("processor")).count();
        Self {
            host: host.trim().to_owned(),
            pid: std::process::id(),
            processor: format!("{} x{threads}", model(&information)),
            interface: env.group.as_ref().and_then(|group| group.bind).map_or_else(String::new, interface),
            card: String::new(),
        }
    }

    fn told(&self) -> String {
        let Self { host, pid, processor, interface, card } = self;
        format!("{pid}\n{host}\n{interface}\n{card}\n{processor}")
    }

    fn heard(text: &str) -> Self {
        let mut lines = text.splitn(5, '\n').map(|line| sanitize(line).to_string());
        let mut next = || lines.next().unwrap_or_default();
        let pid = next().parse().unwrap_or_default();
        Self { pid, host: next(), interface: next(), card: next(), processor: next() }
    }

    /// What its values are added by.
    pub(super) fn what(&self) -> &str {
        if self.card.is_empty() { &self.processor } else { &self.card }
    }
}

fn model(information: &str) -> &str {
    let line = information.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, name)| name.trim())
}

/// `eth0 (10.0.0.2)`.
fn interface(address: IpAddr) -> String {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    match all.into_iter().find(|one| one.ip() == address) {
        Some(one) => format!("{} ({address})", one.name),
        None => address.to_string(),
    }
}

/// Tells all ranks' texts to every rank, shortened where they are long.
pub(super) fn tell(ranks: &mut dyn Communicator, own: &str) -> Result<Vec<String>, CollectiveError> {
    let words = TOLD / size_of::<i32>();
    let mut all = vec![0_i32; words * ranks.world() as usize];
    let slot: &mut [u8] = bytemuck::cast_slice_mut(&mut all[ranks.rank() as usize * words..][..words]);
    // the last byte stays 0
    let len = (0..TOLD).rev().find(|at| own.is_char_boundary(*at)).unwrap_or(0);
    slot[..len].copy_from_slice(&own.as_bytes()[..len]);
    ranks.allgather(&mut all)?;
    let bytes: &[u8] = bytemuck::cast_slice(&all);
    let text = |slot: &[u8]| {
        let end = slot.iter().position(|byte| *byte == 0).unwrap_or(slot.len());
        String::from_utf8_lossy(&slot[..end]).into_owned()
    };
    Ok(bytes.chunks_exact(TOLD).map(text).collect())
}

/// Tells all ranks' places to every rank.
pub(super) fn gather(ranks: &mut dyn Communicator, own: &Place) -> Result<Vec<Place>, CollectiveError> {
    Ok(tell(ranks, &own.told())?.iter().map(|text| Place::heard(text)).collect())
}

/// How many hosts there are.
pub(super) fn hosts(places: &[Place]) -> usize {
    places.iter().map(|place| &place.host).collect::<BTreeSet<_>>().len()
}

/// What the places have in common, or all that there are.
pub(super) fn interfaces(places: &[Place]) -> String {
    let all: BTreeSet<&str> = places.iter().map(|place| place.interface.as_str()).collect();
    all.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The lines for people.
pub(super) fn head(places: &[Place], way: &Way) -> String {
    let many = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (ranks, on) = (many(places.len(), "rank"), many(hosts(places), "host"));
    let Way { transport, nccl, staged } = way;
    let by = if staged.is_some() { "staged by " } else { "" };
    let mut text = format!(
        "# hvtui {} allreduce: {ranks} on {on}, transport {by}{transport}",
        env!("CARGO_PKG_VERSION")
    );
    if transport.contains("tcp") {
        let _ = write!(text, " by {}", interfaces(places));
    }
    if let Some(version) = nccl {
        let _ = write!(text, " {version}");
    }
    if let Some(why) = staged {
        let _ = write!(text, ": {why}");
    }
    for (rank, place) in places.iter().enumerate() {
        let (Place { pid, host, card, .. }, what) = (place, place.what());
        let kind = if card.is_empty() { "processor" } else { "device" };
        let _ = write!(text, "\n#  Rank {rank:>2} Pid {pid:>6} on {host:>10} {kind} {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Solo;

    fn place(host: &str) -> Place {
        let (processor, interface) = ("EPYC x2".into(), "eth0 (10.0.0.2)".into());
        Place { host: host.into(), pid: 7, processor, interface, card: String::new() }
    }

    fn way(transport: &'static str) -> Way {
        Way { transport, nccl: None, staged: None }
    }

    #[test]
    fn a_place_is_told_and_heard() {
        let long = "é".repeat(300);
        let told = Place { processor: long.clone(), ..place("gpu-a") };
        let heard = gather(&mut Solo, &told).unwrap().remove(0);
        assert_eq!((&*heard.host, heard.pid, &*heard.interface), ("gpu-a", 7, "eth0 (10.0.0.2)"));
        assert!(long.starts_with(&heard.processor) && heard.processor.len() > 200);
        assert_eq!(Place::heard(&place("b").told()), place("b"));
        assert!(!Place::heard("7\na\x1b[31m").host.contains('\x1b'));
    }

    #[test]
    fn the_head_names_hosts_and_the_interface_that_bytes_go_by() {
        let places = [place("gpu-a"), place("gpu-b"), place("gpu-b")];
        let text = head(&places, &way("shm+tcp"));
        let first = text.lines().next().unwrap();
        assert!(first.ends_with("3 ranks on 2 hosts, transport shm+tcp by eth0 (10.0.0.2)"), "{first}");
        assert_eq!(text.lines().count(), 4);
        assert!(!head(&places, &way("shm")).contains("eth0"));
    }

    #[test]
    fn the_head_of_gpus_names_cards_and_the_way() {
        let places = ["gpu-a", "gpu-b"].map(|host| Place { card: "0 NVIDIA H100".into(), ..place(host) });
        let nccl = head(&places, &Way { nccl: Some("2.27.5".into()), ..way("nccl") });
        assert!(nccl.lines().next().unwrap().ends_with("transport nccl 2.27.5"), "{nccl}");
        assert!(nccl.ends_with("on      gpu-b device 0 NVIDIA H100"), "{nccl}");
        let staged = head(&places, &Way { staged: Some("told so".into()), ..way("tcp") });
        let first = staged.lines().next().unwrap();
        assert!(first.ends_with("transport staged by tcp by eth0 (10.0.0.2): told so"), "{first}");
        assert_eq!(Place::heard(&places[0].told()), places[0]);
    }

    #[test]
    fn the_processor_has_a_name() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC 9B45\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(model(text), "AMD EPYC 9B45");
        assert_eq!(model(""), "unknown");
    }
}
