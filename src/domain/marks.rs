//! Marks that a person sets on a run, each a moment with a note: what they are, and how they change. Pure.

use serde::{Deserialize, Serialize, Serializer};

use super::ids::Rank;
use super::time::Stamp;

/// Characters of a note at most.
pub const LONGEST_NOTE: usize = 200;
/// Marks of a run at most.
pub const MOST_MARKS: usize = 1_000;

/// A mark of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMark {
    /// Its number in its run, which no other mark of that run has or had.
    pub id: u32,
    /// The moment, by the client's clock.
    pub at: Stamp,
    /// The last step that all ranks had finished then, where that is known.
    #[serde(default)]
    pub step: Option<u64>,
    /// The rank that it is about; `None` = the run.
    #[serde(default)]
    pub rank: Option<Rank>,
    /// What it says; may be empty.
    #[serde(default)]
    pub note: String,
}

impl RunMark {
    /// What it says, and of what: `rank 3, step 812: lr was changed`.
    pub fn words(&self) -> String {
        let rank = self.rank.map(|rank| format!("rank {rank}"));
        let step = self.step.map(|step| format!("step {step}"));
        let of: Vec<String> = rank.into_iter().chain(step).collect();
        match (of.is_empty(), self.note.is_empty()) {
            (true, true) => "without a note".to_owned(),
            (true, false) => self.note.clone(),
            (false, true) => of.join(", "),
            (false, false) => format!("{}: {}", of.join(", "), self.note),
        }
    }
}

/// Marks for other programs, with their moments as text.
///
/// # Errors
/// Those of the serializer.
pub fn as_told<S: Serializer>(marks: &[RunMark], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Told<'a> {
        id: u32,
        at: String,
        step: Option<u64>,
        rank: Option<Rank>,
        note: &'a str,
    }
    to.collect_seq(marks.iter().map(|mark| {
        let RunMark { id, step, rank, note, .. } = mark;
        Told { id: *id, at: mark.at.rfc3339(), step: *step, rank: *rank, note }
    }))
}

/// A mark that is to be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMark {
    /// The moment.
    pub at: Stamp,
    /// The step.
    pub step: Option<u64>,
    /// The rank.
    pub rank: Option<Rank>,
    /// What it says.
    pub note: String,
}

/// A change of a run's marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkChange {
    /// Set this one.
    Add(NewMark),
    /// Let it say something else.
    Note {
        /// Which.
        id: u32,
        /// What it says.
        note: String,
    },
    /// Take it away.
    Delete {
        /// Which.
        id: u32,
    },
}

/// Why marks can't be changed so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// There are too many.
    #[error("a run has {MOST_MARKS} marks at most: delete some first")]
    TooMany,
    /// The note is too long.
    #[error("a note has {LONGEST_NOTE} characters at most, this one {0}")]
    TooLong(usize),
    /// Another client has deleted it, or it never was.
    #[error("there is no mark {0} (any more)")]
    NoSuch(u32),
}

/// All marks of a run, by their moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunMarks {
    /// The number that the next one gets.
    next: u32,
    marks: Vec<RunMark>,
}

impl RunMarks {
    /// Those that were kept, in any order; `next` is the number that was kept with them.
    pub fn new(next: u32, mut marks: Vec<RunMark>) -> Self {
        let after = marks.iter().map(|mark| mark.id.saturating_add(1)).max().unwrap_or(1);
        marks.sort_by_key(|mark| (mark.at, mark.id));
        Self { next: next.max(after), marks }
    }

    /// In rising order of their moments.
    pub fn all(&self) -> &[RunMark] {
        &self.marks
    }

    /// The number that the next one gets.
    pub fn next(&self) -> u32 {
        self.next.max(1)
    }

    /// Changes them.
    ///
    /// # Errors
    /// Why not; they are as before then.
    pub fn change(&mut self, change: &MarkChange) -> Result<(), MarkError> {
        match change {
            MarkChange::Add(new) => {
                let note = fitting(&new.note)?;
                if self.marks.len() >= MOST_MARKS {
                    return Err(MarkError::TooMany);
                }
                let id = self.next();
                self.next = id.saturating_add(1);
                let behind = self.marks.partition_point(|mark| mark.at <= new.at);
                let NewMark { at, step, rank, .. } = *new;
                self.marks.insert(behind, RunMark { id, at, step, rank, note });
            }
            MarkChange::Note { id, note } => {
                let note = fitting(note)?;
                let found = self.marks.iter_mut().find(|mark| mark.id == *id);
                found.ok_or(MarkError::NoSuch(*id))?.note = note;
            }
            MarkChange::Delete { id } => {
                let found = self.marks.iter().position(|mark| mark.id == *id);
                self.marks.remove(found.ok_or(MarkError::NoSuch(*id))?);
            }
        }
        Ok(())
    }
}

/// A note on one line, if it is not too long.
///
/// # Errors
/// [`MarkError::TooLong`].
pub fn fitting(note: &str) -> Result<String, MarkError> {
    let line: String = note.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = line.trim().to_owned();
    let length = line.chars().count();
    if length > LONGEST_NOTE { Err(MarkError::TooLong(length)) } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(at: i64, note: &str) -> MarkChange {
        MarkChange::Add(NewMark { at: Stamp(at), step: None, rank: None, note: note.to_owned() })
    }

    #[test]
    fn marks_stand_by_their_moments_and_no_number_comes_again() {
        let mut marks = RunMarks::default();
        for change in
            [new(20, "b"), new(10, " a\nx "), new(20, "c"), MarkChange::Delete { id: 3 }, new(5, "d")]
        {
            marks.change(&change).unwrap();
        }
        let all: Vec<_> = marks.all().iter().map(|mark| (mark.id, mark.note.as_str())).collect();
        assert_eq!(all, [(4, "d"), (2, "a x"), (1, "b")]);
        marks.change(&MarkChange::Note { id: 2, note: "other".to_owned() }).unwrap();
        assert_eq!(marks.all()[1].note, "other");
        assert_eq!(marks.change(&MarkChange::Delete { id: 3 }), Err(MarkError::NoSuch(3)));
        assert_eq!(RunMarks::new(marks.next(), marks.all().to_vec()), marks);
        assert_eq!(RunMarks::new(0, marks.all().to_vec()).next(), 5);
    }

    #[test]
    fn what_is_too_much_changes_nothing() {
        let mut marks = RunMarks::default();
        assert_eq!(marks.change(&new(1, &"ä".repeat(201))), Err(MarkError::TooLong(201)));
        for _ in 0..MOST_MARKS {
            marks.change(&new(1, "")).unwrap();
        }
        let before = marks.clone();
        assert_eq!(marks.change(&new(1, "")), Err(MarkError::TooMany));
        assert_eq!(marks, before);
    }

    #[test]
    fn words_tell_of_what_a_mark_is() {
        let mark =
            |step, rank, note: &str| RunMark { id: 1, at: Stamp(0), step, rank, note: note.to_owned() };
        assert_eq!(mark(Some(812), Some(Rank(3)), "slow").words(), "rank 3, step 812: slow");
        assert_eq!(mark(None, None, "slow").words(), "slow");
        assert_eq!(mark(Some(8), None, "").words(), "step 8");
        assert_eq!(mark(None, None, "").words(), "without a note");
    }
}
