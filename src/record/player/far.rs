//! Steps that lie far outside of the run are looked for once, after all that the screen shows.

use super::Player;

impl Player {
    /// Whether it is still to be looked for them: never while something else is read, or while it plays.
    pub fn looks_for_far_steps(&self) -> bool {
        let is_there = !self.moved && !self.reset_due && self.way_from.is_none();
        self.far_steps.is_some() && is_there && !self.motion.playing && !self.looks_ahead()
    }

    /// Looks at some of the recording; a line on them once all of it that is looked at is read, where there are some.
    pub fn look_for_far_steps(&mut self) -> Option<String> {
        if self.far_steps.as_mut()?.read(&self.reader) {
            return None;
        }
        self.far_steps.take()?.found(&self.reader).line()
    }
}
