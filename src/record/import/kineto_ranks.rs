//! Whose the files of torch's profiler are: by `distributedInfo`, by their names, or by the process that wrote them; which tell the
//! same profile twice, and which are not of one run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::intervals::Span;
use super::kineto_steps::{Lane, Step};
use super::source::natural;
use super::tensorboard::rank_of;
use crate::domain::time::Stamp;
use crate::domain::units::{counted, duration_us};

/// Ranks that are told apart.
pub(super) const MOST_RANKS: u32 = 1 << 16;
/// Letters of a host's name.
const MOST_NAME: usize = 256;
/// Ranks of one run that take no step at the same time lie no further apart than this, nanoseconds.
const MOST_APART: i64 = 600_000_000_000;

/// A file that was read.
#[derive(Debug, Default)]
pub(super) struct TraceFile {
    pub(super) path: PathBuf,
    /// What `distributedInfo` tells.
    pub(super) rank: Option<u32>,
    pub(super) world: Option<u32>,
    /// Its host, where it or its name tells that.
    pub(super) host: String,
    /// The process that took the steps.
    pub(super) pid: String,
    /// It tells when it was, so that its times can be compared with those of others.
    pub(super) has_moment: bool,
    /// What its own process did.
    pub(super) own: Lane,
    /// Of a file of several ranks, as `hvtui trace` writes it: their hosts and what they did.
    pub(super) others: BTreeMap<u32, (String, Lane)>,
}

/// What a file's name tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileName {
    rank: Option<u32>,
    /// The worker that torch's `tensorboard_trace_handler` names: `HOST_PID` unless told otherwise.
    worker: Option<String>,
}

impl FileName {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let rank = rank_within(stem).or_else(|| folder.and_then(rank_of));
        let worker = stem.strip_suffix(".pt.trace").map(|worker| {
            let time = worker.rsplit_once('.');
            let time = time.filter(|(_, time)| time.bytes().all(|byte| byte.is_ascii_digit()));
            time.map_or(worker, |(worker, _)| worker).to_owned()
        });
        Self { rank, worker }
    }
}

/// The rank that `rank3`, `rank-3` or `trace_rank_3` names.
pub(super) fn rank_within(stem: &str) -> Option<u32> {
    let lower = stem.to_ascii_lowercase();
    lower.match_indices("rank").find_map(|(at, word)| {
        let is_word = !lower.get(..at)?.ends_with(|letter: char| letter.is_ascii_alphabetic());
        let rest = lower.get(at + word.len()..)?;
        let rest = rest.strip_prefix(['_', '-', ' ']).unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits)?.parse().ok().filter(|rank| is_word && *rank < MOST_RANKS)
    })
}

/// The host of a worker `HOST_PID`, where that is the process that marked the steps.
pub(super) fn host_of(path: &Path, pid: &str) -> Option<String> {
    let worker = FileName::of(path).worker?;
    let (host, of) = worker.rsplit_once('_')?;
    (of == pid && !host.is_empty()).then(|| host.chars().take(MOST_NAME).collect())
}

/// What the files come to.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// Of each file that has one process.
    pub(super) of_files: Vec<Option<u32>>,
    /// No file marks its steps: they are those of the optimizer.
    pub(super) by_optimizer: bool,
    /// How many ranks no file tells, so that they got a number.
    pub(super) numbered: u64,
    /// Files that tell what another one tells, in words.
    pub(super) twice: Vec<String>,
    /// Files that are of none of the run's ranks, by their names.
    pub(super) strays: Vec<String>,
    /// Files in which a process counts its steps from the beginning again.
    pub(super) anew: u64,
}

/// Two files that are not of one run, by their places, and in words why.
type Refused = (usize, usize, String);

/// Tells each file's rank. A file that tells what another one tells, or that is of no rank, is emptied.
///
/// # Errors
/// The file, and in words why it and another one are not of one run.
pub(super) fn assign(files: &mut [TraceFile]) -> Result<Ranks, (PathBuf, String)> {
    let by_optimizer = end_files(files);
    let names: Vec<FileName> = files.iter().map(|file| FileName::of(&file.path)).collect();
    let mut of_files: Vec<Option<u32>> = files.iter().map(|file| file.rank).collect();
    let mut claimed: BTreeSet<u32> =
        files.iter().flat_map(|file| file.rank.into_iter().chain(file.others.keys().copied())).collect();
    let told = claimed.clone();
    let world = files.iter().filter_map(|file| file.world.filter(|world| *world > 0)).max();
    let limit = world.filter(|_| !told.is_empty()).unwrap_or(MOST_RANKS);
    let mut workers: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, rank) in names.iter().zip(&of_files) {
        if let (Some(worker), Some(rank)) = (&name.worker, rank) {
            workers.entry(worker).or_insert(*rank);
        }
    }
    let mut order: Vec<usize> = (0..files.len()).filter(|at| of_files[*at].is_none()).collect();
    order.retain(|at| !files[*at].own.steps.is_empty());
    order.sort_by_cached_key(|at| natural(&files[*at].path));
    let are_named = are_named(files, &names, &told, &order);
    for at in &order {
        let by_worker = names[*at].worker.as_deref().and_then(|worker| workers.get(worker)).copied();
        let by_name = names[*at].rank.filter(|rank| are_named && !told.contains(rank) && *rank < limit);
        of_files[*at] = by_worker.or(by_name);
        claimed.extend(of_files[*at]);
    }
    // without a number: those that one process wrote are one rank
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in order.into_iter().filter(|at| of_files[*at].is_none()) {
        let is_one = |other: usize| {
            let is_worker = names[at].worker.is_some() && names[at].worker == names[other].worker;
            is_worker || is_one_process(&files[at], &files[other])
        };
        match groups.iter_mut().find(|group| group.iter().all(|other| is_one(*other))) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    let mut free = (0..limit).filter(|rank| !claimed.contains(rank));
    let (mut numbered, mut strays) = (0, Vec::new());
    for group in groups {
        let rank = free.next();
        numbered += u64::from(rank.is_some());
        for at in group {
            of_files[at] = rank;
            if rank.is_none() {
                strays.push(name(&files[at].path));
                files[at].own = Lane::default();
            }
        }
    }
    let twice = empty_those_told_twice(files, &of_files);
    let anew = are_of_one_run(files, &names, &of_files, by_optimizer).map_err(|(at, other, what)| {
        let other = files[other].path.display();
        let remedy = "import the files of one run alone, or move those of the other one elsewhere";
        (files[at].path.clone(), format!("not of the same run as {other}: {what}; {remedy}"))
    })?;
    Ok(Ranks { of_files, by_optimizer, numbered, twice, strays, anew })
}

/// Makes steps of an optimizer's, file by file, where no file marks any: whether that is so.
fn end_files(files: &mut [TraceFile]) -> bool {
    let of = |file: &TraceFile| {
        file.own.steps.is_empty() && file.others.values().all(|(_, lane)| lane.steps.is_empty())
    };
    let by_optimizer = files.iter().all(of);
    for file in files {
        file.own.end_file(by_optimizer);
        file.others.values_mut().for_each(|(_, lane)| lane.end_file(by_optimizer));
    }
    by_optimizer
}

/// Whether the numbers in the files' names are ranks, as far as the files do not tell theirs: several, 0 among them, and each of one
/// process. `lora_rank16.json` is no rank 16.
fn are_named(files: &[TraceFile], names: &[FileName], told: &BTreeSet<u32>, order: &[usize]) -> bool {
    let mut of_rank: BTreeMap<u32, usize> = BTreeMap::new();
    let are_distinct = order.iter().filter_map(|at| Some((*at, names[*at].rank?))).all(|(at, rank)| {
        let other = *of_rank.entry(rank).or_insert(at);
        files[at].pid == files[other].pid && files[at].host == files[other].host
    });
    let all: BTreeSet<u32> = told.iter().chain(of_rank.keys()).copied().collect();
    are_distinct && all.len() > 1 && all.contains(&0)
}

/// Whether one process wrote both: their steps are others, or the same.
fn is_one_process(one: &TraceFile, other: &TraceFile) -> bool {
    let (Some(first), Some(second)) = (span(one), span(other)) else { return false };
    one.pid == other.pid
        && one.host == other.host
        && (is_disjoint(&one.own.steps, &other.own.steps)
            || !overlap(first, second)
            || is_same(&one.own.steps, &other.own.steps))
}

fn numbers(steps: &[Step]) -> BTreeSet<u64> {
    steps.iter().map(|step| step.number).collect()
}

fn is_disjoint(one: &[Step], other: &[Step]) -> bool {
    numbers(one).is_disjoint(&numbers(other))
}

/// From the beginning of a file's first step to the end of its last one; `None` where it has none.
fn span(file: &TraceFile) -> Option<Span> {
    let spans = || file.own.steps.iter().map(|step| step.span);
    Some((spans().map(|span| span.0).min()?, spans().map(|span| span.1).max()?))
}

fn overlap(one: Span, other: Span) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// Whether the steps of one are among those of the other, at the same moments.
fn is_same(one: &[Step], other: &[Step]) -> bool {
    let spans = |steps: &[Step]| steps.iter().map(|step| (step.number, step.span)).collect::<BTreeSet<_>>();
    let (one, other) = (spans(one), spans(other));
    !one.is_empty() && !other.is_empty() && (one.is_subset(&other) || other.is_subset(&one))
}

/// The same profile twice, as a file and packed: the one that tells more is kept.
fn empty_those_told_twice(files: &mut [TraceFile], ranks: &[Option<u32>]) -> Vec<String> {
    let mut told = Vec::new();
    for at in 1..files.len() {
        let same = (0..at).find(|other| {
            ranks[*other] == ranks[at]
                && ranks[at].is_some()
                && is_same(&files[*other].own.steps, &files[at].own.steps)
        });
        let Some(other) = same else { continue };
        let worth = |file: &TraceFile| {
            let is_cut = file.own.steps.iter().any(|step| step.is_cut);
            (!is_cut, file.own.steps.len(), file.own.comms.len() + file.own.gloo.len())
        };
        let (less, more) = if worth(&files[at]) > worth(&files[other]) { (other, at) } else { (at, other) };
        told.push(format!("{} is the same profile as {}", name(&files[less].path), name(&files[more].path)));
        files[less].own = Lane::default();
    }
    told
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Compares worlds, steps, processes and times; numbers the steps onwards where a process counts from the beginning again, and tells
/// in how many files that is so.
fn are_of_one_run(
    files: &mut [TraceFile],
    names: &[FileName],
    ranks: &[Option<u32>],
    by_optimizer: bool,
) -> Result<u64, Refused> {
    let told = || files.iter().enumerate().filter(|(_, file)| !file.own.steps.is_empty());
    let world = |file: &TraceFile| file.world.filter(|world| *world > 0);
    let first = told().find_map(|(at, file)| Some((at, world(file)?)));
    if let Some((other, first)) = first
        && let Some((at, world)) =
            told().filter_map(|(at, file)| Some((at, world(file)?))).find(|(_, world)| *world != first)
    {
        return Err((at, other, format!("it has {}, that one {first}", counted(world, "rank"))));
    }
    let mut of_ranks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, _) in told() {
        if let Some(rank) = ranks[at] {
            of_ranks.entry(rank).or_default().push(at);
        }
    }
    let mut anew = 0;
    for (rank, of_rank) in &mut of_ranks {
        of_rank.sort_by_key(|at| span(&files[*at]));
        anew += number_onwards(files, *rank, of_rank, by_optimizer)?;
        is_one_after_the_other(files, names, *rank, of_rank)?;
    }
    are_at_one_time(files, &of_ranks)?;
    Ok(anew)
}

/// Of a rank's files, in the order of time: a process that is profiled anew, as in each epoch, counts its steps from the beginning
/// again.
fn number_onwards(
    files: &mut [TraceFile],
    rank: u32,
    of_rank: &[usize],
    by_optimizer: bool,
) -> Result<u64, Refused> {
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut added, mut anew) = (0_u64, 0);
    let mut before: Option<(usize, i64)> = None;
    for at in of_rank.iter().copied() {
        let Some((from, to)) = span(&files[at]) else { continue };
        let first = files[at].own.steps.iter().map(|step| step.number).min().unwrap_or_default();
        let newest = seen.last_key_value().map(|(number, _)| *number);
        if let (Some((other, ended)), Some(newest)) = (before, newest)
            && first.saturating_add(added) <= newest
            && from >= ended
            && (by_optimizer || is_process(&files[at], &files[other]))
        {
            added = newest.saturating_add(1).saturating_sub(first);
            anew += 1;
        }
        for step in &mut files[at].own.steps {
            step.number = step.number.saturating_add(added);
            let other = *seen.entry(step.number).or_insert(at);
            if other != at {
                let number = step.number.saturating_add(1);
                let began = [at, other].map(|at| span(&files[at]).map_or(0, |span| span.0).div_euclid(1_000));
                let [earlier, later] = [began[0].min(began[1]), began[0].max(began[1])].map(Stamp);
                let words = format!(
                    "both tell step {number} of rank {rank}, from {} and from {} on",
                    earlier.rfc3339(),
                    later.rfc3339()
                );
                return Err((at, other, words));
            }
        }
        before = Some((at, before.map_or(to, |(_, ended)| ended.max(to))));
    }
    Ok(if by_optimizer { 0 } else { anew })
}

/// Whether one process took the steps of both.
fn is_process(one: &TraceFile, other: &TraceFile) -> bool {
    let worker = |file: &TraceFile| FileName::of(&file.path).worker;
    let is_worker = || worker(one).is_some() && worker(one) == worker(other);
    one.pid == other.pid && (one.host == other.host || is_worker())
}

/// A rank that was started again is another process, after the one before.
fn is_one_after_the_other(
    files: &[TraceFile],
    names: &[FileName],
    rank: u32,
    of_rank: &[usize],
) -> Result<(), Refused> {
    let of_workers = || of_rank.iter().copied().filter(|at| names[*at].worker.is_some());
    for (count, at) in of_workers().enumerate() {
        let is_other = |other: &usize| {
            let spans = span(&files[at]).zip(span(&files[*other]));
            names[*other].worker != names[at].worker
                && files[*other].pid != files[at].pid
                && spans.is_some_and(|(one, other)| overlap(one, other))
        };
        if let Some(other) = of_workers().take(count).find(is_other) {
            return Err((at, other, format!("rank {rank} is another process there at the same time")));
        }
    }
    Ok(())
}

/// The ranks of a run take their steps together. Of files that tell when they were.
fn are_at_one_time(files: &[TraceFile], of_ranks: &BTreeMap<u32, Vec<usize>>) -> Result<(), Refused> {
    let mut spans: Vec<(Span, u32, usize)> = Vec::new();
    for (rank, of_rank) in of_ranks {
        let told: Vec<(Span, usize)> = of_rank
            .iter()
            .filter(|at| files[**at].has_moment)
            .filter_map(|at| Some((span(&files[*at])?, *at)))
            .collect();
        let Some((first, at)) = told.first() else { continue };
        let last = told.iter().map(|(span, _)| span.1).max().unwrap_or(first.1);
        spans.push(((first.0, last), *rank, *at));
    }
    spans.sort_unstable();
    let mut latest: Option<(i64, u32, usize)> = None;
    for (span, rank, at) in spans {
        if let Some((ended, of, other)) = latest
            && span.0.saturating_sub(ended) > MOST_APART
        {
            let apart = duration_us(span.0.saturating_sub(ended).unsigned_abs() / 1_000);
            return Err((at, other, format!("rank {rank} begins {apart} after the end of rank {of}")));
        }
        latest = latest.max(Some((span.1, rank, at)));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
