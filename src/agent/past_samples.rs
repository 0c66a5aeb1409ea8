//! The samples that a host has noted during a run, told piece by piece in turn with what its ranks print.

use std::collections::VecDeque;

use crate::clock;
use crate::domain::ids::RunId;
use crate::domain::time::HostTime;
use crate::supervise::rundir::RunDir;
use crate::supervise::samples;
use crate::wire::samples::PastSamples;

/// What is still to be told of them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those of the last so many microseconds are wanted, and not read yet.
    wanted_us: Option<u64>,
    /// What was read and is not told yet.
    pieces: VecDeque<Vec<u8>>,
}

impl Queue {
    /// Of the samples of the last so many microseconds, or of none.
    pub(super) fn new(wanted_us: Option<u64>) -> Self {
        Self { wanted_us, pieces: VecDeque::new() }
    }

    /// The next piece, behind the last one an empty one; `None` once all are told.
    pub(super) fn next_piece(&mut self, dir: &RunDir, run: &RunId) -> Option<PastSamples> {
        if let Some(us) = self.wanted_us.take() {
            let noted = samples::since(dir, HostTime(clock::host_now().0.saturating_sub(us)));
            // the run is told all the same
            let noted =
                noted.inspect_err(|error| tracing::warn!(%error, "samples of this host are not told"));
            // behind them an empty piece: they were all
            self.pieces = noted.unwrap_or_default().into_iter().chain([Vec::new()]).collect();
        }
        let data = self.pieces.pop_front()?;
        Some(PastSamples { run: run.clone(), data: data.into() })
    }

    /// Whether nothing is left to be told.
    pub(super) fn is_over(&self) -> bool {
        self.wanted_us.is_none() && self.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::HostId;

    fn told(queue: &mut Queue, dir: &RunDir) -> Option<Vec<u8>> {
        queue.next_piece(dir, &RunId::new(1, 1)).map(|piece| piece.data.to_vec())
    }

    #[test]
    fn pieces_go_one_by_one_and_an_empty_one_ends_them() {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        // a host that has noted none
        let mut queue = Queue::new(Some(u64::MAX));
        assert!(!queue.is_over());
        assert_eq!(told(&mut queue, &dir), Some(Vec::new()));
        assert!(queue.is_over() && told(&mut queue, &dir).is_none());
        let mut queue = Queue { wanted_us: None, pieces: [vec![1], vec![2], vec![]].into() };
        for piece in [vec![1], vec![2], vec![]] {
            assert!(!queue.is_over());
            assert_eq!(told(&mut queue, &dir), Some(piece));
        }
        assert!(queue.is_over());
    }

    #[test]
    fn where_none_are_wanted_nothing_is_told() {
        let home = tempfile::tempdir().unwrap();
        let dir = RunDir::create(&home.path().join("s"), &RunId::new(1, 1), &HostId::from("a")).unwrap();
        let mut queue = Queue::new(None);
        assert!(queue.is_over() && told(&mut queue, &dir).is_none());
    }
}
