//! Whether the programs that launchers start are found without a login shell, as ssh starts them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::site::on;
use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct ProgramPath;

const PROGRAMS: [&str; 7] = ["python3", "mpirun", "orted", "horovodrun", "torchrun", "nvidia-smi", "docker"];

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// By program: where a command over ssh finds it, and where a login shell does.
    programs: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Why a login shell does not tell.
    login: Option<String>,
}

impl Check for ProgramPath {
    const NAME: &'static str = "path";
    const ASKS: &'static str = "do commands over ssh find the programs that a login shell finds";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let (login, fault) = match site.of_login("PATH") {
            Ok(path) => (path, None),
            Err(why) => (None, Some(why)),
        };
        let path = |path: std::path::PathBuf| path.display().to_string();
        let find = |name: &str| {
            let of_login = login.as_ref().and_then(|login| on(Some(login.as_ref()), name));
            (site.program(name).map(path), of_login.map(path))
        };
        let programs = PROGRAMS.iter().map(|name| ((*name).to_owned(), find(name))).collect();
        Ok(Found { programs, login: fault })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one, seen)).collect()
    }
}

fn judge(one: &Seen<'_, Found>, all: &[Seen<'_, Found>]) -> Verdict {
    let mut hidden = Vec::new();
    let mut absent = Vec::new();
    for name in PROGRAMS {
        let Some((ssh, login)) = one.found.programs.get(name) else { continue };
        let elsewhere =
            all.iter().filter(|other| other.found.programs.get(name).is_some_and(|(ssh, _)| ssh.is_some()));
        let elsewhere: Vec<&str> = elsewhere.map(|other| other.host.as_str()).collect();
        match (ssh, login) {
            (None, Some(path)) => hidden.push((name, path, elsewhere)),
            (None, None) if !elsewhere.is_empty() => absent.push((name, elsewhere)),
            _ => {}
        }
    }
    let cause = "horovodrun, mpirun and ssh start programs without a login shell: \"command not found\" on this host alone";
    if let Some((_, path, _)) = hidden.first() {
        let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        let words: Vec<String> = hidden.iter().map(|(name, path, _)| format!("{name} ({path})")).collect();
        let words = format!("only a login shell finds {}", words.join(", "));
        let is_plain = shell_word(folder) == folder;
        // a name that a shell reads otherwise is no part of what a person may copy
        let folder = if is_plain { folder } else { "<its folder>" };
        let remedy = format!(
            "write 'export PATH={folder}:$PATH' at the top of ~/.bashrc there; for a run of hvtui: --env-from-login"
        );
        // where other hosts find it without, the same command fails here alone
        let uneven = hidden.iter().any(|(.., elsewhere)| !elsewhere.is_empty());
        let verdict = if uneven {
            Verdict::bad(words, cause, remedy).may_run()
        } else {
            Verdict::look(words, cause, remedy)
        };
        // the file stays the one that it is, with its mode and behind its links
        let command = format!(
            "{{ echo 'export PATH={folder}:$PATH'; cat ~/.bashrc 2>/dev/null; }} > ~/.bashrc.hvtui && cat ~/.bashrc.hvtui > ~/.bashrc && rm ~/.bashrc.hvtui"
        );
        return if is_plain { verdict.fixed_there(command) } else { verdict };
    }
    if let Some((_, hosts)) = absent.first() {
        let words: Vec<&str> = absent.iter().map(|(name, _)| *name).collect();
        let (some, more) = (hosts.iter().take(3).copied().collect::<Vec<_>>().join(", "), hosts.len() > 3);
        let words = format!("no {}, which {some}{} has", words.join(", no "), if more { " …" } else { "" });
        let cause = "a command that works on the other hosts is not found on this one";
        return Verdict::look(&words, cause, "install it there as on the other hosts");
    }
    if let Some(why) = &one.found.login {
        return Verdict::unknown(format!("the login shell does not tell its PATH: {why}"));
    }
    let found: Vec<&str> = one
        .found
        .programs
        .iter()
        .filter(|(_, (ssh, _))| ssh.is_some())
        .map(|(name, _)| name.as_str())
        .collect();
    Verdict::good(if found.is_empty() {
        "nothing is hidden from commands over ssh".to_owned()
    } else {
        found.join(", ")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn found(ssh: Option<&str>, login: Option<&str>) -> Found {
        let at = |path: Option<&str>| path.map(str::to_owned);
        Found { programs: [("horovodrun".to_owned(), (at(ssh), at(login)))].into(), login: None }
    }

    #[test]
    fn what_only_a_login_shell_finds_is_told_with_its_folder() {
        let both = || found(Some("/opt/hvd/bin/horovodrun"), Some("/opt/hvd/bin/horovodrun"));
        let verdicts = ProgramPath::judge(&seen([both(), found(None, Some("/opt/hvd/bin/horovodrun"))]));
        assert_eq!((verdicts[0].mark, verdicts[1].mark), (Mark::Good, Mark::Bad));
        assert_eq!(verdicts[1].evidence, "only a login shell finds horovodrun (/opt/hvd/bin/horovodrun)");
        assert!(verdicts[1].remedy.as_ref().unwrap().contains("PATH=/opt/hvd/bin:"));
        let everywhere = ProgramPath::judge(&seen([found(None, Some("/x/y")), found(None, Some("/x/y"))]));
        assert_eq!(everywhere[0].mark, Mark::Look, "hvtui can take the login shell's environment");
        let absent = ProgramPath::judge(&seen([both(), found(None, None)]));
        assert_eq!(
            (absent[1].mark, absent[1].evidence.as_str()),
            (Mark::Look, "no horovodrun, which host-0 has")
        );
    }
}
