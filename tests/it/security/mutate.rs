//! Puts hostile values into every field of an event, by its JSON: a new field is covered the day it is added.

use hvtui::domain::event::Envelope;
use serde_json::Value;

/// The event with every text that may be any text followed by `tail`. Names of variants and ids, which would make it no
/// event any more, stay as they are.
pub(crate) fn texts(envelope: &Envelope, tail: &str) -> Envelope {
    every(envelope, &|leaf| leaf.as_str().map(|text| Value::from(format!("{text}{tail}"))))
}

/// The event with every number that may be `number` set to it.
pub(crate) fn numbers(envelope: &Envelope, number: &Value) -> Envelope {
    let mut hostile = every(envelope, &|leaf| leaf.is_number().then(|| number.clone()));
    hostile.seq = envelope.seq;
    hostile
}

fn every(envelope: &Envelope, change: &dyn Fn(&Value) -> Option<Value>) -> Envelope {
    let mut value = serde_json::to_value(envelope).unwrap();
    let mut at = Vec::new();
    leaves(&value, &mut String::new(), &mut at);
    for pointer in at {
        let leaf = value.pointer_mut(&pointer).unwrap();
        let Some(other) = change(leaf) else { continue };
        let before = std::mem::replace(leaf, other);
        if serde_json::from_value::<Envelope>(value.clone()).is_err() {
            *value.pointer_mut(&pointer).unwrap() = before;
        }
    }
    serde_json::from_value(value).unwrap()
}

fn leaves(value: &Value, path: &mut String, out: &mut Vec<String>) {
    let length = path.len();
    let mut each = |key: &str, inner: &Value| {
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        leaves(inner, path, out);
        path.truncate(length);
    };
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                each(key, inner);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                each(&index.to_string(), inner);
            }
        }
        Value::String(_) | Value::Number(_) => out.push(path.clone()),
        _ => {}
    }
}
