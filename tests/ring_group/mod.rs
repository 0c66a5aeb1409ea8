//! A group of ranks as threads of one test, each group on a loopback address of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hvtui::clock::host_now;
use hvtui::collective::{CollectiveError, Communicator, MeetingEvent, RingConfig, Secret, Solo, TcpRing};

pub(crate) const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// An address of 127.0.0.0/8 that no other group of this process uses, nor (by its pid) another test process.
pub(crate) fn own_loopback() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    Ipv4Addr::new(127, (pid >> 4) as u8 | 1, (pid << 4) as u8 | (number >> 8) as u8, number as u8).into()
}

pub(crate) fn config(at: IpAddr, rank: u32, world: u32, timeout: Duration) -> RingConfig {
    RingConfig {
        rank,
        world,
        master: at.to_string(),
        port: 29500,
        bind: Some(at),
        secret: Secret::from_hex(SECRET).unwrap(),
        timeout,
        clock: host_now,
        segment: RingConfig::SEGMENT,
    }
}

/// A connected communicator.
pub(crate) fn join(config: RingConfig) -> Result<Box<dyn Communicator>, CollectiveError> {
    if config.world == 1 {
        return Ok(Box::new(Solo));
    }
    Ok(Box::new(TcpRing::connect(config, &mut |_: MeetingEvent| {})?))
}

/// Runs `body` as every rank of a group; the results in rank order.
pub(crate) fn as_ranks<T: Send>(
    world: u32,
    timeout: Duration,
    adjust: impl Fn(&mut RingConfig) + Sync,
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
