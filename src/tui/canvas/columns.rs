//! Which columns of a table fit, and how wide each becomes.

/// A column as it is wished for.
#[derive(Debug, Clone, Copy)]
pub(in crate::tui) struct ColumnSpec<C> {
    /// Which.
    pub id: C,
    /// Its head.
    pub title: &'static str,
    /// It is left out rather than made narrower.
    pub least: u16,
    /// It never gets wider.
    pub most: u16,
    /// 0 stays longest.
    pub rank: u8,
    /// Whether its head stands flush right.
    pub right: bool,
}

/// A column with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tui) struct Column<C> {
    /// Which.
    pub id: C,
    /// Its head.
    pub title: &'static str,
    /// First column of the screen.
    pub x: u16,
    /// Width.
    pub w: u16,
    /// Whether its head stands flush right.
    pub right: bool,
}

/// Fits columns into `width` from `x`, in the order given, `gap` blanks between two. The least useful go
/// first; what is left over widens the others in the order of their rank.
pub(in crate::tui) fn fit<C: Copy>(wishes: &[ColumnSpec<C>], x: u16, width: u16, gap: u16) -> Vec<Column<C>> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|at| wishes[*at].rank);
    let mut chosen = vec![false; wishes.len()];
    let mut used = 0;
    for at in &order {
        let need = wishes[*at].least + if used > 0 { gap } else { 0 };
        if used + need > width {
            break;
        }
        used += need;
        chosen[*at] = true;
    }
    let mut spare = width - used;
    let mut widths: Vec<u16> = wishes.iter().map(|wish| wish.least).collect();
    for at in order.into_iter().filter(|at| chosen[*at]) {
        let more = (wishes[at].most - wishes[at].least).min(spare);
        widths[at] += more;
        spare -= more;
    }
    let mut next = x;
    let mut columns = Vec::new();
    for (at, wish) in wishes.iter().enumerate().filter(|(at, _)| chosen[*at]) {
        columns.push(Column { id: wish.id, title: wish.title, x: next, w: widths[at], right: wish.right });
        next += widths[at] + gap;
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_useful_goes_first() {
        let wish = |id, least, most, rank| ColumnSpec { id, title: "", least, most, rank, right: false };
        let wishes = [wish('a', 4, 4, 0), wish('b', 5, 9, 2), wish('c', 3, 20, 1)];
        let ids = |width| fit(&wishes, 0, width, 1).iter().map(|c| (c.id, c.x, c.w)).collect::<Vec<_>>();
        assert_eq!(ids(40), [('a', 0, 4), ('b', 5, 9), ('c', 15, 20)]);
        assert_eq!(ids(14), [('a', 0, 4), ('b', 5, 5), ('c', 11, 3)]);
        assert_eq!(ids(13), [('a', 0, 4), ('c', 5, 8)]);
        assert_eq!(ids(3), []);
    }
}
