//! Which run of the list comes first.

use std::cmp::Ordering;

use super::RunRow;
use crate::domain::time::Stamp;
use crate::tui::core::orders::RunOrder;

/// Sorts a list; among equals the newest comes first. What is not known comes last.
pub(super) fn sort(order: RunOrder, rows: &mut [RunRow<'_>], now: Stamp) {
    rows.sort_by(|a, b| compare(order, a, b, now).then_with(|| newer(a, b)));
}

fn compare(order: RunOrder, a: &RunRow<'_>, b: &RunRow<'_>, now: Stamp) -> Ordering {
    match order {
        RunOrder::Newest => Ordering::Equal,
        RunOrder::Longest => b.duration_us(now).cmp(&a.duration_us(now)),
        RunOrder::Largest => size(b).cmp(&size(a)),
        RunOrder::Name => a.spec.name.to_lowercase().cmp(&b.spec.name.to_lowercase()),
        RunOrder::Outcome => a.state().cmp(&b.state()),
    }
}

fn newer(a: &RunRow<'_>, b: &RunRow<'_>) -> Ordering {
    (b.spec.created, &b.spec.id).cmp(&(a.spec.created, &a.spec.id))
}

fn size(row: &RunRow<'_>) -> Option<u64> {
    row.recording.map(|recording| recording.bytes)
}
