//! MCAP with one JSON message a step, sample, line and mark, as viewers plot them: the columns of a recording are hvtui's own.
//! A topic for each rank, GPU and host, so that a path such as `/rank_0/step.loss` is a line of a plot.
//!
//! Viewers refuse a schema of anything but an object and a property of several types, so a value that is not there is left out.

use std::collections::BTreeMap;
use std::io;

use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use serde_json::{Map, Value, json};

use super::super::log_json;
use super::json_values::{collective, finite, object, of_gpu, of_host, of_mark, step};
use super::out::{Out, Written};
use super::pass::{Item, Run, Sink};
use super::{Format, Target};
use crate::domain::gpu::GpuSample;
use crate::domain::ids::Rank;
use crate::domain::log_text::level::Level;
use crate::domain::log_text::plain;
use crate::domain::timing::Phase;

/// The format.
pub(super) const FORMAT: Format = Format {
    name: "mcap",
    about: "MCAP in rows of JSON, for Foxglove, Lichtblick and PlotJuggler: steps, metrics, GPUs, hosts, lines, marks",
    target: Target::File,
    sink: || Box::new(Rows::default()),
};

/// Topics of a file: their numbers have 16 bits.
const TOPICS: usize = 60_000;
/// Bytes of a chunk, uncompressed.
const CHUNK: u64 = 1 << 20;

#[derive(Default)]
struct Rows {
    mcap: Option<mcap::Writer<NoSeek<Written>>>,
    written: Written,
    /// Schemas by name, and channels by topic.
    schemas: BTreeMap<&'static str, u16>,
    channels: BTreeMap<String, u16>,
    sequence: u32,
}

/// A kind of message: its name, and its properties by name, type and meaning.
struct Kind {
    name: &'static str,
    properties: fn() -> Vec<(String, &'static str, String)>,
}

const STEP: Kind = Kind {
    name: "hvtui.row.Step",
    properties: || {
        let numbers = [
            ("step", "integer", "the step"),
            ("start_us", "number", "since the recording's start"),
            ("dur_us", "number", "how long it took"),
            ("hidden_us", "integer", "allreduce behind the computing; absent where the run tells none"),
            ("loss", "number", "absent where the rank tells none, or it is no number"),
            ("samples", "integer", "of the step; absent where the run tells none"),
            ("samples_per_s", "number", "of the rank"),
        ];
        let phases = Phase::ALL.map(|phase| {
            (
                format!("{}_us", phase.name()),
                "integer",
                "in this phase; absent where the run tells none".to_owned(),
            )
        });
        owned(&numbers).into_iter().chain(phases).collect()
    },
};
const METRIC: Kind = Kind {
    name: "hvtui.row.Metric",
    properties: || {
        owned(&[
            ("value", "number", "absent where it is no number"),
            ("step", "integer", "where it was told"),
        ])
    },
};
const COLLECTIVE: Kind = Kind {
    name: "hvtui.row.Collective",
    properties: || {
        owned(&[
            ("func", "string", "AllReduce and the like"),
            ("start_us", "number", "since the recording's start"),
            ("dur_us", "number", "on the GPU"),
            ("bytes", "integer", "NCCL's count"),
            ("ranks", "integer", "of the communicator"),
        ])
    },
};
const GPU: Kind = Kind {
    name: "hvtui.row.Gpu",
    properties: || {
        let numbers = GpuSample::NUMBERS.iter();
        numbers.map(|field| (field.name.to_owned(), "number", field.unit.to_owned())).collect()
    },
};
const HOST: Kind = Kind {
    name: "hvtui.row.Host",
    properties: || {
        owned(&[
            ("cpu_percent", "number", "of all processors"),
            ("memory_used", "number", "bytes"),
            ("load", "number", "over a minute"),
            ("net_rx", "number", "bytes a second"),
            ("net_tx", "number", "bytes a second"),
        ])
    },
};
const STRAGGLER: Kind = Kind {
    name: "hvtui.row.Straggler",
    properties: || owned(&[("rank", "integer", "which"), ("words", "string", "in a sentence")]),
};
const MARK: Kind = Kind {
    name: "hvtui.row.Mark",
    properties: || {
        owned(&[
            ("note", "string", "of a person"),
            ("step", "integer", "where"),
            ("rank", "integer", "of which"),
        ])
    },
};

fn owned(properties: &[(&str, &'static str, &str)]) -> Vec<(String, &'static str, String)> {
    properties.iter().map(|(name, kind, about)| ((*name).to_owned(), *kind, (*about).to_owned())).collect()
}

impl Kind {
    fn schema(&self) -> String {
        let properties: Map<String, Value> = (self.properties)()
            .into_iter()
            .map(|(name, kind, about)| (name, json!({ "type": kind, "description": about })))
            .collect();
        json!({ "title": self.name, "type": "object", "properties": properties }).to_string()
    }
}

impl Sink for Rows {
    fn begin(&mut self, out: &mut Out<'_>, run: &Run<'_>) -> io::Result<()> {
        let mut mcap = mcap::WriteOptions::new()
            .profile("")
            .library(concat!("hvtui ", env!("CARGO_PKG_VERSION")))
            .compression(Some(mcap::Compression::Zstd))
            .compression_level(1)
            .compression_threads(0)
            .chunk_size(Some(CHUNK))
            .disable_seeking(true)
            .create(NoSeek::new(self.written.clone()))
            .map_err(io::Error::other)?;
        let metadata = run.facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        mcap.write_metadata(&Metadata { name: "run".to_owned(), metadata }).map_err(io::Error::other)?;
        self.mcap = Some(mcap);
        self.written.pass_on(out)
    }

    fn take(&mut self, out: &mut Out<'_>, run: &Run<'_>, item: &Item<'_>) -> io::Result<()> {
        match item {
            Item::Step { id, span, timing } => {
                let mut row = step(run, timing);
                row["start_us"] = run.micros(span.0);
                self.row(out, (&STEP, format!("/{id}/step")), span.1, &row)
            }
            Item::Metric { id, at, name, value, step } => {
                let row = [("value", finite(*value)), ("step", step.map(Value::from))];
                self.row(out, (&METRIC, format!("/{id}/metric/{}", topic(name))), *at, &object(row))
            }
            Item::Collective { id, span, timing } => {
                let mut row = collective(*span, timing);
                row["start_us"] = run.micros(span.0);
                self.row(out, (&COLLECTIVE, format!("/{id}/collective")), span.1, &row)
            }
            Item::Line { at, line } => {
                let level = Level::of(&line.text);
                self.line(out, line.rank, *at, (level, &plain(&line.text)))
            }
            Item::Gap { at, gap } => self.line(out, gap.rank, *at, (Level::Warning, &gap.describe())),
            Item::Straggler { at, straggler, .. } => {
                let words = format!("rank {} {}", straggler.rank, straggler.words());
                let row = [("rank", Some(straggler.rank.0.into())), ("words", Some(words.into()))];
                self.row(out, (&STRAGGLER, "/stragglers".to_owned()), *at, &object(row))
            }
            Item::Mark { at, mark } => self.row(out, (&MARK, "/marks".to_owned()), *at, &of_mark(mark)),
            Item::Host { at, host, sample } => {
                let name = topic(host.as_str());
                self.row(out, (&HOST, format!("/host/{name}")), *at, &of_host(sample))?;
                for (_, _, gpu) in run.chosen.gpus(host, sample) {
                    self.row(out, (&GPU, format!("/gpu/{name}/{}", gpu.index)), *at, &of_gpu(gpu))?;
                }
                Ok(())
            }
            Item::Allreduce(_) | Item::Other { .. } => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Out<'_>, _: &Run<'_>) -> io::Result<()> {
        if let Some(mcap) = &mut self.mcap {
            mcap.finish().map_err(io::Error::other)?;
        }
        self.written.pass_on(out)
    }

    fn tells_stragglers(&self) -> bool {
        true
    }
}

impl Rows {
    fn row(
        &mut self,
        out: &mut Out<'_>,
        (kind, topic): (&Kind, String),
        at: i64,
        row: &Value,
    ) -> io::Result<()> {
        self.message(out, (kind.name, &|| kind.schema()), topic, at, row)
    }

    /// A line in the shape of Foxglove's log schema.
    fn line(
        &mut self,
        out: &mut Out<'_>,
        rank: Rank,
        at: i64,
        (level, text): (Level, &str),
    ) -> io::Result<()> {
        let timestamp = json!({ "sec": at.div_euclid(1_000_000_000), "nsec": at.rem_euclid(1_000_000_000) });
        let row = json!({ "timestamp": timestamp, "level": level as u8, "message": text, "name": format!("rank {rank}") });
        let schema = (log_json::SCHEMA_NAME, &(|| log_json::SCHEMA.to_owned()) as &dyn Fn() -> String);
        self.message(out, schema, format!("/rank_{rank}/log"), at, &row)
    }

    fn message(
        &mut self,
        out: &mut Out<'_>,
        (name, schema): (&'static str, &dyn Fn() -> String),
        topic: String,
        at: i64,
        row: &Value,
    ) -> io::Result<()> {
        if !out.take(1) {
            return Ok(());
        }
        let Some(mcap) = &mut self.mcap else { return Ok(()) };
        let channel_id = match self.channels.get(&topic) {
            Some(channel) => *channel,
            None if self.channels.len() >= TOPICS => {
                let text = format!(
                    "an MCAP file has no more than {TOPICS} topics, and each rank has one a metric: choose fewer ranks by --ranks"
                );
                return Err(io::Error::other(text));
            }
            None => {
                let made =
                    define(mcap, &mut self.schemas, (name, schema), &topic).map_err(io::Error::other)?;
                self.channels.insert(topic, made);
                made
            }
        };
        let at = u64::try_from(at).unwrap_or_default();
        let header = MessageHeader { channel_id, sequence: self.sequence, log_time: at, publish_time: at };
        self.sequence = self.sequence.wrapping_add(1);
        let text = serde_json::to_vec(row)?;
        mcap.write_to_known_channel(&header, &text).map_err(io::Error::other)?;
        self.written.pass_on(out)
    }
}

/// Writes a channel, and its schema where that is not there yet.
fn define(
    mcap: &mut mcap::Writer<NoSeek<Written>>,
    schemas: &mut BTreeMap<&'static str, u16>,
    (name, schema): (&'static str, &dyn Fn() -> String),
    topic: &str,
) -> mcap::McapResult<u16> {
    let schema = if let Some(known) = schemas.get(name) {
        *known
    } else {
        let made = mcap.add_schema(name, "jsonschema", schema().as_bytes())?;
        schemas.insert(name, made);
        made
    };
    mcap.add_channel(schema, topic, "json", &BTreeMap::new())
}

/// A name as a part of a topic.
fn topic(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}
