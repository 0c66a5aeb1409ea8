//! Perfetto's trace processor, asked by SQL: `tests/trace_processor` installs and runs it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::cluster::skip;
use super::in_time::OutputInTime;

/// The exit code of the script where the processor can't be had.
const MISSING: i32 = 77;
/// How long the installation and the questions about one trace may take.
const LONGEST: &str = "300";

/// A trace that is loaded.
pub(crate) struct TraceProcessor {
    child: Child,
    statements: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl TraceProcessor {
    /// Loads a trace without an error; says why where there is no processor.
    pub(crate) fn load(trace: &Path) -> Option<Self> {
        // what could not be had once is not asked for again by each test
        static ABSENT: Mutex<Option<String>> = Mutex::new(None);
        let mut absent = ABSENT.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.is_none() {
            match Self::start(trace) {
                Ok(loaded) => return Some(loaded),
                Err(why) => *absent = Some(why),
            }
        }
        let why = absent.clone().unwrap_or_default();
        drop(absent);
        skip(&why);
        None
    }

    /// `Err` says why there is no processor.
    fn start(trace: &Path) -> Result<Self, String> {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", LONGEST, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace_processor")]);
        let mut child = command
            .arg(trace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let statements = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        answers.read_line(&mut first).unwrap();
        if first.is_empty() {
            let ended = child.output_in_time().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(MISSING), "{said}");
            return Err(said.trim().to_owned());
        }
        assert_eq!(first.trim(), r#"{"rows":[]}"#, "the trace loads");
        let mut loaded = Self { child, statements, answers };
        let faults: Vec<(String, i64)> =
            loaded.rows("SELECT name, value FROM stats WHERE severity != 'info' AND value > 0");
        assert_eq!(faults, [], "of the loading");
        Ok(loaded)
    }

    /// The rows of a statement, each as a tuple.
    pub(crate) fn rows<T: DeserializeOwned>(&mut self, sql: &str) -> Vec<T> {
        let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let statements = self.statements.as_mut().expect("it runs");
        writeln!(statements, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_str(&answer).expect(&answer);
        assert!(answer.get("error").is_none(), "{line}\n{}", answer["error"].as_str().unwrap_or_default());
        serde_json::from_value(answer["rows"].take()).expect(&line)
    }
}

impl Drop for TraceProcessor {
    fn drop(&mut self) {
        // it ends with its statements
        drop(self.statements.take());
        let _ = self.child.wait();
    }
}
