//! Hosts with a real docker daemon each, and an image that is made here.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use super::cluster::{Cluster, skip};
use super::in_time::StatusInTime;

/// The image that the first host has.
pub(crate) const IMAGE: &str = "hvtui-test:base";

/// Hosts with a docker daemon each; the first one has the image.
pub(crate) fn up(hosts: u32, more: &[&OsStr]) -> Option<Cluster> {
    let there = |name: &str| {
        ["/usr/sbin", "/usr/bin", "/usr/local/bin"].iter().any(|dir| Path::new(dir).join(name).exists())
    };
    if !there("dockerd") || !there("docker") {
        skip("dockerd is not installed");
        return None;
    }
    let cluster = Cluster::ready(hosts as usize, more)?;
    let script = |name: &str| format!("{}/tests/cluster/{name}", env!("CARGO_MANIFEST_DIR"));
    let root = cluster.dir().join("rootfs");
    let made = Command::new(script("rootfs")).arg(&root).status_in_time().expect("the script");
    assert!(made.success(), "no root file system was made");
    for host in (1..=hosts).map(|number| format!("n{number}")) {
        let data = cluster.dir().join(&host).join("docker");
        if !more.is_empty() {
            let hook = "#!/bin/sh\nexit 0\n";
            std::fs::create_dir_all(data.join("bin")).expect("a folder");
            let hook_file = data.join("bin/nvidia-container-runtime-hook");
            std::fs::write(&hook_file, hook).expect("a script");
            std::fs::set_permissions(&hook_file, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .expect("its mode");
        }
        let said = cluster.on(&host, &format!("{} {}", script("docker"), data.display()));
        cluster.on(&host, "mkdir ~/go");
        if said.trim() != "up" {
            skip(&format!("dockerd does not run here: {said}"));
            return None;
        }
    }
    let line = format!("tar -C {} -c . | docker import - {IMAGE} && echo done", root.display());
    assert!(cluster.on("n1", &line).ends_with("done\n"));
    Some(cluster)
}
