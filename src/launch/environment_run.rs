//! Programs that start what stands behind their `run` in an environment: `uv run …`, `conda run -n x …`. Pure; must not know
//! any launcher.

use super::{environment, names};
use crate::domain::environment::NONE;

/// Those programs.
const PROGRAMS: [&str; 9] =
    ["uv", "poetry", "pdm", "pipenv", "hatch", "pixi", "conda", "mamba", "micromamba"];

/// Their options that take the next word.
const WITH_VALUE: [&str; 27] = [
    "-n",
    "--name",
    "-p",
    "--prefix",
    "--cwd",
    "--python",
    "--with",
    "--with-editable",
    "--with-requirements",
    "--extra",
    "--group",
    "--only-group",
    "--package",
    "--project",
    "--directory",
    "--env-file",
    "--index",
    "--default-index",
    "--index-url",
    "--extra-index-url",
    "--find-links",
    "--cache-dir",
    "--config-file",
    "--manifest-path",
    "-C",
    "-e",
    "--environment",
];

/// Where the program stands that such a command starts; `None` where it is another command.
pub fn inner<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    let text = |at: usize| words.get(at).map(S::as_ref);
    if !PROGRAMS.contains(&base(text(0)?)) || text(1)? != "run" {
        return None;
    }
    let mut at = 2;
    while text(at)?.starts_with('-') {
        at += 1 + usize::from(WITH_VALUE.contains(&text(at)?));
    }
    Some(at)
}

/// What `conda run` activates and where it starts its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondaRun {
    /// The environment's name, or its path.
    pub environment: String,
    /// `--cwd`.
    pub workdir: Option<String>,
}

/// What the words before the program of a `conda run` say; `None` where they name no environment, or say more than that.
pub fn conda<S: AsRef<str>>(before: &[S]) -> Option<CondaRun> {
    let (mut named, mut workdir) = (None, None);
    let mut words = before.iter().map(S::as_ref);
    if !matches!(base(words.next()?), "conda" | "mamba" | "micromamba") || words.next()? != "run" {
        return None;
    }
    while let Some(word) = words.next() {
        let (option, joined) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        match option {
            "--" | "--no-capture-output" | "--live-stream" if joined.is_none() => {}
            "-n" | "--name" => named = Some(name(joined.or_else(|| words.next())?)?),
            "-p" | "--prefix" => named = Some(folder(joined.or_else(|| words.next())?)?),
            "--cwd" => workdir = Some(folder(joined.or_else(|| words.next())?)?),
            _ => return None,
        }
    }
    Some(CondaRun { environment: named?, workdir })
}

/// A name that `--conda` takes for the same environment.
fn name(text: &str) -> Option<String> {
    let name = environment::name("-n", text).ok()?;
    (!name.contains('/') && name != NONE).then_some(name)
}

/// A folder that is the same one wherever it is said.
fn folder(path: &str) -> Option<String> {
    names::is_workdir(path).then(|| path.to_owned())
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_behind_an_environment_is_found() {
        let started = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            inner(&words).map(|at| words[at..].join(" "))
        };
        for (line, program) in [
            ("uv run t.py --lr 1", "t.py --lr 1"),
            ("uv run --with torch --frozen -- python t.py", "python t.py"),
            ("/opt/conda/bin/conda run -n x --no-capture-output python t.py", "python t.py"),
            ("micromamba run --name=x ./a", "./a"),
        ] {
            assert_eq!(started(line).as_deref(), Some(program), "{line}");
        }
        for line in ["uv", "uv run", "uv sync", "conda run -n", "conda run -n x", "python uv run x"] {
            assert_eq!(started(line), None, "{line}");
        }
    }

    #[test]
    fn conda_run_names_an_environment_or_says_more() {
        let told = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            conda(&words).map(|run| (run.environment, run.workdir.unwrap_or_default()))
        };
        for (line, environment, workdir) in [
            ("conda run -n x", "x", ""),
            ("micromamba run --name=x --", "x", ""),
            ("/o/bin/mamba run --live-stream -p /envs/x --cwd ~/w", "/envs/x", "~/w"),
        ] {
            assert_eq!(told(line), Some((environment.to_owned(), workdir.to_owned())), "{line}");
        }
        for line in [
            "conda run",
            "conda run -n",
            "conda run -n none",
            "conda run -n a/b",
            "conda run -p envs/x",
            "conda run -n x --cwd w",
            "micromamba run -n x -e A=1",
            "uv run -n x",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
