//! The script of a launch, of Python or a shell, where it is on this machine too: its text tells whether the kind suits it. The
//! one place that reads scripts, for the command line and the screens alike.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::domain::ids::HostId;
use crate::domain::run::JobKind;
use crate::launch::remark::Remark;
use crate::launch::request::{ALL_SLOTS, FREE_SLOTS, LaunchRequest, PlacementSpec};
use crate::launch::suspect::{self, StartedBy};
use crate::launch::{environment_run, name, pasted_request};
use crate::launcher::code;

/// The most of a script that is looked at.
const SCRIPT: u64 = 256 * 1024;

/// The path of a command's Python script, as it is written.
pub fn path_of(command: &[String]) -> Option<&Path> {
    let is_script = |word: &&String| Path::new(word).extension().is_some_and(|end| end == "py");
    command.iter().find(is_script).map(Path::new)
}

/// The text of a command's Python script, where it is here too: in the first of these folders that has it, else in the current
/// one.
pub fn text_of(command: &[String], folders: &[PathBuf]) -> Option<String> {
    read(path_of(command)?, folders)
}

fn read(path: &Path, folders: &[PathBuf]) -> Option<String> {
    let below = folders.iter().map(|folder| folder.join(path));
    // a pipe, such as /dev/stdin, is the rank's own
    let mut files = below.chain([path.to_owned()]).filter(|path| path.is_file());
    let file = files.find_map(|path| std::fs::File::open(path).ok())?;
    let mut text = Vec::new();
    file.take(SCRIPT).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The path of a command's shell script, as it is written.
fn shell_script(command: &[String]) -> Option<&String> {
    let command = environment_run::inner(command).map_or(command, |at| &command[at..]);
    let (program, behind) = command.split_first()?;
    let name = program.rsplit('/').next()?;
    if !matches!(name, "sh" | "bash" | "dash" | "zsh" | "ksh") {
        return Path::new(name).extension().is_some_and(|end| end == "sh").then_some(program);
    }
    let at = behind.iter().position(|word| !word.starts_with('-'))?;
    // behind `-c` stands its text
    let has_text = behind[..at].iter().any(|option| !option.starts_with("--") && option.contains('c'));
    behind.get(at).filter(|_| !has_text)
}

/// Where on this machine the files of a launch are: the folder that is copied, and the one of that name in which its ranks start.
fn folders(request: &LaunchRequest) -> Vec<PathBuf> {
    let copied = request.options.sync.as_ref().map(|plan| plan.dir.as_str());
    copied.into_iter().chain(request.workdir.as_deref()).filter_map(code::here).collect()
}

/// Looks at a launch's script: says where its framework and the kind do not fit, and spells the argument with the local
/// rank as the script does.
pub fn look(request: &mut LaunchRequest) {
    let kind = request.kind.unwrap_or_else(|| name::kind_of(&request.command));
    if kind == JobKind::Native {
        return;
    }
    let ranks = ranks(&request.place, request.options.gpus_per_rank);
    if let Some(path) = shell_script(&request.command).filter(|_| kind == JobKind::Plain && ranks.0 > 1) {
        let text = read(Path::new(path), &folders(request));
        let told = text.and_then(|text| suspect::starts_ranks(&text, path));
        request.remarks.extend(told.map(Remark::warning));
    }
    let Some(text) = text_of(&request.command, &folders(request)) else { return };
    if let Some(arg) = &mut request.options.local_rank_arg {
        pasted_request::spell(arg, &text);
    }
    // torchrun and a kind's own mpirun start hvtui's shims
    let delegate = request.options.delegate.as_ref();
    let by_line = delegate.is_some_and(|launcher| kind == JobKind::Horovod || !launcher.line.is_empty());
    let by = if by_line { StartedBy::Line } else { StartedBy::Us };
    let told = suspect::suspect(&text, &request.command, (kind, by), ranks);
    request.remarks.extend(told.map(Remark::warning));
}

/// How many ranks there are, and at most how many of them on one host; where a number is left to the hosts, two or more.
fn ranks(place: &PlacementSpec, gpus_per_rank: u32) -> (u32, u32) {
    match place {
        PlacementSpec::Count(count) => {
            let count = count.unwrap_or(2);
            (count, count)
        }
        PlacementSpec::Hosts { hosts, np } => {
            let slots = |n: &u32| if matches!(*n, ALL_SLOTS | FREE_SLOTS) { np.unwrap_or(2) } else { *n };
            let all = hosts.iter().fold(0_u32, |sum, (_, n)| sum.saturating_add(slots(n)));
            let most = hosts.iter().map(|(_, n)| slots(n)).max().unwrap_or(0);
            let np = np.unwrap_or(all);
            (np, most.min(np))
        }
        PlacementSpec::Nodes { nodes, each } => {
            let each = each.unwrap_or(2);
            (nodes.saturating_mul(each), each)
        }
        PlacementSpec::Free { ranks, per_host, .. } => (*ranks, per_host.unwrap_or(*ranks)),
        PlacementSpec::Picks(picks) => {
            let on = |host: &HostId| picks.iter().filter(|pick| pick.host == *host).count() as u32;
            let most = picks.iter().map(|pick| on(&pick.host)).max().unwrap_or(0);
            let each = gpus_per_rank.max(1);
            (picks.len() as u32 / each, most / each)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::options::LocalRankArg;

    #[test]
    fn ranks_on_a_host_are_counted_by_how_they_are_asked_for() {
        use crate::domain::filter::Filter;
        use crate::launch::request::{Pick, SlotName};
        let hosts = |counts: &[u32], np| PlacementSpec::Hosts {
            hosts: counts.iter().zip(["a", "b"]).map(|(n, host)| (HostId::from(host), *n)).collect(),
            np,
        };
        let picks = |count| {
            let pick = |host: &str, n| Pick { host: HostId::from(host), slot: SlotName::Index(n) };
            PlacementSpec::Picks((0..count).flat_map(|n| [pick("a", n), pick("b", n)]).collect())
        };
        let nodes = |each| PlacementSpec::Nodes { nodes: 2, each };
        assert_eq!(ranks(&hosts(&[1, 1], None), 1), (2, 1));
        assert_eq!(ranks(&hosts(&[2, 1], None), 1), (3, 2));
        // `mpirun -np 4 -H a,b`: the hosts have as many slots as they have
        assert_eq!(ranks(&hosts(&[ALL_SLOTS, ALL_SLOTS], Some(4)), 1), (4, 4));
        assert_eq!(ranks(&hosts(&[FREE_SLOTS], None), 1), (2, 2));
        assert_eq!((ranks(&nodes(Some(1)), 1), ranks(&nodes(None), 1)), ((2, 1), (4, 2)));
        // GPUs are picked, of which a rank may have several
        assert_eq!((ranks(&picks(4), 4), ranks(&picks(4), 1)), ((2, 1), (8, 4)));
        let free = |per_host| PlacementSpec::Free { ranks: 4, per_host, filter: Filter::default() };
        assert_eq!((ranks(&free(Some(1)), 1), ranks(&free(None), 1)), ((4, 1), (4, 4)));
    }

    #[test]
    fn a_script_tells_what_it_is_made_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.py").display().to_string();
        let mut request = LaunchRequest {
            place: PlacementSpec::Count(Some(2)),
            ..LaunchRequest::of(vec!["python".to_owned(), path.clone()])
        };
        look(&mut request);
        assert!(request.remarks.is_empty(), "there is no script to look at");
        std::fs::write(&path, "import horovod.torch as hvd\np.add_argument('--local-rank')\n").unwrap();
        request.options.local_rank_arg = Some(LocalRankArg { at: 2, option: "--local_rank".to_owned() });
        look(&mut request);
        assert!(request.remarks[0].contains("`--kind horovod` is meant"), "{:?}", request.remarks);
        assert_eq!(request.options.local_rank_arg.unwrap().option, "--local-rank");
    }

    #[test]
    fn a_shell_script_with_a_launcher_is_told_to_several_ranks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("train.sh"), "#!/bin/sh\ntorchrun --nproc_per_node=2 t.py\n").unwrap();
        let told = |line: &str, ranks| {
            let command = line.split(' ').map(str::to_owned).collect();
            let mut request = LaunchRequest {
                place: PlacementSpec::Count(Some(ranks)),
                workdir: Some(dir.path().display().to_string()),
                ..LaunchRequest::of(command)
            };
            look(&mut request);
            request.remarks.iter().any(|remark| remark.starts_with("train.sh starts `torchrun`"))
        };
        for line in ["./train.sh", "bash train.sh", "bash -e train.sh x", "nice sh ./train.sh"] {
            assert!(told(line, 2), "{line}");
            assert!(!told(line, 1), "{line}");
        }
        assert!(!told("bash -c train.sh", 2) && !told("cat train.sh", 2));
    }

    #[test]
    fn a_script_is_looked_for_where_the_ranks_start() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("spawns.py"),
            "import torch.multiprocessing as mp\nimport torch\nmp.spawn(f)\n",
        )
        .unwrap();
        let mut request = LaunchRequest {
            place: PlacementSpec::Count(Some(2)),
            ..LaunchRequest::of(vec!["python".to_owned(), "spawns.py".to_owned()])
        };
        look(&mut request);
        assert!(request.remarks.is_empty(), "it is not in the current folder");
        request.workdir = Some(dir.path().display().to_string());
        look(&mut request);
        assert!(request.remarks.iter().any(|remark| remark.contains("--nproc-per-node 1")), "{request:?}");
    }
}
