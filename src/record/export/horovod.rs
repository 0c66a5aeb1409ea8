//! The shape of Horovod's timeline (`horovod/common/timeline.cc`), for what reads that: a process is a tensor, its
//! `NEGOTIATE_ALLREDUCE` lasts from the first rank's arrival to the last one's, each arrival is a tick with the rank's
//! number for a name, and `ALLREDUCE` follows.
//!
//! A recording tells one allreduce of a step, so there is one tensor. What Horovod tells beyond that, such as its
//! fusion buffers, no recording has, and nothing stands for it here.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::allreduce::Allreduce;
use super::out::Out;
use super::pass::{Item, Run, Sink};
use super::{Format, Target};

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "horovod",
    about: "The shape of Horovod's timeline: when each rank came to each step's allreduce",
    target: Target::Text,
    sink: || Box::new(Horovod { last: i64::MIN }),
};

const TENSOR: &str = "allreduce.gradients";

struct Horovod {
    /// When the last allreduce ended, microseconds: what a clock says is earlier begins there.
    last: i64,
}

impl Sink for Horovod {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        out.write_all(b"[")?;
        name(out, "process_name", 0, &json!({ "start_time_since_epoch_in_micros": run.start }))?;
        name(out, "process_sort_index", 0, &json!({ "sort_index": 0 }))?;
        name(out, "process_name", 1, &json!({ "name": TENSOR }))?;
        name(out, "process_sort_index", 1, &json!({ "sort_index": 1 }))
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Allreduce(allreduce) => self.allreduce(out, run, allreduce),
            _ => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        out.write_all(b"\n]\n")
    }
}

impl Horovod {
    fn allreduce(&mut self, out: &mut Out<'_>, run: &Run<'_>, allreduce: &Allreduce) -> io::Result<()> {
        let micros = |at: i64| (at.div_euclid(1_000)).saturating_sub(run.start.0);
        let begun = allreduce.arrivals.iter().map(|arrival| arrival.step.0).min();
        let (Some(begun), Some((_, end))) = (begun, allreduce.span()) else { return Ok(()) };
        let mut ticks = allreduce.arrivals_by_waits();
        let first = ticks.first().map_or(end, |(came, _)| *came);
        let together = micros(ticks.last().map_or(first, |(came, _)| *came)).max(self.last);
        let together = together.max(micros(begun));
        ticks.retain(|(_, id)| run.chosen.has_trainer(*id));
        if !out.take(5 + ticks.len() as u64) {
            return Ok(());
        }
        let mut event = |event: Value| out.element(&event);
        // by clocks that are not quite alike a rank may begin a step before another one has ended the one before
        let begun = micros(begun).max(self.last);
        event(json!({ "ph": "i", "name": "CYCLE_START", "ts": begun, "s": "g" }))?;
        let first = micros(first).max(begun);
        event(json!({ "ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": first, "pid": 1 }))?;
        for (came, id) in ticks {
            let ts = micros(came).max(first);
            event(json!({ "ph": "X", "name": id.number.to_string(), "ts": ts, "pid": 1, "dur": 0 }))?;
        }
        event(json!({ "ph": "E", "ts": together, "pid": 1 }))?;
        event(json!({ "ph": "B", "name": "ALLREDUCE", "ts": together, "pid": 1 }))?;
        self.last = micros(end).max(together);
        event(json!({ "ph": "E", "ts": self.last, "pid": 1, "args": { "step": allreduce.step } }))
    }
}

fn name(out: &mut Out<'_>, name: &str, pid: u32, args: &Value) -> io::Result<()> {
    out.naming(&json!({ "name": name, "ph": "M", "pid": pid, "args": args }))
}
