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
    let mut read = super::read(&whole)?;
    let left = if let Some(at) = srun(&whole.words) {
        let Sorted { taken, second, left } = sorted(&batch, read.as_ref(), &whole)?;
        let behind = whole.words.split_off(at + 1);
        whole.words.extend(taken.into_iter().chain(behind));
        read = super::read(&whole)?;
        [
            (second, "what the script says later counts"),
            (left, "hvtui keeps what ranks print and starts no batch job"),
        ]
    } else {
        let why = "the line is none of srun; -np, -H and --gpus say how many ranks there are and where";
        [(batch, why), (Vec::new(), "")]
    };
    if left.iter().all(|(words, _)| words.is_empty()) {
        return Ok(read);
    }
    let mut pasted = read.map_or_else(|| super::plain(&whole), Ok)?;
    for (words, why) in left.iter().filter(|(words, _)| !words.is_empty()) {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        pasted.left_out.push(format!("`#SBATCH {}` is left out: {why}.", join(&texts)));
    }
    Ok(Some(pasted))
}

/// Where the line's program stands, if it is srun.
fn srun(words: &[Word]) -> Option<usize> {
    const BEFORE: [&str; 5] = ["env", "exec", "nohup", "setsid", "time"];
    let is_before = |word: &Word| assignment(&word.text).is_some() || BEFORE.contains(&base(&word.text));
    let at = words.iter().position(|word| !is_before(word))?;
    (base(&words[at].text) == "srun").then_some(at)
}

/// The options of a batch script, each with its values.
#[derive(Default)]
struct Sorted {
    /// Those that srun takes.
    taken: Vec<Word>,
    /// Those that the line of srun has itself.
    second: Vec<Word>,
    left: Vec<Word>,
}

/// `own`: what the line of srun says itself.
///
/// # Errors
/// Words that srun would take for its program, and an option that would take that for its value.
fn sorted(batch: &[Word], own: Option<&Pasted>, line: &Line) -> Result<Sorted, Caret> {
    let mut sorted = Sorted::default();
    let mut at = 0;
    while at < batch.len() {
        let option = option_at(batch, at);
        at = option.end;
        let words = &batch[option];
        let name = name(&words[0].text);
        let is_of_srun = OF_SRUN.contains(&name);
        if is_of_srun {
            one_value(words, name, line)?;
        }
        let list = if !is_of_srun {
            &mut sorted.left
        } else if own.is_some_and(|own| says(own, name)) {
            &mut sorted.second
        } else {
            &mut sorted.taken
        };
        list.extend_from_slice(words);
    }
    Ok(sorted)
}

/// Each option of srun's takes one value, `--exclusive` none but behind `=`.
fn one_value(words: &[Word], name: &str, line: &Line) -> Result<(), Caret> {
    let option = &words[0];
    let values = usize::from(option.text == name && name != "--exclusive");
    if let Some(stray) = words.get(1 + values) {
        let text = format!(
            "`{}` belongs to no option: leave it out, or put a # before it if it is a comment",
            stray.text
        );
        return Err(line.caret(stray.span.clone(), text));
    }
    if words.len() < 1 + values {
        return Err(line.caret(option.span.clone(), format!("`{name}` of sbatch needs a value")));
    }
    Ok(())
}

/// Whether a line of srun has an option itself of which hvtui takes one alone; of the others srun takes the last.
fn says(own: &Pasted, name: &str) -> bool {
    match name {
        "-N" | "--nodes" => own.nodes.is_some(),
        "-n" | "--ntasks" => own.np.is_some(),
        "--ntasks-per-node" | "--tasks-per-node" => own.per_node.is_some(),
        "-w" | "--nodelist" => !own.hosts.is_empty(),
        "-D" | "--chdir" => own.workdir.is_some(),
        _ => false,
    }
}

/// An option and the values behind it.
fn option_at(batch: &[Word], at: usize) -> Range<usize> {
    let values = batch[at + 1..].iter().take_while(|word| !word.text.starts_with('-')).count();
    at..at + 1 + values
}

/// `--nodes` of `--nodes=2`, `-N` of `-N2`.
fn name(option: &str) -> &str {
    let name = option.split('=').next().unwrap_or_default();
    let is_short = name.starts_with('-') && !name.starts_with("--");
    name.get(..2).filter(|_| is_short).unwrap_or(name)
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
    }

    #[test]
    fn what_srun_says_itself_counts() {
        let read = pasted("#SBATCH --nodes=2\n#SBATCH --ntasks=4 -D /x\ncd /y\nsrun -N 1 -n 2 ./a -w b");
        assert_eq!((read.nodes, read.np, read.workdir.as_deref()), (Some(1), Some(2), Some("/y")));
        let said = "`#SBATCH --nodes=2 --ntasks=4 -D /x` is left out: what the script says later counts.";
        assert_eq!(read.left_out, [said]);
        let (text, at) = fault("#SBATCH --ntasks=2\n#SBATCH --ntasks=4\nsrun ./a");
        assert!(text.contains("given twice with different values") && at == "--ntasks=4", "{text}");
    }

    #[test]
    fn their_values_are_read_as_sbatch_does() {
        let read = pasted("#SBATCH -C a100|h100 --output=$HOME/%j.out\n#SBATCH -J 'a b' # c\nsrun -n 2 ./a");
        assert_eq!(read.argv.join(" "), "srun -C a100|h100 -J a b -n 2 ./a");
        assert_eq!(read.left_out.len(), 1, "{:?}", read.left_out);
        let plain = pasted("#SBATCH --mail-user=<me@x> --constraint=\"$A&b\"\npython3 t.py");
        assert_eq!(plain.command, words("python3 t.py"));
        let (text, at) = fault("#SBATCH -J 'a\nsrun ./a");
        assert!(text.contains("never closed") && at == "'", "{text}");
    }

    #[test]
    fn words_that_belong_to_no_option_are_never_the_program_of_srun() {
        for (batch, stray) in [("--nodes=2 number of nodes", "number"), ("-N2 3", "3"), ("-p gpu all", "all")]
        {
            let (text, at) = fault(&format!("#SBATCH {batch}\nsrun ./a"));
            assert!(text.contains("belongs to no option") && at == stray, "{batch}: {text}");
        }
        let (text, at) = fault("#SBATCH --exclusive\n#SBATCH -p\n#SBATCH -N 2\nsrun ./a b");
        assert!(text.contains("`-p` of sbatch needs a value") && at == "-p", "{text}");
        let read =
            pasted("#SBATCH --exclusive=user --mail-type BEGIN END\n#SBATCH -p\n#SBATCH gpu\nsrun -n 2 ./a");
        assert_eq!(read.argv.join(" "), "srun --exclusive=user -p gpu -n 2 ./a");
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
