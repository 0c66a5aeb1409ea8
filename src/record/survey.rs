//! Reads one file of a recording from its beginning to its end and says where it is not what was written.

use super::scan::{self, Bytes, Found, RecordScanner};

/// How many faults of one file are kept; the others are counted.
const MOST_KEPT: usize = 1000;

/// A place that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// Where it begins, bytes from the start of the file.
    pub(super) at: u64,
    /// What is wrong there, in words.
    pub(super) reason: String,
}

/// What is wrong with one file.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// How many places are bad.
    pub(super) bad: u64,
    /// The first of them.
    pub(super) faults: Vec<Fault>,
    /// Where it is cut.
    pub(super) cut: Option<u64>,
    /// Whether the file ends as a closed one does.
    pub(super) closed: bool,
}

impl Survey {
    /// Walks the data from `from` on. `take` is given each whole chunk record with its place, and refuses a bad one
    /// with a reason.
    pub(super) fn new(
        bytes: &mut Bytes,
        from: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), String>,
    ) -> std::io::Result<Self> {
        Self::walk(bytes, from, |bytes, at, length| Ok(take(at, &bytes.read(at, length)?)))
    }

    /// The same, where `take` reads what it wants of each chunk itself.
    pub(super) fn walk(
        bytes: &mut Bytes,
        from: u64,
        mut take: impl FnMut(&Bytes, u64, usize) -> std::io::Result<Result<(), String>>,
    ) -> std::io::Result<Self> {
        let mut scanner = RecordScanner::new(from);
        let (mut survey, mut bad_bytes) = (Self::default(), 0);
        while let Some(found) = scanner.next(bytes)? {
            // a break in the middle is damage; one that nothing follows is a cut
            if let Some(at) = survey.cut.take() {
                survey.add(at, "the bytes fit no record".to_owned());
            }
            match found {
                Found::Chunk(at, length) => {
                    if let Err(reason) = take(bytes, at, length)? {
                        survey.add(at, reason);
                        // looking again costs time; a file made to cost it gets no second look
                        if bad_bytes <= bytes.length() {
                            scanner.resync_after(bytes, at)?;
                        }
                        bad_bytes += length as u64;
                    }
                }
                Found::Broken(at) => survey.cut = Some(at),
                Found::Closed => survey.closed = true,
            }
        }
        let has_end = scan::footer(bytes)?.is_some();
        survey.closed &= has_end;
        // what has its end is not cut: the break lies within
        if let Some(at) = survey.cut.take_if(|_| has_end) {
            survey.add(at, "the bytes fit no record".to_owned());
        }
        Ok(survey)
    }

    fn add(&mut self, at: u64, reason: String) {
        self.bad += 1;
        if self.faults.len() < MOST_KEPT {
            self.faults.push(Fault { at, reason });
        }
    }
}
