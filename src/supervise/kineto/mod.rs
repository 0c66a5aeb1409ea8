//! Kernel traces of running ranks, by the tracer inside torch: libkineto asks a daemon on a socket, every five
//! seconds, whether it shall trace. The supervisor is that daemon as long as the run lives, since without one each
//! process prints errors; an agent asks by a file, `trace.json`. Why it is so: docs/decisions/kernel-traces.md.

mod protocol;
mod server;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use server::Server;

use super::SuperviseError;
use super::rundir::RunDir;
use super::variables::Variables;
use crate::domain::ids::Rank;
use crate::domain::text::os_text;
use crate::domain::time::HostTime;
use crate::domain::trace::{TraceSpan, TraceStart};
use crate::procs::identity::Identity;

/// What the supervisor knows of the processes that can be traced: a [`Tracers`].
const KNOWN: &str = "tracers.json";
/// What is asked of them: an [`Ask`]. There as long as an agent waits for it to be taken.
const ASK: &str = "trace.json";
/// The directory of the traces in the run directory.
const TRACES: &str = "trace";
/// The configuration that libkineto reads first, in that directory.
const BASE: &str = "kineto.conf";
/// Where a host's administrator may have put one.
const HOST_BASE: &str = "/etc/libkineto.conf";
/// The longest path that a socket can have, bytes.
const SOCKET_PATH: usize = 107;

/// The rank's number in the run.
const RANK: &str = "HVTUI_RANK";
/// Switches libkineto's requests on, whatever its value.
const USE_DAEMON: &str = "KINETO_USE_DAEMON";
/// The directory of the daemon's socket and those of its clients.
const SOCKET_DIR: &str = "KINETO_IPC_SOCKET_DIR";
/// The directory into which traces may be written.
const TRACE_DIR: &str = "KINETO_ONDEMAND_TRACE_DIR";
/// The file of the configuration that is read first.
const BASE_FILE: &str = "KINETO_CONFIG";
/// From which level on libkineto prints what it does.
const LOG_LEVEL: &str = "KINETO_LOG_LEVEL";
/// Errors alone, as torch has it after its start.
const ERRORS: &str = "4";

/// The processes of a run here that can be traced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracers {
    /// The directory of the sockets; absent where there is none.
    #[serde(default)]
    pub sockets: Option<PathBuf>,
    /// Why there is none, where that is so.
    #[serde(default)]
    pub error: Option<String>,
    /// Those that have asked, by pid.
    #[serde(default)]
    pub clients: BTreeMap<u32, Tracer>,
}

/// A process whose libkineto has asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tracer {
    /// The process.
    pub process: Identity,
    /// The rank that it belongs to.
    pub rank: Rank,
    /// Its number in the training, where that is not the rank's.
    #[serde(default)]
    pub worker: Option<u32>,
    /// The last request that it was given, and when.
    #[serde(default)]
    pub given: Option<(u64, HostTime)>,
    /// Whether it said last that it traces.
    #[serde(default)]
    pub busy: bool,
}

/// A request for a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number: when it was made, so that a later one has a larger one.
    pub id: u64,
    /// How much.
    pub span: TraceSpan,
    /// From when on.
    pub start: TraceStart,
    /// The agent that waits for the traces: with its end the request is void.
    pub by: Identity,
}

/// What is known of a run's tracers; `None` before its supervisor has begun to listen, or where it is not traceable.
pub fn known(dir: &RunDir) -> Result<Option<Tracers>, SuperviseError> {
    dir.read_json(KNOWN)
}

/// Asks all processes of the run here for a trace, for this agent. `None` while another agent's request waits. Traces of earlier
/// requests are removed.
///
/// # Errors
/// When the run directory can't be written.
pub fn ask(
    dir: &RunDir,
    span: TraceSpan,
    start: TraceStart,
    by: &Identity,
    now: HostTime,
) -> Result<Option<Ask>, SuperviseError> {
    if dir.read_json::<Ask>(ASK).ok().flatten().is_some_and(|ask| ask.by.alive()) {
        return Ok(None);
    }
    let ask = Ask { id: now.0, span, start, by: by.clone() };
    forget_others(dir, ask.id);
    dir.write_json(ASK, &ask)?;
    Ok(Some(ask))
}

/// Takes a request back: who has not come for it is not traced any more.
pub fn withdraw(dir: &RunDir, id: u64) {
    if dir.read_json::<Ask>(ASK).ok().flatten().is_some_and(|ask| ask.id == id) {
        // Where that fails it is void with this agent.
        let _ = dir.remove(ASK);
    }
}

/// The directory of the traces; `None` where there is none, or not a safe one.
pub fn traces(dir: &RunDir) -> Option<RunDir> {
    RunDir::open(&dir.path().join(TRACES)).ok()
}

/// The name of the file with a process's trace, once it is written whole.
pub fn trace_file(id: u64, pid: u32) -> String {
    format!("{id}_{pid}.json")
}

/// What torch appends to the name of a trace while it writes it.
pub const DRAFT: &str = ".tmp";

/// The name of the file while it is written.
pub fn draft_file(id: u64, pid: u32) -> String {
    format!("{}{DRAFT}", trace_file(id, pid))
}

fn forget_others(dir: &RunDir, id: u64) {
    let Some(traces) = traces(dir) else { return };
    let entries = std::fs::read_dir(traces.path()).into_iter().flatten().filter_map(Result::ok);
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let number = name.split_once('_').and_then(|(number, _)| number.parse::<u64>().ok());
        if number.is_some_and(|number| number != id) {
            let _ = traces.remove(&name);
        }
    }
}

/// The variables by which a rank's torch finds the supervisor; none where the run is not traceable. What the
/// rank has already goes before.
pub(super) fn variables(dir: &RunDir, rank: Rank, given: &Variables) -> Vec<(&'static str, OsString)> {
    let Some(sockets) = sockets(dir) else { return Vec::new() };
    let folder = dir.path().join(TRACES);
    let mut variables = vec![
        (USE_DAEMON, OsString::from("1")),
        (SOCKET_DIR, sockets.into()),
        (TRACE_DIR, folder.clone().into()),
        (LOG_LEVEL, ERRORS.into()),
        (RANK, rank.to_string().into()),
    ];
    // Two threads of torch 2.9 look for a base configuration when it starts. Where no file has one they both ask the
    // daemon by one object that neither locks, and half of the starts end with SIGABRT.
    if !Path::new(HOST_BASE).exists() {
        variables.push((BASE_FILE, folder.join(BASE).into()));
    }
    variables.retain(|(name, _)| !given.has(name));
    variables
}

/// The folder of the sockets by which a run's ranks and its supervisor speak; `None` where the run is not traceable.
pub(super) fn sockets(dir: &RunDir) -> Option<PathBuf> {
    known(dir).ok().flatten()?.sockets
}

/// Makes the directory of the traces, with the base configuration.
fn make_traces(dir: &RunDir) -> Result<(), SuperviseError> {
    let path = dir.path().join(TRACES);
    private(&path).or_else(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(SuperviseError::io("create", &path, e)),
    })?;
    let text = "# hvtui: read first, so that torch does not ask for a base configuration by its socket\n";
    let mut file = RunDir::open(&path)?.replace(BASE)?;
    file.write_all(text.as_bytes()).map_err(|e| SuperviseError::io("write", &path.join(BASE), e))
}

/// Makes the directory of the sockets: in the run directory, else in the folder for temporary files, where the path
/// of a client's socket is short enough.
fn make_sockets(dir: &RunDir, temporary: &Path) -> Result<PathBuf, SuperviseError> {
    let fits = |path: &Path| path.as_os_str().len() + 1 + protocol::CLIENT_NAME <= SOCKET_PATH;
    let own = dir.path().join(TRACES);
    if fits(&own) {
        return Ok(own);
    }
    let mut random = [0; 8];
    let filled = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut random);
    filled.map_err(|_| SuperviseError::NotStarted("the system gives no random numbers".to_owned()))?;
    let name = format!("{:016x}", u64::from_le_bytes(random));
    let mut failed = None;
    for above in [temporary, Path::new("/tmp")] {
        let path = above.join(format!("hvtui-{name}"));
        if fits(&path) {
            match private(&path) {
                Ok(()) => return Ok(path),
                Err(error) => failed = Some(SuperviseError::io("create", &path, error)),
            }
        }
    }
    Err(failed.unwrap_or_else(|| {
        let text =
            format!("no folder with a path of at most {} bytes", SOCKET_PATH - 1 - protocol::CLIENT_NAME);
        SuperviseError::io("create the sockets' folder in", temporary, io::Error::other(text))
    }))
}

/// A new directory for this user alone.
fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// For people: why ranks can't be asked.
fn reason(error: &SuperviseError) -> String {
    match error {
        SuperviseError::Io { doing, path, source } => {
            format!("{doing} {}: {}", path.display(), os_text(source))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::ids::{HostId, RunId};

    const START: TraceStart = TraceStart { at: HostTime(0), pace: None };

    fn place(state: &Path) -> RunDir {
        RunDir::create(&state.join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap()
    }

    #[test]
    fn a_rank_gets_what_it_does_not_have() {
        let state = tempfile::tempdir().unwrap();
        let dir = place(state.path());
        let variables = |given: &[(&str, &str)]| {
            let variables = super::variables(&dir, Rank(3), &given.iter().collect());
            variables
                .into_iter()
                .map(|(name, value)| (name, value.into_string().unwrap()))
                .collect::<BTreeMap<_, _>>()
        };
        assert!(variables(&[]).is_empty(), "none listens");
        let known = Tracers { sockets: Some("/tmp/x".into()), ..Tracers::default() };
        dir.write_json(KNOWN, &known).unwrap();
        let all = variables(&[]);
        assert_eq!((all[SOCKET_DIR].as_str(), all[RANK].as_str()), ("/tmp/x", "3"));
        assert!(all[TRACE_DIR].ends_with("/trace") && all.contains_key(USE_DAEMON), "{all:?}");
        let rest = variables(&[(SOCKET_DIR, "/mine"), (LOG_LEVEL, "0"), (RANK, "5")]);
        let kept: Vec<&str> = rest.keys().copied().filter(|name| *name != BASE_FILE).collect();
        assert_eq!(kept, [TRACE_DIR, USE_DAEMON]);
    }

    #[test]
    fn one_request_at_a_time_and_an_old_one_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let dir = place(state.path());
        make_traces(&dir).unwrap();
        let own = Identity::own().unwrap();
        let gone = Identity { start: own.start + 1, ..own.clone() };
        let first = ask(&dir, TraceSpan::Steps(3), START, &own, HostTime(5)).unwrap().unwrap();
        assert_eq!(ask(&dir, TraceSpan::Steps(3), START, &own, HostTime(6)).unwrap(), None);
        withdraw(&dir, 99);
        assert_eq!(
            ask(&dir, TraceSpan::Steps(3), START, &own, HostTime(7)).unwrap(),
            None,
            "not his to take back"
        );
        let folder = traces(&dir).unwrap();
        folder.replace(&trace_file(first.id, 7)).unwrap();
        dir.write_json(ASK, &Ask { by: gone, ..first.clone() }).unwrap();
        let later = HostTime(9);
        let second = ask(&dir, TraceSpan::Millis(500), START, &own, later).unwrap().unwrap();
        assert!(!folder.has(&trace_file(first.id, 7)) && folder.has(BASE));
        withdraw(&dir, second.id);
        assert!(!dir.has(ASK));
    }

    #[test]
    fn sockets_lie_where_their_path_is_short_enough() {
        let state = tempfile::tempdir_in("/tmp").unwrap();
        let dir = place(state.path());
        make_traces(&dir).unwrap();
        make_traces(&dir).unwrap();
        let short = tempfile::tempdir_in("/tmp").unwrap();
        let path = make_sockets(&dir, short.path()).unwrap();
        assert_eq!(path.parent(), Some(short.path()), "the run directory's path is too long here");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let long = state.path().join("l".repeat(90));
        std::fs::create_dir(&long).unwrap();
        let path = make_sockets(&dir, &long).unwrap();
        assert_eq!(path.parent(), Some(Path::new("/tmp")));
        std::fs::remove_dir(path).unwrap();
    }
}
