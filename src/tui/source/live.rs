//! The live source: a recorded session, and the replay that a person opens beside it.
//!
//! While a replay is open the live stream goes on: it is recorded and folded here, so that closing the
//! replay shows the world as it is then.

use std::collections::VecDeque;
use std::path::Path;

use super::EventSource;
use super::recorded::Recorded;
use super::replay::Replay;
use crate::domain::ids::RunId;
use crate::domain::request::{LaunchPreview, LaunchRequest, RankPreview};
use crate::domain::world::World;
use crate::launcher::planned::Planned;
use crate::launcher::session::{Output, Session};
use crate::record::Store;
use crate::tui::core::effect::Effect;
use crate::tui::core::msg::{Level, Msg};

/// How many items are handed over at once, so that keys are never kept waiting.
const BATCH: usize = 512;

/// Live hosts and runs.
#[derive(Debug)]
pub struct Live {
    recorded: Recorded,
    store: Store,
    /// The live world, for coming back from a replay.
    world: World,
    replay: Option<Replay>,
    queue: VecDeque<Msg>,
}

impl Live {
    /// The UI's source over `session`, with recordings below `state_dir`.
    pub fn new(session: Session, state_dir: &Path) -> Self {
        Self {
            recorded: Recorded::new(session, state_dir),
            store: Store::new(state_dir),
            world: World::default(),
            replay: None,
            queue: VecDeque::new(),
        }
    }

    /// Runs that go on when the UI is left now.
    pub fn live_runs(&mut self) -> Vec<RunId> {
        self.recorded.session().live_runs()
    }

    fn take_in(&mut self, output: Output) {
        match output {
            Output::Event(envelope) => {
                self.world.apply(&envelope);
                if self.replay.is_none() {
                    self.queue.push_back(Msg::Event(*envelope));
                }
            }
            Output::Launched(run) => self.queue.push_back(Msg::Launched(run)),
            Output::LaunchFailed(error) => self.notice(Level::Error, error.to_string()),
            Output::Gone(run, host) => {
                self.notice(Level::Info, format!("nothing of run {} is left on {host}", run.short()));
            }
            Output::Found { .. } => {}
            Output::Refused(run, host, reason) => {
                self.notice(Level::Error, format!("run {} on {host}: {reason}", run.short()));
            }
        }
        while let Some(trouble) = self.recorded.trouble() {
            self.notice(Level::Warning, trouble);
        }
    }

    fn notice(&mut self, level: Level, text: String) {
        self.queue.push_back(Msg::Notice(level, text));
    }

    fn open_replay(&mut self, run: &RunId) {
        match Replay::open(&self.store.path_of(run)) {
            Ok(replay) => self.replay = Some(replay),
            Err(error) => self.notice(Level::Error, error.to_string()),
        }
    }

    fn close_replay(&mut self) {
        if self.replay.take().is_some() {
            self.queue.push_back(Msg::Reset(Box::new(self.world.clone())));
        }
    }

    fn list_runs(&mut self) {
        match self.store.list() {
            Ok(listing) => {
                for lost in listing.unreadable {
                    self.notice(Level::Warning, format!("run {}: {}", lost.run.short(), lost.reason));
                }
                self.queue.push_back(Msg::RunsListed(listing.runs));
            }
            Err(error) => self.notice(Level::Error, error.to_string()),
        }
    }

    fn preview(&mut self, request: &LaunchRequest) {
        let planned = self.recorded.session().preview(request);
        let planned = planned.map(|planned| preview(&planned)).map_err(|error| error.to_string());
        self.queue.push_back(Msg::LaunchPlanned(planned));
    }
}

/// What each rank of a plan would execute.
pub fn preview(planned: &Planned) -> LaunchPreview {
    let specs: Vec<_> = planned.hosts.iter().flat_map(|host| &host.ranks).collect();
    let ranks = planned.spec.placements.iter().filter_map(|placement| {
        let spec = specs.iter().find(|spec| spec.rank == placement.rank)?;
        Some(RankPreview { placement: placement.clone(), env: spec.env.clone(), argv: spec.argv.clone() })
    });
    LaunchPreview { ranks: ranks.collect() }
}

impl EventSource for Live {
    async fn next(&mut self) -> Vec<Msg> {
        while self.queue.is_empty() {
            if let Some(replay) = &mut self.replay {
                tokio::select! {
                    messages = replay.advance() => self.queue.extend(messages),
                    output = self.recorded.next() => self.take_in(output),
                }
            } else {
                let output = self.recorded.next().await;
                self.take_in(output);
            }
        }
        // counted by what comes in: beside a replay nothing of it is handed over
        for output in std::iter::from_fn(|| self.recorded.try_next()).take(BATCH).collect::<Vec<_>>() {
            self.take_in(output);
        }
        self.queue.drain(..).collect()
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Preview(request) => self.preview(&request),
            Effect::Launch(request) => self.recorded.session().launch(request),
            Effect::StopRun { run, now } => {
                if !self.recorded.session().stop(&run, now) {
                    self.notice(Level::Info, format!("run {} is over", run.short()));
                }
            }
            Effect::OpenReplay(run) => self.open_replay(&run),
            Effect::CloseReplay => self.close_replay(),
            Effect::Play(command) => {
                if let Some(replay) = &mut self.replay {
                    replay.play(command);
                }
            }
            Effect::ListRuns => self.list_runs(),
            Effect::Reconnect(host) => self.recorded.session().reconnect(&host),
            Effect::Quit => {}
        }
    }
}
