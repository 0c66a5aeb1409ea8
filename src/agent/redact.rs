//! Hides the values of a run's secret variables in what its ranks print, before it leaves the host: so any
//! client that attaches, from any machine, shows and records them as little as the client that launched the run.
//!
//! A value is replaced by as many bytes as it has: offsets stay what they are. Must not know how bytes are read.

use std::ops::Range;

use bytes::Bytes;

use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::note::{Note, what};
use crate::domain::redaction::{MASKED_BYTE, Masks, TELLING};
use crate::domain::run::RankSpec;
use crate::procs::identity::Identity;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::secrets::{self, Hidden};
use crate::wire::message::{Noted, RunRef};

/// What is hidden of what one rank prints.
#[derive(Debug)]
pub(super) struct Redactor {
    rank: RankSpec,
    values: SecretValues,
}

#[derive(Debug)]
enum SecretValues {
    /// Nothing yet.
    Nothing,
    /// The values, while the rank lives.
    Values(Masks),
    /// Where they stand, after its end.
    Places(Hidden),
    /// They are not known any more.
    Lost,
}

/// What is told of a piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// These bytes from its beginning, without the values; the rest later.
    Bytes(Bytes),
    /// Nothing yet.
    Later,
    /// Nothing ever: what is secret in it can't be said.
    Withheld,
}

/// What stands in a file just before a piece of it.
#[derive(Debug, Default)]
pub(super) struct Before {
    pub(super) bytes: Bytes,
    /// What came before these is gone: they may begin within a value.
    pub(super) torn: bool,
}

/// What comes after a piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// More, at any moment.
    Coming,
    /// Nothing for a while: a prompt or a bar stands there.
    Late,
    /// Nothing ever: the rank has ended.
    Never,
}

/// What can be said of the rank's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Not yet what is secret in it.
    Waiting,
    /// It can be told, without its secrets.
    Clear,
    /// It is unknown what is secret in it, so nothing of it is told: this was just found out.
    JustLost,
}

impl Redactor {
    pub(super) fn new(rank: RankSpec) -> Self {
        Self { rank, values: SecretValues::Nothing }
    }

    /// Learns what is secret, from a process that was given the rank's variables or, after the rank's end, from
    /// what that has written down.
    pub(super) fn learn(
        &mut self,
        dir: &RunDir,
        wrap: Option<&Identity>,
        ended: bool,
    ) -> Result<Readiness, SuperviseError> {
        if !matches!(self.values, SecretValues::Nothing) {
            return Ok(Readiness::Clear);
        }
        let values = match wrap.map(|wrap| secrets::of_process(&self.rank, wrap)).transpose() {
            Ok(values) => values.flatten(),
            // Nothing is told meanwhile; its end leaves a file that says where they stand.
            Err(error) => {
                tracing::debug!(%error, rank = %self.rank.rank, "the variables of a rank can't be read");
                None
            }
        };
        self.values = match values {
            Some(masks) => SecretValues::Values(masks),
            None if !ended => return Ok(Readiness::Waiting),
            // A rank without secret variables: the run's own secret is worth nothing by now.
            None if !secrets::any(&self.rank) => SecretValues::Values(Masks::default()),
            None => Hidden::read(dir, self.rank.rank)?.map_or(SecretValues::Lost, SecretValues::Places),
        };
        Ok(if matches!(self.values, SecretValues::Lost) { Readiness::JustLost } else { Readiness::Clear })
    }

    /// How many bytes before a piece of a file decide what is secret at its beginning.
    pub(super) fn looks_back(&self) -> usize {
        if let SecretValues::Values(masks) = &self.values { masks.longest().saturating_sub(1) } else { 0 }
    }

    /// What of a piece of a file can be told now, and how: not the beginning of a value whose `rest` is still to come, unless it
    /// is late and the beginning so short that it may be that of anything; and nothing of which it is not known where values
    /// stand in it: as long as the run is `supervised` that may still be written down. The piece begins at `offset`.
    pub(super) fn tell(
        &mut self,
        dir: &RunDir,
        (stream, offset): (Stream, u64),
        (before, piece): (&Before, Bytes),
        (rest, supervised): (Rest, bool),
    ) -> Result<Telling, SuperviseError> {
        let (found, count) = match &mut self.values {
            SecretValues::Nothing | SecretValues::Lost => return Ok(Telling::Withheld),
            SecretValues::Values(masks) => {
                let bytes = [&before.bytes[..], &piece].concat();
                let begun = match (rest, masks.begun(&bytes)) {
                    (Rest::Never, _) | (Rest::Late, ..TELLING) => 0,
                    (Rest::Coming | Rest::Late, begun) => begun,
                };
                let torn = if before.torn { masks.torn(&bytes) } else { 0 };
                let mut found = masks.find(&bytes);
                found.insert(0, 0..torn);
                let start = before.bytes.len();
                let found = found
                    .iter()
                    .map(|value| value.start.saturating_sub(start)..value.end.saturating_sub(start));
                (found.collect::<Vec<_>>(), piece.len().saturating_sub(begun))
            }
            SecretValues::Places(hidden) => {
                let end = offset + piece.len() as u64;
                // something that outlives the rank has printed more: it may have been searched since
                if hidden.searched(stream) < end
                    && let Some(newer) = Hidden::read(dir, self.rank.rank)?
                {
                    *hidden = newer;
                }
                let count = hidden.searched(stream).min(end).saturating_sub(offset) as usize;
                if count == 0 {
                    return Ok(if supervised { Telling::Later } else { Telling::Withheld });
                }
                let found = hidden.within(stream, offset, offset + count as u64);
                let here = |at: u64| at.saturating_sub(offset).min(count as u64) as usize;
                (found.map(|(from, to)| here(from)..here(to)).collect(), count)
            }
        };
        if count == 0 {
            return Ok(Telling::Later);
        }
        let piece = piece.slice(..count);
        if found.iter().all(Range::is_empty) {
            return Ok(Telling::Bytes(piece));
        }
        let mut redacted = piece.to_vec();
        for value in found {
            let value = value.start.min(count)..value.end.min(count);
            redacted.get_mut(value).into_iter().for_each(|bytes| bytes.fill(MASKED_BYTE));
        }
        Ok(Telling::Bytes(redacted.into()))
    }
}

/// What is said of a rank whose secret values are not known any more.
pub(super) fn withheld(about: &RunRef, rank: Rank) -> Noted {
    let text = format!(
        "the values of secret variables of rank {rank} are not known any more: what it printed is not shown, its files on \
         the host have it"
    );
    let note = Note { rank: Some(rank), ..Note::new(what::WITHHELD, text, clock::host_now()) };
    Noted::of(about, Noted::UNNUMBERED, note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::rank_spec;

    fn redactor(values: SecretValues) -> Redactor {
        Redactor { values, ..Redactor::new(rank_spec(0)) }
    }

    /// What is told of a file that is read from `at` on in pieces of `size` bytes and has `kept` nothing before that byte.
    fn told(redactor: &mut Redactor, text: &[u8], (mut at, kept): (usize, usize), size: usize) -> String {
        let (_state, dir) = RunDir::of_test();
        let (mut told, mut end) = (Vec::new(), at + size);
        while at < text.len() {
            let piece = Bytes::copy_from_slice(&text[at..end.min(text.len())]);
            let from = at.saturating_sub(redactor.looks_back()).max(kept);
            let torn = from == kept && kept > 0;
            let before = Before { bytes: Bytes::copy_from_slice(&text[from..at]), torn };
            let last = end >= text.len();
            let rest = if last { Rest::Never } else { Rest::Coming };
            match redactor.tell(&dir, (Stream::Stdout, at as u64), (&before, piece), (rest, false)).unwrap() {
                Telling::Bytes(bytes) => {
                    at += bytes.len();
                    told.extend_from_slice(&bytes);
                }
                Telling::Later => assert!(!last, "the end is not kept back"),
                Telling::Withheld => panic!("withheld"),
            }
            end = at.max(end) + size;
        }
        crate::domain::redaction::text(&told)
    }

    #[test]
    fn a_value_is_hidden_however_the_bytes_are_cut() {
        let text = b"token=hunter2hunter2, again hunter2hunter2\nhunter";
        for size in 1..=text.len() {
            let mut redactor = redactor(SecretValues::Values(Masks::new(["hunter2hunter2"])));
            let told = told(&mut redactor, text, (0, 0), size);
            assert_eq!(told, "token=•••, again •••\nhunter", "pieces of {size}");
        }
    }

    #[test]
    fn a_short_beginning_of_a_value_is_told_when_nothing_follows_for_a_while() {
        let (_state, dir) = RunDir::of_test();
        let mut redactor = redactor(SecretValues::Values(Masks::new(["hunter2hunter2"])));
        let mut tell = |before: &'static str, text: &'static str, rest| {
            let before = Before { bytes: Bytes::from_static(before.as_bytes()), torn: false };
            let piece = Bytes::from_static(text.as_bytes());
            match redactor.tell(
                &dir,
                (Stream::Stdout, before.bytes.len() as u64),
                (&before, piece),
                (rest, true),
            ) {
                Ok(Telling::Bytes(bytes)) => crate::domain::redaction::text(&bytes),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(tell("", "1 or h", Rest::Coming), "1 or ");
        assert_eq!(tell("1 or ", "h", Rest::Coming), "Ok(Later)");
        assert_eq!(tell("1 or ", "h", Rest::Late), "h");
        assert_eq!(tell("1 or ", "hun", Rest::Late), "hun");
        assert_eq!(tell("1 or ", "hunt", Rest::Late), "Ok(Later)");
        assert_eq!(tell("1 or ", "hunt", Rest::Never), "hunt");
        assert_eq!(tell("1 or hun", "ter2hunter2.", Rest::Coming), "•••.", "its rest is hidden still");
    }

    #[test]
    fn who_begins_within_a_value_does_not_see_its_rest() {
        let text = b"token=hunter2hunter2, again";
        for at in 7..19 {
            let mut redactor = redactor(SecretValues::Values(Masks::new(["hunter2hunter2"])));
            assert_eq!(told(&mut redactor, text, (at, 0), 5), "•••, again", "from {at}");
            // of three letters and less it cannot be said that they are a value's
            if at < 17 {
                assert_eq!(told(&mut redactor, text, (at, at), 14), "•••, again", "kept from {at}");
            }
        }
    }

    #[test]
    fn a_value_that_is_longer_than_a_piece_is_neither_shown_nor_waited_for() {
        let numbers: Vec<String> =
            (0_u64..2000).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string()).collect();
        let value = numbers.concat();
        let text = format!("a={value}\nb={value}.\n");
        for size in [3000, 16384] {
            let mut redactor = redactor(SecretValues::Values(Masks::new([value.as_str()])));
            assert_eq!(
                told(&mut redactor, text.as_bytes(), (0, 0), size),
                "a=•••\nb=•••.\n",
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn places_are_covered_where_the_values_are_not_known() {
        let text = b"token=hunter2hunter2.";
        let hidden: Hidden =
            serde_json::from_str(r#"{"places":[[[6,20]],[],[]],"searched":[21,0,0]}"#).unwrap();
        for size in 1..text.len() {
            let mut redactor = redactor(SecretValues::Places(hidden.clone()));
            let told = told(&mut redactor, text, (0, 0), size);
            assert_eq!(told, "token=•••.", "pieces of {size}");
        }
    }

    #[test]
    fn what_nobody_has_searched_is_withheld() {
        let (_state, dir) = RunDir::of_test();
        let tell = |redactor: &mut Redactor, offset, text: &'static str, supervised| {
            let piece = (&Before::default(), Bytes::from_static(text.as_bytes()));
            redactor.tell(&dir, (Stream::Stdout, offset), piece, (Rest::Never, supervised)).unwrap()
        };
        assert_eq!(tell(&mut redactor(SecretValues::Lost), 0, "plain", true), Telling::Withheld);
        assert_eq!(tell(&mut redactor(SecretValues::Nothing), 0, "plain", true), Telling::Withheld);
        let hidden = |text| serde_json::from_str::<Hidden>(text).unwrap();
        let mut redactor =
            redactor(SecretValues::Places(hidden(r#"{"places":[[],[],[]],"searched":[3,0,0]}"#)));
        assert_eq!(tell(&mut redactor, 0, "plain", false), Telling::Bytes("pla".into()));
        assert_eq!(tell(&mut redactor, 3, "in", true), Telling::Later);
        assert_eq!(tell(&mut redactor, 3, "in", false), Telling::Withheld);
        dir.write_json("hidden-0.json", &hidden(r#"{"places":[[],[],[]],"searched":[5,0,0]}"#)).unwrap();
        assert_eq!(tell(&mut redactor, 3, "in", false), Telling::Bytes("in".into()), "searched since");
    }
}
