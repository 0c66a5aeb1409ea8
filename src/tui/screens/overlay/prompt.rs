//! A line of text that is asked for at the bottom of the screen.

use tui_input::{Input, InputRequest};

use crate::domain::marks::fitting;
use crate::domain::run_list::RunFilter;
use crate::tui::core::{Effect, Key, KeyCode, Level, PlayCommand, Screen};
use crate::tui::screens::cluster::{filtering, picking};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::{Model, replay, run};

/// What the line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptKind {
    /// The filter of the Cluster screen; shows while typing, and esc brings back the one before.
    Filter,
    /// How many free slots to pick.
    PickFree,
    /// The search of the log; applies while typing.
    LogSearch,
    /// The filter of the Runs screen; applies while typing.
    RunsFilter,
    /// Where to go in a replay.
    GoTo,
    /// What a mark says.
    MarkNote,
}

/// An open prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// What for.
    pub kind: PromptKind,
    /// What is typed.
    pub input: Input,
    /// What stood there before.
    pub before: String,
    /// Why that does not do.
    pub error: Option<String>,
}

impl PartialEq for Prompt {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.input.value(), self.input.cursor(), &self.error)
            == (other.kind, other.input.value(), other.input.cursor(), &other.error)
    }
}

impl Prompt {
    /// A prompt with a text to start from.
    pub fn new(kind: PromptKind, text: &str) -> Self {
        Self { kind, input: Input::new(text.to_owned()), before: text.to_owned(), error: None }
    }

    /// What stands before the text.
    pub fn label(&self) -> &'static str {
        match self.kind {
            PromptKind::Filter => "filter",
            PromptKind::PickFree => "pick how many free",
            PromptKind::LogSearch => "search log (or /regex/)",
            PromptKind::RunsFilter => "filter runs",
            PromptKind::GoTo => "go to (14:32:05, ±90s, 50%, step 812)",
            PromptKind::MarkNote => "note of the mark",
        }
    }
}

/// What a key does to a line of text; `None` when it is no editing key.
pub fn edit(input: &mut Input, key: Key) -> Option<()> {
    let request = match (key.code, key.ctrl) {
        (KeyCode::Char('u'), true) => InputRequest::DeleteLine,
        (KeyCode::Char('w'), true) => InputRequest::DeletePrevWord,
        (KeyCode::Char('k'), true) => InputRequest::DeleteTillEnd,
        (KeyCode::Char('a'), true) | (KeyCode::Home, _) => InputRequest::GoToStart,
        (KeyCode::Char('e'), true) | (KeyCode::End, _) => InputRequest::GoToEnd,
        (KeyCode::Char(c), false) if !key.alt && !c.is_control() => InputRequest::InsertChar(c),
        (KeyCode::Backspace, _) => InputRequest::DeletePrevChar,
        (KeyCode::Delete, _) => InputRequest::DeleteNextChar,
        (KeyCode::Left, false) => InputRequest::GoToPrevChar,
        (KeyCode::Right, false) => InputRequest::GoToNextChar,
        (KeyCode::Left, true) => InputRequest::GoToPrevWord,
        (KeyCode::Right, true) => InputRequest::GoToNextWord,
        _ => return None,
    };
    let _ = input.handle(request);
    Some(())
}

/// Puts a pasted text into a line: line ends become blanks, other control characters are left out.
pub fn paste(input: &mut Input, text: &str) {
    let text = text.trim_end_matches(['\n', '\r']).replace("\r\n", " ");
    insert(input, &text.replace(['\n', '\r', '\t'], " "));
}

/// Puts a text into a line with its line ends; other control characters are left out.
pub fn insert(input: &mut Input, text: &str) {
    for c in text.chars().filter(|c| *c == '\n' || !c.is_control()) {
        let _ = input.handle(InputRequest::InsertChar(c));
    }
}

/// A key while a prompt is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Overlay::Prompt(prompt) = &mut model.ui.overlay else { return Vec::new() };
    if prompt.kind == PromptKind::Filter && filtering::key(model, key) {
        return Vec::new();
    }
    let Overlay::Prompt(prompt) = &mut model.ui.overlay else { return Vec::new() };
    match key.code {
        KeyCode::Enter => return finish(model),
        KeyCode::Esc => {
            if prompt.kind == PromptKind::Filter {
                filtering::given_up(model);
            } else if prompt.kind == PromptKind::LogSearch {
                prompt.input.reset();
                apply(model);
            } else if prompt.kind == PromptKind::RunsFilter {
                prompt.input = Input::new(prompt.before.clone());
                apply(model);
            }
            model.ui.overlay = Overlay::None;
        }
        _ => {
            if edit(&mut prompt.input, key).is_some() {
                prompt.error = None;
                apply(model);
            }
        }
    }
    Vec::new()
}

/// Applies what is typed, for prompts that apply while typing.
pub fn apply(model: &mut Model) {
    let Overlay::Prompt(prompt) = &mut model.ui.overlay else { return };
    let text = prompt.input.value().to_owned();
    match prompt.kind {
        PromptKind::Filter => filtering::typed(model),
        PromptKind::LogSearch => {
            if let Err(error) = model.ui.run.search(&text) {
                prompt.error = Some(error);
            }
        }
        PromptKind::RunsFilter => match RunFilter::parse(&text) {
            Ok(filter) => {
                model.ui.runs.filter = filter;
                model.ui.runs.filter_text = text;
            }
            Err(error) => prompt.error = Some(error.to_string()),
        },
        PromptKind::MarkNote => prompt.error = fitting(&text).err().map(|error| error.to_string()),
        PromptKind::PickFree | PromptKind::GoTo => {}
    }
}

fn finish(model: &mut Model) -> Vec<Effect> {
    let Overlay::Prompt(prompt) = &model.ui.overlay else { return Vec::new() };
    let text = prompt.input.value().trim().to_owned();
    let kind = prompt.kind;
    if prompt.error.is_some() {
        return Vec::new();
    }
    if kind == PromptKind::GoTo {
        return go_to(model, &text);
    }
    model.ui.overlay = Overlay::None;
    match kind {
        PromptKind::Filter => filtering::confirmed(model),
        PromptKind::PickFree => match text.parse() {
            Ok(count) => picking::pick_free(model, count),
            Err(_) if text.is_empty() => {}
            Err(_) => model.notice(Level::Error, format!("'{text}' is no number")),
        },
        PromptKind::LogSearch => return crate::tui::screens::run::keys::find(model, true),
        PromptKind::MarkNote => return run::marks::noted(model, text),
        _ => {}
    }
    Vec::new()
}

/// Moves the playhead; what is no place stays to be corrected.
fn go_to(model: &mut Model, text: &str) -> Vec<Effect> {
    if text.is_empty() || model.ui.screen != Screen::Replay {
        model.ui.overlay = Overlay::None;
        return Vec::new();
    }
    if replay::state(model).is_none() {
        model.notice(Level::Warning, "the recording is still being opened: try again");
        return Vec::new();
    }
    let command = replay::parse_goto(model, text);
    let last = model.shown_run().and_then(|(_, run)| run::whole::last_step(model, run));
    let wrong = match (&command, last) {
        (Some(PlayCommand::ToStep(step)), Some(last)) if *step > last => format!("the last step is {last}"),
        (Some(PlayCommand::SeekTo(at)), _) if !replay::is_recorded(model, *at) => replay::bounds_words(model),
        (None, _) => "not a valid moment".to_owned(),
        _ => {
            model.ui.overlay = Overlay::None;
            return command.map(Effect::Play).into_iter().collect();
        }
    };
    if let Overlay::Prompt(prompt) = &mut model.ui.overlay {
        prompt.error = Some(wrong);
    }
    Vec::new()
}
