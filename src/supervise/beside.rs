//! What a supervisor has running beside its ranks: the trimmer of what they print, the daemon that traces are asked by, and
//! the recorders of their collectives. A run goes on without any of them.

use super::flight;
use super::kineto;
use super::notes;
use super::rundir::RunDir;
use super::spool_trimmer::SpoolTrimmer;
use super::supervisor::{Supervisor, line};
use crate::clock;
use crate::domain::note::{Note, what};

impl Supervisor {
    /// Before the first rank: it may print at once. A run whose output can't be kept within its cap runs all the same.
    pub(super) fn start_spool_trimmer(&mut self) {
        if let Err(error) = notes::reserve(&self.dir) {
            self.note(&error.to_string());
        }
        let (log, dir) = (self.log.try_clone(), RunDir::open(self.dir.path()));
        let say = move |text: &str| {
            if let Ok(log) = &log {
                line(log, text);
            }
            if let Ok(dir) = &dir {
                // A disk that is full is what it may have to say.
                let _ = notes::add(dir, &Note::new(what::SPOOL, text, clock::host_now()));
            }
        };
        match SpoolTrimmer::start(&self.dir, &self.spec, Box::new(say)) {
            Ok(trimmer) => self.spool_trimmer = Some(trimmer),
            Err(error) => self.note(&format!("what ranks print is not kept within a cap: {error}")),
        }
    }

    /// Before the first rank, which asks there at once; with `again` where an earlier supervisor has listened.
    pub(super) fn start_tracing(&mut self, again: bool) {
        if !self.spec.traceable {
            return;
        }
        match kineto::Server::start(&self.dir, &self.spec, again, self.log.try_clone().ok()) {
            Ok(server) => self.tracing = Some(server),
            Err(error) => self.note(&format!("the ranks can't be asked for a kernel trace: {error}")),
        }
    }

    /// Before the first rank, which is told where to dump what it calls.
    pub(super) fn start_recorders(&mut self) {
        match flight::prepare(&self.dir, &self.spec) {
            Ok(port) => self.ras = port,
            Err(error) => self.note(&format!("collectives are not recorded: {error}")),
        }
    }
}
