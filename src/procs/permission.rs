//! Whether this user may signal a process, and whose it is where not.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use super::status::{real_uid, user_name};

/// Why this user may not signal it, if it may not.
pub(crate) fn refusal(pid: u32) -> Option<String> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    (test_kill_process(raw) == Err(Errno::PERM)).then(|| not_permitted(pid))
}

/// What is said of a process that this user may not signal.
pub(crate) fn not_permitted(pid: u32) -> String {
    let user = |pid| real_uid(pid).ok().flatten().map(user_name);
    match (user(pid), user(std::process::id())) {
        (Some(owner), Some(us)) if owner == us => {
            format!("the kernel does not let {us} signal it: it runs with other rights, ask an administrator")
        }
        (Some(owner), Some(us)) => format!(
            "belongs to {owner}; hvtui is logged in as {us} there: ask {owner} or an administrator, or log in as {owner}"
        ),
        _ => "this user may not signal it: ask an administrator".to_owned(),
    }
}
