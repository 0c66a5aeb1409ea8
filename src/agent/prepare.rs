//! Checks that the ranks of a run could start here, and takes the leases of their GPUs, before any of them starts
//! anywhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::AgentConfig;
use super::ports::HeldPorts;
use super::script;
use crate::domain::engine::Engine;
use crate::domain::environment::EnvironmentChange;
use crate::domain::ids::{GpuUuid, HostId, Rank, RunId};
use crate::domain::run::{HostRun, Placement, RankSpec, RefusalClass, Slot, Spool};
use crate::domain::units;
use crate::image::engine::EngineError;
use crate::program::{ProgramError, lacks_interpreter, resolve, resolve_python_of, working_directory};
use crate::supervise::SuperviseError;
use crate::supervise::container::SETUP;
use crate::supervise::container::setup::{Setup, SetupError};
use crate::supervise::container::sweep;
use crate::supervise::environment::{self, Deadline, Missing};
use crate::supervise::lease::{self, Claims, LeaseError};
use crate::supervise::rundir::RunDir;
use crate::supervise::start;
use crate::supervise::state::{STATE, State};
use crate::supervise::unwanted;

/// Why a run can't start here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotReady {
    /// The rank it is about, if one.
    pub(super) rank: Option<Rank>,
    /// For people, with the remedy.
    pub(super) reason: String,
    /// What kind of reason.
    pub(super) class: RefusalClass,
    /// Whether it is that the GPUs are taken.
    pub(super) busy: bool,
}

impl NotReady {
    /// It was stopped.
    fn unwanted() -> Self {
        let reason = unwanted::WHY.to_owned();
        Self { rank: None, reason, class: RefusalClass::Unwanted, busy: false }
    }
}

/// What was made ready.
#[derive(Debug)]
pub(super) struct Ready {
    /// TCP ports at the ranks' address.
    pub(super) ports: HeldPorts,
    /// The leases of the ranks' GPUs.
    pub(super) claims: Claims,
    /// What was activated for the ranks.
    pub(super) environment: EnvironmentChange,
    /// What its containers need, where its ranks are started in some.
    pub(super) setup: Option<Setup>,
}

/// A connection that was lost may live on here for a moment, and hold the leases of a run that its client asks for
/// again over another one: how often and how long it is waited for.
const OWN_TRIES: u32 = 40;
const OWN_PAUSE: Duration = Duration::from_millis(50);

/// Checks everything and takes the leases. `None` when the run was started here before.
pub(super) fn prepare(config: &AgentConfig, spec: &HostRun) -> Result<Option<Ready>, NotReady> {
    if was_started(config, spec) {
        return Ok(None);
    }
    let wanted = || if is_unwanted(config, &spec.run) { Err(NotReady::unwanted()) } else { Ok(()) };
    wanted()?;
    let ready = check(config, spec);
    // what was looked at may have taken its time; whatever else was found counts no more then
    if let Err(unwanted) = wanted() {
        drop(ready);
        forget(config, spec);
        return Err(unwanted);
    }
    ready
}

/// Whether the run was stopped before it started.
pub(super) fn is_unwanted(config: &AgentConfig, run: &RunId) -> bool {
    unwanted::is_marked(&config.state_dir, run)
}

fn check(config: &AgentConfig, spec: &HostRun) -> Result<Option<Ready>, NotReady> {
    let no_command = |reason| NotReady { rank: None, reason, class: RefusalClass::Command, busy: false };
    let deadline = Deadline::begin();
    let environment = activate(spec, deadline).map_err(no_command)?;
    let place = Place { config, spec, change: &environment, deadline };
    place.check_engine().map_err(no_command)?;
    let setup = check_containers(config, spec)?;
    let synced = spec.run_spec.as_ref().is_some_and(|run| run.options.sync.is_some());
    for rank in &spec.ranks {
        let command =
            |reason| NotReady { rank: Some(rank.rank), reason, class: RefusalClass::Command, busy: false };
        place.check_rank(rank, setup.is_some()).map_err(command)?;
        // in a container the script is the image's; ranks of srun run on other machines
        if setup.is_none()
            && spec.engine.as_ref().is_none_or(Engine::seats_ranks)
            && let Some(Err(missing)) = script::find(rank, synced)
        {
            return Err(command(missing));
        }
    }
    let whole = |reason| NotReady { rank: None, reason, class: RefusalClass::Unavailable, busy: false };
    let leased = take_leases(config, spec).map_err(|error| NotReady {
        busy: leases_are_held(&error),
        class: lease_class(&error),
        ..whole(error.words(&|gpu| gpu_name(spec, gpu)))
    })?;
    let Some(claims) = leased else { return Ok(None) };
    let ports = HeldPorts::take(spec).map_err(whole)?;
    check_space(config, spec).map_err(|(class, reason)| NotReady { class, ..whole(reason) })?;
    Ok(Some(Ready { ports, claims, environment, setup }))
}

/// What the run wants activated here.
pub(super) fn activate(spec: &HostRun, deadline: Deadline) -> Result<EnvironmentChange, String> {
    let plan = spec.environment();
    if plan.is_empty() {
        return Ok(EnvironmentChange::default());
    }
    let first = spec.ranks.first();
    let cwd = working_directory(first.and_then(|rank| rank.cwd.as_deref()));
    let cwd = cwd.map_err(|error| on(&spec.host, &error))?;
    let given = first.map(|rank| rank.env.clone()).unwrap_or_default();
    environment::resolve(&plan, &given, &cwd, deadline).map_err(|error| format!("{}: {error}", spec.host))
}

/// Takes all leases or none, and waits for this run itself alone. `None` when that was started meanwhile.
fn take_leases(config: &AgentConfig, spec: &HostRun) -> Result<Option<Claims>, LeaseError> {
    for _ in 0..OWN_TRIES {
        // looked at first: it names all holders, and touches nothing where one is enough to refuse
        match lease::check(spec).and_then(|()| lease::claim(spec)) {
            Err(LeaseError::Busy(held)) if held.iter().all(|lease| lease.run.as_ref() == Some(&spec.run)) => {
            }
            taken => return taken.map(Some),
        }
        std::thread::sleep(OWN_PAUSE);
        if has_begun(config, spec) == Some(true) {
            return Ok(None);
        }
    }
    lease::claim(spec).map(Some)
}

/// `GPU 3`, as the run has it; its UUID where an older client launched it.
fn gpu_name(spec: &HostRun, gpu: &GpuUuid) -> String {
    let placements = spec.run_spec.iter().flat_map(|run| &run.placements);
    let mut slots = placements.filter(|placement| placement.host == spec.host).flat_map(Placement::slots);
    let slot = slots.find(|slot| matches!(slot, Slot::Gpu { uuid, .. } if uuid == gpu));
    slot.map_or_else(|| gpu.to_string(), |slot| format!("GPU {}", slot.index()))
}

/// Whether a supervisor has taken this attempt of a run on, now or before. One that has only claimed it may still give it back.
fn was_started(config: &AgentConfig, spec: &HostRun) -> bool {
    for _ in 0..OWN_TRIES {
        if let Some(begun) = has_begun(config, spec) {
            return begun;
        }
        std::thread::sleep(OWN_PAUSE);
    }
    true
}

fn has_begun(config: &AgentConfig, spec: &HostRun) -> Option<bool> {
    match RunDir::find(&config.state_dir, &spec.run, &spec.host) {
        Ok(Some(dir)) => start::has_begun(&dir, spec.attempt),
        _ => Some(false),
    }
}

fn lease_class(error: &LeaseError) -> RefusalClass {
    if leases_are_held(error) { RefusalClass::Busy } else { RefusalClass::Permission }
}

/// Whether a launch fails because its GPUs are taken.
fn leases_are_held(error: &LeaseError) -> bool {
    matches!(error, LeaseError::Busy(_))
}

/// Forgets a plan that was not carried out.
pub(super) fn forget(config: &AgentConfig, spec: &HostRun) {
    if let Ok(Some(dir)) = RunDir::find(&config.state_dir, &spec.run, &spec.host) {
        if matches!(dir.read_json::<State>(STATE), Ok(None)) {
            // what was written for a supervisor that never owned the run
            let _ = dir.remove(SETUP);
        }
        dir.remove_if_empty();
    }
}

/// Names the host where a person looks for it: before the search path.
fn on(host: &HostId, error: &ProgramError) -> String {
    let text = error.to_string();
    match text.split_once(" (PATH=") {
        // which need not be on the search path of what no shell starts
        Some((what, path)) if what == "command 'conda' not found" => format!(
            "{what} on {host} (PATH={path}: name the environment by --conda NAME, which finds conda below the home folder \
             too"
        ),
        Some((what, path)) => format!("{what} on {host} (PATH={path}"),
        None => format!("{text} on {host}"),
    }
}

/// Whether its ranks can be started in containers here, if they are to be; what has no owner any more is removed.
fn check_containers(config: &AgentConfig, spec: &HostRun) -> Result<Option<Setup>, NotReady> {
    let Some(options) = spec.container() else { return Ok(None) };
    let found = Setup::find(spec, options, std::env::var_os("PATH").as_deref());
    let setup = found.map_err(|error| {
        let class = match &error {
            SetupError::Engine(EngineError::NotAllowed { .. }) => RefusalClass::Permission,
            SetupError::Engine(EngineError::NotRunning { .. } | EngineError::Silent { .. }) => {
                RefusalClass::Unavailable
            }
            _ => RefusalClass::Command,
        };
        NotReady { rank: None, reason: format!("{}: {error}", spec.host), class, busy: false }
    })?;
    sweep::orphans(&setup.engine, &config.state_dir);
    Ok(Some(setup))
}

/// Where programs are looked for, and what is known of it.
pub(super) struct Place<'a> {
    pub(super) config: &'a AgentConfig,
    pub(super) spec: &'a HostRun,
    pub(super) change: &'a EnvironmentChange,
    pub(super) deadline: Deadline,
}

impl Place<'_> {
    /// Whether the host has what its launcher, or the launcher of another host, starts by name.
    pub(super) fn check_engine(&self) -> Result<(), String> {
        let Some(engine) = &self.spec.engine else { return Ok(()) };
        let cwd = match engine {
            Engine::Launcher(launcher) => launcher.cwd.as_deref(),
            Engine::Node(_) => None,
        };
        let cwd = working_directory(cwd).map_err(|error| on(&self.spec.host, &error))?;
        let path = environment::search_path(engine.env(), self.change);
        let find = |name: &str| resolve(name, path.as_deref(), &cwd, &self.config.exe);
        for program in engine.needs() {
            // One of several, where launchers differ in what they start.
            let mut found = program.split('|').map(find);
            let first = found.next().unwrap_or_else(|| find(program));
            let any = if first.is_ok() { first } else { found.find(Result::is_ok).unwrap_or(first) };
            any.map_err(|error| {
                let remedy = "install it there, or add its folder to PATH in the host's env";
                // a path that the launch sets is for the launch to correct
                let names = program.split('|').filter(|_| !engine.env().contains_key("PATH"));
                match { names }.find_map(|name| self.hint(name, engine.env(), &cwd)) {
                    Some(hint) => format!("{}; {hint}", on(&self.spec.host, &error)),
                    None => format!("{}: {remedy}", on(&self.spec.host, &error)),
                }
            })?;
        }
        Ok(())
    }

    /// The file that the rank executes. With `contained` its program and its directory are the image's, and not known yet.
    pub(super) fn check_rank(&self, rank: &RankSpec, contained: bool) -> Result<Option<PathBuf>, String> {
        let on_host = |error: ProgramError| on(&self.spec.host, &error);
        if let Some(text) = rank
            .argv
            .iter()
            .chain(rank.env.values())
            .chain(rank.defaults.values())
            .find(|text| text.contains('\0'))
        {
            return Err(format!("a NUL byte in {text:?} can't be passed to a program"));
        }
        if let Some(name) = rank
            .env
            .keys()
            .chain(rank.defaults.keys())
            .find(|name| name.is_empty() || name.contains(['=', '\0']))
        {
            return Err(format!("{name:?} can't be the name of a variable"));
        }
        let command = rank.argv.first().ok_or_else(|| "the command is empty".to_owned())?;
        if contained {
            return Ok(None);
        }
        let cwd = working_directory(rank.cwd.as_deref()).map_err(on_host)?;
        let path = environment::search_path(&rank.env, self.change);
        let of = self.spec.python_of();
        let found = resolve_python_of(of, command, path.as_deref(), &cwd, &self.config.exe);
        let file = found.map_err(|error| {
            let text = on(&self.spec.host, &error);
            match self.hint(command, &rank.env, &cwd) {
                Some(hint) => format!("{text}; {hint}"),
                None => text,
            }
        })?;
        // ranks of srun run on other machines
        let is_here = self.spec.engine.as_ref().is_none_or(Engine::seats_ranks);
        let place = format!("on {}", self.spec.host);
        match lacks_interpreter(&file, path.as_deref(), &cwd, &place).filter(|_| is_here) {
            Some(lacking) => Err(lacking),
            None => Ok(Some(file)),
        }
    }

    /// Where a login shell here finds what the ranks do not.
    fn hint(&self, command: &str, given: &BTreeMap<String, String>, cwd: &Path) -> Option<String> {
        let missing = Missing {
            plan: &self.spec.environment(),
            given: given.contains_key("PATH"),
            path: environment::search_path(given, self.change),
            deadline: self.deadline,
        };
        missing.command(command, cwd)
    }
}

/// What all ranks may print must fit beside what is to stay free. Else why not, and what kind of reason it is.
fn check_space(config: &AgentConfig, spec: &HostRun) -> Result<(), (RefusalClass, String)> {
    let on_host = |error: SuperviseError| (error.class(), format!("{}: {error}", spec.host));
    let dir = RunDir::create(&config.state_dir, &spec.run, &spec.host).map_err(on_host)?;
    let (free, size) = dir.space().map_err(on_host)?;
    let enough = fits(&spec.spool, spec.ranks.len(), (free, size), &config.state_dir);
    if enough.is_err() {
        dir.remove_if_empty();
    }
    enough.map_err(|why| (RefusalClass::Io, format!("{}: {why}", spec.host)))
}

/// Whether the output of so many ranks fits into `free` bytes of a file system of `size`, that of the folder `at`.
fn fits(spool: &Spool, ranks: usize, (free, size): (u64, u64), at: &Path) -> Result<(), String> {
    let ranks = ranks as u64;
    let (wanted, least) = (spool.cap.saturating_mul(ranks), spool.min_free.of(size));
    let room = free.saturating_sub(least);
    if wanted <= room {
        return Ok(());
    }
    let each = room.checked_div(ranks).unwrap_or(0) >> 20;
    let make_room = "make room there (`hvtui runs prune` deletes what runs have left)";
    let remedy = match each {
        0 => make_room.to_owned(),
        each => format!("{make_room}, or keep less of each rank (--spool-cap {each}M)"),
    };
    let [wanted, cap, free, least] = [wanted, spool.cap, free, least].map(units::bytes);
    let print = match ranks {
        1 => format!("1 rank may print {wanted}"),
        ranks => format!("{ranks} ranks may print {wanted} ({cap} each are kept)"),
    };
    let at = at.display();
    Err(format!("{print}, but {free} are free at {at}, of which {least} must stay so (`min_free`): {remedy}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::engine::Node;
    use crate::domain::fixtures::{host_run, run_spec};
    use crate::domain::run::{MinFree, Spool};

    fn config(state: &std::path::Path) -> AgentConfig {
        AgentConfig { exe: "/bin/true".into(), state_dir: state.join("hvtui"), build: String::new() }
    }

    fn spec(argv: &[&str], env: &[(&str, &str)]) -> HostRun {
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>();
        let argv = argv.iter().map(|a| (*a).to_owned()).collect();
        HostRun {
            host: HostId::from("gpu-b"),
            grace_ms: 100,
            ports: 2,
            ..host_run(vec![RankSpec {
                rank: Rank(4),
                argv,
                env,
                defaults: BTreeMap::new(),
                cwd: Some("/tmp".to_owned()),
            }])
        }
    }

    #[test]
    fn a_gpu_is_called_by_its_number_in_the_run() {
        let gpu = |host: &str, index| Slot::Gpu { index, uuid: GpuUuid::from(format!("GPU-{host}-{index}")) };
        let place = |host: &str, index| Placement {
            rank: Rank(index),
            host: HostId::from(host),
            local_rank: 0,
            slot: gpu(host, index),
            more: vec![gpu(host, index + 1)],
        };
        let run = run_spec(vec![place("gpu-a", 0), place("gpu-b", 2)]);
        let spec = HostRun { run_spec: Some(Box::new(run)), ..spec(&["true"], &[]) };
        let named = |gpu: &str| gpu_name(&spec, &GpuUuid::from(gpu));
        assert_eq!([named("GPU-gpu-b-2"), named("GPU-gpu-b-3")], ["GPU 2", "GPU 3"]);
        assert_eq!(named("GPU-gpu-a-0"), "GPU-gpu-a-0", "of another host");
    }

    #[test]
    fn each_failure_names_rank_host_and_remedy() {
        let state = tempfile::tempdir().unwrap();
        let config = config(state.path());
        let reason = |argv: &[&str], env: &[(&str, &str)]| prepare(&config, &spec(argv, env)).unwrap_err();
        let missing = reason(&["xyz"], &[("PATH", "/bin")]);
        assert_eq!(missing.rank, Some(Rank(4)));
        assert_eq!(missing.reason, "command 'xyz' not found on gpu-b (PATH=/bin)");
        let conda = reason(&["conda", "run", "-n", "x", "./a"], &[("PATH", "/bin")]).reason;
        assert!(conda.starts_with("command 'conda' not found on gpu-b (PATH=/bin): name the"), "{conda}");
        assert!(conda.contains("by --conda NAME"), "{conda}");
        assert_eq!(reason(&["/x/y"], &[]).reason, "exec /x/y: no such file or directory on gpu-b");
        assert_eq!(reason(&[], &[]).reason, "the command is empty");
        assert!(reason(&["hvtui", "a\0b"], &[]).reason.contains("NUL"));
        assert!(reason(&["hvtui"], &[("A=B", "")]).reason.contains("name of a variable"));
        let nowhere = reason(&["hvtui"], &[("HVTUI_BIND", "192.0.2.1")]);
        assert!(nowhere.reason.starts_with("gpu-b can't listen on 192.0.2.1: "), "{}", nowhere.reason);
        assert_eq!(nowhere.rank, None);
        assert!(!config.state_dir.exists(), "nothing is made for a run that can't start");
    }

    #[test]
    fn a_script_whose_interpreter_is_missing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&folder.path().join("state"));
        let script = folder.path().join("sb.py");
        std::fs::write(&script, "#!/no/such/python3.5\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = script.display().to_string();
        let refused = prepare(&config, &spec(&[&path], &[])).unwrap_err();
        assert_eq!(
            refused.reason,
            format!(
                "exec {path}: its interpreter /no/such/python3.5 is not on gpu-b: install it there, or name another one in the \
                 first line (#!)"
            )
        );
        assert_eq!((refused.rank, refused.class), (Some(Rank(4)), RefusalClass::Command));
        assert!(!config.state_dir.exists(), "nothing is made for a run that can't start");
    }

    #[test]
    fn a_host_without_what_the_launcher_starts_there_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let config = config(state.path());
        let mut spec = spec(&["hvtui"], &[]);
        let env = BTreeMap::from([("PATH".to_owned(), "/nowhere".to_owned())]);
        let needs = vec!["orted".to_owned()];
        let node = Node { name: "10.0.0.2".to_owned(), needs, env, stands: false };
        spec.engine = Some(Engine::Node(node));
        let refused = prepare(&config, &spec).unwrap_err();
        assert_eq!(
            refused.reason,
            "command 'orted' not found on gpu-b (PATH=/nowhere): install it there, or add its folder to PATH in the \
             host's env"
        );
        assert_eq!((refused.rank, refused.class), (None, RefusalClass::Command));
    }

    #[test]
    fn output_that_does_not_fit_is_refused_with_numbers() {
        let spool = Spool { cap: 256 << 20, min_free: MinFree::Percent(5) };
        let gib = 1 << 30;
        let fits = |ranks, free, size| fits(&spool, ranks, (free, size), Path::new("/state"));
        assert_eq!(fits(4, 2 * gib, 10 * gib), Ok(()));
        assert_eq!(
            fits(8, 2 * gib, 20 * gib).unwrap_err(),
            "8 ranks may print 2.0 G (256 M each are kept), but 2.0 G are free at /state, of which 1.0 G must stay \
             so (`min_free`): make room there (`hvtui runs prune` deletes what runs have left), or keep less of each rank \
             (--spool-cap 128M)"
        );
        assert_eq!(
            fits(1, gib, 100 * gib).unwrap_err(),
            "1 rank may print 256 M, but 1.0 G are free at /state, of which 5.0 G must stay so (`min_free`): make \
             room there (`hvtui runs prune` deletes what runs have left)"
        );
        let nearly_full = Spool::default();
        assert_eq!(super::fits(&nearly_full, 8, (12 * gib, 250 * gib), Path::new("/state")), Ok(()));
        assert!(super::fits(&nearly_full, 8, (5 * gib, 250 * gib), Path::new("/state")).is_err());
        let state = tempfile::tempdir().unwrap();
        let config = config(state.path());
        let mut spec = spec(&["hvtui"], &[]);
        spec.spool = Spool { cap: 1 << 62, min_free: MinFree::Bytes(0) };
        let refused = prepare(&config, &spec).unwrap_err();
        assert!(refused.reason.starts_with("gpu-b: 1 rank may print "), "{}", refused.reason);
        assert_eq!(refused.class, RefusalClass::Io);
        assert!(RunDir::find(&config.state_dir, &spec.run, &spec.host).unwrap().is_none(), "nothing is left");
    }

    #[test]
    fn what_can_start_gets_a_port_and_can_be_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let config = config(state.path());
        let spec = spec(&["hvtui"], &[("HVTUI_BIND", "127.0.0.1")]);
        let ready = prepare(&config, &spec).unwrap().unwrap();
        assert!(ready.ports.numbers().iter().all(|port| *port != 0) && ready.ports.numbers().len() == 2);
        assert!(RunDir::find(&config.state_dir, &spec.run, &spec.host).unwrap().is_some());
        forget(&config, &spec);
        assert!(RunDir::find(&config.state_dir, &spec.run, &spec.host).unwrap().is_none());
    }
}
