//! The ranks of a host as they are stored and sent: what they have in common once, then what is each one's own. A host's ranks
//! differ in a few numbers, and a frame has a limit.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ids::Rank;
use super::run::RankSpec;

type Env = BTreeMap<String, String>;

/// What all ranks have.
#[derive(Default, Serialize, Deserialize)]
struct Common {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    #[serde(default)]
    env: Env,
    #[serde(default, skip_serializing_if = "Env::is_empty")]
    defaults: Env,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

/// What one rank has beside that. An argument list or a directory of its own replaces the common one.
#[derive(Serialize, Deserialize)]
struct Own {
    rank: Rank,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Env::is_empty")]
    env: Env,
    #[serde(default, skip_serializing_if = "Env::is_empty")]
    defaults: Env,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Split {
    all: Common,
    each: Vec<Own>,
}

/// Writes them.
pub(super) fn serialize<S: Serializer>(ranks: &[RankSpec], to: S) -> Result<S::Ok, S::Error> {
    let all = common(ranks);
    let own = |rank: &RankSpec| Own {
        rank: rank.rank,
        argv: if rank.argv == all.argv { Vec::new() } else { rank.argv.clone() },
        env: without(&rank.env, &all.env),
        defaults: without(&rank.defaults, &all.defaults),
        cwd: rank.cwd.clone().filter(|_| rank.cwd != all.cwd),
    };
    let each = ranks.iter().map(own).collect();
    Split { all, each }.serialize(to)
}

/// Reads them; earlier versions wrote each rank whole.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RankSpec>, D::Error> {
    from.deserialize_any(Ranks)
}

struct Ranks;

impl<'de> Visitor<'de> for Ranks {
    type Value = Vec<RankSpec>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ranks of a host")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, whole: A) -> Result<Self::Value, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(whole))
    }

    fn visit_map<A: MapAccess<'de>>(self, split: A) -> Result<Self::Value, A::Error> {
        Split::deserialize(MapAccessDeserializer::new(split)).map(join)
    }
}

fn join(Split { all, each }: Split) -> Vec<RankSpec> {
    let joined = |all: &Env, own: Env| {
        let mut joined = all.clone();
        joined.extend(own);
        joined
    };
    let rank = |own: Own| RankSpec {
        rank: own.rank,
        argv: if own.argv.is_empty() { all.argv.clone() } else { own.argv },
        env: joined(&all.env, own.env),
        defaults: joined(&all.defaults, own.defaults),
        cwd: own.cwd.or_else(|| all.cwd.clone()),
    };
    each.into_iter().map(rank).collect()
}

fn common(ranks: &[RankSpec]) -> Common {
    let Some((first, others)) = ranks.split_first() else { return Common::default() };
    let shared = |env: fn(&RankSpec) -> &Env| -> Env {
        let same = |(name, value): &(&String, &String)| {
            others.iter().all(|rank| env(rank).get(*name) == Some(value))
        };
        env(first).iter().filter(same).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    Common {
        argv: if others.iter().all(|rank| rank.argv == first.argv) { first.argv.clone() } else { Vec::new() },
        env: shared(|rank| &rank.env),
        defaults: shared(|rank| &rank.defaults),
        cwd: first.cwd.clone().filter(|_| others.iter().all(|rank| rank.cwd == first.cwd)),
    }
}

fn without(env: &Env, common: &Env) -> Env {
    let own = env.iter().filter(|(name, _)| !common.contains_key(*name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Held {
        #[serde(with = "super")]
        ranks: Vec<RankSpec>,
    }

    fn rank(number: u32, argv: &str, cwd: Option<&str>) -> RankSpec {
        let env = [("RANK", number.to_string()), ("PATHS", "x".repeat(1000))];
        RankSpec {
            rank: Rank(number),
            argv: argv.split_whitespace().map(str::to_owned).collect(),
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            defaults: [("OMP_NUM_THREADS".to_owned(), "1".to_owned())].into(),
            cwd: cwd.map(str::to_owned),
        }
    }

    fn again(ranks: Vec<RankSpec>) -> (usize, Vec<RankSpec>) {
        let text = serde_json::to_string(&Held { ranks }).unwrap();
        (text.len(), serde_json::from_str::<Held>(&text).unwrap().ranks)
    }

    #[test]
    fn what_ranks_share_is_written_once() {
        let ranks: Vec<RankSpec> =
            (0..1024).map(|number| rank(number, "python train.py", Some("/x"))).collect();
        let (bytes, read) = again(ranks.clone());
        assert_eq!(read, ranks);
        assert!(bytes < 64 << 10, "{bytes}");
    }

    #[test]
    fn what_differs_stays_each_ranks_own() {
        let mut one = rank(1, "x --local-rank=1", None);
        one.env.insert("ONE".to_owned(), "1".to_owned());
        one.defaults.clear();
        for ranks in [
            Vec::new(),
            vec![rank(3, "x", None)],
            vec![rank(0, "x --local-rank=0", None), one.clone()],
            vec![rank(0, "x", Some("/a")), rank(1, "x", Some("/b"))],
        ] {
            assert_eq!(again(ranks.clone()).1, ranks);
        }
    }

    #[test]
    fn a_list_of_an_earlier_version_is_read() {
        let old = r#"{"ranks":[{"rank":2,"argv":["x"],"env":{"A":"1"},"cwd":null}]}"#;
        let read = serde_json::from_str::<Held>(old).unwrap().ranks;
        assert_eq!((read[0].rank, read[0].env["A"].as_str()), (Rank(2), "1"));
    }
}
