//! The flight recorder: the last operations of a rank, kept for the moment when one fails.

use std::fmt::Write;

use super::op::{OpId, OpKind};

/// Operations that are kept.
pub const KEPT: usize = 256;

/// How far an operation came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// This rank has come; it waits for others.
    Entered,
    /// All have come; bytes are moving.
    Met,
    /// Done.
    Left,
}

/// One operation, with the moments of this rank on its host's clock, ns; 0 where it did not come so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leg {
    /// What was done.
    pub op: OpId,
    /// When this rank called.
    pub enter: u64,
    /// When it knew that all had called.
    pub met: u64,
    /// When it was done.
    pub leave: u64,
}

impl Leg {
    /// How far it came.
    pub fn reached(&self) -> Reached {
        match (self.met, self.leave) {
            (_, 1..) => Reached::Left,
            (1.., 0) => Reached::Met,
            (0, 0) => Reached::Entered,
        }
    }
}

/// The recorder. Writing costs a few stores; nothing is allocated after its creation.
#[derive(Debug)]
pub(super) struct Recorder {
    legs: Vec<Leg>,
    /// Operations ever entered.
    count: u64,
}

const NONE: Leg = Leg { op: OpId { kind: OpKind::Barrier, seq: 0, len: 0 }, enter: 0, met: 0, leave: 0 };

impl Recorder {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self { legs: vec![NONE; KEPT], count: 0 }
    }

    /// An operation begins. The entry that [`Recorder::met`] and [`Recorder::left`] then complete.
    pub(super) fn entered(&mut self, op: OpId, at: u64) {
        self.legs[self.count as usize % KEPT] = Leg { op, enter: at, met: 0, leave: 0 };
        self.count += 1;
    }

    fn last(&mut self) -> &mut Leg {
        let at = self.count.wrapping_sub(1) as usize % KEPT;
        &mut self.legs[at]
    }

    /// All ranks have come.
    pub(super) fn met(&mut self, at: u64) {
        self.last().met = at;
    }

    /// The operation is done.
    pub(super) fn left(&mut self, at: u64) {
        self.last().leave = at;
    }

    /// What is kept, oldest first.
    pub(super) fn flight(&self) -> Flight {
        let kept = self.count.min(KEPT as u64);
        let legs = (self.count - kept..self.count).map(|at| self.legs[at as usize % KEPT]).collect();
        Flight { legs, before: self.count - kept }
    }
}

/// The last operations of a rank, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flight {
    /// The operations.
    pub legs: Vec<Leg>,
    /// How many came before the first of them.
    pub before: u64,
}

impl Flight {
    /// A table for people, a line an operation: when it was entered (µs before `now`), how long it waited and
    /// transferred, how far it came.
    pub fn table(&self, now: u64) -> String {
        let mut text = String::new();
        if self.before > 0 {
            let _ = writeln!(text, "({} operations before these)", self.before);
        }
        let _ =
            writeln!(text, "{:>14}  {:>12}  {:>12}  operation", "entered µs ago", "wait µs", "transfer µs");
        for leg in &self.legs {
            let ago = now.saturating_sub(leg.enter) / 1000;
            let span = |from: u64, to: u64| match to {
                0 => "-".to_owned(),
                to => format!("{:.1}", to.saturating_sub(from) as f64 / 1000.0),
            };
            let (wait, transfer) = (span(leg.enter, leg.met), span(leg.met, leg.leave));
            let state = match leg.reached() {
                Reached::Entered => "  <- waits for other ranks",
                Reached::Met => "  <- all ranks have come, bytes are moving",
                Reached::Left => "",
            };
            let _ = writeln!(text, "{ago:>14}  {wait:>12}  {transfer:>12}  {}{state}", leg.op);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_operations_are_kept_in_order() {
        let mut recorder = Recorder::new();
        for seq in 1..=300 {
            recorder.entered(OpId { kind: OpKind::Barrier, seq, len: 0 }, seq * 1000);
            recorder.met(seq * 1000 + 10);
            if seq < 300 {
                recorder.left(seq * 1000 + 20);
            }
        }
        let flight = recorder.flight();
        assert_eq!((flight.legs.len(), flight.before, flight.legs[0].op.seq), (KEPT, 44, 45));
        assert_eq!(flight.legs[KEPT - 1].reached(), Reached::Met);
        assert_eq!(flight.legs[KEPT - 2].reached(), Reached::Left);
        let table = flight.table(400_000);
        assert!(table.starts_with("(44 operations before these)"), "{table}");
        assert!(
            table.trim_end().ends_with("barrier #300  <- all ranks have come, bytes are moving"),
            "{table}"
        );
    }

    #[test]
    fn nothing_is_an_empty_flight() {
        assert_eq!(Recorder::new().flight(), Flight::default());
    }
}
