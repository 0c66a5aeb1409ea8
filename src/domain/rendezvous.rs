//! Where the ranks of a Horovod run meet: what is planned of it, and how far they have come, as a note tells it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::note::{Note, what};
use super::time::HostTime;
use super::units::ranges_joined;

/// The rendezvous that a supervisor serves to the ranks of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousPlan {
    /// The hosts in rank order.
    pub hosts: Vec<HostRanks>,
    /// The addresses from which ranks may ask. All others are turned away.
    pub peers: Vec<IpAddr>,
}

/// How many ranks a host has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRanks {
    /// Its `HOROVOD_HOSTNAME`: unique in the run, and the same for all its ranks.
    pub name: String,
    /// Its `HOROVOD_LOCAL_SIZE`.
    pub ranks: u32,
}

impl RendezvousPlan {
    /// How many ranks there are in all.
    pub fn world(&self) -> u32 {
        self.hosts.iter().fold(0, |sum, host| sum.saturating_add(host.ranks))
    }

    /// The scopes in which ranks meet and how many ranks meet in each: all of them, those of each host, and those
    /// with the same number on their hosts.
    pub fn scopes(&self) -> BTreeMap<String, u32> {
        let mut scopes = BTreeMap::from([(GLOBAL.to_owned(), self.world())]);
        for host in &self.hosts {
            scopes.insert(format!("local_{}", host.name), host.ranks);
        }
        let most = self.hosts.iter().map(|host| host.ranks).max().unwrap_or(0).min(MOST_RANKS);
        for local in 0..most {
            let size = self.hosts.iter().filter(|host| host.ranks > local).count() as u32;
            scopes.insert(format!("cross_{local}"), size);
        }
        scopes
    }
}

/// The scope in which all ranks meet, the first one.
pub const GLOBAL: &str = "global";

/// The most ranks of a run that a note can tell of.
const MOST_RANKS: u32 = 1 << 16;

/// How far the ranks of a run have come at their rendezvous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// These have put the addresses at which the others reach them.
    Joined {
        /// The ranks that have.
        ranks: BTreeSet<Rank>,
        /// How many ranks there are.
        world: u32,
    },
    /// Every rank is connected with every other one.
    Connected {
        /// How many ranks there are.
        world: u32,
    },
}

impl Progress {
    /// The note that tells it; [`Progress::parse`] reads it.
    pub fn note(&self, t: HostTime) -> Note {
        match self {
            Self::Joined { ranks, world } => Note {
                count: ranks.len() as u64,
                ..Note::new(
                    what::JOINED,
                    format!(
                        "ranks {} of {world}{JOINED}",
                        ranges_joined(ranks.iter().map(|rank| rank.0), ",")
                    ),
                    t,
                )
            },
            Self::Connected { world } => Note {
                count: u64::from(*world),
                ..Note::new(what::CONNECTED, format!("all of {world}{CONNECTED}"), t)
            },
        }
    }

    /// What a note tells of the rendezvous; `None` for any other note, and for one that makes no sense.
    pub fn parse(note: &Note) -> Option<Self> {
        let number = |text: &str| text.parse().ok().filter(|world| (1..=MOST_RANKS).contains(world));
        match note.what.as_str() {
            what::JOINED => {
                let (ranks, world) =
                    note.text.strip_prefix("ranks ")?.strip_suffix(JOINED)?.split_once(" of ")?;
                let world = number(world)?;
                Some(Self::Joined { ranks: parse_ranges(ranks, world)?, world })
            }
            what::CONNECTED => {
                let world = note.text.strip_prefix("all of ")?.strip_suffix(CONNECTED)?;
                Some(Self::Connected { world: number(world)? })
            }
            _ => None,
        }
    }

    /// The ranks that the others wait for.
    pub fn missing(&self) -> Vec<Rank> {
        match self {
            Self::Joined { ranks, world } => {
                (0..*world).map(Rank).filter(|rank| !ranks.contains(rank)).collect()
            }
            Self::Connected { .. } => Vec::new(),
        }
    }
}

const JOINED: &str = " have joined the rendezvous";
const CONNECTED: &str = " ranks are connected";

fn parse_ranges(text: &str, world: u32) -> Option<BTreeSet<Rank>> {
    let mut ranks = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= world {
            return None;
        }
        ranks.extend((first..=last).map(Rank));
    }
    Some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(hosts: &[(&str, u32)]) -> RendezvousPlan {
        let hosts = hosts.iter().map(|(name, ranks)| HostRanks { name: (*name).to_owned(), ranks: *ranks });
        RendezvousPlan { hosts: hosts.collect(), peers: Vec::new() }
    }

    #[test]
    fn uneven_hosts_have_scopes_of_their_own_sizes() {
        let plan = plan(&[("a", 2), ("b", 1)]);
        assert_eq!(plan.world(), 3);
        let scopes = plan.scopes();
        let scopes: Vec<(&str, u32)> = scopes.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        assert_eq!(scopes, [("cross_0", 2), ("cross_1", 1), ("global", 3), ("local_a", 2), ("local_b", 1)]);
    }

    #[test]
    fn a_note_tells_who_has_joined_and_is_read_back() {
        let joined = |ranks: &[u32], world| Progress::Joined {
            ranks: ranks.iter().copied().map(Rank).collect(),
            world,
        };
        let note = joined(&[0, 1, 2, 5], 8).note(HostTime(7));
        assert_eq!((note.text.as_str(), note.count), ("ranks 0-2,5 of 8 have joined the rendezvous", 4));
        assert_eq!(Progress::parse(&note), Some(joined(&[0, 1, 2, 5], 8)));
        assert_eq!(joined(&[0, 1, 2, 5], 8).missing(), [3, 4, 6, 7].map(Rank));
        let all = Progress::Connected { world: 8 };
        let note = all.note(HostTime(8));
        assert_eq!(note.text, "all of 8 ranks are connected");
        assert!(all.missing().is_empty() && !note.is_trouble());
        assert_eq!(Progress::parse(&note), Some(all));
    }

    #[test]
    fn a_note_that_makes_no_sense_is_no_progress() {
        let parse = |what: &str, text: &str| Progress::parse(&Note::new(what, text, HostTime(1)));
        for text in
            ["0-4294967295 of 4294967295", "3-1 of 8", "8 of 8", "0-9 of 8", " of 8", "0 of 0", "x of 2"]
        {
            assert_eq!(
                parse(what::JOINED, &format!("ranks {text} have joined the rendezvous")),
                None,
                "{text}"
            );
        }
        assert_eq!(parse(what::JOINED, "ranks 0 of 8"), None);
        assert_eq!(parse(what::CONNECTED, "all of 99999999 ranks are connected"), None);
        assert_eq!(parse(what::GONE, "all of 8 ranks are connected"), None);
    }
}
