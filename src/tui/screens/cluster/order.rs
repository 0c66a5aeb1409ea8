//! In which order hosts stand.

use crate::domain::ids::HostId;
use crate::domain::world::HostState;
use crate::tui::core::orders::HostOrder as Order;
use crate::tui::screens::Model;
use crate::tui::screens::cluster::rows::{mean_util, memory};
use crate::tui::screens::usage::{Leases, free_gpus};

/// Puts hosts in the order that the screen has; hosts that are not up stand last, whichever way round.
pub fn sort(model: &Model, hosts: &mut [&HostId]) {
    let (order, reversed) = (model.settings.hosts.by, model.settings.hosts.reversed);
    let leases = (order == Order::FreeGpus).then(|| Leases::of(model));
    let key = |host: &HostId| -> f64 {
        let Some(state) = model.world.hosts.get(host).filter(|state| state.is_up()) else {
            return f64::INFINITY;
        };
        let key = match order {
            Order::File | Order::Name => return 0.0,
            Order::FreeGpus => leases.as_ref().map(|leases| -(free_gpus(model, host, leases).count() as f64)),
            Order::Utilisation => mean_util(state),
            Order::FreeMemory => memory(state).map(|(used, total)| -(total.saturating_sub(used) as f64)),
            Order::Temperature => {
                of_gpus(state, |gpu| gpu.temperature.value().map(|t| f64::from(*t)), f64::max)
            }
            Order::Power => of_gpus(state, |gpu| gpu.power_mw.value().map(|mw| f64::from(*mw)), |a, b| a + b),
        };
        key.map_or(f64::INFINITY, |key| if reversed { -key } else { key })
    };
    match order {
        Order::File => {
            if reversed {
                hosts.reverse();
            }
        }
        Order::Name => hosts.sort_by(|a, b| if reversed { b.cmp(a) } else { a.cmp(b) }),
        _ => hosts.sort_by_cached_key(|host| Total(key(host))),
    }
}

/// What a host's GPUs have together, negative: the highest first.
fn of_gpus(
    state: &HostState,
    value: impl Fn(&crate::domain::gpu::GpuSample) -> Option<f64>,
    together: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let (_, sample) = state.latest()?;
    sample.gpus.iter().filter_map(value).reduce(together).map(|value| -value)
}

/// A number with its total order.
#[derive(PartialEq)]
struct Total(f64);

impl Eq for Total {}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Total {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
