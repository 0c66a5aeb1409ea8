//! What a Python interpreter's command line runs: a module, or a script. Pure.

/// What the words behind the interpreter run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs<'a> {
    /// `-m`: its name, and the place of what follows it.
    Module(&'a str, usize),
    /// A script.
    Script(&'a str),
}

/// What the interpreter's `words` run; `None` for a program's text, for one that is typed, and for nothing at all. Flags
/// may stand together, as in `-um module`, and a value joined to its option, as in `-Wignore`.
pub fn runs<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Runs<'a>> {
    let mut words = words.into_iter().zip(1..);
    while let Some((word, at)) = words.next() {
        if word == "--check-hash-based-pycs" {
            words.next();
        } else if word.starts_with("--") {
            // no other of these takes a value
        } else if let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) {
            match flags.char_indices().find(|(_, flag)| "cmWXQ".contains(*flag)) {
                Some((_, 'c')) => return None,
                Some((place, 'm')) => {
                    return match &flags[place + 1..] {
                        "" => words.next().map(|(name, at)| Runs::Module(name, at)),
                        joined => Some(Runs::Module(joined, at)),
                    };
                }
                Some((place, _)) if place + 1 == flags.len() => drop(words.next()),
                _ => {}
            }
        } else {
            return (word != "-").then_some(Runs::Script(word));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_values_are_no_script() {
        let of = |line: &'static str| runs(line.split(' '));
        for line in [
            "x.py -m y",
            "-W ignore x.py",
            "-Wignore x.py",
            "-uW ignore x.py",
            "-X dev -u x.py",
            "-Q new x.py",
            "--check-hash-based-pycs always x.py",
            "-Xfrozen_modules=off x.py",
        ] {
            assert_eq!(of(line), Some(Runs::Script("x.py")), "{line}");
        }
        assert_eq!(of("-W error -m pkg.train x"), Some(Runs::Module("pkg.train", 4)));
        assert_eq!(of("-um pkg.train"), Some(Runs::Module("pkg.train", 2)));
        assert_eq!(of("-umpkg.train x"), Some(Runs::Module("pkg.train", 1)));
        for line in ["-c x.py", "-uc x.py", "- x.py", "-m", "-W", "-i"] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
