//! Whether the loader finds the same NCCL, cuDNN and CUDA everywhere.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::compare::Compared;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

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
    /// Versions by library.
    type Found = BTreeMap<String, String>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let mut found = BTreeMap::new();
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
        let judge = |one: &Seen<'_, Self::Found>| {
            let mut differ = Vec::new();
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

/// The libraries of the loader's cache: name and file, in its order.
pub(super) fn cached(site: &Site) -> Result<Vec<(String, String)>, String> {
    let program = site.program("ldconfig").or_else(|| {
        let usual = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].map(Path::new);
        usual.into_iter().find(|path| path.exists()).map(Path::to_owned)
    });
    let told = site.ask(&program.ok_or("no ldconfig there")?, &["-p"])?;
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
