//! A launcher's line behind a program that sets up an environment or changes how it runs: `uv run torchrun …`,
//! `conda run -n x mpirun …`, `timeout 1h torchrun …`. What stands
//! before the launcher is kept before the command of each rank; before mpirun, which is that of the environment itself, conda's is
//! activated, and the line of another one is started as it is.

use crate::domain::run::JobKind;
use crate::launch::environment_run::{self, CondaRun};
use crate::launch::words::{Caret, quote};

use super::draft::Draft;
use super::pasted::{KnownTo, Launcher, Pasted};

/// The end of what is said of an environment of conda that is activated.
pub(super) const ACTIVATED: &str = "is activated on each host, for mpirun and its ranks.";

/// Reads the line whose program is the word `at`; `None` where it starts no launcher.
pub(super) fn read(draft: &mut Draft<'_>, at: usize) -> Result<Option<Pasted>, Caret> {
    let words = &draft.line.words;
    let texts: Vec<&str> = words[at..].iter().map(|word| word.text.as_str()).collect();
    let Some(inner) = environment_run::inner(&texts).map(|inner| at + inner) else { return Ok(None) };
    let starts_ranks =
        matches!(super::base(&words[inner].text), "accelerate" | "accelerate-launch" | "deepspeed");
    if !starts_ranks && !super::starts(words, inner) {
        return Ok(None);
    }
    let before: Vec<String> = words[at..inner].iter().map(|word| word.text.clone()).collect();
    let is_mpirun = super::is_mpirun(super::base(&words[inner].text));
    // one that is named by its path is the same everywhere
    let is_own = is_mpirun && environment_run::sets_up(&before) && !words[inner].text.contains('/');
    let shown = before.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
    let inside = draft.texts(inner);
    let whole = std::mem::replace(&mut draft.pasted.argv, inside);
    if let Some(conda) = environment_run::conda(&before).filter(|_| is_mpirun) {
        return activated(draft, inner, conda, &shown).map(Some);
    }
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
    if matches!(pasted.launcher, Launcher::Query | Launcher::CheckBuild) {
        pasted.argv = whole;
        return Ok(Some(pasted));
    }
    let is_read = match pasted.launcher {
        Launcher::Mpirun => !is_own && pasted.programs.is_empty(),
        Launcher::Horovodrun | Launcher::Torchrun | Launcher::TorchLaunch { .. } | Launcher::Srun => true,
        _ => false,
    };
    let is_read = is_read && !pasted.is_delegated();
    if !(is_read && is_mpirun) {
        pasted.argv = whole;
    }
    if is_own {
        pasted.not_understood.insert(0, format!("{shown} (its environment may have its own mpirun)"));
    } else if is_read {
        pasted.remarks.push(format!("`{shown}` stands before the command of each rank."));
    } else if !pasted.is_delegated() {
        pasted.not_understood.push(shown);
    }
    if is_read || is_own {
        pasted.script = pasted.script.map(|at| at + before.len());
        pasted.command.splice(0..0, before);
    }
    Ok(Some(pasted))
}

/// A line of mpirun in an environment of conda, which each host finds itself: as if it were activated before the line.
fn activated(draft: &mut Draft<'_>, mpirun: usize, run: CondaRun, shown: &str) -> Result<Pasted, Caret> {
    let environment = &run.environment;
    draft.remark(format!("`{shown}` is left out: conda's environment {environment} {ACTIVATED}"));
    draft.pasted.environment.conda = Some(run.environment);
    draft.pasted.workdir = run.workdir.or(draft.pasted.workdir.take());
    super::launcher(draft, mpirun)?;
    Ok(std::mem::take(&mut draft.pasted))
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
                "conda run --no-capture-output -n x torchrun --nproc-per-node 2 t.py",
                JobKind::Torch,
                Some(2),
                "conda run --no-capture-output -n x python3 -u t.py",
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
    fn what_changes_how_a_launcher_runs_stands_before_each_rank() {
        for (line, np, command) in [
            ("timeout 1h torchrun --nproc_per_node=2 t.py", 2, "timeout 1h python3 -u t.py"),
            ("nice -n 5 mpirun -np 3 ./a x", 3, "nice -n 5 ./a x"),
            ("timeout 1h env A=b srun -n 2 ./a", 2, "timeout 1h env A=b ./a"),
            (
                "numactl -N 0 stdbuf -oL horovodrun -np 2 python t.py",
                2,
                "numactl -N 0 stdbuf -oL python t.py",
            ),
            (
                "taskset -c 0 python3 -m torch.distributed.run --nproc-per-node 2 t.py",
                2,
                "taskset -c 0 python3 -u t.py",
            ),
        ] {
            let read = pasted(line);
            assert_eq!((read.np, read.is_delegated()), (Some(np), false), "{line}");
            assert_eq!(read.command, words(command), "{line}");
            assert!(read.remarks.iter().any(|remark| remark.contains("stands before the command of each")));
        }
        let kept = pasted("timeout 60 mpirun -np 2 --rankfile r python t.py");
        assert_eq!((kept.is_delegated(), kept.np), (true, Some(2)));
        assert_eq!(kept.argv, words("timeout 60 mpirun -np 2 --rankfile r python t.py"));
        assert_eq!(read_text("timeout 60 python t.py").unwrap(), None);
    }

    #[test]
    fn mpirun_is_that_of_the_environment() {
        for (line, conda, workdir, argv) in [
            (
                "conda run -n x --live-stream mpirun -np 4 python t.py --lr 1",
                "x",
                None,
                "mpirun -np 4 python t.py --lr 1",
            ),
            ("micromamba run -p /envs/x --cwd /w mpirun -np 4 python t.py --lr 1", "/envs/x", Some("/w"), ""),
            ("nohup conda run --name=x mpirun -np 4 --rankfile r python t.py --lr 1", "x", None, ""),
        ] {
            let read = pasted(line);
            assert_eq!(read.environment.conda.as_deref(), Some(conda), "{line}");
            assert_eq!(
                (read.kind, read.np, read.workdir.as_deref()),
                (JobKind::Mpi, Some(4), workdir),
                "{line}"
            );
            assert_eq!(read.command, words("python t.py --lr 1"), "{line}");
            assert_eq!(read.argv[0], "mpirun", "{line}");
            assert!(argv.is_empty() || read.argv == words(argv), "{line}");
            assert_eq!(read.is_delegated(), line.contains("rankfile"), "{line}");
            assert!(
                read.remarks.iter().any(|remark| remark.contains("is activated on each host")),
                "{read:?}"
            );
        }
        // whose environments hvtui does not activate
        for (line, before) in [
            ("uv run mpirun -np 2 python t.py", "uv run"),
            ("pixi run -e gpu mpirun -np 2 -H a:2 python t.py", "pixi run -e gpu"),
            ("poetry run mpirun -np 2 python t.py", "poetry run"),
            ("conda run mpirun -np 2 python t.py", "conda run"),
            ("conda run -p envs/x mpirun -np 2 python t.py", "conda run -p envs/x"),
        ] {
            let read = pasted(line);
            let why = format!("{before} (its environment may have its own mpirun)");
            assert_eq!((read.not_understood, read.np), (vec![why], Some(2)), "{line}");
            assert_eq!(read.argv, words(line), "{line}");
            assert_eq!(read.command, words(&format!("{before} python t.py")), "{line}");
        }
        let inside = pasted("docker run img:1 conda run -n x mpirun -np 2 python t.py");
        assert!(inside.is_delegated(), "{inside:?}");
        assert!(!inside.remarks.iter().any(|remark| remark.contains("is activated")), "{inside:?}");
        let named = pasted("uv run /opt/bin/mpirun -np 2 python t.py");
        assert_eq!((named.is_delegated(), named.argv[0].as_str()), (false, "/opt/bin/mpirun"));
        assert_eq!(named.command, words("uv run python t.py"));
        let asks = pasted("conda run -n x mpirun --version");
        assert_eq!((asks.launcher, asks.environment.conda.as_deref()), (Launcher::Query, Some("x")));
        assert_eq!(asks.command, words("mpirun --version"));
        assert_eq!(pasted("uv run mpirun --version").argv, words("uv run mpirun --version"));
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
