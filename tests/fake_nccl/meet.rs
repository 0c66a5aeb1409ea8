//! Allreduces of ranks that are processes of their own: each puts its values into a file, and reads the others'.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::script;

/// How often the others are looked for, a fifth of a millisecond apart at least: longer than any deadline of a test.
const LOOKS: u32 = 600_000;

/// One allreduce of one rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meeting {
    world: c_int,
    rank: c_int,
    /// Which of the communicator's operations it is.
    number: u32,
    /// `ncclRedOp_t`.
    op: c_int,
    at: usize,
    count: usize,
}

impl Meeting {
    /// `None` where no folder is named.
    pub(crate) fn of(world: c_int, rank: c_int, number: u32, op: c_int) -> Option<Self> {
        let named = !script::variable("FAKE_NCCL_MEET").is_empty();
        named.then_some(Self { world, rank, number, op, at: 0, count: 0 })
    }

    /// Of these values.
    pub(crate) fn over(self, at: usize, count: usize) -> Self {
        Self { at, count, ..self }
    }

    /// Replaces the values by their reduction over all ranks; false when another rank does not come.
    ///
    /// # Safety
    /// The values may be read and written.
    #[expect(
        clippy::needless_range_loop,
        reason = "an index costs less than an iterator that is not optimised"
    )]
    pub(crate) unsafe fn reduce(self) -> bool {
        let folder = PathBuf::from(script::variable("FAKE_NCCL_MEET"));
        // SAFETY: the caller's promise.
        let values = unsafe { std::slice::from_raw_parts_mut(self.at as *mut f32, self.count) };
        // SAFETY: a float is four bytes, and any bytes are bytes.
        let own = unsafe { std::slice::from_raw_parts(self.at as *const u8, 4 * self.count) };
        let file = |number: u32, rank: c_int| folder.join(format!("{number}-{rank}"));
        let unfinished = folder.join(format!("unfinished-{}", self.rank));
        if std::fs::write(&unfinished, own).is_err() {
            return false;
        }
        if std::fs::rename(unfinished, file(self.number, self.rank)).is_err() {
            return false;
        }
        for (rank, place) in (0..self.world).enumerate() {
            let Some(theirs) = read(&file(self.number, place), self.count) else { return false };
            if rank == 0 {
                values.copy_from_slice(&theirs);
                continue;
            }
            for at in 0..values.len() {
                values[at] = match self.op {
                    2 => values[at].max(theirs[at]),
                    3 => values[at].min(theirs[at]),
                    _ => values[at] + theirs[at],
                };
            }
        }
        if self.op == 4 {
            for at in 0..values.len() {
                values[at] /= self.world as f32;
            }
        }
        if script::variable("FAKE_NCCL_RUN") == "wrong" {
            values[0] += 1.0;
        }
        // All have come to this operation, so all have read the one before.
        if let Some(before) = self.number.checked_sub(1) {
            let _ = std::fs::remove_file(file(before, self.rank));
        }
        true
    }
}

/// The values of another rank, when it has come.
fn read(path: &Path, count: usize) -> Option<Vec<f32>> {
    for _ in 0..LOOKS {
        if let Ok(bytes) = std::fs::read(path) {
            let mut values = vec![0_f32; count];
            let room = 4 * count;
            if bytes.len() != room {
                return None;
            }
            // SAFETY: there is room for so many bytes, and any four of them are a float.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast::<u8>(), room) };
            return Some(values);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}
