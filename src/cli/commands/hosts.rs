//! `hvtui hosts list`: what the hosts file says, without connecting to anyone.

use std::fmt::Write;
use std::process::ExitCode;

use unicode_width::UnicodeWidthStr;

use crate::cli::errors::{Failure, to_stdout};
use crate::config::{HostConfig, HostsFile};

/// Prints one line a host.
pub fn list(file: &HostsFile) -> Result<ExitCode, Failure> {
    to_stdout(&table(file))?;
    Ok(ExitCode::SUCCESS)
}

/// The file's name, then name, address, slots, interface and labels in columns.
fn table(file: &HostsFile) -> String {
    let mut out = match &file.path {
        Some(path) => format!("{}\n", path.display()),
        None => "no hosts file: this machine alone\n".to_owned(),
    };
    let mut rows = vec![["HOST", "ADDRESS", "SLOTS", "INTERFACE", "LABELS"].map(str::to_owned)];
    rows.extend(file.hosts.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell}{}  ", " ".repeat(width.saturating_sub(cell.width())));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn row(host: &HostConfig) -> [String; 5] {
    let user = host.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
    let address = host.address.to_string();
    let address = match host.port {
        Some(port) if address.contains(':') => format!("{user}[{address}]:{port}"),
        Some(port) => format!("{user}{address}:{port}"),
        None => format!("{user}{address}"),
    };
    let interface = host.interface.clone().unwrap_or_else(|| "–".to_owned());
    [host.id.to_string(), address, host.slots.to_string(), interface, host.labels.join(", ")]
}
