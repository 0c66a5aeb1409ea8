//! The cells of the Cluster screen: one a GPU, a line a host, hosts in columns that are read downwards. Pure.

use std::ops::Range;

use crate::domain::ids::HostId;
use crate::tui::core::keymap::Action;
use crate::tui::screens::cluster::rows::RowId;

/// Cells of a host at most: of more those around the cursor are shown.
pub const MOST_CELLS: usize = 16;

/// Hosts in columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Columns of hosts.
    pub columns: u16,
    /// Characters of one.
    pub width: u16,
    /// Lines.
    pub lines: u16,
}

impl Grid {
    /// The grid of so many hosts in an area: as few columns of hosts as it takes, none narrower than `least`.
    pub fn new(hosts: usize, (width, lines): (u16, u16), least: u16) -> Self {
        let lines = lines.max(1);
        let most = (width / least.max(1)).max(1);
        let columns = u16::try_from(hosts.div_ceil(usize::from(lines))).unwrap_or(most).clamp(1, most);
        Self { columns, width: width / columns, lines }
    }

    /// Hosts that are seen at once.
    pub fn page(self) -> usize {
        usize::from(self.columns) * usize::from(self.lines)
    }

    /// Column and line of a host of the page.
    pub fn place(self, nth: usize) -> (u16, u16) {
        let lines = usize::from(self.lines);
        ((nth / lines) as u16 * self.width, (nth % lines) as u16)
    }

    /// The host of the page under a cell.
    pub fn at(self, column: u16, line: u16) -> Option<usize> {
        let across = column / self.width.max(1);
        (across < self.columns && line < self.lines).then(|| usize::from(across * self.lines + line))
    }
}

/// The rows of each host, in order.
pub fn hosts(rows: &[RowId]) -> Vec<(&HostId, Range<usize>)> {
    let mut hosts: Vec<(&HostId, Range<usize>)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        match hosts.last_mut() {
            Some((host, range)) if *host == row.host() => range.end = at + 1,
            _ => hosts.push((row.host(), at..at + 1)),
        }
    }
    hosts
}

/// Where a key leads from row `at`, when `lines` hosts stand below each other.
pub fn moved(rows: &[RowId], at: usize, action: Action, lines: usize) -> usize {
    let hosts = hosts(rows);
    let Some(host) = hosts.iter().position(|(_, range)| range.contains(&at)) else { return at };
    let cell = at - hosts[host].1.start;
    let to = |host: usize, cell: usize| {
        let range = &hosts[host].1;
        (range.start + cell).min(range.end - 1)
    };
    let last = hosts.len() - 1;
    match action {
        Action::Left if cell > 0 => at - 1,
        Action::Left if host >= lines => to(host - lines, usize::MAX / 2),
        Action::Right if at + 1 < hosts[host].1.end => at + 1,
        Action::Right if host + lines <= last => to(host + lines, 0),
        Action::Up => to(host.saturating_sub(1), cell),
        Action::Down => to((host + 1).min(last), cell),
        Action::PageUp => to(host.saturating_sub(lines), cell),
        Action::PageDown => to((host + lines).min(last), cell),
        Action::Top => 0,
        Action::Bottom => rows.len() - 1,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::GpuUuid;

    fn rows(hosts: u32, gpus: usize) -> Vec<RowId> {
        let gpu = |host: u32, place: usize| {
            RowId::Gpu(
                HostId::from(format!("h{host}").as_str()),
                GpuUuid::from(format!("{host}/{place}").as_str()),
                place,
            )
        };
        (0..hosts).flat_map(|host| (0..gpus).map(move |place| gpu(host, place))).collect()
    }

    #[test]
    fn hosts_stand_in_as_few_columns_as_it_takes() {
        let grid = Grid::new(64, (122, 46), 20);
        assert_eq!(grid, Grid { columns: 2, width: 61, lines: 46 });
        assert_eq!((grid.place(0), grid.place(46)), ((0, 0), (61, 0)));
        assert_eq!((grid.at(60, 45), grid.at(61, 0), grid.at(0, 46)), (Some(45), Some(46), None));
        let crowded = Grid::new(1000, (80, 20), 19);
        assert_eq!((crowded.columns, crowded.page()), (4, 80), "the others are on further pages");
    }

    #[test]
    fn keys_go_along_cells_and_between_hosts() {
        let rows = rows(5, 4);
        let go = |at, action| moved(&rows, at, action, 2);
        assert_eq!(go(0, Action::Right), 1);
        assert_eq!(go(1, Action::Down), 5, "the same GPU of the next host");
        assert_eq!(go(3, Action::Right), 8, "on to the next column of hosts");
        assert_eq!(go(8, Action::Left), 3);
        assert_eq!(go(19, Action::Right), 19);
        assert_eq!((go(0, Action::Up), go(0, Action::Left)), (0, 0));
        assert_eq!((go(2, Action::Bottom), go(2, Action::Top)), (19, 0));
        assert_eq!(go(2, Action::PageDown), 10);
    }
}
