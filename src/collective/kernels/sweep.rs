//! The loop itself: one pass over all sources and all targets.

use super::Finish;
use super::format::Format;
use super::level::Level;
use super::wide::{LANES, Lanes, Wide, each, pairs};

/// How two values become one.
pub(super) trait Operation {
    /// Made ready, as it comes from memory.
    fn enter<W: Wide>(value: W) -> W;
    /// Two made one.
    fn join<W: Wide>(left: W, right: W) -> W;
    /// Made what it stands for again.
    fn leave<W: Wide>(value: W) -> W;
}

/// Their sum.
pub(super) struct Sum;
/// The least.
pub(super) struct Minimum;
/// The greatest: the minimum in the reversed order.
pub(super) struct Maximum;

impl Operation for Sum {
    #[inline(always)]
    fn enter<W: Wide>(value: W) -> W {
        value
    }

    #[inline(always)]
    fn join<W: Wide>(left: W, right: W) -> W {
        left.plus(right)
    }

    #[inline(always)]
    fn leave<W: Wide>(value: W) -> W {
        value
    }
}

impl Operation for Minimum {
    #[inline(always)]
    fn enter<W: Wide>(value: W) -> W {
        value
    }

    #[inline(always)]
    fn join<W: Wide>(left: W, right: W) -> W {
        left.minimum(right)
    }

    #[inline(always)]
    fn leave<W: Wide>(value: W) -> W {
        value
    }
}

impl Operation for Maximum {
    #[inline(always)]
    fn enter<W: Wide>(value: W) -> W {
        value.reverse_order()
    }

    #[inline(always)]
    fn join<W: Wide>(left: W, right: W) -> W {
        left.minimum(right)
    }

    #[inline(always)]
    fn leave<W: Wide>(value: W) -> W {
        value.reverse_order()
    }
}

/// What is the same in every round.
struct Pass<'a, F: Format> {
    divisor: Option<<F::Wide as Wide>::Divisor>,
    first: *const u8,
    others: &'a [*const u8],
    targets: &'a [*mut u8],
}

/// One pass: rounds of `GROUPS` x 16 values, each kept in registers from the first source to the last target, then of 16,
/// then single ones.
///
/// All of a round is read before any of it is written, so that a target may be a source.
///
/// # Safety
/// As of [`super::reduce`]; the function this is inlined into is compiled for `L`.
#[inline(always)]
#[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
pub(super) unsafe fn sweep<F: Format, O: Operation, L: Level, const GROUPS: usize>(
    finish: Finish,
    sources: &[*const u8],
    targets: &[*mut u8],
    count: usize,
) {
    let Some((&first, others)) = sources.split_first() else { return };
    let divisor = match finish {
        Finish::Keep => None,
        Finish::Divide(by) => Some(F::Wide::divisor(by)),
    };
    let pass: Pass<'_, F> = Pass { divisor, first, others, targets };
    let mut at = 0;
    // SAFETY: rounds end at `count` at the latest.
    unsafe {
        while count - at >= GROUPS * LANES {
            pass.round::<O, L, GROUPS>(at * F::SIZE);
            at += GROUPS * LANES;
        }
        while GROUPS > 1 && count - at >= LANES {
            pass.round::<O, L, 1>(at * F::SIZE);
            at += LANES;
        }
        while at < count {
            pass.single::<O>(at * F::SIZE);
            at += 1;
        }
    }
}

impl<F: Format> Pass<'_, F> {
    /// # Safety
    /// `GROUPS` x 16 values lie at byte `at` of every source and target.
    #[inline(always)]
    #[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
    unsafe fn round<O: Operation, L: Level, const GROUPS: usize>(&self, at: usize) {
        let bytes = LANES * F::SIZE;
        // SAFETY: within the values that the caller promised.
        unsafe {
            let first = self.first.add(at);
            let mut sums = [enter::<F::Wide, O>(F::load::<L>(first)); GROUPS];
            for (group, sum) in sums.iter_mut().enumerate() {
                *sum = enter::<F::Wide, O>(F::load::<L>(first.add(group * bytes)));
            }
            for other in self.others {
                let other = other.add(at);
                for (group, sum) in sums.iter_mut().enumerate() {
                    let values = enter::<F::Wide, O>(F::load::<L>(other.add(group * bytes)));
                    *sum = pairs(*sum, values, O::join);
                }
            }
            for sum in &mut sums {
                *sum = each(*sum, sum[0], O::leave);
            }
            if let Some(divisor) = self.divisor {
                for sum in &mut sums {
                    *sum = F::Wide::divide(*sum, divisor);
                }
            }
            for target in self.targets {
                let target = target.add(at);
                for (group, sum) in sums.iter().enumerate() {
                    F::store::<L>(target.add(group * bytes), *sum);
                }
            }
        }
    }

    /// # Safety
    /// One value lies at byte `at` of every source and target.
    #[inline(always)]
    #[expect(unsafe_code, reason = "ranges that other processes map too are pointers")]
    unsafe fn single<O: Operation>(&self, at: usize) {
        // SAFETY: the value that the caller promised.
        unsafe {
            let mut sum = O::enter(F::load_one(self.first.add(at)));
            for other in self.others {
                sum = O::join(sum, O::enter(F::load_one(other.add(at))));
            }
            sum = O::leave(sum);
            if let Some(divisor) = self.divisor {
                sum = F::Wide::divide([sum; LANES], divisor)[0];
            }
            for target in self.targets {
                F::store_one(target.add(at), sum);
            }
        }
    }
}

#[inline(always)]
fn enter<W: Wide, O: Operation>(lanes: Lanes<W>) -> Lanes<W> {
    each(lanes, lanes[0], O::enter)
}
