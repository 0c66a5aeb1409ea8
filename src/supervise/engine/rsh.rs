//! `hvtui rsh-agent [OPTIONS] HOST COMMAND…`: what a launcher takes for ssh. It asks the launcher's wrapper to have
//! the command executed by the node of that host, and stays until that has ended, as ssh does.
//!
//! It is a client of the wrapper on the same host; it opens no connection to another one.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::AGENTS;
use super::launch::AGENT;
use crate::domain::engine::{RUN_DIR, SSH_HERE, SSH_NODES};
use crate::supervise::environment::limits::Lent;
use crate::supervise::rundir::RunDir;

/// What ssh gives when it fails itself.
const FAILED: i32 = 255;
/// Options of ssh that take a value of their own.
const WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";

/// The option by which Intel MPI names its launcher's host to a proxy.
const UPSTREAM: &str = " --upstream-host ";

/// What comes from the wrapper: a kind, a length and so many bytes.
pub(super) const OUT: u8 = 1;
pub(super) const ERR: u8 = 2;
pub(super) const EXIT: u8 = 3;

/// The host and the command of ssh's arguments: what ssh would execute, joined by spaces. As ssh does, it takes options
/// before the host and behind it.
fn parse(words: &[String]) -> Option<(String, String)> {
    let mut words = words.iter().peekable();
    let mut host: Option<&str> = None;
    let mut options = true;
    while let Some(word) = words.peek().map(|word| word.as_str()) {
        if options && word == "--" {
            words.next();
            // behind the host it is only the end of the options
            options = false;
        } else if let Some(option) = word.strip_prefix('-').filter(|option| options && !option.is_empty()) {
            words.next();
            // `-xp 22`, `-p22`: the first letter that takes a value takes what follows it.
            let value = option.char_indices().find(|(_, letter)| WITH_VALUE.contains(*letter));
            if value.is_some_and(|(at, letter)| at + letter.len_utf8() == option.len()) {
                words.next()?;
            }
        } else if host.is_none() {
            host = Some(word);
            words.next();
        } else {
            break;
        }
    }
    let host = host?;
    let host = host.rsplit('@').next().unwrap_or(host).trim_start_matches('[').trim_end_matches(']');
    let command: Vec<&str> = words.map(String::as_str).collect();
    (!host.is_empty() && !command.is_empty()).then(|| (host.to_owned(), command.join(" ")))
}

/// The command as another host can execute it. Open MPI 4 tells its daemons which agent it uses, and they end where they
/// do not find that file, though they never use it: on other hosts a shell stands for it. Intel MPI's proxies look for
/// their launcher by its host's name, which another host may not know: its address stands for that.
fn elsewhere(command: &str, dir: &Path, address: Option<&str>) -> String {
    let command = command.replace(&dir.join(AGENT).display().to_string(), "/bin/sh");
    match (command.split_once(UPSTREAM), address) {
        (Some((before, rest)), Some(address)) => {
            let after = rest.find(' ').and_then(|at| rest.get(at..)).unwrap_or_default();
            format!("{before}{UPSTREAM}{address}{after}")
        }
        _ => command,
    }
}

/// Executes what a launcher asks of ssh; the command's exit code.
pub fn run(words: &[String]) -> i32 {
    match ask(words) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "hvtui: {error}");
            FAILED
        }
    }
}

/// Becomes a shell that executes the command, with what this process has given up for itself; the error where that fails.
fn shell(command: &str) -> io::Error {
    let _lent = Lent::set(&BTreeMap::new());
    Command::new("/bin/sh").arg("-c").arg(command).exec()
}

/// Becomes the ssh that the search path has behind this one.
fn real_ssh(words: &[String]) -> io::Error {
    let own = std::env::var_os(RUN_DIR).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = |dir: &PathBuf| std::fs::canonicalize(dir).ok() == std::fs::canonicalize(&own).ok();
    let mut others = std::env::split_paths(&path).filter(|dir| !ours(dir)).map(|dir| dir.join("ssh"));
    match others.find(|program| program.is_file()) {
        Some(program) => {
            let path = std::env::split_paths(&path).filter(|dir| !ours(dir));
            let path = std::env::join_paths(path).unwrap_or_default();
            Command::new(program).args(words).env("PATH", path).exec()
        }
        None => io::Error::new(io::ErrorKind::NotFound, "no ssh in PATH"),
    }
}

fn ask(words: &[String]) -> io::Result<i32> {
    let variable = |name: &str| std::env::var(name).ok();
    let (host, command) = match parse(words) {
        Some(both) => both,
        None if variable(SSH_NODES).is_some() => return Err(real_ssh(words)),
        None => return Err(io::Error::other(format!("no host and command in {words:?}"))),
    };
    if variable(SSH_HERE).is_some_and(|here| here == host) {
        return Err(shell(&command));
    }
    if variable(SSH_NODES).is_some_and(|nodes| !nodes.split(',').any(|node| node == host)) {
        // No host of the run: what a rank wants of it is real ssh's.
        return Err(real_ssh(words));
    }
    let dir = std::env::var_os(RUN_DIR).ok_or_else(|| io::Error::other(format!("{RUN_DIR} is not set")))?;
    let dir = RunDir::open(Path::new(&dir)).map_err(|error| io::Error::other(error.to_string()))?;
    let address = variable("HVTUI_BIND").or_else(|| variable("MASTER_ADDR"));
    let command = elsewhere(&command, dir.path(), address.as_deref());
    if address.as_deref() == Some(host.as_str()) {
        // A launcher that does not know its own host by this address.
        return Err(shell(&command));
    }
    let mut wrapper = UnixStream::connect(dir.socket(AGENTS))?;
    let request = [host.as_bytes(), b"\0", command.as_bytes()].concat();
    wrapper.write_all(&(request.len() as u64).to_le_bytes())?;
    wrapper.write_all(&request)?;
    loop {
        let mut head = [0; 5];
        wrapper.read_exact(&mut head).map_err(|_| io::Error::other("the launcher's wrapper has ended"))?;
        let [kind, length @ ..] = head;
        let mut body = vec![0; u32::from_le_bytes(length).min(1 << 24) as usize];
        wrapper.read_exact(&mut body)?;
        match kind {
            OUT => {
                io::stdout().write_all(&body)?;
                io::stdout().flush()?;
            }
            ERR => io::stderr().write_all(&body)?,
            _ => return Ok(body.try_into().map_or(FAILED, i32::from_le_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(String, String)> {
        parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_agent_of_one_host_is_not_looked_for_on_another() {
        let command = r#"orted -mca plm_rsh_agent "/s/run/n1@x/rsh" -mca ess env"#;
        let other = r#"orted -mca plm_rsh_agent "/bin/sh" -mca ess env"#;
        assert_eq!(elsewhere(command, Path::new("/s/run/n1@x"), Some("10.0.0.1")), other);
    }

    #[test]
    fn a_proxy_of_intel_mpi_finds_its_launcher_by_address() {
        let command = "/i/hydra_bstrap_proxy --upstream-host gpu-a --upstream-port 4 --pgid 0";
        let other = "/i/hydra_bstrap_proxy --upstream-host 10.0.0.1 --upstream-port 4 --pgid 0";
        assert_eq!(elsewhere(command, Path::new("/s"), Some("10.0.0.1")), other);
        assert_eq!(elsewhere(command, Path::new("/s"), None), command);
    }

    #[test]
    fn a_host_and_a_command_are_found_behind_the_options_of_ssh() {
        let pair = |host: &str, command: &str| Some((host.to_owned(), command.to_owned()));
        assert_eq!(of("10.0.0.2 orted -mca ess env"), pair("10.0.0.2", "orted -mca ess env"));
        assert_eq!(of("-x -p 2200 -oA=b li@n2 true"), pair("n2", "true"));
        assert_eq!(of("-F /x/conf -qp22 -- n2 a b"), pair("n2", "a b"));
        assert_eq!(of("[fd00::1] a"), pair("fd00::1", "a"));
        assert_eq!(of("-o A=no n2 -p 2200 -o ConnectTimeout=10 cd /x -- y"), pair("n2", "cd /x -- y"));
        for none in ["n2", "-p 22", "-p", "", "-x"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
