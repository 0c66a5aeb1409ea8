//! Whether the NCCL, cuDNN and CUDA that Python's packages bring along are the same everywhere, and those that the frameworks
//! were built with.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::super::compare::{Compared, numbers};
use super::super::{Check, OfImage, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Packages;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The Python; absent without one.
    executable: Option<String>,
    /// Versions by package.
    packages: BTreeMap<String, String>,
    /// What a framework was built with: its name, the package, the version.
    wants: Vec<(String, String, String)>,
    /// The frameworks and numpy.
    frameworks: BTreeMap<String, String>,
}

impl Check for Packages {
    const NAME: &'static str = "packages";
    const ASKS: &'static str =
        "are NCCL, cuDNN and CUDA of Python's packages the same on all hosts, and fit its frameworks";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let Ok(told) = site.python() else { return Ok(Found::default()) };
        let frameworks = told.packages.into_iter();
        Ok(Found {
            executable: Some(told.executable),
            packages: told.cuda_packages,
            wants: told.wants,
            frameworks: frameworks
                .filter(|(name, _)| ["numpy", "torch", "tensorflow"].contains(&name.as_str()))
                .collect(),
        })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        let names: BTreeSet<&String> = seen.iter().flat_map(|one| one.found.packages.keys()).collect();
        let all: Vec<(&str, Compared<'_>)> = names
            .into_iter()
            .map(|name| {
                let with_python = seen.iter().filter(|one| one.found.executable.is_some());
                (
                    name.as_str(),
                    Compared::new(with_python.map(|one| (one.host.as_str(), version(&one.found, name)))),
                )
            })
            .collect();
        seen.iter().map(|one| judge(&one.found, &all)).collect()
    }
}

fn version<'a>(found: &'a Found, name: &str) -> &'a str {
    found.packages.get(name).map_or("none", String::as_str)
}

/// Frameworks that were built for numpy 1, and how they end with numpy 2.
fn old_for_numpy(found: &Found) -> Option<(String, &'static str)> {
    let of = |name: &str| Some((found.frameworks.get(name)?.as_str(), numbers(found.frameworks.get(name)?)?));
    let (numpy, _) = of("numpy").filter(|(_, (major, _))| *major >= 2)?;
    [("tensorflow", (2, 18)), ("torch", (2, 3))].into_iter().find_map(|(name, first)| {
        let (version, numbers) = of(name)?;
        (numbers < first).then(|| (format!("{name} {version} beside numpy {numpy}"), name))
    })
}

fn judge(found: &Found, all: &[(&str, Compared<'_>)]) -> Verdict {
    let Some(python) = &found.executable else { return Verdict::unknown("no Python") };
    let pip = format!("{} -m pip install", shell_word(python));
    if let Some((seen, framework)) = old_for_numpy(found) {
        let cause = "\"A module that was compiled using NumPy 1.x cannot be run in NumPy 2\": the import fails, or arrays do";
        let remedy = format!("{pip} 'numpy<2'");
        let verdict = match framework {
            // a run of another framework imports none of it
            "tensorflow" => Verdict::bad(seen, cause, remedy.clone()).may_run(),
            _ => Verdict::look(seen, cause, remedy.clone()),
        };
        return verdict.fixed_there(remedy);
    }
    let unlike = |(_, package, wanted): &&(String, String, String)| {
        found.packages.get(package).is_some_and(|there| there != wanted)
    };
    let replaced: Vec<&(String, String, String)> = found.wants.iter().filter(unlike).collect();
    if !replaced.is_empty() {
        let say = |(framework, package, wanted): &&(String, String, String)| {
            format!("{framework} was built with {package} {wanted}, and {} is there", version(found, package))
        };
        let install = |(_, package, wanted): &&(String, String, String)| {
            shell_word(&format!("{package}=={wanted}")).into_owned()
        };
        let remedy = format!("{pip} {}", replaced.iter().map(install).collect::<Vec<_>>().join(" "));
        return Verdict::look(
            replaced.iter().map(say).collect::<Vec<_>>().join(", "),
            "another package has replaced it: \"undefined symbol\" at the import, or errors of cuDNN and NCCL later",
            remedy.clone(),
        )
        .fixed_there(remedy);
    }
    let differ = all.iter().filter_map(|(name, all)| {
        let own = version(found, name);
        Some((*name, format!("{name} {own} ({})", all.difference(own)?)))
    });
    let differ: Vec<(&str, String)> = differ.collect();
    if !differ.is_empty() {
        let words: Vec<&str> = differ.iter().map(|(_, words)| words.as_str()).collect();
        let remedy = "use the same environment on all hosts: --conda, --venv, or an image";
        // what is merely there, and no framework here was built with, is a difference like others
        let is_used = |name: &str| found.wants.iter().any(|(_, package, _)| package == name);
        let is_fatal = |name: &str| name.contains("nccl") && is_used(name) && version(found, name) != "none";
        return if differ.iter().any(|(name, _)| is_fatal(name)) {
            let cause = "ranks that speak unlike NCCL versions fail when they connect";
            Verdict::bad(words.join(", "), cause, remedy).may_run()
        } else {
            Verdict::look(
                words.join(", "),
                "ranks compute with unlike libraries: other numbers, or another speed",
                remedy,
            )
        };
    }
    let shown = |name: &str| name.contains("nccl") || name.contains("cudnn");
    let all: Vec<String> = found
        .packages
        .iter()
        .filter(|(name, _)| shown(name))
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    match (all.is_empty(), found.packages.is_empty()) {
        (true, true) => Verdict::good("Python brings no CUDA libraries along"),
        (true, false) => Verdict::good(format!("{} packages of CUDA", found.packages.len())),
        (false, _) => Verdict::good(all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn found(packages: &[(&str, &str)], frameworks: &[(&str, &str)]) -> Found {
        let owned = |all: &[(&str, &str)]| {
            all.iter().map(|(name, version)| ((*name).into(), (*version).into())).collect()
        };
        Found {
            executable: Some("/opt/python".into()),
            packages: owned(packages),
            wants: vec![
                ("torch".into(), "nvidia-cudnn-cu12".into(), "9.1.0.70".into()),
                ("torch".into(), "nvidia-nccl-cu12".into(), packages.first().map_or("", |one| one.1).into()),
            ],
            frameworks: owned(frameworks),
        }
    }

    #[test]
    fn another_nccl_ends_a_run_and_another_cublas_may() {
        let of = |name: &str, versions: [&str; 3]| {
            Packages::judge(&seen(versions.map(|version| found(&[(name, version)], &[]))))
        };
        let nccl = of("nvidia-nccl-cu12", ["2.20.5", "2.20.5", "2.21.5"]);
        assert_eq!(nccl[0].mark, Mark::Good);
        assert_eq!(
            (nccl[2].mark, nccl[2].evidence.as_str()),
            (Mark::Bad, "nvidia-nccl-cu12 2.21.5 (other hosts have 2.20.5)")
        );
        assert!(nccl[2].may_run, "it may be a run on CPUs");
        let other = of("nvidia-nccl-cu11", ["2.20.5", "2.20.5", "2.21.5"]);
        assert_eq!(other[2].mark, Mark::Look, "torch is not built with it");
        assert_eq!(of("nvidia-cublas-cu12", ["12.1", "12.1", "12.4"])[2].mark, Mark::Look);
        let without =
            Packages::judge(&seen([found(&[("nvidia-nccl-cu12", "2.20.5")], &[]), Found::default()]));
        assert_eq!((without[0].mark, without[1].mark), (Mark::Good, Mark::Unknown));
    }

    #[test]
    fn what_has_replaced_a_library_is_told_with_the_one_that_was_built_with() {
        let verdict = &Packages::judge(&seen([found(&[("nvidia-cudnn-cu12", "8.9.2.26")], &[])]))[0];
        assert_eq!(
            verdict.evidence,
            "torch was built with nvidia-cudnn-cu12 9.1.0.70, and 8.9.2.26 is there"
        );
        assert_eq!(
            verdict.remedy.as_deref(),
            Some("/opt/python -m pip install 'nvidia-cudnn-cu12==9.1.0.70'")
        );
    }

    #[test]
    fn numpy_two_is_told_beside_what_was_built_for_one() {
        let of = |frameworks: &[(&str, &str)]| Packages::judge(&seen([found(&[], frameworks)]))[0].mark;
        assert_eq!(of(&[("numpy", "2.0.1"), ("tensorflow", "2.15.0")]), Mark::Bad);
        assert_eq!(of(&[("numpy", "2.0.1"), ("torch", "2.2.2")]), Mark::Look);
        assert_eq!(of(&[("numpy", "2.0.1"), ("torch", "2.3.0"), ("tensorflow", "2.18.0")]), Mark::Good);
        assert_eq!(of(&[("numpy", "1.26.4"), ("torch", "2.2.2")]), Mark::Good);
    }
}
