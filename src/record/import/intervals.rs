//! Stretches of time as lists that are sorted and do not overlap.

/// From one moment to another, the later one not included.
pub(super) type Span = (i64, i64);

/// The same time as a sorted list in which none overlaps or touches another.
pub(super) fn united(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|(from, to)| from < to);
    spans.sort_unstable();
    let mut all: Vec<Span> = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => all.push((from, to)),
        }
    }
    all
}

/// What of `span` lies in none of `others`, which are united.
pub(super) fn without(span: Span, others: &[Span]) -> Vec<Span> {
    let mut rest = Vec::new();
    let mut from = span.0;
    let first = others.partition_point(|(_, to)| *to <= span.0);
    for (begins, ends) in others.iter().skip(first) {
        if *begins >= span.1 {
            break;
        }
        if *begins > from {
            rest.push((from, *begins));
        }
        from = from.max(*ends);
    }
    if from < span.1 {
        rest.push((from, span.1));
    }
    rest
}

/// What of `span` lies within `within`.
pub(super) fn clipped(span: Span, within: Span) -> Option<Span> {
    let (from, to) = (span.0.max(within.0), span.1.min(within.1));
    (from < to).then_some((from, to))
}

/// How long they are together.
pub(super) fn length(spans: &[Span]) -> i64 {
    spans.iter().map(|(from, to)| to - from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_one_and_what_is_taken_out_is_gone() {
        let all = united(vec![(50, 60), (10, 20), (15, 30), (30, 31), (70, 70)]);
        assert_eq!(all, [(10, 31), (50, 60)]);
        assert_eq!(without((0, 100), &all), [(0, 10), (31, 50), (60, 100)]);
        assert_eq!(without((12, 55), &all), [(31, 50)]);
        assert_eq!((without((12, 20), &all), without((60, 61), &all)), (vec![], vec![(60, 61)]));
        assert_eq!((clipped((5, 15), (10, 20)), clipped((5, 10), (10, 20))), (Some((10, 15)), None));
        assert_eq!(length(&all), 31);
    }
}
