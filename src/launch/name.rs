//! What can be told from a command: how it is started, and a name for people.

use std::path::Path;

use super::environment_run;
use crate::domain::python::{Runs, runs};
use crate::domain::run::JobKind;
use crate::domain::text::sanitize;
use crate::domain::units::middle_cut;

/// The most columns of a name made from a command.
const NAME_WIDTH: usize = 32;

/// `native` for hvtui's own jobs, `plain` for anything else.
pub fn kind_of(command: &[String]) -> JobKind {
    match command.first().map(String::as_str) {
        Some("hvtui") => JobKind::Native,
        _ => JobKind::Plain,
    }
}

/// The word of a command that tells it from others: `digits` of `hvtui train digits`, `train.py` of
/// `python -u src/train.py`, else the program's own name. Of `uv run …`, `nice …`, `sudo …` and the like it is that of what they
/// start.
pub fn name_of(command: &[String]) -> String {
    let command = match command {
        [sudo, rest @ ..]
            if base(sudo) == "sudo" && rest.first().is_some_and(|word| !word.starts_with('-')) =>
        {
            rest
        }
        command => command,
    };
    let command = environment_run::inner(command).map_or(command, |at| &command[at..]);
    let program = command.first().map_or("", String::as_str);
    let mut words = command.iter().skip(1).map(String::as_str).filter(|word| !word.starts_with('-'));
    let telling = match base(program) {
        "hvtui" => words.nth(1),
        python if is_python(python) => runs(command.iter().skip(1).map(String::as_str))
            .map(|(Runs::Module(name, _) | Runs::Script(name))| name)
            .filter(|word| is_script(word) || !word.contains(char::is_whitespace)),
        "accelerate" | "accelerate-launch" | "deepspeed" => words.find(|word| is_script(word)),
        // the text of `sh -c` and `perl -e` is no name
        interpreter if is_interpreter(interpreter) => {
            let before = command.iter().skip(1).take_while(|word| word.starts_with('-')).last();
            let is_text = before.is_some_and(|option| takes_text(interpreter, option));
            words.next().filter(|word| !is_text && !word.contains(char::is_whitespace))
        }
        _ => None,
    };
    let name = base(telling.unwrap_or(program));
    middle_cut(sanitize(name).trim(), NAME_WIDTH)
}

/// Whether a word is the path of a Python script.
fn is_script(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|end| end == "py")
}

/// The last part of a path.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// A program's name without a version behind it.
fn bare(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

fn is_python(name: &str) -> bool {
    matches!(bare(name), "python" | "pypy")
}

fn is_interpreter(name: &str) -> bool {
    matches!(bare(name), "bash" | "sh" | "julia" | "node" | "perl" | "ruby" | "Rscript")
}

/// Whether the word behind this option is a program's text: `-c`, or `-lc` of a shell.
fn takes_text(interpreter: &str, option: &str) -> bool {
    let last = if ["sh", "bash"].iter().any(|start| interpreter.starts_with(start)) { 'c' } else { 'e' };
    let letters = option.trim_start_matches('-');
    !option.starts_with("--")
        && letters.len() <= 4
        && letters.ends_with(last)
        && letters.chars().all(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        shlex::split(line).unwrap()
    }

    #[test]
    fn names_are_the_word_that_tells_runs_apart() {
        for (line, name) in [
            ("hvtui train digits --epochs 3", "digits"),
            ("hvtui", "hvtui"),
            ("/opt/conda/bin/python3.12 -u src/train.py --lr 1", "train.py"),
            ("python -m", "python"),
            ("sh -c 'exit 3'", "sh"),
            ("python3 -u -c print(1)", "python3"),
            ("bash -lc ./train.sh", "bash"),
            ("bash -e train.sh", "train.sh"),
            ("perl -e 1", "perl"),
            ("python -Wonce train.py", "train.py"),
            ("python3 -m pkg.train", "pkg.train"),
            ("python3 -W ignore x.py", "x.py"),
            ("python3 -X dev -u src/x.py", "x.py"),
            ("python3 --check-hash-based-pycs never -m pkg.train", "pkg.train"),
            ("./my-job x", "my-job"),
            ("uv run python3 -u src/t.py --lr 1", "t.py"),
            ("uv run --with torch t.py", "t.py"),
            ("conda run -n x --no-capture-output python t.py", "t.py"),
            ("poetry run python -m pkg.train", "pkg.train"),
            ("python3 'my train (v2).py'", "my train (v2).py"),
            ("nice -n 5 python src/t.py", "t.py"),
            ("timeout 1h uv run t.py", "t.py"),
            ("sudo stdbuf -oL python3 t.py", "t.py"),
            ("sudo -E python3 t.py", "sudo"),
            ("accelerate launch --num_processes 2 src/t.py --lr 1", "t.py"),
            ("accelerate config", "accelerate"),
            ("uv sync", "uv"),
            ("uv run", "uv"),
            ("sleep 5", "sleep"),
            ("/bin/", "bin"),
            ("'a\u{1b}[31mb'", "a␛[31mb"),
        ] {
            assert_eq!(name_of(&words(line)), name, "{line}");
        }
    }

    #[test]
    fn our_own_jobs_are_native() {
        assert_eq!(kind_of(&words("hvtui train digits")), JobKind::Native);
        assert_eq!(kind_of(&words("python hvtui")), JobKind::Plain);
    }
}
