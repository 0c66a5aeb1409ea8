//! The notes of a run on this host: one JSON object a line, appended by the supervisor of the run and read by
//! every agent that follows it. Knows nothing of what is noted.

use std::io::{Read, Write};

use rustix::fs::{FallocateFlags, fallocate};

use super::SuperviseError;
use super::rundir::RunDir;
use crate::domain::note::Note;

/// The file: one [`Note`] a line.
pub const NOTES: &str = "notes.ndjson";

/// So many bytes of notes find room on a full disk.
const ROOM: u64 = 16 << 10;

/// Takes room for notes that are added later: a disk that has become full is what they may have to tell. Where the
/// file system can't do that, nothing is taken.
pub fn reserve(dir: &RunDir) -> Result<(), SuperviseError> {
    let file = dir.append(NOTES)?;
    // behind the end: readers see an empty file
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, ROOM);
    Ok(())
}

/// Adds a note at the end, in one write: a torn line ends without a line feed and is not read.
pub fn add(dir: &RunDir, note: &Note) -> Result<(), SuperviseError> {
    let failed = |e| SuperviseError::io("write", &dir.path().join(NOTES), e);
    let mut line = serde_json::to_vec(note).map_err(|e| failed(e.into()))?;
    line.push(b'\n');
    let mut file = dir.append(NOTES)?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)
}

/// Reads the notes as they come, each once.
#[derive(Debug, Default)]
pub struct Reader {
    /// Bytes that were read already.
    length: u64,
    /// Notes that were read already.
    count: u64,
}

impl Reader {
    /// The notes that are new, each with its number.
    pub fn news(&mut self, dir: &RunDir) -> Result<Vec<(u64, Note)>, SuperviseError> {
        let Some(mut file) = dir.read(NOTES)? else {
            return Ok(Vec::new());
        };
        let failed = |e| SuperviseError::io("read", &dir.path().join(NOTES), e);
        if file.metadata().map_err(failed)?.len() == self.length {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        self.length = bytes.len() as u64;
        let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let notes = whole.filter_map(|line| serde_json::from_slice(line).ok());
        let skip = usize::try_from(self.count).unwrap_or(usize::MAX);
        let news: Vec<(u64, Note)> = (0..).zip(notes).skip(skip).collect();
        self.count += news.len() as u64;
        Ok(news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::domain::note::what;
    use crate::domain::time::HostTime;

    #[test]
    fn each_note_is_read_once_and_a_torn_one_not_at_all() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut reader = Reader::default();
        assert_eq!(reader.news(&dir).unwrap(), []);
        let note = |n| Note::new(what::ADOPTED, format!("note {n}"), HostTime(n));
        add(&dir, &note(1)).unwrap();
        add(&dir, &note(2)).unwrap();
        assert_eq!(reader.news(&dir).unwrap(), [(0, note(1)), (1, note(2))]);
        dir.append(NOTES).unwrap().write_all(b"{\"what\":\"a").unwrap();
        assert_eq!(reader.news(&dir).unwrap(), []);
        dir.append(NOTES).unwrap().write_all(b"\",\"text\":\"b\"}\n").unwrap();
        assert_eq!(reader.news(&dir).unwrap()[0].0, 2);
        assert_eq!(Reader::default().news(&dir).unwrap().len(), 3);
    }
}
