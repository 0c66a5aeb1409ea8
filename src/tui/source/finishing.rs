//! Finishes the recordings of runs that have ended on a thread of its own, in the order of their ends: who follows other runs
//! doesn't wait for the disk. Knows no session.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::domain::ids::RunId;
use crate::tui::source::ended::{Ended, Finished};
use crate::tui::source::recorded::Recorded;

/// The recordings that are being finished.
#[derive(Debug)]
pub struct Finishing {
    jobs: Option<mpsc::Sender<Job>>,
    answers: (UnboundedSender<Finished>, UnboundedReceiver<Finished>),
    under_way: VecDeque<(RunId, PathBuf)>,
}

#[derive(Debug)]
enum Job {
    Finish(Ended),
    /// Dropped when its turn comes.
    Pass(mpsc::Sender<()>),
}

/// What was being finished at some time.
#[derive(Debug)]
pub(super) struct SoFar(Option<mpsc::Receiver<()>>);

impl SoFar {
    /// Waits until all of it is finished.
    pub(super) fn wait(self) {
        if let Some(passed) = self.0 {
            // nothing is ever sent: the sender goes when its turn comes
            let _ = passed.recv();
        }
    }
}

impl Default for Finishing {
    fn default() -> Self {
        Self { jobs: None, answers: unbounded_channel(), under_way: VecDeque::new() }
    }
}

impl Finishing {
    /// Finishes the recordings of all runs that have ended. Does not wait for them.
    pub fn take(&mut self, recorded: &mut Recorded) {
        for ended in recorded.take_ended() {
            self.finish(ended);
        }
    }

    pub(super) fn finish(&mut self, ended: Ended) {
        self.under_way.push_back((ended.run().clone(), ended.path().to_owned()));
        if self.jobs.is_none() {
            self.jobs = start(self.answers.0.clone()).ok();
        }
        let unsent = match &self.jobs {
            Some(jobs) => jobs.send(Job::Finish(ended)).err().map(|error| error.0),
            None => Some(Job::Finish(ended)),
        };
        if let Some(Job::Finish(ended)) = unsent {
            // no thread is left for it: here, then
            let _ = self.answers.0.send(ended.finish());
        }
    }

    /// What is being finished now: whatever is done with those recordings later has to wait for it.
    pub(super) fn so_far(&self) -> SoFar {
        let jobs = self.jobs.as_ref().filter(|_| !self.under_way.is_empty());
        SoFar(jobs.and_then(|jobs| {
            let (pass, passed) = mpsc::channel();
            jobs.send(Job::Pass(pass)).ok().map(|()| passed)
        }))
    }

    /// The next recording that was finished; pending while there is none. Cancel-safe.
    pub async fn next(&mut self) -> Finished {
        match self.answers.1.recv().await {
            Some(finished) => {
                self.under_way.pop_front();
                finished
            }
            // not while the sender beside it lives
            None => std::future::pending().await,
        }
    }

    /// What is still to be written, and what a person can do about it; `None` when nothing is.
    pub fn words(&self) -> Option<String> {
        let (run, path) = self.under_way.front()?;
        let short = run.short();
        let remedy = "reads the rest from its hosts";
        if self.under_way.len() == 1 {
            let what = format!("the recording of run {short} to be written to {}", path.display());
            return Some(format!("{what}; ctrl-c leaves it as it is: then `hvtui attach {short}` {remedy}"));
        }
        let runs: Vec<&str> = self.under_way.iter().map(|(run, _)| run.short()).collect();
        let folder = path.ancestors().nth(2).unwrap_or(path);
        let what =
            format!("the recordings of runs {} to be written below {}", runs.join(", "), folder.display());
        Some(format!("{what}; ctrl-c leaves them as they are: then `hvtui attach RUN` {remedy}"))
    }
}

fn start(answers: UnboundedSender<Finished>) -> std::io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel();
    let work = move || {
        for job in jobs {
            match job {
                // when the program leaves without it, the recording is finished all the same
                Job::Finish(ended) => drop(answers.send(ended.finish())),
                Job::Pass(pass) => drop(pass),
            }
        }
    };
    std::thread::Builder::new().name("recordings' ends".to_owned()).spawn(work)?;
    Ok(sender)
}
