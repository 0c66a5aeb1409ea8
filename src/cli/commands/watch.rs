//! `hvtui watch`: every host's GPUs without the UI, once or at each tick, as a table or as JSON.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{self, MissedTickBehavior};

use crate::cli::args::{Prometheus, WatchArgs, WatchForm};
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, filter, note, to_person, to_stdout};
use crate::cli::metrics_port::{self, MetricsPort};
use crate::cli::paths::Paths;
use crate::cli::signals::Signals;
use crate::cli::{ask, connect, in_place, json, metrics, output, runtime, sieve, table, whole_file};
use crate::clock;
use crate::config::{HostConfig, HostsFile};
use crate::domain::filter::Filter;
use crate::domain::host::LinkState;
use crate::domain::ids::HostId;
use crate::domain::units::counted;
use crate::domain::world::{HostState, World};
use crate::launcher::alerts::{AlertCommand, AlertObject};
use crate::launcher::session::{Output, Session};
use crate::ssh::Prompter;

/// `--once` waits no longer for hosts that neither answer nor fail.
const ONCE_DEADLINE: Duration = Duration::from_secs(45);
/// The width of a table that no terminal limits.
const WIDE: usize = 200;

/// Prints until interrupted, or once.
pub fn run(args: &WatchArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    let filter = filter(args.filter.as_deref())?;
    if let (true, Some(Prometheus::Port(address))) = (args.once, &args.form.prometheus) {
        return Err(Failure::usage(format!(
            "--prometheus {address} serves until ctrl-c: give it without --once"
        )));
    }
    runtime::block_on(async {
        let port = listen(args).await?;
        let interval = Duration::from_secs_f64(args.interval);
        let prompter = ask::person();
        let mut session = connect::session(&file.hosts, &paths.home, Some(interval), &prompter).await?;
        if args.once {
            once(session, (args, &filter), &file.hosts, &prompter).await
        } else {
            let mut signals = Signals::listen()?;
            output::start(&paths.state)?;
            session.set_alert_rules(&file.alerts.rules);
            let alerts = AlertCommand::new(file.alerts.command.clone());
            let wanted = (args, &filter);
            let code = ticks(session, wanted, &file.hosts, (&prompter, &mut signals), (alerts, port)).await;
            if is_in_place(args) {
                to_stdout(in_place::END)?;
            }
            let taken = output::end(Some(&mut signals)).await;
            code.and_then(|code| taken.map(|()| code))
        }
    })
}

/// Opens the port of `--prometheus 127.0.0.1:PORT`.
async fn listen(args: &WatchArgs) -> Result<Option<MetricsPort>, Failure> {
    let Some(Prometheus::Port(address)) = &args.form.prometheus else { return Ok(None) };
    let failed = |error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => format!(": {}", metrics_port::taken(*address)),
            _ => String::new(),
        };
        Failure::new(Code::from(&error), format!("--prometheus {address}: {error}{remedy}"))
    };
    let port = MetricsPort::listen(*address).await.map_err(failed)?;
    note(&format!("metrics at {}", port.url()));
    Ok(Some(port))
}

/// Waits until every host has told or failed, prints, and exits with the worst fault: 0 when all are up.
async fn once(
    mut session: Session,
    wanted: (&WatchArgs, &Filter),
    hosts: &[HostConfig],
    prompter: &Prompter,
) -> Result<ExitCode, Failure> {
    let mut faults: BTreeMap<HostId, Code> = BTreeMap::new();
    let settle = async {
        while !hosts.iter().all(|host| settled(session.world().hosts.get(&host.id))) {
            session.next().await;
        }
    };
    let in_time = prompter.timeout(ONCE_DEADLINE, settle).await.is_some();
    print(session.world(), wanted, hosts, true)?;
    for host in hosts {
        let link = session.world().hosts.get(&host.id).and_then(|state| state.link.as_ref());
        // Without an agent the values are there all the same.
        let link = link.filter(|(_, state)| !matches!(state, LinkState::Limited { .. }));
        if let Some((code, _)) = link.and_then(|(_, state)| fault(state)) {
            faults.insert(host.id.clone(), code);
        }
    }
    let worst = faults.into_values().max_by_key(|code| code.number());
    Ok(match worst {
        Some(code) => code.into(),
        None if in_time => ExitCode::SUCCESS,
        None => Code::Unreachable.into(),
    })
}

/// A host has told what a table needs, or it has failed. The first sample has no CPU share and no network
/// rate yet: both are differences.
fn settled(state: Option<&HostState>) -> bool {
    let Some(state) = state else {
        return false;
    };
    match &state.link {
        Some((_, LinkState::Down { .. } | LinkState::Refused { .. })) => true,
        Some((_, LinkState::Up | LinkState::Limited { .. })) => {
            let known = state.latest().is_some_and(|(_, sample)| sample.cpu_percent.value().is_some());
            state.info.is_some() && (known || state.past.len() > 1)
        }
        _ => false,
    }
}

async fn ticks(
    mut session: Session,
    wanted: (&WatchArgs, &Filter),
    hosts: &[HostConfig],
    (prompter, signals): (&Prompter, &mut Signals),
    (mut alerts, mut port): (AlertCommand, Option<MetricsPort>),
) -> Result<ExitCode, Failure> {
    let mut first = true;
    let mut told = 0;
    let mut tick = time::interval(Duration::from_secs_f64(wanted.0.interval));
    // one that was due while this process stood still is not made up for
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tokio::select! {
            biased;
            ask = signals.next() => return Ok(ExitCode::from(ask.code())),
            () = output::changed() => {
                if output::closed().is_some() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            why = alerts.failure() => note(&why),
            request = async {
                match &mut port {
                    Some(port) => port.request().await,
                    None => std::future::pending().await,
                }
            } => {
                let now = clock::now();
                let (world, hosts) = sieve::passing(session.world(), hosts, wanted.1, now);
                let text = metrics::prometheus(&world, &hosts, now);
                // the client that asked may be gone
                let _ = request.send(text);
            }
            _ = tick.tick() => {
                session.tick(clock::now());
                told = tell(session.world(), told, wanted.0, &mut alerts)?;
                // a table would wipe the question away
                let hidden = is_table(wanted.0) && prompter.is_asking();
                if hidden && is_in_place(wanted.0) {
                    to_stdout(in_place::END)?;
                }
                // a reader that is behind gets fewer ticks, and each as it is then
                if !hidden && output::is_taken() {
                    print(session.world(), wanted, hosts, first)?;
                    first = false;
                }
            }
            output = session.next() => {
                drop::<Output>(output);
                told = tell(session.world(), told, wanted.0, &mut alerts)?;
            }
        }
    }
}

/// Tells the alerts that have begun or ended after the first `told` begins and ends: with `--json` as objects among the
/// ticks, else on standard error; and executes the command of the hosts file. Returns how many are told now.
fn tell(world: &World, told: u64, args: &WatchArgs, alerts: &mut AlertCommand) -> Result<u64, Failure> {
    for news in world.alerts.news_since(told) {
        let object = AlertObject::of(&news, clock::now());
        if args.form.json {
            to_stdout(&json::line(&object)?)?;
        } else if !shows_alerts(args) {
            note(&format!("alert: {}", object.sentence()));
        }
        if let Some(dropped) = alerts.execute(object) {
            note(&dropped);
        }
    }
    Ok(world.alerts.serial())
}

/// Whether the table on the terminal shows the alerts that go on: it would wipe away what stands beside it.
fn shows_alerts(args: &WatchArgs) -> bool {
    is_table(args) && std::io::stdout().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether tables are printed over each other.
fn is_in_place(args: &WatchArgs) -> bool {
    !args.once && is_table(args) && std::io::stdout().is_terminal()
}

fn is_table(args: &WatchArgs) -> bool {
    let WatchForm { json, csv, prometheus } = &args.form;
    !json && !csv && prometheus.is_none()
}

/// One tick; with `first` below what stands above all of them.
fn print(
    world: &World,
    (args, filter): (&WatchArgs, &Filter),
    hosts: &[HostConfig],
    first: bool,
) -> Result<(), Failure> {
    let now = clock::now();
    let passing = (!filter.is_empty()).then(|| sieve::passing(world, hosts, filter, now));
    let all = world;
    let (world, hosts) = passing.as_ref().map_or((world, hosts), |(world, hosts)| (world, hosts));
    match &args.form.prometheus {
        Some(Prometheus::Stdout) => return to_stdout(&metrics::prometheus(world, hosts, now)),
        Some(Prometheus::File(file)) => return replace(file, &metrics::prometheus(world, hosts, now)),
        Some(Prometheus::Port(_)) => return Ok(()),
        None => {}
    }
    if args.form.csv {
        let head = if first { metrics::csv_head() } else { String::new() };
        return to_stdout(&(head + &metrics::csv(world, hosts, now)));
    }
    if args.form.json {
        return to_stdout(&json::line(&json::tick(world, hosts, now))?);
    }
    let size = if is_in_place(args) { crossterm::terminal::size().ok() } else { None };
    let columns = || crossterm::terminal::size().ok().filter(|_| std::io::stdout().is_terminal());
    let width = size.or_else(columns).map_or(WIDE, |(columns, _)| usize::from(columns));
    let mut table = table::render(world, hosts, now, width);
    if table.is_empty() {
        let gpus = all.hosts.values().filter_map(|state| state.info.as_ref());
        let gpus = gpus.map(|info| info.gpus.len()).sum::<usize>();
        table = format!(
            "none of {} passes {}\n",
            counted(gpus, "GPU"),
            args.filter.as_deref().unwrap_or_default()
        );
    }
    match size {
        // each table takes the place of the last one
        Some((_, rows)) => {
            let shown = table + &table::alerts(all, width);
            to_person(&in_place::frame(&shown, usize::from(rows)))
        }
        None if args.once => to_person(&table),
        None => to_person(&format!("{table}\n")),
    }
}

/// Replaces a file by `text` at once: a reader always sees a whole one.
fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let written = whole_file::write(file, 0o666, |file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        Failure::new(Code::from(&error), format!("--prometheus {}: {error}", file.display()))
    })
}
