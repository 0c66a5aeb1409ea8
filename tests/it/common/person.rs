//! A person who answers ssh's questions in tests, and remembers what was asked.

use std::sync::{Arc, Mutex};

use hvtui::domain::question::{Answer, Question, Subject};
use hvtui::domain::secret::Secret;
use hvtui::ssh::{Asked, Prompter};

/// What was asked and told so far.
#[derive(Clone, Default)]
pub(crate) struct Person {
    asked: Arc<Mutex<Vec<Question>>>,
    told: Arc<Mutex<Vec<String>>>,
}

/// A text as an answer.
#[expect(clippy::unnecessary_wraps, reason = "it stands where answers may be refused")]
pub(crate) fn text(answer: &str) -> Option<Answer> {
    Some(Answer::Text(Secret::new(answer.to_owned())))
}

impl Person {
    /// Answers in a task of its own; `answer` gets the question and how many came before it. `None` refuses.
    pub(crate) fn answering(
        answer: impl Fn(&Question, usize) -> Option<Answer> + Send + 'static,
    ) -> (Prompter, Self) {
        let (prompter, mut questions) = Prompter::new();
        let person = Self::default();
        let of_task = person.clone();
        tokio::spawn(async move {
            while let Some(asked) = questions.recv().await {
                match asked {
                    Asked::Note(text) => of_task.told.lock().unwrap().push(text),
                    Asked::Question(question, sender) => {
                        let before = of_task.asked().len();
                        of_task.asked.lock().unwrap().push(question.clone());
                        // a person who thinks for a while must hold up no other task
                        let given = tokio::task::block_in_place(|| answer(&question, before));
                        let _ = sender.send(given.unwrap_or(Answer::No));
                    }
                }
            }
        });
        (prompter, person)
    }

    pub(crate) fn asked(&self) -> Vec<Question> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    /// One word for each question.
    pub(crate) fn subjects(&self) -> Vec<&'static str> {
        let word = |question: &Question| match question.subject {
            Subject::Passphrase { .. } => "passphrase",
            Subject::Password => "password",
            Subject::Prompt { .. } => "prompt",
            Subject::HostKey { .. } => "host key",
        };
        self.asked().iter().map(word).collect()
    }
}
