//! Whether NVIDIA's toolkit, which gives GPUs to containers, is the same everywhere, knows the driver that runs, and describes the GPUs
//! on all hosts or on none.

use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, minor};
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::domain::preflight::Mark;

pub(in crate::doctor) struct Toolkit;

/// Where descriptions of GPUs for containers (CDI) lie: what is written at each start, which wins, and what an administrator writes.
const DESCRIPTIONS: [&str; 4] =
    ["/var/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.json", "/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json"];
/// A host that has one, and one that has none, in words.
const CDI: &str = "CDI";
const NO_CDI: &str = "no CDI";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The toolkit's version, `1.17.4`; absent without one.
    version: Option<String>,
    /// The file that describes the GPUs for CDI, and the driver's version of which it names libraries.
    cdi: Option<(String, Option<String>)>,
    /// Whether it is not known if there is one, as the first can't be read.
    #[serde(default)]
    is_unread: bool,
}

impl Check for Toolkit {
    const NAME: &'static str = "toolkit";
    const ASKS: &'static str =
        "is nvidia-container-toolkit the same on all hosts, and knows the driver that runs";
    const OF_IMAGE: OfImage = OfImage::Beside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let mut found = DESCRIPTIONS.into_iter().find_map(described).unwrap_or_default();
        if let Some(program) =
            ["nvidia-ctk", "nvidia-container-toolkit"].iter().find_map(|one| site.program(one))
        {
            let told = site.ask(&program, &["--version"])?;
            let own = version(&told.out);
            found.version = Some(own.ok_or_else(|| format!("{}: {}", program.display(), told.last_words()))?);
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let versions =
            seen.iter().filter_map(|one| Some((one.host.as_str(), minor(one.found.version.as_deref()?))));
        let all = Compared::new(versions);
        // a host without GPUs has none to describe, and another toolkit may describe them by itself
        let described = seen.iter().filter(|one| !one.info.gpus.is_empty() && !one.found.is_unread);
        let described = described.filter_map(|one| {
            let toolkit = minor(one.found.version.as_deref()?);
            let has = if one.found.cdi.is_some() { CDI } else { NO_CDI };
            Some(Described { host: one.host.as_str(), toolkit, has })
        });
        let described: Vec<Described<'_>> = described.collect();
        let judge = |one: &Seen<'_, Found>| {
            let verdict = judge(&one.found, one.info.driver.value().map(String::as_str), &all);
            let own = described.iter().find(|own| own.host == one.host.as_str());
            let own = own.filter(|_| verdict.mark == Mark::Good);
            own.and_then(|own| own.judge(&one.found, &described)).unwrap_or(verdict)
        };
        seen.iter().map(judge).collect()
    }
}

/// Whether a host describes its GPUs.
struct Described<'a> {
    host: &'a str,
    /// The first numbers of the toolkit's version.
    toolkit: &'a str,
    has: &'static str,
}

impl Described<'_> {
    /// Where it differs from most hosts with this toolkit.
    fn judge(&self, found: &Found, all: &[Described<'_>]) -> Option<Verdict> {
        let alike = all.iter().filter(|one| one.toolkit == self.toolkit);
        let alike = Compared::new(alike.map(|one| (one.host, one.has)));
        let difference = alike.difference(self.has)?;
        let version = found.version.as_deref().unwrap_or_default();
        let file = found.cdi.as_ref().map_or("/etc/cdi/nvidia.yaml", |(file, _)| file.as_str());
        let command = format!("sudo nvidia-ctk cdi generate --output={file}");
        let seen = format!("nvidia-container-toolkit {version} and {} ({difference})", self.has);
        let cause = "podman, and docker by --device nvidia.com/gpu=…, may give GPUs to containers on some of these hosts only";
        if alike.wanted(self.has) == Some(NO_CDI) {
            return Some(Verdict::look(seen, cause, format!("{command} on the hosts that have none, too")));
        }
        Some(Verdict::look(seen, cause, command.clone()).fixed_there(command))
    }
}

/// What a description says; `None` where there is none.
fn described(file: &str) -> Option<Found> {
    match std::fs::read_to_string(file) {
        Ok(text) => Some(Found { cdi: Some((file.to_owned(), of_driver(&text))), ..Found::default() }),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => Some(Found { is_unread: true, ..Found::default() }),
    }
}

/// The version in the name of the driver's library: `libcuda.so.550.54.14`. That of the link, `libcuda.so.1`, is none, nor is that of
/// systems whose driver lies elsewhere, `libcuda.so.1.1`.
fn of_driver(description: &str) -> Option<String> {
    description.split("libcuda.so.").skip(1).find_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        version.split_once('.').filter(|(branch, _)| branch.len() >= 3).map(|_| version.to_owned())
    })
}

/// The version that either program says: `NVIDIA Container Toolkit CLI version 1.17.4`.
fn version(said: &str) -> Option<String> {
    let (_, rest) = said.lines().next()?.split_once("version ")?;
    Some(rest.trim().to_owned()).filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

fn judge(found: &Found, driver: Option<&str>, all: &Compared<'_>) -> Verdict {
    if let (Some((file, Some(own))), Some(driver)) = (&found.cdi, driver)
        && own != driver
    {
        let remedy = format!("sudo nvidia-ctk cdi generate --output={file}");
        return Verdict::look(
            format!("{file} was written for driver {own}, and {driver} runs"),
            "containers that get their GPUs by it don't start: the files that it names are gone",
            remedy.clone(),
        )
        .fixed_there(remedy);
    }
    let Some(own) = &found.version else {
        let words = if all.is_empty() {
            "no nvidia-container-toolkit"
        } else {
            "no nvidia-container-toolkit here; other hosts have it"
        };
        return Verdict::unknown(words);
    };
    let cdi = found.cdi.as_ref().map_or_else(String::new, |(file, _)| format!(", {file}"));
    match all.difference(minor(own)) {
        None => Verdict::good(format!("nvidia-container-toolkit {own}{cdi}")),
        Some(difference) => Verdict::look(
            format!("nvidia-container-toolkit {own} ({difference})"),
            "one command may give GPUs to containers on some hosts only",
            "install the same version on all hosts",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{seen, seen_with};
    use crate::domain::gpu::GpuInfo;
    use crate::domain::host::HostInfo;

    #[test]
    fn what_the_toolkit_and_its_descriptions_say_is_read() {
        assert_eq!(
            version("NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 9b69590c\n").as_deref(),
            Some("1.17.4")
        );
        assert_eq!(version("NVIDIA Container Runtime Hook version 1.14.6\n").as_deref(), Some("1.14.6"));
        assert_eq!(version("bash: nvidia-ctk: command not found\n"), None);
        let text = "  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1\n  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n";
        assert_eq!(of_driver(text).as_deref(), Some("550.54.14"));
        assert_eq!(
            [of_driver("libcuda.so.1"), of_driver("libcuda.so.1.1"), of_driver("")],
            [None, None, None]
        );
    }

    #[test]
    fn the_odd_version_and_a_description_of_another_driver_are_told() {
        let found = |version: &str| Found { version: Some(version.to_owned()), ..Found::default() };
        let verdicts =
            Toolkit::judge(&seen([found("1.17.4"), found("1.17.8"), found("1.13.5"), Found::default()]));
        let marks: Vec<Mark> = verdicts.iter().map(|one| one.mark).collect();
        assert_eq!(marks, [Mark::Good, Mark::Good, Mark::Look, Mark::Unknown]);
        assert_eq!(verdicts[2].evidence, "nvidia-container-toolkit 1.13.5 (other hosts have 1.17)");
        let file = "/etc/cdi/nvidia.yaml".to_owned();
        let described = Found { cdi: Some((file, Some("535.54.03".into()))), ..found("1.17.4") };
        let none = Compared::new([("a", "1.17")]);
        let stale = judge(&described, Some("550.54.14"), &none);
        assert_eq!(
            stale.evidence,
            "/etc/cdi/nvidia.yaml was written for driver 535.54.03, and 550.54.14 runs"
        );
        assert!(stale.fix.is_some());
        assert_eq!(judge(&described, Some("535.54.03"), &none).mark, Mark::Good);
        assert_eq!(
            judge(&described, None, &none).mark,
            Mark::Good,
            "without a driver there is nothing to compare"
        );
    }

    #[test]
    fn a_description_that_can_not_be_read_is_not_absent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nvidia.yaml");
        let file = file.to_str().unwrap();
        assert!(described(file).is_none());
        std::fs::write(file, "  - hostPath: /lib/libcuda.so.550.54.14\n").unwrap();
        let cdi = Some((file.to_owned(), Some("550.54.14".to_owned())));
        assert_eq!(described(file).unwrap().cdi, cdi);
        let unread = described(folder.path().to_str().unwrap()).unwrap();
        assert!(unread.is_unread && unread.cdi.is_none(), "a folder can't be read");
    }

    #[test]
    fn a_host_that_describes_its_gpus_unlike_most_with_this_toolkit_is_told() {
        let mut with_gpu = seen([()])[0].info.clone();
        let without = with_gpu.clone();
        with_gpu.gpus = vec![GpuInfo::unknown(0)];
        let host = |toolkit: &str, has_cdi: bool| Found {
            version: Some(toolkit.to_owned()),
            cdi: has_cdi.then(|| ("/var/run/cdi/nvidia.yaml".to_owned(), None)),
            is_unread: false,
        };
        let judged = |hosts: Vec<(HostInfo, Found)>| Toolkit::judge(&seen_with(hosts));
        let of = |toolkit: &str, has_cdi: bool| (with_gpu.clone(), host(toolkit, has_cdi));
        let verdicts = judged(vec![
            of("1.17.4", true),
            of("1.17.8", true),
            of("1.17.4", false),
            // what can't be read, and a host that has no GPUs
            (with_gpu.clone(), Found { is_unread: true, ..host("1.17.4", false) }),
            (without, host("1.17.4", false)),
            of("1.17.4", true),
        ]);
        let marks: Vec<bool> = verdicts.iter().map(|one| one.mark == Mark::Good).collect();
        assert_eq!(marks, [true, true, false, true, true, true], "{verdicts:?}");
        assert_eq!(verdicts[2].evidence, "nvidia-container-toolkit 1.17.4 and no CDI (other hosts have CDI)");
        assert_eq!(verdicts[2].help().unwrap(), "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml");
        // the odd one has what the others lack
        let verdicts = judged(vec![of("1.17.4", false), of("1.17.4", false), of("1.17.4", true)]);
        assert_eq!([verdicts[0].mark, verdicts[2].mark], [Mark::Good, Mark::Look]);
        assert!(
            verdicts[2].fix.is_none()
                && verdicts[2].remedy.as_ref().unwrap().ends_with(" on the hosts that have none, too")
        );
        // another toolkit may do without
        let verdicts = judged(vec![of("1.17.4", true), of("1.16.2", false)]);
        assert!(verdicts.iter().all(|one| !one.evidence.contains("CDI")), "{verdicts:?}");
    }
}
