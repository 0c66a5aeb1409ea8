//! Steps as a table: one row a rank and step, in the order in which they were heard of.

use std::borrow::Cow;
use std::io;

use super::pass::{Item, Run};
use super::table::{Cell, Column, Kind, Table};
use crate::domain::run::Slot;
use crate::domain::time::Stamp;
use crate::domain::timing::Phase;

/// The table.
pub(super) struct Steps;

impl Table for Steps {
    fn columns(&self) -> Vec<Column> {
        let before = [
            ("step", Kind::Integer),
            ("rank", Kind::Integer),
            ("host", Kind::Text),
            ("gpu", Kind::Integer),
            ("at", Kind::Moment),
            ("start_us", Kind::Integer),
            ("dur_us", Kind::Integer),
        ];
        let phases = Phase::ALL.map(|phase| (Cow::Owned(format!("{}_us", phase.name())), Kind::Integer));
        let behind = [
            ("hidden_us", Kind::Integer),
            ("loss", Kind::Float),
            ("samples", Kind::Integer),
            ("worker", Kind::Integer),
        ];
        let named = |(name, kind): (&'static str, Kind)| (Cow::Borrowed(name), kind);
        before.map(named).into_iter().chain(phases).chain(behind.map(named)).collect()
    }

    fn rows(
        &self,
        run: &Run<'_>,
        item: &Item<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Item::Step { id, span, timing } = item else { return Ok(()) };
        let placement = run.chosen.placement(id.rank);
        let gpu = match placement.map(|placement| &placement.slot) {
            Some(Slot::Gpu { index, .. }) => Cell::Integer(i64::from(*index)),
            Some(Slot::Cpu { .. }) | None => Cell::None,
        };
        let start = Stamp(span.0.div_euclid(1_000));
        let whole = |value: u64| Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX));
        let known = run.told.known(timing);
        let or_none = |value: Option<u64>| value.map_or(Cell::None, whole);
        let mut cells = vec![
            whole(timing.step),
            Cell::Integer(id.rank.0.into()),
            placement.map_or(Cell::None, |placement| Cell::Text(placement.host.as_str())),
            gpu,
            Cell::Moment(start),
            Cell::Integer(start.micros_since(run.start)),
            whole(timing.dur_us.into()),
        ];
        cells.extend(known.phases_us.map(or_none));
        cells.extend([
            or_none(known.hidden_us.map(u64::from)),
            timing.loss.map_or(Cell::None, Cell::Float),
            or_none(known.samples.map(u64::from)),
            or_none(id.worker().map(u64::from)),
        ]);
        row(&cells)
    }
}
