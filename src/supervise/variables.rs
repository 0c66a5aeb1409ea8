//! The variables of a rank while they are put together: those of the host, and over them the rank's own. Knows nothing of
//! what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

use crate::domain::environment::EnvironmentChange;
use crate::domain::late::Late;
use crate::domain::run::{HostRun, RankSpec};
use crate::procs::marks;

/// Names, one a line, of the variables that a rank gets from hvtui, whatever its host or its launcher says; after a `-`
/// those that it does not get.
pub(super) const OWN_NAMES: &str = "HVTUI_OWN_NAMES";
/// The variable that names the file of a rank's reports.
pub(super) const REPORT: &str = "HVTUI_REPORT";

/// Variables of a launcher's process that mean nothing to another process.
const SHELLS: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
/// Where a host looks for programs and libraries, which a launcher may change for itself.
const SEARCHED: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// A rank's variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Variables {
    all: BTreeMap<OsString, OsString>,
    own: BTreeSet<OsString>,
    /// Names of those that a launcher must not give it.
    gone: BTreeSet<OsString>,
}

/// The names of the variables that a rank gets whatever its launcher says, for its rank-wrap; those that it must not have
/// after a `-`. What was activated here is among them: a launcher may carry the first host's variables to the others. Not
/// what its line names itself.
pub(super) fn own_names(spec: &HostRun, rank: &RankSpec, late: &Late, change: &EnvironmentChange) -> String {
    let marks = [marks::RUN_MARK, marks::HOST_MARK, REPORT];
    let late = late.of(rank.rank).map(|(name, _)| name.as_str());
    let options = spec.run_spec.as_ref().map(|spec| &spec.options);
    let line = options.into_iter().flat_map(|options| {
        let delegated =
            options.delegate.iter().flat_map(|launcher| launcher.line.iter().chain(&launcher.options));
        options.mpi_args.iter().chain(delegated)
    });
    let of_line: BTreeSet<&str> =
        line.map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name)).collect();
    let changed = |name: &&String| !of_line.contains(name.as_str()) && !name.contains('\n');
    let set = change.set.keys().filter(changed).map(String::as_str);
    let names: BTreeSet<&str> =
        rank.env.keys().map(String::as_str).chain(late).chain(marks).chain(set).collect();
    let gone = change.unset.iter().filter(changed).filter(|name| !names.contains(name.as_str()));
    let gone: Vec<String> = gone.map(|name| format!("-{name}")).collect();
    names.into_iter().map(str::to_owned).chain(gone).collect::<Vec<_>>().join("\n")
}

impl Variables {
    /// Those of this process, a rank-wrap, which says which of them are the rank's own.
    pub(super) fn of_this_process() -> Self {
        Self::told(std::env::vars_os())
    }

    fn told(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut all: BTreeMap<OsString, OsString> = variables.into_iter().collect();
        let names = all.remove(OsStr::new(OWN_NAMES)).unwrap_or_default();
        let names = names.to_string_lossy();
        let gone = names.lines().filter_map(|name| name.strip_prefix('-')).map(OsString::from).collect();
        let own = names.lines().filter(|name| !name.starts_with('-')).map(OsString::from).collect();
        Self { all, own, gone }
    }

    /// The same over the variables that a launcher has given to a rank, `NAME=VALUE` with NUL bytes between.
    pub(super) fn over(&self, launchers: &[u8]) -> Self {
        let (mut all, mut own) = (BTreeMap::new(), self.own.clone());
        for pair in launchers.split(|byte| *byte == 0) {
            // A name may begin with '=' on no system that is known; an empty pair is none.
            let Some(at) = pair.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else { continue };
            let (name, value) = pair.split_at(at);
            let value = value.get(1..).unwrap_or_default();
            let (name, value) = (OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()));
            let is = |names: &[&str]| names.iter().any(|one| OsStr::new(one) == name);
            if is(&SHELLS) || self.gone.contains(&name) {
                continue;
            }
            if self.all.get(&name) != Some(&value) && !is(&SEARCHED) {
                own.insert(name.clone());
            }
            all.insert(name, value);
        }
        for name in &self.own {
            if let Some(value) = self.all.get(name) {
                all.insert(name.clone(), value.clone());
            }
        }
        Self { all, own, gone: self.gone.clone() }
    }

    /// The rank's own over the variables of its image: what a process in its container has.
    pub(super) fn inside(&self, image: &BTreeMap<String, String>) -> Self {
        let mut all: BTreeMap<OsString, OsString> =
            image.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let own = self.own().map(|(name, value)| (name.to_owned(), value.to_owned()));
        all.extend(own);
        Self { all, own: self.own.clone(), gone: BTreeSet::new() }
    }

    /// The rank's own.
    pub(super) fn own(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.own.iter().filter_map(|name| Some((name.as_os_str(), self.all.get(name)?.as_os_str())))
    }

    /// Those of the host alone.
    pub(super) fn of_host(&self) -> Self {
        let all = self.all.iter().filter(|(name, _)| !self.own.contains(*name));
        let all = all.map(|(name, value)| (name.clone(), value.clone())).collect();
        Self { all, ..Self::default() }
    }

    /// The value of one.
    pub(super) fn get(&self, name: &str) -> Option<&OsStr> {
        self.all.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Whether one is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets one of the rank's own.
    pub(super) fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        let name = name.into();
        self.own.insert(name.clone());
        self.all.insert(name, value.into());
    }

    /// Sets some of the rank's own.
    pub(super) fn extend<N: Into<OsString>, V: Into<OsString>>(
        &mut self,
        more: impl IntoIterator<Item = (N, V)>,
    ) {
        for (name, value) in more {
            self.set(name, value);
        }
    }

    /// Removes those of a name.
    pub(super) fn retain(&mut self, keep: impl Fn(&OsStr) -> bool) {
        self.all.retain(|name, _| keep(name));
    }

    /// A command gets these and no other ones.
    pub(super) fn give_to(&self, command: &mut Command) {
        command.env_clear().envs(&self.all);
    }
}

#[cfg(test)]
impl<'a> FromIterator<&'a (&'a str, &'a str)> for Variables {
    fn from_iter<I: IntoIterator<Item = &'a (&'a str, &'a str)>>(pairs: I) -> Self {
        Self::told(pairs.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_gets_its_launchers_variables_and_its_own_over_them() {
        let own = [
            (OWN_NAMES, "RANK\nHVTUI_SECRET\nNONE\n-PYTHONHOME"),
            ("RANK", "3"),
            ("HVTUI_SECRET", "s"),
            ("PATH", "/ours"),
            ("LANG", "C"),
        ];
        let own: Variables = own.iter().collect();
        let merged = own
            .over(b"PYTHONHOME=/\0PATH=/x=y\0LANG=C\0RANK=9\0OMPI_COMM_WORLD_RANK=3\0PWD=/\0bad\0E=\0=z\0");
        let get = |name: &str| merged.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(get("PATH"), Some("/x=y"), "the launcher's where the run names none");
        assert_eq!(get("RANK"), Some("3"));
        assert_eq!(get("OMPI_COMM_WORLD_RANK"), Some("3"));
        assert_eq!((get("E"), get("HVTUI_SECRET")), (Some(""), Some("s")));
        assert_eq!((get("PWD"), get(OWN_NAMES)), (None, None));
        assert_eq!(merged.all.len(), 6);
        let names: Vec<&str> = merged.own.iter().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["E", "HVTUI_SECRET", "NONE", "OMPI_COMM_WORLD_RANK", "RANK"]);
    }
}
