//! `hvtui hosts trust`: accepts a host's key, after showing it.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::cli::errors::{Code, Failure, print, to_person};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::config::{HostConfig, HostsFile};
use crate::domain::text::hosts_hint;
use crate::ssh;

/// Fetches the key of one host after the other, shows its fingerprint, asks, and writes it to the user's known hosts. With
/// `fingerprint` it takes that key of one host alone and asks nothing. A host that fails keeps none of the others.
pub fn run(
    names: &[String],
    fingerprint: Option<&str>,
    file: &HostsFile,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    if let ([_, second, ..], Some(_)) = (names, fingerprint) {
        let text = format!("--fingerprint is the key of one host: say it for {second} by itself");
        return Err(Failure::usage(text));
    }
    let hosts = names.iter().map(|name| find(name, file)).collect::<Result<Vec<_>, Failure>>()?;
    runtime::block_on(async {
        let (mut code, mut refused) = (None, None);
        for host in hosts {
            if let Err(failure) = host_key(host, fingerprint, paths, &mut refused).await {
                print(&failure);
                code = code.or(Some(failure.code));
            }
        }
        Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
    })
}

/// The key of one host; `refused` is the host on the way whose key was not accepted last, which is not asked about again.
async fn host_key(
    host: &HostConfig,
    fingerprint: Option<&str>,
    paths: &Paths,
    refused: &mut Option<ssh::Server>,
) -> Result<(), Failure> {
    let name = host.id.as_str();
    let target = connect::target(host, &paths.home).await?.with_prompter(&ask::person());
    // A host on the way comes first: what is behind it can't be asked before it is trusted.
    for hop in target.hops() {
        let key = scan(hop, &target).await?;
        if ssh::is_known(&hop.server(), &key).await? {
            continue;
        }
        if refused.as_ref() == Some(&hop.server()) {
            let text =
                format!("{name}: the key of {}, which is on the way to it, is not trusted", hop.shown());
            return Err(Failure::new(Code::Permission, text));
        }
        let trusted = trust(name, hop, &key, fingerprint).await;
        *refused = trusted.is_err().then(|| hop.server());
        trusted?;
        if fingerprint.is_some() {
            return to_person(&format!("that is the host on the way: say it again for {}\n", target.shown()));
        }
    }
    let key = scan(&target, &target).await?;
    trust(name, &target, &key, fingerprint).await
}

async fn scan(at: &ssh::Target, target: &ssh::Target) -> Result<ssh::HostKey, Failure> {
    let key = ssh::scan(at).await;
    key.map_err(|error| if at == target { error.into() } else { error.at_hop(&target.host, at).into() })
}

async fn trust(
    name: &str,
    target: &ssh::Target,
    key: &ssh::HostKey,
    fingerprint: Option<&str>,
) -> Result<(), Failure> {
    if fingerprint.is_none() && target.fingerprint.is_none() && !ssh::is_known(&target.server(), key).await? {
        confirm(&target.shown(), key).await?;
    }
    let trusted = ssh::trust_in_time(&target.server(), key, fingerprint).await?;
    let done = if trusted.already { "was trusted already" } else { "is trusted from now on" };
    to_person(&format!(
        "{name}: {} {} {done} ({})\n",
        key.algorithm(),
        trusted.fingerprint,
        trusted.file.display()
    ))
}

pub(super) fn find<'a>(name: &str, file: &'a HostsFile) -> Result<&'a HostConfig, Failure> {
    file.hosts.iter().find(|host| host.id.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = file.hosts.iter().map(|host| host.id.as_str()).collect();
        Failure::usage(format!("unknown host {name}: {}", hosts_hint(name, &known)))
    })
}

async fn confirm(at: &str, key: &ssh::HostKey) -> Result<(), Failure> {
    let (algorithm, fingerprint) = (key.algorithm(), key.fingerprint());
    let shown = format!("{at} shows the host key\n  {algorithm} {fingerprint}\n");
    if !std::io::stdin().is_terminal() {
        let remedy =
            "compare it with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there), then say";
        let text = format!("{shown}{remedy} --fingerprint {fingerprint}");
        return Err(Failure::new(Code::Permission, text));
    }
    to_person(&format!("{shown}Compare it with the host's own. Trust it (yes/no)? "))?;
    if !ask::trusts_key(&fingerprint).await? {
        // the answer may have been cut off in the middle of the line
        let _ = writeln!(std::io::stdout());
        return Err(Failure::new(Code::Permission, "not trusted; nothing was written"));
    }
    Ok(())
}
