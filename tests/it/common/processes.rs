//! Waiting for conditions of real processes: polled against a deadline that only a failing test reaches.

use std::time::{Duration, Instant};

use hvtui::procs::identity::Stat;

/// Far beyond what anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(5);

/// Waits until `condition` gives a value.
#[expect(clippy::disallowed_methods, reason = "the deadline of a wait")]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        // The condition itself may take long: it is a real command at times.
        assert!(started.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(POLL);
    }
}

/// Waits until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Whether a process with this pid runs, other than as a zombie.
pub(crate) fn alive(pid: u32) -> bool {
    Stat::read(pid).is_ok_and(|stat| stat.runs())
}

/// Waits for a file that holds a pid, as `echo $! > file` writes it.
pub(crate) fn pid_in(file: &std::path::Path) -> u32 {
    wait_for(&format!("a pid in {}", file.display()), || {
        let text = std::fs::read_to_string(file).ok()?;
        text.ends_with('\n').then(|| text.trim().parse().unwrap())
    })
}

/// Sends a signal by its number to a process that the test knows.
pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
