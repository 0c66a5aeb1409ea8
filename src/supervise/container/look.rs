//! A container of an image for one question: hvtui's own binary looks at what is inside. The container is started as a rank's is, and
//! is gone when the answer is there, or does not come.
//!
//! Images have other C libraries than the host, or none, so the binary brings the host's loader and libraries along: they serve its
//! process alone, and what it starts finds the image's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Setup;
use super::end::ENGINES_FAULT;
use super::line;
use crate::domain::container::ImageId;
use crate::domain::text::os_text;
use crate::image::engine::EngineError;
use crate::program::asked;
use crate::program::own_binary;

/// How long an engine may take to start the container, and what is asked in it.
const PATIENCE: Duration = Duration::from_secs(20);
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

/// Starts hvtui with the arguments that `question` gives in a container of `image`, and hands its answer back: one line. `named` is
/// the engine that the hosts file names, `gpus` are those that the container is given. Nothing is pulled.
pub fn look(
    named: Option<&str>,
    image: &str,
    gpus: &[&str],
    question: impl FnOnce(&ImageId) -> Vec<String>,
) -> Result<String, LookError> {
    let path = std::env::var_os("PATH");
    let setup = Setup::of_image(named, image, !gpus.is_empty(), path.as_deref())?;
    sweep(&setup);
    let files = own_files().map_err(LookError::Own)?;
    let mut command: Vec<String> =
        [LOADER, "--inhibit-cache", "--library-path", FOLDER, BINARY].map(str::to_owned).into();
    command.extend(question(&setup.image));
    // as a run would start it; an entry point that is a program of its own does not start what it is given
    match ask(&setup, &files, gpus, None, &command) {
        Err(LookError::Unanswered(_)) => ask(&setup, &files, gpus, Some(LOADER), &command[1..]),
        answer => answer,
    }
}

fn ask(
    setup: &Setup,
    files: &[(PathBuf, String)],
    gpus: &[&str],
    entrypoint: Option<&str>,
    command: &[String],
) -> Result<String, LookError> {
    let name = format!("hvtui-look-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let label = format!("{} {}", setup.user.uid, std::process::id());
    let arguments = line::look(setup, (&name, (LABEL, &label)), files, gpus, entrypoint, command);
    let mut client = Command::new(&setup.engine.program);
    client.args(arguments).current_dir("/").env("LC_ALL", "C");
    let not_started = |words: String| LookError::NotStarted { engine: setup.engine.name(), words };
    let told = asked::ask(client, PATIENCE).map_err(|error| {
        // the client was killed, which does not end its container
        let _ = setup.engine.ask(&["rm", "--force", "--volumes", &name]);
        match error.kind() {
            std::io::ErrorKind::TimedOut => not_started(format!("no answer in {} s", PATIENCE.as_secs())),
            _ => not_started(os_text(&error)),
        }
    })?;
    let words = || super::end::why(&told.err).unwrap_or("it said nothing").to_owned();
    match told.out.lines().find_map(|line| line.strip_prefix(ANSWER)) {
        Some(answer) => Ok(answer.to_owned()),
        None if told.status.code() == Some(ENGINES_FAULT) => Err(not_started(words())),
        None => Err(LookError::Unanswered(words())),
    }
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
    let mut files =
        libraries(&told.out).ok_or_else(|| format!("ldd {}: {}", binary.display(), told.last_words()))?;
    files.push((binary, BINARY.to_owned()));
    Ok(files)
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
    }
}
