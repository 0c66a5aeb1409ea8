//! Places the hosts' clocks of a recording on the client's.

use std::collections::BTreeMap;

use crate::domain::clock_fit::{ClockLine, ClockLines, ClockTrack};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::HostId;
use crate::domain::time::{HostTime, Stamp};
use crate::record::format::Channel;
use crate::record::reader::Reader;

/// The clocks of a recording's hosts.
#[derive(Debug, Default)]
pub struct Clocks {
    hosts: BTreeMap<HostId, ClockLines>,
}

/// Gathers pings on a pass over the recording.
#[derive(Debug, Default)]
pub(in crate::record) struct Gather {
    tracks: BTreeMap<HostId, ClockTrack>,
}

impl Gather {
    pub(in crate::record) fn take(&mut self, envelope: &Envelope) {
        if let (Origin::Host(host), Event::ClockSampled { sample }) = (&envelope.origin, &envelope.event) {
            self.tracks.entry(host.clone()).or_default().add(*sample);
        }
    }

    pub(in crate::record) fn fit(self) -> Clocks {
        let hosts = self.tracks.into_iter().filter_map(|(host, track)| Some((host, track.fit()?)));
        Clocks { hosts: hosts.collect() }
    }
}

impl Clocks {
    /// By all pings of a recording; what can't be read is left out.
    pub fn of_recording(reader: &Reader) -> Self {
        let mut gather = Gather::default();
        for envelope in reader.select(.., |channel| channel == Channel::Clock).flatten() {
            gather.take(&envelope);
        }
        gather.fit()
    }

    /// The client's time of a host's moment; `None` for a host without a ping.
    pub fn stamp(&self, host: &HostId, time: HostTime) -> Option<Stamp> {
        self.place(host, time).map(|ns| Stamp(ns.div_euclid(1_000)))
    }

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
        placed(self.hosts.get(host)?.at(time), time)
    }

    /// Before this moment, nanoseconds since the Unix epoch, no moment of a host from `time` on is placed; `None` for a host without a ping.
    pub(super) fn earliest(&self, host: &HostId, time: HostTime) -> Option<i64> {
        let place = |line: &ClockLine| {
            // one that runs backwards places later moments before earlier ones
            if line.drift.abs() < 0.5 { placed(line, time).unwrap_or(i64::MIN) } else { i64::MIN }
        };
        self.hosts.get(host)?.all().map(place).min()
    }
}

fn placed(line: &ClockLine, time: HostTime) -> Option<i64> {
    i64::try_from(i128::from(time.0) * 1_000 + i128::from(line.offset_ns(time))).ok()
}
