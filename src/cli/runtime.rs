//! The async runtime of the commands.

use super::errors::Failure;

/// Runs a command's future to its end on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::bug(format!("start the runtime: {error}")))?;
    let result = runtime.block_on(future);
    // a name look-up that hangs must not hold up the end
    runtime.shutdown_background();
    result
}
