//! Looks into an image: has its checks made by hvtui in a container of it.

use crate::doctor::Told;
use crate::doctor::inside::{Answers, Ask, refused};
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::image::engine::EngineError;
use crate::supervise::container::look::{LookError, look};

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
    pub(super) image: String,
    pub(super) engine: Option<String>,
    pub(super) gpus: Vec<GpuUuid>,
    pub(super) modules: Vec<String>,
    /// The checks, by their own names.
    pub(super) checks: Vec<String>,
}

/// Has them made; each is answered. Blocks until the container is gone.
pub(super) fn answers(question: &Question) -> Vec<(String, Told)> {
    let Question { at, image, engine, gpus, modules, checks } = question;
    let gpus: Vec<&str> = gpus.iter().map(GpuUuid::as_str).collect();
    let told = look(engine.as_deref(), image, &gpus, |id| {
        // the same content has other ids in other engines
        let hash = if id.layers.is_empty() { &id.id } else { &id.layers };
        let hash = hash.rsplit(':').next().unwrap_or_default().chars().take(DIGITS).collect();
        let ask = Ask { at: *at, checks: checks.clone(), modules: modules.clone(), image: hash };
        vec![COMMAND.to_owned(), serde_json::to_string(&ask).unwrap_or_default()]
    });
    let mut told = told.map(|line| serde_json::from_str::<Answers>(&line).unwrap_or_default());
    let answer = |check: &String| {
        let answer = match &mut told {
            Ok(answers) => {
                answers.remove(check).unwrap_or_else(|| Err("the container did not tell".to_owned()))
            }
            Err(error) if check == IMAGE && is_of_image(error) => {
                let (why, remedy) = words(error);
                Ok(refused(why, remedy))
            }
            Err(error) => Err(format!("no container of the image was had: {error}")),
        };
        (check.clone(), answer)
    };
    checks.iter().map(answer).collect()
}

/// Whether a run would fail by it, too; else it is this look alone that had no answer.
fn is_of_image(error: &LookError) -> bool {
    matches!(error, LookError::Engine(_) | LookError::NotStarted { .. })
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
    use super::*;

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
