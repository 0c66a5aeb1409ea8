//! What the terminal can show, and the thirteen meanings that a style can have.

use ratatui::style::{Color, Modifier, Style};

use crate::domain::log_text::{self, Colour};
use crate::domain::timing::Phase;
use crate::tui::core::ThemeName;

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorDepth {
    /// None, or none wanted: only bold, dim and reverse.
    None,
    /// The terminal's own sixteen.
    Basic,
    /// The 256 of xterm.
    Indexed,
    /// All.
    Full,
}

/// How the names of terminals that show 256 colours begin, beside those that say so at their end.
const OF_256: [&str; 8] =
    ["tmux", "xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm", "contour", "rio"];

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
        } else if term.ends_with("-256color") || OF_256.iter().any(|name| term.starts_with(name)) {
            // ssh does not forward COLORTERM
            ColorDepth::Indexed
        } else {
            ColorDepth::Basic
        };
        Self { color, ascii: term == "dumb" || !is_utf8(get) }
    }
}

/// Whether the locale is one of UTF-8. `get` reads a variable; empty counts as absent, and none at all as a locale without.
pub fn is_utf8(get: impl Fn(&str) -> Option<String>) -> bool {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    let locale = get("LC_ALL").or_else(|| get("LC_CTYPE")).or_else(|| get("LANG")).unwrap_or_default();
    let locale = locale.to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The terminal's sixteen colours, by their numbers in SGR.
const SGR: [Color; 16] = [
    Color::Black,
    Color::Red,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::Gray,
    Color::DarkGray,
    Color::LightRed,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightBlue,
    Color::LightMagenta,
    Color::LightCyan,
    Color::White,
];

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
/// Of the 256, near to [`EITHER`] and as legible.
const EITHER_256: Hues = indexed([245, 32, 29, 136, 166, 67]);
/// Of the 256, for a dark terminal.
const DARK_256: Hues = indexed([246, 74, 36, 178, 202, 67]);
/// Of the 256, for a light terminal.
const LIGHT_256: Hues = indexed([242, 25, 29, 94, 124, 60]);
/// Of the 256, strong ones.
const CONTRAST_256: Hues = {
    let [_, accent, good, warn, bad, _] = indexed([0, 75, 35, 214, 202, 0]);
    [Color::Reset, accent, good, warn, bad, Color::Reset]
};
/// Of the sixteen.
const BASIC: Hues = [Color::DarkGray, Color::Cyan, Color::Green, Color::Yellow, Color::Red, Color::Blue];
/// Of the sixteen, strong ones.
const BASIC_CONTRAST: Hues =
    [Color::Reset, Color::LightCyan, Color::LightGreen, Color::LightYellow, Color::LightRed, Color::Reset];

const fn indexed([dim, accent, good, warn, bad, fill]: [u8; 6]) -> Hues {
    [
        Color::Indexed(dim),
        Color::Indexed(accent),
        Color::Indexed(good),
        Color::Indexed(warn),
        Color::Indexed(bad),
        Color::Indexed(fill),
    ]
}

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
    depth: ColorDepth,
    ascii: bool,
}

impl Theme {
    /// A theme for words that are measured and not drawn.
    pub(in crate::tui) fn colourless() -> Self {
        Self::new(Caps { color: ColorDepth::None, ascii: false }, ThemeName::Mono)
    }

    /// The theme of this name for a terminal. The hues are those of Okabe and Ito, told apart by colour-blind eyes too.
    pub(in crate::tui) fn new(caps: Caps, name: ThemeName) -> Self {
        let plain = Style::new();
        let depth = match name {
            ThemeName::Mono => ColorDepth::None,
            ThemeName::Terminal if caps.color != ColorDepth::None => ColorDepth::Basic,
            _ => caps.color,
        };
        let phases = match depth {
            ColorDepth::Full => PHASES,
            ColorDepth::Indexed => PHASES.map(|(back, ink)| (in_256(back), in_256(ink))),
            ColorDepth::Basic | ColorDepth::None => BASIC_PHASES,
        };
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
                depth,
                ascii: caps.ascii,
            };
        }
        let [dim, accent, good, warn, bad, fill] = match (depth, name) {
            (ColorDepth::Full, ThemeName::Dark) => DARK,
            (ColorDepth::Full, ThemeName::Light) => LIGHT,
            (ColorDepth::Full, ThemeName::Contrast) => CONTRAST,
            (ColorDepth::Full, _) => EITHER,
            (ColorDepth::Indexed, ThemeName::Dark) => DARK_256,
            (ColorDepth::Indexed, ThemeName::Light) => LIGHT_256,
            (ColorDepth::Indexed, ThemeName::Contrast) => CONTRAST_256,
            (ColorDepth::Indexed, _) => EITHER_256,
            (_, ThemeName::Contrast) => BASIC_CONTRAST,
            _ => BASIC,
        }
        .map(|color| plain.fg(color));
        let dim = if name == ThemeName::Contrast { plain } else { dim };
        Self { text: plain, dim, accent, good, warn, bad, fill, phases, depth, ascii: caps.ascii }
    }

    /// A style that a rank has asked for in its output, as far as the terminal has it, upon the style of the line.
    pub(in crate::tui) fn printed(&self, style: log_text::Style, line: Style) -> Style {
        let colour = |colour: Colour| match (self.depth, colour) {
            (ColorDepth::Full, Colour::Rgb(red, green, blue)) => Color::Rgb(red, green, blue),
            (ColorDepth::Full | ColorDepth::Indexed, Colour::Indexed(number)) => Color::Indexed(number),
            (ColorDepth::Indexed, Colour::Rgb(red, green, blue)) => in_256(Color::Rgb(red, green, blue)),
            (_, colour) => SGR[usize::from(colour.basic() & 15)],
        };
        let mut out = line;
        if self.is_colored() {
            out = style.fg.map_or(out, |fg| out.fg(colour(fg)));
            out = style.bg.map_or(out, |bg| out.bg(colour(bg)));
        }
        let modifiers = [
            (style.bold, Modifier::BOLD),
            (style.dim, Modifier::DIM),
            (style.italic, Modifier::ITALIC),
            (style.underline, Modifier::UNDERLINED),
            (style.inverse, Modifier::REVERSED),
        ];
        modifiers.into_iter().filter(|(is_on, _)| *is_on).fold(out, |out, (_, one)| out.add_modifier(one))
    }

    /// The arrows up and down as keys: words in ASCII, where `v` is a key of its own.
    pub(in crate::tui) fn up_down(&self) -> &'static str {
        if self.ascii { "up down" } else { "↑ ↓" }
    }

    /// Those to the left and right likewise.
    pub(in crate::tui) fn left_right(&self) -> &'static str {
        if self.ascii { "left right" } else { "← →" }
    }

    /// That to the right alone.
    pub(in crate::tui) fn right(&self) -> &'static str {
        if self.ascii { "right" } else { "→" }
    }

    /// Headlines.
    pub(in crate::tui) fn strong(&self) -> Style {
        self.text.add_modifier(Modifier::BOLD)
    }

    /// Whether phases can be told by colour.
    pub(in crate::tui) fn is_colored(&self) -> bool {
        self.depth != ColorDepth::None
    }

    /// Whether shades of a colour can be told apart: with sixteen colours and in ASCII, letters are better.
    pub(in crate::tui) fn has_shades(&self) -> bool {
        matches!(self.depth, ColorDepth::Indexed | ColorDepth::Full) && !self.ascii
    }

    /// A phase's background, and the ink that is legible on it.
    pub(in crate::tui) fn phase(&self, phase: Phase) -> (Color, Color) {
        self.phases[phase.index()]
    }
}

/// The nearest of the 256.
fn in_256(color: Color) -> Color {
    let Color::Rgb(red, green, blue) = color else { return color };
    match Colour::Rgb(red, green, blue).in_256() {
        Colour::Indexed(number) => Color::Indexed(number),
        Colour::Basic(_) | Colour::Rgb(..) => color,
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
        let (r, g, b) = match color {
            Color::Rgb(r, g, b) => (r, g, b),
            Color::Indexed(number) => Colour::Indexed(number).parts(),
            _ => panic!("{color:?}"),
        };
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
        for hue in EITHER.iter().chain(&EITHER_256) {
            assert!(on_black(hue) >= 3.0 && on_white(hue) >= 3.0, "{hue:?}");
        }
        assert!(DARK.iter().chain(&DARK_256).all(|hue| on_black(hue) >= 4.5));
        assert!(LIGHT.iter().chain(&LIGHT_256).all(|hue| on_white(hue) >= 4.5));
    }

    #[test]
    fn with_256_colours_the_themes_and_the_phases_are_not_alike_and_inks_are_legible() {
        use ThemeName::{Auto, Contrast, Dark, Light, Terminal};
        let theme = |name| Theme::new(Caps { color: ColorDepth::Indexed, ascii: false }, name);
        let hues =
            |name| [theme(name).accent.fg, theme(name).good.fg, theme(name).warn.fg, theme(name).bad.fg];
        for (at, name) in [Auto, Dark, Light, Contrast, Terminal].into_iter().enumerate() {
            let own = hues(name);
            assert!(
                [Auto, Dark, Light, Contrast, Terminal][at + 1..].iter().all(|other| hues(*other) != own)
            );
            assert!((0..4).all(|at| !own[at + 1..].contains(&own[at])), "{name:?}");
        }
        let phases = theme(Auto).phases;
        for (at, (back, ink)) in phases.iter().enumerate() {
            assert!(phases[at + 1..].iter().all(|(other, _)| other != back), "{at}");
            let (one, other) = (luminance(*back), luminance(*ink));
            assert!((one.max(other) + 0.05) / (one.min(other) + 0.05) >= 4.5, "{at}");
        }
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
    fn colours_of_a_rank_are_those_that_the_terminal_has() {
        let theme = |color| Theme::new(Caps { color, ascii: false }, ThemeName::default());
        let asked =
            log_text::Style { fg: Some(Colour::Rgb(250, 10, 10)), bold: true, ..log_text::Style::default() };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let printed = |color| theme(color).printed(asked, Style::new());
        assert_eq!(printed(ColorDepth::None), bold);
        assert_eq!(printed(ColorDepth::Basic), bold.fg(Color::LightRed));
        assert_eq!(printed(ColorDepth::Indexed), bold.fg(Color::Indexed(196)));
        assert_eq!(printed(ColorDepth::Full), bold.fg(Color::Rgb(250, 10, 10)));
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
        for term in
            ["xterm-256color", "screen-256color", "tmux", "tmux-256color", "xterm-kitty", "alacritty", "foot"]
        {
            assert_eq!(caps(&[("TERM", term)]).color, ColorDepth::Indexed, "{term}");
            assert_eq!(caps(&[("TERM", term), ("COLORTERM", "truecolor")]).color, ColorDepth::Full, "{term}");
        }
        for term in ["xterm", "linux", "vt100", "screen"] {
            assert_eq!(caps(&[("TERM", term)]).color, ColorDepth::Basic, "{term}");
        }
    }
}
