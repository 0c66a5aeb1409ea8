//! A standard output that is closed when the program is started (`>&-`). Rust's runtime opens `/dev/null` in its place, which would
//! take what is printed as if it were read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SocketType, socket};

/// Whether it was closed before Rust's runtime began.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    IS_MISSING.store(rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err(), Ordering::Relaxed);
}

/// The system calls it before `main`, and so before the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
#[expect(unsafe_code, reason = "a function in this section runs before the runtime begins")]
static LOOK: extern "C" fn() = look;

/// Lets each write to a standard output that is missing fail: it becomes a socket that leads nowhere. (Of a descriptor that can't
/// be written at all, the standard library takes the text without an error.)
pub(crate) fn fail_where_missing() {
    if IS_MISSING.load(Ordering::Relaxed)
        && let Ok(nowhere) = socket(AddressFamily::UNIX, SocketType::STREAM, None)
    {
        // where it fails, all stays as the runtime has left it
        let _ = rustix::stdio::dup2_stdout(&nowhere);
    }
}

/// Why standard output could not be written.
pub(crate) fn reason(error: &io::Error) -> String {
    words(IS_MISSING.load(Ordering::Relaxed), error)
}

fn words(is_missing: bool, error: &io::Error) -> String {
    if is_missing {
        "it was closed when hvtui was started; redirect it to a file or to /dev/null".to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_output_is_told_as_such_and_another_fault_by_the_system() {
        let error = io::Error::from(rustix::io::Errno::NOSPC);
        assert!(words(false, &error).starts_with("No space left on device"));
        assert!(words(true, &error).starts_with("it was closed when hvtui was started"));
    }
}
