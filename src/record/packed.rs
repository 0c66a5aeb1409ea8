//! A chunk as it lies in its file, which any thread can take apart.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::chunk;
use super::error::Error;
use super::format::Channel;
use super::reader::Timed;
use crate::domain::event::Envelope;
use crate::domain::time::Stamp;

/// A chunk that is read and not taken apart.
#[derive(Debug)]
pub(super) struct Packed {
    /// The file, and where in it the chunk lies.
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    /// The sequence numbers that its note tells.
    pub(super) numbers: RangeInclusive<u64>,
    /// Recording time at which it begins and ends.
    pub(super) span: (Stamp, Stamp),
    /// All of its bytes.
    pub(super) record: Vec<u8>,
}

impl Packed {
    /// The envelopes of the channels that `wants` picks, in order. All others are looked at, too: they tell when the playhead comes to
    /// these.
    pub(super) fn timed(&self, wants: impl Fn(Channel) -> bool) -> Result<Vec<Timed>, Error> {
        let mut others = Vec::new();
        let envelopes = self.envelopes(wants, Some(&mut others))?;
        others.sort_unstable();
        let mut others = others.into_iter().peekable();
        let (mut time, end) = self.span;
        let timed = envelopes.into_iter().map(|envelope| {
            while let Some((_, at)) = others.next_if(|(seq, _)| *seq < envelope.seq) {
                time = time.max(at);
            }
            time = time.max(envelope.at).min(end);
            Timed { time, envelope }
        });
        Ok(timed.collect())
    }

    /// The envelopes of some channels; the numbers and times of all others go to `others`.
    pub(super) fn envelopes(
        &self,
        wants: impl Fn(Channel) -> bool,
        others: Option<&mut Vec<(u64, Stamp)>>,
    ) -> Result<Vec<Envelope>, Error> {
        let bad = |reason: String| Error::Chunk { path: self.path.clone(), offset: self.offset, reason };
        let envelopes = chunk::decode_beside(&self.record, wants, others).map_err(bad)?.envelopes;
        if envelopes.iter().any(|envelope| !self.numbers.contains(&envelope.seq)) {
            return Err(bad("its events are not those that its note tells".into()));
        }
        Ok(envelopes)
    }
}
