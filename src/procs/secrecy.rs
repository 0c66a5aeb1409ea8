//! Keeps what a process of hvtui holds, passwords and values of secret variables, out of core files and from its neighbours.

use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// A soft limit with which the kernel writes no core file and hands none to a program either (`core(5)`): 0 stops the file
/// alone.
const NO_CORE: Option<u64> = Some(1);

/// What this process was given as its limit of core files, once it has given that up.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// From now on no core file of this process is written, and others of its user, root apart, can read neither its memory nor
/// its environment. What it executes is as it was.
pub fn keep_to_itself() {
    // refused by no kernel that knows it: since Linux 2.4
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// No core file of this process is written: for one whose environment others of its user may read, as they have to. What it
/// starts is to have [`given_core_limit`].
pub(crate) fn leave_no_core() {
    let own = getrlimit(Resource::Core);
    if GIVEN.set(own).is_ok() {
        // a limit may always be lowered
        let _ = setrlimit(Resource::Core, Rlimit { current: NO_CORE, ..own });
    }
}

/// The limit of core files that this process was given, bytes, where it has given it up itself.
pub(crate) fn given_core_limit() -> Option<Rlimit> {
    GIVEN.get().copied()
}
