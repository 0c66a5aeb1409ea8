//! The flight recorder: the last operations of a rank, kept for the moment when one fails.

use std::fmt::Write;

use super::deadline::Clock;
use super::op::{OpId, OpKind};
use crate::domain::time::Ticker;

/// Operations that are kept.
pub(super) const KEPT: usize = 256;

/// How far an operation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// This rank has come; it waits for others.
    Entered,
    /// All have come; bytes are moving.
    AllEntered,
    /// Done.
    Left,
}

/// One operation, with the moments of this rank on its host's clock, ns; 0 where it did not come so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpRecord {
    /// What was done.
    pub op: OpId,
    /// When this rank called.
    pub enter: u64,
    /// When it knew that all had called.
    pub all_entered: u64,
    /// When it was done.
    pub leave: u64,
}

impl OpRecord {
    /// How far it came.
    pub fn reached(&self) -> Reached {
        match (self.all_entered, self.leave) {
            (_, 1..) => Reached::Left,
            (1.., 0) => Reached::AllEntered,
            (0, 0) => Reached::Entered,
        }
    }
}

/// The recorder. Writing costs a few stores; nothing is allocated after its creation.
#[derive(Debug)]
pub(super) struct Recorder {
    records: Vec<OpRecord>,
    /// Operations ever entered.
    count: u64,
}

const NONE: OpRecord =
    OpRecord { op: OpId { kind: OpKind::Barrier, seq: 0, len: 0 }, enter: 0, all_entered: 0, leave: 0 };

impl Recorder {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self { records: vec![NONE; KEPT], count: 0 }
    }

    /// An operation begins. The entry that [`Recorder::all_entered`] and [`Recorder::left`] then complete.
    pub(super) fn entered(&mut self, op: OpId, at: u64) {
        self.records[self.count as usize % KEPT] = OpRecord { op, enter: at, all_entered: 0, leave: 0 };
        self.count += 1;
    }

    fn last(&mut self) -> &mut OpRecord {
        let at = self.count.wrapping_sub(1) as usize % KEPT;
        &mut self.records[at]
    }

    /// All ranks have come.
    pub(super) fn all_entered(&mut self, at: u64) {
        self.last().all_entered = at;
    }

    /// The operation is done.
    pub(super) fn left(&mut self, at: u64) {
        self.last().leave = at;
    }

    /// What is kept, oldest first. Moments were noted in ticks; now they are told on the host's clock.
    pub(super) fn flight(&self, ticker: Ticker, clock: Clock) -> Flight {
        let (ticks, now) = (ticker.now(), clock().0.saturating_mul(1000));
        let told = |at: u64| if at == 0 { 0 } else { now.saturating_sub(ticker.between(at, ticks)).max(1) };
        let kept = self.count.min(KEPT as u64);
        let records = (self.count - kept..self.count).map(|at| {
            let OpRecord { op, enter, all_entered, leave } = self.records[at as usize % KEPT];
            OpRecord { op, enter: told(enter), all_entered: told(all_entered), leave: told(leave) }
        });
        Flight { records: records.collect(), before: self.count - kept, now }
    }
}

/// The last operations of a rank, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flight {
    /// The operations.
    pub records: Vec<OpRecord>,
    /// How many came before the first of them.
    pub before: u64,
    /// When this was asked, on the host's clock, ns.
    pub now: u64,
}

impl Flight {
    /// A table for people, a line an operation: when it was entered (µs before this was asked), how long it waited and
    /// transferred, how far it came.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if self.before > 0 {
            let _ = writeln!(text, "({} operations before these)", self.before);
        }
        let _ =
            writeln!(text, "{:>14}  {:>12}  {:>12}  operation", "entered µs ago", "wait µs", "transfer µs");
        for record in &self.records {
            let ago = self.now.saturating_sub(record.enter) / 1000;
            let span = |from: u64, to: u64| match to {
                0 => "-".to_owned(),
                to => format!("{:.1}", to.saturating_sub(from) as f64 / 1000.0),
            };
            let (wait, transfer) =
                (span(record.enter, record.all_entered), span(record.all_entered, record.leave));
            let state = match record.reached() {
                Reached::Entered => "  <- waits for other ranks",
                Reached::AllEntered => "  <- all ranks have come, bytes are moving",
                Reached::Left => "",
            };
            let _ = writeln!(text, "{ago:>14}  {wait:>12}  {transfer:>12}  {}{state}", record.op);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;

    fn clock() -> HostTime {
        HostTime(400)
    }

    /// The clock stands at 400 µs; ticks are of 10 ns and stand at 40 000.
    const TICKER: Ticker = Ticker { read: || 40_000, nanos: 10.0 };

    #[test]
    fn the_last_operations_are_kept_in_order() {
        let mut recorder = Recorder::new();
        for seq in 1..=300 {
            recorder.entered(OpId { kind: OpKind::Barrier, seq, len: 0 }, seq * 100);
            recorder.all_entered(seq * 100 + 10);
            if seq < 300 {
                recorder.left(seq * 100 + 20);
            }
        }
        let flight = recorder.flight(TICKER, clock);
        assert_eq!((flight.records.len(), flight.before, flight.records[0].op.seq), (KEPT, 44, 45));
        assert_eq!(flight.records[KEPT - 1].reached(), Reached::AllEntered);
        assert_eq!(flight.records[KEPT - 2].reached(), Reached::Left);
        assert_eq!(
            (flight.records[0].enter, flight.records[0].all_entered - flight.records[0].enter),
            (45_000, 100)
        );
        let table = flight.table();
        assert!(table.starts_with("(44 operations before these)"), "{table}");
        assert!(
            table.trim_end().ends_with("barrier #300  <- all ranks have come, bytes are moving"),
            "{table}"
        );
    }

    #[test]
    fn nothing_is_an_empty_flight() {
        let nothing = Recorder::new().flight(TICKER, clock);
        assert_eq!(nothing, Flight { now: 400_000, ..Flight::default() });
    }
}
