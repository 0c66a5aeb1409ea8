//! How much of the disk a recording may take: in all, and in a short time. What there is too much of is left out, lines first,
//! the story of the run last; what ends it is always written. Pure.

use crate::domain::event::{Event, LOG};
use crate::domain::time::{HostTime, Stamp};

/// What a recording may take in all, bytes, unless the hosts file says otherwise. A run of 64 ranks that take four steps a
/// second and print a line each fills 5 GB in a week.
pub const CAP: u64 = 8 << 30;
/// What it may take at once, bytes, and what a second from then on: sixty times what those 64 ranks make.
const AT_ONCE: f64 = (16 << 20) as f64;
const A_SECOND: f64 = (512 << 10) as f64;
/// How much more than that the next more worthy kind may take.
const STEP: f64 = (4 << 20) as f64;

/// How dear an event is where there is no room. The dearest comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Worth {
    /// What ranks print: their hosts have it, too.
    Line,
    /// Steps, metrics, collectives.
    Step,
    /// Samples of hosts.
    Telemetry,
    /// What else happens.
    Story,
    /// What becomes of the run.
    End,
}

/// How dear an event is, and what its kind is called where it is left out.
pub(super) fn worth(event: &Event) -> (Worth, &'static str) {
    match event {
        Event::LogPrinted { .. } => (Worth::Line, LOG),
        Event::LogUnfinished { .. } => (Worth::Line, "unfinished line"),
        Event::StepDone { .. } => (Worth::Step, "step"),
        Event::MetricReported { .. } => (Worth::Step, "metric"),
        Event::CollectiveDone { .. } => (Worth::Step, "collective"),
        Event::HostSampled { .. } | Event::ClockSampled { .. } => (Worth::Telemetry, "telemetry"),
        Event::RunCreated { .. }
        | Event::Attached { .. }
        | Event::StageEntered { .. }
        | Event::RankStarted { .. }
        | Event::RankExited { .. }
        | Event::RunRestarted { .. }
        | Event::RunEnded { .. } => (Worth::End, "event"),
        _ => (Worth::Story, "event"),
    }
}

/// What a recording may still take.
#[derive(Debug)]
pub(super) struct Budget {
    cap: u64,
    /// Bytes of the whole recording.
    taken: u64,
    /// What may be taken at once; below zero where what is dear took more.
    left: f64,
    /// The moment up to which there was room, and when that was by a clock.
    last: Option<(Stamp, HostTime)>,
}

impl Budget {
    /// Of a recording whose earlier files take so much.
    pub(super) fn new(taken: u64) -> Self {
        Self { cap: CAP, taken, left: AT_ONCE, last: None }
    }

    /// It may take so much in all.
    pub(super) fn limit(&mut self, cap: u64) {
        self.cap = cap;
    }

    /// So many bytes more were written before an envelope of the moment `at` was taken at `now`. What is told late may be of any time.
    pub(super) fn took(&mut self, at: Stamp, now: HostTime, bytes: u64) {
        let (before, since) = self.last.unwrap_or((at, now));
        let passed_us = i64::try_from(now.0.saturating_sub(since.0)).unwrap_or(i64::MAX);
        let until = before.plus_micros(passed_us).max(at);
        self.last = Some((until, now));
        let seconds = until.seconds_since(before);
        self.left = (self.left + seconds * A_SECOND).min(AT_ONCE) - bytes as f64;
        self.taken = self.taken.saturating_add(bytes);
    }

    /// Whether an event may be written behind `waiting` bytes that are not compressed yet.
    pub(super) fn admits(&self, worth: Worth, waiting: usize) -> bool {
        let grade = match worth {
            Worth::Line => 0,
            Worth::Step => 1,
            Worth::Telemetry => 2,
            Worth::Story => 4,
            Worth::End => return true,
        };
        let cap = self.cap.saturating_add(self.cap / 8 * grade);
        self.taken < cap && self.left - waiting as f64 > -STEP * grade as f64
    }

    /// Why something is left out, for a person.
    pub(super) fn why(&self) -> String {
        use crate::domain::units::bytes;
        if self.taken >= self.cap {
            let cap = bytes(self.cap);
            return format!(
                "it has come to {cap}, and lines are left out from here on (`max_recording` in the hosts file)"
            );
        }
        let rate = bytes(A_SECOND as u64);
        format!(
            "more came than {rate} a second for long, and lines were left out; the hosts have them for a while"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Worth; 5] = [Worth::Line, Worth::Step, Worth::Telemetry, Worth::Story, Worth::End];

    /// One says in a few bytes what a million others would.
    #[test]
    fn what_is_missing_on_the_host_is_told_where_lines_are_left_out() {
        let gap =
            r#"{"type":"log_gap","gap":{"rank":0,"stream":"stdout","from":0,"to":9,"reason":"not_kept"}}"#;
        assert_eq!(worth(&serde_json::from_str(gap).unwrap()).0, Worth::Story);
    }

    fn admitted(budget: &Budget) -> usize {
        ALL.iter().filter(|worth| budget.admits(**worth, 0)).count()
    }

    #[test]
    fn at_the_cap_lines_go_first_and_the_end_never() {
        let mut budget = Budget::new(0);
        budget.limit(8 << 20);
        let mut seen = Vec::new();
        for second in 0..16 {
            budget.took(Stamp(second * 60_000_000), HostTime(0), 1 << 20);
            seen.push(admitted(&budget));
        }
        assert_eq!(seen, [5, 5, 5, 5, 5, 5, 5, 4, 3, 2, 2, 1, 1, 1, 1, 1]);
        assert!(budget.why().contains("8.0 M") && budget.why().contains("max_recording"), "{}", budget.why());
        // what earlier files take counts
        let mut resumed = Budget::new(8 << 20);
        resumed.limit(8 << 20);
        assert_eq!(admitted(&resumed), 4);
    }

    #[test]
    fn a_minute_of_whatever_comes_takes_less_than_64_mib() {
        for (place, worth) in ALL.iter().enumerate().take(4) {
            let mut budget = Budget::new(0);
            let mut taken = 0u64;
            for ms in 0..60_000 {
                let more = if budget.admits(*worth, 0) { 100 << 10 } else { 0 };
                budget.took(Stamp(ms * 1000), HostTime(0), more);
                taken += more;
            }
            assert!((46 << 20..63 << 20).contains(&taken), "{worth:?}: {taken}");
            // and what is dearer has its room all the same
            assert!(admitted(&budget) >= 4 - place, "{worth:?}");
        }
    }

    /// Events of now, and of a minute ago in turn, while ten seconds pass.
    #[test]
    fn what_is_told_late_gives_no_room() {
        let (mut budget, mut taken) = (Budget::new(0), 0u64);
        for ms in 0..10_000 {
            let at = Stamp(60_000_000 + ms * 1000 - ms % 2 * 60_000_000);
            let more = if budget.admits(Worth::Line, 0) { 100 << 10 } else { 0 };
            budget.took(at, HostTime(ms.unsigned_abs() * 1000), more);
            taken += more;
        }
        assert!((20 << 20..22 << 20).contains(&taken), "{taken}");
        // what is all of one moment has the room of the time that it takes
        let (mut budget, mut taken) = (Budget::new(0), 0u64);
        for ms in 0..10_000 {
            let more = if budget.admits(Worth::Line, 0) { 100 << 10 } else { 0 };
            budget.took(Stamp(5), HostTime(ms * 1000), more);
            taken += more;
        }
        assert!((20 << 20..22 << 20).contains(&taken), "{taken}");
    }

    /// What lies an hour back is caught up with in a moment; then ten seconds pass in which all that comes is of one moment.
    #[test]
    fn time_gives_room_also_behind_what_was_caught_up_with() {
        let (mut budget, mut taken) = (Budget::new(0), 0u64);
        for second in 0..3600 {
            budget.took(Stamp(second * 1_000_000), HostTime(7), 0);
        }
        for ms in 0..10_000 {
            let more = if budget.admits(Worth::Line, 0) { 100 << 10 } else { 0 };
            budget.took(Stamp(3_600_000_000), HostTime(7 + ms * 1000), more);
            taken += more;
        }
        assert!((20 << 20..22 << 20).contains(&taken), "{taken}");
    }

    #[test]
    fn a_recording_of_64_ranks_never_meets_it() {
        let mut budget = Budget::new(0);
        for second in 0..7 * 86_400 {
            budget.took(Stamp(second * 1_000_000), HostTime(0), 8_500);
            assert!(budget.admits(Worth::Line, 200_000));
        }
    }
}
