//! The hosts file as it is written: every key optional, every value with its place in the text. Knows the
//! keys, not their rules.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::{Spanned, Value};

/// Text with its place.
pub(super) type Text = Spanned<String>;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) defaults: Option<HostTable>,
    #[serde(default)]
    pub(super) host: Vec<Spanned<HostTable>>,
    #[serde(default)]
    pub(super) recipe: Vec<Spanned<RecipeTable>>,
    pub(super) alerts: Option<AlertsTable>,
    pub(super) runs: Option<RunsTable>,
    #[serde(default)]
    pub(super) views: BTreeMap<Text, Text>,
}

/// `[runs]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunsTable {
    pub(super) older_than: Option<Text>,
    pub(super) keep: Option<Spanned<Value>>,
    pub(super) max_size: Option<Text>,
    pub(super) max_recording: Option<Text>,
}

/// `[alerts]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlertsTable {
    pub(super) temperature: Option<Spanned<Value>>,
    pub(super) slowdown: Option<Text>,
    pub(super) ecc: Option<Text>,
    pub(super) xid: Option<Text>,
    pub(super) host_down: Option<Text>,
    pub(super) gpu_lost: Option<Text>,
    pub(super) disk_full: Option<Text>,
    pub(super) foreign_process: Option<Text>,
    pub(super) hang: Option<Text>,
    pub(super) held_idle: Option<Text>,
    pub(super) straggler: Option<Text>,
    pub(super) rank_failed: Option<Text>,
    pub(super) live_run: Option<Text>,
    pub(super) command: Option<Spanned<Vec<Text>>>,
}

/// `[defaults]` or one `[[host]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostTable {
    pub(super) name: Option<Text>,
    pub(super) address: Option<Text>,
    pub(super) user: Option<Text>,
    pub(super) port: Option<Spanned<Value>>,
    pub(super) identity: Option<Text>,
    pub(super) jump: Option<Text>,
    pub(super) transport: Option<Text>,
    pub(super) fingerprint: Option<Text>,
    pub(super) host_keys: Option<Text>,
    pub(super) interface: Option<Text>,
    pub(super) slots: Option<Spanned<Value>>,
    pub(super) labels: Option<Vec<Text>>,
    pub(super) env: Option<BTreeMap<Text, Spanned<Value>>>,
    pub(super) secret_env: Option<Vec<Text>>,
    pub(super) workdir: Option<Text>,
    pub(super) spool_cap: Option<Text>,
    pub(super) min_free: Option<Text>,
    pub(super) free_memory: Option<Text>,
    pub(super) max_silence: Option<Text>,
    pub(super) python_hooks: Option<Spanned<Value>>,
    pub(super) agent_path: Option<Text>,
    pub(super) cache_dir: Option<Text>,
    pub(super) install: Option<Spanned<Value>>,
    pub(super) lease_dir: Option<Text>,
    pub(super) container: Option<Text>,
    pub(super) conda: Option<Text>,
    pub(super) venv: Option<Text>,
    pub(super) modules: Option<Vec<Text>>,
    pub(super) env_from_login: Option<Text>,
    pub(super) ulimit: Option<Text>,
}

/// One `[[recipe]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecipeTable {
    pub(super) name: Option<Text>,
    pub(super) kind: Option<Text>,
    pub(super) command: Option<Spanned<Command>>,
    pub(super) np: Option<Spanned<Value>>,
    pub(super) picks: Option<Vec<Text>>,
    pub(super) env: Option<BTreeMap<Text, Spanned<Value>>>,
    pub(super) image: Option<Text>,
    pub(super) volumes: Option<Vec<Text>>,
    pub(super) sync: Option<Text>,
    pub(super) workdir: Option<Text>,
    pub(super) conda: Option<Text>,
    pub(super) venv: Option<Text>,
    pub(super) modules: Option<Vec<Text>>,
    pub(super) env_from_login: Option<Text>,
    pub(super) ulimit: Option<Text>,
}

/// A command as one line or as a list of words.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a command is a line of text or a list of words")]
pub(super) enum Command {
    Line(String),
    Words(Vec<String>),
}
