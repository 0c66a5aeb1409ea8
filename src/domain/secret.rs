//! Text that must not be shown, written down or left behind in memory.

use std::fmt;

use zeroize::Zeroizing;

/// A passphrase or password. Its memory is overwritten when it is dropped; `Debug` shows nothing of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of characters.
    pub fn chars(&self) -> usize {
        self.0.chars().count()
    }

    /// Adds a character. The text that a growing buffer leaves behind is overwritten.
    pub fn push(&mut self, c: char) {
        if self.0.len() + c.len_utf8() > self.0.capacity() {
            let mut wider = Zeroizing::new(String::with_capacity((self.0.capacity() * 2).max(128)));
            wider.push_str(&self.0);
            self.0 = wider;
        }
        self.0.push(c);
    }

    /// Takes the last character away.
    pub fn pop(&mut self) {
        self.0.pop();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_typed_and_never_shown() {
        let mut secret = Secret::default();
        for c in "päss".repeat(100).chars() {
            secret.push(c);
        }
        secret.pop();
        assert_eq!((secret.chars(), secret.is_empty()), (399, false));
        assert!(secret.reveal().ends_with("päs"));
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
