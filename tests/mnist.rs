//! The job `mnist` on files of the formats in which people have MNIST; what is in them are the digits of `assets/`,
//! scaled (`tests/fixtures/idx/make`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use hvtui::worker::mnist::{Found, Mnist, find};

/// The files, in a folder of their own; `None` where there is no Python.
fn made() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/idx/make");
    match Command::new("python3").arg(script).arg(folder.path()).output() {
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
