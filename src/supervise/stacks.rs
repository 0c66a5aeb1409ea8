//! Asks a process of a run for its stacks: hvtui's hooks have told its Python which signal to answer, and the answer is
//! appended to a file beside the rank's report. Only a process of the run that handles that signal gets it: any other
//! would be ended by it.

use std::io::{Read, Seek, SeekFrom};

use super::SuperviseError;
use super::container::members::Members;
use super::process_set;
use super::rundir::RunDir;
use super::state::{SPEC, STATE, State, stream_file};
use crate::domain::ids::Rank;
use crate::domain::log::Stream;
use crate::domain::run::HostRun;
use crate::procs::signal;
use crate::procs::table::Process;

/// The end of the name of the file in which a process answers: `rank-0.report.stack`, of one with `RANK=3` in it
/// `rank-0.report.3.stack`.
pub const ANSWER: &str = ".stack";
/// The most that is read of one answer, bytes.
const MOST: u64 = 64 << 10;
/// A file that has more than this is emptied before the next answer, bytes.
const FULL: u64 = 4 << 20;

/// The end of the file, behind the report's name, in which the first Python of a rank says who it is.
const FIRST: &str = ".first";

/// A Python that answers, though it may report no steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstPython {
    /// Its process.
    pub pid: u32,
    /// The signal that it answers; 0 once its script has taken that.
    pub signal: u32,
    /// Where it answers.
    pub file: String,
}

/// The Python that was started first in a rank, as its hooks say.
pub fn first_python(dir: &RunDir, rank: Rank) -> Option<FirstPython> {
    let report = stream_file(rank, Stream::Report);
    let mut text = String::new();
    dir.read(&format!("{report}{FIRST}")).ok()??.take(64).read_to_string(&mut text).ok()?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse::<u32>().ok());
    let (pid, signal) = (numbers.next().filter(|pid| *pid > 0)?, numbers.next()?);
    Some(FirstPython { pid, signal, file: format!("{report}{ANSWER}") })
}

/// A process that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    file: String,
    /// Where its answer begins.
    from: u64,
}

/// The processes of a run on this host, as its files and the kernel tell.
///
/// # Errors
/// The run's files can't be read.
pub fn members(dir: &RunDir) -> Result<Vec<Process>, SuperviseError> {
    let (spec, state) = (dir.read_json::<HostRun>(SPEC)?, dir.read_json::<State>(STATE)?);
    Ok(spec.zip(state).map(|(spec, state)| process_set::with_wraps(dir, &spec, &state)).unwrap_or_default())
}

/// The rank's own process: where it is in a container, the first one inside, of which the engine's client is not the parent.
pub fn own_process(dir: &RunDir, rank: Rank, started: u32, members: &[Process]) -> u32 {
    let inside = Members::of(dir, [rank]);
    let inside: Vec<&Process> = inside.among(members).map(|(_, process)| process).collect();
    let is_inside = |pid: u32| inside.iter().any(|process| process.pid == pid);
    inside.iter().find(|process| !is_inside(process.stat.parent)).map_or(started, |process| process.pid)
}

/// Asks one of `members` by the signal that it is said to answer, in `file`.
///
/// # Errors
/// Why it can't be asked, in words.
pub fn ask(dir: &RunDir, members: &[Process], pid: u32, signal: u32, file: String) -> Result<Asked, String> {
    let Some(process) = members.iter().find(|process| process.pid == pid) else {
        return Err(format!("process {pid} is no process of the run on this host"));
    };
    if process.stat.state == 'T' || process.stat.state == 't' {
        return Err("a signal has stopped it".to_owned());
    }
    let size = |file: &str| Some(dir.read(file).ok()??.metadata().ok()?.len());
    if size(&file).is_some_and(|size| size > FULL)
        && let Ok(Some(full)) = dir.open_to_cut(&file)
    {
        // it is appended to: a shorter file is all the same to who writes
        let _ = full.set_len(0);
    }
    let from = size(&file).unwrap_or(0);
    // The last look before it is sent: a program that it has become would be ended by it.
    let signal = signal::real_time(signal)
        .filter(|signal| signal::handles(pid, signal.as_raw()))
        .ok_or_else(|| {
            "its Python answers no signal: the script, or a library, uses the one that the hooks take"
                .to_owned()
        })?;
    if process.signal(signal) { Ok(Asked { file, from }) } else { Err("it has ended".to_owned()) }
}

/// What has been written of the answer so far.
pub fn answer(dir: &RunDir, asked: &Asked) -> String {
    let read = || {
        let mut file = dir.read(&asked.file).ok()??;
        file.seek(SeekFrom::Start(asked.from)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn the_first_python_of_a_rank_is_who_its_hooks_say() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let found = |text: &str| {
            std::fs::write(dir.path().join("rank-3.report.first"), text).unwrap();
            first_python(&dir, Rank(3)).map(|python| (python.pid, python.signal, python.file))
        };
        let answer = "rank-3.report.stack".to_owned();
        assert_eq!(found("71 60\n"), Some((71, 60, answer.clone())));
        assert_eq!(found("71 0\n"), Some((71, 0, answer)), "its script has taken the signal");
        for text in ["", "71", "0 60\n", "x 60", "-1 60"] {
            assert_eq!(found(text), None, "{text}");
        }
        assert_eq!(first_python(&dir, Rank(0)), None);
    }

    #[test]
    fn only_who_handles_the_signal_gets_it() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let members = |pid| vec![Process { pid, stat: crate::procs::identity::Stat::read(pid).unwrap() }];
        let file = || "rank-0.report.stack".to_owned();
        let refused = |pid, signal| ask(&dir, &members(child.id()), pid, signal, file()).unwrap_err();
        assert!(refused(child.id(), 60).contains("answers no signal"));
        assert!(refused(child.id(), 9).contains("answers no signal"), "none of those that end a process");
        assert!(refused(1, 60).contains("no process of the run"));
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
