//! Writing a host's key down: the one place that changes a file of known hosts.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::error::SshError;
use super::host_key::HostKey;
use super::known_hosts::{HostName, KnownHosts, Verdict};
use super::session::refusal;
use super::target::Target;

/// A key that is trusted from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// The file that has it.
    pub file: PathBuf,
    /// `SHA256:…`
    pub fingerprint: String,
    /// It was known before; nothing was written.
    pub already: bool,
}

/// Adds the host's key to the first file of known hosts.
///
/// With `expected_fingerprint` only that key is taken. Without, a key of another type than the known ones is
/// refused. A changed or revoked key is refused always.
pub fn trust(
    target: &Target,
    key: &HostKey,
    expected_fingerprint: Option<&str>,
) -> Result<Trusted, SshError> {
    target.check()?;
    let fingerprint = key.fingerprint();
    let wanted = expected_fingerprint.or(target.fingerprint.as_deref());
    if let Some(wanted) = wanted.filter(|wanted| *wanted != fingerprint) {
        return Err(SshError::OtherFingerprint {
            host: target.host.clone(),
            at: target.endpoint(),
            algorithm: key.algorithm(),
            fingerprint,
            wanted: wanted.to_owned(),
        });
    }
    let Some(file) = target.known_hosts.first() else {
        return Err(SshError::Trust { file: PathBuf::new(), detail: "no file is configured".to_owned() });
    };
    let failed = |error: &io::Error| SshError::Trust { file: file.clone(), detail: explain(error) };
    make_folder(file).map_err(|error| failed(&error))?;
    let mut open = open_locked(file).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    // Judged under the lock: another process may have added the key just now.
    let mut known = KnownHosts::read(target.known_hosts.get(1..).unwrap_or_default())?;
    known.add(file, &text);
    let name = HostName::of(target);
    match known.judge(&name, key) {
        Verdict::Known => return Ok(Trusted { file: file.clone(), fingerprint, already: true }),
        Verdict::Unknown { .. } => {}
        Verdict::OtherType { .. } if wanted.is_some() => {}
        verdict => {
            if let Some(error) = refusal(target, key, verdict) {
                return Err(error);
            }
        }
    }
    let fields = key.fields().ok_or_else(|| failed(&io::ErrorKind::InvalidData.into()))?;
    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let line = format!("{gap}{} {fields}\n", name.as_str());
    // One write to a file opened for appending: never half a line beside another writer's.
    let written =
        open.write_all(line.as_bytes()).and_then(|()| open.sync_all()).and_then(|()| sync_folder(file));
    written.map_err(|error| failed(&error))?;
    Ok(Trusted { file: file.clone(), fingerprint, already: false })
}

fn explain(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return "it is a symbolic link, which is not followed; name the real file, or add the line yourself"
            .to_owned();
    }
    error.to_string()
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn make_folder(file: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder_of(file))
}

fn sync_folder(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

/// Opens the file for reading and appending, alone among those that lock it. A file that was replaced while
/// we waited for the lock is no longer the one that readers see: then the new one is opened.
fn open_locked(file: &Path) -> io::Result<File> {
    loop {
        let open = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(file)?;
        flock(&open, FlockOperation::LockExclusive)?;
        let ours = open.metadata()?;
        match std::fs::symlink_metadata(file) {
            Ok(seen) if (seen.dev(), seen.ino()) == (ours.dev(), ours.ino()) => return Ok(open),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}
