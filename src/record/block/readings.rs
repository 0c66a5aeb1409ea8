//! Columns of [`Reading`]s: what each is, then the values, then the reasons of those that failed.

use super::column::{Dec, Enc, Malformed, Strings, Texts};
use crate::domain::gpu::{Number, Reading};

const UNSUPPORTED: u8 = 0;
const VALUE: u8 = 1;
const FAILED: u8 = 2;

pub(super) const TOO_LARGE: Malformed = Malformed("number that its field can't hold");

#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) enc: Enc,
    pub(super) strings: Strings<'a>,
}

impl<'a> Columns<'a> {
    pub(super) fn text(&mut self, text: &'a str) {
        let number = self.strings.number(text);
        self.enc.uint(number);
    }

    pub(super) fn column<T: 'a>(
        &mut self,
        readings: impl Iterator<Item = &'a Reading<T>> + Clone,
        mut put: impl FnMut(&mut Self, &'a T),
    ) {
        for reading in readings.clone() {
            self.enc.byte(match reading {
                Reading::Unsupported => UNSUPPORTED,
                Reading::Value(_) => VALUE,
                Reading::Failed { .. } => FAILED,
            });
        }
        for reading in readings {
            match reading {
                Reading::Unsupported => {}
                Reading::Value(value) => put(self, value),
                Reading::Failed { error } => self.text(error),
            }
        }
    }

    pub(super) fn numbers<T: Copy + Into<u64> + 'a>(
        &mut self,
        readings: impl Iterator<Item = &'a Reading<T>> + Clone,
    ) {
        self.plain(readings.map(|reading| match reading {
            Reading::Unsupported => Number::Unsupported,
            Reading::Value(value) => Number::Value((*value).into()),
            Reading::Failed { error } => Number::Failed(error),
        }));
    }

    /// Numbers of whatever type, each as its difference from the one before.
    pub(super) fn plain(&mut self, numbers: impl Iterator<Item = Number<'a>> + Clone) {
        for number in numbers.clone() {
            self.enc.byte(match number {
                Number::Unsupported => UNSUPPORTED,
                Number::Value(_) => VALUE,
                Number::Failed(_) => FAILED,
            });
        }
        let mut before = 0_u64;
        for number in numbers {
            match number {
                Number::Unsupported => {}
                Number::Value(value) => {
                    self.enc.delta(value, before);
                    before = value;
                }
                Number::Failed(error) => self.text(error),
            }
        }
    }
}

pub(super) struct Source<'b> {
    pub(super) dec: Dec<'b>,
    pub(super) texts: Texts<'b>,
}

impl<'b> Source<'b> {
    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let number = self.dec.uint()?;
        self.texts.get(number).map(str::to_owned)
    }

    pub(super) fn column<T>(
        &mut self,
        count: usize,
        get: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<Reading<T>>, Malformed> {
        let kinds = self.dec.take(count)?;
        let mut readings = Vec::with_capacity(count);
        self.each(kinds, get, |reading| readings.push(reading))?;
        Ok(readings)
    }

    pub(super) fn numbers<T: TryFrom<u64>>(&mut self, count: usize) -> Result<Vec<Reading<T>>, Malformed> {
        self.column(count, number())
    }

    /// A column of so many readings, each of which is `put` to its row: for columns of thousands, no list of them is made.
    pub(super) fn column_to<R, T>(
        &mut self,
        (count, mut rows): (usize, impl Iterator<Item = R>),
        get: impl FnMut(&mut Self) -> Result<T, Malformed>,
        mut put: impl FnMut(R, Reading<T>),
    ) -> Result<(), Malformed> {
        let kinds = self.dec.take(count)?;
        self.each(kinds, get, |reading| {
            if let Some(row) = rows.next() {
                put(row, reading);
            }
        })
    }

    /// The same of numbers.
    pub(super) fn numbers_to<R, T: TryFrom<u64>>(
        &mut self,
        rows: (usize, impl Iterator<Item = R>),
        put: impl FnMut(R, Reading<T>),
    ) -> Result<(), Malformed> {
        self.column_to(rows, number(), put)
    }

    fn each<T>(
        &mut self,
        kinds: &'b [u8],
        mut get: impl FnMut(&mut Self) -> Result<T, Malformed>,
        mut take: impl FnMut(Reading<T>),
    ) -> Result<(), Malformed> {
        for kind in kinds {
            take(match *kind {
                UNSUPPORTED => Reading::Unsupported,
                VALUE => Reading::Value(get(self)?),
                FAILED => Reading::Failed { error: self.text()? },
                _ => return Err(Malformed("has a reading of an unknown kind")),
            });
        }
        Ok(())
    }
}

/// The numbers of a column, each as its difference from the one before.
fn number<'b, T: TryFrom<u64>>() -> impl FnMut(&mut Source<'b>) -> Result<T, Malformed> {
    let mut before = 0;
    move |from: &mut Source<'b>| {
        before = from.dec.delta(before)?;
        T::try_from(before).map_err(|_| TOO_LARGE)
    }
}
