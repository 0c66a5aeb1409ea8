//! Where hvtui's own files are, by the XDG rules.

use std::path::PathBuf;

use etcetera::base_strategy::{BaseStrategy, Xdg};

use super::errors::{Code, Failure};

/// The folders of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The home folder.
    pub home: PathBuf,
    /// Recordings, spools and the log file: `$XDG_STATE_HOME/hvtui`, else `~/.local/state/hvtui`.
    pub state: PathBuf,
    /// The user's hosts file: `$XDG_CONFIG_HOME/hvtui`, else `~/.config/hvtui`.
    pub config: PathBuf,
}

impl Paths {
    /// The folders of the user who runs this process; none is created.
    pub fn of_user() -> Result<Self, Failure> {
        let xdg = Xdg::new().map_err(|_| {
            Failure::new(Code::Permission, "no home folder is known for this user: set HOME to a folder")
        })?;
        let home = xdg.home_dir().to_owned();
        let state = xdg.state_dir().unwrap_or_else(|| home.join(".local/state"));
        Ok(Self { state: state.join("hvtui"), config: xdg.config_dir().join("hvtui"), home })
    }
}
