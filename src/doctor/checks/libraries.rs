//! Whether the loader finds the same NCCL, cuDNN and CUDA everywhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::compare::Compared;
use super::super::{Check, OfImage, Seen, Site};
use crate::domain::doctor::Verdict;
use crate::program::asked::Told;

pub(in crate::doctor) struct Libraries;

const WANTED: [(&str, &str); 4] = [
    ("libnccl.so", "NCCL"),
    ("libcudnn.so", "cuDNN"),
    ("libcudart.so", "CUDA runtime"),
    ("libmpi.so", "MPI library"),
];

impl Check for Libraries {
    const NAME: &'static str = "libraries";
    const ASKS: &'static str = "are the system's NCCL, cuDNN, CUDA and MPI libraries the same on all hosts";
    const OF_IMAGE: OfImage = OfImage::Inside;
    /// Versions by library.
    type Found = BTreeMap<String, String>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let mut found = BTreeMap::new();
        found.extend(toolkit().map(|version| (TOOLKIT.to_owned(), version)));
        // the loader looks there first
        let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        for (title, version) in
            folders.split(':').filter(|one| one.starts_with('/')).flat_map(|one| inside(Path::new(one)))
        {
            found.entry(title.to_owned()).or_insert(version);
        }
        for (name, file) in cached(site)? {
            let wanted = WANTED.iter().find(|(wanted, _)| name.starts_with(wanted));
            if let Some((_, title)) = wanted {
                found.entry((*title).to_owned()).or_insert_with(|| version(&file));
            }
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let of = |one: &'_ Seen<'_, Self::Found>, title: &str| {
            one.found.get(title).cloned().unwrap_or_else(|| "none".to_owned())
        };
        let versions = WANTED.map(|(_, title)| {
            let all = seen.iter().map(|one| (one.host.as_str(), of(one, title)));
            (title, all.collect::<Vec<_>>())
        });
        let compared = versions.each_ref().map(|(title, all)| {
            (*title, Compared::new(all.iter().map(|(host, version)| (*host, version.as_str()))))
        });
        // not every host builds: one without it lacks nothing
        let toolkits =
            seen.iter().filter_map(|one| Some((one.host.as_str(), one.found.get(TOOLKIT)?.as_str())));
        let toolkits = Compared::new(toolkits);
        let judge = |one: &Seen<'_, Self::Found>| {
            let mut differ = Vec::new();
            if let Some((own, difference)) =
                one.found.get(TOOLKIT).and_then(|own| Some((own, toolkits.difference(own)?)))
            {
                differ.push(format!("{TOOLKIT} {own} ({difference})"));
            }
            for (title, all) in &compared {
                let own = of(one, title);
                if let Some(difference) = all.difference(&own) {
                    differ.push(format!("{title} {own} ({difference})"));
                }
            }
            if !differ.is_empty() {
                return Verdict::look(
                    differ.join(", "),
                    "ranks that speak unlike versions may fail when they connect, or give other numbers",
                    "install the same version on all hosts, or start in the same container image",
                );
            }
            let all: Vec<String> =
                one.found.iter().map(|(title, version)| format!("{title} {version}")).collect();
            if all.is_empty() {
                return Verdict::good("none in the system: frameworks bring their own");
            }
            Verdict::good(all.join(", "))
        };
        seen.iter().map(judge).collect()
    }
}

/// CUDA's compiler and headers, where its installer puts them.
const TOOLKIT: &str = "CUDA toolkit";
const AT: &str = "/usr/local/cuda";
/// Files of a folder that are looked at.
const FILES: usize = 5000;

/// Its version, as its own file says it.
fn toolkit() -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(Path::new(AT).join(name)).ok();
    let by_json = || {
        let told: serde_json::Value = serde_json::from_str(&read("version.json")?).ok()?;
        Some(told["cuda"]["version"].as_str()?.to_owned())
    };
    // of CUDA 10 and before: `CUDA Version 10.2.89`
    by_json().or_else(|| Some(read("version.txt")?.split_whitespace().nth(2)?.to_owned()))
}

/// The libraries of a folder, and their versions.
fn inside(folder: &Path) -> Vec<(&'static str, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(FILES).flatten();
    let title = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        // without a number it is for linking
        let (_, title) = WANTED
            .iter()
            .find(|(wanted, _)| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.')))?;
        Some((*title, version(path.to_str()?)))
    };
    let mut found: Vec<_> = entries.filter_map(|entry| title(entry.path())).collect();
    found.sort();
    found.dedup_by_key(|(title, _)| *title);
    found
}

/// The libraries of the loader's cache: name and file, in its order. That of an environment which is on the `PATH`, as conda's, would
/// tell of another cache.
pub(super) fn cached(site: &Site) -> Result<Vec<(String, String)>, String> {
    entries(site.ask(&ldconfig(site)?, &["-p"])?.as_ref())
}

/// The same, waited for no longer than this.
pub(super) fn cached_within(site: &Site, patience: Duration) -> Result<Vec<(String, String)>, String> {
    entries(site.ask_soon(&ldconfig(site)?, &["-p"], patience)?.as_ref())
}

fn ldconfig(site: &Site) -> Result<PathBuf, String> {
    let usual = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].map(Path::new);
    let own = usual.into_iter().find(|path| path.exists()).map(Path::to_owned);
    own.or_else(|| site.program("ldconfig")).ok_or_else(|| "no ldconfig there".to_owned())
}

fn entries(told: &Told) -> Result<Vec<(String, String)>, String> {
    if !told.status.success() {
        return Err(format!("ldconfig -p: {}", told.last_words()));
    }
    Ok(told.out.lines().filter_map(entry).collect())
}

fn entry(line: &str) -> Option<(String, String)> {
    let (name, file) = line.trim().split_once(" => ")?;
    Some((name.split_whitespace().next()?.to_owned(), file.trim().to_owned()))
}

/// What stands behind `.so.` in the name of the file that is meant: `2.18.3`; its whole name where nothing does.
fn version(file: &str) -> String {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.into());
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split_once(".so.").map_or(name.clone(), |(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    #[test]
    fn the_cache_is_read_as_ldconfig_prints_it() {
        let line = "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2";
        let (name, file) = entry(line).unwrap();
        assert_eq!(
            (name.as_str(), file.as_str()),
            ("libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2")
        );
        assert_eq!(entry("123 libs found in cache `/etc/ld.so.cache'"), None);
        assert_eq!(version("/no/such/libnccl.so.2.18.3"), "2.18.3");
    }

    #[test]
    fn what_a_folder_holds_is_told_by_its_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "libnccl.so.2.18.3",
            "libcudart.so.12.4.99",
            "libnccl_static.a",
            "libcudart.so",
            "libnccl-net.so.1",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("libnccl.so.2.18.3", folder.path().join("libnccl.so.2")).unwrap();
        let found = inside(folder.path());
        assert_eq!(found, [("CUDA runtime", "12.4.99".to_owned()), ("NCCL", "2.18.3".to_owned())]);
        assert!(inside(Path::new("/no/such/folder")).is_empty());
    }

    #[test]
    fn a_host_that_builds_nothing_lacks_no_toolkit() {
        let of = |version: Option<&str>| {
            version.map(|one| (TOOLKIT.to_owned(), one.to_owned())).into_iter().collect::<BTreeMap<_, _>>()
        };
        let marks = |hosts: [Option<&str>; 3]| -> Vec<Mark> {
            Libraries::judge(&seen(hosts.map(of))).iter().map(|one| one.mark).collect()
        };
        assert_eq!(marks([Some("12.4.1"), None, None]), [Mark::Good; 3]);
        assert_eq!(
            marks([Some("12.4.1"), Some("12.4.1"), Some("11.8.0")]),
            [Mark::Good, Mark::Good, Mark::Look]
        );
    }

    #[test]
    fn the_host_with_another_version_is_named() {
        let of = |version: &str| BTreeMap::from([("NCCL".to_owned(), version.to_owned())]);
        let verdicts = Libraries::judge(&seen([of("2.18.3"), of("2.18.3"), of("2.19.0")]));
        assert_eq!(
            verdicts.iter().map(|one| one.mark).collect::<Vec<_>>(),
            [Mark::Good, Mark::Good, Mark::Look]
        );
        assert_eq!(verdicts[2].evidence, "NCCL 2.19.0 (other hosts have 2.18.3)");
    }
}
