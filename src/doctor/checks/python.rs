//! Whether Python and what a run imports are the same everywhere.

use std::collections::BTreeSet;

use super::super::compare::{difference, minor};
use super::super::python::Python as Told;
use super::super::{Check, Seen, Site};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Python;

/// Of these a difference ends a run, of the others it may.
const FATAL: [&str; 4] = ["torch", "tensorflow", "horovod", "jax"];

impl Check for Python {
    const NAME: &'static str = "python";
    const ASKS: &'static str = "are Python, torch, TensorFlow, Horovod and their like the same on all hosts";
    type Found = Option<Told>;

    fn look(site: &Site) -> Result<Option<Told>, String> {
        if site.program("python3").or_else(|| site.program("python")).is_none() {
            return Ok(None);
        }
        site.python().map(Some)
    }

    fn judge(seen: &[Seen<'_, Option<Told>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one, seen)).collect()
    }
}

fn judge(one: &Seen<'_, Option<Told>>, all: &[Seen<'_, Option<Told>>]) -> Verdict {
    let others = || all.iter().filter_map(|other| Some((other.host.as_str(), other.found.as_ref()?)));
    let Some(own) = &one.found else {
        if others().next().is_none() {
            return Verdict::unknown("no python3");
        }
        let cause = "a Python script that other hosts run is not started here";
        return Verdict::look(
            "no python3 on the PATH of commands over ssh",
            cause,
            "install python3, or run with --conda or --env-from-login",
        );
    };
    let mut differ = Vec::new();
    let mut is_fatal = false;
    let versions: Vec<(&str, &str)> = others().map(|(host, told)| (host, minor(&told.version))).collect();
    if let Some(difference) = difference(minor(&own.version), &versions) {
        differ.push(format!("Python {} ({difference})", own.version));
    }
    let names: BTreeSet<&String> = others().flat_map(|(_, told)| told.packages.keys()).collect();
    let mut install = Vec::new();
    for name in names {
        let of = |told: &'_ Told| told.packages.get(name).cloned();
        let owned: Vec<(&str, String)> =
            others().map(|(host, told)| (host, of(told).unwrap_or_else(|| "none".to_owned()))).collect();
        let versions: Vec<(&str, &str)> =
            owned.iter().map(|(host, version)| (*host, version.as_str())).collect();
        let version = of(own);
        let words = version.clone().unwrap_or_else(|| "none".to_owned());
        if let Some(difference) = difference(&words, &versions) {
            let wanted = super::super::compare::common(versions.iter().map(|(_, version)| *version));
            let wanted =
                wanted.or_else(|| versions.iter().map(|(_, version)| *version).find(|one| *one != words));
            install
                .extend(wanted.filter(|wanted| *wanted != "none").map(|wanted| format!("{name}=={wanted}")));
            is_fatal |= FATAL.contains(&name.as_str());
            differ.push(match version {
                Some(version) => format!("{name} {version} ({difference})"),
                None => format!("no {name} ({difference})"),
            });
        }
    }
    let at = own.executable.clone();
    if differ.is_empty() {
        let mut all: Vec<String> =
            FATAL.iter().filter_map(|name| Some(format!("{name} {}", own.packages.get(*name)?))).collect();
        all.insert(0, format!("{at} {}", own.version));
        return Verdict::good(all.join(", "));
    }
    let seen = format!("{at}: {}", differ.join(", "));
    let cause =
        "ranks of one run import other versions: they fail at the import, when they connect, or only later";
    let remedy = if install.is_empty() {
        "use the same Python on all hosts: --conda, --venv, or an image".to_owned()
    } else {
        format!("{at} -m pip install {}", install.join(" "))
    };
    if is_fatal { Verdict::bad(seen, cause, remedy) } else { Verdict::look(seen, cause, remedy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn told(version: &str, packages: &[(&str, &str)]) -> Told {
        let packages =
            packages.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let (executable, version) = ("/opt/conda/bin/python3".to_owned(), version.to_owned());
        Told { executable, version, packages, torch_cuda: None, libraries: Vec::new() }
    }

    #[test]
    fn what_differs_is_told_with_what_makes_it_alike() {
        let alike = || Some(told("3.11.2", &[("torch", "2.4.0"), ("numpy", "1.26.0")]));
        let odd = told("3.11.9", &[("torch", "2.3.1"), ("numpy", "1.26.0")]);
        let verdicts = Python::judge(&seen([alike(), alike(), Some(odd)]));
        assert_eq!(verdicts[0].evidence, "/opt/conda/bin/python3 3.11.2, torch 2.4.0");
        assert_eq!(verdicts[2].mark, Mark::Bad);
        assert_eq!(verdicts[2].evidence, "/opt/conda/bin/python3: torch 2.3.1 (other hosts have 2.4.0)");
        assert_eq!(verdicts[2].remedy.as_deref(), Some("/opt/conda/bin/python3 -m pip install torch==2.4.0"));
        let old = told("3.9.2", &[("torch", "2.4.0"), ("numpy", "1.26.0")]);
        assert_eq!(Python::judge(&seen([alike(), alike(), Some(old)]))[2].mark, Mark::Look);
        let without = told("3.11.2", &[("torch", "2.4.0")]);
        let verdict = &Python::judge(&seen([alike(), alike(), Some(without)]))[2];
        assert_eq!(
            (verdict.mark, verdict.evidence.as_str()),
            (Mark::Look, "/opt/conda/bin/python3: no numpy (other hosts have 1.26.0)")
        );
        assert_eq!(Python::judge(&seen([alike(), None]))[1].mark, Mark::Look);
        assert_eq!(Python::judge(&seen([None, None]))[1].mark, Mark::Unknown);
    }
}
