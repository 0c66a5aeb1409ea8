//! In which orders the list of hosts can stand. Does not know it: the screen sorts its own list.

use serde::{Deserialize, Serialize};

/// What hosts, and GPUs within their host, are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostOrder {
    /// As in the hosts file; GPUs by index.
    #[default]
    File,
    /// By name; GPUs by index.
    Name,
    /// Most free GPUs first; free ones first.
    FreeGpus,
    /// Least busy first.
    Utilisation,
    /// Most free memory first.
    FreeMemory,
    /// Hottest GPU first.
    Temperature,
    /// Highest power first.
    Power,
    /// The worst fault first.
    Health,
    /// By the name of the user.
    User,
    /// By model.
    Model,
    /// By command.
    Command,
}

impl HostOrder {
    /// All of them, as the key goes through them.
    const ALL: [Self; 11] = [
        Self::File,
        Self::Name,
        Self::FreeGpus,
        Self::Utilisation,
        Self::FreeMemory,
        Self::Temperature,
        Self::Power,
        Self::Health,
        Self::User,
        Self::Model,
        Self::Command,
    ];

    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Whether rows change places by what is measured.
    pub fn is_by_values(self) -> bool {
        !matches!(self, Self::File | Self::Name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "hosts file",
            Self::Name => "name",
            Self::FreeGpus => "most free GPUs",
            Self::Utilisation => "least busy",
            Self::FreeMemory => "most free memory",
            Self::Temperature => "hottest",
            Self::Power => "highest power",
            Self::Health => "worst health",
            Self::User => "user",
            Self::Model => "model",
            Self::Command => "command",
        }
    }
}

/// How hosts are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostsOrdered {
    /// By what.
    pub by: HostOrder,
    /// The other way round.
    pub reversed: bool,
}
