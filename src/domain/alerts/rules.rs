//! When something is told: thresholds and waiting times, one a kind of alert. As the hosts file says it, else the
//! defaults here.

use serde::{Deserialize, Serialize};

/// A second in microseconds.
pub(super) const SECOND_US: i64 = 1_000_000;

/// For how long a GPU that is held computes nothing, where the hosts file doesn't say it.
const HELD_IDLE_US: i64 = 5 * 60 * SECOND_US;

/// Thresholds. A duration that is `None` and a `false` switch their kind off.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of kinds that have nothing to do with each other"
)]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRules {
    /// From which temperature on a GPU is too hot.
    pub temperature: HeatRule,
    /// For how long a GPU's clocks are held down by heat or by its power brake, microseconds.
    pub slowdown_us: Option<i64>,
    /// Memory errors that ECC could not correct.
    pub ecc: bool,
    /// An XID error of a GPU.
    pub xid: bool,
    /// For how long a host is not reached, microseconds.
    pub host_down_us: Option<i64>,
    /// For how long nothing can be read of a GPU, microseconds.
    pub gpu_lost_us: Option<i64>,
    /// The disk of a host does not hold what the ranks of a run print.
    pub disk_full: bool,
    /// A process that does not belong to the run that leases a GPU holds memory there.
    pub foreign_process: bool,
    /// For how long a rank takes no step, microseconds; at least ten steps' time.
    pub hang_us: Option<i64>,
    /// For how long a GPU that is held computes nothing, microseconds.
    pub held_idle_us: Option<i64>,
    /// A rank is a straggler.
    pub straggler: bool,
    /// A rank has failed.
    pub rank_failed: bool,
    /// A run that is not followed here is live on a host.
    pub live_run: bool,
}

/// From which temperature on a GPU is too hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeatRule {
    /// None is.
    Off,
    /// A few degrees below the one at which the GPU slows down to protect itself, where it tells that.
    NearSlowdown,
    /// From so many degrees Celsius on.
    Celsius(u32),
}

impl AlertRules {
    /// After how many microseconds a GPU that is held and computes nothing is called idle, also where no alert tells of it.
    pub fn idle_after_us(&self) -> i64 {
        self.held_idle_us.unwrap_or(HELD_IDLE_US)
    }
}

impl Default for AlertRules {
    fn default() -> Self {
        Self {
            temperature: HeatRule::NearSlowdown,
            slowdown_us: Some(10 * SECOND_US),
            ecc: true,
            xid: true,
            host_down_us: Some(30 * SECOND_US),
            gpu_lost_us: Some(10 * SECOND_US),
            disk_full: true,
            foreign_process: true,
            hang_us: Some(30 * SECOND_US),
            held_idle_us: Some(HELD_IDLE_US),
            straggler: true,
            rank_failed: true,
            live_run: true,
        }
    }
}
