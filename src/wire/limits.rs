//! How much may stand in a message of an agent: looked at before any of it is read, so that a frame of a mebibyte can't be
//! made to take many times that. What is within may still be more than a host can have; that is decided where messages are
//! admitted.

use crate::domain::json_size::Most;

/// Lists within lists.
const DEPTH: usize = 32;
/// Values: numbers, texts, lists and objects. A list of 20,000 missing files has 60,000.
const VALUES: usize = 128 << 10;
/// Objects, which take the most memory each. A run of 8,000 ranks has 16,000.
const OBJECTS: usize = 32 << 10;
/// Bytes of one text, as they are written. The stacks of a process may have 256 KiB.
const TEXT: usize = 512 << 10;

const MOST: Most = Most {
    depth: DEPTH,
    values: VALUES,
    objects: OBJECTS,
    text: TEXT,
    elements: VALUES,
    element_values: VALUES,
};

/// Looks through a JSON text, which need not be one. Takes no memory.
///
/// # Errors
/// Says of what there is too much.
pub fn check(json: &[u8]) -> Result<(), String> {
    MOST.check(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_named() {
        let check = |text: &str| check(text.as_bytes());
        assert_eq!(check(r#"{"a":[1,{"b":"[[[[{{{{,,,,\"\\"}]}"#), Ok(()));
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(check(&deep(DEPTH)), Ok(()));
        assert!(check(&deep(DEPTH + 1)).unwrap_err().contains("32 deep"));
        assert!(check(&"[".repeat(1 << 20)).is_err());
        let list = |of: &str, count: usize| format!("[{}]", vec![of; count].join(","));
        assert_eq!(check(&list("1", VALUES)), Ok(()));
        assert!(check(&list("1", VALUES + 1)).unwrap_err().contains("131072 values"));
        assert!(check(&list("{}", OBJECTS + 1)).unwrap_err().contains("32768 objects"));
        let text = |length: usize| format!("[\"{}\"]", "x".repeat(length));
        assert_eq!(check(&text(TEXT - 1)), Ok(()));
        assert!(check(&text(TEXT)).is_err());
        // what is no JSON is the reader's to refuse
        assert_eq!(check("]]}\"\\"), Ok(()));
        assert_eq!(check(""), Ok(()));
    }
}
