//! Which kernel runs, whether a newer one waits for a reboot (modules built since then belong to that one), and whether it
//! gives handles on processes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::procs::pidfd;

pub(in crate::doctor) struct Kernel;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The newest of the kernels whose modules are there; absent where none are.
    newest: Option<String>,
    /// Whether the distribution says that a reboot is due.
    reboot: bool,
    /// Whether it gives handles on processes, by which signals can't reach another one.
    pidfd: bool,
    /// Whether modules are built here (DKMS), and the headers of the running kernel are not there for it.
    #[serde(default)]
    no_headers: bool,
}

impl Check for Kernel {
    const NAME: &'static str = "kernel";
    const ASKS: &'static str = "does the newest installed kernel run, or is a reboot due";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let folders = std::fs::read_dir("/lib/modules").into_iter().flatten().flatten();
        let with_modules = folders.filter(|folder| folder.path().join("kernel").is_dir());
        let names = with_modules.map(|folder| folder.file_name().to_string_lossy().into_owned());
        let newest = names.max_by(|a, b| by_numbers(a).cmp(&by_numbers(b)));
        Ok(Found {
            newest,
            reboot: Path::new("/run/reboot-required").exists(),
            pidfd: pidfd::open(std::process::id()).is_some(),
            no_headers: lacks_headers(),
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

/// Whether the driver's module is built on this machine and its next version could not be.
fn lacks_headers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    builds_driver() && !Path::new("/lib/modules").join(release.trim()).join("build").exists()
}

fn judge(found: &Found, running: &str) -> Verdict {
    let cause =
        "a module that was built since, such as nvidia's, fits the new kernel alone: it can't be loaded now";
    match &found.newest {
        Some(newest) if by_numbers(newest) > by_numbers(running) => {
            Verdict::look(format!("{running} runs, {newest} is installed"), cause, "sudo reboot")
        }
        _ if found.reboot => {
            Verdict::look(format!("{running} runs, and /run/reboot-required is there"), cause, "sudo reboot")
        }
        _ if found.no_headers => {
            let remedy = "sudo apt install linux-headers-$(uname -r)";
            Verdict::look(
                format!("{running} runs, without its headers, and NVIDIA's module is built here (DKMS)"),
                "an update of the driver or of the kernel leaves this host without a driver",
                remedy,
            )
            .fixed_there(remedy)
        }
        _ if !found.pidfd => Verdict::good(format!(
            "{running}, which gives no handles on processes (before Linux 5.3, or a sandbox): hvtui signals by number"
        )),
        _ => Verdict::good(running),
    }
}

/// As versions are ordered: by the numbers in them.
fn by_numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn a_newer_kernel_waits_for_a_reboot() {
        let of = |newest: Option<&str>, reboot| {
            let newest = newest.map(str::to_owned);
            judge(&Found { newest, reboot, pidfd: true, no_headers: false }, "6.1.0-18-amd64").mark
        };
        let built = Found { newest: None, reboot: false, pidfd: true, no_headers: true };
        assert_eq!(judge(&built, "6.1.0-18-amd64").mark, Mark::Look);
        assert_eq!(of(Some("6.1.0-18-amd64"), false), Mark::Good);
        assert_eq!(of(Some("6.1.0-9-amd64"), false), Mark::Good, "by numbers, not by letters");
        assert_eq!(of(Some("6.1.0-21-amd64"), false), Mark::Look);
        assert_eq!(of(None, true), Mark::Look);
        assert_eq!(of(None, false), Mark::Good, "a container has none");
    }
}
