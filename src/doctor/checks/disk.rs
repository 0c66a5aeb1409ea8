//! Whether there is room where runs write: home, the working directory, hvtui's own folders, the folder for temporary files. One on a
//! file server that is gone is told with that server, and holds up none of the others.

mod looks;
mod mount;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{StatVfs, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

use self::looks::{Looked, look, looks};
use self::mount::Mount;
use super::super::site::at_home;
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
/// How long looks at all of them may take, less than the check may.
const ALL: Duration = Duration::from_millis(2_500);
/// The kernel's table of mounts.
const MOUNTS: &str = "/proc/self/mountinfo";

/// What a folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Home,
    /// Where ranks start, and where their programs lie.
    Work,
    /// One of hvtui's.
    Own,
    Temporary,
}

impl Role {
    /// Whether it may be made later: one that is not there is no fault of the disk.
    fn is_made(self) -> bool {
        matches!(self, Self::Work | Self::Own)
    }
}

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
    /// Whether programs that lie there can't be started, where it is the working directory.
    #[serde(default)]
    noexec: bool,
    /// Why it tells nothing.
    #[serde(default)]
    fault: Option<String>,
    /// What is mounted there, where a look at it hangs.
    #[serde(default)]
    hangs_at: Option<Mount>,
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
            noexec: false,
            fault: None,
            hangs_at: None,
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
    const ASKS: &'static str =
        "is there room at home, in the working directory, in hvtui's folders and for temporary files";
    type Found = Vec<Place>;

    fn look(site: &Site) -> Result<Vec<Place>, String> {
        let folders = folders(site);
        let looked = looks(&folders, ALL, look);
        let is_untried = looked.iter().any(|one| matches!(one, Looked::Untried));
        let places = places(folders, looked, &std::fs::read_to_string(MOUNTS).unwrap_or_default());
        if is_untried && places.iter().all(|place| place.fault.is_none()) {
            let why = "no thread for a look at each folder: earlier ones may hang on this host; reconnect, and see what hangs there";
            return Err(why.to_owned());
        }
        Ok(places)
    }

    fn judge(seen: &[Seen<'_, Vec<Place>>]) -> Vec<Verdict> {
        seen.iter().map(|one| judge(&one.found)).collect()
    }
}

/// The folders that count on this host.
fn folders(site: &Site) -> Vec<(Role, PathBuf)> {
    let work = site.workdir.as_deref().map(|path| (Role::Work, at_home(path)));
    let cache = std::env::current_exe().ok().and_then(|exe| cache(&exe)).map(|path| (Role::Own, path));
    let tmp = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
    let tmp = tmp.map_or_else(|| "/tmp".into(), PathBuf::from);
    let mut all = vec![(Role::Home, home())];
    all.extend(work);
    all.push((Role::Own, site.state.clone()));
    all.extend(cache);
    all.push((Role::Temporary, tmp));
    all
}

/// hvtui's folder in the one for caches, where this program was put there: `~/.cache/hvtui/agents/HASH/hvtui`.
fn cache(program: &Path) -> Option<PathBuf> {
    let agents = program.parent()?.parent()?;
    agents.ends_with("hvtui/agents").then(|| agents.to_owned())
}

/// What is told of these folders, of which several may lie on one file system; `mounts` is the text of the kernel's table.
fn places(folders: Vec<(Role, PathBuf)>, looked: Vec<Looked>, mounts: &str) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    let mut places = Vec::new();
    for ((role, path), looked) in folders.into_iter().zip(looked) {
        match looked {
            Looked::At(Ok((there, stat))) => {
                let noexec = stat.f_flag.contains(StatVfsMountFlags::NOEXEC);
                if noexec && role == Role::Home {
                    // the check `tmp` says so
                    seen.insert((stat.f_fsid, stat.f_blocks, true));
                }
                let noexec = noexec && role == Role::Work;
                if seen.insert((stat.f_fsid, stat.f_blocks, noexec)) {
                    places.push(Place { noexec, ..Place::of(&there, &stat) });
                }
            }
            Looked::At(Err(error)) if error.kind() == ErrorKind::NotFound && role == Role::Temporary => {
                places.push(Place { absent: true, ..Place::unknown(&path) });
            }
            Looked::At(Err(error)) => {
                places.push(Place { fault: Some(os_text(&error)), ..Place::unknown(&path) });
            }
            Looked::Untried => {}
            Looked::Hangs(at) => {
                let fault = Some(format!("no answer in {:.1} s", ALL.as_secs_f64()));
                places.push(Place { fault, hangs_at: Mount::of(mounts, &at), ..Place::unknown(&path) });
            }
        }
    }
    places
}

/// Of one that a look at hangs.
fn hanging(path: &str, fault: &str, mount: &Mount) -> Verdict {
    let Mount { point, kind, source } = mount;
    let seen = format!("{path}: {fault}: {point} is {kind} of {source}");
    let again = if point == "/" {
        "sudo reboot".to_owned()
    } else {
        format!("sudo umount -f -l {}, and mount it again", shell_word(point))
    };
    let remedy = match mount.server() {
        Some(server) => format!(
            "see whether the file server {server} is there (ping -c 3 {}) and serves; where it does not come back: {again}",
            shell_word(server)
        ),
        None if kind == "autofs" => {
            "journalctl -b | grep -i mount shows for which file server the automounter waits".to_owned()
        }
        None if kind.starts_with("fuse") => {
            format!("see whether the program behind it runs; where it does not come back: {again}")
        }
        // a disk of its own, that may only be slow
        None => {
            return Verdict::look(
                seen,
                "what reads or writes there waits until it answers",
                "dmesg | tail shows whether its disk fails, uptime whether the host is too busy",
            );
        }
    };
    Verdict::bad(seen, "what reads or writes there hangs until it answers, and may not even be ended", remedy)
        .may_run()
}

/// Of one of them.
fn judge_place(place: &Place) -> Verdict {
    let path = &place.path;
    let at = shell_word(path);
    if let (Some(fault), Some(mount)) = (&place.fault, &place.hangs_at) {
        return hanging(path, fault, mount);
    }
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
    if place.total == 0 {
        // as the folder of an automounter
        return Verdict::good(format!("{path} tells no size")).lasting(format!("room at {path}"));
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
    } else if place.noexec {
        let remedy = format!(
            "findmnt -T {at} shows how it is mounted: take noexec out of /etc/fstab and mount it anew, or choose another workdir"
        );
        return Verdict::look(
            format!("{path}, of the working directory, is mounted noexec"),
            "programs and compiled extensions that lie there can't be started or loaded",
            remedy,
        );
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
        let read_only = judge(&[Place { read_only: true, ..place("/home", 1 << 40) }]);
        assert_eq!((read_only.mark, read_only.evidence.as_str()), (Mark::Bad, "/home is read-only"));
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
        assert!(old.fault.is_none() && old.files.is_none() && old.hangs_at.is_none() && !old.noexec);
    }

    #[test]
    fn a_folder_on_a_file_server_that_is_gone_is_told_with_it_and_holds_up_no_other_one() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().to_owned();
        let folders = vec![
            (Role::Home, there.clone()),
            (Role::Work, "/data/li".into()),
            (Role::Temporary, there.join("absent")),
        ];
        let gone = |role: Role, path: &Path, goes_to: &dyn Fn(&Path)| {
            if role == Role::Work {
                goes_to(Path::new("/mnt/fs1/li"));
                std::thread::sleep(Duration::from_secs(3_600));
            }
            look(role, path, goes_to)
        };
        let looked = looks(&folders, Duration::from_secs(2), gone);
        let mounts =
            "22 1 259:2 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /mnt/fs1 rw - nfs4 fs1:/export rw\n";
        let places = places(folders, looked, mounts);
        assert!(places.len() == 3 && places[0].fault.is_none() && places[0].total > 0, "{places:?}");
        assert!(places[2].absent, "{places:?}");
        let told = judge(&places);
        let seen = "/data/li: no answer in 2.5 s: /mnt/fs1 is nfs4 of fs1:/export";
        assert_eq!((told.mark, told.for_launch(), told.evidence.as_str()), (Mark::Bad, Mark::Look, seen));
        let remedy = told.remedy.unwrap();
        assert!(remedy.starts_with("see whether the file server fs1 is there (ping -c 3 fs1)"), "{remedy}");
        assert!(remedy.ends_with(": sudo umount -f -l /mnt/fs1, and mount it again"), "{remedy}");
    }

    #[test]
    fn a_look_goes_by_links_to_the_nearest_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        std::os::unix::fs::symlink("data", real.join("work")).unwrap();
        let path = real.join("work/run/7");
        let goes = |role: Role, path: &Path| {
            let went = std::cell::RefCell::new(Vec::new());
            let told = look(role, path, &|to: &Path| went.borrow_mut().push(to.to_owned()));
            (told.map(|(there, _)| there), went.into_inner())
        };
        let of = |at: &str| real.join(at);
        let (there, went) = goes(Role::Work, &path);
        assert_eq!(there.unwrap(), of("work"));
        assert!(went.ends_with(&[of("work"), of("data"), of("data/run"), of("data")]), "{went:?}");
        // what a link leads to is said before it is looked at, also where it leads up
        let up = Path::new("..").join(real.file_name().unwrap()).join("work");
        std::os::unix::fs::symlink(up, of("up")).unwrap();
        let (there, went) = goes(Role::Home, &of("up"));
        assert_eq!(there.unwrap(), of("up"));
        assert!(went.ends_with(&[of("up"), real.clone(), of("work"), of("data"), of("data")]), "{went:?}");
        std::os::unix::fs::symlink("loop", of("loop")).unwrap();
        let told = goes(Role::Work, &of("loop")).0.unwrap_err();
        assert_eq!(told.raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
        let absent = look(Role::Temporary, &path, &|_: &Path| {}).err().unwrap();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn the_folders_of_a_run_and_of_hvtui_are_looked_at_too() {
        use crate::doctor::tests::site;
        let of = |site: &Site| folders(site).into_iter().find(|(role, _)| *role == Role::Work);
        assert_eq!(of(&site()), None);
        let work = |path: &str| of(&site().with_workdir(Some(path.to_owned())));
        assert_eq!(work("/data/li"), Some((Role::Work, "/data/li".into())));
        assert_eq!(work("~/train"), Some((Role::Work, home().join("train"))));
        let agent = Path::new("/scratch/li/hvtui/agents/3f2a/hvtui");
        assert_eq!(cache(agent), Some("/scratch/li/hvtui/agents".into()));
        for elsewhere in ["/usr/bin/hvtui", "/memfd:hvtui (deleted)"] {
            assert_eq!(cache(Path::new(elsewhere)), None);
        }
    }

    #[test]
    fn a_working_directory_whose_programs_can_not_be_started_is_told() {
        let noexec = |free: u64| judge(&[roomy(), Place { noexec: true, ..place("/data/li", free) }]);
        let told = noexec(500 << 30);
        assert_eq!(
            (told.mark, told.evidence.as_str()),
            (Mark::Look, "/data/li, of the working directory, is mounted noexec")
        );
        assert_eq!(noexec(1 << 20).mark, Mark::Bad, "what ends a run counts first");
        // of the home folder's own file system the check `tmp` says it
        let folder = tempfile::tempdir().unwrap();
        let told = |home_has_it: bool| {
            let at = |role: Role, fsid: u64, is_noexec: bool| {
                let (there, mut stat) = look(role, folder.path(), &|_: &Path| {}).unwrap();
                (stat.f_fsid, stat.f_blocks, stat.f_bavail) = (fsid, 1 << 40, 1 << 40);
                (stat.f_files, stat.f_flag) = (0, StatVfsMountFlags::empty());
                stat.f_flag.set(StatVfsMountFlags::NOEXEC, is_noexec);
                ((role, there.clone()), Looked::At(Ok((there, stat))))
            };
            let work = at(Role::Work, if home_has_it { 1 } else { 2 }, true);
            let (folders, looked) = [at(Role::Home, 1, home_has_it), work].into_iter().unzip();
            judge(&places(folders, looked, "")).mark
        };
        assert_eq!([told(true), told(false)], [Mark::Good, Mark::Look]);
    }

    #[test]
    fn what_tells_no_size_is_not_full() {
        let told = judge(&[roomy(), Place { total: 0, ..place("/net", 0) }]);
        assert_eq!(told.mark, Mark::Good);
        assert!(told.evidence.ends_with(", /net tells no size"), "{told:?}");
    }

    #[test]
    fn a_hung_folder_is_told_with_what_helps_for_what_is_mounted_there() {
        let of = |point: &str, kind: &str, source: &str| {
            let mount = Mount { point: point.to_owned(), kind: kind.to_owned(), source: source.to_owned() };
            let fault = Some("no answer in 2.5 s".to_owned());
            judge(&[Place { fault, hangs_at: Some(mount), ..place("/data/li", 0) }])
        };
        let own = of("/", "ext4", "/dev/sda1");
        let seen = "/data/li: no answer in 2.5 s: / is ext4 of /dev/sda1";
        assert_eq!((own.mark, own.evidence.as_str()), (Mark::Look, seen), "the host may be busy");
        assert!(!own.remedy.unwrap().contains("umount"));
        let root = of("/", "nfs4", "fs1:/root");
        assert!(root.mark == Mark::Bad && root.remedy.unwrap().ends_with(": sudo reboot"));
        let automounted = of("/data", "autofs", "/etc/auto.data");
        assert!(automounted.mark == Mark::Bad && automounted.remedy.unwrap().starts_with("journalctl -b"));
        let fuse = of("/data", "fuse.gcsfuse", "bucket").remedy.unwrap();
        assert!(fuse.ends_with(": sudo umount -f -l /data, and mount it again"), "{fuse}");
    }

    #[test]
    fn few_inodes_are_told_before_there_is_none() {
        let of = |free: u64, all: u64| {
            judge(&[Place { files_free: Some(free), files: Some(all), ..place("/home/li", 500 << 30) }])
        };
        let none = of(0, 50_000_000);
        assert_eq!((none.mark, none.evidence.as_str()), (Mark::Bad, "no inode is free at /home/li"));
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
