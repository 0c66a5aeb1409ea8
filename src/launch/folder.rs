//! `--sync DIR[:REMOTE]` as it is written: which folder goes where. Pure.

use super::names::is_workdir;
use crate::domain::sync::SyncPlan;

/// A folder that is written wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FolderFault {
    /// Nothing before the colon.
    #[error("name a folder: DIR or DIR:PATH")]
    NoFolder,
    /// A place on the hosts that could be several.
    #[error("the folder on the hosts must be an absolute path, or begin with ~/")]
    Remote,
    /// All of a machine, or of a user.
    #[error("this would replace a whole home or root folder: name a folder in it (DIR:PATH)")]
    Whole,
}

/// Reads `--sync DIR[:REMOTE]` as [`folder`] does; a fault names the option.
pub fn sync_plan(text: &str, delete: bool, cwd: &str, home: &str) -> Result<SyncPlan, String> {
    folder(text, delete, cwd, home).map_err(|fault| format!("--sync {text}: {fault}"))
}

/// Reads `DIR[:REMOTE]`. `DIR` counts from `cwd`; without `REMOTE` the folder has the same path on the hosts, from the home
/// folder on where it is below `home`.
pub fn folder(text: &str, delete: bool, cwd: &str, home: &str) -> Result<SyncPlan, FolderFault> {
    let (dir, remote) = match text.rsplit_once(':') {
        Some((dir, remote)) => (dir, Some(remote)),
        None => (text, None),
    };
    if dir.is_empty() {
        return Err(FolderFault::NoFolder);
    }
    let dir = whole(dir, cwd, home);
    let remote = match remote {
        Some(remote) if is_workdir(remote) => trimmed(remote),
        Some(_) => return Err(FolderFault::Remote),
        None => default_remote(&dir, home),
    };
    if matches!(remote.as_str(), "/" | "~") {
        return Err(FolderFault::Whole);
    }
    Ok(SyncPlan { dir, remote, delete })
}

/// A plan as [`folder`] reads it: the shortest text that does not count from the current folder.
pub fn folder_text(plan: &SyncPlan, home: &str) -> String {
    let short = default_remote(&plan.dir, home);
    let texts = [
        short.clone(),
        plan.dir.clone(),
        format!("{short}:{}", plan.remote),
        format!("{}:{}", plan.dir, plan.remote),
    ];
    let is_it = |text: &&String| folder(text, plan.delete, "/", home).as_ref() == Ok(plan);
    // what can't be copied from here stays as it was written
    texts.iter().find(is_it).unwrap_or(&plan.dir).clone()
}

/// The same path, from the home folder on where it is below it.
fn default_remote(dir: &str, home: &str) -> String {
    let home = home.trim_end_matches('/');
    match dir.strip_prefix(home) {
        Some("") => "~".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("~{rest}"),
        _ => dir.to_owned(),
    }
}

fn trimmed(path: &str) -> String {
    let path = path.trim_end_matches('/');
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

/// An absolute path without `.` and `..`.
fn whole(dir: &str, cwd: &str, home: &str) -> String {
    let from_home = dir.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = match from_home {
        Some(rest) => format!("{home}/{rest}"),
        None if dir.starts_with('/') => dir.to_owned(),
        None => format!("{cwd}/{dir}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<(String, String), String> {
        sync_plan(text, false, "/home/a/proj", "/home/a").map(|plan| (plan.dir, plan.remote))
    }

    fn both(dir: &str, remote: &str) -> (String, String) {
        (dir.to_owned(), remote.to_owned())
    }

    #[test]
    fn a_folder_keeps_its_path() {
        assert_eq!(plan(".").unwrap(), both("/home/a/proj", "~/proj"));
        assert_eq!(plan("sub/../src/").unwrap(), both("/home/a/proj/src", "~/proj/src"));
        assert_eq!(plan("~/x").unwrap(), both("/home/a/x", "~/x"));
        assert_eq!(plan("/srv/x").unwrap(), both("/srv/x", "/srv/x"));
        assert_eq!(plan("/home/ab").unwrap(), both("/home/ab", "/home/ab"));
        assert_eq!(plan(".:/data/p/").unwrap(), both("/home/a/proj", "/data/p"));
        assert_eq!(plan("..:~/all").unwrap(), both("/home/a", "~/all"));
        for bad in ["", ":~/x", ".:x", ".:", "~", "/", ".:/", ".:~", ".:~/"] {
            assert!(plan(bad).is_err(), "{bad}");
        }
        assert_eq!(plan(":x").unwrap_err(), "--sync :x: name a folder: DIR or DIR:PATH");
    }

    #[test]
    fn a_plan_is_written_as_it_is_read() {
        let home = "/home/a";
        for (text, expected) in [
            (".", "~/proj"),
            ("..:~/all", "~:~/all"),
            (".:/data/p", "~/proj:/data/p"),
            ("/srv/x", "/srv/x"),
            ("/srv/x:~/y", "/srv/x:~/y"),
            ("/srv/a:b:/data", "/srv/a:b:/data"),
        ] {
            let plan = folder(text, true, "/home/a/proj", home).unwrap();
            assert_eq!(folder_text(&plan, home), expected);
            assert_eq!(folder(expected, true, "/", home), Ok(plan));
        }
        let nowhere = SyncPlan { dir: "~".to_owned(), remote: "~".to_owned(), delete: false };
        assert_eq!(folder_text(&nowhere, home), "~");
    }
}
