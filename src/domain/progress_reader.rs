//! Step numbers from the progress lines that a rank prints: the fold of [`super::progress`] over its output. Pure.
//!
//! A bar counts one loop; a training is many. Loops of one name and length are epochs of each other; of several that may be
//! training, the one of which that is known leads, then the one that has gone furthest. Nothing here knows when a step was
//! done: a bar is printed a few times a second at most, so only the arrival of its bytes can be told.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use memchr::memchr2;

use super::log::Stream;
use super::progress::{self, Counts, Form, LONGEST, Progress, Role};

/// How many loops are told apart.
const TRACKS: usize = 8;

/// How far a rank's training is, by its own output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// Whose lines tell it.
    pub form: Form,
    /// Training is certain: a line says so. Once `true` it stays so. Where it turns `true`, or `counts` changes, `at` may
    /// begin anew, for another loop is counted; otherwise it never falls.
    pub sure: bool,
    /// What `at` counts: steps, or samples where the lines tell no steps.
    pub counts: Counts,
    /// How many since the training began, or since this reader began to read.
    pub at: u64,
    /// How many of this epoch.
    pub done: u64,
    /// How many the epoch has.
    pub total: Option<u64>,
    /// The epoch in the script's own counting.
    pub epoch: Option<f64>,
    /// How many epochs there will be.
    pub epochs: Option<u64>,
    /// The newest training loss that was printed; it may be the step before's.
    pub loss: Option<f32>,
    /// The loss is the mean since the epoch began.
    pub loss_is_mean: bool,
    /// How many a second, as the line says.
    pub per_second: Option<f32>,
}

impl Update {
    /// How many there will be in all, where the lines tell the number of epochs.
    pub fn total_steps(&self) -> Option<u64> {
        (self.counts == Counts::Steps).then(|| self.total?.checked_mul(self.epochs?)).flatten()
    }
}

/// The lines of one rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ProgressReader {
    tails: [Tail; 2],
    tracks: Vec<Track>,
    /// Keras has begun this epoch, and no bar of it was seen yet.
    begun: Option<(Option<f64>, Option<u64>)>,
    /// The newest loss, and whether it is the mean since the epoch began.
    loss: Option<(f32, bool)>,
    /// Where a reader before this one had come to.
    resumed: u64,
    /// What is added to the leader's count since then.
    offset: Option<u64>,
    told: Option<Update>,
}

/// One loop, with its repetitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Track {
    form: Form,
    counts: Counts,
    label: String,
    total: Option<u64>,
    sure: bool,
    /// What the epochs before this one had.
    base: u64,
    done: u64,
    epoch: Option<f64>,
    epochs: Option<u64>,
    /// Of Keras: the epoch is over, what comes now is an evaluation.
    over: bool,
}

impl ProgressReader {
    /// A reader that goes on behind this step, after a lost link say. The epochs before are taken to have been as long as
    /// the one that it finds.
    pub fn resumed(step: u64) -> Self {
        Self { resumed: step, ..Self::default() }
    }

    /// Takes in the next bytes of a stream, however they are cut; a line need not be finished. Gives the newest that they
    /// say, if that is new.
    pub fn push(&mut self, stream: Stream, data: &[u8]) -> Option<Update> {
        let mut tail = std::mem::take(self.tail(stream)?);
        let mut changed = false;
        tail.push(data, |said| changed |= self.take(said));
        if let Some(place) = self.tail(stream) {
            *place = tail;
        }
        if changed { self.told.clone() } else { None }
    }

    /// Bytes of a stream are missing: what stands before them and behind them are two lines.
    pub fn gap(&mut self, stream: Stream) {
        if let Some(tail) = self.tail(stream) {
            *tail = Tail { skips: true, ..Tail::default() };
        }
    }

    /// The newest that was said.
    pub fn latest(&self) -> Option<&Update> {
        self.told.as_ref()
    }

    fn tail(&mut self, stream: Stream) -> Option<&mut Tail> {
        match stream {
            Stream::Stdout => Some(&mut self.tails[0]),
            Stream::Stderr => Some(&mut self.tails[1]),
            Stream::Report => None,
        }
    }

    /// Whether something new is to be told.
    fn take(&mut self, said: Progress) -> bool {
        match said.form {
            Form::KerasEpoch => {
                self.begun = Some((said.epoch, said.epochs));
                false
            }
            Form::Dict => self.loss_alone(&said),
            _ => self.counted(said),
        }
    }

    fn loss_alone(&mut self, said: &Progress) -> bool {
        self.loss = said.loss.map(|loss| (loss, false));
        let Some(told) = &mut self.told else { return false };
        let changed = told.loss != said.loss;
        (told.loss, told.loss_is_mean, told.epoch) = (said.loss, false, said.epoch.or(told.epoch));
        changed
    }

    fn counted(&mut self, mut said: Progress) -> bool {
        let Some(done) = said.done else { return false };
        if said.role == Role::Elsewhere || !matches!(said.counts, Counts::Steps | Counts::Samples) {
            return false;
        }
        if said.form == Form::Keras
            && let Some((epoch, epochs)) = self.begun.take()
        {
            said.role = Role::Training;
            (said.epoch, said.epochs) = (epoch, epochs);
        }
        let index = self.track(&said);
        if !self.tracks[index].advance(&said, done) || self.leader() != Some(index) {
            return false;
        }
        let track = &self.tracks[index];
        let count = track.count();
        if count == 0 {
            return false;
        }
        if self.told.as_ref().is_some_and(|told| (told.sure, told.counts) != (track.sure, track.counts)) {
            self.offset = None;
        }
        self.loss = said.loss.map(|loss| (loss, said.loss_is_mean)).or(self.loss);
        let offset = *self.offset.get_or_insert_with(|| track.behind(self.resumed));
        let update = Update {
            form: track.form,
            sure: track.sure,
            counts: track.counts,
            at: offset.saturating_add(count),
            done: track.done,
            total: track.total,
            epoch: track.epoch,
            epochs: track.epochs,
            loss: self.loss.map(|(loss, _)| loss),
            loss_is_mean: self.loss.is_some_and(|(_, mean)| mean),
            per_second: said.per_second,
        };
        let news = |told: &Update| (told.sure, told.counts, told.at, told.loss);
        let changed = self.told.as_ref().is_none_or(|told| news(told) != news(&update));
        self.told = Some(update);
        changed
    }

    /// The loop that a line belongs to.
    fn track(&mut self, said: &Progress) -> usize {
        let same = |track: &Track| {
            track.form == said.form
                && track.counts == said.counts
                && track.label == said.label
                && (track.total == said.total || said.form == Form::Keras && track.total.is_none())
        };
        if let Some(index) = self.tracks.iter().position(same) {
            return index;
        }
        if self.tracks.len() == TRACKS {
            let least = (0..TRACKS).min_by_key(|index| self.tracks[*index].rank()).unwrap_or_default();
            self.tracks.remove(least);
        }
        self.tracks.push(Track {
            form: said.form,
            counts: said.counts,
            label: said.label.clone(),
            total: said.total,
            sure: said.role == Role::Training,
            base: 0,
            done: 0,
            epoch: said.epoch,
            epochs: said.epochs,
            over: false,
        });
        self.tracks.len() - 1
    }

    fn leader(&self) -> Option<usize> {
        // of equal ones the first
        (0..self.tracks.len()).rev().max_by_key(|index| self.tracks[*index].rank())
    }
}

impl Track {
    fn count(&self) -> u64 {
        self.base.saturating_add(self.done)
    }

    /// What makes it the leader: that it is training, that it counts steps, and how far it is.
    fn rank(&self) -> (bool, bool, u64) {
        (self.sure, self.counts == Counts::Steps, self.count())
    }

    /// Whether the line belongs to it and is no older than what is known.
    fn advance(&mut self, said: &Progress, done: u64) -> bool {
        let again = if self.form == Form::Keras && said.epoch.is_some() {
            true
        } else if let (Some(was), Some(is)) = (self.epoch, said.epoch) {
            // a bar is set back to 0 before its label changes: that is no epoch; and of two processes that write into
            // one file one may be an epoch behind
            match is.total_cmp(&was) {
                Ordering::Equal if done < self.done => return false,
                Ordering::Less if done > self.done / 2 => return false,
                order => order != Ordering::Equal,
            }
        } else if self.form == Form::Keras && self.sure {
            // only after its own line: a bar that begins without one is an evaluation
            self.over |= done < self.done;
            if self.over {
                return false;
            }
            false
        } else if done < self.done {
            // two processes may write into one file: a number that is a little lower is the other's
            if done > self.done / 2 {
                return false;
            }
            true
        } else {
            false
        };
        if again {
            self.base = self.count();
        }
        self.done = done;
        self.over = false;
        self.sure |= said.role == Role::Training;
        self.total = said.total.or(self.total);
        self.epoch = said.epoch.or(self.epoch);
        self.epochs = said.epochs.or(self.epochs);
        true
    }

    /// What to add so that the count goes on behind `step`.
    fn behind(&self, step: u64) -> u64 {
        if step <= self.count() {
            return 0;
        }
        let whole = match self.total {
            Some(total) if total > 0 => step / total * total,
            _ => step,
        };
        let again =
            if whole.saturating_add(self.count()) < step { self.total.unwrap_or_default() } else { 0 };
        whole.saturating_add(again)
    }
}

/// The end of a stream that is not yet a line: bars are written over each other for minutes before one ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Tail {
    kept: Vec<u8>,
    /// What is longer than a progress line, or lacks its beginning, is passed over.
    skips: bool,
}

impl Tail {
    fn push(&mut self, data: &[u8], mut each: impl FnMut(Progress)) {
        let mut rest = data;
        while let Some(end) = memchr2(b'\r', b'\n', rest) {
            let (piece, behind) = (&rest[..end], &rest[end + 1..]);
            rest = behind;
            if !self.skips {
                let whole = if self.kept.is_empty() {
                    progress::recognise(piece)
                } else {
                    self.kept.extend_from_slice(&piece[..piece.len().min(LONGEST)]);
                    progress::recognise(&self.kept)
                };
                if let Some(said) = whole {
                    each(said);
                }
            }
            self.kept.clear();
            self.skips = false;
        }
        if rest.is_empty() || self.skips {
            return;
        }
        self.skips = self.kept.len() + rest.len() > LONGEST;
        if self.skips {
            self.kept.clear();
            return;
        }
        self.kept.extend_from_slice(rest);
        self.unfinished().into_iter().for_each(each);
    }

    /// What an unfinished piece says: a bar of tqdm is whole when it has its `]`; of one of Keras the last number may be
    /// cut.
    fn unfinished(&self) -> Option<Progress> {
        let mut said = progress::recognise(&self.kept)?;
        match said.form {
            Form::Tqdm => Some(said),
            Form::Keras if self.kept.last() == Some(&b'\x08') => Some(said),
            Form::Keras => {
                said.loss = None;
                Some(said)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "progress_reader_tests.rs"]
mod tests;
