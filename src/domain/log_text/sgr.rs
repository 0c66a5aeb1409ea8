//! Control sequences in what a rank printed: colours and weight become styles, every other sequence goes. Pure.
//!
//! Sequences are those of ECMA-48 and xterm: CSI, OSC, DCS, SOS, PM, APC, character sets, in seven and in eight bits. One
//! that does not end before its line does is left out to the end.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter::Peekable;

use serde::{Deserialize, Serialize};

use crate::domain::text::sanitize;

/// A colour that a program asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Colour {
    /// One of the terminal's sixteen.
    Basic(u8),
    /// One of xterm's 256, from 16 on.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

impl Colour {
    /// A number of the palette of 256.
    fn indexed(number: u8) -> Self {
        if number < 16 { Self::Basic(number) } else { Self::Indexed(number) }
    }

    /// The nearest of the terminal's sixteen.
    pub fn basic(self) -> u8 {
        match self {
            Self::Basic(number) => number,
            Self::Rgb(red, green, blue) => nearest(red, green, blue),
            Self::Indexed(_) => {
                let (red, green, blue) = self.parts();
                nearest(red, green, blue)
            }
        }
    }

    /// Red, green and blue; of the 256 from 16 on a cube of six steps, then greys. The sixteen are the terminal's own.
    pub fn parts(self) -> (u8, u8, u8) {
        match self {
            Self::Basic(_) => (0, 0, 0),
            Self::Rgb(red, green, blue) => (red, green, blue),
            Self::Indexed(number @ 232..) => {
                let grey = (number - 232) * 10 + 8;
                (grey, grey, grey)
            }
            Self::Indexed(number) => {
                let cube = number.saturating_sub(16);
                let part = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
                (part(cube / 36), part(cube / 6 % 6), part(cube % 6))
            }
        }
    }

    /// The nearest of xterm's 256.
    #[must_use]
    pub fn in_256(self) -> Self {
        let Self::Rgb(red, green, blue) = self else { return self };
        // a channel of the cube is 0, 95, 135 and so on to 255
        let step = |part: u8| match part {
            0..48 => 0,
            48..115 => 1,
            _ => (part - 35) / 40,
        };
        let cube = 16 + 36 * step(red) + 6 * step(green) + step(blue);
        let mean = (u16::from(red) + u16::from(green) + u16::from(blue)) / 3;
        let grey = 232 + (mean.saturating_sub(3) / 10).min(23) as u8;
        let off = |number: u8| {
            let (r, g, b) = Self::Indexed(number).parts();
            let squares = [(r, red), (g, green), (b, blue)].map(|(a, b)| u32::from(a.abs_diff(b)).pow(2));
            squares.iter().sum::<u32>()
        };
        Self::Indexed(if off(grey) < off(cube) { grey } else { cube })
    }
}

/// Which of sixteen is nearest: its parts against a half, bright where one is above three quarters.
fn nearest(red: u8, green: u8, blue: u8) -> u8 {
    let most = red.max(green).max(blue);
    let least = red.min(green).min(blue);
    if most - least < 32 {
        return match most {
            0..=47 => 0,
            48..=143 => 8,
            144..=223 => 7,
            _ => 15,
        };
    }
    let bit = |part: u8, bit: u8| if part > most / 2 { bit } else { 0 };
    let hue = bit(red, 1) | bit(green, 2) | bit(blue, 4);
    if most > 205 { hue + 8 } else { hue }
}

/// How a part of a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one attribute of SGR")]
pub struct Style {
    /// The ink; `None` = the terminal's own.
    pub fg: Option<Colour>,
    /// What is behind it.
    pub bg: Option<Colour>,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Ink and background change places.
    pub inverse: bool,
}

impl Style {
    /// How a text looks behind this one, which begins so.
    #[must_use]
    pub fn after(self, text: &str) -> Self {
        let (mut style, mut rest) = (self, text);
        while let Some(at) = rest.find(is_lead_in) {
            rest = sequence(&rest[at..], &mut style);
        }
        style
    }
}

/// A part of a line that looks alike; its text is safe for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The text.
    pub text: String,
    /// How it looks.
    pub style: Style,
}

/// Whether a character begins a control sequence or stands for one.
pub(super) fn is_lead_in(c: char) -> bool {
    matches!(c, '\u{8}' | '\u{e}' | '\u{f}' | '\u{1b}' | '\u{80}'..='\u{9f}')
}

/// Takes a text apart that begins in this style.
pub(super) fn parse(style: Style, text: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut style = style;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_lead_in).unwrap_or(rest.len());
        let (shown, behind) = rest.split_at(end);
        push(&mut spans, shown, style);
        rest = sequence(behind, &mut style);
    }
    spans
}

fn push(spans: &mut Vec<Span>, text: &str, style: Style) {
    // `sanitize` takes what is behind the last carriage return, and there is none here
    let text: Cow<'_, str> = sanitize(text);
    if text.is_empty() {
        return;
    }
    match spans.last_mut() {
        Some(last) if last.style == style => last.text.push_str(&text),
        _ => spans.push(Span { text: text.into_owned(), style }),
    }
}

/// Leaves out the control sequence that the text begins with; gives what is behind it.
fn sequence<'a>(text: &'a str, style: &mut Style) -> &'a str {
    let mut rest = text.chars();
    match rest.next() {
        Some('\u{1b}') => {}
        Some('\u{9b}') => return control(rest.as_str(), style),
        Some('\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => return string(rest.as_str()),
        _ => return rest.as_str(),
    }
    let behind = rest.as_str();
    match rest.next() {
        Some('[') => control(rest.as_str(), style),
        Some('P' | 'X' | ']' | '^' | '_') => string(rest.as_str()),
        // intermediate bytes, as of a character set, then one that ends the sequence
        Some(' '..='/') => {
            let mut rest = rest.as_str().trim_start_matches(|c| matches!(c, ' '..='/')).chars();
            let ended = rest.as_str();
            match rest.next() {
                Some('0'..='~') => rest.as_str(),
                _ => ended,
            }
        }
        Some('0'..='~') => rest.as_str(),
        _ => behind,
    }
}

/// Behind the lead-in of a CSI sequence.
fn control<'a>(text: &'a str, style: &mut Style) -> &'a str {
    let Some(end) = text.find(|c| !matches!(c, ' '..='?')) else { return "" };
    let (parameters, behind) = text.split_at(end);
    match behind.chars().next() {
        Some('m') => {
            select(parameters, style);
            &behind[1..]
        }
        Some('@'..='~') => &behind[1..],
        // something that no sequence has: it is shown
        _ => behind,
    }
}

/// Behind the lead-in of a string: up to its terminator, or to the end.
fn string(text: &str) -> &str {
    let ends = |c: char| matches!(c, '\u{7}' | '\u{18}' | '\u{1a}' | '\u{1b}' | '\u{9c}');
    let Some(end) = text.find(ends) else { return "" };
    let behind = &text[end..];
    if let Some(rest) = behind.strip_prefix("\u{1b}\\") {
        return rest;
    }
    // an escape that is no terminator begins a sequence of its own
    if behind.starts_with('\u{1b}') {
        return behind;
    }
    let mut rest = behind.chars();
    rest.next();
    rest.as_str()
}

/// Select graphic rendition. Parameters are separated by `;`, and within one by `:`.
fn select(parameters: &str, style: &mut Style) {
    if !parameters.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')) {
        // private, or with intermediate bytes: another function
        return;
    }
    let mut numbers = parameters.split(';').peekable();
    while let Some(parameter) = numbers.next() {
        let mut parts = parameter.split(':');
        let first = number(parts.next().unwrap_or_default());
        match first {
            0 => *style = Style::default(),
            1 => style.bold = true,
            2 => style.dim = true,
            3 => style.italic = true,
            4 => style.underline = parts.next() != Some("0"),
            21 => style.underline = true,
            7 => style.inverse = true,
            22 => (style.bold, style.dim) = (false, false),
            23 => style.italic = false,
            24 => style.underline = false,
            27 => style.inverse = false,
            30..=37 => style.fg = Some(Colour::Basic((first - 30) as u8)),
            39 => style.fg = None,
            40..=47 => style.bg = Some(Colour::Basic((first - 40) as u8)),
            49 => style.bg = None,
            90..=97 => style.fg = Some(Colour::Basic((first - 82) as u8)),
            100..=107 => style.bg = Some(Colour::Basic((first - 92) as u8)),
            38 | 48 => {
                let within: Vec<&str> = parts.collect();
                let colour = if within.is_empty() { extended(&mut numbers) } else { within_one(&within) };
                // of one that is not understood the count of its numbers is unknown
                let Some(colour) = colour else { return };
                *(if first == 38 { &mut style.fg } else { &mut style.bg }) = Some(colour);
            }
            _ => {}
        }
    }
}

/// `5;N` or `2;R;G;B` behind a 38 or 48.
fn extended<'a>(numbers: &mut Peekable<impl Iterator<Item = &'a str>>) -> Option<Colour> {
    let mut part = || numbers.next().and_then(|text| u8::try_from(number(text)).ok());
    match part()? {
        5 => Some(Colour::indexed(part()?)),
        2 => Some(Colour::Rgb(part()?, part()?, part()?)),
        _ => None,
    }
}

/// The same with colons, where a colour space may stand before the three parts.
fn within_one(parts: &[&str]) -> Option<Colour> {
    let part = |at: usize| u8::try_from(number(parts.get(at)?)).ok();
    match part(0)? {
        5 => Some(Colour::indexed(part(1)?)),
        2 => {
            let from = if parts.len() > 4 { 2 } else { 1 };
            Some(Colour::Rgb(part(from)?, part(from + 1)?, part(from + 2)?))
        }
        _ => None,
    }
}

/// A parameter; none is 0, and one that is too large is unknown.
fn number(text: &str) -> u32 {
    if text.is_empty() { 0 } else { text.parse().unwrap_or(u32::MAX) }
}

/// The text with these styles as SGR sequences of its own making: for a terminal that shows colours.
pub fn to_terminal(spans: &[Span]) -> String {
    let mut out = String::new();
    for Span { text, style } in spans {
        let codes = codes(*style);
        if codes.is_empty() {
            out.push_str(text);
        } else {
            let _ = write!(out, "\u{1b}[{}m{text}\u{1b}[0m", codes.join(";"));
        }
    }
    out
}

fn codes(style: Style) -> Vec<String> {
    let flags =
        [(style.bold, 1), (style.dim, 2), (style.italic, 3), (style.underline, 4), (style.inverse, 7)];
    let mut codes: Vec<String> =
        flags.into_iter().filter(|(is_on, _)| *is_on).map(|(_, code)| code.to_string()).collect();
    for (colour, base) in [(style.fg, 0), (style.bg, 10)] {
        codes.extend(colour.map(|colour| match colour {
            Colour::Basic(number @ 0..8) => (30 + base + u32::from(number)).to_string(),
            Colour::Basic(number) => (82 + base + u32::from(number)).to_string(),
            Colour::Indexed(number) => format!("{};5;{number}", 38 + base),
            Colour::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", 38 + base),
        }));
    }
    codes
}

#[cfg(test)]
#[path = "sgr_tests.rs"]
mod tests;
