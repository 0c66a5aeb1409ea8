//! A file from which training goes on: written whole or not at all, and believed only when its hash is right.
//!
//! One line of JSON (what it is, and the SHA-256 of what follows), then the parameters and the optimizer's buffers,
//! 32-bit floating point, lowest byte first. See docs/formats/checkpoint.md.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ring::digest;
use serde::{Deserialize, Serialize};

use super::error::WorkerError;
use super::replica::State;

/// Says what kind of file it is.
const MAGIC: &str = "hvtui checkpoint 1";
/// The longest first line.
const MAX_HEAD: u64 = 4096;

/// Where training was, and what it was: it can only go on as the same one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) job: String,
    pub(super) seed: u64,
    /// Samples a step over all ranks.
    pub(super) batch: usize,
    /// Samples of an epoch.
    pub(super) samples: usize,
    /// Steps done.
    pub(super) step: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    magic: String,
    position: Position,
    params: u64,
    /// The optimizer's buffers.
    buffers: u32,
    optimizer_steps: u32,
    sha256: String,
}

/// Writes a checkpoint beside `path` and puts it in its place: whatever happens, `path` is the old one or the new one.
pub(super) fn write(path: &Path, position: &Position, state: &State) -> Result<(), WorkerError> {
    let failed =
        |what| move |source| WorkerError::CheckpointWrite { path: path.display().to_string(), what, source };
    let mut body = Vec::with_capacity(4 * state.params.len() * (1 + state.memory.len()));
    for values in std::iter::once(&state.params).chain(&state.memory) {
        body.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    let head = Head {
        magic: MAGIC.to_owned(),
        position: position.clone(),
        params: state.params.len() as u64,
        buffers: state.memory.len() as u32,
        optimizer_steps: state.steps,
        sha256: hex(&body),
    };
    let mut head = serde_json::to_vec(&head).map_err(|error| failed("write")(error.into()))?;
    head.push(b'\n');
    let fresh = beside(path);
    let written = write_new(&fresh, &[&head, &body])
        .map_err(failed("write"))
        .and_then(|()| fs::rename(&fresh, path).map_err(failed("put in place")));
    if written.is_err() {
        // What is half written is of no use, and takes the room that was short.
        let _ = fs::remove_file(&fresh);
    } else {
        // The new name is on disk only with its folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    }
    written
}

fn write_new(path: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Reads a checkpoint; `None` when there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<(Position, State)>, WorkerError> {
    let unreadable = |source| WorkerError::CheckpointRead { path: path.display().to_string(), source };
    let damaged = |reason: &str| WorkerError::CheckpointDamaged {
        path: path.display().to_string(),
        reason: reason.to_owned(),
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mut bytes = Vec::new();
    (&mut file).take(MAX_HEAD).read_to_end(&mut bytes).map_err(unreadable)?;
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("has no first line"))?;
    let head: Head =
        serde_json::from_slice(&bytes[..end]).map_err(|_| damaged("its first line is not a checkpoint's"))?;
    if head.magic != MAGIC {
        return Err(damaged("is of another version"));
    }
    if head.params == 0 || u64::from(head.optimizer_steps) != head.position.step {
        return Err(damaged("its first line contradicts itself"));
    }
    // What the file says of its length is believed only when it is that long.
    let length = file.metadata().map_err(unreadable)?.len();
    let wanted = head
        .params
        .checked_mul(u64::from(head.buffers) + 1)
        .and_then(|values| values.checked_mul(4)?.checked_add(end as u64 + 1));
    if wanted != Some(length) {
        return Err(damaged(&format!("is {length} bytes long, which its first line contradicts")));
    }
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    let body = &bytes[end + 1..];
    if hex(body) != head.sha256 {
        return Err(damaged("its SHA-256 is not the one in its first line"));
    }
    let mut values =
        body.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]));
    let mut next = || values.by_ref().take(head.params as usize).collect::<Vec<f32>>();
    let params = next();
    let memory = (0..head.buffers).map(|_| next()).collect();
    Ok(Some((head.position, State { params, steps: head.optimizer_steps, memory })))
}

/// SHA-256, hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in digest::digest(&digest::SHA256, bytes).as_ref() {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Position, State) {
        let position = Position { job: "digits".to_owned(), seed: 3, batch: 32, samples: 1437, step: 45 };
        let state = State {
            params: vec![1.5, -2.0, f32::MIN_POSITIVE],
            steps: 45,
            memory: vec![vec![0.0, -0.0, 3.0], vec![4.0, 5.0, 6.0]],
        };
        (position, state)
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        assert!(read(&path).unwrap().is_none());
        let (position, mut state) = sample();
        write(&path, &position, &state).unwrap();
        assert_eq!(read(&path).unwrap(), Some((position.clone(), state.clone())));
        state.params[0] = 7.0;
        write(&path, &position, &state).unwrap();
        assert_eq!(read(&path).unwrap(), Some((position, state)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn no_damage_goes_unseen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let (position, state) = sample();
        write(&path, &position, &state).unwrap();
        let good = fs::read(&path).unwrap();
        let broken = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            error
        };
        for cut in 0..good.len() {
            broken(&good[..cut]);
        }
        let body = good.len() - 36;
        for at in body..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(broken(&bad).contains("SHA-256"));
        }
        broken(&[&good[..], b"more"].concat());
        broken(b"{\"magic\":\"hvtui checkpoint 1\"}\n");
        broken(&vec![b'x'; 10_000]);
        let huge =
            String::from_utf8_lossy(&good[..body]).replace("\"params\":3", "\"params\":4611686018427387904");
        broken(huge.as_bytes());
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let (position, state) = sample();
        write(&path, &position, &state).unwrap();
        // A folder where the fresh file is to be: it can't be opened for writing, not even by root.
        fs::create_dir(beside(&path)).unwrap();
        let error = write(&path, &position, &State::default()).unwrap_err().to_string();
        assert!(error.contains("model"), "{error}");
        assert_eq!(read(&path).unwrap(), Some((position, state)));
    }
}
