//! The command, with real scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::domain::alerts::{Alert, Alerts};
use crate::domain::event::{Envelope, Event, Origin};
use crate::domain::ids::RunId;
use crate::domain::lease::{Lease, Leases};
use crate::domain::world::World;

/// An alert of a run `name` that is live.
fn live(number: u128, name: &str) -> AlertObject {
    let lease = Lease {
        user: Some("li".to_owned()),
        own: true,
        run: Some(RunId::new(1, number)),
        name: Some(name.to_owned()),
        ..Lease::unknown("GPU-0")
    };
    let event = Event::LeasesTold { leases: Leases { held: vec![lease], ..Leases::default() } };
    let mut world = World::default();
    let at = Stamp(1_700_000_000_123_456);
    world.apply(&Envelope { seq: 1, at, origin: Origin::Host("gpu-a".into()), event });
    let news = Alerts::news_since(&world.alerts, 0);
    assert!(news.iter().all(|news| Alert::is_moment(&news.alert)));
    AlertObject::of(&news[0], at)
}

fn script(dir: &Path, text: &str) -> String {
    let path = dir.join("alert.sh");
    fs::write(&path, format!("#!/bin/sh\ncd {}\n{text}\n", dir.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path.display().to_string()
}

async fn executed(argv: &[&str], object: &AlertObject, deadline: Duration) -> Result<(), String> {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    run(&argv, object, deadline).await
}

#[tokio::test]
async fn the_alert_comes_as_json_as_variables_and_as_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let text = "cat > json\nprintf '%s\\n' \"$@\" > arguments\n\
                printf '%s\\n' \"$HVTUI_ALERT_KIND\" \"$HVTUI_ALERT_STATE\" \"$HVTUI_ALERT_WORDS\" > variables";
    let script = script(dir.path(), text);
    let object = live(1, "$(touch here); {kind}");
    let argv = [script.as_str(), "hvtui: {kind} {x}", "{words}", "{gpu}", "}{", "{"];
    executed(&argv, &object, DEADLINE).await.unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let words = "$(touch here); {kind} of li is live on gpu-a";
    assert_eq!(read("arguments"), format!("hvtui: live_run {{x}}\n{words}\n\n}}{{\n{{\n"));
    assert_eq!(read("variables"), format!("live_run\nevent\n{words}\n"));
    assert!(!dir.path().join("here").exists(), "no shell reads it");
    let json: serde_json::Value = serde_json::from_str(&read("json")).unwrap();
    assert_eq!(json, serde_json::to_value(&object).unwrap());
    assert_eq!(json["at"], "2023-11-14T22:13:20.123Z");
    assert_eq!((&json["words"], &json["severity"]), (&words.into(), &"look".into()));
}

#[tokio::test]
async fn a_command_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let object = live(1, "x");
    let missing = executed(&["/nowhere/notify"], &object, DEADLINE).await;
    assert_eq!(missing, Err("no such file or directory".to_owned()));
    let script = script(dir.path(), "echo first >&2; printf 'no \\033[31mdisplay' >&2; exit 3");
    let failed = executed(&[&script], &object, DEADLINE).await;
    assert_eq!(failed, Err("exit status: 3: no ␛[31mdisplay".to_owned()));
    assert_eq!(executed(&["true"], &object, DEADLINE).await, Ok(()), "one that does not read its input");
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_what_it_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let script = script(dir.path(), "sleep 600 & echo $! > child\nwait");
    let hung = executed(&[&script], &live(1, "x"), Duration::from_secs(2)).await;
    assert_eq!(hung, Err("killed after 2 s".to_owned()));
    let child = fs::read_to_string(dir.path().join("child")).unwrap();
    let stat = Path::new("/proc").join(child.trim()).join("stat");
    // a zombie is dead
    let dead = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    let waited = time::timeout(Duration::from_secs(20), async {
        while !dead() {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "the child lives");
}

#[tokio::test]
async fn a_command_that_leaves_a_process_behind_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let script = script(dir.path(), "sleep 20 & echo $! > child");
    assert_eq!(executed(&[&script], &live(1, "x"), Duration::from_secs(10)).await, Ok(()));
    let child: i32 = fs::read_to_string(dir.path().join("child")).unwrap().trim().parse().unwrap();
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn one_of_a_kind_runs_at_a_time_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    // the lock is a folder: a second one that runs meanwhile fails
    let text = "mkdir lock || exit 9\nsed 's/.*\"run\":\"\\([^\"]*\\)\".*/\\1/' >> runs\nrmdir lock\nexit 1";
    let mut command = AlertCommand::new(Some(vec![script(dir.path(), text)]));
    let objects: Vec<AlertObject> = (0..5).map(|number| live(number, "x")).collect();
    for object in &objects {
        assert_eq!(command.execute(object.clone()), None);
    }
    for _ in &objects {
        let why = time::timeout(Duration::from_secs(60), command.failure()).await.unwrap();
        assert!(why.ends_with("exit status: 1"), "{why}");
    }
    let runs: Vec<String> = objects.iter().map(|object| object.property("run")).collect();
    let told = fs::read_to_string(dir.path().join("runs")).unwrap();
    assert_eq!(told.lines().collect::<Vec<_>>(), runs);
}

#[tokio::test]
async fn too_many_are_dropped_with_a_word_and_no_command_is_no_fault() {
    let mut command = AlertCommand::new(Some(vec!["sleep".to_owned(), "60".to_owned()]));
    for number in 0..=WAITING as u128 {
        assert_eq!(command.execute(live(number, "x")), None);
    }
    let dropped = command.execute(live(99, "x")).unwrap();
    assert!(
        dropped.starts_with("the alerts' command is slow: run ") && dropped.ends_with("was dropped"),
        "{dropped}"
    );
    assert_eq!(AlertCommand::new(None).execute(live(1, "x")), None);
}
