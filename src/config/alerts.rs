//! `[alerts]`: when something is told, and the command that is executed then.

use toml::{Spanned, Value};

use super::error::Problem;
use super::file::{AlertsTable, Text};
use super::validate::known;
use crate::domain::alerts::{AlertRules, HeatRule};
use crate::launch::names;

/// What stands in a command for a property of the alert.
pub const PLACEHOLDERS: [&str; 8] = ["kind", "state", "place", "host", "gpu", "run", "rank", "words"];
/// Temperatures of GPUs, degrees Celsius.
const CELSIUS: std::ops::RangeInclusive<i64> = 30..=120;

/// What `[alerts]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlertsConfig {
    /// When something is told.
    pub rules: AlertRules,
    /// Program and arguments that are executed for each alert; without it none is.
    pub command: Option<Vec<String>>,
}

/// What the table asks for; what is wrong with it goes to `fault`.
pub(super) fn of(table: &AlertsTable, fault: &mut dyn FnMut(Problem)) -> AlertsConfig {
    let mut rules = AlertRules::default();
    let durations = [
        ("slowdown", &table.slowdown, &mut rules.slowdown_us),
        ("host_down", &table.host_down, &mut rules.host_down_us),
        ("gpu_lost", &table.gpu_lost, &mut rules.gpu_lost_us),
        ("hang", &table.hang, &mut rules.hang_us),
        ("held_idle", &table.held_idle, &mut rules.held_idle_us),
    ];
    for (key, text, rule) in durations {
        match text.as_ref().map(|text| duration(key, text)) {
            Some(Ok(us)) => *rule = us,
            Some(Err(problem)) => fault(problem),
            None => {}
        }
    }
    let switches = [
        ("ecc", &table.ecc, &mut rules.ecc),
        ("xid", &table.xid, &mut rules.xid),
        ("disk_full", &table.disk_full, &mut rules.disk_full),
        ("foreign_process", &table.foreign_process, &mut rules.foreign_process),
        ("straggler", &table.straggler, &mut rules.straggler),
        ("rank_failed", &table.rank_failed, &mut rules.rank_failed),
        ("live_run", &table.live_run, &mut rules.live_run),
    ];
    for (key, text, rule) in switches {
        match text.as_ref().map(|text| switch(key, text)) {
            Some(Ok(on)) => *rule = on,
            Some(Err(problem)) => fault(problem),
            None => {}
        }
    }
    match table.temperature.as_ref().map(temperature) {
        Some(Ok(heat)) => rules.temperature = heat,
        Some(Err(problem)) => fault(problem),
        None => {}
    }
    let command = table.command.as_ref().map(command);
    let command = command.and_then(|command| command.map_err(fault).ok());
    AlertsConfig { rules, command }
}

/// Microseconds; `None` for `off`.
fn duration(key: &str, text: &Text) -> Result<Option<i64>, Problem> {
    let ms = names::max_silence(text.get_ref()).ok_or_else(|| {
        let title = format!("{key} `{}` is no length of time of 1s or more", text.get_ref());
        let remedy = "write for how long it is so before it is told, such as \"60s\" or \"30m\", or \"off\"";
        Problem::new(text.span(), title, remedy)
    })?;
    Ok((ms > 0).then(|| i64::try_from(ms).unwrap_or(i64::MAX / 1000).saturating_mul(1000)))
}

fn switch(key: &str, text: &Text) -> Result<bool, Problem> {
    match text.get_ref().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        other => {
            let title = format!("{key} `{other}` is neither on nor off");
            Err(Problem::new(text.span(), title, "write \"off\" to switch these alerts off"))
        }
    }
}

fn temperature(value: &Spanned<Value>) -> Result<HeatRule, Problem> {
    match value.get_ref() {
        Value::Integer(celsius) if CELSIUS.contains(celsius) => {
            Ok(HeatRule::Celsius(u32::try_from(*celsius).unwrap_or(u32::MAX)))
        }
        Value::String(text) if text == "off" => Ok(HeatRule::Off),
        other => {
            let title = format!("temperature = {other} is no temperature of a GPU");
            let remedy =
                "write degrees Celsius from 30 to 120, or \"off\"; without it, the GPU's own limit counts";
            Err(Problem::new(value.span(), title, remedy))
        }
    }
}

fn command(words: &Spanned<Vec<Text>>) -> Result<Vec<String>, Problem> {
    let all = words.get_ref();
    if all.first().is_none_or(|program| program.get_ref().is_empty()) {
        let remedy = "write the program and its arguments, such as [\"notify-send\", \"hvtui\", \"{words}\"]";
        return Err(Problem::new(words.span(), "the alerts' command is empty", remedy));
    }
    for word in all {
        if word.get_ref().contains('\0') {
            let title = "the alerts' command holds a NUL character";
            return Err(Problem::new(word.span(), title, "leave it out"));
        }
        if let Some(name) = unknown_placeholder(word.get_ref()) {
            let title = format!("`{{{name}}}` stands for nothing of an alert");
            return Err(Problem::new(word.span(), title, known("names", name, &PLACEHOLDERS)));
        }
    }
    Ok(all.iter().map(|word| word.get_ref().clone()).collect())
}

/// The first `{name}` in a word that is none of an alert's. Braces around anything else are the command's own.
fn unknown_placeholder(word: &str) -> Option<&str> {
    word.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).find(|name| {
        let is_name =
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        is_name && !PLACEHOLDERS.contains(name)
    })
}
