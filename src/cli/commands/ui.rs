//! The terminal UI: `hvtui` over the live hosts, `hvtui replay` over a recording.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use chrono::{Local, Offset, TimeZone};

use crate::cli::args::ReplayArgs;
use crate::cli::errors::{Code, Failure, note};
use crate::cli::paths::Paths;
use crate::cli::{connect, runtime};
use crate::clock;
use crate::config::{HostsFile, SlotCount};
use crate::domain::time::Stamp;
use crate::record::Store;
use crate::ssh::Asker;
use crate::tui::core::{Effect, HostEntry, Model};
use crate::tui::runtime as terminal;
use crate::tui::source::EventSource;
use crate::tui::source::live::Live;
use crate::tui::source::replay::Replay;
use crate::tui::view::Caps;

/// Between telemetry samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// The UI over the hosts.
pub fn live(file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let entry = |host: &crate::config::HostConfig| HostEntry {
        id: host.id.clone(),
        slots: match host.slots {
            SlotCount::Auto => None,
            SlotCount::Cpus(count) => Some(count),
        },
    };
    let now = clock::now();
    let model = Model::live(file.hosts.iter().map(entry).collect(), now, utc_offset(now));
    runtime::block_on(async {
        let (asker, questions) = Asker::new();
        let session = connect::session(&file.hosts, &paths.home, Some(INTERVAL), &asker).await?;
        let mut source = Live::new(session, &paths.state, questions);
        source.perform(Effect::ListRuns);
        let code = show(&mut source, model).await?;
        for run in source.live_runs() {
            note(&format!("run {} goes on; to end it: hvtui stop {}", run.short(), run.short()));
        }
        Ok(code)
    })
}

/// The UI over one recording.
pub fn replay(args: &ReplayArgs, paths: &Paths) -> Result<ExitCode, Failure> {
    let path = Store::new(&paths.state).find(args.run.as_deref().unwrap_or_default())?;
    let mut replay = Replay::open(&path)?;
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "standard output is not a terminal, and a replay needs one: use `hvtui logs`, `hvtui runs --json` or \
             `hvtui export --to chrome`",
        ));
    }
    let state = replay.player().state();
    let model = Model::replay(state, clock::now(), utc_offset(clock::now()));
    runtime::block_on(async { show(&mut replay, model).await })
}

async fn show(source: &mut impl EventSource, model: Model) -> Result<ExitCode, Failure> {
    let caps = Caps::from_env(|name| std::env::var(name).ok());
    match terminal::run(source, model, caps).await {
        Ok(None) => Ok(ExitCode::SUCCESS),
        Ok(Some(signal)) => Ok(ExitCode::from(128 + signal)),
        Err(error) => Err(Failure::new(Code::Unreachable, error.to_string())),
    }
}

/// Seconds that the person's clock is ahead of UTC.
fn utc_offset(at: Stamp) -> i32 {
    match Local.timestamp_micros(at.0).single() {
        Some(time) => time.offset().fix().local_minus_utc(),
        None => 0,
    }
}
