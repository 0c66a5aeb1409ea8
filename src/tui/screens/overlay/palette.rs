//! The commands of the screen by name: what is typed is matched against all of its bindings, the themes, and in a replay
//! against moments. Keys that only move are no commands.

use tui_input::Input;

use crate::tui::core::keymap::{Action, Binding};
use crate::tui::core::{Effect, Key, KeyCode, PlayCommand, ThemeName};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt;
use crate::tui::screens::update::perform;
use crate::tui::screens::{Model, entry, replay};

/// What is typed, and which match is selected.
#[derive(Debug, Clone, Default)]
pub struct Palette {
    /// What is typed.
    pub input: Input,
    /// The place of the selected match.
    pub on: usize,
}

impl PartialEq for Palette {
    fn eq(&self, other: &Self) -> bool {
        (self.input.value(), self.input.cursor(), self.on)
            == (other.input.value(), other.input.cursor(), other.on)
    }
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Does {
    /// The same as a key.
    Act(Action),
    /// Changes the colours.
    Theme(ThemeName),
    /// Moves the playhead.
    Play(PlayCommand),
}

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Its words: what is typed is looked for here.
    pub words: String,
    /// The keys that do the same.
    pub keys: String,
    /// What it does.
    pub does: Does,
}

/// Actions that a command line makes no sense of: moves of a cursor, and itself.
fn is_command(binding: &Binding) -> bool {
    use Action::{Bottom, Down, PageDown, PageUp, Palette, Top, Up};
    !matches!(binding.action, Up | Down | PageUp | PageDown | Top | Bottom | Palette)
}

/// The commands that what is typed stands for, the best first.
pub fn matches(model: &Model, typed: &str) -> Vec<Command> {
    let typed = typed.trim();
    let bindings = entry(model.ui.screen).bindings().filter(|binding| is_command(binding));
    let mut commands: Vec<Command> = bindings
        .map(|binding| Command {
            words: match binding.short {
                "" => binding.help.to_owned(),
                short => format!("{short}: {}", binding.help),
            },
            keys: binding.keys_text(),
            does: Does::Act(binding.action),
        })
        .collect();
    commands.extend(ThemeName::ALL.map(|theme| Command {
        words: format!("theme {}: {}", theme.name(), theme.words()),
        keys: String::new(),
        does: Does::Theme(theme),
    }));
    let mut found: Vec<(u32, Command)> =
        commands.into_iter().filter_map(|command| Some((score(&command.words, typed)?, command))).collect();
    found.sort_by_key(|(score, _)| *score);
    let moment = replay::parse_goto(model, typed).map(|to| Command {
        words: format!("go to {typed}"),
        keys: String::new(),
        does: Does::Play(to),
    });
    moment.into_iter().chain(found.into_iter().map(|(_, command)| command)).collect()
}

/// How badly words fit what is typed: 0 where they begin with it, more where its letters are strewn; `None` where they are not
/// all there in order.
fn score(words: &str, typed: &str) -> Option<u32> {
    let (words, typed) = (words.to_lowercase(), typed.to_lowercase());
    if let Some(at) = words.find(&typed) {
        let begins = at == 0 || words[..at].ends_with([' ', ':']);
        return Some(at as u32 + if begins { 0 } else { 100 });
    }
    let mut rest = words.char_indices();
    let (mut first, mut last) = (None, 0);
    for wanted in typed.chars().filter(|c| *c != ' ') {
        let (at, _) = rest.find(|(_, c)| *c == wanted)?;
        first.get_or_insert(at);
        last = at;
    }
    Some(1_000 + (last - first.unwrap_or(0)) as u32)
}

/// A key while the palette is open.
pub fn handle_key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Overlay::Palette(palette) = &mut model.ui.overlay else { return Vec::new() };
    match key.code {
        KeyCode::Esc => model.ui.overlay = Overlay::None,
        KeyCode::Backspace if palette.input.value().is_empty() => model.ui.overlay = Overlay::None,
        KeyCode::Up => palette.on = palette.on.saturating_sub(1),
        KeyCode::Down | KeyCode::Tab => palette.on += 1,
        KeyCode::Enter => {
            let (typed, on) = (palette.input.value().to_owned(), palette.on);
            let chosen = matches(model, &typed).into_iter().nth(on);
            model.ui.overlay = Overlay::None;
            return chosen.map_or_else(Vec::new, |command| carry_out(model, command.does));
        }
        _ => {
            if prompt::edit(&mut palette.input, key).is_some() {
                palette.on = 0;
            }
        }
    }
    if let Overlay::Palette(Palette { input, on }) = &model.ui.overlay {
        let most = matches(model, input.value()).len().saturating_sub(1);
        let on = (*on).min(most);
        if let Overlay::Palette(palette) = &mut model.ui.overlay {
            palette.on = on;
        }
    }
    Vec::new()
}

fn carry_out(model: &mut Model, does: Does) -> Vec<Effect> {
    match does {
        Does::Act(action) => perform(model, action),
        Does::Theme(theme) => {
            model.settings.theme = theme;
            Vec::new()
        }
        Does::Play(command) => vec![Effect::Play(command)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Stamp;

    #[test]
    fn what_is_typed_finds_its_command_first() {
        let model = Model::live(Vec::new(), Stamp(0), 0);
        let first = |typed: &str| matches(&model, typed).first().map(|command| command.does);
        assert_eq!(first("launch"), Some(Does::Act(Action::Launch)));
        assert_eq!(first("theme li"), Some(Does::Theme(ThemeName::Light)));
        assert_eq!(first("thmono"), Some(Does::Theme(ThemeName::Mono)), "letters in order do");
        assert_eq!(first("quit"), Some(Does::Act(Action::Quit)));
        assert_eq!(first("no such command"), None);
        assert!(matches(&model, "").len() > 10, "nothing typed shows all");
        assert!(first("50%").is_none(), "there is no replay to move");
    }
}
