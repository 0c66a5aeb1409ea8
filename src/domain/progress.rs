//! Progress lines that scripts print anyhow: bars of tqdm and Lightning, of Keras 2 and 3, the lines of PyTorch's
//! examples, and the dicts of the Hugging Face Trainer. Pure; knows nothing of ranks, files and time.
//!
//! A fallback for jobs that report no steps: the numbers are the script's own words, read from its log. A line that is no
//! progress line is turned away by its first and last byte. The fold of these into step numbers is
//! [`super::progress_reader`]; what is recognised is listed in `docs/guide/steps.md`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// No progress line is longer, bytes.
pub const LONGEST: usize = 4096;
/// How much of a bar's label is kept, bytes.
const LABEL: usize = 64;

/// Names of a training loss, in any case.
const LOSS: [&str; 8] = [
    "loss",
    "train_loss",
    "training_loss",
    "train/loss",
    "loss_step",
    "train_loss_step",
    "train/loss_step",
    "batch_loss",
];
/// How words of a label begin that belong to training.
const TRAINING: [&str; 6] = ["train", "epoch", "iter", "step", "batch", "finetun"];
/// How words of a label begin that belong to something else; these win.
const ELSEWHERE: [&str; 26] = [
    "valid",
    "eval",
    "test",
    "predict",
    "sanity",
    "infer",
    "download",
    "upload",
    "filter",
    "load",
    "fetch",
    "sav",
    "tokeniz",
    "preproc",
    "process",
    "extract",
    "generat",
    "resolv",
    "checkpoint",
    "shard",
    "compil",
    "convert",
    "pack",
    "cach",
    "sampl",
    "decod",
];
/// Words of a label that belong to something else, whole.
const ELSEWHERE_WHOLE: [&str; 3] = ["val", "map", "dev"];

/// Whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// A bar of tqdm; Lightning's and the Trainer's are such.
    Tqdm,
    /// A bar or a closing line of Keras.
    Keras,
    /// Keras' line before an epoch: `Epoch 1/5`. It counts nothing itself.
    KerasEpoch,
    /// A line of PyTorch's examples or tutorials.
    Example,
    /// A dict of the Hugging Face Trainer: a loss, but no count.
    Dict,
}

/// What the numbers count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counts {
    /// Iterations of a loop: batches.
    Steps,
    /// Samples.
    Samples,
    /// Epochs.
    Epochs,
    /// Something else: bytes, files.
    Other,
}

/// What the loop is for, as far as the line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Training: its label or a training loss says so.
    Training,
    /// It may be training.
    Unknown,
    /// Validation, a download, and so on.
    Elsewhere,
}

/// What one line says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Whose line it is.
    pub form: Form,
    /// What `done` and `total` count.
    pub counts: Counts,
    /// What the loop is for.
    pub role: Role,
    /// The bar's label without its numbers, which tells one bar from another.
    pub label: String,
    /// How many are done, of this loop.
    pub done: Option<u64>,
    /// How many there will be, of this loop.
    pub total: Option<u64>,
    /// The epoch, in the script's own counting (from 0 or 1; the Trainer tells parts of it).
    pub epoch: Option<f64>,
    /// How many epochs there will be.
    pub epochs: Option<u64>,
    /// The training loss.
    pub loss: Option<f32>,
    /// The loss is the mean since the epoch began, not this step's.
    pub loss_is_mean: bool,
    /// How many a second, as the line says: smoothed by tqdm, the epoch's mean by Keras.
    pub per_second: Option<f32>,
}

impl Progress {
    fn new(form: Form, counts: Counts, role: Role) -> Self {
        Self {
            form,
            counts,
            role,
            label: String::new(),
            done: None,
            total: None,
            epoch: None,
            epochs: None,
            loss: None,
            loss_is_mean: false,
            per_second: None,
        }
    }
}

/// What a piece says: a line, or a part of one between two carriage returns.
pub fn recognise(piece: &[u8]) -> Option<Progress> {
    if piece.len() > LONGEST {
        return None;
    }
    if is_bar(piece)
        && let Some(said) = tqdm(&String::from_utf8_lossy(piece))
    {
        return Some(said);
    }
    match *piece.first()? {
        b'T' if piece.starts_with(b"Train Epoch: ") => example(&String::from_utf8_lossy(piece)),
        b'E' if piece.starts_with(b"Epoch") => {
            let text = String::from_utf8_lossy(piece);
            keras_epoch(&text).or_else(|| epoch_and_step(&text))
        }
        b'{' if piece.starts_with(b"{'") => dict(&String::from_utf8_lossy(piece)),
        b' ' => keras(piece).or_else(|| of_own_form(piece)),
        b'0'..=b'9' | b'\x08' | b'\x1b' => keras(piece),
        b'S' | b's' | b'I' | b'i' => of_own_form(piece),
        _ => None,
    }
}

/// Whether it ends as tqdm's bars do: `]`, then blanks, then the way back up from a nested bar.
fn is_bar(piece: &[u8]) -> bool {
    let mut end = piece;
    while let Some(rest) = end.strip_suffix(b"\x1b[A") {
        end = rest;
    }
    end.trim_ascii_end().last() == Some(&b']')
}

/// `Epoch 1:  45%|████▌     | 45/100 [00:10<00:12,  4.50it/s, loss=0.123]`, `45it [00:10, 4.5it/s]`.
fn tqdm(text: &str) -> Option<Progress> {
    let (open, timer) = text.match_indices(" [").find_map(|(at, _)| {
        Some((at, after_clock(&text[at + 2..]).filter(|t| t.starts_with(['<', ',', ']']))?))
    })?;
    let before = text[..open].trim_end();
    let token_at = before.rfind([' ', '|']).map_or(0, |at| at + 1);
    let token = &before[token_at..];
    let before = before[..token_at].trim_end();
    let (done, total, loose_unit) = match token.split_once('/') {
        Some((done, "?")) => (done.parse().ok()?, None, ""),
        Some((done, total)) => (done.parse().ok()?, Some(total.parse::<u64>().ok()?), ""),
        None => {
            let digits = token.len() - token.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            (token[..digits].parse().ok()?, None, &token[digits..])
        }
    };
    // without a total there is a unit behind the number: `45it`
    if total.is_none() && loose_unit.is_empty() && !token.contains('/') {
        return None;
    }
    let label = tqdm_label(before);
    let (unit, per_second) = rate(timer);
    let mut said = Progress::new(Form::Tqdm, counts_of(unit.unwrap_or(loose_unit)), role_of(label));
    said.done = Some(done);
    said.total = total;
    (said.epoch, said.epochs) = epoch_in(label);
    if said.epoch.is_none() && is_epoch_alone(label) {
        said.counts = Counts::Epochs;
    }
    said.loss = loss_in(timer).or_else(|| loss_in(label));
    if said.loss.is_some() && said.role == Role::Unknown {
        said.role = Role::Training;
    }
    said.label = key_of(label);
    said.per_second = per_second;
    Some(said)
}

/// What follows `MM:SS` or `H:MM:SS`.
fn after_clock(text: &str) -> Option<&str> {
    let clock = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':').len();
    (clock >= 5 && text[..clock].contains(':')).then_some(&text[clock..])
}

/// What stands before the percentage, or before the bar where there is none.
fn tqdm_label(before: &str) -> &str {
    let percent = before.match_indices('%').find_map(|(at, _)| {
        let bar = before[at + 1..].starts_with('|') || at + 1 == before.len();
        let label = before[..at].trim_end_matches(|c: char| c.is_ascii_digit());
        (bar && label.len() < at).then_some(label)
    });
    let label = percent.unwrap_or_else(|| before.split('|').next().unwrap_or_default());
    label.trim().trim_end_matches(':')
}

/// The unit and how many of it a second, from what follows the elapsed time: `<00:12,  4.50it/s, loss=0.123]`.
fn rate(timer: &str) -> (Option<&str>, Option<f32>) {
    let Some(rest) = timer.split_once(',').map(|(_, rest)| rest.trim_start()) else { return (None, None) };
    let rate = rest.split([',', ']']).next().unwrap_or_default().trim_end();
    let digits =
        rate.len() - rate.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '?').len();
    let Some((over, under)) = rate[digits..].split_once('/') else { return (None, None) };
    let number = rate[..digits].parse::<f32>().ok().filter(|n| n.is_finite() && *n > 0.0);
    match (over.trim(), under.trim()) {
        (unit, "s") => (Some(unit), number),
        ("s", unit) => (Some(unit), number.map(f32::recip)),
        _ => (None, None),
    }
}

fn counts_of(unit: &str) -> Counts {
    match unit.trim().to_ascii_lowercase().as_str() {
        "" | "it" | "its" | "iter" | "iters" | "iteration" | "iterations" | "batch" | "batches" | "step"
        | "steps" => Counts::Steps,
        "sample" | "samples" | "ex" | "example" | "examples" | "img" | "imgs" | "image" | "images" => {
            Counts::Samples
        }
        "epoch" | "epochs" => Counts::Epochs,
        _ => Counts::Other,
    }
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| !w.is_empty()).map(str::to_ascii_lowercase)
}

fn role_of(label: &str) -> Role {
    let mut role = Role::Unknown;
    for word in words(label) {
        let begins = |list: &[&str]| list.iter().any(|start| word.starts_with(start));
        if begins(&ELSEWHERE) || ELSEWHERE_WHOLE.contains(&word.as_str()) {
            return Role::Elsewhere;
        }
        if begins(&TRAINING) {
            role = Role::Training;
        }
    }
    role
}

fn is_epoch_alone(label: &str) -> bool {
    let mut all = words(label);
    matches!(all.next().as_deref(), Some("epoch" | "epochs")) && all.next().is_none()
}

/// The label without what changes from step to step: its numbers, and a loss with all that follows.
fn key_of(label: &str) -> String {
    let lower = label.to_ascii_lowercase();
    let upto = lower.find("loss").unwrap_or(lower.len());
    lower[..upto].chars().filter(|c| c.is_alphabetic()).scan(0, within_label).collect()
}

fn within_label(bytes: &mut usize, c: char) -> Option<char> {
    *bytes += c.len_utf8();
    (*bytes <= LABEL).then_some(c)
}

/// `Epoch 3`, `Epoch 3/10`, `Epoch [3/10]`, `epoch: 3 of 10`.
fn epoch_in(text: &str) -> (Option<f64>, Option<u64>) {
    let lower = text.to_ascii_lowercase();
    let Some(at) = lower.find("epoch") else { return (None, None) };
    let rest = lower[at + 5..].trim_start_matches([' ', ':', '=', '#', '[', '(']);
    let Some((epoch, rest)) = number(rest) else { return (None, None) };
    let rest = rest.trim_start();
    let of = rest.strip_prefix('/').or_else(|| rest.strip_prefix("of "));
    (Some(epoch as f64), of.and_then(|rest| number(rest.trim_start())).map(|(epochs, _)| epochs))
}

/// The digits at the beginning, and what follows.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// `640/60000` at the beginning, and what follows.
fn fraction(text: &str) -> Option<(u64, u64, &str)> {
    let (done, rest) = number(text.trim_start())?;
    let (total, rest) = number(rest.trim_start().strip_prefix('/')?.trim_start())?;
    Some((done, total, rest))
}

/// The value behind the first name of a training loss.
fn loss_in(text: &str) -> Option<f32> {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/';
    let mut rest = text;
    while let Some(start) = rest.find(in_word) {
        rest = &rest[start..];
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        if LOSS.iter().any(|name| name.eq_ignore_ascii_case(word)) {
            let value = after.trim_start_matches(['=', ':', ' ', '\'', '"', '\t']);
            let digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
            let value = &value[..value.find(|c| !digit(c)).unwrap_or(value.len())];
            return value.parse::<f32>().ok().filter(|loss| loss.is_finite());
        }
    }
    None
}

/// Keras' bars and closing lines, with and without colours:
/// ` 12/469 [..............................] - ETA: 1:02 - loss: 0.5123`, `469/469 ━━━━━━ 3s 5ms/step - loss: 0.25`.
fn keras(piece: &[u8]) -> Option<Progress> {
    let text = clean(piece)?;
    let (done, rest) = number(text.trim_start())?;
    let rest = rest.strip_prefix('/')?;
    let (total, rest) = match rest.strip_prefix("Unknown") {
        Some(rest) => (None, rest),
        None => number(rest).map(|(total, rest)| (Some(total), rest))?,
    };
    let rest = rest.strip_prefix(' ')?.trim_start();
    let bar = rest.starts_with('━') || ["[=", "[>", "[."].iter().any(|start| rest.starts_with(start));
    let took = number(rest.trim_start_matches(['-', ' ']))
        .is_some_and(|(_, unit)| ["s ", "ms ", "us "].iter().any(|known| unit.starts_with(known)));
    if !bar && !took {
        return None;
    }
    let mut said = Progress::new(Form::Keras, Counts::Steps, Role::Elsewhere);
    said.done = Some(done);
    said.total = total;
    said.loss = loss_in(rest);
    said.loss_is_mean = said.loss.is_some();
    // predict() has no loss; evaluate() has, and looks like fit()
    if rest.contains("loss: ") {
        said.role = Role::Unknown;
    }
    said.per_second = rest.find("/step").and_then(|at| per_step(&rest[..at]));
    Some(said)
}

/// How many a second, from text that ends with `… 5ms`.
fn per_step(text: &str) -> Option<f32> {
    let took = &text[text.rfind(' ').map_or(0, |at| at + 1)..];
    let digits = took.len() - took.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match &took[digits..] {
        "s" => 1.0,
        "ms" => 1e3,
        "us" | "µs" => 1e6,
        _ => return None,
    };
    took[..digits].parse::<f32>().ok().filter(|took| *took > 0.0).map(|took| unit / took)
}

/// The text without colours and backspaces; `None` where it can't be one of Keras' lines.
fn clean(piece: &[u8]) -> Option<Cow<'_, str>> {
    let mut start = piece;
    loop {
        start = start.trim_ascii_start();
        match start.first()? {
            b'\x08' => start = &start[1..],
            b'\x1b' => start = &start[start.iter().position(u8::is_ascii_alphabetic)? + 1..],
            b'0'..=b'9' => break,
            _ => return None,
        }
    }
    if !start.iter().take(12).any(|byte| *byte == b'/') {
        return None;
    }
    let text = String::from_utf8_lossy(start);
    if !text.contains(['\x1b', '\x08']) {
        return Some(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\x1b' => escaped = true,
            '\x08' => (),
            _ if escaped => escaped = !c.is_ascii_alphabetic(),
            _ => plain.push(c),
        }
    }
    Some(Cow::Owned(plain))
}

/// Keras' line before an epoch: `Epoch 1/5` and nothing else.
fn keras_epoch(text: &str) -> Option<Progress> {
    let (epoch, epochs, rest) = fraction(text.strip_prefix("Epoch ")?)?;
    rest.trim().is_empty().then(|| Progress {
        epoch: Some(epoch as f64),
        epochs: Some(epochs),
        ..Progress::new(Form::KerasEpoch, Counts::Epochs, Role::Training)
    })
}

/// `Train Epoch: 1 [640/60000 (1%)]⇥Loss: 2.297471`: samples of the epoch.
fn example(text: &str) -> Option<Progress> {
    let (epoch, rest) = number(text.strip_prefix("Train Epoch: ")?.trim_start())?;
    let (done, total, rest) = fraction(rest.trim_start().strip_prefix('[')?)?;
    rest.starts_with([' ', ']']).then(|| Progress {
        label: "train".to_owned(),
        done: Some(done),
        total: Some(total),
        epoch: Some(epoch as f64),
        loss: loss_in(rest),
        ..Progress::new(Form::Example, Counts::Samples, Role::Training)
    })
}

/// `Epoch: [0][  10/5005]⇥Time …⇥Loss 6.9e+00 (7.0e+00)`, and `Epoch [1/5], Step [100/600], Loss: 0.2`.
fn epoch_and_step(text: &str) -> Option<Progress> {
    let rest = text.strip_prefix("Epoch")?.trim_start_matches([':', ' ']).strip_prefix('[')?;
    let (epoch, rest) = number(rest.trim_start())?;
    let (epochs, rest) = match rest.strip_prefix('/') {
        Some(rest) => number(rest).map(|(epochs, rest)| (Some(epochs), rest))?,
        None => (None, rest),
    };
    let rest = rest.strip_prefix(']')?.trim_start_matches([' ', ',']);
    let named = ["Step", "Batch", "Iter"].iter().find_map(|name| rest.strip_prefix(name));
    let (done, total, rest) = fraction(named.unwrap_or(rest).trim_start().strip_prefix('[')?)?;
    rest.starts_with(']').then(|| Progress {
        label: "epoch".to_owned(),
        done: Some(done),
        total: Some(total),
        epoch: Some(epoch as f64),
        epochs,
        loss: loss_in(rest),
        ..Progress::new(Form::Example, Counts::Steps, Role::Training)
    })
}

/// How a line of a script's own form begins that counts steps.
const COUNTED: [&str; 4] = ["step", "steps", "iter", "iteration"];

/// A line that begins with a step's number and has a training loss: `step 250: train loss 2.31, val loss 2.35`,
/// `iter 100: loss 2.45, time 23.4ms`, `Step #100⇥Loss: 2.302585`, ` iteration      100/  500 | … | lm loss: 9.1E+00 |`.
fn of_own_form(piece: &[u8]) -> Option<Progress> {
    let text = String::from_utf8_lossy(piece);
    let text = text.trim_start();
    let (word, rest) = text.split_at(text.find(|c: char| !c.is_ascii_alphabetic())?);
    let word = COUNTED.into_iter().find(|known| known.eq_ignore_ascii_case(word))?;
    let (done, rest) = number(rest.trim_start_matches([' ', '\t', ':', '=', '#', '[', '(']))?;
    // no number: a version, a time, a name
    if rest.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
        return None;
    }
    let of = rest.trim_start();
    let of = of.strip_prefix('/').or_else(|| of.strip_prefix("of "));
    let total =
        of.and_then(|of| number(of.trim_start())).map(|(total, _)| total).filter(|total| *total >= done);
    // the loss of an evaluation is another one: `val loss 2.35`
    let before = rest.to_ascii_lowercase().find("loss").and_then(|at| rest.get(..at))?;
    let whose = words(before).last().unwrap_or_default();
    let loss = loss_in(rest).filter(|_| role_of(&whose) != Role::Elsewhere)?;
    Some(Progress {
        label: word.trim_end_matches('s').to_owned(),
        done: Some(done),
        total,
        loss: Some(loss),
        ..Progress::new(Form::Example, Counts::Steps, Role::Training)
    })
}

/// `{'loss': 0.5, 'grad_norm': 2.1, 'learning_rate': 5e-05, 'epoch': 0.1}`; not the one of an evaluation or of the end.
fn dict(text: &str) -> Option<Progress> {
    let text = text.trim_end().strip_suffix('}')?;
    let epoch = text.split_once("'epoch': ")?.1.trim_start_matches('\'');
    let epoch = &epoch[..epoch.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(epoch.len())];
    let loss = loss_in(text).filter(|_| !text.contains("'train_runtime'"))?;
    Some(Progress {
        epoch: epoch.parse().ok().filter(|epoch: &f64| epoch.is_finite()),
        loss: Some(loss),
        ..Progress::new(Form::Dict, Counts::Other, Role::Training)
    })
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
