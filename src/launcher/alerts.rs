//! What is done with an alert outside of the screen: its JSON, and the command that the hosts file names. The command is
//! executed without a shell, one at a time a kind, and never longer than a deadline.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time;

use crate::config::PLACEHOLDERS;
use crate::domain::alerts::{AlertKind, News};
use crate::domain::gpu::health::Severity;
use crate::domain::text::{os_text, sanitize};
use crate::domain::time::Stamp;

/// For how long a command may run.
const DEADLINE: Duration = Duration::from_secs(10);
/// How many alerts of a kind wait while its command runs; what comes then is dropped, and said.
const WAITING: usize = 64;
/// How much is read of what a command says on its standard error.
const SAID: u64 = 4096;
/// For how long that is waited for after its end: what it has started may hold it open.
const REST: Duration = Duration::from_millis(200);
/// The version of the object.
const VERSION: u32 = 1;

/// An alert as `hvtui watch --json` and the command get it: `docs/formats/alert.schema.json`.
#[derive(Debug, Clone, Serialize)]
pub struct AlertObject {
    version: u32,
    r#type: &'static str,
    state: &'static str,
    kind: AlertKind,
    severity: &'static str,
    at: String,
    since: String,
    until: Option<String>,
    place: String,
    host: Option<String>,
    gpu: Option<u32>,
    run: Option<String>,
    rank: Option<u32>,
    words: String,
}

impl AlertObject {
    /// What is told of an alert at `at`.
    pub fn of(news: &News, at: Stamp) -> Self {
        let alert = &news.alert;
        let state = match news.ended {
            _ if alert.is_moment() => "event",
            true => "ended",
            false => "began",
        };
        // one that is told late may have ended meanwhile
        let until = alert.until.filter(|_| state != "began");
        Self {
            version: VERSION,
            r#type: "alert",
            state,
            kind: alert.kind,
            severity: if alert.severity == Severity::Act { "act" } else { "look" },
            at: at.rfc3339(),
            since: alert.since.rfc3339(),
            until: until.map(Stamp::rfc3339),
            place: alert.place.to_string(),
            host: alert.place.host.as_ref().map(|host| sanitize(host.as_str()).into_owned()),
            gpu: alert.place.gpu,
            run: alert.place.run.as_ref().map(ToString::to_string),
            rank: alert.place.rank.map(|rank| rank.0),
            words: alert.words.clone(),
        }
    }

    /// A line for people: `began gpu-a:3: 88 °C, too hot from 86 °C on`.
    pub fn sentence(&self) -> String {
        let state = if self.state == "event" { "" } else { self.state };
        format!("{state} {}: {}", self.place, self.words).trim_start().to_owned()
    }

    /// What a placeholder stands for; empty where the alert has none.
    fn property(&self, name: &str) -> String {
        match name {
            "kind" => self.kind.name().to_owned(),
            "state" => self.state.to_owned(),
            "place" => self.place.clone(),
            "host" => self.host.clone().unwrap_or_default(),
            "gpu" => self.gpu.map(|gpu| gpu.to_string()).unwrap_or_default(),
            "run" => self.run.clone().unwrap_or_default(),
            "rank" => self.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            "words" => self.words.clone(),
            _ => String::new(),
        }
    }

    /// The properties in the place of their names, all at once: what they hold is not read again.
    fn fill(&self, word: &str) -> String {
        let mut filled = String::new();
        let mut rest = word;
        while let Some((before, from)) = rest.split_once('{') {
            filled.push_str(before);
            let name = from.split_once('}').map(|(name, _)| name).filter(|name| PLACEHOLDERS.contains(name));
            if let Some(name) = name {
                filled.push_str(&self.property(name));
                rest = &from[name.len() + 1..];
            } else {
                filled.push('{');
                rest = from;
            }
        }
        filled + rest
    }
}

/// What became of one execution: the kind, and why it failed.
type Done = (AlertKind, Result<(), String>);

/// The command of the hosts file, and its executions.
#[derive(Debug)]
pub struct AlertCommand {
    argv: Option<Vec<String>>,
    running: BTreeSet<AlertKind>,
    waiting: BTreeMap<AlertKind, VecDeque<AlertObject>>,
    done: (UnboundedSender<Done>, UnboundedReceiver<Done>),
    deadline: Duration,
}

impl AlertCommand {
    /// A command, if there is one.
    pub fn new(argv: Option<Vec<String>>) -> Self {
        Self {
            argv,
            running: BTreeSet::new(),
            waiting: BTreeMap::new(),
            done: unbounded_channel(),
            deadline: DEADLINE,
        }
    }

    /// Executes it for an alert, as soon as none of the same kind runs. Says so where too many wait.
    pub fn execute(&mut self, object: AlertObject) -> Option<String> {
        self.argv.as_ref()?;
        let kind = object.kind;
        if !self.running.contains(&kind) {
            self.start(object);
            return None;
        }
        let waiting = self.waiting.entry(kind).or_default();
        if waiting.len() >= WAITING {
            return Some(format!("the alerts' command is slow: {} was dropped", object.sentence()));
        }
        waiting.push_back(object);
        None
    }

    /// Why an execution failed, once one does. May be dropped and called again.
    pub async fn failure(&mut self) -> String {
        loop {
            // never closed: this end holds a sender too
            let Some((kind, result)) = self.done.1.recv().await else { return std::future::pending().await };
            self.running.remove(&kind);
            if let Some(next) = self.waiting.get_mut(&kind).and_then(VecDeque::pop_front) {
                self.start(next);
            }
            if let Err(why) = result {
                return why;
            }
        }
    }

    fn start(&mut self, object: AlertObject) {
        let Some(argv) = self.argv.clone() else { return };
        self.running.insert(object.kind);
        let (sender, deadline) = (self.done.0.clone(), self.deadline);
        tokio::spawn(async move {
            let kind = object.kind;
            let result = run(&argv, &object, deadline).await;
            let result = result.map_err(|why| format!("the alerts' command {}: {why}", argv[0]));
            // fails only when the replay was closed
            let _ = sender.send((kind, result));
        });
    }
}

/// Executes the command for one alert. The process and all that it has started in its group are killed at the deadline.
async fn run(argv: &[String], object: &AlertObject, deadline: Duration) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("is empty")?;
    let mut json = serde_json::to_vec(object).map_err(|error| error.to_string())?;
    json.push(b'\n');
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|word| object.fill(word)));
    for name in PLACEHOLDERS {
        command.env(format!("HVTUI_ALERT_{}", name.to_uppercase()), object.property(name));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| os_text(&error))?;
    let group = child.id();
    let ended = time::timeout(deadline, talk(&mut child, &json)).await;
    let Ok((status, said)) = ended else {
        kill_group(group);
        // it is gone, and is collected
        let _ = child.wait().await;
        return Err(format!("killed after {} s", deadline.as_secs_f64()));
    };
    match status.map_err(|error| os_text(&error))? {
        status if status.success() => Ok(()),
        status => {
            let said =
                said.lines().next_back().map(|line| format!(": {}", sanitize(line))).unwrap_or_default();
            Err(format!("{status}{said}"))
        }
    }
}

/// Writes the alert, and waits for the end.
async fn talk(child: &mut Child, json: &[u8]) -> (std::io::Result<std::process::ExitStatus>, String) {
    let (input, errors) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut input) = input {
            // one that does not read it closes it
            let _ = input.write_all(json).await;
        }
    };
    let mut said = Vec::new();
    let read = async {
        if let Some(errors) = errors {
            let mut some = errors.take(SAID);
            // what was read before a fault counts
            let _ = some.read_to_end(&mut said).await;
            // the rest is read and dropped, so that the command is not held up
            let _ = tokio::io::copy(&mut some.into_inner(), &mut tokio::io::sink()).await;
        }
    };
    let status = {
        let both = async { tokio::join!(write, read) };
        tokio::pin!(both);
        let mut is_read = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                _ = &mut both, if !is_read => is_read = true,
            }
        };
        if !is_read {
            // what is in the pipe still
            let _ = time::timeout(REST, both).await;
        }
        status
    };
    (status, String::from_utf8_lossy(&said).into_owned())
}

fn kill_group(group: Option<u32>) {
    let group = group.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // fails only when it has ended
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
