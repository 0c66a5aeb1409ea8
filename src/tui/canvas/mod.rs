//! What views draw with: text in columns, bars, tables, themes. Knows no model.

pub mod ascii;
pub mod bars;
pub mod columns;
mod surface;
pub mod theme;

pub use surface::Canvas;
pub(in crate::tui) use surface::{skip_columns, width};
pub use theme::{Caps, ColorDepth, is_utf8};
