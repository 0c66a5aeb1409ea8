//! What every block begins with: how many rows, whom they are about, their order and their time.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;

use super::super::format::MAX_ENVELOPES;
use super::column::{Dec, Enc, Malformed, Strings, Texts};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::{HostId, Rank, RunId};
use crate::domain::time::Stamp;

/// The heads of a block's rows.
pub(super) struct Heads {
    pub(super) origins: Vec<Origin>,
    rows: Vec<(u64, Stamp, usize)>,
}

impl Heads {
    /// Writes the heads; gives the number of origins and each row's origin.
    pub(super) fn write(enc: &mut Enc, envelopes: &[&Envelope]) -> (usize, Vec<usize>) {
        let mut known: HashMap<&Origin, usize> = HashMap::new();
        let mut listed = Vec::new();
        let origins: Vec<usize> = envelopes
            .iter()
            .map(|envelope| {
                *known.entry(&envelope.origin).or_insert_with(|| {
                    listed.push(&envelope.origin);
                    listed.len() - 1
                })
            })
            .collect();
        enc.uint(envelopes.len() as u64);
        write_origins(enc, &listed);
        let mut before = 0;
        for envelope in envelopes {
            enc.delta(envelope.seq, before);
            before = envelope.seq;
        }
        let mut before = 0;
        for envelope in envelopes {
            enc.delta(envelope.at.0 as u64, before);
            before = envelope.at.0 as u64;
        }
        for origin in &origins {
            enc.uint(*origin as u64);
        }
        (listed.len(), origins)
    }

    pub(super) fn read(dec: &mut Dec<'_>) -> Result<Self, Malformed> {
        let count = dec.count()?;
        if count > MAX_ENVELOPES {
            return Err(Malformed("more rows than a chunk may have"));
        }
        let origins = read_origins(dec)?;
        let mut rows = Vec::with_capacity(count);
        let mut seq = 0;
        for _ in 0..count {
            seq = dec.delta(seq)?;
            rows.push((seq, Stamp(0), 0));
        }
        let mut at = 0;
        for row in &mut rows {
            at = dec.delta(at)?;
            row.1 = Stamp(at as i64);
        }
        for row in &mut rows {
            row.2 = usize::try_from(dec.uint()?)
                .ok()
                .filter(|origin| *origin < origins.len())
                .ok_or(Malformed("refers to an origin it does not hold"))?;
        }
        Ok(Self { origins, rows })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Sequence number and time of each row.
    pub(super) fn times(self) -> impl Iterator<Item = (u64, Stamp)> {
        self.rows.into_iter().map(|(seq, at, _)| (seq, at))
    }

    /// The origin's number of each row.
    pub(super) fn origin_numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().map(|row| row.2)
    }

    /// Joins each head with its event.
    pub(super) fn with(self, events: impl IntoIterator<Item = Event>) -> Vec<Envelope> {
        let Self { origins, rows } = self;
        let mut envelopes = Vec::with_capacity(rows.len());
        envelopes.extend(rows.into_iter().zip(events).filter_map(|((seq, at, origin), event)| {
            Some(Envelope { seq, at, origin: origins.get(origin)?.clone(), event })
        }));
        envelopes
    }
}

fn write_origins(enc: &mut Enc, origins: &[&Origin]) {
    let mut strings = Strings::default();
    let mut body = Enc::default();
    body.uint(origins.len() as u64);
    for origin in origins {
        match origin {
            Origin::Host(host) => {
                body.byte(0);
                body.uint(strings.number(host.as_str()));
            }
            Origin::Run(run) => {
                body.byte(1);
                body.uint(strings.number(run.as_str()));
            }
            Origin::Rank(run, rank) => {
                body.byte(2);
                body.uint(strings.number(run.as_str()));
                body.uint(u64::from(rank.0));
            }
            Origin::Worker(run, rank, worker) => {
                body.byte(3);
                body.uint(strings.number(run.as_str()));
                body.uint(u64::from(rank.0));
                body.uint(u64::from(*worker));
            }
        }
    }
    strings.write(enc);
    enc.append(&body);
}

fn read_origins(dec: &mut Dec<'_>) -> Result<Vec<Origin>, Malformed> {
    let mut texts = Texts::read(dec)?;
    let count = dec.count()?;
    let mut last = None;
    (0..count)
        .map(|_| {
            let kind = dec.byte()?;
            let name = texts.get(dec.uint()?)?;
            Ok(match kind {
                0 => Origin::Host(HostId::from(name)),
                1 => Origin::Run(run_id(name, &mut last)?),
                2 => Origin::Rank(run_id(name, &mut last)?, Rank(dec.uint32()?)),
                3 => Origin::Worker(run_id(name, &mut last)?, Rank(dec.uint32()?), dec.uint32()?),
                _ => return Err(Malformed("has an origin of an unknown kind")),
            })
        })
        .collect()
}

/// The run of this name. `last`: the one that was named last, for most origins are ranks of one run.
fn run_id(name: &str, last: &mut Option<RunId>) -> Result<RunId, Malformed> {
    if let Some(run) = last.as_ref().filter(|run| run.as_str() == name) {
        return Ok(run.clone());
    }
    let name: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
    let run = RunId::deserialize(name).map_err(|_| Malformed("names a run that can't be one"))?;
    Ok(last.insert(run).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_has_its_own_run() {
        let (a, b) = (RunId::new(1, 1), RunId::new(2, 2));
        let origins = [
            Origin::Rank(a.clone(), Rank(0)),
            Origin::Rank(a.clone(), Rank(1)),
            Origin::Host(HostId::from("h")),
            Origin::Worker(b.clone(), Rank(0), 3),
            Origin::Run(b),
            Origin::Run(a),
        ];
        let mut enc = Enc::default();
        write_origins(&mut enc, &origins.iter().collect::<Vec<_>>());
        let bytes = enc.finish();
        assert_eq!(read_origins(&mut Dec::new(&bytes)).unwrap(), origins);
        let mut last = Some(RunId::new(1, 1));
        assert_eq!(run_id("no run", &mut last), Err(Malformed("names a run that can't be one")));
        assert_eq!(last, Some(RunId::new(1, 1)));
    }
}
