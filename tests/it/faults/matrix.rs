//! The table: which test is which row, what it measured, and the promise that no row is forgotten.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use serde_json::{Value, json};

/// One test of one row.
pub(crate) struct Row {
    /// The row of the matrix, 1 to 40.
    pub(crate) number: u32,
    /// The test's name.
    pub(crate) name: &'static str,
    /// What it does; `None` when the machine can't, which was said.
    pub(crate) test: fn(&mut Notes) -> Option<()>,
}

/// What a test measured.
#[derive(Default)]
pub(crate) struct Notes(Vec<Value>);

impl Notes {
    /// Seconds that something took and may take. A test fails by what happens, not by how long it took on a machine with
    /// other work; `tests/faults/run` looks at the bounds.
    pub(crate) fn took(&mut self, what: &str, seconds: f64, bound: f64) {
        self.0.push(json!({"what": what, "value": seconds, "bound": bound, "unit": "s"}));
    }

    /// A count that may be so high.
    pub(crate) fn count(&mut self, what: &str, value: u64, bound: u64) {
        self.0.push(json!({"what": what, "value": value, "bound": bound, "unit": ""}));
    }

    /// Something worth knowing that has no bound.
    pub(crate) fn say(&mut self, what: &str) {
        self.0.push(json!({"what": what}));
    }
}

impl Row {
    /// Runs it; with `HVTUI_FAULTS_RESULTS=FOLDER` the outcome is written there too.
    pub(crate) fn run(&self) {
        let mut notes = Notes::default();
        let started = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| (self.test)(&mut notes)));
        let outcome = match &ended {
            Ok(Some(())) => "passed".to_owned(),
            Ok(None) => "skipped".to_owned(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                format!("failed: {}", text.unwrap_or_default())
            }
        };
        if let Some(folder) = std::env::var_os("HVTUI_FAULTS_RESULTS") {
            let result = json!({
                "number": self.number, "name": self.name, "outcome": outcome,
                "seconds": started.elapsed().as_secs_f64(), "notes": notes.0,
            });
            let path = std::path::Path::new(&folder).join(format!("{}.json", self.name));
            fs::write(path, result.to_string()).expect("a result");
        }
        if let Err(panic) = ended {
            resume_unwind(panic);
        }
    }
}

/// Makes a test of each row; the slow ones run only when they are asked for. Each row has a cluster of its own: only
/// `tests/faults/run`, which looks at what they measure, runs them one by one.
macro_rules! rows {
    ($($speed:ident $number:literal $name:ident = $test:path;)*) => {
        pub(crate) const ROWS: &[$crate::faults::matrix::Row] =
            &[$($crate::faults::matrix::Row { number: $number, name: stringify!($name), test: $test }),*];
        $($crate::faults::matrix::row!($speed $number $name $test);)*
    };
}

macro_rules! row {
    (quick $number:literal $name:ident $test:path) => {
        #[test]
        fn $name() {
            $crate::faults::matrix::Row { number: $number, name: stringify!($name), test: $test }.run();
        }
    };
    (slow $number:literal $name:ident $test:path) => {
        #[test]
        #[ignore = "slow: tests/faults/run --all"]
        fn $name() {
            $crate::faults::matrix::Row { number: $number, name: stringify!($name), test: $test }.run();
        }
    };
}

pub(crate) use {row, rows};
