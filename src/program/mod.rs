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

/// Why a script can't be executed: what its first line names is not `place` (`on gpu-b`), in words with the remedy. `path` is the
/// `PATH` by which `env` looks for a program. `None` where the file is no script, or nothing is known against it.
pub fn lacks_interpreter(script: &Path, path: Option<&OsStr>, cwd: &Path, place: &str) -> Option<String> {
    let line = first_line(script)?;
    let line = line.trim_matches([' ', '\t']);
    let (program, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let rest = rest.trim_start_matches([' ', '\t']);
    let at = cwd.join(program);
    let is_there = executable(&at);
    let name = if is_there { sought_by_env(program, rest)? } else { program };
    if is_there && (name.is_empty() || resolve(name, path, cwd, Path::new(OURS)).is_ok()) {
        return None;
    }
    let exec = format!("exec {}: its interpreter", script.display());
    if let Some(name) = name.strip_suffix('\r') {
        return Some(format!(
            "{exec} {name} is followed by a carriage return, and no program has that name {place}: the lines end as Windows ends \
             them (CRLF); sed -i 's/\\r$//' '{}' corrects that",
            script.display()
        ));
    }
    if !is_there {
        let what = if at.exists() { "is no executable file" } else { "is not" };
        return Some(format!(
            "{exec} {program} {what} {place}: install it there, or name another one in the first line (#!)"
        ));
    }
    if name.contains([' ', '\t']) {
        return Some(format!(
            "{exec} is looked for by env as the one name \"{name}\", which is not {place}: write #!{program} -S {name}"
        ));
    }
    let of = path.map(|path| format!(" (PATH={})", path.to_string_lossy())).unwrap_or_default();
    Some(format!(
        "{exec} {name}, which env looks for, is not {place}{of}: install it there, add its folder to PATH, or name another one in \
         the first line (#!)"
    ))
}

/// The program that `env` looks for, where that is what a script's first line names; empty where that can't be told.
fn sought_by_env<'a>(program: &str, rest: &'a str) -> Option<&'a str> {
    if Path::new(program).file_name()? != "env" {
        return None;
    }
    // the kernel gives all that follows as one word; with -S `env` takes it apart
    let Some(words) = rest.strip_prefix("-S") else {
        return Some(if rest.starts_with('-') || rest.contains('=') { "" } else { rest });
    };
    let word = words.split([' ', '\t']).find(|word| !word.is_empty() && !word.contains('='));
    Some(word.filter(|word| !word.starts_with(['-', '"', '\'', '$'])).unwrap_or_default())
}

/// What follows `#!` in the first line of a script; `None` where that is no text, or longer than the kernel reads.
fn first_line(script: &Path) -> Option<String> {
    let mut first = Vec::new();
    std::fs::File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    let is_whole = first.contains(&b'\n') || (first.len() as u64) < FIRST_LINE;
    let line = first.split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?;
    is_whole.then(|| String::from_utf8(line.to_vec()).ok())?.filter(|line| !line.trim().is_empty())
}

/// The Python that a script's first line names by its path.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let line = first_line(script)?;
    let python = Path::new(line.split_whitespace().next()?);
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
    fn a_script_whose_interpreter_is_missing_is_told_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        let write = |name: &str, text: &str| {
            std::fs::write(cwd.join(name), text).unwrap();
            std::fs::set_permissions(cwd.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        write("env", "");
        write("python3", "");
        std::fs::write(cwd.join("plain"), "").unwrap();
        let (script, here) = (cwd.join("train.py"), cwd.display());
        let lacks = |first: &str| {
            write("train.py", first);
            let words = lacks_interpreter(&script, Some(cwd.as_os_str()), cwd, "on n2");
            words.map(|words| words.replace(&format!("{here}/"), "").replace(&here.to_string(), "."))
        };
        let sound = [
            format!("#!{here}/python3\n"),
            format!("#! {here}/python3 -u\nx"),
            format!("#!{here}/env python3\n"),
            format!("#!{here}/env -S A=1 python3 -u\n"),
            // what env does with these is not known here
            format!("#!{here}/env -i python9\n"),
            format!("#!{here}/env -S -u A python9\n"),
            format!("#!{}\n", "/x".repeat(200)),
            "\x7fELF".to_owned(),
            "#!\n".to_owned(),
            String::new(),
        ];
        for first in sound {
            assert_eq!(lacks(&first), None, "{first}");
        }
        let remedy = "install it there, or name another one in the first line (#!)";
        assert_eq!(
            lacks("#!/no/such/python3.5\nprint()\n").unwrap(),
            format!("exec train.py: its interpreter /no/such/python3.5 is not on n2: {remedy}")
        );
        assert_eq!(
            lacks(&format!("#!{here}/plain")).unwrap(),
            format!("exec train.py: its interpreter plain is no executable file on n2: {remedy}")
        );
        let by_env = lacks(&format!("#!{here}/env python3.5\n")).unwrap();
        assert!(by_env.starts_with(
            "exec train.py: its interpreter python3.5, which env looks for, is not on n2 (PATH=.): "
        ));
        let one_name = lacks(&format!("#!{here}/env python3 -u\n")).unwrap();
        assert!(
            one_name.ends_with("\"python3 -u\", which is not on n2: write #!env -S python3 -u"),
            "{one_name}"
        );
        for first in [format!("#!{here}/python3\r\nx"), format!("#!{here}/env python3\r\n")] {
            let crlf = lacks(&first).unwrap();
            assert!(crlf.contains("python3 is followed by a carriage return, and no program"), "{crlf}");
            assert!(crlf.ends_with("(CRLF); sed -i 's/\\r$//' 'train.py' corrects that"), "{crlf}");
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
