//! Signals to the processes of a demo host: those of its tenants end, halt and go on as real ones do.

use std::collections::BTreeSet;

use crate::domain::gpu::{GpuProcess, Reading};
use crate::domain::signal::{FoundProcess, ProcessKey, SignalAnswer, SignalName, SignalRequest, Signalled};
use crate::wire::signal::{SignalAsk, SignalTold};

/// The login on the demo's hosts: other users' processes are left alone.
const LOGIN: &str = "you";

/// What signals have done to a host's processes so far.
#[derive(Debug, Default)]
pub(super) struct Touched {
    ended: BTreeSet<u32>,
    halted: BTreeSet<u32>,
}

impl Touched {
    /// Whether a process is still there.
    pub(super) fn runs(&self, pid: u32) -> bool {
        !self.ended.contains(&pid)
    }

    /// Whether it was halted.
    pub(super) fn is_halted(&self, pid: u32) -> bool {
        self.halted.contains(&pid)
    }

    /// Answers a request about these processes on the host's GPUs.
    pub(super) fn answer(&mut self, ask: &SignalAsk, on_gpus: &[GpuProcess]) -> SignalTold {
        let answer = match &ask.request {
            SignalRequest::Look { process: named, tree, .. } => {
                let mut processes = with_children(on_gpus, named.pid);
                processes.retain(|process| self.runs(process.key.pid));
                if !tree {
                    processes.truncate(1);
                }
                match processes.first().filter(|first| first.key == *named) {
                    Some(_) => SignalAnswer::Found { processes, note: None },
                    None => SignalAnswer::Refused { reason: format!("process {}: it has ended", named.pid) },
                }
            }
            SignalRequest::Send { signal, processes, .. } => {
                let there: Vec<FoundProcess> =
                    on_gpus.iter().flat_map(|process| with_children(on_gpus, process.pid)).collect();
                let one = |key: &ProcessKey| {
                    let found = there.iter().find(|one| one.key == *key && self.runs(key.pid));
                    let refusal = found.map_or(Some("it has ended".to_owned()), |one| one.refusal.clone());
                    Signalled { key: *key, refusal }
                };
                let processes: Vec<Signalled> = processes.iter().map(one).collect();
                let hit = processes.iter().filter(|one| one.refusal.is_none());
                hit.for_each(|one| self.hit(one.key.pid, *signal));
                SignalAnswer::Sent { processes }
            }
        };
        SignalTold { number: ask.number, answer }
    }

    fn hit(&mut self, pid: u32, signal: SignalName) {
        match signal {
            SignalName::Stop => drop(self.halted.insert(pid)),
            SignalName::Cont => drop(self.halted.remove(&pid)),
            // a halted process takes no notice before it goes on
            SignalName::Term | SignalName::Int | SignalName::Hup if self.is_halted(pid) => {}
            SignalName::Term | SignalName::Int | SignalName::Hup | SignalName::Kill => {
                self.ended.insert(pid);
            }
        }
    }
}

/// A process and what it has started: two workers that load data.
fn with_children(on_gpus: &[GpuProcess], pid: u32) -> Vec<FoundProcess> {
    let Some((process, key)) =
        on_gpus.iter().find(|one| one.pid == pid).and_then(|one| Some((one, one.key()?)))
    else {
        return Vec::new();
    };
    let refusal = match (&process.run, process.user.value().map(String::as_str)) {
        (Some(run), _) => Some(format!(
            "it is a rank of run {}, and those of a demo are no processes: x on the Run screen ends the run",
            run.id.short()
        )),
        (None, Some(owner)) if owner != LOGIN => Some(format!(
            "belongs to {owner}; hvtui is logged in as {LOGIN} there: ask {owner} or an administrator, or log in as {owner}"
        )),
        _ => None,
    };
    let found = |number: u32, suffix: &str| FoundProcess {
        key: ProcessKey { pid: key.pid + number, start: key.start + u64::from(number) },
        user: process.user.clone(),
        command: process.command.clone().map(|command| format!("{command}{suffix}")),
        refusal: refusal.clone(),
    };
    let loads_data = process.run.is_none()
        && matches!(&process.command, Reading::Value(command) if command.contains("train"));
    let workers = if loads_data { 2 } else { 0 };
    std::iter::once(found(0, "")).chain((1..=workers).map(|number| found(number, " (data worker)"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, user: &str) -> GpuProcess {
        GpuProcess {
            user: Reading::Value(user.to_owned()),
            command: Reading::Value("python pretrain.py".to_owned()),
            start_ticks: Reading::Value(5),
            ..GpuProcess::unknown(pid)
        }
    }

    fn look(pid: u32, tree: bool) -> SignalAsk {
        let process = ProcessKey { pid, start: 5 };
        SignalAsk { number: 3, request: SignalRequest::Look { boot: String::new(), process, tree } }
    }

    fn found(touched: &mut Touched, ask: &SignalAsk, there: &[GpuProcess]) -> Vec<FoundProcess> {
        match touched.answer(ask, there).answer {
            SignalAnswer::Found { processes, .. } => processes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tree_ends_and_that_of_another_user_is_left_alone() {
        let (mut touched, there) = (Touched::default(), [process(100, LOGIN), process(200, "li")]);
        assert_eq!(found(&mut touched, &look(100, false), &there).len(), 1);
        let tree = found(&mut touched, &look(100, true), &there);
        let guarded = found(&mut touched, &look(200, false), &there);
        assert_eq!((tree.len(), guarded[0].refusal.is_some()), (3, true));
        let mut send = |signal, processes: &[FoundProcess]| {
            let processes = processes.iter().map(|one| one.key).collect();
            let request = SignalRequest::Send { boot: String::new(), signal, processes };
            match touched.answer(&SignalAsk { number: 4, request }, &there).answer {
                SignalAnswer::Sent { processes } => {
                    processes.into_iter().filter(|one| one.refusal.is_some()).count()
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(send(SignalName::Stop, &tree[..1]), 0);
        assert_eq!(send(SignalName::Term, &tree), 0);
        assert_eq!(send(SignalName::Kill, &guarded), 1);
        assert!(touched.runs(100) && touched.is_halted(100) && !touched.runs(101) && touched.runs(200));
        touched.hit(100, SignalName::Cont);
        touched.hit(100, SignalName::Term);
        let gone = touched.answer(&look(100, true), &there).answer;
        assert!(matches!(gone, SignalAnswer::Refused { .. }), "{gone:?}");
    }
}
