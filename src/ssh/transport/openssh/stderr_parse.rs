//! What `ssh` says when it does not get in, as errors of ours. Its words are not translated, so they can be read.

use crate::ssh::transport::error::{ErrorKind, SshError};
use crate::ssh::transport::report;
use crate::ssh::transport::target::{Route, Target};

/// Why a server hangs up that accepts no credential.
const REFUSALS: [&str; 2] = ["Too many authentication failures", "No more authentication methods"];

/// Whether a line says that no credential was accepted: `li@gpu-a: Permission denied (publickey).`, by old versions without
/// the name, or the server's last words. A key file that can't be read and a banner may say the like of it, and a banner that ends
/// without a newline stands before it on the same line.
fn is_refusal(line: &str) -> bool {
    let denied = line.rsplit_once("Permission denied (").is_some_and(|(who, methods)| {
        let word = who.strip_suffix(": ").and_then(|who| who.rsplit(' ').next());
        (who.is_empty() || word.is_some_and(|word| word.contains('@'))) && methods.ends_with(").")
    });
    let hung_up = line.split_once("Received disconnect from ");
    denied || hung_up.is_some_and(|(_, why)| REFUSALS.iter().any(|words| why.contains(words)))
}

/// Whether the host's key was the fault.
pub(super) fn is_about_key(text: &str) -> bool {
    text.contains("Host key verification failed") || text.contains("REVOKED HOST KEY")
}

/// The error for what `ssh` printed before it gave up; the text is sanitised.
pub(super) fn failure(target: &Target, text: &str) -> SshError {
    let (host, at) = (target.host.clone(), target.endpoint());
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
    let has = |part: &str| text.contains(part);
    if is_about_key(text) {
        return SshError::System {
            host,
            kind: ErrorKind::HostKey,
            said: report::quote(&text.replace('\n', " | ")),
        };
    }
    // A proxy command that was refused is not the last one to speak.
    if let Some(refused) = text.lines().rev().find(|line| is_refusal(line)) {
        let said = format!(
            "{refused}; what it can use without asking is needed: an agent, a key without passphrase, a ticket"
        );
        return SshError::System { host, kind: ErrorKind::Authentication, said };
    }
    if has("Could not resolve hostname") {
        return SshError::Resolve { host, address: target.address.clone(), detail: last.to_owned() };
    }
    if has("Bad configuration option") || has("Bad owner or permissions") || has("terminating, ") {
        return SshError::System {
            host,
            kind: ErrorKind::Agent,
            said: report::quote(&text.replace('\n', " | ")),
        };
    }
    if has("Connection refused") && target.route == Route::Direct {
        return SshError::Refused { host, at };
    }
    let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("ssh: ").unwrap_or(line)).collect();
    SshError::Network { host, at, detail: format!("ssh says: {}", report::quote(&lines.join(" | "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_an_error_of_the_right_sort() {
        let target = Target::new("a".into(), "10.0.0.7", 22, "li");
        let kind = |text: &str| failure(&target, text).kind();
        assert_eq!(kind("Host key verification failed."), ErrorKind::HostKey);
        assert_eq!(kind("li@10.0.0.7: Permission denied (publickey)."), ErrorKind::Authentication);
        assert_eq!(kind("/x: line 1: Bad configuration option: y"), ErrorKind::Agent);
        for text in ["ssh: connect to host a port 22: Connection refused", "kex_exchange: reset", ""] {
            assert_eq!(kind(text), ErrorKind::Unreachable, "{text}");
        }
        for refused in [
            "Permission denied (publickey,gssapi-with-mic).",
            "Load key \"/k\": Permission denied\nDOM\\li@fe80::1%eth0: Permission denied (publickey).",
            "li@gate: Permission denied (publickey).\nkex_exchange_identification: Connection closed by remote host",
            "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures\nDisconnected",
            "Received disconnect from 10.0.0.7 port 22:14: No more authentication methods available",
            "Authorized users only.li@gpu-a: Permission denied (publickey).",
            "Permission denied (strangers).DOM\\li@gpu-a: Permission denied (publickey).",
            "Authorized users only.Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures",
        ] {
            assert_eq!(kind(refused), ErrorKind::Authentication, "{refused}");
        }
        // Words of a key file and of a banner, and then the network failed.
        for lost in [
            "Load key \"/k\": Permission denied\nConnection closed by 10.0.0.7 port 22",
            "Strangers: Permission denied (always).\nli@here is told: Permission denied (x)\nConnection reset",
            "Too many authentication failures are reported.\nclient_loop: send disconnect: Broken pipe",
            "Too many authentication failures are reported.Received disconnect from 10.0.0.7 port 22:11: bye",
        ] {
            assert_eq!(kind(lost), ErrorKind::Unreachable, "{lost}");
        }
        let refused = failure(&target, "ssh: connect to host a port 22: No route to host\nbye").to_string();
        assert!(
            refused.ends_with("ssh says: connect to host a port 22: No route to host | bye"),
            "{refused}"
        );
        assert!(failure(&target, "one\ntwo").to_string().contains("one | two"));
    }
}
