use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::domain::fixtures::host_run;
use crate::domain::ids::RunId;
use crate::domain::lease::LeasePlan;
use crate::domain::time::HostTime;
use crate::supervise::lease::check;
use crate::supervise::lease::locker::LockFile;
use crate::supervise::lease::queue::Queued;

fn place() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().canonicalize().unwrap();
    (home, path)
}

fn spec(dir: &std::path::Path, run: u128, gpus: &[&str]) -> HostRun {
    let held = gpus.iter().map(|gpu| GpuUuid::from(*gpu)).zip((0..).map(Rank)).collect();
    HostRun {
        run: RunId::new(1, run),
        name: "mnist".to_owned(),
        leases: LeasePlan { dir: dir.to_str().map(str::to_owned), held, ..LeasePlan::default() },
        ..host_run(Vec::new())
    }
}

fn held(dir: &std::path::Path) -> Vec<Lease> {
    let gpus: Vec<GpuUuid> = ["GPU-0", "GPU-1", "GPU-2"].map(GpuUuid::from).into();
    look::look(&LeaseDir::open(dir.to_str()).unwrap(), &gpus).held
}

fn busy(result: Result<Claims, LeaseError>) -> Lease {
    match result {
        Err(LeaseError::Busy(mut leases)) => leases.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_gets_all_of_its_gpus_or_none_and_the_loser_hears_who_has_them() {
    let (_home, dir) = place();
    let claims = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let lease = busy(claim(&spec(&dir, 2, &["GPU-2", "GPU-1", "GPU-0"])));
    assert_eq!((lease.gpu.as_str(), lease.own, lease.run), ("GPU-1", true, Some(RunId::new(1, 1))));
    assert_eq!(lease.name.as_deref(), Some("mnist"));
    let gpus: Vec<String> = held(&dir).iter().map(|lease| lease.gpu.to_string()).collect();
    assert_eq!(gpus, ["GPU-1"], "what the loser had is free again");
    assert!(matches!(check(&spec(&dir, 2, &["GPU-1"])), Err(LeaseError::Busy(_))));
    check(&spec(&dir, 1, &["GPU-1"])).unwrap();
    drop(claims);
    assert_eq!(held(&dir), []);
    drop(claim(&spec(&dir, 2, &["GPU-2", "GPU-1", "GPU-0"])).unwrap());
}

#[test]
fn who_has_a_lock_is_named_before_its_note_is_in_its_place() {
    let (_home, dir) = place();
    let open = LeaseDir::open(dir.to_str()).unwrap();
    let gpu = GpuUuid::from("GPU-1");
    // as a holder stands that is given no processor between its lock and its note
    let draft = |run| {
        let note = new_note(&spec(&dir, run, &["GPU-1"]), Rank(3), own_process().unwrap());
        Draft::write(&open, &note_file(&open, &gpu, own_uid()), &note).unwrap()
    };
    let first = draft(1);
    let _lock = lock(&open, &gpu, FlockOperation::NonBlockingLockExclusive).unwrap().unwrap();
    let told = || match check(&spec(&dir, 9, &["GPU-1"])) {
        Err(LeaseError::Busy(mut held)) => held.pop().unwrap(),
        other => panic!("{other:?}"),
    };
    let lease = told();
    assert_eq!((lease.run, lease.rank), (Some(RunId::new(1, 1)), Some(Rank(3))));
    // of two of one process it is not known which of them has the lock
    let second = draft(2);
    assert_eq!((told().run, told().pid), (None, Some(std::process::id())));
    drop(first);
    assert_eq!(told().run, Some(RunId::new(1, 2)));
    drop(second);
    assert_eq!(told().run, None);
}

#[test]
fn who_has_both_locks_and_no_note_is_named_with_its_process() {
    let (_home, dir) = place();
    let _claims = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let open = LeaseDir::open(dir.to_str()).unwrap();
    std::fs::remove_file(dir.join(note_file(&open, &GpuUuid::from("GPU-1"), own_uid()))).unwrap();
    let lease = held(&dir).pop().unwrap();
    assert_eq!((lease.run, lease.user), (None, Some(user_name(own_uid()))));
    assert_eq!(lease.pid, Some(std::process::id()), "which its name in the kernel does not tell");
}

#[test]
fn who_denies_a_gpu_by_a_lock_in_common_is_named() {
    let (_home, dir) = place();
    let open = LeaseDir::open(dir.to_str()).unwrap();
    let gpu = GpuUuid::from("GPU-1");
    let _common = lock(&open, &gpu, FlockOperation::NonBlockingLockShared).unwrap().unwrap();
    let lease = busy(claim(&spec(&dir, 1, &["GPU-1"])));
    assert_eq!((lease.pid, lease.own), (Some(std::process::id()), false), "no run could share it");
    let command = lease.command.clone().expect("its command");
    let words = LeaseError::Busy(vec![lease]).to_string();
    let (own, pid) = (crate::procs::status::user_name(own_uid()), std::process::id());
    let remedy = format!("not known to be a run: it is free when process {pid} ends");
    assert_eq!(words, format!("GPU-1 is busy: leased by {own} (pid {pid}: {command}), {remedy}"));
}

#[test]
fn who_was_left_a_lock_is_named_by_its_open_files() {
    let (_home, dir) = place();
    let open = LeaseDir::open(dir.to_str()).unwrap();
    let gpu = GpuUuid::from("GPU-1");
    let own = user_name(own_uid());
    for how in [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared] {
        // this process took it, and lives: a number in the kernel's list is not yet the holder
        let taken = lock(&open, &gpu, how).unwrap().unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").stdin(taken).spawn().unwrap();
        // a look sees a lock of one holder alone, a launch one in common too
        let spec = spec(&dir, 1, &["GPU-1"]);
        let told = || busy(check(&spec).and_then(|()| claim(&spec)));
        let mut lease = told();
        // a process that another test is starting has it open for a moment too
        for _ in 0..10 {
            if lease.pid != Some(child.id()) {
                lease = told();
            }
        }
        assert_eq!((lease.pid, lease.user.as_ref()), (Some(child.id()), Some(&own)));
        assert_eq!(lease.command.as_deref(), Some("sleep 600"));
        let file = LockFile::of(&open, &gpu).unwrap();
        assert_eq!(file.keeper(HostTime(0)), None, "there is no time left to look for it");
        child.kill().unwrap();
        child.wait().unwrap();
        drop(claim(&spec).unwrap());
    }
}

#[test]
fn of_who_took_a_lock_and_has_ended_that_is_told_and_no_other_process_is_named() {
    let (_home, dir) = place();
    let open = LeaseDir::open(dir.to_str()).unwrap();
    let gpu = GpuUuid::from("GPU-1");
    let _taken = lock(&open, &gpu, FlockOperation::NonBlockingLockExclusive).unwrap().unwrap();
    let file = LockFile::of(&open, &gpu).unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let lease = look::by_pid(&gpu, &file, ended.id(), false);
    assert_eq!(lease.holder(), format!("someone (pid {}: [has ended])", ended.id()));
    let words = LeaseError::Busy(vec![lease]).to_string();
    assert!(words.contains("has ended and another one keeps it: `sudo fuser -v`"), "{words}");
    // a process that got the number since, and one that has the lock
    let mut other = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let lease = look::by_pid(&gpu, &file, other.id(), true);
    assert_eq!((lease.user, lease.command.as_deref()), (None, Some("[has ended]")));
    other.kill().unwrap();
    other.wait().unwrap();
    let own = look::by_pid(&gpu, &file, std::process::id(), true);
    assert_eq!((own.user, own.own), (Some(user_name(own_uid())), true));
}

#[test]
fn a_holder_that_is_no_run_comes_with_what_to_do() {
    let words = |user: Option<&str>, pid, run| {
        let lease = Lease { user: user.map(str::to_owned), pid, run, ..Lease::unknown("G") };
        LeaseError::Busy(vec![lease]).to_string()
    };
    assert!(
        words(Some("li"), Some(7), None)
            .ends_with("(pid 7), not known to be a run: it is free when process 7 ends")
    );
    assert!(words(Some("li"), None, None).ends_with("`sudo ss -xap | grep G` tells its process"));
    assert!(words(None, None, None).contains("`sudo fuser -v` on its lock file, G.lock in /run/lock"));
    let run = RunId::new(1, 2);
    assert_eq!(
        words(Some("li"), Some(7), Some(run.clone())),
        format!("G is busy: leased by li for run {}", run.short())
    );
    let lease = Lease { user: Some("li".to_owned()), run: Some(run.clone()), ..Lease::unknown("G") };
    let named = LeaseError::Busy(vec![lease]).words(&|gpu| format!("GPU 3 ({gpu})"));
    assert!(named.starts_with("GPU 3 (G) is busy: leased by li"), "{named}");
}

#[test]
fn a_lock_whose_file_is_gone_still_excludes_and_tells_whose_it_is() {
    let (_home, dir) = place();
    let own = user_name(own_uid());
    let gone = || {
        for file in std::fs::read_dir(&dir).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    };
    let claims = claim(&spec(&dir, 1, &["GPU-0"])).unwrap();
    gone();
    assert_eq!(held(&dir).pop().unwrap().user, Some(own.clone()));
    for other in [spec(&dir, 2, &["GPU-0"]), sliced(&dir, 2, &["MIG-1"])] {
        let lease = busy(claim(&other));
        assert_eq!((lease.gpu.as_str(), lease.user), ("GPU-0", Some(own.clone())));
    }
    assert!(matches!(check(&spec(&dir, 2, &["GPU-0"])), Err(LeaseError::Busy(_))));
    drop(claims);
    let slice = claim(&sliced(&dir, 1, &["MIG-1"])).unwrap();
    gone();
    assert_eq!(busy(claim(&spec(&dir, 2, &["GPU-0"]))).user, Some(own.clone()));
    assert_eq!(busy(claim(&sliced(&dir, 2, &["MIG-1"]))).user, Some(own));
    let beside = claim(&sliced(&dir, 2, &["MIG-2"])).unwrap();
    drop((slice, beside));
    drop(claim(&spec(&dir, 2, &["GPU-0"])).unwrap());
}

#[test]
fn ones_own_gpu_can_be_shared() {
    let (_home, dir) = place();
    let _claims = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let mut second = spec(&dir, 2, &["GPU-1", "GPU-2"]);
    second.leases.share = true;
    check(&second).unwrap();
    let more = claim(&second).unwrap();
    let runs = |leases: Vec<Lease>| leases.into_iter().map(|lease| lease.run.unwrap()).collect::<Vec<_>>();
    let [first, second] = [RunId::new(1, 1), RunId::new(1, 2)];
    assert_eq!(runs(held(&dir)), [first, second.clone()]);
    let beside = || look::look(&LeaseDir::open(dir.to_str()).unwrap(), &[GpuUuid::from("GPU-1")]).beside;
    assert_eq!(runs(beside()), [second], "who else is there");
    drop(more);
    assert_eq!(beside(), []);
}

/// A run on slices of GPU-0.
fn sliced(dir: &std::path::Path, run: u128, slices: &[&str]) -> HostRun {
    let mut spec = spec(dir, run, slices);
    spec.leases.slice_of =
        spec.leases.held.keys().map(|slice| (slice.clone(), GpuUuid::from("GPU-0"))).collect();
    spec
}

#[test]
fn slices_of_a_gpu_are_leased_beside_each_other_and_exclude_the_whole() {
    let (_home, dir) = place();
    let first = claim(&sliced(&dir, 1, &["MIG-1", "MIG-2"])).unwrap();
    let second = claim(&sliced(&dir, 2, &["MIG-3"])).unwrap();
    assert_eq!(busy(claim(&sliced(&dir, 3, &["MIG-3"]))).run, Some(RunId::new(1, 2)));
    assert_eq!(held(&dir), [], "the GPU itself is free");
    assert_eq!(busy(claim(&spec(&dir, 4, &["GPU-0"]))).gpu.as_str(), "GPU-0");
    drop(first);
    assert_eq!(busy(claim(&spec(&dir, 4, &["GPU-0"]))).gpu.as_str(), "GPU-0", "a slice is left");
    drop(second);
    let whole = claim(&spec(&dir, 4, &["GPU-0"])).unwrap();
    let refused = busy(claim(&sliced(&dir, 5, &["MIG-1"])));
    assert_eq!((refused.gpu.as_str(), refused.run), ("GPU-0", Some(RunId::new(1, 4))));
    drop(whole);
    drop(claim(&sliced(&dir, 5, &["MIG-1"])).unwrap());
}

#[test]
fn a_slice_waits_for_a_whole_gpu_that_is_given_back_just_now() {
    let (_home, dir) = place();
    drop(claim(&spec(&dir, 1, &["GPU-0"])).unwrap());
    let places = LeaseDir::open(dir.to_str()).unwrap();
    let whole = super::open(&places, &lock_file(&places, &GpuUuid::from("GPU-0")).unwrap()).unwrap();
    flock(&whole, FlockOperation::NonBlockingLockExclusive).unwrap();
    let later = std::thread::spawn(move || {
        std::thread::sleep(NOTE_PAUSE * 5);
        drop(whole);
    });
    drop(claim(&sliced(&dir, 2, &["MIG-1"])).unwrap());
    later.join().unwrap();
}

#[test]
fn a_slice_is_handed_over_with_the_lock_of_its_gpu() {
    let (_home, dir) = place();
    let spec_of = sliced(&dir, 1, &["MIG-1", "MIG-2"]);
    let claims = claim(&spec_of).unwrap();
    let copies: Vec<(GpuUuid, OwnedFd)> =
        claims.descriptors().map(|(gpu, fd)| (gpu.clone(), fd.try_clone_to_owned().unwrap())).collect();
    assert_eq!(copies.len(), 6);
    let part = |keep: &[usize]| {
        let kept = copies.iter().enumerate().filter(|(at, _)| keep.contains(at));
        kept.map(|(_, (gpu, fd))| (gpu.clone(), fd.try_clone().unwrap())).collect::<Vec<_>>()
    };
    for missing in 0..6 {
        let rest: Vec<usize> = (0..6).filter(|at| *at != missing).collect();
        assert!(matches!(Claims::received(&spec_of, part(&rest)), Err(LeaseError::Lost(_))), "{missing}");
    }
    let received = Claims::received(&spec_of, part(&[0, 1, 2, 3, 4, 5])).unwrap();
    drop(copies);
    claims.passed_on();
    assert_eq!(busy(claim(&spec(&dir, 2, &["GPU-0"]))).gpu.as_str(), "GPU-0");
    drop(received);
    drop(claim(&spec(&dir, 2, &["GPU-0"])).unwrap());
}

#[test]
fn who_came_beside_a_run_keeps_the_gpu_when_that_ends() {
    let (_home, dir) = place();
    let first = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let mut shared = spec(&dir, 2, &["GPU-1"]);
    shared.leases.share = true;
    let second = claim(&shared).unwrap();
    drop(first);
    assert_eq!(held(&dir).pop().unwrap().run, Some(RunId::new(1, 2)));
    assert_eq!(busy(claim(&spec(&dir, 3, &["GPU-1"]))).run, Some(RunId::new(1, 2)));
    let mut third = spec(&dir, 3, &["GPU-1"]);
    third.leases.share = true;
    let third = claim(&third).unwrap();
    assert_eq!(held(&dir).pop().unwrap().run, Some(RunId::new(1, 3)), "the lock was free");
    drop((second, third));
    drop(claim(&spec(&dir, 4, &["GPU-1"])).unwrap());
}

#[test]
fn what_is_handed_over_is_held_without_a_gap() {
    let (_home, dir) = place();
    let first = claim(&spec(&dir, 1, &["GPU-2", "GPU-0"])).unwrap();
    let mut shared = spec(&dir, 2, &["GPU-1", "GPU-2"]);
    shared.leases.share = true;
    let second = claim(&shared).unwrap();
    let copies = |claims: &Claims| -> Vec<(GpuUuid, OwnedFd)> {
        claims.descriptors().map(|(gpu, fd)| (gpu.clone(), fd.try_clone_to_owned().unwrap())).collect()
    };
    let got = Claims::received(&shared, copies(&second)).unwrap();
    second.passed_on();
    let gpus = |leases: Vec<Lease>| leases.into_iter().map(|lease| lease.gpu.to_string()).collect::<Vec<_>>();
    assert_eq!(gpus(held(&dir)), ["GPU-0", "GPU-1", "GPU-2"]);
    let mut swapped = copies(&first);
    // the locks; each is followed by its name
    let (a, b) = (swapped[0].0.clone(), swapped[2].0.clone());
    (swapped[0].0, swapped[2].0) = (b, a);
    let wrong = Claims::received(&spec(&dir, 1, &["GPU-2", "GPU-0"]), swapped);
    assert!(matches!(wrong, Err(LeaseError::Lost(_))), "each lock is the one of its GPU");
    let few = Claims::received(&spec(&dir, 1, &["GPU-2", "GPU-0"]), copies(&first).split_off(1));
    assert!(matches!(few, Err(LeaseError::Lost(_))), "and none is missing");
    drop(first);
    drop(got);
    assert_eq!(gpus(held(&dir)), Vec::<String>::new());
}

#[test]
fn a_mark_that_others_lock_counts_only_while_its_process_lives() {
    let (_home, dir) = place();
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let mut shared = spec(&dir, 2, &["GPU-1"]);
    shared.leases.share = true;
    let first = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let mut second = claim(&shared).unwrap();
    let copy = second.descriptors().next().unwrap().1.try_clone_to_owned().unwrap();
    second.handed_over(Rank(0), &Identity::of(child.id()).unwrap());
    drop(first);
    assert_eq!(held(&dir).pop().unwrap().pid, Some(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(held(&dir), [], "locked, and its process is dead");
    drop(copy);
}

#[test]
fn a_lock_goes_on_with_the_process_that_inherited_it_and_ends_with_it() {
    let (_home, dir) = place();
    let mut claims = claim(&spec(&dir, 1, &["GPU-1"])).unwrap();
    let mut child =
        claims.inherit(Rank(0), || std::process::Command::new("sleep").arg("600").spawn()).unwrap();
    claims.handed_over(Rank(0), &Identity::of(child.id()).unwrap());
    drop(claims);
    let lease = busy(claim(&spec(&dir, 2, &["GPU-1"])));
    assert_eq!(lease.pid, Some(child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(held(&dir), [], "its note is left and means nothing");
    drop(claim(&spec(&dir, 2, &["GPU-1"])).unwrap());
}

#[test]
fn what_was_planted_is_refused_and_left_alone() {
    let (_home, dir) = place();
    let victim = dir.join("victim");
    std::fs::write(&victim, "kept").unwrap();
    std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o600)).unwrap();
    symlink(&victim, dir.join("GPU-0.lock")).unwrap();
    std::fs::create_dir(dir.join("GPU-1.lock")).unwrap();
    for gpu in ["GPU-0", "GPU-1"] {
        let error = claim(&spec(&dir, 1, &[gpu])).unwrap_err();
        assert!(matches!(error, LeaseError::File { .. }), "{error}");
    }
    symlink(&victim, dir.join(format!("GPU-2.{}.json", own_uid()))).unwrap();
    drop(claim(&spec(&dir, 1, &["GPU-2"])).unwrap());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    assert_eq!(std::fs::metadata(&victim).unwrap().permissions().mode() & 0o777, 0o600);
    for name in ["../x", "", "a/b", "a.b"] {
        assert!(matches!(claim(&spec(&dir, 1, &[name])), Err(LeaseError::BadName(_))), "{name:?}");
    }
}

#[test]
fn a_lock_that_says_nothing_is_told_by_its_process() {
    let (_home, dir) = place();
    std::fs::write(dir.join("GPU-0.lock"), "").unwrap();
    let file = std::fs::File::open(dir.join("GPU-0.lock")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let all = held(&dir);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].pid, all[0].run.clone(), all[0].own), (Some(std::process::id()), None, true));
}

#[test]
fn tickets_stand_in_order_while_their_owners_live() {
    let (_home, dir) = place();
    let open = || LeaseDir::open(dir.to_str()).unwrap();
    let join = |n| Queued::join(open(), &RunId::new(n, 0), "job", &[GpuUuid::from("GPU-0")]).unwrap();
    let (late, early) = (join(9), join(3));
    let queue = || look::look(&open(), &[]).queue.into_iter().map(|ticket| ticket.id).collect::<Vec<_>>();
    assert_eq!(queue(), [RunId::new(3, 0), RunId::new(9, 0)]);
    drop(early);
    assert_eq!(queue(), [RunId::new(9, 0)]);
    // another process of ours stands in for it, under the same name
    let again = join(9);
    drop(late);
    assert_eq!(queue(), [RunId::new(9, 0)], "not the other one's");
    drop(again);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

/// In a process of its own: a child that another test of this process is just starting has copies of the locks until it executes its
/// program, and so holds a GPU that was given back.
#[test]
fn of_two_that_race_exactly_one_gets_all_in_every_round() {
    const ALONE: &str = "HVTUI_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let name = concat!(module_path!(), "::of_two_that_race_exactly_one_gets_all_in_every_round");
        alone.args(["--exact", name.strip_prefix("hvtui::").unwrap()]).env(ALONE, "1");
        let ran = alone.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (_home, dir) = place();
    for round in 0..50 {
        let start = std::sync::Barrier::new(2);
        let race = |run: u128, gpus: &[&str]| {
            start.wait();
            claim(&spec(&dir, run, gpus))
        };
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| race(round * 2, &["GPU-0", "GPU-1", "GPU-2"]));
            let other = scope.spawn(|| race(round * 2 + 1, &["GPU-2", "GPU-1", "GPU-0"]));
            (one.join().unwrap(), other.join().unwrap())
        });
        let (winner, loser) = if one.is_ok() { (one, other) } else { (other, one) };
        assert!(winner.is_ok(), "round {round}: none: {winner:?}, {loser:?}");
        let holder = busy(loser);
        assert!(holder.run.is_some(), "round {round}: the loser hears who: {holder:?}");
    }
}
