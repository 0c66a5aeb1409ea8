//! Tables as CSV (RFC 4180). Where there is no value the cell is empty.

use std::borrow::Cow;
use std::io::{self, Write};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::table::{Cell, Table};
use super::table_gpus::Gpus;
use super::table_steps::Steps;
use super::{Format, Target};
use crate::domain::quote::csv_cell;

/// The steps.
pub(super) const STEPS: Format = Format {
    name: "csv",
    about: "Steps: one row a rank and step, with the time in each phase",
    target: Target::Text,
    sink: || Box::new(Csv(Steps)),
};

/// The GPUs' values.
pub(super) const GPUS: Format = Format {
    name: "csv-gpus",
    about: "GPUs: one row a sample and GPU, with all its values",
    target: Target::Text,
    sink: || Box::new(Csv(Gpus)),
};

struct Csv<T>(T);

impl<T: Table> Sink for Csv<T> {
    fn begin(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        let columns = self.0.columns();
        line(out, columns.iter().map(|(name, _)| Cow::Borrowed(name.as_ref())))
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        self.0.rows(run, item, &mut |cells| {
            if out.take(1) { line(out, cells.iter().map(text)) } else { Ok(()) }
        })
    }

    fn end(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn text<'a>(cell: &'a Cell<'_>) -> Cow<'a, str> {
    match cell {
        Cell::Integer(value) => value.to_string().into(),
        // a loss that became `NaN` or `inf` is written so
        Cell::Float(value) => value.to_string().into(),
        Cell::Text(text) => csv_cell(text).into(),
        Cell::Moment(at) => at.rfc3339().into(),
        Cell::None => Cow::Borrowed(""),
    }
}

fn line<'a>(out: &mut Out<'_>, cells: impl Iterator<Item = Cow<'a, str>>) -> io::Result<()> {
    for (at, cell) in cells.enumerate() {
        out.write_all(if at == 0 { b"" } else { b"," })?;
        out.write_all(cell.as_bytes())?;
    }
    out.write_all(b"\r\n")
}
