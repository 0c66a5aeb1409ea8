//! Variables of a run's ranks that are known only when every host is ready: they travel with the order to start.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::Rank;

/// Variables that are set in the ranks' environment alone, never written to disk.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Of all ranks of the host.
    pub env: BTreeMap<String, String>,
    /// Of single ranks.
    #[serde(default, with = "shared", skip_serializing_if = "BTreeMap::is_empty")]
    pub ranks: BTreeMap<Rank, BTreeMap<String, String>>,
    /// Of all ranks: the run's secret and the values of secret variables. They do not show in debug output.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
}

impl Late {
    /// All variables of one rank; its own ones count before those of all.
    pub fn of(&self, rank: Rank) -> impl Iterator<Item = (&String, &String)> {
        self.env.iter().chain(&self.secrets).chain(self.ranks.get(&rank).into_iter().flatten())
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late")
            .field("env", &self.env)
            .field("ranks", &self.ranks)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Variables of single ranks as they are sent: of each name, the beginning and the end that all its values share once, and the middle a
/// rank. A `TF_CONFIG` names every rank of the run and is each rank's own by a number.
mod shared {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::domain::ids::Rank;

    type Ranks = BTreeMap<Rank, BTreeMap<String, String>>;

    #[derive(Serialize, Deserialize)]
    struct Split {
        /// Beginning and end of the values of each variable.
        around: BTreeMap<String, (String, String)>,
        each: Ranks,
    }

    pub(super) fn serialize<S: Serializer>(ranks: &Ranks, to: S) -> Result<S::Ok, S::Error> {
        let mut around: BTreeMap<&String, (&str, &str)> = BTreeMap::new();
        for (name, value) in ranks.values().flatten() {
            around
                .entry(name)
                .and_modify(|(start, _)| *start = common_start(start, value))
                .or_insert((value, ""));
        }
        // of several values, the end is known only when the beginning is
        for (name, (start, end)) in &mut around {
            let mut rests = ranks.values().filter_map(|env| env.get(*name)?.get(start.len()..));
            *end = rests.next().unwrap_or_default();
            *end = rests.fold(*end, common_end);
        }
        let middle = |(name, value): (&String, &String)| {
            let (start, end) = around.get(name).copied().unwrap_or_default();
            let middle = value.get(start.len()..value.len() - end.len()).unwrap_or_default();
            (name.clone(), middle.to_owned())
        };
        let each = ranks.iter().map(|(rank, env)| (*rank, env.iter().map(middle).collect())).collect();
        let own = |(name, (start, end)): (&&String, &(&str, &str))| {
            ((*name).clone(), ((*start).to_owned(), (*end).to_owned()))
        };
        Split { around: around.iter().map(own).collect(), each }.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ranks, D::Error> {
        let Split { around, mut each } = Split::deserialize(from)?;
        for (name, value) in each.values_mut().flatten() {
            if let Some((start, end)) = around.get(name) {
                *value = format!("{start}{value}{end}");
            }
        }
        Ok(each)
    }

    fn common_start<'a>(a: &'a str, b: &str) -> &'a str {
        let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
        let bytes = same.map(|(c, _)| c.len_utf8()).sum();
        a.get(..bytes).unwrap_or_default()
    }

    fn common_end<'a>(a: &'a str, b: &str) -> &'a str {
        let same = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
        let bytes: usize = same.map(|(c, _)| c.len_utf8()).sum();
        a.get(a.len() - bytes..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(values: &[&[(&str, &str)]]) -> Late {
        let env = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let ranks = (0..).map(Rank).zip(values.iter().map(|pairs| env(pairs))).collect();
        Late { ranks, ..Late::default() }
    }

    #[test]
    fn what_the_ranks_values_share_is_sent_once() {
        let cluster = "x".repeat(10_000);
        let values: Vec<String> = (0..512).map(|index| format!("{{{cluster},task:{index},é}}")).collect();
        let pairs: Vec<[(&str, &str); 1]> =
            values.iter().map(|value| [("TF_CONFIG", value.as_str())]).collect();
        let many = late(&pairs.iter().map(|pair| &pair[..]).collect::<Vec<_>>());
        let text = serde_json::to_string(&many).unwrap();
        assert!(text.len() < 40_000, "{}", text.len());
        assert_eq!(serde_json::from_str::<Late>(&text).unwrap(), many);
    }

    #[test]
    fn every_value_is_the_same_afterwards() {
        let cases: [&[&[(&str, &str)]]; 7] = [
            &[],
            &[&[("A", "1")]],
            &[&[("A", "")], &[("A", "x")]],
            &[&[("A", "aa")], &[("A", "aaa")], &[("A", "a")]],
            &[&[("A", "äb"), ("B", "1")], &[("A", "öb")], &[]],
            &[&[("A", "abcabc")], &[("A", "abc")]],
            &[&[("A", "same")], &[("A", "same")]],
        ];
        for values in cases {
            let sent = late(values);
            let text = serde_json::to_string(&sent).unwrap();
            assert_eq!(serde_json::from_str::<Late>(&text).unwrap(), sent, "{text}");
        }
    }
}
