//! The arguments for ssh that a line hands to mpirun: `plm_rsh_args "-p 9435"`. Must not know other options.

use crate::launch::words::{Caret, split};

use super::draft::Draft;
use super::options::{Given, Value};

/// Takes port and key out of the arguments; what only makes ssh quiet has no effect, anything else is not
/// understood.
pub(super) fn read(draft: &mut Draft<'_>, given: &Given<'_>, value: &Value<'_>) -> Result<(), Caret> {
    let words: Vec<String> = split(value.text())
        .map_err(|error| draft.line.caret(value.span(), error.text))?
        .into_iter()
        .map(|word| word.text)
        .collect();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (option, glued) = match word.char_indices().nth(2) {
            Some((at, _)) if word.starts_with('-') && !word.starts_with("--") => word.split_at(at),
            _ => (word.as_str(), ""),
        };
        let mut argument = || {
            let next = if glued.is_empty() { words.next().map(String::as_str) } else { Some(glued) };
            next.map(str::to_owned).ok_or_else(|| {
                let text = format!("`{option}` of `plm_rsh_args` needs a value");
                draft.line.caret(value.span(), text)
            })
        };
        match option {
            "-p" => {
                let text = argument()?;
                port(draft, value, &text)?;
            }
            "-i" => draft.pasted.identity = Some(argument()?),
            "-o" => {
                let text = argument()?;
                setting(draft, value, &text)?;
            }
            "-q" | "-x" | "-T" | "-4" | "-n" if glued.is_empty() => {
                draft.remark(format!(
                    "`{option}` of `plm_rsh_args` has no effect: hvtui makes the connections."
                ));
            }
            _ => draft.pasted.not_understood.push(format!("{option}{glued} of plm_rsh_args")),
        }
    }
    draft.remark(format!(
        "Open MPI 5 ignores `{}`: the parameter is called `plm_ssh_args` there; hvtui reads ssh's arguments from it.",
        given.shown()
    ));
    Ok(())
}

fn port(draft: &mut Draft<'_>, value: &Value<'_>, text: &str) -> Result<(), Caret> {
    let port = text.parse().ok().filter(|port| *port > 0);
    let port: u16 = port.ok_or_else(|| {
        draft.line.caret(value.span(), format!("`plm_rsh_args`: `{text}` is not a port from 1 to 65535"))
    })?;
    draft.pasted.ssh_port = Some(port);
    Ok(())
}

/// `-o KEY=VALUE`.
fn setting(draft: &mut Draft<'_>, value: &Value<'_>, text: &str) -> Result<(), Caret> {
    let (key, set) = text.split_once(['=', ' ']).unwrap_or((text, ""));
    match key.to_ascii_lowercase().as_str() {
        "port" => return port(draft, value, set),
        "identityfile" => draft.pasted.identity = Some(set.to_owned()),
        "stricthostkeychecking" | "userknownhostsfile" => draft.remark(format!(
            "`-o {text}` would accept any host key; hvtui checks each host's key, `hvtui hosts trust` accepts one."
        )),
        "connecttimeout" | "connectionattempts" | "batchmode" | "loglevel" | "passwordauthentication"
        | "serveraliveinterval" | "serveralivecountmax" | "compression" => {
            draft.remark(format!("`-o {text}` of `plm_rsh_args` has no effect: hvtui makes the connections."));
        }
        _ => draft.pasted.not_understood.push(format!("-o {text} of plm_rsh_args")),
    }
    Ok(())
}
