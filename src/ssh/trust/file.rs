//! Writing a host's key down: the one place that changes a file of known hosts.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::{ShownKey, TrustError};
use super::host_key::HostKey;
use super::known_hosts::{HostName, KnownHosts, Verdict};
use super::server::{Server, refusal};
use crate::filelock;

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
    server: &Server,
    key: &HostKey,
    expected_fingerprint: Option<&str>,
) -> Result<Trusted, TrustError> {
    server.check()?;
    let fingerprint = key.fingerprint();
    let wanted = expected_fingerprint.or(server.pin.as_deref());
    if let Some(wanted) = wanted.filter(|wanted| *wanted != fingerprint) {
        return Err(TrustError::OtherFingerprint {
            host: server.host.clone(),
            key: Box::new(ShownKey::new(server.endpoint(), key)),
            wanted: wanted.to_owned(),
        });
    }
    let Some(file) = server.files.first() else {
        return Err(TrustError::NotWritten {
            file: PathBuf::new(),
            detail: "no file is configured".to_owned(),
        });
    };
    let failed = |error: &io::Error| TrustError::NotWritten { file: file.clone(), detail: explain(error) };
    make_folder(file).map_err(|error| failed(&error))?;
    let mut open = open_locked(file).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&bytes);
    // Judged under the lock: another process may have added the key just now.
    let mut known = KnownHosts::read(server.files.get(1..).unwrap_or_default())?;
    known.add(file, &text);
    let name = HostName::of(server);
    match known.judge(&name, key) {
        Verdict::Known => return Ok(Trusted { file: file.clone(), fingerprint, already: true }),
        Verdict::Unknown { .. } => {}
        Verdict::OtherType { .. } if wanted.is_some() => {}
        verdict => {
            if let Some(error) = refusal(server, key, verdict) {
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

/// Whether a key that a host shows may be accepted; an error if not.
pub(in crate::ssh) fn accept(server: &Server, key: &HostKey) -> Result<(), TrustError> {
    let known = KnownHosts::read(&server.files)?;
    refusal(server, key, known.judge(&HostName::of(server), key)).map_or(Ok(()), Err)
}

/// Whether a key is pinned as the host's or known to the files. An error for one that must not be accepted in any case.
pub(in crate::ssh) fn is_known(server: &Server, key: &HostKey) -> Result<bool, TrustError> {
    let known = KnownHosts::read(&server.files)?;
    match known.judge(&HostName::of(server), key) {
        Verdict::Known => Ok(true),
        Verdict::Unknown { .. } | Verdict::OtherType { .. } => {
            Ok(server.pin.as_ref().is_some_and(|pin| *pin == key.fingerprint()))
        }
        verdict @ (Verdict::Changed { .. } | Verdict::Revoked { .. }) => {
            match refusal(server, key, verdict) {
                Some(error) => Err(error),
                None => Ok(false),
            }
        }
    }
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
        filelock::exclusive(&open, filelock::PATIENCE).map_err(io::Error::other)?;
        let ours = open.metadata()?;
        match std::fs::symlink_metadata(file) {
            Ok(seen) if (seen.dev(), seen.ino()) == (ours.dev(), ours.ino()) => return Ok(open),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const A: &str = include_str!("../../../tests/fixtures/ssh/ed25519-a.pub");
    const B: &str = include_str!("../../../tests/fixtures/ssh/ed25519-b.pub");
    const RSA: &str = include_str!("../../../tests/fixtures/ssh/rsa.pub");

    fn key(text: &str) -> HostKey {
        HostKey::from_openssh(text.trim()).unwrap()
    }

    fn server(file: PathBuf, port: u16) -> Server {
        Server { files: vec![file], ..Server::new("a".into(), "GPU-A", port) }
    }

    #[test]
    fn a_key_is_added_once_to_a_private_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".ssh/known_hosts");
        let gpu = server(file.clone(), 2222);
        assert!(!trust(&gpu, &key(A), None).unwrap().already);
        assert!(trust(&gpu, &key(A), Some(&key(A).fingerprint())).unwrap().already);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("[gpu-a]:2222 {A}"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_line_without_an_end_stays_a_line() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        std::fs::write(&file, format!("other {}", B.trim())).unwrap();
        trust(&server(file.clone(), 22), &key(A), None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("other {B}gpu-a {A}"));
    }

    #[test]
    fn changed_revoked_and_unexpected_keys_are_never_added() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let gpu = server(file.clone(), 22);
        let refused = |text: String, key: &HostKey, expected: Option<&str>| {
            std::fs::write(&file, &text).unwrap();
            let error = trust(&gpu, key, expected).unwrap_err();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
            error
        };
        let error = refused(format!("gpu-a {B}"), &key(A), Some(&key(A).fingerprint()));
        assert!(matches!(error, TrustError::ChangedKey { .. }), "{error}");
        let error = refused(format!("@revoked * {A}"), &key(A), None);
        assert!(matches!(error, TrustError::RevokedKey { .. }), "{error}");
        let error = refused(String::new(), &key(A), Some("SHA256:other"));
        assert!(matches!(error, TrustError::OtherFingerprint { .. }), "{error}");
        let error = refused(format!("gpu-a {RSA}"), &key(A), None);
        assert!(matches!(error, TrustError::OtherKeyType { .. }), "{error}");
        trust(&gpu, &key(A), Some(&key(A).fingerprint())).unwrap();
    }

    /// What a person does who takes a changed key for the right one: the commands that the error names.
    #[test]
    fn what_a_changed_key_names_as_the_remedy_is_one_and_takes_nothing_from_other_hosts() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let gpu = server(file.clone(), 22);
        let (a, b) = (A.trim(), B.trim());
        for (before, after) in [
            (format!("gpu-a {b}\nother {b}\n"), format!("other {b}\n")),
            (format!("other {b}\n gpu-a,other {b}\n"), format!("other {b}\n !gpu-a,gpu-a,other {b}\n")),
            (format!("gpu-* {b}\ngpu-a {b}\n"), format!("!gpu-a,gpu-* {b}\n")),
        ] {
            std::fs::write(&file, &before).unwrap();
            let error = trust(&gpu, &key(A), None).unwrap_err().to_string();
            let commands = error.split_once("anew: ").unwrap().1.split_once(" && hvtui").unwrap().0;
            let done = std::process::Command::new("sh").args(["-c", commands]).output().unwrap();
            if commands.starts_with("ssh-keygen") && !done.status.success() {
                assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "ssh-keygen is missing");
                continue;
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), after, "{commands}");
            trust(&gpu, &key(A), None).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{after}gpu-a {a}\n"));
        }
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (file, real) = (home.path().join("known_hosts"), home.path().join("real"));
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &file).unwrap();
        let error = trust(&server(file, 22), &key(A), None).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "");
    }

    #[test]
    fn many_at_once_write_whole_lines_once() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("known_hosts");
        let added: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16u16)
                .map(|index| {
                    let gpu = server(file.clone(), 3000 + index / 2);
                    scope.spawn(move || usize::from(!trust(&gpu, &key(A), None).unwrap().already))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(added, 8);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 8);
    }
}
