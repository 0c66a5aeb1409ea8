//! The `#SBATCH` lines of a batch script: srun takes its part of them from sbatch, here they stand on its line.

use std::ops::Range;

use crate::launch::batch_lines::Batch;
use crate::launch::environment_run;
use crate::launch::words::{Caret, Line, Word, join};

use super::draft::Draft;
use super::pasted::Pasted;
use super::{base, before_command};

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
    let Batch { words: batch, passed_over } = std::mem::take(&mut whole.batch);
    let mut read = super::read(&whole)?;
    let left = if let Some(at) = srun(&whole)? {
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
    if left.iter().all(|(words, _)| words.is_empty()) && passed_over.is_empty() {
        return Ok(read);
    }
    let mut pasted = read.map_or_else(|| super::plain(&whole), Ok)?;
    for (words, why) in left.iter().filter(|(words, _)| !words.is_empty()) {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        pasted.left_out.push(format!("`#SBATCH {}` is left out: {why}.", join(&texts)));
    }
    for (options, why) in passed_over {
        pasted.left_out.push(format!("`#SBATCH {options}` is left out: {why}."));
    }
    Ok(Some(pasted))
}

/// Where the line's program stands behind all that changes how it runs, if it is srun.
///
/// # Errors
/// As [`super::read`].
fn srun(line: &Line) -> Result<Option<usize>, Caret> {
    let Some(at) = before_command(&mut Draft::new(line))? else { return Ok(None) };
    let behind = line.words.get(at..).unwrap_or_default();
    let texts: Vec<&str> = behind.iter().map(|word| word.text.as_str()).collect();
    let at = at + environment_run::inner(&texts).unwrap_or(0);
    Ok(line.words.get(at).filter(|word| base(&word.text) == "srun").map(|_| at))
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
        assert_eq!((late.nodes, late.np), (None, Some(2)));
        let why = "sbatch reads no such line behind the first command";
        assert_eq!(late.left_out, [format!("`#SBATCH --nodes=2` is left out: {why}.")]);
        assert_eq!(pasted("##SBATCH --nodes=2\nsrun -n 2 ./a").nodes, None);
    }

    #[test]
    fn a_line_with_blanks_before_it_is_passed_over_as_by_sbatch() {
        let read = pasted("#!/bin/sh\n#SBATCH -n 4\n  #SBATCH --nodes=2 -J $X\nsrun ./a");
        assert_eq!((read.nodes, read.np), (None, Some(4)));
        let said = "`#SBATCH --nodes=2 -J $X` is left out: sbatch reads no such line with blanks before it.";
        assert_eq!(read.left_out, [said]);
        let plain = pasted("\t#SBATCH -n 4\npython3 t.py");
        assert_eq!((plain.command, plain.left_out.len()), (words("python3 t.py"), 1));
    }

    #[test]
    fn srun_is_found_behind_all_that_changes_how_it_runs() {
        for before in [
            "time -p",
            "exec",
            "nohup",
            "env A=b",
            "A=b env -i",
            "stdbuf -oL",
            "nice -n 10",
            "timeout 3600",
            "nohup nice -n 10 timeout -k 5 1h env A=b",
        ] {
            let read = pasted(&format!("#SBATCH --nodes=2\n{before} srun -n 4 ./a"));
            assert_eq!((read.kind, read.nodes, read.np), (JobKind::Slurm, Some(2), Some(4)), "{before}");
            assert!(read.left_out.is_empty() && !read.is_delegated(), "{before}: {read:?}");
        }
        let read = pasted("#SBATCH -N 2\ntimeout 3600 srun -n 4 ./a");
        assert_eq!(read.argv, words("timeout 3600 srun -N 2 -n 4 ./a"));
        assert_eq!(read.command, words("timeout 3600 ./a"));
    }
}
