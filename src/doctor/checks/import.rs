//! Whether the Python that a run would use imports what its kind needs. What goes wrong in an import is found by an import alone: a
//! symbol that a library lacks, a package within a package. It takes seconds of a processor, so it is made for a launch whose script
//! imports it, and where a person asks for it by name; what a launch has seen succeed is not tried again while nothing of it changes.

mod cards;
mod cause;
mod known;
mod tries;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::cards::Card;
use self::known::Known;
use self::tries::{Imported, Succeeded};
use super::super::environments::{self as pythons, Environment};
use super::super::python::{PACKAGES, Python};
use super::super::site::on;
use super::super::{Check, OfImage, Seen, Site};
use crate::clock;
use crate::domain::doctor::{RunProgram, Started, Verdict};
use crate::domain::text::os_text;
use crate::program::{asked, home};
use crate::supervise::environment::{self, Deadline};

pub(in crate::doctor) struct Import;

/// How long the run's environment may take, and with it all imports: before a launch, and in a container.
const ENVIRONMENT: Duration = Duration::from_millis(1500);
const OF_A_LAUNCH: Duration = Duration::from_millis(3700);
/// And where a person asks for it by name: from a file server torch takes many seconds.
const BY_NAME: Duration = Duration::from_secs(30);
/// Bytes of a script that are read.
const SCRIPT: usize = 1 << 20;

/// One import that was tried.
#[expect(clippy::struct_excessive_bools, reason = "each is a finding of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::doctor) struct Tried {
    module: String,
    python: String,
    #[serde(default)]
    version: Option<String>,
    /// The last words of one that failed.
    #[serde(default)]
    fault: Option<String>,
    /// What it said of the driver, or of a GPU that it has no code for.
    #[serde(default)]
    warning: Option<String>,
    /// Whether it had not ended in time.
    #[serde(default)]
    is_late: bool,
    /// The time that all of them had, milliseconds.
    #[serde(default)]
    within_ms: u64,
    /// Whether it was not tried, since it took too long before.
    #[serde(default)]
    is_given_up: bool,
    /// Whether pip installs nothing into this Python, as the system manages it.
    #[serde(default)]
    is_managed: bool,
    /// Whether the script changes where modules and libraries are found before it imports them.
    #[serde(default)]
    is_led: bool,
    /// Of a torch for CUDA: whether it was built with NCCL.
    #[serde(default)]
    nccl: Option<bool>,
    /// Whether the script surely takes NCCL.
    #[serde(default)]
    wants_nccl: bool,
    /// The versions of Python, of the packages that came with it, and of NCCL, by name.
    #[serde(default)]
    versions: BTreeMap<String, String>,
    /// Of a torch for CUDA: for what it was built (`sm_90`), and the GPUs there.
    #[serde(default)]
    arches: Vec<String>,
    #[serde(default)]
    cards: Vec<Card>,
    /// Of one that the Python does not have, so that it was not tried: the environments that have it.
    #[serde(default)]
    absent: Option<Vec<Environment>>,
}

impl Tried {
    /// The same of one that succeeded.
    fn told(&mut self, Imported { version, versions, arches, gpus }: Imported) {
        (self.version, self.versions) = (version, versions);
        (self.arches, self.cards) = (arches, gpus);
    }
}

/// What a person who names this check may mean.
const FRAMEWORKS: [&str; 2] = ["torch", "tensorflow"];
/// Environments that are named.
const NAMED: usize = 3;

impl Check for Import {
    const NAME: &'static str = "import";
    const ASKS: &'static str = "does the run's Python import torch, TensorFlow or Horovod";
    const ONLY_BY_NAME: bool = true;
    const OF_IMAGE: OfImage = OfImage::Inside;
    const PATIENCE: Duration = Duration::from_secs(32);
    type Found = Vec<Tried>;

    fn look(site: &Site) -> Result<Vec<Tried>, String> {
        let run = match &site.run {
            Some(run) => run.clone(),
            None => RunProgram { program: "python3".to_owned(), ..RunProgram::default() },
        };
        if site.for_launch && site.run.is_none() {
            return Ok(Vec::new());
        }
        let mut scripts = scripts(site);
        scripts.extend(run.code.clone());
        scripts
            .extend(run.module.as_deref().map(|module| of_module(&folder(&run), module)).unwrap_or_default());
        let modules = modules(site, &run, &scripts);
        // what lies in the run's folder is found before what the Python has
        let is_own = |module: &String| {
            let path = folder(&run).join(module.split('.').next().unwrap_or_default());
            path.join("__init__.py").exists() || path.with_extension("py").exists()
        };
        let is_led = scripts.iter().any(|script| LEADS.iter().any(|word| script.contains(word)))
            || (run.code.is_some() || run.module.is_some()) && modules.iter().any(is_own);
        if modules.is_empty() {
            return Ok(if site.run.is_none() { absent(&site.python()?) } else { Vec::new() });
        }
        let begun = clock::host_now().0;
        let place = Place::of(&run)?;
        let patience = if site.for_launch || site.in_container { OF_A_LAUNCH } else { BY_NAME };
        let left = || {
            let gone = clock::host_now().0.saturating_sub(begun);
            patience.saturating_sub(Duration::from_micros(gone))
        };
        let takes = |script: &String| {
            let mut lines = script.lines().filter(|line| !line.trim_start().starts_with('#'));
            lines.any(|line| NCCL.iter().any(|words| line.contains(words)))
        };
        // a script that knows both chooses
        let wants_nccl = scripts.iter().any(takes) && !scripts.iter().any(|script| script.contains("gloo"));
        let within_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let tried =
            |module: &String| Tried { within_ms, is_led, wants_nccl, ..place.tried(site, module, left()) };
        Ok(modules.iter().map(tried).collect())
    }

    fn judge(seen: &[Seen<'_, Vec<Tried>>]) -> Vec<Verdict> {
        let has_gpus = |one: &Seen<'_, Vec<Tried>>| match one.uses {
            Some(uses) => !uses.is_empty(),
            None => !one.info.gpus.is_empty(),
        };
        let all = versions::of_all(seen);
        let judge_one = |one: &Seen<'_, Vec<Tried>>| {
            let verdict = judge(&one.found, has_gpus(one));
            if verdict.stops_launch() {
                return verdict;
            }
            let differs = || versions::judge(&one.found, &all).filter(|_| !verdict.is_trouble());
            cards::judge(one).or_else(differs).unwrap_or(verdict)
        };
        seen.iter().map(judge_one).collect()
    }
}

/// How scripts say that their ranks meet by NCCL, whatever else they say.
const NCCL: [&str; 4] = [
    "init_process_group(\"nccl\"",
    "init_process_group('nccl'",
    "init_process_group(backend=\"nccl\"",
    "init_process_group(backend='nccl'",
];

/// What scripts say that lead to other modules or libraries while they run.
const LEADS: [&str; 6] =
    ["sys.path", "addsitedir", "CDLL(", "os.environ[", "os.environ.setdefault", "os.environ.update"];

/// Whether a line of a script says what it imports, or from where, or whether the next ones are code.
pub fn decides_imports(line: &str) -> bool {
    let says = |words: &[&str]| words.iter().any(|words| line.contains(words));
    let is_import = line.starts_with("import ") || line.starts_with("from ");
    is_import || says(&LEADS) || says(&NCCL) || says(&INSTALLS) || says(&QUOTES[..2])
}

/// The texts of the scripts of a launch.
fn scripts(site: &Site) -> Vec<String> {
    site.scripts().filter_map(|path| text(&path)).collect()
}

fn text(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..SCRIPT).unwrap_or(&bytes)).into_owned())
}

fn folder(run: &RunProgram) -> PathBuf {
    run.cwd.as_deref().map_or_else(home, super::super::site::at_home)
}

/// The texts of a module that lies in the run's folder, where Python looks first, and of the packages around it, which it runs before.
fn of_module(folder: &Path, module: &str) -> Vec<String> {
    let parts: Vec<&str> = module.split('.').collect();
    let is_name = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !parts.iter().all(is_name) {
        return Vec::new();
    }
    let mut path = folder.to_owned();
    let mut texts = Vec::new();
    for part in parts {
        path.push(part);
        texts.extend(text(&path.join("__init__.py")));
    }
    texts.extend([path.with_extension("py"), path.join("__main__.py")].iter().find_map(|path| text(path)));
    texts
}

/// Of a Python that has none of the frameworks: each, and the environments that have it.
fn absent(python: &Python) -> Vec<Tried> {
    let tried = |module: &str| Tried {
        module: module.to_owned(),
        python: python.executable.clone(),
        absent: Some(pythons::having(module)),
        ..Tried::default()
    };
    FRAMEWORKS.map(tried).to_vec()
}

/// What is tried: of a launch what its script imports, else all of them that the Python has.
fn modules(site: &Site, run: &RunProgram, scripts: &[String]) -> Vec<String> {
    if site.run.is_none() {
        let Ok(python) = site.python() else { return Vec::new() };
        let has = |name: &str| python.packages.contains_key(name);
        let mut modules: Vec<&str> = FRAMEWORKS.into_iter().filter(|framework| has(framework)).collect();
        let of_horovod = [("torch", "horovod.torch"), ("tensorflow", "horovod.tensorflow")];
        modules
            .extend(of_horovod.iter().filter(|(of, _)| has("horovod") && has(of)).map(|(_, module)| *module));
        return modules.into_iter().map(str::to_owned).collect();
    }
    let is_imported = |module: &&String| scripts.iter().any(|text| imports(text, module));
    run.imports.iter().filter(is_imported).cloned().collect()
}

/// Whether a script surely imports a module: what is indented depends on something, as of `try` or `if`.
fn imports(script: &str, module: &str) -> bool {
    let is_it = |name: &str| {
        let rest = name.trim().strip_prefix(module);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ' ', '\t', ';']))
    };
    let code = code(script);
    let lines = code.lines().filter(|line| !line.starts_with([' ', '\t']));
    lines.map(str::trim).any(|line| {
        if let Some(names) = line.strip_prefix("import ") {
            return names.split(',').any(is_it);
        }
        let Some((from, names)) = line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        else {
            return false;
        };
        // `from horovod import torch as hvd`
        is_it(from) || names.split(',').any(|name| is_it(&format!("{}.{}", from.trim(), name.trim())))
    })
}

/// What begins and ends a text in Python: those that may have many lines come first.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];

/// A script without its comments and its texts in quotes, of which each leaves a quote.
fn code(script: &str) -> String {
    let mut code = String::with_capacity(script.len());
    let mut rest = script;
    let mut open: Option<&str> = None;
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match open {
            Some(quote) if rest.starts_with(quote) => (open, taken) = (None, quote.len()),
            Some(quote) if c == '\n' && quote.len() == 1 => {
                open = None;
                code.push(c);
            }
            Some(_) if c == '\\' => taken += rest[taken..].chars().next().map_or(0, char::len_utf8),
            Some(_) => {}
            None if c == '#' => taken = rest.find('\n').unwrap_or(rest.len()),
            None => {
                open = QUOTES.into_iter().find(|quote| rest.starts_with(quote));
                taken = open.map_or(taken, str::len);
                code.push(c);
            }
        }
        rest = &rest[taken..];
    }
    code
}

/// What scripts say that install what they import.
const INSTALLS: [&str; 5] = ["pip install", "'pip'", "\"pip\"", "subprocess", "os.system"];

/// The texts of what is started in this folder.
pub(in crate::doctor::checks) fn texts(starts: &Started, folder: &Path) -> Vec<String> {
    match (&starts.script, &starts.module) {
        (Some(script), _) => text(&folder.join(script)).into_iter().collect(),
        (None, Some(module)) => of_module(folder, module),
        (None, None) => Vec::new(),
    }
}

/// The packages of these modules that scripts surely import, from a Python that has all that it will have.
pub fn surely<'a>(modules: &'a [String], scripts: &[String]) -> BTreeSet<&'a str> {
    let says = |words: &[&str]| scripts.iter().any(|script| words.iter().any(|words| script.contains(words)));
    let is_cut = scripts.iter().any(|script| script.len() >= SCRIPT);
    if is_cut || says(&LEADS) || says(&INSTALLS) {
        return BTreeSet::new();
    }
    let is_imported = |module: &&String| scripts.iter().any(|script| imports(script, module));
    let package = |module: &'a String| module.split('.').next().unwrap_or_default();
    modules.iter().filter(is_imported).map(package).collect()
}

/// The Python, where it would be started, and the variables that it would have.
struct Place {
    python: PathBuf,
    folder: PathBuf,
    set: BTreeMap<String, String>,
    unset: Vec<String>,
}

impl Place {
    fn of(run: &RunProgram) -> Result<Self, String> {
        let deadline = Deadline::after(u64::try_from(ENVIRONMENT.as_micros()).unwrap_or(u64::MAX));
        let change = environment::resolve(&run.environment, &run.env, &home(), deadline)
            .map_err(|error| error.to_string())?;
        let path = environment::search_path(&run.env, &change);
        let folder = run.cwd.as_deref().map_or_else(home, super::super::site::at_home);
        let found = python(&run.program, &folder, path.as_deref());
        // a launcher that is not there is not needed: hvtui starts its ranks
        let python = match found {
            Err(_) if run.program == "torchrun" => python("python3", &folder, path.as_deref())?,
            found => found?,
        };
        let mut set = change.set;
        set.extend(run.env.clone());
        // a shim of pyenv's chooses by the folder
        let folder = if folder.is_dir() { folder } else { "/".into() };
        Ok(Self { python, folder, set, unset: change.unset.into_iter().collect() })
    }

    fn tried(&self, site: &Site, module: &str, left: Duration) -> Tried {
        let mut tried = Tried {
            module: module.to_owned(),
            python: self.python.display().to_string(),
            is_managed: is_managed(&self.python),
            ..Tried::default()
        };
        let value = |name: &str| {
            let own = || std::env::var(name).ok().filter(|_| !self.unset.iter().any(|unset| unset == name));
            self.set.get(name).cloned().or_else(own).unwrap_or_default()
        };
        let known = Known::new(&site.state, &self.python, module, value);
        if let Some(before) = known.succeeded().filter(|_| site.for_launch) {
            tried.told(before);
            return tried;
        }
        if site.for_launch && known.is_given_up() {
            (tried.is_late, tried.is_given_up) = (true, true);
            return tried;
        }
        let mut command = Command::new(&self.python);
        // nothing is written beside the modules
        let args = ["-B", "-c", tries::SCRIPT, module];
        command.args(args).args(PACKAGES).current_dir(&self.folder).env("LC_ALL", "C").envs(&self.set);
        self.unset.iter().filter(|name| !self.set.contains_key(*name)).for_each(|name| {
            command.env_remove(name);
        });
        match asked::ask(command, left) {
            Ok(told) => {
                let line = told.out.lines().rev().find_map(|line| line.strip_prefix("hvtui "));
                match line.and_then(|line| serde_json::from_str::<Succeeded>(line).ok()) {
                    Some(Succeeded { file, files, said, nccl, told }) => {
                        // what is wrong with it is told each time; a GPU without code beside others is remembered, too
                        let has_code = cards::are_some_served(&told.gpus, &told.arches);
                        if said.is_empty() && nccl != Some(false) && has_code {
                            known.keep(file, files, told.clone());
                        }
                        (tried.warning, tried.nccl) = (said.into_iter().next(), nccl);
                        tried.told(told);
                    }
                    None => {
                        tried.fault = Some(match told.status.signal() {
                            Some(signal) => format!("it is ended by signal {signal}"),
                            None => told.last_words().to_owned(),
                        });
                    }
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                // of what another module has left of the time it says nothing
                if site.for_launch && left > OF_A_LAUNCH / 2 {
                    known.keep_late();
                }
                tried.is_late = true;
            }
            Err(error) => tried.fault = Some(os_text(&error)),
        }
        tried
    }
}

/// The Python behind a run's program: itself, or what executes it, as of torchrun.
pub(in crate::doctor) fn python(
    program: &str,
    folder: &Path,
    path: Option<&OsStr>,
) -> Result<PathBuf, String> {
    let found = if program.starts_with('~') {
        Some(super::super::site::at_home(program)).filter(|path| path.exists())
    } else if program.contains('/') {
        Some(folder.join(program)).filter(|path| path.exists())
    } else {
        on(path, program)
    };
    let found = found.ok_or_else(|| format!("no {program} on the PATH of the run"))?;
    let is_python = found.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    if is_python {
        return Ok(found);
    }
    let by = first_line(&found).ok_or_else(|| format!("{} is no program of Python's", found.display()))?;
    let mut words = by.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first.ends_with("/env") {
        let name = words.next().unwrap_or("python3");
        return on(path, name).ok_or_else(|| format!("no {name} on the PATH of the run"));
    }
    if !first.rsplit('/').next().is_some_and(|name| name.starts_with("python")) {
        return Err(format!("{} is no program of Python's", found.display()));
    }
    Ok(PathBuf::from(first))
}

/// Whether pip refuses to install into a Python: one of the system's with the mark of PEP 668, not one of a venv's.
fn is_managed(python: &Path) -> bool {
    let folder = |file: &Path| file.parent().and_then(Path::parent).map(Path::to_owned);
    if folder(python).is_some_and(|folder| folder.join("pyvenv.cfg").exists()) {
        return false;
    }
    // `python3` leads to `python3.12`, as the folder of its library is named
    let Ok(real) = python.canonicalize() else { return false };
    let Some((folder, version)) = folder(&real).zip(real.file_name()) else { return false };
    folder.join("lib").join(version).join("EXTERNALLY-MANAGED").exists()
}

/// What executes a script: its first line behind `#!`.
fn first_line(script: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(script).ok()?.take(512).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(text.lines().next()?.strip_prefix("#!")?.trim().to_owned())
}

/// Of a torch for CUDA without NCCL, on a host with GPUs.
fn without_nccl(one: &Tried) -> Verdict {
    let evidence = format!(
        "{} {} of {} is built without NCCL",
        one.module,
        one.version.as_deref().unwrap_or_default(),
        one.python
    );
    let cause = "init_process_group(\"nccl\") ends with \"Distributed package doesn't have NCCL built in\"; gloo takes the way through the \
                 hosts' memory";
    let remedy = "install torch's own build for CUDA: https://pytorch.org/get-started/locally; or init_process_group(\"gloo\")";
    if one.wants_nccl {
        Verdict::bad(evidence, cause, remedy)
    } else {
        Verdict::look(evidence, cause, remedy)
    }
}

fn judge(tried: &[Tried], has_gpus: bool) -> Verdict {
    if tried.is_empty() {
        return Verdict::unknown("nothing that it would import is known");
    }
    if let Some(words) = not_there(tried) {
        return Verdict::unknown(words);
    }
    for one in tried {
        let Tried { module, python, .. } = one;
        if let Some(words) = &one.fault {
            let known = cause::of(module, python, words, one.is_managed);
            let evidence = format!("{python} can't import {module}: {words}");
            let verdict = Verdict::bad(evidence, known.cause, known.remedy);
            let verdict = match known.fix {
                Some(command) => verdict.fixed_there(command),
                None => verdict,
            };
            // by its own doing it may find what it needs
            return if one.is_led { verdict.may_run() } else { verdict };
        }
    }
    if let Some(one) = tried.iter().find(|one| one.warning.is_some()) {
        let words = one.warning.as_deref().unwrap_or_default();
        let known = cause::of(&one.module, &one.python, words, one.is_managed);
        return Verdict::bad(format!("{}: {words}", one.module), known.cause, known.remedy).may_run();
    }
    if let Some(one) = tried.iter().find(|one| has_gpus && one.nccl == Some(false)) {
        return without_nccl(one);
    }
    if let Some(one) = tried.iter().find(|one| one.is_late) {
        let again = if one.is_given_up {
            " twice; for a day launches try it no more, `hvtui doctor --only import` does"
        } else {
            ": a file system that is slow, or busy processors"
        };
        let (python, module, seconds) = (&one.python, &one.module, one.within_ms as f64 / 1e3);
        return Verdict::unknown(format!("{python} has not imported {module} in {seconds:.1} s{again}"));
    }
    let words = |one: &Tried| {
        let version = one.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        format!("{}{version}", one.module)
    };
    let all: Vec<String> = tried.iter().map(words).collect();
    Verdict::good(format!("{} imports {}", tried[0].python, all.join(", ")))
}

/// Where the Python has none of what would be tried: that one, and how a run starts in one that has some.
fn not_there(tried: &[Tried]) -> Option<String> {
    let absent = tried.iter().map(|one| Some((one, one.absent.as_ref()?)));
    let absent: Vec<(&Tried, &Vec<Environment>)> = absent.collect::<Option<_>>()?;
    let (first, _) = absent.first()?;
    let modules: Vec<&str> = absent.iter().map(|(one, _)| one.module.as_str()).collect();
    let mut by_option: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (one, environments) in &absent {
        for environment in *environments {
            by_option.entry(environment.option()).or_default().push(&one.module);
        }
    }
    let mut words = format!(
        "{}, the first on the PATH of commands over ssh, has no {}",
        first.python,
        modules.join(" and no ")
    );
    let mut named: Vec<String> = by_option
        .iter()
        .take(NAMED)
        .map(|(option, modules)| format!("{option} has {}", modules.join(" and ")))
        .collect();
    let more = by_option.len().saturating_sub(NAMED);
    named.extend((more > 0).then(|| format!("{more} more have some")));
    if !named.is_empty() {
        words = format!("{words}; of a run, {}", named.join(", "));
    }
    Some(words)
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
