//! Which kernel runs, whether a newer one waits for a reboot (modules built since then belong to that one), and whether
//! signals go by handles on processes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::system::System;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::procs::pidfd;

pub(in crate::doctor) struct Kernel;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The newest of the kernels of the running one's flavour whose modules are there; absent where none are.
    newest: Option<String>,
    /// Whether the distribution says that a reboot is due.
    reboot: bool,
    /// Whether signals go by handles on processes, by which they can't reach another one.
    pidfd: bool,
    /// Whether modules are built here (DKMS), and the headers of the running kernel are not there for it.
    #[serde(default)]
    no_headers: bool,
    #[serde(default)]
    system: System,
}

impl Check for Kernel {
    const NAME: &'static str = "kernel";
    const ASKS: &'static str = "does the newest installed kernel run, or is a reboot due";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let folders = std::fs::read_dir("/lib/modules").into_iter().flatten().flatten();
        let with_modules = folders.filter(|folder| folder.path().join("kernel").is_dir());
        let names = with_modules.map(|folder| folder.file_name().to_string_lossy().into_owned());
        let running = running();
        let alike = names.filter(|name| flavour(name) == flavour(&running));
        let newest = alike.max_by(|a, b| by_numbers(a).cmp(&by_numbers(b)));
        Ok(Found {
            newest,
            reboot: Path::new("/run/reboot-required").exists(),
            pidfd: pidfd::lack().is_none(),
            no_headers: builds_driver() && !Path::new("/lib/modules").join(running).join("build").exists(),
            system: System::here(),
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found, &one.info.kernel)).collect()
    }
}

/// Whether the driver's module is built on this machine (DKMS).
pub(super) fn builds_driver() -> bool {
    let mut modules = std::fs::read_dir("/var/lib/dkms").into_iter().flatten().flatten();
    modules.any(|module| module.file_name().to_string_lossy().starts_with("nvidia"))
}

/// The kernel that runs, as `uname -r` names it.
fn running() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn judge(found: &Found, running: &str) -> Verdict {
    let cause =
        "a module that was built since, such as nvidia's, fits the new kernel alone: it can't be loaded now";
    match &found.newest {
        Some(newest) if flavour(newest) == flavour(running) && by_numbers(newest) > by_numbers(running) => {
            Verdict::look(format!("{running} runs, {newest} is installed"), cause, "sudo reboot")
        }
        _ if found.reboot => {
            Verdict::look(format!("{running} runs, and /run/reboot-required is there"), cause, "sudo reboot")
        }
        _ if found.no_headers => {
            let command = found.system.headers(running);
            let words = || format!("install the headers of the kernel {running} there");
            let verdict = Verdict::look(
                format!("{running} runs, without its headers, and NVIDIA's module is built here (DKMS)"),
                "an update of the driver or of the kernel leaves this host without a driver",
                command.clone().unwrap_or_else(words),
            );
            match command {
                Some(command) => verdict.fixed_there(command),
                None => verdict,
            }
        }
        _ if !found.pidfd => Verdict::good(format!(
            "{running}, without signals by handles on processes (before Linux 5.3, or a sandbox): hvtui signals by number"
        )),
        _ => Verdict::good(running),
    }
}

/// As versions are ordered: by the numbers in them.
fn by_numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// What kind of a kernel it is: `generic` of `6.8.0-45-generic`, `nvidia-64k` of `6.8.0-1013-nvidia-64k`, `arch` of `6.9.1-arch1-1`,
/// `rt` of `5.14.0-427.el9.x86_64+rt`. Versions of one kind alone follow each other.
fn flavour(release: &str) -> String {
    let (_, rest) = release.split_once('-').unwrap_or((release, ""));
    let is_number = |part: &str| part.parse::<u64>().is_ok();
    let kinds = rest.split('-').enumerate().map(|(at, part)| {
        // the first of them may begin with the number of a build
        if at == 0 && part.starts_with(|c: char| c.is_ascii_digit()) {
            part.split_once('+').map_or("", |(_, kind)| kind)
        } else if is_number(part) {
            ""
        } else {
            part.trim_end_matches(|c: char| c.is_ascii_digit())
        }
    });
    kinds.filter(|kind| !kind.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn found() -> Found {
        Found { newest: None, reboot: false, pidfd: true, no_headers: false, system: System::Debian }
    }

    #[test]
    fn a_newer_kernel_waits_for_a_reboot() {
        let of = |newest: Option<&str>, reboot| {
            let newest = newest.map(str::to_owned);
            judge(&Found { newest, reboot, ..found() }, "6.1.0-18-amd64").mark
        };
        let due = judge(&Found { reboot: true, ..found() }, "6.1.0-18-amd64").evidence;
        assert_eq!(due, "6.1.0-18-amd64 runs, and /run/reboot-required is there");
        assert_eq!(of(Some("6.1.0-18-amd64"), false), Mark::Good);
        assert_eq!(of(Some("6.1.0-9-amd64"), false), Mark::Good, "by numbers, not by letters");
        assert_eq!(of(Some("6.1.0-21-amd64"), false), Mark::Look);
        assert_eq!(of(None, true), Mark::Look);
        assert_eq!(of(None, false), Mark::Good, "a container has none");
    }

    #[test]
    fn a_kernel_of_another_flavour_is_no_newer_one() {
        let of = |newest: &str, running: &str| {
            judge(&Found { newest: Some(newest.to_owned()), ..found() }, running).mark
        };
        assert_eq!(of("6.8.0-1013-nvidia", "6.8.0-45-generic"), Mark::Good);
        assert_eq!(of("6.8.0-1013-aws", "6.8.0-45-generic"), Mark::Good);
        assert_eq!(of("6.8.0-1014-nvidia", "6.8.0-1013-nvidia"), Mark::Look);
        assert_eq!(of("6.1.0-21-cloud-amd64", "6.1.0-18-amd64"), Mark::Good);
        assert_eq!(of("6.9.2-arch1-1", "6.9.1-arch2-1"), Mark::Look);
        assert_eq!(of("5.14.0-503.el9_5.x86_64", "5.14.0-427.el9_4.x86_64"), Mark::Look);
        assert_eq!(of("5.14.0-503.el9.x86_64+rt", "5.14.0-427.el9.x86_64"), Mark::Good);
        let kinds =
            ["6.8.0-45-generic", "6.8.0-1013-nvidia-64k", "6.9.7+bpo-amd64", "6.6.30-1-lts", "6.6.0+"];
        assert_eq!(kinds.map(flavour), ["generic", "nvidia-64k", "amd", "lts", ""]);
    }

    #[test]
    fn headers_that_a_build_lacks_are_installed_as_the_system_does_it() {
        let of = |system| judge(&Found { no_headers: true, system, ..found() }, "6.1.0-18-amd64");
        let debian = of(System::Debian);
        let command = "sudo apt-get install linux-headers-6.1.0-18-amd64";
        assert_eq!((debian.mark, debian.help().as_deref()), (Mark::Look, Some(command)));
        let seen = "6.1.0-18-amd64 runs, without its headers, and NVIDIA's module is built here (DKMS)";
        assert_eq!(debian.evidence, seen);
        let other = of(System::Other);
        let words = "install the headers of the kernel 6.1.0-18-amd64 there";
        assert_eq!((other.fix, other.remedy.as_deref()), (None, Some(words)));
    }

    #[test]
    fn a_kernel_without_handles_on_processes_is_told() {
        let without = judge(&Found { pidfd: false, ..found() }, "5.2.0-1-amd64");
        assert!(
            without.mark == Mark::Good
                && without.evidence.contains("without signals by handles on processes"),
            "{without:?}"
        );
        assert_eq!(judge(&found(), "6.1.0-18-amd64").evidence, "6.1.0-18-amd64");
    }
}
