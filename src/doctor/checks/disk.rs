//! Whether there is room where runs write: home, the state folder, the folder for temporary files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use serde::{Deserialize, Serialize};

use super::super::{Check, Seen, Site, shell_word};
use crate::domain::doctor::Verdict;
use crate::domain::units;
use crate::program::home;

pub(in crate::doctor) struct Disk;

/// Less than this, and a checkpoint or a log fails.
const LEAST: u64 = 512 << 20;
/// Less than this is worth a look where it is little of the whole, too.
const LITTLE: u64 = 10 << 30;
const LITTLE_PERCENT: u64 = 5;

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Place {
    path: String,
    total: u64,
    free: u64,
    /// Files that can still be made; absent where the file system does not count them.
    files_free: Option<u64>,
    read_only: bool,
    /// Whether it is the folder of `TMPDIR`, and is not there.
    #[serde(default)]
    absent: bool,
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
            let stat = match rustix::fs::statvfs(&path) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) if path == tmp => {
                    let path = path.display().to_string();
                    places.push(Place {
                        path,
                        total: 0,
                        free: 0,
                        files_free: None,
                        read_only: false,
                        absent: true,
                    });
                    continue;
                }
                Err(_) => continue,
            };
            if seen.insert((stat.f_fsid, stat.f_blocks)) {
                places.push(Place {
                    path: path.display().to_string(),
                    total: stat.f_blocks.saturating_mul(stat.f_frsize),
                    free: stat.f_bavail.saturating_mul(stat.f_frsize),
                    files_free: (stat.f_files > 0).then_some(stat.f_favail),
                    read_only: stat.f_flag.contains(StatVfsMountFlags::RDONLY),
                    absent: false,
                });
            }
        }
        if places.is_empty() { Err("the file systems do not tell their size".to_owned()) } else { Ok(places) }
    }

    fn judge(seen: &[Seen<'_, Vec<Place>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// The nearest folder above that is there.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(path).to_owned()
}

fn judge(places: &[Place]) -> Verdict {
    let verdicts = places.iter().map(|place| {
        let path = &place.path;
        if place.absent {
            let command = format!("mkdir -p {}", shell_word(path));
            let cause = "programs that write temporary files end at once";
            return Verdict::look(
                format!("the folder for temporary files, {path}, is not there"),
                cause,
                command.clone(),
            )
            .fixed_there(command);
        }
        let free = format!("{} of {} free at {path}", units::bytes(place.free), units::bytes(place.total));
        let at = shell_word(path);
        let remedy = format!("du -xh --max-depth=2 {at} | sort -h | tail -20");
        if place.read_only {
            let remedy =
                format!("sudo mount -o remount,rw {at}, after a look at `dmesg` for errors of the disk");
            return Verdict::bad(format!("{path} is read-only"), "nothing can be written there", remedy)
                .may_run();
        }
        if place.files_free == Some(0) {
            let cause = "no file can be made there though there is room";
            return Verdict::bad(
                format!("no inode is free at {path}"),
                cause,
                format!("df -i {at}; delete small files"),
            )
            .may_run();
        }
        let cause = "logs, checkpoints and caches fail when it is full";
        // a run may write elsewhere
        let verdict = if place.free < LEAST {
            Verdict::bad(free, cause, remedy).may_run()
        } else if place.free < LITTLE && place.free / (place.total / 100).max(1) < LITTLE_PERCENT {
            Verdict::look(free, cause, remedy)
        } else {
            Verdict::good(free)
        };
        verdict.lasting(format!("room at {path}"))
    });
    let mut all: Vec<Verdict> = verdicts.collect();
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

    #[test]
    fn the_worst_place_is_told() {
        let place = |path: &str, free: u64, files: Option<u64>, read_only| Place {
            path: path.to_owned(),
            total: 1 << 40,
            free,
            files_free: files,
            read_only,
            absent: false,
        };
        let roomy = || place("/home/li", 500 << 30, Some(9), false);
        assert_eq!(judge(&[roomy()]).mark, Mark::Good);
        assert_eq!(judge(&[roomy(), place("/tmp", 5 << 30, None, false)]).mark, Mark::Look);
        let full = judge(&[roomy(), place("/tmp", 100 << 20, None, false)]);
        assert!(full.mark == Mark::Bad && full.evidence.contains("/tmp"), "{full:?}");
        assert_eq!(judge(&[place("/tmp", 1 << 40, Some(0), false)]).mark, Mark::Bad);
        assert_eq!(judge(&[place("/home", 1 << 40, None, true)]).mark, Mark::Bad);
        let absent = judge(&[roomy(), Place { absent: true, ..place("/scratch/li", 0, None, false) }]);
        assert_eq!(
            (absent.mark, absent.evidence.as_str()),
            (Mark::Look, "the folder for temporary files, /scratch/li, is not there")
        );
    }
}
