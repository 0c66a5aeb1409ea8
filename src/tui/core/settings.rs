//! What a person has chosen about the look: kept between two starts of the program.

use serde::{Deserialize, Serialize};

use crate::domain::run_list::RunOrder;
use crate::tui::core::orders::HostsOrdered;

/// A set of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThemeName {
    /// Colours that can be told apart by colour-blind eyes, legible on dark and on light.
    #[default]
    Auto,
    /// The same, brighter, for a dark terminal.
    Dark,
    /// The same, darker, for a light terminal.
    Light,
    /// Nothing dim, strong colours.
    Contrast,
    /// The sixteen colours of the terminal, as its own settings have them.
    Terminal,
    /// No colours: bold, dim and reverse.
    Mono,
}

impl ThemeName {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Auto, Self::Dark, Self::Light, Self::Contrast, Self::Terminal, Self::Mono];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Contrast => "contrast",
            Self::Terminal => "terminal",
            Self::Mono => "mono",
        }
    }

    /// What it is for.
    pub fn words(self) -> &'static str {
        match self {
            Self::Auto => "legible on dark and light, safe for colour-blind eyes",
            Self::Dark => "brighter, for a dark terminal",
            Self::Light => "darker, for a light terminal",
            Self::Contrast => "high contrast, nothing dim",
            Self::Terminal => "the sixteen colours of the terminal",
            Self::Mono => "no colours",
        }
    }
}

/// How much of the Cluster screen a GPU takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Density {
    /// A row each, or a cell where that would be many screens of rows.
    #[default]
    Auto,
    /// A row.
    Rows,
    /// A cell.
    Heat,
}

/// What is kept between two starts. A setting that an older or newer program wrote and this one does not know is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The colours.
    pub theme: ThemeName,
    /// The Cluster screen.
    pub density: Density,
    /// The order of its hosts.
    pub hosts: HostsOrdered,
    /// The order of the Runs screen.
    pub runs: RunOrder,
    /// Long lines of a log go on in the next row.
    pub wrap: bool,
    /// The Run screen has its timeline.
    pub timeline: bool,
    /// The mouse is the terminal's own: it selects text there, and no click comes to the UI.
    pub terminal_mouse: bool,
}
