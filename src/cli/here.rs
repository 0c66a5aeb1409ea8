//! What the current folder means for a launch: a relative working directory, a script that lies here alone.

use std::path::{Component, Path, PathBuf};

use super::errors::Failure;
use crate::config::HostConfig;
use crate::launch::request::LaunchRequest;
use crate::launcher::{code, script};

/// `.`, `./x` and `../x` count from the current folder; everything else is a path on the hosts.
pub(super) fn from_here(workdir: &str) -> Result<String, Failure> {
    let Some(first) = Path::new(workdir).components().next().filter(|_| workdir.starts_with('.')) else {
        return Ok(workdir.to_owned());
    };
    if !matches!(first, Component::CurDir | Component::ParentDir) {
        return Ok(workdir.to_owned());
    }
    let here = logical_folder()
        .map_err(|error| Failure::usage(format!("--workdir {workdir}: the current folder: {error}")))?;
    let mut folder = here;
    for part in Path::new(workdir).components() {
        match part {
            Component::ParentDir => drop(folder.pop()),
            Component::Normal(name) => folder.push(name),
            _ => {}
        }
    }
    Ok(folder.display().to_string())
}

/// The current folder by the name that the shell has for it: hosts that share it know no other.
fn logical_folder() -> std::io::Result<PathBuf> {
    let real = std::env::current_dir()?;
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
    let same = |path: &PathBuf| std::fs::canonicalize(path).is_ok_and(|path| path == real);
    Ok(named.filter(same).unwrap_or(real))
}

/// A script, or a program by its path, that lies in the current folder, while its ranks start in the home folder of their hosts.
pub(super) fn lies_here(request: &LaunchRequest, hosts: &[HostConfig]) -> Option<String> {
    let chosen = code::chosen(&request.place.named(), hosts);
    let begins_at_home = request.workdir.is_none()
        && chosen.iter().all(|host| host.workdir.is_none())
        && chosen.iter().any(|host| !host.is_local());
    let program = || request.command.first().filter(|word| word.contains('/')).map(Path::new);
    let named = script::path_of(&request.command).or_else(program);
    let script = named.filter(|path| begins_at_home && path.is_relative())?;
    let here = logical_folder().ok()?;
    let home = std::env::home_dir()?;
    (here.join(script).is_file() && !home.join(script).exists()).then(|| {
        format!(
            "{} is in {here}; ranks start in the home folder of each host: --workdir . where the hosts share {here}, \
             --sync . to copy it there.",
            script.display(),
            here = here.display()
        )
    })
}
