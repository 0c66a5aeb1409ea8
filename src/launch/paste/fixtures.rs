//! What the tests of pasted lines have in common.

use super::*;

/// A line that is understood.
pub(super) fn pasted(line: &str) -> Pasted {
    read_text(line).unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("not known: {line}"))
}

pub(super) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

pub(super) fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn host(name: &str, slots: u32) -> HostSlots {
    HostSlots { host: name.to_owned(), user: None, slots: Some(slots) }
}

/// The fault of a line, and the part that the caret stands under.
pub(super) fn fault(line: &str) -> (String, String) {
    match read_text(line) {
        Err(error) => {
            let end = (error.at + error.len).min(line.len());
            (error.text.clone(), line[error.at..end].to_owned())
        }
        Ok(read) => panic!("{line} was read: {read:#?}"),
    }
}

/// The fault of a line that stands in another line.
pub(super) fn fault_text(line: &str) -> String {
    read_text(line)
        .map(|read| format!("{line} was read: {read:#?}"))
        .map_or_else(|error| error.text, |read| panic!("{read}"))
}
