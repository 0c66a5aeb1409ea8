//! CSV (RFC 4180) of the steps: one row a rank and step, in the order in which they were heard of. Where there is no
//! value the cell is empty.

use std::io::{self, Write};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::{Format, Target};
use crate::domain::quote::csv_cell;
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "csv",
    about: "Steps: one row a rank and step, with the time in each phase",
    target: Target::Text,
    sink: || Box::new(Csv),
};

struct Csv;

impl Sink for Csv {
    fn begin(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        let phases = Phase::ALL.map(|phase| format!("{}_us", phase.name())).join(",");
        write!(out, "step,rank,host,gpu,at,start_us,dur_us,{phases},hidden_us,loss,samples\r\n")
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        let Item::Step { rank, span, timing } = item else { return Ok(()) };
        if !out.take(1) {
            return Ok(());
        }
        let placement = run.chosen.placement(*rank);
        let host = placement.map(|placement| csv_cell(placement.host.as_str())).unwrap_or_default();
        let gpu = match placement.map(|placement| &placement.slot) {
            Some(Slot::Gpu { index, .. }) => index.to_string(),
            Some(Slot::Cpu { .. }) | None => String::new(),
        };
        let start = Stamp(span.0.div_euclid(1_000));
        let (at, start_us) = (start.rfc3339(), start.micros_since(run.start));
        let phases = timing.phase_totals().map(|micros| micros.to_string()).join(",");
        // a loss that became `NaN` or `inf` is written so
        let loss = timing.loss.map(|loss| loss.to_string()).unwrap_or_default();
        let (step, dur, hidden, samples) = (timing.step, timing.dur_us, timing.hidden_us, timing.samples);
        write!(out, "{step},{rank},{host},{gpu},{at},{start_us},{dur},{phases},{hidden},{loss},{samples}\r\n")
    }

    fn end(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }
}
