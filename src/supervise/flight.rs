//! torch's flight recorder and NCCL's RAS in a run: the variables by which the ranks' dumps, the pipes that ask for them and
//! NCCL's port are this run's own, and how a process is asked (docs/decisions/flight-recorder.md). What is in a dump is
//! not known here.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use super::SuperviseError;
use super::rundir::RunDir;
use super::variables::Variables;
use crate::domain::collectives::are_recorded;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;

/// The folder of dumps and pipes in the run directory.
const FOLDER: &str = "flight";
/// What the rank-wraps and agents are told: a [`Recorders`].
const KNOWN: &str = "flight.json";
/// The end of a pipe's name, which torch appends.
const PIPE: &str = ".pipe";
/// Processes of one host that are asked.
const MOST: usize = 1024;

/// Calls that torch keeps: as many as newer ones do by themselves.
const ENTRIES: &str = "2000";
/// How many calls torch keeps; its pipe looks at the older name alone.
const BUFFER: [&str; 2] = ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"];
/// The dump without the number of the process.
const DUMP: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// The pipe without the number of the process.
const PIPES: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
/// Whether torch dumps when a collective takes too long.
const ON_TIMEOUT: &str = "TORCH_NCCL_DUMP_ON_TIMEOUT";
/// Where NCCL's processes answer questions on this host.
const RAS: &str = "NCCL_RAS_ADDR";

/// What is there of a run on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorders {
    /// The port of 127.0.0.1 on which NCCL answers.
    #[serde(default)]
    pub ras: Option<u16>,
}

/// Keeps a port for the processes of this user that share it, as NCCL's do.
#[derive(Debug)]
pub(super) struct RasPort(#[expect(dead_code, reason = "held, not used")] OwnedFd);

/// Makes the place for what the ranks will write; nothing where the run has no recorders. Without a port there is no RAS.
pub(super) fn prepare(dir: &RunDir, spec: &HostRun) -> Result<Option<RasPort>, SuperviseError> {
    if !spec.run_spec.as_ref().is_some_and(|spec| are_recorded(spec)) {
        return Ok(None);
    }
    let path = dir.path().join(FOLDER);
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => clear(&RunDir::open(&path)?),
        made => made.map_err(|error| SuperviseError::io("create", &path, error))?,
    }
    let port = keep_port().ok();
    let ras = port.as_ref().map(|(_, port)| *port);
    dir.write_json(KNOWN, &Recorders { ras })?;
    Ok(port.map(|(held, _)| RasPort(held)))
}

/// Removes what an attempt before has left.
fn clear(folder: &RunDir) {
    for (rank, number, is_pipe) in names(folder) {
        let end = if is_pipe { PIPE } else { "" };
        // torch writes over what stays
        let _ = folder.remove(&format!("{rank}-{number}{end}"));
    }
}

/// A free port. All sockets of a port that is shared must say so, and be one user's; this one is never listened on.
fn keep_port() -> io::Result<(OwnedFd, u16)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddrV4::try_from(getsockname(&socket)?)?;
    Ok((socket, address.port()))
}

/// The variables that give a rank's torch and NCCL their places; none where the run has no recorders. What the
/// rank has already stays, and what belongs to it is not set either.
pub(super) fn variables(dir: &RunDir, rank: Rank, given: &Variables) -> Vec<(&'static str, OsString)> {
    let Some(known) = known(dir) else { return Vec::new() };
    let has = |name: &&str| given.has(name);
    let mut variables: Vec<(&'static str, OsString)> = Vec::new();
    if !BUFFER.iter().any(has) {
        variables.extend(BUFFER.map(|name| (name, ENTRIES.into())));
    }
    if !DUMP.iter().any(has) {
        let prefix = dir.path().join(FOLDER).join(format!("{rank}-")).into_os_string();
        variables.extend(DUMP.map(|name| (name, prefix.clone())));
        variables.extend((!has(&PIPES)).then_some((PIPES, prefix)));
    }
    variables.extend((!has(&ON_TIMEOUT)).then(|| (ON_TIMEOUT, "1".into())));
    let ras = known.ras.filter(|_| !has(&RAS));
    variables.extend(ras.map(|port| (RAS, format!("127.0.0.1:{port}").into())));
    variables
}

/// What is there of a run here; `None` where it has no recorders.
pub fn known(dir: &RunDir) -> Option<Recorders> {
    dir.read_json(KNOWN).ok().flatten()
}

/// The folder of dumps and pipes; `None` where there is none, or not a safe one.
pub fn folder(dir: &RunDir) -> Option<RunDir> {
    RunDir::open(&dir.path().join(FOLDER)).ok()
}

/// A process of a rank, by its number in the training.
pub type Process = (Rank, u32);

/// The processes that have made a pipe or written a dump.
pub fn processes(folder: &RunDir) -> Vec<Process> {
    let mut found: Vec<Process> = names(folder).map(|(rank, number, _)| (rank, number)).collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST);
    found
}

/// `3-0`, `3-0.pipe`: rank 3's process number 0.
fn names(folder: &RunDir) -> impl Iterator<Item = (Rank, u32, bool)> {
    let entries =
        std::fs::read_dir(folder.path()).into_iter().flatten().filter_map(Result::ok).take(4 * MOST);
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (name, is_pipe) = name.strip_suffix(PIPE).map_or((name.as_str(), false), |name| (name, true));
        let (rank, number) = name.split_once('-')?;
        Some((Rank(rank.parse().ok()?), number.parse().ok()?, is_pipe))
    })
}

/// Asks a process for a dump; whether it has its pipe open.
pub fn ask(folder: &RunDir, (rank, number): Process) -> bool {
    pipe(folder, (rank, number)).is_some_and(|mut pipe| pipe.write_all(b"1").is_ok())
}

/// Whether a process has its pipe open.
pub fn listens(folder: &RunDir, process: Process) -> bool {
    pipe(folder, process).is_some()
}

/// The pipe, if a process reads it. Nothing but a pipe of this folder is ever written to, and opening it never waits.
fn pipe(folder: &RunDir, (rank, number): Process) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let file = folder.open_with(&format!("{rank}-{number}{PIPE}"), flags).ok()?;
    let is_pipe = file.metadata().ok()?.file_type().is_fifo();
    is_pipe.then_some(file)
}

/// When a dump was written last and how large it is: what changes with a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    at: (i64, i64),
    size: u64,
    inode: u64,
}

impl Written {
    /// When, in microseconds since the Unix epoch.
    pub fn at_us(&self) -> i64 {
        self.at.0.saturating_mul(1_000_000).saturating_add(self.at.1 / 1000)
    }
}

/// Which dump of a process is there.
pub fn written(folder: &RunDir, process: Process) -> Option<Written> {
    dump(folder, process).map(|(_, written)| written)
}

/// A dump of a process, at most so many bytes.
///
/// # Errors
/// In words: it is larger, or can't be read.
pub fn read(folder: &RunDir, process: Process, most: u64) -> Result<Vec<u8>, String> {
    let (file, written) = dump(folder, process).ok_or("there is none")?;
    if written.size > most {
        return Err(format!("it has {} MiB, at most {} are read", written.size >> 20, most >> 20));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|error| crate::domain::text::os_text(&error))?;
    Ok(bytes)
}

fn dump(folder: &RunDir, (rank, number): Process) -> Option<(File, Written)> {
    // something else than a file would make the opening wait
    let file = folder.open_with(&format!("{rank}-{number}"), OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let written = Written {
        at: (metadata.mtime(), metadata.mtime_nsec()),
        size: metadata.len(),
        inode: metadata.ino(),
    };
    Some((file, written))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::domain::ids::{HostId, RunId};

    fn place(state: &std::path::Path) -> RunDir {
        let dir = RunDir::create(&state.join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        DirBuilder::new().mode(0o700).create(dir.path().join(FOLDER)).unwrap();
        dir
    }

    #[test]
    fn what_a_rank_has_stays_and_takes_with_it_what_belongs_to_it() {
        let state = tempfile::tempdir().unwrap();
        let dir = place(state.path());
        let names = |given: &[(&str, &str)]| {
            let found = variables(&dir, Rank(3), &given.iter().collect());
            found
                .into_iter()
                .map(|(name, value)| (name, value.into_string().unwrap()))
                .collect::<BTreeMap<_, _>>()
        };
        assert!(names(&[]).is_empty(), "no recorders");
        dir.write_json(KNOWN, &Recorders { ras: Some(4711) }).unwrap();
        let all = names(&[]);
        assert_eq!(all.len(), 7);
        assert_eq!(
            (all[RAS].as_str(), all[BUFFER[0]].as_str(), all[ON_TIMEOUT].as_str()),
            ("127.0.0.1:4711", "2000", "1")
        );
        assert!(
            all[PIPES].ends_with("/flight/3-") && all[PIPES] == all[DUMP[0]] && all[PIPES] == all[DUMP[1]]
        );
        let own = names(&[(BUFFER[0], "0"), (DUMP[1], "/mine"), (RAS, "localhost:1"), (ON_TIMEOUT, "0")]);
        assert!(own.is_empty(), "{own:?}");
        assert!(!names(&[(PIPES, "/mine")]).contains_key(PIPES));
    }

    #[test]
    fn the_port_is_kept_for_those_that_share_it() {
        let (held, port) = keep_port().unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err(), "no other's");
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "none answers yet");
        let nccl = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&nccl, true).unwrap();
        sockopt::set_socket_reuseport(&nccl, true).unwrap();
        bind(&nccl, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
        rustix::net::listen(&nccl, 16).unwrap();
        for _ in 0..8 {
            TcpStream::connect(("127.0.0.1", port)).unwrap();
        }
        drop(held);
    }

    #[test]
    fn only_a_pipe_of_the_folder_is_written_to_and_nothing_waits() {
        let state = tempfile::tempdir().unwrap();
        let dir = place(state.path());
        let folder = folder(&dir).unwrap();
        let at = |name: &str| folder.path().join(name);
        let fifo = |name: &str| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, at(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        };
        fifo("0-0.pipe");
        fifo("1-1");
        std::fs::write(at("2-2.pipe"), "").unwrap();
        std::os::unix::fs::symlink(at("0-0.pipe"), at("3-3.pipe")).unwrap();
        std::fs::write(at("0-0"), "dump").unwrap();
        std::fs::write(at("x-0"), "").unwrap();
        assert_eq!(processes(&folder), [(Rank(0), 0), (Rank(1), 1), (Rank(2), 2), (Rank(3), 3)]);
        assert!(!ask(&folder, (Rank(0), 0)), "none reads it");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader = folder.open_with("0-0.pipe", flags).unwrap();
        assert!(ask(&folder, (Rank(0), 0)) && listens(&folder, (Rank(0), 0)));
        for other in [1, 2, 3] {
            assert!(!ask(&folder, (Rank(other), other)));
        }
        let mut asked = [0; 8];
        assert_eq!(reader.read(&mut asked).unwrap(), 1);
        assert_eq!(std::fs::read(at("2-2.pipe")).unwrap(), b"");
        assert_eq!(read(&folder, (Rank(0), 0), 4).unwrap(), b"dump");
        assert!(read(&folder, (Rank(0), 0), 3).unwrap_err().contains("at most"));
        assert!(
            read(&folder, (Rank(1), 1), 9).is_err() && written(&folder, (Rank(1), 1)).is_none(),
            "no file"
        );
        clear(&folder);
        assert_eq!(processes(&folder), []);
    }
}
