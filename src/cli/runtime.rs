//! The async runtime of the commands.

use super::errors::Failure;
use crate::sched::{self, For};

/// mimalloc's `mi_option_purge_delay`.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// After so many milliseconds memory that is not used goes back to the system; a second, which is usual there, lets a flood take a
/// third more.
const PURGED_AFTER_MS: libc::c_long = 10;

#[expect(unsafe_code, reason = "a setting of the allocator")]
fn give_back_soon() {
    // SAFETY: a number is set, of an option that there is; `MIMALLOC_PURGE_DELAY` of the environment counts before it.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGED_AFTER_MS) };
}

/// Runs a command's future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    give_back_soon();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // links and clocks: they wake often and are done soon, beside whatever computes here
        .on_thread_start(|| sched::short_turns(For::ThisThread))
        .enable_all()
        .build()
        .map_err(|error| Failure::bug(format!("start the runtime: {error}")))?;
    let result = runtime.block_on(future);
    // a name look-up that hangs must not hold up the end
    runtime.shutdown_background();
    result
}
