//! The values of a run's secret variables, from the moment they are needed. Pure: who reads the environment is
//! handed in.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::redaction::MASK;
use crate::domain::run::HostRun;
use crate::launch::error::LaunchError;

type Find = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Gives the value of a secret variable.
#[derive(Clone)]
pub(super) struct Lookup(Arc<Find>);

impl Lookup {
    pub(super) fn new(lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    pub(super) fn value(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lookup(…)")
    }
}

/// The values by name. They don't show in debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Values(BTreeMap<String, String>);

impl std::fmt::Debug for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Whether a variable's value is held apart.
fn is_secret((_, value): &(&String, &String)) -> bool {
    *value == MASK
}

impl Values {
    /// The values of all variables that the plans of a run hold back.
    pub(super) fn of(plans: &[HostRun], lookup: &Lookup) -> Result<Self, LaunchError> {
        let ranks = plans.iter().flat_map(|plan| &plan.ranks);
        let names = ranks.flat_map(|rank| rank.env.iter()).filter(is_secret).map(|(name, _)| name);
        let mut values = BTreeMap::new();
        for name in names {
            if !values.contains_key(name) {
                let missing = || {
                    let text =
                        format!("secret variable {name} is not set here: export it, then launch again");
                    LaunchError::usage(text)
                };
                values.insert(name.clone(), lookup.value(name).ok_or_else(missing)?);
            }
        }
        Ok(Self(values))
    }

    /// Those that the ranks of one host get.
    pub(super) fn for_host(&self, plan: &HostRun) -> impl Iterator<Item = (String, String)> {
        let wanted = |name: &str| plan.ranks.iter().any(|rank| rank.env.get(name).is_some_and(|v| v == MASK));
        self.0.iter().filter(move |(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run, rank_spec};
    use crate::domain::ids::HostId;
    use crate::domain::run::RankSpec;

    fn plan(host: &str, env: &[(&str, &str)]) -> HostRun {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HostRun { host: HostId::from(host), ..host_run(vec![RankSpec { env, ..rank_spec(0) }]) }
    }

    #[test]
    fn each_host_gets_the_values_that_its_ranks_need() {
        let plans =
            [plan("a", &[("TOKEN", MASK), ("RANK", "0")]), plan("b", &[("KEY", MASK), ("TOKEN", MASK)])];
        let values = Values::of(&plans, &Lookup::new(|name| Some(format!("value of {name}")))).unwrap();
        let names = |plan| values.for_host(plan).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&plans[0]), ["TOKEN"]);
        assert_eq!(names(&plans[1]), ["KEY", "TOKEN"]);
        assert!(!format!("{values:?}").contains("value of"));
        let error = Values::of(&plans, &Lookup::new(|_| None)).unwrap_err();
        assert_eq!(error.fault, crate::launch::error::LaunchFault::Usage);
        assert!(error.reason.starts_with("secret variable TOKEN is not set here"), "{}", error.reason);
    }
}
