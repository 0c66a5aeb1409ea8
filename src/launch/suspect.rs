//! Notices a script that is started with the wrong kind: one that uses Horovod under `plain` trains once a
//! rank, each alone. Looks at the text of a script of Python or a shell; must not read files nor know how kinds work.

use super::environment_run;
use super::name::base;
use super::paste;
use crate::domain::run::JobKind;

mod python;

use python::{Token, tokens};

/// The most bytes of a script that are looked at.
const MOST: usize = 256 * 1024;

/// What a script does that tells how its ranks find each other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Evidence {
    kind: JobKind,
    /// Goes behind the script's name.
    says: &'static str,
}

/// Who starts the ranks of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// hvtui, with the variables that every rank finds, whatever its kind.
    Us,
    /// A launcher's whole line, with that launcher's variables alone.
    Line,
}

/// A warning where the script of `command`, of which `script` is the text, finds its `np` ranks, at most `on_a_host` of them on one
/// host, in another way than `kind` starts them; it names the option that is meant.
pub fn suspect(
    script: &str,
    command: &[String],
    (kind, by): (JobKind, StartedBy),
    (np, on_a_host): (u32, u32),
) -> Option<String> {
    if on_a_host > 1 && spawns(script) {
        let name = name_of(command);
        return Some(format!(
            "{name} calls torch.multiprocessing.spawn: unless an option of its own keeps it from that, it starts a process for \
             each GPU, and each rank would start all of them; one rank a host with its GPUs is meant then: `--nproc-per-node 1 \
             --gpus-per-rank N`"
        ));
    }
    let found = evidence(script);
    let first = found.first()?;
    if np < 2 || found.iter().any(|evidence| serves(kind, by, evidence.kind)) {
        return None;
    }
    let name = name_of(command);
    Some(format!(
        "{name} {}, and `--kind {}` does not connect its ranks: {np} trainings of «rank 0 of 1» would run beside each other; `--kind {}` is meant",
        first.says,
        kind.name(),
        first.kind.name(),
    ))
}

/// A warning where a shell script, of which `script` is the text, starts a launcher of ranks: each of several ranks would.
pub fn starts_ranks(script: &str, path: &str) -> Option<String> {
    let code = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    let launcher = code.flat_map(|line| line.split([';', '&', '|', '(', '`'])).find_map(launcher)?;
    Some(format!(
        "{} starts `{launcher}`, which starts ranks itself, and each rank would start all of them: launch the line of \
         `{launcher}` here, or ask for 1 rank (`-np 1`)",
        base(path)
    ))
}

/// The launcher of ranks that a command of a shell script starts.
fn launcher(command: &str) -> Option<&str> {
    const BEFORE: [&str; 8] = ["!", "do", "else", "elif", "exec", "if", "sudo", "then"];
    let is_before = |word: &&&str| BEFORE.contains(*word) || word.contains('=');
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut words = &words[..];
    loop {
        words = &words[words.iter().take_while(is_before).count()..];
        let Some(inner) = environment_run::inner(words) else { break };
        words = &words[inner..];
    }
    let (program, rest) = words.split_first()?;
    let name = base(program);
    let is_launcher = match name {
        "accelerate" => rest.first() == Some(&"launch"),
        "deepspeed" | "accelerate-launch" | "composer" => true,
        name if name.starts_with("python") => {
            return rest.iter().find(|word| word.starts_with("torch.distributed.")).copied();
        }
        name => paste::is_launcher(name),
    };
    is_launcher.then_some(name)
}

/// The script's name, for people.
fn name_of(command: &[String]) -> &str {
    let name = command.iter().find(|word| is_script(word)).or(command.first());
    name.map_or("the script", |word| word.rsplit('/').next().unwrap_or(word))
}

/// Whether a script starts its ranks itself.
fn spawns(script: &str) -> bool {
    let script = Script::of(script);
    let by_module = [&["mp", ".", "spawn", "("][..], &["multiprocessing", ".", "spawn", "("]];
    let calls = by_module.into_iter().any(|call| script.has(call))
        || script.imports_name("multiprocessing", "spawn") && script.has(&["spawn", "("]);
    script.imports("torch") && calls
}

/// The kind that a script is made for, as far as its text tells.
pub fn kind_of_script(text: &str) -> Option<JobKind> {
    evidence(text).first().map(|evidence| evidence.kind)
}

fn is_script(word: &str) -> bool {
    std::path::Path::new(word).extension().is_some_and(|end| end == "py") && !word.starts_with('-')
}

/// Whether ranks started as `kind` find each other in a script made for `meant`.
fn serves(kind: JobKind, by: StartedBy, meant: JobKind) -> bool {
    // Horovod runs over MPI as well, and Slurm's own variables serve any program that asks for them.
    // Each rank that is not a launcher's alone has what torch's `env://` asks for: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
    kind == meant
        || kind == JobKind::Slurm
        || (kind == JobKind::Mpi && meant == JobKind::Horovod)
        || (by == StartedBy::Us && meant == JobKind::Torch)
}

/// All that is found, the most telling first.
fn evidence(script: &str) -> Vec<Evidence> {
    let script = Script::of(script);
    let torch = script.imports("torch");
    let own_config = script.sets_variable("TF_CONFIG");
    let checks: [(bool, JobKind, &'static str); 10] = [
        (script.imports("horovod"), JobKind::Horovod, "imports horovod"),
        (script.has(&["hvd", ".", "init", "("]), JobKind::Horovod, "calls hvd.init()"),
        (script.has(&["init_process_group", "("]), JobKind::Torch, "calls init_process_group()"),
        (torch && script.reads_variable("LOCAL_RANK"), JobKind::Torch, "reads LOCAL_RANK"),
        (
            ["lightning", "pytorch_lightning"].iter().any(|name| script.imports(name))
                && script.has(&["Trainer", "("]),
            JobKind::Torch,
            "uses Lightning's Trainer",
        ),
        (script.imports("accelerate"), JobKind::Torch, "imports accelerate"),
        (script.imports("deepspeed"), JobKind::Torch, "imports deepspeed"),
        (
            !own_config && script.has(&["MultiWorkerMirroredStrategy", "("]),
            JobKind::Tensorflow,
            "uses MultiWorkerMirroredStrategy",
        ),
        (!own_config && script.reads_variable("TF_CONFIG"), JobKind::Tensorflow, "reads TF_CONFIG"),
        (script.imports("mpi4py"), JobKind::Mpi, "imports mpi4py"),
    ];
    checks.into_iter().filter(|(found, ..)| *found).map(|(_, kind, says)| Evidence { kind, says }).collect()
}

struct Script<'a> {
    imports: Vec<&'a str>,
    tokens: Vec<Token<'a>>,
}

impl<'a> Script<'a> {
    fn of(text: &'a str) -> Self {
        let end = (0..=text.len().min(MOST)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let tokens = tokens(&text[..end]);
        Self { imports: imports(&tokens), tokens }
    }
}

impl Script<'_> {
    /// `from …module import … name`.
    fn imports_name(&self, module: &str, name: &str) -> bool {
        self.tokens.split(|token| matches!(token, Token::Line | Token::Code(";"))).any(|line| {
            let at = line.iter().position(|token| *token == Token::Code("import"));
            let Some((from, names)) = at.and_then(|at| line.split_at_checked(at)) else { return false };
            from.contains(&Token::Code(module)) && names.contains(&Token::Code(name))
        })
    }

    fn imports(&self, module: &str) -> bool {
        self.imports.contains(&module)
    }

    /// Whether these names and signs follow each other.
    fn has(&self, wanted: &[&str]) -> bool {
        self.tokens.windows(wanted.len()).any(|window| {
            window.iter().zip(wanted).all(|(token, text)| matches!(token, Token::Code(code) if code == text))
                && !matches!(window[0], Token::Line)
        }) && !self.defines(wanted[0])
    }

    /// Whether the script has a function or class of that name itself.
    fn defines(&self, name: &str) -> bool {
        self.tokens.windows(2).any(
            |pair| matches!(pair, [Token::Code("def" | "class"), Token::Code(defined)] if *defined == name),
        )
    }

    /// `environ["NAME"]`, `environ.get("NAME"`, `getenv("NAME"`.
    fn reads_variable(&self, name: &str) -> bool {
        self.variable(name).any(|(at, _)| !self.is_assigned(at))
    }

    /// `environ["NAME"] = …`, `environ.setdefault("NAME"`.
    fn sets_variable(&self, name: &str) -> bool {
        self.variable(name).any(|(at, how)| how == "setdefault" || self.is_assigned(at))
    }

    /// Where the variable's name stands as a string, and the word before it that asks for it.
    fn variable<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (usize, &'s str)> + 's {
        self.tokens.windows(3).enumerate().filter_map(move |(at, window)| match window {
            [Token::Code(how), Token::Code("[" | "("), Token::Text(text)]
                if *text == name
                    && matches!(*how, "environ" | "getenv" | "get" | "setdefault" | "pop" | "getenvb") =>
            {
                Some((at + 2, *how))
            }
            _ => None,
        })
    }

    fn is_assigned(&self, at: usize) -> bool {
        matches!(
            self.tokens.get(at + 1..at + 4),
            Some([Token::Code("]"), Token::Code("="), next]) if *next != Token::Code("=")
        )
    }
}

/// The first parts of the names of all imported modules.
fn imports<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for line in tokens.split(|token| matches!(token, Token::Line | Token::Code(";"))) {
        // `try: import x` and `if a: import x` have the statement behind the colon.
        let from = line.iter().position(|token| *token == Token::Code(":")).map_or(0, |at| at + 1);
        for statement in [line, &line[from..]] {
            match statement {
                [Token::Code("from"), Token::Code(module), ..] => found.push(*module),
                [Token::Code("import"), names @ ..] => {
                    for name in names.split(|token| *token == Token::Code(",")) {
                        if let Some(Token::Code(module)) = name.first() {
                            found.push(*module);
                        }
                    }
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "suspect_tests.rs"]
mod tests;
