//! `--secret-file`: variables whose values are secret, from a file that only its owner can read.
//!
//! No word of an error quotes what the file holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::launch::names;

use super::errors::{Code, Failure};

/// More is no list of variables.
const MOST: u64 = 1 << 20;

/// The variables of a file, by name.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let name = path.display();
    let failed = |error: std::io::Error| {
        Failure::new(Code::from(&error), format!("can't read secret file {name}: {error}"))
    };
    let mut file = File::open(path).map_err(failed)?;
    // Of what was opened, so that nothing else can be put in its place in between.
    let meta = file.metadata().map_err(failed)?;
    let refused = |why: String| Failure::new(Code::Permission, format!("secret file {name} {why}"));
    if !meta.is_file() {
        return Err(Failure::usage(format!("secret file {name} is no file")));
    }
    let own = rustix::process::getuid().as_raw();
    if meta.uid() != own {
        return Err(refused(format!("belongs to another user ({}): sudo chown {own} {name}", meta.uid())));
    }
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err(refused(format!("is open to other users (mode {mode:o}): chmod 600 {name}")));
    }
    let mut text = String::new();
    file.by_ref().take(MOST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST {
        return Err(Failure::usage(format!(
            "secret file {name} is larger than 1 M: it holds a variable a line"
        )));
    }
    variables(&text)
        .map_err(|(line, fault)| Failure::usage(format!("secret file {name}, line {line}: {fault}")))
}

/// `NAME=value` a line, as shells and `docker --env-file` read it: `export` before it, quotes around the value, empty
/// lines and `#` lines are fine. Gives the line that is not, and why.
fn variables(text: &str) -> Result<BTreeMap<String, String>, (usize, String)> {
    let mut found = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err((number, "no NAME=value".to_owned()));
        };
        let name = name.trim();
        if let Some(fault) = names::env_fault(name) {
            // A name that is none may be a part of a value that was torn.
            return Err((number, format!("what stands before `=` {fault}")));
        }
        if value.contains('\0') {
            return Err((number, format!("the value of {name} holds a NUL byte")));
        }
        if found.insert(name.to_owned(), unquoted(value.trim()).to_owned()).is_some() {
            return Err((number, format!("{name} is there a second time")));
        }
    }
    Ok(found)
}

fn unquoted(value: &str) -> &str {
    let within = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn variables_are_read_as_a_shell_would() {
        let text = "# tokens\n\nHF_TOKEN=hf_abc=def\nexport A=\"with blanks \"\n B = 'x'\r\nC=\nD=\"\n";
        let read = variables(text).unwrap();
        let want = [("A", "with blanks "), ("B", "x"), ("C", ""), ("D", "\""), ("HF_TOKEN", "hf_abc=def")];
        assert_eq!(
            read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(),
            want
        );
    }

    #[test]
    fn no_fault_quotes_a_value() {
        for (text, line, fault) in [
            ("A=1\nhunter2", 2, "no NAME=value"),
            (
                "hunter2 hunter2=",
                1,
                "what stands before `=` is no name of a variable: letters, digits and `_`, no digit first",
            ),
            ("RANK=hunter2", 1, "what stands before `=` is set by hvtui itself, for each rank"),
            ("A=hunter2\nA=hunter2", 2, "A is there a second time"),
            ("A=hunter2\0", 1, "the value of A holds a NUL byte"),
        ] {
            assert_eq!(variables(text).unwrap_err(), (line, fault.to_owned()));
        }
    }

    #[test]
    fn what_others_may_read_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        assert_eq!(read(&path).unwrap_err().code, Code::Io);
        assert!(read(dir.path()).unwrap_err().message.ends_with("is no file"));
        std::fs::write(&path, "A=hunter2\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let refused = read(&path).unwrap_err();
        assert_eq!(refused.code, Code::Permission);
        let remedy = format!("is open to other users (mode 640): chmod 600 {}", path.display());
        assert!(refused.message.ends_with(&remedy), "{refused}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap()["A"], "hunter2");
        std::fs::write(&path, vec![b'#'; MOST as usize + 1]).unwrap();
        assert!(read(&path).unwrap_err().message.contains("larger than 1 M"));
    }
}
