//! What a launch starts in its containers and does not find there: only what surely keeps every rank from working. Looked for in a
//! container that has the run's own volumes and folder.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::super::Site;
use super::super::import;
use crate::domain::doctor::Verdict;

/// Looks for modules as the script would find them: what lies beside it comes first. A module is not imported: that takes seconds.
const SCRIPT: &str = "import sys
sys.path[:] = [place for place in sys.path if place]
import json
from importlib import util
sys.path.insert(0, sys.argv[1])
def is_absent(name):
    try:
        return util.find_spec(name) is None
    except Exception:
        return False
absent = [name for name in sys.argv[2:] if is_absent(name)]
print('\\nhvtui ' + json.dumps({'python': sys.executable, 'absent': absent[:1]}))";

/// What is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Lack {
    /// The image, as the launch names it.
    pub(super) image: String,
    /// The program that is started, or a module that its script imports.
    pub(super) name: String,
    /// Of which Python, for a module.
    pub(super) python: Option<String>,
}

/// What Python answers.
#[derive(Deserialize)]
struct Told {
    python: String,
    absent: Vec<String>,
}

impl Lack {
    /// Where Python does not tell, or the script may find its modules elsewhere, nothing is said to be absent.
    pub(super) fn look(site: &Site) -> Option<Self> {
        let starts = site.starts.as_ref()?;
        let Some(program) = site.program(&starts.program) else {
            return Some(Self { image: starts.image.clone(), name: starts.program.clone(), python: None });
        };
        // Python is asked in another folder
        let here = std::env::current_dir().ok()?;
        let modules: BTreeSet<&str> = match (&starts.script, &starts.module) {
            (None, None) => starts.imports.iter().map(String::as_str).collect(),
            _ => import::surely(&starts.imports, &import::texts(starts, &here)),
        };
        if modules.is_empty() {
            return None;
        }
        let folder = starts.script.as_deref().and_then(|script| Path::new(script).parent());
        let folder = here.join(folder.unwrap_or(Path::new("")));
        let folder = folder.to_str()?;
        let words: Vec<&str> = ["-c", SCRIPT, folder].into_iter().chain(modules.iter().copied()).collect();
        let said = site.ask(&program, &words).ok()?;
        let line = said.out.lines().rev().find_map(|line| line.strip_prefix("hvtui "))?;
        let told: Told = serde_json::from_str(line).ok()?;
        let name = told.absent.into_iter().next()?;
        Some(Self { image: starts.image.clone(), name, python: Some(told.python) })
    }

    pub(super) fn verdict(&self) -> Verdict {
        let remedy =
            "take an image that has it, or build one (hvtui image build), or bring it by a volume (-v)";
        let Self { image, name, python } = self;
        match python {
            None => Verdict::bad(
                format!("a container of {image} has no {name}"),
                "every rank ends at once: it is started by that name",
                remedy,
            ),
            Some(python) => Verdict::bad(
                format!("a container of {image} has no module {name} for {python}"),
                "the script imports it, and every rank ends at once: what the host has is not in its container",
                remedy,
            ),
        }
    }
}
