//! `hvtui rank-shim`: what a launcher starts as a rank. It finds out which rank it is, hands its environment to the
//! rank's rank-wrap, and ends as the rank ends. When the launcher ends it, its rank is ended.
//!
//! Knows nothing of the command that the rank executes.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};

use super::{manager, seat_file};
use crate::clock;
use crate::domain::engine::RUN_DIR;
use crate::domain::ids::Rank;
use crate::domain::run::HostRun;
use crate::domain::text::os_text;
use crate::supervise::SuperviseError;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{SPEC, exit_file};

/// Where launchers write the number of a rank: that of the innermost launcher first.
const NUMBERS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK"];
/// How long a rank-wrap may take until it listens: it was started before the launcher.
const PATIENCE_US: u64 = 10_000_000;
const PAUSE: Duration = Duration::from_millis(10);

/// Why a shim can't become its rank.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// No launcher has started it.
    #[error(
        "no launcher that is known has started this: none of OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, \
         HOROVOD_RANK, SLURM_PROCID and torchrun's RANK is set"
    )]
    NoRank,
    /// It doesn't know where its run is.
    #[error(
        "{RUN_DIR} is not set: the launcher does not pass the environment of this host's hvtui on to its ranks"
    )]
    NoRun,
    /// Its rank has no place here.
    #[error(
        "rank {rank} has no place on this host ({path}: {detail}): was it mapped to another host than planned?"
    )]
    NoSeat {
        /// The rank.
        rank: Rank,
        /// The socket.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// The run directory.
    #[error(transparent)]
    Run(#[from] SuperviseError),
    /// The rank-wrap has ended.
    #[error("rank {rank} was not started: {detail}")]
    Lost {
        /// The rank.
        rank: Rank,
        /// What happened.
        detail: String,
    },
}

/// Which rank a launcher means by this environment.
fn own_rank(get: impl Fn(&str) -> Option<OsString>) -> Option<Rank> {
    let number = |name: &str| get(name)?.to_str()?.trim().parse().ok().map(Rank);
    let torchrun = || get("TORCHELASTIC_RUN_ID").and_then(|_| number("RANK"));
    NUMBERS.iter().find_map(|name| number(name)).or_else(torchrun).or_else(|| number("SLURM_PROCID"))
}

/// Becomes the rank that the launcher means; the code to end with. A rank that a signal has ended ends this process
/// by the same one.
pub fn run() -> Result<i32, ShimError> {
    let rank = own_rank(|name| std::env::var_os(name)).ok_or(ShimError::NoRank)?;
    let dir = std::env::var_os(RUN_DIR).ok_or(ShimError::NoRun)?;
    let dir = RunDir::open(Path::new(&dir))?;
    let lost = |detail: String| ShimError::Lost { rank, detail };
    let mut seat = connect(&dir, rank)?;
    let environment = environment();
    let length = (environment.len() as u64).to_le_bytes();
    let told = manager::hand_over(&seat, length).and_then(|()| seat.write_all(&environment));
    told.map_err(|e| lost(os_text(&e)))?;
    let mut answer = [0; 5];
    match seat.read_exact(&mut answer) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(lost("its rank-wrap has ended".to_owned()));
        }
        Err(error) => return Err(lost(os_text(&error))),
    }
    let [kind, number @ ..] = answer;
    let number = i32::from_le_bytes(number);
    if kind == super::seat::BY_SIGNAL {
        // The launcher says by which; a core of this process would tell nothing.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        if let Some(signal) = Signal::from_named_raw(number) {
            let _ = kill_process(getpid(), signal);
        }
        return Ok(128 + number);
    }
    Ok(number)
}

fn connect(dir: &RunDir, rank: Rank) -> Result<UnixStream, ShimError> {
    let begun = clock::host_now();
    loop {
        match UnixStream::connect(dir.socket(&seat_file(rank))) {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                if dir.has(&exit_file(rank)) {
                    let detail = "it has ended already, and a launcher can't start it again".to_owned();
                    return Err(ShimError::Lost { rank, detail });
                }
                let early =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
                let spec: Option<HostRun> = dir.read_json(SPEC)?;
                let ours = spec.is_some_and(|spec| spec.ranks.iter().any(|one| one.rank == rank));
                // A rank of another host is never awaited here.
                if !early || !ours || clock::host_now().0.saturating_sub(begun.0) > PATIENCE_US {
                    let path = dir.path().join(seat_file(rank)).display().to_string();
                    return Err(ShimError::NoSeat { rank, path, detail: os_text(&error) });
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// `NAME=value` of each variable, each ended by a NUL.
fn environment() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in std::env::vars_os() {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_launcher_says_which_rank_it_is() {
        let of = |pairs: &[(&str, &str)]| {
            own_rank(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "3"), ("SLURM_PROCID", "0")]), Some(Rank(3)));
        assert_eq!(of(&[("PMI_RANK", "2")]), Some(Rank(2)));
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("RANK", "5"), ("TORCHELASTIC_RUN_ID", "x")]), Some(Rank(5)));
        assert_eq!(of(&[("SLURM_PROCID", "1"), ("RANK", "5")]), Some(Rank(1)), "RANK alone may be anyone's");
        assert_eq!(of(&[("RANK", "5"), ("PMI_RANK", "x")]), None);
    }
}
