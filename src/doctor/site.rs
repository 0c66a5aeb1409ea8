//! The place where checks look: other programs, the search paths and the other hosts. Nothing of it is changed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::python::Python;
use crate::domain::doctor::{Peer, RunPort, RunProgram, SamePath, SameRole, Started};
use crate::domain::environment::{EnvironmentPlan, LoginShell};
use crate::domain::gpu::RunOfProcess;
use crate::domain::text::os_text;
use crate::domain::time::Stamp;
use crate::procs::marks;
use crate::procs::table::{self, Process};
use crate::program::asked::{self, Told};
use crate::program::{home, resolve};
use crate::supervise::environment::{self, Deadline};

/// How long a check may take, unless it says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// Another program is asked for a little less, so that it is its name that is told.
const OF_A_PROGRAM: Duration = Duration::from_millis(3500);

/// What a program has answered, or why it has not.
type Answer = Result<Arc<Told>, String>;

/// The host that is looked at, and what its checks share.
#[derive(Debug)]
pub struct Site {
    /// The client's clock when it asked.
    pub asked_at: Stamp,
    /// This host's clock when the question came.
    pub arrived_at: Stamp,
    /// The state folder.
    pub state: PathBuf,
    /// The other hosts.
    pub peers: Vec<Peer>,
    /// What is compared with that of the others.
    pub paths: Vec<SamePath>,
    /// Python modules that are looked for.
    pub modules: Vec<String>,
    /// What a launch starts in its containers, where this is one of them.
    pub starts: Option<Started>,
    /// Whether it is looked at for a launch, which starts no login shell.
    pub for_launch: bool,
    /// The Python of that launch.
    pub run: Option<RunProgram>,
    /// The image of that launch.
    pub image: Option<String>,
    /// The container engine that the hosts file names.
    pub engine: Option<String>,
    /// The working directory that it names; of a launch its own.
    pub workdir: Option<String>,
    /// The ports that it takes here.
    pub ports: Vec<RunPort>,
    /// Whether each of the other hosts is logged in to, not a few of them.
    pub all_pairs: bool,
    /// Whether it is a container: no login shell is started in it then.
    pub in_container: bool,
    login: OnceLock<Result<BTreeMap<String, String>, String>>,
    python: OnceLock<Result<Python, String>>,
    /// By program and arguments.
    answers: Mutex<BTreeMap<Vec<OsString>, Arc<OnceLock<Answer>>>>,
    of_runs: OnceLock<Vec<(Process, RunOfProcess)>>,
}

impl Site {
    /// This host.
    pub fn new(asked_at: Stamp, arrived_at: Stamp, state: PathBuf, peers: Vec<Peer>) -> Self {
        let (login, python) = (OnceLock::new(), OnceLock::new());
        let (paths, modules) = (Vec::new(), Vec::new());
        Self {
            asked_at,
            arrived_at,
            state,
            peers,
            paths,
            modules,
            starts: None,
            for_launch: false,
            run: None,
            image: None,
            engine: None,
            workdir: None,
            ports: Vec::new(),
            all_pairs: false,
            in_container: false,
            login,
            python,
            answers: Mutex::default(),
            of_runs: OnceLock::new(),
        }
    }

    /// The same with files and folders to compare.
    #[must_use]
    pub fn with_paths(self, paths: Vec<SamePath>) -> Self {
        Self { paths, ..self }
    }

    /// The same with Python modules to look for.
    #[must_use]
    pub fn with_modules(self, modules: Vec<String>) -> Self {
        Self { modules, ..self }
    }

    /// The same as one of the containers of a launch.
    #[must_use]
    pub fn starting(self, starts: Option<Started>) -> Self {
        Self { starts, ..self }
    }

    /// The same with the Python of a launch.
    #[must_use]
    pub fn with_run(self, run: Option<RunProgram>) -> Self {
        Self { run, ..self }
    }

    /// The same with the image of a launch.
    #[must_use]
    pub fn with_image(self, image: Option<String>) -> Self {
        Self { image, ..self }
    }

    /// The same with the container engine that the hosts file names.
    #[must_use]
    pub fn with_engine(self, engine: Option<String>) -> Self {
        Self { engine, ..self }
    }

    /// The same with the working directory that the hosts file names, or that of a launch.
    #[must_use]
    pub fn with_workdir(self, workdir: Option<String>) -> Self {
        Self { workdir, ..self }
    }

    /// The same with the ports of a launch.
    #[must_use]
    pub fn with_ports(self, ports: Vec<RunPort>) -> Self {
        Self { ports, ..self }
    }

    /// The same with logins to each of the other hosts.
    #[must_use]
    pub fn with_all_pairs(self, all_pairs: bool) -> Self {
        Self { all_pairs, ..self }
    }

    /// The same within a container of this image.
    #[must_use]
    pub fn in_container(self, image: String) -> Self {
        Self { image: Some(image), in_container: true, ..self }
    }

    /// Where a program lies that a command over ssh would start.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        on(std::env::var_os("PATH").as_deref(), name)
    }

    /// A variable as a login shell has it, where it can be told.
    ///
    /// # Errors
    /// The shell does not tell, and why.
    pub fn of_login(&self, name: &str) -> Result<Option<String>, String> {
        let changed =
            self.login.get_or_init(|| changed_by(LoginShell::Login)).as_ref().map_err(Clone::clone)?;
        Ok(changed.get(name).cloned().or_else(|| std::env::var(name).ok()))
    }

    /// The same for a launch.
    #[must_use]
    pub fn for_launch(self, for_launch: bool) -> Self {
        Self { for_launch, ..self }
    }

    /// A variable as a login shell has it, where one counts and it can be told.
    pub(super) fn of_login_too(&self, name: &str) -> Option<String> {
        if self.for_launch || self.in_container { None } else { self.of_login(name).ok().flatten() }
    }

    /// The scripts that a launch would start.
    pub(super) fn scripts(&self) -> impl Iterator<Item = PathBuf> {
        let scripts = self.paths.iter().filter(|asked| asked.role == SameRole::Script);
        scripts.map(|asked| at_home(&asked.path))
    }

    /// The Python that a command over ssh finds: asked once, for all checks.
    ///
    /// # Errors
    /// There is none, or it does not tell.
    pub(super) fn python(&self) -> Result<Python, String> {
        self.python.get_or_init(|| Python::ask(self)).clone()
    }

    /// The libraries that the loader does not find for this one.
    ///
    /// # Errors
    /// `ldd` can't be started, or does not answer in time.
    pub(super) fn unfound(&self, library: &Path) -> Result<Vec<String>, String> {
        let ldd = self.program("ldd").unwrap_or_else(|| "/usr/bin/ldd".into());
        let said = self.ask(&ldd, &[&library.to_string_lossy()])?;
        let absent = said.out.lines().filter(|line| line.contains("=> not found"));
        Ok(absent.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    }

    /// The processes of runs, each with its run: looked for once, for all checks.
    pub(super) fn of_runs(&self) -> &[(Process, RunOfProcess)] {
        self.of_runs.get_or_init(|| marks::of_runs(table::all()))
    }

    /// Has another program answer: started once, for all checks that ask it the same.
    ///
    /// # Errors
    /// It can't be started, or does not answer in time.
    pub fn ask(&self, program: &Path, arguments: &[&str]) -> Answer {
        let answer = self.asked(program, arguments);
        answer.get_or_init(|| Self::ask_within(program, arguments, OF_A_PROGRAM).map(Arc::new)).clone()
    }

    /// The same, waited for no longer than this: the program goes on, for the checks that have time for it.
    ///
    /// # Errors
    /// It can't be started, or does not answer in time.
    pub(super) fn ask_soon(&self, program: &Path, arguments: &[&str], patience: Duration) -> Answer {
        let answer = self.asked(program, arguments);
        if let Some(answer) = answer.get() {
            return answer.clone();
        }
        let (give, given) = sync_channel(1);
        let asked = program.to_owned();
        let words: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        let body = move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let told = answer.get_or_init(|| Self::ask_within(&asked, &words, OF_A_PROGRAM).map(Arc::new));
            let _ = give.send(told.clone());
        };
        thread::Builder::new().name("ask".to_owned()).spawn(body).map_err(|error| os_text(&error))?;
        given.recv_timeout(patience).unwrap_or_else(|_| Err(is_late(program, patience)))
    }

    /// What a program has answered or is being asked.
    fn asked(&self, program: &Path, arguments: &[&str]) -> Arc<OnceLock<Answer>> {
        let words = [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new));
        let words = words.map(OsStr::to_owned).collect();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(answers.entry(words).or_default())
    }

    /// Has another program answer within so long, whether or not it was asked the same before.
    ///
    /// # Errors
    /// It can't be started, or does not answer in time.
    pub(super) fn ask_within(program: &Path, arguments: &[&str], patience: Duration) -> Result<Told, String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env("LC_ALL", "C");
        asked::ask(command, patience).map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => is_late(program, patience),
            _ => format!("{}: {}", program.display(), os_text(&error)),
        })
    }
}

fn is_late(program: &Path, patience: Duration) -> String {
    format!("{} does not answer in {:.1} s", program.display(), patience.as_secs_f64())
}

/// Where a path of a person's lies: from the home folder on where it does not begin at the root.
pub(super) fn at_home(path: &str) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home(),
        Some(rest) => home().join(rest.trim_start_matches('/')),
        None => home().join(path),
    }
}

/// Where a program lies on a search path.
pub(super) fn on(path: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    resolve(name, path, Path::new("/"), Path::new("")).ok()
}

/// A variable as a shell has it that a person has logged in to: an interactive one, which reads more of `~/.bashrc`.
///
/// # Errors
/// The shell does not tell, and why.
pub(super) fn of_interactive(name: &str) -> Result<Option<String>, String> {
    let changed = changed_by(LoginShell::Interactive)?;
    Ok(changed.get(name).cloned().or_else(|| std::env::var(name).ok()))
}

/// What such a shell changes.
fn changed_by(shell: LoginShell) -> Result<BTreeMap<String, String>, String> {
    let plan = EnvironmentPlan { login: Some(shell), ..EnvironmentPlan::default() };
    let deadline = Deadline::after(u64::try_from(OF_A_PROGRAM.as_micros()).unwrap_or(u64::MAX));
    let change = environment::resolve(&plan, &BTreeMap::new(), &home(), deadline);
    Ok(change.map_err(|error| error.to_string())?.set)
}
