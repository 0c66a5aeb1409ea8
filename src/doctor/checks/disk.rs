//! Whether there is room where runs write: home, the state folder, the folder for temporary files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::text::os_text;
use crate::domain::units;
use crate::program::home;

pub(in crate::doctor) struct Disk;

/// Less than this, and a checkpoint or a log fails.
const LEAST: u64 = 512 << 20;
/// Less than this is worth a look where it is little of the whole, too.
const LITTLE: u64 = 10 << 30;
const LITTLE_PERCENT: u64 = 5;
/// Fewer files than this that can still be made are worth a look: less than an environment of Python takes.
const FEW: u64 = 10_000;
/// An environment of a framework, or a data set of single files, takes about this many: fewer are worth a look where they are few of
/// the whole, too.
const USUAL: u64 = 100_000;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Place {
    path: String,
    total: u64,
    free: u64,
    /// Files that can still be made; absent where the file system does not count them.
    files_free: Option<u64>,
    /// With those that are there.
    #[serde(default)]
    files: Option<u64>,
    read_only: bool,
    /// Whether it is the folder of `TMPDIR`, and is not there.
    #[serde(default)]
    absent: bool,
    /// Why it tells nothing.
    #[serde(default)]
    fault: Option<String>,
}

impl Place {
    /// Of which nothing is known but its name.
    fn unknown(path: &Path) -> Self {
        Self {
            path: path.display().to_string(),
            total: 0,
            free: 0,
            files_free: None,
            files: None,
            read_only: false,
            absent: false,
            fault: None,
        }
    }

    fn of(path: &Path, stat: &StatVfs) -> Self {
        Self {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            files_free: (stat.f_files > 0).then_some(stat.f_favail),
            files: (stat.f_files > 0).then_some(stat.f_files),
            read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
            ..Self::unknown(path)
        }
    }
}

impl Check for Disk {
    const NAME: &'static str = "disk";
    const ASKS: &'static str = "is there room at home, in the state folder and for temporary files";
    type Found = Vec<Place>;

    fn look(site: &Site) -> Result<Vec<Place>, String> {
        let tmp = std::env::var_os("TMPDIR")
            .filter(|folder| !folder.is_empty())
            .map_or_else(|| "/tmp".into(), PathBuf::from);
        let mut seen = BTreeSet::new();
        let mut places = Vec::new();
        for path in [home(), existing(&site.state), tmp.clone()] {
            match rustix::fs::statvfs(&path) {
                Ok(stat) if seen.insert((stat.f_fsid, stat.f_blocks)) => places.push(Place::of(&path, &stat)),
                Ok(_) => {}
                Err(rustix::io::Errno::NOENT) if path == tmp => {
                    places.push(Place { absent: true, ..Place::unknown(&path) });
                }
                Err(error) => {
                    let fault = Some(os_text(&error.into()));
                    places.push(Place { fault, ..Place::unknown(&path) });
                }
            }
        }
        Ok(places)
    }

    fn judge(seen: &[Seen<'_, Vec<Place>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// The nearest folder above that is there.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(path).to_owned()
}

/// Of one of them.
fn judge_place(place: &Place) -> Verdict {
    let path = &place.path;
    let at = shell_word(path);
    if let Some(fault) = &place.fault {
        return Verdict::bad(
            format!("{path}: {fault}"),
            "nothing can be read or written there",
            format!(
                "ls -ld {at}; findmnt -T {at} shows what it lies on; what a file server has no more (stale) is to be taken away (sudo umount \
                 -l) and mounted again"
            ),
        )
        .may_run();
    }
    if place.absent {
        let command = format!("mkdir -p {at}");
        let cause = "programs that write temporary files end at once";
        return Verdict::look(
            format!("the folder for temporary files, {path}, is not there"),
            cause,
            command.clone(),
        )
        .fixed_there(command);
    }
    if place.read_only {
        let remedy = format!("sudo mount -o remount,rw {at}, after a look at `dmesg` for errors of the disk");
        return Verdict::bad(format!("{path} is read-only"), "nothing can be written there", remedy)
            .may_run();
    }
    let small = format!(
        "df -i {at}; delete small files: du -x --inodes {at} | sort -n | tail -20 shows where they are"
    );
    if place.files_free == Some(0) {
        let cause = "no file can be made there though there is room";
        return Verdict::bad(format!("no inode is free at {path}"), cause, small).may_run();
    }
    let free = format!("{} of {} free at {path}", units::bytes(place.free), units::bytes(place.total));
    let cause = "logs, checkpoints and caches fail when it is full";
    let remedy = format!("du -xh --max-depth=2 {at} | sort -h | tail -20");
    // a run may write elsewhere
    let verdict = if place.free < LEAST {
        Verdict::bad(free, cause, remedy).may_run()
    } else if let Some(files) = place.files_free.filter(|files| is_few(*files, place.files)) {
        let cause = "an environment of Python or a data set of single files takes as many: it fails though there is room";
        return Verdict::look(format!("{files} inodes free at {path}"), cause, small)
            .lasting(format!("few inodes at {path}"));
    } else if place.free < LITTLE && place.free / (place.total / 100).max(1) < LITTLE_PERCENT {
        Verdict::look(free, cause, remedy)
    } else {
        Verdict::good(free)
    };
    verdict.lasting(format!("room at {path}"))
}

/// Whether so many files that can still be made are few, of so many with those that are there.
fn is_few(free: u64, all: Option<u64>) -> bool {
    free < FEW || (free < USUAL && all.is_some_and(|all| free < all / 100))
}

fn judge(places: &[Place]) -> Verdict {
    let mut all: Vec<Verdict> = places.iter().map(judge_place).collect();
    // the first of the worst
    all.sort_by_key(|verdict| std::cmp::Reverse(verdict.mark));
    if all.iter().any(Verdict::is_trouble) {
        return all.swap_remove(0);
    }
    let evidence: Vec<&str> = all.iter().map(|verdict| verdict.evidence.as_str()).collect();
    let lasting: Vec<&str> = all.iter().filter_map(|verdict| verdict.lasting.as_deref()).collect();
    Verdict::good(evidence.join(", ")).lasting(lasting.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::preflight::Mark;

    fn place(path: &str, free: u64) -> Place {
        Place { total: 1 << 40, free, ..Place::unknown(Path::new(path)) }
    }

    fn roomy() -> Place {
        Place { files_free: Some(9_000_000), files: Some(10_000_000), ..place("/home/li", 500 << 30) }
    }

    #[test]
    fn the_worst_place_is_told() {
        assert_eq!(judge(&[roomy()]).mark, Mark::Good);
        assert_eq!(judge(&[roomy(), place("/tmp", 5 << 30)]).mark, Mark::Look);
        let full = judge(&[roomy(), place("/tmp", 100 << 20)]);
        assert!(full.mark == Mark::Bad && full.evidence.contains("/tmp"), "{full:?}");
        assert_eq!(judge(&[Place { read_only: true, ..place("/home", 1 << 40) }]).mark, Mark::Bad);
        let absent = judge(&[roomy(), Place { absent: true, ..place("/scratch/li", 0) }]);
        assert_eq!(
            (absent.mark, absent.evidence.as_str()),
            (Mark::Look, "the folder for temporary files, /scratch/li, is not there")
        );
    }

    #[test]
    fn a_place_that_tells_nothing_is_told_with_why() {
        let stale = Place { fault: Some("stale file handle".to_owned()), ..place("/home/li", 0) };
        let told = judge(&[place("/tmp", 500 << 30), stale]);
        assert_eq!((told.mark, told.evidence.as_str()), (Mark::Bad, "/home/li: stale file handle"));
        assert!(told.remedy.unwrap().contains("umount -l"));
        let fault = os_text(&rustix::io::Errno::STALE.into());
        assert_eq!(fault, "stale file handle", "the system's own words");
        // as an older hvtui tells a place
        let old = r#"{"path": "/tmp", "total": 9, "free": 9, "files_free": 7, "read_only": false}"#;
        let old: Place = serde_json::from_str(old).unwrap();
        assert!(old.fault.is_none() && old.files.is_none());
    }

    #[test]
    fn few_inodes_are_told_before_there_is_none() {
        let of = |free: u64, all: u64| {
            judge(&[Place { files_free: Some(free), files: Some(all), ..place("/home/li", 500 << 30) }])
        };
        assert_eq!(of(0, 50_000_000).mark, Mark::Bad);
        let few = of(FEW - 1, 50_000);
        assert_eq!((few.mark, few.evidence.as_str()), (Mark::Look, "9999 inodes free at /home/li"));
        assert!(!few.lasting.unwrap().contains("9999"));
        assert_eq!(of(FEW, 50_000).mark, Mark::Good, "a small file system");
        assert_eq!(of(USUAL - 1, 50_000_000).mark, Mark::Look, "less than 1 % of it");
        assert_eq!(of(USUAL - 1, 5_000_000).mark, Mark::Good);
        assert_eq!(of(USUAL, 50_000_000).mark, Mark::Good, "enough for what is usual");
        // where there is no room either, that is worse
        let full = judge(&[Place { files_free: Some(7), ..place("/home/li", 1 << 20) }]);
        assert_eq!((full.mark, full.lasting.as_deref()), (Mark::Bad, Some("room at /home/li")));
    }
}
