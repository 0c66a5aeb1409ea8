//! The async runtime of the commands.

use super::errors::Failure;
use crate::sched::{self, For};

/// Places that the allocator takes memory from. One for each thread, as it likes to have, keeps what a flood of lines took
/// there several times over: lines are made by one thread and dropped by another.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a setting of the C library's allocator")]
fn few_arenas() {
    // SAFETY: a number is set, before the threads of the runtime begin; where it is refused all stays as it was.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS) };
}

#[cfg(not(target_env = "gnu"))]
fn few_arenas() {}

/// Runs a command's future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    few_arenas();
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
