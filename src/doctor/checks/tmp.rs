//! Whether temporary files can be written and started: launchers and compilers of kernels do both.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{StatVfs, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::text::os_text;

pub(in crate::doctor) struct Tmp;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    folder: String,
    /// Why nothing can be written there.
    unwritable: Option<String>,
    /// Whether it is mounted so that nothing can be started there.
    noexec: bool,
    /// Open MPI's folder there, if it is another user's.
    foreign: Option<String>,
}

impl Check for Tmp {
    const NAME: &'static str = "tmp";
    const ASKS: &'static str = "can temporary files be written and started";
    type Found = Found;

    fn look(_: &Site) -> Result<Found, String> {
        let folder = std::env::var_os("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from);
        let written = tempfile::Builder::new().prefix("hvtui-check.").tempfile_in(&folder);
        let written = written.and_then(|mut file| file.write_all(b"\n"));
        let noexec = |stat: StatVfs| stat.f_flag.contains(StatVfsMountFlags::NOEXEC);
        let mut found = Found {
            folder: folder.display().to_string(),
            unwritable: written.err().map(|error| os_text(&error)),
            noexec: rustix::fs::statvfs(&folder).is_ok_and(noexec),
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
        let remedy = format!("sudo chmod 1777 {}, or set TMPDIR to a folder of your own", shell_word(folder));
        return Verdict::bad(format!("{folder} can't be written: {why}"), cause, remedy);
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
    Verdict::good(format!("{folder} can be written"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    #[test]
    fn each_fault_of_the_folder_is_told() {
        let found = || Found { folder: "/tmp".into(), unwritable: None, noexec: false, foreign: None };
        assert_eq!(judge(&found()).mark, Mark::Good);
        assert_eq!(judge(&Found { unwritable: Some("denied".into()), ..found() }).mark, Mark::Bad);
        assert_eq!(judge(&Found { noexec: true, ..found() }).mark, Mark::Look);
        assert_eq!(judge(&Found { foreign: Some("/tmp/ompi.a.7".into()), ..found() }).mark, Mark::Bad);
    }

    #[test]
    fn this_machine_can_write_there() {
        let found = Tmp::look(&crate::doctor::tests::site()).unwrap();
        assert_eq!((found.unwritable, found.noexec), (None, false));
    }
}
