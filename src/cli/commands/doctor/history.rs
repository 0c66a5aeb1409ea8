//! What the doctor found at other times: what is kept of it, and what has changed since. `worked yesterday` is told by it.

use std::collections::{BTreeMap, BTreeSet};
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
/// For so long a look of the screen that has found nothing new is not kept.
const UNCHANGED: Duration = Duration::from_secs(30 * 60);

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
    /// With `--since`: hosts that were not looked at then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) new_hosts: Vec<String>,
    /// With `--since`: hosts that were looked at then, and are not among those of now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gone_hosts: Vec<String>,
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
    /// The remedy as a single command, where it is one.
    #[serde(default)]
    pub(super) fix: Option<JsonFix>,
    /// Whether a launch that rests on it is kept from starting.
    #[serde(default)]
    pub(super) stops_launch: bool,
    /// The evidence without the figures that move all the time; null where there are none.
    #[serde(default)]
    pub(super) lasting: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JsonFix {
    /// The host on which it is run; null for this machine.
    pub(super) on: Option<String>,
    pub(super) command: String,
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
        fix: verdict
            .fix
            .as_ref()
            .map(|fix| JsonFix { on: fix.place(host).map(ToString::to_string), command: fix.command() }),
        stops_launch: verdict.stops_launch(),
        lasting: verdict.lasting.clone(),
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
        new_hosts: Vec::new(),
        gone_hosts: Vec::new(),
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

/// What was found then at these hosts: of the same ones where there is such a look, else of the most of them. `all` says whether
/// they are all hosts that there are.
pub(super) fn read(
    state: &Path,
    since: Since,
    now: Stamp,
    (hosts, all): (&[String], bool),
) -> Result<Json, Failure> {
    let folder = state.join(FOLDER);
    let failed = |path: &Path, what: String| {
        Failure::new(Code::Usage, format!("{}: {what}: run `hvtui doctor` once", path.display()))
    };
    let kept = kept(&folder).map_err(|error| failed(&folder, os_text(&error)))?;
    let is_meant = |path: &PathBuf| match (since, at(path)) {
        (Since::Last, _) => true,
        (Since::Ago(age), Some(at)) => {
            u128::try_from(now.micros_since(at)).is_ok_and(|micros| micros >= age.as_micros())
        }
        (Since::Ago(_), None) => false,
    };
    let wanted: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
    // what is younger than asked for is better than nothing: its age is told
    let (old, young): (Vec<PathBuf>, Vec<PathBuf>) = kept.into_iter().partition(is_meant);
    let mut best: Option<(usize, Json)> = None;
    let mut fault = None;
    for path in old.iter().rev().chain(&young) {
        let json = std::fs::read_to_string(path)
            .map_err(|error| os_text(&error))
            .and_then(|text| serde_json::from_str::<Json>(&text).map_err(|error| error.to_string()));
        let json = match json {
            Ok(json) => json,
            Err(why) => {
                fault.get_or_insert_with(|| failed(path, why));
                continue;
            }
        };
        let theirs: BTreeSet<&str> = json.hosts.iter().map(String::as_str).collect();
        if theirs == wanted || !all && wanted.is_subset(&theirs) {
            return Ok(json);
        }
        let shared = theirs.intersection(&wanted).count();
        // the first of those that know as many
        if shared > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((shared, json));
        }
    }
    let nothing = || {
        fault.unwrap_or_else(|| {
            let what = if old.is_empty() && young.is_empty() {
                "nothing was kept yet"
            } else {
                "nothing was kept of these hosts yet"
            };
            failed(&folder, what.to_owned())
        })
    };
    best.map(|(_, json)| json).ok_or_else(nothing)
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
    if let Err(error) = write(&folder, json) {
        note(&format!("{}: {}: --since will not know of this", folder.display(), os_text(&error)));
    }
}

/// A look of the screen, which looks whenever it is opened: one that has found what the newest has is not kept beside that for a while.
pub(in crate::cli) fn keep_of_screen(state: &Path, matrix: &Matrix) {
    let (folder, json) = (folder(state), as_json(matrix));
    // what can't be kept was shown all the same
    if !is_known(&folder, &json)
        && let Err(error) = write(&folder, &json)
    {
        tracing::warn!(%error, "a look of the doctor was not kept");
    }
}

/// Whether the newest has found the same not long ago.
fn is_known(folder: &Path, json: &Json) -> bool {
    let newest = || {
        let path = kept(folder).ok()?.pop()?;
        let then: Json = serde_json::from_str(&std::fs::read_to_string(&path).ok()?).ok()?;
        let age = at(&folder.join(file_name(json)))?.micros_since(at(&path)?);
        Some((u64::try_from(age).unwrap_or(u64::MAX), then))
    };
    newest().is_some_and(|(age, then)| {
        then.hosts == json.hosts && Duration::from_micros(age) < UNCHANGED && changes(&then, json).is_empty()
    })
}

fn file_name(json: &Json) -> String {
    format!("{}.json", json.at.replace(':', "-"))
}

fn write(folder: &Path, json: &Json) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, json)?;
    file.persist(folder.join(file_name(json))).map_err(|error| error.error)?;
    let kept = kept(folder)?;
    kept.iter().take(kept.len().saturating_sub(KEPT)).try_for_each(std::fs::remove_file)
}

/// What is not as it was, into `now`. `all` says whether all hosts were looked at now, and not some alone.
pub(super) fn compare(before: &Json, now: &mut Json, all: bool) {
    let not_in = |hosts: &[String], others: &[String]| -> Vec<String> {
        hosts.iter().filter(|host| !others.contains(host)).cloned().collect()
    };
    now.new_hosts = not_in(&now.hosts, &before.hosts);
    now.gone_hosts = if all { not_in(&before.hosts, &now.hosts) } else { Vec::new() };
    now.changes = Some(changes(before, now));
}

/// The verdicts whose mark is another one, or whose evidence is but for figures that move all the time. Of a host that was not
/// looked at then, those that are wrong.
fn changes(before: &Json, now: &Json) -> Vec<Change> {
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
    let set = |json: &Json| json.hosts.iter().cloned().collect::<BTreeSet<String>>();
    let are_same_hosts = set(before) == set(now);
    let mut changes = Vec::new();
    for check in &now.checks {
        for verdict in &check.verdicts {
            let old = then.get(&(check.check.clone(), verdict.host.clone()));
            let is_as_it_was = match old {
                Some(old) => is_same(old, verdict, are_same_hosts),
                None => now.new_hosts.contains(&verdict.host) && verdict.mark < Mark::Look,
            };
            if !is_as_it_was {
                let (check, host) = (check.check.clone(), verdict.host.clone());
                changes.push(Change { check, host, before: old.cloned(), now: verdict.clone() });
            }
        }
    }
    changes
}

/// What is judged beside other hosts says something else of them: it is no change as long as all is well.
fn is_same(old: &JsonVerdict, now: &JsonVerdict, are_same_hosts: bool) -> bool {
    if !are_same_hosts && [old.mark, now.mark].iter().all(|mark| *mark < Mark::Look) {
        return true;
    }
    // of fewer hosts less is known
    if !are_same_hosts && now.mark == Mark::Unknown {
        return true;
    }
    let is_seen = match (&old.lasting, &now.lasting) {
        (Some(old), Some(now)) => old == now,
        // kept before it was told apart
        (None, Some(_)) => true,
        (_, None) => old.evidence == now.evidence,
    };
    old.mark == now.mark && is_seen
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
            fix: None,
            stops_launch: false,
            lasting: None,
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
            new_hosts: Vec::new(),
            gone_hosts: Vec::new(),
        }
    }

    fn read_all(state: &Path, since: Since, now: Stamp) -> Result<Json, Failure> {
        read(state, since, now, (&["a".to_owned()], true))
    }

    #[test]
    fn the_one_of_then_is_found_and_few_are_kept() {
        let state = tempfile::tempdir().unwrap();
        let now = Stamp(DateTime::parse_from_rfc3339("2026-11-27T12:00:00Z").unwrap().timestamp_micros());
        let nothing = read_all(state.path(), Since::Last, now).unwrap_err();
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
            let json = read_all(state.path(), Since::read(text).unwrap(), now).unwrap();
            json.checks[0].verdicts[0].evidence.clone()
        };
        assert_eq!(evidence("last"), "26 20");
        assert_eq!(evidence("1d"), "26 08");
        assert_eq!(evidence("5d"), "22 08");
        assert_eq!(evidence("300d"), "2 08", "the oldest there is; of 52 two went");
        assert!(Since::read("yesterday").is_err());
    }

    #[test]
    fn looks_of_the_screen_that_find_nothing_new_do_not_fill_it() {
        let state = tempfile::tempdir().unwrap();
        let folder = folder(state.path());
        let is_new = |minute: u32, evidence: &str| {
            let json = found(&format!("2026-11-26T08:{minute:02}:00.000Z"), evidence);
            let is_new = !is_known(&folder, &json);
            if is_new {
                write(&folder, &json).unwrap();
            }
            is_new
        };
        assert!(is_new(0, "6.1") && !is_new(1, "6.1") && !is_new(29, "6.1"));
        assert!(is_new(30, "6.1"), "that it was so then is worth a file");
        assert!(is_new(31, "6.2") && !is_new(32, "6.2") && is_new(33, "6.1"), "what changes is kept at once");
    }

    #[test]
    fn another_hosts_file_has_looks_of_its_own() {
        let state = tempfile::tempdir().unwrap();
        let of = |at: &str, hosts: &[&str], evidence: &str| {
            let mut json = found(at, evidence);
            json.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            keep(state.path(), &json);
        };
        of("2026-11-26T08:00:00.000Z", &["a", "b"], "lab");
        of("2026-11-26T09:00:00.000Z", &["x"], "other");
        of("2026-11-26T10:00:00.000Z", &["a"], "part");
        let evidence = |hosts: &[&str], all| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            read(state.path(), Since::Last, Stamp(i64::MAX), (&hosts, all))
                .map(|json| json.checks[0].verdicts[0].evidence.clone())
                .map_err(|error| error.message)
        };
        assert_eq!(evidence(&["b", "a"], true).unwrap(), "lab");
        assert_eq!(evidence(&["b"], false).unwrap(), "lab", "some of them");
        assert_eq!(evidence(&["a", "b", "c"], true).unwrap(), "lab", "the most of them");
        assert!(evidence(&["z"], true).unwrap_err().contains("nothing was kept of these hosts yet"));
    }

    #[test]
    fn figures_that_move_are_no_change_and_hosts_that_came_or_went_are_told_once() {
        let (mut before, mut now) =
            (found("2026-11-26T08:30:00.000Z", "6.1"), found("2026-11-27T08:30:00.000Z", "6.2"));
        assert_eq!(changes(&before, &now).len(), 1);
        now.checks[0].verdicts[0].lasting = Some("room".to_owned());
        assert!(changes(&before, &now).is_empty(), "an older hvtui did not tell");
        before.checks[0].verdicts[0].lasting = Some("room".to_owned());
        assert!(changes(&before, &now).is_empty());
        before.checks[0].verdicts[0].lasting = Some("8 GPUs".to_owned());
        assert_eq!(changes(&before, &now).len(), 1);
        before.checks[0].verdicts[0].lasting = Some("room".to_owned());
        now.checks[0].verdicts[0].mark = Mark::Bad;
        assert_eq!(changes(&before, &now).len(), 1);
        now.checks[0].verdicts[0].host = "n".to_owned();
        now.hosts = vec!["n".to_owned()];
        compare(&before, &mut now, true);
        let count = |json: &Json| json.changes.as_ref().unwrap().len();
        assert_eq!((&now.new_hosts[..], &now.gone_hosts[..]), (&["n".to_owned()][..], &["a".to_owned()][..]));
        assert_eq!(count(&now), 1, "what is wrong there");
        now.checks[0].verdicts[0].mark = Mark::Good;
        compare(&before, &mut now, false);
        assert_eq!((count(&now), now.gone_hosts.len()), (0, 0));
    }
}
