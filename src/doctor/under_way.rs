//! How much of what may hang is under way at once.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Places for what may hang. What hangs keeps its own.
pub(crate) struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// A place that is taken; it is free again when this goes, however that comes.
pub(crate) struct Place(&'static AtomicUsize);

impl Places {
    /// So many of them.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0) }
    }

    /// One of them; `None` where all are taken.
    pub(crate) fn take(&'static self) -> Option<Place> {
        let place = Place(&self.taken);
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
