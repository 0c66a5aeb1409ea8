//! Lists of hosts as `-H` takes them. Must not know which launcher's list it is.

use crate::launch::words::{Caret, Line};

use super::draft::Draft;
use super::options::Value;
use super::pasted::HostSlots;

/// Reads `a:2,user@b:2,[::1]:1`. A host that comes again adds its slots; without a number it adds one, as
/// Open MPI counts `a,a`.
pub(super) fn list(line: &Line, value: &Value<'_>, option: &str) -> Result<Vec<HostSlots>, Caret> {
    let text = value.text();
    let example = || {
        let words = text.split([',', ' ', '\t']).filter(|entry| !entry.is_empty());
        format!("{option} {}", words.collect::<Vec<_>>().join(","))
    };
    let mut hosts: Vec<HostSlots> = Vec::new();
    let mut from = 0;
    for entry in text.split(',') {
        let span = value.part(from..from + entry.len());
        from += entry.len() + 1;
        if entry.is_empty() || entry.contains(char::is_whitespace) {
            let span = if entry.is_empty() { value.span() } else { span };
            let text = format!("`{option}`: join the hosts with commas and no space: {}", example());
            return Err(line.caret(span, text));
        }
        let host = host(entry).map_err(|fault| {
            let text = format!("`{option}`: `{entry}` {fault}; write host:slots, several joined by commas");
            line.caret(span, text)
        })?;
        match hosts.iter_mut().find(|had| had.host == host.host && had.user == host.user) {
            Some(had) => {
                had.slots = Some(had.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1)));
            }
            None => hosts.push(host),
        }
    }
    Ok(hosts)
}

fn host(entry: &str) -> Result<HostSlots, &'static str> {
    let (user, rest) = match entry.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, entry),
    };
    if user.is_some_and(|user| user.is_empty() || user.contains(['@', ':'])) {
        return Err("has a user that is no name");
    }
    let (host, slots) = split_port(rest).ok_or("is an IPv6 address: write it in brackets")?;
    let slots = match slots {
        Some(slots) => Some(slots.parse::<u32>().map_err(|_| "has slots that are no number")?),
        None => None,
    };
    if slots == Some(0) {
        return Err("has 0 slots");
    }
    let valid = |c: char| c.is_alphanumeric() || ".-_:%".contains(c);
    if host.is_empty() || host.starts_with('-') || !host.chars().all(valid) {
        return Err("has no valid host name");
    }
    Ok(HostSlots { host: host.to_owned(), user: user.map(str::to_owned), slots })
}

/// `host`, `host:n`, `[v6]` and `[v6]:n` into host and number; `None` for an IPv6 address without brackets.
pub(in crate::launch) fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(number) => Some((host, Some(number))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        Some((_, number)) if number.contains(':') => None,
        Some((host, number)) => Some((host, Some(number))),
        None => Some((text, None)),
    }
}

/// Refuses `-H a:1 b:1 python …`, where the second host is taken for the program.
pub(super) fn check_spaces(draft: &Draft<'_>, command: usize) -> Result<(), Caret> {
    let words = &draft.line.words;
    let (Some(hosts), Some(first)) = (&draft.hosts_at, words.get(command)) else { return Ok(()) };
    let Some(before) = command.checked_sub(1).and_then(|at| words.get(at)) else { return Ok(()) };
    let stray: Vec<_> = words[command..].iter().take_while(|word| is_entry(&word.text)).collect();
    if before.span.end != hosts.end || stray.is_empty() {
        return Ok(());
    }
    let list = draft.pasted.hosts.iter().map(|host| match host.slots {
        Some(slots) => format!("{}:{slots}", host.host),
        None => host.host.clone(),
    });
    let all: Vec<String> =
        list.chain(stray.iter().map(|word| word.text.trim_matches(',').to_owned())).collect();
    let text = format!("`-H` takes one list: join the hosts with commas and no space: -H {}", all.join(","));
    let end = stray.last().map_or(first.span.end, |word| word.span.end);
    Err(draft.line.caret(first.span.start..end, text))
}

/// Whether a word can hardly be anything but `host:slots`.
fn is_entry(word: &str) -> bool {
    let word = word.trim_matches(',');
    word.split(',').all(|entry| {
        entry.rsplit_once(':').is_some_and(|(host, slots)| {
            !host.is_empty()
                && !host.contains('/')
                && !slots.is_empty()
                && slots.chars().all(|c| c.is_ascii_digit())
        })
    })
}
