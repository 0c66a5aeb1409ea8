//! Programs of an engine that run for long: `save`, `load` and `build`. Each ends with the caller that waits.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::archive::{self, Parts};
use super::engine::Engine;
use super::saved::{self, Blob, Saved, SavedError};
use crate::domain::text::os_text;

/// Between two looks at a program that says nothing.
const LOOK: Duration = Duration::from_millis(20);
/// The last lines that are kept of a program.
const LAST: usize = 20;
/// A line that is longer is cut.
const LONGEST: u64 = 16 << 10;

/// Why an engine's program did not do it. The texts name no host.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It could not be started.
    #[error("start {program}: {words}")]
    NotStarted {
        /// The engine's program.
        program: String,
        /// The system's words.
        words: String,
    },
    /// It failed.
    #[error("{program} {what} failed: {words}")]
    Failed {
        /// The engine's program.
        program: String,
        /// Which of its commands.
        what: &'static str,
        /// Its last words.
        words: String,
    },
    /// What it printed can't be used, or kept.
    #[error("{program} save: {source}")]
    Saved {
        /// The engine's program.
        program: String,
        /// Why.
        source: SavedError,
    },
    /// It is not wanted any more.
    #[error("it was called off")]
    Stopped,
}

/// A program that is killed when it is not waited for any more.
struct Running {
    child: Child,
    program: String,
    what: &'static str,
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(engine: &Engine, what: &'static str, command: &mut Command) -> Result<Self, ClientError> {
        let program = engine.name();
        // its words are looked into
        match command.env("LC_ALL", "C").spawn() {
            Ok(child) => Ok(Self { child, program, what }),
            Err(error) => Err(ClientError::NotStarted { program, words: os_text(&error) }),
        }
    }

    fn failed(&self, words: &[String]) -> ClientError {
        let words = match words.iter().rfind(|line| !line.trim().is_empty()) {
            Some(line) => line.trim().to_owned(),
            None => "it said nothing".to_owned(),
        };
        ClientError::Failed { program: self.program.clone(), what: self.what, words }
    }

    /// Its end, or none where `is_over` says that it is not waited for.
    fn end(&mut self, mut is_over: impl FnMut() -> bool) -> Result<ExitStatus, ClientError> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if is_over() => return Err(ClientError::Stopped),
                Ok(None) => std::thread::sleep(LOOK),
                Err(error) => return Err(self.failed(&[os_text(&error)])),
            }
        }
    }
}

/// The last lines of a stream, read beside; each goes to `told` as it comes.
fn lines(stream: impl Read + Send + 'static, told: Option<mpsc::Sender<String>>) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut last = VecDeque::new();
        loop {
            let mut line = Vec::new();
            match (&mut stream).take(LONGEST).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return last.into(),
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            // the receiver may be gone
            let _ = told.as_ref().map(|told| told.send(line.clone()));
            last.push_back(line);
            if last.len() > LAST {
                last.pop_front();
            }
        }
    })
}

fn said(lines: Option<JoinHandle<Vec<String>>>) -> Vec<String> {
    lines.and_then(|lines| lines.join().ok()).unwrap_or_default()
}

/// Takes an image of this machine apart into files of `dir`; see [`saved::read`].
pub fn save(
    engine: &Engine,
    image: &str,
    dir: &Path,
    told: impl FnMut(Option<Blob>, u64) -> bool,
) -> Result<Saved, ClientError> {
    let mut command = Command::new(&engine.program);
    command.args(["image", "save", "--", image]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(engine, "save", &mut command)?;
    let words = running.child.stderr.take().map(|stderr| lines(stderr, None));
    let Some(stdout) = running.child.stdout.take() else { return Err(running.failed(&[])) };
    let read = saved::read(stdout, dir, told);
    match read {
        Err(SavedError::Stopped) => Err(ClientError::Stopped),
        // what it could not write of itself comes before what is wrong with the rest
        Err(SavedError::Malformed(_)) | Ok(_) if !running.end(|| false)?.success() => {
            Err(running.failed(&said(words)))
        }
        read => read.map_err(|source| ClientError::Saved { program: engine.name(), source }),
    }
}

/// Gives an image to this machine's engine. Tells its id, where the engine says that: of an image without a name.
pub fn load(
    engine: &Engine,
    parts: &Parts,
    mut is_over: impl FnMut() -> bool,
) -> Result<Option<String>, ClientError> {
    let mut command = Command::new(&engine.program);
    command.args(["image", "load"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(engine, "load", &mut command)?;
    let out = running.child.stdout.take().map(|stdout| lines(stdout, None));
    let words = running.child.stderr.take().map(|stderr| lines(stderr, None));
    let stdin = running.child.stdin.take().map(|stdin| Feed { stdin, is_over: &mut is_over });
    let written = stdin.map_or(Ok(()), |stdin| archive::write(parts, stdin));
    if is_over() {
        return Err(ClientError::Stopped);
    }
    let status = running.end(is_over)?;
    let words = [said(out), said(words)].concat();
    match written {
        Err(error) if status.success() || error.kind() != io::ErrorKind::BrokenPipe => {
            Err(running.failed(&[format!("its archive: {}", os_text(&error))]))
        }
        _ if status.success() => Ok(words.iter().find_map(|line| loaded(line))),
        _ => Err(running.failed(&words)),
    }
}

/// `Loaded image ID: sha256:…`, as docker says, or `Loaded image: sha256:…`, as podman does.
fn loaded(line: &str) -> Option<String> {
    let id = line.trim().strip_prefix("Loaded image")?.rsplit(' ').next()?;
    id.starts_with("sha256:").then(|| id.to_owned())
}

/// An engine's standard input, as long as the caller waits.
struct Feed<'a, W> {
    stdin: W,
    is_over: &'a mut dyn FnMut() -> bool,
}

impl<W: Write> Write for Feed<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if (self.is_over)() {
            return Err(io::Error::other("it was called off"));
        }
        self.stdin.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdin.flush()
    }
}

/// What `build` is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Build<'a> {
    /// The folder that the build may copy from.
    pub context: &'a Path,
    /// The Dockerfile; the engine's choice when absent.
    pub file: Option<&'a Path>,
    /// The name of the image.
    pub name: &'a str,
    /// More arguments of the engine.
    pub arguments: &'a [String],
}

/// Builds an image here; each line that the engine prints goes to `told`. Fails with its last words, all lines of which were
/// told before.
pub fn build(engine: &Engine, build: Build<'_>, mut told: impl FnMut(&str)) -> Result<(), ClientError> {
    let mut command = Command::new(&engine.program);
    command.args(["build", "--tag", build.name]);
    if let Some(file) = build.file {
        command.arg("--file").arg(file);
    }
    command.args(build.arguments).arg("--").arg(build.context);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(engine, "build", &mut command)?;
    let (sender, heard) = mpsc::channel();
    let out = running.child.stdout.take().map(|stdout| lines(stdout, Some(sender.clone())));
    let words = running.child.stderr.take().map(|stderr| lines(stderr, Some(sender)));
    for line in heard {
        told(&line);
    }
    let words = [said(out), said(words)].concat();
    if running.end(|| false)?.success() { Ok(()) } else { Err(running.failed(&words)) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::sync::Digest;
    use crate::image::engine::Kind;

    fn scripted(dir: &Path, script: &str) -> Engine {
        let program = dir.join("docker");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let kind = Kind::Docker;
        Engine { program, kind, rootless: false, maps_users: false, gpus: None, skips_layers: true }
    }

    #[test]
    fn what_an_engine_says_last_is_why_it_failed() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        std::fs::write(&config, "{}").unwrap();
        let parts = Parts { name: None, config: (Digest([0; 32]), config), layers: Vec::new() };
        let bad = scripted(dir.path(), "echo first >&2; echo 'no space left on device' >&2; exit 1");
        let saved = save(&bad, "x:1", dir.path(), |_, _| true).unwrap_err().to_string();
        assert_eq!(saved, "docker save failed: no space left on device");
        let loaded = load(&bad, &parts, || false).unwrap_err().to_string();
        assert_eq!(loaded, "docker load failed: no space left on device");
        let mut told = Vec::new();
        let asked = Build { context: dir.path(), file: None, name: "x:1", arguments: &[] };
        let built = build(&bad, asked, |line| told.push(line.to_owned())).unwrap_err().to_string();
        assert_eq!(built, "docker build failed: no space left on device");
        assert_eq!(told, ["first", "no space left on device"]);
        let good = scripted(dir.path(), "cat > /dev/null; echo \"$@\"");
        assert_eq!(load(&good, &parts, || false).unwrap(), None);
        let by_id = scripted(dir.path(), "cat > /dev/null; echo 'Loaded image ID: sha256:00'");
        assert_eq!(load(&by_id, &parts, || false).unwrap().as_deref(), Some("sha256:00"));
        let good = scripted(dir.path(), "cat > /dev/null; echo \"$@\"");
        build(&good, asked, |line| told.push(line.to_owned())).unwrap();
        assert_eq!(told[2], format!("build --tag x:1 -- {}", dir.path().display()));
    }

    #[test]
    fn who_hangs_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        std::fs::write(&config, vec![7; 1 << 20]).unwrap();
        let parts = Parts { name: None, config: (Digest([0; 32]), config), layers: Vec::new() };
        let deaf = scripted(dir.path(), "cat > /dev/null; exec sleep 600");
        let mut looks = 0;
        let left = load(&deaf, &parts, || {
            looks += 1;
            looks > 200
        });
        assert!(matches!(left, Err(ClientError::Stopped)), "{left:?}");
        let empty = scripted(dir.path(), "exit 0");
        let nothing = save(&empty, "x:1", dir.path(), |_, _| true).unwrap_err().to_string();
        assert_eq!(nothing, "docker save: what it has printed is no image: it has no manifest.json");
    }
}
