//! A host's share of a run made of shell scripts, one a rank.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hvtui::domain::ids::{HostId, Rank, RunId};
use hvtui::domain::lease::LeasePlan;
use hvtui::domain::run::{HostRun, MinFree, RankSpec, Spool};

/// A run's id that no other test has, in this process or another: processes are found by it.
pub(crate) fn unique_run() -> RunId {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    RunId::new(hvtui::clock::host_now().0, u128::from(std::process::id()) << 32 | u128::from(count))
}

/// The plan: each script by `shell -c`, in `cwd`, with its number in `RANK`.
pub(crate) fn scripts(
    (run, host): (&RunId, &HostId),
    shell: &str,
    scripts: &[&str],
    cwd: &Path,
    grace_ms: u64,
) -> HostRun {
    let rank = |(rank, script): (usize, &&str)| RankSpec {
        rank: Rank(rank as u32),
        argv: vec![shell.to_owned(), "-c".to_owned(), (*script).to_owned()],
        env: BTreeMap::from([("RANK".to_owned(), rank.to_string())]),
        defaults: BTreeMap::new(),
        cwd: Some(cwd.display().to_string()),
    };
    HostRun {
        rendezvous: None,
        engine: None,
        attempt: 0,
        run: run.clone(),
        host: host.clone(),
        name: "test".to_owned(),
        ranks: scripts.iter().enumerate().map(rank).collect(),
        grace_ms,
        max_silence_ms: None,
        python_hooks: hvtui::domain::options::PythonHooks::Off,
        traceable: false,
        run_spec: None,
        ports: 1,
        spool: Spool { min_free: MinFree::Bytes(0), ..Spool::default() },
        leases: LeasePlan::default(),
    }
}
