//! Who is asked about a host: the system's `ssh`, or our own reader of the same files.

use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use super::ask::{self, Read};
use super::evaluate::{Evaluator, Found, Question};
use super::files::Files;
use super::here;
use super::settings::{Around, Settings, settings};
use crate::ssh::transport::error::SshError;

/// Reads a person's ssh configuration, for many hosts.
#[derive(Debug)]
pub struct Reader {
    files: Files,
    ssh: Option<PathBuf>,
    /// What `ssh -G` prints where no file says anything.
    usual: OnceCell<Found>,
}

impl Reader {
    /// A reader for the user whose home this is. `ssh` is the system's program, if there is one.
    pub fn new(home: &Path, ssh: Option<PathBuf>) -> Self {
        Self { files: Files::of(home), ssh, usual: OnceCell::new() }
    }

    /// What the configuration says of a host. An error where OpenSSH would refuse the configuration.
    pub async fn settings(&self, question: Question<'_>) -> Result<Settings, SshError> {
        let fault = |file: &Path, detail: String| SshError::Config { file: file.to_owned(), detail };
        let own = self.files.ask(question).map_err(|(place, why)| fault(&place.file, why))?;
        let (found, by_ssh) = match &self.ssh {
            Some(ssh) if own.matters => {
                let asked = self.by_ssh(ssh, &question, &own).await;
                (
                    asked
                        .map_err(|why| fault(&self.files.user, format!("ssh -G {}: {why}", question.name)))?,
                    true,
                )
            }
            _ => (own, false),
        };
        let env = |name: &str| std::env::var(name).ok();
        let mut settings = settings(found, &Around { question, home: &self.files.home, env: &env, by_ssh });
        here::settle(&mut settings, &env);
        Ok(settings)
    }

    /// The same, of the person's own file alone, without the machine's.
    #[must_use]
    pub fn without_system(mut self) -> Self {
        self.files.system = None;
        self
    }

    /// The system's `ssh`, and the configuration file that it has to be told of because it would not read it by
    /// itself.
    pub(in crate::ssh) async fn system_ssh(&self) -> Result<(&Path, Option<PathBuf>), String> {
        let ssh = self.ssh.as_deref().ok_or("there is no program `ssh` here")?;
        let Some(()) = self.foreign_home(self.usual(ssh).await?) else { return Ok((ssh, None)) };
        let there = self.files.user.exists();
        Ok((ssh, Some(if there { self.files.user.clone() } else { PathBuf::from("none") })))
    }

    async fn by_ssh(&self, ssh: &Path, question: &Question<'_>, own: &Found) -> Result<Found, String> {
        let usual = self.usual(ssh).await?;
        let foreign = self.foreign_home(usual).is_some();
        let read = match foreign {
            true if self.files.user.exists() => Read::Only(&self.files.user),
            true => Read::Nothing,
            false => Read::Usual,
        };
        let mut found = ask::understand(&ask::ask(ssh, read, question).await?, Some(usual));
        for (key, values) in &mut found.values {
            let Some(ours) = own.values.get(key) else { continue };
            // It prints names with blanks without quotes, and `~` as the account's home, not as $HOME.
            let splits =
                |from: &[super::evaluate::Value]| from.iter().map(|value| value.words.len()).sum::<usize>();
            let expanded = key.ends_with("knownhostsfile") || key == "identityagent";
            if expanded && (foreign || splits(ours) < splits(values)) {
                values.clone_from(ours);
            }
            // It prints the whole list; whether that was appended to the usual one only the line itself tells.
            if key == "hostkeyalgorithms" && values.len() == 1 {
                let line = ours.first().and_then(|value| value.words.first()).cloned();
                for value in values.iter_mut() {
                    value.words.extend(line.clone());
                }
            }
            for value in values {
                value.place = ours.iter().find_map(|value| value.place.clone());
            }
        }
        Ok(found)
    }

    async fn usual(&self, ssh: &Path) -> Result<&Found, String> {
        let asked = self.usual.get_or_try_init(|| async {
            let unnamed = Question { name: "localhost", user: None, port: None, local_user: "" };
            let mut found = ask::understand(&ask::ask(ssh, Read::Nothing, &unnamed).await?, None);
            found.values.remove("hostname");
            Ok(found)
        });
        asked.await
    }

    /// Whether `ssh` takes another folder for the home than we: it goes by the account, not by `$HOME`.
    fn foreign_home(&self, usual: &Found) -> Option<()> {
        let first = usual.word("userknownhostsfile")?;
        (Path::new(first) != self.files.home.join(".ssh/known_hosts")).then_some(())
    }
}

/// What one file's text says of a host, without its `Include`s: for tests and fuzzing. Reads no file, runs nothing.
pub fn understand(text: &str, question: Question<'_>, home: &Path) -> Settings {
    let mut evaluator = Evaluator::new(question);
    evaluator.file(Path::new("config"), text, &mut |_| Vec::new());
    settings(evaluator.end(), &Around { question, home, env: &|_| None, by_ssh: false })
}
