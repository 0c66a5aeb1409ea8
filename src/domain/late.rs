//! Variables of a run's ranks that are known only when every host is ready: they travel with the order to start.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::Rank;

/// Variables that are set in the ranks' environment alone, never written to disk.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Of all ranks of the host.
    pub env: BTreeMap<String, String>,
    /// Of single ranks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ranks: BTreeMap<Rank, BTreeMap<String, String>>,
    /// Of all ranks: the run's secret and the values of secret variables. They do not show in debug output.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
}

impl Late {
    /// All variables of one rank; its own ones count before those of all.
    pub fn of(&self, rank: Rank) -> impl Iterator<Item = (&String, &String)> {
        self.env.iter().chain(&self.secrets).chain(self.ranks.get(&rank).into_iter().flatten())
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late")
            .field("env", &self.env)
            .field("ranks", &self.ranks)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .finish()
    }
}
