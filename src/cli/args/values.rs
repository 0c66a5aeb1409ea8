//! Reads the values of options: numbers, times, names of runs.

use crate::domain::units::parse_duration;

/// A number of ranks, hosts and the like.
pub(super) fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a whole number, such as 2".to_owned())
}

/// Whole seconds from 1 on: a number alone, or a length of time with its unit.
pub(super) fn whole_seconds(text: &str) -> Result<u32, String> {
    let time = parse_duration(text).filter(|time| time.subsec_nanos() == 0);
    let seconds = time.and_then(|time| u32::try_from(time.as_secs()).ok()).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "write whole seconds from 1 on, such as 30, or a time such as 90s or 5m".to_owned())
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = moment(text).ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give 0.1 to 3600 seconds".to_owned())
}

/// A run that is named: an empty name, as a variable that is not set gives it, is none.
pub(super) fn run_name(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the name of the run is empty; `last` is the newest run".to_owned());
    }
    Ok(text.to_owned())
}

/// The name of a new run: `last` would be another one.
pub(super) fn new_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty; without --name it is made from the command".to_owned()),
        "last" => Err("`last` is the newest run, whatever its name: give another one".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn moment(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    seconds.ok_or_else(|| "give a number of seconds from 0 on".to_owned())
}
