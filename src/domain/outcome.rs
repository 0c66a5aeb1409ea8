//! How a run ended: what happened, and the exit code that tells it. The numbers are those of `sysexits.h` and of shells; they stand here
//! alone. The recording holds what happened, never the number.

use serde::{Deserialize, Serialize};

use super::ids::Rank;
use super::root_cause::{self, Evidence, RankEnd};
use super::run::{RefusalClass, RunSpec};
use super::time::Stamp;
use super::world::RunState;

/// Why a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Every rank finished.
    Finished,
    /// A rank failed, or a host failed while the run was under way.
    Failed,
    /// Its slots were in use: the same launch may be possible later.
    Busy,
    /// A host was not reached, or was lost before it had started its ranks.
    Unreachable,
    /// A host refused it for another reason; nothing has started.
    Refused,
    /// Its ranks were silent for too long.
    Silent,
    /// Its owner stopped it.
    Stopped,
    /// Another client stopped it.
    StoppedElsewhere,
    /// The recording does not say.
    #[default]
    #[serde(other)]
    Unknown,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct RunOutcome {
    /// Why it is over. A rank's code does not tell: a program may exit with any.
    pub end: RunEnd,
    /// Why a host refused it, with [`RunEnd::Refused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalClass>,
    /// The rank that failed first.
    pub root: Option<Rank>,
    /// What that rank exited with, as a shell tells it; or one of them, where a launcher does not say which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// When its last rank ended, on the client's clock; it may be told much later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Stamp>,
    /// What else is known of the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// One sentence for people.
    pub summary: String,
}

/// The part of these spans before a run's end: a client that attaches to an ended run learns of its end last.
pub fn before_end(spans: &mut Vec<(Stamp, Stamp)>, end: Stamp) {
    for (_, to) in spans.iter_mut() {
        *to = end.min(*to);
    }
    spans.retain(|(from, to)| from < to);
}

/// `attempt 2 of 3: rank 1 (gpu-b:0) failed: exit 1`.
pub fn restart_words(attempt: u32, of: u32, why: &str) -> String {
    format!("attempt {attempt} of {of}: {why}")
}

impl RunOutcome {
    /// An end that no rank decided.
    pub fn new(end: RunEnd, summary: impl Into<String>) -> Self {
        Self { end, refusal: None, root: None, code: None, at: None, evidence: None, summary: summary.into() }
    }

    /// A host refused the run; nothing has started.
    pub fn refused(class: RefusalClass, summary: impl Into<String>) -> Self {
        Self { refusal: Some(class), ..Self::new(RunEnd::Refused, summary) }
    }

    /// A rank failed, with this code.
    pub fn failed(root: Rank, code: i32, summary: impl Into<String>) -> Self {
        Self { root: Some(root), code: Some(code), ..Self::new(RunEnd::Failed, summary) }
    }

    /// Whether every rank finished.
    pub fn is_success(&self) -> bool {
        self.exit_code() == 0
    }

    /// Whether it was stopped on request: neither a success nor a failure.
    pub fn is_stopped(&self) -> bool {
        matches!(self.end, RunEnd::Stopped | RunEnd::StoppedElsewhere)
    }

    /// Whether a host refused it, so that no rank of it has started, in no attempt.
    pub fn is_refused(&self) -> bool {
        matches!(self.end, RunEnd::Refused | RunEnd::Busy) && self.at.is_none()
    }

    /// How the run ended, in a word or two: the code of an imported one is not known.
    pub fn words(&self, spec: &RunSpec) -> String {
        if spec.is_imported() { "imported".to_owned() } else { format!("exit {}", self.exit_code()) }
    }

    /// The exit code of a client that follows the run to its end: the failing rank's own, where a rank decided.
    pub fn exit_code(&self) -> u8 {
        if let Some(code) = self.code {
            return u8::try_from(code).unwrap_or(FAILED);
        }
        match self.end {
            RunEnd::Finished => 0,
            RunEnd::Failed | RunEnd::Unknown => FAILED,
            RunEnd::Unreachable => UNREACHABLE,
            RunEnd::Busy => BUSY,
            RunEnd::Silent => SILENT,
            RunEnd::Stopped | RunEnd::StoppedElsewhere => STOPPED,
            RunEnd::Refused => match self.refusal.unwrap_or_default() {
                RefusalClass::Command => COMMAND,
                RefusalClass::Unavailable | RefusalClass::Unknown => UNREACHABLE,
                RefusalClass::Io => IO,
                RefusalClass::Busy => BUSY,
                RefusalClass::Permission => PERMISSION,
                RefusalClass::Fault => BUG,
                RefusalClass::Unwanted => STOPPED,
                RefusalClass::Usage => USAGE,
            },
        }
    }
}

/// A run failed, and no rank's code tells it.
const FAILED: u8 = 1;
/// `EX_USAGE`: what is asked for can't be carried out.
const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: a host can't be reached, or lacks what is needed for now.
pub const UNREACHABLE: u8 = 69;
/// `EX_SOFTWARE`: a fault of hvtui.
pub const BUG: u8 = 70;
/// `EX_IOERR`: a file can't be read or written.
pub const IO: u8 = 74;
/// `EX_TEMPFAIL`: a GPU is held by another user or run.
pub const BUSY: u8 = 75;
/// `EX_NOPERM`: permission, host key.
pub const PERMISSION: u8 = 77;
/// As `timeout` gives.
const SILENT: u8 = 124;
/// The command can't be started, as a shell gives.
pub const COMMAND: u8 = 127;
/// As a shell gives for SIGINT, by whichever way the run was stopped.
pub const STOPPED: u8 = 130;
/// What older recordings hold of a run that another client stopped.
const OLD_STOPPED_ELSEWHERE: u8 = 143;

/// An outcome as recordings hold it. Earlier versions held the number of every end, the first ones nothing else.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    end: RunEnd,
    #[serde(default)]
    refusal: Option<RefusalClass>,
    #[serde(default)]
    root: Option<Rank>,
    #[serde(default)]
    code: Option<i32>,
    #[serde(default)]
    at: Option<Stamp>,
    #[serde(default)]
    evidence: Option<Evidence>,
    summary: String,
}

impl From<Stored> for RunOutcome {
    fn from(stored: Stored) -> Self {
        let Stored { end, refusal, root, code, at, evidence, summary } = stored;
        let Some(number) = code else {
            return Self { end, refusal, root, code, at, evidence, summary };
        };
        if root.is_some() || (end == RunEnd::Failed && number != i32::from(FAILED)) {
            let end = if end == RunEnd::Unknown { RunEnd::Failed } else { end };
            return Self { end, refusal, root, code, at, evidence, summary };
        }
        // no rank decided: the number is one of hvtui's own
        let (of_number, refused) = end_of_number(number);
        let end = match end {
            RunEnd::Unknown => of_number,
            RunEnd::Stopped if of_number == RunEnd::StoppedElsewhere => of_number,
            known => known,
        };
        let refusal = refusal.or(refused).filter(|_| end == RunEnd::Refused);
        Self { end, refusal, root, code: None, at, evidence, summary }
    }
}

/// What a number of hvtui's own meant in an older recording.
fn end_of_number(number: i32) -> (RunEnd, Option<RefusalClass>) {
    let refused = |class| (RunEnd::Refused, Some(class));
    match u8::try_from(number).unwrap_or(FAILED) {
        0 => (RunEnd::Finished, None),
        UNREACHABLE => (RunEnd::Unreachable, Some(RefusalClass::Unavailable)),
        BUSY => (RunEnd::Busy, None),
        SILENT => (RunEnd::Silent, None),
        STOPPED => (RunEnd::Stopped, None),
        OLD_STOPPED_ELSEWHERE => (RunEnd::StoppedElsewhere, None),
        COMMAND => refused(RefusalClass::Command),
        PERMISSION => refused(RefusalClass::Permission),
        BUG => refused(RefusalClass::Fault),
        _ => (RunEnd::Failed, None),
    }
}

impl RunState {
    /// The rank that the run failed by.
    pub fn root_cause(&self) -> Option<Rank> {
        self.why_failed().map(|(rank, _)| rank)
    }

    /// The rank that it failed by, and what else is known of that: the run's own word on it once it ended, before that what is known
    /// of its ranks.
    pub fn why_failed(&self) -> Option<(Rank, Option<Evidence>)> {
        if let Some(outcome) = &self.outcome {
            return outcome.root.map(|root| (root, outcome.evidence.clone()));
        }
        let ends = self.ranks.iter().zip(0..).map(|(rank, number)| RankEnd {
            rank: Rank(number),
            exit: rank.exit.as_ref().map(|(when, exit)| (*when, exit)),
            words: Some(&rank.last_words),
            clock: None,
        });
        root_cause::of(&ends).map(|cause| (cause.rank, cause.evidence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RunOutcome {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_older_recording_tells_its_number_and_what_it_meant() {
        let rank = read(r#"{"code":75,"root":0,"summary":"rank 0 failed"}"#);
        assert_eq!((rank.end, rank.code, rank.exit_code()), (RunEnd::Failed, Some(75), 75));
        for (end, code, meant) in [
            ("", 0, RunEnd::Finished),
            ("", 1, RunEnd::Failed),
            ("", 69, RunEnd::Unreachable),
            ("", 75, RunEnd::Busy),
            ("", 124, RunEnd::Silent),
            ("", 127, RunEnd::Refused),
            ("", 130, RunEnd::Stopped),
            ("", 143, RunEnd::StoppedElsewhere),
            (r#""end":"stopped","#, 130, RunEnd::Stopped),
            (r#""end":"stopped","#, 143, RunEnd::StoppedElsewhere),
            (r#""end":"refused","#, 69, RunEnd::Refused),
            (r#""end":"refused","#, 70, RunEnd::Refused),
            (r#""end":"refused","#, 77, RunEnd::Refused),
            (r#""end":"eaten","#, 1, RunEnd::Failed),
        ] {
            let outcome = read(&format!(r#"{{{end}"code":{code},"root":null,"summary":"x"}}"#));
            let now = if code == 143 { 130 } else { code };
            assert_eq!((outcome.end, i32::from(outcome.exit_code())), (meant, now), "{end} {code}");
            assert_eq!(outcome.code, None, "no rank decided");
        }
    }

    #[test]
    fn what_happened_is_stored_and_the_number_follows() {
        for outcome in [
            RunOutcome::new(RunEnd::Busy, "a:0 is busy"),
            RunOutcome::refused(RefusalClass::Permission, "no"),
            RunOutcome::failed(Rank(1), 75, "rank 1 failed"),
        ] {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(read(&text), outcome, "{text}");
            assert_eq!(text.contains("code"), outcome.root.is_some(), "{text}");
        }
        let newer = read(r#"{"end":"eaten","root":null,"summary":""}"#);
        assert_eq!((newer.end, newer.exit_code()), (RunEnd::Unknown, 1));
    }

    #[test]
    fn exit_codes_are_the_contract() {
        use RefusalClass::{Busy, Command, Fault, Io, Permission, Unavailable, Unknown, Usage};
        let of = |end| RunOutcome::new(end, "").exit_code();
        let ends = [RunEnd::Finished, RunEnd::Failed, RunEnd::Unreachable, RunEnd::Busy, RunEnd::Silent];
        assert_eq!(ends.map(of), [0, 1, 69, 75, 124]);
        assert_eq!([RunEnd::Stopped, RunEnd::StoppedElsewhere, RunEnd::Unknown].map(of), [130, 130, 1]);
        assert!(RunOutcome::new(RunEnd::StoppedElsewhere, "").is_stopped());
        let refused = |class| RunOutcome::refused(class, "").exit_code();
        let classes = [Command, Usage, Unavailable, Unknown, Io, Busy, Permission, Fault];
        assert_eq!(classes.map(refused), [127, 64, 69, 69, 74, 75, 77, 70]);
        assert_eq!(RunOutcome::failed(Rank(0), 300, "").exit_code(), 1, "no exit code");
        assert!(RunOutcome::new(RunEnd::Finished, "").is_success());
    }
}
