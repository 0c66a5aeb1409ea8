//! `hvtui stop`: ends a run that some client launched, and waits until nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};
use std::future;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::args::StopArgs;
use crate::cli::ask;
use crate::cli::complete::complete;
use crate::cli::errors::{Code, Failure, fault, note, to_person};
use crate::cli::find::{find, going_on};
use crate::cli::paths::Paths;
use crate::cli::runtime;
use crate::config::HostsFile;
use crate::domain::event::{Event, Origin};
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::note::{Note, what};
use crate::domain::run::{RefusalClass, RunSpec};
use crate::domain::text::{about, sanitize};
use crate::domain::units::counted;
use crate::launcher::session::{Output, Session};
use crate::report::local_time;
use crate::ssh::Prompter;
use crate::wire::message::Refused;

/// Grace, kill and some time for the links.
const DEADLINE: Duration = Duration::from_secs(60);
/// A host that is not reached after so long is named.
const NAMED_AFTER: Duration = Duration::from_secs(1);
/// How long its end may take to be read from the hosts.
const COMPLETION: Duration = Duration::from_secs(10);

/// Stops a run.
pub fn run(args: &StopArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let prompter = ask::person();
        let run = going_on(Some(&args.run), paths)?;
        if args.run == "last" && run != "last" {
            note(&format!("last is run {run}, the newest of which no end is recorded"));
        }
        let mut found = find(&run, file, paths, None, &prompter).await?;
        let spec = found.spec.clone();
        if let Some(outcome) = found.recording.as_ref().and_then(|reader| reader.outcome()) {
            to_person(&format!("run {} has ended already: {}\n", spec.id.short(), outcome.summary))?;
            return Ok(ExitCode::SUCCESS);
        }
        if found.recording.is_none() && !found.was_over {
            note(&launched_elsewhere(&spec));
        }
        let mut session = found.session(file, paths, None, &prompter).await?;
        // a session that has asked its hosts is connected to those already
        let hosts = session.world().hosts.iter();
        let up = hosts.filter(|(_, state)| state.is_up()).map(|(host, _)| host.clone()).collect();
        let mut shares = Shares { was_over: found.was_over, up, ..Shares::of(&spec) };
        let stopping = stop(&mut session, &spec, args.now, &mut shares, &prompter);
        let in_time = prompter.timeout(DEADLINE, stopping).await;
        in_time.transpose()?;
        let stopped = shares.outcome(spec.id.short())?;
        if found.was_over {
            to_person(&format!("{}\n", was_over(&spec, found.ended.as_deref())))?;
        }
        if spec.options.max_restarts > 0 {
            to_person(&format!("no further attempt of run {} will start\n", spec.id.short()))?;
        }
        if found.recording.take().is_some() {
            // its end is known now: the next command need not ask the hosts
            for trouble in complete(session, vec![spec], &paths.state, COMPLETION).await {
                tracing::warn!(trouble, "the end of a stopped run could not be recorded");
            }
        }
        Ok(stopped)
    })
}

/// Of a run that only its hosts know, which one is stopped: its name may be that of another run here.
fn launched_elsewhere(spec: &RunSpec) -> String {
    let hosts = spec.hosts();
    let hosts: Vec<&str> = hosts.iter().map(HostId::as_str).collect();
    format!(
        "run {} ({}), launched {}, {} on {}, is not recorded here: another client has launched it, or \
         its recording was deleted",
        spec.id.short(),
        sanitize(&spec.name),
        local_time(spec.created),
        counted(spec.world(), "rank"),
        hosts.join(", ")
    )
}

/// What is said of a run that this stop has not ended: `run 7QK2 had ended before: exit 69`.
fn was_over(spec: &RunSpec, ended: Option<&str>) -> String {
    let run = format!("run {}", spec.id.short());
    match ended {
        Some(ended) => format!("{run} had ended before: {ended}"),
        None => format!("{run} had ended before: nothing of it was left"),
    }
}

/// What is left of a run on its hosts.
struct Shares {
    /// The hosts that have not said that nothing is left, each with the reason why it is not reached just now.
    due: BTreeMap<HostId, Option<String>>,
    /// What went wrong on hosts of which no more is awaited.
    failures: Vec<(Code, String)>,
    /// The hosts that are reached.
    up: BTreeSet<HostId>,
    /// Nothing of the run lived before: what its hosts tell of its end is of an earlier stop.
    was_over: bool,
}

impl Shares {
    fn of(spec: &RunSpec) -> Self {
        let due = spec.hosts().into_iter().map(|host| (host, None)).collect();
        Self { due, failures: Vec::new(), up: BTreeSet::new(), was_over: false }
    }

    fn failed(&mut self, host: &HostId, code: Code, reason: &str) {
        if self.due.remove(host).is_some() {
            self.failures.push((code, about(host, reason)));
        }
    }

    /// A host could not do it; whether the reason is only that nothing of the run was started there.
    fn refused(&mut self, refused: &Refused) -> bool {
        let Refused { host, class, reason, .. } = refused;
        if *class == RefusalClass::Unknown {
            return self.due.remove(host).is_some();
        }
        self.failed(host, Code::Unreachable, reason);
        false
    }

    /// The hosts that are not reached yet and of which nothing was said, in words.
    fn connecting(&self) -> Option<String> {
        let due = self.due.iter().filter(|(host, why)| why.is_none() && !self.up.contains(*host));
        let due: Vec<&str> = due.map(|(host, _)| host.as_str()).collect();
        (!due.is_empty()).then(|| format!("connecting: waiting for {}", due.join(", ")))
    }

    /// How many processes this stop has ended on a host, in words, by what was said there.
    fn ended(said: &[Note]) -> String {
        let note = said.iter().rfind(|note| note.what == what::GONE && note.count > 0);
        note.map_or_else(String::new, |note| format!(" ({} ended)", counted(note.count, "process")))
    }

    /// A host is not reached just now: it is said once, and awaited.
    fn is_away(&mut self, host: &HostId, reason: String) {
        if let Some(why) = self.due.get_mut(host) {
            let is_first = why.is_none();
            let text = about(host, &reason);
            *why = Some(reason);
            if is_first {
                note(&format!("{text}; trying again for up to {} s", DEADLINE.as_secs()));
            }
        }
    }

    /// How the command ends when nothing more is awaited, or the deadline has passed.
    fn outcome(mut self, run: &str) -> Result<ExitCode, Failure> {
        let passed = DEADLINE.as_secs();
        for (host, why) in &self.due {
            let text = match why {
                Some(why) => format!("{why}; run `hvtui stop {run}` again when it is back"),
                None => format!("not all of the run is gone after {passed} s; try: hvtui stop {run} --now"),
            };
            self.failures.push((Code::Unreachable, about(host, &text)));
        }
        let Some((code, _)) = self.failures.first() else {
            return Ok(ExitCode::SUCCESS);
        };
        let all: Vec<&str> = self.failures.iter().map(|(_, text)| text.as_str()).collect();
        Err(Failure::new(*code, all.join("\n")))
    }
}

async fn stop(
    session: &mut Session,
    spec: &RunSpec,
    now: bool,
    shares: &mut Shares,
    prompter: &Prompter,
) -> Result<(), Failure> {
    let mut notes: BTreeMap<HostId, Vec<Note>> = BTreeMap::new();
    session.stop_foreign(spec, now);
    let soon = prompter.timeout(NAMED_AFTER, future::pending::<()>());
    tokio::pin!(soon);
    let mut is_named = false;
    while !shares.due.is_empty() {
        let output = tokio::select! {
            output = session.next() => output,
            _ = &mut soon, if !is_named => {
                is_named = true;
                if let Some(words) = shares.connecting() {
                    note(&words);
                }
                continue;
            }
        };
        match output {
            Output::Gone(run, host) if run == spec.id && shares.due.remove(&host).is_some() => {
                let said = notes.remove(&host).unwrap_or_default();
                let left: Vec<&Note> = said.iter().filter(|note| note.what == what::UNKILLABLE).collect();
                let words = left.iter().map(|note| (Code::Unreachable, about(&host, &sanitize(&note.text))));
                shares.failures.extend(words);
                if left.is_empty() && !shares.was_over {
                    let count = Shares::ended(&said);
                    to_person(&format!("{host}: nothing of run {} is left{count}\n", spec.id.short()))?;
                }
            }
            Output::Refused(refused) if refused.run == spec.id && shares.refused(&refused) => {
                let words = "nothing of the run was started, and nothing will be";
                to_person(&format!("{}\n", about(&refused.host, words)))?;
            }
            Output::Event(envelope) => {
                if let Event::RunNoted { host, note } = &envelope.event {
                    notes.entry(host.clone()).or_default().push(note.clone());
                }
                if let (Origin::Host(host), Event::LinkChanged { state }) =
                    (&envelope.origin, &envelope.event)
                {
                    link_changed(shares, host, state);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A link that is tried again is awaited: the request to stop goes with it when it is up.
fn link_changed(shares: &mut Shares, host: &HostId, state: &LinkState) {
    match state {
        LinkState::Down { reason, retry_at: Some(_) } => shares.is_away(host, reason.clone()),
        LinkState::Up => {
            shares.up.insert(host.clone());
            shares.due.get_mut(host).into_iter().for_each(|why| *why = None);
        }
        state => {
            if let Some((code, reason)) = fault(state) {
                shares.failed(host, code, &reason);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::RunId;
    use crate::domain::time::{HostTime, Stamp};

    #[test]
    fn a_run_that_had_ended_before_is_not_told_as_stopped() {
        let spec = crate::domain::fixtures::run_spec(Vec::new());
        let run = format!("run {} had ended before", spec.id.short());
        assert_eq!(
            was_over(&spec, Some("exit 3: rank 0 (a:0): exit 3")),
            format!("{run}: exit 3: rank 0 (a:0): exit 3")
        );
        assert_eq!(was_over(&spec, None), format!("{run}: nothing of it was left"));
    }

    #[test]
    fn a_run_that_only_its_hosts_know_is_told_with_what_it_is() {
        let places = [(0, "n1"), (1, "n1"), (2, "n2")];
        let places = places.map(|(rank, host)| crate::domain::fixtures::placement(rank, host, rank));
        let spec = crate::domain::fixtures::run_spec(places.to_vec());
        let begins = format!("run {} ({}), launched ", spec.id.short(), spec.name);
        let told = launched_elsewhere(&spec);
        assert!(told.starts_with(&begins), "{told}");
        assert!(told.contains(", 3 ranks on n1, n2, is not recorded here: another client "), "{told}");
    }

    #[test]
    fn what_is_left_at_the_deadline_is_told_with_its_reason_and_remedy() {
        let hosts = ["gpu-a", "gpu-b", "gpu-c"].map(HostId::from);
        let due = hosts.iter().cloned().map(|host| (host, None)).collect();
        let mut shares = Shares { due, failures: Vec::new(), up: BTreeSet::new(), was_over: false };
        assert_eq!(shares.connecting().as_deref(), Some("connecting: waiting for gpu-a, gpu-b, gpu-c"));
        shares.due.remove(&hosts[0]);
        let away = LinkState::Down { reason: "connection refused".to_owned(), retry_at: None };
        let retried = |reason: &str| LinkState::Down { reason: reason.to_owned(), retry_at: Some(Stamp(1)) };
        link_changed(&mut shares, &hosts[1], &retried("timed out"));
        assert_eq!(shares.connecting().as_deref(), Some("connecting: waiting for gpu-c"));
        link_changed(&mut shares, &hosts[1], &LinkState::Up);
        link_changed(&mut shares, &hosts[2], &retried("connection refused"));
        assert_eq!(shares.connecting(), None, "one is reached, the other was named with its reason");
        let failure = shares.outcome("7QK2").unwrap_err();
        assert_eq!(
            failure.message,
            "gpu-b: not all of the run is gone after 60 s; try: hvtui stop 7QK2 --now\n\
             gpu-c: connection refused; run `hvtui stop 7QK2` again when it is back"
        );
        // one on which nothing was started has nothing left
        let run = RunId::new(1, 1);
        let refused = |class| {
            let (run, host, reason) = (run.clone(), hosts[0].clone(), "no".to_owned());
            Refused { run, host, rank: None, reason, class, busy: false }
        };
        let all = || Shares {
            due: [(hosts[0].clone(), None)].into(),
            failures: Vec::new(),
            up: BTreeSet::new(),
            was_over: false,
        };
        let mut shares = all();
        assert!(shares.refused(&refused(RefusalClass::Unknown)));
        assert!(!shares.refused(&refused(RefusalClass::Unknown)), "it is said once");
        assert!(shares.outcome("7QK2").is_ok());
        let mut shares = all();
        assert!(!shares.refused(&refused(RefusalClass::Permission)));
        assert_eq!(shares.outcome("7QK2").unwrap_err().message, "gpu-a: no");
        let gone = Note { count: 2, ..Note::new(what::GONE, "nothing of the run is left", HostTime(0)) };
        assert_eq!(Shares::ended(&[gone]), " (2 processes ended)");
        assert_eq!(Shares::ended(&[]), "");
        // one that is not tried again is not awaited
        let mut shares = all();
        link_changed(&mut shares, &hosts[0], &away);
        assert!(shares.due.is_empty());
        assert_eq!(shares.outcome("7QK2").unwrap_err().message, "gpu-a: connection refused");
    }
}
