//! Which run of the list comes first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ListedRun;
use crate::domain::run::RunSpec;
use crate::domain::time::Stamp;

/// The orders of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOrder {
    /// The latest launch first.
    #[default]
    Newest,
    /// The longest first.
    Longest,
    /// The largest recording first.
    Largest,
    /// By name.
    Name,
    /// What goes on first, then what failed.
    Outcome,
    /// The lowest loss first.
    Loss,
    /// The most samples a second first.
    Fastest,
    /// Runs of one commit together, that of the latest launch first; of one commit those first from which nothing differed.
    Git,
}

impl RunOrder {
    /// All of them, as the key goes through them.
    pub const ALL: [Self; 8] = [
        Self::Newest,
        Self::Longest,
        Self::Largest,
        Self::Name,
        Self::Outcome,
        Self::Loss,
        Self::Fastest,
        Self::Git,
    ];

    /// Its name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Longest => "longest",
            Self::Largest => "largest",
            Self::Name => "name",
            Self::Outcome => "outcome",
            Self::Loss => "loss",
            Self::Fastest => "fastest",
            Self::Git => "git",
        }
    }

    /// The order of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name)
    }

    /// Its name on the screen.
    pub fn words(self) -> &'static str {
        match self {
            Self::Newest => "newest first",
            Self::Longest => "longest first",
            Self::Largest => "largest first",
            Self::Name => "by name",
            Self::Outcome => "by outcome",
            Self::Loss => "lowest loss first",
            Self::Fastest => "most samples/s first",
            Self::Git => "by commit, newest first",
        }
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Sorts a list; among equals the newest comes first. What is not known comes last.
    pub fn sort<T>(self, runs: &mut [T], listed: impl for<'a> Fn(&'a T) -> ListedRun<'a>) {
        let mut launched: BTreeMap<String, Stamp> = BTreeMap::new();
        for run in runs.iter().filter(|_| self == Self::Git) {
            let spec = listed(run).spec;
            if let Some(commit) = commit(spec) {
                let newest = launched.entry(commit.to_owned()).or_insert(spec.created);
                *newest = spec.created.max(*newest);
            }
        }
        // where none is known, after all that are
        let code = |spec: &RunSpec| commit(spec).and_then(|commit| launched.get_key_value(commit));
        runs.sort_by(|a, b| {
            let (a, b) = (listed(a), listed(b));
            let by_code = || {
                let [of_a, of_b] =
                    [code(a.spec), code(b.spec)].map(|code| code.map(|(commit, at)| (at, commit)));
                of_b.cmp(&of_a).then_with(|| changes(a.spec).cmp(&changes(b.spec)))
            };
            let order = if self == Self::Git { by_code() } else { self.compare(&a, &b) };
            order.then_with(|| (b.spec.created, &b.spec.id).cmp(&(a.spec.created, &a.spec.id)))
        });
    }

    fn compare(self, a: &ListedRun<'_>, b: &ListedRun<'_>) -> Ordering {
        match self {
            Self::Newest | Self::Git => Ordering::Equal,
            Self::Longest => b.duration_us.cmp(&a.duration_us),
            Self::Largest => b.bytes.cmp(&a.bytes),
            Self::Name => a.spec.name.to_lowercase().cmp(&b.spec.name.to_lowercase()),
            Self::Outcome => a.state.cmp(&b.state),
            Self::Loss => {
                let loss = |run: &ListedRun<'_>| {
                    run.trained.and_then(|trained| trained.loss).unwrap_or(f32::INFINITY)
                };
                loss(a).total_cmp(&loss(b))
            }
            Self::Fastest => {
                let rate = |run: &ListedRun<'_>| {
                    run.trained.and_then(|trained| trained.samples_per_s).unwrap_or(-1.0)
                };
                rate(b).total_cmp(&rate(a))
            }
        }
    }
}

/// What differed from the commit: nothing, then each change together, then what git could not tell.
fn changes(spec: &RunSpec) -> (bool, Option<&str>) {
    spec.code.as_ref().map_or((false, None), |code| (code.unclear, code.dirty.as_deref()))
}

/// The commit of the code that a run was launched with.
fn commit(spec: &RunSpec) -> Option<&str> {
    spec.code.as_ref()?.commit.as_deref()
}
