//! Looks into an image: has its checks made by hvtui in a container of it.

mod memory;

use std::ops::ControlFlow;
use std::path::PathBuf;

use self::memory::{Memory, Remembered};
use crate::doctor::Told;
use crate::doctor::inside::{Answers, Ask, lasts, refused};
use crate::domain::doctor::RunInside;
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::image::engine::EngineError;
use crate::supervise::container::look::{LookError, LookInto, look};

/// The hidden command of hvtui that answers.
const COMMAND: &str = "look-inside";
/// The check that tells why no container was had.
const IMAGE: &str = "image";
/// Characters of an image's hash.
const DIGITS: usize = 12;

/// What is asked of an image.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) at: Stamp,
    /// The image, and of a launch what it starts in it.
    pub(super) inside: RunInside,
    pub(super) engine: Option<String>,
    pub(super) gpus: Vec<GpuUuid>,
    pub(super) modules: Vec<String>,
    /// The checks, by their own names.
    pub(super) checks: Vec<String>,
    /// Where answers are kept, of a launch: one that follows does not wait for a container.
    pub(super) known: Option<PathBuf>,
}

/// Has them made; each is answered. Blocks until the container is gone.
pub(super) fn answers(question: &Question) -> Vec<(String, Told)> {
    let Question { at, inside, engine, gpus, modules, checks, known } = question;
    let uuids: Vec<&str> = gpus.iter().map(GpuUuid::as_str).collect();
    let into = LookInto {
        engine: engine.as_deref(),
        options: &inside.container,
        cwd: inside.cwd.as_deref(),
        gpus: &uuids,
        as_ranks: known.is_some(),
    };
    let mut memory = None;
    let told = look(into, |id| {
        // the same content has other ids in other engines
        let hash = if id.layers.is_empty() { &id.id } else { &id.layers };
        let hash = hash.rsplit(':').next().unwrap_or_default().chars().take(DIGITS).collect();
        let (modules, starts) = (modules.clone(), inside.starts.clone());
        let ask = Ask { at: *at, checks: checks.clone(), modules, starts, image: hash };
        let state = known.as_deref();
        memory =
            state.map(|state| Memory::of(state, (&id.id, inside), &ask, (engine.as_deref(), &uuids[..])));
        match memory.as_ref().and_then(Memory::told) {
            Some(Remembered::Answers(answers)) => ControlFlow::Break(Ok(answers)),
            Some(Remembered::Silence) => ControlFlow::Break(Err(LookError::Before)),
            None => ControlFlow::Continue(vec![
                COMMAND.to_owned(),
                serde_json::to_string(&ask).unwrap_or_default(),
            ]),
        }
    });
    let mut told = told.map(|line| serde_json::from_str::<Answers>(&line).unwrap_or_default());
    if let Some(memory) = memory {
        match &told {
            Ok(answers) if checks.iter().all(|check| answers.contains_key(check)) && lasts(answers, gpus) => {
                memory.keep(Some(answers));
            }
            Err(LookError::Late { .. } | LookError::Unanswered(_)) => memory.keep(None),
            _ => {}
        }
    }
    let answer = |check: &String| {
        let answer = match &mut told {
            Ok(answers) => {
                answers.remove(check).unwrap_or_else(|| Err("the container did not tell".to_owned()))
            }
            Err(error) if check == IMAGE && is_red(error, question) => {
                let (why, remedy) = words(error);
                Ok(refused(why, remedy))
            }
            Err(error) => Err(format!("no container of the image was had: {error}")),
        };
        (check.clone(), answer)
    };
    checks.iter().map(answer).collect()
}

/// Whether a run would fail by it, too; else it is this look alone that had no answer. A launch is kept from starting by what is sure.
fn is_red(error: &LookError, question: &Question) -> bool {
    let for_launch = question.known.is_some();
    match error {
        LookError::Engine(EngineError::Silent { .. } | EngineError::Failed { .. })
        | LookError::Late { .. } => !for_launch,
        LookError::Engine(_) => true,
        // arguments that fit a rank's container may not fit this one, which is removed at its end
        LookError::NotStarted { .. } => !for_launch || question.inside.container.arguments.is_empty(),
        LookError::Own(_) | LookError::Volume(_) | LookError::Before | LookError::Unanswered(_) => false,
    }
}

/// Why there was none, and what helps: the texts of the engine's errors say both.
fn words(error: &LookError) -> (String, Option<String>) {
    let text = error.to_string();
    let parts = match error {
        LookError::Engine(EngineError::NoImage { .. } | EngineError::NoGpus { .. } | EngineError::None) => {
            text.split_once(": ")
        }
        // the engine's own words stand between
        LookError::Engine(EngineError::NotAllowed { .. } | EngineError::NotRunning { .. }) => {
            text.rsplit_once(": ")
        }
        _ => None,
    };
    match parts {
        Some((why, remedy)) => (why.to_owned(), Some(remedy.to_owned())),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::container::ContainerOptions;

    #[test]
    fn a_launch_is_kept_by_what_is_sure_alone() {
        let question = |arguments: &[&str], known: Option<&str>| {
            let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
            let container = ContainerOptions { arguments, ..ContainerOptions::of("x:1") };
            Question {
                at: Stamp(1),
                inside: RunInside { container, ..RunInside::default() },
                engine: None,
                gpus: Vec::new(),
                modules: Vec::new(),
                checks: Vec::new(),
                known: known.map(PathBuf::from),
            }
        };
        let docker = || "docker".to_owned();
        let late = || LookError::Late { engine: docker(), patience: Duration::from_secs(4) };
        let silent = || EngineError::Silent { program: docker(), question: "info".to_owned() }.into();
        let refused = || LookError::NotStarted { engine: docker(), words: "no such runtime".to_owned() };
        let none = || EngineError::NoImage { program: docker(), image: "x:1".to_owned() }.into();
        let (doctor, launch) = (question(&[], None), question(&[], Some("/state")));
        for (error, of_doctor, of_launch) in [
            (late(), true, false),
            (silent(), true, false),
            (refused(), true, true),
            (none(), true, true),
            (LookError::Before, false, false),
            (LookError::Volume(String::new()), false, false),
            (LookError::Own(String::new()), false, false),
            (LookError::Unanswered(String::new()), false, false),
        ] {
            assert_eq!((is_red(&error, &doctor), is_red(&error, &launch)), (of_doctor, of_launch), "{error}");
        }
        assert!(!is_red(&refused(), &question(&["--sysctl=a=b"], Some("/state"))));
    }

    #[test]
    fn an_image_that_is_not_there_is_told_with_what_brings_it() {
        let none = EngineError::NoImage { program: "docker".to_owned(), image: "x:1".to_owned() };
        let (why, remedy) = words(&LookError::Engine(none));
        assert_eq!(why, "no image x:1 for docker");
        assert!(remedy.unwrap().starts_with("`hvtui image push x:1` from"));
        let program = || "docker".to_owned();
        let stopped =
            EngineError::NotRunning { program: program(), words: "Cannot connect: no socket".to_owned() };
        let (why, remedy) = words(&LookError::Engine(stopped));
        assert_eq!(why, "docker does not run: Cannot connect: no socket");
        assert!(remedy.unwrap().starts_with("start it (sudo systemctl start docker), or "));
        let words = |said: &str| {
            let (engine, words) = ("docker".to_owned(), said.to_owned());
            super::words(&LookError::NotStarted { engine, words })
        };
        assert_eq!(words("a: b"), ("docker starts no container of it: a: b".to_owned(), None));
    }
}
