//! The configuration files on disk: which there are, whether they may be believed, and what an `Include` names.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::evaluate::{Evaluator, Found, Question, Text};
use crate::ssh::trust::Place;

/// No configuration is longer.
const MOST_BYTES: u64 = 1 << 20;

/// The files that are read, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    /// The person's own.
    pub(super) user: PathBuf,
    /// The machine's.
    pub(super) system: Option<PathBuf>,
    /// The folder that `~` means.
    pub(super) home: PathBuf,
}

impl Files {
    pub(super) fn of(home: &Path) -> Self {
        Self {
            user: home.join(".ssh/config"),
            system: Some(PathBuf::from("/etc/ssh/ssh_config")),
            home: home.to_owned(),
        }
    }

    /// What all of them say for one host. A file that can't be read or believed is an error; one that is not there
    /// says nothing.
    pub(super) fn ask(&self, question: Question<'_>) -> Result<Found, (Place, String)> {
        let mut evaluator = Evaluator::new(question);
        let system = self.system.iter().map(|path| (path, false));
        for (path, own) in std::iter::once((&self.user, true)).chain(system) {
            let text = match read(path, own) {
                Ok(Some(text)) => text,
                Ok(None) => continue,
                Err(why) => return Err((Place { file: path.clone(), line: 0 }, why)),
            };
            let folder = path.parent().unwrap_or(Path::new("/"));
            evaluator.file(path, &text, &mut |word| self.included(word, folder, own));
        }
        Ok(evaluator.end())
    }

    /// The files of an `Include`, by name; none is no fault.
    fn included(&self, word: &str, folder: &Path, own: bool) -> Vec<Result<Text, String>> {
        let pattern = match word.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None if word.starts_with('~') => {
                return vec![Err("the home of another user is not looked up".into())];
            }
            None => folder.join(word),
        };
        let options =
            glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::default() };
        let paths = match glob::glob_with(&pattern.to_string_lossy(), options) {
            Ok(paths) => paths.flatten(),
            Err(error) => return vec![Err(error.to_string())],
        };
        let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        paths.sort();
        let text = |path: PathBuf| match read(&path, own) {
            Ok(text) => text.map(|text| Ok((path, text))),
            Err(why) => Some(Err(format!("{}: {why}", path.display()))),
        };
        paths.into_iter().filter_map(text).collect()
    }
}

fn read(path: &Path, own: bool) -> Result<Option<String>, String> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if own && !is_ours(&found) {
        return Err("others can write it, or it belongs to another user: run chmod go-w on it".to_owned());
    }
    if found.len() > MOST_BYTES {
        return Err("it is longer than 1 MiB".to_owned());
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// As in OpenSSH: a file that others can write does not count.
fn is_ours(found: &Metadata) -> bool {
    let me = rustix::process::getuid().as_raw();
    (found.uid() == me || found.uid() == 0) && found.mode() & 0o022 == 0
}
