//! Takes chunks apart on a second thread while a fold takes in what lies before them: that is half of what a way through a recording
//! takes. [`super::pipeline`] reads a recording from its start to its end; this goes on from call to call and from way to way.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::error::Error;
use super::packed::Packed;
use super::reader::{Reader, Timed};

/// So many envelopes are taken apart ahead, and one chunk at least: each takes about 250 bytes.
const AHEAD: u64 = 12_000;

/// What a chunk holds.
type Decoded = Result<Vec<Timed>, Error>;

/// The second thread of a replay, which starts where it is first needed.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    thread: Option<Thread>,
    /// Whether there is none to be had: then each chunk is taken apart by who wants it.
    is_alone: bool,
    /// The chunks that it was asked for and that were not taken, one after the other.
    asked: VecDeque<usize>,
}

/// It ends with the one that asks.
#[derive(Debug)]
struct Thread {
    ask: Sender<Packed>,
    given: Receiver<Decoded>,
}

impl Thread {
    /// `None` where there is no processor for it.
    fn start() -> Option<Self> {
        if thread::available_parallelism().map_or(1, NonZero::get) < 2 {
            return None;
        }
        Self::begin()
    }

    fn begin() -> Option<Self> {
        let (ask, wanted) = channel::<Packed>();
        let (give, given) = channel();
        let work = move || {
            for packed in wanted {
                if give.send(packed.timed(|_| true)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("chunks".to_owned()).spawn(work).ok().map(|_| Self { ask, given })
    }
}

impl Decoder {
    /// The chunks behind this one are wanted next, up to `last`: as many as there is room for are taken apart. Those of another way
    /// are dropped.
    pub(super) fn ask(&mut self, reader: &Reader, chunk: usize, last: usize) {
        while self.asked.front().is_some_and(|first| *first != chunk && *first != chunk + 1) {
            self.receive();
        }
        let from = reader.envelopes_before(chunk + 1);
        loop {
            let next = self.asked.back().map_or(chunk + 1, |asked| asked + 1);
            let ahead = reader.envelopes_before(next + 1).saturating_sub(from);
            let has_room = self.asked.is_empty() || ahead <= AHEAD;
            if next > last || !has_room || !self.send(reader, next) {
                return;
            }
            self.asked.push_back(next);
        }
    }

    /// These chunks are wanted next. Where others are being taken apart they are not waited for: then none of these is asked for.
    pub(super) fn ask_from(&mut self, reader: &Reader, first: usize, last: usize) {
        if let Some(before) = first.checked_sub(1).filter(|_| self.asked.is_empty()) {
            self.ask(reader, before, last);
        }
    }

    /// What a chunk holds, if it was asked for and comes next; waits until it is taken apart.
    pub(super) fn take(&mut self, chunk: usize) -> Option<Decoded> {
        if self.asked.front() == Some(&chunk) { self.receive() } else { None }
    }

    /// Hands a chunk over; whether that is done. One that can't be read is told when its turn comes.
    fn send(&mut self, reader: &Reader, chunk: usize) -> bool {
        if self.thread.is_none() && !self.is_alone {
            self.thread = Thread::start();
            self.is_alone = self.thread.is_none();
        }
        let Some(thread) = &self.thread else { return false };
        let Ok(Some(packed)) = reader.packed(chunk) else { return false };
        let is_sent = thread.ask.send(packed).is_ok();
        if !is_sent {
            self.go_on_alone();
        }
        is_sent
    }

    fn receive(&mut self) -> Option<Decoded> {
        self.asked.pop_front()?;
        let given = self.thread.as_ref().and_then(|thread| thread.given.recv().ok());
        if given.is_none() {
            self.go_on_alone();
        }
        given
    }

    /// The thread has ended.
    fn go_on_alone(&mut self) {
        (self.thread, self.is_alone) = (None, true);
        self.asked.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::domain::analysis::fixtures::timing;
    use crate::domain::event::{Envelope, Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::time::Stamp;
    use crate::record::Writer;

    /// A recording of so many chunks of so many steps each.
    fn reader(folder: &Path, chunks: u64, steps: u64) -> Reader {
        let path = folder.join("run.mcap");
        let mut writer = Writer::new(File::create(&path).unwrap()).unwrap();
        for seq in 0..chunks * steps {
            let (at, origin) = (Stamp(seq as i64), Origin::Rank(RunId::new(1, 1), Rank(0)));
            let event = Event::StepDone { timing: Arc::new(timing(seq, [1, 2, 3, 4, 5, 6])) };
            writer.push(&Envelope { seq, at, origin, event }).unwrap();
            if (seq + 1) % steps == 0 {
                writer.flush().unwrap();
            }
        }
        drop(writer.finish().unwrap());
        Reader::open(&path).unwrap()
    }

    /// One on any machine.
    fn decoder() -> Decoder {
        Decoder { thread: Some(Thread::begin().unwrap()), ..Decoder::default() }
    }

    #[test]
    fn what_is_asked_for_comes_in_order_and_is_what_the_chunk_holds() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), 12, 5);
        let mut decoder = decoder();
        assert!(decoder.take(0).is_none(), "it was not asked for");
        for chunk in 0..12 {
            decoder.ask(&reader, chunk, 9);
            let taken = decoder.take(chunk);
            assert_eq!(taken.is_some(), (1..=9).contains(&chunk), "{chunk}");
            if let Some(taken) = taken {
                assert_eq!(taken.unwrap(), reader.load(chunk).unwrap(), "{chunk}");
            }
        }
        assert!(decoder.asked.is_empty() && !decoder.is_alone);
        // nothing lies behind the last one
        decoder.ask(&reader, 11, 50);
        assert!(decoder.asked.is_empty());
    }

    #[test]
    fn what_is_wanted_besides_waits_for_no_other_way() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), 12, 5);
        let mut decoder = decoder();
        decoder.ask_from(&reader, 4, 6);
        assert_eq!(decoder.asked, [4, 5, 6]);
        for chunk in 4..=6 {
            assert_eq!(decoder.take(chunk).unwrap().unwrap(), reader.load(chunk).unwrap(), "{chunk}");
        }
        // before the first chunk there is none to come from
        decoder.ask_from(&reader, 0, 3);
        assert!(decoder.asked.is_empty() && decoder.take(0).is_none());
        decoder.ask(&reader, 8, 11);
        decoder.ask_from(&reader, 2, 3);
        assert_eq!(decoder.asked, [9, 10, 11]);
        assert!(decoder.take(2).is_none());
    }

    #[test]
    fn what_another_way_wanted_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), 12, 5);
        let mut decoder = decoder();
        for (from, wanted) in [(6, 7), (1, 2), (8, 8), (3, 4)] {
            decoder.ask(&reader, from, 11);
            assert_eq!(decoder.asked.back(), Some(&11));
            assert_eq!(decoder.take(wanted).unwrap().unwrap(), reader.load(wanted).unwrap());
        }
        // the rest of this way stays for it
        assert!(decoder.take(4).is_none());
        decoder.ask(&reader, 4, 4);
        assert_eq!(decoder.take(5).unwrap().unwrap(), reader.load(5).unwrap());
    }

    #[test]
    fn no_more_is_taken_apart_than_there_is_room_for() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), 5, AHEAD / 3);
        let mut decoder = decoder();
        decoder.ask(&reader, 0, 4);
        assert_eq!(decoder.asked, [1, 2, 3]);
        // one that is larger than the room comes alone
        let (folder, mut decoder) = (tempfile::tempdir().unwrap(), self::decoder());
        let reader = self::reader(folder.path(), 3, AHEAD + 1);
        decoder.ask(&reader, 0, 2);
        assert_eq!(decoder.asked, [1]);
    }

    #[test]
    fn where_the_thread_has_ended_it_is_done_without() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(folder.path(), 6, 5);
        let (ask, _) = channel();
        let (_, given) = channel();
        let mut decoder = Decoder { thread: Some(Thread { ask, given }), ..Decoder::default() };
        decoder.ask(&reader, 0, 5);
        assert!(decoder.asked.is_empty() && decoder.is_alone && decoder.take(1).is_none());
        // and where it ends before it has given anything
        let (ask, _wanted) = channel();
        let (_, given) = channel();
        let mut decoder = Decoder { thread: Some(Thread { ask, given }), ..Decoder::default() };
        decoder.ask(&reader, 0, 5);
        assert_eq!(decoder.asked.len(), 5);
        assert!(decoder.take(1).is_none());
        assert!(decoder.asked.is_empty() && decoder.is_alone);
    }
}
