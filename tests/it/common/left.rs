//! What a run has left on a host, or nothing: names that were to go, sockets, and GPUs that are still held.
//!
//! Knows no name by itself: whether one is a draft is asked of the module that makes it.

use std::fs::{self, DirEntry, File};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use hvtui::domain::ids::GpuUuid;
use hvtui::domain::run::HostRun;
use hvtui::ssh::is_upload;
use hvtui::supervise::state::SPEC;
use hvtui::supervise::{kineto, lease, rundir};
use rustix::fs::{FlockOperation, flock};

use super::cluster::Cluster;
use super::processes::until;

/// Asserts that nothing of a run that is over is left on a host. What is of no run may be of another one that goes
/// on just now: it must go soon.
#[track_caller]
pub(crate) fn assert_nothing(cluster: &Cluster, host: &str, run: &str) {
    cluster.until_free(host, run);
    let mut left = on(cluster, host, run);
    let of_run: Vec<&String> = left.iter().filter(|what| what.contains(run)).collect();
    assert!(of_run.is_empty(), "{host}: {of_run:#?}");
    until(&format!("{left:#?} to go from {host}"), || {
        left = on(cluster, host, run);
        left.is_empty()
    });
}

/// The same of both hosts of a cluster.
#[track_caller]
pub(crate) fn assert_nothing_on_two(cluster: &Cluster, run: &str) {
    for host in ["n1", "n2"] {
        assert_nothing(cluster, host, run);
    }
}

/// What is on a host that must not be found there once this run and all others are over.
pub(crate) fn on(cluster: &Cluster, host: &str, run: &str) -> Vec<String> {
    let root = PathBuf::from(format!("/proc/{}/root", cluster.pid(host)));
    let mut left = Vec::new();
    for folder in [cluster.at_home(host, ""), root.join("run"), root.join("dev/shm")] {
        each(&folder, &mut |entry| left.extend(left_over(entry)));
    }
    for folder in lease_folders(cluster, host) {
        each(&folder, &mut |entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if text.contains(run) {
                left.push(format!("{} names the run: {text}", entry.path().display()));
            }
        });
    }
    left.extend(held_gpus(cluster, host, run));
    left
}

/// What holds the GPUs that a run has, or had, on a host.
pub(crate) fn held_gpus(cluster: &Cluster, host: &str, run: &str) -> Vec<String> {
    let leases = lease_folders(cluster, host);
    gpus(cluster, host, run).iter().flat_map(|gpu| held(cluster, host, run, &leases, gpu)).collect()
}

/// Where leases usually lie on a host, as this process sees it.
fn lease_folders(cluster: &Cluster, host: &str) -> Vec<PathBuf> {
    let root = PathBuf::from(format!("/proc/{}/root", cluster.pid(host)));
    lease::USUAL.iter().map(|folder| root.join(folder.trim_start_matches('/'))).collect()
}

/// Calls `visit` for all that is below a folder, on whatever file system.
fn each(folder: &Path, visit: &mut dyn FnMut(&DirEntry)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            each(&entry.path(), visit);
        }
        visit(&entry);
    }
}

fn left_over(entry: &DirEntry) -> Option<String> {
    let (name, path) = (entry.file_name(), entry.path());
    let name = name.to_str()?;
    let kind = entry.file_type().ok()?;
    // sshd's own sockets are not ours
    let is_ours = path.components().any(|part| part.as_os_str() == "hvtui");
    let what = match () {
        () if is_upload(name) => "an upload",
        () if rundir::is_draft(name) || lease::is_draft(name) || name.ends_with(kineto::DRAFT) => "a draft",
        () if is_ours && (kind.is_socket() || kind.is_fifo()) => "a way to speak with it",
        () => return None,
    };
    Some(format!("{what}: {}", path.display()))
}

/// The GPUs that were the run's, as its plan on this host says.
fn gpus(cluster: &Cluster, host: &str, run: &str) -> Vec<GpuUuid> {
    let file = cluster.spool(host, run).and_then(|folder| fs::read(folder.join(SPEC)).ok());
    let spec = file.and_then(|text| serde_json::from_slice::<HostRun>(&text).ok());
    spec.map(|spec| spec.leases.held.into_keys().collect()).unwrap_or_default()
}

/// The locks of a GPU that is in use.
fn held(cluster: &Cluster, host: &str, run: &str, leases: &[PathBuf], gpu: &GpuUuid) -> Vec<String> {
    let mut held = Vec::new();
    for path in leases.iter().map(|folder| folder.join(lease::usual_lock(gpu))) {
        // as a process that wants the GPU would
        if let Ok(file) = File::open(&path)
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
        {
            held.push(format!("a lock of run {run} that is held: {}", path.display()));
        }
    }
    let names = fs::read_to_string(format!("/proc/{}/net/unix", cluster.pid(host))).unwrap_or_default();
    let of_gpu = names
        .lines()
        .filter_map(|line| Some(line.split_once('@')?.1))
        .filter(|name| name.contains(gpu.as_str()));
    held.extend(of_gpu.map(|name| format!("a GPU's name in the kernel, of run {run}: {name}")));
    held
}
