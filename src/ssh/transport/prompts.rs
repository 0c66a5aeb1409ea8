//! Methods that a person answers: keyboard-interactive and password. Nothing is answered without being asked for, and
//! a wrong answer may be given three times in all.

use russh::MethodKind;
use russh::client::{KeyboardInteractiveAuthResponse as Response, Prompt};

use super::error::Attempts;
use super::login::{Login, Outcome};
use crate::domain::question::{Answer, Question, Subject};
use crate::domain::secret::Secret;

/// Wrong answers in one connection.
const MOST_WRONG: usize = 3;
/// A host that asks without end is left.
const MOST_ROUNDS: usize = 20;
const MOST_PROMPTS: usize = 16;

/// Goes through one method until it is accepted, wants another one beside it, or has had its tries.
pub(super) async fn answer(login: &mut Login<'_>, kind: MethodKind, attempts: &mut Attempts) -> Outcome {
    let method = String::from(&kind);
    if let Some(why) = login.target.prompter.absent() {
        return Outcome::Skipped(format!("{method} needs an answer, and {why}"));
    }
    loop {
        let questions = Questions { login, method: &method, asked: 0 };
        let (asked, outcome) = match kind {
            MethodKind::Password => questions.password().await,
            _ => questions.interactive().await,
        };
        match &outcome {
            // A host whose method asked for nothing has no use for a second try.
            Outcome::Refused(_, false) if asked == 0 => return outcome,
            Outcome::Refused(methods, false) => {
                login.wrong += 1;
                if login.wrong == MOST_WRONG {
                    attempts.accepts = methods.iter().map(String::from).collect();
                    return Outcome::Skipped(format!("{method}: {MOST_WRONG} answers were wrong"));
                }
                if !methods.contains(&kind) {
                    return outcome;
                }
                login.note = Some(format!("that was not accepted; try {} of {MOST_WRONG}", login.wrong + 1));
            }
            _ => return outcome,
        }
    }
}

/// One try of one method.
struct Questions<'a, 'b> {
    login: &'a mut Login<'b>,
    method: &'a str,
    asked: usize,
}

impl Questions<'_, '_> {
    async fn password(mut self) -> (usize, Outcome) {
        let secret = match self.ask(Subject::Password).await {
            Ok(secret) => secret,
            Err(outcome) => return (self.asked, outcome),
        };
        let user = self.login.target.user.as_str();
        // russh overwrites its copy once it is sent
        let result = self.login.handle.authenticate_password(user, secret.reveal()).await;
        (self.asked, result.map_or(Outcome::Gone, Outcome::from))
    }

    async fn interactive(mut self) -> (usize, Outcome) {
        let user = self.login.target.user.as_str();
        let mut response = self.login.handle.authenticate_keyboard_interactive_start(user, None).await;
        for _ in 0..MOST_ROUNDS {
            let (intro, prompts) = match response {
                Ok(Response::Success) => return (self.asked, Outcome::In),
                Ok(Response::Failure { remaining_methods, partial_success }) => {
                    let gone = remaining_methods.is_empty();
                    let refused = Outcome::Refused(remaining_methods, partial_success);
                    return (self.asked, if gone { Outcome::Gone } else { refused });
                }
                Ok(Response::InfoRequest { name, instructions, prompts }) => {
                    (format!("{name}\n{instructions}"), prompts)
                }
                Err(_) => return (self.asked, Outcome::Gone),
            };
            let answers = match self.round(&intro, prompts).await {
                Ok(answers) => answers,
                Err(outcome) => return (self.asked, outcome),
            };
            let answers = answers.iter().map(|answer| answer.reveal().to_owned()).collect();
            response = self.login.handle.authenticate_keyboard_interactive_respond(answers).await;
        }
        (self.asked, Outcome::Skipped(format!("{}: the host asks without end", self.method)))
    }

    async fn round(&mut self, intro: &str, prompts: Vec<Prompt>) -> Result<Vec<Secret>, Outcome> {
        if prompts.len() > MOST_PROMPTS {
            return Err(Outcome::Skipped(format!("{}: the host asks too much at once", self.method)));
        }
        let mut answers = Vec::new();
        for Prompt { prompt, echo } in prompts {
            answers.push(self.ask(Subject::Prompt { intro: intro.to_owned(), prompt, echo }).await?);
        }
        Ok(answers)
    }

    async fn ask(&mut self, subject: Subject) -> Result<Secret, Outcome> {
        self.asked += 1;
        let target = self.login.target;
        let note = self.login.note.take();
        let question = Question { host: target.host.clone(), to: target.shown(), subject, note };
        match target.prompter.ask(self.login.busy, question).await {
            Answer::Text(secret) => Ok(secret),
            Answer::Unable(why) => {
                Err(Outcome::Skipped(format!("{} needs an answer, and {why}", self.method)))
            }
            Answer::Yes | Answer::No => Err(Outcome::Skipped(format!("{} was not answered", self.method))),
        }
    }
}
