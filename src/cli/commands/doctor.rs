//! `hvtui doctor`: asks all hosts at once for the checks, and prints what is wrong with what helps.

mod bundle;
mod fix;
pub(in crate::cli) mod history;
mod text;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::timeout;

use self::history::{Since, as_json, compare};
use self::text::{as_text, changes_text};
use crate::cli::again::with_hosts;
use crate::cli::args::DoctorArgs;
use crate::cli::errors::{Failure, note, to_person, to_stdout};
use crate::cli::json;
use crate::cli::paths::Paths;
use crate::cli::{ask, connect, runtime};
use crate::clock;
use crate::config::{HostConfig, HostsFile};
use crate::doctor::{self, CHECKS};
use crate::domain::doctor::{CONNECTION, Matrix, SamePath, SameRole};
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::preflight::Mark;
use crate::launch::plan::LaunchPlan;
use crate::launcher::checkup::Checkup;
use crate::launcher::session::looking::of_launch;
use crate::launcher::session::{Output, Session};
use crate::wire::doctor::AskChecks;

/// How long the hosts may take to connect; the time at questions is not counted.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long it may take to put hvtui on them, where that has begun.
const INSTALLING: Duration = Duration::from_secs(120);
/// How long it may take until all have told where the others find them.
const MEETING: Duration = Duration::from_secs(1);
/// How long their checks may take then.
const CHECKING: Duration = Duration::from_secs(8);
/// And in containers, which an engine takes a while to start, or to say that it can't; and for imports.
const LONG: Duration = Duration::from_secs(50);
/// Between samples of a host: the first, which comes at once, is the one that counts, and each takes processor time beside the checks.
const SAMPLES: Duration = Duration::from_secs(5);
/// The number of the only question.
const NUMBER: u64 = 1;

/// Prints the matrix; 1 where something is red.
pub fn run(args: &DoctorArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let hosts = choose(args, file)?;
    let since = args.since.as_deref().map(Since::read).transpose()?;
    let names: Vec<String> = hosts.iter().map(|host| host.id.to_string()).collect();
    let of_all = args.only_hosts.is_empty();
    let before =
        since.map(|since| history::read(&paths.state, since, clock::now(), (&names, of_all))).transpose()?;
    if let Some(target) = &args.bundle {
        bundle::is_writable(target)?;
    }
    is_asked_for(args)?;
    let image = args.image.as_deref();
    let modules = modules(args)?;
    let wanted = Wanted { only: &args.only, same: &args.same, modules: &modules, image };
    let checkup = runtime::block_on(examine(&hosts, &wanted, paths))?;
    let matrix = checkup.matrix();
    let mut json = as_json(&matrix);
    if let Some(before) = before {
        compare(&before, &mut json, of_all);
        if !args.json {
            let changes = json.changes.as_deref().unwrap_or_default();
            to_person(&with_hosts(&changes_text(&before, &json, changes)))?;
        }
    } else if !args.json {
        to_person(&with_hosts(&as_text(&matrix, args.verbose)))?;
    }
    if args.json {
        to_stdout(&json::line(&json)?)?;
    }
    if let Some(target) = &args.bundle {
        bundle::write(target, args.yes, &checkup, &json, file, paths)?;
    }
    let fixed = if args.fix { fix::run(&matrix, &hosts, file, (paths, &wanted))? } else { None };
    if let Some(fixed) = &fixed {
        to_person(&with_hosts(&as_text(fixed, args.verbose)))?;
    }
    // what was looked at again counts as it is now
    let matrix = overlaid(matrix, fixed);
    // a part of the matrix is no state to compare the whole with
    let is_whole = args.only.is_empty() && of_all;
    if is_whole && args.same.is_empty() && args.module.is_empty() && image.is_none() {
        history::keep(&paths.state, &as_json(&matrix));
    }
    Ok(if matrix.count(Mark::Bad) > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// A matrix with the rows of a later one.
fn overlaid(mut matrix: Matrix, later: Option<Matrix>) -> Matrix {
    for row in later.into_iter().flat_map(|later| later.rows) {
        if let Some(old) = matrix.rows.iter_mut().find(|old| old.check == row.check) {
            *old = row;
        }
    }
    matrix
}

fn choose(args: &DoctorArgs, file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    for name in &args.only {
        if name != CONNECTION && !CHECKS.iter().any(|entry| entry.name == name) {
            let names = [CONNECTION].into_iter().chain(CHECKS.iter().map(|entry| entry.name));
            let names: Vec<&str> = names.collect();
            return Err(Failure::usage(format!("there is no check '{name}': {}", names.join(", "))));
        }
    }
    let is_misplaced = |name: &&String| match (doctor::check(name), &args.image) {
        (Some(entry), Some(_)) => !entry.is_of_image(),
        (Some(entry), None) => !entry.is_of_hosts(),
        (None, _) => false,
    };
    if let Some(name) = args.only.iter().find(is_misplaced) {
        let names = CHECKS.iter().filter(|entry| entry.is_of_image()).map(|entry| entry.name);
        return Err(Failure::usage(match &args.image {
            Some(_) => {
                format!("--only {name}: a look into an image has {}", names.collect::<Vec<_>>().join(", "))
            }
            None => format!("--only {name}: name the image to look into by --image IMAGE"),
        }));
    }
    if let Some(name) = args.only.iter().find(|name| args.same.is_empty() && is_of_paths(name)) {
        return Err(Failure::usage(format!(
            "--only {name}: name the file or folder to compare by --same PATH"
        )));
    }
    if args.same.len() > AskChecks::MOST_PATHS {
        return Err(Failure::usage(format!("--same: {} paths at most", AskChecks::MOST_PATHS)));
    }
    choose_hosts(&args.only_hosts, file)
}

/// The modules to look for: of `pkg.part`, `pkg`, for the rest is found by importing that.
fn modules(args: &DoctorArgs) -> Result<Vec<String>, Failure> {
    let is_name = |name: &str| {
        name.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    if args.module.len() > AskChecks::MOST_MODULES {
        return Err(Failure::usage(format!("--module: {} modules at most", AskChecks::MOST_MODULES)));
    }
    if !args.module.is_empty() && !args.only.is_empty() && !args.only.iter().any(|name| name == "python") {
        return Err(Failure::usage("--module belongs to the check python: add it to --only"));
    }
    let tops = args.module.iter().map(|name| match name.split('.').next().unwrap_or_default() {
        top if !top.is_empty() && is_name(top) => Ok(top.to_owned()),
        _ => Err(Failure::usage(format!(
            "--module {name:?}: write the name of a Python module, such as numpy"
        ))),
    });
    tops.collect()
}

/// What asks a person needs a terminal: that is said before all hosts are asked.
fn is_asked_for(args: &DoctorArgs) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    if args.fix {
        return Err(Failure::usage("--fix asks before each command, and standard input is no terminal"));
    }
    if args.bundle.is_some() && !args.yes {
        return Err(Failure::usage(
            "--bundle shows what it will hold and asks, and standard input is no terminal: say --yes to write it",
        ));
    }
    Ok(())
}

/// Whether a check looks at what is named to it.
fn is_of_paths(name: &str) -> bool {
    CHECKS.iter().any(|entry| entry.wants_paths && entry.name == name)
}

/// What is asked of the hosts.
pub(super) struct Wanted<'a> {
    /// Checks by name; all where none is named.
    pub(super) only: &'a [String],
    /// Files and folders to compare.
    pub(super) same: &'a [String],
    /// Python modules to look for.
    pub(super) modules: &'a [String],
    /// The image that is looked into.
    pub(super) image: Option<&'a str>,
}

/// The hosts with these names; all where none is named.
pub(super) fn choose_hosts(names: &[String], file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    if names.is_empty() {
        return Ok(file.hosts.clone());
    }
    let mut hosts: Vec<HostConfig> = Vec::new();
    for name in names {
        let host = super::trust::find(name, file)?;
        if !hosts.contains(host) {
            hosts.push(host.clone());
        }
    }
    Ok(hosts)
}

/// Asks all hosts for checks.
pub(super) async fn examine(
    hosts: &[HostConfig],
    wanted: &Wanted<'_>,
    paths: &Paths,
) -> Result<Checkup, Failure> {
    let prompter = ask::person();
    let mut session = connect::session(hosts, &paths.home, Some(SAMPLES), &prompter).await?;
    let ids = hosts.iter().map(|host| host.id.clone());
    let same: Vec<SamePath> =
        wanted.same.iter().map(|path| SamePath { path: path.clone(), role: SameRole::Asked }).collect();
    let of_hosts = ids.clone().map(|host| (host, same.clone())).collect();
    let checkup = match wanted.image {
        Some(image) => Checkup::of_image(NUMBER, ids, wanted.only, image),
        None => Checkup::new(NUMBER, ids, wanted.only).comparing(of_hosts),
    };
    let mut checkup = checkup.looking_for(wanted.modules).reached_as(&session.contexts());
    let come = prompter.timeout(CONNECTING, hear(&mut session, &mut checkup, Until::AllHaveCome)).await;
    if come.is_none() && is_coming(&session, &checkup) {
        note("hvtui is being put on some hosts: that is waited for");
        prompter.timeout(INSTALLING, hear(&mut session, &mut checkup, Until::NoneIsComing)).await;
    }
    if !checkup.have_all_come() {
        checkup.go_on_without(&format!("no answer within {} s", CONNECTING.as_secs()));
        session.check(clock::now(), checkup.questions());
    }
    if timeout(MEETING, hear(&mut session, &mut checkup, Until::AllMeet)).await.is_err() {
        checkup.go_on_without_doors();
        session.check(clock::now(), checkup.questions());
    }
    let checking = if wanted.image.is_some() || wanted.only.iter().any(|check| check == "import") {
        LONG
    } else {
        CHECKING
    };
    if prompter.timeout(checking, hear(&mut session, &mut checkup, Until::AllIsTold)).await.is_none() {
        checkup.give_up(&format!("no answer within {} s", checking.as_secs()));
    }
    Ok(checkup)
}

/// Asks the hosts of a plan for the checks that it rests on.
pub(super) async fn examine_plan(session: &mut Session, planned: &LaunchPlan) -> Matrix {
    let mut checkup = session.checkup(NUMBER, planned);
    session.check(clock::now(), checkup.questions());
    if timeout(MEETING, hear(session, &mut checkup, Until::AllMeet)).await.is_err() {
        checkup.go_on_without_doors();
        session.check(clock::now(), checkup.questions());
    }
    if timeout(CHECKING, hear(session, &mut checkup, Until::AllIsTold)).await.is_err() {
        checkup.give_up(&format!("no answer within {} s", CHECKING.as_secs()));
    }
    of_launch(checkup.matrix())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    AllHaveCome,
    NoneIsComing,
    AllMeet,
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
            Until::AllMeet => !checkup.awaits_doors(),
            Until::AllIsTold => checkup.is_over(),
        };
        if over {
            return;
        }
        match session.next().await {
            Output::Checked(host, checked) => {
                checkup.told(&host, checked);
                session.check(clock::now(), checkup.questions());
            }
            Output::Event(envelope) => {
                let Origin::Host(host) = &envelope.origin else { continue };
                match &envelope.event {
                    Event::HostDescribed { info } => checkup.is_up(host, info.clone()),
                    Event::HostSampled { sample } => checkup.sampled(host, sample),
                    Event::ClockSampled { sample } => {
                        checkup.clocked(host, *sample);
                        continue;
                    }
                    Event::LinkChanged { state } => {
                        checkup.link_changed(host, state);
                    }
                    _ => continue,
                }
                session.check(clock::now(), checkup.questions());
            }
            _ => {}
        }
    }
}
