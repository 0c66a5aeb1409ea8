//! `hvtui runs`: past and present runs, from their recordings here and from the hosts.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Serialize, Serializer};
use unicode_width::UnicodeWidthStr as _;

use crate::cli::args::RunsArgs;
use crate::cli::ask::person;
use crate::cli::complete::complete;
use crate::cli::connect;
use crate::cli::errors::{Failure, note, to_person, to_stdout};
use crate::cli::find::START_ONE;
use crate::cli::json::{VERSION, moment};
use crate::cli::paths::Paths;
use crate::cli::runs_of_hosts::{Asked, ask};
use crate::cli::runtime;
use crate::cli::table::end_cut;
use crate::clock;
use crate::config::HostsFile;
use crate::domain::ids::{HostId, Rank};
use crate::domain::outcome::{RunEnd, RunOutcome};
use crate::domain::retention::{Age, Retention};
use crate::domain::run::{RunSpec, RunStage, RunSummary};
use crate::domain::run_list::{ListedRun, ListedState};
use crate::domain::run_status::RunStatus;
use crate::domain::sync::Code;
use crate::domain::text::sanitize;
use crate::domain::time::Stamp;
use crate::domain::trained::Trained;
use crate::domain::units::{bytes, duration_us, metric, middle_cut, rate as rate_words};
use crate::launch::words::join;
use crate::record::Store;
use crate::report::{local_second, local_time};

/// How long hosts may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the ends of runs may take to be read from the hosts, all together.
const COMPLETION: Duration = Duration::from_secs(10);

/// A run of the list.
#[derive(Debug, Serialize)]
struct Listed {
    version: u32,
    /// When it was launched.
    created: String,
    /// How long it took, or has taken so far, as the table shows it; `null` where its end is not known.
    duration_us: Option<u64>,
    #[serde(serialize_with = "plan")]
    spec: RunSpec,
    state: RunStatus,
    /// Whether it is recorded here; what follows is then what the recording says.
    recorded: bool,
    stage: Option<RunStage>,
    #[serde(serialize_with = "as_moment")]
    last_at: Option<Stamp>,
    outcome: Option<Told>,
    trained: Option<Trained>,
    /// Since when it stands still, by what is recorded here.
    #[serde(serialize_with = "as_moment")]
    stands_since: Option<Stamp>,
    /// That it stood still before its end, by what is recorded here.
    stood: Option<StoodStill>,
    bytes: u64,
    damage: Option<String>,
    /// Hosts of it that were not heard.
    unheard: Vec<HostId>,
    /// What its hosts tell of ranks that have failed or were stopped while others go on.
    broken: Option<String>,
    /// How it ended by what its hosts tell, where no recording here tells it.
    #[serde(skip)]
    ends: Option<String>,
    /// When it was over by what its hosts tell, likewise.
    #[serde(skip)]
    over_at: Option<Stamp>,
    /// Whether another client makes it ready: no rank of it runs yet.
    #[serde(skip)]
    made_ready: bool,
}

impl Listed {
    /// What filter and order look at.
    fn listed(&self, now: Stamp) -> ListedRun<'_> {
        ListedRun {
            spec: &self.spec,
            state: ListedState::of(&self.spec, self.outcome.as_ref().map(|told| &told.outcome), self.state),
            duration_us: self.duration_us(now),
            bytes: self.recorded.then_some(self.bytes),
            trained: self.trained.as_ref(),
        }
    }

    fn duration_us(&self, now: Stamp) -> Option<u64> {
        self.until(now).map(|until| until.micros_since(self.spec.created).max(0).unsigned_abs())
    }

    /// Until when it ran, as far as that is known: a client that left long before its end recorded nothing since.
    fn until(&self, now: Stamp) -> Option<Stamp> {
        match (&self.outcome, self.state) {
            (Some(Told { outcome, .. }), _) => outcome.at.or(self.last_at),
            (None, RunStatus::Running) => Some(now),
            (None, RunStatus::Ended) => self.over_at,
            (None, RunStatus::Unknown) => None,
        }
    }
}

/// The plan, with its moment in the form of all others.
fn plan<S: Serializer>(spec: &RunSpec, serializer: S) -> Result<S::Ok, S::Error> {
    let mut plan = serde_json::to_value(spec).map_err(serde::ser::Error::custom)?;
    plan["created"] = moment(spec.created).into();
    plan.serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn as_moment<S: Serializer>(at: &Option<Stamp>, to: S) -> Result<S::Ok, S::Error> {
    at.map(moment).serialize(to)
}

/// How a run ended, for other programs: with the exit code that tells it. Of an imported one that is not known.
#[derive(Debug, Serialize)]
struct Ended<'a> {
    end: RunEnd,
    code: Option<u8>,
    root: Option<Rank>,
    #[serde(serialize_with = "as_moment")]
    at: Option<Stamp>,
    summary: &'a str,
}

/// An outcome that other programs read as [`Ended`].
#[derive(Debug)]
struct Told {
    outcome: RunOutcome,
    is_imported: bool,
}

impl Serialize for Told {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { outcome, is_imported } = self;
        let ended = Ended {
            end: match outcome.end {
                _ if *is_imported => RunEnd::Unknown,
                // who stopped it is of no use to other programs
                RunEnd::StoppedElsewhere => RunEnd::Stopped,
                end => end,
            },
            code: (!is_imported).then(|| outcome.exit_code()),
            root: outcome.root,
            at: outcome.at,
            summary: &outcome.summary,
        };
        ended.serialize(to)
    }
}

/// For how long no step was made before the end of a run, and where its ranks stood.
#[derive(Debug, Serialize)]
struct StoodStill {
    for_us: u64,
    ranks: String,
    #[serde(skip)]
    words: String,
}

impl StoodStill {
    fn of(run: &RunSummary) -> Option<Self> {
        let (stood, end) = run.stood()?;
        Some(Self { for_us: stood.for_us(end)?, ranks: stood.ranks.clone(), words: stood.words(end)? })
    }
}

/// Lists them, newest first unless another order is asked for.
pub fn run(
    args: &RunsArgs,
    hosts: impl Fn() -> Result<HostsFile, Failure>,
    paths: &Paths,
) -> Result<ExitCode, Failure> {
    let store = Store::new(&paths.state);
    let file = hosts();
    let asked = match &file {
        _ if args.local => Asked::default(),
        Ok(file) => runtime::block_on(hear(&store, file, paths))?,
        Err(failure) => {
            note(&format!("no host is asked: {failure}"));
            Asked::default()
        }
    };
    let listing = store.list()?;
    for unreadable in &listing.unreadable {
        note(&format!("run {}: {}", unreadable.run.short(), unreadable.reason));
    }
    let mut runs = merged(listing.runs, &asked);
    let now = clock::now();
    let beyond = file.ok().and_then(|file| due(file.retention, &runs, now));
    let is_empty = runs.is_empty();
    if let Some(filter) = &args.filter {
        runs.retain(|run| filter.matches(&run.listed(now), now));
    }
    args.sort.sort(&mut runs, |run| run.listed(now));
    for run in &mut runs {
        run.duration_us = run.duration_us(now);
    }
    if args.json {
        let text = serde_json::to_string_pretty(&runs)
            .map_err(|error| Failure::bug(format!("write the runs as JSON: {error}")))?;
        to_stdout(&format!("{text}\n"))?;
    } else if is_empty {
        to_person(&format!("no runs yet; {START_ONE}\n"))?;
    } else if runs.is_empty() {
        note("no run passes the filter");
    } else {
        let is_terminal = std::io::stdout().is_terminal();
        let size = crossterm::terminal::size().ok().filter(|_| is_terminal);
        to_person(&table(&runs, args, now, size.map(|(columns, _)| columns.into())))?;
    }
    for words in asked.silent_words() {
        note(&words);
    }
    if let Some(words) = beyond {
        note(&words);
    }
    Ok(ExitCode::SUCCESS)
}

/// What is kept of the runs, and how many are beyond that; nothing where everything is kept.
fn due(rules: Retention, runs: &[Listed], now: Stamp) -> Option<String> {
    let kept = rules.words()?;
    let recorded = runs.iter().filter(|run| run.recorded);
    let ages = recorded.map(|run| Age {
        last_at: run.last_at.unwrap_or(run.spec.created),
        bytes: run.bytes,
        is_imported: run.spec.is_imported(),
    });
    let count = rules.beyond(ages, now).iter().flatten().count();
    let more = if count > 0 { format!("; {count} beyond that: hvtui runs prune") } else { String::new() };
    Some(format!("[runs] keeps {kept}{more}"))
}

/// Asks the hosts, and records the ends of runs that ended while no client here followed them.
async fn hear(store: &Store, file: &HostsFile, paths: &Paths) -> Result<Asked, Failure> {
    let prompter = person();
    let mut session = connect::session(&file.hosts, &paths.home, None, &prompter).await?;
    let told = ask(&mut session, PATIENCE, &prompter, |_| false).await;
    let over = |run: &RunSummary| {
        let inventory = &told.inventory;
        let known = inventory.shares.contains_key(&run.spec.id);
        run.outcome.is_none()
            && known
            && inventory.unheard(&run.spec).is_empty()
            && !inventory.is_live(&run.spec.id)
    };
    let ended: Vec<RunSpec> = store.list()?.runs.into_iter().filter(over).map(|run| run.spec).collect();
    for trouble in complete(session, ended, &paths.state, COMPLETION).await {
        note(&trouble);
    }
    Ok(told)
}

/// Recordings and what the hosts know, each run once, newest first.
fn merged(recorded: Vec<RunSummary>, asked: &Asked) -> Vec<Listed> {
    let inventory = &asked.inventory;
    // its hosts have nothing of it yet, or nothing any more: who launched it makes it ready
    let is_made_ready = |run: &RunSummary| run.is_made_ready && !inventory.is_live(&run.spec.id);
    let status = |run: &RunSummary| match inventory.status(&run.spec, run.outcome.as_ref()) {
        _ if is_made_ready(run) => RunStatus::Running,
        status => status,
    };
    let mut runs: Vec<Listed> = recorded
        .into_iter()
        .map(|run| Listed {
            version: VERSION,
            created: moment(run.spec.created),
            duration_us: None,
            state: status(&run),
            made_ready: is_made_ready(&run),
            recorded: true,
            stood: StoodStill::of(&run),
            unheard: if run.outcome.is_some() { Vec::new() } else { inventory.unheard(&run.spec) },
            broken: if run.outcome.is_some() { None } else { inventory.broken(&run.spec) },
            ends: None,
            over_at: if run.outcome.is_some() { None } else { inventory.over_at(&run.spec) },
            stage: run.stage,
            last_at: Some(run.last_at),
            outcome: run.outcome.map(|outcome| Told { outcome, is_imported: run.spec.is_imported() }),
            stands_since: run.trained.as_ref().and_then(|trained| trained.stands(run.last_at)),
            // a moment of other programs' is no number
            trained: run.trained.map(|trained| Trained { stands_since: None, ..trained }),
            bytes: run.bytes,
            damage: run.damage,
            spec: run.spec,
        })
        .collect();
    for run in inventory.shares.keys() {
        if let Some(spec) = inventory.spec(run).filter(|_| !runs.iter().any(|known| known.spec.id == *run)) {
            let stages = inventory.shares.get(run).into_iter().flat_map(|shares| shares.values());
            runs.push(Listed {
                version: VERSION,
                created: moment(spec.created),
                duration_us: None,
                state: inventory.status(spec, None),
                made_ready: false,
                recorded: false,
                stage: stages.map(|share| share.stage).min(),
                last_at: None,
                outcome: None,
                trained: None,
                stands_since: None,
                stood: None,
                bytes: 0,
                damage: None,
                unheard: inventory.unheard(spec),
                broken: inventory.broken(spec),
                ends: inventory.ended(spec),
                over_at: inventory.over_at(spec),
                spec: spec.clone(),
            });
        }
    }
    runs.sort_by(|a, b| b.spec.id.cmp(&a.spec.id));
    runs
}

/// Columns that go on a narrow terminal, in this order.
const SPARE: [&str; 4] = ["SIZE", "SAMPLES/S", "LOSS", "HOSTS"];
/// So much of the state stays.
const STATE: usize = 28;
/// Columns of what is said of an end where no terminal sets the width.
const SUMMARY: usize = 120;

/// A column of the list.
struct Column {
    head: &'static str,
    is_right: bool,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(self.head.len())
    }
}

/// Loss and samples a second have columns where a run tells them; the commit and the command where they are asked for. On a
/// terminal of `width` columns a row is one line: other columns go before much of the state is cut.
fn table(runs: &[Listed], args: &RunsArgs, now: Stamp, width: Option<usize>) -> String {
    let or_dash = |words: Option<String>| words.unwrap_or_else(|| "–".to_owned());
    let column = |head, is_right, of: &dyn Fn(&Listed) -> String| Column {
        head,
        is_right,
        cells: runs.iter().map(of).collect(),
    };
    let hosts = |run: &Listed| run.spec.hosts().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let trained = |run: &Listed, of: &dyn Fn(&Trained) -> Option<String>| run.trained.as_ref().and_then(of);
    let loss = |run: &Listed| trained(run, &|trained| trained.loss.map(|loss| metric(loss.into())));
    let rate =
        |run: &Listed| trained(run, &|trained| trained.samples_per_s.map(|each| rate_words(each.into())));
    let mut columns = vec![
        column("RUN", false, &|run| run.spec.id.short().to_owned()),
        column("STARTED", false, &|run| local_time(run.spec.created)),
        column("NAME", false, &|run| middle_cut(&sanitize(&run.spec.name), 18)),
        column("RANKS", true, &|run| run.spec.world().to_string()),
        column("HOSTS", false, &|run| middle_cut(&hosts(run), 20)),
        column("DURATION", true, &|run| or_dash(run.listed(now).duration_us.map(duration_us))),
        column("SIZE", true, &|run| or_dash(run.listed(now).bytes.map(bytes))),
    ];
    if runs.iter().any(|run| loss(run).is_some()) {
        columns.push(column("LOSS", true, &|run| or_dash(loss(run))));
    }
    if runs.iter().any(|run| rate(run).is_some()) {
        columns.push(column("SAMPLES/S", true, &|run| or_dash(rate(run))));
    }
    if args.long {
        columns.push(column("COMMIT", false, &|run| {
            sanitize(&or_dash(run.spec.code.as_ref().and_then(Code::short))).into_owned()
        }));
    }
    let damage = |run: &Listed| run.damage.as_ref().map(|damage| format!(" ({damage})")).unwrap_or_default();
    // a terminal cuts the rest
    let is_whole = width.is_some() || args.long;
    let state =
        |run: &Listed| sanitize(&format!("{}{}", state(run, args.local, is_whole), damage(run))).into_owned();
    let before = |columns: &[Column]| columns.iter().map(|column| column.width() + 2).sum::<usize>();
    let longest = runs.iter().map(|run| state(run).width()).max().unwrap_or(0);
    let is_narrow = |columns: &[Column], wanted| width.is_some_and(|width| before(columns) + wanted > width);
    for head in SPARE {
        if is_narrow(&columns, if head == SPARE[0] { longest } else { longest.min(STATE) }) {
            columns.retain(|column| column.head != head);
        }
    }
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(before(&columns)).max("STATE".len()));
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let line = |cells: &[&str], state: &str| {
        let mut text = String::new();
        for ((cell, column), width) in cells.iter().zip(&columns).zip(&widths) {
            let blanks = " ".repeat(width.saturating_sub(cell.width()));
            let (before, behind) =
                if column.is_right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
            text.extend([before, *cell, behind, "  "]);
        }
        text + &end_cut(state, room) + "\n"
    };
    let mut text = line(&columns.iter().map(|column| column.head).collect::<Vec<_>>(), "STATE");
    for (at, run) in runs.iter().enumerate() {
        let cells: Vec<&str> = columns.iter().map(|column| column.cells[at].as_str()).collect();
        text.push_str(&line(&cells, &state(run)));
        if args.long {
            let _ = writeln!(text, "      {}", sanitize(&join(&run.spec.command)));
        }
    }
    text
}

/// The words before the first `;` of what is said of an end, which has a hundred and more with all that followed.
fn gist(summary: &str) -> String {
    match summary.split_once("; ") {
        Some((first, _)) => format!("{}; …", end_cut(first, SUMMARY)),
        None => end_cut(summary, SUMMARY),
    }
}

/// How a run stands or ended; of an end all that is said where `whole`.
fn state(run: &Listed, local: bool, whole: bool) -> String {
    let last = match run.stage {
        // a job that tells no steps does not train
        Some(RunStage::Training) if run.trained.is_none() => "; last seen running".to_owned(),
        Some(stage) => format!("; last seen in {}", stage.name()),
        None => String::new(),
    };
    let names = |hosts: &[HostId]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let summary = |outcome: &RunOutcome| if whole { outcome.summary.clone() } else { gist(&outcome.summary) };
    match (&run.outcome, run.state) {
        // how it ended is not known
        (Some(Told { outcome, .. }), _) if run.spec.is_imported() => summary(outcome),
        (Some(Told { outcome, .. }), _) => {
            let stood = run.stood.as_ref().map(|stood| format!("; {}", stood.words)).unwrap_or_default();
            let refused = if outcome.is_refused() { "refused, " } else { "" };
            format!("{refused}exit {}: {}{stood}", outcome.exit_code(), summary(outcome))
        }
        (None, RunStatus::Running) if run.broken.is_some() => {
            let (words, run) = (run.broken.as_deref().unwrap_or_default(), run.spec.id.short());
            format!("running; {words}; see it end: hvtui attach {run}")
        }
        (None, RunStatus::Running) if run.made_ready => {
            let stage = run.stage.unwrap_or(RunStage::Prepare).name();
            format!("{stage}: no rank of it runs yet")
        }
        (None, RunStatus::Running) if run.recorded => {
            let since = run.stands_since.map(|since| format!("; no step since {}", local_second(since)));
            format!("running{}", since.unwrap_or_default())
        }
        (None, RunStatus::Running) => "running; not recorded here".to_owned(),
        (None, RunStatus::Ended) if run.recorded => format!("ended, its hosts say; no end recorded{last}"),
        (None, RunStatus::Ended) => {
            format!("{}; not recorded here", run.ends.as_deref().map_or("ended".into(), sanitize))
        }
        (None, RunStatus::Unknown) if local => format!("no end recorded{last}"),
        (None, RunStatus::Unknown) => format!("unknown: {} did not answer{last}", names(&run.unheard)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fixtures::{host_run_status, placement, rank_exit, run_spec};
    use crate::domain::run::RefusalClass;
    use crate::domain::run_status::HostRunStatus;

    fn summary(stage: RunStage, outcome: Option<RunOutcome>) -> RunSummary {
        let spec = RunSpec {
            name: "sleep".into(),
            command: vec!["sleep".into(), "300".into()],
            ..run_spec(vec![placement(0, "n3", 0)])
        };
        RunSummary {
            spec,
            stage: Some(stage),
            last_at: Stamp(105_000),
            outcome,
            trained: None,
            stood: None,
            bytes: 1,
            damage: None,
            is_made_ready: false,
        }
    }

    #[test]
    fn of_a_run_whose_end_is_not_known_no_duration_is_told_and_one_without_steps_runs() {
        let told = |stage, outcome| {
            let runs = merged(vec![summary(stage, outcome)], &Asked::default());
            let run = runs.first().unwrap();
            (run.duration_us(Stamp(70_000_000)), state(run, false, true))
        };
        let unknown = |last: &str| (None, format!("unknown: n3 did not answer; last seen {last}"));
        assert_eq!(told(RunStage::Training, None), unknown("running"));
        assert_eq!(told(RunStage::Rendezvous, None), unknown(&format!("in {}", RunStage::Rendezvous.name())));
        let ended =
            RunOutcome { at: Some(Stamp(90_000)), ..RunOutcome::new(RunEnd::Finished, "it finished") };
        let words = "exit 0: it finished".to_owned();
        assert_eq!(told(RunStage::Training, Some(ended)), (Some(90_000), words));
    }

    #[test]
    fn of_a_run_that_only_its_hosts_know_they_tell_how_it_ended() {
        let told = |code: Option<i32>| {
            let spec = summary(RunStage::Training, None).spec;
            let share = HostRunStatus {
                host: HostId::from("n3"),
                exits: code.map(|code| (Rank(0), rank_exit(code))).into_iter().collect(),
                spec: Some(Box::new(spec)),
                ..host_run_status(false)
            };
            let mut asked = Asked::default();
            asked.inventory.take(&HostId::from("n3"), vec![share], true);
            state(&merged(Vec::new(), &asked)[0], false, true)
        };
        assert_eq!(told(Some(0)), "exit 0: the rank finished; not recorded here");
        assert_eq!(told(Some(3)), "exit 3: rank 0 (n3:0): exit 3; not recorded here");
        assert_eq!(told(None), "ended; not recorded here");
    }

    #[test]
    fn of_a_run_that_only_its_hosts_know_they_tell_how_long_it_took() {
        let told = |live: bool, quiet_s: Option<u64>| {
            let spec = summary(RunStage::Training, None).spec;
            let host = HostId::from("n3");
            let spec = RunSpec { created: Stamp(100_000_000), ..spec };
            let share = HostRunStatus { spec: Some(Box::new(spec)), quiet_s, ..host_run_status(live) };
            let mut asked = Asked::default();
            asked.inventory.take(&host, vec![HostRunStatus { host: host.clone(), ..share }], true);
            asked.inventory.told_at.insert(host, Stamp(190_000_000));
            merged(Vec::new(), &asked)[0].duration_us(Stamp(200_000_000))
        };
        assert_eq!(told(false, Some(30)), Some(60_000_000));
        assert_eq!(told(false, Some(500)), None, "before it was made: by a clock that was set");
        assert_eq!(told(false, None), None, "an older agent");
        assert_eq!(told(true, None), Some(100_000_000), "it goes on");
    }

    #[test]
    fn what_is_said_of_an_end_is_short_in_a_pipe_unless_all_is_asked_for() {
        let failed = "rank 1 (n2:0) failed first: exit 3; rank 0 stopped because of it; rank 2 failed too";
        let outcome = RunOutcome::failed(Rank(1), 3, failed);
        let mut runs = merged(vec![summary(RunStage::Training, Some(outcome))], &Asked::default());
        let run = runs.first().unwrap();
        assert_eq!(state(run, false, true), format!("exit 3: {failed}"));
        assert_eq!(state(run, false, false), "exit 3: rank 1 (n2:0) failed first: exit 3; …");
        let refused =
            RunOutcome::refused(RefusalClass::Command, "rank 0 (n1:0): no file x.py in /: set workdir");
        let of_refused = merged(vec![summary(RunStage::Prepare, Some(refused))], &Asked::default());
        let words = state(&of_refused[0], false, true);
        assert_eq!(words, "refused, exit 127: rank 0 (n1:0): no file x.py in /: set workdir");
        assert_eq!(of_refused[0].listed(Stamp(0)).state, ListedState::Refused);
        assert_eq!(gist("it finished"), "it finished");
        assert_eq!(gist(&"x".repeat(300)).width(), SUMMARY);
        runs[0].stood =
            Some(StoodStill { for_us: 1, ranks: String::new(), words: "no step for 9.0 s".into() });
        assert!(state(&runs[0], false, false).ends_with("; …; no step for 9.0 s"));
    }
}
