//! Lines that start no job but have an equal in hvtui: `watch -n 10 nvidia-smi`, `ssh-keygen`, `ssh-copy-id`.

use std::path::Path;

use crate::launch::words::Caret;

use super::base;
use super::common;
use super::draft::Draft;
use super::options::Does::{Mark, NoEffect, Try};
use super::options::{Allows, Given, Row, Style, read as read_options, row};
use super::pasted::{HostSlots, Launcher};

const SCREEN: &str = "`hvtui watch` has its own form";

static WATCH: &[Row] = &[
    row("-n --interval", 1, Try(interval)),
    row("-d --differences -t --no-title -c --color -b --beep -e --errexit -g --chgexit", 0, NoEffect(SCREEN)),
    row("-p --precise -x --exec -w --no-wrap -C --no-color", 0, NoEffect(SCREEN)),
];

static COPY_ID: &[Row] = &[
    row("-h -?", 0, Mark(common::ask)),
    row("-i", 1, Try(common::identity)),
    row("-p", 1, Try(common::ssh_port)),
    row("-f -n -s -x", 0, NoEffect("`hvtui hosts mesh` sets up all hosts")),
    row("-o -t", 1, NoEffect("`hvtui hosts mesh` uses the hosts file and ssh's own configuration")),
];

/// `watch … nvidia-smi`; false where something else is watched.
pub(super) fn watch(draft: &mut Draft<'_>, at: usize) -> Result<bool, Caret> {
    let style = Style { program: "watch", allows: &[Allows::Abbreviations, Allows::Glued] };
    // watch runs its words as a shell's line, so that one quoted word may hold several.
    let program = draft.line.words[at..].iter().find(|word| base(first(&word.text)) == "nvidia-smi");
    if program.is_none() {
        return Ok(false);
    }
    draft.pasted.launcher = Launcher::Watch { every_ms: 2000 };
    let command = read_options(draft, WATCH, style, at)?;
    draft.pasted.command = draft.texts(command);
    Ok(draft.pasted.command.first().is_some_and(|word| base(first(word)) == "nvidia-smi"))
}

fn first(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

fn interval(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let seconds = given.text().replace(',', ".").parse::<f64>().ok();
    let Some(seconds) = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds)) else {
        let text = format!("`{}`: `{}` is not a number of seconds", given.typed, given.text());
        return Err(draft.line.caret(given.place(), text));
    };
    // watch itself takes nothing below a tenth of a second.
    draft.pasted.launcher = Launcher::Watch { every_ms: (seconds.max(0.1) * 1000.0).round() as u64 };
    Ok(())
}

/// `nvidia-smi -l 10`, `nvidia-smi --loop=10`, `nvidia-smi -lms 500`; false without them.
pub(super) fn nvidia_smi(draft: &mut Draft<'_>, at: usize) -> bool {
    let words = &draft.line.words;
    for (here, word) in words.iter().enumerate().skip(at) {
        let (name, glued) = match word.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.text.as_str(), None),
        };
        let unit = match name {
            "-l" | "--loop" => 1000.0,
            "-lms" | "--loop-ms" => 1.0,
            _ => continue,
        };
        let number = glued.or(words.get(here + 1).map(|next| next.text.as_str()));
        let every = number.and_then(|text| text.parse::<f64>().ok()).unwrap_or(5000.0 / unit);
        let every_ms = (every * unit).clamp(100.0, 86_400_000.0) as u64;
        draft.pasted.launcher = Launcher::Watch { every_ms };
        draft.pasted.command = draft.pasted.argv.clone();
        return true;
    }
    false
}

/// The option of such a line that says how many ranks it starts on a host, and how many.
pub fn ranks_option(words: &[String]) -> Option<(&str, u32)> {
    const OPTIONS: [&str; 4] = ["--num_processes", "--num-processes", "--num_gpus", "--num-gpus"];
    let next = words.iter().skip(1).map(Some).chain([None]);
    words.iter().zip(next).find_map(|(word, next)| {
        let (name, value) = word.split_once('=').or_else(|| Some((word, next?)))?;
        Some((name, value.parse().ok()?)).filter(|_| OPTIONS.contains(&name))
    })
}

/// `accelerate launch …` and `deepspeed …` start their ranks themselves: they are given the whole line, once.
/// `program` says which of the two it is.
pub(super) fn starts_ranks(draft: &mut Draft<'_>, at: usize, program: &str) {
    let words = draft.texts(at);
    let is_script = |word: &String| Path::new(word).extension().is_some_and(|end| end == "py");
    let own = words.iter().position(is_script).map_or(&words[..], |script| &words[..script]);
    draft.pasted.np = ranks_option(own).map(|(_, ranks)| ranks);
    if program == "deepspeed" {
        of_deepspeed(draft, own);
    } else {
        of_accelerate(draft, own);
    }
    draft.pasted.command.clone_from(&words);
    draft
        .pasted
        .not_understood
        .push(format!("`{program}` (`hvtui run --kind torch -- python …` starts its ranks itself)"));
}

/// The machines of `accelerate launch`: one line starts the ranks of one of them.
fn of_accelerate(draft: &mut Draft<'_>, own: &[String]) {
    let value = option_value(own, "--num_machines").or_else(|| option_value(own, "--num-machines"));
    let Some(machines) = value.and_then(|value| value.parse::<u32>().ok()).filter(|count| *count > 1) else {
        return;
    };
    // its processes are those of all machines
    draft.pasted.np = draft.pasted.np.map(|np| np.div_ceil(machines));
    draft.remark(format!(
        "`--num_machines {machines}`: this line starts the ranks of one machine, and waits for the same line with its own \
         `--machine_rank` on each other one."
    ));
}

/// The hosts of deepspeed, which it reaches itself.
fn of_deepspeed(draft: &mut Draft<'_>, own: &[String]) {
    if let Some(list) = option_value(own, "--include")
        && draft.pasted.np.is_none()
    {
        include(draft, list);
    } else if let Some(file) = option_value(own, "--hostfile").or_else(|| option_value(own, "-H")) {
        draft.remark(format!(
            "deepspeed starts its ranks on the hosts of {file} by ssh itself: their GPUs are neither held nor watched for this run."
        ));
    }
}

/// The value of an option, behind `=` or as the next word.
fn option_value<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    let at = words.iter().position(|word| word.split('=').next() == Some(name))?;
    words[at].split_once('=').map(|(_, value)| value).or_else(|| words.get(at + 1).map(String::as_str))
}

/// deepspeed's `--include a:0,1@b:0,1`: its first host, and how many GPUs it uses there. The others it reaches itself.
fn include(draft: &mut Draft<'_>, list: &str) {
    let hosts: Vec<(&str, Option<u32>)> = list
        .split('@')
        .map(|part| {
            let (host, gpus) = part.split_once(':').map_or((part, None), |(host, gpus)| (host, Some(gpus)));
            (
                host.trim(),
                gpus.map(|gpus| gpus.split(',').filter(|gpu| !gpu.trim().is_empty()).count() as u32),
            )
        })
        .filter(|(host, _)| !host.is_empty())
        .collect();
    let Some(((first, gpus), others)) = hosts.split_first() else { return };
    if *first == "localhost" {
        draft.pasted.np = *gpus;
    } else {
        draft.pasted.hosts = vec![HostSlots { host: (*first).to_owned(), user: None, slots: *gpus }];
    }
    if !others.is_empty() {
        let others: Vec<&str> = others.iter().map(|(host, _)| *host).collect();
        draft.remark(format!(
            "deepspeed starts its ranks on {} by ssh itself: their GPUs are neither held nor watched for this run.",
            others.join(", ")
        ));
    }
}

/// `ssh-keygen …`: keys between hosts are what the mesh is.
pub(super) fn keygen(draft: &mut Draft<'_>) {
    draft.pasted.launcher = Launcher::Mesh;
    draft.pasted.command = draft.pasted.argv.clone();
    draft.remark("`hvtui hosts mesh` makes keys on the hosts and exchanges them in one step.");
}

/// `ssh-copy-id [-p PORT] [user@]host`.
pub(super) fn copy_id(draft: &mut Draft<'_>, at: usize) -> Result<(), Caret> {
    let style = Style { program: "ssh-copy-id", allows: &[Allows::Glued] };
    let target = read_options(draft, COPY_ID, style, at)?;
    draft.pasted.launcher = if draft.query { Launcher::Query } else { Launcher::Mesh };
    draft.pasted.command = draft.pasted.argv.clone();
    let Some(word) = draft.line.words.get(target) else {
        let end = draft.line.text.len();
        return if draft.query {
            Ok(())
        } else {
            Err(draft.line.caret(end..end, "no host: name the one to reach"))
        };
    };
    let (user, host) = match word.text.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host),
        None => (None, word.text.as_str()),
    };
    draft.pasted.hosts = vec![HostSlots { host: host.to_owned(), user, slots: None }];
    draft.pasted.not_understood.extend(draft.texts(target + 1));
    draft.remark("`hvtui hosts mesh` makes keys on the hosts and exchanges them in one step.");
    Ok(())
}
