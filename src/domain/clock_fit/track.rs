//! A host's clock over a whole recording: a line for each stretch in which no clock was set. A line, unlike the live fit
//! that grows with its pings, never makes one step end after the next began.

use serde::{Deserialize, Serialize};

use super::{ClockLine, ClockSample, Pings};
use crate::domain::time::HostTime;

/// Stretches that are kept, the newest: no clock is set more often.
const MOST: usize = 1_000;

/// The pings of a host, in the order in which they came.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClockTrack {
    stretches: Vec<Pings>,
}

/// The lines of a host's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockLines {
    newest: Measured,
    /// Oldest first.
    before: Vec<Measured>,
}

/// A line with the host's first and last moment at which it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Measured {
    first: HostTime,
    last: HostTime,
    line: ClockLine,
}

impl ClockTrack {
    /// Takes the next ping into account.
    pub fn add(&mut self, sample: ClockSample) {
        if let Some(pings) = self.stretches.last_mut().filter(|pings| !pings.contradict(&sample)) {
            pings.add(sample);
            return;
        }
        if self.stretches.len() == MOST {
            self.stretches.remove(0);
        }
        let mut pings = Pings::default();
        pings.add(sample);
        self.stretches.push(pings);
    }

    /// What they say together; `None` without a ping.
    pub fn fit(&self) -> Option<ClockLines> {
        let lines = self.stretches.iter().filter_map(|pings| {
            let (first, last) = (pings.best.front()?.host_time, pings.recent.back()?.host_time);
            let middle = HostTime(first.0.midpoint(last.0));
            Some(Measured { first, last, line: pings.line(middle)? })
        });
        let mut before: Vec<Measured> = lines.collect();
        Some(ClockLines { newest: before.pop()?, before })
    }
}

impl ClockLines {
    /// The line of a moment: the newest that was measured then, else the closest one.
    pub fn at(&self, time: HostTime) -> &ClockLine {
        let away = |one: &Measured| one.first.0.saturating_sub(time.0).max(time.0.saturating_sub(one.last.0));
        let mut nearest = &self.newest;
        for one in self.before.iter().rev() {
            if away(one) < away(nearest) {
                nearest = one;
            }
        }
        &nearest.line
    }

    /// All lines, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &ClockLine> {
        self.before.iter().chain([&self.newest]).map(|one| &one.line)
    }

    /// The newest line.
    pub fn newest(&self) -> &ClockLine {
        &self.newest.line
    }
}
