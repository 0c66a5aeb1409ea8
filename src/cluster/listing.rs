//! Questions for the runs of a host: one at a time on a link, for an answer in several parts does not say which question it is
//! of. Pure.

use crate::wire::message::ListRuns;

/// What is asked on a link and what comes next.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// An answer is not whole yet.
    due: bool,
    next: Option<ListRuns>,
}

impl Listing {
    /// Whether a question may be sent now. Else it is asked with those that wait.
    pub(super) fn begin(&mut self, which: ListRuns) -> bool {
        if self.due {
            self.next = Some(self.next.map_or(which, |next| next.and(which)));
            return false;
        }
        self.due = true;
        true
    }

    /// An answer is whole.
    pub(super) fn answered(&mut self) {
        self.due = false;
    }

    /// What is to be asked now.
    pub(super) fn next(&mut self) -> Option<ListRuns> {
        if self.due { None } else { self.next.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_waits_for_the_answer_before_it_and_asks_for_all_that_was_asked() {
        let (some, all) = (ListRuns { newest: 32, oldest: 0 }, ListRuns::default());
        let mut listing = Listing::default();
        assert!(listing.begin(some));
        assert!(!listing.begin(some));
        assert!(!listing.begin(ListRuns { newest: 8, oldest: 5 }));
        assert_eq!(listing.next(), None);
        listing.answered();
        let both = ListRuns { newest: 32, oldest: 5 };
        assert_eq!(listing.next(), Some(both));
        assert_eq!(listing.next(), None);
        assert!(listing.begin(both));
        assert!(!listing.begin(some) && !listing.begin(all));
        listing.answered();
        assert_eq!(listing.next(), Some(all), "all is more than some");
    }
}
