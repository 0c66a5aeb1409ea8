//! The environment of a run that is launched on this machine from within a rank of another run: what the outer run has told
//! that rank alone is left out. What a user sets for all that hvtui does stays. Pure; it reads no environment.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The mark of every rank's environment.
const RUN: &str = "HVTUI_RUN";
/// The rank's report; the directory of the outer run on this host holds it.
const REPORT: &str = "HVTUI_REPORT";
/// Hvtui's plugin in NCCL, and the variable by which NCCL finds it.
const PLUGIN: &str = "HVTUI_NCCL_PLUGIN";
const NCCL_FINDS: &str = "NCCL_PROFILER_PLUGIN";
const PYTHONPATH: &str = "PYTHONPATH";
/// Where torch writes kernel traces: below the run's directory where hvtui has set it and what goes with it.
const TRACES: &str = "KINETO_ONDEMAND_TRACE_DIR";
const OF_TRACES: [&str; 3] = ["KINETO_USE_DAEMON", "KINETO_IPC_SOCKET_DIR", "KINETO_LOG_LEVEL"];

/// What a rank is told of itself and of those it meets.
const OF_A_RANK: [&str; 39] = [
    "CROSS_RANK",
    "CROSS_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "HOROVOD_CONTROLLER",
    "HOROVOD_CPU_OPERATIONS",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_GLOO_IFACE",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR",
    "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "HOROVOD_HOSTNAME",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HVTUI_BIND",
    "HVTUI_KV_PORT",
    "HVTUI_LOCAL_RANK",
    "HVTUI_NODE_PORT",
    "HVTUI_OWN_NAMES",
    "HVTUI_PEERS",
    "HVTUI_PLACE",
    "HVTUI_PYTHON_SEEN",
    "HVTUI_RANK",
    "HVTUI_RESTART",
    "HVTUI_RUN_DIR",
    "HVTUI_SECRET",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TF_CONFIG",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
];

/// What is to change in the environment `given` before a run is launched with it: a new value, or `None` where the variable
/// goes. Nothing outside a rank. `is_hooks` tells hvtui's folders in `PYTHONPATH`: the inner run has its own, or none.
pub(crate) fn changes(
    given: &[(OsString, OsString)],
    is_hooks: impl Fn(&Path) -> bool,
) -> Vec<(OsString, Option<OsString>)> {
    let get = |name: &str| given.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str());
    if get(RUN).is_none() {
        return Vec::new();
    }
    let outer =
        get(REPORT).and_then(|report| Path::new(report).parent()).filter(|dir| dir.parent().is_some());
    let plugin = get(PLUGIN);
    let is_outer = |value: &OsStr| outer.is_some_and(|outer| Path::new(value).starts_with(outer));
    let traced = get(TRACES).is_some_and(is_outer);
    let mut changes = Vec::new();
    for (name, value) in given {
        let is = |other: &str| name == other;
        if is(PYTHONPATH) {
            let folders = std::env::split_paths(value);
            let kept: Vec<_> = folders.filter(|folder| !is_hooks(folder)).collect();
            let kept = std::env::join_paths(kept).unwrap_or_default();
            if kept != *value {
                changes.push((name.clone(), Some(kept).filter(|kept| !kept.is_empty())));
            }
        } else if OF_A_RANK.iter().any(|other| is(other))
            || is(REPORT)
            || is(PLUGIN)
            || (is(NCCL_FINDS) && plugin.is_some_and(|plugin| plugin == value || value == "hvtui"))
            || (traced && OF_TRACES.iter().any(|other| is(other)))
            || is_outer(value)
        {
            changes.push((name.clone(), None));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(given: &[(&str, &str)]) -> Vec<String> {
        let given: Vec<_> = given.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let changes = changes(&given, |folder| folder.starts_with("/s/python"));
        let word = |(name, value): &(OsString, Option<OsString>)| {
            let value = value.as_ref().map_or("-".into(), |value| value.to_string_lossy());
            format!("{}={value}", name.to_string_lossy())
        };
        changes.iter().map(word).collect()
    }

    #[test]
    fn a_run_within_a_rank_gets_nothing_that_is_the_outer_ranks_own() {
        let outer = [
            ("HOME", "/home/li"),
            ("HVTUI_LOG", "debug"),
            ("HVTUI_PYTHON_HOOKS", "debug"),
            ("HVTUI_PYTHON_SEEN", "1"),
            ("HVTUI_RANK", "1"),
            ("HVTUI_REPORT", "/s/spool/R/a/1.report"),
            ("HVTUI_RUN", "R"),
            ("KINETO_IPC_SOCKET_DIR", "/tmp/k"),
            ("KINETO_ONDEMAND_TRACE_DIR", "/s/spool/R/a/trace"),
            ("KINETO_USE_DAEMON", "1"),
            ("PYTHONPATH", "/s/python/0123:/opt/lib"),
            ("RANK", "1"),
            ("TORCHELASTIC_ERROR_FILE", "/s/spool/R/a/1.error"),
            ("WORKERS", "/s/spool"),
        ];
        let gone = [
            "HVTUI_PYTHON_SEEN=-",
            "HVTUI_RANK=-",
            "HVTUI_REPORT=-",
            "KINETO_IPC_SOCKET_DIR=-",
            "KINETO_ONDEMAND_TRACE_DIR=-",
            "KINETO_USE_DAEMON=-",
            "PYTHONPATH=/opt/lib",
            "RANK=-",
            "TORCHELASTIC_ERROR_FILE=-",
        ];
        assert_eq!(changed(&outer), gone);
        let login: Vec<_> = outer.into_iter().filter(|(name, _)| *name != RUN).collect();
        assert!(changed(&login).is_empty(), "a login's own environment stays");
    }

    #[test]
    fn the_plugin_in_nccl_goes_and_that_of_a_user_stays() {
        let run = ("HVTUI_RUN", "R");
        let plugin = ("HVTUI_NCCL_PLUGIN", "/s/nccl/0/p.so");
        let found = |by| changed(&[run, plugin, ("NCCL_PROFILER_PLUGIN", by)]);
        assert_eq!(found("/s/nccl/0/p.so"), ["HVTUI_NCCL_PLUGIN=-", "NCCL_PROFILER_PLUGIN=-"]);
        assert_eq!(found("hvtui").len(), 2);
        assert_eq!(found("inspector"), ["HVTUI_NCCL_PLUGIN=-"]);
        assert_eq!(changed(&[run, ("PYTHONPATH", "/s/python/0123")]), ["PYTHONPATH=-"]);
        assert_eq!(
            changed(&[run, ("PYTHONPATH", "/opt/lib:"), ("HVTUI_REPORT", "r"), ("A", "r")]),
            ["HVTUI_REPORT=-"]
        );
    }
}
