//! What NCCL's RAS answers to `verbose status`: how many collectives each rank of a communicator has launched, and who does
//! not answer. In JSON (NCCL 2.28.7 and later) and in the text of 2.24 and later, as `src/ras/client_support.cc` of NVIDIA/nccl
//! writes them. Hosts and processes are in the answer and stay there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::verdict::ranks_words;

/// The longest answer that is read, bytes.
pub const MOST: u64 = 4 << 20;
/// Differences that are told.
const DIFFERENCES: usize = 16;
/// Ranks that are named of those that have launched the same.
const RANKS: usize = 1024;
/// Different numbers of launches that are told of one communicator.
const COUNTS: usize = 16;

/// What it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RasAnswer {
    /// NCCL's version; empty where it does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Communicators whose ranks have not launched the same, a function each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Communicators with ranks that did not answer NCCL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Silent>,
}

/// Ranks of one communicator that have not launched the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The communicator.
    pub communicator: String,
    /// Its ranks; 0 where that is not known.
    #[serde(default)]
    pub size: u32,
    /// The function: `AllReduce`; empty of NCCL 2.24, which counts all together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub function: String,
    /// Who has launched how many, the fewest first.
    pub launched: Vec<Launched>,
}

/// Ranks that have launched the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launched {
    /// How many.
    pub count: u64,
    /// How many ranks.
    pub ranks: u32,
    /// Which, by their number in the communicator; empty where they are not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub which: Vec<u32>,
}

/// Ranks of one communicator that did not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silent {
    /// The communicator.
    pub communicator: String,
    /// Its ranks; 0 where that is not known.
    #[serde(default)]
    pub size: u32,
    /// How many are silent.
    pub ranks: u32,
    /// Which; empty where they are not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub which: Vec<u32>,
}

impl RasAnswer {
    /// How much it tells.
    pub(super) fn weight(&self) -> usize {
        self.differences.len() + self.silent.len()
    }

    /// A sentence of its largest communicator that is not in order, in a run of so many ranks.
    pub fn words(&self, ranks: u32) -> Option<String> {
        let most = |one: &&Difference| (one.size, one.launched.iter().map(|one| one.count).max());
        let differs = self.differences.iter().max_by_key(most).map(|one| one.words(ranks));
        let silent = self.silent.iter().max_by_key(|one| one.size).map(|one| {
            let who = who(one.ranks, &one.which);
            let does = if one.ranks == 1 { "does" } else { "do" };
            format!("{who} {does} not answer{}", of_communicator(&one.communicator, one.size, ranks))
        });
        let words: Vec<String> = differs.into_iter().chain(silent).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

impl Difference {
    fn words(&self, ranks: u32) -> String {
        let what = if self.function.is_empty() { "collectives" } else { &self.function };
        let each: Vec<String> = self
            .launched
            .iter()
            .enumerate()
            .map(|(at, one)| {
                let has = if one.ranks == 1 { "has" } else { "have" };
                let what = if at == 0 { format!(" {what}") } else { String::new() };
                format!("{} {has} launched {}{what}", who(one.ranks, &one.which), one.count)
            })
            .collect();
        each.join(", ") + &of_communicator(&self.communicator, self.size, ranks)
    }
}

fn who(count: u32, which: &[u32]) -> String {
    if which.is_empty() {
        let rank = if count == 1 { "rank" } else { "ranks" };
        format!("{count} {rank}")
    } else {
        ranks_words(which)
    }
}

/// Nothing for the one of all ranks, whose numbers are those of the run.
fn of_communicator(communicator: &str, size: u32, ranks: u32) -> String {
    match size {
        _ if size == ranks => String::new(),
        0 => format!(" (communicator {communicator})"),
        _ => format!(" (communicator {communicator} of {size} ranks)"),
    }
}

/// Reads an answer; `None` where it is none.
pub fn read(answer: &str) -> Option<RasAnswer> {
    let text = answer.trim_start();
    if text.starts_with('{') { read_json(text) } else { read_text(text) }
}

#[derive(Deserialize)]
struct Json {
    #[serde(default)]
    nccl_version: String,
    communicators: Vec<JsonCommunicator>,
}

#[derive(Deserialize)]
struct JsonCommunicator {
    hash: String,
    size: u32,
    #[serde(default)]
    ranks: Vec<JsonRank>,
    #[serde(default)]
    missing_ranks: Vec<JsonMissing>,
}

#[derive(Deserialize)]
struct JsonRank {
    rank: u32,
    #[serde(default)]
    collective_counts: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct JsonMissing {
    rank: u32,
}

fn read_json(text: &str) -> Option<RasAnswer> {
    let json: Json = serde_json::from_str(text).ok()?;
    let mut answer = RasAnswer { version: plain(&json.nccl_version), ..RasAnswer::default() };
    for one in json.communicators {
        let communicator = plain(&one.hash);
        let mut functions: BTreeMap<&str, BTreeMap<u64, Vec<u32>>> = BTreeMap::new();
        for rank in &one.ranks {
            for (function, count) in &rank.collective_counts {
                functions.entry(function).or_default().entry(*count).or_default().push(rank.rank);
            }
        }
        for (function, counts) in functions.into_iter().filter(|(_, counts)| counts.len() > 1) {
            let launched = counts.into_iter().map(|(count, which)| Launched::new(count, which)).collect();
            let function = plain(function);
            answer.differs(Difference {
                communicator: communicator.clone(),
                size: one.size,
                function,
                launched,
            });
        }
        let missing: Vec<u32> = one.missing_ranks.iter().map(|missing| missing.rank).collect();
        if !missing.is_empty() && answer.silent.len() < DIFFERENCES {
            let ranks = u32::try_from(missing.len()).unwrap_or(u32::MAX);
            answer.silent.push(Silent { communicator, size: one.size, ranks, which: sorted(missing) });
        }
    }
    Some(answer)
}

impl RasAnswer {
    fn differs(&mut self, mut difference: Difference) {
        if self.differences.len() < DIFFERENCES {
            difference.launched.sort_by_key(|one| one.count);
            difference.launched.truncate(COUNTS);
            self.differences.push(difference);
        }
    }
}

impl Launched {
    fn new(count: u64, which: Vec<u32>) -> Self {
        Self { count, ranks: u32::try_from(which.len()).unwrap_or(u32::MAX), which: sorted(which) }
    }
}

fn sorted(mut which: Vec<u32>) -> Vec<u32> {
    which.sort_unstable();
    which.truncate(RANKS);
    which
}

/// A block of the text: what a line with a rank's number belongs to.
enum Block {
    None,
    Silent(Silent),
    Mismatch(String),
    Counts(Difference),
}

fn read_text(text: &str) -> Option<RasAnswer> {
    let mut answer = RasAnswer::default();
    let mut is_answer = false;
    let mut block = Block::None;
    for line in text.lines() {
        if let Some(version) = line.strip_prefix("NCCL version ") {
            is_answer = true;
            answer.version = plain(version.split(' ').next().unwrap_or_default());
        } else if line.starts_with('#') {
            answer.ends(std::mem::replace(&mut block, Block::None));
            let communicator = line.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            let communicator = communicator.map(|(hash, _)| plain(hash)).unwrap_or_default();
            if line.ends_with("MISMATCH") {
                block = Block::Mismatch(communicator);
            } else if line.ends_with("INCOMPLETE") {
                block = Block::Silent(Silent { communicator, ..Silent::default() });
            }
        } else {
            block = answer.line(line.trim(), block);
        }
    }
    answer.ends(block);
    is_answer.then_some(answer)
}

impl RasAnswer {
    fn ends(&mut self, block: Block) {
        match block {
            Block::Counts(difference) if difference.launched.len() > 1 => self.differs(difference),
            Block::Silent(silent) if silent.ranks > 0 && self.silent.len() < DIFFERENCES => {
                self.silent.push(silent);
            }
            _ => {}
        }
    }

    fn line(&mut self, line: &str, block: Block) -> Block {
        let function = line
            .strip_prefix("Communicator ranks have different ")
            .and_then(|rest| rest.strip_suffix(" operation counts"));
        match (block, function) {
            (Block::Counts(before), Some(function)) => {
                let communicator = before.communicator.clone();
                self.ends(Block::Counts(before));
                counts(communicator, function)
            }
            (Block::Mismatch(communicator), Some(function)) => counts(communicator, function),
            (Block::Counts(mut difference), None) => {
                difference.line(line);
                Block::Counts(difference)
            }
            (Block::Silent(mut silent), None) => {
                silent.line(line);
                Block::Silent(silent)
            }
            (block, _) => block,
        }
    }
}

fn counts(communicator: String, function: &str) -> Block {
    // 2.24 says «collective» of all of them together
    let function = if function == "collective" { String::new() } else { plain(function) };
    Block::Counts(Difference { communicator, size: 0, function, launched: Vec::new() })
}

impl Difference {
    fn line(&mut self, line: &str) {
        if let Some((count, rest)) = line.split_once(" ranks have ")
            && let (Ok(ranks), Some(launched)) = (count.parse(), launched(rest))
        {
            self.launched.push(Launched { count: launched, ranks, which: Vec::new() });
        } else if let Some((rank, rest)) = rank_of(line) {
            if let Some(launched) = rest.strip_prefix(" has ").and_then(launched) {
                self.launched.push(Launched { count: launched, ranks: 1, which: vec![rank] });
            } else if let Some(last) = self.launched.last_mut().filter(|last| last.which.len() < RANKS) {
                last.which.push(rank);
            }
        }
    }
}

impl Silent {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("Missing communicator data from ") {
            self.ranks = rest.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        } else if let Some(list) = line.strip_prefix("The missing rank") {
            // 2.24 lists them
            let list = list.trim_start_matches('s').trim_start_matches(':').split(',');
            self.which = list.filter_map(|rank| rank.trim().parse().ok()).take(RANKS).collect();
        } else if let Some((rank, _)) = rank_of(line)
            && self.which.len() < RANKS
        {
            self.which.push(rank);
        }
    }
}

/// `Rank 3 -- GPU 3 managed …`, `Rank 3 has launched up to …`: the number and what follows.
fn rank_of(line: &str) -> Option<(u32, &str)> {
    let rest = line.strip_prefix("Rank ")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
    Some((rest[..end].parse().ok()?, &rest[end..]))
}

/// `launched up to operation 6650`, `not launched any operations`.
fn launched(text: &str) -> Option<u64> {
    if text.starts_with("not launched any operations") {
        return Some(0);
    }
    text.strip_prefix("launched up to operation ")?.split(' ').next()?.parse().ok()
}

/// A name or number as it may leave the host.
fn plain(text: &str) -> String {
    text.chars()
        .take(32)
        .filter(|letter| letter.is_ascii_alphanumeric() || ".+-_".contains(*letter))
        .collect()
}
