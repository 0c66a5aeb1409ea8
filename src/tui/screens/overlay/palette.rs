//! The commands of the screen by name: what is typed is matched against all of its bindings, the themes, and in a replay
//! against moments. Keys that only move are no commands.

use tui_input::Input;

use crate::tui::core::keymap::{Action, Binding};
use crate::tui::core::{Effect, Key, KeyCode, PlayCommand, ThemeName};
use crate::tui::screens::model::Overlay;
use crate::tui::screens::overlay::prompt;
use crate::tui::screens::update::perform;
use crate::tui::screens::{Model, entry, readonly, replay};

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
    /// Leaves the mouse to the terminal, or takes it.
    TerminalMouse(bool),
    /// Moves the playhead.
    Play(PlayCommand),
}

/// A command.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Its name: letters that are typed are looked for here in their order.
    pub name: String,
    /// Its name and what it does: what is typed is looked for here as it is.
    pub words: String,
    /// The keys that do the same.
    pub keys: String,
    /// What it does.
    pub does: Does,
}

/// What the mouse does with hvtui, and without it.
const MOUSE_ON: &str = "a click selects, the wheel scrolls";
const MOUSE_OFF: &str = "it is the terminal's, which selects text to copy";

/// Actions that a command line makes no sense of: moves of a cursor, and itself.
fn is_command(binding: &Binding) -> bool {
    use Action::{Bottom, Down, Left, PageDown, PageUp, Palette, Right, Top, Up};
    !matches!(binding.action, Up | Down | Left | Right | PageUp | PageDown | Top | Bottom | Palette)
}

/// The commands that what is typed stands for, the best first.
pub fn matches(model: &Model, typed: &str) -> Vec<Command> {
    let typed = typed.trim();
    let mut commands: Vec<Command> = Vec::new();
    let offered = |binding: &&Binding| is_command(binding) && readonly::allows(model, binding.action);
    for binding in entry(model.ui.screen).bindings().filter(offered) {
        let does = Does::Act(binding.action);
        // what stands first is what the screen makes of it
        if commands.iter().all(|other| other.does != does) {
            let keys = binding.keys_text(model.ascii);
            commands.push(Command::new(binding.name.to_owned(), binding.help, keys, does));
        }
    }
    commands.extend(ThemeName::ALL.map(|theme| {
        Command::new(format!("theme {}", theme.name()), theme.words(), String::new(), Does::Theme(theme))
    }));
    let (name, help) =
        if model.settings.terminal_mouse { ("mouse on", MOUSE_ON) } else { ("mouse off", MOUSE_OFF) };
    let does = Does::TerminalMouse(!model.settings.terminal_mouse);
    commands.push(Command::new(name.to_owned(), help, String::new(), does));
    let mut found: Vec<(u32, Command)> =
        commands.into_iter().filter_map(|command| Some((score(&command, typed)?, command))).collect();
    found.sort_by_key(|(score, _)| *score);
    let moment = replay::parse_goto(model, typed).map(|to| {
        let words = format!("go to {typed}");
        Command { name: words.clone(), words, keys: String::new(), does: Does::Play(to) }
    });
    moment.into_iter().chain(found.into_iter().map(|(_, command)| command)).collect()
}

impl Command {
    fn new(name: String, help: &str, keys: String, does: Does) -> Self {
        let words =
            if help.starts_with(&format!("{name}:")) { help.to_owned() } else { format!("{name}: {help}") };
        Self { name, words, keys, does }
    }
}

/// How badly a command fits what is typed: 0 where its words begin with it, more where its letters are strewn over the name;
/// `None` where they are not all there in order.
fn score(command: &Command, typed: &str) -> Option<u32> {
    let (words, typed) = (command.words.to_lowercase(), typed.to_lowercase());
    if let Some(at) = words.find(&typed) {
        let begins = at == 0 || words[..at].ends_with([' ', ':']);
        return Some(at as u32 + if begins { 0 } else { 100 });
    }
    let name = command.name.to_lowercase();
    let mut rest = name.char_indices();
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
        Does::TerminalMouse(is_terminals) => {
            model.settings.terminal_mouse = is_terminals;
            Vec::new()
        }
        Does::Play(command) => vec![Effect::Play(command)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Stamp;
    use crate::tui::screens::SCREENS;

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

    #[test]
    fn what_a_read_only_client_refuses_is_no_command_of_it() {
        let mut model = Model::live(Vec::new(), Stamp(0), 0);
        let has = |model: &Model, action: Action| {
            matches(model, "").iter().any(|command| command.does == Does::Act(action))
        };
        assert!(has(&model, Action::Launch) && has(&model, Action::Signal) && has(&model, Action::Quit));
        model.readonly = true;
        assert!(!has(&model, Action::Launch) && !has(&model, Action::Signal) && has(&model, Action::Quit));
    }

    #[test]
    fn each_command_has_a_name_and_no_two_of_a_screen_have_the_same() {
        for screen in
            SCREENS.iter().filter(|screen| screen.bindings().any(|one| one.action == Action::Palette))
        {
            let mut model = Model::live(Vec::new(), Stamp(0), 0);
            model.ui.screen = screen.screen;
            let commands = matches(&model, "");
            for (at, command) in commands.iter().enumerate() {
                let (name, words) = (&command.name, &command.words);
                assert!(!name.is_empty() && name.len() <= 16, "{} {words}", screen.name);
                assert!(
                    !commands[at + 1..].iter().any(|other| other.name == *name),
                    "{} {name}",
                    screen.name
                );
                assert!(words.starts_with(&format!("{name}:")), "{} {words}", screen.name);
                assert!(!words.starts_with(&format!("{name}: {name}:")), "{} {words}", screen.name);
            }
        }
    }

    #[test]
    fn a_name_is_found_and_a_sentence_is_not_pieced_together() {
        let mut model = Model::live(Vec::new(), Stamp(0), 0);
        model.ui.screen = crate::tui::core::Screen::Run;
        let found: Vec<Does> = matches(&model, "save").iter().map(|command| command.does).collect();
        assert_eq!(found, [Does::Act(Action::Save)]);
        assert_eq!(matches(&model, "sve")[0].does, Does::Act(Action::Save));
    }
}
