//! Commands that only prepare a shell for the next one: `cd`, `export`, `conda activate`, `source …/bin/activate`,
//! `module load`. What each of them means for a launch. Pure; must not know any launcher.

use std::ops::Range;

use super::names;
use super::words::{Caret, Line, Word, join};
use crate::domain::environment::EnvironmentPlan;

/// One command of that sort, and its place in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub does: Does,
    /// Its bytes in the line.
    pub span: Range<usize>,
}

/// What such a command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Does {
    /// `cd DIR`.
    Folder(String),
    /// `conda activate NAME`.
    Conda(String),
    /// `source VENV/bin/activate`: the virtual environment's folder.
    Venv(String),
    /// `module load A B`.
    Modules(Vec<String>),
    /// `export A=1`: the variables stand before the command then.
    Export,
    /// Prepares what hvtui does by itself: `set -e`, `source …/conda.sh`.
    Nothing,
}

/// What the commands before a command come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepared {
    /// Where the command is started.
    pub workdir: Option<String>,
    /// What is activated before it.
    pub environment: EnvironmentPlan,
}

/// What a command of these words does, if it is one that only prepares.
pub fn read(words: &[Word]) -> Option<Does> {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let (program, arguments) = texts.split_first()?;
    if let ("set", [_, ..]) = (*program, arguments) {
        return Some(Does::Nothing);
    }
    if arguments.iter().any(|argument| argument.starts_with('-')) {
        return None;
    }
    match (*program, arguments) {
        ("cd", []) => Some(Does::Folder("~".to_owned())),
        ("cd" | "pushd", [folder]) => Some(Does::Folder((*folder).to_owned())),
        ("conda" | "mamba" | "micromamba", ["activate"]) => Some(Does::Conda("base".to_owned())),
        ("conda" | "mamba" | "micromamba" | "source", ["activate", name]) => {
            Some(Does::Conda((*name).to_owned()))
        }
        ("source" | ".", [file]) => sourced(file),
        ("module", ["load" | "add", names @ ..]) | ("ml", names) if !names.is_empty() => {
            Some(Does::Modules(names.iter().map(|name| (*name).to_owned()).collect()))
        }
        ("module", ["purge"]) => Some(Does::Nothing),
        ("export", [_, ..]) if arguments.iter().all(|argument| is_assignment(argument)) => Some(Does::Export),
        _ => None,
    }
}

/// What it means to read this file into the shell.
fn sourced(file: &str) -> Option<Does> {
    if file.ends_with("/etc/profile.d/conda.sh") {
        return Some(Does::Nothing);
    }
    if file == "bin/activate" {
        return Some(Does::Venv(".".to_owned()));
    }
    file.strip_suffix("/bin/activate")
        .filter(|folder| !folder.is_empty())
        .map(|folder| Does::Venv(folder.to_owned()))
}

/// Whether a command that begins so prepares a shell, in whatever way.
pub fn prepares(program: &str) -> bool {
    const PROGRAMS: [&str; 11] =
        ["cd", "pushd", "conda", "mamba", "micromamba", "source", ".", "module", "ml", "export", "set"];
    PROGRAMS.contains(&program)
}

/// The fault of a line that only prepares a shell: on the command line a shell took what stood behind `&&`.
pub fn alone(line: &Line) -> Option<Caret> {
    let (first, last) = (line.words.first()?, line.words.last()?);
    // names of programs too
    let is_shells = !matches!(first.text.as_str(), "ml" | "set" | ".");
    read(&line.words).filter(|_| is_shells)?;
    let texts: Vec<&str> = line.words.iter().map(|word| word.text.as_str()).collect();
    let words = join(&texts);
    let text = format!(
        "no command follows `{words}`: write it behind `&&`, on the command line the whole line in quotes: `hvtui run -- '{words} && \
         COMMAND'`"
    );
    Some(line.caret(first.span.start..last.span.end, text))
}

/// What stands before the command of a line.
///
/// # Errors
/// A folder that could mean several.
pub fn prepared(line: &Line) -> Result<Prepared, Caret> {
    let mut all = Prepared::default();
    for step in &line.before {
        match &step.does {
            Does::Folder(folder) => all.workdir = Some(all.whole(folder, line, step)?),
            Does::Venv(folder) => all.environment.venv = Some(all.whole(folder, line, step)?),
            Does::Conda(name) if name.contains('/') => {
                all.environment.conda = Some(all.whole(name, line, step)?);
            }
            Does::Conda(name) => all.environment.conda = Some(name.clone()),
            Does::Modules(names) => all.environment.modules.extend(names.iter().cloned()),
            Does::Export | Does::Nothing => {}
        }
    }
    Ok(all)
}

impl Prepared {
    /// A folder as it is named on every host.
    fn whole(&self, folder: &str, line: &Line, step: &Step) -> Result<String, Caret> {
        if names::is_workdir(folder) {
            return Ok(folder.to_owned());
        }
        let folder = folder.strip_prefix("./").unwrap_or(folder);
        match &self.workdir {
            Some(workdir) if folder == "." => Ok(workdir.clone()),
            Some(workdir) => Ok(format!("{}/{folder}", workdir.trim_end_matches('/'))),
            None => {
                let text = format!(
                    "`{folder}` is a relative path: write the whole path on the hosts, or one that begins with ~/"
                );
                Err(line.caret(step.span.clone(), text))
            }
        }
    }
}

/// `NAME=…`.
fn is_assignment(word: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Prepared, Vec<String>), Caret> {
        let line = Line::typed(text)?;
        let words = line.words.iter().map(|word| word.text.clone()).collect();
        Ok((prepared(&line)?, words))
    }

    #[test]
    fn what_prepares_a_shell_is_taken_for_what_it_does() {
        let told = |text: &str| {
            let (prepared, words) = of(text).unwrap_or_else(|caret| panic!("{text}: {caret}"));
            let Prepared { workdir, environment } = prepared;
            let list = [workdir, environment.conda, environment.venv];
            (list.map(Option::unwrap_or_default).join("|"), environment.modules.join("+"), words.join(" "))
        };
        let is = |text: &str, folders: &str, modules: &str, words: &str| {
            assert_eq!(told(text), (folders.to_owned(), modules.to_owned(), words.to_owned()), "{text}");
        };
        is("cd ~/x && python t.py", "~/x||", "", "python t.py");
        is("cd && python t.py", "~||", "", "python t.py");
        is("cd '/my data'; cd sub && python t.py", "/my data/sub||", "", "python t.py");
        is("conda activate x && python t.py", "|x|", "", "python t.py");
        is("source activate x; python t.py", "|x|", "", "python t.py");
        is("source ~/v/bin/activate && python t.py", "||~/v", "", "python t.py");
        is("cd /p && . .venv/bin/activate; python t.py", "/p||/p/.venv", "", "python t.py");
        is("cd /p && source ./v/bin/activate && python t.py", "/p||/p/v", "", "python t.py");
        is(
            "module purge; module load cuda/12 nccl && ml gcc && python t.py",
            "||",
            "cuda/12+nccl+gcc",
            "python t.py",
        );
        is(
            "set -ex; source /o/etc/profile.d/conda.sh && conda activate && python t.py",
            "|base|",
            "",
            "python t.py",
        );
        is("export A=1 B='x y' && cd /p && export C=2; python t.py", "/p||", "", "A=1 B=x y C=2 python t.py");
        is("$ cd /p\n$ export A=1\n$ python t.py", "/p||", "", "A=1 python t.py");
        is("cd /p &&\n  python t.py", "/p||", "", "python t.py");
    }

    #[test]
    fn a_folder_that_could_mean_several_is_refused() {
        for line in ["cd x && python t.py", "source v/bin/activate && python t.py"] {
            let caret = of(line).unwrap_err();
            assert!(caret.text.contains("is a relative path: write the whole path"), "{caret}");
            assert_eq!(caret.at, 0, "{caret}");
        }
    }

    #[test]
    fn what_prepares_a_shell_for_nothing_is_told() {
        for words in [&["cd", "/x"][..], &["conda", "activate", "x"], &["export", "A=1"]] {
            let caret = alone(&Line::of(words)).unwrap();
            assert!(caret.text.contains("the whole line in quotes"), "{caret}");
        }
        for words in [&["ml", "x"][..], &["conda", "run", "x"], &["python", "cd"], &[]] {
            assert_eq!(alone(&Line::of(words)), None, "{words:?}");
        }
    }

    #[test]
    fn what_is_not_understood_needs_a_shell_still() {
        for line in [
            "cd a b && python t.py",
            "conda activate -n x && python t.py",
            "source env.sh && python t.py",
            "export A && python t.py",
        ] {
            let caret = of(line).unwrap_err();
            assert!(caret.text.contains("`&&` needs a shell"), "{line}: {caret}");
            for word in ["workdir (`--workdir`)", "activate (`--conda`, `--venv`)"] {
                assert!(caret.text.contains(word), "{line}: {caret}");
            }
        }
        for line in
            ["python a.py && cd /x", "make; python a.py", "cd /x || python t.py", "cd /x & python t.py"]
        {
            let caret = of(line).unwrap_err();
            assert!(caret.text.contains("needs a shell"), "{line}: {caret}");
        }
    }
}
