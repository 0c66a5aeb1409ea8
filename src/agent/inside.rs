//! Looks into an image: has its checks made by hvtui in a container of it.

mod memory;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use self::memory::{Memory, Remembered};
use crate::doctor::Told;
use crate::doctor::inside::{Answers, Ask, is_well, refused};
use crate::domain::container::{ImageId, Volume};
use crate::domain::doctor::RunInside;
use crate::domain::host::HostInfo;
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::image::engine::EngineError;
use crate::supervise::container::look::{Asker, LookError, LookInto, look};

/// The hidden command of hvtui that answers.
const COMMAND: &str = "look-inside";
/// The check that tells why no container was had.
const IMAGE: &str = "image";
/// Characters of an image's hash.
const DIGITS: usize = 12;

/// Of the time that a launch has for a look the part in which its checks are made: the rest is the engine's.
const OF_CHECKS: f64 = 0.6;

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
    /// Whether it is a launch that asks, and what is known here.
    pub(super) launch: Option<OfLaunch>,
}

/// What is known of a host on which a launch looks into its image.
#[derive(Debug, Clone)]
pub(super) struct OfLaunch {
    /// Where answers are kept: a launch that follows does not wait for a container.
    pub(super) state: PathBuf,
    /// The host's facts, by which answers are judged.
    pub(super) info: Option<HostInfo>,
}

/// Has them made; each is answered. Blocks until the container is gone.
pub(super) fn answers(question: &Question) -> Vec<(String, Told)> {
    let Question { inside, engine, gpus, checks, launch, .. } = question;
    let uuids: Vec<&str> = gpus.iter().map(GpuUuid::as_str).collect();
    let into = LookInto {
        engine: engine.as_deref(),
        options: &inside.container,
        env: &inside.env,
        cwd: inside.cwd.as_deref(),
        gpus: &uuids,
        as_ranks: launch.is_some(),
    };
    let mut asking = Asking { question, memory: None };
    let told = look(into, &mut asking);
    let mut told = told.map(|line| serde_json::from_str::<Answers>(&line).unwrap_or_default());
    asking.remember(&told);
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

/// A question, and of a launch where its answer is kept, once the image is known.
struct Asking<'a> {
    question: &'a Question,
    memory: Option<Memory>,
}

impl Asker for Asking<'_> {
    fn question(
        &mut self,
        id: &ImageId,
        left: Duration,
    ) -> ControlFlow<Result<String, LookError>, Vec<String>> {
        let Question { at, inside, engine, gpus, modules, checks, launch } = self.question;
        // the same content has other ids in other engines
        let hash = if id.layers.is_empty() { &id.id } else { &id.layers };
        let hash = hash.rsplit(':').next().unwrap_or_default().chars().take(DIGITS).collect();
        let patience = u64::try_from(left.mul_f64(OF_CHECKS).as_millis()).ok();
        let ask = Ask {
            at: *at,
            checks: checks.clone(),
            modules: modules.clone(),
            starts: inside.starts.clone(),
            image: hash,
            patience_ms: patience.filter(|_| launch.is_some()),
        };
        let of = |one: &OfLaunch| Memory::of(&one.state, (&id.id, inside), &ask, (engine.as_deref(), gpus));
        self.memory = launch.as_ref().map(of);
        match self.memory.as_ref().and_then(Memory::told) {
            Some(Remembered::Answers(answers)) => ControlFlow::Break(Ok(answers)),
            Some(Remembered::Silence) => ControlFlow::Break(Err(LookError::Before)),
            None => ControlFlow::Continue(vec![
                COMMAND.to_owned(),
                serde_json::to_string(&ask).unwrap_or_default(),
            ]),
        }
    }

    fn hangs(&mut self) {
        self.keep(None);
    }
}

impl Asking<'_> {
    fn keep(&self, answers: Option<&Answers>) {
        if let Some(memory) = &self.memory {
            memory.keep(answers);
        }
    }

    /// Keeps what is no trouble at all, and that there was no answer: what is wrong may be put right at any time.
    fn remember(&self, told: &Result<Answers, LookError>) {
        let Question { gpus, checks, launch, .. } = self.question;
        let info = launch.as_ref().and_then(|launch| launch.info.as_ref());
        match (told, info) {
            (Ok(answers), Some(info)) if is_well(answers, info, &gpus.iter().cloned().collect()) => {
                let is_whole = checks.iter().all(|check| answers.get(check).is_some_and(Result::is_ok));
                self.keep(Some(answers).filter(|_| is_whole));
            }
            (Err(LookError::Unanswered(_)), _) => self.keep(None),
            _ => {}
        }
    }
}

/// Whether a run would fail by it, too; else it is this look alone that had no answer. A launch is kept from starting by what is sure.
fn is_red(error: &LookError, question: &Question) -> bool {
    let for_launch = question.launch.is_some();
    let container = &question.inside.container;
    match error {
        LookError::Engine(EngineError::Silent { .. } | EngineError::Failed { .. })
        | LookError::Late { .. } => !for_launch,
        LookError::Engine(_) => true,
        // arguments that fit a rank's container may not fit this one, which is removed at its end, and has no volume of the engine
        LookError::NotStarted { .. } => {
            !for_launch || container.arguments.is_empty() && container.volumes.iter().all(Volume::is_path)
        }
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
    use super::*;
    use crate::domain::container::ContainerOptions;

    #[test]
    fn a_launch_is_kept_by_what_is_sure_alone() {
        let question = |arguments: &[&str], volume: Option<&str>, state: Option<&str>| {
            let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
            let volumes = volume.into_iter().map(|one| one.parse().unwrap()).collect();
            let container = ContainerOptions { volumes, arguments, ..ContainerOptions::of("x:1") };
            Question {
                at: Stamp(1),
                inside: RunInside { container, ..RunInside::default() },
                engine: None,
                gpus: Vec::new(),
                modules: Vec::new(),
                checks: Vec::new(),
                launch: state.map(|state| OfLaunch { state: PathBuf::from(state), info: None }),
            }
        };
        let docker = || "docker".to_owned();
        let late = || LookError::Late { engine: docker(), patience: Duration::from_secs(4) };
        let silent = || EngineError::Silent { program: docker(), question: "info".to_owned() }.into();
        let refused = || LookError::NotStarted { engine: docker(), words: "no such runtime".to_owned() };
        let none = || EngineError::NoImage { program: docker(), image: "x:1".to_owned() }.into();
        let (doctor, launch) = (question(&[], None, None), question(&[], Some("/x:/x"), Some("/state")));
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
        assert!(!is_red(&refused(), &question(&["--sysctl=a=b"], None, Some("/state"))));
        assert!(!is_red(&refused(), &question(&[], Some("data:/x"), Some("/state"))));
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
