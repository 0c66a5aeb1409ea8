//! A recording as a source: the player's moves become messages. Only the player knows where it stands.

use std::path::Path;

use crate::clock;
use crate::record::{Error, Player};
use crate::tui::core::{Effect, Msg, PlayCommand};
use crate::tui::source::EventSource;

/// Speeds double and halve, between these.
const SPEEDS: (f64, f64) = (0.125, 64.0);

/// One recording, played.
#[derive(Debug)]
pub struct Replay {
    player: Player,
    /// Where it stands must be told even if it does not move.
    told: bool,
}

impl Replay {
    /// Opens a recording at its start, paused.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { player: Player::open(path)?, told: false })
    }

    /// The player.
    pub fn player(&self) -> &Player {
        &self.player
    }

    /// Carries a command out; [`Replay::next`] tells what came of it.
    pub fn play(&mut self, command: PlayCommand) {
        let state = self.player.state();
        match command {
            PlayCommand::Toggle => self.player.toggle(),
            PlayCommand::SeekBy(micros) => self.player.seek(state.playhead.plus_micros(micros)),
            PlayCommand::SeekTo(stamp) => self.player.seek(stamp),
            PlayCommand::StepBy(steps) => self.player.step(steps),
            PlayCommand::SpeedUp => self.player.set_speed((state.speed * 2.0).min(SPEEDS.1)),
            PlayCommand::SlowDown => self.player.set_speed((state.speed / 2.0).max(SPEEDS.0)),
            PlayCommand::ToStart => self.player.seek(state.start),
            PlayCommand::ToEnd => self.player.seek(state.end),
        }
        self.told = false;
    }

    /// The next moves; pending while the playhead stands still.
    pub async fn advance(&mut self) -> Vec<Msg> {
        if self.told {
            match self.player.next_wake(clock::now()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        }
        let playback = self.player.advance(clock::now());
        self.told = true;
        let mut messages: Vec<Msg> = playback.reset.map(Msg::Reset).into_iter().collect();
        messages.extend(playback.envelopes.into_iter().map(Msg::Replayed));
        messages.push(Msg::Playback(self.player.state()));
        messages
    }
}

impl EventSource for Replay {
    async fn next(&mut self, _most: usize) -> Vec<Msg> {
        // what was recorded between two frames is no flood
        self.advance().await
    }

    fn perform(&mut self, effect: Effect) {
        // a recording has no hosts and no runs: nothing else can be asked of it
        if let Effect::Play(command) = effect {
            self.play(command);
        }
    }
}
