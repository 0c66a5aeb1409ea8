//! `srun`: tasks, hosts and what it asks Slurm for. The options of the allocation go to srun as they are.

use crate::domain::run::JobKind;
use crate::launch::words::Caret;

use super::common;
use super::draft::{Draft, add};
use super::options::Does::{Delegate, Mark, NoEffect, Pass, Try};
use super::options::{Allows, Given, Row, Style, read as read_options, row};
use super::pasted::{HostSlots, Launcher};

const STYLE: Style =
    Style { program: "srun", allows: &[Allows::Abbreviations, Allows::Glued, Allows::FlagValues] };

const TAGS: &str = "hvtui keeps the output of each rank apart and says whose it is";
const STOP: &str = "hvtui stops all ranks when one fails";

static OPTIONS: &[Row] = &[
    row("-h --help --usage -V --version", 0, Mark(common::ask)),
    row("-N --nodes", 1, Try(nodes)),
    row("-n --ntasks", 1, Try(common::np)),
    row("--ntasks-per-node --tasks-per-node", 1, Try(common::per_node)),
    row("-w --nodelist", 1, Try(nodelist)),
    row("-D --chdir", 1, Try(common::workdir)),
    row("--export", 1, Try(export)),
    row("-l --label -u --unbuffered", 0, NoEffect(TAGS)),
    row("-K --kill-on-bad-exit", 0, NoEffect(STOP)),
    row("-v --verbose", 0, Mark(common::verbose)),
    row("-o --output -e --error -i --input", 1, Delegate),
    row("--pty --multi-prog -X --disable-status --no-shell -b", 0, Delegate),
    row("--bcast -r --relative --prolog --epilog --task-prolog --task-epilog -W --wait", 1, Delegate),
    row("-p --partition", 1, Pass),
    row("-A --account", 1, Pass),
    row("-q --qos", 1, Pass),
    row("-t --time", 1, Pass),
    row("--time-min --deadline -b --begin --priority --nice", 1, Pass),
    row("-J --job-name", 1, Pass),
    row("-c --cpus-per-task", 1, Pass),
    row("-C --constraint", 1, Pass),
    row("-x --exclude", 1, Pass),
    row("-d --dependency", 1, Pass),
    row("-m --distribution", 1, Pass),
    row("-G --gpus", 1, Pass),
    row("--gres --gpus-per-node --gpus-per-task --gpus-per-socket --gpu-bind --gpu-freq", 1, Pass),
    row(
        "--mem --mem-per-cpu --mem-per-gpu --tmp --cpus-per-gpu --mincpus --mem-bind --cpu-bind --cpu-freq",
        1,
        Pass,
    ),
    row(
        "--hint --threads-per-core --cores-per-socket --sockets-per-node --ntasks-per-core --ntasks-per-gpu",
        1,
        Pass,
    ),
    row(
        "--mpi --jobid --het-group --reservation -L --licenses --comment --signal --mail-type --mail-user",
        1,
        Pass,
    ),
    row(
        "--network --wckey --clusters -M --switches --container --container-image --container-mounts",
        1,
        Pass,
    ),
    row("--container-workdir --container-name", 1, Pass),
    row(
        "--exclusive --overlap --exact -s --oversubscribe -O --overcommit --whole -H --hold --contiguous",
        0,
        Pass,
    ),
    row("--propagate --no-container-mount-home --container-writable -Q --quiet -Z --no-allocate", 0, Pass),
];

/// Reads the line whose first option is the word `at`.
pub(super) fn read(draft: &mut Draft<'_>, at: usize) -> Result<(), Caret> {
    let command = read_options(draft, OPTIONS, STYLE, at)?;
    draft.pasted.launcher = Launcher::Srun;
    draft.pasted.kind = JobKind::Slurm;
    if draft.query {
        draft.pasted.launcher = Launcher::Query;
        draft.pasted.kind = JobKind::Plain;
        draft.pasted.command = draft.pasted.argv.clone();
        return Ok(());
    }
    draft.take_command(command)?;
    if let Some(inner) = draft.pasted.command.first().filter(|inner| super::is_launcher(inner)) {
        let text = format!(
            "srun starts a `{inner}` of its own for each task; without srun, hvtui understands the `{inner}` line by itself."
        );
        draft.remark(text);
    }
    Ok(())
}

/// `-N 2`; `2-4` leaves the number to Slurm.
fn nodes(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    match given.text().split_once('-') {
        Some((least, most)) if least == most => {
            draft.pasted.nodes = least.parse().ok();
            draft.remark(format!("`{}` is {least} hosts.", given.shown()));
        }
        Some(_) => draft.delegate(given),
        None => return common::nodes(draft, given),
    }
    Ok(())
}

/// `a,b`; a list with brackets is Slurm's own.
fn nodelist(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let text = given.text();
    if text.contains(['[', '/']) {
        draft.pasted.pass.extend(given.words());
        return Ok(());
    }
    for host in text.split(',') {
        if host.is_empty() || host.contains(char::is_whitespace) {
            let text = format!("`{}`: join the hosts with commas and no space", given.typed);
            return Err(draft.line.caret(given.place(), text));
        }
        if !draft.pasted.hosts.iter().any(|had| had.host == host) {
            draft.pasted.hosts.push(HostSlots { host: host.to_owned(), user: None, slots: None });
        }
    }
    Ok(())
}

/// `--export=ALL,K=V,K`.
fn export(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    for item in given.text().split(',') {
        match item.split_once('=') {
            Some((key, value)) if !key.is_empty() => draft.pasted.set_env(key, value),
            None if item == "ALL" => {
                draft.remark("`--export=ALL` is not needed with srun: it is what srun does.");
            }
            None if item == "NONE" || item == "NIL" => draft.delegate(given),
            None if !item.is_empty() => add(&mut draft.pasted.env_from_here, item),
            _ => {
                let text =
                    format!("`{}` takes ALL, NONE, and NAME or NAME=VALUE joined by commas", given.typed);
                return Err(draft.line.caret(given.place(), text));
            }
        }
    }
    Ok(())
}
