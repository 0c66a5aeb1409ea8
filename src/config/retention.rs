//! `[runs]`: how long recordings are kept, and how large one may be.

use std::time::Duration;

use toml::{Spanned, Value};

use super::error::Problem;
use super::file::{RunsTable, Text};
use crate::domain::retention::Retention;
use crate::domain::units::{parse_age, parse_bytes};

/// What the table asks for; what is wrong with it goes to `fault`.
pub(super) fn of(table: &RunsTable, fault: &mut dyn FnMut(Problem)) -> Retention {
    let older_than = table.older_than.as_ref().map(older_than);
    let keep = table.keep.as_ref().map(keep);
    let max_size = table.max_size.as_ref().map(max_size);
    Retention {
        older_than: older_than.and_then(|age| age.map_err(&mut *fault).ok()),
        keep: keep.and_then(|count| count.map_err(&mut *fault).ok()),
        max_size: max_size.and_then(|size| size.map_err(&mut *fault).ok()),
    }
}

/// How much one recording may take, where the table says so.
pub(super) fn recording(table: &RunsTable, fault: &mut dyn FnMut(Problem)) -> Option<u64> {
    let text = table.max_recording.as_ref()?;
    size("max_recording", text, "write how much one recording may take, such as \"8G\"").map_err(fault).ok()
}

fn older_than(text: &Text) -> Result<Duration, Problem> {
    parse_age(text.get_ref()).ok_or_else(|| {
        let title = format!("older_than `{}` is not a length of time", text.get_ref());
        Problem::new(text.span(), title, "write after how long `hvtui runs prune` deletes, such as \"30d\"")
    })
}

fn keep(value: &Spanned<Value>) -> Result<u64, Problem> {
    let count = value.get_ref().as_integer().and_then(|count| u64::try_from(count).ok());
    count.ok_or_else(|| {
        let title = format!("keep = {} is not a number of runs", value.get_ref());
        Problem::new(value.span(), title, "write how many of the newest runs stay, such as 50")
    })
}

fn max_size(text: &Text) -> Result<u64, Problem> {
    size("max_size", text, "write how much all recordings may take, such as \"5G\"")
}

fn size(name: &str, text: &Text, help: &'static str) -> Result<u64, Problem> {
    let title = || format!("{name} `{}` is not a size", text.get_ref());
    parse_bytes(text.get_ref()).ok_or_else(|| Problem::new(text.span(), title(), help))
}
