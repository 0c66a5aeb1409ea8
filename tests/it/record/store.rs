//! The list of runs, and finding the one that a person means.

use std::path::Path;
use std::sync::Arc;

use hvtui::domain::event::{Envelope, Event};
use hvtui::domain::ids::RunId;
use hvtui::domain::run::RunStage;
use hvtui::domain::time::Stamp;
use hvtui::domain::waiting::Waiting;
use hvtui::record::{Error, Store, Writer};

use super::events::run;
use super::write;

fn record(store: &Store, id: &RunId, name: &str, seconds: u64) -> Vec<Envelope> {
    let path = store.path_of(id);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut envelopes = run(2, seconds);
    for envelope in &mut envelopes {
        if let Event::RunCreated { spec } = &mut envelope.event {
            let spec = Arc::make_mut(spec);
            spec.id = id.clone();
            name.clone_into(&mut spec.name);
        }
    }
    write(&path, &envelopes);
    envelopes
}

#[test]
fn a_recording_is_deleted_with_what_lies_beside_it_and_not_while_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    assert_eq!(store.kept().unwrap().count, 0, "before there was any");
    let ids: Vec<RunId> = (1..=2).map(|n| RunId::new(n * 1_000_000, u128::from(n * 7_919))).collect();
    record(&store, &ids[0], "one", 3);
    record(&store, &ids[1], "two", 3);
    std::fs::write(store.path_of(&ids[0]).with_file_name("tree"), [0; 1000]).unwrap();
    let size = |id| std::fs::metadata(store.path_of(id)).unwrap().len();
    let kept = store.kept().unwrap();
    assert_eq!((kept.count, kept.bytes), (2, size(&ids[0]) + 1000 + size(&ids[1])));
    assert!(kept.free.is_some());

    let lock = hvtui::record::Lock::take(&store.path_of(&ids[0])).unwrap();
    assert!(matches!(store.delete(&ids[0]), Err(Error::Busy(_))));
    assert!(store.path_of(&ids[0]).exists());
    drop(lock);
    let freed = size(&ids[0]) + 1000;
    assert_eq!(store.delete(&ids[0]).unwrap(), freed);
    assert!(!store.path_of(&ids[0]).parent().unwrap().exists());
    assert_eq!(store.list().unwrap().runs.len(), 1, "the other one stays");
    assert!(store.delete(&ids[0]).is_err());
    assert!(!store.path_of(&ids[0]).parent().unwrap().exists(), "nothing is made for what is not there");
}

/// Has a folder and its lock look as if nothing had been written there for two minutes.
fn make_old(folder: &Path) {
    let now = std::time::Duration::from_micros(hvtui::clock::now().0.unsigned_abs());
    let then = std::time::SystemTime::UNIX_EPOCH + now - std::time::Duration::from_secs(120);
    for path in [folder.join("lock"), folder.to_owned()].iter().filter(|path| path.exists()) {
        let times = std::fs::FileTimes::new().set_modified(then);
        std::fs::File::open(path).unwrap().set_times(times).unwrap();
    }
}

#[test]
fn what_a_client_has_left_that_was_killed_before_its_first_file_is_listed_and_goes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let ids: Vec<RunId> = (1..=6).map(|n| RunId::new(n * 1_000_000, u128::from(n * 7_919))).collect();
    let of = |id: &RunId| store.path_of(id).parent().unwrap().to_owned();
    // a lock alone, nothing at all, one that a client holds, one that is young, one with something beside it, and a recording
    for id in &ids[..5] {
        std::fs::create_dir_all(of(id)).unwrap();
    }
    for at in [0, 3, 4] {
        std::fs::write(of(&ids[at]).join("lock"), "").unwrap();
    }
    let held = hvtui::record::Lock::take(&store.path_of(&ids[2])).unwrap();
    std::fs::write(of(&ids[4]).join("run.mcap.states"), "kept").unwrap();
    record(&store, &ids[5], "whole", 3);
    for at in [0, 1, 2, 4, 5] {
        make_old(&of(&ids[at]));
    }
    let lost = || {
        let listing = store.list().unwrap();
        assert_eq!(listing.runs.len(), 1);
        listing.unreadable
    };
    let told: Vec<(RunId, bool)> = lost().into_iter().map(|one| (one.run, one.empty.is_some())).collect();
    assert_eq!(told, [(ids[1].clone(), true), (ids[0].clone(), true)]);
    let reason = &lost()[1].reason;
    assert!(
        reason.starts_with("empty; ") && reason.ends_with(&of(&ids[0]).display().to_string()),
        "{reason}"
    );
    assert!(store.is_left_empty(&ids[0]) && !store.is_left_empty(&ids[2]) && !store.is_left_empty(&ids[5]));

    store.sweep();
    let there: Vec<bool> = ids.iter().map(|id| of(id).exists()).collect();
    assert_eq!(there, [false, false, true, true, true, true]);
    assert!(lost().is_empty());
    // its client is killed, too
    drop(held);
    make_old(&of(&ids[2]));
    assert_eq!(lost().len(), 1);
    assert_eq!(store.delete(&ids[2]).unwrap(), 0);
    assert!(!of(&ids[2]).exists() && lost().is_empty());
}

#[test]
fn runs_are_listed_newest_first_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    assert!(store.list().unwrap().runs.is_empty());
    assert!(matches!(store.find("last"), Err(Error::NoRuns(_))));

    let ids: Vec<RunId> = (1..=4).map(|n| RunId::new(n * 1_000_000, u128::from(n * 7_919))).collect();
    let whole = record(&store, &ids[0], "whole", 30);
    record(&store, &ids[1], "cut", 30);
    record(&store, &ids[2], "torn", 30);
    record(&store, &ids[3], "newest", 2);
    let cut = std::fs::read(store.path_of(&ids[1])).unwrap();
    std::fs::write(store.path_of(&ids[1]), &cut[..cut.len() / 2]).unwrap();
    std::fs::write(store.path_of(&ids[2]), b"not a recording").unwrap();
    std::fs::create_dir_all(folder.path().join("runs/notes")).unwrap();

    let listing = store.list().unwrap();
    let names: Vec<&str> = listing.runs.iter().map(|run| run.spec.name.as_str()).collect();
    assert_eq!(names, ["newest", "cut", "whole"]);
    let last = &listing.runs[2];
    assert_eq!((last.stage, last.outcome.as_ref().unwrap().exit_code()), (Some(RunStage::Ended), 0));
    assert_eq!(last.last_at, whole.last().unwrap().at);
    assert_eq!(last.damage, None);
    let cut = &listing.runs[1];
    assert_eq!((cut.stage, &cut.outcome), (Some(RunStage::Training), &None));
    assert!(cut.damage.as_ref().unwrap().starts_with("recording is cut at "), "{:?}", cut.damage);
    assert!(cut.last_at > Stamp(0) && cut.last_at < last.last_at);
    assert_eq!(listing.unreadable.len(), 1);
    assert_eq!(listing.unreadable[0].run, ids[2]);
    assert!(listing.unreadable[0].reason.contains("is not a recording"));

    assert_eq!(store.find("").unwrap(), store.path_of(&ids[3]));
    assert_eq!(store.find("last").unwrap(), store.path_of(&ids[3]));
    assert_eq!(store.find(&ids[0].short().to_lowercase()).unwrap(), store.path_of(&ids[0]));
    assert_eq!(store.find("whole").unwrap(), store.path_of(&ids[0]));
    let file = store.path_of(&ids[1]);
    assert_eq!(store.find(file.to_str().unwrap()).unwrap(), file);
    let missing = store.find("zzzz").unwrap_err().to_string();
    assert!(missing.contains("'zzzz'") && missing.contains(" newest"), "{missing}");
}

/// That a run is made ready is told of its own client's recording alone, from its first moment on.
#[test]
fn a_run_that_a_client_has_attached_to_is_not_taken_for_one_that_is_made_ready() {
    let whole = run(2, 1);
    let created = whole.iter().find(|envelope| matches!(envelope.event, Event::RunCreated { .. })).unwrap();
    let Event::RunCreated { spec } = &created.event else { panic!("{created:?}") };
    let entered = |stage| Event::StageEntered { stage, waiting_for: Waiting::default() };
    let attached = Event::Attached { since: None, until: None };
    let (of_guest, of_owner) = (vec![attached, entered(RunStage::Start)], vec![entered(RunStage::Connect)]);
    for (events, is_made_ready) in [(Vec::new(), true), (of_owner, true), (of_guest, false)] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let path = store.path_of(&spec.id);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // what waits for the end of its chunk is not on the disk
        let mut writer = Writer::new(std::fs::File::create(&path).unwrap()).unwrap();
        let all = std::iter::once(created.event.clone()).chain(events);
        for (seq, event) in (0..).zip(all) {
            writer.push(Envelope { seq, event, ..created.clone() }).unwrap();
        }
        let _lock = hvtui::record::Lock::take(&path).unwrap();
        let runs = store.list().unwrap().runs;
        assert_eq!(runs[0].is_made_ready, is_made_ready, "{:?}", runs[0].stage);
    }
}

#[test]
fn an_ambiguous_name_lists_who_it_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for n in 1..=7 {
        record(&store, &RunId::new(n * 1_000_000, u128::from(n)), "mnist", 1);
    }
    let error = store.find("mnist").unwrap_err().to_string();
    assert!(error.contains("write more of the id") && error.contains("2 more"), "{error}");
}

/// Runs are called after their scripts, and the script lies in the folder in which one works.
#[test]
fn a_name_that_a_file_has_too_is_the_runs_unless_the_file_is_one_of_data() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let id = RunId::new(1_000_000, 1);
    record(&store, &id, "store.rs", 1);
    let here = std::env::current_dir().unwrap();
    let script =
        std::fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/record/store.rs")).unwrap();
    assert_eq!(store.find("store.rs").unwrap(), store.path_of(&id));
    // a path is a path
    assert_eq!(store.find(script.to_str().unwrap()).unwrap(), script);
    assert!(here.join("Cargo.toml").is_file());
    assert_eq!(store.find("Cargo.toml").unwrap(), Path::new("Cargo.toml"), "no run is called so");
    record(&store, &RunId::new(2_000_000, 2), "Cargo.toml", 1);
    assert_eq!(store.find("Cargo.toml").unwrap(), store.path_of(&RunId::new(2_000_000, 2)));
}
