//! `hvtui doctor --bundle FILE`: what another person needs to help, in one archive. Its files are shown before it is written,
//! and what is or looks like a secret is masked in each of them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::history::{self, Json};
use super::text::as_text;
use crate::cli::ask::confirm;
use crate::cli::errors::{Code, Failure, to_person};
use crate::cli::json;
use crate::cli::paths::Paths;
use crate::cli::{runtime, whole_file};
use crate::clock;
use crate::config::HostsFile;
use crate::doctor::Reached;
use crate::domain::host::HostInfo;
use crate::domain::outcome::RunEnd;
use crate::domain::redaction::{Masks, guessed};
use crate::domain::run::RunSummary;
use crate::domain::text::os_text;
use crate::domain::units;
use crate::launcher::checkup::Checkup;
use crate::record::{Reader, Store, figures};
use crate::report::text;
use crate::wire::handshake::PROTOCOL_MAX;

/// Runs that are listed, the newest.
const RUNS: usize = 20;
/// Lines of a failed run.
const LINES: usize = 2000;
/// Bytes of hvtui's own log.
const LOG: usize = 1 << 20;
/// Variables of this terminal that explain what a screen looks like.
const VARIABLES: [&str; 8] =
    ["TERM", "COLORTERM", "LANG", "LC_ALL", "TERM_PROGRAM", "SHELL", "NO_COLOR", "TMUX"];

/// A file of the archive.
struct Part {
    name: String,
    about: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Facts<'a> {
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<&'a HostInfo>,
    /// Why it is not reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

/// Whether the archive can be made: asked before all hosts are.
pub(super) fn is_writable(target: &Path) -> Result<(), Failure> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if target.is_dir() || !folder.is_dir() {
        let what = if target.is_dir() { "it is a folder" } else { "there is no such folder" };
        return Err(Failure::usage(format!(
            "--bundle {}: {what}: name a file, such as hvtui.tar.gz",
            target.display()
        )));
    }
    Ok(())
}

/// Shows what the archive will hold, asks, and writes it.
pub(super) fn write(
    target: &Path,
    yes: bool,
    checkup: &Checkup,
    json: &Json,
    file: &HostsFile,
    paths: &Paths,
) -> Result<(), Failure> {
    let masks = named_secret(file);
    let mut parts = parts(checkup, json, file, paths);
    for part in &mut parts {
        part.text = guessed::hide(&masks.hide(&part.text)).into_owned();
    }
    let mut list = format!("\n{} will hold:\n", target.display());
    for Part { name, about, text } in &parts {
        let _ = writeln!(list, "  {name:24} {:>8}  {about}", units::bytes(text.len() as u64));
    }
    list.push_str(
        "Names of hosts, users, folders and commands are in it; what looks like a secret is masked.\n",
    );
    to_person(&list)?;
    runtime::block_on(async { confirm(&format!("write {}?", target.display()), yes).await })?;
    let failed = |error: std::io::Error| {
        Failure::new(Code::from(&error), format!("{}: {}", target.display(), os_text(&error)))
    };
    whole_file::write(target, 0o600, |file| pack(file, &parts)).map_err(failed)?;
    to_person(&format!("written: {}\n", target.display()))
}

fn pack(file: &mut File, parts: &[Part]) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let modified = u64::try_from(clock::now().0 / 1_000_000).unwrap_or_default();
    for Part { name, text, .. } in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(modified);
        archive.append_data(&mut header, format!("hvtui/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// The values of variables whose names say that they are secret: of this process, and of the hosts file.
fn named_secret(file: &HostsFile) -> Masks {
    let is_secret = |name: &str| guessed::hide(&format!("{name}=x")) != format!("{name}=x");
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let of_hosts = file.hosts.iter().map(|host| &host.env);
    let of_file = of_hosts.chain(file.recipes.iter().map(|recipe| &recipe.env)).flat_map(Clone::clone);
    let all: Vec<String> =
        own.chain(of_file).filter(|(name, _)| is_secret(name)).map(|(_, value)| value).collect();
    Masks::new(all.iter().map(String::as_str))
}

fn parts(checkup: &Checkup, json: &Json, file: &HostsFile, paths: &Paths) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut add = |name: &str, about, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            parts.push(Part { name: name.to_owned(), about, text });
        }
    };
    add("about.txt", "versions, and this terminal", Some(about(file)));
    add("doctor.txt", "what was found, for people", Some(as_text(&checkup.matrix(), true)));
    add("doctor.json", "the same, for programs", json::line(json).ok());
    let before = history::kept(&history::folder(&paths.state)).ok().and_then(|kept| kept.last().cloned());
    add(
        "doctor-before.json",
        "what was found the last time",
        before.and_then(|path| std::fs::read_to_string(path).ok()),
    );
    let config = file.path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    add("hosts.toml", "the hosts file", config);
    add("hosts.json", "facts of each host", Some(hosts(checkup)));
    let store = Store::new(&paths.state);
    let runs = store.list().map(|listing| listing.runs).unwrap_or_default();
    let listed: Vec<&RunSummary> = runs.iter().take(RUNS).collect();
    add("runs.json", "the newest runs", json::line(&listed).ok().filter(|_| !runs.is_empty()));
    let has_failed = |run: &&RunSummary| {
        let ends = [RunEnd::Failed, RunEnd::Unreachable, RunEnd::Refused, RunEnd::Silent];
        run.outcome.as_ref().is_some_and(|outcome| ends.contains(&outcome.end))
    };
    if let Some(failed) = runs.iter().find(has_failed) {
        let reader = figures::open(&store.path_of(&failed.spec.id)).ok();
        let report = reader.as_ref().and_then(report);
        add("failed-run-report.txt", "how the newest run that failed went", report);
        add("failed-run-log.txt", "the last lines of its ranks", reader.as_ref().map(log));
    }
    let own = std::fs::read(paths.state.join("hvtui.log")).ok();
    let own =
        own.map(|bytes| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG)..]).into_owned());
    add("hvtui.log", "hvtui's own log", own);
    parts
}

fn about(file: &HostsFile) -> String {
    let mut lines = vec![
        format!("hvtui {} (protocol {PROTOCOL_MAX})", env!("CARGO_PKG_VERSION")),
        format!("at {}", json::moment(clock::now())),
    ];
    for (name, path) in [("system", "/etc/os-release"), ("kernel", "/proc/version")] {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line =
            text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).or_else(|| text.lines().next());
        lines.push(format!("{name} {}", line.unwrap_or("unknown").trim_matches('"')));
    }
    lines.push(match &file.path {
        Some(path) => format!("hosts file {}", path.display()),
        None => "no hosts file".to_owned(),
    });
    for name in VARIABLES {
        if let Ok(value) = std::env::var(name) {
            lines.push(format!("{name}={value}"));
        }
    }
    lines.join("\n") + "\n"
}

fn hosts(checkup: &Checkup) -> String {
    let all = checkup.hosts().map(|(host, reached)| {
        let (info, why) = match reached {
            Reached::Up(info, _) => (Some(info.as_ref()), None),
            Reached::Down(why) => (None, Some(why.as_str())),
            Reached::Waiting => (None, None),
        };
        Facts { host: host.as_str(), info, why }
    });
    serde_json::to_string_pretty(&all.collect::<Vec<_>>()).unwrap_or_default()
}

fn report(reader: &Reader) -> Option<String> {
    let run = figures::whole(reader, &mut |_| true).ok()??;
    Some(text::render(&run, &crate::domain::analysis::findings(&run)))
}

fn log(reader: &Reader) -> String {
    let mut last = std::collections::VecDeque::new();
    for line in reader.log(None).flatten() {
        if last.len() == LINES {
            last.pop_front();
        }
        last.push_back(format!("{} [{}] {}\n", json::moment(line.at), line.line.rank, line.line.text));
    }
    last.into_iter().collect()
}
