//! How much room the output of a run's ranks may take on a host.

use serde::{Deserialize, Serialize};

/// How much room a run's output may take on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Spool {
    /// Bytes that the files of one rank may hold together; the oldest go first.
    pub cap: u64,
    /// What stays free on their file system beside that.
    pub min_free: MinFree,
}

impl Spool {
    /// What a rank may print before the oldest goes, unless something else is said.
    pub const CAP: u64 = 256 << 20;
    /// The least cap: what is cut goes in pieces, and the end of each file must stay.
    pub const LEAST_CAP: u64 = 1 << 20;
}

impl Default for Spool {
    fn default() -> Self {
        Self { cap: Self::CAP, min_free: MinFree::Auto }
    }
}

/// As it is sent and lies in files: an agent or a client that does not know [`MinFree::Auto`] reads 5 %.
#[derive(Serialize, Deserialize)]
struct Written {
    cap: u64,
    min_free: MinFree,
    /// Whether `min_free` stands for [`MinFree::Auto`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    auto: bool,
}

impl From<Spool> for Written {
    fn from(Spool { cap, min_free }: Spool) -> Self {
        let auto = min_free == MinFree::Auto;
        Self { cap, min_free: if auto { MinFree::Percent(5) } else { min_free }, auto }
    }
}

impl From<Written> for Spool {
    fn from(Written { cap, min_free, auto }: Written) -> Self {
        Self { cap, min_free: if auto { MinFree::Auto } else { min_free } }
    }
}

/// What must stay free on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MinFree {
    /// 5 % of its size, but at most 4 GiB: on the nearly full disk of a lab, 5 % would refuse every run for room that no run
    /// needs.
    Auto,
    /// So much of its size.
    Percent(u8),
    /// So many bytes.
    Bytes(u64),
}

impl MinFree {
    /// In bytes, on a file system of this size.
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::Auto => (size / 20).min(4 << 30),
            Self::Percent(percent) => size / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_know_of_the_default_reads_five_percent() {
        let text = |min_free| serde_json::to_string(&Spool { cap: 7, min_free }).unwrap();
        assert_eq!(text(MinFree::Auto), r#"{"cap":7,"min_free":{"percent":5},"auto":true}"#);
        assert_eq!(text(MinFree::Percent(5)), r#"{"cap":7,"min_free":{"percent":5}}"#);
        for min_free in [MinFree::Auto, MinFree::Percent(5), MinFree::Bytes(3)] {
            assert_eq!(serde_json::from_str::<Spool>(&text(min_free)).unwrap(), Spool { cap: 7, min_free });
        }
    }

    #[test]
    fn by_default_a_share_stays_free_but_no_more_than_runs_need() {
        assert_eq!(MinFree::Auto.of(20 << 30), 1 << 30);
        assert_eq!(MinFree::Auto.of(1 << 40), 4 << 30);
    }
}
