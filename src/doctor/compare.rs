//! What hosts should have alike: what most of them have, and which differ. Pure.

use std::collections::BTreeMap;

/// Other hosts that are named where most do not agree.
const NAMED: usize = 3;

/// One thing on all hosts that have it: host and value.
pub(super) struct Compared<'a> {
    all: Vec<(&'a str, &'a str)>,
    /// What more than half of them have; with a tie there is no odd one.
    common: Option<&'a str>,
}

impl<'a> Compared<'a> {
    pub(super) fn new(all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let all: Vec<(&str, &str)> = all.into_iter().collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, value) in &all {
            *counts.entry(value).or_default() += 1;
        }
        let common = counts.into_iter().find(|(_, count)| 2 * count > all.len()).map(|(value, _)| value);
        Self { all, common }
    }

    /// Whether no host has it.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The values, one a host.
    pub(super) fn values(&self) -> impl Iterator<Item = &'a str> {
        self.all.iter().map(|(_, value)| *value)
    }

    /// What most have; with a tie another one than `own`.
    pub(super) fn wanted(&self, own: &str) -> Option<&'a str> {
        self.common.or_else(|| self.values().find(|value| *value != own))
    }

    /// In which way a host's value is not that of the others: `other hosts have 2.4.0`, or `a has 2.4.0, b has 2.3.1`. `None`
    /// where it is what most have, or nothing is known of others.
    pub(super) fn difference(&self, own: &str) -> Option<String> {
        match self.common {
            Some(common) if common == own => None,
            Some(common) => Some(format!("other hosts have {common}")),
            None if self.all.is_empty() => None,
            None => {
                let others = self.all.iter().filter(|(_, value)| *value != own).take(NAMED);
                let others: Vec<String> = others.map(|(host, value)| format!("{host} has {value}")).collect();
                Some(others.join(", "))
            }
        }
    }
}

/// The first two numbers of a version: `2.4` of `2.4.0+cu121`.
pub(super) fn minor(version: &str) -> &str {
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    dots.nth(1).map_or(version, |end| &version[..end])
}

/// A version's first two numbers, to be compared.
pub(super) fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().split('.').map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse::<u32>().ok()
    });
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_the_one_that_most_are_not() {
        let all = Compared::new([("a", "2.4"), ("b", "2.4"), ("c", "2.3")]);
        assert_eq!(all.difference("2.4"), None);
        assert_eq!(all.difference("2.3").unwrap(), "other hosts have 2.4");
        let tie = Compared::new([("a", "2.4"), ("b", "2.3")]);
        assert_eq!(tie.difference("2.4").unwrap(), "b has 2.3");
        assert_eq!((all.wanted("2.3"), tie.wanted("2.4")), (Some("2.4"), Some("2.3")));
        assert_eq!(Compared::new([("a", "2.4")]).difference("2.4"), None);
        assert!(Compared::new([]).is_empty());
    }

    #[test]
    fn versions_are_read_as_people_write_them() {
        assert_eq!(numbers("12.4"), Some((12, 4)));
        assert_eq!(numbers("2.4.0+cu121"), Some((2, 4)));
        assert_eq!(numbers("13"), Some((13, 0)));
        assert_eq!(numbers("none"), None);
        assert_eq!((minor("2.4.0+cu121"), minor("11")), ("2.4", "11"));
    }
}
