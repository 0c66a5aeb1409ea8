//! Whose the files of torch's profiler are: by `distributedInfo`, by their names, or by the process that wrote them; which tell the
//! same profile twice, and which are not of one run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::kineto_steps::{Lane, Step};
use super::source::natural;
use super::tensorboard::rank_of;
use crate::domain::time::Stamp;
use crate::domain::units::counted;

/// Ranks that are told apart.
pub(super) const MOST_RANKS: u32 = 1 << 16;
/// Letters of a host's name.
const MOST_NAME: usize = 256;

/// A file that was read.
#[derive(Debug, Default)]
pub(super) struct TraceFile {
    pub(super) path: PathBuf,
    /// What `distributedInfo` tells.
    pub(super) rank: Option<u32>,
    pub(super) world: Option<u32>,
    /// Its host, where it or its name tells that.
    pub(super) host: String,
    /// The process that marked the steps.
    pub(super) pid: String,
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
fn rank_within(stem: &str) -> Option<u32> {
    let lower = stem.to_ascii_lowercase();
    lower.match_indices("rank").find_map(|(at, word)| {
        let is_word = !lower.get(..at)?.ends_with(|letter: char| letter.is_ascii_alphabetic());
        let rest = lower.get(at + word.len()..)?;
        let rest = rest.strip_prefix(['_', '-']).unwrap_or(rest);
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
    /// How many ranks no file tells, so that they got a number.
    pub(super) numbered: u64,
    /// Files that tell what another one tells, in words.
    pub(super) twice: Vec<String>,
}

/// Tells each file's rank. A file that tells what another one tells is emptied.
///
/// # Errors
/// The file, and in words why it and another one are not of one run.
pub(super) fn assign(files: &mut [TraceFile]) -> Result<Ranks, (PathBuf, String)> {
    let names: Vec<FileName> = files.iter().map(|file| FileName::of(&file.path)).collect();
    let mut of_files: Vec<Option<u32>> = files.iter().map(|file| file.rank).collect();
    let mut claimed: BTreeSet<u32> =
        files.iter().flat_map(|file| file.rank.into_iter().chain(file.others.keys().copied())).collect();
    let told = claimed.clone();
    let mut workers: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, rank) in names.iter().zip(&of_files) {
        if let (Some(worker), Some(rank)) = (&name.worker, rank) {
            workers.entry(worker).or_insert(*rank);
        }
    }
    let mut order: Vec<usize> = (0..files.len()).filter(|at| of_files[*at].is_none()).collect();
    order.sort_by_cached_key(|at| natural(&files[*at].path));
    order.retain(|at| !files[*at].own.steps.is_empty() || !files[*at].own.optimizer.is_empty());
    for at in &order {
        let by_worker = names[*at].worker.as_deref().and_then(|worker| workers.get(worker)).copied();
        of_files[*at] = by_worker.or(names[*at].rank.filter(|rank| !told.contains(rank)));
        claimed.extend(of_files[*at]);
    }
    // without a number: those that one process wrote are one rank
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in order.into_iter().filter(|at| of_files[*at].is_none()) {
        let is_one = |other: usize| match (&names[at].worker, &names[other].worker) {
            (Some(worker), Some(other)) => worker == other,
            (None, None) => {
                files[at].pid == files[other].pid
                    && files[at].host == files[other].host
                    && (is_disjoint(&files[at].own.steps, &files[other].own.steps)
                        || is_same(&files[at].own.steps, &files[other].own.steps))
            }
            _ => false,
        };
        match groups.iter_mut().find(|group| group.iter().all(|other| is_one(*other))) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    let numbered = groups.len() as u64;
    let mut free = (0..).filter(|rank| !claimed.contains(rank));
    for group in groups {
        let rank = free.next();
        for at in group {
            of_files[at] = rank;
        }
    }
    let twice = empty_those_told_twice(files, &of_files);
    are_of_one_run(files, &names, &of_files)?;
    Ok(Ranks { of_files, numbered, twice })
}

fn numbers(steps: &[Step]) -> BTreeSet<u64> {
    steps.iter().map(|step| step.number).collect()
}

fn is_disjoint(one: &[Step], other: &[Step]) -> bool {
    numbers(one).is_disjoint(&numbers(other))
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

/// Compares worlds, processes and steps.
fn are_of_one_run(
    files: &[TraceFile],
    names: &[FileName],
    ranks: &[Option<u32>],
) -> Result<(), (PathBuf, String)> {
    let remedy = "import the files of one run alone, or move those of the other one elsewhere";
    let refuse = |at: usize, other: usize, what: &str| {
        let other = files[other].path.display();
        (files[at].path.clone(), format!("not of the same run as {other}: {what}; {remedy}"))
    };
    let told = || files.iter().enumerate().filter(|(_, file)| !file.own.steps.is_empty());
    let world = |file: &TraceFile| file.world.filter(|world| *world > 0);
    let first = told().find_map(|(at, file)| Some((at, world(file)?)));
    if let Some((other, first)) = first
        && let Some((at, world)) =
            told().filter_map(|(at, file)| Some((at, world(file)?))).find(|(_, world)| *world != first)
    {
        let what = format!("it has {}, that one {first}", counted(world, "rank"));
        return Err(refuse(at, other, &what));
    }
    let mut steps: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    let mut workers: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, file) in told() {
        let Some(rank) = ranks[at] else { continue };
        for step in &file.own.steps {
            let other = *steps.entry((rank, step.number)).or_insert(at);
            if other != at {
                let began = began(file).min(began(&files[other]));
                let later = self::began(file).max(self::began(&files[other]));
                let what = format!(
                    "both tell step {} of rank {rank}, from {} and from {} on",
                    step.number.saturating_add(1),
                    began.rfc3339(),
                    later.rfc3339()
                );
                return Err(refuse(at, other, &what));
            }
        }
        if names[at].worker.is_some() {
            let other = *workers.entry(rank).or_insert(at);
            if names[other].worker != names[at].worker {
                let what = format!("rank {rank} is another process there");
                return Err(refuse(at, other, &what));
            }
        }
    }
    Ok(())
}

/// When the first of a file's steps began.
fn began(file: &TraceFile) -> Stamp {
    Stamp(file.own.steps.iter().map(|step| step.span.0).min().unwrap_or_default().div_euclid(1_000))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn file(path: &str, pid: &str, rank: Option<u32>, steps: Range<u64>) -> TraceFile {
        let step = |number: u64| Step {
            number,
            span: (number as i64 * 1_000, number as i64 * 1_000 + 900),
            is_cut: false,
        };
        let own = Lane { steps: steps.map(step).collect(), ..Lane::default() };
        TraceFile { path: PathBuf::from(path), rank, pid: pid.to_owned(), own, ..TraceFile::default() }
    }

    #[test]
    fn names_tell_ranks_and_workers() {
        let of = |name: &str| {
            let name = FileName::of(Path::new(name));
            (name.rank, name.worker)
        };
        let worker = |name: &str| Some(name.to_owned());
        assert_eq!(of("log/vm_42.1795808995587854504.pt.trace.json.gz"), (None, worker("vm_42")));
        assert_eq!(
            of("rank-34.Jul_15_10_52_41.1074.pt.trace.json"),
            (Some(34), worker("rank-34.Jul_15_10_52_41"))
        );
        assert_eq!(of("a/trace_Rank_10.json"), (Some(10), None));
        assert_eq!(of("rank_3/trace.json.zst"), (Some(3), None));
        assert_eq!([of("crank3.json").0, of("rank.json").0, of("franks/1.json").0], [None; 3]);
        let path = Path::new("gpu_a_42.17.pt.trace.json");
        assert_eq!((host_of(path, "42"), host_of(path, "7")), (worker("gpu_a"), None));
    }

    #[test]
    fn files_of_one_process_are_one_rank_and_no_number_is_given_twice() {
        let mut files = [
            file("vm_7.1.pt.trace.json", "7", None, 0..3),
            file("vm_7.2.pt.trace.json", "7", None, 5..8),
            file("vm_9.1.pt.trace.json", "9", Some(0), 0..3),
            file("trace_10.json", "4", None, 0..3),
            file("trace_9.json", "4", None, 4..6),
            file("other.json", "5", None, 0..3),
        ];
        let ranks = assign(&mut files).unwrap();
        assert_eq!(ranks.of_files, [3, 3, 0, 2, 2, 1].map(Some));
        assert_eq!((ranks.numbered, ranks.twice.len()), (3, 0));
        let mut named: Vec<TraceFile> =
            (0..12).rev().map(|rank| file(&format!("rank{rank}.json"), "1", None, 0..3)).collect();
        let ranks = assign(&mut named).unwrap();
        assert_eq!(ranks.of_files, (0..12).rev().map(Some).collect::<Vec<_>>());
        assert_eq!(ranks.numbered, 0);
        // what a file says counts for more than the name of another one
        let mut mixed = [file("rank1.json", "1", None, 0..3), file("rank0.json", "2", Some(1), 0..3)];
        assert_eq!(assign(&mut mixed).unwrap().of_files, [Some(0), Some(1)]);
    }

    #[test]
    fn what_is_told_twice_is_taken_once_and_two_runs_are_refused() {
        let mut files = [
            file("rank-0.json", "1", Some(0), 0..3),
            file("rank-0.json.gz", "1", Some(0), 0..4),
            file("rank-1.json.gz", "1", Some(1), 0..4),
        ];
        let ranks = assign(&mut files).unwrap();
        assert_eq!(ranks.twice, ["rank-0.json is the same profile as rank-0.json.gz"]);
        assert_eq!(files.each_ref().map(|file| file.own.steps.len()), [0, 4, 4]);
        let mut again = [file("a.json", "1", Some(0), 0..3), file("b.json", "1", Some(0), 2..5)];
        again[1].own.steps.iter_mut().for_each(|step| step.span.1 += 1_000_000);
        let (path, words) = assign(&mut again).unwrap_err();
        assert_eq!(path, Path::new("b.json"));
        assert!(
            words.starts_with("not of the same run as a.json: both tell step 3 of rank 0, from 1970"),
            "{words}"
        );
        assert!(
            words.ends_with("import the files of one run alone, or move those of the other one elsewhere")
        );
        let mut sizes = [file("a.json", "1", Some(0), 0..3), file("b.json", "1", Some(1), 0..3)];
        (sizes[0].world, sizes[1].world) = (Some(4), Some(2));
        assert!(assign(&mut sizes).unwrap_err().1.contains("it has 2 ranks, that one 4; "));
        let mut processes = [
            file("vm_1.1.pt.trace.json", "1", Some(0), 0..3),
            file("vm_2.1.pt.trace.json", "2", Some(0), 5..7),
        ];
        assert!(assign(&mut processes).unwrap_err().1.contains("rank 0 is another process there"));
    }
}
