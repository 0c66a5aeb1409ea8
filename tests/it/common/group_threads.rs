//! A group of ranks as threads of one test.

use std::time::Duration;

use hvtui::collective::{CollectiveError, Communicator, Group, GroupConfig, RendezvousEvent, Solo};

use super::group_config::{config, own_loopback};

/// A connected communicator.
pub(crate) fn join(config: GroupConfig) -> Result<Box<dyn Communicator>, CollectiveError> {
    if config.world == 1 {
        return Ok(Box::new(Solo));
    }
    Ok(Box::new(Group::connect(config, &mut |_: RendezvousEvent| {})?))
}

/// Runs `body` as every rank of a group; the results in rank order.
pub(crate) fn as_ranks<T: Send>(
    world: u32,
    timeout: Duration,
    adjust: impl Fn(&mut GroupConfig) + Sync,
    body: impl Fn(u32, Result<Box<dyn Communicator>, CollectiveError>) -> T + Sync,
) -> Vec<T> {
    let at = own_loopback();
    let (adjust, body) = (&adjust, &body);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                scope.spawn(move || {
                    let mut config = config(at, rank, world, timeout);
                    adjust(&mut config);
                    body(rank, join(config))
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
