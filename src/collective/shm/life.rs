//! Who of a host's ranks still lives: each holds a lock on the file of its own arena, which the kernel takes from it when
//! it ends, however it ends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// The lock that a rank holds while it takes part.
pub(super) struct Life(#[expect(dead_code, reason = "held, never used")] OwnedFd);

impl Life {
    /// Begins, before anyone else has the file.
    pub(super) fn begin(arena: &OwnedFd) -> io::Result<Self> {
        // Opened anew: locks belong to what was opened, and the others get what `arena` is.
        let path = format!("/proc/self/fd/{}", arena.as_raw_fd());
        let own = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(own))
    }
}

/// All ranks of a host.
pub(in crate::collective) struct Lives {
    own: Option<Life>,
    arenas: Vec<Arc<OwnedFd>>,
}

impl Lives {
    pub(super) fn new(own: Life, arenas: Vec<Arc<OwnedFd>>) -> Self {
        Self { own: Some(own), arenas }
    }

    /// Whether the rank at this place of the host takes part no longer.
    pub(in crate::collective) fn is_gone(&self, place: usize) -> bool {
        // All that got the file share one lock, which they can only have when its owner has let go of its own.
        let got = flock(&*self.arenas[place], FlockOperation::NonBlockingLockShared);
        got.is_ok()
    }

    /// This rank takes part no longer.
    pub(in crate::collective) fn end(&mut self) {
        self.own = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping;
    use super::*;

    #[test]
    fn who_ends_is_gone_for_all_who_have_its_file() {
        let file = mapping::create("hvtui-arena", 4096).unwrap();
        let life = Life::begin(&file).unwrap();
        let theirs = |life| Lives::new(life, vec![Arc::new(file.try_clone().unwrap())]);
        let other = Life::begin(&mapping::create("hvtui-arena", 4096).unwrap()).unwrap();
        let lives = theirs(other);
        assert!(!lives.is_gone(0));
        drop(life);
        assert!(lives.is_gone(0) && lives.is_gone(0));
    }
}
