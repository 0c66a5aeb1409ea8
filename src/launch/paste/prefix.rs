//! A launcher's line behind a program that sets up an environment: `uv run torchrun …`, `conda run -n x mpirun …`. What stands
//! before the launcher is kept before the command of each rank.

use crate::domain::run::JobKind;
use crate::launch::words::{Caret, Word, quote};

use super::draft::Draft;
use super::pasted::{KnownTo, Launcher, Pasted};

/// Programs that start what stands behind their `run` in an environment.
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

/// Where the program stands that such a line starts; `None` where `at` begins none.
fn inner(words: &[Word], at: usize) -> Option<usize> {
    let text = |at: usize| words.get(at).map(|word| word.text.as_str());
    if !PROGRAMS.contains(&super::base(text(at)?)) || text(at + 1)? != "run" {
        return None;
    }
    let mut at = at + 2;
    while text(at)?.starts_with('-') {
        at += 1 + usize::from(WITH_VALUE.contains(&text(at)?));
    }
    Some(at)
}

/// Reads the line whose program is the word `at`; `None` where it starts no launcher.
pub(super) fn read(draft: &mut Draft<'_>, at: usize) -> Result<Option<Pasted>, Caret> {
    let words = &draft.line.words;
    let Some(inner) = inner(words, at) else { return Ok(None) };
    let starts_ranks = matches!(super::base(&words[inner].text), "accelerate" | "deepspeed");
    if !starts_ranks && !super::starts(words, inner) {
        return Ok(None);
    }
    let before: Vec<String> = words[at..inner].iter().map(|word| word.text.clone()).collect();
    let shown = before.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let inside = draft.texts(inner);
    let whole = std::mem::replace(&mut draft.pasted.argv, inside);
    let known = super::launcher(draft, inner)?;
    if !known {
        draft.pasted.argv = whole;
        return Ok(None);
    }
    let mut pasted = std::mem::take(&mut draft.pasted);
    if pasted.kind == JobKind::Torch {
        // its line would be written anew, without what stands before it
        pasted.known_to = KnownTo::Launcher;
    }
    let is_read = match pasted.launcher {
        // the program of its first word starts the ranks
        Launcher::Mpirun => pasted.programs.is_empty(),
        Launcher::Horovodrun | Launcher::Torchrun | Launcher::TorchLaunch { .. } => true,
        _ => false,
    };
    if is_read && !pasted.is_delegated() {
        if pasted.launcher != Launcher::Mpirun {
            pasted.argv = whole;
        }
        pasted.script = pasted.script.map(|at| at + before.len());
        pasted.command.splice(0..0, before);
        pasted.remarks.push(format!("`{shown}` stands before the command of each rank."));
        return Ok(Some(pasted));
    }
    pasted.argv = whole;
    let asks = matches!(pasted.launcher, Launcher::Query | Launcher::CheckBuild);
    if !pasted.is_delegated() && !asks {
        pasted.not_understood.push(shown);
    }
    Ok(Some(pasted))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{pasted, words};
    use super::super::read_text;
    use super::*;

    #[test]
    fn a_launcher_behind_an_environment_is_read_and_its_ranks_keep_that() {
        for (line, kind, np, command) in [
            (
                "uv run torchrun --nproc_per_node=2 train.py",
                JobKind::Torch,
                Some(2),
                "uv run python3 -u train.py",
            ),
            (
                "nohup poetry run python -m torch.distributed.run --nproc-per-node 2 t.py",
                JobKind::Torch,
                Some(2),
                "poetry run python -u t.py",
            ),
            (
                "conda run --no-capture-output -n x mpirun -np 4 python t.py --lr 1",
                JobKind::Mpi,
                Some(4),
                "conda run --no-capture-output -n x python t.py --lr 1",
            ),
            (
                "uv run --with torch -- horovodrun -np 2 python t.py",
                JobKind::Horovod,
                Some(2),
                "uv run --with torch -- python t.py",
            ),
        ] {
            let read = pasted(line);
            assert_eq!((read.kind, read.np, read.is_delegated()), (kind, np, false), "{line}");
            assert_eq!(read.command, words(command), "{line}");
        }
        let launch = pasted("uv run python -m torch.distributed.launch --nproc_per_node=2 t.py");
        assert_eq!(launch.script, Some(4), "the local rank stands behind the script");
    }

    #[test]
    fn what_is_not_read_behind_an_environment_is_started_once() {
        for line in [
            "uv run accelerate launch --num_processes 2 ddp.py",
            "pipenv run torchrun --nnodes=1:4 --nproc_per_node=2 t.py",
            "uv run mpirun -np 1 ./a : -np 1 ./b",
        ] {
            let read = pasted(line);
            assert!(read.is_delegated(), "{line}");
            assert_eq!(read.argv, words(line), "{line}");
        }
        assert_eq!(pasted("uv run torchrun --help").launcher, Launcher::Query);
        for line in ["uv run python train.py torchrun", "uv sync", "conda run -n", "uv run"] {
            assert_eq!(read_text(line).unwrap(), None, "{line}");
        }
    }
}
