//! Resource limits of ranks: checked by the agent, set around the start of a rank or of a launcher.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

use super::error::EnvironmentError;
use crate::domain::environment::{Bound, Limit};
use crate::procs::secrecy;

/// Open files that a rank may have where nothing is said and the host allows it: with the usual 1024 loaders of data fail.
/// No more, for there are programs that go through all numbers up to the limit.
const FILES: u64 = 65_536;

/// Whether this host lets its user have these limits.
pub(super) fn check(limits: &BTreeMap<Limit, Bound>) -> Result<(), EnvironmentError> {
    for (limit, bound) in limits {
        let wanted = value(*bound);
        let hard = getrlimit(resource(*limit)).maximum;
        let most = if may_raise() { ceiling(*limit) } else { hard };
        if exceeds(wanted, most) {
            let least = most.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
            let name = limit.name();
            let remedy = match limit {
                Limit::Nofile if may_raise() => format!("raise fs.nr_open there, or ask for at most {least}"),
                _ => format!(
                    "raise it in /etc/security/limits.d there and log in anew (`hard {name}`), or ask for at most {least}"
                ),
            };
            return Err(EnvironmentError::Limit { name, wanted: bound.to_string(), hard: least, remedy });
        }
    }
    Ok(())
}

/// Limits of this process that are another process's to be: until this ends they are set, then they are what they were.
/// Only the soft ones, which are enough; a hard one where it has to be higher. Huge pages, which the allocator has asked the kernel not
/// to give this process (the crate's `no_thp`), may be had by what is started meanwhile.
pub(in crate::supervise) struct Lent {
    before: Vec<(Resource, Rlimit)>,
    no_huge_pages: bool,
}

impl Lent {
    /// Sets them for what is started now; what could not be set, in words.
    pub(in crate::supervise) fn set(limits: &BTreeMap<Limit, Bound>) -> (Self, Vec<String>) {
        let mut wanted: BTreeMap<Limit, Option<u64>> =
            limits.iter().map(|(limit, bound)| (*limit, value(*bound))).collect();
        let files = getrlimit(Resource::Nofile);
        let more = files.maximum.map_or(FILES, |hard| hard.min(FILES));
        if files.current.is_some_and(|soft| soft < more) {
            wanted.entry(Limit::Nofile).or_insert(Some(more));
        }
        if let Some(given) = secrecy::given_core_limit() {
            wanted.entry(Limit::Core).or_insert(given.current);
        }
        let (mut before, mut failed) = (Vec::new(), Vec::new());
        for (limit, wanted) in wanted {
            let resource = resource(limit);
            let own = getrlimit(resource);
            let maximum = if exceeds(wanted, own.maximum) { wanted } else { own.maximum };
            match setrlimit(resource, Rlimit { current: wanted, maximum }) {
                Ok(()) => before.push((resource, Rlimit { current: own.current, maximum })),
                Err(error) if limits.contains_key(&limit) => {
                    failed.push(format!("limit {} is not set: {error}", limit.name()));
                }
                Err(_) => {}
            }
        }
        // a kernel that does not know of this has taken none away
        let no_huge_pages = transparent_huge_pages_are_disabled().unwrap_or_default()
            && disable_transparent_huge_pages(false).is_ok();
        (Self { before, no_huge_pages }, failed)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (resource, limit) in self.before.drain(..) {
            let _ = setrlimit(resource, limit);
        }
        if self.no_huge_pages {
            let _ = disable_transparent_huge_pages(true);
        }
    }
}

/// Whether the first goes further; `None` is without end.
fn exceeds(wanted: Option<u64>, most: Option<u64>) -> bool {
    most.is_some_and(|most| wanted.is_none_or(|wanted| wanted > most))
}

fn value(bound: Bound) -> Option<u64> {
    match bound {
        Bound::Unlimited => None,
        Bound::At(number) => Some(number),
    }
}

/// What even a privileged process can't exceed.
fn ceiling(limit: Limit) -> Option<u64> {
    let file = (limit == Limit::Nofile).then(|| std::fs::read_to_string("/proc/sys/fs/nr_open"));
    file?.ok()?.trim().parse().ok()
}

/// Whether this process may raise hard limits: `CAP_SYS_RESOURCE`.
fn may_raise() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok());
    held.is_some_and(|held| held >> SYS_RESOURCE & 1 == 1)
}

fn resource(limit: Limit) -> Resource {
    match limit {
        Limit::Core => Resource::Core,
        Limit::Memlock => Resource::Memlock,
        Limit::Nofile => Resource::Nofile,
        Limit::Nproc => Resource::Nproc,
        Limit::Stack => Resource::Stack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_does_not_allow_is_refused_with_both_numbers() {
        let most = if may_raise() { ceiling(Limit::Nofile) } else { getrlimit(Resource::Nofile).maximum };
        let Some(most) = most else { return };
        let error = check(&BTreeMap::from([(Limit::Nofile, Bound::At(most + 1))])).unwrap_err().to_string();
        assert!(
            error.contains(&format!("nofile={}", most + 1)) && error.contains(&format!("there is {most}:")),
            "{error}"
        );
        assert!(check(&BTreeMap::from([(Limit::Nofile, Bound::Unlimited)])).is_err());
        assert_eq!(
            check(&BTreeMap::from([(Limit::Nofile, Bound::At(most)), (Limit::Core, Bound::At(0))])),
            Ok(())
        );
    }

    #[test]
    fn limits_are_lent_and_given_back() {
        let before = getrlimit(Resource::Core);
        let (lent, failed) = Lent::set(&BTreeMap::from([(Limit::Core, Bound::At(0))]));
        assert_eq!((getrlimit(Resource::Core).current, failed), (Some(0), Vec::new()));
        drop(lent);
        assert_eq!(getrlimit(Resource::Core).current, before.current);
    }
}
