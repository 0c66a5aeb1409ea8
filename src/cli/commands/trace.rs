//! `hvtui trace`: a kernel trace of some steps of a run that goes on.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::args::TraceArgs;
use crate::cli::ask;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::find::find;
use crate::cli::paths::Paths;
use crate::cli::progress_line::ProgressLine;
use crate::cli::signals::Signals;
use crate::cli::{output, runtime};
use crate::clock;
use crate::config::HostsFile;
use crate::domain::run::RunSpec;
use crate::domain::trace::TraceSpan;
use crate::launcher::session::Session;
use crate::launcher::traces::{Gathered, Gathering, Missing};
use crate::record::export::kernels::{self, Part, Written};

/// Between two looks at who is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// Traces a run.
pub fn run(args: &TraceArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let span = args.time.map_or(TraceSpan::Steps(args.steps), TraceSpan::Millis);
    runtime::block_on(async {
        let prompter = ask::person();
        let mut found = find(&args.run, file, paths, None, &prompter).await?;
        let spec = found.spec.clone();
        if let Some(outcome) = found.recording.as_ref().and_then(|reader| reader.outcome()) {
            let text = format!("run {} has ended: {}", spec.id.short(), outcome.summary);
            return Err(Failure::usage(format!("{text}; only a run that goes on can be traced")));
        }
        let target = args.output.clone().unwrap_or_else(|| kernels::default_name(&spec.id).into());
        let mut signals = Signals::listen()?;
        output::start(&paths.state)?;
        let session = found.session(file, paths, None, &prompter).await?;
        let code = traced(&spec, span, &target, session, &mut signals).await;
        let taken = output::end(Some(&mut signals)).await;
        code.and_then(|code| taken.map(|()| code))
    })
}

/// Gathers the traces and puts them together.
async fn traced(
    spec: &RunSpec,
    span: TraceSpan,
    target: &Path,
    mut session: Session,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let failed = |error: std::io::Error| cannot_write(target, &error);
    let mut gathering = Gathering::begin(spec, span, &kernels::parts_of(target), &mut session, clock::now())
        .map_err(failed)?;
    if let Some(code) = gather(&mut gathering, &mut session, signals).await.map_err(failed)? {
        return Ok(ExitCode::from(code));
    }
    let came = gathering.gathered(session.world());
    let missing = gathering.missing();
    for one in &missing {
        note(&format!("{}: {}", one.who, one.why));
    }
    if came.is_empty() {
        return Err(nothing(spec, &missing));
    }
    let ranks = came.len();
    let written = tokio::task::spawn_blocking({
        let target = target.to_owned();
        move || kernels::write(&came.into_iter().map(part).collect::<Vec<_>>(), &target)
    });
    let written = written.await.map_err(|error| Failure::bug(format!("put the traces together: {error}")))?;
    tell(&written?, spec, span, ranks, target)?;
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { Code::Unreachable.into() })
}

fn part(came: Gathered) -> Part {
    Part { path: came.path, name: came.name, pid: came.pid, shift_us: came.shift_us }
}

/// Until nothing more is waited for; an exit code where a person has had enough of it.
async fn gather(
    gathering: &mut Gathering,
    session: &mut Session,
    signals: &mut Signals,
) -> std::io::Result<Option<u8>> {
    let mut waiting = Waiting::default();
    let mut tick = tokio::time::interval(LOOK);
    while !gathering.is_over() {
        tokio::select! {
            biased;
            ask = signals.next() => {
                waiting.line.clear();
                return Ok(Some(ask.code()));
            }
            output = session.next() => gathering.take(&output, clock::now())?,
            _ = tick.tick() => {
                gathering.look(session, clock::now());
                waiting.show(&gathering.waits_for());
            }
        }
    }
    waiting.line.clear();
    Ok(None)
}

/// For whom is waited: one line that changes in place on a terminal, a line for each change elsewhere.
#[derive(Default)]
struct Waiting {
    line: ProgressLine,
    shown: String,
}

impl Waiting {
    fn show(&mut self, text: &str) {
        if text.is_empty() || text == self.shown {
            return;
        }
        text.clone_into(&mut self.shown);
        let text = format!("waiting for {text}");
        if !self.line.show(&text) {
            note(&text);
        }
    }
}

fn tell(
    written: &Written,
    spec: &RunSpec,
    span: TraceSpan,
    count: usize,
    target: &Path,
) -> Result<(), Failure> {
    for name in &written.unaligned {
        note(&format!("{name}: its host's clock was never compared, its times are by the host's own"));
    }
    let whole = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let processes = if count == 1 { "1 process" } else { &format!("{count} processes") };
    // the path as it is
    to_stdout(&format!("{}\n", whole.display()))?;
    to_person(&format!(
        "{} of run {}, {processes}, {} events: open it at https://ui.perfetto.dev (it stays on this machine)\n",
        span.words(),
        spec.id.short(),
        written.events,
    ))
}

fn nothing(spec: &RunSpec, missing: &[Missing]) -> Failure {
    let code = if !missing.is_empty() && missing.iter().all(|one| one.not_traceable) {
        Code::Usage
    } else {
        Code::Unreachable
    };
    Failure::new(code, format!("no trace of run {} came", spec.id.short()))
}

fn cannot_write(target: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::from(error), format!("{}: {error}", target.display()))
}
