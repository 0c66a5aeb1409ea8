//! `hvtui runs prune`: deletes recordings beyond a retention, and what hosts keep of the same runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tokio::time;

use crate::cli::args::PruneArgs;
use crate::cli::ask::{confirm, person};
use crate::cli::connect;
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::json::{VERSION, moment};
use crate::cli::paths::Paths;
use crate::cli::runs_of_hosts::{Asked, ask_for};
use crate::cli::runtime;
use crate::clock;
use crate::config::HostsFile;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::{HostId, RunId};
use crate::domain::retention::{Age, Beyond, Retention};
use crate::domain::run::{RunSpec, RunSummary};
use crate::domain::run_status::{RunInventory, RunStatus};
use crate::domain::text::{about, sanitize};
use crate::domain::time::Stamp;
use crate::domain::units::{bytes, padded};
use crate::launcher::session::{Output, Session};
use crate::record::Store;
use crate::record::store::{Listing, Unreadable};
use crate::report::local_time;
use crate::wire::message::ListRuns;

mod on_hosts;

/// How long hosts may take to say which runs they know.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long they may take to delete what they keep: all of them together until the next one has done so.
const DELETION: Duration = Duration::from_secs(30);
/// What a host did not delete, and why.
type Undone = BTreeMap<HostId, BTreeMap<RunId, String>>;

/// What became of a run on a host: why it is still there.
type Answer = ((HostId, RunId), Option<String>);

/// A run that is beyond what is kept.
#[derive(Debug, Serialize)]
struct Surplus {
    run: RunId,
    name: String,
    created: String,
    /// Whether it is recorded here; else hosts alone know it.
    recorded: bool,
    /// Of its recording.
    bytes: u64,
    /// The rule, in words.
    why: String,
    /// Hosts that keep something of it.
    hosts: BTreeSet<HostId>,
    /// Why it stays all the same.
    stays: Option<String>,
    deleted: bool,
    #[serde(skip)]
    at: Stamp,
    /// Hosts of it that the hosts file does not name.
    #[serde(skip)]
    unnamed: Vec<HostId>,
    /// What the recording says of the run; nothing where it is empty.
    #[serde(skip)]
    spec: Option<RunSpec>,
}

/// A recording that is beyond the rules.
struct Past {
    run: RunId,
    /// What it says of the run; nothing where it is empty.
    summary: Option<RunSummary>,
    /// When the run was created, or when the file of an empty one was written last.
    created: Stamp,
    bytes: u64,
    /// The rule, in words.
    why: String,
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
    /// Hosts that did not answer or did not delete what they keep, and why.
    hosts: &'a BTreeMap<HostId, String>,
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
    let listing = store.list()?;
    let recorded = on_hosts::ids(&listing);
    let beyond = beyond(rules, listing, clock::now());
    // what hosts alone know goes by its age
    let by_age = rules.older_than.filter(|_| !args.local);
    runtime::block_on(async {
        let is_asking = !beyond.is_empty() || by_age.is_some();
        let (mut session, asked) = match file.filter(|_| !args.local && is_asking) {
            Some(file) => {
                let person = person();
                let mut session = connect::session(&file.hosts, &paths.home, None, &person).await?;
                let enough = |inventory: &RunInventory| {
                    by_age.is_none() && specs(&beyond).all(|spec| inventory.unheard(spec).is_empty())
                };
                let oldest = by_age.map_or(0, |_| ListRuns::MOST as u32);
                let which = ListRuns { newest: 0, oldest };
                let asked = ask_for(&mut session, which, PATIENCE, &person, enough).await;
                (Some(session), asked)
            }
            None => (None, Asked::default()),
        };
        let names: BTreeSet<HostId> =
            session.iter().flat_map(Session::hosts).map(|host| host.id.clone()).collect();
        let mut failed = missed(&beyond, &asked, &names);
        let mut surplus = surplus(beyond, &store, &asked, &names);
        if let Some(limit) = by_age {
            surplus.splice(..0, on_hosts::surplus(limit, &rules.why(Beyond::Age), &recorded, &asked));
            for words in on_hosts::silent(&asked, &failed) {
                note(&words);
            }
        }
        let (count, size) = sum(&surplus);
        if !args.json {
            to_person(&shown(&surplus))?;
        }
        let (mut freed, mut is_stuck) = (0, false);
        if count > 0 && !args.dry_run {
            let what = if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
            confirm(&format!("Delete {what}, {}?", size_here(&surplus, size)), args.yes).await?;
            // the hosts first: of a run that is not recorded here any more nothing would be deleted there again
            if let Some(session) = &mut session {
                // a link that was lost and is back since the question says nothing of the deletion
                while session.try_next().is_some() {}
                let undone = forget(session, &surplus, &asked.inventory, &names).await;
                keep(&mut surplus, &undone);
                failed.extend(undone.into_iter().filter_map(|(host, runs)| Some((host, words(&runs)?))));
            }
            (freed, is_stuck) = delete(&mut surplus, &store);
        }
        if args.json {
            let rules = Rules {
                older_than_s: rules.older_than.map(|age| age.as_secs()),
                keep: rules.keep,
                max_size: rules.max_size,
            };
            let dry_run = args.dry_run;
            let report = Report { version: VERSION, dry_run, rules, runs: &surplus, freed, hosts: &failed };
            let text = serde_json::to_string_pretty(&report)
                .map_err(|error| Failure::bug(format!("write the runs as JSON: {error}")))?;
            to_stdout(&format!("{text}\n"))?;
        } else if !args.dry_run && count > 0 {
            let deleted = surplus.iter().filter(|run| run.deleted).count();
            to_person(&format!("{deleted} deleted, {} freed\n", size_here(&surplus, freed)))?;
        }
        for (host, why) in &failed {
            note(&about(host, why));
        }
        Ok(match (is_stuck, failed.is_empty()) {
            (true, _) => ExitCode::FAILURE,
            (false, false) => Code::Unreachable.into(),
            (false, true) => ExitCode::SUCCESS,
        })
    })
}

/// The recordings that are beyond the rules, newest first, and by which rule. Empty ones take no place of others.
fn beyond(rules: Retention, listing: Listing, now: Stamp) -> Vec<Past> {
    let age = |run: &RunSummary| Age {
        last_at: run.last_at,
        bytes: run.bytes,
        is_imported: run.spec.is_imported(),
    };
    let ages: Vec<(RunId, Age)> = listing.runs.iter().map(|run| (run.spec.id.clone(), age(run))).collect();
    let mut past = Vec::new();
    for empty in listing.unreadable {
        let Unreadable { run, empty: Some(age), .. } = empty else {
            note(&format!("run {}: {}: it stays", empty.run.short(), empty.reason));
            continue;
        };
        let newer = ages.iter().take_while(|(other, _)| *other > run).map(|(_, age)| *age);
        if let Some(Some(beyond)) = rules.beyond(newer.chain([age]), now).pop() {
            let why = format!("{}, and empty", rules.why(beyond));
            past.push(Past { run, summary: None, created: age.last_at, bytes: age.bytes, why });
        }
    }
    let beyond = rules.beyond(ages.into_iter().map(|(_, age)| age), now);
    for (run, beyond) in listing.runs.into_iter().zip(beyond) {
        if let Some(beyond) = beyond {
            let (id, created, bytes) = (run.spec.id.clone(), run.spec.created, run.bytes);
            past.push(Past { run: id, summary: Some(run), created, bytes, why: rules.why(beyond) });
        }
    }
    past.sort_by(|a, b| b.run.cmp(&a.run));
    past
}

/// The runs that these recordings tell, without those that were imported: no host keeps anything of them.
fn specs(past: &[Past]) -> impl Iterator<Item = &RunSpec> {
    let told = past.iter().filter_map(|past| Some(&past.summary.as_ref()?.spec));
    told.filter(|spec| !spec.is_imported())
}

/// Hosts that did not answer and may keep something of these runs, and what that means.
fn missed(beyond: &[Past], asked: &Asked, names: &BTreeSet<HostId>) -> BTreeMap<HostId, String> {
    let unheard: BTreeSet<HostId> = specs(beyond).flat_map(|spec| asked.inventory.unheard(spec)).collect();
    // a name that the hosts file does not have may be that of any host that did not answer
    let is_renamed = unheard.iter().any(|host| !names.contains(host));
    let silent = asked.silent.iter().filter(|(host, ..)| is_renamed || unheard.contains(host));
    let words = |reason: &str| {
        format!(
            "{reason}: what it keeps of these runs stays there, and their recordings stay here: prune again \
             when it answers, or with --local for the recordings alone"
        )
    };
    silent.map(|(host, _, reason)| (host.clone(), words(reason))).collect()
}

/// What is to be deleted of the recordings that are beyond the rules, and what stays.
fn surplus(beyond: Vec<Past>, store: &Store, asked: &Asked, names: &BTreeSet<HostId>) -> Vec<Surplus> {
    let surplus = beyond.into_iter().map(|Past { run, summary, created, bytes, why }| {
        // of an empty one it is not known which hosts it has: what they keep of it stays theirs
        let (stays, mut unnamed) = match &summary {
            Some(summary) if summary.spec.is_imported() => {
                (reason_to_stay(summary, store, asked), Vec::new())
            }
            Some(summary) => (reason_to_stay(summary, store, asked), asked.inventory.unheard(&summary.spec)),
            None if asked.inventory.is_live(&run) => (Some("it is running".to_owned()), Vec::new()),
            None => (None, Vec::new()),
        };
        unnamed.retain(|host| !names.is_empty() && !names.contains(host));
        let shares = summary.as_ref().and_then(|_| asked.inventory.shares.get(&run));
        let spec = summary.map(|summary| summary.spec);
        Surplus {
            why,
            name: spec.as_ref().map(|spec| spec.name.clone()).unwrap_or_default(),
            created: moment(created),
            at: created,
            recorded: true,
            bytes,
            hosts: shares.into_iter().flat_map(|shares| shares.keys().cloned()).collect(),
            stays,
            deleted: false,
            unnamed,
            run,
            spec,
        }
    });
    surplus.collect()
}

/// Why a run must not be deleted: it is live, may be, is being recorded, its end is not recorded yet, or a host of it did not
/// answer: what that keeps could not be deleted later. The hosts of an imported run were never hvtui's.
fn reason_to_stay(run: &RunSummary, store: &Store, asked: &Asked) -> Option<String> {
    let (id, inventory) = (&run.spec.id, &asked.inventory);
    let is_written = || "another client is recording it".to_owned();
    if run.spec.is_imported() {
        return store.is_written(id).then(is_written);
    }
    let unheard: Vec<String> = inventory.unheard(&run.spec).iter().map(ToString::to_string).collect();
    match inventory.status(&run.spec, run.outcome.as_ref()) {
        RunStatus::Running => Some("it is running".to_owned()),
        RunStatus::Unknown => Some(format!("it may be running: {} did not answer", unheard.join(", "))),
        RunStatus::Ended if store.is_written(id) => Some(is_written()),
        // what its hosts keep of it was never read, and when it ended is not known
        RunStatus::Ended if run.outcome.is_none() => {
            Some("its end is not recorded: `hvtui runs` records it".to_owned())
        }
        // a host that is not in the hosts file is none of those that were asked
        RunStatus::Ended if !asked.silent.is_empty() && !unheard.is_empty() => {
            Some(format!("{} did not answer, and may keep something of it", unheard.join(", ")))
        }
        RunStatus::Ended => None,
    }
}

fn sum(surplus: &[Surplus]) -> (usize, u64) {
    let going = surplus.iter().filter(|run| run.stays.is_none());
    going.fold((0, 0), |(count, sum), run| (count + 1, sum + run.bytes))
}

/// What recordings take; how much hosts keep is not known.
fn size_here(surplus: &[Surplus], size: u64) -> String {
    let here = if surplus.iter().all(|run| run.recorded) { "" } else { " here" };
    bytes(size) + here
}

/// A row a run, then the sum.
fn shown(surplus: &[Surplus]) -> String {
    let mut text = String::new();
    for run in surplus {
        let hosts: Vec<String> = run.hosts.iter().map(ToString::to_string).collect();
        let mut on = match (run.recorded, hosts.join(" ")) {
            (true, hosts) if hosts.is_empty() => String::new(),
            (true, hosts) => format!(", and on {hosts}"),
            (false, hosts) => format!(", on {hosts} only"),
        };
        let size = if run.recorded { bytes(run.bytes) } else { "–".to_owned() };
        if !run.unnamed.is_empty() {
            let unnamed: Vec<String> = run.unnamed.iter().map(ToString::to_string).collect();
            let _ = write!(on, "; not on {}: not in the hosts file", unnamed.join(" "));
        }
        let what = match &run.stays {
            None => format!("{}{on}", run.why),
            Some(reason) => format!("stays: {reason}"),
        };
        let _ = writeln!(
            text,
            "{:<5} {:<16}  {}  {:>8}  {}",
            run.run.short(),
            local_time(run.at),
            padded(&run.name, 18),
            size,
            sanitize(&what),
        );
    }
    match sum(surplus) {
        (0, _) => text.push_str("no run is to be deleted\n"),
        (count, size) => {
            let _ = writeln!(text, "{count} to be deleted, {}", size_here(surplus, size));
        }
    }
    text
}

/// Has runs stay of which a host has not deleted what it keeps.
fn keep(surplus: &mut [Surplus], undone: &Undone) {
    for run in surplus.iter_mut().filter(|run| run.stays.is_none()) {
        let first = undone.iter().find_map(|(host, runs)| Some((host, runs.get(&run.run)?)));
        run.stays = first.map(|(host, why)| format!("{host} did not delete what it keeps: {why}"));
    }
}

/// The runs that a host did not delete: the first with its reason, the others by their number.
fn words(runs: &BTreeMap<RunId, String>) -> Option<String> {
    let (run, why) = runs.first_key_value()?;
    let more = match runs.len() - 1 {
        0 => String::new(),
        1 => " (and 1 more run)".to_owned(),
        more => format!(" (and {more} more runs)"),
    };
    Some(format!("run {} is not deleted there{more}: {why}", run.short()))
}

/// Deletes the recordings; gives the bytes that this freed, and whether one could not be deleted.
fn delete(surplus: &mut [Surplus], store: &Store) -> (u64, bool) {
    let (mut freed, mut is_stuck) = (0, false);
    for run in surplus.iter_mut().filter(|run| run.stays.is_none()) {
        // while it was asked a client may have recorded it
        let was_empty = run.recorded && run.spec.is_none();
        // or removed what another one had left behind
        let is_gone = was_empty && store.path_of(&run.run).parent().is_some_and(|folder| !folder.exists());
        if was_empty && !is_gone && !store.is_written(&run.run) && !store.is_left_empty(&run.run) {
            let why = "it is not empty any more";
            note(&format!("run {} is not deleted: {why}", run.run.short()));
            run.stays = Some(why.to_owned());
            is_stuck = true;
            continue;
        }
        let deletion = if run.recorded && !is_gone { store.delete(&run.run) } else { Ok(0) };
        match deletion {
            Ok(bytes) => {
                run.deleted = true;
                freed += bytes;
            }
            Err(error) => {
                note(&format!("run {} is not deleted: {error}", run.run.short()));
                run.stays = Some(error.to_string());
                is_stuck = true;
            }
        }
    }
    (freed, is_stuck)
}

/// Has the hosts delete what they keep of these runs; gives what they did not, and why. A link lost before is no answer.
async fn forget(
    session: &mut Session,
    surplus: &[Surplus],
    inventory: &RunInventory,
    names: &BTreeSet<HostId>,
) -> Undone {
    while session.try_next().is_some() {}
    let mut due = BTreeSet::new();
    let going = surplus.iter().filter(|run| run.stays.is_none());
    let told = going.filter_map(|run| Some((run, run.spec.as_ref()?)));
    for (run, spec) in told.filter(|(_, spec)| !spec.is_imported()) {
        for (host, name) in inventory.keepers(spec, names) {
            session.forget(&run.run, &host, &name);
            due.insert((host, run.run.clone()));
        }
    }
    let undone = gather(due, async |due| answers(session, due).await, || time::sleep(DELETION)).await;
    of_hosts(undone, surplus, inventory)
}

/// What hosts did not delete of runs that are theirs. One that was asked only because it may have had another name never
/// told of the run: that it fails keeps nothing back.
fn of_hosts(mut undone: Undone, surplus: &[Surplus], inventory: &RunInventory) -> Undone {
    let specs: BTreeMap<&RunId, &RunSpec> =
        surplus.iter().filter_map(|run| Some((&run.run, run.spec.as_ref()?))).collect();
    for (host, runs) in &mut undone {
        runs.retain(|run, _| specs.get(run).is_none_or(|spec| inventory.is_host_of(spec, host)));
    }
    undone.retain(|_, runs| !runs.is_empty());
    undone
}

/// Takes in `answers` until nothing is due, or until `patience` ends before the next of them.
async fn gather<P: Future<Output = ()>>(
    mut due: BTreeSet<(HostId, RunId)>,
    mut answers: impl AsyncFnMut(&BTreeSet<(HostId, RunId)>) -> Vec<Answer>,
    patience: impl Fn() -> P,
) -> Undone {
    let mut undone = Undone::new();
    while !due.is_empty() {
        let answers = tokio::select! {
            biased;
            answers = answers(&due) => answers,
            () = patience() => {
                let late = format!("no answer in {} s: prune again when it answers", DELETION.as_secs());
                due.iter().map(|about| (about.clone(), Some(late.clone()))).collect()
            }
        };
        for (about, why) in answers {
            due.remove(&about);
            if let (Some(why), (host, run)) = (why, about) {
                undone.entry(host).or_default().insert(run, why);
            }
        }
    }
    undone
}

/// Waits for what a host says of something that is due, or for the loss of a link.
async fn answers(session: &mut Session, due: &BTreeSet<(HostId, RunId)>) -> Vec<Answer> {
    loop {
        let answers: Vec<_> = match session.next().await {
            Output::Forgotten(run, host, why) if due.contains(&(host.clone(), run.clone())) => {
                vec![((host, run), why)]
            }
            Output::Event(envelope) => match (&envelope.origin, &envelope.event) {
                (Origin::Host(host), Event::LinkChanged { state }) => {
                    let reason = fault(state).map(|(_, reason)| reason);
                    let lost = due.iter().filter(|(due, _)| reason.is_some() && due == host);
                    lost.map(|about| (about.clone(), reason.clone())).collect()
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        if !answers.is_empty() {
            return answers;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::domain::fixtures::{placement, run_spec};
    use crate::domain::outcome::{RunEnd, RunOutcome};

    #[test]
    fn a_host_that_was_never_of_a_run_keeps_nothing_of_it_back() {
        let [a, b] = ["a", "b"].map(HostId::from);
        let id = RunId::new(1, 1);
        let spec = RunSpec {
            id: id.clone(),
            name: String::new(),
            created: Stamp(1),
            ..run_spec(vec![placement(0, "a", 0), placement(1, "gone", 0)])
        };
        let run = Surplus {
            why: String::new(),
            run: id.clone(),
            name: String::new(),
            created: String::new(),
            recorded: true,
            bytes: 0,
            hosts: BTreeSet::new(),
            stays: None,
            deleted: false,
            unnamed: Vec::new(),
            at: Stamp(1),
            spec: Some(spec),
        };
        let failed = |host: &HostId| (host.clone(), BTreeMap::from([(id.clone(), "link lost".to_owned())]));
        let undone = Undone::from([failed(&a), failed(&b)]);
        let undone = of_hosts(undone, std::slice::from_ref(&run), &RunInventory::default());
        assert_eq!(undone.into_keys().collect::<Vec<_>>(), [a]);
    }

    #[test]
    fn an_imported_run_goes_while_hosts_are_down() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let past = |imported: Option<&str>| {
            let mut spec = run_spec(vec![placement(0, "unknown", 0)]);
            spec.options.imported = imported.map(ToOwned::to_owned);
            let summary = RunSummary {
                spec: spec.clone(),
                stage: None,
                last_at: Stamp(1),
                outcome: Some(RunOutcome::new(RunEnd::Finished, "it finished")),
                trained: None,
                stood: None,
                bytes: 1,
                damage: None,
                is_made_ready: false,
            };
            let (created, why) = (Stamp(1), String::new());
            vec![Past { run: spec.id, summary: Some(summary), created, bytes: 1, why }]
        };
        let n3 = HostId::from("n3");
        let silent = vec![(n3.clone(), Code::Unreachable, "timed out".to_owned())];
        let (asked, names) = (Asked { silent, ..Asked::default() }, BTreeSet::from([n3.clone()]));
        let stays = |imported| surplus(past(imported), &store, &asked, &names).remove(0).stays;
        let trace = Some("Horovod timeline, from a.json");
        assert_eq!(stays(trace), None);
        assert_eq!(specs(&past(trace)).count(), 0);
        assert!(missed(&past(trace), &asked, &names).is_empty());
        // one of hvtui's own may have been that host's under another name
        let words = "unknown did not answer, and may keep something of it";
        assert_eq!(stays(None).as_deref(), Some(words));
        assert!(missed(&past(None), &asked, &names).contains_key(&n3));
    }

    #[test]
    fn imports_take_no_place_of_a_run() {
        let told = |number: u64, imported: Option<&str>| {
            let mut spec = run_spec(vec![placement(0, "a", 0)]);
            spec.id = RunId::new(number, 1);
            spec.options.imported = imported.map(ToOwned::to_owned);
            RunSummary {
                spec,
                stage: None,
                last_at: Stamp(1),
                outcome: None,
                trained: None,
                stood: None,
                bytes: 1,
                damage: None,
                is_made_ready: false,
            }
        };
        let trace = Some("Horovod timeline, from a.json");
        let runs = vec![told(4, trace), told(3, trace), told(2, None), told(1, None)];
        let listing = Listing { runs, ..Listing::default() };
        let rules = Retention { keep: Some(1), ..Retention::default() };
        let past = beyond(rules, listing, Stamp(2));
        let told: Vec<(&RunId, &str)> = past.iter().map(|past| (&past.run, past.why.as_str())).collect();
        let (import, run) = (RunId::new(3, 1), RunId::new(1, 1));
        let wanted = [(&import, "not the newest import"), (&run, "not the newest")];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_recording_in_which_there_is_nothing_goes_by_the_age_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let ids: Vec<RunId> = (1..=3).map(|number| RunId::new(number, 7)).collect();
        let begun = crate::record::MAGIC.to_vec();
        let whole = crate::record::Writer::new(Vec::new()).unwrap().finish().unwrap().0;
        for (id, bytes) in ids.iter().zip([&begun, &whole, &whole[..whole.len() / 2].to_vec()]) {
            let path = store.path_of(id);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        let rules = Retention { older_than: Some(Duration::from_secs(3600)), ..Retention::default() };
        let past = |after: i64| -> Vec<RunId> {
            let now = clock::now().plus_micros(after * 1_000_000);
            beyond(rules, store.list().unwrap(), now).into_iter().map(|past| past.run).collect()
        };
        assert_eq!(past(60), []);
        assert_eq!(past(3700), [ids[2].clone(), ids[1].clone(), ids[0].clone()]);
        let told = store.list().unwrap().unreadable;
        assert!(told.iter().all(|empty| empty.reason.contains("`hvtui runs prune` deletes it")), "{told:?}");

        let lock = crate::record::Lock::take(&store.path_of(&ids[0])).unwrap();
        assert_eq!(past(3700), ids[1..].iter().rev().cloned().collect::<Vec<_>>(), "a client may write it");
        drop(lock);
        let asked = Asked::default();
        let now = clock::now().plus_micros(3_700_000_000);
        let mut all = surplus(beyond(rules, store.list().unwrap(), now), &store, &asked, &BTreeSet::new());
        assert!(shown(&all).contains("3 to be deleted"), "{}", shown(&all));
        assert!(!delete(&mut all, &store).1);
        assert!(store.list().unwrap().unreadable.is_empty());
        assert_eq!(delete(&mut all, &store), (0, false), "what is gone needs no deletion");

        // what is no recording is not taken for an empty one
        let path = store.path_of(&ids[0]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(past(3700), []);
        assert!(delete(&mut all, &store).1 && path.exists(), "it is not empty any more");
    }

    #[tokio::test]
    async fn hosts_have_their_time_anew_with_each_answer() {
        let hosts = ["a", "b", "c", "d"].map(HostId::from);
        let (one, other) = (RunId::new(1, 1), RunId::new(2, 2));
        let mut due: BTreeSet<_> = hosts.iter().map(|host| (host.clone(), one.clone())).collect();
        due.insert((hosts[3].clone(), other.clone()));
        let mut told = vec![(&hosts[1], Some("it runs".to_owned())), (&hosts[2], None), (&hosts[0], None)];
        let (waits, answered) = (Cell::new(0), Cell::new(0));
        let answers = async |_: &BTreeSet<_>| match told.pop() {
            Some((host, why)) => {
                answered.set(answered.get() + 1);
                vec![((host.clone(), one.clone()), why)]
            }
            None => std::future::pending().await,
        };
        let patience = || {
            waits.set(waits.get() + 1);
            // over only for what comes behind the last answer
            let is_over = answered.get() == 3;
            async move {
                if !is_over {
                    std::future::pending::<()>().await;
                }
            }
        };
        let undone = gather(due, answers, patience).await;
        assert_eq!(waits.get(), 4, "one wait for each answer, and one in vain");
        assert_eq!(undone.keys().collect::<Vec<_>>(), [&hosts[1], &hosts[3]]);
        assert_eq!(
            words(&undone[&hosts[1]]).unwrap(),
            format!("run {} is not deleted there: it runs", one.short())
        );
        let late = words(&undone[&hosts[3]]).unwrap();
        assert!(late.contains("(and 1 more run): no answer in 30 s"), "{late}");
    }
}
