//! Whether the loader would take the stub of one of the driver's libraries, which has no GPU behind it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site};
use super::libraries;
use crate::domain::doctor::Verdict;

pub(in crate::doctor) struct Stub;

const LIBRARY: &str = "libcuda.so.1";
/// By which nvidia-smi, NCCL and hvtui see GPUs. The toolkit has stubs of both.
const NVML: &str = "libnvidia-ml.so.1";
const PATH: &str = "LD_LIBRARY_PATH";
const OF_LOGIN: &str = "LD_LIBRARY_PATH of a login shell";
const OF_CACHE: &str = "the loader's cache (ldconfig)";

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
    const ASKS: &'static str =
        "are libcuda.so.1 and libnvidia-ml.so.1 the driver's own, not the toolkit's stubs";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(site: &Site) -> Result<Found, String> {
        let own = std::env::var(PATH).ok();
        let login = site.of_login_too(PATH).filter(|login| Some(login) != own.as_ref());
        let paths = [(own.unwrap_or_default(), PATH), (login.unwrap_or_default(), OF_LOGIN)];
        let cached = libraries::cached(site);
        let in_cache = cached.as_deref().unwrap_or_default();
        let (cuda, nvml) = (first(LIBRARY, &paths, in_cache), first(NVML, &paths, in_cache));
        match &cached {
            // that there is none is known by the cache
            Err(why) if cuda.first.is_none() && !nvml.is_stub => Err(why.clone()),
            _ => Ok(if nvml.is_stub && !cuda.is_stub { nvml } else { cuda }),
        }
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// The file of this name that programs would load, of those folders and what names each, then of the loader's cache. A stub of the
/// second counts before another file of the first.
fn first(name: &str, paths: &[(String, &str)], cached: &[(String, String)]) -> Found {
    let mut found = Found { first: None, is_stub: false, by: String::new() };
    for (path, by) in paths {
        let mut files =
            path.split(':').filter(|folder| !folder.is_empty()).map(|folder| Path::new(folder).join(name));
        if let Some(file) = files.find(|file| file.exists()) {
            let is_stub = is_stub(&file);
            if found.first.is_none() || is_stub {
                found = Found { first: Some(file.display().to_string()), is_stub, by: (*by).to_owned() };
            }
        }
    }
    if found.first.is_none()
        && let Some((_, file)) = cached.iter().find(|(one, _)| one == name)
    {
        let is_stub = is_stub(Path::new(file));
        found = Found { first: Some(file.clone()), is_stub, by: OF_CACHE.to_owned() };
    }
    found
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
    let seen = format!("{first}, named by {by}, is the toolkit's stub");
    let verdict = if first.ends_with(NVML) {
        let cause = "nvidia-smi, hvtui and NCCL find no GPU, or say that a stub library is loaded";
        // CUDA itself does without
        Verdict::bad(seen, cause, remedy).may_run()
    } else {
        let cause = "programs find no GPU, or end with \"CUDA driver is a stub library\"";
        Verdict::bad(seen, cause, remedy)
    };
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
        let cached = Found { by: OF_CACHE.into(), ..found(true) };
        let named = Found { first: Some("/usr/local/cuda-12.4/lib64/stubs/libcuda.so.1".into()), ..cached };
        let command = r"grep -ls '^/usr/local/cuda-12\.4/lib64/stubs/*[[:space:]]*$' /etc/ld.so.conf.d/*.conf | xargs -r sudo sed -i --follow-symlinks '\#^/usr/local/cuda-12\.4/lib64/stubs/*[[:space:]]*$#d'; sudo ldconfig";
        assert_eq!(judge(&named).help().as_deref(), Some(command));
        assert_eq!(unnamed("/x'; rm -rf ~ #/stubs/libcuda.so.1"), None);
    }

    #[test]
    fn the_first_file_of_a_name_counts_and_a_stub_of_nvml_too() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file.display().to_string()
        };
        let (stub, real) = (file("cuda/lib64/stubs/libnvidia-ml.so.1"), file("driver/libnvidia-ml.so.1"));
        let at = |folder: &str| root.path().join(folder).display().to_string();
        let (stubs, driver) = (at("cuda/lib64/stubs"), at("driver"));
        let cache =
            [("libcuda.so.1".to_owned(), "/x/libcuda.so.1".to_owned()), (NVML.to_owned(), real.clone())];
        let of = |own: &str, login: &str| {
            first(NVML, &[(own.to_owned(), PATH), (login.to_owned(), OF_LOGIN)], &cache)
        };
        let named = of(&format!("{stubs}:{driver}"), "");
        assert_eq!((named.first.as_deref(), named.is_stub), (Some(stub.as_str()), true));
        let told = judge(&named);
        assert!(told.is_trouble() && !told.stops_launch() && told.fix.is_none(), "{told:?}");
        assert!(told.cause.unwrap().starts_with("nvidia-smi, hvtui and NCCL"));
        let behind = of(&format!("{driver}:{stubs}"), "");
        assert_eq!((behind.first.as_deref(), behind.is_stub), (Some(real.as_str()), false));
        assert_eq!(of(&driver, &stubs).by, OF_LOGIN, "that of a login shell is worse");
        let cached = of("", "");
        assert_eq!((cached.first.as_deref(), cached.by.as_str()), (Some(real.as_str()), OF_CACHE));
        assert_eq!(first("libx.so.1", &[], &cache).first, None);
    }
}
