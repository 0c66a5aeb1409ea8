//! Splits what a launcher prints into its ranks' output, by the tags that it puts before what they write. Pure.
//!
//! Launchers tag what a rank has *written at once*, not lines: a tag may stand within a line, behind what another rank
//! has left without a line end. What stands at the beginning of a line without a tag is the launcher's own. Chunks may
//! end anywhere, in the midst of a tag too; the result doesn't depend on where.

use serde::{Deserialize, Serialize};

use super::log::Stream;

/// How a launcher tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagStyle {
    /// `[1]<stdout>:text` of horovodrun, with or without a time before it; `[1,0]<stdout>:` where it uses mpirun.
    Horovod,
    /// `[1,0]<stdout>:text` of Open MPI up to 4, with or without a time before it.
    OpenMpi4,
    /// `[1,0]<stdout>: text` of Open MPI 5, likewise.
    OpenMpi5,
    /// `[0] text` of MPICH's `-prepend-rank`, and Intel MPI's.
    Hydra,
    /// `0: text` of `srun -l`.
    Srun,
}

/// Whose text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The tag's number; `None` for the launcher's own words.
    pub rank: Option<u32>,
    /// What the tag says of the stream, or where the text came from.
    pub stream: Stream,
}

/// Splits one of the launcher's streams.
#[derive(Debug, Serialize, Deserialize)]
pub struct Splitter {
    style: TagStyle,
    stream: Stream,
    origin: Origin,
    /// What may be the beginning of a tag.
    held: Vec<u8>,
    /// Whether the next byte begins a line of the launcher's stream.
    line_start: bool,
}

/// A longer tag is none: so much is held back at most.
const LONGEST: usize = 200;

enum Found {
    /// A tag of so many bytes.
    Tag(usize, Origin),
    /// Not yet to be told.
    Maybe,
    No,
}

impl Splitter {
    /// For what the launcher writes to `stream`.
    pub fn new(style: TagStyle, stream: Stream) -> Self {
        let origin = Origin { rank: None, stream };
        Self { style, stream, origin, held: Vec::new(), line_start: true }
    }

    /// Further bytes of the launcher; pieces of text, each with its origin, in order.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<(Origin, Vec<u8>)> {
        self.split(bytes, false)
    }

    /// The stream has ended: what was held back is no tag.
    pub fn end(&mut self) -> Vec<(Origin, Vec<u8>)> {
        self.split(&[], true)
    }

    fn split(&mut self, bytes: &[u8], last: bool) -> Vec<(Origin, Vec<u8>)> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(bytes);
        let mut out: Vec<(Origin, Vec<u8>)> = Vec::new();
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            match self.tag(rest, last) {
                Found::Tag(length, origin) => {
                    at += length;
                    self.origin = origin;
                    self.line_start = false;
                    continue;
                }
                Found::Maybe => {
                    self.held = rest.to_vec();
                    break;
                }
                Found::No => {}
            }
            let Some(byte) = rest.first().copied() else { break };
            at += 1;
            match out.last_mut() {
                Some((origin, piece)) if *origin == self.origin => piece.push(byte),
                _ => out.push((self.origin, vec![byte])),
            }
            self.line_start = byte == b'\n';
            if self.line_start {
                self.origin = Origin { rank: None, stream: self.stream };
            }
        }
        out
    }

    /// Whether a tag begins here.
    fn tag(&self, rest: &[u8], last: bool) -> Found {
        let mut reader = Reader { bytes: rest, at: 0 };
        let read = match self.style {
            TagStyle::Horovod | TagStyle::OpenMpi4 | TagStyle::OpenMpi5 => bracketed(&mut reader, self.style),
            TagStyle::Srun if self.line_start => srun(&mut reader).map(|rank| (rank, None)),
            TagStyle::Hydra if self.line_start => hydra(&mut reader).map(|rank| (rank, None)),
            TagStyle::Srun | TagStyle::Hydra => return Found::No,
        };
        match read {
            Ok((rank, stream)) => {
                let origin = Origin { rank: Some(rank), stream: stream.unwrap_or(self.stream) };
                Found::Tag(reader.at, origin)
            }
            Err(Miss::End) if !last && rest.len() < LONGEST => Found::Maybe,
            Err(_) => Found::No,
        }
    }
}

/// Why something could not be read.
enum Miss {
    /// The bytes end before it can be told.
    End,
    Other,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Result<u8, Miss> {
        self.bytes.get(self.at).copied().ok_or(Miss::End)
    }

    fn one(&mut self, fits: impl Fn(u8) -> bool) -> Result<u8, Miss> {
        let byte = self.peek()?;
        if !fits(byte) {
            return Err(Miss::Other);
        }
        self.at += 1;
        Ok(byte)
    }

    fn text(&mut self, text: &str) -> Result<(), Miss> {
        text.bytes().try_for_each(|byte| self.one(|found| found == byte).map(drop))
    }

    /// One of several words, of which none is the beginning of another.
    fn word<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, Miss> {
        let begun = self.at;
        let mut short = false;
        for (word, meaning) in words {
            self.at = begun;
            match self.text(word) {
                Ok(()) => return Ok(*meaning),
                Err(Miss::End) => short = true,
                Err(Miss::Other) => {}
            }
        }
        self.at = begun;
        Err(if short { Miss::End } else { Miss::Other })
    }

    fn number(&mut self) -> Result<u32, Miss> {
        let mut value = u32::from(self.one(|byte| byte.is_ascii_digit())? - b'0');
        while self.peek()?.is_ascii_digit() {
            let digit = u32::from(self.one(|byte| byte.is_ascii_digit())? - b'0');
            value = value.checked_mul(10).and_then(|value| value.checked_add(digit)).ok_or(Miss::Other)?;
        }
        Ok(value)
    }

    /// A word, then something else. What may be in it is bounded, so that a bracket in a text is not held for long.
    fn name(&mut self, fits: impl Fn(u8) -> bool) -> Result<usize, Miss> {
        let begun = self.at;
        while fits(self.peek()?) {
            self.at += 1;
        }
        if self.at == begun { Err(Miss::Other) } else { Ok(self.at - begun) }
    }
}

/// `Sat Nov 21 01:24:45 2026`.
fn moment(reader: &mut Reader<'_>) -> Result<(), Miss> {
    const DAYS: [(&str, ()); 7] =
        [("Mon", ()), ("Tue", ()), ("Wed", ()), ("Thu", ()), ("Fri", ()), ("Sat", ()), ("Sun", ())];
    const MONTHS: [(&str, ()); 12] = [
        ("Jan", ()),
        ("Feb", ()),
        ("Mar", ()),
        ("Apr", ()),
        ("May", ()),
        ("Jun", ()),
        ("Jul", ()),
        ("Aug", ()),
        ("Sep", ()),
        ("Oct", ()),
        ("Nov", ()),
        ("Dec", ()),
    ];
    reader.word(&DAYS)?;
    reader.text(" ")?;
    reader.word(&MONTHS)?;
    for shape in " 99 99:99:99 9999".bytes() {
        match shape {
            // a day before the tenth is padded by a space
            b'9' => reader.one(|byte| byte.is_ascii_digit() || byte == b' ')?,
            other => reader.one(|byte| byte == other)?,
        };
    }
    Ok(())
}

/// `[1]<stdout>:`, `[1,0]<stderr>:`, `[job,0][host:pid]<stdout>: `, each with a time before it or without.
fn bracketed(reader: &mut Reader<'_>, style: TagStyle) -> Result<(u32, Option<Stream>), Miss> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@~ :".contains(&byte);
    match reader.peek()? {
        b'[' => {
            reader.at += 1;
            if reader.peek()?.is_ascii_uppercase() {
                moment(reader)?;
                reader.text("][")?;
            }
        }
        letter if letter.is_ascii_uppercase() => {
            moment(reader)?;
            reader.text("[")?;
        }
        _ => return Err(Miss::Other),
    }
    let begun = reader.at;
    let alone = (style == TagStyle::Horovod).then(|| reader.number());
    let rank = match alone {
        Some(Ok(rank)) if reader.peek()? == b']' => rank,
        Some(Err(Miss::End)) => return Err(Miss::End),
        _ => {
            reader.at = begun;
            reader.name(plain)?;
            reader.text(",")?;
            if reader.peek()? == b' ' {
                reader.at += 1;
            }
            reader.number()?
        }
    };
    reader.text("]")?;
    if reader.peek()? == b'[' {
        reader.at += 1;
        reader.name(plain)?;
        reader.text("]")?;
    }
    reader.text("<")?;
    let streams = [("stdout>:", Stream::Stdout), ("stderr>:", Stream::Stderr), ("stddiag>:", Stream::Stderr)];
    let stream = reader.word(&streams)?;
    // Whether a space follows is to be known before the tag is taken.
    if style == TagStyle::OpenMpi5 && reader.peek()? == b' ' {
        reader.at += 1;
    }
    Ok((rank, Some(stream)))
}

/// `[0] `.
fn hydra(reader: &mut Reader<'_>) -> Result<u32, Miss> {
    reader.text("[")?;
    let rank = reader.number()?;
    reader.text("] ")?;
    Ok(rank)
}

/// `0: `, `07: `.
fn srun(reader: &mut Reader<'_>) -> Result<u32, Miss> {
    while reader.peek()? == b' ' {
        reader.at += 1;
    }
    let rank = reader.number()?;
    reader.text(": ")?;
    Ok(rank)
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
