//! `hvtui stacks`: where every rank of a run is just now, to see why it hangs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use crate::cli::args::StacksArgs;
use crate::cli::ask;
use crate::cli::errors::fault;
use crate::cli::errors::{Code, Failure, note, to_person, to_stdout};
use crate::cli::find::{find, living};
use crate::cli::hint::hint_of_hang;
use crate::cli::json::VERSION;
use crate::cli::paths::Paths;
use crate::cli::{output, runtime};
use crate::clock;
use crate::config::HostsFile;
use crate::domain::collectives::ras::RasAnswer;
use crate::domain::collectives::{Collected, ProcessCollectives};
use crate::domain::event::{Event, Origin};
use crate::domain::ids::HostId;
use crate::domain::run::RunSpec;
use crate::domain::stacks::{Alike, ProcessStacks, Taker, alike};
use crate::domain::text::{about, sanitize};
use crate::launcher::session::{Output, Session};

/// How long the hosts may take: a connection, and processes that do not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Json<'a> {
    version: u32,
    stacks: &'a [ProcessStacks],
    /// In which collective the ranks differ, in sentences.
    differing: &'a [String],
    collectives: Vec<&'a ProcessCollectives>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nccl: Option<&'a RasAnswer>,
}

/// What the hosts have told.
#[derive(Debug, Default)]
struct Told {
    stacks: Vec<ProcessStacks>,
    collected: Collected,
    /// Hosts that could not tell, and why.
    silent: Vec<(HostId, Code, String)>,
}

/// Prints the stacks of a run's ranks.
pub fn run(args: &StacksArgs, file: &HostsFile, paths: &Paths) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let prompter = ask::person();
        let run = living(args.run.as_deref(), file, paths, &prompter).await?;
        let mut found = find(&run, file, paths, None, &prompter).await?;
        let spec = found.spec.clone();
        if let Some(outcome) = found.recording.as_ref().and_then(|reader| reader.outcome()) {
            let text = format!("run {} has ended: {}", spec.id.short(), outcome.summary);
            return Err(Failure::new(Code::Usage, format!("{text}; it has no stacks any more")));
        }
        let mut session = found.session(file, paths, None, &prompter).await?;
        output::start(&paths.state)?;
        let mut told = Told::default();
        let mut due: BTreeSet<HostId> = spec.hosts().into_iter().collect();
        session.ask_stacks(&spec, args.threads);
        prompter.timeout(PATIENCE, hear(&mut session, &spec, &mut due, &mut told)).await;
        let late = format!("no answer in {} s", PATIENCE.as_secs());
        told.silent.extend(due.into_iter().map(|host| (host, Code::Unreachable, late.clone())));
        told.stacks.sort_by_key(|one| (one.rank, one.worker));
        if args.json {
            let json = Json {
                version: VERSION,
                stacks: &told.stacks,
                differing: told.collected.words(),
                collectives: told.collected.processes().collect(),
                nccl: told.collected.ras(),
            };
            let json = serde_json::to_string(&json).map_err(|error| Failure::bug(error.to_string()))?;
            to_stdout(&format!("{json}\n"))?;
        } else {
            to_person(&collectives(&told.collected))?;
            let groups = alike(&told.stacks);
            let words = text(&groups, args.threads);
            // of a host that did not answer nothing is known
            if words.is_empty() && told.silent.is_empty() {
                let (run, name) = (spec.id.short(), sanitize(&spec.name));
                to_person(&format!("no rank of run {run} ({name}) lives any more\n"))?;
            }
            to_person(&words)?;
            if let Some(hint) = hint_of_hang(&groups, &spec) {
                to_person(&format!("\n{hint}\n"))?;
            }
        }
        for (host, _, why) in &told.silent {
            note(&about(host, why));
        }
        output::end(None).await?;
        match told.silent.first() {
            Some((_, code, _)) => Ok((*code).into()),
            None => Ok(ExitCode::SUCCESS),
        }
    })
}

async fn hear(session: &mut Session, spec: &RunSpec, due: &mut BTreeSet<HostId>, told: &mut Told) {
    while !due.is_empty() {
        match session.next().await {
            Output::Stacks { run, host, of, why, collectives, last, .. }
                if run == spec.id && due.contains(&host) =>
            {
                told.stacks.extend(of);
                if !collectives.is_empty() {
                    told.collected.take(clock::now(), &host, *collectives, spec.world());
                }
                if last {
                    due.remove(&host);
                }
                told.silent.extend(why.map(|why| (host, Code::Unreachable, why)));
            }
            Output::Event(envelope) => {
                if let (Origin::Host(host), Event::LinkChanged { state }) =
                    (&envelope.origin, &envelope.event)
                    && let Some((code, reason)) = fault(state)
                    && due.remove(host)
                {
                    told.silent.push((host.clone(), code, reason));
                }
            }
            _ => {}
        }
    }
}

/// Where the ranks differ, and of whom that is not known.
fn collectives(collected: &Collected) -> String {
    let mut text = String::new();
    for words in collected.words() {
        let _ = writeln!(text, "{}", sanitize(words));
    }
    for process in collected.processes() {
        if let Some(why) = &process.lacks {
            let _ = writeln!(text, "rank {}: no collectives: {}", process.name(), sanitize(why));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// Ranks that stand at the same place together, those first that hold the others up.
fn text(groups: &[Alike<'_>], all_threads: bool) -> String {
    let mut text = String::new();
    for group in groups {
        if !text.is_empty() {
            text.push('\n');
        }
        let head: Vec<String> =
            [Some(group.who()), group.phase(), Some(source(group))].into_iter().flatten().collect();
        let _ = writeln!(text, "{}", head.join(", "));
        if group.of[0].by == Taker::Kernel {
            let first = group.of[0];
            let _ = writeln!(text, "  {}", sanitize(&first.text));
            if let Some(lacks) = &first.lacks {
                let _ = writeln!(text, "  no stack: {}", sanitize(lacks));
            }
        } else if let Some(lacks) = group.of[0].lacks.as_ref().filter(|_| all_threads) {
            let _ = writeln!(text, "  the main thread alone: {}", sanitize(lacks));
        }
        let threads = if all_threads { group.threads.len() } else { group.threads.len().min(1) };
        for thread in &group.threads[..threads] {
            if threads > 1 {
                let _ = writeln!(text, "  thread {}", sanitize(&thread.name));
            }
            let places: Vec<String> =
                thread.frames.iter().map(|frame| sanitize(&frame.place()).into_owned()).collect();
            let wide = places.iter().map(|place| place.chars().count()).max().unwrap_or(0);
            for (place, frame) in places.iter().zip(&thread.frames) {
                let _ = writeln!(text, "    {place:wide$}  {}", sanitize(&frame.function));
            }
        }
    }
    text
}

fn source(group: &Alike<'_>) -> String {
    let first = group.of[0];
    let pids: Vec<String> = group.of.iter().take(4).map(|one| one.pid.to_string()).collect();
    let more = if group.of.len() > 4 { " …" } else { "" };
    let by = if first.by == Taker::PySpy { " by py-spy" } else { "" };
    format!("pid {}{more}{by}", pids.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;
    use crate::domain::standstill::StalledPhase;
    use crate::domain::timing::Phase;

    #[test]
    fn who_holds_the_others_up_is_printed_first() {
        let python = |rank, line, phase| ProcessStacks {
            rank: Rank(rank),
            worker: None,
            pid: 100 + rank,
            by: Taker::Hooks,
            text: format!(
                "Current thread 0x1 (most recent call first):\n  File \"/x/lib/python3.11/site-packages/torch/a.py\", \
                 line 9 in f\n  File \"/me/train.py\", line {line} in main\x1b[2J\n"
            ),
            lacks: None,
            standing: Some(StalledPhase { phase, step: 8, for_us: 2_000_000, stopped: false, at: None }),
        };
        let plain = ProcessStacks {
            rank: Rank(3),
            worker: None,
            pid: 9,
            by: Taker::Kernel,
            text: "9 (a.out) in state S at futex_wait".into(),
            lacks: Some("hvtui's hooks are in no Python of it; py-spy is not on this host's PATH".into()),
            standing: None,
        };
        let stacks =
            [python(0, 57, Phase::Wait), python(1, 61, Phase::Backward), python(2, 57, Phase::Wait), plain];
        insta::assert_snapshot!(text(&alike(&stacks), false), @r"
        rank 1, in backward of step 8 for 2.0 s, pid 101
            torch/a.py:9  f
            train.py:61   main␛[2J

        ranks 0, 2, in wait of step 8 for 2.0 s, pid 100 102
            torch/a.py:9  f
            train.py:57   main␛[2J

        rank 3, pid 9
          9 (a.out) in state S at futex_wait
          no stack: hvtui's hooks are in no Python of it; py-spy is not on this host's PATH
        ");
    }
}
