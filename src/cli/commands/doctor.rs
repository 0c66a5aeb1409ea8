//! `hvtui doctor`: asks all hosts at once for the checks, and prints what is wrong with what helps.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthStr;

use super::stop::fault;
use crate::cli::args::DoctorArgs;
use crate::cli::errors::{Code, Failure, note, to_stdout};
use crate::cli::json::{self, VERSION};
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::clock;
use crate::config::{HostConfig, HostsFile};
use crate::doctor::CHECKS;
use crate::domain::doctor::{Matrix, Row, Verdict};
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::os_text;
use crate::launcher::checkup::Checkup;
use crate::launcher::session::{Output, Session};

/// How long the hosts may take to connect; the time at questions is not counted.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long it may take to put hvtui on them, where that has begun.
const INSTALLING: Duration = Duration::from_secs(120);
/// How long their checks may take then.
const CHECKING: Duration = Duration::from_secs(8);
/// Where what was found the last time is kept, in the state folder.
const LAST: &str = "doctor.json";
/// The number of the only question.
const NUMBER: u64 = 1;

/// What `--json` prints, and what is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Json {
    version: u32,
    at: String,
    hosts: Vec<String>,
    /// How many verdicts are red, and how many yellow.
    red: usize,
    yellow: usize,
    checks: Vec<JsonCheck>,
    /// With `--since last`: what is not as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct JsonCheck {
    check: String,
    asks: String,
    verdicts: Vec<JsonVerdict>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct JsonVerdict {
    host: String,
    mark: Mark,
    evidence: String,
    cause: Option<String>,
    remedy: Option<String>,
}

/// A verdict that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    check: String,
    host: String,
    /// What it was; null where the host or the check is new.
    before: Option<JsonVerdict>,
    now: JsonVerdict,
}

/// Prints the matrix; 1 where something is red.
pub fn run(args: &DoctorArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let hosts = choose(args, file)?;
    let path = paths.state.join(LAST);
    let before = args.since.as_ref().map(|_| read(&path)).transpose()?;
    let matrix = runtime::block_on(examine(&hosts, args, paths))?;
    let mut json = as_json(&matrix);
    if let Some(before) = before {
        json.changes = Some(changes(&before, &json));
        if !args.json {
            to_stdout(&changes_text(&before, json.changes.as_deref().unwrap_or_default()))?;
        }
    } else if !args.json {
        to_stdout(&as_text(&matrix, args.verbose))?;
    }
    if args.json {
        to_stdout(&json::line(&json)?)?;
    }
    // a part of the matrix is no state to compare the whole with
    if args.only.is_empty() && args.only_hosts.is_empty() {
        keep(&path, &Json { changes: None, ..json });
    }
    Ok(if matrix.count(Mark::Bad) > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn choose(args: &DoctorArgs, file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    for name in &args.only {
        if !CHECKS.iter().any(|entry| entry.name == name) {
            let names: Vec<&str> = CHECKS.iter().map(|entry| entry.name).collect();
            return Err(Failure::usage(format!("there is no check '{name}': {}", names.join(", "))));
        }
    }
    if args.only_hosts.is_empty() {
        return Ok(file.hosts.clone());
    }
    let mut hosts: Vec<HostConfig> = Vec::new();
    for name in &args.only_hosts {
        let host = super::trust::find(name, file)?;
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    Ok(hosts)
}

async fn examine(hosts: &[HostConfig], args: &DoctorArgs, paths: &Paths) -> Result<Matrix, Failure> {
    let asker = ask::person();
    let mut session = connect::session(hosts, &paths.home, Some(Duration::from_secs(1)), &asker).await?;
    let mut checkup = Checkup::new(NUMBER, hosts.iter().map(|host| host.id.clone()), &args.only);
    let come = asker.timeout(CONNECTING, hear(&mut session, &mut checkup, Until::AllHaveCome)).await;
    if come.is_none() && is_coming(&session, &checkup) {
        note("hvtui is being put on some hosts: that is waited for");
        asker.timeout(INSTALLING, hear(&mut session, &mut checkup, Until::NoneIsComing)).await;
    }
    if !checkup.have_all_come() {
        checkup.go_on_without(&format!("no answer within {} s", CONNECTING.as_secs()));
        session.check(NUMBER, clock::now(), checkup.questions());
    }
    if asker.timeout(CHECKING, hear(&mut session, &mut checkup, Until::AllIsTold)).await.is_none() {
        checkup.give_up(&format!("no answer within {} s", CHECKING.as_secs()));
    }
    Ok(checkup.matrix())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    AllHaveCome,
    NoneIsComing,
    AllIsTold,
}

/// Whether a host that is waited for gets hvtui just now, or has it and is about to tell its facts.
fn is_coming(session: &Session, checkup: &Checkup) -> bool {
    let links = checkup.waiting().filter_map(|host| session.world().hosts.get(host)?.link.as_ref());
    links.into_iter().any(|(_, link)| matches!(link, LinkState::Installing { .. } | LinkState::Up))
}

async fn hear(session: &mut Session, checkup: &mut Checkup, until: Until) {
    loop {
        let over = match until {
            Until::AllHaveCome => checkup.have_all_come(),
            Until::NoneIsComing => !is_coming(session, checkup),
            Until::AllIsTold => checkup.is_over(),
        };
        if over {
            return;
        }
        match session.next().await {
            Output::Checked(host, checked) => checkup.told(&host, checked),
            Output::Event(envelope) => {
                let Origin::Host(host) = &envelope.origin else { continue };
                match &envelope.event {
                    Event::HostDescribed { info } => checkup.is_up(host, info.clone()),
                    Event::HostSampled { sample } => checkup.sampled(host, sample),
                    Event::LinkChanged { state } => {
                        if let Some((_, why)) = fault(state) {
                            checkup.is_down(host, why);
                        }
                    }
                    _ => continue,
                }
                session.check(NUMBER, clock::now(), checkup.questions());
            }
            _ => {}
        }
    }
}

fn glyph(mark: Mark) -> &'static str {
    match mark {
        Mark::Good => "✔",
        Mark::Unknown => "–",
        Mark::Look => "⚠",
        Mark::Bad => "✖",
    }
}

fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Hosts that share a verdict of a row.
struct Group<'a> {
    row: &'a Row,
    verdict: &'a Verdict,
    hosts: Vec<&'a HostId>,
}

fn groups<'a>(matrix: &'a Matrix, row: &'a Row) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for host in &matrix.hosts {
        let Some(verdict) = row.verdicts.get(host) else { continue };
        match groups.iter_mut().find(|group| group.verdict == verdict) {
            Some(group) => group.hosts.push(host),
            None => groups.push(Group { row, verdict, hosts: vec![host] }),
        }
    }
    groups
}

/// What is wrong first, the red before the yellow; then what is as it should be, a line a check.
fn as_text(matrix: &Matrix, verbose: bool) -> String {
    let (red, yellow) = (matrix.count(Mark::Bad), matrix.count(Mark::Look));
    let verdict = match (red, yellow) {
        (0, 0) => "nothing is wrong".to_owned(),
        (0, yellow) => format!("{yellow} to look at"),
        (red, 0) => format!("{red} red"),
        (red, yellow) => format!("{red} red, {yellow} to look at"),
    };
    let (hosts, checks) = (counted(matrix.hosts.len(), "host"), counted(matrix.rows.len(), "check"));
    let mut out = format!("{hosts}, {checks}: {verdict}\n\n");
    let all: Vec<Group<'_>> = matrix.rows.iter().flat_map(|row| groups(matrix, row)).collect();
    for mark in [Mark::Bad, Mark::Look] {
        let of_mark: Vec<&Group<'_>> = all.iter().filter(|group| group.verdict.mark == mark).collect();
        let alike = |a: &&Group<'_>, b: &&Group<'_>| {
            let what =
                |one: &Group<'_>| (one.row.check, one.verdict.cause.clone(), one.verdict.remedy.clone());
            what(a) == what(b)
        };
        of_mark.chunk_by(alike).for_each(|alike| trouble(&mut out, alike));
    }
    if red + yellow > 0 {
        out.push('\n');
    }
    for row in &matrix.rows {
        let calm =
            |mark| all.iter().filter(move |group| group.row.check == row.check && group.verdict.mark == mark);
        for mark in [Mark::Good, Mark::Unknown] {
            let of: Vec<&Group<'_>> = calm(mark).collect();
            // what most of a cluster does not have says nothing
            if of.is_empty()
                || (mark == Mark::Unknown
                    && !verbose
                    && of.iter().all(|one| one.verdict.evidence.starts_with("the host is not")))
            {
                continue;
            }
            if verbose {
                for group in of {
                    let _ = writeln!(
                        out,
                        "{} {:10} {}  {}",
                        glyph(mark),
                        row.check,
                        names(&group.hosts),
                        group.verdict.evidence
                    );
                }
                continue;
            }
            let count: usize = of.iter().map(|group| group.hosts.len()).sum();
            let evidence = match of.as_slice() {
                [one] => one.verdict.evidence.as_str(),
                _ => "",
            };
            let line = format!("{} {:10} {:9} {evidence}", glyph(mark), row.check, counted(count, "host"));
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    out
}

/// A line for each group that differs in what was seen alone, and once what follows from it.
fn trouble(out: &mut String, alike: &[&Group<'_>]) {
    for (at, group) in alike.iter().enumerate() {
        let check = if at == 0 { group.row.check } else { "" };
        let (glyph, seen) = (glyph(group.verdict.mark), &group.verdict.evidence);
        let _ = writeln!(out, "{glyph} {check:10} {}: {seen}", names(&group.hosts));
    }
    let Some(first) = alike.first() else { return };
    for (title, text) in [("why", &first.verdict.cause), ("fix", &first.verdict.remedy)] {
        if let Some(text) = text {
            let _ = writeln!(out, "  {:10} {title}: {text}", "");
        }
    }
}

/// The names, few of many.
fn names(hosts: &[&HostId]) -> String {
    let mut text = String::new();
    for (at, host) in hosts.iter().enumerate() {
        if text.width() > 40 {
            let _ = write!(text, " and {} more", hosts.len() - at);
            break;
        }
        let _ = write!(text, "{}{host}", if at == 0 { "" } else { ", " });
    }
    text
}

fn as_json(matrix: &Matrix) -> Json {
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

fn read(path: &Path) -> Result<Json, Failure> {
    let failed = |what: String| {
        Failure::new(Code::Usage, format!("{}: {what}: run `hvtui doctor` once", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(os_text(&error)))?;
    serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
}

/// A state that can't be kept is no reason to fail: what was found has been printed.
fn keep(path: &Path, json: &Json) {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        std::fs::create_dir_all(&folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&folder)?;
        serde_json::to_writer(&mut file, json)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    if let Err(error) = write() {
        note(&format!("{}: {}: --since last will not know of this", path.display(), os_text(&error)));
    }
}

/// The verdicts whose mark or evidence is another one; a check that is as good as before but in other words is none.
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

fn changes_text(before: &Json, changes: &[Change]) -> String {
    let mut out = format!("since {}: ", before.at);
    if changes.is_empty() {
        out.push_str("nothing has changed\n");
        return out;
    }
    let _ = writeln!(out, "{} changed\n", counted(changes.len(), "verdict"));
    for change in changes {
        let now = &change.now;
        let _ = writeln!(out, "{} {:10} {}: {}", glyph(now.mark), change.check, change.host, now.evidence);
        let was = change
            .before
            .as_ref()
            .map_or("not looked at".to_owned(), |was| format!("{} {}", glyph(was.mark), was.evidence));
        let _ = writeln!(out, "  {:10} was: {was}", "");
        if let Some(remedy) = &now.remedy {
            let _ = writeln!(out, "  {:10} fix: {remedy}", "");
        }
    }
    out
}
