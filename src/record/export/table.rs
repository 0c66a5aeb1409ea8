//! What can be exported as a table, in whatever shape of file: the columns and the rows.

use std::borrow::Cow;
use std::io;

use super::pass::{Item, Run};
use crate::domain::time::Stamp;

/// What stands in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Whole numbers.
    Integer,
    /// Numbers, of which one may be none or without end.
    Float,
    /// Text.
    Text,
    /// Moments by the client's clock.
    Moment,
}

/// A column: its name and what stands in it.
pub(super) type Column = (Cow<'static, str>, Kind);

/// One value, of its column's kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell<'a> {
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f32),
    /// A text.
    Text(&'a str),
    /// A moment.
    Moment(Stamp),
    /// It is not known.
    None,
}

/// A table.
pub(super) trait Table {
    /// Its columns.
    fn columns(&self) -> Vec<Column>;

    /// The rows that one thing of the recording gives, a cell a column.
    ///
    /// # Errors
    /// What `row` says.
    fn rows(
        &self,
        run: &Run<'_>,
        item: &Item<'_>,
        row: &mut dyn FnMut(&[Cell<'_>]) -> io::Result<()>,
    ) -> io::Result<()>;
}
