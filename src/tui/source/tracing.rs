//! The kernel trace that a person has asked for on the Run screen: what is told of it, and the file at the end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Interval, MissedTickBehavior};

use crate::clock;
use crate::domain::run::RunSpec;
use crate::domain::trace::TraceSpan;
use crate::launcher::session::{Output, Session};
use crate::launcher::traces::Gathering;
use crate::record::export::kernels::{self, Part};
use crate::tui::core::Level;

/// Between two looks at who is waited for.
const LOOK: Duration = Duration::from_millis(200);
/// What is traced.
const SPAN: TraceSpan = TraceSpan::Steps(3);

/// Something that a person should know.
type Notice = (Level, String);
/// What is to be told, in order.
type Notices = Vec<Notice>;

/// One trace at a time.
#[derive(Debug)]
pub(super) struct Tracing {
    now: Option<(Gathering, PathBuf)>,
    told: String,
    /// Goes on while other things happen.
    look: Interval,
    /// What became of a file that is put together beside the loop.
    done: (UnboundedSender<Notice>, UnboundedReceiver<Notice>),
}

impl Tracing {
    /// Needs a tokio runtime.
    pub(super) fn new() -> Self {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { now: None, told: String::new(), look, done: unbounded_channel() }
    }

    /// Asks a run's ranks; the file goes into the folder `into`.
    pub(super) fn begin(&mut self, spec: &RunSpec, session: &mut Session, into: &Path) -> Notices {
        if self.now.is_some() {
            return vec![(Level::Info, "a trace is under way: one at a time".to_owned())];
        }
        let target = into.join(kernels::default_name(&spec.id));
        match Gathering::begin(spec, SPAN, &kernels::parts_of(&target), session, clock::now()) {
            Ok(gathering) => {
                self.now = Some((gathering, target));
                let text = format!("trace of run {}: asking its ranks for {}", spec.id.short(), SPAN.words());
                vec![(Level::Info, text)]
            }
            Err(error) => vec![(Level::Error, format!("{}: {error}", target.display()))],
        }
    }

    pub(super) fn take(&mut self, output: &Output) -> Notices {
        let Some((gathering, target)) = &mut self.now else { return Vec::new() };
        match gathering.take(output, clock::now()) {
            Ok(()) => Vec::new(),
            Err(error) => {
                let text = format!("{}: {error}", target.display());
                self.now = None;
                vec![(Level::Error, text)]
            }
        }
    }

    /// When to look again, or what became of a file. Pending while nothing is traced. Cancel-safe.
    pub(super) async fn next(&mut self) -> Notices {
        let Self { now, done, look, .. } = self;
        tokio::select! {
            Some(done) = done.1.recv() => vec![done],
            _ = look.tick(), if now.is_some() => Vec::new(),
            else => std::future::pending().await,
        }
    }

    /// Tells for whom is waited when that has changed; at the end has the file put together.
    pub(super) fn look(&mut self, session: &mut Session) -> Notices {
        let Some((mut gathering, target)) = self.now.take() else { return Vec::new() };
        gathering.look(session, clock::now());
        if !gathering.is_over() {
            let waits = gathering.waits_for();
            self.now = Some((gathering, target));
            if waits == self.told || waits.is_empty() {
                return Vec::new();
            }
            self.told = waits;
            return vec![(Level::Info, format!("trace: waiting for {}", self.told))];
        }
        let mut notices: Notices = Vec::new();
        for one in gathering.missing() {
            notices.push((Level::Warning, format!("no trace of {}: {}", one.who, one.why)));
        }
        let parts: Vec<Part> = gathering
            .gathered(session.world())
            .into_iter()
            .map(|came| Part { path: came.path, name: came.name, pid: came.pid, shift_us: came.shift_us })
            .collect();
        if parts.is_empty() {
            return notices;
        }
        let sender = self.done.0.clone();
        let put = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            let told = match kernels::write(&parts, &target) {
                Ok(_) => {
                    let text =
                        format!("trace written: {} · open it at https://ui.perfetto.dev", target.display());
                    (Level::Info, text)
                }
                Err(error) => (Level::Error, error.to_string()),
            };
            // its files go with it
            drop(gathering);
            // fails only when the UI is gone
            let _ = sender.send(told);
        });
        if let Err(error) = put {
            notices.push((Level::Error, format!("put the trace together: {error}")));
        }
        notices
    }
}
