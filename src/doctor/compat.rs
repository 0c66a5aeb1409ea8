//! The toolkit's libraries for forward compatibility (`cuda/compat`): with one of them an older driver serves a newer CUDA, on the
//! GPUs of data centres. Each is tried before it is proposed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::compare::numbers;
use super::shell_word;
use super::site::Site;

/// Where the toolkits put them.
const PLACES: [&str; 3] =
    ["/usr/local/cuda-*/compat", "/usr/local/cuda/compat", "/usr/lib/x86_64-linux-gnu/nvidia/cuda/compat"];
/// So many are tried, the newest first: each starts the driver anew.
const MOST: usize = 2;
/// The driver's own version.
const DRIVER: &str = "/sys/module/nvidia/version";

/// Starts the driver's library as the loader finds it then, and asks it for the CUDA that it serves.
const SCRIPT: &str = "import ctypes
cuda = ctypes.CDLL('libcuda.so.1')
version = ctypes.c_int()
print('hvtui %d %d %d' % (cuda.cuInit(0), cuda.cuDriverGetVersion(ctypes.byref(version)), version.value))";

/// One that starts on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compat {
    folder: String,
    /// The CUDA that it serves: `12.4`.
    serves: String,
}

impl Compat {
    /// The one that serves the newest CUDA, of those that start here.
    pub(super) fn look(site: &Site) -> Option<Self> {
        let driver = std::fs::read_to_string(DRIVER).ok().and_then(|version| numbers(&version));
        let found = PLACES.iter().filter_map(|pattern| glob::glob(pattern).ok()).flatten().flatten();
        let found: BTreeSet<PathBuf> = found.filter_map(|folder| folder.canonicalize().ok()).collect();
        let found = found.into_iter().filter(|folder| folder.join("libcuda.so.1").exists());
        let mut folders: Vec<(Option<(u32, u32)>, PathBuf)> =
            found.map(|folder| (version(&folder), folder)).collect();
        folders.retain(|(own, _)| own.is_none() || driver.is_none() || *own > driver);
        folders.sort();
        let all = folders.iter().rev().take(MOST).filter_map(|(_, folder)| Self::tried(site, folder));
        all.max_by_key(|one| numbers(&one.serves))
    }

    fn tried(site: &Site, folder: &Path) -> Option<Self> {
        let python = site.program("python3").or_else(|| site.program("python"))?;
        let folder = folder.to_str()?;
        let setting = format!("LD_LIBRARY_PATH={folder}");
        let env = site.program("env").unwrap_or_else(|| "/usr/bin/env".into());
        let told = site.ask(&env, &[&setting, &python.to_string_lossy(), "-c", SCRIPT]).ok()?;
        let line = told.out.lines().find_map(|line| line.strip_prefix("hvtui "))?;
        let serves = served(line)?;
        Some(Self { folder: folder.to_owned(), serves })
    }

    /// What helps where this CUDA is wanted, and the driver is too old for it.
    pub(super) fn words(&self, wanted: &str) -> Option<String> {
        let serves = |version: &str| numbers(version).map(|(major, _)| major);
        (serves(&self.serves)? >= serves(wanted)?).then(|| {
            let Self { folder, serves } = self;
            let folder = shell_word(folder);
            format!("hvtui run --env LD_LIBRARY_PATH={folder}: with it the driver there starts, and serves CUDA {serves}")
        })
    }
}

/// The driver that its library is of: of `libcuda.so.550.54.15`.
fn version(folder: &Path) -> Option<(u32, u32)> {
    let library = folder.join("libcuda.so.1").canonicalize().ok()?;
    numbers(library.file_name()?.to_str()?.strip_prefix("libcuda.so.")?).filter(|version| version.0 > 1)
}

/// Of the script's answer: `cuInit`'s, `cuDriverGetVersion`'s, and the version in thousands.
fn served(line: &str) -> Option<String> {
    let numbers: Vec<u32> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match numbers[..] {
        [0, 0, version] if version >= 1000 => Some(format!("{}.{}", version / 1000, version % 1000 / 10)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_proposed_that_starts_and_is_new_enough() {
        assert_eq!(served("0 0 12040").as_deref(), Some("12.4"));
        assert_eq!(served("804 0 12040"), None, "this GPU takes none");
        assert_eq!(served("0 0 0"), None);
        let one = Compat { folder: "/usr/local/cuda-12.4/compat".to_owned(), serves: "12.4".to_owned() };
        assert!(one.words("12.1").unwrap().contains("--env LD_LIBRARY_PATH=/usr/local/cuda-12.4/compat: "));
        assert_eq!(one.words("13.0"), None);
    }
}
