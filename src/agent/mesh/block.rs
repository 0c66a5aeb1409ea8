//! Lines of ours between marks at the beginning of a file that people write. Pure: bytes to bytes, and what is not
//! ours stays as it is, whatever it is.

/// Marks of one mesh that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the line `{0}` has no `{1}` behind it: remove what hvtui wrote there by hand")]
pub(super) struct Unclosed(String, String);

/// The lines around ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Marks {
    begin: String,
    end: String,
}

/// What is behind the words of a first mark when there was no file.
const MADE: &str = " (hvtui made this file)";

impl Marks {
    pub(super) fn of(id: &str, made: bool) -> Self {
        let made = if made { MADE } else { "" };
        Self { begin: format!("# hvtui-mesh {id} begin{made}"), end: format!("# hvtui-mesh {id} end") }
    }

    /// All that is written.
    pub(super) fn lines(&self, line: &str) -> Vec<String> {
        vec![self.begin.clone(), line.to_owned(), self.end.clone()]
    }
}

/// A file without our lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) text: Vec<u8>,
    /// There was no file before ours.
    pub(super) made: bool,
}

/// The file with `line` between marks, in the place of what was there of the same mesh.
pub(super) fn put(old: Option<&[u8]>, id: &str, line: &str) -> Result<Vec<u8>, Unclosed> {
    let (rest, made) = match old {
        None => (Vec::new(), true),
        Some(old) => match take(old, id)? {
            Some(rest) => (rest.text, rest.made),
            None => (old.to_vec(), false),
        },
    };
    let mut text = Marks::of(id, made).lines(line).join("\n").into_bytes();
    text.push(b'\n');
    text.extend(rest);
    Ok(text)
}

/// The file without the mesh's lines; `None` when it has none.
pub(super) fn take(old: &[u8], id: &str) -> Result<Option<Rest>, Unclosed> {
    let (own, made) = (Marks::of(id, false), Marks::of(id, true));
    let mut rest = Rest { text: Vec::new(), made: false };
    let mut inside = false;
    let mut found = false;
    for line in old.split_inclusive(|byte| *byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        if bare == own.begin.as_bytes() || bare == made.begin.as_bytes() {
            (inside, found) = (true, true);
            rest.made |= bare == made.begin.as_bytes();
        } else if inside && bare == own.end.as_bytes() {
            inside = false;
        } else if !inside {
            rest.text.extend_from_slice(line);
        }
    }
    if inside {
        return Err(Unclosed(own.begin, own.end));
    }
    Ok(found.then_some(rest))
}

/// The meshes that have lines in the file.
pub(super) fn ids(text: &[u8]) -> Vec<String> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let id = |line: &str| {
        let (id, word) = line.strip_prefix("# hvtui-mesh ")?.split_once(' ')?;
        (word.starts_with("begin") && super::checked(id).is_ok()).then(|| id.to_owned())
    };
    lines.filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_that_are_not_closed_are_left_to_a_person() {
        let open = b"# hvtui-mesh 0123abcd begin\nkey\n";
        assert!(take(open, "0123abcd").is_err() && put(Some(open), "0123abcd", "x").is_err());
        assert_eq!(take(open, "ffffffff"), Ok(None));
        assert_eq!(ids(open), ["0123abcd"]);
        assert_eq!(ids(b"# hvtui-mesh ../../x begin\n"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn what_was_there_comes_back_byte_by_byte(
            old in prop::option::of(prop::collection::vec(prop::sample::select(b"ab# \r\n\xff".to_vec()), 0..60)),
        ) {
            let once = put(old.as_deref(), "0123abcd", "one").unwrap();
            let other = put(Some(&once), "89abcdef", "other").unwrap();
            let twice = put(Some(&other), "0123abcd", "two").unwrap();
            prop_assert_eq!(put(Some(&twice), "0123abcd", "two").unwrap(), twice.clone());
            prop_assert_eq!(ids(&twice).len(), 2);
            let rest = take(&twice, "0123abcd").unwrap().unwrap();
            prop_assert_eq!(rest.made, old.is_none());
            let rest = take(&rest.text, "89abcdef").unwrap().unwrap();
            prop_assert_eq!(rest.text, old.unwrap_or_default());
        }
    }
}
