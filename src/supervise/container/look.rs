//! A container of an image for one question: hvtui's own binary looks at what is inside. The container is started as a rank's is, and
//! is gone when the answer is there, or does not come.
//!
//! Images have other C libraries than the host, or none, so the binary brings the host's loader and libraries along: they serve its
//! process alone, and what it starts finds the image's own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::Setup;
use super::end::ENGINES_FAULT;
use super::line::{self, Looked};
use super::setup::SetupError;
use crate::clock;
use crate::domain::container::{ContainerOptions, ImageId};
use crate::domain::text::os_text;
use crate::image::engine::EngineError;
use crate::program::asked;
use crate::program::{own_binary, working_directory};

/// How long an engine may take to start the container, and what is asked in it.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long all of it may take for a launch, which waits 5 s at most; and with how little of that no container is started any more.
const OF_A_LAUNCH: Duration = Duration::from_secs(4);
const LEAST: Duration = Duration::from_secs(1);
/// How much later a container is removed where this process has not done it.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// For a shell: waits, and removes a container.
const REMOVES: &str = r#"sleep "$1" && exec "$0" rm --force --volumes "$2""#;
/// Of `ldd`.
const LDD: Duration = Duration::from_millis(3500);
/// Where the host's files lie inside.
const FOLDER: &str = "/.hvtui";
const LOADER: &str = "/.hvtui/loader";
const BINARY: &str = "/.hvtui/hvtui";
/// The user and the process that look, so that what was left behind by one that was killed is known.
const LABEL: &str = "hvtui.look";
/// What stands before the answer: an image's own entry point may print, too.
pub const ANSWER: &str = "hvtui ";

/// What an engine says where it has made a container that can't be started.
const RUNTIME: &str = "OCI runtime";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Why an image was not looked into.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The engine or the image.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// hvtui's own files.
    #[error("hvtui can't be brought into a container: {0}")]
    Own(String),
    /// A place on the host that a volume names.
    #[error("{0}")]
    Volume(String),
    /// Nothing was told in time.
    #[error("{engine} starts no container of it: no answer in {} s", patience.as_secs())]
    Late {
        /// The engine's program.
        engine: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// An earlier launch had no answer, so that none is waited for.
    #[error("a container of it did not answer an earlier launch: hvtui doctor --image looks again")]
    Before,
    /// No container was made: the engine's words.
    #[error("{engine} starts no container of it: {words}")]
    NotStarted {
        /// The engine's program.
        engine: String,
        /// What was said last.
        words: String,
    },
    /// It has ended without an answer.
    #[error("a container of it ends without an answer: {0}")]
    Unanswered(String),
}

impl From<SetupError> for LookError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Engine(error) => Self::Engine(error),
            SetupError::Volume { .. } => Self::Volume(error.to_string()),
        }
    }
}

/// Into what containers a look goes.
#[derive(Debug, Clone, Copy)]
pub struct LookInto<'a> {
    /// The engine that the hosts file names.
    pub engine: Option<&'a str>,
    /// The image, and what else they are started with.
    pub options: &'a ContainerOptions,
    /// The variables that ranks are given.
    pub env: &'a BTreeMap<String, String>,
    /// The working directory of ranks.
    pub cwd: Option<&'a str>,
    /// The GPUs that they are given.
    pub gpus: &'a [&'a str],
    /// Whether what is not as it is for a rank is of no use.
    pub as_ranks: bool,
}

/// Has something to ask of an image.
pub trait Asker {
    /// The arguments with which hvtui is started in a container of this image, whose answer is awaited for so long; or what is known
    /// of it already.
    fn question(
        &mut self,
        image: &ImageId,
        left: Duration,
    ) -> ControlFlow<Result<String, LookError>, Vec<String>>;

    /// There is no answer. Told before the container is removed, which may take longer than this process lives.
    fn hangs(&mut self);
}

/// Starts hvtui in a container with the arguments that `asker` gives, and hands its answer back: one line; or what is known already.
/// Nothing is pulled.
pub fn look(into: LookInto<'_>, asker: &mut impl Asker) -> Result<String, LookError> {
    let LookInto { engine, options, env, cwd, gpus, as_ranks } = into;
    let begun = clock::host_now().0;
    let left = || {
        let gone = Duration::from_micros(clock::host_now().0.saturating_sub(begun));
        if as_ranks { OF_A_LAUNCH.saturating_sub(gone) } else { PATIENCE }
    };
    let path = std::env::var_os("PATH");
    let setup = &Setup::of(engine, options, !gpus.is_empty(), path.as_deref())?;
    sweep(setup);
    let arguments = match asker.question(&setup.image, left()) {
        ControlFlow::Break(known) => return known,
        ControlFlow::Continue(arguments) => arguments,
    };
    let files = own_files().map_err(LookError::Own)?;
    let mut command: Vec<String> =
        [LOADER, "--inhibit-cache", "--library-path", FOLDER, BINARY].map(str::to_owned).into();
    command.extend(arguments);
    let cwd = cwd.and_then(|cwd| working_directory(Some(cwd)).ok());
    let of = Looked { setup, options, env, gpus, cwd };
    let patience = left();
    if patience < LEAST {
        return Err(LookError::Late { engine: setup.engine.name(), patience: OF_A_LAUNCH });
    }
    let mut ask = |entrypoint, command| ask(&of, (&files, patience), (entrypoint, command), asker);
    // as a run would start it; an entry point that is a program of its own does not start what it is given
    match ask(None, &command) {
        Err(LookError::Unanswered(_)) if !as_ranks => ask(Some(LOADER), &command[1..]),
        answer => answer,
    }
}

fn ask(
    of: &Looked<'_>,
    (files, patience): (&[(PathBuf, String)], Duration),
    (entrypoint, command): (Option<&str>, &[String]),
    asker: &mut impl Asker,
) -> Result<String, LookError> {
    let setup = of.setup;
    let name = format!("hvtui-look-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let label = format!("{} {}", setup.user.uid, std::process::id());
    let (arguments, variables) = line::look(of, (&name, (LABEL, &label)), files, entrypoint, command);
    let mut client = Command::new(&setup.engine.program);
    client.args(arguments).current_dir("/").env("LC_ALL", "C").envs(variables.own());
    let engine = || setup.engine.name();
    let _remover = Remover::of(setup, &name, patience + AFTERWARDS);
    let told = asked::ask(client, patience).map_err(|error| {
        asker.hangs();
        // the client was killed, which does not end its container
        let _ = setup.engine.ask(&["rm", "--force", "--volumes", &name]);
        match error.kind() {
            std::io::ErrorKind::TimedOut => LookError::Late { engine: engine(), patience },
            _ => LookError::Unanswered(os_text(&error)),
        }
    })?;
    let words = || super::end::why(&told.err).unwrap_or("it said nothing").to_owned();
    match told.out.lines().find_map(|line| line.strip_prefix(ANSWER)) {
        Some(answer) => Ok(answer.to_owned()),
        // an entry point that is not there ends with what a shell ends with, too
        None if told.status.code() != Some(ENGINES_FAULT) && !told.err.contains(RUNTIME) => {
            Err(LookError::Unanswered(words()))
        }
        None if is_of_look(&told.err, files) => Err(LookError::Own(words())),
        None => Err(LookError::NotStarted { engine: engine(), words: words() }),
    }
}

/// A process of its own that removes a container which is still there after its time, as where the agent has ended meanwhile: an entry
/// point that hangs would keep its GPUs. It ends with this handle.
struct Remover(Option<Child>);

impl Remover {
    fn of(setup: &Setup, name: &str, after: Duration) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", REMOVES]).arg(&setup.engine.program).args([&after.as_secs().to_string(), name]);
        shell.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // the next look removes it, too
        Self(shell.process_group(0).spawn().ok())
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        if let Some(mut shell) = self.0.take() {
            let _ = kill_process_group(Pid::from_child(&shell), Signal::KILL);
            let _ = shell.wait();
        }
    }
}

/// Whether an engine speaks of what the look alone brings into the container.
fn is_of_look(said: &str, files: &[(PathBuf, String)]) -> bool {
    said.contains(FOLDER) || files.iter().any(|(file, _)| said.contains(&*file.to_string_lossy()))
}

/// Removes what looks of this user have left behind whose process is gone.
fn sweep(setup: &Setup) {
    let format = format!("{{{{.Names}}}}\t{{{{.Label \"{LABEL}\"}}}}");
    let filter = format!("label={LABEL}");
    let Ok(told) = setup.engine.ask(&["ps", "--all", "--filter", &filter, "--format", &format]) else {
        return;
    };
    let own = setup.user.uid.to_string();
    for (name, label) in told.out.lines().filter_map(|line| line.split_once('\t')) {
        let looker = label.split_once(' ').filter(|(uid, _)| *uid == own);
        if looker.is_some_and(|(_, pid)| !Path::new("/proc").join(pid).exists()) {
            let _ = setup.engine.ask(&["rm", "--force", "--volumes", name]);
        }
    }
}

/// The running binary, the host's loader and its libraries, each with its name inside.
fn own_files() -> Result<Vec<(PathBuf, String)>, String> {
    let binary = own_binary();
    if binary.starts_with("/proc") {
        return Err("its file was replaced since it was started: connect anew".to_owned());
    }
    let mut ldd = Command::new("ldd");
    ldd.arg(&binary).env("LC_ALL", "C");
    let told = asked::ask(ldd, LDD).map_err(|error| format!("ldd: {}", os_text(&error)))?;
    let mut files = libraries(&told.out).ok_or_else(|| not_dynamic(&binary, told.last_words()))?;
    files.push((binary, BINARY.to_owned()));
    Ok(files)
}

/// Why there are none: of a static build `ldd` says "statically linked", or "not a dynamic executable".
fn not_dynamic(binary: &Path, words: &str) -> String {
    if ["statically linked", "not a dynamic"].iter().any(|part| words.contains(part)) {
        return "it is a static build, which brings no loader along: put a build for glibc there (x86_64-unknown-linux-gnu)".to_owned();
    }
    format!("ldd {}: {words}", binary.display())
}

/// Of what `ldd` prints: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, and the loader alone. `None` without a loader.
fn libraries(told: &str) -> Option<Vec<(PathBuf, String)>> {
    let file = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, "=>", path, ..] if path.starts_with('/') && !name.contains('/') => {
            Some((PathBuf::from(path), format!("{FOLDER}/{name}")))
        }
        [path, address] if path.starts_with('/') && address.starts_with('(') => {
            Some((PathBuf::from(path), LOADER.to_owned()))
        }
        _ => None,
    };
    let files: Vec<(PathBuf, String)> = told.lines().filter_map(file).collect();
    files.iter().any(|(_, name)| name == LOADER).then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_brings_its_loader_and_libraries_along() {
        let told = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f01)\n\
                    \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        let file = |path: &str, name: &str| (PathBuf::from(path), name.to_owned());
        let expected = [
            file("/lib/x86_64-linux-gnu/libgcc_s.so.1", "/.hvtui/libgcc_s.so.1"),
            file("/lib64/ld-linux-x86-64.so.2", "/.hvtui/loader"),
        ];
        assert_eq!(libraries(told).unwrap(), expected);
        assert_eq!(libraries("\tstatically linked\n"), None);
        let words = |said: &str| not_dynamic(Path::new("/x/hvtui"), said);
        assert!(
            words("statically linked").contains("static build")
                && words("not a dynamic executable").contains("glibc")
        );
        assert_eq!(words("no such file"), "ldd /x/hvtui: no such file");
        // what a rank's container does not have is no fault of the run's
        let is_of_look = |said: &str| is_of_look(said, &expected);
        assert!(is_of_look("error mounting \"/x\" to rootfs at \"/.hvtui/hvtui\": read-only file system"));
        assert!(is_of_look("bind source path does not exist: /lib64/ld-linux-x86-64.so.2"));
        assert!(!is_of_look("unknown or invalid runtime name: nvidia"));
    }
}
