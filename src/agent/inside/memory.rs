//! What an image was found to have, so that not each launch waits for a container of it: kept in the state folder by what the image
//! is, and believed for a day, with the same driver, engine and GPUs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::doctor::inside::{Answers, Ask};
use crate::domain::doctor::RunInside;
use crate::domain::ids::GpuUuid;
use crate::domain::time::Stamp;
use crate::sha256;

const DRIVER: &str = "/sys/module/nvidia/version";
/// How long it is believed, microseconds; and that there is no answer.
const AGE_US: i64 = 24 * 3600 * 1_000_000;
const NONE_US: i64 = 600 * 1_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    at: Stamp,
    /// `None` where there was no answer.
    answers: Option<Answers>,
}

/// What is known of an earlier look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remembered {
    /// The answers, as they were told.
    Answers(String),
    /// It had none.
    Silence,
}

/// Where the answers of one image to one question are kept.
#[derive(Debug)]
pub(super) struct Memory(PathBuf);

impl Memory {
    pub(super) fn of(
        state: &Path,
        image: (&str, &RunInside),
        ask: &Ask,
        given: (Option<&str>, &[GpuUuid]),
    ) -> Self {
        // another hvtui may ask by other probes; each login says by the time of its file that it is in use
        let hvtui = fs::metadata("/proc/self/exe").ok().map(|file| (file.len(), file.ino()));
        let hvtui = (fs::read_link("/proc/self/exe").ok(), hvtui);
        let driver = fs::read_to_string(DRIVER).unwrap_or_default();
        let Ask { checks, modules, .. } = ask;
        let all = format!("{image:?} {checks:?} {modules:?} {given:?} {driver} {hvtui:?}");
        let digest = sha256::of_bytes(all.as_bytes()).to_string();
        let name = digest.get(..16).unwrap_or(&digest).to_owned();
        Self(state.join("inside").join(name + ".json"))
    }

    /// What was told, where that is not long ago.
    pub(super) fn told(&self) -> Option<Remembered> {
        let kept: Kept = serde_json::from_slice(&fs::read(&self.0).ok()?).ok()?;
        let age = clock::now().micros_since(kept.at);
        let believed = if kept.answers.is_some() { AGE_US } else { NONE_US };
        let text = |answers| serde_json::to_string(&answers).ok();
        let told = || kept.answers.and_then(text).map_or(Remembered::Silence, Remembered::Answers);
        (0..believed).contains(&age).then(told)
    }

    /// Keeps it. Where that fails, the next launch looks again.
    pub(super) fn keep(&self, answers: Option<&Answers>) {
        // what was kept keeps its age
        if self.told().is_some() {
            return;
        }
        let Some(folder) = self.0.parent() else { return };
        let beside = self.0.with_extension(std::process::id().to_string());
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            remove_old(folder);
            fs::write(&beside, serde_json::to_vec(&Kept { at: clock::now(), answers: answers.cloned() })?)?;
            fs::rename(&beside, &self.0)
        };
        if let Err(error) = write() {
            tracing::debug!(%error, "what an image has is not remembered");
        }
    }
}

/// What is believed no more.
fn remove_old(folder: &Path) {
    let now = clock::now().0 / 1_000_000;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_old = entry.metadata().is_ok_and(|file| now - file.mtime() > AGE_US / 1_000_000);
        if is_old && let Err(error) = fs::remove_file(entry.path()) {
            tracing::debug!(%error, "what an image had is left");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_image_has_is_believed_for_a_day_and_of_that_image_alone() {
        let state = tempfile::tempdir().unwrap();
        let ask = Ask {
            at: Stamp(1),
            checks: vec!["image".to_owned()],
            modules: Vec::new(),
            starts: None,
            image: String::new(),
            patience_ms: None,
        };
        let plain = RunInside::default();
        let of = |id: &str, gpus: &[&str]| {
            let gpus: Vec<GpuUuid> = gpus.iter().map(|uuid| GpuUuid::from(*uuid)).collect();
            Memory::of(state.path(), (id, &plain), &ask, (None, &gpus))
        };
        let answers = Answers::from([("image".to_owned(), Ok(serde_json::json!({"id": 1})))]);
        assert_eq!(of("a", &[]).told(), None);
        of("a", &[]).keep(Some(&answers));
        assert_eq!(of("a", &[]).told(), Some(Remembered::Answers(serde_json::to_string(&answers).unwrap())));
        assert_eq!((of("b", &[]).told(), of("a", &["GPU-1"]).told()), (None, None));
        let other = RunInside { cwd: Some("/x".to_owned()), ..RunInside::default() };
        assert_eq!(Memory::of(state.path(), ("a", &other), &ask, (None, &[])).told(), None);
        // an entry point may go by a variable
        let led = RunInside { env: [("ENV_NAME".to_owned(), "x".to_owned())].into(), ..RunInside::default() };
        assert_eq!(Memory::of(state.path(), ("a", &led), &ask, (None, &[])).told(), None);
        of("b", &[]).keep(None);
        assert_eq!(of("b", &[]).told(), Some(Remembered::Silence), "no answer is known, too");
        let busy = Kept { at: clock::now().plus_micros(-NONE_US), answers: None };
        fs::write(&of("d", &[]).0, serde_json::to_vec(&busy).unwrap()).unwrap();
        assert_eq!(of("d", &[]).told(), None, "not for so long");
        let old = Kept { at: clock::now().plus_micros(-AGE_US), answers: Some(answers) };
        fs::write(&of("a", &[]).0, serde_json::to_vec(&old).unwrap()).unwrap();
        assert_eq!(of("a", &[]).told(), None);
        // and what is that old goes with the next one
        let file = fs::File::options().write(true).open(&of("a", &[]).0).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        of("c", &[]).keep(None);
        assert!(!of("a", &[]).0.exists() && of("b", &[]).0.exists());
    }
}
