//! What the doctor found at other times: what is kept of it, and what has changed since. `worked yesterday` is told by it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use crate::cli::errors::{Code, Failure, note};
use crate::cli::json::{self, VERSION};
use crate::clock;
use crate::domain::doctor::{Matrix, Verdict};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::os_text;
use crate::domain::time::Stamp;

/// The folder of it, in the state folder.
const FOLDER: &str = "doctor";
/// How many of them are kept.
const KEPT: usize = 50;

/// What `--json` prints, and what is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Json {
    pub(super) version: u32,
    pub(super) at: String,
    pub(super) hosts: Vec<String>,
    /// How many verdicts are red, and how many yellow.
    pub(super) red: usize,
    pub(super) yellow: usize,
    pub(super) checks: Vec<JsonCheck>,
    /// With `--since`: what is not as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Vec<Change>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JsonCheck {
    pub(super) check: String,
    pub(super) asks: String,
    pub(super) verdicts: Vec<JsonVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JsonVerdict {
    pub(super) host: String,
    pub(super) mark: Mark,
    pub(super) evidence: String,
    pub(super) cause: Option<String>,
    pub(super) remedy: Option<String>,
}

/// A verdict that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) check: String,
    pub(super) host: String,
    /// What it was; null where the host or the check is new.
    pub(super) before: Option<JsonVerdict>,
    pub(super) now: JsonVerdict,
}

pub(super) fn as_json(matrix: &Matrix) -> Json {
    let verdict = |(host, verdict): (&HostId, &Verdict)| JsonVerdict {
        host: host.to_string(),
        mark: verdict.mark,
        evidence: verdict.evidence.clone(),
        cause: verdict.cause.clone(),
        remedy: verdict.remedy.clone(),
    };
    let checks = matrix.rows.iter().map(|row| JsonCheck {
        check: row.check.to_owned(),
        asks: row.asks.to_owned(),
        verdicts: matrix
            .hosts
            .iter()
            .filter_map(|host| Some(verdict((host, row.verdicts.get(host)?))))
            .collect(),
    });
    Json {
        version: VERSION,
        at: json::moment(clock::now()),
        hosts: matrix.hosts.iter().map(ToString::to_string).collect(),
        red: matrix.count(Mark::Bad),
        yellow: matrix.count(Mark::Look),
        checks: checks.collect(),
        changes: None,
    }
}

/// Which one to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// The newest.
    Last,
    /// The newest that is so old.
    Ago(Duration),
}

impl Since {
    /// `last`, `1d`, `2h`.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        match (text, crate::domain::units::parse_duration(text)) {
            ("last", _) => Ok(Self::Last),
            (_, Some(age)) => Ok(Self::Ago(age)),
            _ => Err(Failure::usage(format!("--since {text}: say last, or how long ago: 1d, 12h, 30m"))),
        }
    }
}

/// What was found then.
pub(super) fn read(state: &Path, since: Since, now: Stamp) -> Result<Json, Failure> {
    let folder = state.join(FOLDER);
    let failed = |path: &Path, what: String| {
        Failure::new(Code::Usage, format!("{}: {what}: run `hvtui doctor` once", path.display()))
    };
    let kept = kept(&folder).map_err(|error| failed(&folder, os_text(&error)))?;
    let is_meant = |path: &&PathBuf| match (since, at(path)) {
        (Since::Last, _) => true,
        (Since::Ago(age), Some(at)) => {
            u128::try_from(now.micros_since(at)).is_ok_and(|micros| micros >= age.as_micros())
        }
        (Since::Ago(_), None) => false,
    };
    // what is younger than asked for is better than nothing: its age is told
    let chosen = kept.iter().rev().find(is_meant).or_else(|| kept.first());
    let path = chosen.ok_or_else(|| failed(&folder, "nothing was kept yet".to_owned()))?;
    let text = std::fs::read_to_string(path).map_err(|error| failed(path, os_text(&error)))?;
    serde_json::from_str(&text).map_err(|error| failed(path, error.to_string()))
}

/// The files, the oldest first.
pub(super) fn kept(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| at(path).is_some());
    files.sort();
    Ok(files)
}

/// The folder of it.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join(FOLDER)
}

/// When a file's was found.
fn at(path: &Path) -> Option<Stamp> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
    let at = DateTime::parse_from_str(&format!("{name} +0000"), "%Y-%m-%dT%H-%M-%S%.3fZ %z").ok()?;
    Some(Stamp(at.timestamp_micros()))
}

/// A state that can't be kept is no reason to fail: what was found has been printed.
pub(super) fn keep(state: &Path, json: &Json) {
    let folder = folder(state);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        serde_json::to_writer(&mut file, json)?;
        let name = format!("{}.json", json.at.replace(':', "-"));
        file.persist(folder.join(name)).map_err(|error| error.error)?;
        let kept = kept(&folder)?;
        kept.iter().take(kept.len().saturating_sub(KEPT)).try_for_each(std::fs::remove_file)
    };
    if let Err(error) = write() {
        note(&format!("{}: {}: --since will not know of this", folder.display(), os_text(&error)));
    }
}

/// The verdicts whose mark or evidence is another one; a check that is as good as before but in other words is none.
pub(super) fn changes(before: &Json, now: &Json) -> Vec<Change> {
    let index = |json: &Json| -> BTreeMap<(String, String), JsonVerdict> {
        let all = json.checks.iter().flat_map(|check| {
            check
                .verdicts
                .iter()
                .map(|verdict| ((check.check.clone(), verdict.host.clone()), verdict.clone()))
        });
        all.collect()
    };
    let then = index(before);
    let mut changes = Vec::new();
    for check in &now.checks {
        for verdict in &check.verdicts {
            let old = then.get(&(check.check.clone(), verdict.host.clone()));
            let measured = matches!(check.check.as_str(), "reach" | "disk" | "shm");
            let same = old.is_some_and(|old| {
                old.mark == verdict.mark && (measured || old.evidence == verdict.evidence)
            });
            if !same {
                let (check, host) = (check.check.clone(), verdict.host.clone());
                changes.push(Change { check, host, before: old.cloned(), now: verdict.clone() });
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(at: &str, evidence: &str) -> Json {
        let verdict = JsonVerdict {
            host: "a".to_owned(),
            mark: Mark::Good,
            evidence: evidence.to_owned(),
            cause: None,
            remedy: None,
        };
        let check = JsonCheck { check: "kernel".to_owned(), asks: String::new(), verdicts: vec![verdict] };
        let hosts = vec!["a".to_owned()];
        Json {
            version: VERSION,
            at: at.to_owned(),
            hosts,
            red: 0,
            yellow: 0,
            checks: vec![check],
            changes: None,
        }
    }

    #[test]
    fn the_one_of_then_is_found_and_few_are_kept() {
        let state = tempfile::tempdir().unwrap();
        let now = Stamp(DateTime::parse_from_rfc3339("2026-11-27T12:00:00Z").unwrap().timestamp_micros());
        let nothing = read(state.path(), Since::Last, now).unwrap_err();
        assert!(nothing.message.contains("run `hvtui doctor` once"), "{nothing:?}");
        for day in 1..=26 {
            for hour in ["08", "20"] {
                keep(
                    state.path(),
                    &found(&format!("2026-11-{day:02}T{hour}:30:00.000Z"), &format!("{day} {hour}")),
                );
            }
        }
        let evidence = |text: &str| {
            let json = read(state.path(), Since::read(text).unwrap(), now).unwrap();
            json.checks[0].verdicts[0].evidence.clone()
        };
        assert_eq!(evidence("last"), "26 20");
        assert_eq!(evidence("1d"), "26 08");
        assert_eq!(evidence("5d"), "22 08");
        assert_eq!(evidence("300d"), "2 08", "the oldest there is; of 52 two went");
        assert!(Since::read("yesterday").is_err());
    }

    #[test]
    fn what_is_the_same_in_other_words_of_a_measurement_is_no_change() {
        let (mut before, mut now) =
            (found("2026-11-26T08:30:00.000Z", "6.1"), found("2026-11-27T08:30:00.000Z", "6.2"));
        assert_eq!(changes(&before, &now).len(), 1);
        for json in [&mut before, &mut now] {
            json.checks[0].check = "disk".to_owned();
        }
        assert!(changes(&before, &now).is_empty());
        now.checks[0].verdicts[0].mark = Mark::Bad;
        assert_eq!(changes(&before, &now).len(), 1);
    }
}
