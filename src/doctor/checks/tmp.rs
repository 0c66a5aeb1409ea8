//! Whether temporary files can be written and started: launchers and compilers of kernels do both. And whether what lies at home can
//! be started: environments, and the caches of those compilers.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use super::super::{Check, OfImage, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::text::os_text;
use crate::program::home;

pub(in crate::doctor) struct Tmp;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    folder: String,
    /// Why nothing can be written there.
    unwritable: Option<String>,
    /// The kind of it, where another remedy than the folder's rights helps.
    #[serde(default)]
    fault: Option<Fault>,
    /// Whether the folder is that of `TMPDIR`.
    #[serde(default)]
    is_named: bool,
    /// Whether it is mounted so that nothing can be started there.
    noexec: bool,
    /// The home folder, if it is mounted so.
    #[serde(default)]
    noexec_home: Option<String>,
    /// Open MPI's folder there, if it is another user's.
    foreign: Option<String>,
}

/// Why a folder can't be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    Absent,
    NoFolder,
    Full,
    NoInode,
    Quota,
    ReadOnly,
}

impl Fault {
    fn of(error: &std::io::Error, folder: &Path) -> Option<Self> {
        let has_inodes =
            || rustix::fs::statvfs(folder).map_or(true, |stat| stat.f_files == 0 || stat.f_favail > 0);
        match error.kind() {
            ErrorKind::NotFound => Some(Self::Absent),
            ErrorKind::NotADirectory => Some(Self::NoFolder),
            ErrorKind::StorageFull if has_inodes() => Some(Self::Full),
            ErrorKind::StorageFull => Some(Self::NoInode),
            ErrorKind::QuotaExceeded => Some(Self::Quota),
            ErrorKind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

impl Check for Tmp {
    const NAME: &'static str = "tmp";
    const ASKS: &'static str = "can temporary files be written and started, and programs at home";
    const OF_IMAGE: OfImage = OfImage::Inside;
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let named = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
        let is_named = named.is_some();
        let folder = named.map_or_else(|| "/tmp".into(), PathBuf::from);
        let written = tempfile::Builder::new().prefix("hvtui-check.").tempfile_in(&folder);
        let written = written.and_then(|mut file| file.write_all(b"\n"));
        let noexec = |stat: StatVfs| stat.f_flag.contains(StatVfsMountFlags::NOEXEC);
        let is_noexec = |folder: &Path| rustix::fs::statvfs(folder).is_ok_and(noexec);
        let home = home();
        let mut found = Found {
            folder: folder.display().to_string(),
            fault: written.as_ref().err().and_then(|error| Fault::of(error, &folder)),
            is_named,
            unwritable: written.err().map(|error| os_text(&error)),
            noexec: is_noexec(&folder),
            noexec_home: is_noexec(&home).then(|| home.display().to_string()),
            foreign: None,
        };
        let uid = rustix::process::getuid().as_raw();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let short = name.split('.').next().unwrap_or_default();
        let of_mpi = folder.join(format!("ompi.{short}.{uid}"));
        let foreign = std::fs::symlink_metadata(&of_mpi).is_ok_and(|meta| meta.uid() != uid);
        found.foreign = foreign.then(|| of_mpi.display().to_string());
        Ok(found)
    }

    fn judge(seen: &[Seen<'_, Found>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

fn judge(found: &Found) -> Verdict {
    let folder = &found.folder;
    if let Some(why) = &found.unwritable {
        let cause = "mpirun, torch and many others end at once without a folder for temporary files";
        let at = shell_word(folder);
        let named = if found.is_named { "TMPDIR=" } else { "" };
        let other = "set TMPDIR to a folder of your own";
        let verdict =
            |remedy: String| Verdict::bad(format!("{named}{folder} can't be written: {why}"), cause, remedy);
        return match found.fault {
            Some(Fault::Absent) if found.is_named => {
                let command = format!("mkdir -p {at}");
                let remedy = format!(
                    "{command}   (or take TMPDIR out: grep -n TMPDIR ~/.bashrc ~/.profile /etc/environment shows where it is set)"
                );
                verdict(remedy).fixed_there(command)
            }
            Some(Fault::Absent) => {
                let command = format!("sudo mkdir -m 1777 {at}");
                verdict(command.clone()).fixed_there(command)
            }
            Some(Fault::NoFolder) => {
                verdict(format!("it is no folder: rm {at} && mkdir -m 1777 {at}, or {other}"))
            }
            Some(Fault::Full) => verdict(format!(
                "make room: du -xah {at} | sort -h | tail -20 shows what takes it; or {other} on another file system (df -h)"
            )),
            Some(Fault::NoInode) => verdict(format!(
                "delete small files: du -x --inodes {at} | sort -n | tail -20 shows where they are; or {other} on another file \
                 system (df -i)"
            )),
            Some(Fault::Quota) => {
                verdict(format!("your quota is used up (quota -s): delete files there, or {other} elsewhere"))
            }
            Some(Fault::ReadOnly) => verdict(format!(
                "it is mounted read-only: dmesg | tail shows whether its disk fails, findmnt -T {at} how it is mounted; or {other}"
            )),
            None => verdict(format!("sudo chmod 1777 {at}, or {other}")),
        };
    }
    if found.noexec {
        let cause =
            "what is unpacked there can't be started or loaded, such as compiled kernels and extensions";
        let remedy = "set TMPDIR to a folder that is not mounted noexec";
        return Verdict::look(format!("{folder} is mounted noexec"), cause, remedy);
    }
    if let Some(folder) = &found.foreign {
        let cause = "Open MPI ends at once: its session folder belongs to another user";
        let command = format!("sudo rm -r {}", shell_word(folder));
        return Verdict::bad(format!("{folder} is not yours"), cause, command.clone()).fixed_there(command);
    }
    if let Some(home) = &found.noexec_home {
        let at = shell_word(home);
        return Verdict::look(
            format!("{home}, the home folder, is mounted noexec"),
            "environments of Python there can't be started, nor what compilers of kernels keep there (~/.triton, ~/.cache) be loaded",
            format!(
                "findmnt -T {at} shows how it is mounted: take noexec out of /etc/fstab and mount it anew; or keep environments and caches \
                 elsewhere (XDG_CACHE_HOME, TRITON_CACHE_DIR, of hvtui cache_dir in the hosts file)"
            ),
        );
    }
    Verdict::good(format!("{folder} can be written"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn each_fault_of_the_folder_is_told() {
        let found = || Found {
            folder: "/tmp".into(),
            unwritable: None,
            fault: None,
            is_named: false,
            noexec: false,
            noexec_home: None,
            foreign: None,
        };
        assert_eq!(judge(&found()).mark, Mark::Good);
        assert_eq!(judge(&Found { unwritable: Some("denied".into()), ..found() }).mark, Mark::Bad);
        let remedy = |fault| {
            let found = Found { unwritable: Some("why".into()), fault, is_named: true, ..found() };
            judge(&found).remedy.unwrap()
        };
        assert!(remedy(None).starts_with("sudo chmod 1777 /tmp"));
        for fault in
            [Fault::Absent, Fault::NoFolder, Fault::Full, Fault::NoInode, Fault::Quota, Fault::ReadOnly]
        {
            assert!(!remedy(Some(fault)).contains("chmod"), "{fault:?}");
        }
        assert!(remedy(Some(Fault::Absent)).starts_with("mkdir -p /tmp "));
        assert!(remedy(Some(Fault::Full)).starts_with("make room: "));
        let noexec = judge(&Found { noexec: true, ..found() });
        assert_eq!((noexec.mark, noexec.evidence.as_str()), (Mark::Look, "/tmp is mounted noexec"));
        let home = || Found { noexec_home: Some("/home/li".into()), ..found() };
        let told = judge(&home());
        assert_eq!(
            (told.mark, told.evidence.as_str()),
            (Mark::Look, "/home/li, the home folder, is mounted noexec")
        );
        let foreign = |found: Found| Found { foreign: Some("/tmp/ompi.a.7".into()), ..found };
        assert_eq!(judge(&foreign(found())).mark, Mark::Bad);
        assert_eq!(judge(&foreign(home())).mark, Mark::Bad, "what ends a run counts first");
    }

    #[test]
    fn each_fault_is_known_by_the_kernels_number() {
        use rustix::io::Errno;
        let of = |error: Errno| Fault::of(&error.into(), Path::new("/no/such/folder"));
        assert_eq!(of(Errno::NOENT), Some(Fault::Absent));
        assert_eq!(of(Errno::NOTDIR), Some(Fault::NoFolder));
        assert_eq!(of(Errno::NOSPC), Some(Fault::Full));
        assert_eq!(of(Errno::DQUOT), Some(Fault::Quota));
        assert_eq!(of(Errno::ROFS), Some(Fault::ReadOnly));
        assert_eq!(of(Errno::ACCESS), None);
    }

    #[test]
    fn this_machine_can_write_there() {
        let found = Tmp::look(&crate::doctor::tests::site()).unwrap();
        assert_eq!((found.unwritable, found.noexec), (None, false));
    }
}
