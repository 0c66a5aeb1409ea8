//! What holds for all checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::domain::host::InterfaceAddress;
use crate::domain::preflight::Mark;
use crate::domain::symptoms::{PLACES, SYMPTOMS};
use crate::domain::time::Stamp;

/// This machine.
pub(super) fn site() -> Site {
    Site::new(Stamp(1_000_000), Stamp(1_000_000), std::env::temp_dir(), Vec::new())
}

fn info() -> HostInfo {
    serde_json::from_value(serde_json::json!({
        "hostname": "host", "kernel": "6.1.0", "arch": "x86_64", "user": "li", "cpus": 8, "memory_total": 1,
        "boot_id": "b", "agent_version": "0", "addresses": [], "ssh_server_address": null, "ssh_client_address": null,
        "gpus": [], "gpu_absence": null, "driver": null, "cuda_driver": null, "nccl": null,
    }))
    .unwrap()
}

/// As hosts `host-0`, `host-1` and so on, without GPUs, would have told it.
pub(super) fn seen<F>(found: impl IntoIterator<Item = F>) -> Vec<Seen<'static, F>> {
    let hosts = found.into_iter().enumerate();
    hosts
        .map(|(at, found)| {
            let host: &'static HostId = Box::leak(Box::new(HostId::from(format!("host-{at}").as_str())));
            let info: &'static HostInfo = Box::leak(Box::new(info()));
            Seen {
                host,
                info,
                sample: None,
                given: &NOTHING_GIVEN,
                uses: None,
                controller: None,
                clock: None,
                happened: None,
                found,
            }
        })
        .collect()
}

/// Facts of a host with these addresses, by interface.
pub(super) fn info_with(addresses: &[(&str, &str)]) -> HostInfo {
    let address = |(interface, address): &(&str, &str)| InterfaceAddress {
        interface: (*interface).to_owned(),
        address: address.parse().unwrap(),
    };
    HostInfo { addresses: addresses.iter().map(address).collect(), ..info() }
}

/// As hosts with these facts would have told it.
pub(super) fn seen_with<F>(found: impl IntoIterator<Item = (HostInfo, F)>) -> Vec<Seen<'static, F>> {
    let (infos, found): (Vec<HostInfo>, Vec<F>) = found.into_iter().unzip();
    let mut all = seen(found);
    for (one, info) in all.iter_mut().zip(infos) {
        one.info = Box::leak(Box::new(info));
    }
    all
}

#[test]
fn each_check_looks_at_this_machine_and_is_judged() {
    let site = site();
    let host = HostId::from("here");
    let hosts = [(host.clone(), Reached::Up(Arc::new(info()), None))];
    let checks: Vec<&'static Entry> = CHECKS.iter().collect();
    let looks = CHECKS.iter().filter(|entry| entry.looks);
    let told: BTreeMap<_, _> = looks.map(|entry| ((host.clone(), entry.name), entry.look(&site))).collect();
    let matrix = matrix(&checks, &hosts, &told, &BTreeMap::new());
    for row in &matrix.rows {
        let verdict = &row.verdicts[&host];
        assert!(!verdict.evidence.is_empty(), "{}: {verdict:?}", row.check);
        assert_eq!(verdict.is_trouble(), verdict.remedy.is_some(), "{}: {verdict:?}", row.check);
        assert_eq!(verdict.is_trouble(), verdict.cause.is_some(), "{}: {verdict:?}", row.check);
    }
    assert_eq!(matrix.due(), 0);
}

#[test]
fn names_are_short_and_unlike() {
    let mut names: Vec<&str> = CHECKS.iter().map(|entry| entry.name).collect();
    assert!(
        names.iter().all(|name| name.len() <= 9 && name.chars().all(|c| c.is_ascii_lowercase())),
        "{names:?}"
    );
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}

#[test]
fn what_a_failed_run_is_answered_with_are_checks() {
    for name in SYMPTOMS.iter().chain(&PLACES).flat_map(|(_, checks)| *checks) {
        assert!(check(name).is_some(), "{name}");
    }
}

#[test]
fn a_command_that_can_not_be_seen_whole_is_not_offered() {
    let of = |command: String| {
        let mut verdict = Verdict::bad("x", "y", "z").fixed_there(command);
        bound(&mut verdict);
        verdict.fix.is_some()
    };
    assert!(of("sudo loginctl enable-linger li".to_owned()));
    assert!(!of("sudo rm -r '/tmp/\x1b[2K\rls'".to_owned()), "the terminal would hide it");
    assert!(!of(format!("sudo rm -r /tmp/{}", "x".repeat(LONGEST))));
}

#[test]
fn who_is_root_is_told_no_sudo() {
    let command = "echo x | sudo tee /etc/x && sudo systemctl reload ssh";
    let mut verdict = Verdict::look("x", "y", "sudo reboot, or: sudo rmmod nvidia").fixed_there(command);
    without_sudo(&mut verdict);
    assert_eq!(verdict.remedy.unwrap(), "reboot, or: rmmod nvidia");
    assert_eq!(verdict.fix, Some(Fix::There("echo x | tee /etc/x && systemctl reload ssh".into())));
}

#[test]
fn what_a_launch_rests_on_are_checks() {
    let names = [
        "reach",
        "interface",
        "disk",
        "gpu",
        "driver",
        "docker",
        "shm",
        "stub",
        "python",
        "torch",
        "horovod",
        "path",
        "logins",
        "mpi",
    ];
    for name in names {
        assert!(check(name).is_some(), "{name}");
    }
}

#[test]
fn a_host_that_tells_nonsense_is_judged_alone() {
    let (a, b, c) = (HostId::from("a"), HostId::from("b"), HostId::from("c"));
    let up = || Reached::Up(Arc::new(info()), None);
    let hosts = [(a.clone(), up()), (b.clone(), up()), (c.clone(), up())];
    let shm = check("shm").unwrap();
    let good = || Ok(serde_json::json!({"total": 1_u64 << 40, "free": 1_u64 << 40}));
    let told = BTreeMap::from([
        ((a.clone(), "shm"), Ok(serde_json::json!({"total": "much"}))),
        ((b.clone(), "shm"), good()),
        ((c.clone(), "shm"), good()),
    ]);
    let row = &matrix(&[shm], &hosts, &told, &BTreeMap::new()).rows[1];
    let marks: Vec<Mark> = [&a, &b, &c].map(|host| row.verdicts[host].mark).to_vec();
    assert_eq!(marks, [Mark::Unknown, Mark::Good, Mark::Good]);
    let silent =
        &matrix(&[shm], &[(a.clone(), Reached::Down("refused".into()))], &told, &BTreeMap::new()).rows[1];
    assert_eq!(silent.verdicts[&a].mark, Mark::Unknown);
    assert_eq!(matrix(&[shm], &[(a, Reached::Waiting)], &told, &BTreeMap::new()).due(), 1);
}
