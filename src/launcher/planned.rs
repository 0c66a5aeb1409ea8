//! A launch, planned in full: what runs where and by which addresses its ranks meet. Pure.

use super::facts::HostFacts;
use super::gather::LaunchError;
use super::place::{self, PlaceError};
use super::plan;
use super::rendezvous::{Rendezvous, rendezvous_address};
use crate::domain::ids::RunId;
use crate::domain::request::LaunchRequest;
use crate::domain::run::{HostRun, RunSpec};
use crate::domain::time::Stamp;

/// Exit code of a launch that asks for what is not there.
const USAGE: i32 = 64;
/// Exit code of a launch whose GPUs somebody holds.
const BUSY: i32 = 75;
/// Exit code of a launch whose host can't be used.
const UNREACHABLE: i32 = 69;

/// A launch, planned in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The run.
    pub spec: RunSpec,
    /// Each host's share.
    pub hosts: Vec<HostRun>,
    /// Where its ranks meet.
    pub rendezvous: Rendezvous,
}

impl Planned {
    /// Plans `request` on hosts of which `facts` tell.
    pub fn new(
        request: &LaunchRequest,
        facts: &[HostFacts],
        id: RunId,
        at: Stamp,
    ) -> Result<Self, LaunchError> {
        let placements = place::place(request, facts).map_err(|error| {
            let code = match &error {
                error if error.is_busy() => BUSY,
                PlaceError::HostAbsent { .. } => UNREACHABLE,
                _ => USAGE,
            };
            let remedy = error.remedy().map_or_else(String::new, |remedy| format!(": {remedy}"));
            let busy = error.is_busy().then(|| error.to_string());
            LaunchError { busy, ..LaunchError::new(code, format!("{error}{remedy}")) }
        })?;
        let spec = plan::spec(request, placements, id, at);
        let mut hosts = plan::host_runs(&spec, facts, request.on_busy.share);
        if let Some(cap) = request.spool_cap {
            for host in &mut hosts {
                host.spool.cap = cap;
            }
        }
        if let Some(silence) = request.max_silence_ms {
            for host in &mut hosts {
                host.max_silence_ms = Some(silence).filter(|ms| *ms > 0);
            }
        }
        let rendezvous = rendezvous_address(&spec, facts, request.interface.as_deref())
            .map_err(|error| LaunchError::new(USAGE, error.to_string()))?;
        Ok(Self { spec, hosts, rendezvous })
    }
}
