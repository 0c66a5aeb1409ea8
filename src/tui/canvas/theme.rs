//! What the terminal can show, and the thirteen meanings that a style can have.

use ratatui::style::{Color, Modifier, Style};

use crate::domain::timing::Phase;

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorDepth {
    /// None, or none wanted: only bold, dim and reverse.
    None,
    /// The terminal's own sixteen.
    Basic,
    /// All.
    Full,
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Colours.
    pub color: ColorDepth,
    /// Nothing but ASCII may be drawn.
    pub ascii: bool,
}

impl Caps {
    /// What the environment says: `NO_COLOR`, `COLORTERM`, `TERM`, and the locale variables that say
    /// whether the terminal speaks UTF-8. `get` reads a variable; empty counts as absent.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let term = get("TERM").unwrap_or_default();
        let color = if get("NO_COLOR").is_some() || term == "dumb" {
            ColorDepth::None
        } else if get("COLORTERM").is_some_and(|depth| depth == "truecolor" || depth == "24bit") {
            ColorDepth::Full
        } else {
            ColorDepth::Basic
        };
        let locale = get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")).unwrap_or_default();
        let locale = locale.to_lowercase();
        let utf8 = locale.contains("utf-8") || locale.contains("utf8");
        Self { color, ascii: term == "dumb" || !utf8 }
    }
}

/// The slots: seven meanings and the phases.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Ordinary text.
    pub text: Style,
    /// Old, absent or secondary.
    pub dim: Style,
    /// Yours: picks, runs, the cursor.
    pub accent: Style,
    /// Fine.
    pub good: Style,
    /// Look.
    pub warn: Style,
    /// Act.
    pub bad: Style,
    /// What fills bars and sparklines that mean neither good nor bad.
    pub fill: Style,
    phases: [(Color, Color); Phase::COUNT],
    colored: bool,
}

impl Theme {
    /// The theme for a terminal. The phases' hues are those of Okabe and Ito, told apart by colour-blind
    /// eyes too.
    pub(in crate::tui) fn new(caps: Caps) -> Self {
        let plain = Style::new();
        let ink = Color::Black;
        let phases = match caps.color {
            ColorDepth::Full => {
                let dark = Color::Rgb(16, 16, 16);
                [
                    (Color::Rgb(240, 228, 66), dark),
                    (Color::Rgb(86, 180, 233), dark),
                    (Color::Rgb(0, 114, 178), Color::Rgb(255, 255, 255)),
                    (Color::Rgb(213, 94, 0), dark),
                    (Color::Rgb(230, 159, 0), dark),
                    (Color::Rgb(0, 158, 115), dark),
                    (Color::Rgb(128, 136, 150), dark),
                ]
            }
            _ => [
                (Color::LightYellow, ink),
                (Color::LightCyan, ink),
                (Color::Blue, Color::White),
                (Color::Red, Color::White),
                (Color::Yellow, ink),
                (Color::Green, ink),
                (Color::DarkGray, Color::White),
            ],
        };
        if caps.color == ColorDepth::None {
            let (bold, dim) = (plain.add_modifier(Modifier::BOLD), plain.add_modifier(Modifier::DIM));
            return Self {
                text: plain,
                dim,
                accent: bold,
                good: plain,
                warn: bold,
                bad: bold,
                fill: plain,
                phases,
                colored: false,
            };
        }
        // greys that are legible on dark and on light; the sixteen colours have none such
        let (dim, fill) = match caps.color {
            ColorDepth::Full => (Color::Rgb(128, 136, 150), Color::Rgb(96, 125, 163)),
            _ => (Color::DarkGray, Color::Blue),
        };
        Self {
            text: plain,
            dim: plain.fg(dim),
            accent: plain.fg(Color::Cyan),
            good: plain.fg(Color::Green),
            warn: plain.fg(Color::Yellow),
            bad: plain.fg(Color::Red),
            fill: plain.fg(fill),
            phases,
            colored: true,
        }
    }

    /// Headlines.
    pub(in crate::tui) fn strong(&self) -> Style {
        self.text.add_modifier(Modifier::BOLD)
    }

    /// Whether phases can be told by colour.
    pub(in crate::tui) fn is_colored(&self) -> bool {
        self.colored
    }

    /// A phase's background, and the ink that is legible on it.
    pub(in crate::tui) fn phase(&self, phase: Phase) -> (Color, Color) {
        self.phases[phase.index()]
    }
}

/// A phase's letter, for bars without colour and for the legend.
pub(in crate::tui) fn letter(phase: Phase) -> char {
    match phase {
        Phase::Data => 'd',
        Phase::Forward => 'f',
        Phase::Backward => 'b',
        Phase::Wait => 'w',
        Phase::Transfer => 'x',
        Phase::Optimizer => 'o',
        Phase::Other => '·',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        let caps = |vars: &[(&str, &str)]| {
            let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            Caps::from_env(find)
        };
        assert_eq!(
            caps(&[("LANG", "en_GB.UTF-8"), ("COLORTERM", "truecolor"), ("TERM", "xterm")]),
            Caps { color: ColorDepth::Full, ascii: false }
        );
        assert_eq!(
            caps(&[("LANG", "de_DE.UTF-8"), ("NO_COLOR", "1"), ("TERM", "xterm")]),
            Caps { color: ColorDepth::None, ascii: false }
        );
        assert_eq!(
            caps(&[("LANG", "en_GB.UTF-8"), ("LC_ALL", "C"), ("NO_COLOR", "")]),
            Caps { color: ColorDepth::Basic, ascii: true }
        );
    }
}
