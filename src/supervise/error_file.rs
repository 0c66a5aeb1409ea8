//! The file in which a PyTorch script tells why it failed (`TORCHELASTIC_ERROR_FILE`, written by
//! `torch.distributed.elastic.multiprocessing.errors.record`): its message becomes the cause of the rank's end.

use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;

use super::rundir::RunDir;
use super::variables::Variables;
use crate::domain::ids::Rank;

/// The variable that names the file.
const VARIABLE: &str = "TORCHELASTIC_ERROR_FILE";
/// A rank has it where it is one of torchrun's, or of kind `torch`.
const MARK: &str = "TORCHELASTIC_RUN_ID";
/// Bytes of the file that are read.
const LIMIT: u64 = 1 << 20;
/// Letters of the message that are kept.
const LONGEST: usize = 400;

fn name(rank: Rank) -> String {
    format!("rank-{rank}.error.json")
}

/// The variable for a rank that wants one, and has none.
pub(super) fn variable(dir: &RunDir, rank: Rank, given: &Variables) -> Option<(&'static str, PathBuf)> {
    if !given.has(MARK) || given.has(VARIABLE) {
        return None;
    }
    // One of an earlier attempt tells nothing of this one.
    let _ = dir.remove(&name(rank));
    Some((VARIABLE, dir.path().join(name(rank))))
}

/// Why a rank has failed, by its own word: `RuntimeError: no labels`.
pub(super) fn cause(dir: &RunDir, rank: Rank) -> Option<String> {
    let mut text = Vec::new();
    dir.read(&name(rank)).ok()??.take(LIMIT).read_to_end(&mut text).ok()?;
    message(&serde_json::from_slice(&text).ok()?)
}

/// `{"message": {"message": "RuntimeError: …", "extraInfo": {…}}}`, or the message alone.
fn message(file: &Value) -> Option<String> {
    let message = file.get("message")?;
    let text = message.get("message").unwrap_or(message).as_str()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_is_found_in_either_form() {
        let of = |value: Value| message(&value);
        let nested = json!({ "message": { "message": "ValueError: no labels\nmore", "extraInfo": {} } });
        assert_eq!(of(nested).as_deref(), Some("ValueError: no labels"));
        assert_eq!(of(json!({ "message": "killed" })).as_deref(), Some("killed"));
        for none in [json!({}), json!([]), json!({ "message": 3 }), json!({ "message": { "message": "\n" } })]
        {
            assert_eq!(of(none.clone()), None, "{none}");
        }
    }
}
