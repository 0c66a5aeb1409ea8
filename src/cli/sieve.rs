//! `watch --filter`: the world with the GPUs that pass a filter alone. Pure.

use std::sync::Arc;

use crate::config::HostConfig;
use crate::domain::filter::{Filter, GpuSubject, Subject};
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::domain::world::{HostState, World};

/// What passes: the GPUs, and the hosts that have one; hosts without GPUs where they pass themselves.
pub(super) fn passing(
    world: &World,
    hosts: &[HostConfig],
    filter: &Filter,
    now: Stamp,
) -> (World, Vec<HostConfig>) {
    let mut left = World::default();
    let mut kept = Vec::new();
    for config in hosts {
        let subject = |gpu| Subject { host: config.id.as_str(), labels: &config.labels, gpu };
        let Some(state) = world.hosts.get(&config.id) else {
            if filter.matches(&subject(None)) {
                kept.push(config.clone());
            }
            continue;
        };
        let count = state.info.as_ref().map_or(0, |info| info.gpus.len());
        let passes = |place: usize| {
            let gpu = GpuSubject::of(state, place, config.free_memory, None, now);
            gpu.is_some_and(|gpu| filter.matches(&subject(Some(gpu))))
        };
        let places: Vec<bool> = (0..count).map(passes).collect();
        let host_passes = if count == 0 { filter.matches(&subject(None)) } else { places.contains(&true) };
        if host_passes {
            left.hosts.insert(config.id.clone(), only(state, &places));
            kept.push(config.clone());
        }
    }
    (left, kept)
}

/// A host with these of its GPUs.
fn only(state: &HostState, places: &[bool]) -> HostState {
    let mut state = state.clone();
    let keeps = |place: usize| places.get(place).copied().unwrap_or(false);
    if let Some(info) = &mut state.info {
        let info = Arc::make_mut(info);
        let whole: Vec<usize> =
            info.gpus.iter().enumerate().filter(|(_, gpu)| !gpu.is_slice()).map(|(place, _)| place).collect();
        let keeps_whole = |nth: usize| whole.get(nth).is_none_or(|place| keeps(*place));
        retain(&mut info.gpus, keeps);
        if let Some(topology) = &mut info.topology {
            retain(&mut topology.paths, keeps_whole);
            topology.paths.iter_mut().for_each(|row| retain(row, keeps_whole));
            retain(&mut topology.affinity, keeps_whole);
        }
        let kept = |uuid: &GpuUuid| info.gpus.iter().any(|gpu| gpu.uuid == *uuid);
        state.gpu_events.retain(kept);
    }
    if let Some((_, sample)) = &mut state.sample {
        retain(&mut Arc::make_mut(sample).gpus, keeps);
    }
    state
}

fn retain<T>(of: &mut Vec<T>, keeps: impl Fn(usize) -> bool) {
    let mut place = 0;
    of.retain(|_| {
        place += 1;
        keeps(place - 1)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixtures::{NOW, hosts, world};
    use crate::cli::table;

    #[test]
    fn what_does_not_pass_is_not_printed() {
        let passing = |text: &str| {
            let filter = Filter::parse(text).unwrap();
            let (world, hosts) = passing(&world(), &hosts(), &filter, NOW);
            table::render(&world, &hosts, NOW, 100)
        };
        assert_eq!(passing(""), table::render(&world(), &hosts(), NOW, 100));
        let one = passing("host==gpu-a & gpu==1");
        let rows = one.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert!(rows.map(str::trim_start).all(|row| row.starts_with("1 ")), "{one}");
        assert!(one.starts_with("gpu-a") && one.contains("  GPU "), "{one}");
        assert_eq!(passing("host==nowhere"), "");
    }
}
