//! Whether the hosts have imported the same: Python, the frameworks, and NCCL, as they are in the environment of the job. Pure.

use std::collections::BTreeMap;

use super::super::super::compare::{Compared, minor};
use super::super::super::{Seen, shell_word};
use super::super::python::{FATAL, pip_words};
use super::Tried;
use crate::domain::doctor::Verdict;

/// Of the versions that an import tells, these are no package's.
const PYTHON: &str = "Python";
const NCCL: &str = "NCCL";

/// Versions of all hosts that tell them, by name.
pub(super) type All<'a> = BTreeMap<&'a str, Compared<'a>>;

/// What one host has imported, by name.
fn of(tried: &[Tried]) -> BTreeMap<&str, &str> {
    tried
        .iter()
        .flat_map(|one| &one.versions)
        .map(|(name, version)| (name.as_str(), version.as_str()))
        .collect()
}

/// As much of a version as has to be the same.
fn counted<'a>(name: &str, version: &'a str) -> &'a str {
    if name == PYTHON { minor(version) } else { version }
}

/// What all hosts have imported.
pub(super) fn of_all<'a>(seen: &'a [Seen<'_, Vec<Tried>>]) -> All<'a> {
    let mut all: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for one in seen {
        for (name, version) in of(&one.found) {
            all.entry(name).or_default().push((one.host.as_str(), counted(name, version)));
        }
    }
    all.into_iter().map(|(name, versions)| (name, Compared::new(versions))).collect()
}

/// The verdict on a host that has imported another version than the others; `None` where it has not.
pub(super) fn judge(tried: &[Tried], all: &All<'_>) -> Option<Verdict> {
    let python = &tried.first()?.python;
    let (mut differ, mut install, mut is_fatal) = (Vec::new(), Vec::new(), false);
    for (name, version) in of(tried) {
        let (Some(versions), own) = (all.get(name), counted(name, version)) else { continue };
        let Some(difference) = versions.difference(own) else { continue };
        differ.push(format!("{name} {version} ({difference})"));
        is_fatal |= name == NCCL || FATAL.contains(&name);
        let wanted = versions.wanted(own).filter(|_| name != PYTHON && name != NCCL);
        install.extend(wanted.and_then(|wanted| pip_words(name, own, wanted)));
    }
    if differ.is_empty() {
        return None;
    }
    let seen = format!("{python}: {}", differ.join(", "));
    let cause =
        "ranks of one run import other versions: they fail at the import, when they connect, or only later";
    let remedy = if install.is_empty() {
        "make the environment that the run starts in the same on all hosts, or start it in an image"
            .to_owned()
    } else {
        format!("{} -m pip install {}", shell_word(python), install.join(" "))
    };
    let verdict = if is_fatal {
        Verdict::bad(seen, cause, remedy.clone()).may_run()
    } else {
        Verdict::look(seen, cause, remedy.clone())
    };
    Some(if install.is_empty() { verdict } else { verdict.fixed_there(remedy) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn tried(versions: &[(&str, &str)]) -> Vec<Tried> {
        let python = "/opt/conda/envs/train/bin/python3".to_owned();
        let versions =
            versions.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        vec![Tried { module: "torch".to_owned(), python, versions, ..Tried::default() }]
    }

    /// The verdict on the last of three hosts, of which the others have the first versions.
    fn last(common: &[(&str, &str)], odd: &[(&str, &str)]) -> Option<Verdict> {
        let seen = seen([tried(common), tried(common), tried(odd)]);
        let all = of_all(&seen);
        assert_eq!(judge(&seen[0].found, &all), None);
        judge(&seen[2].found, &all)
    }

    #[test]
    fn another_framework_is_red_and_another_python_is_yellow() {
        let usual = [("Python", "3.11.2"), ("torch", "2.4.0"), ("numpy", "1.26.4")];
        assert_eq!(last(&usual, &[("Python", "3.11.9"), ("torch", "2.4.0"), ("numpy", "1.26.4")]), None);
        let red = last(&usual, &[("Python", "3.11.2"), ("torch", "2.3.1")]).unwrap();
        assert_eq!(
            (red.mark, red.for_launch(), red.evidence.as_str()),
            (
                Mark::Bad,
                Mark::Look,
                "/opt/conda/envs/train/bin/python3: torch 2.3.1 (other hosts have 2.4.0)"
            )
        );
        assert_eq!(
            red.remedy.as_deref(),
            Some("/opt/conda/envs/train/bin/python3 -m pip install torch==2.4.0")
        );
        let python = last(&usual, &[("Python", "3.9.2"), ("torch", "2.4.0")]).unwrap();
        assert!(
            python.mark == Mark::Look && python.evidence.ends_with("Python 3.9.2 (other hosts have 3.11)")
        );
        assert!(python.fix.is_none() && python.remedy.unwrap().starts_with("make the environment"));
        assert_eq!(last(&usual, &[("numpy", "2.0.1")]).unwrap().mark, Mark::Look);
        // nothing is told by one that was not imported, or by an import that is remembered from before
        assert_eq!(last(&usual, &[]), None);
    }

    #[test]
    fn another_nccl_is_red_although_torch_is_the_same() {
        let nccl = |version| [("NCCL", version), ("torch", "2.4.0+cu121")];
        let red = last(&nccl("2.20.5"), &nccl("2.21.5")).unwrap();
        assert_eq!((red.mark, red.fix.is_none()), (Mark::Bad, true));
        assert_eq!(last(&nccl("2.20.5"), &nccl("2.20.5")), None);
    }
}
