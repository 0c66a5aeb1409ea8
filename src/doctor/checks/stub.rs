//! Whether the loader would take the stub of the driver's library, which has no GPU behind it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use super::libraries;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Stub;

const LIBRARY: &str = "libcuda.so.1";
const PATH: &str = "LD_LIBRARY_PATH";

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// The library that programs would load first; absent where there is none.
    first: Option<String>,
    /// Whether that is a stub.
    is_stub: bool,
    /// Where it is named: `LD_LIBRARY_PATH`, that of a login shell, or the loader's cache.
    by: String,
}

impl Check for Stub {
    const NAME: &'static str = "stub";
    const ASKS: &'static str = "is libcuda.so.1 the driver's own, not the toolkit's stub";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let own = std::env::var(PATH).ok();
        let login = site.of_login_too(PATH).filter(|login| Some(login) != own.as_ref());
        let mut found = Found { first: None, is_stub: false, by: String::new() };
        for (path, by) in [(own, PATH), (login, "LD_LIBRARY_PATH of a login shell")] {
            let path = path.unwrap_or_default();
            let files = path
                .split(':')
                .filter(|folder| !folder.is_empty())
                .map(|folder| Path::new(folder).join(LIBRARY));
            if let Some(file) = files.into_iter().find(|file| file.exists()) {
                let is_stub = is_stub(&file);
                if found.first.is_none() || is_stub {
                    found = Found { first: Some(file.display().to_string()), is_stub, by: by.to_owned() };
                }
            }
        }
        if found.first.is_none()
            && let Some(file) =
                libraries::cached(site)?.into_iter().find(|(name, _)| name == LIBRARY).map(|(_, file)| file)
        {
            let is_stub = is_stub(Path::new(&file));
            found = Found { first: Some(file), is_stub, by: "the loader's cache (ldconfig)".to_owned() };
        }
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

fn is_stub(file: &Path) -> bool {
    let real = std::fs::canonicalize(file).unwrap_or_default();
    [file, &real].into_iter().any(|path| path.components().any(|part| part.as_os_str() == "stubs"))
}

fn judge(found: &Found) -> Verdict {
    let Some(first) = &found.first else { return Verdict::unknown("no libcuda.so.1") };
    let (first, by) = (first, &found.by);
    if !found.is_stub {
        return Verdict::good(first);
    }
    let remedy = if by.starts_with(PATH) {
        "take the stubs folder out of LD_LIBRARY_PATH: it is for linking alone"
    } else {
        "take the stubs folder out of /etc/ld.so.conf.d, then: sudo ldconfig"
    };
    let verdict = Verdict::bad(
        format!("{first}, named by {by}, is the toolkit's stub"),
        "programs find no GPU, or end with \"CUDA driver is a stub library\"",
        remedy,
    );
    match unnamed(first).filter(|_| !by.starts_with(PATH)) {
        Some(command) => verdict.fixed_there(command),
        None => verdict,
    }
}

/// The command by which the loader's cache forgets the folder of a file.
fn unnamed(file: &str) -> Option<String> {
    let (folder, _) = file.rsplit_once('/')?;
    // nothing of it has a meaning of its own to the shell or to sed, but for dots
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let is_safe = folder.starts_with('/') && folder.ends_with("/stubs") && folder.chars().all(is_plain);
    let folder = folder.replace('.', "\\.");
    is_safe.then(|| {
        // of files that do not name it nothing is written anew
        let line = format!("^{folder}/*[[:space:]]*$");
        format!(
            "grep -ls '{line}' /etc/ld.so.conf.d/*.conf | xargs -r sudo sed -i --follow-symlinks '\\#{line}#d'; sudo ldconfig"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_known_by_its_folder_also_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let stubs = folder.path().join("lib64/stubs");
        std::fs::create_dir_all(&stubs).unwrap();
        std::fs::write(stubs.join("libcuda.so"), "").unwrap();
        std::os::unix::fs::symlink(stubs.join("libcuda.so"), folder.path().join(LIBRARY)).unwrap();
        assert!(is_stub(&folder.path().join(LIBRARY)));
        std::fs::write(folder.path().join("real"), "").unwrap();
        assert!(!is_stub(&folder.path().join("real")));
        let found = |is_stub| Found { first: Some("/x/libcuda.so.1".into()), is_stub, by: PATH.into() };
        assert!(judge(&found(true)).is_trouble() && !judge(&found(false)).is_trouble());
        assert_eq!(judge(&found(true)).fix, None);
        let cached = Found { by: "the loader's cache (ldconfig)".into(), ..found(true) };
        let named = Found { first: Some("/usr/local/cuda-12.4/lib64/stubs/libcuda.so.1".into()), ..cached };
        let command = r"grep -ls '^/usr/local/cuda-12\.4/lib64/stubs/*[[:space:]]*$' /etc/ld.so.conf.d/*.conf | xargs -r sudo sed -i --follow-symlinks '\#^/usr/local/cuda-12\.4/lib64/stubs/*[[:space:]]*$#d'; sudo ldconfig";
        assert_eq!(judge(&named).help().as_deref(), Some(command));
        assert_eq!(unnamed("/x'; rm -rf ~ #/stubs/libcuda.so.1"), None);
    }
}
