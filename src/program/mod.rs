//! Other programs: where they and their working directories are, and a bounded question to one ([`asked`]), such as a container engine
//! ([`engines`]). Layer 2.
//!
//! The agent asks where a rank's program is before a run, and the rank-wrap when it starts it: both get the same answer.

pub mod asked;
pub mod engines;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::domain::text::os_text;

/// A program or a working directory is not there; says which, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProgramError(String);

/// The command that means hvtui's own binary.
pub const OURS: &str = "hvtui";

/// The kernel reads no more of a script's first line.
const FIRST_LINE: u64 = 256;

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
        // `./train` of a folder is told without the dot
        let file: PathBuf = cwd.join(command).components().collect();
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

/// The file that a rank's command names, as [`resolve`] finds it. `python3` is the interpreter of the launcher `of` where that is
/// on the search path and its first line names one by its path.
pub fn resolve_python_of(
    of: Option<&str>,
    command: &str,
    path: Option<&OsStr>,
    cwd: &Path,
    ours: &Path,
) -> Result<PathBuf, ProgramError> {
    let launcher = of.filter(|_| command == "python3").and_then(|of| resolve(of, path, cwd, ours).ok());
    match launcher.and_then(|launcher| interpreter(&launcher)) {
        Some(python) => Ok(python),
        None => resolve(command, path, cwd, ours),
    }
}

/// The Python that a script's first line names by its path.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut first = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    let line = first.split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?;
    let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    let python = Path::new(OsStr::from_bytes(word));
    let is_python = python.file_name().is_some_and(|name| name.as_bytes().starts_with(b"python"));
    (is_python && executable(python)).then(|| python.to_owned())
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
    fn a_launchers_own_python_is_the_one_of_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let (cwd, path) = (folder.path(), Some(folder.path().as_os_str()));
        let write = |name: &str, text: &str| {
            std::fs::write(cwd.join(name), text).unwrap();
            std::fs::set_permissions(cwd.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        write("python3", "");
        write("python3.11", "");
        let find = |command: &str| {
            let found = resolve_python_of(Some("torchrun"), command, path, cwd, Path::new("/h"));
            found.unwrap().file_name().unwrap().to_string_lossy().into_owned()
        };
        assert_eq!(find("python3"), "python3", "no torchrun is there");
        write("torchrun", &format!("#!{}/python3.11 -s\nimport sys\n", cwd.display()));
        assert_eq!((find("python3").as_str(), find("torchrun").as_str()), ("python3.11", "torchrun"));
        for other in ["#!/usr/bin/env python3\n", "#!/bin/sh\n", "#!/no/such/python3\n", "\x7fELF", ""] {
            write("torchrun", other);
            assert_eq!(find("python3"), "python3", "{other}");
        }
    }

    #[test]
    fn the_working_directory_must_be_one() {
        assert_eq!(working_directory(Some("/tmp")).unwrap(), Path::new("/tmp"));
        let error = working_directory(Some("/no/such")).unwrap_err().to_string();
        assert_eq!(error, "working directory /no/such: no such file or directory");
        assert_eq!(working_directory(None).unwrap(), home());
    }
}
