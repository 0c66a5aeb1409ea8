//! Asking the system's `ssh` what it would do (`ssh -G`): it connects to no host, but reads files as only it can,
//! and runs what they say under `Match exec`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::evaluate::{Found, Question, Value};
use super::keys::{self, Shape};
use crate::ssh::transport::report;

/// `Match exec` may run a program that takes its time.
const LIMIT: Duration = Duration::from_secs(10);
/// More than it ever prints.
const MOST_BYTES: u64 = 1 << 20;

/// Which files `ssh` is told to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read<'a> {
    /// Those that it reads by itself.
    Usual,
    /// This one alone.
    Only(&'a Path),
    /// None.
    Nothing,
}

/// What `ssh` prints for a host. An error is in words.
pub(super) async fn ask(ssh: &Path, read: Read<'_>, question: &Question<'_>) -> Result<String, String> {
    let mut command = Command::new(ssh);
    command.arg("-G");
    match read {
        Read::Usual => &mut command,
        Read::Only(path) => command.arg("-F").arg(path),
        Read::Nothing => command.args(["-F", "none"]),
    };
    if let Some(user) = question.user {
        command.args(["-l", user]);
    }
    if let Some(port) = question.port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["--", question.name]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| error.to_string())?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (Some(out), Some(err)) = (out, err) else { return Err("no standard output".to_owned()) };
    let work = async {
        let (mut said, mut complained) = (Vec::new(), Vec::new());
        let (mut out, mut err) = (out.take(MOST_BYTES), err.take(MOST_BYTES));
        let (out, err) = tokio::join!(out.read_to_end(&mut said), err.read_to_end(&mut complained));
        out.and(err)?;
        Ok::<_, std::io::Error>((child.wait().await?, said, complained))
    };
    match timeout(LIMIT, work).await {
        Ok(Ok((status, said, _))) if status.success() => Ok(String::from_utf8_lossy(&said).into_owned()),
        Ok(Ok((_, _, complained))) => Err(report::quote(&report::clean(&complained).replace('\n', " | "))),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s: what does Match exec run?", LIMIT.as_secs())),
    }
}

/// Reads what `ssh` printed. `usual` is what it prints without any file: what is equal to that was not set.
pub(super) fn understand(text: &str, usual: Option<&Found>) -> Found {
    let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text.lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let key = keys::current(&key.to_ascii_lowercase()).to_owned();
        let shape = if key == keys::IGNORE_UNKNOWN { Some(Shape::Line) } else { keys::shape(&key) };
        let Some(shape) = shape else { continue };
        let words = match shape {
            Shape::Words => rest.split(' ').map(str::to_owned).collect(),
            Shape::Word | Shape::Line | Shape::Each => vec![rest.to_owned()],
        };
        values.entry(key).or_default().push(Value { words, place: None });
    }
    if let Some(usual) = usual {
        values.retain(|key, value| usual.values.get(key) != Some(value));
    }
    Found { values, notes: Vec::new(), matters: true }
}
