//! A supervisor that takes over a run whose own has died.
//!
//! It is no parent of the rank-wraps, so it is not told when they end: it looks. How a rank ended stands in the
//! file that its rank-wrap writes. A rank whose rank-wrap is gone without one is lost, and never a success.

use std::collections::{BTreeMap, BTreeSet};

use super::SuperviseError;
use super::adopt::claim;
use super::rendezvous;
use super::rundir::RunDir;
use super::secrets;
use super::state::{LOG, Phase, SPEC, STATE, STOP, State, StopMark, VERSION, exit_file};
use super::supervisor::{Listener, Supervisor, WRAP_KILLED};
use crate::clock;
use crate::domain::ids::Rank;
use crate::domain::note::{Note, what};
use crate::domain::redaction::Masks;
use crate::domain::run::{HostRun, REBOOTED};
use crate::procs::identity::{Identity, boot_id};
use crate::procs::marks;
use crate::procs::{memory, table};

/// The values of secret variables that these rank-wraps have, and the ranks of which all are among them.
fn values_of(spec: &HostRun, wraps: &BTreeMap<Rank, Identity>) -> (Masks, BTreeSet<Rank>) {
    let (mut values, mut known) = (Masks::default(), BTreeSet::new());
    for rank in spec.ranks.iter().filter(|rank| secrets::any(rank)) {
        if let Some(Ok(Some(masks))) = wraps.get(&rank.rank).map(|wrap| secrets::of_process(rank, wrap)) {
            values = values.and(&masks);
            known.insert(rank.rank);
        }
    }
    (values, known)
}

impl Supervisor {
    /// Takes the run over; `None` when it has a supervisor, or needs none any more.
    pub fn adopt(dir: RunDir) -> Result<Option<Self>, SuperviseError> {
        let failed = |doing| {
            let path = dir.path().to_owned();
            move |e: std::io::Error| SuperviseError::io(doing, &path, e)
        };
        let signals = Listener::new().map_err(failed("listen for signals in"))?;
        let own = Identity::own().map_err(failed("identify the supervisor of"))?;
        let boot = boot_id().map_err(failed("find the boot of"))?;
        let Some(spec) = dir.read_json::<HostRun>(SPEC)? else {
            let reason = "the run's supervisor died before it started a rank".to_owned();
            return Err(SuperviseError::NotStarted(reason));
        };
        let log = dir.append(LOG)?;
        // Before the claim: as long as the run has no supervisor, a rank-wrap stays for what its rank has left.
        let wraps = dir.read_json::<State>(STATE)?.map(|state| state.wraps).unwrap_or_default();
        let (values, known) = values_of(&spec, &wraps);
        let Some(generation) = claim(&dir, &own)? else {
            return Ok(None);
        };
        // Read after the claim: the predecessor wrote its last words before it died.
        let state: State = dir.read_json(STATE)?.ok_or_else(|| SuperviseError::Damaged {
            path: dir.path().join(STATE),
            detail: "it is gone".to_owned(),
        })?;
        let lost = state.supervisor.clone();
        let state = State { generation, supervisor: own, version: VERSION.to_owned(), ..state };
        let mut supervisor = Self::new(dir, log, spec, state, signals);
        supervisor.adopted = Some(0);
        (supervisor.values, supervisor.known) = (values, known);
        if lost.boot == boot {
            supervisor.start_spool_trimmer();
            supervisor.start_tracing(true);
        }
        supervisor.take_over(&lost, lost.boot != boot);
        Ok(Some(supervisor))
    }

    fn take_over(&mut self, lost: &Identity, rebooted: bool) {
        let now = clock::host_now();
        self.find_wraps();
        let (values, known) = values_of(&self.spec, &self.state.wraps);
        self.values = self.values.and(&values);
        self.known.extend(known);
        self.enter(self.state.phase);
        if rebooted {
            let text = "the host was rebooted: what became of its ranks is not known";
            self.tell(&Note::new(what::REBOOTED, text, now));
        } else {
            let text = format!("the run's supervisor (process {}) was lost; its ranks go on", lost.pid);
            self.tell(&Note::new(what::SUPERVISOR_LOST, text, now));
            let text = format!("a new supervisor (process {}) owns the run", std::process::id());
            self.tell(&Note::new(what::ADOPTED, text, now));
            if let Some(note) = rendezvous::lost(&self.dir, &self.spec) {
                self.tell(&note);
            }
        }
        if let Ok(Some(mark)) = self.dir.read_json::<StopMark>(STOP) {
            let actions = self.machine.resume_stop(mark.now, mark.t, now);
            self.state.phase = Phase::Stopping;
            self.perform(actions);
        }
        let stopped = self.dir.has(STOP);
        let known: Vec<Rank> = self.machine.open().iter().copied().collect();
        for rank in known.into_iter().filter(|_| rebooted) {
            if let Ok(Some(exit)) = self.dir.read_json(&exit_file(rank)) {
                self.exited(rank, &exit);
            } else {
                let mut exit = self.exit(None, None);
                exit.cause = Some(REBOOTED.to_owned());
                // The first of them ends the others, but not this is what ended them.
                exit.stopped = stopped;
                self.record(rank, &exit);
            }
        }
    }

    /// The rank-wraps that the predecessor started and did not live to write down.
    fn find_wraps(&mut self) {
        let marked = marks::marked(&table::all(), &self.spec.run, &self.spec.host);
        for process in marked {
            let Ok(line) = memory::command_line(process.pid) else { continue };
            let wraps = self.spec.ranks.iter().map(|rank| rank.rank).find(|rank| wraps_rank(&line, *rank));
            if let Some(rank) = wraps.filter(|rank| !self.state.wraps.contains_key(rank))
                && let Ok(wrap) = Identity::of(process.pid)
            {
                self.state.wraps.insert(rank, wrap);
            }
        }
    }

    /// Looks for ranks that have ended; whether nothing of the run is left, found twice.
    pub(super) fn look_around(&mut self) -> bool {
        let open: Vec<Rank> = self.machine.open().iter().copied().collect();
        for rank in open {
            // Before the look at the file: a rank-wrap writes it and ends.
            let wrapped = self.state.wraps.get(&rank).is_some_and(Identity::alive);
            match self.dir.read_json(&exit_file(rank)) {
                Ok(Some(exit)) => self.exited(rank, &exit),
                _ if wrapped => {}
                _ => self.lose(rank),
            }
        }
        let empty = self.machine.open().is_empty()
            && !self.cgroup().is_some_and(|cgroup| cgroup.populated())
            && self.process_set().is_empty();
        self.adopted = Some(if empty { self.adopted.unwrap_or(0).saturating_add(1) } else { 0 });
        self.adopted >= Some(2)
    }

    /// A rank has lost its rank-wrap: it is no longer known how it ends.
    fn lose(&mut self, rank: Rank) {
        self.kill_rank(rank);
        let mut exit = self.exit(None, None);
        let began = self.state.wraps.contains_key(&rank);
        exit.cause =
            Some(if began { WRAP_KILLED } else { "its supervisor died before it was started" }.to_owned());
        self.record(rank, &exit);
    }
}

/// Whether a process with this command line is the rank-wrap of a rank.
fn wraps_rank(line: &[u8], rank: Rank) -> bool {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let number = rank.to_string();
    let named = words.windows(2).any(|pair| pair == [b"--rank".as_slice(), number.as_bytes()]);
    named && words.get(1) == Some(&b"rank-wrap".as_slice())
}
