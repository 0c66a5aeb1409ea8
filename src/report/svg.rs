//! Charts as SVG elements: lines, stacked areas, a heat map. Colours are classes of the page. Pure.

use std::fmt::Write as _;

use super::html::escaped;

/// Size of a chart in its own units, and of the part that holds its values.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 24.0;

/// A line: its class, its name and its points.
pub(super) struct Line {
    /// Class of the page: `c0` …
    pub(super) class: String,
    /// For the legend.
    pub(super) name: String,
    /// `(x, y)`; a gap where it is unknown.
    pub(super) points: Vec<(f64, Option<f64>)>,
}

/// What stands at the axes.
pub(super) struct Axes<'a> {
    /// What a screen reader says.
    pub(super) title: &'a str,
    /// A value of the vertical axis.
    pub(super) y_words: &'a dyn Fn(f64) -> String,
    /// A value of the horizontal axis.
    pub(super) x_words: &'a dyn Fn(f64) -> String,
    /// Whether the vertical axis begins at 0.
    pub(super) from_zero: bool,
}

struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let share = |value: f64, (low, high): (f64, f64)| {
            if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
        };
        let (across, up) = (share(x, self.x), share(y, self.y));
        (LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM))
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |range: Option<(f64, f64)>, value| {
        Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
    })
}

fn frame(axes: &Axes<'_>, scale: &Scale, inner: &str) -> String {
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(axes.title)
    );
    for part in [0.0, 0.5, 1.0] {
        let value = scale.y.0 + part * (scale.y.1 - scale.y.0);
        let (_, y) = scale.at(scale.x.0, value);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            escaped(&(axes.y_words)(value))
        );
    }
    for (part, class) in [(0.0, "start"), (0.5, "mid"), (1.0, "end")] {
        let value = scale.x.0 + part * (scale.x.1 - scale.x.0);
        let (x, _) = scale.at(value, scale.y.0);
        let _ = writeln!(
            out,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{:.0}\">{}</text>",
            HEIGHT - 6.0,
            escaped(&(axes.x_words)(value))
        );
    }
    out.push_str(inner);
    out.push_str("</svg>\n");
    out
}

fn legend<'a>(entries: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut items = String::new();
    for (class, name) in entries {
        let _ = write!(items, "<span><i class=\"{class}\"></i>{}</span> ", escaped(name));
    }
    format!("<p class=\"legend\">{items}</p>\n")
}

/// Lines in one chart; nothing where no point is known.
pub(super) fn lines(axes: &Axes<'_>, lines: &[Line]) -> Option<String> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = range(points().map(|point| point.0))?;
    let y = range(points().filter_map(|point| point.1))?;
    let scale = Scale { x, y: (if axes.from_zero { y.0.min(0.0) } else { y.0 }, y.1) };
    let mut inner = String::new();
    for line in lines {
        let mut path = String::new();
        let mut pen = 'M';
        for (x, y) in &line.points {
            let Some(y) = y.filter(|y| y.is_finite()) else {
                pen = 'M';
                continue;
            };
            let (x, y) = scale.at(*x, y);
            let _ = write!(path, "{pen}{x:.1} {y:.1}");
            pen = 'L';
        }
        let _ = writeln!(inner, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
    }
    let legend = if lines.len() > 1 {
        legend(lines.iter().map(|line| (line.class.as_str(), line.name.as_str())))
    } else {
        String::new()
    };
    Some(frame(axes, &scale, &inner) + &legend)
}

/// Shares upon each other, each of `names` with its class: a column of shares for each x.
pub(super) fn stacked(
    axes: &Axes<'_>,
    names: &[(String, &str)],
    columns: &[(f64, Vec<f64>)],
) -> Option<String> {
    let x = range(columns.iter().map(|column| column.0))?;
    let scale = Scale { x, y: (0.0, 1.0) };
    let mut inner = String::new();
    for (at, (class, _)) in names.iter().enumerate() {
        let below = |column: &[f64], count: usize| column.iter().take(count).sum::<f64>();
        let upper = columns.iter().map(|(x, column)| scale.at(*x, below(column, at + 1)));
        let lower = columns.iter().rev().map(|(x, column)| scale.at(*x, below(column, at)));
        let corners: Vec<String> = upper.chain(lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(inner, "<polygon class=\"area {class}\" points=\"{}\"/>", corners.join(" "));
    }
    let legend = legend(names.iter().map(|(class, name)| (class.as_str(), *name)));
    Some(frame(axes, &scale, &inner) + &legend)
}

/// A row a rank, a cell some steps: values from -1 (early) to 1 (late).
pub(super) fn heat(title: &str, rows: &[(String, Vec<Option<f64>>)]) -> Option<String> {
    let columns = rows.iter().map(|(_, cells)| cells.len()).max().filter(|columns| *columns > 0)?;
    let row_height = (360.0 / rows.len() as f64).clamp(2.0, 18.0);
    let height = row_height * rows.len() as f64 + TOP;
    let cell = (WIDTH - LEFT - RIGHT) / columns as f64;
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n", escaped(title));
    // so many rows have a name that names do not overlap
    let each = (12.0 / row_height).ceil().max(1.0) as usize;
    for (at, (name, cells)) in rows.iter().enumerate() {
        let y = at as f64 * row_height;
        if at % each == 0 {
            let _ = writeln!(
                out,
                "<text class=\"end\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + row_height.min(12.0),
                escaped(name)
            );
        }
        for (column, value) in cells.iter().enumerate() {
            let Some(value) = value.filter(|value| value.abs() >= 0.02) else { continue };
            let class = if value > 0.0 { "late" } else { "early" };
            let _ = writeln!(
                out,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{row_height:.1}\" opacity=\"{:.2}\"/>",
                LEFT + column as f64 * cell,
                cell + 0.2,
                value.abs().min(1.0)
            );
        }
    }
    out.push_str("</svg>\n");
    Some(out + &legend([("late", "later than a typical rank"), ("early", "earlier")].into_iter()))
}
