//! The Cluster screen of a person who looks on while a fault lasts, in a real terminal.

use std::time::Instant;

use super::rig::{Rig, until_some};
use crate::common::client::Client;
use crate::common::terminal::Terminal;

/// What the screen shows.
pub(crate) struct Screen(Terminal);

impl Screen {
    /// The Cluster screen of this person, once it shows all hosts. `None` where there is no tmux, which is said.
    pub(crate) fn of(rig: &Rig, person: &Client<'_>) -> Option<Self> {
        let screen = Self(Terminal::start(&person.hvtui(&[]), 120, 40)?);
        for host in rig.hosts() {
            screen.until(&format!("{host} on the screen"), || screen.row(&host).contains('%'));
        }
        Some(screen)
    }

    /// The line of a host; empty where it has none.
    pub(crate) fn row(&self, host: &str) -> String {
        row_of(&self.0.screen(), host).to_owned()
    }

    /// How many lines name a host.
    pub(crate) fn lines_about(&self, host: &str) -> usize {
        self.0.screen().lines().filter(|line| line.contains(host)).count()
    }

    /// The colour in which a host's load is written, as the terminal is told it.
    pub(crate) fn colour_of_load(&self, host: &str) -> String {
        let screen = self.0.coloured();
        let plain: Vec<String> = screen.lines().map(|line| cells(line).map(|(c, _)| c).collect()).collect();
        let head = plain.iter().find(|line| line.contains("LOAD")).expect("the columns' names");
        let last = head[..head.find("LOAD").expect("it is there")].chars().count() + 3;
        let at = plain.iter().position(|line| is_of(line, host)).expect("the host");
        let found = cells(screen.lines().nth(at).expect("its line")).nth(last);
        let (digit, colour) = found.expect("its load");
        assert!(digit.is_ascii_digit(), "{}", plain[at]);
        colour
    }

    /// Waits for something on it; the seconds until then.
    pub(crate) fn until(&self, what: &str, seen: impl Fn() -> bool) -> f64 {
        let since = Instant::now();
        until_some(&format!("{what}: {}", self.0.screen()), || seen().then_some(()));
        since.elapsed().as_secs_f64()
    }

    /// How long it takes from a key to what it shows.
    pub(crate) fn key(&self, key: &str, shows: impl Fn(&str) -> bool) -> f64 {
        self.0.press(&[key]);
        let since = Instant::now();
        self.0.wait(key, shows);
        since.elapsed().as_secs_f64()
    }
}

/// Whether a line is a host's: its name comes first, behind the cursor, a sign and a mark.
fn is_of(line: &str, host: &str) -> bool {
    line.chars().take(2).all(|c| !c.is_ascii_alphanumeric())
        && line.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).split_whitespace().next()
            == Some(host)
}

fn row_of<'a>(screen: &'a str, host: &str) -> &'a str {
    screen.lines().find(|line| is_of(line, host)).unwrap_or_default()
}

/// The characters of a line with escape sequences, each with the colour of its text.
fn cells(line: &str) -> impl Iterator<Item = (char, String)> {
    let mut cells = Vec::new();
    let mut colour = String::new();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            cells.push((c, colour.clone()));
            continue;
        }
        let words: String = rest.by_ref().skip(1).take_while(|c| *c != 'm').collect();
        if words.starts_with("38;") {
            colour = words;
        } else if words.split(';').any(|word| matches!(word, "0" | "39" | "")) {
            colour.clear();
        }
    }
    cells.into_iter()
}
