//! Which question about a launch is looked at: the newest replaces those that wait, a look that takes long is told as far
//! as it came, and looks that hang are few. Must not know what is looked at.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};

use super::look;
use crate::agent::AgentConfig;
use crate::agent::outgoing::Outgoing;
use crate::domain::preflight::{Finding, Mark};
use crate::wire::message::{AskPreflight, FromAgent, Preflight};

/// How long a look may take before it is told as far as it came. The client waits a second longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many looks may hang at once: each holds a thread that can't be ended.
const MOST_HUNG: usize = 3;

/// What looks, on a thread of its own.
type Probe = Arc<dyn Fn(&AskPreflight, &Report) + Send + Sync>;

/// Takes questions. Its looks end when they do; nothing waits for them.
#[derive(Debug)]
pub(in crate::agent) struct Desk {
    asked: watch::Sender<Option<Arc<AskPreflight>>>,
}

impl Desk {
    /// One for the client at the other end of `out`.
    pub(in crate::agent) fn new(config: AgentConfig, out: Outgoing) -> Self {
        let probe = move |ask: &AskPreflight, report: &Report| look(&config, &ask.spec, ask.copied, report);
        Self::with(Arc::new(probe), PATIENCE, out)
    }

    fn with(probe: Probe, patience: Duration, out: Outgoing) -> Self {
        let (asked, questions) = watch::channel(None);
        let (told, reports) = mpsc::unbounded_channel();
        let (current, hung, refused) = (None, Vec::new(), None);
        let looks = Looks { probe, patience, out, told, number: 0, current, hung, refused };
        tokio::spawn(looks.serve(questions, reports));
        Self { asked }
    }

    /// Has this looked at next; what waited is forgotten.
    pub(in crate::agent) fn ask(&self, ask: AskPreflight) {
        self.asked.send_replace(Some(Arc::new(ask)));
    }
}

/// What a look tells.
#[derive(Debug)]
enum Told {
    /// It begins with this.
    Step(String),
    /// It has found this.
    Found(Finding),
    /// It has ended.
    Over,
}

/// Where a look tells what it does. The look is over when this goes.
#[derive(Debug)]
pub(super) struct Report {
    look: u64,
    to: mpsc::UnboundedSender<(u64, Told)>,
}

impl Report {
    /// What is looked at from now on, for people.
    pub(super) fn step(&self, what: String) {
        self.tell(Told::Step(what));
    }

    /// What was found.
    pub(super) fn found(&self, finding: Finding) {
        self.tell(Told::Found(finding));
    }

    fn tell(&self, told: Told) {
        // the link may be gone
        let _ = self.to.send((self.look, told));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.tell(Told::Over);
    }
}

/// A look that has not ended.
struct Look {
    number: u64,
    ask: Arc<AskPreflight>,
    step: String,
    found: Vec<Finding>,
}

struct Looks {
    probe: Probe,
    patience: Duration,
    out: Outgoing,
    told: mpsc::UnboundedSender<(u64, Told)>,
    /// Of the newest look.
    number: u64,
    current: Option<(std::pin::Pin<Box<Sleep>>, Look)>,
    hung: Vec<Look>,
    /// The newest question, where it was not looked at because too many looks hang.
    refused: Option<Arc<AskPreflight>>,
}

impl Looks {
    async fn serve(
        mut self,
        mut questions: watch::Receiver<Option<Arc<AskPreflight>>>,
        mut reports: mpsc::UnboundedReceiver<(u64, Told)>,
    ) {
        let (mut next, mut newest) = (None, None);
        loop {
            tokio::select! {
                biased;
                changed = questions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    next.clone_from(&questions.borrow_and_update());
                    self.refused = None;
                    newest = next.as_ref().map(|ask: &Arc<AskPreflight>| ask.ask);
                }
                Some((look, told)) = reports.recv() => {
                    // one that is late is told in full, unless another question has come
                    if let Some(look) = self.take(look, told)
                        && Some(look.ask.ask) == newest
                    {
                        self.answer(&look.ask, look.found).await;
                    }
                }
                () = patience(&mut self.current) => {
                    let Some((_, look)) = self.current.take() else { continue };
                    let text = format!("{}: no answer in {} s", look.step, self.patience.as_secs());
                    let mut found = look.found.clone();
                    found.push(Finding::new(Mark::Unknown, text));
                    self.answer(&look.ask, found).await;
                    self.hung.push(look);
                }
            }
            if self.hung.len() < MOST_HUNG && self.refused.is_some() {
                next = self.refused.take();
            }
            if self.current.is_none()
                && let Some(ask) = next.take()
            {
                self.begin(ask).await;
            }
        }
    }

    /// Takes in what a look tells; gives it back when it is over.
    fn take(&mut self, number: u64, told: Told) -> Option<Look> {
        let hung = self.hung.iter().position(|look| look.number == number);
        let look = match hung {
            Some(at) => &mut self.hung[at],
            None => self.current.as_mut().map(|(_, look)| look).filter(|look| look.number == number)?,
        };
        match told {
            Told::Step(step) => look.step = step,
            Told::Found(finding) => look.found.push(finding),
            Told::Over if hung.is_some() => return hung.map(|at| self.hung.remove(at)),
            Told::Over => return self.current.take().map(|(_, look)| look),
        }
        None
    }

    async fn begin(&mut self, ask: Arc<AskPreflight>) {
        if self.hung.len() >= MOST_HUNG {
            let steps: Vec<&str> = self.hung.iter().map(|look| look.step.as_str()).collect();
            let text = format!(
                "{MOST_HUNG} earlier checks have not ended ({}): nothing more is checked until one does",
                steps.join(", ")
            );
            self.refused = Some(Arc::clone(&ask));
            return self.answer(&ask, vec![Finding::new(Mark::Unknown, text)]).await;
        }
        self.number += 1;
        let report = Report { look: self.number, to: self.told.clone() };
        let (probe, asked) = (Arc::clone(&self.probe), Arc::clone(&ask));
        // not one of the runtime's threads: the agent ends without waiting for it
        let thread = std::thread::Builder::new().name("preflight".to_owned());
        if let Err(error) = thread.spawn(move || probe(&asked, &report)) {
            let text = format!("no thread for the check: {error}");
            return self.answer(&ask, vec![Finding::new(Mark::Unknown, text)]).await;
        }
        let look = Look { number: self.number, ask, step: "the check".to_owned(), found: Vec::new() };
        self.current = Some((Box::pin(sleep(self.patience)), look));
    }

    async fn answer(&self, ask: &AskPreflight, findings: Vec<Finding>) {
        let told = Preflight { ask: ask.ask, host: ask.spec.host.clone(), findings };
        self.out.control(FromAgent::Preflight(told)).await;
    }
}

async fn patience(current: &mut Option<(std::pin::Pin<Box<Sleep>>, Look)>) {
    match current {
        Some((patience, _)) => patience.await,
        None => std::future::pending().await,
    }
}

/// What a look finds.
#[cfg(test)]
pub(super) fn reported(look: impl FnOnce(&Report)) -> Vec<Finding> {
    let (to, mut reports) = mpsc::unbounded_channel();
    look(&Report { look: 0, to });
    let told = std::iter::from_fn(|| reports.try_recv().ok());
    told.filter_map(|(_, told)| if let Told::Found(finding) = told { Some(finding) } else { None }).collect()
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
