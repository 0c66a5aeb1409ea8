//! Other programs: where they and their working directories are, and a bounded question to one ([`asked`]). Layer 2.
//!
//! The agent asks where a rank's program is before a run, and the rank-wrap when it starts it: both get the same answer.

pub mod asked;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::domain::text::os_text;

/// A program or a working directory is not there; says which, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProgramError(String);

/// The command that means hvtui's own binary.
pub const OURS: &str = "hvtui";

/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The running binary, also when its file was replaced since it was started.
pub fn own_binary() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}

/// The user's home directory.
pub fn home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The directory a rank works in: relative ones count from the home directory.
pub fn working_directory(cwd: Option<&str>) -> Result<PathBuf, ProgramError> {
    let path = match cwd {
        None | Some("" | "~") => home(),
        Some(cwd) => home().join(cwd.strip_prefix("~/").unwrap_or(cwd)),
    };
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => Ok(path),
        Ok(_) => Err(ProgramError(format!("working directory {}: is a file", path.display()))),
        Err(e) => Err(ProgramError(format!("working directory {}: {}", path.display(), os_text(&e)))),
    }
}

/// The file that `command` names for a process with this `PATH` in this directory; `ours` for `hvtui`.
pub fn resolve(
    command: &str,
    path: Option<&OsStr>,
    cwd: &Path,
    ours: &Path,
) -> Result<PathBuf, ProgramError> {
    if command == OURS {
        return Ok(ours.to_owned());
    }
    if command.contains('/') {
        let file = cwd.join(command);
        return match std::fs::metadata(&file) {
            Err(e) => Err(ProgramError(format!("exec {}: {}", file.display(), os_text(&e)))),
            Ok(_) if executable(&file) => Ok(file),
            Ok(meta) if meta.is_dir() => {
                Err(ProgramError(format!("exec {}: it is a folder, not a program", file.display())))
            }
            Ok(_) => Err(ProgramError(format!(
                "exec {0}: not an executable file: chmod +x '{0}'?",
                file.display()
            ))),
        };
    }
    let path = path.map_or_else(|| OsString::from(DEFAULT_PATH), OsStr::to_owned);
    std::env::split_paths(&path)
        .map(|folder| cwd.join(folder).join(command))
        .find(|file| !command.is_empty() && executable(file))
        .ok_or_else(|| {
            let path = path.to_string_lossy();
            let here = if !command.is_empty() && executable(&cwd.join(command)) {
                format!("; there is ./{command} in {}", cwd.display())
            } else {
                String::new()
            };
            ProgramError(format!("command '{command}' not found (PATH={path}){here}"))
        })
}

fn executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_would() {
        let folder = tempfile::tempdir().unwrap();
        let (cwd, ours) = (folder.path(), Path::new("/opt/hvtui"));
        std::fs::write(cwd.join("plain"), "").unwrap();
        std::fs::write(cwd.join("tool"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(cwd.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
        let search = OsString::from(format!("/nowhere:{}", cwd.display()));
        let find = |command: &str| resolve(command, Some(&search), cwd, ours);
        assert_eq!(find("hvtui").unwrap(), ours);
        assert_eq!(find("tool").unwrap(), cwd.join("tool"));
        assert_eq!(find("./tool").unwrap(), cwd.join("./tool"));
        let missing = find("plain").unwrap_err().to_string();
        assert!(missing.starts_with("command 'plain' not found (PATH=/nowhere:"), "{missing}");
        let here = resolve("tool", Some(OsStr::new("/nowhere")), cwd, ours).unwrap_err().to_string();
        assert!(here.ends_with(&format!("; there is ./tool in {}", cwd.display())), "{here}");
        assert!(find("").is_err());
        let absent = find("/x/y").unwrap_err().to_string();
        assert_eq!(absent, "exec /x/y: no such file or directory");
        assert!(find("./plain").unwrap_err().to_string().contains("chmod +x"));
        let folder = resolve("/tmp", None, cwd, ours).unwrap_err().to_string();
        assert_eq!(folder, "exec /tmp: it is a folder, not a program");
    }

    #[test]
    fn the_working_directory_must_be_one() {
        assert_eq!(working_directory(Some("/tmp")).unwrap(), Path::new("/tmp"));
        let error = working_directory(Some("/no/such")).unwrap_err().to_string();
        assert_eq!(error, "working directory /no/such: no such file or directory");
        assert_eq!(working_directory(None).unwrap(), home());
    }
}
