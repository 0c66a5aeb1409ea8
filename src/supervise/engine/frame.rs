//! What a launcher's wrapper and a node say to each other, as bytes. Pure.

/// One message. `id` is that of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// To the node: execute this by the shell.
    Run { id: u32, command: Vec<u8> },
    /// To the node: who asked for the command is gone.
    Gone { id: u32 },
    /// To the node: the launcher has ended; `tail` are its last words.
    Ended { died: bool, code: i32, words: String, tail: String },
    /// To the node: a rank on its host has said this; `err` on its standard error.
    Line { rank: u32, err: bool, bytes: Vec<u8> },
    /// To the wrapper: what the command has said; `err` on its standard error.
    Output { id: u32, err: bool, bytes: Vec<u8> },
    /// To the wrapper: the command has ended with this code.
    Exit { id: u32, code: i32 },
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, id, rest): (u8, u32, &[u8]) = match self {
            Self::Run { id, command } => (1, *id, command),
            Self::Gone { id } => (2, *id, &[]),
            Self::Ended { died, code, words, tail } => {
                let length = words.len() as u32;
                let head = [&[3], &u32::from(*died).to_le_bytes()[..], &code.to_le_bytes()].concat();
                return [&head, &length.to_le_bytes()[..], words.as_bytes(), tail.as_bytes()].concat();
            }
            Self::Line { rank, err, bytes } => (if *err { 8 } else { 7 }, *rank, bytes),
            Self::Output { id, err, bytes } => (if *err { 5 } else { 4 }, *id, bytes),
            Self::Exit { id, code } => return [&[6], &id.to_le_bytes()[..], &code.to_le_bytes()].concat(),
        };
        [&[kind], &id.to_le_bytes()[..], rest].concat()
    }

    /// `None` for what is no message.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (id, rest) = rest.split_first_chunk::<4>()?;
        let id = u32::from_le_bytes(*id);
        Some(match kind {
            1 => Self::Run { id, command: rest.to_vec() },
            2 => Self::Gone { id },
            3 => {
                let (code, rest) = rest.split_first_chunk::<4>()?;
                let (length, rest) = rest.split_first_chunk::<4>()?;
                let (words, tail) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let code = i32::from_le_bytes(*code);
                Self::Ended { died: id != 0, code, words: text(words), tail: text(tail) }
            }
            7 | 8 => Self::Line { rank: id, err: *kind == 8, bytes: rest.to_vec() },
            4 | 5 => Self::Output { id, err: *kind == 5, bytes: rest.to_vec() },
            6 => Self::Exit { id, code: i32::from_le_bytes(rest.try_into().ok()?) },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_other_bytes_are_none() {
        for frame in [
            Frame::Run { id: 7, command: b"orted \xff".to_vec() },
            Frame::Gone { id: 1 },
            Frame::Ended { died: true, code: 3, words: "mpirun: x".to_owned(), tail: "y\nz".to_owned() },
            Frame::Line { rank: 2, err: true, bytes: b"x\xff\n".to_vec() },
            Frame::Line { rank: 2, err: false, bytes: Vec::new() },
            Frame::Output { id: 2, err: true, bytes: b"x".to_vec() },
            Frame::Output { id: 2, err: false, bytes: Vec::new() },
            Frame::Exit { id: 3, code: -1 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x01\0\0\0",
            b"\x06\0\0\0\0\0",
            b"\x03\0\0\0\0\0\0\0\0\x09\0\0\0x",
            b"\x09\0\0\0\0",
        ] {
            assert_eq!(Frame::decode(bytes), None, "{bytes:?}");
        }
    }
}
