//! What ssh may have to ask a person, and the answers. Plain data: who shows the question decides how.

use super::ids::HostId;
use super::secret::Secret;
use super::text::sanitize;

/// How an unknown host key is treated. There is no way not to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostKeyPolicy {
    /// It is refused.
    Strict,
    /// A person is asked; refused where there is no terminal to ask on.
    #[default]
    Ask,
    /// It is taken and written down. A changed or revoked one is refused all the same.
    AcceptNew,
}

/// One question about one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The host.
    pub host: HostId,
    /// `user@address:port`.
    pub to: String,
    /// What is asked.
    pub subject: Subject,
    /// Why it is asked once more, or what else a person should know.
    pub note: Option<String>,
}

/// What is asked. Text of the host in it is not yet sanitised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The passphrase of a key file.
    Passphrase {
        /// Its path here.
        key: String,
        /// Its fingerprint, where the file shows it.
        fingerprint: Option<String>,
    },
    /// The password of the account.
    Password,
    /// One line that the host itself asks for (keyboard-interactive).
    Prompt {
        /// The host's heading and instructions; may be empty.
        intro: String,
        /// The host's words.
        prompt: String,
        /// Whether the answer may be seen.
        echo: bool,
    },
    /// Whether an unknown host key is the right one.
    HostKey {
        /// `ssh-ed25519`, ….
        algorithm: String,
        /// `SHA256:…`.
        fingerprint: String,
        /// Other names that have the same key.
        also: Vec<String>,
        /// Keys of other types by which the host is known.
        other: Vec<String>,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The text that was asked for.
    Text(Secret),
    /// The host key is right.
    Yes,
    /// The question is refused.
    No,
    /// It can't be asked, and why.
    Unable(String),
}

/// Whether a line says that a host key is trusted, and `None` where it says neither.
pub fn trusts(line: &str, fingerprint: &str) -> Option<bool> {
    let word = line.trim();
    let is_no = ["no", "n"].iter().any(|no| word.eq_ignore_ascii_case(no));
    let is_yes = word.eq_ignore_ascii_case("yes") || word == fingerprint;
    (is_yes || is_no).then_some(is_yes)
}

/// What is said where an answer about a host key was none.
pub const ASKED_AGAIN: &str = "type yes, no or the fingerprint";

impl Question {
    /// What it is about, in a few words.
    pub fn title(&self) -> &'static str {
        match self.subject {
            Subject::Passphrase { .. } => "passphrase",
            Subject::Password => "password",
            Subject::Prompt { .. } => "the host asks",
            Subject::HostKey { .. } => "unknown host key",
        }
    }

    /// Whether the answer may be seen while it is typed.
    pub fn echo(&self) -> bool {
        match self.subject {
            Subject::Passphrase { .. } | Subject::Password => false,
            Subject::Prompt { echo, .. } => echo,
            Subject::HostKey { .. } => true,
        }
    }

    /// What stands before the answer.
    pub fn prompt(&self) -> String {
        match &self.subject {
            Subject::Passphrase { .. } => "passphrase:".to_owned(),
            Subject::Password => "password:".to_owned(),
            Subject::Prompt { prompt, .. } => match prompt.lines().next_back().unwrap_or_default().trim() {
                "" => "answer:".to_owned(),
                last => sanitize(last).into_owned(),
            },
            Subject::HostKey { .. } => "trust it (yes/no)?".to_owned(),
        }
    }

    /// The lines above the prompt, safe for a terminal: host, login, key or fingerprint, the note.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.host, self.to)];
        match &self.subject {
            Subject::Passphrase { key, fingerprint } => {
                lines.push(format!("key {key}"));
                lines.extend(fingerprint.clone());
            }
            Subject::Password => {}
            Subject::Prompt { intro, prompt, .. } => {
                let before =
                    prompt.trim_end().rsplit_once('\n').map(|(before, _)| before).unwrap_or_default();
                lines.extend(
                    intro
                        .lines()
                        .chain(before.lines())
                        .filter(|line| !line.trim().is_empty())
                        .map(str::to_owned),
                );
            }
            Subject::HostKey { algorithm, fingerprint, also, other } => {
                lines.push(format!("shows {algorithm}"));
                lines.push(fingerprint.clone());
                if !also.is_empty() {
                    lines.push(format!("the same key is known for {}", also.join(", ")));
                }
                for key in other {
                    lines.push(format!("it is known by another type of key: {key}"));
                }
                lines.push("compare it with the host's own before you trust it".to_owned());
            }
        }
        lines.extend(self.note.clone());
        lines.iter().map(|line| sanitize(line).into_owned()).collect()
    }

    /// What an answered line of text means; `None` where it is no answer, and it is to be asked again. A host key is trusted by
    /// the whole word, or by its fingerprint.
    pub fn answer(&self, text: Secret) -> Option<Answer> {
        let Subject::HostKey { fingerprint, .. } = &self.subject else { return Some(Answer::Text(text)) };
        let trusts = trusts(text.reveal(), fingerprint)?;
        Some(if trusts { Answer::Yes } else { Answer::No })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(subject: Subject) -> Question {
        Question { host: "gpu-a".into(), to: "li@gpu-a:22".into(), subject, note: Some("again".into()) }
    }

    #[test]
    fn a_hosts_words_drive_no_terminal() {
        let prompt =
            Subject::Prompt { intro: "\u{1b}[2Jhi".into(), prompt: "one\nCode\u{7}: ".into(), echo: true };
        let question = question(prompt);
        assert_eq!(question.lines(), ["gpu-a: li@gpu-a:22", "␛[2Jhi", "one", "again"]);
        assert_eq!(question.prompt(), "Code␇:");
    }

    #[test]
    fn a_host_key_is_trusted_by_the_whole_word() {
        let (algorithm, fingerprint) = ("ssh-ed25519".into(), "SHA256:x".into());
        let question =
            question(Subject::HostKey { algorithm, fingerprint, also: vec!["b".into()], other: Vec::new() });
        let answer = |text: &str| question.answer(Secret::new(text.into()));
        assert_eq!((answer(" Yes "), answer("SHA256:x")), (Some(Answer::Yes), Some(Answer::Yes)));
        assert_eq!((answer("no"), answer("N")), (Some(Answer::No), Some(Answer::No)));
        for text in ["", "y", "yes please", "SHA256:y"] {
            assert_eq!(answer(text), None, "{text}: asked again");
        }
        assert!(question.lines().contains(&"the same key is known for b".to_owned()));
    }
}
