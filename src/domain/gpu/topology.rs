//! How the GPUs of a host are connected with each other, as `nvidia-smi topo -m` shows it: a fact that is told once. Knows
//! nothing of NVML and screens.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Where the path between two GPUs leads, by NVIDIA's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Path {
    /// It is the same GPU.
    Own,
    /// So many NVLinks, directly or through switches.
    NvLink(u8),
    /// Within one board.
    Board,
    /// Through one PCIe switch.
    Switch,
    /// Through several PCIe switches and no host bridge.
    Switches,
    /// Through a PCIe host bridge.
    HostBridge,
    /// Through several host bridges of one NUMA node.
    Node,
    /// From one NUMA node to another.
    System,
    /// Not told, or told in a word that this version does not know.
    #[default]
    Unknown,
}

impl Path {
    /// How close it brings two GPUs: the more, the closer; 0 where that is not known.
    pub fn closeness(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::System => 1,
            Self::Node => 2,
            Self::HostBridge => 3,
            Self::Switches => 4,
            Self::Switch => 5,
            Self::Board => 6,
            Self::NvLink(links) => 6_u8.saturating_add(links).min(u8::MAX - 1),
            Self::Own => u8::MAX,
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Own => "X",
            Self::NvLink(links) => return f.pad(&format!("NV{links}")),
            Self::Board => "PSB",
            Self::Switch => "PIX",
            Self::Switches => "PXB",
            Self::HostBridge => "PHB",
            Self::Node => "NODE",
            Self::System => "SYS",
            Self::Unknown => "?",
        })
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl From<String> for Path {
    fn from(word: String) -> Self {
        match word.as_str() {
            "X" => Self::Own,
            "PSB" => Self::Board,
            "PIX" => Self::Switch,
            "PXB" => Self::Switches,
            "PHB" => Self::HostBridge,
            "NODE" => Self::Node,
            "SYS" => Self::System,
            word => match word.strip_prefix("NV").and_then(|links| links.parse().ok()) {
                Some(links) if links > 0 => Self::NvLink(links),
                _ => Self::Unknown,
            },
        }
    }
}

/// What lies near a GPU outside of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affinity {
    /// The CPUs that reach it without crossing a NUMA node: `0-47,96-143`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
}

/// How the GPUs of one host are connected. GPUs are named by their place among the whole ones of
/// [`crate::domain::host::HostInfo::gpus`]: MIG slices have no links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The path from each GPU (row) to each other one (column).
    pub paths: Vec<Vec<Path>>,
    /// What lies near each GPU.
    #[serde(default)]
    pub affinity: Vec<Affinity>,
}

impl Topology {
    /// The path from GPU `a` to GPU `b`.
    pub fn path(&self, a: usize, b: usize) -> Path {
        match self.paths.get(a).and_then(|row| row.get(b)) {
            Some(path) => *path,
            None if a == b => Path::Own,
            None => Path::Unknown,
        }
    }

    /// How close two GPUs are: the more, the closer; 0 where that is not known, `u8::MAX` for one and the same.
    pub fn closeness(&self, a: usize, b: usize) -> u8 {
        self.path(a, b).closeness()
    }

    /// The same of GPUs that are named by index, where `indices` are those of all in order; 0 for one that is not among them, as
    /// MIG slices are: nothing leads from one to another.
    pub fn closeness_of(&self, indices: &[u32], a: u32, b: u32) -> u32 {
        let place = |index: u32| indices.iter().position(|other| *other == index);
        place(a).zip(place(b)).map_or(0, |(a, b)| self.closeness(a, b).into())
    }

    /// The other GPUs, the closest first; equally close ones by their place.
    pub fn neighbours(&self, gpu: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.paths.len()).filter(|other| *other != gpu).collect();
        others.sort_by_key(|other| std::cmp::Reverse(self.closeness(gpu, *other)));
        others
    }

    /// GPUs that reach each other without leaving the fastest kind of path that this host has: by NVLink where any two GPUs
    /// have one, else within a NUMA node. Each GPU is in one island; an island of one GPU is a GPU on its own.
    pub fn islands(&self) -> Vec<Vec<usize>> {
        let count = self.paths.len();
        let linked = |a: usize, b: usize| matches!(self.path(a, b), Path::NvLink(_));
        let has_links = (0..count).any(|a| (0..count).any(|b| linked(a, b)));
        let least = if has_links { Path::NvLink(1) } else { Path::Node }.closeness();
        let mut left: BTreeSet<usize> = (0..count).collect();
        let mut islands = Vec::new();
        while let Some(first) = left.pop_first() {
            let mut island = vec![first];
            let mut next = 0;
            while let Some(from) = island.get(next).copied() {
                next += 1;
                let near: Vec<usize> =
                    left.iter().copied().filter(|to| self.closeness(from, *to) >= least).collect();
                left.retain(|gpu| !near.contains(gpu));
                island.extend(near);
            }
            island.sort_unstable();
            islands.push(island);
        }
        islands
    }
}

/// The numbers of the set bits as ranges: `0-47,96-143`; `None` without one. The lowest bit of the first word is 0.
pub fn cpu_ranges(words: &[u64]) -> Option<String> {
    let set = |cpu: usize| words.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..words.len() * 64).filter(|cpu| set(*cpu)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let words: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    (!words.is_empty()).then(|| words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix as `nvidia-smi topo -m` prints it.
    fn topology(rows: &[&str]) -> Topology {
        let row = |row: &&str| row.split_whitespace().map(|word| Path::from(word.to_owned())).collect();
        Topology { paths: rows.iter().map(row).collect(), affinity: Vec::new() }
    }

    #[test]
    fn a_path_is_its_word_in_json_and_an_unknown_word_is_no_failure() {
        let paths = [
            Path::Own,
            Path::NvLink(18),
            Path::Board,
            Path::Switch,
            Path::Switches,
            Path::HostBridge,
            Path::Node,
            Path::System,
            Path::Unknown,
        ];
        let json = serde_json::to_string(&paths).unwrap();
        assert_eq!(json, r#"["X","NV18","PSB","PIX","PXB","PHB","NODE","SYS","?"]"#);
        assert_eq!(serde_json::from_str::<[Path; 9]>(&json).unwrap(), paths);
        for word in ["", "NV", "NV0", "NV-1", "NV999", "CXL"] {
            assert_eq!(Path::from(word.to_owned()), Path::Unknown, "{word}");
        }
    }

    #[test]
    fn more_nvlinks_are_closer_than_any_bus() {
        let order = ["?", "SYS", "NODE", "PHB", "PXB", "PIX", "PSB", "NV1", "NV2", "NV18", "X"]
            .map(|word| Path::from(word.to_owned()));
        assert!(order.is_sorted_by_key(|path| path.closeness()));
        assert!(order.windows(2).all(|pair| pair[0].closeness() < pair[1].closeness()));
        assert!(Path::NvLink(u8::MAX).closeness() < Path::Own.closeness());
    }

    #[test]
    fn the_closest_gpu_comes_first() {
        // A DGX-1: a cube of NVLinks, one or two a pair.
        let dgx = topology(&[
            "X   NV1 NV1 NV2 NV2 SYS SYS SYS",
            "NV1 X   NV2 NV1 SYS NV2 SYS SYS",
            "NV1 NV2 X   NV2 SYS SYS NV1 SYS",
            "NV2 NV1 NV2 X   SYS SYS SYS NV1",
            "NV2 SYS SYS SYS X   NV1 NV1 NV2",
            "SYS NV2 SYS SYS NV1 X   NV2 NV1",
            "SYS SYS NV1 SYS NV1 NV2 X   NV2",
            "SYS SYS SYS NV1 NV2 NV1 NV2 X",
        ]);
        assert_eq!(dgx.neighbours(0), [3, 4, 1, 2, 5, 6, 7]);
        assert_eq!(dgx.closeness(0, 3), dgx.closeness(3, 0));
        assert!(dgx.closeness(0, 3) > dgx.closeness(0, 1));
        assert_eq!(dgx.islands(), [[0, 1, 2, 3, 4, 5, 6, 7]]);
    }

    #[test]
    fn islands_are_linked_pairs_or_numa_nodes() {
        let pairs = topology(&["X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X"]);
        assert_eq!(pairs.islands(), [[0, 1], [2, 3]]);
        let one_pair = topology(&["X NODE NV4", "NODE X NODE", "NV4 NODE X"]);
        assert_eq!(one_pair.islands(), [vec![0, 2], vec![1]], "beside an NVLink the bus is slow");
        let bus = topology(&["X PHB SYS SYS", "PHB X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"]);
        assert_eq!(bus.islands(), [[0, 1], [2, 3]]);
        assert_eq!(topology(&["X ?", "? X"]).islands(), [[0], [1]]);
        assert!(Topology::default().islands().is_empty());
    }

    #[test]
    fn a_matrix_with_holes_is_unknown_there() {
        let cut = topology(&["X NV1", ""]);
        assert_eq!(
            (cut.path(1, 0), cut.path(1, 1), cut.path(7, 9)),
            (Path::Unknown, Path::Own, Path::Unknown)
        );
        assert_eq!(cut.neighbours(0), [1]);
        assert_eq!(cut.neighbours(1), [0]);
    }

    #[test]
    fn cpus_are_ranges() {
        assert_eq!(cpu_ranges(&[0b1011]), Some("0-1,3".to_owned()));
        assert_eq!(cpu_ranges(&[1 << 63, 1 | 1 << 7]), Some("63-64,71".to_owned()));
        assert_eq!(cpu_ranges(&[u64::MAX, 0, 0xff]), Some("0-63,128-135".to_owned()));
        assert_eq!(cpu_ranges(&[0, 0]), None);
    }
}
