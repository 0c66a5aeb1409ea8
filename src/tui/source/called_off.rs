//! Launches that are called off while it is not read yet that they have become runs.

use std::collections::VecDeque;

use crate::domain::ids::RunId;
use crate::tui::core::Msg;

/// Takes out of what is to be read which runs launches have become: they are to be stopped, and are not told of as started.
pub(super) fn take_launched(queue: &mut VecDeque<Msg>) -> Vec<RunId> {
    let mut launched = Vec::new();
    queue.retain(|msg| {
        let Msg::Launched(run) = msg else { return true };
        launched.push(run.clone());
        false
    });
    launched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_stopped_unread_is_not_told_of_as_started() {
        let (run, other) = (RunId::new(1, 1), RunId::new(1, 2));
        let mut queue = VecDeque::from([Msg::Launched(run.clone()), Msg::Withdrawn(other.clone())]);
        assert_eq!(take_launched(&mut queue), [run]);
        assert!(matches!(queue.make_contiguous(), [Msg::Withdrawn(left)] if *left == other));
        assert!(take_launched(&mut queue).is_empty() && queue.len() == 1);
    }
}
