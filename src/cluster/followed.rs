//! The runs whose files are read on one host, across lost links: what was asked for, and how far it has come.
//! Pure.
//!
//! An agent may be wrong or hostile: it is heard only about the runs that were asked for, and about the ranks
//! that the request named. What it repeats after a lost link is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lines::{RankFiles, Told};
use crate::domain::event::Event;
use crate::domain::gpu::Reading;
use crate::domain::host::HostSample;
use crate::domain::ids::{Rank, RunId};
use crate::domain::log::Stream;
use crate::domain::plausible;
use crate::domain::redaction::Masks;
use crate::domain::run::RankExit;
use crate::domain::time::{HostTime, Stamp};
use crate::wire::chunk::{Chunk, Gap, Written};
use crate::wire::message::{Follow, Noted, Stop, ToAgent};
use crate::wire::samples::PastSamples;

/// How many notes a host may write about one run.
const NOTES: u64 = 1000;

/// After so many reports of a rank it is said how far its report file was read: a client that attaches
/// again reads no more than these a second time.
const MARK_EVERY: usize = 32;

/// The runs that are followed on one host.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    runs: BTreeMap<RunId, FollowedRun>,
    /// What must not be shown of what a run's ranks print.
    masks: BTreeMap<RunId, Masks>,
    /// Runs that have ended here and may be started again: their files go on, and so do their notes.
    ended: BTreeMap<RunId, (RankFiles, u64)>,
}

/// One run there.
#[derive(Debug)]
struct FollowedRun {
    follow: Follow,
    /// The ranks that live on this host.
    ranks: BTreeSet<Rank>,
    files: RankFiles,
    started: BTreeSet<Rank>,
    exited: BTreeSet<Rank>,
    /// Events from reports since the last mark.
    unmarked: BTreeMap<Rank, usize>,
    /// How many notes were taken in.
    notes: u64,
    /// Asked to stop: said again after a lost link, which may have swallowed it.
    stop: Option<Stop>,
}

impl Followed {
    /// Remembers a run; a second request for the same one changes nothing, but that it is to be stopped, or killed. A further attempt is asked for from where
    /// the last one ended.
    pub(crate) fn begin(&mut self, follow: &mut Follow) {
        if let Some(share) = self.runs.get_mut(&follow.run) {
            share.follow.stop = share.follow.stop.max(follow.stop);
            return;
        }
        let before =
            self.ended.remove(&follow.run).filter(|_| follow.attempt.is_some_and(|attempt| attempt > 0));
        let ranks = follow.from.iter().map(|(rank, ..)| *rank).collect();
        let (files, notes) = match before {
            Some((files, notes)) => {
                follow.from = files.offsets();
                (files, notes)
            }
            None => (RankFiles::from_offsets(&follow.from, &follow.steps_by), 0),
        };
        let share = FollowedRun {
            ranks,
            files,
            follow: follow.clone(),
            started: BTreeSet::new(),
            exited: BTreeSet::new(),
            unmarked: BTreeMap::new(),
            notes,
            stop: None,
        };
        self.runs.insert(follow.run.clone(), share);
    }

    /// Remembers a request to stop until the run has finished here. `false` when it is not followed.
    pub(crate) fn stop(&mut self, stop: &Stop) -> bool {
        let Some(share) = self.runs.get_mut(&stop.run) else {
            return false;
        };
        // asked once to kill, for good, or for no reader, it stays so
        let now = stop.now || share.stop.as_ref().is_some_and(|earlier| earlier.now);
        let whole = stop.whole || share.stop.as_ref().is_some_and(|earlier| earlier.whole);
        let unread = stop.unread || share.stop.as_ref().is_some_and(|earlier| earlier.unread);
        share.stop = Some(Stop { now, whole, unread, ..stop.clone() });
        true
    }

    /// The requests that resume every run at its next byte.
    pub(crate) fn resume(&self) -> Vec<ToAgent> {
        let mut requests = Vec::new();
        for share in self.runs.values() {
            let from = share.files.offsets();
            requests.push(ToAgent::Follow(Follow { from, ..share.follow.clone() }));
            // one that names no attempt may have been carried out before another one started
            let stop = share.stop.clone().filter(|stop| stop.attempt.is_some() || stop.whole);
            requests.extend(stop.map(ToAgent::Stop));
        }
        requests
    }

    /// A rank runs: the event, unless it is known or not for this host to say.
    pub(crate) fn started(&mut self, run: &RunId, rank: Rank, pid: u32, t: HostTime) -> Option<Event> {
        self.share(run, rank)?.started.insert(rank).then_some(Event::RankStarted { pid, t })
    }

    /// A piece of a file: the events that it completes.
    pub(crate) fn chunk(&mut self, chunk: &Chunk) -> Vec<Told> {
        let Some(share) = self.share(&chunk.run, chunk.rank) else {
            return Vec::new();
        };
        // the present was reached: whatever comes after a lost link is wanted whole
        share.follow.last = None;
        let mut events = share.files.push(chunk.rank, chunk.stream, chunk.offset, &chunk.data);
        if chunk.stream == Stream::Report {
            let unmarked = share.unmarked.entry(chunk.rank).or_default();
            *unmarked += events.len();
            if *unmarked >= MARK_EVERY {
                *unmarked = 0;
                let next = share.files.line_start(chunk.rank, Stream::Report);
                events.push(Event::ReportsRead { next }.into());
            }
        }
        events
    }

    /// The host saw a file grow; its bytes come next.
    pub(crate) fn written(&mut self, written: &Written) {
        if let Some(share) = self.share(&written.run, written.rank) {
            for (until, t) in [(written.until, written.t)].iter().chain(&written.then) {
                share.files.seen(written.rank, written.stream, *until, *t);
            }
        }
    }

    /// The lines that are to be told now without further bytes: see [`RankFiles::due`].
    pub(crate) fn due(&mut self, now: Stamp, all_read: bool) -> Vec<(RunId, Rank, Told)> {
        let runs = self.runs.iter_mut();
        runs.flat_map(|(run, share)| {
            share.files.due(now, all_read).into_iter().map(|(rank, told)| (run.clone(), rank, told))
        })
        .collect()
    }

    /// When the next unfinished line is to be told; known after [`Self::due`] was asked.
    pub(crate) fn next_due(&self) -> Option<Stamp> {
        self.runs.values().filter_map(|share| share.files.next_due()).min()
    }

    /// Whether a rank of a run is followed there, and has not ended.
    pub(crate) fn knows(&mut self, run: &RunId, rank: Rank) -> bool {
        self.share(run, rank).is_some_and(|share| !share.exited.contains(&rank))
    }

    /// Whether a run is followed there.
    pub(crate) fn follows(&self, run: &RunId) -> bool {
        self.runs.contains_key(run)
    }

    /// Whether a rank of a run is followed there.
    pub(crate) fn has(&self, run: &RunId, rank: Rank) -> bool {
        self.runs.get(run).is_some_and(|share| share.ranks.contains(&rank))
    }

    /// A part of a file that will not come: the lines that it cuts, and the gap.
    pub(crate) fn gap(&mut self, gap: &Gap) -> Vec<Told> {
        let share = self.share(&gap.run, gap.gap.rank);
        share.map_or_else(Vec::new, |share| share.files.skip(&gap.gap))
    }

    /// A rank has ended: its unfinished lines, then the end.
    pub(crate) fn exited(&mut self, run: &RunId, rank: Rank, exit: RankExit) -> Vec<Told> {
        let Some(share) = self.share(run, rank) else {
            return Vec::new();
        };
        if !share.exited.insert(rank) {
            return Vec::new();
        }
        let mut events = share.files.finish(rank);
        events.push(Event::RankExited { exit }.into());
        events
    }

    /// The lines of a run that no line end has finished: nothing more will come of them.
    pub(crate) fn unfinished(&mut self, run: &RunId) -> Vec<(Rank, Told)> {
        let Some(share) = self.runs.get_mut(run) else { return Vec::new() };
        let ranks: Vec<Rank> = share.ranks.iter().copied().collect();
        let finish = |rank| share.files.finish(rank).into_iter().map(move |event| (rank, event));
        ranks.into_iter().flat_map(finish).collect()
    }

    /// The host says something: the event, unless it is known.
    pub(crate) fn noted(&mut self, noted: Noted) -> Option<Event> {
        let share = self.runs.get_mut(&noted.run)?;
        if noted.number != Noted::UNNUMBERED {
            if noted.number < share.notes || noted.number >= NOTES {
                return None;
            }
            share.notes = noted.number + 1;
        }
        Some(Event::RunNoted { host: noted.host, note: noted.note })
    }

    /// Samples that the host has noted during a run, without the secret values of runs. They are asked for until the last piece has come,
    /// which is empty: a lost link may have swallowed some.
    pub(crate) fn past_samples(&mut self, past: &PastSamples) -> Vec<(HostTime, Arc<HostSample>)> {
        let Some(share) = self.runs.get_mut(&past.run) else { return Vec::new() };
        if past.data.is_empty() {
            share.follow.samples_us = None;
        }
        let samples = past.samples().into_iter().map(|(t, mut sample)| {
            plausible::bound_sample(&mut sample);
            self.mask_commands(&mut sample);
            (t, Arc::new(sample))
        });
        samples.collect()
    }

    /// Hides these values from now on in all that is heard of the run.
    pub(crate) fn hide(&mut self, run: &RunId, masks: Masks) {
        self.masks.insert(run.clone(), masks);
    }

    /// The event as it may be shown and recorded.
    pub(crate) fn masked(&self, run: &RunId, event: Event) -> Event {
        match self.masks.get(run) {
            Some(masks) => masks.apply(event),
            None => event,
        }
    }

    /// Hides the values of runs in what processes are called: one may stand in a rank's command line.
    pub(crate) fn mask_commands(&self, sample: &mut HostSample) {
        if self.masks.is_empty() {
            return;
        }
        let lists = sample.gpus.iter_mut().filter_map(|gpu| match &mut gpu.processes {
            Reading::Value(processes) => Some(processes),
            _ => None,
        });
        for process in lists.flatten() {
            if let Reading::Value(command) = &mut process.command {
                for masks in self.masks.values() {
                    *command = masks.hide(command).into_owned();
                }
            }
        }
    }

    /// Nothing of the run is left here. `false` when it was not followed.
    pub(crate) fn finished(&mut self, run: &RunId) -> bool {
        self.masks.remove(run);
        let Some(share) = self.runs.remove(run) else { return false };
        if share.follow.attempt.is_some() {
            self.ended.insert(run.clone(), (share.files, share.notes));
        }
        true
    }

    fn share(&mut self, run: &RunId, rank: Rank) -> Option<&mut FollowedRun> {
        let share = self.runs.get_mut(run).filter(|share| share.ranks.contains(&rank));
        if share.is_none() {
            tracing::warn!(%run, %rank, "an agent spoke of a rank that is not followed there");
        }
        share
    }
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
