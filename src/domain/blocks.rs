//! A queue in blocks that copies share: a replay keeps copies of what is known at many moments, of which most is the same.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Entries of a block. Of what is added to, the last block is copied where it is shared: with larger ones more of that, with smaller
/// ones a copy of all takes longer. So many steps take little less than the allocator gives for them.
pub(super) const BLOCK: usize = 7;

/// Entries, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<T>", into = "Vec<T>", bound(serialize = "T: Serialize + Clone"))]
pub struct Blocks<T: Clone> {
    /// All are full but the last, which is up to where the next one comes.
    all: VecDeque<Arc<[Option<T>; BLOCK]>>,
    /// How many of the first block are gone.
    gone: usize,
    count: usize,
}

impl<T: Clone> Blocks<T> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn get(&self, at: usize) -> Option<&T> {
        let at = self.gone + at;
        self.all.get(at / BLOCK)?.get(at % BLOCK)?.as_ref()
    }

    /// The oldest.
    pub fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The newest.
    pub fn back(&self) -> Option<&T> {
        self.get(self.count.checked_sub(1)?)
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        (0..self.count).filter_map(|at| self.get(at))
    }

    /// So many of the newest ones, newest first: without looking each up by its place.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = &T> {
        // behind the last one there is none, and what is gone lies before the first
        self.all.iter().rev().flat_map(|block| block.iter().rev().flatten()).take(count.min(self.count))
    }

    /// Those from the first one on that is not `before`: all that are stand in front of it.
    pub fn after<'a>(
        &'a self,
        before: &dyn Fn(&T) -> bool,
    ) -> impl Iterator<Item = &'a T> + Clone + use<'a, T> {
        let (mut first, mut end) = (0, self.count);
        while first < end {
            let middle = usize::midpoint(first, end);
            if self.get(middle).is_some_and(before) {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        (first..self.count).filter_map(|at| self.get(at))
    }

    /// The last one that `is_it`, to be changed.
    pub(super) fn last_mut(&mut self, is_it: impl Fn(&T) -> bool) -> Option<&mut T> {
        let at = (0..self.count).rev().find(|at| self.get(*at).is_some_and(&is_it))?;
        let at = self.gone + at;
        Arc::make_mut(self.all.get_mut(at / BLOCK)?).get_mut(at % BLOCK)?.as_mut()
    }

    /// Changes each of them.
    pub(super) fn change(&mut self, change: impl FnMut(&mut T)) {
        let gone = self.gone;
        let each = self.all.iter_mut().flat_map(Arc::make_mut);
        each.skip(gone).flatten().for_each(change);
    }

    /// Adds one at the end.
    pub(super) fn push(&mut self, one: T) {
        let at = (self.gone + self.count) % BLOCK;
        if at == 0 {
            self.all.push_back(Arc::new(std::array::from_fn(|_| None)));
        }
        if let Some(free) = self.all.back_mut().and_then(|last| Arc::make_mut(last).get_mut(at)) {
            *free = Some(one);
            self.count += 1;
        }
    }

    /// Leaves out the oldest until there are no more than so many.
    pub(super) fn keep(&mut self, most: usize) {
        while self.count > most {
            self.count -= 1;
            self.gone += 1;
            if self.gone == BLOCK {
                self.all.pop_front();
                self.gone = 0;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<T: Clone> Default for Blocks<T> {
    fn default() -> Self {
        Self { all: VecDeque::new(), gone: 0, count: 0 }
    }
}

impl<T: Clone> FromIterator<T> for Blocks<T> {
    fn from_iter<I: IntoIterator<Item = T>>(from: I) -> Self {
        let mut blocks = Self::default();
        for one in from {
            blocks.push(one);
        }
        blocks
    }
}

impl<T: Clone> From<Vec<T>> for Blocks<T> {
    fn from(from: Vec<T>) -> Self {
        from.into_iter().collect()
    }
}

impl<T: Clone> From<Blocks<T>> for Vec<T> {
    fn from(blocks: Blocks<T>) -> Self {
        blocks.iter().cloned().collect()
    }
}

impl<T: Clone + PartialEq> PartialEq for Blocks<T> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(blocks: &Blocks<u64>) -> Vec<u64> {
        blocks.iter().copied().collect()
    }

    #[test]
    fn it_is_a_queue_of_whatever_length() {
        for most in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 100] {
            let mut blocks = Blocks::default();
            for number in 1..=300_u64 {
                blocks.push(number);
                blocks.keep(most);
                let first = number.saturating_sub(most as u64 - 1).max(1);
                assert_eq!(numbers(&blocks), (first..=number).collect::<Vec<_>>());
                assert_eq!(blocks.iter().rev().count(), blocks.len());
                for count in [0, 1, BLOCK, most, usize::MAX] {
                    let newest: Vec<u64> = blocks.newest(count).copied().collect();
                    assert_eq!(newest, blocks.iter().rev().take(count).copied().collect::<Vec<_>>());
                }
                assert_eq!((blocks.front(), blocks.back()), (Some(&first), Some(&number)));
                for from in [0, first, number - 1, number] {
                    let after: Vec<u64> = blocks.after(&|one| *one <= from).copied().collect();
                    assert_eq!(after, (first.max(from + 1)..=number).collect::<Vec<_>>());
                }
            }
            let written = rmp_serde::to_vec_named(&blocks).unwrap();
            assert_eq!(rmp_serde::from_slice::<Blocks<u64>>(&written).unwrap(), blocks);
        }
        let none = Blocks::<u64>::default();
        assert!(none.is_empty() && none.front().is_none() && none.back().is_none());
    }

    #[test]
    fn a_copy_shares_its_blocks_and_stays_as_it_was() {
        let mut blocks: Blocks<u64> = (1..=40).collect();
        blocks.keep(38);
        let copy = blocks.clone();
        assert!(Arc::ptr_eq(&blocks.all[0], &copy.all[0]));
        *blocks.last_mut(|one| *one <= 38).unwrap() = 380;
        blocks.push(41);
        blocks.keep(3);
        assert_eq!(numbers(&blocks), [39, 40, 41]);
        assert!(blocks.last_mut(|one| *one < 39).is_none(), "what has gone");
        blocks.change(|one| *one += 1000);
        assert_eq!(numbers(&blocks), [1039, 1040, 1041]);
        assert_eq!(numbers(&copy), (3..=40).collect::<Vec<_>>());
    }

    #[test]
    fn to_add_to_a_copy_copies_no_block_but_the_last() {
        let last = 2 * BLOCK as u64 - 3;
        let mut blocks: Blocks<u64> = (1..=last).collect();
        let copy = blocks.clone();
        (last + 1..=last + 4).for_each(|number| blocks.push(number));
        let is_shared = |at: usize| Arc::ptr_eq(&blocks.all[at], &copy.all[at]);
        assert_eq!((is_shared(0), is_shared(1)), (true, false));
        assert_eq!((blocks.all.len(), copy.all.len()), (3, 2));
        assert_eq!(numbers(&blocks), (1..=last + 4).collect::<Vec<_>>());
        assert_eq!(numbers(&copy), (1..=last).collect::<Vec<_>>());
    }

    #[test]
    fn what_was_emptied_is_added_to_in_the_middle_of_a_block_and_at_its_end() {
        for first in [1, BLOCK as u64 - 1, BLOCK as u64, BLOCK as u64 + 1] {
            let mut blocks: Blocks<u64> = (1..=first).collect();
            blocks.keep(0);
            assert!(blocks.is_empty() && blocks.back().is_none() && blocks.newest(3).next().is_none());
            (5..45).for_each(|number| blocks.push(number));
            assert_eq!(numbers(&blocks), (5..45).collect::<Vec<_>>(), "{first}");
        }
    }

    #[test]
    fn there_is_no_more_to_an_entry_than_to_a_step() {
        use crate::domain::recent_steps::Arrived;
        assert_eq!(size_of::<Option<Arrived>>(), size_of::<Arrived>());
    }

    #[test]
    fn a_block_of_steps_leaves_little_free_of_what_is_given_for_it() {
        use crate::domain::recent_steps::Arrived;
        // an `Arc` counts in two words; mimalloc gives 896 or 1024 bytes
        let taken = 2 * size_of::<usize>() + size_of::<[Option<Arrived>; BLOCK]>();
        assert!((960..=1024).contains(&taken), "{taken}");
    }
}
