//! The one place where errors become exit codes and words on standard error.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use super::{again, glyphs, output};
use crate::config::ConfigError;
use crate::domain::filter::Filter;
use crate::domain::host::{LinkState, RefusalKind};
use crate::domain::outcome::{self, RunOutcome};
use crate::domain::text::sanitize;
use crate::launch::error::{LaunchError, LaunchFault};
use crate::launch::read::RequestError;
use crate::record;
use crate::ssh::{AgentError, SshError, TrustError};

/// Exit codes of a command that fails by itself; see sysexits.h. How a run ended has its code in [`RunOutcome::exit_code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 64: the command line can't be understood or carried out.
    Usage,
    /// 65: the hosts file, or the data of a recording, is bad.
    Data,
    /// 69: a host can't be reached.
    Unreachable,
    /// 70: a fault of hvtui.
    Bug,
    /// 74: a file or standard output cannot be read or written.
    Io,
    /// 75: a GPU is held by another user or run.
    Busy,
    /// 77: permission or host key.
    Permission,
    /// 78: a check of the hosts that the launch rests on is red.
    Unfit,
    /// 127: a host does not have the command, or what it needs to start.
    Command,
}

impl Code {
    /// The number.
    pub fn number(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Data => 65,
            Self::Unreachable => outcome::UNREACHABLE,
            Self::Bug => outcome::BUG,
            Self::Io => outcome::IO,
            Self::Busy => outcome::BUSY,
            Self::Permission => outcome::PERMISSION,
            Self::Unfit => 78,
            Self::Command => outcome::COMMAND,
        }
    }

    /// The code of a file that can't be read or written.
    pub fn of(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::PermissionDenied => Self::Permission,
            _ => Self::Io,
        }
    }
}

impl From<&io::Error> for Code {
    fn from(error: &io::Error) -> Self {
        Self::of(error.kind())
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// The exit code of a command that followed a run to its end.
pub fn outcome_code(outcome: &RunOutcome) -> ExitCode {
    ExitCode::from(outcome.exit_code())
}

impl From<RefusalKind> for Code {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::HostKey | RefusalKind::Authentication => Self::Permission,
            RefusalKind::Agent => Self::Unreachable,
        }
    }
}

/// Why a command ended without doing its work.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What went wrong and what to do, for people.
    pub message: String,
    /// The same with terminal colours, where there is such a form.
    coloured: Option<String>,
}

impl Failure {
    /// A failure with its code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), coloured: None }
    }

    /// The command line can't be understood or carried out.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// A fault of hvtui.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(Code::Bug, message)
    }

    /// What is printed: `hvtui: …`, without anything that drives a terminal.
    pub fn words(&self) -> String {
        let text = self.message.lines().map(sanitize).collect::<Vec<_>>().join("\n");
        if text.starts_with("hvtui: ") { text } else { format!("hvtui: {text}") }
    }
}

/// Prints a failure on standard error, in colour where that is a terminal that wants it.
pub fn print(failure: &Failure) {
    let stderr = io::stderr();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || !stderr.is_terminal();
    let text = match &failure.coloured {
        Some(coloured) if !plain => coloured.clone(),
        _ => again::with_hosts(&failure.words()),
    };
    output::err(&glyphs::shown(&format!("{text}\n")));
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let coloured = matches!(error, ConfigError::Invalid { .. }).then(|| error.render(true));
        let code = match &error {
            ConfigError::Unreadable { source, .. } => Code::from(source),
            ConfigError::NotText { .. } | ConfigError::Invalid { .. } => Code::Data,
        };
        Self { code, message: error.render(false), coloured }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        let code = match error.fault {
            LaunchFault::Usage => Code::Usage,
            LaunchFault::Unreachable | LaunchFault::Waiting => Code::Unreachable,
            LaunchFault::Permission => Code::Permission,
            LaunchFault::Unfit => Code::Unfit,
            LaunchFault::Busy(_) => Code::Busy,
            LaunchFault::Internal => Code::Bug,
        };
        Self::new(code, error.reason)
    }
}

impl From<SshError> for Failure {
    fn from(error: SshError) -> Self {
        Self::new(error.refusal().map_or(Code::Unreachable, Code::from), error.to_string())
    }
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        SshError::from(error).into()
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(error.refusal().map_or(Code::Unreachable, Code::from), error.to_string())
    }
}

impl From<record::Error> for Failure {
    fn from(error: record::Error) -> Self {
        use record::Error;
        let code = match &error {
            Error::File { source, .. } | Error::Write(source) => Code::from(source),
            Error::NotARecording(_)
            | Error::OtherMcap(_)
            | Error::Foreign { .. }
            | Error::Marks { .. }
            | Error::Mcap(_)
            | Error::Nameless(_)
            | Error::Chunk { .. }
            | Error::Newer { .. } => Code::Data,
            _ => Code::Usage,
        };
        Self::new(code, error.to_string())
    }
}

/// Reads `--filter`; a fault shows the text with carets below what is meant.
pub fn filter(text: Option<&str>) -> Result<Filter, Failure> {
    let text = text.unwrap_or_default();
    Filter::parse(text).map_err(|error| Failure::usage(format!("--filter:\n{}", error.pointed(text))))
}

/// Says something on standard error that does not end the command.
pub fn note(text: &str) {
    let text = again::with_hosts(text);
    let text = text.lines().map(sanitize).collect::<Vec<_>>().join("\n");
    output::err(&glyphs::shown(&format!("hvtui: {text}\n")));
}

/// What a write to standard output came to: `false` when its reader went away (`| head`).
pub fn written(result: io::Result<()>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(Code::Io, format!("can't write to standard output: {}", output::reason(&error))))
        }
    }
}

/// Writes all of `text` to standard output as it is. A reader that went away (`| head`) is no failure.
pub fn to_stdout(text: &str) -> Result<(), Failure> {
    written(output::out(text)).map(|_| ())
}

/// Writes text for people to standard output, its marks as the locale can show them.
pub fn to_person(text: &str) -> Result<(), Failure> {
    to_stdout(&glyphs::shown(text))
}

/// What is wrong with a link, if something is, and the exit code that tells it.
pub(crate) fn fault(state: &LinkState) -> Option<(Code, String)> {
    match state {
        LinkState::Down { reason, .. } | LinkState::Limited { reason } => {
            Some((Code::Unreachable, reason.clone()))
        }
        LinkState::Refused { reason, kind } => Some(((*kind).into(), reason.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_contract() {
        let codes =
            [Code::Usage, Code::Data, Code::Unreachable, Code::Bug, Code::Io, Code::Busy, Code::Permission];
        assert_eq!(codes.map(Code::number), [64, 65, 69, 70, 74, 75, 77]);
        assert_eq!(Code::from(RefusalKind::HostKey), Code::Permission);
        assert_eq!(Code::from(RefusalKind::Agent), Code::Unreachable);
    }

    #[test]
    fn a_launch_that_fails_has_the_code_of_its_cause() {
        let code = |fault| Failure::from(LaunchError::new(fault, "x")).code;
        assert_eq!(code(LaunchFault::Usage), Code::Usage);
        assert_eq!(code(LaunchFault::Busy(String::new())), Code::Busy);
        assert_eq!(code(LaunchFault::Unreachable), Code::Unreachable);
        assert_eq!(code(LaunchFault::Permission), Code::Permission);
    }

    #[test]
    fn what_can_not_be_read_or_written_is_no_host() {
        let code = |kind| Code::from(&io::Error::from(kind));
        assert_eq!(code(io::ErrorKind::PermissionDenied), Code::Permission);
        assert_eq!(code(io::ErrorKind::StorageFull), Code::Io);
        assert_eq!(written(Err(io::ErrorKind::StorageFull.into())).unwrap_err().code, Code::Io);
        let path = std::path::PathBuf::from("run.mcap");
        let file = |kind: io::ErrorKind| {
            Failure::from(record::Error::File { path: path.clone(), source: kind.into() }).code
        };
        assert_eq!(file(io::ErrorKind::NotFound), Code::Io, "as of a hosts file that is not there");
        assert_eq!(file(io::ErrorKind::IsADirectory), Code::Io);
        assert_eq!(Failure::from(record::Error::NotARecording(path.clone())).code, Code::Data);
    }

    #[test]
    fn words_begin_with_the_program_and_drive_no_terminal() {
        assert_eq!(Failure::usage("a\u{1b}[31m\nb").words(), "hvtui: a␛[31m\nb");
        assert_eq!(Failure::usage("hvtui: already").words(), "hvtui: already");
    }
}
