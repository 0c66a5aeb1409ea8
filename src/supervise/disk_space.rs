//! Watches the room on the file system of a run's files: who prints within its cap can still be stopped by a disk
//! that others have filled. Must not know what is done about it.

use super::rundir::RunDir;
use super::{SuperviseError, spool_trimmer};
use crate::domain::run::MinFree;
use crate::domain::units;

/// With less than this a file system is full: writes of any size fail soon.
const FULL: u64 = 64 << 10;

/// Says it when the room becomes short.
#[derive(Debug)]
pub(super) struct DiskSpaceWatch {
    min_free: MinFree,
    low: bool,
}

impl DiskSpaceWatch {
    pub(super) fn new(min_free: MinFree) -> Self {
        Self { min_free, low: false }
    }

    /// Looks.
    pub(super) fn look(&mut self, dir: &RunDir, note: &spool_trimmer::Note) {
        let Ok((free, size)) = dir.space() else { return };
        if let Some(text) = self.judge(free, size) {
            note(&format!("{text}, at {}", dir.path().display()));
        }
    }

    /// What is to be said about so much room: once when it becomes short, once when it is back.
    fn judge(&mut self, free: u64, size: u64) -> Option<String> {
        let least = self.min_free.of(size);
        let was_low = self.low;
        // a little more than the least to be well again: no word for every file that comes and goes
        self.low = free < if was_low { least.saturating_add(least / 8) } else { least };
        let free = units::bytes(free);
        match (was_low, self.low) {
            (false, true) => Some(format!(
                "the disk is filling up: {free} free, less than the {} to be left: a rank that writes when it is full fails",
                units::bytes(least)
            )),
            (true, false) => Some(format!("the disk has room again: {free} free")),
            _ => None,
        }
    }
}

/// That the disk of a run's files is full now, in words that help to explain why a rank failed.
pub fn full(dir: &RunDir) -> Result<Option<String>, SuperviseError> {
    let (free, _) = dir.space()?;
    Ok((free < FULL)
        .then(|| format!("its disk was full ({} free at {})", units::bytes(free), dir.path().display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_disk_is_said_once_and_so_is_its_recovery() {
        let mut watch = DiskSpaceWatch::new(MinFree::Percent(5));
        let size = 1000 << 30;
        assert_eq!(watch.judge(60 << 30, size), None);
        let said = watch.judge(49 << 30, size).unwrap();
        assert!(said.contains("49 G free, less than the 50 G"), "{said}");
        assert_eq!(watch.judge(10 << 30, size), None);
        assert_eq!(watch.judge(51 << 30, size), None, "just above is not well yet");
        assert_eq!(watch.judge(70 << 30, size).unwrap(), "the disk has room again: 70 G free");
        assert!(watch.judge(0, size).is_some());
    }
}
