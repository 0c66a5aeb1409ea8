//! CSV (RFC 4180) of the GPUs' values: one row a sample and GPU of a rank, with a column for each number that a
//! recording has of a GPU, by its name and in its unit there. Where there is no value the cell is empty.

use std::io::{self, Write};

use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::{Format, Target};
use crate::domain::gpu::{GpuSample, Number};
use crate::domain::quote::csv_cell;
use crate::domain::run::Slot;
use crate::domain::time::Stamp;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "csv-gpus",
    about: "GPUs: one row a sample and GPU, with all its values",
    target: Target::Text,
    sink: || Box::new(CsvGpus),
};

struct CsvGpus;

impl Sink for CsvGpus {
    fn begin(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        let names: Vec<&str> = GpuSample::NUMBERS.iter().map(|field| field.name).collect();
        write!(out, "at,time_us,rank,host,gpu,uuid,{}\r\n", names.join(","))
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        let Item::Host { at, host, sample } = item else { return Ok(()) };
        let at = Stamp(at.div_euclid(1_000));
        let (moment, time_us) = (at.rfc3339(), at.micros_since(run.start));
        for placement in run.chosen.placements().filter(|placement| placement.host == **host) {
            for slot in placement.slots() {
                let Slot::Gpu { index, uuid } = slot else { continue };
                let Some(gpu) = sample.gpus.iter().find(|gpu| gpu.index == *index) else { continue };
                if !out.take(1) {
                    return Ok(());
                }
                let numbers: Vec<String> =
                    GpuSample::NUMBERS.iter().map(|field| cell((field.get)(gpu))).collect();
                let (rank, host, uuid) = (placement.rank, csv_cell(host.as_str()), csv_cell(uuid.as_str()));
                let numbers = numbers.join(",");
                write!(out, "{moment},{time_us},{rank},{host},{index},{uuid},{numbers}\r\n")?;
            }
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn cell(number: Number<'_>) -> String {
    match number {
        Number::Value(value) => value.to_string(),
        Number::Failed(_) | Number::Unsupported => String::new(),
    }
}
