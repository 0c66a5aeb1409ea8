//! `hvtui doctor --fix`: asks for each remedy that is one command whether to run it, shows it whole, runs what was agreed to on the
//! host (by the system's ssh, so that `sudo` can ask for its password), and looks again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{Wanted, examine};
use crate::cli::ask;
use crate::cli::commands::run::reach;
use crate::cli::errors::{Failure, note, to_person};
use crate::cli::paths::Paths;
use crate::cli::runtime;
use crate::config::{HostConfig, HostsFile};
use crate::domain::doctor::{Fix, Matrix, Verdict, glyph, names};
use crate::domain::ids::HostId;
use crate::domain::text::os_text;

/// A trouble that a command helps against.
struct Trouble<'a> {
    check: &'static str,
    hosts: Vec<&'a HostId>,
    verdict: &'a Verdict,
    fix: &'a Fix,
}

/// Asks one by one, and gives what is found then of the checks concerned, asked as in `wanted`; `None` where nothing was run.
pub(super) fn run(
    matrix: &Matrix,
    hosts: &[HostConfig],
    file: &HostsFile,
    (paths, wanted): (&Paths, &Wanted<'_>),
) -> Result<Option<Matrix>, Failure> {
    let troubles = troubles(matrix);
    if troubles.is_empty() {
        let left = matrix.rows.iter().any(|row| row.verdicts.values().any(Verdict::is_trouble));
        to_person(if left {
            "\nno remedy above is a single command: they are yours to carry out\n"
        } else {
            "\nthere is nothing to fix\n"
        })?;
        return Ok(None);
    }
    let mut done = BTreeSet::new();
    for (at, trouble) in troubles.iter().enumerate() {
        let (number, count) = (at + 1, troubles.len());
        let Trouble { check, hosts: of, verdict, fix } = trouble;
        let whose = names(of);
        to_person(&format!("\n{} {check} on {whose}: {}\n", glyph(verdict.mark), verdict.evidence))?;
        let command = match fix {
            Fix::There(command) => format!("on {whose}: {command}"),
            Fix::On(host, command) => format!("on {host}: {command}"),
            Fix::Here(_) => format!("here: {}", fix.command()),
        };
        to_person(&format!("  {number} of {count}, would run {command}\n  run it? [y/N] "))?;
        if !runtime::block_on(async { Ok(ask::is_yes().await) })? {
            continue;
        }
        let ran = match fix {
            Fix::There(command) => {
                let ends =
                    of.iter().map(|host| start(there(hosts, &paths.home, host, command), host.as_str()));
                // each host has its turn, whatever becomes of another one
                ends.collect::<Vec<bool>>().into_iter().all(|ended| ended)
            }
            Fix::On(host, command) => start(there(hosts, &paths.home, host, command), host.as_str()),
            Fix::Here(words) => here(hosts, file, words).is_ok_and(|command| start(command, "hvtui")),
        };
        if ran {
            to_person("  done\n")?;
        }
        done.insert((*check).to_owned());
    }
    if done.is_empty() {
        return Ok(None);
    }
    let only: Vec<String> = done.into_iter().collect();
    to_person(&format!("\nlooking again: {}\n\n", only.join(", ")))?;
    Ok(Some(runtime::block_on(examine(hosts, &again(wanted, &only), paths))?.matrix()))
}

/// The second look: these checks, asked as at first. That of files and folders is none of them: no command helps there.
fn again<'a>(first: &Wanted<'a>, only: &'a [String]) -> Wanted<'a> {
    Wanted { only, same: &[], modules: first.modules, image: first.image }
}

/// In the matrix's order; hosts with the same trouble and the same command are asked for together. What is run here, or on a host
/// that is in the way of several, is run once.
fn troubles(matrix: &Matrix) -> Vec<Trouble<'_>> {
    let mut troubles: Vec<Trouble<'_>> = Vec::new();
    for row in &matrix.rows {
        for host in &matrix.hosts {
            let Some(verdict) = row.verdicts.get(host).filter(|verdict| verdict.is_trouble()) else {
                continue;
            };
            let Some(fix) = &verdict.fix else { continue };
            // the number of a process is another one's on another host
            let is_same = |one: &Trouble<'_>| {
                let is_of_one = fix.command().starts_with("kill ");
                one.check == row.check && one.fix == fix && !is_of_one
            };
            let known = troubles.iter_mut().find(|one| is_same(one));
            match known {
                Some(one) => one.hosts.push(host),
                None => troubles.push(Trouble { check: row.check, hosts: vec![host], verdict, fix }),
            }
        }
    }
    troubles
}

/// The command on a host, with this terminal.
fn there(hosts: &[HostConfig], home: &Path, host: &HostId, command: &str) -> Command {
    let Some(reach) = reach(hosts, host) else {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]);
        return shell;
    };
    // the keys that hvtui knows, wherever the system's ssh takes the home folder from
    let known = home.join(".ssh/known_hosts");
    let known = format!("UserKnownHostsFile=\"{}\" ~/.ssh/known_hosts", known.display());
    let mut ssh = Command::new("ssh");
    ssh.args(["-t", "-o", &known]).args(reach.words()).arg(command);
    ssh
}

/// A command of hvtui's own for these hosts.
fn here(hosts: &[HostConfig], file: &HostsFile, words: &[String]) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(path) = &file.path {
        command.arg("--hosts").arg(path);
    }
    command.args(words).args(hosts.iter().map(|host| host.id.as_str()));
    Ok(command)
}

/// Runs it to its end; `false` (after saying why) where it failed.
fn start(mut command: Command, what: &str) -> bool {
    match command.status() {
        Ok(status) if status.success() => true,
        Ok(status) => {
            note(&format!("{what}: it failed: {status}"));
            false
        }
        Err(error) => {
            note(&format!("{what}: {}: {}", command.get_program().display(), os_text(&error)));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::doctor::Row;

    #[test]
    fn the_second_look_is_asked_as_the_first_was() {
        let (modules, only) = (["apex".to_owned()], ["python".to_owned()]);
        let first =
            Wanted { only: &[], same: &["~/train".to_owned()], modules: &modules, image: Some("a:1") };
        let second = again(&first, &only);
        assert_eq!((second.only, second.modules, second.image), (&only[..], &modules[..], Some("a:1")));
        assert!(second.same.is_empty(), "the check of files is none of these");
    }

    #[test]
    fn hosts_with_one_command_are_asked_for_together() {
        let hosts: Vec<HostId> = ["a", "b", "c"].map(HostId::from).to_vec();
        let off =
            || Verdict::look("off", "slow", "x").fixed_by(Fix::There("sudo nvidia-smi -pm 1".to_owned()));
        let login =
            || Verdict::look("no key", "hangs", "x").fixed_by(Fix::Here(vec!["hosts".into(), "mesh".into()]));
        let row = |check, verdicts: Vec<(usize, Verdict)>| Row {
            check,
            asks: "",
            verdicts: verdicts.into_iter().map(|(at, verdict)| (hosts[at].clone(), verdict)).collect(),
        };
        let walled =
            || Verdict::bad("rejected", "hangs", "x").fixed_by(Fix::On("c".into(), "ufw allow".to_owned()));
        // process 42 is another one on each host
        let held = || Verdict::look("29500 is taken", "x", "x").fixed_by(Fix::There("kill 42".to_owned()));
        let rows = vec![
            row("ports", vec![(0, held()), (1, held())]),
            row("reach", vec![(0, walled()), (1, walled()), (2, Verdict::good("fine"))]),
            row("logins", vec![(0, login()), (1, login()), (2, Verdict::good("fine"))]),
            row("health", vec![(0, off()), (1, Verdict::look("other", "x", "prose")), (2, off())]),
        ];
        let matrix = Matrix { hosts: hosts.clone(), rows };
        let found = troubles(&matrix);
        let told: Vec<(&str, usize)> = found.iter().map(|one| (one.check, one.hosts.len())).collect();
        assert_eq!(told, [("ports", 1), ("ports", 1), ("reach", 2), ("logins", 2), ("health", 2)]);
    }
}
