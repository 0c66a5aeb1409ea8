//! Text for people in what the locale can show: without UTF-8 its marks are the ASCII ones that the UI draws there. What
//! programs read (`--json`, scripts, pages), what ranks print and what is written to files does not pass here.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::tui::canvas::{ascii, is_utf8};

static IS_UTF8: LazyLock<bool> = LazyLock::new(|| is_utf8(|name| std::env::var(name).ok()));

/// The text as this process's locale can show it.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if *IS_UTF8 { Cow::Borrowed(text) } else { ascii::text(text) }
}
