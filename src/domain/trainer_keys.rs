//! Which of those that train is meant. A process within a rank belongs to that rank, and is where the rank is; its number is the
//! one that it has in its training. Where several ranks hold a training of their own, one number stands for several processes:
//! what is kept by number has a key for each of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::Rank;

/// One that trains: a rank, or a process within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrainerId {
    /// The rank that it is, or is in.
    pub rank: Rank,
    /// Its number in its training.
    pub number: u32,
}

impl TrainerId {
    /// The rank itself, or the process within it that has this number.
    pub fn new(rank: Rank, worker: Option<u32>) -> Self {
        Self { rank, number: worker.unwrap_or(rank.0) }
    }

    /// The number of a process within its rank; `None` for the rank itself.
    pub fn worker(self) -> Option<u32> {
        Some(self.number).filter(|number| *number != self.rank.0)
    }
}

impl From<Rank> for TrainerId {
    fn from(rank: Rank) -> Self {
        Self::new(rank, None)
    }
}

/// As a part of names in exports: `rank_0`, `rank_0/worker_1`.
impl fmt::Display for TrainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank_{}", self.rank)?;
        self.worker().map_or(Ok(()), |worker| write!(f, "/worker_{worker}"))
    }
}

/// The keys of a run: the number of each that trains, unless another one has it already.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TrainerKeys {
    keys: BTreeMap<Rank, BTreeMap<u32, Rank>>,
    ids: BTreeMap<Rank, TrainerId>,
    is_apart: bool,
}

impl TrainerKeys {
    /// The key of one that trains; it gets one where it has none.
    pub fn key(&mut self, id: TrainerId) -> Rank {
        let mut key = Rank(id.number);
        let holder = self.id(key);
        if holder == Some(id) {
            return key;
        }
        if let Some(key) = self.get(id) {
            return key;
        }
        if holder.is_some() {
            self.is_apart = true;
            // without a gap: what is kept by key is kept in lists
            let free = (0..=self.ids.len() as u32).map(Rank).find(|key| !self.ids.contains_key(key));
            key = free.unwrap_or(key);
        }
        self.ids.insert(key, id);
        self.keys.entry(id.rank).or_default().insert(id.number, key);
        key
    }

    /// Its key, if it has one.
    pub fn get(&self, id: TrainerId) -> Option<Rank> {
        self.keys.get(&id.rank)?.get(&id.number).copied()
    }

    /// The key of one that may not train itself: it takes none from another.
    pub fn known(&self, id: TrainerId) -> Rank {
        let number = Rank(id.number);
        // until a number stands for several, each is its own key
        if self.is_apart { self.get(id).unwrap_or(number) } else { number }
    }

    /// Whose key it is.
    pub fn id(&self, key: Rank) -> Option<TrainerId> {
        self.ids.get(&key).copied()
    }

    /// Whether a number stands for several: then each rank holds a training of its own, and none waits for one of another rank.
    pub fn is_apart(&self) -> bool {
        self.is_apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_key_until_another_one_has_it() {
        let mut keys = TrainerKeys::default();
        let mut key = |rank, worker| keys.key(TrainerId::new(Rank(rank), worker)).0;
        // one training over two ranks
        assert_eq!([key(0, None), key(0, Some(1)), key(1, Some(2)), key(1, Some(3))], [0, 1, 2, 3]);
        assert_eq!((keys.is_apart(), keys.get(Rank(1).into())), (false, None), "rank 1 only starts others");
        assert_eq!(keys.id(Rank(1)), Some(TrainerId { rank: Rank(0), number: 1 }));
        // a training in each of two ranks
        let mut keys = TrainerKeys::default();
        let mut key = |rank, worker| keys.key(TrainerId::new(Rank(rank), worker)).0;
        assert_eq!([key(0, None), key(0, Some(1)), key(1, None), key(1, Some(0))], [0, 1, 2, 3]);
        assert_eq!(key(1, None), 2);
        assert!(keys.is_apart());
        assert_eq!(keys.id(Rank(3)), Some(TrainerId { rank: Rank(1), number: 0 }));
    }

    #[test]
    fn one_that_does_not_train_takes_no_key() {
        let id = |rank, worker| TrainerId::new(Rank(rank), worker);
        let mut keys = TrainerKeys::default();
        assert_eq!((keys.known(id(7, None)), keys.get(id(7, None))), (Rank(7), None));
        let told = [id(0, None), id(0, Some(1)), id(1, Some(2))].map(|id| (keys.key(id), keys.known(id)));
        assert!(told.iter().all(|(key, known)| key == known), "{told:?}");
        assert_eq!(keys.known(id(1, None)), Rank(1), "which only starts others");
        // rank 1 trains itself, and has the number of a process in rank 0
        assert_eq!((keys.key(id(1, None)), keys.known(id(1, None))), (Rank(3), Rank(3)));
        assert_eq!((keys.known(id(0, Some(1))), keys.known(id(1, Some(2)))), (Rank(1), Rank(2)));
        assert_eq!(keys.known(id(2, None)), Rank(2), "it has told nothing");
    }
}
