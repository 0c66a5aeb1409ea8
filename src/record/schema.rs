//! The schemas that a recording carries for programs that know nothing of hvtui. Readers of ours need none: a channel
//! without one is read alike, and that is how older recordings are.
//!
//! Foxglove and Lichtblick read a JSON channel without a schema, and refuse one whose schema is of anything but an object,
//! or has a property of several types or a list of lists. So the schemas here have none of these, and the channels whose
//! messages are lists carry theirs in the metadata of the channel.

use std::collections::BTreeMap;

use super::format::{COLUMNS, Channel};
use super::log_json;
use super::raw::Body;

/// A schema: number, name, encoding and text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schema {
    /// Part of the format, as the numbers of channels are.
    pub(super) id: u16,
    pub(super) name: &'static str,
    pub(super) encoding: &'static str,
    pub(super) text: &'static str,
}

const JSON: &str = "jsonschema";

const LOG: Schema = Schema { id: 1, name: log_json::SCHEMA_NAME, encoding: JSON, text: log_json::SCHEMA };

const CHUNK: Schema = Schema {
    id: 2,
    name: "hvtui.Chunk",
    encoding: JSON,
    text: r#"{"title":"hvtui.Chunk","description":"what the chunk holds and how the run stands at its end; also stage (string or null), outcome (object or null), lines (list of rank, stream, offset of the last line)","type":"object","required":["first_seq","last_seq","start","end","envelopes"],"properties":{"first_seq":{"type":"integer"},"last_seq":{"type":"integer"},"start":{"type":"integer","description":"microseconds since the Unix epoch, client's clock"},"end":{"type":"integer","description":"likewise"},"envelopes":{"type":"integer"},"trained":{"type":"object","properties":{"step":{"type":"integer"},"loss":{"type":"number"},"libraries":{"type":"string"}}}}}"#,
};

const META: Schema = Schema {
    id: 3,
    name: "hvtui.Meta",
    encoding: JSON,
    text: r#"{"title":"hvtui.Meta","type":"object","required":["spec"],"properties":{"spec":{"type":"object","required":["id","name","command","placements","created"],"properties":{"id":{"type":"string"},"name":{"type":"string"},"command":{"type":"array","items":{"type":"string"}},"created":{"type":"integer","description":"microseconds since the Unix epoch, client's clock"}}}}}"#,
};

const PHASES: Schema = Schema {
    id: 4,
    name: "hvtui.Steps",
    encoding: COLUMNS,
    text: "head: n, texts, origins, seq[n], at[n] (us since the Unix epoch, client's clock), origin[n]
step[n], start[n] (us, host's monotonic clock), dur[n] (us), has_loss[n], loss[those], samples[n], spans[n]
of all spans: phase (0 data, 1 forward, 2 backward, 3 wait, 4 transfer, 5 optimizer, 6 other), start (us from the start of the step), dur (us)
hidden[n] (us)
",
};

const GPUS: Schema = Schema {
    id: 5,
    name: "hvtui.HostSamples",
    encoding: COLUMNS,
    text: "head: n, texts, origins, seq[n], at[n] (us since the Unix epoch, client's clock), origin[n]
texts; readings of hosts: cpu_percent, memory_used (bytes), load, net_rx, net_tx (bytes/s), gpus[n]
of all GPUs: index, util (%), memory_used, memory_total (bytes), temperature (C), power_mw, power_limit_mw, clock_sm_mhz, clock_memory_mhz, pstate, throttle, processes
of all processes: pid, user, command, memory (bytes); runs, ranks, containers; sm_percent, start_ticks, age_s
",
};

const METRICS: Schema = Schema {
    id: 6,
    name: "hvtui.Metrics",
    encoding: COLUMNS,
    text: "head: n, texts, origins, seq[n], at[n] (us since the Unix epoch, client's clock), origin[n]
texts; name[n], value[n] (f64), has_step[n], step[those]
",
};

const GPU_NUMBERS: Schema = Schema {
    id: 7,
    name: "hvtui.GpuNumbers",
    encoding: COLUMNS,
    text: "n, seq[n] of the samples in /gpu, gpus[n], texts
columns up to the end: name, reading[gpus of all samples]
",
};

const ALL: [Schema; 7] = [LOG, CHUNK, META, PHASES, GPUS, METRICS, GPU_NUMBERS];

/// The key under which the metadata of a channel holds the JSON schema of its messages.
const LISTED: &str = "jsonschema";
/// The messages of `/event`.
const EVENTS: &str = r#"{"title":"hvtui.Events","type":"array","items":{"type":"object","required":["seq","at","origin","event"],"properties":{"seq":{"type":"integer"},"at":{"type":"integer","description":"microseconds since the Unix epoch, client's clock"},"origin":{"type":"object","description":"host: name; run: id; rank: [run, rank]; worker: [run, rank, worker]"},"event":{"type":"object","required":["type"],"properties":{"type":{"type":"string"}}}}}}"#;
/// The messages of `/clock`.
const CLOCKS: &str = r#"{"title":"hvtui.ClockSamples","type":"array","items":{"type":"object","required":["seq","at","origin","event"],"properties":{"seq":{"type":"integer"},"at":{"type":"integer","description":"microseconds since the Unix epoch, client's clock"},"origin":{"type":"object","properties":{"host":{"type":"string"}}},"event":{"type":"object","required":["type","sample"],"properties":{"type":{"const":"clock_sampled"},"sample":{"type":"object","required":["host_time","offset_us","rtt_us"],"properties":{"host_time":{"type":"integer","description":"microseconds, host's monotonic clock"},"offset_us":{"type":"integer","description":"client's clock minus host's clock, microseconds"},"rtt_us":{"type":"integer","description":"round trip, microseconds"}}}}}}}}"#;

impl Schema {
    /// What the messages of a channel are; `None` where they are lists: see [`metadata`].
    pub(super) fn of(channel: Channel) -> Option<Self> {
        match channel {
            Channel::Chunk => Some(CHUNK),
            Channel::Meta => Some(META),
            Channel::Event | Channel::Clock => None,
            Channel::Phase => Some(PHASES),
            Channel::Gpu => Some(GPUS),
            Channel::Metric => Some(METRICS),
            Channel::GpuNumbers => Some(GPU_NUMBERS),
            Channel::Log(_) => Some(LOG),
        }
    }

    /// The bytes of its record without opcode and length.
    fn body(self) -> Vec<u8> {
        Body::default().short(self.id).text(self.name).text(self.encoding).text(self.text).finish()
    }
}

/// The metadata of a channel.
pub(super) fn metadata(channel: Channel) -> BTreeMap<String, String> {
    let schema = match channel {
        Channel::Event => EVENTS,
        Channel::Clock => CLOCKS,
        _ => return BTreeMap::new(),
    };
    BTreeMap::from([(LISTED.to_owned(), schema.to_owned())])
}

/// The record of a schema that a file names and no longer holds; one that we do not know says nothing.
pub(super) fn lost_schema(id: u16) -> Vec<u8> {
    let known = ALL.into_iter().find(|schema| schema.id == id);
    known.map_or_else(|| Body::default().short(id).text("unknown").text("").text("").finish(), Schema::body)
}

/// The record of a channel that a file uses and no longer defines.
pub(super) fn lost_channel(id: u16) -> Vec<u8> {
    let known = Channel::from_id(id);
    let schema = known.and_then(Schema::of).map_or(0, |schema| schema.id);
    let topic = known.map_or_else(|| format!("/unknown/{id}"), Channel::topic);
    let encoding = known.map_or("", Channel::encoding);
    let metadata = known.map(metadata).unwrap_or_default();
    Body::default().short(id).short(schema).text(&topic).text(encoding).texts(&metadata).finish()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What Foxglove refuses in a schema of JSON messages.
    fn refused(schema: &Value, at: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if schema["type"] != "object" || !schema["properties"].is_object() {
            faults.push(format!("{at} is no object with properties"));
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match property["type"].as_str() {
                Some("object") => faults.extend(refused(property, &at)),
                Some("array") if property["items"]["type"] == "object" => {
                    faults.extend(refused(&property["items"], &at));
                }
                Some("array") if property["items"]["type"].is_string() => {}
                Some("boolean" | "string" | "number" | "integer") => {}
                _ => faults.push(at),
            }
        }
        faults
    }

    #[test]
    fn numbers_are_the_format_and_json_schemas_are_ones_that_viewers_take() {
        for (index, schema) in ALL.into_iter().enumerate() {
            assert_eq!(usize::from(schema.id), index + 1, "{}", schema.name);
            if schema.encoding == JSON {
                let told: Value = serde_json::from_str(schema.text).unwrap();
                assert_eq!(told["title"], schema.name);
                assert!(refused(&told, "$").is_empty(), "{:?}", refused(&told, "$"));
            }
        }
        // recordings had no other schema before
        assert_eq!(Schema::of(Channel::Log(3)).unwrap().id, 1);
        for channel in [Channel::Event, Channel::Clock] {
            let told: Value = serde_json::from_str(&metadata(channel)[LISTED]).unwrap();
            assert_eq!(told["type"], "array");
        }
    }

    #[test]
    fn what_is_lost_is_made_anew_as_a_writer_makes_it() {
        let channel = lost_channel(16 + 3);
        assert!(channel.starts_with(&[19, 0, 1, 0]) && channel.ends_with(b"/log/3\x04\0\0\0json\0\0\0\0"));
        assert!(lost_channel(9).windows(10).any(|part| part == b"/unknown/9"));
        assert!(lost_schema(900).starts_with(&[0x84, 3]));
    }
}
