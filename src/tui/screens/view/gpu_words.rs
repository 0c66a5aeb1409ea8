//! Telemetry in words: readings, power, health, who holds a GPU.

use ratatui::style::Style;

use crate::domain::gpu::health::{Fault, Severity, Unreadable, is_throttled};
use crate::domain::gpu::{GpuSample, Reading};
use crate::domain::ids::RunId;
use crate::tui::canvas::{Canvas, width};
use crate::tui::screens::usage::GpuUse;
use crate::tui::screens::view::title::plural;

/// `78 %`, or `–`.
pub(in crate::tui::screens) fn percent(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.0} %"))
}

/// A reading's words: its value, `n/a` where it is not supported, `–` where it failed.
pub(in crate::tui::screens) fn reading<T>(reading: &Reading<T>, show: impl FnOnce(&T) -> String) -> String {
    match reading {
        Reading::Value(value) => show(value),
        Reading::Unsupported => "n/a".to_owned(),
        Reading::Failed { .. } => "–".to_owned(),
    }
}

/// The model without the maker's name.
pub(in crate::tui::screens) fn model_name(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// `690/700 W`.
pub(in crate::tui::screens) fn power(sample: &GpuSample) -> String {
    let limit = sample.power_limit_mw.value().map(|mw| format!("/{}", mw / 1000)).unwrap_or_default();
    reading(&sample.power_mw, |mw| format!("{}{limit} W", mw / 1000))
}

pub(in crate::tui::screens) fn host_power(samples: &[GpuSample]) -> String {
    let sum = |values: Vec<&u32>| values.iter().map(|mw| f64::from(**mw)).sum::<f64>() / 1e6;
    let drawn: Vec<&u32> = samples.iter().filter_map(|gpu| gpu.power_mw.value()).collect();
    let limit: Vec<&u32> = samples.iter().filter_map(|gpu| gpu.power_limit_mw.value()).collect();
    let whole = samples.iter().filter(|gpu| !gpu.is_slice()).count();
    match (drawn.is_empty(), limit.len() == whole) {
        (true, _) => "–".to_owned(),
        (false, true) => format!("{:.1}/{:.1} kW", sum(drawn), sum(limit)),
        (false, false) => format!("{:.1} kW", sum(drawn)),
    }
}

/// How bad it is what is wrong with a GPU; one that does not even tell whether it is throttled is at risk.
pub(in crate::tui::screens) fn worst(faults: &[Fault], sample: &GpuSample) -> Option<Severity> {
    let tells_nothing = matches!(sample.throttle, Reading::Failed { .. });
    faults.first().map(|fault| fault.severity).or(tells_nothing.then_some(Severity::Act))
}

/// What is wrong with a GPU, in a word or two: the worst, and how much more where `room` columns have room for it.
pub(in crate::tui::screens) fn health(
    canvas: &Canvas<'_>,
    faults: &[Fault],
    sample: &GpuSample,
    room: u16,
) -> (String, Style) {
    let style = match worst(faults, sample) {
        Some(Severity::Act) => canvas.theme.bad,
        Some(Severity::Look) => canvas.theme.warn,
        None => canvas.theme.dim,
    };
    let words = match (&sample.throttle, faults) {
        (Reading::Failed { error }, []) => error.clone(),
        (Reading::Unsupported, []) => "n/a".to_owned(),
        (Reading::Value(_), []) => "ok".to_owned(),
        (_, [worst, rest @ ..]) => {
            let all = format!("{} +{}", worst.words, rest.len());
            let fits = !rest.is_empty() && width(&all) <= room;
            if fits { all } else { worst.words.clone() }
        }
    };
    (words, style)
}

/// Why nothing can be read of a GPU, and for how long, in `room` columns: `no answer 46 s`.
pub(in crate::tui::screens) fn silence(why: Unreadable<'_>, age: &str, room: u16) -> String {
    let words = format!("{} {age}", why.short());
    if width(&words) <= room { words } else { why.short().to_owned() }
}

/// The same of all GPUs of a host, from the worst fault of each: how many of what is worst, and how
/// many more have another.
pub(in crate::tui::screens) fn host_health(
    canvas: &Canvas<'_>,
    worst: &[Severity],
    samples: &[GpuSample],
) -> (String, Style) {
    let failed = samples.iter().filter(|gpu| matches!(gpu.throttle, Reading::Failed { .. })).count();
    let throttled = samples.iter().filter(|gpu| is_throttled(gpu)).count();
    let faulty = worst.iter().filter(|severity| **severity == Severity::Act).count();
    let (n, what, style) = match (failed, faulty, throttled, worst.len()) {
        (0, 0, 0, 0) if samples.is_empty() => return ("–".to_owned(), canvas.theme.dim),
        (0, 0, 0, 0) => return ("ok".to_owned(), canvas.theme.dim),
        (0, 0, 0, n) => (n, "to check", canvas.theme.warn),
        (0, 0, n, _) => (n, "throttled", canvas.theme.warn),
        (0, n, _, _) => (n, "at risk", canvas.theme.bad),
        (n, _, _, _) => (n, "failing", canvas.theme.bad),
    };
    let more = match worst.len().saturating_sub(n) {
        0 => String::new(),
        more => format!(" +{more}"),
    };
    (format!("{n} {what}{more}"), style)
}

pub(in crate::tui::screens) fn users(samples: &[GpuSample]) -> String {
    let mut names: Vec<&str> = samples
        .iter()
        .filter_map(|gpu| gpu.processes.value())
        .flatten()
        .filter_map(|process| process.user.value())
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    match names[..] {
        [] => String::new(),
        [only] => only.to_owned(),
        _ => format!("{} users", names.len()),
    }
}

/// The run that all processes of a GPU belong to.
fn run_of(sample: &GpuSample) -> Option<&RunId> {
    let runs = || sample.processes.value().into_iter().flatten().map(|process| process.run.as_ref());
    let first = runs().next()??;
    runs().all(|run| run.is_some_and(|run| run.id == first.id)).then_some(&first.id)
}

pub(in crate::tui::screens) fn holder_words(
    canvas: &Canvas<'_>,
    sample: &GpuSample,
    holder: &GpuUse,
) -> (String, Style) {
    let user = sample.processes.value().and_then(|list| list.first()).map(|process| &process.user);
    let run = run_of(sample);
    match (holder, user) {
        (GpuUse::Run(run), _) => (format!("run {}", run.short()), canvas.theme.accent),
        // one that its run does not hold
        (GpuUse::Busy | GpuUse::HeldIdle(_), _) if run.is_some() => {
            (format!("run {}", run.map_or("", RunId::short)), canvas.theme.accent)
        }
        (GpuUse::Leased { user, own, .. }, _) => {
            (user.clone(), if *own { canvas.theme.accent } else { canvas.theme.text })
        }
        (GpuUse::Free, _) => ("free".to_owned(), canvas.theme.good),
        (GpuUse::Divided(0), _) => ("MIG".to_owned(), canvas.theme.warn),
        (GpuUse::Divided(_), _) => ("MIG".to_owned(), canvas.theme.dim),
        // the sign of the Users screen
        (_, Some(user)) => (user.value().map_or("?", String::as_str).to_owned(), canvas.theme.text),
        (GpuUse::Unseen(_), _) => ("unseen".to_owned(), canvas.theme.warn),
        _ => ("–".to_owned(), canvas.theme.dim),
    }
}

pub(in crate::tui::screens) fn command_words(
    canvas: &Canvas<'_>,
    sample: &GpuSample,
    holder: &GpuUse,
) -> (String, Style) {
    let processes = sample.processes.value().map_or(&[][..], Vec::as_slice);
    if let GpuUse::Leased { run, own, .. } = holder {
        let run = run.clone().unwrap_or_else(|| "leased".to_owned());
        return (run, if *own { canvas.theme.accent } else { canvas.theme.dim });
    }
    match holder {
        // how much is in the columns beside it; Detail has the whole sentence
        GpuUse::Unseen(_) => return ("memory held by no visible process".to_owned(), canvas.theme.warn),
        GpuUse::Unknown(why) => return (why.clone(), canvas.theme.warn),
        GpuUse::Divided(0) => return ("no slices".to_owned(), canvas.theme.warn),
        GpuUse::Divided(slices) => {
            return (format!("{slices} {}", plural(*slices as usize, "slice")), canvas.theme.dim);
        }
        _ => {}
    }
    let command =
        processes.first().map(|process| reading(&process.command, Clone::clone)).unwrap_or_default();
    let more = if processes.len() > 1 { format!(" +{}", processes.len() - 1) } else { String::new() };
    let container = processes.first().and_then(|process| process.container.as_ref().map(|id| (process, id)));
    let container = container.map(|(process, id)| match &process.run {
        Some(_) => " (container)".to_owned(),
        None => format!(" (container {id})"),
    });
    let more = format!("{}{more}", container.unwrap_or_default());
    let style = if matches!(holder, GpuUse::HeldIdle(_)) { canvas.theme.warn } else { canvas.theme.dim };
    (format!("{}{more}", short_command(&command)), style)
}

/// A command without the folders of its program and of the script that an interpreter is given.
fn short_command(command: &str) -> String {
    let file = |word: &str| match word.rsplit_once('/') {
        Some((folder, file)) if folder.starts_with('/') || folder.is_empty() => file.to_owned(),
        _ => word.to_owned(),
    };
    let words = command.split(' ').enumerate();
    words.map(|(at, word)| if at < 2 { file(word) } else { word.to_owned() }).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_lose_their_folders() {
        assert_eq!(short_command("/usr/bin/python3 /home/li/train.py /data"), "python3 train.py /data");
        assert_eq!(short_command("python -m pkg/mod"), "python -m pkg/mod");
        assert_eq!(short_command(""), "");
    }
}
