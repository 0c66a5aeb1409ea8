//! Questions of ssh in the UI: one at a time over the screen, the others wait. What is typed is forgotten with the answer.

use std::collections::VecDeque;

use crate::domain::question::{ASKED_AGAIN, Answer, Question};
use crate::domain::secret::Secret;
use crate::domain::time::Stamp;
use crate::tui::core::{Effect, Key, KeyCode, Screen};
use crate::tui::screens::Model;
use crate::tui::screens::model::Overlay;

/// The questions and what is typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionsUi {
    /// With their numbers; the first one is shown.
    pub waiting: VecDeque<(u64, Question)>,
    /// What is typed for the first one.
    pub typed: Secret,
    /// When a key last went to the Launch screen.
    typed_below: Option<Stamp>,
}

/// A question comes up once so many microseconds have passed without a key for a form: what is being typed there is no answer.
const PAUSE_US: i64 = 1_000_000;

/// Whether a question lies over the screen: what was begun at a prompt is ended first.
pub fn is_shown(model: &Model) -> bool {
    let ui = &model.ui.questions;
    let types = ui.typed_below.is_some_and(|at| model.now.micros_since(at) < PAUSE_US);
    let types = types && model.ui.screen == Screen::Launch;
    !ui.waiting.is_empty() && !types && matches!(model.ui.overlay, Overlay::None | Overlay::Help(_))
}

/// A key or pasted text goes to the screen below.
pub fn typed_below(model: &mut Model) {
    model.ui.questions.typed_below = (model.ui.screen == Screen::Launch).then_some(model.now);
}

/// A key while a question is shown.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let typed = &mut model.ui.questions.typed;
    match (key.code, key.ctrl) {
        (KeyCode::Enter, _) => return done(model, false),
        (KeyCode::Esc, _) => return done(model, true),
        (KeyCode::Backspace, _) => typed.pop(),
        (KeyCode::Char('u'), true) => *typed = Secret::default(),
        (KeyCode::Char(c), false) if !key.alt && !c.is_control() => typed.push(c),
        _ => {}
    }
    Vec::new()
}

/// Text is pasted while a question is shown: its first line counts.
pub fn paste(model: &mut Model, text: &str) {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).for_each(|c| model.ui.questions.typed.push(c));
}

fn done(model: &mut Model, refused: bool) -> Vec<Effect> {
    let typed = std::mem::take(&mut model.ui.questions.typed);
    let Some((number, question)) = model.ui.questions.waiting.pop_front() else {
        return Vec::new();
    };
    let answer = if refused { Some(Answer::No) } else { question.answer(typed) };
    if let Some(answer) = answer {
        return vec![Effect::Answer(number, answer)];
    }
    let question = Question { note: Some(ASKED_AGAIN.to_owned()), ..question };
    model.ui.questions.waiting.push_front((number, question));
    Vec::new()
}
