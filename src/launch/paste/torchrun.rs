//! `torchrun`, `python -m torch.distributed.run` and `python -m torch.distributed.launch`.

use crate::domain::options::GpuView;
use crate::domain::run::JobKind;
use crate::launch::words::{Caret, Word};

use super::common;
use super::draft::Draft;
use super::hosts::split_port;
use super::options::Does::{Delegate, Env, Leave, Mark, NoEffect, Try};
use super::options::{Allows, Given, Row, Style, Unit, read as read_options, row};
use super::pasted::{Launcher, PerNode};

const STYLE: Style =
    Style { program: "torchrun", allows: &[Allows::Abbreviations, Allows::Glued, Allows::Underscores] };

const OUTPUT: &str = "hvtui keeps the output of each rank apart, on its host and in the recording";
const ENDS: &str = "hvtui watches its ranks by itself";
const ADDRESS: &str = "hvtui gives each host its own address";
const MEET: &str = "hvtui has its own name and meeting place for each run";

static OPTIONS: &[Row] = &[
    row("-h --help", 0, Mark(common::ask)),
    row("--nnodes", 1, Try(nnodes)),
    row("--nproc-per-node", 1, Try(nproc)),
    row("--rdzv-backend", 1, Mark(backend)),
    row("--rdzv-endpoint", 1, Try(endpoint)),
    row("--rdzv-id", 1, NoEffect(MEET)),
    row("--rdzv-conf", 1, Delegate),
    row("--standalone", 0, Mark(standalone)),
    row("--max-restarts", 1, Try(common::max_restarts)),
    row("--monitor-interval", 1, NoEffect(ENDS)),
    row("--start-method", 1, NoEffect("hvtui starts each rank as a program of its own")),
    row("--event-log-handler", 1, Delegate),
    row("--role", 1, Env("ROLE_NAME", Unit::Text)),
    row("-m --module", 0, Mark(|draft, _| draft.pasted.module = true)),
    row("--no-python", 0, Mark(|draft, given| draft.pasted.pass.extend(given.words()))),
    row("--run-path", 0, Leave),
    row("--log-dir", 1, Try(common::output_filename)),
    row("-r --redirects", 1, NoEffect(OUTPUT)),
    row("-t --tee", 1, NoEffect(OUTPUT)),
    row("--local-ranks-filter", 1, NoEffect(OUTPUT)),
    row("--node-rank", 1, Try(common::node_rank)),
    row("--master-addr", 1, Try(master_addr)),
    row("--master-port", 1, Try(master_port)),
    row("--local-addr", 1, NoEffect(ADDRESS)),
    row("--logs-specs", 1, Delegate),
    row("--numa-binding", 1, Delegate),
    row("--signals-to-handle", 1, Delegate),
    row("--use-env", 0, Mark(|draft, given| draft.pasted.pass.extend(given.words()))),
    row("--virtual-local-rank", 0, Mark(|draft, _| draft.pasted.gpu_view = GpuView::Own)),
    row("--duplicate-stdout-filters --duplicate-stderr-filters", 1, Delegate),
];

/// How the launcher was written.
pub(super) enum Form {
    /// `torchrun`.
    Torchrun,
    /// `python -m torch.distributed.run`, with the interpreter.
    Run(String),
    /// `python -m torch.distributed.launch`, with the interpreter.
    Launch(String),
}

/// `python [options] -m torch.distributed.run|launch`: the form and the launcher's first option.
pub(super) fn module(draft: &mut Draft<'_>, python: usize) -> Option<(Form, usize)> {
    let (module, next) = super::python_module(&draft.line.words, python)?;
    let interpreter = draft.line.words[python].text.clone();
    let form = match module {
        "torch.distributed.run" | "torch.distributed.elastic_launch" => Form::Run(interpreter),
        "torch.distributed.launch" => Form::Launch(interpreter),
        _ => return None,
    };
    let between = &draft.line.words[python + 1..next];
    let own: Vec<&str> = between.iter().map(|word| word.text.as_str()).collect();
    let own = &own[..own.len().saturating_sub(2)];
    if own.iter().any(|option| *option != "-u") {
        draft.remark(format!("`{}` holds for the launcher, not for its ranks.", own.join(" ")));
    }
    Some((form, next))
}

/// Reads the line whose first option is the word `at`.
pub(super) fn read(draft: &mut Draft<'_>, at: usize, form: &Form) -> Result<(), Caret> {
    let command = read_options(draft, OPTIONS, STYLE, at)?;
    let words: &[Word] = &draft.line.words;
    // `pass` holds the two flags as typed, perhaps abbreviated.
    let flag = |name: &str| draft.pasted.pass.iter().any(|word| name.starts_with(&word.replace('_', "-")));
    let (no_python, use_env) = (flag("--no-python"), flag("--use-env"));
    draft.pasted.pass.clear();
    draft.pasted.kind = JobKind::Torch;
    draft.pasted.launcher = match form {
        Form::Launch(_) => {
            let dashed = |word: &Word| word.text.starts_with("--") && word.text[2..].contains('-');
            let dash_names = words[at..command.min(words.len())].iter().any(|word| {
                dashed(word) && !word.text.split('=').next().is_some_and(|name| name.contains('_'))
            });
            Launcher::TorchLaunch { use_env, dashes: dash_names }
        }
        _ => Launcher::Torchrun,
    };
    if draft.query {
        draft.pasted.launcher = Launcher::Query;
        draft.pasted.kind = JobKind::Plain;
        draft.pasted.command = draft.pasted.argv.clone();
        return Ok(());
    }
    draft.take_command(command)?;
    if no_python {
        draft.pasted.script = Some(0);
    } else {
        interpret(draft, form);
    }
    ranks(draft);
    remarks(draft);
    Ok(())
}

/// Puts the interpreter before the script, as the launcher does.
fn interpret(draft: &mut Draft<'_>, form: &Form) {
    let interpreter = match form {
        Form::Run(python) | Form::Launch(python) => python.clone(),
        // torchrun lies beside its interpreter, and an environment's `python3` is found as it is.
        Form::Torchrun => match draft.pasted.argv.first().and_then(|program| program.rsplit_once('/')) {
            Some((folder, _)) => format!("{folder}/python3"),
            None => "python3".to_owned(),
        },
    };
    let mut before = vec![interpreter, "-u".to_owned()];
    if draft.pasted.module {
        before.push("-m".to_owned());
    }
    draft.pasted.script = Some(before.len());
    draft.pasted.command.splice(0..0, before);
}

/// One host and one rank are what torchrun takes where the line says nothing.
fn ranks(draft: &mut Draft<'_>) {
    let pasted = &mut draft.pasted;
    if pasted.not_understood.iter().any(|option| option.starts_with("--nn") || option.starts_with("--np")) {
        return;
    }
    let nodes = *pasted.nodes.get_or_insert(1);
    if let PerNode::Ranks(each) = *pasted.per_node.get_or_insert(PerNode::Ranks(1)) {
        pasted.np = nodes.checked_mul(each);
    }
}

fn nnodes(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    match given.text().split_once(':') {
        None => common::nodes(draft, given),
        Some((least, most)) => {
            let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
            match (number(least), number(most)) {
                (Some(least), Some(most)) if least == most => draft.pasted.nodes = Some(least),
                (Some(least), Some(most)) if least < most => draft.leave(given),
                _ => {
                    let text = format!("`{}` takes a number of hosts, or LEAST:MOST", given.typed);
                    return Err(draft.line.caret(given.place(), text));
                }
            }
            Ok(())
        }
    }
}

fn nproc(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let each = match given.text() {
        "gpu" => PerNode::Gpus,
        "cpu" => PerNode::Cpus,
        "auto" => PerNode::Auto,
        "xpu" | "mps" | "hpu" | "npu" => {
            draft.leave(given);
            return Ok(());
        }
        text if text.parse::<u32>().is_ok() => return common::per_node(draft, given),
        _ => {
            let text = format!("`{}` takes a number of ranks, `gpu`, `cpu` or `auto`", given.typed);
            return Err(draft.line.caret(given.place(), text));
        }
    };
    draft.once(draft.pasted.per_node.as_ref(), &each, given)?;
    draft.pasted.per_node = Some(each);
    Ok(())
}

fn backend(draft: &mut Draft<'_>, given: &Given<'_>) {
    draft.numbers_hosts = given.text() != "static";
    match given.text() {
        "static" | "c10d" => draft.no_effect(given, MEET),
        _ => draft.leave(given),
    }
}

fn endpoint(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let bad = || {
        let text = format!("`{}` takes host:port, an IPv6 address in brackets", given.typed);
        draft.line.caret(given.place(), text)
    };
    let (host, port) = split_port(given.text()).filter(|(host, _)| !host.is_empty()).ok_or_else(bad)?;
    // torchrun takes port 0 for any free one.
    let port = match port {
        Some(port) => Some(port.parse::<u16>().map_err(|_| bad())?).filter(|port| *port > 0),
        None => None,
    };
    draft.pasted.master_addr = Some(host.to_owned());
    draft.pasted.master_port = port.or(draft.pasted.master_port);
    draft.meets.push(given.shown());
    Ok(())
}

fn master_addr(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    draft.meets.push(given.shown());
    common::master_addr(draft, given)
}

fn master_port(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    draft.meets.push(given.shown());
    common::master_port(draft, given)
}

fn standalone(draft: &mut Draft<'_>, given: &Given<'_>) {
    draft.no_effect(given, MEET);
}

fn remarks(draft: &mut Draft<'_>) {
    let pasted = &draft.pasted;
    let mut said = Vec::new();
    if let Some(nodes) = pasted.nodes.filter(|nodes| *nodes > 1) {
        let numbered = if draft.numbers_hosts { "" } else { ", with a node rank each" };
        said.push(format!(
            "torchrun has to be started on each of the {nodes} hosts{numbered}; hvtui starts all ranks by itself."
        ));
    }
    if let Some(rank) = pasted.node_rank {
        said.push(format!("`--node-rank {rank}` is not needed: hvtui numbers the hosts."));
    }
    if !draft.meets.is_empty() {
        let options = draft.meets.join(" ");
        said.push(format!("`{options}` has no effect: {MEET}, on the host of rank 0."));
    }
    for text in said {
        draft.remark(text);
    }
}
