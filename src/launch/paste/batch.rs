//! The `#SBATCH` lines of a batch script: srun takes its part of them from sbatch, here they stand on its line.

use std::ops::Range;

use crate::launch::words::{Caret, Line, Word, join};

use super::pasted::Pasted;
use super::{assignment, base};

/// Options of sbatch that mean the same on the line of srun.
const OF_SRUN: [&str; 38] = [
    "-N",
    "--nodes",
    "-n",
    "--ntasks",
    "--ntasks-per-node",
    "--tasks-per-node",
    "-w",
    "--nodelist",
    "-x",
    "--exclude",
    "-D",
    "--chdir",
    "-c",
    "--cpus-per-task",
    "-G",
    "--gpus",
    "--gres",
    "--gpus-per-node",
    "--gpus-per-task",
    "--gpus-per-socket",
    "--cpus-per-gpu",
    "--mem",
    "--mem-per-cpu",
    "--mem-per-gpu",
    "-p",
    "--partition",
    "-A",
    "--account",
    "-q",
    "--qos",
    "-t",
    "--time",
    "-C",
    "--constraint",
    "--reservation",
    "-J",
    "--job-name",
    "--exclusive",
];

/// Reads a line with such options.
///
/// # Errors
/// As [`super::read`].
pub(super) fn read(line: &Line) -> Result<Option<Pasted>, Caret> {
    let mut whole = line.clone();
    let batch = std::mem::take(&mut whole.batch);
    let srun = srun(&whole.words);
    let (taken, left) = match srun {
        Some(_) => sorted(&batch),
        None => (Vec::new(), batch),
    };
    if let Some(at) = srun {
        let behind = whole.words.split_off(at + 1);
        whole.words.extend(taken.into_iter().chain(behind));
    }
    let read = super::read(&whole)?;
    if left.is_empty() {
        return Ok(read);
    }
    let mut pasted = read.map_or_else(|| super::plain(&whole), Ok)?;
    let texts: Vec<&str> = left.iter().map(|word| word.text.as_str()).collect();
    let why = match srun {
        Some(_) => "hvtui keeps what ranks print and starts no batch job",
        None => "the line is none of srun; -np, -H and --gpus say how many ranks there are and where",
    };
    pasted.left_out.push(format!("`#SBATCH {}` is left out: {why}.", join(&texts)));
    Ok(Some(pasted))
}

/// Where the line's program stands, if it is srun.
fn srun(words: &[Word]) -> Option<usize> {
    const BEFORE: [&str; 5] = ["env", "exec", "nohup", "setsid", "time"];
    let is_before = |word: &Word| assignment(&word.text).is_some() || BEFORE.contains(&base(&word.text));
    let at = words.iter().position(|word| !is_before(word))?;
    (base(&words[at].text) == "srun").then_some(at)
}

/// The options that srun takes, and the others, each with its values.
fn sorted(batch: &[Word]) -> (Vec<Word>, Vec<Word>) {
    let (mut taken, mut left) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < batch.len() {
        let option = option_at(batch, at);
        at = option.end;
        let words = batch[option].to_vec();
        if is_of_srun(&words[0].text) { taken.extend(words) } else { left.extend(words) }
    }
    (taken, left)
}

/// An option and the values behind it.
fn option_at(batch: &[Word], at: usize) -> Range<usize> {
    let values = batch[at + 1..].iter().take_while(|word| !word.text.starts_with('-')).count();
    at..at + 1 + values
}

/// `--nodes=2`, `-N 2` and `-N2`.
fn is_of_srun(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    let is_short = name.starts_with('-') && !name.starts_with("--");
    let short = name.get(..2).filter(|_| is_short);
    OF_SRUN.contains(&short.unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{fault, pasted, words};
    use super::super::pasted::PerNode;
    use crate::domain::run::JobKind;

    #[test]
    fn the_options_of_a_batch_script_stand_on_the_line_of_srun() {
        let read = pasted(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2 # each\n#SBATCH --gpus 4\n\
             #SBATCH --output=slurm-%j.out\n\nexport A=1\nsrun python3 envs.py",
        );
        assert_eq!((read.kind, read.nodes), (JobKind::Slurm, Some(2)));
        assert_eq!(read.per_node, Some(PerNode::Ranks(2)));
        assert_eq!((read.command, read.pass), (words("python3 envs.py"), words("--gpus 4")));
        assert_eq!(read.argv, words("srun --nodes=2 --ntasks-per-node=2 --gpus 4 python3 envs.py"));
        assert!(read.not_understood.is_empty(), "{:?}", read.not_understood);
        let said = read.left_out.join(" ");
        assert!(said.starts_with("`#SBATCH --output=slurm-%j.out` is left out: "), "{said}");
        assert_eq!(pasted("#SBATCH -N2\n#SBATCH -n 4\ntime srun ./a").np, Some(4));
        let (text, at) = fault("#SBATCH --ntasks=2\nsrun --ntasks=4 ./a");
        assert!(text.contains("given twice with different values") && at == "--ntasks=4", "{text}");
    }

    #[test]
    fn without_srun_they_are_left_out_and_that_is_said() {
        let read = pasted("#SBATCH --nodes=2\ntorchrun --nproc_per_node=2 t.py");
        assert_eq!((read.np, read.nodes), (Some(2), Some(1)));
        assert!(read.left_out[0].contains("the line is none of srun"), "{:?}", read.left_out);
        let plain = pasted("#SBATCH -n 4\npython3 t.py");
        assert_eq!((plain.command, plain.left_out.len()), (words("python3 t.py"), 1));
        // sbatch reads them before the first command alone
        let late = pasted("cd /x\n#SBATCH --nodes=2\nsrun -n 2 ./a");
        assert_eq!((late.nodes, late.np, late.left_out.len()), (None, Some(2), 0));
        assert_eq!(pasted("##SBATCH --nodes=2\nsrun -n 2 ./a").nodes, None);
    }
}
