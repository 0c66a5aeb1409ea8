//! The hosts of the hosts file, in its order, and found by name.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use crate::domain::ids::HostId;
use crate::domain::occupancy::FreeMemory;

/// A host of the hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    /// Its name.
    pub id: HostId,
    /// CPU slots the hosts file gives it; `None` = its GPUs, or one slot a CPU where it has none.
    pub slots: Option<u32>,
    /// How much memory may be in use on a GPU of it that is free.
    pub free_memory: FreeMemory,
    /// Its labels.
    pub labels: Vec<String>,
    /// Whether it is this machine, reached without ssh.
    pub is_local: bool,
}

/// All of them. Their names stay as they are: a thousand hosts are looked up by name many times a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    entries: Vec<HostEntry>,
    places: HashMap<HostId, usize>,
}

impl Hosts {
    /// The entry of a host.
    pub fn of(&self, host: &HostId) -> Option<&HostEntry> {
        self.places.get(host).and_then(|place| self.entries.get(*place))
    }
}

impl From<Vec<HostEntry>> for Hosts {
    fn from(entries: Vec<HostEntry>) -> Self {
        let places = entries.iter().enumerate().map(|(place, entry)| (entry.id.clone(), place)).collect();
        Self { entries, places }
    }
}

impl Deref for Hosts {
    type Target = [HostEntry];

    fn deref(&self) -> &[HostEntry] {
        &self.entries
    }
}

impl DerefMut for Hosts {
    fn deref_mut(&mut self) -> &mut [HostEntry] {
        &mut self.entries
    }
}
