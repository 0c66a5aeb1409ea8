//! `hvtui runs prune`: deletes recordings beyond a retention, and what hosts keep of the same runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio::time;

use crate::cli::args::PruneArgs;
use crate::cli::ask::{confirm, person};
use crate::cli::commands::runs::local_time;
use crate::cli::connect;
use crate::cli::errors::{Code, Failure, note, to_stdout};
use crate::cli::hearing::{Asked, ask};
use crate::cli::json::{VERSION, moment};
use crate::cli::paths::Paths;
use crate::cli::runtime;
use crate::cli::table::padded;
use crate::clock;
use crate::config::HostsFile;
use crate::domain::ids::{HostId, RunId};
use crate::domain::retention::{Age, Retention};
use crate::domain::run::{RunSpec, RunSummary};
use crate::domain::share::Standing;
use crate::domain::text::{about, sanitize};
use crate::domain::units::bytes;
use crate::launcher::session::{Output, Session};
use crate::record::Store;

/// How long hosts may take to say which runs they know.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long they may take to delete what they keep.
const DELETION: Duration = Duration::from_secs(30);

/// A run that is beyond what is kept.
#[derive(Debug, Serialize)]
struct Surplus {
    run: RunId,
    name: String,
    created: String,
    bytes: u64,
    /// The rule, in words.
    why: String,
    /// Hosts that keep something of it.
    hosts: BTreeSet<HostId>,
    /// Why it stays all the same.
    stays: Option<String>,
    deleted: bool,
    #[serde(skip)]
    spec: RunSpec,
}

/// The result, for other programs.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    dry_run: bool,
    rules: Rules,
    runs: &'a [Surplus],
    /// Bytes of the recordings that were deleted.
    freed: u64,
    /// Hosts that did not delete what they keep, and why.
    hosts: BTreeMap<HostId, String>,
}

#[derive(Debug, Serialize)]
struct Rules {
    older_than_s: Option<u64>,
    keep: Option<u64>,
    max_size: Option<u64>,
}

/// Shows what is beyond the rules, asks, and deletes it.
pub fn run(
    args: &PruneArgs,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    if args.json && !args.yes && !args.dry_run {
        return Err(Failure::usage("--json asks nothing: add --dry-run or --yes"));
    }
    let of_line = Retention { older_than: args.older_than, keep: args.keep, max_size: args.max_size };
    let file = match hosts() {
        Err(_) if args.local && !of_line.is_empty() => None,
        other => Some(other?),
    };
    let of_file = file.as_ref().map(|file| file.retention).unwrap_or_default();
    let rules = if of_line.is_empty() { of_file } else { of_line };
    if rules.is_empty() {
        let remedy =
            "give --older-than 30d, --keep 50 or --max-size 5G, or write them into [runs] of the hosts file";
        return Err(Failure::usage(format!("nothing says which runs are to go: {remedy}")));
    }
    let store = Store::new(&paths.state);
    runtime::block_on(async {
        let (mut session, asked) = match file.filter(|_| !args.local) {
            Some(file) => {
                let person = person();
                let mut session = connect::session(&file.hosts, &paths.home, None, &person).await?;
                let asked = ask(&mut session, PATIENCE, &person, |_| false).await;
                (Some(session), asked)
            }
            None => (None, Asked::default()),
        };
        let mut surplus = surplus(rules, &store, &asked)?;
        let (count, size) = sum(&surplus);
        if !args.json {
            to_stdout(&shown(&surplus))?;
        }
        for words in asked.silent_words() {
            note(&format!("{words}: what it keeps of these runs stays there"));
        }
        let (mut freed, mut failed) = (0, BTreeMap::new());
        if count > 0 && !args.dry_run {
            let what = if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
            confirm(&format!("Delete {what}, {}?", bytes(size)), args.yes)?;
            freed = delete(&mut surplus, &store);
            if let Some(session) = &mut session {
                failed = forget(session, &surplus, &asked).await;
            }
        }
        if args.json {
            let rules = Rules {
                older_than_s: rules.older_than.map(|age| age.as_secs()),
                keep: rules.keep,
                max_size: rules.max_size,
            };
            let dry_run = args.dry_run;
            let report =
                Report { version: VERSION, dry_run, rules, runs: &surplus, freed, hosts: failed.clone() };
            let text = serde_json::to_string_pretty(&report)
                .map_err(|error| Failure::bug(format!("write the runs as JSON: {error}")))?;
            to_stdout(&format!("{text}\n"))?;
        } else if !args.dry_run && count > 0 {
            let deleted = surplus.iter().filter(|run| run.deleted).count();
            to_stdout(&format!("{deleted} deleted, {} freed\n", bytes(freed)))?;
        }
        for (host, why) in &failed {
            note(&about(host, why));
        }
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { Code::Unreachable.into() })
    })
}

/// The runs that are beyond the rules, newest first.
fn surplus(rules: Retention, store: &Store, asked: &Asked) -> Result<Vec<Surplus>, Failure> {
    let listing = store.list()?;
    for unreadable in &listing.unreadable {
        note(&format!("run {}: {}: it stays", unreadable.run.short(), unreadable.reason));
    }
    let ages = listing.runs.iter().map(|run| Age { last_at: run.last_at, bytes: run.bytes });
    let beyond = rules.beyond(ages, clock::now());
    let surplus = listing.runs.into_iter().zip(beyond).filter_map(|(run, beyond)| {
        let stays = reason_to_stay(&run, store, asked);
        let shares = asked.heard.shares.get(&run.spec.id);
        Some(Surplus {
            why: rules.why(beyond?),
            run: run.spec.id.clone(),
            name: run.spec.name.clone(),
            created: moment(run.spec.created),
            bytes: run.bytes,
            hosts: shares.into_iter().flat_map(|shares| shares.keys().cloned()).collect(),
            stays,
            deleted: false,
            spec: run.spec,
        })
    });
    Ok(surplus.collect())
}

/// Why a run must not be deleted: it is live, may be, is being recorded, or its end is not recorded yet.
fn reason_to_stay(run: &RunSummary, store: &Store, asked: &Asked) -> Option<String> {
    let (id, heard) = (&run.spec.id, &asked.heard);
    match heard.standing(&run.spec, run.outcome.as_ref()) {
        Standing::Running => Some("it is running".to_owned()),
        Standing::Unknown => {
            let hosts: Vec<String> = heard.unheard(&run.spec).iter().map(ToString::to_string).collect();
            Some(format!("it may be running: {} did not answer", hosts.join(", ")))
        }
        Standing::Ended if store.is_written(id) => Some("another client is recording it".to_owned()),
        // what its hosts keep of it was never read, and when it ended is not known
        Standing::Ended if run.outcome.is_none() => {
            Some("its end is not recorded: `hvtui runs` records it".to_owned())
        }
        Standing::Ended => None,
    }
}

fn sum(surplus: &[Surplus]) -> (usize, u64) {
    let going = surplus.iter().filter(|run| run.stays.is_none());
    going.fold((0, 0), |(count, sum), run| (count + 1, sum + run.bytes))
}

/// A row a run, then the sum.
fn shown(surplus: &[Surplus]) -> String {
    let mut text = String::new();
    for run in surplus {
        let hosts: Vec<String> = run.hosts.iter().map(ToString::to_string).collect();
        let on = if hosts.is_empty() { String::new() } else { format!(", and on {}", hosts.join(" ")) };
        let what = match &run.stays {
            None => format!("{}{on}", run.why),
            Some(reason) => format!("stays: {reason}"),
        };
        let _ = writeln!(
            text,
            "{:<5} {:<16}  {}  {:>8}  {}",
            run.run.short(),
            local_time(run.spec.created),
            padded(&run.name, 18),
            bytes(run.bytes),
            sanitize(&what),
        );
    }
    match sum(surplus) {
        (0, _) => text.push_str("no run is to be deleted\n"),
        (count, size) => {
            let _ = writeln!(text, "{count} to be deleted, {}", bytes(size));
        }
    }
    text
}

/// Deletes the recordings; gives the bytes that this freed.
fn delete(surplus: &mut [Surplus], store: &Store) -> u64 {
    let mut freed = 0;
    for run in surplus.iter_mut().filter(|run| run.stays.is_none()) {
        match store.delete(&run.run) {
            Ok(bytes) => {
                run.deleted = true;
                freed += bytes;
            }
            Err(error) => {
                note(&format!("run {} is not deleted: {error}", run.run.short()));
                run.stays = Some(error.to_string());
            }
        }
    }
    freed
}

/// Has the hosts delete what they keep of the runs that were deleted here; gives those that did not, and why.
async fn forget(session: &mut Session, surplus: &[Surplus], asked: &Asked) -> BTreeMap<HostId, String> {
    let mut due = BTreeSet::new();
    for run in surplus.iter().filter(|run| run.deleted) {
        for (host, share) in asked.heard.shares.get(&run.run).into_iter().flatten() {
            session.forget(&run.run, host, &share.host);
            due.insert((host.clone(), run.run.clone()));
        }
    }
    let mut failed = BTreeMap::new();
    let answers = async {
        while !due.is_empty() {
            if let Output::Forgotten(run, host, why) = session.next().await {
                if let Some(why) = why {
                    failed.insert(host.clone(), format!("run {} is not deleted there: {why}", run.short()));
                }
                due.remove(&(host, run));
            }
        }
    };
    if time::timeout(DELETION, answers).await.is_err() {
        let late = format!("no answer in {} s", DELETION.as_secs());
        failed.extend(due.into_iter().map(|(host, _)| (host, late.clone())));
    }
    failed
}
