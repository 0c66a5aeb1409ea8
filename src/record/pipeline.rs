//! Decodes chunks on some threads, and gives what they hold in their order: to decode is half of what folding a recording takes, and
//! no chunk needs another one for it.

use std::num::NonZero;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use super::format::Channel;
use super::reader::{Reader, Timed};

/// So many threads at most: each holds one decoded chunk.
const MOST_THREADS: usize = 4;
/// With fewer chunks there is nothing to gain.
const LEAST: usize = 16;

impl Reader {
    /// Gives the envelopes of each chunk in order, of the channels that `wants` picks of the chunk of a number; `None` for one that
    /// can't be read. `goes_on` is asked with its number before each; once it says no, the threads end with the chunk that they are
    /// at. Whether all were given.
    pub(super) fn each_chunk(
        &self,
        wants: impl Fn(usize, Channel) -> bool + Sync,
        goes_on: &mut dyn FnMut(usize) -> bool,
        take: &mut dyn FnMut(Option<Vec<Timed>>),
    ) -> bool {
        let decode = |chunk| self.load_some(chunk, |channel| wants(chunk, channel)).ok();
        self.of_each(decode, goes_on, take)
    }

    /// Makes something of each chunk by its number, and gives it in the chunks' order. `goes_on`, and what is told, as in
    /// [`Reader::each_chunk`].
    pub(super) fn of_each<T: Send>(
        &self,
        make: impl Fn(usize) -> T + Sync,
        goes_on: &mut dyn FnMut(usize) -> bool,
        take: &mut dyn FnMut(T),
    ) -> bool {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if self.chunk_count() < LEAST { 1 } else { cores.min(MOST_THREADS) };
        in_order(threads, self.chunk_count(), make, goes_on, take)
    }
}

/// Makes something of each number below `count` on so many threads, and takes it here in their order. Each thread makes one more at
/// most before its last one is taken.
fn in_order<T: Send>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> T + Sync,
    goes_on: &mut dyn FnMut(usize) -> bool,
    take: &mut dyn FnMut(T),
) -> bool {
    let mut each = |number: usize, made: &dyn Fn() -> T| {
        let goes_on = goes_on(number);
        if goes_on {
            take(made());
        }
        goes_on
    };
    if threads < 2 {
        return (0..count).all(|number| each(number, &|| make(number)));
    }
    let make = &make;
    thread::scope(|scope| {
        let start = |first: usize| {
            // without room: who has made one waits until it is taken
            let (give, given) = sync_channel(0);
            let work = move || {
                for number in (first..count).step_by(threads) {
                    if give.send(make(number)).is_err() {
                        // nothing is taken any more
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, work).ok().map(|_| given)
        };
        let given: Vec<Option<Receiver<T>>> = (0..threads).map(start).collect();
        (0..count).all(|number| {
            let given = given.get(number % threads).and_then(Option::as_ref);
            // what no thread makes is made here
            each(number, &|| given.and_then(|given| given.recv().ok()).unwrap_or_else(|| make(number)))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_threads_make_is_taken_in_order() {
        for threads in [1, 2, 3, 4] {
            for count in [0, 1, 3, 50] {
                let make = |number: usize| {
                    // the first of each four is the slowest
                    thread::sleep(Duration::from_micros(200 * (3 - number as u64 % 4)));
                    number
                };
                let (mut asked, mut taken) = (Vec::new(), Vec::new());
                let mut goes_on = |number: usize| {
                    asked.push(number);
                    true
                };
                assert!(in_order(threads, count, make, &mut goes_on, &mut |made| taken.push(made)));
                let all: Vec<usize> = (0..count).collect();
                assert_eq!((asked, taken), (all.clone(), all), "{threads} threads");
            }
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_made() {
        for threads in [1, 2, 4] {
            let (count, mut taken) = (AtomicUsize::new(0), 0);
            let make = |_: usize| count.fetch_add(1, Ordering::Relaxed);
            let is_whole = in_order(threads, 1_000_000, make, &mut |number| number < 5, &mut |_| taken += 1);
            assert!(!is_whole && taken == 5, "{threads} threads, {taken}");
            let all = count.into_inner();
            assert!(all <= 5 + threads, "{threads} threads made {all}");
        }
    }

    #[test]
    fn no_more_is_held_than_one_for_each_thread_and_one() {
        struct Held<'a>(&'a AtomicUsize);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let make = |_: usize| {
            most.fetch_max(held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Held(&held)
        };
        let is_whole = in_order(4, 40, make, &mut |_| true, &mut |one| {
            thread::sleep(Duration::from_millis(1));
            drop(one);
        });
        assert!(is_whole);
        assert!(most.into_inner() <= 5);
    }
}
