//! The keys that move the playhead.

use super::close;
use crate::tui::core::keymap::{Action, Binding, bind, c, k};
use crate::tui::core::{Effect, KeyCode, PlayCommand, Screen};
use crate::tui::screens::run::keys::{end_search, moves_sideways};
use crate::tui::screens::run::{Pane, window_us};
use crate::tui::screens::{Model, run};

/// Its keys; the order is the footer's.
pub(super) const KEYS: &[Binding] = &[
    bind(&[c(' ')], Action::PlayPause, "play", "play or pause"),
    bind(
        &[k(KeyCode::Left)],
        Action::SeekBack,
        "back",
        "a tenth of the window back; to the left where the log has the arrows and does not wrap",
    ),
    bind(
        &[k(KeyCode::Right)],
        Action::SeekForward,
        "forward",
        "a tenth of the window forward; to the right, likewise",
    ),
    bind(&[c('[')], Action::StepBack, "step -", "one training step back"),
    bind(&[c(']')], Action::StepForward, "step +", "one training step forward"),
    bind(&[c('J')], Action::GoTo, "go to", "go to 14:32:05, +90s, -10s, 50% or step 812"),
    bind(&[c('d')], Action::Back, "close", "close the replay"),
    bind(&[k(KeyCode::Esc)], Action::ClearFilter, "", "end the search, else close the replay"),
    bind(&[c('>')], Action::Faster, "faster", "play twice as fast"),
    bind(&[c('<')], Action::Slower, "slower", "play half as fast"),
    bind(&[c('(')], Action::PageBack, "", "a whole window back"),
    bind(&[c(')')], Action::PageForward, "", "a whole window forward"),
    bind(
        &[k(KeyCode::Home), c('g')],
        Action::ToStart,
        "",
        "to the start; of the log where it has the arrows",
    ),
    bind(&[k(KeyCode::End), c('G')], Action::ToEnd, "", "to the end, likewise"),
    bind(&[k(KeyCode::Tab)], Action::NextPane, "", "move between ranks and logs"),
    bind(&[c('A')], Action::AllRanks, "", "log of all ranks"),
    bind(&[c('F')], Action::Follow, "", "keep the log at the playhead"),
    bind(&[k(KeyCode::Enter)], Action::Open, "", "log of the selected rank alone"),
];

/// Does what a key means here.
pub(super) fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let window = window_us(model);
    let play = |command| vec![Effect::Play(command)];
    match action {
        Action::SeekBack | Action::SeekForward if moves_sideways(model) => run::keys::act(model, action),
        Action::ToStart if model.ui.run.pane == Pane::Logs => run::keys::act(model, Action::Top),
        Action::ToEnd if model.ui.run.pane == Pane::Logs => run::keys::act(model, Action::Bottom),
        Action::ClearFilter if end_search(model) => Vec::new(),
        Action::PlayPause => play(PlayCommand::Toggle),
        Action::SeekBack => play(PlayCommand::SeekBy(-(window / 10).max(1))),
        Action::SeekForward => play(PlayCommand::SeekBy((window / 10).max(1))),
        Action::PageBack => play(PlayCommand::SeekBy(-window)),
        Action::PageForward => play(PlayCommand::SeekBy(window)),
        Action::StepBack => play(PlayCommand::StepBy(-1)),
        Action::StepForward => play(PlayCommand::StepBy(1)),
        Action::Faster => play(PlayCommand::SpeedUp),
        Action::Slower => play(PlayCommand::SlowDown),
        Action::ToStart => play(PlayCommand::ToStart),
        Action::ToEnd => play(PlayCommand::ToEnd),
        Action::GoTo => {
            let prompt = crate::tui::screens::overlay::prompt::Prompt::new(
                crate::tui::screens::overlay::prompt::PromptKind::GoTo,
                "",
            );
            model.ui.overlay = crate::tui::screens::model::Overlay::Prompt(prompt);
            Vec::new()
        }
        Action::Back | Action::ClearFilter => close(model, Screen::Runs),
        _ => run::keys::act(model, action),
    }
}
