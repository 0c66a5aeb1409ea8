//! How long recordings are kept: by age, count and size, and which of them are beyond that. Pure.

use std::time::Duration;

use super::time::Stamp;
use super::units;

/// What is kept. Without any rule, everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Runs whose last event is older go.
    pub older_than: Option<Duration>,
    /// So many of the newest runs stay and, counted apart, as many of the newest imports.
    pub keep: Option<u64>,
    /// The newest runs stay that take no more than so many bytes together.
    pub max_size: Option<u64>,
}

/// A run as the rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    /// Its last recorded event.
    pub last_at: Stamp,
    /// Bytes of its recording.
    pub bytes: u64,
    /// Whether it was imported from another program's trace.
    pub is_imported: bool,
}

/// The rule by which a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// [`Retention::older_than`].
    Age,
    /// [`Retention::keep`].
    Count,
    /// The same of an import.
    Imports,
    /// [`Retention::max_size`].
    Size,
}

impl Retention {
    /// Whether it keeps everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Which rule each run is beyond, in the order given: newest first. A run that may not go counts as one that is kept.
    pub fn beyond(&self, runs: impl IntoIterator<Item = Age>, now: Stamp) -> Vec<Option<Beyond>> {
        let (mut total, mut launched, mut imported) = (0u64, 0u64, 0u64);
        let judge = |run: Age| {
            total = total.saturating_add(run.bytes);
            // an import takes no place of a run
            let count = if run.is_imported { &mut imported } else { &mut launched };
            *count += 1;
            let age = Duration::from_micros(now.micros_since(run.last_at).max(0).unsigned_abs());
            if self.older_than.is_some_and(|limit| age > limit) {
                Some(Beyond::Age)
            } else if self.keep.is_some_and(|keep| *count > keep) {
                Some(if run.is_imported { Beyond::Imports } else { Beyond::Count })
            } else {
                self.max_size.is_some_and(|limit| total > limit).then_some(Beyond::Size)
            }
        };
        runs.into_iter().map(judge).collect()
    }

    /// `30d, the newest 50, 5.0 G`; nothing without a rule.
    pub fn words(&self) -> Option<String> {
        let age = self.older_than.map(|age| units::duration_us(micros(age)));
        let count = self.keep.map(|keep| format!("the newest {keep}"));
        let size = self.max_size.map(units::bytes);
        let words: Vec<String> = [age, count, size].into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Why a run goes: `older than 30d 0h`.
    pub fn why(&self, beyond: Beyond) -> String {
        match beyond {
            Beyond::Age => {
                let age = self.older_than.unwrap_or_default();
                format!("older than {}", units::duration_us(micros(age)))
            }
            Beyond::Count if self.keep == Some(1) => "not the newest".to_owned(),
            Beyond::Imports if self.keep == Some(1) => "not the newest import".to_owned(),
            Beyond::Count => format!("not among the newest {}", self.keep.unwrap_or_default()),
            Beyond::Imports => format!("not among the newest {} imports", self.keep.unwrap_or_default()),
            Beyond::Size => format!("beyond {}", units::bytes(self.max_size.unwrap_or_default())),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_counts_from_the_newest_run_on() {
        let day = 86_400_000_000;
        let runs = (0..4).map(|number| Age { last_at: Stamp(-number * day), bytes: 100, is_imported: false });
        let beyond = |rules: Retention| rules.beyond(runs.clone(), Stamp(1));
        let (age, count, size) = (Some(Beyond::Age), Some(Beyond::Count), Some(Beyond::Size));
        let none = Retention::default();
        assert_eq!(beyond(none), [None; 4]);
        let days = Duration::from_secs(2 * 86_400);
        assert_eq!(beyond(Retention { older_than: Some(days), ..none }), [None, None, age, age]);
        assert_eq!(beyond(Retention { keep: Some(1), ..none }), [None, count, count, count]);
        assert_eq!(beyond(Retention { max_size: Some(250), ..none }), [None, None, size, size]);
        let all = Retention { older_than: Some(days), keep: Some(3), max_size: Some(100) };
        assert_eq!(beyond(all), [None, size, age, age]);
        assert_eq!(all.words().as_deref(), Some("2d 0h, the newest 3, 100 B"));
        assert_eq!((none.words(), none.is_empty()), (None, true));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_old() {
        let rules = Retention { older_than: Some(Duration::ZERO), ..Retention::default() };
        let age = Age { last_at: Stamp(5), bytes: 1, is_imported: false };
        assert_eq!(rules.beyond([age], Stamp(0)), [None]);
    }

    #[test]
    fn an_import_takes_no_place_of_a_run_and_takes_space() {
        let runs = [true, false, true, true, false, false].map(|is_imported| Age {
            last_at: Stamp(0),
            bytes: 100,
            is_imported,
        });
        let beyond = |rules: Retention| rules.beyond(runs, Stamp(1));
        let (count, imports, size) = (Some(Beyond::Count), Some(Beyond::Imports), Some(Beyond::Size));
        let rules = Retention { keep: Some(2), ..Retention::default() };
        assert_eq!(beyond(rules), [None, None, None, imports, None, count]);
        assert_eq!(rules.why(Beyond::Imports), "not among the newest 2 imports");
        assert_eq!(rules.why(Beyond::Count), "not among the newest 2");
        let one = Retention { keep: Some(1), ..rules };
        assert_eq!(one.why(Beyond::Imports), "not the newest import");
        assert_eq!(one.why(Beyond::Count), "not the newest");
        let rules = Retention { max_size: Some(300), ..Retention::default() };
        assert_eq!(beyond(rules), [None, None, None, size, size, size]);
    }
}
