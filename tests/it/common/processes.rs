//! Waiting for conditions of real processes: polled against a deadline that only a failing test reaches.

use std::time::{Duration, Instant};

use hvtui::procs::identity::Stat;

/// Far beyond what anything here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(5);
/// The longest pause between two looks.
const LONGEST: Duration = Duration::from_millis(500);

/// Waits until `condition` gives a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    wait_or(&mut condition, || what.to_owned())
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until a text, read anew each time, has these words; gives it. A failure shows what it was.
#[track_caller]
pub(crate) fn until_says(words: &str, mut text: impl FnMut() -> String) -> String {
    let last = std::cell::RefCell::new(String::new());
    let condition = || {
        let now = text();
        if now.contains(words) {
            return Some(now);
        }
        last.replace(now);
        None
    };
    wait_or(condition, || format!("'{words}' in: {}", last.borrow()))
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the deadline of a wait")]
fn wait_or<T>(mut condition: impl FnMut() -> Option<T>, what: impl Fn() -> String) -> T {
    let started = Instant::now();
    loop {
        let looked = Instant::now();
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain for {}", what());
        // The condition itself may be a real command: half of the time is left to what is waited for.
        std::thread::sleep(looked.elapsed().clamp(POLL, LONGEST));
    }
}

/// How a process that the test started has ended, which it must do in time.
#[track_caller]
pub(crate) fn end_of(child: &mut std::process::Child) -> std::process::ExitStatus {
    let what = format!("the end of process {}", child.id());
    wait_for(&what, || child.try_wait().unwrap())
}

/// Microseconds in which some process of this machine waited for a processor, or a processor for the machine that this one is a
/// guest of, since it is up; 0 where the kernel does not tell. What must not take longer than so long must not take longer without
/// them: other work is not their fault.
pub(crate) fn waited_for_processors() -> u64 {
    let told = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = told.lines().next().and_then(|some| some.rsplit_once("total="));
    let waited: u64 = total.map_or(0, |(_, micros)| micros.parse().unwrap());
    // hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal
    let told = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let stolen = told.lines().next().and_then(|all| all.split_whitespace().nth(8)?.parse::<u64>().ok());
    waited + stolen.unwrap_or(0) * 10_000
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
