//! The async runtime of the commands.

use super::errors::Failure;
use crate::sched::{self, For};

/// Runs a command's future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
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
