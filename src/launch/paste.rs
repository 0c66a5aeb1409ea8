//! Pasted command lines of launchers, read strictly into plain data: `horovodrun`, `mpirun`, `torchrun`,
//! `TF_CONFIG=…`, `srun`, `docker run …` and a few tools. Must not know what hosts there are, nor start anything.

use crate::domain::python::{Runs, runs};
use crate::domain::run::JobKind;
use crate::launch::name::base;
use crate::launch::setup;
use crate::launch::words::{Caret, Line, Word, quote};

mod batch;
mod common;
mod docker;
mod draft;
mod horovodrun;
mod hosts;
mod mpirun;
mod options;
mod pasted;
mod prefix;
mod programs;
mod quoted;
mod rsh_args;
mod srun;
mod tf_config;
mod tools;
mod torchrun;

use draft::Draft;
use options::Value;

pub(super) use hosts::split_port;
pub use pasted::{Container, HostSlots, KnownTo, Launcher, Pasted, PerNode, Task};
pub use quoted::{Shown, read_quoted};
pub use tools::ranks_option;

/// As whom ranks run, and what changes that.
const AS_LOGIN: &str = "ranks run as the user as whom hvtui logs in to their host";
const NAMES_ANOTHER: &str = "; `user` of a [[host]] in the hosts file names another one";

/// Launchers whose ranks hvtui starts only by another line.
const ACCELERATE: &str = "accelerate launch";
const DEEPSPEED: &str = "deepspeed";

/// Reads a line; `None` where it is a plain command without variables, `cd` and the like before it.
///
/// # Errors
/// A caret under what the launcher would have refused or misunderstood.
pub fn read(line: &Line) -> Result<Option<Pasted>, Caret> {
    if !line.batch.is_empty() {
        return batch::read(line);
    }
    let read = read_command(line)?;
    if line.ending.is_empty() {
        return Ok(read);
    }
    let mut pasted = read.map_or_else(|| plain(line), Ok)?;
    pasted.left_out.extend(line.ending.remarks());
    Ok(Some(pasted))
}

/// A line that is a command and nothing else.
fn plain(line: &Line) -> Result<Pasted, Caret> {
    let mut draft = Draft::new(line);
    draft.pasted.argv = draft.texts(0);
    draft.take_command(0)?;
    Ok(draft.pasted)
}

fn read_command(line: &Line) -> Result<Option<Pasted>, Caret> {
    let mut draft = Draft::new(line);
    let setup::Prepared { workdir, environment } = setup::prepared(line)?;
    (draft.pasted.workdir, draft.pasted.environment) = (workdir, environment);
    if let Some(caret) = setup::alone(line) {
        return Err(caret);
    }
    let Some(at) = before_command(&mut draft)? else { return Ok(None) };
    own_launch(&draft, at)?;
    draft.pasted.argv = draft.texts(at);
    let known = launcher(&mut draft, at)?;
    if !known && let Some(value) = draft.tf_config.take() {
        tf_config::read(&mut draft, &value, at)?;
        return Ok(Some(draft.pasted));
    }
    if let Some(value) = draft.tf_config.take() {
        // Beside a launcher it is a variable as any other.
        draft.pasted.set_env("TF_CONFIG", value.text());
    }
    if known {
        return Ok(Some(draft.pasted));
    }
    if let Some(inside) = shell(&mut draft, at)? {
        return Ok(Some(inside));
    }
    if let Some(inside) = prefix::read(&mut draft, at)? {
        return Ok(Some(inside));
    }
    if let Some(wrapped) = wrapped(&mut draft, at)? {
        return Ok(Some(wrapped));
    }
    if at == 0 && line.before.is_empty() {
        return Ok(None);
    }
    draft.take_command(at)?;
    Ok(Some(draft.pasted))
}

/// Whether words are `hvtui run …`, and where `run` stands.
pub fn own_run<S: AsRef<str>>(words: &[S]) -> Option<usize> {
    let [program, behind @ ..] = words else { return None };
    let at = behind.iter().position(|word| !word.as_ref().starts_with('-'))?;
    (base(program.as_ref()) == "hvtui" && behind[at].as_ref() == "run").then_some(at + 1)
}

/// `hvtui run …`: as a command it would start hvtui again, once a rank.
fn own_launch(draft: &Draft<'_>, at: usize) -> Result<(), Caret> {
    let words = draft.line.words.get(at..).unwrap_or_default();
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    let Some(run) = own_run(&texts) else { return Ok(()) };
    let (program, run, behind) = (&words[0], &words[run], &words[1..]);
    let command =
        behind.iter().position(|word| word.text == "--").and_then(|dashes| behind.get(dashes + 1..));
    let command: Vec<String> = command.unwrap_or_default().iter().map(|word| quote(&word.text)).collect();
    let alone = if command.is_empty() {
        "write its command alone".to_owned()
    } else {
        format!("write `{}` alone", command.join(" "))
    };
    let text = format!(
        "each rank would start `hvtui run` again: {alone}; what its options say belongs into the fields of the form, on the \
         command line before the first `--`"
    );
    Err(draft.line.caret(program.span.start..run.span.end, text))
}

/// Reads words that a shell has split.
///
/// # Errors
/// As [`read`]; the line shown is the words joined.
pub fn read_words<S: AsRef<str>>(words: &[S]) -> Result<Option<Pasted>, Caret> {
    read(&Line::of(words))
}

/// Reads a line as it was typed or pasted.
///
/// # Errors
/// As [`read`], and for what needs a shell.
pub fn read_text(text: &str) -> Result<Option<Pasted>, Caret> {
    read(&Line::typed(text)?)
}

/// Whether a program is a launcher of ranks, so that it must never be started once a slot.
pub fn is_launcher(program: &str) -> bool {
    is_mpirun(base(program)) || matches!(base(program), "horovodrun" | "torchrun" | "srun")
}

fn is_mpirun(name: &str) -> bool {
    let name = name.split(['.', '-']).next().unwrap_or(name);
    matches!(name, "mpirun" | "mpiexec" | "orterun" | "prterun" | "oshrun")
}

/// Reads the line whose program is the word `at`; false where it is none that is known.
fn launcher(draft: &mut Draft<'_>, at: usize) -> Result<bool, Caret> {
    let Some(word) = draft.line.words.get(at) else { return Ok(false) };
    match base(&word.text) {
        "horovodrun" => horovodrun::read(draft, at + 1)?,
        "torchrun" => torchrun::read(draft, at + 1, &torchrun::Form::Torchrun)?,
        "srun" => srun::read(draft, at + 1)?,
        name if is_mpirun(name) => mpirun::read(draft, at + 1)?,
        "docker" | "podman" | "nvidia-docker" => return container(draft, at),
        "sudo" if is_engine(draft, at + 1) => {
            draft.remark("`sudo` is left out: containers are started as the user of the hosts, who must be allowed to.");
            return container(draft, at + 1);
        }
        "watch" => return tools::watch(draft, at + 1),
        "nvidia-smi" => return Ok(tools::nvidia_smi(draft, at + 1)),
        "accelerate" if draft.line.words.get(at + 1).is_some_and(|word| word.text == "launch") => {
            tools::starts_ranks(draft, at, ACCELERATE);
        }
        "accelerate-launch" => tools::starts_ranks(draft, at, ACCELERATE),
        DEEPSPEED => tools::starts_ranks(draft, at, DEEPSPEED),
        "ssh-keygen" => tools::keygen(draft),
        "ssh-copy-id" => tools::copy_id(draft, at + 1)?,
        name if is_python(name) => {
            if let Some((form, next)) = torchrun::module(draft, at) {
                torchrun::read(draft, next, &form)?;
            } else {
                match python_module(&draft.line.words, at) {
                    Some(("horovod.runner.launch" | "horovod.run.run", next)) => {
                        horovodrun::read(draft, next)?;
                    }
                    Some(("accelerate.commands.launch", _)) => tools::starts_ranks(draft, at, ACCELERATE),
                    Some(("deepspeed.launcher.runner", _)) => tools::starts_ranks(draft, at, DEEPSPEED),
                    _ => return Ok(false),
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn is_engine(draft: &Draft<'_>, at: usize) -> bool {
    is_engine_word(draft.line.words.get(at))
}

fn is_engine_word(word: Option<&Word>) -> bool {
    let name = word.map(|word| base(&word.text));
    name.is_some_and(|name| matches!(name, "docker" | "podman" | "nvidia-docker"))
}

fn container(draft: &mut Draft<'_>, at: usize) -> Result<bool, Caret> {
    let word = |offset: usize| draft.line.words.get(at + offset).map_or("", |word| word.text.as_str());
    match (word(1), word(2)) {
        ("run", _) => docker::read(draft, at, at + 2)?,
        ("container", "run") => docker::read(draft, at, at + 3)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// What stands before the program: a prompt, variables, `env`, `exec`, `nohup`, `setsid`, `time`, `sudo`. Returns the program's place;
/// `None` for a line without words.
fn before_command(draft: &mut Draft<'_>) -> Result<Option<usize>, Caret> {
    let words: &[Word] = &draft.line.words;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        if matches!(word.text.as_str(), "$" | "!") {
            draft.remark(format!("The prompt `{}` before the command is left out.", word.text));
            at += 1;
            continue;
        }
        if let Some((key, from)) = assignment(&word.text) {
            let value = Value { word, from };
            draft.leading.push(key.to_owned());
            if key == "TF_CONFIG" {
                draft.tf_config = Some(value);
            } else {
                draft.pasted.set_env(key, value.text());
            }
            at += 1;
            continue;
        }
        // Alone, each of them is the command itself.
        let followed = words[at + 1..]
            .iter()
            .any(|next| !next.text.starts_with('-') && assignment(&next.text).is_none());
        match base(&word.text) {
            _ if !followed => break,
            name @ ("sudo" | "doas") if starts_behind(words, at) && !is_engine_word(words.get(at + 1)) => {
                at = other_user(draft, name, at);
            }
            "env" if keeps_env(words, at) => break,
            "env" => at = env_options(draft, at + 1)?,
            "exec" if !words[at + 1].text.starts_with('-') => {
                draft.remark("`exec` is left out: ranks are started without a shell.");
                at += 1;
            }
            name @ ("nohup" | "setsid") => {
                draft.remark(format!("`{name}` is left out: a run goes on without this terminal."));
                at += 1;
                while words.get(at).is_some_and(|word| name == "setsid" && word.text.starts_with('-')) {
                    at += 1;
                }
            }
            "time" => {
                draft.remark("`time` is left out: the recording holds when each rank began and ended.");
                at += 1;
                while let Some(option) = words.get(at).filter(|word| word.text.starts_with('-')) {
                    draft.remark(format!("`{}` of `time` is left out.", option.text));
                    let takes = matches!(option.text.as_str(), "-f" | "--format" | "-o" | "--output");
                    at = (at + 1 + usize::from(takes)).min(words.len());
                }
            }
            _ => break,
        }
    }
    Ok((!words.is_empty()).then_some(at))
}

/// Whether a launcher of ranks is started behind the word `at`.
fn starts_behind(words: &[Word], at: usize) -> bool {
    (at + 1..words.len()).any(|from| starts(words, from))
}

/// `sudo -E`, `sudo -u li`, `doas`: ranks that another user had could be neither watched nor stopped. Returns the place of what
/// follows the options.
fn other_user(draft: &mut Draft<'_>, program: &str, sudo: usize) -> usize {
    const LONG: [&str; 13] = [
        "user",
        "group",
        "host",
        "prompt",
        "close-from",
        "role",
        "type",
        "command-timeout",
        "other-user",
        "chdir",
        "chroot",
        "auth-type",
        "login-class",
    ];
    let words = &draft.line.words;
    let (mut at, mut user) = (sudo + 1, "root".to_owned());
    while let Some(word) = words.get(at).map(|word| word.text.as_str()).filter(|word| word.starts_with('-')) {
        at += 1;
        let behind = words.get(at).map(|word| word.text.as_str());
        let (name, value) = match word.strip_prefix("--") {
            Some("") => break,
            Some(long) => match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, behind.filter(|_| LONG.contains(&long)).inspect(|_| at += 1)),
            },
            None => match word.find(['u', 'g', 'h', 'p', 'C', 'r', 't', 'T', 'U', 'D', 'R', 'a', 'c']) {
                Some(letter) if letter + 1 < word.len() => {
                    (&word[letter..=letter], Some(&word[letter + 1..]))
                }
                Some(letter) => (&word[letter..], behind.inspect(|_| at += 1)),
                None => (word, None),
            },
        };
        match (name, value) {
            ("u" | "user", Some(value)) => value.clone_into(&mut user),
            ("D" | "chdir", Some(folder)) => draft.pasted.workdir = Some(folder.to_owned()),
            _ => {}
        }
    }
    let shown: Vec<String> = words[sudo..at.min(words.len())].iter().map(|word| quote(&word.text)).collect();
    draft.warn(format!(
        "`{}` is left out: {AS_LOGIN}, not as {user} by {program}{NAMES_ANOTHER}.",
        shown.join(" ")
    ));
    at
}

/// Whether `env` itself is started for each rank: one that takes variables away (`env -u X`) from what is no launcher.
fn keeps_env(words: &[Word], env: usize) -> bool {
    const STARTERS: [&str; 9] = [
        "accelerate",
        "accelerate-launch",
        "bash",
        "deepspeed",
        "docker",
        "nvidia-docker",
        "podman",
        "sh",
        "sudo",
    ];
    let starts_ranks = |at: usize| starts(words, at) || STARTERS.contains(&base(&words[at].text));
    let option = words.get(env + 1).map_or("", |word| word.text.as_str());
    let takes_away = option == "--unset" || option.starts_with("--unset=") || option.starts_with("-u");
    takes_away && !(env + 1..words.len()).any(starts_ranks)
}

/// The options of `env`; returns what follows them.
fn env_options(draft: &mut Draft<'_>, mut at: usize) -> Result<usize, Caret> {
    while let Some(word) = draft.line.words.get(at).filter(|word| word.text.starts_with('-')) {
        at += 1;
        let name = word.text.as_str();
        let takes = matches!(name, "-u" | "--unset" | "-C" | "--chdir" | "-S" | "--split-string");
        let value = draft.line.words.get(at).filter(|_| takes).map(|word| word.text.clone());
        if takes && value.is_none() {
            let end = draft.line.text.len();
            return Err(draft.line.caret(end..end, format!("`{name}` of env needs a value")));
        }
        at += usize::from(takes);
        match (name, value) {
            ("--", _) => break,
            ("-C" | "--chdir", Some(folder)) => draft.pasted.workdir = Some(folder),
            ("-" | "-i" | "--ignore-environment", _) => draft.remark(format!(
                "`env {name}` is left out: of this shell's variables, ranks on other hosts have those that the line names, ranks on \
                 this machine all."
            )),
            (_, value) => {
                let value = value.map(|value| format!(" {}", quote(&value))).unwrap_or_default();
                draft.pasted.not_understood.push(format!("env {name}{value}"));
            }
        }
    }
    Ok(at)
}

/// `NAME=…`: the name and where the value begins.
fn assignment(word: &str) -> Option<(&str, usize)> {
    let (key, _) = word.split_once('=')?;
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let named = key.starts_with(letter) && key.chars().all(|c| letter(c) || c.is_ascii_digit());
    named.then_some((key, key.len() + 1))
}

/// A launcher behind another program, such as `xvfb-run horovodrun` or `strace -f mpirun`: the line is not for
/// slots, and what stands before the launcher has no meaning here.
fn wrapped(draft: &mut Draft<'_>, at: usize) -> Result<Option<Pasted>, Caret> {
    const WRAPPERS: [&str; 11] = [
        "nice", "ionice", "timeout", "numactl", "taskset", "stdbuf", "chrt", "exec", "unbuffer", "strace",
        "xvfb-run",
    ];
    let words = &draft.line.words;
    let Some(wrapper) = words.get(at) else { return Ok(None) };
    let exec = matches!(
        (base(&wrapper.text), words.get(at + 1).map(|word| word.text.as_str())),
        ("docker" | "podman" | "nvidia-docker", Some("exec"))
    );
    if !exec && !WRAPPERS.contains(&base(&wrapper.text)) {
        return Ok(None);
    }
    let Some(inner) = (at + 1..words.len()).find(|from| starts(words, *from)) else { return Ok(None) };
    let before: Vec<String> = words[at..inner].iter().map(|word| quote(&word.text)).collect();
    let mut taken = std::mem::replace(draft, Draft::new(draft.line));
    let argv = std::mem::take(&mut taken.pasted.argv);
    // Variables between the wrapper and the launcher are the wrapper's words.
    taken.pasted.argv = taken.texts(inner);
    launcher(&mut taken, inner)?;
    taken.pasted.argv = argv;
    taken.pasted.not_understood.insert(0, before.join(" "));
    // Its line is written anew, and would come without what stands before it.
    if taken.pasted.kind == JobKind::Torch {
        taken.pasted.known_to = KnownTo::Launcher;
    }
    Ok(Some(taken.pasted))
}

/// Whether the word at `from` begins a launcher's line.
fn starts(words: &[Word], from: usize) -> bool {
    const MODULES: [&str; 3] =
        ["torch.distributed.", "accelerate.commands.launch", "deepspeed.launcher.runner"];
    let word = words[from].text.as_str();
    let is_one = |(module, _): (&str, usize)| MODULES.iter().any(|start| module.starts_with(start));
    is_launcher(word) || (is_python(base(word)) && python_module(words, from).is_some_and(is_one))
}

/// `sh -c 'horovodrun …'`: the launcher's line inside, if it is one that needs no shell.
fn shell(draft: &mut Draft<'_>, at: usize) -> Result<Option<Pasted>, Caret> {
    let words = &draft.line.words[at..];
    let [program, options @ .., text] = words else { return Ok(None) };
    let named = matches!(base(&program.text), "sh" | "bash" | "dash" | "zsh" | "ash");
    let launches = |text: &str| {
        text.split(|c: char| c.is_whitespace() || ";&|()".contains(c)).any(is_launcher)
            || text.contains("torch.distributed.")
    };
    if !named || !options.iter().any(|option| option.text.ends_with('c')) || !launches(&text.text) {
        return Ok(None);
    }
    if options.len() == 1
        && options[0].text == "-c"
        && let Ok(line) = Line::typed(&text.text)
        && line.ending.is_empty()
        && setup::prepared(&line).is_ok()
        && let Some(mut inside) = read(&line)?
    {
        inside.argv = draft.texts(at);
        if inside.kind == JobKind::Torch {
            inside.known_to = KnownTo::Launcher;
        }
        for (key, value) in std::mem::take(&mut draft.pasted.env) {
            if inside.get_env(&key).is_none() {
                inside.set_env(&key, value);
            }
        }
        inside.gpu_mask = inside.gpu_mask.take().or(draft.pasted.gpu_mask.take());
        inside.workdir = inside.workdir.take().or(draft.pasted.workdir.take());
        inside.environment = inside.environment.over(&draft.pasted.environment);
        inside
            .remarks
            .insert(0, format!("`{} -c` is left out: the line inside needs no shell.", program.text));
        return Ok(Some(inside));
    }
    let mut whole = std::mem::take(&mut draft.pasted);
    whole.command.clone_from(&whole.argv);
    let shown: Vec<&str> = words[..words.len() - 1].iter().map(|word| word.text.as_str()).collect();
    whole.not_understood.push(format!("{} (a launcher in a shell's line)", shown.join(" ")));
    Ok(Some(whole))
}

fn is_python(name: &str) -> bool {
    let rest = name.strip_prefix("python").or_else(|| name.strip_prefix("pypy"));
    rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The module of `python [options] -m MODULE`, and the place of what follows it.
fn python_module(words: &[Word], python: usize) -> Option<(&str, usize)> {
    let behind = words.get(python + 1..)?.iter().map(|word| word.text.as_str());
    match runs(behind)? {
        Runs::Module(name, at) => Some((name, python + 1 + at)),
        Runs::Script(_) => None,
    }
}

#[cfg(test)]
#[path = "paste/faults_tests.rs"]
mod faults_tests;
#[cfg(test)]
#[path = "paste/fixtures.rs"]
mod fixtures;
#[cfg(test)]
#[path = "paste/issue_tests.rs"]
mod issue_tests;
#[cfg(test)]
#[path = "paste/lines_tests.rs"]
mod lines_tests;
