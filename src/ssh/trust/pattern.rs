//! Patterns of names: `*` and `?`, lists of them, and `!` before one that must not match.

/// Whether a name matches one pattern: `*` is any text, `?` one character.
pub(in crate::ssh) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut done) = (0, 0);
    // Where to go on if what follows the last star fits no further: the star takes one more character.
    let mut star = None;
    while done < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, done));
                at += 1;
            }
            Some(letter) if *letter == '?' || name.get(done) == Some(letter) => {
                at += 1;
                done += 1;
            }
            _ => match star {
                Some((before, from)) => {
                    star = Some((before, from + 1));
                    at = before + 1;
                    done = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|letter| *letter == '*')
}

/// Whether a list of patterns takes a name: one matches, and none that is negated does.
pub(in crate::ssh) fn any<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if matches(negated, name) => return false,
            Some(_) => {}
            None => found = found || matches(pattern, name),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in
            [("*", ""), ("a*", "a"), ("*.lan", "x.lan"), ("g?u-*", "gpu-1"), ("*a*b*", "xaxxbx"), ("**", "a")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", "ab"), ("?", ""), ("*.lan", "x.lan.de"), ("*a*b", "ba")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        // No pattern takes long over any name.
        assert!(!matches(&"a*".repeat(1000), &"a".repeat(900)));
    }

    #[test]
    fn a_negated_pattern_only_takes_away() {
        assert!(any(["*.lan", "!x.lan"], "y.lan"));
        assert!(!any(["!x.lan", "*.lan"], "x.lan"));
        assert!(!any(["!x.lan"], "y.lan"));
    }
}
