//! A pasted line while it is read: what it says so far, and where in the line that stands. Must not know any
//! single launcher.

use std::ops::Range;

use crate::launch::words::{Caret, Line};

use super::hosts;
use super::options::{Does, Given, Unit, Value};
use super::pasted::{KnownTo, Pasted};

/// What is known of a line so far.
pub(super) struct Draft<'a> {
    pub line: &'a Line,
    pub pasted: Pasted,
    /// Where `-np` stands.
    pub np_at: Option<Range<usize>>,
    /// Where `-H` and its value stand.
    pub hosts_at: Option<Range<usize>>,
    /// Where `--hostfile` stands.
    pub hostfile_at: Option<Range<usize>>,
    /// Parameters that name interfaces, such as `btl_tcp_if_include`, and where they stand.
    pub interfaces_at: Vec<(String, Range<usize>)>,
    /// The value of a `TF_CONFIG=` before the command.
    pub tf_config: Option<Value<'a>>,
    /// The names of the variables before the command.
    pub leading: Vec<String>,
    /// The command is asked to be looked at, not started: `--version`.
    pub query: bool,
    /// `--check-build`.
    pub check_build: bool,
    /// torchrun's agents number their hosts themselves: `--rdzv-backend=c10d`.
    pub numbers_hosts: bool,
    /// torchrun's options that say where its hosts meet, as given.
    pub meets: Vec<String>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(line: &'a Line) -> Self {
        Self {
            line,
            pasted: Pasted::default(),
            np_at: None,
            hosts_at: None,
            hostfile_at: None,
            interfaces_at: Vec::new(),
            tf_config: None,
            leading: Vec::new(),
            query: false,
            check_build: false,
            numbers_hosts: false,
            meets: Vec::new(),
        }
    }

    /// The text of the words from one on.
    pub(super) fn texts(&self, from: usize) -> Vec<String> {
        self.line.words.iter().skip(from).map(|word| word.text.clone()).collect()
    }

    /// The command, which must not be missing.
    pub(super) fn take_command(&mut self, from: usize) -> Result<(), Caret> {
        if self.line.words.get(from).is_none_or(|word| word.text.trim().is_empty()) {
            let end = self.line.words.get(from).map_or(self.line.text.len(), |word| word.span.start);
            let text = "no command to run: the line ends where the program to start belongs";
            return Err(self.line.caret(end..end, text));
        }
        self.pasted.command = self.texts(from);
        Ok(())
    }

    pub(super) fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.pasted.remarks.contains(&text) {
            self.pasted.remarks.push(text);
        }
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.pasted.warnings.contains(&text) {
            self.pasted.warnings.push(text);
        }
    }

    pub(super) fn no_effect(&mut self, given: &Given<'_>, why: &str) {
        self.remark(format!("`{}` has no effect: {why}.", given.shown()));
    }

    pub(super) fn delegate(&mut self, given: &Given<'_>) {
        self.pasted.not_understood.push(given.shown());
        self.pasted.not_understood_words.extend(given.words());
    }

    /// Only the launcher itself can start such a line.
    pub(super) fn leave(&mut self, given: &Given<'_>) {
        self.delegate(given);
        self.pasted.known_to = KnownTo::Launcher;
    }

    pub(super) fn apply(&mut self, does: Does, given: &Given<'_>) -> Result<(), Caret> {
        match does {
            Does::Try(check) => return check(self, given),
            Does::Mark(mark) => mark(self, given),
            Does::Env(key, unit) => {
                let value = self.env_value(given, unit)?;
                self.pasted.set_env(key, value);
            }
            Does::NoEffect(why) => self.no_effect(given, why),
            Does::Pass => self.pasted.pass.extend(given.words()),
            Does::Delegate => self.delegate(given),
            Does::Leave => self.leave(given),
        }
        Ok(())
    }

    fn env_value(&self, given: &Given<'_>, unit: Unit) -> Result<String, Caret> {
        let bad = |what: &str| {
            let text = format!("`{}`: `{}` is not {what}", given.typed, given.text());
            self.line.caret(given.place(), text)
        };
        Ok(match unit {
            Unit::On => "1".to_owned(),
            Unit::Off => "0".to_owned(),
            Unit::Text => given.text().to_owned(),
            Unit::Count => {
                given.text().parse::<u64>().map_err(|_| bad("a whole number from 0 on"))?.to_string()
            }
            Unit::Mebibytes => {
                let bytes = given.text().parse::<u64>().ok().and_then(|mib| mib.checked_mul(1 << 20));
                bytes.ok_or_else(|| bad("a whole number of MiB"))?.to_string()
            }
            Unit::Decimal => {
                let number = given.text().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
                number.ok_or_else(|| bad("a number from 0 on"))?;
                given.text().to_owned()
            }
        })
    }

    /// Keeps a value that can be given once, or again with the same value.
    pub(super) fn once<T: PartialEq>(
        &self,
        was: Option<&T>,
        value: &T,
        given: &Given<'_>,
    ) -> Result<(), Caret> {
        if was.is_some_and(|was| was != value) {
            let text = format!("`{}` is given twice with different values: keep one", given.shown());
            return Err(self.line.caret(given.span.clone(), text));
        }
        Ok(())
    }

    pub(super) fn number(&self, given: &Given<'_>, least: u32, what: &str) -> Result<u32, Caret> {
        given.text().parse().ok().filter(|n| *n >= least).ok_or_else(|| {
            let text = format!("`{}`: `{}` is not {what}", given.typed, given.text());
            self.line.caret(given.place(), text)
        })
    }

    pub(super) fn port(&self, given: &Given<'_>) -> Result<u16, Caret> {
        given.text().parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            let text = format!("`{}`: `{}` is not a port from 1 to 65535", given.typed, given.text());
            self.line.caret(given.place(), text)
        })
    }

    /// What holds for each launcher that takes `-np`, `-H` and `--hostfile`; `command` is where the command
    /// begins.
    pub(super) fn check_hosts(&self, command: usize) -> Result<(), Caret> {
        if let (Some(hosts), Some(file)) = (&self.hosts_at, &self.hostfile_at) {
            let span = hosts.start.max(file.start)..hosts.end.max(file.end);
            return Err(self.line.caret(span, "`-H` and a host file together: give one of them"));
        }
        hosts::check_spaces(self, command)?;
        let slots: Option<u32> = self
            .pasted
            .hosts
            .iter()
            .map(|host| host.slots)
            .try_fold(0_u32, |sum, slots| Some(sum.saturating_add(slots?)));
        let (Some(np), Some(slots), Some(at)) = (self.pasted.np, slots, &self.np_at) else { return Ok(()) };
        if !self.pasted.hosts.is_empty() && np > slots && !self.pasted.oversubscribe {
            let text = format!(
                "{np} ranks do not fit the {slots} {} of `-H`: raise the slots there, or lower the number of ranks",
                if slots == 1 { "slot" } else { "slots" }
            );
            return Err(self.line.caret(at.clone(), text));
        }
        Ok(())
    }
}

/// Adds a name that is not there yet.
pub(super) fn add(list: &mut Vec<String>, name: &str) {
    if !name.is_empty() && !list.iter().any(|had| had == name) {
        list.push(name.to_owned());
    }
}
