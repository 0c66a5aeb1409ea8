//! `hvtui hosts trust`: accepts a host's key, after showing it.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use crate::cli::errors::{Code, Failure, to_stdout};
use crate::cli::paths::Paths;
use crate::cli::{connect, runtime};
use crate::config::names::closest;
use crate::config::{Address, HostConfig, HostsFile};
use crate::ssh;

/// Fetches the key, shows its fingerprint, asks, and writes it to the user's known hosts. With `fingerprint`
/// it takes that key alone and asks nothing.
pub fn run(
    name: &str,
    fingerprint: Option<&str>,
    file: &HostsFile,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let host = find(name, file)?;
    let Address::Ssh(address) = &host.address else {
        return Err(Failure::usage(format!("host {name} is this machine: no ssh, no host key")));
    };
    // nothing is sent but a request for the key: there is nothing to ask
    let target = connect::target(host, address, &paths.home, &ssh::Asker::default())?;
    let key = runtime::block_on(async { Ok(ssh::scan(&target).await?) })?;
    if fingerprint.is_none() && target.fingerprint.is_none() {
        confirm(&target.shown(), &key)?;
    }
    let trusted = ssh::trust(&target, &key, fingerprint)?;
    let done = if trusted.already { "was trusted already" } else { "is trusted from now on" };
    to_stdout(&format!(
        "{name}: {} {} {done} ({})\n",
        key.algorithm(),
        trusted.fingerprint,
        trusted.file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn find<'a>(name: &str, file: &'a HostsFile) -> Result<&'a HostConfig, Failure> {
    let known: Vec<&str> = file.hosts.iter().map(|host| host.id.as_str()).collect();
    file.hosts.iter().find(|host| host.id.as_str() == name).ok_or_else(|| {
        let hint = closest(name, known.iter().copied());
        let hint = hint.map(|host| format!("did you mean {host}? ")).unwrap_or_default();
        Failure::usage(format!("unknown host {name}: {hint}the hosts file names {}", known.join(", ")))
    })
}

fn confirm(at: &str, key: &ssh::HostKey) -> Result<(), Failure> {
    let (algorithm, fingerprint) = (key.algorithm(), key.fingerprint());
    let shown = format!("{at} shows the host key\n  {algorithm} {fingerprint}\n");
    if !std::io::stdin().is_terminal() {
        let remedy =
            "compare it with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub there), then say";
        let text = format!("{shown}{remedy} --fingerprint {fingerprint}");
        return Err(Failure::new(Code::Permission, text));
    }
    to_stdout(&format!("{shown}Compare it with the host's own. Trust it? [y/N] "))?;
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
        // the answer may have been cut off in the middle of the line
        let _ = writeln!(std::io::stdout());
        return Err(Failure::new(Code::Permission, "not trusted; nothing was written"));
    }
    Ok(())
}
