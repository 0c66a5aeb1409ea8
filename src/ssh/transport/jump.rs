//! Jump hosts as people write them: `user@host:port,host2`.

use crate::ssh::trust::name_is_safe;

/// One host to go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hop {
    /// A name of the hosts file, an alias of the ssh configuration, or an address.
    pub(super) name: String,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
}

/// Reads a list of hops, the one that is reached first in front. An error is in words.
pub(super) fn hops(text: &str) -> Result<Vec<Hop>, String> {
    text.split(',').map(|hop| parse(hop.trim())).collect()
}

fn parse(text: &str) -> Result<Hop, String> {
    let bad = || format!("`{text}` is no jump host: write user@host:port");
    let rest = text.strip_prefix("ssh://").map_or(text, |rest| rest.trim_end_matches('/'));
    let (user, rest) = match rest.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, rest),
    };
    let (name, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, port)) => (name, Some(port.strip_prefix(':').ok_or_else(bad)?)),
        None => match rest.split_once(':') {
            Some((name, port)) if !port.contains(':') => (name, Some(port)),
            _ => (rest, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?),
        None => None,
    };
    if !name_is_safe(name, "._-:%") || user.is_some_and(|user| !name_is_safe(user, "._-@+\\$")) {
        return Err(bad());
    }
    Ok(Hop { name: name.to_owned(), user: user.map(str::to_owned), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_have_users_and_ports() {
        let hop = |name: &str, user: Option<&str>, port| Hop {
            name: name.into(),
            user: user.map(Into::into),
            port,
        };
        assert_eq!(hops("a").unwrap(), [hop("a", None, None)]);
        assert_eq!(
            hops("li@x@a:2222, b,[::1]:22,ssh://m@c:9/").unwrap(),
            [
                hop("a", Some("li@x"), Some(2222)),
                hop("b", None, None),
                hop("::1", None, Some(22)),
                hop("c", Some("m"), Some(9))
            ]
        );
        assert_eq!(hops("fe80::1").unwrap(), [hop("fe80::1", None, None)]);
        for bad in
            ["", "a,", "-oProxyCommand=x", "@a", "a:0", "a:99999", "a b", "$(x)", "[::1", "[::1]22", "-l@a"]
        {
            assert!(hops(bad).is_err(), "{bad}");
        }
    }
}
