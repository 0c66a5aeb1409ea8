//! Tells where a recording stands, so that clients can attach to its run again, and the world it leaves behind.

use super::error::Error;
use super::format::Channel;
use super::reader::Reader;
use crate::domain::event::{Envelope, Origin};
use crate::domain::resume_point::ResumePoint;
use crate::domain::run_log::LOG_LINES;
use crate::domain::world::World;

/// A recording up to its end.
#[derive(Debug, Default)]
pub struct ResumeState {
    /// From where to go on.
    pub resume_point: ResumePoint,
    /// The run as it stood there, with its newest lines. Hosts are not in it: they will tell of themselves.
    pub world: World,
}

impl Reader {
    /// Reads what must be known to attach to the run again. Lines are read as far as memory keeps them: the
    /// chunks' notes tell where the last ones begin.
    ///
    /// # Errors
    /// When the file system fails. What is damaged is left out.
    pub fn resume_state(&self) -> Result<ResumeState, Error> {
        let mut resume_state = ResumeState::default();
        let (first_line, mut tail) = self.newest_lines();
        let mut lines = tail.drain(..).peekable();
        for chunk in 0..self.chunk_count() {
            let note = self.note(chunk);
            let old = note.is_some_and(|note| note.lines.is_none());
            let wants = move |channel| match channel {
                Channel::Gpu | Channel::GpuNumbers | Channel::Clock | Channel::Chunk | Channel::Meta => false,
                Channel::Log(_) => old && chunk < first_line,
                _ => true,
            };
            for envelope in self.load_untimed(chunk, wants).unwrap_or_default() {
                while let Some(line) = lines.next_if(|line| line.seq < envelope.seq) {
                    resume_state.take(&line);
                }
                resume_state.take(&envelope);
            }
        }
        lines.for_each(|line| resume_state.take(&line));
        for note in (0..self.chunk_count()).filter_map(|chunk| self.note(chunk)) {
            for (rank, stream, offset) in note.lines.iter().flatten() {
                resume_state.resume_point.know_line(*rank, *stream, *offset);
            }
            resume_state.resume_point.next_seq =
                resume_state.resume_point.next_seq.max(note.last_seq.saturating_add(1));
            resume_state.resume_point.last_at = resume_state.resume_point.last_at.max(Some(note.end));
        }
        resume_state.resume_point.spec = self.spec().cloned();
        resume_state.resume_point.know_last_words(&resume_state.world);
        Ok(resume_state)
    }

    /// The newest lines of the run in order, of whichever rank, and the chunk in which they begin.
    fn newest_lines(&self) -> (usize, Vec<Envelope>) {
        // a long run has a chunk a second: each one's lines are moved once
        let (mut batches, mut count, mut first) = (Vec::new(), 0, 0);
        for chunk in (0..self.chunk_count()).rev() {
            let logs =
                self.load_untimed(chunk, |channel| matches!(channel, Channel::Log(_))).unwrap_or_default();
            count += logs.len();
            batches.push(logs);
            if count >= LOG_LINES {
                first = chunk;
                break;
            }
        }
        (first, batches.into_iter().rev().flatten().collect())
    }
}

impl ResumeState {
    fn take(&mut self, envelope: &Envelope) {
        self.resume_point.take(envelope);
        if !matches!(envelope.origin, Origin::Host(_)) {
            self.world.apply(envelope);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::event::Event;
    use crate::domain::ids::{Rank, RunId};
    use crate::domain::log::{LogLine, Stream};
    use crate::domain::time::Stamp;
    use crate::record::Writer;

    /// So many lines, so many a second.
    fn recorded(lines: u64, a_second: u64) -> (tempfile::TempDir, Reader) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        for seq in 0..lines {
            let text = format!("line {seq}");
            let line =
                LogLine { rank: Rank(0), stream: Stream::Stdout, offset: seq, text, elided: 0, t: None };
            let at = Stamp((seq * 1_000_000 / a_second) as i64);
            let origin = Origin::Rank(RunId::new(1, 1), Rank(0));
            writer
                .push(&Envelope { seq, at, origin, event: Event::LogPrinted { line: Arc::new(line) } })
                .unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        (folder, reader)
    }

    #[test]
    fn the_newest_lines_of_many_chunks_come_in_their_order() {
        let numbers = |reader: &Reader| {
            let (first, lines) = reader.newest_lines();
            (first, lines.iter().map(|line| line.seq).collect::<Vec<_>>())
        };
        let (_folder, few) = recorded(300, 1);
        assert!(few.chunk_count() > 100, "{}", few.chunk_count());
        assert_eq!(numbers(&few), (0, (0..300).collect()));
        // of more than are kept, the newest, whole chunks of them
        let most = LOG_LINES as u64;
        let (_folder, many) = recorded(most + 3_000, 100);
        let (first, newest) = numbers(&many);
        let begin = newest[0];
        assert!(first > 0 && (2_000..=3_000).contains(&begin), "{first} {begin}");
        assert_eq!(newest, (begin..most + 3_000).collect::<Vec<_>>());
        assert_eq!(many.note(first).unwrap().first_seq, begin);
    }
}
