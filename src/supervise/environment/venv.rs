//! Virtual environments: what their `activate` does, without a shell.

use std::path::Path;

use super::error::EnvironmentError;
use super::{Variables, person_path, prepend, without};

/// Enters the virtual environment in this folder.
pub(super) fn enter(text: &str, now: &mut Variables, cwd: &Path) -> Result<(), EnvironmentError> {
    let path = person_path(text, cwd);
    check(text, &path).map_err(|fault| EnvironmentError::NoVenv { path: path.clone(), fault })?;
    // Another one, of a login shell: its programs would be found behind.
    if let Some(old) = now.get("VIRTUAL_ENV").map(|old| Path::new(old).join("bin")) {
        without(now, "PATH", &old);
    }
    prepend(now, "PATH", &path.join("bin"));
    now.insert("VIRTUAL_ENV".to_owned(), path.display().to_string());
    now.remove("PYTHONHOME");
    Ok(())
}

/// What is wrong with the folder, and the remedy.
fn check(text: &str, path: &Path) -> Result<(), String> {
    let make = format!("`python3 -m venv {}`", path.display());
    if !path.is_dir() {
        return Err(format!("there is no such folder: make it there by {make}"));
    }
    if path.join("conda-meta").is_dir() {
        return Err(format!("it is a conda environment: write --conda {text}"));
    }
    let python = path.join("bin/python");
    if python.is_file() && rustix::fs::access(&python, rustix::fs::Access::EXEC_OK).is_ok() {
        return Ok(());
    }
    match std::fs::read_link(&python) {
        // the Python that made it was removed, or is another one there
        Ok(target) => Err(format!(
            "its bin/python leads to {}, which is not there: make it anew by {make}",
            target.display()
        )),
        Err(_) => Err(format!("it has no bin/python: make it there by {make}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entering_one_leaves_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("v");
        std::fs::create_dir_all(at.join("bin")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", at.join("bin/python")).unwrap();
        let mut now = Variables::from([
            ("PATH".to_owned(), "/old/bin:/usr/bin".to_owned()),
            ("VIRTUAL_ENV".to_owned(), "/old".to_owned()),
            ("PYTHONHOME".to_owned(), "/x".to_owned()),
        ]);
        enter("v", &mut now, folder.path()).unwrap();
        let bin = at.join("bin").display().to_string();
        assert_eq!(now.get("PATH"), Some(&format!("{bin}:/usr/bin")));
        assert_eq!((now.get("VIRTUAL_ENV"), now.get("PYTHONHOME")), (Some(&at.display().to_string()), None));
        let fault = enter("none", &mut now, folder.path()).unwrap_err().to_string();
        assert!(fault.contains("there is no such folder: make it there by `python3 -m venv "), "{fault}");
    }
}
