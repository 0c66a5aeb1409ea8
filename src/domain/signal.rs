//! Signals to processes of hosts: by what a process is named, which would be hit, and what came of it, in words. Pure.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::gpu::Reading;
use super::ids::HostId;
use super::text::sanitize;
use super::units::counted;

/// Processes of one request. A tree with more is not signalled.
pub const MOST_PROCESSES: usize = 512;

/// A process of a host for as long as that runs: its pid alone may belong to another process later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessKey {
    /// Its pid.
    pub pid: u32,
    /// When it started: clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub start: u64,
}

/// A signal that can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SignalName {
    /// Asks it to end.
    Term,
    /// The one of ctrl-c.
    Int,
    /// Its terminal is gone; many daemons read their configuration again.
    Hup,
    /// Halts it until CONT.
    Stop,
    /// Lets it go on.
    Cont,
    /// Ends it at once, without a chance to write anything.
    Kill,
}

impl SignalName {
    /// All of them, the mildest way to end a process first and the harshest last.
    pub const ALL: [Self; 6] = [Self::Term, Self::Int, Self::Hup, Self::Stop, Self::Cont, Self::Kill];

    /// As `kill -l` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
            Self::Kill => "KILL",
        }
    }

    /// What it does to a process, for a list to choose from.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Term => "asks it to end",
            Self::Int => "interrupts it, as ctrl-c does",
            Self::Hup => "hangs up: ends most programs, daemons reload",
            Self::Stop => "halts it until CONT; its GPU memory stays in use",
            Self::Cont => "lets a halted process go on",
            Self::Kill => "ends it at once: nothing is saved",
        }
    }
}

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A process that a signal would go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundProcess {
    /// The process.
    #[serde(flatten)]
    pub key: ProcessKey,
    /// Owner's login name.
    pub user: Reading<String>,
    /// Command line, arguments joined by spaces.
    pub command: Reading<String>,
    /// Why no signal is sent to it, with the remedy where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

impl FoundProcess {
    /// `4711 python train.py`, safe for a terminal.
    pub fn words(&self) -> String {
        let command = self.command.value().map_or("(command unknown)", String::as_str);
        sanitize(&format!("{} {command}", self.key.pid)).into_owned()
    }
}

/// What became of a signal to one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    /// The process.
    #[serde(flatten)]
    pub key: ProcessKey,
    /// Why it was not sent; `None` where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// What a host is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum SignalRequest {
    /// Say which processes a signal would go to; send none.
    Look {
        /// The host's boot id, under which the process was seen.
        boot: String,
        /// The process.
        process: ProcessKey,
        /// With all that descends from it.
        tree: bool,
    },
    /// Send a signal.
    Send {
        /// The host's boot id, under which the processes were seen.
        boot: String,
        /// The signal.
        signal: SignalName,
        /// To these processes and no others, in this order.
        processes: Vec<ProcessKey>,
    },
}

/// A host's answer to a look or to a signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SignalAnswer {
    /// These are there, the one that was named first, children behind their parents.
    Found {
        /// Each process.
        processes: Vec<FoundProcess>,
        /// What to consider before a signal is sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The signal was sent, except where a process says why not.
    Sent {
        /// Each process that was named.
        processes: Vec<Signalled>,
    },
    /// Nothing was done.
    Refused {
        /// Lowercase sentence with the remedy.
        reason: String,
    },
}

/// How many processes a sentence names.
const NAMED: usize = 3;

/// What will be sent, in one sentence: `TERM to 2 processes of li on gpu-a: 4711 python train.py, 4712 python -c …`.
pub fn intent(signal: SignalName, host: &HostId, processes: &[&FoundProcess]) -> String {
    let named: Vec<String> = processes.iter().take(NAMED).map(|process| process.words()).collect();
    let more = processes.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let (count, owners) = (counted(processes.len(), "process"), owners(processes));
    format!("{signal} to {count} of {owners} on {host}: {}{more}", named.join(", "))
}

/// Whose processes they are: `li`, `li, wang`, safe for a terminal.
fn owners(processes: &[&FoundProcess]) -> String {
    let of = |process: &&FoundProcess| match process.user.value() {
        Some(user) => sanitize(user).into_owned(),
        None => "an unknown user".to_owned(),
    };
    let all: BTreeSet<String> = processes.iter().map(of).collect();
    let more = if all.len() > NAMED { " and others" } else { "" };
    format!("{}{more}", all.into_iter().take(NAMED).collect::<Vec<_>>().join(", "))
}

/// What came of it, in one sentence, and whether all was as it was meant.
pub fn outcome(signal: SignalName, host: &HostId, sent: &[Signalled]) -> (String, bool) {
    let refused: Vec<String> = sent
        .iter()
        .filter_map(|one| Some(format!("{}: {}", one.key.pid, sanitize(one.refusal.as_deref()?))))
        .collect();
    let done = sent.len() - refused.len();
    let named = refused.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    match (done, refused.len()) {
        (_, 0) => (format!("{signal} sent to {} on {host}", counted(done, "process")), true),
        (0, _) => (format!("{signal} was not sent on {host}: {named}"), false),
        _ => (
            format!("{signal} sent to {done} of {} on {host}: {named}", counted(sent.len(), "process")),
            false,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pid: u32, command: &str) -> FoundProcess {
        FoundProcess {
            key: ProcessKey { pid, start: 7 },
            user: Reading::Value("li".to_owned()),
            command: Reading::Value(command.to_owned()),
            refusal: None,
        }
    }

    #[test]
    fn the_sentence_says_what_will_be_sent_to_whom() {
        let host = HostId::from("gpu-a");
        let all: Vec<_> = (4711..4716).map(|pid| found(pid, "python train.py \u{1b}[2J")).collect();
        let all: Vec<&FoundProcess> = all.iter().collect();
        let text = intent(SignalName::Term, &host, &all[..1]);
        assert_eq!(text, "TERM to 1 process of li on gpu-a: 4711 python train.py ␛[2J");
        let text = intent(SignalName::Kill, &host, &all);
        assert!(text.starts_with("KILL to 5 processes of li on gpu-a: 4711 python"), "{text}");
        assert!(text.ends_with(" and 2 more") && !text.contains('\u{1b}'), "{text}");
        let whose = |users: &[Option<&str>]| {
            let of = |user: Option<&str>| {
                let user = user.map_or(Reading::Unsupported, |user| Reading::Value(user.to_owned()));
                FoundProcess { user, ..found(7, "sleep 9") }
            };
            let all: Vec<FoundProcess> = users.iter().copied().map(of).collect();
            owners(&all.iter().collect::<Vec<_>>())
        };
        assert_eq!(whose(&[Some("wang"), Some("li"), Some("wang"), None]), "an unknown user, li, wang");
        assert_eq!(whose(&["a", "b", "c", "d"].map(Some)), "a, b, c and others");
    }

    #[test]
    fn the_outcome_names_those_that_were_not_hit() {
        let host = HostId::from("gpu-a");
        let one = |pid, refusal: Option<&str>| Signalled {
            key: ProcessKey { pid, start: 7 },
            refusal: refusal.map(str::to_owned),
        };
        let (text, all) = outcome(SignalName::Term, &host, &[one(1, None), one(2, None)]);
        assert_eq!((text.as_str(), all), ("TERM sent to 2 processes on gpu-a", true));
        let (text, all) = outcome(SignalName::Term, &host, &[one(1, None), one(2, Some("it has ended"))]);
        assert_eq!((text.as_str(), all), ("TERM sent to 1 of 2 processes on gpu-a: 2: it has ended", false));
        let (text, all) = outcome(SignalName::Kill, &host, &[one(2, Some("it has ended"))]);
        assert_eq!((text.as_str(), all), ("KILL was not sent on gpu-a: 2: it has ended", false));
    }

    #[test]
    fn answers_have_a_stable_form() {
        let answer = SignalAnswer::Found { processes: vec![found(7, "sleep 9")], note: None };
        let text = serde_json::to_string(&answer).unwrap();
        let expected =
            r#"{"state":"found","processes":[{"pid":7,"start":7,"user":"li","command":"sleep 9"}]}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<SignalAnswer>(&text).unwrap(), answer);
        assert_eq!(serde_json::to_string(&SignalName::Kill).unwrap(), "\"KILL\"");
    }
}
