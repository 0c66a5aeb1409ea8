//! What was asked of an agent: an answer to nothing is none. Pure.

use std::collections::{BTreeSet, VecDeque};

use crate::domain::ids::RunId;
use crate::wire::image::ImageAsk;
use crate::wire::message::{FromAgent, Runs, ToAgent};
use crate::wire::sync::SyncAsk;

/// Names of one kind that are remembered, the newest.
const NAMES: usize = 4096;
/// What an answer to a question for runs may have: bytes on the wire, beyond which runs come without what they were asked to do,
/// and runs. An agent tells 500 and those older ones that are live.
const LIST_BYTES: usize = 8 << 20;
const LIST_RUNS: usize = 1024;

/// What was asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// About these runs.
    runs: Newest<RunId>,
    /// These questions about launches.
    preflights: Newest<u64>,
    /// These checks of the doctor.
    checks: Newest<(u64, String)>,
    uploads: Newest<u32>,
    /// Anything of a mesh.
    mesh: bool,
    /// Which runs there are: what is left of the room for the answer.
    list: Option<(usize, usize)>,
}

impl Asked {
    /// A message is sent.
    pub(super) fn sent(&mut self, message: &ToAgent) {
        match message {
            ToAgent::Prepare(plan) => self.runs.add(&plan.run),
            ToAgent::Commit(commit) => self.runs.add(&commit.run),
            ToAgent::Abort(of) | ToAgent::Forget(of) => self.runs.add(&of.run),
            ToAgent::Follow(follow) => self.runs.add(&follow.run),
            ToAgent::Stop(stop) => self.runs.add(&stop.run),
            ToAgent::Queue(queue) => self.runs.add(&queue.ticket),
            ToAgent::Trace(trace) => self.runs.add(&trace.run),
            ToAgent::AskStacks(ask) => self.runs.add(&ask.run),
            ToAgent::AskPreflight(ask) => {
                self.preflights.add(&ask.ask);
                self.runs.add(&ask.spec.run);
            }
            ToAgent::AskChecks(ask) => {
                ask.checks.iter().for_each(|check| self.checks.add(&(ask.ask, check.clone())));
            }
            ToAgent::Sync(SyncAsk::Open(open)) => {
                self.runs.add(&open.run);
                self.uploads.add(&open.upload);
            }
            ToAgent::Image(ImageAsk::Open(open)) => self.uploads.add(&open.upload),
            ToAgent::BlobPiece(piece) => self.uploads.add(&piece.upload),
            ToAgent::Mesh(_) => self.mesh = true,
            ToAgent::ListRuns(_) => self.list = Some((LIST_BYTES, LIST_RUNS)),
            ToAgent::Hello(_)
            | ToAgent::Ping(_)
            | ToAgent::Watch(_)
            | ToAgent::Credit(_)
            | ToAgent::Sync(_)
            | ToAgent::Image(_)
            | ToAgent::Signal(_) => {}
        }
    }

    /// Whether a message of so many bytes answers something, or needs no question. Takes out of it what is more than was asked
    /// for.
    pub(super) fn answers(&mut self, message: &mut FromAgent, bytes: usize) -> bool {
        let run = match message {
            FromAgent::Runs(runs) => return self.lists(runs, bytes),
            FromAgent::Preflight(told) => return self.preflights.has(&told.ask),
            FromAgent::Checked(told) => return self.checks.has(&(told.ask, told.check.clone())),
            FromAgent::Image(told) => return self.uploads.has(&told.upload),
            FromAgent::BlobsTaken(taken) => return self.uploads.has(&taken.upload),
            FromAgent::Sync(told) => return self.uploads.has(&told.upload),
            FromAgent::Mesh(_) => return self.mesh,
            FromAgent::Prepared(m) => &m.run,
            FromAgent::Refused(m) => &m.run,
            FromAgent::Started(m) | FromAgent::Finished(m) => &m.run,
            FromAgent::RankStarted(m) => &m.run,
            FromAgent::RankExited(m) => &m.run,
            FromAgent::Written(m) => &m.run,
            FromAgent::Chunk(m) => &m.run,
            FromAgent::Gap(m) => &m.run,
            FromAgent::Noted(m) => &m.run,
            FromAgent::Stands(m) => &m.run,
            FromAgent::Traces(m) => &m.run,
            FromAgent::TracePiece(m) => &m.run,
            FromAgent::PastSamples(m) => &m.run,
            FromAgent::Stacks(m) => &m.run,
            FromAgent::Collectives(m) => &m.run,
            FromAgent::Forgotten(m) => &m.run,
            FromAgent::Hello(_)
            | FromAgent::Pong(_)
            | FromAgent::Info(_)
            | FromAgent::Sample(_)
            | FromAgent::GpuEvents(_)
            | FromAgent::Leases(_)
            | FromAgent::Signal(_) => return true,
        };
        self.runs.has(run)
    }

    fn lists(&mut self, runs: &mut Runs, bytes: usize) -> bool {
        let Some((room, count)) = &mut self.list else { return false };
        runs.shares.truncate(*count);
        *count -= runs.shares.len();
        if let Some(left) = room.checked_sub(bytes) {
            *room = left;
        } else {
            *room = 0;
            runs.shares.iter_mut().for_each(|share| share.spec = None);
        }
        if runs.last {
            self.list = None;
        }
        true
    }
}

/// The newest of some names.
#[derive(Debug)]
struct Newest<T> {
    known: BTreeSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), order: VecDeque::new() }
    }
}

impl<T: Ord + Clone> Newest<T> {
    fn add(&mut self, name: &T) {
        if !self.known.insert(name.clone()) {
            return;
        }
        self.order.push_back(name.clone());
        if self.order.len() > NAMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn has(&self, name: &T) -> bool {
        self.known.contains(name)
    }
}
