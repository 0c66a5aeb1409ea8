//! Finds the run that a person means: among the recordings here, else on the hosts.

use std::path::Path;
use std::time::Duration;

use super::connect;
use super::errors::{Code, Failure, fault};
use super::paths::Paths;
use super::runs_of_hosts::{Asked, ask};
use crate::config::{HostConfig, HostsFile};
use crate::domain::ids::{HostId, RunId};
use crate::domain::lease::Lease;
use crate::domain::run::RunSpec;
use crate::domain::run_status::{RunInventory, RunStatus, is_on};
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::world::{HostState, World};
use crate::launcher::session::Session;
use crate::record::{Error, Reader, Store};
use crate::report::local_time;
use crate::ssh::Prompter;

/// How long hosts may take to say which runs they know.
const PATIENCE: Duration = Duration::from_secs(8);

/// How long hosts may take to tell their leases, where none of them knows a run.
const LEASES: Duration = Duration::from_secs(8);

/// Between two samples of hosts that are asked for their leases.
const SAMPLED: Duration = Duration::from_secs(1);

/// What to do where there is no run at all.
pub(crate) const START_ONE: &str = "start one: hvtui run -np 2 -- hvtui train digits";

/// A run that was found.
#[derive(Debug)]
pub(crate) struct Found {
    /// All of it.
    pub(crate) spec: RunSpec,
    /// Its recording here, if there is one.
    pub(crate) recording: Option<Reader>,
    /// A session with its hosts under the names that the run has for them.
    session: Option<Session>,
    hosts: Vec<HostConfig>,
    /// Whether its hosts were asked and nothing of it lived there.
    pub(crate) was_over: bool,
    /// How it had ended then, as far as its hosts tell.
    pub(crate) ended: Option<String>,
}

/// The name of the run that is meant by a command for runs that go on: where none is given, or `last`, the newest one of
/// which no end is recorded, else the newest.
pub(crate) fn going_on(run: Option<&str>, paths: &Paths) -> Result<String, Failure> {
    if let Some(run) = run.filter(|run| *run != "last") {
        return Ok(run.to_owned());
    }
    let runs = Store::new(&paths.state).list()?.runs;
    let live = runs.iter().find(|run| run.outcome.is_none() && !run.spec.is_imported());
    Ok(live.map_or_else(|| "last".to_owned(), |run| run.spec.id.to_string()))
}

/// The same for a command that is of use only where the run lives: of several of which no end is recorded the newest one that lives
/// by what its hosts say, else the newest one of which they say nothing, else the newest run. Needs a tokio runtime.
pub(crate) async fn living(
    run: Option<&str>,
    file: &HostsFile,
    paths: &Paths,
    prompter: &Prompter,
) -> Result<String, Failure> {
    let newest = going_on(run, paths)?;
    if newest == "last" || run.is_some_and(|run| run != "last") {
        return Ok(newest);
    }
    let store = Store::new(&paths.state);
    let mut open = store.list()?.runs;
    open.retain(|run| run.outcome.is_none() && !run.spec.is_imported());
    let open: Vec<RunSpec> = open.into_iter().map(|run| run.spec).collect();
    let Some(first) = open.first() else { return Ok(newest) };
    // a client follows it
    if store.is_written(&first.id) {
        return Ok(newest);
    }
    let mut session = connect::session(&file.hosts, &paths.home, None, prompter).await?;
    // other hosts, which may be down, are not waited for
    let is_known = |inventory: &RunInventory| open.iter().all(|spec| inventory.unheard(spec).is_empty());
    let enough = |inventory: &RunInventory| inventory.is_live(&first.id) || is_known(inventory);
    let asked = ask(&mut session, PATIENCE, prompter, enough).await;
    Ok(likeliest(&open, &asked.inventory).map_or_else(|| "last".to_owned(), ToString::to_string))
}

/// The first of these that lives, else the first of which that is not known.
fn likeliest<'a>(open: &'a [RunSpec], inventory: &RunInventory) -> Option<&'a RunId> {
    let live = open.iter().find(|spec| inventory.is_live(&spec.id));
    let unknown = || open.iter().find(|spec| !inventory.unheard(spec).is_empty());
    live.or_else(unknown).map(|spec| &spec.id)
}

/// The recording that `text` means; `None` when no run here is called so.
pub(crate) fn recorded(text: &str, paths: &Paths) -> Result<Option<Reader>, Failure> {
    match Store::new(&paths.state).find(text) {
        // in one that is empty there is nothing: its run is looked for on the hosts
        Ok(path) => {
            let reader = Reader::open(&path)?;
            Ok((path == Path::new(text) || !reader.is_empty()).then_some(reader))
        }
        Err(Error::NoSuchRun { .. } | Error::NoRuns(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds a run here or on the hosts. Needs a tokio runtime.
pub(crate) async fn find(
    text: &str,
    file: &HostsFile,
    paths: &Paths,
    interval: Option<Duration>,
    prompter: &Prompter,
) -> Result<Found, Failure> {
    if let Some(reader) = recorded(text, paths)? {
        let Some(spec) = reader.spec().cloned() else {
            return Err(Failure::usage(format!("{text}: the recording does not say which run it is of")));
        };
        let hosts = hosts_of(&spec, file).unwrap_or_default();
        return Ok(Found {
            spec,
            recording: Some(reader),
            session: None,
            hosts,
            was_over: false,
            ended: None,
        });
    }
    let mut session = connect::session(&file.hosts, &paths.home, interval, prompter).await?;
    // once the run is known, only a host of it that has another name here is still waited for
    let enough = |inventory: &RunInventory| {
        let spec = inventory.shares.keys().find(|run| run.matches(text)).and_then(|run| inventory.spec(run));
        let named = |id: &HostId| file.hosts.iter().any(|host| host.id == *id);
        spec.is_some_and(|spec| inventory.unheard(spec).iter().all(named))
    };
    let answers = ask(&mut session, PATIENCE, prompter, enough).await;
    let run = match choose(text, &answers) {
        Ok(run) => run,
        Err(failure) => {
            drop(session);
            let of_another = of_another_user(text, &answers.inventory, (file, paths), prompter).await;
            return Err(of_another.unwrap_or(failure));
        }
    };
    let Some(spec) = answers.inventory.spec(&run).cloned() else {
        let text = "was launched by an hvtui that left no plan on its hosts";
        return Err(Failure::usage(format!("run {} {text}: use the machine that launched it", run.short())));
    };
    let named = |share: &HostId| {
        let shares = answers.inventory.shares.get(&run)?;
        shares.iter().find(|(_, told)| told.host == *share).map(|(here, _)| here.clone())
    };
    let mut renamed = false;
    let (mut hosts, mut absent) = (Vec::new(), Vec::new());
    for id in spec.hosts() {
        let here = named(&id).unwrap_or_else(|| id.clone());
        renamed |= here != id;
        match file.hosts.iter().find(|host| host.id == here).cloned() {
            Some(config) => hosts.push(HostConfig { id, ..config }),
            None => absent.push(id),
        }
    }
    if !absent.is_empty() {
        return Err(unnamed(&spec, &absent));
    }
    // the run's own names are what agents and recordings know
    let session = (!renamed).then_some(session);
    let was_over = answers.inventory.status(&spec, None) == RunStatus::Ended;
    let ended = answers.inventory.ended(&spec);
    Ok(Found { spec, recording: None, session, hosts, was_over, ended })
}

/// Why the run that is meant, by its id or name, can't be used: a lease that a host tells names it as another user's. Such a run
/// tells nothing else here.
async fn of_another_user(
    text: &str,
    inventory: &RunInventory,
    (file, paths): (&HostsFile, &Paths),
    prompter: &Prompter,
) -> Option<Failure> {
    let mut known = inventory.shares.iter();
    let is_known =
        known.any(|(run, shares)| run.matches(text) || shares.values().any(|share| share.name == text));
    let answered = file.hosts.iter().filter(|host| inventory.answered.contains(&host.id));
    let hosts: Vec<HostConfig> = answered.cloned().collect();
    if matches!(text, "" | "last") || is_known || hosts.is_empty() {
        return None;
    }
    let mut session = connect::session(&hosts, &paths.home, Some(SAMPLED), prompter).await.ok()?;
    let told = async {
        while session.world().hosts.values().filter(|state| has_told(state)).count() < hosts.len()
            && leased_by_another(text, session.world()).is_none()
        {
            session.next().await;
        }
    };
    prompter.timeout(LEASES, told).await;
    leased_by_another(text, session.world())
}

/// Whether a host has told its leases, or tells none: they come before the first sample.
fn has_told(state: &HostState) -> bool {
    let is_lost = || state.link.as_ref().is_some_and(|(_, link)| fault(link).is_some());
    state.leases.is_some() || state.sample.is_some() || is_lost()
}

fn leased_by_another(text: &str, world: &World) -> Option<Failure> {
    let of_host = |(host, state): (&HostId, &HostState)| {
        let leases = state.leases.as_ref()?;
        let mut others = leases.held.iter().chain(&leases.beside).filter(|lease| !lease.own);
        others.find_map(|lease| {
            let run = lease.run.as_ref()?;
            let is_meant = run.matches(text) || lease.name.as_deref() == Some(text);
            is_meant.then(|| (run.clone(), lease.clone(), host.to_string()))
        })
    };
    let found: Vec<(RunId, Lease, String)> = world.hosts.iter().filter_map(of_host).collect();
    let (run, lease, _) = found.first()?;
    let user = sanitize(lease.user.as_deref().unwrap_or("another user"));
    let name = lease.name.as_ref().map(|name| format!(" ({})", sanitize(name))).unwrap_or_default();
    let hosts: Vec<&str> =
        found.iter().filter(|(of, ..)| of == run).map(|(.., host)| host.as_str()).collect();
    let words = format!(
        "run {}{name} is {user}'s, on {}, launched {}: only that user, or root there, can stop it and read \
         what it prints",
        run.short(),
        hosts.join(", "),
        local_time(Stamp(run.unix_ms() as i64 * 1000))
    );
    Some(Failure::new(Code::Permission, words))
}

impl Found {
    /// A session with the run's hosts.
    pub(crate) async fn session(
        &mut self,
        file: &HostsFile,
        paths: &Paths,
        interval: Option<Duration>,
        prompter: &Prompter,
    ) -> Result<Session, Failure> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        if self.hosts.is_empty() {
            self.hosts = hosts_of(&self.spec, file)?;
        }
        connect::session(&self.hosts, &paths.home, interval, prompter).await
    }
}

/// The run's hosts as the hosts file names them.
pub(crate) fn hosts_of(spec: &RunSpec, file: &HostsFile) -> Result<Vec<HostConfig>, Failure> {
    let reached = |id: &HostId| {
        let host = spec.options.reached.iter().find(|host| host.address == id.as_str());
        host.map(super::launch::reached)
    };
    let find = |id: &HostId| {
        let known = file.hosts.iter().find(|host| host.id == *id).cloned();
        known.or_else(|| reached(id))
    };
    let (mut hosts, mut absent) = (Vec::new(), Vec::new());
    for id in spec.hosts() {
        match find(&id) {
            Some(host) => hosts.push(host),
            None => absent.push(id),
        }
    }
    if absent.is_empty() { Ok(hosts) } else { Err(unnamed(spec, &absent)) }
}

fn unnamed(spec: &RunSpec, hosts: &[HostId]) -> Failure {
    let why = "which the hosts file does not name: give the hosts file of the launch by --hosts";
    Failure::usage(is_on(spec, hosts, why))
}

/// The run of those that the hosts know that `text` means: by id, else by name, living ones first.
fn choose(text: &str, asked: &Asked) -> Result<RunId, Failure> {
    let inventory = &asked.inventory;
    let runs = || inventory.shares.keys().rev();
    let name = |run: &RunId| {
        inventory.shares[run].values().map(|share| share.name.clone()).next().unwrap_or_default()
    };
    let mut meant: Vec<&RunId> = match text {
        "" | "last" => runs().take(1).collect(),
        text => runs().filter(|run| run.matches(text)).collect(),
    };
    if meant.is_empty() {
        meant = runs().filter(|run| name(run) == text).collect();
    }
    if meant.len() > 1 && meant.iter().filter(|run| inventory.is_live(run)).count() == 1 {
        meant.retain(|run| inventory.is_live(run));
    }
    match &meant[..] {
        [run] => Ok((*run).clone()),
        [] => {
            let known: Vec<String> =
                runs().take(5).map(|run| format!("{} {}", run.short(), name(run))).collect();
            let known =
                if known.is_empty() { String::new() } else { format!("; they know {}", known.join(", ")) };
            let nowhere = "is recorded here or known to the hosts that answered";
            let what = match text {
                // it may not have been typed
                "" | "last" if asked.silent.is_empty() => format!("no run {nowhere}; {START_ONE}"),
                "" | "last" => format!("no run {nowhere}"),
                text => format!("no run '{text}' {nowhere}{known}"),
            };
            let lines: Vec<String> = std::iter::once(what).chain(asked.silent_words()).collect();
            let code = asked.silent.first().map_or(Code::Usage, |(_, code, _)| *code);
            Err(Failure::new(code, lines.join("\n")))
        }
        several => {
            let names: Vec<String> =
                several.iter().map(|run| format!("{} {}", run.short(), name(run))).collect();
            Err(Failure::usage(format!("'{text}' may be any of {}: write more of the id", names.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::host_run_status;
    use crate::domain::run_status::HostRunStatus;

    fn share(run: &RunId, name: &str, live: bool) -> HostRunStatus {
        HostRunStatus { run: run.clone(), name: name.into(), ..host_run_status(live) }
    }

    #[test]
    fn of_runs_without_a_recorded_end_the_one_that_lives_is_meant() {
        use crate::domain::fixtures::{placement, run_spec};
        let spec =
            |at, host: &str| RunSpec { id: RunId::new(at, 1), ..run_spec(vec![placement(0, host, 0)]) };
        let open = [spec(3, "a"), spec(2, "a"), spec(1, "b")];
        let mut inventory = RunInventory::default();
        let at = |inventory: &RunInventory| likeliest(&open, inventory).cloned();
        assert_eq!(at(&inventory), Some(open[0].id.clone()), "no host has answered");
        let shares = vec![share(&open[0].id, "x", false), share(&open[1].id, "x", true)];
        inventory.take(&HostId::from("a"), shares, true);
        assert_eq!(at(&inventory), Some(open[1].id.clone()));
        let mut inventory = RunInventory::default();
        inventory.take(&HostId::from("a"), vec![share(&open[0].id, "x", false)], true);
        assert_eq!(at(&inventory), Some(open[2].id.clone()), "b has not answered");
        inventory.take(&HostId::from("b"), Vec::new(), true);
        assert_eq!(at(&inventory), None, "all have ended");
    }

    #[test]
    fn a_run_of_another_user_is_told_by_its_lease() {
        use crate::domain::lease::Leases;
        let run = RunId::new(1, 1);
        let by = |text: &str, own: bool, user: Option<&str>| {
            let user = user.map(ToOwned::to_owned);
            let name = Some("mnist".to_owned());
            let lease = Lease { user, own, name, run: Some(run.clone()), ..Lease::unknown("GPU-0") };
            let leases = Some(Leases { held: vec![lease.clone(), lease], ..Leases::default() });
            let mut world = World::default();
            for host in ["n2", "n3"] {
                let state = HostState { leases: leases.clone(), ..HostState::default() };
                world.hosts.insert(HostId::from(host), state);
            }
            leased_by_another(text, &world)
        };
        let with = |own: bool, user: Option<&str>| by(run.short(), own, user);
        let failure = with(false, Some("li")).unwrap();
        assert_eq!(failure.code, Code::Permission);
        let launched = local_time(Stamp(1000));
        let words = format!("is li's, on n2, n3, launched {launched}: only that user, or root there, can");
        let words = format!("run {} (mnist) {words} stop it and read what it prints", run.short());
        assert_eq!(failure.message, words);
        assert_eq!(by("mnist", false, Some("li")).unwrap().message, failure.message, "by its name, too");
        assert!(by("mnis", false, Some("li")).is_none(), "a name is written whole");
        assert!(with(false, None).unwrap().message.contains("is another user's, on n2"));
        assert!(with(true, Some("li")).is_none(), "its own are known to the host");
        assert!(leased_by_another("none", &World::default()).is_none());
    }

    #[test]
    fn a_host_whose_link_is_lost_is_not_waited_for_with_its_leases() {
        use crate::domain::host::LinkState;
        use crate::domain::lease::Leases;
        let with = |link| HostState { link: Some((Stamp(1), link)), ..HostState::default() };
        assert!(!has_told(&HostState::default()) && !has_told(&with(LinkState::Up)));
        assert!(has_told(&with(LinkState::Down { reason: "gone".into(), retry_at: None })));
        assert!(has_told(&HostState { leases: Some(Leases::default()), ..HostState::default() }));
    }

    #[test]
    fn a_run_on_the_hosts_is_found_by_id_name_or_age() {
        let (old, new) = (RunId::new(1, 1), RunId::new(2, 2));
        let mut asked = Asked::default();
        let shares = vec![share(&old, "digits", false), share(&new, "digits", true)];
        asked.inventory.take(&HostId::from("a"), shares, true);
        assert_eq!(choose("last", &asked).unwrap(), new);
        assert_eq!(choose(old.as_str(), &asked).unwrap(), old);
        assert_eq!(choose("digits", &asked).unwrap(), new, "the one that lives");
        assert_eq!(choose("none", &asked).unwrap_err().code, Code::Usage);
        asked.silent.push((HostId::from("b"), Code::Unreachable, "no answer in 8 s".into()));
        let failure = choose("none", &asked).unwrap_err();
        assert_eq!(failure.code, Code::Unreachable);
        assert!(failure.message.contains("b could not be asked: no answer in 8 s"), "{failure}");
        let last = |silent: bool| {
            let of = if silent { asked.silent.clone() } else { Vec::new() };
            choose("last", &Asked { silent: of, ..Asked::default() }).unwrap_err().message
        };
        let none = "no run is recorded here or known to the hosts that answered";
        assert_eq!(last(false), format!("{none}; start one: hvtui run -np 2 -- hvtui train digits"));
        assert_eq!(last(true), format!("{none}\nb could not be asked: no answer in 8 s"));
        asked.inventory.take(&HostId::from("a"), vec![share(&new, "digits", false)], true);
        assert!(choose("digits", &asked).unwrap_err().message.contains("may be any of"));
    }
}
