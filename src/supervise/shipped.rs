//! Files that hvtui has in itself and that the processes of ranks load: put beside the runs, once for each content.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::rundir::{RunDir, draft};
use crate::sha256::Hasher;

/// Files that belong into one folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shipped {
    /// What the folder is called: `python`.
    pub(super) name: &'static str,
    /// Names and contents; at least one.
    pub(super) files: &'static [(&'static str, &'static [u8])],
}

impl Shipped {
    /// Puts the files on this host, where they are not there yet: beside the folder of all runs, or into this run's where
    /// that can't be written.
    pub(super) fn install(&self, dir: &RunDir) -> io::Result<()> {
        if self.find(dir).is_some() {
            return Ok(());
        }
        let [shared, own] = self.places(dir);
        self.put(&shared).or_else(|_| self.put(&own))
    }

    /// The folder that has them. It is there as a whole or not at all.
    pub(super) fn find(&self, dir: &RunDir) -> Option<PathBuf> {
        self.places(dir).into_iter().find(|folder| self.is_in(folder))
    }

    /// Where the folder may be: `<state>/NAME/HASH`, and in the run's own directory.
    pub(super) fn places(&self, dir: &RunDir) -> [PathBuf; 2] {
        let mut hash = Hasher::default();
        for (_, content) in self.files {
            hash.update(content);
        }
        let hash: String = hash.finish().to_string().chars().take(16).collect();
        // the run's directory is `<state>/spool/RUN/HOST`
        let state = dir.path().ancestors().nth(3).unwrap_or(dir.path());
        [state.join(self.name).join(hash), dir.path().join(self.name)]
    }

    fn is_in(&self, folder: &Path) -> bool {
        self.files.first().is_some_and(|(name, _)| folder.join(name).exists())
    }

    /// Writes the folder. Only its owner has access to it, whatever the umask.
    pub(super) fn put(&self, folder: &Path) -> io::Result<()> {
        let private =
            |folder: &Path, all: bool| std::fs::DirBuilder::new().mode(0o700).recursive(all).create(folder);
        let above = folder.parent().unwrap_or(folder);
        private(above, true)?;
        // Under another name first: who finds the folder finds all files, whole.
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let draft = above.join(draft(&name));
        private(&draft, false)?;
        let written = self.files.iter().try_for_each(|(name, content)| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft.join(name));
            file?.write_all(content)
        });
        let moved = written.and_then(|()| std::fs::rename(&draft, folder));
        if moved.is_err() {
            let _ = std::fs::remove_dir_all(&draft);
        }
        // another run has been quicker
        if self.is_in(folder) { Ok(()) } else { moved }
    }
}
