//! What can stand at a place of a filter's text: fields, states, and the values that are known.

use std::collections::BTreeSet;
use std::ops::Range;

use super::lex::quoted_if_needed;
use super::{Field, Kind, Word};
use crate::domain::gpu::health;
use crate::domain::world::World;

/// Values that occur, for completion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompletionValues {
    /// Hosts' names, in their order.
    pub hosts: Vec<String>,
    /// Labels of hosts.
    pub labels: BTreeSet<String>,
    /// GPU models.
    pub models: BTreeSet<String>,
    /// Login names.
    pub users: BTreeSet<String>,
    /// Short ids and names of runs.
    pub runs: BTreeSet<String>,
    /// What is wrong with GPUs.
    pub faults: BTreeSet<String>,
}

impl CompletionValues {
    /// What a world holds now.
    pub fn of(world: &World) -> Self {
        let mut known = Self::default();
        for (id, state) in &world.hosts {
            known.hosts.push(id.to_string());
            let infos = state.info.as_ref().map_or(&[][..], |info| &info.gpus);
            known.models.extend(infos.iter().map(|gpu| gpu.model().to_owned()));
            let samples = state.latest().map_or(&[][..], |(_, sample)| &sample.gpus);
            for (info, sample) in infos.iter().zip(samples) {
                let processes = sample.processes.value().into_iter().flatten();
                known.users.extend(processes.filter_map(|process| process.user.value().cloned()));
                let happened = state.gpu_events.newest().map(|seen| seen.event.what.short());
                known.faults.extend(happened);
                known.faults.extend(health::faults(info, sample).into_iter().map(|fault| fault.words));
            }
            for lease in state.leases.iter().flat_map(|leases| &leases.held) {
                known.users.extend(lease.user.clone());
                known.runs.extend(lease.run.as_ref().map(|run| run.short().to_owned()));
                known.runs.extend(lease.name.clone());
            }
        }
        for (id, run) in world.runs.iter().filter(|(_, run)| run.is_live()) {
            known.runs.extend([id.short().to_owned(), run.spec.name.clone()]);
        }
        known
    }

    fn of_field(&self, field: Field) -> Vec<&str> {
        fn set(of: &BTreeSet<String>) -> Vec<&str> {
            of.iter().map(String::as_str).collect()
        }
        match field {
            Field::Host => self.hosts.iter().map(String::as_str).collect(),
            Field::Label => set(&self.labels),
            Field::Model => set(&self.models),
            Field::User => std::iter::once("free").chain(set(&self.users)).collect(),
            Field::Run => set(&self.runs),
            Field::Health => std::iter::once("ok").chain(set(&self.faults)).collect(),
            _ => Vec::new(),
        }
    }
}

/// What may stand in the place of some bytes of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The bytes.
    pub at: Range<usize>,
    /// What may stand there, the likeliest first; never empty.
    pub options: Vec<String>,
}

/// What may stand at byte `cursor` of `text`; `None` where nothing is known that goes on as the text does.
pub fn complete(text: &str, cursor: usize, known: &CompletionValues) -> Option<Completion> {
    let before = text.get(..cursor)?;
    let (start, typed) = last_word(before);
    let options: Vec<String> = match field_before(&before[..start]) {
        Some(field) if field.kind() == Kind::Text => {
            let values = known.of_field(field).into_iter().filter(|value| goes_on(value, typed));
            values.map(|value| quoted_if_needed(value, false).into_owned()).collect()
        }
        Some(_) => Vec::new(),
        None => {
            let words = Word::ALL.map(Word::name);
            let names = Field::ALL.map(Field::name).into_iter().chain(words);
            names.filter(|name| goes_on(name, typed)).map(str::to_owned).collect()
        }
    };
    (!options.is_empty()).then_some(Completion { at: start..cursor, options })
}

fn goes_on(value: &str, typed: &str) -> bool {
    value.get(..typed.len()).is_some_and(|start| start.eq_ignore_ascii_case(typed))
}

/// The word or open quote at the end of a text: where it begins, and what is typed of it.
fn last_word(text: &str) -> (usize, &str) {
    if text.matches('"').count() % 2 == 1
        && let Some(quote) = text.rfind('"')
    {
        return (quote, &text[quote + 1..]);
    }
    let start = text.rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '+')));
    let start = start.map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    (start, &text[start..])
}

/// The field whose value begins at the end of a text.
fn field_before(text: &str) -> Option<Field> {
    let text = text.trim_end();
    let name = text.trim_end_matches(['=', '~', '<', '>']);
    if name.len() == text.len() {
        return None;
    }
    let name = name.trim_end_matches('!').trim_end();
    let (_, name) = last_word(name);
    Field::named(name)
}
