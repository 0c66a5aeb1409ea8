//! Which hosts file counts, and reading it. The only file of this module that touches a disk, but for the
//! check that an identity file exists.

use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::host::HostsFile;
use super::merge;

/// Where the hosts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A hosts file.
    File(PathBuf),
    /// No hosts file: this machine alone.
    ThisMachine,
}

/// The hosts file that counts: `explicit` (`--hosts FILE`) even if it does not exist, else `hosts.toml` in
/// `cwd`, else `hosts.toml` in `config_dir`, else none.
pub fn find(explicit: Option<&Path>, cwd: &Path, config_dir: &Path) -> Source {
    if let Some(path) = explicit {
        return Source::File(path.to_owned());
    }
    let found = [cwd, config_dir].map(|dir| dir.join("hosts.toml")).into_iter().find(|path| path.exists());
    found.map_or(Source::ThisMachine, Source::File)
}

/// Reads and checks the hosts. `home` is what `~` means in the path of an identity file.
pub fn load(source: &Source, home: &Path) -> Result<HostsFile, ConfigError> {
    let path = match source {
        Source::File(path) => path,
        Source::ThisMachine => return Ok(HostsFile::this_machine()),
    };
    let bytes =
        std::fs::read(path).map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.split(|byte| *byte == b'\n').count();
        ConfigError::NotText { path: path.clone(), line }
    })?;
    parse(path, text, home)
}

/// Reads and checks the text of a hosts file; `path` names it in errors.
pub fn parse(path: &Path, text: String, home: &Path) -> Result<HostsFile, ConfigError> {
    merge::hosts_file(path, text, home)
}
