//! `hvtui smoke`: a minute that proves the cluster. The doctor's checks, then runs of hvtui's own, each a command line that a
//! person can repeat; a table with what was to be expected and what was measured.

mod judge;
mod steps;

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time;
use unicode_width::UnicodeWidthStr;

use self::judge::{Ran, Row, busy, judge, not_reached};
use self::steps::{Asked, Facts, Plan, STEPS, Step, plan};
use super::doctor;
use crate::cli::again::hosts_option;
use crate::cli::args::SmokeArgs;
use crate::cli::errors::{Failure, to_person, to_stdout};
use crate::cli::json::{self, VERSION};
use crate::cli::paths::Paths;
use crate::cli::progress_line::ProgressLine;
use crate::cli::runtime;
use crate::cli::signals::{Ask, Signals};
use crate::clock;
use crate::config::{HostConfig, HostsFile};
use crate::doctor::Reached;
use crate::domain::doctor::{Matrix, glyph};
use crate::domain::ids::HostId;
use crate::domain::preflight::Mark;
use crate::domain::text::{in_list, os_text, sanitize};
use crate::domain::units::counted;
use crate::launcher::inventory;

/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a run that was told to end may take for it.
const ENDING: Duration = Duration::from_secs(30);
/// Runs at once, where each host has its own.
const AT_ONCE: usize = 8;
/// Bytes that are kept of what a run prints.
const PRINTED: u64 = 1 << 20;

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    at: String,
    hosts: Vec<&'a str>,
    failed: usize,
    steps: &'a [Row],
}

/// Tries all steps; 1 where one has failed.
pub fn run(args: &SmokeArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    if let Some(unknown) = args.only.iter().find(|name| !STEPS.contains(&name.as_str())) {
        return Err(Failure::usage(format!("there is no step '{unknown}': {}", STEPS.join(", "))));
    }
    let hosts = doctor::choose_hosts(&args.only_hosts, file)?;
    runtime::block_on(async {
        let signals = Signals::listen()?;
        let trial = Trial {
            args,
            hosts_file: file.path.as_deref(),
            hosts: &hosts,
            paths,
            signals,
            rows: Vec::new(),
            line: ProgressLine::default(),
        };
        trial.run().await
    })
}

/// A smoke test under way.
struct Trial<'a> {
    args: &'a SmokeArgs,
    hosts_file: Option<&'a Path>,
    hosts: &'a [HostConfig],
    paths: &'a Paths,
    signals: Signals,
    rows: Vec<Row>,
    line: ProgressLine,
}

impl Trial<'_> {
    async fn run(mut self) -> Result<ExitCode, Failure> {
        let names: Vec<&str> = self.hosts.iter().map(|host| host.id.as_str()).collect();
        if !self.args.json {
            let count = counted(names.len(), "host");
            to_person(&format!("{count}: {}\n\n{}\n", few(&names), head()))?;
        }
        let only: Vec<String> =
            if self.wants("doctor") { Vec::new() } else { ["mpi", "docker"].map(str::to_owned).to_vec() };
        let wanted = doctor::Wanted { only: &only, same: &[], modules: &[], image: None };
        self.line.show("doctor: the hosts and their checks");
        let begun = clock::host_now();
        let examined = tokio::select! {
            ask = self.signals.next() => return Ok(ExitCode::from(self.left(ask)?)),
            examined = doctor::examine(self.hosts, &wanted, self.paths) => examined?,
        };
        let matrix = examined.matrix();
        if self.wants("doctor") {
            let seconds = since(begun);
            self.told(Row { seconds, ..of_doctor(&matrix) })?;
        } else {
            let down = examined.hosts().filter_map(|(host, reached)| match reached {
                Reached::Down(why) => Some((host.to_string(), why.clone())),
                Reached::Waiting | Reached::Up(..) => None,
            });
            let down: Vec<(String, String)> = down.collect();
            if !down.is_empty() {
                self.told(not_reached(&down, names.len()))?;
            }
        }
        let facts: Vec<Facts> =
            examined.hosts().filter_map(|(host, reached)| self.facts(host, reached, &matrix)).collect();
        let asked = Asked {
            only: &self.args.only,
            image: self.args.image.as_deref(),
            data: self.args.data.as_deref(),
        };
        let busy = examined.hosts().filter_map(|(host, reached)| {
            let Reached::Up(info, Some(sample)) = reached else { return None };
            busy(host, sample.load.value()?[0], info.cpus)
        });
        let busy: Vec<String> = busy.collect();
        let mut link = None;
        for Step { name, place, plan } in plan(&facts, &asked) {
            let Plan::Runs(runs) = plan else {
                if let Plan::Left(why) = plan {
                    self.told(Row::left(name, why))?;
                }
                continue;
            };
            self.line.show(&format!("{name}: {place}"));
            let begun = clock::host_now();
            let (ran, ask) = self.all(runs).await?;
            if let Some(ask) = ask {
                return Ok(ExitCode::from(self.left(ask)?));
            }
            let row = judge(name, &place, &ran, link).beside(&busy);
            if name == "link" {
                link = row.rate;
            }
            self.told(Row { seconds: since(begun), ..row })?;
        }
        self.end(&names)
    }

    fn wants(&self, step: &str) -> bool {
        self.args.only.is_empty() || self.args.only.iter().any(|only| only == step)
    }

    fn facts(&self, host: &HostId, reached: &Reached, matrix: &Matrix) -> Option<Facts> {
        let Reached::Up(info, _) = reached else { return None };
        let config = self.hosts.iter().find(|config| config.id == *host)?;
        let slots = inventory::slots(config.slots, info);
        let has = |check: &str| {
            let row = matrix.rows.iter().find(|row| row.check == check);
            row.and_then(|row| row.verdicts.get(host)).is_some_and(|verdict| verdict.mark != Mark::Unknown)
        };
        let gpus = slots.iter().filter(|slot| matches!(slot, crate::domain::run::Slot::Gpu { .. })).count();
        let (name, slots) = (host.to_string(), slots.len());
        Some(Facts { name, slots, gpus, has_mpirun: has("mpi"), has_docker: has("docker") })
    }

    /// Lets all of them run, some at a time; with what a person has asked meanwhile, when all have ended for it.
    async fn all(&mut self, runs: Vec<(String, Vec<String>)>) -> Result<(Vec<Ran>, Option<Ask>), Failure> {
        let mut ran = Vec::new();
        let mut waiting = runs.into_iter().peekable();
        while waiting.peek().is_some() {
            let mut running = Vec::new();
            for (place, words) in waiting.by_ref().take(AT_ONCE) {
                running.push(Running { child: self.start(&words)?, place, words });
            }
            let pids: Vec<u32> = running.iter().filter_map(|one| one.child.id()).collect();
            let ends = futures_util::future::join_all(running.into_iter().map(Running::end));
            tokio::pin!(ends);
            let mut asked = None;
            let ended = loop {
                tokio::select! {
                    ended = &mut ends => break ended,
                    ask = self.signals.next() => {
                        // ctrl-c reaches the runs, too: they are of this terminal
                        let is_of_terminal = matches!(ask, Ask::Stop { code: 130, .. }) && std::io::stdin().is_terminal();
                        if !is_of_terminal {
                            for pid in &pids {
                                interrupt(*pid);
                            }
                        }
                        asked = Some(ask);
                    }
                }
            };
            ran.extend(ended);
            if asked.is_some() {
                return Ok((ran, asked));
            }
        }
        Ok((ran, None))
    }

    fn start(&self, words: &[String]) -> Result<Child, Failure> {
        let failed = |error: std::io::Error| Failure::bug(format!("start hvtui: {}", os_text(&error)));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        if let Some(file) = self.hosts_file {
            command.arg("--hosts").arg(file);
        }
        if self.hosts.iter().any(|host| !host.install) {
            command.arg("--no-install");
        }
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().map_err(failed)
    }

    /// A row is finished.
    fn told(&mut self, mut row: Row) -> Result<(), Failure> {
        self.line.clear();
        let hvtui = format!("hvtui {}", hosts_option());
        row.again = row.again.map(|again| again.replacen("hvtui ", &hvtui, 1));
        if !self.args.json {
            to_person(&text(&row))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// A person has asked to end; gives the exit code.
    fn left(&mut self, ask: Ask) -> Result<u8, Failure> {
        self.line.clear();
        if !self.args.json {
            to_person("ended before all was tried\n")?;
        }
        Ok(ask.code())
    }

    fn end(self, hosts: &[&str]) -> Result<ExitCode, Failure> {
        let of = |mark: Mark| self.rows.iter().filter(|row| row.mark == mark).count();
        let (failed, look, good, left) = (of(Mark::Bad), of(Mark::Look), of(Mark::Good), of(Mark::Unknown));
        if self.args.json {
            let (at, hosts) = (json::moment(clock::now()), hosts.to_vec());
            to_stdout(&json::line(&Json { version: VERSION, at, hosts, failed, steps: &self.rows })?)?;
        } else {
            let seconds: f64 = self.rows.iter().map(|row| row.seconds).sum();
            let mut told = vec![format!("{good} passed")];
            told.extend((look > 0).then(|| format!("{look} to look at")));
            told.extend((failed > 0).then(|| format!("{failed} failed")));
            told.extend((left > 0).then(|| format!("{left} not tried")));
            to_person(&format!("\n{} in {seconds:.0} s\n", told.join(", ")))?;
        }
        Ok(if failed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

/// One command line, running.
struct Running {
    child: Child,
    place: String,
    words: Vec<String>,
}

impl Running {
    async fn end(self) -> Ran {
        let Self { mut child, place, words } = self;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let read = async { tokio::join!(read(out), read(err)) };
        tokio::pin!(read);
        let mut ran = Ran { place, words, ..Ran::default() };
        if let Ok((out, err)) = time::timeout(PATIENCE, &mut read).await {
            (ran.out, ran.err) = (out, err);
            ran.code = child.wait().await.ok().and_then(|status| status.code());
            return ran;
        }
        if let Some(pid) = child.id() {
            interrupt(pid);
        }
        if let Ok((out, err)) = time::timeout(ENDING, &mut read).await {
            (ran.out, ran.err) = (out, err);
        }
        // what does not end by itself is killed: its run goes on, and its words say so
        let _ = child.kill().await;
        ran
    }
}

/// All of it, its beginning alone where it is long.
async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        // what came before an error is what there is
        let _ = (&mut from).take(PRINTED).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn interrupt(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // one that has ended meanwhile needs none
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

fn since(begun: crate::domain::time::HostTime) -> f64 {
    clock::host_now().0.saturating_sub(begun.0) as f64 / 1e6
}

/// The row of the doctor's checks.
fn of_doctor(matrix: &Matrix) -> Row {
    let (red, yellow) = (matrix.checks(Mark::Bad), matrix.checks(Mark::Look));
    let checks = matrix.checks_words();
    let (mark, found) = match (red, yellow) {
        (0, 0) => (Mark::Good, "nothing is wrong".to_owned()),
        (0, yellow) => (Mark::Look, format!("{yellow} to look at")),
        (red, yellow) => (Mark::Bad, format!("{red} red, {yellow} to look at")),
    };
    let mut words = Vec::new();
    for row in &matrix.rows {
        for (host, verdict) in row.verdicts.iter().filter(|(_, verdict)| verdict.mark == Mark::Bad) {
            words.push(format!("{} on {host}: {}", row.check, in_list(&verdict.evidence)));
        }
    }
    let place = counted(matrix.hosts.len(), "host");
    let again = (red + yellow > 0).then(|| "hvtui doctor".to_owned());
    Row {
        place,
        mark,
        words,
        again,
        measured: format!("{checks}: {found}"),
        ..Row::left("doctor", String::new())
    }
}

/// `n1, n2, n3 and 61 more`.
fn few(names: &[&str]) -> String {
    const NAMED: usize = 8;
    match names.len().checked_sub(NAMED) {
        None | Some(0) => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}

fn head() -> String {
    format!("  {:10} {:12} {:13} measured", "step", "where", "expected")
}

/// A row, and below it what was said of a failure.
fn text(row: &Row) -> String {
    let expected = if row.expected.is_empty() { "-" } else { &row.expected };
    let place = if row.place.is_empty() { "-" } else { &row.place };
    let mut place = sanitize(place).into_owned();
    place.push_str(&" ".repeat(12_usize.saturating_sub(place.width())));
    let took = if row.seconds > 0.0 { format!("  {:.1} s", row.seconds) } else { String::new() };
    let measured = sanitize(&row.measured);
    let mut out = format!("{} {:10} {place} {expected:13} {measured}{took}\n", glyph(row.mark), row.step);
    for words in &row.words {
        let _ = writeln!(out, "  {:10} {}", "", sanitize(words));
    }
    if let Some(again) = row.again.as_ref().filter(|_| row.mark != Mark::Good) {
        let _ = writeln!(
            out,
            "  {:10} {}: {}",
            "",
            if row.step == "doctor" { "more" } else { "again" },
            sanitize(again)
        );
    }
    out
}
