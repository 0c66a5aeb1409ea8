//! Which keywords of an ssh configuration hvtui reads, and which it may pass over: those that change nothing about
//! who is reached, as whom, and how it is known to be them.

use crate::ssh::transport::algorithms::LISTS;

/// How the value of a keyword that is read is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One word; the first line counts.
    Word,
    /// The rest of the line as it stands; the first line counts.
    Line,
    /// Several words; the first line counts.
    Words,
    /// One word a line; all lines count.
    Each,
}

/// Says which keywords may be unknown. It changes nothing for hvtui, and is kept for the system's `ssh`.
pub(super) const IGNORE_UNKNOWN: &str = "ignoreunknown";

/// What a keyword is called now, in lower case.
pub(super) fn current(key: &str) -> &str {
    match key {
        "pubkeyacceptedkeytypes" => "pubkeyacceptedalgorithms",
        key => key,
    }
}

/// The shape of a keyword that is read, which is in lower case; `None` for another.
pub(super) fn shape(key: &str) -> Option<Shape> {
    Some(match key {
        "proxycommand" | "knownhostscommand" => Shape::Line,
        "userknownhostsfile" | "globalknownhostsfile" => Shape::Words,
        "identityfile" | "certificatefile" => Shape::Each,
        "user"
        | "port"
        | "hostname"
        | "proxyjump"
        | "identitiesonly"
        | "identityagent"
        | "stricthostkeychecking"
        | "hostkeyalias"
        | "connecttimeout"
        | "addressfamily"
        | "bindaddress"
        | "requiredrsasize" => Shape::Word,
        _ if LISTS.contains(&key) => Shape::Word,
        _ if carrier_only(key) || noted(key).is_some() => Shape::Word,
        _ => return None,
    })
}

/// What only the system's `ssh` can do.
pub(super) fn carrier_only(key: &str) -> bool {
    matches!(
        key,
        "gssapiauthentication"
            | "hostbasedauthentication"
            | "knownhostscommand"
            | "pkcs11provider"
            | "proxyusefdpass"
            | "revokedhostkeys"
            | "smartcarddevice"
    )
}

/// What is read but not acted upon, and why that can be lived with.
pub(super) fn noted(key: &str) -> Option<&'static str> {
    Some(match key {
        "bindinterface" => "hvtui connects from the address that the system chooses",
        "canonicalizehostname" => "only the system's ssh makes names canonical",
        "nohostauthenticationforlocalhost" => "host keys are always checked",
        "pubkeyauthentication" | "preferredauthentications" => "hvtui has an order of its own: keys first",
        "verifyhostkeydns" => "keys in DNS are not asked for",
        _ => return None,
    })
}

/// Whether OpenSSH has a keyword that changes nothing for hvtui: it opens no forwardings, no terminal, and keeps links
/// alive in its own way.
pub(super) fn passed_over(key: &str) -> bool {
    const PASSED_OVER: &[&str] = &[
        "addkeystoagent",
        "batchmode",
        "canonicaldomains",
        "canonicalizefallbacklocal",
        "canonicalizemaxdots",
        "canonicalizepermittedcnames",
        "challengeresponseauthentication",
        "channeltimeout",
        "checkhostip",
        "cipher",
        "clearallforwardings",
        "compression",
        "compressionlevel",
        "connectionattempts",
        "controlmaster",
        "controlpath",
        "controlpersist",
        "dynamicforward",
        "enableescapecommandline",
        "enablesshkeysign",
        "escapechar",
        "exitonforwardfailure",
        "fingerprinthash",
        "forkafterauthentication",
        "forwardagent",
        "forwardx11",
        "forwardx11timeout",
        "forwardx11trusted",
        "gatewayports",
        "gssapiclientidentity",
        "gssapidelegatecredentials",
        "gssapikeyexchange",
        "gssapikexalgorithms",
        "gssapirenewalforcesrekey",
        "gssapiserveridentity",
        "gssapitrustdns",
        "hashknownhosts",
        "host",
        "hostbasedacceptedalgorithms",
        "hostbasedkeytypes",
        "ignoreunknown",
        "ipqos",
        "kbdinteractiveauthentication",
        "kbdinteractivedevices",
        "keepalive",
        "localcommand",
        "localforward",
        "loglevel",
        "logverbose",
        "numberofpasswordprompts",
        "obscurekeystroketiming",
        "passwordauthentication",
        "permitlocalcommand",
        "permitremoteopen",
        "protocol",
        "rekeylimit",
        "remotecommand",
        "remoteforward",
        "requesttty",
        "rhostsrsaauthentication",
        "rsaauthentication",
        "securitykeyprovider",
        "sendenv",
        "serveralivecountmax",
        "serveraliveinterval",
        "sessiontype",
        "setenv",
        "stdinnull",
        "streamlocalbindmask",
        "streamlocalbindunlink",
        "syslogfacility",
        "tag",
        "tcpkeepalive",
        "tunnel",
        "tunneldevice",
        "updatehostkeys",
        "useblacklistedkeys",
        "usekeychain",
        "useprivilegedport",
        "useroaming",
        "versionaddendum",
        "visualhostkey",
        "xauthlocation",
    ];
    PASSED_OVER.binary_search(&key).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_keyword_is_both_read_and_passed_over() {
        for key in ["user", "proxyjump", "identityfile", "pkcs11provider", "ciphers", "gssapiauthentication"]
        {
            assert!(shape(key).is_some() && !passed_over(key), "{key}");
        }
        // The list is searched by halves.
        for key in
            ["addkeystoagent", "host", "sendenv", "xauthlocation", "tag", "channeltimeout", "gssapitrustdns"]
        {
            assert!(passed_over(key) && shape(key).is_none(), "{key}");
        }
        assert!(!passed_over("match") && shape("include").is_none());
    }
}
