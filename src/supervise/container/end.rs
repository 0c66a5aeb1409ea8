//! How a rank's container ended, by the engine's word, and its removal. What an engine that is gone has left running is
//! ended by hvtui itself.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde_json::Value;

use super::members::Members;
use super::{Setup, cid_file};
use crate::domain::container;
use crate::domain::ids::Rank;
use crate::domain::run::{HostRun, RankExit, RankSpec};
use crate::image::engine::first;
use crate::supervise::rundir::RunDir;

/// What the engine's client ends with where the container was not started.
pub(super) const ENGINES_FAULT: i32 = 125;
/// What a shell, and an engine's client, ends with where the command is not there, or is no program.
const NOT_FOUND: i32 = 127;
const CANNOT: i32 = 126;
/// What an engine says of a container that it does not have.
const UNKNOWN: [&str; 2] = ["no such", "no container"];

/// The end of a rank's container.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::supervise) struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    error: Option<String>,
    cause: Option<String>,
}

/// What the engine says of a container.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// It has it: its state.
    State(Value),
    /// It does not know it.
    Unknown,
    /// It can't be asked.
    Gone(String),
}

impl Ended {
    /// The end of a rank whose engine's client has ended by `status`. Nothing of it is left running when this returns, but
    /// for what KILL does not end. `said` is the end of the rank's standard error.
    pub(in crate::supervise) fn of(
        setup: &Setup,
        dir: &RunDir,
        (run, rank): (&HostRun, &RankSpec),
        status: ExitStatus,
        said: &str,
    ) -> Self {
        let word = state(setup, &container::name(&run.run, rank.rank, run.attempt));
        if !matches!(&word, Word::State(state) if !is_running(state)) {
            // Nothing else ends them any more, and the rank's end must not be told while it runs.
            Members::of(dir, [rank.rank]).kill();
        }
        let command = rank.argv.first().map_or("", String::as_str);
        let image = run.container().map_or("", |options| options.image.as_str());
        Self::judge(&word, &setup.engine.name(), (command, image), status, said)
    }

    /// `command` in `image`, by what the engine says and how its client has ended.
    fn judge(
        word: &Word,
        engine: &str,
        (command, image): (&str, &str),
        client: ExitStatus,
        said: &str,
    ) -> Self {
        let killed = client.signal();
        // A client that ends well before its container has held nothing: that is no success.
        let lost = client.code().map(|code| if code == 0 { ENGINES_FAULT } else { code });
        match word {
            Word::State(state) if !is_running(state) => {
                let code = state["ExitCode"].as_i64().and_then(|code| i32::try_from(code).ok());
                let code = code.or(client.code()).unwrap_or(ENGINES_FAULT);
                if !was_started(state) {
                    // Podman says 0 of a container that it could not start.
                    let code = client.code().filter(|_| code == 0).unwrap_or(code);
                    let code = if code == 0 { ENGINES_FAULT } else { code };
                    let error = state["Error"].as_str().unwrap_or_default();
                    let error = not_started((error, code), (command, image), engine, said);
                    return Self { code: Some(code), error: Some(error), ..Self::default() };
                }
                let cause = (state["OOMKilled"].as_bool() == Some(true))
                    .then(|| "out of memory (the limit of its container)".to_owned());
                match signal_of(code) {
                    Some(signal) => Self { signal: Some(signal), cause, ..Self::default() },
                    None => Self { code: Some(code), cause, ..Self::default() },
                }
            }
            Word::State(_) => {
                let how = match killed {
                    Some(signal) => format!("signal {signal}"),
                    None => format!("exit {}", client.code().unwrap_or(ENGINES_FAULT)),
                };
                let cause = format!("the {engine} client that held its container ended before it ({how})");
                Self { code: lost, signal: killed, cause: Some(cause), ..Self::default() }
            }
            Word::Unknown if killed.is_none() && client.code() == Some(ENGINES_FAULT) => {
                let why = why(said).unwrap_or("its words are on the rank's standard error");
                let error = format!("{engine} did not make its container: {why}");
                Self { code: Some(ENGINES_FAULT), error: Some(error), ..Self::default() }
            }
            Word::Unknown => {
                let cause =
                    format!("its container was removed while it ran ({engine} knows none of its name)");
                Self { code: lost, signal: killed, cause: Some(cause), ..Self::default() }
            }
            Word::Gone(words) => {
                let cause = format!("{engine} on its host stopped answering while it ran: {words}");
                Self { code: lost, signal: killed, cause: Some(cause), ..Self::default() }
            }
        }
    }

    /// The same as the end of the rank. A cause that is known is why it failed, not how it was stopped.
    pub(in crate::supervise) fn into_exit(self, exit: &RankExit) -> RankExit {
        let Self { code, signal, error, cause } = self;
        RankExit { code, signal, error, cause, ..exit.clone() }
    }
}

/// Removes a rank's container, whatever its state. Why it could not be done.
pub(super) fn remove(setup: &Setup, dir: &RunDir, name: &str, rank: Rank) -> Result<(), String> {
    let told = setup.engine.ask(&["rm", "--force", "--volumes", name]).map_err(|error| error.to_string())?;
    let words = told.last_words().to_lowercase();
    if !told.status.success() && !UNKNOWN.iter().any(|one| words.contains(one)) {
        return Err(told.last_words().to_owned());
    }
    dir.remove(&cid_file(rank)).map_err(|error| error.to_string())
}

fn state(setup: &Setup, name: &str) -> Word {
    match setup.engine.ask(&["container", "inspect", name]) {
        Ok(told) if told.status.success() => match first(&told.out) {
            Some(facts) => Word::State(facts["State"].clone()),
            None => Word::Gone("its answer is no JSON".to_owned()),
        },
        Ok(told) => {
            let words = told.last_words();
            let lower = words.to_lowercase();
            if UNKNOWN.iter().any(|one| lower.contains(one)) {
                Word::Unknown
            } else {
                Word::Gone(words.to_owned())
            }
        }
        Err(error) => Word::Gone(error.to_string()),
    }
}

fn is_running(state: &Value) -> bool {
    // podman does not call one that is paused running
    state["Running"].as_bool() == Some(true)
        || state["Paused"].as_bool() == Some(true)
        || matches!(state["Status"].as_str(), Some("running" | "paused" | "stopping"))
}

fn was_started(state: &Value) -> bool {
    let never = |at: &str| at.is_empty() || at.starts_with("0001-");
    state["StartedAt"].as_str().is_some_and(|at| !never(at))
}

/// Why the engine could not start the command, as a shell would say it where it is one of the usual reasons.
fn not_started(
    (error, code): (&str, i32),
    (command, image): (&str, &str),
    engine: &str,
    said: &str,
) -> String {
    let is_absent = error.contains("executable file not found") || (error.is_empty() && code == NOT_FOUND);
    if is_absent || (error.contains("no such file or directory") && error.contains(command)) {
        return format!("command '{command}' not found in image {image}");
    }
    if error.contains("permission denied") && error.contains("exec") || (error.is_empty() && code == CANNOT) {
        return format!("'{command}' in image {image} is not an executable file");
    }
    if error.is_empty() {
        let why = why(said).unwrap_or("its words are on the rank's standard error");
        return format!("{engine} could not start its container: {why}");
    }
    error.to_owned()
}

/// The line of an engine's client that says why it failed: behind it come only how it is used and where its help is.
pub(super) fn why(said: &str) -> Option<&str> {
    let is_help = |line: &str| {
        let begins = ["Usage:", "Run '", "See '"].iter().any(|begin| line.starts_with(begin));
        begins && (line.contains("--help") || line.starts_with("Usage:"))
    };
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty() && !is_help(line))?;
    let line = ["docker: ", "Error response from daemon: ", "Error: "]
        .iter()
        .fold(line, |line, begin| line.strip_prefix(begin).unwrap_or(line));
    Some(line.trim_end_matches('.')).filter(|line| !line.is_empty())
}

/// Engines tell a signal as a shell does.
fn signal_of(code: i32) -> Option<i32> {
    // 64 signals; what Python and shells give for a SIGNAL of their own stays a code only above that
    (129..=128 + 64).contains(&code).then(|| code - 128)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn judge(word: &Word, status: i32) -> Ended {
        Ended::judge(word, "docker", ("train", "torch:2"), ExitStatus::from_raw(status), "")
    }

    #[test]
    fn what_the_client_said_is_told_without_its_help() {
        for (said, expected) in [
            (
                "docker: Error response from daemon: Minimum memory limit allowed is 6MB\n\nRun 'docker run --help' for more information\n",
                "Minimum memory limit allowed is 6MB",
            ),
            (
                "unknown flag: --nosuch\n\nUsage:  docker run [OPTIONS] IMAGE [COMMAND] [ARG...]\n\nRun 'docker run --help' for more information",
                "unknown flag: --nosuch",
            ),
            ("docker: invalid reference format.\nSee 'docker run --help'.\n", "invalid reference format"),
            ("Error: unknown flag: --nosuch\nSee 'podman run --help'\n", "unknown flag: --nosuch"),
        ] {
            assert_eq!(why(said), Some(expected), "{said}");
            let status = ExitStatus::from_raw(125 << 8);
            let ended = Ended::judge(&Word::Unknown, "docker", ("train", "torch:2"), status, said);
            let told = format!("docker did not make its container: {expected}");
            assert_eq!(ended.error.as_deref(), Some(told.as_str()));
        }
        assert_eq!(why("\n"), None);
    }

    #[test]
    fn the_engines_word_counts() {
        let started = "2026-11-23T05:47:56Z";
        let exited =
            |code: i32| Word::State(json!({ "Running": false, "ExitCode": code, "StartedAt": started }));
        assert_eq!(judge(&exited(3), 3 << 8), Ended { code: Some(3), ..Ended::default() });
        assert_eq!(judge(&exited(137), 137 << 8), Ended { signal: Some(9), ..Ended::default() });
        let oom = json!({ "Running": false, "ExitCode": 137, "OOMKilled": true, "StartedAt": started });
        assert!(judge(&Word::State(oom), 0).cause.unwrap().starts_with("out of memory"));
        let error = "failed to create shim task: OCI runtime create failed: exec: \"train\": executable file not found in $PATH: unknown";
        let never =
            json!({ "Running": false, "ExitCode": 127, "Error": error, "StartedAt": "0001-01-01T00:00:00Z" });
        let told = judge(&Word::State(never), 127 << 8);
        assert_eq!(told.error.as_deref(), Some("command 'train' not found in image torch:2"));
        // podman has no words, and no code
        let never =
            json!({ "Running": false, "ExitCode": 0, "Error": "", "StartedAt": "0001-01-01T00:00:00Z" });
        let told = judge(&Word::State(never.clone()), 127 << 8);
        assert_eq!(
            (told.code, told.error.as_deref()),
            (Some(127), Some("command 'train' not found in image torch:2"))
        );
        assert_eq!(judge(&Word::State(never), 9).code, Some(125), "never a success");
        let running = judge(&Word::State(json!({ "Running": true })), 9);
        assert_eq!((running.signal, running.code), (Some(9), None));
        assert!(running.cause.unwrap().contains("client that held its container ended before it (signal 9)"));
        let detached = judge(&Word::State(json!({ "Running": true })), 0);
        assert_eq!(detached.code, Some(125), "a client that left its container is no success");
        assert!(
            judge(&Word::State(json!({ "Running": false, "Status": "paused", "ExitCode": 0 })), 9)
                .cause
                .is_some()
        );
        assert!(judge(&Word::Unknown, 125 << 8).error.unwrap().contains("did not make its container"));
        assert!(judge(&Word::Unknown, 137 << 8).cause.unwrap().contains("was removed while it ran"));
        assert!(judge(&Word::Gone("EOF".to_owned()), 1 << 8).cause.unwrap().ends_with("while it ran: EOF"));
    }
}
