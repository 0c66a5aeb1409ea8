//! Hides the values of a run's secret variables in what its ranks print, before it leaves the host: so whoever
//! attaches, from wherever, shows and records them as little as the client that launched the run.
//!
//! A value is replaced by as many bytes as it has: offsets stay what they are. Must not know how bytes are read.

use bytes::Bytes;

use crate::domain::log::Stream;
use crate::domain::run::RankSpec;
use crate::domain::secret::{Masks, cover};
use crate::procs::identity::Identity;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::secrets::{self, Hidden};
use crate::wire::chunk::CHUNK_BYTES;

/// What is hidden of what one rank prints.
#[derive(Debug)]
pub(super) struct Veil {
    rank: RankSpec,
    known: Known,
    /// Whether the last that was told of each file is that a part of it is missing.
    torn: [bool; 3],
}

#[derive(Debug)]
enum Known {
    /// Nothing yet.
    Nothing,
    /// The values, while the rank lives.
    Values(Masks),
    /// Where they stand, after its end.
    Places(Hidden),
    /// Nobody can say them any more.
    Lost,
}

/// What can be said of the rank's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Not yet what is secret in it.
    Waiting,
    /// It can be told, without its secrets.
    Clear,
    /// It can only be told as it is: this was just found out.
    JustLost,
}

impl Veil {
    pub(super) fn new(rank: RankSpec) -> Self {
        Self { rank, known: Known::Nothing, torn: [false; 3] }
    }

    /// Learns what is secret, from a process that was given the rank's variables or, after the rank's end, from
    /// what that has written down.
    pub(super) fn learn(
        &mut self,
        dir: &RunDir,
        wrap: Option<&Identity>,
        ended: bool,
    ) -> Result<Sight, SuperviseError> {
        if !matches!(self.known, Known::Nothing) {
            return Ok(Sight::Clear);
        }
        let values = wrap.map(|wrap| secrets::of_process(&self.rank, wrap)).transpose();
        self.known = match values.map(Option::flatten) {
            Ok(Some(masks)) => Known::Values(masks),
            Ok(None) if !ended => return Ok(Sight::Waiting),
            // A rank without secret variables: the run's own secret is worth nothing by now.
            Ok(None) if !secrets::any(&self.rank) => Known::Values(Masks::default()),
            Ok(None) => match Hidden::read(dir, self.rank.rank)? {
                Some(hidden) => Known::Places(hidden),
                None => Known::Lost,
            },
            Err(error) => {
                tracing::warn!(%error, rank = %self.rank.rank, "the variables of a rank can't be read");
                Known::Lost
            }
        };
        Ok(if matches!(self.known, Known::Lost) { Sight::JustLost } else { Sight::Clear })
    }

    /// How many of these bytes can be told now: not the beginning of a value whose rest is still to come.
    pub(super) fn telling(&self, data: &[u8], last: bool) -> usize {
        let Known::Values(masks) = &self.known else { return data.len() };
        let begun = masks.begun(data);
        if last || begun == 0 {
            return data.len();
        }
        let from = data.len() - begun;
        // The beginning of a value may be the end of another one, or of the same: that is told whole, later.
        let within = masks.find(data).into_iter().find(|value| value.contains(&from));
        let telling = within.map_or(from, |value| value.start);
        // A value that is longer than any piece can't be waited for.
        if telling == 0 && data.len() >= CHUNK_BYTES { data.len() } else { telling }
    }

    /// A part of a file is missing: what follows may begin within a value.
    pub(super) fn tear(&mut self, stream: Stream) {
        self.torn[stream as usize] = true;
    }

    /// The bytes of a file from `offset` on, without the values.
    pub(super) fn hide(&mut self, stream: Stream, offset: u64, data: Bytes) -> Bytes {
        let end = offset + data.len() as u64;
        let torn = std::mem::take(&mut self.torn[stream as usize]);
        let found: Vec<(u64, u64)> = match &self.known {
            Known::Values(masks) => {
                let torn = if torn { masks.torn(&data) } else { 0 };
                let rest = data.get(torn..).unwrap_or_default();
                let found = masks.find(rest).into_iter().map(|range| range.start + torn..range.end + torn);
                let found = (torn > 0).then_some(0..torn).into_iter().chain(found);
                found.map(|range| (offset + range.start as u64, offset + range.end as u64)).collect()
            }
            Known::Places(hidden) => hidden.within(stream, offset, end).collect(),
            Known::Nothing | Known::Lost => Vec::new(),
        };
        if found.is_empty() {
            return data;
        }
        let mut data = data.to_vec();
        for (from, to) in found {
            let length = usize::try_from(to - from).unwrap_or(usize::MAX);
            for at in from.max(offset)..to.min(end) {
                if let Some(byte) = data.get_mut((at - offset) as usize) {
                    *byte = cover((at - from) as usize, length);
                }
            }
        }
        data.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;

    fn veil(known: Known) -> Veil {
        let rank = RankSpec {
            rank: Rank(0),
            argv: Vec::new(),
            env: [].into(),
            defaults: std::collections::BTreeMap::new(),
            cwd: None,
        };
        Veil { rank, known, torn: [false; 3] }
    }

    #[test]
    fn a_value_is_hidden_however_the_bytes_are_cut() {
        let text = b"token=hunter2hunter2, again hunter2hunter2\nhunter";
        let mut veil = veil(Known::Values(Masks::new(["hunter2hunter2"])));
        for size in 1..=text.len() {
            let (mut told, mut at, mut end) = (Vec::new(), 0, size);
            while at < text.len() {
                let piece = &text[at..end.min(text.len())];
                let last = end >= text.len();
                let count = veil.telling(piece, last);
                let piece = Bytes::copy_from_slice(&piece[..count]);
                told.extend_from_slice(&veil.hide(Stream::Stdout, at as u64, piece));
                at += count;
                end += size;
            }
            let told = String::from_utf8(told).unwrap();
            assert_eq!(told, "token=•••*****, again •••*****\nhunter", "pieces of {size}");
        }
        veil.tear(Stream::Stdout);
        let mut rest = || veil.hide(Stream::Stdout, 9, Bytes::from_static(b"hunter2 unter2"));
        assert_eq!(rest(), "••* unter2".as_bytes(), "behind a gap a value may begin in its middle");
        assert_eq!(rest(), "hunter2 unter2".as_bytes());
    }

    #[test]
    fn places_are_hidden_though_nobody_knows_the_value() {
        let hidden = serde_json::from_str(r#"{"places":[[[6,20]],[],[]],"searched":[30,0,0]}"#).unwrap();
        let mut veil = veil(Known::Places(hidden));
        let text = b"token=hunter2hunter2.";
        for cut in 0..text.len() {
            let (a, b) = text.split_at(cut);
            let mut told = veil.hide(Stream::Stdout, 0, Bytes::copy_from_slice(a)).to_vec();
            told.extend_from_slice(&veil.hide(Stream::Stdout, cut as u64, Bytes::copy_from_slice(b)));
            assert_eq!(String::from_utf8(told).unwrap(), "token=•••*****.", "cut at {cut}");
        }
        veil.tear(Stream::Stdout);
        let other = Bytes::from_static(text);
        assert_eq!(veil.hide(Stream::Stderr, 0, other.clone()), other);
    }
}
