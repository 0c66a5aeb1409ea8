//! Bars and sparklines of eighth blocks.

use crate::domain::time::Stamp;

const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The left part of a block, `eighths` of 8 wide; 0 is blank, 8 is full.
pub(in crate::tui) fn part(eighths: usize) -> char {
    if eighths >= 8 { '█' } else { PARTS[eighths] }
}

/// A bar of `width` columns filled to `share` (0..=1); anything above zero shows at least an eighth.
pub(in crate::tui) fn gauge(share: f64, width: u16) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * f64::from(width) * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let (full, rest) = (eighths / 8, eighths % 8);
    let mut bar = "█".repeat(full);
    if rest > 0 {
        bar.push(PARTS[rest]);
    }
    bar
}

/// One cell of a sparkline: `share` is 0..=1, unknown is blank. The highest leaves an eighth free, so that the lines
/// of two rows never touch.
pub(in crate::tui) fn level(share: Option<f64>) -> char {
    match share {
        Some(share) if share.is_finite() => LEVELS[((share.clamp(0.0, 1.0) * 7.0) as usize).min(6)],
        _ => ' ',
    }
}

/// A newest value younger than this stands in the last column, though a new piece may have begun since.
const FRESH_US: i64 = 3_500_000;

/// The peaks of a history in `width` equal pieces of the time before `now`, oldest first. The pieces lie at
/// fixed moments, so that a value keeps its column until the whole line moves on.
pub(in crate::tui) fn peaks(
    mut values: impl DoubleEndedIterator<Item = (Stamp, Option<f64>)>,
    now: Stamp,
    span_us: i64,
    width: u16,
) -> Vec<Option<f64>> {
    let width = usize::from(width);
    let piece = (span_us / width.max(1) as i64).max(1);
    let last = values.next_back();
    let anchor = last.map(|(at, _)| at).filter(|at| now.micros_since(*at) < FRESH_US).unwrap_or(now);
    let newest = anchor.0.div_euclid(piece);
    let mut out = vec![None; width];
    for (at, value) in last.into_iter().chain(values.rev()) {
        let back = newest - at.0.div_euclid(piece);
        let Ok(back) = usize::try_from(back) else { continue };
        if back >= width {
            break;
        }
        let slot: &mut Option<f64> = &mut out[width - 1 - back];
        if let Some(value) = value {
            *slot = Some(slot.map_or(value, |seen: f64| seen.max(value)));
        }
    }
    out
}

/// A one-line sparkline of shares.
pub(in crate::tui) fn spark(shares: &[Option<f64>]) -> String {
    shares.iter().map(|share| level(*share)).collect()
}

/// The rows of a graph `height` lines high, top first; a known zero shows as the lowest block.
pub(in crate::tui) fn graph(shares: &[Option<f64>], height: u16) -> Vec<String> {
    let height = usize::from(height);
    let cell = |share: Option<f64>, row: usize| {
        let Some(share) = share else { return ' ' };
        let eighths = (share.clamp(0.0, 1.0) * height as f64 * 8.0).round().max(1.0) as usize;
        match eighths.saturating_sub((height - 1 - row) * 8) {
            0 => ' ',
            left => LEVELS[left.min(8) - 1],
        }
    };
    (0..height).map(|row| shares.iter().map(|share| cell(*share, row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(gauge(0.0, 4), "");
        assert_eq!(gauge(0.001, 4), "▏");
        assert_eq!(gauge(0.5, 4), "██");
        assert_eq!(gauge(0.78, 10), "███████▊");
        assert_eq!(gauge(7.0, 3), "███");
        assert_eq!(spark(&[Some(0.0), Some(0.5), None, Some(1.0)]), "▁▄ ▇");
        assert_eq!(graph(&[Some(1.0), Some(0.5), Some(0.0), None], 2), ["█   ", "██▁ "]);
    }

    #[test]
    fn peaks_survive_and_keep_their_column() {
        let at = |s: i64, v: f64| (Stamp(s * 1_000_000), Some(v));
        let values = [at(100, 0.1), at(101, 0.9), at(102, 0.2), at(119, 0.3)];
        let line = peaks(values.into_iter(), Stamp(119_500_000), 20_000_000, 4);
        assert_eq!(line, [Some(0.9), None, None, Some(0.3)]);
        assert_eq!(peaks(values.into_iter(), Stamp(118_500_000), 20_000_000, 4).len(), 4);
    }
}
