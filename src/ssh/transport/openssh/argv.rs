//! How the system's `ssh` is called. What was settled goes on its command line and counts before its configuration;
//! no secret is among it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::ssh::transport::connection::{KEEPALIVE, KEEPALIVE_MISSED};
use crate::ssh::transport::target::{Family, OpenSsh, Route, Target, TransportKind};

/// What of the options below older versions don't know.
const IGNORED: [&str; 4] = ["SessionType", "StdinNull", "ForkAfterAuthentication", "KnownHostsCommand"];

/// No terminal, no forwarding, no question, no connection shared with others, nothing run here.
const FIXED: &[&str] = &[
    "BatchMode=yes",
    "RequestTTY=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "SessionType=default",
    "StdinNull=no",
    "ForkAfterAuthentication=no",
    "Tunnel=no",
    "EscapeChar=none",
    "ControlMaster=no",
    "ControlPath=none",
    "UpdateHostKeys=no",
    // What becomes of an unknown key is decided, and written down, by hvtui.
    "StrictHostKeyChecking=yes",
    "VerifyHostKeyDNS=no",
    "NoHostAuthenticationForLocalhost=no",
    "GlobalKnownHostsFile=/dev/null",
    // Tells the host's banner from what the command complains of, by a line between them.
    "LogLevel=VERBOSE",
];

/// All words behind the program's name, up to the host's. `pinned` is a line of known hosts to believe.
pub(super) fn words(target: &Target, ssh: &OpenSsh, pinned: Option<&str>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(file) = &ssh.config {
        words.extend(["-F".into(), file.into()]);
    }
    // `-k`: no credentials are delegated; as an option it is unknown where there are no tickets.
    words.extend(["-T", "-a", "-x", "-k"].map(OsString::from));
    let mut options: Vec<String> = FIXED.iter().map(ToString::to_string).collect();
    options.insert(0, ignored(ssh));
    // A pinned key is the only one: what else the files know does not count.
    let known_hosts = match (pinned, &target.fingerprint) {
        (Some(_), Some(_)) => &[],
        _ => &target.known_hosts[..],
    };
    options.extend([
        format!("UserKnownHostsFile={}", files(known_hosts)),
        format!("KnownHostsCommand={}", pinned.map_or("none".to_owned(), echo)),
        format!("ConnectTimeout={}", target.connect_timeout.as_secs().max(1)),
        format!("ServerAliveInterval={}", KEEPALIVE.as_secs()),
        format!("ServerAliveCountMax={KEEPALIVE_MISSED}"),
        format!("HostKeyAlias={}", target.host_key_alias.as_deref().unwrap_or("none")),
        format!("ProxyCommand={}", proxy(target, ssh)),
    ]);
    if target.host_key_alias.is_none() {
        options.retain(|option| !option.starts_with("HostKeyAlias"));
    }
    // A command of the person's own configuration may know keys; ours replaces it only where a key is pinned.
    if pinned.is_none() {
        options.retain(|option| !option.starts_with("KnownHostsCommand"));
    }
    match (target.auth_agent, &target.agent_socket) {
        (false, _) => options.push("IdentityAgent=none".to_owned()),
        (true, Some(path)) => options.push(format!("IdentityAgent={}", quoted(path))),
        (true, None) => {}
    }
    if target.identities_only {
        options.push("IdentitiesOnly=yes".to_owned());
    }
    options.extend(target.certificates.iter().map(|file| format!("CertificateFile={}", quoted(file))));
    options.extend(target.identities.iter().map(|file| format!("IdentityFile={}", quoted(file))));
    match target.family {
        Family::Any => {}
        Family::Inet => options.push("AddressFamily=inet".to_owned()),
        Family::Inet6 => options.push("AddressFamily=inet6".to_owned()),
    }
    // `ssh` does not ask for the type of a key that a command knows.
    if let (Some(line), Some(_)) = (pinned, &target.fingerprint) {
        let types = target.algorithms.types_of(line.split(' ').nth(1).unwrap_or_default());
        options.push(format!("HostKeyAlgorithms={}", types.join(",")));
    }
    // Where a configuration is read, the same lines count for `ssh` itself.
    if ssh.config.as_deref() == Some(Path::new("none")) {
        options.extend(target.algorithms.options());
    }
    options.extend(target.bind_address.map(|address| format!("BindAddress={address}")));
    words.extend(options.into_iter().map(|option| format!("-o{option}").into()));
    words.extend(["-l".into(), (&target.user).into(), "-p".into(), target.port.to_string().into()]);
    words
}

/// What may be unknown: of this option the first line alone counts, so what the configuration says stands in ours.
fn ignored(ssh: &OpenSsh) -> String {
    let theirs = ssh.ignore_unknown.as_deref().unwrap_or_default().split(',');
    // No keyword has anything else in its name.
    let is_plain =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !"\"'\\#".contains(c));
    let all: Vec<&str> = IGNORED.into_iter().chain(theirs.filter(is_plain)).collect();
    format!("IgnoreUnknown={}", all.join(","))
}

/// The command that prints a line of known hosts; a zone in its name (`fe80::1%eth0`) is no token.
fn echo(line: &str) -> String {
    format!("/bin/echo {}", line.replace('%', "%%"))
}

fn proxy(target: &Target, ssh: &OpenSsh) -> String {
    let line = match &target.route {
        Route::Direct => return "none".to_owned(),
        Route::Command(line) => line.clone(),
        Route::Jump(hop) => match &hop.transport {
            TransportKind::OpenSsh(_) => through(hop, &target.address, target.port),
            // All that is known of it is in the target: no configuration may add to it.
            TransportKind::Russh => {
                let (program, alias) = (ssh.program.clone(), hop.address.clone());
                let config = Some(PathBuf::from("none"));
                let ssh = OpenSsh { program, alias, config, ignore_unknown: None };
                let hop = Target { transport: TransportKind::OpenSsh(ssh), ..(**hop).clone() };
                through(&hop, &target.address, target.port)
            }
        },
    };
    line.replace('%', "%%")
}

/// The line for `/bin/sh` that carries bytes to `address` through a host that the system's `ssh` reaches.
pub(in crate::ssh) fn through(hop: &Target, address: &str, port: u16) -> String {
    let TransportKind::OpenSsh(ssh) = &hop.transport else { return "false".to_owned() };
    let to = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
    let mut all = vec![ssh.program.clone().into_os_string()];
    all.extend(words(hop, ssh, None));
    all.extend(["-W".into(), to.into(), "--".into(), OsString::from(&ssh.alias)]);
    let all: Vec<String> = all.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // A name with a NUL can't be quoted, nor can it be a file's.
    shlex::try_join(all.iter().map(String::as_str)).unwrap_or_else(|_| "false".to_owned())
}

fn files(files: &[PathBuf]) -> String {
    if files.is_empty() {
        return "/dev/null".to_owned();
    }
    files.iter().map(|file| quoted(file)).collect::<Vec<_>>().join(" ")
}

/// A path as the configuration's language has it.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(alias: &str) -> OpenSsh {
        let program = "/usr/bin/ssh".into();
        OpenSsh { program, alias: alias.into(), config: None, ignore_unknown: None }
    }

    /// What `ssh -G` says of a host with our words and a configuration of this text; `None` where there is no `ssh`.
    fn asked(text: &str, ssh: OpenSsh) -> Option<std::process::Output> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        std::fs::write(&config, text).unwrap();
        let ssh = OpenSsh { config: Some(config), ..ssh };
        let words = words(&Target::new("a".into(), "localhost", 22, "li"), &ssh, None);
        let output = std::process::Command::new("ssh").args(words).args(["-G", "--", "localhost"]).output();
        if output.is_err() {
            assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "ssh is missing");
            eprintln!("skipped: ssh is not installed");
        }
        output.ok()
    }

    #[test]
    fn nothing_is_forwarded_asked_or_left_to_the_configuration() {
        let mut target = Target::new("a".into(), "10.0.0.7", 2222, "li");
        target.known_hosts = vec!["/k/a b".into(), "/k/50%".into()];
        target.identities = vec!["/id".into()];
        let words = words(&target, &ssh("gpu"), Some("gpu ssh-ed25519 AAAA"));
        let text = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join("\n");
        for part in [
            "-oBatchMode=yes",
            "-oForwardAgent=no",
            "-oClearAllForwardings=yes",
            "-oStrictHostKeyChecking=yes",
            "-oVerifyHostKeyDNS=no",
            "-oNoHostAuthenticationForLocalhost=no",
            "-T\n-a\n-x\n-k\n",
            "-oUserKnownHostsFile=\"/k/a b\" \"/k/50%%\"",
            "-oKnownHostsCommand=/bin/echo gpu ssh-ed25519 AAAA",
            "-oProxyCommand=none",
            "-oIdentityFile=\"/id\"",
            "-l\nli\n-p\n2222",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn what_lets_a_host_in_or_gives_it_a_ticket_is_off_whatever_the_configuration_says() {
        let text = "GSSAPIDelegateCredentials yes\nVerifyHostKeyDNS yes\nNoHostAuthenticationForLocalhost yes\n\
                    StrictHostKeyChecking no\nForwardAgent yes\nUpdateHostKeys yes\n";
        let Some(output) = asked(text, ssh("localhost")) else { return };
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        // Built without tickets it has none to give.
        assert!(matches!(value("gssapidelegatecredentials"), Some("no") | None), "{said}{complained}");
        for (key, wanted) in [
            ("verifyhostkeydns", "false"),
            ("nohostauthenticationforlocalhost", "no"),
            ("stricthostkeychecking", "true"),
            ("forwardagent", "no"),
            ("updatehostkeys", "false"),
        ] {
            assert_eq!(value(key), Some(wanted), "{key}: {said}{complained}");
        }
    }

    #[test]
    fn what_the_configuration_lets_be_unknown_stays_so() {
        let text = "IgnoreUnknown UseKeychain,Wish*\nUseKeychain yes\nWishes granted\nUser other\n";
        let said = |ignore_unknown: Option<&str>| {
            let ignore_unknown = ignore_unknown.map(str::to_owned);
            asked(text, OpenSsh { ignore_unknown, ..ssh("localhost") })
        };
        for told in ["UseKeychain,Wish*", "UseKeychain,a b,,\"#,Wish*"] {
            let Some(output) = said(Some(told)) else { return };
            let complained = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{told}: {complained}");
        }
        let Some(output) = said(None) else { return };
        assert!(!output.status.success(), "nothing was unknown");
        let odd = OpenSsh { ignore_unknown: Some("a b,Wish*,,c\"d".to_owned()), ..ssh("gpu") };
        assert_eq!(
            ignored(&odd),
            "IgnoreUnknown=SessionType,StdinNull,ForkAfterAuthentication,KnownHostsCommand,Wish*"
        );
    }

    #[test]
    fn a_zone_in_a_pinned_line_is_no_token() {
        let target = Target::new("a".into(), "fe80::1%eth0", 22, "li");
        let words = words(&target, &ssh("gpu"), Some("fe80::1%eth0 ssh-ed25519 AAAA"));
        let command = "-oKnownHostsCommand=/bin/echo fe80::1%%eth0 ssh-ed25519 AAAA";
        assert!(words.iter().any(|word| word == command), "{words:?}");
    }

    #[test]
    fn a_pinned_fingerprint_leaves_no_other_key() {
        let known = Target { known_hosts: vec!["/k".into()], ..Target::new("a".into(), "b", 22, "li") };
        let pinned = Target { fingerprint: Some("SHA256:x".into()), ..known.clone() };
        let files = |target: &Target| {
            let words = words(target, &ssh("gpu"), Some("gpu ssh-ed25519 AAAA"));
            words
                .iter()
                .find_map(|word| Some(word.to_str()?.strip_prefix("-oUserKnownHostsFile=")?.to_owned()))
        };
        assert_eq!(files(&known).unwrap(), "\"/k\"");
        assert_eq!(files(&pinned).unwrap(), "/dev/null");
    }

    #[test]
    fn hops_are_nested_and_quoted() {
        let mut hop = Target::new("a".into(), "b", 22, "li");
        hop.route = Route::Command("nc 'x y' %h".into());
        let mut target = Target::new("a".into(), "::1", 2222, "li");
        target.route = Route::Jump(Box::new(hop));
        let words = words(&target, &ssh("gpu"), None);
        let proxy = words.iter().find_map(|word| word.to_str()?.strip_prefix("-oProxyCommand=")).unwrap();
        let inner = shlex::split(&proxy.replace("%%", "%")).unwrap();
        assert_eq!(inner[..3], ["/usr/bin/ssh", "-F", "none"]);
        assert_eq!(inner[inner.len() - 4..], ["-W", "[::1]:2222", "--", "b"]);
        assert!(inner.contains(&"-oProxyCommand=nc 'x y' %%h".to_owned()), "{inner:?}");
    }
}
