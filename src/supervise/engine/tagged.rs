//! Where a launcher's words go: to the files of the ranks that its tags name, and its own to the standard error of
//! this host's first rank. Where it tags, its ranks are no children of ours, and their ends are told by its words.
//!
//! A node of another host does the same for its ranks with what the launcher's wrapper hands on to it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;

use super::EngineEnd;
use crate::clock;
use crate::domain::blame::{self, Blamed};
use crate::domain::engine::Engine;
use crate::domain::ids::Rank;
use crate::domain::launcher_words;
use crate::domain::log::Stream;
use crate::domain::run::{HostRun, RankExit};
use crate::domain::tags::{Origin, Splitter, TagStyle};
use crate::domain::task_end::TaskEnd;
use crate::procs::identity::Identity;
use crate::supervise::rundir::RunDir;
use crate::supervise::state::{STOP, Started, exit_file, started_file, stream_file};

/// So much of the launcher's own words is kept for its end, and of what ranks say of theirs.
const TAIL: usize = 32 * 1024;
/// A line that tells of a rank's end is no longer.
const LINE: usize = 512;

/// What a rank on another host has said.
pub(super) struct RemoteChunk {
    /// Its node.
    pub node: String,
    pub rank: Rank,
    pub stream: Stream,
    pub bytes: Vec<u8>,
}

/// What follows from what a launcher has written at once.
#[derive(Default)]
pub(super) struct ParsedOutput {
    /// What ranks on other hosts have said.
    pub remote: Vec<RemoteChunk>,
    /// The ranks that thereby have said all they will.
    pub ended: Vec<Rank>,
}

/// What a launcher says.
pub(super) struct LauncherOutput {
    dir: Option<RunDir>,
    ranks: Vec<Rank>,
    /// Ranks of the run, on all hosts.
    world: u32,
    /// The nodes of those on other hosts.
    elsewhere: BTreeMap<Rank, String>,
    files: BTreeMap<(Rank, &'static str), File>,
    splitters: Option<[(Stream, Splitter); 2]>,
    style: Option<TagStyle>,
    ends: BTreeMap<Rank, [TaskEnd; 2]>,
    tail: VecDeque<u8>,
    /// Lines of ranks that tell who is the cause, in the order in which they came.
    told: String,
    /// The line in which the standard error of each rank is.
    begun: BTreeMap<Rank, Vec<u8>>,
}

impl LauncherOutput {
    pub(super) fn new(dir: &RunDir, spec: &HostRun, style: Option<TagStyle>) -> Self {
        let both = [Stream::Stdout, Stream::Stderr];
        Self {
            dir: RunDir::open(dir.path()).ok(),
            ranks: spec.ranks.iter().map(|rank| rank.rank).collect(),
            world: spec.run_spec.as_ref().map_or(u32::MAX, |run| run.world()),
            elsewhere: match &spec.engine {
                Some(Engine::Launcher(launcher)) => launcher.elsewhere.clone(),
                _ => BTreeMap::new(),
            },
            files: BTreeMap::new(),
            splitters: style.map(|style| both.map(|stream| (stream, Splitter::new(style, stream)))),
            style,
            ends: BTreeMap::new(),
            tail: VecDeque::new(),
            told: String::new(),
            begun: BTreeMap::new(),
        }
    }

    /// The process `pid` runs and stands for all ranks of this host, which are no children of ours.
    pub(super) fn began(&self, pid: Option<u32>) {
        let Some((dir, Ok(process))) = self.dir.as_ref().zip(pid.map(Identity::of)) else { return };
        let started = Started { process, t: clock::host_now(), grouped: false };
        for rank in &self.ranks {
            let _ = dir.write_json(&started_file(*rank), &started);
        }
    }

    /// Takes what the launcher has written at once.
    pub(super) fn feed(&mut self, stream: Stream, bytes: &[u8]) -> ParsedOutput {
        let Some(splitters) = &mut self.splitters else {
            self.own(bytes);
            return ParsedOutput::default();
        };
        let splitter = splitters.iter_mut().find(|(of, _)| *of == stream);
        let chunks = splitter.map(|(_, splitter)| splitter.feed(bytes)).unwrap_or_default();
        self.sort(chunks)
    }

    /// The launcher says no more: what was held back, since it could have begun a tag, or a task's end.
    pub(super) fn rest(&mut self) -> Vec<RemoteChunk> {
        let Some(splitters) = &mut self.splitters else { return Vec::new() };
        let rest: Vec<_> = splitters.iter_mut().flat_map(|(_, splitter)| splitter.end()).collect();
        let parsed = self.sort(rest);
        for (rank, ends) in std::mem::take(&mut self.ends) {
            for (stream, mut end) in [Stream::Stdout, Stream::Stderr].into_iter().zip(ends) {
                self.write(rank, stream, &end.end());
            }
        }
        parsed.remote
    }

    fn sort(&mut self, chunks: Vec<(Origin, Vec<u8>)>) -> ParsedOutput {
        let mut parsed = ParsedOutput::default();
        for (origin, bytes) in chunks {
            let Some(rank) = origin.rank.and_then(|number| self.rank(number)) else {
                self.own(&bytes);
                continue;
            };
            if origin.stream == Stream::Stderr {
                self.hear(rank, &bytes);
            }
            if let Some(node) = self.elsewhere.get(&rank).cloned() {
                parsed.remote.push(RemoteChunk { node, rank, stream: origin.stream, bytes });
            } else if self.style == Some(TagStyle::Srun) {
                let ends = self.ends.entry(rank).or_default();
                let had = ends.iter().all(TaskEnd::seen);
                let [out, err] = ends;
                let end = if origin.stream == Stream::Stdout { out } else { err };
                let own = end.feed(&bytes);
                if !had && ends.iter().all(TaskEnd::seen) {
                    parsed.ended.push(rank);
                }
                self.write(rank, origin.stream, &own);
            } else {
                self.write(rank, origin.stream, &bytes);
            }
        }
        parsed
    }

    /// Looks in what a rank has said for its word that it is the cause: its launcher may not tell.
    fn hear(&mut self, rank: Rank, bytes: &[u8]) {
        let begun = self.begun.entry(rank).or_default();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (piece, is_whole) = piece.strip_suffix(b"\n").map_or((piece, false), |line| (line, true));
            begun.extend(piece.iter().take(LINE.saturating_sub(begun.len())));
            if !is_whole {
                continue;
            }
            let line = String::from_utf8_lossy(begun);
            if blame::tells_of_end(&line) && self.told.len() + line.len() < TAIL {
                self.told.push_str(line.trim_end());
                self.told.push('\n');
            }
            begun.clear();
        }
    }

    /// The rank that a tag names.
    fn rank(&self, number: u32) -> Option<Rank> {
        Some(Rank(number)).filter(|rank| self.ranks.contains(rank) || self.elsewhere.contains_key(rank))
    }

    fn own(&mut self, bytes: &[u8]) {
        // Open MPI 5 ends its messages by a NUL.
        let bytes: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
        let bytes = bytes.as_slice();
        self.tail.extend(bytes);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
        if let Some(first) = self.ranks.first().copied() {
            self.write(first, Stream::Stderr, bytes);
        }
    }

    /// In one write, so that nothing comes between.
    pub(super) fn write(&mut self, rank: Rank, stream: Stream, bytes: &[u8]) {
        if !self.ranks.contains(&rank) {
            return;
        }
        let key = (rank, stream.extension());
        if !self.files.contains_key(&key)
            && let Some(Ok(file)) = self.dir.as_ref().map(|dir| dir.append(&stream_file(rank, stream)))
        {
            self.files.insert(key, file);
        }
        if let Some(file) = self.files.get_mut(&key) {
            // A disk that is full stops no run.
            let _ = file.write_all(bytes);
        }
    }

    /// The launcher's last words, and behind them what ranks have said of their ends.
    pub(super) fn tail(&self) -> String {
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let own = String::from_utf8_lossy(&bytes);
        let gap = if own.is_empty() || own.ends_with('\n') { "" } else { "\n" };
        format!("{own}{gap}{}", self.told)
    }

    /// The launcher has ended: so have the ranks that it alone knows of, by its last words.
    pub(super) fn finish(&self, end: &EngineEnd, tail: &str) {
        let Some(dir) = &self.dir else { return };
        let blamed = blame::blamed(tail);
        let mut end = end.clone();
        if blamed.is_empty() && (blame::names_a_rank(tail) || launcher_words::is_wordless(&end.words)) {
            // Open MPI 4 leaves its second message out at times, and Hydra says nothing of a rank that exits.
            end.words = blame::unnamed(&end.words);
        }
        let stopped = dir.has(STOP);
        let first = blamed.iter().find(|one| one.rank < self.world).copied();
        for rank in &self.ranks {
            let named = blamed.iter().find(|one| one.rank == rank.0).copied();
            let exit = exit(&end, named, first.map(|one| Rank(one.rank) == *rank), stopped);
            if !dir.has(&exit_file(*rank)) {
                let _ = dir.write_reserved(&exit_file(*rank), &exit);
            }
        }
    }
}

/// What a shell says of a process that SIGKILL or SIGTERM has ended.
const KILLED: i32 = 137;
const TERMINATED: i32 = 143;

/// How a rank has ended by its launcher's word: the first that is named is the cause, and where none is named the
/// launcher's own end is. Those that are named after it have failed too, unless they were told to end.
fn exit(end: &EngineEnd, named: Option<Blamed>, is_first: Option<bool>, stopped: bool) -> RankExit {
    let mut exit =
        RankExit { code: Some(end.code), signal: None, t: end.t, error: None, stopped, cause: None };
    if end.code == 0 {
        return exit;
    }
    match (named, is_first) {
        (Some(named), is_first) => {
            (exit.code, exit.signal) = (named.code, named.signal);
            exit.cause = named.cause.map(str::to_owned);
            if exit.is_lost() {
                exit.code = Some(end.code);
                exit.cause.get_or_insert_with(|| end.words.clone());
            }
            if is_first == Some(false) {
                let was_told = matches!(exit.shell_code(), KILLED | TERMINATED);
                exit.stopped |= was_told;
                exit.cause = (!was_told).then(|| blame::LATER.to_owned());
            }
        }
        (None, Some(_)) => {
            (exit.code, exit.signal, exit.stopped) = (None, Some(15), true);
        }
        (None, None) => exit.cause = (!stopped).then(|| end.words.clone()),
    }
    exit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::HostTime;

    #[test]
    fn the_rank_that_the_launcher_names_first_is_the_cause() {
        let end = EngineEnd { code: 3, died: false, words: "srun: x".to_owned(), t: HostTime(1) };
        let named = Blamed { rank: 1, code: Some(3), signal: None, cause: None };
        let first = exit(&end, Some(named), Some(true), false);
        assert_eq!((first.code, first.stopped), (Some(3), false));
        let other = exit(&end, None, Some(false), false);
        assert_eq!((other.signal, other.stopped), (Some(15), true));
        let none = exit(&end, None, None, false);
        assert_eq!((none.code, none.stopped, none.cause.as_deref()), (Some(3), false, Some("srun: x")));
        let well = EngineEnd { code: 0, ..end };
        assert_eq!(exit(&well, Some(named), Some(true), false).shell_code(), 0);
    }

    #[test]
    fn of_ranks_that_are_named_later_those_that_were_killed_were_told_to_end() {
        let end = EngineEnd { code: 1, died: false, words: "srun: x".to_owned(), t: HostTime(1) };
        let later = |code: Option<i32>, signal: Option<i32>| {
            exit(&end, Some(Blamed { rank: 1, code, signal, cause: None }), Some(false), false)
        };
        let failed = later(Some(3), None);
        assert_eq!((failed.stopped, failed.cause.as_deref()), (false, Some(blame::LATER)));
        for (code, signal) in [(None, Some(15)), (None, Some(9)), (Some(143), None), (Some(137), None)] {
            let told = later(code, signal);
            assert_eq!((told.stopped, told.cause), (true, None), "{code:?} {signal:?}");
        }
        assert!(!later(None, Some(11)).stopped);
    }

    #[test]
    fn a_rank_that_is_named_without_more_has_the_launchers_code() {
        let words = "mpirun: an error occurred in MPI_Send: MPI_ERR_RANK: invalid rank".to_owned();
        let end = EngineEnd { code: 6, died: false, words, t: HostTime(1) };
        let of = |text: &str| exit(&end, blame::blamed(text).first().copied(), Some(true), false).describe();
        let said = of("[n2:00079] *** reported by process [2079981569,1]");
        assert_eq!(said, "exit 6, mpirun: an error occurred in MPI_Send: MPI_ERR_RANK: invalid rank");
        assert_eq!(of("srun: error: n2: task 1: Out Of Memory"), "killed by SIGKILL, out of memory");
        let early = "mpirun has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly.";
        assert_eq!(of(early), "exit 6, it ended without MPI_Finalize");
    }

    /// How the ranks 0 and 1 of one host have ended, of which Hydra says `text` and ends with `code`.
    fn ends(text: &str, code: i32) -> Vec<RankExit> {
        let place = tempfile::tempdir().unwrap();
        let dir = RunDir::open(place.path()).unwrap();
        let mut output = LauncherOutput {
            dir: Some(dir),
            ranks: vec![Rank(0), Rank(1)],
            world: 2,
            elsewhere: BTreeMap::new(),
            files: BTreeMap::new(),
            splitters: None,
            style: Some(TagStyle::Hydra),
            ends: BTreeMap::new(),
            tail: VecDeque::new(),
            told: String::new(),
            begun: BTreeMap::new(),
        };
        let style = TagStyle::Hydra;
        output.splitters =
            Some([Stream::Stdout, Stream::Stderr].map(|kind| (kind, Splitter::new(style, kind))));
        for piece in text.as_bytes().chunks(7) {
            output.feed(Stream::Stderr, piece);
        }
        output.rest();
        let tail = output.tail();
        let engine = Engine::Node(crate::domain::engine::Node {
            name: "n1".to_owned(),
            needs: Vec::new(),
            env: BTreeMap::new(),
            stands: true,
        });
        let words = launcher_words::sentence(
            &engine,
            launcher_words::cause(&tail).as_deref(),
            &format!("exit {code}"),
        );
        output.finish(&EngineEnd { code, died: false, words, t: HostTime(1) }, &tail);
        let dir = RunDir::open(place.path()).unwrap();
        [0, 1].map(|rank| dir.read_json(&exit_file(Rank(rank))).unwrap().unwrap()).to_vec()
    }

    #[test]
    fn a_rank_that_says_itself_that_it_aborts_is_the_cause_where_hydra_names_none() {
        let text = "[0] step 1\n[1] Abort(3) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 3) - \
                    process 1\n";
        let ends = ends(text, 3);
        assert_eq!((ends[1].code, ends[1].stopped, &ends[1].cause), (Some(3), false, &None));
        assert_eq!((ends[0].signal, ends[0].stopped), (Some(15), true));
    }

    #[test]
    fn where_hydra_says_nothing_of_an_exit_no_rank_is_the_cause() {
        for exit in ends("[0] step 1\n[1] step 1\n", 3) {
            assert!(exit.cause.as_deref().is_some_and(blame::is_unnamed), "{exit:?}");
        }
    }
}
