//! Containers that run on a host, as its engine tells of them: those with little shared memory, and those whose run is over.

use std::path::Path;

use serde_json::Value;

use super::super::super::Site;
use crate::supervise::container::{PLACE_LABEL, sweep};

/// Containers that are looked at, and of those whose run is over the ones that are named.
const MOST: usize = 64;
const NAMED: usize = 8;
/// Docker's own `/dev/shm`.
const SHM: u64 = 64 << 20;
/// The variable by which NVIDIA's runtime gives GPUs.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES=";

/// The running containers; none where the engine does not tell of them.
pub(super) fn all(site: &Site, engine: &Path) -> Vec<Value> {
    let Ok(listed) = site.ask(engine, &["ps", "-q"]) else { return Vec::new() };
    let ids: Vec<&str> = listed.out.split_whitespace().take(MOST).collect();
    if ids.is_empty() {
        return Vec::new();
    }
    // one that has ended meanwhile makes it fail behind the others
    let told = site.ask(engine, &[&["container", "inspect"], &ids[..]].concat());
    told.ok().and_then(|told| serde_json::from_str(&told.out).ok()).unwrap_or_default()
}

/// The names of those with GPUs and a small `/dev/shm` of their own.
pub(super) fn small(containers: &[Value]) -> Vec<String> {
    containers.iter().filter(|container| is_small(container)).filter_map(name).collect()
}

/// The names of those whose run is over, of runs in this state folder: where that is sure, and where it is not.
pub(super) fn left(containers: &[Value], state: &Path) -> (Vec<String>, Vec<String>) {
    let left = containers.iter().filter_map(|container| {
        let place = Path::new(container["Config"]["Labels"][PLACE_LABEL].as_str()?);
        let name = name(container).filter(|_| sweep::is_orphan(place, state))?;
        Some((name, sweep::is_surely_over(place)))
    });
    let (sure, unsure): (Vec<_>, Vec<_>) = left.partition(|(_, is_sure)| *is_sure);
    let names = |some: Vec<(String, bool)>| -> Vec<String> {
        some.into_iter().map(|(name, _)| name).take(NAMED).collect()
    };
    (names(sure), names(unsure))
}

fn is_small(container: &Value) -> bool {
    let host = &container["HostConfig"];
    let is_own = matches!(host["IpcMode"].as_str(), Some("" | "private" | "shareable"));
    has_gpus(container) && is_own && host["ShmSize"].as_u64().is_some_and(|bytes| bytes <= SHM)
}

/// Whether it was given GPUs. NVIDIA's runtime may be that of all containers: a variable says which of them have some then.
fn has_gpus(container: &Value) -> bool {
    let host = &container["HostConfig"];
    let is_asked = host["DeviceRequests"].as_array().is_some_and(|devices| !devices.is_empty());
    let env = container["Config"]["Env"].as_array().map_or(&[][..], Vec::as_slice);
    let visible = env.iter().filter_map(Value::as_str).find_map(|one| one.strip_prefix(VISIBLE));
    let by_runtime = host["Runtime"].as_str() == Some("nvidia");
    is_asked || (by_runtime && !matches!(visible, None | Some("" | "void" | "none")))
}

fn name(container: &Value) -> Option<String> {
    Some(container["Name"].as_str()?.trim_start_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::ids::{HostId, RunId};
    use crate::procs::identity::Identity;
    use crate::supervise::rundir::RunDir;
    use crate::supervise::state::{Phase, STATE, State};

    fn container(name: &str, ipc: &str, shm: u64, runtime: &str, devices: &Value, env: &[&str]) -> Value {
        let host = json!({"IpcMode": ipc, "ShmSize": shm, "Runtime": runtime, "DeviceRequests": devices});
        json!({"Name": name, "HostConfig": host, "Config": {"Env": env}})
    }

    #[test]
    fn those_with_gpus_and_little_shared_memory_are_told() {
        let (gpus, none) = (json!([{"Count": -1}]), Value::Null);
        let all = "NVIDIA_VISIBLE_DEVICES=all";
        let containers = [
            container("/train", "private", SHM, "runc", &gpus, &[]),
            container("/old", "private", SHM, "nvidia", &none, &["PATH=/bin", all]),
            container("/large", "private", 16 << 30, "runc", &gpus, &[]),
            container("/host", "host", SHM, "runc", &gpus, &[]),
            container("/database", "private", SHM, "runc", &json!([]), &[all]),
            // where NVIDIA's runtime is that of all containers
            container("/grafana", "private", SHM, "nvidia", &none, &["PATH=/bin"]),
            container("/void", "private", SHM, "nvidia", &none, &["NVIDIA_VISIBLE_DEVICES=void"]),
            container("/none", "private", SHM, "nvidia", &none, &["NVIDIA_VISIBLE_DEVICES="]),
            json!({"Name": "/podmans"}),
            Value::Null,
        ];
        assert_eq!(small(&containers), ["train", "old"]);
    }

    #[test]
    fn those_of_runs_that_are_over_are_told_and_no_others() {
        let state = tempfile::tempdir().unwrap();
        let of =
            |name: &str, place: &str| json!({"Name": name, "Config": {"Labels": {"hvtui.place": place}}});
        let gone = state.path().join("spool/gone/n1").display().to_string();
        let ended = RunDir::create(state.path(), &RunId::new(1, 2), &HostId::from("n1")).unwrap();
        let own = Identity::own().unwrap();
        ended.write_json(STATE, &State::of_test(Phase::Ended, own.clone())).unwrap();
        let lives = RunDir::create(state.path(), &RunId::new(3, 4), &HostId::from("n1")).unwrap();
        lives.write_json(STATE, &State::of_test(Phase::Running, own)).unwrap();
        let containers = [
            of("/hvtui-1-r0", &gone),
            of("/hvtui-2-r0", &ended.path().display().to_string()),
            of("/hvtui-3-r0", &lives.path().display().to_string()),
            of("/other-user", "/home/other/.local/state/hvtui/spool/gone/n1"),
            json!({"Name": "/grafana", "Config": {"Labels": {"a": "b"}}}),
            json!({"Name": "/bare", "Config": {"Labels": null}}),
        ];
        // whose files are gone may be one that they are not gone for
        let names = |name: &str| vec![name.to_owned()];
        assert_eq!(left(&containers, state.path()), (names("hvtui-2-r0"), names("hvtui-1-r0")));
        assert_eq!(left(&containers, Path::new("/nowhere")), (Vec::new(), Vec::new()));
    }
}
