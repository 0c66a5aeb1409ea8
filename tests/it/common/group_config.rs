//! Where the ranks of one test meet: each group on a loopback address of its own.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hvtui::clock;
use hvtui::collective::{GroupConfig, Secret, TransportPreference};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// An address of 127.0.0.0/8 that no other group of this process uses, nor (by its pid) another test process.
pub(crate) fn own_loopback() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    Ipv4Addr::new(127, (pid >> 4) as u8 | 1, (pid << 4) as u8 | (number >> 8) as u8, number as u8).into()
}

/// The secret of the group at an address: memory is shared under a name that follows from it, so each has its own.
pub(crate) fn secret_of(at: IpAddr) -> Secret {
    let mut tail = String::new();
    for byte in at.to_string().bytes() {
        let _ = write!(tail, "{byte:02x}");
    }
    Secret::from_hex(&format!("{}{tail}", &SECRET[tail.len()..])).unwrap()
}

pub(crate) fn config(at: IpAddr, rank: u32, world: u32, timeout: Duration) -> GroupConfig {
    GroupConfig {
        rank,
        world,
        master: at.to_string(),
        port: 29500,
        bind: Some(at),
        secret: secret_of(at),
        timeout,
        clock: clock::host_now,
        ticker: clock::ticker(),
        transport: TransportPreference::Auto,
        shm_domain: String::new(),
        streams: None,
        pin: false,
        local: None,
    }
}
