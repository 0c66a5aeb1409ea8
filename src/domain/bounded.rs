//! Lists of which no more is kept than can be: of one in JSON what is beyond is passed over as it is read and takes no memory.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a list, at most its first `MOST` entries.
///
/// # Errors
/// Those of the reader.
pub fn list<'de, const MOST: usize, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct List<const MOST: usize, T>(PhantomData<T>);
    impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for List<MOST, T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while list.len() < MOST {
                let Some(one) = seq.next_element()? else { return Ok(list) };
                list.push(one);
            }
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(list)
        }
    }
    from.deserialize_seq(List::<MOST, T>(PhantomData))
}

/// Adds an item at the end; with `limit` items already the first goes.
pub(super) fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, limit: usize) {
    if queue.len() >= limit {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Two {
        #[serde(deserialize_with = "list::<2, _, _>")]
        of: Vec<u8>,
    }

    #[test]
    fn no_more_is_kept_than_can_be() {
        let read = |text: &str| serde_json::from_str::<Two>(text).ok().map(|two| two.of);
        assert_eq!(read(r#"{"of":[]}"#), Some(vec![]));
        assert_eq!(read(r#"{"of":[1]}"#), Some(vec![1]));
        assert_eq!(read(r#"{"of":[1,2,{"a":[3]},"b"]}"#), Some(vec![1, 2]));
        assert_eq!(read(r#"{"of":[1,"b"]}"#), None);
        assert_eq!(read(r#"{"of":[1,2,]}"#), None);
    }
}
