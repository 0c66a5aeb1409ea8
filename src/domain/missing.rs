//! What of a run never came or is not recorded: output that a host did not keep, values that were lost on the way, lines and
//! steps beyond what a recording takes.

use serde::{Deserialize, Serialize};

use super::event::{Envelope, Event, LOG, Origin, UNBEGUN, UNTICKED};
use super::ids::{HostId, Rank};
use super::log::LogGap;
use super::text::sanitize;
use super::time::Stamp;
use super::units::counted;
use super::world::World;

/// How many are kept of a run, the first ones.
const MOST: usize = 64;
/// The same again so soon after is one with it, microseconds: a recorder that leaves lines out says so each second.
const JOINED_US: i64 = 10_000_000;

/// What is missing of a run, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing(Vec<MissingPart>);

/// Something that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPart {
    /// Since when.
    pub at: Stamp,
    until: Stamp,
    of: Of,
    what: What,
}

/// Of what it is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Of {
    Run,
    Host(HostId),
    Rank(Rank),
}

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Bytes of a rank's file.
    Output(LogGap),
    /// So many of these events.
    Events(String, u64),
}

impl What {
    /// Of an event that tells of a loss. The state of a line that has not ended, one ping of many, and steps of which only the waits
    /// or the beginning are not told are none.
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::LogGap { gap } => Some(Self::Output(gap.clone())),
            Event::Gap { what, dropped }
                if !matches!(what.as_str(), "unfinished line" | "clock" | UNTICKED | UNBEGUN) =>
            {
                Some(Self::Events(what.clone(), *dropped))
            }
            _ => None,
        }
    }

    /// Takes in more of the same kind; `false` where it is of another.
    fn add(&mut self, more: &Self) -> bool {
        match (self, more) {
            (Self::Output(own), Self::Output(more))
                if (own.stream, own.reason) == (more.stream, more.reason) =>
            {
                own.to = own.to.saturating_add(more.bytes());
                true
            }
            (Self::Events(own, count), Self::Events(more, dropped)) if own == more => {
                *count = count.saturating_add(*dropped);
                true
            }
            _ => false,
        }
    }
}

impl Missing {
    /// All of it.
    pub fn parts(&self) -> &[MissingPart] {
        &self.0
    }

    fn take(&mut self, at: Stamp, of: &Of, what: &What) {
        let is_near = |part: &&mut MissingPart| part.of == *of && at.micros_since(part.until) <= JOINED_US;
        for part in self.0.iter_mut().rev().filter(is_near) {
            if part.what.add(what) {
                part.until = part.until.max(at);
                return;
            }
        }
        if self.0.len() < MOST {
            self.0.push(MissingPart { at, until: at, of: of.clone(), what: what.clone() });
        }
    }
}

impl MissingPart {
    /// The rank of which it is missing, where it is one.
    pub fn rank(&self) -> Option<Rank> {
        if let Of::Rank(rank) = self.of { Some(rank) } else { None }
    }

    /// The host of which it is missing, where it is one.
    pub fn host(&self) -> Option<&HostId> {
        if let Of::Host(host) = &self.of { Some(host) } else { None }
    }

    /// What, in words: `output of rank 3: 12 M were not kept (cap 256 M)`.
    pub fn words(&self) -> String {
        let of = match &self.of {
            Of::Run => String::new(),
            Of::Host(host) => format!("{}: ", sanitize(host.as_str())),
            Of::Rank(rank) => format!("rank {rank}: "),
        };
        let (what, count) = match &self.what {
            What::Output(gap) => {
                return format!("output of {of}{}", gap.describe().trim_start_matches("… "));
            }
            What::Events(what, count) => (what.as_str(), *count),
        };
        match what {
            LOG => format!("{of}{} not recorded", counted(count, "line")),
            "step" | "metric" | "collective" | "event" => {
                format!("{of}{} not recorded", counted(count, what))
            }
            "telemetry" => format!("{of}{} missing", counted(count, "telemetry sample")),
            _ if count == 1 => format!("{of}{}", sanitize(what)),
            _ => format!("{of}{} ({count})", sanitize(what)),
        }
    }
}

impl World {
    /// Takes in that something did not come; what a host has lost is missing in its runs.
    pub(super) fn miss(&mut self, envelope: &Envelope) {
        let Some(what) = What::of(&envelope.event) else { return };
        let at = envelope.at;
        let (run, of) = match &envelope.origin {
            Origin::Host(host) => {
                let of = Of::Host(host.clone());
                let runs = self.runs.values_mut();
                for run in runs.filter(|run| run.is_live() && run.by_host.contains_key(host)) {
                    run.history.missing.take(at, &of, &what);
                }
                return;
            }
            Origin::Run(run) => (run, Of::Run),
            Origin::Rank(run, rank) | Origin::Worker(run, rank, _) => (run, Of::Rank(*rank)),
        };
        if let Some(run) = self.runs.get_mut(run) {
            run.history.missing.take(at, &of, &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::log::{GapReason, Stream};

    fn lost(what: &str, dropped: u64) -> What {
        What::of(&Event::Gap { what: what.to_owned(), dropped }).unwrap()
    }

    #[test]
    fn what_is_missing_is_told_once_with_how_much() {
        let mut missing = Missing::default();
        let gap = |from, to| {
            let reason = GapReason::NotKept;
            let gap = LogGap { rank: Rank(3), stream: Stream::Stdout, from, to, reason, cap: None };
            What::of(&Event::LogGap { gap }).unwrap()
        };
        let rank = Of::Rank(Rank(3));
        for second in 0..30 {
            missing.take(Stamp(second * 1_000_000), &rank, &lost(LOG, 2));
        }
        missing.take(Stamp(5_000_000), &rank, &gap(0, 1 << 20));
        missing.take(Stamp(6_000_000), &rank, &gap(4 << 20, 6 << 20));
        missing.take(Stamp(90_000_000), &rank, &lost(LOG, 1));
        missing.take(Stamp(91_000_000), &Of::Host(HostId::from("gpu-b")), &lost("telemetry", 1));
        missing.take(Stamp(92_000_000), &Of::Run, &lost("report line 7 not understood: x", 1));
        let told: Vec<_> = missing.parts().iter().map(|part| (part.at.0 / 1_000_000, part.words())).collect();
        let told: Vec<_> = told.iter().map(|(at, words)| (*at, words.as_str())).collect();
        assert_eq!(
            told,
            [
                (0, "rank 3: 60 lines not recorded"),
                (5, "output of rank 3: 3.0 M were not kept"),
                (90, "rank 3: 1 line not recorded"),
                (91, "gpu-b: 1 telemetry sample missing"),
                (92, "report line 7 not understood: x"),
            ]
        );
    }

    #[test]
    fn it_is_bounded_and_what_is_no_loss_is_left_out() {
        let mut missing = Missing::default();
        for at in 0..1000 {
            missing.take(Stamp(at * 60_000_000), &Of::Run, &lost("event", 1));
        }
        assert_eq!(missing.parts().len(), MOST);
        for what in ["unfinished line", "clock", UNTICKED, UNBEGUN] {
            assert!(What::of(&Event::Gap { what: what.to_owned(), dropped: 1 }).is_none());
        }
    }
}
