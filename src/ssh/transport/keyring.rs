//! Keys that a person unlocked: each is asked for once, for all hosts, and kept in memory until the program ends.
//!
//! The keys' memory is overwritten when they are dropped; passphrases are not kept at all.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use russh::keys::PrivateKey;
use tokio::sync::Mutex as Turn;

use super::private_key;
use super::prompter::{Busy, Prompter};
use super::target::Target;
use crate::domain::question::{Answer, Question, Subject};

/// How often a passphrase may be wrong.
const TRIES: usize = 3;

/// The unlocked keys by their files.
#[derive(Default)]
pub(super) struct Keyring(Mutex<HashMap<PathBuf, Arc<Slot>>>);

/// One key: logins that need it take turns.
#[derive(Default)]
struct Slot {
    turn: Turn<Held>,
    /// How often a person refused.
    refusals: Mutex<usize>,
}

#[derive(Default)]
struct Held {
    /// With the text of the file that it was read from: a file that changed is asked for anew.
    key: Option<(String, Arc<PrivateKey>)>,
}

impl Slot {
    fn refusals(&self) -> std::sync::MutexGuard<'_, usize> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key file that has a passphrase.
#[derive(Clone)]
pub(super) struct Locked {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) fingerprint: Option<String>,
}

impl Keyring {
    fn slot(&self, path: &Path) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(path.to_owned()).or_default())
    }
}

/// The key behind a passphrase: remembered, or asked for. The error says in words why not.
pub(super) async fn unlock(
    prompter: &Prompter,
    busy: &Busy,
    target: &Target,
    locked: &Locked,
    note: Option<&str>,
) -> Result<Arc<PrivateKey>, String> {
    let slot = prompter.kept::<Keyring>().slot(&locked.path);
    let before = *slot.refusals();
    // Another host may be asking for the same key now: its answer serves both, also a refusal.
    let mut held = if let Ok(held) = slot.turn.try_lock() {
        held
    } else {
        let _waiting = busy.enter();
        slot.turn.lock().await
    };
    if let Some((_, key)) = held.key.as_ref().filter(|(text, _)| *text == locked.text) {
        return Ok(Arc::clone(key));
    }
    if *slot.refusals() > before {
        return Err("its passphrase was not given".to_owned());
    }
    let mut note = note.map(str::to_owned);
    for _ in 0..TRIES {
        let subject = Subject::Passphrase {
            key: locked.path.display().to_string(),
            fingerprint: locked.fingerprint.clone(),
        };
        let question = Question { host: target.host.clone(), to: target.shown(), subject, note: note.take() };
        let secret = match prompter.ask(busy, question).await {
            Answer::Text(secret) => secret,
            Answer::Unable(why) => return Err(remedy(&locked.path, &why)),
            Answer::Yes | Answer::No => {
                *slot.refusals() += 1;
                return Err("its passphrase was not given".to_owned());
            }
        };
        // The key derivation is slow on purpose.
        let text = locked.text.clone();
        let decoded =
            tokio::task::spawn_blocking(move || private_key::decode(&text, Some(secret.reveal())).ok());
        if let Ok(Some(key)) = decoded.await {
            let key = Arc::new(key);
            held.key = Some((locked.text.clone(), Arc::clone(&key)));
            return Ok(key);
        }
        note = Some("that passphrase does not open the key".to_owned());
    }
    *slot.refusals() += 1;
    Err(format!("its passphrase was wrong {TRIES} times"))
}

/// What to do about a locked key where no user can be asked.
pub(super) fn remedy(path: &Path, why: &str) -> String {
    format!("it has a passphrase, and {why}: run ssh-add {}", path.display())
}

#[cfg(test)]
mod tests {
    use russh::keys::Algorithm;
    use russh::keys::ssh_key::LineEnding;

    use super::super::prompter::Asked;
    use super::*;
    use crate::domain::secret::Secret;

    /// On one thread the person comes last: both hosts wait when the answer is given.
    #[tokio::test]
    async fn one_answer_serves_all_who_wait_also_a_refusal() {
        let mut rng = russh::keys::key::safe_rng();
        let key = PrivateKey::random(&mut rng, Algorithm::Ed25519).unwrap();
        let text = key.encrypt(&mut rng, "right").unwrap().to_openssh(LineEnding::LF).unwrap().to_string();
        let locked = Locked { path: "/k/locked".into(), text, fingerprint: None };
        let (prompter, mut questions) = Prompter::new();
        let hosts = ["gpu-a", "gpu-b"].map(|host| Target::new(host.into(), host, 22, "li"));
        let busy = Busy::default();
        let wanted = |host: usize| unlock(&prompter, &busy, &hosts[host], &locked, None);
        for (given, unlocks) in [(Answer::No, false), (Answer::Text(Secret::new("right".to_owned())), true)] {
            let person = async {
                let Some(Asked::Question(_, answer)) = questions.recv().await else { panic!("no question") };
                answer.send(given).unwrap();
            };
            let (a, b, ()) = tokio::join!(wanted(0), wanted(1), person);
            for ended in [a, b] {
                assert_eq!(
                    ended.as_ref().map(|_| ()).err().map(String::as_str),
                    (!unlocks).then_some("its passphrase was not given")
                );
            }
            assert!(questions.try_recv().is_err(), "asked once");
        }
    }
}
