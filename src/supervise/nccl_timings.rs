//! hvtui's profiler plugin in the NCCL of ranks: one shared library that `NCCL_PROFILER_PLUGIN` names. What it does is its
//! own alone (`assets/nccl/profiler.rs`, docs/decisions/nccl-timings.md); here it is put on the host and into a rank's
//! environment.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::rundir::RunDir;
use super::shipped::Shipped;
use super::variables::Variables;
use crate::domain::ids::Rank;

/// Its file, which is its `SONAME` too: where it is open already, the C library finds it by that.
const LIBRARY: &str = "libnccl-profiler-hvtui.so";
/// Compiled by `build.rs`; empty where that was not possible.
const CONTENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnccl-profiler-hvtui.so"));
const PLUGIN: Shipped = Shipped { name: "nccl", files: &[(LIBRARY, CONTENT)] };
/// The variable by which NCCL finds its profiler.
const VARIABLE: &str = "NCCL_PROFILER_PLUGIN";
/// The same path for hvtui's hooks in Python, which see to it that NCCL 2.27.3 finds the plugin: it takes no path.
const PATH: &str = "HVTUI_NCCL_PLUGIN";
const RANK: &str = "HVTUI_RANK";
/// The longest path that NCCL takes whole.
const MOST: usize = 254;

/// Puts the plugin on this host, where it is not there yet.
pub(super) fn install(dir: &RunDir) -> io::Result<()> {
    if CONTENT.is_empty() {
        return Err(io::Error::other("this hvtui was built without the plugin, which is for 64-bit Linux"));
    }
    PLUGIN.install(dir)?;
    let path = PLUGIN.find(dir).map(|folder| folder.join(LIBRARY));
    match path.filter(|path| path.as_os_str().len() > MOST) {
        Some(path) => {
            let path = path.display();
            Err(io::Error::other(format!("NCCL takes no path of more than {MOST} bytes, as {path} is")))
        }
        None => Ok(()),
    }
}

/// The folder of the plugin, where it is installed.
pub(super) fn folder(dir: &RunDir) -> Option<PathBuf> {
    PLUGIN.find(dir)
}

/// The variables that put the plugin into a rank's NCCL, or why there are none.
pub(super) fn variables(
    dir: &RunDir,
    rank: Rank,
    given: &Variables,
) -> Result<Vec<(&'static str, OsString)>, String> {
    if let Some(own) = given.get(VARIABLE).filter(|own| !own.is_empty()) {
        let own = own.to_string_lossy();
        return Err(format!("no NCCL timings: {VARIABLE}={own} is set already, and stays"));
    }
    // where it can't be installed the supervisor has said so
    let Some(folder) = PLUGIN.find(dir) else { return Ok(Vec::new()) };
    let path = folder.join(LIBRARY).into_os_string();
    let mut variables = vec![(VARIABLE, path.clone()), (PATH, path)];
    if !given.has(RANK) {
        variables.push((RANK, rank.to_string().into()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::domain::ids::{HostId, RunId};

    #[test]
    fn the_plugin_is_the_owner_s_alone_and_a_profiler_of_one_s_own_stays() {
        let state = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&state.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        assert_eq!(variables(&dir, Rank(3), &Variables::default()), Ok(Vec::new()), "not installed");
        let [_, own] = PLUGIN.places(&dir);
        PLUGIN.put(&own).unwrap();
        let file = own.join(LIBRARY);
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(own.clone()), mode(file.clone())), (0o700, 0o600));
        let told = |given: &[(&str, &str)]| variables(&dir, Rank(3), &given.iter().collect());
        let path = || file.clone().into_os_string();
        let both = vec![(VARIABLE, path()), (PATH, path())];
        assert_eq!(told(&[(RANK, "5"), (VARIABLE, "")]), Ok(both.clone()));
        assert_eq!(told(&[]), Ok([both, vec![(RANK, "3".into())]].concat()));
        let refused = told(&[(VARIABLE, "inspector")]).unwrap_err();
        assert_eq!(refused, "no NCCL timings: NCCL_PROFILER_PLUGIN=inspector is set already, and stays");
    }
}
