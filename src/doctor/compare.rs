//! What hosts should have alike: what most of them have, and which differ. Pure.

use std::collections::BTreeMap;

/// What most have, where more than half of them agree; with a tie there is no odd one.
pub(super) fn common<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for value in values {
        *counts.entry(value).or_default() += 1;
        all += 1;
    }
    counts.into_iter().find(|(_, count)| 2 * count > all).map(|(value, _)| value)
}

/// In which way a host's value is not that of the others: `other hosts have 2.4.0`, or `a has 2.4.0, b 2.3.1`. `None` where
/// it is what most have, or nothing is known of others.
pub(super) fn difference(own: &str, all: &[(&str, &str)]) -> Option<String> {
    if all.iter().all(|(_, value)| *value == own) {
        return None;
    }
    match common(all.iter().map(|(_, value)| *value)) {
        Some(common) if common == own => None,
        Some(common) => Some(format!("other hosts have {common}")),
        None => {
            let mut others: Vec<String> = Vec::new();
            for (host, value) in all.iter().filter(|(_, value)| *value != own).take(3) {
                others.push(format!("{host} has {value}"));
            }
            Some(others.join(", "))
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
        let all = [("a", "2.4"), ("b", "2.4"), ("c", "2.3")];
        assert_eq!(difference("2.4", &all), None);
        assert_eq!(difference("2.3", &all).unwrap(), "other hosts have 2.4");
        let tie = [("a", "2.4"), ("b", "2.3")];
        assert_eq!(difference("2.4", &tie).unwrap(), "b has 2.3");
        assert_eq!(difference("2.4", &[("a", "2.4")]), None);
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
