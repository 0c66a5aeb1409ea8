//! `hvtui hosts list`: what the hosts file says, without connecting to anyone.

use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;
use unicode_width::UnicodeWidthStr;

use crate::cli::errors::{Failure, to_person, to_stdout};
use crate::cli::json::{self, VERSION};
use crate::config::{HostConfig, HostsFile, SlotCount};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    /// The hosts file; null where this machine stands alone.
    file: Option<String>,
    hosts: Vec<Listed<'a>>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    address: String,
    user: Option<&'a str>,
    port: Option<u16>,
    /// CPU slots that the hosts file gives it; null where they follow from its GPUs.
    slots: Option<u32>,
    interface: Option<&'a str>,
    labels: &'a [String],
}

/// Prints one line a host, or one object.
pub fn list(json: bool, file: &HostsFile) -> Result<ExitCode, Failure> {
    if !json {
        to_person(&table(file))?;
        return Ok(ExitCode::SUCCESS);
    }
    let json = Json {
        version: VERSION,
        file: file.path.as_ref().map(|path| path.display().to_string()),
        hosts: file.hosts.iter().map(listed).collect(),
    };
    to_stdout(&json::line(&json)?)?;
    Ok(ExitCode::SUCCESS)
}

fn listed(host: &HostConfig) -> Listed<'_> {
    Listed {
        name: host.id.as_str(),
        address: host.address.to_string(),
        user: host.user.as_deref(),
        port: host.port,
        slots: match host.slots {
            SlotCount::Auto => None,
            SlotCount::Cpus(count) => Some(count),
        },
        interface: host.interface.as_deref(),
        labels: &host.labels,
    }
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
