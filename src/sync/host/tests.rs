use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::sync::blobs::Piece;
use crate::sync::snapshot::{Progress, Snapshot, snapshot};

/// A client's folder `src` and a host's home, in which it is synced to `~/proj`.
struct Pair {
    dir: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(pair.src("")).unwrap();
        fs::create_dir(pair.dir.path().join("home")).unwrap();
        pair
    }

    fn src(&self, name: &str) -> PathBuf {
        self.dir.path().join("src").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.dir.path().join("home/proj").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.src(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // a new file each time, as editors write it
        fs::write(beside(&path, "~"), text).unwrap();
        fs::rename(beside(&path, "~"), path).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.there(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn place(&self) -> Place {
        Place::of("~/proj", &self.dir.path().join("home"), &[]).unwrap()
    }

    fn open(&self) -> (Target, Snapshot) {
        // a process that another test forks has the lock for a moment, too
        let open = || Target::open(&self.place(), "here", false).unwrap();
        let target = std::iter::repeat_with(open).take(10_000).flatten().next().unwrap();
        (target, snapshot(&self.src(""), None, 0, &Progress::default()).unwrap())
    }

    /// The whole sync; gives how many contents were sent.
    fn try_sync(&self, delete: bool) -> Result<(usize, Switched), SyncError> {
        let (mut target, snapshot) = self.open();
        if let Some(done) = target.present(snapshot.tree, delete) {
            target.remove_unused();
            return Ok((0, done));
        }
        let comparison = target.compare(snapshot.manifest.clone(), delete)?;
        let mut store = target.store();
        for (index, _) in &comparison.missing {
            let Kind::File { hash, size, .. } = snapshot.manifest.entries()[*index as usize].kind else {
                panic!()
            };
            let data = fs::read(snapshot.source(hash).unwrap().0).unwrap();
            assert!(store.put(Piece { name: hash, size, offset: 0, data: &data })?);
        }
        let done = target.switch()?;
        target.remove_unused();
        assert_eq!(done.tree, snapshot.tree);
        Ok((comparison.missing.len(), done))
    }

    fn sync(&self) -> (usize, Switched) {
        self.try_sync(false).unwrap()
    }

    /// What lies beside the folder, hvtui's own one left out.
    fn trees(&self) -> Vec<String> {
        journal::trees(&self.place())
    }

    /// Whether the old trees go, by the looks of a machine. A process that another test forks has, for a moment, what this
    /// one has open.
    fn old_trees_go(&self, machine: &str) -> bool {
        (0..500).any(|_| {
            tidy(&self.place(), machine);
            self.trees().is_empty()
        })
    }

    /// A process in the folder.
    fn job(&self, line: &str) -> Job {
        let mut command = Command::new("sh");
        let child = command
            .args(["-c", line])
            .current_dir(self.there(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Job(child.spawn().unwrap())
    }
}

/// What a look tells that has something to tell. A process that another test forks has the lock for a moment, too: such a look does
/// nothing.
fn told(place: &Place) -> Vec<String> {
    let mut looks = std::iter::repeat_with(|| tidy(place, "here")).take(10_000);
    looks.find(|notes| !notes.is_empty()).unwrap_or_default()
}

struct Job(Child);

impl Job {
    /// Lets it go on with a line, and waits for its word.
    fn step(&mut self) -> String {
        use std::io::{Read as _, Write as _};
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut text = String::new();
        let mut byte = [0];
        while self.0.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            text.push(char::from(byte[0]));
        }
        text
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn only_what_changed_is_wanted_and_modes_and_links_are_kept() {
    let pair = Pair::new();
    for (name, text) in [("a.py", "1"), ("lib/b.py", "2"), ("lib/same", "2"), ("empty", "")] {
        pair.write(name, text);
    }
    symlink("lib/b.py", pair.src("link")).unwrap();
    fs::create_dir(pair.src("hollow")).unwrap();
    fs::set_permissions(pair.src("a.py"), fs::Permissions::from_mode(0o755)).unwrap();
    let (sent, done) = pair.sync();
    assert_eq!((sent, done.switched), (3, true), "two files of one content are sent once");
    assert_eq!(
        (pair.read("link"), pair.read("lib/same"), pair.read("empty")),
        ("2".into(), "2".into(), String::new())
    );
    assert!(pair.there("hollow").is_dir());
    assert_eq!(fs::metadata(pair.there("a.py")).unwrap().mode() & 0o777, 0o755);
    assert_ne!(
        fs::metadata(pair.there("lib/b.py")).unwrap().ino(),
        fs::metadata(pair.there("lib/same")).unwrap().ino()
    );
    let ino = fs::metadata(pair.there("")).unwrap().ino();
    let (sent, done) = pair.sync();
    assert_eq!((sent, done.switched, fs::metadata(pair.there("")).unwrap().ino()), (0, false, ino));
    pair.write("a.py", "3");
    fs::rename(pair.src("lib/b.py"), pair.src("lib/c.py")).unwrap();
    fs::remove_file(pair.src("link")).unwrap();
    let (sent, _) = pair.sync();
    assert_eq!(sent, 1, "a renamed file is not sent");
    assert_eq!(
        (pair.read("a.py"), pair.read("lib/c.py"), pair.read("lib/b.py")),
        ("3".into(), "2".into(), "2".into())
    );
    assert!(pair.old_trees_go("here"));
}

#[test]
fn the_hosts_own_files_stay_and_deleting_takes_only_what_was_brought() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.write("old/b", "2");
    pair.write("old/c", "3");
    pair.sync();
    fs::write(pair.there("mine"), "m").unwrap();
    fs::write(pair.there("old/mine"), "m").unwrap();
    fs::write(pair.there("old/c"), "changed there").unwrap();
    fs::create_dir_all(pair.there("out/deep")).unwrap();
    fs::write(pair.there("out/deep/x"), "x").unwrap();
    fs::remove_dir_all(pair.src("old")).unwrap();
    pair.write("a", "4");
    pair.sync();
    assert_eq!(
        (pair.read("old/b"), pair.read("mine"), pair.read("out/deep/x")),
        ("2".into(), "m".into(), "x".into())
    );
    assert!(fs::symlink_metadata(pair.there("out")).unwrap().is_dir(), "it has moved into the new tree");
    let (_, done) = pair.try_sync(true).unwrap();
    assert!(!pair.there("old/b").exists(), "{done:?}");
    assert_eq!(
        (pair.read("old/mine"), pair.read("old/c"), pair.read("mine")),
        ("m".into(), "changed there".into(), "m".into())
    );
    assert!(!pair.there(".hvtui-peer").exists());
}

#[test]
fn a_job_keeps_its_tree_and_its_outputs_have_one_place() {
    let pair = Pair::new();
    pair.write("code", "one");
    pair.write("pkg/mod", "one");
    pair.sync();
    fs::create_dir(pair.there("out")).unwrap();
    fs::create_dir(pair.there("pkg/cache")).unwrap();
    fs::write(pair.there("log"), "").unwrap();
    let line = "exec 3>>log; n=0; while read _; do n=$((n+1)); cat code pkg/mod | tr '\\n' ' '; echo $n >out/$n; \
                echo $n >pkg/cache/$n; echo $n >&3; echo $n >ckpt$n; mkdir -p new; echo $n >new/$n; echo done; done";
    let mut job = pair.job(line);
    assert_eq!(job.step(), "oneonedone");
    for text in ["two", "three"] {
        pair.write("code", text);
        pair.write("pkg/mod", text);
        pair.sync();
        assert_eq!(job.step(), "oneonedone", "the job sees what it began with");
        assert_eq!(pair.read("code"), text);
    }
    for name in ["out/1", "out/2", "out/3", "pkg/cache/3", "ckpt2"] {
        assert!(pair.there(name).exists(), "{name}");
    }
    assert_eq!(pair.read("log"), "1\n2\n3\n");
    assert!(!pair.trees().is_empty());
    job.end();
    assert_eq!(tidy(&pair.place(), "here"), Vec::<String>::new());
    assert!(pair.old_trees_go("here"));
    for name in ["ckpt3", "new/1", "new/2", "new/3", "out/3"] {
        assert!(pair.there(name).exists(), "{name}");
    }
    assert!(fs::symlink_metadata(pair.there("out")).unwrap().is_dir());
    assert!(!pair.there(".hvtui-peer").exists());
}

#[test]
fn another_file_of_a_job_is_kept_under_another_name() {
    let pair = Pair::new();
    pair.write("code", "one");
    pair.sync();
    let mut job = pair.job("while read _; do echo job >state.new; mv state.new state; echo done; done");
    pair.write("code", "two");
    pair.sync();
    fs::write(pair.there("state"), "mine").unwrap();
    job.step();
    job.end();
    let notes = told(&pair.place());
    assert_eq!((pair.read("state"), pair.read("state.hvtui-1")), ("mine".into(), "job\n".into()));
    assert!(notes[0].contains("state.hvtui-1"), "{notes:?}");
}

#[test]
fn what_is_found_behind_the_answer_is_told_by_the_next_look() {
    let pair = Pair::new();
    pair.write("code", "one");
    pair.sync();
    let mut job = pair.job("while read _; do echo job >state.new; mv state.new state; echo done; done");
    pair.write("code", "two");
    pair.sync();
    fs::write(pair.there("state"), "mine").unwrap();
    job.step();
    job.end();
    pair.write("code", "three");
    let (_, done) = pair.sync();
    assert_eq!(done.notes, Vec::<String>::new(), "none waits for the look");
    let notes = told(&pair.place());
    assert_eq!(pair.read("state.hvtui-1"), "job\n");
    assert!(notes.iter().any(|note| note.contains("state.hvtui-1")), "{notes:?}");
    assert!(!tidy(&pair.place(), "here").iter().any(|note| note.contains("state.hvtui-1")), "told once");
}

#[test]
fn what_a_sync_that_fails_has_taken_up_is_told_by_the_next_one() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    pair.write("a", "2");
    let kept = || vec!["a job has written another x".to_owned()];
    keep_notes(&pair.place(), &kept());
    keep_notes(&pair.place(), &kept());
    // the link is lost before anything is compared, and before the switch
    drop(pair.open());
    let (mut target, snapshot) = pair.open();
    target.compare(snapshot.manifest, false).unwrap();
    drop(target);
    // contents are missing
    let (mut target, snapshot) = pair.open();
    target.compare(snapshot.manifest, false).unwrap();
    assert!(target.switch().is_err());
    drop(target);
    let (_, done) = pair.sync();
    assert_eq!(done.notes, kept());
    // the link is lost before the answer
    let (mut target, snapshot) = pair.open();
    assert!(target.present(snapshot.tree, false).is_some());
    target.tell_later(done.notes);
    target.remove_unused();
    assert_eq!(pair.sync().1.notes, kept());
    assert_eq!(pair.sync().1.notes, Vec::<String>::new(), "once");
}

#[test]
fn an_old_tree_waits_for_every_machine() {
    let pair = Pair::new();
    pair.write("code", "one");
    pair.sync();
    pair.place().mark("there");
    pair.write("code", "two");
    pair.sync();
    assert_eq!(pair.trees().len(), 1);
    assert!(pair.old_trees_go("there"));
}

#[test]
fn an_old_tree_does_not_wait_for_a_machine_that_is_gone() {
    let pair = Pair::new();
    pair.write("code", "one");
    pair.sync();
    let looked_ago = |machine: &str, days: u64| {
        pair.place().mark(machine);
        let path = pair.place().own.join("machines").join(machine);
        let file = fs::File::options().write(true).open(path).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_secs(days * 24 * 3600)).unwrap();
    };
    looked_ago("there", 360);
    pair.write("code", "two");
    pair.sync();
    assert!(tidy(&pair.place(), "here").is_empty());
    assert_eq!(pair.trees().len(), 1, "a machine that may run a job is waited for");
    looked_ago("there", 370);
    let notes = told(&pair.place());
    assert!(notes[0].contains("no longer wait for there: no sync there for a year"), "{notes:?}");
    assert!(pair.old_trees_go("here"));
    let left: Vec<_> =
        fs::read_dir(&pair.place().own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.as_encoded_bytes().starts_with(b"free-")), "{left:?}");
}

#[test]
fn a_tree_of_somebody_else_blocks_no_sync() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make what belongs to somebody else");
        assert!(std::env::var_os("HVTUI_TESTS_STRICT").is_none(), "needs root");
        return;
    }
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    // another user of a folder that all may write to has taken the name that this user was about to make
    let name = ".proj.hvtui-0123456789ab-1";
    let foreign = pair.place().parent.join(name);
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("theirs"), "").unwrap();
    std::os::unix::fs::chown(&foreign, Some(65534), None).unwrap();
    fs::write(journal::making(&pair.place(), name), "").unwrap();
    pair.write("a", "2");
    let (_, done) = pair.sync();
    assert_eq!((pair.read("a"), done.notes), ("2".into(), Vec::new()));
    assert!(foreign.join("theirs").exists(), "it is not ours to remove");
    assert!(!journal::making(&pair.place(), name).exists());
}

#[test]
fn what_is_in_the_way_is_named() {
    let pair = Pair::new();
    pair.write("data", "a file here");
    fs::create_dir_all(pair.there("data")).unwrap();
    fs::write(pair.there("data/mine"), "").unwrap();
    let refused = pair.try_sync(false).unwrap_err().to_string();
    assert!(refused.contains("proj/data: is a folder with files there"), "{refused}");
    assert!(pair.there("data/mine").exists());
    fs::remove_dir_all(pair.there("")).unwrap();
    fs::write(pair.there("").to_str().unwrap().trim_end_matches('/'), "").unwrap();
    let home = pair.dir.path().join("home");
    let refused = Place::of("~/proj", &home, &[]).unwrap_err().to_string();
    assert!(refused.contains("is a file there"), "{refused}");
    for whole in ["~", "~/", "/", "~/../x", "x", "~/a\nb"] {
        assert!(Place::of(whole, &home, &[]).is_err(), "{whole}");
    }
    fs::create_dir(home.join("outside")).unwrap();
    symlink(home.join("outside"), home.join(".other.hvtui")).unwrap();
    let refused = Place::of("~/other", &home, &[]).unwrap().lock().unwrap_err();
    assert!(matches!(refused, crate::sync::error::SyncError::NotOurs { .. }), "{refused:?}");
    assert!(refused.to_string().contains("is not this user's alone"), "{refused}");
    assert!(Place::of("~/state", &home, &[&home.join("state/hvtui")]).is_err());
}

#[test]
fn an_identical_folder_that_no_sync_brought_is_taken_as_it_is() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.write("b", "2");
    fs::create_dir_all(pair.there("")).unwrap();
    fs::write(pair.there("a"), "1").unwrap();
    fs::write(pair.there("b"), "x").unwrap();
    let (sent, done) = pair.sync();
    assert_eq!(sent, 1);
    assert_eq!(done.notes, ["b had been changed there and was replaced by the sync"]);
}

#[test]
fn a_tree_that_was_not_finished_goes_and_a_switch_that_was_cut_is_finished() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    fs::create_dir(pair.there("out")).unwrap();
    let half = pair.place().parent.join(".proj.hvtui-0123456789ab-1");
    fs::create_dir_all(half.join("x")).unwrap();
    fs::write(journal::making(&pair.place(), ".proj.hvtui-0123456789ab-1"), "").unwrap();
    pair.write("a", "2");
    pair.sync();
    assert!(!half.exists());
    // as if it had been cut right behind the exchange
    let place = pair.place();
    let old = place.parent.join(".proj.hvtui-aaaaaaaaaaaa-1");
    fs::rename(&place.target, &old).unwrap();
    fs::create_dir(&place.target).unwrap();
    fs::hard_link(old.join("a"), place.target.join("a")).unwrap();
    symlink("../.proj.hvtui-aaaaaaaaaaaa-1", place.target.join(".hvtui-peer")).unwrap();
    symlink(".hvtui-peer/out", place.target.join("out")).unwrap();
    let ino = fs::metadata(&place.target).unwrap().ino();
    let name = ".proj.hvtui-aaaaaaaaaaaa-1".to_owned();
    journal::Switch { name: name.clone(), ino, moves: vec!["out".into()] }.save(&place).unwrap();
    old::save_list(
        &place,
        &name,
        &[("a".into(), fs::metadata(old.join("a")).unwrap().ino()), ("out".into(), 1)],
    )
    .unwrap();
    let notes = told(&place);
    assert!(notes[0].contains("was cut in its switch"), "{notes:?}");
    assert!(fs::symlink_metadata(pair.there("out")).unwrap().is_dir());
    assert!(pair.old_trees_go("here") && !pair.there(".hvtui-peer").exists(), "{:?}", pair.trees());
    assert_eq!(pair.read("a"), "2");
}

#[test]
fn a_tree_of_which_nothing_is_known_stays_and_is_told() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    // hvtui's own folder was removed by hand while a job worked in an older tree
    let lost = pair.place().parent.join(".proj.hvtui-0123456789ab-1");
    fs::create_dir(&lost).unwrap();
    fs::write(lost.join("checkpoint"), "only copy").unwrap();
    fs::remove_dir_all(&pair.place().own).unwrap();
    pair.write("a", "2");
    let (_, done) = pair.sync();
    assert_eq!(fs::read_to_string(lost.join("checkpoint")).unwrap(), "only copy");
    assert!(done.notes.iter().any(|note| note.contains("nothing is known any more")), "{:?}", done.notes);
}

#[test]
fn a_folder_that_was_replaced_after_a_cut_switch_costs_nothing() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    let place = pair.place();
    let name = ".proj.hvtui-aaaaaaaaaaaa-1".to_owned();
    let old = place.parent.join(&name);
    fs::create_dir_all(old.join("out")).unwrap();
    fs::write(old.join("out/checkpoint"), "only copy").unwrap();
    journal::Switch { name: name.clone(), ino: 1, moves: vec!["out".into()] }.save(&place).unwrap();
    old::save_list(&place, &name, &[("out".into(), fs::metadata(old.join("out")).unwrap().ino())]).unwrap();
    pair.write("a", "2");
    let open = || Target::open(&place, "here", false);
    let refused = std::iter::repeat_with(open).take(10_000).find_map(Result::err).unwrap().to_string();
    assert!(refused.contains("has been replaced since"), "{refused}");
    assert!(old.join("out/checkpoint").exists());
}

#[test]
fn a_folder_that_could_not_move_is_not_removed_with_its_tree() {
    let pair = Pair::new();
    pair.write("a", "1");
    pair.sync();
    let place = pair.place();
    let name = ".proj.hvtui-aaaaaaaaaaaa-1".to_owned();
    let old = place.parent.join(&name);
    fs::create_dir_all(old.join("out")).unwrap();
    fs::write(old.join("out/checkpoint"), "only copy").unwrap();
    symlink(format!("../{name}"), place.target.join(".hvtui-peer")).unwrap();
    symlink(".hvtui-peer/out", place.target.join("out")).unwrap();
    old::save_list(&place, &name, &[("out".into(), fs::metadata(old.join("out")).unwrap().ino())]).unwrap();
    tidy(&place, "here");
    assert_eq!(fs::read_to_string(old.join("out/checkpoint")).unwrap(), "only copy");
    pair.write("a", "2");
    let refused = pair.try_sync(false).unwrap_err().to_string();
    assert!(refused.contains("lies in an older tree"), "{refused}");
}

#[test]
fn two_syncs_of_one_folder_are_one_after_the_other() {
    let pair = Pair::new();
    pair.write("a", "1");
    let (first, _) = pair.open();
    assert!(Target::open(&pair.place(), "here", false).unwrap().is_none());
    drop(first);
    pair.sync();
}
