//! Programs that start what stands behind them: in an environment, as `uv run …` and `conda run -n x …`, or with other limits,
//! priorities and variables, as `nice …`, `timeout 1h …` and `env A=b …`. Pure; must not know any launcher.

use super::{environment, names};
use crate::domain::environment::NONE;

/// Those programs.
const PROGRAMS: [&str; 9] =
    ["uv", "poetry", "pdm", "pipenv", "hatch", "pixi", "conda", "mamba", "micromamba"];

/// Their options that take the next word.
const WITH_VALUE: [&str; 32] = [
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
    "-w",
    "-a",
    "--attach",
    "-r",
    "--root-prefix",
];

/// Programs that change how what stands behind them runs: each with its options that take the next word, and how many other
/// words stand before what it starts.
const WRAPPERS: [(&str, &str, usize); 11] = [
    ("env", "-u --unset -C --chdir", 0),
    ("nohup", "", 0),
    ("setsid", "", 0),
    ("time", "-f --format -o --output", 0),
    ("nice", "-n --adjustment", 0),
    ("ionice", "-c --class -n --classdata", 0),
    ("timeout", "-s --signal -k --kill-after", 1),
    ("numactl", "-i --interleave -p --preferred -m --membind -N --cpunodebind -C --physcpubind", 0),
    ("taskset", "", 1),
    ("stdbuf", "-i --input -o --output -e --error", 0),
    ("chrt", "-T --sched-runtime -P --sched-period -D --sched-deadline", 1),
];

/// Where the program stands that such a command starts in the end; `None` where it is another command.
pub fn inner<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    let mut at = started(words)?;
    while let Some(next) = started(&words[at..]) {
        at += next;
    }
    Some(at)
}

/// Whether one of these words is a program that sets up an environment.
pub fn sets_up<S: AsRef<str>>(before: &[S]) -> bool {
    before.iter().any(|word| PROGRAMS.contains(&base(word.as_ref())))
}

fn started<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    wrapped(words).or_else(|| run(words))
}

/// What `nice`, `timeout` and the like start.
fn wrapped<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    let text = |at: usize| words.get(at).map(S::as_ref);
    let program = base(text(0)?);
    let (_, with_value, others) = WRAPPERS.iter().find(|(name, ..)| *name == program)?;
    let mut at = 1;
    while text(at)?.starts_with('-') {
        // a line of its own stands behind it in one word, or it would take away what tells a rank its number
        let starts_with = |start: &&str| text(at).is_some_and(|word| word.starts_with(*start));
        if program == "env" && (text(at) == Some("-") || ["-S", "--s", "-i", "--i"].iter().any(starts_with)) {
            return None;
        }
        let takes = with_value.split(' ').any(|option| Some(option) == text(at));
        at += 1 + usize::from(takes);
    }
    at += others;
    while program == "env" && is_variable(text(at)?) {
        at += 1;
    }
    text(at).map(|_| at)
}

/// `NAME=…`.
fn is_variable(word: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    word.split_once('=').is_some_and(|(name, _)| is_name(name))
}

/// What stands behind the `run` of an environment's program.
fn run<S: AsRef<str>>(words: &[S]) -> Option<usize> {
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
            ("micromamba run -r /m -a stdout -n x ./a", "./a"),
            ("nice -n 10 python t.py", "python t.py"),
            ("nice uv run timeout -k 5 1h python t.py", "python t.py"),
            ("taskset -c 0-3 ./a b", "./a b"),
            ("numactl -N 0 --membind=0 ./a", "./a"),
            ("/usr/bin/stdbuf -oL -e 0 ./a", "./a"),
            ("ionice -c 3 chrt -f 10 ./a", "./a"),
            ("timeout 1h env -u X A=b C= nohup ./a d=e", "./a d=e"),
            ("time -p -o t.txt setsid -f ./a", "./a"),
        ] {
            assert_eq!(started(line).as_deref(), Some(program), "{line}");
        }
        for line in [
            "uv",
            "uv run",
            "uv sync",
            "conda run -n",
            "conda run -n x",
            "python uv run x",
            "timeout 5",
            "nice",
            "env",
            "env A=b",
            "env -S ./a",
            "env -i ./a",
            "env - A=b ./a",
        ] {
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
