//! What a launcher's wrapper and a node say to each other, as bytes. Pure.

/// One message. `id` is that of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// To the node: execute this by the shell.
    Run { id: u32, command: Vec<u8> },
    /// To the node: who asked for the command is gone.
    Gone { id: u32 },
    /// To the node: the launcher has ended.
    Ended { died: bool, words: String },
    /// To the wrapper: what the command has said; `err` on its standard error.
    Said { id: u32, err: bool, bytes: Vec<u8> },
    /// To the wrapper: the command has ended with this code.
    Exit { id: u32, code: i32 },
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, id, rest): (u8, u32, &[u8]) = match self {
            Self::Run { id, command } => (1, *id, command),
            Self::Gone { id } => (2, *id, &[]),
            Self::Ended { died, words } => (3, u32::from(*died), words.as_bytes()),
            Self::Said { id, err, bytes } => (if *err { 5 } else { 4 }, *id, bytes),
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
            3 => Self::Ended { died: id != 0, words: String::from_utf8_lossy(rest).into_owned() },
            4 | 5 => Self::Said { id, err: *kind == 5, bytes: rest.to_vec() },
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
            Frame::Ended { died: true, words: "mpirun: x".to_owned() },
            Frame::Said { id: 2, err: true, bytes: b"x".to_vec() },
            Frame::Said { id: 2, err: false, bytes: Vec::new() },
            Frame::Exit { id: 3, code: -1 },
        ] {
            assert_eq!(Frame::decode(&frame.encode()), Some(frame));
        }
        for bytes in [&b""[..], b"\x01", b"\x01\0\0\0", b"\x06\0\0\0\0\0", b"\x09\0\0\0\0"] {
            assert_eq!(Frame::decode(bytes), None, "{bytes:?}");
        }
    }
}
