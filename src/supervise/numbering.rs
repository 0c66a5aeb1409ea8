//! The numbers by which the bytes of a rank's file are known, where the rank empties its file and goes on: `> /dev/stderr` opens the
//! file behind that name anew and cuts it to nothing.
//!
//! The number of a byte is its offset in the file, and more than that once the file was emptied: numbers only grow, so that no
//! reader takes a new byte for one that it has. Where a file begins is written down beside it, by the supervisor or an agent that
//! finds it emptied: it is shorter than it was, or begins otherwise. Must not know what the bytes are.

use std::fs::File;
use std::io;

use serde::{Deserialize, Serialize};

use super::rundir::RunDir;
use super::spool::{kept_from, read_whole};
use crate::domain::sync::Digest;
use crate::sha256;

/// So much of a file's beginning tells it from what is written after it was emptied.
const HEAD: usize = 4096;

/// What is written down of a file that was emptied: `rank-3.out.emptied`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Emptied {
    /// How often.
    times: u64,
    /// The number of its first byte since.
    begin: u64,
    /// The file as it was found then. Absent where an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<Seen>,
}

impl Emptied {
    /// Whether it knows of more emptyings than another one, or who has found it has read further.
    fn is_ahead_of(&self, other: &Self) -> bool {
        (self.times, self.begin) > (other.times, other.begin)
    }
}

/// A file as it was at a look, by which who looks later sees whether it was emptied since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    /// How long it was.
    length: u64,
    /// So many bytes of its beginning …
    head: usize,
    /// … have this SHA-256.
    sha256: Digest,
}

impl Seen {
    fn of(head: &[u8], length: u64) -> Self {
        Self { length, head: head.len(), sha256: sha256::of_bytes(head) }
    }

    /// Whether a file that begins so may be that one.
    fn begins(&self, head: &[u8]) -> bool {
        head.get(..self.head).is_some_and(|head| sha256::of_bytes(head) == self.sha256)
    }
}

/// How the bytes of a file are numbered, and what was seen of it since it was emptied last.
#[derive(Debug, Default)]
pub struct Numbering {
    /// The file that tells it.
    note: String,
    emptied: Emptied,
    length: u64,
    head: Vec<u8>,
}

impl Numbering {
    /// That of a file of ranks, as far as it is written down.
    pub fn open(dir: &RunDir, file: &str) -> Self {
        let note = format!("{file}.emptied");
        let emptied = read(dir, &note);
        Self { note, emptied, ..Self::default() }
    }

    /// The number of the file's first byte.
    pub fn begin(&self) -> u64 {
        self.emptied.begin
    }

    /// The number behind its last byte, as it was seen last.
    pub fn end(&self) -> u64 {
        self.emptied.begin.saturating_add(self.length)
    }

    /// Takes in that it is so long; the number behind its last byte then. `None` where it was longer: a look tells why.
    pub fn grown(&mut self, length: u64) -> Option<u64> {
        if length < self.length {
            return None;
        }
        self.length = length;
        Some(self.end())
    }

    /// Looks whether the file was emptied, of which all bytes before the number `read_to` were read. A byte that was read before
    /// this call was no part of the file any more if its number is less than [`Self::begin`] is then.
    pub fn look(&mut self, dir: &RunDir, file: &File, read_to: u64) -> io::Result<()> {
        let noted = read(dir, &self.note);
        // what others saw of the file that is new to this one: who looks so late may find it emptied once more
        let mut seen = None;
        if noted.times > self.emptied.times {
            // who has found it may not have known how far others had read
            let begin = noted.begin.max(self.end().max(read_to).saturating_add(1));
            self.begin_anew(Emptied { begin, ..noted });
            seen = noted.seen;
        }
        let (mut head, mut length) = look_at(file)?;
        let known = self.length.max(read_to.saturating_sub(self.emptied.begin));
        let known = known.max(seen.map_or(0, |seen| seen.length));
        let is_other = !head.starts_with(&self.head) || seen.is_some_and(|seen| !seen.begins(&head));
        // a head that was cut off is a hole
        if length < known || (is_other && kept_from(file, 0)? == 0) {
            let begin = self.emptied.begin.saturating_add(known).max(noted.begin).saturating_add(1);
            self.begin_anew(Emptied { times: self.emptied.times.saturating_add(1), begin, seen: None });
            // it may have been emptied between the two looks at it
            (head, length) = look_at(file)?;
        }
        (self.head, self.length) = (head, length);
        if self.emptied.is_ahead_of(&noted) {
            self.emptied.seen = Some(Seen::of(&self.head, self.length));
            if let Err(error) = dir.write_passing(&self.note, &self.emptied) {
                // tried again with the next look
                tracing::debug!(%error, note = %self.note, "that a file was emptied can't be written down");
            }
        }
        Ok(())
    }

    fn begin_anew(&mut self, emptied: Emptied) {
        (self.emptied, self.length) = (emptied, 0);
        self.head.clear();
    }
}

/// What is written down. A note that can't be read tells nothing, and is written anew by who knows better.
fn read(dir: &RunDir, note: &str) -> Emptied {
    dir.read_json(note).ok().flatten().unwrap_or_default()
}

/// How a file begins, and how long it is.
fn look_at(file: &File) -> io::Result<(Vec<u8>, u64)> {
    let mut head = vec![0; HEAD];
    let read = read_whole(file, &mut head, 0)?;
    head.truncate(read);
    Ok((head, file.metadata()?.len()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::supervise::spool::{self, BLOCK};

    const NAME: &str = "rank-0.out";

    /// Empties it, as a shell does.
    fn write_anew(dir: &RunDir, text: &str) {
        std::fs::write(dir.path().join(NAME), text).unwrap();
    }

    fn append(dir: &RunDir, text: &str) {
        dir.append(NAME).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Where the file begins and ends, as one sees it who has read up to this number.
    fn look(numbering: &mut Numbering, dir: &RunDir, read_to: u64) -> (u64, u64) {
        numbering.look(dir, &dir.read(NAME).unwrap().unwrap(), read_to).unwrap();
        (numbering.begin(), numbering.end())
    }

    #[test]
    fn numbers_grow_however_often_a_file_is_emptied() {
        let (_state, dir) = RunDir::of_test();
        append(&dir, "step 1\n");
        let mut numbering = Numbering::open(&dir, NAME);
        assert_eq!(look(&mut numbering, &dir, 0), (0, 7));
        append(&dir, "more\n");
        assert_eq!(look(&mut numbering, &dir, 7), (0, 12));
        assert!(!dir.has("rank-0.out.emptied"));
        write_anew(&dir, "step 2\n");
        assert_eq!(look(&mut numbering, &dir, 12), (13, 20), "shorter");
        write_anew(&dir, "step 3\n");
        assert_eq!(look(&mut numbering, &dir, 20), (21, 28), "as long, and begins otherwise");
        write_anew(&dir, "longer than before\n");
        assert_eq!(look(&mut numbering, &dir, 28), (29, 48), "longer, and begins otherwise");
        append(&dir, "more\n");
        assert_eq!((numbering.grown(24), numbering.grown(3)), (Some(53), None));
        write_anew(&dir, "");
        assert_eq!(look(&mut numbering, &dir, 48), (54, 54));
        assert_eq!(look(&mut numbering, &dir, 54), (54, 54), "told once");
        // one who comes later
        assert_eq!(look(&mut Numbering::open(&dir, NAME), &dir, 54), (54, 54));
        append(&dir, "last\n");
        assert_eq!(look(&mut Numbering::open(&dir, NAME), &dir, 48), (54, 59), "one who has read less");
    }

    #[test]
    fn who_has_read_further_begins_behind_that_and_all_others_with_it() {
        let (_state, dir) = RunDir::of_test();
        append(&dir, "a\n");
        let (mut reader, mut supervisor) = (Numbering::open(&dir, NAME), Numbering::open(&dir, NAME));
        assert_eq!(look(&mut supervisor, &dir, 0), (0, 2));
        append(&dir, "b\n");
        assert_eq!(look(&mut reader, &dir, 4), (0, 4));
        write_anew(&dir, "c\n");
        assert_eq!(look(&mut supervisor, &dir, 0), (3, 5));
        assert_eq!(look(&mut reader, &dir, 4), (5, 7), "it has had byte 3 already");
        assert_eq!(Numbering::open(&dir, NAME).begin(), 5);
        assert_eq!(look(&mut supervisor, &dir, 0), (3, 5), "the same emptying is not told again");
        assert_eq!(Numbering::open(&dir, NAME).begin(), 5);
        write_anew(&dir, "d\n");
        assert_eq!(look(&mut supervisor, &dir, 0), (6, 8));
        assert_eq!(look(&mut reader, &dir, 7), (8, 10));
        // one whose link was lost, and whose file was emptied since and not looked at
        assert_eq!(look(&mut Numbering::open(&dir, NAME), &dir, 11), (12, 14));
        // a note that can't be read is written anew
        std::fs::write(dir.path().join("rank-0.out.emptied"), "{").unwrap();
        assert_eq!(look(&mut reader, &dir, 10), (8, 10));
        assert_eq!(Numbering::open(&dir, NAME).begin(), 8);
    }

    #[test]
    fn who_learns_of_an_emptying_late_sees_that_there_was_another_one_since() {
        let (_state, dir) = RunDir::of_test();
        append(&dir, "a\n");
        let (mut reader, mut supervisor) = (Numbering::open(&dir, NAME), Numbering::open(&dir, NAME));
        assert_eq!((look(&mut supervisor, &dir, 0), look(&mut reader, &dir, 2)), ((0, 2), (0, 2)));
        write_anew(&dir, "first\n");
        assert_eq!(look(&mut supervisor, &dir, 0), (3, 9));
        // while the reader stalls
        write_anew(&dir, "second\n");
        assert_eq!(look(&mut reader, &dir, 2), (10, 17), "what it reads now is of the second one");
        assert_eq!(look(&mut supervisor, &dir, 0), (10, 17));
        assert_eq!(look(&mut reader, &dir, 17), (10, 17), "and does not come again");
        // one that has grown since is the same, and so is one of which an older version has noted no more than the place
        write_anew(&dir, "third\n");
        assert_eq!(look(&mut supervisor, &dir, 0), (18, 24));
        append(&dir, "more\n");
        assert_eq!(look(&mut reader, &dir, 17), (18, 29));
        let note = r#"{"times":4,"begin":40}"#;
        std::fs::write(dir.path().join("rank-0.out.emptied"), note).unwrap();
        assert_eq!((look(&mut reader, &dir, 29), look(&mut supervisor, &dir, 0)), ((40, 51), (40, 51)));
        assert_eq!(std::fs::read_to_string(dir.path().join("rank-0.out.emptied")).unwrap(), note);
    }

    #[test]
    fn a_head_that_is_cut_off_is_no_emptying() {
        let (_state, dir) = RunDir::of_test();
        if !spool::can_cut(&dir).unwrap() {
            return;
        }
        append(&dir, &"x".repeat(3 * BLOCK as usize));
        let mut numbering = Numbering::open(&dir, NAME);
        let whole = (0, 3 * BLOCK);
        assert_eq!(look(&mut numbering, &dir, 0), whole);
        spool::cut(&dir.open_to_cut(NAME).unwrap().unwrap(), 2 * BLOCK).unwrap();
        assert_eq!(look(&mut numbering, &dir, 0), whole);
        assert_eq!(look(&mut numbering, &dir, 0), whole);
        write_anew(&dir, &"y".repeat(4 * BLOCK as usize));
        assert_eq!(look(&mut numbering, &dir, 0), (3 * BLOCK + 1, 7 * BLOCK + 1));
    }
}
