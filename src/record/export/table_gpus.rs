//! The values of GPUs as a table: one row a sample and GPU of a rank, with a column for each number that a recording has of a GPU,
//! by its name and in its unit there.

use std::borrow::Cow;
use std::io;

use super::pass::{Item, Run};
use super::table::{Cell, Column, Kind, Table};
use crate::domain::gpu::{GpuSample, Number};
use crate::domain::time::Stamp;

/// The table.
pub(super) struct Gpus;

impl Table for Gpus {
    fn columns(&self) -> Vec<Column> {
        let before = [
            ("at", Kind::Moment),
            ("time_us", Kind::Integer),
            ("rank", Kind::Integer),
            ("host", Kind::Text),
            ("gpu", Kind::Integer),
            ("uuid", Kind::Text),
        ];
        let before = before.map(|(name, kind)| (Cow::Borrowed(name), kind));
        let numbers = GpuSample::NUMBERS.iter().map(|field| (Cow::Borrowed(field.name), Kind::Integer));
        before.into_iter().chain(numbers).collect()
    }

    fn rows(
        &self,
        run: &Run<'_>,
        item: &Item<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Item::Host { at, host, sample } = item else { return Ok(()) };
        let at = Stamp(at.div_euclid(1_000));
        for (placement, uuid, gpu) in run.chosen.gpus(host, sample) {
            let mut cells = vec![
                Cell::Moment(at),
                Cell::Integer(at.micros_since(run.start)),
                Cell::Integer(placement.rank.0.into()),
                Cell::Text(host.as_str()),
                Cell::Integer(i64::from(gpu.index)),
                Cell::Text(uuid.as_str()),
            ];
            cells.extend(GpuSample::NUMBERS.iter().map(|field| cell((field.get)(gpu))));
            row(&cells)?;
        }
        Ok(())
    }
}

fn cell(number: Number<'_>) -> Cell<'static> {
    match number {
        Number::Value(value) => Cell::Integer(i64::try_from(value).unwrap_or(i64::MAX)),
        Number::Failed(_) | Number::Unsupported => Cell::None,
    }
}
