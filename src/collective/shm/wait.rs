//! Waiting for another process: spin a little, then give the core away, then sleep.
//!
//! A process that spins while its peer needs the core makes the peer late by a whole time slice, so the spin is short,
//! and there is none when the host has more ranks than cores. A sleeper wakes by a futex, and every few milliseconds to
//! look whether the group still lives.

use std::time::Duration;

use super::super::deadline::Clock;
use super::machine::{self, AtomicU32, Ordering};

/// How often a sleeper looks around.
pub(in crate::collective) const LOOK: Duration = Duration::from_millis(20);

/// The same, µs.
const LOOK_US: u64 = LOOK.as_micros() as u64;

/// How to wait.
#[derive(Debug, Clone, Copy)]
pub(in crate::collective) struct Patience {
    /// Looks with a pause of some tens of nanoseconds between.
    pub(in crate::collective) spins: u32,
    /// Looks with the core given away between; fewer where they take longer than [`LOOK`] together, for a core that others
    /// use comes back late each time.
    pub(in crate::collective) yields: u32,
    /// The host's clock.
    pub(in crate::collective) clock: Clock,
}

impl Patience {
    /// For `ranks` on a host where this process may use `cores`.
    pub(in crate::collective) fn fitting(ranks: usize, cores: usize, clock: Clock) -> Self {
        // About two microseconds: a peer with a core of its own answers within that or is at work.
        Self { spins: if ranks <= cores { 60 } else { 0 }, yields: 200, clock }
    }
}

/// A counter that one process raises and others wait for.
#[repr(C)]
pub(in crate::collective) struct Flag {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Flag {
    /// Its value. What the writer did before raising it to this is visible to the caller.
    #[inline]
    pub(super) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Whether it has come to `wanted`; counters wrap.
    #[inline]
    pub(super) fn reached(&self, wanted: u32) -> bool {
        (self.value().wrapping_sub(wanted) as i32) >= 0
    }

    /// Raises it, and wakes who sleeps. Either this sees the sleeper, or the sleeper the new value: by `fence`, a full
    /// barrier here, or by the barrier that a sleeper puts into all processes before it sleeps. The first costs the
    /// raiser a journey of the cache line each time, in which it could already look at the others' flags.
    #[inline]
    pub(super) fn raise(&self, value: u32, fence: bool) {
        if fence {
            self.value.swap(value, Ordering::SeqCst);
        } else {
            self.value.store(value, Ordering::Release);
            machine::compiler_fence(Ordering::SeqCst);
        }
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    /// Wakes who sleeps, to look around.
    #[cold]
    pub(super) fn wake(&self) {
        machine::wake(&self.value);
    }

    /// Waits until it has come to `wanted`. `look` is called about every 20 ms of sleep; its error ends the wait.
    #[inline]
    pub(super) fn wait<E>(
        &self,
        wanted: u32,
        patience: Patience,
        look: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if self.reached(wanted) { Ok(()) } else { self.wait_long(wanted, patience, look) }
    }

    fn wait_long<E>(
        &self,
        wanted: u32,
        patience: Patience,
        look: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..patience.spins {
            machine::spin_loop();
            if self.reached(wanted) {
                return Ok(());
            }
        }
        let begun = (patience.clock)();
        for look in 1..=patience.yields {
            machine::sched_yield();
            if self.reached(wanted) {
                return Ok(());
            }
            if look.is_multiple_of(8) && (patience.clock)().0.saturating_sub(begun.0) >= LOOK_US {
                break;
            }
        }
        loop {
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            machine::barrier_everywhere();
            let seen = self.value.load(Ordering::SeqCst);
            if (seen.wrapping_sub(wanted) as i32) < 0 {
                machine::sleep(&self.value, seen, LOOK);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
            if self.reached(wanted) {
                return Ok(());
            }
            look()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::clock::host_now;
    use crate::domain::time::HostTime;

    const PATIENCES: [Patience; 3] = [
        Patience { spins: 60, yields: 200, clock: host_now },
        Patience { spins: 0, yields: 200, clock: host_now },
        Patience { spins: 0, yields: 0, clock: host_now },
    ];

    fn flag() -> Flag {
        Flag { value: AtomicU32::new(u32::MAX - 2), sleepers: AtomicU32::new(0) }
    }

    #[test]
    fn two_threads_take_turns_a_thousand_times_in_every_way_of_waiting_across_the_wrap() {
        let fences: &[bool] = if machine::allow_barriers() { &[true, false] } else { &[true] };
        for (patience, &fence) in PATIENCES.into_iter().flat_map(|one| fences.iter().map(move |f| (one, f))) {
            let (a, b) = (flag(), flag());
            let turns = |mine: &Flag, theirs: &Flag| {
                for turn in 0..1000_u32 {
                    mine.raise((u32::MAX - 1).wrapping_add(turn), fence);
                    theirs
                        .wait((u32::MAX - 1).wrapping_add(turn), patience, &mut || Ok::<(), ()>(()))
                        .unwrap();
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| turns(&a, &b));
                scope.spawn(|| turns(&b, &a));
            });
        }
    }

    #[test]
    fn a_sleeper_looks_around_and_may_give_up() {
        let mut looks = 0;
        let outcome = flag().wait(u32::MAX, PATIENCES[2], &mut || {
            looks += 1;
            if looks == 3 { Err("enough") } else { Ok(()) }
        });
        assert_eq!(outcome, Err("enough"));
    }

    #[test]
    fn who_gets_its_core_back_late_looks_around_all_the_same() {
        thread_local! {
            static READS: Cell<u64> = const { Cell::new(0) };
        }
        // Each reading is a time slice of others later.
        fn busy() -> HostTime {
            READS.set(READS.get() + 1);
            HostTime(READS.get() * 8 * 4_000)
        }
        let patience = Patience { spins: 0, yields: u32::MAX, clock: busy };
        assert_eq!(flag().wait(u32::MAX, patience, &mut || Err("looked")), Err("looked"));
        assert_eq!(READS.get(), 2);
    }

    #[test]
    fn there_is_no_spin_when_ranks_share_cores() {
        assert_eq!(Patience::fitting(4, 2, host_now).spins, 0);
        assert!(Patience::fitting(2, 2, host_now).spins > 0);
    }
}
