//! A person with an empty home directory who calls hvtui on this machine alone.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::common::in_time::OutputInTime;

/// A person; everything of theirs is under one directory.
pub(crate) struct Person {
    home: TempDir,
    user: Option<u32>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Person {
    /// Who runs the tests.
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), user: None }
    }

    /// Another user; needs root.
    pub(crate) fn with_user(user: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(user), Some(user)).unwrap();
        Self { home, user: Some(user) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program of theirs, with nothing in its environment but where they live.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.home.path()).env_clear().env("HOME", self.home.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").stdin(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    pub(crate) fn hvtui(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        let mut command = self.command(crate::common::program::hvtui());
        let output = command.args(args).output_in_time().unwrap();
        Ran { code: output.status.code(), out: output.stdout, err: output.stderr }
    }

    /// The files of rank 0 of their only run: what a rank printed, byte for byte.
    pub(crate) fn printed(&self) -> Vec<u8> {
        std::fs::read(self.spool().join("rank-0.out")).unwrap()
    }

    /// Whether that directory is there: the run's folder comes first, and the host's in it a moment later.
    pub(crate) fn has_spool(&self) -> bool {
        let runs = std::fs::read_dir(self.path(".local/state/hvtui/spool"));
        let mut runs = runs.into_iter().flatten().flatten();
        runs.any(|run| std::fs::read_dir(run.path()).is_ok_and(|mut hosts| hosts.next().is_some()))
    }

    /// The directory of their only run on this machine.
    pub(crate) fn spool(&self) -> PathBuf {
        let only = |folder: PathBuf| {
            let mut entries: Vec<_> =
                std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(entries.len(), 1, "{}", folder.display());
            entries.remove(0)
        };
        only(only(self.path(".local/state/hvtui/spool")))
    }
}
