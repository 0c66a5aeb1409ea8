//! The options that several launchers have, each a function that a launcher's table names. Must not know any
//! single launcher.

use crate::launch::words::Caret;

use super::draft::{Draft, add};
use super::hosts as lists;
use super::options::Given;
use super::pasted::PerNode;

/// Checks a value and keeps it once in a field of the result.
macro_rules! keep_once {
    ($draft:ident, $given:ident, $field:ident, $value:expr) => {{
        let value = $value;
        $draft.once($draft.pasted.$field.as_ref(), &value, $given)?;
        $draft.pasted.$field = Some(value);
        Ok(())
    }};
}

pub(super) fn np(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    if given.text() == "0" {
        let text = format!("`{} 0` starts nothing: give a number of ranks from 1 on", given.typed);
        return Err(draft.line.caret(given.span.clone(), text));
    }
    draft.np_at = Some(given.span.clone());
    keep_once!(draft, given, np, draft.number(given, 1, "a number of ranks from 1 on")?)
}

pub(super) fn hosts(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    let Some(value) = given.values.first() else { return Ok(()) };
    let list = lists::list(draft.line, value, &given.typed)?;
    if let Some(before) = &draft.hosts_at {
        let span = before.start..given.span.end;
        let text = format!("`{}` is given twice: join the hosts with commas in one list", given.typed);
        return Err(draft.line.caret(span, text));
    }
    draft.hosts_at = Some(given.span.clone());
    draft.pasted.hosts = list;
    Ok(())
}

pub(super) fn hostfile(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    draft.hostfile_at = Some(given.span.clone());
    keep_once!(draft, given, hostfile, given.text().to_owned())
}

pub(super) fn per_node(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, per_node, PerNode::Ranks(draft.number(given, 1, "a number of ranks from 1 on")?))
}

pub(super) fn nodes(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, nodes, draft.number(given, 1, "a number of hosts from 1 on")?)
}

pub(super) fn node_rank(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, node_rank, draft.number(given, 0, "a host's number from 0 on")?)
}

pub(super) fn master_addr(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, master_addr, given.text().to_owned())
}

pub(super) fn master_port(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, master_port, draft.port(given)?)
}

pub(super) fn max_restarts(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, max_restarts, draft.number(given, 0, "a number of restarts")?)
}

pub(super) fn ssh_port(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, ssh_port, draft.port(given)?)
}

pub(super) fn identity(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, identity, given.text().to_owned())
}

pub(super) fn start_timeout(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, start_timeout_s, draft.number(given, 1, "a number of seconds from 1 on")?)
}

pub(super) fn output_filename(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, output_filename, given.text().to_owned())
}

pub(super) fn timeline(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, timeline, given.text().to_owned())
}

pub(super) fn bind_to(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, bind_to, given.text().to_owned())
}

pub(super) fn map_by(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, map_by, given.text().to_owned())
}

pub(super) fn workdir(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, workdir, given.text().to_owned())
}

pub(super) fn prefix(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    keep_once!(draft, given, prefix, given.text().to_owned())
}

pub(super) fn interfaces(draft: &mut Draft<'_>, given: &Given<'_>) -> Result<(), Caret> {
    for name in given.text().split(',') {
        if name.is_empty() || name.contains(char::is_whitespace) {
            let text = format!("`{}` takes names joined by commas, without spaces", given.typed);
            return Err(draft.line.caret(given.place(), text));
        }
        add(&mut draft.pasted.interfaces, name);
    }
    Ok(())
}

pub(super) fn verbose(draft: &mut Draft<'_>, _: &Given<'_>) {
    draft.pasted.verbose = true;
}

pub(super) fn ask(draft: &mut Draft<'_>, _: &Given<'_>) {
    draft.query = true;
}
