//! What the terminal can show, and the thirteen meanings that a style can have.

use ratatui::style::{Color, Modifier, Style};

use crate::domain::timing::Phase;
use crate::tui::core::ThemeName;

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

/// Dim, accent, good, warn, bad, fill.
type Hues = [Color; 6];

/// Legible on dark and on light: each has a contrast of 3 and more to black and to white.
const EITHER: Hues = [
    Color::Rgb(128, 136, 150),
    Color::Rgb(46, 146, 214),
    Color::Rgb(0, 158, 115),
    Color::Rgb(205, 133, 0),
    Color::Rgb(222, 88, 20),
    Color::Rgb(96, 125, 163),
];
/// For a dark terminal.
const DARK: Hues = [
    Color::Rgb(140, 148, 162),
    Color::Rgb(86, 180, 233),
    Color::Rgb(0, 190, 140),
    Color::Rgb(240, 190, 60),
    Color::Rgb(255, 110, 50),
    Color::Rgb(110, 145, 190),
];
/// For a light terminal.
const LIGHT: Hues = [
    Color::Rgb(105, 112, 124),
    Color::Rgb(0, 95, 160),
    Color::Rgb(0, 115, 85),
    Color::Rgb(145, 90, 0),
    Color::Rgb(180, 55, 0),
    Color::Rgb(70, 100, 140),
];
/// Strong ones.
const CONTRAST: Hues = [
    Color::Reset,
    Color::Rgb(60, 170, 255),
    Color::Rgb(0, 175, 110),
    Color::Rgb(235, 150, 0),
    Color::Rgb(255, 70, 0),
    Color::Reset,
];
/// Of the sixteen.
const BASIC: Hues = [Color::DarkGray, Color::Cyan, Color::Green, Color::Yellow, Color::Red, Color::Blue];
/// Of the sixteen, strong ones.
const BASIC_CONTRAST: Hues =
    [Color::Reset, Color::LightCyan, Color::LightGreen, Color::LightYellow, Color::LightRed, Color::Reset];

/// The ink on bright backgrounds.
const INK: Color = Color::Rgb(16, 16, 16);
/// Background and ink of each phase.
const PHASES: [(Color, Color); Phase::COUNT] = [
    (Color::Rgb(240, 228, 66), INK),
    (Color::Rgb(86, 180, 233), INK),
    (Color::Rgb(0, 114, 178), Color::Rgb(255, 255, 255)),
    (Color::Rgb(213, 94, 0), INK),
    (Color::Rgb(230, 159, 0), INK),
    (Color::Rgb(0, 158, 115), INK),
    (Color::Rgb(128, 136, 150), INK),
];
/// The same with the sixteen.
const BASIC_PHASES: [(Color, Color); Phase::COUNT] = [
    (Color::LightYellow, Color::Black),
    (Color::LightCyan, Color::Black),
    (Color::Blue, Color::White),
    (Color::Red, Color::White),
    (Color::Yellow, Color::Black),
    (Color::Green, Color::Black),
    (Color::DarkGray, Color::White),
];

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
    /// The theme of this name for a terminal. The hues are those of Okabe and Ito, told apart by colour-blind eyes too.
    pub(in crate::tui) fn new(caps: Caps, name: ThemeName) -> Self {
        let plain = Style::new();
        let depth = match name {
            ThemeName::Mono => ColorDepth::None,
            ThemeName::Terminal if caps.color == ColorDepth::Full => ColorDepth::Basic,
            _ => caps.color,
        };
        let phases = if depth == ColorDepth::Full { PHASES } else { BASIC_PHASES };
        if depth == ColorDepth::None {
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
        let [dim, accent, good, warn, bad, fill] = match (depth, name) {
            (ColorDepth::Full, ThemeName::Dark) => DARK,
            (ColorDepth::Full, ThemeName::Light) => LIGHT,
            (ColorDepth::Full, ThemeName::Contrast) => CONTRAST,
            (ColorDepth::Full, _) => EITHER,
            (_, ThemeName::Contrast) => BASIC_CONTRAST,
            _ => BASIC,
        }
        .map(|color| plain.fg(color));
        let dim = if name == ThemeName::Contrast { plain } else { dim };
        Self { text: plain, dim, accent, good, warn, bad, fill, phases, colored: true }
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

    /// Relative luminance by WCAG 2.
    fn luminance(color: Color) -> f64 {
        let Color::Rgb(r, g, b) = color else { panic!("{color:?}") };
        let part = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
    }

    #[test]
    fn every_hue_is_legible_where_its_theme_is_for() {
        let on_black = |hue: &Color| (luminance(*hue) + 0.05) / 0.05;
        let on_white = |hue: &Color| 1.05 / (luminance(*hue) + 0.05);
        for hue in &EITHER {
            assert!(on_black(hue) >= 3.0 && on_white(hue) >= 3.0, "{hue:?}");
        }
        assert!(DARK.iter().all(|hue| on_black(hue) >= 4.5));
        assert!(LIGHT.iter().all(|hue| on_white(hue) >= 4.5));
    }

    #[test]
    fn a_theme_never_shows_more_colours_than_the_terminal() {
        for name in ThemeName::ALL {
            let plain = Theme::new(Caps { color: ColorDepth::None, ascii: false }, name);
            assert!(!plain.is_colored() && plain.bad.fg.is_none(), "{name:?}");
            let basic = Theme::new(Caps { color: ColorDepth::Basic, ascii: false }, name);
            assert!(!matches!(basic.bad.fg, Some(Color::Rgb(..))), "{name:?}");
        }
    }

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
