//! The terminal UI: `hvtui` over the live hosts, `hvtui replay` over a recording.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use chrono::{Local, Offset, TimeZone};

use crate::cli::args::{DemoArgs, ReplayArgs};
use crate::cli::ask::person;
use crate::cli::commands::doctor::history;
use crate::cli::complete::{close_recordings, complete};
use crate::cli::demo_folder::DemoFolder;
use crate::cli::disk;
use crate::cli::errors::{Code, Failure, note};
use crate::cli::find::hosts_of;
use crate::cli::follow::how_to_go_on;
use crate::cli::launch::from_recipe;
use crate::cli::paths::Paths;
use crate::cli::runs_of_hosts::{Asked, ask};
use crate::cli::signals::Signals;
use crate::cli::ui_settings;
use crate::cli::{again, connect, recording, run_line, runtime};
use crate::clock;
use crate::config::{self, HostsFile, SlotCount};
use crate::domain::doctor::Matrix;
use crate::domain::time::Stamp;
use crate::launch::request::{LaunchRequest, PlacementSpec};
use crate::launcher::alerts::AlertCommand;
use crate::launcher::session::Session;
use crate::record::{Player, Reader, Store};
use crate::ssh::Prompter;
use crate::tui::canvas::Caps;
use crate::tui::core::{Effect, Settings, Zone};
use crate::tui::runtime::{self as terminal, RuntimeError};
use crate::tui::screens::{Here, HostEntry, Model, Variables};
use crate::tui::source::ended::Finished;
use crate::tui::source::live::Live;
use crate::tui::source::replay::Replay;
use crate::tui::source::{EventSource, Left};

/// The signal of a terminal that is gone.
const SIGHUP: u8 = 1;
/// Between telemetry samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long hosts may take to answer before a replay begins.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a run's end may take to be read from its hosts.
const COMPLETION: Duration = Duration::from_secs(10);

/// The UI over the hosts; `readonly` changes nothing there.
pub fn live(file: &HostsFile, paths: &Paths, readonly: bool) -> Result<ExitCode, Failure> {
    let mut model = model(file);
    model.readonly = readonly;
    model.hosts_option = again::given();
    close_recordings(&paths.state);
    model.variables = variables();
    model.here = here();
    runtime::block_on(async {
        let (prompter, questions) = Prompter::new();
        let mut session = connect::session(&file.hosts, &paths.home, Some(INTERVAL), &prompter).await?;
        session.keep_hashes_in(paths.state.join("sync"), paths.home.clone());
        let command = AlertCommand::new(file.alerts.command.clone());
        let mut source = Live::new(session, &paths.state, questions)
            .with_max_recording(file.max_recording)
            .with_alerts(command, Arc::new(file.alerts.rules.clone()))
            .with_keeper(keep_look, &paths.state);
        source.perform(Effect::ListRuns);
        Box::pin(show(source, model, &paths.state)).await
    })
}

/// Why no screen can be drawn here, if so.
pub(crate) fn no_screen() -> Option<&'static str> {
    if !std::io::stdout().is_terminal() {
        return Some("standard output is not a terminal");
    }
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_dumb.then_some("this terminal draws no screens (TERM=dumb)")
}

/// Keeps the looks of the Doctor screen, each on a thread of its own: a disk may be slow.
fn keep_look(state: &Path, matrix: &Matrix) {
    let (state, matrix) = (state.to_owned(), matrix.clone());
    let keep = move || history::keep_of_screen(&state, &matrix);
    let _ = std::thread::Builder::new().name("doctor".to_owned()).spawn(keep);
}

/// The UI over hosts that do not exist. Two runs are launched.
pub fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    if let Some(why) = no_screen() {
        return Err(Failure::usage(format!("{why}, and the demo is for looking at")));
    }
    let size = args.size();
    let file = config::parse(Path::new("the demo's hosts file"), size.hosts_file(), Path::new("/"))
        .map_err(|error| Failure::bug(error.to_string()))?;
    let state = DemoFolder::make().map_err(|error| {
        Failure::new(Code::from(&error), format!("make a folder for the demo's recordings: {error}"))
    })?;
    let mut model = model(&file);
    model.demo = true;
    model.readonly = args.readonly;
    model.here.read_run = run_line::read;
    runtime::block_on(async {
        let session = Session::new(file.hosts.clone(), size.entries(INTERVAL), "/".to_owned());
        let (_prompter, questions) = Prompter::new();
        let mut source = Live::new(session, state.path(), questions);
        for (recipe, picks) in model.recipes.iter().zip(size.launches()) {
            source.launch_unseen(LaunchRequest { place: PlacementSpec::Picks(picks), ..recipe.clone() });
        }
        Box::pin(show(source, model, state.path())).await
    })
}

/// The UI over one recording.
pub fn replay(
    args: &ReplayArgs,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let text = args.run.as_deref().unwrap_or_default();
    if let Some(why) = no_screen() {
        // what is wrong with the recording comes first
        Player::open(&Store::new(&paths.state).find(text)?)?;
        return Err(Failure::usage(format!(
            "{why}, and a replay needs one: use `hvtui logs`, `hvtui runs --json` or `hvtui export --to chrome`"
        )));
    }
    let meant = recording::meant(text, paths)?;
    read_to_its_end(&meant.path, &hosts, paths)?;
    // a recording can be shown without a hosts file
    let rules = hosts().map(|file| file.alerts.rules).unwrap_or_default();
    let mut player = Player::open(&meant.path)?.with_rules(Arc::new(rules));
    player.seek(player.state().end);
    let mut model = Model::replay(player.state(), clock::now(), here_zone(clock::now()));
    model.hosts_option = again::given();
    let replay = Replay::of(player)?;
    let code = runtime::block_on(async { Box::pin(show(replay, model, &paths.state)).await });
    meant.leave();
    code
}

/// A run that has ended since its recording stopped: what its hosts have is read first, where they answer.
fn read_to_its_end(
    path: &Path,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<(), Failure> {
    let reader = Reader::open(path)?;
    let Some(spec) = reader.spec().filter(|spec| {
        // a copy of a recording is shown as it is
        reader.outcome().is_none() && Store::new(&paths.state).path_of(&spec.id) == path
    }) else {
        return Ok(());
    };
    let Ok(hosts) = hosts().and_then(|file| hosts_of(spec, &file)) else { return Ok(()) };
    runtime::block_on(async {
        let prompter = person();
        let mut session = connect::session(&hosts, &paths.home, None, &prompter).await?;
        let Asked { inventory, .. } = ask(&mut session, PATIENCE, &prompter, |_| false).await;
        if inventory.unheard(spec).is_empty()
            && !inventory.is_live(&spec.id)
            && inventory.shares.contains_key(&spec.id)
        {
            for trouble in complete(session, vec![spec.clone()], &paths.state, COMPLETION).await {
                note(&trouble);
            }
        }
        Ok(())
    })
}

async fn show(mut source: impl EventSource, mut model: Model, state: &Path) -> Result<ExitCode, Failure> {
    let caps = Caps::from_env(|name| std::env::var(name).ok());
    let settings = ui_settings::load(state);
    model.settings = settings.clone();
    model.ascii = caps.ascii;
    let ended = terminal::run(&mut source, &mut model, caps).await;
    // the terminal is as it was: from here on a word can be said
    let mut signals = Signals::listen()?;
    if matches!(ended, Ok(Some(SIGHUP)) | Err(RuntimeError::TerminalGone)) {
        signals.are_alone();
    }
    let Left { live, troubles, mut finishing } = source.leave();
    if !model.demo {
        for run in &live {
            note(&format!("run {} goes on. {}", run.short(), how_to_go_on(run)));
        }
    }
    for trouble in &troubles {
        note(trouble);
    }
    let changed = Some(model.settings).filter(|now| *now != settings);
    let kept = changed.map(|settings| keep(settings, state.to_owned()));
    let tell = |finished: Finished| finished.trouble().into_iter().for_each(note);
    if let Some(code) = disk::written(&mut finishing, Some(&mut signals), tell).await {
        return Ok(ExitCode::from(code));
    }
    if let Some(kept) = kept {
        let what = format!("the look to be kept below {}; ctrl-c leaves without", state.display());
        if let Err(code) = disk::patiently(Some(&mut signals), &what, kept).await {
            return Ok(ExitCode::from(code));
        }
    }
    match ended {
        Ok(None) => Ok(ExitCode::SUCCESS),
        Ok(Some(signal)) => Ok(ExitCode::from(128 + signal)),
        Err(error) => Err(Failure::new(Code::Io, error.to_string())),
    }
}

/// Keeps what was chosen about the look, beside everything else; what is awaited tells why that failed.
fn keep(settings: Settings, state: PathBuf) -> impl Future<Output = ()> {
    let folder = state.display().to_string();
    let kept = tokio::task::spawn_blocking(move || ui_settings::save(&state, &settings));
    async move {
        if let Ok(Err(error)) = kept.await {
            note(&format!("the look is not kept: {folder}: {error}"));
        }
    }
}

/// The UI before its hosts have answered.
fn model(file: &HostsFile) -> Model {
    let entry = |host: &crate::config::HostConfig| HostEntry {
        id: host.id.clone(),
        slots: match host.slots {
            SlotCount::Auto => None,
            SlotCount::Cpus(count) => Some(count),
        },
        free_memory: host.free_memory,
        labels: host.labels.clone(),
        is_local: host.is_local(),
    };
    let now = clock::now();
    let mut model = Model::live(file.hosts.iter().map(entry).collect(), now, here_zone(now));
    model.views.clone_from(&file.views);
    model.retention = file.retention;
    model.recipes = file.recipes.iter().map(from_recipe).collect();
    model.world.alerts.rules = Arc::new(file.alerts.rules.clone());
    model
}

/// Where this process was started; the home folder in the place of a current folder that is gone.
fn here() -> Here {
    let home = std::env::home_dir().unwrap_or_else(|| "/".into());
    let cwd = std::env::current_dir().unwrap_or_else(|_| home.clone());
    Here { cwd: cwd.display().to_string(), home: home.display().to_string(), read_run: run_line::read }
}

/// The variables of this process that are text.
fn variables() -> Variables {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Variables(std::env::vars_os().filter_map(text).collect())
}

/// This machine's time zone.
pub(in crate::cli) fn here_zone(now: Stamp) -> Zone {
    Zone::around(now, |at| match Local.timestamp_micros(at.0).single() {
        Some(time) => time.offset().fix().local_minus_utc(),
        None => 0,
    })
}
