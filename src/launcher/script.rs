//! The Python script of a launch, where it is on this machine too: its text tells whether the kind suits it. The one
//! place that reads scripts, for the command line and the screens alike.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::config::HostConfig;
use crate::domain::run::JobKind;
use crate::launch::request::{LaunchRequest, PlacementSpec};
use crate::launch::suspect::{self, StartedBy};
use crate::launch::{name, pasted_request};

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
    let path = path_of(command)?;
    let below = folders.iter().map(|folder| folder.join(path));
    let file = below.chain([path.to_owned()]).find_map(|path| std::fs::File::open(path).ok())?;
    let mut text = Vec::new();
    file.take(SCRIPT).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The folder of this machine that holds the code of a launch to `hosts`, as far as its paths tell: that of the script, the
/// folder in which ranks start, and where all of them are on this machine `cwd`. Other hosts begin in the user's home
/// folder: nothing of theirs is known here.
pub fn code_folder(request: &LaunchRequest, hosts: &[&HostConfig], cwd: &Path) -> Option<PathBuf> {
    let shared = || {
        let first = hosts.first()?.workdir.as_deref()?;
        hosts.iter().all(|host| host.workdir.as_deref() == Some(first)).then_some(first)
    };
    let is_here = !hosts.is_empty() && hosts.iter().all(|host| host.is_local());
    let folder = match request.workdir.as_deref().or_else(shared) {
        Some(folder) => Some(if is_here { cwd.join(here(folder)?) } else { here(folder)? }),
        None => is_here.then(|| cwd.to_owned()),
    };
    let folder = folder.filter(|folder| folder.is_absolute());
    let Some(script) = path_of(&request.command) else { return folder };
    let script = folder.map_or_else(|| script.to_owned(), |folder| folder.join(script));
    script.is_absolute().then(|| script.parent().map(Path::to_owned)).flatten()
}

/// `~` is the user's home folder.
fn here(folder: &str) -> Option<PathBuf> {
    match folder.strip_prefix('~') {
        Some(rest) => std::env::home_dir().map(|home| home.join(rest.trim_start_matches('/'))),
        None => Some(PathBuf::from(folder)),
    }
}

/// Where on this machine the files of a launch are: the folder that is copied, and the one of that name in which its ranks start.
fn folders(request: &LaunchRequest) -> Vec<PathBuf> {
    let copied = request.options.sync.as_ref().map(|plan| plan.dir.as_str());
    copied.into_iter().chain(request.workdir.as_deref()).filter_map(here).collect()
}

/// Looks at a launch's script: says where its framework and the kind do not fit, and spells the argument with the local
/// rank as the script does.
pub fn look(request: &mut LaunchRequest) {
    let kind = request.kind.unwrap_or_else(|| name::kind_of(&request.command));
    if kind == JobKind::Native {
        return;
    }
    let Some(text) = text_of(&request.command, &folders(request)) else { return };
    if let Some(arg) = &mut request.options.local_rank_arg {
        pasted_request::spell(arg, &text);
    }
    let ranks = match &request.place {
        PlacementSpec::Count(count) => count.unwrap_or(2),
        PlacementSpec::Hosts { hosts, np } => {
            np.unwrap_or_else(|| hosts.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n)))
        }
        PlacementSpec::Nodes { nodes, each } => nodes.saturating_mul(each.unwrap_or(2)),
        PlacementSpec::Free { ranks, .. } => *ranks,
        PlacementSpec::Picks(picks) => picks.len() as u32,
    };
    // torchrun and a kind's own mpirun start hvtui's shims
    let delegate = request.options.delegate.as_ref();
    let by_line = delegate.is_some_and(|launcher| kind == JobKind::Horovod || !launcher.line.is_empty());
    let by = if by_line { StartedBy::Line } else { StartedBy::Us };
    request.remarks.extend(suspect::suspect(&text, &request.command, (kind, by), ranks));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Address;
    use crate::domain::options::LocalRankArg;

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
    fn the_code_is_where_the_script_lies_or_the_ranks_start() {
        let local = HostConfig::this_machine();
        let remote = HostConfig { address: Address::Ssh("gpu-a".to_owned()), ..HostConfig::this_machine() };
        let set = HostConfig { workdir: Some("/data/proj".to_owned()), ..remote.clone() };
        let folder = |hosts: &[&HostConfig], workdir: Option<&str>, command: &str| {
            let words = command.split(' ').map(str::to_owned).collect();
            let request = LaunchRequest { workdir: workdir.map(str::to_owned), ..LaunchRequest::of(words) };
            let folder = code_folder(&request, hosts, Path::new("/here"));
            folder.map(|folder| folder.display().to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(folder(&[&local], None, "python t.py"), some("/here"));
        assert_eq!(folder(&[&local], Some("w"), "python sub/t.py"), some("/here/w/sub"));
        assert_eq!(folder(&[&remote], None, "python t.py"), None, "they begin at home there");
        assert_eq!(folder(&[&local, &remote], None, "python /p/t.py"), some("/p"));
        assert_eq!(folder(&[&remote], Some("/w"), "python t.py"), some("/w"));
        assert_eq!(folder(&[&set, &set], None, "./train"), some("/data/proj"));
        assert_eq!(folder(&[&set, &remote], None, "./train"), None);
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
        assert!(
            request.remarks.iter().any(|remark| remark.contains("-np 1 --gpus-per-rank 2")),
            "{request:?}"
        );
    }
}
