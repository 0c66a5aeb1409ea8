//! What a client that was started with `--readonly` refuses: everything that changes something on a host.

use crate::domain::signal::SignalRequest;
use crate::tui::core::keymap::Action;
use crate::tui::core::{Effect, Level};
use crate::tui::screens::Model;

/// What an effect does to a host, where it changes something there.
fn change(effect: &Effect) -> Option<&'static str> {
    match effect {
        Effect::Start(_) | Effect::Launch(_) => Some("a launch"),
        Effect::StopRun { .. } | Effect::StopForeign { .. } => Some("a stop"),
        Effect::Trace(_) => Some("a kernel trace"),
        Effect::DeleteRuns(_) => Some("a deletion"),
        // hvtui's hooks answer a signal
        Effect::AskStacks { .. } => Some("a look at the stacks, which signals the ranks"),
        Effect::Signal { request: SignalRequest::Send { .. }, .. } => Some("a signal"),
        Effect::Signal { request: SignalRequest::Look { .. }, .. }
        | Effect::Alert(..)
        | Effect::Preview(_)
        | Effect::Preflight(..)
        | Effect::CheckHosts(_)
        | Effect::ReadHostFile(_)
        | Effect::ListFolder(_)
        | Effect::LeaveQueue
        | Effect::Attach(_)
        | Effect::OpenReplay(_)
        | Effect::CloseReplay
        | Effect::Play(_)
        | Effect::PlayThen(_)
        | Effect::ShowWindow(_)
        | Effect::ReadClosely(..)
        | Effect::FindLine(_)
        | Effect::Analyze { .. }
        | Effect::ListRuns
        | Effect::AskHosts
        | Effect::Answer(..)
        | Effect::Reconnect(_)
        | Effect::Acknowledge(_)
        | Effect::Redraw
        | Effect::Suspend
        // on this machine alone
        | Effect::Copy(_)
        | Effect::Save { .. }
        | Effect::Mark(..)
        | Effect::Report(_)
        | Effect::LeaveReport
        | Effect::Quit => None,
    }
}

/// The same of a key's meaning, so that no form is filled in and no question answered for nothing.
fn wanted(action: Action) -> Option<&'static str> {
    match action {
        Action::Launch | Action::Again => Some("a launch"),
        Action::Stop => Some("a stop"),
        Action::Signal => Some("a signal"),
        Action::Trace => Some("a kernel trace"),
        Action::Delete => Some("a deletion"),
        Action::Stacks => Some("a look at the stacks, which signals the ranks"),
        _ => None,
    }
}

/// Whether a key is refused; says so.
pub(super) fn refuses(model: &mut Model, action: Action) -> bool {
    let Some(what) = wanted(action).filter(|_| model.readonly) else { return false };
    say(model, what);
    true
}

/// Whether a key does what it says.
pub(super) fn allows(model: &Model, action: Action) -> bool {
    !model.readonly || wanted(action).is_none()
}

/// What is said where there is no run yet: `how` one is launched, where this client launches any.
pub(super) fn no_run(model: &Model, how: &'static str) -> &'static str {
    if model.readonly { "no run yet, and a read-only client launches none" } else { how }
}

/// Takes out what would change a host; says so.
pub(super) fn hold_back(model: &mut Model, effects: &mut Vec<Effect>) {
    if !model.readonly {
        return;
    }
    let refused = effects.iter().find_map(change);
    effects.retain(|effect| change(effect).is_none());
    if let Some(what) = refused {
        say(model, what);
    }
}

fn say(model: &mut Model, what: &str) {
    model.notice(
        Level::Warning,
        format!("read-only: {what} is refused; start hvtui without --readonly for it"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::RunId;
    use crate::domain::time::Stamp;

    #[test]
    fn what_changes_a_host_is_held_back() {
        let mut model = Model::live(Vec::new(), Stamp(1), 0);
        let all = || vec![Effect::ListRuns, Effect::StopRun { run: RunId::new(1, 1), now: true }];
        let mut effects = all();
        hold_back(&mut model, &mut effects);
        assert_eq!((effects, model.ui.toasts.len()), (all(), 0));
        model.readonly = true;
        let mut effects = all();
        hold_back(&mut model, &mut effects);
        assert_eq!(effects, [Effect::ListRuns]);
        assert!(no_run(&model, "launch with L").ends_with("a read-only client launches none"));
        model.readonly = false;
        assert_eq!(no_run(&model, "launch with L"), "launch with L");
        assert!(model.ui.toasts[0].text.starts_with("read-only: a stop is refused"));
    }
}
