//! What a rank needs to join its group.

use std::net::IpAddr;
use std::time::Duration;

use super::auth::Secret;
use super::deadline::Clock;
use super::error::CollectiveError;
use crate::domain::time::Ticker;

/// Which transports between ranks may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportPreference {
    /// Shared memory within a host where it can be had, TCP else.
    #[default]
    Auto,
    /// TCP only, also within a host.
    Tcp,
}

/// What a rank needs to join its group.
#[derive(Debug, Clone)]
pub struct GroupConfig {
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks in all.
    pub world: u32,
    /// Name or address of rank 0's host, as the others reach it.
    pub master: String,
    /// Rank 0's port.
    pub port: u16,
    /// The address of this host that the rank may listen on; `None`: the one that faces rank 0.
    pub bind: Option<IpAddr>,
    /// The run's secret.
    pub secret: Secret,
    /// Deadline of the rendezvous, and of each part of each operation.
    pub timeout: Duration,
    /// Reads this host's clock.
    pub clock: Clock,
    /// Reads it fast.
    pub ticker: Ticker,
    /// Which transports may be used.
    pub transport: TransportPreference,
    /// Ranks that name different domains share no memory, even on one host; empty for all of a host together.
    pub shm_domain: String,
    /// TCP connections from a rank to the next host, 1 to 16; `None`: as many as fit the round trip between hosts. Rank 0's
    /// word holds for all.
    pub streams: Option<u32>,
    /// Keep this rank's thread on a core of its own, where the host has enough.
    pub pin: bool,
    /// This rank's place among the ranks of its host, and how many they are, as told by who started them. Only waiting and
    /// pinning follow it; `None`: the ranks that share memory count.
    pub local: Option<(u32, u32)>,
}

impl GroupConfig {
    pub(super) fn seconds(&self) -> u64 {
        self.timeout.as_secs()
    }

    pub(super) fn timeout_us(&self) -> u64 {
        u64::try_from(self.timeout.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn system(&self, what: &'static str) -> impl Fn(std::io::Error) -> CollectiveError + use<> {
        let rank = self.rank;
        move |error| CollectiveError::System { rank, what, reason: error.to_string() }
    }

    pub(super) fn missing(&self, ranks: Vec<u32>) -> CollectiveError {
        let address = format!("{}:{}", self.master, self.port);
        CollectiveError::Missing { ranks, address, seconds: self.seconds() }
    }
}
