//! Whether the programs that launchers start are found without a login shell and without an interactive one, as ssh starts them.

mod shell;
mod startup;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::shell::Shell;
use self::startup::SetIn;
use super::super::site::{of_interactive, on};
use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::program::home;

pub(in crate::doctor) struct ProgramPath;

const PROGRAMS: [&str; 7] = ["python3", "mpirun", "orted", "horovodrun", "torchrun", "nvidia-smi", "docker"];

/// Folders that programs are often installed in; those that do not begin with `/` are below the home folder.
const USUAL: [&str; 13] = [
    ".local/bin",
    "bin",
    "/usr/local/bin",
    "/opt/conda/bin",
    "/opt/miniconda3/bin",
    "/opt/anaconda3/bin",
    "miniconda3/bin",
    "anaconda3/bin",
    "miniforge3/bin",
    "/usr/local/mpi/bin",
    "/opt/openmpi/bin",
    "/usr/lib64/openmpi/bin",
    "/snap/bin",
];

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// By program: where a command over ssh finds it, and where a login shell does.
    programs: BTreeMap<String, (Option<String>, Option<String>)>,
    /// Why a login shell does not tell.
    login: Option<String>,
    /// Programs that neither of them finds, and that are there all the same.
    #[serde(default)]
    hidden: BTreeMap<String, Hidden>,
    /// Why an interactive shell does not tell.
    #[serde(default)]
    interactive: Option<String>,
    #[serde(default)]
    shell: Shell,
}

/// A program that neither a command over ssh nor a login shell finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Hidden {
    path: String,
    /// Whether an interactive shell finds it; if not, it lies in one of the usual folders.
    interactive: bool,
    /// Where its folder is put on the search path, where a startup file of a shell says so.
    set_in: Option<SetIn>,
}

impl Check for ProgramPath {
    const NAME: &'static str = "path";
    const ASKS: &'static str =
        "do commands over ssh find the programs that a login shell and an interactive one find";
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        // at once: each may take seconds
        let (login, interactive) = std::thread::scope(|scope| {
            let interactive = scope.spawn(|| of_interactive("PATH"));
            let login = site.of_login("PATH");
            (login, interactive.join().unwrap_or_else(|_| Err("its thread failed".to_owned())))
        });
        let told = |path: Result<Option<String>, String>| match path {
            Ok(path) => (path, None),
            Err(why) => (None, Some(why)),
        };
        let ((login, login_fault), (interactive, interactive_fault)) = (told(login), told(interactive));
        let text = |path: PathBuf| path.display().to_string();
        let through = |search: &Option<String>, name: &str| {
            search.as_ref().and_then(|search| on(Some(search.as_ref()), name)).map(text)
        };
        let home = home();
        let usual = std::env::join_paths(USUAL.map(|folder| home.join(folder))).ok();
        let (mut programs, mut hidden) = (BTreeMap::new(), BTreeMap::new());
        for name in PROGRAMS {
            let found = (site.program(name).map(text), through(&login, name));
            if found == (None, None) {
                let of_shell = through(&interactive, name);
                let is_of_shell = of_shell.is_some();
                let path = of_shell.or_else(|| on(usual.as_deref(), name).map(text));
                hidden.extend(path.map(|path| {
                    let set_in = startup::set_in(folder(&path), &home).filter(|_| is_of_shell);
                    (name.to_owned(), Hidden { path, interactive: is_of_shell, set_in })
                }));
            }
            programs.insert(name.to_owned(), found);
        }
        let shell = Shell::here(&home);
        Ok(Found { programs, login: login_fault, hidden, interactive: interactive_fault, shell })
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(one, seen)).collect()
    }
}

/// The folder that a program lies in.
fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(folder, _)| if folder.is_empty() { "/" } else { folder })
}

/// What a host has where commands over ssh do not find it.
#[derive(Default)]
struct Unfound<'a> {
    /// Found by a login shell: name and path.
    login: Vec<(&'a str, &'a str)>,
    /// Found by an interactive shell alone.
    interactive: Vec<(&'a str, &'a Hidden)>,
    /// Found by no shell.
    by_none: Vec<(&'a str, &'a str)>,
    /// Whether other hosts find one of them.
    is_uneven: bool,
    /// Why the shells have not told what they find, where none has.
    is_untold: Option<&'a str>,
}

impl<'a> Unfound<'a> {
    fn is_empty(&self) -> bool {
        self.login.is_empty() && self.interactive.is_empty() && self.by_none.is_empty()
    }

    /// The folders to be put on the search path, each once.
    fn folders(&self) -> Vec<&'a str> {
        let paths = self.login.iter().map(|(_, path)| *path);
        let paths = paths.chain(self.interactive.iter().map(|(_, hidden)| hidden.path.as_str()));
        let mut folders = Vec::new();
        for folder in paths.chain(self.by_none.iter().map(|(_, path)| *path)).map(folder) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }

    fn words(&self) -> String {
        let list = |all: &mut dyn Iterator<Item = (&str, &str)>| {
            all.map(|(name, path)| format!("{name} ({path})")).collect::<Vec<_>>().join(", ")
        };
        let mut words = Vec::new();
        if !self.login.is_empty() {
            words.push(format!("only a login shell finds {}", list(&mut self.login.iter().copied())));
        }
        if !self.interactive.is_empty() {
            let mut all = self.interactive.iter().map(|(name, hidden)| (*name, hidden.path.as_str()));
            let set_in = self.interactive.iter().find_map(|(_, hidden)| hidden.set_in.as_ref());
            let place = set_in.map_or_else(String::new, |place| format!(": {}", place.words()));
            words.push(format!("only an interactive shell finds {}{place}", list(&mut all)));
        }
        if !self.by_none.is_empty() {
            let all = list(&mut self.by_none.iter().copied());
            words.push(match self.is_untold {
                None => format!("no shell finds {all}"),
                Some(why) => {
                    format!("commands over ssh don't find {all}, and no shell tells what it finds: {why}")
                }
            });
        }
        words.join("; ")
    }

    fn verdict(&self, shell: Shell) -> Verdict {
        let cause = "horovodrun, mpirun and ssh start programs in a shell that is neither a login shell nor interactive: \
                     \"command not found\" on this host alone";
        let folders = self.folders();
        let is_plain = folders.iter().all(|folder| shell_word(folder) == *folder);
        // a name that a shell reads otherwise is no part of what a person may copy
        let line = if is_plain { shell.line(&folders) } else { shell.line(&["<its folder>"]) };
        let option = if !self.by_none.is_empty() {
            "name the program with its whole path"
        } else if !self.interactive.is_empty() {
            "--env-from-login=interactive"
        } else {
            "--env-from-login"
        };
        let write = match shell.file() {
            Some(file) => {
                let is_guarded = |place: &SetIn| place.guard.is_some() && place.file == file;
                let mut places = self.interactive.iter().filter_map(|(_, hidden)| hidden.set_in.as_ref());
                let above =
                    if places.any(is_guarded) { ", above the line that ends it for such shells" } else { "" };
                format!("write '{line}' at the top of {file} there{above}")
            }
            None => "the login shell there reads no file then: put the folder on the PATH of /etc/environment, or change the shell (chsh \
                     -s /bin/bash)"
                .to_owned(),
        };
        let remedy = format!("{write}; for a run of hvtui: {option}");
        // where other hosts find it without, the same command fails here alone
        let verdict = if self.is_uneven {
            Verdict::bad(self.words(), cause, remedy).may_run()
        } else {
            Verdict::look(self.words(), cause, remedy)
        };
        match shell.put_at_top(&line).filter(|_| is_plain) {
            Some(command) => verdict.fixed_there(command),
            None => verdict,
        }
    }
}

fn judge(one: &Seen<'_, Found>, all: &[Seen<'_, Found>]) -> Verdict {
    let is_untold = one.found.login.as_deref().filter(|_| one.found.interactive.is_some());
    let mut unfound = Unfound { is_untold, ..Unfound::default() };
    let mut absent = Vec::new();
    for name in PROGRAMS {
        let Some((ssh, login)) = one.found.programs.get(name) else { continue };
        if ssh.is_some() {
            continue;
        }
        let elsewhere =
            all.iter().filter(|other| other.found.programs.get(name).is_some_and(|(ssh, _)| ssh.is_some()));
        let elsewhere: Vec<&str> = elsewhere.map(|other| other.host.as_str()).collect();
        match (login, one.found.hidden.get(name)) {
            (Some(path), _) => unfound.login.push((name, path)),
            (None, Some(hidden)) if hidden.interactive => unfound.interactive.push((name, hidden)),
            // an environment that is activated where it is wanted need not be on any search path
            (None, Some(hidden)) if !elsewhere.is_empty() => unfound.by_none.push((name, &hidden.path)),
            _ if !elsewhere.is_empty() => {
                absent.push((name, elsewhere));
                continue;
            }
            _ => continue,
        }
        unfound.is_uneven |= !elsewhere.is_empty();
    }
    if !unfound.is_empty() {
        return unfound.verdict(one.found.shell);
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
    let programs = one.found.programs.iter().filter(|(_, (ssh, _))| ssh.is_some());
    let found: Vec<&str> = programs.map(|(name, _)| name.as_str()).collect();
    let found = if found.is_empty() {
        "nothing is hidden from commands over ssh".to_owned()
    } else {
        found.join(", ")
    };
    Verdict::good(match &one.found.interactive {
        Some(why) => format!("{found}; an interactive shell does not tell its PATH: {why}"),
        None => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;
    use crate::domain::preflight::Mark;

    fn found(ssh: Option<&str>, login: Option<&str>) -> Found {
        let at = |path: Option<&str>| path.map(str::to_owned);
        let programs = [("horovodrun".to_owned(), (at(ssh), at(login)))].into();
        Found { programs, login: None, hidden: BTreeMap::new(), interactive: None, shell: Shell::Bash }
    }

    fn both() -> Found {
        found(Some("/opt/hvd/bin/horovodrun"), Some("/opt/hvd/bin/horovodrun"))
    }

    fn hidden(interactive: bool, set_in: Option<SetIn>) -> Found {
        let one = Hidden { path: "/opt/hvd/bin/horovodrun".to_owned(), interactive, set_in };
        Found { hidden: [("horovodrun".to_owned(), one)].into(), ..found(None, None) }
    }

    #[test]
    fn what_only_a_login_shell_finds_is_told_with_its_folder() {
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

    #[test]
    fn what_only_an_interactive_shell_finds_is_told_with_the_line_that_sets_it() {
        let set_in = SetIn { file: "~/.bashrc".to_owned(), line: 11, guard: Some(6) };
        let verdict = ProgramPath::judge(&seen([both(), hidden(true, Some(set_in))])).remove(1);
        assert_eq!((verdict.mark, verdict.for_launch()), (Mark::Bad, Mark::Look));
        assert_eq!(
            verdict.evidence,
            "only an interactive shell finds horovodrun (/opt/hvd/bin/horovodrun): line 11 of ~/.bashrc sets it, below line 6, which \
             ends the file for shells that are not interactive"
        );
        let remedy = verdict.remedy.unwrap();
        assert!(remedy.ends_with("for a run of hvtui: --env-from-login=interactive"), "{remedy}");
        let everywhere = ProgramPath::judge(&seen([hidden(true, None), hidden(true, None)]));
        assert_eq!(everywhere[0].mark, Mark::Look);
    }

    #[test]
    fn what_no_shell_finds_is_looked_for_where_it_is_often_installed() {
        let verdict = ProgramPath::judge(&seen([both(), hidden(false, None)])).remove(1);
        assert_eq!(
            (verdict.mark, verdict.evidence.as_str()),
            (Mark::Bad, "no shell finds horovodrun (/opt/hvd/bin/horovodrun)")
        );
        assert!(verdict.remedy.unwrap().contains("export PATH=/opt/hvd/bin:$PATH"));
        let silent = Found {
            login: Some("no answer in 3.5 s".to_owned()),
            interactive: Some("no answer in 3.5 s".to_owned()),
            ..hidden(false, None)
        };
        let silent = ProgramPath::judge(&seen([both(), silent])).remove(1);
        assert_eq!(
            silent.evidence,
            "commands over ssh don't find horovodrun (/opt/hvd/bin/horovodrun), and no shell tells what it finds: no answer in 3.5 s"
        );
        let nowhere_else = ProgramPath::judge(&seen([hidden(false, None), found(None, None)]));
        assert_eq!(nowhere_else[0].mark, Mark::Good, "an environment that is activated by hand");
    }

    #[test]
    fn an_older_answer_is_read() {
        let told = serde_json::json!({"programs": {"horovodrun": [null, "/x/horovodrun"]}, "login": null});
        let told: Found = serde_json::from_value(told).unwrap();
        assert!(told.hidden.is_empty() && told.interactive.is_none());
        assert_eq!(told.shell, Shell::Bash);
    }

    #[test]
    fn the_file_is_that_of_the_login_shell() {
        let of = |shell| {
            let hidden = Found { shell, ..found(None, Some("/opt/hvd/bin/horovodrun")) };
            ProgramPath::judge(&seen([hidden])).remove(0)
        };
        let zsh = of(Shell::Zsh);
        assert_eq!(
            zsh.remedy.as_deref(),
            Some(
                "write 'export PATH=/opt/hvd/bin:$PATH' at the top of ~/.zshenv there; for a run of hvtui: --env-from-login"
            )
        );
        assert!(zsh.help().unwrap().starts_with("sh -c 'f=~/.zshenv; "));
        let elsewhere = of(Shell::ZshElsewhere);
        let words = "write 'export PATH=/opt/hvd/bin:$PATH' at the top of $ZDOTDIR/.zshenv there; ";
        assert!(elsewhere.remedy.as_ref().unwrap().starts_with(words), "{elsewhere:?}");
        assert!(elsewhere.help().unwrap().starts_with("sh -c 'f=${ZDOTDIR:?}/.zshenv; "));
        let fish = of(Shell::Fish);
        let line = "write 'set -gx PATH /opt/hvd/bin $PATH' at the top of ~/.config/fish/config.fish there";
        assert!(fish.remedy.unwrap().starts_with(line) && fish.fix.is_some());
        let other = of(Shell::Other);
        assert!(other.remedy.unwrap().contains("/etc/environment") && other.fix.is_none());
        // a guard of another file than the one that is written does not matter
        let guarded = |shell| {
            let set_in = SetIn { file: "~/.bashrc".to_owned(), line: 11, guard: Some(6) };
            let hidden = Found { shell, ..hidden(true, Some(set_in)) };
            ProgramPath::judge(&seen([both(), hidden])).remove(1).remedy.unwrap()
        };
        assert!(guarded(Shell::Bash).contains("~/.bashrc there, above the line that ends it"));
        assert!(guarded(Shell::Zsh).contains("~/.zshenv there; "));
    }
}
