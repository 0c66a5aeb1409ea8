//! How long the texts and lists of an agent's messages may be.

use crate::domain::{plausible, preflight};
use crate::wire::message::FromAgent;

/// How long a note of a host about a run and its kind may be, in characters.
const NOTE_TEXT: usize = 2000;
const NOTE_WHAT: usize = 40;
/// Characters of a version.
const VERSION: usize = 64;

/// Takes out of a message what can't be.
pub(super) fn bound(message: &mut FromAgent) {
    match message {
        FromAgent::Hello(hello) => cut(&mut hello.version, VERSION),
        FromAgent::Info(info) => plausible::bound_info(info),
        FromAgent::Sample(sampled) => plausible::bound_sample(&mut sampled.sample),
        FromAgent::Leases(leases) => plausible::bound_leases(leases),
        FromAgent::GpuEvents(told) => {
            told.events.iter_mut().for_each(|event| plausible::bound_uuid(&mut event.uuid));
        }
        FromAgent::Noted(noted) => {
            cut(&mut noted.note.text, NOTE_TEXT);
            cut(&mut noted.note.what, NOTE_WHAT);
        }
        FromAgent::Forgotten(told) => told.why.iter_mut().for_each(plausible::bound_text),
        FromAgent::Preflight(told) => preflight::bound(&mut told.findings),
        FromAgent::Signal(told) => plausible::bound_signal(&mut told.answer),
        _ => {}
    }
}

fn cut(text: &mut String, most: usize) {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
    }
}
