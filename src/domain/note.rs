//! What a host has to say of a run beside how its ranks do: its supervisor was lost and replaced, a process can't
//! be ended, nothing is left. Pure.

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::time::HostTime;

/// One remark about a run's share of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Note {
    /// What kind, for programs: one of [`what`], or one of a newer host.
    pub what: String,
    /// For people: a lowercase sentence.
    pub text: String,
    /// When, on the host's clock.
    #[serde(default)]
    pub t: HostTime,
    /// The rank it is about, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// The number in it, where there is one: processes that were ended.
    #[serde(default)]
    pub count: u64,
}

/// The kinds of notes. More may come.
pub mod what {
    /// The supervisor died; ranks go on.
    pub const SUPERVISOR_LOST: &str = "supervisor_lost";
    /// A new supervisor owns the run.
    pub const ADOPTED: &str = "adopted";
    /// The host was started anew meanwhile.
    pub const REBOOTED: &str = "rebooted";
    /// A process that even KILL does not end.
    pub const UNKILLABLE: &str = "unkillable";
    /// The run was stopped and nothing of it is left; `count` processes were ended.
    pub const GONE: &str = "gone";
    /// Ranks have ended by themselves and left `count` processes behind, which were ended.
    pub const BACKGROUND: &str = "background";
    /// The run's files can't be read any more: what becomes of its ranks here is not known.
    pub const UNREADABLE: &str = "unreadable";
    /// The host can't tell of the run now: its files there are of another hvtui, can't be read, or are gone.
    pub const NOT_FOLLOWED: &str = "not_followed";
    /// What ranks print does not fit: the disk is nearly full, or can't be kept within its cap.
    pub const SPOOL: &str = "spool";
    /// No client was attached and nothing was printed for as long as the run may be silent: its ranks are ended.
    pub const SILENT: &str = "silent";
    /// Values of secret variables are not known any more: what ranks printed is not shown.
    pub const WITHHELD: &str = "withheld";
    /// Logging out ends the run on this host.
    pub const LOGOUT: &str = "logout";
    /// Some ranks have told their addresses at the rendezvous, see [`Progress`](crate::domain::rendezvous::Progress).
    pub const JOINED: &str = "joined";
    /// All ranks are connected, see [`Progress`](crate::domain::rendezvous::Progress).
    pub const CONNECTED: &str = "connected";
    /// What became of a folder that was copied to the host.
    pub const SYNC: &str = "sync";
    /// The kernel gives no handles on processes: how signals are sent instead.
    pub const NO_PIDFD: &str = "no_pidfd";
    /// Ranks have ended, and what they printed is still being read: `count` bytes are left. The newest one tells all.
    pub const READING: &str = "reading";
    /// The rendezvous went with the supervisor that served it.
    pub const RENDEZVOUS_LOST: &str = "rendezvous_lost";
}

impl Note {
    /// A note of a kind, now.
    pub fn new(what: &str, text: impl Into<String>, t: HostTime) -> Self {
        Self { what: what.to_owned(), text: text.into(), t, rank: None, count: 0 }
    }

    /// Whether it is news of trouble, and not of something that went well.
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self.what.as_str(),
            what::ADOPTED | what::GONE | what::JOINED | what::CONNECTED | what::NO_PIDFD | what::READING
        )
    }
}
