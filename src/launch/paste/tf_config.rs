//! `TF_CONFIG='{"cluster": …, "task": …}' python …`: the cluster of TensorFlow's distribution strategies.
//! The rules are those of TensorFlow's `multi_worker_util.py`.

use crate::domain::run::JobKind;
use std::ops::Range;

use serde_json::Value as Json;

use crate::launch::words::Caret;

use super::draft::Draft;
use super::hosts::split_port;
use super::options::Value;
use super::pasted::{HostSlots, Launcher, Task};
use crate::domain::options::TaskRole;

const ROLES: [TaskRole; 4] = [TaskRole::Chief, TaskRole::Worker, TaskRole::Ps, TaskRole::Evaluator];

/// Reads the variable; the command begins at the word `command`.
pub(super) fn read(draft: &mut Draft<'_>, value: &Value<'_>, command: usize) -> Result<(), Caret> {
    let config = Config { draft, value };
    let json = config.json()?;
    let cluster = config.cluster(&json)?;
    config.task(&json, &cluster)?;
    for (key, inner) in json.as_object().into_iter().flatten() {
        match key.as_str() {
            "cluster" => {}
            "task" => draft.remark(
                "`task` of TF_CONFIG is not needed: hvtui starts each task of the cluster with its own.",
            ),
            "environment" => draft.remark("`environment` of TF_CONFIG has no effect in TensorFlow 2."),
            "rpc_layer" if inner == "grpc" => {
                draft.remark("`rpc_layer` of TF_CONFIG is not needed: grpc is what TensorFlow takes.");
            }
            _ => draft.pasted.not_understood.push(format!("`{key}` of TF_CONFIG")),
        }
    }
    draft.take_command(command)?;
    let pasted = &mut draft.pasted;
    for task in &cluster {
        match pasted.hosts.iter_mut().find(|host| host.host == task.host) {
            Some(host) => host.slots = host.slots.map(|slots| slots + 1),
            None => pasted.hosts.push(HostSlots { host: task.host.clone(), user: None, slots: Some(1) }),
        }
    }
    pasted.np = u32::try_from(cluster.len()).ok();
    pasted.cluster = cluster;
    pasted.launcher = Launcher::TfConfig;
    pasted.kind = JobKind::Tensorflow;
    if pasted.is_delegated() {
        // Delegated, the line is started as it was written.
        pasted.env.push(("TF_CONFIG".to_owned(), value.text().to_owned()));
    }
    Ok(())
}

struct Config<'d, 'a> {
    draft: &'d Draft<'a>,
    value: &'d Value<'a>,
}

impl Config<'_, '_> {
    fn error(&self, span: Range<usize>, text: &str) -> Caret {
        self.draft.line.caret(span, format!("TF_CONFIG: {text}"))
    }

    /// The place of the `nth` appearance of a piece of the JSON's text, else of all of it.
    fn place(&self, piece: &str, nth: usize) -> Range<usize> {
        match self.value.text().match_indices(piece).nth(nth) {
            Some((at, _)) => self.value.part(at..at + piece.len()),
            None => self.value.span(),
        }
    }

    fn json(&self) -> Result<Json, Caret> {
        let text = self.value.text();
        serde_json::from_str(text).map_err(|error| {
            let line: usize =
                text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            let at = (line + error.column().saturating_sub(1)).min(text.len());
            let words = error.to_string();
            let words = words.split(" at line ").next().unwrap_or_default();
            self.error(self.value.part(at..at + 1), &format!("this is not valid JSON: {words}"))
        })
    }

    fn cluster(&self, json: &Json) -> Result<Vec<Task>, Caret> {
        let example = r#"write {"cluster": {"worker": ["host:port"]}}"#;
        let Some(cluster) = json.get("cluster").and_then(Json::as_object).filter(|c| !c.is_empty()) else {
            return Err(self.error(self.value.span(), &format!("it names no cluster: {example}")));
        };
        if let Some(other) = cluster.keys().find(|key| ROLES.iter().all(|role| role.name() != *key)) {
            let text = format!("`{other}` is no type of a task: chief, worker, ps or evaluator");
            return Err(self.error(self.place(&format!("\"{other}\""), 0), &text));
        }
        let mut tasks: Vec<Task> = Vec::new();
        for role in ROLES {
            let Some(list) = cluster.get(role.name()) else { continue };
            let quoted = format!("\"{}\"", role.name());
            let Some(list) = list.as_array() else {
                let text = format!("`{}` must be a list of \"host:port\"", role.name());
                return Err(self.error(self.place(&quoted, 0), &text));
            };
            if list.len() > 1 && matches!(role, TaskRole::Chief | TaskRole::Evaluator) {
                let text = format!("a cluster has at most one {}, and this one {}", role.name(), list.len());
                return Err(self.error(self.place(&quoted, 0), &text));
            }
            for address in list {
                let task = self.address(role, address)?;
                if tasks.iter().any(|had| had.host == task.host && had.port == task.port) {
                    let piece = address.to_string();
                    return Err(self.error(self.place(&piece, 1), "two tasks have the same address and port"));
                }
                tasks.push(task);
            }
        }
        if tasks.is_empty() {
            return Err(self.error(self.value.span(), &format!("its cluster has no tasks: {example}")));
        }
        Ok(tasks)
    }

    fn address(&self, role: TaskRole, address: &Json) -> Result<Task, Caret> {
        let piece = address.to_string();
        let bad = || {
            let text =
                format!("`{}` must be \"host:port\", with a port from 1 to 65535", piece.trim_matches('"'));
            self.error(self.place(&piece, 0), &text)
        };
        let (host, port) = address.as_str().and_then(split_port).ok_or_else(bad)?;
        let port = port.and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0).ok_or_else(bad)?;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(bad());
        }
        Ok(Task { role, host: host.to_owned(), port })
    }

    /// The pasted line's own task has to be one of the cluster, or the line would have failed.
    fn task(&self, json: &Json, cluster: &[Task]) -> Result<(), Caret> {
        let Some(task) = json.get("task").filter(|task| !task.is_null()) else { return Ok(()) };
        let last = |piece: &str| {
            let count = self.value.text().matches(piece).count();
            self.place(piece, count.saturating_sub(1))
        };
        let Some(role) = task.get("type").and_then(Json::as_str) else {
            return Err(self.error(last("\"task\""), "`task` needs a \"type\" and an \"index\""));
        };
        let Some(known) = ROLES.iter().find(|known| known.name() == role) else {
            let text = format!("`{role}` is no type of a task: chief, worker, ps or evaluator");
            return Err(self.error(last(&format!("\"{role}\"")), &text));
        };
        let size = cluster.iter().filter(|task| task.role == *known).count();
        if size == 0 {
            let text = format!("the task is a {role}, and the cluster has none: add its address there");
            return Err(self.error(last(&format!("\"{role}\"")), &text));
        }
        // TensorFlow takes a number in quotes as well.
        let index = task.get("index").map_or(Some(0), |index| {
            index.as_u64().or_else(|| index.as_str().and_then(|text| text.parse().ok()))
        });
        match index {
            Some(index) if usize::try_from(index).is_ok_and(|index| index < size) => Ok(()),
            Some(index) => {
                let text =
                    format!("index {index} is outside of the cluster: its {role}s are 0 to {}", size - 1);
                Err(self.error(last("\"index\""), &text))
            }
            None => Err(self.error(last("\"index\""), "`index` must be a number from 0 on")),
        }
    }
}
