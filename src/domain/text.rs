//! The one door through which text from outside reaches a terminal.

use std::borrow::Cow;
use std::io;

/// `what` with the host or place before it, once: many reasons begin with it already.
pub fn about(place: impl std::fmt::Display, what: &str) -> String {
    format!("{place}: {}", plain(&place, what))
}

/// `what` without the host or place that it begins with.
pub fn plain(place: impl std::fmt::Display, what: &str) -> &str {
    let named = format!("{place}: ");
    let mut what = what;
    while let Some(rest) = what.strip_prefix(&named) {
        what = rest;
    }
    what
}

/// A host's reason for a list with a line a host: that its key has changed is said with the place of the old one alone.
pub fn in_list(reason: &str) -> Cow<'_, str> {
    let Some((_, found)) = reason.split_once(" HAS CHANGED: ").filter(|(of, _)| of.contains("HOST KEY OF "))
    else {
        return Cow::Borrowed(reason);
    };
    let known = found.split(';').next().unwrap_or(found);
    let places = known.split('(').skip(1).filter_map(|part| part.split(')').next()?.rsplit('/').next());
    let places = places.collect::<Vec<_>>().join(", ");
    Cow::Owned(format!("host key changed ({places}); hvtui hosts check says more"))
}

/// The system's words for an error as a lowercase fragment: `no such file or directory`.
pub fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// Makes `text` harmless for a terminal: control characters, escape sequences' lead-ins, bidirectional
/// overrides and invisible characters become visible marks; a tab becomes a space; a carriage return
/// keeps what stands behind the last one, as a progress bar would show.
///
/// C0 controls show as Unicode control pictures (`␛` for ESC), everything else as `·`.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    let text = match text.rfind('\r') {
        Some(at) => &text[at + 1..],
        None => text,
    };
    if !text.chars().any(needs_mark) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(mark).collect())
}

fn needs_mark(c: char) -> bool {
    mark(c) != c
}

fn mark(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('·'),
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => '·',
        c => c,
    }
}

/// The one of `known` that a person who typed `typed` most likely meant.
pub fn closest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = typed.chars().count().div_ceil(3).max(1);
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&typed.to_lowercase(), &word.to_lowercase()), word))
        .filter(|(distance, _)| *distance <= near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// So many hosts are listed where one is unknown; of more only the nearest names.
const LISTED: usize = 8;
const NEAREST: usize = 3;

/// What may be meant by `typed`, which is none of the hosts file's hosts, and which these are: `did you mean gpu-04? the
/// hosts file names 64 hosts, nearest: gpu-04, gpu-14, gpu-24`.
pub fn hosts_hint(typed: &str, known: &[&str]) -> String {
    let list = if known.len() > LISTED {
        let mut nearest = known.to_vec();
        nearest.sort_by_key(|name| strsim::damerau_levenshtein(&typed.to_lowercase(), &name.to_lowercase()));
        nearest.truncate(NEAREST);
        format!("the hosts file names {} hosts, nearest: {}", known.len(), nearest.join(", "))
    } else {
        format!("the hosts file names {}", known.join(", "))
    };
    match closest(typed, known.iter().copied()) {
        Some(near) => format!("did you mean {near}? {list}"),
        None => list,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unknown_host_is_told_the_known_ones_and_of_many_the_nearest() {
        assert_eq!(hosts_hint("gpu-c", &["gpu-a", "x"]), "did you mean gpu-a? the hosts file names gpu-a, x");
        assert_eq!(hosts_hint("zebra", &["gpu-a"]), "the hosts file names gpu-a");
        let many: Vec<String> = (1..=64).map(|number| format!("gpu-{number:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let said = hosts_hint("gpu-065", &many);
        assert_eq!(
            said,
            "did you mean gpu-05? the hosts file names 64 hosts, nearest: gpu-05, gpu-06, gpu-01"
        );
        let said = hosts_hint("a-name-of-another-cluster", &many);
        assert!(said.starts_with("the hosts file names 64 hosts, nearest: "), "{said}");
        assert!(said.len() < 80, "{said}");
    }

    #[test]
    fn system_errors_read_as_fragments() {
        assert_eq!(os_text(&io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(os_text(&io::Error::other("Odd")), "odd");
    }

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(sanitize("loss 0.5"), "loss 0.5");
        assert_eq!(in_list("n1: no route to host"), "n1: no route to host");
        let changed = "n1: HOST KEY OF n1:22 HAS CHANGED: it shows k SHA256:a, known is k SHA256:b (/home/li/.ssh/known_hosts:2) \
                       and r SHA256:c (kh:7); x (y)";
        assert_eq!(in_list(changed), "host key changed (known_hosts:2, kh:7); hvtui hosts check says more");
        assert_eq!(sanitize("\u{1b}]0;owned\u{7}"), "␛]0;owned␇");
        assert_eq!(sanitize("10%\r50%\r100%\n"), "100%");
        assert_eq!(sanitize("a\tb\u{202e}c\u{9b}31m"), "a b·c·31m");
    }

    proptest! {
        #[test]
        fn nothing_that_drives_a_terminal_passes(text in ".*") {
            let clean = sanitize(&text);
            prop_assert!(!clean.chars().any(|c| c.is_control() || needs_mark(c)));
        }
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        assert_eq!(closest("prot", ["name", "port", "user"]), Some("port"));
        assert_eq!(closest("gpua", ["gpu-a", "gpu-b"]), Some("gpu-a"));
        assert_eq!(closest("zebra", ["gpu-a", "gpu-b"]), None);
    }
}
