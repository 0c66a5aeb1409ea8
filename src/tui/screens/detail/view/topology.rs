//! What the Detail screen says of how a host's GPUs are connected: in a line, and as a matrix where there is room.

use crate::domain::gpu::topology::{Affinity, Path, Topology};
use crate::domain::gpu::{GpuInfo, mig};
use crate::domain::host::HostInfo;
use crate::domain::text::sanitize;

/// `topology: every pair by 18 NVLinks · NUMA node 0: GPU 0-3 · NUMA node 1: GPU 4-7`; `None` where it is not known, or there
/// is one GPU.
pub(super) fn summary(info: &HostInfo) -> Option<String> {
    let topology = info.topology.as_ref().filter(|topology| topology.paths.len() > 1)?;
    let count = topology.paths.len();
    let mut paths: Vec<Path> = (0..count)
        .flat_map(|a| (0..count).filter(move |b| *b != a).map(move |b| topology.path(a, b)))
        .collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.closeness()));
    paths.dedup();
    let mut parts = if let [only] = paths.as_slice() {
        vec![format!("every pair by {}", words(*only))]
    } else {
        let islands: Vec<String> = topology.islands().iter().map(|island| indices(info, island)).collect();
        let best = paths.first().copied().unwrap_or_default();
        let worst = paths.last().copied().unwrap_or_default();
        vec![
            format!("closest by {}, farthest by {}", words(best), words(worst)),
            format!("together: {}", islands.join(" | ")),
        ]
    };
    parts.extend(numa(info, topology));
    Some(format!("topology: {}", parts.join(" · ")))
}

fn words(path: Path) -> String {
    match path {
        Path::Own => "itself".to_owned(),
        Path::NvLink(1) => "1 NVLink".to_owned(),
        Path::NvLink(links) => format!("{links} NVLinks"),
        Path::Board => "their board".to_owned(),
        Path::Switch => "a PCIe switch".to_owned(),
        Path::Switches => "several PCIe switches".to_owned(),
        Path::HostBridge => "a PCIe host bridge".to_owned(),
        Path::Node => "their NUMA node".to_owned(),
        Path::System => "the link between NUMA nodes".to_owned(),
        Path::Unknown => "a path that is not known".to_owned(),
    }
}

/// Indices of GPUs by their places, neighbours as a range.
fn indices(info: &HostInfo, places: &[usize]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let whole: Vec<&GpuInfo> = mig::whole(&info.gpus).collect();
    for index in places.iter().filter_map(|place| whole.get(*place)).map(|gpu| gpu.index) {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let words = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<_>>().join(",")
}

fn numa(info: &HostInfo, topology: &Topology) -> Option<String> {
    let node_of = |near: &Affinity| near.numa_node;
    let mut nodes: Vec<u32> = topology.affinity.iter().filter_map(node_of).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let on = |node: u32| {
        let of = topology.affinity.iter().enumerate().filter(|(_, near)| near.numa_node == Some(node));
        indices(info, &of.map(|(place, _)| place).collect::<Vec<_>>())
    };
    let parts: Vec<String> =
        nodes.into_iter().map(|node| format!("NUMA node {node}: GPU {}", on(node))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The matrix as `nvidia-smi topo -m` prints it, a line a GPU below a line of titles; `None` without one, and where it is wider
/// than `width`.
pub(super) fn matrix(info: &HostInfo, width: usize) -> Option<Vec<String>> {
    let topology = info.topology.as_ref().filter(|topology| topology.paths.len() > 1)?;
    let whole: Vec<&GpuInfo> = mig::whole(&info.gpus).collect();
    let gpus = topology.paths.len().min(whole.len());
    let name = |place: usize| whole.get(place).map_or_else(String::new, |gpu| format!("GPU{}", gpu.index));
    let cells = |of: &dyn Fn(usize) -> String| {
        (0..gpus).map(|column| format!("{:>5}", of(column))).collect::<Vec<_>>().concat()
    };
    let titles = cells(&name);
    let mut lines = vec![format!("{:6}{titles}   NUMA  CPUS", "")];
    for row in 0..gpus {
        let cells = cells(&|column| topology.path(row, column).to_string());
        let near = topology.affinity.get(row);
        let node =
            near.and_then(|near| near.numa_node).map_or_else(|| "–".to_owned(), |node| node.to_string());
        let cpus = near.and_then(|near| near.cpus.as_deref()).unwrap_or("–");
        lines.push(format!("{:6}{cells}   {node:>4}  {}", name(row), sanitize(cpus)));
    }
    let table = 6 + 5 * gpus + 9;
    (table <= width).then_some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(rows: &[&str], nodes: &[u32]) -> HostInfo {
        let row = |row: &&str| row.split_whitespace().map(|word| Path::from(word.to_owned())).collect();
        let near = |node: &u32| Affinity { cpus: Some(format!("{node}-9")), numa_node: Some(*node) };
        let topology =
            Topology { paths: rows.iter().map(row).collect(), affinity: nodes.iter().map(near).collect() };
        let described = serde_json::json!({
            "hostname": "a", "kernel": "", "arch": "", "user": "", "cpus": 1, "memory_total": null, "boot_id": "",
            "agent_version": "", "addresses": [], "gpus": [], "driver": null, "cuda_driver": null, "nccl": null,
            "topology": topology,
        });
        let gpus = (0..rows.len() as u32).map(GpuInfo::unknown).collect();
        HostInfo { gpus, ..serde_json::from_value(described).unwrap() }
    }

    #[test]
    fn equal_paths_are_one_sentence() {
        let switched = info(&["X NV18 NV18", "NV18 X NV18", "NV18 NV18 X"], &[0, 0, 1]);
        let expected = "topology: every pair by 18 NVLinks · NUMA node 0: GPU 0-1, NUMA node 1: GPU 2";
        assert_eq!(summary(&switched).unwrap(), expected);
        let bus = info(&["X PHB SYS SYS", "PHB X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"], &[]);
        let expected = "topology: closest by a PCIe host bridge, farthest by the link between NUMA nodes · together: 0-1 | 2-3";
        assert_eq!(summary(&bus).unwrap(), expected);
        assert_eq!(summary(&info(&["X"], &[0])), None, "one GPU has no neighbour");
    }

    #[test]
    fn the_matrix_is_whole_or_not_there() {
        let two = info(&["X NV18", "NV18 X"], &[0, 1]);
        let expected =
            ["       GPU0 GPU1   NUMA  CPUS", "GPU0      X NV18      0  0-9", "GPU1   NV18    X      1  1-9"];
        assert_eq!(matrix(&two, 40).unwrap(), expected);
        assert_eq!(matrix(&two, 20), None);
    }
}
