//! The job `mnist` on files of the formats in which people have MNIST; what is in them are the digits of `assets/`,
//! scaled (`tests/fixtures/idx/make`). And `synthetic`, which has no files.

#![expect(clippy::print_stderr, reason = "a test that can not run says so")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::group_config::{config, own_loopback};
use crate::common::in_time::OutputInTime;
use hvtui::worker::mnist::{Found, Mnist, find};
use hvtui::worker::{RankEnv, SyntheticOptions, TrainOptions, run_as};

/// The files, in a folder of their own; `None` where there is no Python.
fn made() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/idx/make");
    match Command::new("python3").arg(script).arg(folder.path()).output_in_time() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(folder)
        }
        Err(error) => {
            assert!(std::env::var("HVTUI_TESTS_STRICT").as_deref() != Ok("1"), "python3: {error}");
            eprintln!("skipped: python3 makes the files: {error}");
            None
        }
    }
}

fn npz(folder: &Path) -> Mnist {
    let found = find(Some(folder), None).unwrap();
    assert!(matches!(found, Found::Npz(_)), "{found:?}");
    Mnist::open(&found).unwrap()
}

#[test]
fn both_formats_give_equal_images() {
    let Some(folder) = made() else { return };
    let whole = npz(folder.path());
    std::fs::remove_file(folder.path().join("mnist.npz")).unwrap();
    let found = find(Some(folder.path()), None).unwrap();
    assert!(matches!(found, Found::Idx(_)), "{found:?}");
    assert_eq!(Mnist::open(&found).unwrap(), whole);
}

/// What each rank printed.
fn train(options: &TrainOptions, world: u32) -> Vec<String> {
    let at = own_loopback();
    std::thread::scope(|scope| {
        let rank = |rank| {
            scope.spawn(move || {
                let group = (world > 1).then(|| config(at, rank, world, Duration::from_secs(60)));
                let mut out = Vec::new();
                run_as(options, &RankEnv { rank, world, place: None, report: None, group }, &mut out)
                    .unwrap();
                String::from_utf8(out).unwrap()
            })
        };
        let ranks: Vec<_> = (0..world).map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// What stands behind `key` in the line of the last epoch.
fn metric(printed: &str, key: &str) -> f64 {
    let line = printed.lines().rfind(|line| line.starts_with("epoch")).unwrap();
    let (_, behind) = line.split_once(&format!(" {key} ")).unwrap();
    behind.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn mnist_trains_on_one_rank_and_two() {
    let Some(folder) = made() else { return };
    let data = Some(folder.path().to_owned());
    let options = TrainOptions {
        job: "mnist".to_owned(),
        epochs: Some(1),
        batch: Some(32),
        seed: 1,
        data,
        ..Default::default()
    };
    for world in [1, 2] {
        let printed = train(&options, world);
        assert!(printed[0].contains("parameters 1199882 steps 45\n"), "{}", printed[0]);
        let source =
            format!("1437 images to train on, 360 held out: {}/mnist.npz\n", folder.path().display());
        assert!(printed[0].contains(&source), "{}", printed[0]);
        assert!(metric(&printed[0], "accuracy") > 0.6, "{}", printed[0]);
        let weights = |rank: &String| rank.lines().last().unwrap().to_owned();
        assert!(printed.iter().all(|rank| weights(rank) == weights(&printed[0])));
    }
}

#[test]
fn what_is_wrong_with_the_data_ends_a_rank_with_one_message() {
    let Some(folder) = made() else { return };
    let npz = folder.path().join("mnist.npz");
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str], data: &Path| {
        let mut command = Command::new(crate::common::program::hvtui());
        command.args(["train"]).args(args).env_clear().env("HOME", home.path()).current_dir(home.path());
        let output = command.env("HVTUI_DATA", data).output_in_time().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["mnist"], Path::new(""));
    let keras = home.path().join(".keras/datasets/mnist.npz");
    assert!(code == Some(1) && said.contains(keras.to_str().unwrap()), "{code:?} {said}");
    let mut bytes = std::fs::read(&npz).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&npz, bytes).unwrap();
    let (code, said) = run(&["mnist"], folder.path());
    assert!(code == Some(1) && said.contains("mnist.npz, x_train.npy: "), "{code:?} {said}");
    // The flag comes before the variable.
    let (code, said) = run(&["mnist", "--data", "/nowhere"], folder.path());
    assert!(code == Some(1) && said.contains("/nowhere/mnist.npz"), "{code:?} {said}");
    for (args, option) in [
        (["digits", "--data", "/data"], "--data must be left to mnist"),
        (["digits", "--steps", "3"], "--steps must be left to synthetic"),
        (["synthetic", "--compute", "soon"], "'soon' is no length of time"),
    ] {
        let (code, said) = run(&args, folder.path());
        assert!(code == Some(64) && said.contains(option), "{code:?} {said}");
    }
}

#[test]
fn synthetic_sums_what_it_must_in_both_widths() {
    let asked =
        SyntheticOptions { gradient: Some(3 << 20), compute: Some(Duration::from_millis(1)), steps: Some(5) };
    let options = TrainOptions { job: "synthetic".to_owned(), synthetic: asked, ..TrainOptions::default() };
    let halves = TrainOptions { half: true, bucket: Some(300_000), ..options.clone() };
    let together = TrainOptions { no_overlap: true, batch_per_rank: Some(3), ..options.clone() };
    for (options, world) in [(&options, 1), (&options, 3), (&halves, 3), (&together, 2)] {
        let printed = train(options, world);
        assert!(printed[0].contains("parameters 786432 steps 5\n"), "{}", printed[0]);
        assert!(metric(&printed[0], "wrong").abs() < f64::EPSILON, "{}", printed[0]);
    }
}
