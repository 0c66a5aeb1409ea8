//! The way back: which screens lie below the one that is shown. Knows no more of them than their names.

use crate::tui::core::Screen;

/// The screens that one level out leads to, the last one first. None stands in it twice, so it is no longer than there are
/// screens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trail(Vec<Screen>);

impl Trail {
    /// `to` is opened from `from`. Where it was open already, it is now on top.
    pub fn opened(&mut self, from: Screen, to: Screen) {
        if from != to {
            self.0.retain(|screen| ![from, to].contains(screen));
            self.0.push(from);
        }
    }

    /// Takes away the screen that one level out leads to; that is the first one, where there is no other.
    pub fn out(&mut self) -> Screen {
        self.0.pop().unwrap_or_default()
    }

    /// A screen is no more.
    pub fn forget(&mut self, gone: Screen) {
        self.0.retain(|screen| *screen != gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_the_way_there_without_circles() {
        use Screen::{Cluster, Detail, Events, Launch, Run, Runs};
        let mut trail = Trail::default();
        let mut at = Runs;
        for to in [Run, Launch, Events, Detail, Events, Events, Run] {
            trail.opened(at, to);
            at = to;
        }
        assert_eq!(trail.0, [Runs, Launch, Detail, Events]);
        assert_eq!([trail.out(), trail.out()], [Events, Detail]);
        trail.forget(Launch);
        assert_eq!([trail.out(), trail.out(), trail.out()], [Runs, Cluster, Cluster]);
    }
}
