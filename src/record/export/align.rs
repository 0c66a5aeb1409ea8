//! Places the hosts' clocks of a recording on the client's.

use std::collections::BTreeMap;

use crate::domain::clock_fit::{ClockLine, ClockLines, ClockTrack};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::HostId;
use crate::domain::time::HostTime;

/// The clocks of a recording's hosts.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    hosts: BTreeMap<HostId, ClockLines>,
}

/// Gathers pings on a pass over the recording.
#[derive(Debug, Default)]
pub(super) struct Gather {
    tracks: BTreeMap<HostId, ClockTrack>,
}

impl Gather {
    pub(super) fn take(&mut self, envelope: &Envelope) {
        if let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) {
            self.tracks.entry(host.clone()).or_default().add(*sample);
        }
    }

    pub(super) fn fit(self) -> Clocks {
        let hosts = self.tracks.into_iter().filter_map(|(host, track)| Some((host, track.fit()?)));
        Clocks { hosts: hosts.collect() }
    }
}

impl Clocks {
    /// A host's clock, as it ran last; `None` without a ping.
    pub(super) fn of(&self, host: &HostId) -> Option<&ClockLine> {
        Some(self.hosts.get(host)?.newest())
    }

    /// The hosts with a ping.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &HostId> {
        self.hosts.keys()
    }

    /// The client's time of a host's moment, nanoseconds since the Unix epoch; `None` for a host
    /// without a ping.
    pub(super) fn place(&self, host: &HostId, time: HostTime) -> Option<i64> {
        let offset_ns = self.hosts.get(host)?.at(time).offset_ns(time);
        i64::try_from(i128::from(time.0) * 1_000 + i128::from(offset_ns)).ok()
    }
}
