//! What ranks have told each other: keys and values in scopes, and when they go. Pure.
//!
//! A scope of the plan is cleared when each of its ranks has said that it is done with it, so that the same ranks
//! can meet there again. What is kept has bounds, whatever is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::ids::Rank;
use crate::domain::rendezvous::{GLOBAL, RendezvousPlan};

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one value.
    pub value: usize,
    /// Bytes of all names and values, with `ENTRY` for each.
    pub total: usize,
    /// Scopes.
    pub scopes: usize,
    /// Keys in a scope.
    pub keys: usize,
}

impl Limits {
    /// Enough for a world of this size, twice over: each rank tells one address of some 140 bytes for every other one.
    pub fn of(plan: &RendezvousPlan) -> Self {
        let world = plan.world() as usize;
        let value = world.saturating_mul(ADDRESS).max(64 << 10);
        Self {
            value,
            total: world.saturating_mul(world).saturating_mul(2 * ADDRESS).saturating_add(16 << 20),
            scopes: plan.scopes().len().saturating_add(1024),
            keys: world.saturating_mul(2).saturating_add(64),
        }
    }
}

/// What the address of one pair of ranks may take.
const ADDRESS: usize = 256;

/// What an entry takes beside its name and value.
const ENTRY: usize = 128;

/// Why a value is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It is longer than any value may be.
    Value,
    /// There are too many bytes, keys or scopes.
    Store,
}

/// How far the ranks have come in the scope of all: each set holds the ranks that have done it at least once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// How many ranks there are.
    pub world: u32,
    /// Have told their host's name: they have started.
    pub named: BTreeSet<Rank>,
    /// Have told their addresses.
    pub joined: BTreeSet<Rank>,
    /// Have said that they are connected with all others.
    pub connected: BTreeSet<Rank>,
}

impl View {
    /// Whether every rank is connected with every other one.
    pub fn all_connected(&self) -> bool {
        self.connected.len() == self.world as usize
    }
}

#[derive(Debug, Default)]
struct Scope {
    /// How many ranks meet here; `None` for a scope that is not in the plan.
    size: Option<u32>,
    values: BTreeMap<String, Arc<[u8]>>,
    /// The ranks that are done with it.
    done: BTreeSet<u32>,
}

/// All scopes of a run.
#[derive(Debug)]
pub struct Store {
    scopes: BTreeMap<String, Scope>,
    view: View,
    limits: Limits,
    /// What counts towards [`Limits::total`].
    bytes: usize,
}

impl Store {
    /// Empty, for the ranks of a plan.
    pub fn new(plan: &RendezvousPlan, limits: Limits) -> Self {
        let scope = |(name, size)| (name, Scope { size: Some(size), ..Scope::default() });
        let scopes = plan.scopes().into_iter().map(scope).collect();
        let view = View { world: plan.world(), ..View::default() };
        Self { scopes, view, limits, bytes: 0 }
    }

    /// A key's value, if it has one.
    pub fn get(&self, scope: &str, key: &str) -> Option<Arc<[u8]>> {
        self.scopes.get(scope)?.values.get(key).cloned()
    }

    /// Gives a key a value; whether [`Store::view`] has changed by it.
    pub fn put(&mut self, scope: &str, key: &str, value: &[u8]) -> Result<bool, Full> {
        if value.len() > self.limits.value {
            return Err(Full::Value);
        }
        let there = self.scopes.get(scope);
        let old = there.and_then(|there| there.values.get(key));
        let fits = (there.is_some() || self.scopes.len() < self.limits.scopes)
            && (old.is_some() || there.map_or(0, |there| there.values.len()) < self.limits.keys);
        let mut bytes = self.bytes - old.map_or(0, |old| cost(key, old)) + cost(key, value);
        if there.is_none() {
            bytes += cost(scope, &[]);
        }
        if !fits || bytes > self.limits.total {
            return Err(Full::Store);
        }
        self.bytes = bytes;
        let entry = self.scopes.entry(scope.to_owned()).or_default();
        entry.values.insert(key.to_owned(), value.into());
        if scope != GLOBAL {
            return Ok(false);
        }
        let rank = |text: &str| number(text).filter(|rank| *rank < self.view.world).map(Rank);
        Ok(match (key.strip_prefix(NAME).and_then(rank), rank(key)) {
            (Some(rank), _) => self.view.named.insert(rank),
            (None, Some(rank)) => self.view.joined.insert(rank),
            (None, None) => false,
        })
    }

    /// Whether all that was told is done with.
    pub fn is_settled(&self) -> bool {
        self.scopes.values().all(|entry| entry.values.is_empty())
    }

    /// A rank, the key, is done with a scope; whether [`Store::view`] has changed by it. In a planned scope nothing goes
    /// until the last rank is done: others may still ask. Else what the rank has told goes, and with the last of it
    /// the scope.
    pub fn delete(&mut self, scope: &str, key: &str) -> bool {
        let Some(entry) = self.scopes.get_mut(scope) else { return false };
        let rank = number(key);
        let Some(size) = entry.size else {
            let told = rank.map(|rank| format!("{NAME}{rank}"));
            for key in [Some(key), told.as_deref()].into_iter().flatten() {
                if let Some(value) = entry.values.remove(key) {
                    self.bytes -= cost(key, &value);
                }
            }
            if entry.values.is_empty() {
                self.scopes.remove(scope);
                self.bytes -= cost(scope, &[]);
            }
            return false;
        };
        let Some(rank) = rank.filter(|rank| *rank < size) else { return false };
        entry.done.insert(rank);
        if entry.done.len() == size as usize {
            entry.done.clear();
            let freed: usize = entry.values.iter().map(|(key, value)| cost(key, value)).sum();
            entry.values.clear();
            self.bytes -= freed;
        }
        scope == GLOBAL && self.view.connected.insert(Rank(rank))
    }

    /// How far the ranks have come.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What is kept now, in bytes as [`Limits::total`] counts them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many scopes there are now, with those of the plan.
    pub fn scopes(&self) -> usize {
        self.scopes.len()
    }
}

/// How the key begins under which a rank tells its host's name.
const NAME: &str = "rank_";

fn cost(name: &str, value: &[u8]) -> usize {
    name.len() + value.len() + ENTRY
}

/// A number as a rank writes it: one way for each, or several keys would count for one rank.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rendezvous::HostRanks;

    fn plan(hosts: &[(&str, u32)]) -> RendezvousPlan {
        let hosts = hosts.iter().map(|(name, ranks)| HostRanks { name: (*name).to_owned(), ranks: *ranks });
        RendezvousPlan { hosts: hosts.collect(), peers: Vec::new() }
    }

    fn store(hosts: &[(&str, u32)]) -> Store {
        let plan = plan(hosts);
        Store::new(&plan, Limits::of(&plan))
    }

    fn ranks(set: &BTreeSet<Rank>) -> Vec<u32> {
        set.iter().map(|rank| rank.0).collect()
    }

    #[test]
    fn a_planned_scope_is_cleared_by_the_last_of_its_ranks_and_no_other_scope_with_it() {
        let mut store = store(&[("a", 2)]);
        for (scope, key) in [("global", "0"), ("global", "1"), ("local_a", "0"), ("cross_0", "0")] {
            store.put(scope, key, b"x").unwrap();
        }
        store.delete("local_a", "0");
        store.delete("global", "1");
        assert!(store.get("global", "1").is_some(), "rank 0 may still ask for it");
        store.delete("global", "1");
        assert!(store.get("global", "1").is_some(), "a rank that says it twice counts once");
        store.delete("global", "0");
        assert_eq!((store.get("global", "0"), store.get("global", "1")), (None, None));
        assert!(store.get("local_a", "0").is_some() && store.get("cross_0", "0").is_some());
        // what rank 0 said in local_a still counts
        store.delete("local_a", "1");
        assert_eq!(store.get("local_a", "0"), None);
        // and the same ranks may meet again
        store.put("global", "0", b"y").unwrap();
        store.delete("global", "0");
        assert_eq!(store.get("global", "0").as_deref(), Some(b"y".as_slice()));
    }

    #[test]
    fn a_scope_that_is_not_planned_goes_with_the_last_of_its_ranks() {
        let mut store = store(&[("a", 2)]);
        let (empty, scopes) = (store.bytes(), store.scopes());
        let set = "global_process_set_hash_1f";
        for key in ["rank_0", "rank_1", "0", "1"] {
            store.put(set, key, b"address").unwrap();
        }
        store.delete(set, "1");
        assert!(store.get(set, "0").is_some() && store.get(set, "rank_0").is_some());
        assert_eq!((store.get(set, "1"), store.get(set, "rank_1")), (None, None));
        store.delete(set, "0");
        assert_eq!((store.bytes(), store.scopes()), (empty, scopes), "nothing is left of it");
        assert!(!store.delete(set, "0"), "and a second word harms nothing");
        assert_eq!(store.view(), &View { world: 2, ..View::default() });
    }

    #[test]
    fn the_view_tells_what_each_rank_has_done() {
        let mut store = store(&[("a", 2), ("b", 1)]);
        assert_eq!(store.put("global", "rank_2", b"b"), Ok(true));
        assert_eq!(store.put("global", "rank_2", b"b"), Ok(false));
        assert_eq!(store.put("local_a", "rank_0", b"a"), Ok(false));
        assert_eq!(store.put("global", "2", b"address"), Ok(true));
        for odd in ["3", "rank_3", "00", "+1", "-1", "x"] {
            assert_eq!(store.put("global", odd, b""), Ok(false), "{odd}");
        }
        assert!(!store.delete("global", "3") && !store.delete("global", "01"));
        assert_eq!((ranks(&store.view().named), ranks(&store.view().joined)), (vec![2], vec![2]));
        assert!(store.delete("global", "2") && store.delete("global", "0"));
        assert!(!store.view().all_connected());
        assert!(store.delete("global", "1") && store.view().all_connected());
    }

    #[test]
    fn what_is_kept_has_bounds_whatever_is_sent() {
        let limits = Limits { value: 8, total: 2000, scopes: 6, keys: 3 };
        let mut store = Store::new(&plan(&[("a", 1)]), limits);
        assert_eq!(store.put("global", "0", &[0; 9]), Err(Full::Value));
        assert_eq!(store.put("global", "0", &[0; 8]), Ok(true));
        assert_eq!(store.put("global", "0", &[1; 8]), Ok(false), "the same key again takes no more");
        assert_eq!(store.put("global", "x", &[]).and(store.put("global", "y", &[])), Ok(false));
        assert_eq!(store.put("global", "z", &[]), Err(Full::Store), "too many keys");
        for scope in ["s", "t", "u"] {
            store.put(scope, "0", &[]).unwrap();
        }
        assert_eq!(store.put("v", "0", &[]), Err(Full::Store), "too many scopes");
        let long = "k".repeat(1500);
        assert_eq!(store.put("s", &long, &[]), Err(Full::Store), "names count too");
        assert!(store.bytes() <= limits.total);
        // an overwritten value gives its room back
        let mut store = Store::new(&plan(&[("a", 1)]), limits);
        for _ in 0..1000 {
            store.put("global", "0", &[0; 8]).unwrap();
        }
        assert_eq!(store.bytes(), 1 + 8 + ENTRY);
        store.delete("global", "0");
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn a_large_world_has_room_for_all_its_addresses() {
        let plan = plan(&[("a", 256), ("b", 256)]);
        let mut store = Store::new(&plan, Limits::of(&plan));
        let address = vec![7; 140 * 511];
        for rank in 0..512 {
            store.put("global", &format!("rank_{rank}"), b"host").unwrap();
            store.put("global", &rank.to_string(), &address).unwrap();
        }
        for rank in 0..256 {
            store.put("local_a", &rank.to_string(), &address).unwrap();
        }
        assert!(store.view().joined.len() == 512);
    }
}
