//! Asks hosts which runs they know. A host that says nothing in time is named and waited for no longer.

use std::collections::BTreeSet;
use std::time::Duration;

use super::errors::Code;
use crate::cli::errors::fault;
use crate::clock;
use crate::config::HostConfig;
use crate::domain::event::{Event, Origin};
use crate::domain::ids::HostId;
use crate::domain::run_status::RunInventory;
use crate::domain::text::in_list;
use crate::launcher::session::{Output, Session};
use crate::ssh::Prompter;
use crate::wire::message::ListRuns;

/// What came of asking.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// What the hosts told.
    pub(crate) inventory: RunInventory,
    /// Hosts that told nothing, and why.
    pub(crate) silent: Vec<(HostId, Code, String)>,
}

/// Asks all hosts of a session until they have answered, `enough` is known, or the time is over.
pub(crate) async fn ask(
    session: &mut Session,
    patience: Duration,
    prompter: &Prompter,
    enough: impl Fn(&RunInventory) -> bool,
) -> Asked {
    ask_for(session, ListRuns::default(), patience, prompter, enough).await
}

/// The same for some runs of each host.
pub(crate) async fn ask_for(
    session: &mut Session,
    which: ListRuns,
    patience: Duration,
    prompter: &Prompter,
    enough: impl Fn(&RunInventory) -> bool,
) -> Asked {
    let mut answers = Asked::default();
    let mut due: BTreeSet<HostId> = session.hosts().iter().map(|host: &HostConfig| host.id.clone()).collect();
    session.list_some_runs(which);
    // what a person types takes its time
    let come = async {
        while !due.is_empty() && !enough(&answers.inventory) {
            match session.next().await {
                Output::Found { host, shares, last } => {
                    answers.inventory.take(&host, shares, last);
                    answers.inventory.told_at.insert(host.clone(), clock::now());
                    if last {
                        due.remove(&host);
                        // its link was tried again meanwhile
                        answers.silent.retain(|(silent, ..)| *silent != host);
                    }
                }
                Output::Event(envelope) => {
                    if let (Origin::Host(host), Event::LinkChanged { state }) =
                        (&envelope.origin, &envelope.event)
                        && let Some((code, reason)) = fault(state)
                        && due.remove(host)
                    {
                        answers.silent.push((host.clone(), code, in_list(&reason).into_owned()));
                    }
                }
                _ => {}
            }
        }
    };
    prompter.timeout(patience, come).await;
    if !enough(&answers.inventory) {
        let seconds = patience.as_secs();
        let late = due.into_iter().map(|host| (host, Code::Unreachable, format!("no answer in {seconds} s")));
        answers.silent.extend(late);
    }
    answers
}

impl Asked {
    /// `n3 could not be asked: no answer in 3 s`, a line each.
    pub(crate) fn silent_words(&self) -> Vec<String> {
        let words = |(host, _, reason): &(HostId, Code, String)| {
            let reason = reason.strip_prefix(&format!("{host}: ")).unwrap_or(reason);
            format!("{host} could not be asked: {reason}")
        };
        self.silent.iter().map(words).collect()
    }
}
