//! Which commit a folder has checked out and what differs from it, by the `git` that is there. Nothing fails for want
//! of it.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::domain::sync::Code;
use crate::sha256::Hasher;

/// Whether a folder is in a git repository, looked at without starting anything.
pub fn is_repository(dir: &Path) -> bool {
    dir.ancestors().any(|dir| dir.join(".git").exists())
}

/// A longer name of a branch is left out, bytes.
const BRANCH_MAX: usize = 256;

/// The commit, its branch, and a hash of what differs from it. A commit that is not known within `limit` is left out.
pub fn code(dir: &Path, limit: Duration) -> Code {
    if !is_repository(dir) {
        return Code::default();
    }
    // both at once: each is little more than the start of a process
    let diff = start(dir, &["diff", "HEAD", "--no-ext-diff", "--no-color", "--binary"]);
    let others = start(dir, &["ls-files", "--others", "--exclude-standard", "-z", "--full-name"]);
    let name = start(dir, &["symbolic-ref", "-q", "--short", "HEAD"]);
    let mut head = Vec::new();
    let told = start(dir, &["rev-parse", "--verify", "-q", "HEAD"])
        .and_then(|child| all(child, limit, |bytes| head.extend_from_slice(bytes)));
    // a large change is never whole in memory
    let mut hash = Hasher::default();
    let diff = diff.and_then(|child| all(child, limit, |bytes| hash.update(bytes)));
    let others = others.and_then(|child| all(child, limit, |bytes| hash.update(bytes)));
    let commit = told.and_then(|_| String::from_utf8(head).ok()).map(|text| text.trim().to_owned());
    let commit = commit.filter(|text| text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let mut branch = Vec::new();
    let named = name.and_then(|child| all(child, limit, |bytes| branch.extend_from_slice(bytes)));
    let branch = named.and_then(|_| String::from_utf8(branch).ok()).map(|text| text.trim().to_owned());
    let branch = branch.filter(|text| !text.is_empty() && text.len() <= BRANCH_MAX && commit.is_some());
    let differing = diff.zip(others).map(|(diff, others)| diff + others).filter(|_| commit.is_some());
    let dirty = differing.filter(|bytes| *bytes > 0).map(|_| hash.finish().to_string());
    let unclear = commit.is_some() && differing.is_none();
    Code { commit, branch, dirty, unclear, tree: None }
}

fn start(dir: &Path, args: &[&str]) -> Option<(Child, ChildStdout)> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(["-c", "core.fsmonitor=false"]).args(args);
    // it must not write to the repository, nor ask anything
    command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let out = child.stdout.take()?;
    Some((child, out))
}

/// Takes what it prints until its end, and gives how many bytes that were; `None` when it fails, or is silent for longer than `limit`.
fn all(
    (mut child, mut out): (Child, ChildStdout),
    limit: Duration,
    mut take: impl FnMut(&[u8]),
) -> Option<u64> {
    let mut count = 0;
    let mut buffer = vec![0; 1 << 16];
    let whole = loop {
        let wait = Timespec::try_from(limit).ok()?;
        match poll(&mut [PollFd::new(&out, PollFlags::IN)], Some(&wait)) {
            Ok(1) => {}
            Err(Errno::INTR) => continue,
            _ => break false,
        }
        match out.read(&mut buffer) {
            Ok(0) => break true,
            Ok(read) => {
                count += read as u64;
                take(buffer.get(..read).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break false,
        }
    };
    if !whole {
        drop(child.kill());
    }
    let ended = child.wait().ok()?;
    (whole && ended.success()).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_tells_its_commit_and_its_changes() {
        let dir = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(60);
        assert!(code(dir.path(), limit).is_empty());
        let git = |args: &[&str]| {
            let done = Command::new("git").arg("-C").arg(dir.path()).args(args).output();
            done.is_ok_and(|done| done.status.success())
        };
        if !git(&["init", "-q"]) || !git(&["symbolic-ref", "HEAD", "refs/heads/fix/loader"]) {
            return;
        }
        assert!(code(dir.path(), limit).is_empty(), "no commit yet");
        std::fs::write(dir.path().join("a"), "1").unwrap();
        assert!(git(&["add", "a"]));
        assert!(git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]));
        let clean = code(dir.path(), limit);
        assert!(clean.commit.is_some() && clean.dirty.is_none() && !clean.unclear, "{clean:?}");
        assert_eq!(clean.branch.as_deref(), Some("fix/loader"));
        std::fs::write(dir.path().join("a"), "2").unwrap();
        let changed = code(dir.path(), limit);
        assert!(changed.commit == clean.commit && changed.dirty.is_some(), "{changed:?}");
        std::fs::write(dir.path().join("b"), "").unwrap();
        assert_ne!(code(dir.path(), limit).dirty, changed.dirty);
        assert!(git(&["checkout", "-q", "--detach"]));
        assert_eq!(code(dir.path(), limit).branch, None, "a commit alone");
        // the commit is there, and what differs from it can't be told
        std::fs::write(dir.path().join(".git/index"), "no index").unwrap();
        let unclear = code(dir.path(), limit);
        assert!(unclear.commit == clean.commit && unclear.dirty.is_none() && unclear.unclear, "{unclear:?}");
        assert!(unclear.short().unwrap().ends_with('?') && unclear.words().contains("could not be told"));
    }
}
