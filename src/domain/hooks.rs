//! What hvtui's hooks in a rank's Python tell of themselves, and by whom the steps of a rank are told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::text::sanitize;

/// By whom a rank's steps are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepsBy {
    /// By the program itself.
    #[default]
    Program,
    /// By hvtui's hooks in its Python.
    Hooks,
    /// Read from what it prints.
    Log,
}

/// What the hooks tell of the interpreter that they are in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookFacts {
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The signal upon which it writes its stacks down; it has none where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack_signal: Option<i32>,
    /// Versions by name: `python`, `torch`, `keras`, `horovod`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// What the hooks look for and these versions do not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Why the hooks are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
}

/// How many names of versions are kept.
const VERSIONS: usize = 32;

/// Libraries that train, in the order in which they are named.
const LIBRARIES: [&str; 5] = ["horovod", "keras", "torch", "tensorflow", "jax"];

impl HookFacts {
    /// Takes in what a later line tells.
    pub fn add(&mut self, later: &Self) {
        self.pid = later.pid.or(self.pid);
        self.stack_signal = later.stack_signal.or(self.stack_signal);
        for (name, version) in &later.versions {
            if self.versions.len() < VERSIONS || self.versions.contains_key(name) {
                self.versions.insert(name.clone(), version.clone());
            }
        }
        if !later.missing.is_empty() {
            self.missing.clone_from(&later.missing);
        }
        self.off = later.off.clone().or(self.off.take());
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The libraries with their versions: `torch 2.9.0`, `horovod 0.28.1, torch 1.13.1`.
    pub fn libraries(&self) -> String {
        let known = LIBRARIES.iter().filter_map(|name| Some((name, self.versions.get(*name)?)));
        known
            .map(|(name, version)| sanitize(&format!("{name} {version}")).into_owned())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Why there are no steps: `torch not imported`.
    pub fn why_no_steps(&self) -> String {
        if let Some(why) = &self.off {
            return format!("hooks off: {}", sanitize(why));
        }
        if self.versions.is_empty() {
            return "Python not seen".to_owned();
        }
        let libraries = self.libraries();
        if libraries.is_empty() {
            let python = self.versions.get("python").map_or("", String::as_str);
            return format!("torch not imported (Python {})", sanitize(python));
        }
        format!("no optimizer step ({libraries})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> HookFacts {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn it_is_said_why_there_are_no_steps() {
        let mut known = HookFacts::default();
        assert_eq!(known.why_no_steps(), "Python not seen");
        known.add(&facts(r#"{"pid":7,"versions":{"python":"3.11.2"}}"#));
        assert_eq!(known.why_no_steps(), "torch not imported (Python 3.11.2)");
        known.add(&facts(
            r#"{"pid":7,"versions":{"torch":"2.9.0"},"missing":["Optimizer._hook_for_profile"]}"#,
        ));
        assert_eq!(known.why_no_steps(), "no optimizer step (torch 2.9.0)");
        known.add(&facts(r#"{"off":"ValueError in the optimizer hook"}"#));
        assert_eq!(known.why_no_steps(), "hooks off: ValueError in the optimizer hook");
        known.add(&facts(r#"{"versions":{"horovod":"0.28.1"}}"#));
        assert_eq!(known.libraries(), "horovod 0.28.1, torch 2.9.0");
        assert_eq!((known.pid, known.missing.len()), (Some(7), 1));
    }
}
