//! Whether files and folders that are named to it, code or data, are the same on all hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::compare::Compared;
use super::super::site::at_home;
use super::super::{Check, Seen, Site};
use crate::clock;
use crate::domain::doctor::{SamePath, SameRole, Verdict};
use crate::domain::preflight::Mark;
use crate::domain::text::os_text;
use crate::domain::time::HostTime;
use crate::domain::units::counted;
use crate::program::home;
use crate::sha256::Hasher;

pub(in crate::doctor) struct Same;

/// All that is named is looked at within so long, microseconds; what is not read by then is told as such.
const PATIENCE_US: u64 = 3_200_000;
/// A longer file is compared by its length, its beginning and its end, which are so long.
const WHOLE: u64 = 64 << 20;
const END: u64 = 1 << 20;
/// Files of code in a folder, how long each is, and how deep they lie, at most.
const CODE_FILES: usize = 1000;
const CODE_BYTES: u64 = 1 << 20;
const DEPTH: usize = 12;
/// Bytes of names and hashes that all folders together tell: all of it goes in one message.
const TOLD: usize = 256 << 10;
/// Entries of a folder that are counted.
const ENTRIES: u64 = 200_000;
/// Letters of a hash.
const HASH: usize = 16;
/// Files that are named.
const NAMED: usize = 3;

/// Endings of files of code.
const CODE: [&str; 17] = [
    "py", "pyx", "pyi", "sh", "yaml", "yml", "toml", "cfg", "ini", "c", "cc", "cpp", "cu", "h", "hpp", "cuh",
    "rs",
];

/// What lies at a path.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Thing {
    /// Nothing.
    Absent,
    /// It can't be read, and why.
    Unread(String),
    /// A file.
    File { bytes: u64, hash: String },
    /// A folder: its files and their bytes, where those are asked for, and the hashes of its code; `more` where there is more code
    /// than that, or some of it can't be read, and `left` where it is not looked for.
    Folder { data: Option<Data>, code: BTreeMap<String, String>, more: bool, left: bool },
}

/// The files below a folder.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Data {
    files: u64,
    bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::doctor) struct Found {
    /// What was asked for.
    asked: SamePath,
    thing: Thing,
}

impl Check for Same {
    const NAME: &'static str = "same";
    const ASKS: &'static str = "are these files and folders, code or data, the same on all hosts";
    const WANTS_PATHS: bool = true;
    /// In the order in which they were named.
    type Found = Vec<Found>;

    fn look(site: &Site) -> Result<Self::Found, String> {
        let until = until();
        let mut room = TOLD;
        let look = |asked: &SamePath| Found { asked: asked.clone(), thing: look(asked, until, &mut room) };
        Ok(site.paths.iter().map(look).collect())
    }

    fn judge(seen: &[Seen<'_, Self::Found>]) -> Vec<Verdict> {
        let count = seen.iter().map(|one| one.found.len()).max().unwrap_or(0);
        let words: Vec<Vec<(&str, String)>> = (0..count).map(|at| words(seen, at)).collect();
        let all: Vec<All<'_>> = words.iter().zip(0..).map(|(words, at)| All::of(words, seen, at)).collect();
        seen.iter().map(|one| judge(one, &all)).collect()
    }
}

fn look(asked: &SamePath, until: HostTime, room: &mut usize) -> Thing {
    let path = at_home(&asked.path);
    let thing = match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => folder(&path, asked.role != SameRole::Asked, until, room),
        Ok(meta) if meta.is_file() => file(&path, until),
        Ok(_) => Err(io::Error::other("neither a file nor a folder")),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Thing::Absent;
        }
        Err(error) => Err(error),
    };
    thing.unwrap_or_else(|error| Thing::Unread(os_text(&error)))
}

fn until() -> HostTime {
    HostTime(clock::host_now().0 + PATIENCE_US)
}

fn in_time(until: HostTime) -> io::Result<()> {
    if clock::host_now() < until {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "not read within {:.1} s: it is too large, or slow",
        PATIENCE_US as f64 / 1e6
    )))
}

/// A file server tells the length of now when the file is opened, not before.
fn file(path: &Path, until: HostTime) -> io::Result<Thing> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok(Thing::File { bytes, hash: hash(file, bytes, until)? })
}

/// Of a file, or of its two ends where it is long.
fn hash(mut file: File, bytes: u64, until: HostTime) -> io::Result<String> {
    let mut hasher = Hasher::default();
    let mut feed = |file: &mut File, most: u64| -> io::Result<()> {
        let mut piece = vec![0; 256 << 10];
        let mut part = file.take(most);
        loop {
            in_time(until)?;
            match part.read(&mut piece)? {
                0 => return Ok(()),
                count => hasher.update(&piece[..count]),
            }
        }
    };
    if bytes <= WHOLE {
        feed(&mut file, WHOLE)?;
    } else {
        feed(&mut file, END)?;
        file.seek(SeekFrom::End(-i64::try_from(END).unwrap_or(0)))?;
        feed(&mut file, END)?;
    }
    let mut hash = hasher.finish().to_string();
    hash.truncate(HASH);
    Ok(hash)
}

/// Whether it is no code of the person's: another program's, an environment's, or what is made from it.
fn is_passed_over(folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.starts_with('.')
        || ["__pycache__", "node_modules", "site-packages", "target"].contains(&name.as_str())
        || folder.join("pyvenv.cfg").exists()
        || folder.join("conda-meta").exists()
}

fn folder(top: &Path, code_alone: bool, until: HostTime, room: &mut usize) -> io::Result<Thing> {
    // the home folder and the root hold everything: that is not the code of one run
    let is_all = code_alone && [home().as_path(), Path::new("/")].contains(&top);
    let (mut data, mut code, mut more) = (Data::default(), BTreeMap::new(), false);
    let mut due: Vec<(PathBuf, usize, bool)> =
        if is_all { Vec::new() } else { vec![(top.to_owned(), 0, true)] };
    let mut entries = 0_u64;
    while let Some((folder, depth, has_code)) = due.pop() {
        let inside = match fs::read_dir(&folder) {
            Ok(inside) => inside,
            Err(error) if depth == 0 => return Err(error),
            // another user's, or deleted meanwhile
            Err(_) => {
                more |= has_code;
                continue;
            }
        };
        for entry in inside {
            in_time(until)?;
            entries += 1;
            if entries > ENTRIES {
                return Err(io::Error::other(format!(
                    "it has more than {ENTRIES} entries: name a folder within"
                )));
            }
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                let has_code = has_code && depth < DEPTH && !is_passed_over(&path);
                if has_code || !code_alone {
                    due.push((path, depth + 1, has_code));
                }
                continue;
            }
            if !kind.is_file() && !kind.is_symlink() {
                continue;
            }
            let ending =
                path.extension().map(|ending| ending.to_string_lossy().into_owned()).unwrap_or_default();
            let is_code = has_code && CODE.contains(&ending.as_str());
            if code_alone && !is_code {
                continue;
            }
            // a link to a file counts as what it leads to; one to a folder, which may lead in a circle, is passed over
            let meta = if kind.is_symlink() { fs::metadata(&path) } else { entry.metadata() };
            let Some(meta) = meta.ok().filter(fs::Metadata::is_file) else { continue };
            let bytes = meta.len();
            data.files += 1;
            data.bytes += bytes;
            if is_code && bytes <= CODE_BYTES {
                let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
                let size = name.len() + HASH;
                if code.len() == CODE_FILES || size > *room {
                    more = true;
                    continue;
                }
                *room -= size;
                match File::open(&path) {
                    Ok(file) => {
                        code.insert(name, hash(file, bytes, until)?);
                    }
                    Err(_) => more = true,
                }
            }
        }
    }
    Ok(Thing::Folder { data: (!code_alone).then_some(data), code, more, left: is_all })
}

impl Thing {
    /// In words, by which hosts are compared.
    fn words(&self) -> String {
        match self {
            Self::Absent => "not there".to_owned(),
            Self::Unread(why) => why.clone(),
            Self::File { bytes, hash } => format!("{bytes} bytes, SHA-256 {hash:.8}"),
            Self::Folder { data: Some(data), .. } => {
                format!("{}, {} bytes", counted(data.files, "file"), data.bytes)
            }
            Self::Folder { .. } => "a folder".to_owned(),
        }
    }

    fn code(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Folder { code, more: false, left: false, .. } => Some(code),
            _ => None,
        }
    }
}

/// What the hosts have at one path that have something there.
fn words<'a>(seen: &[Seen<'a, Vec<Found>>], at: usize) -> Vec<(&'a str, String)> {
    let things = seen.iter().filter_map(|one| Some((one.host.as_str(), &one.found.get(at)?.thing)));
    let there = things.filter(|(_, thing)| !matches!(thing, Thing::Unread(_) | Thing::Absent));
    there.map(|(host, thing)| (host, thing.words())).collect()
}

/// One path on all hosts.
struct All<'a> {
    things: Compared<'a>,
    /// Each file of its code.
    code: Vec<(&'a str, Compared<'a>)>,
}

impl<'a> All<'a> {
    fn of(words: &'a [(&'a str, String)], seen: &'a [Seen<'_, Vec<Found>>], at: usize) -> Self {
        let folders: Vec<(&str, &BTreeMap<String, String>)> = seen
            .iter()
            .filter_map(|one| Some((one.host.as_str(), one.found.get(at)?.thing.code()?)))
            .collect();
        let names: BTreeSet<&str> =
            folders.iter().flat_map(|(_, code)| code.keys().map(String::as_str)).collect();
        let of = |name| Compared::new(folders.iter().map(|(host, code)| (*host, hash_of(code, name))));
        let code = names.into_iter().map(|name| (name, of(name))).collect();
        Self { things: Compared::new(words.iter().map(|(host, words)| (*host, words.as_str()))), code }
    }
}

fn hash_of<'a>(code: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    code.get(name).map_or("", String::as_str)
}

/// How one path is on one host.
fn judge_path(Found { asked, thing }: &Found, all: &All<'_>) -> (Mark, String) {
    let (path, words) = (&asked.path, thing.words());
    let differs = if asked.role == SameRole::Beside { Mark::Look } else { Mark::Bad };
    match thing {
        Thing::Unread(_) => return (Mark::Look, format!("{path}: {words}")),
        // a person has named it: most often it is written wrongly
        Thing::Absent if all.things.is_empty() && asked.role == SameRole::Asked => {
            return (Mark::Bad, format!("{path}: on no host"));
        }
        Thing::Absent if all.things.is_empty() => return (Mark::Unknown, format!("{path}: on no host")),
        Thing::Absent => return (differs, format!("{path}: not there (other hosts have it)")),
        Thing::File { .. } | Thing::Folder { .. } => {}
    }
    let mut odd: Vec<String> = Vec::new();
    odd.extend(all.things.difference(&words).map(|difference| format!("{words} ({difference})")));
    let code = thing.code().map(|code| (code.len(), unlike(code, all))).unwrap_or_default();
    odd.extend(code.1);
    if odd.is_empty() && matches!(thing, Thing::Folder { more: true, .. }) {
        let why =
            format!("its code is not compared: more than {CODE_FILES} files, or some that can't be read");
        return (Mark::Unknown, format!("{path}: {words}; {why}"));
    }
    match (odd.is_empty(), code.0) {
        (true, 0) => (Mark::Good, format!("{path}: {words}")),
        (true, count) => (Mark::Good, format!("{path}: {words}, {} of code", counted(count, "file"))),
        (false, _) => (differs, format!("{path}: {}", odd.join(", "))),
    }
}

/// Which files of its code are not those of other hosts, a few by name.
fn unlike(code: &BTreeMap<String, String>, all: &All<'_>) -> Vec<String> {
    let differ = |(name, all): &(&str, Compared<'_>)| {
        let own = hash_of(code, name);
        let is_own = all.wanted(own) == Some("");
        all.difference(own).map(|_| match own {
            "" => format!("no {name}"),
            _ if is_own => format!("{name}, which others lack"),
            _ => format!("another {name}"),
        })
    };
    let mut differ: Vec<String> = all.code.iter().filter_map(differ).collect();
    let count = differ.len();
    differ.truncate(NAMED);
    differ.extend((count > NAMED).then(|| format!("{} more", count - NAMED)));
    differ
}

fn judge(one: &Seen<'_, Vec<Found>>, all: &[All<'_>]) -> Verdict {
    let told: Vec<(Mark, String)> =
        one.found.iter().zip(all).map(|(found, all)| judge_path(found, all)).collect();
    let Some(worst) = told.iter().map(|(mark, _)| *mark).max() else {
        return Verdict::unknown("no file or folder is named");
    };
    // beside what is wrong, what is well says nothing
    let shown: Vec<&str> = told
        .iter()
        .filter(|(mark, _)| worst < Mark::Look || *mark >= Mark::Look)
        .map(|(_, words)| words.as_str())
        .collect();
    let shown = shown.join("; ");
    let cause = "ranks of one run read unlike files: they end at once, or compute something else";
    let remedy = "make it the same before the start: let the run copy it (--sync FOLDER, on the Launch screen the field sync), rsync -a, or a file system that all share";
    let is_nowhere = |(found, all): (&Found, &All<'_>)| {
        found.asked.role == SameRole::Asked && found.thing == Thing::Absent && all.things.is_empty()
    };
    let nowhere = one.found.iter().zip(all).filter(|one| is_nowhere(*one)).count();
    match worst {
        Mark::Bad if nowhere == told.iter().filter(|(mark, _)| *mark == Mark::Bad).count() => Verdict::bad(
            shown,
            "there is nothing to compare: a run that reads it ends on every host",
            "see how it is written: a path of the hosts, from / on or with ~/ for the home folder there",
        ),
        Mark::Bad => Verdict::bad(shown, cause, remedy),
        Mark::Look => Verdict::look(shown, cause, remedy),
        Mark::Unknown => Verdict::unknown(shown),
        Mark::Good => Verdict::good(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::seen;

    fn found(folder: &Path, role: SameRole) -> Vec<Found> {
        let asked = SamePath { path: folder.display().to_string(), role };
        let thing = look(&asked, until(), &mut { TOLD });
        vec![Found { asked: SamePath { path: "~/train".into(), role }, thing }]
    }

    #[test]
    fn code_is_compared_by_what_it_says_and_what_runs_write_is_not() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &two] {
            fs::create_dir_all(folder.path().join("models/__pycache__")).unwrap();
            fs::write(folder.path().join("train.py"), "import models.net").unwrap();
            fs::write(folder.path().join("models/net.py"), "layers = 2").unwrap();
        }
        fs::write(two.path().join("loss.csv"), "1,2").unwrap();
        fs::write(two.path().join("models/__pycache__/net.py"), "x").unwrap();
        let judge = || {
            let all = seen([
                found(one.path(), SameRole::Beside),
                found(one.path(), SameRole::Beside),
                found(two.path(), SameRole::Beside),
            ]);
            Same::judge(&all)[2].clone()
        };
        let alike = judge();
        assert_eq!((alike.mark, alike.evidence.as_str()), (Mark::Good, "~/train: a folder, 2 files of code"));
        fs::write(two.path().join("models/net.py"), "layers = 3").unwrap();
        fs::write(two.path().join("new.py"), "").unwrap();
        fs::remove_file(two.path().join("train.py")).unwrap();
        let unlike = judge();
        assert_eq!(
            (unlike.mark, unlike.evidence.as_str()),
            (Mark::Look, "~/train: another models/net.py, new.py, which others lack, no train.py")
        );
    }

    #[test]
    fn a_link_to_a_file_is_compared_by_what_it_leads_to() {
        use std::os::unix::fs::symlink;
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &two] {
            let at = |name: &str| folder.path().join(name);
            fs::create_dir_all(at("train")).unwrap();
            fs::write(at("model-of-all.py"), "layers = 2").unwrap();
            symlink(at("model-of-all.py"), at("train/model.py")).unwrap();
            // in a circle, to nothing, and to what is no file
            symlink(at("train"), at("train/self.py")).unwrap();
            symlink("round.py", at("train/round.py")).unwrap();
            symlink("/dev/null", at("train/null.py")).unwrap();
        }
        let judge = |role| {
            let all = [&one, &one, &two].map(|folder| found(&folder.path().join("train"), role));
            let verdict = Same::judge(&seen(all)).remove(2);
            (verdict.mark, verdict.evidence)
        };
        let alike = "~/train: a folder, 1 file of code".to_owned();
        assert_eq!(judge(SameRole::Beside), (Mark::Good, alike));
        fs::write(two.path().join("model-of-all.py"), "layers = 3").unwrap();
        assert_eq!(judge(SameRole::Beside), (Mark::Look, "~/train: another model.py".to_owned()));
        assert_eq!(judge(SameRole::Asked), (Mark::Bad, "~/train: another model.py".to_owned()));
        fs::remove_file(two.path().join("model-of-all.py")).unwrap();
        assert_eq!(judge(SameRole::Beside), (Mark::Look, "~/train: no model.py".to_owned()));
    }

    #[test]
    fn data_is_compared_by_its_files_and_bytes() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(one.path().join("a.bin"), [0; 10]).unwrap();
        fs::write(two.path().join("a.bin"), [0; 11]).unwrap();
        let verdicts =
            Same::judge(&seen([found(one.path(), SameRole::Asked), found(two.path(), SameRole::Asked)]));
        assert_eq!(verdicts[0].mark, Mark::Bad);
        assert_eq!(verdicts[0].evidence, "~/train: 1 file, 10 bytes (host-1 has 1 file, 11 bytes)");
    }

    #[test]
    fn a_script_that_one_host_lacks_is_red_there_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("train.py");
        fs::write(&file, "pass").unwrap();
        let absent = folder.path().join("no/train.py");
        let verdicts = Same::judge(&seen([found(&file, SameRole::Script), found(&absent, SameRole::Script)]));
        assert_eq!([verdicts[0].mark, verdicts[1].mark], [Mark::Good, Mark::Bad]);
        assert_eq!(verdicts[1].evidence, "~/train: not there (other hosts have it)");
        let written = Same::judge(&seen([found(&file, SameRole::Beside), found(&absent, SameRole::Beside)]));
        assert_eq!(written[1].mark, Mark::Look, "rank 0 may have written it");
        let none = Same::judge(&seen([found(&absent, SameRole::Script), found(&absent, SameRole::Script)]));
        assert_eq!((none[0].mark, none[0].evidence.as_str()), (Mark::Unknown, "~/train: on no host"));
        let asked = Same::judge(&seen([found(&absent, SameRole::Asked), found(&absent, SameRole::Asked)]));
        assert_eq!((asked[0].mark, asked[0].evidence.as_str()), (Mark::Bad, "~/train: on no host"));
        assert!(asked[0].remedy.as_ref().unwrap().starts_with("see how it is written"), "{asked:?}");
        let device = Same::judge(&seen([found(Path::new("/dev/null"), SameRole::Script)]));
        assert_eq!(device[0].mark, Mark::Look, "{device:?}");
    }

    #[test]
    fn what_takes_too_long_is_told_as_such() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), "pass").unwrap();
        let asked = SamePath { path: folder.path().display().to_string(), role: SameRole::Beside };
        let late = look(&asked, clock::host_now(), &mut { TOLD });
        assert!(matches!(&late, Thing::Unread(why) if why.contains("not read within 3.2 s")), "{late:?}");
    }

    #[test]
    fn all_of_a_home_folder_is_not_the_code_of_a_run() {
        let asked = SamePath { path: "~".into(), role: SameRole::Beside };
        let thing = look(&asked, until(), &mut { TOLD });
        assert!(matches!(&thing, Thing::Folder { code, left: true, .. } if code.is_empty()), "{thing:?}");
    }

    #[test]
    fn code_that_is_not_compared_is_not_called_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=CODE_FILES {
            fs::write(folder.path().join(format!("{number}.py")), "pass").unwrap();
        }
        let verdicts = Same::judge(&seen([found(folder.path(), SameRole::Beside)]));
        assert_eq!(verdicts[0].mark, Mark::Unknown, "{verdicts:?}");
        assert!(verdicts[0].evidence.contains("its code is not compared"), "{verdicts:?}");
    }
}
