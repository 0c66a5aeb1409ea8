//! Walks through the envelopes of a recording, chunk by chunk.

use std::ops::{Bound, RangeBounds};

use super::error::Error;
use super::format::Channel;
use super::reader::Reader;
use crate::domain::event::Envelope;
use crate::domain::time::Stamp;

/// Envelopes in order, read chunk by chunk.
pub struct Envelopes<'a> {
    reader: &'a Reader,
    next: usize,
    range: (Bound<Stamp>, Bound<Stamp>),
    wants: Box<dyn Fn(Channel) -> bool>,
    loaded: std::vec::IntoIter<Envelope>,
}

impl<'a> Envelopes<'a> {
    /// Those of the channels that `wants` picks whose recording time lies in `range`, from a chunk on.
    pub(super) fn new(
        reader: &'a Reader,
        chunk: usize,
        range: (Bound<Stamp>, Bound<Stamp>),
        wants: impl Fn(Channel) -> bool + 'static,
    ) -> Self {
        Self { reader, next: chunk, range, wants: Box::new(wants), loaded: Vec::new().into_iter() }
    }

    fn load(&self, chunk: usize) -> Result<Vec<Envelope>, Error> {
        if let (Bound::Unbounded, Bound::Unbounded) = self.range {
            return self.reader.load_untimed(chunk, &self.wants);
        }
        let timed = self.reader.load_some(chunk, &self.wants)?.into_iter();
        Ok(timed.filter(|timed| self.range.contains(&timed.time)).map(|timed| timed.envelope).collect())
    }
}

impl Iterator for Envelopes<'_> {
    type Item = Result<Envelope, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(envelope) = self.loaded.next() {
                return Some(Ok(envelope));
            }
            let (start, _) = self.reader.chunk_span(self.next)?;
            let over = match self.range.1 {
                Bound::Included(end) => start > end,
                Bound::Excluded(end) => start >= end,
                Bound::Unbounded => false,
            };
            if over {
                return None;
            }
            let loaded = self.load(self.next);
            self.next += 1;
            match loaded {
                Ok(loaded) => self.loaded = loaded.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::{Event, Origin};
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::log::{LogLine, Stream};
    use crate::record::Writer;

    /// Of two ranks in one chunk: a line, what another rank tells later, a line that comes late, one more.
    fn recorded() -> (tempfile::TempDir, Reader) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        for (seq, (at, rank, is_line)) in
            (0..).zip([(100, 0, true), (300, 1, false), (250, 1, true), (200, 0, true), (400, 0, true)])
        {
            let (text, stream) = (format!("line {seq}"), Stream::Stdout);
            let line = LogLine { rank: Rank(rank), stream, offset: seq, text, elided: 0, t: None };
            let line = Event::LogPrinted { line: Arc::new(line) };
            let event = if is_line { line } else { Event::RankConnected };
            writer
                .push(&Envelope {
                    seq,
                    at: Stamp(at),
                    origin: Origin::Rank(RunId::new(1, 1), Rank(rank)),
                    event,
                })
                .unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        (folder, reader)
    }

    #[test]
    fn the_moment_of_an_event_is_the_same_whichever_others_are_read() {
        let (_folder, reader) = recorded();
        let of = |wants: fn(Channel) -> bool| -> Vec<(u64, i64)> {
            let timed = reader.load_some(0, wants).unwrap();
            timed.iter().map(|timed| (timed.envelope.seq, timed.time.0)).collect()
        };
        let all = [(0, 100), (1, 300), (2, 300), (3, 300), (4, 400)];
        assert_eq!(of(|_| true), all);
        assert_eq!(of(|channel| channel == Channel::Log(0)), [all[0], all[3], all[4]]);
        assert_eq!(of(|channel| matches!(channel, Channel::Log(_))), [all[0], all[2], all[3], all[4]]);
        let since = |from: i64| -> Vec<u64> {
            let lines = reader.select(Stamp(from).., |channel| matches!(channel, Channel::Log(_)));
            lines.map(|envelope| envelope.unwrap().seq).collect()
        };
        assert_eq!((since(251), since(301)), (vec![2, 3, 4], vec![4]));
        let whole = reader.select(.., |channel| channel == Channel::Log(0));
        assert_eq!(whole.map(|envelope| envelope.unwrap().seq).collect::<Vec<_>>(), [0, 3, 4]);
    }
}
