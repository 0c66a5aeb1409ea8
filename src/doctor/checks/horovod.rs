//! Whether Horovod's own libraries find all that they were linked with.

use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Horovod;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// Its version; absent without Horovod.
    version: Option<String>,
    /// The frameworks that it was built for.
    frameworks: Vec<String>,
    /// Libraries that the loader does not find.
    missing: Vec<String>,
}

impl Check for Horovod {
    const NAME: &'static str = "horovod";
    const ASKS: &'static str = "does Horovod find the libraries that it was built with";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let mut found = Found { version: told.packages.get("horovod").cloned(), ..Found::default() };
        let ldd = site.program("ldd").unwrap_or_else(|| "/usr/bin/ldd".into());
        for library in told.libraries.iter().take(8) {
            let framework = library.parent().and_then(|folder| folder.file_name());
            found.frameworks.extend(framework.map(|name| name.to_string_lossy().into_owned()));
            let said = site.ask(&ldd, &[&library.to_string_lossy()])?;
            let absent = said.out.lines().filter(|line| line.contains("=> not found"));
            // the framework's own are loaded by its import
            let own = |name: &&str| {
                !name.starts_with("libtensorflow")
                    && !name.starts_with("libtorch")
                    && !name.starts_with("libc10")
            };
            found.missing.extend(
                absent.filter_map(|line| line.split_whitespace().next()).filter(own).map(str::to_owned),
            );
        }
        found.missing.sort();
        found.missing.dedup();
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

fn judge(found: &Found) -> Verdict {
    let Some(version) = found.version.as_deref() else { return Verdict::unknown("no Horovod") };
    if !found.missing.is_empty() {
        let missing = found.missing.join(", ");
        return Verdict::bad(
            format!("Horovod {version} does not find {missing}"),
            "import horovod fails on this host, and the others wait for its ranks",
            "put their folder on LD_LIBRARY_PATH (--env), or build it anew: pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    if found.frameworks.is_empty() {
        return Verdict::bad(
            format!("Horovod {version} is built for no framework"),
            "import horovod.torch and horovod.tensorflow fail",
            "HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir --force-reinstall horovod",
        );
    }
    Verdict::good(format!("Horovod {version} for {}", found.frameworks.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn what_is_not_found_is_named() {
        let found = |frameworks: &[&str], missing: &[&str]| {
            let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            judge(&Found {
                version: Some("0.28.1".into()),
                frameworks: all(frameworks),
                missing: all(missing),
            })
        };
        assert_eq!(found(&["torch"], &[]).mark, Mark::Good);
        let broken = found(&["torch"], &["libmpi.so.40"]);
        assert_eq!(
            (broken.mark, broken.evidence.as_str()),
            (Mark::Bad, "Horovod 0.28.1 does not find libmpi.so.40")
        );
        assert_eq!(found(&[], &[]).mark, Mark::Bad);
        assert_eq!(judge(&Found::default()).mark, Mark::Unknown);
    }
}
